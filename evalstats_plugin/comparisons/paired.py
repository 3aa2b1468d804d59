"""Comparisons of models on the same items: differences item by item.

`paired` joins the models and `paired_tables` compares them: each pair alone by `PairSolver`, for
0/1 scores from the 2×2 tables of all tasks at once, otherwise from scores, some pairs at a time;
and all pairs of a task at once by `stats.simultaneous`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np

from evalstats_plugin.comparisons.design import Compared, Pairing, Pairs, Request, pairings
from evalstats_plugin.comparisons.families import (
    Each,
    Found,
    Judged,
    Table,
    Whatever,
    p_of_limits,
    prob_of_p,
)
from evalstats_plugin.comparisons.methods import (
    CLUSTERED_COMPARISON_DEFAULTS,
    CLUSTERED_NAMES,
    COMPARISON_DEFAULTS,
    OF_EQUAL_CLUSTERS,
)
from evalstats_plugin.data.methods import Method, choose
from evalstats_plugin.data.responses import Responses
from evalstats_plugin.errors import counted
from evalstats_plugin.scores.methods import CLUSTER_FAMILIES
from evalstats_plugin.stats.arrays import BoolArray, FloatArray, IntArray
from evalstats_plugin.stats.streams import child, seed_for, stream

if TYPE_CHECKING:
    from evalstats_plugin.stats.interval import Interval
    from evalstats_plugin.stats.paired import PairedCounts

NO_INTERVAL = "no interval: one item or cluster, or differences that are all equal"

N_RESAMPLES = 9999
"""Bootstrap resamples."""

MOST_DRAWS, LEAST_DRAWS = 49_999, 1999
"""Common random draws of all pairs of a task; fewer where many pairs or items would take long.

