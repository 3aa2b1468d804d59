"""What the logs of a pilot tell of the differences between two models: how much they vary."""
# PART power_solver - Chooses the formula for each pair of models of a power analysis, and runs it.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.data.responses import Responses
from evalstats_plugin.data.runs import run_of
from evalstats_plugin.errors import DesignError, few
from evalstats_plugin.scores.cells import Cell, make_cell, takes_are_binary
from evalstats_plugin.stats.arrays import BoolArray, FloatArray, IntArray

BLOCK_SIZE = 2**22
"""Differences held at a time."""


EXACT = ("mcnemar-mid-p", "dirichlet", "tango")
"""Tests of 0/1 scores taken once, as `evalstats_plugin.stats.power.TAILS` has them."""


METHODS = ("auto", "miller", "t", *EXACT)
"""What finds a difference. ``"auto"``: McNemar's mid-p test for 0/1 scores taken once, else
Miller's normal approximation, and Student's t test below 100 items."""


NORMAL_FROM = 100
"""Items from which on the normal approximation is good to one item in 50."""


EXACT_UP_TO = 10_000
"""Items up to which outcomes are summed; the normal approximation is as good beyond."""


MOST_MODELS = 100
"""Where the search for a number of models ends."""


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
    from evalstats_plugin.stats.clustered import take_noise
    from evalstats_plugin.stats.means import moments

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
    from evalstats_plugin.stats.means import moments

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
    from evalstats_plugin.stats.means import moments

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
    from evalstats_plugin.stats import clustered as stats_clustered
    from evalstats_plugin.stats.means import moments

    n, _, std = moments(values)
    if clusters is None:
        return n, std**2, np.ones_like(n)
    there = ~np.isnan(values)
    totals, sizes = (
        np.add.reduceat(x[:, clusters.order], clusters.starts, axis=1)
        for x in (np.where(there, values, 0.0), there * 1.0)
    )
    plain = std / np.sqrt(np.maximum(n, 1.0))
    effect = stats_clustered.design_effect(
        stats_clustered.cluster_moments(totals, sizes).cr1, plain
    )
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


@dataclass(frozen=True, slots=True)
class Aim:
    """What is asked for: the arguments of `power`, checked."""

    difference: float | None
    n_items: int | None
    n_epochs: int | None
    power: float
    confidence_level: float


