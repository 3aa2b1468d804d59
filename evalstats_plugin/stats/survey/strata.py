"""Weighted means over independent groups of items, such as tasks (strata).

* `weighted_mean`, and its interval: `beta_effective` for scores in [0, 1], `mover` from any
  intervals of the tasks
* `smoothed_binary`, `smoothed_scores`: means and variances of tasks, none of which is 0

Weights are fixed numbers along the last axis, one per task, and are divided by their sum: items per
task for a micro average, ones for a macro average. A NaN in any task makes the group NaN.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from evalstats_plugin.stats import bounded
from evalstats_plugin.stats.arrays import FloatArray
from evalstats_plugin.stats.interval import Interval
from evalstats_plugin.stats.means import moments


class Smoothed(NamedTuple):
    """Means between 0 and 1 and the variances of their estimates, for `beta_effective`.

    As if one further item had scored 0 and one 1, so that no task has variance 0.
    """

    mean: FloatArray
    variance: FloatArray


def weighted_mean(estimates: ArrayLike, weights: ArrayLike) -> FloatArray:
    """Mean of the tasks' estimates, shape (..., T) to (...).

    >>> float(weighted_mean([0.5, 1.0], [300, 100]))
    0.625
    """
    return (np.asarray(estimates, dtype=np.float64) * _shares(weights)).sum(axis=-1)


def mover(estimates: ArrayLike, intervals: Interval, weights: ArrayLike) -> Interval:
    """MOVER interval for the weighted mean, from any intervals of the tasks [ZD08]_.

    Each margin is the root of the sum of squares of the tasks' margins times their weights: exact
    for normal estimates, and within bounds if the tasks' intervals are.
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

    The highest-density interval with uniform prior for the number of binary items that would give
    the weighted mean its variance; for a single binary task it is `bounded.beta_hpd`. It keeps its
    level with many small tasks, where `mover` does not: the tasks' asymmetries cancel in their
    mean, but not in the roots of sums of squares that `mover` uses.
    """
    shares = _shares(weights)
    mean = (shares * smoothed.mean).sum(axis=-1)
    variance = (shares**2 * smoothed.variance).sum(axis=-1)
    n_effective = mean * (1 - mean) / variance
    successes = np.clip(weighted_mean(estimates, weights), 0.0, 1.0) * n_effective
    # `successes` need not be a whole number.
    return bounded.beta_hpd(
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
