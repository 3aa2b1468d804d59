"""From posterior draws to records: performance, difficulty, contrasts, predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from evalstats_plugin.analyses.hierarchical_data import EvalCounts
from evalstats_plugin.analyses.hierarchical_records import (
    Contrast,
    Effect,
    Performance,
    TaskDifficulty,
)
from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.results import finite, records
from evalstats_plugin.runs import is_model
from evalstats_plugin.stats.interval import FloatArray, tail_probability
from evalstats_plugin.wording import few, no_such

if TYPE_CHECKING:
    from evalstats_plugin.analyses.hierarchical_fit import HierarchicalFit

NOT_RUN = "not run: predicted from the other models and tasks"
_NOT_RUN_BY: Mapping[str, str] = {
    "per-task": "not run: only the prior speaks, any score is as likely",
    "beta-binomial": "not run: taken to be as the others",
}


class Spread(NamedTuple):
    """Of draws, by quantity."""

    mean: FloatArray
    low: FloatArray
    high: FloatArray
    std_error: FloatArray


def spread(draws: FloatArray, confidence_level: float) -> Spread:
    """Mean, equal-tailed limits and standard deviation over chains and draws, the first axes."""
    flat = draws.reshape(-1, *draws.shape[2:])
    tail = tail_probability(confidence_level)
    low, high = np.quantile(flat, [tail, 1 - tail], axis=0)
    return Spread(flat.mean(axis=0), low, high, flat.std(axis=0))


def performance_rows(
    counts: EvalCounts, cells: Spread, overall: Spread, same: Mapping[str, Any]
) -> list[Performance]:
    """Models in order of their estimates over all tasks, each followed by its tasks."""
    n, t = counts.right.shape
    run = counts.trials > 0
    scores = counts.scores
    # Of a model that missed a task there is no score over the same tasks.
    total = np.where(run.all(axis=1), np.where(run, scores, 0.0).mean(axis=1), np.nan)

    def beside(whole: FloatArray, by_task: FloatArray) -> FloatArray:
        return np.column_stack([whole, by_task])[order].ravel()

    order = np.argsort(-overall.mean, kind="stable")
    columns = {
        name: beside(getattr(overall, key), getattr(cells, key))
        for name, key in (
            ("estimate", "mean"),
            ("low", "low"),
            ("high", "high"),
            ("std_error", "std_error"),
        )
    }
    columns["score"] = beside(total, scores)
    columns["shrinkage"] = columns["estimate"] - columns["score"]
    names = [None, *counts.tasks]
    why = _NOT_RUN_BY.get(same["method"], NOT_RUN)
    notes = [
        (f"{t - int(seen.sum())} of {t} tasks {why}",) if not seen.all() else ()
        for seen in run[order]
    ]
    by_cell = [[whole, *((() if yes else (why,)) for yes in seen)]
               for whole, seen in zip(notes, run[order], strict=True)]  # fmt: skip
    made: dict[str, Sequence[Any]] = {
        "model": np.repeat(np.array(counts.models, dtype=object)[order], t + 1).tolist(),
        "task": names * n,
        "n_items": beside(counts.trials.sum(axis=1), counts.trials).astype(int).tolist(),
        "notes": [note for cells_of in by_cell for note in cells_of],
        **{name: [finite(x) for x in values.tolist()] for name, values in columns.items()},
    }
    return records(Performance, made, same)


def difficulty_rows(fit: HierarchicalFit) -> list[TaskDifficulty]:
    """Tasks, the hardest first, covariates included."""
    draws = _difficulty(fit)
    if draws is None:
        return []
    found = spread(draws - draws.mean(axis=2, keepdims=True), fit.confidence_level)
    counts, order = fit.counts, np.argsort(-found.mean, kind="stable")
    right, trials = counts.right.sum(axis=0), counts.trials.sum(axis=0)
    columns: dict[str, Sequence[Any]] = {
        "task": [counts.tasks[i] for i in order],
        "n_items": np.bincount(counts.task, minlength=len(counts.tasks))[order].tolist(),
        "n_models": (counts.trials > 0).sum(axis=0)[order].tolist(),
        "score": (right / trials)[order].tolist(),
        "estimate": found.mean[order].tolist(),
        "low": found.low[order].tolist(),
        "high": found.high[order].tolist(),
        "std_error": found.std_error[order].tolist(),
    }
    same = {"metric": counts.metric, "confidence_level": fit.confidence_level}
    return records(TaskDifficulty, columns, same)


def _difficulty(fit: HierarchicalFit) -> FloatArray | None:
    known = fit.posterior.parameters
    if "difficulty" not in known:
        return None
    tasks = fit.covariates["tasks"]
    if not tasks.names:
        return known["difficulty"]
    own = known["coefficients"][:, :, len(fit.covariates["models"].names) :]
    return known["difficulty"] + own @ tasks.values.T


def contrast_rows(fit: HierarchicalFit, baseline: str | None, task: str | None) -> list[Contrast]:
    """Every two models in the order of the fit, or the others against the baseline."""
    counts, n = fit.counts, len(fit.models)
    if baseline is None:
        a, b = np.triu_indices(n, 1)
    else:
        base = _place(baseline, fit.models, "model")
        b = np.delete(np.arange(n), base)
        a = np.full(n - 1, base)
    accuracy = fit.posterior.accuracy
    if task is not None:
        at = _place(task, fit.tasks, "task")
        accuracy = accuracy[:, :, :, at : at + 1]
    made: list[Contrast] = []
    same = {
        "task": task,
        "metric": counts.metric,
        "confidence_level": fit.confidence_level,
        "method": fit.model,
    }
    # One row of pairs at a time: those of all would be many times as large as the draws.
    for first in dict.fromkeys(a.tolist()):
        others = b[a == first]
        difference = accuracy[:, :, others] - accuracy[:, :, first : first + 1]
        found = spread(difference.mean(axis=3), fit.confidence_level)
        ahead = (difference.mean(axis=3) > 0).mean(axis=(0, 1))
        on_task = (difference > 0).mean(axis=(0, 1, 3))
        columns: dict[str, Sequence[Any]] = {
            "model_a": [fit.models[first]] * len(others),
            "model_b": [fit.models[i] for i in others],
            "difference": found.mean.tolist(),
            "low": found.low.tolist(),
            "high": found.high.tolist(),
            "std_error": found.std_error.tolist(),
            "prob_better": ahead.tolist(),
            "prob_better_on_a_task": on_task.tolist(),
        }
        made += records(Contrast, columns, same)
    return made


def _place(name: str, names: Sequence[str], what: str) -> int:
    found = next((x for x in names if x == name), None)
    if found is None and what == "model":
        found = next((x for x in names if is_model(x, name)), None)
    if found is None:
        raise SelectionError(no_such(what, name, names, few(names)))
    return names.index(found)


def effect_rows(fit: HierarchicalFit) -> list[Effect]:
    """Covariates of models first; those of tasks count as what makes answers right, too."""
    if "coefficients" not in fit.posterior.parameters:
        return []
    draws = fit.posterior.parameters["coefficients"]
    models, tasks = fit.covariates["models"], fit.covariates["tasks"]
    # Coefficients of tasks are of difficulty.
    sign = np.array([1.0] * len(models.names) + [-1.0] * len(tasks.names))
    sd = np.concatenate([models.sd, tasks.sd])
    found = spread(draws * sign / sd, fit.confidence_level)
    columns: dict[str, Sequence[Any]] = {
        "covariate": [*models.names, *tasks.names],
        "of": ["models"] * len(models.names) + ["tasks"] * len(tasks.names),
        "estimate": found.mean.tolist(),
        "low": found.low.tolist(),
        "high": found.high.tolist(),
        "per_sd": (found.mean * sd).tolist(),
        "prob_positive": (draws * sign > 0).mean(axis=(0, 1)).tolist(),
    }
    return records(Effect, columns, {"confidence_level": fit.confidence_level})


def prediction_rows(
    fit: HierarchicalFit, covariates: Mapping[str, float], rng: np.random.Generator
) -> list[Performance]:
    """Models in order of their predicted accuracy on another task."""
    found = spread(_on_another_task(fit, covariates, rng), fit.confidence_level)
    order = np.argsort(-found.mean, kind="stable")
    columns: dict[str, Sequence[Any]] = {
        "model": [fit.models[i] for i in order],
        "estimate": found.mean[order].tolist(),
        "low": found.low[order].tolist(),
        "high": found.high[order].tolist(),
        "std_error": found.std_error[order].tolist(),
    }
    same = {
        "task": "(a task not seen)",
        "metric": fit.counts.metric,
        "n_items": 0,
        "score": None,
        "shrinkage": None,
        "confidence_level": fit.confidence_level,
        "method": fit.model,
    }
    return records(Performance, columns, same)


def _on_another_task(
    fit: HierarchicalFit, covariates: Mapping[str, float], rng: np.random.Generator
) -> FloatArray:
    """Draw accuracies (K, S, N), with the task's difficulty and interactions drawn anew."""
    from evalstats_plugin.hierarchical.crossed_prior import mean_levels, new_task

    if "difficulty" not in fit.posterior.parameters:
        msg = (
            f"model {fit.model!r} says nothing of tasks that were not run: choose 'task', "
            "'question' or 'across-task'"
        )
        raise DesignError(msg)
    tasks = fit.covariates["tasks"]
    missing = [name for name in tasks.names if name not in covariates]
    if missing or set(covariates) - set(tasks.names):
        expected = few(tasks.names) or "none"
        msg = f"covariates of the task: {few(list(covariates)) or 'none'}, expected {expected}"
        raise DesignError(msg)
    given = np.array([float(covariates[name]) for name in tasks.names])
    own = (given - tasks.mean) / tasks.sd
    level = mean_levels(fit.posterior.parameters, fit.covariates["models"].values, own)
    return new_task(fit.posterior.parameters, level, fit.priors, rng)
