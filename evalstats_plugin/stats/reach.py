"""Partial credit: a mean, and a paired difference of means, each by one distribution.

* `mean_interval`: interval of the mean of scores between known bounds
* `difference`: interval, p-value and P(better) of two models' scores on the same items
* `reach_points`: where the farthest scores not yet seen may lie

The distribution is that of a mean with Dirichlet weights [Fer73]_: one unit of weight for each item
and ½ at each of two reach points. These are the mean ± k standard deviations, on the logit scale,
of the d *distinct partial* scores, k = 2.5 (d + 1)/(d - 1) + 20/(d - 1)³, never inside the range of
the scores. With d ≤ 1 they are the bounds, so that zeros and ones get Jeffreys' Beta(½, ½), and
pairs of them the posterior of `paired.dirichlet`.

* Distinct: under a Dirichlet process the likelihood of where scores may lie is a product over
  distinct values [Ant74]_; ties say nothing about what else may occur.
* Partial: a score u near a bound counts for less than one, u(1 - u)/.02, so that scores that tend
  to zeros and ones have limits that tend to theirs.
* k: the distance at which two half units make the interval of normal scores cover its level.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from evalstats_plugin.stats import bounded
from evalstats_plugin.stats.arrays import BoolArray, FloatArray
from evalstats_plugin.stats.interval import Interval, tail_probability
from evalstats_plugin.stats.means import moments

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


class Difference(NamedTuple):
    """Of the mean of b minus that of a: limits, two-sided p-value, and P(b is higher)."""

    low: FloatArray
    high: FloatArray
    p_value: FloatArray
    prob_better: FloatArray


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
    low, high = reach_points(u, information(u), attained=(ends[0], ends[1]))
    found = bounded.dirichlet_process(
        (u - low[:, None]) / (high - low)[:, None],
        bounds=(0.0, 1.0),
        mass=HALF,
        confidence_level=confidence_level,
    )
    scale = bounds[1] - bounds[0]
    limits = (bounds[0] + scale * (low + (high - low) * limit) for limit in found)
    return Interval(*(limit.reshape(shape) for limit in limits))


def difference(
    a: ArrayLike,
    b: ArrayLike,
    *,
    bounds: tuple[float, float],
    attained: Attained = (False, False),
    mass: float = HALF,
    confidence_level: float,
) -> Difference:
    """Mean of b minus that of a, on the same items.

    The p-value is twice the smaller of P(b is higher) and P(a is higher): it is below 1 - level
    exactly where the interval excludes 0. Calibrated down to about .001 for ten items. Limits are
    extended if necessary to hold the difference of the means; exchanging a and b changes their
    signs.

    Parameters
    ----------
    a, b : shape (P, M)
        Scores of the two models of each pair; items that lack either are left out. NaN where no
        item is left.
    bounds, attained
        Of the scores, as for `mean_interval`.
    mass
        Prior weight of each reach point; their distance is that for which ½ is right.

    Examples
    --------
    >>> a = [[0.791, 0.802, 0.824, 0.813, 0.780, 0.831, 0.805, 0.777]]
    >>> b = [[0.800, 0.833, 0.830, 0.804, 0.812, 0.850, 0.821, 0.803]]
    >>> found = difference(a, b, bounds=(0, 1), confidence_level=0.95)
    >>> print(f"{found.low[0]:.3f} {found.high[0]:.3f} {found.p_value[0]:.3f}")
    0.002 0.027 0.023
    """
    tail = tail_probability(confidence_level)
    first, second = np.broadcast_arrays(bounded.to_unit(a, bounds), bounded.to_unit(b, bounds))
    seen = ~np.isnan(second - first)
    empty = ~seen.any(axis=1)
    first, second = (np.where(seen, scores, np.nan) for scores in (first, second))
    estimate = np.where(seen, second - first, 0.0).sum(axis=1) / np.maximum(seen.sum(axis=1), 1)
    # The better model comes second: then P(mean <= 0) is the smaller tail and has all its digits.
    swapped = (estimate < 0)[:, None]
    support = _of_pairs(
        np.where(swapped, second, first), np.where(swapped, first, second), attained, mass
    )
    size, swapped = np.abs(estimate), swapped[:, 0]
    low, high = _limits(support, tail)
    # Between models that score alike on every item there is nothing to choose, and the integral,
    # symmetric about nearly all of the weight, would be slow.
    differ = np.any(first != second, axis=1, where=seen)
    below = np.full(len(differ), 0.5)
    below[differ] = _below_zero(_Support(*(part[differ] for part in support)))
    low, high = np.minimum(low, size), np.maximum(high, size)
    low, high = np.where(swapped, -high, low), np.where(swapped, -low, high)
    p_value = np.minimum(1.0, 2 * np.minimum(below, 1 - below))
    prob = np.where(swapped, below, 1 - below)
    scale = bounds[1] - bounds[0]
    columns = (scale * low, scale * high, p_value, prob)
    return Difference(*(np.where(empty, np.nan, column) for column in columns))


def information(u: FloatArray) -> FloatArray:
    """How much of a partial score each is: 0 at the bounds, 1 from about .02 away from them."""
    return np.minimum(1.0, u * (1 - u) / SOFT)


def reach_points(
    u: FloatArray, info: FloatArray, *, attained: Attained = (False, False)
) -> tuple[FloatArray, FloatArray]:
    """Lower and upper reach point of each row, in [0, 1].

    Parameters
    ----------
    u : shape (C, M)
        Scores on the scale of [0, 1], NaN where missing.
    info : shape (C, M)
        How much of a partial score each is.
    """
    spread = _spread_of_logits(u, info)
    low, high = _ends(u, special.expit(spread.mean - spread.far), special.expit(spread.upper))
    return np.where(attained[0], 0.0, low), np.where(attained[1], 1.0, high)


class _Spread(NamedTuple):
    """Mean of distinct partial scores, and k standard deviations of them; infinite for d ≤ 1."""

    mean: FloatArray
    far: FloatArray

    @property
    def upper(self) -> FloatArray:
        return self.mean + self.far


def _spread(values: FloatArray, weights: FloatArray) -> _Spread:
    d = weights.sum(axis=1)
    alone = d <= 1
    rest = np.where(alone, 1.0, d - 1)
    mean = np.where(alone, 0.0, (weights * values).sum(axis=1) / np.where(alone, 1.0, d))
    variance = (weights * (values - mean[:, None]) ** 2).sum(axis=1) / rest
    far = deviations(d, rest) * np.sqrt(variance)
    return _Spread(mean, np.where(alone, np.inf, far))


def deviations(d: FloatArray, rest: FloatArray) -> FloatArray:
    """Standard deviations from the mean to a reach point, k; `rest` is d - 1."""
    return MANY * (d + 1) / rest + FEW / rest**3


def _spread_of_logits(u: FloatArray, info: FloatArray) -> _Spread:
    scores, weights = partial(u, info)
    return _spread(special.logit(scores), weights)


def partial(u: FloatArray, info: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Scores in order, and how much each counts: of equal ones one, and none at a bound."""
    info = np.nan_to_num(info)
    key = np.where(np.isnan(u), 2.0, u)
    # Of equal scores the one that says most comes first, and alone counts.
    order = np.lexsort((-info, key), axis=1)
    scores, weights = (np.take_along_axis(x, order, axis=1) for x in (key, info))
    counts = (scores > SAME) & (scores < 1 - SAME)
    counts[:, 1:] &= np.diff(scores, axis=1) > SAME
    return np.where(counts, scores, 0.5), np.where(counts, weights, 0.0)


