"""What the outcome of each comparison would be worth: all pairs of n players at once.

Ratings are believed to be N(rating, covariance); outcomes follow one link, as in `outcome`. What
takes draws or counts broadcasts over leading axes, as the rest does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from evalstats_plugin.ranking.contests import FloatArray, IntArray
from evalstats_plugin.ranking.outcome import (
    LEAST_VARIANCE,
    Link,
    entropy,
    prob_win,
    prob_win_and_ahead,
)

LEAST_SHARE = 1e-6
"""Of pairs whose players are never both the best in a draw: below 1 over the draws squared."""


class Pairs(NamedTuple):
    """Differences of the ratings of every two players, arrays over leading axes and P pairs."""

    mean: FloatArray
    variance: FloatArray
    first: IntArray
    """Places, shape (P,); always less than `second`."""
    second: IntArray


def all_pairs(rating: ArrayLike, covariance: ArrayLike) -> Pairs:
    """Differences of every two of n players.

    Parameters
    ----------
    rating : shape (..., n)
    covariance : shape (..., n, n)
    """
    m, cov = np.asarray(rating, dtype=np.float64), np.asarray(covariance, dtype=np.float64)
    i, j = np.triu_indices(m.shape[-1], 1)
    own = np.diagonal(cov, axis1=-2, axis2=-1)
    variance = own[..., i] + own[..., j] - 2 * cov[..., i, j]
    return Pairs(m[..., i] - m[..., j], np.maximum(variance, LEAST_VARIANCE), i, j)


def order_information(mean: ArrayLike, variance: ArrayLike, link: Link) -> FloatArray:
    """Bits that the outcome tells about which player is better: I(outcome; sign of d)."""
    ahead = special.ndtr(np.asarray(mean) / np.sqrt(variance))
    win = prob_win(mean, variance, link)
    both = prob_win_and_ahead(mean, variance, link)
    cells = np.stack([both, win - both, ahead - both, 1 - win - ahead + both])
    joint = special.entr(np.clip(cells, 0, 1)).sum(axis=0) / np.log(2)
    return np.maximum(entropy(win) + entropy(ahead) - joint, 0)


def information_gain(mean: ArrayLike, variance: ArrayLike, link: Link) -> FloatArray:
    """Bits that the outcome tells about the ratings, by 32-point Gauss–Hermite [Lin56]_."""
    m, v = np.asarray(mean, dtype=np.float64), np.asarray(variance, dtype=np.float64)
    nodes, weights = np.polynomial.hermite_e.hermegauss(32)
    d = m[..., None] + np.sqrt(v)[..., None] * nodes
    p = special.ndtr(d) if link == "probit" else special.expit(d)
    noise = entropy(p) @ (weights / weights.sum())
    return np.maximum(entropy(prob_win(m, v, link)) - noise, 0)


def thompson(draws: ArrayLike) -> tuple[IntArray, IntArray]:
    """Return the best of the first draw, and of the next draw that has another [WL16]_ [Rus20]_.

    Parameters
    ----------
    draws : shape (..., D, n)
        Ratings drawn from what is believed. Where all have the same best, its opponent is the
        second best of the last draw.
    """
    value = np.asarray(draws, dtype=np.float64)
    best = value.argmax(axis=-1)
    other = best != best[..., :1]
    at = np.where(other.any(axis=-1), other.argmax(axis=-1), 0)[..., None]
    second = np.take_along_axis(best, at, axis=-1)[..., 0]
    runner_up = np.argpartition(value[..., -1, :], -2, axis=-1)[..., -2]
    return best[..., 0], np.where(second == best[..., 0], runner_up, second)


def best_information(pairs: Pairs, draws: ArrayLike, link: Link) -> FloatArray:
    """Order information of each pair, by the probabilities of both to be the best.

    Parameters
    ----------
    draws : shape (..., D, n)
        Ratings drawn from what is believed.
    """
    value = np.asarray(draws, dtype=np.float64)
    winner = value.argmax(axis=-1)[..., None]
    wins = np.asarray(winner == np.arange(value.shape[-1]), dtype=np.float64)
    best = wins.mean(axis=-2)
    both = best[..., pairs.first] * best[..., pairs.second]
    # Where one player always is the best, it still meets the likeliest other.
    return order_information(pairs.mean, pairs.variance, link) * (both + LEAST_SHARE)


def rare(counts: ArrayLike) -> FloatArray:
    """Score pairs of players that were compared rarely: Fullrank's rule, which no outcome changes.

    It minimises (eᵢ - eⱼ)' ΔΔ' (eᵢ - eⱼ) for Δ = ΣD', with D the pairs compared: for a prior
    Σ = v I that is v² times the comparisons of i and of j, those of the two with each other thrice.

    Parameters
    ----------
    counts : shape (..., n, n)
        Comparisons of each two so far, symmetric.

    Returns
    -------
    shape (..., P), pairs as in `all_pairs`
    """
    n_each = np.asarray(counts, dtype=np.float64)
    i, j = np.triu_indices(n_each.shape[-1], 1)
    degree = n_each.sum(axis=-1)
    return -(degree[..., i] + degree[..., j] + 2 * n_each[..., i, j])


SCORES: Mapping[str, Callable[[Pairs, Link], FloatArray]] = MappingProxyType(
    {
        "order": lambda pairs, link: order_information(pairs.mean, pairs.variance, link),
        "gain": lambda pairs, link: information_gain(pairs.mean, pairs.variance, link),
        "closest": lambda pairs, _: -np.abs(pairs.mean) / np.sqrt(pairs.variance),
        "entropy": lambda pairs, link: entropy(prob_win(pairs.mean, pairs.variance, link)),
    }
)
"""Rules that go by each pair alone."""


def pair_scores(rule: str, pairs: Pairs, link: Link) -> FloatArray:
    """Score every pair by one of the rules that go by each pair alone; shape as `pairs.mean`."""
    return SCORES[rule](pairs, link)
