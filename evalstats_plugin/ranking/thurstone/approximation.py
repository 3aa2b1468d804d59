"""Normal approximations of the Thurstone posterior: expectation propagation and Laplace.

* `expectation_propagation`: matches moments [Min01]_. Each pair of players is one site for any
  number of answers, with one-dimensional moments. All sites are updated in parallel, with damping.
* `laplace`: the mode, and the curvature there
* `estimate_threshold`: δ, half the width of a tie, by evidence with a half-normal(1) prior
* `threshold_error`: its standard error
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from evalstats_plugin.ranking.thurstone.design import (
    Inverse,
    Prior,
    Sites,
    Slopes,
    bounds,
    information,
    inverse_of,
    slopes,
    variances,
)
from evalstats_plugin.stats.arrays import FloatArray
from evalstats_plugin.stats.newton import newton

_DAMPED = 0.8
"""Damping: share of each update of the sites."""
_REACH = 10.0
"""Range of the grid over which a site is integrated, in standard deviations on both sides."""
_NOISE_STEP, _SITE_STEP = 0.7, 0.6
"""Largest grid step, in standard deviations of the noise and of the site."""
_TOLERANCE = 1e-12
"""Newton decrement at which `laplace` stops."""
_MAX_STEPS = 100
_MAX_SWEEPS = 500
"""Most updates of all sites."""
_NARROWEST, _WIDEST = 1e-8, 6.0
"""Bounds of δ."""
_STEP = 0.05
"""Step in log δ of numerical derivatives."""
_FIRST_TIE = 0.3
"""Where the search for δ begins."""
_MANY = 1000.0
"""Answers about a pair above which sites at one δ are no start for those at another."""
_NEAR, _MOST_MOVES = 1e-3, 20
"""Move in log δ at which `estimate_threshold` stops, and the most of them."""


class Normals(NamedTuple):
    """Normal approximation of each site's likelihood, by natural parameters of shape (S,)."""

    precision: FloatArray
    shift: FloatArray


class Posterior(NamedTuple):
    """Normal posterior of P parameters."""

    mean: FloatArray
    covariance: FloatArray
    normals: Normals
    log_evidence: float
    sweeps: int
    residual: float
    """Largest difference of a site's moments from the posterior's, in standard deviations."""


def expectation_propagation(
    sites: Sites, prior: Prior, tie: float, start: Normals, *, tolerance: float = 1e-9
) -> Posterior:
    """Match the moments of all sites.

    Parameters
    ----------
    tie
        δ, half the width of a tie.
    start
        Sites from `laplace`, or from nearly the same answers.
    tolerance
        Residual at which iterations stop.
    """
    precision, shift = start
    design = sites.design
    inverse, spread = inverse_of(prior.covariance)
    least = 1 / variances(design, prior.covariance)
    sweeps, damped, before = 0, _DAMPED, np.inf
    while True:
        sweeps += 1
        # The prior times the normals of all sites.
        covariance, held = inverse_of(inverse + information(design, precision))
        pull = inverse @ prior.mean + design.T @ shift
        mean = covariance @ pull
        m, v = design @ mean, variances(design, covariance)
        # Other sites add to the precision of the prior; thousands of answers hide both by rounding.
        rest_precision = np.maximum(1 / v - precision, least)
        rest_mean = (m / v - shift) / rest_precision
        tilted = _tilted(sites, tie, (m, v), (rest_mean, 1 / rest_precision))
        residual = float(
            np.max(np.abs(tilted.mean - m) / np.sqrt(v), initial=0)
            + np.max(np.abs(tilted.variance - v) / v, initial=0)
        )
        if residual < tolerance or sweeps == _MAX_SWEEPS:
            break
        # Halve the damping factor if the residual has grown.
        damped = max(damped / 2, 0.05) if residual > before else damped
        before = residual
        new_precision = np.maximum(1 / tilted.variance - rest_precision, 0)
        new_shift = tilted.mean * (new_precision + rest_precision) - rest_mean * rest_precision
        precision = precision + damped * (new_precision - precision)
        shift = shift + damped * (new_shift - shift)
    normals = Normals(precision, shift)
    rest = (rest_mean, 1 / rest_precision)
    log_evidence = 0.5 * (float(pull @ mean) - held)
    log_evidence += float((tilted.log_scale - _log_scale(normals, rest)).sum())
    log_evidence -= 0.5 * (spread + float(prior.mean @ inverse @ prior.mean))
    return Posterior(mean, covariance, normals, log_evidence, sweeps, residual)


