"""``evalstats-plugin judge``: a judge on all items, corrected by human labels on a few."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from evalstats_plugin.cli.shell.options import OF_ONE_SCORE, Command, Intervals, takes, under
from evalstats_plugin.cli.shell.running import Run, csv_rows, on_logs, text_of
from evalstats_plugin.errors import LogError, SelectionError
from evalstats_plugin.runtime.files import number_in

_labels = under("Labels")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Where the labels are."""

    judge: str = _labels(
        "Metric of the judge, which scored all items.", required=True, metavar="METRIC"
    )
    human: str | None = _labels(
        "Metric of the human labels, which only some items have.", metavar="METRIC"
    )
    labels: str | None = _labels(
        "Human labels from a CSV or JSONL file with the fields item and score.",
        metavar="FILE", type=click.Path(),
    )  # fmt: skip


@click.command(cls=Command)
@takes("asked", Options)
@takes("intervals", Intervals, without=("method", "seed", "missing", *OF_ONE_SCORE))
@on_logs("intervals")
def judge(run: Run, *, asked: Options, intervals: Intervals) -> None:
    """Estimate human scores from a judge on all items and human labels on a few.

    Prediction-powered inference (PPI++): the judge's mean, corrected by how it differs from the
    labels. Pass the labels as a metric of the logs (--human) or from a file (--labels).
    """
    from evalstats_plugin.report import text
    from evalstats_plugin.scores.judged import HUMAN, prediction_powered

    if (asked.human is None) == (asked.labels is None):
        both = "both --human and --labels are" if asked.human else "neither --human nor --labels is"
        raise SelectionError(f"{both} given: pass one of them, the source of the human labels")
    labels = None if asked.labels is None else read_labels(asked.labels)
    responses = run.read()
    results = prediction_powered(
        responses,
        human=asked.human,
        judge=asked.judge,
        labels=labels,
        confidence_level=intervals.confidence_level,
        measure=intervals.measures(responses, HUMAN),
    )
    run.output.draw({"intervals": lambda: results})
    how = {"judge": asked.judge, "confidence_level": intervals.confidence_level}
    run.show(results, how, text.INTERVALS)


def read_labels(path: str) -> dict[str, float]:
    """Read labels by item id, from CSV with a heading or, by the ending .jsonl, lines of JSON.

    An empty score is an item without a label.

    Raises
    ------
    LogError
        If the file cannot be read, lacks a field, or names an item twice.
    """
    labels: dict[str, float] = {}
    for number, row in _rows(path):
        where = f"{path}, record {number}"
        if "item" not in row or "score" not in row:
            there = ", ".join(map(repr, row)) or "none"
            msg = f"{where} has the fields {there}: each needs the fields 'item' and 'score'"
            raise LogError(msg)
        item, score = str(row["item"]), row["score"]
        if score in (None, ""):
            continue
        if item in labels:
            raise LogError(f"{where}: item {item!r} has a second label: keep one of them")
        try:
            labels[item] = number_in(score) if isinstance(score, str) else float(score)
        except (TypeError, ValueError):
            msg = f"{where}: score {score!r} is not a number: leave it empty if there is none"
            raise LogError(msg) from None
    return labels


def _rows(path: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    if Path(path).suffix != ".jsonl":
        yield from enumerate(csv_rows(path, "labels"), 1)
        return
    lines = text_of(path, "labels").splitlines()
    for number, line in enumerate(filter(str.strip, lines), 1):
        try:
            row: Any = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise LogError(f"{path}, record {number}: not JSON: {error}") from error
        if not isinstance(row, dict):
            msg = f"{path}, record {number}: {line[:40]} is no object with 'item' and 'score'"
            raise LogError(msg)
        yield number, row  # pyright: ignore[reportUnknownVariableType] - checked on use
