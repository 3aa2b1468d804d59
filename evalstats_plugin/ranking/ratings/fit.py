"""Fitted rankings, and what ratings with their covariance or draws imply about the order.

* `RankingFit`: ratings, covariance, draws and diagnostics of any ranking model
* `ranks_of`, `rank_distribution`, `prob_better`: rank probabilities from draws
* `significantly_better`: simultaneous tests of all pairs, for rank sets [MRS24]_
* `log_prob_order`, `order_entropy`: probability and entropy of the whole order
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from evalstats_plugin.ranking.contests.outcomes import LEAST_VARIANCE
from evalstats_plugin.stats.arrays import BoolArray, FloatArray, IntArray, root_of
from evalstats_plugin.stats.interval import tail_probability

BLOCK_SIZE = 2**24
"""Pairs of players times draws processed at a time."""
N_PARTICLES, N_ORDERS, FEW = 256, 128, 10
"""Particles per order, and orders drawn, of `order_entropy`; four times as many of few players."""


@dataclass(frozen=True, eq=False, kw_only=True)
class RankingFit:
    """Ratings of n players: differences are log odds, or probits, of winning."""

    model: str
    """``"bradley-terry"``, ``"thurstone"`` or ``"plackett-luce"``."""
    estimator: str
    """``"ml"``, ``"laplace"`` (with a prior), ``"ep"`` or ``"exact"``."""
    players: tuple[str, ...]
    rating: FloatArray
    """Estimates or posterior means, shape (n,); their mean is 0 unless there is a prior."""
    covariance: FloatArray
    """Covariance of the ratings, shape (n, n)."""
    draws: FloatArray | None = None
    """Posterior draws of the ratings, shape (S, n)."""
    parameters: dict[str, float] = field(default_factory=dict[str, float])
    """Other parameters by name, such as ``"position"``, ``"tie"``, or a feature's."""
    parameter_std_errors: dict[str, float] = field(default_factory=dict[str, float])
    log_likelihood: float | None = None
    """At the estimate; the log evidence of a posterior is in the diagnostics."""
    ranks: FloatArray | None = None
    """Probability that the player of the row has the rank of the column, where it is integrated."""
    ahead: FloatArray | None = None
    """Probability that the player of the row is better than the column's; shape (n, n) as well."""
    labels: IntArray | None = None
    """Labels of pairs, shape (n, n): pairs with one label have the same record. None: not known."""
    diagnostics: dict[str, Any] = field(default_factory=dict[str, Any])
    """iterations, converged, log_evidence, n_contests, reason, and more."""
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<RankingFit: {self.model} by {self.estimator}, {len(self.players)} players>"

    @property
    def std_error(self) -> FloatArray:
        """Standard error of each rating, shape (n,)."""
        return np.sqrt(np.diagonal(self.covariance))

    def reach(self, confidence_level: float) -> float:
        """Half the width of an interval in standard errors, by Student's t where clusters are few.

        Parameters
        ----------
        confidence_level
            Of the interval.
        """
        tail = tail_probability(confidence_level)
        freedom = self.diagnostics.get("degrees_of_freedom")
        return -float(special.stdtrit(freedom, tail) if freedom else special.ndtri(tail))

    def centred(self) -> RankingFit:
        """Ratings relative to their mean, as contests only identify differences."""
        covariance = self._centred_rows(self._centred_rows(self.covariance).T)
        if self.labels is not None:
            # Equal records keep equal errors, to the last bit.
            covariance = averaged(covariance.ravel(), self.labels.ravel()).reshape(covariance.shape)
        return replace(
            self,
            rating=self.rating - self.rating.mean(),
            covariance=covariance,
            draws=None if self.draws is None else self._centred_rows(self.draws),
        )

    @staticmethod
    def _centred_rows(values: FloatArray) -> FloatArray:
        return values - values.mean(axis=1, keepdims=True)


def normal_draws(
    mean: ArrayLike, covariance: ArrayLike, shape: tuple[int, ...], rng: np.random.Generator
) -> FloatArray:
    """Draw from a normal whose covariance may be singular, shape (*shape, n)."""
    root = root_of(covariance)
    return np.asarray(mean, dtype=np.float64) + rng.normal(size=(*shape, len(root))) @ root


def averaged(values: FloatArray, labels: IntArray) -> FloatArray:
    """Replace each value by the mean of those with its label, from 0; both of shape (n,)."""
    size = np.maximum(np.bincount(labels), 1)
    return (np.bincount(labels, values) / size)[labels]


def ranks_of(draws: ArrayLike) -> IntArray:
    """Rank of each player in each draw, shape (S, n); ties are broken alternately."""
    value = np.asarray(draws, dtype=np.float64)
    size, n = value.shape
    order = np.argsort(-value, axis=1, kind="stable")
    # In every other draw, the later of two equal players comes first.
    order[1::2] = n - 1 - np.argsort(-value[1::2, ::-1], axis=1, kind="stable")
    ranks: IntArray = np.empty((size, n), dtype=np.int64)
    np.put_along_axis(ranks, order, np.arange(1, n + 1, dtype=np.int64)[None], axis=1)
    return ranks


