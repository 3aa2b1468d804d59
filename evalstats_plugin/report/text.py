"""Tables of scores, and what all reports share: numbers, notes, JSON and CSV.

* `INTERVALS`: scores with their intervals; `FINDINGS`: what is wrong with logs
* `SLICES`: scores of slices, and sentences on the worst ones
* `Page`, `page_view`: tables, notes and a legend, the same in every form
* `print_all`: tables and notes on the terminal
* `note_numbers`, `note_lines`: notes of many rows, each printed once with the rows it is about
* `shown_table`: the columns that people look at, of any results
* `to_json`, `to_csv`: results for programs
* `View`: how results of one kind are written, in all these forms
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TextIO, TypeVar, cast

from rich.console import RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from evalstats_plugin.data.results import Results, grouped
from evalstats_plugin.errors import counted, few
from evalstats_plugin.report.tables import Column, Table, fixed
from evalstats_plugin.runtime.untrusted import (
    csv_text,
    json_text,
    markdown_text,
    printable,
    terminal,
)
from evalstats_plugin.scores.findings import PROBLEMS, Finding, Findings
from evalstats_plugin.scores.rows import Intervals, ScoreInterval

if TYPE_CHECKING:
    from evalstats_plugin.scores.slices import SliceScore


def print_all(
    tables: Sequence[RenderableType],
    said: Sequence[str],
    closing: Sequence[str],
    *,
    file: TextIO,
    width: int,
) -> None:
    """Print tables or sentences, then notes, then closing paragraphs."""
    console = terminal(file=file, width=width, highlight=False, emoji=False)
    for table in tables:
        console.print(table)
    if said:
        # Notes have a hanging indent; paths in them have no spaces to break at and must not be cut.
        hanging = RichTable.grid(padding=(0, 1))
        hanging.add_column(no_wrap=True)
        hanging.add_column(overflow="fold")
        for line in said:
            mark, _, note = line.partition(" ")
            hanging.add_row(Text(mark), Text(note))
        console.print(Text("Notes", style="bold"))
        console.print(hanging)
    for text in closing:
        console.print(Text(text, style="dim"))


class Noted(Protocol):
    """A row of results that may carry notes."""

    @property
    def task(self) -> str: ...  # noqa: D102 - as in the records
    @property
    def metric(self) -> str: ...  # noqa: D102
    @property
    def notes(self) -> tuple[str, ...]: ...  # noqa: D102


NotedT = TypeVar("NotedT", bound=Noted)


MOST_ALIKE = 3
"""Notes that differ in counts alone; more are shown as one, with the least and greatest."""

_COUNT = re.compile(r"(?<![\w.'/+-])\d+(?:,\d{3})*(?![\w'/-]|[.,]\d)")
"""A whole number in a sentence: none in a name, and no score, which is the row's own."""


def shown_notes(notes: Iterable[str]) -> dict[str, str]:
    """Return how each note is shown: many that differ in counts alone as one.

    >>> shown_notes(f"{n} of 9 items have no score" for n in (4, 2, 8, 3))
    ... # doctest: +ELLIPSIS
    {'4 of 9 items have no score': '2 to 8 of 9 items have no score', ...}
    """
    listed, shown = list(dict.fromkeys(notes)), dict[str, str]()
    for alike in grouped(listed, lambda note: _COUNT.sub("#", note)).values():
        together = _in_ranges(alike) if len(alike) > MOST_ALIKE else None
        shown |= {note: together or note for note in alike}
    return {note: shown[note] for note in listed}


def _in_ranges(alike: Sequence[str]) -> str:
    ranges: list[str] = []
    for numbers in zip(*map(_COUNT.findall, alike), strict=True):
        ordered = sorted(numbers, key=lambda number: int(number.replace(",", "")))
        ranges.append(" to ".join(dict.fromkeys((ordered[0], ordered[-1]))))
    remaining = iter(ranges)
    return _COUNT.sub(lambda _: next(remaining), alike[0])


def gather(rows: Sequence[NotedT]) -> dict[str, list[NotedT]]:
    """Return the rows that carry each note as it is shown, in order of first appearance."""
    shown = shown_notes(note for row in rows for note in row.notes)
    by_note: dict[str, list[NotedT]] = {}
    for row in rows:
        for note in dict.fromkeys(shown[each] for each in row.notes):
            by_note.setdefault(note, []).append(row)
    return by_note


