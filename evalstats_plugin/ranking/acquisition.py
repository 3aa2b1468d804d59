"""Which comparison to ask next: the pair whose outcome is worth most.

Ratings are believed to be N(rating, covariance); outcomes follow one link, as in `outcome`. Rules
look at all n (n - 1) / 2 pairs at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.ranking.contests import FloatArray
from evalstats_plugin.ranking.outcome import Link, check_link, shrinkage
from evalstats_plugin.ranking.pair_information import (
    SCORES,
    Pairs,
    all_pairs,
    best_information,
    order_information,
    pair_scores,
    rare,
    thompson,
)
from evalstats_plugin.wording import no_such

RULES: Mapping[str, str] = MappingProxyType(
    {
        "order": "what the outcome tells about which of the two is better: to rank all",
        "gain": "what the outcome tells about the ratings (expected information gain)",
        "best": "what it tells about which is better, of two that may both be the best",
        "thompson": "the winners of two draws from what is believed: to find the best",
        "closest": "the pair whose order is least certain",
        "entropy": "the pair whose outcome is least certain",
        "fullrank": "the pair whose players were compared least, as Fullrank does",
        "random": "any pair",
    }
)
"""Rules by name, and what they choose."""

THOMPSON_DRAWS = 32
"""Drawn until two disagree on the best; the runner-up of the last one if all agree."""
BEST_DRAWS = 400
DUELS = 16
"""Drawn at once, so that one is left where some pairs were asked before."""


class Belief(Protocol):
    """What is believed of the ratings: a `RankingFit`, or a state updated answer by answer."""

    @property
    def rating(self) -> FloatArray: ...  # noqa: D102 - means, shape (n,)
    @property
    def covariance(self) -> FloatArray: ...  # noqa: D102 - shape (n, n)


class NextContest(NamedTuple):
    """A comparison to ask for: places of two players, and what it is expected to tell."""

    first: int
    second: int
    bits: float
    """About which of the two is better, given the pairs chosen before; at most 1."""


def expected_after(
    rating: ArrayLike, covariance: ArrayLike, pair: tuple[int, int], link: Link
) -> FloatArray:
    """Covariance that an answer on a pair is expected to leave, before it is known; (n, n)."""
    (i, j), m = pair, np.asarray(rating, dtype=np.float64)
    cov = np.asarray(covariance, dtype=np.float64)
    toward = cov[:, i] - cov[:, j]
    factor = shrinkage(m[i] - m[j], toward[i] - toward[j], link)
    return cov - factor * np.outer(toward, toward)


def next_contests(
    state: Belief,
    rule: str = "order",
    k: int = 1,
    *,
    rng: np.random.Generator | int | None = None,
    link: Link = "probit",
    counts: ArrayLike | None = None,
    avoided: Sequence[tuple[int, int]] = (),
) -> list[NextContest]:
    """Choose the next k pairs to compare, all different, the most telling first.

    Several are chosen together: after each, the covariance is taken to be what an answer is
    expected to leave, so that the next is not about the same.

    Parameters
    ----------
    rule
        A name of `RULES`.
    link
        ``"probit"`` where the belief is of a Thurstone model, ``"logit"`` of a Bradley–Terry one.
    counts : shape (n, n)
        Comparisons of each two so far, for rule ``"fullrank"``.
    avoided
        Pairs not to be chosen: skipped, or asked already. What the answers to some still out will
        tell is reckoned with by `expected_after`.

    Raises
    ------
    SelectionError
        No such rule or link.
    DesignError
        Fewer than k pairs are left, or ``"fullrank"`` without counts.
    """
    generator = np.random.default_rng(rng)
    if rule not in RULES:
        raise SelectionError(no_such("rule", rule, RULES, ", ".join(RULES)))
    check_link(link)
    batch = _Batch(state, rule, link, counts, generator)
    for pair in avoided:
        batch.free[min(pair), max(pair)] = False
    left = int(batch.free.sum())
    if not 1 <= k <= left:
        msg = f"{k} pairs asked for, expected 1 to {left}: so many can still be compared"
        raise DesignError(msg)
    return [batch.choose() for _ in range(k)]


class _Batch:
    """Pairs chosen one after the other, each changing what the next is expected to tell."""

    def __init__(
        self,
        state: Belief,
        rule: str,
        link: Link,
        counts: ArrayLike | None,
        rng: np.random.Generator,
    ) -> None:
        self.rating = np.asarray(state.rating, dtype=np.float64)
        self.covariance = np.array(state.covariance, dtype=np.float64)
        self.rule, self.rng = rule, rng
        self.link: Link = link
        n = len(self.rating)
        if n < 2:
            raise DesignError(f"{n} player found, expected two or more to compare")
        if rule == "fullrank" and counts is None:
            msg = "rule 'fullrank' goes by how often each two were compared: pass counts"
            raise DesignError(msg)
        self.counts = np.zeros((n, n)) if counts is None else np.array(counts, dtype=np.float64)
        self.free: NDArray[np.bool_] = np.triu(np.ones((n, n), dtype=np.bool_), 1)

    def choose(self) -> NextContest:
        """Choose one pair, and suppose it asked."""
        pairs = all_pairs(self.rating, self.covariance)
        open_pairs = self.free[pairs.first, pairs.second]
        scores = np.where(open_pairs, self._scores(pairs), -np.inf)
        # Ties to any, each as likely.
        at = int(self.rng.choice(np.flatnonzero(scores == scores.max())))
        one = (int(pairs.first[at]), int(pairs.second[at]))
        bits = float(order_information(pairs.mean[at], pairs.variance[at], self.link))
        self.take(*one)
        return NextContest(*one, bits)

    def take(self, first: int, second: int) -> None:
        """Suppose a pair asked: the covariance becomes what an answer is expected to leave."""
        self.free[min(first, second), max(first, second)] = False
        self.counts[[first, second], [second, first]] += 1
        self.covariance = expected_after(self.rating, self.covariance, (first, second), self.link)

    def _scores(self, pairs: Pairs) -> FloatArray:
        if self.rule in SCORES:
            return pair_scores(self.rule, pairs, self.link)
        if self.rule == "fullrank":
            return rare(self.counts)
        if self.rule == "random":
            return self.rng.random(len(pairs.mean))
        if self.rule == "best":
            return best_information(pairs, self._draws(BEST_DRAWS), self.link)
        return self._duel(pairs)

    def _draws(self, *shape: int) -> FloatArray:
        """Draw ratings from what is believed, shape (*shape, n)."""
        value, vectors = np.linalg.eigh(self.covariance)
        noise = self.rng.normal(size=(*shape, len(value))) * np.sqrt(np.clip(value, 0, None))
        return self.rating + noise @ vectors.T

    def _duel(self, pairs: Pairs) -> FloatArray:
        """Score highest the first duel not yet asked; the others by how good both are."""
        n = len(self.rating)
        i, j = np.sort(thompson(self._draws(DUELS, THOMPSON_DRAWS)), axis=0)
        duel = np.full((n, n), -1.0)
        # Written last to first, so that the first duel of a pair counts.
        duel[i[::-1], j[::-1]] = np.arange(DUELS)
        both = self.rating[pairs.first] + self.rating[pairs.second]
        asked = duel[pairs.first, pairs.second]
        by_rating = both - both.max()
        # All below 1, in the order of the ratings.
        return np.where(asked >= 0, 1 + asked, by_rating)
