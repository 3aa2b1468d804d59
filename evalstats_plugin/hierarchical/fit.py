"""Results of hierarchical models: `HierarchicalFit` and what it answers.

A fit holds posterior draws. From them come records of performance, difficulty, contrasts and
effects of covariates. Model checks: posterior and prior predictive checks, leave-one-out
cross-validation, model evidence, and sensitivity to priors of standard deviations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np

from evalstats_plugin.data.results import Results, finite, records
from evalstats_plugin.data.runs import place_of
from evalstats_plugin.errors import DesignError, SelectionError, counted, no_such
from evalstats_plugin.hierarchical.data import EvalCounts, Standardised
from evalstats_plugin.hierarchical.methods import (
    BY_QUESTION,
    CLOSED_FORM,
    HIERARCHICAL_MODELS,
    SCALES,
    Prior,
    prior_of,
)
from evalstats_plugin.hierarchical.rows import (
    Check,
    Contrast,
    Effect,
    Elpd,
    Evidence,
    LeftOutScore,
    NewScore,
    Performance,
    PriorChange,
    TaskDifficulty,
)
from evalstats_plugin.runtime.chains import (
    PARETO_K_LIMIT,
    inference_data,
    mean_efficiency,
    smoothed_weights,
)
from evalstats_plugin.runtime.workers import parallel_map
from evalstats_plugin.stats.arrays import FloatArray
from evalstats_plugin.stats.interval import tail_probability
from evalstats_plugin.stats.steady import steady
from evalstats_plugin.stats.streams import stream

if TYPE_CHECKING:
    from evalstats_plugin.hierarchical.engines.plates.results import PlatedFit
    from evalstats_plugin.hierarchical.engines.posterior import Posterior


NOT_RUN = "not run: predicted from the other models and tasks"

_NOT_RUN_BY: Mapping[str, str] = {
    "per-task": "not run: only the prior speaks, any score is as likely",
    "beta-binomial": "not run: assumed to be as the others",
}

COMPARED = ("task", *CLOSED_FORM)
"""Models whose evidence is known for nested evals."""

OTHER_PRIORS: Mapping[str, Prior] = {
    "half as wide, gamma(2, 4)": ("gamma", 2.0, 4.0),
    "twice as wide, gamma(2, 1)": ("gamma", 2.0, 1.0),
    "half-normal(1)": ("half-normal", 1.0),
}
"""Priors that the sensitivity analysis tries by default."""

_PRIOR_NUMBERS = 20_000_000
"""Most numbers drawn from the prior at once."""

_PARAMETERS = ("sd_performance", "sd_difficulty", "sd_interaction", "sd_question")
"""Standard deviations in a posterior, in the order of `SCALES`."""


@dataclass(frozen=True, kw_only=True)
class HierarchicalFit(Results[Performance]):
    """A fitted hierarchical model; its rows are each model's accuracy over all tasks and on each.

    Rows are ordered by accuracy over all tasks, the best model first. Accuracy is the expected
    share of right answers on all questions like those of a task; over tasks it is the mean over
    the tasks of the fit.
    """

    drawn_as: ClassVar[tuple[str, ...]] = ("hierarchical",)

    model: str
    """A name of `HIERARCHICAL_MODELS`."""
    inference: str
    """A name of `INFERENCES`."""
    reason: str
    """Why this model and this inference."""
    counts: EvalCounts
    posterior: Posterior
    diagnostics: Mapping[str, Any]
    """R-hat, effective sample size, number of draws; plain numbers, ready for JSON."""
    confidence_level: float
    priors: Mapping[str, Prior]
    """Priors of standard deviations; ``"default"`` for those not named."""
    covariates: Mapping[str, Standardised]
    log_evidence: float | None = None
    """Log marginal likelihood of the answers, where the engine computes it."""
    log_evidence_error: float | None = None
    """Its standard error."""
    refit: Callable[[Mapping[str, Prior], int], HierarchicalFit]
    """Fit the same data with other priors, given the seed."""
    with_model: Callable[[str, int], HierarchicalFit]
    """Fit another model to the same data, given its name and the seed."""
    plated: PlatedFit | None = None
    """The fit of a formula, with draws, predictions and tables of everything in it."""

    @property
    def models(self) -> tuple[str, ...]:
        """Names, in the order of the axes of arrays."""
        return self.counts.models

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names, in the order of the axes of arrays."""
        return self.counts.tasks

    def difficulties(self) -> Results[TaskDifficulty]:
        """Return task difficulties, the hardest first; empty for models without difficulties."""
        return Results(tuple(_difficulty_rows(self)), self.notes, self.seed)

    def contrasts(
        self, *, baseline: str | None = None, task: str | None = None
    ) -> Results[Contrast]:
        """Compare every pair of models, or all with a baseline, over all tasks or on one.

        Raises
        ------
        SelectionError
            No model, or no task, has the name.
        """
        rows = _contrast_rows(self, baseline, task)
        return Results(tuple(rows), self.notes, self.seed)

    def effects(self) -> Results[Effect]:
        """Return the effects of covariates of models and tasks."""
        return Results(tuple(_effect_rows(self)), self.notes, self.seed)

    def predict(
        self, new: Literal["task", "model"], n_items: int | None = None, *, rng: int = 0
    ) -> Results[NewScore]:
        """Predict scores on a new task, or of a new model, from the population of those fitted.

        Parameters
        ----------
        new
            ``"task"``: one row for each model; ``"model"``: one row over all tasks of the fit and
            one for each. Covariates of the new one are those of an average one.
        n_items
            Questions of the new task, or that a new model answers on each task: the interval
            then holds the observed score. Default: the expected score, of infinitely many.

        Raises
        ------
        SelectionError
            Neither a task nor a model.
        DesignError
            A model of the fit that knows no population: the closed forms, and those without
            performance across tasks.
        """
        return Results(tuple(_new_scores(self, new, n_items, rng)), self.notes, rng)

    def check(self, *, prior: bool = False, rng: int = 0) -> Results[Check]:
        """Posterior (or prior) predictive checks: compare the data with replicated data."""
        drawn = stream(rng, "predictive checks")
        return Results(tuple(_predictive_checks(self, drawn, prior=prior)))

    def loo(self) -> Elpd:
        """Leave-one-out cross-validation over cells, a model's answers to one task [VGG17]_.

        Exact in closed form; otherwise by Pareto-smoothed importance sampling.
        """
        return expected_density(_left_out(self))

    def compare(self, *models: str, rng: int = 0) -> Results[LeftOutScore]:
        """Compare this model with others, fitted to the same data, by leave-one-out predictions.

        A difference of less than twice its standard error does not tell models apart.

        Parameters
        ----------
        models
            Names of `HIERARCHICAL_MODELS`.

        Raises
        ------
        SelectionError
            No such model.
        DesignError
            Models that do not predict the same counts, or do not fit the data.
        """
        return Results(tuple(_compared(self, models, rng)), (), rng)

    def evidence(self, *, rng: int = 0) -> Results[Evidence]:
        """Compare models by their marginal likelihood, the best first.

        For one model or one task: no engine computes the evidence of crossed evals.

        Raises
        ------
        DesignError
            Several models on several tasks: compare fits by `loo`.
        """
        return Results(tuple(_evidence_rows(self, rng)), (), rng)

    def prior_sensitivity(
        self, priors: Mapping[str, Prior] | None = None, *, rng: int = 0
    ) -> Results[PriorChange]:
        """Estimate how much other priors of the standard deviations change the results.

        Draws are reweighted by importance sampling; where the weights are unreliable, the model is
        fitted again.

        Parameters
        ----------
        priors
            Priors by any name, each for all standard deviations. Default: half as wide and twice
            as wide as Gamma(2, 2), and half-normal.
        """
        return Results(tuple(_prior_sensitivity(self, priors, rng)), (), rng)

    def to_arviz(self) -> Any:
        """Return posterior, log likelihood, predictions and data as ArviZ holds them.

        ``InferenceData`` with ArviZ 0, ``DataTree`` with ArviZ 1.
        """
        return _inference_data(self) if self.plated is None else self.plated.to_inference_data()

    def summary(self) -> dict[str, Any]:
        """Return the model, inference, priors and diagnostics as plain values."""
        return {
            "model": self.model,
            "inference": self.inference,
            "reason": self.reason,
            "priors": {name: list(prior) for name, prior in self.priors.items()},
            "log_evidence": self.log_evidence,
            "diagnostics": dict(self.diagnostics),
        }


