"""Log probability of a standard normal between two bounds, and its derivatives."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import special

from evalstats_plugin.stats.arrays import FloatArray

LOG_ROOT_2PI = 0.5 * np.log(2 * np.pi)


def log_ndtr(x: FloatArray) -> FloatArray:
    """Log Φ(x), by the logarithm of Φ where that does not underflow: a third of the time."""
    near = np.maximum(x, -37.0)
    value: FloatArray = np.log(special.ndtr(near))
    far = x < near
    return np.where(far, special.log_ndtr(x), value) if np.any(far) else value


def log_probability(low: FloatArray, high: FloatArray) -> FloatArray:
    """log(Φ(high) - Φ(low)) for low < high, accurate in the tails; bounds may be infinite."""
    a, b, _ = _below(low, high)
    log_b = log_ndtr(b)
    return log_b + np.log(-np.expm1(log_ndtr(a) - log_b))


class Slopes(NamedTuple):
    """log P(low < d + e < high), e standard normal, and its derivatives in d."""

    log_probability: FloatArray
    first: FloatArray
    second: FloatArray
    """Never above 0, as the logarithm is concave."""


def slopes(low: FloatArray, high: FloatArray) -> Slopes:
    """Log probability of a standard normal between low and high, and derivatives as both fall."""
    log_p = log_probability(low, high)
    at_low, at_high = (np.exp(-0.5 * x * x - LOG_ROOT_2PI - log_p) for x in (low, high))
    first = at_low - at_high
    # Infinite bounds contribute nothing.
    bent = np.where(np.isfinite(low), low, 0) * at_low
    bent -= np.where(np.isfinite(high), high, 0) * at_high
    return Slopes(log_p, first, bent - first * first)


def _below(low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mirror bounds into the lower tail, where Φ is accurate; also the sign of the mirroring."""
    flip = low > -high
    return np.where(flip, -high, low), np.where(flip, -low, high), np.where(flip, -1.0, 1.0)
