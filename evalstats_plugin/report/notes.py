"""Notes of many rows, gathered: each said once, with the rows it is about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from evalstats_plugin.results import Results
from evalstats_plugin.wording import few


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


def numbers(rows: Sequence[Noted]) -> dict[str, int]:
    """Return the footnote number of each note."""
    return {note: i for i, note in enumerate(gather(rows), 1)}


def lines(results: Results[NotedT]) -> list[str]:
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
