"""Parallel maps over processes of this machine or of a Dask cluster.

Inside `workers`, `parallel_map` hands independent pieces of work to other processes. Results come
in the order of the pieces. Each piece is computed by one thread, because sums by several threads
differ in their last digits: results are the same wherever they are computed.
"""

from __future__ import annotations

import json
import mmap
import os
import pickle
import sys
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Future, wait
from contextlib import closing, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from evalstats_plugin.errors import DesignError, SelectionError, install_hint
from evalstats_plugin.runtime.writing import scratch_folder

_RETRIES = 3
"""Times that processes of this machine are started again after one was killed."""

Result = TypeVar("Result")
_PROCESSES: ContextVar[Processes | None] = ContextVar("evalstats_processes", default=None)

_ONE_THREAD = (
    "BLIS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS",
)  # fmt: skip

_AHEAD = 2
"""Pieces handed out ahead, per process."""

_ALIGNED = 64

_PACKAGE = "evalstats-plugin"

_ANSWER_TIMEOUT = 8.0
"""Seconds to wait for a scheduler's answer: Dask itself tries for 30, or waits without end."""

_WORKER_TIMEOUT = 10
"""Seconds to wait for the first worker of a cluster."""


@contextmanager
def workers(n_jobs: int = -1, *, scheduler: str | None = None) -> Generator[None, None, None]:
    """Run independent work in several processes inside this block.

    Independent are logs, bootstrap replicates, cross-validation folds, fits by metric and simulated
    tests.

    Parameters
    ----------
    n_jobs
        Number of processes; -1 is one for each core, or all of a cluster.
    scheduler
        Address of a running Dask scheduler, such as ``"tcp://host:8786"``, whose workers do the
        work. They need this version of the package, and logs under the same paths. Default:
        processes of this machine.

    Raises
    ------
    SelectionError
        `distributed` is not installed.
    DesignError
        No processes, no scheduler at the address, or workers with another version of the package.

    Examples
    --------
    >>> with workers(2):
    ...     list(parallel_map(abs, [-1, 2]))
    [1, 2]
    """
    if n_jobs == 0 or n_jobs < -1:
        raise DesignError(f"{n_jobs} processes cannot work: pass 1 or more, or -1 for all cores")
    started = LocalProcesses(n_jobs) if scheduler is None else _on_dask(scheduler, n_jobs)
    with started as processes:
        token = _PROCESSES.set(processes)
        try:
            yield
        finally:
            _PROCESSES.reset(token)


def n_workers() -> int:
    """Number of pieces computed at once: 1 outside of `workers`."""
    processes = _PROCESSES.get()
    return 1 if processes is None else processes.n_jobs


def parallel_map(
    function: Callable[..., Result], pieces: Iterable[Any], *, here: bool = False
) -> Iterator[Result]:
    """Yield `function(piece)` for each piece, in order.

    Outside of `workers`, or with `here`, pieces are computed lazily in this process. Exceptions of
    a piece are raised here. Pieces of a killed process are computed again by others.

    If pieces use torch, load it before the call, so that its threads can be limited.
    """
    processes = _PROCESSES.get()
    if here or processes is None or processes.n_jobs == 1:
        for piece in pieces:
            with one_thread():
                result = function(piece)
            yield result
        return
    fresh, pending = iter(pieces), deque[Any]()

    def handed_out(again: list[Any]) -> Iterator[Any]:
        yield from again
        for piece in fresh:
            pending.append(piece)
            yield piece

    for attempt in range(_RETRIES + 1):
        try:
            for result in results(processes, function, handed_out(list(pending))):
                pending.popleft()
                yield result
        except processes.losses as error:
            if not processes.can_repeat():
                raise DesignError(f"the connection to the cluster was lost: {error}") from error
            if attempt == _RETRIES:
                raise DesignError(
                    f"processes were killed {_RETRIES + 1} times, probably for lack of memory: use "
                    "fewer (n_jobs)"
                ) from error
        else:
            return


def results(
    processes: Processes, function: Callable[[Any], Result], pieces: Iterable[Any]
) -> Generator[Result, None, None]:
    """Yield ``function(piece)`` for each piece, in order; some pieces are computed ahead.

    When the generator ends early, by an error or because nobody reads on, pieces that have not
    started are dropped, and those under way are waited for: loky's thread fails when processes are
    killed in the middle of a piece.
    """
    with processes.sent(function) as submit:
        waiting = deque[Future[Result]]()
        for piece in pieces:
            waiting.append(submit(piece))
            if len(waiting) >= _AHEAD * processes.n_jobs:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


