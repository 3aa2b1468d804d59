"""Two models on items of their own, with any scores: by how much is b better?

Models come as rows, each of its own items, and pairs by the rows `a` and `b` of shape (P,): what is
known of a model is worked out once, however many it is compared with.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from evalstats_plugin.stats import beta_contrast, bounded, unpaired_beta
from evalstats_plugin.stats.beta_contrast import Betas, Posterior
from evalstats_plugin.stats.clustered import moments
from evalstats_plugin.stats.interval import FloatArray, IntArray, Interval, tail_probability


class Welch(NamedTuple):
    """Difference b - a, its standard error and its degrees of freedom, each of shape (P,)."""

    difference: FloatArray
    std_error: FloatArray
    degrees_of_freedom: FloatArray


def mover_dp(
    scores: ArrayLike,
    a: IntArray,
    b: IntArray,
    *,
    bounds: tuple[float, float],
    mass: float,
    confidence_level: float,
) -> Interval:
    """Difference by both means' Dirichlet-process intervals, squared and added [ZD08]_ [Fer73]_.

    What `unpaired.newcombe` is with Wilson's intervals, for bounded scores (N, M), NaN for padding.
    """
    scores = np.asarray(scores, dtype=np.float64)
    of_each = bounded.dirichlet_process(
        scores, bounds=bounds, mass=mass, confidence_level=confidence_level
    )
    mean = _means(scores)
    below, above = mean - of_each.low, of_each.high - mean
    difference = mean[b] - mean[a]
    return Interval(
        difference - np.hypot(below[b], above[a]), difference + np.hypot(above[b], below[a])
    )


def dp_difference(
    scores: ArrayLike,
    a: IntArray,
    b: IntArray,
    *,
    bounds: tuple[float, float],
    mass: float,
    confidence_level: float,
) -> Posterior:
    """Posterior of the difference b - a of two bounded means, equal tails [Fer73]_.

    Each mean's Dirichlet-process posterior, that of `bounded.dirichlet_process`, is replaced by the
    Beta variable of the same mean and variance: for 0/1 scores the same. Scores (N, M), NaN for
    padding. Extended where necessary to hold the estimate.
    """
    scores = np.asarray(scores, dtype=np.float64)
    right, wrong = unpaired_beta.matched(scores, bounds=bounds, mass=mass)
    betas = Betas(right[a], wrong[a], right[b], wrong[b])
    found = beta_contrast.contrast(betas, "difference", confidence_level)
    mean, width = _means(scores), bounds[1] - bounds[0]
    difference = mean[b] - mean[a]
    low = np.minimum(width * found.low, difference)
    return Posterior(low, np.maximum(width * found.high, difference), found.prob_better)


def dp_prob(
    scores: ArrayLike, a: IntArray, b: IntArray, *, bounds: tuple[float, float], mass: float
) -> FloatArray:
    """Posterior probability that b's mean is higher, as of `dp_difference`."""
    right, wrong = unpaired_beta.matched(scores, bounds=bounds, mass=mass)
    return beta_contrast.prob_better(Betas(right[a], wrong[a], right[b], wrong[b]))


def _means(scores: FloatArray) -> FloatArray:
    seen = ~np.isnan(scores)
    with np.errstate(invalid="ignore"):
        return np.where(seen, scores, 0.0).sum(axis=-1) / seen.sum(axis=-1)


def welch(totals: ArrayLike, sizes: ArrayLike, a: IntArray, b: IntArray) -> Welch:
    """Difference of two means with unequal variances [Wel47]_, items in clusters or not.

    By what each cluster adds up to, as for `clustered.moments`, shape (N, C); an item of none is a
    cluster of size 1. The standard error is NaN for one cluster, and 0 where there is no spread.
    """
    found = moments(totals, sizes)
    n, mean, square = found.n, found.mean, found.cr1**2
    variance = square[a] + square[b]
    with np.errstate(divide="ignore", invalid="ignore"):
        freedom = variance**2 / (square[a] ** 2 / (n[a] - 1) + square[b] ** 2 / (n[b] - 1))
    return Welch(mean[b] - mean[a], np.sqrt(variance), freedom)


def welch_t(
    totals: ArrayLike, sizes: ArrayLike, a: IntArray, b: IntArray, *, confidence_level: float
) -> Interval:
    """Difference ± Student's t quantile × standard error of `welch`; NaN without any spread."""
    difference, error, freedom = welch(totals, sizes, a, b)
    error = np.where(error > 0, error, np.nan)
    half = -special.stdtrit(freedom, tail_probability(confidence_level)) * error
    return Interval(difference - half, difference + half)


def welch_prob(totals: ArrayLike, sizes: ArrayLike, a: IntArray, b: IntArray) -> FloatArray:
    """P(b's mean is higher) by the t distribution of `welch_t`.

    Its limits are the quantiles. ½ where neither has a spread and the means are equal; NaN where
    they are not, for want of any spread to judge by.
    """
    difference, error, freedom = welch(totals, sizes, a, b)
    with np.errstate(divide="ignore", invalid="ignore"):
        prob = special.stdtr(freedom, difference / error)
    return np.where(error > 0, prob, np.where((error == 0) & (difference == 0), 0.5, np.nan))


def two_sided(prob: FloatArray) -> FloatArray:
    """Two-sided p-value of equality from the probability that b is better.

    Of `welch_prob` Welch's t test. Of `dp_difference` it is as often below its level as it should
    for few scores too, where Welch's for unequal numbers of skewed scores is twice as often.

    >>> float(two_sided(np.array(0.99)).round(6))
    0.02
    """
    return 2 * np.minimum(prob, 1 - prob)
