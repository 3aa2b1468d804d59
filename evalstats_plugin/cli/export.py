"""``evalstats-plugin export``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from evalstats_plugin.cli.shell import options
from evalstats_plugin.cli.shell.commands import Sectioned
from evalstats_plugin.cli.shell.options import READING
from evalstats_plugin.errors import SelectionError

_SECTIONS = {
    "What is written": ("to", "output", "matrix", "intervals", "organization", "relationship"),
    **READING,
}  # fmt: skip

_OF_FORMAT = ("matrix", "organization", "relationship")
"""Options that not every format has."""


@click.command(cls=Sectioned, sections=_SECTIONS)
@click.argument("paths", nargs=-1, required=True, metavar="PATHS...")
@click.option(
    "--to",
    metavar="FORMAT",
    help="csv, tsv, jsonl, parquet, every-eval-ever, or one of a plugin's.  [default: by the "
    "ending of the output]",
)
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    required=True,
    help="File to write; for every-eval-ever a folder.",
)
@click.option(
    "--matrix",
    is_flag=True,
    help="Write one row per model and one column per item (in Parquet our own "
    "matrix file) instead of one row per epoch.",
)
@click.option(
    "--intervals",
    is_flag=True,
    help="every-eval-ever: write our interval as each score's uncertainty, as annotate does.",
)
@click.option(
    "--organization", metavar="NAME", help="every-eval-ever: organization that made the evaluation."
)
@click.option(
    "--relationship",
    metavar="KIND",
    help="every-eval-ever: relationship of the evaluator to the model's developer: "
    "first_party, third_party, collaborative or other.  [default: other]",
)
@options.reading
@options.quiet
@click.pass_context
def export(ctx: click.Context, paths: tuple[str, ...], **chosen: Any) -> None:  # fmt: skip
    """Export item scores as CSV, TSV, JSONL or Parquet, or in the Every Eval Ever schema.

    PATHS are results files, folders or patterns of any harness. Notes on what the format cannot
    hold go to standard error, the files written to standard output.
    """
    from evalstats_plugin.cli.shell.reading import read_logs
    from evalstats_plugin.logs.annotating import annotate
    from evalstats_plugin.logs.exporting import export as write
    from evalstats_plugin.logs.exporting import exporter_of
    from evalstats_plugin.plugins import load_plugins

    plugins = load_plugins(ctx.obj or ())
    to = exporter_of(chosen["to"], chosen["output"], plugins).name
    if chosen["intervals"] and to != "every-eval-ever":
        msg = f"--intervals and --to {to} found, expected --to every-eval-ever with it"
        raise SelectionError(msg)
    responses = read_logs(paths, chosen, plugins)
    done = write(responses, chosen["output"], to=to, plugins=plugins, **_given(chosen))
    if chosen["intervals"]:
        annotate(*done.paths, in_place=True, plugins=plugins)
    if not chosen["quiet"]:
        for note in (*responses.notes, *done.notes):
            click.echo(f"note: {note}", err=True)
        for path in done.paths:
            click.echo(path)
    if any(note.startswith("left out: ") for note in responses.notes):
        ctx.exit(1)


def _given(chosen: Mapping[str, Any]) -> dict[str, Any]:
    return {name: chosen[name] for name in _OF_FORMAT if chosen[name]}
