"""Comparisons on a store are those of the matrix in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evalstats_plugin import compare
from evalstats_plugin.comparisons import paired, stored
from evalstats_plugin.comparisons.design import Pairs, Request, latest_cells, pairings
from evalstats_plugin.comparisons.stored import PairTally
from evalstats_plugin.data import store as data_store
from evalstats_plugin.data.importing import write_store
from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.data.measure import Measure, Scale
from evalstats_plugin.data.store import ROWS, ResponseStore
from evalstats_plugin.errors import DesignError, SelectionError


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw the largest of all pairs less often, on either side alike."""
    monkeypatch.setattr(paired, "MOST_DRAWS", 1999)


def drawn(n: int = 9, m: int = 70, missing: float = 0.15, **more: Any) -> ResponseMatrix:
    """0/1 scores with holes, of tasks that interleave."""
    rng = np.random.default_rng(4)
    scores = (rng.random((n, m)) < np.linspace(0.3, 0.9, n)[:, None]).astype(float)
    scores[rng.random(scores.shape) < missing] = np.nan
    return ResponseMatrix.from_array(
        scores, tasks=[("b", "a")[j % 3 > 0] for j in range(m)], **more
    )


def same(matrix: ResponseMatrix, store: ResponseStore, **asked: Any) -> None:
    """The rows, notes and seed are equal, what is drawn at random included."""
    asked = {"rng": 0, "overall": False, **asked}
    one, other = compare(matrix, **asked), compare(store, **asked)
    rows, expected = other.to_frame(), one.to_frame()
    numbers = list(expected.select_dtypes("number"))
    # Sums of the same numbers in another order.
    np.testing.assert_allclose(rows[numbers], expected[numbers], rtol=1e-9, atol=1e-12)
    assert rows.drop(columns=numbers).equals(expected.drop(columns=numbers))
    assert (other.notes, other.seed) == (one.notes, one.seed)


ASKED: list[dict[str, Any]] = [
    {},
    {"baseline": "model_3"},
    {"baseline": "best"},
    {"correction": "bh", "confidence_level": 0.9},
    {"correction": "none", "method": "tango", "baseline": "model_0"},
    {"method": "newcombe", "baseline": "model_8"},
    {"method": "bca", "baseline": "model_1", "rng": 3},
    {"method": "paired-t"},
]


@pytest.mark.parametrize(
    ("missing", "asked"), [*((0.15, asked) for asked in ASKED), *((0.0, one) for one in ASKED[:3])]
)
def test_right_and_wrong_answers(tmp_path: Path, missing: float, asked: dict[str, Any]):
    matrix = drawn(n=2 if asked.get("method") == "bca" else 9, missing=missing)
    same(matrix, write_store(tmp_path / "s.parquet", matrix), **{"rng": 0, **asked})


def test_blocks_with_and_without_holes_are_added_up(tmp_path: Path):
    matrix = drawn(n=6, m=3 * ROWS + 50, missing=0.0)
    matrix.scores[2, 10:400] = matrix.scores[4, 2 * ROWS + 7] = np.nan
    store = write_store(tmp_path / "s.parquet", matrix)
    same(matrix, store)
    same(matrix, store, baseline="model_2")
    same(matrix, store, baseline="best")


