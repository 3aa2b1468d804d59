"""Two models on items of their own, each right or wrong: by how much is b better?

By the difference of P(right), by its ratio b : a, or by the ratio of the odds. The two models'
items are independent samples, which tells less than the same items would: see `paired_binary`.
Exchanging a and b changes the sign of every limit of a difference, exactly.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from evalstats_plugin.stats.binomial import wilson
from evalstats_plugin.stats.interval import (
    FloatArray,
    IntArray,
    Interval,
    increasing_root,
    normal_quantile,
)

# Slopes by central differences, exact enough for Newton's method.
STEP = 1e-6
# Numbers held at a time.
BLOCK_SIZE = 2**22


class Counts(NamedTuple):
    """How many of its items each model gets right: arrays of one shape, NaN without items."""

    right_a: FloatArray
    n_a: FloatArray
    right_b: FloatArray
    n_b: FloatArray

    @property
    def exchanged(self) -> "Counts":
        """The same with a and b exchanged."""
        return Counts(self.right_b, self.n_b, self.right_a, self.n_a)

    @property
    def difference(self) -> FloatArray:
        """P(b is right) - P(a is right), as seen."""
        return self.right_b / self.n_b - self.right_a / self.n_a

    @property
    def log_ratio(self) -> FloatArray:
        """Log of the ratio of b's share of right items to a's; infinite for 0, NaN for 0 : 0."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.log(self.right_b / self.n_b) - np.log(self.right_a / self.n_a)

    @property
    def log_odds_ratio(self) -> FloatArray:
        """Log of the ratio of b's odds to a's; NaN where both have none right, or all."""
        wrong = Counts(self.n_a - self.right_a, self.n_a, self.n_b - self.right_b, self.n_b)
        with np.errstate(invalid="ignore"):
            return self.log_ratio - wrong.log_ratio


LowerLimit: TypeAlias = Callable[[Counts], FloatArray]
Statistic: TypeAlias = Callable[[FloatArray, Counts], FloatArray]
"""Score statistic for the difference, log ratio or log odds ratio that is put to the test."""


def independent_counts(
    right_a: ArrayLike, n_a: ArrayLike, right_b: ArrayLike, n_b: ArrayLike
) -> Counts:
    """Build counts from arrays that broadcast against each other."""
    cells = np.broadcast_arrays(
        *(np.asarray(x, dtype=np.float64) for x in (right_a, n_a, right_b, n_b))
    )
    for right, n in (cells[:2], cells[2:]):
        if np.any((right < 0) | (right > n)):
            raise ValueError("right answers must lie between 0 and the number of items")
    empty = (cells[1] == 0) | (cells[3] == 0)
    return Counts(*(np.where(empty, np.nan, x) for x in cells))


def newcombe(counts: Counts, *, confidence_level: float) -> Interval:
    """Difference by both models' Wilson intervals, squared and added [New98b]_ (method 10).

    >>> counts = independent_counts(48, 80, 56, 70)
    >>> low, high = newcombe(counts, confidence_level=0.95)
    >>> print(f"{low:.4f} {high:.4f}")
    0.0524 0.3339
    """

    def lower(x: Counts) -> FloatArray:
        a, b = (
            wilson(right, n, confidence_level=confidence_level)
            for right, n in ((x.right_a, x.n_a), (x.right_b, x.n_b))
        )
        return x.difference - np.hypot(x.right_b / x.n_b - b.low, a.high - x.right_a / x.n_a)

    return _mirrored(lower, counts)


def wald(counts: Counts, *, confidence_level: float) -> Interval:
    """Difference ± z standard errors, kept to compare with: no width where all answers agree."""
    a, b = counts.right_a / counts.n_a, counts.right_b / counts.n_b
    spread = np.sqrt(a * (1 - a) / counts.n_a + b * (1 - b) / counts.n_b)
    half = normal_quantile(confidence_level) * spread
    return Interval(b - a - half, b - a + half)


def miettinen_nurminen(counts: Counts, *, confidence_level: float) -> Interval:
    """Score interval of the difference: all that a score test would not reject [MN85]_.

    >>> counts = independent_counts(48, 80, 56, 70)
    >>> low, high = miettinen_nurminen(counts, confidence_level=0.95)
    >>> print(f"{low:.4f} {high:.4f}")
    0.0528 0.3382
    """
    certain = (counts.right_b == 0) & (counts.right_a == counts.n_a)
    certainly_better = (counts.right_a == 0) & (counts.right_b == counts.n_b)
    low, high = _score_interval(_difference_statistic, counts, (-1.0, 1.0), confidence_level)
    return Interval(np.where(certain, -1.0, low), np.where(certainly_better, 1.0, high))


