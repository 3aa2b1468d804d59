"""Comparisons of models over several tasks.

* `group_comparisons`: on groups that the harness aggregates, the tasks being fixed strata
* `across_tasks`: on all tasks of a metric, both as fixed strata ("on these tasks") and as a random
  sample ("on tasks like these")
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from evalstats_plugin.comparisons.design import (
    Pairing,
    Request,
    against_best,
    has_item_scores,
    is_chosen_from_data,
    latest_cells,
    pair_indices,
    pairings,
)
from evalstats_plugin.comparisons.families import (
    Judged,
    PairEstimates,
    Table,
    estimates_of,
    is_within,
)
from evalstats_plugin.comparisons.methods import ENGINE
from evalstats_plugin.comparisons.paired import End, draws_for, whatever
from evalstats_plugin.comparisons.units import Strata
from evalstats_plugin.comparisons.unpaired import PAIRING_LOST, by_scores
from evalstats_plugin.data.measure import joint
from evalstats_plugin.data.responses import (
    Group,
    Responses,
    Selection,
    Weighting,
    mean_of_tasks,
    task_shares,
)
from evalstats_plugin.data.results import finite_values, grouped
from evalstats_plugin.data.runs import run_of
from evalstats_plugin.errors import DesignError, SelectionError, counted, few
from evalstats_plugin.scores.cells import Cell, common_value, make_cell, task_and_metric
from evalstats_plugin.stats.arrays import FloatArray, IntArray
from evalstats_plugin.stats.clustered import cluster_moments
from evalstats_plugin.stats.means import moments
from evalstats_plugin.stats.pairs.differences import Differences, MeanDifferences
from evalstats_plugin.stats.pairs.simultaneous import AllPairs, Units
from evalstats_plugin.stats.survey.strata import smoothed_binary, smoothed_scores

LEAST_TASKS = 3
"""Tasks from which a default answer also takes them as a random sample."""

MOST_DIFFERENCES = 2**22
"""Pairs times items up to which a comparison of tasks also has one over all of them: seconds."""

NOT_ON_ALL = "no two models have scores of items on every one of the tasks"
"""Why there is no comparison by the mean of all tasks."""

ColumnKey = tuple[Literal["overall", "group", "task"], str]
"""Kind and name of a column of scores: a group may have the name of a task."""


def group_comparisons(responses: Sequence[Responses], request: Request) -> list[Table]:
    """Compare models on groups of tasks that the harness gives a score, the tasks being fixed.

    The difference of the groups' scores is Σ w d over the tasks, each a stratum with its own
    differences by item, or without items of each model's own error. Only models that have every
    task of the group are compared.
    """
    tables: list[Table | None] = []
    for group, cells in _members(responses):
        strata = _joined(cells, group, request)
        tables.append(
            _group_table(strata, request) if strata else _of_samples(cells, group, request)
        )
    return [table for table in tables if table is not None]


def groups_by_blocks(
    responses: Sequence[Responses], request: Request
) -> list[tuple[Pairing, Callable[[IntArray, IntArray], MeanDifferences]]]:
    """Return the groups that models can be compared on, and what gives some pairs of each."""
    groups = [
        _joined(cells, group, request, without_pairs=True) for group, cells in _members(responses)
    ]
    return [(strata.whole, strata.of_pairs) for strata in groups if strata is not None]


def overall_comparisons(cells: Sequence[Cell], request: Request) -> tuple[list[Table], list[str]]:
    """Compare models by the mean of all tasks on one scale, a scored group counting as one.

    Of each task its first metric counts that is a mean; only models that have all the tasks are
    compared. It is a family of its own: the question that is asked first. Where no task is in a
    group, a second table has the tasks as a random sample, "on other tasks like these". Return
    also notes on what was left out.
    """
    cells, _ = headlines(cells)
    n_models = Counter(c.responses.task for c in cells)
    cells = [c for c in cells if n_models[c.responses.task] > 1]
    metrics = metrics_of_groups(cells)
    inside = {
        r.task: r.groups
        for r in (c.responses for c in cells)
        if r.groups
        and r.groups[0].logged is not None
        and task_and_metric(r)[1] == metrics[r.groups[0].name]
    }
    cells_of_all, notes = in_overall(cells, inside, "parts")
    parts = [c.responses for c in cells_of_all]
    if why := _too_large(parts, request):
        return [], [why]
    strata = overall_strata(cells_of_all, request)
    tasks = {r.task for r in parts}
    members = frozenset(task_and_metric(c.responses) for c in cells if c.responses.task in tasks)
    if strata is None and (table := overall_of_samples(cells_of_all, request)):
        return [replace(table, members=members)], notes
    if strata is None:
        has = "" if request.baseline is None else ", the baseline one of the two"
        lacking = f"{NOT_ON_ALL}{has}"
        return [], [f"no comparison over all tasks: {lacking}"] if parts else []
    models = list(dict.fromkeys(r.model for r in parts))
    if rest := [m for m in models if m not in strata.whole.models]:
        notes.append(f"{strata.whole.task}: left out, not on all of them: {few(rest)}")
    tables = [replace(overall_table(strata, request), members=members)]
    # Of other tasks nothing holds whatever the missing scores would have been.
    if not inside and len(strata.tasks) >= LEAST_TASKS and request.missing != "bounds":
        tables += _across_tables(strata.tasks, models, strata.whole.models, "", request)
    return tables, notes


def _too_large(parts: Sequence[Responses], request: Request) -> str:
    """Return why so many pairs are not compared over all tasks; "" if they are."""
    n, n_items = len({r.model for r in parts}), Counter(r.model for r in parts)
    for r in parts:
        n_items[r.model] += len(r.item_ids) - 1
    items = max(n_items.values(), default=0)
    every_two = is_chosen_from_data(request.baseline, n_items) or request.baseline is None
    n_pairs = n * (n - 1) // 2 if every_two else n - 1
    if n_pairs * items <= MOST_DIFFERENCES:
        return ""
    return (
        f"no comparison over all tasks: {n_pairs:,} pairs on {items:,} items take long; name a "
        "baseline (--baseline; in Python: baseline=), or rank the models by their overall score "
        "(`evalstats-plugin table`, in Python `table`)"
    )


def overall_strata(parts: Sequence[Cell], request: Request) -> _Strata | None:
    """Join the models that have all tasks of the overall score; None where fewer than two have."""
    return _joined(parts, parts[0].responses.groups[0], request) if parts else None


def overall_table(strata: _Strata, request: Request) -> Table:
    """Compare models by the overall score, a family of its own."""
    return replace(_group_table(strata, request, kind="overall"), apart=True)


def overall_of_samples(parts: Sequence[Cell], request: Request) -> Table | None:
    """Compare models by the overall score where some have values without items; None if none."""
    group = parts[0].responses.groups[0] if parts else None
    table = _of_samples(parts, group, request, kind="overall") if group else None
    return table and replace(table, apart=True)


def mark_parts(tables: Sequence[Table]) -> None:
    """Write into the rows of each table which group, or overall score, they count in."""
    wholes = sorted((t for t in tables if t.members), key=lambda t: len(t.members))
    inside = [t for t in tables if not t.members]
    for whole in wholes:
        for table in inside:
            if "part_of" not in table.same and is_within(table, whole):
                table.same["part_of"] = whole.pairing.task
        # Of two groups of the same tasks the later holds the earlier one.
        inside.append(whole)


def headlines(
    latest: Sequence[Cell], wanted: Selection | None = None
) -> tuple[list[Cell], list[str]]:
    """Return of each task the metric that is preferred, or the first, in one cell for each model.

    Means of item scores go before values without items; other values of the same answers are left
    out.
    """
    wanted = wanted or Selection()
    # A model's logged F1 is no column where another model's is recomputed from its items.
    recomputed = {
        task_and_metric(cell.responses)
        for cell in latest
        if cell.responses.pairs is not None or cell.kind == "left-out"
    }
    metrics: dict[str, dict[str, tuple[int, bool]]] = {}
    of: dict[tuple[str, str], dict[str, Cell]] = {}
    for cell in latest:
        r = cell.responses
        task, metric = task_and_metric(r)
        is_mean = cell.kind in ("binary", "bounded", "real") and cell.n > 0
        is_bare = cell.kind is None and not len(r.item_ids) and math.isfinite(cell.estimate)
        is_value = is_bare and (task, metric) not in recomputed
        if r.pairs is None and (is_mean or is_value):
            place = wanted.place_of_metric(r.metric, task, *(g.name for g in r.groups))
            own = metrics.setdefault(task, {})
            own[metric] = min(own.get(metric, (place, True)), (place, is_value))
            alone = replace(cell, responses=replace(r, beside=())) if r.beside else cell
            of.setdefault((task, metric), {}).setdefault(r.model, alone)
    first = {task: min(own, key=own.__getitem__) for task, own in metrics.items()}
    cells = [cell for task, metric in first.items() for cell in of[task, metric].values()]
    several = [f"{task}: {first[task]}" for task, own in metrics.items() if len(own) > 1]
    which = "preferred" if wanted.metrics else "first"
    notes = [f"of several metrics the {which} is shown ({few(several)})"] if several else []
    tasks = dict.fromkeys(cell.responses.task for cell in latest)
    without = [task for task in tasks if task not in metrics]
    if without:
        notes.append(f"no mean of item scores: {few(without)}")
    return cells, notes


def in_overall(
    cells: Sequence[Cell],
    inside: Mapping[str, tuple[Group, ...]],
    weighting: Weighting,
) -> tuple[list[Cell], list[str]]:
    """Return the cells of the overall score, as parts of one group; why others are not in it.

    Parameters
    ----------
    cells
        The headlines of each model.
    inside
        By task that counts with the outermost group around it, the groups around it.
    weighting
        Of the tasks.
    """
    every = [c.responses for c in cells]
    spans = [None if c.kind in ("real", None) else c.bounds or (0.0, 1.0) for c in cells]
    scales = [
        span and (span, r.higher_is_better is False) for span, r in zip(spans, every, strict=True)
    ]
    counts = Counter(scale for scale in scales if scale)
    common = max(counts, key=counts.__getitem__, default=None)
    # A column is in the overall score with all its tasks, or not at all.
    column = {r.task: column_of(r.task, inside) for r in every}
    odd = {
        column[r.task]
        for r, scale in zip(every, scales, strict=True)
        if scale is None or scale != common
    }
    tasks = dict.fromkeys(r.task for r in every if column[r.task] not in odd)
    if len({column[task] for task in tasks} if weighting == "parts" else tasks) < 2:
        return [], []
    n_tasks, n_all = len(tasks), len({r.task for r in every})
    name = f"all {n_tasks} tasks" if n_tasks == n_all else f"{n_tasks} of {n_all} tasks"
    while any(g.name == name for r in every for g in r.groups):
        name += " of all"
    group = Group(name, 0, weighting, len(tasks), logged=0.0)
    metrics = {task_and_metric(r)[1] for r in every if r.task in tasks}

    def part(cell: Cell) -> Cell:
        r = cell.responses if len(metrics) == 1 else cell.responses.measured(metric="score")
        around = (replace(g, depth=g.depth + 1) for g in inside.get(r.task, ()))
        return replace(cell, responses=replace(r, groups=(group, *around)))

    joint = [part(cell) for cell in cells if cell.responses.task in tasks]
    bare = {column[c.responses.task] for c in cells if c.kind is None}
    left_out = [key for key in dict.fromkeys(column.values()) if key in odd]
    notes: list[str] = []
    for reason, is_bare in (("another scale or direction", False), ("values without items", True)):
        if names := [key[1] for key in left_out if (key in bare) == is_bare]:
            notes.append(f"not part of the overall score, because of {reason}: {few(names)}")
    return joint, notes


def metrics_of_groups(cells: Sequence[Cell]) -> dict[str, str]:
    """Return by outermost group the metric that it is shown with: that of most of its tasks.

    A task with another metric is in another mean of the group.
    """
    tasks: dict[str, dict[str, set[str]]] = {}
    for r in (cell.responses for cell in cells):
        for group in r.groups[:1]:
            metric = task_and_metric(r)[1]
            tasks.setdefault(group.name, {}).setdefault(metric, set()).add(r.task)
    return {name: max(own, key=lambda m: len(own[m])) for name, own in tasks.items()}


def column_of(task: str, inside: Mapping[str, tuple[Group, ...]]) -> ColumnKey:
    """Return the column in which a task counts for the overall score."""
    groups = inside.get(task)
    return ("group", groups[0].name) if groups else ("task", task)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Strata:
    """Models that answered all tasks of a group."""

    tasks: tuple[Pairing, ...]
    """Of the same models and the same pairs."""
    whole: Pairing
    """All items of the group side by side."""
    around: tuple[tuple[Group, ...], ...]
    """Of each task the groups around it, from this one to the innermost."""

    def weights(self, n_items: FloatArray) -> FloatArray:
        """Shares of the tasks, from how many items each has, shape (..., T)."""
        return task_shares(self.around, n_items)

    def scores_of_pairs(self, n: int) -> FloatArray:
        """Return the scores of a and of b, of the first n pairs, shape (2, n)."""
        n_items = np.stack([task.n_items[:n] for task in self.tasks], axis=1).astype(np.float64)
        n_either = np.stack([task.n_either[:n] for task in self.tasks], axis=1)
        n_items = np.where(n_items > 0, n_items, n_either / 2)
        means = np.stack([[x[:n] for x in task.scores_of_pairs()] for task in self.tasks], axis=2)
        scores: FloatArray = (self.weights(n_items) * means).sum(axis=2)
        return scores

    def at_ends(self, pairs: IntArray) -> tuple[End, End]:
        """Some pairs with the worst and with the best of b, and the reverse of a, where open."""
        span = self.whole.span[1]

        def end(tasks: Sequence[Pairing]) -> End:
            units = Strata(tasks, self.weights)
            n, _, std = moments(units.differences(slice(None))[0])
            error = np.hypot(np.nan_to_num(std / np.sqrt(n)), span / 2 / np.maximum(n, 1))
            alone = Differences(units.differences, n_pairs=len(pairs), span=span)
            return End(alone, units.means(), error)

        worst, best = zip(*(task.at_ends(pairs) for task in self.tasks), strict=True)
        return end(worst), end(best)

    def of_pairs(self, a: IntArray, b: IntArray) -> MeanDifferences:
        """Return the distributions of the differences of some pairs."""
        units = Strata([replace(task, a=a, b=b) for task in self.tasks], self.weights)
        return Differences(units.differences, n_pairs=len(a), span=self.whole.span[1])


def _members(responses: Sequence[Responses]) -> list[tuple[Group, list[Cell]]]:
    """Return the groups that have a score, and the latest cells of each task, in order."""
    # By the names of the groups from the outermost to this one, and the metric.
    by_group: dict[tuple[Any, ...], dict[tuple[str, str], tuple[Group, Responses]]] = {}
    for r in sorted(responses, key=run_of):
        for i, group in enumerate(r.groups):
            if group.logged is not None:
                names = tuple(g.name for g in r.groups[: i + 1])
                metric = task_and_metric(r)[1]
                by_group.setdefault((names, metric), {})[r.model, r.task] = (group, r)
    groups: list[tuple[Group, list[Cell]]] = []
    for latest in by_group.values():
        group, _ = next(iter(latest.values()))
        kept = {id(r) for _, r in latest.values()}
        groups.append((group, [make_cell(r) for r in responses if id(r) in kept]))
    return groups


def _joined(
    cells: Sequence[Cell],
    group: Group,
    request: Request,
    *,
    without_pairs: bool = False,
) -> _Strata | None:
    """Join the models that have the whole group; None where fewer than two can be compared."""
    of_model = grouped(cells, lambda c: c.responses.model)
    n_tasks = {m: sum(map(has_item_scores, own)) for m, own in of_model.items()}
    complete = [m for m, n in n_tasks.items() if n == group.n_tasks]
    chosen = sorted((c for m in complete for c in of_model[m]), key=lambda c: c.responses.task)
    best = is_chosen_from_data(request.baseline, of_model)
    baseline = None if best else request.baseline
    if len(complete) < 2 or baseline not in (None, *complete):
        return None
    try:
        missing = "zero" if request.missing == "zero" else "drop"
        tasks, _ = pairings(chosen, None, missing, without_pairs=without_pairs)
    except DesignError:
        # No items in common: the tasks' own rows say so.
        return None
    within = _within(cells, group)
    around = tuple(within[task.task] for task in tasks)
    a, b = pair_indices(() if without_pairs else tasks[0].models, baseline)
    notes = dict.fromkeys(note for task in tasks for note in task.notes)
    whole = replace(
        tasks[0],
        measure=replace(tasks[0].measure, task=around[0][0].name),
        scores=np.concatenate([task.scores for task in tasks], axis=1),
        a=a,
        b=b,
        bounds=common_value(task.bounds for task in tasks),
        clusters=None,
        notes=(*notes, mean_of_tasks(around)),
    )
    strata = _Strata(tasks=tuple(tasks), whole=whole, around=around)
    if best:
        means = np.stack([task.means() for task in tasks], axis=1)
        n_items = np.stack([(~np.isnan(task.scores)).sum(axis=1) * 1.0 for task in tasks], axis=1)
        scores = np.average(means, axis=1, weights=strata.weights(n_items))
        strata = replace(strata, whole=against_best(whole, scores))
    family = strata.whole.family
    return replace(strata, tasks=tuple(replace(task, a=family.a, b=family.b) for task in tasks))


def _within(cells: Sequence[Cell], group: Group) -> dict[str, tuple[Group, ...]]:
    """Return of each task a group, and the groups around the task that are inside it."""
    within: dict[str, tuple[Group, ...]] = {}
    for r in (c.responses for c in cells):
        names = [g.name for g in r.groups]
        inside = r.groups[names.index(group.name) + 1 :] if group.name in names else ()
        within[r.task] = (group, *inside)
    return within


def _of_samples(
    cells: Sequence[Cell], group: Group, request: Request, kind: str = "group"
) -> Table | None:
    """Compare models on a group whose values have no items, by each model's own errors.

    None where all have items, and where fewer than two models have an error on every task.
    """
    if all(map(has_item_scores, cells)):
        return None
    error_of = {id(c): error for c in cells if c.n and (error := _error(c)) is not None}
    of_model = grouped([c for c in cells if id(c) in error_of], lambda c: c.responses.model)
    complete = [own for own in of_model.values() if len(own) == group.n_tasks]
    models = [own[0].responses.model for own in complete]
    if len(complete) < 2 or request.baseline not in (None, *models):
        return None
    rows = [sorted(own, key=lambda c: c.responses.task) for own in complete]
    within = _within(cells, group)
    around = [within[c.responses.task] for c in rows[0]]
    n = np.array([[c.n for c in row] for row in rows])
    shares = task_shares(around, n.astype(np.float64))
    scores = (shares * [[c.estimate for c in row] for row in rows]).sum(axis=1)
    of_tasks = np.array([[error_of[id(c)] for c in row] for row in rows])
    errors = np.sqrt(((shares * of_tasks) ** 2).sum(axis=1))
    note = "normal limits, from each model's own errors"
    table = by_scores(
        [row[0].responses.measured(task=group.name) for row in rows],
        scores, errors, n.sum(axis=1), request, (note, PAIRING_LOST, mean_of_tasks(around)),
    )  # fmt: skip
    table.same["kind"] = kind
    return replace(table, members=frozenset(task_and_metric(c.responses) for c in rows[0]))


def _error(cell: Cell) -> float | None:
    """Standard error with a least and a greatest score more, by n - 1.

    By n, as in the limits of groups, two tasks of ten items were covered in .92 of cases.
    """
    if cell.kind not in ("binary", "bounded") or cell.clusters is not None:
        return cell.std_error
    low, high = cell.bounds or (0.0, 1.0)
    of_unit = (
        smoothed_binary(cell.successes, cell.n)
        if cell.kind == "binary"
        else smoothed_scores((cell.values - low) / (high - low))
    )
    return (high - low) * math.sqrt(of_unit.variance * cell.n / max(cell.n - 1, 1))


def _group_table(strata: _Strata, request: Request, kind: str = "group") -> Table:
    whole, family = strata.whole, strata.whole.family
    units = Strata(strata.tasks, strata.weights)
    n_pairs = len(family.a)
    alone = Differences(units.differences, n_pairs=n_pairs, span=whole.span[1])
    (estimates,) = estimates_of([alone], request.confidence_level)
    estimates.difference = units.means()
    n_draws = draws_for(n_pairs, whole.scores.shape[1])
    n_items: IntArray = whole.n_items
    scores = strata.scores_of_pairs(len(whole.a))
    table = Table(
        pairing=whole,
        estimates=estimates,
        judge=lambda: AllPairs(alone, units.common(), family.a, family.b, n_draws=n_draws),
        columns={
            "n_items": n_items.tolist(),
            "notes": _group_notes(strata, estimates),
            "score_a": finite_values(scores[0]),
            "score_b": finite_values(scores[1]),
        },
        same={"kind": kind},
        members=frozenset((task.task, task.metric.removesuffix(",none")) for task in strata.tasks),
    )
    if any(task.open is not None for task in strata.tasks):
        n_missing = sum(task.n_open()[: len(whole.a)] for task in strata.tasks)
        table.columns["n_missing"] = np.asarray(n_missing).tolist()
        n_units = sum(task.n_of_task for task in strata.tasks)
        table.whatever = partial(whatever, strata.at_ends, n_units, request)
    return table


def _group_notes(strata: _Strata, estimates: PairEstimates) -> list[tuple[str, ...]]:
    whole = strata.whole
    notes: list[tuple[str, ...]] = [whole.notes] * len(whole.a)
    shared = np.stack([task.n_items[: len(whole.a)] for task in strata.tasks])
    lacking = np.stack([task.n_either[: len(whole.a)] for task in strata.tasks]) - shared
    missing = np.where(shared > 0, lacking, 0).sum(axis=0)
    for i in np.flatnonzero(missing).tolist():
        n = int(missing[i] + shared[:, i].sum())
        notes[i] = (*notes[i], f"{missing[i]} of {n} items lack one model's score: left out")
    for i in np.flatnonzero((shared == 0).any(axis=0)).tolist():
        without_common = [
            task.task for task, n in zip(strata.tasks, shared[:, i], strict=True) if n == 0
        ]
        notes[i] = (*notes[i], f"no items in common, each model's own mean: {few(without_common)}")
    for i in np.flatnonzero(np.isnan(estimates.low[: len(notes)])).tolist():
        notes[i] = (*notes[i], "no interval: a task with too few items")
    return notes


def across_tasks(responses: Sequence[Responses], request: Request) -> tuple[list[Table], list[str]]:
    """Compare models by their mean differences on tasks that have the same weight each.

    Two tables for each metric: on these tasks, which are fixed, their items being drawn from many;
    and on tasks like these, where each is one observation, the difference of the two models on
    the items that both answered. Return also notes on what was left out.

    Raises
    ------
    DesignError
        For fewer than two tasks under one metric.
    SelectionError
        For a method that is not for mean differences of tasks.
    """
    if request.method not in ("auto", ENGINE):
        raise SelectionError(
            f"method {request.method!r} does not apply to mean differences of tasks: leave it at "
            f"auto, which is {ENGINE}"
        )
    models = list(dict.fromkeys(r.model for r in responses))
    cells = latest_cells(responses)
    tasks, left_out = pairings(cells, None)
    by_metric = grouped(tasks, lambda task: task.metric.removesuffix(",none"))
    several = {metric: some for metric, some in by_metric.items() if len(some) > 1}
    alone = [f"{task.task} {metric}" for metric, (task, *more) in by_metric.items() if not more]
    if not several:
        raise DesignError(
            f"a comparison across tasks needs two tasks or more under one metric ({few(alone)}); "
            "with one task, compare its items"
        )
    if alone:
        left_out.append(f"not compared, the only task with this metric: {few(alone)}")
    # The outermost group of all tasks; empty where they are in none, or in several.
    name = common_value(r.groups[0].name if r.groups else "" for r in responses) or ""
    rows: list[Table] = []
    for metric, some in several.items():
        names = {task.task for task in some}
        own = [
            cell
            for cell in cells
            if cell.responses.task in names and task_and_metric(cell.responses)[1] == metric
        ]
        n = len(some)
        title = f"these {counted(n, 'task')}" + (f" of {name}" if name else "")
        strata = _joined(own, Group(title, 0, "macro", n), request)
        if strata is None:
            left_out.append(f"{metric}: no two models can be compared on all of these {n} tasks")
        else:
            rows.append(replace(_group_table(strata, request), apart=True))
            answered = dict.fromkeys(cell.responses.model for cell in own)
            if rest := [m for m in answered if m not in strata.whole.models]:
                lacking = f"left out, not on all of them: {few(rest)}"
                left_out.append(f"{metric}, on these {n} tasks: {lacking}")
        on_any = [m for m in models if any(m in task.models for task in some)]
        rows += _across_tables(some, models, on_any, name, request)
    return rows, left_out


def _sample(
    tasks: Sequence[Pairing], models: Sequence[str]
) -> tuple[FloatArray, FloatArray, IntArray]:
    """Every two models on every task, shape (N, N, T), NaN where they share no item.

    Mean score of the column's model minus that of the row's, the variance of this mean difference
    over the items of the task, and how many items these are.
    """
    shape = (len(models), len(models), len(tasks))
    differences, variances = np.full((2, *shape), np.nan)
    n_items = np.zeros(shape, dtype=np.int64)
    for t, task in enumerate(tasks):
        place = np.array([models.index(model) for model in task.models])
        a, b = place[task.a], place[task.b]
        mean = task.mean_differences()
        differences[a, b, t], differences[b, a, t] = mean, -mean
        variances[a, b, t] = variances[b, a, t] = _variances(task, mean)
        n_items[a, b, t] = n_items[b, a, t] = task.n_items
    return differences, variances, n_items


def _variances(task: Pairing, means: FloatArray) -> FloatArray:
    """Variance of each pair's mean difference over items, or over clusters of them."""
    if task.clusters is not None:
        step = max(MOST_DIFFERENCES // max(task.n_of_task, 1), 1)
        blocks = (task.differences(i, i + step) for i in range(0, len(task.a), step))
        return np.concatenate([cluster_moments(*task.cluster_sums(x)).cr1 ** 2 for x in blocks])
    # From sums of squares and products.
    seen = (~np.isnan(task.scores)).astype(np.float64)
    scores = np.where(seen > 0, task.scores, 0.0)
    squares, products = scores**2 @ seen.T, scores @ scores.T
    a, b, n = task.a, task.b, task.n_items
    total = squares[a, b] + squares[b, a] - 2 * products[a, b] - n * means**2
    return np.maximum(total, 0.0) / np.where(n > 1, n * (n - 1.0), np.nan)


def _table(models: Sequence[str], tasks: Sequence[Pairing], name: str) -> Pairing:
    """Models by tasks: the mean score of each on each, NaN where it was not run."""
    scores = np.full((len(models), len(tasks)), np.nan)
    for t, task in enumerate(tasks):
        scores[[models.index(model) for model in task.models], t] = task.means()
    higher = {task.higher_is_better for task in tasks} - {None}
    if len(higher) > 1:
        msg = f"{tasks[0].metric} is better higher on some tasks and lower on others; choose tasks"
        raise DesignError(msg)
    a, b = pair_indices(models, None)
    return Pairing(
        measure=replace(
            joint([task.measure for task in tasks]),
            task=f"{len(tasks)} tasks like " + (f"those of {name}" if name else "these"),
        ),
        models=tuple(models),
        scores=scores,
        a=a,
        b=b,
        kind="real",
        bounds=common_value(task.bounds for task in tasks),
        clusters=None,
        notes=tuple(dict.fromkeys(note for task in tasks for note in task.notes)),
    )


def _across_tables(
    tasks: Sequence[Pairing],
    models: Sequence[str],
    compared: Sequence[str],
    name: str,
    request: Request,
) -> list[Table]:
    """Compare some of the models on tasks that are a random sample; none without the baseline."""
    every_two, variances, n_shared = _sample(tasks, compared)
    table = _table(compared, tasks, name)
    if is_chosen_from_data(request.baseline, models):
        table = against_best(table, table.means())
    elif request.baseline is not None:
        if request.baseline not in compared:
            return []
        a, b = pair_indices(table.models, request.baseline)
        table = replace(table, a=a, b=b)
    family = table.family
    differences = every_two[family.a, family.b]
    alone = Differences(differences, span=table.span[1])
    shown = slice(len(table.a))
    n_items = n_shared[table.a, table.b].sum(axis=1)
    notes = _across_notes(table, differences[shown], variances[table.a, table.b])

    def judge() -> Judged:
        of_means = family.scores[family.b] - family.scores[family.a]
        # Models that lack some items or tasks have differences of their own in every pair.
        alike = np.allclose(differences, of_means, rtol=0.0, atol=1e-9)
        units = Units(family.scores, np.ones(family.scores.shape[1]), None if alike else of_pairs)
        n_draws = draws_for(len(family.a), family.scores.size)
        return AllPairs(alone, units, family.a, family.b, n_draws=n_draws)

    def of_pairs(which: IntArray) -> tuple[FloatArray, FloatArray]:
        seen = ~np.isnan(differences[which])
        return np.where(seen, differences[which], 0.0), seen.astype(np.float64)

    across = Table(
        pairing=table,
        estimates=estimates_of([alone], request.confidence_level)[0],
        judge=judge,
        columns={"n_items": n_items.tolist(), "notes": notes},
        same={"kind": "tasks"},
        apart=True,
    )
    return [across]


def _across_notes(
    table: Pairing, differences: FloatArray, variances: FloatArray
) -> list[tuple[str, ...]]:
    """Return the notes of each row; all compare tasks as a random sample with fixed tasks."""
    n_tasks = differences.shape[1]
    seen = (~np.isnan(differences)).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        across = np.nanvar(differences[seen > 1], axis=1, ddof=1)
        ratios = np.sqrt(across * seen[seen > 1] / np.nansum(variances[seen > 1], axis=1))
    finite = ratios[np.isfinite(ratios)]
    text = f"tasks as random units: {counted(n_tasks, 'task')}"
    if len(finite):
        text += f"; standard errors are {np.median(finite):.2f} times those with the tasks fixed"
        text += " (median over the pairs)" if len(finite) > 1 else ""
    notes: list[tuple[str, ...]] = [(*table.notes, text)] * len(seen)
    for i in np.flatnonzero(seen < n_tasks).tolist():
        notes[i] = (*notes[i], f"both models answered {seen[i]} of the {counted(n_tasks, 'task')}")
    return notes
