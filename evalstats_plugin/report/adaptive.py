"""Tables of adaptive tests, of their simulated accuracy, and of item banks.

* `TESTS`: tests, and the accuracy of each rule
* `ACCURACY`: simulated tests by rule and number of items
* `BANK`: what a bank holds
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING, Any, TextIO

from rich.text import Text

from evalstats_plugin.errors import few
from evalstats_plugin.report import text as report_text
from evalstats_plugin.report.text import View, number, percent, print_all, titled

if TYPE_CHECKING:
    from rich.table import Table

    from evalstats_plugin.adaptive.calibrate import BankTask
    from evalstats_plugin.adaptive.replaying import AdaptiveTest, AdaptiveTests, RuleError
    from evalstats_plugin.adaptive.simulation import SimulatedAccuracy
    from evalstats_plugin.data.results import Results


TESTS_LEGEND = (
    "Asked: items asked, of all in the bank. (Full) score: what the model would score on all of "
    "them, estimated from those asked{log}."
)
_LOG = "; Log: what all answers in the log say"
_MOST_REASONS = 10
"""Number of tests up to which stop reasons are shown; JSON and CSV always have them."""

RULES_LEGEND = (
    "Error: mean absolute error of the predicted full score, against the log; Held: how often the "
    "prediction's interval holds the log's score; Rank: Spearman's correlation of both."
)
_BY_RULE = ("Rule", "Models", "Asked", "Error", "Width", "Held", "Rank")
ACCURACY_LEGEND = (
    "Ability: root mean squared error; Rank: Spearman's correlation of estimated and true "
    "abilities; Score: mean absolute error of the predicted full score, with its interval over "
    "models; Width: of the prediction's own interval. Held: how often the test's own interval "
    "holds the truth, first of the ability, then of the score."
)
_ACCURACY = ("Rule", "n", "Ability", "Held", "Rank", "Score", "", "Width", "Held")
BANK_LEGEND = (
    "Asked: items that may be asked; the others count in the full score all the same. Difficulty, "
    "Discr.: medians of these; S.e.: standard error of an average model's ability, were all of "
    "them asked."
)
_MOST_NAMES = 5
_COLUMNS = ("Task", "Items", "Asked", "Difficulty", "Discr.", "S.e.", "Cost")


def print_tests(results: AdaptiveTests, file: TextIO, *, heading: str, width: int | None) -> None:
    """Print one table per task, or per model for several rules; accuracy by rule; the notes."""
    marks = report_text.note_numbers(results.rows)
    several = len({row.rule for row in results.rows}) > 1
    groups = groupby(results.rows, key=lambda row: (row.task, row.model if several else ""))
    tables = [_table(model, list(rows), marks) for (_, model), rows in groups]
    said = [_legend(results.rows)]
    if results.by_rule:
        tables.append(_rules_table(results.by_rule))
        said.append(RULES_LEGEND)
    stops: list[str] = []
    if len(results.rows) <= _MOST_REASONS:
        stops = [line for row in results.rows for line in _said(row)]
    print_all(
        tables, report_text.note_lines(results), [*stops, *said, heading], file=file, width=width
    )


def _said(row: AdaptiveTest) -> list[str]:
    """Why a test stopped, and several abilities with their errors."""
    lines = [f"{row.model}: stopped, {row.stopped}"]
    if row.abilities:
        pairs = zip(row.abilities, row.abilities_std_error, strict=True)
        each = [f"{ability:+z.2f} ± {error:.2f}" for ability, error in pairs]
        shown = ", ".join(f"{k}: {found}" for k, found in enumerate(each, 1))
        lines.append(f"{row.model}: abilities {shown} (standard errors)")
    return lines


def _legend(rows: Sequence[AdaptiveTest]) -> str:
    log = "" if all(row.observed is None for row in rows) else _LOG
    return TESTS_LEGEND.format(log=log)


def _table(model: str, rows: list[AdaptiveTest], marks: dict[str, int]) -> Table:
    """Make a table of models, or of one model's tests by several rules."""
    interval = f"{percent(rows[0].confidence_level)} interval"
    title = report_text.task_and_metric(rows[0])
    name, score = ("Rule", "Score") if model else ("Model", "Full score")
    logged = any(row.observed is not None for row in rows)
    numbers = ["Asked", "Ability", score, *["Log"] * logged]
    columns = [name, *numbers[:2], interval, score, interval, *numbers[3:], ""]
    title = f"{model}: {title}" if model else title
    table = titled(title, columns, right=numbers, fold={name: 14})
    for row in rows:
        cells = [Text(cell) for cell in _test_cells(row)[: None if logged else -1]]
        mark = Text(",".join(str(marks[note]) for note in row.notes), style="dim")
        table.add_row(Text(row.rule if model else row.model), *cells, mark)
    return table


