"""Recognise Inspect logs, and guard their parsing: size limits and one kind of error.

Logs are recognised by their first bytes, without loading Inspect (`find_logs`, `form_of`). Inspect
has no limits of its own: an archive of 137 kB took 33 s and 2.5 GB to read its header. The limits
are far above the sizes of real logs, and may be raised here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Literal
from zipfile import BadZipFile, ZipFile, ZipInfo

from evalstats_plugin.errors import LogError, install_hint
from evalstats_plugin.runtime.files import LogFile
from evalstats_plugin.runtime.untrusted import printable_name

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

KEY = "evalstats"
"""Key of our block in the metadata of the header."""

START = "_journal/start.json"
"""Replaces the header in a log whose run has not ended, or crashed."""

SUMMARIES = "summaries.json"

JOURNAL = "_journal/summaries/"
"""Folder of the summaries of a run that has not ended."""

SAMPLES = "samples/"
_ZIP = b"PK"

_IN_SPEC = frozenset({"task", "model", "dataset", "created"})
"""Keys of every log's ``eval``, the description of the run."""

IN_ORDER = re.compile(rb'\s*\{\s*"version"\s*:\s*\d+\s*,\s*"status"\s*:')
"""The start of a ``.json`` log as Inspect writes it."""

FORMAT = 2
"""The format of a log that does not name it: that of all releases since 2024."""

_LATER = "; a later inspect_ai may read it, and else only the program that wrote it"
"""What helps where a log has a later format."""

_KEYS = re.compile(r'"(\w+)"\s*:')
_KEY = re.compile(r'[{,]\s*"([^"\\]*)"\s*:\s*')


def find_logs(files: Sequence[LogFile]) -> list[Path]:
    """Return the logs among the files of a folder, without manifests (``logs.json``)."""
    return [
        file.path
        for file in files
        if file.path.suffix == ".eval" or (file.path.suffix == ".json" and is_json_log(file))
    ]


def form_of(log: LogFile) -> Form | None:
    """Return the file format of an Inspect log; None if it is not Inspect's.

    A file named ``.eval`` that is no archive counts as a damaged log of Inspect.
    """
    named = log.path.suffix == ".eval"
    if log.head.startswith(_ZIP):
        try:
            with log.open() as file, ZipFile(file) as archive:
                names = archive.NameToInfo
        except (BadZipFile, OSError, ValueError, LookupError, NotImplementedError):
            return "eval" if named else None
        return "eval" if HEADER in names or START in names else None
    if named:
        return "eval"
    return "json" if is_json_log(log) else None


def is_json_log(log: LogFile) -> bool:
    """Whether a JSON file describes a run of Inspect, with its keys in any order."""
    text = log.head.decode(errors="replace").lstrip()
    if not text.startswith("{"):
        return False
    place, decoder = 0, json.JSONDecoder()
    while (key := _KEY.match(text, place)) is not None:
        if key[1] == "eval":
            # It may go on beyond the first bytes.
            inside = set(_KEYS.findall(text, key.end()))
            return text.startswith("{", key.end()) and inside >= _IN_SPEC
        try:
            _, place = decoder.raw_decode(text, key.end())
        except (ValueError, RecursionError):
            return False
        place += len(text[place:]) - len(text[place:].lstrip())
    return False


def load_inspect() -> Any:
    """Return the module ``inspect_ai.log``; raise `LogError` if Inspect is not installed."""
    try:
        return import_module("inspect_ai.log")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "inspect_ai":
            raise
        msg = f"Inspect logs are read with inspect_ai: {install_hint('inspect')}"
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
    text = f"{type(error).__name__}: {one_line(error)}"
    hint = _LATER if "of log format" in text else ""
    return LogError(f"{path} cannot be read as an Inspect log: {text}{hint}")


def one_line(error: Exception) -> str:
    """Return an error's message in one printable line of at most 300 characters."""
    return " ".join(printable_name(str(error)).split())[:300]


def check_version(version: int, path: Path) -> None:
    """Raise `LogError` if the log format is later than the installed Inspect knows."""
    newest: int = load_inspect().EvalLog.model_fields["version"].default
    if version > newest:
        installed = f"the installed inspect_ai reads up to {newest}"
        raise LogError(f"{path} has log format {version}, {installed}{_LATER}")


def check_size(size: int, limit: int, what: str, path: Path) -> None:
    """Raise `LogError` if something is larger than its limit."""
    if size > limit:
        raise LogError(
            f"{path}: {what} has {size / 1e6:.0f} MB unpacked, more than {limit / 1e6:.0f} MB; "
            "it may be a trap"
        )


def check_member(member: ZipInfo, limit: int, path: Path) -> None:
    """Raise `LogError` if a member of an archive is too large, or too large for its packed size."""
    for most in (limit, max(RATIO_FROM, MAX_RATIO * member.compress_size)):
        check_size(member.file_size, most, member.filename, path)


def without_traps(blocks: Iterable[bytes], what: str, path: Path) -> Iterator[bytes]:
    """Yield the blocks of a text in JSON; raise `LogError` if it is mostly brackets.

    Those would fill the memory.
    """
    containers = size = 0
    for block in blocks:
        containers += block.count(b"{") + block.count(b"[")
        size += len(block)
        if containers * MIN_PER_CONTAINER > max(size, RATIO_FROM):
            msg = f"{path}: {what} holds {containers} objects in {size} bytes; it may be a trap"
            raise LogError(msg)
        yield block
