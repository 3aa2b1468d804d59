"""Means of scores with a control variate, and prediction-powered means of human labels.

Items differ in difficulty, and by chance a model gets easy or hard ones. A covariate (the scores of
other models on the item, a judge's score) is known for the scored items and for others; regression
on it removes that part of the sampling error [DXKW13]_.

* `adjust_to_benchmark`, `adjust`: the regression estimator, for this population or one beyond it
* `bounded_interval`, `t_interval`: its intervals
* `ppi`: human labels of a few items, a judge's scores of many [ABF23]_ [ADZ23]_

Scores and covariate have shape (..., M): a NaN score is an item not scored, a NaN covariate an item
outside the population.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from evalstats_plugin.stats import bounded
from evalstats_plugin.stats.arrays import BoolArray, FloatArray
from evalstats_plugin.stats.interval import Interval
from evalstats_plugin.stats.means import t_quantile


class Adjusted(NamedTuple):
    """A mean adjusted by a regression; arrays of shape (...)."""

    n: FloatArray
    """Number of items with a score and the covariate."""
    population: FloatArray
    """Number of items with the covariate."""
    estimate: FloatArray
    slope: FloatArray
    """Slope of the scores on the covariate."""
    variance: FloatArray
    """Variance of the estimate's error."""
    plain_variance: FloatArray
    """Variance of the error of the mean of the scores alone."""
    weight: FloatArray
    """What one item's squared residual adds to `variance`, on average."""

    @property
    def gain(self) -> FloatArray:
        """Factor by which more items would be needed without the covariate.

        Shrunk towards 1, as if two further items had gained nothing: the ratio of two variances
        from few items is too optimistic.
        """
        without = 2 * self.plain_variance / self.n
        with np.errstate(divide="ignore", invalid="ignore"):
            return (self.plain_variance + without) / (self.variance + without)


def adjust_to_benchmark(
    scores: ArrayLike, covariate: ArrayLike, *, leverage_power: int = 1
) -> Adjusted:
    """Regression estimate of the mean score over all items of the population.

    The regression estimator of survey sampling [Coc77]_ (ch. 7), for scored items that are a random
    sample of the population. Only the items that were not scored are uncertain.

    Parameters
    ----------
    scores, covariate : shape (..., M)
    leverage_power
        Squared residuals are divided by (1 - leverage) to this power: 1 (HC2), or 2 (HC3) for
        scores without bounds [MW85]_.
    """
    y, x = _arrays(scores, covariate)
    seen, n, total = _sizes(y, x)
    estimate, slope, squared, weights = _regress(y, x, leverage_power)
    with np.errstate(divide="ignore", invalid="ignore"):
        unseen = (total - n) / (total**2 * n)
        each = np.where(seen, (weights - 1 / total[..., None]) ** 2, 0.0)
        each = np.where(seen, each + unseen[..., None], 0.0)
        plain = (1 - n / total) * _variance(y, seen, n) / n
        weight = each.sum(axis=-1) / n
    variance = (each * squared).sum(axis=-1)
    return Adjusted(n, total, estimate, slope, variance, plain, weight)


