"""Rows of one metric get one method, and know together how far its scores go."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from given_responses import given_responses

from evalstats_plugin import ResponseMatrix, Responses, Source, intervals
from evalstats_plugin.data.importing import write_store
from evalstats_plugin.data.store import by_models

SOURCE = Source(path=Path(), harness="test")
NEAR = [0.79, 0.81, 0.83, 0.78, 0.80, 0.82, 0.77, 0.84]
RIGHT = [1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0]


def _row(model: str, scores: list[float], *, task: str = "t", metric: str = "rouge") -> Responses:
    return given_responses(
        model=model, task=task, metric=metric, item_ids=np.arange(len(scores)),
        scores=np.array(scores)[:, None], source=SOURCE,
    )  # fmt: skip


@pytest.mark.parametrize("task", ["t", "other"])
def test_zeros_and_ones_are_treated_like_their_neighbours(task: str) -> None:
    """The method goes by the metric, not by what a row happens to hold."""
    together = intervals([_row("a", RIGHT), _row("b", NEAR, task=task)])
    alone = intervals([_row("a", RIGHT), _row("b", NEAR, metric="f1")])

    assert ["reach", "reach"] == [row.method for row in together]
    assert ["beta-hpd", "reach"] == [row.method for row in alone]


def test_means_of_epochs_of_zeros_and_ones_are_no_partial_credit() -> None:
    """They leave the other rows of the metric their own method."""
    epochs = given_responses(
        model="b", task="u", metric="rouge", item_ids=np.arange(3),
        scores=np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]]), source=SOURCE,
    )  # fmt: skip

    assert ["beta-hpd", "reach"] == [row.method for row in intervals([_row("a", RIGHT), epochs])]


def test_a_bound_that_another_row_reaches_counts_for_all_rows() -> None:
    """A sample without failed answers looks the same whether they occur or not."""
    alone = intervals([_row("a", NEAR)])[0]
    beside = intervals([_row("a", NEAR), _row("b", [0.0, *NEAR[1:]])])[0]

    assert (alone.low or 0) - (beside.low or 1) > 0.1
    assert (alone.high, "reach") == (pytest.approx(beside.high, abs=0.02), beside.method)


@pytest.mark.parametrize(("counts", "least"), [(RIGHT, 0.0), ([1.0] * 8, 0.7), ([0.0] * 8, 0.7)])
def test_rows_together_do_not_depend_on_how_they_are_held(
    counts: list[float], least: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In memory, in a matrix and in a store that is read one model at a time."""
    right = [_row(m, counts, task="whole") for m in "abc"]
    scores = {"a": NEAR, "b": NEAR[::-1], "c": [least, *NEAR[1:]]}
    responses = [*right, *(_row(m, values) for m, values in scores.items())]
    matrix = ResponseMatrix.join(responses)
    store = write_store(tmp_path / "m.parquet", matrix)
    monkeypatch.setattr("evalstats_plugin.scores.intervals.by_models", partial(by_models, cells=8))
    expected = intervals(responses)
    assert {"reach"} == {row.method for row in expected}
    for held in (matrix, store):
        found = {(row.model, row.task): row for row in intervals(held)}
        assert {"reach"} == {row.method for row in found.values()}
        for row in expected:
            same = found[row.model, row.task]
            assert (row.low, row.high) == pytest.approx((same.low, same.high), abs=1e-12)
