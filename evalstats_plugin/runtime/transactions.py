"""Several files replaced all together or not at all, whatever kills or refuses the writer.

New contents are staged as hidden files beside the old ones. When all are on disk, a journal names
them; from then on they count as written. A program that is killed while it renames them leaves the
journal, and the next that writes to the folder, or looks for logs in it, finishes the work
(`finish_interrupted`). A step that the system refuses takes back those before it.

* `transaction`, `Transaction`: stage files, and replace them together
* `overwriting`, `check_free`: whether files that exist may be replaced by what was not made of them
* `rewriting_links`: allow files with several names (hard links), whose content is then overwritten
* `revision`, `changed_error`, `locked`: concurrent programs
* `scratch_folder`: a temporary folder that does not outlive the next run
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import stat
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evalstats_plugin.errors import WriteError

PREFIX = ".evalstats-"
"""Prefix of files being written: hidden, and not mistaken for files of a harness."""

JOURNAL, UNDO = ".commit", ".undo"
"""Endings of journals: of a transaction to be finished, and of one to be taken back."""

_SCRATCH = "evalstats-"

_OWNER = re.compile(r"(\d+)-([0-9a-f]{8})-")
"""Process and machine, in the name of a file being written."""

_ABANDONED = 86_400
"""Seconds after which a temporary file of another machine counts as abandoned."""

_tidied: set[tuple[int, str, str]] = set()
"""Folders that this process has already tidied; listing one again for each of its 10,000 files
would take quadratic time."""

Revision = tuple[int, int, int]
"""Inode, size and modification time: identifies one state of a file."""

_held = threading.local()
_links: ContextVar[bool] = ContextVar("rewriting_links", default=False)
_overwrites: ContextVar[bool] = ContextVar("overwriting", default=True)


@contextmanager
def _permitting(what: ContextVar[bool], *, allowed: bool) -> Generator[None]:
    before = what.set(allowed)
    try:
        yield
    finally:
        what.reset(before)


def rewriting_links(*, allowed: bool) -> AbstractContextManager[None]:
    """Overwrite the content of files that have several names (hard links), or refuse them."""
    return _permitting(_links, allowed=allowed)


def overwriting(*, allowed: bool) -> AbstractContextManager[None]:
    """Replace files and links that exist, or refuse to.

    Commands and functions that write many files refuse unless they are asked; outside of them
    files are replaced. Files that are read and written back (`Transaction.edit`, ``over``) are
    never refused.
    """
    return _permitting(_overwrites, allowed=allowed)


def may_overwrite() -> bool:
    """Return whether files that exist are replaced."""
    return _overwrites.get()


def check_free(path: Path, called: str = "") -> None:
    """Raise `WriteError` if a file or link has this path and may not be replaced."""
    if not may_overwrite() and (path.exists() or path.is_symlink()):
        raise WriteError(
            f"{called or path} exists already: write to another place, or replace it with "
            "--overwrite (in Python: overwrite=True)"
        )


def revision(path: Path) -> Revision | None:
    """Return the identity of a file's current state; None where there is no file."""
    try:
        there = path.stat()
    except FileNotFoundError:
        return None
    return there.st_ino, there.st_size, there.st_mtime_ns


def changed_error(path: Path) -> WriteError:
    """Return the error for a file that another process changed meanwhile."""
    return WriteError(
        f"{path} was changed by another process meanwhile; nothing was written: run it again"
    )


@contextmanager
def locked(folder: Path) -> Generator[bool]:
    """Lock a folder against other processes of this package that write to it.

    Yields whether it is locked: some network drives, and Windows, have no such locks.
    """
    try:
        import fcntl

        descriptor = os.open(folder, os.O_RDONLY)
    except (ImportError, PermissionError):
        yield False
        return
    try:
        there = os.fstat(descriptor)
        key = there.st_dev, there.st_ino
        held: dict[tuple[int, int], int] = _held.__dict__.setdefault("folders", {})
        if key in held:
            yield True
            return
        has = False
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            has = True
        held[key] = descriptor
        try:
            yield has
        finally:
            del held[key]
    finally:
        os.close(descriptor)


@dataclass
class _Change:
    """One file of a transaction."""

    named: Path
    """As the caller named it, for messages."""
    target: Path
    """Where links lead to."""
    staged: Path
    over: Revision | None = None
    is_new: bool = False
    """Whether no file may be there, unless files may be replaced."""
    edit: Callable[[bytes], bytes | None] | None = None
    times_of: Path | None = None
    old: Path | None = None
    """Second name of the old file, or a copy, to take the change back."""
    before: Revision | None = None
    rewrite: bool = False

    def entry(self, folder: Path) -> dict[str, Any]:
        """Return the change as the journal holds it."""
        return {
            "path": self.target.relative_to(folder).as_posix(),
            "new": self.staged.name,
            "after": revision(self.staged),
            "old": None if self.old is None else self.old.name,
            "before": self.before,
            "rewrite": self.rewrite,
        }


