"""Interim ranking of a judging session: ratings, their certainty, and the next pair to show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from scipy import special
from scipy.interpolate import RegularGridInterpolator

from evalstats_plugin.errors import SelectionError, check_known
from evalstats_plugin.ranking.judging.session import Answer
from evalstats_plugin.ranking.next import (
    RULES,
    NextContest,
    expected_covariance,
    next_contests,
    order_information,
)
from evalstats_plugin.ranking.ratings.fit import normal_draws, pairwise_differences
from evalstats_plugin.ranking.thurstone.local import LocalState
from evalstats_plugin.ranking.thurstone.model import EPState
from evalstats_plugin.stats.arrays import FloatArray, IntArray, steady
from evalstats_plugin.stats.streams import stream

GOALS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {"order": ("order", "pairs in right order"), "best": ("thompson", "best item")}
)
"""Goals of a judge: the rule that reaches each soonest, and the name of its certainty."""

N_DRAWS = 2000
"""Draws for the probability to be the best, which has a standard error of at most .01."""
RECENT = 5
"""Most recent pairs, which are not shown again if there are enough others."""
MOST_DENSE = 150
"""Most items whose ratings are believed with a covariance of every two."""
POLISHED = 50
"""A local state is polished after 1 / this of its number of items in answers."""
SUBSET = 64
"""Items among which rules other than "order" choose, where there are thousands."""
LEADERS, PAIRS_SEEN = 200, 20_000
"""Items that may be the best, and pairs whose order is looked at, where there are thousands."""
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
        check_known("goal", name, GOALS)
        if rule is not None:
            check_known("rule", rule, RULES)
        if not 0 < wanted < 1:
            raise SelectionError(f"certainty is {wanted:g}: give one between 0 and 1, such as 0.95")
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

    Thurstone's model, up to `MOST_DENSE` items by expectation propagation (`EPState`), beyond by
    its mode (`LocalState`). The width of a tie is estimated, too, and the advantage of being first
    where it is known which item was shown first.
    """

    def __init__(self, n: int, prior_variance: float, *, seed: int | None = None) -> None:
        self.n = n
        self._prior_variance = prior_variance
        self._given: tuple[Answer, ...] = ()
        self._rng = stream(seed, "pairs to judge")
        self._state: EPState | LocalState = self._of([], ordered=True)
        self._unpolished = 0
        self._shown = _Shown(n)

    @property
    def position(self) -> tuple[float, float] | None:
        """Advantage of the item shown first, and its error; see `EPState.position`."""
        return self._state.position

    def update(self, given: Sequence[Answer]) -> None:
        """Add new answers to the posterior, and remove those that were undone."""
        given = tuple(given)
        pairs = zip(self._given, given, strict=False)
        same = next((k for k, (old, new) in enumerate(pairs) if old != new), None)
        kept = min(len(self._given), len(given)) if same is None else same
        gone, new = self._given[kept:], given[kept:]
        ordered = all(answer.placed for answer in given)
        if len(gone) + len(new) > MOST_STEPS or ordered != self._state.ordered:
            self._state = self._of(given, ordered=ordered)
            self._unpolished = 0
        else:
            for answer in gone:
                self._state.add(answer.first, answer.second, answer.share, -answer.weight)
            for answer in new:
                self._state.add(answer.first, answer.second, answer.share, answer.weight)
            self._unpolished += len(gone) + len(new)
        if isinstance(self._state, LocalState) and self._unpolished > self.n // POLISHED:
            self._state.polish()
            self._unpolished = 0
        for answers, times in ((gone, -1), (new, 1)):
            for answer in answers:
                self._shown.add((answer.first, answer.second), times)
        self._given = given

    def _of(self, given: Sequence[Answer], *, ordered: bool) -> EPState | LocalState:
        """Return the posterior of these answers."""
        kind = LocalState if self.n > MOST_DENSE else EPState
        state = kind(self.n, self._prior_variance, ordered=ordered)
        for answer in given:
            state.record(answer.first, answer.second, answer.share, answer.weight)
        state.polish()
        return state

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
        recent = [answer.pair for answer in self._given[-RECENT:]]
        # At least k pairs must remain.
        spared = n_pairs - len(never) - k
        avoided = never | set(recent[len(recent) - min(spared, len(recent)) :])
        for pair in waiting:
            self._shown.add(pair)
        avoid = {(min(pair), max(pair)) for pair in avoided}
        if isinstance(self._state, LocalState):
            pairs = self._chosen_locally(self._state, rule, k, avoid)
        else:
            rating, covariance = self._state.rating, self._state.covariance
            for pair in waiting:
                covariance = expected_covariance(rating, covariance, pair, "probit")
            belief = _Normal(rating, covariance)
            pairs = next_contests(belief, rule, k, rng=self._rng, avoided=sorted(avoid))
        placed = [self._shown.placed(pair, self._rng) for pair in pairs]
        for pair in [*waiting, *((pair.first, pair.second) for pair in placed)]:
            self._shown.add(pair, -1)
        return placed

    def _chosen_locally(
        self, state: LocalState, rule: str, k: int, avoid: set[tuple[int, int]]
    ) -> list[NextContest]:
        """Choose among neighbours in the order; by other rules, among the items these are about."""
        if rule == "order":
            return self._informative(state, k, avoid)
        if rule == "random":
            among = self._rng.choice(self.n, SUBSET, replace=False)
        else:
            highest = state.rating + 2 * np.sqrt(state.variance)
            among = np.argsort(-highest, kind="stable")[:SUBSET]
        place = {item: at for at, item in enumerate(among.tolist())}
        inside = [(place[i], place[j]) for i, j in avoid if i in place and j in place]
        k = min(k, SUBSET * (SUBSET - 1) // 2 - len(inside))
        if k < 1:
            return []
        belief = _Normal(state.rating[among], np.diag(state.variance[among]))
        pairs = next_contests(belief, rule, k, rng=self._rng, avoided=inside)
        return [NextContest(int(among[p.first]), int(among[p.second]), p.bits) for p in pairs]

    def _informative(
        self, state: LocalState, k: int, avoid: set[tuple[int, int]]
    ) -> list[NextContest]:
        """Return the most informative pairs of neighbours, no two of which have a common item."""
        first, second = state.neighbours()
        mean = state.rating[first] - state.rating[second]
        variance = state.variance[first] + state.variance[second]
        ahead = special.ndtr(mean / np.sqrt(variance))
        # Nearly in the order of the information, and fast.
        quick = ahead * (1 - ahead) * variance / (variance + 1.6)
        most = min(len(quick), len(avoid) + max(256, 16 * k))
        best = np.argpartition(-quick, most - 1)[:most]
        bits = order_information(mean[best], variance[best], "probit")
        chosen: list[NextContest] = []
        used: set[int] = set()
        for at in np.argsort(-steady(bits), kind="stable").tolist():
            i, j = int(first[best[at]]), int(second[best[at]])
            if i in used or j in used or (min(i, j), max(i, j)) in avoid:
                continue
            chosen.append(NextContest(min(i, j), max(i, j), float(bits[at])))
            used |= {i, j}
            if len(chosen) == k:
                break
        return chosen

    def ranking(self, confidence_level: float = 0.95) -> InterimRanking:
        """Rank the items by the current posterior."""
        state = self._state
        if isinstance(state, LocalState):
            sd = np.sqrt(state.variance)
            expected_rank, prob_best, in_order = _among_thousands(state.rating, sd, self._rng)
        else:
            sd = np.sqrt(np.diagonal(state.covariance))
            expected_rank, prob_best, in_order = _among_few(state, self._rng)
        reach = special.ndtri((1 + confidence_level) / 2) * sd
        return InterimRanking(
            rating=state.rating, std_error=sd, low=state.rating - reach, high=state.rating + reach,
            expected_rank=expected_rank, prob_best=prob_best, prob_in_order=in_order,
            confidence_level=confidence_level,
        )  # fmt: skip


class _Shown:
    """How often which of two items was shown first."""

    def __init__(self, n: int) -> None:
        self._times: Counter[tuple[int, int]] = Counter()
        self._surplus = np.zeros(n)
        """Times each item was shown first, less times it was shown second."""

    def add(self, pair: tuple[int, int], times: int = 1) -> None:
        self._times[pair] += times
        self._surplus[list(pair)] += times, -times

    def placed(self, pair: NextContest, rng: np.random.Generator) -> NextContest:
        """Put the item first that was first less often: of the two in this pair, else in all."""
        i, j = pair.first, pair.second
        of_pair = self._times[i, j] - self._times[j, i]
        surplus = of_pair or (self._surplus[i] - self._surplus[j]) or rng.random() - 0.5
        first, second = (j, i) if surplus > 0 else (i, j)
        self.add((first, second))
        return NextContest(first, second, pair.bits)


def _among_few(state: EPState, rng: np.random.Generator) -> tuple[FloatArray, FloatArray, float]:
    """Expected ranks, P(best) and share in order, by the covariance of every two items."""
    n = state.players
    mean, variance = pairwise_differences(state.rating, state.covariance)
    behind = special.ndtr(-mean / np.sqrt(variance))
    draws = normal_draws(state.rating, state.covariance, (N_DRAWS,), rng)
    best = np.bincount(draws.argmax(axis=1), minlength=n)
    of_pairs = behind[np.triu_indices(n, 1)]
    # Half for the item itself, whose difference is 0.
    expected_rank = np.asarray(0.5 + behind.sum(axis=1), dtype=np.float64)
    return expected_rank, best / N_DRAWS, float(np.maximum(of_pairs, 1 - of_pairs).mean())


def _among_thousands(
    rating: FloatArray, sd: FloatArray, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray, float]:
    """Expected ranks, P(best) and share in order of many items, which count as independent."""
    leaders = np.argsort(-(rating + 4 * sd), kind="stable")[:LEADERS]
    draws = rating[leaders] + sd[leaders] * rng.standard_normal((N_DRAWS, len(leaders)))
    prob_best = np.zeros(len(rating))
    prob_best[leaders] = np.bincount(draws.argmax(axis=1), minlength=len(leaders)) / N_DRAWS
    i, j = rng.integers(len(rating), size=(2, PAIRS_SEEN))
    i, j = i[i != j], j[i != j]
    ahead = special.ndtr(np.abs(rating[i] - rating[j]) / np.hypot(sd[i], sd[j]))
    # One more than the expected number of better items, interpolated between 96 × 5 points.
    at = np.linspace(float(rating.min()), float(rating.max()), 96)
    widths = np.linspace(float(sd.min()), max(float(sd.max()), float(sd.min()) + 1e-9), 5)
    better = np.empty((len(at), len(widths)))
    for k, width in enumerate(widths.tolist()):
        share: FloatArray = special.ndtr((rating - at[:, None]) / np.hypot(sd, float(width)))
        better[:, k] = share.sum(axis=1)
    grid = RegularGridInterpolator((at, widths), better)
    # An item is not better than itself, which counted as half.
    expected_rank = np.asarray(grid(np.stack([rating, sd], axis=1)) + 0.5, dtype=np.float64)
    return expected_rank, prob_best, float(ahead.mean())
