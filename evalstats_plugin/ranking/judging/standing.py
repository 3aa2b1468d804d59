"""What the answers so far tell: ratings, how sure, and which pair to show next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from scipy import special

from evalstats_plugin.errors import SelectionError, no_such
from evalstats_plugin.ranking.contests.contests import Contests
from evalstats_plugin.ranking.judging.session import Answer
from evalstats_plugin.ranking.next import RULES, NextContest, all_pairs, next_contests
from evalstats_plugin.ranking.thurstone.model import EPState
from evalstats_plugin.stats.arrays import FloatArray, IntArray

GOALS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {"order": ("order", "pairs in right order"), "best": ("thompson", "best item")}
)
"""What a judge wants to know: the rule that gets there soonest, and how its bar is named."""


N_DRAWS = 2000
"""For the probability to be best: standard error .01 at most."""


RECENT = 5
"""Pairs that are shown before the same one comes again, where there are so many."""


MOST_STEPS = 5
"""Answers that are taken in one by one; of more, all are taken together anew."""


@dataclass(frozen=True, slots=True)
class Goal:
    """When a judge has answered enough."""

    name: str = "order"
    """``"order"``: the expected share of pairs in the right order; ``"best"``: P(best)."""
    wanted: float = 0.95
    rule: str = "order"
    """Of `evalstats_plugin.ranking.next.RULES`."""

    @classmethod
    def of(cls, name: str, wanted: float, rule: str | None = None) -> Goal:
        """Check a goal; its rule is the one that gets there soonest unless another is named.

        Raises
        ------
        SelectionError
            No such goal or rule; a certainty that cannot be reached.
        """
        if name not in GOALS:
            raise SelectionError(no_such("goal", name, GOALS, ", ".join(GOALS)))
        if rule is not None and rule not in RULES:
            raise SelectionError(no_such("rule", rule, RULES, ", ".join(RULES)))
        if not 0 < wanted < 1:
            msg = f"certainty {wanted:g} found, expected one between 0 and 1 such as 0.95"
            raise SelectionError(msg)
        return cls(name, wanted, rule or GOALS[name][0])

    @property
    def words(self) -> str:
        """What is to be certain."""
        return GOALS[self.name][1]


@dataclass(frozen=True, eq=False, kw_only=True)
class Ranking:
    """The items as the answers so far rank them, arrays of shape (n,)."""

    rating: FloatArray
    std_error: FloatArray
    low: FloatArray
    high: FloatArray
    expected_rank: FloatArray
    prob_best: FloatArray
    prob_in_order: float
    """Expected share of pairs that the ratings put in the right order; Kendall's τ is 2 p - 1."""
    confidence_level: float

    @property
    def order(self) -> IntArray:
        """Places of the items, the best first."""
        return np.argsort(self.expected_rank, kind="stable")

    def certainty(self, goal: str) -> float:
        """How probable it is that what the goal asks for is right."""
        return float(self.prob_best.max()) if goal == "best" else self.prob_in_order


class Standing:
    """What is believed of n items' ratings, brought up to date answer by answer.

    Thurstone's model by expectation propagation: see `EPState`.
    """

    def __init__(self, n: int, prior_variance: float, *, seed: int | None = None) -> None:
        self.n = n
        self._prior_variance = prior_variance
        self._told: tuple[Answer, ...] = ()
        self._rng = np.random.default_rng(seed)
        self._state = EPState(n, prior_covariance=prior_variance)

    def update(self, given: Sequence[Answer]) -> None:
        """Take in the answers that are new, and forget those that are gone."""
        given = tuple(given)
        pairs = zip(self._told, given, strict=False)
        same = next((k for k, (old, new) in enumerate(pairs) if old != new), None)
        kept = min(len(self._told), len(given)) if same is None else same
        gone, new = self._told[kept:], given[kept:]
        if len(gone) + len(new) > MOST_STEPS:
            self._state = self._from_all(given)
        else:
            for answer in gone:
                self._state.remove(answer.first, answer.second, answer.share, answer.weight)
            for answer in new:
                self._state.add(answer.first, answer.second, answer.share, answer.weight)
        self._told = given

    def _from_all(self, given: Sequence[Answer]) -> EPState:
        contests = Contests.of(
            [a.first for a in given],
            [a.second for a in given],
            [a.share for a in given],
            players=self.n,
            weight=[a.weight for a in given],
        )
        return EPState.of(contests, prior_covariance=self._prior_variance)

    def choose(self, rule: str, k: int = 1, skipped: Sequence[Answer] = ()) -> list[NextContest]:
        """Choose the next pairs, their places at random; none if all were skipped.

        Parameters
        ----------
        rule
            Of `evalstats_plugin.ranking.next.RULES`.
        k
            Pairs chosen together, fewer where there are not so many.
        skipped
            Pairs that are not to be shown again.
        """
        n_pairs = self.n * (self.n - 1) // 2
        never = {answer.pair for answer in skipped}
        k = min(k, n_pairs - len(never))
        if not k:
            return []
        recent = [answer.pair for answer in self._told[-RECENT:]]
        # However few pairs there are, k of them must be left.
        spared = n_pairs - len(never) - k
        avoided = never | set(recent[len(recent) - min(spared, len(recent)) :])
        found = next_contests(
            self._state,
            rule,
            k,
            rng=self._rng,
            counts=self._counts(),
            avoided=[(min(pair), max(pair)) for pair in avoided],
        )
        turned = self._rng.random(k) < 0.5
        return [
            NextContest(p.second, p.first, p.bits) if turn else p
            for p, turn in zip(found, turned, strict=True)
        ]

    def _counts(self) -> FloatArray:
        """Count the answers on each two items, shape (n, n)."""
        pairs = np.array([(a.first, a.second) for a in self._told], dtype=np.int64).reshape(-1, 2)
        cells = np.bincount(pairs[:, 0] * self.n + pairs[:, 1], minlength=self.n**2)
        counts = cells.reshape(self.n, self.n).astype(np.float64)
        return counts + counts.T

    def ranking(self, confidence_level: float = 0.95) -> Ranking:
        """Say how the items rank by now."""
        rating, covariance = self._state.rating, self._state.covariance
        sd = np.sqrt(np.diagonal(covariance))
        reach = special.ndtri((1 + confidence_level) / 2) * sd
        pairs = all_pairs(rating, covariance)
        ahead = special.ndtr(pairs.mean / np.sqrt(pairs.variance))
        beaten = np.zeros(self.n)
        beaten += np.bincount(pairs.second, ahead, self.n)
        beaten += np.bincount(pairs.first, 1 - ahead, self.n)
        value, vectors = np.linalg.eigh(covariance)
        noise = self._rng.normal(size=(N_DRAWS, self.n)) * np.sqrt(np.clip(value, 0, None))
        best = np.bincount((rating + noise @ vectors.T).argmax(axis=1), minlength=self.n)
        return Ranking(
            rating=rating,
            std_error=sd,
            low=rating - reach,
            high=rating + reach,
            expected_rank=1 + beaten,
            prob_best=best / N_DRAWS,
            prob_in_order=float(np.maximum(ahead, 1 - ahead).mean()),
            confidence_level=confidence_level,
        )
