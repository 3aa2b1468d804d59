"""A gate that lets samples of a running task through in the order of an adaptive session.

Inspect starts the samples of a task at once, in the order of its dataset, as many as have a slot.
Each comes to the gate first and waits until its item is chosen, or the session stops. Inspect
decides which samples have a slot: if waiting samples have all slots, the next item is chosen among
those. So a sample is let through whenever nothing runs, and no run can hang.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Protocol

import anyio
import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.adaptive.session import EXHAUSTED, AdaptiveSession, AnswersFile

LOOK = 0.1
"""Seconds between checks of what still runs."""

PATIENCE = 0.25
"""Seconds without a running or arriving sample after which all slots count as full."""

LONG_PATIENCE = 20.0
"""The same if there are slots for all samples: then only cancelled samples never arrive."""

# Reasons why a sample is stopped, and why a session ends; the log shows them.
UNKNOWN = "not in the item bank"
ANSWERED = "answered in an earlier run, whose sample is not at hand: see the test's trace"
ENOUGH = "answered in another epoch: samples that wait had all slots"
FAILED = "another epoch ended in an error or without a score"
PASSED = "not chosen among the samples that had a slot"
NO_MONEY = "what is left of the budget buys no item"


class Attempt(Protocol):
    """The harness's attempt at a sample."""

    def is_over(self) -> bool:
        """Whether it is over and will not be retried."""
        ...

    def has_slot(self) -> bool:
        """Whether it has a slot; it has none while it waits to be retried."""
        ...


@dataclass(eq=False)
class _Waiting:
    """A sample at the gate."""

    attempt: Attempt
    event: anyio.Event = field(default_factory=anyio.Event)
    passes: bool = False


