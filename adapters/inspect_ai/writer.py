"""Writes annotations into Inspect logs, and takes them out again.

What is derived from samples is never recomputed through Inspect: that can run a file which the
log names. Only the header changes, and the samples where item annotations are taken out.
"""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

from evalstats_plugin.adapters.inspect_ai.columns import with_columns
from evalstats_plugin.adapters.inspect_ai.display import with_display
from evalstats_plugin.adapters.inspect_ai.header import (
    read_header,
    refuse_unwritable,
    write_header,
)
from evalstats_plugin.adapters.inspect_ai.items import edited as with_items
from evalstats_plugin.adapters.inspect_ai.layout import form_of
from evalstats_plugin.adapters.inspect_ai.manifest import update_manifest
from evalstats_plugin.adapters.inspect_ai.members import rewrite, would_change
from evalstats_plugin.adapters.inspect_ai.payload import with_payload
from evalstats_plugin.adapters.inspect_ai.replace import opened, replacing, same
from evalstats_plugin.plugins import Annotation


def annotate_log(path: Path, annotation: Annotation | None, output: Path) -> Path | None:
    """Write a log with an annotation (None: without any) to output; None for others' files.

    A log that would not change is not written again.
    """
    form = form_of(path)
    if form is None:
        return None
    without_items = partial(with_items, items={}, columns=False)
    with opened(path) as original:
        log = read_header(original.file, form, path)
        refuse_unwritable(log, path)
        header = with_display(with_payload(log, annotation), annotation and annotation.intervals)
        header = header if annotation else with_columns(header, ())
        samples = annotation is None and would_change(original.file, form, without_items)
        if header is not log or samples or not same(path, output):
            with replacing(output, original, path) as copy:
                if samples:
                    rewrite(original.file, copy, form, without_items)
                else:
                    shutil.copyfile(original.file, copy)
                if header is not log:
                    write_header(header, copy, form)
        update_manifest(output, header)
    return output
