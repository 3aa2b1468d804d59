"""Data of hierarchical models: counts of right answers by task and question, and covariates."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np

from evalstats_plugin.data.inputs import ResponsesLike, as_responses, in_memory
from evalstats_plugin.data.matrix import ResponseMatrix, check_unit_range, submatrix
from evalstats_plugin.data.responses import mean_over_epochs
from evalstats_plugin.data.runs import ResponseSet
from evalstats_plugin.data.store import ResponseStore
from evalstats_plugin.errors import DesignError, SelectionError, counted, few
from evalstats_plugin.irt.answers import metrics_of_tasks, short_metric, some_usable, usable_items
from evalstats_plugin.scores.slices import as_tasks
from evalstats_plugin.stats.arrays import FloatArray, IntArray

_WORTH = 0.25
"""Questions with right and wrong answers that the dispersion of scores is estimated with."""

Covariates = Mapping[str, Mapping[str, Mapping[str, float]]]
"""For ``"models"`` and ``"tasks"``, by covariate: the value of each model, or of each task."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Standardised:
    """Covariates with mean 0 and standard deviation 1 over models or tasks."""

    names: tuple[str, ...]
    values: FloatArray
    """Shape (models or tasks, covariates)."""
    sd: FloatArray
    """By which values were divided, shape (covariates,)."""


class Counts(NamedTuple):
    """Counts of N models in M columns (tasks or questions), with standardised covariates."""

    right: FloatArray
    trials: FloatArray
    task: IntArray
    models: FloatArray
    tasks: FloatArray


