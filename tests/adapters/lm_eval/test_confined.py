"""Work on a log from others has limits: of time, memory, files and network."""

from __future__ import annotations

import re
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from evalstats_plugin.adapters.lm_eval.replay.confined import Limits, confined
from evalstats_plugin.errors import EvalStatsError, LogError, SelectionError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")


def test_a_pattern_that_never_ends_is_stopped() -> None:
    def work() -> bool:
        return re.match(r"(a+)+$", "a" * 60 + "b") is None

    with pytest.raises(LogError, match=r"some\.json: scoring it was stopped after 1 s.*time-limit"):
        confined("some.json", work, Limits(1, 8, None))


def test_work_that_fills_the_memory_is_stopped() -> None:
    def work() -> int:
        return len(bytearray(2**31))

    with pytest.raises(LogError, match=r"needs more than 0\.5 GiB.*--memory-limit"):
        confined("some.json", work, Limits(20, 0.5, None))


def test_values_and_errors_come_through() -> None:
    def fails() -> None:
        raise SelectionError("no such task")

    limits = Limits(20, 8, None)
    assert confined("some.json", lambda: {"a": [1, 2.5]}, limits) == {"a": [1, 2.5]}
    with pytest.raises(SelectionError, match=r"^no such task$"):
        confined("some.json", fails, limits)


def test_files_are_written_to_one_folder_only(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()

    def work() -> list[str]:
        done: list[str] = []
        for folder in (inside, outside):
            try:
                (folder / "x").write_text("x")
                done.append(folder.name)
            except PermissionError:
                pass
        return done

    done = confined("some.json", work, Limits(20, 8, inside))

    if "out" in done:
        pytest.skip("this kernel has no Landlock")
    assert done == ["in"]
    assert list(outside.iterdir()) == []


def test_there_is_no_network(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address: Any = server.getsockname()

        def work() -> bool:
            try:
                socket.create_connection(address, timeout=2).close()
            except OSError:
                return False
            return True

        assert confined("some.json", work, Limits(20, 8, None))
        reached = confined("some.json", work, Limits(20, 8, tmp_path))
    if reached:
        pytest.skip("this system lets nobody leave the network")
    assert not reached


def test_a_process_that_ends_by_itself_is_reported() -> None:
    with pytest.raises(EvalStatsError, match=r"ended without a result \(exit code"):
        confined("some.json", lambda: sys.exit(3), Limits(20, 8, None))