def mn_ratio(counts: Counts, *, confidence_level: float) -> Interval:
    """Score interval of the ratio b : a [MN85]_; up to infinity where a has nothing right."""
    low, high = _score_interval(_ratio_statistic, counts, (-50.0, 50.0), confidence_level)
    return Interval(
        np.where(counts.right_b == 0, 0.0, np.exp(low)),
        np.where(counts.right_a == 0, np.inf, np.exp(high)),
    )


def mn_odds(counts: Counts, *, confidence_level: float) -> Interval:
    """Score interval of the odds ratio b : a [MN85]_; from 0 or to infinity where a cell is 0."""
    low, high = _score_interval(_odds_statistic, counts, (-50.0, 50.0), confidence_level)
    no_lower = (counts.right_b == 0) | (counts.right_a == counts.n_a)
    no_upper = (counts.right_a == 0) | (counts.right_b == counts.n_b)
    return Interval(np.where(no_lower, 0.0, np.exp(low)), np.where(no_upper, np.inf, np.exp(high)))


def katz(counts: Counts, *, confidence_level: float) -> Interval:
    """Ratio ± z standard errors on the log scale [KBA78]_, kept to compare with; NaN for 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        a, b = (1 / k - 1 / n for k, n in ((counts.right_a, counts.n_a), counts[2:]))
        half = normal_quantile(confidence_level) * np.sqrt(a + b)
        log_ratio = counts.log_ratio
        return Interval(np.exp(log_ratio - half), np.exp(log_ratio + half))


def fisher_mid_p(counts: Counts) -> FloatArray:
    """Two-sided p-value of equal models: twice the smaller tail of Fisher's test, mid-p [Lan61]_.

    Only half of the probability of what was seen counts, without which the test finds much less.
    """
    shape = counts.n_a.shape
    # The tail is summed from the model that has fewer right: of b, if need be exchanged.
    b_has_more = counts.difference > 0
    x = Counts(*(np.where(b_has_more, q, p) for p, q in zip(counts, counts.exchanged, strict=True)))
    cells = np.stack([cell.ravel() for cell in x], axis=1)
    there = ~np.isnan(cells).any(axis=1)
    distinct, where = np.unique(cells[there], axis=0, return_inverse=True)
    width = int(distinct[:, 2].max(initial=0)) + 1
    step = max(BLOCK_SIZE // width, 1)
    tails = [_mid_p_tail(distinct[i : i + step]) for i in range(0, len(distinct), step)]
    p_values = np.full(there.shape, np.nan)
    p_values[there] = np.minimum(2 * np.concatenate([np.zeros(0), *tails]), 1.0)[where]
    return p_values.reshape(shape)


def _mid_p_tail(cells: FloatArray) -> FloatArray:
    """P(X < right_b) + P(X = right_b)/2 of b's right answers, all right answers being given."""
    right_a, n_a, right_b, n_b = (cells[:, k : k + 1] for k in range(4))
    total = right_a + right_b
    most = int(right_b.max(initial=0))
    x = np.arange(most + 1, dtype=np.float64)
    possible = (x <= right_b) & (x >= total - n_a)
    inside = np.where(possible, x, right_b)
    log_ways = _log_choose(n_b, inside) + _log_choose(n_a, total - inside)
    chance = np.exp(log_ways - _log_choose(n_a + n_b, total))
    return (chance * np.where(x == right_b, 0.5, 1.0) * possible).sum(axis=1)


def _log_choose(n: FloatArray, k: FloatArray) -> FloatArray:
    return np.asarray(-special.betaln(n - k + 1, k + 1) - np.log(n + 1), dtype=np.float64)


def _score_interval(
    statistic: Statistic, counts: Counts, bracket: tuple[float, float], confidence_level: float
) -> Interval:
    """Where the statistic, which falls, is z; limits without a root are for the caller."""
    z = normal_quantile(confidence_level)

    def lower(x: Counts) -> FloatArray:
        def excess(at: FloatArray, pairs: IntArray) -> tuple[FloatArray, FloatArray]:
            some = Counts(*(cell[pairs] for cell in x))
            slope = (statistic(at - STEP, some) - statistic(at + STEP, some)) / (2 * STEP)
            return z - statistic(at, some), slope

        start = np.zeros_like(x.n_a)
        return increasing_root(excess, start, bracket=bracket, tolerance=1e-10)

    return _mirrored(lower, counts, bracket)