@dataclass(frozen=True, eq=False, kw_only=True)
class EvalCounts:
    """Counts of right answers of N models on T tasks, and on their M questions."""

    models: tuple[str, ...]
    tasks: tuple[str, ...]
    metric: str
    right: FloatArray
    """Shape (N, T): sums over questions of the mean over epochs."""
    trials: FloatArray
    """Shape (N, T): questions with a score."""
    question_right: FloatArray
    """Shape (N, M): sums over epochs."""
    question_trials: FloatArray
    """Shape (N, M): epochs with a score."""
    task: IntArray
    """Shape (M,): the task of each question."""
    dispersion: FloatArray
    """Shape (T,): variance of a question's score (of its mean over epochs), as a share of that of
    right and wrong answers of the same mean; 1 for these."""
    notes: tuple[str, ...]

    @property
    def informative(self) -> tuple[FloatArray, FloatArray]:
        """Right answers and trials (N, T) that tell as much as the scores do.

        Their likelihood is that of a binomial distribution of this dispersion [Wed74]_.
        """
        return self.right / self.dispersion, self.trials / self.dispersion

    @property
    def by_epoch(self) -> tuple[FloatArray, FloatArray]:
        """Right answers and trials (N, T), every epoch counted."""
        member = 1.0 * (self.task[:, None] == np.arange(len(self.tasks)))
        return self.question_right @ member, self.question_trials @ member

    @property
    def scores(self) -> FloatArray:
        """Observed mean scores (N, T); NaN where a task was not run."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return self.right / self.trials

    def columns(self, covariates: Mapping[str, Standardised], *, by_question: bool) -> Counts:
        """Return counts by task or by question, and covariates, as engines need them."""
        own = covariates["models"].values, covariates["tasks"].values
        if by_question:
            return Counts(self.question_right, self.question_trials, self.task, *own)
        return Counts(*self.informative, np.arange(len(self.tasks)), *own)


def eval_counts(
    responses: ResponsesLike, by: str | None = None, top: int | None = None
) -> EvalCounts:
    """Count right answers; models and questions without any score are left out, with a note.

    Parameters
    ----------
    by, top
        Slices to be taken as tasks, as of `scores.slices.slices`.

    Raises
    ------
    DesignError
        No scores, or scores outside [0, 1]; slices that share items.
    """
    if by is not None:
        parts, notes, are_apart = as_tasks(responses, by, top)
        if not are_apart:
            raise DesignError(
                f"slices by {by} share items or clusters, or are runs at values of a setting: pool "
                "counts an item once, so name a field with one value for each item"
            )
        responses = ResponseSet(tuple(parts), notes)
    matrix = _scored(_matrix(responses))
    check_unit_range(matrix)
    named = matrix.tasks.astype(str).tolist()
    tasks = {name: number for number, name in enumerate(dict.fromkeys(named))}
    task = np.array([tasks[name] for name in named], dtype=np.int64)
    order = np.argsort(task, kind="stable")
    starts = np.searchsorted(task[order], np.arange(len(tasks)))
    means = mean_over_epochs(matrix.scores)
    observed = ~np.isnan(matrix.scores)
    metrics = dict.fromkeys(short_metric(name) for name in matrix.metrics.astype(str).tolist())
    dispersion = _dispersion(means, task, len(tasks))
    return EvalCounts(
        models=matrix.models,
        tasks=tuple(tasks),
        metric=", ".join(metrics),
        right=np.add.reduceat(np.nan_to_num(means)[:, order], starts, axis=1),
        trials=np.add.reduceat((~np.isnan(means))[:, order] * 1.0, starts, axis=1),
        question_right=np.nansum(matrix.scores, axis=2),
        question_trials=observed.sum(axis=2).astype(np.float64),
        task=task,
        dispersion=dispersion,
        notes=(*matrix.notes, *_notes(matrix, task, dispersion)),
    )


def _dispersion(means: FloatArray, task: IntArray, tasks: int) -> FloatArray:
    """Variance of scores over questions, as a share of p (1 − p), pooled over models of each task.

    The ratio of sums of squares within cells to those that right and wrong answers of the same
    means have, both without bias. It is estimated, so it is enlarged by the square of Student's
    factor for its degrees of freedom, and is at most 1, as it is for scores in [0, 1].

    Parameters
    ----------
    means : shape (N, M)
        Scores, means over epochs; NaN where there is none.
    """
    from scipy import special

    from evalstats_plugin.stats.interval import normal_quantile

    dispersion = np.ones(tasks)
    for t in range(tasks):
        x = means[:, task == t]
        n = (~np.isnan(x)).sum(axis=1)
        x, n = x[n > 1], n[n > 1]
        if np.isin(x[~np.isnan(x)], (0.0, 1.0)).all():
            continue
        p: FloatArray = np.nanmean(x, axis=1)
        free = int((n - 1).sum())
        variance = np.nanvar(x, axis=1, ddof=1)
        most = n * p * (1 - p) + variance
        # A question's worth of right and wrong answers keeps it above 0.
        worth = _WORTH * float(np.mean(p * (1 - p)))
        ratio = ((n * variance).sum() + worth) / (most.sum() + worth)
        quantile = float(cast("Any", special).stdtrit(free, 0.975))
        dispersion[t] = min(1.0, float(ratio) * (quantile / normal_quantile(0.95)) ** 2)
    return dispersion


def _matrix(responses: ResponsesLike) -> ResponseMatrix:
    given = as_responses(responses)
    if isinstance(given, ResponseStore):
        given = in_memory(given)
    if isinstance(given, ResponseMatrix):
        return usable_items(given)
    used, left_out = some_usable(given.responses)
    if several := metrics_of_tasks(used)[1]:
        raise SelectionError(
            f"{len(several)} {'task has' if len(several) == 1 else 'tasks have'} several metrics: "
            f"{few(several, 3)}: choose one with --metric (in Python: metric=)"
        )
    matrix = ResponseSet(tuple(used)).matrix()
    return replace(matrix, notes=(*matrix.notes, *left_out, *given.notes))


def _scored(matrix: ResponseMatrix) -> ResponseMatrix:
    observed = np.any(~np.isnan(matrix.scores), axis=2)
    items, models = np.any(observed, axis=0), np.any(observed, axis=1)
    if not items.any():
        raise DesignError("there are no scores: give scores in [0, 1] of one model or more")
    notes = list(matrix.notes)
    if not items.all():
        unscored = int((~items).sum())
        notes.append(f"{counted(unscored, 'question')} without any score: not used")
    if not models.all():
        silent = [matrix.models[i] for i in np.flatnonzero(~models)]
        notes.append(f"models without any score: {few(silent)}")
    kept = submatrix(matrix, np.flatnonzero(models), np.flatnonzero(items))
    return replace(kept, notes=tuple(notes))


def _notes(matrix: ResponseMatrix, task: IntArray, dispersion: FloatArray) -> list[str]:
    """Return notes on properties of the data that affect the results."""
    notes: list[str] = []
    if (dispersion < 1).any():
        low, high = (f"{x:.2f}" for x in (dispersion.min(), dispersion.max()))
        notes.append(
            f"scores vary {low if low == high else f'{low} to {high}'} times as much over "
            "questions as right and wrong answers would: by model 'task', each tells more"
        )
    if matrix.clusters is not None:
        notes.append("questions come in clusters, which these models ignore")
    alone = int((np.bincount(task) == 1).sum())
    if alone:
        who = "a task has" if alone == 1 else f"{alone} tasks have"
        notes.append(f"{who} a single question, which hardly says how hard it is")
    return notes


def standardised(
    given: Mapping[str, Mapping[str, float]], names: tuple[str, ...], what: str
) -> Standardised:
    """Check and standardise the covariates of models or tasks.

    Raises
    ------
    DesignError
        A value is missing or not finite, or all are the same.
    """
    values = np.zeros((len(names), len(given)))
    for k, (covariate, by_name) in enumerate(given.items()):
        missing = [name for name in names if name not in by_name]
        if missing:
            msg = f"covariate {covariate!r} has no value for {what} {few(missing)}: give one each"
            raise DesignError(msg)
        values[:, k] = [float(by_name[name]) for name in names]
        if not np.isfinite(values[:, k]).all() or np.ptp(values[:, k]) == 0:
            msg = f"covariate {covariate!r} of {what} is the same for all, or not finite"
            raise DesignError(f"{msg}: give finite numbers that differ, or leave it out")
    mean, sd = values.mean(axis=0), values.std(axis=0)
    return Standardised(names=tuple(given), values=(values - mean) / sd, sd=sd)


def covariates_of(
    given: Covariates | None, models: tuple[str, ...], tasks: tuple[str, ...]
) -> dict[str, Standardised]:
    """Return the covariates of ``"models"`` and ``"tasks"``, standardised."""
    names_of = {"models": models, "tasks": tasks}
    covariates = given or {}
    for name in covariates:
        if name not in names_of:
            msg = f"covariates of {name!r} are not possible: give those of 'models' or of 'tasks'"
            raise DesignError(msg)
    return {
        what: standardised(covariates.get(what, {}), names, what)
        for what, names in names_of.items()
    }


PLATES, DATA = ("model", "task", "item"), ("right", "trials")
"""Plates, and data on them, of a model of one's own that is fitted to logs."""


