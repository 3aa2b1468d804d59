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
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic
from typing import Any, ClassVar, NamedTuple, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.adaptive.bank import ALL_TASKS, ItemBank
from evalstats_plugin.adaptive.scoring import (
    KINDS,
    N_FITTING,
    Belief,
    Predicted,
    Scored,
    abilities,
    expected,
    laplace,
    score,
)
from evalstats_plugin.adaptive.selection import (
    INSURANCE,
    Candidates,
    Content,
    Exposure,
    Tables,
    Targets,
    check_insurance,
    eligible,
    is_insured,
    pick,
    preferring,
    rule_for,
    worth,
)
from evalstats_plugin.adaptive.several import Abilities, AbilityEstimate
from evalstats_plugin.adaptive.stopping import (
    LIMITS,
    Answer,
    Cost,
    Items,
    Outlook,
    ScoreEstimate,
    Standing,
    Step,
    StopRule,
    Trace,
)
from evalstats_plugin.data.results import Drawable, finite
from evalstats_plugin.errors import DesignError, LogError, SelectionError, WriteError, counted, few
from evalstats_plugin.stats.arrays import IntArray
from evalstats_plugin.stats.streams import stream

EXHAUSTED = "no item left to ask"
"""Reason to stop when every item has been asked."""

SURPRISING = 0.1
"""Probability of a right answer below which one is surprising."""

_ALARM = 0.01
"""Probability, for a model that fits the bank, of each alarm by `PersonFit`."""

_MISFIT = 0.5
"""Probability of a model that fits the bank below which a session says that this one does not."""

_EXTENDED = 2
"""How many times longer than it was to be the test of such a model gets at most."""

_MOST_TRIALS = 2**53
"""Largest number of epochs that a float holds exactly."""

_KEY = "evalstats_adaptive"
"""Key of the format version in the header of an answers file."""

_FACTS = "facts"

_OF_SEVERAL = ("abilities", "ability_covariance")
"""Fields that records of one ability do not have."""


class Settings(TypedDict, total=False):
    """How a session chooses, scores and stops; see `AdaptiveSession` for their meaning."""

    rule: str
    stop: Sequence[StopRule]
    scoring: str
    batch: int
    content: Content
    exposure: Exposure
    insurance: float
    confidence_level: float
    against: float | None


class PersonFit(NamedTuple):
    """How surprising the answers are at the estimated ability; see `irt.person_fit`."""

    lz: float | None
    """lz*, corrected for the estimation of ability [Sni01]_: low where answers do not fit."""
    outfit: float | None
    """Mean squared residual; near 1 where answers fit."""
    random_z: float | None
    """Mean score of the items drawn at random minus what the other answers predict, in standard
    errors; None with fewer than two of them."""
    surprising: tuple[tuple[str, str], ...]
    """Task and item of right answers that had a chance below `SURPRISING`: leaked, if many."""
    leak_p: float
    """Probability of so many of them, from a model that fits the bank."""


