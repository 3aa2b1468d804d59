"""Tables as columns of coded texts: CSV, Parquet, and JSON records.

A `Column` stores each distinct text once, with a code per row. A `Table` loads columns on request;
`csv_table`, `parquet_table` and `record_table` make one. `read_lines` and `records_of`
read JSON and JSONL as records.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.errors import DesignError, LogError
from evalstats_plugin.runtime.files import number_in
from evalstats_plugin.runtime.memory import check_parquet, check_text
from evalstats_plugin.runtime.untrusted import csv_original
from evalstats_plugin.stats.arrays import BoolArray, FloatArray, IntArray

MISSING = -1
"""Code of an empty cell."""

_LARGEST_EXACT = 2.0**53
"""Largest float up to which all integers are exact."""

_SEPARATORS = ",;\t|"
"""Separators of CSV files that are recognised."""

_BLOCK = 1 << 24
"""Bytes parsed at a time; increased by the longest row."""

_LONGEST_HEADING = 1 << 16
"""Characters in which the separator is looked for."""

Record = Mapping[str, Any]
"""A JSON object."""

_LOOKED_INTO = 100
"""Records that are searched for names inside objects."""

_DEEPEST = 4
"""Most levels of nested objects that are searched."""


@dataclass(frozen=True, eq=False)
class Column:
    """Texts of C rows, with each distinct text stored once."""

    codes: IntArray
    """Index into `values`, `MISSING` for an empty cell; shape (C,)."""
    values: tuple[str, ...]

    @classmethod
    def of(cls, cells: Iterable[Any]) -> Column:
        """Make a column from the value of each row."""
        texts = [as_text(cell) for cell in cells]
        different = dict.fromkeys(texts)
        different.pop("", None)
        places = dict(zip(different, range(len(different)), strict=True))
        places[""] = MISSING
        codes = np.fromiter(map(places.__getitem__, texts), np.int64, len(texts))
        return cls(codes, tuple(different))

    @classmethod
    def encoded(cls, codes: IntArray, values: Sequence[Any]) -> Column:
        """Make a column from codes and their values, which may be untrimmed, empty or repeated."""
        texts = [as_text(value) for value in values]
        different = set(texts)
        if len(different) == len(texts) and "" not in different:
            return cls(codes, tuple(texts))
        tidy = cls.of(texts)
        # The code of an empty cell, -1, selects the appended last entry.
        return cls(np.append(tidy.codes, MISSING)[codes], tidy.values)

    @property
    def empty(self) -> BoolArray:
        """Whether each row is empty, shape (C,)."""
        return self.codes == MISSING

    def translated(self, by: Mapping[str, float]) -> FloatArray:
        """Return the number for each row's value in lower case; NaN for unknown values."""
        numbers = [by.get(value.casefold(), math.nan) for value in self.values]
        return np.append(numbers, math.nan)[self.codes]

    def numbers(self, name: str, where: str, expected: str) -> FloatArray:
        """Return the rows as numbers, NaN where empty, shape (C,).

        Raises
        ------
        DesignError
            A value is not a number; the message has its row.
        """
        parsed = [_number(value) for value in self.values]
        rows = np.append([math.nan if p is None else p for p in parsed], math.nan)[self.codes]
        if None in parsed:
            self.refuse(np.isnan(rows) & ~self.empty, name, where, expected)
        return rows

    def refuse(self, wrong: BoolArray, name: str, where: str, expected: str) -> None:
        """Raise `DesignError` on the first of the rows that are wrong, if any is."""
        rows = np.flatnonzero(wrong)
        if len(rows):
            value = (*self.values, "")[int(self.codes[rows[0]])]
            raise DesignError(f"{where}: {name} is {value!r} in {at_rows(rows)}. Write {expected}.")

    def texts(self) -> NDArray[np.object_]:
        """Return the text of each row, "" where empty."""
        return np.asarray([*self.values, ""], dtype=object)[self.codes]

    def numbered(self, names: Sequence[str]) -> IntArray:
        """Return the place of each row's value in a list of names that holds them all."""
        places = {name: i for i, name in enumerate(names)}
        return np.asarray([*(places[v] for v in self.values), MISSING], dtype=np.int64)[self.codes]

    def take(self, which: BoolArray | IntArray) -> Column:
        """Return some rows."""
        return Column(self.codes[which], self.values)


