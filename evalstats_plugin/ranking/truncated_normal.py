"""The standard normal between two bounds: probability, slopes, draws; exact far in the tails."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import special

from evalstats_plugin.ranking.contests import FloatArray

_LOG_ROOT_2PI = 0.5 * np.log(2 * np.pi)
# Upper bound below which probabilities are kept as logarithms.
_FAR = -30.0


class Slopes(NamedTuple):
    """Of log P(low < d + e < high), e standard normal, in d; each of the shape of d."""

    log_probability: FloatArray
    first: FloatArray
    second: FloatArray
    """Below 0: the logarithm is concave."""


def _below(low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Bounds mirrored into the lower tail, where the distribution function is exact, and how."""
    flip = low > -high
    return np.where(flip, -high, low), np.where(flip, -low, high), np.where(flip, -1.0, 1.0)


def log_probability(low: FloatArray, high: FloatArray) -> FloatArray:
    """log(Φ(high) - Φ(low)), for low < high of any size; bounds may be infinite."""
    a, b, _ = _below(low, high)
    log_b = log_ndtr(b)
    return log_b + np.log(-np.expm1(log_ndtr(a) - log_b))


def slopes(low: FloatArray, high: FloatArray) -> Slopes:
    """Log probability of a standard normal between the bounds, and its slopes as both move down."""
    log_p = log_probability(low, high)
    at_low, at_high = (np.exp(-0.5 * x * x - _LOG_ROOT_2PI - log_p) for x in (low, high))
    first = at_low - at_high
    # An infinite bound has density 0, and no slope.
    bent = np.where(np.isfinite(low), low, 0) * at_low
    bent -= np.where(np.isfinite(high), high, 0) * at_high
    return Slopes(log_p, first, bent - first * first)


def draw_between(low: FloatArray, high: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Draw standard normals between the bounds by the inverse of the distribution function."""
    a, b, sign = _below(low, high)
    # In (0, 1], so that no draw is at minus infinity.
    u = 1 - rng.random(a.shape)
    at_a = special.ndtr(a)
    drawn = special.ndtri(at_a + u * (special.ndtr(b) - at_a))
    far = b < _FAR
    if far.any():
        log_a, log_b, u = log_ndtr(a[far]), log_ndtr(b[far]), u[far]
        drawn[far] = special.ndtri_exp(log_b + np.log(u + (1 - u) * np.exp(log_a - log_b)))
    return sign * np.clip(drawn, a, b)


def draw_above(low: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Draw standard normals above a bound, as `draw_between` does with one bound, and faster."""
    u = 1 - rng.random(low.shape)
    drawn = special.ndtri(u * special.ndtr(-low))
    far = low > -_FAR
    if far.any():
        drawn[far] = special.ndtri_exp(np.log(u[far]) + log_ndtr(-low[far]))
    return -np.minimum(drawn, -low)


def log_ndtr(x: FloatArray) -> FloatArray:
    """Logarithm of the standard normal's distribution function."""
    return special.log_ndtr(x)
