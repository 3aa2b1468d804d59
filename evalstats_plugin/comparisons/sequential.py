"""Sequential comparisons: confidence sequences, valid at every look while items come in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from evalstats_plugin.comparisons.design import Pairing, Request, pairings, refuse_best
from evalstats_plugin.comparisons.paired import adjusted
from evalstats_plugin.comparisons.rows import Comparison
from evalstats_plugin.data.responses import Responses
from evalstats_plugin.data.results import finite_values, records
from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.stats.arrays import FloatArray
from evalstats_plugin.stats.interval import Interval

METHOD = "confidence-sequence"

VALID = (
    "stays valid however often you look and whenever you stop; items must come in random order, "
    "but the result does not depend on which came first"
)


def sequential(
    responses: Sequence[Responses], request: Request
) -> tuple[list[Comparison], list[str]]:
    """Compare models item by item, valid at every look; return also notes on what was left out.

    The interval is a confidence sequence, and the p-value one over the wealth of a bettor against
    no difference. Both hold at all looks together, so that one may stop as soon as the answer is
    clear. They only need bounds of the scores.

    Raises
    ------
    DesignError
        For a method that holds for a number of items fixed beforehand.
    SelectionError
        For the correction ``"maxt"``, which does so, too.
    """
    if request.method not in ("auto", METHOD):
        msg = (
            f"method {request.method!r} found, which holds for a number of items fixed beforehand; "
            f"a sequential comparison has one method, {METHOD!r}: leave method at 'auto'"
        )
        raise DesignError(msg)
    if request.correction == "maxt":
        msg = (
            "correction 'maxt' found, which holds for a number of items fixed beforehand; "
            "a sequential comparison takes holm, bh or none"
        )
        raise SelectionError(msg)
    refuse_best(request, responses)
    pairs, left_out = pairings(responses, request.bounds, request.baseline)
    rows: list[Comparison] = []
    for pairing in pairs:
        rows += _rows(pairing, request)
    return rows, left_out


def _rows(pairing: Pairing, request: Request) -> list[Comparison]:
    differences, n_items = pairing.differences(), pairing.n_items
    interval, p_value = _solve(pairing, differences, request.confidence_level)
    total = np.nansum(differences, axis=1)
    models = np.asarray(pairing.models, dtype=object)
    columns: dict[str, Sequence[Any]] = {
        "model_a": models[pairing.a].tolist(),
        "model_b": models[pairing.b].tolist(),
        "n_items": n_items.tolist(),
        "difference": finite_values(total / np.where(n_items > 0, n_items, np.nan)),
        "low": finite_values(interval.low),
        "high": finite_values(interval.high),
        "p_value": finite_values(p_value),
        "p_adjusted": finite_values(adjusted(p_value, request.correction)),
        "notes": _notes(pairing),
    }
    same = {
        "task": pairing.task,
        "metric": pairing.metric,
        "prob_better": None,
        "method": METHOD,
        "confidence_level": request.confidence_level,
        "higher_is_better": pairing.higher_is_better,
    }
    return records(Comparison, columns, same)


def _solve(
    pairing: Pairing, differences: FloatArray, confidence_level: float
) -> tuple[Interval, FloatArray]:
    """Interval and p-value of every pair; NaN without bounds or common items."""
    from evalstats_plugin.stats import sequential as stats_sequential
    from evalstats_plugin.stats.paired import paired_counts

    if pairing.kind == "binary":
        counts = paired_counts(
            0 * pairing.n_items,
            (differences < 0).sum(axis=1),
            (differences > 0).sum(axis=1),
            (differences == 0).sum(axis=1),
        )
        interval = stats_sequential.paired_mixture(counts, confidence_level=confidence_level)
        return interval, stats_sequential.paired_p_value(counts)
    if pairing.bounds is None:
        nothing = np.full(len(differences), np.nan)
        return Interval(nothing, nothing), nothing
    interval = stats_sequential.betting_mixture(
        differences, bounds=pairing.span, confidence_level=confidence_level
    )
    return interval, stats_sequential.p_value(differences, bounds=pairing.span, mean=0.0)


def _notes(pairing: Pairing) -> list[tuple[str, ...]]:
    common = pairing.notes
    if pairing.clusters is not None:
        n_clusters = len(np.unique(pairing.clusters))
        common = (*common, f"{METHOD} takes items in {n_clusters} clusters as independent")
    last = (
        "no interval: it needs the scores' bounds, pass --bounds METRIC=LOW,HIGH"
        if pairing.bounds is None
        else VALID
    )
    notes: list[tuple[str, ...]] = []
    for n, n_either in zip(pairing.n_items.tolist(), pairing.n_either.tolist(), strict=True):
        missing = n_either - n
        lacking = f"{missing} of {n_either} items lack one model's score: left out"
        own = (lacking,) if missing else ()
        notes.append((*common, *own, last if n else "the two models share no item"))
    return notes