@dataclass(frozen=True, eq=False)
class Table:
    """A table whose columns are loaded on request."""

    where: str
    """Name of the table in messages."""
    names: tuple[str, ...]
    """Names of columns; dotted for nested ones, such as ``"metadata.model_a"``."""
    load: Callable[[Sequence[str]], Mapping[str, Column]]
    notes: tuple[str, ...] = ()


def at_rows(rows: IntArray) -> str:
    """Name the first of some rows, counted from 1, and how many more there are.

    >>> at_rows(np.array([4])), at_rows(np.array([4, 7])), at_rows(np.array([4, 7, 9]))
    ('row 5', 'row 5 (and 1 more row)', 'row 5 (and 2 more rows)')
    """
    more = len(rows) - 1
    counted = f" (and {more} more {'row' if more == 1 else 'rows'})" if more else ""
    return f"row {int(rows[0]) + 1}{counted}"


def as_text(cell: Any) -> str:
    """Return a cell as text, ``""`` for an empty one.

    >>> as_text(3.0), as_text(True), as_text(float("nan")), as_text(" x ")
    ('3', 'true', '', 'x')
    """
    if isinstance(cell, str):
        return cell.strip()
    if cell is None:
        return ""
    if isinstance(cell, (bool, np.bool_)):
        return "true" if cell else "false"
    if isinstance(cell, float):  # includes NumPy's floats
        number = float(cell)
        if math.isnan(number):
            return ""
        # Whole numbers in a column with empty cells arrive as floats.
        whole = number.is_integer() and abs(number) < _LARGEST_EXACT
        return str(int(number)) if whole else repr(number)
    return str(cell)


def _number(text: str) -> float | None:
    try:
        number = number_in(text)
    except ValueError:
        return None
    return None if math.isnan(number) else number


def csv_table(content: bytes, where: str) -> Table:
    """Return a table in UTF-8 text with a heading, separated by commas, semicolons, tabs or bars.

    Raises
    ------
    LogError
        The text is not UTF-8, a name occurs twice in the heading, or a row has too few or too many
        cells.
    """
    check_text(len(content), where)
    content = content.removeprefix(b"\xef\xbb\xbf")
    text = decoded(content, where)
    heading, separator = heading_of(text)
    names = tuple(csv_original(name.strip()) for name in heading)
    if twice := [n for n, count in Counter(names).items() if n and count > 1]:
        at = ", ".join(str(k + 1) for k, name in enumerate(names) if name == twice[0])
        raise LogError(f"{where}: columns {at} are both called {twice[0]!r}. Rename or remove one.")
    raw = dict(zip(names, heading, strict=True))

    def load(wanted: Sequence[str]) -> Mapping[str, Column]:
        parsed = _parsed(content, separator, [raw[name] for name in wanted], where)
        columns = {name: _column(parsed[raw[name]]) for name in wanted}
        return {
            name: Column.encoded(column.codes, list(map(csv_original, column.values)))
            for name, column in columns.items()
        }

    return Table(where, tuple(n for n in names if n), load)


def heading_of(text: str) -> tuple[list[str], str]:
    """Return the cells of the heading, and the separator that is most frequent in it.

    >>> heading_of('model;"item; id";score')
    (['model', 'item; id', 'score'], ';')
    """
    line = text[:_LONGEST_HEADING].lstrip("\r\n").partition("\n")[0]
    bare = "".join(line.split('"')[::2])
    separator = max(_SEPARATORS, key=bare.count)
    with io.StringIO(text, newline="") as start:
        rows = csv.reader(start, delimiter=separator)
        return next((row for row in rows if row), list[str]()), separator


