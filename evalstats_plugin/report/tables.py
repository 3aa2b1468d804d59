"""One table for every place: rows, columns with their decimals and units, and notes.

* `Table`, `Column`: written for the terminal, Markdown, LaTeX, HTML, CSV and pandas
* `fixed`: writes numbers with so many decimals, and a unit
* `elided`: names without their middles where there is little room
* `markdown_table`, `latex_row`: tables of documents, row by row
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from io import StringIO
from itertools import chain, repeat
from operator import attrgetter
from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.table import Column as RichColumn
from rich.table import Table as RichTable
from rich.text import Text

from evalstats_plugin.data.results import grouped
from evalstats_plugin.runtime.untrusted import (
    latex_text,
    markdown_link,
    markdown_text,
    printable,
    terminal,
    visible,
)

if TYPE_CHECKING:
    from pandas.io.formats.style import Styler

_MOST_ROWS = 60
"""Rows that a notebook shows."""
_PLAIN_WIDTH = 120
"""Characters of a line that Python prints."""


def written(value: object) -> str:
    """Return a value as text: a dash for None."""
    return "–" if value is None else str(value)


def one_line(name: object) -> str:
    r"""Return the name of an item, which may be a prompt, on one line.

    >>> one_line("Add.\n\n1 + 1 =")
    'Add. 1 + 1 ='
    """
    return " ".join(str(name).split())


def fixed(
    decimals: int, *, signed: bool = False, scale: float = 1, unit: str = ""
) -> Callable[[float | None], str]:
    """Return a function that writes numbers with so many decimals, never as -0; a dash for None.

    >>> [fixed(1, scale=100, unit=" %")(value) for value in (0.256, None)]
    ['25.6 %', '–']
    >>> fixed(2, signed=True)(0.5), fixed(0)(-0.2)
    ('+0.50', '0')
    """
    form = f"{'+' * signed}z,.{decimals}f"
    return lambda value: "–" if value is None else f"{scale * value:{form}}{unit}"


@dataclass(frozen=True)
class Column:
    """A column of a table: what it holds of each row, and how that is written."""

    title: str
    value: str | Callable[[Any], Any]
    """Name of an attribute of the rows, or a function of a row."""
    write: Callable[[Any], str] = written
    """Writes a value with its decimals and unit."""
    least: int | None = None
    """Characters of names to keep: their middles are left out where there is little room. 0 is of
    texts, which go on on the next line; None of what is never broken."""
    right: bool | None = None
    """Whether it is aligned right; as numbers are, which have a `write`, where None."""
    strong: Callable[[Any], bool] | None = None
    """Values that stand out: with * on a terminal, bold in documents."""
    below: bool = False
    """Whether it goes below the other columns where a line is too short."""
    cut: bool = False
    """Whether lines of texts lose their ends where there is no room."""
    style: Callable[[Any], str] = lambda _: ""
    """Style of a row's cell on the terminal."""

    def of(self, row: Any) -> Any:
        """Return the value of a row."""
        return attrgetter(self.value)(row) if isinstance(self.value, str) else self.value(row)

    def cell(self, row: Any) -> str:
        """Return the value as it is written."""
        return self.write(self.of(row))

    def text(self, row: Any) -> Text:
        """Return the cell as it is printed on a terminal."""
        shown = Text(printable(self.cell(row)), style=self.style(row))
        if self.cut:
            shown.no_wrap, shown.overflow = True, "ellipsis"
        return shown

    @property
    def is_right(self) -> bool:
        """Whether it is aligned right."""
        return self.write is not written if self.right is None else self.right


