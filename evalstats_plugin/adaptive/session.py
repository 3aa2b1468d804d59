"""The adaptive test of one model: `AdaptiveSession` and its answers on disk.

* `AdaptiveSession`: gives the next items, records answers, estimates, and stops
* `AnswersFile`: answers on disk as soon as they are in, so that a killed run can be resumed
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import sys
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from math import ceil
from pathlib import Path
from time import monotonic
from typing import Any, ClassVar, NamedTuple, TypedDict, Unpack, cast

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.adaptive.bank import ALL_TASKS, ItemBank
from evalstats_plugin.adaptive.design import Draws
from evalstats_plugin.adaptive.scoring import (
    Abilities,
    AbilityEstimate,
    Belief,
    Predictions,
    Scored,
    Shares,
    abilities,
    eap,
)
from evalstats_plugin.adaptive.selection import (
    DRAWING,
    RANDOM,
    Candidates,
    Tables,
    Targets,
    drawn_from,
    pick,
    rule_for,
    worth,
)
from evalstats_plugin.adaptive.stopping import Answer, Cost, Items, Outlook, Standing, StopRule
from evalstats_plugin.data.responses import DrawnItems, difference_error
from evalstats_plugin.data.results import Drawable, finite
from evalstats_plugin.errors import DesignError, LogError, SelectionError, WriteError
from evalstats_plugin.stats.arrays import IntArray
from evalstats_plugin.stats.interval import normal_quantile
from evalstats_plugin.stats.streams import stream

EXHAUSTED = "no item left to ask"
"""Reason to stop when every item has been asked."""

_FAR = 2.6
"""Standard errors between the score by design and that by the curves at which a note says so."""

_NEAR = 0.5
"""Standard errors that the estimate by the curves may lie from that by design."""

NO_MONEY = "what is left of the budget does not buy the item drawn"
"""Reason to stop."""

_MOST_TRIALS = 2**53
"""Largest number of epochs that a float holds exactly."""

_KEY = "evalstats_adaptive"
"""Key of the format version in the header of an answers file."""

_FACTS = "facts"

_OF_SEVERAL = ("abilities", "ability_covariance")
"""Fields that records of one ability do not have."""


class ScoreEstimate(NamedTuple):
    """A score on all items of the benchmark, or of a task of it."""

    estimate: float
    low: float
    high: float


class Settings(TypedDict, total=False):
    """How a session chooses, scores and stops; see `AdaptiveSession` for their meaning."""

    rule: str
    stop: Sequence[StopRule]
    batch: int
    balance: bool
    confidence_level: float


@dataclass(frozen=True, kw_only=True)
class SessionResult:
    """Estimates of an adaptive test."""

    n_items: int
    """Items answered."""
    n_in_bank: int
    stopped: str | None
    """Reason to stop; None if the test goes on."""
    rule: str
    balanced: bool
    """Whether every task got its share of the items."""
    ability: float
    """Of several, the items' main direction."""
    std_error: float | None
    low: float
    high: float
    confidence_level: float
    abilities: tuple[AbilityEstimate, ...] = ()
    """Of a bank of several abilities; empty for one."""
    ability_covariance: tuple[tuple[float, ...], ...] = ()
    """Of `abilities`."""
    full_score: ScoreEstimate
    """By design where items were drawn, else by the bank's curves."""
    full_score_by_curves: float
    """By the curves, moved to within half a standard error of the score by design."""
    full_score_by_task: Mapping[str, ScoreEstimate]
    """Empty for a single task."""
    cost: float | None
    n_drawn: int
    """Items that were drawn by chance, with known probabilities."""
    curves_z: float | None
    """Score by the bank's curves minus that by design, in standard errors of the latter; None
    where items were chosen."""
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        by_task = {name: each._asdict() for name, each in self.full_score_by_task.items()}
        plain = {"full_score": self.full_score._asdict(), "full_score_by_task": by_task}
        entries = vars(self) | plain | {"notes": list(self.notes)}
        if not self.abilities:
            return {name: value for name, value in entries.items() if name not in _OF_SEVERAL}
        covariance = [list(row) for row in self.ability_covariance]
        return entries | {
            "abilities": [asdict(each) for each in self.abilities],
            "ability_covariance": covariance,
        }