def _parsed(content: bytes, separator: str, wanted: Sequence[str], where: str) -> Any:
    """Return the requested columns as an Arrow table of dictionary-encoded texts."""
    # pyarrow has no types of its own.
    pa: Any = import_module("pyarrow")
    pa_csv: Any = import_module("pyarrow.csv")
    wrong: list[Any] = []

    def on_wrong_row(row: Any) -> str:
        wrong.append(row)
        return "error"

    text = pa.dictionary(pa.int32(), pa.string())
    # A block is allocated as a whole, also for a small file.
    block = len(content) + 1
    if block > _BLOCK:
        block = _BLOCK + 2 * max(map(len, content.split(b"\n")))
    try:
        return pa_csv.read_csv(
            pa.BufferReader(content),
            # With several threads, the number of a wrong row is unknown.
            read_options=pa_csv.ReadOptions(use_threads=False, block_size=block),
            parse_options=pa_csv.ParseOptions(
                delimiter=separator,
                newlines_in_values=b'"' in content,
                invalid_row_handler=on_wrong_row,
            ),
            convert_options=pa_csv.ConvertOptions(
                include_columns=list(dict.fromkeys(wanted)),
                column_types=dict.fromkeys(wanted, text),
                null_values=[""],
                strings_can_be_null=True,
            ),
        )
    except pa.ArrowInvalid as error:
        if not wrong:
            raise LogError(f"{where} cannot be read as CSV: {error}") from error
        row = wrong[0]
        place = f"row {row.number - 1}" if row.number else "a row"
        raise LogError(
            f"{where}: {place} has {row.actual_columns} cells, but the heading has "
            f"{row.expected_columns}: {row.text[:60]!r}. Put texts with {separator!r} in quotes."
        ) from error


def parquet_table(content: bytes, where: str) -> Table:
    """Return a table in Parquet.

    Raises
    ------
    LogError
        The file is damaged, or a requested column holds nested values.
    """
    pa: Any = import_module("pyarrow")
    pq: Any = import_module("pyarrow.parquet")
    try:
        file: Any = pq.ParquetFile(pa.BufferReader(content))
        schema: Any = file.schema_arrow
        names: tuple[str, ...] = tuple(schema.names)
        # Texts stay codes: one that is long and in every row would not fit otherwise.
        coded = [name for name in names if pa.types.is_string(schema.field(name).type)]
        file = pq.ParquetFile(
            pa.BufferReader(content), page_checksum_verification=True, read_dictionary=coded
        )
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise LogError(f"{where} cannot be read as Parquet: {error}") from error

    def load(wanted: Sequence[str]) -> Mapping[str, Column]:
        check_parquet(file.metadata, where, wanted)
        try:
            loaded = file.read(columns=list(wanted))
            # Texts are not checked on reading.
            loaded.validate(full=True)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            msg = f"{where} cannot be read as Parquet: {error}; it may be damaged"
            raise LogError(msg) from error
        for name in wanted:
            if pa.types.is_nested(loaded[name].type):
                raise LogError(
                    f"{where}: column {name!r} holds {loaded[name].type} in each cell. Write "
                    "texts or numbers."
                )
        return {name: _column(loaded[name]) for name in wanted}

    return Table(where, names, load)


def _column(values: Any) -> Column:
    """Return a column of an Arrow table."""
    pa: Any = import_module("pyarrow")
    if not pa.types.is_dictionary(values.type):
        values = values.dictionary_encode()
    whole = values.unify_dictionaries().combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        whole = whole.chunk(0) if whole.num_chunks else pa.array([], values.type)
    # Not by to_numpy and fill_null, which import pandas.
    held = np.from_dlpack(whole.indices.is_valid().cast(pa.int8())) == 1
    codes = np.full(len(held), MISSING, dtype=np.int64)
    codes[held] = np.from_dlpack(whole.indices.drop_null())
    return Column.encoded(codes, whole.dictionary.to_pylist())


