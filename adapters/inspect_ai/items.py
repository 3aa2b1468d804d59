"""Writes per-item statistics into the samples of a log, and takes them out again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from evalstats_plugin.adapters.inspect_ai.columns import SCORE, with_columns
from evalstats_plugin.adapters.inspect_ai.header import (
    read_header,
    refuse_unwritable,
    write_header,
)
from evalstats_plugin.adapters.inspect_ai.layout import form_of
from evalstats_plugin.adapters.inspect_ai.manifest import update_manifest
from evalstats_plugin.adapters.inspect_ai.members import Sample, rewrite, would_change
from evalstats_plugin.adapters.inspect_ai.replace import opened, replacing, same

PREFIX = "evalstats_"

_EXPLANATION = "Statistics of this item over all its takes, by evalstats_plugin."

Scalar = str | bool | int | float
Items = Mapping[str, Mapping[str, Scalar]]
"""Of each item, by ``str(sample id)``: statistics by names that start with ``evalstats_``."""


def annotate_items(path: Path, items: Items, output: Path, *, columns: bool = False) -> Path | None:
    """Write a log with statistics of its items to output; None for others' files.

    They become scalars in each sample's metadata, which Inspect's data frames show as columns;
    earlier ones go, also from samples without new ones. A log that would not change is not
    written again.

    Parameters
    ----------
    columns
        Show them in the viewer's sample list too: as a score ``evalstats_item`` after the others.

    Raises
    ------
    WriteError
        For a log that is still being written, or keeps its samples in chunks.
    """
    _check(items)
    form = form_of(path)
    if form is None:
        return None
    names = dict.fromkeys(name for item in items.values() for name in item) if columns else ()
    edit = partial(edited, items=items, columns=columns)
    with opened(path) as original:
        log = read_header(original.file, form, path)
        refuse_unwritable(log, path)
        header = with_columns(log, [short(name) for name in names])
        if header is not log or not same(path, output) or would_change(original.file, form, edit):
            with replacing(output, original, path) as copy:
                rewrite(original.file, copy, form, edit)
                write_header(header, copy, form)
        update_manifest(output, header)
    return output


def edited(sample: Sample, *, items: Items, columns: bool) -> Sample:
    """Return a sample (or a summary of one) with its statistics, and no earlier ones."""
    statistics = dict(items.get(str(sample["id"]), {}))
    metadata: dict[str, Any] = sample.get("metadata") or {}
    scores: dict[str, Any] = sample.get("scores") or {}
    metadata = {k: v for k, v in metadata.items() if not _is_ours(k)} | statistics
    scores = {k: v for k, v in scores.items() if k != SCORE}
    if columns and statistics:
        value = {short(name): _shown(value) for name, value in statistics.items()}
        scores[SCORE] = {"value": value, "explanation": _EXPLANATION, "history": []}
    changed = {"metadata": metadata, "scores": scores}
    # What was absent or null stays so.
    return {**sample, **{k: v for k, v in changed.items() if v or sample.get(k)}}


def short(name: str) -> str:
    """Return a statistic's name as a column's title."""
    return name.removeprefix(PREFIX)


def _shown(value: Scalar) -> Scalar:
    # The sample list shows every digit there is, and has little room.
    return round(value, 3) if isinstance(value, float) else value


def _is_ours(key: str) -> bool:
    return key.startswith(PREFIX)


def _check(items: Items) -> None:
    for item, statistics in items.items():
        for name, value in statistics.items():
            if not _is_ours(name) or (isinstance(value, float) and not math.isfinite(value)):
                msg = f"item {item!r} has {name}={value!r}, expected {PREFIX}…=a finite number"
                raise ValueError(msg)
