"""Does the model make such data, how well does it predict, and what does its prior matter?"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from evalstats_plugin.analyses.hierarchical_records import Check, Elpd, Prior, PriorChange
from evalstats_plugin.engines import mapped
from evalstats_plugin.errors import DesignError
from evalstats_plugin.stats.interval import FloatArray, tail_probability
from evalstats_plugin.tables.hierarchical import CLOSED_FORM

if TYPE_CHECKING:
    from evalstats_plugin.analyses.hierarchical_fit import HierarchicalFit

OTHER_PRIORS: Mapping[str, tuple[str, float] | tuple[str, float, float]] = {
    "half as wide, gamma(2, 4)": ("gamma", 2.0, 4.0),
    "twice as wide, gamma(2, 1)": ("gamma", 2.0, 1.0),
    "half-normal(1)": ("half-normal", 1.0),
}
"""Tried by default beside the prior of the fit."""

UNRELIABLE = 0.7
"""Pareto k from which on reweighted draws are not trusted [VSG24]_."""

_PRIOR_NUMBERS = 20_000_000
_SCALES = ("performance", "difficulty", "interaction", "question")
_NAMES = ("model", "task", "interaction", "question")


def arviz() -> Any:
    """Return the library.

    Raises
    ------
    DesignError
        It is not installed.
    """
    try:
        return import_module("arviz")
    except ModuleNotFoundError as error:
        msg = "this needs ArviZ: pip install 'evalstats-plugin[hierarchical]'"
        raise DesignError(msg) from error


def _statistics(right: FloatArray, trials: FloatArray) -> dict[str, FloatArray]:
    """Of right answers (..., N, T): what the model may miss, each (...)."""
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


def predictive(fit: HierarchicalFit, rng: np.random.Generator, *, prior: bool) -> list[Check]:
    """Compare the scores of models and tasks with those of data drawn anew."""
    counts = fit.counts
    # Replications are of takes where questions are told apart.
    right, trials = (counts.right, counts.trials)
    if fit.model not in (*CLOSED_FORM, "task"):
        member = (counts.task[:, None] == np.arange(len(counts.tasks))).astype(np.float64)
        right, trials = counts.question_right @ member, counts.question_trials @ member
    drawn = _from_the_prior(fit, rng) if prior else fit.posterior.replicated
    drawn = drawn.reshape(-1, *right.shape)
    observed, predicted = _statistics(right, trials), _statistics(drawn, trials)
    tail = tail_probability(fit.confidence_level)
    found: list[Check] = []
    for name, values in predicted.items():
        own = float(observed[name])
        low, high = np.quantile(values, [tail, 1 - tail]).tolist()
        p = float((values > own + 1e-9).mean() + (np.abs(values - own) <= 1e-9).mean() / 2)
        found.append(
            Check(statistic=name, observed=own, predicted=float(values.mean()), low=low, high=high,
                  p_value=p)
        )  # fmt: skip
    return found


def _from_the_prior(fit: HierarchicalFit, rng: np.random.Generator) -> FloatArray:
    """Right answers (S, N, T) drawn from the prior."""
    counts = fit.counts
    if fit.model in CLOSED_FORM:
        width = 1 if fit.model == "beta-binomial" else len(counts.tasks)
        share = rng.uniform(size=(1000, len(counts.models), width))
        return rng.binomial(counts.trials.astype(np.int64), share).astype(np.float64)
    from evalstats_plugin.hierarchical.crossed_prior import Columns, simulate
    from evalstats_plugin.hierarchical.models import crossed_model_of

    by_question = fit.model != "task"
    trials = counts.question_trials if by_question else counts.trials
    task = counts.task if by_question else np.arange(len(counts.tasks))
    columns = Columns(
        trials,
        task.astype(np.float64),
        fit.covariates["models"].values,
        fit.covariates["tasks"].values,
    )
    size = int(np.clip(_PRIOR_NUMBERS / trials.size, 20, 1000))
    drawn = simulate(crossed_model_of(fit.model, fit.priors), columns, size, rng).right
    member = (task[:, None] == np.arange(len(counts.tasks))).astype(np.float64)
    return drawn @ member


def expected_density(fit: HierarchicalFit, criterion: Literal["loo", "waic"]) -> Elpd:
    """Sum over the cells that were run."""
    run = fit.counts.trials > 0
    if criterion == "loo" and fit.model in CLOSED_FORM:
        return _exact(fit, run)
    az = arviz()
    cells = fit.posterior.log_likelihood[:, :, run]
    data = az.from_dict(
        posterior={"overall": fit.posterior.overall[:, : cells.shape[1]]},
        log_likelihood={"cell": cells},
    )
    with warnings.catch_warnings():
        # What ArviZ warns of goes into the notes.
        warnings.simplefilter("ignore")
        found: Any = getattr(az, criterion)(data, pointwise=True)
    elpd, se, p = (float(found[k]) for k in (f"elpd_{criterion}", "se", f"p_{criterion}"))
    notes: list[str] = []
    worst = float(np.max(found["pareto_k"])) if criterion == "loo" else None
    if worst is not None and worst > UNRELIABLE:
        bad = int((np.asarray(found["pareto_k"]) > UNRELIABLE).sum())
        notes.append(
            f"{bad} of {int(run.sum())} cells have a Pareto k above {UNRELIABLE}: what is said of "
            "them is not reliable"
        )
    if criterion == "waic" and bool(found["warning"]):
        notes.append("a cell's log likelihood varies by more than .4 among draws: prefer loo")
    return Elpd(criterion=criterion, elpd=elpd, std_error=se, n_effective=p,
                n_cells=int(run.sum()), worst_k=worst, notes=tuple(notes))  # fmt: skip


def _exact(fit: HierarchicalFit, run: Any) -> Elpd:
    from scipy import special

    from evalstats_plugin.hierarchical.beta_binomial import log_left_out, shares

    counts = fit.counts
    found = shares(counts.right, counts.trials, pooled=fit.model == "beta-binomial")
    cells = log_left_out(found, counts.right, counts.trials)[run]
    mean = found.mean
    full = (special.xlogy(counts.right, mean) + special.xlog1py(
        counts.trials - counts.right, -mean))[run]  # fmt: skip
    return Elpd(criterion="loo", elpd=float(cells.sum()),
                std_error=float(np.sqrt(cells.size) * cells.std()),
                n_effective=float((full - cells).sum()), n_cells=cells.size,
                worst_k=None)  # fmt: skip


def prior_changes(
    fit: HierarchicalFit, priors: Mapping[str, Prior] | None, seed: int
) -> list[PriorChange]:
    """Estimates over all tasks with each other prior."""
    if fit.model in CLOSED_FORM:
        msg = f"model {fit.model!r} has no standard deviations whose prior could be changed"
        raise DesignError(msg)
    tried = priors or OTHER_PRIORS
    smoothed = {name: _smoothed(_log_ratio(fit, prior).ravel()) for name, prior in tried.items()}
    far = [name for name, (_, k) in smoothed.items() if not k < UNRELIABLE]
    again = mapped(partial(_refitted, fit.refit, seed), [tried[name] for name in far])
    refitted = dict(zip(far, again, strict=True))
    found: list[PriorChange] = []
    for name, (weights, _) in smoothed.items():
        found += _changed(fit, name, weights, refitted.get(name))
    return found


def _refitted(
    refit: Callable[[Mapping[str, Prior], int], HierarchicalFit], seed: int, prior: Prior
) -> tuple[FloatArray, float]:
    """Draws over all tasks, and how many they are worth."""
    again = refit({"default": prior}, seed)
    return again.posterior.overall, float(again.diagnostics["least_ess"])


def _changed(
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


def _smoothed(log_ratio: FloatArray) -> tuple[FloatArray, float]:
    """Weights that sum to 1, their largest ones smoothed, and Pareto k [VSG24]_."""
    if np.ptp(log_ratio) < 1e-9:
        return np.full(len(log_ratio), 1 / len(log_ratio)), -np.inf
    az = arviz()
    with warnings.catch_warnings():
        # A large k, of which it warns, is acted on.
        warnings.simplefilter("ignore")
        smoothed, k = az.psislw(log_ratio)
    weights = np.exp(np.asarray(smoothed))
    return weights / weights.sum(), float(k)


def _log_ratio(fit: HierarchicalFit, prior: Prior) -> FloatArray:
    """Of the new prior to the old, at each draw (K, S)."""
    from evalstats_plugin.hierarchical.crossed_prior import log_prior, scale_prior

    total = np.zeros(fit.posterior.accuracy.shape[:2])
    for effect, scale in zip(_SCALES, _NAMES, strict=True):
        sd = fit.posterior.parameters.get(f"sd_{effect}")
        if sd is None:
            continue
        new, old = (scale_prior(p, scale) for p in ({"default": prior}, fit.priors))
        difference = log_prior(new, sd) - log_prior(old, sd)
        total += difference.sum(axis=2) if difference.ndim == 3 else difference
    return total


def _weighted_quantile(draws: FloatArray, weights: FloatArray, level: float) -> FloatArray:
    order = np.argsort(draws, axis=0)
    reached = np.cumsum(weights[order], axis=0) >= level
    return np.take_along_axis(draws, np.take_along_axis(
        order, reached.argmax(axis=0)[None], axis=0), axis=0)[0]  # fmt: skip


def inference_data(fit: HierarchicalFit) -> Any:
    """Posterior, log likelihood, predictions and data, with names of models and tasks."""
    az = arviz()
    known = fit.posterior.parameters
    cells = ("accuracy", "cell", "right", "trials")
    dims = {name: ["model", "task"] for name in cells}
    axis = {"performance": "model", "difficulty": "task", "coefficients": "covariate"}
    dims |= {name: [what] for name, what in axis.items() if name in known}
    if "sd_interaction" in known and known["sd_interaction"].ndim == 3:
        dims["sd_interaction"] = ["task"]
    covariates = [*fit.covariates["models"].names, *fit.covariates["tasks"].names]
    coords: dict[str, Any] = {"model": list(fit.models), "task": list(fit.tasks)}
    if covariates:
        coords["covariate"] = covariates
    return az.from_dict(
        posterior={"accuracy": fit.posterior.accuracy, **known},
        log_likelihood={"cell": fit.posterior.log_likelihood},
        posterior_predictive={"right": fit.posterior.replicated},
        observed_data={"right": fit.counts.right, "trials": fit.counts.trials},
        coords=coords,
        dims=dims,
    )
