"""Edit a log as a whole or not at all, on disk or in an object store.

`edit_log` edits the header and, if asked, the samples in a copy (`replacing`), which then replaces
the log unless that changed meanwhile, together with its entry in ``logs.json``, the list of headers
in the folder of an eval set.
"""

from __future__ import annotations

import json
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
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
from evalstats_plugin.runtime.files import LogFile
from evalstats_plugin.runtime.transactions import (
    Revision,
    Transaction,
    changed_error,
    revision,
    scratch_folder,
    transaction,
)

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
        with replacing(output, original, path) as target:
            if header is not log or samples or not same(path, output):
                copy = target.file()
                if samples and edit_sample is not None:
                    rewrite(original.file, copy, form, edit_sample)
                else:
                    shutil.copyfile(original.file, copy)
                if header is not log:
                    write_header(log, header, copy, form, path, emptied)
            target.list_in_manifest(header)
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
            msg = f"{path} cannot be read ({error})"
            raise LogError(msg) from error
        yield Original(file, seen)


class Target(ABC):
    """Where an edited log goes, and the list of logs beside it."""

    def __init__(self, output: Path) -> None:
        self.output = output

    @abstractmethod
    def file(self) -> Path:
        """Return the file to write the log to."""

    @abstractmethod
    def replace_manifest(self, manifest: Path, change: Callable[[bytes], bytes | None]) -> None:
        """Replace the list of logs by what a function makes of it."""

    def list_in_manifest(self, header: EvalLog) -> None:
        """Update the log's entry in the manifest of its folder, if that lists it.

        Inspect's ``write_log_dir_manifest`` would read the headers of all logs in the folder again.
        """
        manifest = self.output.parent / _MANIFEST
        if manifest.is_file():
            name = self.output.name
            self.replace_manifest(manifest, lambda content: _updated(content, name, header))


@contextmanager
def replacing(output: Path, original: Original, path: Path) -> Generator[Target, None, None]:
    """Give the target of a log, which replaces ``output`` unless an error is raised.

    On disk the log and the list of logs beside it are replaced together.

    Raises
    ------
    WriteError
        The file cannot be written, or the log at ``path`` is replaced and has changed since it was
        opened. The output is unchanged.
    """
    in_place = same(path, output)
    target = local_path(output)
    if target is None:
        with scratch_folder() as folder:
            uploaded = _Uploaded(output, folder)
            yield uploaded
            uploaded.upload(original.revision if in_place else None)
        return
    over = cast("Revision", original.revision) if in_place else None
    with transaction(target.parent) as staged:
        yield _OnDisk(output, staged, over, original.file)


class _OnDisk(Target):
    def __init__(
        self, output: Path, staged: Transaction, over: Revision | None, times_of: Path
    ) -> None:
        super().__init__(output)
        self.staged, self.over, self.times_of = staged, over, times_of

    def file(self) -> Path:
        return self.staged.stage(self.output, over=self.over, times_of=self.times_of)

    def replace_manifest(self, manifest: Path, change: Callable[[bytes], bytes | None]) -> None:
        if manifest.resolve().parent == self.staged.folder:
            self.staged.edit(manifest, change)
            return
        # The log is a link into another folder.
        with transaction(manifest.resolve().parent) as apart:
            apart.edit(manifest, change)


class _Uploaded(Target):
    def __init__(self, output: Path, folder: Path) -> None:
        super().__init__(output)
        self.copy = folder / "log"
        self.manifest: tuple[Path, Callable[[bytes], bytes | None]] | None = None

    def file(self) -> Path:
        return self.copy

    def replace_manifest(self, manifest: Path, change: Callable[[bytes], bytes | None]) -> None:
        self.manifest = manifest, change

    def upload(self, revision: object | None) -> None:
        """Upload what was written; the log first, of which the list of logs tells."""
        try:
            if self.copy.exists():
                _upload(self.copy, self.output, revision)
            if self.manifest is not None:
                manifest, change = self.manifest
                content = change(manifest.read_bytes())
                if content is not None:
                    manifest.write_bytes(content)
        except OSError as error:
            reason = error.strerror or error
            msg = f"{self.output} cannot be written ({reason}); what was there is unchanged"
            raise WriteError(msg) from error


def same(path: Path, other: Path) -> bool:
    """Whether two paths name the same log."""
    local = local_path(path)
    return str(path) == str(other) if local is None else local == local_path(other)


def local_path(path: Path) -> Path | None:
    """Return a path on this machine's disk, or None for one in an object store."""
    if getattr(path, "protocol", "") not in {"", "file", "local"}:
        return None
    return Path(getattr(path, "path", path)).resolve()


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


def _store(path: Path) -> Any:
    return path.fs  # type: ignore[attr-defined]  # a UPath has it


def _key(path: Path) -> str:
    return path.path  # type: ignore[attr-defined]  # a UPath has it


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
