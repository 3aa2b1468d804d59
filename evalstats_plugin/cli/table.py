"""``evalstats-plugin table``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

import click

from evalstats_plugin.cli.shell.options import Command, Intervals, file, takes, under
from evalstats_plugin.cli.shell.running import Run, on_logs
from evalstats_plugin.errors import SelectionError

_shown = under("What the table shows")


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the table shows."""

    subtasks: bool = _shown("Show the tasks of groups instead of the groups.", default=False)
    weights: Literal["columns", "tasks", "items"] = _shown(
        "What counts the same in the overall score. columns: every column, a group being one; "
        "tasks: every task, also those inside groups; items: every item.",
        default="columns", type=click.Choice(["columns", "tasks", "items"]), metavar="NAME",
    )  # fmt: skip
    exclude: tuple[str, ...] = _shown(
        "Leave out these models; names may hold * and ?; may be repeated.",
        default=(), metavar="NAME",
    )  # fmt: skip
    percent: bool = _shown("Show scores of 100 instead of 1.", default=False)
    digits: int | None = _shown(
        "Decimals; as many as the limits support where left out.",
        metavar="N", type=click.IntRange(min=0, max=10),
    )  # fmt: skip
    plus_minus: bool = _shown(
        "In LaTeX: half the width of the interval after ±, not its limits in brackets.",
        default=False,
    )
    bib: str | None = file("Also write what the LaTeX caption cites, as BibTeX.")


@click.command(cls=Command)
@takes("asked", Options)
@takes("intervals", Intervals, only=("confidence_level", "limits", "seed"))
@on_logs()
def table(run: Run, *, asked: Options, intervals: Intervals) -> None:
    """Show models and tasks in one table, with an overall score, ranks and who may be the best.

    PATHS are results files, folders or patterns. For a paper: --format latex --bib refs.bib. Of
    several metrics (--metric) the first that a task has is shown; --metric TASK=NAME is for one
    task. A task that is named (--task) is a column, also inside a group.

    Scores have their own limits. Ranks, letters and marks hold for all models and columns at once;
    they are the verdicts of compare.
    """
    from evalstats_plugin.comparisons import leaderboard as scores
    from evalstats_plugin.report import leaderboard
    from evalstats_plugin.runtime.writing import check_output_path, write_bytes

    if asked.bib is not None:
        check_output_path(asked.bib, (".bib",), asked="--bib")
    every = run.read()
    kept = [r for r in every if not any(fnmatchcase(r.model, name) for name in asked.exclude)]
    responses = replace(every, responses=tuple(kept))
    if not kept:
        msg = f"--exclude {' --exclude '.join(asked.exclude)} leaves no model: name fewer"
        raise SelectionError(msg)
    results = scores.table(
        responses,
        metric=run.reading.metric,
        columns=[name for name in run.reading.task if not {"*", "?"} & set(name)],
        subtasks=asked.subtasks,
        weights=asked.weights,
        confidence_level=intervals.confidence_level,
        measure=intervals.measures(responses),
        rng=intervals.seed,
    )
    if asked.bib is not None:
        write_bytes(Path(asked.bib), leaderboard.bibtex().encode())
    how = intervals.how()
    del how["method"]
    view = leaderboard.table_view(
        percent=asked.percent,
        digits=asked.digits,
        plus_minus=asked.plus_minus,
        cite=asked.bib is not None,
    )
    run.show(results, {"weights": asked.weights, **how}, view)
