"""Noise of scores from run to run: a sentence for each task, and what more would buy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from rich.console import RenderableType
from rich.text import Text

from evalstats_plugin.data.results import Results, grouped
from evalstats_plugin.errors import few
from evalstats_plugin.report.text import (
    View,
    markdown_notes,
    markdown_table,
    markdown_text,
    note_lines,
    note_numbers,
    number,
    percent,
    print_all,
    short_metric,
    titled,
)
from evalstats_plugin.runtime.untrusted import printable
from evalstats_plugin.scores.noise import NoiseRow

LEGEND = (
    "Least diff.: two runs of the same model on these items differ by more in {beyond} of 100 "
    "cases. Flips: chance that two answers to an item have different scores. Chance: share of an "
    "answer's variance that repeats and runs make, not items. Std. error: of the score beyond "
    "these items, now, with twice as many repeats, and with twice as many items."
)

_COLUMNS = (
    "Items",
    "Score",
    "Least diff.",
    "Flips",
    "Chance",
    "Std. error",
    "repeats ×2",
    "items ×2",
)

_MOST_NAMED = 8


def print_noise(
    results: Results[NoiseRow], file: TextIO, *, heading: str, width: int | None
) -> None:
    """Print a sentence on all scores, a table of each task, the notes and a legend."""
    marks = note_numbers(results.rows)
    shown: list[RenderableType] = [Text(printable(sentence(results.rows)), style="bold")]
    for (task, metric), rows in _by_task(results).items():
        title = f"{task} {short_metric(metric)}"
        table = titled(title, ("Model", *_COLUMNS, ""), right=_COLUMNS, fold={"Model": 8})
        for row in rows:
            table.add_row(Text(row.model), *_cells(row), Text(_marks(row, marks), style="dim"))
        shown.append(table)
    print_all(shown, note_lines(results), [_legend(results), heading], file=file, width=width)


def noise_markdown(results: Results[NoiseRow], heading: str) -> str:
    """Return the sentence, a table, the notes and a legend as Markdown."""
    marks = note_numbers(results.rows)
    lines = [
        [row.model, row.task, short_metric(row.metric), *_cells(row), _marks(row, marks)]
        for row in results
    ]
    table = markdown_table(
        ["Model", "Task", "Metric", *_COLUMNS, ""], lines, right=range(3, 3 + len(_COLUMNS))
    )
    parts = [markdown_text(sentence(results.rows)), "", *table, ""]
    return "\n".join([*parts, *markdown_notes(results), "", _legend(results), "", heading, ""])


def sentence(rows: Sequence[NoiseRow]) -> str:
    """Return by how much two runs must differ on each task, and what to buy next."""
    told = [
        _of_task(f"{task} {short_metric(metric)}", own)
        for (task, metric), own in grouped(rows, lambda r: (r.task, r.metric)).items()
    ]
    shown = told[:_MOST_NAMED]
    if len(told) > len(shown):
        shown.append(f"And {len(told) - len(shown)} more.")
    tasks = grouped(rows, lambda row: row.task)
    gains = [task for task, own in tasks.items() if all(row.buy == "repeats" for row in own)]
    if len(gains) == len(tasks):
        shown.append("More repeats gain as much as more items, and need no new ones.")
    elif gains:
        shown.append(f"On {few(gains)} more repeats gain as much as more items, elsewhere less.")
    else:
        shown.append("More items gain more than more repeats.")
    return " ".join(shown)


def _of_task(name: str, rows: Sequence[NoiseRow]) -> str:
    flips = max(row.share_flipped or 0.0 for row in rows)
    if not flips:
        return f"On {name} no answer changed."
    least = max(row.least_difference or 0.0 for row in rows)
    up_to = "up to " if len(rows) > 1 else ""
    return (
        f"On {name} two runs of the same model must differ by {up_to}{number(least)} to mean "
        f"anything; {up_to}{_share(flips)} of items flip."
    )


def _by_task(results: Results[NoiseRow]) -> dict[tuple[str, str], list[NoiseRow]]:
    return grouped(results.rows, lambda row: (row.task, row.metric))


def _cells(row: NoiseRow) -> list[str]:
    chance = None if row.share_items is None else 1 - row.share_items
    runs = f"×{row.n_runs}" if row.n_runs > 1 else ""
    repeats = f"×{row.n_repeats}" if row.n_repeats > 1 else ""
    errors = (row.std_error, row.std_error_more_repeats, row.std_error_more_items)
    return [
        f"{row.n_items}{runs}{repeats}",
        number(row.estimate),
        number(row.least_difference),
        _share(row.share_flipped),
        _share(chance),
        *(number(error) for error in errors),
    ]


def _share(value: float | None) -> str:
    return "–" if value is None else percent(round(value, 3))


def _marks(row: NoiseRow, marks: dict[str, int]) -> str:
    return ",".join(str(marks[note]) for note in row.notes)


def _legend(results: Results[NoiseRow]) -> str:
    level = results.rows[0].confidence_level if results.rows else 0.95
    return LEGEND.format(beyond=f"{100 * (1 - level):.3g}")


NOISE = View(print_noise, noise_markdown)
