"""The same numbers whoever does the work, also where a process is killed in the middle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from evalstats_plugin.cli import main
from evalstats_plugin.errors import DesignError
from evalstats_plugin.runtime import workers as runtime_workers
from evalstats_plugin.runtime.workers import n_workers, parallel_map, workers

LOGS = Path(__file__).parents[2] / "fixtures" / "logs" / "lm_eval" / "0.4.13" / "out"


def summed(seed: int) -> float:
    """Return a sum of so many products that threads would share it, with other digits."""
    x, y = np.random.default_rng(seed).normal(size=(2, 200_000))
    return float(x @ y)


def test_a_cluster_that_loses_a_worker_gives_the_same(
    tmp_path: Path, killed_once: Callable[[int], int]
):
    distributed = pytest.importorskip("distributed")
    alone = list(parallel_map(summed, range(6)))
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", host="127.0.0.1"
        ) as cluster,
        workers(scheduler=cluster.scheduler_address),
    ):
        assert n_workers() == 2
        assert list(parallel_map(summed, range(6))) == alone
        found = list(parallel_map(killed_once, range(30)))

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


def test_unusable_arguments_are_refused():
    with pytest.raises(DesignError, match="0 processes cannot work"):
        workers(0).__enter__()


def test_commands_accept_jobs():
    report = ["report", str(LOGS), "-t", "es_mc", "--format", "csv"]
    alone, found, refused = (
        CliRunner().invoke(main, [*jobs, *report])
        for jobs in ((), ("--jobs", "2"), ("--jobs", "0"))
    )

    assert alone.stdout == found.stdout != ""
    assert (found.exit_code, refused.exit_code) == (0, 2)
    assert "0 processes cannot work" in refused.stderr
