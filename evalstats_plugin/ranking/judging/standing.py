"""Interim ranking of a judging session: ratings, their certainty, and the next pair to show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from scipy import special

from evalstats_plugin.errors import SelectionError, no_such
from evalstats_plugin.ranking.contests.contests import Contests
from evalstats_plugin.ranking.judging.session import Answer
from evalstats_plugin.ranking.next import (
    RULES,
    NextContest,
    all_pairs,
    expected_covariance,
    next_contests,
)
from evalstats_plugin.ranking.ratings.fit import normal_draws
from evalstats_plugin.ranking.thurstone.model import EPState
from evalstats_plugin.stats.arrays import FloatArray, IntArray
from evalstats_plugin.stats.steady import steady
from evalstats_plugin.stats.streams import stream

GOALS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {"order": ("order", "pairs in right order"), "best": ("thompson", "best item")}
)
"""Goals of a judge: the rule that reaches each soonest, and the name of its certainty."""

N_DRAWS = 2000
"""Draws for the probability to be the best, which has a standard error of at most .01."""
RECENT = 5
"""Most recent pairs, which are not shown again if there are enough others."""
MOST_STEPS = 5
"""Most changed answers that are updated one by one; for more, all are fitted anew."""


@dataclass(frozen=True, slots=True)
class Goal:
    """Certainty at which a judge has answered enough, and the rule that chooses pairs."""

    name: str = "order"
    """``"order"``: expected share of pairs in the right order; ``"best"``: P(best)."""
    wanted: float = 0.95
    """Certainty to reach, between 0 and 1."""
    rule: str = "order"
    """A name from `evalstats_plugin.ranking.next.RULES`."""

    @classmethod
    def of(cls, name: str, wanted: float, rule: str | None = None) -> Goal:
        """Check a goal. Default rule: the one that reaches the goal soonest.

        Raises
        ------
        SelectionError
            An unknown goal or rule; a certainty that cannot be reached.
        """
        if name not in GOALS:
            raise SelectionError(no_such("goal", name, GOALS, ", ".join(GOALS)))
        if rule is not None and rule not in RULES:
            raise SelectionError(no_such("rule", rule, RULES, ", ".join(RULES)))
        if not 0 < wanted < 1:
            msg = f"certainty is {wanted:g}: give one between 0 and 1, such as 0.95"
            raise SelectionError(msg)
        return cls(name, wanted, rule or GOALS[name][0])

    @property
    def words(self) -> str:
        """Name of the certainty, for progress lines."""
        return GOALS[self.name][1]


@dataclass(frozen=True, eq=False, kw_only=True)
class InterimRanking:
    """Ranking of the items by the answers so far, arrays of shape (n,)."""

    rating: FloatArray
    std_error: FloatArray
    low: FloatArray
    high: FloatArray
    expected_rank: FloatArray
    prob_best: FloatArray
    prob_in_order: float
    """Expected share of pairs in the right order; Kendall's τ is twice this minus 1."""
    confidence_level: float

    @property
    def order(self) -> IntArray:
        """Indices of the items, the best first."""
        return np.argsort(steady(self.expected_rank), kind="stable")

    def certainty(self, goal: str) -> float:
        """Certainty of a goal: P(best), or the expected share of pairs in the right order."""
        return float(self.prob_best.max()) if goal == "best" else self.prob_in_order


class _Normal(NamedTuple):
    """What is believed of the ratings."""

    rating: FloatArray
    covariance: FloatArray