def adjust(scores: ArrayLike, covariate: ArrayLike, *, leverage_power: int = 1) -> Adjusted:
    """Regression estimate of the mean score over infinitely many items.

    As `adjust_to_benchmark`, with the population itself a random sample, so that the covariate's
    mean is uncertain too.
    """
    y, x = _arrays(scores, covariate)
    seen, n, total = _sizes(y, x)
    estimate, slope, squared, weights = _regress(y, x, leverage_power)
    known = ~np.isnan(x)
    each = np.where(seen, weights**2, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        plain = _variance(y, seen, n) / n
        weight = each.sum(axis=-1) / n
        of_mean = slope**2 * _variance(x, known, total) / total
    variance = (each * squared).sum(axis=-1) + of_mean
    return Adjusted(n, total, estimate, slope, variance, plain, weight)


def bounded_interval(
    adjusted: Adjusted, *, unseen_errors: str, confidence_level: float
) -> Interval:
    """Interval of an adjusted mean of scores in [0, 1], by effective sample size [KG98]_.

    The highest-density interval with uniform prior for the number of 0/1 items that would give the
    estimate its variance, as in `survey.beta_effective`. Residuals of 0 must not give an interval
    without width: two more are added, as of one further item that scored 0 and one that scored 1.

    Parameters
    ----------
    unseen_errors
        Weight of the two. ``"full"``: for a covariate that is nearly always right, so that its
        errors are rare events (a judge). ``"damped"``: times p² + (1 - p)², which is 1 at the
        bounds and ½ in the middle, where many residuals are observed anyway (difficulties).
    """
    if unseen_errors not in ("full", "damped"):
        raise ValueError(f"unseen_errors must be 'full' or 'damped', got {unseen_errors!r}")
    p = np.clip(adjusted.estimate, 0.0, 1.0)
    added = p**2 + (1 - p) ** 2
    added = added if unseen_errors == "full" else added**2
    variance = adjusted.variance + adjusted.weight * added
    # The mean is shrunk to ½ for the size only, so that a mean of 1 has one.
    drawn = (adjusted.n * p + 1) / (adjusted.n + 2)
    certain = variance <= 0
    size = drawn * (1 - drawn) / np.where(certain, 1.0, variance)
    limits = bounded.beta_hpd(
        np.minimum(p * size, size), size, confidence_level=confidence_level, prior=(1, 1)
    )
    return Interval(*(np.where(certain, p, limit) for limit in limits))


def t_interval(adjusted: Adjusted, *, confidence_level: float) -> Interval:
    """Interval of an adjusted mean of scores without bounds; use HC3 (`leverage_power` 2)."""
    quantile = t_quantile(adjusted.n - 2, confidence_level=confidence_level)
    half = quantile * np.sqrt(adjusted.variance)
    return Interval(adjusted.estimate - half, adjusted.estimate + half)


class Powered(NamedTuple):
    """Prediction-powered estimate with limits; arrays of shape (...)."""

    estimate: FloatArray
    interval: Interval
    std_error: FloatArray
    power: FloatArray
    """Weight λ of the judge."""
    gain: FloatArray
    """Factor by which more labels would be needed without a judge."""
    n: FloatArray
    """Number of labelled items."""
    population: FloatArray
    """Number of judged items."""


def ppi(
    labels: ArrayLike,
    judged: ArrayLike,
    *,
    bounds: tuple[float, float] | None,
    confidence_level: float,
) -> Powered:
    """Prediction-powered mean of the labels (PPI++) [ADZ23]_.

    Parameters
    ----------
    labels, judged : shape (..., M)
        Human and judge scores of the same items; NaN labels are unlabelled. A label counts only
        where the judge has scored too.
    bounds
        Least and greatest possible label, or None. With bounds the interval is that of an effective
        number of 0/1 labels, valid for few labels too; without, a t interval.

    Notes
    -----
    The normal interval of the papers has no width while no labelled item shows an error. With few
    labels of a good judge or a strong model its coverage is far too low.
    """
    low, high = (0.0, 1.0) if bounds is None else bounds
    span = high - low
    values = (np.asarray(labels, dtype=np.float64) - low) / span
    if bounds is not None and np.any((values < -1e-9) | (values > 1 + 1e-9)):
        raise ValueError(f"labels must lie within their bounds {bounds}")
    adjusted = adjust(values, judged, leverage_power=1 if bounds else 2)
    if bounds is None:
        unit = t_interval(adjusted, confidence_level=confidence_level)
        estimate = adjusted.estimate
    else:
        unit = bounded_interval(adjusted, unseen_errors="full", confidence_level=confidence_level)
        estimate = np.clip(adjusted.estimate, 0.0, 1.0)
    return Powered(
        low + span * estimate,
        Interval(*(low + span * limit for limit in unit)),
        span * np.sqrt(adjusted.variance),
        # b (mean of all - mean of labelled) = λ (mean of unlabelled - mean of labelled).
        span * adjusted.slope * (1 - adjusted.n / adjusted.population),
        adjusted.gain,
        adjusted.n,
        adjusted.population,
    )


def _arrays(scores: ArrayLike, covariate: ArrayLike) -> tuple[FloatArray, FloatArray]:
    y, x = np.broadcast_arrays(
        np.asarray(scores, dtype=np.float64), np.asarray(covariate, dtype=np.float64)
    )
    return y, x


def _sizes(y: FloatArray, x: FloatArray) -> tuple[BoolArray, FloatArray, FloatArray]:
    known = ~np.isnan(x)
    seen = known & ~np.isnan(y)
    n = seen.sum(axis=-1).astype(np.float64)
    return seen, np.where(n > 0, n, np.nan), known.sum(axis=-1).astype(np.float64)


def _variance(values: FloatArray, there: BoolArray, n: FloatArray) -> FloatArray:
    mean = np.where(there, values, 0.0).sum(axis=-1) / n
    squares = np.where(there, values - mean[..., None], 0.0) ** 2
    return squares.sum(axis=-1) / np.where(n > 1, n - 1, np.nan)


def _regress(
    y: FloatArray, x: FloatArray, leverage_power: int
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Estimate, slope, squared residuals inflated by leverage, and weights of the scores.

    Without spread in the covariate the slope is 0 and the estimate the mean of the scores.
    """
    known = ~np.isnan(x)
    seen = known & ~np.isnan(y)
    n = np.maximum(seen.sum(axis=-1, keepdims=True), 1)
    y0, x0 = np.where(seen, y, 0.0), np.where(seen, x, 0.0)
    y_mean, x_mean = (v.sum(axis=-1, keepdims=True) / n for v in (y0, x0))
    x_all = np.where(known, x, 0.0).sum(axis=-1, keepdims=True)
    x_all = x_all / np.maximum(known.sum(axis=-1, keepdims=True), 1)
    centred = np.where(seen, x0 - x_mean, 0.0)
    spread = (centred**2).sum(axis=-1, keepdims=True)
    # Equal covariates have no spread, whatever the rounding of their mean.
    flat = spread <= 1e-20 * n * (x_mean**2 + 1)
    spread = np.where(flat, np.inf, spread)
    slope = (centred * (y0 - y_mean)).sum(axis=-1, keepdims=True) / spread
    residual = np.where(seen, y0 - y_mean - slope * centred, 0.0)
    kept = np.where(seen, 1 - 1 / n - centred**2 / spread, 1.0)
    alone = kept < 1e-9
    squared = np.where(alone, 0.0, residual**2 / np.where(alone, 1.0, kept) ** leverage_power)
    # A score that alone fixes the slope leaves no residual: use the average of the others.
    others = squared.sum(axis=-1, keepdims=True) / np.maximum(n - alone.sum(-1, keepdims=True), 1)
    squared = np.where(alone, others, squared)
    weights = np.where(seen, 1 / n + (x_all - x_mean) * centred / spread, 0.0)
    estimate = (y_mean + slope * (x_all - x_mean))[..., 0]
    estimate = np.where(seen.any(axis=-1), estimate, np.nan)
    return estimate, slope[..., 0], squared, weights
