"""Massively parallel inference of nested evals: one model on several tasks, or several on one.

logit P(right) = level ± x'β +
deviation of each unit, a task or a model. The level is the intercept and the effect that all units
share; a deviation is the sum of the unit's effect and its interaction, which the answers cannot
separate. The effects are drawn given these sums at the end, as in the ``task`` model of
`crossed_gibbs`, so that both engines return the same quantities.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from scipy import special
from torch import Tensor
from torch.nn import functional

from evalstats_plugin.hierarchical.data import Counts
from evalstats_plugin.hierarchical.engines.crossed_gibbs import (
    COEFFICIENT_SD,
    INTERCEPT_SD,
    CrossedModel,
    ScalePrior,
)
from evalstats_plugin.hierarchical.engines.plates.distributions import Beta, Gamma, Normal
from evalstats_plugin.hierarchical.engines.plates.fit import FitOptions, infer
from evalstats_plugin.hierarchical.engines.plates.model import (
    Latent,
    Model,
    Observed,
    Plate,
    with_arguments,
)
from evalstats_plugin.hierarchical.engines.plates.results import PlatedFit
from evalstats_plugin.hierarchical.engines.posterior import Posterior, Predictions, replicate
from evalstats_plugin.stats.arrays import FloatArray

INFORMATIVE = 100.0
"""Mean number of questions from which on logits are proposed themselves (centred).

Below, the distance from the level in units of the spread is proposed (non-centred): where the
spread may be near 0, the density of a logit has a spike at the level, and few particles carry the
weight. Above, the answers determine logits so well that distances depend strongly on the level and
spread.
"""

_FEWEST, _MOST, _MAX_ENTRIES = 50, 150, 1_000_000
"""Fewest and most particles, and entries of the table of pairs of particles by unit."""

_PREDICTED = 1000
"""Draws for which likelihoods and replications are kept."""

_NODES = 15
"""Nodes of the quadrature over a logit."""

_NEWTON_STEPS = 4


class ParticleFit(NamedTuple):
    """Draws in the form that all engines share, and the fit of the plates engine."""

    posterior: Posterior
    plated: PlatedFit
    particles: int
    """Number of particles of each group, in all sets together."""


def fit_nested(
    counts: Counts,
    structure: CrossedModel,
    rng: np.random.Generator,
    size: tuple[int, int],
    device: str,
) -> ParticleFit:
    """Infer a nested eval, whose columns are tasks, by QEM.

    Parameters
    ----------
    size
        Number of chains and draws of each, as for Gibbs sampling; here draws are independent.

    Raises
    ------
    DesignError
        Not enough memory.
    """
    layout = _layout(counts)
    data = {"right": counts.right.ravel(), "trials": counts.trials.ravel()}
    if layout.covariates.shape[1]:
        data["x"] = layout.covariates
    options = FitOptions(k=n_particles(counts.right.size), draws=size[0] * size[1], wider=0)
    model = nested_model(counts, structure)
    fit = infer(model, data, options=options, device=device, rng=rng)
    drawn = _shuffled(fit, rng)
    scales = components(torch.as_tensor(drawn["spread"]), torch.as_tensor(drawn["angle"]))
    drawn |= {f"sd_{layout.own}": scales[0].numpy(), "sd_interaction": scales[1].numpy()}
    mean = drawn["level"][:, None]
    if "beta" in drawn:
        mean = mean + layout.sign * drawn["beta"] @ layout.covariates.T
    if not layout.centred:
        drawn["theta"] = mean + drawn["spread"][:, None] * drawn["distance"]
    parameters = _effects(drawn, layout, mean, rng)
    shape = (-1, *counts.right.shape)
    cells = Cells(
        drawn["theta"].reshape(shape),
        (mean + 0 * drawn["theta"]).reshape(shape),
        drawn["spread"][:, None, None],
    )
    posterior = _posterior_of(counts, cells, parameters, size, rng)
    return ParticleFit(posterior, fit, options.k * options.sets)


def _effects(
    drawn: dict[str, FloatArray],
    layout: _Layout,
    mean: FloatArray,
    rng: np.random.Generator,
) -> dict[str, FloatArray]:
    """Draw the effects given their sums, both normal; names are those that all engines share."""
    shared, own = (drawn[f"sd_{name}"] for name in (layout.shared, layout.own))
    intercept = _first_summand(drawn["level"], INTERCEPT_SD + 0 * shared, shared, rng)
    common = (drawn["level"] - intercept)[:, None]
    other = drawn["sd_interaction"][:, None]
    units = _first_summand(drawn["theta"] - mean, own[:, None], other, rng)
    of_models, of_tasks = (common, -units) if layout.own == "task" else (units, -common)
    effects = {
        "intercept": intercept,
        "performance": of_models,
        "difficulty": of_tasks,
        "sd_performance": drawn["sd_model"],
        "sd_difficulty": drawn["sd_task"],
        "sd_interaction": drawn["sd_interaction"],
    }
    return effects | ({"coefficients": drawn["beta"]} if "beta" in drawn else {})


def _first_summand(
    total: FloatArray, first: FloatArray, second: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Draw the first of two normal variables, given their standard deviations and their sum."""
    share = first**2 / (first**2 + second**2)
    noise = first * second / np.hypot(first, second)
    return share * total + noise * rng.standard_normal(total.shape)


