"""Files that adapters look into one after another, each opened once (`LogFile`)."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from evalstats_plugin.errors import LogError

HEAD = 1 << 16
"""Bytes at the start of a file by which adapters recognise it."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class LogFile:
    """A file that may be a log, with its first bytes for every adapter that asks.

    Inside ``with`` it is opened once, on first use, however often it is read; outside, each time.
    A copy for another process opens the file again.
    """

    __slots__ = ("_file", "_head", "_held", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[bytes] | None = None
        self._head: bytes | None = None
        self._held = 0

    @property
    def head(self) -> bytes:
        """The first 65,536 bytes, without a byte-order mark; none of a folder."""
        if self._head is None:
            try:
                with self.open() as file:
                    found = file.read(HEAD).removeprefix(_BYTE_ORDER_MARK)
            except IsADirectoryError:
                found = b""
            self._head = found
        return self._head

    @property
    def is_open(self) -> bool:
        """Whether the file was opened and is kept open."""
        return self._file is not None

    @contextmanager
    def open(self) -> Generator[IO[bytes]]:
        """Give the file, at its start; raise `LogError` if it cannot be opened."""
        with self:
            if self._file is None:
                try:
                    self._file = self.path.open("rb")
                except IsADirectoryError:
                    raise
                except OSError as error:
                    msg = f"{self.path} cannot be read ({error.strerror or error})"
                    raise LogError(msg) from error
            self._file.seek(0)
            yield self._file

    def read_bytes(self) -> bytes:
        """Return the whole content."""
        with self.open() as file:
            return file.read()

    def __enter__(self) -> LogFile:
        self._held += 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._held -= 1
        if not self._held:
            self._head = None  # of thousands of logs they would fill the memory
            if self._file is not None:
                self._file.close()
                self._file = None

    def __reduce__(self) -> tuple[Any, ...]:
        return LogFile, (self.path,)
