"""The table on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, TextIO

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from evalstats_plugin.report import notes
from evalstats_plugin.results import Intervals, ScoreInterval

_ARROWS = {True: " ↑", False: " ↓", None: ""}


def print_intervals(results: Intervals, file: TextIO, *, heading: str, width: int | None) -> None:
    """Print one table per model, then the notes."""
    marks = notes.numbers(results.rows)
    by_model = groupby(results.rows, key=lambda row: row.model)
    tables = [_scores(model, list(rows), marks) for model, rows in by_model]
    print_all(tables, notes.lines(results), [heading], file=file, width=width)


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
            Text(notes.short_metric(row.metric).replace(",", "\n,")),
            items(row),
            number(row.estimate) + _ARROWS[row.higher_is_better],
            interval(row),
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


def interval(row: ScoreInterval) -> str:
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
