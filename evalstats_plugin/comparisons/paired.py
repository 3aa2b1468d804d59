"""Models on the same items: every difference is one item's."""
# PART pair_solver - How the pairs of models that an analysis wants are computed.
# PART corrections - What many comparisons at once do to p-values and intervals.

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.comparisons.design import Pairing, Pairs, Request, pairings
from evalstats_plugin.comparisons.methods import (
    CLUSTERED_COMPARISON_DEFAULTS,
    CLUSTERED_NAMES,
    COMPARISON_DEFAULTS,
)
from evalstats_plugin.comparisons.rows import Comparison
from evalstats_plugin.data import methods
from evalstats_plugin.data.methods import Method
from evalstats_plugin.data.responses import Responses
from evalstats_plugin.data.results import records
from evalstats_plugin.scores.cells import CLUSTER_FAMILIES
from evalstats_plugin.stats.arrays import FloatArray

if TYPE_CHECKING:
    from evalstats_plugin.stats.interval import Interval
    from evalstats_plugin.stats.paired import PairedCounts


NO_INTERVAL = "no interval: one item or cluster, or differences that are all equal"


N_FLIPS = 9999
"""Random assignments of signs: with what was seen, 10,000."""


BLOCK_SIZE = 2**22
"""Differences held at a time."""


JEFFREYS = (0.5, 1.0)
"""Prior of P(better) on 0/1 scores: ½ on each of the four cells, two of them together."""


N_FLIPS_FOR_LEVEL = 1999
"""The level of simultaneous intervals needs fewer flips than p-values in their tail."""


Units: TypeAlias = tuple[FloatArray, NDArray[np.int64], NDArray[np.int64]]
"""Scores of what has one sign, and the models of each pair, as `stats.max_t` takes them."""


def paired(responses: Sequence[Responses], request: Request) -> tuple[list[Comparison], list[str]]:
    """Compare models item by item; return also notes on what was left out."""
    pairs, left_out = pairings(responses, request.bounds, request.baseline)
    return paired_rows(pairs, request), left_out


def paired_rows(pairs: Sequence[Pairs], request: Request) -> list[Comparison]:
    """Make the rows of all pairings, each a family of comparisons of its own."""
    families = [pairing.family for pairing in pairs]
    solver = PairSolver(request)
    found = solver.solve(families)
    corrected = [
        correct(one.p_value, partial(units, pairing, one.method), request)
        for pairing, one in zip(families, found, strict=True)
    ]
    limits = solver.limits(families, found, [one.level for one in corrected])
    rows: list[Comparison] = []
    for pairing, one, correction, together in zip(pairs, found, corrected, limits, strict=True):
        n_items: NDArray[np.int64] = pairing.n_items
        columns = {"n_items": n_items.tolist(), "notes": _notes(pairing, one, n_items)}
        same = {"confidence_level": request.confidence_level}
        rows += comparison_rows(pairing, (one, correction.p_values, together), columns, same)
    return rows


def units(pairing: Pairs, method: str) -> tuple[FloatArray, NDArray[np.int64], NDArray[np.int64]]:
    """Scores of what has one sign, an item or a cluster, and the pairs that are compared on it.

    As `stats.max_t` takes them; `method` is that of the intervals, which tells whether clusters are
    allowed for.
    """
    clustered = method in CLUSTERED_NAMES
    if isinstance(pairing, Pairing) and not clustered:
        return pairing.scores, pairing.a, pairing.b
    if isinstance(pairing, Pairing) and not np.isnan(pairing.scores).any():
        return pairing.cluster_sums(pairing.scores)[0], pairing.a, pairing.b
    differences = pairing.differences()
    if clustered:
        # A pair adds up the items of a cluster that both answered.
        totals, sizes = pairing.cluster_sums(differences)
        differences = np.where(sizes > 0, totals, np.nan)
    # As against a model that has 0.
    scores = np.concatenate([np.zeros((1, differences.shape[1])), differences])
    return scores, np.zeros_like(pairing.a), np.arange(1, len(scores), dtype=np.int64)