def _ends(u: FloatArray, low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Extend limits to the range of the scores."""
    seen = ~np.isnan(u)
    least = np.where(seen, u, np.inf).min(axis=1, initial=np.inf)
    greatest = np.where(seen, u, -np.inf).max(axis=1, initial=-np.inf)
    return np.minimum(low, least), np.maximum(high, greatest)


def beyond_straight(u: FloatArray, attained: Attained) -> tuple[FloatArray, FloatArray]:
    """By how much the reach points lie beyond those on the scores' own scale: below, above.

    0 for scores far from the bounds, whose logits are as good as linear; large on the long side of
    skewed ones.
    """
    low, high = reach_points(u, information(u), attained=attained)
    straight = _spread(*partial(u, information(u)))
    least, greatest = _ends(u, straight.mean - straight.far, straight.upper)
    alone = np.isinf(straight.far)
    below, above = np.maximum(0.0, least - low), np.maximum(0.0, high - greatest)
    return np.where(alone, 0.0, below), np.where(alone, 0.0, above)


class _Support(NamedTuple):
    """Weights of a mean difference, all on the scale on which the reach points are 0 and 1."""

    atoms: FloatArray
    """Shape (P, D), like the weights: distinct differences, the ends first and last."""
    weights: FloatArray
    zero: FloatArray
    """Shape (P,), like the next two: where the difference is 0."""
    low: FloatArray
    high: FloatArray
    """Reach points, on the scale of the differences."""


def _of_pairs(a: FloatArray, b: FloatArray, attained: Attained, mass: float) -> _Support:
    """Weights of the mean of b minus that of a.

    Differences lie in [-1, 1]; partial are those that are not -1, 0 or 1, as far as one of the two
    scores is. Skewed scores have skewed differences, of which a few say little: each model's own
    reach says more, as much of it as the pairing leaves. As much prior weight at 0, "alike", as at
    both ends fades as 0 gets out of reach: it cannot change P(better), only the width.
    """
    d = b - a
    info = np.maximum(if_varied(a), if_varied(b))
    info = np.where((np.abs(d) <= SAME) | (np.abs(d) >= 1 - SAME), 0.0, info)
    u = (d + 1) / 2
    low, high = (2 * end - 1 for end in reach_points(u, info))
    with np.errstate(invalid="ignore", divide="ignore"):
        kept = np.minimum(1.0, _std(d) / np.hypot(_std(a), _std(b)))
    kept = np.nan_to_num(kept)
    below_a, above_a = beyond_straight(a, attained)
    below_b, above_b = beyond_straight(b, attained)
    low = np.maximum(-1.0, low - kept * (above_a + below_b))
    high = np.minimum(1.0, high + kept * (above_b + below_a))
    spread = _spread_of_logits(u, info)
    with np.errstate(invalid="ignore", divide="ignore"):
        alike = np.maximum(0.0, 1 - (spread.mean / spread.far) ** 2)
    width = high - low
    zero = -low / width
    with_zero = np.where(alike > 0, zero, np.nan)[:, None]
    atoms, weights = bounded.distinct_scores(
        np.concatenate([(d - low[:, None]) / width[:, None], with_zero], axis=1)
    )
    # The zero was counted as one item.
    at_zero = (atoms == with_zero) & (weights > 0)
    weights = weights - np.where(at_zero, 1 - 2 * mass * alike[:, None], 0.0)
    weights[:, [0, -1]] += mass
    return _Support(atoms, weights, zero, low, high)


def if_varied(u: FloatArray) -> FloatArray:
    """Information of scores; none of a row without spread, such as a baseline's ½."""
    least, greatest = _ends(u, np.full(len(u), np.inf), np.full(len(u), -np.inf))
    return np.where((greatest - least > SAME)[:, None], information(u), 0.0)


def _std(values: FloatArray) -> FloatArray:
    return moments(values).std


def _limits(support: _Support, tail: float) -> tuple[FloatArray, FloatArray]:
    low = bounded.lower_limit(support.atoms, support.weights, tail)
    above = bounded.lower_limit(1 - support.atoms, support.weights, tail)
    width = support.high - support.low
    return support.low + width * low, support.high - width * above


def _below_zero(support: _Support) -> FloatArray:
    """P(mean difference ≤ 0)."""
    zero = support.zero
    below = (zero > 0).astype(np.float64)
    inside = np.nonzero((zero > 0) & (zero < 1))[0]
    below[inside] = bounded.dirichlet_cdf(
        support.atoms[inside], support.weights[inside], zero[inside]
    )
    return below
