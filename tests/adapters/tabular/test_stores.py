"""Response stores among logs, and on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from evalstats_plugin import compare, export, read
from evalstats_plugin.adapters.tabular import reader
from evalstats_plugin.cli import main
from evalstats_plugin.data import store as store_module
from evalstats_plugin.data.importing import write_store
from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.data.store import ResponseStore
from evalstats_plugin.errors import LogError, SelectionError


@pytest.fixture
def matrix() -> ResponseMatrix:
    rng = np.random.default_rng(0)
    scores = (rng.random((3, 40, 2)) < 0.6).astype(float)
    scores[1, 4] = np.nan
    tasks = [("math", "code")[j % 2] for j in range(40)]
    return ResponseMatrix.from_array(scores, tasks=tasks, clusters=[j // 8 for j in range(40)])


@pytest.fixture
def store(tmp_path: Path, matrix: ResponseMatrix) -> ResponseStore:
    return write_store(tmp_path / "s.parquet", matrix)


def run(*args: str | Path) -> tuple[int, str, str]:
    done = CliRunner().invoke(main, ["--no-config", *map(str, args)])
    return done.exit_code, done.stdout, done.stderr


def test_a_store_is_read_as_what_was_written(matrix: ResponseMatrix, store: ResponseStore):
    found = {(r.model, r.task): r for r in read(store.path)}
    for r in matrix.to_responses():
        same = found.pop((r.model, r.task))
        np.testing.assert_array_equal(same.scores, r.scores)
        np.testing.assert_array_equal(same.item_ids, r.item_ids)
        np.testing.assert_array_equal(same.clusters, r.clusters)
        assert same.source.path == store.path
    assert not found
    assert {r.task for r in read(store.path, task="math")} == {"math"}


def test_more_answers_than_are_read_at_once_are_refused(
    store: ResponseStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(reader, "LARGE", 239)
    with pytest.raises(
        LogError, match=r"holds 240 answers; at most 239 are read at once.* --baseline"
    ):
        read(store.path)
    assert len(read(store.path, task="math")) == 3
    code, _, message = run("report", store.path, "--task", "mth")
    assert code == 2
    assert "did you mean math?" in message
    code, shown, message = run("irt", "fit", store.path)
    assert (code, shown) == (2, "")
    assert message.startswith("error: ")
    assert "holds 240 answers" in message


@pytest.mark.parametrize("large", [True, False])
def test_compare_leaves_a_large_store_on_disk(
    matrix: ResponseMatrix, store: ResponseStore, monkeypatch: pytest.MonkeyPatch, *, large: bool
):
    if large:
        monkeypatch.setattr(reader, "LARGE", 239)
        monkeypatch.setattr(store_module, "LARGE", 239)
    code, shown, _ = run("compare", store.path, "--baseline", "model_1", "--format", "json")
    rows = json.loads(shown)["results"]
    expected = compare(matrix, baseline="model_1", overall=not large, rng=0)

    assert code == 0
    assert [r["low"] for r in rows] == pytest.approx([r.low for r in expected], abs=1e-12)
    for given in (("--task", "math"), ("--design", "tasks")):
        code, _, message = run("compare", store.path, *given)
        assert code == (2 if large else 0)
        assert message.startswith("error: ") is large


def test_a_store_in_several_files_is_compared_as_one(tmp_path: Path, matrix: ResponseMatrix):
    for k, block in enumerate(ResponseStore.blocks(write_store(tmp_path / "s", matrix), 15)):
        (tmp_path / "parts").mkdir(exist_ok=True)
        write_store(tmp_path / "parts" / f"{k}.parquet", block)
    code, shown, _ = run("compare", tmp_path / "parts", "--format", "json", "--seed", "0")
    expected = compare(matrix, rng=0)

    assert code == 0
    assert [r["difference"] for r in json.loads(shown)["results"]] == pytest.approx(
        [r.difference for r in expected], abs=1e-12
    )


@pytest.mark.needs("torch")
@pytest.mark.parametrize("size", [15, 20])
def test_a_folder_of_files_is_read_as_the_one_store(tmp_path: Path, size: int):
    scores = np.random.default_rng(0).integers(0, 2, (3, 40))
    matrix = ResponseMatrix.from_array(scores, tasks=["a"] * 20 + ["b"] * 20)
    whole = write_store(tmp_path / "whole.parquet", matrix)
    (tmp_path / "logs" / "parts").mkdir(parents=True)
    for k, block in enumerate(whole.blocks(size)):
        write_store(tmp_path / "logs" / "parts" / f"{k}.parquet", block)
    found = read(tmp_path / "logs")

    assert [(r.model, r.task) for r in found] == [(r.model, r.task) for r in read(whole.path)]
    for one, other in zip(found, read(whole.path), strict=True):
        np.testing.assert_array_equal(one.scores, other.scores)
    for command in (("report",), ("irt", "fit"), ("compare",)):
        folder = run(*command, tmp_path / "logs" / "parts", "--task", "b")
        assert folder == run(*command, whole.path, "--task", "b")
        assert folder[0] == 0


@pytest.mark.parametrize("damaged", ["0", "1"])
def test_a_folder_is_not_read_without_its_damaged_file(
    tmp_path: Path, store: ResponseStore, damaged: str
):
    for k, block in enumerate(store.blocks(20)):
        write_store(tmp_path / "parts" / f"{k}.parquet", block)
    (tmp_path / "parts" / f"{damaged}.parquet").write_bytes(b"PAR1")
    for command in ("report", "compare"):
        code, shown, message = run(command, tmp_path / "parts")
        assert (code, shown) == (2, "")
        assert f"{damaged}.parquet cannot be read as a response store" in message


def test_other_parquet_beside_a_store_is_read_or_named(tmp_path: Path, store: ResponseStore):
    """Beside a store in one file a table is a log; one in several files is all of its folder."""
    table = "model,item,score\nm,1,1\nm,2,0\n"
    (tmp_path / "table.csv").write_text(table)
    export(read(tmp_path / "table.csv"), tmp_path / "f" / "table.parquet")
    assert {r.model for r in read(tmp_path / "f")} == {"m"}
    one, other = store.blocks(20)
    write_store(tmp_path / "f" / "0.parquet", one)
    assert {r.model for r in read(tmp_path / "f")} == {"m", *store.models}
    write_store(tmp_path / "f" / "1.parquet", other)
    with pytest.raises(LogError, match=r"f holds a response store in several files, and table\.pa"):
        read(tmp_path / "f")
    (tmp_path / "f" / "table.parquet").unlink()
    assert {r.model for r in read(tmp_path / "f")} == {*store.models}


def test_columns_of_a_store_are_not_named(store: ResponseStore):
    with pytest.raises(SelectionError, match="its columns hold: leave columns"):
        read(store.path, columns={"score": "x"})
