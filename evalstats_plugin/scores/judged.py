"""Prediction-powered inference: few human labels sharpened by many scores of a judge [ADZ23]_."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.data.inputs import ResponsesLike, as_list
from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.data.measure import Measure, Measures, as_measures, given
from evalstats_plugin.data.responses import LARGEST, Responses, Selection
from evalstats_plugin.data.results import finite
from evalstats_plugin.data.runs import one_of_each
from evalstats_plugin.errors import DesignError, SelectionError, counted, few, no_such
from evalstats_plugin.scores.cells import (
    check_confidence_level,
    make_cell,
)
from evalstats_plugin.scores.rows import Intervals, ScoreInterval
from evalstats_plugin.stats.arrays import FloatArray
from evalstats_plugin.stats.survey import Powered, ppi

METHOD = "ppi++"

FEWEST_LABELS = 5
"""Fewest labels from which the agreement with the judge is estimated."""

HUMAN = "human"
"""Metric of labels that come from a file."""

Labels = Mapping[str, float]
"""Human scores by the item's id as text."""


def prediction_powered(
    responses: ResponsesLike,
    *,
    human: str | None = None,
    judge: str,
    labels: Labels | None = None,
    confidence_level: float = 0.95,
    measure: Measures = None,
) -> Intervals:
    """Estimate each model's mean human label with the help of a judge's scores (PPI++).

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
    measure
        What you know of the scores, as for `evalstats_plugin.intervals`; only that of the human
        scores matters. Labels of a file are the metric ``"human"``.

    Notes
    -----
    The judge may be biased, and on any scale: only its correlation with the labels counts. The
    labelled items must be a random part of those the judge scored.

    Raises
    ------
    DesignError
        With fewer than five labels, none that the judge has scored, or labels without a judge's
        score; for a confidence level outside (0, 1).
    SelectionError
        For a metric that is not there, with the closest names.
    """
    check_confidence_level(confidence_level)
    if (human is None) == (labels is None):
        msg = "human labels come from a metric or from a file: pass one of human and labels"
        raise SelectionError(msg)
    by_user = as_measures(measure)
    of_labels = [own for own in by_user if labels and own.metric == HUMAN]
    everything, notes = as_list(responses, [own for own in by_user if own not in of_labels])
    found = one_of_each([r for r in everything if len(r.item_ids) and r.aggregation == "mean"])
    judged = _of_metric(found, judge)
    labelled = _of_metric(found, human) if human else _labelled(judged, labels or {}, of_labels)
    pairs = [(labelled[place], judged[place]) for place in labelled if place in judged]
    if not pairs:
        (model, task), other = next(iter(labelled)), next(iter(judged))
        raise DesignError(
            f"human labels are of {model!r} on {task!r}, and the judge's scores of {other[0]!r} on "
            f"{other[1]!r}; give both for the same model and task"
        )
    rows = [_row(one, other, confidence_level) for one, other in pairs]
    return Intervals(tuple(rows), notes)


def _of_metric(responses: Sequence[Responses], name: str) -> dict[tuple[str, str], Responses]:
    """Return the responses to a metric, by model and task."""
    wanted = Selection(metrics=(name,))
    found: dict[tuple[str, str], Responses] = {}
    for r in responses:
        if not wanted.wants_metric(r.metric):
            continue
        if (r.model, r.task) in found:
            both = f"{found[r.model, r.task].metric!r} and {r.metric!r}"
            raise SelectionError(
                f"metric {name!r} is there twice for {r.model!r} on {r.task!r} ({both}); choose one"
            )
        found[r.model, r.task] = r
    if not found:
        known = list(dict.fromkeys(r.metric for r in responses))
        raise SelectionError(no_such("metric with item scores", name, known, few(known)))
    return found


def _labelled(
    judged: Mapping[tuple[str, str], Responses], labels: Labels, by_user: Sequence[Measure]
) -> dict[tuple[str, str], Responses]:
    """Labels of a file, as responses of the one model and task that the judge has scored."""
    if len(judged) > 1:
        places = few([f"{model!r} on {task!r}" for model, task in judged])
        msg = f"labels are of one model's answers to one task, but the judge scored {places}"
        raise DesignError(msg)
    ((place, r),) = judged.items()
    scores = np.array(list(labels.values()), dtype=np.float64)[:, None]
    ids = np.array(list(labels), dtype=np.str_)
    # All else belongs to the judge's metric and items.
    human = replace(
        r, measure=given(Measure(task=r.task, metric=HUMAN), by_user),
        item_ids=ids, scores=scores, weights=None,
        clusters=None, chance=None, item_hashes=None, groups=(), logged=None,
        logged_std_error=None, logged_n=None, notes=(),
    )  # fmt: skip
    return {place: human}


def _row(human: Responses, judge: Responses, confidence_level: float) -> ScoreInterval:
    labels, scores = _aligned(human, judge)
    cell = make_cell(human)
    found = ppi(labels, scores, bounds=cell.bounds, confidence_level=confidence_level)
    # Items without a label are expected here: no note on them.
    own = [note for note in cell.notes if "have no score" not in note]
    clustered = human.clusters is not None or judge.clusters is not None
    notes = (f"{METHOD} treats clustered items as independent",) if clustered else ()
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
        notes=(*own, *notes, _on_judge(found, judge.metric)),
        higher_is_better=human.higher_is_better,
        logged=finite(human.logged),
        logged_std_error=finite(human.logged_std_error),
        log=str(human.source.path),
    )


def _aligned(human: Responses, judge: Responses) -> tuple[FloatArray, FloatArray]:
    """Labels and judge scores of the same items, each of shape (M,); NaN where there is none."""
    same = Measure(task="", metric="")
    both = [replace(r, scores=r.item_means[:, None], model=str(i), measure=same, weights=None)
            for i, r in enumerate((human, judge))]  # fmt: skip
    joined = ResponseMatrix.join(both)
    labels, scores = joined.scores[:, :, 0]
    has_label, has_score = ~np.isnan(labels), ~np.isnan(scores)
    place = f"{human.model!r} on {human.task!r}"
    if n_infinite := int(np.isinf(joined.scores).sum()):
        msg = f"{place} has {counted(n_infinite, 'score')} infinite or beyond ±{LARGEST:g}: leave "
        raise DesignError(f"{msg}these items out")
    n, n_both = int(has_label.sum()), int((has_label & has_score).sum())
    if n < FEWEST_LABELS:
        msg = f"{place} has {counted(n, 'human label')}; label at least {FEWEST_LABELS} items"
        raise DesignError(msg)
    if not n_both:
        raise DesignError(
            f"{place} has {n} items with {human.metric!r} and {int(has_score.sum())} with "
            f"{judge.metric!r}, none of them the same; label items that the judge scored"
        )
    if n_both < n:
        without: NDArray[Any] = joined.item_ids[has_label & ~has_score]
        raise DesignError(
            f"{n - n_both} of {n} labelled items of {place} have no score of {judge.metric!r} "
            f"({few([str(item) for item in without.tolist()])}): score them, or leave them out"
        )
    return labels, scores


def _on_judge(found: Powered, judge: str) -> str:
    n, total, gain = int(found.n), int(found.population), float(found.gain)
    if n == total:
        return f"all {n} items that {judge} scored have a human label: it adds nothing"
    worth = f"worth ×{gain:.2f} as many labels" if np.isfinite(gain) else "of unknown worth"
    return (
        f"{n} human labels, a random part of {total} items scored by {judge}, whose weight is "
        f"λ = {float(found.power):.2f}: {worth}"
    )
