"""Figures: results in, Matplotlib axes out. `FIGURES` lists them; `draw` draws one by name.

* `scores`, `comparisons`, `abilities`, `adaptive`: the plots, by kind of result
* `canvas`: styles, rows of names, and figures as files

Neither pyplot nor the user's settings are touched. Shapes or hatches repeat what colours show, and
names are drawn whole.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from io import BytesIO
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, cast

from evalstats_plugin.errors import SelectionError, check_known, no_such

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_DOTS_IN_NOTEBOOKS = 80
"""Dots per inch."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One kind of figure."""

    name: str
    summary: str
    function: str
    """``"module:function"``, loaded on use; it takes a result and ``ax`` and returns the axes."""
    takes: tuple[str, ...]
    """Kinds of results that it draws, such as ``"intervals"``."""


FIGURES = {
    name: Figure(name, summary, f"{__name__}.{function}", takes)
    for name, summary, function, takes in (
        ("forest", "estimates with intervals, models under tasks",
         "scores:plot_forest", ("intervals", "abilities", "ranking", "hierarchical", "tests",
                                 "values")),
        ("matrix", "of every two models, how probable it is that one is better",
         "comparisons:plot_comparison_matrix", ("comparisons", "ranking")),
        ("differences", "differences of models with intervals, 0 marked",
         "comparisons:plot_differences", ("comparisons",)),
        ("ranks", "ranks that are open, and who cannot be told apart",
         "comparisons:plot_ranks", ("ranking", "comparisons", "rank sets")),
        ("variance-parts", "variance between items and between epochs",
         "scores:plot_variance_parts", ("variance parts",)),
        ("curves", "probability of a right answer by ability, item by item",
         "abilities:plot_item_curves", ("fit",)),
        ("information", "where on the scale the items tell abilities well",
         "abilities:plot_information", ("fit",)),
        ("wright", "models and items on one scale",
         "abilities:plot_wright_map", ("fit",)),
        ("observed", "an item's curve beside the shares of right answers that were observed",
         "abilities:plot_observed_curve", ("fit",)),
        ("ability-score", "abilities with intervals against mean scores",
         "abilities:plot_ability_score", ("abilities",)),
        ("item-fit", "infit and outfit of the items, those to look at named",
         "abilities:plot_item_fit", ("items",)),
        ("power", "how often a difference is found, by number of items",
         "comparisons:plot_power", ("power",)),
        ("trace", "an adaptive test, item by item",
         "adaptive:plot_trace", ("trace",)),
        ("accuracy", "error of adaptive tests by number of items",
         "adaptive:plot_accuracy", ("simulation",)),
    )
}  # fmt: skip


def figures_of(*kinds: str) -> dict[str, Figure]:
    """Return the figures that draw some kinds of results, by name."""
    return {name: figure for name, figure in FIGURES.items() if set(kinds) & set(figure.takes)}


def named(name: str, kinds: Sequence[str]) -> Figure:
    """Return a figure by name, among those that draw some kinds of results.

    Raises
    ------
    SelectionError
        No such figure for these results; the message lists those there are.
    """
    here = figures_of(*kinds)
    if name in here:
        return here[name]
    shown = ", ".join(here)
    if name in FIGURES:
        summary = FIGURES[name].summary
        raise SelectionError(f"figure {name!r} ({summary}) is of other results: choose {shown}")
    raise SelectionError(no_such("figure", name, here, shown))


def draw(name: str, result: Any, *, ax: Axes | None = None, **options: Any) -> Axes:
    """Draw a result as a figure of `FIGURES`.

    Parameters
    ----------
    name
        Key of `FIGURES`.
    ax
        Axes to draw into; by default those of a new figure of fitting size.
    options
        Further arguments of the plot function.

    Raises
    ------
    SelectionError
        No such figure.
    """
    check_known("figure", name, FIGURES)
    return resolve_name(FIGURES[name].function)(result, ax=ax, **options)


def draw_result(
    result: Any, figure: str | None = None, *, ax: Axes | None = None, **options: Any
) -> Axes:
    """Draw a result that says by `drawn_as` which kinds of results it is; see `Drawable.plot`.

    Raises
    ------
    SelectionError
        No such figure, or none of such results.
    """
    kinds: tuple[str, ...] = result.drawn_as
    if not kinds and (rows := getattr(result, "rows", ())):
        kinds = getattr(rows[0], "drawn_as", ()) or ("values",)
    if not kinds:
        raise SelectionError(f"there is nothing to draw: these {type(result).__name__} are empty")
    name = next(iter(figures_of(*kinds))) if figure is None else named(figure, kinds).name
    axes = draw(name, result, ax=ax, **options)
    # A new figure is shown below the cell of a notebook.
    notebook: Any = sys.modules.get("IPython") if ax is None else None
    if notebook and hasattr(notebook.get_ipython(), "kernel"):
        png, drawn = BytesIO(), cast("Any", axes.figure)
        drawn.savefig(png, format="png", dpi=_DOTS_IN_NOTEBOOKS)
        shown: Any = import_module("IPython.display")
        shown.display(shown.Image(png.getvalue()))
    return axes
