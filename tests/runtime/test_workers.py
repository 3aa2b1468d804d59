"""The same numbers whoever does the work, also where a process is killed in the middle."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info

from evalstats_plugin import read
from evalstats_plugin.errors import DesignError, LogError
from evalstats_plugin.irt.estimators.refits import BootstrapOptions, bootstrap
from evalstats_plugin.irt.model.data import counts_of
from evalstats_plugin.irt.model.simulate import draw_responses, draw_truth
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


def threads(_piece: int) -> tuple[int, list[int]]:
    """Threads of torch, and of the libraries of numpy and scipy."""
    return torch.get_num_threads(), [lib["num_threads"] for lib in threadpool_info()]


def resampled(over: str = "items") -> np.ndarray:
    """Bootstrapped abilities, of so many answers that sums would be shared by threads."""
    rng = np.random.default_rng(4)
    matrix = draw_responses(draw_truth(rng, 20, 500), rng)
    options = BootstrapOptions(over=over, n_resamples=40, kind="rasch")
    return bootstrap(counts_of(matrix, device="cpu"), options, rng).ability.replicates


def test_a_bootstrap_has_the_same_replicates():
    alone = {over: resampled(over) for over in ("items", "models", "parametric")}
    with workers(2):
        for over, expected in alone.items():
            np.testing.assert_array_equal(resampled(over), expected)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_piece_is_done_by_one_thread(n_jobs: int):
    """Sums that several share differ in their last digits: the control, with two."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with workers(n_jobs):
            found = list(parallel_map(threads, range(3)))

        assert {1} == {number for own, others in found for number in (own, *others)}
        assert torch.get_num_threads() == 2
        assert threads(0)[0] == 2
    finally:
        torch.set_num_threads(before)


def test_a_cluster_that_loses_a_worker_gives_the_same(tmp_path: Path):
    distributed = pytest.importorskip("distributed")
    alone = resampled()
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, host="127.0.0.1"
        ) as cluster,
        workers(scheduler=cluster.scheduler_address),
    ):
        assert n_workers() == 2
        np.testing.assert_array_equal(resampled(), alone)
        found = list(parallel_map(partial(killed_once, tmp_path), range(30)))

    assert (tmp_path / "killed").exists()
    assert found == [k * k for k in range(30)]


def test_a_lost_cluster_is_reported(monkeypatch: pytest.MonkeyPatch):
    """With the error that Dask raises when its scheduler was killed."""

    def lost(_: object, function: Callable[[int], int], pieces: Iterator[int]) -> Iterator[int]:
        yield function(next(pieces))
        raise CancelledError("scheduler-connection-lost")

    monkeypatch.setattr(runtime_workers, "results", lost)
    with workers(2), pytest.raises(DesignError, match="connection to the cluster was lost: sch"):
        list(parallel_map(abs, [1, 2]))


def test_unusable_arguments_are_refused():
    with pytest.raises(DesignError, match="0 processes cannot work"):
        workers(0).__enter__()


def test_logs_are_read_the_same_in_several_processes():
    alone = read(LOGS).to_frame()
    heard: list[int] = []
    with workers(2):
        found = read(LOGS, on_log=lambda _log, i, _n: heard.append(i))

    assert found.to_frame().equals(alone)
    assert heard == list(range(len(heard)))
    assert len(heard) >= 3


def test_broken_logs_are_reported_as_without_workers(tmp_path: Path):
    shutil.copytree(LOGS, tmp_path / "logs")
    samples = next((tmp_path / "logs").rglob("samples_es_mc_*.jsonl"))
    samples.write_text(samples.read_text()[:100])
    with pytest.raises(LogError) as alone:
        read(tmp_path / "logs")
    with workers(2):
        with pytest.raises(LogError) as found:
            read(tmp_path / "logs")
        notes = read(tmp_path / "logs", skip_broken=True).notes

    assert str(found.value) == str(alone.value)
    assert notes == read(tmp_path / "logs", skip_broken=True).notes


def test_commands_accept_jobs():
    command = [sys.executable, "-m", "evalstats_plugin"]
    report = ["report", str(LOGS), "-t", "es_mc", "--format", "csv"]
    alone, found, refused = (
        subprocess.run([*command, *more, *report], capture_output=True, text=True, check=False)
        for more in ((), ("--jobs", "2"), ("--jobs", "0"))
    )

    assert alone.stdout == found.stdout != ""
    assert (found.returncode, refused.returncode) == (0, 2)
    assert "0 processes cannot work" in refused.stderr
