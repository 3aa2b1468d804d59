"""How good is a model, by many scores of a judge and few human labels of the same answers?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.data.responses import Responses, Selection
from evalstats_plugin.data.results import finite
from evalstats_plugin.data.runs import ResponseSet, run_of
from evalstats_plugin.errors import DesignError, SelectionError, few, no_such
from evalstats_plugin.scores.cells import Bounds, make_cell
from evalstats_plugin.scores.rows import Intervals, ScoreInterval
from evalstats_plugin.stats.control_variate import Powered

METHOD = "ppi++"


FEWEST_LABELS = 5
"""Labels below which nothing is said of how well the judge agrees with them."""


HUMAN = "human"
"""Metric of labels that come from a file."""


Labels = Mapping[str, float]
"""Human scores by the item's id as text."""


def prediction_powered(
    responses: ResponseSet | ResponseMatrix | Iterable[Responses],
    *,
    human: str | None = None,
    judge: str,
    labels: Labels | None = None,
    confidence_level: float = 0.95,
    bounds: Bounds | None = None,
) -> Intervals:
    """Give each model the mean of its human labels, sharpened by a judge's scores.

    Parameters
    ----------
    responses
        What `evalstats_plugin.read` gave, a matrix, or any `Responses`.
    human, judge
        Metrics of the same model and task, by full name or the part before the comma. Items
        without a human score are unlabelled. Without `human`, give `labels`.
    labels
        Human scores of one model's answers to one task, by the item's id as text.
    confidence_level
        Between 0 and 1.
    bounds
        Least and greatest possible score by metric, as for `evalstats_plugin.intervals`; only
        those of the human scores matter. Labels of a file are the metric ``"human"``.

    Notes
    -----
    The judge may be biased, and on any scale: only how it goes along with the labels counts. The
    labelled items must be a random part of those the judge scored.

    Raises
    ------
    DesignError
        With fewer than five labels, none that the judge has scored, or labels without a judge's
        score; for a confidence level outside (0, 1).
    SelectionError
        For a metric that is not there, with the closest names.
    """
    if not 0 < confidence_level < 1:
        msg = f"confidence level {confidence_level} found, expected a number between 0 and 1"
        raise DesignError(msg)
    if (human is None) == (labels is None):
        msg = "human labels come from a metric or from a file: pass one of human and labels"
        raise SelectionError(msg)
    notes = responses.notes if isinstance(responses, (ResponseSet, ResponseMatrix)) else ()
    if isinstance(responses, ResponseMatrix):
        responses = responses.to_responses()
    found = _latest(responses)
    judged = _of_metric(found, judge)
    labelled = _of_metric(found, human) if human else _labelled(judged, labels or {})
    pairs = [(labelled[place], judged[place]) for place in labelled if place in judged]
    if not pairs:
        (model, task), other = next(iter(labelled)), next(iter(judged))
        msg = (
            f"human labels found for {model!r} on {task!r} and judge scores for {other[0]!r} on "
            f"{other[1]!r}; expected both for one model and task"
        )
        raise DesignError(msg)
    rows = [_row(one, other, confidence_level, bounds or {}) for one, other in pairs]
    return Intervals(tuple(rows), tuple(notes))


def _latest(responses: Iterable[Responses]) -> list[Responses]:
    """Responses with item scores, the latest run of each model, in their order."""
    usable = [r for r in responses if len(r.item_ids) and r.aggregation == "mean"]
    latest = {(r.model, r.task, r.metric): r for r in sorted(usable, key=run_of)}
    return [r for r in usable if latest[r.model, r.task, r.metric] is r]


def _of_metric(responses: Sequence[Responses], name: str) -> dict[tuple[str, str], Responses]:
    """Return responses by model and task that have a metric."""
    wanted = Selection(metrics=(name,))
    found: dict[tuple[str, str], Responses] = {}
    for r in responses:
        if not wanted.wants_metric(r.metric):
            continue
        if (r.model, r.task) in found:
            both = f"{found[r.model, r.task].metric!r} and {r.metric!r}"
            msg = f"metric {name!r} found twice for {r.model!r} on {r.task!r} ({both}): pass one"
            raise SelectionError(msg)
        found[r.model, r.task] = r
    if not found:
        known = list(dict.fromkeys(r.metric for r in responses))
        raise SelectionError(no_such("metric with item scores", name, known, few(known)))
    return found


