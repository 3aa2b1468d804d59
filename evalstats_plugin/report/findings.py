"""Tables of what is wrong with logs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TextIO

from rich.table import Table

from evalstats_plugin.errors import few
from evalstats_plugin.report.text import View, markdown_list, markdown_table, print_all, titled
from evalstats_plugin.scores.findings import PROBLEMS, Finding, Findings

MOST_LOGS = 2
"""Logs of a finding up to which a table names them; JSON always does."""

_HEADER = ("Task", "Models", "Found")


def print_findings(results: Findings, file: TextIO, *, heading: str, width: int | None) -> None:
    """Print a table for each problem."""
    tables = [_table(name, list(found)) for name, found in groupby(results, lambda f: f.problem)]
    notes = [f"* {note}" for note in results.notes]
    print_all(tables, notes, [_verdict(results), heading], file=file, width=width)


def _table(problem: str, found: Sequence[Finding]) -> Table:
    # Paths have no spaces to break at and must not be cut.
    table = titled(f"{problem}: {PROBLEMS[problem]}", _HEADER, fold=dict.fromkeys(_HEADER))
    for finding in found:
        table.add_row(*_cells(finding))
    return table


def _cells(finding: Finding) -> tuple[str, str, str]:
    logs = finding.logs if len(finding.logs) <= MOST_LOGS else ()
    about = [log for log in logs if log not in finding.detail]
    return (
        finding.task or "",
        few(finding.models, 3),
        "\n".join([finding.detail, *about]),
    )


def _verdict(results: Findings) -> str:
    n = len(results)
    return f"{n} finding{'' if n == 1 else 's'}." if n else "Nothing found that is wrong."


def findings_markdown(results: Findings, heading: str) -> str:
    """Return one Markdown table, and how it was made."""
    rows = [(finding.problem, *_cells(finding)) for finding in results]
    lines = markdown_table(("Problem", *_HEADER), rows, right=()) if rows else []
    notes = markdown_list(results.notes)
    return "\n".join([*lines, "", _verdict(results), "", *notes, "", heading, ""])


FINDINGS = View(print_findings, findings_markdown)
