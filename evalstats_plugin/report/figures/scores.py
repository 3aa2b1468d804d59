"""Figures of scores: forest plots and variance parts.

* `plot_forest`: estimates with intervals; `marks_of` turns results of all kinds into rows
* `plot_variance_parts`: variance between items and within them
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from evalstats_plugin.data.results import Results, grouped
from evalstats_plugin.errors import DesignError, few
from evalstats_plugin.report.figures import canvas
from evalstats_plugin.report.figures.canvas import BLUE, FAINT, INK, ORANGE, PAPER, Rows, frame
from evalstats_plugin.report.text import number, percent, short_metric

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from evalstats_plugin.comparisons.rows import PowerRows
    from evalstats_plugin.scores.rows import VariancePart, VarianceParts


_FOREST_PLOT, _FOREST_NUMBERS = 4.0, 1.7
"""Inches for the intervals, and for the numbers beside them."""

_LIFT = 0.3
"""Height of observed scores above their estimates, in lines."""

_VARIANCE_PLOT, _VARIANCE_NUMBERS = 3.6, 2.9
"""Inches for the bars, and for the numbers beside them."""


@canvas.styled
def plot_forest(results: Results[Any], *, ax: Axes | None = None, numbers: bool = True) -> Axes:
    """Draw estimates with their intervals.

    Models are listed under their tasks, the best first; a single model has its tasks. For a
    hierarchical model an arrow leads from each observed score to its estimate; for adaptive tests
    a circle marks the score over all answers.

    Parameters
    ----------
    results
        Of `intervals`, `rank`, `pool`, abilities or adaptive tests.
    ax
        Axes to draw into; by default those of a new figure of fitting size. A new figure has axes
        for each scale, one below the other; the first is returned.
    numbers
        Whether each estimate and its limits are written beside the row.

    Raises
    ------
    DesignError
        Nothing to draw, too much for one figure, or Matplotlib is not installed.
    """
    scales = marks_of(results)
    if ax is not None and len(scales) > 1:
        named = few([marks.axis for marks in scales])
        msg = f"scores of {len(scales)} scales ({named}) do not fit one axis: choose a metric"
        raise DesignError(msg)
    laid = [Rows.of([(row.group, row.name) for row in marks.rows]) for marks in scales]
    if ax is not None:
        return _draw_forest(ax, scales[0], laid[0], numbers=numbers)
    heights = [rows.height + 0.25 * bool(m.other) for m, rows in zip(scales, laid, strict=True)]
    width = _FOREST_PLOT + _FOREST_NUMBERS + max(rows.width for rows in laid)
    figure = canvas.new_figure(width, sum(heights))
    parts = figure.subplots(len(laid), 1, height_ratios=heights, squeeze=False)[:, 0]
    drawn = [
        _draw_forest(canvas.dressed(part), marks, rows, numbers=numbers)
        for part, marks, rows in zip(parts, scales, laid, strict=True)
    ]
    return drawn[0]


def _draw_forest(axes: Any, marks: Marks, rows: Rows, *, numbers: bool) -> Any:
    from matplotlib.lines import Line2D

    rows.write(axes)
    if numbers:
        rows.beside(axes, [_forest_text(mark) for mark in marks.rows])
    for y, mark in zip(rows.places, marks.rows, strict=True):
        if mark.estimate is not None:
            low, high = (mark.estimate if x is None else x for x in (mark.low, mark.high))
            axes.hlines(y, low, high, color=BLUE, linewidth=1.6, zorder=3)
            # An arrow where there is no limit on that side.
            one_sided = (mark.low is None) != (mark.high is None)
            marker = (">" if mark.high is None else "<") if one_sided else "o"
            axes.plot(mark.estimate, y, marker=marker, markersize=4.6, color=BLUE,
                      markeredgecolor=PAPER, markeredgewidth=0.5, zorder=5)  # fmt: skip
        if mark.other is not None:
            above = y - _LIFT if marks.arrows else y
            if marks.arrows and mark.estimate is not None:
                style = {"arrowstyle": "-|>,head_width=0.15,head_length=0.25", "color": FAINT,
                         "linewidth": 0.8, "shrinkA": 2, "shrinkB": 2}  # fmt: skip
                axes.annotate("", (mark.estimate, y), (mark.other, above), arrowprops=style,
                              zorder=4)  # fmt: skip
            axes.plot(mark.other, above, marker="o", markersize=4, markerfacecolor=PAPER,
                      markeredgecolor=INK, markeredgewidth=0.8, linestyle="", zorder=6)  # fmt: skip
    values = [value for mark in marks.rows for value in mark[2:] if value is not None]
    share = marks.share and bool(values) and min(values) >= 0 and max(values) <= 1
    frame(axes, values, share=share)
    axes.set_xlabel(marks.axis, parse_math=False)
    if marks.other:
        handles = [
            Line2D([], [], color=BLUE, marker="o", markersize=4.6, linewidth=1.6,
                   label=marks.estimate),
            Line2D([], [], linestyle="", marker="o", markersize=4, markerfacecolor=PAPER,
                   markeredgecolor=INK, markeredgewidth=0.8, label=marks.other),
        ]  # fmt: skip
        rows.legend(axes, handles)
    return axes


def _forest_text(mark: Mark) -> str:
    if mark.estimate is None:
        return "–"
    if mark.low is None and mark.high is None:
        return f"{number(mark.estimate)} (no interval)"
    if mark.low is None or mark.high is None:
        return f"≤ {number(mark.high)}" if mark.low is None else f"≥ {number(mark.low)}"
    return f"{number(mark.estimate)} [{number(mark.low)}, {number(mark.high)}]"


class Mark(NamedTuple):
    """One row of a forest plot."""

    group: str
    name: str
    estimate: float | None
    low: float | None
    high: float | None
    other: float | None = None
    """A second number, drawn as an open circle."""


class Marks(NamedTuple):
    """All rows that share an axis, and its labels."""

    rows: Sequence[Mark]
    axis: str
    estimate: str = ""
    """Label of the filled marks, if there are open ones."""
    other: str = ""
    """Label of the open marks."""
    arrows: bool = False
    """Whether arrows lead from the other number to the estimate."""
    share: bool = True
    """Whether numbers within 0 and 1 are shares."""


def marks_of(results: Results[Any]) -> list[Marks]:
    """Return the rows of results by scale.

    Raises
    ------
    DesignError
        There are none, or they are not estimates.
    """
    rows = list(getattr(results, "rows", ()))
    if not rows:
        raise DesignError("nothing to draw: there are no rows")
    return list(_KINDS.get(type(rows[0]).__name__, _of_values)(rows))


def _of_intervals(rows: Sequence[Any]) -> Iterable[Marks]:
    """One axis for all shares of 1, one for each other metric."""
    by_metric = grouped(rows, lambda row: short_metric(row.metric))
    shares = [name for name, own in by_metric.items() if all(map(_is_share, own))]
    scales = [shares, *([name] for name in by_metric if name not in shares)]
    level = percent(rows[0].confidence_level)
    for names in filter(None, scales):
        own = [row for name in names for row in by_metric[name]]
        metrics = f"{few(names)}, " if len(names) <= 3 else ""
        yield Marks(_best_first(own, several=len(names) > 1), f"{metrics}{level} intervals")


def _is_share(row: Any) -> bool:
    numbers = (value for value in (row.estimate, row.low, row.high) if value is not None)
    return all(0 <= value <= 1 for value in numbers)


def _best_first(rows: Sequence[Any], *, several: bool) -> list[Mark]:
    def group_of(row: Any) -> str:
        metric = f" {short_metric(row.metric)}" if several else ""
        return f"{row.task}{' (group)' if row.kind == 'group' else ''}{metric}"

    def standing(row: Any) -> float:
        if row.estimate is None:
            return float("inf")
        return row.estimate if row.higher_is_better is False else -row.estimate

    # A task of several groups occurs once for each of them.
    return list(
        dict.fromkeys(
            Mark(group, row.model, row.estimate, row.low, row.high)
            for group, own in grouped(rows, group_of).items()
            for row in sorted(own, key=standing)
        )
    )


def _marks(
    rows: Sequence[Any], group: Callable[[Any], str], name: str, *numbers: str
) -> list[Mark]:
    """Return rows by their groups: name, value, limits and other number are these attributes."""
    marks = [
        Mark(group(row), str(getattr(row, name)), *(getattr(row, x, None) for x in numbers))
        for row in rows
    ]
    return [mark for own in grouped(marks, lambda mark: mark.group).values() for mark in own]


def _of_abilities(rows: Sequence[Any]) -> Iterable[Marks]:
    task = few(rows[0].task.split(", "), 3)
    marks = _marks(rows, lambda _: task, "model", "estimate", "low", "high")
    level = percent(rows[0].confidence_level)
    yield Marks(marks, f"ability (logits), {level} intervals", share=False)


def _of_ranking(rows: Sequence[Any]) -> Iterable[Marks]:
    marks = _marks(rows, lambda row: row.method, "player", "mean", "low", "high")
    level = percent(rows[0].confidence_level)
    yield Marks(marks, f"rating ({rows[0].scale}), {level} intervals", share=False)


def _of_hierarchical(rows: Sequence[Any]) -> Iterable[Marks]:
    # The mean over a single task repeats that task.
    several = len({row.task for row in rows if row.task is not None}) > 1
    rows = [row for row in rows if several or row.task is not None] or rows
    names = ("model", "estimate", "low", "high", "score")
    every = _marks(rows, lambda row: "all tasks" if row.task is None else row.task, *names)
    by_task = grouped(every, lambda mark: mark.group).values()
    marks = [mark for own in by_task for mark in sorted(own, key=lambda x: -(x.estimate or 0.0))]
    level = percent(rows[0].confidence_level)
    axis = f"share of right answers ({short_metric(rows[0].metric)})"
    yield Marks(marks, axis, f"estimate, {level} interval", "observed score", arrows=True)


def _of_tests(rows: Sequence[Any]) -> Iterable[Marks]:
    several = len({row.rule for row in rows}) > 1
    names = ("model", "full_score", "full_score_low", "full_score_high", "observed")
    marks = _marks(rows, lambda row: f"{row.task}, {row.rule}" if several else row.task, *names)
    level = percent(rows[0].confidence_level)
    axis = f"score on all items ({short_metric(rows[0].metric)})"
    yield Marks(marks, axis, f"predicted, {level} interval", "all answers of the log")


_VALUES = {
    "estimate": "estimate", "difference": "difference", "log_odds": "log odds",
    "difficulty": "difficulty", "size": "points", "auc": "AUC", "log_loss": "log loss",
    "loading": "loading", "mean": "mean score",
}  # fmt: skip
"""Values of rows that have a forest plot, and the labels of their axes."""

_NAMES = ("model", "item", "feature", "covariate", "item_model", "mask")
_GROUPS = ("task", "recipe")


def _of_values(rows: Sequence[Any]) -> Iterable[Marks]:
    """Return the values of any rows, with their limits where they have them, in their order."""
    first = rows[0]
    value = next((name for name in _VALUES if hasattr(first, name)), None)
    name = next((name for name in _NAMES if hasattr(first, name)), None)
    if value is None or name is None:
        raise DesignError(f"{type(first).__name__} rows have no values that a forest plot shows")
    group = next((name for name in _GROUPS if hasattr(first, name)), None)

    def group_of(row: Any) -> str:
        return str(getattr(row, group) or "all tasks") if group else ""

    marks = _marks(rows, group_of, name, value, "low", "high")
    level = f", {percent(first.confidence_level)} limits" if hasattr(first, "low") else ""
    yield Marks(marks, f"{_VALUES[value]}{level}", share=False)


_KINDS: Mapping[str, Callable[[Sequence[Any]], Iterable[Marks]]] = {
    "ScoreInterval": _of_intervals,
    "TableCell": _of_intervals,
    "Ability": _of_abilities,
    "RankedPlayer": _of_ranking,
    "Performance": _of_hierarchical,
    "AdaptiveTest": _of_tests,
}
"""By the name of the record's class, so that no other package is loaded."""