class _Layout(NamedTuple):
    """Roles of model and task effects: which one varies by unit, and which one all units share."""

    own: str
    shared: str
    sign: float
    """Sign of the covariates of units: -1 for tasks, whose covariates are of difficulty."""
    covariates: FloatArray
    centred: bool
    """Whether the latents of units are logits (centred), not distances from the level."""


def _layout(counts: Counts) -> _Layout:
    """Return the roles of effects for one model, or for one task."""
    centred = bool(counts.trials.mean() >= INFORMATIVE)
    if len(counts.right) == 1:
        return _Layout("task", "model", -1.0, counts.tasks, centred)
    return _Layout("model", "task", 1.0, counts.models, centred)


def nested_model(counts: Counts, structure: CrossedModel) -> Model:
    """Declare the model of a nested eval, whose columns are tasks."""
    layout = _layout(counts)
    q = layout.covariates.shape[1]
    latents = _common(layout, structure)
    names = ["level", *(["beta", "x"] if q else [])]

    def mean(given: Mapping[str, Tensor]) -> Tensor:
        if not q:
            return given["level"]
        pull = (given["x"] * given["beta"]).sum(-1, keepdim=True)
        return given["level"] + layout.sign * pull

    # The engine passes arguments by the names in a signature, which differ with the layout.
    def theta(**given: Tensor) -> Normal:
        return Normal(mean(given), given["spread"])

    def from_the_level(**given: Tensor) -> Tensor:
        logit = mean(given) + given["spread"] * given["distance"]
        return log_likelihood(logit, given["right"], given["trials"])

    if layout.centred:
        prior = with_arguments(theta, [*names, "spread"])
        latents.append(Latent("theta", prior, "unit", proposal=Normal(0.0, 1.5)))
        observed = Observed("right", log_likelihood, "unit")
    else:
        latents.append(Latent("distance", Normal(0.0, 1.0), "unit"))
        taken = ["distance", "spread", *names, "right", "trials"]
        observed = Observed("right", with_arguments(from_the_level, taken), "unit")
    return Model(
        plates=[Plate("unit", counts.right.size)],
        inputs={"trials": "unit", **({"x": "unit"} if q else {})},
        latents=latents,
        observed=[observed],
    )


def _common(layout: _Layout, structure: CrossedModel) -> list[Latent]:
    """Latents that all units share, drawn as one group."""
    shared = f"sd_{layout.shared}"
    own, interaction = (Scale(structure.prior(name)) for name in (layout.own, "interaction"))

    def level(**scales: Tensor) -> Normal:
        sd = (INTERCEPT_SD**2 + scales[shared] ** 2).sqrt()
        return Normal(torch.zeros_like(sd), sd)

    def spread(angle: Tensor) -> Ray:
        return Ray(own, interaction, angle)

    scale = Scale(structure.prior(layout.shared))
    latents = [
        Latent(shared, scale, group="common", proposal=scale.start()),
        Latent("angle", Beta(1.0, 1.0), group="common"),
        Latent("spread", spread, group="common", proposal=Gamma(3.0, 3.0)),
        Latent("level", with_arguments(level, [shared]), group="common", proposal=Normal(0.0, 1.0)),
    ]  # fmt: skip
    if layout.covariates.shape[1]:
        prior = Normal(0.0, COEFFICIENT_SD)
        shape = (layout.covariates.shape[1],)
        latents.append(Latent("beta", prior, shape=shape, group="common", proposal=prior))
    return latents


