"""The table on the terminal."""
# PART notes - Notes of many rows, gathered: each said once, with the rows it is about.
# PART formats - Results for machines and documents: JSON, CSV, Markdown.

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from io import StringIO
from itertools import groupby
from typing import Any, Protocol, TextIO, TypeVar, cast

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from evalstats_plugin.data.results import Results
from evalstats_plugin.errors import few
from evalstats_plugin.scores.rows import Intervals, ScoreInterval

_ARROWS = {True: " ↑", False: " ↓", None: ""}


def print_intervals(results: Intervals, file: TextIO, *, heading: str, width: int | None) -> None:
    """Print one table per model, then the notes."""
    marks = note_numbers(results.rows)
    by_model = groupby(results.rows, key=lambda row: row.model)
    tables = [_scores(model, list(rows), marks) for model, rows in by_model]
    print_all(tables, note_lines(results), [heading], file=file, width=width)


def print_all(
    tables: Sequence[Table],
    said: Sequence[str],
    closing: Sequence[str],
    *,
    file: TextIO,
    width: int | None,
) -> None:
    """Print tables, the notes on them, and closing words."""
    console = Console(file=file, width=width, highlight=False, emoji=False)
    for table in tables:
        console.print(table)
    if said:
        console.print(Text("Notes", style="bold"))
        console.print(_hanging(said))
    for text in closing:
        console.print(Text(text, style="dim"))


class _Line:
    """A text that fits on a line, as nearly all do: quicker than one that might be wrapped."""

    def __init__(self, text: Text) -> None:
        self.text = text
        self.width = cell_len(text.plain)
        self.longest_word = max(map(cell_len, text.plain.split()), default=0)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(self.longest_word, self.width)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.width > options.max_width:
            yield self.text
            return
        left = options.max_width - self.width if options.justify == "right" else 0
        yield Segment(" " * left + self.text.plain)


class _Table(Table):
    """Shows names as they are, never as markup."""

    def add_row(self, *cells: RenderableType | None, **more: Any) -> None:
        """Add cells, of which texts are shown as they are."""
        texts = [Text(cell) if isinstance(cell, str) else cell for cell in cells]
        super().add_row(*(_line(text) for text in texts), **more)


def _line(cell: RenderableType | None) -> RenderableType | None:
    if not isinstance(cell, Text) or cell.style or cell.spans or "\n" in cell.plain:
        return cell
    return _Line(cell)


