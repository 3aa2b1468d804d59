"""Processes of this machine: what they are given, and when they end."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import BrokenExecutor
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

import evalstats_plugin
from evalstats_plugin.errors import DesignError
from evalstats_plugin.runtime.workers import (
    LocalProcesses,
    n_workers,
    parallel_map,
    results,
    workers,
)


def process(_: int) -> int:
    return os.getpid()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def described(
    arrays: list[np.ndarray], piece: int
) -> tuple[list[tuple[object, ...]], tuple[float, float]]:
    """What came, and whether it can be written to without another piece seeing it."""
    before = float(arrays[0][0, 0])
    told = [(a.shape, a.dtype.str, a.flags.f_contiguous, a.tobytes()) for a in arrays]
    arrays[0][0, 0] = piece
    return told, (before, float(arrays[0][0, 0]))


def failing(k: int) -> int:
    """Raise for one piece."""
    if k == 2:
        msg = "no"
        raise DesignError(msg)
    return k


def place(name: str) -> tuple[str, bool]:
    """Folder of the process that does this, and whether it finds a file in it."""
    return os.getcwd(), Path(name).exists()  # noqa: PTH109


@pytest.mark.usefixtures("same_two")
def test_arrays_come_as_they_are() -> None:
    """Large, small, empty, in Fortran's order, of objects; the caller's stay as they are."""
    rng = np.random.default_rng(0)
    arrays = [
        rng.random((300, 700)), np.asfortranarray(rng.random((5, 3))), np.empty((0, 4)),
        np.arange(3, dtype=np.int8), rng.random(6)[::2], np.array([True]),
    ]  # fmt: skip
    before = [a.copy(order="K") for a in arrays]
    with workers(2):
        found = list(parallel_map(partial(described, arrays), [7, 8, 9]))

    fresh, written = zip(*found, strict=True)
    for a, (shape, dtype, fortran, content) in zip(arrays, fresh[0], strict=True):
        assert (shape, dtype, content) == (a.shape, a.dtype.str, a.tobytes())
        # A part of an array comes packed.
        assert fortran or not a.flags.f_contiguous
    assert written == tuple((arrays[0][0, 0], k) for k in (7, 8, 9))
    for a, b in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.usefixtures("same_two")
def test_unread_results_do_not_disturb_later_maps() -> None:
    """As where an error ends a loop over them, and a traceback keeps them."""
    with workers(2):
        kept = []
        for size in range(20, 40):
            unread = parallel_map(abs, range(-size, 0))
            kept.append(unread)
            assert list(islice(unread, 2)) == [size, size - 1]
            assert list(parallel_map(abs, range(-8, 0))) == [8, 7, 6, 5, 4, 3, 2, 1]
            if len(kept) > 3:
                kept.pop(0).close()


def test_processes_serve_all_of_a_block_and_end_with_it() -> None:
    with workers(2):
        first = set(parallel_map(process, range(20)))
        assert set(parallel_map(process, range(20))) <= first | {os.getpid()}
        assert os.getpid() not in first

    assert len(first) <= 2
    assert not any(map(alive, first))


def test_killed_processes_are_restarted() -> None:
    with LocalProcesses(2) as there:
        with pytest.raises(BrokenExecutor):
            list(results(there, _kill_itself, [1]))

        assert list(results(there, abs, [-1, -2])) == [1, 2]


def _kill_itself(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.usefixtures("same_two")
def test_lambdas_run_in_workers() -> None:
    base = np.arange(4)
    with workers(2):
        assert list(parallel_map(lambda k: int(base[k]), range(4))) == [0, 1, 2, 3]


def test_all_pieces_of_growing_processes_are_computed() -> None:
    """Loky restarts a process that grew by 300 MB, and warns in the thread that hands out work."""
    with workers(2):
        assert list(parallel_map(_grown, range(12))) == list(range(12))


@pytest.mark.usefixtures("same_two")
def test_processes_follow_into_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Paths of logs may be relative."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
        monkeypatch.chdir(tmp_path / name)
        with workers(2):
            assert {(str(tmp_path / name), True)} == set(parallel_map(place, [name] * 3))


def listening(_: int) -> set[str]:
    """Return the addresses at which this process waits for connections by TCP."""
    own = {str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()}
    found: set[str] = set()
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/self/net", table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in own:
                found.add(fields[1])
    return found


@pytest.mark.usefixtures("same_two")
@pytest.mark.skipif(sys.platform != "linux", reason="sockets are listed in /proc")
def test_local_processes_wait_at_no_address():
    """They are spoken to by pipes; Dask is only connected to, at the scheduler that is named."""
    before = listening(0)
    with workers(2):
        found = list(parallel_map(listening, range(4)))

    assert found == [set()] * 4
    assert listening(0) == before
    package = Path(evalstats_plugin.__file__).parent
    assert not [p for p in package.rglob("*.py") if "LocalCluster" in p.read_text()]


def test_pieces_of_a_killed_process_are_done_again(
    tmp_path: Path, killed_once: Callable[[int], int]
):
    with workers(2):
        assert n_workers() == 2
        found = list(parallel_map(killed_once, iter(range(40))))

    assert (tmp_path / "killed").exists()
    assert found == [k * k for k in range(40)]


def test_pieces_that_kill_their_process_are_given_up():
    with workers(2), pytest.raises(DesignError, match="were killed 4 times"):
        list(parallel_map(os._exit, [9]))


@pytest.mark.usefixtures("same_two")
def test_errors_come_through_and_nothing_stays_set():
    with workers(2), pytest.raises(DesignError, match="no"):
        list(parallel_map(failing, range(5)))

    assert n_workers() == 1
    assert list(parallel_map(abs, [-3])) == [3]


def test_after_an_error_the_processes_work_on() -> None:
    failed = list[threading.ExceptHookArgs]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading, "excepthook", failed.append)
        for _ in range(2):
            with workers(2):
                with pytest.raises(ZeroDivisionError):
                    list(parallel_map(_inverse, range(8)))
                assert list(parallel_map(abs, [-1, -2])) == [1, 2]

    assert failed == []


def _inverse(piece: int) -> float:
    time.sleep(0.01)
    return 1 / (piece - 2)


_KEPT: list[bytearray] = []


def _grown(piece: int) -> int:
    """Hold 400 MB from the third piece on; loky looks once a second."""
    if piece > 2 and not _KEPT:
        _KEPT.append(bytearray(b"x") * 400_000_000)
    time.sleep(0.4)
    return piece
