"""What draws of the ratings say of the order: ranks, the best, the top k, and who beats whom.

`draws` has shape (S, n), higher is better; rank 1 is the best.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from evalstats_plugin.ranking.contests import FloatArray, IntArray
from evalstats_plugin.ranking.outcome import LEAST_VARIANCE

BLOCK_SIZE = 2**24
"""Pairs of players by draws worked on at once."""


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
