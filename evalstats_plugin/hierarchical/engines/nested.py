"""Importance sampling of nested evals: one model on several tasks, or several models on one.

logit P(right) = level ± x'β + deviation of each unit, a task or a model, which is normal. The level
is the intercept and the effect that all units share; a deviation is the sum of the unit's effect
and its interaction, which the answers cannot separate. Deviations are integrated out by quadrature,
so that the level, the logarithm of the spread of deviations and β are all that particles are drawn
of, from a Student distribution moved to the posterior's moments. Deviations are drawn given these,
and effects given the sums, as in the ``task`` model of `crossed`, so that both engines return
the same quantities.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from scipy import optimize, special

from evalstats_plugin.hierarchical.data import Counts
from evalstats_plugin.hierarchical.engines.posterior import (
    COEFFICIENT_SD,
    INTERCEPT_SD,
    Posterior,
    Predictions,
    log_scale_density,
    replicate,
    scale_quantile,
)
from evalstats_plugin.hierarchical.methods import Prior, prior_of
from evalstats_plugin.runtime.chains import pareto_shape
from evalstats_plugin.runtime.memory import check_memory
from evalstats_plugin.stats.arrays import FloatArray, log_mean_exp

_PREDICTED = 1000
"""Draws for which likelihoods and replications are kept."""

_NODES, _NEWTON_STEPS = 15, 4
"""Nodes of the quadrature over a logit, around the mode that so many steps reach."""

_DEGREES, _WIDER = 5.0, 1.2
"""Degrees of freedom of the proposal, and its scale beside that of the posterior."""

_ROUNDS, _ROUGH = 3, 500
"""Rounds in which the proposal moves to the posterior's moments, and particles in each."""

_STEP, _LEAST_CURVATURE = 0.01, 0.25
"""Step of the differences that a curvature is computed from, and the least curvature."""

_PARTICLES, _FEWEST = 2, 4000
"""Particles for each draw, and fewest, for the evidence."""

_STRATA = 200
"""Equally probable parts of the prior of a standard deviation, and parts of a right angle."""

_POINTS = 41
"""Points at which the density of a logit is tabulated to draw from it."""

_COPIES = 8
"""Numbers that are kept of each drawn logit."""

_BLOCK = 400_000
"""Most logits that are computed together."""


class NestedFit(NamedTuple):
    """Draws in the form that all engines share, and what the weights of particles say of them."""

    posterior: Posterior
    particles: int
    ess: float
    """Effective particles."""
    pareto_k: float
    """Pareto k of the weights."""
    log_evidence: float
    """Log marginal likelihood of the answers."""
    log_evidence_error: float
    """Its standard error."""


