"""Is model b better than model a, by how much, and among how many?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.analyses.cells import Bounds
from evalstats_plugin.analyses.comparison_methods import CLUSTERED_NAMES
from evalstats_plugin.analyses.pair_solver import N_FLIPS, Found, PairSolver
from evalstats_plugin.analyses.pairing import Pairing, pairings
from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.matrix import ResponseMatrix
from evalstats_plugin.methods import Method
from evalstats_plugin.response_set import ResponseSet
from evalstats_plugin.responses import Responses
from evalstats_plugin.results import Comparison, Comparisons

Correction = Literal["holm", "bh", "maxt", "none"]
Rng = np.random.Generator | int | None
FloatArray = NDArray[np.float64]


def compare(
    responses: ResponseSet | ResponseMatrix | Iterable[Responses],
    *,
    baseline: str | None = None,
    confidence_level: float = 0.95,
    method: str | Method = "auto",
    correction: Correction = "holm",
    bounds: Bounds | None = None,
    rng: Rng = None,
) -> Comparisons:
    """Compare models item by item: every two of them, or each with a baseline.

    Parameters
    ----------
    responses
        What `evalstats_plugin.read` gave, a matrix, or any `Responses`. Items are paired by id,
        and an id must stand for the same question on both sides. Epochs are averaged first.
    baseline
        Model with which the others are compared. Without it, every two models are.
    confidence_level
        Between 0 and 1.
    method
        Of the interval: a name from the table of methods for comparisons. It is used wherever it
        fits the scores; where it does not the default is, and each row says what ran.
    correction
        What ``p_adjusted`` protects, over the pairs of one task and metric: ``"holm"`` against any
        false finding, ``"maxt"`` against the same with more power (sign flips), ``"bh"`` against a
        large share of false findings, ``"none"`` against nothing.
    bounds
        Least and greatest possible score by metric, as for `intervals`.
    rng
        Generator or seed, for p-values by random sign flips.

    Notes
    -----
    P-values are McNemar's mid-p for 0/1 scores, else those of flipping the signs of differences;
    of whole clusters at once, where items come in clusters.
    Where a log does not say which scores are better, the higher are taken to be.

    Raises
    ------
    DesignError
        For a confidence level outside (0, 1), or where no two models share an item.
    ItemConflictError
        If an item id is one question for one model and another for the other.
    SelectionError
        For a baseline, method or correction that does not exist.
    """
    if not 0 < confidence_level < 1:
        msg = f"confidence level {confidence_level} found, expected a number between 0 and 1"
        raise DesignError(msg)
    if correction not in get_args(Correction):
        msg = (
            f"no correction is called {correction!r}; there are: {', '.join(get_args(Correction))}"
        )
        raise SelectionError(msg)
    notes = responses.notes if isinstance(responses, (ResponseSet, ResponseMatrix)) else ()
    if isinstance(responses, ResponseMatrix):
        responses = responses.to_responses()
    pairs, left_out = pairings(list(responses), bounds or {}, baseline)
    solver = PairSolver(confidence_level, method, np.random.default_rng(rng))
    rows: list[Comparison] = []
    for pairing, found in zip(pairs, solver.solve(pairs), strict=True):
        adjusted = _adjusted(found, pairing, correction, solver.rng)
        rows += _rows(pairing, found, adjusted, confidence_level)
    seed = rng if isinstance(rng, int) else None
    return Comparisons(tuple(rows), (*notes, *left_out), seed)


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
