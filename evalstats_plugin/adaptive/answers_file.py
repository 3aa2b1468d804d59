"""The answers of a session on disk, each as soon as it is in: what a killed run leaves behind."""

from __future__ import annotations

import gc
import hashlib
import json
import os
import sys
import weakref
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.adaptive.session import AdaptiveSession
from evalstats_plugin.errors import LogError, WriteError

_KEY = "evalstats_adaptive"
_FACTS = "facts"


class AnswersFile:
    """Lines of `AdaptiveSession.to_json` behind a line that says what they are answers to.

    A run has its file for itself until it is closed or forgotten. A file that nothing was
    written to is removed again.

    Parameters
    ----------
    path
        Made where it is not there yet.
    about
        What must be the same to go on, such as model and task.

    Attributes
    ----------
    answers
        Lines for `AdaptiveSession.resume`.
    facts
        What else has been noted; of facts of one name the last.

    Raises
    ------
    LogError
        The file is none of these, is of another bank, model or task, or another run uses it.
    WriteError
        It cannot be made there.
    """

    def __init__(self, path: str | Path, bank: ItemBank, about: Mapping[str, str]) -> None:
        self.path = Path(path)
        self.answers: list[str] = []
        self.facts: dict[str, str] = {}
        self._head = _head(bank, about)
        self._descriptor = _held(self.path)
        # A run that breaks off in the middle of a program never gets to close its file.
        self._closing = weakref.finalize(self, os.close, self._descriptor)
        try:
            self._size = self._read()
        except BaseException:
            self.close()
            raise

    def append(self, session: AdaptiveSession) -> None:
        """Write the last answer of a session down, to the disk itself."""
        line = session.to_json().splitlines()[-1]
        self._write(line)
        self.answers.append(line)

    def note(self, **facts: str) -> None:
        """Write down what is no answer, such as where the run has its log."""
        if any(self.facts.get(name) != value for name, value in facts.items()):
            self._write(json.dumps({_FACTS: facts}))
            self.facts |= facts

    def is_for(self, bank: ItemBank, about: Mapping[str, str]) -> bool:
        """Whether it is open, and of just this."""
        return self._closing.alive and self._head == _head(bank, about)

    def close(self) -> None:
        """Let other runs have the file; a second time does nothing."""
        if self._closing.alive:
            with suppress(OSError):
                if os.fstat(self._descriptor).st_size == 0:
                    self.path.unlink()
            self._closing()

    def _read(self) -> int:
        """Return the length of what is whole in it."""
        try:
            content = self.path.read_bytes()
            # A line without its end was being written when the run was killed.
            whole, end, torn = content.rpartition(b"\n")
            lines = whole.decode().splitlines() if end else []
        except (OSError, UnicodeDecodeError) as error:
            raise LogError(f"{self.path} cannot be read as answers of a test: {error}") from error
        if lines:
            self._check(lines[0])
        elif not self._head.encode().startswith(torn):
            raise LogError(_foreign(self.path))
        for line in lines[1:]:
            with suppress(ValueError, AttributeError, TypeError, RecursionError):
                self.facts |= json.loads(line).get(_FACTS, {})
        self.answers = [line for line in lines[1:] if not line.startswith(f'{{"{_FACTS}"')]
        return len(whole) + len(end)

    def _check(self, head: str) -> None:
        try:
            found: dict[str, Any] = json.loads(head)
            found.pop(_KEY)
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
            raise LogError(_foreign(self.path)) from error
        expected: dict[str, Any] = json.loads(self._head)
        expected.pop(_KEY)
        for name, value in expected.items():
            if found.get(name) != value:
                msg = f"{self.path} holds answers of {name} {found.get(name)!r}, not {value!r}"
                raise LogError(f"{msg}: name another state file, or remove this one")

    def _write(self, line: str) -> None:
        # The head is not there before there is something to say.
        text = f"{line}\n" if self._size else f"{self._head}{line}\n"
        content = memoryview(text.encode())
        try:
            # What was torn is cut off only now: reading alone changes nothing.
            os.ftruncate(self._descriptor, self._size)
            os.lseek(self._descriptor, self._size, os.SEEK_SET)
            while content:
                content = content[os.write(self._descriptor, content) :]
            os.fsync(self._descriptor)
        except OSError as error:
            raise WriteError(f"{self.path} cannot be written ({error.strerror})") from error
        self._size += len(text.encode())


def fingerprint(bank: ItemBank) -> str:
    """Tell a bank from others: by its items and what is known of them."""
    digest = hashlib.sha256(json.dumps(bank.keys()).encode())
    for values in (bank.discrimination, bank.intercept, bank.guessing, bank.upper):
        digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()[:16]


def _head(bank: ItemBank, about: Mapping[str, str]) -> str:
    return json.dumps({_KEY: 1, "bank": fingerprint(bank), **about}) + "\n"


def _foreign(path: Path) -> str:
    return f"{path} is no file of answers of an adaptive test; name another file"


def _held(path: Path) -> int:
    """Open a file that no other run has open."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0)
            descriptor = os.open(path, flags, 0o666)
            free = _locked(descriptor)
            if free and _lies_at(path, descriptor):
                return descriptor
            os.close(descriptor)
            # Runs of this very program that broke off may be forgotten and not cleared away yet.
            if not free and not gc.collect():
                msg = f"{path} is in use by another adaptive run: wait for its end"
                raise LogError(f"{msg}, or name another state file")
    except OSError as error:
        raise WriteError(f"{path} cannot be opened for answers ({error.strerror})") from error


def _lies_at(path: Path, descriptor: int) -> bool:
    """Whether a file is still there: the run that had it may have removed it just now."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _locked(descriptor: int) -> bool:
    """Lock an open file, and say whether it was free."""
    if sys.platform == "win32":
        import msvcrt

        # A byte far behind the end: what is locked cannot be read.
        os.lseek(descriptor, 1 << 40, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        # Where a file system has no locks, such as some network drives, go on without.
        return True
    return True
