"""Reads response stores, where their answers fit into memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from evalstats_plugin.analyses.stored import StoredTask, tasks_of
from evalstats_plugin.errors import LogError
from evalstats_plugin.response_store import LARGE, ResponseStore
from evalstats_plugin.responses import TABLES, Responses, Selection, Source


def read_store(path: Path, selection: Selection) -> list[Responses]:
    """Read what each model answered to each task.

    Raises
    ------
    LogError
        More answers than are read at once, or a damaged file.
    """
    store = ResponseStore(path)
    source = Source(path=path, harness=TABLES)
    tasks = [t for t in tasks_of(store) if selection.wants_task(t.task)]
    tasks = [t for t in tasks if selection.wants_metric(t.metric)]
    if selection.header_only:
        return [
            Responses(model=model, task=t.task, metric=t.metric, source=source)
            for t in tasks
            for model in store.models
        ]
    _check_size(store, tasks)
    return [
        replace(r, source=source, notes=store.notes)
        for task in tasks
        for r in task.responses(np.arange(len(store.models)))
    ]


def _check_size(store: ResponseStore, tasks: list[StoredTask]) -> None:
    n, _, n_epochs = store.shape
    size = n * n_epochs * sum(len(task.places) for task in tasks)
    if size > LARGE:
        msg = (
            f"{store.path} holds {size:,} answers, expected {LARGE:,} at most to read at once: "
            "choose some with --task. The command compare --baseline MODEL reads them in blocks, "
            "as intervals, compare and fit_irt do in Python, given ResponseStore(path)"
        )
        raise LogError(msg)
