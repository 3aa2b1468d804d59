"""Ranks that comparisons leave open, and groups of models that cannot be told apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from evalstats_plugin.errors import DesignError
from evalstats_plugin.report.figures import canvas
from evalstats_plugin.report.figures.canvas import BLUE, INK, PAPER
from evalstats_plugin.report.figures.pairs import apart_letters, one_task
from evalstats_plugin.report.figures.rows import Rows
from evalstats_plugin.report.notes import short_metric
from evalstats_plugin.report.text import percent
from evalstats_plugin.stats.interval import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from evalstats_plugin.analyses.ranking_rows import Ranking
    from evalstats_plugin.results import Comparisons, RankSets

MOST_MODELS = 120
_RANK, _LETTER = 0.2, 0.17
"""Inches that a rank and a letter take."""


class _Order(NamedTuple):
    """Models, the best first."""

    title: str
    names: Sequence[str]
    best: Sequence[int]
    worst: Sequence[int]
    letters: Sequence[str]
    expected: Sequence[float | None]
    level: float
    distribution: FloatArray | None = None
    """Probability of each rank, shape (N, N)."""


@canvas.styled
def plot_ranks(results: Ranking | RankSets | Comparisons, *, ax: Axes | None = None) -> Axes:
    """Draw the ranks that each model may have, and who cannot be told apart.

    A bar goes from the best to the worst rank that is open; all bars hold together. Of a ranking
    by comparisons the shade of a cell is how probable the rank is, and a diamond the rank
    expected. Models with a dot on the same line at the right cannot be told apart.

    Parameters
    ----------
    results
        Of one task and metric: a ranking by comparisons, sets of ranks, or comparisons of every
        two models.

    Raises
    ------
    DesignError
        Several tasks, pairs that are not there, too many models, or Matplotlib is not installed.
    """
    order = _order(results)
    n = len(order.names)
    if n > MOST_MODELS:
        msg = f"{n} models found, expected at most {MOST_MODELS} in a figure of ranks: choose some"
        raise DesignError(msg)
    rows = Rows.of([(order.title, name) for name in order.names])
    groups = _groups(order.letters)
    # Letters stand beside the ranks, on the same scale.
    unit = max(_RANK, 2.6 / n)
    size = (rows.width + n * unit + (len(groups) + 1) * _LETTER + 0.3, rows.height + 0.55)
    axes: Any = canvas.axes_or_new(ax, max(size[0], 4.6), size[1])
    rows.write(axes)
    axes.grid(visible=False)
    if order.distribution is not None:
        _draw_distribution(axes, rows, order.distribution)
    _draw_ranges(axes, rows, order)
    _draw_groups(axes, rows, groups, n, _LETTER / unit)
    _add_axis(axes, order, bool(groups))
    return axes


def _edges(rows: Rows) -> FloatArray:
    inner = (rows.places[1:] + rows.places[:-1]) / 2
    return np.concatenate([[0.0], inner, [rows.room]])


def _draw_distribution(axes: Any, rows: Rows, found: FloatArray) -> None:
    across = np.arange(len(found) + 1, dtype=np.float64) + 0.5
    # Shades of the ink, so that a page can put its own colour in place.
    shades = canvas.matplotlib().colors.LinearSegmentedColormap.from_list(
        "ink", [(*canvas.matplotlib().colors.to_rgb(INK), alpha) for alpha in (0.0, 0.65)]
    )
    shown = np.ma.masked_less(found, 0.002)
    axes.pcolormesh(across, _edges(rows), shown, cmap=shades, vmin=0, vmax=max(found.max(), 0.5),
                    zorder=1)  # fmt: skip


def _draw_ranges(axes: Any, rows: Rows, order: _Order) -> None:
    best, worst = np.array(order.best) - 0.4, np.array(order.worst) + 0.4
    thick = 1.6 if order.distribution is not None else 5.0
    axes.hlines(rows.places, best, worst, color=BLUE, linewidth=thick, zorder=3)
    for ends in (best, worst):
        axes.plot(ends, rows.places, linestyle="", marker="|", markersize=7, markeredgewidth=1.6,
                  color=BLUE, zorder=4)  # fmt: skip
    known = [(x, y) for x, y in zip(order.expected, rows.places, strict=True) if x is not None]
    if known:
        axes.plot(
            *zip(*known, strict=True), linestyle="", marker="D", markersize=4.5,
            markerfacecolor=PAPER, markeredgecolor=INK, markeredgewidth=0.9, zorder=5,
        )  # fmt: skip


def _draw_groups(axes: Any, rows: Rows, groups: dict[str, list[int]], n: int, step: float) -> None:
    """Draw a line for each letter, with a dot at each model that has it."""
    for k, (letter, places) in enumerate(groups.items()):
        x = n + 0.5 + (k + 1) * step
        at = rows.places[places]
        axes.plot([x] * len(at), at, color=INK, linewidth=0.9, marker="o", markersize=3.4, zorder=3)
        axes.text(x, -0.2, letter, ha="center", va="bottom", fontsize=canvas.SMALL)
    axes.set_xlim(0.4, n + 0.6 + (len(groups) + 1) * step * bool(groups))


def _add_axis(axes: Any, order: _Order, grouped: bool) -> None:  # noqa: FBT001
    n = len(order.names)
    step = next(step for step in (1, 2, 5, 10, 20, 50) if n / step <= 25)
    axes.set_xticks([1, *range(step, n + 1, step)] if step > 1 else range(1, n + 1))
    axes.spines["bottom"].set_bounds(0.5, n + 0.5)
    lines = [f"rank; bars: all ranks that are open, {percent(order.level)} together"]
    if order.distribution is not None:
        lines[0] += "; diamonds: expected"
        lines.append("the stronger a shade, the more probable the rank")
    if grouped:
        lines.append("models with a dot on the same line cannot be told apart")
    axes.set_xlabel("\n".join(lines), loc="right", fontsize=canvas.SMALL)
    # The letters stand where the title would.
    axes.set_title(axes.get_title(loc="left"), parse_math=False, pad=14 if grouped else 6)


def _groups(letters: Sequence[str]) -> dict[str, list[int]]:
    """Return the places of the models that have each letter, in the order of the letters."""
    found: dict[str, list[int]] = {}
    for place, own in enumerate(apart_letters(letters)):
        for letter in own:
            found.setdefault(letter, []).append(place)
    return found


def _order(results: Any) -> _Order:
    if hasattr(results, "draws"):
        return _of_ranking(results)
    from evalstats_plugin.analyses.rank import ranks_of

    rows: Sequence[Any] = one_task(results)
    sets = rows if hasattr(rows[0], "best_rank") else ranks_of(rows)
    if not sets:
        msg = (
            f"{len(rows)} pairs found, expected every two of some models: compare without a "
            "baseline"
        )
        raise DesignError(msg)
    return _Order(
        title=f"{rows[0].task} {short_metric(rows[0].metric)}",
        names=[one.model for one in sets],
        best=[one.best_rank for one in sets],
        worst=[one.worst_rank for one in sets],
        letters=[one.letters for one in sets],
        expected=[None] * len(sets),
        level=sets[0].confidence_level,
    )


def _of_ranking(results: Ranking) -> _Order:
    rows = results.rows
    return _Order(
        title=rows[0].method,
        names=[row.player for row in rows],
        best=[row.rank_low for row in rows],
        worst=[row.rank_high for row in rows],
        letters=[row.letters for row in rows],
        expected=[row.expected_rank for row in rows],
        level=rows[0].confidence_level,
        distribution=results.rank_distribution().to_numpy(dtype=np.float64),
    )
