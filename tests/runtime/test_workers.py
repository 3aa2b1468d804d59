"""The same numbers whoever does the work, also where a process is killed in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.adaptive.simulation import simulate
from evalstats_plugin.errors import DesignError
from evalstats_plugin.runtime import workers as runtime_workers
from evalstats_plugin.runtime.workers import n_workers, parallel_map, workers

LOGS = Path(__file__).parents[2] / "fixtures" / "logs" / "lm_eval" / "0.4.13" / "out"


def killed_once(folder: Path, k: int) -> int:
    """Kill the process that does the third piece, the first time it is done."""
    if k == 3 and not (folder / "killed").exists():
        (folder / "killed").touch()
        # Others are under way.
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGKILL)
    return k * k


def simulated() -> list[float]:
    """Errors of adaptive tests on so many items that sums would be shared by threads."""
    rng = np.random.default_rng(0)
    bank = ItemBank.from_arrays(rng.uniform(0.5, 2, 4000), rng.normal(size=4000))
    return [row.score_mae for row in simulate(bank, [5], n_models=20, rng=1)]


def test_a_cluster_that_loses_a_worker_gives_the_same(tmp_path: Path):
    distributed = pytest.importorskip("distributed")
    alone = simulated()
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", host="127.0.0.1"
        ) as cluster,
        workers(scheduler=cluster.scheduler_address),
    ):
        assert n_workers() == 2
        assert simulated() == alone
        found = list(parallel_map(partial(killed_once, tmp_path), range(30)))

    assert (tmp_path / "killed").exists()
    assert found == [k * k for k in range(30)]


def lost_function(submit: Callable[[int], Future[int]], times: list[int]) -> Callable[[int], Any]:
    """Let the second piece be cancelled the first time, as when a function goes with its worker."""

    def submitted(piece: int) -> Any:
        if piece == 2 and not times:
            times.append(1)
            cancelled = Future[int]()
            cancelled.cancel()
            return cancelled
        return submit(piece)

    return submitted


def test_pieces_whose_function_was_lost_are_repeated_while_the_cluster_answers(
    monkeypatch: pytest.MonkeyPatch,
):
    distributed = pytest.importorskip("distributed")
    times = list[int]()
    sent = runtime_workers.DaskWorkers.sent

    @contextmanager
    def losing(self: runtime_workers.DaskWorkers, function: Callable[[int], int]):
        with sent(self, function) as submit:
            yield lost_function(submit, times)

    monkeypatch.setattr(runtime_workers.DaskWorkers, "sent", losing)
    with (
        distributed.LocalCluster(
            n_workers=2, processes=False, dashboard_address=":0", protocol="tcp://"
        ) as cluster,
        workers(scheduler=cluster.scheduler_address),
    ):
        assert list(parallel_map(abs, range(6))) == list(range(6))
    assert times == [1]


def test_a_lost_cluster_is_reported(monkeypatch: pytest.MonkeyPatch):
    """With the error that Dask raises when its scheduler was killed."""
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=1, processes=False, dashboard_address=":0", protocol="tcp://"
        ) as cluster,
        workers(scheduler=cluster.scheduler_address),
    ):

        def lost(processes: Any, function: Callable[[int], int], pieces: Iterator[int]):
            yield function(next(pieces))
            processes.client.close()
            raise CancelledError("scheduler-connection-lost")

        monkeypatch.setattr(runtime_workers, "results", lost)
        with pytest.raises(DesignError, match="connection to the cluster was lost: sch"):
            list(parallel_map(abs, [1, 2]))


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


@pytest.mark.skipif(sys.platform != "linux", reason="sockets are listed in /proc")
def test_local_processes_wait_at_no_address():
    """They are spoken to by pipes; Dask is only connected to, at the scheduler that is named."""
    before = listening(0)
    with workers(2):
        found = list(parallel_map(listening, range(4)))

    assert found == [set()] * 4
    assert listening(0) == before
    package = Path(runtime_workers.__file__).parents[1]
    assert not [p for p in package.rglob("*.py") if "LocalCluster" in p.read_text()]


def test_unusable_arguments_are_refused():
    with pytest.raises(DesignError, match="0 processes cannot work"):
        workers(0).__enter__()


def test_commands_accept_jobs(run: Callable[..., subprocess.CompletedProcess[str]]):
    report = ["report", str(LOGS), "-t", "es_mc", "--format", "csv"]
    alone, refused = run(*report), run("--jobs", "0", *report)
    found = subprocess.run(
        [sys.executable, "-m", "evalstats_plugin", "--jobs", "2", *report],
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert alone.stdout == found.stdout != ""
    assert (found.returncode, refused.returncode) == (0, 2)
    assert "0 processes cannot work" in refused.stderr