@dataclass(frozen=True)
class Scale:
    """Prior of a standard deviation in the form of the plates engine."""

    prior: ScalePrior

    def log_prob(self, value: Tensor, /) -> Tensor:
        """Log density of σ."""
        log_scale = value.log()
        return self.prior.log_density(log_scale) - log_scale + self.prior.log_constant()

    def start(self) -> Gamma:
        """Return the Gamma distribution of the same mean and variance, the first proposal."""
        first, second = self.prior.first, self.prior.second
        if self.prior.family == "gamma":
            return Gamma(first, second)
        if self.prior.family == "half-normal":
            shape, mean = 2 / (np.pi - 2), first * np.sqrt(2 / np.pi)
        else:
            shape, mean = 1 / np.expm1(second**2), np.exp(first + second**2 / 2)
        return Gamma(shape, shape / mean)


@dataclass(frozen=True)
class Ray:
    """Prior of the length of (σ₁, σ₂) given its direction: only the length is identified."""

    own: Scale
    interaction: Scale
    angle: Tensor
    """Share of a right angle; its base density is uniform."""

    def log_prob(self, value: Tensor, /) -> Tensor:
        """Log density of both standard deviations, times the volume element."""
        own, interaction = components(value, self.angle)
        both = self.own.log_prob(own) + self.interaction.log_prob(interaction)
        return both + value.log() + math.log(math.pi / 2)


def components(length: Tensor, angle: Tensor) -> tuple[Tensor, Tensor]:
    """Return σ₁ and σ₂; neither is 0 to rounding."""
    right = angle.clamp(1e-9, 1 - 1e-9) * (math.pi / 2)
    return length * right.cos(), length * right.sin()


def n_particles(units: int) -> int:
    """Choose the number of particles: fewer for many units.

    >>> n_particles(3), n_particles(100), n_particles(1000)
    (150, 100, 50)
    """
    return int(np.clip(math.isqrt(_MAX_ENTRIES // units), _FEWEST, _MOST))


def log_likelihood(theta: Tensor, right: Tensor, trials: Tensor) -> Tensor:
    """Log probability of the answers, in the order given, at logits θ."""
    return right * theta - trials * functional.softplus(theta)


def _shuffled(fit: PlatedFit, rng: np.random.Generator) -> dict[str, FloatArray]:
    """Return draws in random order, because the engine orders them by set of particles."""
    order = rng.permutation(len(next(iter(fit.draws.values()))))
    return {name: values[order] for name, values in fit.draws.items()}


class Cells(NamedTuple):
    """Draws (S, N, T) of logits, their prior means and standard deviations."""

    logit: FloatArray
    mean: FloatArray
    spread: FloatArray


def _posterior_of(
    counts: Counts,
    cells: Cells,
    parameters: dict[str, FloatArray],
    size: tuple[int, int],
    rng: np.random.Generator,
) -> Posterior:
    """Return draws in the form that all engines share."""

    def in_chains(values: FloatArray) -> FloatArray:
        return values.reshape(size[0], -1, *values.shape[1:])

    accuracy = in_chains(special.expit(cells.logit))
    kept = min(size[1], max(1, _PREDICTED // size[0]))
    some = Cells(*(in_chains(x)[:, :kept] for x in cells))
    predictions = Predictions(
        log_marginal(counts.right, counts.trials, some),
        replicate(rng, counts.trials, accuracy[:, :kept]),
    )
    return Posterior(
        accuracy=accuracy,
        parameters={name: in_chains(values) for name, values in parameters.items()},
        predict=lambda: predictions,
    )


def log_marginal(right: FloatArray, trials: FloatArray, cells: Cells) -> FloatArray:
    """Log-likelihood of each cell's answers, its normal logit integrated out.

    By Gauss–Hermite quadrature around the mode, found by Newton's method.
    """
    precision = cells.spread**-2.0
    centre = cells.logit
    for _ in range(_NEWTON_STEPS):
        share = special.expit(centre)
        tight = trials * share * (1 - share) + precision
        centre = centre + (right - trials * share - precision * (centre - cells.mean)) / tight
    share = special.expit(centre)
    width = (trials * share * (1 - share) + precision) ** -0.5
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    terms: list[FloatArray] = []
    for node, weight in zip(nodes.tolist(), weights.tolist(), strict=True):
        at = centre + node * width
        log_p = right * at - trials * np.logaddexp(0, at)
        inside = log_p - precision * (at - cells.mean) ** 2 / 2 + node**2 / 2
        terms.append(inside + np.log(weight))
    total = special.logsumexp(np.stack(terms), axis=0)
    total = total + np.log(width / cells.spread) - np.log(2 * np.pi) / 2
    # Exactly 0 where nothing was answered.
    return np.where(trials > 0, total, 0.0)
