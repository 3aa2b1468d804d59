"""Responses are joined on items, and only on items that are the same question."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from given_responses import given_responses
from hypothesis import given
from hypothesis import strategies as st

from evalstats_plugin import ResponseMatrix, Responses, ResponseSet, Source, read
from evalstats_plugin.data import matrix as data_matrix
from evalstats_plugin.data.responses import as_clusters
from evalstats_plugin.data.store import _bytes_of
from evalstats_plugin.data.tables import Column
from evalstats_plugin.errors import DesignError, ItemConflictError, LogError

LOGS = Path(__file__).parents[2] / "fixtures" / "logs" / "lm_eval" / "0.4.13" / "out"


def _responses(model: str, ids: list[int], scores: list[float], **more: object) -> Responses:
    known = {
        "model": model, "task": "t", "metric": "acc", "item_ids": np.array(ids),
        "scores": np.array(scores)[:, None], "source": Source(path=Path(model), harness="x"),
    }  # fmt: skip
    return given_responses(**{**known, **more})  # pyright: ignore[reportArgumentType]


def test_models_are_joined_on_item_ids_in_any_order() -> None:
    """What only one model answered is missing for the other."""
    joined = ResponseSet(
        (_responses("a", [2, 0, 1], [0.2, 0.0, 0.1]), _responses("b", [1, 3], [1.1, 1.3]))
    ).matrix()

    assert joined.item_ids.tolist() == ["0", "1", "2", "3"]
    np.testing.assert_array_equal(
        [[0.0, 0.1, 0.2, np.nan], [np.nan, 1.1, np.nan, 1.3]], joined.scores[:, :, 0]
    )


def test_one_id_with_two_questions_is_refused_or_dropped() -> None:
    """The hashes differ: the error names both logs."""
    same, other = np.array(["x", "y"], dtype="S"), np.array(["x", "z"], dtype="S")
    found = ResponseSet(
        (
            _responses("a", [0, 1], [0, 1], item_hashes=same),
            _responses("b", [0, 1], [1, 1], item_hashes=other),
        )
    )

    with pytest.raises(ItemConflictError, match=r"item 1 is one question in a and another in b"):
        found.matrix()
    assert found.matrix(on_conflict="drop").item_ids.tolist() == ["0"]


def test_several_metrics_or_no_scores_are_refused() -> None:
    """What to pass is said."""
    two = (_responses("a", [0], [1]), _responses("a", [0], [1], metric="f1"))

    with pytest.raises(DesignError, match=r"has 2 metrics \(acc, f1\); choose one with --metric"):
        ResponseSet(two).matrix()
    with pytest.raises(DesignError, match="no item scores to join"):
        ResponseSet(two).matrix(task="u")
    with pytest.raises(DesignError, match="model 'a' is there twice for task 't'; choose one run"):
        ResponseMatrix.join([two[0], two[0]])


def test_real_logs_are_joined_over_models_and_tasks(tmp_path: Path) -> None:
    """Three models, and a task that was run in two groups is joined once."""
    matrix = read(LOGS, metric="acc").matrix(metric="acc")
    path = tmp_path / "matrix.parquet"
    matrix.save(path)
    loaded = ResponseMatrix.load(path)

    assert matrix.scores.shape == (3, 60 + 30 + 12 + 80 + 60 + 60 + 40 + 1, 1)
    assert not np.isnan(matrix.scores).any()
    np.testing.assert_array_equal(matrix.scores, loaded.scores)
    assert matrix.models == loaded.models
    assert matrix.items.equals(loaded.items)


def test_tidy_frame_has_one_take_per_line() -> None:
    """model, task, metric, item, epoch, score, cluster."""
    frame = read(LOGS, task="es_gen").to_frame()

    assert list(frame.columns) == ["model", "task", "metric", "item", "epoch", "score", "cluster"]
    assert len(frame) == 3 * 2 * 40


def test_plain_arrays_become_a_matrix() -> None:
    """Names default; wrong shapes are refused with the shapes."""
    matrix = ResponseMatrix.from_array(np.zeros((2, 3, 4)), tasks=["t", "t", "u"])

    assert matrix.models == ("model_0", "model_1")
    assert [(r.model, r.task) for r in matrix.to_responses()] == [
        ("model_0", "t"),
        ("model_0", "u"),
        ("model_1", "t"),
        ("model_1", "u"),
    ]
    with pytest.raises(ValueError, match=r"1 axes, and must have two or three"):
        ResponseMatrix.from_array([1.0])
    with pytest.raises(ValueError, match="model 'a' is there twice; give different names"):
        ResponseMatrix.from_array(np.zeros((2, 3)), models=["a", "a"])
    with pytest.raises(ValueError, match="3 items of scores, but 2 item names"):
        ResponseMatrix.from_array(np.zeros((2, 3)), items=["a", "b"])
    with pytest.raises(ValueError, match="3 items of scores, but 1 cluster"):
        ResponseMatrix.from_array(np.zeros((2, 3)), clusters=["a"])
    with pytest.raises(ValueError, match=r"scores have shape \(2, 1, 1\), and must have \(2, R\)"):
        given_responses(
            model="a", task="t", metric="m", item_ids=np.arange(2), scores=np.zeros((2, 1, 1)),
            source=Source(path=Path(), harness="x"),
        )  # fmt: skip


def test_a_foreign_parquet_file_is_refused(tmp_path: Path) -> None:
    """Not every table is a matrix of ours."""
    import pandas as pd

    path = tmp_path / "x.parquet"
    pd.DataFrame({"a": [1]}).to_parquet(path)

    with pytest.raises(LogError, match="but not a response matrix"):
        ResponseMatrix.load(path)


def test_epochs_are_stacked_with_the_same_check_on_questions() -> None:
    """Two runs of a model become two epochs, unless an item changed between them."""
    from evalstats_plugin.data.matrix import stack_epochs

    first = _responses("a", [0, 1], [0, 1], item_hashes=np.array(["x", "y"], dtype="S"))
    second = _responses("a", [1, 0], [0, 0], item_hashes=np.array(["y", "x"], dtype="S"))
    [stacked] = stack_epochs([first, second])

    np.testing.assert_array_equal([[0, 0], [1, 0]], stacked.scores)
    changed = _responses("a", [0], [1], item_hashes=np.array(["z"], dtype="S"))
    with pytest.raises(ItemConflictError):
        stack_epochs([first, changed])


def test_an_item_whose_cluster_is_nan_has_none():
    """As a table has it where a cell is empty."""
    scores = np.random.default_rng(0).random((2, 4))
    of_nan, of_none = (
        ResponseMatrix.from_array(scores, clusters=["a", absent, "a", absent])
        for absent in (float("nan"), None)
    )

    assert of_nan.clusters.tolist() == of_none.clusters.tolist()
    assert len(set(of_nan.clusters.tolist())) == 3


def test_an_item_without_a_cluster_shares_none_with_one_of_another_log():
    """Both are first in their logs; what one log says of an item, another need not say."""
    of = {"a": ([4, 2, 3], [None, "p", "p"]), "b": ([1, 2, 3], [None, "p", None])}
    clustered = [
        replace(_responses(model, ids, [0.0, 1.0, 1.0]), clusters=as_clusters(names, "x")[0])
        for model, (ids, names) in of.items()
    ]
    joined = ResponseMatrix.join([*clustered, _responses("c", [4, 5, 6], [1.0, 1.0, 0.0])])

    assert joined.item_ids.tolist() == ["1", "2", "3", "4", "5", "6"]
    assert joined.clusters[1:3].tolist() == ["p", "p"]
    assert len(set(joined.clusters.tolist())) == 5
    assert ResponseMatrix.join([_responses("c", [4, 5], [1.0, 1.0])]).clusters is None


@given(st.lists(st.sampled_from(["a", " a", "b", "", " ", None, 1, "1"]), min_size=1), st.data())
def test_a_column_from_codes_is_that_of_its_cells(values, data):
    """However often a text is among the values, trimmed or not."""
    codes = data.draw(st.lists(st.integers(0, len(values) - 1), max_size=6))
    cells, expected = (
        [(*each.values, None)[k] for k in each.codes]
        for each in (
            Column.encoded(np.array(codes, dtype=np.int64), values),
            Column.of([values[k] for k in codes]),
        )
    )

    assert cells == expected


@pytest.mark.parametrize("kind", ["uint8", "int32", "float64"])
def test_bytes_of_a_piece_of_a_column_are_those_of_its_rows(kind):
    """Of any width, from any row on, in one chunk or several."""
    whole = pa.array(np.arange(9, dtype=kind))
    for column in (
        pa.chunked_array([whole.slice(3, 4)]),
        pa.chunked_array([whole.slice(2, 2), whole.slice(7, 2)]),
    ):
        assert _bytes_of(column).tobytes() == np.array(column, dtype=kind).tobytes()


def test_the_room_that_a_join_needs_is_of_every_model_with_every_item(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Items of all models count once; scores, their means and what comes of both are floats."""
    needed = list[float]()
    monkeypatch.setattr(data_matrix, "check_memory", lambda size, *_: needed.append(size))
    epochs = np.array([[0.0, 1.0], [1.0, 1.0], [0.0, 0.0]])
    alike = [_responses(m, [1, 2, 3], [0.0, 1.0, 1.0]) for m in "ab"]
    apart = [
        replace(_responses(m, ids, [0.0, 1.0, 1.0], task="u"), scores=epochs)
        for m, ids in (("a", [1, 2, 3]), ("b", [2, 3, 4]))
    ]

    ResponseMatrix.join(alike)
    ResponseMatrix.join([*alike, *apart])
    assert needed == [8 * 2 * 3 * (1 + 2), 8 * 2 * (3 + 4) * (2 + 2)]