def _log_scale(normals: Normals, rest: tuple[FloatArray, FloatArray]) -> FloatArray:
    """Log integral of each site's normal times its cavity."""
    mean, variance = rest
    precision, shift = normals
    both = 1 / variance + precision
    square = (mean / variance + shift) ** 2 / both - mean**2 / variance
    return 0.5 * (square - np.log1p(precision * variance))


class _Tilted(NamedTuple):
    """Moments of each site's tilted distribution: its likelihood times its cavity."""

    log_scale: FloatArray
    mean: FloatArray
    variance: FloatArray


def _tilted(
    sites: Sites,
    tie: float,
    whole: tuple[FloatArray, FloatArray],
    rest: tuple[FloatArray, FloatArray],
) -> _Tilted:
    """Moments of each site: in closed form for one answer, otherwise by sums over a grid.

    ``whole`` and ``rest`` are means and variances of the posterior and of the cavity.
    """
    answer = sites.single()
    is_single = np.isfinite(answer)
    moments = np.empty((3, len(is_single)))
    mean, variance = rest
    if is_single.any():
        low, high = bounds(answer[is_single], tie)
        m, v = mean[is_single], variance[is_single]
        sd = np.sqrt(1 + v)
        log_p, first, second = slopes((low - m) / sd, (high - m) / sd)
        moments[:, is_single] = log_p, m + v * first / sd, v + v**2 * second / sd**2
    if not is_single.all():
        many = Sites(
            design=None,
            wins=sites.wins[~is_single],
            ties=sites.ties[~is_single],
            losses=sites.losses[~is_single],
        )
        parts = [x[~is_single] for x in (*whole, *rest)]
        moments[:, ~is_single] = _by_grid(many, tie, (parts[0], parts[1]), (parts[2], parts[3]))
    return _Tilted(*moments)


