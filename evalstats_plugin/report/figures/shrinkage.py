"""The figure of a hierarchical fit: what was observed, and where it was pulled.

Shapes tell apart what colours do for those who see them: open circles are scores as observed,
filled ones estimates on a task, diamonds with bars a model over all tasks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from evalstats_plugin.errors import DesignError
from evalstats_plugin.report.figures import canvas
from evalstats_plugin.report.figures.canvas import BLUE, FAINT, INK, PAPER
from evalstats_plugin.report.notes import short_metric
from evalstats_plugin.report.text import percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from evalstats_plugin.analyses.hierarchical_fit import HierarchicalFit
    from evalstats_plugin.analyses.hierarchical_records import Performance

MOST_MODELS = 200
_BAND = 0.8
"""Height of a model's bar and the lines under it, of the distance between models."""
_WIDTH = 5.0
_PER_MODEL, _PER_TASK = 0.2, 0.05
"""Inches."""
_MANY_TASKS = 30


@canvas.styled
def plot_shrinkage(fit: HierarchicalFit, *, ax: Axes | None = None) -> Axes:
    """Draw scores as observed and as estimated, models from the best down.

    Each model has a line for every task that it ran, from the observed score to the estimate, and
    a bar over all tasks.

    Parameters
    ----------
    ax
        Where to draw; by default a new figure, as large as the names and the tasks need.

    Raises
    ------
    DesignError
        Too many models for one figure, or Matplotlib is not installed.
    """
    rows = [row for row in fit if row.task is None]
    if len(rows) > MOST_MODELS:
        msg = f"{len(rows)} models found, expected at most {MOST_MODELS} in this figure"
        raise DesignError(msg)
    names = [canvas.shown(row.model) for row in rows]
    lines = max(name.count("\n") for name in names) + 1
    step = max(_PER_MODEL + _PER_TASK * min(len(fit.tasks), _MANY_TASKS), canvas.LINE * lines)
    # The axis, its label and the legend take a place of their own.
    axes: Any = canvas.axes_or_new(ax, _WIDTH + canvas.width_of(names), 1.2 + step * len(rows))
    for place, row in enumerate(rows):
        own = [x for x in fit if x.model == row.model and x.task is not None]
        _draw_tasks(axes, place, own)
        _draw_model(axes, place, row)
    axes.set_yticks(np.arange(len(rows)), names, fontsize=canvas.SMALL, parse_math=False,
                    linespacing=1.0)  # fmt: skip
    axes.set_ylim(len(rows) - 0.1, -0.4)
    axes.set_xlim(-0.02, 1.02)
    axes.set_xlabel(f"share of right answers ({short_metric(fit.counts.metric)})", parse_math=False)
    axes.grid(axis="x")
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    _add_legend(axes, percent(fit.confidence_level))
    return axes


def _draw_tasks(axes: Any, place: int, rows: list[Performance]) -> None:
    """Draw lines from observed scores to estimates, in the order of the tasks, under the bar."""
    step = _BAND / (len(rows) + 1)
    known = [
        (place + i * step, row.score, row.estimate)
        for i, row in enumerate(rows, 1)
        if row.score is not None
    ]
    if not known:
        return
    at, scores, estimates = zip(*known, strict=True)
    axes.hlines(at, scores, estimates, color=FAINT, linewidth=0.8, zorder=2)
    axes.scatter(scores, at, s=12, facecolors=PAPER, edgecolors=FAINT, linewidths=0.8, zorder=3)
    axes.scatter(estimates, at, s=8, color=INK, linewidths=0, zorder=4)


def _draw_model(axes: Any, place: int, row: Performance) -> None:
    axes.hlines(place, row.low, row.high, color=BLUE, linewidth=2.2, zorder=5)
    axes.scatter([row.estimate], [place], s=30, marker="D", color=BLUE, edgecolors=PAPER,
                 linewidths=0.6, zorder=6)  # fmt: skip


def _add_legend(axes: Any, level: str) -> None:
    from matplotlib.lines import Line2D

    def mark(label: str, **style: Any) -> Line2D:
        return Line2D([], [], label=label, **style)

    handles = [
        mark("observed, one task", color=FAINT, marker="o", markerfacecolor=PAPER, markersize=4,
             linewidth=0.8),
        mark("estimate, one task", color=INK, marker="o", markersize=3, linewidth=0),
        mark(f"all tasks, {level} interval", color=BLUE, marker="D", markersize=5, linewidth=2.2),
    ]  # fmt: skip
    axes.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3,
                handletextpad=0.4, columnspacing=1.2)  # fmt: skip