class Transaction:
    """Files below a folder that are replaced together when the block of `transaction` ends."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self._changes: list[_Change] = []
        self._made: list[Path] = []
        self._drafts: list[Path] = []
        self._is_pending = False
        self._make(self.folder)

    def stage(
        self, path: Path, *, over: Revision | None = None, times_of: Path | None = None
    ) -> Path:
        """Return an empty file for the new content of `path`.

        Parameters
        ----------
        over
            The `revision` of the file when it was read: if it has changed since, nothing is
            written.
        times_of
            The file whose time of modification the new one gets; harnesses sort logs by it.

        Raises
        ------
        WriteError
            The path leads out of the folder, the file has several names (hard links), or it exists
            and may not be replaced (`overwriting`).
        """
        if over is None:
            check_free(path)
        return self._stage(path, over=over, is_new=over is None, times_of=times_of)

    def _stage(self, path: Path, **about: Any) -> Path:
        target = path.resolve()
        if not target.is_relative_to(self.folder):
            raise WriteError(f"{path} leads to {target}, outside of {self.folder}")
        self._make(target.parent)
        if target.parent.stat().st_dev != self.folder.stat().st_dev:
            raise WriteError(f"{path} is on another disk than {self.folder}: write them apart")
        self._changes.append(_Change(path, target, self._new_file(), **about))
        return self._changes[-1].staged

    def write(
        self,
        path: Path,
        content: bytes,
        *,
        over: Revision | None = None,
        times_of: Path | None = None,
    ) -> Path:
        """Stage a file with its content; return the path. Parameters are those of `stage`."""
        with self.stage(path, over=over, times_of=times_of).open("wb") as file:
            file.write(content)
        return path

    def edit(self, path: Path, change: Callable[[bytes], bytes | None]) -> None:
        """Replace an existing file by what a function makes of it (None: nothing changes).

        The function is called while the folder is locked, so that no other program's change is
        lost.
        """
        self._stage(path, edit=change)

    @property
    def last(self) -> Path | None:
        """The file that was staged last."""
        return self._changes[-1].named if self._changes else None

    def commit(self) -> None:
        """Replace the files."""
        with locked(self.folder):
            self._edit()
            for change in self._changes:
                change.before = revision(change.target)
                if change.over is not None and change.before != change.over:
                    raise changed_error(change.named)
                if change.is_new:
                    check_free(change.target, str(change.named))
                if _is_linked(change.target):
                    # One of the names may be of a program that was killed.
                    _tidied.discard((os.getpid(), str(self.folder), PREFIX))
                    _tidy(self.folder, PREFIX)
                _dress(change)
                _fsync(change.staged)
            self._replace_all()
        # The renames themselves must survive a power cut; not every system can sync a folder.
        for folder in {change.target.parent for change in self._changes}:
            with suppress(OSError):
                _fsync(folder)
        self._made = []

    def clean(self) -> None:
        """Remove what is left of the staged files, and folders made for nothing."""
        if self._is_pending:
            return
        pairs = [(change.staged, change.old) for change in self._changes]
        for file in [*self._drafts, *filter(None, (file for pair in pairs for file in pair))]:
            with suppress(OSError):
                file.unlink(missing_ok=True)
        for folder in reversed(self._made):
            with suppress(OSError):
                folder.rmdir()

    def _edit(self) -> None:
        for change in list(self._changes):
            if change.edit is None:
                continue
            content = change.edit(change.target.read_bytes())
            if content is None:
                self._changes.remove(change)
                change.staged.unlink()
            else:
                change.staged.write_bytes(content)

    def _replace_all(self) -> None:
        changes = self._changes
        if len(changes) <= 1 and not any(change.rewrite for change in changes):
            for change in changes:
                change.staged.replace(change.target)
            return
        for change in changes:
            if change.before is not None:
                change.old = self._second_name(change)
        entries = [change.entry(self.folder) for change in changes]
        draft = self._new_file()
        self._drafts.append(draft)
        draft.write_text(json.dumps(entries))
        _fsync(draft)
        journal = draft.rename(draft.with_name(draft.name + JOURNAL))
        # From here to the end of the journal, the next program can finish what this one leaves.
        self._is_pending = True
        try:
            for entry in entries:
                _forward(self.folder, entry)
        except BaseException:
            journal = journal.rename(journal.with_suffix(UNDO))
            for entry in entries:
                _back(self.folder, entry)
            self._end(journal)
            raise
        self._end(journal)

    def _end(self, journal: Path) -> None:
        self._is_pending = False
        # One that stays does nothing: all its files are in place.
        with suppress(OSError):
            journal.unlink()
        for old in (change.old for change in self._changes if change.old is not None):
            with suppress(OSError):
                old.unlink(missing_ok=True)

    def _second_name(self, change: _Change) -> Path:
        old = self._new_file()
        if not change.rewrite:
            old.unlink()
            with suppress(OSError):
                os.link(change.target, old)
                return old
        shutil.copy2(change.target, old)
        return old

    def _new_file(self) -> Path:
        descriptor, file = _temporary_file(self.folder)
        os.close(descriptor)
        return file

    def _make(self, folder: Path) -> None:
        missing = [each for each in (folder, *folder.parents) if not each.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        self._made += reversed(missing)


@contextmanager
def transaction(folder: Path, *, named: Path | None = None) -> Generator[Transaction]:
    """Give a `Transaction`: its files are replaced together if the block raises nothing.

    `named` is the file for messages about the folder itself.

    Raises
    ------
    WriteError
        A file cannot be written, or has changed; what was there is still there.
    """
    staged: Transaction | None = None
    try:
        staged = Transaction(folder)
        yield staged
        staged.commit()
    except OSError as error:
        last = (staged and staged.last) or named or folder
        msg = f"{last} cannot be written ({error.strerror or error}); what was there is unchanged"
        raise WriteError(msg) from error
    finally:
        if staged is not None:
            staged.clean()


def _is_linked(path: Path) -> bool:
    try:
        return path.stat().st_nlink > 1
    except FileNotFoundError:
        return False


def _dress(change: _Change) -> None:
    """Give a staged file the owner, permissions and attributes of the file it replaces."""
    staged, target = change.staged, change.target
    try:
        old = target.stat()
    except FileNotFoundError:
        if change.times_of is not None:
            # A copy is as private as the log.
            shutil.copymode(change.times_of, staged)
        else:
            # Temporary files are private; a new file gets the permissions of new files.
            mask = os.umask(0)
            os.umask(mask)
            staged.chmod(0o666 & ~mask)
    else:
        if old.st_nlink > 1:
            if not _links.get():
                raise WriteError(
                    f"{change.named} has {old.st_nlink} names (hard links), and replacing it would "
                    "leave the others as they are: write copies elsewhere (-o), or overwrite its "
                    "content under all names with --rewrite-links (in Python: rewrite_links=True)"
                )
            change.rewrite = True
        else:
            _own_like(old, change)
            shutil.copymode(target, staged)
            _copy_attributes(target, staged)
    if change.times_of is not None:
        times = change.times_of.stat()
        os.utime(staged, ns=(times.st_atime_ns, times.st_mtime_ns))


def _own_like(old: os.stat_result, change: _Change) -> None:
    own = change.staged.stat()
    if os.name == "nt" or (old.st_uid, old.st_gid) == (own.st_uid, own.st_gid):
        return
    try:
        os.chown(change.staged, old.st_uid, old.st_gid)
    except PermissionError as error:
        raise WriteError(
            f"{change.named} belongs to another user or group, and replacing it would make it "
            "yours: write a copy elsewhere, or ask its owner"
        ) from error


def _copy_attributes(source: Path, target: Path) -> None:
    """Copy extended attributes, of which access control lists are some."""
    if not hasattr(os, "listxattr"):
        return
    # Some file systems have none, and some attributes are the system's own.
    with suppress(OSError):
        for name in os.listxattr(source):
            with suppress(OSError):
                os.setxattr(target, name, os.getxattr(source, name))


def _forward(folder: Path, entry: Mapping[str, Any]) -> None:
    """Put a staged file in its place, unless it is there already or the place has changed."""
    staged, target = folder / entry["new"], folder / entry["path"]
    if not staged.exists():
        return
    now, before = revision(target), entry["before"]
    if entry["rewrite"]:
        if now is not None and before is not None and now[0] == before[0]:
            _overwrite(target, staged)
        staged.unlink()
    elif now == (None if before is None else tuple(before)):
        staged.replace(target)
    else:
        staged.unlink()


def _back(folder: Path, entry: Mapping[str, Any]) -> None:
    """Put an old file back in its place, if the new one stands there."""
    target = folder / entry["path"]
    is_new = revision(target) == tuple(entry["after"])
    if entry["old"] is None:
        if is_new:
            target.unlink()
        return
    old = folder / entry["old"]
    if entry["rewrite"]:
        if old.exists():
            _overwrite(target, old)
    elif is_new:
        old.replace(target)


def _overwrite(target: Path, source: Path) -> None:
    with source.open("rb") as new, target.open("r+b") as file:
        shutil.copyfileobj(new, file)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())
    times = source.stat()
    os.utime(target, ns=(times.st_atime_ns, times.st_mtime_ns))


def finish_interrupted(folder: Path) -> None:
    """Finish what a killed program had begun to replace in a folder; no error if it may not."""
    with suppress(OSError):
        journals = [p for p in folder.glob(f"{PREFIX}*") if p.suffix in {JOURNAL, UNDO}]
        if not journals:
            return
        # Those at work hold the lock: what is there once we have it is of the dead.
        with locked(folder) as sure:
            for journal in journals:
                if journal.exists() and (sure or _is_of_the_dead(journal, PREFIX)):
                    _finish(folder.resolve(), journal)


def _finish(folder: Path, journal: Path) -> None:
    try:
        found: Any = json.loads(journal.read_text())
        entries = [_checked(folder, entry) for entry in found]
    except (ValueError, LookupError, TypeError, AttributeError):
        # Not ours: a journal is renamed when it is complete.
        return
    for entry in entries:
        (_back if journal.suffix == UNDO else _forward)(folder, entry)
    journal.unlink()
    for entry in entries:
        for name in filter(None, (entry["old"], entry["new"])):
            (folder / name).unlink(missing_ok=True)


def _checked(folder: Path, entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry of a journal; `ValueError` if it leads out of the folder it lies in."""
    target = folder / entry["path"]
    names = [entry["new"], *([] if entry["old"] is None else [entry["old"]])]
    inside = target.parent.resolve().is_relative_to(folder) and not target.is_symlink()
    plain = all(Path(n).name == n and n.startswith(PREFIX) for n in names)
    if not (inside and plain) or any((folder / n).is_symlink() for n in names):
        raise ValueError(entry["path"])
    _, _, _ = entry["after"]
    return {**entry, "rewrite": bool(entry["rewrite"])}