class Spread(NamedTuple):
    """Summaries of draws, by quantity."""

    mean: FloatArray
    low: FloatArray
    high: FloatArray
    std_error: FloatArray

    def columns(self, mean: str = "estimate") -> dict[str, Sequence[Any]]:
        """Return columns of records, for quantities of shape (n,), with this name of the mean."""
        names = (mean, "low", "high", "std_error")
        return {name: x.tolist() for name, x in zip(names, self, strict=True)}


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
    # A model that missed a task has no score over all of them.
    total = np.where(run.all(axis=1), np.where(run, scores, 0.0).mean(axis=1), np.nan)

    def beside(whole: FloatArray, by_task: FloatArray) -> FloatArray:
        return np.column_stack([whole, by_task])[order].ravel()

    order = np.argsort(-steady(overall.mean), kind="stable")
    names = ("estimate", "low", "high", "std_error")
    columns = {name: beside(*both) for name, *both in zip(names, overall, cells, strict=True)}
    columns["score"] = beside(total, scores)
    columns["shrinkage"] = columns["estimate"] - columns["score"]
    why = _NOT_RUN_BY.get(same["method"], NOT_RUN)
    notes = [
        (f"{t - int(seen.sum())} of {t} tasks {why}",) if not seen.all() else ()
        for seen in run[order]
    ]
    by_cell = [[whole, *((() if yes else (why,)) for yes in seen)]
               for whole, seen in zip(notes, run[order], strict=True)]  # fmt: skip
    made: dict[str, Sequence[Any]] = {
        "model": np.repeat(np.array(counts.models, dtype=object)[order], t + 1).tolist(),
        "task": [None, *counts.tasks] * n,
        "n_items": beside(counts.trials.sum(axis=1), counts.trials).astype(int).tolist(),
        "notes": [note for cells_of in by_cell for note in cells_of],
        **{name: [finite(x) for x in values.tolist()] for name, values in columns.items()},
    }
    return records(Performance, made, same)


