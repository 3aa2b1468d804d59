"""Which files are tables: told by their first bytes, without loading anything."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from evalstats_plugin.adapters.tabular.parts import is_surely_of_scores
from evalstats_plugin.errors import LogError
from evalstats_plugin.response_store import KEY

TEXTS = (".csv", ".tsv", ".tab", ".psv")
LINES = (".jsonl", ".ndjson")
PARQUET = ".parquet"

_SNIFFED = 1 << 16
MAGIC = b"PAR1"
_BOM = b"\xef\xbb\xbf"
# Records of harnesses, which other adapters read.
_FOREIGN = ({"doc_id", "doc", "target"}, {"schema_version", "evaluation_id"})


def find_tables(folder: Path) -> list[Path]:
    """Return the tables directly in a folder whose columns are, by their names, those of scores.

    Others may be anything, and are read where they are named. A response store in several files
    is its folder.
    """
    endings = (*TEXTS, *LINES, PARQUET)
    files = [p for p in sorted(folder.iterdir()) if p.suffix.lower() in endings and p.is_file()]
    files = [p for p in files if not p.name.startswith(".")]
    stored = [p for p in files if is_part_of_store(p)]
    tables = [p for p in files if is_surely_of_scores(names_of(p))]
    several = sum(p.suffix.lower() == PARQUET for p in files) > 1
    return [folder] if stored and several else [*stored, *tables]


def is_part_of_store(path: Path) -> bool:
    """Whether a file is a response store, or one of its files."""
    try:
        return KEY in metadata_in(path)
    except LogError:
        return False


def metadata_in(path: Path) -> dict[bytes, bytes]:
    """Return the metadata of a Parquet file; nothing for other files."""
    if not head_of(path, len(MAGIC)).startswith(MAGIC):
        return {}
    return _schema(path).metadata or {}


def _schema(path: Path) -> Any:
    pa: Any = import_module("pyarrow")
    pq: Any = import_module("pyarrow.parquet")
    try:
        with path.open("rb") as file:
            schema = pq.read_schema(file)
        # Names are text only once they are looked at.
        repr(schema.names)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        msg = f"{path} cannot be read as Parquet: {error}"
        raise LogError(msg) from error
    return schema


def names_of(path: Path) -> Sequence[str]:
    """Return the names of a table's columns as far as its first bytes tell, unnamed ones too."""
    head = head_of(path)
    if head.startswith(MAGIC):
        try:
            return _schema(path).names
        except LogError:
            return ()
    if head.lstrip().startswith(b"{"):
        names = names_of_line(head)
        return () if is_foreign(names) else names
    return names_of_heading(head)


def head_of(path: Path, size: int = _SNIFFED) -> bytes:
    """Return the first bytes of a file, without a byte-order mark."""
    with path.open("rb") as file:
        return file.read(size).removeprefix(_BOM)


def names_of_line(head: bytes) -> list[str]:
    """Return the names in the first line of JSONL; none if it is no object."""
    try:
        record: Any = json.loads(head.lstrip().partition(b"\n")[0])
    except (ValueError, RecursionError):
        return []
    return list(cast("dict[str, Any]", record)) if isinstance(record, dict) else []


def names_of_heading(head: bytes) -> list[str]:
    """Return the names in the heading of a text, as far as it was read."""
    line = head.lstrip(b"\r\n").partition(b"\n")[0].decode(errors="replace").rstrip("\r")
    bare = "".join(line.split('"')[::2])
    separator = max(",;\t|", key=bare.count)
    with io.StringIO(line, newline="") as start:
        return [name.strip() for name in next(csv.reader(start, delimiter=separator), list[str]())]


def looks_flat(head: bytes) -> bool:
    """Whether the first record holds plain values alone, as a table's do."""
    record: Any = json.loads(head.lstrip().partition(b"\n")[0])
    return not any(isinstance(value, (dict, list)) for value in record.values())


def is_foreign(names: Sequence[str]) -> bool:
    """Whether a record is one that a harness's adapter reads."""
    return any(signature <= set(names) for signature in _FOREIGN)
