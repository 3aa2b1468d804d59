"""Independent pieces of work, one after the other or on the engine asked for.

Loky runs them in processes of this machine, joblib on a Dask cluster, Ray on one of its own.
Results come in the order of the pieces. No piece depends on who does it, and each is done by one
thread, as sums by several differ in their last digits: the same numbers, wherever.
"""
# PART local_processes - Processes of this machine that do pieces of work: see `engines`.
# PART compute_clusters - Connections to clusters that do pieces of work: see `engines`.
# PART progress - How far a long computation is, for whoever asked to be told.

from __future__ import annotations

import json
import mmap
import os
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import lru_cache, partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from evalstats_plugin.errors import DesignError, SelectionError, no_such

BACKENDS = ("loky", "dask", "ray")


_NEEDED = {
    "loky": ("joblib", "threadpoolctl"),
    "dask": ("joblib", "threadpoolctl", "distributed"),
    "ray": ("threadpoolctl", "ray"),
}


_RETRIES = 3
"""Times that a pool is made anew after one of its processes was killed."""


Result = TypeVar("Result")


_ENGINE: ContextVar[Engine | None] = ContextVar("evalstats_engine", default=None)


_ONE_THREAD = (
    "BLIS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS",
)  # fmt: skip


_AHEAD = 2
"""Pieces that are handed out for each process."""


_ALIGNED = 64


_CODER = "joblib.externals.loky.cloudpickle_wrapper"
"""That of loky: functions without a name, and those of a session, can be handed out too."""


_PACKAGE = "evalstats-plugin"


_ANSWER = 8.0
"""Seconds within which a scheduler says that it is one: Dask tries for 30, or waits for ever."""


_PATIENCE = 10
"""Seconds to wait for the first worker of a cluster."""


_LISTENER: ContextVar[Listener | None] = ContextVar("evalstats_irt_progress", default=None)


class Engine(NamedTuple):
    """What does the work."""

    n_jobs: int
    backend: str
    processes: LocalProcesses | None = None
    """Those of this machine."""


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


