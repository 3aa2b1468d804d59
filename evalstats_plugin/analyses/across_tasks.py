"""Is model b better than model a on tasks like these? The tasks themselves are the sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin import methods
from evalstats_plugin.analyses.clusters import FAMILIES
from evalstats_plugin.analyses.comparable import BEST
from evalstats_plugin.analyses.corrections import correct
from evalstats_plugin.analyses.pair_solver import N_FLIPS, Found
from evalstats_plugin.analyses.paired import comparison_rows
from evalstats_plugin.analyses.pairing import Pairing, against_best, pair_indices, pairings
from evalstats_plugin.analyses.request import Request
from evalstats_plugin.errors import DesignError
from evalstats_plugin.methods import Kind, Method
from evalstats_plugin.responses import Responses
from evalstats_plugin.results import Comparison
from evalstats_plugin.wording import few

if TYPE_CHECKING:
    from evalstats_plugin.stats.interval import Interval

TASK_DEFAULTS: Mapping[Kind, tuple[str, str]] = MappingProxyType(
    {
        "binary": ("paired-t", "mean differences of tasks are few, and far from their bounds"),
        "bounded": ("paired-t", "the same"),
        "real": ("paired-t", "without bounds there is nothing better for few tasks"),
    }
)
"""Method of the interval, and why."""

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def across_tasks(
    responses: Sequence[Responses], request: Request
) -> tuple[list[Comparison], list[str]]:
    """Compare models by their mean differences on tasks, which count as drawn from many such.

    Every task has the same weight, and is one observation: the difference of the two models on the
    items that both answered. Return also notes on what was left out.

    Raises
    ------
    DesignError
        For fewer than two tasks under one metric.
    """
    model_order = list(dict.fromkeys(r.model for r in responses))
    best = request.baseline == BEST and BEST not in model_order
    baseline = None if best else request.baseline
    tasks, left_out = pairings(responses, request.bounds, None)
    by_metric: dict[str, list[Pairing]] = {}
    for one in tasks:
        by_metric.setdefault(one.metric.removesuffix(",none"), []).append(one)
    found = {metric: some for metric, some in by_metric.items() if len(some) > 1}
    alone = [f"{one.task} {metric}" for metric, (one, *more) in by_metric.items() if not more]
    if not found:
        msg = (
            f"tasks as random units need two or more under one metric, found {few(alone)}; "
            "with one task, compare its items"
        )
        raise DesignError(msg)
    if alone:
        left_out = [*left_out, f"not compared, the only task with this metric: {few(alone)}"]
    groups = _common_groups(responses)
    rows: list[Comparison] = []
    for some in found.values():
        sample = _sample(some, [m for m in model_order if any(m in one.models for one in some)])
        table = _table(sample, some, groups)
        chosen = against_best(table) if best else _against(table, baseline)
        if chosen is not None:
            rows += _rows(chosen, sample, request)
    return rows, left_out


@dataclass(frozen=True, eq=False, kw_only=True)
class _Sample:
    """Every two models on every task: shapes (N, N, T), NaN where they share no item."""

    models: tuple[str, ...]
    differences: FloatArray
    """Mean score of the column's model minus that of the row's."""
    variances: FloatArray
    """Of these means over items, were other items drawn from the same tasks."""
    n_items: IntArray


def _sample(tasks: Sequence[Pairing], models: Sequence[str]) -> _Sample:
    shape = (len(models), len(models), len(tasks))
    differences, variances = np.full((2, *shape), np.nan)
    n_items = np.zeros(shape, dtype=np.int64)
    for t, one in enumerate(tasks):
        place = np.array([models.index(model) for model in one.models])
        a, b = place[one.a], place[one.b]
        mean = one.mean_differences()
        differences[a, b, t], differences[b, a, t] = mean, -mean
        variances[a, b, t] = variances[b, a, t] = _variances(one, mean)
        n_items[a, b, t] = n_items[b, a, t] = one.n_items
    return _Sample(
        models=tuple(models), differences=differences, variances=variances, n_items=n_items
    )


def _variances(task: Pairing, means: FloatArray) -> FloatArray:
    """Variance of each pair's mean difference over items, from sums of squares and products."""
    seen = (~np.isnan(task.scores)).astype(np.float64)
    scores = np.where(seen > 0, task.scores, 0.0)
    squares, products = scores**2 @ seen.T, scores @ scores.T
    a, b, n = task.a, task.b, task.n_items
    total = squares[a, b] + squares[b, a] - 2 * products[a, b] - n * means**2
    return np.maximum(total, 0.0) / np.where(n > 1, n * (n - 1.0), np.nan)


