"""Tables of scores, and what all reports share: numbers, notes, Markdown, JSON and CSV.

* `print_intervals`, `intervals_markdown`: scores with their intervals
* `print_findings`, `findings_markdown`: what is wrong with logs
* `print_all`, `titled`: tables and notes on the terminal; `markdown_table`: in documents
* `note_numbers`, `note_lines`: notes of many rows, each printed once with the rows it is about
* `rows_markdown`, `rows_latex`, `rows_html`, `rows_style`: the columns that people look at
* `to_json`, `to_csv`: results for programs
* `View`: how results of one kind are written, in all these forms
* `Page`, `page_view`: titled tables, notes and a legend, the same on the terminal and in Markdown
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from html import escape
from itertools import groupby
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TextIO, TypeVar, cast

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from evalstats_plugin.data.results import Results, grouped
from evalstats_plugin.errors import few
from evalstats_plugin.runtime.untrusted import (
    csv_text,
    json_text,
    latex_text,
    markdown_text,
    printable,
    terminal,
    visible,
)
from evalstats_plugin.scores.findings import PROBLEMS, Finding, Findings
from evalstats_plugin.scores.rows import Intervals, ScoreInterval

if TYPE_CHECKING:
    from pandas.io.formats.style import Styler

_ARROWS = {True: " ↑", False: " ↓", None: ""}


def print_intervals(results: Intervals, file: TextIO, *, heading: str, width: int | None) -> None:
    """Print one table per model, then the notes."""
    marks = note_numbers(results.rows)
    by_model = groupby(results.rows, key=lambda row: row.model)
    tables = [_scores(model, list(rows), marks) for model, rows in by_model]
    print_all(tables, note_lines(results), [heading], file=file, width=width)


def _scores(model: str, rows: Sequence[ScoreInterval], marks: dict[str, int]) -> Table:
    interval = f"{percent(rows[0].confidence_level)} interval"
    columns = ("Task", "Metric", "n", "Estimate", interval, "Method", "")
    widths = {"Task": 10, "Metric": 8, "Method": 9}
    table = titled(model, columns, right=("n", "Estimate"), fold=widths)
    previous = None
    for row in rows:
        place = (row.task, row.depth, row.kind)
        task = "" if place == previous else "  " * row.depth + row.task
        previous = place
        table.add_row(
            Text(task, style="bold" if row.kind == "group" else ""),
            # A filter goes on its own line: the two seldom fit on one.
            Text(short_metric(row.metric).replace(",", "\n,")),
            items(row),
            number(row.estimate) + _ARROWS[row.higher_is_better],
            interval_text(row),
            Text(row.method),
            Text(",".join(str(marks[n]) for n in row.notes), style="dim"),
        )
        if row.naive_low is not None and row.naive_high is not None:
            naive = f"[{number(row.naive_low)}, {number(row.naive_high)}]"
            of_clusters = clusters(row).replace(", ", "\n")
            table.add_row("", "naive", "", "", naive, of_clusters, "", style="dim")
    return table


def intervals_markdown(results: Intervals, heading: str) -> str:
    """Return a Markdown table, the notes, and how it was made."""
    level = results.rows[0].confidence_level if results.rows else 0.95
    header = ["Model", "Task", "Metric", "n", "Estimate", f"{percent(level)} interval", "Method"]
    marks = note_numbers(results.rows)
    rows = [
        [
            row.model,
            "&nbsp;&nbsp;" * row.depth + row.task,
            short_metric(row.metric),
            items(row),
            number(row.estimate),
            interval_text(row),
            row.method,
            ", ".join(str(marks[n]) for n in row.notes),
        ]
        for row in results
    ]
    lines = markdown_table([*header, ""], rows, right=range(3, 5))
    return "\n".join([*lines, "", *markdown_notes(results), "", heading, ""])


def print_all(
    tables: Sequence[RenderableType],
    said: Sequence[str],
    closing: Sequence[str],
    *,
    file: TextIO,
    width: int | None,
) -> None:
    """Print tables or sentences, then notes, then closing paragraphs."""
    console = terminal(file=file, width=width, highlight=False, emoji=False)
    for table in tables:
        console.print(table)
    if said:
        console.print(Text("Notes", style="bold"))
        console.print(_hanging(said))
    for text in closing:
        console.print(Text(text, style="dim"))


def _text(cell: RenderableType) -> Text:
    """Return the text of a cell."""
    text = cell.text if isinstance(cell, _Line) else cell
    return text if isinstance(text, Text) else Text(printable(str(text)))


def _width(cell: RenderableType) -> int:
    """Return the characters of the longest line of a cell."""
    return max(map(cell_len, _text(cell).plain.split("\n")), default=0)


def _widest_cell(column: Column) -> int:
    return max(map(_width, (column.header, *column.cells)), default=0)


def _longest_word(cell: RenderableType) -> int:
    return max(map(cell_len, _text(cell).plain.split()), default=0)


class _Line:
    """A text that usually fits on its line: faster to lay out than one that may be wrapped."""

    def __init__(self, text: Text) -> None:
        self.text = text
        self.width = cell_len(text.plain)
        self.longest_word = max(map(cell_len, text.plain.split()), default=0)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(self.longest_word, self.width)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.width > options.max_width:
            yield self.text
            return
        left = options.max_width - self.width if options.justify == "right" else 0
        yield Segment(" " * left + self.text.plain)


class _Table(Table):
    """A table that prints strings as they are, never as markup.

    Long names lose their middles where the line is too short for them. Where numbers do not fit
    even so, each row is printed below its titles.
    """

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table, or the rows below each other."""
        width = self.width or options.max_width
        # Rich gives an empty column a character and a gap.
        while self.columns and not _widest_cell(self.columns[-1]):
            del self.columns[-1]
        if self._least_width() <= width:
            self._shorten_names(width)
            yield from super().__rich_console__(console, options)
            return
        if self.title and str(self.title):
            yield Text(str(self.title), style="bold")
        labels = [_text(column.header).plain or "Notes" for column in self.columns]
        numbers = [cell for column in self.columns if column.no_wrap for cell in column.cells]
        longest = max(map(_longest_word, numbers), default=0)
        labels = elided(labels, max(width - 1 - longest, _LEAST_LABEL))
        for i, column in enumerate(self.columns):
            if column.min_width:
                self._shorten_column(i, width - 1 - max(map(cell_len, labels)))
        for row in zip(*(column.cells for column in self.columns), strict=True):
            grid = Table.grid(padding=(0, 1))
            grid.add_column(no_wrap=True)
            grid.add_column(overflow="fold")
            for label, cell in zip(labels, row, strict=True):
                text = _text(cell)
                if text.plain.strip():
                    grid.add_row(Text(label), text)
            yield grid
            yield Segment("\n")

    @property
    def _gaps(self) -> int:
        _, right, _, left = self.padding
        return (len(self.columns) - 1) * (1 + left + right)

    def _least_width(self) -> int:
        """Return the characters of columns that are not wrapped, and the least of the others."""
        return self._gaps + sum(
            _widest_cell(column) if column.no_wrap else column.min_width or 1
            for column in self.columns
        )

    def _shorten_names(self, width: int) -> None:
        """Take the middles out of the longest names, column by column, until the lines fit."""
        names = [i for i, c in enumerate(self.columns) if not c.no_wrap and c.min_width]
        widths = [_widest_cell(c) if c.no_wrap or c.min_width else 1 for c in self.columns]
        over = self._gaps + sum(widths) - width
        while over > 0 and (wide := [i for i in names if widths[i] > self._least(i)]):
            widest = max(wide, key=lambda i: widths[i])
            widths[widest] -= 1
            over -= 1
        for i in names:
            self._shorten_column(i, widths[i])

    def _shorten_column(self, i: int, width: int) -> None:
        """Take the middles out of a column's names that are longer than so many characters."""
        column = self.columns[i]
        texts = [_text(cell) for cell in column.cells]
        lines = dict.fromkeys(line for text in texts for line in text.plain.split("\n"))
        short: dict[str, str] = {}
        # Names of one depth differ in more than how far they are indented.
        for indent, own in grouped(lines, lambda x: len(x) - len(x.lstrip())).items():
            names = elided([line[indent:] for line in own], max(width - indent, 3))
            short |= {a: " " * indent + b for a, b in zip(own, names, strict=True)}
        cells: list[RenderableType] = [
            Text("\n".join(short[line] for line in text.plain.split("\n")), style=text.style)
            for text in texts
        ]
        self.columns[i] = replace(column, _cells=cells)

    def _least(self, i: int) -> int:
        column = self.columns[i]
        return max(column.min_width or 1, _width(column.header))

    def add_row(self, *cells: RenderableType | None, **more: Any) -> None:
        """Add a row; strings are printed as they are."""
        texts = [Text(printable(cell)) if isinstance(cell, str) else cell for cell in cells]
        super().add_row(*(self._fast(text) for text in texts), **more)

    @staticmethod
    def _fast(cell: RenderableType | None) -> RenderableType | None:
        if not isinstance(cell, Text) or cell.style or cell.spans or "\n" in cell.plain:
            return cell
        return _Line(cell)