class AdaptiveSession(Drawable):
    """An adaptive test of one model.

    Ask the items of `next` and report their answers with `record`, until `stopped` gives a reason.
    Items that were given out and not answered yet are not given out again.

    Parameters
    ----------
    bank
        Calibrated items; see `ItemBank.matched` to keep those that a harness has.
    rule
        A name of `selection.RULE_NAMES`. ``"auto"`` is ``"design"``: items are drawn with known
        probabilities, and the full score is right for every model (`design`). ``"information"``
        chooses items: it tells more of the ability, and the full score is that of a model like
        the bank's.
    stop
        Rules of `stopping`; the first that holds stops. Without any, all items are asked.
    batch
        How many items `next` gives, chosen jointly.
    balance
        Whether every task gets the share of the items that it has in the bank.
    confidence_level
        Of the intervals.

    Raises
    ------
    DesignError
        The bank has no item that may be asked.
    SelectionError
        No such rule; a batch below 1.
    """

    drawn_as: ClassVar[tuple[str, ...]] = ("trace",)

    def __init__(
        self,
        bank: ItemBank,
        *,
        rule: str = "auto",
        stop: Sequence[StopRule] = (),
        batch: int = 1,
        balance: bool = False,
        confidence_level: float = 0.95,
        rng: np.random.Generator | int | None = None,
    ) -> None:
        if batch < 1:
            raise SelectionError(f"a batch of {batch} items asks nothing: choose 1 or more")
        self.rule = rule_for(rule)
        bank = bank.drawable() if self.rule in DRAWING else bank
        bank.require_usable()
        self.bank, self.confidence_level = bank, confidence_level
        self.batch = batch
        self.answers: list[Answer] = []
        """Answers in order, with the ability after each."""
        self._stop = tuple(stop)
        self._targets = Targets.of(bank) if balance else None
        self._rng = stream(rng, "adaptive test")
        self._shares = Shares.of(bank)
        self._drawable = bank.usable.copy()
        self._draws: Draws | None = None
        if self.rule in DRAWING:
            of_drawn = self._shares.of_items(self._drawable)
            self._draws = Draws(of_drawn, alike=self.rule == RANDOM, targets=self._targets)
        self._drawn: dict[int, Drawn] = {}
        self._out: NDArray[np.bool_] = np.zeros(len(bank), dtype=np.bool_)
        self._lost = np.zeros_like(self._out)
        self._began = monotonic()
        self.cost = 0.0
        self.stopped: str | None = None
        self._believe(Belief.prior(bank))

    def next(self, k: int | None = None, *, among: NDArray[np.bool_] | None = None) -> IntArray:
        """Give the indices in the bank of the items to ask now: `k`, by default a batch.

        Fewer if a limit on the number of items or the budget allows no more; none once the session
        has stopped. `among`, a mask of shape (M,), restricts the choice to items that can be asked
        at this moment: what is drawn from fewer items than are open counts as chosen.
        """
        if k is not None and k < 1:
            return np.zeros(0, dtype=np.int64)
        bounds = [ceil(rule.value) for rule in self._stop if isinstance(rule, Items)]
        out = int(self._out.sum())
        wanted = min([self.batch if k is None else k, *(bound - out for bound in bounds)])
        choose = self._choose(among) if self._draws is None else self._draw(among)
        places: list[int] = []
        while len(places) < wanted and self.stopped is None and (place := next(choose, -1)) >= 0:
            places.append(place)
            self._out[place] = True
        waiting = int(self._out.sum()) > self.n
        if not places and among is None and self.stopped is None and not waiting:
            self.stopped = NO_MONEY if self._left.any() else EXHAUSTED
        return np.array(places, dtype=np.int64)

    def _choose(self, among: NDArray[np.bool_] | None) -> Iterator[int]:
        """Choose items by their worth, each in expectation of the answers to those before."""
        outlook = self._outlook
        candidates = Candidates(outlook.belief, Tables.of(self.bank), lambda: outlook.state)
        while True:
            open_items = self._left & self._affordable()
            open_items = open_items if among is None else open_items & among
            if not open_items.any():
                return
            allowed = open_items[None]
            if self._targets is not None:
                allowed = self._targets.allowed(allowed, self._out[None])
            chosen = pick(worth(candidates), allowed)
            yield int(chosen[0])
            candidates = candidates.expecting(chosen)

    def _draw(self, among: NDArray[np.bool_] | None) -> Iterator[int]:
        """Draw items by chance."""
        draws = cast("Draws", self._draws)
        while True:
            open_items = self._left
            narrow = among is not None and bool((open_items & self._drawable & ~among).any())
            open_items = open_items if among is None else open_items & among
            if not open_items.any():
                return
            ahead = draws.ahead(self.belief, self._outlook.curves, open_items[None])
            place = drawn_from(ahead.probability, self._rng)
            if not self._affordable()[place[0]]:
                return
            if not narrow and self._drawable[place[0]]:
                draws.record(self.belief, ahead, place, self._unanswered()[None])
                chance = float(ahead.probability[0, place[0]])
                self._drawn[int(place[0])] = Drawn(len(draws) - 1, chance, self.n)
            yield int(place[0])

    def record(self, place: int, score: float, trials: int = 1) -> str | None:
        """Record the answer to an item; return why the session stops, or None.

        Parameters
        ----------
        place
            Index in the bank; it need not be one that `next` gave.
        score
            Mean over the item's epochs, in [0, 1].
        trials
            Number of epochs.

        Raises
        ------
        DesignError
            The item has been answered already, or the score lies outside [0, 1].
        """
        if not 0 <= place < len(self.bank):
            raise ValueError(f"place {place} is not in the bank of {len(self.bank)} items")
        key = str(self.bank.tasks[place]), str(self.bank.item_ids[place])
        named = " / ".join(key)
        if place in self.belief.places[0]:
            raise DesignError(f"item {named} has been answered already: record each item once")
        if not 0 <= score <= 1 or trials < 1:
            msg = f"item {named} has the score {score} over {trials} epochs, which is not possible"
            raise DesignError(f"{msg}: scale the metric to 0 to 1, and run 1 epoch or more")
        self._out[place] = True
        self._believe(
            self.belief.answered(
                np.array([[place]]), np.array([[score * trials]]), np.array([[float(trials)]])
            )
        )
        self.cost += 0.0 if self.bank.cost is None else float(self.bank.cost[place]) * trials
        drawn = place in self._drawn
        estimates = self.ability, self.std_error
        self.answers.append(Answer(*key, float(score), trials, drawn, *estimates))
        if not self.stopped:
            standing = self.standing()
            reasons = (rule(standing) for rule in self._stop)
            self.stopped = next((reason for reason in reasons if reason is not None), None)
        return self.stopped

    def give_back(self, place: int, *, for_good: bool = False) -> None:
        """Take back an item that was given out and could not be asked: it may be given again.

        `for_good`: it is not, because it cannot be answered.
        """
        if place not in self.belief.places[0]:
            self._out[place] = False
            self._lost[place] = for_good

    @property
    def n(self) -> int:
        """Items answered."""
        return self.belief.places.shape[1]

    @property
    def ability(self) -> float:
        """θ, the mean of its posterior."""
        return float(self._scored.ability[0])

    @property
    def std_error(self) -> float:
        """Of `ability`."""
        return float(self._scored.std_error[0])

    def interval(self) -> tuple[float, float]:
        """Limits of the ability at the session's confidence level, of equal tails."""
        low, high = self.belief.interval(self.confidence_level)
        return float(low[0]), float(high[0])

    def abilities(self) -> Abilities:
        """Abilities of a bank of several with their covariance; arrays of one session."""
        return abilities(self.belief)

    def full_score(self) -> dict[str, ScoreEstimate]:
        """Predicted score on all items, by task; "" is over all tasks.

        The interval is for the score that asking every item would have given.
        """
        limits = zip(*(values[0].tolist() for values in self._outlook.full[:3]), strict=True)
        named = zip(self._shares.names, limits, strict=True)
        return {name: ScoreEstimate(*each) for name, each in named}

    def expected(self) -> Predictions:
        """Expected score of every item; arrays of one session."""
        return self._outlook.predicted

    def difference(self, other: AdaptiveSession) -> dict[str, ScoreEstimate]:
        """Full score of another model's session less that of this one, by task; "" is all tasks.

        Both need the same bank and drawn items. Sessions of rule ``"random"`` with one seed draw
        the same ones: what both models find hard then cancels, and the interval is narrower.

        Raises
        ------
        DesignError
            Other items in the bank, or items that were chosen.
        """
        mine, others = self.shared_draws(), other.shared_draws()
        if mine is None or others is None or self.bank.keys() != other.bank.keys():
            msg = "a difference needs two tests with drawn items on one bank"
            raise DesignError(f"{msg}: use rule random for both")
        full = [session._outlook.full for session in (self, other)]
        errors = zip(mine, *(each.std_error[0].tolist() for each in full), strict=True)
        error = [difference_error(mine[name], a, others[name], b) for name, a, b in errors]
        reach = normal_quantile(self.confidence_level) * np.array(error)
        middle = (full[1].estimate - full[0].estimate)[0]
        low, high = np.maximum(middle - reach, -1.0), np.minimum(middle + reach, 1.0)
        limits = zip(middle.tolist(), low.tolist(), high.tolist(), strict=True)
        return {name: ScoreEstimate(*each) for name, each in zip(mine, limits, strict=True)}

    def shared_draws(self) -> dict[str, DrawnItems] | None:
        """Return the items drawn by score, for differences; None where items were chosen."""
        if self._draws is None or not len(self._draws):
            return None
        keys = self.bank.keys()
        items = tuple(" / ".join(keys[place]) for place in self._drawn)
        chances = [draw.probability for draw in self._drawn.values()]
        residuals = self._draws.residuals(self.belief)[:, 0]
        return {
            name: DrawnItems(items, np.array(chances), residuals[:, t])
            for t, name in enumerate(self._shares.names)
        }

    def result(self) -> SessionResult:
        """Return the estimates so far."""
        low, high = self.interval()
        scores = self.full_score()
        by_curves = float(self._outlook.by_curves.estimate[0, 0])
        if self._draws is not None:
            # As near to the score by design as the latter's error allows.
            full = self._outlook.full
            by_design, reach = full.estimate[0, 0], _NEAR * full.std_error[0, 0]
            by_curves = float(np.clip(by_curves - by_design, -reach, reach) + by_design)
        several = None if self.bank.axes is None else self.abilities()
        return SessionResult(
            n_items=self.n,
            n_in_bank=len(self.bank),
            stopped=self.stopped,
            rule=self.rule,
            balanced=self._targets is not None,
            ability=self.ability,
            std_error=finite(self.std_error),
            low=low,
            high=high,
            confidence_level=self.confidence_level,
            abilities=() if several is None else several.estimates(self.confidence_level),
            ability_covariance=(
                () if several is None else tuple(map(tuple, several.covariance[0].tolist()))
            ),
            full_score=scores.pop(ALL_TASKS),
            full_score_by_curves=by_curves,
            full_score_by_task=scores,
            cost=None if self.bank.cost is None else self.cost,
            n_drawn=sum(answer.drawn for answer in self.answers),
            curves_z=self._curves_z(),
            notes=(*self.bank.notes, *self._alarms()),
        )

    def _curves_z(self) -> float | None:
        """How far the score by the curves lies from that by design, in its standard errors."""
        if self._draws is None or not self.n:
            return None
        full = self._outlook.full
        away = self._outlook.by_curves.estimate - full.estimate
        return finite(float((away / np.maximum(full.std_error, 1e-12))[0, 0]))

    def _alarms(self) -> list[str]:
        """What limits the estimates: a model unlike those of the bank, items that were chosen."""
        if self._draws is None:
            if self.n == len(self.bank):
                return []
            note = "items were chosen, not drawn: score and interval are those of a model like the "
            return [f"{note}bank's (rule design holds for every model)"]
        z = self._curves_z()
        if z is None or abs(z) <= _FAR:
            return []
        side = "above" if z > 0 else "below"
        return [
            f"the bank's curves put the score {abs(z):.1f} standard errors {side} that of the "
            "items drawn: the model is unlike those of the bank, and the score shown is that of "
            "the items drawn"
        ]

    def to_json(self) -> str:
        """Return the answers so far as JSON lines, for `resume`."""
        places = self._places
        lines = list[str]()
        for each in self.answers:
            names = ("task", "item", "score", "trials")
            line: dict[str, Any] = {name: getattr(each, name) for name in names}
            if draw := self._drawn.get(places[each.task, each.item]):
                line["draw"] = draw._asdict()
            lines.append(json.dumps(line) + "\n")
        return "".join(lines)

    @classmethod
    def resume(
        cls,
        bank: ItemBank,
        lines: Sequence[str],
        *,
        rng: np.random.Generator | int | None = None,
        **settings: Unpack[Settings],
    ) -> AdaptiveSession:
        """Rebuild a session from the lines of `to_json`.

        Raises
        ------
        LogError
            A line is not from `to_json`, or its item is not in the bank, or is there twice.
        """
        session = cls(bank, rng=rng, **settings)
        places = dict(session._places)
        answers = [
            _answer_in(line, places, f"line {number} of the saved session")
            for number, line in enumerate(lines, 1)
            if line.strip()
        ]
        drawn = sorted((a for a in answers if a.draw), key=lambda a: cast("Drawn", a.draw).number)
        for n, answer in enumerate(answers):
            session._draw_again([a for a in drawn if cast("Drawn", a.draw).after == n])
            session.record(answer.place, answer.score, answer.trials)
        return session

    def _draw_again(self, answers: Sequence[SavedAnswer]) -> None:
        """Record draws of an earlier run as they were, before the next answer."""
        if self._draws is None:
            return
        for answer in answers:
            draw = cast("Drawn", answer.draw)
            ahead = self._draws.ahead(self.belief, self._outlook.curves, self._left[None])
            self._draws.record(
                self.belief,
                ahead,
                np.array([answer.place]),
                self._unanswered()[None],
                np.array([draw.probability]),
            )
            self._drawn[answer.place] = draw
            self._out[answer.place] = True
            # The generator stands where that of the earlier run stood.
            self._rng.random()

    @cached_property
    def _places(self) -> dict[tuple[str, str], int]:
        return {key: place for place, key in enumerate(self.bank.keys())}

    def _unanswered(self) -> IntArray:
        """Items that were given out and have no answer."""
        out = self._out.copy()
        out[self.belief.places[0]] = False
        return np.flatnonzero(out)

    @property
    def belief(self) -> Belief:
        """Answers, and the posterior of the ability, on a grid."""
        return self._outlook.belief

    def _believe(self, belief: Belief) -> None:
        self._outlook = Outlook(
            belief, self._shares, self._drawable, self._draws, self.confidence_level
        )
        self._scored: Scored = eap(belief)

    @property
    def _left(self) -> NDArray[np.bool_]:
        """Items that can still be asked."""
        return self.bank.usable & ~self._out & ~self._lost

    def _affordable(self) -> NDArray[np.bool_]:
        """Items that what is left of the budget buys."""
        budgets = [rule.value for rule in self._stop if isinstance(rule, Cost)]
        if not budgets or self.bank.cost is None:
            return np.ones(len(self.bank), dtype=np.bool_)
        spent = self.cost + float(self.bank.cost[self._unanswered()].sum())
        return np.asarray(self.bank.cost <= min(budgets) - spent)

    def standing(self) -> Standing:
        """The state of the session, as stop rules see it."""
        belief = self.belief
        error, prior_sd = self.std_error, self.bank.ability_sd
        told = 2 * float(np.log(prior_sd / error))
        if belief.axes is not None:
            error = float(abilities(belief).std_error.max())
            told = -float(np.linalg.slogdet(belief.joint.covariance[0])[1])
        return Standing(
            n=self.n,
            std_error=error,
            prior_sd=prior_sd,
            information=told,
            cost=self.cost,
            seconds=monotonic() - self._began,
            outlook=self._outlook,
        )


