"""Items of several tasks in any order: taken apart and counted as if task by task."""

from __future__ import annotations

import numpy as np

from evalstats_plugin import ResponseMatrix
from evalstats_plugin.hierarchical.data import eval_counts


def drawn() -> ResponseMatrix:
    rng = np.random.default_rng(0)
    scores = rng.random((4, 30))
    scores[rng.random(scores.shape) < 0.3] = np.nan
    tasks = [f"task_{t}" for t in rng.integers(0, 5, 30)]
    clusters = [f"cluster_{c}" for c in rng.integers(0, 3, 30)]
    return ResponseMatrix.from_array(scores, tasks=tasks, clusters=clusters)


def test_a_matrix_is_taken_apart_by_task() -> None:
    matrix = drawn()

    found = matrix.to_responses()

    assert [(r.model, r.task) for r in found] == [
        (model, task) for model in matrix.models for task in dict.fromkeys(matrix.tasks.tolist())
    ]
    for r in found:
        mine = matrix.tasks == r.task
        row = matrix.scores[matrix.models.index(r.model)]
        assert np.array_equal(r.scores, row[mine], equal_nan=True)
        assert r.item_ids.tolist() == matrix.item_ids[mine].tolist()
        assert r.clusters is not None
        assert matrix.clusters is not None
        assert r.clusters.tolist() == matrix.clusters[mine].tolist()


def test_right_answers_are_counted_by_task() -> None:
    matrix = drawn()

    counts = eval_counts(matrix)

    for k, task in enumerate(counts.tasks):
        scores = matrix.scores[:, matrix.tasks == task, 0]
        assert np.allclose(counts.right[:, k], np.nansum(scores, axis=1))
        assert counts.trials[:, k].tolist() == (~np.isnan(scores)).sum(axis=1).tolist()
