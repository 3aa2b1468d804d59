"""Figures of adaptive tests: one test item by item, and the accuracy of simulated tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from evalstats_plugin.data.results import grouped
from evalstats_plugin.errors import DesignError
from evalstats_plugin.report.figures import canvas
from evalstats_plugin.report.figures.canvas import BLUE, INK, SERIES, SKY, VERMILION
from evalstats_plugin.report.text import percent
from evalstats_plugin.stats.interval import normal_quantile

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from evalstats_plugin.adaptive.session import AdaptiveSession
    from evalstats_plugin.adaptive.simulation import SimulatedAccuracy
    from evalstats_plugin.data.results import Results


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
    if isinstance(test, Mapping):
        steps, result = list(test.get("trace", ())), test
    else:
        steps, result = [answer._asdict() for answer in test.answers], test.result().to_dict()
    if not steps:
        raise DesignError("nothing to draw: no item was asked")
    ability, std_error, score = (
        np.array([np.nan if step[name] is None else step[name] for step in steps], float)
        for name in ("ability", "std_error", "score")
    )
    level = float(result.get("confidence_level", 0.95))
    n = np.arange(1, len(steps) + 1)
    width = normal_quantile(level) * std_error
    axes: Any = canvas.axes_or_new(ax, 6.0, 3.4)
    axes.fill_between(n, ability - width, ability + width, color=SKY, alpha=0.45, linewidth=0,
                      step="mid", zorder=2, label=f"{percent(level)} interval")  # fmt: skip
    axes.plot(n, ability, color=BLUE, linewidth=1.5, drawstyle="steps-mid", zorder=3,
              label="ability")  # fmt: skip
    place = axes.get_xaxis_transform()
    axes.vlines(n, 1.0 - 0.05 * score, 1.0, transform=place, color=INK, linewidth=0.9)
    axes.vlines(n, 0.0, 0.05 * (1 - score), transform=place, color=VERMILION, linewidth=0.9)
    axes.set_xlim(0.4, len(n) + 0.6)
    axes.margins(y=0.14)
    axes.xaxis.set_major_locator(canvas.matplotlib().ticker.MaxNLocator(integer=True))
    axes.set_xlabel("items asked; ticks above: right, below: wrong")
    axes.set_ylabel("ability (logits)")
    asked, in_bank = result.get("n_items", len(steps)), result.get("n_in_bank", "?")
    title = f"{asked} of {in_bank} items: {result.get('stopped') or 'not stopped'}"
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, title=title,
                alignment="left")  # fmt: skip
    return axes


@canvas.styled
def plot_accuracy(results: Results[SimulatedAccuracy], *, ax: Axes | None = None) -> Axes:
    """Draw the error of simulated adaptive tests by number of items, a line for each rule.

    Thin vertical lines are intervals for the population of models.

    Raises
    ------
    DesignError
        Nothing to draw, or Matplotlib is not installed.
    """
    rows = results.rows
    if not rows:
        raise DesignError("nothing to draw: there are no rows")
    axes: Any = canvas.axes_or_new(ax, 6.4, 3.6)
    for k, (rule, unordered) in enumerate(grouped(rows, lambda row: row.rule).items()):
        own = sorted(unordered, key=lambda row: row.n_items)
        color, marker, dashes, filling = canvas.series(k)
        # Side by side, so that intervals do not hide each other.
        at = [row.n_items * 1.02 ** (k % len(SERIES) - 2) for row in own]
        axes.plot(at, [row.score_mae for row in own], color=color, marker=marker,
                  markerfacecolor=filling, linestyle=dashes, markersize=4.5, linewidth=1.4,
                  label=rule, zorder=3)  # fmt: skip
        limits = [row.score_mae_low for row in own], [row.score_mae_high for row in own]
        axes.vlines(at, *limits, color=color, linewidth=0.8, zorder=2)
    numbers = sorted({row.n_items for row in rows})
    axes.set_xscale("log")
    axes.set_xticks(numbers, [f"{n:,}" for n in numbers])
    axes.xaxis.set_minor_locator(canvas.matplotlib().ticker.NullLocator())
    axes.set_ylim(0, None)
    axes.grid(visible=True)
    axes.set_xlabel(f"items asked ({rows[0].n_models:,} models drawn from the bank)")
    axes.set_ylabel("mean absolute error\nof the predicted full score")
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), title="rule", alignment="left")
    return axes
