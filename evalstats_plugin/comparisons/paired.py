"""Comparisons of models on the same items: differences item by item.

`paired` joins the models and `paired_rows` makes the rows. `PairSolver` computes intervals,
p-values and P(better): for 0/1 scores from the 2×2 tables of all tasks at once, otherwise from
differences, some pairs at a time. `correct` and `adjusted` allow for the number of comparisons;
they, `Found`, `units` and `comparison_rows` also serve the other designs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from evalstats_plugin.comparisons.design import Correction, Pairing, Pairs, Request, pairings
from evalstats_plugin.comparisons.methods import (
    CLUSTERED_COMPARISON_DEFAULTS,
    CLUSTERED_NAMES,
    COMPARISON_DEFAULTS,
)
from evalstats_plugin.comparisons.rows import Comparison
from evalstats_plugin.data.methods import Method, choose
from evalstats_plugin.data.responses import Responses
from evalstats_plugin.data.results import finite_values, records
from evalstats_plugin.scores.methods import CLUSTER_FAMILIES
from evalstats_plugin.stats import many
from evalstats_plugin.stats.arrays import FloatArray, IntArray

if TYPE_CHECKING:
    from evalstats_plugin.stats.interval import Interval
    from evalstats_plugin.stats.paired import PairedCounts

NO_INTERVAL = "no interval: one item or cluster, or differences that are all equal"

N_FLIPS = 9999
"""Random sign flips of a p-value: with the observed signs, 10,000."""

N_FLIPS_FOR_LEVEL = 1999
"""Random sign flips for the level of simultaneous intervals, which needs fewer."""

BLOCK_SIZE = 2**22
"""Differences held at a time."""

JEFFREYS = (0.5, 1.0)
"""Prior of P(better) on 0/1 scores: ½ on each of the four cells, two of them together."""

Units: TypeAlias = tuple[FloatArray, IntArray, IntArray]
"""Scores of units whose signs are flipped, and the models of each pair: as `stats.many` expects."""


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
    """Of 0/1 scores, where the method uses them."""


class Corrected(NamedTuple):
    """P-values and confidence level that allow for the number of comparisons."""

    p_values: FloatArray
    level: float | None
    """Of each interval, so that all hold at once with the confidence level; None without such."""


def paired(responses: Sequence[Responses], request: Request) -> tuple[list[Comparison], list[str]]:
    """Compare models item by item; return also notes on what was left out."""
    pairs, left_out = pairings(responses, request.bounds, request.baseline)
    return paired_rows(pairs, request), left_out


def paired_rows(pairs: Sequence[Pairs], request: Request) -> list[Comparison]:
    """Make the rows of all pairings, each of which is corrected as one family of comparisons."""
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
        n_items: IntArray = pairing.n_items
        columns = {"n_items": n_items.tolist(), "notes": _notes(pairing, one, n_items)}
        same = {"confidence_level": request.confidence_level}
        rows += comparison_rows(
            pairing, one, correction.p_values, together, columns=columns, same=same
        )
    return rows


def comparison_rows(
    pairing: Pairs,
    found: Found,
    p_adjusted: FloatArray,
    limits: Interval | None,
    *,
    columns: Mapping[str, Sequence[Any]],
    same: Mapping[str, Any],
) -> list[Comparison]:
    """Make the rows of the pairs that were asked for, which are the first of those computed.

    `limits` are the adjusted ones, `columns` further fields with a value for each row, and `same`
    fields with one value for all.
    """
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
        **{name: finite_values(values[shown]) for name, values in of_pairs.items()},
    }
    common = {
        **same,
        "task": pairing.task,
        "metric": pairing.metric,
        "method": found.method,
        "higher_is_better": pairing.higher_is_better,
    }
    return records(Comparison, every, common)


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
            notes[i] = (*notes[i], "one item tells next to nothing")
    return notes


def _on_clusters(pairing: Pairs, method: str) -> tuple[str, ...]:
    if pairing.clusters is None:
        return ()
    n = len(np.unique(pairing.clusters))
    if n == 1:
        return ("all items are one cluster, which tells next to nothing of others",)
    if method in CLUSTERED_NAMES:
        return (f"items in {n} clusters",)
    return (f"{method} takes items in {n} clusters as independent",)


class PairSolver:
    """Runs each method; 0/1 scores of all tasks at once, because few tables are distinct."""

    def __init__(self, request: Request) -> None:
        # Spawned, so that other random numbers do not depend on the method.
        drawn = {"rng": request.rng.spawn(1)[0], "n_resamples": N_FLIPS}
        self.table = {
            name: replace(m, options={**m.options, **drawn}) if m.family == "resampling" else m
            for name, m in request.table.items()
        }
        self.method = request.method
        self.confidence_level = request.confidence_level
        self.rng = request.rng

    def choose(self, pairing: Pairs) -> Method:
        """Return the method for the pairs of one pairing."""
        if pairing.clusters is not None:
            return choose(pairing.kind, self.method, self.table, CLUSTERED_COMPARISON_DEFAULTS)
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

    def limits(
        self, pairs: Sequence[Pairs], found: Sequence[Found], levels: Sequence[float | None]
    ) -> list[Interval | None]:
        """Return the intervals of what was solved before at other levels, one for each pairing."""
        from evalstats_plugin.stats.interval import Interval

        limits: list[Interval | None] = [None] * len(pairs)
        by_level: dict[tuple[str, float], list[int]] = {}
        for i, (pairing, one, level) in enumerate(zip(pairs, found, levels, strict=True)):
            if level is None:
                continue
            if one.counts is None:
                method = self.table[one.method]
                parts = [_interval(method, pairing, block, level) for block in _blocks(pairing)]
                limits[i] = Interval(*np.concatenate([np.stack(part) for part in parts], axis=1))
            else:
                by_level.setdefault((one.method, level), []).append(i)
        for (name, level), where in by_level.items():
            counts = [counts for i in where if (counts := found[i].counts) is not None]
            for i, one in zip(where, _of_tables(self.table[name], counts, level), strict=True):
                limits[i] = one
        return limits

    def p_values(self, pairing: Pairs) -> FloatArray:
        """Return the p-values alone, shape (P,): all that ranks need."""
        from evalstats_plugin.stats.paired import mcnemar_mid_p, paired_counts, sign_flip

        method = self.choose(pairing)
        if method.family == "paired":
            return mcnemar_mid_p(paired_counts(*pairing.tables()))
        parts = [
            sign_flip(_flipped(method, pairing, differences), rng=self.rng, n_flips=N_FLIPS)
            for differences in _blocks(pairing)
        ]
        return np.concatenate(parts)

    def _of_counts(self, pairs: Sequence[Pairs]) -> list[Found]:
        from evalstats_plugin.stats.paired import (
            PairedCounts,
            mcnemar_mid_p,
            paired_counts,
            prob_better,
        )

        method = self.choose(pairs[0])
        counts = paired_counts(*np.concatenate([pairing.tables() for pairing in pairs], axis=1))
        interval = method.load()(counts, confidence_level=self.confidence_level)
        # From the model of the interval, where the method gives it.
        prob = getattr(interval, "prob_better", None)
        if prob is None:
            prob = prob_better(counts, prior=method.options.get("prior", JEFFREYS))
        columns = np.stack(
            [interval.low, interval.high, mcnemar_mid_p(counts), prob, counts.difference]
        )
        ends = np.cumsum([len(pairing.a) for pairing in pairs])
        parts = (np.split(x, ends[:-1], axis=1) for x in (columns, np.stack(counts)))
        return [
            Found(method.name, *part, counts=PairedCounts(*table))
            for part, table in zip(*parts, strict=True)
        ]

    def _of_block(self, method: Method, pairing: Pairs, differences: FloatArray) -> FloatArray:
        """Return what was found of some of the pairs, in the order of the fields of `Found`."""
        from evalstats_plugin.stats.means import moments
        from evalstats_plugin.stats.paired import sign_flip

        if method.family == "clustered-paired":
            low, high, prob = _of_clusters(method, pairing, differences, self.confidence_level)
        else:
            low, high = _interval(method, pairing, differences, self.confidence_level)
            prob = _prob_higher(method, pairing, differences)
        flipped = _flipped(method, pairing, differences)
        p_value = sign_flip(flipped, rng=self.rng, n_flips=N_FLIPS)
        return np.stack([low, high, p_value, prob, moments(differences).mean])


def _blocks(pairing: Pairs) -> Iterator[FloatArray]:
    """Yield the differences of a pairing, some pairs at a time."""
    step = max(BLOCK_SIZE // max(pairing.n_of_task, 1), 1)
    return (pairing.differences(i, i + step) for i in range(0, len(pairing.a), step))


def _flipped(method: Method, pairing: Pairs, differences: FloatArray) -> FloatArray:
    """Differences of the units whose signs are flipped: items, or clusters of items."""
    clustered = method.family in CLUSTER_FAMILIES
    return pairing.cluster_totals(differences) if clustered else differences


def _interval(method: Method, pairing: Pairs, differences: FloatArray, level: float) -> Interval:
    from evalstats_plugin.stats.interval import Interval
    from evalstats_plugin.stats.means import moments

    if method.family == "clustered-paired":
        low, high, _ = _of_clusters(method, pairing, differences, level)
        return Interval(low, high)
    bounded = method.family in ("bounded", "clustered-bounded")
    more = {"bounds": pairing.span} if bounded else {}
    clustered = method.family in CLUSTER_FAMILIES
    data = pairing.cluster_sums(differences) if clustered else (differences,)
    low, high = method.load()(*data, confidence_level=level, **more)
    # Differences that are all equal have no spread to make an interval of.
    flat = (moments(differences).std == 0) & (method.family == "real")
    return Interval(*(np.where(flat, np.nan, limit) for limit in (low, high)))


def _of_clusters(
    method: Method, pairing: Pairs, differences: FloatArray, level: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Limits and P(b higher), by the items of each cluster that only one of the two gets right."""
    missing = np.isnan(differences)
    only_a, sizes = pairing.cluster_sums(np.where(missing, np.nan, differences < 0))
    only_b, _ = pairing.cluster_sums(np.where(missing, np.nan, differences > 0))
    return method.load()(only_a, only_b, sizes, confidence_level=level)


