"""Work on a log from others has limits: of time, memory, files and network."""

from __future__ import annotations

import errno
import os
import re
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from evalstats_plugin.adapters.lm_eval.replay import confined as confining
from evalstats_plugin.adapters.lm_eval.replay.confined import Limits, confined, landlock_version
from evalstats_plugin.errors import EvalStatsError, LogError, SelectionError, WriteError

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
    assert confined("some.json", lambda: {"a": [1, 2.5]}, limits).value == {"a": [1, 2.5]}
    with pytest.raises(SelectionError, match=r"^no such task$"):
        confined("some.json", fails, limits)


def test_a_full_disk_is_reported_as_such(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Not as too little time or memory, after lines of Python."""

    def work() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    expected = rf"^{re.escape(str(tmp_path))} cannot be written \(No space left on device\)$"
    with pytest.raises(WriteError, match=expected):
        confined("some.json", work, Limits(20, 8, tmp_path))
    assert capfd.readouterr().err == ""


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

    done = confined("some.json", work, Limits(20, 8, inside)).value

    if "out" in done:
        pytest.skip("this kernel has no Landlock")
    assert done == ["in"]
    assert list(outside.iterdir()) == []


def _tried(action: Any) -> bool:
    """Whether the system lets it happen."""
    try:
        action()
    except OSError:
        return False
    return True


def test_what_is_said_to_be_refused_is_refused_and_the_rest_is_not(tmp_path: Path) -> None:
    """Each of the holes that are named is one, so that nobody is promised more than there is."""
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    ours = outside / "file"
    ours.write_text("mine")
    abstract = f"\0evalstats-{os.getpid()}"
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as hidden,
        socket.socket(socket.AF_UNIX) as named,
    ):
        hidden.bind(abstract)
        hidden.listen()
        named.bind(str(outside / "s"))
        named.listen()
        address: Any = server.getsockname()
        parent = os.getpid()

        def work() -> dict[str, bool]:
            return {
                "network": _tried(lambda: socket.create_connection(address, timeout=2).close()),
                "abstract": _tried(lambda: socket.socket(socket.AF_UNIX).connect(abstract)),
                "named": _tried(lambda: socket.socket(socket.AF_UNIX).connect(str(outside / "s"))),
                "signal": _tried(lambda: os.kill(parent, 0)),
                "write": _tried(lambda: ours.write_text("theirs")),
                "mode": _tried(lambda: ours.chmod(0o600)),
                "read": _tried(ours.read_text),
            }

        free = confined("some.json", work, Limits(20, 8, None))
        done = confined("some.json", work, Limits(20, 8, inside))

    assert all(free.value.values())
    assert (free.landlock, free.offline) == (0, False)
    said = done.enforced(inside)
    refused = said.partition("not refused:")[0]
    assert done.value == {
        "network": not ("the network" in refused or "TCP" in refused),
        "abstract": "abstract sockets" not in refused and "the network" not in refused,
        "named": True,
        "signal": "signals" not in refused,
        "write": "writing" not in refused,
        "mode": True,
        "read": True,
    }
    assert f"Landlock {landlock_version()}" in said or landlock_version() == 0
    if landlock_version():
        assert not done.value["write"]
        assert f"writing outside of {inside}" in refused
    if landlock_version() >= 6:
        assert (done.value["signal"], done.value["abstract"]) == (False, False)


def test_where_nothing_can_be_refused_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on other systems, and on Linux before Landlock."""
    monkeypatch.setattr(confining, "landlock_version", lambda: 0)
    monkeypatch.setattr(confining, "_without_network", lambda: False)

    done = confined("some.json", lambda: (tmp_path / "x").write_text("x"), Limits(20, 8, tmp_path))
    monkeypatch.setattr(sys, "platform", "darwin")

    assert done.enforced(tmp_path) == (
        "what logs name was limited in time and refused: nothing (no Landlock here); not refused: "
        "writing files, reading files, modes and times of files, sockets with a path, the network, "
        "signals and abstract sockets to other programs, system calls (no seccomp)"
    )


def test_a_process_that_ends_by_itself_is_reported() -> None:
    with pytest.raises(EvalStatsError, match=r"ended without a result \(exit code"):
        confined("some.json", lambda: sys.exit(3), Limits(20, 8, None))
