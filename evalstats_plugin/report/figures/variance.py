"""Where the variance of scores comes from: items, or single takes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from evalstats_plugin.errors import DesignError
from evalstats_plugin.report.figures import canvas
from evalstats_plugin.report.figures.canvas import BLUE, FAINT, INK, ORANGE
from evalstats_plugin.report.figures.rows import Rows
from evalstats_plugin.report.notes import short_metric

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from evalstats_plugin.results import PowerRows, VariancePart, VarianceParts

_PLOT, _NUMBERS = 3.6, 2.9
"""Inches for the bars, and for the numbers beside them."""


@canvas.styled
def plot_variance_parts(results: VarianceParts | PowerRows, *, ax: Axes | None = None) -> Axes:
    """Draw how much of the variance of single takes lies between items and how much within them.

    Only more items make the part between them smaller, more epochs the other as well: the numbers
    beside each bar are the standard error as it is, with twice the epochs, with twice the items. A
    bar is empty where each item was taken once, which does not tell the parts apart.

    Raises
    ------
    DesignError
        Nothing to draw, too much for one figure, or Matplotlib is not installed.
    """
    # A task of several groups is there once for each of them.
    found: Sequence[Any] = getattr(results, "parts", results.rows)
    parts: Sequence[VariancePart] = list(dict.fromkeys(found))
    if not parts or not hasattr(parts[0], "share_within"):
        msg = "no variance parts found: they come of logs, not of assumptions"
        raise DesignError(msg)
    metrics = {part.metric for part in parts}

    def task(part: VariancePart) -> str:
        return f"{part.task} {short_metric(part.metric)}" if len(metrics) > 1 else part.task

    groups: dict[str, list[VariancePart]] = {}
    for part in parts:
        groups.setdefault(task(part), []).append(part)
    shown = [part for own in groups.values() for part in own]
    rows = Rows.of([(task(part), part.model) for part in shown])
    axes: Any = canvas.axes_or_new(ax, _PLOT + _NUMBERS + rows.width, rows.height + 0.55)
    rows.write(axes)
    rows.beside(axes, [_said(part) for part in shown])
    _draw(axes, rows, shown)
    axes.set_xlim(0, 1)
    canvas.percent_axis(axes.xaxis)
    axes.set_xlabel(
        "share of a single take's variance\n"
        "beside: std. error now → with twice the epochs | twice the items",
        fontsize=canvas.SMALL,
    )
    _add_legend(axes, rows)
    return axes


def _draw(axes: Any, rows: Rows, parts: Sequence[VariancePart]) -> None:
    for y, part in zip(rows.places, parts, strict=True):
        share = part.share_within
        if share is None:
            axes.barh(y, 1, height=0.62, facecolor="none", edgecolor=FAINT, linestyle="--",
                      linewidth=0.8)  # fmt: skip
            why = "not known" if part.n_epochs == 1 else "no variance"
            axes.text(0.5, y, why, ha="center", va="center", fontsize=7.5, color=INK)
            continue
        # An estimate of what lies between items may come out below 0.
        within = min(max(share, 0.0), 1.0)
        axes.barh(y, 1 - within, height=0.62, color=BLUE)
        axes.barh(y, within, left=1 - within, height=0.62, facecolor=ORANGE, edgecolor=INK,
                  hatch="////", linewidth=0)  # fmt: skip


def _said(part: VariancePart) -> str:
    now, epochs, items = (
        "–" if error is None else f"{error:.4f}"
        for error in (part.std_error, part.std_error_more_epochs, part.std_error_more_items)
    )
    return f"{now} → {epochs} | {items}   {part.n_items:,}×{part.n_epochs}"


def _add_legend(axes: Any, rows: Rows) -> None:
    from matplotlib.patches import Patch

    between = Patch(facecolor=BLUE, label="between items")
    within = Patch(facecolor=ORANGE, edgecolor=INK, hatch="////", linewidth=0, label="within items")
    rows.legend(axes, [between, within])
