"""Read a log's header with Inspect, and write edits into it.

`write_header` merges the edits into the JSON as it was logged (`merged`), so that unedited parts
keep every byte, and reads the result back. `refuse_unwritable` raises if Inspect would lose parts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile

from evalstats_plugin.adapters.inspect_ai.archive import guard
from evalstats_plugin.adapters.inspect_ai.archive.guard import HEADER, Form
from evalstats_plugin.adapters.inspect_ai.archive.members import (
    from_bytes,
    layout_of,
    member_like,
    to_bytes,
)
from evalstats_plugin.adapters.inspect_ai.archive.opening import Archive, json_copy
from evalstats_plugin.errors import LogError, WriteError
from evalstats_plugin.runtime.files import LogFile

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog


_BODY = ("samples", "reductions")
"""The parts of a log in one JSON file that are not in the header."""

_EDITED = ("results", "metadata", "tags", "eval")
"""The parts of a header that are edited."""

_FILLED = {"tags": "[]", "metadata": "{}", "log_updates": ""}
"""The parts that edits fill, and what Inspect writes for empty ones; nothing for the history."""

_EMPTY = ("", "null", "[]", "{}")

_NOT_IN_HEADER = {*_BODY, "location", "etag"}


def read_header(file: Path, form: Form, path: Path) -> EvalLog:
    """Read a log without its samples and reductions; ``path`` is its name in errors.

    Raises
    ------
    LogError
        The log is damaged, or larger than the limits.
    """
    read_eval_log = guard.load_inspect().read_eval_log
    with guard.parsing(path):
        if form == "json":
            with json_copy(LogFile(file)) as copy:
                return read_eval_log(copy, header_only=True, format=form)
        with file.open("rb") as stream, Archive(stream, path).header() as copy:
            return read_eval_log(copy, header_only=True)


def refuse_unwritable(log: EvalLog, path: Path) -> None:
    """Check that a log can be written without loss.

    Raises
    ------
    WriteError
        The run has not ended, or a newer Inspect has written the log.
    LogError
        The log format is later than the installed Inspect knows.
    """
    if log.status == "started":
        msg = f"{path} is of a run that has not ended (status 'started'); annotate it afterwards"
        raise WriteError(msg)
    guard.check_version(log.version, path)
    written_by = log.eval.packages.get("inspect_ai", "")
    installed = version("inspect_ai")
    # Inspect drops unknown fields when it writes a header.
    if _release(written_by) > _release(installed):
        raise WriteError(
            f"{path} was written by inspect_ai {written_by}, newer than the installed {installed}, "
            "which would drop what it does not know; upgrade inspect_ai first"
        )


def _release(text: str) -> tuple[int, ...]:
    """Return the numbers at the start of a version, to compare releases."""
    match = re.match(r"\d+(\.\d+)*", text)
    return tuple(int(number) for number in match.group().split(".")) if match else ()


def raw_header(file: Path, form: Form, path: Path) -> bytes:
    """Return the JSON text that holds the header."""
    with guard.parsing(path):
        if form == "json":
            return file.read_bytes()
        with ZipFile(file) as archive:
            return archive.read(HEADER)


def unlike_now(content: bytes) -> dict[str, str]:
    """Return the parts that edits fill and that are otherwise than Inspect now writes empty ones.

    By name as JSON text, empty for a part that is not there: older logs have no tags.

    >>> unlike_now(b'{"tags": [], "metadata": null}')
    {'metadata': 'null'}
    """
    logged: Any = from_bytes(content)
    texts = {name: json.dumps(logged[name]) if name in logged else "" for name in _FILLED}
    return {name: text for name, text in known_empty(texts).items() if text != _FILLED[name]}


def known_empty(texts: Mapping[str, Any]) -> dict[str, str]:
    """Return the texts that stand for empty parts, of the parts that edits fill."""
    return {name: texts[name] for name in _FILLED if texts.get(name) in _EMPTY}


def write_header(
    before: EvalLog,
    log: EvalLog,
    file: Path,
    form: Form,
    path: Path,
    emptied: Mapping[str, str],
) -> None:
    """Write a header's edits to a private copy of a log, and read it back to check.

    Parameters
    ----------
    before, log
        The header as it was read from the file, and as edited.
    path
        The log's name in errors.
    emptied
        What is written for parts that the edit leaves empty (`unlike_now`).

    Raises
    ------
    WriteError
        The header read back is not the one written.
    """
    old, after = as_json(before), as_json(log)
    content = raw_header(file, form, path)
    with guard.parsing(path):
        logged, layout = from_bytes(content), layout_of(content)
    # Of a log so old that Inspect reads its results from elsewhere, these stay as they are.
    for header in (after, {**after, "results": old.get("results")}):
        changed = merged(logged, old, header)
        for name, text in emptied.items():
            # Inspect takes the run's own where the log has none, and nobody edited them.
            own = None if changed.get("log_updates") else changed["eval"].get(name)
            if changed.get(name) in (own, None, [], {}):
                changed.pop(name, None)
                changed |= {name: json.loads(text)} if text else {}
        _write(layout(changed), file, form, path)
        try:
            written = as_json(read_header(file, form, file))
        except LogError as error:
            if isinstance(error.__cause__, OSError):
                # The disk is full, say; the header may be well.
                raise error.__cause__ from error
            continue
        if all(to_bytes(written.get(k)) == to_bytes(header.get(k)) for k in _EDITED):
            return
    msg = f"{path}: the header read back is not the one written; the log was left as it was"
    raise WriteError(msg)


def _write(header: bytes, file: Path, form: Form, path: Path) -> None:
    """Replace the header; in an archive with the old one's date and compression.

    Inspect would leave the old header in the file as dead bytes: a log of 15 kB grew to 577 kB in
    120 rounds of annotating and stripping. Here it is overwritten if it is the last member.
    """
    if form == "json":
        file.write_bytes(header)
        return
    samples = _samples_in(file)
    # Opened here, because `ZipFile(name, "a")` begins an empty archive if it cannot open the file.
    with file.open("r+b") as stream, ZipFile(stream, "a") as archive:
        last = max(archive.filelist, key=lambda member: member.header_offset, default=None)
        old = archive.NameToInfo.pop(HEADER)
        archive.filelist = [m for m in archive.filelist if m.filename != HEADER]
        if old is last:
            archive.start_dir = old.header_offset
        archive.writestr(member_like(old), header)
    if _samples_in(file) != samples:
        msg = f"{path}: samples got lost as the header was written; the log was left as it was"
        raise WriteError(msg)


def _samples_in(file: Path) -> dict[str, tuple[int, int]]:
    """Return checksum and size of every member of an archive but the header."""
    with ZipFile(file) as archive:
        live = archive.NameToInfo.items()
        return {name: (m.CRC, m.file_size) for name, m in live if name != HEADER}


def as_json(log: EvalLog) -> dict[str, Any]:
    """Return a header as Inspect writes it."""
    return log.model_dump(mode="json", exclude_none=True, exclude=_NOT_IN_HEADER)


def merged(logged: Any, before: Any, after: Any) -> Any:
    """Return the JSON of a file with the edits that lead from ``before`` to ``after``.

    Parameters
    ----------
    logged
        The JSON in the file.
    before, after
        The same as Inspect writes it, without and with the edits.

    >>> merged({"b": 1, "old": 2}, {"b": 1, "default": 0}, {"new": 3, "b": 1, "default": 0})
    {'new': 3, 'b': 1, 'old': 2}
    """
    versions: tuple[Any, Any, Any] = (logged, before, after)
    if all(isinstance(value, list) for value in versions) and len(logged) == len(before):
        shared = min(len(before), len(after))
        if len(before) == len(after) or before[:shared] == after[:shared]:
            # The edit changed elements, or the list's end.
            return [*map(merged, logged[:shared], before, after), *after[shared:]]
    if not all(isinstance(value, dict) for value in versions):
        return logged if before == after else after
    # What Inspect drops is kept, and the defaults that it fills in are left out.
    kept: dict[str, Any] = {}
    for key, value in logged.items():
        if key in before and key in after:
            kept[key] = merged(value, before[key], after[key])
        elif key in after or key not in before:
            kept[key] = after.get(key, value)
    added = {k: v for k, v in after.items() if k not in logged and (k, v) not in before.items()}
    values = kept | added
    return {key: values[key] for key in _in_order(list(kept), list(before), list(after), added)}


def _in_order(
    kept: list[str], before: list[str], after: list[str], added: dict[str, Any]
) -> list[str]:
    """Return the keys in the order of the file; a new key follows its neighbour in ``after``."""
    names = set(kept)
    common = [key for key in after if key in names]
    shared = set(common)
    # An edit may move keys: the viewer shows only the first metrics.
    is_moved = [key for key in before if key in shared] != common
    order = [*common, *(k for k in kept if k not in shared)] if is_moved else kept
    behind: dict[str | None, list[str]] = {}
    neighbour = None
    for key in after:
        if key in added:
            behind.setdefault(neighbour, []).append(key)
        elif key in names:
            neighbour = key
    return [
        each for key in (None, *order) for each in (key, *behind.get(key, ())) if each is not None
    ]