def _table(sample: _Sample, tasks: Sequence[Pairing], groups: Sequence[str]) -> Pairing:
    """Models by tasks: the mean score of each on each, NaN where it was not run."""
    scores = np.full((len(sample.models), len(tasks)), np.nan)
    for t, one in enumerate(tasks):
        scores[[sample.models.index(model) for model in one.models], t] = one.means()
    bounds = {one.bounds for one in tasks}
    higher = {one.higher_is_better for one in tasks} - {None}
    if len(higher) > 1:
        msg = f"{tasks[0].metric}: higher is better on some tasks and lower on others"
        raise DesignError(msg)
    alike = len(bounds) == 1 and None not in bounds
    a, b = pair_indices(sample.models, None)
    return Pairing(
        task=groups[0] if len(groups) == 1 and groups[0] else f"({len(tasks)} tasks)",
        metric=tasks[0].metric,
        models=sample.models,
        scores=scores,
        a=a,
        b=b,
        kind="bounded" if alike else "real",
        bounds=tasks[0].bounds if alike else None,
        higher_is_better=higher.pop() if higher else None,
        clusters=None,
        notes=tuple(dict.fromkeys(note for one in tasks for note in one.notes)),
    )


def _against(table: Pairing, baseline: str | None) -> Pairing | None:
    if baseline is None:
        return table
    if baseline not in table.models:
        return None
    a, b = pair_indices(table.models, baseline)
    return replace(table, a=a, b=b)


def _common_groups(responses: Sequence[Responses]) -> list[str]:
    """Names of the outermost groups of all tasks; an empty one for a task in none."""
    return list(dict.fromkeys(r.groups[0].name if r.groups else "" for r in responses))


def _rows(table: Pairing, sample: _Sample, request: Request) -> list[Comparison]:
    from evalstats_plugin.stats import max_t

    family = table.family
    differences = sample.differences[family.a, family.b]
    method = _method(table, request)
    found = _solve(table, differences, method, request)
    corrected = correct(found.p_value, lambda: max_t.against_zero(differences), request)
    level = corrected.level
    limits = None if level is None else _interval(table, differences, method, level)
    shown = slice(len(table.a))
    n_items = sample.n_items[table.a, table.b].sum(axis=1)
    notes = _notes(table, differences[shown], sample.variances[table.a, table.b])
    if 2.0 ** (1 - differences.shape[1]) > 1 - request.confidence_level:
        few_signs = (
            f"{differences.shape[1]} tasks are too few for sign flips to find anything: the "
            "verdict is unclear whatever the interval says"
        )
        notes = [(*own, few_signs) for own in notes]
    columns = {"n_items": n_items.tolist(), "notes": notes}
    same = {"confidence_level": request.confidence_level, "kind": "tasks"}
    return comparison_rows(table, (found, corrected.p_values, limits), columns, same)


def _method(table: Pairing, request: Request) -> Method:
    """Return the method asked for where it is one for independent differences, else the default."""
    named = request.method != "auto" and request.table[request.method].family in FAMILIES
    name = "auto" if named else request.method
    return methods.choose(table.kind, name, request.table, TASK_DEFAULTS)


def _solve(table: Pairing, differences: FloatArray, method: Method, request: Request) -> Found:
    from evalstats_plugin.stats import paired_scores
    from evalstats_plugin.stats.mean import moments

    low, high = _interval(table, differences, method, request.confidence_level)
    p_value = paired_scores.sign_flip(differences, rng=request.rng, n_flips=N_FLIPS)
    if method.family == "bounded":
        prob = paired_scores.dirichlet_process_prob(
            differences, bounds=_span(table), mass=method.options.get("mass", 0.5)
        )
    else:
        prob = paired_scores.t_prob(differences)
    return Found(method.name, low, high, p_value, prob, moments(differences).mean)


def _span(table: Pairing) -> tuple[float, float]:
    low, high = table.bounds or (-np.inf, np.inf)
    return low - high, high - low


def _interval(
    table: Pairing, differences: FloatArray, method: Method, confidence_level: float
) -> Interval:
    from evalstats_plugin.stats.interval import Interval

    more = {"bounds": _span(table)} if method.family == "bounded" else {}
    low, high = method.load()(differences, confidence_level=confidence_level, **more)
    # Tasks that all differ by the same have no spread to make a t interval of.
    flat = (high - low == 0) & (method.family == "real")
    low, high = (np.clip(limit, *_span(table)) for limit in (low, high))
    return Interval(np.where(flat, np.nan, low), np.where(flat, np.nan, high))


def _notes(table: Pairing, differences: FloatArray, variances: FloatArray) -> list[tuple[str, ...]]:
    """Return the notes of each row; how tasks as random compare with fixed is said for all."""
    n_tasks = differences.shape[1]
    seen = (~np.isnan(differences)).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        across = np.nanvar(differences[seen > 1], axis=1, ddof=1)
        ratios = np.sqrt(across * seen[seen > 1] / np.nansum(variances[seen > 1], axis=1))
    known = ratios[np.isfinite(ratios)]
    text = f"tasks as random units: {n_tasks} tasks"
    if len(known):
        text += f"; standard errors are {np.median(known):.2f} times those with the tasks fixed"
        text += " (median over the pairs)" if len(known) > 1 else ""
    notes: list[tuple[str, ...]] = [(*table.notes, text)] * len(seen)
    for i in np.flatnonzero(seen < n_tasks).tolist():
        notes[i] = (*notes[i], f"both models answered {seen[i]} of the {n_tasks} tasks")
    return notes
