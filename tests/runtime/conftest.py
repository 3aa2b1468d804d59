"""Processes that the tests of a module share."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from functools import partial
from pathlib import Path

import pytest

from evalstats_plugin.runtime import workers as runtime_workers


class _Kept(runtime_workers.LocalProcesses):
    """Processes that work on after a block: starting them anew, with torch, takes seconds."""

    def __exit__(self, *_: object) -> None:
        wait(self._futures)


@pytest.fixture(scope="module")
def two() -> Iterator[runtime_workers.LocalProcesses]:
    """Two processes."""
    kept = _Kept(2)
    yield kept
    runtime_workers.LocalProcesses.__exit__(kept)


@pytest.fixture
def same_two(two: runtime_workers.LocalProcesses, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every block use the same two processes; none of its pieces may kill one."""
    monkeypatch.setattr(runtime_workers, "LocalProcesses", lambda _n_jobs: two)


@pytest.fixture
def killed_once(tmp_path: Path) -> Callable[[int], int]:
    """Give a function that kills the process of the third piece, the first time it is done."""
    return partial(_killed_once, tmp_path)


def _killed_once(folder: Path, k: int) -> int:
    if k == 3 and not (folder / "killed").exists():
        (folder / "killed").touch()
        # Others are under way.
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGKILL)
    return k * k