def _test_cells(row: AdaptiveTest) -> list[str]:
    return [
        f"{row.n_items}/{row.n_in_bank}",
        f"{row.ability:+z.2f}",
        f"[{row.low:+z.2f}, {row.high:+z.2f}]",
        number(row.full_score),
        f"[{number(row.full_score_low)}, {number(row.full_score_high)}]",
        number(row.observed),
    ]


def _rules_table(rules: Sequence[RuleError]) -> Table:
    table = titled("How right each rule was", _BY_RULE, right=_BY_RULE[1:])
    for rule in rules:
        table.add_row(*_rule_cells(rule))
    return table


def _rule_cells(rule: RuleError) -> list[str]:
    rank = rule.rank_correlation
    return [
        rule.rule,
        str(rule.n_models),
        f"{rule.n_items:.1f}",
        f"{rule.score_mae:.4f}",
        f"{rule.score_width:.3f}",
        f"{100 * rule.score_coverage:.0f} %",
        "–" if rank is None else f"{rank:.3f}",
    ]


def tests_markdown(results: AdaptiveTests, heading: str) -> str:
    """Return one Markdown table, the accuracy of each rule, the notes, and how it was made."""
    marks = report_text.note_numbers(results.rows)
    level = percent(results.rows[0].confidence_level if results.rows else 0.95)
    titles = ["Model", "Task", "Rule", "Asked", "Ability", f"{level} interval", "Full score"]
    titles += [f"{level} interval", "Log", "Stopped", ""]
    cells = [
        [
            *(row.model, row.task, row.rule, *_test_cells(row)),
            *(row.stopped, ", ".join(str(marks[note]) for note in row.notes)),
        ]
        for row in results
    ]
    lines = report_text.markdown_table(titles, cells, right=range(3, 9))
    lines += ["", _legend(results.rows), ""]
    if results.by_rule:
        rules = map(_rule_cells, results.by_rule)
        lines += report_text.markdown_table(_BY_RULE, rules, right=range(1, 7))
        lines += ["", RULES_LEGEND, ""]
    return "\n".join([*lines, *report_text.markdown_notes(results), "", heading, ""])


def tests_json(results: AdaptiveTests, about: Mapping[str, Any]) -> str:
    """Return one JSON object: what was run, the accuracy of each rule, and the tests."""
    return report_text.to_json(
        results, {**about, "rules": [asdict(rule) for rule in results.by_rule]}
    )


def print_accuracy(
    results: Results[SimulatedAccuracy], file: TextIO, *, heading: str, width: int | None
) -> None:
    """Print one table for all rules."""
    table = titled(_drawn(results), _ACCURACY, right=_ACCURACY[1:])
    previous = ""
    for row in results.rows:
        name = "" if row.rule == previous else row.rule.replace(", ", ",\n")
        table.add_row(name, *_accuracy_cells(row))
        previous = row.rule
    said = [f"* {note}" for note in results.notes]
    print_all([table], said, [ACCURACY_LEGEND, heading], file=file, width=width)


