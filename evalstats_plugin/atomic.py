"""Replace a file as a whole or not at all."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from evalstats_plugin.errors import WriteError

PREFIX = ".evalstats-"
"""Of files being written: hidden, and not to be taken for a harness's own."""


def write_bytes(path: Path, content: bytes) -> Path:
    """Write a file so that anyone, at any moment, finds the old one or the new one, whole.

    The content goes to a hidden file beside it, is forced to disk, and takes the name in one
    step. A symbolic link stays a link; permissions stay as they were.

    Raises
    ------
    WriteError
        When the folder or file cannot be written; what was there is still there.
    """
    target = path.resolve()
    temporary: str | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(target.parent, PREFIX)
        descriptor, temporary = tempfile.mkstemp(
            prefix=f"{PREFIX}{os.getpid()}-", dir=target.parent
        )
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            shutil.copymode(target, temporary)
        else:
            # mkstemp makes files private; a new result is as open as any other new file.
            mask = os.umask(0)
            os.umask(mask)
            Path(temporary).chmod(0o666 & ~mask)
        Path(temporary).replace(target)
        temporary = None
        # The new name itself must survive a power cut; not every system can sync a folder.
        with suppress(OSError):
            sync(target.parent)
    except OSError as error:
        msg = f"{path} cannot be written ({error.strerror or error}); what was there is unchanged"
        raise WriteError(msg) from error
    finally:
        if temporary is not None:
            with suppress(OSError):
                Path(temporary).unlink()
    return path


def remove_leftovers(folder: Path, prefix: str) -> None:
    """Remove what a killed process left half written, but nothing of one that still runs.

    Names are a prefix and the number of the process that writes.
    """
    for left in folder.glob(f"{prefix}*"):
        owner = re.match(r"\d+", left.name.removeprefix(prefix))
        if owner and not _is_running(int(owner[0])):
            with suppress(OSError):
                left.unlink()


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def sync(path: Path) -> None:
    """Force a file, or the names in a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
