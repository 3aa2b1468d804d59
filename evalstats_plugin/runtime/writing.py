"""Files that are replaced as a whole or not at all, whatever kills or refuses the writer.

New content goes to a hidden file beside the old one, is forced to disk, and takes its name. Nothing
is noted for a later program to finish: of several files that belong together, the one that tells of
the others is written last, and the same command once more writes what is missing.

* writing: `write_bytes`, `replacing`, `edit`, `new_folder`, `check_output_path`
* `overwriting`, `check_free`: whether files that exist may be replaced by what was not made of them
* `check_inside`: whether a path stays in the folder that was named
* `revision`, `changed_error`, `locked`: other programs that write at the same time
* `scratch_folder`: a temporary folder

What killed programs left beside a file is removed by the next that writes there, never by one that
reads.
"""

from __future__ import annotations

import filecmp
import os
import platform
import re
import shutil
import stat
import sys
import tempfile
import threading
import time
import warnings
import zlib
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

from evalstats_plugin.errors import ChangedError, SelectionError, WriteError
from evalstats_plugin.runtime.untrusted import echo_message

PREFIX = ".evalstats-"
"""Prefix of files being written: hidden, and not mistaken for files of a harness."""

_SCRATCH = "evalstats-"
"""Prefix of folders in the system's folder for temporary files."""

_OWNER = re.compile(r"(\d+)-([0-9a-f]{8})-")
"""Process and machine, in the name of a file being written."""

_ABANDONED = 86_400
"""Seconds after which a temporary file of another machine counts as abandoned."""

_SILENT, _PATIENCE = 1.0, 300.0
"""Seconds to wait for another program before saying so, and before giving up."""

_tidied: set[tuple[int, str]] = set()
"""Process, and folders that it has tidied; listing one again for each of its 10,000 files would
take quadratic time."""

Revision = tuple[int, int, int]
"""Inode, size and modification time: identifies one state of a file."""

_held = threading.local()
_overwrites: ContextVar[bool] = ContextVar("overwriting", default=True)


@contextmanager
def overwriting(*, allowed: bool) -> Generator[None]:
    """Replace files and links that exist, or refuse to.

    Commands and functions that write many files refuse unless they are asked; outside of them
    files are replaced. Files that are read and written back (`edit`, ``over``) are never refused.
    """
    before = _overwrites.set(allowed)
    try:
        yield
    finally:
        _overwrites.reset(before)


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
        The path is a folder, its folder does not exist, or the file does and may not be replaced
        (`overwriting`).
    """
    place = Path(path)
    called = f"{asked} {path}".lstrip()
    if place.is_dir():
        raise WriteError(f"{called} is a folder: name a file in it")
    if place.suffix.lower() not in endings:
        *most, last = endings
        fitting = f"{', '.join(most)} or {last}" if most else last
        raise SelectionError(f"{called}: the name of this file must end in {fitting}")
    if not makes_folder and not place.parent.is_dir():
        raise WriteError(f"{called}: there is no folder {place.parent}")
    check_free(place, called)
    return place


def check_inside(path: Path, folder: Path) -> None:
    """Raise `WriteError` if a path leads out of the folder that was named, as by a link."""
    if not path.resolve().is_relative_to(folder.resolve()):
        raise WriteError(f"{path} leads to {path.resolve()}, outside of {folder}")


def revision(path: Path) -> Revision | None:
    """Return the identity of a file's current state; None where there is no file."""
    try:
        state = path.stat()
    except FileNotFoundError:
        return None
    return state.st_ino, state.st_size, state.st_mtime_ns


def changed_error(path: Path) -> ChangedError:
    """Return the error for a file that another process changed meanwhile."""
    return ChangedError(
        f"{path} was changed by another process meanwhile; nothing was written to it: run it again"
    )


def write_bytes(
    path: Path, content: bytes, *, over: Revision | None = None, times_of: Path | None = None
) -> Path:
    """Write a file atomically, as `replacing` does; return its path."""
    with replacing(path, over=over, times_of=times_of) as temporary, temporary.open("wb") as file:
        file.write(content)
    return path


