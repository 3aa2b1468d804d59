"""How tables are opened: CSV and its kin, JSONL, Parquet."""

from __future__ import annotations

from pathlib import Path

from evalstats_plugin.adapters.tabular.parts import is_of_scores
from evalstats_plugin.adapters.tabular.recognition import (
    LINES,
    MAGIC,
    PARQUET,
    TEXTS,
    head_of,
    is_foreign,
    looks_flat,
    names_of_heading,
    names_of_line,
)
from evalstats_plugin.errors import LogError
from evalstats_plugin.ranking.columns import Table
from evalstats_plugin.ranking.records import read_lines, record_table
from evalstats_plugin.ranking.tabular import csv_table, parquet_table

_WORKBOOKS = (".xlsx", ".xls", ".ods")
_PACKED = (".gz", ".zip", ".bz2", ".xz", ".zst")


def open_table(path: Path, *, announced: bool) -> Table | None:
    """Open a table; None for a file that is none.

    Parameters
    ----------
    announced
        Whether the caller knows it for a table, whatever it is called.

    Raises
    ------
    LogError
        It is a table by its name, but empty, packed, a workbook, or not UTF-8.
    """
    ending = path.suffix.lower()
    if ending in _WORKBOOKS or (ending in _PACKED and _ending_inside(path) in (*TEXTS, *LINES)):
        what = "a workbook: save the sheet as CSV" if ending in _WORKBOOKS else "packed: unpack it"
        raise LogError(f"{path} is {what} first")
    head = head_of(path)
    by_name = announced or ending in (*TEXTS, PARQUET)
    if head.startswith(MAGIC):
        return parquet_table(path.read_bytes(), str(path))
    if not head.strip():
        if not by_name and ending not in LINES:
            return None
        msg = f"{path} is empty, expected a table with a heading and a row for each take"
        raise LogError(msg)
    if head.lstrip().startswith((b"{", b"[")):
        if not _are_takes(head, announced=announced, by_name=ending in LINES):
            return None
        records, notes = read_lines(path.read_bytes(), str(path))
        return record_table(records, str(path), notes)
    if by_name or (ending in (".txt", "") and is_of_scores(names_of_heading(head))):
        return csv_table(path.read_bytes(), str(path))
    return None


def _are_takes(head: bytes, *, announced: bool, by_name: bool) -> bool:
    """Whether JSONL is a table, and not a harness's log or anything else."""
    names = names_of_line(head)
    if is_foreign(names):
        return False
    return announced or (bool(names) and (is_of_scores(names) or (by_name and looks_flat(head))))


def _ending_inside(path: Path) -> str:
    return Path(path.stem).suffix.lower()
