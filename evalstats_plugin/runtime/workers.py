"""Parallel maps over processes, Dask or Ray, and progress reports of long computations.

Inside `workers`, `parallel_map` hands independent pieces of work to other processes: loky's on this
machine, joblib's on a Dask cluster, or Ray's. Results come in the order of the pieces. Each piece
is computed by one thread, because sums by several threads differ in their last digits: results are
the same wherever they are computed. `report_progress` calls the listener of `listening`.
"""

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
"""Times that a pool is restarted after one of its processes was killed."""

Result = TypeVar("Result")
_ENGINE: ContextVar[Engine | None] = ContextVar("evalstats_engine", default=None)

_ONE_THREAD = (
    "BLIS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS",
)  # fmt: skip

_AHEAD = 2
"""Pieces handed out ahead, per process."""

_ALIGNED = 64

_CODER = "joblib.externals.loky.cloudpickle_wrapper"
"""Loky's pickler, which can also handle lambdas and functions of an interactive session."""

_PACKAGE = "evalstats-plugin"

_ANSWER_TIMEOUT = 8.0
"""Seconds to wait for a scheduler's answer: Dask itself tries for 30, or waits for ever."""

_WORKER_TIMEOUT = 10
"""Seconds to wait for the first worker of a cluster."""

_LISTENER: ContextVar[Listener | None] = ContextVar("evalstats_irt_progress", default=None)


@contextmanager
def workers(
    n_jobs: int = -1, backend: str = "loky", address: str | None = None
) -> Generator[None, None, None]:
    """Run independent work in several processes inside this block.

    Independent are logs, bootstrap replicates, cross-validation folds, fits by metric and simulated
    tests.

    Parameters
    ----------
    n_jobs
        Number of processes; -1 is one for each core, or all of a cluster.
    backend
        ``"loky"``: on this machine. ``"dask"``, ``"ray"``: on a cluster, whose machines need this
        version of the package, and logs under the same paths.
    address
        Address of the scheduler of a running cluster; None starts a cluster here.

    Raises
    ------
    SelectionError
        Unknown backend, or one that is not installed.
    DesignError
        No processes, no scheduler at the address, or workers with another version of the package.

    Examples
    --------
    >>> with workers(2):
    ...     list(parallel_map(abs, [-1, 2]))
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
    """Number of pieces computed at once: 1 outside of `workers`."""
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


def parallel_map(
    function: Callable[..., Result], pieces: Iterable[Any], *, here: bool = False
) -> Iterator[Result]:
    """Yield `function(piece)` for each piece, in order.

    Outside of `workers`, or with `here`, pieces are computed lazily in this process. Exceptions of
    a piece are raised here. Pieces of a killed process are computed again by others.

    If pieces use torch, load it before the call, so that its threads can be limited.
    """
    engine = _ENGINE.get()
    if here or engine is None or engine.n_jobs == 1:
        yield from map(partial(_single_threaded, function), pieces)
        return
    fresh, pending = iter(pieces), deque[Any]()

    def handed_out(again: list[Any]) -> Iterator[Any]:
        yield from again
        for piece in fresh:
            pending.append(piece)
            yield piece

    # Clusters repeat the work of a lost process by themselves, and give up after a few times.
    retries = _RETRIES if engine.backend == "loky" else 0
    for attempt in range(retries + 1):
        try:
            for result in _tasks(engine, function, handed_out(list(pending))):
                pending.popleft()
                yield result
        except _loss_errors(engine) as error:
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


def _single_threaded(function: Callable[..., Result], piece: Any) -> Result:
    """Compute a piece in this process with one thread, and restore the threads afterwards."""
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
    """Limit NumPy's linear algebra to one thread."""
    found = _libraries(len(sys.modules))
    # Without threadpoolctl there are no workers either, whose results could differ.
    return nullcontext() if found is None else found.limit(limits=1)


@lru_cache(maxsize=1)
def _libraries(_n_modules: int) -> Any:
    """Find the threaded libraries; repeated only when modules were loaded, as it takes 1 ms."""
    try:
        return import_module("threadpoolctl").ThreadpoolController()
    except ImportError:
        return None


@contextmanager
def listening(listener: Listener | None) -> Generator[None, None, None]:
    """Report the progress of computations inside this block, in this thread, to the listener."""
    before = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(before)


