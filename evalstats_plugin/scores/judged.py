"""Judges and human labels: scores corrected by labels, how far raters agree, what judges prefer.

`joined` brings what judges and people said of the same answers together, `corrected` estimates each
model's mean label by prediction-powered inference [ADZ23]_, `agreements` and `biases` look at the
judges. `comparisons.judged` compares models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.data.inputs import ResponsesLike, as_list
from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.data.measure import Measure, Measures, as_measures
from evalstats_plugin.data.responses import LARGEST, Responses, Selection
from evalstats_plugin.data.results import finite, grouped
from evalstats_plugin.data.runs import of_metric, one_of_each
from evalstats_plugin.errors import DesignError, SelectionError, counted, few, no_such
from evalstats_plugin.scores.cells import cluster_names, common_value, make_cell
from evalstats_plugin.scores.rows import CorrectedScore, Intervals
from evalstats_plugin.stats.arrays import BoolArray, FloatArray, IntArray
from evalstats_plugin.stats.clustered import by_cluster, clustered_regression
from evalstats_plugin.stats.interval import tail_probability
from evalstats_plugin.stats.metrics import agreement, quadratic_weights
from evalstats_plugin.stats.streams import child
from evalstats_plugin.stats.survey.prediction_powered import Powered, ppi

special: Any = import_module("scipy.special")
"""SciPy says little of the types of its functions."""

METHOD = "ppi++"

FEWEST_LABELS = 5
"""Fewest labels from which the agreement with the judge is estimated."""

MORE_LABELS = 50
"""How many further labels a note says the worth of."""

HUMAN = "human"
"""Metric of labels that come from a file, and the name of who gave any."""

MOST_CATEGORIES = 20
"""Distinct scores up to which raters are said to agree; with more they are correlated."""

N_DRAWS = 4000
"""Tables drawn for the limits of an agreement."""

BETWEEN = 1e-9
"""Rounding errors of scores, as a share of their scale."""


class Label(NamedTuple):
    """What a person said of one answer."""

    item: str
    """Id as text."""
    score: float
    model: str = ""
    """Empty where one model is judged."""
    task: str = ""
    """Empty where one task is."""
    probability: float | None = None
    """With which the answer was chosen for a label; None if all had the same."""


Labels: TypeAlias = Mapping[str, float] | Sequence[Label]
"""Human scores by item id as text, of one model's answers to one task; or labels of any."""

Values: TypeAlias = Mapping[tuple[str, str, str], float]
"""A number of each answer, by model, task and item id as text: its length."""


@dataclass(frozen=True, eq=False, kw_only=True)
class JudgedTask:
    """What J judges and people said of N models' answers to M items of one task."""

    models: tuple[str, ...]
    judges: tuple[str, ...]
    human: Measure
    """What the labels are, with the bounds that they have."""
    people: tuple[Responses, ...]
    """Of each model, the responses that its labels are, or the judge's."""
    item_ids: NDArray[np.str_]
    labels: FloatArray
    """Shape (N, M): NaN where there is none."""
    scores: FloatArray
    """Shape (J, N, M): what judges said; NaN where they said nothing."""
    bounds: tuple[tuple[float, float] | None, ...]
    """Of each judge."""
    clusters: IntArray | None
    """Shape (M,), by number."""
    probabilities: FloatArray | None
    """Shape (N, M): with which answers were chosen for a label; None if all had the same."""
    notes: tuple[tuple[str, ...], ...] = ()
    """Of each model."""

    @property
    def task(self) -> str:
        """Name of the task."""
        return self.human.task

    @property
    def judged(self) -> FloatArray:
        """Mean of the judges, shape (N, M); each in units of its spread where scales differ."""
        scores = self.scores
        if len(scores) > 1 and len(set(self.bounds)) > 1:
            spread = np.array([np.nanstd(each) or 1.0 for each in scores])
            scores = scores / spread[:, None, None]
        return scores.mean(axis=0)

    @property
    def judge(self) -> str:
        """Name of the judges together."""
        n = len(self.judges)
        return self.judges[0] if n == 1 else f"the mean of {n} judges"

    def of(self, values: Values) -> FloatArray:
        """Numbers of the answers, shape (N, M); NaN where there is none."""
        scores = [
            [values.get((model, self.task, item), np.nan) for item in self.item_ids.tolist()]
            for model in self.models
        ]
        return np.array(scores, dtype=np.float64).reshape(len(self.models), len(self.item_ids))