def _difficulty_rows(fit: HierarchicalFit) -> list[TaskDifficulty]:
    """Tasks, the hardest first, covariates included."""
    draws = _difficulty(fit)
    if draws is None:
        return []
    summary = spread(draws - draws.mean(axis=2, keepdims=True), fit.confidence_level)
    counts, order = fit.counts, np.argsort(-steady(summary.mean), kind="stable")
    right, trials = counts.right.sum(axis=0), counts.trials.sum(axis=0)
    columns: dict[str, Sequence[Any]] = {
        "task": [counts.tasks[i] for i in order],
        "n_items": np.bincount(counts.task, minlength=len(counts.tasks))[order].tolist(),
        "n_models": (counts.trials > 0).sum(axis=0)[order].tolist(),
        "score": (right / trials)[order].tolist(),
        **Spread(*(x[order] for x in summary)).columns(),
    }
    same = {"metric": counts.metric, "confidence_level": fit.confidence_level}
    return records(TaskDifficulty, columns, same)


def _difficulty(fit: HierarchicalFit) -> FloatArray | None:
    parameters = fit.posterior.parameters
    if "difficulty" not in parameters:
        return None
    tasks = fit.covariates["tasks"]
    if not tasks.names:
        return parameters["difficulty"]
    own = parameters["coefficients"][:, :, len(fit.covariates["models"].names) :]
    return parameters["difficulty"] + own @ tasks.values.T


def _contrast_rows(fit: HierarchicalFit, baseline: str | None, task: str | None) -> list[Contrast]:
    """Every two models in the order of the fit, or the others against the baseline."""
    counts, n = fit.counts, len(fit.models)
    if baseline is None:
        a, b = np.triu_indices(n, 1)
    else:
        base = place_of(baseline, fit.models)
        b = np.delete(np.arange(n), base)
        a = np.full(n - 1, base)
    accuracy = fit.posterior.accuracy
    if task is not None:
        at = place_of(task, fit.tasks, "task")
        accuracy = accuracy[:, :, :, at : at + 1]
    made: list[Contrast] = []
    same = {
        "task": task,
        "metric": counts.metric,
        "confidence_level": fit.confidence_level,
        "method": fit.model,
    }
    overall = accuracy.mean(axis=3)
    # One row of pairs at a time: all comparisons would be many times as large as the draws.
    for first in dict.fromkeys(a.tolist()):
        others = b[a == first]
        difference = overall[:, :, others] - overall[:, :, first : first + 1]
        summary = spread(difference, fit.confidence_level)
        ahead = (difference > 0).mean(axis=(0, 1))
        higher = accuracy[:, :, others] > accuracy[:, :, first : first + 1]
        on_task = higher.mean(axis=(0, 1, 3))
        columns: dict[str, Sequence[Any]] = {
            "model_a": [fit.models[first]] * len(others),
            "model_b": [fit.models[i] for i in others],
            **summary.columns("difference"),
            "prob_better": ahead.tolist(),
            "prob_better_on_a_task": on_task.tolist(),
        }
        made += records(Contrast, columns, same)
    return made