def report_progress(stage: str, done: int, total: int | None = None) -> None:
    """Report progress to the registered listener, if any.

    >>> reports = []
    >>> with listening(reports.append):
    ...     report_progress("step", 3)
    >>> report_progress("step", 4)
    >>> reports
    [Progress(stage='step', done=3, total=None)]
    """
    listener = _LISTENER.get()
    if listener is not None:
        listener(Progress(stage, done, total))


def with_progress(stage: str, steps: range) -> Iterator[int]:
    """Yield the steps one by one, and report each.

    The reported total is the number of steps: an upper bound where a loop may end before.
    """
    for place, step in enumerate(steps, 1):
        report_progress(stage, place, len(steps))
        yield step


class Progress(NamedTuple):
    """State of a computation."""

    stage: str
    """Kind of step, such as ``"step"`` or ``"draw"``."""
    done: int
    total: int | None
    """None where unknown, as for steps until convergence."""


Listener = Callable[[Progress], None]


class Engine(NamedTuple):
    """Backend of the enclosing `workers` block."""

    n_jobs: int
    backend: str
    processes: LocalProcesses | None = None
    """Local processes, for loky."""


def _tasks(
    engine: Engine, function: Callable[..., Result], pieces: Iterator[Any]
) -> Iterator[Result]:
    if engine.processes is not None:
        there = partial(_in_worker, str(Path.cwd()), function)
        return engine.processes.results(there, pieces)
    return (_ray_tasks if engine.backend == "ray" else _dask_tasks)(engine, function, pieces)


def _in_worker(folder: str, function: Callable[..., Result], piece: Any) -> Result:
    """Compute a piece in a worker process, in the same folder if it exists there."""
    if str(Path.cwd()) != folder and Path(folder).is_dir():
        os.chdir(folder)
    # Not undone: another thread of this process may be computing a piece.
    _limited()
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)
    return function(piece)


def _dask_tasks(
    engine: Engine, function: Callable[..., Result], pieces: Iterator[Any]
) -> Iterator[Result]:
    joblib: Any = import_module("joblib")
    # If Parallel itself got n_jobs, joblib 1.6 would pass arguments to Dask that it does not know.
    with joblib.parallel_config(engine.backend, n_jobs=engine.n_jobs):
        parallel = joblib.Parallel(return_as="generator")
    run = joblib.delayed(partial(_in_worker, str(Path.cwd()), function))
    return parallel(run(piece) for piece in pieces)


def _ray_tasks(
    engine: Engine, function: Callable[..., Result], pieces: Iterator[Any]
) -> Iterator[Result]:
    # Not by joblib: with Ray's backend it returns results only when all are there.
    ray: Any = import_module("ray")
    task, sent = ray.remote(max_retries=_RETRIES)(_in_worker), ray.put(function)
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


def _loss_errors(engine: Engine) -> tuple[type[Exception], ...]:
    """Exceptions raised when a process is lost, on a cluster repeatedly."""
    home, names = {
        "loky": ("joblib.externals.loky.process_executor", ("TerminatedWorkerError",)),
        "dask": ("distributed", ("KilledWorker",)),
        "ray": ("ray.exceptions", ("WorkerCrashedError", "OutOfMemoryError", "NodeDiedError")),
    }[engine.backend]
    return tuple(getattr(import_module(home), name) for name in names)