class PowerSolver:
    """Answers for the P pairs of one task; every array has shape (P,)."""

    def __init__(self, spread: Spread, aim: Aim, *, method: str, n_models: int) -> None:
        self.spread, self.aim, self.method, self.n_models = spread, aim, method, n_models
        self.n_epochs = aim.n_epochs or spread.n_epochs
        if self.n_epochs != spread.n_epochs and np.isnan(spread.within).any():
            msg = (
                f"{spread.task} {spread.metric}: {self.n_epochs} epochs asked for, but the pilot "
                "took each item once, which does not tell how takes of an item vary; run it in two "
                "epochs or more"
            )
            raise DesignError(msg)
        within = np.nan_to_num(spread.within) / self.n_epochs
        self.variance = np.maximum(spread.between, 0.0) + within
        once = self.n_epochs == 1 and method in ("auto", *EXACT)
        self.exact: BoolArray = ~np.isnan(spread.discordance) & once
        if method in EXACT and not self.exact.all():
            msg = (
                f"{method} is for 0/1 scores of the same items, taken once; for anything else "
                "leave the method to auto"
            )
            raise DesignError(msg)

    def tail(self, n_models: int) -> float:
        """Probability left out on each side of a comparison, all pairs of models allowed for."""
        from evalstats_plugin.stats.interval import tail_probability

        n_pairs = n_models * (n_models - 1) // 2
        return tail_probability(self.aim.confidence_level) / n_pairs

    def name(self, pair: int, n_items: float) -> str:
        """Return the method that is used for a pair with so many items."""
        n = np.full(len(self.exact), n_items)
        if self._exact_at(n)[pair]:
            return self._test
        return "t" if self._small(n)[pair] else "miller"

    def items(self, difference: float) -> FloatArray:
        """Return the numbers of items that find a difference; NaN where nothing varies."""
        from evalstats_plugin.stats import power as stats_power
        from evalstats_plugin.stats.power import paired_items_needed

        goal = {"tail": self.tail(self.n_models), "power": self.aim.power}
        found = np.maximum(
            np.ceil(stats_power.items_needed(difference, self.variance, **goal)), 2.0
        )
        few = self._small(found)
        if few.any():
            variance = self.variance[few]

            def power_of(n: FloatArray) -> FloatArray:
                return stats_power.t_power(n, difference, variance, tail=goal["tail"])

            found[few] = stats_power.least_items(power_of, found[few], power=self.aim.power)
        found = np.where(self.variance > 0, found, np.nan)
        exact = self._exact_at(
            stats_power.items_needed(difference, self._apart(difference), **goal)
        )
        if exact.any():
            apart, place = np.unique(self._apart(difference)[exact], return_inverse=True)
            of_counts = paired_items_needed(apart, difference, test=self._test, **goal)
            # A sum of two roundings can pass a whole number by a last bit.
            inflated = of_counts[place] * self.spread.design_effect[exact]
            found[exact] = np.ceil(inflated - 1e-9)
        return found

    def difference(self, n_items: FloatArray) -> FloatArray:
        """Return the least differences that so many items find; NaN where none is possible."""
        from evalstats_plugin.stats import power as stats_power
        from evalstats_plugin.stats.power import paired_power

        tail, goal, top = self.tail(self.n_models), self.aim.power, self.spread.bounded
        found = stats_power.difference_needed(n_items, self.variance, tail=tail, power=goal)
        few = self._small(n_items)
        if few.any():
            n, variance = n_items[few], self.variance[few]

            def of_t(size: FloatArray) -> FloatArray:
                return stats_power.t_power(n, size, variance, tail=tail)

            highest = np.full(len(n), top) if np.isfinite(top) else 1e3 * np.sqrt(variance)
            found[few] = stats_power.least_difference(of_t, highest, power=goal)
        found = np.where((found <= top) & (self.variance > 0), found, np.nan)
        exact = self._exact_at(n_items)
        if exact.any():
            keys = np.stack([self._effective(n_items)[exact], self.spread.discordance[exact]])
            (size, apart), place = np.unique(keys, axis=1, return_inverse=True)

            def of_counts(by: FloatArray) -> FloatArray:
                return paired_power(size, np.maximum(apart, by), by, tail=tail, test=self._test)

            least = stats_power.least_difference(of_counts, np.ones(len(size)), power=goal)
            found[exact] = least[place.ravel()]
        return found

    def power(
        self, n_items: FloatArray, difference: float, n_models: int | None = None
    ) -> FloatArray:
        """Return the power there is."""
        from evalstats_plugin.stats import power as stats_power
        from evalstats_plugin.stats.power import paired_power

        tail = self.tail(n_models or self.n_models)
        found = stats_power.normal_power(n_items, difference, self.variance, tail=tail)
        t = stats_power.t_power(n_items, difference, self.variance, tail=tail)
        found = np.where(self._small(n_items), t, found)
        found = np.where(self.variance > 0, found, np.nan)
        exact = self._exact_at(n_items)
        if exact.any():
            n, apart = self._effective(n_items)[exact], self._apart(difference)[exact]
            found[exact] = paired_power(n, apart, difference, tail=tail, test=self._test)
        return found

    def epochs(self, n_items: FloatArray, difference: float) -> FloatArray:
        """Return the epochs that so many items need; inf where none will do, NaN if unknown."""
        from evalstats_plugin.stats.power import epochs_needed

        epochs = epochs_needed(
            difference,
            n_items,
            between=self.spread.between,
            within=self.spread.within,
            tail=self.tail(self.n_models),
            power=self.aim.power,
        )
        return np.maximum(np.ceil(epochs), 1.0)

    def models(self, n_items: FloatArray, difference: float) -> FloatArray:
        """Return how many models can be compared, every two of them; 1 for not even two."""
        found = np.ones(len(n_items))
        for n_models in range(2, MOST_MODELS + 1):
            enough = self.power(n_items, difference, n_models) >= self.aim.power
            found[enough] = n_models
            if not enough.any():
                break
        return np.where(np.isnan(self.power(n_items, difference)), np.nan, found)

    @property
    def _test(self) -> str:
        return EXACT[0] if self.method == "auto" else self.method

    def _apart(self, difference: float) -> FloatArray:
        """Discordance, which cannot be less than the difference."""
        return np.maximum(self.spread.discordance, abs(difference))

    def _effective(self, n_items: FloatArray) -> FloatArray:
        """Independent items that carry as much as so many in clusters."""
        return np.maximum(np.floor(n_items / self.spread.design_effect + 1e-9), 1.0)

    def _exact_at(self, n_items: FloatArray) -> BoolArray:
        return self.exact & ((n_items <= EXACT_UP_TO) | (self.method in EXACT))

    def _small(self, n_items: FloatArray) -> BoolArray:
        """Whether Student's t is used, if outcomes are not summed."""
        return (n_items < NORMAL_FROM) & (self.method != "miller") | (self.method == "t")


def with_design_effect(spread: Spread, design_effect: float) -> Spread:
    """Put another design effect in place of the pilot's, or of none."""
    noise = np.nan_to_num(spread.within) / spread.n_epochs
    plain = (spread.between + noise) / spread.design_effect
    return replace(
        spread,
        between=design_effect * plain - noise,
        design_effect=np.full_like(spread.between, design_effect),
    )
