"""Tables of models and tasks: on the terminal, in Markdown and in LaTeX.

Ranks, letters and marks are those of the overall score where there is one; each column marks who
may be the best of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from itertools import chain, groupby
from statistics import median
from typing import TextIO

from evalstats_plugin.comparisons.leaderboard import OVERALL, ColumnKey, ScoreTable, TableCell
from evalstats_plugin.data.results import grouped
from evalstats_plugin.errors import counted, few
from evalstats_plugin.report import text
from evalstats_plugin.report.tables import Column, Table, booktabs, elided, latex_number, latex_row
from evalstats_plugin.runtime import VERSION
from evalstats_plugin.runtime.untrusted import latex_text

MOST_LINES = 60
"""Lines up to which columns that do not fit beside the first ones are printed below them."""

MOST_NOTES = 8
"""Notes on single scores that are shown."""

_ELSEWHERE = (" mean of ", "--at-k", "naive: ", "whatever their scores: ")
"""Parts of notes that the legend has, or on what only other reports show."""

_LONGEST_MODEL, _LONGEST_TASK, _LONGEST_TIES = 30, 12, 8
_BESIDE_TITLE = 66
"""Characters of a line that are not the title of the first score."""

_TITLES_ABREAST, _ROWS_OF_A_PAGE = 40, 36
"""Letters of titles beside the overall score, and rows, that a page of LaTeX has room for."""

_NOT_WIDER = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"
_NOT_HIGHER = r"\resizebox*{!}{\ifdim\totalheight>.8\textheight.8\textheight\else\totalheight\fi}{%"


@dataclass(frozen=True)
class Layout:
    """The cells of a table by model and column, and how numbers are written."""

    table: ScoreTable
    percent: bool
    digits: int | None

    @property
    def lead(self) -> ColumnKey | None:
        """Titled whose ranks are shown: the overall score, or the only one."""
        columns = list(self.table.by_column)
        is_first = bool(columns) and (columns[0][0] == OVERALL or len(columns) == 1)
        return columns[0] if is_first else None

    @property
    def others(self) -> list[ColumnKey]:
        """The other columns."""
        return [key for key in self.table.by_column if key != self.lead]

    @property
    def is_ranked(self) -> bool:
        """Whether models have ranks by the first column."""
        return any(c.best_rank is not None for c in self.cells(self.lead).values())

    @property
    def has_ties(self) -> bool:
        """Whether letters are few enough to be read; rank ranges say the same."""
        letters = [c.letters for c in self.cells(self.lead).values()]
        return any(letters) and max(map(len, letters)) <= _LONGEST_TIES

    def cells(self, column: ColumnKey | None) -> Mapping[str, TableCell]:
        """Return the cells of a column by model."""
        return {} if column is None else self.table.by_column[column]

    def format(self, column: ColumnKey | None) -> Callable[[float | None], str]:
        """Return what writes a number with as many decimals as the limits of a column support."""
        scale = 100.0 if self.percent else 1.0
        digits = self.digits
        if digits is None:
            widths = [
                scale * (c.high - c.low) / 2
                for c in self.cells(column).values()
                if c.low is not None and c.high is not None and c.high > c.low
            ]
            # Two significant digits of the median half-width.
            digits = max(1 - math.floor(math.log10(median(widths))), 0) if widths else 3
        return lambda value: "–" if value is None else f"{scale * value:.{digits}f}"

    def lead_name(self) -> str:
        """Return the name of the first column."""
        return column_name(self.lead) if self.lead else ""

    def pairs_at_once(self) -> tuple[str, str] | None:
        """Return the pairs that ranks rest on, in words, as of `pairs_at_once`; None without."""
        ranked = [c.n_models for c in self.cells(self.lead).values() if c.best_rank is not None]
        return text.pairs_at_once(max(ranked)) if ranked else None

    def groups(self) -> Iterator[tuple[bool, str, TableCell | None]]:
        """Yield each model with its first cell, and whether the best possible rank jumps there."""
        lead, last = self.cells(self.lead), None
        for model in self.table.models:
            cell = lead.get(model)
            best = cell.best_rank if cell else None
            # A new block begins where nobody above may have this model's best rank.
            jumps = last is not None and best is not None and best > last
            last = max(last or 0, (cell.worst_rank or 0) if cell else 0) or None
            yield jumps, model, cell


def column_name(column: ColumnKey) -> str:
    """Return the heading of a column."""
    kind, name = column
    return "Overall" if kind == OVERALL else name


def latex_percent(level: float) -> str:
    """Return a confidence level in LaTeX."""
    return rf"{100 * level:.6g}\,\%"


def _rank(cell: TableCell | None) -> str:
    return text.places(cell.best_rank, cell.worst_rank) if cell else text.places(None, None)


def _limits(cell: TableCell | None, write: Callable[[float | None], str]) -> str:
    if cell is None or cell.low is None or cell.high is None:
        return ""
    return f"[{write(cell.low)}, {write(cell.high)}]"


def print_table(
    results: ScoreTable,
    file: TextIO,
    *,
    heading: str,
    width: int,
    percent: bool = False,
    digits: int | None = None,
) -> None:
    """Print the models with their overall score and as many columns as fit; then the notes."""
    layout = Layout(results, percent, digits)
    longest = max(width - _BESIDE_TITLE, _LONGEST_TASK)
    tables, hidden = _shown(layout, longest=longest).terminal_tables(
        width, longest_title=_LONGEST_TASK, most_lines=MOST_LINES
    )
    more = f"{counted(hidden, 'more column')}: --format csv has all. " if hidden else ""
    # What columns and marks mean: two lines where no name is long.
    mean = _mean(layout)
    said = [f"{layout.lead_name()}: {mean}."] if mean else []
    if ranked := layout.pairs_at_once():
        level = text.percent(results.confidence_level)
        said.append(f"Rank: left open by {''.join(ranked)}, {level}.")
        said += ["Ties share a letter."] if layout.has_ties else []
    marked = (layout.cells(key).values() for key in layout.others)
    said += ["*: may be the best."] if any(map(_may_be_first, chain(*marked))) else []
    closing = filter(None, [more + " ".join(said), heading])
    text.print_all(tables, _notes(results), [*closing], file=file, width=width)


def _notes(results: ScoreTable) -> list[str]:
    """Return the notes on the whole, then those on single cells with their tasks and models."""
    said = list(results.notes)
    for note, cells in text.gather(results.rows).items():
        if any(part in note for part in _ELSEWHERE):
            continue
        where = [
            name
            if len(own) == len(results.by_column[kind, name])
            else f"{name} by {few([cell.model for cell in own], most=2)}"
            for (kind, name), own in grouped(cells, lambda cell: (cell.kind, cell.task)).items()
        ]
        said.append(f"{note} ({few(where)})")
    hidden = len(said) - len(results.notes) - MOST_NOTES
    if hidden > 0:
        said[-hidden:] = [f"{counted(hidden, 'more note')} on single scores: --format csv has all"]
    return [f"* {note}" for note in said]


def _shown(layout: Layout, longest: int | None = None) -> Table:
    """Return the table of models with their overall score, and of the other columns."""
    lead = layout.cells(layout.lead)
    write = layout.format(layout.lead)
    columns = [Column("Model", str, least=_LONGEST_MODEL, right=False)]
    if layout.lead is not None:
        (name,) = elided([layout.lead_name()], longest or len(layout.lead_name()))
        head = f"{name} [{text.percent(layout.table.confidence_level)} limits]"
        columns.append(Column(head, lambda model: _score(lead.get(model), write)))
    if layout.is_ranked:
        columns.insert(0, Column("Rank", lambda model: _rank(lead.get(model)), right=True))
    if layout.has_ties:
        columns.append(Column("Ties", lambda model: lead[model].letters if model in lead else ""))
    for key in layout.others:
        cell, estimate = layout.cells(key).get, partial(_estimate, write=layout.format(key))
        columns.append(Column(key[1], cell, estimate, strong=_may_be_first, below=True))
    return Table("", layout.table.models, columns)


def _score(cell: TableCell | None, write: Callable[[float | None], str]) -> str:
    return f"{_estimate(cell, write)} {_limits(cell, write)}"


def _estimate(cell: TableCell | None, write: Callable[[float | None], str]) -> str:
    return write(cell.estimate if cell else None)


def _may_be_first(cell: TableCell | None) -> bool:
    return cell is not None and cell.estimate is not None and bool(cell.may_be_first)


def legend(layout: Layout) -> str:
    """Return what columns and marks of a document mean."""
    results = layout.table
    level = text.percent(results.confidence_level)
    said: list[str] = []
    if mean := _mean(layout):
        said.append(f"{layout.lead_name()}: {mean}.")
    if ranked := layout.pairs_at_once():
        pairs, at_once = ranked
        leave = "leave" if at_once else "leaves"
        said.append(f"Rank: places that {pairs} of models {leave} open{at_once} ({level}).")
        if layout.has_ties:
            said.append("Models that share a letter under Ties cannot be told apart.")
    if layout.others and any(cell.may_be_first for cell in results):
        said.append(f"Bold: may be the best of its column (all columns at once, {level}).")
    return " ".join(said)


def _mean(layout: Layout) -> str:
    """Return what the scores of the first column are the mean of; nothing for a task."""
    table = layout.table
    cell = next(iter(layout.cells(layout.lead).values()), None)
    mean = next((n for n in cell.notes if " mean of " in n), "") if cell else ""
    if cell is None or not mean:
        return ""
    if cell.kind == "group":
        return f"{mean} ({counted(cell.n_items, 'item')})"
    tasks = mean.rpartition(" mean of ")[2]
    what = {"columns": "each", "tasks": "each task", "items": "each item"}[table.weights]
    tasks = tasks.replace("task", "slice") if table.by else tasks
    said = f"mean of {tasks} ({counted(cell.n_items, 'item')}), {what} counting the same"
    if table.weights == "tasks" and any(kind == "group" for kind, _ in table.in_overall):
        said += ", groups once for each of their tasks"
    without = [key[1] for key in layout.others if key not in table.in_overall]
    return f"{said}, without {few(without)}" if without else said


def table_markdown(
    results: ScoreTable, heading: str = "", *, percent: bool = False, digits: int | None = None
) -> str:
    """Return one Markdown table with every column, the notes and a legend."""
    layout = Layout(results, percent, digits)
    page = text.Page([_shown(layout)], [legend(layout)], _notes(results))
    return text.page_view(lambda _: page).to_markdown(results, heading)


def table_latex(
    results: ScoreTable,
    *,
    percent: bool = False,
    digits: int | None = None,
    plus_minus: bool = False,
    cite: bool = False,
    label: str = "",
) -> str:
    r"""Return a LaTeX table that can be read alone; its first line says which packages it needs.

    Many columns have their titles upright, and what is larger than the page is shrunk to it.

    Parameters
    ----------
    percent
        Scores of 100 instead of 1.
    digits
        Decimals; as many as the limits support where left out.
    plus_minus
        Half the width of the interval after ±, instead of its limits in brackets.
    cite
        Whether the caption cites the entries of `bibtex`.
    label
        Name for ``\\ref``; none where it is empty.
    """
    layout = Layout(results, percent, digits)
    write = layout.format(layout.lead)
    columns = [(layout.cells(key), layout.format(key)) for key in layout.others]
    lead = layout.lead is not None
    name = latex_text(layout.lead_name())
    level = latex_percent(results.confidence_level)
    ties = ["Ties"] if layout.has_ties else []
    shown = r"$\pm$" if plus_minus else f"[{level} limits]"
    head = ["Rank", "Model", rf"\multicolumn{{2}}{{l}}{{{name} {shown}}}", *ties]
    head = head if lead else ["Model"]
    whole = [name for _, name in layout.others]
    titles = elided(whole, _LONGEST_TASK)
    abreast = sum(max(len(title), 5) + 2 for title in titles)
    upright = abreast > _TITLES_ABREAST
    titles = map(latex_text, elided(whole, 2 * _LONGEST_TASK) if upright else titles)
    head += [rf"{{\rotatebox{{90}}{{{title}}}}}" if upright else f"{{{title}}}" for title in titles]
    body: list[str] = []
    for jumps, model, cell in layout.groups():
        row = [latex_text(model)]
        if lead:
            half = _half_width(cell, write) if plus_minus else latex_number(_limits(cell, write))
            letters = [cell.letters if cell else ""] if ties else []
            row = [latex_text(_rank(cell)), *row, _number(cell, write), half, *letters]
        row += [_number(own.get(model), short, bold=True) for own, short in columns]
        body += [r"\addlinespace[3pt]"] if jumps else []
        body.append(latex_row(row))
    first = layout.cells(layout.lead)
    spec = rf"@{{}}rl{_aligned(first, write)}@{{\hspace{{3pt}}}}l" + "c" * len(ties)
    spec = spec if lead else "@{}l"
    for alignment, same in groupby(_aligned(cells, short) for cells, short in columns):
        spec += f"*{{{len(list(same))}}}{{{alignment}}}"
    # They shrink only what is larger than the page.
    wide = abreast + max(map(len, results.models), default=0) > _TITLES_ABREAST
    boxes = [_NOT_WIDER] * wide + [_NOT_HIGHER] * (len(results.models) > _ROWS_OF_A_PAGE)
    return latex_float(
        [" & ".join(head) + r" \\", r"\midrule", *body],
        spec=f"{spec}@{{}}",
        packages="booktabs,siunitx" + ",graphicx" * bool(boxes),
        caption=_caption(layout, plus_minus=plus_minus, cite=cite),
        label=label,
        before=[r"\sisetup{detect-weight}", *boxes],
        after="}" * len(boxes),
    )


def latex_float(
    rows: Sequence[str],
    *,
    spec: str,
    packages: str,
    caption: str,
    label: str,
    before: Sequence[str] = (),
    after: str = "",
) -> str:
    """Return a floating LaTeX table of rows that are LaTeX; `before` and `after` are around it."""
    lines = [
        rf"% \usepackage{{{packages}}}",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{caption}}}",
        *([rf"\label{{{label}}}"] if label else []),
        *before,
        *booktabs(spec, rows),
    ]
    return "\n".join([*lines[:-1], lines[-1] + after, r"\end{table}", ""])


def _number(
    cell: TableCell | None, write: Callable[[float | None], str], *, bold: bool = False
) -> str:
    if cell is None or cell.estimate is None:
        return "{--}"
    return r"\bfseries " * (bold and bool(cell.may_be_first)) + write(cell.estimate)


def _aligned(cells: Mapping[str, TableCell], write: Callable[[float | None], str]) -> str:
    """Return siunitx's column for these numbers: digits below digits."""
    texts = [write(c.estimate) for c in cells.values() if c.estimate is not None] or ["0"]
    whole, _, decimals = zip(*(text.lstrip("-").partition(".") for text in texts), strict=True)
    sign = "-" * any(text.startswith("-") for text in texts)
    digits = ".".join(filter(None, (f"{max(map(len, whole))}", f"{len(decimals[0]) or ''}")))
    return f"S[table-format={sign}{digits}]"