def _new_scores(fit: HierarchicalFit, new: str, n_items: int | None, seed: int) -> list[NewScore]:
    """Draw the effects of a new task or model, and scores given them."""
    if new not in ("task", "model"):
        raise SelectionError(no_such("prediction", new, ("task", "model"), "task, model"))
    if n_items is not None and n_items < 1:
        raise DesignError(f"{n_items} items make no score: give 1 or more, or None")
    parameters, counts = fit.posterior.parameters, fit.counts
    difficulty = _difficulty(fit)
    if difficulty is None or "performance" not in parameters:
        msg = f"model {fit.model!r} has no population of models and tasks"
        raise DesignError(f"{msg}: choose 'task', 'shared' or 'across-task'")
    rng, shape = stream(seed, "scores of new tasks and models"), parameters["intercept"].shape[:2]
    performance = _performance(fit)
    middle = parameters["intercept"].reshape(*shape, 1, 1)
    spread_of = {x: parameters[f"sd_{x}"].reshape(*shape, -1) for x in (
        "performance", "difficulty", "interaction")}  # fmt: skip
    if new == "task":
        # One difficulty in each draw, the same for all models.
        drawn = spread_of["difficulty"] * rng.standard_normal((*shape, 1))
        level = middle + performance[..., None] - drawn[..., None, :]
        # Tasks with interactions of their own sizes: that of any of them.
        own = spread_of["interaction"]
        at = rng.integers(own.shape[2], size=(*shape, 1))
        own = np.take_along_axis(own, at, axis=2)
    else:
        drawn = spread_of["performance"] * rng.standard_normal((*shape, 1))
        level = middle + drawn[..., None] - difficulty[..., None, :]
        own = spread_of["interaction"]
    level = level + own[:, :, None] * rng.standard_normal(level.shape)
    share = _scores_at(level, parameters.get("sd_question"), n_items, rng)
    cells = fit.posterior.accuracy
    tasks: list[str | None] = [None] if new == "task" else [None, *counts.tasks]
    if new == "model":
        # Over all tasks first, as in the rows of the fit.
        share = np.concatenate([share.mean(axis=3, keepdims=True), share], axis=3)
        cells = np.concatenate([cells.mean(axis=3, keepdims=True), cells], axis=3)
    summary = spread(share, fit.confidence_level)
    best = _prob_best(share) if new == "task" else _prob_best(share, cells)
    names = counts.models if new == "task" else (None,)
    return [
        NewScore(
            model=model, task=task, over_tasks=new == "model" and task is None,
            metric=counts.metric, n_items=n_items, prob_best=float(best[i, k]),
            confidence_level=fit.confidence_level, estimate=float(summary.mean[i, k]),
            low=float(summary.low[i, k]), high=float(summary.high[i, k]),
            std_error=float(summary.std_error[i, k]),
        )
        for i, model in enumerate(names)
        for k, task in enumerate(tasks)
    ]  # fmt: skip


def _performance(fit: HierarchicalFit) -> FloatArray:
    """Draws of the performance of models (K, S, N), covariates included."""
    parameters, models = fit.posterior.parameters, fit.covariates["models"]
    if not models.names:
        return parameters["performance"]
    own = parameters["coefficients"][:, :, : len(models.names)]
    return parameters["performance"] + own @ models.values.T


