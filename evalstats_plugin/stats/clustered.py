"""Mean of scores of clustered items, and of items answered in several epochs.

* `by_cluster`: sums over clusters
* `cluster_moments`, the intervals `t_cr2` and `logit_t_cr2`, and `size_trend`. Their input is,
  per cluster, `totals` (sum of its scores) and `sizes` (number of items), both of shape (..., C),
  size 0 for padding. The score of an item with several epochs is their mean.
* `design_effect`, `anova_icc`: how much clusters matter
* `variance_parts`, `epoch_noise`: variance between items and between epochs. `scores` has shape
  (..., M, R), NaN where missing.
* `pass_at_k`, `pass_hat_k`, `majority_at_k`, `vote_at_k`: unbiased estimates from R ≥ k epochs of
  an item
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from evalstats_plugin.stats.arrays import FloatArray
from evalstats_plugin.stats.bounded import binomial_counts, logit_limits
from evalstats_plugin.stats.interval import Interval
from evalstats_plugin.stats.means import moments, t_prob_positive, t_quantile


def by_cluster(values: FloatArray, clusters: NDArray[Any], *, axis: int = -1) -> FloatArray:
    """Sums over the items of each cluster; clusters come in the order of their names or numbers.

    >>> by_cluster(np.array([1.0, 2.0, 4.0]), np.array(["b", "a", "b"]))
    array([2., 5.])
    """
    order = np.argsort(clusters, kind="stable")
    _, starts = np.unique(clusters[order], return_index=True)
    return np.add.reduceat(np.take(values, order, axis=axis), starts, axis=axis)


class Clusters(NamedTuple):
    """Number of clusters, mean over all items, and its standard errors, each of shape (...)."""

    n: FloatArray
    mean: FloatArray
    cr0: FloatArray
    """Liang & Zeger's, the clustered standard error of [Mil24]_."""
    cr1: FloatArray
    """`cr0` times √(C/(C - 1)), for few clusters; NaN for one."""
    cr2: FloatArray
    """Bell & McCaffrey's, unbiased if items are independent, whatever the sizes of clusters
    [BM02]_; NaN for one."""


