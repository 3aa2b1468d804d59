"""What a fitted ranking is: ratings, how sure, and how they were found."""
# PART orders - What draws of the ratings say of the order: ranks, the best, the top k, and who beats whom.
# PART rank_sets - Which players are told apart beyond chance, and so which ranks are open to each [MRS24]_.
# PART order_probability - How probable one order of all players is, and how many bits its uncertainty has.

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from evalstats_plugin.ranking.contests.outcomes import LEAST_VARIANCE, entropy
from evalstats_plugin.stats.arrays import BoolArray, FloatArray, IntArray

BLOCK_SIZE = 2**24
"""Pairs of players by draws worked on at once."""


N_PARTICLES = 256


N_ORDERS = 128


@dataclass(frozen=True, eq=False, kw_only=True)
class RankingFit:
    """Ratings of n players on one scale, that of the log odds or of the probit to win."""

    model: str
    """``"bradley-terry"``, ``"thurstone"`` or ``"plackett-luce"``."""
    estimator: str
    """``"ml"``, ``"laplace"``, ``"ep"``, ``"gibbs"``, ``"hmc"`` or ``"exact"``."""
    players: tuple[str, ...]
    rating: FloatArray
    """Shape (n,): estimates or posterior means, with mean 0 unless a prior places them."""
    covariance: FloatArray
    """Of the ratings, shape (n, n)."""
    draws: FloatArray | None = None
    """Draws of the ratings from the posterior, or of bootstraps, shape (S, n)."""
    parameters: dict[str, float] = field(default_factory=dict[str, float])
    """Others of the model by name, such as ``"position"``, ``"tie"``, or a feature's."""
    parameter_std_errors: dict[str, float] = field(default_factory=dict[str, float])
    log_likelihood: float | None = None
    """At the estimate; of a posterior the log evidence stands in the diagnostics."""
    diagnostics: dict[str, Any] = field(default_factory=dict[str, Any])
    """iterations, converged, seconds, log_evidence, r_hat, ess, n_contests, reason, and more."""
    notes: tuple[str, ...] = ()

    @property
    def std_error(self) -> FloatArray:
        """Of each rating, shape (n,)."""
        return np.sqrt(np.diagonal(self.covariance))

    def centred(self) -> RankingFit:
        """The same ratings relative to their mean: no contest tells how good all are together."""
        return replace(
            self,
            rating=self.rating - self.rating.mean(),
            covariance=self._centred_rows(self._centred_rows(self.covariance).T),
            draws=None if self.draws is None else self._centred_rows(self.draws),
        )

    @staticmethod
    def _centred_rows(values: FloatArray) -> FloatArray:
        return values - values.mean(axis=1, keepdims=True)

    def sample(self, size: int, rng: np.random.Generator) -> FloatArray:
        """Draw ratings, shape (size, n): the fit's own draws anew, or normal ones around it."""
        if self.draws is not None:
            return self.draws[rng.integers(len(self.draws), size=size)]
        value, vectors = np.linalg.eigh(self.covariance)
        noise = rng.normal(size=(size, len(value))) * np.sqrt(np.clip(value, 0, None))
        return self.rating + noise @ vectors.T


class RankLimits(NamedTuple):
    """The best and the worst rank of each player, shape (n,)."""

    best: IntArray
    worst: IntArray


class TopK(NamedTuple):
    """Who is among the k best."""

    probability: FloatArray
    """Of each player to be, shape (n,)."""
    members: tuple[int, ...]
    """The most probable set of k, in order of place."""
    set_probability: float
    """That these are the k best."""


def ranks_of(draws: ArrayLike) -> IntArray:
    """Rank of each player in each draw, shape (S, n); equal ratings go either way in turn."""
    value = np.asarray(draws, dtype=np.float64)
    size, n = value.shape
    order = np.argsort(-value, axis=1, kind="stable")
    # In every other draw the later of two equals comes first.
    order[1::2] = n - 1 - np.argsort(-value[1::2, ::-1], axis=1, kind="stable")
    ranks: IntArray = np.empty((size, n), dtype=np.int64)
    places: IntArray = np.arange(1, n + 1, dtype=np.int64)
    np.put_along_axis(ranks, order, places[None], axis=1)
    return ranks


