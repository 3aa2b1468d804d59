"""Independent pieces of work, one after the other or on the engine asked for.

Loky runs them in processes of this machine, joblib on a Dask cluster, Ray on one of its own.
Results come in the order of the pieces. No piece depends on who does it, and each is done by one
thread, as sums by several differ in their last digits: the same numbers, wherever.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import lru_cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from evalstats_plugin.compute_clusters import on_dask, on_ray
from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.local_processes import LocalProcesses
from evalstats_plugin.wording import no_such

BACKENDS = ("loky", "dask", "ray")
_NEEDED = {
    "loky": ("joblib", "threadpoolctl"),
    "dask": ("joblib", "threadpoolctl", "distributed"),
    "ray": ("threadpoolctl", "ray"),
}
_RETRIES = 3
"""Times that a pool is made anew after one of its processes was killed."""

Result = TypeVar("Result")


class Engine(NamedTuple):
    """What does the work."""

    n_jobs: int
    backend: str
    processes: LocalProcesses | None = None
    """Those of this machine."""


_ENGINE: ContextVar[Engine | None] = ContextVar("evalstats_engine", default=None)


@contextmanager
def workers(
    n_jobs: int = -1, backend: str = "loky", address: str | None = None
) -> Generator[None, None, None]:
    """Do what is independent in several processes at once, inside this block.

    Logs, replicates of bootstraps, folds of cross-validations, fits by metric and simulated
    tests are.

    Parameters
    ----------
    n_jobs
        Processes; -1 is one for each core, or all of a cluster.
    backend
        ``"loky"``: on this machine. ``"dask"``, ``"ray"``: on a cluster, whose machines have this
        version of the package, and find logs under the same paths.
    address
        Of the scheduler of a running cluster; None starts one here.

    Raises
    ------
    SelectionError
        No such backend, or one that is not installed.
    DesignError
        No processes, or nobody at the address, or workers with another version of the package.

    Examples
    --------
    >>> with workers(2):
    ...     list(mapped(abs, [-1, 2]))
    [1, 2]
    """
    if backend not in BACKENDS:
        raise SelectionError(no_such("backend", backend, BACKENDS, ", ".join(BACKENDS)))
    if n_jobs == 0 or n_jobs < -1:
        msg = f"{n_jobs} processes asked for, expected 1 or more, or -1 for all cores"
        raise DesignError(msg)
    if address is not None and backend == "loky":
        msg = f"address {address!r} found, which is of a cluster: take backend dask or ray"
        raise SelectionError(msg)
    for module in _NEEDED[backend]:
        try:
            import_module(module)
        except ImportError as error:
            msg = f"workers need {module}, which is not installed: pip install {module}"
            raise SelectionError(msg) from error
    connected = {"loky": nullcontext, "dask": on_dask, "ray": on_ray}[backend]
    with connected(address):
        processes = LocalProcesses(n_jobs) if backend == "loky" else None
        token = _ENGINE.set(Engine(n_jobs, backend, processes))
        try:
            yield
        finally:
            _ENGINE.reset(token)
            if processes is not None:
                processes.close()


def n_workers() -> int:
    """How many pieces are done at once: 1 outside of `workers`."""
    engine = _ENGINE.get()
    if engine is None:
        return 1
    if engine.processes is not None:
        return engine.processes.n_jobs
    if engine.backend == "ray":
        ray: Any = import_module("ray")
        return engine.n_jobs if engine.n_jobs > 0 else int(ray.cluster_resources()["CPU"])
    joblib: Any = import_module("joblib")
    with joblib.parallel_config(backend=engine.backend):
        return max(1, int(joblib.effective_n_jobs(engine.n_jobs)))


def mapped(
    function: Callable[..., Result], pieces: Iterable[Any], *, here: bool = False
) -> Iterator[Result]:
    """Give `function(piece)` for each piece, in order.

    In this process outside of `workers`, or if it is to be `here`: each when it is asked for. What
    a piece raises is raised here. Pieces of a process that is killed are done again by others.

    Where pieces use torch it is loaded before this is called, so that its threads can be limited.
    """
    engine = _ENGINE.get()
    if here or engine is None or engine.n_jobs == 1:
        yield from map(partial(_by_one_thread, function), pieces)
        return
    fresh, pending = iter(pieces), deque[Any]()

    def handed_out(again: list[Any]) -> Iterator[Any]:
        yield from again
        for piece in fresh:
            pending.append(piece)
            yield piece

    # Clusters do the work of a lost process again by themselves, and give up after a few times.
    retries = _RETRIES if engine.backend == "loky" else 0
    for attempt in range(retries + 1):
        try:
            for result in _tasks(engine, function, handed_out(list(pending))):
                pending.popleft()
                yield result
        except _killed(engine) as error:
            if attempt == retries:
                msg = (
                    f"processes were killed {_RETRIES + 1} times, likely for lack of memory: take "
                    "fewer (n_jobs)"
                )
                raise DesignError(msg) from error
        except CancelledError as error:
            raise DesignError(f"the connection to the cluster was lost: {error}") from error
        else:
            return


def _by_one_thread(function: Callable[..., Result], piece: Any) -> Result:
    """Do a piece here; threads are as before afterwards."""
    torch: Any = sys.modules.get("torch")
    if torch is None:
        with _limited():
            return function(piece)
    threads = torch.get_num_threads()
    with _limited():
        torch.set_num_threads(1)
        try:
            return function(piece)
        finally:
            torch.set_num_threads(threads)


def _limited() -> Any:
    """Keep numpy's linear algebra to one thread."""
    found = _libraries(len(sys.modules))
    # Without it there are no workers either, whose numbers could be others.
    return nullcontext() if found is None else found.limit(limits=1)


