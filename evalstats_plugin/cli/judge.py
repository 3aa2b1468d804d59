"""``evalstats-plugin judge``: a judge on all items, corrected by human labels on a few."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from evalstats_plugin.cli.shell import options, output
from evalstats_plugin.cli.shell.commands import Sectioned
from evalstats_plugin.cli.shell.options import READING
from evalstats_plugin.errors import LogError, SelectionError

EXPECTED = "expected one object or line per item with the fields 'item' and 'score'"

_SECTIONS = {
    "Labels": ("judge", "human", "labels"),
    "Intervals": ("confidence_level", "bounds"),
    "Output": ("figure", "figure_file", "form", "quiet"),
    **READING,
}


@click.command(cls=Sectioned, sections=_SECTIONS)
@click.argument("paths", nargs=-1, required=True, metavar="PATHS...")
@click.option(
    "--judge", metavar="METRIC", required=True, help="Metric of the judge, which scored all items."
)
@click.option("--human", metavar="METRIC", help="Metric of the human labels, which few items have.")
@click.option(
    "--labels",
    metavar="FILE",
    help="Human labels from a CSV or JSONL file with the fields item and score.",
)
@output.figure_option("intervals")
@options.reading
@options.confidence_level
@options.bounds
@options.form
@options.quiet
@click.pass_context
def judge(ctx: click.Context, paths: tuple[str, ...], **chosen: Any) -> None:
    """Estimate human scores from a judge on all items and human labels on a few.

    Prediction-powered inference (PPI++): the judge's mean, corrected by how it differs from the
    labels. Pass the labels as a metric of the logs (--human) or from a file (--labels).
    """
    from evalstats_plugin.cli.shell.output import show
    from evalstats_plugin.cli.shell.reading import read_logs
    from evalstats_plugin.plugins import load_plugins
    from evalstats_plugin.report.text import intervals_markdown, print_intervals
    from evalstats_plugin.scores.judged import prediction_powered

    if (chosen["human"] is None) == (chosen["labels"] is None):
        both = "both --human and --labels" if chosen["human"] else "neither --human nor --labels"
        msg = f"{both} given: pass one of them, the source of the human labels"
        raise SelectionError(msg)
    output.check_figure(chosen, "intervals")
    labels = None if chosen["labels"] is None else read_labels(chosen["labels"])
    results = prediction_powered(
        read_logs(paths, chosen, load_plugins(ctx.obj or ())),
        human=chosen["human"],
        judge=chosen["judge"],
        labels=labels,
        confidence_level=chosen["confidence_level"],
        bounds=chosen["bounds"],
    )
    output.save_asked(chosen, {"intervals": lambda: results})
    show(
        ctx,
        results,
        chosen,
        ("judge", "confidence_level"),
        print_table=print_intervals,
        to_markdown=intervals_markdown,
    )


def read_labels(path: str) -> dict[str, float]:
    """Read labels by item id, from CSV with a heading or, by the ending .jsonl, lines of JSON.

    An empty score is an item without a label.

    Raises
    ------
    LogError
        If the file cannot be read, lacks a field, or names an item twice.
    """
    labels: dict[str, float] = {}
    for number, row in _rows(Path(path)):
        if "item" not in row or "score" not in row:
            there = ", ".join(map(repr, row)) or "nothing"
            msg = f"{path}, record {number}: {there} found, {EXPECTED}"
            raise LogError(msg)
        item, score = str(row["item"]), row["score"]
        if score in (None, ""):
            continue
        if item in labels:
            msg = f"{path}, record {number}: item {item!r} has a second label; expected one"
            raise LogError(msg)
        try:
            labels[item] = float(score)
        except (TypeError, ValueError):
            msg = f"{path}, record {number}: score {score!r} found, expected a number"
            raise LogError(msg) from None
    return labels


def _rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{path}: labels cannot be read: {error}"
        raise LogError(msg) from error
    if path.suffix != ".jsonl":
        yield from enumerate(csv.DictReader(text.splitlines()), 1)
        return
    for number, line in enumerate(filter(str.strip, text.splitlines()), 1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            msg = f"{path}, record {number}: not JSON: {error}"
            raise LogError(msg) from error
        if not isinstance(row, dict):
            msg = f"{path}, record {number}: {line[:40]} found, {EXPECTED}"
            raise LogError(msg)
        yield number, row  # pyright: ignore[reportUnknownVariableType] - checked on use
