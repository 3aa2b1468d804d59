"""Ranks that the items leave open, and no others."""

from __future__ import annotations

import numpy as np
import pytest

from evalstats_plugin import ResponseMatrix, rank_sets
from evalstats_plugin.analyses.intervals import intervals
from evalstats_plugin.errors import DesignError


def test_models_far_apart_have_one_rank_each_and_twins_share_theirs() -> None:
    """Two equal models between a far better and a far worse one."""
    rng = np.random.default_rng(0)
    middle = rng.permutation(np.arange(200) < 100).astype(float)
    scores = [np.zeros(200), middle, middle, np.ones(200)]
    found = rank_sets(ResponseMatrix.from_array(scores, models=["d", "b", "c", "a"]), rng=0)

    assert {"a": (1, 1), "b": (2, 3), "c": (2, 3), "d": (4, 4)} == {
        row.model: (row.best_rank, row.worst_rank) for row in found
    }


def test_few_items_leave_every_rank_open() -> None:
    """Three items cannot rank three models."""
    scores = [[1, 0, 1], [0, 0, 1], [1, 1, 1]]
    for row in rank_sets(ResponseMatrix.from_array(scores), rng=0):
        assert (1, 3) == (row.best_rank, row.worst_rank)


def test_the_true_ranks_are_held_at_once_with_the_level() -> None:
    """Simulated: five models of which two are equal; 95 % within three standard errors."""
    rng = np.random.default_rng(1)
    ability = np.array([0.8, 0.7, 0.7, 0.55, 0.4])
    best = np.array([1, 2, 2, 4, 5])
    worst = np.array([1, 3, 3, 4, 5])
    held = []
    for _ in range(200):
        scores = (rng.random((5, 150)) < ability[:, None]).astype(float)
        found = rank_sets(ResponseMatrix.from_array(scores), rng=0)
        sets = sorted((row.model, row.best_rank, row.worst_rank) for row in found)
        held.append(all(s[1] <= b and s[2] >= w for s, b, w in zip(sets, best, worst, strict=True)))

    assert np.mean(held) >= 0.95 - 3 * np.sqrt(0.05 * 0.95 / 200)


def test_one_model_cannot_be_ranked() -> None:
    """There is nobody to compare it with; its interval is still there."""
    matrix = ResponseMatrix.from_array([[1.0, 0.0, 1.0]])

    assert 1 == len(intervals(matrix))
    with pytest.raises(DesignError):
        rank_sets(matrix)
