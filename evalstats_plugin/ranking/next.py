"""Active ranking: which pairs to compare next, and when to stop.

Ratings are believed to be N(rating, covariance); outcomes follow one link (`contests.outcomes`).

* `next_contests`: choose pairs by one of `RULES`, alone or several together
* `order_information` to `fullrank_scores`: the scores behind the rules, for all n (n - 1) / 2 pairs
* `certainty`, `Stopping`: how certain the order and the best player are, and whether that suffices
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from evalstats_plugin.errors import DesignError, SelectionError, counted, no_such
from evalstats_plugin.ranking.contests.outcomes import (
    LEAST_VARIANCE,
    Link,
    check_link,
    entropy,
    prob_win,
    prob_win_and_ahead,
    shrinkage,
)
from evalstats_plugin.ranking.ratings.fit import log_prob_order, normal_draws
from evalstats_plugin.stats.arrays import FloatArray, IntArray
from evalstats_plugin.stats.steady import steady
from evalstats_plugin.stats.streams import stream

THOMPSON_DRAWS = 32
"""Draws among which two with different best players are sought."""
BEST_DRAWS = 400
"""Draws for the probability to be the best, in rule "best"."""
DUELS = 16
"""Duels drawn at once, so that one is left if some pairs were asked before."""
LEAST_SHARE = 1e-6
"""Weight of pairs whose players are never both the best in a draw; below 1 / `BEST_DRAWS`²."""

N_PARTICLES = 1024
"""Particles for the probability of the order."""
N_DRAWS = 4000
"""Draws for the best player and the regret: P(best) has a standard error of at most .008."""

RULES: Mapping[str, str] = MappingProxyType(
    {
        "order": "what the outcome tells about which of the two is better: to rank all",
        "best": "what it tells about which is better, of two that may both be the best",
        "thompson": "the winners of two draws from what is believed: to find the best",
        "fullrank": "the pair whose players were compared least, as Fullrank does",
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
    counts: ArrayLike | None = None,
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
    counts : shape (n, n)
        Number of comparisons of each pair so far, for rule ``"fullrank"``.
    avoided
        Pairs that are not chosen: skipped, or asked already. Use `expected_covariance` to account
        for pending answers.

    Raises
    ------
    SelectionError
        No such rule or link.
    DesignError
        Fewer than k pairs are left, or ``"fullrank"`` without counts.

    Examples
    --------
    >>> from evalstats_plugin.ranking import Contests, fit_thurstone
    >>> played = Contests.of([0, 0, 1, 1], [2, 2, 2, 2], [1, 1, 1, 0], players=3)
    >>> [pair] = next_contests(fit_thurstone(played, estimator="ep"))
    >>> pair.first, pair.second
    (0, 1)
    """
    generator = stream(rng, "next contests")
    if rule not in RULES:
        raise SelectionError(no_such("rule", rule, RULES, ", ".join(RULES)))
    check_link(link)
    batch = _Batch(state, rule, link, counts, generator)
    for pair in avoided:
        batch.free[min(pair), max(pair)] = False
    left = int(batch.free.sum())
    if not 1 <= k <= left:
        msg = (
            f"{counted(k, 'pair')} asked for, but {left} can still be compared: ask for 1 to {left}"
        )
        raise DesignError(msg)
    return [batch.choose() for _ in range(k)]


