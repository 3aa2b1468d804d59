"""Two models, a and b, on the same items: intervals and tests for the difference b - a.

* right or wrong answers: `dirichlet`, `tango`, `bonett_price`, `newcombe`, `wald`, `mcnemar_mid_p`,
  `prob_better`. The difference is P(b is right) - P(a is right); only discordant items, which one
  model alone gets right, carry information about its sign.
* scores of any kind: `dirichlet_process_prob`, `t_prob`. `differences` has shape (P, M), NaN where
  an item lacks a score.

Exchanging a and b changes the sign of every limit, exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from evalstats_plugin.stats import bounded
from evalstats_plugin.stats.arrays import FloatArray, IntArray, as_floats
from evalstats_plugin.stats.bounded import binomial_cdf, wilson
from evalstats_plugin.stats.interval import (
    Interval,
    increasing_root,
    normal_quantile,
    tail_probability,
)
from evalstats_plugin.stats.means import moments, std_error, t_prob_positive

LowerLimit: TypeAlias = Callable[[FloatArray, FloatArray, FloatArray], FloatArray]
"""Lower limit from the numbers of items that only a, and only b, gets right, and of all items."""


class PairedCounts(NamedTuple):
    """2 × 2 tables of right and wrong: arrays of one shape, NaN where there are no items."""

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


def paired_counts(
    both: ArrayLike, only_a: ArrayLike, only_b: ArrayLike, neither: ArrayLike
) -> PairedCounts:
    """Build tables from counts that broadcast against each other."""
    cells = as_floats(both, only_a, only_b, neither)
    if any(np.any(x < 0) for x in cells):
        raise ValueError("counts of items must not be negative")
    empty = sum(cells) == 0
    return PairedCounts(*(np.where(empty, np.nan, x) for x in cells))


def dirichlet(
    counts: PairedCounts, *, confidence_level: float, prior: tuple[float, float]
) -> Interval:
    """Dirichlet posterior of the four cells, equal tails of the difference.

    The difference is a mean of -1, 0 and 1 with Dirichlet weights, whose quantiles
    `bounded.dirichlet_quantile` gives to about 1e-11. Extended if necessary to hold the estimate.

    Parameters
    ----------
    prior
        Of each discordant cell, and of the two others together: (½, 1) is Jeffreys'
        Dirichlet(½, ½, ½, ½); (⅓, 4⅓) makes each model's score uniform.

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
        limit = bounded.dirichlet_quantile(atoms, weights, tail)
        return np.minimum(limit, (only_b - only_a) / n)

    return _mirrored(lower, counts)


def prob_better(counts: PairedCounts, *, prior: tuple[float, float]) -> FloatArray:
    """Posterior probability that b is better than a, in closed form.

    P(p_b > p_a) under the model of `dirichlet`: the probability that a Beta variable is below ½.

    >>> print(f"{prob_better(paired_counts(19, 2, 4, 5), prior=(0.5, 1.0)):.6f}")
    0.791026
    """
    a, b = counts.only_a + prior[0], counts.only_b + prior[0]
    # Exactly ½ for equal counts, free of rounding errors.
    return np.where(a == b, 0.5, special.betainc(a, b, 0.5))


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

        # Not from 0, where the statistic of tables without discordant items is 0/0.
        start = np.full(len(n), -0.5)
        root = increasing_root(excess, start, bracket=(-1.0, 1.0), tolerance=1e-9)
        # If a alone is right on every item, the limit is -1.
        return np.where(only_a == n, -1.0, root)

    return _mirrored(lower, counts)


