"""Expectation propagation for probit contests: a normal posterior with matched moments [Min01]_.

Each pair of players is one site, whatever the number of its answers, so that its one-dimensional
moments hold what those answers say together. All sites move at once, damped.
"""
# PART thurstone_laplace - The mode of the Thurstone posterior and the normal of its curvature there (Laplace).
# PART thurstone_tie - How wide a tie is: δ of the largest evidence, under a half-normal(1) prior.

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar

from evalstats_plugin.ranking.thurstone.design import (
    Prior,
    Sites,
    bounds,
    information,
    inverse_of,
    variances,
)
from evalstats_plugin.ranking.thurstone.truncated import slopes
from evalstats_plugin.stats.arrays import FloatArray

# Share of a step that is taken.
_DAMPED = 0.8


# Standard deviations on both sides over which a site is integrated.
_REACH = 10.0


# Widest step of that integral, in standard deviations of the noise and of the site.
_NOISE_STEP, _SITE_STEP = 0.7, 0.6


# Change of the log posterior that the next Newton step promises, at which it is the last.
_TOLERANCE = 1e-12


_MAX_STEPS = 100


# Among which δ is sought.
_NARROWEST, _WIDEST = 1e-3, 6.0


# Step of the second difference that gives its standard error.
_STEP = 0.05


class Normals(NamedTuple):
    """Precision and shift of each site, of shape (S,): what its answers say, as a normal."""

    precision: FloatArray
    shift: FloatArray


class Posterior(NamedTuple):
    """Normal, of P parameters."""

    mean: FloatArray
    covariance: FloatArray
    normals: Normals
    log_evidence: float
    sweeps: int
    residual: float
    """Largest difference of a site's own moments from the posterior's, in its units."""


class _Tilted(NamedTuple):
    """A site's likelihood times what the others say of it."""

    log_scale: FloatArray
    mean: FloatArray
    variance: FloatArray


class _State(NamedTuple):
    mean: FloatArray
    covariance: FloatArray
    log_scale: float
    site_mean: FloatArray
    site_variance: FloatArray


def expectation_propagation(
    sites: Sites,
    prior: Prior,
    tie: float,
    start: Normals,
    *,
    tolerance: float = 1e-9,
    max_sweeps: int = 500,
) -> Posterior:
    """Match the moments of every site.

    Parameters
    ----------
    tie
        δ, half the width of a tie.
    start
        Such as `laplace` finds, or those of nearly the same answers.
    tolerance
        Of the residual, at which it stops.
    """
    precision, shift = start
    inverse, spread = inverse_of(prior.covariance)
    sweeps, damped, before = 0, _DAMPED, np.inf
    while True:
        sweeps += 1
        state = _combined(sites, prior, inverse, Normals(precision, shift))
        v, m = state.site_variance, state.site_mean
        rest_precision = 1 / v - precision
        rest_mean = (m / v - shift) / rest_precision
        tilted = _tilted(sites, tie, (m, v), (rest_mean, 1 / rest_precision))
        residual = float(
            np.max(np.abs(tilted.mean - m) / np.sqrt(v), initial=0)
            + np.max(np.abs(tilted.variance - v) / v, initial=0)
        )
        if residual < tolerance or sweeps == max_sweeps:
            break
        # Steps that do not help overshoot: take less of them.
        damped = max(damped / 2, 0.05) if residual > before else damped
        before = residual
        new_precision = np.maximum(1 / tilted.variance - rest_precision, 0)
        new_shift = tilted.mean * (new_precision + rest_precision) - rest_mean * rest_precision
        precision = precision + damped * (new_precision - precision)
        shift = shift + damped * (new_shift - shift)
    normals = Normals(precision, shift)
    rest = (rest_mean, 1 / rest_precision)
    log_evidence = state.log_scale + float((tilted.log_scale - _log_scale(normals, rest)).sum())
    log_evidence -= 0.5 * (spread + float(prior.mean @ inverse @ prior.mean))
    return Posterior(state.mean, state.covariance, normals, log_evidence, sweeps, residual)


def _combined(sites: Sites, prior: Prior, inverse: FloatArray, normals: Normals) -> _State:
    """Prior times the normals of all sites."""
    design = sites.design
    covariance, held = inverse_of(inverse + information(design, normals.precision))
    pull = inverse @ prior.mean + design.T @ normals.shift
    mean = covariance @ pull
    log_scale = 0.5 * (float(pull @ mean) - held)
    return _State(mean, covariance, log_scale, design @ mean, variances(design, covariance))


def _log_scale(normals: Normals, rest: tuple[FloatArray, FloatArray]) -> FloatArray:
    """Log integral of each site's normal times what the others say of it."""
    mean, variance = rest
    precision, shift = normals
    both = 1 / variance + precision
    square = (mean / variance + shift) ** 2 / both - mean**2 / variance
    return 0.5 * (square - np.log1p(precision * variance))


