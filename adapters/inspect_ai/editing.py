"""Writes a log with its header, and perhaps its samples, changed: both at once or neither."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from evalstats_plugin.adapters.inspect_ai.header import (
    read_header,
    refuse_unwritable,
    write_header,
)
from evalstats_plugin.adapters.inspect_ai.layout import form_of
from evalstats_plugin.adapters.inspect_ai.manifest import update_manifest
from evalstats_plugin.adapters.inspect_ai.members import Edit, rewrite, would_change
from evalstats_plugin.adapters.inspect_ai.replace import opened, replacing, same

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog

EditHeader = Callable[["EvalLog"], "EvalLog"]
"""Returns the header changed; the very one given where nothing changes."""


def edit_log(
    path: Path, output: Path, edit_header: EditHeader, edit_sample: Edit | None
) -> Path | None:
    """Write an edited log to output; None for others' files.

    A log that would not change is not written again.

    Parameters
    ----------
    edit_sample
        None: samples stay as they are.

    Raises
    ------
    WriteError
        For a log that is still being written, that changed meanwhile, or whose samples are kept in
        chunks where they are to be edited.
    LogError
        For a broken log.
    """
    form = form_of(path)
    if form is None:
        return None
    with opened(path) as original:
        log = read_header(original.file, form, path)
        refuse_unwritable(log, path)
        header = edit_header(log)
        samples = edit_sample is not None and would_change(original.file, form, edit_sample)
        if header is not log or samples or not same(path, output):
            with replacing(output, original, path) as copy:
                if samples and edit_sample is not None:
                    rewrite(original.file, copy, form, edit_sample)
                else:
                    shutil.copyfile(original.file, copy)
                if header is not log:
                    write_header(log, header, copy, form, path)
        update_manifest(output, header)
    return output
