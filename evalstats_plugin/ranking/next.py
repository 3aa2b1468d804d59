"""Which comparison to ask next: the pair whose outcome is worth most.

Ratings are believed to be N(rating, covariance); outcomes follow one link, as in `outcome`. Rules
look at all n (n - 1) / 2 pairs at once.
"""
# PART pair_information - What the outcome of each comparison would be worth: all pairs of n players at once.
# PART stopping - When to stop comparing: how sure the order or the best is by now, and whether that will do.

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from evalstats_plugin.errors import DesignError, SelectionError, no_such
from evalstats_plugin.ranking.contests.outcomes import (
    LEAST_VARIANCE,
    Link,
    check_link,
    entropy,
    prob_win,
    prob_win_and_ahead,
    shrinkage,
)
from evalstats_plugin.ranking.ratings.fit import log_prob_order
from evalstats_plugin.stats.arrays import FloatArray, IntArray

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


LEAST_SHARE = 1e-6
"""Of pairs whose players are never both the best in a draw: below 1 over the draws squared."""


SCORES: Mapping[str, Callable[[Pairs, Link], FloatArray]] = MappingProxyType(
    {
        "order": lambda pairs, link: order_information(pairs.mean, pairs.variance, link),
        "gain": lambda pairs, link: information_gain(pairs.mean, pairs.variance, link),
        "closest": lambda pairs, _: -np.abs(pairs.mean) / np.sqrt(pairs.variance),
        "entropy": lambda pairs, link: entropy(prob_win(pairs.mean, pairs.variance, link)),
    }
)
"""Rules that go by each pair alone."""


N_PARTICLES = 1024
"""For the probability of one order."""


N_DRAWS = 4000
"""For who is the best and by how much: P(best) to a standard error of .008 at most."""


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


def pair_scores(rule: str, pairs: Pairs, link: Link) -> FloatArray:
    """Score every pair by one of the rules that go by each pair alone; shape as `pairs.mean`."""
    return SCORES[rule](pairs, link)


class Certainty(NamedTuple):
    """How sure what a normal belief says is."""

    prob_order: float
    """That all players are in the order of their ratings."""
    expected_tau: float
    """Kendall's tau of that order with the true one: 1 less twice the share of wrong pairs."""
    best: int
    """Place of the player that is most probably the best."""
    prob_best: float
    """That it is."""
    regret: float
    """How much higher the best rating is expected to be than this player's."""


class Stop(NamedTuple):
    """Why comparing may stop."""

    goal: str
    """The field of `Stopping` that was reached."""
    reason: str


@dataclass(frozen=True, kw_only=True)
class Stopping:
    """What will do: comparing stops at whatever of these comes first; None is no bar.

    Raises
    ------
    SelectionError
        A bar that nothing, or anything, passes.
    """

    prob_order: float | None = None
    expected_tau: float | None = None
    prob_best: float | None = None
    regret: float | None = None
    """Stops at or below."""
    budget: int | None = None
    """Comparisons."""

    def __post_init__(self) -> None:
        for name in ("prob_order", "expected_tau", "prob_best"):
            value = getattr(self, name)
            if value is not None and not 0 < value < 1:
                msg = f"{name}={value:g} found, expected a number between 0 and 1 such as 0.95"
                raise SelectionError(msg)
        for name in ("regret", "budget"):
            value = getattr(self, name)
            if value is not None and not 0 < value < np.inf:
                msg = f"{name}={value:g} found, expected a number above 0"
                raise SelectionError(msg)

    def reached(self, found: Certainty, n_contests: float) -> Stop | None:
        """Return why to stop, or None to go on."""
        sure = {
            "prob_order": "the ranking is right with probability",
            "expected_tau": "the ranking's expected Kendall's tau is",
            "prob_best": "the best is right with probability",
        }
        for name, words in sure.items():
            bar, value = getattr(self, name), getattr(found, name)
            if bar is not None and value >= bar:
                return Stop(name, f"{words} {value:.3f}, {bar:g} was asked for")
        if self.regret is not None and found.regret <= self.regret:
            reason = f"the best is expected to be {found.regret:.3g} better than the one chosen"
            return Stop("regret", f"{reason}, {self.regret:g} was asked for")
        if self.budget is not None and n_contests >= self.budget:
            return Stop("budget", f"{n_contests:g} comparisons made, {self.budget} were allowed")
        return None


def certainty(state: Belief, *, rng: np.random.Generator | int | None = None) -> Certainty:
    """How sure the order of the ratings and the best player are."""
    generator = np.random.default_rng(rng)
    rating = np.asarray(state.rating, dtype=np.float64)
    covariance = np.asarray(state.covariance, dtype=np.float64)
    if len(rating) < 2:
        return Certainty(1.0, 1.0, 0, 1.0, 0.0)
    order = np.argsort(-rating, kind="stable")
    log_p = log_prob_order(rating, covariance, order, rng=generator, n_particles=N_PARTICLES)[0]
    pairs = all_pairs(rating, covariance)
    right = special.ndtr(np.abs(pairs.mean) / np.sqrt(pairs.variance))
    value, vectors = np.linalg.eigh(covariance)
    noise = generator.normal(size=(N_DRAWS, len(rating))) * np.sqrt(np.clip(value, 0, None))
    draws = rating + noise @ vectors.T
    share = np.bincount(draws.argmax(axis=1), minlength=len(rating)) / N_DRAWS
    best = int(share.argmax())
    regret = float((draws.max(axis=1) - draws[:, best]).mean())
    prob_order = float(min(np.exp(log_p), 1.0))
    return Certainty(prob_order, float(2 * right.mean() - 1), best, float(share[best]), regret)