def joined(
    responses: ResponsesLike,
    *,
    judges: Sequence[str],
    human: str | None = None,
    labels: Labels | None = None,
    measure: Measures = None,
    unlabelled: bool = False,
) -> tuple[list[JudgedTask], tuple[str, ...]]:
    """Bring labels and judges' scores of the same answers together, a record for each task.

    Parameters are those of `evalstats_plugin.judge`, which says what it raises; `unlabelled` also
    takes models of few labels, or none.
    """
    if (human is None) == (labels is None) and not (unlabelled and labels is None):
        msg = "human labels come from a metric or from a file: pass one of human and labels"
        raise SelectionError(msg)
    by_user = as_measures(measure)
    of_labels = [own for own in by_user if labels is not None and own.metric == HUMAN]
    everything, notes = as_list(responses, [own for own in by_user if own not in of_labels])
    latest = one_of_each([r for r in everything if len(r.item_ids) and r.aggregation == "mean"])
    of_judges = [_of_metric(latest, name) for name in judges]
    judged = [place for place in of_judges[0] if all(place in own for own in of_judges)]
    if not judged:
        raise DesignError("the judges scored no model on the same task: give their scores of both")
    names = tuple(of_judges[k][judged[0]].metric for k in range(len(judges)))
    if len(set(names)) < len(names):
        raise SelectionError(f"judge {names[0]!r} is named twice: name each judge once")
    chances: dict[tuple[str, str], Mapping[str, float]] = {}
    if human is not None:
        labelled = _of_metric(latest, human)
    elif labels is None:
        labelled = {}
    else:
        labelled, chances = _of_file(of_judges[0], labels, of_labels)
    for place in judged if unlabelled else ():
        if place not in labelled:
            r = of_judges[0][place]
            labelled[place] = replace(
                r, measure=Measure(task=r.task, metric=HUMAN),
                scores=np.full((len(r.item_ids), 1), np.nan), weights=None, groups=(), logged=None,
                logged_std_error=None, logged_n=None, notes=(),
            )  # fmt: skip
    places = [place for place in judged if place in labelled]
    if not places:
        (model, task), other = next(iter(labelled)), judged[0]
        raise DesignError(
            f"human labels are of {model!r} on {task!r}, and the judge's scores of {other[0]!r} on "
            f"{other[1]!r}; give both for the same model and task"
        )
    without = dict.fromkeys(model for model, task in judged if (model, task) not in labelled)
    if without:
        notes = (*notes, f"without human labels, left out: {few(list(without))}")
    made = [
        _joined_task(each, labelled, of_judges, chances, least=0 if unlabelled else FEWEST_LABELS)
        for each in grouped(places, lambda place: place[1]).values()
    ]
    return made, notes


def _of_metric(responses: Sequence[Responses], name: str) -> dict[tuple[str, str], Responses]:
    """Return the responses to a metric, by model and task."""
    by_place: dict[tuple[str, str], Responses] = {}
    for r in of_metric(responses, name):
        if (r.model, r.task) in by_place:
            both = f"{by_place[r.model, r.task].metric!r} and {r.metric!r}"
            raise SelectionError(
                f"metric {name!r} is there twice for {r.model!r} on {r.task!r} ({both}); choose one"
            )
        by_place[r.model, r.task] = r
    return by_place