class Standing:
    """Posterior of n items' ratings, updated answer by answer, and the choice of pairs.

    Thurstone's model by expectation propagation: see `EPState`. The width of a tie is estimated,
    too, and the advantage of being first where it is known which item was shown first.
    """

    def __init__(self, n: int, prior_variance: float, *, seed: int | None = None) -> None:
        self.n = n
        self._prior_variance = prior_variance
        self._known: tuple[Answer, ...] = ()
        self._rng = stream(seed, "pairs to judge")
        self._state = EPState(n, prior_variance, ordered=True)

    @property
    def position(self) -> tuple[float, float] | None:
        """Advantage of the item shown first, and its error; see `EPState.position`."""
        return self._state.position

    def update(self, given: Sequence[Answer]) -> None:
        """Add new answers to the posterior, and remove those that were undone."""
        given = tuple(given)
        pairs = zip(self._known, given, strict=False)
        same = next((k for k, (old, new) in enumerate(pairs) if old != new), None)
        kept = min(len(self._known), len(given)) if same is None else same
        gone, new = self._known[kept:], given[kept:]
        ordered = all(answer.placed for answer in given)
        if not given:
            self._state = EPState(self.n, self._prior_variance, ordered=True)
        elif len(gone) + len(new) > MOST_STEPS or ordered != self._state.ordered:
            contests = Contests.of(
                [a.first for a in given],
                [a.second for a in given],
                [a.share for a in given],
                players=self.n,
                weight=[a.weight for a in given],
                ordered=ordered,
            )
            self._state = EPState.of(contests, self._prior_variance)
        else:
            for answer in gone:
                self._state.remove(answer.first, answer.second, answer.share, answer.weight)
            for answer in new:
                self._state.add(answer.first, answer.second, answer.share, answer.weight)
        self._known = given

    def choose(
        self,
        rule: str,
        k: int = 1,
        skipped: Sequence[Answer] = (),
        waiting: Sequence[tuple[int, int]] = (),
    ) -> list[NextContest]:
        """Choose the next pairs; none if all were skipped.

        The item that was shown first less often comes first: of the two in this pair, else in all.

        Parameters
        ----------
        rule
            A name from `evalstats_plugin.ranking.next.RULES`.
        k
            Number of pairs chosen together, or fewer if fewer are left.
        skipped
            Pairs that are not shown again.
        waiting
            Pairs that were shown and are not answered yet.
        """
        n_pairs = self.n * (self.n - 1) // 2
        never = {answer.pair for answer in skipped} | {frozenset(pair) for pair in waiting}
        k = min(k, n_pairs - len(never))
        if k <= 0:
            return []
        recent = [answer.pair for answer in self._known[-RECENT:]]
        # At least k pairs must remain.
        spared = n_pairs - len(never) - k
        avoided = never | set(recent[len(recent) - min(spared, len(recent)) :])
        rating, covariance = self._state.rating, self._state.covariance
        for pair in waiting:
            covariance = expected_covariance(rating, covariance, pair, "probit")
        ahead = self._firsts(waiting)
        counts = ahead + ahead.T
        found = next_contests(
            _Normal(rating, covariance),
            rule,
            k,
            rng=self._rng,
            counts=counts,
            avoided=[(min(pair), max(pair)) for pair in avoided],
        )
        return [self._placed(pair, ahead) for pair in found]

    def _placed(self, pair: NextContest, ahead: FloatArray) -> NextContest:
        """Put the item first that was first less often, and count it in `ahead`."""
        i, j = pair.first, pair.second
        of_pair = ahead[i, j] - ahead[j, i]
        of_items = (ahead[i].sum() - ahead[:, i].sum()) - (ahead[j].sum() - ahead[:, j].sum())
        surplus = of_pair or of_items or self._rng.random() - 0.5
        first, second = (j, i) if surplus > 0 else (i, j)
        ahead[first, second] += 1
        return NextContest(first, second, pair.bits)

    def _firsts(self, waiting: Sequence[tuple[int, int]]) -> FloatArray:
        """Number of times that item i was shown first beside j, shape (n, n)."""
        pairs = [(a.first, a.second) for a in self._known]
        places = np.array([*pairs, *waiting], dtype=np.int64).reshape(-1, 2)
        cells = np.bincount(places[:, 0] * self.n + places[:, 1], minlength=self.n**2)
        return cells.reshape(self.n, self.n).astype(np.float64)

    def ranking(self, confidence_level: float = 0.95) -> InterimRanking:
        """Rank the items by the current posterior."""
        rating, covariance = self._state.rating, self._state.covariance
        sd = np.sqrt(np.diagonal(covariance))
        reach = special.ndtri((1 + confidence_level) / 2) * sd
        pairs = all_pairs(rating, covariance)
        ahead = special.ndtr(pairs.mean / np.sqrt(pairs.variance))
        beaten = np.zeros(self.n)
        beaten += np.bincount(pairs.second, ahead, self.n)
        beaten += np.bincount(pairs.first, 1 - ahead, self.n)
        draws = normal_draws(rating, covariance, (N_DRAWS,), self._rng)
        best = np.bincount(draws.argmax(axis=1), minlength=self.n)
        return InterimRanking(
            rating=rating,
            std_error=sd,
            low=rating - reach,
            high=rating + reach,
            expected_rank=1 + beaten,
            prob_best=best / N_DRAWS,
            prob_in_order=float(np.maximum(ahead, 1 - ahead).mean()),
            confidence_level=confidence_level,
        )
