"""How items fit the model: infit against outfit, those to look at named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evalstats_plugin.errors import DesignError
from evalstats_plugin.report.figures import canvas
from evalstats_plugin.report.figures.canvas import BLUE, FAINT, INK, VERMILION
from evalstats_plugin.report.figures.scale import spread_out

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from evalstats_plugin.analyses.ability_records import Abilities, ItemEstimate

MOST_NAMED = 20
NOISY = 1.3
"""Noise over what the model expects from which on an item is listed."""
_LEAST = 0.05


@canvas.styled
def plot_item_fit(results: Abilities | Sequence[ItemEstimate], *, ax: Axes | None = None) -> Axes:
    """Draw infit and outfit of every item; 1 is what the model expects of both.

    Items that a person should look at are triangles, the gravest of them named.

    Raises
    ------
    DesignError
        No items, or Matplotlib is not installed.
    """
    given: Any = results
    items: Sequence[ItemEstimate] = getattr(given, "items", given)
    known = [item for item in items if item.infit is not None and item.outfit is not None]
    if not known:
        msg = "no items with infit and outfit found: ask for items"
        raise DesignError(msg)
    infit, outfit = (
        np.maximum([float(getattr(item, name)) for item in known], _LEAST)
        for name in ("infit", "outfit")
    )
    flagged = np.array([bool(item.notes) for item in known])
    # Those to look at come first, the gravest of all at the top.
    named: list[int] = np.flatnonzero(flagged)[:MOST_NAMED].tolist()
    several = len({item.task for item in known}) > 1
    names = [
        canvas.shown(f"{known[j].task} {known[j].item}" if several else known[j].item, 40)
        for j in named
    ]
    lines = [1 + 0.82 * name.count("\n") for name in names]
    height = max(3.4, sum(lines) * canvas.LINE * 1.1)
    axes: Any = canvas.axes_or_new(ax, 4.6 + canvas.width_of(names) * bool(names), height + 0.9)
    _draw(axes, infit, outfit, flagged)
    _name(axes, infit[named], outfit[named], names, np.array(lines) * canvas.LINE / height)
    hidden = len(items) - len(known)
    more = f"; {hidden:,} have neither" if hidden else ""
    clipped = int(((infit <= _LEAST) | (outfit <= _LEAST)).sum())
    more += f"; {clipped:,} at {_LEAST:g} are lower" if clipped else ""
    canvas.title(axes, f"{len(known):,} items, {int(flagged.sum()):,} to look at{more}")
    return axes


def _draw(axes: Any, infit: Any, outfit: Any, flagged: Any) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(canvas.matplotlib().ticker.LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
        axis.set_minor_locator(canvas.matplotlib().ticker.NullLocator())
        axis.set_major_formatter("{x:g}")
    for line, style in ((1.0, "-"), (NOISY, "--")):
        axes.axvline(line, color=FAINT, linewidth=0.7, linestyle=style, zorder=1)
        axes.axhline(line, color=FAINT, linewidth=0.7, linestyle=style, zorder=1)
    many = len(infit) > 500
    axes.plot(infit[~flagged], outfit[~flagged], linestyle="", marker="o", markersize=3,
              color=BLUE, markeredgewidth=0, alpha=0.4 if many else 0.7, zorder=3,
              label="fits")  # fmt: skip
    axes.plot(infit[flagged], outfit[flagged], linestyle="", marker="^", markersize=5,
              color=VERMILION, markeredgecolor=INK, markeredgewidth=0.5, zorder=4,
              label="to look at")  # fmt: skip
    for setter, values in ((axes.set_xlim, infit), (axes.set_ylim, outfit)):
        low, high = min(float(values.min()), 0.8), max(float(values.max()), 1.5)
        setter(low / 1.08, high * 1.08)
    axes.set_xlabel(f"infit (dashed: {NOISY:g})")
    axes.set_ylabel("outfit")


def _name(axes: Any, infit: Any, outfit: Any, names: list[str], room: Any) -> None:
    """Write names in a column at the right, each with a line to its item."""
    if not names:
        return
    low, high = np.log(axes.get_ylim())
    at = (np.log(outfit) - low) / (high - low)
    order = np.argsort(at, kind="stable")
    places = spread_out(at[order], room[order])
    places += min(0.0, 1 - places[-1]) + max(0.0, -places[0])
    for j, y in zip(order, places, strict=True):
        axes.annotate(
            names[j], (infit[j], outfit[j]), (1.03, y), textcoords="axes fraction", va="center",
            fontsize=canvas.SMALL, linespacing=1.0, parse_math=False, annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": FAINT, "linewidth": 0.5, "shrinkB": 3},
        )  # fmt: skip
