"""Two models, a and b, on the same items, each right or wrong: by how much is b better?

The difference is P(b is right) - P(a is right). Only the items that one of the two gets right, and
the other does not, tell them apart. Exchanging a and b changes the sign of every limit, exactly.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from evalstats_plugin.stats import dirichlet_mean
from evalstats_plugin.stats.binomial import wilson
from evalstats_plugin.stats.interval import (
    FloatArray,
    IntArray,
    Interval,
    increasing_root,
    normal_quantile,
    tail_probability,
)


class PairedCounts(NamedTuple):
    """How many items each model gets right: arrays of one shape, NaN where there are no items."""

    both: FloatArray
    only_a: FloatArray
    only_b: FloatArray
    neither: FloatArray

    @property
    def n(self) -> FloatArray:
        """Number of items."""
        return self.both + self.only_a + self.only_b + self.neither

    @property
    def difference(self) -> FloatArray:
        """Share of items that b gets right, minus that of a."""
        return (self.only_b - self.only_a) / self.n


LowerLimit: TypeAlias = Callable[[FloatArray, FloatArray, FloatArray], FloatArray]
"""Lower limit by how many items only a gets right, only b does, and by the number of items."""


def paired_counts(
    both: ArrayLike, only_a: ArrayLike, only_b: ArrayLike, neither: ArrayLike
) -> PairedCounts:
    """Build tables from counts that broadcast against each other."""
    cells = np.broadcast_arrays(
        *(np.asarray(x, dtype=np.float64) for x in (both, only_a, only_b, neither))
    )
    if any(np.any(x < 0) for x in cells):
        raise ValueError("counts of items must not be negative")
    empty = sum(cells) == 0
    return PairedCounts(*(np.where(empty, np.nan, x) for x in cells))


def prob_better(counts: PairedCounts, *, prior: tuple[float, float]) -> FloatArray:
    """Posterior probability that b is better than a, in closed form.

    P(p_b > p_a) under the model of `dirichlet`: of a Beta variable to lie below ½.

    >>> print(f"{prob_better(paired_counts(19, 2, 4, 5), prior=(0.5, 1.0)):.6f}")
    0.791026
    """
    a, b = counts.only_a + prior[0], counts.only_b + prior[0]
    # Equally many of both are exactly as likely either way, whatever the rounding.
    return np.where(a == b, 0.5, special.betainc(a, b, 0.5))


def dirichlet(
    counts: PairedCounts, *, confidence_level: float, prior: tuple[float, float]
) -> Interval:
    """Dirichlet posterior of the four cells, equal tails of the difference.

    The difference is a mean of -1, 0 and 1 with Dirichlet weights, whose quantiles
    `dirichlet_mean` gives to about 1e-11. Extended where necessary to hold the estimate.

    Parameters
    ----------
    prior
        Of each of the cells that tell a and b apart, and of the two others together: (½, 1) is
        Jeffreys' Dirichlet(½, ½, ½, ½); (⅓, 4⅓) makes each model's score uniform.

    Examples
    --------
    >>> low, high = dirichlet(paired_counts(19, 2, 4, 5), confidence_level=0.95, prior=(0.5, 1.0))
    >>> print(f"{low:.4f} {high:.4f}")
    -0.0956 0.2268
    """
    if min(prior) <= 0:
        raise ValueError(f"a Dirichlet prior needs positive numbers, got {prior}")
    tail = tail_probability(confidence_level)

    def lower(only_a: FloatArray, only_b: FloatArray, n: FloatArray) -> FloatArray:
        alike = n - only_a - only_b
        weights = np.stack([only_a + prior[0], alike + prior[1], only_b + prior[0]], axis=1)
        atoms = np.broadcast_to([-1.0, 0.0, 1.0], weights.shape)
        limit = dirichlet_mean.quantile(atoms, weights, tail)
        return np.minimum(limit, (only_b - only_a) / n)

    return _mirrored(lower, counts)


def tango(counts: PairedCounts, *, confidence_level: float) -> Interval:
    """Score interval: all differences that a score test would not reject [Tan98]_.

    >>> low, high = tango(paired_counts(20, 0, 0, 0), confidence_level=0.95)
    >>> print(f"{low:.4f} {high:.4f}")
    -0.1611 0.1611
    """
    z = normal_quantile(confidence_level)

    def lower(only_a: FloatArray, only_b: FloatArray, n: FloatArray) -> FloatArray:
        def excess(at: FloatArray, tables: IntArray) -> tuple[FloatArray, FloatArray]:
            statistic, slope = _score_statistic(at, only_a[tables], only_b[tables], n[tables])
            return z - statistic, -slope

        start = _agresti_min_lower(only_a, only_b, n, z)
        start = np.clip(start, -0.999, 0.999)
        root = increasing_root(excess, start, bracket=(-1.0, 1.0), tolerance=1e-9)
        # If a alone is right on every item, no difference is too low.
        return np.where(only_a == n, -1.0, root)

    return _mirrored(lower, counts)


def bonett_price(counts: PairedCounts, *, confidence_level: float) -> Interval:
    """Wald interval after adding one item to each of the cells that differ [BP12]_."""
    z = normal_quantile(confidence_level)

    def lower(only_a: FloatArray, only_b: FloatArray, n: FloatArray) -> FloatArray:
        a, b = (only_a + 1) / (n + 2), (only_b + 1) / (n + 2)
        return b - a - z * np.sqrt((a + b - (b - a) ** 2) / (n + 2))

    return _mirrored(lower, counts)


def agresti_min(counts: PairedCounts, *, confidence_level: float) -> Interval:
    """Wald interval after adding half an item to each cell [AM05]_."""
    z = normal_quantile(confidence_level)

    def lower(only_a: FloatArray, only_b: FloatArray, n: FloatArray) -> FloatArray:
        return _agresti_min_lower(only_a, only_b, n, z)

    return _mirrored(lower, counts)


def wald(counts: PairedCounts, *, confidence_level: float) -> Interval:
    """Interval of the normal approximation, kept to compare with.

    It has no width when no item, or every item, tells the models apart.
    """
    difference, n = counts.difference, counts.n
    spread = np.sqrt((counts.only_a + counts.only_b - n * difference**2) / n**2)
    half = normal_quantile(confidence_level) * spread
    return Interval(difference - half, difference + half)


def newcombe(counts: PairedCounts, *, confidence_level: float) -> Interval:
    """Combines the two models' Wilson intervals, allowing for their correlation [New98c]_.

    His method 10, the correlation corrected for continuity.
    """
    n = counts.n
    right_a, right_b = counts.both + counts.only_a, counts.both + counts.only_b
    a, b = (wilson(right, n, confidence_level=confidence_level) for right in (right_a, right_b))
    p_a, p_b = right_a / n, right_b / n
    phi = _corrected_phi(counts)

    def combined(one: FloatArray, other: FloatArray) -> FloatArray:
        return np.sqrt(np.maximum(one**2 - 2 * phi * one * other + other**2, 0))

    difference = counts.difference
    return Interval(
        difference - combined(p_b - b.low, a.high - p_a),
        difference + combined(b.high - p_b, p_a - a.low),
    )


def mcnemar_exact(counts: PairedCounts) -> FloatArray:
    """Two-sided p-value of McNemar's exact test [McN47]_: a sign test on the items that differ."""
    fewer = np.minimum(counts.only_a, counts.only_b)
    return np.minimum(2 * _at_most(fewer, counts.only_a + counts.only_b), 1.0)


