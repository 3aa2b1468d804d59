"""The page's tables of comparisons, and of the ranks that they leave open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from evalstats_plugin.analyses.rank import ranks_of
from evalstats_plugin.report import notes
from evalstats_plugin.report.html_table import Column, Table
from evalstats_plugin.report.text import percent
from evalstats_plugin.results import Comparison, RankSet

MOST_PAIRS = 20_000
"""Comparisons that a page holds; of more, those with the best model of each task."""

Axis = tuple[float, float]


def by_task(rows: Sequence[Comparison]) -> list[list[Comparison]]:
    """Return the rows of each task and metric."""
    return [list(own) for _, own in groupby(rows, key=lambda row: (row.task, row.metric))]


def held(
    rows: Sequence[Comparison], ranks: Sequence[RankSet], most: int = MOST_PAIRS
) -> tuple[list[Comparison], str]:
    """Return the comparisons that the page holds, and what it leaves out in words."""
    if len(rows) <= most:
        return list(rows), ""
    best: dict[tuple[str, str], str] = {}
    for rank in ranks:
        best.setdefault((rank.task, rank.metric), rank.model)
    kept = [row for row in rows if best.get((row.task, row.metric)) in (row.model_a, row.model_b)]
    which = "those with the highest-ranked model of each task" if kept else "the first"
    kept = (kept or list(rows))[:most]
    return kept, (
        f"This page holds {len(kept):,} of the {len(rows):,} comparisons: {which}. p-values are "
        "adjusted over all of them; `evalstats-plugin compare --format csv` has every one."
    )


def ranks(rows: Sequence[Comparison]) -> list[RankSet]:
    """Return the ranks of all models on every task where every two were compared, best first."""
    return [one for own in by_task(rows) for one in ranks_of(own)]


def comparisons_table(rows: Sequence[Comparison], marks: Mapping[str, int]) -> Table:
    """Return one row per pair of models."""
    level = percent(rows[0].confidence_level) if rows else "95 %"
    measures = {row.measure for row in rows}
    zero = {True: 0.0, False: 1.0}[measures == {"difference"}]
    axes, axis_of = _axes(rows, zero)
    title = " or ".join(sorted(measures)).capitalize()
    columns = [
        Column(title="Model", values=[row.model_b for row in rows], role="model", heads=True),
        Column(title="Against", values=[row.model_a for row in rows], role="model"),
        Column(title="Task", values=[row.task for row in rows], role="task",
               strong=[row.kind == "group" for row in rows]),
        Column(title="Metric", values=[notes.short_metric(row.metric) for row in rows],
               role="metric"),
        Column(title="Items", kind="count", values=[row.n_items for row in rows]),
        Column(title=title, kind="number" if zero else "signed",
               values=[row.difference for row in rows]),
        Column(title=f"{level} interval", kind="interval", values=[_limits(row) for row in rows],
               middles=[row.difference for row in rows], axes=axes, axis_of=axis_of,
               zero=zero if len(measures) < 2 else None),
        Column(title="p, adjusted", kind="p", values=[row.p_adjusted for row in rows],
               hint="Of no difference, allowing for all pairs of the task"),
        Column(title="P(better)", kind="percent", values=[row.prob_better for row in rows],
               hint="How probable it is that the model is truly the better of the two"),
        Column(title="Verdict", kind="verdict", values=[row.verdict for row in rows], role="flag"),
        Column(title="Method", values=[row.method for row in rows]),
        Column(title="Notes", kind="notes",
               values=[tuple(marks[note] for note in row.notes) for row in rows]),
    ]  # fmt: skip
    return Table(name="comparisons", caption="Comparisons of models", columns=columns)


def ranks_table(sets: Sequence[RankSet]) -> Table:
    """Return the ranks that the comparisons leave open, and letters."""
    columns = [
        Column(title="Model", values=[one.model for one in sets], role="model", heads=True),
        Column(title="Task", values=[one.task for one in sets], role="task"),
        Column(title="Metric", values=[notes.short_metric(one.metric) for one in sets],
               role="metric"),
        Column(title="Best rank", kind="count", values=[one.best_rank for one in sets]),
        Column(title="Worst rank", kind="count", values=[one.worst_rank for one in sets]),
        Column(title="Of", kind="count", values=[one.n_models for one in sets], hint="Models"),
        Column(title="Letters", values=[one.letters for one in sets],
               hint="Models of a task that share a letter cannot be told apart"),
    ]  # fmt: skip
    return Table(name="ranks", caption="Ranks that the items leave open", columns=columns)


def _limits(row: Comparison) -> tuple[float, float] | None:
    return None if row.low is None or row.high is None else (row.low, row.high)


def _axes(rows: Sequence[Comparison], zero: float) -> tuple[list[Axis], list[int]]:
    """Return from where to where bars reach, with no difference in the middle.

    Scores within 0 and 1 share one axis for each metric; others have one for each task.
    """
    reach: dict[tuple[str, str], float] = {}
    for row in rows:
        known = [x for x in (row.low, row.high, row.difference) if x is not None]
        furthest = max((abs(x - zero) for x in known), default=0.0)
        for key in ((row.metric, ""), (row.metric, row.task)):
            reach[key] = max(reach.get(key, 0.0), furthest)
    keys = [(row.metric, "" if reach[row.metric, ""] <= 1 else row.task) for row in rows]
    half = {key: reach[key] or 1.0 for key in dict.fromkeys(keys)}
    places = {key: i for i, key in enumerate(half)}
    return [(zero - x, zero + x) for x in half.values()], [places[key] for key in keys]
