"""Models on the same items: every difference is one item's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.analyses.comparison_methods import CLUSTERED_NAMES
from evalstats_plugin.analyses.pair_solver import N_FLIPS, Found, PairSolver
from evalstats_plugin.analyses.pairing import Pairing, pairings
from evalstats_plugin.analyses.request import Correction, Request
from evalstats_plugin.responses import Responses
from evalstats_plugin.results import Comparison

FloatArray = NDArray[np.float64]


def paired(responses: Sequence[Responses], request: Request) -> tuple[list[Comparison], list[str]]:
    """Compare models item by item; return also notes on what was left out."""
    pairs, left_out = pairings(responses, request.bounds, request.baseline)
    solver = PairSolver(request)
    rows: list[Comparison] = []
    for pairing, found in zip(pairs, solver.solve(pairs), strict=True):
        adjusted = _adjusted(found, pairing, request.correction, request.rng)
        rows += _rows(pairing, found, adjusted, request.confidence_level)
    return rows, left_out


def _adjusted(
    found: Found, pairing: Pairing, correction: Correction, rng: np.random.Generator
) -> FloatArray:
    from evalstats_plugin.stats import multiplicity

    p_values, clustered = found.p_value, found.method in CLUSTERED_NAMES

    if correction == "holm":
        return multiplicity.holm(p_values)
    if correction == "bh":
        return multiplicity.benjamini_hochberg(p_values)
    if correction == "maxt":
        units = pairing.differences()
        if clustered:
            totals, sizes = pairing.cluster_sums(units)
            units = np.where(sizes > 0, totals, np.nan)
        return multiplicity.max_t(units, rng=rng, n_flips=N_FLIPS)
    return p_values


def _rows(
    pairing: Pairing, found: Found, p_adjusted: FloatArray, confidence_level: float
) -> list[Comparison]:
    lower_is_better = pairing.higher_is_better is False
    prob = 1 - found.prob_higher if lower_is_better else found.prob_higher
    numbers = (found.difference, found.low, found.high, found.p_value, p_adjusted, prob)
    n_items: NDArray[np.int64] = pairing.n_items
    missing: NDArray[np.int64] = pairing.n_either - n_items
    common = (*pairing.notes, *_on_clusters(pairing, found.method))
    undefined: NDArray[np.bool_] = ~np.isfinite(found.low) | ~np.isfinite(found.high)
    places = zip(n_items.tolist(), missing.tolist(), undefined.tolist(), strict=True)
    columns = zip(
        [pairing.models[i] for i in pairing.a.tolist()],
        [pairing.models[i] for i in pairing.b.tolist()],
        n_items.tolist(),
        *(_finite(x) for x in numbers),
        (_notes(common, *place) for place in places),
        strict=True,
    )
    return [
        Comparison(
            model_a=a,
            model_b=b,
            task=pairing.task,
            metric=pairing.metric,
            n_items=n,
            difference=difference,
            low=low,
            high=high,
            p_value=p_value,
            p_adjusted=adjusted,
            prob_better=prob_better,
            method=found.method,
            confidence_level=confidence_level,
            notes=notes,
            higher_is_better=pairing.higher_is_better,
        )
        for a, b, n, difference, low, high, p_value, adjusted, prob_better, notes in columns
    ]


def _on_clusters(pairing: Pairing, method: str) -> tuple[str, ...]:
    if pairing.clusters is None:
        return ()
    n = len(np.unique(pairing.clusters))
    if method in CLUSTERED_NAMES:
        return (f"items in {n} clusters",)
    return (f"{method} takes items in {n} clusters as independent",)


def _finite(values: FloatArray) -> list[float | None]:
    """Numbers, None where there is none."""
    found: NDArray[np.object_] = values.astype(object)
    found[~np.isfinite(values)] = None
    return found.tolist()


def _notes(
    notes: tuple[str, ...],
    n: int,
    n_missing: int,
    undefined: bool,  # noqa: FBT001 - unpacked from a table
) -> tuple[str, ...]:
    if n_missing:
        notes = (*notes, f"{n_missing} of {n + n_missing} items lack one model's score: left out")
    if not n:
        return (*notes, "the two models share no item")
    if undefined:
        notes = (*notes, "no interval: one item or cluster, or differences that are all equal")
    return notes
