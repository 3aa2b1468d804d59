"""Writes per-item statistics into the samples of a log, and takes them out again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from evalstats_plugin.adapters.inspect_ai.columns import SCORE, with_columns
from evalstats_plugin.adapters.inspect_ai.editing import edit_log
from evalstats_plugin.adapters.inspect_ai.members import Sample

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
    check(items)
    names = columns_of(items, shown=columns)
    edit = partial(edited, items=items, columns=columns)
    return edit_log(path, output, lambda log: with_columns(log, names), edit)


def columns_of(items: Items, *, shown: bool) -> list[str]:
    """Return the titles of the columns that the statistics make, where they are shown."""
    names = dict.fromkeys(name for item in items.values() for name in item) if shown else ()
    return [short(name) for name in names]


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


def check(items: Items) -> None:
    """Refuse statistics that are not ours by name, or no finite numbers."""
    for item, statistics in items.items():
        for name, value in statistics.items():
            if not _is_ours(name) or (isinstance(value, float) and not math.isfinite(value)):
                msg = f"item {item!r} has {name}={value!r}, expected {PREFIX}…=a finite number"
                raise ValueError(msg)
