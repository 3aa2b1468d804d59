"""What was believed after each answer of a session, and what follows when somebody asks.

The score on all items looks at every item of the bank: it is computed where a rule, a stopping rule
or a reader asks for it, and is the same number whenever that is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from evalstats_plugin.adaptive.projection import FullScore, Shares, State, laplace, project
from evalstats_plugin.adaptive.scoring import Belief, Scored
from evalstats_plugin.stats.interval import FloatArray


class ScoreEstimate(NamedTuple):
    """A score on all items of the benchmark, or of a task of it."""

    estimate: float
    low: float
    high: float


class Step(NamedTuple):
    """One line of a session's trace."""

    n: int
    task: str
    item: str
    score: float
    trials: float
    ability: float
    std_error: float
    full_score: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Outlook:
    """What a belief says beyond the ability."""

    belief: Belief
    shares: Shares
    confidence_level: float

    @cached_property
    def state(self) -> State:
        """Of ability and misfit factors."""
        return laplace(self.belief)

    @cached_property
    def full(self) -> FullScore:
        """Scores on all items."""
        level = self.confidence_level
        return project(self.belief, self.shares, state=self.state, confidence_level=level)

    def scores(self) -> dict[str, ScoreEstimate]:
        """Scores of one session by task."""
        limits = zip(*(values[0].tolist() for values in self.full[:3]), strict=True)
        return {
            name: ScoreEstimate(*each) for name, each in zip(self.shares.names, limits, strict=True)
        }


class Answer(NamedTuple):
    """An item answered, and the ability after it."""

    task: str
    item: str
    score: float
    trials: int
    scored: Scored
    log_likelihood: FloatArray
    """Of the abilities on the grid, shape (1, G)."""


class Trace:
    """Answers of a session in order, and the steps they make."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self._steps: list[Step] = []

    def steps(self, last: Outlook) -> list[Step]:
        """Steps so far; `last` is what the last answer left."""
        for number in range(len(self._steps), len(self.answers)):
            outlook = last if number + 1 == len(self.answers) else self._before(last, number)
            answer = self.answers[number]
            ability, error = (float(value[0]) for value in answer.scored)
            full = outlook.full
            score = (float(values[0, 0]) for values in full[:3])
            self._steps.append(Step(number + 1, *answer[:4], ability, error, *score))
        return self._steps

    def _before(self, last: Outlook, number: int) -> Outlook:
        """What was believed when fewer answers were there."""
        n, belief = number + 1, last.belief
        earlier = replace(
            belief,
            log_likelihood=self.answers[number].log_likelihood,
            places=belief.places[:, :n],
            right=belief.right[:, :n],
            trials=belief.trials[:, :n],
        )
        return replace(last, belief=earlier)
