"""Judges with error bars: corrected scores, differences of models, and what to label next.

`judge` corrects scores and compares models, through the engine of all paired comparisons: a model's
labels, corrected by what the judge says of all answers (`cross_fitted`), are scores of the labelled
items like any others. `next_labels` draws answers for people to look at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from evalstats_plugin.comparisons.design import (
    Pairing,
    Request,
    check_baseline,
    comparison_stream,
    pair_indices,
)
from evalstats_plugin.comparisons.families import Table, settle
from evalstats_plugin.comparisons.paired import paired_tables
from evalstats_plugin.comparisons.rows import Comparisons
from evalstats_plugin.data.inputs import ResponsesLike
from evalstats_plugin.data.measure import Measures
from evalstats_plugin.data.results import Results
from evalstats_plugin.errors import DesignError, check_known, counted
from evalstats_plugin.scores.cells import check_confidence_level
from evalstats_plugin.scores.judged import (
    METHOD,
    JudgeAgreement,
    JudgeBias,
    JudgedTask,
    Labels,
    Values,
    agreements,
    biases,
    corrected,
    joined,
)
from evalstats_plugin.scores.rows import CorrectedScore
from evalstats_plugin.stats.arrays import BoolArray, FloatArray, Rng
from evalstats_plugin.stats.pairs.differences import distance
from evalstats_plugin.stats.streams import child, stream
from evalstats_plugin.stats.survey.prediction_powered import cross_fitted

Population = Literal["new", "these"]
"""What results are for: new items like these, or the very items that the judge scored."""

MANY_LABELS = 40
"""Labels from which on they say where the judge is off."""

PARTS, SHRUNK = 4, 10.0
"""Parts of the judge's scores, and the labels' weight of all parts in what each is off by."""

DEFENSIVE = 0.5
"""Share of new labels that are drawn alike from all answers, whatever the judge says."""


@dataclass(frozen=True)
class JudgedScores(Results[CorrectedScore]):
    """Each model's corrected score, and what the same labels say of models and judges."""

    differences: Comparisons | None = None
    """Of every two models, or each and the baseline; None with one model on every task."""
    agreement: tuple[JudgeAgreement, ...] = ()
    bias: tuple[JudgeBias, ...] = ()