@dataclass(frozen=True)
class Table:
    """Rows, columns and notes."""

    title: str
    rows: Sequence[Any]
    columns: Sequence[Column]
    notes: Sequence[str] = ()
    style: Callable[[Any], str] = lambda _: ""
    """Style of a row on the terminal."""
    caption: str = ""
    """A sentence below it."""

    @property
    def titles(self) -> list[str]:
        """Titles of the columns."""
        return [column.title for column in self.columns]

    @property
    def cells(self) -> list[list[str]]:
        """What is written, row by row."""
        return [[column.cell(row) for column in self.columns] for row in self.rows]

    def terminal(self) -> RichTable:
        """Return the table as it is printed on lines of any width."""
        table = _Table(self.title)
        for column in self.columns:
            table.add_column(
                Text(printable(column.title)),
                justify="right" if column.is_right else "left",
                no_wrap=column.least is None,
                overflow="fold",
                min_width=column.least or None,
            )
        for row in self.rows:
            table.add_row(*(c.text(row) for c in self.columns), style=self.style(row))
        if self.caption:
            table.caption = Text(printable(self.caption), justify="left")
        return table

    def terminal_tables(
        self, width: int, *, longest_title: int = 14, most_lines: float = math.inf
    ) -> tuple[list[RichTable], int]:
        """Lay out columns beside the names of their rows; those that do not fit go below.

        Names are the columns whose middles may be left out; later tables begin with them.

        Parameters
        ----------
        width
            Characters of a line.
        longest_title
            Characters of the title of a column that may go below; longer ones are shortened.
        most_lines
            Rows of all tables together; what would need more is left out.

        Returns
        -------
        tables, hidden
            The tables, and how many columns are left out.
        """
        first = [self._laid(column) for column in self.columns if not column.below]
        below = [self._laid(column) for column in self.columns if column.below]
        shown = [self._laid(column) for column in self.columns if column.least]
        names = shown[0]
        if len(shown) > 1:
            title = " – ".join([names.title, *(own.title.lower() for own in shown[1:])])
            cells = list(map(" – ".join, zip(*(own.cells for own in shown), strict=True)))
            names = _Laid(title, cells, is_right=False)
        blocks: list[list[_Laid]] = [[]]
        left = width - _widest(*first) + _GAP
        titles = elided([own.title for own in below], longest_title)
        for own in (own._replace(title=t) for own, t in zip(below, titles, strict=True)):
            wide = _widest(own)
            if left < wide and (blocks[-1] or len(blocks) == 1):
                blocks.append([])
                left = width - _widest(names) + _GAP
            blocks[-1].append(own)
            left -= wide
        if len(blocks) * len(self.rows) > most_lines:
            del blocks[1:]
        leads = chain([first], repeat([names]))
        tables = [self._abreast([*lead, *own]) for lead, own in zip(leads, blocks, strict=False)]
        return tables, len(below) - sum(map(len, blocks))

    def _laid(self, column: Column) -> _Laid:
        cells, strong = [column.cell(row) for row in self.rows], column.strong
        if strong is not None:
            marks = ("*" if strong(column.of(row)) else " " for row in self.rows)
            cells = [cell + mark for cell, mark in zip(cells, marks, strict=True)]
        shown = elided(cells, column.least) if column.least else cells
        return _Laid(column.title, shown, column.is_right)

    def _abreast(self, columns: Sequence[_Laid]) -> RichTable:
        """Return a table of columns that are not wrapped."""
        table = _Table("")
        lines: list[list[Text]] = []
        for own in columns:
            texts = list(map(printable, (own.title, *own.cells)))
            # Rich would take the spaces in place of marks off the right.
            room = max(map(_width, texts)) if own.is_right else 0
            head, *cells = (
                Text("\n".join(" " * (room - cell_len(line)) + line for line in text.split("\n")))
                for text in texts
            )
            table.add_column(head, no_wrap=True)
            lines.append(cells)
        for row, *cells in zip(self.rows, *lines, strict=True):
            table.add_row(*cells, style=self.style(row))
        table.padding = (0, _GAP - 1, 0, 0)
        return table

    def markdown(self) -> list[str]:
        """Return the lines of the table in Markdown; notes are a list below."""
        right = [i for i, column in enumerate(self.columns) if column.is_right]
        rows = [
            [f"**{c.cell(row)}**" if c.strong and c.strong(c.of(row)) else c.cell(row)
             for c in self.columns]
            for row in self.rows
        ]  # fmt: skip
        title = [f"**{markdown_text(self.title)}**", ""] if self.title else []
        notes = [markdown_text(f"- {note}") for note in self.notes]
        lines = markdown_table(self.titles, rows, right=right)
        return [*title, *lines, *([""] if notes else []), *notes]

    def latex(self) -> str:
        """Return a LaTeX table (booktabs), in which negative numbers have a minus sign."""
        sides = "".join("r" if column.is_right else "l" for column in self.columns)
        body = [
            latex_row(
                (latex_text if c.least is not None else latex_number)(c.cell(row))
                for c in self.columns
            )
            for row in self.rows
        ]
        rows = [latex_row(map(latex_text, self.titles)), r"\midrule", *body]
        lines = [r"% \usepackage{booktabs}", *booktabs(f"@{{}}{sides}@{{}}", rows), ""]
        return "\n".join(lines)

    @property
    def _notes_in_python(self) -> list[str]:
        """Notes of a table that is cut after its first rows."""
        more = len(self.rows) - _MOST_ROWS
        return [*([f"{more} more rows"] if more > 0 else []), *self.notes]

    def plain(self) -> str:
        """Return the table as `print` shows it in Python: at most 60 rows, and the notes."""
        file = StringIO()
        console = terminal(file=file, width=_PLAIN_WIDTH, highlight=False, emoji=False)
        console.print(replace(self, rows=self.rows[:_MOST_ROWS]).terminal())
        for note in self._notes_in_python:
            console.print(Text(f"* {printable(note)}"))
        return "\n".join(map(str.rstrip, file.getvalue().rstrip().split("\n")))

    def html(self) -> str:
        """Return the table as a notebook shows it, and the notes."""

        def line(cells: Iterable[str], kind: str) -> str:
            return f"<tr>{''.join(f'<{kind}>{escape(visible(c))}</{kind}>' for c in cells)}</tr>"

        cells = self.cells
        body = "".join(line(row, "td") for row in cells[:_MOST_ROWS])
        notes = "".join(f"<li>{escape(visible(note))}</li>" for note in self._notes_in_python)
        table = f"<table><thead>{line(self.titles, 'th')}</thead><tbody>{body}</tbody></table>"
        return table + (f"<ul>{notes}</ul>" if notes else "")

    def styled(self) -> Styler:
        """Return the table as pandas shows one, what is clear in bold, and the notes."""
        import pandas as pd

        bold = [
            "font-weight: bold"
            * (
                getattr(row, "verdict", "") in ("better", "worse")
                or getattr(row, "may_be_first", 0)
            )
            for row in self.rows
        ]
        cells = [[visible(cell) for cell in row] for row in self.cells]
        sheet = pd.DataFrame(cells, columns=pd.Index(self.titles)).style.hide(axis="index")
        right = pd.Index([column.title for column in self.columns if column.is_right])
        return (
            sheet.format(str, escape="html")
            .apply(lambda _: bold, axis=0)
            .set_properties(right, **{"text-align": "right"})
            .set_caption(escape(visible("; ".join(self.notes))))
        )


