"""Rows of groups of tasks: weighted means of the tasks that the harness aggregates, as strata."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from evalstats_plugin.data.measure import joint
from evalstats_plugin.data.responses import Group, Weighting, mean_of_tasks, task_shares
from evalstats_plugin.data.results import finite
from evalstats_plugin.errors import counted, few
from evalstats_plugin.scores.cells import Cell, common_value
from evalstats_plugin.scores.methods import DEFAULTS
from evalstats_plugin.scores.missing import with_open
from evalstats_plugin.scores.rows import ADAPTIVE, NO_METHOD, ScoreInterval
from evalstats_plugin.stats.arrays import FloatArray
from evalstats_plugin.stats.interval import Interval
from evalstats_plugin.stats.survey import strata

GroupPlace = tuple[str, str, tuple[str, ...]]
"""Model, log, and names of the groups from the outermost to this one."""

_OF_TASKS = (
    "low", "high", "std_error", "n_clusters", "missing_low", "missing_high", "naive_low",
    "naive_high", "design_effect", "icc",
)  # fmt: skip
"""Fields that a group does not have of its first task."""


def group_rows(cells: Sequence[Cell], rows: Sequence[ScoreInterval]) -> Iterator[ScoreInterval]:
    """Yield the rows of tasks, each group's own rows, one per metric, before its first task.

    A group has a row where the harness itself aggregates it, and all of its tasks were read.
    """
    groups: dict[tuple[GroupPlace, str], Group] = {}
    members: dict[GroupPlace, dict[str, list[tuple[Cell, ScoreInterval]]]] = {}
    for cell, row in zip(cells, rows, strict=True):
        for place, group in _groups_of(cell):
            groups.setdefault((place, row.metric), group)
            members.setdefault(place, {}).setdefault(row.metric, []).append((cell, row))
    for cell, row in zip(cells, rows, strict=True):
        for place, _ in _groups_of(cell):
            for metric, tasks in members.pop(place, {}).items():
                group = groups[place, metric]
                if group.logged is not None and len(tasks) == group.n_tasks:
                    yield _group_row(group, [c for c, _ in tasks], [r for _, r in tasks])
        yield row


def _groups_of(cell: Cell) -> Iterator[tuple[GroupPlace, Group]]:
    r = cell.responses
    names: tuple[str, ...] = ()
    for group in r.groups:
        names = (*names, group.name)
        yield (r.model, str(r.source.path), names), group


def _group_row(group: Group, cells: Sequence[Cell], rows: Sequence[ScoreInterval]) -> ScoreInterval:
    """Combine the tasks: independent strata with fixed weights; the wider where these are open."""
    if group.weighting != "either":
        return _weighted_row(group, cells, rows)
    kinds: tuple[Weighting, Weighting] = ("micro", "macro")
    both = [_weighted_row(replace(group, weighting=kind), cells, rows) for kind in kinds]
    if both[0].low is None:
        return both[0]
    limits = np.array([[row.low, row.high] for row in both], dtype=np.float64)
    wider = int(np.argmax(limits[:, 1] - limits[:, 0]))
    low, high = limits[1 - wider]
    note = (
        f"the logged values do not tell whether every item or every task counts the same: the "
        f"wider interval is shown ({kinds[wider]}); {kinds[1 - wider]}: {low:.3f} to {high:.3f}"
    )
    return replace(both[wider], notes=(*both[wider].notes, note))


def _weighted_row(
    group: Group, cells: Sequence[Cell], rows: Sequence[ScoreInterval]
) -> ScoreInterval:
    measure = joint([c.responses.measure for c in cells])
    directions = {r.higher_is_better for r in rows} - {None}
    none: dict[str, Any] = dict.fromkeys(_OF_TASKS)
    row = replace(
        rows[0],
        task=group.name,
        # Of tasks that go different ways the mean goes none.
        higher_is_better=directions.pop() if len(directions) == 1 else None,
        measure=replace(measure, task=group.name, n_cut=0, population=None),
        kind="group",
        depth=group.depth,
        n_items=sum(c.n for c in cells),
        n_missing=sum(c.n_missing for c in cells),
        estimate=finite(group.logged),
        method=NO_METHOD,
        notes=(*group.notes, *_of_cut_tasks(cells)),
        logged=finite(group.logged),
        logged_std_error=finite(group.logged_std_error),
        population=few(list(dict.fromkeys(r.population for r in rows))),
        **none,
    )
    if any(c.responses.predicted is not None for c in cells):
        return _predicted_group(row, group, cells, rows)
    if any(c.kind == "ratio" or not (c.kind or (c.published_error and c.n)) for c in cells):
        return replace(row, notes=(*row.notes, "a task of this group has no mean"))
    # A task that was cut keeps the weight of all its items.
    sizes = [
        float(c.n + c.responses.measure.n_cut * (len(c.responses.item_ids) > 0)) for c in cells
    ]
    around = _from_group(group, cells)
    shares = task_shares(around, np.array(sizes))
    estimate = float(shares @ [c.estimate for c in cells])
    row = replace(row, estimate=estimate, std_error=_std_error(cells, shares))
    if any(r.low is None or r.high is None for r in rows):
        return replace(row, notes=(*row.notes, "a task of this group has no interval"))
    interval, method = _combine(cells, rows, shares)
    if any(r.missing_low is not None for r in rows):
        ends = [(r.low, r.high) if r.missing_low is None else (r.missing_low, r.missing_high)
                for r in rows]  # fmt: skip
        limits = strata.mover([c.estimate for c in cells], Interval(*np.array(ends).T), shares)
        row = with_open(row, float(limits.low), float(limits.high), "drop")
    return replace(
        row,
        low=finite(float(interval.low)),
        high=finite(float(interval.high)),
        method=method,
        notes=(*row.notes, mean_of_tasks(around)),
    )


def _from_group(group: Group, cells: Sequence[Cell]) -> list[tuple[Group, ...]]:
    """Return the groups around each task from this one on."""
    return [(group, *cell.responses.groups[group.depth + 1 :]) for cell in cells]


def _predicted_group(
    row: ScoreInterval, group: Group, cells: Sequence[Cell], rows: Sequence[ScoreInterval]
) -> ScoreInterval:
    """Combine predicted scores: they share one ability, so their errors are simply added."""
    predictions = [c.responses.predicted for c in cells]
    row = replace(row, estimate=None, population="all items of the bank")
    if any(p is None for p in predictions) or any(
        None in (r.estimate, r.low, r.high) for r in rows
    ):
        return replace(
            row, notes=(*row.notes, "not every task of this group has a predicted score")
        )
    sizes = np.array([float(p.n_in_bank) if p else 0.0 for p in predictions])
    shares = task_shares(_from_group(group, cells), sizes)
    ends = np.array([[r.estimate, r.low, r.high] for r in rows], dtype=np.float64)
    estimate, low, high = (float(value) for value in shares @ ends)
    note = f"{group.weighting} mean of {counted(len(cells), 'predicted task')}"
    notes = (*row.notes, note)
    return replace(row, estimate=estimate, low=low, high=high, method=ADAPTIVE, notes=notes)


def _of_cut_tasks(cells: Sequence[Cell]) -> tuple[str, ...]:
    """Return a note on the tasks of a group that the log holds only in part."""
    held = [(c.responses, len(c.responses.item_ids), c.responses.measure.n_cut) for c in cells]
    cut = [
        f"{r.task}: {n} of {counted(n + n_cut, 'item')}" if n_cut else f"{r.task}: altered"
        for r, n, n_cut in held
        if not r.is_whole
    ]
    return (f"not all that was scored: {few(cut)}",) if cut else ()


def _std_error(cells: Sequence[Cell], shares: FloatArray) -> float | None:
    """√Σ w² s²/n over the tasks; None for a task with one item or another metric than a mean.

    None too where no task's scores vary.
    """
    if any(c.n < 2 or c.composite is not None for c in cells):
        return None
    errors = np.array([c.std_error or 0.0 for c in cells])
    return finite(float(np.sqrt(shares**2 @ errors**2))) or None


def _combine(
    cells: Sequence[Cell], rows: Sequence[ScoreInterval], shares: FloatArray
) -> tuple[Interval, str]:
    """Interval for the weighted mean, and its method.

    From the scores where they have the same bounds and the default methods were used; otherwise the
    tasks' own intervals are combined.
    """
    estimates = np.array([c.estimate for c in cells])
    bounds = common_value(c.bounds for c in cells)
    auto = all(
        c.kind and c.composite is None and r.method == DEFAULTS[c.kind][0]
        for c, r in zip(cells, rows, strict=True)
    )
    if auto and bounds is not None:
        low, high = bounds
        width = high - low
        parts = [
            strata.smoothed_binary(c.successes, c.n)
            if c.kind == "binary"
            else strata.smoothed_scores((c.values - low) / width)
            for c in cells
        ]
        means, variances = (np.array([float(p[i]) for p in parts]) for i in (0, 1))
        share = strata.beta_effective(
            (estimates - low) / width,
            strata.Smoothed(means, variances),
            shares,
            confidence_level=rows[0].confidence_level,
        )
        return Interval(low + width * share.low, low + width * share.high), "beta-neff"
    lows, highs = (np.array([getattr(r, side) for r in rows]) for side in ("low", "high"))
    names = ", ".join(sorted({r.method for r in rows}))
    return strata.mover(estimates, Interval(lows, highs), shares), f"mover({names})"