def note_numbers(rows: Sequence[Noted]) -> dict[str, int]:
    """Return the footnote number of each note."""
    shown = shown_notes(note for row in rows for note in row.notes)
    numbers = {note: i for i, note in enumerate(dict.fromkeys(shown.values()), 1)}
    return {note: numbers[text] for note, text in shown.items()}


def task_and_metric(row: Noted) -> str:
    """Return the task and metric of a row, as titles name them."""
    return f"{row.task} {short_metric(row.metric)}"


def footnotes(rows: Sequence[Noted], name: Callable[[Any], str] = task_and_metric) -> list[str]:
    """Return each note once, with the names of what it is about."""
    return [
        f"{note} ({few(list(dict.fromkeys(map(name, about))))})"
        for note, about in gather(rows).items()
    ]


def note_lines(results: Results[Any], name: Callable[[Any], str] = task_and_metric) -> list[str]:
    """Return the notes as lines of text: numbered footnotes, then those on all results."""
    numbered = [f"{i}. {note}" for i, note in enumerate(footnotes(results.rows, name), 1)]
    return [*numbered, *(f"* {note}" for note in results.notes)]


def numbers_of(row: Noted, marks: Mapping[str, int]) -> str:
    """Return the numbers of a row's notes, of those that are shown."""
    return ",".join(dict.fromkeys(str(marks[note]) for note in row.notes if note in marks))


def marks_column(marks: Mapping[str, int]) -> Column:
    """Return the column of the numbers of each row's notes."""
    return Column("", partial(numbers_of, marks=marks), style=lambda _: "dim")


def markdown_list(texts: Iterable[str]) -> list[str]:
    """Return texts as a Markdown list; nothing in them is markup."""
    return [markdown_text(f"- {text}") for text in texts]


def markdown_notes(results: Results[Any]) -> list[str]:
    """Return the lines of `note_lines` as Markdown lists."""
    return [markdown_text(text).replace("* ", "- ", 1) for text in note_lines(results)]


def short_metric(metric: str) -> str:
    """Return a metric without lm-eval's default filter."""
    return metric.removesuffix(",none")


def places(best: int | None, worst: int | None) -> str:
    """Format the places that are left open: "1", "2–3"; a dash where there is no rank."""
    if best is None or worst is None:
        return "–"
    return str(best) if best == worst else f"{best}–{worst}"


def pairs_at_once(n_models: int) -> tuple[str, str]:
    """Return all pairs of models in words, and " at once" where there are several."""
    n_pairs = n_models * (n_models - 1) // 2
    return ("the one pair", "") if n_pairs == 1 else (f"all {n_pairs:,} pairs", " at once")


ROUNDING = 1e-12
"""Differences of less than this are rounding errors, and have no sign."""


def number(value: float | None) -> str:
    """Format a score: four decimals as harnesses do, fewer for large values; a dash for None."""
    if value is None:
        return "–"
    size = abs(value)
    return f"{value:z.4f}" if size < 100 else f"{value:.2f}" if size < 10_000 else f"{value:.3g}"


def percent(level: float) -> str:
    """Format a share as a percentage: 95 %."""
    return f"{100 * level:.6g} %"


def sampled(value: float, error: float, decimals: int) -> str:
    """Format a number that was sampled: decimals up to those that its Monte-Carlo error leaves.

    >>> [sampled(0.7312, error, 2) for error in (0.2, 0.03, 0.0004)]
    ['1', '0.7', '0.73']
    """
    digits = decimals if error <= 0 else min(decimals, max(math.floor(-math.log10(error)), 0))
    return f"{value:.{digits}f}"


def limits_text(
    low: float | None, high: float | None, write: Callable[[float | None], str] = number
) -> str:
    """Format two limits; a dash where one is missing.

    >>> limits_text(0.25, 0.5), limits_text(None, 0.5)
    ('[0.2500, 0.5000]', '–')
    """
    return "–" if low is None or high is None else f"[{write(low)}, {write(high)}]"


