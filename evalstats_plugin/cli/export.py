"""``evalstats-plugin export``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from evalstats_plugin.cli.shell.options import Command, file, paths, quiet, takes, under
from evalstats_plugin.cli.shell.running import Reading, loaded_plugins, reading, show_written
from evalstats_plugin.errors import SelectionError
from evalstats_plugin.runtime.writing import may_overwrite

_written = under("What is written")
_every_eval_ever = under("Every Eval Ever")


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is written, and where."""

    output: str = file("File to write; for every-eval-ever a folder.", "-o", required=True)
    quiet: bool = quiet()
    to: str | None = _written(
        "csv, tsv, jsonl, py-irt, parquet, every-eval-ever, or a format of a plugin.  [default: by "
        "the ending of the output]",
        metavar="FORMAT",
    )
    matrix: bool = _written(
        "Write one row per model and one column per item (in Parquet our own matrix file) instead "
        "of one row per epoch.",
        default=False,
    )
    intervals: bool = _every_eval_ever(
        "Write our interval as each score's uncertainty, as annotate does.", default=False
    )
    organization: str | None = _every_eval_ever(
        "Organization that made the evaluation.", metavar="NAME"
    )
    relationship: str | None = _every_eval_ever(
        "Relationship of the evaluator to the model's developer: first_party, third_party, "
        "collaborative or other.  [default: other]",
        metavar="KIND",
    )


@click.command(cls=Command)
@paths
@takes("asked", Options)
@reading
def export(paths: tuple[str, ...], *, reading: Reading, asked: Options) -> None:
    """Export item scores as CSV, TSV, JSONL or Parquet, or in the Every Eval Ever schema.

    PATHS are results files, folders or patterns of any harness. Notes on what the format cannot
    hold go to standard error, the names of the files written to standard output.
    """
    from evalstats_plugin.logs.annotating import annotate
    from evalstats_plugin.logs.exporting import export as write
    from evalstats_plugin.logs.exporting import exporter_of

    plugins = loaded_plugins()
    file = Path(asked.output)
    to = exporter_of(asked.to, file, plugins).name
    if asked.intervals and to != "every-eval-ever":
        msg = f"--intervals does not go with --to {to}: it needs --to every-eval-ever"
        raise SelectionError(msg)
    # Not every format has these options.
    of_formats = ("matrix", "organization", "relationship")
    given = {name: value for name in of_formats if (value := getattr(asked, name))}
    responses = reading.read(paths, plugins, quiet=asked.quiet)
    done = write(responses, file, to=to, overwrite=may_overwrite(), plugins=plugins, **given)
    if asked.intervals:
        annotate(*done.paths, in_place=True, plugins=plugins)
    show_written(done.paths, (*responses.notes, *done.notes), quiet=asked.quiet)
