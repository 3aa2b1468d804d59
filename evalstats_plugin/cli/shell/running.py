"""What commands do with their options: read logs, show results, and show how far the work is."""

from __future__ import annotations

import csv
import json
import math
import shutil
import sys
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from io import StringIO
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, cast

import click
from click.core import ParameterSource

from evalstats_plugin.cli.shell import options, shared
from evalstats_plugin.cli.shell.options import Decorator, Function, paths, picked, takes, under
from evalstats_plugin.cli.shell.shared import Intervals
from evalstats_plugin.errors import LogError, SelectionError
from evalstats_plugin.report.figures import draw, figures_of
from evalstats_plugin.report.figures import named as named_figure
from evalstats_plugin.runtime import VERSION
from evalstats_plugin.runtime.files import LogFile, number_in, plain_bytes
from evalstats_plugin.runtime.untrusted import csv_original, echo, echo_data, echo_message

if TYPE_CHECKING:
    from evalstats_plugin.data.results import Results
    from evalstats_plugin.data.runs import ResponseSet
    from evalstats_plugin.data.store import ResponseStore
    from evalstats_plugin.plugins import Plugins
    from evalstats_plugin.report.text import View
    from evalstats_plugin.scores.judged import Label
    from evalstats_plugin.scores.rows import CorrectedScore

OnStep = Callable[[tuple[str, int, int | None]], None]

RUNS = ("latest", "all", "epochs", "error")
"""Values of `evalstats_plugin.data.runs.Runs`, which costs NumPy to import; a test compares."""


def loaded_plugins() -> Plugins:
    """Load the plugins that are not blocked."""
    from evalstats_plugin.plugins import load_plugins

    return load_plugins(click.get_current_context().obj or ())


_read = under(options.READ)


