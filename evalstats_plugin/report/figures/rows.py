"""Figures with a row for everything: names on the left, under headings where there are several."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from evalstats_plugin.errors import DesignError
from evalstats_plugin.report.figures import canvas
from evalstats_plugin.report.figures.canvas import LINE
from evalstats_plugin.stats.interval import FloatArray

MOST_ROWS = 400
"""A figure more than two metres high is no figure any more."""

_CLOSER = 0.82
"""Lines of one name stand closer together than names do."""


class Rows(NamedTuple):
    """Where rows stand and what they are called."""

    labels: Sequence[str]
    """Of rows and headings, from the top."""
    at: FloatArray
    """Downwards, in lines."""
    places: FloatArray
    """Of the rows alone."""
    is_heading: Sequence[bool]
    room: float
    """Of all together, in lines."""
    title: str

    @classmethod
    def of(cls, named: Sequence[tuple[str, str]], *, width: int = canvas.WIDEST) -> Rows:
        """Lay out rows, each a group and a name: one group, or one name in all, is the title.

        Raises
        ------
        DesignError
            There are none, or too many for one figure.
        """
        if not 0 < len(named) <= MOST_ROWS:
            msg = f"{len(named):,} rows found, expected at most {MOST_ROWS} in a figure: choose "
            raise DesignError(f"{msg}tasks or models" if named else "nothing to draw: no rows")
        groups = [key for key, _ in groupby(group for group, _ in named)]
        names = {name for _, name in named}
        title, labels, is_heading = "", list[str](), list[bool]()
        if len(groups) == 1:
            title, labels = groups[0], [name for _, name in named]
        elif len(names) == 1:
            title, labels = named[0][1], [group for group, _ in named]
        else:
            for group, own in groupby(named, key=lambda row: row[0]):
                under = [name for _, name in own]
                labels += [group, *under]
                is_heading += [True, *(False for _ in under)]
        is_heading = is_heading or [False] * len(labels)
        labels = [canvas.shown(label, width) for label in labels]
        heights = np.array([1 + _CLOSER * label.count("\n") for label in labels])
        above = np.array([0.4 * (head and i > 0) for i, head in enumerate(is_heading)])
        ends = np.cumsum(heights + above)
        at = ends - heights / 2
        title = canvas.shown(title, 2 * canvas.WIDEST) if title else ""
        return cls(labels, at, at[~np.array(is_heading)], is_heading, float(ends[-1]), title)

    @property
    def height(self) -> float:
        """Inches of the rows with an axis under them and the title above."""
        return self.room * LINE + 0.7 + self.title_height

    @property
    def title_height(self) -> float:
        """Inches."""
        return 0.17 * (self.title.count("\n") + 1) if self.title else 0.0

    @property
    def width(self) -> float:
        """Inches of the names."""
        return canvas.width_of(self.labels)

    def write(self, axes: Any) -> None:
        """Write names and title, and draw no more of a frame than the axis below."""
        axes.set_yticks(
            self.at, self.labels, fontsize=canvas.SMALL, parse_math=False, linespacing=1.0
        )
        for label, heading in zip(axes.get_yticklabels(), self.is_heading, strict=True):
            label.set_fontweight("bold" if heading else "normal")
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(self.room + 0.25, -0.25)
        axes.spines["left"].set_visible(False)
        axes.grid(axis="x")
        canvas.title(axes, self.title)

    def beside(self, axes: Any, texts: Sequence[str]) -> None:
        """Write a text to the right of each row."""
        place = axes.get_yaxis_transform()
        for y, text in zip(self.places, texts, strict=True):
            axes.text(1.02, y, text, transform=place, va="center_baseline", ha="left",
                      fontsize=canvas.SMALL, color=canvas.INK, parse_math=False)  # fmt: skip

    def legend(self, axes: Any, handles: Sequence[Any], columns: int = 3) -> None:
        """Say above the rows what marks mean; below the title where there is one."""
        canvas.title(axes, "")
        said = axes.legend(
            handles=handles, loc="lower left", ncols=columns, borderaxespad=0.2,
            handletextpad=0.5, columnspacing=1.4, bbox_to_anchor=(0, 1), title=self.title or None,
            alignment="left", title_fontproperties={"weight": "bold", "size": canvas.NORMAL},
        )  # fmt: skip
        said.get_title().set_parse_math(False)


def frame(axes: Any, values: Sequence[float], *, share: bool = False) -> None:
    """Give the axis below the range of some values; of shares of 1 no more than there can be."""
    if not values:
        axes.set_xticks([])
        return
    low, high = min(values), max(values)
    room = 0.04 * (high - low) or 0.05 * (abs(high) or 1.0)
    low, high = low - room, high + room
    if share:
        # A mark at an end is drawn whole.
        low, high = max(low, -0.015), min(high, 1.015)
    axes.set_xlim(low, high)
    axes.locator_params(axis="x", nbins=6)