class AnswersFile:
    """A file of the lines of `AdaptiveSession.to_json`, after a header that identifies the test.

    The file is locked for one run until it is closed or garbage-collected. A file to which
    nothing was written is removed again.

    Parameters
    ----------
    path
        Created if it does not exist.
    about
        What must be equal to resume, such as model and task.

    Attributes
    ----------
    answers
        Lines for `AdaptiveSession.resume`.
    facts
        Other notes by name; the last of each name counts.

    Raises
    ------
    LogError
        The file is of another kind, bank, model or task, a line is damaged, or another run uses it.
    WriteError
        It cannot be created.
    """

    def __init__(self, path: str | Path, bank: ItemBank, about: Mapping[str, str]) -> None:
        self.path = Path(path)
        self.answers: list[str] = []
        self.facts: dict[str, str] = {}
        self._bank = bank
        self._head = _head(bank, about)
        self._descriptor = _opened(self.path)
        # A run that fails in the middle of a program never closes its file itself.
        self._closing = weakref.finalize(self, os.close, self._descriptor)
        try:
            self._size = self._read()
        except BaseException:
            self.close()
            raise

    def append(self, session: AdaptiveSession) -> None:
        """Write the last answer of a session and flush it to disk."""
        line = session.to_json().splitlines()[-1]
        self._write(line)
        self.answers.append(line)

    def note(self, **facts: str) -> None:
        """Write facts that are not answers, such as where the run has its log."""
        if any(self.facts.get(name) != value for name, value in facts.items()):
            self._write(json.dumps({_FACTS: facts}))
            self.facts |= facts

    def is_for(self, bank: ItemBank, about: Mapping[str, str]) -> bool:
        """Whether the file is open and belongs to this test."""
        return self._closing.alive and self._head == _head(bank, about)

    def close(self) -> None:
        """Release the file to other runs; closing twice does nothing."""
        if self._closing.alive:
            with suppress(OSError):
                if os.fstat(self._descriptor).st_size == 0:
                    self.path.unlink()
            self._closing()

    def _read(self) -> int:
        """Read answers and facts; return the length of the complete lines in bytes."""
        try:
            content = self.path.read_bytes()
            # The run was killed while it wrote a line without an end.
            whole, end, torn = content.rpartition(b"\n")
            lines = whole.decode().splitlines() if end else []
        except (OSError, UnicodeDecodeError) as error:
            raise LogError(f"{self.path} cannot be read as answers of a test: {error}") from error
        if lines:
            self._check(lines[0])
        elif not self._head.encode().startswith(torn):
            raise LogError(_foreign(self.path))
        places = {key: place for place, key in enumerate(self._bank.keys())}
        for number, line in enumerate(lines[1:], 2):
            where = f"{self.path}, line {number},"
            if line.startswith(f'{{"{_FACTS}"'):
                try:
                    self.facts |= dict(json.loads(line)[_FACTS])
                except (LookupError, TypeError, ValueError, RecursionError) as error:
                    msg = f"{where} is damaged: {line[:80]!r}; remove this line"
                    raise LogError(msg) from error
            elif line.strip():
                _answer_in(line, places, where)
                self.answers.append(line)
        return len(whole) + len(end)

    def _check(self, head: str) -> None:
        """Raise unless a header is of the same bank and test."""
        try:
            header: dict[str, Any] = json.loads(head)
            header.pop(_KEY)
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
            raise LogError(_foreign(self.path)) from error
        expected: dict[str, Any] = json.loads(self._head)
        expected.pop(_KEY)
        for name, value in expected.items():
            if header.get(name) != value:
                msg = f"{self.path} holds answers of {name} {header.get(name)!r}, not {value!r}"
                raise LogError(f"{msg}: name another state file, or remove this one")

    def _write(self, line: str) -> None:
        # The header is written together with the first line.
        text = f"{line}\n" if self._size else f"{self._head}{line}\n"
        content = memoryview(text.encode())
        try:
            # An incomplete line is cut off only now: reading alone changes nothing.
            os.ftruncate(self._descriptor, self._size)
            os.lseek(self._descriptor, self._size, os.SEEK_SET)
            while content:
                content = content[os.write(self._descriptor, content) :]
            os.fsync(self._descriptor)
        except OSError as error:
            raise WriteError(f"{self.path} cannot be written ({error.strerror})") from error
        self._size += len(text.encode())


