"""Plans for adaptive tests: the options of a command line or task, checked; and what they cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import isfinite
from numbers import Integral, Real
from pathlib import Path
from time import monotonic
from types import MappingProxyType

import numpy as np

from evalstats_plugin.adaptive.bank import ALL_TASKS, ItemBank
from evalstats_plugin.adaptive.curves import respond
from evalstats_plugin.adaptive.selection import DESIGN, DRAWING, INFORMATION
from evalstats_plugin.adaptive.session import AdaptiveSession
from evalstats_plugin.adaptive.stopping import (
    Clear,
    Cost,
    Information,
    Items,
    Reliability,
    ScoreWidth,
    Seconds,
    StdError,
    StopRule,
)
from evalstats_plugin.errors import DesignError, SelectionError, check_known, counted, few, no_such
from evalstats_plugin.stats.streams import stream

STD_ERROR, SCORE_WIDTH = 0.3, 0.2
"""Where to stop by default: a standard error of the ability (reliability .91 for abilities of
variance 1), or a width of the interval of the full score."""

COMPARE = "compare:"
"""Goal of a comparison, before the model's name."""

GOALS: Mapping[str, str] = MappingProxyType({"score": DESIGN, "ability": INFORMATION})
"""Other goals, and the rule that reaches each soonest."""

_STOP_RULES: Mapping[str, Callable[[float], StopRule]] = MappingProxyType(
    {
        "stop_at": StdError,
        "reliability": Reliability,
        "information": Information,
        "score_width": ScoreWidth,
        "max_items": Items,
        "budget": Cost,
        "max_seconds": Seconds,
    }
)
"""Rules of `Plan` that are a number."""

_POSITIVE = (*_STOP_RULES, "batch")

