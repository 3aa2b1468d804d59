"""Edit a log as a whole or not at all, on disk or in an object store.

`edit_log` edits the header and, if asked, the samples in a copy (`replacing`), which then replaces
the log unless that changed meanwhile. Then its entry in ``logs.json`` follows, the list of headers
in the folder of an eval set; a run that was killed in between leaves the earlier entry, which the
same command once more replaces.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from evalstats_plugin.adapters.inspect_ai.archive.guard import form_of
from evalstats_plugin.adapters.inspect_ai.archive.header import (
    raw_header,
    read_header,
    refuse_unwritable,
    unlike_now,
    write_header,
)
from evalstats_plugin.adapters.inspect_ai.archive.members import (
    Edit,
    from_bytes,
    rewrite,
    to_bytes,
    would_change,
)
from evalstats_plugin.errors import LogError, WriteError
from evalstats_plugin.runtime import writing
from evalstats_plugin.runtime.files import LogFile
from evalstats_plugin.runtime.writing import Revision, changed_error, revision, scratch_folder

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog


EditHeader = Callable[["EvalLog", Mapping[str, str]], tuple["EvalLog", Mapping[str, str]]]
"""Returns the edited header, the same object if nothing changes, and what to write for parts that
it leaves empty; its second argument is what the log has for such parts (`unlike_now`)."""

_MANIFEST = "logs.json"


def edit_log(
    path: Path, output: Path, edit_header: EditHeader, edit_sample: Edit | None
) -> Path | None:
    """Write an edited log to ``output``; None if it is not Inspect's.

    A log in place is not written if nothing changes.

    Parameters
    ----------
    edit_sample
        None if samples stay as they are.

    Raises
    ------
    WriteError
        The log is still being written, changed meanwhile, or has samples in chunks that are to be
        edited.
    LogError
        The log is damaged.
    """
    form = form_of(LogFile(path))
    if form is None:
        return None
    with local_copy(path) as original:
        log = read_header(original.file, form, path)
        refuse_unwritable(log, path)
        header, emptied = edit_header(log, unlike_now(raw_header(original.file, form, path)))
        samples = edit_sample is not None and would_change(original.file, form, edit_sample)
        if header is not log or samples or not same(path, output):
            with replacing(output, original, path) as copy:
                if samples and edit_sample is not None:
                    rewrite(original.file, copy, form, edit_sample)
                else:
                    shutil.copyfile(original.file, copy)
                if header is not log:
                    write_header(log, header, copy, form, path, emptied)
        list_in_manifest(output, header)
    return output


class Original(NamedTuple):
    """A log as a local file, and its revision, to detect later changes."""

    file: Path
    revision: object


@contextmanager
def local_copy(path: Path) -> Generator[Original, None, None]:
    """Give a log as a local file; one in an object store is downloaded."""
    local = local_path(path)
    if local is not None:
        yield Original(local, _revision(path))
        return
    with scratch_folder() as folder:
        file = folder / "log"
        # Read before the download: any later change of the log makes the write fail.
        seen = _revision(path)
        try:
            _store(path).get_file(_key(path), str(file))
        except OSError as error:
            raise LogError(f"{path} cannot be read ({error})") from error
        yield Original(file, seen)


@contextmanager
def replacing(output: Path, original: Original, path: Path) -> Generator[Path, None, None]:
    """Give a local file that replaces the log at ``output`` unless an error is raised.

    Raises
    ------
    WriteError
        The file cannot be written, or the log at ``path`` is replaced and has changed since it was
        opened. The output is unchanged.
    """
    over = original.revision if same(path, output) else None
    if local_path(output) is not None:
        with writing.replacing(
            _on_disk(output), over=cast("Revision | None", over), times_of=original.file
        ) as file:
            yield file
        return
    with scratch_folder() as folder:
        file = folder / "log"
        yield file
        with _reporting(output):
            _upload(file, output, over)


def list_in_manifest(output: Path, header: EvalLog) -> None:
    """Update a log's entry in the list of logs beside it, if that has one.

    The log is there before its entry tells of it. Inspect's ``write_log_dir_manifest`` would read
    the headers of all logs in the folder again.
    """
    manifest = output.parent / _MANIFEST
    if not manifest.is_file():
        return
    change = partial(_updated, name=output.name, header=header)
    if local_path(manifest) is not None:
        writing.edit(_on_disk(manifest), change)
        return
    with _reporting(manifest):
        if (content := change(manifest.read_bytes())) is not None:
            manifest.write_bytes(content)


@contextmanager
def _reporting(path: Path) -> Generator[None, None, None]:
    try:
        yield
    except OSError as error:
        msg = f"{path} cannot be written ({error.strerror or error}); what was there is unchanged"
        raise WriteError(msg) from error


def same(path: Path, other: Path) -> bool:
    """Whether two paths name the same log."""
    local = local_path(path)
    return str(path) == str(other) if local is None else local == local_path(other)


def local_path(path: Path) -> Path | None:
    """Return a path on this machine's disk, or None for one in an object store."""
    if getattr(path, "protocol", "") not in {"", "file", "local"}:
        return None
    return _on_disk(path).resolve()


def _on_disk(path: Path) -> Path:
    return Path(getattr(path, "path", path))


def _revision(path: Path) -> object:
    local = local_path(path)
    if local is not None:
        return revision(local)
    return _store(path).info(_key(path), refresh=True).get("ETag") if _is_s3(path) else None


def _upload(file: Path, output: Path, revision: object | None) -> None:
    """Upload a file; on S3 only if the object is still the revision that was read."""
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
            raise changed_error(output) from error
        raise
    finally:
        store.invalidate_cache(_key(output))


def _is_s3(path: Path) -> bool:
    return getattr(path, "protocol", "") in {"s3", "s3a"}


def _store(upath: Any) -> Any:
    return upath.fs


def _key(upath: Any) -> str:
    return upath.path


def _updated(content: bytes, name: str, header: EvalLog) -> bytes | None:
    """Return a manifest with a log's new entry; None if nothing changes."""
    try:
        entries: Any = from_bytes(content)
        listed: Any = entries[name]
    except (ValueError, LookupError, TypeError):
        # Not a manifest, or without this log.
        return None
    entry = json.loads(header.model_dump_json(exclude_none=True))
    if isinstance(listed, Mapping) and "reductions" in listed:
        # Never changed here, and so not read.
        entry["reductions"] = listed["reductions"]
    if entry == listed:
        return None
    return to_bytes({**entries, name: entry}, indent=2)