def _half_width(cell: TableCell | None, write: Callable[[float | None], str]) -> str:
    if cell is None or cell.low is None or cell.high is None:
        return ""
    return rf"$\pm$ {write((cell.high - cell.low) / 2)}"


def _caption(layout: Layout, *, plus_minus: bool, cite: bool) -> str:
    results = layout.table
    level = latex_percent(results.confidence_level)
    of = ", of 100" if layout.percent else ""
    said = [f"Scores of {counted(len(results.models), 'model')}{of}."]
    if layout.lead is not None:
        limits = (
            f"$\\pm$ half the width of its {level} interval" if plus_minus else f"{level} limits"
        )
        mean = latex_text(_mean(layout) or "mean of its items")
        said.append(rf"\emph{{{latex_text(layout.lead_name())}}}: {mean}, with {limits}.")
    if ranked := layout.pairs_at_once():
        pairs, at_once = ranked
        source = r"~\cite{mogstad2024ranks}" if cite else ""
        how = f"on the same items ({level}, one critical value for all pairs){source}"
        if any(own.independent for own in results.pairs):
            how = f"{results.compared_on} ({level})"
        said.append(
            rf"\emph{{Rank}}: places left open by {pairs} of models{at_once}, compared {how}."
        )
        if layout.has_ties:
            said.append(r"Models that share a letter under \emph{Ties} cannot be told apart.")
    if layout.others and any(cell.may_be_first for cell in results):
        source = r"~\cite{hsu1981best}" if cite else ""
        said.append(f"Bold: may be the best of its column{source}.")
    metrics = dict.fromkeys(text.short_metric(c.metric) for c in results if c.kind != "overall")
    said.append(latex_text(f"Metrics: {few(list(metrics))}."))
    source = r"~\cite{evalstats_plugin}" if cite else ""
    said.append(f"Computed by evalstats-plugin {VERSION}{source}.")
    return " ".join(said)


def bibtex() -> str:
    """Return the BibTeX entries that a caption cites."""
    entries = files("evalstats_plugin.report").joinpath("captions.bib").read_text("utf-8")
    return entries.replace("%s", VERSION)


def table_view(*, percent: bool, digits: int | None, plus_minus: bool, cite: bool) -> text.View:
    """Return the view of a table; options are those of `table_latex`."""
    numbers = {"percent": percent, "digits": digits}
    return text.View(
        partial(print_table, **numbers),
        partial(table_markdown, **numbers),
        to_latex=partial(table_latex, plus_minus=plus_minus, cite=cite, **numbers),
    )
