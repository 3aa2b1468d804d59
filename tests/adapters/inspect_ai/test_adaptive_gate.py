"""Samples that wait for their turn: whatever the harness has slots for, all come to an end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import numpy as np
import pytest

from evalstats_plugin.adapters.inspect_ai.adaptive import gate as adaptive_gate
from evalstats_plugin.adapters.inspect_ai.adaptive.gate import Gate
from evalstats_plugin.adaptive.bank import DRIFT, ItemBank
from evalstats_plugin.adaptive.plan import Plan
from evalstats_plugin.adaptive.session import AnswersFile

N_ITEMS = 20
N_ASKED = 8

# Whether a sample ends in an error, by item, epoch and attempt.
Fails = Callable[[int, int, int], bool]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here takes long."""
    for name in ("LOOK", "PATIENCE"):
        monkeypatch.setattr(adaptive_gate, name, 0.002)


def _bank() -> ItemBank:
    rng = np.random.default_rng(1)
    return ItemBank.from_arrays(rng.uniform(0.8, 2, N_ITEMS), rng.normal(size=N_ITEMS))


@dataclass
class _Sample:
    """What Inspect makes of a sample."""

    slot: bool = True
    over: bool = False

    def is_over(self) -> bool:
        return self.over

    def has_slot(self) -> bool:
        return self.slot


@dataclass
class _Harness:
    """Runs samples as Inspect does: all at once, as many as have a slot, and again after errors."""

    gate: Gate
    slots: int
    epochs: int = 1
    retries: int = 0
    fails: Fails = lambda *_: False
    late: float = 0.0
    """Seconds after which each sample comes behind the one before it."""
    ran: Counter[tuple[str, int]] = field(default_factory=Counter[tuple[str, int]])
    reasons: list[str] = field(default_factory=list[str])

    async def run(self) -> None:
        slots = anyio.Semaphore(self.slots)
        with anyio.fail_after(300):
            async with anyio.create_task_group() as group:
                for epoch in range(1, self.epochs + 1):
                    for i in range(N_ITEMS):
                        group.start_soon(self._sample, slots, i, epoch)
        self.gate.finish()

    async def _sample(self, slots: anyio.Semaphore, i: int, epoch: int) -> None:
        await anyio.sleep(self.late * i)
        for attempt in range(1 + self.retries):
            sample = _Sample()
            async with slots:
                reason = await self.gate.ask(f"item_{i}", epoch, sample)
                if reason is not None:
                    self.reasons.append(reason)
                    return
                self.ran[f"item_{i}", epoch] += 1
                await anyio.sleep(0)
                if not self.fails(i, epoch, attempt):
                    self.gate.over(f"item_{i}", epoch, float((i + epoch) % 2))
                    return
                sample.slot = False
                sample.over = attempt == self.retries


def _run(
    slots: int, *, batch: int = 2, saved: AnswersFile | None = None, **how: object
) -> _Harness:
    session = Plan(bank="", max_items=N_ASKED, batch=batch).session(
        _bank(), saved.answers if saved else ()
    )
    epochs = how.get("epochs", 1)
    assert isinstance(epochs, int)
    gate = Gate(session, {f"item_{i}": i for i in range(N_ITEMS)}, epochs, saved, slots)
    harness = _Harness(gate, slots, **how)  # pyright: ignore[reportArgumentType]
    anyio.run(harness.run)
    return harness


