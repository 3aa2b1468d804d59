"""How the pairs of models that an analysis wants are computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin import methods
from evalstats_plugin.analyses.clusters import FAMILIES
from evalstats_plugin.analyses.pairing import Pairs
from evalstats_plugin.analyses.request import Request
from evalstats_plugin.methods import Method
from evalstats_plugin.tables.comparisons import CLUSTERED_COMPARISON_DEFAULTS, COMPARISON_DEFAULTS

if TYPE_CHECKING:
    from evalstats_plugin.stats.interval import Interval
    from evalstats_plugin.stats.paired_binary import PairedCounts

N_FLIPS = 9999
"""Random assignments of signs: with what was seen, 10,000."""

BLOCK_SIZE = 2**22
"""Differences held at a time."""

JEFFREYS = (0.5, 1.0)
"""Prior of P(better) on 0/1 scores: ½ on each of the four cells, two of them together."""

FloatArray = NDArray[np.float64]


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
        clustered = self.method != "auto" and self.table[self.method].family in FAMILIES
        name = "auto" if clustered else self.method
        return methods.choose(pairing.kind, name, self.table, COMPARISON_DEFAULTS)

    def _by_counts(self, pairs: Sequence[Pairs]) -> list[Found]:
        from evalstats_plugin.stats import paired_binary

        method = self.choose(pairs[0])
        counts = paired_binary.paired_counts(
            *np.concatenate([pairing.tables() for pairing in pairs], axis=1)
        )
        interval = method.load()(counts, confidence_level=self.confidence_level)
        # Of the same model as the interval, where the method tells.
        prob = getattr(interval, "prob_better", None)
        if prob is None:
            prior = method.options.get("prior", JEFFREYS)
            prob = paired_binary.prob_better(counts, prior=prior)
        columns = np.stack(
            [
                interval.low,
                interval.high,
                paired_binary.mcnemar_mid_p(counts),
                prob,
                counts.difference,
            ]
        )
        ends = np.cumsum([len(pairing.a) for pairing in pairs])
        parts = (np.split(x, ends[:-1], axis=1) for x in (columns, np.stack(counts)))
        return [
            Found(method.name, *part, counts=paired_binary.PairedCounts(*table))
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
        from evalstats_plugin.stats import paired_binary, paired_scores

        method = self.choose(pairing)
        if method.family == "paired":
            return paired_binary.mcnemar_mid_p(paired_binary.paired_counts(*pairing.tables()))
        parts = [
            paired_scores.sign_flip(
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
        from evalstats_plugin.stats import mean, paired_scores

        level = self.confidence_level
        if method.family == "clustered-paired":
            low, high, prob = _by_cluster(method, pairing, differences, level)
        else:
            low, high = _interval(method, pairing, differences, level)
            prob = _prob_higher(method, pairing, differences)
        units = _units(method, pairing, differences)
        p_value = paired_scores.sign_flip(units, rng=self.rng, n_flips=N_FLIPS)
        return np.stack([low, high, p_value, prob, mean.moments(differences).mean])


def _prob_higher(method: Method, pairing: Pairs, differences: FloatArray) -> FloatArray:
    """P(b higher), by the posterior that goes with the interval."""
    from evalstats_plugin.stats import clustered, paired_scores

    if method.family in FAMILIES:
        return clustered.t_prob(*pairing.cluster_sums(differences))
    if method.family == "bounded":
        mass = method.options.get("mass", 0.5)
        return paired_scores.dirichlet_process_prob(differences, bounds=_span(pairing), mass=mass)
    return paired_scores.t_prob(differences)


def blocks(pairing: Pairs) -> Iterator[FloatArray]:
    """Differences of a pairing, some pairs at a time."""
    step = max(BLOCK_SIZE // max(pairing.n_of_task, 1), 1)
    return (pairing.differences(i, i + step) for i in range(0, len(pairing.a), step))


def _units(method: Method, pairing: Pairs, differences: FloatArray) -> FloatArray:
    """Differences of what has one sign: an item, or a cluster of items."""
    if method.family not in FAMILIES:
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
    from evalstats_plugin.stats import mean
    from evalstats_plugin.stats.interval import Interval

    if method.family == "clustered-paired":
        low, high, _ = _by_cluster(method, pairing, differences, confidence_level)
        return Interval(low, high)
    bounded = method.family in ("bounded", "clustered-bounded")
    more = {"bounds": _span(pairing)} if bounded else {}
    data = pairing.cluster_sums(differences) if method.family in FAMILIES else (differences,)
    low, high = method.load()(*data, confidence_level=confidence_level, **more)
    # Differences that are all equal have no spread to make an interval of.
    flat = (mean.moments(differences).std == 0) & (method.family == "real")
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
    from evalstats_plugin.stats.paired_binary import PairedCounts

    together = PairedCounts(*(np.concatenate(cells) for cells in zip(*parts, strict=True)))
    ends = np.cumsum([len(part.both) for part in parts])[:-1]
    found = method.load()(together, confidence_level=level)
    limits = np.stack([found.low, found.high])
    return [Interval(*part) for part in np.split(limits, ends, axis=1)]
