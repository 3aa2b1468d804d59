"""Processes of this machine: what they are given, and when they end."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import BrokenExecutor
from functools import partial
from itertools import islice

import numpy as np
import pytest

from evalstats_plugin.runtime.workers import LocalProcesses, parallel_map, workers


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
    there = LocalProcesses(2)
    try:
        with pytest.raises(BrokenExecutor):
            list(there.results(_kill_itself, [1]))

        assert list(there.results(abs, [-1, -2])) == [1, 2]
    finally:
        there.close()


def _kill_itself(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_lambdas_run_in_workers() -> None:
    base = np.arange(4)
    with workers(2):
        assert list(parallel_map(lambda k: int(base[k]), range(4))) == [0, 1, 2, 3]


def test_a_growing_process_is_kept() -> None:
    """Loky would end it, with a warning that kills the thread that waits for it."""
    with workers(2):
        found = list(parallel_map(_grown, range(12)))

    assert len(set(found)) <= 2


_KEPT: list[bytearray] = []


def _grown(piece: int) -> int:
    """Hold 400 MB from the third piece on; loky looks once a second."""
    if piece > 2 and not _KEPT:
        _KEPT.append(bytearray(b"x") * 400_000_000)
    time.sleep(0.4)
    return os.getpid()
