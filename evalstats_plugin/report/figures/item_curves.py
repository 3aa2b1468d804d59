"""Item response curves, and where on the scale a test tells abilities well."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import special

from evalstats_plugin.errors import SelectionError
from evalstats_plugin.report.figures import canvas
from evalstats_plugin.report.figures.canvas import BLUE, FAINT, INK, SERIES, VERMILION
from evalstats_plugin.report.figures.scale import check_one_ability, span
from evalstats_plugin.stats.interval import FloatArray
from evalstats_plugin.wording import few, no_such

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from evalstats_plugin.irt.fit import IRTFit

MOST_NAMED = len(SERIES)
"""Curves that can be told apart."""
_POINTS = 201


@canvas.styled
def plot_item_curves(fit: IRTFit, *, items: Sequence[str] = (), ax: Axes | None = None) -> Axes:
    """Draw the probability of a right answer to every item, by ability.

    Parameters
    ----------
    items
        Ids of items to name; by default some from the easiest to the hardest, or all of a few.

    Raises
    ------
    SelectionError
        An item is not in the fit, or too many are to be named.
    DesignError
        The fit has several abilities, or Matplotlib is not installed.
    """
    check_one_ability(fit)
    named = _places(fit, items)
    at = span(fit)
    right = _right(fit, at)
    names = [canvas.shown(str(fit.item_ids[j]), 40) for j in named]
    size = (5.2 + canvas.width_of(names) * bool(names), max(3.4, 0.2 * len(names) + 1.2))
    axes: Any = canvas.axes_or_new(ax, *size)
    others = np.setdiff1d(np.arange(len(fit.item_ids)), named)
    # Thousands of curves are a cloud; a part shows its shape as well.
    others = others[:: max(1, len(others) // 400)]
    alpha = 0.6 if len(others) < 60 else 0.25
    axes.plot(at, right[:, others], color=FAINT, linewidth=0.5, alpha=alpha, zorder=2)
    for j, name, (color, marker, dashes) in zip(named, names, SERIES, strict=False):
        axes.plot(at, right[:, j], color=color, linestyle=dashes, marker=marker, markersize=4,
                  markevery=20, linewidth=1.5, label=name, zorder=3)  # fmt: skip
    _rug(axes, fit)
    axes.set_ylim(-0.04, 1.04)
    axes.set_xlim(at[0], at[-1])
    canvas.percent_axis(axes.yaxis)
    axes.set_ylabel("probability of a right answer")
    axes.set_xlabel("ability (logits); ticks above: the models")
    canvas.title(axes, f"{right.shape[1]:,} items, {fit.item_model} ({fit.estimator})")
    if names:
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), title="items", alignment="left")
    return axes


@canvas.styled
def plot_information(fit: IRTFit, *, ax: Axes | None = None) -> Axes:
    """Draw the information of all items by ability, and the standard error that it makes.

    An ability known from these items alone has a standard error of one over the root of the
    information, if the items themselves were known.

    Raises
    ------
    DesignError
        The fit has several abilities, or Matplotlib is not installed.
    """
    check_one_ability(fit)
    at = span(fit)
    total = _information(fit, at)
    axes: Any = canvas.axes_or_new(ax, 5.6, 3.4)
    [line] = axes.plot(at, total, color=BLUE, linewidth=1.8, label="information (left)", zorder=3)
    axes.set_ylim(0, None)
    axes.set_xlim(at[0], at[-1])
    axes.set_ylabel("information of all items")
    axes.set_xlabel("ability (logits); ticks above: the models")
    errors = axes.twinx()
    if ax is None:
        canvas.dressed(errors)
    errors.spines["right"].set_visible(True)
    with np.errstate(divide="ignore"):
        error = np.minimum(total**-0.5, 4 * np.min(total**-0.5))
    [dashes] = errors.plot(at, error, color=VERMILION, linestyle="--", linewidth=1.6,
                           label="standard error (right)")  # fmt: skip
    errors.set_ylim(0, None)
    errors.set_ylabel("standard error of an ability")
    _rug(axes, fit)
    axes.legend(
        handles=[line, dashes], loc="lower left", bbox_to_anchor=(0, 1), ncols=2, alignment="left",
        title=f"{len(fit.item_ids):,} items, {fit.item_model} ({fit.estimator})",
        title_fontproperties={"weight": "bold", "size": canvas.NORMAL},
    )  # fmt: skip
    return axes


def _right(fit: IRTFit, at: FloatArray) -> FloatArray:
    """P(right) at abilities, shape (Q, M)."""
    upper = float(fit.hyperparameters.get("upper", 1.0))
    logit = at[:, None] * fit.discrimination + fit.intercept
    guessing = np.nan_to_num(fit.guessing)
    return guessing + (upper - guessing) * special.expit(logit)


def _information(fit: IRTFit, at: FloatArray) -> FloatArray:
    """Fisher information of one answer to each item, summed; shape (Q,)."""
    upper = float(fit.hyperparameters.get("upper", 1.0))
    guessing = np.nan_to_num(fit.guessing)
    p = _right(fit, at)
    curve = special.expit(at[:, None] * fit.discrimination + fit.intercept)
    slope = fit.discrimination * (upper - guessing) * curve * (1 - curve)
    return np.nansum(slope**2 / np.maximum(p * (1 - p), 1e-12), axis=1)


def _rug(axes: Any, fit: IRTFit) -> None:
    known = fit.ability[np.isfinite(fit.ability)]
    place = axes.get_xaxis_transform()
    axes.vlines(known, 0.965, 1.0, transform=place, color=INK, linewidth=0.8, zorder=4)


def _places(fit: IRTFit, items: Sequence[str]) -> list[int]:
    ids = [str(name) for name in fit.item_ids]
    if len(items) > MOST_NAMED:
        msg = f"{len(items)} items to name found, expected at most {MOST_NAMED}"
        raise SelectionError(msg)
    for name in items:
        if name not in ids:
            raise SelectionError(no_such("item", name, ids, few(ids)))
    if items:
        return [ids.index(name) for name in items]
    if len(ids) <= MOST_NAMED:
        return list(range(len(ids)))
    order = np.argsort(fit.difficulty)
    order = order[np.isfinite(fit.difficulty[order])]
    if not len(order):
        return []
    # The extremes are often items that nobody or everybody gets right.
    shares = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
    return [int(j) for j in order[(shares * (len(order) - 1)).round().astype(int)]]
