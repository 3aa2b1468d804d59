"""Analyses of each model by itself, for response stores: some models at a time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from evalstats_plugin.analyses.ability_data import part as cut
from evalstats_plugin.matrix import ResponseMatrix
from evalstats_plugin.response_store import ResponseStore

_CELLS = 2**24
"""Scores in memory at once: 128 MB of them, and about as much again while they are read."""


def by_models(store: ResponseStore, cells: int = _CELLS) -> Iterator[ResponseMatrix]:
    """Matrices of all items of a task, and of as many models as fit, task after task.

    A task whose items are not one after the other is read along with what lies between.
    """
    n, _, n_epochs = store.shape
    tasks, first = np.unique(store.tasks, return_index=True)
    for task in tasks[np.argsort(first)]:
        at = np.flatnonzero(store.tasks == task)
        span = slice(int(at[0]), int(at[-1]) + 1)
        size = max(1, cells // (n_epochs * (span.stop - span.start)))
        for start in range(0, n, size):
            part = store.matrix(span, slice(start, start + size))
            whole = len(at) == span.stop - span.start
            yield part if whole else cut(part, np.arange(len(part.models)), at - span.start)