def titled(
    title: str,
    columns: Sequence[str] = (),
    *,
    right: Collection[str] = (),
    fold: Mapping[str, int | None] = MappingProxyType({}),
) -> Table:
    """Return an empty compact table that prints strings as they are.

    Parameters
    ----------
    columns
        Titles of columns, which are on one line and aligned left.
    right
        Those that are aligned right.
    fold
        Those that may be shortened: names, with their least width, lose their middles; texts
        (None) go on on the next line.
    """
    table = _Table(
        title=Text(title, style="bold"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=0,
    )
    for name in columns:
        if name in fold:
            table.add_column(name, overflow="fold", min_width=fold[name])
        else:
            table.add_column(name, justify="right" if name in right else "left", no_wrap=True)
    return table


def _hanging(lines: Sequence[str]) -> Table:
    """Lay out notes with a hanging indent under their numbers."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    # Paths have no spaces to break at and must not be cut.
    grid.add_column(overflow="fold")
    for line in lines:
        mark, _, text = line.partition(" ")
        grid.add_row(Text(mark), Text(text))
    return grid


def markdown_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, right: Collection[int]
) -> list[str]:
    """Return the lines of a Markdown table; numbers of columns from 0 are aligned `right`."""
    rule = ["---:" if i in right else "---" for i in range(len(header))]
    cells = [[markdown_cell(text) for text in row] for row in rows]
    return [markdown_line(row) for row in (header, rule, *cells)]


def markdown_line(cells: Sequence[str]) -> str:
    """Return one line of a Markdown table."""
    return "| " + " | ".join(cells) + " |"


def markdown_cell(text: str) -> str:
    """Return text escaped for a cell of a Markdown table."""
    return markdown_text(text).replace("|", "\\|")


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
    """Return the rows that carry each note, by note in order of first appearance."""
    found: dict[str, list[NotedT]] = {}
    for row in rows:
        for note in row.notes:
            found.setdefault(note, []).append(row)
    return found


def note_numbers(rows: Sequence[Noted]) -> dict[str, int]:
    """Return the footnote number of each note."""
    return {note: i for i, note in enumerate(gather(rows), 1)}


def note_lines(results: Results[NotedT]) -> list[str]:
    """Return the notes as lines of text: numbered footnotes, then those on all results."""
    footnotes = [
        f"{i}. {note} ({few(list(dict.fromkeys(map(task_and_metric, about))))})"
        for i, (note, about) in enumerate(gather(results.rows).items(), 1)
    ]
    return [*footnotes, *(f"* {note}" for note in results.notes)]


def markdown_list(texts: Iterable[str]) -> list[str]:
    """Return texts as a Markdown list; nothing in them is markup."""
    return [markdown_text(f"- {text}") for text in texts]


def markdown_notes(results: Results[NotedT]) -> list[str]:
    """Return the lines of `note_lines` as Markdown lists."""
    return [markdown_text(text).replace("* ", "- ", 1) for text in note_lines(results)]


def task_and_metric(row: Noted) -> str:
    """Return the task and metric of a row, as titles name them."""
    return f"{row.task} {short_metric(row.metric)}"


def short_metric(metric: str) -> str:
    """Return a metric without lm-eval's default filter."""
    return metric.removesuffix(",none")


def elided(names: Sequence[str], longest: int) -> list[str]:
    """Return names without their middles where they are longer; different ones stay different.

    Beginnings and ends tell models apart; where they do not, the cut is made elsewhere, and where
    no cut does, names are whole.

    >>> elided(["Meta-Llama-3.1-405B-Instruct-Turbo"], 22)
    ['Meta-Llama-…ruct-Turbo']
    >>> elided(["Meta-Llama-3.1-405B-Instruct-Turbo", "Meta-Llama-3.1-70B-Instruct-Turbo"], 22)
    ['Meta-Llama-3.1-405B…bo', 'Meta-Llama-3.1-70B-…bo']
    """
    kept = dict.fromkeys(names)
    shown = {name: _cut(name, longest, (longest - 1) // 2) for name in kept}
    taken = Counter(shown.values())
    alike: dict[str, list[str]] = {}
    for name, short in shown.items():
        if taken[short] > 1:
            alike.setdefault(short, []).append(name)
    for group in alike.values():
        # The beginning is as long as the word takes that differs.
        differ = (a != b for a, b in zip(min(group), max(group), strict=False))
        start = next((i for i, other in enumerate(differ) if other), 0)
        word = max(len(re.split(r"[\W_]", name[start:], maxsplit=1)[0]) for name in group)
        ends = sorted(range(1, longest - 1), key=lambda end: abs(longest - 1 - end - start - word))
        others = set(taken) - {shown[group[0]]}
        cuts = ([_cut(name, longest, end) for name in group] for end in ends)
        apart = (cut for cut in cuts if len({*cut, *others}) == len(cut) + len(others))
        shown.update(zip(group, next(apart, group), strict=True))
        taken = Counter(shown.values())
    return [shown[name] for name in names]


def _cut(name: str, longest: int, end: int) -> str:
    """Leave out the middle of a long name, so that so many letters of its end are kept."""
    if len(name) <= longest:
        return name
    return f"{name[: longest - 1 - end]}…{name[len(name) - end :]}"


_LEAST_LABEL = 10
"""Least characters of titles beside the cells of a row."""

Titled = tuple[str, Sequence[str]]
"""The title of a column and its cells."""

_GAP = 2
"""Between columns: the padding, and one that the box of a table adds."""


def side_by_side(
    columns: Sequence[Titled],
    *,
    names: Titled,
    first: Sequence[Titled] = (),
    width: int,
    longest_title: int,
    most_lines: float = math.inf,
) -> tuple[list[Table], int]:
    """Lay out columns beside the names of their rows; those that do not fit go below.

    Parameters
    ----------
    columns
        Those that are aligned right and may go below.
    names
        The column that every table begins with.
    first
        What the first table has around the names instead, ranks for example.
    width
        Characters of a line.
    longest_title
        Characters of a title; longer ones are shortened in the middle.
    most_lines
        Rows of all tables together; what would need more is left out.

    Returns
    -------
    tables, hidden
        The tables, and how many columns are left out.
    """
    blocks: list[tuple[Sequence[Titled], list[Titled]]] = [(first or [names], [])]
    left = width - _widest(*blocks[0][0]) + _GAP
    titles = elided([title for title, _ in columns], longest_title)
    for title, (_, cells) in zip(titles, columns, strict=True):
        column = (title, cells)
        wide = _widest(column)
        if left < wide and (blocks[-1][1] or len(blocks) == 1):
            blocks.append(([names], []))
            left = width - _widest(names) + _GAP
        blocks[-1][1].append(column)
        left -= wide
    if len(blocks) * len(names[1]) > most_lines:
        del blocks[1:]
    tables: list[Table] = []
    for lead, block in blocks:
        table = titled("")
        for i, (title, _) in enumerate((*lead, *block)):
            right = i >= len(lead) or title == "Rank"
            head = Text(printable(title))
            table.add_column(head, justify="right" if right else "left", no_wrap=True)
        for row in zip(*(cells for _, cells in (*lead, *block)), strict=True):
            table.add_row(*row)
        table.padding = (0, _GAP - 1, 0, 0)
        tables.append(table)
    return tables, len(columns) - sum(len(block) for _, block in blocks)


def _widest(*columns: Titled) -> int:
    """Return the characters that columns need, each with the gap after it."""
    return sum(max(map(cell_len, (title, *cells))) + _GAP for title, cells in columns)


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
    known = decimals if error <= 0 else min(decimals, max(math.floor(-math.log10(error)), 0))
    return f"{value:.{known}f}"


def interval_text(row: ScoreInterval) -> str:
    """Format an interval; a dash for none."""
    if row.low is None or row.high is None:
        return "–"
    return f"[{number(row.low)}, {number(row.high)}]"


def clusters(row: ScoreInterval) -> str:
    """Format the design effect and the intraclass correlation of clusters."""
    known = (("deff", row.design_effect), ("ICC", row.icc))
    return ", ".join(f"{name} {value:.2f}" for name, value in known if value is not None)


def items(row: ScoreInterval) -> str:
    """Format the number of items, times epochs if there are several."""
    return f"{row.n_items}×{row.n_epochs}" if row.n_epochs > 1 else str(row.n_items)


_TITLES = {
    "n_items": "n", "n_in_bank": "In bank", "model_a": "Against", "model_b": "Model",
    "p_adjusted": "p, adjusted", "prob_better": "P(better)", "prob_best": "P(best)",
    "rank_low": "Best rank", "rank_high": "Worst rank",
}  # fmt: skip
"""Titles of columns that are not the field's name."""

_MOST_ROWS = 60
"""Rows that a notebook shows."""


def _columns(results: Results[Any]) -> dict[str, list[Any]]:
    """Return the columns of results that people look at, by title; limits are one column."""
    rows = results.rows
    names = list(getattr(rows[0], "shown", ())) if rows else []
    if not names:
        # Those that hold anything.
        names = [n for n in results.columns if n != "notes" and any(getattr(r, n) for r in rows)]
    found: dict[str, list[Any]] = {}
    for name in names:
        ends = [name, name.removesuffix("low") + "high"]
        if name.endswith("low") and ends[1] in names and name != "rank_low":
            level = percent(rows[0].confidence_level)
            limits = [[getattr(row, end) for end in ends] for row in rows]
            about = name.removesuffix("low").replace("_", " ").capitalize()
            found[f"{about}{level} interval"] = [
                "–" if None in pair else f"[{number(pair[0])}, {number(pair[1])}]"
                for pair in limits
            ]
        elif name == "rank_high" or not name.endswith("high") or f"{name[:-4]}low" not in names:
            title = _TITLES.get(name, name.replace("_", " ").capitalize())
            found[title] = [_value(name, getattr(row, name)) for row in rows]
    return found


def _value(name: str, value: Any) -> Any:
    """Return a value as it is shown: probabilities are never certain, a filter is left out."""
    if value is None:
        return None
    if name.startswith(("prob_", "p_")):
        return "<0.0001" if value < 0.00005 else ">0.9999" if value > 0.99995 else value
    return short_metric(value) if name == "metric" else value


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return "; ".join(map(str, cast("Sequence[Any]", value)))
    return number(value) if value is None or isinstance(value, float) else str(value)


def _is_number(column: Sequence[Any]) -> bool:
    return any(isinstance(value, int | float) for value in column if not isinstance(value, bool))


def rows_markdown(results: Results[Any]) -> str:
    """Return the columns that people look at as a Markdown table, and the notes below."""
    columns = _columns(results)
    right = [i for i, column in enumerate(columns.values()) if _is_number(column)]
    rows = zip(*([_cell(v) for v in column] for column in columns.values()), strict=True)
    lines = markdown_table(list(columns), rows, right=right)
    notes = markdown_list(results.notes)
    return "\n".join([*lines, *([""] if notes else []), *notes, ""])


def latex_row(cells: Iterable[str]) -> str:
    r"""Return a row of a LaTeX table, of cells that are LaTeX.

    >>> latex_row(["[a]", "0.5"])
    '{}[a] & 0.5 \\\\'
    """
    row = " & ".join(cells)
    # The end of the row above would take such a letter for its own option.
    return "{}" * row.lstrip().startswith(("[", "*")) + row + r" \\"


def rows_latex(results: Results[Any]) -> str:
    """Return the same columns as a LaTeX table."""
    columns = _columns(results)
    sides = "".join("r" if _is_number(column) else "l" for column in columns.values())
    rows = zip(*([_cell(v) for v in column] for column in columns.values()), strict=True)
    head, *body = (latex_row(map(latex_text, row)) for row in (list(columns), *rows))
    return "\n".join(
        [
            r"% \usepackage{booktabs}", rf"\begin{{tabular}}{{@{{}}{sides}@{{}}}}", r"\toprule",
            head, r"\midrule", *body, r"\bottomrule", r"\end{tabular}", "",
        ]
    )  # fmt: skip


def rows_html(results: Results[Any]) -> str:
    """Return the same columns as a notebook shows a table, and the notes."""

    def line(cells: Iterable[str], kind: str) -> str:
        return f"<tr>{''.join(f'<{kind}>{escape(visible(c))}</{kind}>' for c in cells)}</tr>"

    columns = _columns(results)
    rows = list(zip(*([_cell(v) for v in column] for column in columns.values()), strict=True))
    body = "".join(line(row, "td") for row in rows[:_MOST_ROWS])
    left = len(rows) - _MOST_ROWS
    told = [*([f"{left} more rows"] if left > 0 else []), *results.notes]
    notes = "".join(f"<li>{escape(visible(note))}</li>" for note in told)
    table = f"<table><thead>{line(columns, 'th')}</thead><tbody>{body}</tbody></table>"
    return table + (f"<ul>{notes}</ul>" if notes else "")


def rows_style(results: Results[Any]) -> Styler:
    """Return the same columns as pandas shows a table, what is clear in bold, and the notes."""
    import pandas as pd

    cells = {
        title: [visible(_cell(v)) for v in column] for title, column in _columns(results).items()
    }
    right = [title for title, column in _columns(results).items() if _is_number(column)]
    marks = [
        getattr(row, "verdict", "") in ("better", "worse") or bool(getattr(row, "may_be_first", 0))
        for row in results.rows
    ]
    bold = ["font-weight: bold" * mark for mark in marks]
    shown = pd.DataFrame(cells).style.hide(axis="index").format(str, escape="html")
    shown = shown.apply(lambda _: bold, axis=0).set_properties(
        pd.Index(right), **{"text-align": "right"}
    )
    return shown.set_caption(escape(visible("; ".join(results.notes))))


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
    columns = results.columns or [field.name for field in fields(ScoreInterval)]
    rows = ({name: _plain(row[name]) for name in columns} for row in results.to_dict())
    return csv_text(columns, rows)


def _plain(value: Any) -> Any:
    if not isinstance(value, list | tuple):
        return value
    parts = cast("Sequence[Any]", value)
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


INTERVALS = View(print_intervals, intervals_markdown)
"""Of scores with intervals."""


Lines = list[list[str]]
"""Rows of a table, the header first."""

PageTable = tuple[str, Lines, Sequence[int]]
"""Title, lines, and the left-aligned columns."""


class Page(NamedTuple):
    """Titled tables, notes and a legend."""

    tables: Sequence[PageTable]
    legend: Sequence[str]
    """Paragraphs that explain the tables."""
    said: Sequence[str] | None = None
    """Notes with a mark before each; those of the results, unless given."""


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

    def print_page(results: Results[Any], file: TextIO, *, heading: str, width: int | None) -> None:
        shown = page(results)
        tables = [filled(title, lines, left=left) for title, lines, left in shown.tables]
        closing = [*shown.legend, heading]
        print_all(tables, notes(shown, results), closing, file=file, width=width)

    def to_markdown(results: Results[Any], heading: str) -> str:
        shown = (document or page)(results)
        blocks = [line for title, lines, _ in shown.tables for line in markdown(title, lines)]
        said = [markdown_text(line.replace("* ", "- ", 1)) for line in notes(shown, results)]
        ends = [part for paragraph in shown.legend for part in (paragraph, "")]
        return "\n".join([*blocks, *said, "", *ends, heading, ""])

    def whole(results: Results[Any], about: Mapping[str, Any]) -> str:
        return to_json(results, about, **(json(results) if json else {}))

    return View(print_page, to_markdown, whole)


def filled(title: str, lines: Lines, *, left: Sequence[int]) -> Table:
    """Make a table for the terminal; names fold, other columns align right except those `left`."""
    header, *rows = lines
    names = header[: 2 if header[1] == "Task" else 1]
    right = [name for k, name in enumerate(header) if k not in left]
    table = titled(title, header, right=right, fold=dict.fromkeys(names, 10))
    for line in rows:
        table.add_row(*(Text(cell) for cell in line))
    return table


def markdown(title: str, lines: Lines) -> list[str]:
    """Return the same table in Markdown, followed by an empty line."""
    header, *rows = lines
    right = range(1, len(header))
    return [
        f"**{markdown_text(title)}**",
        "",
        *markdown_table(header, rows, right=right),
        "",
    ]


def signed(value: float | None) -> str:
    """Format a number of an unbounded scale with its sign."""
    return "–" if value is None else f"{value:+z.2f}" if abs(value) < 1000 else f"{value:+.1e}"


def plain(value: float | None) -> str:
    """Format a nonnegative number."""
    return "–" if value is None else f"{value:.2f}" if value < 1000 else f"{value:.0e}"


def share(value: float | None) -> str:
    """Format a score as a percentage."""
    return "–" if value is None else f"{100 * value:.1f} %"


MOST_LOGS = 2
"""Logs of a finding up to which a table names them; JSON always does."""

_OF_FINDINGS = ("Task", "Models", "Found")


def print_findings(results: Findings, file: TextIO, *, heading: str, width: int | None) -> None:
    """Print a table for each problem."""
    tables = [
        _of_problem(name, list(found)) for name, found in groupby(results, lambda f: f.problem)
    ]
    notes = [f"* {note}" for note in results.notes]
    print_all(tables, notes, [_verdict(results), heading], file=file, width=width)


def _of_problem(problem: str, found: Sequence[Finding]) -> Table:
    # Paths have no spaces to break at and must not be cut.
    table = titled(
        f"{problem}: {PROBLEMS[problem]}", _OF_FINDINGS, fold=dict.fromkeys(_OF_FINDINGS)
    )
    for finding in found:
        table.add_row(*_of_finding(finding))
    return table


def _of_finding(finding: Finding) -> tuple[str, str, str]:
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
    rows = [(finding.problem, *_of_finding(finding)) for finding in results]
    lines = markdown_table(("Problem", *_OF_FINDINGS), rows, right=()) if rows else []
    notes = markdown_list(results.notes)
    return "\n".join([*lines, "", _verdict(results), "", *notes, "", heading, ""])


FINDINGS = View(print_findings, findings_markdown)
