"""How far a long computation is, for whoever asked to be told.

The listener is set for a block of code, so that no estimator passes it on::

    with telling(lambda step: print(step)):
        fit_irt(matrix)

Without one nothing is told. Nothing is drawn or printed here.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple


class Progress(NamedTuple):
    """Where a computation stands."""

    stage: str
    """What it does, such as ``"step"`` or ``"draw"``."""
    done: int
    total: int | None
    """None where nobody can know, as for steps until convergence."""


Listener = Callable[[Progress], None]
_LISTENER: ContextVar[Listener | None] = ContextVar("evalstats_irt_progress", default=None)


@contextmanager
def telling(listener: Listener | None) -> Generator[None, None, None]:
    """Tell the listener of what is computed inside this block, in this thread."""
    before = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(before)


def tell(stage: str, done: int, total: int | None = None) -> None:
    """Say how far it is, where someone listens.

    >>> heard = []
    >>> with telling(heard.append):
    ...     tell("step", 3)
    >>> tell("step", 4)
    >>> heard
    [Progress(stage='step', done=3, total=None)]
    """
    listener = _LISTENER.get()
    if listener is not None:
        listener(Progress(stage, done, total))


def told(stage: str, steps: range) -> Iterator[int]:
    """Give the steps one by one, telling of each.

    The total is told as well: where a loop may end before, it is the most that there can be.
    """
    for place, step in enumerate(steps, 1):
        tell(stage, place, len(steps))
        yield step
