"""Sequential comparisons: confidence sequences, valid at every look while items come in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from evalstats_plugin.comparisons.design import Pairing, Request, pairings, refuse_best
from evalstats_plugin.comparisons.families import Each, Found, Table
from evalstats_plugin.comparisons.rows import SEQUENTIAL
from evalstats_plugin.data.responses import Responses
from evalstats_plugin.errors import DesignError
from evalstats_plugin.stats.arrays import FloatArray
from evalstats_plugin.stats.interval import Interval

VALID = (
    "stays valid however often you look and whenever you stop; items must come in random order, "
    "but the result does not depend on which came first"
)


def sequential(responses: Sequence[Responses], request: Request) -> tuple[list[Table], list[str]]:
    """Compare models item by item, valid at every look; return also notes on what was left out.

    The interval is a confidence sequence, and the p-value one over the wealth of a bettor against
    no difference. Both hold at all looks together, so that one may stop as soon as the answer is
    clear. They only need bounds of the scores.

    Raises
    ------
    DesignError
        For a method that holds for a number of items fixed beforehand.
    """
    if request.method not in ("auto", SEQUENTIAL):
        msg = (
            f"method {request.method!r} holds for a number of items fixed beforehand; a sequential "
            f"comparison has one method, {SEQUENTIAL!r}: leave method at 'auto'"
        )
        raise DesignError(msg)
    refuse_best(request, responses)
    pairs, left_out = pairings(responses, request.bounds, request.baseline)
    return [_table(pairing, request) for pairing in pairs], left_out


def _table(pairing: Pairing, request: Request) -> Table:
    differences, n_items = pairing.differences(), pairing.n_items
    shown, p_value = _solve(pairing, differences, request.confidence_level)
    total = np.nansum(differences, axis=1)
    unknown = np.full(len(total), np.nan)
    mean = total / np.where(n_items > 0, n_items, np.nan)
    found = Found(SEQUENTIAL, shown.low, shown.high, p_value, unknown, mean)
    columns: dict[str, Sequence[Any]] = {"n_items": n_items.tolist(), "notes": _notes(pairing)}

    def interval(level: float) -> Interval:
        return _solve(pairing, differences, level)[0]

    return Table(
        pairing=pairing, found=found, judge=lambda: Each(p_value, interval), columns=columns
    )


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
        common = (*common, f"{SEQUENTIAL} treats items in {n_clusters} clusters as independent")
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