def mcnemar_mid_p(counts: PairedCounts) -> FloatArray:
    """McNemar's test with half of the probability of what was seen [FLL13]_.

    Unlike the exact test it is not conservative, and its error rate hardly ever exceeds the level.
    """
    fewer, differ = np.minimum(counts.only_a, counts.only_b), counts.only_a + counts.only_b
    # Twice (P(X < fewer) + P(X = fewer) / 2).
    return np.minimum(_at_most(fewer, differ) + _at_most(fewer - 1, differ), 1.0)


def _at_most(k: FloatArray, n: FloatArray) -> FloatArray:
    """P(X ≤ k) of X ~ Binomial(n, ½)."""
    inside = special.betainc(np.maximum(n - k, 0.5), np.maximum(k + 1, 0.5), 0.5)
    return np.where(k < 0, 0.0, np.where(k >= n, 1.0, inside))


def _score_statistic(
    at: FloatArray, only_a: FloatArray, only_b: FloatArray, n: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Tango's statistic for a true difference, and its derivative.

    P(only a is right) is the root p of 2n p² + linear p + constant = 0 [Tan98]_ (eq. 24).
    """
    linear = (2 * n - only_b + only_a) * at - only_a - only_b
    constant = -only_a * at * (1 - at)
    root = np.sqrt(np.maximum(linear**2 - 8 * n * constant, 0))
    # Of the two forms of the solution, the one that does not subtract.
    p = np.where(linear > 0, -2 * constant / (linear + root), (root - linear) / (4 * n))
    p_slope = (only_a * (1 - 2 * at) - (2 * n - only_b + only_a) * p) / root
    variance = n * (2 * p + at * (1 - at))
    statistic = (only_b - only_a - n * at) / np.sqrt(variance)
    variance_slope = n * (2 * p_slope + 1 - 2 * at)
    return statistic, -n / np.sqrt(variance) - statistic * variance_slope / (2 * variance)


def _agresti_min_lower(
    only_a: FloatArray, only_b: FloatArray, n: FloatArray, z: float
) -> FloatArray:
    difference = (only_b - only_a) / (n + 2)
    spread = (only_a + only_b + 1) / (n + 2) - difference**2
    return difference - z * np.sqrt(spread / (n + 2))


def _corrected_phi(counts: PairedCounts) -> FloatArray:
    """Correlation of being right, drawn towards 0 by half an item; 0 where it is undefined."""
    both, only_a, only_b, neither = counts
    margins = (both + only_a) * (only_b + neither) * (both + only_b) * (only_a + neither)
    product = both * neither - only_a * only_b
    product = np.where(product > 0, np.maximum(product - counts.n / 2, 0), product)
    return np.where(margins > 0, product / np.sqrt(np.where(margins > 0, margins, 1)), 0.0)


def _mirrored(lower: LowerLimit, counts: PairedCounts) -> Interval:
    """Both limits from the lower one, within [-1, 1]: exchanging a and b changes the sign."""
    n = counts.n
    there = ~np.isnan(n)
    a, b, total = counts.only_a[there], counts.only_b[there], n[there]
    # Thousands of pairs hold few distinct tables, and those of b against a are the same again.
    keys = np.concatenate([a, b]) + 1j * np.concatenate([b, a])
    tables, where = np.unique(keys, return_inverse=True)
    sizes, size_of = np.unique(total, return_inverse=True)
    cells, cell_of = np.unique(
        where * len(sizes) + np.concatenate([size_of, size_of]), return_inverse=True
    )
    table, size = np.divmod(cells, max(len(sizes), 1))
    limits = lower(tables[table].real, tables[table].imag, sizes[size])
    limits = np.clip(limits, -1.0, 1.0)[cell_of]
    low, high = np.full_like(n, np.nan), np.full_like(n, np.nan)
    low[there], high[there] = limits[: len(a)], -limits[len(a) :]
    return Interval(low, high)
