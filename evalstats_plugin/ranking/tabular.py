"""Tables of comparisons in CSV and Parquet, read column by column."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from evalstats_plugin.errors import LogError
from evalstats_plugin.ranking.columns import Column, Table

_SEPARATORS = ",;\t|"
_BLOCK = 1 << 24
"""Bytes that are parsed at a time; a longer row needs a longer block."""
_LONGEST_HEADING = 1 << 16


def csv_table(content: bytes, where: str) -> Table:
    """Return a table in UTF-8 text with a heading, separated by commas, semicolons, tabs or bars.

    Raises
    ------
    LogError
        The text is not UTF-8, a name of the heading is there twice, or a row has too few or too
        many cells.
    """
    content = content.removeprefix(b"\xef\xbb\xbf")
    text = decoded(content, where)
    separator = _separator(text)
    # A matrix has a heading as long as its items are many.
    with io.StringIO(text, newline="") as start:
        rows = csv.reader(start, delimiter=separator)
        heading = next((row for row in rows if row), list[str]())
    names = tuple(name.strip() for name in heading)
    if twice := [n for n in dict.fromkeys(names) if n and names.count(n) > 1]:
        at = ", ".join(str(k + 1) for k, name in enumerate(names) if name == twice[0])
        msg = f"{where}: column {twice[0]!r} found twice (columns {at}): rename or remove one"
        raise LogError(msg)
    raw = dict(zip(names, heading, strict=True))

    def load(wanted: Sequence[str]) -> Mapping[str, Column]:
        found = _parsed(content, separator, [raw[name] for name in wanted], where)
        return {name: _column(found[raw[name]]) for name in wanted}

    return Table(where, tuple(n for n in names if n), load)


def decoded(content: bytes, where: str) -> str:
    """Return text from its bytes in UTF-8.

    Raises
    ------
    LogError
        It is not UTF-8; the message says where, and how to convert it.
    """
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        code = "UTF-16" if content[:2] in {b"\xff\xfe", b"\xfe\xff"} else "WINDOWS-1252"
        line = content.count(b"\n", 0, error.start) + 1
        msg = (
            f"{where}: byte {content[error.start]:#04x} at position {error.start} (line {line}) is "
            f"not UTF-8; convert the file, as with: iconv -f {code} -t UTF-8 FILE > NEW"
        )
        raise LogError(msg) from error


def _separator(text: str) -> str:
    """Return the separator that the heading has most of, outside of quotes."""
    line = text[:_LONGEST_HEADING].lstrip("\r\n").partition("\n")[0]
    bare = "".join(line.split('"')[::2])
    return max(_SEPARATORS, key=bare.count)


def _parsed(content: bytes, separator: str, wanted: Sequence[str], where: str) -> Any:
    """Return the columns wanted as an Arrow table of texts, each different one kept once."""
    # pyarrow has no types of its own.
    pa: Any = import_module("pyarrow")
    pa_csv: Any = import_module("pyarrow.csv")
    wrong: list[Any] = []

    def on_wrong_row(row: Any) -> str:
        wrong.append(row)
        return "error"

    text = pa.dictionary(pa.int32(), pa.string())
    longest = max(map(len, content.split(b"\n"))) if len(content) > _BLOCK else 0
    try:
        return pa_csv.read_csv(
            pa.BufferReader(content),
            # The number of a wrong row is known to one thread only.
            read_options=pa_csv.ReadOptions(use_threads=False, block_size=_BLOCK + 2 * longest),
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
            msg = f"{where} cannot be read as CSV: {error}"
            raise LogError(msg) from error
        row = wrong[0]
        place = f"row {row.number - 1}" if row.number else "a row"
        msg = (
            f"{where}: {place} has {row.actual_columns} cells, expected {row.expected_columns} as "
            f"in the heading: {row.text[:60]!r}"
        )
        raise LogError(msg) from error


def parquet_table(content: bytes, where: str) -> Table:
    """Return a table in Parquet.

    Raises
    ------
    LogError
        The file is broken, or holds no plain values where they are needed.
    """
    pa: Any = import_module("pyarrow")
    pq: Any = import_module("pyarrow.parquet")
    try:
        file: Any = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
        names: tuple[str, ...] = tuple(file.schema_arrow.names)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        msg = f"{where} cannot be read as Parquet: {error}"
        raise LogError(msg) from error

    def load(wanted: Sequence[str]) -> Mapping[str, Column]:
        try:
            found = file.read(columns=list(wanted))
            # Names are text only once they are looked at.
            found.validate(full=True)
        except (pa.ArrowException, OSError) as error:
            msg = f"{where} cannot be read as Parquet: {error}; it may be damaged"
            raise LogError(msg) from error
        for name in wanted:
            if pa.types.is_nested(found[name].type):
                msg = (
                    f"{where}: column {name!r} holds {found[name].type}, expected texts or numbers"
                )
                raise LogError(msg)
        return {name: _column(found[name]) for name in wanted}

    return Table(where, names, load)


def _column(values: Any) -> Column:
    """Return a column of an Arrow table."""
    pa: Any = import_module("pyarrow")
    if not pa.types.is_dictionary(values.type):
        values = values.dictionary_encode()
    whole = values.unify_dictionaries().combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        whole = whole.chunk(0) if whole.num_chunks else pa.array([], values.type)
    codes = whole.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return Column.encoded(codes.astype(np.int64), whole.dictionary.to_pylist())