Of 57 tasks each is tested at .0009, which so many reach 45 times by chance and 9,999 only 9 times.
"""

DRAWN, WEIGHED = 2**27, 2**28
"""Statistics of pairs, and weights of items, drawn in all, up to which `MOST_DRAWS` are taken."""

BLOCK_SIZE = 2**22
"""Differences held at a time."""

MOST_ALONE = 1000
"""Pairs of scores other than 0 and 1 up to which each is solved alone in any case: 0.4 s."""


def paired(responses: Sequence[Responses], request: Request) -> tuple[list[Table], list[str]]:
    """Compare models item by item; return also notes on what was left out."""
    pairs, left_out = pairings(responses, request.bounds, request.baseline, request.missing)
    return paired_tables(pairs, request), left_out


def paired_tables(pairs: Sequence[Pairs], request: Request, *, alone: bool = True) -> list[Table]:
    """Compare the models of each pairing.

    Without `alone`, single pairs are left out where all pairs at once do not need them and they
    would take long.
    """
    families = [pairing.family for pairing in pairs]
    solver = PairSolver(request, _attained(families))
    fast = [len(p.a) == 1 or solver.choose(p).family == "paired" for p in families]
    slow = sum(len(p.a) for p, is_fast in zip(families, fast, strict=True) if not is_fast)
    if alone or slow <= MOST_ALONE or request.correction not in ("simultaneous", "stepdown"):
        fast = [True] * len(families)
    solved = iter(solver.solve(list(compress(families, fast))))
    every = [
        next(solved) if is_fast else solver.differences_of(p)
        for p, is_fast in zip(families, fast, strict=True)
    ]
    n_draws = draws_for(
        sum(len(family.a) for family in families), sum(family.n_of_task for family in families)
    )
    tables: list[Table] = []
    for pairing, family, found in zip(pairs, families, every, strict=True):
        n_items: IntArray = pairing.n_items
        columns: dict[str, Sequence[Any]] = {
            "n_items": n_items.tolist(),
            "notes": _notes(pairing, found, n_items),
        }
        judge = partial(_judged, family, found, solver, request, n_draws)
        table = Table(pairing=pairing, found=found, judge=judge, columns=columns)
        if isinstance(pairing, Pairing) and pairing.open is not None:
            columns["n_missing"] = pairing.n_open().tolist()
            table.whatever = partial(_whatever, pairing, request)
        tables.append(table)
    return tables


def _whatever(pairing: Pairing, request: Request, pairs: IntArray, n_tests: int) -> Whatever:
    """Limits and p-values of some pairs whatever their missing scores would have been.

    Imbens and Manski's, each pair at its share of alpha.
    """
    special: Any = import_module("scipy.special")

    from evalstats_plugin.stats.survey import imbens_manski_level

    level = 1 - (1 - request.confidence_level) / n_tests
    found = Whatever(*np.full((3, len(pairs)), np.nan))
    step = max(BLOCK_SIZE // max(pairing.n_of_task, 1), 1)
    for start in range(0, len(pairs), step):
        part = slice(start, start + step)
        ends = pairing.at_ends(pairs[part])
        means, errors = zip(*(_mean_and_error(end) for end in ends), strict=True)
        error = np.maximum(*errors)
        levels = imbens_manski_level(means[1] - means[0], error, confidence_level=level)
        # Few levels, so that many pairs are solved at once; higher ones are wider.
        levels = level - np.floor((level - levels) / (1 - level) * 50) * (1 - level) / 50
        low, high, p_value = np.full((3, len(levels)), np.nan)
        for one in np.unique(levels).tolist():
            same = levels == one
            solver = PairSolver(replace(request, confidence_level=one))
            least, most = (solver.solve([_some(end, same)])[0] for end in ends)
            low[same], high[same] = least.low, most.high
            # The end that is nearer to no difference, one side; the other side is beyond the other.
            near = np.where(least.difference > 0, least.p_value, most.p_value)
            z = -special.ndtri(np.maximum(near, 1e-300) / 2)
            beyond: FloatArray = special.ndtr(-z - ((means[1] - means[0]) / error)[same])
            ahead = (least.difference > 0) | (most.difference < 0)
            p_value[same] = np.where(ahead, special.ndtr(-z) + beyond, 1.0)
        clear = (low > 0) | (high < 0)
        # By limits at rounded levels, so that both say the same.
        p_value = np.where(clear, np.minimum(p_value, 1 - level), np.maximum(p_value, 1 - level))
        p_value = np.where(clear, p_value, np.nextafter(p_value, 2))
        for name, values in (("low", low), ("high", high), ("p_values", p_value)):
            getattr(found, name)[part] = values
    found.p_values[:] = np.minimum(n_tests * found.p_values, 1.0)
    return found


def _some(end: Pairing, which: BoolArray) -> Pairing:
    return replace(end, a=end.a[which], b=end.b[which])


def _mean_and_error(end: Pairing) -> tuple[FloatArray, FloatArray]:
    """Mean differences and their standard errors, as if one further item were half as far out."""
    from evalstats_plugin.stats.clustered import cluster_moments
    from evalstats_plugin.stats.means import moments

    differences = end.differences()
    n, mean, std = moments(differences)
    error = std / np.sqrt(n)
    if end.clusters is not None:
        error = np.nan_to_num(cluster_moments(*end.cluster_sums(differences)).cr2)
    return mean, np.hypot(np.nan_to_num(error), end.span[1] / 2 / n)


def drawn_for(compared: Compared, request: Request) -> np.random.Generator:
    """Return the generator of a task's common draws, whatever other tasks there are."""
    return child(request.rng, f"{compared.task}\0{compared.metric}")


def draws_for(n_pairs: int, n_units: int) -> int:
    """Return how many draws are taken for so many pairs and items (or tasks) in all."""
    affordable = min(DRAWN / max(n_pairs, 1), WEIGHED / max(n_units, 1))
    return int(np.clip(affordable, LEAST_DRAWS, MOST_DRAWS))