def latex_number(text: str) -> str:
    r"""Return numbers in LaTeX, where a hyphen is no minus sign.

    >>> latex_number("-0.5 [-1e-06, 2]")
    '$-$0.5 [$-$1e$-$06, 2]'
    """
    return re.sub(r"(?<![\w.])-(?=\.?\d)|(?<=\de)-(?=\d)", "$-$", latex_text(text))


_LONG = 64
"""Characters from which names that no cut tells apart are whole."""


def elided(names: Sequence[str], longest: int) -> list[str]:
    """Return names without their middles where they are longer; different ones stay different.

    Beginnings and ends tell models apart; where they do not, the cut is made elsewhere, and where
    no cut does, twice as much is kept, at last all.

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
        distinct = (cut for cut in cuts if len({*cut, *others}) == len(cut) + len(others))
        cut = next(distinct, None) or (elided(group, 2 * longest) if longest < _LONG else group)
        shown.update(zip(group, cut, strict=True))
        taken = Counter(shown.values())
    return [shown[name] for name in names]


def _cut(name: str, longest: int, end: int) -> str:
    """Leave out the middle of a long name, so that so many letters of its end are kept."""
    if len(name) <= longest:
        return name
    return f"{name[: longest - 1 - end]}…{name[len(name) - end :]}"


class _Laid(NamedTuple):
    """A column as it is laid out on the terminal."""

    title: str
    cells: Sequence[str]
    is_right: bool


_GAP = 2
"""Between columns: the padding, and one that the box of a table adds."""


def _widest(*columns: _Laid) -> int:
    """Return the characters that columns need, each with the gap after it."""
    return sum(max(map(cell_len, (own.title, *own.cells))) + _GAP for own in columns)


def _width(cell: RenderableType) -> int:
    """Return the characters of the longest line of a cell, which is a `Text`."""
    return max(map(cell_len, str(cell).split("\n")))


def _widest_cell(column: RichColumn) -> int:
    # An empty column takes a character, too.
    return max(column.min_width or 1, *map(_width, (column.header, *column.cells)))


class _Table(RichTable):
    """A compact table whose cells are `Text`, so that nothing in them is markup.

    Long names lose their middles where the line is too short for them. Where numbers do not fit
    even so, each row is printed below its titles.
    """

    def __init__(self, heading: str) -> None:
        super().__init__(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=0)
        self.heading = heading
        """Above the table, which may be narrower."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table, or the rows below each other."""
        width = options.max_width
        # Rich gives an empty column a character and a gap.
        while self.columns and not any(
            map(_width, (self.columns[-1].header, *self.columns[-1].cells))
        ):
            del self.columns[-1]
        if self.heading:
            yield Text(self.heading, style="bold")
        # Of columns that are not wrapped all characters, of the others the least.
        widths = (_widest_cell(c) if c.no_wrap else self._least(c) for c in self.columns)
        if self._gaps + sum(widths) <= width:
            self._shorten_names(width)
            yield from super().__rich_console__(console, options)
            return
        named: RenderableType = ""
        for first, *others in zip(*(column.cells for column in self.columns), strict=True):
            # A name that is left out is the one above, which is no longer beside it.
            named = first if str(first) or not self.columns[0].min_width else named
            yield from self._stacked((named, *others), width)
            yield Segment("\n")

    def _stacked(self, row: Sequence[RenderableType], width: int) -> Iterator[RenderableType]:
        """Yield the cells of a row below each other; what does not fit goes below its title."""
        heads = [str(column.header).strip() for column in self.columns]
        widest = max(map(cell_len, heads))
        for head, column, cell in zip(heads, self.columns, row, strict=True):
            text = " ".join(str(cell).split())
            # Numbers of notes have no title of their own.
            label = head or ("Notes" if text[:1].isdigit() else "")
            if not text:
                continue
            room = width - widest - 1
            if cell_len(text) <= room or (column.min_width or width) <= room:
                short = elided([text], room)[0]
                yield Text(f"{label:<{widest}} {short}")
                continue
            yield Text(label)
            short = elided([text], width - 2)[0] if column.min_width else text
            # Limits stay together.
            bound = re.sub(r"(?<=,) (?=[-+.\d]+[])])", "\N{NO-BREAK SPACE}", short)
            for line in wrap(bound, width - 2, break_on_hyphens=False):
                yield Text("  " + line.replace("\N{NO-BREAK SPACE}", " "))

    @property
    def _gaps(self) -> int:
        _, right, _, left = self.padding
        return (len(self.columns) - 1) * (1 + left + right)

    def _shorten_names(self, width: int) -> None:
        """Take the middles out of the longest names, column by column, until the lines fit."""
        names = [i for i, c in enumerate(self.columns) if not c.no_wrap and c.min_width]
        widths = [_widest_cell(c) if c.no_wrap or c.min_width else 1 for c in self.columns]
        least = {i: self._least(self.columns[i]) for i in names}
        over = self._gaps + sum(widths) - width

        def cut(ceiling: int) -> int:
            return sum(max(widths[i] - max(ceiling, least[i]), 0) for i in names)

        # A name may have a million characters: all but the last few go at once.
        ceiling = bisect_left(range(max(widths, default=0)), x=True, key=lambda w: cut(w) <= over)
        over -= cut(ceiling)
        for i in names:
            widths[i] = min(widths[i], max(ceiling, least[i]))
        while over > 0 and (wide := [i for i in names if widths[i] > least[i]]):
            widest = max(wide, key=lambda i: widths[i])
            widths[widest] -= 1
            over -= 1
        for i in names:
            column = self.columns[i]
            short = self._short_names(column, widths[i])
            cells: list[RenderableType] = [
                Text("\n".join(short[line] for line in text.plain.split("\n")), style=text.style)
                for text in cast("Iterable[Text]", column.cells)
            ]
            self.columns[i] = replace(column, _cells=cells)

    @staticmethod
    def _short_names(column: RichColumn, width: int) -> dict[str, str]:
        """Return the names of a column, without their middles where they are wider."""
        lines = dict.fromkeys(line for c in column.cells for line in str(c).split("\n"))
        short: dict[str, str] = {}
        # Names of one depth differ in more than how far they are indented.
        for indent, own in grouped(lines, lambda x: len(x) - len(x.lstrip())).items():
            names = elided([line[indent:] for line in own], max(width - indent, 3))
            short |= {a: " " * indent + b for a, b in zip(own, names, strict=True)}
        return short

    def _least(self, column: RichColumn) -> int:
        """Return the characters below which names would be broken, or be alike."""
        if not column.min_width:
            return 1
        widths = range(max(column.min_width, _width(column.header)), _widest_cell(column))
        fits = (max(map(cell_len, self._short_names(column, w).values())) <= w for w in widths)
        return next((w for w, fit in zip(widths, fits, strict=True) if fit), _widest_cell(column))