def rank_distribution(ranks: ArrayLike) -> FloatArray:
    """Probability that the player of the row has the rank of the column, shape (n, n).

    >>> rank_distribution(ranks_of([[0.0, 2.0], [0.0, 1.0]]))
    array([[0., 1.],
           [1., 0.]])
    """
    drawn = np.asarray(ranks, dtype=np.int64)
    size, n = drawn.shape
    cells = np.asarray(np.arange(n) * n + drawn - 1, dtype=np.int64).ravel()
    return np.bincount(cells, minlength=n * n).reshape(n, n) / size


def prob_better(draws: ArrayLike) -> FloatArray:
    """Share of draws in which the row's player is better than the column's, shape (n, n).

    Equal ratings count half, as on the diagonal.
    """
    value = np.asarray(draws, dtype=np.float64)
    size, n = value.shape
    step = max(BLOCK_SIZE // max(n * n, 1), 1)
    ahead = np.zeros((n, n))
    for start in range(0, size, step):
        part = value[start : start + step]
        ahead += (part[:, :, None] > part[:, None, :]).sum(axis=0)
    return (ahead + (size - ahead.T)) / (2 * size)


def pairwise_differences(rating: ArrayLike, covariance: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Means and variances of row's minus column's rating, shapes (n, n); variances are above 0."""
    m, cov = np.asarray(rating, dtype=np.float64), np.asarray(covariance, dtype=np.float64)
    variances = np.diagonal(cov)
    variance = variances[:, None] + variances - 2 * cov
    return m[:, None] - m, np.maximum(variance, LEAST_VARIANCE)


def significantly_better(
    rating: ArrayLike, covariance: ArrayLike, deviations: ArrayLike, *, confidence_level: float
) -> BoolArray:
    """Which pairs differ, tested simultaneously: row better than column, shape (n, n).

    With probability ``confidence_level`` all differences found are real: a difference counts if it
    exceeds the quantile of the largest standardised difference. Pairs found are then set aside and
    the others are tested again (step-down) [RW05]_. The level holds given the data for a posterior,
    over repetitions for an estimate.

    Parameters
    ----------
    rating : shape (n,)
    covariance : shape (n, n)
    deviations : shape (S, n)
        Sampling errors of the ratings: draws minus their mean, or normal ones.

    Returns
    -------
    shape (n, n), for `stats.ranks.rank_limits` and `stats.ranks.groups_alike`
    """
    mean, variance = pairwise_differences(rating, covariance)
    error = np.sqrt(variance)
    np.fill_diagonal(error, np.inf)
    statistic = mean / error
    better = np.zeros(mean.shape, dtype=np.bool_)
    chance = np.asarray(deviations, dtype=np.float64)
    while True:
        left = ~better
        largest = _largest(chance, np.where(left, 1 / error, 0.0))
        critical = np.quantile(largest, confidence_level, method="higher")
        more = left & (statistic > critical)
        if not more.any():
            return better
        better |= more


def _largest(deviations: FloatArray, precision: FloatArray) -> FloatArray:
    """Largest standardised difference of the pairs in each draw, shape (S,).

    Pairs whose `precision`, 1 over the standard error, is 0 do not count.
    """
    by_player = np.ascontiguousarray(deviations.T)
    rows, columns = np.nonzero(precision)
    weight = precision[rows, columns]
    largest = np.zeros(len(deviations))
    step = max(BLOCK_SIZE // 64 // len(deviations), 1)
    for start in range(0, len(rows), step):
        block = slice(start, start + step)
        difference = by_player[rows[block]] - by_player[columns[block]]
        difference *= weight[block, None]
        np.maximum(largest, difference.max(axis=0), out=largest)
    return largest


class OrderEntropy(NamedTuple):
    """Entropy of the order in bits: 0 if it is known, log₂ n! if all orders are equally likely.

    Up to simulation error, the true entropy is between `low` and `high`. They are close for up to
    about 20 players, and far apart for 50.
    """

    low: float
    high: float
    std_error: float
    """Simulation error of either bound."""
    most: float
    """log₂ n!, the largest possible entropy."""


def order_entropy(
    rating: ArrayLike, covariance: ArrayLike, *, rng: np.random.Generator
) -> OrderEntropy:
    """Entropy of the order of normal ratings: minus the mean log probability of random orders.

    Bounded from above and below by the two estimates of `log_prob_order`.
    """
    m, cov = np.asarray(rating, dtype=np.float64), np.asarray(covariance, dtype=np.float64)
    n = len(m)
    most = float(special.gammaln(n + 1) / np.log(2))
    n_orders = N_ORDERS * (4 if n <= FEW else 1)
    drawn = normal_draws(m, cov, (n_orders,), rng)
    orders = np.argsort(-drawn, axis=1)
    bits = [
        -log_prob_order(m, cov, orders, rng=rng, drawn=kept) / np.log(2) for kept in (drawn, None)
    ]
    low, high = (float(np.clip(surprisal.mean(), 0, most)) for surprisal in bits)
    std_error = max(float(surprisal.std()) for surprisal in bits) / np.sqrt(n_orders)
    return OrderEntropy(min(low, high), max(low, high), float(std_error), most)


def log_prob_order(
    rating: ArrayLike,
    covariance: ArrayLike,
    orders: ArrayLike,
    *,
    rng: np.random.Generator,
    n_particles: int = N_PARTICLES,
    drawn: ArrayLike | None = None,
) -> FloatArray:
    """Log of an estimated probability of each of these orders, shape (B,), for normal ratings.

    Sequential Monte Carlo over the differences of neighbours. The estimate p̂ is unbiased, so its
    logarithm is too low on average; with ``drawn``, 1/p̂ is unbiased and the logarithm is too high
    [GGA15]_.

    Parameters
    ----------
    rating : shape (n,)
    covariance : shape (n, n)
    orders : shape (B, n)
        Indices of the players, the best first.
    drawn : shape (B, n)
        Ratings from the normal that have these orders: one particle of each order is fixed to them.
    """
    order = np.atleast_2d(np.asarray(orders, dtype=np.int64))
    m, cov = np.asarray(rating, dtype=np.float64), np.asarray(covariance, dtype=np.float64)
    mean = m[order[:, :-1]] - m[order[:, 1:]]
    by_order = cov[order[:, :, None], order[:, None, :]]
    difference_cov = by_order[:, :-1] - by_order[:, 1:]
    difference_cov = difference_cov[:, :, :-1] - difference_cov[:, :, 1:]
    root = np.linalg.cholesky(difference_cov + LEAST_VARIANCE * np.eye(mean.shape[1]))
    kept: FloatArray | None = None
    if drawn is not None:
        values = np.take_along_axis(np.asarray(drawn, dtype=np.float64), order, axis=1)
        steps = (values[:, :-1] - values[:, 1:] - mean)[..., None]
        kept = np.asarray(np.linalg.solve(root, steps)[..., 0], dtype=np.float64)
    noise = np.empty((len(order), mean.shape[1], n_particles))
    log_weight, log_total = np.zeros((len(order), n_particles)), np.zeros(len(order))
    # Each difference is drawn given the previous ones, hence the loop.
    for k in range(mean.shape[1]):
        before = np.matmul(root[:, k, None, :k], noise[:, :k])[:, 0]
        # Normal noise that makes the difference positive, weighted by the probability of that.
        reach = (mean[:, k, None] + before) / root[:, k, k, None]
        log_above = np.asarray(special.log_ndtr(reach), dtype=np.float64)
        log_weight += log_above
        noise[:, k] = -special.ndtri_exp(log_above + np.log(rng.random(reach.shape)))
        if kept is not None:
            noise[:, k, 0] = kept[:, k]
        _resample(noise[:, : k + 1], log_weight, log_total, rng, fixed=kept is not None)
    top = log_weight.max(axis=1)
    return log_total + top + np.log(np.exp(log_weight - top[:, None]).mean(axis=1))


def _resample(
    noise: FloatArray,
    log_weight: FloatArray,
    log_total: FloatArray,
    rng: np.random.Generator,
    *,
    fixed: bool,
) -> None:
    """Draw particles anew, in place, of the orders in which few of them have most of the weight.

    Parameters
    ----------
    noise : shape (orders, steps, particles)
    fixed
        Whether the first particle of each order stays.
    """
    top = log_weight.max(axis=1, keepdims=True)
    weight = np.exp(log_weight - top)
    total = weight.sum(axis=1)
    size = weight.shape[1]
    few: IntArray = np.flatnonzero(total**2 / (weight**2).sum(axis=1) < size / 2)
    if not len(few):
        return
    log_total[few] += np.log(total[few] / size) + top[few, 0]
    # One search for all orders: the cumulative weights of order k are shifted by k.
    base = np.arange(len(few))[:, None]
    reached = np.cumsum(weight[few], axis=1) / total[few, None]
    reached[:, -1] = 1.0
    # Multinomial, not sorted: the fixed particle must replace a random one.
    wanted = rng.random((len(few), size))
    index = np.searchsorted((reached + base).ravel(), (wanted + base).ravel())
    parent = index.reshape(len(few), size) - base * size
    if fixed:
        parent[:, 0] = 0
    noise[few] = np.take_along_axis(noise[few], parent[:, None, :], axis=2)
    log_weight[few] = 0.0