@contextmanager
def replacing(
    path: Path, *, over: Revision | None = None, times_of: Path | None = None
) -> Generator[Path]:
    """Yield an empty temporary file that replaces `path` if the block raises nothing.

    Readers find either the old content or the new one. A symbolic link stays a link; owner, group,
    permissions and attributes stay as they were. A file that has the new content already counts as
    written, also where files may not be replaced: a command that was interrupted can be run again.

    Parameters
    ----------
    over
        The `revision` of the file when it was read: if it has changed since, nothing is written.
    times_of
        The file whose time of modification the new one gets; harnesses sort logs by it.

    Raises
    ------
    WriteError
        The folder or file cannot be written, has several names (hard links), or exists and may not
        be replaced; what was there is still there.
    ChangedError
        The file has changed since it was read.
    """
    target = path.resolve()
    with _reporting(path), _folders_for(target.parent), _temporary_file(target.parent) as temporary:
        yield temporary
        with locked(target.parent):
            if over is None:
                is_kept = not may_overwrite() and target.is_file()
                if is_kept and filecmp.cmp(temporary, target, shallow=False):
                    return
                check_free(path)
            elif revision(target) != over:
                raise changed_error(path)
            _dress(temporary, target, path, times_of)
            _fsync(temporary)
            temporary.replace(target)
        # The new name itself must survive a power cut; not every system can sync a folder.
        with suppress(OSError):
            _fsync(target.parent)


def edit(path: Path, change: Callable[[bytes], bytes | None]) -> None:
    """Replace an existing file by what a function returns for its bytes (None: nothing changes).

    The folder is locked from reading to writing, so that no other program's change is lost.
    """
    with _reporting(path), locked(path.resolve().parent, needed=True):
        state = revision(path)
        content = change(path.read_bytes())
        if content is not None:
            write_bytes(path, content, over=state)


@contextmanager
def new_folder(folder: Path) -> Generator[Path]:
    """Yield a folder to be filled, which appears under its name when the block ends.

    A folder that exists is given itself.
    """
    target = folder.resolve()
    _tidy(target.parent, PREFIX)
    if target.exists():
        yield target
        return
    with _reporting(folder), _folders_for(target.parent), scratch_folder(target.parent) as scratch:
        inside = scratch / target.name
        inside.mkdir()
        yield inside
        for each in filter(Path.is_file, inside.rglob("*")):
            _fsync(each)
        inside.rename(target)
        with suppress(OSError):
            _fsync(target.parent)


@contextmanager
def scratch_folder(inside: Path | None = None) -> Generator[Path]:
    """Give a temporary folder: the system's, or a hidden one inside another folder."""
    if inside is not None:
        _tidy(inside, PREFIX)
    prefix = _SCRATCH if inside is None else PREFIX
    folder = tempfile.mkdtemp(prefix=_own_prefix(prefix), dir=inside)
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def locked(folder: Path, *, needed: bool = False) -> Generator[None]:
    """Lock a folder against other programs of this package that write to it.

    Waits for them, and says so. Without locks, as on Windows and some network drives, a program
    that writes at the same time may be overwritten: where that matters (`needed`), it is said.

    Raises
    ------
    WriteError
        The folder stays locked for minutes.
    """
    try:
        if sys.platform == "win32":
            raise ImportError(_NO_LOCKS)
        import fcntl

        descriptor = os.open(folder, os.O_RDONLY)
    except (ImportError, PermissionError):
        if needed:
            warnings.warn(_NO_LOCKS, stacklevel=2)
        yield
        return
    held: dict[tuple[int, int], int] = _held.__dict__.setdefault("folders", {})
    try:
        state = os.fstat(descriptor)
        key = state.st_dev, state.st_ino
        if key in held:
            yield
            return
        with suppress(OSError):  # a file system without locks
            _wait(lambda: fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB), folder)
        held[key] = descriptor
        try:
            yield
        finally:
            del held[key]
    finally:
        os.close(descriptor)


_NO_LOCKS = (
    "this system has no locks on folders: let only one program at a time write to this file, or an "
    "answer may be lost"
)


def _wait(lock: Callable[[], None], folder: Path) -> None:
    """Lock as soon as no other program holds the lock."""
    start = time.monotonic()
    said = False
    while True:
        try:
            lock()
        except BlockingIOError:
            waited = time.monotonic() - start
            if waited > _PATIENCE:
                raise WriteError(
                    f"another program has been writing to {folder} for {waited / 60:.0f} minutes; "
                    "nothing was written: run it again when that one has ended"
                ) from None
            if waited > _SILENT and not said:
                echo_message("note", f"waiting for another program that writes to {folder}")
                said = True
            time.sleep(0.02)
        else:
            return


