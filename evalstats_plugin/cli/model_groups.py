"""Reads which models make a group: patterns, or a file of them."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from evalstats_plugin.errors import LogError, SelectionError


def read_patterns(given: str) -> tuple[str, ...]:
    """Read names or patterns of models: from a file, one on a line, or with commas between them.

    Raises
    ------
    LogError
        The file is not text.
    SelectionError
        No pattern is there.
    """
    path = Path(given)
    lines = _text(path).splitlines() if path.is_file() else given.split(",")
    patterns = tuple(text for line in lines if (text := line.strip()) and text[0] != "#")
    if not patterns:
        msg = f"{given!r} names no model, expected names or patterns such as 'chat-*'"
        raise SelectionError(msg)
    return patterns


def read_group_of_model(given: str, models: Sequence[str]) -> dict[str, str]:
    """Read the group of each model from a CSV file with the columns model and group.

    Raises
    ------
    LogError
        There is no such file, or it does not have these columns.
    """
    path = Path(given)
    if not path.is_file():
        msg = f"{given}: no such file, expected a CSV file with the columns model and group"
        raise LogError(msg)
    rows = list(csv.DictReader(_text(path).splitlines()))
    if not rows or not {"model", "group"} <= set(rows[0]):
        found = ", ".join(map(str, rows[0])) if rows else "no rows"
        msg = f"{given}: columns {found} found, expected model and group"
        raise LogError(msg)
    return {row["model"]: row["group"] for row in rows if row["model"] in models}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{path} cannot be read as text: {error}"
        raise LogError(msg) from error
