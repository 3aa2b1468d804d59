"""Files that are replaced as a whole or not at all, JSON of harnesses, and signed Parquet.

* writing: `check_output_path`, `write_bytes`, `replacing`, `temporary_file`, `replace_file`
* concurrent programs: `revision`, `changed_error`, `locked`
* `parse_json`: files of harnesses, which may be cut off or damaged
* `write_signed`, `read_signed`, `signed_metadata`, `verified_metadata`, `reporting_damage`:
  Parquet files of this package, with JSON and its digest in the metadata
"""

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
"""Prefix of files being written: hidden, and not mistaken for files of a harness."""

_OWNER = re.compile(r"(\d+)-([0-9a-f]{8})-")
"""Process and machine, in the name of a file being written."""

_ABANDONED = 86_400
"""Seconds after which a temporary file of another machine counts as abandoned."""

_tidied: set[tuple[int, str, str]] = set()
"""Folders that this process has already tidied; listing one again for each of its 10,000 files
would take quadratic time."""

Revision = tuple[int, int, int]
"""Inode, size and modification time: identifies one state of a file."""

_DIGEST = b"_sha256"


def check_output_path(
    path: str | Path, endings: Sequence[str], *, asked: str = "", makes_folder: bool = False
) -> Path:
    """Return the path of an output file, after checks that would otherwise fail after the work.

    Parameters
    ----------
    endings
        Allowed endings of the file name, in lower case.
    asked
        The option that named the file, for messages.
    makes_folder
        Whether the folder is created on writing.

    Raises
    ------
    SelectionError
        The name has another ending; it might be that of a log.
    WriteError
        The path is a folder, or its folder does not exist.
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
    """Write a file atomically: readers find either the old content or the new one.

    The content goes to a hidden file beside it, is forced to disk, and is renamed. A symbolic link
    stays a link; permissions stay as they were.

    Parameters
    ----------
    over
        The `revision` of the file when it was read: if it has changed since, nothing is written.

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
    """Yield a temporary file that replaces `path` if the block raises nothing.

    As `write_bytes`, for content too large to hold in memory.

    Raises
    ------
    WriteError
        When the folder or file cannot be written, or has changed; what was there is still there.
    """
    target = path.resolve()
    temporary: Path | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = temporary_file(target.parent, PREFIX)
        os.close(descriptor)
        yield temporary
        if target.exists():
            shutil.copymode(target, temporary)
        else:
            # mkstemp makes files private; a new file gets the default permissions.
            mask = os.umask(0)
            os.umask(mask)
            temporary.chmod(0o666 & ~mask)
        fsync(temporary)
        replace_file(temporary, target, path, over=over)
        temporary = None
    except OSError as error:
        msg = f"{path} cannot be written ({error.strerror or error}); what was there is unchanged"
        raise WriteError(msg) from error
    finally:
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink()


def replace_file(
    temporary: Path, target: Path, path: Path, *, over: Revision | None = None
) -> None:
    """Rename a finished file to `target`, unless that has changed since it was read.

    Raises
    ------
    WriteError
        It has changed; the message names it `path`.
    """
    if over is None:
        temporary.replace(target)
    else:
        with locked(target.parent):
            if revision(target) != over:
                raise changed_error(path)
            temporary.replace(target)
    # The rename itself must survive a power cut; not every system can sync a folder.
    with suppress(OSError):
        fsync(target.parent)


def changed_error(path: Path) -> WriteError:
    """Return the error for a file that another process changed meanwhile."""
    return WriteError(
        f"{path} was changed by another process meanwhile; nothing was written: run it again"
    )


def revision(path: Path) -> Revision | None:
    """Return the identity of a file's current state; None where there is no file."""
    try:
        there = path.stat()
    except FileNotFoundError:
        return None
    return there.st_ino, there.st_size, there.st_mtime_ns


@contextmanager
def locked(folder: Path) -> Generator[None]:
    """Lock a folder against other processes of this package that write to it.

    Not reentrant: a nested lock of the same folder would wait for ever.
    """
    try:
        import fcntl
    except ImportError:  # Windows: a file is still replaced atomically, only without the lock.
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        # Some network drives have no locks.
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def temporary_file(folder: Path, prefix: str, suffix: str = "") -> tuple[int, Path]:
    """Open a new temporary file in a folder, and remove those of killed processes.

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
    """Remove temporary files of killed processes, but none of a process that may still run."""
    for left in folder.glob(f"{prefix}*"):
        owner = _OWNER.match(left.name.removeprefix(prefix))
        with suppress(OSError):
            if owner and _is_left_over(left, int(owner[1]), owner[2]):
                left.unlink()


def _is_left_over(file: Path, pid: int, machine: str) -> bool:
    # On Windows os.kill(pid, 0) would end the process.
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
    """Identify this machine or container, within which process numbers have a meaning."""
    return f"{zlib.crc32(platform.node().encode(errors='replace')):08x}"


def fsync(path: Path) -> None:
    """Force a file, or the names in a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def parse_json(content: bytes, path: Path) -> Any:
    """Parse the JSON content of a file, with or without a byte order mark.

    Raises
    ------
    LogError
        It is not UTF-8, not JSON, or JSON with numbers of thousands of digits.
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


def write_signed(table: Any, path: Path, key: bytes, meta: Mapping[str, Any]) -> Path:
    """Write an Arrow table atomically, with JSON under a key of its metadata.

    Pages and the JSON have checksums, so that damage is detected.
    """
    pq: Any = import_module("pyarrow.parquet")
    buffer = BytesIO()
    pq.write_table(
        table.replace_schema_metadata(signed_metadata(key, meta)), buffer, write_page_checksum=True
    )
    return write_bytes(path, buffer.getvalue())


def signed_metadata(key: bytes, meta: Mapping[str, Any]) -> dict[bytes, bytes]:
    """Return schema metadata: JSON under a key, and its digest."""
    text = json.dumps(meta).encode()
    return {key: text, key + _DIGEST: hashlib.sha256(text).hexdigest().encode()}


def verified_metadata(
    path: Path, found: Mapping[bytes, bytes] | None, key: bytes, other: str
) -> Any:
    """Return the JSON of `signed_metadata` after checking its digest.

    Raises
    ------
    LogError
        The key is missing (the message ends in ``other``), or the JSON is damaged.
    """
    meta = found or {}
    if key not in meta:
        raise LogError(f"{path} is a Parquet file, but {other}")
    digest = meta.get(key + _DIGEST)
    if digest is not None and hashlib.sha256(meta[key]).hexdigest().encode() != digest:
        raise LogError(f"{path} is damaged: restore it from a copy, or make it again")
    with reporting_damage(path):
        return json.loads(meta[key])


def read_signed(path: Path, key: bytes, *, expected: str, other: str) -> tuple[Any, dict[str, Any]]:
    """Read a file of `write_signed`: its table, and the JSON under the key.

    Raises
    ------
    LogError
        No such file (the message ends in ``expected``), not Parquet, damaged, or without this key
        (the message ends in ``other``).
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
    return table, verified_metadata(path, table.schema.metadata, key, other)


@contextmanager
def reporting_damage(path: Path) -> Generator[None]:
    """Turn errors while unpacking a file of this package into a `LogError` about the file.

    The package wrote it: what does not fit has been damaged since, or is of a later version.
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        problem = f"{type(error).__name__}: {error}"
        msg = f"{path} is damaged, or of a later version ({problem}): make it again"
        raise LogError(msg) from error