def judge(
    responses: ResponsesLike,
    *,
    judge: str | Sequence[str],
    human: str | None = None,
    labels: Labels | None = None,
    baseline: str | None = None,
    population: Population = "new",
    confidence_level: float = 0.95,
    features: Mapping[str, Values] | None = None,
    measure: Measures = None,
    rng: Rng = 0,
) -> JudgedScores:
    """Correct a judge's scores of models, and their differences, by few human labels (PPI++).

    Parameters
    ----------
    responses
        What `evalstats_plugin.read` gave, a matrix, or any `Responses`.
    judge, human
        Metrics of the same models and tasks, by full name or the part before the comma: one judge
        or several, whose mean is corrected. Items without a human score are unlabelled. Without
        `human`, give `labels`.
    labels
        Human scores by item id as text, of one model's answers to one task; or a list of `Label`,
        which says of each also the model, the task and the probability with which it was chosen.
    baseline
        Model with which the others are compared. Without it, every two models are.
    population
        ``"new"``: results are for new items like these. ``"these"``: for the very items that the
        judge scored, where only those without a label are uncertain.
    confidence_level
        Between 0 and 1.
    features
        Numbers of answers, such as their length, by name, then by model, task and item: whether
        a judge prefers more of them.
    measure
        What you know of the scores, as for `evalstats_plugin.intervals`. Labels of a file are the
        metric ``"human"``.
    rng
        Generator or seed, for the limits of agreements.

    Notes
    -----
    The judge may be biased, and on any scale: only its correlation with the labels counts. The
    labelled items must be a random part of those the judge scored, or chosen with probabilities
    that are given. Differences weigh the judge alike for all models, so that they are not quite
    the differences of the scores. Limits and p-values of all pairs of a task hold at once.

    Raises
    ------
    DesignError
        With fewer than five labels of a model, none that the judge has scored, or labels without a
        judge's score; for a confidence level outside (0, 1).
    SelectionError
        For a metric, model or task that is not there, with the closest names.
    """
    check_confidence_level(confidence_level)
    check_known("population", population, ("new", "these"))
    judges = [judge] if isinstance(judge, str) else list(judge)
    tasks, notes = joined(responses, judges=judges, human=human, labels=labels, measure=measure)
    check_baseline(baseline, [model for task in tasks for model in task.models])
    these = population == "these"
    draws = stream(rng, "agreement of raters")
    rows = [
        row
        for task in tasks
        for row in corrected(task, confidence_level=confidence_level, these_items=these)
    ]
    given = features or {}
    return JudgedScores(
        tuple(rows),
        notes,
        rng if isinstance(rng, int) else None,
        differences=_differences(tasks, baseline, confidence_level, these=these),
        agreement=tuple(
            row
            for task in tasks
            for row in agreements(task, confidence_level=confidence_level, rng=draws)
        ),
        bias=tuple(
            row
            for task in tasks
            for row in biases(
                task,
                {name: task.of(values) for name, values in given.items()},
                confidence_level=confidence_level,
            )
        ),
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class _Corrected(Pairing):
    """Models on the labelled items of one task, by labels that are corrected by a judge."""

    plain: FloatArray
    """Shape (N, M): the labels in place of the scores."""

    def least_far(self) -> FloatArray:
        """How far labels of the two differ, shape (P,), or may: what the judge hides is there."""
        x = self.plain[self.b] - self.plain[self.a]
        if self.clusters is not None:
            x = self.cluster_sums(x)[0]
        far = distance(x)
        span = self.span[1]
        return np.where(far > 0, far, span if np.isfinite(span) else 0.0)


def _differences(
    tasks: Sequence[JudgedTask], baseline: str | None, confidence_level: float, *, these: bool
) -> Comparisons | None:
    """Compare the models of each task; None where none has two."""
    request = Request(
        baseline=baseline,
        confidence_level=confidence_level,
        family="task",
        rng=comparison_stream(0),
        overall=False,
    )
    compared = [task for task in tasks if len(task.models) > 1 and baseline in (None, *task.models)]
    if not compared:
        return None
    pairings = [_pairing(task, baseline, these=these) for task in compared]
    tables = paired_tables(pairings, request)
    for task, pairing, table in zip(compared, pairings, tables, strict=True):
        _of_labels(task, pairing, table)
    return Comparisons(tuple(settle(tables, request)))


def _pairing(task: JudgedTask, baseline: str | None, *, these: bool) -> _Corrected:
    fitted = cross_fitted(
        task.labels, task.judged,
        clusters=task.clusters, probabilities=task.probabilities, finite=these, shared=True,
    )  # fmt: skip
    labelled = ~np.isnan(fitted.scores).all(axis=0)
    a, b = pair_indices(task.models, baseline)
    bounds = task.human.bounds
    n = int(np.nanmax(fitted.population))
    what = f"labels of {counted(int(labelled.sum()), 'item')}, corrected by {task.judge} on {n}"
    weight = f"λ = {float(fitted.slope.mean()):.2f} for all models"
    return _Corrected(
        measure=task.human,
        models=task.models,
        scores=_on_all(fitted.scores[:, labelled]),
        plain=_on_all(task.labels[:, labelled]),
        a=a,
        b=b,
        kind="real" if bounds is None else "bounded",
        bounds=bounds,
        clusters=None if task.clusters is None else task.clusters[labelled],
        notes=(f"{METHOD}: {what}, {weight}",),
    )


def _on_all(scores: FloatArray) -> FloatArray:
    """Scores of models on some of M items, on all of them: each mean and its variance stay.

    An item without a label has the model's mean, and one with a label is M/n times as far from it:
    models that were labelled on the same items, on others, or on some the same are compared alike.
    """
    seen = ~np.isnan(scores)
    n = seen.sum(axis=1, keepdims=True)
    mean = np.where(seen, scores, 0.0).sum(axis=1, keepdims=True) / n
    return mean + np.where(seen, scores - mean, 0.0) * (scores.shape[1] / n)


def _of_labels(task: JudgedTask, pairing: _Corrected, table: Table) -> None:
    """Let counts be those of the labels, and leave scores to the corrected ones."""
    x = task.labels[pairing.b] - task.labels[pairing.a]
    if pairing.higher_is_better is False:
        x = -x
    seen = ~np.isnan(x)
    either = (~np.isnan(task.labels[pairing.a]) | ~np.isnan(task.labels[pairing.b])).sum(axis=1)
    both = seen.sum(axis=1)
    notes = [
        own if n == m else (*own, f"{n} of {m} items have labels of both models")
        for own, n, m in zip(table.columns["notes"], both.tolist(), either.tolist(), strict=True)
    ]
    nothing = [None] * len(x)
    table.columns |= {
        "notes": notes,
        "n_items": either.tolist(),
        "n_wins": (x > 0).sum(axis=1).tolist(),
        "n_ties": (seen & (x == 0)).sum(axis=1).tolist(),
        "n_losses": (x < 0).sum(axis=1).tolist(),
        "score_a": nothing,
        "score_b": nothing,
        "correlation": nothing,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class NextLabel:
    """An answer for people to look at, or one that they have looked at."""

    item: str
    model: str
    task: str
    score: float | None
    """The label; None where there is none yet."""
    probability: float
    """With which the answer was chosen so far, in this draw or an earlier one: estimates weigh
    its label by 1 / probability."""


def next_labels(
    responses: ResponsesLike,
    n: int,
    *,
    judge: str | Sequence[str],
    human: str | None = None,
    labels: Labels | None = None,
    measure: Measures = None,
    rng: Rng = 0,
) -> Results[NextLabel]:
    """Draw answers for people to label, more often where the judge is unsure.

    An item is drawn with a known probability, half of it the same for all items, half in proportion
    to how far the judge may be off: by what the judge said, as labels so far show it; without
    labels, where its scores are between their bounds, or several judges differ. All models' answers
    to an item are drawn together, so that models are compared on the same items.

    Parameters
    ----------
    n
        Labels to be asked for, of all models together.
    responses, judge, human, labels, measure, rng
        As for `evalstats_plugin.judge`; labels may be missing.

    Returns
    -------
    The labels there are, then those to be asked for: complete, and given as labels to `judge`.

    Raises
    ------
    DesignError, SelectionError
        As of `evalstats_plugin.judge`; fewer labels than models, or every item has one.
    """
    judges = [judge] if isinstance(judge, str) else list(judge)
    tasks, notes = joined(
        responses, judges=judges, human=human, labels=labels, measure=measure, unlabelled=True
    )
    draws = stream(rng, "answers to be labelled")
    sizes = np.array([task.labels.size for task in tasks], dtype=np.float64)
    shares = np.floor(n * sizes / sizes.sum()).astype(int)
    shares[0] += n - shares.sum()
    rows: list[NextLabel] = []
    for task, share in zip(tasks, shares.tolist(), strict=True):
        rows += _next_of(task, share, child(draws, task.task))
    rows.sort(key=lambda row: row.score is None)
    return Results(tuple(rows), notes, rng if isinstance(rng, int) else None)


def _next_of(task: JudgedTask, n: int, rng: np.random.Generator) -> list[NextLabel]:
    n_models = len(task.models)
    n_items = n // n_models
    if n_items < 1:
        msg = f"{counted(n, 'label')} of {task.task!r} are fewer than its {n_models} models: "
        raise DesignError(f"{msg}ask for at least one of each, or for one model")
    judged: BoolArray = np.asarray(~np.isnan(task.judged).any(axis=0))
    if not judged.any():
        msg = f"the judge scored no item of {task.task!r} for each of its {n_models} models: "
        raise DesignError(f"{msg}choose models that answered the same items (--models)")
    labelled = ~np.isnan(task.labels)
    done: BoolArray = np.asarray(labelled.any(axis=0))
    free = judged & ~done
    if not free.any():
        raise DesignError(f"every item of {task.task!r} that the judge scored has a label")
    unsure = _unsure(task)
    chance = _chances_of_next(unsure, free, min(n_items, int(free.sum())))
    # Along the order of what the judge is unsure of, at equal steps of probability: strata of one.
    order = np.argsort(unsure + 1e-9 * rng.random(len(chance)), kind="stable")
    order = order[free[order]]
    ends = np.cumsum(chance[order])
    steps = rng.random() + np.arange(round(float(ends[-1])))
    drawn = np.zeros(len(chance), dtype=np.bool_)
    drawn[order[np.searchsorted(ends[:-1], steps)]] = True
    before = np.where(judged[None, :], labelled.sum(axis=1, keepdims=True) / judged.sum(), 0.0)
    if task.probabilities is not None:
        before = np.where(labelled, task.probabilities, before)
    total = 1 - (1 - before) * (1 - chance)
    rows: list[NextLabel] = []
    for j in np.flatnonzero(done | drawn).tolist():
        for i, model in enumerate(task.models):
            if labelled[i, j] or drawn[j]:
                score = float(task.labels[i, j]) if labelled[i, j] else None
                rows.append(
                    NextLabel(
                        item=str(task.item_ids[j]), model=model, task=task.task, score=score,
                        probability=float(total[i, j]),
                    )
                )  # fmt: skip
    return rows


def _unsure(task: JudgedTask) -> FloatArray:
    """How far judges may be off on each item, relative to others, shape (M,)."""
    labelled = ~np.isnan(task.labels)
    if labelled.sum() >= MANY_LABELS:
        return _off_by_score(task, labelled)
    parts = [np.zeros(task.labels.shape)]
    if len(task.judges) > 1:
        parts.append(np.nan_to_num(task.scores.std(axis=0)))
    for score, bounds in zip(task.scores, task.bounds, strict=True):
        if bounds is not None:
            inside = np.clip((score - bounds[0]) * (bounds[1] - score), 0.0, None)
            parts.append(np.nan_to_num(np.sqrt(inside)))
    return np.sqrt(sum((part**2).sum(axis=0) for part in parts))


def _off_by_score(task: JudgedTask, labelled: BoolArray) -> FloatArray:
    """The same from labels: root mean square of what the judge misses, by parts of its scores."""
    fitted = cross_fitted(task.labels, task.judged, finite=False, shared=True)
    slope = float(fitted.slope.mean())
    rest = task.labels - slope * task.judged
    rest = rest - np.nanmean(np.where(labelled, rest, np.nan))
    cuts = np.unique(np.quantile(task.judged[labelled], np.arange(1, PARTS) / PARTS))
    part = np.searchsorted(cuts, np.nan_to_num(task.judged))
    overall = float(np.nanmean(rest[labelled] ** 2))
    squares = np.array(
        [
            (np.nansum(rest[labelled & (part == k)] ** 2) + SHRUNK * overall)
            / ((labelled & (part == k)).sum() + SHRUNK)
            for k in range(len(cuts) + 1)
        ]
    )
    return np.sqrt(squares[part].mean(axis=0))


def _chances_of_next(unsure: FloatArray, free: BoolArray, n: int) -> FloatArray:
    """Probability of each item, shape (M,): n in all over the free ones, none above 1."""
    total = unsure[free].sum()
    alike = np.full(len(unsure), 1 / free.sum())
    share = DEFENSIVE * alike + (1 - DEFENSIVE) * (unsure / total if total > 0 else alike)
    certain = np.zeros(len(unsure), dtype=np.bool_)
    while True:
        rest = free & ~certain
        scale = (n - (certain & free).sum()) / max(float(share[rest].sum()), 1e-300)
        chance = np.where(certain, 1.0, np.minimum(scale * share, 1.0))
        beyond = rest & (scale * share > 1)
        if not beyond.any():
            return chance
        certain |= beyond