@contextmanager
def _reporting(path: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        msg = f"{path} cannot be written ({error.strerror or error}); what was there is unchanged"
        raise WriteError(msg) from error


@contextmanager
def _folders_for(folder: Path) -> Generator[None]:
    """Make a folder and those above it; on an error remove those that are empty again."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for each in missing:
            with suppress(OSError):
                each.rmdir()
        raise


@contextmanager
def _temporary_file(folder: Path) -> Generator[Path]:
    """Give a new file, named after this process and machine, which goes if it is still there."""
    _tidy(folder, PREFIX)
    _tidy(Path(tempfile.gettempdir()), _SCRATCH)
    descriptor, name = tempfile.mkstemp(prefix=_own_prefix(PREFIX), dir=folder)
    os.close(descriptor)
    try:
        yield Path(name)
    finally:
        with suppress(OSError):
            Path(name).unlink(missing_ok=True)


def _dress(temporary: Path, target: Path, named: Path, times_of: Path | None) -> None:
    """Give a new file the owner, permissions and attributes of the file it replaces."""
    try:
        old = target.stat()
    except FileNotFoundError:
        if times_of is not None:
            # A copy is as private as the log.
            shutil.copymode(times_of, temporary)
        else:
            # Temporary files are private; a new file gets the permissions of new files.
            mask = os.umask(0)
            os.umask(mask)
            temporary.chmod(0o666 & ~mask)
    else:
        if old.st_nlink > 1:
            raise WriteError(
                f"{named} has {old.st_nlink} names (hard links), and replacing it would leave the "
                "others as they are: write copies elsewhere (-o), or make it a file of its own "
                f"first (cp {named} copy && mv copy {named})"
            )
        _own_like(old, temporary, named)
        shutil.copymode(target, temporary)
        _copy_attributes(target, temporary)
    if times_of is not None:
        times = times_of.stat()
        os.utime(temporary, ns=(times.st_atime_ns, times.st_mtime_ns))


def _own_like(old: os.stat_result, temporary: Path, named: Path) -> None:
    own = temporary.stat()
    if sys.platform == "win32" or (old.st_uid, old.st_gid) == (own.st_uid, own.st_gid):
        return
    try:
        os.chown(temporary, old.st_uid, old.st_gid)
    except PermissionError as error:
        raise WriteError(
            f"{named} belongs to another user or group, and replacing it would make it "
            "yours: write a copy elsewhere, or ask its owner"
        ) from error


def _copy_attributes(source: Path, target: Path) -> None:
    """Copy extended attributes, such as access control lists."""
    if sys.platform != "linux":
        return
    # Some file systems have none, and some attributes are the system's own.
    with suppress(OSError):
        for name in os.listxattr(source):
            with suppress(OSError):
                os.setxattr(target, name, os.getxattr(source, name))


def _own_prefix(prefix: str) -> str:
    return f"{prefix}{os.getpid()}-{_machine()}-"


def _tidy(folder: Path, prefix: str) -> None:
    """Remove what killed programs of this user left in a folder, once for each process."""
    key = os.getpid(), str(folder)
    if key in _tidied:
        return
    _tidied.add(key)
    for each in folder.glob(f"{prefix}*"):
        with suppress(OSError):
            state = each.lstat()
            if _is_of_the_dead(each, state, prefix):
                # A link is removed itself, never what it leads to.
                if stat.S_ISDIR(state.st_mode):
                    shutil.rmtree(each)
                else:
                    each.unlink()


def _is_of_the_dead(file: Path, state: os.stat_result, prefix: str) -> bool:
    """Whether a temporary file is of a process of this user that has ended."""
    owner = _OWNER.match(file.name.removeprefix(prefix))
    if owner is None or (sys.platform != "win32" and state.st_uid != os.geteuid()):
        return False
    # On Windows os.kill(pid, 0) would end the process.
    if owner[2] != _machine() or os.name == "nt":
        return time.time() - state.st_mtime > _ABANDONED
    try:
        os.kill(int(owner[1]), 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
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
    # Windows syncs only what may be written to.
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
