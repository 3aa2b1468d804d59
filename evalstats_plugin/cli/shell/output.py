"""Shows results as the options of a command say, and sets its exit code."""

from __future__ import annotations

import shutil
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from evalstats_plugin.cli.shell.options import FunctionT
from evalstats_plugin.data.results import Results
from evalstats_plugin.errors import SelectionError
from evalstats_plugin.report.figures import figures_of
from evalstats_plugin.runtime import VERSION

DEFAULT = {"figure": None, "figure_file": None}
"""What the options are when they are not given."""


def show(
    ctx: click.Context,
    results: Results[Any],
    chosen: Mapping[str, Any],
    names: Sequence[str],
    *,
    print_table: Callable[..., None],
    to_markdown: Callable[[Any, str], str],
    to_json: Callable[[Any, Mapping[str, Any]], str] | None = None,
) -> None:
    """Print results in the format asked for; exit with 1 where a log was left out.

    Parameters
    ----------
    names
        Options that tell how the results came about, in the order they are printed.
    print_table, to_markdown
        What shows such results to people.
    to_json
        What writes them for machines, where there is more than rows.
    """
    from evalstats_plugin.report import text

    said = {"confidence_level": f"{chosen['confidence_level']:g}"}
    how = [f"{n.replace('_', ' ')} {said.get(n, chosen[n])}" for n in names if n != "baseline"]
    heading = ", ".join([f"evalstats-plugin {VERSION}", *how])
    if chosen["form"] == "json":
        about = {"version": VERSION, "command": command_of(ctx)}
        about |= {n: chosen[n] for n in names}
        click.echo((to_json or text.to_json)(results, about))
    elif chosen["form"] == "csv":
        click.echo(text.to_csv(results), nl=False)
    elif chosen["form"] == "markdown":
        click.echo(to_markdown(results, heading), nl=False)
    else:
        # A table for a file or a pipe is laid out for 80 columns, wherever it was made.
        width = None if sys.stdout.isatty() else shutil.get_terminal_size((80, 24)).columns
        print_table(results, sys.stdout, heading=heading, width=width)
    if any(note.startswith("left out: ") for note in results.notes):
        ctx.exit(1)


def command_of(ctx: click.Context) -> str:
    """Return a command's name as one types it, such as ``"adapt run inspect"``."""
    if ctx.parent is None:
        # The program, which may be called by several names.
        return ""
    return f"{command_of(ctx.parent)} {ctx.info_name}".strip()


def figure_option(*kinds: str) -> Callable[[FunctionT], FunctionT]:
    """Add the options to a command with these kinds of results, for `check` and `save_asked`."""
    figure = click.option(
        "--figure", metavar="NAME", help=f"Draw into FILE: {', '.join(figures_of(*kinds))}."
    )
    place = click.option(
        "--output", "-o", "figure_file", metavar="FILE",
        help="File of the figure: .png, .svg or .pdf.",
    )  # fmt: skip

    def decorate(function: FunctionT) -> FunctionT:
        return figure(place(function))

    return decorate


def check_figure(chosen: Mapping[str, Any], *kinds: str) -> None:
    """Refuse before the work what would fail after it.

    Raises
    ------
    SelectionError
        The options do not go together, there is no such figure of these kinds of results, or the
        file's name does not end in a format.
    WriteError, DesignError
        As of `evalstats_plugin.report.figures.canvas`.
    """
    figure, place = chosen["figure"], chosen["figure_file"]
    if figure is None and place is None:
        return
    here = figures_of(*kinds)
    if figure is None:
        msg = f"-o {place} found without --figure: name one of {', '.join(here)}"
        raise SelectionError(msg)
    from evalstats_plugin.report.figures import named
    from evalstats_plugin.report.figures.canvas import FORMATS, check_figure

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
    from evalstats_plugin.report.figures import draw, named
    from evalstats_plugin.report.figures.canvas import save

    figure = named(chosen["figure"], tuple(results))
    kind = next(kind for kind in figure.takes if kind in results)
    axes: Any = draw(figure.name, results[kind]())
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        save(axes.figure, chosen["figure_file"])
    for warning in told:
        if not chosen.get("quiet"):
            click.echo(f"{chosen['figure_file']}: {warning.message}", err=True)
