"""Replace a file as a whole or not at all."""
# PART json_text - JSON files of harnesses, which may be cut off or damaged.
# PART parquet - Response matrices on disk, and Parquet files with metadata of ours.

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import tempfile
import time
import zlib
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

from evalstats_plugin.errors import LogError, SelectionError, WriteError

PREFIX = ".evalstats-"
"""Of files being written: hidden, and not to be taken for a harness's own."""


_OWNER = re.compile(r"(\d+)-([0-9a-f]{8})-")
"""In the name of a file being written: the process, and the machine it runs on."""


_ABANDONED = 86_400
"""Seconds after which a file of another machine, whose processes we cannot see, is left over."""


_tidied: set[tuple[int, str, str]] = set()
"""Folders that this process has tidied: looking through one again for each of its 10,000 files
would take the square of the time."""


Revision = tuple[int, int, int]
"""Inode, size, time of change: tells one state of a file from another."""


_DIGEST = b"_sha256"


def check_place(
    path: str | Path, endings: Sequence[str], *, asked: str = "", makes_folder: bool = False
) -> Path:
    """Return where a file is to go; refuse before the work what would fail after it.

    Parameters
    ----------
    endings
        Of the names of files of this kind, in lower case.
    asked
        The option that named it, for messages.
    makes_folder
        Whether its folder is made when it is written.

    Raises
    ------
    SelectionError
        The name has another ending: it might be that of a log.
    WriteError
        A folder has that name, or there is no folder that it would be in.
    """
    place = Path(path)
    called = f"{asked} {path}".lstrip()
    if place.is_dir():
        msg = f"{called} found: it is a folder, expected the name of a file"
        raise WriteError(msg)
    if place.suffix.lower() not in endings:
        *most, last = endings
        fitting = f"{', '.join(most)} or {last}" if most else last
        msg = f"{called} found, expected a name that ends in {fitting}"
        raise SelectionError(msg)
    if not makes_folder and not place.parent.is_dir():
        msg = f"{called} found, but there is no folder {place.parent}"
        raise WriteError(msg)
    return place


def write_bytes(path: Path, content: bytes, *, over: Revision | None = None) -> Path:
    """Write a file so that anyone, at any moment, finds the old one or the new one, whole.

    The content goes to a hidden file beside it, is forced to disk, and takes the name in one
    step. A symbolic link stays a link; permissions stay as they were.

    Parameters
    ----------
    over
        What `revision` said when the file was read: if it has changed since, nothing is written.

    Raises
    ------
    WriteError
        When the folder or file cannot be written, or has changed; what was there is still there.
    """
    with replacing(path, over=over) as temporary, temporary.open("wb") as file:
        file.write(content)
    return path


@contextmanager
def replacing(path: Path, *, over: Revision | None = None) -> Generator[Path]:
    """Give a file to write to; it takes path's place when nothing was raised meanwhile.

    As for `write_bytes`, for what is too large to be held in memory.

    Raises
    ------
    WriteError
        When the folder or file cannot be written, or has changed; what was there is still there.
    """
    target = path.resolve()
    temporary: Path | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = temporary_in(target.parent, PREFIX)
        os.close(descriptor)
        yield temporary
        if target.exists():
            shutil.copymode(target, temporary)
        else:
            # Made private; a new result is as open as any other new file.
            mask = os.umask(0)
            os.umask(mask)
            temporary.chmod(0o666 & ~mask)
        sync(temporary)
        take_place(temporary, target, path, over=over)
        temporary = None
    except OSError as error:
        msg = f"{path} cannot be written ({error.strerror or error}); what was there is unchanged"
        raise WriteError(msg) from error
    finally:
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink()


def take_place(temporary: Path, target: Path, path: Path, *, over: Revision | None = None) -> None:
    """Give a finished file the name of another, unless that has changed since it was read.

    Raises
    ------
    WriteError
        It has changed: messages call it by path.
    """
    if over is None:
        temporary.replace(target)
    else:
        with alone(target.parent):
            if revision(target) != over:
                raise changed(path)
            temporary.replace(target)
    # The new name itself must survive a power cut; not every system can sync a folder.
    with suppress(OSError):
        sync(target.parent)


def changed(path: Path) -> WriteError:
    """Return the error about a file that somebody else wrote to while we worked on it."""
    return WriteError(
        f"{path} was changed by another process meanwhile; nothing was written: run it again"
    )


def revision(path: Path) -> Revision | None:
    """Return what tells this state of a file from any other; None where there is no file."""
    try:
        there = path.stat()
    except FileNotFoundError:
        return None
    return there.st_ino, there.st_size, there.st_mtime_ns