def _score_statistic(
    at: FloatArray, only_a: FloatArray, only_b: FloatArray, n: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Tango's statistic for a true difference, and its derivative.

    P(only a is right) is the root p of 2n p² + linear p + constant = 0 [Tan98]_ (eq. 24).
    """
    linear = (2 * n - only_b + only_a) * at - only_a - only_b
    constant = -only_a * at * (1 - at)
    root = np.sqrt(np.maximum(linear**2 - 8 * n * constant, 0))
    # Of the two forms of the solution, the one without cancellation.
    p = np.where(linear > 0, -2 * constant / (linear + root), (root - linear) / (4 * n))
    p_slope = (only_a * (1 - 2 * at) - (2 * n - only_b + only_a) * p) / root
    variance = n * (2 * p + at * (1 - at))
    statistic = (only_b - only_a - n * at) / np.sqrt(variance)
    variance_slope = n * (2 * p_slope + 1 - 2 * at)
    return statistic, -n / np.sqrt(variance) - statistic * variance_slope / (2 * variance)


def bonett_price(counts: PairedCounts, *, confidence_level: float) -> Interval:
    """Wald interval after adding one item to each discordant cell [BP12]_."""
    z = normal_quantile(confidence_level)

    def lower(only_a: FloatArray, only_b: FloatArray, n: FloatArray) -> FloatArray:
        a, b = (only_a + 1) / (n + 2), (only_b + 1) / (n + 2)
        return b - a - z * np.sqrt((a + b - (b - a) ** 2) / (n + 2))

    return _mirrored(lower, counts)


def newcombe(counts: PairedCounts, *, confidence_level: float) -> Interval:
    """Square-and-add of the two Wilson intervals with their correlation [New98c]_ (method 10).

    The correlation has a continuity correction.
    """
    n = counts.n
    right_a, right_b = counts.both + counts.only_a, counts.both + counts.only_b
    a, b = (wilson(right, n, confidence_level=confidence_level) for right in (right_a, right_b))
    p_a, p_b = right_a / n, right_b / n
    both, only_a, only_b, neither = counts
    margins = (both + only_a) * (only_b + neither) * (both + only_b) * (only_a + neither)
    product = both * neither - only_a * only_b
    product = np.where(product > 0, np.maximum(product - n / 2, 0), product)
    # 0 where it is undefined.
    phi = np.where(margins > 0, product / np.sqrt(np.where(margins > 0, margins, 1)), 0.0)

    def combined(first: FloatArray, second: FloatArray) -> FloatArray:
        return np.sqrt(np.maximum(first**2 - 2 * phi * first * second + second**2, 0))

    difference = counts.difference
    return Interval(
        difference - combined(p_b - b.low, a.high - p_a),
        difference + combined(b.high - p_b, p_a - a.low),
    )


def wald(counts: PairedCounts, *, confidence_level: float) -> Interval:
    """Interval of the normal approximation, kept for comparison.

    It has no width when no item, or every item, is discordant in the same direction.
    """
    difference, n = counts.difference, counts.n
    spread = np.sqrt((counts.only_a + counts.only_b - n * difference**2) / n**2)
    half = normal_quantile(confidence_level) * spread
    return Interval(difference - half, difference + half)


def _mirrored(lower: LowerLimit, counts: PairedCounts) -> Interval:
    """Both limits from the lower one, within [-1, 1]: exchanging a and b changes the sign."""
    n = counts.n
    observed = ~np.isnan(n)
    a, b, total = counts.only_a[observed], counts.only_b[observed], n[observed]
    # Thousands of pairs have few distinct tables, and those of b against a are mirrored.
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
    low[observed], high[observed] = limits[: len(a)], -limits[len(a) :]
    return Interval(low, high)


def mcnemar_mid_p(counts: PairedCounts) -> FloatArray:
    """Two-sided mid-p McNemar test: counts half of the probability of the observed table [FLL13]_.

    Unlike the exact test it is not conservative, and its error rate rarely exceeds the level.
    """
    fewer, differ = np.minimum(counts.only_a, counts.only_b), counts.only_a + counts.only_b
    # Twice (P(X < fewer) + P(X = fewer) / 2).
    return np.minimum(binomial_cdf(fewer, differ, 0.5) + binomial_cdf(fewer - 1, differ, 0.5), 1.0)


def dirichlet_process_prob(
    differences: ArrayLike, *, bounds: tuple[float, float], mass: float
) -> FloatArray:
    """Posterior probability that the mean difference is positive [Fer73]_.

    By the posterior of `bounded.dirichlet_process` with these bounds and mass; exactly ½ if every
    difference is 0, NaN without any.
    """
    values: FloatArray = np.asarray(differences, dtype=np.float64)
    seen = ~np.isnan(values)
    values = np.where(seen, values, 0.0)
    # If every difference is 0 the answer is known, and the integral slow.
    unequal = np.any(values != 0, axis=1)
    atoms = values[unequal]
    ends = np.broadcast_to(np.asarray(bounds, dtype=np.float64), (len(atoms), 2))
    atoms = np.concatenate([ends, atoms], axis=1)
    weights = np.concatenate([np.full_like(ends, mass), seen[unequal]], axis=1)
    prob = np.where(seen.any(axis=1), 0.5, np.nan)
    prob[unequal] = 1 - bounded.dirichlet_cdf(atoms, weights, np.zeros(len(atoms)))
    return prob


def t_prob(differences: ArrayLike) -> FloatArray:
    """Posterior probability that the mean difference is positive, of normal differences.

    Under the prior for which the posterior's quantiles are the limits of `means.t_interval`; NaN
    where all differences are equal and not 0, because they do not vary.
    """
    n, mean, _ = moments(differences)
    return t_prob_positive(mean, std_error(differences), n - 1)
