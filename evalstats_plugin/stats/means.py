"""Intervals for the mean of unbounded scores, and for a ratio of two sums.

* `moments`, `std_error`, `z_interval`, `t_interval`: perplexities, rewards, token counts, Elo
* `t_quantile`, `t_prob_positive`: Student's t, for all t intervals of this package
* `percentile_bootstrap`, `bca_bootstrap`, `studentised_bootstrap`: resampled items [ET93]_, kept
  for comparison
* `ratio`, `ratio_t`, `ratio_jackknife`: Σ numerator / Σ denominator over items
* `skewed_ratio`: the same of positive numbers with long tails, such as costs

`scores` has shape (..., M), NaN where missing; every cell has its own number of scores.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from evalstats_plugin.stats.arrays import BoolArray, FloatArray, as_floats
from evalstats_plugin.stats.interval import Interval, normal_quantile, tail_probability

# Resamples are drawn in blocks of about this many numbers, which stay in the processor's cache;
# results do not depend on it.
BLOCK_SIZE = 2**18

_SAME = 1e-12
"""Numbers in units of their means that differ by no more are equal."""

_HALVINGS = 60


class Moments(NamedTuple):
    """Number of scores, their mean and their standard deviation (n - 1), each of shape (...)."""

    n: FloatArray
    mean: FloatArray
    std: FloatArray


def moments(scores: ArrayLike) -> Moments:
    """Count, mean and standard deviation of the scores that are not NaN.

    The mean is NaN without scores, the standard deviation with fewer than two.
    """
    values = np.asarray(scores, dtype=np.float64)
    seen = ~np.isnan(values)
    n = seen.sum(axis=-1).astype(np.float64)
    with np.errstate(invalid="ignore"):
        mean = np.where(seen, values, 0.0).sum(axis=-1) / n
        deviations = np.where(seen, values - mean[..., None], 0.0)
        # Equal scores have no spread, whatever the rounding of their mean.
        highest = np.where(seen, values, -np.inf).max(axis=-1, initial=-np.inf)
        lowest = np.where(seen, values, np.inf).min(axis=-1, initial=np.inf)
        equal = highest - lowest == 0
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

    Kept for comparison: it is too short for few scores, and has no width when all are equal.
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
    """Half-width, in standard errors, of a two-sided t interval; NaN unless df is positive.

    >>> round(float(t_quantile(9, confidence_level=0.95)), 3)
    2.262
    """
    df = np.asarray(degrees_of_freedom, dtype=np.float64)
    df = np.where(df > 0, df, np.nan)
    quantile = -special.stdtrit(df, tail_probability(confidence_level))
    return np.asarray(quantile, dtype=np.float64)


def t_prob_positive(
    mean: FloatArray, std_error: FloatArray, degrees_of_freedom: FloatArray
) -> FloatArray:
    """Posterior probability of a positive mean; its quantiles are the limits of the t interval.

    Where the standard error is 0, ½ for a mean of 0, else NaN; NaN for an unknown standard error.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        prob = special.stdtr(degrees_of_freedom, mean / std_error)
    return np.where(std_error > 0, prob, np.where((std_error == 0) & (mean == 0), 0.5, np.nan))


def percentile_bootstrap(
    scores: ArrayLike, *, confidence_level: ArrayLike, rng: np.random.Generator, n_resamples: int
) -> Interval:
    """Percentile bootstrap: quantiles of the resampled means.

    Parameters
    ----------
    confidence_level : float or shape (L,)
        Limits of several levels come from the same resamples, with an axis of levels first; so
        they do in the other bootstraps.
    """
    tail = _tails(confidence_level)
    cells = _cells(scores)
    means = _resample(cells, rng, n_resamples, _mean)
    low, high = (np.quantile(means, share, axis=0) for share in (tail, 1 - tail))
    return _where_spread(low, high, scores)


