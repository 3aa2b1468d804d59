"""Nested evals by massively parallel inference: one model on several tasks, or several on one.

logit P(right) = level ± x'β + deviation for each unit, which is a task or a model. The level is an
intercept and the one effect that all units share; a deviation is the unit's effect and interaction,
whose sum alone the answers tell of. All is the ``task`` model of `models`, whose effects are drawn
apart again at the end, so that both engines answer the same questions.
"""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter, Signature
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from evalstats_plugin.hierarchical.crossed import CrossedModel, ScalePrior
from evalstats_plugin.hierarchical.distributions import Beta, Gamma, Normal
from evalstats_plugin.hierarchical.models import Counts
from evalstats_plugin.hierarchical.plated_model import Latent, Model, Observed, Plate
from evalstats_plugin.hierarchical.posterior import FloatArray

INFORMATIVE = 100.0
"""Mean number of questions from which on logits are proposed themselves.

Below, their distance from the level in units of the spread is: where the spread may be near 0, the
density of a logit has a spike at the level, and few particles then carry the weight. Above, the
logits are known so well that distances would hang too much on what the level and spread are.
"""


@dataclass(frozen=True)
class Scale:
    """Prior of a standard deviation, as the engine takes it."""

    prior: ScalePrior

    def log_prob(self, value: Tensor, /) -> Tensor:
        """Log density of σ."""
        log_scale = value.log()
        return self.prior.log_density(log_scale) - log_scale + self.prior.log_constant()

    def start(self) -> Gamma:
        """Gamma distribution of the same mean and variance, to propose from at first."""
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
    """Prior of the length of (σ₁, σ₂) in a direction: answers tell of it, not of the direction."""

    own: Scale
    interaction: Scale
    angle: Tensor
    """As a share of a right angle, uniform were it not for this density."""

    def log_prob(self, value: Tensor, /) -> Tensor:
        """Log density of both standard deviations, times the volume element."""
        own, interaction = components(value, self.angle)
        both = self.own.log_prob(own) + self.interaction.log_prob(interaction)
        return both + value.log() + math.log(math.pi / 2)


def components(length: Tensor, angle: Tensor) -> tuple[Tensor, Tensor]:
    """Return σ₁ and σ₂; neither is 0 to rounding."""
    right = angle.clamp(1e-9, 1 - 1e-9) * (math.pi / 2)
    return length * right.cos(), length * right.sin()


def is_nested(n_models: int, n_tasks: int) -> bool:
    """Tell whether every score hangs on one effect of its own alone.

    >>> is_nested(1, 9), is_nested(9, 1), is_nested(2, 2)
    (True, True, False)
    """
    return min(n_models, n_tasks) == 1


def answers(theta: Tensor, right: Tensor, trials: Tensor) -> Tensor:
    """Log probability of the answers, in the order given, at logits θ."""
    return right * theta - trials * functional.softplus(theta)


class Layout(NamedTuple):
    """Which effect is each unit's own, and which is the one that all share."""

    own: str
    shared: str
    sign: float
    """With which covariates of units count: those of tasks make answers wrong."""
    covariates: FloatArray
    centred: bool
    """Whether the latents of units are logits, not distances from the level."""


def layout_of(counts: Counts) -> Layout:
    """Tell what is nested in what."""
    centred = bool(counts.trials.mean() >= INFORMATIVE)
    if len(counts.right) == 1:
        return Layout("task", "model", -1.0, counts.tasks, centred)
    return Layout("model", "task", 1.0, counts.models, centred)


def nested_model(counts: Counts, structure: CrossedModel) -> Model:
    """Declare the model of a nested eval, whose columns are tasks."""
    layout = layout_of(counts)
    q = layout.covariates.shape[1]
    latents = _common(layout, structure)
    names = ["level", *(["beta", "x"] if q else [])]

    def mean(given: Mapping[str, Tensor]) -> Tensor:
        if not q:
            return given["level"]
        pull = (given["x"] * given["beta"]).sum(-1, keepdim=True)
        return given["level"] + layout.sign * pull

    # The engine passes what a function names as its arguments, which differ with the layout.
    def theta(**given: Tensor) -> Normal:
        return Normal(mean(given), given["spread"])

    def from_the_level(**given: Tensor) -> Tensor:
        logit = mean(given) + given["spread"] * given["distance"]
        return answers(logit, given["right"], given["trials"])

    if layout.centred:
        prior = taking(theta, [*names, "spread"])
        latents.append(Latent("theta", prior, "unit", proposal=Normal(0.0, 1.5)))
        observed = Observed("right", answers, "unit")
    else:
        latents.append(Latent("distance", Normal(0.0, 1.0), "unit"))
        taken = ["distance", "spread", *names, "right", "trials"]
        observed = Observed("right", taking(from_the_level, taken), "unit")
    return Model(
        plates=[Plate("unit", counts.right.size)],
        inputs={"trials": "unit", **({"x": "unit"} if q else {})},
        latents=latents,
        observed=[observed],
    )


def _common(layout: Layout, structure: CrossedModel) -> list[Latent]:
    """What all units share, drawn as one."""
    shared = f"sd_{layout.shared}"
    own, interaction = (Scale(structure.prior(name)) for name in (layout.own, "interaction"))

    def level(**scales: Tensor) -> Normal:
        sd = (structure.intercept_sd**2 + scales[shared] ** 2).sqrt()
        return Normal(torch.zeros_like(sd), sd)

    latents = [
        scale_latent(layout.shared, structure, "common"),
        Latent("angle", Beta(1.0, 1.0), group="common"),
        Latent("spread", lambda angle: Ray(own, interaction, angle), group="common",
               proposal=Gamma(3.0, 3.0)),
        Latent("level", taking(level, [shared]), group="common", proposal=Normal(0.0, 1.0)),
    ]  # fmt: skip
    if layout.covariates.shape[1]:
        prior = Normal(0.0, structure.coefficient_sd)
        shape = (layout.covariates.shape[1],)
        latents.append(Latent("beta", prior, shape=shape, group="common", proposal=prior))
    return latents


def scale_latent(name: str, structure: CrossedModel, group: str) -> Latent:
    """Declare the standard deviation of an effect, a name of `SCALES`."""
    scale = Scale(structure.prior(name))
    return Latent(f"sd_{name}", scale, group=group, proposal=scale.start())


def taking(function: Any, names: Sequence[str]) -> Any:
    """Let a function of keywords say which ones it takes."""
    found = [Parameter(name, Parameter.KEYWORD_ONLY) for name in names]
    function.__signature__ = Signature(found)
    return function
