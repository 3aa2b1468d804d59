"""What is said where a cluster is not as it should be."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from importlib.metadata import version

import pytest

from evalstats_plugin.errors import DesignError
from evalstats_plugin.runtime import workers as runtime_workers
from evalstats_plugin.runtime.workers import check_versions, workers

distributed = pytest.importorskip("distributed")


@pytest.fixture
def silent() -> Iterator[str]:
    """Address of somebody who takes calls and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"tcp://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def free() -> str:
    """Address where there is nobody."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"tcp://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("who", ["silent", "free"])
def test_a_missing_scheduler_is_reported_soon(
    who: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
):
    """Dask itself tries the second for 30 s, and waits for the first as long as it lives."""
    monkeypatch.setattr(runtime_workers, "_ANSWER_TIMEOUT", 0.5)
    address = request.getfixturevalue(who)
    start = time.perf_counter()
    with pytest.raises(DesignError, match=f"no Dask scheduler answers at {address} .*: pass the"):
        workers(scheduler=address).__enter__()

    assert time.perf_counter() - start < 15


def test_an_invalid_address_is_reported():
    with pytest.raises(DesignError, match=r"at nonsense \(missing port number"):
        workers(scheduler="nonsense").__enter__()


def test_the_time_to_answer_is_short():
    assert runtime_workers._ANSWER_TIMEOUT <= 10


def test_a_cluster_without_workers_or_with_other_versions_is_refused(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(runtime_workers, "_WORKER_TIMEOUT", 0.2)
    with (
        distributed.LocalCluster(n_workers=0, dashboard_address=":0", host="127.0.0.1") as cluster,
        pytest.raises(DesignError, match="has no workers: start some"),
    ):
        workers(scheduler=cluster.scheduler_address).__enter__()
    with pytest.raises(DesignError, match=r"tcp://b has evalstats-plugin 0\.0\.9, here it is"):
        check_versions({"tcp://a": version("evalstats-plugin"), "tcp://b": "0.0.9"})
