"""Active ranking: which pairs to compare next.

Ratings are believed to be N(rating, covariance); outcomes follow one link (`contests.outcomes`).

* `next_contests`: choose pairs by one of `RULES`, alone or several together
* `order_information`, `thompson_duel`: what is behind the rules
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from evalstats_plugin.errors import DesignError, check_known, counted
from evalstats_plugin.ranking.contests.outcomes import (
    LINKS,
    Link,
    entropy,
    prob_win,
    prob_win_and_ahead,
    shrinkage,
)
from evalstats_plugin.ranking.ratings.fit import normal_draws, pairwise_differences
from evalstats_plugin.stats.arrays import BoolArray, FloatArray, IntArray, steady
from evalstats_plugin.stats.streams import stream

THOMPSON_DRAWS = 32
"""Draws among which two with different best players are sought."""
DUELS = 16
"""Duels drawn at once, so that one is left if some pairs were asked before."""

RULES: Mapping[str, str] = MappingProxyType(
    {
        "order": "what the outcome tells about which of the two is better: to rank all",
        "thompson": "the winners of two draws from what is believed: to find the best",
        "random": "any pair",
    }
)
"""Rules by name, and what they choose."""


class Belief(Protocol):
    """Normal belief about the ratings: a `RankingFit`, or a state updated answer by answer."""

    @property
    def rating(self) -> FloatArray: ...  # noqa: D102 - means, shape (n,)
    @property
    def covariance(self) -> FloatArray: ...  # noqa: D102 - shape (n, n)


class NextContest(NamedTuple):
    """A pair of players to compare, by index, and its expected information."""

    first: int
    second: int
    bits: float
    """Expected information about which of the two is better, given the pairs chosen before."""


def next_contests(
    state: Belief,
    rule: str = "order",
    k: int = 1,
    *,
    rng: np.random.Generator | int | None = None,
    link: Link = "probit",
    avoided: Sequence[tuple[int, int]] = (),
) -> list[NextContest]:
    """Choose the next k pairs to compare, all different, the most informative first.

    Pairs are chosen greedily: after each, the covariance is replaced by the expected covariance
    after its answer, so that the pairs of a batch complement each other.

    Parameters
    ----------
    rule
        A name from `RULES`.
    link
        ``"probit"`` for ratings of a Thurstone model, ``"logit"`` for Bradley–Terry.
    avoided
        Pairs that are not chosen: skipped, or asked already. Use `expected_covariance` to account
        for pending answers.

    Raises
    ------
    SelectionError
        No such rule or link.
    DesignError
        Fewer than k pairs are left.

    Examples
    --------
    >>> from evalstats_plugin.ranking import Contests, fit_thurstone
    >>> played = Contests.of([0, 0, 1, 1], [2, 2, 2, 2], [1, 1, 1, 0], players=3)
    >>> [pair] = next_contests(fit_thurstone(played, estimator="ep"))
    >>> pair.first, pair.second
    (0, 1)
    """
    generator = stream(rng, "next contests")
    check_known("rule", rule, RULES)
    check_known("link", link, LINKS)
    rating = np.asarray(state.rating, dtype=np.float64)
    covariance = np.asarray(state.covariance, dtype=np.float64)
    n = len(rating)
    if n < 2:
        raise DesignError(f"{counted(n, 'player')}: give two or more to compare")
    free: BoolArray = np.triu(np.ones((n, n), dtype=np.bool_), 1)
    for pair in avoided:
        free[min(pair), max(pair)] = False
    left = int(free.sum())
    if not 1 <= k <= left:
        raise DesignError(
            f"{counted(k, 'pair')} asked for, but {left} can still be compared: ask for 1 to {left}"
        )
    i, j = np.triu_indices(n, 1)
    chosen: list[NextContest] = []
    while len(chosen) < k:
        mean, variance = (values[i, j] for values in pairwise_differences(rating, covariance))
        if rule == "order":
            scores = order_information(mean, variance, link)
        elif rule == "random":
            scores = generator.random(len(mean))
        else:
            draws = normal_draws(rating, covariance, (DUELS, THOMPSON_DRAWS), generator)
            scores = _duel_scores((i, j), rating, draws)
        scores = np.where(free[i, j], steady(scores), -np.inf)
        # Break ties at random.
        at = int(generator.choice(np.flatnonzero(scores == scores.max())))
        first, second = int(i[at]), int(j[at])
        bits = float(order_information(mean[at], variance[at], link))
        chosen.append(NextContest(first, second, bits))
        free[first, second] = False
        covariance = expected_covariance(rating, covariance, (first, second), link)
    return chosen


def _duel_scores(
    pairs: tuple[IntArray, IntArray], rating: FloatArray, draws: FloatArray
) -> FloatArray:
    """Scores of Thompson sampling: drawn duels in order, then pairs by the sum of ratings."""
    n = len(rating)
    i, j = np.sort(thompson_duel(draws), axis=0)
    duel = np.full((n, n), -1.0)
    # Assigned from last to first, so that the first duel of a pair counts.
    duel[i[::-1], j[::-1]] = np.arange(DUELS)
    asked = duel[pairs]
    both = rating[pairs[0]] + rating[pairs[1]]
    # Scores by rating are at most 0, below those of all duels.
    return np.where(asked >= 0, 1 + asked, both - both.max())


def expected_covariance(
    rating: ArrayLike, covariance: ArrayLike, pair: tuple[int, int], link: Link
) -> FloatArray:
    """Expected posterior covariance after an answer on a pair, shape (n, n)."""
    (i, j), m = pair, np.asarray(rating, dtype=np.float64)
    cov = np.asarray(covariance, dtype=np.float64)
    direction = cov[:, i] - cov[:, j]
    factor = shrinkage(m[i] - m[j], direction[i] - direction[j], link)
    return cov - factor * np.outer(direction, direction)


def order_information(mean: ArrayLike, variance: ArrayLike, link: Link) -> FloatArray:
    """Mutual information, in bits, of the outcome and which player is better (sign of d)."""
    ahead = special.ndtr(np.asarray(mean) / np.sqrt(variance))
    win = prob_win(mean, variance, link)
    both = prob_win_and_ahead(mean, variance, link)
    cells = np.stack([both, win - both, ahead - both, 1 - win - ahead + both])
    joint = special.entr(np.clip(cells, 0, 1)).sum(axis=0) / np.log(2)
    return np.maximum(entropy(win) + entropy(ahead) - joint, 0)


def thompson_duel(draws: ArrayLike) -> tuple[IntArray, IntArray]:
    """Double Thompson sampling [WL16]_ [Rus20]_: two players that may both be the best.

    The best player of the first draw, and that of the next draw with another best player. If all
    draws agree, the opponent is the second best of the last draw.

    Parameters
    ----------
    draws : shape (..., D, n)
        Ratings drawn from the belief.
    """
    value = np.asarray(draws, dtype=np.float64)
    best = value.argmax(axis=-1)
    other = best != best[..., :1]
    at = np.where(other.any(axis=-1), other.argmax(axis=-1), 0)[..., None]
    second = np.take_along_axis(best, at, axis=-1)[..., 0]
    runner_up = np.argpartition(value[..., -1, :], -2, axis=-1)[..., -2]
    return best[..., 0], np.where(second == best[..., 0], runner_up, second)