class _Batch:
    """Pairs chosen one after the other, with the expected covariance after each."""

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
            raise DesignError(f"{counted(n, 'player')}: give two or more to compare")
        if rule == "fullrank" and counts is None:
            msg = "rule 'fullrank' goes by how often each two were compared: pass counts"
            raise DesignError(msg)
        self.counts = np.zeros((n, n)) if counts is None else np.array(counts, dtype=np.float64)
        self.free: NDArray[np.bool_] = np.triu(np.ones((n, n), dtype=np.bool_), 1)

    def choose(self) -> NextContest:
        """Choose one pair, and assume that it is asked."""
        pairs = all_pairs(self.rating, self.covariance)
        open_pairs = self.free[pairs.first, pairs.second]
        scores = np.where(open_pairs, steady(self._scores(pairs)), -np.inf)
        # Break ties at random.
        at = int(self.rng.choice(np.flatnonzero(scores == scores.max())))
        first, second = int(pairs.first[at]), int(pairs.second[at])
        bits = float(order_information(pairs.mean[at], pairs.variance[at], self.link))
        self.free[first, second] = False
        self.counts[[first, second], [second, first]] += 1
        self.covariance = expected_covariance(
            self.rating, self.covariance, (first, second), self.link
        )
        return NextContest(first, second, bits)

    def _scores(self, pairs: Pairs) -> FloatArray:
        if self.rule == "order":
            return order_information(pairs.mean, pairs.variance, self.link)
        if self.rule == "fullrank":
            return fullrank_scores(self.counts)
        if self.rule == "random":
            return self.rng.random(len(pairs.mean))
        if self.rule == "best":
            return best_information(pairs, self._draws(BEST_DRAWS), self.link)
        return self._duel(pairs)

    def _draws(self, *shape: int) -> FloatArray:
        """Draw ratings from the belief, shape (*shape, n)."""
        return normal_draws(self.rating, self.covariance, shape, self.rng)

    def _duel(self, pairs: Pairs) -> FloatArray:
        """Scores of Thompson sampling: drawn duels in order, then pairs by the sum of ratings."""
        n = len(self.rating)
        i, j = np.sort(thompson_duel(self._draws(DUELS, THOMPSON_DRAWS)), axis=0)
        duel = np.full((n, n), -1.0)
        # Assigned from last to first, so that the first duel of a pair counts.
        duel[i[::-1], j[::-1]] = np.arange(DUELS)
        both = self.rating[pairs.first] + self.rating[pairs.second]
        asked = duel[pairs.first, pairs.second]
        by_rating = both - both.max()
        # Scores by rating are at most 0, below those of all duels.
        return np.where(asked >= 0, 1 + asked, by_rating)


def expected_covariance(
    rating: ArrayLike, covariance: ArrayLike, pair: tuple[int, int], link: Link
) -> FloatArray:
    """Expected posterior covariance after an answer on a pair, shape (n, n)."""
    (i, j), m = pair, np.asarray(rating, dtype=np.float64)
    cov = np.asarray(covariance, dtype=np.float64)
    direction = cov[:, i] - cov[:, j]
    factor = shrinkage(m[i] - m[j], direction[i] - direction[j], link)
    return cov - factor * np.outer(direction, direction)


class Pairs(NamedTuple):
    """Differences of the ratings of all P pairs of players."""

    mean: FloatArray
    """Shape (..., P)."""
    variance: FloatArray
    """Shape (..., P)."""
    first: IntArray
    """Index of the player, shape (P,); always less than `second`."""
    second: IntArray


def all_pairs(rating: ArrayLike, covariance: ArrayLike) -> Pairs:
    """Differences of all pairs of n players.

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
    """Mutual information, in bits, of the outcome and which player is better (sign of d)."""
    ahead = special.ndtr(np.asarray(mean) / np.sqrt(variance))
    win = prob_win(mean, variance, link)
    both = prob_win_and_ahead(mean, variance, link)
    cells = np.stack([both, win - both, ahead - both, 1 - win - ahead + both])
    joint = special.entr(np.clip(cells, 0, 1)).sum(axis=0) / np.log(2)
    return np.maximum(entropy(win) + entropy(ahead) - joint, 0)


def best_information(pairs: Pairs, draws: ArrayLike, link: Link) -> FloatArray:
    """Order information of each pair, weighted by both players' probabilities to be the best.

    Parameters
    ----------
    draws : shape (..., D, n)
        Ratings drawn from the belief.
    """
    value = np.asarray(draws, dtype=np.float64)
    winner = value.argmax(axis=-1)[..., None]
    wins = np.asarray(winner == np.arange(value.shape[-1]), dtype=np.float64)
    best = wins.mean(axis=-2)
    both = best[..., pairs.first] * best[..., pairs.second]
    # If one player is the best in all draws, it still meets the most informative opponent.
    return order_information(pairs.mean, pairs.variance, link) * (both + LEAST_SHARE)


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


def fullrank_scores(counts: ArrayLike) -> FloatArray:
    """Fullrank's rule, which depends on counts only: highest for players rarely compared.

    It minimises (eᵢ - eⱼ)' ΔΔ' (eᵢ - eⱼ) for Δ = ΣD', with D the pairs compared. For a prior
    Σ = v I this is v² (dᵢ + dⱼ + 2 nᵢⱼ), with d the numbers of comparisons of each player.

    Parameters
    ----------
    counts : shape (..., n, n)
        Number of comparisons of each pair so far, symmetric.

    Returns
    -------
    shape (..., P), pairs as in `all_pairs`
    """
    n_each = np.asarray(counts, dtype=np.float64)
    i, j = np.triu_indices(n_each.shape[-1], 1)
    degree = n_each.sum(axis=-1)
    return -(degree[..., i] + degree[..., j] + 2 * n_each[..., i, j])


class Certainty(NamedTuple):
    """Certainty of the order and of the best player under a normal belief."""

    prob_order: float
    """Probability that all players are in the order of their ratings."""
    expected_tau: float
    """Expected Kendall's tau of this order with the true one: 1 - 2 × share of wrong pairs."""
    best: int
    """Index of the player that is most probably the best."""
    prob_best: float
    """Probability that this player is the best."""
    regret: float
    """Expected difference of the highest rating and this player's."""


