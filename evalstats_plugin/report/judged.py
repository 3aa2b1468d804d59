"""Tables of judges: corrected scores, differences of models, agreement of raters, bias."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TextIO

from rich.console import RenderableType

from evalstats_plugin.comparisons.judged import JudgedScores, NextLabel
from evalstats_plugin.data.results import Results, grouped
from evalstats_plugin.errors import few
from evalstats_plugin.report import text
from evalstats_plugin.report.answers import answer_tables, p_value, short_names
from evalstats_plugin.report.comparisons import comparisons_markdown
from evalstats_plugin.report.tables import Column, Table, fixed, one_line
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
    results: JudgedScores, file: TextIO, *, heading: str, width: int, explain: bool = False
) -> None:
    """Print scores, then differences, agreement and bias, then the notes; or what all means."""
    marks = text.note_numbers(results.rows)
    names = short_names(list(dict.fromkeys(row.model for row in results)))
    shown: list[RenderableType] = [
        table.terminal() for table in _scores(results.rows, marks, names, narrow=width < WIDE)
    ]
    closing = _legends(results) if explain else ["What the words mean: --explain"]
    notes = text.note_lines(results)
    compared = results.differences
    if compared is not None:
        shown += ["", *answer_tables(compared.rows, {}, width)]
        for note, pairs in text.gather(compared.rows).items():
            whose = few([f"{names[row.model_a]} – {names[row.model_b]}" for row in pairs])
            if not note.startswith(DETAIL):
                notes.append(f"* {note}" + f" ({whose})" * (len(pairs) < len(compared)))
    for table in _of_raters(results, names):
        shown += ["", table.terminal()]
    text.print_all(shown, notes, [*closing, heading], file=file, width=width)


DETAIL = "if one more item in "
"""Beginning of notes on every pair, which JSON and Markdown have."""

WIDE = 90
"""Characters of a line from which on a table says how many items the judge scored."""


def _name(title: str, value: Callable[[Any], str], names: Mapping[str, str]) -> Column:
    """Return a column of names without what all have in common."""
    return Column(title, lambda row: names.get(value(row), value(row)), least=10)


def _legends(results: JudgedScores) -> list[str]:
    legends = [LEGEND]
    if results.agreement:
        weighted = WEIGHTED if any(row.weighted for row in results.agreement) else ""
        legends.append(AGREEMENT.format(weighted=weighted))
    return [*legends, BIAS] if results.bias else legends


def _scores(
    rows: Sequence[CorrectedScore],
    marks: Mapping[str, int],
    names: Mapping[str, str],
    *,
    narrow: bool,
) -> list[Table]:
    tables: list[Table] = []
    for (task, metric), own in grouped(rows, lambda row: (row.task, row.metric)).items():
        n_more = own[0].n_more
        columns = (
            _name("Model", lambda row: row.model, names),
            Column(
                "Labels",
                lambda row: str(row.n_items) if narrow else f"{row.n_items} of {row.n_judged}",
                right=True,
            ),
            Column("Judged", lambda row: text.number(row.judged)[:6], right=True),
            Column("Corrected", "estimate", text.number),
            Column(text.interval_title(own), text.interval_text),
            Column("λ", "weight", fixed(2)),
            Column("Worth", lambda r: "–" if r.worth is None else f"×{r.worth:.2f}", right=True),
            Column(f"+{n_more}" if narrow else f"{n_more} more", _half_width, right=True),
            text.marks_column(marks),
        )
        title = f"{task} {text.short_metric(metric)}, {own[0].judge} on {own[0].n_judged} items"
        tables.append(Table(title, own, columns))
    return tables


def _half_width(row: CorrectedScore) -> str:
    half = row.half_width_more
    return "–" if half is None or not row.n_more else f"±{half:.3f}"


def _limits(estimate: float | None, low: float | None, high: float | None) -> str:
    if estimate is None or low is None or high is None:
        return "–"
    return f"{estimate:z.2f} {text.limits_text(low, high, fixed(2))}"


def _of_raters(results: JudgedScores, names: Mapping[str, str]) -> list[Table]:
    """Return tables of how far raters agree on a task, and of what a judge prefers."""
    agreement = (
        _name("Raters", lambda row: f"{row.rater_a} – {row.rater_b}", names),
        *(Column("n", "n_answers", right=True), Column("Same", "agreement", fixed(2))),
        Column("Kappa [limits]", lambda r: _limits(r.kappa, r.kappa_low, r.kappa_high), right=True),
        Column("AC1 [limits]", lambda row: _limits(row.ac1, row.ac1_low, row.ac1_high), right=True),
        Column("r", "correlation", text.signed),
    )
    points = fixed(3, signed=True)
    bias = (
        _name("Preference for", lambda row: row.feature, names),
        *(Column("Labels", "n_labels", right=True), Column("Points", "size", points)),
        Column("Limits", lambda row: text.interval_text(row, points), right=True),
        *(Column("In sd", "in_sd", text.signed), Column("p", "p_adjusted", p_value)),
        Column("", lambda row: MARKS[row.verdict], right=True),
    )
    by_task = grouped(results.agreement, lambda row: row.task)
    by_judge = grouped(results.bias, lambda row: (row.task, row.judge))
    return [
        *(Table(f"{task}: agreement", own, agreement) for task, own in by_task.items()),
        *(Table(f"{task}: bias of {j}", own, bias) for (task, j), own in by_judge.items()),
    ]


def judged_markdown(results: JudgedScores, heading: str) -> str:
    """Return the same tables in Markdown, the notes, and how it was made."""
    marks = text.note_numbers(results.rows)
    lines: list[str] = []
    for table in _scores(results.rows, marks, {}, narrow=False):
        lines += [*table.markdown(), ""]
    lines += text.markdown_notes(results)
    if results.differences is not None:
        lines += ["", comparisons_markdown(results.differences, "")]
    for table in _of_raters(results, {}):
        lines += [*table.markdown(), ""]
    legends = [f"{legend}\n" for legend in _legends(results)]
    return "\n".join([*lines, "", *legends, heading, ""])


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


SHOWN = 10
"""Answers that a table of the next ones lists; the file has all."""


def _next(results: Results[NextLabel], most: int | None = SHOWN) -> text.Page:
    """Return how many answers are to be labelled, and where they are."""
    asked = [row for row in results if row.score is None]
    n_items = len({(row.task, row.item) for row in asked})
    n_models = len({row.model for row in asked})
    of = f" of {n_items} items, by each of {n_models} models" if n_models > 1 else ""
    more = f" The first {most}:" if most is not None and len(asked) > most else ""
    done = len(results) - len(asked)
    title = f"{len(asked)} answers to label{of}; {done} have a label.{more}"
    columns = (
        *(
            Column("Item", "item", one_line, least=10, right=False),
            Column("Model", "model", least=10),
        ),
        *(Column("Task", "task", least=4), Column("Probability", "probability", fixed(3))),
    )
    return text.Page([Table(title, asked[:most], columns)])


NEXT = text.page_view(_next, document=partial(_next, most=None))
