"""Figures of adaptive tests: one test item by item, and the accuracy of simulated tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from evalstats_plugin.errors import DesignError, check_known
from evalstats_plugin.report.figures import canvas
from evalstats_plugin.report.figures.canvas import BLUE, INK, SERIES, SKY, VERMILION
from evalstats_plugin.report.text import percent
from evalstats_plugin.stats.arrays import FloatArray
from evalstats_plugin.stats.interval import normal_quantile

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from evalstats_plugin.adaptive.session import AdaptiveSession
    from evalstats_plugin.adaptive.simulation import SimulatedAccuracy
    from evalstats_plugin.data.results import Results


MEASURES = {
    "score_mae": "mean absolute error\nof the predicted full score",
    "ability_rmse": "root mean squared error\nof the ability",
    "rank_correlation": "rank correlation\nof estimated and true abilities",
    "score_width": "mean width\nof the full score's interval",
    "score_coverage": "how often the full score's\ninterval holds the truth",
    "ability_coverage": "how often the ability's\ninterval holds the truth",
}
"""Measures that `plot_accuracy` draws, with their axis labels."""


@canvas.styled
def plot_trace(test: AdaptiveSession | Mapping[str, Any], *, ax: Axes | None = None) -> Axes:
    """Draw the estimated ability after each item, with its interval.

    Ticks at the top are right answers, ticks at the bottom wrong ones; a partial score has both,
    in proportion.

    Parameters
    ----------
    test
        A session, or its record in a log.

    Raises
    ------
    DesignError
        No item was asked, or Matplotlib is not installed.
    """
    trace = _trace(test)
    if not len(trace.score):
        raise DesignError("nothing to draw: no item was asked")
    n = np.arange(1, len(trace.score) + 1)
    width = normal_quantile(trace.level) * trace.std_error
    axes: Any = canvas.axes_or_new(ax, 6.0, 3.4)
    axes.fill_between(n, trace.ability - width, trace.ability + width, color=SKY, alpha=0.45,
                      linewidth=0, step="mid", zorder=2,
                      label=f"{percent(trace.level)} interval")  # fmt: skip
    axes.plot(n, trace.ability, color=BLUE, linewidth=1.5, drawstyle="steps-mid", zorder=3,
              label="ability")  # fmt: skip
    place = axes.get_xaxis_transform()
    axes.vlines(n, 1.0 - 0.05 * trace.score, 1.0, transform=place, color=INK, linewidth=0.9)
    axes.vlines(n, 0.0, 0.05 * (1 - trace.score), transform=place, color=VERMILION, linewidth=0.9)
    axes.set_xlim(0.4, len(n) + 0.6)
    axes.margins(y=0.14)
    axes.xaxis.set_major_locator(canvas.matplotlib().ticker.MaxNLocator(integer=True))
    axes.set_xlabel("items asked; ticks above: right, below: wrong")
    axes.set_ylabel("ability (logits)")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, title=trace.title or None,
                alignment="left")  # fmt: skip
    return axes


class _Trace(NamedTuple):
    ability: FloatArray
    std_error: FloatArray
    score: FloatArray
    level: float
    title: str


def _trace(test: Any) -> _Trace:
    if isinstance(test, Mapping):
        result: Mapping[str, Any] = cast("Mapping[str, Any]", test)
        steps: list[Mapping[str, Any]] = list(result.get("trace", ()))
    else:
        steps, result = [answer._asdict() for answer in test.answers], test.result().to_dict()

    def column(name: str) -> FloatArray:
        return np.array([np.nan if step[name] is None else step[name] for step in steps], float)

    level = float(result.get("confidence_level", 0.95))
    stopped = result.get("stopped") or "not stopped"
    title = (
        f"{result.get('n_items', len(steps))} of {result.get('n_in_bank', '?')} items: {stopped}"
    )
    return _Trace(column("ability"), column("std_error"), column("score"), level, title)


@canvas.styled
def plot_accuracy(
    results: Results[SimulatedAccuracy], *, measure: str = "score_mae", ax: Axes | None = None
) -> Axes:
    """Draw the accuracy of simulated adaptive tests by number of items, a line for each rule.

    Thin vertical lines are intervals for the population of models.

    Parameters
    ----------
    measure
        A name of `MEASURES`.

    Raises
    ------
    SelectionError
        No such measure.
    DesignError
        Nothing to draw, or Matplotlib is not installed.
    """
    check_known("measure", measure, MEASURES)
    rows: Sequence[Any] = results.rows
    if not rows:
        raise DesignError("nothing to draw: there are no rows")
    rules = list(dict.fromkeys(row.rule for row in rows))
    axes: Any = canvas.axes_or_new(ax, 6.4, 3.6)
    for k, rule in enumerate(rules):
        own = [row for row in rows if row.rule == rule and getattr(row, measure) is not None]
        _draw_rule(axes, sorted(own, key=lambda row: row.n_items), measure, k)
    numbers = sorted({row.n_items for row in rows})
    axes.set_xscale("log")
    axes.set_xticks(numbers, [f"{n:,}" for n in numbers])
    axes.xaxis.set_minor_locator(canvas.matplotlib().ticker.NullLocator())
    if measure.endswith("coverage"):
        axes.axhline(rows[0].confidence_level, color=INK, linewidth=0.9, linestyle=(0, (2, 2)))
        canvas.percent_axis(axes.yaxis)
        axes.set_ylim(min(0.85, axes.get_ylim()[0]), 1.005)
    elif measure != "rank_correlation":
        axes.set_ylim(0, None)
    axes.grid(visible=True)
    axes.set_xlabel(f"items asked ({rows[0].n_models:,} models drawn from the bank)")
    axes.set_ylabel(MEASURES[measure])
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), title="rule", alignment="left")
    return axes


def _draw_rule(axes: Any, rows: Sequence[Any], measure: str, k: int) -> None:
    if not rows:
        return
    color, marker, dashes, filling = canvas.series(k)
    # Side by side, so that intervals do not hide each other.
    at = [row.n_items * 1.02 ** (k % len(SERIES) - 2) for row in rows]
    axes.plot(at, [getattr(row, measure) for row in rows], color=color, marker=marker,
              markerfacecolor=filling, linestyle=dashes, markersize=4.5, linewidth=1.4,
              label=rows[0].rule, zorder=3)  # fmt: skip
    ends = [(getattr(r, f"{measure}_low", None), getattr(r, f"{measure}_high", None)) for r in rows]
    intervals = [(x, *pair) for x, pair in zip(at, ends, strict=True) if None not in pair]
    if intervals:
        axes.vlines(*zip(*intervals, strict=True), color=color, linewidth=0.8, zorder=2)
