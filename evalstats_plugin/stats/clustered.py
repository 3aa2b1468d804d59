"""Mean of scores whose items come in clusters: what stands or falls together counts as one.

Every function takes what each cluster adds up to: `totals`, the sums of its scores, and `sizes`,
how many items it has, both of shape (..., C), size 0 for padding. Scores of items that were taken
several times are their means.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from evalstats_plugin.stats.interval import FloatArray, Interval, tail_probability
from evalstats_plugin.stats.mean import t_quantile


class Clusters(NamedTuple):
    """Number of clusters, mean over all items, and its standard errors, each of shape (...)."""

    n: FloatArray
    mean: FloatArray
    cr0: FloatArray
    """Liang & Zeger's, the clustered standard error of [Mil24]_."""
    cr1: FloatArray
    """The same times √(C/(C - 1)), for few clusters; NaN for one."""


def moments(totals: ArrayLike, sizes: ArrayLike) -> Clusters:
    """Mean and standard errors that allow for clusters.

    >>> found = moments([3.0, 5.0, 0.0], [5, 8, 3])
    >>> print(f"{found.mean:.3f} {found.cr1:.3f}")
    0.500 0.143
    """
    total, size = (np.asarray(x, dtype=np.float64) for x in (totals, sizes))
    n = np.asarray((size > 0).sum(axis=-1), dtype=np.float64)
    n_items = size.sum(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.asarray(total.sum(axis=-1) / n_items)
        residual = np.where(size > 0, total - size * mean[..., None], 0.0)
        # What is no larger than rounding errors of the sums is none.
        residual = np.where(np.abs(residual) > 1e-12 * np.maximum(size, 1), residual, 0.0)
        cr0 = np.sqrt((residual**2).sum(axis=-1)) / n_items
        cr1 = np.where(n > 1, cr0 * np.sqrt(n / (n - 1)), np.nan)
    return Clusters(n, mean, np.asarray(cr0), cr1)


def t_cr1(totals: ArrayLike, sizes: ArrayLike, *, confidence_level: float) -> Interval:
    """Mean ± Student's t quantile × clustered standard error, C - 1 degrees of freedom.

    NaN for one cluster, and for clusters that all agree: they have no spread to go by.
    """
    found = moments(totals, sizes)
    half = t_quantile(found.n - 1, confidence_level=confidence_level) * found.cr1
    half = np.where(half > 0, half, np.nan)
    return Interval(found.mean - half, found.mean + half)


def logit_t_cr1(
    totals: ArrayLike, sizes: ArrayLike, *, bounds: tuple[float, float], confidence_level: float
) -> Interval:
    """The t interval of `t_cr1` on the log odds of a bounded mean, carried back.

    One cluster, or clusters that all agree, have no spread to go by. Then the limits allow for a
    share of clusters at a bound that C clusters would all miss with half of the probability that
    the level leaves out: Clopper–Pearson's limits, a cluster counting as one trial.
    """
    size = np.asarray(sizes, dtype=np.float64)
    width = bounds[1] - bounds[0]
    unit = (np.asarray(totals, dtype=np.float64) - size * bounds[0]) / width
    n, mean, _, error = moments(unit, size)
    mean = np.clip(mean, 0.0, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        half = t_quantile(n - 1, confidence_level=confidence_level) * error / (mean * (1 - mean))
        log_odds = np.log(mean) - np.log1p(-mean)
        share = tail_probability(confidence_level) ** (1 / n)
        agree = ~(error > 0)
        low = np.where(agree, share * mean, special.expit(log_odds - half))
        high = np.where(agree, 1 - share * (1 - mean), special.expit(log_odds + half))
    low, high = (np.where(n > 0, bounds[0] + width * limit, np.nan) for limit in (low, high))
    return Interval(low, high)


def t_prob(totals: ArrayLike, sizes: ArrayLike) -> FloatArray:
    """Posterior probability that the mean is positive, by the t distribution of `t_cr1`.

    ½ where every cluster adds up to 0, NaN where clusters agree on anything else.
    """
    found = moments(totals, sizes)
    with np.errstate(divide="ignore", invalid="ignore"):
        prob = special.stdtr(np.where(found.n > 1, found.n - 1, np.nan), found.mean / found.cr1)
    return np.where(found.cr1 > 0, prob, np.where(found.mean == 0, 0.5, np.nan))


def design_effect(std_error: ArrayLike, naive: ArrayLike) -> FloatArray:
    """How many times larger clusters make the variance; NaN where either error is 0 or unknown."""
    clustered, plain = (np.asarray(x, dtype=np.float64) for x in (std_error, naive))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((clustered > 0) & (plain > 0), (clustered / plain) ** 2, np.nan)
