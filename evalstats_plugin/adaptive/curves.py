"""How likely a right answer is, given ability and misfit, when items are only known so well."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.stats.arrays import FloatArray

# Of a logistic curve averaged over a normal logit [Mac92]_.
_FLATTENING = np.pi / 8


_LEAST = 1e-9


_FARTHEST = -700.0
"""Logit below which exp(-logit) would overflow."""


# Of a normal distribution, for an item's own error.
_HERMITE: tuple[FloatArray, FloatArray] = np.polynomial.hermite_e.hermegauss(7)


_POINTS, _LOG_WEIGHTS = _HERMITE[0], np.log(_HERMITE[1] / _HERMITE[1].sum())


class Items(NamedTuple):
    """Parameters of items; arrays of shape (..., M), all of the same."""

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
        """Items at places of any shape, of a bank's items."""
        return Items(*(values[places] for values in self))

    @property
    def directions(self) -> FloatArray:
        """What the logit takes of (θ, f): shape (..., M, 1 + K).

        In memory every dimension lies in one piece, which sums over items are quickest with.
        """
        loadings = np.moveaxis(self.loadings, -1, 0)
        return np.moveaxis(np.concatenate([self.discrimination[None], loadings]), 0, -1)


class Response(NamedTuple):
    """P(right) of items at abilities, averaged over the errors of the items."""

    probability: FloatArray
    slope: FloatArray
    """Its derivative by the ability."""
    scale: FloatArray
    """By the logit, misfit being a part of it."""
    variance: FloatArray
    """Of one score."""

    @property
    def information(self) -> FloatArray:
        """Fisher information of one answer on the ability."""
        return self.slope**2 / self.variance


def respond(
    items: Items,
    ability: FloatArray,
    shift: FloatArray | float = 0.0,
    spread: FloatArray | float = 0.0,
) -> Response:
    """Curves of items at abilities; all broadcast.

    Parameters
    ----------
    ability
        θ, with an axis for the items.
    shift
        What misfit adds to the logit.
    spread
        Variance of the logit beyond that by the errors of the item, to average over as well.

    Notes
    -----
    The logit of an item is normal around aθ + d by the errors of a and d; the mean of P over it is
    nearly the curve of a logit drawn towards 0 [Mac92]_. An item known badly tells less, and
    pretends less.
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
    """1 / (1 + exp(-logit)): in NumPy's vector instructions, which SciPy's does not use."""
    return 1 / (1 + np.exp(-np.maximum(logit, _FARTHEST)))


def log_likelihood(
    items: Items, ability: FloatArray, right: FloatArray, trials: FloatArray
) -> FloatArray:
    """Log P(answers) of items at abilities, each item's error integrated out.

    Parameters
    ----------
    right, trials
        Sum of the scores, and how many: broadcast with items and abilities. Scores between 0 and 1
        count as a fraction of a success (a quasi-likelihood).

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

    # A quasi-likelihood: scores that vary less tell more.
    weighed = (right / items.dispersion, trials / items.dispersion)
    own = (items.guessing, height, *weighed)
    if not items.spread.any():
        return at(logit, own)
    shifted = logit[..., None] + np.sqrt(variance)[..., None] * _POINTS
    values = at(shifted, tuple(np.asarray(value)[..., None] for value in own)) + _LOG_WEIGHTS
    top = values.max(axis=-1, keepdims=True)
    return top[..., 0] + np.log(np.exp(values - top).sum(axis=-1))


def _variance(spread: FloatArray, ability: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Of an item's logit, by errors of its parameters; and its derivative by the ability."""
    a, both, d = (spread[..., k] for k in range(3))
    variance = np.maximum(a * ability**2 + 2 * both * ability + d, 0.0)
    return variance, 2 * (a * ability + both)