def data_of_plates(
    counts: EvalCounts,
    on: Mapping[str, tuple[str, ...]],
    observed: Collection[str],
    covariates: Covariates | None,
) -> dict[str, FloatArray]:
    """Lay counts out for a model of one's own.

    Parameters
    ----------
    on
        By name of observations and inputs, the plates they are on, outermost first.
    observed
        Which of them are observed: NaN where there are no answers.

    Returns
    -------
    dict
        By name, one axis for each plate. ``right`` and ``trials`` count questions on the plates
        ``model`` and ``task``, or epochs where ``item`` is among their plates.

    Raises
    ------
    DesignError
        Plates that logs do not have, data without a plate that several members of need, inputs
        without values.
    """
    given = covariates or {}
    arrays: dict[str, FloatArray] = {}
    for name, plates in on.items():
        if name in DATA:
            arrays[name] = _laid_out(counts, name, plates, observed=name in observed)
            continue
        kind = f"{plates[0]}s" if plates in (("model",), ("task",)) else ""
        if name in observed or name not in given.get(kind, {}):
            msg = f"logs have no data {name!r}: they have 'right' and 'trials'"
            where = f"covariates={{{kind or 'models'!r}: {{{name!r}: …}}}}"
            raise DesignError(f"{msg}; give values of each model or task by {where}")
        names = counts.models if kind == "models" else counts.tasks
        standardised({name: given[kind][name]}, names, kind)
        arrays[name] = np.array([float(given[kind][name][x]) for x in names])
    return arrays


def _laid_out(
    counts: EvalCounts, name: str, plates: tuple[str, ...], *, observed: bool
) -> FloatArray:
    n, t = counts.right.shape
    wide = "item" in plates
    right, trials = counts.right[..., None], counts.trials[..., None]
    if wide:
        # Items of a task in their order, and nothing behind those of a task that has few.
        sizes = np.bincount(counts.task, minlength=t)
        order = np.argsort(counts.task, kind="stable")
        place = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        right, trials = np.zeros((2, n, t, int(sizes.max())))
        right[:, counts.task[order], place] = counts.question_right[:, order]
        trials[:, counts.task[order], place] = counts.question_trials[:, order]
    array, present = right if name == "right" else trials, trials > 0
    if observed:
        array = np.where(present, array, np.nan)
    elif name == "trials":
        # Where nothing is observed, the number of trials is not used; 0 has no density.
        array = np.where(present, array, trials.max())
    for axis, plate in enumerate(PLATES):
        if plate not in plates and array.shape[axis] > 1:
            msg = f"data {name!r} are on {few(list(plates)) or 'no plate'}, but there are "
            raise DesignError(f"{msg}{array.shape[axis]} {plate}s: add the plate {plate!r} to them")
    kept = [plate for plate in PLATES if plate in plates]
    array = array.reshape([array.shape[PLATES.index(plate)] for plate in kept])
    return array.transpose([kept.index(plate) for plate in plates])
