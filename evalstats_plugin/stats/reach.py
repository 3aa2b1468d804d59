"""Partial credit: the mean of one model's scores between known bounds, by one distribution.

* `mean_interval`: its interval
* `one_more`: what one more item could have shown
* `reach_points`: where the farthest scores not yet seen may lie

The distribution is that of a mean with Dirichlet weights [Fer73]_: one unit of weight for each item
and ½ at each of two reach points. These are the mean ± k standard deviations, on the logit scale,
of the d *distinct partial* scores, k = 2.5 (d + 1)/(d - 1) + 20/(d - 1)³, never inside the range of
the scores. With d ≤ 1 they are the bounds, so that zeros and ones get Jeffreys' Beta(½, ½).

* Distinct: under a Dirichlet process the likelihood of where scores may lie is a product over
  distinct values [Ant74]_; ties say nothing about what else may occur.
* Partial: a score u near a bound counts for less than one, u(1 - u)/.02, so that scores that tend
  to zeros and ones have limits that tend to theirs.
* k: the distance at which two half units make the interval of normal scores cover its level.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from evalstats_plugin.stats import bounded
from evalstats_plugin.stats.arrays import BoolArray, FloatArray
from evalstats_plugin.stats.interval import Interval, tail_probability

# Weight of each reach point: that of Jeffreys' prior.
HALF = 0.5

# Standard deviations from the mean to a reach point, for many scores, and what few add to it.
MANY = 2.5
FEW = 20.0

# u(1 - u) below which a score is partly a zero or a one.
SOFT = 0.02

# Scores, as shares of the range, no farther apart than this are one score: rounding errors.
SAME = 1e-9

Attained: TypeAlias = tuple[BoolArray | bool, BoolArray | bool]
"""Whether scores at the lower and at the upper bound are known to occur, each of shape (...)."""


def mean_interval(
    scores: ArrayLike,
    *,
    bounds: tuple[float, float],
    attained: Attained = (False, False),
    confidence_level: float,
) -> Interval:
    """Equal-tailed interval of the mean, extended if necessary to hold the mean of the scores.

    Parameters
    ----------
    scores : shape (..., M)
        NaN where missing; limits are NaN without scores.
    bounds
        Least and greatest possible score.
    attained
        Bounds that scores of this metric are known to reach, say failed answers of other models
        that got 0. They are then the reach points, whatever these scores are.

    Examples
    --------
    >>> scores = [0.79, 0.80, 0.82, 0.81, 0.78, 0.83, 0.80, 0.77]
    >>> low, high = mean_interval(scores, bounds=(0, 1), confidence_level=0.95)
    >>> print(f"{low:.3f} {high:.3f}")
    0.778 0.817
    """
    unit = bounded.to_unit(scores, bounds)
    shape = unit.shape[:-1]
    u = unit.reshape(int(np.prod(shape)), unit.shape[-1])
    ends = [np.broadcast_to(end, shape).reshape(-1) for end in attained]
    low, high = reach_points(u, attained=(ends[0], ends[1]))
    unit_limits = bounded.dirichlet_process(
        (u - low[:, None]) / (high - low)[:, None],
        bounds=(0.0, 1.0),
        mass=HALF,
        confidence_level=confidence_level,
    )
    scale = bounds[1] - bounds[0]
    limits = (bounds[0] + scale * (low + (high - low) * limit) for limit in unit_limits)
    return Interval(*(limit.reshape(shape) for limit in limits))


def one_more(
    scores: ArrayLike, *, bounds: tuple[float, float], confidence_level: float
) -> Interval:
    """Limits if one more item had the least possible score, and if it had the greatest.

    Quantiles of the Bayesian bootstrap [Rub81]_ of the scores and that one: what so few cannot
    show, such as rare failures that none of them is.

    Parameters
    ----------
    scores : shape (..., M)
        NaN where missing; limits are NaN without scores.

    Examples
    --------
    >>> low, high = one_more([0.79, 0.80, 0.82, 0.81], bounds=(0, 1), confidence_level=0.95)
    >>> print(f"{low:.2f} {high:.2f}")
    0.32 0.92
    """
    unit = bounded.to_unit(scores, bounds)
    tail = tail_probability(confidence_level)
    ends: list[FloatArray] = []
    for u in (unit, 1 - unit):
        atoms, weights = bounded.distinct_scores(u)
        weights[:, 0] += 1
        ends.append(bounded.lower_limit(atoms, weights, tail).reshape(unit.shape[:-1]))
    empty, width = np.isnan(unit).all(axis=-1), bounds[1] - bounds[0]
    low, high = bounds[0] + width * ends[0], bounds[1] - width * ends[1]
    return Interval(np.where(empty, np.nan, low), np.where(empty, np.nan, high))


def reach_points(
    u: FloatArray, *, attained: Attained = (False, False)
) -> tuple[FloatArray, FloatArray]:
    """Lower and upper reach point of each row, in [0, 1].

    Parameters
    ----------
    u : shape (C, M)
        Scores on the scale of [0, 1], NaN where missing.
    """
    # Of equal scores one counts, and none at a bound; near a bound they count less than 1.
    scores = np.sort(np.where(np.isnan(u), 2.0, u), axis=1)
    counts = (scores > 0) & (scores < 1)
    counts[:, 1:] &= np.diff(scores, axis=1) > SAME
    scores = np.where(counts, scores, 0.5)
    weights = np.where(counts, np.minimum(1.0, scores * (1 - scores) / SOFT), 0.0)
    logits, d = special.logit(scores), weights.sum(axis=1)
    few = d <= 1
    rest = np.where(few, 1.0, d - 1)
    mean = np.where(few, 0.0, (weights * logits).sum(axis=1) / np.where(few, 1.0, d))
    variance = (weights * (logits - mean[:, None]) ** 2).sum(axis=1) / rest
    k = MANY * (d + 1) / rest + FEW / rest**3
    far = np.where(few, np.inf, k * np.sqrt(variance))
    seen = ~np.isnan(u)
    least = np.where(seen, u, np.inf).min(axis=1, initial=np.inf)
    greatest = np.where(seen, u, -np.inf).max(axis=1, initial=-np.inf)
    return (
        np.where(attained[0], 0.0, np.minimum(special.expit(mean - far), least)),
        np.where(attained[1], 1.0, np.maximum(special.expit(mean + far), greatest)),
    )