@pytest.mark.parametrize("slots", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("epochs", [1, 2])
@pytest.mark.parametrize("batch", [1, 3])
def test_as_many_items_are_asked_as_wanted_however_few_slots(
    slots: int, epochs: int, batch: int
) -> None:
    """Every sample comes to an end; with slots for all, each item has all its epochs."""
    done = _run(slots, epochs=epochs, batch=batch)

    assert N_ASKED == done.gate.session.n
    assert {1} == set(done.ran.values())
    assert N_ITEMS * epochs == len(done.reasons) + done.ran.total()
    if slots == 100:
        assert N_ASKED * epochs == done.ran.total()
        assert {f"{N_ASKED} items asked"} == set(done.reasons)
        assert 0 == done.gate.n_narrow
    elif slots == 1:
        assert done.gate.n_narrow


@pytest.mark.parametrize("slots", [1, 2, 7, 100])
@pytest.mark.parametrize("epochs", [1, 2])
def test_items_that_fail_are_not_asked_again_and_others_are_in_their_place(
    slots: int, epochs: int
) -> None:
    """Every third item ends in an error: the limit counts answers."""
    done = _run(slots, epochs=epochs, fails=lambda i, *_: i % 3 == 0)
    answered = {step.item for step in done.gate.session.answers}
    failed = {item for item, _ in done.ran if int(item[5:]) % 3 == 0}

    assert N_ASKED == len(answered)
    assert not answered & failed
    assert {1} == set(done.ran.values())
    assert len(failed) == done.gate.unanswered


@pytest.mark.parametrize("slots", [1, 3, 100])
def test_where_everything_fails_everything_is_tried_once(slots: int) -> None:
    """And then it ends, without an answer."""
    done = _run(slots, fails=lambda *_: True)

    assert 0 == done.gate.session.n
    assert N_ITEMS == len(done.ran) == done.ran.total() == done.gate.unanswered


@pytest.mark.parametrize("slots", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("epochs", [1, 2])
def test_samples_that_are_tried_again_do_not_wait_for_ever(slots: int, epochs: int) -> None:
    """A first error gives up the slot, which a sample takes that waits for its turn."""
    done = _run(slots, epochs=epochs, retries=2, fails=lambda _i, _e, attempt: attempt == 0)

    assert N_ASKED == done.gate.session.n
    assert {2} == set(done.ran.values())


def test_samples_that_come_late_are_waited_for_where_there_is_room() -> None:
    """Items come in the order in which a session alone would ask them."""
    done = _run(N_ITEMS, batch=1, late=0.01)
    session = Plan(bank="", max_items=N_ASKED).session(_bank())
    while session.stopped is None:
        place = int(session.next()[0])
        session.record(place, float((place + 1) % 2))

    assert session.to_json() == done.gate.session.to_json()
    assert 0 == done.gate.n_narrow


def test_one_epoch_that_fails_leaves_the_others() -> None:
    """The item has the answers that there are."""
    done = _run(100, epochs=3, fails=lambda _i, epoch, _a: epoch == 2)

    assert {2.0} == {step.trials for step in done.gate.session.answers}
    assert N_ASKED == done.gate.session.n


def test_what_was_answered_before_is_not_asked(tmp_path: Path) -> None:
    """With the reason; its sample may come from the earlier run's log, or not."""
    saved = AnswersFile(tmp_path / "state", _bank(), {})
    first = _run(100, saved=saved)
    again = _run(2, saved=saved)

    assert not again.ran
    assert N_ASKED == again.reasons.count(adaptive_gate.ANSWERED) == again.gate.n_elsewhere
    again.gate.over(next(iter(first.ran))[0], 1, 1.0)
    assert N_ASKED - 1 == again.gate.n_elsewhere
    assert N_ASKED == again.gate.session.n


def test_an_epoch_answered_before_lets_the_others_of_its_item_through() -> None:
    """A run was killed between two epochs of an item, and its log has the first."""

    async def retried() -> tuple[Gate, list[str | None]]:
        gate = Gate(Plan(bank="", max_items=1).session(_bank()), {"item_3": 3}, 2)
        gate.over("item_3", 1, 1.0)
        heard = [await gate.ask("item_3", 2, _Sample())]
        gate.over("item_3", 2, 0.0)
        return gate, heard

    gate, heard = anyio.run(retried)
    assert [None] == heard
    assert [("item_3", 0.5, 2)] == [(s.item, s.score, s.trials) for s in gate.session.answers]


def test_waiting_samples_can_be_cancelled() -> None:
    """Those that wait and the one that watches; nothing is left behind."""
    gate = Gate(Plan(bank="").session(_bank()), {f"item_{i}": i for i in range(N_ITEMS)})

    async def cancelled() -> None:
        async with anyio.create_task_group() as group:
            for i in range(N_ITEMS):
                group.start_soon(gate.ask, f"item_{i}", 1, _Sample())
            await anyio.sleep(0.05)
            group.cancel_scope.cancel()

    anyio.run(cancelled)
    assert not gate._waiting
    assert gate._watch is None


def test_samples_of_which_the_bank_knows_nothing_are_stopped() -> None:
    """As are those it would not ask."""
    bank = _bank().without(np.arange(N_ITEMS) == 3, DRIFT)
    gate = Gate(Plan(bank="").session(bank), {f"item_{i}": i for i in range(N_ITEMS)})

    assert "not asked: drift" == anyio.run(gate.ask, "item_3", 1, _Sample())
    assert adaptive_gate.UNKNOWN == anyio.run(gate.ask, "item_99", 1, _Sample())


def test_the_watch_is_what_keeps_it_going(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the same run hangs: this harness would notice."""
    monkeypatch.setattr(adaptive_gate, "LOOK", 1e6)
    gate = Gate(
        Plan(bank="", max_items=N_ASKED).session(_bank()), {f"item_{i}": i for i in range(N_ITEMS)}
    )
    harness = _Harness(gate, slots=1)

    async def limited() -> None:
        with anyio.fail_after(0.5):
            await harness.run()

    with pytest.raises(TimeoutError):
        anyio.run(limited)
