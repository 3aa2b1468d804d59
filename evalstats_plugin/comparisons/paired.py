"""Comparisons of models on the same items: differences item by item, or cluster by cluster.

`paired` joins the models and `paired_tables` compares them: each pair by the distribution of its
mean difference (`stats.pairs.differences`), all pairs of a task at once by one critical value more
(`stats.pairs.simultaneous`); or by another method that was asked for, each pair alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from evalstats_plugin.comparisons.design import Pairing, Pairs, Request, pairings
from evalstats_plugin.comparisons.families import (
    Each,
    Judged,
    PairEstimates,
    Table,
    Whatever,
    estimates_of,
    levels_looked_at,
    p_of_limits,
    prob_of_p,
)
from evalstats_plugin.comparisons.methods import (
    CLUSTERED_NAMES,
    COMPARISON_DEFAULTS,
    ENGINE,
)
from evalstats_plugin.comparisons.units import common_units, mean_differences
from evalstats_plugin.data.methods import Method, choose
from evalstats_plugin.data.results import finite_values
from evalstats_plugin.errors import counted
from evalstats_plugin.scores.cells import Cell
from evalstats_plugin.stats.arrays import FloatArray, IntArray
from evalstats_plugin.stats.clustered import cluster_moments
from evalstats_plugin.stats.interval import Interval, imbens_manski_level
from evalstats_plugin.stats.means import moments
from evalstats_plugin.stats.pairs import paired as stats_paired
from evalstats_plugin.stats.pairs.differences import Counts, MeanDifferences
from evalstats_plugin.stats.pairs.simultaneous import AllPairs
from evalstats_plugin.stats.pairs.unpaired import two_sided
from evalstats_plugin.stats.streams import seed_for, stream

NO_INTERVAL = "no interval: nothing differs, and the scores' bounds are unknown"

N_RESAMPLES = 9999
"""Bootstrap resamples."""

MOST_DRAWS, LEAST_DRAWS = 19_999, 1999
"""Common random draws of all pairs of a task; fewer where many pairs or items would take long."""

DRAWN, WEIGHED = 2**26, 2**27
"""Statistics of pairs, and weights of items, drawn in all, up to which `MOST_DRAWS` are taken."""

BLOCK_SIZE = 2**22
"""Differences held at a time."""

IN_CACHE = 2**16
"""Differences that the processor's cache holds, with what is made of them."""


def paired(cells: Sequence[Cell], request: Request) -> tuple[list[Table], list[str]]:
    """Compare models item by item; return also notes on what was left out."""
    pairs, left_out = pairings(cells, request.baseline, request.missing)
    return paired_tables(pairs, request), left_out


def paired_tables(pairs: Sequence[Pairs], request: Request) -> list[Table]:
    """Compare the models of each pairing."""
    families = [pairing.family for pairing in pairs]
    n_draws = draws_for(
        sum(len(family.a) for family in families), sum(family.n_of_task for family in families)
    )
    alone = [mean_differences(family) for family in families]
    methods = [method_of(family, request) for family in families]
    by_engine = [own for own, method in zip(alone, methods, strict=True) if method.name == ENGINE]
    estimates = iter(estimates_of(by_engine, request.confidence_level))
    tables: list[Table] = []
    for pairing, family, own, method in zip(pairs, families, alone, methods, strict=True):
        if method.name == ENGINE:
            judge = partial(judged, family, own, n_draws)
            tables.append(_table(pairing, own, next(estimates), judge, request))
        else:
            solved, interval = _by_name(method, family, request)
            judge = partial(Each, solved.p_value, interval)
            tables.append(_table(pairing, own, solved, judge, request))
    return tables


def _table(
    pairing: Pairs,
    alone: MeanDifferences,
    estimates: PairEstimates,
    judge: Callable[[], Judged],
    request: Request,
) -> Table:
    n_items: IntArray = pairing.n_items
    columns: dict[str, Sequence[Any]] = {
        "n_items": n_items.tolist(),
        "notes": _notes(pairing, estimates, n_items),
        **_millers_columns(pairing, alone),
    }
    table = Table(pairing=pairing, estimates=estimates, judge=judge, columns=columns)
    if isinstance(pairing, Pairing) and pairing.open is not None:
        columns["n_missing"] = pairing.n_open().tolist()
        ends_of = partial(_ends_of, pairing)
        table.whatever = partial(whatever, ends_of, pairing.n_of_task, request)
    return table


def judged(family: Pairs, alone: MeanDifferences, n_draws: int) -> Judged:
    """Judge all pairs of a task at once."""
    units = common_units(family) if len(family.a) > 1 else None
    return AllPairs(alone, units, family.a, family.b, n_draws=n_draws)


def method_of(pairing: Pairs, request: Request) -> Method:
    """Return the method for the pairs of one pairing."""
    name = request.method
    if name in CLUSTERED_NAMES and pairing.clusters is None:
        name = "auto"
    if name == "auto" and request.prior is not None and pairing.clusters is None:
        # The default has no prior that could be another.
        name = "dirichlet" if pairing.kind == "binary" else "dp-jeffreys"
    return choose(pairing.kind, name, request.table, COMPARISON_DEFAULTS)


