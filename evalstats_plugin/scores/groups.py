"""Rows for groups of tasks, put where the harness's own table has them: above their tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.data.responses import Group
from evalstats_plugin.data.results import finite
from evalstats_plugin.scores.cells import Cell
from evalstats_plugin.scores.methods import DEFAULTS
from evalstats_plugin.scores.rows import ScoreInterval
from evalstats_plugin.stats.interval import Interval

if TYPE_CHECKING:
    from evalstats_plugin.stats.survey import Smoothed


GroupKey = tuple[str, str, tuple[str, ...], str]
"""Model, log, names of the groups from the outermost to this one, metric."""


@dataclass(slots=True)
class _Members:
    group: Group
    cells: list[Cell] = field(default_factory=list[Cell])
    rows: list[ScoreInterval] = field(default_factory=list[ScoreInterval])


def group_rows(cells: Sequence[Cell], rows: Sequence[ScoreInterval]) -> Iterator[ScoreInterval]:
    """Yield the rows of tasks, each group's own row before its first task."""
    members: dict[GroupKey, _Members] = {}
    first_in: dict[tuple[str, str, tuple[str, ...]], list[GroupKey]] = {}
    for cell, row in zip(cells, rows, strict=True):
        for key, group in _groups_of(cell):
            if key not in members:
                members[key] = _Members(group)
                first_in.setdefault(key[:3], []).append(key)
            members[key].cells.append(cell)
            members[key].rows.append(row)
    shown: set[tuple[str, str, tuple[str, ...]]] = set()
    for cell, row in zip(cells, rows, strict=True):
        for key, _ in _groups_of(cell):
            if key[:3] not in shown:
                shown.add(key[:3])
                yield from (
                    _group_row(members[k]) for k in first_in[key[:3]] if _is_shown(members[k])
                )
        yield row


def _groups_of(cell: Cell) -> Iterator[tuple[GroupKey, Group]]:
    r = cell.responses
    names: tuple[str, ...] = ()
    for group in r.groups:
        names = (*names, group.name)
        yield (r.model, str(r.source.path), names, r.metric), group


def _is_shown(members: _Members) -> bool:
    """Whether the harness itself aggregates this group, and all of its tasks were read."""
    return members.group.logged is not None and len(members.rows) == members.group.n_tasks


def _group_row(members: _Members) -> ScoreInterval:
    """Combine the tasks: independent strata with fixed weights."""
    group, cells, rows = members.group, members.cells, members.rows
    row = replace(
        rows[0],
        task=group.name,
        kind="group",
        depth=group.depth,
        n_items=sum(c.n for c in cells),
        n_missing=sum(c.n_missing for c in cells),
        estimate=finite(group.logged),
        low=None,
        high=None,
        std_error=None,
        method="none",
        notes=group.notes,
        logged=finite(group.logged),
        logged_std_error=finite(group.logged_std_error),
    )
    if any(c.kind is None or c.kind == "ratio" for c in cells):
        return replace(row, notes=(*row.notes, "a task of this group has no mean"))
    shares = np.array([float(c.n) if group.weighting == "micro" else 1.0 for c in cells])
    shares = shares / shares.sum()
    estimate = float(shares @ [c.estimate for c in cells])
    row = replace(row, estimate=estimate, std_error=_std_error(cells, shares))
    if any(r.low is None or r.high is None for r in rows):
        return replace(row, notes=(*row.notes, "a task of this group has no interval"))
    interval, method = _combine(cells, rows, shares)
    return replace(
        row,
        low=finite(float(interval.low)),
        high=finite(float(interval.high)),
        method=method,
        notes=(*row.notes, f"{group.weighting} mean of {len(cells)} tasks"),
    )


def _std_error(cells: Sequence[Cell], shares: NDArray[np.float64]) -> float | None:
    """√Σ w² s²/n over the tasks; None where no task's scores vary, or one has a single item.

    None too where a task's value is not a mean.
    """
    if any(c.n < 2 or c.composite is not None for c in cells):
        return None
    errors = np.array([c.std_error or 0.0 for c in cells])
    return finite(float(np.sqrt(shares**2 @ errors**2))) or None


def _combine(
    cells: Sequence[Cell], rows: Sequence[ScoreInterval], shares: NDArray[np.float64]
) -> tuple[Interval, str]:
    """Interval for the weighted mean: from the scores where they are bounded, else from the rows.

    With a method of the caller's choice the tasks' own intervals are combined.
    """
    from evalstats_plugin.stats import survey

    estimates = np.array([c.estimate for c in cells])
    bounds = {c.bounds for c in cells}
    auto = all(
        c.composite is None and r.method == DEFAULTS[c.kind][0]
        for c, r in zip(cells, rows, strict=True)
        if c.kind
    )
    if auto and len(bounds) == 1 and None not in bounds:
        low, high = next(iter(bounds)) or (0.0, 1.0)
        width = high - low
        found = survey.beta_effective(
            (estimates - low) / width,
            _smoothed(cells, low, width),
            shares,
            confidence_level=rows[0].confidence_level,
        )
        return Interval(low + width * found.low, low + width * found.high), "beta-neff"
    lows, highs = (np.array([getattr(r, side) for r in rows]) for side in ("low", "high"))
    names = ", ".join(sorted({r.method for r in rows}))
    return survey.mover(estimates, Interval(lows, highs), shares), f"mover({names})"


def _smoothed(cells: Sequence[Cell], low: float, width: float) -> Smoothed:
    from evalstats_plugin.stats import survey

    parts = [
        survey.smoothed_binary(c.successes, c.n)
        if c.kind == "binary"
        else survey.smoothed_scores((c.values - low) / width)
        for c in cells
    ]
    means, variances = (np.array([float(p[i]) for p in parts]) for i in (0, 1))
    return survey.Smoothed(means, variances)
