"""Budgets of CPU time do not depend on the machine, and find out what takes longer."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest


class Machine:
    """One on which a second of work takes as many seconds as it is slow, turn by turn."""

    def __init__(self, *slow: float) -> None:
        self.slow, self.now, self.turn = slow, 0.0, count()

    def work(self, seconds: float) -> str:
        self.now += seconds * self.slow[min(next(self.turn), len(self.slow) - 1)]
        return "done"


@pytest.mark.parametrize(
    ("slow", "slowness", "turns"),
    [
        ([1], 1, 1),
        ([3], 3, 2),  # and says so, where the first turn was too long
        ([0.5], 0.5, 1),
        ([5, 5, 5, 1], 1, 4),  # disturbed for a while, which the other work did not feel
    ],
)
def test_what_is_needed_is_within_the_budget(
    slow: list[float], slowness: float, turns: int, within: Callable[..., Any]
) -> None:
    """On a machine that is slow, fast or disturbed."""
    machine = Machine(*slow)
    found = within(
        2.5, lambda: machine.work(1), clock=lambda: machine.now, slowness=lambda: slowness
    )

    assert "done" == found
    assert turns == next(machine.turn)


@pytest.mark.parametrize("slowness", [0.5, 1, 3])
def test_three_times_as_much_is_not(slowness: float, within: Callable[..., Any]) -> None:
    """Nor on a machine that is slow or fast; one turn of six is not enough to tell."""
    machine = Machine(max(1, slowness))
    with pytest.raises(pytest.fail.Exception, match=r"at most 2.5 .* found [39](, 3){5} in turn"):
        within(2.5, lambda: machine.work(3), clock=lambda: machine.now, slowness=lambda: slowness)


def test_the_machine_is_as_slow_as_its_own_work_says(within: Callable[..., Any]) -> None:
    """What takes 0.018 s there: three times as much is enough here, a sixth is not."""

    def loop() -> int:
        return sum(k % 7 for k in range(500_000))

    within(3 * 0.018, loop)
    with pytest.raises(pytest.fail.Exception):
        within(0.018 / 6, loop)