def cluster_moments(totals: ArrayLike, sizes: ArrayLike) -> Clusters:
    """Mean and cluster-robust standard errors.

    >>> found = cluster_moments([3.0, 5.0, 0.0], [5, 8, 3])
    >>> print(f"{found.mean:.3f} {found.cr1:.3f}")
    0.500 0.143
    """
    total, size = (np.asarray(x, dtype=np.float64) for x in (totals, sizes))
    n = np.asarray((size > 0).sum(axis=-1), dtype=np.float64)
    n_items = size.sum(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.asarray(total.sum(axis=-1) / n_items)
        residual = np.where(size > 0, total - size * mean[..., None], 0.0)
        # Residuals no larger than the rounding errors of the sums are 0.
        residual = np.where(np.abs(residual) > 1e-12 * np.maximum(size, 1), residual, 0.0)
        cr0 = np.sqrt((residual**2).sum(axis=-1)) / n_items
        cr1 = np.where(n > 1, cr0 * np.sqrt(n / (n - 1)), np.nan)
        share = np.where(size > 0, size / n_items[..., None], 0.0)
        squares = np.where(size > 0, residual**2 / (1 - share), 0.0)
        cr2 = np.where(n > 1, np.sqrt(squares.sum(axis=-1)) / n_items, np.nan)
    return Clusters(n, mean, np.asarray(cr0), cr1, cr2)


def t_cr2(totals: ArrayLike, sizes: ArrayLike, *, confidence_level: float) -> Interval:
    """Mean ± Student's t quantile × Bell & McCaffrey's standard error [BM02]_.

    With Satterthwaite's degrees of freedom, fewer than C - 1 where clusters differ in size. NaN
    for one cluster, and for clusters that all agree.
    """
    summary = cluster_moments(totals, sizes)
    freedom = satterthwaite(sizes)
    # t quantiles need one degree of freedom, which this rule gives to two equal clusters.
    half = t_quantile(np.maximum(freedom, 1.0), confidence_level=confidence_level) * summary.cr2
    half = np.where(half > 0, half, np.nan)
    return Interval(summary.mean - half, summary.mean + half)


def satterthwaite(sizes: ArrayLike) -> FloatArray:
    """Degrees of freedom of the squared CR2 error of a mean of independent items [BM02]_.

    C - 1 for clusters of equal size; NaN for one.

    >>> print(f"{satterthwaite([4, 4, 4]):.3f} {satterthwaite([10, 1, 1]):.3f}")
    2.000 1.198
    """
    size = np.asarray(sizes, dtype=np.float64)
    share = size / np.maximum(size.sum(axis=-1, keepdims=True), 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        # The squared error is a quadratic form of the items. Squared trace over the trace of the
        # square, where 1'A'A1 = m / (1 - m/n) for a cluster of m items.
        between = share**2 / (1 - share)
        trace = (share**2).sum(axis=-1) + between.sum(axis=-1) ** 2 - (between**2).sum(axis=-1)
        return np.where((size > 0).sum(axis=-1) > 1, 1 / trace, np.nan)


def logit_t_cr2(
    totals: ArrayLike, sizes: ArrayLike, *, bounds: tuple[float, float], confidence_level: float
) -> Interval:
    """The t interval of `t_cr2` on the log odds of a bounded mean, transformed back.

    One cluster, or clusters that all agree, have no spread. Their limits allow for a share of
    clusters at a bound that C clusters would all miss with probability (1 - level)/2:
    Clopper–Pearson's limits, a cluster counting as one trial.
    """
    size = np.asarray(sizes, dtype=np.float64)
    width = bounds[1] - bounds[0]
    unit = (np.asarray(totals, dtype=np.float64) - size * bounds[0]) / width
    n, mean, _, _, error = cluster_moments(unit, size)
    freedom = np.maximum(satterthwaite(size), 1.0)
    half = t_quantile(freedom, confidence_level=confidence_level) * error
    limits = logit_limits(np.clip(mean, 0.0, 1.0), half, n, confidence_level=confidence_level)
    return Interval(*(np.where(n > 0, bounds[0] + width * limit, np.nan) for limit in limits))


def size_trend(totals: ArrayLike, sizes: ArrayLike) -> FloatArray:
    """Do scores go with the size of a cluster? A z statistic, positive if larger ones score higher.

    Of the covariance of a cluster's residual with log size, by its empirical standard error: valid
    whatever the correlation in a cluster. NaN where clusters are of one size or all agree.

    >>> round(float(size_trend([9, 8, 2, 1, 0], [10, 9, 4, 3, 2])), 2)
    1.97
    """
    total, size = (np.asarray(x, dtype=np.float64) for x in (totals, sizes))
    with np.errstate(divide="ignore", invalid="ignore"):
        n = size.sum(axis=-1, keepdims=True)
        residual = total - size * total.sum(axis=-1, keepdims=True) / n
        log_size = np.log(np.maximum(size, 1))
        part = residual * (log_size - (size * log_size).sum(axis=-1, keepdims=True) / n)
        error = np.sqrt((part**2).sum(axis=-1))
        return np.where(error > 1e-9, part.sum(axis=-1) / error, np.nan)


def design_effect(std_error: ArrayLike, naive: ArrayLike) -> FloatArray:
    """Ratio of the clustered variance to the naive one; NaN where either error is 0 or unknown."""
    clustered, plain = (np.asarray(x, dtype=np.float64) for x in (std_error, naive))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((clustered > 0) & (plain > 0), (clustered / plain) ** 2, np.nan)


def anova_icc(totals: ArrayLike, squares: ArrayLike, sizes: ArrayLike) -> FloatArray:
    """Intra-cluster correlation by analysis of variance [Don86]_.

    How much more alike items of a cluster are than items of different clusters: 1 where only the
    clusters differ, below 0 where items of a cluster differ more than expected by chance. NaN for
    one cluster, for clusters of one item, and where nothing varies.

    Parameters
    ----------
    totals, squares, sizes : shape (..., C)
        Sums of the scores and of their squares, and how many there are; size 0 for padding.

    Examples
    --------
    >>> print(f"{anova_icc([3, 9, 5, 0, 7], [3, 9, 5, 0, 7], [10, 10, 10, 10, 10]):.3f}")
    0.384
    """
    total, square, size = (np.asarray(x, dtype=np.float64) for x in (totals, squares, sizes))
    n, n_clusters = size.sum(axis=-1), (size > 0).sum(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        of_clusters = np.where(size > 0, total**2 / size, 0.0).sum(axis=-1)
        among = (of_clusters - total.sum(axis=-1) ** 2 / n) / (n_clusters - 1)
        within = np.maximum(square.sum(axis=-1) - of_clusters, 0) / (n - n_clusters)
        typical = (n - (size**2).sum(axis=-1) / n) / (n_clusters - 1)
        spread = among + (typical - 1) * within
        rounding = 1e-12 * np.maximum(square.sum(axis=-1), 1e-300)
        estimable = (n_clusters > 1) & (n > n_clusters) & (spread > rounding)
        return np.where(estimable, (among - within) / spread, np.nan)


class VarianceParts(NamedTuple):
    """Components of the variance of a mean score; arrays of one shape, NaN where unknown."""

    n_items: FloatArray
    mean: FloatArray
    """Over items, with equal weights."""
    total: FloatArray
    """Variance of the item means (n - 1), from which the standard error is computed."""
    within: FloatArray
    """Variance of one epoch around its item's true mean, averaged over items."""
    noise: FloatArray
    """Part of `total` due to `within`; within/R if every item has R epochs."""
    between: FloatArray
    """Variance of the items' true means. Unbiased, hence sometimes negative."""


def epoch_noise(scores: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Variance of one epoch, and of the mean over epochs, of each item; both of shape (..., M).

    The variance of an epoch is unbiased (R - 1, for 0/1 scores p(1 - p)R/(R - 1)) and NaN for an
    item with one epoch, whose mean is assumed to have the average item's variance.
    """
    n_epochs, _, std = moments(scores)
    variance = np.where(n_epochs > 1, std, np.nan) ** 2
    average = moments(variance).mean[..., None]
    with np.errstate(divide="ignore", invalid="ignore"):
        noise = np.where(n_epochs > 1, variance, average) / n_epochs
    return variance, np.where(n_epochs > 0, noise, np.nan)


def variance_parts(scores: ArrayLike) -> VarianceParts:
    """Unbiased variance components of a mean score, for any scores [SCM92]_.

    Items may differ in their number of epochs, as long as that does not depend on their scores.
    Without an item with two epochs both components are NaN.

    >>> parts = variance_parts([[1, 1], [1, 0], [0, 1], [0, 0], [1, 1], [1, 1]])
    >>> print(f"{parts.within:.4f} {parts.between:.4f}")
    0.1667 0.0833
    """
    n, mean, std = moments(moments(scores).mean)
    variance, noise = epoch_noise(scores)
    on_mean = moments(noise).mean
    total = std**2
    return VarianceParts(n, mean, total, moments(variance).mean, on_mean, total - on_mean)


_ROUNDING = 1e-24
"""Variance of a mean, as a share of the mean square, up to which it is rounding error."""


class Crossed(NamedTuple):
    """How a mean over items varies between levels that are a sample of many: `crossed`."""

    n_items: int
    n_levels: int
    mean: float
    std_between: float
    """Standard deviation of the true means of levels; 0 where they vary no more than by chance."""
    error: float
    """Standard error of the mean of levels: of the values seen, chance in answers included."""
    p_alike: float
    """Of levels with the same true mean (F test)."""
    prob_positive: float
    """Probability that the true mean at another level is positive."""

    def widened(self, half_width: float, confidence_level: float, n_tests: int = 1) -> float:
        """Half-width of limits for levels like these, from that for these levels.

        The squares of the two half-widths are added [ZD08]_, of `n_tests` by Bonferroni.
        """
        level = 1 - (1 - confidence_level) / n_tests
        t = float(t_quantile(self.n_levels - 1, confidence_level=level))
        return float(np.hypot(half_width, t * self.error))

    def p_value(self, half_width: float, confidence_level: float, n_tests: int = 1) -> float:
        """Adjusted p-value of a mean of 0, at most 1 - level where `widened` limits exclude 0.

        At other levels the half-width for these levels is taken to go with Student's quantile.
        """

        def reaches_zero(p: float) -> bool:
            t = t_quantile(self.n_items - 1, confidence_level=1 - p / n_tests)
            scaled = half_width * float(t) / usual
            return self.widened(scaled, 1 - p, n_tests) >= abs(self.mean)

        alone = 1 - (1 - confidence_level) / n_tests
        usual = float(t_quantile(self.n_items - 1, confidence_level=alone))
        low, high = 1e-15, 1.0 - 1e-15
        if reaches_zero(high):
            return 1.0
        for _ in range(60):
            middle = (low * high) ** 0.5
            low, high = (middle, high) if reaches_zero(middle) else (low, middle)
        return high


def crossed(scores: FloatArray, std_error: float) -> Crossed:
    """Mean of items by levels, both of which vary: a two-way layout with one answer [SCM92]_.

    Parameters
    ----------
    scores
        Shape (M, P), M items or clusters of them, P levels, both 2 or more; no NaN.
    std_error
        Of the mean over items, at these levels.

    >>> found = crossed(np.array([[0.1, 0.3], [0.2, 0.5], [0.1, 0.2]]), 0.05)
    >>> print(f"{found.std_between:.3f} {found.error:.3f} {found.p_alike:.3f}")
    0.135 0.100 0.074
    """
    m, p = scores.shape
    of_level = scores.mean(axis=0)
    mean = float(of_level.mean())
    rest = scores - scores.mean(axis=1, keepdims=True) - of_level + mean
    noise = float(np.square(rest).sum()) / ((m - 1) * (p - 1) * m)
    total = float(of_level.var(ddof=1))
    # Rounding is no variance.
    least = _ROUNDING * float(np.square(scores).mean())
    noise, total = (variance if variance > least else 0.0 for variance in (noise, total))
    between = max(total - noise, 0.0)
    ratio = total / noise if noise > 0 else (np.inf if total > 0 else 0.0)
    # Another level has its own mean; degrees of freedom are Satterthwaite's.
    levels = 1 + 1 / p
    variance = std_error**2 + between * levels
    parts = std_error**4 / (m - 1) + (total * levels) ** 2 / (p - 1)
    freedom = variance**2 / parts if parts else m - 1.0
    at_another = np.array(mean), np.array(variance**0.5), np.array(freedom)
    prob = t_prob_positive(*at_another)
    p_alike = np.asarray(special.fdtrc(p - 1, (m - 1) * (p - 1), ratio), dtype=np.float64)
    error = (total / p) ** 0.5
    return Crossed(m, p, mean, between**0.5, error, float(p_alike), float(prob))


def pass_at_k(successes: ArrayLike, n: ArrayLike, *, k: int) -> FloatArray:
    """Probability that at least one of k epochs is right, pass@k [Che21]_ (eq. 1).

    >>> float(pass_at_k(2, 5, k=3))
    0.9
    """
    right, epochs = _counts(successes, n, k)
    return 1 - _all_from(epochs - right, epochs, k)


def pass_hat_k(successes: ArrayLike, n: ArrayLike, *, k: int) -> FloatArray:
    """Probability that all of k epochs are right, pass^k [Yao24]_.

    >>> round(float(pass_hat_k(4, 5, k=2)), 12)
    0.6
    """
    right, epochs = _counts(successes, n, k)
    return _all_from(right, epochs, k)


def majority_at_k(successes: ArrayLike, n: ArrayLike, *, k: int) -> FloatArray:
    """Probability that more than half of k epochs are right, a tie counting as half, maj@k.

    For an even k it equals that of k - 1: breaking a tie by a coin is leaving out one vote.

    >>> float(majority_at_k(3, 4, k=3)), float(majority_at_k(3, 4, k=4))
    (1.0, 1.0)
    """
    right, epochs = _counts(successes, n, k)
    # The more frequent answer, whose probability is a sum of positive terms.
    more, fewer = np.maximum(right, epochs - right), np.minimum(right, epochs - right)
    with np.errstate(divide="ignore", invalid="ignore"):
        majority, draw = more / epochs, 1 / epochs
        for votes in range(1, k - 1, 2):
            # Two more votes change only an outcome that was decided by one vote. `split` is
            # proportional to the probability that the votes so far differ by one.
            left = (epochs - votes) * (epochs - votes - 1)
            lost = (votes - 1) // 2
            split = draw * np.maximum(more - lost, 0) * np.maximum(fewer - lost, 0) / left
            majority = majority + split * (more - fewer)
            draw = split * (2 * votes + 4) / (lost + 2)
    majority = np.where(right == more, majority, 1 - majority)
    majority = np.where(more == fewer, 0.5, majority)
    return np.where(epochs >= k, np.clip(majority, 0.0, 1.0), np.nan)


@lru_cache(maxsize=4096)
def _vote_chances(counts: tuple[int, ...]) -> FloatArray:
    """Chance that each answer wins the vote of k epochs, shape (C, R + 1) by answer and k."""
    n = sum(counts)
    chances = np.zeros((len(counts), n + 1))
    subsets = np.array([math.comb(n, k) for k in range(n + 1)], dtype=np.float64)
    for c, count in enumerate(counts):
        if c and count == counts[c - 1]:
            chances[c] = chances[c - 1]
            continue
        others = (*counts[:c], *counts[c + 1 :])
        for votes in range(1, count + 1):
            # Ways to draw the others with fewer votes or as many, by number of ties and of epochs.
            ways = np.ones((1, 1))
            for other in others:
                fewer = [math.comb(other, i) for i in range(min(votes, other + 1))]
                may_tie = other >= votes
                drawn = np.zeros((len(ways) + may_tie, ways.shape[1] + min(votes, other)))
                for ties, row in enumerate(ways):
                    drawn[ties, : len(row) + len(fewer) - 1] += np.convolve(row, fewer)
                    if may_tie:
                        tied = slice(votes, votes + len(row))
                        drawn[ties + 1, tied] += math.comb(other, votes) * row
                ways = drawn
            split = (ways / np.arange(1, len(ways) + 1)[:, None]).sum(axis=0)
            chances[c, votes : votes + len(split)] += math.comb(count, votes) * split
    return chances / subsets


def vote_at_k(answers: NDArray[Any], scores: FloatArray, *, k: int) -> FloatArray:
    """Expected score of the most frequent of k answers to each item, cons@k [WWS23]_; shape (M,).

    An average over all ways of choosing k of the epochs, hence unbiased; answers with as many votes
    win alike. NaN for items with fewer than k scored epochs.

    Parameters
    ----------
    answers : shape (M, R)
        Texts. Empty ones are of epochs without an answer: each has a vote of its own.
    scores : shape (M, R)
        NaN where an epoch was not scored: it has no vote. Where equal answers have different scores
        their mean counts.

    Examples
    --------
    >>> answers = np.array([["7", "7", "5", "6"]])
    >>> vote_at_k(answers, np.array([[1.0, 1.0, 0.0, 0.0]]), k=3)
    array([0.66666667])
    """
    if k < 1:
        raise ValueError(f"k must be 1 or more, got {k}")
    voted = np.full(len(scores), np.nan)
    for i, (texts, own) in enumerate(zip(answers.tolist(), scores.tolist(), strict=True)):
        by_answer: dict[Any, list[float]] = {}
        for epoch, (text, score) in enumerate(zip(texts, own, strict=True)):
            if not math.isnan(score):
                by_answer.setdefault(text or epoch, []).append(score)
        if sum(map(len, by_answer.values())) >= k:
            groups = sorted(by_answer.values(), key=len)
            chances = _vote_chances(tuple(map(len, groups)))[:, k]
            voted[i] = sum(p * sum(g) / len(g) for p, g in zip(chances, groups, strict=True))
    return voted


def _counts(successes: ArrayLike, n: ArrayLike, k: int) -> tuple[FloatArray, FloatArray]:
    """Numbers of right epochs and of epochs, broadcast against each other; NaN without epochs."""
    if k < 1:
        raise ValueError(f"k must be 1 or more, got {k}")
    return binomial_counts(successes, n)


def _all_from(chosen: FloatArray, epochs: FloatArray, k: int) -> FloatArray:
    """Probability that k epochs drawn without replacement are all among `chosen` many."""
    probability = np.ones_like(epochs)
    with np.errstate(divide="ignore", invalid="ignore"):
        for drawn in range(k):
            probability *= np.maximum(chosen - drawn, 0) / (epochs - drawn)
    return np.where(epochs >= k, probability, np.nan)


_NO_RANK = 1e-10
"""Eigenvalue, as a share of the largest, up to which sums of squares of thousands round from 0."""


class Regression(NamedTuple):
    """Least squares, with errors that hold whatever items of a cluster have in common."""

    coefficients: FloatArray
    """Shape (K,)."""
    std_errors: FloatArray
    """Shape (K,); NaN for one cluster."""
    residual_std: float
    df: float
    """Clusters less coefficients, at least one."""


def clustered_regression(y: ArrayLike, x: ArrayLike, clusters: NDArray[Any]) -> Regression:
    """Regress y on the columns of x, with the jackknife over clusters (CR3) [BM02]_.

    Parameters
    ----------
    y : shape (n,)
    x : shape (n, K)
        With a column of ones, where there is an intercept. Of columns that depend on each other
        the shortest coefficients are returned.
    clusters : shape (n,)
        Names or numbers; one for each item where none is in a cluster.

    Examples
    --------
    >>> fit = clustered_regression([1, 2, 3, 4.2], [[1, 0], [1, 1], [1, 2], [1, 3]], np.arange(4))
    >>> fit.coefficients.round(2).tolist()
    [0.96, 1.06]
    """
    values, columns = np.asarray(y, dtype=np.float64), np.asarray(x, dtype=np.float64)
    gram, cross = columns.T @ columns, columns.T @ values
    inverse = np.linalg.pinv(gram, _NO_RANK, hermitian=True)
    coefficients = inverse @ cross
    residual = values - columns @ coefficients
    of_gram = by_cluster(columns[:, :, None] * columns[:, None, :], clusters, axis=0)
    of_cross = by_cluster(columns * values[:, None], clusters, axis=0)
    count, k = of_cross.shape
    inverses = np.linalg.pinv(gram - of_gram, _NO_RANK, hermitian=True)
    without = inverses @ (cross - of_cross)[:, :, None]
    deviation = without[:, :, 0] - coefficients
    errors = np.sqrt((count - 1) / count * (deviation**2).sum(axis=0))
    errors = errors if count > 1 else np.full(k, np.nan)
    spread = float(np.sqrt((residual**2).sum() / max(len(values) - k, 1)))
    return Regression(coefficients, errors, spread, float(max(count - k, 1)))