@contextmanager
def alone(folder: Path) -> Generator[None]:
    """Keep other programs of ours from writing to files in this folder meanwhile.

    Not to be used inside itself: it would wait for its own end.
    """
    try:
        import fcntl
    except ImportError:  # Windows: a file is still replaced as a whole, only not guarded.
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        # Where a file system has no locks, such as some network drives, go on without.
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def temporary_in(folder: Path, prefix: str, suffix: str = "") -> tuple[int, Path]:
    """Open a new file in a folder, and remove what killed processes left there before.

    Its name begins with the prefix, this process and this machine.
    """
    if (os.getpid(), str(folder), prefix) not in _tidied:
        remove_leftovers(folder, prefix)
        _tidied.add((os.getpid(), str(folder), prefix))
    descriptor, name = tempfile.mkstemp(
        prefix=f"{prefix}{os.getpid()}-{_machine()}-", suffix=suffix, dir=folder
    )
    return descriptor, Path(name)


def remove_leftovers(folder: Path, prefix: str) -> None:
    """Remove what a killed process left half written, but nothing of one that may still run."""
    for left in folder.glob(f"{prefix}*"):
        owner = _OWNER.match(left.name.removeprefix(prefix))
        with suppress(OSError):
            if owner and _is_left_over(left, int(owner[1]), owner[2]):
                left.unlink()


def _is_left_over(file: Path, pid: int, machine: str) -> bool:
    # On Windows asking for a process would end it.
    if machine != _machine() or os.name == "nt":
        return time.time() - file.stat().st_mtime > _ABANDONED
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def _machine() -> str:
    """Name this machine, or container: the numbers of its processes mean nothing on another."""
    return f"{zlib.crc32(platform.node().encode(errors='replace')):08x}"


def sync(path: Path) -> None:
    """Force a file, or the names in a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def parsed(content: bytes, path: Path) -> Any:
    """Parse what a file holds, with or without a mark of its encoding in front.

    Raises
    ------
    LogError
        It is not UTF-8, no JSON, or JSON that nobody meant: numbers of thousands of digits.
    """
    try:
        return json.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        msg = f"{path} is not UTF-8 text ({error.reason} at byte {error.start})"
        raise LogError(msg) from error
    except json.JSONDecodeError as error:
        msg = f"{path} is not JSON: {error.msg} in line {error.lineno}; it may have been cut off"
        raise LogError(msg) from error
    except (ValueError, RecursionError) as error:
        msg = f"{path} cannot be read as JSON ({error}); it may be damaged"
        raise LogError(msg) from error


def write_ours(table: Any, path: Path, key: bytes, meta: Mapping[str, Any]) -> Path:
    """Write an Arrow table with JSON under a key of its metadata, whole or not at all.

    Pages have checksums, and so has the JSON, so that a damaged file cannot pass for another fit.
    """
    pq: Any = import_module("pyarrow.parquet")
    buffer = BytesIO()
    pq.write_table(
        table.replace_schema_metadata(signed(key, meta)), buffer, write_page_checksum=True
    )
    return write_bytes(path, buffer.getvalue())


def signed(key: bytes, meta: Mapping[str, Any]) -> dict[bytes, bytes]:
    """Return metadata of a schema: JSON under a key, and its digest."""
    text = json.dumps(meta).encode()
    return {key: text, key + _DIGEST: hashlib.sha256(text).hexdigest().encode()}


def signed_meta(path: Path, found: Mapping[bytes, bytes] | None, key: bytes, other: str) -> Any:
    """Return the JSON that `signed` wrote.

    Raises
    ------
    LogError
        None there, of which ``other`` is said, or damaged.
    """
    meta = found or {}
    if key not in meta:
        raise LogError(f"{path} is a Parquet file, but {other}")
    digest = meta.get(key + _DIGEST)
    if digest is not None and hashlib.sha256(meta[key]).hexdigest().encode() != digest:
        raise LogError(f"{path} is damaged: restore it from a copy, or make it again")
    with rebuilding(path):
        return json.loads(meta[key])


def read_ours(path: Path, key: bytes, *, expected: str, other: str) -> tuple[Any, dict[str, Any]]:
    """Read a Parquet file of ours, and the JSON under this key of its metadata.

    Raises
    ------
    LogError
        No such file, no Parquet, a damaged one, or one without this key, of which ``other`` is
        said.
    """
    pa: Any = import_module("pyarrow")
    pq: Any = import_module("pyarrow.parquet")
    if not path.is_file():
        found = "a folder" if path.is_dir() else "no such file"
        raise LogError(f"{path}: {found}, {expected}")
    try:
        table: Any = pq.read_table(path, page_checksum_verification=True)
        table.validate(full=True)
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        raise LogError(f"{path} is no Parquet file, or damaged, {expected}") from error
    return table, signed_meta(path, table.schema.metadata, key, other)


@contextmanager
def rebuilding(path: Path) -> Generator[None]:
    """Turn whatever goes wrong while a file of ours is taken apart into an error about the file.

    We wrote it: what does not fit together has been damaged since, or comes from a later version.
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        problem = f"{type(error).__name__}: {error}"
        msg = f"{path} is damaged, or of a later version ({problem}): make it again"
        raise LogError(msg) from error
