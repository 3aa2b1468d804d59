"""What answers cost: money, tokens and time, for each item and for each right answer.

Costs are positive and have long tails, on which Student's t is too short above and too long below:
`stats.means.skewed_ratio` has limits of a mean cost, and of a cost for each right answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from evalstats_plugin.data.inputs import ResponsesLike, as_list
from evalstats_plugin.data.responses import Responses
from evalstats_plugin.data.results import Results, finite, grouped
from evalstats_plugin.errors import DesignError, counted, few
from evalstats_plugin.scores.cells import HEAVY, UNIT, align, check_confidence_level, cluster_names
from evalstats_plugin.scores.intervals import intervals
from evalstats_plugin.scores.rows import Intervals, ScoreInterval
from evalstats_plugin.scores.slices import is_mean
from evalstats_plugin.stats.arrays import BoolArray, FloatArray
from evalstats_plugin.stats.clustered import by_cluster
from evalstats_plugin.stats.means import skewed_ratio
from evalstats_plugin.stats.metric_intervals import kurtosis

_HEAVY = "a few items carry much of the cost: its limits are perhaps too close"


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRow:
    """One cost of a model on a task, beside one of its scores.

    None where there is no such number: no right answer, or costs that do not vary.
    """

    shown: ClassVar[tuple[str, ...]] = (
        "model", "task", "metric", "score", "cost", "n_items", "per_item", "low", "high",
        "per_right", "per_right_low", "per_right_high",
    )  # fmt: skip

    model: str
    task: str
    metric: str
    """Of the score."""
    cost: str
    """What was spent, with its unit: ``"usd_per_1000"``, ``"tokens"``, ``"seconds"``."""
    n_items: int
    """Items whose cost is logged."""
    score: float | None
    score_low: float | None
    score_high: float | None
    per_item: float | None
    low: float | None
    """Limits of the cost for each item."""
    high: float | None
    per_right: float | None
    """Cost of all answers for each right one, of scores between 0 and 1."""
    per_right_low: float | None
    per_right_high: float | None
    """None beside a lower limit: there is no upper limit, as perhaps no answer is right."""
    confidence_level: float
    notes: tuple[str, ...] = ()


def costs(
    responses: ResponsesLike,
    *,
    confidence_level: float = 0.95,
    intervals: Callable[..., Intervals] = intervals,
) -> Results[CostRow]:
    """Give what models cost for each item and each right answer, with limits.

    Parameters
    ----------
    responses
        Read with ``costs=True``: scores, and what the logs say of tokens, money and time.
    confidence_level
        Of each interval alone.
    intervals
        As `evalstats_plugin.intervals`, for the scores, perhaps with other defaults.

    Returns
    -------
    A row for each model, task, metric and cost. Limits are those of a ratio of means, with items or
    clusters of items as units, by Fieller's inversion of a test [Fie54]_ with Hall's correction for
    skewness [Hal92]_; of a cost for each right answer with half an item more that is right and half
    an item that is wrong, at the mean cost.

    Raises
    ------
    DesignError
        Where no cost is logged, or a cost is below 0.

    Examples
    --------
    >>> from evalstats_plugin import read
    >>> logs = "fixtures/logs/inspect_ai/0.3.285/set"
    >>> for row in costs(read(logs, metric="match", costs=True)):
    ...     if row.cost == "tokens":
    ...         print(f"{row.model}: {row.per_item:.0f} an item, {row.per_right:.0f} a right one")
    mockllm/alpha: 15 an item, 44 a right one
    mockllm/delta: 15 an item, 19 a right one
    """
    check_confidence_level(confidence_level)
    listed, notes = as_list(responses)
    spent = [r for r in listed if r.measure.is_cost and len(r.item_ids)]
    if not spent:
        raise DesignError(
            "no cost is logged for each item: Inspect logs tokens, time and perhaps money, "
            "promptfoo all three, a mapping what [costs] names; lm-eval logs the time of a run only"
        )
    for r in spent:
        if (r.scores < 0).any():
            raise DesignError(
                f"{r.metric} of {r.model} on {r.task} is below 0: a cost is 0 or more"
            )
    scored = [r for r in listed if not r.measure.is_cost]
    rows = {
        (row.model, row.task, row.metric): row
        for row in intervals(scored, confidence_level=confidence_level)
        if row.kind == "task"
    }
    of_task = grouped(scored, _place)
    made = [
        _row(cost, score, rows.get((*_place(cost), score.metric)), confidence_level)
        for place, own in grouped(spent, _place).items()
        for score in of_task.get(place, ())
        for cost in own
    ]
    without = {task for _, task in of_task.keys() - set(map(_place, spent))}
    lacking = (f"no cost is logged: {few(sorted(without))}",) if without else ()
    return Results(tuple(made), (*notes, *lacking))


def _place(r: Responses) -> tuple[str, str]:
    return r.model, r.task


def _row(cost: Responses, score: Responses, row: ScoreInterval | None, level: float) -> CostRow:
    spent = cost.item_means
    logged = np.isfinite(spent)
    per_item, low, high = _limits(cost, spent, np.ones(len(spent)), logged, level)
    notes: list[str] = []
    if n_lacking := int((~logged).sum()):
        notes.append(f"{counted(n_lacking, 'item')} without a logged cost: left out of it")
    if low is not None:
        notes += [_HEAVY] if kurtosis(spent[logged]) > HEAVY else []
    elif logged.any():
        notes.append("costs that do not vary have no limits")
    per_right = (None, None, None)
    if row is not None and _counts_right(score, row):
        right = align(score, cost)
        both = logged & np.isfinite(right)
        per_right = _limits(cost, spent, right, both, level, extra=0.5)
        if both.sum() < logged.sum():
            notes.append(f"cost for each right answer: of the {both.sum()} items with a score")
    return CostRow(
        model=cost.model, task=cost.task, metric=score.metric, cost=cost.metric,
        n_items=int(logged.sum()),
        score=None if row is None else row.estimate,
        score_low=None if row is None else row.low,
        score_high=None if row is None else row.high,
        per_item=per_item, low=low, high=high,
        per_right=per_right[0], per_right_low=per_right[1], per_right_high=per_right[2],
        confidence_level=level, notes=tuple(notes),
    )  # fmt: skip


def _counts_right(score: Responses, row: ScoreInterval) -> bool:
    """Whether a score is the mean of shares of right answers."""
    on_unit = row.measure is not None and row.measure.bounds == UNIT
    return on_unit and is_mean(score) and row.higher_is_better is not False


def _limits(
    cost: Responses,
    spent: FloatArray,
    per: FloatArray,
    kept: BoolArray,
    level: float,
    *,
    extra: float = 0.0,
) -> tuple[float | None, float | None, float | None]:
    """Return the ratio of the sums of some items and its limits, None where undefined.

    Parameters
    ----------
    extra
        Items that are added on either side, right and wrong, at the mean cost.
    """
    y, w = spent[kept], per[kept]
    if not w.any():
        return None, None, None
    estimate, mean = float(y.sum() / w.sum()), float(y.mean())
    if cost.clusters is not None:
        names = cluster_names(cost.clusters)[kept]
        y, w = by_cluster(y, names), by_cluster(w, names)
    weights = np.ones(len(y))
    if extra:
        # A part of a cluster of usual size, which has the weight of so many items.
        size = kept.sum() / len(y)
        y, w = np.append(y, [size * mean] * 2), np.append(w, [size, 0.0])
        weights = np.append(weights, [extra / size] * 2)
    low, high = skewed_ratio(y, w, confidence_level=level, weights=weights)
    return estimate, finite(low), finite(high)
