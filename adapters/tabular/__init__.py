"""Tables of scores (CSV, TSV, JSONL, Parquet): read and written, for people without a harness."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evalstats_plugin.hookspecs import Exporter, hookimpl

if TYPE_CHECKING:
    from evalstats_plugin.data.responses import Responses, Selection


_WRITER = "evalstats_plugin.adapters.tabular.writer:"


@hookimpl
def evalstats_find_logs(folder: Path) -> Sequence[Path]:
    """Return the tables of a folder whose columns are those of scores, or it, if a store."""
    from evalstats_plugin.adapters.tabular.recognition import find_tables

    return find_tables(folder)


@hookimpl(specname="evalstats_read_log", tryfirst=True)
def read_store_in_folder(path: Path, selection: Selection) -> Sequence[Responses] | None:
    """Read a folder that was found to hold a response store, which no other adapter can open."""
    if getattr(path, "protocol", "") or not path.is_dir():
        return None
    from evalstats_plugin.adapters.tabular.reader import read_store

    return read_store(path, selection)


@hookimpl(trylast=True)
def evalstats_read_log(path: Path, selection: Selection) -> Sequence[Responses] | None:
    """Read a table with a row for each take, or a matrix where one was announced."""
    from evalstats_plugin.adapters.tabular.reader import read_table

    return read_table(path, selection)


@hookimpl
def evalstats_exporters() -> Sequence[Exporter]:
    """Offer four forms of a table with a row for each take."""
    return (
        Exporter("csv", "a table with a row for each take, or a matrix", _WRITER + "write_csv"),
        Exporter("tsv", "the same, separated by tabs", _WRITER + "write_tsv"),
        Exporter("jsonl", "the same, an object for each take", _WRITER + "write_jsonl"),
        Exporter("parquet", "the same, and all that is known of it", _WRITER + "write_parquet"),
    )
