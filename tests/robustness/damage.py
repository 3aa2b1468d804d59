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
        value = changed(value, choices)
    return _as_json(value, content, choices)


def _as_json(value: Any, content: bytes, choices: Choices) -> bytes:
    try:
        return json.dumps(value, indent=choices.one_of([None, 2])).encode()
    except (ValueError, RecursionError):
        return bytes_flipped(content, choices)


Place = tuple[str | int, ...]
"""Keys and indices from the root of a document to a value in it."""


def places_in(value: Any) -> dict[tuple[str, ...], list[Place]]:
    """Return the places of a document by kind: those of all elements of a list are of one kind.

    So the one key of a header is chosen as often as that of a thousand samples.
    """
    found: dict[tuple[str, ...], list[Place]] = {}
    left: list[tuple[Any, tuple[str, ...], Place]] = [(value, (), ())]
    while left:
        inside, kind, place = left.pop()
        found.setdefault(kind, []).append(place)
        if len(place) > _DEEPEST:
            continue
        if isinstance(inside, dict):
            left += [(v, (*kind, str(k)), (*place, k)) for k, v in inside.items()]
        elif isinstance(inside, list):
            left += [(v, (*kind, "*"), (*place, i)) for i, v in enumerate(inside)]
    return found


_DEEPEST = 30


def changed(document: Any, choices: Choices) -> Any:
    """Return a document with one place changed, or all places of one kind alike."""
    kinds = places_in(document)
    places = kinds[choices.one_of(list(kinds))]
    if choices.below(4):
        places = [choices.one_of(places)]
    what = choices.below(len(_CHANGES))
    new = choices.one_of(NASTY)
    other = _at(document, choices.one_of(kinds[choices.one_of(list(kinds))]))
    for place in places:
        document = _put(document, place, _CHANGES[what], new, other)
    return document


def _at(document: Any, place: Place) -> Any:
    for key in place:
        document = document[key]
    return document


_GONE: Any = object()
"""What stands for a value that is to be left out."""


def _put(document: Any, place: Place, change: Change, new: Any, other: Any) -> Any:
    """Return a document with the value at a place changed."""
    if not place:
        made = change(document, new, other)
        return None if made is _GONE else [document] * 2 if made is _TWICE else made
    key, rest = place[0], place[1:]
    try:
        inside = document[key]
    except (KeyError, IndexError, TypeError):
        return document  # lost by an earlier change
    copy = dict(document) if isinstance(document, dict) else list(document)
    made = change(inside, new, other) if not rest else _put(inside, rest, change, new, other)
    if made is _GONE:
        del copy[key]
    elif made is _TWICE and isinstance(copy, list):
        copy.append(inside)
    elif made is _TWICE:
        copy[str(new)[:50]] = copy.pop(key)
    else:
        copy[key] = made
    return copy


_TWICE: Any = object()
"""What stands for an element that is to be there twice, or a key with another name."""

Change = Callable[[Any, Any, Any], Any]
"""Of the value there is, something nasty, and another value of the document."""


def _as_other_type(value: Any, new: Any, _: Any) -> Any:
    """Return a value of another type that means the same to a person."""
    if isinstance(value, bool):
        return str(value).lower() if isinstance(new, str) else int(value)
    if isinstance(value, (int, float)):
        return str(value) if isinstance(new, str) else [value]
    if isinstance(value, str):
        return [value] if isinstance(new, (str, list)) else len(value)
    if isinstance(value, list):
        return str(value) if isinstance(new, str) else dict(enumerate(map(str, value)))
    return [list(pair) for pair in value.items()] if isinstance(value, dict) else {}


def _much_more(value: Any, *_: Any) -> Any:
    """Return much more of the same kind."""
    if isinstance(value, bool) or value is None:
        return [value] * 2000
    if isinstance(value, (int, float)):
        return value * 10**12 if value else 10**18
    if isinstance(value, str):
        return (value or "x") * 5000
    if isinstance(value, list):
        return (value or [0]) * 50
    return {**value, **{f"more {i}": v for i, v in enumerate([*value.values()] * 20)}}


_CHANGES: tuple[Change, ...] = (
    lambda _, new, __: new,
    lambda _, new, __: new,
    lambda _, new, __: new,
    _as_other_type,
    _as_other_type,
    _as_other_type,
    lambda value, *_: [value],
    lambda value, *_: {"value": value},
    lambda _, __, other: other,
    lambda _, __, other: other,
    lambda *_: None,
    lambda *_: _GONE,
    lambda *_: _GONE,
    lambda *_: _TWICE,
    _much_more,
)