def comparison_rows(
    pairing: Pairs,
    numbers: tuple[Found, FloatArray, Interval | None],
    columns: Mapping[str, Sequence[Any]],
    same: Mapping[str, Any],
) -> list[Comparison]:
    """Make the rows of the pairs that were asked for, which come first.

    `columns` and `same` are fields of which every row has its own, and which are alike in all.
    """
    found, p_adjusted, limits = numbers
    lower_is_better = pairing.higher_is_better is False
    of_pairs = {
        "difference": found.difference,
        "low": found.low,
        "high": found.high,
        "p_value": found.p_value,
        "p_adjusted": p_adjusted,
        "prob_better": 1 - found.prob_higher if lower_is_better else found.prob_higher,
    }
    if limits is not None:
        of_pairs |= {"low_adjusted": limits.low, "high_adjusted": limits.high}
    shown = slice(len(pairing.a))
    models = np.asarray(pairing.models, dtype=object)
    every = {
        **columns,
        "model_a": models[pairing.a].tolist(),
        "model_b": models[pairing.b].tolist(),
        **{name: _finite(values[shown]) for name, values in of_pairs.items()},
    }
    common = {
        **same,
        "task": pairing.task,
        "metric": pairing.metric,
        "method": found.method,
        "higher_is_better": pairing.higher_is_better,
    }
    return records(Comparison, every, common)


def _on_clusters(pairing: Pairs, method: str) -> tuple[str, ...]:
    if pairing.clusters is None:
        return ()
    n = len(np.unique(pairing.clusters))
    if n == 1:
        return ("all items are one cluster, which tells next to nothing of others",)
    if method in CLUSTERED_NAMES:
        return (f"items in {n} clusters",)
    return (f"{method} takes items in {n} clusters as independent",)


def _finite(values: FloatArray) -> list[float | None]:
    """Numbers, None where there is none."""
    if np.isfinite(values).all():
        return values.tolist()
    found: NDArray[np.object_] = values.astype(object)
    found[~np.isfinite(values)] = None
    return found.tolist()


def _notes(pairing: Pairs, found: Found, n_items: NDArray[np.int64]) -> list[tuple[str, ...]]:
    """Return the notes of each row: most have only those that all have in common."""
    common = (*pairing.notes, *_on_clusters(pairing, found.method))
    shown = slice(len(n_items))
    missing: NDArray[np.int64] = pairing.n_either - n_items
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
            notes[i] = (*notes[i], "one item tells next to nothing")
    return notes


@dataclass(slots=True)
class Found:
    """What was computed of the pairs of one pairing, each of shape (P,)."""

    method: str
    low: FloatArray
    high: FloatArray
    p_value: FloatArray
    prob_higher: FloatArray
    difference: FloatArray
    counts: PairedCounts | None = None
    """Of 0/1 scores, where the method goes by them."""


