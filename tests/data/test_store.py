"""Response stores: what is read is what was written, however it is cut."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evalstats_plugin.data import importing, tables
from evalstats_plugin.data.importing import store_table, write_store
from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.data.runs import ResponseSet
from evalstats_plugin.data.store import ROWS, Coding, ResponseStore, is_store, tasks_of
from evalstats_plugin.errors import DesignError, LogError, SelectionError


def drawn(n: int = 7, m: int = 2 * ROWS + 300, epochs: int = 2, missing: float = 0.1):
    """0/1 scores with holes, in clusters."""
    rng = np.random.default_rng(1)
    scores = (rng.random((n, m, epochs)) < 0.5).astype(float)
    scores[rng.random(scores.shape) < missing] = np.nan
    return ResponseMatrix.from_array(scores, clusters=[f"c{j // 3}" for j in range(m)])


def pieces(matrix: ResponseMatrix, size: int):
    """The matrix in blocks of items."""
    for a in range(0, matrix.scores.shape[1], size):
        part = slice(a, a + size)
        yield ResponseMatrix(
            matrix.scores[:, part], matrix.models, matrix.item_ids[part], matrix.tasks[part],
            matrix.metrics[part], None if matrix.clusters is None else matrix.clusters[part],
        )  # fmt: skip


def test_tasks_are_apart_under_each_of_their_metrics(tmp_path: Path):
    """Two tasks with two metrics are four."""
    matrix = drawn(n=3, m=12, missing=0)
    tasks, metrics = np.repeat(["a", "b"], 6), np.tile(["acc", "f1"], 6)
    named = ResponseMatrix(matrix.scores, matrix.models, matrix.item_ids, tasks, metrics)

    each = tasks_of(write_store(tmp_path / "s.parquet", [named]))

    assert [(t.task, t.metric) for t in each] == [(t, m) for t in "ab" for m in ("acc", "f1")]
    for task, start in zip(each, (0, 1, 6, 7), strict=True):
        [first, *_] = task.responses(np.arange(3))
        np.testing.assert_array_equal(first.scores, matrix.scores[0, start : start + 6 : 2])


def test_255_levels_have_a_byte_for_the_best_score():
    codes = Coding(255).encode(np.array([0, 1 / 255, 1, np.nan]))

    assert codes.tolist() == [0, 1, 255, 0]
    with pytest.raises(DesignError, match=r"score 1\.00392 is no multiple of 1/255"):
        Coding(255).encode(np.array([256 / 255]))


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_room_is_taken_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, platform: str
):
    """Where the system has no call for it, by the size of the file."""
    monkeypatch.setattr(sys, "platform", platform)
    with importing._room_beside(tmp_path / "new" / "s.parquet", 5000) as file:
        assert os.fstat(file.fileno()).st_size == 5000


@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_what_is_read_is_what_was_written(tmp_path: Path, missing: float):
    matrix = drawn(missing=missing)
    store = write_store(tmp_path / "s.parquet", pieces(matrix, 700))

    assert store.coding.levels == 1
    assert store.shape == matrix.scores.shape
    found = store.matrix()
    np.testing.assert_array_equal(found.scores, matrix.scores)
    for name in ("item_ids", "tasks", "metrics", "clusters"):
        np.testing.assert_array_equal(getattr(found, name), getattr(matrix, name))
    assert found.models == matrix.models
    assert found.item_hashes is None


def test_any_cut_is_the_same_cut(tmp_path: Path):
    matrix = drawn()
    store = write_store(tmp_path / "s.parquet", matrix)
    for a, b in [(0, 1), (ROWS - 1, ROWS + 1), (5, 2 * ROWS + 7), (2 * ROWS + 299, 9999), (9, 9)]:
        cut = store.matrix(slice(a, b), slice(2, 5))
        np.testing.assert_array_equal(cut.scores, matrix.scores[2:5, a:b])
        np.testing.assert_array_equal(cut.item_ids, matrix.item_ids[a:b])
    whole = np.concatenate([block.scores for block in store.blocks(333)], axis=1)
    np.testing.assert_array_equal(whole, matrix.scores)


def test_slices_are_of_whole_row_groups_where_these_fit(tmp_path: Path):
    store = write_store(tmp_path / "s.parquet", pieces(drawn(m=1700), 700))

    def edges(n_items: int) -> list[tuple[int, int]]:
        return [(part.start, part.stop) for part in store.slices(n_items)]

    assert edges(ROWS) == [(0, 700), (700, 1700)]
    assert edges(700) == [(0, 700), (700, 1400), (1400, 1700)]
    assert edges(1500) == [(0, 1400), (1400, 1700)]
    assert edges(5000) == [(0, 1700)]
    # A group that is too large is cut, and what is left of it stays apart.
    assert edges(400) == [(0, 400), (400, 700), (700, 1100), (1100, 1400), (1400, 1700)]


def test_scores_and_holes_can_be_read_apart(tmp_path: Path):
    matrix = drawn(m=1500)
    matrix.scores[:, :700] = 1.0  # the first row group has no hole
    store = write_store(tmp_path / "s.parquet", pieces(matrix, 700))
    for part in (slice(0, 600), slice(650, 1450), slice(1480, 1500), slice(9, 9)):
        codes, missing = store.codes(part)
        np.testing.assert_array_equal(store.filled(part), codes)
        alone = store.missing(part)
        assert (alone is None) == (missing is None) == (part.stop <= 700)
        if missing is not None:
            np.testing.assert_array_equal(alone, missing)
    some = np.array([5, 0, 3])
    np.testing.assert_array_equal(store.scores(slice(600, 800), some), matrix.scores[some, 600:800])


def test_a_folder_of_files_is_one_store(tmp_path: Path):
    matrix = drawn(m=100)
    for k, block in enumerate(pieces(matrix, 40)):
        write_store(tmp_path / f"part-{k}.parquet", block)

    np.testing.assert_array_equal(ResponseStore(tmp_path).matrix().scores, matrix.scores)
    write_store(tmp_path / "part-2.parquet", replace(block, clusters=None))
    assert ResponseStore(tmp_path).clusters is None


@pytest.mark.parametrize(
    ("scores", "levels"),
    [([0, 1], 1), ([0, 0.5, np.nan], 2), ([0.2, 0.25], 20), ([0.1234567, 1], None), ([0, 2], None)],
)
def test_bytes_only_where_they_hold_every_score(
    tmp_path: Path, scores: list[float], levels: int | None
):
    store = write_store(tmp_path / "s.parquet", ResponseMatrix.from_array([scores]))

    assert store.coding == Coding(levels)
    np.testing.assert_allclose(store.matrix().scores[0, :, 0], scores, atol=1e-15)


def test_0_1_scores_take_less_than_a_byte(tmp_path: Path):
    matrix = drawn(n=64, m=4096, epochs=1)
    write_store(tmp_path / "s.parquet", matrix)

    assert (tmp_path / "s.parquet").stat().st_size < matrix.scores.nbytes / 8


def test_what_cannot_be_written_leaves_what_was_there(tmp_path: Path):
    path = tmp_path / "s.parquet"
    write_store(path, ResponseMatrix.from_array([[0, 1, 1]]))
    before = path.read_bytes()
    with pytest.raises(DesignError, match="no block of items to write"):
        write_store(path, [])
    other = [ResponseMatrix.from_array([[0, 1]]), ResponseMatrix.from_array([[0, 0.3]])]
    with pytest.raises(DesignError, match=r"score 0\.3 is no multiple of 1/1"):
        write_store(path, other)
    other[1] = ResponseMatrix.from_array([[0, 1], [1, 0]])
    with pytest.raises(
        DesignError, match="one block has 2 models and 1 epoch, but the first has 1 model and"
    ):
        write_store(path, other)
    with pytest.raises(DesignError, match="item 'item_0' of task 'task' is there twice"):
        write_store(path, other[:1] * 2)

    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["s.parquet"]


def test_what_is_no_store_is_said(tmp_path: Path):
    with pytest.raises(LogError, match="cannot be read as a response store"):
        ResponseStore(tmp_path / "none.parquet")
    with pytest.raises(LogError, match="holds no Parquet file"):
        ResponseStore(tmp_path)
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    with pytest.raises(LogError, match="but no response store"):
        ResponseStore(tmp_path)
    (tmp_path / "a.parquet").unlink()
    write_store(tmp_path / "a.parquet", ResponseMatrix.from_array([[0, 1]], models=["x"]))
    write_store(tmp_path / "b.parquet", ResponseMatrix.from_array([[0, 1]], models=["y"]))
    with pytest.raises(LogError, match="differ in models, epochs or coding"):
        ResponseStore(tmp_path)
    (tmp_path / "b.parquet").write_bytes((tmp_path / "a.parquet").read_bytes())
    with pytest.raises(LogError, match="item 'item_0' of task 'task' is there twice"):
        ResponseStore(tmp_path)
    whole = pq.read_table(tmp_path / "a.parquet")
    items = pa.array([[name] for name in whole["item"].to_pylist()])
    lists = whole.set_column(whole.column_names.index("item"), "item", items)
    (tmp_path / "b.parquet").unlink()
    pq.write_table(lists, tmp_path / "a.parquet")
    with pytest.raises(LogError, match="do not hold texts alone"):
        ResponseStore(tmp_path)
    (tmp_path / "t.csv").write_text("model,item,score")
    with pytest.raises(LogError, match=r"t\.csv cannot be read as a response store"):
        ResponseStore(tmp_path / "t.csv")


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_a_table_of_answers_becomes_a_store(tmp_path: Path, suffix: str):
    matrix = drawn(n=5, m=1500, epochs=2)
    rows = ResponseSet(tuple(matrix.to_responses())).to_frame().sample(frac=1, random_state=1)
    source = tmp_path / f"answers.{suffix}"
    writer = rows.to_parquet if suffix == "parquet" else rows.to_csv
    writer(source, index=False)
    found = store_table(source, tmp_path / "s.parquet").matrix()

    models = [found.models.index(m) for m in matrix.models]
    items = pd.Index(found.item_ids).get_indexer(matrix.item_ids)
    np.testing.assert_array_equal(found.scores[models][:, items], matrix.scores)
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"answers.{suffix}", "s.parquet"]


def test_columns_have_the_names_that_are_told(tmp_path: Path):
    table = pd.DataFrame({"llm": ["a", "a", "b"], "question": [1, 2, 1], "correct": [0.31, 1, 0]})
    table.to_parquet(tmp_path / "t.parquet")
    names = {"model": "llm", "item": "question", "score": "correct"}
    found = store_table(tmp_path / "t.parquet", tmp_path / "s.parquet", columns=names).matrix()

    np.testing.assert_array_equal(found.scores[:, :, 0], [[0.31, 1], [0, np.nan]])
    with pytest.raises(SelectionError, match=r"no column is called 'model'.*llm, question"):
        store_table(tmp_path / "t.parquet", tmp_path / "s.parquet")
    with pytest.raises(SelectionError, match="no part of a row is called 'scroe'; did you mean"):
        store_table(tmp_path / "t.parquet", tmp_path / "s.parquet", columns={"scroe": "correct"})
    with pytest.raises(LogError, match=r"none\.parquet does not exist"):
        store_table(tmp_path / "none.parquet", tmp_path / "s2.parquet")
    with pytest.raises(LogError, match="no file was named"):
        store_table([], tmp_path / "s2.parquet")


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
@pytest.mark.parametrize("part", ["model", "item", "task", "epoch"])
def test_a_row_without_a_name_is_refused(tmp_path: Path, part: str, suffix: str):
    table = pd.DataFrame({"model": "m", "item": ["x", "y"], "task": "t", "epoch": 1, "score": 1})
    table[part] = [table[part][0], None]
    source = tmp_path / f"t.{suffix}"
    (table.to_parquet if suffix == "parquet" else table.to_csv)(source, index=False)

    with pytest.raises(DesignError, match=f"some rows have no {part}. Fill '{part}' in every row"):
        store_table(source, tmp_path / "s.parquet")


def test_an_answer_that_is_there_twice_is_refused_whatever_the_scores(tmp_path: Path):
    """Of a byte each, or of any number, though another answer is missing."""
    models, items = ["m", "m", "m", "n"], ["x", "y", "x", "x"]
    for score in (1.0, 1 / 3 + 1e-6):
        table = pd.DataFrame({"model": models, "item": items, "score": score})
        table.to_parquet(tmp_path / "t.parquet")

        with pytest.raises(DesignError, match="1 answer is of the same model, item and epoch as"):
            store_table(tmp_path / "t.parquet", tmp_path / "s.parquet")
        assert not (tmp_path / "s.parquet").exists()


def test_a_store_may_hold_no_item(tmp_path: Path):
    empty = ResponseMatrix.from_array(np.empty((2, 0)))

    assert write_store(tmp_path / "s.parquet", empty).shape == (2, 0, 1)


def test_names_that_look_like_numbers_are_texts(tmp_path: Path):
    names = ["007", "7", "1.1", "1.10", "NA", "true"]
    rows = [
        f"0{k},{name},01,{k % 2},{epoch}" for k in (1, 2) for name in names for epoch in (2, 10)
    ]
    (tmp_path / "t.csv").write_text("\n".join(["model,item,task,score,epoch", *rows]))
    store = store_table(tmp_path / "t.csv", tmp_path / "s.parquet")

    assert (store.models, set(store.tasks)) == (("01", "02"), {"01"})
    assert store.item_ids.tolist() == names
    assert store.matrix().scores.tolist() == [[[1.0, 1.0]] * 6, [[0.0, 0.0]] * 6]


def test_a_pattern_stands_for_its_files(tmp_path: Path):
    for k in range(2):
        (tmp_path / f"{k}.csv").write_text(f"model,item,score\nm,{k},{k}\n")
    store = store_table(tmp_path / "*.csv", tmp_path / "s.parquet")

    assert store.item_ids.tolist() == ["0", "1"]
    assert repr(store) == f"<ResponseStore {store.path}: 1 models, 2 items, epochs: 1>"


def test_analyses_that_need_all_answers_say_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pooled scores and tables hold all answers in memory, as long as there is room for them."""
    from evalstats_plugin import pool, table
    from evalstats_plugin.data import inputs

    store = write_store(tmp_path / "store.parquet", [drawn(3, 20, epochs=1)])
    assert table(store, rng=0).rows == table(store.matrix(), rng=0).rows
    monkeypatch.setattr(inputs, "LARGE", 50)

    for analysis in (table, pool):
        with pytest.raises(SelectionError, match=r"store\.matrix\(items, models\)"):
            analysis(store)


