"""Figures of comparisons: differences, comparison matrices, ranks, and power.

* `plot_differences`: differences with intervals; `plot_power`: power or differences by items
* `plot_comparison_matrix`: probability that one model is better, for every two models
* `plot_ranks`: ranks that are open, and groups of models that cannot be told apart
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.data.results import Results, grouped
from evalstats_plugin.errors import DesignError, counted, few
from evalstats_plugin.report.comparisons import p_value
from evalstats_plugin.report.figures import canvas
from evalstats_plugin.report.figures.canvas import BLUE, FAINT, INK, PAPER, SERIES, VERMILION
from evalstats_plugin.report.text import percent, task_and_metric
from evalstats_plugin.stats.arrays import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from evalstats_plugin.comparisons.planning.power import PowerCurve
    from evalstats_plugin.comparisons.rows import Comparison, Comparisons, PowerRow, RankSets
    from evalstats_plugin.ranking.rows import Ranking


_PLOT, _NUMBERS = 4.0, 2.3
"""Inches for the intervals, and for the numbers beside them."""

_MARKS = {
    "better": ("^", BLUE, BLUE, "better beyond chance"),
    "worse": ("v", VERMILION, VERMILION, "worse beyond chance"),
    "unclear": ("o", FAINT, PAPER, "cannot be told apart"),
}
"""Marker, colour, filling and meaning of each verdict."""

MOST_IN_MATRIX = 60
_CELL = 0.29
"""Size of a cell in inches."""

_DARK = 0.62
"""Probability above which cells are dark and have white text."""

MOST_RANKED = 120
_RANK, _LETTER = 0.2, 0.17
"""Inches that a rank and a letter take."""

Curve = tuple[list[int], list[float]]
"""Numbers of items, and values."""


@canvas.styled
def plot_differences(results: Comparisons, *, ax: Axes | None = None) -> Axes:
    """Draw the difference of every pair with its interval, pairs under their tasks.

    With a baseline, differences are those of the other models from it. The mark shows the verdict,
    adjusted for all pairs of the task; the thin line is the simultaneous interval, if there is
    one. Ratios have a logarithmic axis with no difference at 1.

    Raises
    ------
    DesignError
        Nothing to draw, too many pairs for one figure, or Matplotlib is not installed.
    """
    from matplotlib.lines import Line2D

    def standing(row: Comparison) -> float:
        return float("inf") if row.difference is None else -row.difference

    by_task = grouped(results, task_and_metric).values()
    rows = [row for of_task in by_task for row in sorted(of_task, key=standing)]
    effects = {row.effect for row in rows}
    if len(effects) > 1:
        raise DesignError("differences and ratios do not fit one axis: choose a task or metric")
    first = {row.model_a for row in rows}
    against = next(iter(first)) if len(first) == 1 else None
    sign = "−" if "difference" in effects else ":"
    named = [
        (task_and_metric(row), row.model_b if against else f"{row.model_b} {sign} {row.model_a}")
        for row in rows
    ]
    if len(named) > canvas.MOST_ROWS and not against:
        msg = f"a figure has room for {canvas.MOST_ROWS} pairs, not {len(named):,}: choose a task"
        raise DesignError(f"{msg}, a baseline (--baseline; in Python: baseline=), or models")
    laid = canvas.Rows.of(named)
    width = _PLOT + _NUMBERS + laid.width
    axes: Any = canvas.axes_or_new(ax, width, laid.height + 0.3)
    laid.write(axes)
    laid.beside(axes, [_difference_text(row) for row in rows])
    for y, row in zip(laid.places, rows, strict=True):
        if row.difference is None:
            continue
        marker, color, filling, _ = _MARKS[row.verdict]
        if row.low is not None and row.high is not None:
            axes.hlines(y, row.low, row.high, color=color, linewidth=0.7, zorder=3)
        if row.low_single is not None and row.high_single is not None:
            axes.hlines(y, row.low_single, row.high_single, color=color, linewidth=1.8, zorder=4)
        axes.plot(row.difference, y, marker=marker, markersize=5, markerfacecolor=filling,
                  markeredgecolor=color, markeredgewidth=0.9, zorder=5)  # fmt: skip
    _add_difference_axis(axes, rows, against)
    verdicts = {row.verdict for row in rows}
    handles = [
        Line2D([], [], marker=marker, color=color, markersize=5, markerfacecolor=filling,
               linewidth=1.8, label=meaning)
        for name, (marker, color, filling, meaning) in _MARKS.items()
        if name in verdicts
    ]  # fmt: skip
    laid.legend(axes, handles)
    return axes


def _ends(row: Comparison) -> tuple[float | None, ...]:
    return (row.difference, row.low, row.high, row.low_single, row.high_single)


def _difference_text(row: Comparison) -> str:
    if row.difference is None:
        return "–"
    sign = "+" if row.effect == "difference" else ""
    value, *limits = (None if x is None else f"{x:{sign}.3f}" for x in _ends(row)[:3])
    interval = "" if None in limits else f" [{', '.join(map(str, limits))}]"
    return f"{value}{interval}  p {p_value(row.p_adjusted)}"


def _add_difference_axis(axes: Any, rows: Sequence[Comparison], against: str | None) -> None:
    ratio = rows[0].effect != "difference"
    values = [x for row in rows for x in _ends(row) if x is not None and (x > 0 or not ratio)]
    none = 1.0 if ratio else 0.0
    values.append(none)
    if ratio:
        axes.set_xscale("log")
        margin = (max(values) / min(values)) ** 0.05
        axes.set_xlim(min(values) / margin, max(values) * margin)
    else:
        canvas.frame(axes, values)
    axes.axvline(none, color=INK, linewidth=0.9, zorder=2)
    level = percent(rows[0].confidence_level)
    what = f"{rows[0].effect} to {canvas.shown(against, 70)}" if against else rows[0].effect
    worse = "; lower is better" if rows[0].higher_is_better is False else ""
    together = any((row.low, row.high) != (row.low_single, row.high_single) for row in rows)
    thin = ", thick for a pair alone" if together and rows[0].low_single is not None else ""
    axes.set_xlabel(f"{what}\n{level} intervals{thin}{worse}", parse_math=False)


@canvas.styled
def plot_comparison_matrix(results: Comparisons | Ranking, *, ax: Axes | None = None) -> Axes:
    """Draw the probability that the row's model is better than the column's.

    Darker is more probable; triangles mark pairs that differ significantly, adjusted for all pairs
    of the task.

    Parameters
    ----------
    results
        Comparisons of all pairs on one task and metric, or a ranking by pairwise comparisons.

    Raises
    ------
    DesignError
        Several tasks, missing pairs, too many models, or Matplotlib is not installed.
    """
    square = _square(results)
    n = len(square.names)
    if n > MOST_IN_MATRIX:
        raise DesignError(f"a matrix has room for {MOST_IN_MATRIX} models, not {n}: choose some")
    rows = canvas.Rows.of([(square.title, name) for name in square.names])
    # A row is higher than a cell where its name has several lines.
    lines = np.array([label.count("\n") + 1 for label in rows.labels])
    edges = np.concatenate([[0.0], np.cumsum(np.maximum(1.0, lines * canvas.LINE / _CELL))])
    middles = (edges[1:] + edges[:-1]) / 2
    size = (n * _CELL + rows.width + 0.6, edges[-1] * _CELL + 1.05 + rows.title_height)
    axes = canvas.axes_or_new(ax, max(size[0], 5.6), size[1])
    _draw_cells(axes, square, edges, middles.tolist())
    axes.set_yticks(middles, rows.labels, fontsize=canvas.SMALL, parse_math=False, linespacing=1.0)
    # Room for a number between a name and its row.
    axes.tick_params(axis="y", pad=20)
    for i, y in enumerate(middles, 1):
        axes.annotate(str(i), (0, y), (-5, 0), textcoords="offset points", ha="right",
                      va="center", fontsize=canvas.SMALL)  # fmt: skip
    axes.set_ylim(edges[-1], 0)
    axes.set_xlim(0, n)
    # Names would overlap above the columns: use their numbers.
    axes.xaxis.tick_top()
    axes.set_xticks(np.arange(n) + 0.5, [str(i) for i in range(1, n + 1)], fontsize=canvas.SMALL)
    axes.tick_params(length=0, labelcolor=INK)
    axes.spines[["left", "bottom"]].set_visible(False)
    canvas.title(axes, rows.title)
    return axes


class _Square(NamedTuple):
    """Comparisons of N models, the best first."""

    title: str
    names: list[str]
    better: FloatArray
    """Probability that the row's model is better than the column's, (N, N); NaN if unknown."""
    told_apart: NDArray[np.bool_]
    """Whether pairs differ significantly, adjusted for all pairs; (N, N)."""
    how: str
    """Adjustment, for the label."""


def _square(results: Any) -> _Square:
    if hasattr(results, "draws"):
        frame = results.prob_better()
        better = frame.to_numpy(dtype=np.float64).copy()
        np.fill_diagonal(better, np.nan)
        letters = [set(own) for own in _letters_of([row.letters for row in results])]
        told_apart = np.array([[not (mine & other) for other in letters] for mine in letters])
        title = results.rows[0].method
        return _Square(title, list(frame.index), better, told_apart, " (all pairs considered)")
    rows = _of_one_task(results)
    order = [rank_set.model for rank_set in _ranked(rows)]
    place = {model: i for i, model in enumerate(order)}
    better = np.full((len(order), len(order)), np.nan)
    told_apart = np.zeros_like(better, dtype=np.bool_)
    a = np.array([place[row.model_a] for row in rows])
    b = np.array([place[row.model_b] for row in rows])
    probabilities = [np.nan if row.prob_better is None else row.prob_better for row in rows]
    if np.isnan(probabilities).all():
        msg = f"no probabilities to draw: method {rows[0].method} has none; draw the differences"
        raise DesignError(msg)
    better[b, a] = probabilities
    better[a, b] = 1 - better[b, a]
    told_apart[b, a] = [row.verdict != "unclear" for row in rows]
    told_apart |= told_apart.T
    level = f" (adjusted for {counted(len(rows), 'pair')})" if len(rows) > 1 else ""
    return _Square(task_and_metric(rows[0]), order, better, told_apart, level)


def _draw_cells(axes: Any, square: _Square, edges: FloatArray, middles: list[float]) -> None:
    n = len(square.names)
    shown = np.ma.masked_invalid(square.better)
    axes.pcolormesh(
        np.arange(n + 1), edges, shown, cmap="cividis_r", vmin=0, vmax=1, edgecolors=PAPER,
        linewidth=0.6,
    )  # fmt: skip
    for i, j in np.argwhere(~np.eye(n, dtype=np.bool_)).tolist():
        value, told_apart = float(square.better[i, j]), bool(square.told_apart[i, j])
        text, color = "–", FAINT
        if not np.isnan(value):
            text = ">99" if value >= 0.995 else "<1" if value < 0.005 else f"{100 * value:.0f}"
            color = canvas.LIGHT if value > _DARK else canvas.DARK
        said = axes.text(j + 0.5, middles[i] + 0.1 * told_apart, text, ha="center", va="center",
                         fontsize=7, color=color)  # fmt: skip
        # Text inside the axes needs no room beside them.
        said.set_in_layout(False)
    # Triangles above the numbers of pairs that differ significantly.
    for better, marker, color in ((True, "^", canvas.LIGHT), (False, "v", canvas.DARK)):
        with np.errstate(invalid="ignore"):
            cells = np.argwhere(square.told_apart & ((square.better > 0.5) == better))
        places = [(j + 0.5, middles[i] - 0.27) for i, j in cells.tolist() if i != j]
        if places:
            axes.plot(*zip(*places, strict=True), linestyle="", marker=marker, markersize=3,
                      color=color)  # fmt: skip
    axes.set_xlabel(
        "Row against column: probability in % that the row's model is better.\n"
        f"▲ ▼ better, worse beyond chance{square.how}.",
        loc="right", fontsize=canvas.SMALL,
    )  # fmt: skip


@canvas.styled
def plot_ranks(results: Ranking | RankSets | Comparisons, *, ax: Axes | None = None) -> Axes:
    """Draw simultaneous intervals of ranks, and groups of models that cannot be told apart.

    A bar goes from the best to the worst rank that is possible, simultaneously for all models. For
    a ranking by pairwise comparisons the shade of a cell is the probability of the rank, and a
    diamond the expected rank. Models with a dot on the same line at the right cannot be told
    apart.

    Parameters
    ----------
    results
        Of one task and metric: a ranking by pairwise comparisons, sets of ranks, or comparisons of
        all pairs.

    Raises
    ------
    DesignError
        Several tasks, missing pairs, too many models, or Matplotlib is not installed.
    """
    order = _order(results)
    n = len(order.names)
    if n > MOST_RANKED:
        msg = f"a figure of ranks has room for {MOST_RANKED} models, not {n}: choose some"
        raise DesignError(msg)
    rows = canvas.Rows.of([(order.title, name) for name in order.names])
    groups: dict[str, list[int]] = {}
    for place, letters in enumerate(_letters_of(order.letters)):
        for letter in letters:
            groups.setdefault(letter, []).append(place)
    # Letters are beside the ranks, on the same scale.
    unit = max(_RANK, 2.6 / n)
    size = (rows.width + n * unit + (len(groups) + 1) * _LETTER + 0.3, rows.height + 0.55)
    axes: Any = canvas.axes_or_new(ax, max(size[0], 4.6), size[1])
    rows.write(axes)
    axes.grid(visible=False)
    _draw_ranks(axes, rows, order)
    # A line for each letter, with a dot at each model that has it.
    step = _LETTER / unit
    for k, (letter, places) in enumerate(groups.items(), 1):
        x, at = n + 0.5 + k * step, rows.places[places]
        axes.plot([x] * len(at), at, color=INK, linewidth=0.9, marker="o", markersize=3.4, zorder=3)
        axes.text(x, -0.2, letter, ha="center", va="bottom", fontsize=canvas.SMALL)
    axes.set_xlim(0.4, n + 0.6 + (len(groups) + 1) * step * bool(groups))
    _add_rank_axis(axes, order, grouped=bool(groups))
    return axes


class _Order(NamedTuple):
    """Ranks of N models, the best first."""

    title: str
    names: Sequence[str]
    best: Sequence[int]
    worst: Sequence[int]
    letters: Sequence[str]
    expected: Sequence[float | None]
    level: float
    distribution: FloatArray | None = None
    """Probability of each rank, shape (N, N)."""


def _order(results: Any) -> _Order:
    distribution = None
    if hasattr(results, "draws"):
        rows, title = results.rows, results.rows[0].method
        parts = ("player", "rank_low", "rank_high", "letters", "expected_rank")
        distribution = results.rank_distribution().to_numpy(dtype=np.float64)
    else:
        compared = _of_one_task(results)
        rows, title = _ranked(compared), task_and_metric(compared[0])
        parts = ("model", "best_rank", "worst_rank", "letters", "expected_rank")
    columns: list[list[Any]] = [[getattr(row, part, None) for row in rows] for part in parts]
    level = rows[0].confidence_level
    return _Order(title, *columns, level=level, distribution=distribution)


def _draw_ranks(axes: Any, rows: canvas.Rows, order: _Order) -> None:
    probability, thick = order.distribution, 5.0
    if probability is not None:
        thick = 1.6
        across = np.arange(len(probability) + 1, dtype=np.float64) + 0.5
        inner = (rows.places[1:] + rows.places[:-1]) / 2
        edges = np.concatenate([[0.0], inner, [rows.room]])
        # Shades of the text colour, so that a page can substitute its own.
        colors = canvas.matplotlib().colors
        shades = colors.LinearSegmentedColormap.from_list(
            "ink", [(*colors.to_rgb(INK), alpha) for alpha in (0.0, 0.65)]
        )
        shown, most = np.ma.masked_less(probability, 0.002), max(probability.max(), 0.5)
        axes.pcolormesh(across, edges, shown, cmap=shades, vmin=0, vmax=most, zorder=1)
    best, worst = np.array(order.best) - 0.4, np.array(order.worst) + 0.4
    axes.hlines(rows.places, best, worst, color=BLUE, linewidth=thick, zorder=3)
    for ends in (best, worst):
        axes.plot(ends, rows.places, linestyle="", marker="|", markersize=7, markeredgewidth=1.6,
                  color=BLUE, zorder=4)  # fmt: skip
    expected = [(x, y) for x, y in zip(order.expected, rows.places, strict=True) if x is not None]
    if expected:
        axes.plot(
            *zip(*expected, strict=True), linestyle="", marker="D", markersize=4.5,
            markerfacecolor=PAPER, markeredgecolor=INK, markeredgewidth=0.9, zorder=5,
        )  # fmt: skip


def _add_rank_axis(axes: Any, order: _Order, *, grouped: bool) -> None:
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
    # The letters take the place of the title.
    axes.set_title(axes.get_title(loc="left"), parse_math=False, pad=14 if grouped else 6)


@canvas.styled
def plot_power(curve: PowerCurve, *, ax: Axes | None = None) -> Axes:
    """Draw power, or detectable differences, by number of items.

    Draws results of `evalstats_plugin.comparisons.power_curve`. If there are many pairs of models,
    each has a thin line and the median over the pairs of each task a thick one. The dotted line is
    the desired power.

    Raises
    ------
    DesignError
        No curves, or Matplotlib is not installed.
    """
    rows = [row for row in curve if row.quantity in ("power", "difference")]
    by_pair = _curves(rows)
    if not any(len(numbers) > 1 for numbers, _ in by_pair.values()):
        raise DesignError("a curve needs power or differences for several numbers of items")
    quantity = rows[0].quantity
    pairs = list(by_pair)
    tasks = list(dict.fromkeys(task for task, _ in pairs))
    single = len(pairs) <= len(SERIES)
    drawn = by_pair if single else {(task, "median"): _median(by_pair, task) for task in tasks}
    names = [_curve_name(key, len(tasks), single=single) for key in drawn][: len(SERIES)]
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
    _add_power_axes(axes, rows[0], quantity, curve.power)
    if names != ["as assumed"]:
        title = "pairs of models" if single else f"{len(pairs):,} pairs of models (thin)"
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), title=title,
                    title_fontsize=canvas.SMALL, alignment="left")  # fmt: skip
    return axes


def _curves(rows: list[PowerRow]) -> dict[tuple[str, str], Curve]:
    """Curves by task and pair, numbers of items increasing."""
    points: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for row in rows:
        task = task_and_metric(row).strip()
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
    """Median over the pairs of a task that have values at all its numbers of items."""
    own = [curve for (of, _), curve in by_pair.items() if of == task and curve[0]]
    longest = max((curve[0] for curve in own), key=len) if own else list[int]()
    values = [curve[1] for curve in own if curve[0] == longest]
    return longest, np.median(values, axis=0).tolist() if values else []


def _curve_name(key: tuple[str, str], tasks: int, *, single: bool) -> str:
    task, pair = key
    if not single:
        return f"{task}, median of pairs" if tasks > 1 else "median of pairs"
    return f"{task}: {pair}" if tasks > 1 and pair else pair or task or "as assumed"


def _add_power_axes(axes: Any, row: PowerRow, quantity: str, power: float) -> None:
    axes.set_xscale("log")
    locator = canvas.matplotlib().ticker.LogLocator
    axes.xaxis.set_major_locator(locator(subs=(1, 2, 5)))
    axes.xaxis.set_minor_locator(locator(subs=(1,)))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.grid(visible=True)
    epochs = f" in {counted(row.n_epochs or 1, 'epoch')}" if (row.n_epochs or 1) > 1 else ""
    own = "" if row.design == "paired" else ", each model its own"
    axes.set_xlabel(f"items{own}{epochs} (confidence level {percent(row.confidence_level)})")
    if quantity == "power":
        axes.axhline(power, color=INK, linewidth=0.9, linestyle=(0, (2, 2)), zorder=2)
        axes.set_ylim(0, 1.02)
        canvas.percent_axis(axes.yaxis)
        goal = f"find a difference of {row.difference:g}"
        goal = goal if row.margin is None else f"show a loss below {row.margin:g}"
        axes.set_ylabel(f"probability to {goal}")
    else:
        axes.set_ylim(0, None)
        axes.set_ylabel(f"least difference found in {percent(row.power or 0)} of evals")


def _of_one_task(results: Results[Any]) -> Sequence[Any]:
    """Return the rows of results; raise unless they have one task and metric."""
    every: Sequence[Any] = results.rows
    rows = [row for row in every if getattr(row, "kind", "") != "overall"] or every
    several = list(dict.fromkeys(map(task_and_metric, rows)))
    if len(several) != 1:
        named = f" ({few(several)})" if several else ""
        msg = f"this figure shows one task and metric, not {len(several)}{named}: choose them "
        other = ", or draw 'differences'" * hasattr(every[0], "difference") if every else ""
        raise DesignError(f"{msg}(--task, --metric; in Python: of read){other}")
    return rows


def _ranked(rows: Sequence[Any]) -> Sequence[Any]:
    """Return ranks from rows of ranks or of comparisons; raise unless all pairs were compared."""
    from evalstats_plugin.comparisons.ranks import ranks_of

    sets = rows if hasattr(rows[0], "best_rank") else ranks_of(rows)
    if not sets:
        raise DesignError(
            f"ranks need every pair of some models, not {len(rows)} pairs: compare without a "
            "baseline"
        )
    return sets


def _letters_of(letters: Sequence[str]) -> list[list[str]]:
    """Split the letters of each model; with more than 26 groups commas separate them.

    >>> _letters_of(["a", "ab"]), _letters_of(["z", "z,aa"])
    ([['a'], ['a', 'b']], [['z'], ['z', 'aa']])
    """
    between = any("," in own for own in letters)
    return [own.split(",") if between else list(own) for own in letters]
