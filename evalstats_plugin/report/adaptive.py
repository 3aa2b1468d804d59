"""Tables of adaptive tests, of their simulated accuracy, and of item banks.

* `TESTS`: tests, and their accuracy
* `ACCURACY`: simulated tests by rule and number of items
* `BANK`: what a bank holds
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from evalstats_plugin.data.results import Results, grouped
from evalstats_plugin.errors import few
from evalstats_plugin.report import text
from evalstats_plugin.report.tables import Column, Table, fixed

if TYPE_CHECKING:
    from evalstats_plugin.adaptive.calibrate import BankTask
    from evalstats_plugin.adaptive.replaying import AdaptiveTest, AdaptiveTests
    from evalstats_plugin.adaptive.simulation import SimulatedAccuracy


TESTS_LEGEND = (
    "Asked: items asked, of all in the bank. (Full) score: what the model would score on all of "
    "them, estimated from those asked{log}."
)
_LOG = "; Log: what all answers in the log say"
_MOST_REASONS = 10
"""Number of tests up to which stop reasons are shown; JSON and CSV always have them."""

REPLAY_LEGEND = (
    "Error: mean absolute error of the predicted full score, against the log; Held: how often the "
    "prediction's interval holds the log's score; Rank: Spearman's correlation of both."
)
ACCURACY_LEGEND = (
    "Ability: root mean squared error; Rank: Spearman's correlation of estimated and true "
    "abilities; Score: mean absolute error of the predicted full score, with its interval over "
    "models; Width: of the prediction's own interval. Held: how often the test's own interval "
    "holds the truth, first of the ability, then of the score."
)
BANK_LEGEND = (
    "Asked: items that may be asked; the others count in the full score all the same. Difficulty, "
    "Discr.: medians of these; S.e.: standard error of an average model's ability, were all of "
    "them asked."
)
_MOST_NAMES = 5


def _tests(results: AdaptiveTests) -> text.Page:
    """Return a table of each task, why tests stopped, and the accuracy of all tests."""
    marks = text.note_numbers(results.rows)
    tables: list[Table] = []
    for _, of_task in groupby(results.rows, key=lambda row: row.task):
        rows = list(of_task)
        model = Column("Model", "model", least=14)
        columns = (model, *_test_columns(rows), text.marks_column(marks))
        tables.append(Table(text.task_and_metric(rows[0]), rows, columns))
    stops: list[str] = []
    with_reasons = results.rows if len(results.rows) <= _MOST_REASONS else ()
    for row in with_reasons:
        stops.append(f"{row.model}: stopped, {row.stopped}")
        if row.abilities:
            pairs = zip(row.abilities, row.abilities_std_error, strict=True)
            each = [f"{ability:+z.2f} ± {error:.2f}" for ability, error in pairs]
            shown = ", ".join(f"{k}: {level}" for k, level in enumerate(each, 1))
            stops.append(f"{row.model}: abilities {shown} (standard errors)")
    return _whole(results, tables, stops)


def _tests_document(results: AdaptiveTests) -> text.Page:
    columns = (
        *(Column("Model", "model", least=10), Column("Task", "task", least=10)),
        *(Column("Rule", "rule"), *_test_columns(results.rows)),
        Column("Stopped", "stopped", least=0),
        text.marks_column(text.note_numbers(results.rows)),
    )
    return _whole(results, [Table("", results.rows, columns)], [])


def _whole(results: AdaptiveTests, tables: list[Table], said: Sequence[str]) -> text.Page:
    """Return the page of tests, and where it is known how right they were."""
    log = "" if all(row.observed is None for row in results.rows) else _LOG
    legend = [*said, TESTS_LEGEND.format(log=log)]
    if results.accuracy is not None:
        tables = [*tables, Table("How right the tests were", [results.accuracy], _REPLAYED)]
        legend.append(REPLAY_LEGEND)
    return text.Page(tables, legend, text.note_lines(results))


def _test_columns(rows: Sequence[AdaptiveTest]) -> Sequence[Column]:
    level = text.interval_title(rows)
    logged = any(row.observed is not None for row in rows)
    return (
        Column("Asked", lambda row: f"{row.n_items}/{row.n_in_bank}", right=True),
        Column("Ability", "ability", text.signed),
        Column(level, lambda row: text.interval_text(row, text.signed)),
        Column("Full score", "full_score", text.number),
        Column(level, lambda r: text.limits_text(r.full_score_low, r.full_score_high)),
        *([Column("Log", "observed", text.number)] if logged else []),
    )


_in_percent = fixed(0, scale=100, unit=" %")
_REPLAYED = (
    Column("Models", "n_models", fixed(0)),
    *(Column("Asked", "n_items", fixed(1)), Column("Error", "score_mae", fixed(4))),
    *(Column("Width", "score_width", fixed(3)), Column("Held", "score_coverage", _in_percent)),
    Column("Rank", "rank_correlation", fixed(3)),
)


def tests_json(results: AdaptiveTests, about: Mapping[str, Any]) -> str:
    """Return one JSON object: what was run, the accuracy of the tests, and the tests."""
    accuracy = None if results.accuracy is None else asdict(results.accuracy)
    return text.to_json(results, {**about, "accuracy": accuracy})


def _accuracy(results: Results[SimulatedAccuracy]) -> text.Page:
    """Return one table of all rules, each named once."""
    rows = results.rows
    first = {id(own[0]) for own in grouped(rows, lambda row: row.rule).values()}
    rule = Column("Rule", lambda r: r.rule if id(r) in first else "", least=11)
    title = f"{rows[0].n_models} models drawn from the bank"
    if rows[0].misspecified != 1:
        title += f", errors of items × {rows[0].misspecified:g}"
    return text.Page([Table(title, rows, (rule, *_ACCURACY))], [ACCURACY_LEGEND])


_ACCURACY = (
    *(Column("n", "n_items", fixed(0)), Column("Ability", "ability_rmse", fixed(3))),
    Column("Held", "ability_coverage", _in_percent),
    *(Column("Rank", "rank_correlation", fixed(3)), Column("Score", "score_mae", fixed(4))),
    Column("", lambda r: text.limits_text(r.score_mae_low, r.score_mae_high, fixed(4)), right=True),
    Column("Width", "score_width", fixed(3)),
    Column("Held", "score_coverage", _in_percent),
)
_COLUMNS = (
    *(Column("Task", "task", least=0), Column("Items", "n_items", fixed(0))),
    *(Column("Asked", "n_usable", fixed(0)), Column("Difficulty", "difficulty", text.signed)),
    *(Column("Discr.", "discrimination", fixed(2)), Column("S.e.", "std_error", fixed(3))),
    Column("Cost", lambda r: "–" if r.cost is None else f"{r.cost:,.6g}", right=True),
)


def _bank(results: Results[BankTask]) -> text.Page:
    """Return a line for each task, and as notes the items that are not asked, with a few names."""
    costs = any(row.cost is not None for row in results.rows)
    title = f"{results.rows[0].n_models} models calibrated, by {results.rows[0].metric}"
    table = Table(title, results.rows, _COLUMNS[: None if costs else -1])
    said: list[str] = []
    for row in results.rows:
        parts = [item.partition(": ") for item in row.left_out]
        for reason, of_reason in grouped(parts, itemgetter(2)).items():
            names = few([item for item, _, _ in of_reason], _MOST_NAMES)
            said.append(f"* not asked, {reason}: {len(of_reason)} of {row.task} ({names})")
    return text.Page([table], [BANK_LEGEND], [*said, *(f"* {note}" for note in results.notes)])


TESTS = text.page_view(_tests, document=_tests_document)._replace(to_json=tests_json)
ACCURACY = text.page_view(_accuracy)
BANK = text.page_view(_bank)
