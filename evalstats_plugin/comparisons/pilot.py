"""How much the differences between models vary, estimated from the logs of a pilot.

`spreads` gives a `Spread` for each task and metric: the variances between and within items of the
difference of every pair of models, which `comparisons.power` plans with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.data.responses import Responses
from evalstats_plugin.data.runs import one_of_each
from evalstats_plugin.errors import DesignError, counted, few
from evalstats_plugin.scores.cells import (
    Cell,
    by_task,
    cluster_names,
    epochs_are_binary,
    make_cell,
)
from evalstats_plugin.stats.arrays import FloatArray, IntArray

BLOCK_SIZE = 2**22
"""Differences held at a time."""


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
    """Between items, inflated by clusters; the whole variance where `within` is 0."""
    within: FloatArray
    """Within items, of one epoch of both models together; NaN where no item has two epochs."""
    discordance: FloatArray
    """Probability that only one model is right, in one epoch of each; NaN without 0/1 scores."""
    design_effect: FloatArray
    n_items: IntArray
    """Items of the pilot; 0 where all comes from assumptions."""
    n_epochs: int = 1
    bounded: float = np.inf
    """The greatest possible difference."""


def with_design_effect(spread: Spread, design_effect: float) -> Spread:
    """Return the spread with another design effect."""
    noise = np.nan_to_num(spread.within) / spread.n_epochs
    plain = (spread.between + noise) / spread.design_effect
    return replace(
        spread,
        between=design_effect * plain - noise,
        design_effect=np.full_like(spread.between, design_effect),
    )


def spreads(responses: Sequence[Responses], *, paired: bool) -> tuple[list[Spread], list[str]]:
    """Estimate how differences vary on each task; return also notes on what was left out.

    Paired, two models answer the same items; unpaired, as many different ones each, and the only
    model of a task is compared with another of the same variance.

    Raises
    ------
    DesignError
        Where no task has what is needed for an estimate.
    """
    groups = by_task(one_of_each(responses))
    found: list[Spread] = []
    left_out: list[str] = []
    for (task, metric), group in groups.items():
        cells = [make_cell(r, {}) for r in group if len(r.item_ids)]
        cells = [c for c in cells if c.kind not in (None, "ratio") and c.n > 1]
        spread = _spread(cells, paired=paired) if len(cells) >= 1 + paired else None
        if spread is not None and len(spread.a):
            found.append(spread)
        else:
            left_out.append(f"{task} {metric}")
    wanted = "two models that share two items or more" if paired else "a mean of two item scores"
    if not found:
        models = dict.fromkeys(r.model for r in responses)
        msg = (
            f"a pilot needs {wanted} on some task, and the logs have "
            f"{counted(len(models), 'model')} ({few(list(models)) or 'none'}) without that"
        )
        hint = "; to plan for different items, choose the unpaired design" if paired else ""
        raise DesignError(msg + hint)
    notes = [f"nothing to plan with, not {wanted}: {few(left_out)}"] if left_out else []
    return found, notes


def _spread(cells: Sequence[Cell], *, paired: bool) -> Spread:
    """Estimate the variances of every pair of models on one task."""
    from evalstats_plugin.stats.clustered import epoch_noise
    from evalstats_plugin.stats.means import moments

    matrix = ResponseMatrix.join([c.responses for c in cells])
    variance, noise = epoch_noise(matrix.scores)
    # An item with one epoch gets the variance of the average item.
    variance = np.where(np.isnan(variance), moments(variance).mean[:, None], variance)
    clusters = None if matrix.clusters is None else cluster_names(matrix.clusters)
    scores = _Scores(moments(matrix.scores).mean, variance, noise, clusters)
    n_models = len(matrix.models)
    # A single model is paired with itself: another with the same variance is assumed.
    a, b = np.triu_indices(n_models, 1) if n_models > 1 else (np.zeros(1, int), np.zeros(1, int))
    step = max(BLOCK_SIZE // max(len(matrix.item_ids), 1), 1)
    solve = _paired if paired else _unpaired
    blocks = [
        solve(scores, a[start : start + step], b[start : start + step])
        for start in range(0, len(a), step)
    ]
    n, between, within, apart, effect = np.concatenate(blocks, axis=1)
    keep = n > 1
    binary = paired and all(epochs_are_binary(c.responses) for c in cells)
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


@dataclass(frozen=True, eq=False)
class _Scores:
    """N models on M items; arrays of shape (N, M)."""

    means: FloatArray
    """Over the epochs."""
    variance: FloatArray
    """Of one epoch."""
    noise: FloatArray
    """Variance of the mean over the epochs."""
    clusters: NDArray[Any] | None
    """Shape (M,): names of clusters; None for independent items."""


def _paired(scores: _Scores, a: IntArray, b: IntArray) -> FloatArray:
    """Number of items, variance between and within them, discordance, design effect: (5, P)."""
    from evalstats_plugin.stats.means import moments

    mean_a, mean_b = scores.means[a], scores.means[b]
    n, total, effect = _inflated(mean_b - mean_a, scores.clusters)
    here = ~np.isnan(mean_a) & ~np.isnan(mean_b)
    noise, within = (
        moments(np.where(here, x[a] + x[b], np.nan)).mean for x in (scores.noise, scores.variance)
    )
    apart = moments(mean_a + mean_b - 2 * mean_a * mean_b).mean
    return np.stack([n, effect * total - np.nan_to_num(noise), within, apart, effect])


def _unpaired(scores: _Scores, a: IntArray, b: IntArray) -> FloatArray:
    """The same for two models that answer different items; NaN for discordance."""
    from evalstats_plugin.stats.means import moments

    n, total, effect = _inflated(scores.means, scores.clusters)
    noise, within = (moments(x).mean for x in (scores.noise, scores.variance))
    between = effect * total - np.nan_to_num(noise)
    plain = total[a] + total[b]
    inflated = (effect * total)[a] + (effect * total)[b]
    together = np.where(plain > 0, inflated / np.where(plain > 0, plain, 1.0), 1.0)
    fewer = np.minimum(n[a], n[b])
    columns = [fewer, between[a] + between[b], within[a] + within[b], np.nan * fewer, together]
    return np.stack(columns)


def _inflated(values: FloatArray, clusters: NDArray[Any] | None) -> tuple[FloatArray, ...]:
    """Count and variance of values (..., M), and the design effect of their clusters.

    The design effect is at least 1: estimates below come from few clusters by chance.
    """
    from evalstats_plugin.stats import clustered
    from evalstats_plugin.stats.means import moments

    n, _, std = moments(values)
    if clusters is None:
        return n, std**2, np.ones_like(n)
    there = ~np.isnan(values)
    totals = clustered.by_cluster(np.where(there, values, 0.0), clusters)
    sizes = clustered.by_cluster(there * 1.0, clusters)
    plain = std / np.sqrt(np.maximum(n, 1.0))
    effect = clustered.design_effect(clustered.cluster_moments(totals, sizes).cr1, plain)
    return n, std**2, np.fmax(effect, 1.0)