@canvas.styled
def plot_variance_parts(results: VarianceParts | PowerRows, *, ax: Axes | None = None) -> Axes:
    """Draw the variance of single responses between items and within them.

    Only more items reduce the part between items; epochs reduce the part within. The numbers
    beside each bar are the standard error now, with twice the epochs, and with twice the items. A
    bar is empty if each item has one epoch, which does not identify the parts.

    Raises
    ------
    DesignError
        Nothing to draw, too much for one figure, or Matplotlib is not installed.
    """
    from matplotlib.patches import Patch

    # A task of several groups occurs once for each of them.
    listed: Sequence[Any] = getattr(results, "parts", results.rows)
    parts: Sequence[VariancePart] = list(dict.fromkeys(listed))
    if not parts or not hasattr(parts[0], "share_within"):
        msg = "no variance components: they are estimated from logs, not from assumptions"
        raise DesignError(msg)
    metrics = {part.metric for part in parts}

    def task(part: VariancePart) -> str:
        return f"{part.task} {short_metric(part.metric)}" if len(metrics) > 1 else part.task

    shown = [part for own in grouped(parts, task).values() for part in own]
    rows = Rows.of([(task(part), part.model) for part in shown])
    axes: Any = canvas.axes_or_new(
        ax, _VARIANCE_PLOT + _VARIANCE_NUMBERS + rows.width, rows.height + 0.55
    )
    rows.write(axes)
    rows.beside(axes, [_variance_text(part) for part in shown])
    for y, part in zip(rows.places, shown, strict=True):
        share = part.share_within
        if share is None:
            axes.barh(y, 1, height=0.62, facecolor="none", edgecolor=FAINT, linestyle="--",
                      linewidth=0.8)  # fmt: skip
            why = "not known" if part.n_epochs == 1 else "no variance"
            axes.text(0.5, y, why, ha="center", va="center", fontsize=7.5, color=INK)
            continue
        # The estimated variance between items may be negative.
        within = min(max(share, 0.0), 1.0)
        axes.barh(y, 1 - within, height=0.62, color=BLUE)
        axes.barh(y, within, left=1 - within, height=0.62, facecolor=ORANGE, edgecolor=INK,
                  hatch="////", linewidth=0)  # fmt: skip
    axes.set_xlim(0, 1)
    canvas.percent_axis(axes.xaxis)
    axes.set_xlabel(
        "share of the variance of a single epoch\n"
        "beside: std. error now → with twice the epochs | twice the items",
        fontsize=canvas.SMALL,
    )
    between = Patch(facecolor=BLUE, label="between items")
    within_items = Patch(
        facecolor=ORANGE, edgecolor=INK, hatch="////", linewidth=0, label="within items"
    )
    rows.legend(axes, [between, within_items])
    return axes


def _variance_text(part: VariancePart) -> str:
    now, epochs, items = (
        "–" if error is None else f"{error:.4f}"
        for error in (part.std_error, part.std_error_more_epochs, part.std_error_more_items)
    )
    return f"{now} → {epochs} | {items}   {part.n_items:,}×{part.n_epochs}"