def _scores_at(
    level: FloatArray, sd: FloatArray | None, n_items: int | None, rng: np.random.Generator
) -> FloatArray:
    """Scores at levels (K, S, N, T): expected ones, or observed on new questions of every task."""
    from scipy import special

    from evalstats_plugin.hierarchical.engines.crossed import expected_share

    if n_items is None:
        if sd is None:
            return np.asarray(special.expit(level), dtype=np.float64)
        return expected_share(level.reshape(-1, *level.shape[2:]), sd.ravel()).reshape(level.shape)
    if sd is None:
        return rng.binomial(n_items, special.expit(level)) / n_items
    right = np.zeros_like(level)
    for _ in range(n_items):
        # All models answer the same question.
        hard = sd[..., None, None] * rng.standard_normal((*sd.shape, 1, level.shape[3]))
        right += rng.random(level.shape) < special.expit(level - hard)
    return right / n_items


def _prob_best(share: FloatArray, others: FloatArray | None = None) -> FloatArray:
    """Share of draws in which a score is the best, (N, T): of these, or of others too."""
    best = share.max(axis=2, keepdims=True)
    if others is not None:
        best = np.maximum(best, others.max(axis=2, keepdims=True))
    first = share == best
    return (first / np.maximum(first.sum(axis=2, keepdims=True), 1)).mean(axis=(0, 1))


def _effect_rows(fit: HierarchicalFit) -> list[Effect]:
    """Covariates of models first; those of tasks count as what makes answers right, too."""
    if "coefficients" not in fit.posterior.parameters:
        return []
    draws = fit.posterior.parameters["coefficients"]
    models, tasks = fit.covariates["models"], fit.covariates["tasks"]
    # Coefficients of tasks are of difficulty.
    sign = np.array([1.0] * len(models.names) + [-1.0] * len(tasks.names))
    sd = np.concatenate([models.sd, tasks.sd])
    summary = spread(draws * sign / sd, fit.confidence_level)
    columns: dict[str, Sequence[Any]] = {
        "covariate": [*models.names, *tasks.names],
        "of": ["models"] * len(models.names) + ["tasks"] * len(tasks.names),
        "estimate": summary.mean.tolist(),
        "low": summary.low.tolist(),
        "high": summary.high.tolist(),
        "per_sd": (summary.mean * sd).tolist(),
        "prob_positive": (draws * sign > 0).mean(axis=(0, 1)).tolist(),
    }
    return records(Effect, columns, {"confidence_level": fit.confidence_level})


def _predictive_checks(
    fit: HierarchicalFit, rng: np.random.Generator, *, prior: bool
) -> list[Check]:
    """Compare the scores of models and tasks with those of data drawn anew."""
    _not_by_formula(fit)
    counts = fit.counts
    # Models with effects of questions replicate every epoch, not the mean over epochs.
    right, trials = counts.informative
    if fit.model not in (*CLOSED_FORM, "task"):
        columns = counts.columns(fit.covariates, by_question=True)
        right, trials = (x @ columns.membership for x in (columns.right, columns.trials))
    drawn = _prior_draws(fit, rng) if prior else fit.posterior.predictions.replicated
    drawn = drawn.reshape(-1, *right.shape)
    observed, predicted = _statistics(right, trials), _statistics(drawn, trials)
    return [predictive_check(name, float(observed[name]), values, fit.confidence_level)
            for name, values in predicted.items()]  # fmt: skip


def predictive_check(
    statistic: str, observed: float, predicted: FloatArray, confidence_level: float = 0.95
) -> Check:
    """Compare an observed statistic with those of data drawn anew, shape (draws,)."""
    tail = tail_probability(confidence_level)
    low, high = np.quantile(predicted, [tail, 1 - tail]).tolist()
    ties = np.abs(predicted - observed) <= 1e-9
    p = float((predicted > observed + 1e-9).mean() + ties.mean() / 2)
    return Check(statistic=statistic, observed=observed, predicted=float(predicted.mean()),
                 low=low, high=high, p_value=p)  # fmt: skip


def _statistics(right: FloatArray, trials: FloatArray) -> dict[str, FloatArray]:
    """Return test statistics of right answers (..., N, T) and trials, each of shape (...)."""
    run = trials > 0
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(run, right / trials, np.nan)
    models, tasks = (np.nanmean(share, axis=axis) for axis in (-1, -2))
    left = (
        share
        - models[..., None]
        - tasks[..., None, :]
        + np.nanmean(share, axis=(-2, -1))[..., None, None]
    )
    return {
        "mean score": np.nanmean(share, axis=(-2, -1)),
        "standard deviation of models": models.std(axis=-1),
        "standard deviation of tasks": tasks.std(axis=-1),
        "standard deviation of what is left": np.nanstd(left, axis=(-2, -1)),
        "least score of a cell": np.nanmin(share, axis=(-2, -1)),
        "greatest score of a cell": np.nanmax(share, axis=(-2, -1)),
        "cells all right or all wrong": (
            ((right == 0) | (right == trials)) & run
        ).sum(axis=(-2, -1)).astype(np.float64),
    }  # fmt: skip