def _difference_statistic(at: FloatArray, x: Counts) -> FloatArray:
    """[MN85]_: the restricted estimate is the root of a cubic."""
    n, total = x.n_a + x.n_b, x.right_a + x.right_b
    l2 = (x.n_b + 2 * x.n_a) * at - n - total
    l1 = (x.n_a * at - n - 2 * x.right_a) * at + total
    l0 = x.right_a * at * (1 - at)
    q = (l2 / (3 * n)) ** 3 - l1 * l2 / (6 * n**2) + l0 / (2 * n)
    p = np.copysign(np.sqrt(np.maximum((l2 / (3 * n)) ** 2 - l1 / (3 * n), 0)), q)
    cosine = np.clip(np.divide(q, p**3, out=np.zeros_like(q), where=p != 0), -1, 1)
    a = 2 * p * np.cos((np.pi + np.arccos(cosine)) / 3) - l2 / (3 * n)
    a = np.clip(a, np.maximum(-at, 0), np.minimum(1 - at, 1))
    # The arc cosine loses digits near its ends, which a step of Newton's brings back.
    slope = (3 * n * a + 2 * l2) * a + l1
    step = np.divide(
        ((n * a + l2) * a + l1) * a + l0, slope, out=np.zeros_like(a), where=slope != 0
    )
    a = np.clip(a - np.clip(step, -1e-6, 1e-6), np.maximum(-at, 0), np.minimum(1 - at, 1))
    return _standardised(x, x.difference - at, a, a + at, 1.0)


def _ratio_statistic(at: FloatArray, x: Counts) -> FloatArray:
    """[MN85]_: the restricted estimate is the root of a quadratic."""
    ratio, n, total = np.exp(at), x.n_a + x.n_b, x.right_a + x.right_b
    linear = x.n_b * ratio + x.right_b + x.n_a + x.right_a * ratio
    a = 2 * total / (linear + np.sqrt(np.maximum(linear**2 - 4 * n * ratio * total, 0)))
    gap = x.right_b / x.n_b - ratio * x.right_a / x.n_a
    return _standardised(x, gap, a, ratio * a, ratio)


def _standardised(
    x: Counts, gap: FloatArray, a: FloatArray, b: FloatArray, weight: FloatArray | float
) -> FloatArray:
    """Gap over its standard error at the restricted estimates, with the factor n/(n - 1)."""
    n = x.n_a + x.n_b
    variance = b * (1 - b) / x.n_b + weight**2 * a * (1 - a) / x.n_a
    with np.errstate(divide="ignore", invalid="ignore"):
        statistic = gap / np.sqrt(np.maximum(variance, 0) * n / (n - 1))
    return np.where(gap == 0, 0.0, statistic)


def _odds_statistic(at: FloatArray, x: Counts) -> FloatArray:
    """[MN85]_: the restricted estimate is the root of a quadratic, here too."""
    ratio, n, total = np.exp(at), x.n_a + x.n_b, x.right_a + x.right_b
    square = x.n_a * (ratio - 1)
    linear = x.n_b * ratio + x.n_a - total * (ratio - 1)
    a = 2 * total / (linear + np.sqrt(np.maximum(linear**2 + 4 * square * total, 0)))
    b = a * ratio / (1 + a * (ratio - 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        precision = 1 / (x.n_b * b * (1 - b)) + 1 / (x.n_a * a * (1 - a))
        return (x.right_b - x.n_b * b) * np.sqrt(precision * (n - 1) / n)


def _mirrored(
    lower: LowerLimit, counts: Counts, bracket: tuple[float, float] = (-1.0, 1.0)
) -> Interval:
    """Both limits from the lower one: exchanging a and b changes the sign."""
    cells = np.stack([cell.ravel() for cell in counts], axis=1)
    there = ~np.isnan(cells).any(axis=1)
    n = int(there.sum())
    # Thousands of pairs hold few distinct counts, and those of b against a are the same again.
    both_ways = np.concatenate([cells[there], cells[there][:, [2, 3, 0, 1]]])
    distinct, where = np.unique(both_ways, axis=0, return_inverse=True)
    limits = np.clip(lower(Counts(*distinct.T)), *bracket)[where]
    low, high = np.full((2, len(cells)), np.nan)
    low[there], high[there] = limits[:n], -limits[n:]
    return Interval(low.reshape(counts.n_a.shape), high.reshape(counts.n_a.shape))