class PairSolver:
    """Runs each method; 0/1 scores of all tasks at once, because few tables are distinct."""

    def __init__(self, request: Request) -> None:
        # Spawned, so that what else is random does not depend on the method.
        drawn = {"rng": request.rng.spawn(1)[0], "n_resamples": N_FLIPS}
        self.table = {
            name: replace(m, options={**m.options, **drawn}) if m.family == "resampling" else m
            for name, m in request.table.items()
        }
        self.method = request.method
        self.confidence_level = request.confidence_level
        self.rng = request.rng

    def solve(self, pairs: Sequence[Pairs]) -> list[Found]:
        """Return what was found of each."""
        found: list[Found | None] = [None] * len(pairs)
        by_counts: list[int] = []
        for i, pairing in enumerate(pairs):
            method = self.choose(pairing)
            if method.family == "paired":
                by_counts.append(i)
            else:
                found[i] = self._by_differences(method, pairing)
        if by_counts:
            solved = self._by_counts([pairs[i] for i in by_counts])
            for i, one in zip(by_counts, solved, strict=True):
                found[i] = one
        return [one for one in found if one is not None]

    def choose(self, pairing: Pairs) -> Method:
        """Return the method for the pairs of one pairing."""
        if pairing.clusters is not None:
            return methods.choose(
                pairing.kind, self.method, self.table, CLUSTERED_COMPARISON_DEFAULTS
            )
        clustered = self.method != "auto" and self.table[self.method].family in CLUSTER_FAMILIES
        name = "auto" if clustered else self.method
        return methods.choose(pairing.kind, name, self.table, COMPARISON_DEFAULTS)

    def _by_counts(self, pairs: Sequence[Pairs]) -> list[Found]:
        from evalstats_plugin.stats import paired as stats_paired

        method = self.choose(pairs[0])
        counts = stats_paired.paired_counts(
            *np.concatenate([pairing.tables() for pairing in pairs], axis=1)
        )
        interval = method.load()(counts, confidence_level=self.confidence_level)
        # Of the same model as the interval, where the method tells.
        prob = getattr(interval, "prob_better", None)
        if prob is None:
            prior = method.options.get("prior", JEFFREYS)
            prob = stats_paired.prob_better(counts, prior=prior)
        columns = np.stack(
            [
                interval.low,
                interval.high,
                stats_paired.mcnemar_mid_p(counts),
                prob,
                counts.difference,
            ]
        )
        ends = np.cumsum([len(pairing.a) for pairing in pairs])
        parts = (np.split(x, ends[:-1], axis=1) for x in (columns, np.stack(counts)))
        return [
            Found(method.name, *part, counts=stats_paired.PairedCounts(*table))
            for part, table in zip(*parts, strict=True)
        ]

    def limits(
        self, pairs: Sequence[Pairs], found: Sequence[Found], levels: Sequence[float | None]
    ) -> list[Interval | None]:
        """Return the intervals of what was solved before at other levels, one for each pairing."""
        limits: list[Interval | None] = [None] * len(pairs)
        by_level: dict[tuple[str, float], list[int]] = {}
        for i, (pairing, one, level) in enumerate(zip(pairs, found, levels, strict=True)):
            if level is None:
                continue
            if one.counts is None:
                limits[i] = self._limits_by_differences(self.table[one.method], pairing, level)
            else:
                by_level.setdefault((one.method, level), []).append(i)
        for (method, level), where in by_level.items():
            parts = [counts for i in where if (counts := found[i].counts) is not None]
            for i, one in zip(where, _at_level(self.table[method], parts, level), strict=True):
                limits[i] = one
        return limits

    def p_values(self, pairing: Pairs) -> FloatArray:
        """Return the p-values alone, shape (P,): all that ranks need."""
        from evalstats_plugin.stats import paired as stats_paired

        method = self.choose(pairing)
        if method.family == "paired":
            return stats_paired.mcnemar_mid_p(stats_paired.paired_counts(*pairing.tables()))
        parts = [
            stats_paired.sign_flip(
                _units(method, pairing, differences), rng=self.rng, n_flips=N_FLIPS
            )
            for differences in blocks(pairing)
        ]
        return np.concatenate(parts)

    def _limits_by_differences(self, method: Method, pairing: Pairs, level: float) -> Interval:
        from evalstats_plugin.stats.interval import Interval

        parts = [_interval(method, pairing, block, level) for block in blocks(pairing)]
        return Interval(*np.concatenate([np.stack(part) for part in parts], axis=1))

    def _by_differences(self, method: Method, pairing: Pairs) -> Found:
        parts = [self._block(method, pairing, block) for block in blocks(pairing)]
        return Found(method.name, *np.concatenate(parts, axis=1))

    def _block(self, method: Method, pairing: Pairs, differences: FloatArray) -> FloatArray:
        """Return what was found of some of the pairs, in the order of the fields of `Found`."""
        from evalstats_plugin.stats import means
        from evalstats_plugin.stats import paired as stats_paired

        level = self.confidence_level
        if method.family == "clustered-paired":
            low, high, prob = _by_cluster(method, pairing, differences, level)
        else:
            low, high = _interval(method, pairing, differences, level)
            prob = _prob_higher(method, pairing, differences)
        units = _units(method, pairing, differences)
        p_value = stats_paired.sign_flip(units, rng=self.rng, n_flips=N_FLIPS)
        return np.stack([low, high, p_value, prob, means.moments(differences).mean])


def _prob_higher(method: Method, pairing: Pairs, differences: FloatArray) -> FloatArray:
    """P(b higher), by the posterior that goes with the interval."""
    from evalstats_plugin.stats import clustered as stats_clustered
    from evalstats_plugin.stats import paired as stats_paired

    if method.family in CLUSTER_FAMILIES:
        return stats_clustered.t_prob(*pairing.cluster_sums(differences))
    if method.family == "bounded":
        mass = method.options.get("mass", 0.5)
        return stats_paired.dirichlet_process_prob(differences, bounds=_span(pairing), mass=mass)
    return stats_paired.t_prob(differences)


