"""Control variates (CUPED): scores on a whole benchmark, from a part of it and other models.

`control_variate` adjusts the rows of `intervals` for models that ran only a part of the items: the
other models' scores tell how hard the items are that were run, and those that were not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from evalstats_plugin.data.inputs import ResponsesLike, as_list
from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.data.measure import Measures
from evalstats_plugin.data.methods import Method
from evalstats_plugin.data.results import finite, grouped
from evalstats_plugin.data.runs import run_of
from evalstats_plugin.errors import counted
from evalstats_plugin.scores.cells import Cell, make_cell, task_and_metric
from evalstats_plugin.scores.groups import group_rows
from evalstats_plugin.scores.intervals import intervals
from evalstats_plugin.scores.rows import Intervals, ScoreInterval
from evalstats_plugin.stats.arrays import FloatArray, Rng
from evalstats_plugin.stats.survey.regression import (
    Adjusted,
    adjust_to_benchmark,
    adjusted_bounded_interval,
    adjusted_t_interval,
)

METHOD = "cuped"

FEWEST_ITEMS = 5
"""Fewest scored items from which a regression is tried."""

MEANS = ("binary", "bounded", "real")
"""Kinds of scores whose metric is their mean."""

NOTHING_TO_PREDICT = (
    "no control variate: this model ran every known item, so there is nothing to predict"
)


def control_variate(
    responses: ResponsesLike,
    *,
    confidence_level: float = 0.95,
    method: str | Method = "auto",
    measure: Measures = None,
    rng: Rng = None,
) -> Intervals:
    """Intervals for the scores on all of a benchmark, of models that ran a part of it.

    Parameters
    ----------
    responses
        What `evalstats_plugin.read` gave, a matrix, or any `Responses`: those of the model, and of
        others that answered more of the items. The items that any of them answered are the
        benchmark.
    confidence_level, method, measure, rng
        As for `evalstats_plugin.intervals`, which makes the rows that gain nothing.

    Notes
    -----
    The covariate of an item is by how much the other models that answered it scored above or below
    their own means there. A poor covariate does no harm, it gains little. On the difference of two
    models on the same items it gains next to nothing (0.2 % of the width on LiveBench), because
    pairing has already removed the difficulty of the items; `compare` does not use it.
    """
    listed, notes = as_list(responses, measure)
    everything = [replace(value, beside=()) for r in listed for value in r.values()]
    cells = [make_cell(r) for r in everything]
    # Rows of groups are made below, from the adjusted rows of their tasks.
    plain = intervals(
        [replace(r, groups=()) for r in everything],
        confidence_level=confidence_level, method=method, rng=rng,
    )  # fmt: skip
    rows = [replace(row, depth=len(r.groups)) for row, r in zip(plain, everything, strict=True)]
    notes = (*notes, *plain.notes)
    order = sorted(range(len(everything)), key=lambda i: run_of(everything[i]))
    latest = {(everything[i].model, everything[i].task, everything[i].metric): i for i in order}
    of_tasks = grouped(sorted(latest.values()), lambda i: task_and_metric(everything[i]))
    for every in of_tasks.values():
        # Adaptive tests have chosen items, which control variates cannot adjust for.
        where = [i for i in every if everything[i].predicted is None]
        table, of_task = _table([cells[i] for i in where]), [rows[i] for i in where]
        spans = [cell.bounds for cell in table.cells]
        # Those with the same bounds at once.
        for bounds, own in grouped(range(len(where)), spans.__getitem__).items():
            for j, row in zip(own, _of_bounds(table, own, bounds, of_task), strict=True):
                rows[where[j]] = row
    if not any(row.method == METHOD for row in rows):
        notes = (*notes, "control variates changed nothing: no model ran only a part of the items")
    return Intervals(tuple(group_rows(cells, rows)), notes, plain.seed)


@dataclass(frozen=True, eq=False, slots=True)
class _Table:
    """Models on the items of one task."""

    cells: Sequence[Cell]
    scores: FloatArray
    """Shape (N, M): NaN where an item was not answered, or the model has no mean of item scores."""
    covariate: FloatArray
    """Shape (N, M): NaN where only the model itself answered an item."""
    others: FloatArray
    """Shape (N,): number of other models behind the covariate."""


def _table(cells: Sequence[Cell]) -> _Table:
    """Join the models; those whose metric is not a mean keep their rows, without scores."""
    usable = [i for i, cell in enumerate(cells) if cell.kind in MEANS and len(cell.values)]
    if not usable:
        nothing = np.full((len(cells), 0), np.nan)
        return _Table(cells, nothing, nothing, np.zeros(len(cells)))
    responses = [cells[i].responses for i in usable]
    joined = ResponseMatrix.join([replace(r, scores=r.item_means[:, None]) for r in responses])
    scores = np.full((len(cells), len(joined.item_ids)), np.nan)
    scores[usable] = joined.scores[:, :, 0]
    seen = ~np.isnan(scores)
    count = seen.sum(axis=1, keepdims=True)
    filled = np.where(seen, scores, 0.0)
    # Centred on each model's own mean, so that it does not matter which models answered an item.
    means = filled.sum(axis=1, keepdims=True) / np.maximum(count, 1)
    above = np.where(seen, scores - means, 0.0)
    n_others = seen.sum(axis=0) - seen
    of_others = np.where(
        n_others > 0, (above.sum(axis=0) - above) / np.maximum(n_others, 1), np.nan
    )
    has_scores = count[:, 0] > 0
    return _Table(cells, scores, of_others, has_scores.sum() - has_scores)


def _of_bounds(
    table: _Table,
    where: Sequence[int],
    bounds: tuple[float, float] | None,
    rows: Sequence[ScoreInterval],
) -> list[ScoreInterval]:
    """Rows of the models `where`, whose scores have these bounds."""
    low, high = bounds or (0.0, 1.0)
    span, level = high - low, rows[0].confidence_level
    adjusted = adjust_to_benchmark(
        (table.scores[where] - low) / span,
        table.covariate[where],
        leverage_power=1 if bounds else 2,
    )
    if bounds is None:
        limits = adjusted_t_interval(adjusted, confidence_level=level)
        estimate = adjusted.estimate
    else:
        limits = adjusted_bounded_interval(adjusted, unseen_errors="damped", confidence_level=level)
        estimate = np.clip(adjusted.estimate, 0.0, 1.0)
    numbers = np.array([estimate, limits.low, limits.high]).T
    new_rows: list[ScoreInterval] = []
    for j, i in enumerate(where):
        why_not = _why_not(table.cells[i], adjusted, j)
        if why_not:
            new_rows.append(replace(rows[i], notes=(*rows[i].notes, why_not)))
            continue
        middle, *ends = map(finite, table.cells[i].scale.clip(*(low + span * numbers[j]).tolist()))
        new_rows.append(
            replace(
                rows[i],
                n_items=int(adjusted.n[j]),
                estimate=middle,
                low=ends[0],
                high=ends[1],
                std_error=finite(float(span * np.sqrt(adjusted.variance[j]))) or None,
                method=METHOD,
                naive_low=None,
                naive_high=None,
                design_effect=None,
                notes=_notes(table, adjusted, i, j),
            )
        )
    return new_rows


def _why_not(cell: Cell, adjusted: Adjusted, j: int) -> str:
    """Return why a model gains nothing; an empty string if it gains."""
    if cell.kind not in MEANS:
        return "no control variate: the metric is not a mean of item scores"
    n = 0 if np.isnan(adjusted.n[j]) else int(adjusted.n[j])
    if int(adjusted.population[j]) == n:
        return NOTHING_TO_PREDICT
    if n < FEWEST_ITEMS:
        return f"no control variate: it is known for {n} of the items run, {FEWEST_ITEMS} needed"
    if adjusted.slope[j] == 0:
        return "no control variate: on the items run it does not vary, or not with the scores"
    return ""


def _notes(table: _Table, adjusted: Adjusted, i: int, j: int) -> tuple[str, ...]:
    n, total, gain = int(adjusted.n[j]), int(adjusted.population[j]), float(adjusted.gain[j])
    source = f"the scores of {counted(int(table.others[i]), 'other model')}"
    worth = f", worth ×{gain:.2f} as many items" if np.isfinite(gain) else ""
    # Items without a score are predicted here, not left out.
    own = [note for note in table.cells[i].notes if "have no score" not in note]
    notes = (
        *own,
        f"for all {counted(total, 'item')}; {n} of them were run and must be a random part",
        f"{source} predict which items are hard{worth}",
    )
    if alone := table.cells[i].n - n:
        notes = (*notes, f"{counted(alone, 'item')} without a covariate left out")
    if table.cells[i].clusters is not None:
        notes = (*notes, f"{METHOD} treats clustered items as independent")
    return notes