_SECONDS = 1.5
"""Time limit of a forecast for each model."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Options of an adaptive test; the first stop rule that holds ends it.

    Raises
    ------
    SelectionError
        A value that is not a number, or out of range, such as a budget of 0.
    """

    bank: ItemBank | str | Path
    stop_at: float | None = None
    """Standard error of the ability; `STD_ERROR` for that goal if no stop rule is given."""
    reliability: float | None = None
    """Share of the ability's variance that is not error."""
    information: float | None = None
    """Log determinant of the precision of the abilities; see `stopping.Information`."""
    score_width: float | None = None
    """Width of the interval of the full score; `SCORE_WIDTH` if no stop rule is given."""
    max_items: int | None = None
    budget: float | None = None
    """Total cost, in the bank's unit."""
    max_seconds: float | None = None
    goal: str | None = None
    """What the test is for: ``"score"``, the default; ``"ability"``; or ``"compare:MODEL"`` with a
    calibrated model, until it is clear whose full score is higher (see `stopping.Clear`)."""
    rule: str = "auto"
    batch: int = 1
    """Number of items asked together."""
    balance: bool = False
    """Whether tasks get the shares they have in the bank."""
    confidence_level: float = 0.95
    seed: int = 0
    metric: str | None = None
    """Metric to score items by; the bank's own by default."""
    state: str | Path | None = None
    """File of answers, to resume an interrupted test."""

    def __post_init__(self) -> None:
        for name in (*_POSITIVE, "confidence_level", "seed"):
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, Real):
                raise SelectionError(f"{name} {value!r} is not a number: give a number")
            share = name in ("reliability", "confidence_level")
            if share and not 0 < float(value) < 1:
                msg = f"{name} {value:g} is not between 0 and 1: choose one such as 0.9"
                raise SelectionError(msg)
            if name in _POSITIVE and not 0 < float(value) < float("inf"):
                raise SelectionError(f"{name} {value:g} is not above 0: choose a larger one")
        if not isinstance(self.seed, Integral) or self.seed < 0:
            raise SelectionError(f"seed {self.seed!r} is not a whole number from 0 on: give one")
        if self.goal is not None and not self.goal.startswith(COMPARE):
            check_known("goal", self.goal, (*GOALS, f"{COMPARE}MODEL"))

    @classmethod
    def of(cls, named: Mapping[str, object]) -> Plan:
        """Make a plan from options that a user typed by name.

        Raises
        ------
        SelectionError
            An unknown option.
        """
        names = [field.name for field in fields(cls)]
        for name in named:
            check_known("option", name, names)
        # Numbers are checked by the plan itself.
        return cls(**named)  # type: ignore[arg-type]

    def load(self) -> ItemBank:
        """Read the bank and check that the plan suits it."""
        bank = self.bank if isinstance(self.bank, ItemBank) else ItemBank.load(self.bank)
        bank.require_usable()
        self.rules(bank)
        return bank

    def rules(self, bank: ItemBank) -> tuple[StopRule, ...]:
        """Return the stop rules of one model's test.

        Raises
        ------
        SelectionError
            A model that is not in the bank.
        DesignError
            A budget for a bank without costs, or a comparison with one of several abilities.
        """
        given = [(made, getattr(self, name)) for name, made in _STOP_RULES.items()]
        stop_rules = [made(value) for made, value in given if value is not None]
        if self.budget is not None and bank.cost is None:
            msg = f"budget {self.budget:g} has no meaning, because the bank has no costs of items"
            raise DesignError(f"{msg}: limit the number of items instead")
        if self.goal is not None and self.goal.startswith(COMPARE):
            rival = self.goal.removeprefix(COMPARE)
            if rival not in bank.models:
                raise SelectionError(no_such("model", rival, bank.models, few(bank.models)))
            if self.rule not in ("auto", *DRAWING):
                msg = f"rule {self.rule} chooses items, and a comparison needs them drawn by chance"
                raise SelectionError(f"{msg}: leave the rule out")
            score = float(bank.scores[bank.models.index(rival)])
            if not isfinite(score):
                msg = f"the score of {rival} is of other items than those tested here"
                raise DesignError(f"{msg}: make a bank of these items alone")
            stop_rules.append(Clear(score, self.confidence_level, rival))
        if stop_rules:
            return tuple(stop_rules)
        return (StdError(STD_ERROR) if self.goal == "ability" else ScoreWidth(SCORE_WIDTH),)

    def metrics(self, bank: ItemBank) -> tuple[str, ...]:
        """Return the metrics that may score an item: the plan's own, or those of the bank."""
        if self.metric is not None:
            return (self.metric,)
        return tuple(str(name) for name in bank.provenance.get("metrics", ()))

    def session(self, bank: ItemBank, answers: Sequence[str] = ()) -> AdaptiveSession:
        """Begin a session, or resume one from its answers."""
        by_goal = GOALS.get(self.goal or "", "auto")
        return AdaptiveSession.resume(
            bank,
            answers,
            rule=by_goal if self.rule == "auto" else self.rule,
            stop=self.rules(bank),
            batch=self.batch,
            balance=self.balance,
            confidence_level=self.confidence_level,
            rng=self.seed,
        )


def forecast(plan: Plan, bank: ItemBank) -> str:
    """Return a sentence on the tests of three simulated models: items, cost, width of the score.

    Their abilities are the mean of the calibrated models and one standard deviation either side;
    answers are drawn from the bank's curves.
    """
    rng = stream(plan.seed, "forecast of a test")
    counts, costs, unfinished = list[int](), list[float](), list[int]()
    widths = list[float]()
    for ability in bank.ability_mean + bank.ability_sd * np.array([-1.0, 0.0, 1.0]):
        session = replace(plan, max_seconds=None).session(bank)
        chances = respond(bank.items, np.array([[ability]])).probability[0]
        right = rng.random(len(bank)) < chances
        until = monotonic() + _SECONDS
        while session.stopped is None and monotonic() < until:
            for place in session.next(1).tolist():
                session.record(place, float(right[place]))
        unfinished += [session.n] if session.stopped is None else []
        counts.append(session.n)
        costs.append(session.cost)
        score = session.full_score()[ALL_TASKS]
        widths.append(score.high - score.low)
    text = f"{_span(counts)} of {counted(len(bank), 'item')}"
    if unfinished:
        text = f"more than {max(unfinished):,} of {counted(len(bank), 'item')}"
    if bank.cost is not None and not unfinished:
        text += f", cost {_span(costs)} of {float(bank.cost.sum()):,.0f} for all"
    if not unfinished:
        text += f", interval of the score {_span(widths, '.2f')} wide"
    return f"{text} (tests of three models like those of the bank)"


def _span(values: list[int] | list[float], form: str = ",.0f") -> str:
    low, high = format(min(values), form), format(max(values), form)
    return low if low == high else f"{low} to {high}"