def _of_file(
    judged: Mapping[tuple[str, str], Responses], labels: Labels, by_user: Sequence[Measure]
) -> tuple[dict[tuple[str, str], Responses], dict[tuple[str, str], Mapping[str, float]]]:
    """Labels of a file as responses, by model and task; and with which chance each was drawn."""
    listed = [Label(i, x) for i, x in labels.items()] if isinstance(labels, Mapping) else labels
    models, tasks = (list(dict.fromkeys(place[k] for place in judged)) for k in (0, 1))
    of_places: dict[tuple[str, str], dict[str, Label]] = {}
    for label in listed:
        place: list[str] = []
        for what, name, names in (("model", label.model, models), ("task", label.task, tasks)):
            if not name and len(names) > 1:
                msg = f"labels are of one {what}'s answers, but the judge scored {few(names)}: "
                raise DesignError(f"{msg}say in a column {what!r} which one each label is of")
            if name and name not in names:
                raise SelectionError(no_such(f"{what} that the judge scored", name, names))
            place.append(name or names[0])
        own = of_places.setdefault((place[0], place[1]), {})
        if label.item in own:
            raise DesignError(f"item {label.item!r} of {place[0]!r} has a second label: keep one")
        own[label.item] = label
    if not of_places:
        raise DesignError("there is no human label: give some items a score")
    missing = [place for place in of_places if place not in judged]
    if missing:
        model, task = missing[0]
        raise DesignError(
            f"there are labels of {model!r} on {task!r}, which the judge did not score"
        )
    made = [
        replace(
            judged[place], measure=Measure(task=place[1], metric=HUMAN),
            item_ids=np.array(list(own), dtype=np.str_),
            scores=np.array([[label.score] for label in own.values()]), weights=None,
            clusters=None, chance=None, item_hashes=None, tags=None, groups=(), logged=None,
            logged_std_error=None, logged_n=None, notes=(),
        )
        for place, own in of_places.items()
    ]  # fmt: skip
    settled, _ = as_list(made, by_user)
    chances = {
        place: {label.item: label.probability for label in own.values() if label.probability}
        for place, own in of_places.items()
    }
    return dict(zip(of_places, settled, strict=True)), {k: v for k, v in chances.items() if v}


def _joined_task(
    places: Sequence[tuple[str, str]],
    labelled: Mapping[tuple[str, str], Responses],
    of_judges: Sequence[Mapping[tuple[str, str], Responses]],
    chances: Mapping[tuple[str, str], Mapping[str, float]],
    *,
    least: int,
) -> JudgedTask:
    people = [labelled[place] for place in places]
    judges = [[own[place] for place in places] for own in of_judges]
    same = Measure(task=places[0][1], metric="")
    every = [people, *judges]
    on_task = [
        replace(r, scores=r.item_means[:, None], model=f"{k} {i}", measure=same, weights=None)
        for k, some in enumerate(every)
        for i, r in enumerate(some)
    ]
    matrix = ResponseMatrix.join(on_task)
    n = len(places)
    stacked = matrix.scores[:, :, 0].reshape(len(every), n, -1)
    if n_infinite := int(np.isinf(stacked).sum()):
        msg = f"{places[0][1]!r} has {counted(n_infinite, 'score')} infinite or beyond ±{LARGEST:g}"
        raise DesignError(f"{msg}: leave these items out")
    labels, scores = stacked[0], stacked[1:]
    item_ids = matrix.item_ids.astype(np.str_)
    notes: list[tuple[str, ...]] = []
    cells = [make_cell(r) for r in people]
    for i, (cell, r) in enumerate(zip(cells, people, strict=True)):
        of_judge = [own[i] for own in judges]
        _check_labels(labels[i], scores[:, i], item_ids, r, of_judge, least)
        if beyond := [note for note in cell.notes if note.startswith("no interval: ")]:
            raise DesignError(f"labels of {r.model!r} on {r.task!r}: {beyond[0][13:]}")
        # Items without a label are expected here: no note on them.
        notes.append(tuple(note for note in cell.notes if "have no score" not in note))
    bounds = {cell.bounds for cell in cells}
    own = people[0].measure
    human = own.or_on(next(iter(bounds))) if len(bounds) == 1 else replace(own, scale=None)
    names = None if matrix.clusters is None else cluster_names(matrix.clusters)
    return JudgedTask(
        models=tuple(r.model for r in people),
        judges=tuple(own[0].metric for own in judges),
        human=human,
        people=tuple(people),
        item_ids=item_ids,
        labels=labels,
        scores=scores,
        bounds=tuple(common_value(make_cell(r).bounds for r in own) for own in judges),
        clusters=None if names is None else np.unique(names, return_inverse=True)[1],
        probabilities=_chances(places, chances, item_ids, labels),
        notes=tuple(notes),
    )


