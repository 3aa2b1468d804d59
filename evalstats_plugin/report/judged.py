"""Tables of judges: corrected scores, differences of models, agreement of raters, bias."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TextIO

from rich.cells import cell_len
from rich.console import RenderableType
from rich.text import Text

from evalstats_plugin.comparisons.judged import JudgedScores, NextLabel
from evalstats_plugin.data.results import Results, grouped
from evalstats_plugin.report import text
from evalstats_plugin.report.answers import answer_tables, short_names
from evalstats_plugin.report.comparisons import comparisons_markdown
from evalstats_plugin.scores.judged import JudgeAgreement, JudgeBias
from evalstats_plugin.scores.rows import CorrectedScore

LEGEND = (
    "Judged: the judge's own mean. Corrected: what people would have said, by their labels and the "
    "judge (PPI++). Worth: how many times as many labels would be needed without the judge. "
    "More: about how sure it would be with that many further labels."
)
AGREEMENT = (
    "Agreement of two raters with one label each. Kappa: Cohen's, beyond chance; AC1: Gwet's, "
    "which does not fall where one score is frequent. {weighted}Not a bias: raters may agree on "
    "average and not on answers."
)
WEIGHTED = "Near scores agree in part (quadratic weights, AC2). "
BIAS = (
    "What the judge adds beyond what people said of an answer and beyond the other features: with "
    "one standard deviation more of length or of the human score (below 0: bad answers are graded "
    "up, good ones down); for a model, beyond the average model. * beyond chance, with limits that "
    "hold for all features of a judge at once; ? beyond chance, but people prefer it, too, among "
    "answers of one score of the judge: it may be quality that labels do not show."
)
MARKS = {"biased": "*", "unsure": "?", "none found": ""}


def print_judged(
    results: JudgedScores,
    file: TextIO,
    *,
    heading: str,
    width: int | None,
    explain: bool = False,
) -> None:
    """Print scores, then differences, agreement and bias, then the notes; or what all means."""
    columns = width or shutil.get_terminal_size((80, 24)).columns
    marks = text.note_numbers(results.rows)
    names = short_names(list(dict.fromkeys(row.model for row in results)))
    shown: list[RenderableType] = [
        text.filled(title, _fitting(lines, columns, names), left=(0, 4))
        for title, lines in _scores(results.rows, marks, narrow=columns < WIDE)
    ]
    closing = [LEGEND, *_legends(results)] if explain else ["What the words mean: --explain"]
    notes = text.note_lines(results)
    compared = results.differences
    if compared is not None:
        shown += ["", *answer_tables(compared.rows, {}, columns)]
        of_pairs = [note for row in compared for note in row.notes if not note.startswith(DETAIL)]
        notes += [f"* {note}" for note in dict.fromkeys(of_pairs)]
    for title, lines in (*_agreements(results.agreement), *_biases(results.bias)):
        shown += ["", text.filled(title, _fitting(lines, columns, names), left=(0,))]
    text.print_all(shown, notes, [*closing, heading], file=file, width=width)


DETAIL = "if one more item in "
"""Beginning of notes on every pair, which JSON and Markdown have."""

SHORTEST = 10
"""Characters of a name that are kept however narrow the terminal."""

WIDE = 90
"""Characters of a line from which on a table says how many items the judge scored."""


def _fitting(lines: text.Lines, width: int, names: Mapping[str, str]) -> text.Lines:
    """Return lines whose first cells leave the others their place: names without their middles."""
    columns = list(zip(*lines, strict=True))
    others = sum(1 + max(map(cell_len, column)) for column in columns[1:])
    first = [names.get(cell, cell) for cell in columns[0]]
    fitting = text.elided(first, max(SHORTEST, width - others - 1))
    return [[cell, *line[1:]] for cell, line in zip(fitting, lines, strict=True)]


def _legends(results: JudgedScores) -> list[str]:
    found: list[str] = []
    if results.agreement:
        weighted = WEIGHTED if any(row.weighted for row in results.agreement) else ""
        found.append(AGREEMENT.format(weighted=weighted))
    return [*found, BIAS] if results.bias else found


def _scores(
    rows: Sequence[CorrectedScore], marks: Mapping[str, int], *, narrow: bool
) -> list[tuple[str, text.Lines]]:
    tables: list[tuple[str, text.Lines]] = []
    for (task, metric), own in grouped(rows, lambda row: (row.task, row.metric)).items():
        level = text.percent(own[0].confidence_level)
        n_more = own[0].n_more
        header = ["Model", "Labels", "Judged", "Corrected", f"{level} interval", "λ", "Worth"]
        header += [f"+{n_more}" if narrow else f"{n_more} more", ""]
        lines = [header]
        for row in own:
            half = row.half_width_more
            lines.append(
                [
                    row.model,
                    str(row.n_items) if narrow else f"{row.n_items} of {row.n_judged}",
                    text.number(row.judged)[:6],
                    text.number(row.estimate),
                    f"[{text.number(row.low)}, {text.number(row.high)}]",
                    text.plain(row.weight) if (row.weight or 0) >= 0 else f"{row.weight:.2f}",
                    "–" if row.worth is None else f"×{row.worth:.2f}",
                    "–" if half is None or not row.n_more else f"±{half:.3f}",
                    ",".join(str(marks[n]) for n in row.notes if n in marks),
                ]
            )
        judge = own[0].judge
        title = f"{task} {text.short_metric(metric)}, {judge} on {own[0].n_judged} items"
        tables.append((title, lines))
    return tables


def _limits(estimate: float | None, low: float | None, high: float | None) -> str:
    if estimate is None or low is None or high is None:
        return "–"
    return f"{estimate:z.2f} [{low:z.2f}, {high:z.2f}]"


def _agreements(rows: Sequence[JudgeAgreement]) -> list[tuple[str, text.Lines]]:
    tables: list[tuple[str, text.Lines]] = []
    for task, own in grouped(rows, lambda row: row.task).items():
        lines = [["Raters", "n", "Same", "Kappa [limits]", "AC1 [limits]", "r"]]
        for row in own:
            same = None if row.agreement is None else f"{row.agreement:.2f}"
            lines.append(
                [
                    f"{row.rater_a} – {row.rater_b}",
                    str(row.n_answers),
                    same or "–",
                    _limits(row.kappa, row.kappa_low, row.kappa_high),
                    _limits(row.ac1, row.ac1_low, row.ac1_high),
                    text.signed(row.correlation),
                ]
            )
        tables.append((f"{task}: agreement", lines))
    return tables


def _biases(rows: Sequence[JudgeBias]) -> list[tuple[str, text.Lines]]:
    tables: list[tuple[str, text.Lines]] = []
    for (task, judge), own in grouped(rows, lambda row: (row.task, row.judge)).items():
        lines = [["Preference for", "Labels", "Points", "Limits", "In sd", "p", ""]]
        for row in own:
            limits = "–" if row.low is None else f"[{row.low:+z.3f}, {row.high:+z.3f}]"
            lines.append(
                [
                    row.feature,
                    str(row.n_labels),
                    "–" if row.size is None else f"{row.size:+z.3f}",
                    limits,
                    text.signed(row.in_sd),
                    _p(row.p_adjusted),
                    MARKS[row.verdict],
                ]
            )
        tables.append((f"{task}: bias of {judge}", lines))
    return tables


def _p(value: float | None) -> str:
    return "–" if value is None else "<0.0001" if value < 1e-4 else f"{value:.4f}"


def judged_markdown(results: JudgedScores, heading: str) -> str:
    """Return the same tables in Markdown, the notes, and how it was made."""
    marks = text.note_numbers(results.rows)
    lines: list[str] = []
    for title, table in _scores(results.rows, marks, narrow=False):
        lines += text.markdown(title, table)
    lines += text.markdown_notes(results)
    if results.differences is not None:
        lines += ["", comparisons_markdown(results.differences, "")]
    for title, table in (*_agreements(results.agreement), *_biases(results.bias)):
        lines += text.markdown(title, table)
    legends = [LEGEND, *_legends(results)]
    return "\n".join([*lines, "", *(f"{each}\n" for each in legends), heading, ""])


def judged_json(results: JudgedScores, about: Mapping[str, Any]) -> str:
    """Return scores, differences, agreements and biases as JSON."""
    compared = results.differences
    return text.to_json(
        results,
        about,
        differences=[] if compared is None else compared.to_dict(),
        agreement=Results(results.agreement).to_dict(),
        bias=Results(results.bias).to_dict(),
    )


def judged_view(*, explain: bool = False) -> text.View:
    """Return the view of corrected scores, and of what else the labels show."""
    return text.View(partial(print_judged, explain=explain), judged_markdown, judged_json)


def print_next(
    results: Results[NextLabel], file: TextIO, *, heading: str, width: int | None
) -> None:
    """Print how many answers are to be labelled, and where they are."""
    asked = [row for row in results if row.score is None]
    shown = [Text(line) for line in _plan(results)]
    lines = [["Item", "Model", "Task", "Probability"]]
    lines += [[row.item, row.model, row.task, f"{row.probability:.3f}"] for row in asked[:SHOWN]]
    if len(asked) > SHOWN:
        shown.append(Text(f"The first {SHOWN} of {len(asked)}:", style="dim"))
    notes = [f"* {note}" for note in results.notes]
    table = text.filled("", lines, left=(0, 1, 2))
    text.print_all([*shown, table], notes, [heading], file=file, width=width)


SHOWN = 10
"""Answers that a table of the next ones lists; the file has all."""


def _plan(results: Results[NextLabel]) -> list[str]:
    asked = [row for row in results if row.score is None]
    n_items = len({(row.task, row.item) for row in asked})
    n_models = len({row.model for row in asked})
    of = f" of {n_items} items, by each of {n_models} models" if n_models > 1 else ""
    done = len(results) - len(asked)
    return [f"{len(asked)} answers to label{of}; {done} have a label."]


def next_markdown(results: Results[NextLabel], heading: str) -> str:
    """Return the answers to label as a table."""
    lines = [["Item", "Model", "Task", "Probability"]]
    lines += [
        [row.item, row.model, row.task, f"{row.probability:.4f}"]
        for row in results
        if row.score is None
    ]
    return "\n".join([*_plan(results), "", *text.markdown("Next labels", lines), heading, ""])


NEXT = text.View(print_next, next_markdown)
"""Of answers to label."""
