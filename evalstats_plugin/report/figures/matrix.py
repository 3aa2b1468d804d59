"""The comparison matrix: of every two models, how probable it is that one is better."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.errors import DesignError
from evalstats_plugin.report.figures import canvas
from evalstats_plugin.report.figures.canvas import FAINT, INK
from evalstats_plugin.report.figures.pairs import apart_letters, one_task
from evalstats_plugin.report.figures.rows import Rows
from evalstats_plugin.report.notes import short_metric
from evalstats_plugin.stats.interval import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from evalstats_plugin.analyses.ranking_rows import Ranking
    from evalstats_plugin.results import Comparisons

MOST_MODELS = 60
_CELL = 0.29
"""Inches."""
_DARK = 0.62
"""Probability from which on a cell is so dark that it is written on in white."""


class Square(NamedTuple):
    """Of N models, the best first."""

    title: str
    names: list[str]
    better: FloatArray
    """Probability that the model of the row is better than that of the column, (N, N); NaN where
    not known."""
    told_apart: NDArray[np.bool_]
    """Beyond chance, all pairs considered; (N, N)."""
    how: str


@canvas.styled
def plot_comparison_matrix(results: Comparisons | Ranking, *, ax: Axes | None = None) -> Axes:
    """Draw how probable it is that the model of the row is better than that of the column.

    The darker the more probable; a triangle marks pairs that differ beyond chance, all pairs of
    the task considered.

    Parameters
    ----------
    results
        Of every two models on one task under one metric; or a ranking by comparisons.

    Raises
    ------
    DesignError
        Several tasks, pairs that are not there, too many models, or Matplotlib is not installed.
    """
    ranking = hasattr(results, "draws")
    square = _of_ranking(results) if ranking else _of_comparisons(results)
    n = len(square.names)
    if n > MOST_MODELS:
        msg = f"{n} models found, expected at most {MOST_MODELS} in a matrix: choose some"
        raise DesignError(msg)
    rows = Rows.of([(square.title, name) for name in square.names])
    edges = _edges(rows)
    size = (n * _CELL + rows.width + 0.6, edges[-1] * _CELL + 1.05 + rows.title_height)
    axes = canvas.axes_or_new(ax, max(size[0], 5.6), size[1])
    _draw_cells(axes, square, edges)
    _write_names(axes, rows, edges)
    return axes


def _edges(rows: Rows) -> FloatArray:
    """Return where rows begin and end: a cell each, more where a name has several lines."""
    lines = np.array([label.count("\n") + 1 for label in rows.labels])
    return np.concatenate([[0.0], np.cumsum(np.maximum(1.0, lines * canvas.LINE / _CELL))])


def _draw_cells(axes: Any, square: Square, edges: FloatArray) -> None:
    n = len(square.names)
    shown = np.ma.masked_invalid(square.better)
    axes.pcolormesh(
        np.arange(n + 1), edges, shown, cmap="cividis_r", vmin=0, vmax=1, edgecolors=canvas.PAPER,
        linewidth=0.6,
    )  # fmt: skip
    middles = ((edges[1:] + edges[:-1]) / 2).tolist()
    for i, j in np.argwhere(~np.eye(n, dtype=np.bool_)).tolist():
        value, apart = float(square.better[i, j]), bool(square.told_apart[i, j])
        text = "–" if np.isnan(value) else _percent(value)
        color = FAINT if np.isnan(value) else canvas.LIGHT if value > _DARK else canvas.DARK
        said = axes.text(j + 0.5, middles[i] + 0.1 * apart, text, ha="center", va="center",
                         fontsize=7, color=color)  # fmt: skip
        # What lies within the axes needs no room beside them.
        said.set_in_layout(False)
    _mark_apart(axes, square, middles)
    axes.set_xlabel(
        "Row against column: probability in % that the row's model is better.\n"
        f"▲ ▼ better, worse beyond chance{square.how}.",
        loc="right", fontsize=canvas.SMALL,
    )  # fmt: skip


def _mark_apart(axes: Any, square: Square, middles: list[float]) -> None:
    """Draw triangles above the numbers of pairs that differ beyond chance."""
    for better, marker, color in ((True, "^", canvas.LIGHT), (False, "v", canvas.DARK)):
        with np.errstate(invalid="ignore"):
            found = np.argwhere(square.told_apart & ((square.better > 0.5) == better))
        known = [(j + 0.5, middles[i] - 0.27) for i, j in found.tolist() if i != j]
        if known:
            axes.plot(*zip(*known, strict=True), linestyle="", marker=marker, markersize=3,
                      color=color)  # fmt: skip


def _percent(value: float) -> str:
    return ">99" if value >= 0.995 else "<1" if value < 0.005 else f"{100 * value:.0f}"


def _write_names(axes: Any, rows: Rows, edges: FloatArray) -> None:
    n = len(rows.labels)
    middles = (edges[1:] + edges[:-1]) / 2
    axes.set_yticks(middles, rows.labels, fontsize=canvas.SMALL, parse_math=False, linespacing=1.0)
    # Room for the number between a name and its row.
    axes.tick_params(axis="y", pad=20)
    for i, y in enumerate(middles, 1):
        axes.annotate(str(i), (0, y), (-5, 0), textcoords="offset points", ha="right",
                      va="center", fontsize=canvas.SMALL)  # fmt: skip
    axes.set_ylim(edges[-1], 0)
    axes.set_xlim(0, n)
    # Names would overlap here: their numbers say as much.
    axes.xaxis.tick_top()
    axes.set_xticks(np.arange(n) + 0.5, [str(i) for i in range(1, n + 1)], fontsize=canvas.SMALL)
    axes.tick_params(length=0, labelcolor=INK)
    axes.spines[["left", "bottom"]].set_visible(False)
    canvas.title(axes, rows.title)


def _of_comparisons(results: Any) -> Square:
    from evalstats_plugin.analyses.rank import ranks_of

    rows = one_task(results)
    order = [one.model for one in ranks_of(rows)]
    if not order:
        msg = (
            f"{len(rows)} pairs found, expected every two of some models: compare without a "
            "baseline"
        )
        raise DesignError(msg)
    place = {model: i for i, model in enumerate(order)}
    better = np.full((len(order), len(order)), np.nan)
    apart = np.zeros_like(better, dtype=np.bool_)
    a = np.array([place[row.model_a] for row in rows])
    b = np.array([place[row.model_b] for row in rows])
    known = [np.nan if row.prob_better is None else row.prob_better for row in rows]
    if np.isnan(known).all():
        msg = f"no probabilities found: method {rows[0].method} has none; draw the differences"
        raise DesignError(msg)
    better[b, a] = known
    better[a, b] = 1 - better[b, a]
    apart[b, a] = [row.verdict != "unclear" for row in rows]
    apart |= apart.T
    level = f" (adjusted for {len(rows)} pairs)" if len(rows) > 1 else ""
    title = f"{rows[0].task} {short_metric(rows[0].metric)}"
    return Square(title, order, better, apart, level)


def _of_ranking(results: Any) -> Square:
    frame = results.prob_better()
    better = frame.to_numpy(dtype=np.float64).copy()
    np.fill_diagonal(better, np.nan)
    letters = [set(own) for own in apart_letters([row.letters for row in results])]
    apart = np.array([[not (one & other) for other in letters] for one in letters])
    title = results.rows[0].method
    return Square(title, list(frame.index), better, apart, " (all pairs considered)")