class Gate:
    """Decides which samples run.

    Parameters
    ----------
    places
        By item: its place in the session's bank.
    epochs
        Number of epochs of every item. All or none are asked, if there are slots for all samples.
    saved
        File in which answers are saved.
    slots
        Number of samples that can be at the gate at a time, None if not known.
    """

    def __init__(
        self,
        session: AdaptiveSession,
        places: Mapping[str, int],
        epochs: int = 1,
        saved: AnswersFile | None = None,
        slots: int | None = None,
    ) -> None:
        self.session = session
        self.n_narrow = 0
        """Number of items chosen only among those with a slot, while others were open too."""
        self.unanswered = 0
        """Number of items that were asked, and ended in an error or without a score."""
        reasons = session.bank.reasons
        self._reasons = {item: f"not asked: {reasons[p]}" for item, p in places.items()}
        self._places = {item: p for item, p in places.items() if not reasons[p]}
        self._items = {place: item for item, place in self._places.items()}
        self._epochs = range(1, epochs + 1)
        self._saved = saved
        self._earlier = {step.item for step in session.answers}
        self._closed = dict.fromkeys(self._earlier, ANSWERED)
        """Items that will not be asked any more, with the reason."""
        self._failed = np.zeros(len(session.bank), dtype=np.bool_)
        self._open: dict[str, dict[int, float | None]] = {}
        """Items being asked: the score of each finished epoch, None without a score."""
        self._running: dict[tuple[str, int], Attempt] = {}
        """Samples let through and not known to be over."""
        self._waiting: dict[tuple[str, int], _Waiting] = {}
        self._watch: tuple[str, int] | None = None
        """The one waiting sample that regularly checks what still runs."""
        self._slots_full = False
        enough = slots is not None and slots >= len(places) * epochs
        self._patience = LONG_PATIENCE if enough else PATIENCE
        self._moved = monotonic()

    @property
    def n_elsewhere(self) -> int:
        """Number of items answered in an earlier run, without a sample in this one."""
        return len(self._earlier)

    async def ask(self, item: str, epoch: int, attempt: Attempt) -> str | None:
        """Wait until a sample may run (None) or is not needed (the reason)."""
        self._moved = monotonic()
        if item not in self._places:
            return self._reasons.get(item, UNKNOWN)
        if item not in self._closed and item not in self._open:
            await self._wait((item, epoch), attempt)
        if item in self._open:
            self._running[item, epoch] = attempt
            return None
        return self._closed.get(item) or self.session.stopped or PASSED

    def over(self, item: str, epoch: int, score: float | None) -> None:
        """Record the score of a sample that is over; None if it has no score."""
        self._moved = monotonic()
        self._running.pop((item, epoch), None)
        self._earlier.discard(item)
        if item not in self._places or item in self._closed:
            return
        # Samples of an earlier attempt at this run arrive here without having been asked.
        scores = self._open.setdefault(item, {})
        self._let_through(item)
        scores[epoch] = None if score is None or math.isnan(score) else score
        moving = any(each == item for each, _ in self._running)
        if len(scores) == len(self._epochs) or (self._slots_full and not moving):
            self._record(item)
        self._advance()

    def finish(self) -> None:
        """Record the scores of items whose other epochs never came."""
        for item in list(self._open):
            self._record(item)

    def _record(self, item: str) -> None:
        place, answers = self._places[item], self._open.pop(item)
        scores = [each for each in answers.values() if each is not None]
        self._closed[item] = ENOUGH if scores else FAILED
        if not scores:
            self.unanswered += 1
            # It counts towards no limit of items, and is not asked again.
            self.session.give_back(place, for_good=True)
            self._failed[place] = True
            return
        self.session.record(place, math.fsum(scores) / len(scores), len(scores))
        if self._saved is not None:
            self._saved.append(self.session)

    async def _wait(self, key: tuple[str, int], attempt: Attempt) -> None:
        waiting = self._waiting[key] = _Waiting(attempt)
        try:
            self._advance()
            while not waiting.passes:
                self._watch = self._watch or key
                if self._watch == key:
                    with anyio.move_on_after(LOOK) as scope:
                        await waiting.event.wait()
                    if scope.cancelled_caught:
                        self._look()
                else:
                    await waiting.event.wait()
                    waiting.event = anyio.Event()
        finally:
            self._waiting.pop(key, None)
            if self._watch == key:
                self._watch = None
                # Another one becomes the watch.
                for another in self._waiting.values():
                    if not another.passes:
                        another.event.set()
                        break

    def _look(self) -> None:
        """Check what still runs; if nothing does, choose among the samples at the gate."""
        for key, attempt in list(self._running.items()):
            if attempt.is_over():
                # It ended in an error; Inspect does not tell early stopping about those.
                self.over(*key, None)
        if not self._waiting or any(each.has_slot() for each in self._running.values()):
            return
        if monotonic() - self._moved < self._patience:
            return
        self._slots_full = True
        # Samples that are retried after an error wait for a slot themselves.
        parked = {item for item, _ in self._running}
        for item in [each for each in self._open if each not in parked]:
            if self._open[item]:
                self._record(item)
            else:
                self.session.give_back(self._places[item])
                del self._open[item]
        self._advance(parked)

    def _advance(self, parked: frozenset[str] | set[str] = frozenset()) -> None:
        """Choose items until a whole batch is being asked; end the session if none are left."""
        session = self.session
        while session.stopped is None:
            wanted = session.batch - len(self._open.keys() - parked)
            among: NDArray[np.bool_] | None = None
            if self._slots_full:
                among = np.zeros(len(session.bank), dtype=np.bool_)
                among[[self._places[item] for item, _ in self._waiting]] = True
            chosen = session.next(wanted, among=among) if wanted > 0 else ()
            if not len(chosen):
                break
            if among is not None:
                unasked = self._places.keys() - self._closed.keys() - self._open.keys()
                self.n_narrow += len(chosen) if int(among.sum()) < len(unasked) else 0
            for place in chosen:
                self._open.setdefault(self._items[int(place)], {})
                self._let_through(self._items[int(place)])
        if session.stopped is None and not self._open and not self._slots_full:
            left = session.bank.usable & ~self._failed
            left[[self._places[item] for item in self._closed if item in self._places]] = False
            session.stopped = NO_MONEY if left.any() else EXHAUSTED
        if session.stopped is not None or not self._open.keys() - parked:
            for waiting in self._waiting.values():
                waiting.passes = True
                waiting.event.set()

    def _let_through(self, item: str) -> None:
        for epoch in self._epochs:
            waiting = self._waiting.get((item, epoch))
            if waiting is not None:
                self._running[item, epoch] = waiting.attempt
                waiting.passes = True
                waiting.event.set()
