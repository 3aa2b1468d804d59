"""Every Eval Ever: read, annotate and write the shared schema of eval results, version 0.3.

A run is an aggregate file (JSON, one result per metric) and a file of instances (JSONL).

========= ==========================================================================
layout    recognition of files, versions, models and metrics, our block in a result
reader    aggregate file and instances, each of a result → `Responses`
writer    uncertainty in an aggregate file;  exporting: responses of any harness
========= ==========================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evalstats_plugin.hookspecs import Annotation, Exporter, hookimpl

if TYPE_CHECKING:
    from evalstats_plugin.data.responses import Responses, Selection
    from evalstats_plugin.runtime.files import LogFile


@hookimpl
def evalstats_find_logs(files: Sequence[LogFile]) -> Mapping[Path, Sequence[Path]]:
    """Return the aggregate files of a folder with their instances, and instances without one."""
    from evalstats_plugin.adapters.every_eval_ever.layout import find_logs

    return find_logs(files)


@hookimpl
def evalstats_read_log(log: LogFile, selection: Selection) -> Sequence[Responses] | None:
    """Read one aggregate file with its instances."""
    from evalstats_plugin.adapters.every_eval_ever.reader import read_log

    return read_log(log, selection)


@hookimpl
def evalstats_annotate_log(path: Path, annotation: Annotation | None, output: Path) -> Path | None:
    """Set the uncertainty of each result of an aggregate file, or restore the original."""
    from evalstats_plugin.adapters.every_eval_ever.writer import annotate_log

    return annotate_log(path, annotation, output)


@hookimpl
def evalstats_exporters() -> Sequence[Exporter]:
    """Offer the schema for responses of any harness."""
    return (
        Exporter(
            "every-eval-ever",
            "aggregate and instance files of the shared schema, in a folder",
            "evalstats_plugin.adapters.every_eval_ever.exporting:write_folder",
        ),
    )