class _Nested(NamedTuple):
    """A nested eval: its units, and the priors of what they share."""

    right: FloatArray
    """Shape (U,)."""
    trials: FloatArray
    covariates: FloatArray
    """Shape (U, Q)."""
    sign: float
    """Sign of the covariates of units: -1 for tasks, whose covariates are of difficulty."""
    shared: FloatArray
    """Equally probable standard deviations of the effect that units share, (J,)."""
    own: Prior
    interaction: Prior

    def mean(self, at: FloatArray) -> FloatArray:
        """Prior mean of each unit's logit, (S, U), at parameters (S, 2 + Q)."""
        return at[:, :1] + self.sign * at[:, 2:] @ self.covariates.T

    def log_density(self, at: FloatArray) -> FloatArray:
        """Log density (S,) of level, log spread and β, (S, 2 + Q), with the answers."""
        level, spread, beta = at[:, 0], np.exp(at[:, 1]), at[:, 2:]
        of_level = special.logsumexp(_normal(level[:, None], self.level_sd), axis=1)
        of_spread = special.logsumexp(self.of_angles(spread), axis=1) + at[:, 1]
        constant = np.log(np.pi / 2 / _STRATA) - np.log(len(self.shared))
        total = of_level + of_spread + constant + _normal(beta, COEFFICIENT_SD).sum(axis=1)
        size = max(1, _BLOCK // len(self.right))
        for part in np.split(np.arange(len(at)), range(size, len(at), size)):
            cells = Cells(self.mean(at[part]), spread[part, None])
            total[part] += log_marginal(self.right, self.trials, cells).sum(axis=1)
        return total

    @property
    def level_sd(self) -> FloatArray:
        """Prior standard deviations of the level, by those of the effect that units share."""
        return np.hypot(INTERCEPT_SD, self.shared)

    def of_angles(self, spread: FloatArray) -> FloatArray:
        """Log density of (σ₁, σ₂) of length `spread` (S,) at `_ANGLES`, by volume, (S, A)."""
        # Densities are of σ, not of its logarithm; the volume element is the length.
        sides = (np.log(spread[:, None] * x) for x in (np.cos(_ANGLES), np.sin(_ANGLES)))
        priors = zip((self.own, self.interaction), sides, strict=True)
        both = sum(log_scale_density(prior, log_sd) - log_sd for prior, log_sd in priors)
        return both + np.log(spread)[:, None]


_ANGLES = (np.arange(_STRATA) + 0.5) / _STRATA * np.pi / 2
"""Directions of the two standard deviations that a spread is made of."""


def _normal(x: FloatArray, sd: FloatArray | float) -> FloatArray:
    return -((x / sd) ** 2) / 2 - np.log(sd) - np.log(2 * np.pi) / 2


class _Proposal(NamedTuple):
    """A Student distribution."""

    mean: FloatArray
    factor: FloatArray
    """Cholesky factor of its scale."""

    def draw(self, size: int, rng: np.random.Generator) -> FloatArray:
        """Draw, (size, D)."""
        z = rng.standard_normal((size, len(self.mean)))
        z /= np.sqrt(rng.chisquare(_DEGREES, (size, 1)) / _DEGREES)
        return self.mean + z @ self.factor.T

    def log_density(self, x: FloatArray) -> FloatArray:
        """Log density of rows."""
        d = len(self.mean)
        z = np.linalg.solve(self.factor, (x - self.mean).T)
        constant = special.gammaln((_DEGREES + d) / 2) - special.gammaln(_DEGREES / 2)
        constant -= d / 2 * np.log(_DEGREES * np.pi) + np.log(np.diagonal(self.factor)).sum()
        return constant - (_DEGREES + d) / 2 * np.log1p((z**2).sum(axis=0) / _DEGREES)


def _student(mean: FloatArray, covariance: FloatArray) -> _Proposal:
    factor = _WIDER * np.linalg.cholesky(covariance)
    return _Proposal(mean, np.asarray(factor, dtype=np.float64))


def fit_nested(
    counts: Counts, priors: Mapping[str, Prior], rng: np.random.Generator, size: tuple[int, int]
) -> NestedFit:
    """Infer a nested eval, whose columns are tasks.

    Parameters
    ----------
    size
        Number of chains and draws of each, as for Gibbs sampling; here draws are independent.

    Raises
    ------
    DesignError
        Not enough memory.
    """
    needed = 8 * _COPIES * math.prod(size) * counts.right.size
    what = f"{math.prod(size)} draws of {counts.right.size} models or tasks"
    check_memory(needed, what, "draw fewer, or pool fewer at a time")
    of_tasks = len(counts.right) == 1
    own, shared = ("task", "model") if of_tasks else ("model", "task")

    strata = (np.arange(_STRATA) + 0.5) / _STRATA
    nested = _Nested(
        counts.right.ravel(), counts.trials.ravel(), counts.tasks if of_tasks else counts.models,
        -1.0 if of_tasks else 1.0, scale_quantile(prior_of(priors, shared), strata),
        prior_of(priors, own), prior_of(priors, "interaction"),
    )  # fmt: skip
    proposal = _adapted(nested, rng)
    count = size[0] * size[1]
    at = proposal.draw(max(_PARTICLES * count, _FEWEST), rng)
    log_weights = nested.log_density(at) - proposal.log_density(at)
    evidence, weights = log_mean_exp(log_weights)
    error = float(weights.std() / weights.mean() / len(weights) ** 0.5)
    weights /= weights.sum()
    # Systematic resampling, and draws in random order.
    place = np.searchsorted(weights.cumsum(), (np.arange(count) + rng.random()) / count)
    kept = at[rng.permutation(place.clip(max=len(at) - 1))]
    posterior = _posterior(counts, nested, kept, own, size, rng)
    return NestedFit(posterior, len(at), float(1 / (weights**2).sum()),
                     float(pareto_shape(weights[None])[0]), float(evidence), error)  # fmt: skip


def _adapted(nested: _Nested, rng: np.random.Generator) -> _Proposal:
    """Move a proposal from the mode to the posterior's moments."""
    share = (nested.right.sum() + 1) / (nested.trials.sum() + 2)
    first = np.zeros(2 + nested.covariates.shape[1])
    first[:2] = special.logit(share), np.log(0.5)
    found = optimize.minimize(lambda x: -nested.log_density(x[None])[0], first, method="BFGS")
    mean = np.asarray(found.x, dtype=np.float64)
    # The inverse of the curvature there, by differences; no wider than the priors.
    steps = _STEP * np.eye(len(mean))
    plus, minus = steps[:, None] + steps, steps[:, None] - steps
    at = mean + np.concatenate([x.reshape(-1, len(mean)) for x in (plus, minus, -minus, -plus)])
    with_with, with_less, less_with, less_less = nested.log_density(at).reshape(4, len(mean), -1)
    curvature = -(with_with - with_less - less_with + less_less) / (4 * _STEP**2)
    values, vectors = np.linalg.eigh((curvature + curvature.T) / 2)
    covariance = (vectors / np.maximum(values, _LEAST_CURVATURE)) @ vectors.T
    for _ in range(_ROUNDS):
        proposal = _student(mean, covariance)
        at = proposal.draw(_ROUGH, rng)
        log_weights = nested.log_density(at) - proposal.log_density(at)
        weights = np.exp(log_weights - special.logsumexp(log_weights))
        mean = weights @ at
        away = at - mean
        covariance = (weights[:, None] * away).T @ away + 1e-8 * np.eye(len(mean))
    return _student(mean, covariance)


def _posterior(
    counts: Counts, nested: _Nested, at: FloatArray, own: str, size: tuple[int, int],
    rng: np.random.Generator,
) -> Posterior:  # fmt: skip
    """Draw deviations and effects given level, log spread and β, (S, 2 + Q)."""
    mean, spread = nested.mean(at), np.exp(at[:, 1])
    logit = _drawn_logits(nested, mean, spread, rng)
    angle = _picked(nested.of_angles(spread), rng) * np.pi / 2
    shared_sd = np.interp(_picked(_normal(at[:, :1], nested.level_sd), rng) * _STRATA - 0.5,
                          np.arange(_STRATA), nested.shared)  # fmt: skip
    own_sd, interaction_sd = spread * np.cos(angle), spread * np.sin(angle)
    intercept = _first_summand(at[:, 0], INTERCEPT_SD + 0 * shared_sd, shared_sd, rng)
    common = (at[:, 0] - intercept)[:, None]
    units = _first_summand(logit - mean, own_sd[:, None], interaction_sd[:, None], rng)
    is_task = own == "task"
    parameters = {
        "intercept": intercept,
        "performance": common if is_task else units,
        "difficulty": -units if is_task else -common,
        "sd_performance": shared_sd if is_task else own_sd,
        "sd_difficulty": own_sd if is_task else shared_sd,
        "sd_interaction": interaction_sd,
        **({"coefficients": at[:, 2:]} if at.shape[1] > 2 else {}),
    }

    def in_chains(values: FloatArray) -> FloatArray:
        return values.reshape(size[0], -1, *values.shape[1:])

    shape = counts.right.shape
    accuracy = in_chains(special.expit(logit).reshape(-1, *shape))
    kept = min(size[1], max(1, _PREDICTED // size[0]))

    def predictions() -> Predictions:
        some = Cells(*(in_chains(x)[:, :kept] for x in (mean, spread[:, None])))
        likely = log_marginal(nested.right, nested.trials, some)
        return Predictions(likely.reshape(*likely.shape[:2], *shape), replicated)

    replicated = replicate(rng, counts.trials, accuracy[:, :kept])
    return Posterior(
        accuracy=accuracy,
        parameters={name: in_chains(values) for name, values in parameters.items()},
        predict=predictions,
    )


def _picked(log_weights: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Draw a place between 0 and 1 in each row, uniform within one of its equal parts."""
    share = np.exp(log_weights - log_weights.max(axis=1, keepdims=True)).cumsum(axis=1)
    u = rng.random((len(share), 1)) * share[:, -1:]
    return ((share < u).sum(axis=1) + rng.random(len(share))) / share.shape[1]


def _first_summand(
    total: FloatArray, first: FloatArray, second: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Draw the first of two normal variables, given their standard deviations and their sum."""
    share = first**2 / (first**2 + second**2)
    noise = first * second / np.hypot(first, second)
    return share * total + noise * rng.standard_normal(total.shape)


class Cells(NamedTuple):
    """Prior means and standard deviations of logits, of shapes that broadcast."""

    mean: FloatArray
    spread: FloatArray


def _mode(right: FloatArray, trials: FloatArray, cells: Cells) -> tuple[FloatArray, FloatArray]:
    """Mode and width of each logit given its answers, by Newton's method."""
    precision = cells.spread**-2.0
    # Start between the observed logit and the prior mean, by what each tells.
    known = trials / 4
    seen = special.logit((right + 0.5) / (trials + 1))
    centre = (known * seen + precision * cells.mean) / (known + precision)
    for _ in range(_NEWTON_STEPS):
        share = special.expit(centre)
        tight = trials * share * (1 - share) + precision
        centre = centre + (right - trials * share - precision * (centre - cells.mean)) / tight
    share = special.expit(centre)
    return centre, (trials * share * (1 - share) + precision) ** -0.5


def _drawn_logits(
    nested: _Nested, mean: FloatArray, spread: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Draw the logit of each unit given its answers, (S, U), from a table of its density."""
    drawn = np.empty_like(mean)
    size = max(1, _BLOCK // len(nested.right) // 8)
    steps = np.linspace(-1, 1, _POINTS)
    for part in np.split(np.arange(len(mean)), range(size, len(mean), size)):
        cells = Cells(mean[part], spread[part, None])
        centre, width = _mode(nested.right, nested.trials, cells)
        # Six prior standard deviations hold all: no density is wider than the prior around its
        # mode. Points are close there.
        reach = np.arcsinh(6 * cells.spread / width)[..., None]
        points = centre[..., None] + width[..., None] * np.sinh(reach * steps)
        log_p = nested.right[:, None] * points - nested.trials[:, None] * np.logaddexp(0, points)
        log_p -= ((points - cells.mean[..., None]) / cells.spread[..., None]) ** 2 / 2
        density = np.exp(log_p - log_p.max(axis=-1, keepdims=True))
        mass = (density[..., 1:] + density[..., :-1]) * np.diff(points, axis=-1)
        share = mass.cumsum(axis=-1)
        u = rng.random(centre.shape)[..., None] * share[..., -1:]
        at = (share < u).sum(axis=-1).clip(max=_POINTS - 2)[..., None]
        inside = 1 - (np.take_along_axis(share, at, -1) - u) / np.take_along_axis(mass, at, -1)
        low, high = (np.take_along_axis(points, at + k, -1) for k in (0, 1))
        drawn[part] = (low + inside * (high - low))[..., 0]
    return drawn


def log_marginal(right: FloatArray, trials: FloatArray, cells: Cells) -> FloatArray:
    """Log-likelihood of each cell's answers, its normal logit integrated out.

    By Gauss–Hermite quadrature around the mode.
    """
    centre, width = _mode(right, trials, cells)
    precision = cells.spread**-2.0
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    total = np.zeros(np.shape(centre))
    start = right * centre - trials * np.logaddexp(0, centre)
    start = start - precision * (centre - cells.mean) ** 2 / 2
    for node, weight in zip(nodes.tolist(), weights.tolist(), strict=True):
        at = centre + node * width
        log_p = right * at - trials * np.logaddexp(0, at)
        inside = log_p - precision * (at - cells.mean) ** 2 / 2 + node**2 / 2
        total += weight * np.exp(inside - start)
    log_p = np.log(total) + start + np.log(width / cells.spread) - np.log(2 * np.pi) / 2
    # Exactly 0 where nothing was answered.
    return np.where(trials > 0, log_p, 0.0)
