"""What crossed models say before they see data, and of tasks that they did not see."""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from scipy import special

from evalstats_plugin.hierarchical.crossed import CrossedModel, ScalePrior
from evalstats_plugin.hierarchical.posterior import FloatArray, mean_accuracy

PriorSpec = Sequence[str | float]


def scale_prior(priors: Mapping[str, PriorSpec], scale: str) -> ScalePrior:
    """Return the prior of one standard deviation, by name or the default."""
    return ScalePrior(*priors.get(scale, priors["default"]))  # type: ignore[arg-type]


def log_prior(prior: ScalePrior, scale: FloatArray) -> FloatArray:
    """Log density of log σ at σ, normalised, so that two priors can be compared."""
    values = prior.log_density(torch.from_numpy(np.log(np.maximum(scale, 1e-300))))
    return values.numpy() + prior.log_constant()


def mean_levels(
    parameters: Mapping[str, FloatArray], models: FloatArray, task: FloatArray
) -> FloatArray:
    """Logit of each model on a task of middling difficulty, by draw (K, S, N).

    Parameters
    ----------
    models, task
        Standardised covariates, (N, P) of the models and (Q,) of the task.
    """
    level = parameters["intercept"][..., None] + np.zeros(len(models))
    if "performance" in parameters:
        level = level + parameters["performance"]
    if "coefficients" in parameters:
        own, other = np.split(parameters["coefficients"], [models.shape[1]], axis=2)
        level = level + own @ models.T - (other @ task)[..., None]
    return level


def new_task(
    parameters: Mapping[str, FloatArray],
    level: FloatArray,
    priors: Mapping[str, PriorSpec],
    rng: np.random.Generator,
) -> FloatArray:
    """Draw accuracies (K, S, N) on a task whose difficulty and interactions are drawn anew."""
    spread = parameters["sd_interaction"]
    if spread.ndim == 3:
        # Each task has its own; of another one only the prior is known.
        spread = scale_prior(priors, "interaction").draw(spread.shape[:2], rng)
    difficulty = parameters["sd_difficulty"] * rng.standard_normal(level.shape[:2])
    found = level - difficulty[..., None]
    found = found + spread[..., None] * rng.standard_normal(level.shape)
    if "sd_question" not in parameters:
        return special.expit(found)
    return mean_accuracy(found, parameters["sd_question"][..., None])


class Simulated(NamedTuple):
    """Drawn from the prior."""

    accuracy: FloatArray
    """(S, N, T)."""
    right: FloatArray
    """Right answers, (S, N, M) in the columns of the data."""


class Columns(NamedTuple):
    """Shape of the data: trials (N, M), the task of each column, covariates."""

    trials: FloatArray
    task: FloatArray
    models: FloatArray
    tasks: FloatArray


def simulate(
    structure: CrossedModel, columns: Columns, size: int, rng: np.random.Generator
) -> Simulated:
    """Draw effects from their priors, and answers given them."""
    n, m = columns.trials.shape
    t = len(columns.tasks)
    task = columns.task.astype(np.int64)

    def scale(name: str, many: int = 1) -> FloatArray:
        return structure.prior(name).draw((size, many), rng)

    level = structure.intercept_sd * rng.standard_normal((size, 1, 1))
    for values, sign, axes in ((columns.models, 1, (1, 2)), (columns.tasks, -1, (2, 1))):
        drawn = structure.coefficient_sd * rng.standard_normal((size, values.shape[1]))
        level = level + sign * np.expand_dims(drawn @ values.T, axes[1])
    level = level - (scale("task") * rng.standard_normal((size, t)))[:, None]
    if structure.across_tasks:
        level = level + (scale("model") * rng.standard_normal((size, n)))[..., None]
    own = scale("interaction", t if structure.spread_by_task else 1)
    level = level + own[:, None] * rng.standard_normal((size, n, t))
    if not structure.questions:
        accuracy = special.expit(level)
        share = accuracy[..., task]
    else:
        spread = scale("question")
        accuracy = mean_accuracy(level, spread[..., None])
        question = spread * rng.standard_normal((size, m))
        share = special.expit(level[..., task] - question[:, None])
    trials = np.broadcast_to(np.rint(columns.trials).astype(np.int64), share.shape)
    return Simulated(accuracy, rng.binomial(trials, share).astype(np.float64))
