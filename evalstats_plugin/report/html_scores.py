"""The page's table of scores with their intervals, and what was read to get them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from evalstats_plugin.report import notes
from evalstats_plugin.report.html_table import Column, Table
from evalstats_plugin.report.text import clusters, interval, number, percent
from evalstats_plugin.responses import Responses
from evalstats_plugin.results import Intervals, ScoreInterval

Axis = tuple[float, float]
BETTER = {True: "↑", False: "↓", None: ""}
"""Which way better scores lie."""


def scores_table(results: Intervals, marks: Mapping[str, int]) -> Table:
    """Return one row per score, in the order of the table on the terminal."""
    rows = results.rows
    level = percent(rows[0].confidence_level) if rows else "95 %"
    axes, axis_of = _axes(rows)
    depths, groups = [row.depth for row in rows], [row.kind == "group" for row in rows]
    naive = [
        f"[{number(row.naive_low)}, {number(row.naive_high)}]" if row.naive_low is not None else ""
        for row in rows
    ]
    columns = [
        Column(title="Model", values=[row.model for row in rows], role="model", heads=True),
        Column(title="Task", values=[row.task for row in rows], role="task", indent=depths,
               strong=groups),
        Column(title="Metric", values=[notes.short_metric(row.metric) for row in rows],
               role="metric"),
        Column(title="Items", kind="count", values=[row.n_items for row in rows]),
        Column(title="Epochs", kind="count", hint="Takes of each item",
               values=[row.n_epochs if row.n_epochs > 1 else None for row in rows]),
        Column(title="Missing", kind="count", hint="Items without a score",
               values=[row.n_missing or None for row in rows]),
        Column(title="Estimate", kind="number", values=[row.estimate for row in rows]),
        Column(title="Better", values=[BETTER[row.higher_is_better] for row in rows],
               hint="↑ higher scores are better, ↓ lower"),
        Column(title=f"{level} interval", kind="interval",
               values=[None if interval(row) == "–" else (row.low, row.high) for row in rows],
               middles=[row.estimate for row in rows], axes=axes, axis_of=axis_of),
        Column(title="Std. error", kind="number", values=[row.std_error for row in rows]),
        Column(title="Clusters", values=[clusters(row) for row in rows],
               hint="deff: how many times larger clusters make the variance; ICC: how alike their "
               "items are"),
        Column(title="If independent", values=naive, hint="The interval without the clusters"),
        Column(title="Method", values=[row.method for row in rows]),
        Column(title="Notes", kind="notes",
               values=[tuple(marks[note] for note in row.notes) for row in rows]),
    ]  # fmt: skip
    return Table(name="scores", caption="Scores with intervals", columns=columns)


def _axes(rows: Sequence[ScoreInterval]) -> tuple[list[Axis], list[int]]:
    """Return from where to where bars reach: 0 to 1, or as far as the task's intervals do."""
    reach: dict[tuple[str, str], Axis] = {}
    for row in rows:
        known = [x for x in (row.low, row.high, row.estimate) if x is not None]
        low, high = reach.get((row.task, row.metric), (math.inf, -math.inf))
        reach[row.task, row.metric] = (min([low, *known]), max([high, *known]))
    drawn = {key: (0.0, 1.0) if low >= 0 and high <= 1 else (low, high)
             for key, (low, high) in reach.items()}  # fmt: skip
    places = {axis: i for i, axis in enumerate(dict.fromkeys(drawn.values()))}
    return list(places), [places[drawn[row.task, row.metric]] for row in rows]


def logs_table(responses: Sequence[Responses]) -> Table:
    """Return one row per log: where scores come from, and how many."""
    logs: dict[tuple[str, str], list[Responses]] = {}
    for r in responses:
        logs.setdefault((str(r.source.path), r.model), []).append(r)
    found = list(logs.items())
    sources = [of_log[0].source for _, of_log in found]
    items = [sum(len(r.item_ids) for r in _by_task(of_log)) for _, of_log in found]
    missing = [sum(_without_score(r) for r in _by_task(of_log)) for _, of_log in found]
    columns = [
        Column(title="Log", values=[path for (path, _), _ in found], heads=True),
        Column(title="Model", values=[model for (_, model), _ in found], role="model"),
        Column(title="Harness", values=[source.harness for source in sources]),
        Column(title="Version", values=[source.version or "" for source in sources]),
        Column(title="Run at", values=[source.when for source in sources]),
        Column(title="Tasks", kind="count",
               values=[len({r.task for r in of_log}) for _, of_log in found]),
        Column(title="Scores", kind="count", hint="Of tasks, by task and metric",
               values=[len(_scores(of_log)) for _, of_log in found]),
        Column(title="Items read", kind="count", values=items),
        Column(title="Without score", kind="count", values=[n or None for n in missing],
               hint="Items that have no score, under at least one metric"),
    ]  # fmt: skip
    return Table(name="logs", caption="Logs that were read", columns=columns)


def _scores(responses: Sequence[Responses]) -> set[tuple[str, str]]:
    return {(r.task, r.metric) for r in responses}


def _by_task(responses: Sequence[Responses]) -> list[Responses]:
    """Of each task the metric with most items without a score: each item counts once."""
    worst: dict[str, Responses] = {}
    for r in responses:
        other = worst.setdefault(r.task, r)
        if (len(r.item_ids), _without_score(r)) > (len(other.item_ids), _without_score(other)):
            worst[r.task] = r
    return list(worst.values())


def _without_score(r: Responses) -> int:
    if not r.scores.size:
        return 0
    return int((~np.isfinite(r.scores)).all(axis=1).sum())
