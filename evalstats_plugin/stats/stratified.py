"""Weighted mean over tasks that were sampled independently: the score of a group of tasks.

Weights are fixed numbers along the last axis, one per task, and are divided by their sum: items
per task for a micro average, ones for a macro average. A NaN in any task makes the group NaN.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from evalstats_plugin.stats import binomial
from evalstats_plugin.stats.interval import FloatArray, Interval
from evalstats_plugin.stats.mean import moments


class Smoothed(NamedTuple):
    """Means between 0 and 1, and the variances of their estimates, as `beta_effective` needs them.

    As if one further item had scored 0 and one 1: no task then claims to be free of error.
    """

    mean: FloatArray
    variance: FloatArray


def weighted_mean(estimates: ArrayLike, weights: ArrayLike) -> FloatArray:
    """Mean of the tasks' estimates, shape (..., T) to (...).

    >>> float(weighted_mean([0.5, 1.0], [300, 100]))
    0.625
    """
    return (np.asarray(estimates, dtype=np.float64) * _shares(weights)).sum(axis=-1)


def std_error(std_errors: ArrayLike, weights: ArrayLike) -> FloatArray:
    """Standard error of the weighted mean: √Σ w² se²."""
    return np.sqrt(
        ((np.asarray(std_errors, dtype=np.float64) * _shares(weights)) ** 2).sum(axis=-1)
    )


def mover(estimates: ArrayLike, intervals: Interval, weights: ArrayLike) -> Interval:
    """Interval for the weighted mean from the tasks' own intervals, of any kind [ZD08]_.

    Each side of the result is the root of the sum of squares of that side of the tasks' intervals,
    times their weights: exact for normal estimates, and within bounds if the tasks' are.
    """
    shares = _shares(weights)
    values = np.asarray(estimates, dtype=np.float64)
    below = ((shares * (values - intervals.low)) ** 2).sum(axis=-1)
    above = ((shares * (intervals.high - values)) ** 2).sum(axis=-1)
    centre = weighted_mean(values, weights)
    return Interval(centre - np.sqrt(below), centre + np.sqrt(above))


def beta_effective(
    estimates: ArrayLike, smoothed: Smoothed, weights: ArrayLike, *, confidence_level: float
) -> Interval:
    """Interval for the weighted mean of scores in [0, 1] by effective sample size [KG98]_.

    As many items of one binary task as would give the weighted mean its variance: for those, the
    highest-density interval with uniform prior. For a single binary task it is `binomial.beta_hpd`.
    It keeps its level with many small tasks, where `mover` does not: the tasks' asymmetries cancel
    in their mean, but not in the square roots of sums that `mover` takes.
    """
    shares = _shares(weights)
    mean = (shares * smoothed.mean).sum(axis=-1)
    variance = (shares**2 * smoothed.variance).sum(axis=-1)
    n_effective = mean * (1 - mean) / variance
    successes = np.clip(weighted_mean(estimates, weights), 0.0, 1.0) * n_effective
    # `successes` is no whole number; the posterior does not ask for one.
    return binomial.beta_hpd(
        np.minimum(successes, n_effective),
        n_effective,
        confidence_level=confidence_level,
        prior=(1, 1),
    )


def smoothed_binary(successes: ArrayLike, n: ArrayLike) -> Smoothed:
    """Smoothed mean and variance of proportions."""
    n_items = np.asarray(n, dtype=np.float64)
    mean = (np.asarray(successes, dtype=np.float64) + 1) / (n_items + 2)
    return Smoothed(mean, mean * (1 - mean) / np.where(n_items > 0, n_items, np.nan))


def smoothed_scores(scores: ArrayLike) -> Smoothed:
    """Smoothed mean and variance of means of scores in [0, 1], shape (..., M), NaN where missing.

    For zeros and ones the same as `smoothed_binary`.
    """
    values = np.asarray(scores, dtype=np.float64)
    ends = np.broadcast_to([0.0, 1.0], (*values.shape[:-1], 2))
    n, mean, std = moments(np.concatenate([values, ends], axis=-1))
    return Smoothed(mean, std**2 * (n - 1) / n / np.where(n > 2, n - 2, np.nan))


def _shares(weights: ArrayLike) -> FloatArray:
    values = np.asarray(weights, dtype=np.float64)
    if np.any(values < 0):
        raise ValueError("weights must not be negative")
    return values / values.sum(axis=-1, keepdims=True)
