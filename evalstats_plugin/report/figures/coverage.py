"""Coverage of interval methods in a validation study: how often they held the truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evalstats_plugin.errors import DesignError
from evalstats_plugin.report.figures import canvas
from evalstats_plugin.report.figures.canvas import INK, SERIES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_METHODS = 2 * len(SERIES)


@canvas.styled
def plot_coverage(
    rows: Sequence[Mapping[str, Any]],
    *,
    by: str = "method",
    across: str = "n",
    level: float = 0.95,
    ax: Axes | None = None,
) -> Axes:
    """Draw how often the intervals of each method held the truth.

    Marks are means over all settings with the same `across`; thin lines go from the least to the
    greatest coverage of these settings, and down to ``least`` where a study has it: the worst over
    all truths.

    Parameters
    ----------
    rows
        Of a study (``fixtures/validation/*.json``), each with a ``coverage``.
    by, across
        Which entries name the method, and where it stands from left to right.
    level
        That intervals claim: the dotted line.

    Raises
    ------
    DesignError
        Rows without these entries, too many methods, or Matplotlib is not installed.
    """
    known = [row for row in rows if {by, across, "coverage"} <= row.keys()]
    if not known:
        msg = f"{len(rows)} rows found, none with {by!r}, {across!r} and 'coverage'"
        raise DesignError(msg)
    methods = list(dict.fromkeys(str(row[by]) for row in known))
    if len(methods) > MOST_METHODS:
        msg = f"{len(methods)} methods found, expected at most {MOST_METHODS}: choose rows"
        raise DesignError(msg)
    places = sorted({row[across] for row in known}, key=lambda x: (isinstance(x, str), x))
    names = [canvas.shown(name, 40) for name in methods]
    size = (max(4.4, 0.13 * len(methods) * len(places) + 1.4), max(3.4, 0.19 * len(names) + 0.8))
    axes: Any = canvas.axes_or_new(ax, size[0] + canvas.width_of(names) + 0.4, size[1])
    for k, (method, name) in enumerate(zip(methods, names, strict=True)):
        own = [row for row in known if str(row[by]) == method]
        shift = 0.7 * ((k + 0.5) / len(methods) - 0.5)
        _draw(axes, own, [row[across] for row in own], places, (k, name, shift))
    axes.axhline(level, color=INK, linewidth=0.9, linestyle=(0, (2, 2)), zorder=2)
    for border in np.arange(0.5, len(places) - 1):
        axes.axvline(border, color=canvas.GRID, linewidth=0.6, alpha=0.5, zorder=1)
    axes.set_xticks(range(len(places)), [f"{place}" for place in places])
    axes.set_xlim(-0.5, len(places) - 0.5)
    axes.tick_params(axis="x", length=0)
    canvas.percent_axis(axes.yaxis)
    axes.set_xlabel(across, parse_math=False)
    axes.set_ylabel("intervals that held the truth")
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), title=by, alignment="left")
    return axes


def _draw(
    axes: Any,
    rows: Sequence[Mapping[str, Any]],
    at: Sequence[Any],
    places: Sequence[Any],
    drawn: tuple[int, str, float],
) -> None:
    k, name, shift = drawn
    color, marker, _ = SERIES[k % len(SERIES)]
    # The second time around the same marks are open.
    filling = color if k < len(SERIES) else canvas.PAPER
    means: list[tuple[float, float]] = []
    for i, place in enumerate(places):
        own = [row for row, where in zip(rows, at, strict=True) if where == place]
        covered = [row["coverage"] for row in own if row["coverage"] is not None]
        if not covered:
            continue
        least = [row["least"] for row in own if row.get("least") is not None]
        means.append((i + shift, float(np.mean(covered))))
        axes.vlines(i + shift, min(covered + least), max(covered), color=color, linewidth=1.0)
    axes.plot(*zip(*means, strict=True), linestyle="", marker=marker, markersize=5, color=color,
              markerfacecolor=filling, label=name, zorder=3)  # fmt: skip