class Drawn(NamedTuple):
    """How an item was drawn by chance."""

    number: int
    """Of the draw, from 0."""
    probability: float
    after: int
    """Number of answers that were known then."""


class SavedAnswer(NamedTuple):
    """An answer in a file."""

    place: int
    score: float
    trials: int
    draw: Drawn | None
    """None if the item was chosen."""


def _answer_in(line: str, places: dict[tuple[str, str], int], where: str) -> SavedAnswer:
    """Return a saved answer, and take its item out of `places`.

    Raises
    ------
    LogError
        It is not a session; the message says where, and which field is wrong.
    """
    problem = "is no JSON object"
    try:
        saved: dict[str, Any] = json.loads(line)
        problem = "names no item of this bank ('task' and 'item'), or one that was answered before"
        place = places.pop((saved["task"], saved["item"]))
        problem = "has no 'score' from 0 to 1"
        score = float(saved["score"])
        if not 0 <= score <= 1:
            raise ValueError(score)
        problem = "has no number of epochs ('trials')"
        trials = int(saved["trials"])
        if not 1 <= trials <= _MOST_TRIALS:
            raise ValueError(trials)
        problem = "has a 'draw' without number, probability or number of answers before it"
        draw = None
        if (record := saved.get("draw")) is not None:
            draw = Drawn(int(record["number"]), float(record["probability"]), int(record["after"]))
            if not (draw.number >= 0 and draw.after >= 0 and 0 < draw.probability <= 1):
                raise ValueError(draw)
    except (ArithmeticError, LookupError, TypeError, ValueError, RecursionError) as error:
        msg = f"{where} {problem}: {line[:80]!r}; remove this line, or start anew"
        raise LogError(msg) from error
    return SavedAnswer(place, score, trials, draw)


