"""Reads what is known of models and tasks beside their scores."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from evalstats_plugin.errors import LogError

_KINDS = {"model": "models", "task": "tasks"}
_EXPECTED = "expected a CSV file with a column 'model' or 'task' and columns of numbers"


def read_covariates(paths: Sequence[str]) -> dict[str, dict[str, dict[str, float]]]:
    """Read tables of models, and of tasks, as `fit_hierarchical` takes them.

    Raises
    ------
    LogError
        A file cannot be read, is neither of models nor of tasks, or holds what is no number.
    """
    found: dict[str, dict[str, dict[str, float]]] = {}
    for path in paths:
        kind, table = _table(path)
        found.setdefault(_KINDS[kind], {}).update(table)
    return found


def _table(path: str) -> tuple[str, dict[str, dict[str, float]]]:
    """Return what the rows are of, and by covariate the number of each."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{path}: covariates cannot be read: {error}"
        raise LogError(msg) from error
    rows = list(csv.DictReader(text.splitlines()))
    there = list(rows[0]) if rows else []
    kind = next((name for name in _KINDS if name in there), None)
    if kind is None or len(there) < 2:
        msg = f"{path}: {', '.join(map(repr, there)) or 'no rows'} found, {_EXPECTED}"
        raise LogError(msg)
    table: dict[str, dict[str, float]] = {name: {} for name in there if name != kind}
    for line, row in enumerate(rows, 2):
        for covariate, by_name in table.items():
            by_name[row[kind]] = _number(row[covariate], f"{path}, line {line}, {covariate!r}")
    return kind, table


def _number(text: str | None, where: str) -> float:
    try:
        return float(text or "")
    except ValueError:
        msg = f"{where}: {text!r} found, expected a number"
        raise LogError(msg) from None