def _by_grid(
    sites: Sites,
    tie: float,
    whole: tuple[FloatArray, FloatArray],
    rest: tuple[FloatArray, FloatArray],
) -> _Tilted:
    """Moments by the trapezoidal rule, which is nearly exact for smooth, decaying functions.

    The grid is centred at the posterior, which has the site's moments at convergence.
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
    """Mode of the posterior of P parameters, with the normal at its curvature."""

    mean: FloatArray
    covariance: FloatArray
    normals: Normals
    log_evidence: float


@dataclass(frozen=True, eq=False)
class _Point:
    """Log posterior at parameters x, and its derivatives when they are needed."""

    sites: Sites
    precision: FloatArray
    """Of the prior."""
    tie: float
    x: FloatArray
    fitted: FloatArray
    """Differences of the sites."""
    value: float

    @cached_property
    def slopes(self) -> Slopes:
        return self.sites.slopes(self.fitted, self.tie)

    @cached_property
    def curvature(self) -> Inverse:
        """Inverse of minus the second derivatives."""
        return inverse_of(self.precision + information(self.sites.design, -self.slopes.second))


def laplace(sites: Sites, prior: Prior, tie: float) -> Mode:
    """Find the posterior mode, from the prior mean.

    Parameters
    ----------
    tie
        δ, half the width of a tie.
    """
    precision, spread = inverse_of(prior.covariance)

    def evaluate(x: FloatArray) -> _Point:
        away, fitted = x - prior.mean, sites.design @ x
        fit = sites.log_likelihood(fitted, tie).sum()
        value = float(fit - 0.5 * away @ precision @ away)
        return _Point(sites, precision, tie, x, fitted, value)

    def direction(x: FloatArray, at: _Point) -> tuple[FloatArray, float]:
        pull = precision @ (x - prior.mean)
        gradient: FloatArray = sites.design.T @ at.slopes.first - pull
        step = at.curvature.inverse @ gradient
        return step, float(gradient @ step)

    at = newton(
        prior.mean, evaluate, direction,
        tolerance=_TOLERANCE, max_steps=_MAX_STEPS, take_last=False,
    ).at  # fmt: skip
    normals = Normals(-at.slopes.second, at.slopes.first - at.slopes.second * at.fitted)
    log_evidence = at.value - 0.5 * (at.curvature.log_determinant + spread)
    return Mode(at.x, at.curvature.inverse, normals, log_evidence)


def estimate_threshold(
    sites: Sites, prior: Prior, start: Normals | None = None, *, tie: float = 0.0, tolerance: float
) -> tuple[float, Posterior]:
    """Maximise the evidence in δ by secant steps; return δ, 0 without ties, and the posterior.

    At convergence the evidence is stationary in the sites, and so changes with δ as if the cavities
    stayed: its slope comes with every posterior, its curvature with two of them.

    Parameters
    ----------
    start
        Sites from nearly the same answers. Default: those of `laplace`; from no information at all,
        many answers about one pair do not converge.
    tie
        Where the search begins, such as δ of nearly the same answers.
    tolerance
        Of `expectation_propagation`.
    """
    tie = (tie or _FIRST_TIE) if sites.ties.any() else 0.0
    start = start or laplace(sites, prior, tie).normals
    if not tie:
        return 0.0, expectation_propagation(sites, prior, 0.0, start, tolerance=tolerance)
    low, high = np.log(_NARROWEST), np.log(_WIDEST)
    at, before = float(np.log(tie)), None
    posterior = expectation_propagation(sites, prior, tie, start, tolerance=tolerance)
    for _ in range(_MOST_MOVES):
        slope, curvature = _slope_in_tie(sites, prior, at, posterior)
        if before is not None and (secant := (slope - before[1]) / (at - before[0])) < 0:
            curvature = secant
        move = float(np.clip(at - slope / curvature, max(at - 1, low), min(at + 1, high))) - at
        if abs(move) < _NEAR:
            break
        at, before = at + move, (at, slope)
        tie = float(np.exp(at))
        posterior = near_posterior(sites, prior, tie, posterior.normals, tolerance=tolerance)
    return tie, posterior


def near_posterior(
    sites: Sites, prior: Prior, tie: float, near: Normals, *, tolerance: float
) -> Posterior:
    """Match the moments of all sites, beginning with those at another δ.

    With thousands of answers about a pair the posterior is narrower than it moves with δ: then
    begin with those of `laplace`.
    """
    if sites.count.max() > _MANY:
        near = laplace(sites, prior, tie).normals
    return expectation_propagation(sites, prior, tie, near, tolerance=tolerance)


def threshold_error(sites: Sites, prior: Prior, tie: float, posterior: Posterior) -> float:
    """Standard error of δ, by the curvature of its log posterior density; NaN where that is flat.

    Parameters
    ----------
    posterior
        That at δ.
    """
    if not tie:
        return 0.0
    slopes: list[float] = []
    for log_tie in (np.log(tie) - _STEP, np.log(tie) + _STEP):
        near = near_posterior(
            sites, prior, float(np.exp(log_tie)), posterior.normals, tolerance=1e-6
        )
        slopes.append(_slope_in_tie(sites, prior, float(log_tie), near)[0])
    curvature = (slopes[0] - slopes[1]) / (2 * _STEP)
    return tie / curvature**0.5 if curvature > 0 else float("nan")


def _slope_in_tie(
    sites: Sites, prior: Prior, log_tie: float, posterior: Posterior
) -> tuple[float, float]:
    """Derivatives of the log posterior density of δ in log δ, with the cavities kept."""
    m, v = sites.design @ posterior.mean, variances(sites.design, posterior.covariance)
    least = 1 / variances(sites.design, prior.covariance)
    precision = np.maximum(1 / v - posterior.normals.precision, least)
    rest = ((m / v - posterior.normals.shift) / precision, 1 / precision)
    ties = np.exp(log_tie + _STEP * np.array([-1, 0, 1]))
    lower, here, upper = (
        float(_tilted(sites, tie, (m, v), rest).log_scale.sum()) - tie**2 / 2 for tie in ties
    )
    # Never flat: δ² is the curvature of its prior.
    return (upper - lower) / (2 * _STEP), min(
        (lower - 2 * here + upper) / _STEP**2, -(ties[1] ** 2)
    )
