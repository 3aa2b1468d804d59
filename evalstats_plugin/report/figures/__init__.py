"""Figures: results in, Matplotlib axes out. `catalogue.FIGURES` lists them.

Nothing here touches pyplot or the user's settings. What colours tell, shapes or hatches tell too;
names are shown whole, as they are, whatever they hold.
"""
# PART catalogue - The figures there are: name, what it shows, which function draws it, of which results.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from evalstats_plugin.errors import SelectionError, no_such

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_WORDS = {
    "abilities": "abilities",
    "comparisons": "comparisons of models",
    "fit": "an item response model",
    "hierarchical": "a hierarchical model",
    "intervals": "scores with intervals",
    "items": "items of an item response model",
    "power": "power",
    "ranking": "a ranking by comparisons",
    "simulation": "simulated adaptive tests",
    "study": "a validation study",
    "tests": "adaptive tests",
    "trace": "one adaptive test",
    "variance parts": "variance parts",
}
"""Kinds of results as messages call them."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One kind of figure."""

    name: str
    summary: str
    function: str
    """``"module:function"``, loaded on use; takes a result and ``ax``, returns the axes."""
    takes: tuple[str, ...]
    """Kinds of results, such as ``"intervals"``."""


FIGURES = {
    figure.name: figure
    for figure in (
        Figure(
            "forest", "estimates with intervals, models under tasks", "evalstats_plugin.report.figures.scores:plot_forest",
            ("intervals", "abilities", "ranking", "hierarchical", "tests"),
        ),
        Figure(
            "shrinkage", "scores as observed and where they are pulled",
            "evalstats_plugin.report.figures.scores:plot_shrinkage", ("hierarchical",),
        ),
        Figure(
            "matrix", "of every two models, how probable it is that one is better",
            "evalstats_plugin.report.figures.comparisons:plot_comparison_matrix", ("comparisons", "ranking"),
        ),
        Figure(
            "differences", "differences of models with intervals, 0 marked",
            "evalstats_plugin.report.figures.comparisons:plot_differences", ("comparisons",),
        ),
        Figure(
            "ranks", "ranks that are open, and who cannot be told apart",
            "evalstats_plugin.report.figures.comparisons:plot_ranks", ("ranking", "comparisons"),
        ),
        Figure(
            "variance-parts", "variance between items and of single takes",
            "evalstats_plugin.report.figures.scores:plot_variance_parts", ("variance parts",),
        ),
        Figure(
            "curves", "probability of a right answer by ability, item by item",
            "evalstats_plugin.report.figures.abilities:plot_item_curves", ("fit",),
        ),
        Figure(
            "information", "where on the scale the items tell abilities well",
            "evalstats_plugin.report.figures.abilities:plot_information", ("fit",),
        ),
        Figure(
            "wright", "models and items on one scale", "evalstats_plugin.report.figures.abilities:plot_wright_map", ("fit",),
        ),
        Figure(
            "item-fit", "infit and outfit of the items, those to look at named",
            "evalstats_plugin.report.figures.abilities:plot_item_fit", ("items",),
        ),
        Figure(
            "power", "how often a difference is found, by number of items",
            "evalstats_plugin.report.figures.comparisons:plot_power", ("power",),
        ),
        Figure(
            "trace", "an adaptive test, item by item", "evalstats_plugin.report.figures.adaptive:plot_trace", ("trace",),
        ),
        Figure(
            "accuracy", "error of adaptive tests by number of items",
            "evalstats_plugin.report.figures.adaptive:plot_accuracy", ("simulation",),
        ),
        Figure(
            "coverage", "how often intervals held the truth, by method",
            "evalstats_plugin.report.figures.scores:plot_coverage", ("study",),
        ),
    )
}  # fmt: skip
"""By name."""


def figures_of(*kinds: str) -> dict[str, Figure]:
    """Return the figures of some kinds of results, by name."""
    return {name: figure for name, figure in FIGURES.items() if set(kinds) & set(figure.takes)}


def named(name: str, kinds: Sequence[str]) -> Figure:
    """Return the figure of a name, among those of some kinds of results.

    Raises
    ------
    SelectionError
        There is none; says which there are.
    """
    here = figures_of(*kinds)
    if name in here:
        return here[name]
    shown = ", ".join(here)
    if name in FIGURES:
        takes = " or ".join(_WORDS[kind] for kind in FIGURES[name].takes)
        msg = f"figure {name!r} shows {takes}, which there is not here: there are {shown}"
        raise SelectionError(msg)
    raise SelectionError(no_such("figure", name, here, shown))


def draw(name: str, result: Any, *, ax: Axes | None = None, **options: Any) -> Axes:
    """Draw a figure by its name.

    Raises
    ------
    SelectionError
        There is none of that name.
    """
    if name not in FIGURES:
        raise SelectionError(no_such("figure", name, FIGURES, ", ".join(FIGURES)))
    module, _, function = FIGURES[name].function.partition(":")
    return getattr(import_module(module), function)(result, ax=ax, **options)
