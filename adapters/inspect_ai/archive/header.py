"""Reads a log's header through Inspect, and writes edits into it or refuses to."""
# PART header_merge - Puts edits into a header as it was logged, so that what was not edited stays to the byte.

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile

from evalstats_plugin.adapters.inspect_ai.archive import guard
from evalstats_plugin.adapters.inspect_ai.archive.guard import HEADER, Form
from evalstats_plugin.adapters.inspect_ai.archive.members import from_bytes, like, to_bytes
from evalstats_plugin.adapters.inspect_ai.archive.opening import Archive
from evalstats_plugin.errors import WriteError

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog


_PARTS = ("samples", "reductions")
"""Of a log in one JSON file: what is no header."""


_NOT_IN_HEADER = {"samples", "reductions", "location", "etag"}


def read_header(file: Path, form: Form, path: Path) -> EvalLog:
    """Read a log without its samples and reductions; errors call it by path.

    Raises
    ------
    LogError
        When the log is broken, or too large to be one.
    """
    read_eval_log = guard.load_inspect().read_eval_log
    with guard.parsing(path):
        if form == "json":
            guard.check_size(file.stat().st_size, guard.MAX_JSON, "the log", path)
            return read_eval_log(str(file), header_only=True, format=form)
        with file.open("rb") as stream, Archive(stream, path).header() as copy:
            return read_eval_log(copy, header_only=True)


def refuse_unwritable(log: EvalLog, path: Path) -> None:
    """Refuse a log that is still being written, or whose newer parts would get lost.

    Raises
    ------
    WriteError
        With what to do about it.
    LogError
        For a later format than the installed Inspect knows.
    """
    if log.status == "started":
        msg = f"{path} is of a run that has not ended (status 'started'); annotate it afterwards"
        raise WriteError(msg)
    guard.check_version(log.version, path)
    written_by = log.eval.packages.get("inspect_ai", "")
    installed = version("inspect_ai")
    # Inspect drops what it does not know when it writes a header.
    if _release(written_by) > _release(installed):
        msg = (
            f"{path} was written by inspect_ai {written_by}, newer than the installed {installed}, "
            "which would drop what it does not know; upgrade inspect_ai first"
        )
        raise WriteError(msg)


def _samples_in(file: Path) -> dict[str, tuple[int, int]]:
    """Return checksum and size of everything in an archive but its header."""
    with ZipFile(file) as archive:
        live = archive.NameToInfo.items()
        return {name: (m.CRC, m.file_size) for name, m in live if name != HEADER}


def _replace(file: Path, content: bytes) -> None:
    """Give an archive another header, which says to be as old, and is packed as, the one before.

    Inspect would leave the old one inside as dead bytes: without taking it off the end, a log of
    15 kB grew to 577 kB in 120 rounds of annotating and stripping.
    """
    # Opened here: where Python cannot open an archive by its name, it begins an empty one.
    with file.open("r+b") as stream, ZipFile(stream, "a") as archive:
        last = max(archive.filelist, key=lambda member: member.header_offset, default=None)
        old = archive.NameToInfo.pop(HEADER)
        archive.filelist = [m for m in archive.filelist if m.filename != HEADER]
        if old is last:
            archive.start_dir = old.header_offset
        archive.writestr(like(old, content), content)


def _release(text: str) -> tuple[int, ...]:
    """Return the numbers a version starts with: enough to tell which release is newer."""
    found = re.match(r"\d+(\.\d+)*", text)
    return tuple(int(number) for number in found.group().split(".")) if found else ()


def write_header(before: EvalLog, log: EvalLog, file: Path, form: Form, path: Path) -> None:
    """Write a header's edits to a file nobody else reads yet, and read it back; errors name path.

    Parameters
    ----------
    before
        The header as it was read from the file; what differs in `log` is written.

    Raises
    ------
    WriteError
        When what is read back is not what was written.
    """
    after = as_json(log)
    with guard.parsing(path):
        logged = from_bytes(file.read_bytes()) if form == "json" else _header_of(file)
    _write(merged(logged, as_json(before), after), file, form, path)
    written = read_header(file, form, file)
    if to_bytes(as_json(written)) != to_bytes(after):
        # Of a format so old that Inspect reads its parts from elsewhere: the header is made new.
        _write({**after, **{k: logged[k] for k in _PARTS if k in logged}}, file, form, path)
        written = read_header(file, form, file)
    if written.metadata != log.metadata or written.results != log.results:
        msg = f"{path}: the header read back is not the one written; the log was left as it was"
        raise WriteError(msg)


def _header_of(file: Path) -> Any:
    with ZipFile(file) as archive:
        return from_bytes(archive.read(HEADER))


def _write(header: object, file: Path, form: Form, path: Path) -> None:
    if form == "json":
        file.write_bytes(to_bytes(header, indent=2))
        return
    samples = _samples_in(file)
    _replace(file, to_bytes(header))
    if _samples_in(file) != samples:
        msg = f"{path}: samples got lost as the header was written; the log was left as it was"
        raise WriteError(msg)


def as_json(log: EvalLog) -> dict[str, Any]:
    """Return a header as Inspect writes it."""
    return log.model_dump(mode="json", exclude_none=True, exclude=_NOT_IN_HEADER)


def merged(logged: Any, before: Any, after: Any) -> Any:
    """Return the JSON of a file with the edits that lead from one reading of it to another.

    Parameters
    ----------
    logged
        What the file holds.
    before, after
        What Inspect makes of it, without and with the edits.

    >>> merged({"b": 1, "old": 2}, {"b": 1, "default": 0}, {"new": 3, "b": 1, "default": 0})
    {'new': 3, 'b': 1, 'old': 2}
    """
    values: tuple[Any, Any, Any] = (logged, before, after)
    if all(isinstance(value, dict) for value in values):
        return _of_objects(*values)
    if all(isinstance(value, list) for value in values) and len({len(v) for v in values}) == 1:
        return [merged(*each) for each in zip(*values, strict=True)]
    return logged if before == after else after


def _of_objects(
    logged: dict[str, Any], before: dict[str, Any], after: dict[str, Any]
) -> dict[str, Any]:
    """Merge objects: what Inspect leaves out stays, what it fills in by itself stays out."""
    found: dict[str, Any] = {}
    for key, value in logged.items():
        if key in before and key in after:
            found[key] = merged(value, before[key], after[key])
        elif key in after or key not in before:
            found[key] = after.get(key, value)
    added = {k: v for k, v in after.items() if k not in logged and (k, v) not in before.items()}
    values = found | added
    return {key: values[key] for key in _in_order(list(found), list(after), added)}


def _in_order(kept: list[str], after: list[str], added: dict[str, Any]) -> list[str]:
    """Return the keys in the order of the file; each new one comes after its neighbour."""
    common = [key for key in after if key in kept]
    order = [key for key in kept if key in common]
    # Moved by an edit: where metrics stand decides whether the viewer shows them.
    order = kept if order == common else [*common, *(k for k in kept if k not in common)]
    place = 0
    for key in after:
        if key in added:
            order.insert(place, key)
        if key in order:
            place = order.index(key) + 1
    return order
