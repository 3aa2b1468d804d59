"""Stop rules of adaptive tests, and the state of a session that they look at.

* `StdError`, `Reliability`, …: rules, each a callable that returns a reason to stop or None, given
  a `Standing`
* `Standing`, `Outlook`: estimates of a session so far
* `Trace`: estimates after each answer, computed on request
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np

from evalstats_plugin.adaptive.scoring import (
    Belief,
    FullScore,
    Predicted,
    Scored,
    Shares,
    State,
    laplace,
    predict,
)
from evalstats_plugin.errors import SelectionError
from evalstats_plugin.stats.arrays import FloatArray


class ScoreEstimate(NamedTuple):
    """A score on all items of the benchmark, or of a task of it."""

    estimate: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Outlook:
    """Predictions that follow from a belief, computed on first use."""

    belief: Belief
    shares: Shares
    insured: bool
    """See `scoring.predict`."""
    confidence_level: float

    @cached_property
    def state(self) -> State:
        """Normal approximation of ability and misfit factors."""
        return laplace(self.belief)

    @cached_property
    def predicted(self) -> Predicted:
        """Scores on all items, and how well the answers fit the bank."""
        return predict(
            self.belief,
            self.shares,
            insured=self.insured,
            confidence_level=self.confidence_level,
        )

    @property
    def full(self) -> FullScore:
        """Scores on all items."""
        return self.predicted.full

    def scores(self) -> dict[str, ScoreEstimate]:
        """Scores of one session by task."""
        limits = zip(*(values[0].tolist() for values in self.full[:3]), strict=True)
        return {
            name: ScoreEstimate(*each) for name, each in zip(self.shares.names, limits, strict=True)
        }


@dataclass(frozen=True, eq=False)
class Standing:
    """State of a session after n answers."""

    n: int
    ability: float
    std_error: float
    """Posterior standard deviation; of several abilities the largest."""
    prior_sd: float
    cost: float
    """Cost of all items asked."""
    seconds: float
    outlook: Outlook
    """Of this one session."""
    information: float
    """Log determinant of the abilities' posterior precision, less that of their prior."""


class StopRule(Protocol):
    """Returns the reason to stop, or None to go on."""

    def __call__(self, standing: Standing) -> str | None:
        """Reason to stop, or None."""
        ...


@dataclass(frozen=True)
class _Threshold:
    """Base of rules with one positive threshold, checked from `min_items` answers on."""

    value: float
    min_items: int = 5

    def __post_init__(self) -> None:
        if not 0 < self.value < np.inf:
            name = type(self).__name__
            raise SelectionError(f"{name}({self.value:g}) is not above 0: choose a larger number")


@dataclass(frozen=True)
class StdError(_Threshold):
    """The standard error of the ability is small enough."""

    def __call__(self, standing: Standing) -> str | None:
        """Reason to stop, or None."""
        if standing.n < self.min_items or standing.std_error > self.value:
            return None
        return f"std_error {standing.std_error:.3f} ≤ {self.value:g}"


@dataclass(frozen=True)
class Reliability(_Threshold):
    """The share of variance that is not error, ``1 - SE² / prior variance``, is large enough."""

    def __post_init__(self) -> None:
        if not 0 < self.value < 1:
            msg = f"Reliability({self.value:g}) is not between 0 and 1: choose one such as 0.9"
            raise SelectionError(msg)

    def __call__(self, standing: Standing) -> str | None:
        """Reason to stop, or None."""
        found = 1 - (standing.std_error / standing.prior_sd) ** 2
        if standing.n < self.min_items or found < self.value:
            return None
        return f"reliability {found:.3f} ≥ {self.value:g}"


@dataclass(frozen=True)
class Information(_Threshold):
    """The answers have told enough of the abilities: the log determinant of their precision.

    Of one ability, ``log(prior variance / SE²)``. Each ability with reliability r adds
    ``-log(1 - r)``: 2.3 at .9.
    """

    def __call__(self, standing: Standing) -> str | None:
        """Reason to stop, or None."""
        if standing.n < self.min_items or standing.information < self.value:
            return None
        return f"information {standing.information:.2f} ≥ {self.value:g}"


@dataclass(frozen=True)
class Items(_Threshold):
    """So many items have been asked."""

    def __call__(self, standing: Standing) -> str | None:
        """Reason to stop, or None."""
        return f"{standing.n} items asked" if standing.n >= self.value else None


