"""Replaces a log as a whole or not at all: on disk, and in object stores.

Inspect's own header write changes a file in place and loses the log when it is interrupted, so
every write happens on a copy beside the log, which takes the log's name in one step.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, cast

from evalstats_plugin import atomic
from evalstats_plugin.errors import LogError, WriteError

PREFIX = ".evalstats_tmp_"
SUFFIX = ".writing"
"""Never ``.eval``: Inspect lists every file of that name as a log, hidden ones too."""


class Original(NamedTuple):
    """A log as a local file, and what tells whether it has changed since."""

    file: Path
    revision: object


def local_path(path: Path) -> Path | None:
    """Return the path on this machine's disk, or None for an object store's."""
    if getattr(path, "protocol", "") not in {"", "file", "local"}:
        return None
    return Path(getattr(path, "path", path)).resolve()


def same(path: Path, other: Path) -> bool:
    """Whether two paths name one log."""
    local = local_path(path)
    return str(path) == str(other) if local is None else local == local_path(other)


@contextmanager
def opened(path: Path) -> Generator[Original, None, None]:
    """Give a log as a local file; one from an object store is fetched."""
    local = local_path(path)
    if local is not None:
        yield Original(local, _revision(path))
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "log"
        # Asked for first: whatever happens to the log from here on makes the write fail.
        revision = _revision(path)
        try:
            _store(path).get_file(_key(path), str(file))
        except OSError as error:
            msg = f"{path} cannot be read ({error})"
            raise LogError(msg) from error
        yield Original(file, revision)


@contextmanager
def replacing(output: Path, original: Original, path: Path) -> Generator[Path, None, None]:
    """Give a file to write to; it takes output's place when nothing was raised meanwhile.

    Raises
    ------
    WriteError
        When it cannot, or the log at path, being replaced, has changed since it was opened; what
        was there is still there.
    """
    in_place = same(path, output)
    target = local_path(output)
    folder = target.parent if target else Path(tempfile.gettempdir())
    temporary: Path | None = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = atomic.temporary_in(folder, PREFIX, SUFFIX)
        os.close(descriptor)
        yield temporary
        if target is None:
            _upload(temporary, output, original.revision if in_place else None)
        else:
            # Made private; the log stays as open as it was.
            shutil.copymode(target if target.exists() else original.file, temporary)
            atomic.sync(temporary)
            over = cast("atomic.Revision", original.revision) if in_place else None
            atomic.take_place(temporary, target, path, over=over)
    except OSError as error:
        msg = f"{output} cannot be written ({error.strerror or error}); what was there is unchanged"
        raise WriteError(msg) from error
    finally:
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


def _upload(file: Path, output: Path, revision: object | None) -> None:
    """Store a file; where the store can (S3), only over the revision that was read."""
    store = _store(output)
    if revision is None or not _is_s3(output):
        store.put_file(str(file), _key(output))
        return
    bucket, key, _ = store.split_path(_key(output))
    try:
        store.call_s3(
            "put_object", Bucket=bucket, Key=key, Body=file.read_bytes(), IfMatch=revision
        )
    except OSError as error:
        if "PreconditionFailed" in repr(error.__cause__):
            raise atomic.changed(output) from error
        raise
    finally:
        store.invalidate_cache(_key(output))


def _revision(path: Path) -> object:
    local = local_path(path)
    if local is not None:
        return atomic.revision(local)
    return _store(path).info(_key(path), refresh=True).get("ETag") if _is_s3(path) else None


def _is_s3(path: Path) -> bool:
    return getattr(path, "protocol", "") in {"s3", "s3a"}


def _store(path: Path) -> Any:
    return path.fs  # type: ignore[attr-defined]  # a UPath has it


def _key(path: Path) -> str:
    return path.path  # type: ignore[attr-defined]  # a UPath has it
