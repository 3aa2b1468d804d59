"""Noise of scores from run to run: a sentence for each task, and what more would buy."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from evalstats_plugin.data.results import Results, grouped
from evalstats_plugin.errors import few
from evalstats_plugin.report import text
from evalstats_plugin.report.tables import Column
from evalstats_plugin.scores.noise import NoiseRow

LEGEND = (
    "Least diff.: {beyond} of 100 pairs of runs differ by more. Flips: of pairs of answers. "
    "Chance: share of the variance not due to items. Std. error: beyond these items."
)
LEGEND_OF_JUDGES = " Judges: the share that depends on who judged; scores are their mean."

_MOST_NAMED = 8


def sentence(rows: Sequence[NoiseRow]) -> str:
    """Return by how much two runs must differ on each task, and what to buy next."""
    by_task = grouped(rows, text.task_and_metric)
    moved = {name: own for name, own in by_task.items() if any(r.share_flipped for r in own)}
    shown: list[str] = []
    for name, own in list(moved.items())[:_MOST_NAMED]:
        flips = max(row.share_flipped or 0.0 for row in own)
        least = max(row.least_difference or 0.0 for row in own)
        up_to = "up to " if len(own) > 1 else ""
        shown.append(
            f"On {name} two runs of the same model must differ by {up_to}{text.number(least)} to "
            f"mean anything; {up_to}{_share(flips)} of items flip."
        )
    if len(moved) > _MOST_NAMED:
        shown.append(f"And {len(moved) - _MOST_NAMED} more.")
    if still := [name for name in by_task if name not in moved]:
        shown.append(f"On {few(still)} no answer changed.")
    tasks = grouped([r for r in rows if r.std_error_more_items], lambda row: row.task)
    if not tasks:
        return " ".join(shown)
    gains = [task for task, own in tasks.items() if all(row.buy == "repeats" for row in own)]
    if len(gains) == len(tasks):
        shown.append("More repeats gain as much as more items, and need no new ones.")
    elif gains:
        shown.append(f"On {few(gains)} more repeats gain as much as more items, elsewhere less.")
    else:
        shown.append("More items gain more than more repeats.")
    return " ".join(shown)


def _items(row: NoiseRow) -> str:
    runs = f"×{row.n_runs}" if row.n_runs > 1 else ""
    repeats = f"×{row.n_repeats}" if row.n_repeats > 1 else ""
    return f"{row.n_items}{runs}{repeats}"


def _share(value: float | None) -> str:
    return "–" if value is None else text.percent(round(value, 3))


_OF_ANSWERS = (
    Column("Items", _items, right=True),
    Column("Score", "estimate", text.number),
    Column("Least diff.", "least_difference", text.number),
    Column("Flips", "share_flipped", _share),
    Column("Chance", lambda r: None if r.share_items is None else 1 - r.share_items, _share),
)
_OF_JUDGES = (Column("Judges", "share_judges", _share),)
_OF_ERRORS = (
    Column("Std. error", "std_error", text.number),
    Column("repeats ×2", "std_error_more_repeats", text.number),
    Column("items ×2", "std_error_more_items", text.number),
)


def _page(results: Results[NoiseRow], *, document: bool = False) -> text.Page:
    """Return a sentence on all scores, a table of each task (one of a document), and a legend."""
    marks = text.marks_column(text.note_numbers(results.rows))
    model = Column("Model", "model", least=8)
    judged = any(row.share_judges is not None for row in results)
    columns = (*_OF_ANSWERS, *(_OF_JUDGES if judged else ()), *_OF_ERRORS, marks)
    whole = [model, Column("Task", "task", least=8), text.METRIC, *columns] if document else None
    tables = text.tables_of(results.rows, text.task_and_metric, [model, *columns], whole=whole)
    level = results.rows[0].confidence_level if results.rows else 0.95
    legend = LEGEND.format(beyond=f"{100 * (1 - level):.3g}")
    if judged:
        legend += LEGEND_OF_JUDGES
    return text.Page(tables, [legend], text.note_lines(results), sentence(results.rows))


NOISE = text.page_view(_page, document=partial(_page, document=True))
