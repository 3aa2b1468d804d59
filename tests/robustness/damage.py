"""Damages files: every choice is drawn from a string of bytes, so that fuzzers can steer it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile

T = TypeVar("T")


class Choices:
    """Numbers out of a string of bytes; when it is used up, zeros."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._place = 0

    def below(self, n: int) -> int:
        """Return a number from 0 to n - 1."""
        width = max(1, (max(n - 1, 1).bit_length() + 7) // 8)
        part = self._data[self._place : self._place + width]
        self._place += width
        return int.from_bytes(part, "little") % max(n, 1)

    def one_of(self, values: Sequence[T]) -> T:
        """Return one of some values."""
        return values[self.below(len(values))]


Damage = Callable[[bytes, Choices], bytes]

_DEEP: Any = []
for _ in range(400):
    _DEEP = [_DEEP]

NASTY: tuple[Any, ...] = (
    _DEEP,
    None, True, False, 0, -1, 1, 2**31, 2**63, 10**30, 0.5, -0.0, 1e308, 1e-320,
    float("nan"), float("inf"), float("-inf"), "", "x", "nan", "1e999", "N/A", "\ud800", "\x00",
    "../../x", "a" * 300, [], [[]], {}, {"x": 1}, [1, 2], ["a", None], [{"doc_id": 0}], {"": {}},
    [[0, 1], [1, 0]], {"filter": {"target_hash": 1}}, "2026-11-21T07-08-07", "\x1b[2J", "é" * 5,
)  # fmt: skip
"""What a program does not expect in place of something else."""


def bytes_flipped(content: bytes, choices: Choices) -> bytes:
    """Change one to four bytes."""
    changed = bytearray(content)
    for _ in range(1 + choices.below(4)):
        if changed:
            changed[choices.below(len(changed))] ^= 1 + choices.below(255)
    return bytes(changed)


def cut_off(content: bytes, choices: Choices) -> bytes:
    """Keep the beginning only."""
    return content[: choices.below(len(content) + 1)]


def part_lost(content: bytes, choices: Choices) -> bytes:
    """Leave a stretch out, or have it twice."""
    start = choices.below(len(content) + 1)
    stop = start + choices.below(min(4096, len(content) - start) + 1)
    again = choices.below(2)
    return content[:stop] + content[start if again else stop :]


def zeroed(content: bytes, choices: Choices) -> bytes:
    """Fill a stretch with zeros, as file systems do after a power cut."""
    start = choices.below(len(content) + 1)
    size = min(choices.below(4096), len(content) - start)
    return content[:start] + bytes(size) + content[start + size :]


STRANGE = (
    b"[" * 50_000,
    b"9" * 5000,
    b"\x00",
    b"\xff\xfe",
    b"\r\n",
    b'"',
    b"-",
    b"1e999",
    b"\\u",
    b",",
)
"""Pieces that parsers stumble over: depth, length, encodings, separators."""


def inserted(content: bytes, choices: Choices) -> bytes:
    """Put one of the strange pieces somewhere."""
    place = choices.below(len(content) + 1)
    return content[:place] + choices.one_of(STRANGE) + content[place:]


def json_changed(content: bytes, choices: Choices) -> bytes:
    """Change one to three places in a JSON value."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return bytes_flipped(content, choices)
    for _ in range(1 + choices.below(3)):
        value = _changed(value, choices)
    try:
        return json.dumps(value, indent=choices.one_of([None, 2])).encode()
    except ValueError:
        return bytes_flipped(content, choices)


def _changed(value: Any, choices: Choices) -> Any:
    """Return a value of JSON with one place in it changed."""
    inside = (
        list(value)
        if isinstance(value, dict)
        else list(range(len(value)))
        if isinstance(value, list)
        else []
    )
    if not inside or choices.below(6) == 0:
        return _other(value, choices)
    key = choices.one_of(inside)
    copy = dict(value) if isinstance(value, dict) else list(value)
    what = choices.below(8)
    if what == 0:
        del copy[key]
    elif what == 1 and isinstance(copy, dict):
        copy[str(choices.one_of(NASTY))] = copy.pop(key)
    elif what == 1 and isinstance(copy, list):
        copy.append(copy[key])
    else:
        copy[key] = _changed(value[key], choices)
    return copy


def _other(value: Any, choices: Choices) -> Any:
    what = choices.below(6)
    if what == 0:
        return [value]
    if what == 1:
        return str(value)
    return choices.one_of(NASTY)


def lines_changed(content: bytes, choices: Choices) -> bytes:
    """Damage a line of JSON each, or leave out, repeat or swap lines."""
    lines = content.split(b"\n")
    at, other = choices.below(len(lines)), choices.below(len(lines))
    what = choices.below(6)
    if what == 0:
        del lines[at]
    elif what == 1:
        lines.insert(other, lines[at])
    elif what == 2:
        lines[at], lines[other] = lines[other], lines[at]
    else:
        lines[at] = json_changed(lines[at], choices)
    return b"\n".join(lines)


def cells_changed(content: bytes, choices: Choices) -> bytes:
    """Put something else into a cell of CSV."""
    lines = content.split(b"\n")
    at = choices.below(len(lines))
    cells = lines[at].split(b",")
    new = str(choices.one_of(NASTY)).encode(errors="surrogatepass")
    cells[choices.below(len(cells))] = choices.one_of([new, b'"', b"", b"\r", b"a,b", b"\xff"])
    lines[at] = b",".join(cells)
    return b"\n".join(lines)


def toml_changed(content: bytes, choices: Choices) -> bytes:
    """Put something else for a value or a name in TOML, or leave out, repeat or swap lines."""
    lines = content.split(b"\n")
    at = choices.below(len(lines))
    name, equals, value = lines[at].partition(b" = ")
    new = json.dumps(choices.one_of(NASTY)).encode()
    what = choices.below(4)
    if what == 0 or not equals:
        return lines_changed(content, choices)
    if what == 1:
        name = choices.one_of([new, b"method", b"format", b"seed", b"cluster", name + b".x"])
    else:
        value = new
    lines[at] = name + b" = " + value
    return b"\n".join(lines)


def _member_name(choices: Choices) -> str:
    name = str(choices.one_of(NASTY)).split("\x00")[0].replace("\ud800", "?")
    return name[:200] or "x"


def members_changed(content: bytes, choices: Choices) -> bytes:
    """Damage a file inside an archive, leave it out, or have it twice."""
    try:
        with ZipFile(io.BytesIO(content)) as archive:
            members = [(name, archive.read(name)) for name in archive.namelist()]
    except (BadZipFile, OSError, ValueError, NotImplementedError):
        return bytes_flipped(content, choices)
    if not members:
        return content
    at = choices.below(len(members))
    name, inside = members[at]
    what = choices.below(8)
    if what == 0:
        del members[at]
    elif what == 1:
        members.append((_member_name(choices), inside))
    else:
        damage = choices.one_of([json_changed, json_changed, json_changed, cut_off, bytes_flipped])
        members[at] = (name, damage(inside, choices))
    buffer = io.BytesIO()
    with ZipFile(buffer, "w", ZIP_DEFLATED) as archive:
        for each, part in members:
            archive.writestr(each, part)
    return buffer.getvalue()


def table_changed(content: bytes, choices: Choices) -> bytes:
    """Change the metadata of a Parquet file, or lose, retype, empty or shorten a column."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(io.BytesIO(content))
    metadata = dict(table.schema.metadata or {})
    what = choices.below(6)
    at = choices.below(table.num_columns)
    name = table.column_names[at]
    if what == 0:
        table = table.drop_columns([name])
    elif what == 1:
        table = table.set_column(at, name, pa.array([str(v) for v in table[name].to_pylist()]))
    elif what == 2:
        table = table.set_column(at, name, pa.nulls(table.num_rows, table[name].type))
    elif what == 3:
        table = table.slice(choices.below(table.num_rows))
    elif metadata:
        key = choices.one_of(sorted(metadata))
        metadata[key] = json_changed(metadata[key], choices)
        table = table.replace_schema_metadata(metadata)
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()


RAW: tuple[Damage, ...] = (bytes_flipped, cut_off, part_lost, zeroed, inserted)
"""What disks, copies and killed programs do."""


def damaged(content: bytes, choices: Choices, inside: Sequence[Damage]) -> bytes:
    """Damage a file, three times in four in its own terms."""
    damage = choices.one_of(RAW) if choices.below(4) == 0 or not inside else choices.one_of(inside)
    return damage(content, choices)
