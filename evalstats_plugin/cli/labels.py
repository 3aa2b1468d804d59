"""Reads human labels from a file."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from evalstats_plugin.errors import LogError

EXPECTED = "expected one object or line per item with the fields 'item' and 'score'"


def read_labels(path: str) -> dict[str, float]:
    """Read labels by item id, from CSV with a heading or, by the ending .jsonl, lines of JSON.

    An empty score is an item without a label.

    Raises
    ------
    LogError
        If the file cannot be read, lacks a field, or names an item twice.
    """
    labels: dict[str, float] = {}
    for number, row in _rows(Path(path)):
        if "item" not in row or "score" not in row:
            there = ", ".join(map(repr, row)) or "nothing"
            msg = f"{path}, record {number}: {there} found, {EXPECTED}"
            raise LogError(msg)
        item, score = str(row["item"]), row["score"]
        if score in (None, ""):
            continue
        if item in labels:
            msg = f"{path}, record {number}: item {item!r} has a second label; expected one"
            raise LogError(msg)
        try:
            labels[item] = float(score)
        except (TypeError, ValueError):
            msg = f"{path}, record {number}: score {score!r} found, expected a number"
            raise LogError(msg) from None
    return labels


def _rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{path}: labels cannot be read: {error}"
        raise LogError(msg) from error
    if path.suffix != ".jsonl":
        yield from enumerate(csv.DictReader(text.splitlines()), 1)
        return
    for number, line in enumerate(filter(str.strip, text.splitlines()), 1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            msg = f"{path}, record {number}: not JSON: {error}"
            raise LogError(msg) from error
        if not isinstance(row, dict):
            msg = f"{path}, record {number}: {line[:40]} found, {EXPECTED}"
            raise LogError(msg)
        yield number, row  # pyright: ignore[reportUnknownVariableType] - checked on use