def _chances(
    places: Sequence[tuple[str, str]],
    chances: Mapping[tuple[str, str], Mapping[str, float]],
    item_ids: NDArray[np.str_],
    labels: FloatArray,
) -> FloatArray | None:
    """With which probability each label was asked for, shape (N, M)."""
    if not any(place in chances for place in places):
        return None
    at_random = np.ones(labels.shape)
    for i, place in enumerate(places):
        own = chances.get(place, {})
        labelled = ~np.isnan(labels[i])
        given = np.array([own.get(item, np.nan) for item in item_ids.tolist()])
        if np.isnan(given[labelled]).any() and own:
            n = int(np.isnan(given[labelled]).sum())
            msg = f"{counted(n, 'label')} of {place[0]!r} on {place[1]!r} have no probability and "
            raise DesignError(f"{msg}others do: give each the one with which it was chosen")
        if own and ((given[labelled] <= 0) | (given[labelled] > 1)).any():
            raise DesignError(f"a probability of {place[0]!r} on {place[1]!r} is not in (0, 1]")
        at_random[i] = np.where(np.isnan(given), 1.0, given)
    return at_random


def _check_labels(
    labels: FloatArray,
    scores: FloatArray,
    item_ids: NDArray[np.str_],
    human: Responses,
    judges: Sequence[Responses],
    least: int,
) -> None:
    """Raise `DesignError` for too few labels, and for labels that a judge did not score."""
    has_label = ~np.isnan(labels)
    n = int(has_label.sum())
    place = f"{human.model!r} on {human.task!r}"
    if n < least:
        raise DesignError(f"{place} has {counted(n, 'human label')}; label at least {least} items")
    if not n:
        return
    for score, judge in zip(scores, judges, strict=True):
        has_score = ~np.isnan(score)
        n_both = int((has_label & has_score).sum())
        if not n_both:
            raise DesignError(
                f"{place} has {n} items with {human.metric!r} and {int(has_score.sum())} with "
                f"{judge.metric!r}, none of them the same; label items that the judge scored"
            )
        if n_both < n:
            without: list[str] = item_ids[has_label & ~has_score].tolist()
            raise DesignError(
                f"{n - n_both} of {n} labelled items of {place} have no score of {judge.metric!r} "
                f"({few(without)}): score them, or leave them out"
            )


def corrected(
    judged: JudgedTask, *, confidence_level: float, these_items: bool
) -> list[CorrectedScore]:
    """Return the mean label that each model would have, with the judge's own mean beside it."""
    fit = ppi(
        judged.labels,
        judged.judged,
        bounds=judged.human.bounds,
        confidence_level=confidence_level,
        clusters=judged.clusters,
        probabilities=judged.probabilities,
        finite=these_items,
    )
    rows: list[CorrectedScore] = []
    own_mean = np.nanmean(judged.judged, axis=1)
    # Only then their means can be compared.
    same_scale = all(bounds == judged.human.bounds for bounds in judged.bounds)
    for i, human in enumerate(judged.people):
        n, total = int(fit.n[i]), int(fit.population[i])
        n_clusters, notes = None, judged.notes[i]
        if judged.clusters is not None:
            seen = (~np.isnan(judged.labels[i])).astype(np.float64)
            n_clusters = int((by_cluster(seen, judged.clusters) > 0).sum())
        if n == total:
            alone = f"all {n} items that {judged.judge} scored have a human label: it adds nothing"
            notes = (*notes, alone)
        n_more, half = _with_more(fit, i, these_items=these_items)
        rows.append(
            CorrectedScore(
                model=human.model,
                task=human.task,
                metric=human.metric,
                n_items=n,
                n_epochs=max(human.scores.shape[1], 1),
                n_clusters=n_clusters,
                estimate=finite(float(fit.estimate[i])),
                low=finite(float(fit.interval.low[i])),
                high=finite(float(fit.interval.high[i])),
                std_error=finite(float(fit.std_error[i])) or None,
                method=METHOD,
                confidence_level=confidence_level,
                notes=notes,
                higher_is_better=human.higher_is_better,
                log=str(human.source.path),
                population=f"these {total} items" if these_items else "new items like these",
                measure=judged.human,
                judge=judged.judge,
                n_judged=total,
                judged=finite(float(own_mean[i])) if same_scale else None,
                weight=finite(float(fit.power[i])),
                worth=None if n == total else finite(float(fit.gain[i])),
                n_more=n_more,
                half_width_more=finite(half),
            )
        )
    return rows