Attained = dict[tuple[str, tuple[float, float] | None], tuple[bool, bool]]
"""Whether scores of a metric with some bounds reach the lower one, and the upper one."""


def _metric(pairs: Pairs) -> tuple[str, tuple[float, float] | None]:
    return pairs.metric.removesuffix(",none"), pairs.bounds


def _attained(pairs: Sequence[Pairs]) -> Attained:
    """Return which bounds scores with partial credit attain, on any task of the metric."""
    found: Attained = {}
    for one in pairs:
        if one.kind == "bounded":
            before, own = found.get(_metric(one), (False, False)), one.attained
            found[_metric(one)] = (before[0] or own[0], before[1] or own[1])
    return found


def _judged(
    family: Pairs, found: Found, solver: PairSolver, request: Request, n_draws: int
) -> Judged:
    if len(family.a) == 1:
        return Each(found.p_value, partial(solver.interval, family, found))
    from evalstats_plugin.stats.many import ItemPairs

    clustered = found.method in CLUSTERED_NAMES
    return ItemPairs(
        family.all_scores(),
        family.a,
        family.b,
        clusters=family.clusters if clustered else None,
        bounds=family.bounds,
        # Scores near a bound are looked for among these in any case.
        attained=any(solver.attained.get(_metric(family), ())) or None,
        rng=drawn_for(family, request),
        n_draws=n_draws,
    )


def _notes(pairing: Pairs, found: Found, n_items: IntArray) -> list[tuple[str, ...]]:
    """Return the notes of each row: most have only those that all have in common."""
    common = (*pairing.notes, *_on_clusters(pairing, found.method))
    shown = slice(len(n_items))
    missing: IntArray = pairing.n_either - n_items
    undefined = ~np.isfinite(found.low[shown]) | ~np.isfinite(found.high[shown])
    notes = [common] * len(n_items)
    for i in np.flatnonzero((missing > 0) | undefined | (n_items < 2)).tolist():
        n, n_missing = int(n_items[i]), int(missing[i])
        if n_missing:
            lacking = f"{n_missing} of {n + n_missing} items lack one model's score: left out"
            notes[i] = (*notes[i], lacking)
        if not n:
            notes[i] = (*notes[i], "the two models share no item")
        elif undefined[i]:
            notes[i] = (*notes[i], NO_INTERVAL)
        elif n == 1:
            notes[i] = (*notes[i], "one item is too few to compare models")
    return notes


def _on_clusters(pairing: Pairs, method: str) -> tuple[str, ...]:
    if pairing.clusters is None:
        return ()
    n = len(np.unique(pairing.clusters))
    if n == 1:
        return ("all items are in one cluster: how clusters differ is unknown",)
    if method in CLUSTERED_NAMES:
        return (f"items in {counted(n, 'cluster')}",)
    return (f"{method} treats items in {n} clusters as independent",)