def _prior_draws(fit: HierarchicalFit, rng: np.random.Generator) -> FloatArray:
    """Right answers (S, N, T) drawn from the prior."""
    counts = fit.counts
    if fit.model in CLOSED_FORM:
        from evalstats_plugin.hierarchical.engines.posterior import replicate

        width = 1 if fit.model == "beta-binomial" else len(counts.tasks)
        share = rng.uniform(size=(1000, len(counts.models), width))
        wide = np.broadcast_to(share, (1000, *counts.trials.shape))
        return replicate(rng, counts.informative[1], wide)
    from evalstats_plugin.hierarchical.engines.crossed import crossed_model_of, simulate

    columns = counts.columns(fit.covariates, by_question=fit.model != "task")
    size = int(np.clip(_PRIOR_NUMBERS / columns.trials.size, 20, 1000))
    drawn = simulate(crossed_model_of(fit.model, fit.priors), columns, size, rng)
    return drawn @ columns.membership


class LeftOut(NamedTuple):
    """Log predictive density of each cell that was run, left out."""

    cells: FloatArray
    n_effective: float
    """Effective number of parameters."""
    pareto_k: FloatArray | None
    """Of each cell; None where exact."""

    @property
    def unreliable(self) -> int:
        """Cells whose importance weights have too heavy tails."""
        return 0 if self.pareto_k is None else int((self.pareto_k > PARETO_K_LIMIT).sum())

    @property
    def worst_k(self) -> float | None:
        """Largest Pareto k; None where exact."""
        return None if self.pareto_k is None else float(self.pareto_k.max())


def _left_out(fit: HierarchicalFit) -> LeftOut:
    """Leave each cell out: exactly in closed form, else by smoothed importance weights."""
    _not_by_formula(fit)
    run = fit.counts.trials > 0
    if fit.model in CLOSED_FORM:
        return _left_out_exactly(fit, run)
    cells = fit.posterior.predictions.log_likelihood[:, :, run]
    return left_out(cells, fit.posterior.overall[:, : cells.shape[1]])


def left_out(log_likelihood: FloatArray, draws: FloatArray) -> LeftOut:
    """Leave each cell out by smoothed importance weights [VGG17]_.

    Parameters
    ----------
    log_likelihood : shape (chains, draws, cells)
    draws : shape (chains, draws, ...)
        Of quantities that tell how correlated draws are.
    """
    from scipy import special

    by_cell = log_likelihood.reshape(-1, log_likelihood.shape[2]).T
    log_weights, k = smoothed_weights(-by_cell, mean_efficiency(draws))
    cells = special.logsumexp(log_weights + by_cell, axis=1)
    log_mean = special.logsumexp(by_cell, axis=1) - np.log(by_cell.shape[1])
    return LeftOut(cells, float((log_mean - cells).sum()), k)


def _left_out_exactly(fit: HierarchicalFit, run: Any) -> LeftOut:
    from scipy import special

    from evalstats_plugin.hierarchical.engines.posterior import log_left_out, shares

    right, trials = fit.counts.informative
    posterior_shares = shares(right, trials, pooled=fit.model == "beta-binomial")
    cells = log_left_out(posterior_shares, right, trials)[run]
    mean = posterior_shares.mean
    full = (special.xlogy(right, mean) + special.xlog1py(trials - right, -mean))[run]
    return LeftOut(cells, float((full - cells).sum()), None)


def expected_density(loo: LeftOut) -> Elpd:
    """Return the expected log predictive density, summed over cells."""
    notes: list[str] = []
    if loo.unreliable:
        notes.append(
            f"{loo.unreliable} of {counted(loo.cells.size, 'cell')} have a Pareto k above "
            f"{PARETO_K_LIMIT}: their predictions are not reliable"
        )
    return Elpd(criterion="loo", elpd=float(loo.cells.sum()),
                std_error=float(np.sqrt(loo.cells.size) * loo.cells.std()),
                n_effective=loo.n_effective, n_cells=loo.cells.size, worst_k=loo.worst_k,
                notes=tuple(notes))  # fmt: skip