def interval_text(row: Any, write: Callable[[float | None], str] = number) -> str:
    """Format the interval of a row; a dash for none."""
    return limits_text(row.low, row.high, write)


def interval_title(rows: Sequence[Any]) -> str:
    """Return the title of a column of intervals, which are all of one level: 95 % interval."""
    return f"{percent(rows[0].confidence_level if rows else 0.95)} interval"


def effect_title(rows: Iterable[Any]) -> str:
    """Return the title of a column of differences, or of what rows have instead: ratios."""
    effects = dict.fromkeys(getattr(row, "effect", "difference") for row in rows)
    return " or ".join(effects).capitalize() or "Difference"


METRIC = Column("Metric", lambda row: short_metric(row.metric))
"""The metric of a row in a table of several, without lm-eval's default filter."""


def clusters(row: ScoreInterval) -> str:
    """Format the design effect and the intraclass correlation of clusters."""
    values = (("deff", row.design_effect), ("ICC", row.icc))
    return ", ".join(f"{name} {value:.2f}" for name, value in values if value is not None)


def items(row: ScoreInterval) -> str:
    """Format the number of items, times epochs if there are several; a dash if it is unknown."""
    if not row.n_items and row.estimate is not None:
        return "–"
    return f"{row.n_items}×{row.n_epochs}" if row.n_epochs > 1 else str(row.n_items)


_TITLES = {
    "n_items": "n", "n_in_bank": "In bank", "model_a": "Against", "model_b": "Model",
    "p_adjusted": "p, adjusted", "prob_better": "P(better)", "prob_best": "P(best)",
    "rank_low": "Best rank", "rank_high": "Worst rank",
}  # fmt: skip
"""Titles of columns that are not the field's name."""


def shown_table(results: Results[Any]) -> Table:
    """Return the table of the columns that people look at; limits are one column."""
    rows = results.rows
    first: Any = rows[0] if rows else None
    notes = results.notes
    names = list(getattr(first, "shown", ()))
    if not names:
        # Those that hold anything; what all rows share is said once.
        names = [n for n in results.columns if n != "notes" and any(getattr(r, n) for r in rows)]
        shared = [
            name
            for name in names[1:]
            if len(rows) > 1
            and not name.endswith(("low", "high"))
            and all(getattr(r, name) == getattr(first, name) for r in rows)
        ]
        if shared:
            names = [name for name in names if name not in shared]
            words = ((n.replace("_", " "), shown_value(n, getattr(first, n))) for n in shared)
            notes = (*notes, f"in every row: {', '.join(' '.join(pair) for pair in words)}")
    columns: list[Column] = []
    for name in names:
        stem = name.removesuffix("low")
        if stem != name and f"{stem}high" in names and name != "rank_low":
            title = f"{stem.replace('_', ' ').capitalize()}{percent(first.confidence_level)} "
            limits = attrgetter(name, f"{stem}high")
            columns.append(
                Column(f"{title}interval", limits, lambda x: limits_text(*x), right=False)
            )
        elif name == "rank_high" or not name.endswith("high") or f"{name[:-4]}low" not in names:
            title = _TITLES.get(name, name.replace("_", " ").capitalize())
            if name == "difference":
                title = effect_title(rows)
            if name.endswith("_std_error") and name.removesuffix("_std_error") in names:
                title = "± s.e."
            values = [getattr(row, name) for row in rows]
            is_number = any(isinstance(v, int | float) for v in values if not isinstance(v, bool))
            is_name = any(isinstance(v, str) for v in values)
            write = partial(shown_value, name)
            columns.append(Column(title, name, write, 10 if is_name else None, is_number))
    return Table("", rows, columns, notes)