def test_a_folder_of_parquet_files_is_one_table(tmp_path: Path):
    """As pyarrow reads it, without a format by name."""
    folder = tmp_path / "answers"
    folder.mkdir()
    rows = [(f"m{i}", f"i{j}", float((i + j) % 2)) for i in range(2) for j in range(5)]
    frame = pd.DataFrame(rows, columns=["model", "item", "score"])
    for k, part in enumerate((frame[:4], frame[4:])):
        part.to_parquet(folder / f"{k}.parquet")
    store = store_table(folder, tmp_path / "s.parquet")

    assert store.shape[:2] == (2, 5)
    assert sorted(store.matrix().scores.ravel().tolist()) == sorted(frame.score)


@pytest.mark.parametrize("score", [0.3, -1.0, 300.0, -0.25])
def test_a_score_that_the_first_block_has_no_code_for_is_named(score: float):
    """Between two levels, or a whole number beyond all codes."""
    coding = Coding.of(np.array([0, 0.25, 1]))

    with pytest.raises(DesignError, match=f"score {score:g} is no multiple of 1/4"):
        coding.encode(np.array([0.5, np.nan, score]))
    assert coding.encode(np.array([0.5, np.nan, 1])).tolist() == [2, 0, 4]


def test_a_file_is_a_store_only_with_all_that_one_has(tmp_path: Path):
    """A folder is one by its first file."""
    table = pa.table({"a": [1]})
    pq.write_table(table, tmp_path / "other.parquet")
    pq.write_table(table.replace_schema_metadata({"b": "c"}), tmp_path / "with metadata.parquet")
    (tmp_path / "damaged.parquet").write_bytes(b"PAR1" + b"x" * 40)
    (tmp_path / "text.parquet").write_bytes(b"a,b")
    (tmp_path / "empty").mkdir()
    (tmp_path / "stores").mkdir()
    write_store(tmp_path / "stores" / "a.parquet", ResponseMatrix.from_array(np.eye(2)))
    (tmp_path / "stores" / "b.parquet").write_bytes(b"a,b")

    stores = {path.name for path in tmp_path.iterdir() if is_store(path)}
    assert stores == {"stores"}
    assert is_store(tmp_path / "stores" / "a.parquet")
    assert not is_store(tmp_path / "none")


def test_rows_longer_than_a_block_are_read(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tables, "_BLOCK", 64)
    long = ["x" * length for length in (10, 300, 63, 64, 65)]

    text = "\n".join(["name,score", *(f"{name},{k}" for k, name in enumerate(long))])
    loaded = tables.csv_table(text.encode(), "here").load(["name", "score"])
    assert loaded["name"].texts().tolist() == long
    assert loaded["score"].numbers("score", "here", "").tolist() == [0, 1, 2, 3, 4]


def test_texts_of_parquet_that_are_not_utf_8_are_damage():
    held = BytesIO()
    models = pa.array([b"\xff"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"model": models}), held)

    with pytest.raises(LogError, match=r"here cannot be read as Parquet.*may be damaged"):
        tables.parquet_table(held.getvalue(), "here").load(["model"])


def test_names_inside_objects_are_looked_for_in_the_first_hundred_records():
    for before, names in ((99, ("a", "b", "b.c")), (100, ("a", "b"))):
        records = [*[{"a": 1}] * before, {"b": {"c": 2}}]

        assert tables.record_table(records, "here").names == names
