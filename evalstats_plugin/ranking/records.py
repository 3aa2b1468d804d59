"""Comparisons as JSON: one object each, in a list or one a line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from evalstats_plugin.errors import LogError
from evalstats_plugin.ranking.columns import Column, Table
from evalstats_plugin.ranking.tabular import decoded

Record = Mapping[str, Any]

_LOOKED_INTO = 100
"""Records whose inner objects are searched for names."""
_DEEPEST = 4


def record_table(records: Sequence[Record], where: str, notes: tuple[str, ...] = ()) -> Table:
    """Return a table of records; what lies inside an object is named by a dotted path."""
    names = dict.fromkeys(name for record in records for name in record)
    inside = [path for record in records[:_LOOKED_INTO] for path in _paths(record)]

    def load(wanted: Sequence[str]) -> Mapping[str, Column]:
        return {name: Column.of(_cells(records, name, inside=name not in names)) for name in wanted}

    return Table(where, tuple(dict.fromkeys((*names, *inside))), load, notes)


def _cells(records: Sequence[Record], name: str, *, inside: bool) -> Iterator[Any]:
    if inside:
        keys = name.split(".")
        return (plain(value_at(record, keys)) for record in records)
    found = (record.get(name) for record in records)
    return (cell if isinstance(cell, str) else plain(cell) for cell in found)


def plain(value: Any) -> Any:
    """Return a value of JSON as a text or number: a list of one as its only entry."""
    if not isinstance(value, (dict, list)):
        return value
    inside = cast("dict[str, Any] | list[Any]", value)
    if isinstance(inside, list) and len(inside) == 1:
        return plain(inside[0])
    return json.dumps(inside, sort_keys=True)


def value_at(whole: Any, keys: Sequence[str]) -> Any:
    """Return what lies at a path into objects and lists, None where nothing does.

    >>> value_at({"a": [{"b": 3}]}, ["a", "0", "b"])
    3
    """
    value = whole
    for at, key in enumerate(keys):
        if isinstance(value, Mapping):
            inside = cast("Record", value)
            # A name may have dots of its own, as those of models have.
            rest = ".".join(keys[at:])
            if rest in inside:
                return inside[rest]
            value = inside.get(key)
        elif isinstance(value, list) and key.isdigit():
            listed = cast("list[Any]", value)
            value = listed[int(key)] if int(key) < len(listed) else None
        else:
            return None
    return value


def _paths(record: Record, before: str = "", depth: int = 1) -> Iterator[str]:
    for name, value in record.items():
        if isinstance(value, Mapping) and depth < _DEEPEST:
            yield from _paths(cast("Record", value), f"{before}{name}.", depth + 1)
        elif before:
            yield before + name


def json_value(content: bytes, where: str) -> Any:
    """Return the one value of a JSON file.

    Raises
    ------
    LogError
        It is not JSON, or cut off.
    """
    text = decoded(content, where)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        known = isinstance(error, json.JSONDecodeError)
        problem = f"{error.msg} in line {error.lineno}" if known else error
        msg = f"{where} is not JSON: {problem}; it may have been cut off"
        raise LogError(msg) from error


def records_of(value: Any, where: str) -> list[Record]:
    """Return the objects of a JSON list, or those that an object of columns stands for.

    Raises
    ------
    LogError
        It is neither.
    """
    if isinstance(value, Mapping):
        columns = cast("Mapping[str, Any]", value)
        lists = [cast("list[Any]", c) for c in columns.values() if isinstance(c, list)]
        sizes = {len(each) for each in lists} if len(lists) == len(columns) else set[int]()
        if len(sizes) == 1:
            rows = zip(*columns.values(), strict=True)
            return [dict(zip(columns, row, strict=True)) for row in rows]
        value = [columns]
    rows = cast("list[Any]", value) if isinstance(value, list) else [value]
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):
            msg = f"{where}: comparison {number} is {str(row)[:40]}, expected an object with names"
            raise LogError(msg)
    return rows


def read_lines(content: bytes, where: str) -> tuple[list[Record], tuple[str, ...]]:
    """Return the objects of JSONL, and a note where the last line is half written.

    Raises
    ------
    LogError
        Another line is not JSON.
    """
    content = content.removeprefix(b"\xef\xbb\xbf")
    whole, _, last = content.rpartition(b"\n")
    notes: tuple[str, ...] = ()
    if last.strip() and not _is_json(last):
        # Whoever wrote it was stopped; everything before it is whole.
        content, notes = whole, ("the last line is half written: left out",)
    lines = [line for line in decoded(content, where).split("\n") if line.strip()]
    try:
        found: Any = json.loads(f"[{','.join(lines)}]")
    except (ValueError, RecursionError):
        found = None
    if found is None or len(found) != len(lines):
        found = list(_one_by_one(content, where))
    return records_of(found, where), notes


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _one_by_one(content: bytes, where: str) -> Iterator[Any]:
    for number, line in enumerate(decoded(content, where).split("\n"), 1):
        if not line.strip():
            continue
        try:
            yield json.loads(line)
        except (ValueError, RecursionError) as error:
            msg = f"{where}: line {number} is not JSON ({error}): {line[:40]!r}"
            raise LogError(msg) from error
