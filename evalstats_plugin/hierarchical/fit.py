"""Results of hierarchical models: `HierarchicalFit` and what it answers.

A fit holds posterior draws. From them come records of performance, difficulty, contrasts and
effects of covariates. Model checks: posterior predictive checks, leave-one-out
cross-validation, model evidence, and sensitivity to priors of standard deviations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from evalstats_plugin.data.results import Results, finite, records
from evalstats_plugin.data.runs import place_of
from evalstats_plugin.errors import DesignError, SelectionError, counted, no_such
from evalstats_plugin.hierarchical.data import EvalCounts, Standardised
from evalstats_plugin.hierarchical.methods import (
    BY_QUESTION,
    CLOSED_FORM,
    HIERARCHICAL_MODELS,
    Prior,
)
from evalstats_plugin.hierarchical.rows import (
    Check,
    Contrast,
    Effect,
    Elpd,
    Evidence,
    LeftOutScore,
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
from evalstats_plugin.stats.arrays import FloatArray, steady
from evalstats_plugin.stats.interval import tail_probability

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
        parameters, tasks = self.posterior.parameters, self.covariates["tasks"]
        if "difficulty" not in parameters:
            return Results((), self.notes, self.seed)
        draws = parameters["difficulty"]
        if tasks.names:
            own = parameters["coefficients"][:, :, len(self.covariates["models"].names) :]
            draws = draws + own @ tasks.values.T
        summary = spread(draws - draws.mean(axis=2, keepdims=True), self.confidence_level)
        counts, order = self.counts, np.argsort(-steady(summary.mean), kind="stable")
        right, trials = counts.right.sum(axis=0), counts.trials.sum(axis=0)
        columns: dict[str, Sequence[Any]] = {
            "task": [counts.tasks[i] for i in order],
            "n_items": np.bincount(counts.task, minlength=len(counts.tasks))[order].tolist(),
            "n_models": (counts.trials > 0).sum(axis=0)[order].tolist(),
            "score": (right / trials)[order].tolist(),
            **Spread(*(x[order] for x in summary)).columns(),
        }
        same = {"metric": counts.metric, "confidence_level": self.confidence_level}
        rows = tuple(records(TaskDifficulty, columns, same))
        return Results(rows, self.notes, self.seed)

    def contrasts(
        self, *, baseline: str | None = None, task: str | None = None
    ) -> Results[Contrast]:
        """Compare every pair of models, or all with a baseline, over all tasks or on one.

        Raises
        ------
        SelectionError
            No model, or no task, has the name.
        """
        counts, n = self.counts, len(self.models)
        if baseline is None:
            a, b = np.triu_indices(n, 1)
        else:
            base = place_of(baseline, self.models)
            b = np.delete(np.arange(n), base)
            a = np.full(n - 1, base)
        accuracy = self.posterior.accuracy
        if task is not None:
            at = place_of(task, self.tasks, "task")
            accuracy = accuracy[:, :, :, at : at + 1]
        rows: list[Contrast] = []
        same = {
            "task": task,
            "metric": counts.metric,
            "confidence_level": self.confidence_level,
            "method": self.model,
        }
        overall = accuracy.mean(axis=3)
        # One row of pairs at a time: all comparisons would be many times as large as the draws.
        for first in dict.fromkeys(a.tolist()):
            others = b[a == first]
            difference = overall[:, :, others] - overall[:, :, first : first + 1]
            summary = spread(difference, self.confidence_level)
            ahead = (difference > 0).mean(axis=(0, 1))
            higher = accuracy[:, :, others] > accuracy[:, :, first : first + 1]
            on_task = higher.mean(axis=(0, 1, 3))
            columns: dict[str, Sequence[Any]] = {
                "model_a": [self.models[first]] * len(others),
                "model_b": [self.models[i] for i in others],
                **summary.columns("difference"),
                "prob_better": ahead.tolist(),
                "prob_better_on_a_task": on_task.tolist(),
            }
            rows += records(Contrast, columns, same)
        return Results(tuple(rows), self.notes, self.seed)

    def effects(self) -> Results[Effect]:
        """Return the effects of covariates of models and tasks."""
        if "coefficients" not in self.posterior.parameters:
            return Results((), self.notes, self.seed)
        draws = self.posterior.parameters["coefficients"]
        models, tasks = self.covariates["models"], self.covariates["tasks"]
        # Coefficients of tasks are of difficulty.
        sign = np.array([1.0] * len(models.names) + [-1.0] * len(tasks.names))
        sd = np.concatenate([models.sd, tasks.sd])
        summary = spread(draws * sign / sd, self.confidence_level)
        columns: dict[str, Sequence[Any]] = {
            "covariate": [*models.names, *tasks.names],
            "of": ["models"] * len(models.names) + ["tasks"] * len(tasks.names),
            "estimate": summary.mean.tolist(),
            "low": summary.low.tolist(),
            "high": summary.high.tolist(),
            "per_sd": (summary.mean * sd).tolist(),
            "prob_positive": (draws * sign > 0).mean(axis=(0, 1)).tolist(),
        }
        rows = records(Effect, columns, {"confidence_level": self.confidence_level})
        return Results(tuple(rows), self.notes, self.seed)

    def check(self) -> Results[Check]:
        """Posterior predictive checks: compare the data with replicated data."""
        _not_by_formula(self)
        counts = self.counts
        # Models with effects of questions replicate every epoch, not the mean over epochs.
        right, trials = counts.informative
        if self.model not in (*CLOSED_FORM, "task"):
            right, trials = counts.by_epoch
        drawn = self.posterior.predictions.replicated.reshape(-1, *right.shape)
        observed, predicted = _statistics(right, trials), _statistics(drawn, trials)
        return Results(tuple(
            predictive_check(name, float(observed[name]), values, self.confidence_level)
            for name, values in predicted.items()
        ))  # fmt: skip

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
        _not_by_formula(self)
        names = list(dict.fromkeys((self.model, *models)))
        for name in names:
            if name not in HIERARCHICAL_MODELS:
                allowed = ", ".join(HIERARCHICAL_MODELS)
                raise SelectionError(no_such("model", name, HIERARCHICAL_MODELS, allowed))
        counts = self.counts
        plain = (
            bool(np.isin(counts.question_right, (0.0, 1.0)).all())
            and counts.question_trials.max() <= 1
        )
        if not plain and len({name in BY_QUESTION for name in names}) > 1:
            msg = f"models {', '.join(names)} do not predict the same: some count every epoch of a "
            raise DesignError(f"{msg}question, others average them; compare those of one kind")
        left_out = {name: _left_out(self if name == self.model else self.with_model(name, rng))
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
        return Results(tuple(sorted(rows, key=lambda row: -row.elpd)), (), rng)

    def evidence(self, *, rng: int = 0) -> Results[Evidence]:
        """Compare models by their marginal likelihood, the best first.

        For one model or one task: no engine computes the evidence of crossed evals.

        Raises
        ------
        DesignError
            Several models on several tasks: compare fits by `loo`.
        """
        _not_by_formula(self)
        if not has_evidence(self):
            n, t = self.counts.right.shape
            msg = f"{n} models on {t} tasks: the evidence is computed for one model or one task"
            raise DesignError(f"{msg}; compare the loo() of fits")
        fits = [self if self.model == name else self.with_model(name, rng) for name in COMPARED]
        with_evidence = [
            (x, x.log_evidence, x.log_evidence_error or 0.0)
            for x in fits
            if x.log_evidence is not None
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
        return Results(tuple(sorted(rows, key=lambda row: -row.log_evidence)), (), rng)

    def prior_sensitivity(
        self, priors: Mapping[str, Prior] | None = None, *, rng: int = 0
    ) -> Results[PriorChange]:
        """Fit again with other priors of the standard deviations: how do the results change?

        Parameters
        ----------
        priors
            Priors by any name, each for all standard deviations. Default: half as wide and twice
            as wide as Gamma(2, 2), and half-normal.
        """
        _not_by_formula(self)
        if self.model in CLOSED_FORM:
            msg = f"model {self.model!r} has no standard deviations whose prior could be changed"
            raise DesignError(msg)
        # Processes are not sent the draws of this fit.
        refit, level = self.refit, self.confidence_level

        def refitted(prior: Prior) -> tuple[Spread, float]:
            again = refit({"default": prior}, rng)
            overall = spread(again.posterior.overall, level)
            return overall, float(again.diagnostics["least_ess"])

        tried = priors or OTHER_PRIORS
        own = self.posterior.overall.reshape(-1, len(self.models))
        rows: list[PriorChange] = []
        for name, (other, ess) in zip(tried, parallel_map(refitted, tried.values()), strict=True):
            columns = {
                "model": self.models,
                "estimate": other.mean.tolist(),
                "low": other.low.tolist(),
                "high": other.high.tolist(),
                "change": ((other.mean - own.mean(axis=0)) / own.std(axis=0)).tolist(),
            }
            rows += records(
                PriorChange, columns, {"prior": name, "metric": self.counts.metric, "ess": ess}
            )
        return Results(tuple(rows), (), rng)

    def to_arviz(self) -> Any:
        """Return posterior, log likelihood, predictions and data as ArviZ holds them.

        ``InferenceData`` with ArviZ 0, ``DataTree`` with ArviZ 1.
        """
        if self.plated is not None:
            return self.plated.to_inference_data()
        parameters = self.posterior.parameters
        cells = ("accuracy", "cell", "right", "trials")
        dims = {name: ["model", "task"] for name in cells}
        axis = {"performance": "model", "difficulty": "task", "coefficients": "covariate"}
        dims |= {name: [what] for name, what in axis.items() if name in parameters}
        if "sd_interaction" in parameters and parameters["sd_interaction"].ndim == 3:
            dims["sd_interaction"] = ["task"]
        covariates = [*self.covariates["models"].names, *self.covariates["tasks"].names]
        coords: dict[str, Any] = {"model": list(self.models), "task": list(self.tasks)}
        if covariates:
            coords["covariate"] = covariates
        groups = {
            "posterior": {"accuracy": self.posterior.accuracy, **parameters},
            "log_likelihood": {"cell": self.posterior.predictions.log_likelihood},
            "posterior_predictive": {"right": self.posterior.predictions.replicated},
            "observed_data": {"right": self.counts.right},
            "constant_data": {"trials": self.counts.trials},
        }
        return inference_data(groups, coords, dims)

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
    mean = np.nanmean(share, axis=(-2, -1))
    left = share - models[..., None] - tasks[..., None, :] + mean[..., None, None]
    return {
        "mean score": mean,
        "standard deviation of models": models.std(axis=-1),
        "standard deviation of tasks": tasks.std(axis=-1),
        "standard deviation of what is left": np.nanstd(left, axis=(-2, -1)),
        "least score of a cell": np.nanmin(share, axis=(-2, -1)),
        "greatest score of a cell": np.nanmax(share, axis=(-2, -1)),
        "cells all right or all wrong": (
            ((right == 0) | (right == trials)) & run
        ).sum(axis=(-2, -1)).astype(np.float64),
    }  # fmt: skip


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


def _left_out(fit: HierarchicalFit) -> LeftOut:
    """Leave each cell out: exactly in closed form, else by smoothed importance weights."""
    _not_by_formula(fit)
    run = fit.counts.trials > 0
    if fit.model not in CLOSED_FORM:
        cells = fit.posterior.predictions.log_likelihood[:, :, run]
        return left_out(cells, fit.posterior.overall[:, : cells.shape[1]])
    from scipy import special

    from evalstats_plugin.hierarchical.engines.posterior import log_left_out, shares

    right, trials = fit.counts.informative
    posterior_shares = shares(right, trials, pooled=fit.model == "beta-binomial")
    cells = log_left_out(posterior_shares, right, trials)[run]
    mean = posterior_shares.mean
    full = (special.xlogy(right, mean) + special.xlog1py(trials - right, -mean))[run]
    return LeftOut(cells, float((full - cells).sum()), None)


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


def expected_density(loo: LeftOut) -> Elpd:
    """Return the expected log predictive density, summed over cells."""
    notes: list[str] = []
    if loo.unreliable:
        notes.append(
            f"{loo.unreliable} of {counted(loo.cells.size, 'cell')} have a Pareto k above "
            f"{PARETO_K_LIMIT}: their predictions are not reliable"
        )
    return Elpd(elpd=float(loo.cells.sum()),
                std_error=float(np.sqrt(loo.cells.size) * loo.cells.std()),
                n_effective=loo.n_effective, n_cells=loo.cells.size,
                notes=tuple(notes))  # fmt: skip


def _not_by_formula(fit: HierarchicalFit) -> None:
    """Raise `DesignError` for the fit of a formula, whose predictions are those of its plates."""
    if fit.plated is not None:
        msg = "fits of formulas are not judged this way"
        raise DesignError(f"{msg}: take predictive() or log_likelihood() of their plated fit")


def has_evidence(fit: HierarchicalFit) -> bool:
    """Return whether the evidence of models can be computed for these data."""
    return min(fit.counts.right.shape) == 1 and fit.plated is None