def bca_bootstrap(
    scores: ArrayLike, *, confidence_level: ArrayLike, rng: np.random.Generator, n_resamples: int
) -> Interval:
    """BCa bootstrap: quantiles of the resampled means, corrected for bias and skewness."""
    score = special.ndtri(_tails(confidence_level))[..., None]
    cells = _cells(scores)
    mean = moments(cells).mean
    means = _resample(cells, rng, n_resamples, _mean)
    share_below: FloatArray = ((means < mean).mean(axis=0) + (means <= mean).mean(axis=0)) / 2
    deviations = np.where(np.isnan(cells), 0.0, cells - mean[:, None])
    with np.errstate(invalid="ignore", divide="ignore"):
        bias: FloatArray = special.ndtri(share_below)
        # Jackknife values of a mean deviate from their mean as the scores do, with opposite sign.
        acceleration: FloatArray = (deviations**3).sum(axis=1) / (
            6 * (deviations**2).sum(axis=1) ** 1.5
        )
        levels = [
            special.ndtr(bias + (bias + z) / (1 - acceleration * (bias + z)))
            for z in (score, -score)
        ]
    low, high = (_column_quantiles(means, level) for level in levels)
    return _where_spread(low, high, scores)


def studentised_bootstrap(
    scores: ArrayLike, *, confidence_level: ArrayLike, rng: np.random.Generator, n_resamples: int
) -> Interval:
    """Bootstrap-t: quantiles of the resampled t statistics times the standard error.

    A resample whose scores are all equal has a t of ±∞. Where that makes a limit infinite, both
    limits are NaN.
    """
    tail = _tails(confidence_level)
    cells = _cells(scores)
    n, mean, std = moments(cells)
    means, stds = _resample(cells, rng, n_resamples, lambda drawn: np.stack(moments(drawn)[1:]))
    with np.errstate(invalid="ignore", divide="ignore"):
        statistics = (means - mean) / (stds / np.sqrt(n))
        # 0/0: the resample has the sample's mean, and no spread.
        statistics = np.where(np.isnan(statistics), 0.0, statistics)
        low_t, high_t = (
            np.quantile(statistics, share, axis=0, method="inverted_cdf")
            for share in (tail, 1 - tail)
        )
        low, high = mean - high_t * std / np.sqrt(n), mean - low_t * std / np.sqrt(n)
    finite = np.isfinite(low_t) & np.isfinite(high_t)
    return _where_spread(np.where(finite, low, np.nan), np.where(finite, high, np.nan), scores)


def _tails(confidence_level: ArrayLike) -> FloatArray:
    levels = np.asarray(confidence_level, dtype=np.float64)
    return np.reshape([tail_probability(level) for level in levels.ravel().tolist()], levels.shape)


def _cells(scores: ArrayLike) -> FloatArray:
    """Cells as rows, shape (C, M), sorted, so that NaN come last."""
    values = np.asarray(scores, dtype=np.float64)
    return np.sort(values.reshape(int(np.prod(values.shape[:-1])), values.shape[-1]), axis=1)