def rank_distribution(ranks: ArrayLike) -> FloatArray:
    """Probability of each player (row) to have each rank (column, the best first), shape (n, n).

    >>> rank_distribution(ranks_of([[0.0, 2.0], [0.0, 1.0]]))
    array([[0., 1.],
           [1., 0.]])
    """
    found = np.asarray(ranks, dtype=np.int64)
    size, n = found.shape
    cells = np.asarray(np.arange(n) * n + found - 1, dtype=np.int64).ravel()
    return np.bincount(cells, minlength=n * n).reshape(n, n) / size


def prob_better(draws: ArrayLike) -> FloatArray:
    """Share of draws in which the player of the row is better than that of the column, (n, n).

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


def prob_better_if_normal(rating: ArrayLike, covariance: ArrayLike) -> FloatArray:
    """Probability that the player of the row is truly better than that of the column, (n, n)."""
    mean, variance = differences(rating, covariance)
    return special.ndtr(mean / np.sqrt(variance))


def differences(rating: ArrayLike, covariance: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Means and variances of row's less column's rating, shapes (n, n); variances are above 0."""
    m, cov = np.asarray(rating, dtype=np.float64), np.asarray(covariance, dtype=np.float64)
    own = np.diagonal(cov)
    variance = own[:, None] + own - 2 * cov
    return m[:, None] - m, np.maximum(variance, LEAST_VARIANCE)


def top_k(ranks: ArrayLike, k: int) -> TopK:
    """Say who is among the k best, and which set of k is most probable.

    Raises
    ------
    ValueError
        k is not between 1 and the number of players.
    """
    found = np.asarray(ranks, dtype=np.int64)
    size, n = found.shape
    if not 1 <= k <= n:
        msg = f"k is {k}, expected 1 to {n}, the number of players"
        raise ValueError(msg)
    among = found <= k
    sets, counts = np.unique(np.packbits(among, axis=1), axis=0, return_counts=True)
    at = int(counts.argmax())
    members = np.flatnonzero(np.unpackbits(sets[at], count=n))
    return TopK(among.mean(axis=0), tuple(members.tolist()), float(counts[at] / size))


def rank_intervals(ranks: ArrayLike, confidence_level: float) -> RankLimits:
    """Ranks of each player that leave at most half of 1 - level on either side."""
    return _deeper(rank_distribution(ranks), (1 - confidence_level) / 2)


def joint_rank_intervals(ranks: ArrayLike, confidence_level: float) -> RankLimits:
    """Ranks that hold all players' at once in `confidence_level` of the draws.

    A rank is as deep as the smaller of the probabilities of a rank as good or better, and as bad
    or worse. A draw is as deep as its least deep player; the deepest draws are held.
    """
    found = np.asarray(ranks, dtype=np.int64)
    distribution = rank_distribution(found)
    depth = _depth(distribution)
    per_draw = depth[np.arange(found.shape[1]), found - 1].min(axis=1)
    # The share of draws at least as deep must not fall short of the level.
    least = np.sort(per_draw)[int(np.floor((1 - confidence_level) * len(per_draw)))]
    return _deeper(distribution, float(least))


def _depth(distribution: FloatArray) -> FloatArray:
    up = np.cumsum(distribution, axis=1)
    down = np.cumsum(distribution[:, ::-1], axis=1)[:, ::-1]
    return np.minimum(up, down)


def _deeper(distribution: FloatArray, depth: float) -> RankLimits:
    """Return the first and last rank at least so deep; rounding is no reason to leave one out."""
    held = _depth(distribution) >= depth - 1e-12
    n = len(held)
    return RankLimits(1 + held.argmax(axis=1), n - held[:, ::-1].argmax(axis=1))


def told_apart(
    rating: ArrayLike, covariance: ArrayLike, deviations: ArrayLike, *, confidence_level: float
) -> BoolArray:
    """Whether the player of the row is better than that of the column, beyond chance.

    All that is found is right at once with the confidence level: a difference counts if it is
    larger than chance makes the largest of all, each over its standard error. Pairs found are
    then left aside and the others tried again [RW05]_. Of a posterior it holds given the data, of
    an estimate over repetitions.

    Parameters
    ----------
    rating : shape (n,)
    covariance : shape (n, n)
    deviations : shape (S, n)
        What chance does to the ratings: draws less their mean, or normal ones.

    Returns
    -------
    shape (n, n), for `stats.ranks.rank_limits` and `stats.ranks.groups_alike`
    """
    mean, variance = differences(rating, covariance)
    error = np.sqrt(variance)
    np.fill_diagonal(error, np.inf)
    statistic = mean / error
    found = np.zeros(mean.shape, dtype=np.bool_)
    chance = np.asarray(deviations, dtype=np.float64)
    while True:
        left = ~found
        np.fill_diagonal(left, val=False)
        largest = _largest(chance, np.where(left, 1 / error, 0.0))
        critical = np.quantile(largest, confidence_level, method="higher")
        more = left & (statistic > critical)
        if not more.any():
            return found
        found |= more


