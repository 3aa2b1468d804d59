"""Shows results as the options of a command say, and sets its exit code."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from evalstats_plugin import __version__
from evalstats_plugin.results import Results


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
    from evalstats_plugin.report import formats

    said = {"confidence_level": f"{chosen['confidence_level']:g}"}
    how = [f"{n.replace('_', ' ')} {said.get(n, chosen[n])}" for n in names if n != "baseline"]
    heading = ", ".join([f"evalstats-plugin {__version__}", *how])
    if chosen["form"] == "json":
        about = {"version": __version__, "command": command_of(ctx)}
        about |= {n: chosen[n] for n in names}
        click.echo((to_json or formats.to_json)(results, about))
    elif chosen["form"] == "csv":
        click.echo(formats.to_csv(results), nl=False)
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
