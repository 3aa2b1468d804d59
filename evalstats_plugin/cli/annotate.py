"""``evalstats-plugin annotate`` and ``evalstats-plugin export``: what is written."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from evalstats_plugin.cli.shell import running, shared
from evalstats_plugin.cli.shell.options import OUTPUT, Name, command, paths, picked, takes, under
from evalstats_plugin.cli.shell.running import Labelled, Output, Reading, Run
from evalstats_plugin.cli.shell.shared import Intervals
from evalstats_plugin.errors import SelectionError, counted, few
from evalstats_plugin.hookspecs import FITS
from evalstats_plugin.runtime.untrusted import echo
from evalstats_plugin.runtime.writing import may_overwrite

if TYPE_CHECKING:
    from evalstats_plugin.data.responses import Responses
    from evalstats_plugin.scores import rows

_WHAT = "What is written"
_written = under(_WHAT)
_every_eval_ever = under("Every Eval Ever")


@dataclass(frozen=True, kw_only=True)
class AnnotateOptions:
    """What is written, and where."""

    output: str | None = shared.file("Folder for annotated copies.", "-o", metavar="FOLDER")
    in_place: bool = under(OUTPUT)("Annotate the results files themselves.", default=False)
    quiet: bool = shared.quiet()
    rescore: bool = _written(
        "Replace logged values that disagree with their items; the old values are kept in the "
        "evalstats block.",
        default=False,
    )
    compare: Literal["no", "paired", "unpaired", "tasks", "sequential"] = _written(
        "Comparisons of each log's model with the baseline: paired, unpaired, tasks or sequential, "
        "as in `compare`.",
        default="no", type=Name("design", ("no", *shared.DESIGNS)), metavar="DESIGN",
    )  # fmt: skip
    baseline: str | None = _written(
        "Model to compare with; alone it means --compare paired.  [default: the first]",
        metavar="MODEL",
    )
    correction: shared.Correction = shared.correction(_WHAT)  # noqa: RUF009 - a field
    items: Literal["no", "metadata", "columns"] = _written(
        "Item statistics, into each sample's metadata, or also as columns (Inspect).",
        default="no", type=click.Choice(["no", "metadata", "columns"]),
    )  # fmt: skip
    fit: tuple[str, ...] = _written(
        "Fit a model over all these logs: irt (abilities; with --items also item difficulties and "
        "flags), pool (pooled scores) or capabilities (what some items need beyond one ability); "
        "may be repeated.",
        default=(), metavar="NAME", type=Name("model to fit", FITS),
    )  # fmt: skip
    at_k: tuple[str, ...] = _written(
        "Also scores at k answers per item: pass@K, pass^K, maj@K or cons@K; may be repeated.",
        default=(), metavar="NAME",
    )  # fmt: skip
    allow_partial: bool = _written(
        "Also annotate logs that hold only a part of what was scored; they are marked, and their "
        "logged values stay.",
        default=False,
    )
    strip: bool = _written("Remove what was written before.", default=False)

    def comparison(self) -> Mapping[str, Any] | bool:
        """Return what to compare and how; False without a comparison."""
        if self.compare != "no" or self.baseline is not None:
            design = "paired" if self.compare == "no" else self.compare
            return {"design": design, "correction": self.correction}
        if self.correction != shared.CORRECTIONS[0]:
            msg = f"--correction {self.correction} is for comparisons: pass --compare paired too"
            raise SelectionError(msg)
        return False

    def check_stripping(self, reading: Reading, labelled: Labelled) -> None:
        """Refuse what cannot be written, or left as it is, while annotations are removed."""
        given = {
            "rescore": self.rescore, "compare": self.compare != "no", "baseline": self.baseline,
            "fit": self.fit, "items": self.items != "no", "at-k": self.at_k,
            "task": reading.task, "metric": reading.metric, "judge": labelled.judge,
        }  # fmt: skip
        running.check_alone("strip", given)


_NOT_OF_LOGS = (
    "models", "runs", "columns", "wide", "missing_code", "mapping", "skip_broken",
)  # fmt: skip
"""Options of reading that do not go with writing back: each log is annotated, and no table is."""


_LOG = "\N{NULL}"
"""Stands for the log in why it was left out, which several may share."""


@command(
    ("logs/ --output annotated", "Copies of the logs with intervals"),
    ("logs/ --output compared --baseline llama", "With comparisons, too"),
)
@paths
@takes("asked", AnnotateOptions)
@takes("reading", Reading, without=_NOT_OF_LOGS)
@takes("labelled", Labelled)
@takes("intervals", Intervals, without=(*shared.OF_ONE_SCORE, "missing"))
def annotate(
    paths: tuple[str, ...],
    *,
    asked: AnnotateOptions,
    reading: Reading,
    labelled: Labelled,
    intervals: Intervals,
) -> None:
    """Write intervals and comparisons into the harness's own results files.

    lm-eval's samples files are never touched, and no file is added beside the harness's own. A log
    that cannot be read or written is left out, and the exit code is 1.
    """
    from evalstats_plugin.data.responses import Selection
    from evalstats_plugin.data.runs import ResponseSet
    from evalstats_plugin.logs import annotating
    from evalstats_plugin.scores.epochs import repeats_for
    from evalstats_plugin.scores.judged import noted

    labelled.check(needed=True)
    plugins = running.loaded_plugins()
    left_out: dict[str, list[str]] = {}

    def on_broken(log: Path, error: Exception) -> None:
        named = str(error) if str(log) in str(error) else f"{log}: {error}"
        left_out.setdefault(named.replace(str(log), _LOG), []).append(str(log))

    where: dict[str, Any] = {
        "output": asked.output, "in_place": asked.in_place, "overwrite": may_overwrite(),
        "plugins": plugins, "on_broken": on_broken,
    }  # fmt: skip
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        if asked.strip:
            asked.check_stripping(reading, labelled)
            written = annotating.strip(*paths, **where)
        else:

            def analysis(responses: Sequence[Responses]) -> rows.Intervals:
                every = ResponseSet(tuple(responses))
                rows = intervals.of(every, plugins)
                return noted(rows, labelled.judge, labelled.corrected(every, intervals, some=True))

            written = annotating.annotate(
                *paths,
                **where,
                **picked(asked, "rescore", "allow_partial", "at_k", "baseline", "items"),
                compare=asked.comparison(),
                fits=asked.fit,
                selection=Selection(
                    reading.task,
                    reading.metric,
                    reading.cluster,
                    reading.include_incomplete,
                    repeats=repeats_for(asked.at_k),
                    model_name=reading.model_name,
                ),
                analysis=analysis,
            )
    if not asked.quiet:
        for path in written:
            echo(path)
        for warning in caught:
            echo(str(warning.message), err=True)
        for reason, (first, *others) in left_out.items():
            n, be = counted(len(others), "other log"), "is" if len(others) == 1 else "are"
            more = f"; so {be} {n}: {few(others, most=3)}" if others else ""
            echo(f"left out: {reason.replace(_LOG, first)}{more}", err=True)
    if left_out:
        raise click.exceptions.Exit(1)


@dataclass(frozen=True, kw_only=True)
class Exported:
    """What is written, and where."""

    output: str = shared.file("File to write; for every-eval-ever a folder.", "-o", required=True)
    quiet: bool = shared.quiet()
    to: str | None = _written(
        "csv, tsv, jsonl, py-irt, parquet, every-eval-ever, or a format of a plugin.  [default: by "
        "the ending of the output]",
        metavar="FORMAT",
    )
    matrix: bool = _written(
        "Write one row per model and one column per item (in Parquet our own matrix file) instead "
        "of one row per epoch.",
        default=False,
    )
    intervals: bool = _every_eval_ever(
        "Write our interval as each score's uncertainty, as annotate does.", default=False
    )
    organization: str | None = _every_eval_ever(
        "Organization that made the evaluation.", metavar="NAME"
    )
    relationship: str | None = _every_eval_ever(
        "Relationship of the evaluator to the model's developer: first_party, third_party, "
        "collaborative or other.  [default: other]",
        metavar="KIND",
    )


@command(
    ("logs/ -o scores.csv", "Every item's score, as a table"),
    ("logs/ -o scores.parquet --to parquet", "For large logs"),
)
@paths
@takes("asked", Exported)
@running.reading
def export(paths: tuple[str, ...], *, reading: Reading, asked: Exported) -> None:
    """Export item scores as CSV, TSV, JSONL or Parquet, or in the Every Eval Ever schema.

    PATHS are results files, folders or patterns of any harness. Notes on what the format cannot
    hold go to standard error, the names of the files written to standard output.
    """
    from evalstats_plugin.logs.annotating import annotate
    from evalstats_plugin.logs.exporting import export as write
    from evalstats_plugin.logs.exporting import exporter_of

    run = Run(paths, reading, Output(quiet=asked.quiet))
    file = Path(asked.output)
    to = exporter_of(asked.to, file, run.plugins).name
    if asked.intervals and to != "every-eval-ever":
        msg = f"--intervals does not go with --to {to}: it needs --to every-eval-ever"
        raise SelectionError(msg)
    # Not every format has these options.
    of_formats = ("matrix", "organization", "relationship")
    given = {name: value for name in of_formats if (value := getattr(asked, name))}
    responses = run.read()
    done = write(responses, file, to=to, overwrite=may_overwrite(), plugins=run.plugins, **given)
    if asked.intervals:
        annotate(*done.paths, in_place=True, plugins=run.plugins)
    running.show_written(done.paths, (*responses.notes, *done.notes), quiet=asked.quiet)
