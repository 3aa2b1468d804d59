"""What tests of figures share: results with names that hurt, and a look at what was drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
from scipy.special import ndtr

from evalstats_plugin.comparisons.rows import Comparison, Comparisons
from evalstats_plugin.data.results import Results
from evalstats_plugin.report.figures import canvas
from evalstats_plugin.scores.rows import Intervals, ScoreInterval

HOSTILE = (
    r"organisation/$\alpha_{7}$-7b_instruct",
    "тест-модель/größe-ñ",
    "org/a_very_long_model_name-with-many-parts-and-no-end-in-sight-70b-instruct-v0.3-2024-12-24",
    "<b>bold</b> & 'quoted' \"x\"",
    "thisisanamewithoutanybreakswhatsoeverthatgoesonandonandonandonandonand",
    "x",
    r"%d {braces} ~ ^ \frac{1}{2} $5 or $6",
    "model\nwith newline\x07",
)


def names(n: int) -> list[str]:
    """Names that hurt, and as many plain ones as it takes."""
    return [*HOSTILE, *(f"organisation-{i}/a-rather-long-name-{i}b-chat" for i in range(n))][:n]


def intervals(n: int, *, tasks: Sequence[str] = ("maths $x_1$", "reading")) -> Intervals:
    """Scores of n models; the second has none on the first task."""
    rng = np.random.default_rng(0)
    scores = rng.uniform(0.05, 0.9, (len(tasks), n))
    rows: list[ScoreInterval] = []
    for task, row in zip(tasks, scores, strict=True):
        for i, (model, score) in enumerate(zip(names(n), row.tolist(), strict=True)):
            known = i != 1 or task != tasks[0]
            rows.append(
                ScoreInterval(
                    model=model, task=task, metric="acc,none", n_items=100, std_error=None,
                    estimate=score if known else None, low=score - 0.05 if known else None,
                    high=score + 0.06 if known else None, method="wilson", confidence_level=0.95,
                )
            )  # fmt: skip
    return Results(tuple(rows))


def comparisons(n: int, *, baseline: bool = False, missing: bool = False) -> Comparisons:
    """Every two of n models, from the best down; or the others with the first."""
    level = np.linspace(0.8, 0.3, n)
    rows: list[Comparison] = []
    for a in range(1 if baseline else n):
        for b in range(a + 1, n):
            known = not (missing and (a, b) == (0, 1))
            by = float(level[b] - level[a])
            p = min(1.0, 4 * float(ndtr(-abs(by) / 0.05)))
            rows.append(
                Comparison(
                    model_a=names(n)[a], model_b=names(n)[b], task="maths $x_1$", metric="acc,none",
                    n_items=100, difference=by if known else None,
                    low=by - 0.1 if known else None, high=by + 0.1 if known else None,
                    p_value=p if known else None, p_adjusted=p if known else None,
                    prob_better=float(ndtr(by / 0.05)) if known else None, method="dirichlet",
                    confidence_level=0.95, higher_is_better=True,
                )
            )  # fmt: skip
    return Results(tuple(rows))


class Drawn:
    """Texts that a figure really draws, with their places in dots."""

    def __init__(self, axes: Any) -> None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.text import Text

        figure = axes.figure
        drawn: list[Any] = []

        def draw(self: Any, _renderer: Any) -> None:
            # To write them out as well would take most of the time.
            if self.get_visible() and self.get_text().strip():
                drawn.append(self)

        canvas_of = FigureCanvasAgg(figure)
        with patch.object(Text, "draw", draw):
            canvas_of.draw()
        self.artists = list(dict.fromkeys(drawn))
        renderer = canvas_of.get_renderer()
        # An annotation's own extent would hold its arrow as well.
        boxes = [Text.get_window_extent(text, renderer).extents for text in self.artists]
        self.boxes = np.array(boxes)
        self.whole = figure.bbox.extents

    @property
    def texts(self) -> list[str]:
        """As they were given, before lines were broken."""
        return [_joined(text.get_text()) for text in self.artists]

    def overlapping(self) -> list[tuple[str, str]]:
        """Every two texts that cover a dot in common."""
        low, high = self.boxes[:, :2] + 0.5, self.boxes[:, 2:] - 0.5
        covers = (low[:, None] < high[None]) & (low[None] < high[:, None])
        pairs = np.argwhere(np.triu(covers.all(axis=2), 1))
        return [(self.texts[i], self.texts[j]) for i, j in pairs.tolist()]

    def cut(self) -> list[str]:
        """Texts that are not whole within the figure."""
        inside = (self.boxes[:, :2] >= self.whole[:2] - 1) & (
            self.boxes[:, 2:] <= self.whole[2:] + 1
        )
        return [text for text, good in zip(self.texts, inside.all(axis=1), strict=True) if not good]

    def has(self, name: str) -> bool:
        """Whether a name is there from its first letter to its last."""
        wanted = _joined(canvas.shown(name))
        return any(wanted in text for text in self.texts)


def _joined(text: str) -> str:
    return "".join(text.split())
