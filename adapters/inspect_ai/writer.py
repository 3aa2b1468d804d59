"""Writes annotations into Inspect logs, and takes them out again.

What is derived from samples is never recomputed through Inspect: that can run a file which the
log names. Only the header changes, and the samples where item annotations go in or out.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from evalstats_plugin.adapters.inspect_ai.columns import with_columns
from evalstats_plugin.adapters.inspect_ai.display import with_display
from evalstats_plugin.adapters.inspect_ai.editing import edit_log
from evalstats_plugin.adapters.inspect_ai.items import Items, check, columns_of, edited
from evalstats_plugin.adapters.inspect_ai.payload import with_payload
from evalstats_plugin.plugins import Annotation

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog


def annotate_log(path: Path, annotation: Annotation | None, output: Path) -> Path | None:
    """Write a log with an annotation (None: without any) to output; None for others' files.

    A log that would not change is not written again; header and samples change in one step.
    """
    items: Items | None = {} if annotation is None else annotation.items
    columns = annotation is not None and annotation.item_columns
    check(items or {})

    def edit_header(log: EvalLog) -> EvalLog:
        header = with_display(with_payload(log, annotation), annotation and annotation.intervals)
        return header if items is None else with_columns(header, columns_of(items, shown=columns))

    edit = None if items is None else partial(edited, items=items, columns=columns)
    return edit_log(path, output, edit_header, edit)