def _labelled(
    judged: Mapping[tuple[str, str], Responses], labels: Labels
) -> dict[tuple[str, str], Responses]:
    """Labels of a file, as responses of the one model and task that the judge has scored."""
    if len(judged) > 1:
        places = few([f"{model!r} on {task!r}" for model, task in judged])
        msg = f"labels are of one model's answers to one task, but the judge scored {places}"
        raise DesignError(msg)
    ((place, r),) = judged.items()
    scores = np.array(list(labels.values()), dtype=np.float64)[:, None]
    ids = np.array(list(labels), dtype=np.str_)
    return {place: replace(_bare(r), metric=HUMAN, item_ids=ids, scores=scores)}


def _bare(r: Responses) -> Responses:
    """Leave nothing of the responses that belongs to their metric or items."""
    return replace(
        r, weights=None, clusters=None, item_hashes=None, bounds=None, higher_is_better=None,
        groups=(), logged=None, logged_std_error=None, logged_n=None, population=None, notes=(),
    )  # fmt: skip


def _row(
    human: Responses, judge: Responses, confidence_level: float, bounds: Bounds
) -> ScoreInterval:
    from evalstats_plugin.stats import control_variate

    labels, scores = _aligned(human, judge)
    cell = make_cell(human, bounds)
    found = control_variate.ppi(
        labels, scores, bounds=cell.bounds, confidence_level=confidence_level
    )
    clustered = human.clusters is not None or judge.clusters is not None
    notes = (f"{METHOD} takes items that come in clusters as independent",) if clustered else ()
    return ScoreInterval(
        model=human.model,
        task=human.task,
        metric=human.metric,
        n_items=int(found.n),
        n_epochs=max(human.scores.shape[1], 1),
        estimate=finite(float(found.estimate)),
        low=finite(float(found.interval.low)),
        high=finite(float(found.interval.high)),
        std_error=finite(float(found.std_error)) or None,
        method=METHOD,
        confidence_level=confidence_level,
        notes=(*_without_missing(cell.notes), *notes, _on_judge(found, judge.metric)),
        higher_is_better=human.higher_is_better,
        logged=finite(human.logged),
        logged_std_error=finite(human.logged_std_error),
        log=str(human.source.path),
    )


def _without_missing(notes: Sequence[str]) -> list[str]:
    """Items without a label are what this is for: nothing to point out."""
    return [note for note in notes if "have no score" not in note]


def _on_judge(found: Powered, judge: str) -> str:
    n, total, gain = int(found.n), int(found.population), float(found.gain)
    if n == total:
        return f"all {n} items that {judge} scored have a human label: it adds nothing"
    worth = f"worth ×{gain:.2f} as many labels" if np.isfinite(gain) else "of unknown worth"
    return (
        f"{n} human labels, a random part of {total} items scored by {judge}, whose weight is "
        f"λ = {float(found.power):.2f}: {worth}"
    )


def _aligned(human: Responses, judge: Responses) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Labels and judge scores of the same items, each of shape (M,); NaN where there is none."""
    both = [replace(r, scores=r.item_means[:, None], model=str(i), metric="", task="", weights=None)
            for i, r in enumerate((human, judge))]  # fmt: skip
    joined = ResponseMatrix.join(both)
    labels, scores = joined.scores[:, :, 0]
    has_label, has_score = ~np.isnan(labels), ~np.isnan(scores)
    place = f"{human.model!r} on {human.task!r}"
    n, n_both = int(has_label.sum()), int((has_label & has_score).sum())
    if n < FEWEST_LABELS:
        msg = f"{n} human labels found for {place}, expected at least {FEWEST_LABELS}"
        raise DesignError(msg)
    if not n_both:
        msg = (
            f"{n} items with {human.metric!r} and {int(has_score.sum())} with {judge.metric!r} "
            f"found for {place}, none of them the same: labels must be of items the judge scored"
        )
        raise DesignError(msg)
    if n_both < n:
        without: NDArray[Any] = joined.item_ids[has_label & ~has_score]
        msg = (
            f"{n - n_both} of {n} labelled items of {place} have no score of {judge.metric!r} "
            f"({few([str(item) for item in without.tolist()])}): score them, or leave them out"
        )
        raise DesignError(msg)
    return labels, scores