class PairSolver:
    """Compares each pair alone; 0/1 scores of all tasks at once, because few tables are distinct.

    Interval, p-value and P(better) of a pair are of one distribution: the method's posterior where
    it has one, else the one that has its limits as quantiles.
    """

    def __init__(self, request: Request, attained: Attained | None = None) -> None:
        self._seed = seed_for(request.rng, "seed of single pairs")
        self.attained = attained or {}
        self.table = request.table
        self.method = request.method
        self.confidence_level = request.confidence_level
        self._tables: list[PairedCounts] = []
        """2×2 tables of what was solved of single pairs."""
        self._limits: dict[tuple[str, float], dict[int, Interval]] = {}

    def choose(self, pairing: Pairs) -> Method:
        """Return the method for the pairs of one pairing."""
        if pairing.clusters is not None:
            method = choose(pairing.kind, self.method, self.table, CLUSTERED_COMPARISON_DEFAULTS)
            # By the sizes alone, not by scores: no method is selected by its result.
            sizes = np.unique(pairing.clusters, return_counts=True)[1]
            if self.method == "auto" and pairing.kind == "binary" and np.ptp(sizes) == 0:
                return self.table[OF_EQUAL_CLUSTERS]
            return method
        clustered = self.method != "auto" and self.table[self.method].family in CLUSTER_FAMILIES
        name = "auto" if clustered else self.method
        return choose(pairing.kind, name, self.table, COMPARISON_DEFAULTS)

    def solve(self, pairs: Sequence[Pairs]) -> list[Found]:
        """Return what was found of each pairing."""
        found: list[Found | None] = [None] * len(pairs)
        by_counts: list[int] = []
        for i, pairing in enumerate(pairs):
            method = self.choose(pairing)
            if method.family == "paired":
                by_counts.append(i)
            else:
                parts = [self._of_block(method, pairing, block) for block in _blocks(pairing)]
                found[i] = Found(method.name, *np.concatenate(parts, axis=1))
        if by_counts:
            solved = self._of_counts([pairs[i] for i in by_counts])
            for i, one in zip(by_counts, solved, strict=True):
                found[i] = one
        return [one for one in found if one is not None]

    def differences_of(self, pairing: Pairs) -> Found:
        """Return the mean differences alone."""
        from evalstats_plugin.stats.means import moments

        parts = [moments(pairing.differences(x.start, x.stop)).mean for x in _blocks(pairing)]
        mean = np.concatenate(parts)
        none = np.full(len(mean), np.nan)
        return Found(self.choose(pairing).name, none, none, none, none, mean)

    def interval(self, pairing: Pairs, found: Found, level: float) -> Interval:
        """Return the intervals of what was solved before at another level."""
        from evalstats_plugin.stats.interval import Interval

        method = self.table[found.method]
        if found.counts is not None:
            return self._of_tables(method, found.counts, level)
        parts = [self._estimated(method, pairing, x, level)[:2] for x in _blocks(pairing)]
        return Interval(*np.concatenate([np.stack(part) for part in parts], axis=1))

    def _of_tables(self, method: Method, counts: PairedCounts, level: float) -> Interval:
        """Return the intervals of 2×2 tables; of single pairs those of all tasks at once."""
        from evalstats_plugin.stats.interval import Interval
        from evalstats_plugin.stats.paired import PairedCounts

        if len(counts.n) > 1:
            return _limits(method.load(), counts, level)
        key = method.name, level
        if key not in self._limits:
            every = PairedCounts(*np.concatenate([np.stack(one) for one in self._tables], axis=1))
            low, high = _limits(method.load(), every, level)
            self._limits[key] = {
                id(one): Interval(low[i : i + 1], high[i : i + 1])
                for i, one in enumerate(self._tables)
            }
        return self._limits[key][id(counts)]

    def _of_counts(self, pairs: Sequence[Pairs]) -> list[Found]:
        from evalstats_plugin.stats.paired import PairedCounts, paired_counts, prob_better

        method = self.choose(pairs[0])
        counts = paired_counts(*np.concatenate([pairing.tables() for pairing in pairs], axis=1))
        interval = method.load()(counts, confidence_level=self.confidence_level)
        prob = getattr(interval, "prob_better", None)
        if prob is None and isinstance(method.prior, tuple):
            prob = prob_better(counts, prior=method.prior)
        if prob is None:
            p_value = p_of_limits(partial(_limits, method.load(), counts), self.confidence_level)
            prob = prob_of_p(p_value, counts.difference)
        else:
            p_value = two_sided(prob)
        columns = np.stack([interval.low, interval.high, p_value, prob, counts.difference])
        ends = np.cumsum([len(pairing.a) for pairing in pairs])
        parts = (np.split(x, ends[:-1], axis=1) for x in (columns, np.stack(counts)))
        found = [
            Found(method.name, *part, counts=PairedCounts(*table))
            for part, table in zip(*parts, strict=True)
        ]
        tables = [one.counts for one in found if one.counts is not None]
        self._tables += [table for table in tables if len(table.n) == 1]
        self._limits.clear()
        return found

    def _of_block(self, method: Method, pairing: Pairs, pairs: slice) -> FloatArray:
        """Return what was found of some of the pairs, in the order of the fields of `Found`."""
        from evalstats_plugin.stats.means import moments

        mean = moments(pairing.differences(pairs.start, pairs.stop)).mean
        low, high, *more = self._estimated(method, pairing, pairs, self.confidence_level)
        if more:
            prob = more[-1]
            p_value = more[0] if len(more) > 1 else two_sided(prob)
        else:

            def limits(level: float) -> Interval:
                from evalstats_plugin.stats.interval import Interval

                return Interval(*self._estimated(method, pairing, pairs, level)[:2])

            p_value = p_of_limits(limits, self.confidence_level)
            prob = prob_of_p(p_value, mean)
        return np.stack([low, high, p_value, prob, mean])

    def _estimated(
        self, method: Method, pairing: Pairs, pairs: slice, level: float
    ) -> tuple[FloatArray, ...]:
        """Limits, then what else the method gives: p-values, if any, and P(b higher)."""
        from evalstats_plugin.stats.means import moments
        from evalstats_plugin.stats.paired import dirichlet_process_prob, t_prob

        if method.family == "paired-bounded":
            a, b = pairing.scores_of(pairs.start, pairs.stop)
            found = method.load()(
                a,
                b,
                bounds=pairing.bounds,
                attained=self.attained.get(_metric(pairing), pairing.attained),
                confidence_level=level,
            )
            return found.low, found.high, found.p_value, found.prob_better
        differences = pairing.differences(pairs.start, pairs.stop)
        if method.family == "clustered-paired":
            return _of_clusters(method, pairing, differences, level)
        clustered = method.family in CLUSTER_FAMILIES
        data = pairing.cluster_sums(differences) if clustered else (differences,)
        function = partial(method.load(), *data, confidence_level=level)
        if method.family == "bounded":
            low, high = function(bounds=pairing.span)
            mass = 0.5 if method.mass is None else method.mass
            return low, high, dirichlet_process_prob(differences, bounds=pairing.span, mass=mass)
        if method.family == "clustered-bounded":
            return function(bounds=pairing.span)
        if method.family == "resampling":
            # The same resamples at every level.
            rng = stream(self._seed, "resamples of single pairs")
            return function(rng=rng, n_resamples=N_RESAMPLES)
        low, high = function()
        # Differences that are all equal have no spread to make an interval of.
        flat = (moments(differences).std == 0) & (method.family == "real")
        low, high = (np.where(flat, np.nan, limit) for limit in (low, high))
        return (low, high, t_prob(differences)) if method.name == "paired-t" else (low, high)


def two_sided(prob: FloatArray) -> FloatArray:
    """P-value of which 1 - p is the level of the equal-tailed interval that touches 0."""
    return np.minimum(2 * np.minimum(prob, 1 - prob), 1.0)


def _limits(function: Callable[..., Interval], data: object, level: float) -> Interval:
    from evalstats_plugin.stats.interval import Interval

    return Interval(*function(data, confidence_level=level)[:2])


def _blocks(pairing: Pairs) -> Iterator[slice]:
    """Yield the pairs of a pairing, some at a time."""
    step = max(BLOCK_SIZE // max(pairing.n_of_task, 1), 1)
    return (slice(i, i + step) for i in range(0, len(pairing.a), step))


def _of_clusters(
    method: Method, pairing: Pairs, differences: FloatArray, level: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Limits and P(b higher), by the items of each cluster that only one of the two gets right."""
    missing = np.isnan(differences)
    only_a, sizes = pairing.cluster_sums(np.where(missing, np.nan, differences < 0))
    only_b, _ = pairing.cluster_sums(np.where(missing, np.nan, differences > 0))
    return method.load()(only_a, only_b, sizes, confidence_level=level)