def _temporary_file(folder: Path) -> tuple[int, Path]:
    """Open a new temporary file, named after this process and machine."""
    _tidy(folder, PREFIX)
    descriptor, name = tempfile.mkstemp(prefix=_own_prefix(PREFIX), dir=folder)
    return descriptor, Path(name)


@contextmanager
def scratch_folder(inside: Path | None = None) -> Generator[Path]:
    """Give a temporary folder; those that killed programs left are removed first."""
    root = Path(tempfile.gettempdir()) if inside is None else inside
    prefix = _SCRATCH if inside is None else PREFIX
    _tidy(root, prefix)
    folder = tempfile.mkdtemp(prefix=_own_prefix(prefix), dir=root)
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _own_prefix(prefix: str) -> str:
    return f"{prefix}{os.getpid()}-{_machine()}-"


def _tidy(folder: Path, prefix: str) -> None:
    """Finish or remove what killed programs left in a folder, once for each process."""
    key = os.getpid(), str(folder), prefix
    if key in _tidied:
        return
    _tidied.add(key)
    finish_interrupted(folder)
    left = list(folder.glob(f"{prefix}*"))
    if any(p.suffix in {JOURNAL, UNDO} for p in left):
        return
    for each in left:
        with suppress(OSError):
            if _is_of_the_dead(each, prefix):
                if stat.S_ISDIR(each.lstat().st_mode):
                    shutil.rmtree(each)
                else:
                    each.unlink()


def _is_of_the_dead(file: Path, prefix: str) -> bool:
    """Whether a temporary file is of a process that has ended."""
    owner = _OWNER.match(file.name.removeprefix(prefix))
    if owner is None or (hasattr(os, "geteuid") and file.lstat().st_uid != os.geteuid()):
        return False
    # On Windows os.kill(pid, 0) would end the process.
    if owner[2] != _machine() or os.name == "nt":
        return time.time() - file.lstat().st_mtime > _ABANDONED
    try:
        os.kill(int(owner[1]), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def _machine() -> str:
    """Identify this machine or container, within which process numbers have a meaning."""
    namespace = ""
    with suppress(OSError):
        namespace = str(Path("/proc/self/ns/pid").readlink())
    return f"{zlib.crc32((platform.node() + namespace).encode(errors='replace')):08x}"


def _fsync(path: Path) -> None:
    """Force a file, or the names in a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
