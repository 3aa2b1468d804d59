"""Two models, a and b, on items of their own: intervals and tests for independent samples.

* right or wrong, difference of P(right): `newcombe`, `miettinen_nurminen`,
  `beta_difference`
* right or wrong, ratio b : a or odds ratio: `mn_ratio`, `beta_ratio`, `mn_odds`, `beta_odds_ratio`
* bounded scores: `dp_difference`
* scores of any kind: `welch`, `welch_t`, `welch_prob`
* `beta_contrast`: one of two independent Beta variables against the other
* `permuted_slices`: some of the items against the others, by permutation

Independent samples carry less information than the same items would: see `paired`. Exchanging a
and b changes the sign of every limit of a difference, exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from evalstats_plugin.stats import bounded
from evalstats_plugin.stats.arrays import BoolArray, FloatArray, IntArray, as_floats
from evalstats_plugin.stats.bounded import wilson
from evalstats_plugin.stats.clustered import cluster_moments
from evalstats_plugin.stats.interval import (
    Interval,
    Posterior,
    increasing_root,
    normal_quantile,
    tail_probability,
)
from evalstats_plugin.stats.means import moments, t_prob_positive, t_quantile

Contrast: TypeAlias = Literal["difference", "log ratio", "log odds ratio"]

# Step of the central differences that give slopes to Newton's method.
STEP = 1e-6

# Numbers held at a time.
BLOCK_SIZE = 2**22

# Permutations of units: numbers drawn in all, and bounds of how many permutations these make.
DRAWN, LEAST_PERMUTED, MOST_PERMUTED = 2**22, 1999, 9999

# Nodes of the trapezoid rule, whose error falls exponentially with their number.
NODES = 96

# The density beyond the quantiles of this probability is left out.
NEGLIGIBLE = 1e-15

# Distinct pairs processed at a time.
CONTRAST_BLOCK_SIZE = 2**11


class Counts(NamedTuple):
    """Right answers and items of each model: arrays of one shape, NaN without items."""

    right_a: FloatArray
    n_a: FloatArray
    right_b: FloatArray
    n_b: FloatArray

    @property
    def difference(self) -> FloatArray:
        """Observed share of right answers of b minus that of a."""
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
"""Score statistic at a hypothesised difference, log ratio or log odds ratio."""


def independent_counts(
    right_a: ArrayLike, n_a: ArrayLike, right_b: ArrayLike, n_b: ArrayLike
) -> Counts:
    """Build counts from arrays that broadcast against each other."""
    cells = as_floats(right_a, n_a, right_b, n_b)
    for right, n in (cells[:2], cells[2:]):
        if np.any((right < 0) | (right > n)):
            raise ValueError("right answers must lie between 0 and the number of items")
    empty = (cells[1] == 0) | (cells[3] == 0)
    return Counts(*(np.where(empty, np.nan, x) for x in cells))


def newcombe(counts: Counts, *, confidence_level: float) -> Interval:
    """Square-and-add of the two Wilson intervals, for the difference [New98b]_ (method 10).

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


def miettinen_nurminen(counts: Counts, *, confidence_level: float) -> Interval:
    """Score interval of the difference: all values that a score test does not reject [MN85]_.

    >>> counts = independent_counts(48, 80, 56, 70)
    >>> low, high = miettinen_nurminen(counts, confidence_level=0.95)
    >>> print(f"{low:.4f} {high:.4f}")
    0.0528 0.3382
    """
    only_a_right = (counts.right_b == 0) & (counts.right_a == counts.n_a)
    only_b_right = (counts.right_a == 0) & (counts.right_b == counts.n_b)
    low, high = _score_interval(_difference_statistic, counts, (-1.0, 1.0), confidence_level)
    return Interval(np.where(only_a_right, -1.0, low), np.where(only_b_right, 1.0, high))


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


