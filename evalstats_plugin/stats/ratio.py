"""Ratio of two sums over items: Σ numerator / Σ denominator.

Corpus metrics are monotone functions of such a ratio, which the caller applies to estimate and
limits alike: word perplexity is exp(-Σ loglikelihood / Σ words), bits per byte
-Σ loglikelihood / (Σ bytes · log 2). Arrays have shape (..., M); an item counts if neither of its
two numbers is NaN. The item is the sampling unit.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from evalstats_plugin.stats.interval import FloatArray, Interval
from evalstats_plugin.stats.mean import t_quantile


def ratio(numerator: ArrayLike, denominator: ArrayLike) -> FloatArray:
    """Σ numerator / Σ denominator; NaN without items.

    >>> float(ratio([1.0, 5.0], [10.0, 20.0]))
    0.2
    """
    items = _items(numerator, denominator)
    with np.errstate(invalid="ignore"):
        return items.numerator.sum(axis=-1) / items.denominator.sum(axis=-1)


def std_error(numerator: ArrayLike, denominator: ArrayLike) -> FloatArray:
    """Standard error of the ratio by linearisation [Coc77]_; NaN for n < 2."""
    items = _items(numerator, denominator)
    estimate = ratio(numerator, denominator)
    residuals = items.numerator - estimate[..., None] * items.denominator
    n = items.seen.sum(axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        scale = np.sqrt(n / np.where(n > 1, n - 1, np.nan)) / items.denominator.sum(axis=-1)
    return scale * np.sqrt((residuals**2).sum(axis=-1))


def jackknife_std_error(numerator: ArrayLike, denominator: ArrayLike) -> FloatArray:
    """Standard error of the ratio from leaving out one item at a time; NaN for n < 2.

    Larger than the linearised one where a few items carry much of the denominator, and rightly so.
    """
    items = _items(numerator, denominator)
    n = items.seen.sum(axis=-1)
    left = items.denominator.sum(axis=-1, keepdims=True) - items.denominator
    with np.errstate(invalid="ignore", divide="ignore"):
        without = (items.numerator.sum(axis=-1, keepdims=True) - items.numerator) / left
        without = np.where(items.seen, without, 0.0)
        deviations = np.where(items.seen, without - (without.sum(axis=-1) / n)[..., None], 0.0)
        variance = (n - 1) / n * (deviations**2).sum(axis=-1)
    return np.where(n > 1, np.sqrt(variance), np.nan)


def ratio_t(numerator: ArrayLike, denominator: ArrayLike, *, confidence_level: float) -> Interval:
    """Student's t interval with the linearised standard error; NaN for n < 2."""
    n = _items(numerator, denominator).seen.sum(axis=-1)
    half = t_quantile(n - 1, confidence_level=confidence_level) * std_error(numerator, denominator)
    estimate = ratio(numerator, denominator)
    return Interval(estimate - half, estimate + half)


def ratio_jackknife(
    numerator: ArrayLike, denominator: ArrayLike, *, confidence_level: float
) -> Interval:
    """Student's t interval with the jackknife standard error and fewer degrees of freedom.

    One less than Kish's effective number of items, (Σ w)² / Σ w² for denominators w: ten documents
    of which one has half of all words know less than ten. With equal denominators this is the
    t interval of the mean.
    """
    items = _items(numerator, denominator)
    with np.errstate(invalid="ignore"):
        effective = items.denominator.sum(axis=-1) ** 2 / (items.denominator**2).sum(axis=-1)
    # Below one degree of freedom the t quantile explodes; two items are two items.
    freedom = np.where(items.seen.sum(axis=-1) > 1, np.maximum(effective - 1, 1), np.nan)
    half = t_quantile(freedom, confidence_level=confidence_level)
    half = half * jackknife_std_error(numerator, denominator)
    estimate = ratio(numerator, denominator)
    return Interval(estimate - half, estimate + half)


class _Items(NamedTuple):
    """Both numbers of every item, 0 where it does not count."""

    numerator: FloatArray
    denominator: FloatArray
    seen: FloatArray


def _items(numerator: ArrayLike, denominator: ArrayLike) -> _Items:
    y, w = np.broadcast_arrays(
        np.asarray(numerator, dtype=np.float64), np.asarray(denominator, dtype=np.float64)
    )
    if np.any(w < 0):
        raise ValueError("denominators must not be negative")
    seen = ~(np.isnan(y) | np.isnan(w))
    return _Items(np.where(seen, y, 0.0), np.where(seen, w, 0.0), seen.astype(np.float64))
