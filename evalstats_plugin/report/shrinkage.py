"""The figure of a hierarchical fit: what was observed, and where it was pulled.

Shapes tell apart what colours do for those who see them: open circles are scores as observed,
filled ones estimates on a task, diamonds with bars a model over all tasks.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalstats_plugin.errors import DesignError
from evalstats_plugin.report.text import percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from evalstats_plugin.analyses.hierarchical_fit import HierarchicalFit
    from evalstats_plugin.analyses.hierarchical_records import Performance

FORMATS = (".png", ".svg", ".pdf")

_BLUE, _GREY, _BLACK = "#0072B2", "#999999", "#000000"
"""Of the palette that is told apart by the colour-blind and in grey."""
_BAND = 0.8
"""Height of a model's bar and the lines under it, of the distance between models."""
_WIDTH, _PER_LETTER = 5.0, 0.085
_PER_MODEL, _PER_TASK = 0.2, 0.05
"""Inches."""
_NAME, _MANY_TASKS = 9, 30


def plot_shrinkage(fit: HierarchicalFit, ax: Axes | None = None) -> Axes:
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
        Matplotlib is not installed.
    """
    rows = [row for row in fit if row.task is None]
    axes: Any = ax if ax is not None else _new_axes(fit, [row.model for row in rows])
    for place, row in enumerate(rows):
        own = [x for x in fit if x.model == row.model and x.task is not None]
        _draw_tasks(axes, place, own)
        _draw_model(axes, place, row)
    axes.set_yticks(range(len(rows)), [row.model for row in rows], fontsize=_NAME)
    axes.set_ylim(len(rows) - 0.1, -0.4)
    axes.set_xlim(-0.02, 1.02)
    axes.set_xlabel(f"share of right answers ({fit.counts.metric})")
    axes.grid(axis="x", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    _add_legend(axes, percent(fit.confidence_level))
    return axes


def save_shrinkage(fit: HierarchicalFit, path: str | Path) -> Path:
    """Draw into a file, whose ending says the format.

    Raises
    ------
    DesignError
        Matplotlib is not installed.
    """
    import_pyplot().switch_backend("agg")
    axes: Any = plot_shrinkage(fit)
    # Without a date the same fit gives the same bytes.
    stamp = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    axes.figure.savefig(path, dpi=150, metadata=stamp.get(Path(path).suffix.lower(), {}))
    import_pyplot().close(axes.figure)
    return Path(path)


def import_pyplot() -> Any:
    """Return ``matplotlib.pyplot``.

    Raises
    ------
    DesignError
        It is not installed.
    """
    try:
        return import_module("matplotlib.pyplot")
    except ModuleNotFoundError as error:
        msg = "figures need Matplotlib: pip install 'evalstats-plugin[hierarchical]'"
        raise DesignError(msg) from error


def _new_axes(fit: HierarchicalFit, names: list[str]) -> Any:
    width = _WIDTH + _PER_LETTER * max(map(len, names))
    per_model = _PER_MODEL + _PER_TASK * min(len(fit.tasks), _MANY_TASKS)
    # The axis, its label and the legend take a place of their own.
    size = (width, 1.3 + per_model * len(names))
    return import_pyplot().subplots(figsize=size, layout="constrained")[1]


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
    axes.hlines(at, scores, estimates, color=_GREY, linewidth=0.8, zorder=2)
    axes.scatter(scores, at, s=12, facecolors="white", edgecolors=_GREY, linewidths=0.8, zorder=3)
    axes.scatter(estimates, at, s=8, color=_BLACK, linewidths=0, zorder=4)


def _draw_model(axes: Any, place: int, row: Performance) -> None:
    axes.hlines(place, row.low, row.high, color=_BLUE, linewidth=2.2, zorder=5)
    axes.scatter([row.estimate], [place], s=30, marker="D", color=_BLUE, edgecolors="white",
                 linewidths=0.6, zorder=6)  # fmt: skip


def _add_legend(axes: Any, level: str) -> None:
    from matplotlib.lines import Line2D

    def mark(label: str, **style: Any) -> Line2D:
        return Line2D([], [], label=label, **style)

    handles = [
        mark("observed, one task", color=_GREY, marker="o", markerfacecolor="white", markersize=4,
             linewidth=0.8),
        mark("estimate, one task", color=_BLACK, marker="o", markersize=3, linewidth=0),
        mark(f"all tasks, {level} interval", color=_BLUE, marker="D", markersize=5, linewidth=2.2),
    ]  # fmt: skip
    axes.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3,
                frameon=False, fontsize=8, handletextpad=0.4, columnspacing=1.2)  # fmt: skip