@dataclass(frozen=True, kw_only=True)
class SessionResult:
    """Estimates of an adaptive test."""

    n_items: int
    """Items answered."""
    n_in_bank: int
    stopped: str | None
    """Reason to stop; None if the test goes on."""
    rule: str
    content: str | None
    """Shares of the tasks in words; None without content balancing."""
    scoring: str
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
    full_score_by_task: Mapping[str, ScoreEstimate]
    """Empty for a single task."""
    cost: float | None
    n_random: int
    """Items that were drawn at random."""
    fits: float
    """Probability that the answers are those of a model that fits the bank."""
    person_fit: PersonFit
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        by_task = {name: each._asdict() for name, each in self.full_score_by_task.items()}
        plain = {"full_score": self.full_score._asdict(), "full_score_by_task": by_task}
        named = [list(key) for key in self.person_fit.surprising]
        fit = self.person_fit._asdict() | {"surprising": named}
        found = vars(self) | plain | {"person_fit": fit, "notes": list(self.notes)}
        if not self.abilities:
            return {name: value for name, value in found.items() if name not in _OF_SEVERAL}
        covariance = [list(row) for row in self.ability_covariance]
        return found | {
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
        A name of `selection.RULE_NAMES`, or ``"auto"``.
    stop
        Rules of `stopping`; the first that holds stops. Without any, all items are asked. Where the
        answers do not fit the bank, only limits stop at once (`stopping.LIMITS`): a test that
        is precise enough goes on for as many items again.
    scoring
        ``"eap"``, ``"map"`` or ``"wle"``. Stop rules and intervals use the posterior.
    batch
        How many items `next` gives, chosen jointly.
    content
        Shares of the tasks; see `selection.Content`.
    exposure
        `selection.Randomesque` or `selection.SympsonHetter`.
    insurance
        Share of the items that are drawn at random. They show a model that does not fit the bank,
        and with them limits of the full score hold for such models too; with 0 they hold for models
        like the bank's, and are narrower.
    confidence_level
        Of the intervals.
    against
        Ability of a model to compare with: chosen items tell most about which side of it this
        model lies on, and `rule` is not used.

    Raises
    ------
    DesignError
        The bank has no item that may be asked.
    SelectionError
        No such rule or scoring; a batch below 1; a share outside [0, 1).
    """

    drawn_as: ClassVar[tuple[str, ...]] = ("trace",)

    def __init__(
        self,
        bank: ItemBank,
        *,
        rule: str = "auto",
        stop: Sequence[StopRule] = (),
        scoring: str = "eap",
        batch: int = 1,
        content: Content = None,
        exposure: Exposure = None,
        insurance: float = INSURANCE,
        confidence_level: float = 0.95,
        against: float | None = None,
        rng: np.random.Generator | int | None = None,
    ) -> None:
        bank.require_usable()
        if batch < 1:
            raise SelectionError(f"a batch of {batch} items asks nothing: choose 1 or more")
        check_insurance(insurance)
        self.bank, self.insurance = bank, insurance
        self.rule = rule_for(bank, rule)
        self.scoring = scoring
        self.confidence_level, self.against = confidence_level, against
        self.batch, self._exposure = batch, exposure
        self._trace = Trace()
        self._stop = tuple(stop)
        self._targets = Targets.of(bank, content, rule)
        self._rng = stream(rng, "adaptive test")
        self._eligible = eligible(exposure, (1, len(bank)), self._rng)
        self._tables = Tables.of(bank)
        self._out: NDArray[np.bool_] = np.zeros(len(bank), dtype=np.bool_)
        self._random: set[int] = set()
        self._began = monotonic()
        self.cost = 0.0
        self.stopped: str | None = None
        self._precise_after: int | None = None
        self._believe(Belief.prior(bank))

    def next(self, k: int | None = None, *, among: NDArray[np.bool_] | None = None) -> IntArray:
        """Give the indices in the bank of the items to ask now: `k`, by default a batch.

        Fewer if a limit on the number of items or the budget allows no more; none once the session
        has stopped. `among`, a mask of shape (M,), restricts the choice to items that can be asked
        at this moment.
        """
        wanted = self._allowance(self.batch if k is None else k)
        places: list[int] = []
        outlook = self._outlook
        candidates = Candidates(outlook.belief, self._tables, self._rng, lambda: outlook.state)
        while len(places) < wanted and self.stopped is None:
            affordable = self._open() if among is None else self._open() & among
            if not affordable.any():
                break
            allowed = preferring(affordable[None], self._eligible)
            if self._targets is not None:
                allowed = self._targets.allowed(allowed, self._out[None])
            n_out = int(self._out.sum())
            values = worth(candidates, self.rule, n_out, self.insurance, self.against)
            by_chance = is_insured(self.insurance, n_out)
            chosen = pick(values, allowed, None if by_chance else self._exposure, self._rng)
            places.append(int(chosen[0]))
            self._random |= {places[-1]} if by_chance else set()
            self._out[places[-1]] = True
            if len(places) < wanted:
                candidates = candidates.expecting(chosen)
        if not places and among is None and self.stopped is None and not self._waiting():
            left = (self.bank.usable & ~self._out).any()
            self.stopped = "what is left of the budget buys no item" if left else EXHAUSTED
        return np.array(places, dtype=np.int64)

    def record(
        self, place: int, score: float, trials: int = 1, *, random: bool = False
    ) -> str | None:
        """Record the answer to an item; return why the session stops, or None.

        Parameters
        ----------
        place
            Index in the bank; it need not be one that `next` gave.
        score
            Mean over the item's epochs, in [0, 1].
        trials
            Number of epochs.
        random
            Whether the item was drawn at random by an earlier session; `next` knows its own.

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
        by_chance = random or place in self._random
        answer = Answer(
            *key, float(score), trials, by_chance, self._scored, self.belief.log_likelihood
        )
        self._trace.answers.append(answer)
        self.stopped = self.stopped or self._reason()
        return self.stopped

    def give_back(self, place: int) -> None:
        """Take back an item that was given out and could not be asked: it may be given again."""
        if place not in self.belief.places[0]:
            self._out[place] = False
            self._random.discard(place)

    @property
    def answers(self) -> list[Answer]:
        """Answers in order."""
        return self._trace.answers

    @property
    def trace(self) -> list[Step]:
        """Estimates after each answer; full scores are computed on request."""
        return self._trace.steps(self._outlook)

    @property
    def n(self) -> int:
        """Items answered."""
        return self.belief.places.shape[1]

    @property
    def ability(self) -> float:
        """θ by the session's scoring."""
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
        return abilities(self.belief, self.scoring)

    def full_score(self) -> dict[str, ScoreEstimate]:
        """Predicted score on all items, by task; "" is over all tasks.

        The interval is for the score that asking every item would have given.
        """
        return self._outlook.scores()

    def expected(self) -> Predicted:
        """Expected score of every item, and how well the answers fit; arrays of one session."""
        return self._outlook.predicted

    def result(self) -> SessionResult:
        """Return the estimates so far."""
        low, high = self.interval()
        scores = self.full_score()
        several = None if self.bank.axes is None else self.abilities()
        return SessionResult(
            n_items=self.n,
            n_in_bank=len(self.bank),
            stopped=self.stopped,
            rule=self.rule,
            content=self._targets and self._targets.described(self.bank.task_names),
            scoring=self.scoring,
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
            full_score_by_task=scores,
            cost=None if self.bank.cost is None else self.cost,
            n_random=sum(answer.random for answer in self.answers),
            fits=float(self._outlook.predicted.fits[0]),
            person_fit=self.person_fit(),
            notes=(*self.bank.notes, *self._warnings()),
        )

    def person_fit(self) -> PersonFit:
        """Compare the answers so far with what the bank makes of the model."""
        from evalstats_plugin.irt.fit_statistics import Cells, log_likelihood_z, mean_squares

        belief, chance = self.belief, np.array([a.random for a in self.answers], dtype=np.bool_)
        if not self.n:
            return PersonFit(None, None, None, (), 1.0)
        state = self._outlook.state
        curve = expected(belief, state)
        at = belief.places
        p, scale = (np.take_along_axis(x, at, axis=1) for x in (curve.probability, curve.scale))
        cells = Cells(belief.right, belief.trials, p)
        centre, variance = belief.ability_prior()
        away = state.mean - np.eye(1, state.mean.shape[1]) * centre
        pull = -away / np.r_[variance, np.ones(away.shape[1] - 1)]
        # The slope of a curve by ability is that by its logit times the item's discrimination.
        slope = scale[..., None] * belief.items.directions[at[0]]
        if belief.axes is None:
            pull, slope = pull[:, 0], slope[..., 0]
        random_z = None
        if chance.sum() > 1 and not chance.all():
            random_z = self._random_z(chance)
        low = (p[0] < SURPRISING) & (belief.trials[0] == 1)
        right = low & (belief.right[0] == 1)
        count = np.ones(1)
        for chance_of_one in p[0][low].tolist():
            count = np.convolve(count, [1 - chance_of_one, chance_of_one])
        return PersonFit(
            finite(float(log_likelihood_z(cells, slope, pull).lz_corrected[0])),
            finite(float(mean_squares(cells, axis=1).outfit[0])),
            random_z,
            tuple(
                (a.task, a.item)
                for a, found in zip(self.answers, right.tolist(), strict=True)
                if found
            ),
            float(count[int(right.sum()) :].sum()),
        )

    def _random_z(self, chance: NDArray[np.bool_]) -> float:
        """Mean of the random items' scores, against what the chosen ones predict."""
        belief = self.belief
        chosen = Belief.prior(self.bank).answered(
            belief.places[:, ~chance], belief.right[:, ~chance], belief.trials[:, ~chance]
        )
        state = laplace(chosen)
        curve = expected(chosen, state)
        at, weight = belief.places[0, chance], 1 / chance.sum()
        p, slope = curve.probability[0, at], curve.scale[0, at]
        scores = belief.right[0, chance] / belief.trials[0, chance]
        along = weight * (slope @ belief.items.directions[at])
        error = weight**2 * (p * (1 - p) / belief.trials[0, chance]).sum()
        error += along @ state.covariance[0] @ along
        return float((scores - p).mean() / np.sqrt(error))

    def _warnings(self) -> list[str]:
        """Notes on answers that do not fit the bank, and on what no random item can show."""
        chances = self._outlook.predicted.kinds[0]
        notes: list[str] = []
        if self.n and chances[:N_FITTING].sum() < _MISFIT:
            likely = KINDS[N_FITTING + int(chances[N_FITTING:].argmax())].described
            notes.append(
                f"the answers do not fit the bank (probability {chances[:N_FITTING].sum():.2f} "
                f"that they do), most like a model that is {likely}: ask more items"
            )
        notes += self._alarms()
        if not self.insurance and self.n < len(self.bank):
            notes.append(
                "no item is drawn at random (insurance 0): a model that does not fit the bank may "
                "go unseen; the score and its interval are those of a model like the bank's"
            )
        return notes

    def _alarms(self) -> list[str]:
        """What answers show that a model which fits the bank gives in 1 of 100 tests."""
        from scipy import special

        notes: list[str] = []
        fit = self.person_fit()
        if fit.leak_p < _ALARM:
            named = few([" ".join(filter(None, key)) for key in fit.surprising])
            notes.append(
                f"right on {counted(len(fit.surprising), 'item')} that the model should get wrong "
                f"(p {fit.leak_p:.2g}), as if their answers had leaked: {named}"
            )
        if fit.lz is not None and fit.lz < special.ndtri(_ALARM):
            notes.append(
                f"the answers are less regular than the bank's curves (lz* {fit.lz:.1f}): look at "
                "the items answered against expectation"
            )
        if fit.random_z is not None and abs(fit.random_z) > -special.ndtri(_ALARM / 2):
            side = "above" if fit.random_z > 0 else "below"
            notes.append(
                f"the items drawn at random scored {side} what the others predict "
                f"({fit.random_z:+z.1f} standard errors)"
            )
        return notes

    def to_json(self) -> str:
        """Return the answers so far as JSON lines, for `resume`."""
        lines = [
            {"task": each.task, "item": each.item, "score": each.score, "trials": each.trials}
            | ({"random": True} if each.random else {})
            for each in self.answers
        ]
        return "".join(json.dumps(line) + "\n" for line in lines)

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
        places = {key: place for place, key in enumerate(bank.keys())}
        for number, line in enumerate(lines, 1):
            if line.strip():
                place, score, trials, by_chance = _answer_in(
                    line, places, f"line {number} of the saved session"
                )
                session.record(place, score, trials, random=by_chance)
        return session

    @property
    def belief(self) -> Belief:
        """Answers, and the posterior of the ability, on a grid."""
        return self._outlook.belief

    def _believe(self, belief: Belief) -> None:
        level = self.confidence_level
        self._outlook = Outlook(belief, self._tables.shares, self.insurance > 0, level)
        self._scored: Scored = score(belief, self.scoring)

    def _waiting(self) -> bool:
        """Whether items are out that have not been answered."""
        return int(self._out.sum()) > self.n

    def _open(self) -> NDArray[np.bool_]:
        """Items that may be asked and paid for."""
        found = self.bank.usable & ~self._out
        budgets = [rule.value for rule in self._stop if isinstance(rule, Cost)]
        if budgets and self.bank.cost is not None:
            waiting = self._out.copy()
            waiting[self.belief.places[0]] = False
            spent = self.cost + float(self.bank.cost[waiting].sum())
            found &= self.bank.cost <= min(budgets) - spent
        return found

    def _allowance(self, wanted: int) -> int:
        bounds = [int(rule.value) for rule in self._stop if isinstance(rule, Items)]
        return min([wanted, *(bound - int(self._out.sum()) for bound in bounds)])

    def _reason(self) -> str | None:
        standing = self.standing()
        for rule in self._stop:
            reason = rule(standing)
            if reason is None:
                continue
            if isinstance(rule, LIMITS) or not self._goes_on():
                return reason
        return None

    def _goes_on(self) -> bool:
        """Whether a test that is precise enough goes on, because its answers do not fit the bank.

        For as many items again as it took until then.
        """
        if self._precise_after is None:
            if float(self._outlook.predicted.fits[0]) >= _MISFIT and not self._alarms():
                return False
            self._precise_after = self.n
        return self.n < _EXTENDED * self._precise_after

    def standing(self) -> Standing:
        """The state of the session, as stop rules see it."""
        belief = self.belief
        error, prior_sd = float(score(belief).std_error[0]), self.bank.ability_sd
        told = 2 * float(np.log(prior_sd / error))
        if belief.axes is not None:
            error = float(abilities(belief).std_error.max())
            told = -float(np.linalg.slogdet(belief.joint.covariance[0])[1])
        return Standing(
            n=self.n,
            ability=self.ability,
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
                self.facts |= _facts_in(line, where)
            elif line.strip():
                _answer_in(line, places, where)
                self.answers.append(line)
        return len(whole) + len(end)

    def _check(self, head: str) -> None:
        """Raise unless a header is of the same bank and test."""
        try:
            found: dict[str, Any] = json.loads(head)
            found.pop(_KEY)
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
            raise LogError(_foreign(self.path)) from error
        expected: dict[str, Any] = json.loads(self._head)
        expected.pop(_KEY)
        for name, value in expected.items():
            if found.get(name) != value:
                msg = f"{self.path} holds answers of {name} {found.get(name)!r}, not {value!r}"
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


def _answer_in(
    line: str, places: dict[tuple[str, str], int], where: str
) -> tuple[int, float, int, bool]:
    """Return item, score, epochs and whether it was random, and take its item out of `places`.

    Raises
    ------
    LogError
        It is none; the message says where, and which field is wrong.
    """
    problem = "is no JSON object"
    try:
        found: dict[str, Any] = json.loads(line)
        problem = "names no item of this bank ('task' and 'item'), or one that was answered before"
        place = places.pop((found["task"], found["item"]))
        problem = "has no 'score' from 0 to 1"
        score = float(found["score"])
        if not 0 <= score <= 1:
            raise ValueError(score)
        problem = "has no number of epochs ('trials')"
        trials = int(found["trials"])
        if not 1 <= trials <= _MOST_TRIALS:
            raise ValueError(trials)
    except (ArithmeticError, LookupError, TypeError, ValueError, RecursionError) as error:
        msg = f"{where} {problem}: {line[:80]!r}; remove this line, or start anew"
        raise LogError(msg) from error
    return place, score, trials, found.get("random") is True


def _facts_in(line: str, where: str) -> dict[str, str]:
    try:
        return dict(json.loads(line)[_FACTS])
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        raise LogError(f"{where} is damaged: {line[:80]!r}; remove this line") from error


def _fingerprint(bank: ItemBank) -> str:
    """Hash of a bank's items and their parameters."""
    digest = hashlib.sha256(json.dumps(bank.keys()).encode())
    for values in (bank.discrimination, bank.intercept, bank.guessing, bank.upper):
        digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()[:16]


def _head(bank: ItemBank, about: Mapping[str, str]) -> str:
    return json.dumps({_KEY: 1, "bank": _fingerprint(bank), **about}) + "\n"


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
            if free and _lies_at(path, descriptor):
                return descriptor
            os.close(descriptor)
            # A failed run of this same process may not have been garbage-collected yet.
            if not free and not gc.collect():
                msg = f"{path} is in use by another adaptive run: wait for its end"
                raise LogError(f"{msg}, or name another state file")
    except OSError as error:
        raise WriteError(f"{path} cannot be opened for answers ({error.strerror})") from error


def _lies_at(path: Path, descriptor: int) -> bool:
    """Whether the path still is this file: the run that had it may have just removed it."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


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
