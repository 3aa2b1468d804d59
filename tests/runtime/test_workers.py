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
from typing import Any

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info

from evalstats_plugin import read
from evalstats_plugin.errors import DesignError, LogError, SelectionError
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


def failing(k: int) -> int:
    """Raise for one piece."""
    if k == 2:
        msg = "no"
        raise DesignError(msg)
    return k


def where(name: str) -> tuple[str, bool]:
    """Folder of the process that does this, and whether it finds a file in it."""
    return os.getcwd(), Path(name).exists()  # noqa: PTH109


def threads(_piece: int) -> tuple[int, list[int]]:
    """Threads of torch, and of the libraries of numpy and scipy."""
    return torch.get_num_threads(), [lib["num_threads"] for lib in threadpool_info()]


def resampled(over: str = "items") -> np.ndarray:
    """Bootstrapped abilities, of so many answers that sums would be shared by threads."""
    rng = np.random.default_rng(4)
    matrix = draw_responses(draw_truth(rng, 20, 500), rng)
    options = BootstrapOptions(over=over, n_resamples=40, kind="rasch")
    return bootstrap(counts_of(matrix, device="cpu"), options, rng).ability.replicates


def test_pieces_of_a_killed_process_are_done_again(tmp_path: Path):
    with workers(2):
        assert n_workers() == 2
        found = list(parallel_map(partial(killed_once, tmp_path), iter(range(40))))

    assert (tmp_path / "killed").exists()
    assert found == [k * k for k in range(40)]


@pytest.mark.parametrize("over", ["items", "models", "parametric"])
def test_a_bootstrap_has_the_same_replicates(over: str):
    alone = resampled(over)
    with workers(2):
        np.testing.assert_array_equal(resampled(over), alone)


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


def test_processes_follow_into_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Paths of logs may be relative."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
        monkeypatch.chdir(tmp_path / name)
        with workers(2):
            assert {(str(tmp_path / name), True)} == set(parallel_map(where, [name] * 3))


def test_pieces_that_kill_their_process_are_given_up():
    with workers(2), pytest.raises(DesignError, match="were killed 4 times"):
        list(parallel_map(os._exit, [9]))


def test_a_cluster_that_loses_a_worker_gives_the_same(tmp_path: Path):
    distributed = pytest.importorskip("distributed")
    alone = resampled()
    with (
        distributed.LocalCluster(
            n_workers=3, threads_per_worker=1, dashboard_address=None, host="127.0.0.1"
        ) as cluster,
        workers(backend="dask", address=cluster.scheduler_address),
    ):
        assert n_workers() == 3
        np.testing.assert_array_equal(resampled(), alone)
        found = list(parallel_map(partial(killed_once, tmp_path), range(30)))

    assert (tmp_path / "killed").exists()
    assert found == [k * k for k in range(30)]


# Killing its processes, loky at times sets an exception on a piece that was cancelled just before.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_errors_come_through_and_nothing_stays_set():
    with workers(2), pytest.raises(DesignError, match="no"):
        list(parallel_map(failing, range(5)))

    assert n_workers() == 1
    assert list(parallel_map(abs, [-3])) == [3]


def test_a_lost_cluster_is_reported(monkeypatch: pytest.MonkeyPatch):
    """As Dask says it, whose scheduler was killed."""

    def lost(_engine: object, function: Callable[[int], int], pieces: Iterator[int]) -> Any:
        yield function(next(pieces))
        raise CancelledError("scheduler-connection-lost")

    monkeypatch.setattr(runtime_workers, "_tasks", lost)
    with workers(2), pytest.raises(DesignError, match="connection to the cluster was lost: sch"):
        list(parallel_map(abs, [1, 2]))


def test_unusable_arguments_are_refused():
    with pytest.raises(SelectionError, match="no backend is called 'daks'; did you mean dask"):
        workers(2, "daks").__enter__()
    with pytest.raises(DesignError, match="0 processes asked for"):
        workers(0).__enter__()
    with pytest.raises(SelectionError, match="which is of a cluster: take backend dask or ray"):
        workers(2, address="tcp://127.0.0.1:1").__enter__()


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
    assert "0 processes asked for" in refused.stderr


def test_ray_that_loses_a_worker_gives_the_same(tmp_path: Path):
    ray = pytest.importorskip("ray")
    alone, logs = resampled(), read(LOGS).to_frame()
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        with workers(backend="ray"):
            assert n_workers() == 2
            np.testing.assert_array_equal(resampled(), alone)
            assert read(LOGS).to_frame().equals(logs)
            assert list(parallel_map(partial(killed_once, tmp_path), range(30))) == [
                k * k for k in range(30)
            ]
            with pytest.raises(DesignError, match=r"^no$"):
                list(parallel_map(failing, range(5)))
            with pytest.raises(DesignError, match="were killed 4 times"):
                list(parallel_map(os._exit, [9]))
        assert ray.is_initialized()
    finally:
        ray.shutdown()

    assert (tmp_path / "killed").exists()
