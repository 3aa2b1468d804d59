"""Power curves: how often a difference is found, or which is, by number of items."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from evalstats_plugin.errors import DesignError
from evalstats_plugin.report.figures import canvas
from evalstats_plugin.report.figures.canvas import FAINT, INK, SERIES
from evalstats_plugin.report.notes import short_metric
from evalstats_plugin.report.text import percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from evalstats_plugin.analyses.power_curve import PowerCurve
    from evalstats_plugin.results import PowerRow

Curve = tuple[list[int], list[float]]


@canvas.styled
def plot_power(curve: PowerCurve, *, ax: Axes | None = None) -> Axes:
    """Draw what `evalstats_plugin.power_curve` found against the number of items.

    Of many pairs of models each has a thin line, and the median over pairs a thick one for every
    task. Where power is drawn, the dotted line is the one that is wanted.

    Raises
    ------
    DesignError
        No curves, or Matplotlib is not installed.
    """
    rows = [row for row in curve if row.quantity in ("power", "difference")]
    by_pair = _curves(rows)
    if not any(len(numbers) > 1 for numbers, _ in by_pair.values()):
        msg = "no curves found, expected power or differences for several numbers of items"
        raise DesignError(msg)
    quantity = rows[0].quantity
    pairs = list(by_pair)
    tasks = list(dict.fromkeys(task for task, _ in pairs))
    single = len(pairs) <= len(SERIES)
    drawn = by_pair if single else {(task, "median"): _median(by_pair, task) for task in tasks}
    names = [_name(key, len(tasks), single=single) for key in drawn][: len(SERIES)]
    names = [canvas.shown(name, 44) for name in names]
    tall = 0.18 * sum(1 + name.count("\n") for name in names) + 1.0
    axes: Any = canvas.axes_or_new(ax, 5.0 + canvas.width_of(names), max(3.4, tall))
    if not single:
        for numbers, values in by_pair.values():
            axes.plot(numbers, values, color=FAINT, linewidth=0.4, alpha=0.5, zorder=2)
    for name, (numbers, values), (color, marker, dashes) in zip(
        names, drawn.values(), SERIES, strict=False
    ):
        axes.plot(numbers, values, color=color, linestyle=dashes, marker=marker, markersize=4,
                  markevery=4, linewidth=1.6, label=name, zorder=3)  # fmt: skip
    _add_axes(axes, rows[0], quantity, curve.power)
    _add_legend(axes, names, len(pairs), single=single)
    return axes


def _curves(rows: list[PowerRow]) -> dict[tuple[str, str], Curve]:
    """Numbers of items and values of each task and pair, increasing."""
    points: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for row in rows:
        task = f"{row.task} {short_metric(row.metric)}".strip()
        pair = f"{row.model_b} / {row.model_a}" if row.model_b else row.model_a
        value = row.power if row.quantity == "power" else row.difference
        own = points.setdefault((task, pair), [])
        if row.n_items is not None and value is not None:
            own.append((row.n_items, value))
    return {
        key: ([n for n, _ in sorted(own)], [value for _, value in sorted(own)])
        for key, own in points.items()
    }


def _median(by_pair: dict[tuple[str, str], Curve], task: str) -> Curve:
    """Over the pairs of a task that have a value at all of its numbers of items."""
    own = [curve for (of, _), curve in by_pair.items() if of == task and curve[0]]
    longest = max((curve[0] for curve in own), key=len) if own else list[int]()
    values = [curve[1] for curve in own if curve[0] == longest]
    return longest, np.median(values, axis=0).tolist() if values else []


def _name(key: tuple[str, str], tasks: int, *, single: bool) -> str:
    task, pair = key
    if not single:
        return f"{task}, median of pairs" if tasks > 1 else "median of pairs"
    return f"{task}: {pair}" if tasks > 1 and pair else pair or task or "as assumed"


def _add_axes(axes: Any, row: PowerRow, quantity: str, power: float) -> None:
    axes.set_xscale("log")
    for setting in ("set_major_locator", "set_minor_locator"):
        subs = (1, 2, 5) if setting == "set_major_locator" else ()
        getattr(axes.xaxis, setting)(canvas.matplotlib().ticker.LogLocator(subs=subs or (1,)))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.grid(visible=True)
    epochs = f" in {row.n_epochs} epochs" if (row.n_epochs or 1) > 1 else ""
    own = "" if row.design == "paired" else ", each model its own"
    axes.set_xlabel(f"items{own}{epochs} (confidence level {percent(row.confidence_level)})")
    if quantity == "power":
        axes.axhline(power, color=INK, linewidth=0.9, linestyle=(0, (2, 2)), zorder=2)
        axes.set_ylim(0, 1.02)
        canvas.percent_axis(axes.yaxis)
        axes.set_ylabel(f"probability to find a difference of {row.difference:g}")
    else:
        axes.set_ylim(0, None)
        axes.set_ylabel(f"least difference found in {percent(row.power or 0)} of evals")


def _add_legend(axes: Any, names: list[str], pairs: int, *, single: bool) -> None:
    if names == ["as assumed"]:
        return
    title = "pairs of models" if single else f"{pairs:,} pairs of models (thin)"
    said = axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), title=title, alignment="left")
    said.get_title().set_fontsize(canvas.SMALL)