def certainty(state: Belief, *, rng: np.random.Generator | int | None = None) -> Certainty:
    """Certainty of the order of the ratings and of the best player.

    Parameters
    ----------
    state
        A `RankingFit`, or anything else with a rating and its covariance.
    rng
        For simulating the probabilities of the order and of being the best.
    """
    generator = stream(rng, "certainty of an order")
    rating = np.asarray(state.rating, dtype=np.float64)
    covariance = np.asarray(state.covariance, dtype=np.float64)
    if len(rating) < 2:
        return Certainty(1.0, 1.0, 0, 1.0, 0.0)
    order = np.argsort(-steady(rating), kind="stable")
    log_p = log_prob_order(rating, covariance, order, rng=generator, n_particles=N_PARTICLES)[0]
    pairs = all_pairs(rating, covariance)
    right = special.ndtr(np.abs(pairs.mean) / np.sqrt(pairs.variance))
    draws = normal_draws(rating, covariance, (N_DRAWS,), generator)
    share = np.bincount(draws.argmax(axis=1), minlength=len(rating)) / N_DRAWS
    best = int(share.argmax())
    regret = float((draws.max(axis=1) - draws[:, best]).mean())
    prob_order = float(min(np.exp(log_p), 1.0))
    return Certainty(prob_order, float(2 * right.mean() - 1), best, float(share[best]), regret)


class Stop(NamedTuple):
    """Reason to stop comparing."""

    goal: str
    """Field of `Stopping` that was reached."""
    reason: str


@dataclass(frozen=True, kw_only=True)
class Stopping:
    """Stopping rule: stop as soon as one of these goals is reached; None is no goal.

    Raises
    ------
    SelectionError
        A goal that is outside its range.

    Examples
    --------
    >>> from evalstats_plugin.ranking import Contests, fit_thurstone
    >>> played = Contests.of([0] * 20, [1] * 20, [1] * 18 + [0] * 2, players=2)
    >>> found = certainty(fit_thurstone(played, estimator="ep"), rng=0)
    >>> Stopping(prob_best=0.95, budget=500).reached(found, n_contests=20).goal
    'prob_best'
    """

    prob_order: float | None = None
    expected_tau: float | None = None
    prob_best: float | None = None
    regret: float | None = None
    """Largest expected regret, in the unit of the ratings."""
    budget: int | None = None
    """Number of comparisons."""

    def __post_init__(self) -> None:
        for name in ("prob_order", "expected_tau", "prob_best"):
            value = getattr(self, name)
            if value is not None and not 0 < value < 1:
                msg = f"{name} is {value:g}: give a number between 0 and 1, such as 0.95"
                raise SelectionError(msg)
        for name in ("regret", "budget"):
            value = getattr(self, name)
            if value is not None and not 0 < value < np.inf:
                msg = f"{name} is {value:g}: give a number above 0"
                raise SelectionError(msg)

    def reached(self, found: Certainty, n_contests: float) -> Stop | None:
        """Return the reason to stop, or None to go on."""
        wordings = {
            "prob_order": "the ranking is right with probability",
            "expected_tau": "the ranking's expected Kendall's tau is",
            "prob_best": "the best is right with probability",
        }
        for name, words in wordings.items():
            bar, value = getattr(self, name), getattr(found, name)
            if bar is not None and value >= bar:
                return Stop(name, f"{words} {value:.3f}, {bar:g} was asked for")
        if self.regret is not None and found.regret <= self.regret:
            reason = f"the best is expected to be {found.regret:.3g} better than the one chosen"
            return Stop("regret", f"{reason}, {self.regret:g} was asked for")
        if self.budget is not None and n_contests >= self.budget:
            return Stop("budget", f"{n_contests:g} comparisons made, {self.budget} were allowed")
        return None
