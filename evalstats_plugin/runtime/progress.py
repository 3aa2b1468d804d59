"""Progress of long work: computations report it to a listener, which shows it.

`report_progress` and `with_progress` call the listener of the enclosing `listening`, if any.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple


class Progress(NamedTuple):
    """State of a computation."""

    stage: str
    """Kind of step, such as ``"step"`` or ``"draw"``."""
    done: int
    total: int | None
    """None where unknown, as for steps until convergence."""


Listener = Callable[[Progress], None]
_LISTENER: ContextVar[Listener | None] = ContextVar("evalstats_progress", default=None)


@contextmanager
def listening(listener: Listener | None) -> Generator[None, None, None]:
    """Report the progress of computations inside this block, in this thread, to the listener."""
    before = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(before)


def report_progress(stage: str, done: int, total: int | None = None) -> None:
    """Report progress to the registered listener, if any.

    >>> reports = []
    >>> with listening(reports.append):
    ...     report_progress("step", 3)
    >>> report_progress("step", 4)
    >>> reports
    [Progress(stage='step', done=3, total=None)]
    """
    listener = _LISTENER.get()
    if listener is not None:
        listener(Progress(stage, done, total))


def with_progress(stage: str, steps: range) -> Iterator[int]:
    """Yield the steps one by one, and report each.

    The reported total is the number of steps: an upper bound where a loop may end before.
    """
    for place, step in enumerate(steps, 1):
        report_progress(stage, place, len(steps))
        yield step
