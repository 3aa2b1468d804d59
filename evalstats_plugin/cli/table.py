"""``evalstats-plugin table`` and ``evalstats-plugin paper``."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from evalstats_plugin.cli.shell import running, shared
from evalstats_plugin.cli.shell.options import ARGUMENTS, command, paths, takes, under
from evalstats_plugin.cli.shell.running import Labelled, Output, Reading, Run
from evalstats_plugin.cli.shell.shared import Intervals
from evalstats_plugin.errors import SelectionError
from evalstats_plugin.runtime.writing import may_overwrite

if TYPE_CHECKING:
    from evalstats_plugin.data.runs import ResponseSet

_shown = under("What the table shows")


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """What the table shows."""

    subtasks: bool = _shown("Show the tasks of groups instead of the groups.", default=False)
    weights: Literal["columns", "tasks", "items"] = _shown(
        "What counts the same in the overall score. columns: every column, a group being one; "
        "tasks: every task, also those inside groups; items: every item.",
        default="columns", type=click.Choice(["columns", "tasks", "items"]), metavar="NAME",
    )  # fmt: skip
    exclude: tuple[str, ...] = _shown(
        "Leave out these models; names may hold * and ?; may be repeated.",
        default=(), metavar="NAME,...",
    )  # fmt: skip
    by: str | None = shared.by("What the table shows")
    top: int | None = shared.top("What the table shows")
    percent: bool = _shown("Show scores of 100 instead of 1.", default=False)
    digits: int | None = _shown(
        "Decimals; as many as the limits support where left out.",
        metavar="N", type=click.IntRange(min=0, max=10),
    )  # fmt: skip
    plus_minus: bool = _shown(
        "In LaTeX: half the width of the interval after ±, not its limits in brackets.",
        default=False,
    )
    bib: str | None = shared.file("Also write what the LaTeX caption cites, as BibTeX.")


@command(
    ("logs/", "Models by tasks, with ranks"),
    ("logs/ --format latex", "For a paper"),
)
@takes("asked", TableOptions)
@takes("labelled", Labelled)
@takes("intervals", Intervals, only=("confidence_level", "limits", "seed"))
@running.on_logs()
def table(run: Run, *, asked: TableOptions, labelled: Labelled, intervals: Intervals) -> None:
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
    from evalstats_plugin.scores.judged import in_words

    if asked.bib is not None:
        check_output_path(asked.bib, (".bib",), asked="--bib")
    running.check_top(asked.by, asked.top)
    run = labelled.with_columns(run)
    others = {"subtasks": asked.subtasks, "judge": labelled.judge}
    read = run.read_by(asked.by, **others) if asked.by else run.read()
    responses = labelled.of_labelled(_without(read, asked.exclude))
    given = _of_table(run.reading, asked, intervals, responses)
    results = scores.table(responses, by=asked.by, top=asked.top, **given)
    if corrections := labelled.corrected(responses, intervals, some=bool(run.reading.models)):
        said = tuple(f"{row.model} on {row.task}: {in_words(row)}" for row in corrections)
        results = replace(results, notes=(*results.notes, *said))
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
    by_field = {"by": asked.by} if asked.by else {}
    run.output.show(results, {**by_field, "weights": asked.weights, **how}, view)


def _without(responses: ResponseSet, excluded: Sequence[str]) -> ResponseSet:
    """Leave models out whose names match a pattern."""
    left_out = set(running.named(excluded, [r.model for r in responses]))
    kept = [r for r in responses if r.model not in left_out]
    if not kept:
        msg = f"--exclude {' --exclude '.join(excluded)} leaves no model: name fewer"
        raise SelectionError(msg)
    return replace(responses, responses=tuple(kept))


def _of_table(
    reading: Reading, asked: TableOptions, intervals: Intervals, responses: ResponseSet
) -> dict[str, Any]:
    """Return the arguments of `evalstats_plugin.table`."""
    return {
        "metric": reading.metric,
        "columns": [name for name in reading.task if not {"*", "?"} & set(name)],
        "subtasks": asked.subtasks,
        "weights": asked.weights,
        **intervals.given(responses),
    }


@dataclass(frozen=True, kw_only=True)
class Folder:
    """Where the paper's files go, and which model the others are compared with."""

    baseline: str | None = shared.baseline(
        "Compare the others with this model instead of the best."
    )
    folder: str = shared.file("Folder to write; made where it does not exist.", "-o", "--output",
                              metavar="DIR", required=True)  # fmt: skip
    quiet: bool = shared.quiet()


@command(
    ("logs/ -o paper", "Everything that a paper needs"),
    ("logs/ -o paper-llama --baseline llama", "Differences from one model"),
)
@paths
@takes("asked", TableOptions, without=("plus_minus", "bib", "by", "top"))
@takes("intervals", Intervals, only=("confidence_level", "limits", "seed"))
@takes("to", Folder)
@running.reading
def paper(
    paths: tuple[str, ...],
    *,
    asked: TableOptions,
    intervals: Intervals,
    to: Folder,
    reading: Reading,
) -> None:
    r"""Write a folder for a paper: tables, figures, methods and numbers, ready for LaTeX.

    PATHS are results files, folders or patterns. The folder holds table.tex, compare.tex,
    forest.pdf and (of up to 12 models) rank.pdf at column width, numbers.tex (a macro for every
    number, such as \accQwenGsm), methods.tex and methods.md (what was done, and what guidelines for
    reports ask, answered from the logs), refs.bib, and main.tex, which shows all of them.

    The same logs and seed give the same files.
    """
    from evalstats_plugin.report.paper.folder import paper as write_paper

    every = Run(paths, reading, Output(quiet=to.quiet)).read()
    responses = _without(every, asked.exclude)
    arguments = click.get_current_context().meta[ARGUMENTS]
    # What changes no file is left out: the same folder is written again without --overwrite.
    typed = [each for each in arguments if each not in ("-q", "--quiet", "--overwrite")]
    with (
        running.progress_on_work("writing", quiet=to.quiet),
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always", UserWarning)
        written = write_paper(
            responses,
            to.folder,
            baseline=to.baseline,
            percent=asked.percent,
            digits=asked.digits,
            command=shlex.join(["evalstats-plugin", "paper", *typed]),
            overwrite=may_overwrite(),
            **_of_table(reading, asked, intervals, responses),
        )
    notes = (*responses.notes, *(str(warning.message) for warning in caught))
    running.show_written(written, notes, quiet=to.quiet)
