"""Item banks, for people: what may be asked, and what is left out and why."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TextIO

from rich.text import Text

from evalstats_plugin.report import formats
from evalstats_plugin.report.text import print_all, titled
from evalstats_plugin.wording import few

if TYPE_CHECKING:
    from evalstats_plugin.analyses.adaptive_bank import BankTask
    from evalstats_plugin.results import Results

LEGEND = (
    "Asked: items that may be asked; the others count in the full score all the same. Difficulty, "
    "Discr.: medians of these; S.e.: standard error of an average model's ability, were all of "
    "them asked."
)
_MOST_NAMES = 5
_COLUMNS = ("Task", "Items", "Asked", "Difficulty", "Discr.", "S.e.", "Cost")


def print_bank(
    results: Results[BankTask], file: TextIO, *, heading: str, width: int | None
) -> None:
    """Print a line for each task, then what is left out."""
    table = titled(f"{results.rows[0].n_models} models calibrated, by {results.rows[0].metric}")
    for name in _shown(results):
        left = name == "Task"
        table.add_column(
            name, justify="left" if left else "right", no_wrap=not left, overflow="fold"
        )
    for row in results.rows:
        table.add_row(*(Text(cell) for cell in _cells(row)[: len(table.columns)]))
    said = [f"* {text}" for text in (*_left_out(results), *results.notes)]
    print_all([table], said, [LEGEND, heading], file=file, width=width)


def to_markdown(results: Results[BankTask], heading: str) -> str:
    """Return one Markdown table, what is left out, and how it was made."""
    names = _shown(results)
    lines = [formats.line(names), formats.line(["---", *["---:"] * (len(names) - 1)])]
    lines += [formats.line([formats.cell(c) for c in _cells(row)[: len(names)]]) for row in results]
    said = [f"- {formats.cell(text)}" for text in (*_left_out(results), *results.notes)]
    return "\n".join([*lines, "", LEGEND, "", *said, "", heading, ""])


def _shown(results: Results[BankTask]) -> list[str]:
    return [*_COLUMNS] if any(row.cost is not None for row in results.rows) else [*_COLUMNS[:-1]]


def _cells(row: BankTask) -> list[str]:
    return [
        row.task,
        str(row.n_items),
        str(row.n_usable),
        "–" if row.difficulty is None else f"{row.difficulty:+.2f}",
        "–" if row.discrimination is None else f"{row.discrimination:.2f}",
        "–" if row.std_error is None else f"{row.std_error:.3f}",
        "–" if row.cost is None else f"{row.cost:,.6g}",
    ]


def _left_out(results: Results[BankTask]) -> list[str]:
    """Say of each task and reason how many items are not asked, and name a few."""
    said: list[str] = []
    for row in results.rows:
        parts = [text.partition(": ") for text in row.left_out]
        for reason, count in Counter(reason for _, _, reason in parts).items():
            names = [item for item, _, why in parts if why == reason]
            said.append(f"not asked, {reason}: {count} of {row.task} ({few(names, _MOST_NAMES)})")
    return said
