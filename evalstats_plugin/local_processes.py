"""Processes of this machine that do pieces of work: see `engines`."""

from __future__ import annotations

import json
import mmap
import tempfile
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

_ONE_THREAD = (
    "BLIS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS",
)  # fmt: skip
_AHEAD = 2
"""Pieces that are handed out for each process."""
_ALIGNED = 64
_CODER = "joblib.externals.loky.cloudpickle_wrapper"
"""That of loky: functions without a name, and those of a session, can be handed out too."""

Result = TypeVar("Result")


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