class Link(NamedTuple):
    """A text that leads somewhere."""

    text: str
    url: str


def markdown_table(
    header: Sequence[str], rows: Iterable[Sequence[str | Link]], *, right: Collection[int]
) -> list[str]:
    """Return the lines of a Markdown table; numbers of columns from 0 are aligned `right`."""
    rule = ["---:" if i in right else "---" for i in range(len(header))]
    titles, *cells = [[markdown_cell(cell) for cell in row] for row in (header, *rows)]
    return [f"| {' | '.join(row)} |" for row in (titles, rule, *cells)]


def markdown_cell(cell: str | Link) -> str:
    """Return a text or link escaped for a cell of a Markdown table."""
    text = markdown_text(cell) if isinstance(cell, str) else markdown_link(*cell)
    return text.replace("|", "\\|")


def booktabs(spec: str, rows: Sequence[str]) -> list[str]:
    """Return the lines of a LaTeX table, between rules, of rows that are LaTeX."""
    begin = rf"\begin{{tabular}}{{{spec}}}"
    return [begin, r"\toprule", *rows, r"\bottomrule", r"\end{tabular}"]


def latex_row(cells: Iterable[str]) -> str:
    r"""Return a row of a LaTeX table, of cells that are LaTeX.

    >>> latex_row(["[a]", "0.5"])
    '{}[a] & 0.5 \\\\'
    """
    row = " & ".join(cells)
    # The end of the row above would take such a letter for its own option.
    return "{}" * row.lstrip().startswith(("[", "*")) + row + r" \\"