def _with_more(fit: Powered, i: int, *, these_items: bool) -> tuple[int, float]:
    """How many more labels there may be, and about what half the width would be with them."""
    n, total = float(fit.n[i]), float(fit.population[i])
    more = min(MORE_LABELS, int(total - n))
    half = float(fit.interval.high[i] - fit.interval.low[i]) / 2
    share, left = float(fit.of_label[i]), n / (n + more)
    if these_items and more:
        left *= (1 - (n + more) / total) / (1 - n / total)
    return more, half * float(np.sqrt(share * left + 1 - share)) if more else half


def in_words(row: CorrectedScore) -> str:
    """Return what a judge said of a model and what people would, such as for a note."""
    judged = "" if row.judged is None else f"judged {row.judged:.3f}, "
    limits = "" if row.low is None or row.high is None else f" [{row.low:.3f}, {row.high:.3f}]"
    score = "–" if row.estimate is None else f"{row.estimate:.3f}"
    labels = counted(row.n_items, "human label")
    return f"{judged}corrected {score}{limits} by {labels} ({row.method})"


def noted(
    rows: Intervals, judges: Sequence[str], corrections: Sequence[CorrectedScore]
) -> Intervals:
    """Return rows with a note on those of judges: what their scores are as labels correct them."""
    wanted = Selection(metrics=tuple(judges))
    sentences = {(row.model, row.task): in_words(row) for row in corrections}
    return replace(
        rows,
        rows=tuple(
            replace(row, notes=(*row.notes, sentences[row.model, row.task]))
            if (row.model, row.task) in sentences and wanted.wants_metric(row.metric)
            else row
            for row in rows
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeAgreement:
    """How far two raters of the same answers agree; the first is a person, or another judge."""

    task: str
    rater_a: str
    rater_b: str
    n_answers: int
    n_categories: int | None
    """Distinct scores; None where there are too many, or the two are on different scales."""
    weighted: bool = False
    """Whether near scores of an ordinal scale agree in part (quadratic weights)."""
    agreement: float | None = None
    agreement_low: float | None = None
    agreement_high: float | None = None
    kappa: float | None = None
    """Cohen's."""
    kappa_low: float | None = None
    kappa_high: float | None = None
    ac1: float | None = None
    """Gwet's AC1, or AC2 with weights: it does not fall where one score is frequent."""
    ac1_low: float | None = None
    ac1_high: float | None = None
    correlation: float | None = None
    confidence_level: float = 0.95


def agreements(
    judged: JudgedTask, *, confidence_level: float, rng: np.random.Generator
) -> list[JudgeAgreement]:
    """Return how far each two of people and judges agree, over all models' answers.

    Limits are quantiles of the Bayesian bootstrap over items, or clusters, with half an answer of
    weight on agreement and half on disagreement: twenty that agree are no proof of perfect
    agreement. Scores of more than two values count near ones as agreeing in part.
    """
    raters = [
        (HUMAN, judged.labels, judged.human.bounds),
        *zip(judged.judges, judged.scores, judged.bounds, strict=True),
    ]
    rows: list[JudgeAgreement] = []
    for j, (second, of_b, span_b) in enumerate(raters):
        for first, of_a, span_a in raters[:j]:
            seen = ~np.isnan(of_a) & ~np.isnan(of_b)
            # Judges are compared where people look, too: on all answers that both scored.
            a, b = of_a[seen], of_b[seen]
            units = np.broadcast_to(_units(judged), seen.shape)[seen]
            row = JudgeAgreement(
                task=judged.task, rater_a=first, rater_b=second, n_answers=len(a),
                n_categories=None, correlation=_correlation(a, b),
                confidence_level=confidence_level,
            )  # fmt: skip
            categories = np.unique(np.concatenate([a, b]))
            if span_a == span_b and 2 <= len(categories) <= MOST_CATEGORIES:
                draws = child(rng, f"{judged.task} {first} {second}")
                row = _agreement(row, a, b, units, categories, draws)
            rows.append(row)
    return rows


def _units(judged: JudgedTask) -> IntArray:
    """Item or cluster of each answer, shape (M,)."""
    return np.arange(len(judged.item_ids)) if judged.clusters is None else judged.clusters


def _correlation(a: FloatArray, b: FloatArray) -> float | None:
    if a.std() < BETWEEN or b.std() < BETWEEN:
        return None
    return finite(float(np.corrcoef(a, b)[0, 1]))


def _agreement(
    row: JudgeAgreement,
    a: FloatArray,
    b: FloatArray,
    units: IntArray,
    categories: FloatArray,
    rng: np.random.Generator,
) -> JudgeAgreement:
    q = len(categories)
    weights = quadratic_weights(categories) if q > 2 else np.eye(q)
    cell = np.searchsorted(categories, a) * q + np.searchsorted(categories, b)
    _, which = np.unique(units, return_inverse=True)
    counts = np.zeros((int(which.max()) + 1, q * q))
    np.add.at(counts, (which, cell), 1.0)
    same = np.eye(q).ravel()
    prior = 0.5 * (same / q + (1 - same) / (q * q - q))
    drawn = np.concatenate(
        [
            rng.standard_exponential((min(500, N_DRAWS - k), len(counts))) @ counts
            for k in range(0, N_DRAWS, 500)
        ]
    )
    drawn = drawn + rng.standard_gamma(prior, (N_DRAWS, q * q))
    shown = agreement(counts.sum(axis=0).reshape(q, q), weights)
    limits = agreement(drawn.reshape(-1, q, q), weights)
    tail = tail_probability(row.confidence_level)
    values: dict[str, Any] = {"n_categories": q, "weighted": q > 2}
    for name, estimate, draws in zip(("agreement", "kappa", "ac1"), shown, limits, strict=True):
        low, high = np.nanquantile(draws, [tail, 1 - tail])
        values |= {
            name: finite(float(estimate)),
            f"{name}_low": finite(float(np.fmin(low, estimate))),
            f"{name}_high": finite(float(np.fmax(high, estimate))),
        }
    return replace(row, **values)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeBias:
    """What a judge prefers among answers to which people gave the same score."""

    task: str
    judge: str
    feature: str
    """``"score"``: how its error changes with the human score; a model's name: how far it favours
    that model; or a number of the answer, such as ``"length"``."""
    n_labels: int
    size: float | None
    """Of the judge's score, beyond what the other features explain: with one standard deviation
    more of the feature; for a model, beyond the average model."""
    low: float | None
    high: float | None
    """Limits that hold for all features of this judge at once."""
    p_adjusted: float | None
    in_sd: float | None
    """`size` in standard deviations of the judge's scores."""
    in_reverse: float | None = None
    """How much less people give such answers than others to which the judge gave the same score,
    in points of their scores: above 0 where it supports the preference. None of ``"score"``."""
    confidence_level: float = 0.95

    @property
    def verdict(self) -> Literal["biased", "unsure", "none found"]:
        """Whether a preference is beyond chance, and no sign of quality that labels do not show.

        Coarse labels do not show all of the quality. Where longer answers are better, a fair judge
        seems to prefer length among answers of one label; but then people, too, prefer it among
        answers of one score of the judge. ``"biased"`` is what holds either way [CR83]_.
        """
        if self.p_adjusted is None or self.p_adjusted > 1 - self.confidence_level:
            return "none found"
        supported = self.in_reverse is None or self.in_reverse * (self.size or 0) > 0
        return "biased" if supported else "unsure"


def biases(
    judged: JudgedTask, features: Mapping[str, FloatArray], *, confidence_level: float
) -> list[JudgeBias]:
    """Return what each judge prefers, by a regression of its scores on people's and on features.

    Each size is corrected for the other features and for the human score; errors are clustered by
    item, and limits hold for all features of a judge at once (Šidák).

    Parameters
    ----------
    features
        Of the answers, each of shape (N, M), by name.
    """
    return [
        bias
        for k in range(len(judged.judges))
        for bias in _biases_of(judged, k, features, confidence_level)
    ]


def _biases_of(
    judged: JudgedTask, k: int, features: Mapping[str, FloatArray], confidence_level: float
) -> list[JudgeBias]:
    score, labels = judged.scores[k], judged.labels
    seen: BoolArray = ~np.isnan(score) & ~np.isnan(labels)
    for values in features.values():
        seen = seen & ~np.isnan(values)
    n = int(seen.sum())
    if n < FEWEST_LABELS:
        return []
    rows, items = np.nonzero(seen)
    y, x = score[seen], labels[seen]
    said = y - y.mean()
    names: list[str] = []
    columns = [np.ones(n)]
    tested: list[FloatArray] = []
    for name, values in features.items():
        z = values[seen]
        if z.std() > BETWEEN:
            names.append(name)
            tested.append((z - z.mean()) / z.std())
    own_scale = judged.bounds[k] == judged.human.bounds
    spread = float(x.std())
    if spread > BETWEEN:
        label = (x - x.mean()) / spread
        if own_scale:
            # Of the judge's error: how it changes with the human score.
            y = y - x
            names.append("score")
            tested.append(label)
        else:
            columns.append(label)
    present: list[int] = np.unique(rows).tolist()
    for model in present if len(present) > 1 else ():
        names.append(judged.models[model])
        tested.append(np.where(rows == model, 1.0, -1 / (len(present) - 1)))
    k_all = len(columns) + len(tested)
    units = _units(judged)[items]
    if not tested or len(np.unique(units)) < k_all + 3:
        return []
    # Models are told from their average: their columns add up to 0, and the fit is the shortest,
    # of centred scores: it does not depend on where their scale begins.
    fit = clustered_regression(y - y.mean(), np.stack([*columns, *tested], axis=1), units)
    if fit.residual_std <= BETWEEN * max(float(score[seen].std()), BETWEEN):
        return []
    other = [v for v, name in zip(tested, names, strict=True) if name != "score"]
    of_labels = np.stack([np.ones(n), said, *other], axis=1)
    reverse = clustered_regression(x - x.mean(), of_labels, units)
    of_people = iter((-reverse.coefficients[2:]).tolist())
    each = 1 - confidence_level ** (1 / len(tested))
    quantile = -float(special.stdtrit(fit.df, each / 2))
    sd = float(score[seen].std())
    biases: list[JudgeBias] = []
    first = len(names) - (len(present) if len(present) > 1 else 0)
    sizes, errors = fit.coefficients[len(columns) :], fit.std_errors[len(columns) :]
    for i, name in enumerate(names):
        # Of a model: against the average of the others, then of all.
        scale = len(present) / (len(present) - 1) if i >= first else 1.0
        size, error = scale * float(sizes[i]), scale * float(errors[i])
        p = 2 * float(special.stdtr(fit.df, -abs(size) / error)) if error > 0 else np.nan
        biases.append(
            JudgeBias(
                task=judged.task,
                judge=judged.judges[k],
                feature=name,
                n_labels=n,
                size=finite(size),
                low=finite(size - quantile * error),
                high=finite(size + quantile * error),
                p_adjusted=finite(-np.expm1(special.xlog1py(len(tested), -p))),
                in_sd=finite(size / sd) if sd > 0 else None,
                in_reverse=None if name == "score" else finite(scale * next(of_people)),
                confidence_level=confidence_level,
            )
        )
    return biases
