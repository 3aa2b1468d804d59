"""Nested evals by massively parallel inference: one model on several tasks, or several on one.

logit P(right) = level ± x'β + deviation for each unit, which is a task or a model. The level is an
intercept and the one effect that all units share; a deviation is the unit's effect and interaction,
whose sum alone the answers tell of. All is the ``task`` model of `models`, whose effects are drawn
apart again at the end, so that both engines answer the same questions.
"""
# PART nested_fit - Fit nested evals, and put the engine's draws into the form that results are made from.
# PART crossed_particles - Would massively parallel inference do for this crossed eval? Tried on a part of it, and measured.

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter, Signature
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import special
from torch import Tensor
from torch.nn import functional

from evalstats_plugin.hierarchical.engines.crossed import CrossedModel, ScalePrior
from evalstats_plugin.hierarchical.engines.crossed_fit import Counts
from evalstats_plugin.hierarchical.engines.plates.distributions import Beta, Gamma, Normal
from evalstats_plugin.hierarchical.engines.plates.fit import FitOptions, PlatedFit, infer
from evalstats_plugin.hierarchical.engines.plates.model import Latent, Model, Observed, Plate
from evalstats_plugin.hierarchical.engines.posterior import Posterior
from evalstats_plugin.stats.arrays import FloatArray

INFORMATIVE = 100.0
"""Mean number of questions from which on logits are proposed themselves.

Below, their distance from the level in units of the spread is: where the spread may be near 0, the
density of a logit has a spike at the level, and few particles then carry the weight. Above, the
logits are known so well that distances would hang too much on what the level and spread are.
"""


_FEWEST, _MOST, _TABLE = 50, 150, 1_000_000
"""Particles, and numbers in the table of two of them by unit: the more units, the fewer."""


_PREDICTED = 1000
"""Draws of which likelihoods and replications are kept."""


_NODES = 15


_NEWTON_STEPS = 4


PARTICLES = 30


TASKS, CELLS = 12, 48
"""Tasks, and models × tasks, that are tried at most: those with the most answers."""


_ITERATIONS, _SETS = 20, 10


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