def _score_interval(
    statistic: Statistic, counts: Counts, bracket: tuple[float, float], confidence_level: float
) -> Interval:
    """Roots of the falling statistic at ±z; the caller handles limits without a root."""
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
    """Score statistic of the difference; the restricted estimate is the root of a cubic [MN85]_."""
    n, total = x.n_a + x.n_b, x.right_a + x.right_b
    l2 = (x.n_b + 2 * x.n_a) * at - n - total
    l1 = (x.n_a * at - n - 2 * x.right_a) * at + total
    l0 = x.right_a * at * (1 - at)
    q = (l2 / (3 * n)) ** 3 - l1 * l2 / (6 * n**2) + l0 / (2 * n)
    p = np.copysign(np.sqrt(np.maximum((l2 / (3 * n)) ** 2 - l1 / (3 * n), 0)), q)
    cosine = np.clip(np.divide(q, p**3, out=np.zeros_like(q), where=p != 0), -1, 1)
    a = 2 * p * np.cos((np.pi + np.arccos(cosine)) / 3) - l2 / (3 * n)
    # The arc cosine loses digits near its ends, which a Newton step recovers.
    slope = (3 * n * a + 2 * l2) * a + l1
    step = np.divide(
        ((n * a + l2) * a + l1) * a + l0, slope, out=np.zeros_like(a), where=slope != 0
    )
    a -= np.clip(step, -1e-6, 1e-6)
    return _standardised(x, x.difference - at, a, a + at, 1.0)


def _ratio_statistic(at: FloatArray, x: Counts) -> FloatArray:
    """Score statistic of the log ratio; the restricted estimate solves a quadratic [MN85]_."""
    ratio, n, total = np.exp(at), x.n_a + x.n_b, x.right_a + x.right_b
    linear = x.n_b * ratio + x.right_b + x.n_a + x.right_a * ratio
    a = 2 * total / (linear + np.sqrt(np.maximum(linear**2 - 4 * n * ratio * total, 0)))
    gap = x.right_b / x.n_b - ratio * x.right_a / x.n_a
    return _standardised(x, gap, a, ratio * a, ratio)


