"""Costs of models beside their scores: tables by model, task and metric, or one in documents."""

from __future__ import annotations

from functools import partial

from evalstats_plugin.data.results import Results
from evalstats_plugin.report import text
from evalstats_plugin.report.tables import Column
from evalstats_plugin.scores.costs import CostRow

LEGEND = (
    "A right one: cost of all answers for each right answer; ∞: no upper limit. Each "
    "interval alone."
)


def amount(value: float | None) -> str:
    """Format a cost with three digits, whole numbers from 100 on.

    >>> amount(0.00123), amount(4.5), amount(12345.6), amount(None)
    ('0.00123', '4.5', '12,346', '–')
    """
    return "–" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _limits(limits: tuple[float | None, float | None]) -> str:
    low, high = limits
    return "–" if low is None else f"[{amount(low)}, {'∞' if high is None else amount(high)}]"


def _score(row: CostRow) -> str:
    if row.score_low is None or row.score_high is None:
        return text.number(row.score)
    return f"{text.number(row.score)} {text.limits_text(row.score_low, row.score_high)}"


def _name(row: CostRow) -> str:
    return f"{row.model}: {text.task_and_metric(row)} {_score(row)}"


def _page(results: Results[CostRow], *, document: bool = False) -> text.Page:
    interval = text.interval_title(results.rows)
    columns = [
        Column("Cost", "cost", least=8),
        Column("n", "n_items", str),
        Column("An item", "per_item", amount),
        Column(interval, lambda row: (row.low, row.high), _limits, right=False),
        Column("A right one", "per_right", amount),
        Column(interval, lambda row: (row.per_right_low, row.per_right_high), _limits, right=False),
        text.marks_column(text.note_numbers(results.rows)),
    ]
    named = [Column("Model", "model"), Column("Task", "task"), text.METRIC, Column("Score", _score)]
    whole = [*named, *columns] if document else None
    tables = text.tables_of(results.rows, _name, columns, whole=whole)
    return text.Page(tables, [LEGEND], text.note_lines(results))


COSTS = text.page_view(_page, document=partial(_page, document=True))