def blocks(pairing: Pairs) -> Iterator[FloatArray]:
    """Differences of a pairing, some pairs at a time."""
    step = max(BLOCK_SIZE // max(pairing.n_of_task, 1), 1)
    return (pairing.differences(i, i + step) for i in range(0, len(pairing.a), step))


def _units(method: Method, pairing: Pairs, differences: FloatArray) -> FloatArray:
    """Differences of what has one sign: an item, or a cluster of items."""
    if method.family not in CLUSTER_FAMILIES:
        return differences
    totals, sizes = pairing.cluster_sums(differences)
    return np.where(sizes > 0, totals, np.nan)


def _span(pairing: Pairs) -> tuple[float, float]:
    """Least and greatest possible difference."""
    low, high = pairing.bounds or (-np.inf, np.inf)
    return low - high, high - low


def _interval(
    method: Method, pairing: Pairs, differences: FloatArray, confidence_level: float
) -> Interval:
    from evalstats_plugin.stats import means
    from evalstats_plugin.stats.interval import Interval

    if method.family == "clustered-paired":
        low, high, _ = _by_cluster(method, pairing, differences, confidence_level)
        return Interval(low, high)
    bounded = method.family in ("bounded", "clustered-bounded")
    more = {"bounds": _span(pairing)} if bounded else {}
    data = (
        pairing.cluster_sums(differences) if method.family in CLUSTER_FAMILIES else (differences,)
    )
    low, high = method.load()(*data, confidence_level=confidence_level, **more)
    # Differences that are all equal have no spread to make an interval of.
    flat = (means.moments(differences).std == 0) & (method.family == "real")
    return Interval(*(np.where(flat, np.nan, limit) for limit in (low, high)))


def _by_cluster(
    method: Method, pairing: Pairs, differences: FloatArray, confidence_level: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Limits and P(b better), by the items of each cluster that only one of the two gets right."""
    missing = np.isnan(differences)
    only_a, sizes = pairing.cluster_sums(np.where(missing, np.nan, differences < 0))
    only_b, _ = pairing.cluster_sums(np.where(missing, np.nan, differences > 0))
    return method.load()(only_a, only_b, sizes, confidence_level=confidence_level)


def _at_level(method: Method, parts: Sequence[PairedCounts], level: float) -> list[Interval]:
    """Intervals of the tables of several pairings at once."""
    from evalstats_plugin.stats.interval import Interval
    from evalstats_plugin.stats.paired import PairedCounts

    together = PairedCounts(*(np.concatenate(cells) for cells in zip(*parts, strict=True)))
    ends = np.cumsum([len(part.both) for part in parts])[:-1]
    found = method.load()(together, confidence_level=level)
    limits = np.stack([found.low, found.high])
    return [Interval(*part) for part in np.split(limits, ends, axis=1)]


class Corrected(NamedTuple):
    """What allows for the number of comparisons."""

    p_values: FloatArray
    level: float | None
    """Of each interval, so that all hold at once with the confidence level; None without such."""


def correct(p_values: FloatArray, units: Callable[[], Units], request: Request) -> Corrected:
    """Correct for all comparisons of one family; `units` is called for sign flips only."""
    from evalstats_plugin.stats import many

    level, rng = request.confidence_level, request.rng
    if request.correction == "holm":
        made = int((~np.isnan(p_values)).sum())
        return Corrected(many.holm(p_values), many.sidak_level(level, made))
    if request.correction == "bh":
        return Corrected(many.benjamini_hochberg(p_values), None)
    if request.correction == "none":
        return Corrected(p_values, None)
    flipped = units()
    adjusted = many.max_t_of_pairs(*flipped, rng=rng, n_flips=N_FLIPS)
    together = many.simultaneous_level(
        *flipped, confidence_level=level, rng=rng, n_flips=N_FLIPS_FOR_LEVEL
    )
    return Corrected(np.where(np.isnan(p_values), np.nan, adjusted), together)
