"""Figures of item response models: item curves, information, item fit, and Wright maps.

* `plot_item_curves`, `plot_information`: by ability; `plot_item_fit`: infit against outfit
* `plot_observed_curve`: an item's curve, and the shares of right answers that were observed
* `plot_wright_map`: models and items on one scale; `plot_ability_score`: abilities against scores
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import optimize, special

from evalstats_plugin.errors import DesignError, SelectionError, counted, few, no_such
from evalstats_plugin.report.figures import canvas
from evalstats_plugin.report.figures.canvas import BLUE, FAINT, INK, ORANGE, SERIES, VERMILION
from evalstats_plugin.stats.arrays import FloatArray
from evalstats_plugin.stats.interval import normal_quantile

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from evalstats_plugin.irt.model.fit import IRTFit
    from evalstats_plugin.irt.rows import Abilities, Ability, ItemEstimate


MOST_CURVES = len(SERIES)
"""Number of curves that can be told apart."""

_POINTS = 201
"""Abilities at which curves are computed."""

MOST_GROUPS, _FEWEST_IN_GROUP = 10, 3
"""Groups of models of similar ability, and models in each at least."""

MOST_NAMED_ITEMS = 20
NOISY = 1.3
"""Infit and outfit above which an item is noisier than it should be."""

_LEAST = 0.05
"""Smallest infit and outfit drawn."""

FARTHEST = 8.0
"""Logits from the middle of the scale to its ends, at most."""

MOST_NAMED_MARKS = 150
_MIDDLE, _ITEMS = 1.5, 2.4
"""Inches for abilities with their leader lines, and for items."""

MOST_INTERVALS = 8
"""Number of models up to which intervals are drawn; more would hide each other."""


@canvas.styled
def plot_item_curves(fit: IRTFit, *, items: Sequence[str] = (), ax: Axes | None = None) -> Axes:
    """Draw item characteristic curves: the probability of a right answer by ability.

    Parameters
    ----------
    items
        Ids of items to name; by default a few from the easiest to the hardest.

    Raises
    ------
    SelectionError
        An item is not in the fit, or too many are named.
    DesignError
        The fit has several abilities, or Matplotlib is not installed.
    """
    _check_one_ability(fit)
    named = _named_items(fit, items)
    at = _span(fit)
    right, _ = _right_and_slope(fit, at)
    names = [canvas.shown(str(fit.item_ids[j]), 40) for j in named]
    size = (5.2 + canvas.width_of(names), max(3.4, 0.2 * len(names) + 1.2))
    axes: Any = canvas.axes_or_new(ax, *size)
    others = np.setdiff1d(np.arange(len(fit.item_ids)), named)
    # A subset shows the shape of thousands of curves as well.
    others = others[:: max(1, len(others) // 400)]
    alpha = 0.6 if len(others) < 60 else 0.25
    axes.plot(at, right[:, others], color=FAINT, linewidth=0.5, alpha=alpha, zorder=2)
    for j, name, (color, marker, dashes) in zip(named, names, SERIES, strict=False):
        axes.plot(at, right[:, j], color=color, linestyle=dashes, marker=marker, markersize=4,
                  markevery=20, linewidth=1.5, label=name, zorder=3)  # fmt: skip
    _along_abilities(axes, fit, at)
    axes.set_ylim(-0.04, 1.04)
    canvas.percent_axis(axes.yaxis)
    axes.set_ylabel("probability of a right answer")
    canvas.title(axes, f"{right.shape[1]:,} items, {fit.item_model} ({fit.estimator})")
    if names:
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), title="items", alignment="left")
    return axes


def _named_items(fit: IRTFit, items: Sequence[str]) -> list[int]:
    ids = [str(name) for name in fit.item_ids]
    if len(items) > MOST_CURVES:
        msg = f"{len(items)} items are too many to name in one figure: name at most {MOST_CURVES}"
        raise SelectionError(msg)
    for name in items:
        if name not in ids:
            raise SelectionError(no_such("item", name, ids, few(ids)))
    if items:
        return [ids.index(name) for name in items]
    if len(ids) <= MOST_CURVES:
        return list(range(len(ids)))
    order = np.argsort(fit.difficulty)
    order = order[np.isfinite(fit.difficulty[order])]
    if not len(order):
        return []
    # The extremes are often items that no model or every model gets right.
    shares = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
    return [int(j) for j in order[(shares * (len(order) - 1)).round().astype(int)]]


@canvas.styled
def plot_observed_curve(
    fit: IRTFit, *, item: str | None = None, confidence_level: float = 0.95, ax: Axes | None = None
) -> Axes:
    """Draw one item's curve, and how many models of similar ability got it right.

    The band holds the observed share of each group with this probability if the model is true and
    abilities are known.

    Parameters
    ----------
    item
        Id of the item; None for the one whose answers are noisiest for their curve (infit).

    Raises
    ------
    SelectionError
        The item is not in the fit.
    DesignError
        The fit has several abilities or no answers of its own, no model has answered the item, or
        Matplotlib is not installed.
    """
    from evalstats_plugin.irt.answers import matrix_of
    from evalstats_plugin.irt.fit_statistics import cells_of, mean_squares

    _check_one_ability(fit)
    cells = cells_of(fit, matrix_of(fit.answers()))
    if item is None:
        j = int(np.nan_to_num(mean_squares(cells).infit, nan=-1.0).argmax())
    else:
        [j] = _named_items(fit, [item])
    seen = np.flatnonzero((cells.trials[:, j] > 0) & np.isfinite(fit.ability))
    if not len(seen):
        raise DesignError(f"no model with an ability has answered item {fit.item_ids[j]}")
    order = seen[np.argsort(fit.ability[seen], kind="stable")]
    groups = np.array_split(order, max(1, min(MOST_GROUPS, len(order) // _FEWEST_IN_GROUP)))
    trials = np.array([cells.trials[at, j].sum() for at in groups])
    ability, share, expected, variance = (
        np.array([(cells.trials[at, j] * x[at]).sum() for at in groups]) / trials
        for x in (fit.ability, cells.right[:, j] / np.maximum(cells.trials[:, j], 1),
                  cells.probability[:, j], cells.probability[:, j] * (1 - cells.probability[:, j]))
    )  # fmt: skip
    width = normal_quantile(confidence_level) * np.sqrt(variance / trials)
    axes: Any = canvas.axes_or_new(ax, 7.6, 3.4)
    at = _span(fit)
    axes.fill_between(ability, np.maximum(expected - width, 0), np.minimum(expected + width, 1),
                      color=FAINT, alpha=0.5, linewidth=0, zorder=1,
                      label=f"{100 * confidence_level:g} % band")  # fmt: skip
    axes.plot(at, _right_and_slope(fit, at)[0][:, j], color=BLUE, linewidth=1.6, zorder=2,
              label="expected")  # fmt: skip
    axes.plot(ability, share, linestyle="", marker="o", markersize=5, color=VERMILION,
              markeredgecolor=INK, markeredgewidth=0.5, zorder=3, label="observed")  # fmt: skip
    _along_abilities(axes, fit, at)
    axes.set_ylim(-0.04, 1.04)
    canvas.percent_axis(axes.yaxis)
    axes.set_ylabel("right answers")
    canvas.title(axes, canvas.shown(f"item {fit.item_ids[j]}", 60))
    said = f"{counted(len(order), 'model')} in {counted(len(groups), 'group')}"
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), title=said, alignment="left")
    return axes


@canvas.styled
def plot_information(fit: IRTFit, *, ax: Axes | None = None) -> Axes:
    """Draw the test information by ability, and the standard error that follows from it.

    The standard error is one over the square root of the information, as if the items were known
    exactly.

    Raises
    ------
    DesignError
        The fit has several abilities, or Matplotlib is not installed.
    """
    _check_one_ability(fit)
    at = _span(fit)
    right, slope = _right_and_slope(fit, at)
    total = np.nansum(slope**2 / np.maximum(right * (1 - right), 1e-12), axis=1)
    axes: Any = canvas.axes_or_new(ax, 5.6, 3.4)
    [line] = axes.plot(at, total, color=BLUE, linewidth=1.8, label="information (left)", zorder=3)
    axes.set_ylim(0, None)
    axes.set_ylabel("information of all items")
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
    _along_abilities(axes, fit, at)
    axes.legend(
        handles=[line, dashes], loc="lower left", bbox_to_anchor=(0, 1), ncols=2, alignment="left",
        title=f"{len(fit.item_ids):,} items, {fit.item_model} ({fit.estimator})",
        title_fontproperties={"weight": "bold", "size": canvas.NORMAL},
    )  # fmt: skip
    return axes


def _right_and_slope(fit: IRTFit, at: FloatArray) -> tuple[FloatArray, FloatArray]:
    """P(right) at abilities and its derivative, each of shape (Q, M)."""
    guessing, upper = np.nan_to_num(fit.guessing), fit.upper
    curve = special.expit(at[:, None] * fit.discrimination + fit.intercept)
    slope = fit.discrimination * (upper - guessing) * curve * (1 - curve)
    return guessing + (upper - guessing) * curve, slope


def _along_abilities(axes: Any, fit: IRTFit, at: FloatArray) -> None:
    """Make the horizontal axis one of abilities, with ticks above it where the models are."""
    axes.set_xlim(at[0], at[-1])
    axes.set_xlabel("ability (logits); ticks above: the models")
    abilities = fit.ability[np.isfinite(fit.ability)]
    place = axes.get_xaxis_transform()
    axes.vlines(abilities, 0.965, 1.0, transform=place, color=INK, linewidth=0.8, zorder=4)


@canvas.styled
def plot_item_fit(results: Abilities | Sequence[ItemEstimate], *, ax: Axes | None = None) -> Axes:
    """Draw infit and outfit of every item; the model expects 1 of both.

    Items to inspect are triangles, and the worst of them are named.

    Raises
    ------
    DesignError
        No items, or Matplotlib is not installed.
    """
    given: Any = results
    items: Sequence[ItemEstimate] = getattr(given, "items", given)
    fitted = [item for item in items if item.infit is not None and item.outfit is not None]
    if not fitted:
        raise DesignError("no item has infit and outfit: ask for items")
    infit, outfit = (
        np.maximum([float(getattr(item, name)) for item in fitted], _LEAST)
        for name in ("infit", "outfit")
    )
    flagged = np.array([bool(item.notes) for item in fitted])
    # Items to inspect come first, the worst at the top.
    named: list[int] = np.flatnonzero(flagged)[:MOST_NAMED_ITEMS].tolist()
    several = len({item.task for item in fitted}) > 1
    names = [
        canvas.shown(f"{fitted[j].task} {fitted[j].item}" if several else fitted[j].item, 40)
        for j in named
    ]
    axes, room = _axes_beside(ax, names)
    _draw_item_fit(axes, infit, outfit, flagged)
    low, high = np.log(axes.get_ylim())
    wanted = (np.log(outfit[named]) - low) / (high - low)
    _name_beside(axes, infit[named], outfit[named], names, wanted, room)
    hidden = len(items) - len(fitted)
    more = f"; {hidden:,} have neither" if hidden else ""
    clipped = int(((infit <= _LEAST) | (outfit <= _LEAST)).sum())
    more += f"; {clipped:,} at {_LEAST:g} are lower" if clipped else ""
    canvas.title(axes, f"{len(fitted):,} items, {int(flagged.sum()):,} to look at{more}")
    return axes


def _draw_item_fit(axes: Any, infit: Any, outfit: Any, flagged: Any) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(canvas.matplotlib().ticker.LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
        axis.set_minor_locator(canvas.matplotlib().ticker.NullLocator())
        axis.set_major_formatter("{x:g}")
    for line, style in ((1.0, "-"), (NOISY, "--")):
        axes.axvline(line, color=FAINT, linewidth=0.7, linestyle=style, zorder=1)
        axes.axhline(line, color=FAINT, linewidth=0.7, linestyle=style, zorder=1)
    many = len(infit) > 500
    axes.plot(infit[~flagged], outfit[~flagged], linestyle="", marker="o", markersize=3,
              color=BLUE, markeredgewidth=0, alpha=0.4 if many else 0.7, zorder=3,
              label="fits")  # fmt: skip
    axes.plot(infit[flagged], outfit[flagged], linestyle="", marker="^", markersize=5,
              color=VERMILION, markeredgecolor=INK, markeredgewidth=0.5, zorder=4,
              label="to look at")  # fmt: skip
    for setter, values in ((axes.set_xlim, infit), (axes.set_ylim, outfit)):
        low, high = min(float(values.min()), 0.8), max(float(values.max()), 1.5)
        setter(low / 1.08, high * 1.08)
    axes.set_xlabel(f"infit (dashed: {NOISY:g})")
    axes.set_ylabel("outfit")


def _axes_beside(ax: Any, names: list[str]) -> tuple[Any, FloatArray]:
    """Return axes with room for names at the right, and the height of each name as a share."""
    lines = canvas.lines_of(names)
    height = max(3.4, lines.sum() * canvas.LINE * 1.1)
    axes = canvas.axes_or_new(ax, 4.6 + canvas.width_of(names), height + 0.9)
    return axes, lines * canvas.LINE / height


def _name_beside(
    axes: Any, x: Any, y: Any, names: list[str], wanted: FloatArray, room: FloatArray
) -> None:
    """Draw names in a column at the right, each with a line to its mark.

    Wanted places and the room of each name are shares of the height.
    """
    if not names:
        return
    order = np.argsort(wanted, kind="stable")
    places = spread_out(wanted[order], room[order])
    places += min(0.0, 1 - places[-1]) + max(0.0, -places[0])
    for j, place in zip(order, places, strict=True):
        axes.annotate(
            names[j], (x[j], y[j]), (1.03, place), textcoords="axes fraction", va="center",
            fontsize=canvas.SMALL, linespacing=1.0, parse_math=False, annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": FAINT, "linewidth": 0.5, "shrinkB": 3},
        )  # fmt: skip


@canvas.styled
def plot_wright_map(fit: IRTFit, *, confidence_level: float = 0.95, ax: Axes | None = None) -> Axes:
    """Draw abilities of models beside the difficulties of items [WS79]_.

    A model at the height of an item gets it right half of the time (guessing aside). Names are in
    the order of the abilities, each with a line to its ability. Intervals are drawn for a few
    models only; a forest plot shows more.

    Raises
    ------
    DesignError
        The fit has several abilities, or Matplotlib is not installed.
    """
    _check_one_ability(fit)
    finite = np.flatnonzero(np.isfinite(fit.ability))
    order = finite[np.argsort(fit.ability[finite], kind="stable")]
    few_enough: list[int] = order.tolist() if len(order) <= MOST_NAMED_MARKS else []
    names = [canvas.shown(fit.models[i]) for i in few_enough]
    lines = canvas.lines_of(names)
    height = max(3.6, lines.sum() * canvas.LINE * 1.02 + 0.2)
    axes: Any = canvas.axes_or_new(
        ax, _MIDDLE + _ITEMS + 0.9 + canvas.width_of(names), height + 1.0
    )
    at, ability, step = _span(fit), fit.ability[order], 0.0
    limits = np.stack([ability, ability])
    low, high = float(at[0]), float(at[-1])
    if 0 < len(order) <= MOST_INTERVALS:
        # Intervals are beside each other; where there is no limit, the ability itself is drawn.
        step = 0.1
        limits = np.stack(fit.limits(confidence_level))[:, order]
        limits = np.where(np.isfinite(limits), limits, ability)
        more = 0.025 * (limits.max() - limits.min())
        low = max(min(low, float(limits.min() - more)), low - FARTHEST)
        high = min(max(high, float(limits.max() + more)), high + FARTHEST)
    x = -0.16 - step * np.arange(len(order), dtype=np.float64)
    axes.vlines(x, *limits, color=BLUE, linewidth=1.2, zorder=3)
    # An arrow where answers set no limit on one side.
    for sign, marker in ((0, "o"), (1, "^"), (-1, "v")):
        here = fit.endless[order] == sign
        axes.plot(x[here], ability[here], linestyle="", marker=marker, markersize=4, color=BLUE,
                  zorder=4)  # fmt: skip
    if names:
        room = lines * ((high - low) / height * canvas.LINE)
        places = spread_out(ability, room, low, high)
        _name_models(axes, x - 0.06, ability, places, names)
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


@canvas.styled
def plot_ability_score(results: Abilities | Sequence[Ability], *, ax: Axes | None = None) -> Axes:
    """Draw abilities with their intervals against the models' scores.

    Names are in the order of the abilities, each with a line to its model.

    Raises
    ------
    DesignError
        No model has an ability and a score, or Matplotlib is not installed.
    """
    rows = [row for row in results if row.estimate is not None and row.score is not None]
    if not rows:
        raise DesignError("no model has an ability and a score")
    rows.sort(key=lambda row: (float(row.estimate or 0.0), row.model))
    ability, score = (np.array([getattr(row, x) for row in rows], dtype=float)
                      for x in ("estimate", "score"))  # fmt: skip
    names = [canvas.shown(row.model, 40) for row in rows] if len(rows) <= MOST_NAMED_MARKS else []
    axes, room = _axes_beside(ax, names)
    ends = [
        [x if (limit := getattr(row, name)) is None else float(limit)
         for row, x in zip(rows, ability, strict=True)]
        for name in ("low", "high")
    ]  # fmt: skip
    axes.vlines(score, *ends, color=BLUE, linewidth=1.0, alpha=0.7, zorder=2)
    axes.plot(score, ability, linestyle="", marker="o", markersize=4, color=BLUE, zorder=3)
    more = 0.05 * max(np.ptp(np.concatenate(ends)), 1e-6)
    low, high = min(ends[0]) - more, max(ends[1]) + more
    axes.set_ylim(low, high)
    _name_beside(axes, score, ability, names, (ability - low) / (high - low), room)
    canvas.percent_axis(axes.xaxis)
    axes.set_xlabel("mean score")
    axes.set_ylabel("ability (logits)")
    canvas.title(axes, counted(len(rows), "model"))
    return axes


def _left_out(fit: IRTFit, names: list[str]) -> list[str]:
    """Return which models are not named, or not drawn."""
    endless = [name for name, x in zip(fit.models, fit.ability, strict=True) if not np.isfinite(x)]
    said = [f"no finite ability: {few(endless)}"] if endless else []
    unnamed = len(fit.models) - len(endless)
    more = [f"{counted(unnamed, 'model')}, more than can be named"] if unnamed and not names else []
    return [canvas.shown(text, 90) for text in (*said, *more)]


def _name_models(
    axes: Any, ends: FloatArray, ability: FloatArray, places: FloatArray, names: list[str]
) -> None:
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
    # Items beyond either end are counted in the last bar there, which is labelled.
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


def _check_one_ability(fit: Any) -> None:
    """Raise `DesignError` unless this is a fit with one ability per model."""
    if getattr(fit, "item_model", None) == "factor" or not hasattr(fit, "difficulty"):
        what = getattr(fit, "item_model", type(fit).__name__)
        raise DesignError(f"this figure needs one ability per model: {what} has none")


def _span(fit: IRTFit) -> FloatArray:
    """Return evenly spaced abilities over the range of the models and most items."""
    ability = fit.ability[np.isfinite(fit.ability)]
    difficulty = fit.difficulty[np.isfinite(fit.difficulty)]
    most = np.quantile(difficulty, [0.05, 0.95]) if len(difficulty) else difficulty
    ends: list[float] = [*ability.tolist(), *most.tolist()]
    middle = float(np.median(ends)) if ends else 0.0
    low, high = (min(ends), max(ends)) if ends else (-1.0, 1.0)
    low, high = max(low - 1, middle - FARTHEST), min(high + 1, middle + FARTHEST)
    return np.linspace(low, high, _POINTS)


def spread_out(
    wanted: FloatArray, apart: FloatArray, low: float = -np.inf, high: float = np.inf
) -> FloatArray:
    """Move labels as little as possible so that none overlaps the next.

    Parameters
    ----------
    wanted : shape (n,), increasing
        Desired positions.
    apart : shape (n,)
        Height of each label.
    low, high
        Ends of the figure: labels beyond them are moved inside, and those in their way.

    Returns
    -------
    FloatArray
        Positions with neighbours at least half of both heights apart and the least sum of squared
        moves.

    >>> spread_out(np.array([0.0, 0.0, 5.0]), np.array([1.0, 1.0, 1.0])).tolist()
    [-0.5, 0.5, 5.0]
    """
    steps = np.concatenate([[0.0], np.cumsum((apart[1:] + apart[:-1]) / 2)])
    # Minus the cumulative heights, positions need only increase.
    places = optimize.isotonic_regression(wanted - steps).x + steps
    places = np.maximum(places, low + apart[0] / 2 + steps)
    return np.minimum(places, high - apart[-1] / 2 - (steps[-1] - steps))