def _odds_statistic(at: FloatArray, x: Counts) -> FloatArray:
    """Score statistic of the log odds ratio; the restricted estimate solves a quadratic [MN85]_."""
    ratio, n, total = np.exp(at), x.n_a + x.n_b, x.right_a + x.right_b
    square = x.n_a * (ratio - 1)
    linear = x.n_b * ratio + x.n_a - total * (ratio - 1)
    a = 2 * total / (linear + np.sqrt(np.maximum(linear**2 + 4 * square * total, 0)))
    b = a * ratio / (1 + a * (ratio - 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        precision = 1 / (x.n_b * b * (1 - b)) + 1 / (x.n_a * a * (1 - a))
        return (x.right_b - x.n_b * b) * np.sqrt(precision * (n - 1) / n)


def _standardised(
    x: Counts, gap: FloatArray, a: FloatArray, b: FloatArray, weight: FloatArray | float
) -> FloatArray:
    """Gap over its standard error at the restricted estimates, with the factor n/(n - 1)."""
    n = x.n_a + x.n_b
    variance = b * (1 - b) / x.n_b + weight**2 * a * (1 - a) / x.n_a
    with np.errstate(divide="ignore", invalid="ignore"):
        statistic = gap / np.sqrt(np.maximum(variance, 0) * n / (n - 1))
    return np.where(gap == 0, 0.0, statistic)


def _mirrored(
    lower: LowerLimit, counts: Counts, bracket: tuple[float, float] = (-1.0, 1.0)
) -> Interval:
    """Both limits from the lower one: exchanging a and b changes the sign."""
    observed, distinct, where = _both_ways(np.stack([cell.ravel() for cell in counts], axis=1))
    limits = np.clip(lower(Counts(*distinct.T)), *bracket)[where]
    low, high = np.full((2, len(observed)), np.nan)
    low[observed], b_to_a = np.split(limits, 2)
    high[observed] = -b_to_a
    return Interval(low.reshape(counts.n_a.shape), high.reshape(counts.n_a.shape))


def beta_difference(
    counts: Counts, *, confidence_level: float, prior: tuple[float, float]
) -> Posterior:
    """Posterior of the difference b - a, equal tails, extended to hold the estimate.

    With equal counts P(b is better) is exactly ½.

    >>> counts = independent_counts(12, 20, 15, 20)
    >>> found = beta_difference(counts, confidence_level=0.95, prior=(1, 1))
    >>> print(f"{found.low:.4f} {found.high:.4f} {found.prob_better:.6f}")
    -0.1384 0.4028 0.836788
    """
    posterior = beta_contrast(posteriors(counts, prior=prior), "difference", confidence_level)
    return _holding(posterior, counts.difference)


def beta_ratio(counts: Counts, *, confidence_level: float, prior: tuple[float, float]) -> Posterior:
    """Posterior of the ratio b : a, equal tails, extended to hold the estimate."""
    posterior = beta_contrast(posteriors(counts, prior=prior), "log ratio", confidence_level)
    return _exponentiated(_holding(posterior, counts.log_ratio))


def beta_odds_ratio(
    counts: Counts, *, confidence_level: float, prior: tuple[float, float]
) -> Posterior:
    """Posterior of the odds ratio b : a, equal tails, extended to hold the estimate."""
    posterior = beta_contrast(posteriors(counts, prior=prior), "log odds ratio", confidence_level)
    return _exponentiated(_holding(posterior, counts.log_odds_ratio))


def posteriors(counts: Counts, *, prior: tuple[float, float]) -> FloatArray:
    """Beta posteriors of the share of items that each model gets right, for `beta_contrast`."""
    of_a = bounded.beta_posterior(counts.right_a, counts.n_a, prior)
    return np.stack([*of_a, *bounded.beta_posterior(counts.right_b, counts.n_b, prior)])


def _holding(posterior: Posterior, estimate: FloatArray) -> Posterior:
    """Extend the limits to hold the estimate; NaN where there is no posterior."""
    exists = ~np.isnan(posterior.low)
    return posterior._replace(
        low=np.where(exists, np.fmin(posterior.low, estimate), np.nan),
        high=np.where(exists, np.fmax(posterior.high, estimate), np.nan),
    )


def _exponentiated(posterior: Posterior) -> Posterior:
    return posterior._replace(low=np.exp(posterior.low), high=np.exp(posterior.high))


def dp_difference(
    scores: ArrayLike,
    a: IntArray,
    b: IntArray,
    *,
    bounds: tuple[float, float],
    mass: float,
    confidence_level: float,
) -> Posterior:
    """Posterior of the difference b - a of two bounded means, equal tails [Fer73]_.

    The posterior of each mean is the Beta variable with the mean and variance of the Dirichlet
    process of `bounded.dirichlet_process`: exact for 0/1 scores. Scores (N, M), NaN for padding.
    Extended where necessary to hold the estimate.
    """
    scores = np.asarray(scores, dtype=np.float64)
    of_models = dirichlet_process_betas(scores, bounds=bounds, mass=mass)
    betas = np.concatenate([of_models[:, a], of_models[:, b]])
    posterior = beta_contrast(betas, "difference", confidence_level)
    mean, width = moments(scores).mean, bounds[1] - bounds[0]
    difference = mean[b] - mean[a]
    low = np.minimum(width * posterior.low, difference)
    return Posterior(low, np.maximum(width * posterior.high, difference), posterior.prob_better)


def dirichlet_process_betas(
    scores: ArrayLike, *, bounds: tuple[float, float], mass: float
) -> FloatArray:
    """Shapes of Beta variables that approximate Dirichlet-process posteriors of bounded means.

    They have the mean and variance of the posterior of `bounded.dirichlet_process`, on the scale
    [0, 1]. Shape (2, ...) from scores (..., M); NaN without scores.
    """
    low, high = bounds
    unit = (np.asarray(scores, dtype=np.float64) - low) / (high - low)
    seen = ~np.isnan(unit)
    values = np.where(seen, unit, 0.0)
    total = seen.sum(axis=-1) + 2 * mass
    mean = (values.sum(axis=-1) + mass) / total
    squares = np.where(seen, values - mean[..., None], 0.0) ** 2
    spread = (squares.sum(axis=-1) + mass * (mean**2 + (1 - mean) ** 2)) / total
    size = np.where(seen.any(axis=-1), mean * (1 - mean) * (total + 1) / spread - 1, np.nan)
    return np.stack([mean * size, (1 - mean) * size])


class Welch(NamedTuple):
    """Difference b - a, its standard error and its degrees of freedom, each of shape (P,)."""

    difference: FloatArray
    std_error: FloatArray
    degrees_of_freedom: FloatArray


def welch(totals: ArrayLike, sizes: ArrayLike, a: IntArray, b: IntArray) -> Welch:
    """Welch's difference of two means with unequal variances [Wel47]_, clustered items or not.

    `totals` and `sizes` are those of `clustered.cluster_moments`, shape (N, C); an item without a
    cluster is a cluster of size 1. The standard error is NaN for one cluster, and 0 without spread.
    """
    summary = cluster_moments(totals, sizes)
    n, mean, square = summary.n, summary.mean, summary.cr1**2
    variance = square[a] + square[b]
    freedom = welch_freedom(square[a], n[a], square[b], n[b])
    return Welch(mean[b] - mean[a], np.sqrt(variance), freedom)


def welch_freedom(
    square_a: FloatArray, n_a: FloatArray, square_b: FloatArray, n_b: FloatArray
) -> FloatArray:
    """Welch's degrees of freedom [Wel47]_, from squared standard errors and numbers of units.

    NaN without any spread.

    >>> float(welch_freedom(*np.array([0.01, 20, 0.02, 30])).round(2))
    47.23
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = square_a**2 / (n_a - 1) + square_b**2 / (n_b - 1)
        return np.asarray((square_a + square_b) ** 2 / parts)


def welch_t(
    totals: ArrayLike, sizes: ArrayLike, a: IntArray, b: IntArray, *, confidence_level: float
) -> Interval:
    """Difference ± Student's t quantile × standard error of `welch`; NaN without any spread."""
    difference, error, freedom = welch(totals, sizes, a, b)
    error = np.where(error > 0, error, np.nan)
    half = t_quantile(freedom, confidence_level=confidence_level) * error
    return Interval(difference - half, difference + half)


def welch_prob(totals: ArrayLike, sizes: ArrayLike, a: IntArray, b: IntArray) -> FloatArray:
    """P(b's mean is higher) by the t distribution of `welch_t`.

    Without spread, ½ where the means are equal and NaN where they differ, because the scores do not
    vary.
    """
    return t_prob_positive(*welch(totals, sizes, a, b))


def two_sided(prob: FloatArray) -> FloatArray:
    """Two-sided p-value of equality from the probability that b is better.

    With `welch_prob` this is Welch's t test. With `dp_difference` the test keeps its level for few
    scores too, where Welch's with unequal numbers of skewed scores rejects twice as often.

    >>> float(two_sided(np.array(0.99)).round(6))
    0.02
    """
    return 2 * np.minimum(prob, 1 - prob)


def permuted_slices(
    totals: FloatArray, sizes: FloatArray, members: BoolArray, *, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Lower and upper p-values of the mean of each slice if units fell into slices at random.

    Parameters
    ----------
    totals, sizes : shape (U,)
        Sum of the scores of each unit (item or cluster), and its items.
    members : shape (K, U)
        Units of each slice; slices may overlap.

    Notes
    -----
    Of 0/1 scores of single items these are Fisher's exact tails [Fis35]_; others are drawn, the
    observed mean counting as a draw. NaN for a slice of no unit, or of all.

    >>> rng = np.random.default_rng(0)
    >>> tea = np.array([1, 1, 1, 0, 1, 0, 0, 0.0])
    >>> lower, upper = permuted_slices(tea, np.ones(8), (np.arange(8) < 4)[None], rng=rng)
    >>> print(lower.round(4), upper.round(4))
    [0.9857] [0.2429]
    """
    inside = members.astype(np.float64)
    n, n_units = inside.sum(axis=1), len(totals)
    with np.errstate(invalid="ignore", divide="ignore"):
        observed = inside @ totals / (inside @ sizes)
    if np.isin(totals, (0.0, 1.0)).all() and (sizes == 1).all():
        lower, upper = np.ones((2, len(n)))
        for i, (size, right) in enumerate(zip(n, inside @ totals, strict=True)):
            lower[i], upper[i] = _hypergeometric_tails(right, size, totals.sum(), n_units)
    else:
        n_draws = int(np.clip(DRAWN // n_units, LEAST_PERMUTED, MOST_PERMUTED))
        at_most, at_least = np.ones((2, len(n)))
        slack = 1e-9 * np.abs(totals).max(initial=1e-300)
        step = max(BLOCK_SIZE // n_units, 1)
        for start in range(0, n_draws, step):
            rows = min(step, n_draws - start)
            order = rng.permuted(np.tile(np.arange(n_units), (rows, 1)), axis=1)
            with np.errstate(invalid="ignore", divide="ignore"):
                drawn = (totals[order] @ inside.T) / (sizes[order] @ inside.T)
            at_most += (drawn <= observed + slack).sum(axis=0)
            at_least += (drawn >= observed - slack).sum(axis=0)
        lower, upper = at_most / (n_draws + 1), at_least / (n_draws + 1)
    none = (n == 0) | (n == n_units)
    return np.where(none, np.nan, lower), np.where(none, np.nan, upper)


def _hypergeometric_tails(
    right: float, size: float, n_right: float, n: float
) -> tuple[float, float]:
    x = np.arange(max(0.0, size + n_right - n), min(size, n_right) + 1)
    parts = np.stack([x, n_right - x, size - x, n - n_right - size + x])
    mass = special.softmax(-special.gammaln(parts + 1).sum(axis=0))
    return min(float(mass[x <= right].sum()), 1.0), min(float(mass[x >= right].sum()), 1.0)


def beta_contrast(betas: FloatArray, of: Contrast, confidence_level: float) -> Posterior:
    """Posterior of the difference, log ratio or log odds ratio of b to a, equal tails.

    Parameters
    ----------
    betas : shape (4, ...)
        Shapes of two independent Beta variables, both of a and then both of b; NaN where there is
        none.
    """
    tail = tail_probability(confidence_level)
    tables = betas.reshape(4, -1).T
    observed, distinct, where = _both_ways(tables)
    n = int(observed.sum())
    parts = [
        _solve(distinct[i : i + CONTRAST_BLOCK_SIZE], of, tail)
        for i in range(0, len(distinct), CONTRAST_BLOCK_SIZE)
    ]
    lower, behind = np.concatenate([np.zeros((2, 0)), *parts], axis=1)[:, where]
    stacked = np.full((3, len(tables)), np.nan)
    # P(b ≤ a) and P(a ≤ b) add up to 1 but for rounding.
    b_behind, a_behind = np.split(behind, 2)
    stacked[:, observed] = lower[:n], -lower[n:], a_behind / (b_behind + a_behind)
    return Posterior(*(x.reshape(betas.shape[1:]) for x in stacked))


def _both_ways(tables: FloatArray) -> tuple[BoolArray, FloatArray, IntArray]:
    """Which tables are not NaN, the distinct ones of both orders, and their indices.

    Thousands of pairs have few distinct counts. The tables of b against a come first.
    """
    observed: BoolArray = np.asarray(~np.isnan(tables).any(axis=1))
    both = np.concatenate([tables[observed], tables[observed][:, [2, 3, 0, 1]]])
    distinct, where = np.unique(both, axis=0, return_inverse=True)
    return observed, distinct, where


def _solve(tables: FloatArray, of: Contrast, tail: float) -> FloatArray:
    """Lower limit, and the probability that the contrast is below 0, of tables (rows, 4)."""
    means, variances = _moments(tables, of)
    # The one with less variance first: the other is smoother.
    a_first = variances[0] <= variances[1]
    narrow_first = np.where(a_first[:, None], tables, tables[:, [2, 3, 0, 1]])
    right, wrong = narrow_first[:, ::2], narrow_first[:, 1::2]
    # Lower quantile, and complement of the upper quantile, both without cancellation.
    ends = (right, wrong), (wrong, right)
    tails = [special.betaincinv(a, b, NEGLIGIBLE) for a, b in ends]
    margins = np.asarray(tails, dtype=np.float64)
    sign = np.where(a_first, 1.0, -1.0)
    target = float(special.ndtri(tail))

    def below(x: FloatArray, rows: IntArray) -> tuple[FloatArray, FloatArray]:
        """P(contrast of b to a ≤ x) and its derivative."""
        turned = sign[rows]
        value, density = _cdf_and_density(narrow_first[rows], margins[:, rows], turned * x, of)
        return np.maximum(np.where(turned > 0, value, 1 - value), 0.0), density

    def excess(x: FloatArray, rows: IntArray) -> tuple[FloatArray, FloatArray]:
        value, density = below(x, rows)
        # On the normal scale the distribution is nearly linear.
        score = special.ndtri(np.clip(value, 1e-300, 1 - 1e-16))
        return score - target, density * np.exp(score**2 / 2) * np.sqrt(2 * np.pi)

    start = means[1] - means[0] + target * np.sqrt(variances.sum(axis=0))
    limit = 1 - 1e-12 if of == "difference" else 500.0
    lower = increasing_root(excess, start, bracket=(-limit, limit), tolerance=1e-8)
    return np.stack([lower, below(np.zeros(len(tables)), np.arange(len(tables)))[0]])


def _cdf_and_density(
    tables: FloatArray, margins: FloatArray, x: FloatArray, of: Contrast
) -> tuple[FloatArray, FloatArray]:
    """P(contrast of b to a ≤ x) and its derivative, of tables (rows, 4).

    The integral over a of its density times P(b is at most x ahead) for x < 0, and P(b is more than
    x ahead) for x > 0: each vanishes where a's range is cut off. Trapezoid rule in a coordinate
    that stretches both ends of that range.
    """
    right_a, wrong_a, right_b, wrong_b = (tables[:, k : k + 1] for k in range(4))
    x = x[:, None]
    of_a, of_b = _ranges(x, of)
    ahead = x > 0
    # Equally spaced nodes over the range with non-negligible density.
    below, above = margins[0], margins[1]
    lowest: FloatArray = (below[:, :1] - of_a.before) / of_a.length
    highest: FloatArray = (above[:, :1] - of_a.after) / of_a.length
    if of != "log odds ratio":
        # At that end the range of b starts at 0, or ends at 1.
        lowest = np.where(ahead, lowest, np.maximum(lowest, below[:, 1:] / of_b.length))
        highest = np.where(ahead, np.maximum(highest, above[:, 1:] / of_b.length), highest)
    first, last = _stretched(lowest), -_stretched(highest)
    span = np.maximum(last - first, 0)
    v = first + span * np.linspace(0, 1, NODES)
    u = 2 * np.sinh(v)
    share, rest = special.expit(u), special.expit(-u)
    if of == "log odds ratio":
        b, not_b = special.expit(u + x), special.expit(-u - x)
        b_slope = b * not_b
    else:
        b, not_b = of_b.at(share, rest)
        b_slope = b if of == "log ratio" else np.ones_like(b)
    log_slope = special.log_expit(u) + special.log_expit(-u) + np.log(2 * np.cosh(v))
    a_density = np.exp(_log_density(right_a, wrong_a, *of_a.at(share, rest)) + log_slope)
    weight = a_density * of_a.length * (span / (NODES - 1))
    tails = special.betainc(
        np.where(ahead, wrong_b, right_b),
        np.where(ahead, right_b, wrong_b),
        np.where(ahead, not_b, b),
    )
    b_density = b_slope * np.exp(_log_density(right_b, wrong_b, b, not_b))
    total, density = (np.einsum("pn,pn->p", weight, values) for values in (tails, b_density))
    return np.where(ahead[:, 0], 1 - total, total), density


class _Range(NamedTuple):
    """A range within [0, 1]: its start, its length, and the complement of its end."""

    before: FloatArray
    length: FloatArray
    after: FloatArray

    def at(self, share: FloatArray, rest: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the number at a share of the range, and its complement, without cancellation."""
        return self.before + self.length * share, self.after + self.length * rest


def _ranges(x: FloatArray, of: Contrast) -> tuple[_Range, _Range]:
    """Where a, and b that is x ahead of it, both lie between 0 and 1."""
    ahead, behind = np.maximum(x, 0), np.maximum(-x, 0)
    if of == "difference":
        length = 1 - np.abs(x)
        return _Range(behind, length, ahead), _Range(ahead, length, behind)
    if of == "log ratio":
        zero = np.zeros_like(x)
        return (
            _Range(zero, np.exp(-ahead), -np.expm1(-ahead)),
            _Range(zero, np.exp(-behind), -np.expm1(-behind)),
        )
    everything = _Range(np.zeros_like(x), np.ones_like(x), np.zeros_like(x))
    return everything, everything


def _stretched(share: FloatArray) -> FloatArray:
    """Coordinate of a share of the range, doubly exponentially close to the ends."""
    return np.arcsinh(special.logit(np.clip(share, 1e-32, 1 - 1e-12)) / 2)


def _log_density(
    right: FloatArray, wrong: FloatArray, p: FloatArray, not_p: FloatArray
) -> FloatArray:
    """Log density of a Beta variable."""
    kernel = special.xlogy(right - 1, p) + special.xlogy(wrong - 1, not_p)
    return kernel - special.betaln(right, wrong)


def _moments(tables: FloatArray, of: Contrast) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of a and of b, or of their logs, or log odds; both of shape (2, rows)."""
    right, wrong = tables[:, ::2].T, tables[:, 1::2].T
    n = right + wrong
    if of == "difference":
        return right / n, right * wrong / (n**2 * (n + 1))
    # A Beta variable is a ratio of two independent gamma variables, right and wrong.
    if of == "log ratio":
        mean = special.digamma(right) - special.digamma(n)
        return mean, special.polygamma(1, right) - special.polygamma(1, n)
    mean = special.digamma(right) - special.digamma(wrong)
    return mean, special.polygamma(1, right) + special.polygamma(1, wrong)