def _limit_memory(ctx: click.Context, _: click.Parameter, size: str | None) -> str | None:
    from evalstats_plugin.runtime.memory import limited

    if size is not None:
        ctx.with_resource(limited(size))
    return size


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What is read of the paths."""

    task: tuple[str, ...] = _read(
        "Only this task, or the tasks of this group; may hold * and ?; may be repeated.",
        "-t", default=(), metavar="NAME",
    )  # fmt: skip
    metric: tuple[str, ...] = _read(
        'Only this metric, such as "acc" or "acc,none", or of one task, "arc=acc_norm"; may be '
        "repeated.",
        "-m", default=(), metavar="NAME",
    )  # fmt: skip
    models: tuple[str, ...] = _read(
        "Only these models; names may hold * and ?; may be repeated.",
        default=(), metavar="NAME,...",
    )  # fmt: skip
    cluster: str | None = _read(
        "Field that says which items belong together, such as the id of a passage: their scores "
        "depend on each other.",
        metavar="FIELD",
    )
    runs: Literal["latest", "all", "epochs", "error"] = _read(
        "Of several runs of one model on one task, use the latest, all, all as epochs of one run, "
        "or stop with an error.",
        default="latest", type=click.Choice(RUNS),
    )  # fmt: skip
    include_incomplete: bool = _read(
        "Also read the items of runs that were cancelled or failed.", default=False
    )
    skip_broken: bool = _read(
        "Leave out logs that cannot be read, and end with exit code 1.", default=False
    )
    columns: tuple[tuple[tuple[str, str], ...], ...] = _read(
        "Tables (CSV, TSV, JSONL, Parquet): the column of each part, such as "
        "item=question_id,score=correct; several score columns are metrics.", default=(),
        multiple=True, metavar="PART=COLUMN,...", type=options.Parsed(options.parse_columns),
    )  # fmt: skip
    wide: Literal["models", "items"] | None = _read(
        "Tables: each is a matrix of scores with a row for each model, or each item.",
        type=click.Choice(["models", "items"]),
    )  # fmt: skip
    missing_code: tuple[float, ...] = _read(
        "Number that stands for a missing score, such as -1 or 99; may be repeated.",
        default=(), metavar="NUMBER", type=float, multiple=True,
    )  # fmt: skip
    mapping: str | None = _read(
        "JSON and JSONL of any tool: a TOML file that says where its scores are.", metavar="FILE",
        type=click.Path(),
    )  # fmt: skip
    memory: str | None = _read(
        "Most memory that reading and computing may take; more is done by blocks, or refused with "
        "its size. Half of the machine's by default.",
        metavar="SIZE", callback=_limit_memory,
    )  # fmt: skip
    model_name: str = _read(
        "Name of the model in logs that do not name one, such as a samples file of lm-eval alone.",
        default="", metavar="NAME",
    )  # fmt: skip

    def standard_input(self) -> Mapping[str, Any] | LogFile:
        """Return what a harness returned, or a file whose content an option names."""
        content = sys.stdin.buffer.read()
        if self.mapping or self.columns or self.wide or self.missing_code:
            return LogFile(Path("standard input"), content)
        try:
            results = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise LogError(
                f"standard input is not JSON ({error}): pipe in results as lm-eval's "
                "simple_evaluate returns them, or say what is in it (--columns, --wide, --mapping)"
            ) from error
        if not isinstance(results, dict):
            msg = "standard input is JSON, but no object: say what is in it (--columns, --mapping)"
            raise LogError(msg)
        return cast("dict[str, Any]", results)

    def store_at(self, paths: Sequence[str], at_k: Sequence[str]) -> ResponseStore | None:
        """Open a response store of so many answers that they are left on disk.

        None for other paths. Smaller ones are read as logs are, which leaves every option.
        """
        from evalstats_plugin.data.store import LARGE, ResponseStore, is_store

        if len(paths) != 1 or not is_store(Path(paths[0])):
            return None
        store = ResponseStore(paths[0])
        if math.prod(store.shape) <= LARGE:
            return None
        given = picked(self, "task", "metric", "models", "cluster", "columns", "wide")
        for name, value in (given | {"at-k": at_k}).items():
            if value:
                raise SelectionError(
                    f"--{name} does not go with a store of {math.prod(store.shape):,} answers: "
                    f"with more than {LARGE:,} it is compared as a whole. Leave the option out, or "
                    "take a part of the store in Python (ResponseStore(path).matrix(items, models))"
                )
        return store


def named(asked: Sequence[str], models: Sequence[str]) -> tuple[str, ...]:
    """Return the models with the names or patterns asked for, which may have commas between them.

    Raises
    ------
    SelectionError
        No model has one of the names.
    """
    from evalstats_plugin.data.runs import models_like

    model_names = list(dict.fromkeys(models))
    patterns = [
        name
        for text in asked
        for name in ([text] if text in model_names else map(str.strip, text.split(",")))
    ]
    return models_like(patterns, model_names)


def csv_rows(path: str, what: str, *, needs: Sequence[str] = ()) -> list[dict[str, str]]:
    """Read a CSV file with a header; cells that a line lacks are empty.

    Parameters
    ----------
    needs
        Columns that it must have.

    Raises
    ------
    LogError
        It cannot be read as text or as CSV, lacks a column, or a line has more cells than the
        header.
    """
    # Cells may hold line ends, which belong to their text.
    reader = csv.DictReader(StringIO(text_of(path, what), newline=""), restval="")
    rows: list[dict[str, str]] = []
    try:
        for row in reader:
            if None in row:
                where = f"{path}, line {reader.line_num}"
                raise LogError(f"{where}, has more cells than the header: quote commas")
            rows.append({name: csv_original(cell) for name, cell in row.items()})
    except csv.Error as error:
        raise LogError(f"{path}: {what} cannot be read as CSV ({error})") from error
    if needs and not (rows and set(needs) <= rows[0].keys()):
        has = ", ".join(reader.fieldnames or ()) or "none"
        raise LogError(f"{path} has the columns {has}: it needs {' and '.join(needs)}, and rows")
    return rows


def number_of(cell: str, where: str) -> float:
    """Return the number that a cell of a file holds; raise `LogError` with the place otherwise."""
    try:
        return number_in(cell)
    except ValueError:
        raise LogError(f"{where} {cell!r} is not a number") from None


def text_of(path: str, what: str) -> str:
    """Read a file that an option names.

    Raises
    ------
    LogError
        It cannot be read as text.
    """
    try:
        return plain_bytes(Path(path), f"{path}: {what}").decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise LogError(f"{path}: {what} cannot be read (it is not text in UTF-8)") from error


WORDS: Mapping[str, float] = {
    **dict.fromkeys(("false", "no", "fail", "incorrect"), 0.0),
    **dict.fromkeys(("true", "yes", "pass", "correct"), 1.0),
}
"""Labels that are words."""

SCORE = ("score", "label", "human")
"""Names of the field that holds a label."""


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """Who judged, and where the labels are."""

    judge: tuple[str, ...] = under("Labels")(
        "Metric of the judge, which scored all items; may be repeated: the mean of several judges "
        "is corrected.",
        default=(), metavar="METRIC",
    )  # fmt: skip
    human: str | None = under("Labels")(
        "Metric of the human labels, which only some items have.", metavar="METRIC"
    )
    labels: str | None = under("Labels")(
        "Human labels from a CSV or JSONL file with the fields item and score; of several models "
        "or tasks also model and task, and probability where not all were as likely to be chosen.",
        metavar="FILE", type=click.Path(),
    )  # fmt: skip

    def check(self, *, needed: bool) -> None:
        """Refuse labels from two places, none where they are needed, and those without a judge.

        Raises
        ------
        SelectionError
            The options do not go together.
        """
        given = self.human is not None or self.labels is not None
        if given and not self.judge:
            msg = "human labels are given and no judge: name its metric, --judge METRIC"
            raise SelectionError(msg)
        if self.human is not None and self.labels is not None:
            both = "both --human and --labels are"
        elif needed and self.judge and not given:
            both = "neither --human nor --labels is"
        else:
            return
        raise SelectionError(f"{both} given: pass one of them, the source of the human labels")

    def with_columns(self, run: Run, features: Sequence[str] = ()) -> Run:
        """Return the run in which the columns of one table of verdicts are metrics.

        Those are the columns of the judges, the labels and the features.
        """
        named = [pair for pairs in run.reading.columns for pair in pairs]
        is_scored = any(part == "score" for part, _ in named)
        if not self.judge or is_scored or len(run.paths) != 1:
            return run
        path = Path(run.paths[0])
        is_json = path.suffix.lower() == ".jsonl"
        if not (is_json or path.suffix.lower() in (".csv", ".tsv")) or not path.is_file():
            return run
        from evalstats_plugin.data.tables import heading_of

        with path.open("rb") as opened:
            first = opened.readline(100_000).decode("utf-8-sig", "replace")
        try:
            heading: Sequence[str] = list(json.loads(first)) if is_json else heading_of(first)[0]
        except (ValueError, TypeError):
            return run
        if not set(self.judge) <= set(heading):
            return run
        wanted = [*self.judge, *([] if self.human is None else [self.human]), *features]
        named += [("score", name) for name in wanted if name in heading]
        return replace(run, reading=replace(run.reading, columns=(tuple(named),)))

    def of_labelled(self, responses: ResponseSet) -> ResponseSet:
        """Return the responses with the labels alone: items that nobody labelled lack no score."""
        if self.human is None:
            return responses
        import numpy as np

        from evalstats_plugin.data.responses import Selection

        human = Selection(metrics=(self.human,))
        own = [
            r.of_items(~np.isnan(r.item_means)) if human.wants_metric(r.metric) else r
            for r in responses
        ]
        return replace(responses, responses=tuple(own))

    def given(self, responses: ResponseSet, *, some: bool) -> list[Label] | None:
        """Read the labels of a file; None without one.

        Parameters
        ----------
        some
            Leave out labels of models that are not there: of a log among others.
        """
        if self.labels is None:
            return None
        models = {"", *(r.model for r in responses)}
        return [label for label in read_labels(self.labels) if not some or label.model in models]

    def corrected(
        self, responses: ResponseSet, intervals: Intervals, *, some: bool = False
    ) -> tuple[CorrectedScore, ...]:
        """Return the judge's scores of models as people's labels correct them, if any are given.

        `some` is as for `given`.
        """
        self.check(needed=True)
        if not self.judge:
            return ()
        from evalstats_plugin.scores.judged import HUMAN, corrected, joined

        labels = self.given(responses, some=some)
        if some and not (labels or self.human):
            return ()
        tasks, _ = joined(
            responses,
            judges=self.judge,
            human=self.human,
            labels=labels,
            measure=intervals.measures(responses, HUMAN),
        )
        level = intervals.confidence_level
        return tuple(
            row
            for task in tasks
            for row in corrected(task, confidence_level=level, these_items=False)
        )


def read_labels(path: str) -> list[Label]:
    """Read labels from CSV with a heading or, by the ending .jsonl, lines of JSON.

    Fields are item and score, and where there are such model, task and probability. An empty score
    is an item without a label.

    Raises
    ------
    LogError
        If the file cannot be read, lacks a field, or labels an answer twice.
    """
    from evalstats_plugin.scores.judged import Label

    labels: dict[tuple[str, str, str], Label] = {}
    for number, row in _label_rows(path):
        where = f"{path}, record {number}"
        name = next((name for name in SCORE if name in row), None)
        if "item" not in row or name is None:
            fields = ", ".join(map(repr, row)) or "none"
            msg = f"{where} has the fields {fields}: each needs the fields 'item' and 'score'"
            raise LogError(msg)
        item, score = str(row["item"]), row[name]
        if score in (None, ""):
            continue
        model, task = (str(row.get(part) or "") for part in ("model", "task"))
        place = (model, task, item)
        if place in labels:
            raise LogError(f"{where}: item {item!r} has a second label: keep one of them")
        chance = row.get("probability")
        labels[place] = Label(
            item, _number(score, f"{where}: score"), model, task,
            None if chance in (None, "") else _number(chance, f"{where}: probability"),
        )  # fmt: skip
    return list(labels.values())


def _number(value: Any, what: str) -> float:
    if isinstance(value, int | float):
        return float(value)
    text = str(value).strip()
    return WORDS[text.lower()] if text.lower() in WORDS else number_of(text, what)


def _label_rows(path: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    if Path(path).suffix != ".jsonl":
        yield from enumerate(csv_rows(path, "labels"), 1)
        return
    # Other line ends than these may stand in a text of JSON.
    lines = text_of(path, "labels").split("\n")
    for number, line in enumerate(filter(str.strip, lines), 1):
        try:
            row: Any = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise LogError(f"{path}, record {number}: not JSON: {error}") from error
        if not isinstance(row, dict):
            msg = f"{path}, record {number}: {line[:40]} is no object with 'item' and 'score'"
            raise LogError(msg)
        yield number, row


@dataclass(frozen=True, kw_only=True)
class Output:
    """Where results go, and in which form."""

    figure: str | None = under(options.OUTPUT)("Draw into FILE.", metavar="NAME")
    figure_file: str | None = shared.file(
        "File of the figure: .png, .svg or .pdf.", "--output", "-o"
    )
    form: Literal["table", "json", "csv", "markdown", "latex"] = shared.form("latex")
    quiet: bool = shared.quiet()

    def check(self, *kinds: str) -> None:
        """Refuse before the work what would fail after it: a figure of these kinds of results.

        Raises
        ------
        SelectionError
            The options do not go together, there is no such figure of these kinds of results, or
            the file's name does not end in a format.
        WriteError, DesignError
            As of `evalstats_plugin.report.figures.canvas`.
        """
        figure, place = self.figure, self.figure_file
        if figure is None and place is None:
            return
        here = figures_of(*kinds)
        if figure is None:
            msg = f"-o {place} says where a figure goes: name it with --figure: {', '.join(here)}"
            raise SelectionError(msg)
        from evalstats_plugin.report.figures.canvas import FORMATS, check_figure

        if not here:
            raise SelectionError(f"these results have no figures: leave --figure {figure} out")
        if Path(figure).suffix.lower() in FORMATS:
            first = next(iter(here))
            msg = f"--figure {figure} is a file: name a figure too: --figure {first} -o {figure}"
            raise SelectionError(msg)
        named_figure(figure, kinds)
        if place is None:
            msg = f"--figure {figure} needs a file: say where it goes with -o {figure}.png"
            raise SelectionError(msg)
        check_figure(place, asked="-o")

    def draw(self, results: Mapping[str, Callable[[], Any]]) -> None:
        """Draw what was asked for into its file, if anything was.

        Parameters
        ----------
        results
            By kind; called only if the figure is of that kind.

        Raises
        ------
        SelectionError, WriteError, DesignError
            As of `check`; or the results are more than a figure can show.
        """
        if self.figure is None or self.figure_file is None:
            return
        from evalstats_plugin.report.figures.canvas import save

        figure = named_figure(self.figure, tuple(results))
        kind = next(kind for kind in figure.takes if kind in results)
        axes: Any = draw(figure.name, results[kind]())
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            save(axes.figure, self.figure_file)
        self.tell(*(f"{self.figure_file}: {warning.message}" for warning in caught))

    def show(
        self,
        results: Results[Any],
        how: Mapping[str, object],
        view: View,
        usual: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        """Print results in the format asked for; exit with 1 where a log was left out.

        Parameters
        ----------
        how
            How the results came about, in the order it is printed.
        view
            How such results are written.
        usual
            Settings that a person need not be told.
        """
        from evalstats_plugin.report import text

        ctx = click.get_current_context()
        untold: Mapping[str, object] = usual if self.form == "table" else {}
        parts = [
            f"{name.replace('_', ' ')} {f'{value:g}' if isinstance(value, float) else value}"
            for name, value in how.items()
            if name != "baseline" and not (name in untold and untold[name] == value)
        ]
        heading = ", ".join([f"evalstats-plugin {VERSION}", *parts])
        if self.form == "json":
            # The program may be called by several names.
            command = ctx.command_path.removeprefix(ctx.find_root().command_path).strip()
            about = {"version": VERSION, "command": command, **how}
            echo_data(view.to_json(results, about) + "\n")
        elif self.form == "csv":
            echo_data(text.to_csv(results))
        elif self.form == "markdown":
            echo(view.to_markdown(results, heading), nl=False)
        elif self.form == "latex":
            echo(view.to_latex(results), nl=False)
            self.tell(*(f"note: {note}" for note in results.notes))
        else:
            # A table for a file or a pipe is laid out for 80 columns, wherever it was made.
            width = shutil.get_terminal_size((80, 24)).columns
            view.print_table(results, sys.stdout, heading=heading, width=width)
        exit_if_left_out(results.notes)

    def tell(self, *lines: str) -> None:
        """Print messages, which are not results, on standard error, unless nobody wants them."""
        tell(lines, quiet=self.quiet)


def tell(lines: Iterable[str], *, quiet: bool) -> None:
    """Print messages, which are not results, on standard error."""
    if not quiet:
        for line in lines:
            echo(line, err=True)


def exit_if_left_out(notes: Iterable[str]) -> None:
    """End with exit code 1 where a log was left out."""
    if any(note.startswith("left out: ") for note in notes):
        click.get_current_context().exit(1)


def show_written(paths: Iterable[Path], notes: Sequence[str], *, quiet: bool) -> None:
    """Print the names of files that were written, and notes; exit as of `exit_if_left_out`."""
    if not quiet:
        for note in notes:
            echo_message("note", note)
        for path in paths:
            echo(path)
    exit_if_left_out(notes)


def output(*kinds: str) -> Decorator:
    """Add the options of output to a command whose results are of these kinds.

    Figures of other kinds are refused before the command begins.
    """

    def made(**given: Any) -> Output:
        asked = Output(**given)
        asked.check(*kinds)
        return asked

    text = f"Draw into FILE: {', '.join(figures_of(*kinds))}."
    without = () if kinds else ("figure", "figure_file")
    return takes("output", Output, without=without, made=made, figure={"help": text})


reading = takes("reading", Reading)
"""Adds the options of all commands that read logs."""


def check_top(by: str | None, top: int | None) -> None:
    """Raise `SelectionError` for ``--top`` on the command line without ``--by``."""
    if by is None and top is not None:
        ctx = click.get_current_context()
        name = options.options_of(ctx.command)["top"].name
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise SelectionError("--top is a number of slices: add the field of slices, --by FIELD")


def check_alone(option: str, others: Mapping[str, object]) -> None:
    """Raise `SelectionError` where an option was given with others that do not go with it."""
    for name, value in others.items():
        if value:
            other = name.replace("_", "-")
            msg = f"--{option} and --{other} do not go together: leave one of them out"
            raise SelectionError(msg)


@dataclass(frozen=True)
class Run:
    """A run of a command on logs: what is read, and where results go."""

    paths: tuple[str, ...]
    reading: Reading
    output: Output

    @cached_property
    def plugins(self) -> Plugins:
        """The plugins that are not blocked."""
        return loaded_plugins()

    def columns(self) -> dict[str, list[str]]:
        """Return the columns of tables that were named, by part."""
        by_part: dict[str, list[str]] = {}
        for part, name in (pair for pairs in self.reading.columns for pair in pairs):
            by_part.setdefault(part, []).append(name)
        return by_part

    def read(
        self,
        *,
        repeats: bool | Literal["answers"] = False,
        by: str | None = None,
        costs: bool = False,
    ) -> ResponseSet:
        """Read what the paths name: files, folders and patterns; ``-`` is standard input.

        That is one JSON object, as a harness returned it, or whatever `columns`, `wide`,
        `missing_code` or `mapping` say is in it.

        Parameters
        ----------
        repeats
            Also score each answer of items that were answered several times (`--at-k`).
        by
            Field of the items, or setting of the runs, that makes slices (`--by`).
        costs
            Also read what answers cost (`--cost`).

        Raises
        ------
        LogError, SelectionError
            As of `evalstats_plugin.read`; or no model has one of the names asked for.
        """
        from evalstats_plugin.logs.reading import read

        asked = self.reading
        with _progress(
            "reading", "MofNCompleteColumn", "TimeRemainingColumn", quiet=self.output.quiet
        ) as update:

            def on_log(path: Path, number: int, total: int) -> None:
                update(description=f"reading {path.name}", completed=number, total=total)

            responses = read(
                *([asked.standard_input()] if self.paths == ("-",) else self.paths),
                **picked(asked, "task", "metric", "cluster", "runs", "include_incomplete"),
                **picked(asked, "skip_broken", "model_name", "missing_code", "mapping"),
                columns=self.columns(),
                wide=asked.wide or "",
                repeats=repeats,
                by=by,
                costs=costs,
                plugins=self.plugins,
                on_log=update and on_log,
            )
        if not asked.models:
            return responses
        from evalstats_plugin.scores.findings import notes_on_differences

        names = set(named(asked.models, [r.model for r in responses]))
        kept = tuple(r for r in responses if r.model in names)
        # What other models were asked differently is no concern of these.
        of_all = notes_on_differences(responses)
        notes = [note for note in responses.notes if note not in of_all]
        return replace(responses, responses=kept, notes=(*notes, *notes_on_differences(kept)))

    def read_by(self, by: str, **others: object) -> ResponseSet:
        """Read what the paths name, with the field of the items that makes slices.

        Raises
        ------
        SelectionError
            One of the other options was given, which do not go with slices.
        """
        check_alone("by", others)
        return self.read(by=by)


def on_logs(*kinds: str, paths: Decorator = paths, reading: Decorator = reading) -> Decorator:
    """Give a command the options of output and reading, made one argument: a `Run`.

    Parameters
    ----------
    kinds
        Of its results, as of `output`.
    paths, reading
        Where its paths, or what it reads of them, are others than those of most commands.
    """

    def decorate(function: Function) -> Function:
        decorated: Any = function
        decorated.__records__ = {"run": (Run, ["paths", "reading", "output"])}
        return paths(output(*kinds)(reading(decorated)))

    return decorate


@contextmanager
def progress_on_work(what: str, *, quiet: bool) -> Generator[OnStep | None, None, None]:
    """Show on standard error that work goes on, for how long it has, and what it reports.

    Gives a callback for how far it is: a name of what is done, how much, and of how much.
    """
    from evalstats_plugin.runtime.progress import listening

    with _progress(what, "TimeElapsedColumn", quiet=quiet) as update:

        def on_step(step: tuple[str, int, int | None]) -> None:
            stage, done, total = step
            of = "" if total is None else f" of {total:,}"
            update(description=f"{what}: {stage} {done:,}{of}")

        with listening(update and on_step):
            yield update and on_step


@contextmanager
def _progress(what: str, *columns: str, quiet: bool) -> Generator[Any, None, None]:
    """Show a line on standard error, with columns of rich; give what updates it.

    None where nobody looks on.
    """
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich import progress

    from evalstats_plugin.runtime.untrusted import terminal

    name = progress.TextColumn("{task.description}", markup=False)
    parts = [progress.SpinnerColumn(), name, *(getattr(progress, each)() for each in columns)]
    with progress.Progress(*parts, console=terminal(stderr=True), transient=True) as shown:
        yield partial(shown.update, shown.add_task(what, total=None))