@dataclass(frozen=True)
class ScoreWidth(_Threshold):
    """The interval of the score on the full benchmark is narrow enough."""

    def __call__(self, standing: Standing) -> str | None:
        """Reason to stop, or None."""
        if standing.n < self.min_items:
            return None
        full = standing.outlook.full
        width = float(full.high[0, 0] - full.low[0, 0])
        if width > self.value:
            return None
        return f"interval of the full score {width:.3f} wide ≤ {self.value:g}"


@dataclass(frozen=True)
class Cost(_Threshold):
    """The budget is spent; `AdaptiveSession.next` gives no item that would exceed it."""

    def __call__(self, standing: Standing) -> str | None:
        """Reason to stop, or None."""
        if standing.cost < self.value:
            return None
        return f"cost {standing.cost:g} ≥ budget {self.value:g}"


@dataclass(frozen=True)
class Seconds(_Threshold):
    """The time limit has passed."""

    def __call__(self, standing: Standing) -> str | None:
        """Reason to stop, or None."""
        if standing.seconds < self.value:
            return None
        return f"{standing.seconds:.0f} s ≥ {self.value:g} s"


LIMITS = (Items, Cost, Seconds)
"""Rules that say how much may be asked, not how much is known."""


@dataclass(frozen=True)
class Clear:
    """It is clear whether the ability lies above or below a value, such as another model's.

    For each side: the likelihood averaged over the prior's abilities on that side, over its maximum
    on the other side. At any true ability of the other side its expectation is at most 1 after any
    number of answers, however the items were chosen, so that it ever reaches 2/α with a
    probability of at most α/2 (Ville's inequality; universal inference [WRB20]_): whenever one
    stops, a wrong side is called in at most α of all tests of models that fit the bank.
    """

    ability: float
    confidence_level: float = 0.95
    """1 - α."""
    name: str = ""

    def __post_init__(self) -> None:
        if not 0.5 < self.confidence_level < 1:
            msg = f"level {self.confidence_level:g} is not between .5 and 1: choose .95 or so"
            raise SelectionError(msg)

    def __call__(self, standing: Standing) -> str | None:
        """Reason to stop, or None."""
        belief = standing.outlook.belief
        above, step = belief.nodes > self.ability, belief.nodes[1] - belief.nodes[0]
        for side, here in (("above", above), ("below", ~above)):
            # The other side with the node next to the value: the maximum may lie between.
            other = ~here | (np.abs(belief.nodes - self.ability) <= step)
            if not here.any() or not other.any():
                continue
            prior = np.exp(belief.log_prior) * here
            likelihood = belief.log_likelihood[0]
            top = float(likelihood.max())
            mean = prior @ np.exp(likelihood - top) / prior.sum()
            against = float(np.exp(likelihood[other] - top).max())
            if mean * (1 - self.confidence_level) >= 2 * against:
                what = self.name or f"ability {self.ability:g}"
                return f"{side} {what} at a level of {self.confidence_level:g}, whenever it stops"
        return None


class Answer(NamedTuple):
    """An answered item, and the ability after it."""

    task: str
    item: str
    score: float
    trials: int
    random: bool
    """Whether the item was drawn at random."""
    scored: Scored
    log_likelihood: FloatArray
    """On the grid of abilities, shape (1, G)."""


class Step(NamedTuple):
    """One line of a session's trace."""

    n: int
    task: str
    item: str
    score: float
    trials: float
    random: bool
    ability: float
    std_error: float
    full_score: float
    low: float
    high: float


class Trace:
    """Answers of a session in order, and the estimates after each."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self._steps: list[Step] = []

    def steps(self, last: Outlook) -> list[Step]:
        """Return the steps so far; `last` is the outlook after the last answer."""
        for number in range(len(self._steps), len(self.answers)):
            outlook = last if number + 1 == len(self.answers) else self._before(last, number)
            answer = self.answers[number]
            ability, error = (float(value[0]) for value in answer.scored)
            full = outlook.full
            score = (float(values[0, 0]) for values in full[:3])
            self._steps.append(Step(number + 1, *answer[:5], ability, error, *score))
        return self._steps

    def _before(self, last: Outlook, number: int) -> Outlook:
        """Outlook after an earlier answer."""
        n, belief = number + 1, last.belief
        earlier = replace(
            belief,
            log_likelihood=self.answers[number].log_likelihood,
            places=belief.places[:, :n],
            right=belief.right[:, :n],
            trials=belief.trials[:, :n],
        )
        return replace(last, belief=earlier)
