"""How probable one order of all players is, and how many bits its uncertainty has.

Ratings are believed to be normal; an order is then an orthant. Its probability is simulated one
difference of neighbours after the other, each drawn above 0 given those before [Gew91]_, by
particles that are resampled where few of them carry most of the weight.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from evalstats_plugin.ranking.contests import FloatArray, IntArray
from evalstats_plugin.ranking.orders import prob_better, rank_distribution, ranks_of
from evalstats_plugin.ranking.outcome import LEAST_VARIANCE, entropy

N_PARTICLES = 256
N_ORDERS = 128


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
