"""``evalstats-plugin report --html``: where the page goes, and what is put on it."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evalstats_plugin.errors import DesignError, SelectionError

if TYPE_CHECKING:
    from evalstats_plugin.response_set import ResponseSet
    from evalstats_plugin.results import Comparisons, Intervals

SUFFIXES = (".html", ".htm")

MOST_PAIRS = 600_000
"""Comparisons up to which every two models are; of more, each with the best of its task."""


def page_of(chosen: Mapping[str, Any]) -> Path | None:
    """Return where the page is to go, None without one; refuse before the work, not after it.

    Raises
    ------
    SelectionError
        There is no page of what is asked for. Or the name does not end as those of pages do: it
        might be that of a log.
    WriteError
        No file of this name can be written.
    """
    name = chosen["html"]
    if name is None:
        return None
    if chosen["model"] is not None:
        msg = f"--html and --model {chosen['model']} found together: there is no page of that yet"
        raise SelectionError(msg)
    if name == "-":
        msg = "--html - found, expected the name of a file, such as report.html: a page is a file"
        raise SelectionError(msg)
    from evalstats_plugin.atomic import check_place

    return check_place(name, SUFFIXES, asked="--html")


def write_html(
    responses: ResponseSet, intervals: Intervals, chosen: Mapping[str, Any], path: Path
) -> None:
    """Compare the models, look at the items, and write the page."""
    from evalstats_plugin.analyses.item_answers import item_answers
    from evalstats_plugin.atomic import write_bytes
    from evalstats_plugin.report.html import Page, to_html

    comparisons, notes = _compared(responses, chosen)
    answers, about_items = item_answers(responses)
    page = Page(
        responses=responses.responses,
        intervals=intervals,
        comparisons=comparisons,
        answers=answers,
        notes=(*notes, *about_items),
        about=_about(responses, chosen),
    )
    write_bytes(path, to_html(page).encode())
    if not chosen["quiet"]:
        click.echo(f"written: {path}", file=sys.stderr)


def _compared(
    responses: ResponseSet, chosen: Mapping[str, Any]
) -> tuple[Comparisons | None, Sequence[str]]:
    """Compare every two models, or say why not."""
    from evalstats_plugin.analyses.compare import compare

    counts = Counter((r.task, r.metric) for r in responses)
    n_pairs = sum(n * (n - 1) // 2 for n in counts.values())
    baseline, notes = chosen["baseline"], []
    if baseline is None and n_pairs > MOST_PAIRS:
        baseline = "best"
        notes = [
            f"up to {n_pairs:,} comparisons of two models are too many for one page: each model "
            "was compared with the best of its task"
        ]
    try:
        found = compare(
            responses,
            baseline=baseline,
            confidence_level=chosen["confidence_level"],
            bounds=chosen["bounds"],
            rng=chosen["seed"],
        )
    except DesignError as error:
        return None, [*notes, f"models were not compared: {error}"]
    return found, notes


def _minute(when: str) -> str:
    """Return a time, which each harness writes in its own way, to the minute."""
    if not re.match(r"\d{4}-\d\d-\d\dT\d\d[:-]\d\d", when):
        return when
    return f"{when[:10]} {when[11:13]}:{when[14:16]}"


def _about(responses: ResponseSet, chosen: Mapping[str, Any]) -> dict[str, str]:
    from evalstats_plugin import __version__
    from evalstats_plugin.report.text import percent
    from evalstats_plugin.wording import few

    sources = [r.source for r in responses]
    harnesses = dict.fromkeys(f"{s.harness} {s.version or ''}".strip() for s in sources)
    times = sorted(_minute(s.when) for s in sources if s.when)
    runs = "" if not times else times[0] if times[0] == times[-1] else f"{times[0]} to {times[-1]}"
    return {
        "Made by": f"evalstats-plugin {__version__}",
        "Made at": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "Harness": few(list(harnesses)),
        "Runs": runs or "not logged",
        "Logs": f"{len({str(s.path) for s in sources}):,}",
        "Confidence level": percent(chosen["confidence_level"]),
        "Interval method": chosen["method"],
        "Correction": "holm, over all pairs of a task",
        "Seed": str(chosen["seed"]),
    }
