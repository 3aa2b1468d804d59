"""Matrices of models and items: read where they are announced, and only there."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from evalstats_plugin import read
from evalstats_plugin.errors import DesignError, LogError, SelectionError

SCORES = {"A": [1.0, 0.0, np.nan], "B": [0.5, 1.0, 0.0]}
MODELS = "{head},q1,q2,q3\nA,1,0,NA\nB,50%,yes,false\n"
ITEMS = "{head},A,B\nq1,1,0.5\nq2,0,1\nq3,,0\n"


def _write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "sums.csv"
    path.write_text(text)
    return path


@pytest.mark.parametrize("head", ["", "model", "Unnamed: 0", "LLM"])
def test_rows_of_models(tmp_path: Path, head: str) -> None:
    """The names are in the column of that name, or in the first, which often has none."""
    found = read(_write(tmp_path, MODELS.format(head=head)), wide="models")

    assert [(r.model, r.task, r.metric) for r in found] == [
        ("A", "sums", "score"), ("B", "sums", "score"),
    ]  # fmt: skip
    for r in found:
        assert r.item_ids.tolist() == ["q1", "q2", "q3"]
        np.testing.assert_array_equal(r.scores[:, 0], SCORES[r.model])


@pytest.mark.parametrize("head", ["", "question_id"])
def test_rows_of_items(tmp_path: Path, head: str) -> None:
    """The transpose gives the same."""
    found = read(_write(tmp_path, ITEMS.format(head=head)), wide="items")

    for r in found:
        assert r.item_ids.tolist() == ["q1", "q2", "q3"]
        np.testing.assert_array_equal(r.scores[:, 0], SCORES[r.model])


def test_the_column_of_names_may_be_anywhere(tmp_path: Path) -> None:
    """If the caller names it."""
    path = _write(tmp_path, "q1,who,q2\n1,A,0\n0,B,1\n")
    found = read(path, wide="models", columns={"model": "who"})

    assert {r.model: r.scores[:, 0].tolist() for r in found} == {"A": [1, 0], "B": [0, 1]}


@pytest.mark.parametrize("head", ["", "model"])
def test_many_items_make_a_long_heading(tmp_path: Path, head: str) -> None:
    """Longer than what is looked at to tell a table by."""
    names = [f"question_{j:091}" for j in range(1000)]
    path = _write(tmp_path, f"{head},{','.join(names)}\nA,{','.join('01' * 500)}\n")
    assert path.stat().st_size > 1 << 16
    [r] = read(path, wide="models")

    assert r.item_ids.tolist() == names
    assert r.scores.sum() == 500


def test_a_matrix_that_was_not_announced_is_refused(tmp_path: Path) -> None:
    """A guess would be right most of the time."""
    with pytest.raises(SelectionError, match="If the table is a matrix, add --wide"):
        read(_write(tmp_path, MODELS.format(head="")))


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        ("model,q1\nA,1\nA,0\n", {}, "rows 1 and 2 are both of model 'A'"),
        ("model,q1\nA,1\n,0\n", {}, "column 'model' is empty in row 2"),
        ("model,q1\nA,x\n", {}, r"score \(q1\) is 'x' in row 1"),
        ("model,q1\n", {}, "a heading and no rows"),
        ("model\nA\n", {}, "one column"),
        ("model,q1\nA,1\n", {"score": "q1"}, "has no column score=q1.*model=COLUMN"),
        ("model,q1\nA,1\n", {"model": "modl"}, "no column 'modl'; did you mean model"),
    ],
)
def test_a_broken_matrix_is_refused(
    tmp_path: Path, text: str, columns: dict[str, str], message: str
) -> None:
    """With the place and the remedy."""
    with pytest.raises((DesignError, SelectionError, LogError), match=message):
        read(_write(tmp_path, text), wide="models", columns=columns)


def test_a_matrix_that_seems_to_lie_the_other_way_is_noted(tmp_path: Path) -> None:
    """Rows that are called questions are read as models all the same: it was asked for."""
    [first, *_] = read(_write(tmp_path, "Question,A,B\nq1,1,0\nq2,1,1\n"), wide="models")
    [right, *_] = read(_write(tmp_path, "Question,A,B\nq1,1,0\nq2,1,1\n"), wide="items")

    assert first.model == "q1"
    assert any("--wide items if the rows are items" in note for note in first.notes)
    assert right.model == "A"
    assert not right.notes


def test_a_matrix_may_have_a_column_of_tasks(tmp_path: Path) -> None:
    """Each task is a matrix of its own, whose items may have the names of another's."""
    file = tmp_path / "both.csv"
    file.write_text("task,item,a,b\nt,q0,1,0\nt,q1,1,1\nu,q0,0,0\nu,q1,0,1\n")
    found = {(r.model, r.task): r.scores.ravel().tolist() for r in read(file, wide="items")}
    some = read(file, wide="items", task="u")

    expected = {("a", "t"): [1, 1], ("b", "t"): [0, 1], ("a", "u"): [0, 0], ("b", "u"): [0, 1]}
    assert expected == found
    assert {"u"} == {r.task for r in some}
    file.write_text(file.read_text() + "u,q1,1,1\n")
    with pytest.raises(DesignError, match="are both of item 'q1'"):
        read(file, wide="items")


def test_packed_matrices_are_read_as_others(tmp_path: Path) -> None:
    """The heading was looked for in the packed bytes: scores of the first item became names."""
    text = ",q1,q2,q3\nA,0.25,0,1\nB,0.75,1,0\n"
    path = tmp_path / "sums.csv.gz"
    path.write_bytes(gzip.compress(text.encode()))

    for wide in (read(path, wide="models"), read(_write(tmp_path, text), wide="models")):
        assert [("A", 3), ("B", 3)] == [(r.model, len(r.item_ids)) for r in wide]
    with pytest.raises(SelectionError, match="There are: model, q1"):
        read(path)