def _head(bank: ItemBank, about: Mapping[str, str]) -> str:
    """First line of a file, with a hash of the bank's items and their parameters."""
    digest = hashlib.sha256(json.dumps(bank.keys()).encode())
    for values in (bank.discrimination, bank.intercept, bank.guessing, bank.upper):
        digest.update(np.ascontiguousarray(values).tobytes())
    return json.dumps({_KEY: 1, "bank": digest.hexdigest()[:16], **about}) + "\n"


def _foreign(path: Path) -> str:
    return f"{path} is no file of answers of an adaptive test; name another file"


def _opened(path: Path) -> int:
    """Open and lock a file that no other run uses; return its descriptor."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0)
            descriptor = os.open(path, flags, 0o666)
            free = _locked(descriptor)
            # The run that had the file may have just removed it.
            with suppress(FileNotFoundError):
                if free and os.path.samestat(os.fstat(descriptor), path.stat()):
                    return descriptor
            os.close(descriptor)
            # A failed run of this same process may not have been garbage-collected yet.
            if not free and not gc.collect():
                msg = f"{path} is in use by another adaptive run: wait for its end"
                raise LogError(f"{msg}, or name another state file")
    except OSError as error:
        raise WriteError(f"{path} cannot be opened for answers ({error.strerror})") from error


def _locked(descriptor: int) -> bool:
    """Lock an open file; return whether it was free."""
    if sys.platform == "win32":
        import msvcrt

        # A byte far behind the end: a locked range cannot be read.
        os.lseek(descriptor, 1 << 40, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        # Some file systems, such as network drives, have no locks: go on without.
        return True
    return True
