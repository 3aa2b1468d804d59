"""Item response curves: P(right) by ability, with the errors of item parameters averaged out."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.stats.arrays import FloatArray

_FLATTENING = np.pi / 8
"""Of a logistic curve averaged over a normal logit [Mac92]_."""

_LEAST = 1e-9
_FARTHEST = -700.0
"""Logit below which exp(-logit) would overflow."""

_HERMITE: tuple[FloatArray, FloatArray] = np.polynomial.hermite_e.hermegauss(7)
"""Gauss–Hermite nodes and weights, for the normal error of an item's logit."""

_POINTS, _LOG_WEIGHTS = _HERMITE[0], np.log(_HERMITE[1] / _HERMITE[1].sum())


class Items(NamedTuple):
    """Parameters of items; arrays of the same shape (..., M)."""

    discrimination: FloatArray
    intercept: FloatArray
    guessing: FloatArray
    upper: FloatArray
    spread: FloatArray
    """Shape (..., M, 3): variance of a, covariance of a and d, variance of d."""
    loadings: FloatArray
    """Shape (..., M, K)."""
    dispersion: FloatArray
    """Variance of a score as a share of that of a right or wrong answer: below 1 for partial
    credit."""

    def take(self, places: NDArray[Any]) -> Items:
        """Items at an array of indices."""
        return Items(*(values[places] for values in self))

    @property
    def directions(self) -> FloatArray:
        """Coefficients of (θ, f) in the logit, shape (..., M, 1 + K).

        Each dimension is contiguous in memory, for fast sums over items.
        """
        loadings = np.moveaxis(self.loadings, -1, 0)
        return np.moveaxis(np.concatenate([self.discrimination[None], loadings]), 0, -1)


class Response(NamedTuple):
    """P(right) of items at abilities, averaged over the errors of the items."""

    probability: FloatArray
    slope: FloatArray
    """Derivative of the probability in the ability."""
    scale: FloatArray
    """Derivative in the logit, which includes misfit."""
    variance: FloatArray
    """Variance of one score."""

    @property
    def information(self) -> FloatArray:
        """Fisher information of one answer on the ability."""
        return self.slope**2 / self.variance

    def derivatives(self, right: FloatArray, trials: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Gradient of the log likelihood in the logits, and information on them."""
        pull = (right - trials * self.probability) * self.scale / self.variance
        return pull, trials * self.scale**2 / self.variance


def respond(
    items: Items,
    ability: FloatArray,
    shift: FloatArray | float = 0.0,
    spread: FloatArray | float = 0.0,
) -> Response:
    """Evaluate the curves of items at abilities; all arguments broadcast.

    Parameters
    ----------
    ability
        θ, with an axis for the items.
    shift
        Contribution of misfit to the logit.
    spread
        Further variance of the logit to average over, besides that of the item's errors.

    Notes
    -----
    The logit of an item is normal around aθ + d by the errors of a and d; the mean of P over it is
    nearly the curve of a logit shrunk towards 0 [Mac92]_. A poorly calibrated item therefore has
    less information.
    """
    logit = items.discrimination * ability + items.intercept + shift
    variance, variance_slope = _variance(items.spread, ability)
    drawn = 1 / np.sqrt(1 + _FLATTENING * (variance + spread))
    drawn_slope = -0.5 * _FLATTENING * variance_slope * (drawn * drawn * drawn)
    p = expit(logit * drawn)
    mean = items.guessing + (items.upper - items.guessing) * p
    height = (mean - items.guessing) * (1 - p)
    slope = height * (drawn * items.discrimination + drawn_slope * logit)
    mean = np.clip(mean, _LEAST, 1 - _LEAST)
    return Response(mean, slope, height * drawn, items.dispersion * mean * (1 - mean))


def expit(logit: FloatArray) -> FloatArray:
    """1 / (1 + exp(-logit)), vectorised by NumPy, unlike SciPy's."""
    return 1 / (1 + np.exp(-np.maximum(logit, _FARTHEST)))


def log_likelihood(
    items: Items, ability: FloatArray, right: FloatArray, trials: FloatArray
) -> FloatArray:
    """Log P(answers) of items at abilities, with each item's error integrated out.

    Parameters
    ----------
    right, trials
        Sum and number of the scores, which broadcast with items and abilities. Scores between 0
        and 1 count as a fraction of a success (a quasi-likelihood).

    Returns
    -------
    FloatArray
        Shape of all broadcast.
    """
    logit = items.discrimination * ability + items.intercept
    variance, _ = _variance(items.spread, ability)
    height = items.upper - items.guessing

    def at(shifted: FloatArray, own: Any) -> FloatArray:
        c, h, r, n = own
        p = np.clip(c + h * expit(shifted), _LEAST, 1 - _LEAST)
        return r * np.log(p) + (n - r) * np.log1p(-p)

    # A quasi-likelihood: scores that vary less carry more information.
    weighed = (right / items.dispersion, trials / items.dispersion)
    own = (items.guessing, height, *weighed)
    if not items.spread.any():
        return at(logit, own)
    shifted = logit[..., None] + np.sqrt(variance)[..., None] * _POINTS
    values = at(shifted, tuple(np.asarray(value)[..., None] for value in own)) + _LOG_WEIGHTS
    top = values.max(axis=-1, keepdims=True)
    return top[..., 0] + np.log(np.exp(values - top).sum(axis=-1))


def _variance(spread: FloatArray, ability: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Variance of an item's logit by the errors of its parameters; its derivative in θ."""
    a, both, d = (spread[..., k] for k in range(3))
    variance = np.maximum(a * ability**2 + 2 * both * ability + d, 0.0)
    return variance, 2 * (a * ability + both)
