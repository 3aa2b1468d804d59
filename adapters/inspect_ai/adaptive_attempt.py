"""How a sample fares that Inspect runs: its early stopping is not told of errors."""

from __future__ import annotations

import asyncio
from importlib import import_module
from pathlib import Path
from typing import Any


class SampleAttempt:
    """The attempt at a sample in whose task this is made; see `adaptive_gate.Attempt`.

    Inspect tries a sample again in the same task, after it has given up its slot.
    """

    def __init__(self) -> None:
        # The tasks themselves, not their ids: those are given anew once a task is gone.
        self._task: Any = _own_task()
        self._samples: Any = import_module("inspect_ai.log._samples")
        self._active: Any = self._samples.sample_active()

    @property
    def log(self) -> str:
        """Where the run has its log, whatever folder one asks from."""
        location = str(self._active.log_location)
        return location if "://" in location else str(Path(location).absolute())

    def is_over(self) -> bool:
        """Whether it is over for good."""
        done = getattr(self._task, "done", None)
        if done is not None:
            return bool(done())
        # A task of trio.
        return self._task not in self._task.parent_nursery.child_tasks

    def has_slot(self) -> bool:
        """Whether it has one of the slots: not while it waits to be tried again."""
        return any(each is self._active for each in self._samples.active_samples())


def _own_task() -> Any:
    try:
        return asyncio.current_task()
    except RuntimeError:
        # No loop of asyncio: Inspect runs on trio.
        return import_module("trio").lowlevel.current_task()
