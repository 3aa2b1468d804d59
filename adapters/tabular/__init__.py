"""Tables of scores (CSV, TSV, JSONL, Parquet) without a harness: read, and exported.

=========== ======================================================================
recognition which files are tables, and which column holds which part of a score
rows        rows of one model, task and metric → `Responses`
reader      tables, matrices of models and items, and response stores
writer      responses as tables
=========== ======================================================================
"""

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
    """Return the tables of a folder with columns of scores, or the folder if it is a store."""
    from evalstats_plugin.adapters.tabular.recognition import find_tables

    return find_tables(folder)


@hookimpl(specname="evalstats_read_log", tryfirst=True)
def read_store_in_folder(path: Path, selection: Selection) -> Sequence[Responses] | None:
    """Read a folder that holds a response store; first, because other adapters expect files."""
    if getattr(path, "protocol", "") or not path.is_dir():
        return None
    from evalstats_plugin.adapters.tabular.reader import read_store

    return read_store(path, selection)


@hookimpl(trylast=True)
def evalstats_read_log(path: Path, selection: Selection) -> Sequence[Responses] | None:
    """Read a table with a row per item and epoch, or a matrix if the caller says so."""
    from evalstats_plugin.adapters.tabular.reader import read_table

    return read_table(path, selection)


@hookimpl
def evalstats_exporters() -> Sequence[Exporter]:
    """Offer four formats of a table with a row per item and epoch."""
    return (
        Exporter("csv", "a table with a row for each take, or a matrix", _WRITER + "write_csv"),
        Exporter("tsv", "the same, separated by tabs", _WRITER + "write_tsv"),
        Exporter("jsonl", "the same, an object for each take", _WRITER + "write_jsonl"),
        Exporter("parquet", "the same, and all that is known of it", _WRITER + "write_parquet"),
    )