class LocalProcesses:
    """Processes of this machine, started with the first piece, and again after one was killed."""

    losses: tuple[type[BaseException], ...] = (BrokenExecutor,)
    """Exceptions of a piece whose process was killed."""

    def __init__(self, n_jobs: int) -> None:
        self.n_jobs: int = n_jobs if n_jobs > 0 else import_module("loky").cpu_count()
        self._executor: Any = None
        self._futures = list[Future[Any]]()

    def can_repeat(self) -> bool:
        """Whether lost pieces can be handed out once more: processes here are started again."""
        return True

    def __enter__(self) -> LocalProcesses:
        # Loky ends a process whose memory grew by 300 MB, such as by importing torch, starts
        # another, and warns in the thread that hands out the work: where warnings are errors, that
        # would end the thread, and the map would never end.
        warnings.filterwarnings("ignore", "A worker (stopped|was restarted) while", UserWarning)
        return self

    def __exit__(self, *_: object) -> None:
        # Not cancelled, and not killed while at work: loky's thread fails where it meets either.
        wait(self._futures)
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=True, kill_workers=True)

    @contextmanager
    def sent(
        self, function: Callable[[Any], Result]
    ) -> Generator[Callable[[Any], Future[Result]], None, None]:
        """Write the function to a file that the processes read."""
        if self._executor is None:
            loky: Any = import_module("loky")
            env = dict.fromkeys(_ONE_THREAD, "1")
            self._executor = loky.ProcessPoolExecutor(self.n_jobs, env=env)

        def submit(piece: Any) -> Future[Result]:
            future = self._executor.submit(_run, str(Path.cwd()), str(folder), piece)
            self._futures = [*(earlier for earlier in self._futures if not earlier.done()), future]
            return future

        with _shared(function) as folder:
            try:
                yield submit
            except BrokenExecutor:
                self.__exit__()
                raise
            finally:
                # Without it, pieces that have not started end at once.
                (folder / "code").unlink()


@dataclass
class DaskWorkers:
    """Workers of a Dask cluster."""

    client: Any
    n_jobs: int
    losses: tuple[type[BaseException], ...]

    def can_repeat(self) -> bool:
        """Dask repeats lost work by itself, unless the function was lost with the worker."""
        return bool(self.client.status == "running")

    @contextmanager
    def sent(
        self, function: Callable[[Any], Result]
    ) -> Generator[Callable[[Any], Future[Result]], None, None]:
        """Send the function to every worker, so that the loss of one does not lose it."""
        scattered = self.client.scatter([function], broadcast=True, hash=False)[0]
        run = partial(self.client.submit, _in_worker, str(Path.cwd()), pure=False)
        futures = list[Future[Any]]()

        def submit(piece: Any) -> Future[Result]:
            futures[:] = [earlier for earlier in futures if not earlier.done()]
            futures.append(run(scattered, piece))
            return futures[-1]

        try:
            yield submit
        finally:
            self.client.cancel(futures)


Processes: TypeAlias = LocalProcesses | DaskWorkers
"""Where the enclosing `workers` block has its work done."""


def _in_worker(folder: str, function: Callable[..., Result], piece: Any) -> Result:
    """Compute a piece in a worker process, in the same folder if it exists there."""
    if str(Path.cwd()) != folder and Path(folder).is_dir():
        os.chdir(folder)
    # Not undone: another thread of this process may be computing a piece.
    _limited()
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)
    return function(piece)


@contextmanager
def _shared(function: Callable[..., Any]) -> Generator[Path, None, None]:
    """Pickle a function to a temporary folder, from which workers load it for each piece.

    Workers map its arrays into shared memory, copy on write.
    """
    arrays: list[Any] = []
    code: bytes = import_module("cloudpickle").dumps(
        function, protocol=5, buffer_callback=arrays.append
    )
    with scratch_folder() as folder:
        places = list[tuple[int, int]]()
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


