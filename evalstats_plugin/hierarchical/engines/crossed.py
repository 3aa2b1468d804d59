"""Crossed random-effects models of accuracy: logistic likelihood, normal effects.

logit P(right) = b + x'β + λ_m - τ_t + μ_mt, and - κ_ti for question i in models with questions.
λ_m ~ N(0, σ_λ²) is a model's performance across tasks, τ_t ~ N(0, σ_τ²) a task's difficulty,
μ_mt ~ N(0, σ_μ²) the interaction of model and task, κ_ti ~ N(0, σ_κ²) a question's difficulty; x
are covariates of models and tasks. Here: the structure, its data and priors, and prior draws.
`crossed_gibbs` draws from the posterior.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, cast

import numpy as np
import torch
from scipy import special
from torch import Tensor

from evalstats_plugin.hierarchical.data import Counts
from evalstats_plugin.hierarchical.engines.posterior import replicate
from evalstats_plugin.hierarchical.methods import DEFAULT_PRIOR, Prior
from evalstats_plugin.stats.arrays import FloatArray

Family = Literal["gamma", "half-normal", "lognormal"]

INTERCEPT_SD, COEFFICIENT_SD = 1.0, 1.0
"""Prior standard deviations of b, and of β for standardised covariates."""


class ScalePrior(NamedTuple):
    """Prior of a standard deviation σ.

    ``gamma``: shape and rate; ``half-normal``: scale (the second number is not used);
    ``lognormal``: mean and standard deviation of log σ.
    """

    family: Family
    first: float
    second: float = 0.0

    def log_density(self, log_scale: Tensor) -> Tensor:
        """Log density of log σ, up to a constant (the density of σ times σ)."""
        if self.family == "gamma":
            return self.first * log_scale - self.second * log_scale.exp()
        if self.family == "half-normal":
            return log_scale - (2 * log_scale).exp() / (2 * self.first**2)
        return -0.5 * ((log_scale - self.first) / self.second).square()

    def log_constant(self) -> float:
        """The constant that `log_density` leaves out, needed to compare two priors."""
        if self.family == "gamma":
            return self.first * math.log(self.second) - math.lgamma(self.first)
        if self.family == "half-normal":
            return math.log(2) - math.log(self.first) - 0.5 * math.log(2 * math.pi)
        return -math.log(self.second) - 0.5 * math.log(2 * math.pi)

    def draw(self, size: tuple[int, ...], rng: np.random.Generator) -> FloatArray:
        """Draw σ."""
        if self.family == "gamma":
            return rng.gamma(self.first, 1 / self.second, size)
        if self.family == "half-normal":
            return np.abs(rng.normal(0.0, self.first, size))
        return np.exp(rng.normal(self.first, self.second, size))


def scale_prior(priors: Mapping[str, Prior], scale: str) -> ScalePrior:
    """Return the prior of one standard deviation, by name or the default."""
    family, *numbers = priors.get(scale, priors.get("default", DEFAULT_PRIOR))
    return ScalePrior(cast("Family", family), *numbers)


def log_prior(prior: ScalePrior, scale: FloatArray) -> FloatArray:
    """Log density of log σ at σ, normalised, so that two priors can be compared."""
    values = prior.log_density(torch.as_tensor(np.log(np.maximum(scale, 1e-300))))
    return values.numpy() + prior.log_constant()


@dataclass(frozen=True, kw_only=True)
class CrossedModel:
    """The effects of a model, and their priors."""

    across_tasks: bool = True
    """Whether models have an effect λ across tasks."""
    questions: bool = False
    """Whether questions have effects κ: columns are questions, not tasks, and each task has its
    own σ_μ."""
    common: bool = False
    """Whether all tasks have the same σ_μ nevertheless."""
    priors: Mapping[str, Prior] = field(default_factory=dict[str, Prior])
    """Priors of standard deviations, by a name of `SCALES` or ``"default"``."""

    def prior(self, scale: str) -> ScalePrior:
        """Return the prior of one standard deviation."""
        return scale_prior(self.priors, scale)


@dataclass(frozen=True, eq=False)
class CrossedData:
    """Right answers of N models in M columns, which are tasks, or the questions of tasks."""

    right: Tensor
    """Shape (N, M); fractions are partial credit."""
    trials: Tensor
    """Shape (N, M): 0 where missing."""
    task: Tensor
    """Shape (M,): the task of each column, numbered from 0."""
    n_tasks: int
    model_covariates: Tensor
    """Shape (N, P)."""
    task_covariates: Tensor
    """Shape (T, Q): what makes tasks hard, hence with a minus sign."""
    member: Tensor | None = field(init=False)
    """Shape (M, T): 1 where a column is of the task; None where columns are the tasks."""

    def __post_init__(self) -> None:
        own = torch.arange(self.n_tasks, device=self.task.device)
        plain = len(self.task) == self.n_tasks and bool((self.task == own).all())
        member = None if plain else (self.task[:, None] == own).to(self.right)
        object.__setattr__(self, "member", member)

    def by_task(self, values: Tensor) -> Tensor:
        """Sum columns (..., M) within their tasks, (..., T)."""
        return values if self.member is None else values @ self.member

    def to_columns(self, values: Tensor) -> Tensor:
        """Give every column (..., M) the value of its task (..., T)."""
        return values if self.member is None else values[..., self.task]

    @property
    def totals(self) -> tuple[Tensor, Tensor]:
        """Right answers and trials of each model on each task, (N, T)."""
        return self.by_task(self.right), self.by_task(self.trials)

    @property
    def sizes(self) -> Tensor:
        """Columns of each task, (T,)."""
        ones = self.right.new_ones(len(self.task))
        return ones.new_zeros(self.n_tasks).index_add_(0, self.task, ones)

    @property
    def design(self) -> Tensor:
        """The intercept and the covariates of each model on each task, (N, T, 1 + P + Q)."""
        n, t = len(self.right), self.n_tasks
        ones = self.right.new_ones(n, t, 1)
        models = self.model_covariates[:, None].expand(n, t, -1)
        return torch.cat([ones, models, -self.task_covariates.expand(n, t, -1)], dim=2)


def simulate(
    structure: CrossedModel, counts: Counts, size: int, rng: np.random.Generator,
    tails: float | None = None,
) -> FloatArray:  # fmt: skip
    """Draw effects from their priors, and right answers given them, (S, N, M).

    Parameters
    ----------
    tails
        Degrees of freedom of interactions; None: normal ones.
    """
    n, m = counts.trials.shape
    t = len(counts.tasks)

    def scale(name: str, many: int = 1) -> FloatArray:
        return structure.prior(name).draw((size, many), rng)

    level = INTERCEPT_SD * rng.standard_normal((size, 1, 1))
    for values, sign, axis in ((counts.models, 1, 2), (counts.tasks, -1, 1)):
        drawn = COEFFICIENT_SD * rng.standard_normal((size, values.shape[1]))
        level = level + sign * np.expand_dims(drawn @ values.T, axis)
    level = level - (scale("task") * rng.standard_normal((size, t)))[:, None]
    if structure.across_tasks:
        level = level + (scale("model") * rng.standard_normal((size, n)))[..., None]
    own = scale("interaction", t if structure.questions and not structure.common else 1)
    noise = rng.standard_normal((size, n, t))
    if tails is not None:
        noise *= np.sqrt(tails / rng.chisquare(tails, noise.shape))
    level = level + own[:, None] * noise
    logit = level[..., counts.task]
    if structure.questions:
        logit = logit - (scale("question") * rng.standard_normal((size, m)))[:, None]
    share = special.expit(logit)
    return replicate(rng, counts.trials, share)
