"""Is model b better than model a on a whole group of tasks?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.analyses.cells import Bounds, make_cell
from evalstats_plugin.analyses.comparable import BEST
from evalstats_plugin.analyses.corrections import Units, correct
from evalstats_plugin.analyses.pair_solver import BLOCK_SIZE, N_FLIPS, Found
from evalstats_plugin.analyses.paired import comparison_rows
from evalstats_plugin.analyses.pairing import Pairing, against_best, pair_indices, pairings
from evalstats_plugin.analyses.request import Request
from evalstats_plugin.errors import DesignError
from evalstats_plugin.responses import Group, Responses
from evalstats_plugin.results import Comparison
from evalstats_plugin.runs import run_of

if TYPE_CHECKING:
    from evalstats_plugin.stats.interval import Interval

FloatArray = NDArray[np.float64]
Key = tuple[tuple[str, ...], str]
"""Names of the groups from the outermost to this one, and the metric."""


def group_comparisons(responses: Sequence[Responses], request: Request) -> list[Comparison]:
    """Compare models on groups of tasks that the harness gives a score, the tasks being fixed.

    The difference of the groups' scores, paired by item: Σ w d over the tasks, each a stratum. Only
    models that have every task of the group take part.
    """
    rows: list[Comparison] = []
    for group, members in _members(responses):
        strata = _joined(members, group, request)
        if strata is not None:
            rows += _rows(strata, request)
    return rows


@dataclass(frozen=True, eq=False, kw_only=True)
class _Strata:
    """Models that answered all tasks of a group."""

    tasks: tuple[Pairing, ...]
    """Each with the same models and the same pairs."""
    whole: Pairing
    """All items of the group side by side."""
    weighting: str

    def weights(self, n_items: FloatArray) -> FloatArray:
        """Weights of the tasks, from how many items each has, shape (..., T)."""
        return n_items if self.weighting == "micro" else np.ones_like(n_items)

    def blocks(self) -> Iterator[list[FloatArray]]:
        """Yield the tasks' differences, of shape (P, M) each, for some pairs at a time."""
        step = max(BLOCK_SIZE // max(self.whole.scores.shape[1], 1), 1)
        for start in range(0, len(self.tasks[0].a), step):
            yield [one.differences(start, start + step) for one in self.tasks]


def _members(responses: Sequence[Responses]) -> list[tuple[Group, list[Responses]]]:
    """Return the groups that have a score, and the latest responses to each of their tasks."""
    found: dict[Key, dict[tuple[str, str], tuple[Group, Responses]]] = {}
    for r in sorted(responses, key=run_of):
        for i, group in enumerate(r.groups):
            if group.logged is not None:
                names = tuple(g.name for g in r.groups[: i + 1])
                place = found.setdefault((names, r.metric.removesuffix(",none")), {})
                place[r.model, r.task] = (group, r)
    return [
        (next(iter(place.values()))[0], [r for _, r in place.values()]) for place in found.values()
    ]


def _joined(responses: Sequence[Responses], group: Group, request: Request) -> _Strata | None:
    """Join the models that have the whole group; None where fewer than two can be compared."""
    of_model = {model: [r for r in responses if r.model == model] for model in _models(responses)}
    complete = [m for m, own in of_model.items() if _is_whole(own, group, request.bounds)]
    chosen = sorted((r for m in complete for r in of_model[m]), key=lambda r: (r.task, r.model))
    baseline = request.baseline
    best = baseline == BEST and BEST not in _models(responses)
    if len(complete) < 2 or (baseline is not None and not best and baseline not in complete):
        return None
    try:
        tasks, _ = pairings(chosen, request.bounds, None)
    except DesignError:
        # No items in common, which the tasks' own rows say.
        return None
    whole = _side_by_side(tasks, group, None if best else baseline)
    strata = _Strata(tasks=tuple(tasks), whole=whole, weighting=group.weighting)
    if best:
        means = np.stack([one.means() for one in tasks], axis=1)
        n_items = np.stack([(~np.isnan(one.scores)).sum(axis=1) * 1.0 for one in tasks], axis=1)
        scores = np.average(means, axis=1, weights=strata.weights(n_items))
        strata = replace(strata, whole=against_best(whole, scores))
    family = strata.whole.family
    return replace(strata, tasks=tuple(replace(one, a=family.a, b=family.b) for one in tasks))


def _models(responses: Sequence[Responses]) -> list[str]:
    return list(dict.fromkeys(r.model for r in responses))


def _is_whole(responses: Sequence[Responses], group: Group, bounds: Bounds) -> bool:
    """Whether a model has item scores, and a mean of them, on every task of a group."""
    cells = [make_cell(r, bounds) for r in responses]
    usable = [c for c in cells if c.kind in ("binary", "bounded", "real") and len(c.values)]
    return len(usable) == group.n_tasks


def _side_by_side(tasks: Sequence[Pairing], group: Group, baseline: str | None) -> Pairing:
    """All items of the tasks as those of one."""
    bounds = {one.bounds for one in tasks}
    alike = len(bounds) == 1 and None not in bounds
    first = tasks[0]
    a, b = pair_indices(first.models, baseline)
    notes = dict.fromkeys(note for one in tasks for note in one.notes)
    return replace(
        first,
        task=group.name,
        scores=np.concatenate([one.scores for one in tasks], axis=1),
        a=a,
        b=b,
        kind="bounded" if alike else "real",
        bounds=first.bounds if alike else None,
        clusters=None,
        notes=(*notes, f"{group.weighting} mean of {len(tasks)} tasks"),
    )


def _rows(strata: _Strata, request: Request) -> list[Comparison]:
    whole = strata.whole
    found, interval = _solve(strata, request)
    corrected = correct(found.p_value, partial(_units_of_models, strata), request)
    limits = None if corrected.level is None else interval(corrected.level)
    n_items: NDArray[np.int64] = whole.n_items
    columns = {"n_items": n_items.tolist(), "notes": _notes(whole, found)}
    same = {"confidence_level": request.confidence_level, "kind": "group"}
    return comparison_rows(whole, (found, corrected.p_values, limits), columns, same)


def _notes(whole: Pairing, found: Found) -> list[tuple[str, ...]]:
    notes: list[tuple[str, ...]] = [whole.notes] * len(whole.a)
    missing: NDArray[np.int64] = whole.n_either - whole.n_items
    for i in np.flatnonzero(missing).tolist():
        n = int(missing[i] + whole.n_items[i])
        lacking = f"{missing[i]} of {n} items lack one model's score: left out"
        notes[i] = (*notes[i], lacking)
    for i in np.flatnonzero(np.isnan(found.low[: len(notes)])).tolist():
        notes[i] = (*notes[i], "no interval: a task without common items, or too few of them")
    return notes


def _solve(strata: _Strata, request: Request) -> tuple[Found, Callable[[float], Interval]]:
    """Return what was found of each pair, and a function that gives intervals at any level."""
    from evalstats_plugin.stats import paired_scores, paired_strata

    parts = [_moments(strata, block) for block in strata.blocks()]
    means, variances, n_units, n_items = np.concatenate(parts, axis=1)
    weights = strata.weights(n_items)
    flips = [
        paired_scores.sign_flip(units, rng=request.rng, n_flips=N_FLIPS)
        for units in _units(strata, weights, n_items)
    ]
    found = paired_strata.stratified(means, variances, n_units, weights)
    p_value = np.where(np.isnan(found.difference), np.nan, np.concatenate(flips))
    if strata.whole.bounds is None:
        name, prob = "stratified-t", paired_strata.t_prob(found)

        def interval(level: float) -> Interval:
            return paired_strata.t_interval(found, confidence_level=level)
    else:
        low, high = strata.whole.bounds
        span = (low - high, high - low)
        shape = paired_strata.beta_shape(means, variances, n_units, weights, bounds=span)
        name, prob = "beta-neff", paired_strata.beta_prob(shape, bounds=span)

        def interval(level: float) -> Interval:
            return paired_strata.beta_interval(shape, bounds=span, confidence_level=level)

    limits = interval(request.confidence_level)
    return Found(name, *limits, p_value, prob, found.difference), interval


def _moments(strata: _Strata, differences: Sequence[FloatArray]) -> FloatArray:
    """Means, their variances, numbers of units and of items: shape (4, P, T)."""
    from evalstats_plugin.stats import clustered, mean

    found: list[FloatArray] = []
    for one, values in zip(strata.tasks, differences, strict=True):
        n, centre, std = mean.moments(values)
        with np.errstate(invalid="ignore", divide="ignore"):
            units, variance = n, std**2 / n
        if one.clusters is not None:
            moments = clustered.moments(*one.cluster_sums(values))
            units, variance = moments.n, moments.cr1**2
        found.append(np.stack([centre, variance, units, n]))
    return np.stack(found, axis=-1)


def _units(strata: _Strata, weights: FloatArray, n_items: FloatArray) -> Iterator[FloatArray]:
    """Yield what each item or cluster adds to the weighted difference, for some pairs at a time."""
    with np.errstate(invalid="ignore", divide="ignore"):
        factors = weights / weights.sum(axis=1, keepdims=True) / n_items
    start = 0
    for block in strata.blocks():
        rows = slice(start, start + len(block[0]))
        parts = [
            _flipped_together(one, values) * factors[rows, t, None]
            for t, (one, values) in enumerate(zip(strata.tasks, block, strict=True))
        ]
        yield np.concatenate(parts, axis=1)
        start = rows.stop


def _flipped_together(task: Pairing, values: FloatArray) -> FloatArray:
    """Sums of what has one sign: a cluster, or an item."""
    if task.clusters is None:
        return values
    totals, sizes = task.cluster_sums(values)
    return np.where(sizes > 0, totals, np.nan)


def _units_of_models(strata: _Strata) -> Units:
    """Scores and pairs as `stats.max_t` takes them, each score times what it counts in the mean."""
    from evalstats_plugin.stats import max_t

    scores = strata.whole.scores
    n_items = np.array([[float(one.scores.shape[1]) for one in strata.tasks]])
    if not np.isnan(scores).any():
        factors = (strata.weights(n_items) / n_items)[0].tolist()
        parts = [
            _flipped_together(one, one.scores) * factor
            for one, factor in zip(strata.tasks, factors, strict=True)
        ]
        return np.concatenate(parts, axis=1), strata.tasks[0].a, strata.tasks[0].b
    n_items = np.concatenate([_moments(strata, block)[3] for block in strata.blocks()])
    blocks = list(_units(strata, strata.weights(n_items), n_items))
    return max_t.against_zero(np.concatenate(blocks))