class LocalProcesses:
    """Started with the first piece, and again after one of them was killed.

    Loky itself, not joblib's `Parallel` on it: that shares its processes with whatever runs next,
    and kills them when results are left unread.
    """

    def __init__(self, n_jobs: int) -> None:
        self.n_jobs: int = n_jobs if n_jobs > 0 else import_module("joblib").cpu_count()
        self._executor: Any = None

    def results(
        self, function: Callable[[Any], Result], pieces: Iterable[Any]
    ) -> Generator[Result, None, None]:
        """Give ``function(piece)`` for each piece, in order; some pieces are taken ahead.

        Raises
        ------
        BrokenExecutor
            A process was killed; the next call starts others.
        """
        with _written(function) as folder:
            executor, waiting = self._ready(), deque[Any]()
            try:
                for piece in pieces:
                    waiting.append(executor.submit(_done, str(folder), piece))
                    if len(waiting) >= _AHEAD * self.n_jobs:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            except BrokenExecutor:
                self.close()
                raise
            finally:
                for left in waiting:
                    left.cancel()

    def close(self) -> None:
        """End them, whatever they are doing."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=True, kill_workers=True)

    def _ready(self) -> Any:
        if self._executor is None:
            loky: Any = import_module("joblib.externals.loky")
            one_thread = dict.fromkeys(_ONE_THREAD, "1")
            self._executor = loky.ProcessPoolExecutor(
                self.n_jobs, env=one_thread, initializer=_stay
            )
        return self._executor


def _stay() -> None:
    """Let a process grow: it ends with the block.

    Loky takes growth by 300 MB, such as importing torch, for a leak, ends the process, and warns in
    the thread that gives out the work. Where warnings are errors that is the end of this thread.
    """
    executor: Any = import_module("joblib.externals.loky.process_executor")
    executor._USE_PSUTIL = False


@contextmanager
def _written(function: Callable[..., Any]) -> Generator[Path, None, None]:
    """Write a function, with all that it holds, for the processes to read: anew for each piece.

    All share the memory of its arrays; what one writes to them nobody else sees.
    """
    arrays: list[Any] = []
    code: bytes = import_module(_CODER).dumps(function, protocol=5, buffer_callback=arrays.append)
    with tempfile.TemporaryDirectory(prefix="evalstats-") as name:
        folder, places = Path(name), list[tuple[int, int]]()
        with (folder / "arrays").open("wb") as file:
            # Nothing at all could not be mapped into memory.
            file.write(bytes(_ALIGNED))
            for array in arrays:
                file.write(bytes(-file.tell() % _ALIGNED))
                start = file.tell()
                places.append((start, start + file.write(array.raw())))
        (folder / "code").write_bytes(code)
        (folder / "places").write_text(json.dumps(places))
        yield folder


def _done(folder: str, piece: Any) -> Any:
    return _read(folder)(piece)


def _read(folder: str) -> Callable[[Any], Any]:
    places: list[tuple[int, int]] = json.loads((Path(folder) / "places").read_text())
    with (Path(folder) / "arrays").open("rb") as file:
        whole = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    buffers = [whole[start:stop] for start, stop in places]
    return import_module(_CODER).loads((Path(folder) / "code").read_bytes(), buffers=buffers)


@contextmanager
def on_dask(address: str | None) -> Generator[None, None, None]:
    """Connect to the Dask scheduler at an address; None starts a cluster here.

    Raises
    ------
    DesignError
        Where nobody answers, or there are no workers, or some with another version of ours.
    """
    distributed: Any = import_module("distributed")
    if address is not None:
        _check_answer(distributed, address)
    try:
        client = distributed.Client(address, set_as_default=True)
    except (OSError, ValueError) as error:
        raise _nobody(address, error) from error
    with client:
        try:
            client.wait_for_workers(1, timeout=_PATIENCE)
            check_versions(client.run(version, _PACKAGE))
        except TimeoutError as error:
            msg = f"the Dask scheduler at {address} has no workers: start some, dask worker ADDRESS"
            raise DesignError(msg) from error
        except ImportError as error:
            msg = f"the workers of {address} have no {_PACKAGE}: install it there ({error})"
            raise DesignError(msg) from error
        yield


def _check_answer(distributed: Any, address: str) -> None:
    """Raise where no Dask scheduler answers soon."""
    # Not at the top: commands that use no cluster start without it.
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    async def ask() -> None:
        security = distributed.Security().get_connection_args("client")
        # The greetings are part of it, for which a client would wait without end.
        comm = await distributed.comm.connect(address, timeout=_ANSWER, **security)
        comm.abort()

    def within_time() -> None:
        asyncio.run(asyncio.wait_for(ask(), _ANSWER))

    # In another thread, as this one may have a loop of its own that runs (notebooks).
    with ThreadPoolExecutor(1) as thread:
        try:
            thread.submit(within_time).result()
        except TimeoutError as error:
            raise _nobody(address, f"nothing was said in {_ANSWER:g} s") from error
        except Exception as error:
            # Who answers may speak another language, out of which anything can be read.
            raise _nobody(address, error) from error


def _nobody(address: str | None, why: object) -> DesignError:
    msg = (
        f"no Dask scheduler answers at {address} ({why}), expected the address that "
        "'dask scheduler' shows when it starts, such as tcp://host:8786"
    )
    return DesignError(msg)


@contextmanager
def on_ray(address: str | None) -> Generator[None, None, None]:
    """Connect to a Ray cluster; None starts one here. One that is connected already stays so.

    Raises
    ------
    DesignError
        Where nobody answers.
    """
    ray: Any = import_module("ray")
    ours = not ray.is_initialized()
    if ours:
        try:
            ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        except (ConnectionError, ValueError) as error:
            msg = f"no Ray cluster answers at {address}: {error}"
            raise DesignError(msg) from error
    try:
        yield
    finally:
        if ours:
            ray.shutdown()


def check_versions(found: dict[str, str]) -> None:
    """Raise where another version of the package would do the work."""
    own = version(_PACKAGE)
    for worker, theirs in found.items():
        if theirs != own:
            msg = f"{worker} has {_PACKAGE} {theirs}, here it is {own}: install the same"
            raise DesignError(msg)


class Progress(NamedTuple):
    """Where a computation stands."""

    stage: str
    """What it does, such as ``"step"`` or ``"draw"``."""
    done: int
    total: int | None
    """None where nobody can know, as for steps until convergence."""


Listener = Callable[[Progress], None]


@contextmanager
def telling(listener: Listener | None) -> Generator[None, None, None]:
    """Tell the listener of what is computed inside this block, in this thread."""
    before = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(before)


def tell_progress(stage: str, done: int, total: int | None = None) -> None:
    """Say how far it is, where someone listens.

    >>> heard = []
    >>> with telling(heard.append):
    ...     tell_progress("step", 3)
    >>> tell_progress("step", 4)
    >>> heard
    [Progress(stage='step', done=3, total=None)]
    """
    listener = _LISTENER.get()
    if listener is not None:
        listener(Progress(stage, done, total))


def told(stage: str, steps: range) -> Iterator[int]:
    """Give the steps one by one, telling of each.

    The total is told as well: where a loop may end before, it is the most that there can be.
    """
    for place, step in enumerate(steps, 1):
        tell_progress(stage, place, len(steps))
        yield step
