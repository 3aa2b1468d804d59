"""What the logs of a pilot tell of the differences between two models: how much they vary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.analyses.cells import Cell, make_cell, takes_are_binary
from evalstats_plugin.errors import DesignError
from evalstats_plugin.matrix import ResponseMatrix
from evalstats_plugin.responses import Responses
from evalstats_plugin.runs import run_of
from evalstats_plugin.wording import few

BLOCK_SIZE = 2**22
"""Differences held at a time."""

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False, kw_only=True)
class Spread:
    """How much the differences of P pairs of models vary, on one task under one metric.

    Arrays have shape (P,). Variances are those of one item's difference.
    """

    task: str = ""
    metric: str = ""
    models: tuple[str, ...] = ("", "")
    a: IntArray
    b: IntArray
    """The models of each pair, by their place in `models`."""
    between: FloatArray
    """Between items; inflated where items come in clusters. All there is, where `within` is 0."""
    within: FloatArray
    """Within items, of one epoch of both models together; NaN where no item was taken twice."""
    discordance: FloatArray
    """Probability that one take of each tells the models apart; NaN where not of 0/1 scores."""
    design_effect: FloatArray
    n_items: IntArray
    """Of the pilot; 0 where all comes from assumptions."""
    n_epochs: int = 1
    bounded: float = np.inf
    """The greatest possible difference."""


def spreads(responses: Sequence[Responses], *, paired: bool) -> tuple[list[Spread], list[str]]:
    """Estimate how differences vary on each task; return also notes on what was left out.

    Paired, two models answer the same items; unpaired, as many different ones each, and a model
    that is alone is set against another like it.

    Raises
    ------
    DesignError
        Where there is nothing to estimate from.
    """
    latest = {(r.model, r.task, r.metric): r for r in sorted(responses, key=run_of)}
    groups: dict[tuple[str, str], list[Cell]] = {}
    for r in responses:
        if latest[r.model, r.task, r.metric] is r:
            cells = groups.setdefault((r.task, r.metric.removesuffix(",none")), [])
            cell = make_cell(r, {})
            if len(r.item_ids) and cell.kind not in (None, "ratio") and cell.n > 1:
                cells.append(cell)
    found: list[Spread] = []
    left_out: list[str] = []
    for (task, metric), cells in groups.items():
        spread = _spread(cells, paired=paired) if len(cells) >= 1 + paired else None
        if spread is not None and len(spread.a):
            found.append(spread)
        else:
            left_out.append(f"{task} {metric}")
    wanted = "two models that share two items or more" if paired else "a mean of two item scores"
    if not found:
        models = dict.fromkeys(r.model for r in responses)
        msg = (
            f"a pilot needs {wanted} on some task; found {len(models)} "
            f"model{'' if len(models) == 1 else 's'} ({few(list(models)) or 'none'})"
        )
        hint = "; to plan for different items, say that the design is unpaired" if paired else ""
        raise DesignError(msg + hint)
    notes = [f"nothing to plan with, not {wanted}: {few(left_out)}"] if left_out else []
    return found, notes


def _spread(cells: Sequence[Cell], *, paired: bool) -> Spread:
    """Estimate the variances of every pair of models on one task."""
    from evalstats_plugin.stats.epochs import take_noise
    from evalstats_plugin.stats.mean import moments

    matrix = ResponseMatrix.join([c.responses for c in cells])
    variance, noise = take_noise(matrix.scores)
    # An item that was taken once has the variance of the average item.
    variance = np.where(np.isnan(variance), moments(variance).mean[:, None], variance)
    clusters = None if matrix.clusters is None else matrix.clusters.astype(str)
    takes = _Takes(moments(matrix.scores).mean, variance, noise, _Clusters.of(clusters))
    n_models = len(matrix.models)
    # A model alone, of which another is expected to be like it, is a pair with itself.
    a, b = np.triu_indices(n_models, 1) if n_models > 1 else (np.zeros(1, int), np.zeros(1, int))
    step = max(BLOCK_SIZE // max(len(matrix.item_ids), 1), 1)
    solve = _paired if paired else _unpaired
    blocks = [
        solve(takes, a[start : start + step], b[start : start + step])
        for start in range(0, len(a), step)
    ]
    n, between, within, apart, effect = np.concatenate(blocks, axis=1)
    keep = n > 1
    binary = paired and all(takes_are_binary(c.responses) for c in cells)
    bounds = {c.bounds for c in cells}
    span = bounds.pop() if len(bounds) == 1 else None
    return Spread(
        task=cells[0].responses.task,
        metric=cells[0].responses.metric,
        models=matrix.models,
        a=a[keep].astype(np.int64),
        b=b[keep].astype(np.int64),
        between=between[keep],
        within=within[keep],
        discordance=np.where(binary, apart, np.nan)[keep],
        design_effect=effect[keep],
        n_items=n[keep].astype(np.int64),
        n_epochs=int(matrix.scores.shape[2]),
        bounded=np.inf if span is None else span[1] - span[0],
    )


def _paired(takes: _Takes, a: IntArray, b: IntArray) -> FloatArray:
    """Number of items, variance between and within them, discordance, design effect: (5, P)."""
    from evalstats_plugin.stats.mean import moments

    mean_a, mean_b = takes.means[a], takes.means[b]
    n, total, effect = _inflated(mean_b - mean_a, takes.clusters)
    here = ~np.isnan(mean_a) & ~np.isnan(mean_b)
    noise, within = (
        moments(np.where(here, x[a] + x[b], np.nan)).mean for x in (takes.noise, takes.variance)
    )
    apart = moments(mean_a + mean_b - 2 * mean_a * mean_b).mean
    return np.stack([n, effect * total - np.nan_to_num(noise), within, apart, effect])


def _unpaired(takes: _Takes, a: IntArray, b: IntArray) -> FloatArray:
    """Find the same for two models that answer different items; without discordance."""
    from evalstats_plugin.stats.mean import moments

    n, total, effect = _inflated(takes.means, takes.clusters)
    noise, within = (moments(x).mean for x in (takes.noise, takes.variance))
    between = effect * total - np.nan_to_num(noise)
    plain = total[a] + total[b]
    inflated = (effect * total)[a] + (effect * total)[b]
    together = np.where(plain > 0, inflated / np.where(plain > 0, plain, 1.0), 1.0)
    fewer = np.minimum(n[a], n[b])
    columns = [fewer, between[a] + between[b], within[a] + within[b], np.nan * fewer, together]
    return np.stack(columns)


def _inflated(values: FloatArray, clusters: _Clusters | None) -> tuple[FloatArray, ...]:
    """Count and variance of values (..., M), and how many times larger clusters make it.

    Never less than once: too few clusters can say that only by chance.
    """
    from evalstats_plugin.stats import clustered
    from evalstats_plugin.stats.mean import moments

    n, _, std = moments(values)
    if clusters is None:
        return n, std**2, np.ones_like(n)
    there = ~np.isnan(values)
    totals, sizes = (
        np.add.reduceat(x[:, clusters.order], clusters.starts, axis=1)
        for x in (np.where(there, values, 0.0), there * 1.0)
    )
    plain = std / np.sqrt(np.maximum(n, 1.0))
    effect = clustered.design_effect(clustered.moments(totals, sizes).cr1, plain)
    return n, std**2, np.fmax(effect, 1.0)


@dataclass(frozen=True, eq=False)
class _Clusters:
    """Items in the order of their clusters, and where each begins."""

    order: IntArray
    starts: IntArray

    @classmethod
    def of(cls, names: NDArray[np.str_] | None) -> _Clusters | None:
        if names is None:
            return None
        # An item of no cluster is one of its own.
        alone = np.char.add("\0", np.arange(len(names)).astype(str))
        names = np.where(names == "", alone, names)
        order = np.argsort(names, kind="stable")
        _, starts = np.unique(names[order], return_index=True)
        return cls(order.astype(np.int64), starts.astype(np.int64))


@dataclass(frozen=True, eq=False)
class _Takes:
    """Of N models on M items, each of shape (N, M)."""

    means: FloatArray
    variance: FloatArray
    """Of one take."""
    noise: FloatArray
    """Of the mean of the takes."""
    clusters: _Clusters | None