def draws_for(n_pairs: int, n_units: int) -> int:
    """Return how many draws are taken for so many pairs and items (or tasks) in all."""
    affordable = min(DRAWN / n_pairs, WEIGHED / n_units)
    return int(np.clip(affordable, LEAST_DRAWS, MOST_DRAWS))


def _millers_columns(pairing: Pairs, alone: MeanDifferences) -> dict[str, Sequence[Any]]:
    """Scores, standard errors, correlations, wins, ties and losses of b, of the pairs shown.

    The columns that Miller recommends [Mil24]_.
    """
    n = len(pairing.a)
    if isinstance(alone, Counts):
        both, only_a, only_b, neither = pairing.tables()
        size, up, down = both + only_a + only_b + neither, only_b, only_a
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = (up - down) / size
            error = np.sqrt(((up + down) / size - mean**2) / (size - 1))
            a, b = (both + only_a) / size, (both + only_b) / size
            correlation = (both / size - a * b) / np.sqrt(a * (1 - a) * b * (1 - b))
    else:
        parts = [_moments_of(pairing, block) for block in _blocks(pairing, IN_CACHE)]
        size, up, down, error, correlation, a, b = np.concatenate(parts, axis=1)
    wins, losses = (down, up) if pairing.higher_is_better is False else (up, down)
    return {
        "score_a": finite_values(a[:n]),
        "score_b": finite_values(b[:n]),
        "std_error": finite_values(error[:n]),
        "correlation": finite_values(correlation[:n]),
        "n_wins": wins[:n].astype(int).tolist(),
        "n_ties": (size - wins - losses)[:n].astype(int).tolist(),
        "n_losses": losses[:n].astype(int).tolist(),
    }


def _moments_of(pairing: Pairs, pairs: slice) -> FloatArray:
    """Items, those up and down, standard errors (clustered), correlations, scores: (7, K)."""
    a, b = pairing.scores_of(pairs.start, pairs.stop)
    x = b - a
    seen = ~np.isnan(x)
    n, _, std = moments(x)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = [np.where(seen, y, 0.0).sum(axis=1) / n for y in (a, b)]
        of_a, of_b = (
            np.where(seen, y - mean[:, None], 0.0) for y, mean in zip((a, b), means, strict=True)
        )
        error = std / np.sqrt(n)
        correlation = (of_a * of_b).sum(axis=1) / np.sqrt(
            (of_a**2).sum(axis=1) * (of_b**2).sum(axis=1)
        )
    if pairing.clusters is not None:
        error = cluster_moments(*pairing.cluster_sums(x)).cr1
    return np.stack([n, (x > 0).sum(axis=1), (x < 0).sum(axis=1), error, correlation, *means])


class End(NamedTuple):
    """Some pairs, with the worst or the best possible scores in place of those missing."""

    alone: MeanDifferences
    mean: FloatArray
    error: FloatArray
    """Standard error."""


