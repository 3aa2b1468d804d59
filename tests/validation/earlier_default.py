"""Default of version 0.2.0 for two models' scores on the same items, as a competitor in studies.

A mean of differences with Dirichlet weights: one for each item, and ½ at each of two reach points,
which are those of the differences on the logit scale, moved out by what the scores themselves
reach beyond a straight line. For 0/1 scores the posterior of Dirichlet(½, ½, ½, ½).
"""

import numpy as np

from evalstats_plugin.stats import bounded, reach

HALF = 0.5


def p_values(a, b):
    """Two-sided p-value of no difference of each pair; scores in [0, 1], shape (P, M)."""
    a, b, _ = _ordered(a, b)
    p = np.ones(len(a))
    differ = np.abs(b - a).max(axis=1) > reach.SAME
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
    info = np.where((np.abs(d) <= reach.SAME) | (np.abs(d) >= 1 - reach.SAME), 0.0, info)
    u = (d + 1) / 2
    low, high = (2 * end - 1 for end in reach.reach_points(u, info))
    both = np.hypot(a.std(axis=1), b.std(axis=1))
    kept = np.minimum(1.0, d.std(axis=1) / np.where(both > 0, both, np.inf))
    below_a, above_a = _beyond_straight(a, attained)
    below_b, above_b = _beyond_straight(b, attained)
    low = np.maximum(-1.0, low - kept * (above_a + below_b))
    high = np.minimum(1.0, high + kept * (above_b + below_a))
    spread = reach._spread_of_logits(u, info)
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
    varied = u.max(axis=1) - u.min(axis=1) > reach.SAME
    return np.where(varied[:, None], reach.information(u), 0.0)


def _beyond_straight(u, attained):
    """By how much reach points lie beyond those on the scores' own scale: below, above."""
    low, high = reach.reach_points(u, reach.information(u), attained=attained)
    straight = reach._spread(*reach.partial(u, reach.information(u)))
    least, greatest = reach._ends(u, straight.mean - straight.far, straight.upper)
    alone = np.isinf(straight.far)
    below, above = np.maximum(0.0, least - low), np.maximum(0.0, high - greatest)
    return np.where(alone, 0.0, below), np.where(alone, 0.0, above)