def particles(units: int) -> int:
    """Choose how many, by the work that they make.

    >>> particles(3), particles(100), particles(1000)
    (150, 100, 50)
    """
    return int(np.clip(math.isqrt(_TABLE // units), _FEWEST, _MOST))


class ParticleFit(NamedTuple):
    """Draws in the form of all engines, and the engine's own account."""

    posterior: Posterior
    plated: PlatedFit
    particles: int
    """Of each group, in all sets together."""


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
        Chains and draws of each, as the other engine would give; here all are independent.

    Raises
    ------
    DesignError
        Not enough memory.
    """
    layout = layout_of(counts)
    data = {"right": counts.right.ravel(), "trials": counts.trials.ravel()}
    if layout.covariates.shape[1]:
        data["x"] = layout.covariates
    options = FitOptions(k=particles(counts.right.size), draws=size[0] * size[1])
    model = nested_model(counts, structure)
    fit = infer(model, data, options=options, device=device, rng=rng)
    drawn = shuffled(fit, rng)
    scales = components(*(torch.from_numpy(drawn[name]) for name in ("spread", "angle")))
    drawn |= {f"sd_{layout.own}": scales[0].numpy(), "sd_interaction": scales[1].numpy()}
    mean = drawn["level"][:, None]
    if "beta" in drawn:
        mean = mean + layout.sign * drawn["beta"] @ layout.covariates.T
    if not layout.centred:
        drawn["theta"] = mean + drawn["spread"][:, None] * drawn["distance"]
    parameters = _effects(drawn, layout, structure, mean, rng)
    shape = (-1, *counts.right.shape)
    cells = Cells(
        drawn["theta"].reshape(shape),
        (mean + 0 * drawn["theta"]).reshape(shape),
        drawn["spread"][:, None, None],
    )
    posterior = posterior_of(counts, cells, parameters, size, rng)
    return ParticleFit(posterior, fit, options.k * options.sets)


def shuffled(fit: PlatedFit, rng: np.random.Generator) -> dict[str, FloatArray]:
    """Draws in random order: the engine's come set of particles by set."""
    order = rng.permutation(len(next(iter(fit.draws.values()))))
    return {name: values[order] for name, values in fit.draws.items()}


def _effects(
    drawn: dict[str, FloatArray],
    layout: Layout,
    structure: CrossedModel,
    mean: FloatArray,
    rng: np.random.Generator,
) -> dict[str, FloatArray]:
    """Effects given the sums that were inferred: normal, as their priors are."""
    shared, own = (drawn[f"sd_{name}"] for name in (layout.shared, layout.own))
    intercept = _part(drawn["level"], structure.intercept_sd + 0 * shared, shared, rng)
    common = (drawn["level"] - intercept)[:, None]
    other = drawn["sd_interaction"][:, None]
    units = _part(drawn["theta"] - mean, own[:, None], other, rng)
    of_models, of_tasks = (common, -units) if layout.own == "task" else (units, -common)
    effects = {"intercept": intercept, "performance": of_models, "difficulty": of_tasks}
    return effects_in_order(drawn | effects)


def effects_in_order(drawn: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    """Name draws as those of the other engine are."""
    found = {name: drawn[name] for name in ("intercept", "performance", "difficulty")}
    found |= {
        "sd_performance": drawn["sd_model"],
        "sd_difficulty": drawn["sd_task"],
        "sd_interaction": drawn["sd_interaction"],
    }
    return found | ({"coefficients": drawn["beta"]} if "beta" in drawn else {})


def _part(
    total: FloatArray, first: FloatArray, second: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Draw the first of two normal numbers, given their standard deviations and their sum."""
    share = first**2 / (first**2 + second**2)
    noise = first * second / np.hypot(first, second)
    return share * total + noise * rng.standard_normal(total.shape)


class Cells(NamedTuple):
    """Draws (S, N, T) of logits, of their means, and of their spread about these."""

    logit: FloatArray
    mean: FloatArray
    spread: FloatArray


def posterior_of(
    counts: Counts,
    cells: Cells,
    parameters: dict[str, FloatArray],
    size: tuple[int, int],
    rng: np.random.Generator,
) -> Posterior:
    """Put draws into the form that results are made from."""

    def in_chains(values: FloatArray) -> FloatArray:
        return values.reshape(size[0], -1, *values.shape[1:])

    accuracy = in_chains(special.expit(cells.logit))
    kept = min(size[1], max(1, _PREDICTED // size[0]))
    some = Cells(*(in_chains(x)[:, :kept] for x in cells))
    trials = np.rint(counts.trials).astype(np.int64)
    return Posterior(
        accuracy=accuracy,
        parameters={name: in_chains(values) for name, values in parameters.items()},
        log_likelihood=log_marginal(counts.right, counts.trials, some),
        replicated=rng.binomial(trials, accuracy[:, :kept]).astype(np.float64),
    )


def log_marginal(right: FloatArray, trials: FloatArray, cells: Cells) -> FloatArray:
    """Log probability of each cell's answers, its logit integrated out: normal, of known moments.

    By Gauss–Hermite quadrature around where steps of Newton's method from a draw lead.
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
        known = right * at - trials * np.logaddexp(0, at)
        inside = known - precision * (at - cells.mean) ** 2 / 2 + node**2 / 2
        terms.append(inside + np.log(weight))
    total = special.logsumexp(np.stack(terms), axis=0)
    total = total + np.log(width / cells.spread) - np.log(2 * np.pi) / 2
    # Exactly 0 where nothing was answered.
    return np.where(trials > 0, total, 0.0)


class Trial(NamedTuple):
    """What came of trying."""

    ess: float
    """Particles that count, of all sets, in the group and member where fewest do."""
    group: str
    n_models: int
    n_tasks: int
    whole: bool
    """Whether all models and tasks were tried."""


def plates_of(counts: Counts, structure: CrossedModel) -> Model:
    """Declare models × tasks, columns being tasks, without covariates."""
    n, t = counts.right.shape
    common = "difficulty"

    def of_tasks(sd_task: Tensor) -> Normal:
        return Normal(torch.zeros_like(sd_task), sd_task)

    def of_models(sd_model: Tensor) -> Normal:
        return Normal(torch.zeros_like(sd_model), sd_model)

    def answered(  # noqa: PLR0913, PLR0917 - names of latents and inputs
        distance: Tensor, sd_interaction: Tensor, intercept: Tensor, performance: Tensor,
        difficulty: Tensor, of_task: Tensor, right: Tensor, trials: Tensor,
    ) -> Tensor:  # fmt: skip
        hard = (difficulty * of_task).sum(-1, keepdim=True)
        return answers(intercept + performance - hard + sd_interaction * distance, right, trials)

    return Model(
        plates=[Plate("model", n), Plate("cell", t, within="model")],
        inputs={"trials": "cell", "of_task": "cell"},
        latents=[
            Latent("intercept", Normal(0.0, structure.intercept_sd), group=common),
            *(scale_latent(name, structure, common) for name in ("model", "task", "interaction")),
            Latent("difficulty", of_tasks, group=common, shape=(t,),
                   proposal=Normal(0.0, 1.0)),
            Latent("performance", of_models, "model",
                   proposal=Normal(0.0, 1.0)),
            Latent("distance", Normal(0.0, 1.0), "cell"),
        ],
        observed=[Observed("right", answered, "cell")],
    )  # fmt: skip


def _data(counts: Counts) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
    n, t = counts.right.shape
    of_task = np.broadcast_to(np.eye(t), (n, t, t)).copy()
    return {"right": counts.right, "trials": counts.trials, "of_task": of_task}


def try_particles(
    counts: Counts, structure: CrossedModel, rng: np.random.Generator, device: str
) -> Trial:
    """Adapt proposals on the models and tasks with the most answers, and count particles."""
    n_tasks = min(counts.right.shape[1], TASKS)
    models, tasks = (
        np.sort(np.argsort(-counts.trials.sum(axis=axis), kind="stable")[:most])
        for axis, most in ((1, max(2, CELLS // n_tasks)), (0, n_tasks))
    )
    cut = np.ix_(models, tasks)
    part = Counts(counts.right[cut], counts.trials[cut], np.arange(len(tasks)),
                  counts.models[models], counts.tasks[tasks])  # fmt: skip
    options = FitOptions(k=PARTICLES, iterations=_ITERATIONS, sets=_SETS, draws=1)
    model = plates_of(part, structure)
    fit = infer(model, _data(part), options=options, device=device, rng=rng)
    least = {group: float(values.min()) for group, values in fit.ess.items()}
    worst = min(least, key=least.__getitem__)
    whole = part.right.shape == counts.right.shape
    return Trial(least[worst], worst, len(models), len(tasks), whole)


def fit_crossed(
    counts: Counts,
    structure: CrossedModel,
    rng: np.random.Generator,
    size: tuple[int, int],
    device: str,
) -> ParticleFit:
    """Infer a crossed eval that is small enough."""
    options = FitOptions(k=PARTICLES, draws=size[0] * size[1])
    model = plates_of(counts, structure)
    fit = infer(model, _data(counts), options=options, device=device, rng=rng)
    drawn = shuffled(fit, rng)
    level = drawn["intercept"][:, None] + drawn["performance"]
    mean = level[:, :, None] - drawn["difficulty"][:, None]
    spread = drawn["sd_interaction"][:, None, None] + 0 * mean
    cells = Cells(mean + spread * drawn["distance"], mean, spread)
    parameters = effects_in_order(drawn)
    posterior = posterior_of(counts, cells, parameters, size, rng)
    return ParticleFit(posterior, fit, options.k * options.sets)