@pytest.mark.parametrize("asked", [{}, {"baseline": "model_2"}, {"baseline": "best"}])
def test_partial_credit_epochs_clusters_and_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any]
):
    rng = np.random.default_rng(5)
    shape = (4, 48, 1)
    holes = rng.random(shape) < 0.1
    credit = np.where(holes, np.nan, rng.integers(0, 5, shape) / 4)
    # One of the tasks is right or wrong all the same.
    credit[:, :16] = np.round(credit[:, :16])
    tasks = ["exam"] * 16 + ["essay"] * 32
    epochs = (rng.random((4, 24, 3)) < 0.6).astype(float)
    epochs[rng.random(epochs.shape) < 0.2] = np.nan
    numbers = np.where(holes, np.nan, rng.normal(size=shape))
    numbers[1, 3] = np.inf
    matrices = [
        ResponseMatrix.from_array(credit, tasks=tasks),
        ResponseMatrix.from_array(epochs),
        ResponseMatrix.from_array(epochs[:, :, :2]),
        ResponseMatrix.from_array(numbers),
        drawn(n=4, clusters=[None if j % 9 == 0 else j // 4 for j in range(70)]),
        ResponseMatrix.from_array(credit, tasks=tasks, clusters=[j // 5 for j in range(48)]),
    ]
    # Some models are looked at together, not all.
    monkeypatch.setattr(data_store, "_BLOCK_CELLS", 100)
    for k, matrix in enumerate(matrices):
        store = write_store(tmp_path / f"{k}.parquet", matrix)
        same(matrix, store, rng=1, **asked)
    same(
        matrices[0],
        ResponseStore(tmp_path / "0.parquet"),
        measure=Measure(metric="score", scale=Scale(0, 2)),
        rng=1,
    )
    same(matrices[4], ResponseStore(tmp_path / "4.parquet"), method="tango")


def test_a_store_of_tasks_says_that_they_are_not_compared_together(tmp_path: Path):
    found = compare(write_store(tmp_path / "s.parquet", drawn(n=3)), rng=0)

    assert {"task"} == {row.kind for row in found}
    assert any(note.startswith("no comparison over all tasks of a store") for note in found.notes)


def test_models_and_tasks_that_cannot_be_compared_are_told_alike(tmp_path: Path):
    scores = drawn(n=4, m=60, missing=0.0).scores[:, :, 0].copy()
    tasks = ["a"] * 20 + ["b"] * 20 + ["c"] * 20
    scores[1:, :20] = np.nan  # one model has task a
    scores[0, 20:40] = np.nan  # and lacks b
    scores[2, 40:50] = scores[3, 50:] = np.nan  # no item of c in common
    matrix = ResponseMatrix.from_array(scores, tasks=tasks, metric="acc,none")
    store = write_store(tmp_path / "s.parquet", matrix)
    same(matrix, store)
    same(matrix, store, baseline="model_0")
    same(matrix, store, baseline="best")

    def both_say(matrix: ResponseMatrix, **asked: Any) -> None:
        store = write_store(tmp_path / "t.parquet", matrix)
        said: list[str] = []
        for responses in (matrix, store):
            with pytest.raises((DesignError, SelectionError)) as raised:
                compare(responses, **asked)
            said.append(f"{raised.type} {raised.value}")
        assert said[0] == said[1]

    both_say(matrix, baseline="modle_0")
    both_say(matrix, method="dirichlte")
    both_say(ResponseMatrix.from_array([[0, 1, 1]]))
    both_say(ResponseMatrix.from_array([[0, 1, np.nan], [np.nan, np.nan, 1]]))
    both_say(ResponseMatrix.from_array([[0, 1, np.nan], [np.nan, np.nan, np.nan]]))


def test_what_needs_all_answers_in_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    store = write_store(tmp_path / "s.parquet", drawn(clusters=[j // 5 for j in range(70)]))
    with pytest.raises(
        SelectionError, match=r"design 'tasks' needs all answers in memory.*matrix\("
    ):
        compare(store, design="tasks")
    monkeypatch.setattr(stored, "MOST_DIFFERENCES", 8 * 46)
    assert len(compare(store, baseline="model_0")) == 16
    with pytest.raises(
        DesignError, match=r"b has .* 36 pairs of models on 24 items .*name a baseline"
    ):
        compare(store)
    monkeypatch.setattr(stored, "MOST_PAIRS", 71)
    for baseline in (None, "best"):
        with pytest.raises(
            DesignError, match=r"72 pairs \(9 models, tasks: 2\) are more than the 71"
        ):
            compare(store, baseline=baseline)
    monkeypatch.setattr(stored, "MOST_PAIRS", 16)
    assert len(compare(store, baseline="model_0")) == 16


def test_all_that_pairs_have_is_that_of_the_matrix(tmp_path: Path):
    """Nothing that a store cannot give is there to be called."""
    request = Request(confidence_level=0.95, rng=np.random.default_rng(0))
    matrix = drawn(clusters=[j // 5 for j in range(70)])
    of_matrix, _ = pairings(latest_cells(matrix.to_responses()), None)
    of_store, _ = stored._pairings(write_store(tmp_path / "s.parquet", matrix), request)

    assert [pairs.task for pairs in of_matrix] == [pairs.task for pairs in of_store]
    for one, other in zip(of_matrix, of_store, strict=True):
        assert not hasattr(other, "mean_differences")
        for name in (*Pairs.__abstractmethods__, "n_either"):
            found, expected = (
                value() if callable(value := getattr(pairs, name)) else value
                for pairs in (other, one)
            )
            np.testing.assert_allclose(found, expected, rtol=1e-12, err_msg=name)


def test_tables_are_those_counted_one_by_one():
    rng = np.random.default_rng(6)
    right = rng.integers(0, 2, (40, 5, 1)).astype(np.uint8)
    there = rng.random(right.shape) < 0.7
    there[:20] = True
    tally = PairTally(5, np.array([1, 3]))
    tally.add(np.where(there, right, 0)[:20], None, 1)
    tally.add(np.where(there, right, 0)[20:], there[20:], 1)
    a, b = np.array([1, 1, 3]), np.array([0, 4, 2])
    for k, table in enumerate(tally.tables(a, b).T):
        common = (there[:, a[k]] & there[:, b[k]])[:, 0]
        x, y = right[common, a[k], 0], right[common, b[k], 0]
        expected = [(x & y).sum(), (x > y).sum(), (x < y).sum(), (1 - (x | y)).sum()]
        assert table.tolist() == expected


def test_codes_without_a_score_are_not_looked_at():
    """Whatever stands there: answers stay right or wrong, with the same counts."""
    rng = np.random.default_rng(6)
    right = rng.integers(0, 2, (40, 5, 1)).astype(np.uint16) * 4
    there = rng.random(right.shape) < 0.7
    plain, other = PairTally(5, np.array([1, 3])), PairTally(5, np.array([1, 3]))
    plain.add(np.where(there, right, 0), there, 4)
    other.add(np.where(there, right, rng.integers(1, 4, right.shape)).astype(np.uint16), there, 4)
    a, b = np.array([1, 1, 3]), np.array([0, 4, 2])

    assert plain.is_binary
    assert other.is_binary
    assert plain.tables(a, b).tolist() == other.tables(a, b).tolist()
    partial = PairTally(5, np.array([1, 3]))
    partial.add(np.where(right > 0, right, 2).astype(np.uint16), None, 4)
    assert not partial.is_binary


def test_scores_that_memory_does_not_hold_have_bounds_with_a_baseline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Šidák's: no draws, never sharper than what is drawn by more than its error, and named."""
    matrix = ResponseMatrix.from_array(drawn(n=6, m=300, missing=0.0).scores[..., 0])
    store = write_store(tmp_path / "s.parquet", matrix)
    one_by_one = compare(matrix, baseline="model_2", correction="none")
    for correction in ("simultaneous", "stepdown"):
        at_once = compare(matrix, baseline="model_2", correction=correction)
        with monkeypatch.context() as limited:
            limited.setattr(stored, "MOST_SCORES", 100)
            bounded = compare(store, baseline="model_2", correction=correction)

        assert bounded[0].procedure.startswith("Šidák's bound")
        for bound, row, single in zip(bounded, at_once, one_by_one, strict=True):
            assert bound.p_value == row.p_value
            assert max(row.p_adjusted - 0.005, single.p_adjusted) <= bound.p_adjusted
            assert bound.low <= row.low + 1e-3
            assert row.high - 1e-3 <= bound.high
        assert bounded[0].p_adjusted > one_by_one[0].p_adjusted

    monkeypatch.setattr(stored, "MOST_SCORES", 100)
    with pytest.raises(DesignError, match=r"all pairs of 6 models on .* cannot be judged at once"):
        compare(store)
    few = write_store(tmp_path / "few.parquet", drawn(n=6, m=70, missing=0.0))
    with pytest.raises(DesignError, match="cannot be judged at once"):
        compare(few, baseline="model_2")
