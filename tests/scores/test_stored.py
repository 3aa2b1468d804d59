"""Intervals of a store are those of the matrix in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from evalstats_plugin import intervals
from evalstats_plugin.data import store as data_store
from evalstats_plugin.data.importing import write_store
from evalstats_plugin.data.matrix import ResponseMatrix


def test_rows_are_the_same_however_many_models_are_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    rng = np.random.default_rng(2)
    scores = (rng.random((5, 60)) < 0.7).astype(float)
    scores[rng.random(scores.shape) < 0.1] = np.nan
    # Tasks that interleave.
    tasks = [("math", "code")[j % 2] for j in range(60)]
    matrix = ResponseMatrix.from_array(scores, tasks=tasks, clusters=[j // 6 for j in range(60)])
    store = write_store(tmp_path / "s.parquet", matrix)
    expected = intervals(matrix, rng=0).to_frame()
    for cells in (1, 120, 10**6):
        blocks = list(data_store.by_models(store, cells))
        assert len(blocks) == {1: 10, 120: 6, 10**6: 2}[cells]
        monkeypatch.setattr(data_store.by_models, "__defaults__", (cells,))
        assert intervals(store, rng=0).to_frame().equals(expected)
    (note,) = intervals(store, method="ratio-t").notes
    assert note.startswith("ratio-t does not fit 10 of 10 scores: ")
    assert (note,) == intervals(matrix, method="ratio-t").notes
