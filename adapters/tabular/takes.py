"""Rows of a table as takes: which model, task and metric, which item, which epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from evalstats_plugin.adapters.tabular.parts import OF_NO_METRIC, Layout, closest
from evalstats_plugin.errors import DesignError
from evalstats_plugin.ranking.columns import Column
from evalstats_plugin.takes import Codes, in_order

_NO_TASK = "task"


@dataclass(frozen=True, eq=False)
class Takes:
    """The rows of a table, of which each is one take of an item by a model."""

    where: str
    layout: Layout
    parts: dict[str, Column]
    """Column by part, but for scores."""
    size: int
    notes: tuple[str, ...] = ()

    def names(self, part: str, default: str) -> Column:
        """Return whose a take is: of each row, or the same for all where the table does not say.

        Raises
        ------
        DesignError
            A row has none where others have one.
        """
        column = self.parts.get(part)
        if column is None:
            return Column(np.zeros(self.size, dtype=np.int64), (default,))
        self.refuse_empty(part)
        return column

    def refuse_empty(self, part: str) -> None:
        """Raise `DesignError` where a row lacks a part of a take."""
        rows = np.flatnonzero(self.parts[part].empty)
        if len(rows):
            msg = (
                f"{self.where}: row {rows[0] + 1} has no {part} (column "
                f"{self.layout.columns[part]!r}, {len(rows)} such rows), expected one in every row"
            )
            raise DesignError(msg)

    @cached_property
    def epochs(self) -> Codes | None:
        """Return the place of each row's epoch among all epochs; None without any."""
        column = self.parts.get("epoch")
        if column is None:
            return None
        self.refuse_empty("epoch")
        try:
            keys = np.asarray(column.values, dtype=str).astype(np.float64)
        except ValueError:
            return column.codes
        return np.unique(keys, return_inverse=True)[1][column.codes]


def filled(columns: Mapping[str, Column]) -> tuple[dict[str, Column], tuple[str, ...]]:
    """Leave out the rows at the end that hold nothing, as spreadsheets write them, with a note."""
    held = ~np.all([column.empty for column in columns.values()], axis=0)
    last = int(np.flatnonzero(held)[-1]) + 1 if held.any() else 0
    more = len(held) - last
    if not more or not last:
        return dict(columns), ()
    kept = np.arange(len(held)) < last
    notes = (f"{more} empty {'row' if more == 1 else 'rows'} at the end left out",)
    return {name: column.take(kept) for name, column in columns.items()}, notes


def default_names(
    path: Path, layout: Layout, columns: Sequence[str]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return names for what a table does not tell, and what is to be noted about them.

    The file's name is that of the model, or of the task where there are several models.
    """
    stem = path.name.partition(".")[0] or path.name
    names = {"model": stem, "task": _NO_TASK if "model" not in layout.columns else stem}
    lacking = [part for part in ("model", "task") if part not in layout.columns]
    unused = [name for name in columns if name not in layout.used]
    notes: list[str] = []
    for part in lacking:
        near = closest(part, unused)
        hint = f" (--columns {part}={near} if that was meant)" if near else ""
        notes.append(f"no column says the {part}: {names[part]!r} is taken{hint}")
    return names, tuple(notes)


def metric_of(column: str) -> str:
    """Return the metric that a column of scores is of, where no other column says it."""
    return "score" if column.casefold() in OF_NO_METRIC else column


def groups_of(columns: Sequence[Column]) -> list[tuple[tuple[int, ...], Codes]]:
    """Return the rows of each combination of values, as the combinations first come."""
    whole = np.zeros(len(columns[0].codes), dtype=np.int64)
    if not len(whole):
        return []
    for column in columns:
        whole = whole * len(column.values) + column.codes
    keys, places = in_order(whole)
    rows = np.argsort(places, kind="stable")
    bounds = np.searchsorted(places[rows], np.arange(1, len(keys)))
    return [
        (tuple(int(c.codes[mine[0]]) for c in columns), mine) for mine in np.split(rows, bounds)
    ]
