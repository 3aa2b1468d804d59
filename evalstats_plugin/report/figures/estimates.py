"""Results of all kinds as rows of a forest plot: a name, an estimate, its limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from evalstats_plugin.errors import DesignError
from evalstats_plugin.report.notes import short_metric
from evalstats_plugin.report.text import percent
from evalstats_plugin.results import Results
from evalstats_plugin.wording import few


class Mark(NamedTuple):
    """One row, whatever it is of."""

    group: str
    name: str
    estimate: float | None
    low: float | None
    high: float | None
    other: float | None = None
    """A second number to show, as an open circle."""


class Marks(NamedTuple):
    """All rows that share an axis, and what it says."""

    rows: Sequence[Mark]
    axis: str
    estimate: str = ""
    """What the filled mark is, where there are two."""
    other: str = ""
    arrows: bool = False
    """From the other number to the estimate."""
    share: bool = True
    """Whether the numbers are shares of 1, when they look so."""


def marks_of(results: Results[Any]) -> list[Marks]:
    """Return the rows of results by scale.

    Raises
    ------
    DesignError
        There are none, or they are no estimates.
    """
    rows = list(getattr(results, "rows", ()))
    if not rows:
        raise DesignError("nothing to draw: there are no rows")
    kind = type(rows[0]).__name__
    if kind not in _KINDS:
        msg = f"{kind} rows found, expected estimates with intervals: {', '.join(_KINDS)}"
        raise DesignError(msg)
    return list(_KINDS[kind](rows))


def _of_intervals(rows: Sequence[Any]) -> Iterable[Marks]:
    """One axis for all shares of 1, one for each other metric."""
    by_metric: dict[str, list[Any]] = {}
    for row in rows:
        by_metric.setdefault(short_metric(row.metric), []).append(row)
    shares = [name for name, own in by_metric.items() if all(map(_is_share, own))]
    scales = [shares, *([name] for name in by_metric if name not in shares)]
    level = percent(rows[0].confidence_level)
    for names in filter(None, scales):
        own = [row for name in names for row in by_metric[name]]
        metrics = f"{few(names)}, " if len(names) <= 3 else ""
        yield Marks(_best_first(own, several=len(names) > 1), f"{metrics}{level} intervals")


def _is_share(row: Any) -> bool:
    known = (value for value in (row.estimate, row.low, row.high) if value is not None)
    return all(0 <= value <= 1 for value in known)


def _best_first(rows: Sequence[Any], *, several: bool) -> list[Mark]:
    groups: dict[str, list[Any]] = {}
    for row in rows:
        metric = f" {short_metric(row.metric)}" if several else ""
        kind = " (group)" if row.kind == "group" else ""
        groups.setdefault(f"{row.task}{kind}{metric}", []).append(row)

    def standing(row: Any) -> float:
        if row.estimate is None:
            return float("inf")
        return row.estimate if row.higher_is_better is False else -row.estimate

    # A task of several groups is there once for each of them.
    return list(
        dict.fromkeys(
            Mark(group, row.model, row.estimate, row.low, row.high)
            for group, own in groups.items()
            for row in sorted(own, key=standing)
        )
    )


def _of_abilities(rows: Sequence[Any]) -> Iterable[Marks]:
    task = few(rows[0].task.split(", "), 3)
    marks = [Mark(task, row.model, row.estimate, row.low, row.high) for row in rows]
    level = percent(rows[0].confidence_level)
    yield Marks(marks, f"ability (logits), {level} intervals", share=False)


def _of_ranking(rows: Sequence[Any]) -> Iterable[Marks]:
    marks = [Mark(row.method, row.player, row.mean, row.low, row.high) for row in rows]
    level = percent(rows[0].confidence_level)
    yield Marks(marks, f"rating ({rows[0].scale}), {level} intervals", share=False)


def _of_hierarchical(rows: Sequence[Any]) -> Iterable[Marks]:
    by_task: dict[str, list[Mark]] = {}
    # The mean over one task is that task again.
    several = len({row.task for row in rows if row.task is not None}) > 1
    for row in [row for row in rows if several or row.task is not None] or rows:
        task = "all tasks" if row.task is None else row.task
        mark = Mark(task, row.model, row.estimate, row.low, row.high, row.score)
        by_task.setdefault(task, []).append(mark)
    marks = [
        mark for own in by_task.values() for mark in sorted(own, key=lambda x: -(x.estimate or 0.0))
    ]
    level = percent(rows[0].confidence_level)
    axis = f"share of right answers ({short_metric(rows[0].metric)})"
    yield Marks(marks, axis, f"estimate, {level} interval", "observed score", arrows=True)


def _of_tests(rows: Sequence[Any]) -> Iterable[Marks]:
    several = len({row.rule for row in rows}) > 1
    by_task: dict[str, list[Mark]] = {}
    for row in rows:
        group = f"{row.task}, {row.rule}" if several else row.task
        ends = (row.full_score, row.full_score_low, row.full_score_high)
        by_task.setdefault(group, []).append(Mark(group, row.model, *ends, row.observed))
    marks = [mark for own in by_task.values() for mark in own]
    level = percent(rows[0].confidence_level)
    axis = f"score on all items ({short_metric(rows[0].metric)})"
    yield Marks(marks, axis, f"predicted, {level} interval", "all answers of the log")


_KINDS: Mapping[str, Callable[[Sequence[Any]], Iterable[Marks]]] = {
    "ScoreInterval": _of_intervals,
    "Ability": _of_abilities,
    "RankedPlayer": _of_ranking,
    "Performance": _of_hierarchical,
    "AdaptiveTest": _of_tests,
}
"""By the name of the record, so that nothing is loaded for those that are not there."""
