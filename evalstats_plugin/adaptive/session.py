"""One model's adaptive test: next item, answer, ability, and why it stopped."""
# PART settings - How a session chooses, scores and stops.
# PART answers_file - The answers of a session on disk, each as soon as it is in: what a killed run leaves behind.

from __future__ import annotations

import gc
import hashlib
import json
import os
import sys
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.adaptive.scoring import Belief, Scored, score
from evalstats_plugin.adaptive.selection import (
    Candidates,
    Content,
    Exposure,
    Tables,
    Targets,
    eligible,
    pick,
    preferring,
    rule_for,
    worth,
)
from evalstats_plugin.adaptive.stopping import (
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
from evalstats_plugin.errors import DesignError, LogError, SelectionError, WriteError
from evalstats_plugin.stats.arrays import IntArray

EXHAUSTED = "no item left to ask"


_RECENT = 5


_MOST_TRIALS = 2**53
"""Answers over which information gained is averaged."""


_KEY = "evalstats_adaptive"


_FACTS = "facts"


class AdaptiveSession:
    """An adaptive test of one model.

    Ask for items with `next`, tell answers with `record`, until `stopped` says why. Items that
    were given out and not answered yet are not given out again.

    Parameters
    ----------
    bank
        See `ItemBank.matched` for what the harness has of it.
    rule
        A name of `selection.RULE_NAMES`, or ``"auto"``.
    stop
        Rules of `stopping`; the first that is met stops. Without any, all items are asked.
    scoring
        ``"eap"``, ``"map"`` or ``"wle"``. Stopping and intervals go by the posterior.
    batch
        How many items `next` gives, chosen jointly.
    content
        Shares of the tasks; see `constraints.Content`.
    exposure
        `constraints.Randomesque` or `SympsonHetter`.

    Raises
    ------
    DesignError
        The bank has no item that may be asked.
    SelectionError
        No such rule or scoring; a batch below 1.
    """

    def __init__(
        self,
        bank: ItemBank,
        *,
        rng: np.random.Generator | int | None = None,
        **settings: Any,
    ) -> None:
        bank.require_usable()
        known = Settings(**settings)
        if known.batch < 1:
            raise SelectionError(f"batch of {known.batch} items found, expected at least 1")
        self.bank = bank
        self.rule = rule_for(bank, known.rule)
        self.settings = known
        self._trace = Trace()
        self._stop = tuple(known.stop)
        self._targets = Targets.of(bank, known.content, known.rule)
        self._rng = np.random.default_rng(rng)
        self._eligible = eligible(known.exposure, (1, len(bank)), self._rng)
        self._tables = Tables.of(bank)
        self._out: NDArray[np.bool_] = np.zeros(len(bank), dtype=np.bool_)
        self._began = monotonic()
        self._cost = 0.0
        self.stopped: str | None = None
        self._entropies: list[float] = []
        self._believe(Belief.prior(bank))

    def next(self, k: int | None = None, *, among: NDArray[np.bool_] | None = None) -> IntArray:
        """Give places in the bank of the items to ask now: `k`, or as many as a batch has.

        Fewer where the rules stop sooner, none once the session has stopped. `among`, shape (M,),
        are items that can be asked at this moment, where others can later.
        """
        wanted = self._allowance(self.settings.batch if k is None else k)
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
            values = worth(candidates, self.rule, int(self._out.sum()))
            chosen = pick(values, allowed, self.settings.exposure, self._rng)
            places.append(int(chosen[0]))
            self._out[places[-1]] = True
            if len(places) < wanted:
                candidates = candidates.expecting(chosen)
        if not places and among is None and self.stopped is None and not self._waiting():
            left = (self.bank.usable & ~self._out).any()
            self.stopped = "what is left of the budget buys no item" if left else EXHAUSTED
        return np.array(places, dtype=np.int64)

    def record(self, place: int, score: float, trials: int = 1) -> str | None:
        """Take the answer to an item; return why the session stops, or None.

        Parameters
        ----------
        place
            In the bank; an item that `next` did not give is taken as well.
        score
            Mean of the item's epochs, in [0, 1].
        trials
            Epochs.

        Raises
        ------
        DesignError
            The item has been answered already, or the score lies outside [0, 1].
        """
        if not 0 <= place < len(self.bank):
            raise ValueError(f"place {place} is not in the bank of {len(self.bank)} items")
        key = str(self.bank.tasks[place]), str(self.bank.item_ids[place])
        named = " / ".join(key)
        if place in self._belief.places[0]:
            raise DesignError(f"item {named} has been answered already, expected each item once")
        if not 0 <= score <= 1 or trials < 1:
            msg = f"item {named} scored {score} in {trials} epochs, expected 0 to 1 in at least 1"
            raise DesignError(f"{msg}: rescale the metric")
        self._out[place] = True
        self._believe(
            self._belief.answered(
                np.array([[place]]), np.array([[score * trials]]), np.array([[float(trials)]])
            )
        )
        self._cost += 0.0 if self.bank.cost is None else float(self.bank.cost[place]) * trials
        answer = Answer(*key, float(score), trials, self._scored, self._belief.log_likelihood)
        self._trace.answers.append(answer)
        self.stopped = self.stopped or self._reason()
        return self.stopped

    def give_back(self, place: int) -> None:
        """Take back an item that was given out and could not be asked: it may come again."""
        if place not in self._belief.places[0]:
            self._out[place] = False

    @property
    def answers(self) -> list[Answer]:
        """Answers in order."""
        return self._trace.answers

    @property
    def trace(self) -> list[Step]:
        """What was known after each answer: with the full score, which is predicted for it now."""
        return self._trace.steps(self._outlook)

    @property
    def n(self) -> int:
        """Items answered."""
        return self._belief.places.shape[1]

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
        low, high = self._belief.interval(self.settings.confidence_level)
        return float(low[0]), float(high[0])

    def full_score(self) -> dict[str, ScoreEstimate]:
        """Expected score on all items, by task; "" is over all tasks.

        The interval is for what asking every item would have given.
        """
        return self._outlook.scores()

    def result(self) -> dict[str, Any]:
        """What was found, ready for JSON."""
        low, high = self.interval()
        scores = {name or "all": each._asdict() for name, each in self.full_score().items()}
        own = {key: value for key, value in scores.items() if key != "all"}
        return {
            "n_items": self.n,
            "n_in_bank": len(self.bank),
            "stopped": self.stopped,
            "rule": self.rule,
            "content": self._targets and self._targets.described(self.bank.task_names),
            "scoring": self.settings.scoring,
            "ability": self.ability,
            "std_error": self.std_error if np.isfinite(self.std_error) else None,
            "low": low,
            "high": high,
            "confidence_level": self.settings.confidence_level,
            "full_score": scores["all"],
            "full_score_by_task": own,
            "cost": None if self.bank.cost is None else self._cost,
            "notes": list(self.bank.notes),
        }

    def to_json(self) -> str:
        """Answers so far, a line each, for `resume`."""
        lines = [
            {"task": each.task, "item": each.item, "score": each.score, "trials": each.trials}
            for each in self.answers
        ]
        return "".join(json.dumps(line) + "\n" for line in lines)

    @classmethod
    def resume(cls, bank: ItemBank, lines: Sequence[str], **settings: Any) -> AdaptiveSession:
        """Take up a session from the lines of `to_json`.

        Raises
        ------
        LogError
            A line is none of `to_json`, or of an item that the bank does not hold.
        """
        session = cls(bank, **settings)
        places = {key: place for place, key in enumerate(bank.keys())}
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                found = json.loads(line)
                place = places[found["task"], found["item"]]
                answer = float(found["score"]), int(found["trials"])
                if answer[1] > _MOST_TRIALS:
                    raise ValueError(answer[1])
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                msg = f"line {number} of the saved session is no answer to an item of this bank"
                raise LogError(f"{msg}: {line[:80]!r}; start anew, or use its own bank") from error
            session.record(place, *answer)
        return session

    @property
    def _belief(self) -> Belief:
        return self._outlook.belief

    def _believe(self, belief: Belief) -> None:
        level = self.settings.confidence_level
        self._outlook = Outlook(belief, self._tables.shares, level)
        self._scored: Scored = score(belief, self.settings.scoring)
        self._entropies.append(float(belief.entropy()[0]))

    def _waiting(self) -> bool:
        return int(self._out.sum()) > self.n

    def _open(self) -> NDArray[np.bool_]:
        """Items that may be asked and paid for."""
        found = self.bank.usable & ~self._out
        budgets = [rule.value for rule in self._stop if isinstance(rule, Cost)]
        if budgets and self.bank.cost is not None:
            waiting = self._out.copy()
            waiting[self._belief.places[0]] = False
            spent = self._cost + float(self.bank.cost[waiting].sum())
            found &= self.bank.cost <= min(budgets) - spent
        return found

    def _allowance(self, wanted: int) -> int:
        bounds = [int(rule.value) for rule in self._stop if isinstance(rule, Items)]
        return min([wanted, *(bound - int(self._out.sum()) for bound in bounds)])

    def _reason(self) -> str | None:
        standing = self.standing()
        return next((why for rule in self._stop if (why := rule(standing)) is not None), None)

    def standing(self) -> Standing:
        """How the session stands, as stop rules see it."""
        recent = self._entropies[-_RECENT - 1 :]
        return Standing(
            n=self.n,
            ability=self.ability,
            std_error=float(score(self._belief).std_error[0]),
            prior_sd=self.bank.ability_sd,
            gained=(recent[0] - recent[-1]) / max(len(recent) - 1, 1),
            cost=self._cost,
            seconds=monotonic() - self._began,
            outlook=self._outlook,
        )


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a session chooses, scores and stops."""

    rule: str = "auto"
    stop: tuple[StopRule, ...] = ()
    scoring: str = "eap"
    batch: int = 1
    content: Content = None
    exposure: Exposure = None
    confidence_level: float = 0.95


class AnswersFile:
    """Lines of `AdaptiveSession.to_json` behind a line that says what they are answers to.

    A run has its file for itself until it is closed or forgotten. A file that nothing was
    written to is removed again.

    Parameters
    ----------
    path
        Made where it is not there yet.
    about
        What must be the same to go on, such as model and task.

    Attributes
    ----------
    answers
        Lines for `AdaptiveSession.resume`.
    facts
        What else has been noted; of facts of one name the last.

    Raises
    ------
    LogError
        The file is none of these, is of another bank, model or task, or another run uses it.
    WriteError
        It cannot be made there.
    """

    def __init__(self, path: str | Path, bank: ItemBank, about: Mapping[str, str]) -> None:
        self.path = Path(path)
        self.answers: list[str] = []
        self.facts: dict[str, str] = {}
        self._head = _head(bank, about)
        self._descriptor = _held(self.path)
        # A run that breaks off in the middle of a program never gets to close its file.
        self._closing = weakref.finalize(self, os.close, self._descriptor)
        try:
            self._size = self._read()
        except BaseException:
            self.close()
            raise

    def append(self, session: AdaptiveSession) -> None:
        """Write the last answer of a session down, to the disk itself."""
        line = session.to_json().splitlines()[-1]
        self._write(line)
        self.answers.append(line)

    def note(self, **facts: str) -> None:
        """Write down what is no answer, such as where the run has its log."""
        if any(self.facts.get(name) != value for name, value in facts.items()):
            self._write(json.dumps({_FACTS: facts}))
            self.facts |= facts

    def is_for(self, bank: ItemBank, about: Mapping[str, str]) -> bool:
        """Whether it is open, and of just this."""
        return self._closing.alive and self._head == _head(bank, about)

    def close(self) -> None:
        """Let other runs have the file; a second time does nothing."""
        if self._closing.alive:
            with suppress(OSError):
                if os.fstat(self._descriptor).st_size == 0:
                    self.path.unlink()
            self._closing()

    def _read(self) -> int:
        """Return the length of what is whole in it."""
        try:
            content = self.path.read_bytes()
            # A line without its end was being written when the run was killed.
            whole, end, torn = content.rpartition(b"\n")
            lines = whole.decode().splitlines() if end else []
        except (OSError, UnicodeDecodeError) as error:
            raise LogError(f"{self.path} cannot be read as answers of a test: {error}") from error
        if lines:
            self._check(lines[0])
        elif not self._head.encode().startswith(torn):
            raise LogError(_foreign(self.path))
        for line in lines[1:]:
            with suppress(ValueError, AttributeError, TypeError, RecursionError):
                self.facts |= json.loads(line).get(_FACTS, {})
        self.answers = [line for line in lines[1:] if not line.startswith(f'{{"{_FACTS}"')]
        return len(whole) + len(end)

    def _check(self, head: str) -> None:
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
        # The head is not there before there is something to say.
        text = f"{line}\n" if self._size else f"{self._head}{line}\n"
        content = memoryview(text.encode())
        try:
            # What was torn is cut off only now: reading alone changes nothing.
            os.ftruncate(self._descriptor, self._size)
            os.lseek(self._descriptor, self._size, os.SEEK_SET)
            while content:
                content = content[os.write(self._descriptor, content) :]
            os.fsync(self._descriptor)
        except OSError as error:
            raise WriteError(f"{self.path} cannot be written ({error.strerror})") from error
        self._size += len(text.encode())


def fingerprint(bank: ItemBank) -> str:
    """Tell a bank from others: by its items and what is known of them."""
    digest = hashlib.sha256(json.dumps(bank.keys()).encode())
    for values in (bank.discrimination, bank.intercept, bank.guessing, bank.upper):
        digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()[:16]


def _head(bank: ItemBank, about: Mapping[str, str]) -> str:
    return json.dumps({_KEY: 1, "bank": fingerprint(bank), **about}) + "\n"


def _foreign(path: Path) -> str:
    return f"{path} is no file of answers of an adaptive test; name another file"


def _held(path: Path) -> int:
    """Open a file that no other run has open."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0)
            descriptor = os.open(path, flags, 0o666)
            free = _locked(descriptor)
            if free and _lies_at(path, descriptor):
                return descriptor
            os.close(descriptor)
            # Runs of this very program that broke off may be forgotten and not cleared away yet.
            if not free and not gc.collect():
                msg = f"{path} is in use by another adaptive run: wait for its end"
                raise LogError(f"{msg}, or name another state file")
    except OSError as error:
        raise WriteError(f"{path} cannot be opened for answers ({error.strerror})") from error


def _lies_at(path: Path, descriptor: int) -> bool:
    """Whether a file is still there: the run that had it may have removed it just now."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _locked(descriptor: int) -> bool:
    """Lock an open file, and say whether it was free."""
    if sys.platform == "win32":
        import msvcrt

        # A byte far behind the end: what is locked cannot be read.
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
        # Where a file system has no locks, such as some network drives, go on without.
        return True
    return True
