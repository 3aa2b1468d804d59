"""Models on the same items: every difference is one item's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.analyses.corrections import correct
from evalstats_plugin.analyses.pair_solver import Found, PairSolver
from evalstats_plugin.analyses.pairing import Pairing, Pairs, pairings
from evalstats_plugin.analyses.request import Request
from evalstats_plugin.responses import Responses
from evalstats_plugin.results import Comparison, records
from evalstats_plugin.tables.comparisons import CLUSTERED_NAMES

if TYPE_CHECKING:
    from evalstats_plugin.stats.interval import Interval

NO_INTERVAL = "no interval: one item or cluster, or differences that are all equal"

FloatArray = NDArray[np.float64]


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
