"""Mean of unbounded scores: perplexities, rewards, token counts, Elo.

`scores` has shape (..., M), NaN where missing; every cell has its own number of scores.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from evalstats_plugin.stats.interval import (
    FloatArray,
    Interval,
    normal_quantile,
    tail_probability,
)


class Moments(NamedTuple):
    """How many scores, their mean and their standard deviation (n - 1), each of shape (...)."""

    n: FloatArray
    mean: FloatArray
    std: FloatArray


def moments(scores: ArrayLike) -> Moments:
    """Count, mean and standard deviation of what is not NaN.

    The mean is NaN without scores, the standard deviation with fewer than two.
    """
    values = np.asarray(scores, dtype=np.float64)
    seen = ~np.isnan(values)
    n = seen.sum(axis=-1).astype(np.float64)
    with np.errstate(invalid="ignore"):
        mean = np.where(seen, values, 0.0).sum(axis=-1) / n
        deviations = np.where(seen, values - mean[..., None], 0.0)
        # Equal scores have no spread, whatever the rounding of their mean.
        equal = _range(values, seen) == 0
        variance = np.where(equal, 0.0, (deviations**2).sum(axis=-1)) / np.maximum(n - 1, 0)
    return Moments(n, mean, np.sqrt(variance))


def std_error(scores: ArrayLike) -> FloatArray:
    """Standard error of the mean: standard deviation (n - 1) over √n; NaN for n < 2.

    >>> float(std_error([1.0, 2.0, 3.0]))
    0.5773502691896258
    """
    n, _, std = moments(scores)
    with np.errstate(invalid="ignore"):
        return std / np.sqrt(n)


def z_interval(scores: ArrayLike, *, confidence_level: float) -> Interval:
    """Mean ± normal quantile × standard error: the central limit theorem's interval.

    Kept to compare with: it is too short for few scores, and has no width when all are equal.
    """
    half = normal_quantile(confidence_level) * std_error(scores)
    mean = moments(scores).mean
    return Interval(mean - half, mean + half)


def t_interval(scores: ArrayLike, *, confidence_level: float) -> Interval:
    """Mean ± Student's t quantile × standard error [Stu08]_; NaN for n < 2."""
    n, mean, std = moments(scores)
    half = t_quantile(n - 1, confidence_level=confidence_level) * std / np.sqrt(n)
    return Interval(mean - half, mean + half)


def t_quantile(degrees_of_freedom: ArrayLike, *, confidence_level: float) -> FloatArray:
    """Half-width, in standard errors, of a two-sided t interval; NaN below 1 degree of freedom.

    >>> round(float(t_quantile(9, confidence_level=0.95)), 3)
    2.262
    """
    df = np.asarray(degrees_of_freedom, dtype=np.float64)
    df = np.where(df > 0, df, np.nan)
    quantile = -special.stdtrit(df, tail_probability(confidence_level))
    return np.asarray(quantile, dtype=np.float64)


def _range(values: FloatArray, seen: FloatArray) -> FloatArray:
    highest = np.where(seen, values, -np.inf).max(axis=-1, initial=-np.inf)
    return highest - np.where(seen, values, np.inf).min(axis=-1, initial=np.inf)
