"""Response stores for analyses of one task or model at a time: some models are read at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.analyses.ability_data import part as cut
from evalstats_plugin.matrix import ResponseMatrix
from evalstats_plugin.response_store import ResponseStore
from evalstats_plugin.responses import Responses, Source

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


@dataclass(frozen=True, eq=False)
class StoredTask:
    """A task of a store, under one metric."""

    store: ResponseStore
    task: str
    metric: str
    places: NDArray[np.int64]
    """Shape (M,): its items, ascending."""

    def scores(self, models: NDArray[np.int64]) -> NDArray[np.float64]:
        """Scores of some models on its items, shape (n, M, R)."""
        found = np.empty((len(models), len(self.places), self.store.n_epochs))
        for part in self.store.slices():
            start, stop = np.searchsorted(self.places, [part.start, part.stop])
            if start < stop:
                inside = self.places[start:stop] - part.start
                found[:, start:stop] = self.store.scores(part, models)[:, inside]
        return found

    def responses(self, models: NDArray[np.int64]) -> list[Responses]:
        """What some models answered."""
        store, at = self.store, self.places
        item_ids = store.item_ids[at]
        clusters = None if store.clusters is None else store.clusters[at]
        hashes = None if store.item_hashes is None else store.item_hashes[at]
        source = Source(path=store.path, harness="store")
        places: list[int] = models.tolist()
        return [
            Responses(
                model=store.models[i],
                task=self.task,
                metric=self.metric,
                item_ids=item_ids,
                scores=scores,
                clusters=clusters,
                item_hashes=hashes,
                source=source,
            )
            for i, scores in zip(places, self.scores(models), strict=True)
        ]

    def models_at_once(self) -> Iterator[NDArray[np.int64]]:
        """All models, by their numbers: as many at a time as fit."""
        size = max(1, _CELLS // max(1, len(self.places) * self.store.n_epochs))
        every = np.arange(len(self.store.models))
        return (every[start : start + size] for start in range(0, len(every), size))


def tasks_of(store: ResponseStore) -> list[StoredTask]:
    """Tasks under each of their metrics, in the order of their first items."""
    tasks, of_task = np.unique(store.tasks, return_inverse=True)
    metrics, of_metric = np.unique(store.metrics, return_inverse=True)
    keys = of_task * len(metrics) + of_metric
    distinct, first, sizes = np.unique(keys, return_index=True, return_counts=True)
    order: NDArray[np.int64] = np.argsort(keys, kind="stable")
    places: list[NDArray[np.int64]] = np.split(order, np.cumsum(sizes)[:-1])
    in_order: list[int] = np.argsort(first).tolist()
    return [
        StoredTask(
            store,
            str(tasks[distinct[k] // len(metrics)]),
            str(metrics[distinct[k] % len(metrics)]),
            places[k],
        )
        for k in in_order
    ]
