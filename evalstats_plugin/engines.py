"""Independent pieces of work, one after the other or on the engine asked for.

joblib runs them: in processes of this machine (``"loky"``), or on a Dask or Ray cluster. Results
come in the order of the pieces, and no piece depends on who does it, so that the numbers are the
same wherever they are computed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.wording import no_such

BACKENDS = ("loky", "dask", "ray")
_RETRIES = 3
"""Times that a pool is made anew after one of its processes was killed."""

Result = TypeVar("Result")


class Engine(NamedTuple):
    """What does the work."""

    n_jobs: int
    backend: str


_ENGINE: ContextVar[Engine | None] = ContextVar("evalstats_engine", default=None)


@contextmanager
def workers(
    n_jobs: int = -1, backend: str = "loky", address: str | None = None
) -> Generator[None, None, None]:
    """Do what is independent in several processes at once, inside this block.

    Logs that are read and replicates of bootstraps are.

    Parameters
    ----------
    n_jobs
        Processes; -1 is one for each core, or all of a cluster.
    backend
        ``"loky"``: on this machine. ``"dask"``, ``"ray"``: on a cluster.
    address
        Of the scheduler of a running cluster; None starts one here.

    Raises
    ------
    SelectionError
        No such backend, or one that is not installed.
    DesignError
        No processes, or nobody at the address.

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
    needed = {"loky": "joblib", "dask": "distributed", "ray": "ray"}[backend]
    for module in dict.fromkeys(("joblib", needed)):
        try:
            import_module(module)
        except ImportError as error:
            msg = f"workers need {module}, which is not installed: pip install {module}"
            raise SelectionError(msg) from error
    with _connected(backend, address):
        token = _ENGINE.set(Engine(n_jobs, backend))
        try:
            yield
        finally:
            _ENGINE.reset(token)


@contextmanager
def _connected(backend: str, address: str | None) -> Generator[None, None, None]:
    if backend == "loky":
        yield
    elif backend == "dask":
        distributed: Any = import_module("distributed")
        try:
            client = distributed.Client(address, set_as_default=True)
        except (OSError, ValueError) as error:
            msg = f"no Dask scheduler answers at {address}: {error}"
            raise DesignError(msg) from error
        with client:
            yield
    else:
        ray: Any = import_module("ray")
        try:
            ray.init(address=address, ignore_reinit_error=True, log_to_driver=False)
        except (ConnectionError, ValueError) as error:
            msg = f"no Ray cluster answers at {address}: {error}"
            raise DesignError(msg) from error
        import_module("ray.util.joblib").register_ray()
        yield


def n_workers() -> int:
    """How many pieces are done at once: 1 outside of `workers`."""
    engine = _ENGINE.get()
    if engine is None:
        return 1
    joblib: Any = import_module("joblib")
    with joblib.parallel_config(backend=engine.backend):
        return int(joblib.effective_n_jobs(engine.n_jobs))


def mapped(function: Callable[..., Result], pieces: Iterable[Any]) -> Iterator[Result]:
    """Give `function(piece)` for each piece, in order.

    Outside of `workers` in this process, each when it is asked for. What a piece raises is
    raised here. Pieces of a process that is killed are done again by others.
    """
    engine = _ENGINE.get()
    if engine is None or engine.n_jobs == 1:
        yield from map(function, pieces)
        return
    joblib: Any = import_module("joblib")
    fresh, pending = iter(pieces), deque[Any]()

    def handed_out(again: list[Any]) -> Iterator[Any]:
        yield from again
        for piece in fresh:
            pending.append(piece)
            yield piece

    for attempt in range(_RETRIES + 1):
        try:
            for result in _run(joblib, engine, function, handed_out(list(pending))):
                pending.popleft()
                yield result
        except _killed() as error:
            if attempt == _RETRIES:
                msg = (
                    f"processes were killed {attempt + 1} times, likely for lack of memory: take "
                    "fewer (n_jobs)"
                )
                raise DesignError(msg) from error
        else:
            return


def _run(
    joblib: Any, engine: Engine, function: Callable[..., Result], pieces: Iterator[Any]
) -> Iterator[Result]:
    # Named in Parallel itself, joblib 1.6 hands Dask arguments that it does not know.
    with joblib.parallel_config(engine.backend, n_jobs=engine.n_jobs):
        parallel = joblib.Parallel(return_as="generator")
    return parallel(joblib.delayed(function)(piece) for piece in pieces)


def _killed() -> type[Exception]:
    """What loky raises when a process is gone; clusters do its work again by themselves."""
    process_executor: Any = import_module("joblib.externals.loky.process_executor")
    return process_executor.TerminatedWorkerError
