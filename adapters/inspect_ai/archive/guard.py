"""Limits on what Inspect is given to parse, and one error for whatever goes wrong.

Inspect has no limits of its own: an archive of 137 kB took 33 s and 2.5 GB to read its header.
The sizes are far above those of real logs; whoever has larger ones may raise them here.
"""
# PART layout - Which files are Inspect's logs: told by their first bytes, without loading Inspect.
# PART printable - Names from logs, safe to print: whoever wrote a log must not steer a terminal.
# PART early_stops - What a log says about samples that did not run because enough was known without them.

from __future__ import annotations

import re
import unicodedata
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from zipfile import BadZipFile, ZipFile

from evalstats_plugin.errors import LogError

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog
    from inspect_ai.util import EarlyStop


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


Form = Literal["eval", "json"]


HEADER = "header.json"


START = "_journal/start.json"
"""Stands in for the header while a run goes on, or where it died."""


_ZIP = b"PK"


_SNIFFED = 1024


_JSON_LOG = re.compile(
    rb'\s*\{\s*"version"\s*:\s*(\d+)\s*,\s*"status"\s*:\s*"\w+"\s*,\s*"eval"\s*:'
)


# Control and format characters, among them escapes and those that reverse the text's direction.
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})


MANAGER = "evalstats_plugin adaptive"
"""By which our own early stopping is known in a log."""


TASK_ARGS = "task_args"
"""Key in what we say there: arguments of the task that another, ours, was put in front of."""


ADAPTIVE = "evalstats_plugin/adaptive"
"""That task; see `adaptive_task`."""


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


def find_logs(folder: Path) -> list[Path]:
    """Return the logs directly in a folder; its manifests (``logs.json``) are none."""
    return [
        p
        for p in sorted(folder.iterdir(), key=lambda p: p.name)
        if not p.name.startswith(".") and _is_log(p)
    ]


def _is_log(path: Path) -> bool:
    if path.suffix == ".eval":
        return path.is_file()
    return path.suffix == ".json" and path.is_file() and json_version(path) is not None


def form_of(path: Path) -> Form | None:
    """Return the form of an Inspect log; None for others' files.

    A file named ``.eval`` that is no archive at all is Inspect's, and broken.
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
    # Longer numbers are no versions, and Python refuses to read the longest.
    return int(found.group(1)[:9]) if found else None


def printable(text: str) -> str:
    r"""Leave out control characters.

    >>> printable("mock\x1b[31mllm")
    'mock[31mllm'
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(c for c in text if unicodedata.category(c) not in _UNSAFE)


def task_args_of(log: EvalLog) -> Mapping[str, Any]:
    """Return the arguments of the task itself, not how much of it was asked."""
    found = found_in(log) or {}
    if TASK_ARGS in found:
        return found[TASK_ARGS]
    # A run that was broken off has found nothing yet, and says only what was given.
    given = log.eval.task_args
    return given.get(TASK_ARGS) or {} if _is_ours(log.eval.task_registry_name, given) else given


def _is_ours(name: str | None, given: Mapping[str, Any]) -> bool:
    """Whether a run is of that task, which has no package in its name where we start it."""
    return name == ADAPTIVE or (
        name == ADAPTIVE.rpartition("/")[2] and given.keys() >= {"task", "bank"}
    )


def early_stops(log: EvalLog) -> Sequence[EarlyStop]:
    """Return the samples that were stopped before they ran."""
    stopping = log.results.early_stopping if log.results else None
    return stopping.early_stops if stopping else ()


def found_in(log: EvalLog) -> dict[str, Any] | None:
    """Return what an adaptive test found, where a log is of one."""
    summary = log.results.early_stopping if log.results else None
    return dict(summary.metadata) if summary and summary.manager == MANAGER else None
