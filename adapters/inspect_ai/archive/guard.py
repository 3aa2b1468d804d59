"""Recognise Inspect logs, and guard their parsing: size limits and one kind of error.

Logs are recognised by their first bytes, without loading Inspect (`find_logs`, `form_of`). Inspect
has no limits of its own: an archive of 137 kB took 33 s and 2.5 GB to read its header. The limits
are far above the sizes of real logs, and may be raised here. `printable` removes control characters
from names in logs, so that a log cannot manipulate a terminal.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Literal
from zipfile import BadZipFile, ZipFile, ZipInfo

from evalstats_plugin.errors import LogError

MAX_MEMBERS = 4_000_000
"""Files inside one archive."""

MAX_HEADER = 1 << 25
"""Unpacked bytes of a log's header."""

MAX_SUMMARIES = 1 << 28
"""Unpacked bytes of all summaries together; 20,000 samples with long texts have 57 MB."""

MAX_SAMPLE = 1 << 28
"""Unpacked bytes of one sample."""

MAX_JSON = 1 << 28
"""Bytes of a log in one JSON file, which Inspect reads as a whole."""

MAX_RATIO = 200
"""Unpacked to packed size, above `RATIO_FROM` bytes; real logs reach 40."""

RATIO_FROM = 1 << 22

MIN_PER_CONTAINER = 16
"""Bytes of JSON per list or object, each of which needs 60 bytes of memory; real logs have 50."""

Form = Literal["eval", "json"]
HEADER = "header.json"

START = "_journal/start.json"
"""Replaces the header in a log whose run has not ended, or crashed."""

SUMMARIES = "summaries.json"

JOURNAL = "_journal/summaries/"
"""Folder of the summaries of a run that has not ended."""

SAMPLES = "samples/"
_ZIP = b"PK"
_SNIFFED = 1024

_JSON_LOG = re.compile(
    rb'\s*\{\s*"version"\s*:\s*(\d+)\s*,\s*"status"\s*:\s*"\w+"\s*,\s*"eval"\s*:'
)

# Control and format characters, such as escape sequences and those that reverse text direction.
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})


def find_logs(folder: Path) -> list[Path]:
    """Return the logs directly in a folder, without hidden files and manifests (``logs.json``)."""
    names = sorted(folder.iterdir(), key=lambda p: p.name)
    files = [p for p in names if not p.name.startswith(".") and p.is_file()]
    return [
        p
        for p in files
        if p.suffix == ".eval" or (p.suffix == ".json" and json_version(p) is not None)
    ]


def form_of(path: Path) -> Form | None:
    """Return the file format of an Inspect log; None if it is not Inspect's.

    A file named ``.eval`` that is no archive counts as a damaged log of Inspect.
    """
    with path.open("rb") as file:
        if file.read(len(_ZIP)) == _ZIP:
            try:
                with ZipFile(file) as archive:
                    names = archive.NameToInfo
            except (BadZipFile, OSError, ValueError, LookupError, NotImplementedError):
                return "eval" if path.suffix == ".eval" else None
            return "eval" if HEADER in names or START in names else None
    if path.suffix == ".eval":
        return "eval"
    return None if json_version(path) is None else "json"


def json_version(path: Path) -> int | None:
    """Return the schema version of a ``.json`` log; None for other files."""
    with path.open("rb") as file:
        found = _JSON_LOG.match(file.read(_SNIFFED))
    # Longer numbers are no versions, and Python refuses to parse very long ones.
    return int(found.group(1)[:9]) if found else None


def load_inspect() -> Any:
    """Return the module ``inspect_ai.log``; raise `LogError` if Inspect is not installed."""
    try:
        return import_module("inspect_ai.log")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "inspect_ai":
            raise
        msg = "Inspect logs are read with inspect_ai: pip install 'evalstats-plugin[inspect]'"
        raise LogError(msg) from error


@contextmanager
def parsing(path: Path) -> Generator[None, None, None]:
    """Raise any error of Inspect, pydantic or a decompressor as a `LogError` about this file."""
    try:
        yield
    except LogError:
        raise
    except OSError as error:
        if error.errno is None:
            raise _broken(path, error) from error
        # A full disk or a missing permission, possibly of Inspect's temporary files.
        where = f" ({error.filename})" if error.filename not in (None, str(path)) else ""
        raise LogError(f"{path} cannot be read: {error.strerror}{where}") from error
    except Exception as error:
        # Their exceptions have no common base: a damaged log can raise a dozen kinds.
        raise _broken(path, error) from error


def _broken(path: Path, error: Exception) -> LogError:
    name = type(error).__name__
    return LogError(f"{path} cannot be read as an Inspect log: {name}: {one_line(error)}")


def one_line(error: Exception) -> str:
    """Return an error's message in one printable line of at most 300 characters."""
    return " ".join(printable(str(error)).split())[:300]


def printable(text: str) -> str:
    r"""Remove control characters.

    >>> printable("mock\x1b[31mllm")
    'mock[31mllm'
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(c for c in text if unicodedata.category(c) not in _UNSAFE)


def check_version(found: int, path: Path) -> None:
    """Raise `LogError` if the log format is later than the installed Inspect knows."""
    known: int = load_inspect().EvalLog.model_fields["version"].default
    if found > known:
        msg = (
            f"{path} has log format {found}, the installed inspect_ai reads up to {known}: "
            "upgrade inspect_ai"
        )
        raise LogError(msg)


def check_size(size: int, limit: int, what: str, path: Path) -> None:
    """Raise `LogError` if something is larger than its limit."""
    if size > limit:
        msg = (
            f"{path}: {what} takes {size / 1e6:.0f} MB unpacked, expected at most "
            f"{limit / 1e6:.0f} MB; it may be a trap"
        )
        raise LogError(msg)


def check_member(member: ZipInfo, limit: int, path: Path) -> None:
    """Raise `LogError` if a member of an archive is too large, or too large for its packed size."""
    for most in (limit, max(RATIO_FROM, MAX_RATIO * member.compress_size)):
        check_size(member.file_size, most, member.filename, path)


def check_density(content: bytes, what: str, path: Path) -> None:
    """Raise `LogError` on JSON that is mostly brackets, which would fill the memory."""
    containers = content.count(b"{") + content.count(b"[")
    if containers * MIN_PER_CONTAINER > max(len(content), RATIO_FROM):
        msg = f"{path}: {what} holds {containers} objects in {len(content)} bytes; it may be a trap"
        raise LogError(msg)
