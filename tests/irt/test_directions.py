"""Abilities come from scores of which more is better; others are left out, whatever holds them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evalstats_plugin as es
from evalstats_plugin.data.importing import write_store
from evalstats_plugin.errors import DesignError
from evalstats_plugin.irt import fit_irt


def _matrix(*lower: str) -> es.ResponseMatrix:
    """Five models on tasks x and y, of which those named here count errors."""
    rng = np.random.default_rng(0)
    right = rng.random((5, 40)) < np.linspace(0.3, 0.8, 5)[:, None]
    matrix = es.ResponseMatrix.from_array(right * 1.0, tasks=["x"] * 20 + ["y"] * 20)
    measures = (replace(m, higher_is_better=m.task not in lower) for m in matrix.measures)
    return matrix.under(tuple(measures))


def _stored(matrix: es.ResponseMatrix, folder: Path) -> Any:
    matrix.save(folder / "scores.parquet")
    return es.ResponseMatrix.load(folder / "scores.parquet")


HELD: dict[str, Callable[[es.ResponseMatrix, Path], Any]] = {
    "matrix": lambda matrix, _: matrix,
    "responses": lambda matrix, _: matrix.to_responses(),
    "saved": _stored,
}


@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize("analyse", [lambda x: fit_irt(x, "rasch"), es.pool], ids=["irt", "pool"])
def test_scores_of_which_less_is_better_are_left_out(
    held: str, analyse: Callable[[Any], Any], tmp_path: Path
) -> None:
    """With a note; where nothing is left, the error says why."""
    fit = analyse(HELD[held](_matrix("y"), tmp_path))
    assert [n for n in fit.notes if "lower is better" in n] == [
        "left out, as lower is better: y score"
    ]
    with pytest.raises(DesignError, match=r"left out, as lower is better: x score, y score"):
        analyse(HELD[held](_matrix("x", "y"), tmp_path))


def test_a_store_is_read_a_few_items_at_a_time_and_must_hold_no_others(tmp_path: Path) -> None:
    """Nothing is left out of what is not in memory."""
    store = write_store(tmp_path / "scores.parquet", _matrix("y"))
    with pytest.raises(DesignError, match=r"left out, as lower is better: y score"):
        fit_irt(store, "rasch", "mml")


def test_a_fit_is_that_of_the_rest() -> None:
    """Of the matrix without them."""
    rest = es.ResponseMatrix.from_array(_matrix().scores[:, :20, 0], tasks="x")
    assert np.array_equal(fit_irt(_matrix("y"), "rasch").ability, fit_irt(rest, "rasch").ability)
