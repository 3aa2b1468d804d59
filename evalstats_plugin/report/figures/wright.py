"""The Wright map: models and items on one scale, side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from evalstats_plugin.report.figures import canvas
from evalstats_plugin.report.figures.canvas import BLUE, FAINT, INK, ORANGE
from evalstats_plugin.report.figures.scale import FARTHEST, check_one_ability, span, spread_out
from evalstats_plugin.stats.interval import FloatArray, normal_quantile
from evalstats_plugin.wording import few

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from evalstats_plugin.irt.fit import IRTFit

MOST_NAMED = 150
_MIDDLE, _ITEMS = 1.5, 2.4
"""Inches for abilities with their leader lines, and for the items."""
MOST_INTERVALS = 8
"""Models up to which their intervals are drawn; of more they would hide one another."""


@canvas.styled
def plot_wright_map(fit: IRTFit, *, confidence_level: float = 0.95, ax: Axes | None = None) -> Axes:
    """Draw abilities of models beside the difficulties of items [WS79]_.

    A model at the height of an item gets it right half of the time (guessing aside). Names keep
    the order of the abilities; a line leads from each to its ability. A few models have intervals;
    those of many are in a forest plot.

    Raises
    ------
    DesignError
        The fit has several abilities, or Matplotlib is not installed.
    """
    check_one_ability(fit)
    known = np.flatnonzero(np.isfinite(fit.ability))
    order = known[np.argsort(fit.ability[known], kind="stable")]
    few_enough: list[int] = order.tolist() if len(order) <= MOST_NAMED else []
    names = [canvas.shown(fit.models[i]) for i in few_enough]
    lines = np.array([1 + 0.82 * name.count("\n") for name in names])
    height = max(3.6, lines.sum() * canvas.LINE * 1.02 + 0.2)
    axes: Any = canvas.axes_or_new(
        ax, _MIDDLE + _ITEMS + 0.9 + canvas.width_of(names), height + 1.0
    )
    at = span(fit)
    reach = normal_quantile(confidence_level)
    low, high = _ends(fit, order, at, reach)
    unit = (high - low) / height * canvas.LINE
    _draw_models(axes, fit, order, reach)
    if names:
        places = _inside(spread_out(fit.ability[order], lines * unit), lines * unit, low, high)
        _name_models(axes, fit.ability[order], places, names)
    _draw_items(axes, fit, at)
    axes.set_ylim(low, high)
    axes.set_xlim(-_MIDDLE, _ITEMS)
    axes.axvline(0, color=INK, linewidth=0.7)
    axes.set_xticks([-_MIDDLE / 3, _ITEMS / 2], ["models", f"{len(fit.item_ids):,} items"])
    axes.tick_params(axis="x", length=0)
    axes.yaxis.tick_right()
    axes.yaxis.set_label_position("right")
    axes.set_ylabel("ability and difficulty (logits)")
    axes.spines["right"].set_visible(True)
    axes.spines[["left", "bottom"]].set_visible(False)
    canvas.title(axes, "\n".join([f"{fit.item_model} ({fit.estimator})", *_left_out(fit, names)]))
    return axes


def _ends(fit: IRTFit, order: Any, at: FloatArray, reach: float) -> tuple[float, float]:
    """Return the range of the scale, in which drawn intervals are whole."""
    low, high = float(at[0]), float(at[-1])
    if 0 < len(order) <= MOST_INTERVALS:
        error = fit.ability_std_error[order]
        half = 1.05 * reach * np.where(np.isfinite(error), error, 0.0)
        low = min(low, float((fit.ability[order] - half).min()))
        high = max(high, float((fit.ability[order] + half).max()))
    return max(low, float(at[0]) - FARTHEST), min(high, float(at[-1]) + FARTHEST)


def _left_out(fit: IRTFit, names: list[str]) -> list[str]:
    """Say which models are not named, or not drawn."""
    endless = [name for name, x in zip(fit.models, fit.ability, strict=True) if not np.isfinite(x)]
    said = [f"no finite ability: {few(endless)}"] if endless else []
    unnamed = len(fit.models) - len(endless)
    more = [f"{unnamed} models, more than can be named"] if unnamed and not names else []
    return [canvas.shown(text, 90) for text in (*said, *more)]


def _inside(places: FloatArray, room: FloatArray, low: float, high: float) -> FloatArray:
    """Move labels at the ends into the figure, and those that they meet."""
    lifted = places.copy()
    bottom, top = low + room[0] / 2, high - room[-1] / 2
    steps = np.concatenate([[0.0], np.cumsum((room[1:] + room[:-1]) / 2)])
    lifted = np.maximum(lifted, bottom + steps)
    return np.minimum(lifted, top - (steps[-1] - steps))


def _draw_models(axes: Any, fit: IRTFit, order: Any, reach: float) -> None:
    ability, error = fit.ability[order], fit.ability_std_error[order]
    x = _abreast(len(order))
    if len(order) <= MOST_INTERVALS:
        half = reach * np.where(np.isfinite(error), error, 0.0)
        axes.vlines(x, ability - half, ability + half, color=BLUE, linewidth=1.2, zorder=3)
    axes.plot(x, ability, linestyle="", marker="o", markersize=4, color=BLUE, zorder=4)


def _abreast(n: int) -> FloatArray:
    """Return where models stand: beside one another, as long as they have intervals."""
    step = 0.1 if n <= MOST_INTERVALS else 0.0
    return -0.16 - step * np.arange(n, dtype=np.float64)


def _name_models(axes: Any, ability: FloatArray, places: FloatArray, names: list[str]) -> None:
    ends = _abreast(len(names)) - 0.06
    for end, value, y, name in zip(
        ends.tolist(), ability.tolist(), places.tolist(), names, strict=True
    ):
        axes.plot([-_MIDDLE, -_MIDDLE + 0.2, end], [y, y, value], color=FAINT, linewidth=0.6)
        axes.annotate(
            name, (-_MIDDLE, y), (-3, 0), textcoords="offset points", ha="right", va="center",
            fontsize=canvas.SMALL, linespacing=1.0, parse_math=False, annotation_clip=False,
        )  # fmt: skip


def _draw_items(axes: Any, fit: IRTFit, at: FloatArray) -> None:
    difficulty = fit.difficulty[np.isfinite(fit.difficulty)]
    if not len(difficulty):
        return
    bins: FloatArray = np.linspace(float(at[0]), float(at[-1]), 31)
    # Items beyond either end are counted in the last bar there, which says so.
    counts, _ = np.histogram(np.clip(difficulty, bins[0], bins[-1]), bins)
    scale = 0.74 * _ITEMS / counts.max()
    axes.barh(bins[:-1], counts * scale, height=np.diff(bins), align="edge", facecolor=ORANGE,
              edgecolor=INK, linewidth=0.5, hatch="///", zorder=2)  # fmt: skip
    for end, beyond, sign in (
        (bins[0], int((difficulty < bins[0]).sum()), "below"),
        (bins[-1], int((difficulty > bins[-1]).sum()), "above"),
    ):
        if beyond:
            axes.annotate(
                f"{beyond:,} of them {sign}", (counts[0 if sign == "below" else -1] * scale, end),
                (4, 2 if sign == "below" else -2), textcoords="offset points", fontsize=7.5,
                va="bottom" if sign == "below" else "top",
            )  # fmt: skip
    axes.text(counts.max() * scale, bins[int(np.argmax(counts))] + np.diff(bins)[0] / 2,
              f" {counts.max():,} items", va="center", fontsize=7.5)  # fmt: skip
