"""Right and wrong answers of a matrix, counted by columns instead of taken apart cell by cell.

A leaderboard has thousands of scores, of which each needs two numbers: how many answers are right,
of how many.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.analyses.cells import Bounds, known_bounds, left_out, without_limits
from evalstats_plugin.matrix import ResponseMatrix
from evalstats_plugin.results import ScoreInterval, records

IntArray = NDArray[np.int64]


class Tally(NamedTuple):
    """Answers of N models to T tasks, a task being one under one metric; in the matrix's order."""

    models: tuple[str, ...]
    tasks: tuple[tuple[str, str], ...]
    """Task and metric."""
    right: IntArray
    """Shape (N, T), like the next two."""
    n: IntArray
    """Items that have a score."""
    n_missing: IntArray
    counts: NDArray[np.bool_]
    """Whether these counts are all there is to the task: shape (T,)."""

    def of(self, which: NDArray[np.bool_]) -> Tally:
        """Some of the tasks."""
        names = tuple(name for name, wanted in zip(self.tasks, which, strict=True) if wanted)
        right, n, n_missing = (part[:, which] for part in (self.right, self.n, self.n_missing))
        return Tally(self.models, names, right, n, n_missing, self.counts[which])


def tally(matrix: ResponseMatrix, bounds: Bounds) -> Tally | None:
    """Count; None where items come in clusters or were answered several times."""
    if matrix.clusters is not None or matrix.scores.shape[2] != 1 or not matrix.scores.size:
        return None
    matrix, starts = _side_by_side(matrix)
    names = zip(matrix.tasks[starts].tolist(), matrix.metrics[starts].tolist(), strict=True)
    tasks = tuple((str(task), str(metric)) for task, metric in names)
    scores = matrix.scores[:, :, 0]
    one = scores == 1
    right, wrong = _summed(one, starts), _summed(scores == 0, starts)
    n, size = right + wrong, np.diff(starts, append=scores.shape[1])
    n_missing = np.broadcast_to(np.int64(0), n.shape)
    if (n < size).any():
        n_missing = _summed(np.isnan(scores), starts)
    free = [known_bounds(bounds, metric) in (None, (0.0, 1.0)) for _, metric in tasks]
    counts = ((n + n_missing == size) & (n > 0)).all(axis=0) & free
    return Tally(matrix.models, tasks, right, n, n_missing, counts)


def without(matrix: ResponseMatrix, done: Tally) -> ResponseMatrix:
    """Return the matrix without the tasks of a tally."""
    gone = set(done.tasks)
    names = zip(matrix.tasks.tolist(), matrix.metrics.tolist(), strict=True)
    keep = np.array([(str(task), str(metric)) not in gone for task, metric in names])
    return _columns(matrix, np.flatnonzero(keep))


def interval_rows(
    found: Tally,
    limits: tuple[NDArray[np.float64], NDArray[np.float64]],
    method: str,
    confidence_level: float,
) -> list[ScoreInterval]:
    """Return the rows, model by model, of limits of shape (N T,)."""
    n, missing = found.n.ravel(), found.n_missing.ravel()
    share = found.right.ravel() / n
    # Of one item, or of equal scores, there is no standard error.
    error = np.sqrt(share * (1 - share) / np.maximum(n - 1, 1))
    low, high = limits
    notes: list[tuple[str, ...]] = [()] * len(n)
    none = ~(np.isfinite(low) & np.isfinite(high))
    for i in np.flatnonzero(none | (missing > 0)).tolist():
        items = int(n[i])
        said = left_out(int(missing[i]), items + int(missing[i]))
        notes[i] = (*said, *((without_limits(method, items),) if none[i] else ()))
    models, tasks = len(found.models), len(found.tasks)
    columns = {
        "model": np.repeat(np.array(found.models, dtype=object), tasks).tolist(),
        "task": [task for task, _ in found.tasks] * models,
        "metric": [metric for _, metric in found.tasks] * models,
        "n_items": n.tolist(),
        "n_missing": missing.tolist(),
        "estimate": share.tolist(),
        "low": _finite(low),
        "high": _finite(high),
        "std_error": _finite(np.where((error > 0) & (n > 1), error, np.nan)),
        "notes": notes,
    }
    same = {"method": method, "confidence_level": confidence_level, "log": str(Path())}
    return records(ScoreInterval, columns, same)


def interleaved(
    tasks: NDArray[np.bool_], first: Iterable[ScoreInterval], second: Iterable[ScoreInterval]
) -> list[ScoreInterval]:
    """Put rows of tasks, model by model, back beside those of the other tasks."""
    first, second = list(first), list(second)
    rows = np.empty(((len(first) + len(second)) // len(tasks), len(tasks)), dtype=object)
    for where, made in ((tasks, first), (~tasks, second)):
        rows[:, where] = np.fromiter(made, dtype=object, count=len(made)).reshape(len(rows), -1)
    return rows.ravel().tolist()


def _side_by_side(matrix: ResponseMatrix) -> tuple[ResponseMatrix, IntArray]:
    """Bring items of a task next to each other; return where each task starts."""
    changes = [names[1:] != names[:-1] for names in (matrix.tasks, matrix.metrics)]
    starts = np.flatnonzero(np.r_[True, changes[0] | changes[1]])
    names = list(zip(matrix.tasks[starts].tolist(), matrix.metrics[starts].tolist(), strict=True))
    place = {name: i for i, name in enumerate(dict.fromkeys(names))}
    if len(place) == len(names):
        return matrix, starts
    of_run = np.array([place[name] for name in names])
    of_item = np.repeat(of_run, np.diff(starts, append=len(matrix.tasks)))
    size = np.bincount(of_item)
    return _columns(matrix, np.argsort(of_item, kind="stable")), np.cumsum(size) - size


def _columns(matrix: ResponseMatrix, at: IntArray) -> ResponseMatrix:
    def cut(values: NDArray[Any] | None) -> NDArray[Any] | None:
        return None if values is None else values[at]

    return replace(
        matrix,
        scores=matrix.scores[:, at],
        item_ids=matrix.item_ids[at],
        tasks=matrix.tasks[at],
        metrics=matrix.metrics[at],
        clusters=cut(matrix.clusters),
        item_hashes=cut(matrix.item_hashes),
    )


def _summed(answers: NDArray[np.bool_], starts: IntArray) -> IntArray:
    return np.add.reduceat(answers, starts, axis=1, dtype=np.int64)


def _finite(values: NDArray[np.float64]) -> list[float | None]:
    """As `results.finite` has it, for all at once."""
    bad = ~np.isfinite(values)
    if not bad.any():
        return values.tolist()
    shown = values.astype(object)
    shown[bad] = None
    return shown.tolist()