def accuracy_markdown(results: Results[SimulatedAccuracy], heading: str) -> str:
    """Return one Markdown table, a legend, and how it was made."""
    cells = [[row.rule, *_accuracy_cells(row)] for row in results]
    drawn = report_text.markdown_text(_drawn(results))
    lines = [drawn, "", *report_text.markdown_table(_ACCURACY, cells, right=range(1, 9))]
    said = report_text.markdown_list(results.notes)
    return "\n".join([*lines, "", ACCURACY_LEGEND, "", *said, "", heading, ""])


def _drawn(results: Results[SimulatedAccuracy]) -> str:
    row = results.rows[0]
    text = f"{row.n_models} models drawn from the bank"
    return text if row.misspecified == 1 else f"{text}, errors of items × {row.misspecified:g}"


def _accuracy_cells(row: SimulatedAccuracy) -> list[str]:
    def shown(value: float | None, form: str) -> str:
        return "–" if value is None else format(value, form)

    def share(value: float | None) -> str:
        return "–" if value is None else f"{100 * value:.0f} %"

    return [
        str(row.n_items),
        shown(row.ability_rmse, ".3f"),
        share(row.ability_coverage),
        shown(row.rank_correlation, ".3f"),
        f"{row.score_mae:.4f}",
        f"[{row.score_mae_low:.4f}, {row.score_mae_high:.4f}]",
        shown(row.score_width, ".3f"),
        share(row.score_coverage),
    ]


def print_bank(
    results: Results[BankTask], file: TextIO, *, heading: str, width: int | None
) -> None:
    """Print a line for each task, then the items that are not asked."""
    title = f"{results.rows[0].n_models} models calibrated, by {results.rows[0].metric}"
    table = titled(title, _shown(results), right=_COLUMNS[1:], fold={"Task": None})
    for row in results.rows:
        table.add_row(*(Text(cell) for cell in _bank_cells(row)[: len(table.columns)]))
    said = [f"* {text}" for text in (*_left_out(results), *results.notes)]
    print_all([table], said, [BANK_LEGEND, heading], file=file, width=width)


def bank_markdown(results: Results[BankTask], heading: str) -> str:
    """Return one Markdown table, the items that are not asked, and how it was made."""
    names = _shown(results)
    cells = [_bank_cells(row)[: len(names)] for row in results]
    lines = report_text.markdown_table(names, cells, right=range(1, len(names)))
    said = report_text.markdown_list([*_left_out(results), *results.notes])
    return "\n".join([*lines, "", BANK_LEGEND, "", *said, "", heading, ""])


def _shown(results: Results[BankTask]) -> list[str]:
    return [*_COLUMNS] if any(row.cost is not None for row in results.rows) else [*_COLUMNS[:-1]]


def _bank_cells(row: BankTask) -> list[str]:
    return [
        row.task,
        str(row.n_items),
        str(row.n_usable),
        "–" if row.difficulty is None else f"{row.difficulty:+z.2f}",
        "–" if row.discrimination is None else f"{row.discrimination:.2f}",
        "–" if row.std_error is None else f"{row.std_error:.3f}",
        "–" if row.cost is None else f"{row.cost:,.6g}",
    ]


def _left_out(results: Results[BankTask]) -> list[str]:
    """Return, for each task and reason, how many items are not asked, with a few names."""
    said: list[str] = []
    for row in results.rows:
        parts = [text.partition(": ") for text in row.left_out]
        for reason, count in Counter(reason for _, _, reason in parts).items():
            names = [item for item, _, why in parts if why == reason]
            said.append(f"not asked, {reason}: {count} of {row.task} ({few(names, _MOST_NAMES)})")
    return said


TESTS = View(print_tests, tests_markdown, tests_json)
ACCURACY = View(print_accuracy, accuracy_markdown)
BANK = View(print_bank, bank_markdown)