def shown_value(name: str, value: Any) -> str:
    """Return a value as it is shown: probabilities are never certain, a filter is left out."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return "; ".join(map(str, cast("Sequence[Any]", value)))
    if value is not None and name.startswith(("prob_", "p_")) and not 5e-5 <= value <= 1 - 5e-5:
        return "<0.0001" if value < 5e-5 else ">0.9999"
    if value is None or isinstance(value, float):
        return number(value)
    return short_metric(value) if name == "metric" else str(value)


def rows_latex(results: Results[Any]) -> str:
    """Return the columns that people look at as a LaTeX table."""
    return shown_table(results).latex()


def to_json(results: Results[Any], about: Mapping[str, Any], **more: Any) -> str:
    """Return one JSON object: what was run, the results, and `more` entries."""
    whole = {
        "evalstats": {**about, "notes": list(results.notes)},
        "results": results.to_dict(),
        **more,
    }
    return json_text(whole)


def to_csv(results: Results[Any]) -> str:
    """Return comma-separated values, a row per result; lists of strings are joined by "; "."""
    names = results.columns or [field.name for field in fields(ScoreInterval)]
    return csv_text(
        names, ({name: _joined(row[name]) for name in names} for row in results.to_dict())
    )


def _joined(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    parts = cast("list[Any]", value)
    return "; ".join(parts) if all(isinstance(part, str) for part in parts) else parts


class View(NamedTuple):
    """How results of one kind are written."""

    print_table: Callable[..., None]
    """On the terminal: ``f(results, file, *, heading, width)``."""
    to_markdown: Callable[[Any, str], str]
    """With a heading."""
    to_json: Callable[[Any, Mapping[str, Any]], str] = to_json
    """With what was run."""
    to_latex: Callable[[Any], str] = rows_latex


class Page(NamedTuple):
    """Tables, notes and a legend."""

    tables: Sequence[Table | str]
    """Sentences between them are of terminals alone."""
    legend: Sequence[str] = ()
    """Paragraphs that explain the tables."""
    said: Sequence[str] | None = None
    """Notes with a mark before each; those of the results, unless given."""
    answer: str = ""
    """A sentence that stands before the tables."""
    style: str = "bold"
    """Its style on a terminal."""


def tables_of(
    rows: Sequence[Any],
    name: Callable[[Any], str],
    columns: Sequence[Column],
    *,
    whole: Sequence[Column] | None = None,
) -> list[Table]:
    """Return a table for each name of rows; or one of all, whose columns are `whole`."""
    if whole is not None:
        return [Table("", rows, whole)]
    return [Table(title, own, columns) for title, own in grouped(rows, name).items()]


def page_view(
    page: Callable[[Any], Page],
    *,
    document: Callable[[Any], Page] | None = None,
    json: Callable[[Any], Mapping[str, Any]] | None = None,
) -> View:
    """Return the view of results that a page shows.

    Parameters
    ----------
    page
        Makes the page.
    document
        Makes that of a document, where it holds more than a terminal.
    json
        Entries of JSON besides what was run and the rows.
    """

    def notes(shown: Page, results: Results[Any]) -> Sequence[str]:
        return [f"* {note}" for note in results.notes] if shown.said is None else shown.said

    def print_page(results: Results[Any], file: TextIO, *, heading: str, width: int) -> None:
        shown = page(results)
        first = [Text(printable(shown.answer), style=shown.style)] if shown.answer else []
        tables = [Text(printable(x)) if isinstance(x, str) else x.terminal() for x in shown.tables]
        closing = [*shown.legend, heading]
        print_all([*first, *tables], notes(shown, results), closing, file=file, width=width)

    def to_markdown(results: Results[Any], heading: str) -> str:
        shown = (document or page)(results)
        first = [markdown_text(shown.answer), ""] if shown.answer else []
        tables = [table for table in shown.tables if not isinstance(table, str)]
        blocks = [line for table in tables for line in (*table.markdown(), "")]
        said = [markdown_text(line.replace("* ", "- ", 1)) for line in notes(shown, results)]
        ends = [part for paragraph in shown.legend for part in (markdown_text(paragraph), "")]
        return "\n".join([*first, *blocks, *said, "", *ends, heading, ""])

    def whole(results: Results[Any], about: Mapping[str, Any]) -> str:
        return to_json(results, about, **(json(results) if json else {}))

    return View(print_page, to_markdown, whole)


_ARROWS = {True: " ↑", False: " ↓", None: ""}


class _ScoreLine(NamedTuple):
    """A line of the table of scores, as it is written."""

    task: str
    metric: str
    interval: str
    method: str
    n: str = ""
    estimate: str = ""
    marks: str = ""
    style: str = ""
    task_style: str = ""


def _scores(results: Intervals) -> Page:
    marks = note_numbers(results.rows)
    by_model = groupby(results.rows, key=lambda row: row.model)
    tables = [_scores_of(model, list(rows), marks) for model, rows in by_model]
    return Page(tables, said=note_lines(results))


def _scores_of(model: str, rows: Sequence[ScoreInterval], marks: Mapping[str, int]) -> Table:
    """Return the table of one model: tasks once, filters below metrics, clusters below scores."""
    lines: list[_ScoreLine] = []
    previous = None
    for row in rows:
        place = (row.task, row.depth, row.kind)
        lines.append(
            _ScoreLine(
                "" if place == previous else "  " * row.depth + row.task,
                # A filter goes on its own line: the two seldom fit on one.
                short_metric(row.metric).replace(",", "\n,"),
                interval_text(row),
                row.method,
                items(row),
                number(row.estimate) + _ARROWS[row.higher_is_better],
                numbers_of(row, marks),
                task_style="bold" * (row.kind == "group"),
            )
        )
        previous = place
        if row.naive_low is not None and row.naive_high is not None:
            limits, by = limits_text(row.naive_low, row.naive_high), clusters(row)
            lines.append(_ScoreLine("", "naive", limits, by.replace(", ", "\n"), style="dim"))
    columns = [
        Column("Task", "task", least=10, style=lambda line: line.task_style),
        Column("Metric", "metric", least=8),
        Column("n", "n", right=True),
        Column("Estimate", "estimate", right=True),
        Column(interval_title(rows), "interval"),
        Column("Method", "method", least=9),
        Column("", "marks", style=lambda _: "dim"),
    ]
    return Table(model, lines, columns, style=lambda line: line.style)


def _scores_document(results: Intervals) -> Page:
    """Return one table of all models."""
    columns = [
        Column("Model", "model", least=10),
        Column("Task", lambda row: "· " * row.depth + row.task, least=10),
        replace(METRIC, least=10),
        Column("n", items, right=True),
        Column("Estimate", "estimate", number),
        Column(interval_title(results.rows), interval_text),
        Column("Method", "method"),
        marks_column(note_numbers(results.rows)),
    ]
    return Page([Table("", results.rows, columns)], said=note_lines(results))


INTERVALS = page_view(_scores, document=_scores_document)


MOST_SENTENCES = 20
"""Sentences on the worst slices that are printed."""

FEW_ITEMS = 30
"""Items of a slice below which people are told of pooling."""


def worst_slice(rows: Sequence[SliceScore]) -> str:
    """Return which slice of a model on a task is worst, and how likely that is by chance."""
    over = rows[-1]
    if over.std_between is not None:
        alike = f"p {shown_value('p_alike', over.p_alike)} that all have one score"
        return (
            f"Over {over.n_slices} values of {over.by}: {number(over.estimate)} "
            f"{interval_text(over)} for values like these, standard deviation between values "
            f"{number(over.std_between)} ({alike})."
        )
    scored = [row for row in rows if row.estimate is not None]
    if len(scored) < 2:
        return "One slice: nothing to compare it with."
    if len({row.estimate for row in scored}) == 1:
        return f"No worst slice: all {len(scored)} have the same score."
    level = rows[0].confidence_level
    error = rows[0].higher_is_better is False
    worst = min(scored, key=lambda r: ((r.estimate or 0.0) * (-1 if error else 1), r.p_worse or 0))
    said = f"Worst slice: {worst.slice} ({number(worst.estimate)}, n = {worst.n_items})"
    significant = [r for r in scored if r.p_worse is not None and r.p_worse <= 1 - level]
    if worst.p_worse is None:
        return f"{said}; not tested, as the metric is no mean of items."
    side = "above" if error else "below"
    of_100 = max(100 * worst.p_worse, 0.01)
    share = f"at most {of_100:.2g} of 100" if worst.p_worse < 0.995 else "most"
    low = "high" if error else "low"
    chance = f"one of {len(rows)} equal slices would be this {low} in {share} evals"
    if worst in significant:
        said = f"{said}, significantly {side} the other items ({percent(level)}): {chance}."
    else:
        said = f"{said}, not distinguishable from the others: {chance}."
    others = [row.slice for row in significant if row is not worst]
    return f"{said} Also significantly {side} them: {few(others)}." if others else said


def worst_slices(rows: Iterable[SliceScore]) -> list[dict[str, str]]:
    """Return for each model and task what `worst_slice` says."""
    return [
        {"model": model, "task": task, "metric": metric, "sentence": worst_slice(list(own))}
        for (model, task, metric), own in groupby(rows, key=attrgetter("model", "task", "metric"))
    ]


def _slices(results: Results[SliceScore]) -> Page:
    marks = note_numbers(results.rows)
    columns = [
        Column(results[0].by, "slice", least=10),
        Column("n", items, right=True),
        Column("Estimate", "estimate", number),
        Column(interval_title(results.rows), interval_text),
        Column("p worse", "p_worse", partial(shown_value, "p_worse")),
        marks_column(marks),
    ]

    def name(row: SliceScore) -> str:
        return f"{row.model}: {task_and_metric(row)}"

    tables = tables_of(results.rows, name, columns)
    said = "\n".join(slice_sentences(results.rows))
    return Page(tables, [slice_legend(results.rows)], note_lines(results, name), said)


def slice_sentences(rows: Sequence[SliceScore]) -> list[str]:
    """Return what `worst_slices` says in lines, few enough to read."""
    by_sentence: dict[str, list[str]] = {}
    for of_cell in worst_slices(rows):
        cell = f"{of_cell['model']}: {of_cell['task']} {short_metric(of_cell['metric'])}"
        by_sentence.setdefault(of_cell["sentence"], []).append(cell)
    said = [f"{few(cells)}. {sentence}" for sentence, cells in by_sentence.items()]
    if len(said) > MOST_SENTENCES:
        said[MOST_SENTENCES:] = [f"And {len(said) - MOST_SENTENCES} more, which JSON has."]
    return said


def slice_legend(rows: Sequence[SliceScore]) -> str:
    """Return what the limits of slices hold for, and what helps where slices are small."""
    if any(row.std_between is not None for row in rows):
        return (
            "Intervals hold for all values of a model on a task at once; values like these are as "
            "if drawn from many."
        )
    legend = (
        "Intervals hold for all slices of a model on a task at once; p worse: that a slice is no "
        "worse than the other items, adjusted over its slices."
    )
    if min((row.n_items for row in rows), default=FEW_ITEMS) < FEW_ITEMS:
        legend += f" Small slices borrow from the others: pool --by {rows[0].by}."
    return legend


SLICES = page_view(_slices, json=lambda results: {"worst_slices": worst_slices(results)})


def signed(value: float | None) -> str:
    """Format a number of an unbounded scale with its sign."""
    return "–" if value is None else f"{value:+z.2f}" if abs(value) < 1000 else f"{value:+.1e}"


def plain(value: float | None) -> str:
    """Format a nonnegative number."""
    return "–" if value is None else f"{value:.2f}" if value < 1000 else f"{value:.0e}"


share = fixed(1, scale=100, unit=" %")


MOST_LOGS = 2
"""Logs of a finding up to which a table names them; JSON always does."""


def _found(finding: Finding) -> str:
    """Return what was found, and the logs where they are few."""
    logs = finding.logs if len(finding.logs) <= MOST_LOGS else ()
    return "\n".join([finding.detail, *(log for log in logs if log not in finding.detail)])


# Paths have no spaces to break at and must not be cut.
_OF_FINDINGS = (
    Column("Task", lambda finding: finding.task or "", least=0),
    Column("Models", lambda finding: few(finding.models, 3), least=0),
    Column("Found", _found, least=0),
)


def _problem(finding: Finding) -> str:
    return f"{finding.problem}: {PROBLEMS[finding.problem]}"


def _findings(results: Findings, *, document: bool = False) -> Page:
    whole = (Column("Problem", "problem"), *_OF_FINDINGS) if document and results.rows else None
    tables = tables_of(results.rows, _problem, _OF_FINDINGS, whole=whole)
    n = len(results)
    return Page(tables, [f"{counted(n, 'finding')}." if n else "Nothing found that is wrong."])


FINDINGS = page_view(_findings, document=partial(_findings, document=True))