def _tilted(
    sites: Sites,
    tie: float,
    whole: tuple[FloatArray, FloatArray],
    rest: tuple[FloatArray, FloatArray],
) -> _Tilted:
    """Moments of each site: in closed form with one answer, otherwise by a sum over a grid."""
    answer = sites.single()
    one = np.isfinite(answer)
    found = np.empty((3, len(one)))
    mean, variance = rest
    if one.any():
        low, high = bounds(answer[one], tie)
        m, v = mean[one], variance[one]
        sd = np.sqrt(1 + v)
        log_p, first, second = slopes((low - m) / sd, (high - m) / sd)
        found[:, one] = log_p, m + v * first / sd, v + v**2 * second / sd**2
    if not one.all():
        many = Sites(
            design=None, wins=sites.wins[~one], ties=sites.ties[~one], losses=sites.losses[~one]
        )
        parts = [x[~one] for x in (*whole, *rest)]
        found[:, ~one] = _by_grid(many, tie, (parts[0], parts[1]), (parts[2], parts[3]))
    return _Tilted(*found)


def _by_grid(
    sites: Sites,
    tie: float,
    whole: tuple[FloatArray, FloatArray],
    rest: tuple[FloatArray, FloatArray],
) -> _Tilted:
    """Even steps integrate what is smooth and ends in 0 to nearly all digits.

    The grid lies around the posterior, which has the site's moments once it converges.
    """
    (centre, spread), (mean, variance) = whole, rest
    sd = np.sqrt(spread)
    step = min(_SITE_STEP, _NOISE_STEP / float(sd.max()))
    half = int(np.ceil(_REACH / step))
    grid = np.linspace(-_REACH, _REACH, 2 * half + 1)[:, None]
    at = centre + sd * grid
    log_f = sites.log_likelihood(at, tie) - 0.5 * (at - mean) ** 2 / variance
    top = log_f.max(axis=0)
    f = np.exp(log_f - top)
    total = f.sum(axis=0)
    shift = (f * grid).sum(axis=0) / total
    square = (f * (grid - shift) ** 2).sum(axis=0) / total
    log_scale = top + np.log(total * (_REACH / half) * sd) - 0.5 * np.log(2 * np.pi * variance)
    return _Tilted(log_scale, centre + sd * shift, spread * square)


class Mode(NamedTuple):
    """Of P parameters."""

    mean: FloatArray
    covariance: FloatArray
    normals: Normals
    log_likelihood: float
    log_evidence: float
    iterations: int
    converged: bool


def laplace(sites: Sites, prior: Prior, tie: float, start: FloatArray | None = None) -> Mode:
    """Find the mode by Newton's method, halving steps that lose.

    Parameters
    ----------
    tie
        δ, half the width of a tie.
    start : shape (P,)
        Default: the prior mean.
    """
    inverse, spread = inverse_of(prior.covariance)
    design: Any = sites.design
    x: FloatArray = prior.mean if start is None else start

    def log_posterior(x: FloatArray) -> float:
        away = x - prior.mean
        fit = sites.log_likelihood(design @ x, tie).sum()
        return float(fit - 0.5 * away @ inverse @ away)

    value, converged, iterations = log_posterior(x), False, 0
    while True:
        iterations += 1
        at = sites.slopes(design @ x, tie)
        covariance, held = inverse_of(inverse + information(design, -at.second))
        gradient: FloatArray = design.T @ at.first - inverse @ (x - prior.mean)
        step = covariance @ gradient
        converged = float(gradient @ step) < _TOLERANCE
        if converged or iterations == _MAX_STEPS:
            break
        share = 1.0
        while (gained := log_posterior(x + share * step)) < value and share > 1e-6:
            share /= 2
        x, value = x + share * step, gained
    fitted: FloatArray = design @ x
    normals = Normals(-at.second, at.first - at.second * fitted)
    return Mode(
        x,
        covariance,
        normals,
        float(sites.log_likelihood(fitted, tie).sum()),
        value - 0.5 * (held + spread),
        iterations,
        bool(converged),
    )


class Threshold(NamedTuple):
    """δ, half the width of a tie; 0 where no answer is one."""

    value: float
    std_error: float


def most_evident_tie(sites: Sites, prior: Prior, by: Literal["ep", "laplace"]) -> Threshold:
    """Find δ by the evidence of expectation propagation, or of Laplace's method."""
    if not sites.ties.any():
        return Threshold(0.0, 0.0)

    def against(log_tie: float) -> float:
        tie = float(np.exp(log_tie))
        mode = laplace(sites, prior, tie)
        value = mode.log_evidence
        if by == "ep":
            found = expectation_propagation(sites, prior, tie, mode.normals, tolerance=1e-6)
            value = found.log_evidence
        return tie**2 / 2 - value

    ends = (np.log(_NARROWEST), np.log(_WIDEST))
    best = float(minimize_scalar(against, bounds=ends, method="bounded").x)
    near = [against(best + k * _STEP) for k in (-1, 0, 1)]
    curvature = (near[0] - 2 * near[1] + near[2]) / _STEP**2
    tie = float(np.exp(best))
    return Threshold(tie, tie / curvature**0.5 if curvature > 0 else float("nan"))