def _resample(
    cells: FloatArray,
    rng: np.random.Generator,
    n_resamples: int,
    statistic: Callable[[FloatArray], FloatArray],
) -> FloatArray:
    """Statistics of resamples, shape (..., B, C)."""
    missing = np.isnan(cells)
    n = (~missing).sum(axis=1)[:, None]
    step = max(BLOCK_SIZE // max(cells.size, 1), 1)
    parts: list[FloatArray] = []
    for start in range(0, n_resamples, step):
        size = (min(step, n_resamples - start), *cells.shape)
        chosen = (rng.random(size) * n).astype(np.int64)
        drawn = np.take_along_axis(cells[None], chosen, axis=2)
        parts.append(statistic(np.where(missing, np.nan, drawn)))
    return np.concatenate(parts, axis=-2)


def _mean(drawn: FloatArray) -> FloatArray:
    seen = ~np.isnan(drawn)
    with np.errstate(invalid="ignore"):
        return np.where(seen, drawn, 0.0).sum(axis=-1) / seen.sum(axis=-1)


def _column_quantiles(values: FloatArray, levels: FloatArray) -> FloatArray:
    """Quantile of each column at its own levels (..., C); NaN where a level is NaN."""
    position = np.where(np.isnan(levels), 0.0, levels) * (len(values) - 1)
    below = np.floor(position).astype(np.int64)
    above = np.minimum(below + 1, len(values) - 1)
    ordered = np.sort(values, axis=0)
    column = np.indices(values.shape[1:])[0]
    share = position - below
    quantiles = (1 - share) * ordered[below, column] + share * ordered[above, column]
    return np.where(np.isnan(levels), np.nan, quantiles)


def _where_spread(low: FloatArray, high: FloatArray, scores: ArrayLike) -> Interval:
    """Limits in the shape of the leading axes; NaN where all scores of a cell are equal."""
    std = moments(scores).std
    shape = (*low.shape[:-1], *std.shape)
    return Interval(*(np.where(std > 0, limit.reshape(shape), np.nan) for limit in (low, high)))


def ratio(numerator: ArrayLike, denominator: ArrayLike) -> FloatArray:
    """Ratio of two sums over items, Σ numerator / Σ denominator; NaN without items.

    >>> float(ratio([1.0, 5.0], [10.0, 20.0]))
    0.2
    """
    y, w, _ = _items(numerator, denominator)
    with np.errstate(invalid="ignore"):
        return y.sum(axis=-1) / w.sum(axis=-1)


def ratio_std_error(numerator: ArrayLike, denominator: ArrayLike) -> FloatArray:
    """Standard error of the ratio by linearisation [Coc77]_; NaN for n < 2."""
    y, w, seen = _items(numerator, denominator)
    residuals = y - ratio(numerator, denominator)[..., None] * w
    n = seen.sum(axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        scale = np.sqrt(n / np.where(n > 1, n - 1, np.nan)) / w.sum(axis=-1)
    return scale * np.sqrt((residuals**2).sum(axis=-1))


def jackknife_std_error(numerator: ArrayLike, denominator: ArrayLike) -> FloatArray:
    """Jackknife standard error of the ratio; NaN for n < 2.

    Larger than the linearised one where a few items carry much of the denominator.
    """
    y, w, seen = _items(numerator, denominator)
    n = seen.sum(axis=-1)
    left = w.sum(axis=-1, keepdims=True) - w
    with np.errstate(invalid="ignore", divide="ignore"):
        without = (y.sum(axis=-1, keepdims=True) - y) / left
        without = np.where(seen, without, 0.0)
        deviations = np.where(seen, without - (without.sum(axis=-1) / n)[..., None], 0.0)
        variance = (n - 1) / n * (deviations**2).sum(axis=-1)
    return np.where(n > 1, np.sqrt(variance), np.nan)


def ratio_t(numerator: ArrayLike, denominator: ArrayLike, *, confidence_level: float) -> Interval:
    """Student's t interval with the linearised standard error; NaN for n < 2."""
    _, _, seen = _items(numerator, denominator)
    half = t_quantile(seen.sum(axis=-1) - 1, confidence_level=confidence_level)
    half = half * ratio_std_error(numerator, denominator)
    estimate = ratio(numerator, denominator)
    return Interval(estimate - half, estimate + half)


def ratio_jackknife(
    numerator: ArrayLike, denominator: ArrayLike, *, confidence_level: float
) -> Interval:
    """Student's t interval with the jackknife standard error and fewer degrees of freedom.

    The degrees of freedom are Kish's effective number of items, (Σ w)² / Σ w² for denominators w,
    less one: ten documents, one of which has half of all words, count as fewer than ten. With
    equal denominators this is the t interval of the mean.
    """
    _, w, seen = _items(numerator, denominator)
    with np.errstate(invalid="ignore"):
        effective = w.sum(axis=-1) ** 2 / (w**2).sum(axis=-1)
    # Below one degree of freedom the t quantile explodes.
    freedom = np.where(seen.sum(axis=-1) > 1, np.maximum(effective - 1, 1), np.nan)
    half = t_quantile(freedom, confidence_level=confidence_level)
    half = half * jackknife_std_error(numerator, denominator)
    estimate = ratio(numerator, denominator)
    return Interval(estimate - half, estimate + half)


def skewed_ratio(
    numerator: ArrayLike,
    denominator: ArrayLike,
    *,
    confidence_level: float,
    weights: ArrayLike | None = None,
) -> tuple[float, float]:
    """Limits of Σ numerator / Σ denominator of numbers of 0 or more with long tails, such as costs.

    A ratio ρ is inside if the mean of y - ρ w may be 0 [Fie54]_, by Student's t after Hall's cubic
    transformation, which removes its skewness [Hal92]_. The upper limit is infinite where the
    denominator may be 0. Both are NaN where nothing varies, for fewer than two units, and where
    either sum is 0.

    Parameters
    ----------
    numerator, denominator : shape (U,)
        Sums of each unit: an item, or a cluster of items.
    weights : shape (U,)
        How much each unit counts; 1 if left out.

    Examples
    --------
    >>> usd, right = [1.0, 1.2, 0.8, 1.1, 4.0, 0.9], [1.0, 1.0, 0.0, 1.0, 0.0, 1.0]
    >>> [round(limit, 2) for limit in skewed_ratio(usd, right, confidence_level=0.8)]
    [1.15, 8.13]
    """
    y, w = np.asarray(numerator, dtype=np.float64), np.asarray(denominator, dtype=np.float64)
    each = np.ones(len(y)) if weights is None else np.asarray(weights, dtype=np.float64)
    n = float(each.sum())
    nothing = (math.nan, math.nan)
    if n <= 1 or not ((each * y).any() and (each * w).any()):
        return nothing
    of_y, of_w = float((each * y).sum() / n), float((each * w).sum() / n)
    # In units of the means, in which the estimate is 1.
    y, w = y / of_y - 1, w / of_w - 1
    if np.abs(y - w).max() <= _SAME:
        return nothing
    moments_of = {
        (i, j): float((each * y**i * w**j).sum() / n) for i in range(4) for j in range(4 - i)
    }
    t = float(t_quantile(n - 1, confidence_level=confidence_level))

    def statistic(angle: float) -> float:
        """Return the transform of t for the mean of a y - b w, with b / a = tan(angle)."""
        a, b = math.cos(angle), math.sin(angle)
        powers = (a * a, -2 * a * b, b * b)
        variance = sum(p * moments_of[2 - k, k] for k, p in enumerate(powers))
        if variance <= _SAME**2:
            return math.copysign(math.inf, a - b)
        cubes = (a**3, -3 * a * a * b, 3 * a * b * b, -(b**3))
        third = sum(p * moments_of[3 - k, k] for k, p in enumerate(cubes))
        z = (a - b) * math.sqrt((n - 1) / variance)
        skewness = third / variance**1.5 / math.sqrt(n)
        return z + skewness * z**2 / 3 + skewness**2 * z**3 / 27 + skewness / 6

    low = _crossing(statistic, t, 0.0)
    high = _crossing(lambda angle: -statistic(angle), t, math.pi / 2)
    estimate = of_y / of_w
    return estimate * math.tan(low), estimate * math.tan(high) if high < math.pi / 2 else math.inf


def _crossing(statistic: Callable[[float], float], t: float, end: float) -> float:
    """Return the angle between 45 degrees and an end at which a statistic is t; or the end."""
    if statistic(end) <= t:
        return end
    inside, outside = math.pi / 4, end
    for _ in range(_HALVINGS):
        middle = (inside + outside) / 2
        inside, outside = (inside, middle) if statistic(middle) > t else (middle, outside)
    return inside


def _items(
    numerator: ArrayLike, denominator: ArrayLike
) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Numerators and denominators, 0 where either is missing, and which items have both."""
    y, w = as_floats(numerator, denominator)
    if np.any(w < 0):
        raise ValueError("denominators must not be negative")
    seen = ~(np.isnan(y) | np.isnan(w))
    return np.where(seen, y, 0.0), np.where(seen, w, 0.0), seen
