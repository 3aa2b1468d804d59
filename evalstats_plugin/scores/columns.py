"""0/1 scores of a matrix, counted by columns: no cell of one model on one task is needed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.data.matrix import ResponseMatrix, submatrix
from evalstats_plugin.data.measure import Measure
from evalstats_plugin.data.metrics import with_stock
from evalstats_plugin.data.responses import IN_ARRAY
from evalstats_plugin.scores.cells import (
    UNIT,
    Known,
    Metrics,
    merged,
    metric_key,
)
from evalstats_plugin.stats.arrays import IntArray


class Tally(NamedTuple):
    """Answers of N models to T tasks, a task being one under one metric; in the matrix's order."""

    models: tuple[str, ...]
    measures: tuple[Measure, ...]
    right: IntArray
    """Shape (N, T), like the next two."""
    n: IntArray
    """Items that have a score."""
    n_missing: IntArray
    counts: NDArray[np.bool_]
    """Whether these counts are all there is to the task: shape (T,)."""

    @property
    def tasks(self) -> tuple[tuple[str, str], ...]:
        """Task and metric of each."""
        return tuple((measure.task, measure.metric) for measure in self.measures)

    def of(self, which: NDArray[np.bool_]) -> Tally:
        """Some of the tasks."""
        some = tuple(m for m, wanted in zip(self.measures, which, strict=True) if wanted)
        right, n, n_missing = (part[:, which] for part in (self.right, self.n, self.n_missing))
        return Tally(self.models, some, right, n, n_missing, self.counts[which])

    def known(self) -> Metrics:
        """What the tasks that are known by their counts alone show of their metrics."""
        low: NDArray[np.bool_] = np.any(self.right < self.n, axis=0)
        high: NDArray[np.bool_] = np.any(self.right > 0, axis=0)
        return merged(
            {metric_key(metric, UNIT): Known(partial=False, low=bool(low[t]), high=bool(high[t]))}
            for t, (_, metric) in enumerate(self.tasks)
            if self.counts[t]
        )


def tally(matrix: ResponseMatrix) -> Tally | None:
    """Count right answers; None where items come in clusters or were answered several times."""
    if matrix.clusters is not None or matrix.scores.shape[2] != 1 or not matrix.scores.size:
        return None
    matrix, starts = _by_task(matrix)
    names = zip(matrix.tasks[starts].tolist(), matrix.metrics[starts].tolist(), strict=True)
    measure_of = matrix.measure_of
    measures = tuple(
        with_stock(measure_of[str(task), str(metric)], IN_ARRAY) for task, metric in names
    )
    scores = matrix.scores[:, :, 0]
    right, wrong = _count(scores == 1, starts), _count(scores == 0, starts)
    n, size = right + wrong, np.diff(starts, append=scores.shape[1])
    n_missing = np.broadcast_to(np.int64(0), n.shape)
    if (n < size).any():
        n_missing = _count(np.isnan(scores), starts)
    free = [m.aggregation == "mean" and (m.scale is None or m.bounds == UNIT) for m in measures]
    counts = ((n + n_missing == size) & (n > 0)).all(axis=0) & free
    return Tally(matrix.models, measures, right, n, n_missing, counts)


def _count(answers: NDArray[np.bool_], starts: IntArray) -> IntArray:
    """Count by task, shape (N, T) from (N, M)."""
    return np.add.reduceat(answers, starts, axis=1, dtype=np.int64)


def _by_task(matrix: ResponseMatrix) -> tuple[ResponseMatrix, IntArray]:
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
    in_order = submatrix(matrix, slice(None), np.argsort(of_item, kind="stable"))
    return in_order, np.cumsum(size) - size
