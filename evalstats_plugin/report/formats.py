"""Results for machines and documents: JSON, CSV, Markdown."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from io import StringIO
from typing import Any, cast

from evalstats_plugin.report import notes
from evalstats_plugin.report.text import interval, items, number, percent
from evalstats_plugin.results import Intervals, Results, ScoreInterval


def to_json(results: Results[Any], about: Mapping[str, Any]) -> str:
    """Return one JSON object: what was run, and the results."""
    whole = {
        "evalstats": {**about, "notes": list(results.notes)},
        "results": results.to_dict(),
    }
    return json.dumps(whole, indent=2, ensure_ascii=False, allow_nan=False)


def to_csv(results: Results[Any]) -> str:
    """Return comma-separated values, one row per result; several texts are joined by "; "."""
    text = StringIO()
    columns = [field.name for field in fields(results.rows[0] if results.rows else ScoreInterval)]
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    for row in results.to_dict():
        writer.writerow({name: _plain(value) for name, value in row.items()})
    return text.getvalue()


def _plain(value: Any) -> Any:
    if not isinstance(value, list | tuple):
        return value
    parts = cast("Sequence[Any]", value)
    return "; ".join(parts) if all(isinstance(part, str) for part in parts) else parts


def to_markdown(results: Intervals, heading: str) -> str:
    """Return one Markdown table, the notes, and how it was made."""
    level = results.rows[0].confidence_level if results.rows else 0.95
    header = [
        "Model",
        "Task",
        "Metric",
        "n",
        "Estimate",
        f"{percent(level)} interval",
        "Method",
        "",
    ]
    marks = notes.numbers(results.rows)
    rows = [
        [
            row.model,
            "&nbsp;&nbsp;" * row.depth + cell(row.task),
            notes.short_metric(row.metric),
            items(row),
            number(row.estimate),
            interval(row),
            row.method,
            ", ".join(str(marks[n]) for n in row.notes),
        ]
        for row in results
    ]
    lines = [line(header), line(["---"] * 3 + ["---:"] * 2 + ["---"] * 3)]
    lines += [line([cell(c) if i != 1 else c for i, c in enumerate(row)]) for row in rows]
    said = [text.replace("* ", "- ", 1) for text in notes.lines(results)]
    return "\n".join([*lines, "", *said, "", heading, ""])


def line(cells: list[str]) -> str:
    """Return one line of a Markdown table."""
    return "| " + " | ".join(cells) + " |"


def cell(text: str) -> str:
    """Return text that does not break a Markdown table."""
    return text.replace("|", "\\|").replace("\n", " ")
