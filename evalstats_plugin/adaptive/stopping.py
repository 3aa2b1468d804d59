"""Stop rules of adaptive tests, and the state of a session that they look at.

* `StdError`, `Reliability`, …: rules, each a callable that returns a reason to stop or None, given
  a `Standing`
* `Standing`, `Outlook`: estimates of a session so far
* `Answer`: an answered item
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np

from evalstats_plugin.adaptive.design import Draws, full_score
from evalstats_plugin.adaptive.scoring import (
    Belief,
    FullScore,
    Predictions,
    Shares,
    State,
    curves_of,
    laplace,
    predictions,
    project,
)
from evalstats_plugin.errors import SelectionError
from evalstats_plugin.stats.arrays import BoolArray, FloatArray


@dataclass(frozen=True, eq=False)
class Outlook:
    """Predictions that follow from a belief, computed on first use."""

    belief: Belief
    shares: Shares
    drawable: BoolArray
    """Items that may be drawn, shape (M,)."""
    draws: Draws | None
    """None where items are chosen."""
    confidence_level: float

    @cached_property
    def state(self) -> State:
        """Normal approximation of all abilities."""
        return laplace(self.belief)

    @cached_property
    def curves(self) -> FloatArray:
        """Expected score of each item by the bank's curves, shape (S, M)."""
        return curves_of(self.belief, self.state)

    @cached_property
    def full(self) -> FullScore:
        """Scores on all items."""
        return full_score(
            self.draws,
            self.belief,
            self.shares,
            self.state,
            self.drawable,
            confidence_level=self.confidence_level,
        )

    @cached_property
    def by_curves(self) -> FullScore:
        """Scores on all items by the bank's curves alone: of a model like those of the bank."""
        level = self.confidence_level
        return project(self.belief, self.shares, state=self.state, confidence_level=level)

    @cached_property
    def predicted(self) -> Predictions:
        """Expected scores of single items."""
        return predictions(self.belief, self.shares, self.state, self.full)


@dataclass(frozen=True, eq=False)
class Standing:
    """State of a session after n answers."""

    n: int
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
        reliability = 1 - (standing.std_error / standing.prior_sd) ** 2
        if standing.n < self.min_items or reliability < self.value:
            return None
        return f"reliability {reliability:.3f} ≥ {self.value:g}"


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


@dataclass(frozen=True)
class Clear:
    """It is clear whether the full score lies above or below a value, such as another model's.

    Holds for every model, whatever the bank says of it: the estimates by single draws are a
    martingale around the full score. For each side, bets that grow where the score is beyond the
    value: if it is not, their product has an expectation of at most 1 after any number of draws, so
    that it ever reaches 2/α with a probability of at most α/2 (Ville's inequality; [WR24]_).
    """

    score: float
    confidence_level: float = 0.95
    """1 - α."""
    name: str = ""

    def __post_init__(self) -> None:
        if not 0.5 < self.confidence_level < 1:
            msg = f"level {self.confidence_level:g} is not between .5 and 1: choose .95 or so"
            raise SelectionError(msg)

    def __call__(self, standing: Standing) -> str | None:
        """Reason to stop, or None."""
        outlook = standing.outlook
        if outlook.draws is None or not len(outlook.draws):
            return None
        steps, low, high = outlook.draws.bets(outlook.belief)
        # Items that cannot be drawn may be all wrong, or all right.
        most = self.score - float(outlook.shares.weights[~outlook.drawable, 0].sum())
        needed = np.log(2 / (1 - self.confidence_level))
        above = log_wealth(steps - self.score, low - self.score)
        below = log_wealth(most - steps, most - high)
        for side, wealth in (("above", above), ("below", below)):
            if wealth >= needed:
                what = self.name or f"a score of {self.score:g}"
                return f"{side} {what} at a level of {self.confidence_level:g}, whenever it stops"
        return None


def log_wealth(gains: FloatArray, least: FloatArray) -> float:
    """Log of what bets on gains above 0 have become, each by what was seen before it.

    Parameters
    ----------
    gains : shape (n,)
        With a mean of at most 0, given all before, unless the bets are right.
    least : shape (n,)
        The least that each could have been, below 0.

    Notes
    -----
    The share bet is the mean of earlier gains over their mean square, and at most half of what
    would ruin ([WR24]_, "aGRAPA").

    Examples
    --------
    >>> import numpy as np
    >>> round(log_wealth(np.full(40, 0.3), np.full(40, -1.0)), 2)
    5.45
    >>> log_wealth(np.zeros(3), -np.ones(3))
    0.0
    """
    before = np.arange(1, len(gains) + 1)
    mean = np.concatenate([[0.0], np.cumsum(gains)[:-1]]) / before
    square = np.concatenate([[0.0], np.cumsum(gains**2)[:-1]]) / before
    prior = 0.25 * np.mean(least[:1] ** 2) / before
    most = 0.5 / np.maximum(-least, 1e-9)
    bet = np.clip(mean / np.maximum(square + prior, 1e-12), 0.0, most)
    return float(np.log1p(bet * np.maximum(gains, least)).sum())


class Answer(NamedTuple):
    """An answered item, and the ability after it."""

    task: str
    item: str
    score: float
    trials: int
    drawn: bool
    """Whether the item was drawn by chance, with a known probability."""
    ability: float
    std_error: float