def record_table(records: Sequence[Record], where: str, notes: tuple[str, ...] = ()) -> Table:
    """Return a table of records; values inside objects are named by dotted paths."""
    names = dict.fromkeys(name for record in records for name in record)
    inside = [path for record in records[:_LOOKED_INTO] for path in _paths(record)]

    def load(wanted: Sequence[str]) -> Mapping[str, Column]:
        return {name: Column.of(_cells(records, name, inside=name not in names)) for name in wanted}

    return Table(where, tuple(dict.fromkeys((*names, *inside))), load, notes)


def _cells(records: Sequence[Record], name: str, *, inside: bool) -> Iterator[Any]:
    if inside:
        keys = name.split(".")
        return (json_cell(value_at(record, keys)) for record in records)
    cells = (record.get(name) for record in records)
    return (cell if isinstance(cell, str) else json_cell(cell) for cell in cells)


def _paths(record: Record, before: str = "", depth: int = 1) -> Iterator[str]:
    for name, value in record.items():
        if isinstance(value, Mapping) and depth < _DEEPEST:
            yield from _paths(cast("Record", value), f"{before}{name}.", depth + 1)
        elif before:
            yield before + name


def value_at(whole: Any, keys: Sequence[str]) -> Any:
    """Return the value at a path into objects and lists, None where there is none.

    >>> value_at({"a": [{"b": 3}]}, ["a", "0", "b"]), value_at({"v0.1": {"b": 4}}, ["v0", "1", "b"])
    (3, 4)
    """
    value = whole
    for at, key in enumerate(keys):
        if isinstance(value, Mapping):
            inside = cast("Record", value)
            # Names, such as those of models, may contain dots.
            for end in range(len(keys), at + 1, -1):
                if (name := ".".join(keys[at:end])) in inside:
                    return value_at(inside[name], keys[end:])
            value = inside.get(key)
        elif isinstance(value, list) and key.isdigit():
            listed = cast("list[Any]", value)
            value = listed[int(key)] if int(key) < len(listed) else None
        else:
            return None
    return value


def json_cell(value: Any) -> Any:
    """Return a JSON value as a text or number; a list of one is its only entry."""
    if not isinstance(value, (dict, list)):
        return value
    inside = cast("dict[str, Any] | list[Any]", value)
    if isinstance(inside, list) and len(inside) == 1:
        return json_cell(inside[0])
    return json.dumps(inside, sort_keys=True)


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
        # The writer was interrupted; the lines before are complete.
        content, notes = whole, ("the last line is half written: left out",)
    lines = [line for line in decoded(content, where).split("\n") if line.strip()]
    try:
        values: Any = json.loads(f"[{','.join(lines)}]")
    except (ValueError, RecursionError):
        values = None
    if values is None or len(values) != len(lines):
        values = list(_one_by_one(content, where))
    return records_of(values, where), notes


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


def records_of(value: Any, where: str) -> list[Record]:
    """Return the objects of a JSON list, or the rows of an object of columns.

    Raises
    ------
    LogError
        The value is neither.
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
            msg = f"{where}: record {number} is {str(row)[:40]}. Write an object with names."
            raise LogError(msg)
    return rows


def decoded(content: bytes, where: str) -> str:
    """Return text from its bytes in UTF-8.

    Raises
    ------
    LogError
        The bytes are not UTF-8; the message says where, and how to convert them.
    """
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # Without the byte order mark, as positions are.
        text = error.object
        code = "UTF-16" if text[:2] in {b"\xff\xfe", b"\xfe\xff"} else "WINDOWS-1252"
        line = text.count(b"\n", 0, error.start) + 1
        raise LogError(
            f"{where}: byte {text[error.start]:#04x} at position {error.start} (line {line}) is "
            f"not UTF-8; convert the file, as with: iconv -f {code} -t UTF-8 FILE > NEW"
        ) from error