@lru_cache(maxsize=1)
def _libraries(_n_modules: int) -> Any:
    """Find the libraries that have threads: anew when modules were loaded, as it takes 1 ms."""
    try:
        return import_module("threadpoolctl").ThreadpoolController()
    except ImportError:
        return None


def _elsewhere(folder: str, function: Callable[..., Result], piece: Any) -> Result:
    """Do a piece in a process of ours, in the same folder, should it be there."""
    if str(Path.cwd()) != folder and Path(folder).is_dir():
        os.chdir(folder)
    # Not undone: another thread of this process may be in the middle of a piece.
    _limited()
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)
    return function(piece)


def _tasks(
    engine: Engine, function: Callable[..., Result], pieces: Iterator[Any]
) -> Iterator[Result]:
    if engine.processes is not None:
        there = partial(_elsewhere, str(Path.cwd()), function)
        return engine.processes.results(there, pieces)
    return (_ray_tasks if engine.backend == "ray" else _dask_tasks)(engine, function, pieces)


def _dask_tasks(
    engine: Engine, function: Callable[..., Result], pieces: Iterator[Any]
) -> Iterator[Result]:
    joblib: Any = import_module("joblib")
    # Threads named in Parallel itself, joblib 1.6 hands Dask arguments that it does not know.
    with joblib.parallel_config(engine.backend, n_jobs=engine.n_jobs):
        parallel = joblib.Parallel(return_as="generator")
    run = joblib.delayed(partial(_elsewhere, str(Path.cwd()), function))
    return parallel(run(piece) for piece in pieces)


def _ray_tasks(
    engine: Engine, function: Callable[..., Result], pieces: Iterator[Any]
) -> Iterator[Result]:
    # Not by joblib: Ray's backend for it gives results only when all are there.
    ray: Any = import_module("ray")
    task, sent = ray.remote(max_retries=_RETRIES)(_elsewhere), ray.put(function)
    room = engine.n_jobs if engine.n_jobs > 0 else 2 * n_workers()
    folder, waiting, unfinished = str(Path.cwd()), deque[Any](), list[Any]()

    def first() -> Any:
        try:
            return ray.get(waiting.popleft())
        except ray.exceptions.RayTaskError as error:
            raise error.cause from error

    try:
        for piece in pieces:
            while len(unfinished) >= room:
                _, unfinished = ray.wait(unfinished)
            unfinished.append(task.remote(folder, sent, piece))
            waiting.append(unfinished[-1])
            while waiting[0] not in unfinished:
                yield first()
        while waiting:
            yield first()
    finally:
        for left in waiting:
            ray.cancel(left)


def _killed(engine: Engine) -> tuple[type[Exception], ...]:
    """What is raised when a process is gone, and on a cluster gone too often."""
    home, names = {
        "loky": ("joblib.externals.loky.process_executor", ("TerminatedWorkerError",)),
        "dask": ("distributed", ("KilledWorker",)),
        "ray": ("ray.exceptions", ("WorkerCrashedError", "OutOfMemoryError", "NodeDiedError")),
    }[engine.backend]
    return tuple(getattr(import_module(home), name) for name in names)
