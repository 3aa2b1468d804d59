"""Differences of models with their intervals, the line of no difference marked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from evalstats_plugin.errors import DesignError
from evalstats_plugin.report.comparisons import p_value
from evalstats_plugin.report.figures import canvas
from evalstats_plugin.report.figures.canvas import BLUE, FAINT, INK, PAPER, VERMILION
from evalstats_plugin.report.figures.rows import MOST_ROWS, Rows, frame
from evalstats_plugin.report.notes import short_metric
from evalstats_plugin.report.text import percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from evalstats_plugin.results import Comparison, Comparisons

_PLOT, _NUMBERS = 4.0, 2.3
"""Inches for the intervals, and for the numbers beside them."""
_MARKS = {
    "better": ("^", BLUE, BLUE, "better beyond chance"),
    "worse": ("v", VERMILION, VERMILION, "worse beyond chance"),
    "unclear": ("o", FAINT, PAPER, "cannot be told apart"),
}
"""Marker, colour, filling and meaning of each verdict."""


@canvas.styled
def plot_differences(results: Comparisons, *, ax: Axes | None = None) -> Axes:
    """Draw the difference of every pair with its interval, pairs under their tasks.

    With a baseline, it is what the others are more (or less) than it. The mark says whether the
    difference is beyond chance, all pairs of the task considered; the thin line is the interval
    that holds for all these pairs at once, where there is one. Ratios have an axis of their own
    kind, and no difference at 1.

    Raises
    ------
    DesignError
        Nothing to draw, too many pairs for one figure, or Matplotlib is not installed.
    """
    rows = _in_order(results)
    first = {row.model_a for row in rows}
    against = next(iter(first)) if len(first) == 1 else None
    named = [(_task(row), row.model_b if against else _pair(row)) for row in rows]
    if len(named) > MOST_ROWS and not against:
        msg = f"{len(named):,} pairs found, expected at most {MOST_ROWS} in a figure: choose a task"
        raise DesignError(f"{msg}, a baseline to compare with (--baseline), or models")
    laid = Rows.of(named)
    width = _PLOT + _NUMBERS + laid.width
    axes: Any = canvas.axes_or_new(ax, width, laid.height + 0.3)
    laid.write(axes)
    laid.beside(axes, [_said(row) for row in rows])
    for y, row in zip(laid.places, rows, strict=True):
        _draw(axes, y, row)
    _add_axis(axes, rows, against)
    _add_legend(axes, laid, rows)
    return axes


def _in_order(results: Comparisons) -> list[Comparison]:
    """Return the pairs of each task, the greatest difference first."""
    by_task: dict[str, list[Comparison]] = {}
    for row in results:
        by_task.setdefault(_task(row), []).append(row)

    def standing(row: Comparison) -> float:
        return float("inf") if row.difference is None else -row.difference

    return [row for own in by_task.values() for row in sorted(own, key=standing)]


def _task(row: Comparison) -> str:
    return f"{row.task} {short_metric(row.metric)}"


def _pair(row: Comparison) -> str:
    sign = "−" if row.measure == "difference" else ":"
    return f"{row.model_b} {sign} {row.model_a}"


def _ends(row: Comparison) -> tuple[float | None, ...]:
    return (row.difference, row.low, row.high, row.low_adjusted, row.high_adjusted)


def _draw(axes: Any, y: float, row: Comparison) -> None:
    if row.difference is None:
        return
    marker, color, filling, _ = _MARKS[row.verdict]
    if row.low_adjusted is not None and row.high_adjusted is not None:
        axes.hlines(y, row.low_adjusted, row.high_adjusted, color=color, linewidth=0.7, zorder=3)
    if row.low is not None and row.high is not None:
        axes.hlines(y, row.low, row.high, color=color, linewidth=1.8, zorder=4)
    axes.plot(row.difference, y, marker=marker, markersize=5, markerfacecolor=filling,
              markeredgecolor=color, markeredgewidth=0.9, zorder=5)  # fmt: skip


def _said(row: Comparison) -> str:
    if row.difference is None:
        return "–"
    sign = "+" if row.measure == "difference" else ""
    value, *limits = (None if x is None else f"{x:{sign}.3f}" for x in _ends(row)[:3])
    known = "" if None in limits else f" [{', '.join(map(str, limits))}]"
    return f"{value}{known}  p {p_value(row.p_adjusted)}"


def _add_axis(axes: Any, rows: Sequence[Comparison], against: str | None) -> None:
    ratio = rows[0].measure != "difference"
    values = [x for row in rows for x in _ends(row) if x is not None and (x > 0 or not ratio)]
    none = 1.0 if ratio else 0.0
    if ratio:
        axes.set_xscale("log")
        reach = max([*values, none]) / min([*values, none])
        axes.set_xlim(min([*values, none]) / reach**0.05, max([*values, none]) * reach**0.05)
    else:
        frame(axes, [*values, none])
    axes.axvline(none, color=INK, linewidth=0.9, zorder=2)
    level = percent(rows[0].confidence_level)
    what = f"{rows[0].measure} to {canvas.shown(against, 70)}" if against else rows[0].measure
    worse = "; lower is better" if rows[0].higher_is_better is False else ""
    together = any(row.low_adjusted is not None for row in rows)
    thin = ", thin for all pairs of a task at once" if together else ""
    axes.set_xlabel(f"{what}\n{level} intervals{thin}{worse}", parse_math=False)


def _add_legend(axes: Any, laid: Rows, rows: Sequence[Comparison]) -> None:
    from matplotlib.lines import Line2D

    found = [name for name in _MARKS if name in {row.verdict for row in rows}]
    handles = [
        Line2D([], [], marker=marker, color=color, markersize=5, markerfacecolor=filling,
               linewidth=1.8, label=meaning)
        for marker, color, filling, meaning in (_MARKS[name] for name in found)
    ]  # fmt: skip
    laid.legend(axes, handles)
