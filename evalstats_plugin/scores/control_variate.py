"""How sure are we of the score on the whole benchmark, given how other models fared on it?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.data.methods import Method
from evalstats_plugin.data.responses import Responses
from evalstats_plugin.data.results import finite
from evalstats_plugin.data.runs import ResponseSet, run_of
from evalstats_plugin.scores.cells import Bounds, Cell, make_cell
from evalstats_plugin.scores.groups import group_rows
from evalstats_plugin.scores.intervals import intervals
from evalstats_plugin.scores.rows import Intervals, ScoreInterval
from evalstats_plugin.stats.arrays import FloatArray
from evalstats_plugin.stats.control_variate import Adjusted
from evalstats_plugin.stats.interval import Interval

METHOD = "cuped"


FEWEST_ITEMS = 5
"""Scored items from which on a regression is tried."""


MEANS = ("binary", "bounded", "real")
"""Kinds of scores of which the metric is the mean."""


NOTHING_TO_PREDICT = (
    "no control variate: no item is known that this model did not take, so there is nothing to "
    "predict"
)


Covariate = Mapping[str, Mapping[str, float]]
"""Something known of every item, such as its difficulty: by task, then by the item's id as text."""


def control_variate(
    responses: ResponseSet | ResponseMatrix | Iterable[Responses],
    *,
    covariate: Covariate | None = None,
    confidence_level: float = 0.95,
    method: str | Method = "auto",
    bounds: Bounds | None = None,
    rng: np.random.Generator | int | None = None,
) -> Intervals:
    """Give scores of models that ran a part of a benchmark an interval for all of it.

    Parameters
    ----------
    responses
        What `evalstats_plugin.read` gave, a matrix, or any `Responses`: those of the model, and of
        others that took more of the items. The items that any of them took are the benchmark.
    covariate
        Something known of every item, instead of how the other models fared on it. Its items are
        part of the benchmark, too.
    confidence_level, method, bounds, rng
        As for `evalstats_plugin.intervals`, which makes the rows that gain nothing.

    Notes
    -----
    The covariate is by how much the other models that took an item scored above or below their own
    means there. It need not be good to be right: a poor one gains little. On the difference of
    two models on the same items it gains next to nothing (0.2 % of the width on LiveBench), because
    pairing has taken out what is hard for both; `compare` does not use it.
    """
    notes = responses.notes if isinstance(responses, (ResponseSet, ResponseMatrix)) else ()
    if isinstance(responses, ResponseMatrix):
        responses = responses.to_responses()
    everything = list(responses)
    cells = [make_cell(r, bounds or {}) for r in everything]
    # Groups are put back below, from the rows that come out of this.
    plain = intervals(
        [replace(r, groups=()) for r in everything],
        confidence_level=confidence_level, method=method, bounds=bounds, rng=rng,
    )  # fmt: skip
    rows = [replace(row, depth=len(r.groups)) for row, r in zip(plain, everything, strict=True)]
    for where in _by_task(everything):
        table = _table([cells[i] for i in where], covariate)
        for i, row in zip(where, _rows(table, [rows[i] for i in where]), strict=True):
            rows[i] = row
    if not any(row.method == METHOD for row in rows):
        notes = (*notes, "control variates changed nothing: no model ran only a part of the items")
    return Intervals(tuple(group_rows(cells, rows)), tuple(notes), plain.seed)


def _by_task(responses: Sequence[Responses]) -> list[list[int]]:
    """Places of the latest responses of each model, by task and metric."""
    order = sorted(range(len(responses)), key=lambda i: run_of(responses[i]))
    latest = {(responses[i].model, responses[i].task, responses[i].metric): i for i in order}
    found: dict[tuple[str, str], list[int]] = {}
    for i in sorted(latest.values()):
        r = responses[i]
        found.setdefault((r.task, r.metric.removesuffix(",none")), []).append(i)
    return list(found.values())


@dataclass(frozen=True, eq=False, slots=True)
class _Table:
    """Models on the items of one task."""

    cells: Sequence[Cell]
    scores: FloatArray
    """Shape (N, M): NaN where an item was not taken, or a model has no mean of item scores."""
    covariate: FloatArray
    """Shape (N, M): NaN where nothing is known of an item but from the model itself."""
    others: FloatArray | None
    """Shape (N,): how many other models tell of the items; None for a covariate of the caller."""


def _table(cells: Sequence[Cell], covariate: Covariate | None) -> _Table:
    """Join the models; those whose metric is no mean keep their places, without scores."""
    task = cells[0].responses.task
    known = (covariate or {}).get(task)
    usable = [i for i, cell in enumerate(cells) if cell.kind in MEANS and cell.n]
    usable = [i for i in usable if len(cells[i].responses.item_ids)]
    if not usable:
        nothing = np.full((len(cells), 0), np.nan)
        return _Table(cells, nothing, nothing, np.zeros(len(cells)))
    apart = [cells[i].responses for i in usable]
    joined = ResponseMatrix.join([replace(r, scores=r.item_means[:, None]) for r in apart])
    ids = joined.item_ids.astype(str)
    more = [item for item in known or {} if item not in set(ids.tolist())]
    scores = np.full((len(cells), len(ids) + len(more)), np.nan)
    scores[usable, : len(ids)] = joined.scores[:, :, 0]
    if known is not None:
        values = [known.get(item, np.nan) for item in (*ids.tolist(), *more)]
        return _Table(cells, scores, np.broadcast_to(np.array(values), scores.shape), None)
    of_others, n_others = _of_others(scores)
    return _Table(cells, scores, of_others, n_others)