def _run(cwd: str, folder: str, piece: Any) -> Any:
    """Apply the function of `_shared` to a piece, in a worker process."""
    places: list[tuple[int, int]] = json.loads((Path(folder) / "places").read_text())
    with (Path(folder) / "arrays").open("rb") as file:
        whole = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    buffers = [whole[start:stop] for start, stop in places]
    code = (Path(folder) / "code").read_bytes()
    # Our own file, by cloudpickle because it handles lambdas.
    return _in_worker(cwd, pickle.loads(code, buffers=buffers), piece)  # noqa: S301


@contextmanager
def _on_dask(address: str, n_jobs: int) -> Generator[DaskWorkers, None, None]:
    """Connect to the Dask scheduler at an address.

    Raises
    ------
    DesignError
        No scheduler answers, or it has no workers, or some have another version of the package.
    """
    try:
        distributed: Any = import_module("distributed")
    except ImportError as error:
        msg = f"a Dask cluster needs distributed: {install_hint('cluster')}"
        raise SelectionError(msg) from error
    _check_answer(distributed, address)
    try:
        client = distributed.Client(address)
    except (OSError, ValueError) as error:
        raise _no_scheduler(address, error) from error
    with client:
        try:
            client.wait_for_workers(1, timeout=_WORKER_TIMEOUT)
            check_versions(client.run(version, _PACKAGE))
        except TimeoutError as error:
            raise DesignError(
                f"the Dask scheduler at {address} has no workers: start some with "
                f"dask worker {address}"
            ) from error
        except ImportError as error:
            msg = f"the workers of {address} have no {_PACKAGE}: install it there ({error})"
            raise DesignError(msg) from error
        n = n_jobs if n_jobs > 0 else sum(client.nthreads().values())
        yield DaskWorkers(client, n, (distributed.KilledWorker, CancelledError))


def _check_answer(distributed: Any, address: str) -> None:
    """Raise `DesignError` unless a Dask scheduler answers in time."""
    # Not at the top: commands that use no cluster start without it.
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    async def ask() -> None:
        security = distributed.Security().get_connection_args("client")
        # Includes the handshake, for which a client would never end.
        comm = await distributed.comm.connect(address, timeout=_ANSWER_TIMEOUT, **security)
        comm.abort()

    def within_time() -> None:
        # Not asyncio.run: nest_asyncio replaces it by one that leaves its loop open.
        with closing(asyncio.new_event_loop()) as loop:
            loop.run_until_complete(asyncio.wait_for(ask(), _ANSWER_TIMEOUT))

    # In another thread, because this one may have a running event loop (notebooks).
    with ThreadPoolExecutor(1) as thread:
        try:
            thread.submit(within_time).result()
        except TimeoutError as error:
            raise _no_scheduler(address, f"nothing was said in {_ANSWER_TIMEOUT:g} s") from error
        except Exception as error:
            # Another kind of server may answer anything.
            raise _no_scheduler(address, error) from error


def _no_scheduler(address: str, why: object) -> DesignError:
    msg = (
        f"no Dask scheduler answers at {address} ({why}): pass the address that "
        "'dask scheduler' shows when it starts, such as tcp://host:8786"
    )
    return DesignError(msg)


def check_versions(versions: dict[str, str]) -> None:
    """Raise `DesignError` if a worker has another version of the package."""
    own = version(_PACKAGE)
    for worker, theirs in versions.items():
        if theirs != own:
            msg = f"{worker} has {_PACKAGE} {theirs}, here it is {own}: install the same version"
            raise DesignError(msg)


@contextmanager
def one_thread() -> Generator[None, None, None]:
    """Limit NumPy's linear algebra, and torch if it is loaded, to one thread inside this block."""
    torch: Any = sys.modules.get("torch")
    with _limited():
        if torch is None:
            yield
            return
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


def _limited() -> Any:
    """Limit NumPy's linear algebra to one thread, from now on or inside a block."""
    libraries = _libraries(len(sys.modules))
    # Without threadpoolctl there are no workers either, whose results could differ.
    return nullcontext() if libraries is None else libraries.limit(limits=1)


@lru_cache(maxsize=1)
def _libraries(_n_modules: int) -> Any:
    """Find the threaded libraries; repeated only when modules were loaded, as it takes 1 ms."""
    try:
        return import_module("threadpoolctl").ThreadpoolController()
    except ImportError:
        return None
