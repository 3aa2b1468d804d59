"""Every Eval Ever: reads, annotates and writes the shared schema of eval results, 0.3."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evalstats_plugin.hookspecs import Annotation, Exporter, hookimpl

if TYPE_CHECKING:
    from evalstats_plugin.data.responses import Responses, Selection


@hookimpl
def evalstats_find_logs(folder: Path) -> Sequence[Path]:
    """Return the aggregate files of a folder."""
    from evalstats_plugin.adapters.every_eval_ever.layout import find_logs

    return find_logs(folder)


@hookimpl
def evalstats_read_log(path: Path, selection: Selection) -> Sequence[Responses] | None:
    """Read one aggregate file with its instances."""
    from evalstats_plugin.adapters.every_eval_ever.reader import read_log

    return read_log(path, selection)


@hookimpl
def evalstats_annotate_log(path: Path, annotation: Annotation | None, output: Path) -> Path | None:
    """Set the uncertainty of each result of an aggregate file, or put back what was there."""
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