class LocalProcesses:
    """Pool of loky processes, started with the first piece, and again after one was killed.

    Not joblib's `Parallel`, which shares its processes with whatever runs next, and kills them when
    results are left unread.
    """

    def __init__(self, n_jobs: int) -> None:
        self.n_jobs: int = n_jobs if n_jobs > 0 else import_module("joblib").cpu_count()
        self._executor: Any = None

    def results(
        self, function: Callable[[Any], Result], pieces: Iterable[Any]
    ) -> Generator[Result, None, None]:
        """Yield ``function(piece)`` for each piece, in order; some pieces are computed ahead.

        Raises
        ------
        BrokenExecutor
            A process was killed; the next call starts new ones.
        """
        with _shared(function) as folder:
            executor, waiting = self._ready(), deque[Any]()
            try:
                for piece in pieces:
                    waiting.append(executor.submit(_run, str(folder), piece))
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
        """Kill the processes, even in the middle of a piece."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=True, kill_workers=True)

    def _ready(self) -> Any:
        if self._executor is None:
            loky: Any = import_module("joblib.externals.loky")
            one_thread = dict.fromkeys(_ONE_THREAD, "1")
            self._executor = loky.ProcessPoolExecutor(
                self.n_jobs, env=one_thread, initializer=_allow_memory_growth
            )
        return self._executor


def _allow_memory_growth() -> None:
    """Switch off loky's memory check; processes end with the block anyway.

    Loky treats growth by 300 MB, such as importing torch, as a leak, ends the process, and warns in
    the thread that hands out the work. Where warnings are errors, that ends the thread.
    """
    executor: Any = import_module("joblib.externals.loky.process_executor")
    executor._USE_PSUTIL = False


@contextmanager
def _shared(function: Callable[..., Any]) -> Generator[Path, None, None]:
    """Pickle a function to a temporary folder, from which workers load it for each piece.

    Workers map its arrays into shared memory, copy on write.
    """
    arrays: list[Any] = []
    code: bytes = import_module(_CODER).dumps(function, protocol=5, buffer_callback=arrays.append)
    with tempfile.TemporaryDirectory(prefix="evalstats-") as name:
        folder, places = Path(name), list[tuple[int, int]]()
        with (folder / "arrays").open("wb") as file:
            # An empty file cannot be mapped into memory.
            file.write(bytes(_ALIGNED))
            for array in arrays:
                file.write(bytes(-file.tell() % _ALIGNED))
                start = file.tell()
                places.append((start, start + file.write(array.raw())))
        (folder / "code").write_bytes(code)
        (folder / "places").write_text(json.dumps(places))
        yield folder


def _run(folder: str, piece: Any) -> Any:
    """Apply the function of `_shared` to a piece, in a worker process."""
    places: list[tuple[int, int]] = json.loads((Path(folder) / "places").read_text())
    with (Path(folder) / "arrays").open("rb") as file:
        whole = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    buffers = [whole[start:stop] for start, stop in places]
    code = (Path(folder) / "code").read_bytes()
    return import_module(_CODER).loads(code, buffers=buffers)(piece)


@contextmanager
def on_dask(address: str | None) -> Generator[None, None, None]:
    """Connect to the Dask scheduler at an address; None starts a cluster here.

    Raises
    ------
    DesignError
        No scheduler answers, or it has no workers, or some have another version of the package.
    """
    distributed: Any = import_module("distributed")
    if address is not None:
        _check_answer(distributed, address)
    try:
        client = distributed.Client(address, set_as_default=True)
    except (OSError, ValueError) as error:
        raise _no_scheduler(address, error) from error
    with client:
        try:
            client.wait_for_workers(1, timeout=_WORKER_TIMEOUT)
            check_versions(client.run(version, _PACKAGE))
        except TimeoutError as error:
            msg = f"the Dask scheduler at {address} has no workers: start some, dask worker ADDRESS"
            raise DesignError(msg) from error
        except ImportError as error:
            msg = f"the workers of {address} have no {_PACKAGE}: install it there ({error})"
            raise DesignError(msg) from error
        yield


def _check_answer(distributed: Any, address: str) -> None:
    """Raise `DesignError` unless a Dask scheduler answers in time."""
    # Not at the top: commands that use no cluster start without it.
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    async def ask() -> None:
        security = distributed.Security().get_connection_args("client")
        # Includes the handshake, for which a client would wait for ever.
        comm = await distributed.comm.connect(address, timeout=_ANSWER_TIMEOUT, **security)
        comm.abort()

    def within_time() -> None:
        asyncio.run(asyncio.wait_for(ask(), _ANSWER_TIMEOUT))

    # In another thread, because this one may have a running event loop (notebooks).
    with ThreadPoolExecutor(1) as thread:
        try:
            thread.submit(within_time).result()
        except TimeoutError as error:
            raise _no_scheduler(address, f"nothing was said in {_ANSWER_TIMEOUT:g} s") from error
        except Exception as error:
            # Another kind of server may answer anything.
            raise _no_scheduler(address, error) from error


def _no_scheduler(address: str | None, why: object) -> DesignError:
    msg = (
        f"no Dask scheduler answers at {address} ({why}), expected the address that "
        "'dask scheduler' shows when it starts, such as tcp://host:8786"
    )
    return DesignError(msg)


@contextmanager
def on_ray(address: str | None) -> Generator[None, None, None]:
    """Connect to a Ray cluster; None starts one here. An existing connection is kept.

    Raises
    ------
    DesignError
        No cluster answers.
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
    """Raise `DesignError` if a worker has another version of the package."""
    own = version(_PACKAGE)
    for worker, theirs in found.items():
        if theirs != own:
            msg = f"{worker} has {_PACKAGE} {theirs}, here it is {own}: install the same"
            raise DesignError(msg)