def _not_by_formula(fit: HierarchicalFit) -> None:
    """Raise `DesignError` for the fit of a formula, whose predictions are those of its plates."""
    if fit.plated is not None:
        msg = "fits of formulas are not judged this way"
        raise DesignError(f"{msg}: take predictive() or log_likelihood() of their plated fit")


def _compared(fit: HierarchicalFit, models: Sequence[str], seed: int) -> list[LeftOutScore]:
    """Fit the other models, and order all by what they predict of left-out cells."""
    _not_by_formula(fit)
    names = list(dict.fromkeys((fit.model, *models)))
    for name in names:
        if name not in HIERARCHICAL_MODELS:
            allowed = ", ".join(HIERARCHICAL_MODELS)
            raise SelectionError(no_such("model", name, HIERARCHICAL_MODELS, allowed))
    counts = fit.counts
    plain = (
        bool(np.isin(counts.question_right, (0.0, 1.0)).all()) and counts.question_trials.max() <= 1
    )
    if not plain and len({name in BY_QUESTION for name in names}) > 1:
        msg = f"models {', '.join(names)} do not predict the same: some count every epoch of a "
        raise DesignError(f"{msg}question, others average them; compare those of one kind")
    left_out = {name: _left_out(fit if name == fit.model else fit.with_model(name, seed))
             for name in names}  # fmt: skip
    best = max(left_out, key=lambda name: left_out[name].cells.sum())
    rows: list[LeftOutScore] = []
    for name, own in left_out.items():
        gaps = own.cells - left_out[best].cells
        rows.append(LeftOutScore(
            model=name, elpd=float(own.cells.sum()), difference=float(gaps.sum()),
            std_error=float(np.sqrt(gaps.size) * gaps.std()), n_effective=own.n_effective,
            n_cells=gaps.size, unreliable=own.unreliable,
        ))  # fmt: skip
    return sorted(rows, key=lambda row: -row.elpd)


def has_evidence(fit: HierarchicalFit) -> bool:
    """Return whether the evidence of models can be computed for these data."""
    return min(fit.counts.right.shape) == 1 and fit.plated is None


def _evidence_rows(fit: HierarchicalFit, seed: int) -> list[Evidence]:
    """Fit the other models, and order all by evidence."""
    _not_by_formula(fit)
    if not has_evidence(fit):
        n, t = fit.counts.right.shape
        msg = (
            f"{n} models on {t} tasks: the evidence is computed for one model or one task only; "
            "compare the loo() of fits"
        )
        raise DesignError(msg)
    fits = [fit if fit.model == name else fit.with_model(name, seed) for name in COMPARED]
    with_evidence = [
        (x, x.log_evidence, x.log_evidence_error or 0.0) for x in fits if x.log_evidence is not None
    ]
    values = np.array([value for _, value, _ in with_evidence])
    relative = np.exp(values - values.max())
    share = relative / relative.sum()
    rows = [
        Evidence(model=x.model, log_evidence=value, std_error=error,
                 log_bayes_factor=value - float(values.max()), probability=float(p),
                 inference=x.inference)
        for (x, value, error), p in zip(with_evidence, share, strict=True)
    ]  # fmt: skip
    return sorted(rows, key=lambda row: -row.log_evidence)


def _prior_sensitivity(
    fit: HierarchicalFit, priors: Mapping[str, Prior] | None, seed: int
) -> list[PriorChange]:
    """Estimates over all tasks with each other prior."""
    _not_by_formula(fit)
    if fit.model in CLOSED_FORM:
        msg = f"model {fit.model!r} has no standard deviations whose prior could be changed"
        raise DesignError(msg)
    tried = priors or OTHER_PRIORS
    smoothed = {
        name: _smoothed_weights(_log_ratio(fit, prior).ravel()) for name, prior in tried.items()
    }
    far = [name for name, (_, k) in smoothed.items() if not k < PARETO_K_LIMIT]
    again = parallel_map(partial(_refitted, fit.refit, seed), [tried[name] for name in far])
    refitted = dict(zip(far, again, strict=True))
    changes: list[PriorChange] = []
    for name, (weights, _) in smoothed.items():
        changes += _prior_change_rows(fit, name, weights, refitted.get(name))
    return changes