def titled(title: str) -> Table:
    """Return an empty table as narrow as one can be, names shown as they are."""
    return _Table(
        title=Text(title, style="bold"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=0,
    )


def _scores(model: str, rows: Sequence[ScoreInterval], marks: dict[str, int]) -> Table:
    table = titled(model)
    table.add_column("Task", overflow="fold", min_width=8)
    table.add_column("Metric", overflow="fold", min_width=6)
    table.add_column("n", justify="right", no_wrap=True)
    table.add_column("Estimate", justify="right", no_wrap=True)
    table.add_column(f"{percent(rows[0].confidence_level)} interval", no_wrap=True)
    table.add_column("Method", overflow="fold", min_width=6)
    table.add_column("", no_wrap=True)
    previous = None
    for row in rows:
        place = (row.task, row.depth, row.kind)
        task = "" if place == previous else "  " * row.depth + row.task
        previous = place
        table.add_row(
            Text(task, style="bold" if row.kind == "group" else ""),
            # A filter goes on a line of its own: together they seldom fit.
            Text(short_metric(row.metric).replace(",", "\n,")),
            items(row),
            number(row.estimate) + _ARROWS[row.higher_is_better],
            interval_text(row),
            Text(row.method),
            Text(",".join(str(marks[n]) for n in row.notes), style="dim"),
        )
        if row.naive_low is not None and row.naive_high is not None:
            naive = f"[{number(row.naive_low)}, {number(row.naive_high)}]"
            table.add_row("", "naive", "", "", naive, clusters(row), "", style="dim")
    return table


def _hanging(lines: Sequence[str]) -> Table:
    """Lay out notes so that a long one is indented under its number."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    # Paths have no blanks to break at, and must not be cut.
    grid.add_column(overflow="fold")
    for line in lines:
        mark, _, text = line.partition(" ")
        grid.add_row(Text(mark), Text(text))
    return grid


def percent(level: float) -> str:
    """Write a confidence level as people say it: 95 %."""
    return f"{100 * level:.6g} %"


def number(value: float | None) -> str:
    """Write a score: four decimals as harnesses do, fewer digits of the large."""
    if value is None:
        return "–"
    size = abs(value)
    return f"{value:.4f}" if size < 100 else f"{value:.2f}" if size < 10_000 else f"{value:.3g}"


def interval_text(row: ScoreInterval) -> str:
    """Write an interval, or a dash."""
    if row.low is None or row.high is None:
        return "–"
    return f"[{number(row.low)}, {number(row.high)}]"


def clusters(row: ScoreInterval) -> str:
    """Write what clusters do: to the variance, and how alike their items are."""
    known = (("deff", row.design_effect), ("ICC", row.icc))
    return ", ".join(f"{name} {value:.2f}" for name, value in known if value is not None)


def items(row: ScoreInterval) -> str:
    """Write the number of items, and of epochs where there are several."""
    return f"{row.n_items}×{row.n_epochs}" if row.n_epochs > 1 else str(row.n_items)


class Noted(Protocol):
    """A row of results that may carry notes."""

    @property
    def task(self) -> str: ...  # noqa: D102 - as in the records
    @property
    def metric(self) -> str: ...  # noqa: D102
    @property
    def notes(self) -> tuple[str, ...]: ...  # noqa: D102


NotedT = TypeVar("NotedT", bound=Noted)


def gather(rows: Sequence[NotedT]) -> dict[str, list[NotedT]]:
    """Return the rows of each note, notes in order of first appearance."""
    found: dict[str, list[NotedT]] = {}
    for row in rows:
        for note in row.notes:
            found.setdefault(note, []).append(row)
    return found


def note_numbers(rows: Sequence[Noted]) -> dict[str, int]:
    """Return the footnote number of each note."""
    return {note: i for i, note in enumerate(gather(rows), 1)}


def note_lines(results: Results[NotedT]) -> list[str]:
    """Return the notes as lines of text: footnotes first, then those of the whole."""
    footnotes = [
        f"{i}. {note} ({_rows(about)})"
        for i, (note, about) in enumerate(gather(results.rows).items(), 1)
    ]
    return [*footnotes, *(f"* {note}" for note in results.notes)]


def _rows(rows: Sequence[Noted]) -> str:
    places = list(dict.fromkeys(f"{row.task} {short_metric(row.metric)}" for row in rows))
    return few(places)


def short_metric(metric: str) -> str:
    """Leave out lm-eval's default filter, as its own table might."""
    return metric.removesuffix(",none")


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


def intervals_markdown(results: Intervals, heading: str) -> str:
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
    marks = note_numbers(results.rows)
    rows = [
        [
            row.model,
            "&nbsp;&nbsp;" * row.depth + markdown_cell(row.task),
            short_metric(row.metric),
            items(row),
            number(row.estimate),
            interval_text(row),
            row.method,
            ", ".join(str(marks[n]) for n in row.notes),
        ]
        for row in results
    ]
    lines = [markdown_line(header), markdown_line(["---"] * 3 + ["---:"] * 2 + ["---"] * 3)]
    lines += [
        markdown_line([markdown_cell(c) if i != 1 else c for i, c in enumerate(row)])
        for row in rows
    ]
    said = [text.replace("* ", "- ", 1) for text in note_lines(results)]
    return "\n".join([*lines, "", *said, "", heading, ""])


def markdown_line(cells: list[str]) -> str:
    """Return one line of a Markdown table."""
    return "| " + " | ".join(cells) + " |"


def markdown_cell(text: str) -> str:
    """Return text that does not break a Markdown table."""
    return text.replace("|", "\\|").replace("\n", " ")