def _largest(deviations: FloatArray, precision: FloatArray) -> FloatArray:
    """Return the largest of the pairs' standardised differences, in each draw; shape (S,).

    A difference of row less column counts where `precision`, 1 over its standard error, is not 0.
    """
    by_player = np.ascontiguousarray(deviations.T)
    rows, columns = np.nonzero(precision)
    weight = precision[rows, columns]
    largest = np.zeros(len(deviations))
    step = max(BLOCK_SIZE // 64 // max(len(deviations), 1), 1)
    for start in range(0, len(rows), step):
        block = slice(start, start + step)
        apart = by_player[rows[block]] - by_player[columns[block]]
        apart *= weight[block, None]
        np.maximum(largest, apart.max(axis=0), out=largest)
    return largest


class OrderEntropy(NamedTuple):
    """How uncertain the whole order is, in bits: 0 where it is known, log₂ n! where nothing is.

    The true entropy lies between `low` and `high`, but for errors of the simulation. They are close
    up to some 20 players, and far apart with 50.
    """

    low: float
    high: float
    std_error: float
    """Of either bound, by simulation."""
    most: float
    """log₂ n!, that of knowing nothing."""


class EntropyBounds(NamedTuple):
    """Bits between which the entropy of the order lies, whatever the distribution of ratings."""

    low: float
    high: float


def log_prob_order(
    rating: ArrayLike,
    covariance: ArrayLike,
    orders: ArrayLike,
    *,
    rng: np.random.Generator,
    n_particles: int = N_PARTICLES,
    drawn: ArrayLike | None = None,
) -> FloatArray:
    """Log of an estimate of the probability of each of these orders, shape (B,).

    The estimate p̂ is unbiased, so that its logarithm is too low on average; with ``drawn``, 1/p̂
    is unbiased, and the logarithm too high [GGA15]_.

    Parameters
    ----------
    rating : shape (n,)
    covariance : shape (n, n)
    orders : shape (B, n)
        Places of the players, the best first.
    drawn : shape (B, n)
        Ratings drawn from the belief that have these orders: one particle each keeps to them.
    """
    order = np.atleast_2d(np.asarray(orders, dtype=np.int64))
    m, cov = np.asarray(rating, dtype=np.float64), np.asarray(covariance, dtype=np.float64)
    mean = m[order[:, :-1]] - m[order[:, 1:]]
    by_order = cov[order[:, :, None], order[:, None, :]]
    apart = by_order[:, :-1] - by_order[:, 1:]
    apart = apart[:, :, :-1] - apart[:, :, 1:]
    root = np.linalg.cholesky(apart + LEAST_VARIANCE * np.eye(mean.shape[1]))
    kept: FloatArray | None = None
    if drawn is not None:
        values = np.take_along_axis(np.asarray(drawn, dtype=np.float64), order, axis=1)
        steps = (values[:, :-1] - values[:, 1:] - mean)[..., None]
        kept = np.asarray(np.linalg.solve(root, steps)[..., 0], dtype=np.float64)
    particles = _Particles((len(order), mean.shape[1], n_particles), kept, rng)
    # Each difference is drawn given those before it, so they cannot be drawn at once.
    for k in range(mean.shape[1]):
        before = np.matmul(root[:, k, None, :k], particles.noise[:, :k])[:, 0]
        particles.draw_above(k, (mean[:, k, None] + before) / root[:, k, k, None])
    return particles.log_total()


class _Particles:
    """Ways in which the differences of each order may all be above 0, with their weights."""

    def __init__(
        self, shape: tuple[int, int, int], kept: FloatArray | None, rng: np.random.Generator
    ) -> None:
        self.noise = np.empty(shape)
        """Orders, steps, particles."""
        self.kept, self.rng = kept, rng
        self._log_weight = np.zeros((shape[0], shape[2]))
        self._log_total = np.zeros(shape[0])

    def draw_above(self, step: int, reach: FloatArray) -> None:
        """Draw the noise of a step above minus `reach`, weigh by how probable that was."""
        log_above = np.asarray(special.log_ndtr(reach), dtype=np.float64)
        self._log_weight += log_above
        share = np.log(self.rng.random(reach.shape))
        self.noise[:, step] = -special.ndtri_exp(log_above + share)
        if self.kept is not None:
            self.noise[:, step, 0] = self.kept[:, step]
        self._resample(step + 1)

    def log_total(self) -> FloatArray:
        """Log of the estimates, shape (orders,)."""
        top = self._log_weight.max(axis=1)
        return self._log_total + top + np.log(np.exp(self._log_weight - top[:, None]).mean(axis=1))

    def _resample(self, steps: int) -> None:
        top = self._log_weight.max(axis=1, keepdims=True)
        weight = np.exp(self._log_weight - top)
        total = weight.sum(axis=1)
        size = weight.shape[1]
        few: IntArray = np.flatnonzero(total**2 / (weight**2).sum(axis=1) < size / 2)
        if not len(few):
            return
        self._log_total[few] += np.log(total[few] / size) + top[few, 0]
        # All orders in one search: the distribution function of each is set on top of the last.
        base = np.arange(len(few))[:, None]
        reached = np.cumsum(weight[few], axis=1) / total[few, None]
        reached[:, -1] = 1.0
        # In no order: the particle that is kept must take the place of any other.
        wanted = self.rng.random((len(few), size))
        found = np.searchsorted((reached + base).ravel(), (wanted + base).ravel(), side="right")
        parent = found.reshape(len(few), size) - base * size
        if self.kept is not None:
            parent[:, 0] = 0
        past = np.take_along_axis(self.noise[few, :steps], parent[:, None, :], axis=2)
        self.noise[few, :steps] = past
        self._log_weight[few] = 0.0


def order_entropy(
    rating: ArrayLike,
    covariance: ArrayLike,
    *,
    rng: np.random.Generator,
    n_orders: int = N_ORDERS,
    n_particles: int = N_PARTICLES,
) -> OrderEntropy:
    """Entropy of the order of normal ratings: minus the mean log probability of orders drawn.

    From above and below, by the two estimates of `log_prob_order`.
    """
    m, cov = np.asarray(rating, dtype=np.float64), np.asarray(covariance, dtype=np.float64)
    n = len(m)
    most = float(special.gammaln(n + 1) / np.log(2))
    if n < 2:
        return OrderEntropy(0.0, 0.0, 0.0, most)
    value, vectors = np.linalg.eigh(cov)
    noise = rng.normal(size=(n_orders, n)) * np.sqrt(np.clip(value, 0, None))
    drawn = m + noise @ vectors.T
    orders = np.argsort(-drawn, axis=1)
    bits = [
        -log_prob_order(m, cov, orders, rng=rng, n_particles=n_particles, drawn=kept) / np.log(2)
        for kept in (drawn, None)
    ]
    low, high = (float(np.clip(found.mean(), 0, most)) for found in bits)
    std_error = max(float(found.std()) for found in bits) / np.sqrt(n_orders)
    return OrderEntropy(min(low, high), max(low, high), float(std_error), most)


def entropy_bounds(draws: ArrayLike) -> EntropyBounds:
    """Bounds of the order's entropy from draws of any distribution.

    It is at least that of any one player's rank, and at most the sum over ranks of who holds it,
    over players of their rank, over pairs of who is ahead, or that of knowing nothing. Counting
    orders themselves would need far more draws than there are orders.

    Parameters
    ----------
    draws : shape (S, n)
    """
    value = np.asarray(draws, dtype=np.float64)
    distribution = rank_distribution(ranks_of(value))
    part = special.entr(distribution) / np.log(2)
    pairs = entropy(prob_better(value))[np.triu_indices(len(distribution), 1)]
    most = special.gammaln(len(distribution) + 1) / np.log(2)
    # The last rank is known from the others, as is the last player.
    by_rank, by_player = part.sum(axis=0), part.sum(axis=1)
    high = min(*(float(x.sum() - x.max()) for x in (by_rank, by_player)), pairs.sum(), most)
    low = max(float(by_rank.max()), float(by_player.max()))
    return EntropyBounds(low, max(float(high), low))
