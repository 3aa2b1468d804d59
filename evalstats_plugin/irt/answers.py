"""The response matrix that a fit is made of: tasks joined, what cannot be used left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from evalstats_plugin.data.inputs import ResponsesLike, as_responses, in_memory
from evalstats_plugin.data.matrix import ResponseMatrix, submatrix
from evalstats_plugin.data.measure import Measure
from evalstats_plugin.data.responses import Responses
from evalstats_plugin.data.runs import ResponseSet
from evalstats_plugin.data.store import ResponseStore
from evalstats_plugin.errors import DesignError, SelectionError, counted, few, no_such
from evalstats_plugin.stats.arrays import FloatArray, IntArray

if TYPE_CHECKING:
    from evalstats_plugin.irt.model.fit import SavedFit


def joined(responses: ResponsesLike) -> ResponseMatrix | ResponseStore:
    """Return the matrix that a fit is made of; a store is left on disk."""
    given = as_responses(responses)
    if isinstance(given, ResponseSet):
        return ability_matrix(given)
    if isinstance(given, ResponseMatrix):
        return usable_items(given)
    if notes := _not_used(given.measures):
        raise _nothing_usable(notes)
    return given


def matrix_of(responses: ResponsesLike) -> ResponseMatrix:
    """Return the matrix that a fit is made of, in memory."""
    matrix = joined(responses)
    return in_memory(matrix) if isinstance(matrix, ResponseStore) else matrix


def ability_matrix(responses: ResponseSet) -> ResponseMatrix:
    """Join all tasks, each under its one metric, and leave out what has no scores.

    Metrics that are not means over items, or where lower is better, are left out with a note.

    Raises
    ------
    SelectionError
        A task has several metrics.
    DesignError
        There are no scores, or all are the same.
    """
    used, notes = some_usable(responses.responses)
    of_task, several = metrics_of_tasks(used)
    if several:
        tasks_with = Counter(name for names in of_task.values() for name in names)
        example = tasks_with.most_common(1)[0][0]
        raise SelectionError(
            f"a scale of ability takes one metric of each task, and {len(several)} "
            f"{'task has' if len(several) == 1 else 'tasks have'} several: {few(several)}; choose "
            f"with --metric, such as --metric {example!r} (in Python: metric=)"
        )
    matrix = replace(responses, responses=tuple(used)).matrix()
    return scored_part(replace(matrix, notes=(*matrix.notes, *notes)))


def usable(responses: Sequence[Responses]) -> tuple[list[Responses], list[str]]:
    """Return the responses from which ability can be estimated, and notes on the others."""
    with_items = [r for r in responses if r.scores.size]
    notes = _not_used([r.measure for r in with_items])
    return [r for r in with_items if _why_not(r.measure) is None], notes


def some_usable(responses: Sequence[Responses]) -> tuple[list[Responses], list[str]]:
    """Return the same as `usable`.

    Raises
    ------
    DesignError
        Scores were left out, and none is left.
    """
    used, notes = usable(responses)
    if notes and not used:
        raise _nothing_usable(notes)
    return used, notes


def usable_items(matrix: ResponseMatrix) -> ResponseMatrix:
    """Leave out, with a note, the items from whose metric ability cannot be estimated.

    Raises
    ------
    DesignError
        None is left.
    """
    left_out = [m for m in matrix.measures if _why_not(m) is not None]
    if not left_out:
        return matrix
    unused = {(m.task, m.metric) for m in left_out}
    names = zip(matrix.tasks.tolist(), matrix.metrics.tolist(), strict=True)
    kept = np.flatnonzero([name not in unused for name in names])
    notes = _not_used(left_out)
    if not len(kept):
        raise _nothing_usable(notes)
    part = submatrix(matrix, slice(None), kept)
    measures = tuple(m for m in matrix.measures if _why_not(m) is None)
    return replace(part, measures=measures, notes=(*matrix.notes, *notes))


def _nothing_usable(notes: Sequence[str]) -> DesignError:
    """Return the error where no scores can be used, for these reasons."""
    return DesignError(f"no scores can be used ({'; '.join(notes)}): choose other metrics or tasks")


def _why_not(measure: Measure) -> str | None:
    """Why ability cannot be estimated from scores of this measure, None where it can."""
    if measure.aggregation != "mean":
        return "their value is no mean over items"
    return "lower is better" if measure.higher_is_better is False else None


def _not_used(measures: Iterable[Measure]) -> list[str]:
    by_reason: dict[str, dict[str, None]] = {}
    for m in measures:
        if reason := _why_not(m):
            by_reason.setdefault(reason, {})[f"{m.task} {short_metric(m.metric)}"] = None
    return [
        f"left out, as {reason}: {few(list(names))}"
        for reason, names in sorted(by_reason.items(), reverse=True)
    ]


def short_metric(metric: str) -> str:
    """Return a metric's name without lm-eval's default filter."""
    return metric.removesuffix(",none")


def metrics_of_tasks(responses: Iterable[Responses]) -> tuple[dict[str, list[str]], list[str]]:
    """Return the metrics of each task, and descriptions of the tasks that have several."""
    metrics_by_task: dict[str, dict[str, None]] = {}
    for r in responses:
        metrics_by_task.setdefault(r.task, {})[short_metric(r.metric)] = None
    of_task = {task: list(names) for task, names in metrics_by_task.items()}
    return of_task, [f"{t} ({', '.join(names)})" for t, names in of_task.items() if len(names) > 1]


def scored_part(matrix: ResponseMatrix) -> ResponseMatrix:
    """Leave out items and models without any score, with a note.

    Raises
    ------
    DesignError
        Every score is the same.
    """
    epochs: IntArray = (~np.isnan(matrix.scores)).sum(axis=2, dtype=np.int64)
    items, models = epochs.sum(axis=0) > 0, epochs.sum(axis=1) > 0
    notes = list(matrix.notes)
    if not items.all():
        notes.append(
            f"{counted(int((~items).sum()), 'item')} that no model has a score of: not used"
        )
    if not models.all():
        silent = [matrix.models[i] for i in np.flatnonzero(~models)]
        notes.append(f"models without any score: {few(silent)}")
    kept = submatrix(matrix, np.flatnonzero(models), np.flatnonzero(items))
    observed = kept.scores[~np.isnan(kept.scores)]
    if len(observed) and len(kept.models) > 1 and observed.min() == observed.max():
        raise DesignError(
            f"every score is {observed[0]:g} ({counted(len(kept.models), 'model')}, "
            f"{counted(len(kept.item_ids), 'item')}): nothing tells these models apart: add items "
            "or models"
        )
    return replace(kept, notes=tuple(notes))


Guessing: TypeAlias = float | Mapping[str, float] | Sequence[float] | Literal["choices"]
"""P(right) without knowing the answer: of all items, by task (0 for others), or of each item;
``"choices"`` is 1 / number of choices where the log says how many there are, else 0."""


def guessing_of(matrix: ResponseMatrix | ResponseStore, guessing: Guessing) -> FloatArray | None:
    """Chance of guessing each item, shape (M,); None where all are 0.

    Raises
    ------
    SelectionError
        A chance outside [0, 1), a task that is not there, not one chance for each item, or
        ``"choices"`` of logs that do not say how many there are.
    """
    m = len(matrix.item_ids)
    if isinstance(guessing, str):
        stated = None if isinstance(matrix, ResponseStore) else matrix.chance
        if stated is None:
            raise SelectionError(
                "these logs do not say how many choices an item has: give the chance of guessing, "
                "such as 0.25 with four choices"
            )
        chance = np.nan_to_num(stated)
    elif isinstance(guessing, Mapping):
        tasks = matrix.tasks.astype(str)
        task_names = list(dict.fromkeys(tasks.tolist()))
        for name in guessing:
            if name not in task_names:
                raise SelectionError(no_such("task", name, task_names, few(task_names)))
        chance = np.array([guessing.get(task, 0.0) for task in tasks.tolist()])
    else:
        chance = np.asarray(guessing, dtype=np.float64)
    if chance.shape not in ((), (m,)):
        msg = f"guessing has {chance.size} numbers for {counted(m, 'item')}: pass one for each item"
        raise SelectionError(msg)
    chance = np.broadcast_to(chance, (m,)).copy()
    wrong = ~((chance >= 0) & (chance < 1))
    if wrong.any():
        raise SelectionError(
            f"a chance of guessing of {chance[wrong][0]:g} is not in [0, 1): pass 1 / choices, "
            "such as 0.25"
        )
    return chance if chance.any() else None


def places_in(fit: SavedFit, matrix: ResponseMatrix) -> IntArray:
    """Place in the fit of each item of the matrix, shape (M,); -1 where it has none."""
    places = {key: j for j, key in enumerate(item_keys(fit))}
    return np.array([places.get(key, -1) for key in item_keys(matrix)], dtype=np.int64)


def item_keys(of: SavedFit | ResponseMatrix) -> list[tuple[str, str]]:
    """Return the task and id of each item, by which items of fits and matrices are matched."""
    return list(zip(of.tasks.astype(str).tolist(), of.item_ids.astype(str).tolist(), strict=True))
