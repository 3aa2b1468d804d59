"""Comparisons of models, for people: on the terminal and in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TextIO

from rich.table import Table
from rich.text import Text

from evalstats_plugin.report import formats, notes, ranks
from evalstats_plugin.report.text import number, percent, print_all, titled
from evalstats_plugin.results import Comparison, Comparisons

_STYLES = {"better": "green", "worse": "red", "unclear": "dim"}

LEGEND = (
    "Each model is set against another, on the items that both answered unless a note says "
    "otherwise. better, worse: beyond chance at the confidence level, allowing for the number of "
    "pairs as the correction named below does. unclear: these items do not tell the two apart."
)
PROBABILITY = (
    " P(better): how probable it is that the model is truly the better of the two, looking at this "
    "pair alone."
)


def print_comparisons(
    results: Comparisons, file: TextIO, *, heading: str, width: int | None
) -> None:
    """Print one table per task and metric, then the notes and what the words mean."""
    marks = notes.numbers(results.rows)
    by_metric = groupby(results.rows, key=lambda row: (row.task, row.metric))
    tables = [_table(list(rows), marks) for _, rows in by_metric]
    print_all(tables, notes.lines(results), [_legend(results), heading], file=file, width=width)


def _legend(results: Comparisons) -> str:
    known = any(row.prob_better is not None for row in results)
    return LEGEND + PROBABILITY if known else LEGEND


def to_markdown(results: Comparisons, heading: str) -> str:
    """Return one Markdown table, the notes, what the words mean, and how it was made."""
    level = results.rows[0].confidence_level if results.rows else 0.95
    header = ["Task", "Metric", "Model", "Against", "n", "Difference", f"{percent(level)} interval"]
    header += ["p, adjusted", "P(better)", "Verdict", "Method", ""]
    marks = notes.numbers(results.rows)
    lines = [formats.line(header), formats.line(["---"] * 4 + ["---:"] * 5 + ["---"] * 3)]
    orders: list[str] = []
    for (task, metric), rows in groupby(results.rows, key=lambda row: (row.task, row.metric)):
        if line := ranks.order_line(list(rows)):
            orders += [f"{task} {notes.short_metric(metric)}: {line}", ""]
    for row in results:
        cells = [row.task, notes.short_metric(row.metric), row.model_b, row.model_a]
        cells += [str(row.n_items), size(row, row.difference), interval(row)]
        cells += [p_value(row.p_adjusted), probability(row.prob_better), row.verdict, row.method]
        cells += [", ".join(str(marks[n]) for n in row.notes)]
        lines.append(formats.line([formats.cell(text) for text in cells]))
    said = [text.replace("* ", "- ", 1) for text in notes.lines(results)]
    return "\n".join([*lines, "", *orders, *said, "", _legend(results), "", heading, ""])


def size(row: Comparison, value: float | None) -> str:
    """Write a difference with its sign; a ratio has none."""
    text = number(value)
    return f"+{text}" if row.measure == "difference" and value is not None and value > 0 else text


def interval(row: Comparison) -> str:
    """Write the interval of a difference, or a dash."""
    if row.low is None or row.high is None:
        return "–"
    return f"[{size(row, row.low)}, {size(row, row.high)}]"


def p_value(value: float | None) -> str:
    """Write a p-value: four decimals, and no zero."""
    if value is None:
        return "–"
    return f"{value:.4f}" if value >= 0.00005 else "<0.0001"


def probability(value: float | None) -> str:
    """Write a probability in per cent, never as a certainty."""
    if value is None:
        return "–"
    if value < 0.001:
        return "<0.1 %"
    return f"{100 * value:.1f} %" if value <= 0.999 else ">99.9 %"


def _table(rows: Sequence[Comparison], marks: dict[str, int]) -> Table:
    first = rows[0]
    baselines = {row.model_a for row in rows}
    sizes = {row.n_items for row in rows}
    title = f"{first.task} {notes.short_metric(first.metric)}"
    title += f", {first.n_items} items" if len(sizes) == 1 else ""
    title += f", against {first.model_a}" if len(baselines) == 1 else ""
    title += ", lower is better" if first.higher_is_better is False else ""
    table = titled(title)
    table.add_column("Model", overflow="fold", min_width=8)
    if len(baselines) > 1:
        table.add_column("Against", overflow="fold", min_width=8)
    if len(sizes) > 1:
        table.add_column("n", justify="right", no_wrap=True)
    measure = "Diff." if first.measure == "difference" else first.measure.capitalize()
    table.add_column(measure, justify="right", no_wrap=True)
    table.add_column(f"{percent(first.confidence_level)} interval", no_wrap=True)
    table.add_column("p, adj.", justify="right", no_wrap=True)
    table.add_column("P(better)", justify="right", no_wrap=True)
    table.add_column("Verdict", no_wrap=True)
    table.add_column("", no_wrap=True)
    for row in rows:
        word = row.verdict
        table.add_row(
            Text(row.model_b),
            *([Text(row.model_a)] if len(baselines) > 1 else []),
            *([str(row.n_items)] if len(sizes) > 1 else []),
            size(row, row.difference),
            interval(row),
            p_value(row.p_adjusted),
            probability(row.prob_better),
            Text(word, style=_STYLES[word]),
            Text(",".join(str(marks[n]) for n in row.notes), style="dim"),
        )
    if line := ranks.order_line(rows):
        table.caption = Text(line, justify="left")
    return table
