"""Default of version 0.2.0 for two models' scores on the same items, as a competitor in studies.

A mean of differences with Dirichlet weights: one for each item, and ½ at each of two reach points,
which are those of the differences on the logit scale, moved out by what the scores themselves
reach beyond a straight line. For 0/1 scores the posterior of Dirichlet(½, ½, ½, ½).
"""

from typing import NamedTuple

import numpy as np
from scipy import special

from evalstats_plugin.stats import bounded

HALF = 0.5
MANY = 2.5
FEW = 20.0
SOFT = 0.02
SAME = 1e-9


def p_values(a, b):
    """Two-sided p-value of no difference of each pair; scores in [0, 1], shape (P, M)."""
    a, b, _ = _ordered(a, b)
    p = np.ones(len(a))
    differ = np.abs(b - a).max(axis=1) > SAME
    atoms, weights, low, high = _support(a[differ], b[differ])
    zero = -low / (high - low)
    below = (zero > 0) * 1.0
    inside = np.nonzero((zero > 0) & (zero < 1))[0]
    below[inside] = bounded.dirichlet_cdf(atoms[inside], weights[inside], zero[inside])
    p[differ] = np.minimum(1.0, 2 * np.minimum(below, 1 - below))
    return p


def limits(a, b, tail=0.025):
    """Limits of the mean difference b - a of each pair."""
    a, b, swapped = _ordered(a, b)
    atoms, weights, least, greatest = _support(a, b)
    width, size = greatest - least, (b - a).mean(axis=1)
    low = least + width * bounded.lower_limit(atoms, weights, tail)
    high = greatest - width * bounded.lower_limit(1 - atoms, weights, tail)
    low, high = np.minimum(low, size), np.maximum(high, size)
    return np.where(swapped, -high, low), np.where(swapped, -low, high)


def _ordered(a, b):
    """The better model second."""
    swapped = (b - a).mean(axis=1) < 0
    return np.where(swapped[:, None], b, a), np.where(swapped[:, None], a, b), swapped


def _support(a, b):
    """Atoms and weights with the reach points at 0 and 1, and the reach points themselves."""
    d = b - a
    attained = tuple(((a == end) | (b == end)).any(axis=1) for end in (0.0, 1.0))
    info = np.maximum(_if_varied(a), _if_varied(b))
    info = np.where((np.abs(d) <= SAME) | (np.abs(d) >= 1 - SAME), 0.0, info)
    u = (d + 1) / 2
    low, high = (2 * end - 1 for end in _reach_points(u, info))
    both = np.hypot(a.std(axis=1), b.std(axis=1))
    kept = np.minimum(1.0, d.std(axis=1) / np.where(both > 0, both, np.inf))
    below_a, above_a = _beyond_straight(a, attained)
    below_b, above_b = _beyond_straight(b, attained)
    low = np.maximum(-1.0, low - kept * (above_a + below_b))
    high = np.minimum(1.0, high + kept * (above_b + below_a))
    spread = _spread_of_logits(u, info)
    with np.errstate(invalid="ignore", divide="ignore"):
        alike = np.maximum(0.0, 1 - (spread.mean / spread.far) ** 2)
    width = high - low
    zero = np.where(alike > 0, -low / width, np.nan)[:, None]
    shares = np.concatenate([(d - low[:, None]) / width[:, None], zero], axis=1)
    atoms, weights = bounded.distinct_scores(shares)
    at_zero = (atoms == zero) & (weights > 0)
    # The zero was counted as one item.
    weights = weights - np.where(at_zero, 1 - 2 * HALF * alike[:, None], 0.0)
    weights[:, [0, -1]] += HALF
    return atoms, weights, low, high


def _if_varied(u):
    varied = u.max(axis=1) - u.min(axis=1) > SAME
    return np.where(varied[:, None], _information(u), 0.0)


def _beyond_straight(u, attained):
    """By how much reach points lie beyond those on the scores' own scale: below, above."""
    low, high = _reach_points(u, _information(u), attained=attained)
    straight = _spread(*_partial(u, _information(u)))
    least, greatest = _ends(u, straight.mean - straight.far, straight.upper)
    alone = np.isinf(straight.far)
    below, above = np.maximum(0.0, least - low), np.maximum(0.0, high - greatest)
    return np.where(alone, 0.0, below), np.where(alone, 0.0, above)


def _information(u):
    """How much of a partial score each is: 0 at the bounds, 1 from about .02 away from them."""
    return np.minimum(1.0, u * (1 - u) / SOFT)


def _reach_points(u, info, *, attained=(False, False)):
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

    mean: np.ndarray
    far: np.ndarray

    @property
    def upper(self):
        return self.mean + self.far


def _spread(values, weights):
    d = weights.sum(axis=1)
    alone = d <= 1
    rest = np.where(alone, 1.0, d - 1)
    mean = np.where(alone, 0.0, (weights * values).sum(axis=1) / np.where(alone, 1.0, d))
    variance = (weights * (values - mean[:, None]) ** 2).sum(axis=1) / rest
    far = _deviations(d, rest) * np.sqrt(variance)
    return _Spread(mean, np.where(alone, np.inf, far))


def _deviations(d, rest):
    """Standard deviations from the mean to a reach point, k; `rest` is d - 1."""
    return MANY * (d + 1) / rest + FEW / rest**3


def _spread_of_logits(u, info):
    scores, weights = _partial(u, info)
    return _spread(special.logit(scores), weights)


def _partial(u, info):
    """Scores in order, and how much each counts: of equal ones one, and none at a bound."""
    info = np.nan_to_num(info)
    key = np.where(np.isnan(u), 2.0, u)
    # Of equal scores the one that says most comes first, and alone counts.
    order = np.lexsort((-info, key), axis=1)
    scores, weights = (np.take_along_axis(x, order, axis=1) for x in (key, info))
    counts = (scores > SAME) & (scores < 1 - SAME)
    counts[:, 1:] &= np.diff(scores, axis=1) > SAME
    return np.where(counts, scores, 0.5), np.where(counts, weights, 0.0)


def _ends(u, low, high):
    """Extend limits to the range of the scores."""
    seen = ~np.isnan(u)
    least = np.where(seen, u, np.inf).min(axis=1, initial=np.inf)
    greatest = np.where(seen, u, -np.inf).max(axis=1, initial=-np.inf)
    return np.minimum(low, least), np.maximum(high, greatest)