def _prob_higher(method: Method, pairing: Pairs, differences: FloatArray) -> FloatArray:
    """P(b higher), by the posterior that goes with the interval."""
    from evalstats_plugin.stats import clustered
    from evalstats_plugin.stats.paired import dirichlet_process_prob, t_prob

    if method.family in CLUSTER_FAMILIES:
        return clustered.t_prob(*pairing.cluster_sums(differences))
    if method.family == "bounded":
        mass = method.options.get("mass", 0.5)
        return dirichlet_process_prob(differences, bounds=pairing.span, mass=mass)
    return t_prob(differences)


def _of_tables(method: Method, parts: Sequence[PairedCounts], level: float) -> list[Interval]:
    """Intervals from the tables of several pairings at once."""
    from evalstats_plugin.stats.interval import Interval
    from evalstats_plugin.stats.paired import PairedCounts

    together = PairedCounts(*(np.concatenate(cells) for cells in zip(*parts, strict=True)))
    ends = np.cumsum([len(part.both) for part in parts])[:-1]
    found = method.load()(together, confidence_level=level)
    limits = np.stack([found.low, found.high])
    return [Interval(*part) for part in np.split(limits, ends, axis=1)]


def units(pairing: Pairs, method: str) -> Units:
    """Scores of the units whose signs are flipped, and the pairs that are compared on them.

    Units are items, or clusters where the method of the intervals, `method`, allows for them.
    """
    clustered = method in CLUSTERED_NAMES
    if isinstance(pairing, Pairing) and not clustered:
        return pairing.scores, pairing.a, pairing.b
    if isinstance(pairing, Pairing) and not np.isnan(pairing.scores).any():
        return pairing.cluster_sums(pairing.scores)[0], pairing.a, pairing.b
    differences = pairing.differences()
    # A pair adds up the items of a cluster that both models answered.
    return many.against_zero(pairing.cluster_totals(differences) if clustered else differences)


def correct(p_values: FloatArray, units: Callable[[], Units], request: Request) -> Corrected:
    """Correct for all comparisons of one family; `units` is called for sign flips only."""
    level, rng = request.confidence_level, request.rng
    if request.correction == "holm":
        n = int((~np.isnan(p_values)).sum())
        return Corrected(many.holm(p_values), many.sidak_level(level, n))
    if request.correction != "maxt":
        return Corrected(adjusted(p_values, request.correction), None)
    flipped = units()
    together = many.max_t_of_pairs(*flipped, rng=rng, n_flips=N_FLIPS)
    simultaneous = many.simultaneous_level(
        *flipped, confidence_level=level, rng=rng, n_flips=N_FLIPS_FOR_LEVEL
    )
    return Corrected(np.where(np.isnan(p_values), np.nan, together), simultaneous)


def adjusted(p_values: FloatArray, correction: Correction) -> FloatArray:
    """Adjust p-values by themselves: by Holm's method for ``"maxt"``, which needs sign flips."""
    if correction == "bh":
        return many.benjamini_hochberg(p_values)
    return p_values if correction == "none" else many.holm(p_values)