def _of_others(scores: FloatArray) -> tuple[FloatArray, FloatArray]:
    """How the others fared on each item, and how many they are.

    Each counts from its own mean, so that it does not matter which of them took an item.
    """
    seen = ~np.isnan(scores)
    count = seen.sum(axis=1, keepdims=True)
    filled = np.where(seen, scores, 0.0)
    means = filled.sum(axis=1, keepdims=True) / np.maximum(count, 1)
    above = np.where(seen, scores - means, 0.0)
    n_others = seen.sum(axis=0) - seen
    of_others = np.where(
        n_others > 0, (above.sum(axis=0) - above) / np.maximum(n_others, 1), np.nan
    )
    return of_others, (count[:, 0] > 0).sum() - (count[:, 0] > 0)


def _rows(table: _Table, plain: Sequence[ScoreInterval]) -> list[ScoreInterval]:
    rows = list(plain)
    bounds = [cell.bounds for cell in table.cells]
    for each in dict.fromkeys(bounds):
        where = [i for i, found in enumerate(bounds) if found == each]
        for i, row in zip(where, _of_bounds(table, where, each, rows), strict=True):
            rows[i] = row
    return rows


def _of_bounds(
    table: _Table,
    where: Sequence[int],
    bounds: tuple[float, float] | None,
    rows: Sequence[ScoreInterval],
) -> list[ScoreInterval]:
    """Rows of the models whose scores have these bounds."""
    from evalstats_plugin.stats import control_variate as stats_control_variate

    low, high = bounds or (0.0, 1.0)
    span, level = high - low, rows[0].confidence_level
    adjusted = stats_control_variate.adjust_to_benchmark(
        (table.scores[where] - low) / span,
        table.covariate[where],
        leverage_power=1 if bounds else 2,
    )
    if bounds is None:
        limits = stats_control_variate.t_interval(adjusted, confidence_level=level)
        estimate = adjusted.estimate
    else:
        limits = stats_control_variate.bounded_interval(
            adjusted, unseen_errors="damped", confidence_level=level
        )
        estimate = np.clip(adjusted.estimate, 0.0, 1.0)
    scaled = Interval(low + span * limits.low, low + span * limits.high)
    found: list[ScoreInterval] = []
    for j, i in enumerate(where):
        why_not = _why_not(table.cells[i], adjusted, j)
        if why_not:
            found.append(replace(rows[i], notes=(*rows[i].notes, why_not)))
            continue
        found.append(
            replace(
                rows[i],
                n_items=int(adjusted.n[j]),
                estimate=finite(float(low + span * estimate[j])),
                low=finite(float(scaled.low[j])),
                high=finite(float(scaled.high[j])),
                std_error=finite(float(span * np.sqrt(adjusted.variance[j]))) or None,
                method=METHOD,
                naive_low=None,
                naive_high=None,
                design_effect=None,
                notes=_notes(table, adjusted, i, j),
            )
        )
    return found


def _why_not(cell: Cell, adjusted: Adjusted, j: int) -> str:
    """Why a model gains nothing; empty if it does."""
    if cell.kind not in MEANS:
        return "no control variate: the metric is not a mean of item scores"
    n = 0 if np.isnan(adjusted.n[j]) else int(adjusted.n[j])
    if int(adjusted.population[j]) == n:
        return NOTHING_TO_PREDICT
    if n < FEWEST_ITEMS:
        return f"no control variate: {n} items with scores of others too, {FEWEST_ITEMS} needed"
    if adjusted.slope[j] == 0:
        return "no control variate: it is the same on all items the model took, or tells nothing"
    return ""


def _notes(table: _Table, adjusted: Adjusted, i: int, j: int) -> tuple[str, ...]:
    n, total, gain = int(adjusted.n[j]), int(adjusted.population[j]), float(adjusted.gain[j])
    source = (
        "a covariate"
        if table.others is None
        else f"the scores of {int(table.others[i])} other models"
    )
    worth = f", worth ×{gain:.2f} as many items" if np.isfinite(gain) else ""
    # Items without a score are predicted here, not left out.
    own = [note for note in table.cells[i].notes if "have no score" not in note]
    notes = (
        *own,
        f"for all {total} items, of which {n} were run; they must be a random part",
        f"{source} tell which items are hard{worth}",
    )
    if table.cells[i].n > n:
        alone = table.cells[i].n - n
        notes = (*notes, f"{alone} items of which nothing else is known are left out")
    if table.cells[i].clusters is not None:
        notes = (*notes, f"{METHOD} takes items that come in clusters as independent")
    return notes
