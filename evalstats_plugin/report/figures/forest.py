"""Forest plots: an estimate and its interval on every row, models under their tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evalstats_plugin.errors import DesignError
from evalstats_plugin.report.figures import canvas
from evalstats_plugin.report.figures.canvas import BLUE, FAINT, INK, PAPER
from evalstats_plugin.report.figures.estimates import Mark, Marks, marks_of
from evalstats_plugin.report.figures.rows import Rows, frame
from evalstats_plugin.report.text import number
from evalstats_plugin.wording import few

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from evalstats_plugin.results import Results

_PLOT, _NUMBERS = 4.0, 1.7
"""Inches for the intervals, and for the numbers beside them."""
_LIFT = 0.3
"""Of what was observed above the estimate that it was pulled to, in lines."""


@canvas.styled
def plot_forest(results: Results[Any], *, ax: Axes | None = None) -> Axes:
    """Draw estimates with their intervals.

    Models stand under their tasks, the best first; of one model its tasks. Of a hierarchical model
    an arrow leads from each observed score to the estimate; of adaptive tests a circle is what all
    answers say.

    Parameters
    ----------
    results
        What `intervals`, `rank`, `fit_hierarchical`, abilities or adaptive tests gave.
    ax
        Where to draw; by default a new figure, as large as the names and rows need. There, metrics
        on different scales get axes of their own, one under the other; the first is returned.

    Raises
    ------
    DesignError
        Nothing to draw, too much for one figure, or Matplotlib is not installed.
    """
    scales = marks_of(results)
    if ax is not None and len(scales) > 1:
        named = few([marks.axis for marks in scales])
        msg = f"{len(scales)} scales found ({named}), expected one for these axes: choose a metric"
        raise DesignError(msg)
    laid = [Rows.of([(row.group, row.name) for row in marks.rows]) for marks in scales]
    if ax is not None:
        return _draw(ax, scales[0], laid[0])
    heights = [rows.height + 0.25 * bool(m.other) for m, rows in zip(scales, laid, strict=True)]
    width = _PLOT + _NUMBERS + max(rows.width for rows in laid)
    figure = canvas.new_figure(width, sum(heights))
    parts = figure.subplots(len(laid), 1, height_ratios=heights, squeeze=False)[:, 0]
    drawn = [
        _draw(canvas.dressed(part), marks, rows)
        for part, marks, rows in zip(parts, scales, laid, strict=True)
    ]
    return drawn[0]


def _draw(axes: Any, marks: Marks, rows: Rows) -> Any:
    rows.write(axes)
    rows.beside(axes, [_said(mark) for mark in marks.rows])
    for y, mark in zip(rows.places, marks.rows, strict=True):
        if mark.estimate is not None:
            _draw_interval(axes, y, mark)
        if mark.other is not None:
            _draw_other(axes, y, mark, arrows=marks.arrows)
    values = [value for mark in marks.rows for value in mark[2:] if value is not None]
    share = marks.share and bool(values) and min(values) >= 0 and max(values) <= 1
    frame(axes, values, share=share)
    axes.set_xlabel(marks.axis, parse_math=False)
    if marks.other:
        _add_legend(axes, marks, rows)
    return axes


def _draw_interval(axes: Any, y: float, mark: Mark) -> None:
    if mark.low is not None and mark.high is not None:
        axes.hlines(y, mark.low, mark.high, color=BLUE, linewidth=1.6, zorder=3)
    axes.plot(mark.estimate, y, marker="o", markersize=4.6, color=BLUE, markeredgecolor=PAPER,
              markeredgewidth=0.5, zorder=5)  # fmt: skip


def _draw_other(axes: Any, y: float, mark: Mark, *, arrows: bool) -> None:
    above = y - _LIFT if arrows else y
    if arrows and mark.estimate is not None:
        style = {"arrowstyle": "-|>,head_width=0.15,head_length=0.25", "color": FAINT,
                 "linewidth": 0.8, "shrinkA": 2, "shrinkB": 2}  # fmt: skip
        axes.annotate("", (mark.estimate, y), (mark.other, above), arrowprops=style, zorder=4)
    axes.plot(mark.other, above, marker="o", markersize=4, markerfacecolor=PAPER,
              markeredgecolor=INK, markeredgewidth=0.8, linestyle="", zorder=6)  # fmt: skip


def _said(mark: Mark) -> str:
    if mark.estimate is None:
        return "–"
    if mark.low is None or mark.high is None:
        return f"{number(mark.estimate)} (no interval)"
    return f"{number(mark.estimate)} [{number(mark.low)}, {number(mark.high)}]"


def _add_legend(axes: Any, marks: Marks, rows: Rows) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=BLUE, marker="o", markersize=4.6, linewidth=1.6, label=marks.estimate),
        Line2D([], [], linestyle="", marker="o", markersize=4, markerfacecolor=PAPER,
               markeredgecolor=INK, markeredgewidth=0.8, label=marks.other),
    ]  # fmt: skip
    rows.legend(axes, handles)
