"""Which model is better, asked again and again while items come in?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evalstats_plugin.comparisons.design import Pairing, Request, pairings, refuse_best
from evalstats_plugin.comparisons.rows import Comparison
from evalstats_plugin.data.responses import Responses
from evalstats_plugin.data.results import finite
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

    Differences have a confidence sequence, and no difference a p-value that is one over what a
    bettor against it would have won: both hold at all looks together, so that one may stop as
    soon as the answer is clear. They need bounds of the scores, and no more.

    Raises
    ------
    DesignError
        For a method of the interval, which belongs to a number of items fixed beforehand.
    SelectionError
        For the correction ``"maxt"``, which flips signs of such a number.
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
    interval, p_value = _solve(pairing, request.confidence_level)
    differences = pairing.differences()
    n_items = pairing.n_items
    seen = ~np.isnan(differences)
    total = np.where(seen, differences, 0.0).sum(axis=1)
    numbers = (total / np.where(n_items > 0, n_items, np.nan), *interval, p_value)
    columns = (*numbers, _adjusted(p_value, request))
    return [
        Comparison(
            model_a=pairing.models[int(pairing.a[i])],
            model_b=pairing.models[int(pairing.b[i])],
            task=pairing.task,
            metric=pairing.metric,
            n_items=int(n_items[i]),
            difference=finite(float(columns[0][i])),
            low=finite(float(columns[1][i])),
            high=finite(float(columns[2][i])),
            p_value=finite(float(columns[3][i])),
            p_adjusted=finite(float(columns[4][i])),
            prob_better=None,
            method=METHOD,
            confidence_level=request.confidence_level,
            notes=_notes(pairing, i),
            higher_is_better=pairing.higher_is_better,
        )
        for i in range(len(pairing.a))
    ]


def _solve(pairing: Pairing, confidence_level: float) -> tuple[Interval, FloatArray]:
    """Interval and p-value of every pair; NaN without bounds or common items."""
    from evalstats_plugin.stats import sequential as stats_sequential
    from evalstats_plugin.stats.paired import paired_counts

    differences = pairing.differences()
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
    span = pairing.bounds[1] - pairing.bounds[0]
    interval = stats_sequential.betting_mixture(
        differences, bounds=(-span, span), confidence_level=confidence_level
    )
    return interval, stats_sequential.p_value(differences, bounds=(-span, span), mean=0.0)


def _adjusted(p_value: FloatArray, request: Request) -> FloatArray:
    from evalstats_plugin.stats import many

    if request.correction == "holm":
        return many.holm(p_value)
    if request.correction == "bh":
        return many.benjamini_hochberg(p_value)
    return p_value


def _notes(pairing: Pairing, pair: int) -> tuple[str, ...]:
    notes = pairing.notes
    n, n_either = int(pairing.n_items[pair]), int(pairing.n_either[pair])
    if pairing.clusters is not None:
        n_clusters = len(np.unique(pairing.clusters))
        notes = (*notes, f"{METHOD} takes items in {n_clusters} clusters as independent")
    if n < n_either:
        notes = (*notes, f"{n_either - n} of {n_either} items lack one model's score: left out")
    if not n:
        return (*notes, "the two models share no item")
    if pairing.bounds is None:
        return (*notes, "no interval: it needs the scores' bounds, pass --bounds METRIC=LOW,HIGH")
    return (*notes, VALID)
