"""Tables of scores (CSV, TSV, JSONL, Parquet) without a harness: read, and exported.

=========== ======================================================================
recognition which files are tables, and which column holds which part of a score
published   published numbers: Markdown, leaderboards, cells such as ``0.61 ± 0.01``
rows        rows of one model, task and metric → `Responses`
reader      tables, matrices of models and items, and response stores
writer      responses as tables
=========== ======================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evalstats_plugin.hookspecs import Exporter, hookimpl

if TYPE_CHECKING:
    from evalstats_plugin.data.responses import Responses, Selection
    from evalstats_plugin.runtime.files import LogFile


_WRITER = "evalstats_plugin.adapters.tabular.writer:"


@hookimpl(trylast=True)
def evalstats_find_logs(folder: Path, files: Sequence[LogFile]) -> Mapping[Path, Sequence[Path]]:
    """Return the tables with columns of scores, or the folder if it is a response store."""
    from evalstats_plugin.adapters.tabular.recognition import find_tables

    return find_tables(folder, files)


@hookimpl(trylast=True)
def evalstats_read_log(log: LogFile, selection: Selection) -> Sequence[Responses] | None:
    """Read a table with a row per item and epoch, a matrix if the caller says so, or a store."""
    from evalstats_plugin.adapters.tabular.reader import read_store, read_table

    in_files = not log.head and log.path.is_dir()
    return read_store(log.path, selection) if in_files else read_table(log, selection)


@hookimpl
def evalstats_exporters() -> Sequence[Exporter]:
    """Offer four formats of a table with a row per item and epoch, and py-irt's."""
    return (
        Exporter(
            "csv", "a table with a row per item and epoch, or a matrix", _WRITER + "write_csv"
        ),
        Exporter("tsv", "the same, separated by tabs", _WRITER + "write_tsv"),
        Exporter("jsonl", "the same, one JSON object per row", _WRITER + "write_jsonl"),
        Exporter(
            "py-irt", "JSONL with a line per model, as py-irt reads", _WRITER + "write_py_irt"
        ),
        Exporter("parquet", "the same, and all that is known of it", _WRITER + "write_parquet"),
    )
