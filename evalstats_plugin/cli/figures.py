"""``--figure NAME -o FILE`` of every command that has results to draw."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from evalstats_plugin.cli.options import FunctionT
from evalstats_plugin.errors import SelectionError
from evalstats_plugin.report.figures.catalogue import figures_of

DEFAULT = {"figure": None, "figure_file": None}
"""What the options are when they are not given."""


def option(*kinds: str) -> Callable[[FunctionT], FunctionT]:
    """Add the options to a command with these kinds of results, for `check` and `save_asked`."""
    figure = click.option(
        "--figure", metavar="NAME", help=f"Draw into FILE: {', '.join(figures_of(*kinds))}."
    )
    place = click.option(
        "--output", "-o", "figure_file", metavar="FILE",
        help="Where the figure goes: a name that ends in .png, .svg or .pdf.",
    )  # fmt: skip

    def decorate(function: FunctionT) -> FunctionT:
        return figure(place(function))

    return decorate


def check(chosen: Mapping[str, Any], *kinds: str) -> None:
    """Refuse before the work what would fail after it.

    Raises
    ------
    SelectionError
        The options do not go together, there is no such figure of these kinds of results, or the
        file's name does not end in a format.
    WriteError, DesignError
        As of `evalstats_plugin.report.figures.files.check_figure`.
    """
    figure, place = chosen["figure"], chosen["figure_file"]
    if figure is None and place is None:
        return
    here = figures_of(*kinds)
    if figure is None:
        msg = f"-o {place} found without --figure: name one of {', '.join(here)}"
        raise SelectionError(msg)
    from evalstats_plugin.report.figures.catalogue import named
    from evalstats_plugin.report.figures.files import FORMATS, check_figure

    if not here:
        msg = f"--figure {figure} found, but there is nothing to draw of what is asked for here"
        raise SelectionError(msg)
    if Path(figure).suffix.lower() in FORMATS:
        first = next(iter(here))
        msg = f"--figure {figure} found, expected a name and a file: --figure {first} -o {figure}"
        raise SelectionError(msg)
    named(figure, kinds)
    if place is None:
        msg = f"--figure {figure} found without a file: say where it goes with -o {figure}.png"
        raise SelectionError(msg)
    check_figure(place, asked="-o")


def save_asked(chosen: Mapping[str, Any], results: Mapping[str, Callable[[], Any]]) -> None:
    """Draw what was asked for into its file, if anything was.

    Parameters
    ----------
    results
        By kind; called only if the figure is of that kind.

    Raises
    ------
    SelectionError, WriteError, DesignError
        As of `check`; or the results are more than a figure can show.
    """
    if chosen["figure"] is None:
        return
    from evalstats_plugin.report.figures.catalogue import draw, named
    from evalstats_plugin.report.figures.files import save

    figure = named(chosen["figure"], tuple(results))
    kind = next(kind for kind in figure.takes if kind in results)
    axes: Any = draw(figure.name, results[kind]())
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        save(axes.figure, chosen["figure_file"])
    for warning in told:
        if not chosen.get("quiet"):
            click.echo(f"{chosen['figure_file']}: {warning.message}", err=True)
