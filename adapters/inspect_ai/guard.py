"""Limits on what Inspect is given to parse, and one error for whatever goes wrong.

Inspect has no limits of its own: an archive of 137 kB took 33 s and 2.5 GB to read its header.
The sizes are far above those of real logs; whoever has larger ones may raise them here.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from evalstats_plugin.adapters.inspect_ai.printable import printable
from evalstats_plugin.errors import LogError

MAX_MEMBERS = 4_000_000
"""Files inside one archive."""
MAX_HEADER = 1 << 25
"""Bytes, unpacked, as the next ones: of a log's header."""
MAX_SUMMARIES = 1 << 28
"""Of all summaries together; 20,000 samples with long texts take 57 MB."""
MAX_SAMPLE = 1 << 28
"""Of one sample."""
MAX_JSON = 1 << 28
"""Of a log in one JSON file, which Inspect reads as a whole."""
MAX_RATIO = 200
"""Unpacked to packed size, above `RATIO_FROM` bytes; real logs reach 40."""
RATIO_FROM = 1 << 22
MIN_PER_CONTAINER = 16
"""Bytes of JSON for each list or object, which takes 60 bytes of memory; real logs have 50."""

_MOST_OF_A_MESSAGE = 300


def load_inspect() -> Any:
    """Return ``inspect_ai.log``.

    Raises
    ------
    LogError
        Where Inspect is not installed.
    """
    try:
        return import_module("inspect_ai.log")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "inspect_ai":
            raise
        msg = "Inspect logs are read with inspect_ai: pip install 'evalstats-plugin[inspect]'"
        raise LogError(msg) from error


@contextmanager
def parsing(path: Path) -> Generator[None, None, None]:
    """Turn whatever Inspect, pydantic or a decompressor raises into an error about this file."""
    try:
        yield
    except LogError:
        raise
    except OSError as error:
        if error.errno is None:
            raise _broken(path, error) from error
        # A full disk or a missing permission, perhaps where Inspect's own work files lie.
        where = f" ({error.filename})" if error.filename not in (None, str(path)) else ""
        raise LogError(f"{path} cannot be read: {error.strerror}{where}") from error
    except Exception as error:
        # Their exceptions have no common base: a broken log alone raises a dozen kinds.
        raise _broken(path, error) from error


def _broken(path: Path, error: Exception) -> LogError:
    text = " ".join(printable(str(error)).split())[:_MOST_OF_A_MESSAGE]
    return LogError(f"{path} cannot be read as an Inspect log: {type(error).__name__}: {text}")


def check_version(found: int, path: Path) -> None:
    """Refuse logs of a later format than the installed Inspect knows."""
    known: int = load_inspect().EvalLog.model_fields["version"].default
    if found > known:
        msg = (
            f"{path} has log format {found}, the installed inspect_ai reads up to {known}: "
            "upgrade inspect_ai"
        )
        raise LogError(msg)


def check_density(content: bytes, what: str, path: Path) -> None:
    """Refuse JSON that is little text and mostly lists and objects: it would fill the memory."""
    containers = content.count(b"{") + content.count(b"[")
    if containers * MIN_PER_CONTAINER > max(len(content), RATIO_FROM):
        msg = f"{path}: {what} holds {containers} objects in {len(content)} bytes; it may be a trap"
        raise LogError(msg)


def check_size(size: int, limit: int, what: str, path: Path) -> None:
    """Refuse what is larger than its limit."""
    if size > limit:
        msg = (
            f"{path}: {what} takes {size / 1e6:.0f} MB unpacked, expected at most "
            f"{limit / 1e6:.0f} MB; it may be a trap"
        )
        raise LogError(msg)
