"""Means adjusted by regression on a covariate that is known for more items [DXKW13]_.

`adjust_to_benchmark` with `adjusted_bounded_interval` and `adjusted_t_interval`; the covariate may
be the scores of other models.

Scores and covariate have shape (..., M): a NaN score is an item that was not run, a NaN covariate
an item outside the population.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from evalstats_plugin.stats import bounded
from evalstats_plugin.stats.arrays import FloatArray, as_floats
from evalstats_plugin.stats.interval import Interval
from evalstats_plugin.stats.means import moments, t_quantile


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
    y, x = as_floats(scores, covariate)
    has_covariate = ~np.isnan(x)
    seen = has_covariate & ~np.isnan(y)
    n, total = (mask.sum(axis=-1).astype(np.float64) for mask in (seen, has_covariate))
    n = np.where(n > 0, n, np.nan)
    estimate, slope, squared, weights = _regress(y, x, leverage_power)
    with np.errstate(divide="ignore", invalid="ignore"):
        plain = (1 - n / total) * moments(np.where(seen, y, np.nan)).std ** 2 / n
        unseen = (total - n) / (total**2 * n)
        each = (weights - 1 / total[..., None]) ** 2 + unseen[..., None]
        each = np.where(seen, each, 0.0)
        weight = each.sum(axis=-1) / n
    variance = (each * squared).sum(axis=-1)
    return Adjusted(n, total, estimate, slope, variance, plain, weight)


def adjusted_bounded_interval(
    adjusted: Adjusted, *, unseen_errors: str, confidence_level: float
) -> Interval:
    """Interval of an adjusted mean of scores in [0, 1], by effective sample size [KG98]_.

    The highest-density interval with uniform prior for the number of 0/1 items that would give the
    estimate its variance, as in `strata.beta_effective`. Residuals of 0 must not give an interval
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


def adjusted_t_interval(adjusted: Adjusted, *, confidence_level: float) -> Interval:
    """Interval of an adjusted mean of scores without bounds; use HC3 (`leverage_power` 2)."""
    quantile = t_quantile(adjusted.n - 2, confidence_level=confidence_level)
    half = quantile * np.sqrt(adjusted.variance)
    return Interval(adjusted.estimate - half, adjusted.estimate + half)


def _regress(
    y: FloatArray, x: FloatArray, leverage_power: int
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Estimate, slope, squared residuals inflated by leverage, and weights of the scores.

    Without spread in the covariate the slope is 0 and the estimate the mean of the scores.
    """
    has_covariate = ~np.isnan(x)
    seen = has_covariate & ~np.isnan(y)
    n = np.maximum(seen.sum(axis=-1, keepdims=True), 1)
    y0, x0 = np.where(seen, y, 0.0), np.where(seen, x, 0.0)
    y_mean, x_mean = (v.sum(axis=-1, keepdims=True) / n for v in (y0, x0))
    x_all = np.where(has_covariate, x, 0.0).sum(axis=-1, keepdims=True)
    x_all = x_all / np.maximum(has_covariate.sum(axis=-1, keepdims=True), 1)
    centred = np.where(seen, x0 - x_mean, 0.0)
    spread = (centred**2).sum(axis=-1, keepdims=True)
    # Equal covariates have no spread, whatever the rounding of their mean.
    flat = spread <= 1e-20 * (x0**2).sum(axis=-1, keepdims=True)
    spread = np.where(flat, np.inf, spread)
    slope = (centred * (y0 - y_mean)).sum(axis=-1, keepdims=True) / spread
    residual = np.where(seen, y0 - y_mean - slope * centred, 0.0)
    kept = np.where(seen, 1 - 1 / n - centred**2 / spread, 1.0)
    alone = kept < 1e-9
    squared = np.where(alone, 0.0, residual**2 / np.where(alone, 1.0, kept) ** leverage_power)
    # A score that alone fixes the slope leaves no residual: use the average of the others.
    others = squared.sum(axis=-1, keepdims=True) / np.maximum(n - alone.sum(-1, keepdims=True), 1)
    squared = np.where(alone, others, squared)
    weights = 1 / n + (x_all - x_mean) * centred / spread
    estimate = (y_mean + slope * (x_all - x_mean))[..., 0]
    estimate = np.where(seen.any(axis=-1), estimate, np.nan)
    return estimate, slope[..., 0], squared, weights