def whatever(
    ends_of: Callable[[IntArray], tuple[End, End]],
    n_items: int,
    request: Request,
    pairs: IntArray,
    n_tests: int,
) -> Whatever:
    """Limits and p-values of some pairs whatever their missing scores would have been.

    Imbens and Manski's, each pair at its share of alpha.

    Parameters
    ----------
    ends_of
        With the worst and with the best scores of b, and the reverse of a, in place of those
        missing.
    """
    level = 1 - (1 - request.confidence_level) / n_tests
    extremes = Whatever(*np.full((3, len(pairs)), np.nan))
    step = max(BLOCK_SIZE // max(n_items, 1), 1)
    for start in range(0, len(pairs), step):
        part = slice(start, start + step)
        worst, best = ends_of(pairs[part])
        (least, most), width = (worst.alone, best.alone), best.mean - worst.mean
        error = np.maximum(worst.error, best.error)
        levels = imbens_manski_level(width, error, confidence_level=level)
        z = special.ndtri((1 + levels) / 2)
        low, high = least.limits(z).low, most.limits(z).high
        # The end that is nearer to no difference, one side; the other side is beyond the other.
        near = np.where(least.estimate > 0, least.deviate, -most.deviate)
        beyond: FloatArray = special.ndtr(-near - width / error)
        ahead = (least.estimate > 0) | (most.estimate < 0)
        p_value = np.where(ahead, special.ndtr(-near) + beyond, 1.0)
        clear = (low > 0) | (high < 0)
        # By limits at rounded levels, so that both say the same.
        p_value = np.where(clear, np.minimum(p_value, 1 - level), np.maximum(p_value, 1 - level))
        p_value = np.where(clear, p_value, np.nextafter(p_value, 2))
        for name, values in (("low", low), ("high", high), ("p_values", p_value)):
            getattr(extremes, name)[part] = values
    extremes.p_values[:] = np.minimum(n_tests * extremes.p_values, 1.0)
    return extremes


def _ends_of(pairing: Pairing, pairs: IntArray) -> tuple[End, End]:
    worst, best = map(_end, pairing.at_ends(pairs))
    return worst, best


def _end(pairing: Pairing) -> End:
    """Return all pairs, with standard errors as if one further item were half as far out."""
    differences = pairing.differences()
    n, mean, std = moments(differences)
    error = std / np.sqrt(n)
    if pairing.clusters is not None:
        error = np.nan_to_num(cluster_moments(*pairing.cluster_sums(differences)).cr2)
    error = np.hypot(np.nan_to_num(error), pairing.span[1] / 2 / n)
    return End(mean_differences(pairing), mean, error)


def _notes(pairing: Pairs, estimates: PairEstimates, n_items: IntArray) -> list[tuple[str, ...]]:
    """Return the notes of each row: most have only those that all have in common."""
    common, method = pairing.notes, estimates.method
    if pairing.clusters is not None:
        n_clusters = len(np.unique(pairing.clusters))
        on_clusters = f"{method} treats items in {n_clusters} clusters as independent"
        if n_clusters == 1:
            on_clusters = "all items are in one cluster: how clusters differ is unknown"
        elif method == ENGINE or method in CLUSTERED_NAMES:
            on_clusters = f"items in {counted(n_clusters, 'cluster')}"
        common = (*common, on_clusters)
    shown = slice(len(n_items))
    missing: IntArray = pairing.n_either - n_items
    undefined = ~np.isfinite(estimates.low[shown]) | ~np.isfinite(estimates.high[shown])
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


def _by_name(
    method: Method, pairing: Pairs, request: Request
) -> tuple[PairEstimates, Callable[[float], Interval]]:
    """Return what a method that was asked for by name says of each pair, and its intervals.

    Interval, p-value and P(better) are of one distribution: the method's posterior where it has
    one, else the one that has its limits as quantiles.
    """
    seed, level = seed_for(request.rng, "seed of single pairs"), request.confidence_level

    def every(level: float | list[float]) -> list[FloatArray]:
        parts = [_estimated(method, pairing, x, level, seed) for x in _blocks(pairing)]
        return [np.concatenate(part, axis=-1) for part in zip(*parts, strict=True)]

    def interval(level: float) -> Interval:
        return Interval(*every(level)[:2])

    differences = (pairing.differences(x.start, x.stop) for x in _blocks(pairing))
    mean = np.concatenate([moments(x).mean for x in differences])
    low, high, *more = every(level)
    if more:
        p_value, prob = two_sided(more[0]), more[0]
    else:
        of_level = interval
        if method.family == "resampling":
            # Drawing takes long: all levels are answered from the same resamples.
            _, levels = levels_looked_at(level)
            of_level = dict(zip(levels, map(Interval, *every(levels)), strict=True)).__getitem__
        p_value = p_of_limits(of_level, level)
        prob = prob_of_p(p_value, mean)
    return PairEstimates(method.name, low, high, p_value, prob, mean), interval


def _estimated(
    method: Method, pairing: Pairs, pairs: slice, level: float | list[float], seed: int
) -> tuple[FloatArray, ...]:
    """Limits, then P(b higher) if the method gives it; of several levels if it resamples."""
    function = partial(method.load(), confidence_level=level)
    if method.family == "paired":
        counts = stats_paired.paired_counts(*pairing.tables()[:, pairs])
        solution = tuple(function(counts))
        if isinstance(method.prior, tuple):
            solution = (*solution, stats_paired.prob_better(counts, prior=method.prior))
        return solution
    differences = pairing.differences(pairs.start, pairs.stop)
    if method.name in CLUSTERED_NAMES:
        more = {"bounds": pairing.span} if method.family == "clustered-bounded" else {}
        return function(*pairing.cluster_sums(differences), **more)
    if method.family == "resampling":
        # The same resamples at every level.
        rng = stream(seed, "resamples of single pairs")
        return function(differences, rng=rng, n_resamples=N_RESAMPLES)
    if method.family == "bounded":
        prob = stats_paired.dirichlet_process_prob(
            differences, bounds=pairing.span, mass=0.5 if method.mass is None else method.mass
        )
        return *function(differences, bounds=pairing.span), prob
    low, high = function(differences)
    # Differences that are all equal have no spread to make an interval of.
    flat = moments(differences).std == 0
    solution = tuple(np.where(flat, np.nan, limit) for limit in (low, high))
    return (*solution, stats_paired.t_prob(differences)) if method.name == "paired-t" else solution


def _blocks(pairing: Pairs, size: int = BLOCK_SIZE) -> Iterator[slice]:
    """Yield the pairs of a pairing, some at a time."""
    step = max(size // max(pairing.n_of_task, 1), 1)
    return (slice(i, min(i + step, len(pairing.a))) for i in range(0, len(pairing.a), step))