def key_repeated(content: bytes, choices: Choices) -> bytes:
    """Give an object of JSON one of its keys twice, with another value."""
    places = [i for i in range(len(content)) if content[i : i + 1] == b"{"][:400]
    if not places:
        return bytes_flipped(content, choices)
    at = choices.one_of(places) + 1
    key = content[at:].partition(b'"')[2].partition(b'"')[0][:40]
    value = json.dumps(choices.one_of(NASTY)).encode()
    return content[:at] + b'"' + key + b'": ' + value + b", " + content[at:]


def encoded_otherwise(content: bytes, choices: Choices) -> bytes:
    """Write a text in another encoding, as editors and shells do."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return bytes_flipped(content, choices)
    encoding = choices.one_of(["utf-16", "utf-8-sig", "latin-1", "utf-32", "cp037"])
    return text.encode(encoding, errors="replace")


def lines_changed(content: bytes, choices: Choices) -> bytes:
    """Damage one line of JSON or all alike, or leave out, repeat or swap lines."""
    lines = content.split(b"\n")
    at, other = choices.below(len(lines)), choices.below(len(lines))
    what = choices.below(8)
    if what == 0:
        del lines[at]
    elif what == 1:
        lines.insert(other, lines[at])
    elif what == 2:
        lines[at], lines[other] = lines[other], lines[at]
    elif what in (3, 4):
        return _all_lines_changed(content, choices)
    else:
        lines[at] = json_changed(lines[at], choices)
    return b"\n".join(lines)


def _all_lines_changed(content: bytes, choices: Choices) -> bytes:
    """Change lines of JSON as the elements of one document."""
    try:
        value: Any = [json.loads(line) for line in content.splitlines() if line.strip()]
    except (ValueError, RecursionError):
        return bytes_flipped(content, choices)
    value = changed(value, choices)
    if not isinstance(value, list):
        return _as_json(value, content, choices)
    try:
        return b"".join(json.dumps(record).encode() + b"\n" for record in value)
    except (ValueError, RecursionError):
        return bytes_flipped(content, choices)


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
    what = choices.below(7)
    at = choices.below(table.num_columns)
    name = table.column_names[at]
    if what == 0:
        table = table.drop_columns([name])
    elif what in (1, 2):
        column = _retyped(table[name].to_pylist(), choices)
        table = table.set_column(at, name, column)
    elif what == 3:
        table = table.set_column(at, name, pa.nulls(table.num_rows, table[name].type))
    elif what == 4:
        table = table.slice(choices.below(table.num_rows))
    elif metadata:
        key = choices.one_of(sorted(metadata))
        metadata[key] = json_changed(metadata[key], choices)
        table = table.replace_schema_metadata(metadata)
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()


def _retyped(values: list[Any], choices: Choices) -> Any:
    """Return a column of Arrow with values of another type."""
    import pyarrow as pa

    kinds: list[Callable[[], Any]] = [
        lambda: pa.array([str(v) for v in values]),
        lambda: pa.array([[v] for v in values]),
        lambda: pa.array([{"value": v} for v in values]),
        lambda: pa.array([bool(v) for v in values]),
        lambda: pa.array([str(v).encode() for v in values]),
        lambda: pa.array(range(len(values)), pa.timestamp("us")),
        lambda: pa.array(range(len(values)), pa.uint64()),
        lambda: pa.array([str(v) for v in values]).dictionary_encode(),
        lambda: pa.nulls(len(values)),
        lambda: pa.array([choices.one_of([1e300, float("nan"), float("inf"), -1.0])] * len(values)),
        lambda: pa.array([None, *values[1:]]) if values else pa.nulls(0),
    ]
    try:
        return choices.one_of(kinds)()
    except (pa.ArrowException, TypeError, ValueError):
        return pa.array([str(v) for v in values])


RAW: tuple[Damage, ...] = (
    bytes_flipped, cut_off, part_lost, zeroed, inserted, encoded_otherwise, key_repeated,
)  # fmt: skip
"""What disks, copies and killed programs do."""


def damaged(content: bytes, choices: Choices, inside: Sequence[Damage]) -> bytes:
    """Damage a file, three times in four in its own terms."""
    damage = choices.one_of(RAW) if choices.below(4) == 0 or not inside else choices.one_of(inside)
    return damage(content, choices)
