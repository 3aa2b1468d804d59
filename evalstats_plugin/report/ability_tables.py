"""How tables of abilities are laid out, on the terminal and in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TextIO

from rich.table import Table
from rich.text import Text

from evalstats_plugin.report import formats
from evalstats_plugin.report.text import print_all, titled
from evalstats_plugin.results import Results

Lines = list[list[str]]
"""Of a table: headers first."""


def filled(title: str, lines: Lines, *, left: Sequence[int]) -> Table:
    """Lay lines out; the columns of names fold, those of numbers stand right but for `left`."""
    table = titled(title)
    names = 2 if lines[0][1] == "Task" else 1
    for k, header in enumerate(lines[0]):
        if k < names:
            table.add_column(header, overflow="fold", min_width=6)
        else:
            table.add_column(header, justify="left" if k in left else "right", no_wrap=True)
    for line in lines[1:]:
        table.add_row(*(Text(cell) for cell in line))
    return table


def markdown(title: str, lines: Lines) -> list[str]:
    """Lay the same lines out in Markdown, with an empty one after them."""
    header, *rows = lines
    rule = ["---", *["---:"] * (len(header) - 1)]
    written = [formats.line([formats.cell(cell) for cell in row]) for row in rows]
    return [f"**{title}**", "", formats.line(header), formats.line(rule), *written, ""]


def signed(value: float | None) -> str:
    """Write a number on a scale that has no end."""
    return "–" if value is None else f"{value:+.2f}" if abs(value) < 1000 else f"{value:+.1e}"


def plain(value: float | None) -> str:
    """Write a number that is not negative."""
    return "–" if value is None else f"{value:.2f}" if value < 1000 else f"{value:.0e}"


def share(value: float | None) -> str:
    """Write a score as a percentage."""
    return "–" if value is None else f"{100 * value:.1f} %"


class Page(NamedTuple):
    """All there is to show of some results."""

    tables: Sequence[tuple[str, Lines, Sequence[int]]]
    """Title, lines, and which columns stand left."""
    legend: Sequence[str]
    """What the words mean."""


def print_page(
    page: Page, results: Results[Any], file: TextIO, *, heading: str, width: int | None
) -> None:
    """Print the tables, the notes, and what the words mean."""
    tables = [filled(title, lines, left=left) for title, lines, left in page.tables]
    said = [f"* {note}" for note in results.notes]
    print_all(tables, said, [*page.legend, heading], file=file, width=width)


def page_markdown(page: Page, results: Results[Any], heading: str) -> str:
    """Return the same as Markdown."""
    blocks = [text for title, lines, _ in page.tables for text in markdown(title, lines)]
    said = [f"- {note}" for note in results.notes]
    ends = [part for text in page.legend for part in (text, "")]
    return "\n".join([*blocks, *said, "", *ends, heading, ""])