def _refitted(
    refit: Callable[[Mapping[str, Prior], int], HierarchicalFit], seed: int, prior: Prior
) -> tuple[FloatArray, float]:
    """Return draws over all tasks and their effective sample size."""
    again = refit({"default": prior}, seed)
    return again.posterior.overall, float(again.diagnostics["least_ess"])


def _prior_change_rows(
    fit: HierarchicalFit,
    name: str,
    weights: FloatArray,
    refitted: tuple[FloatArray, float] | None,
) -> list[PriorChange]:
    own = fit.posterior.overall.reshape(len(weights), -1)
    ess, how, draws = float(1 / (weights**2).sum()), "reweighted", own
    if refitted is not None:
        overall, ess = refitted
        draws, how = overall.reshape(-1, own.shape[1]), "refitted"
        weights = np.full(len(draws), 1 / len(draws))
    mean = weights @ draws
    tail = tail_probability(fit.confidence_level)
    low, high = (_weighted_quantile(draws, weights, q) for q in (tail, 1 - tail))
    change = (mean - own.mean(axis=0)) / own.std(axis=0)
    return [
        PriorChange(prior=name, model=model, metric=fit.counts.metric, estimate=float(mean[i]),
                    low=float(low[i]), high=float(high[i]), change=float(change[i]), how=how,
                    ess=ess)
        for i, model in enumerate(fit.models)
    ]  # fmt: skip


def _smoothed_weights(log_ratio: FloatArray) -> tuple[FloatArray, float]:
    """Weights that sum to 1, their largest ones smoothed, and Pareto k [VSG24]_."""
    if np.ptp(log_ratio) < 1e-9:
        return np.full(len(log_ratio), 1 / len(log_ratio)), -np.inf
    log_weights, k = smoothed_weights(log_ratio[None])
    return np.exp(log_weights[0]), float(k[0])


def _log_ratio(fit: HierarchicalFit, prior: Prior) -> FloatArray:
    """Log ratio of the new prior to the old, at each draw (K, S)."""
    from evalstats_plugin.hierarchical.engines.posterior import log_scale_density

    total = np.zeros(fit.posterior.accuracy.shape[:2])
    for parameter, scale in zip(_PARAMETERS, SCALES, strict=True):
        sd = fit.posterior.parameters.get(parameter)
        if sd is None:
            continue
        log_sd, old = np.log(np.maximum(sd, 1e-300)), prior_of(fit.priors, scale)
        difference = log_scale_density(prior, log_sd) - log_scale_density(old, log_sd)
        total += difference.sum(axis=2) if difference.ndim == 3 else difference
    return total


def _weighted_quantile(draws: FloatArray, weights: FloatArray, level: float) -> FloatArray:
    order = np.argsort(draws, axis=0)
    reached = np.cumsum(weights[order], axis=0) >= level
    return np.take_along_axis(draws, np.take_along_axis(
        order, reached.argmax(axis=0)[None], axis=0), axis=0)[0]  # fmt: skip


def _inference_data(fit: HierarchicalFit) -> Any:
    """Posterior, log likelihood, predictions and data, with names of models and tasks."""
    parameters = fit.posterior.parameters
    cells = ("accuracy", "cell", "right", "trials")
    dims = {name: ["model", "task"] for name in cells}
    axis = {"performance": "model", "difficulty": "task", "coefficients": "covariate"}
    dims |= {name: [what] for name, what in axis.items() if name in parameters}
    if "sd_interaction" in parameters and parameters["sd_interaction"].ndim == 3:
        dims["sd_interaction"] = ["task"]
    covariates = [*fit.covariates["models"].names, *fit.covariates["tasks"].names]
    coords: dict[str, Any] = {"model": list(fit.models), "task": list(fit.tasks)}
    if covariates:
        coords["covariate"] = covariates
    groups = {
        "posterior": {"accuracy": fit.posterior.accuracy, **parameters},
        "log_likelihood": {"cell": fit.posterior.predictions.log_likelihood},
        "posterior_predictive": {"right": fit.posterior.predictions.replicated},
        "observed_data": {"right": fit.counts.right},
        "constant_data": {"trials": fit.counts.trials},
    }
    return inference_data(groups, coords, dims)
