"""Matrices whose items were answered several times: epochs in names, headings and levels."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import pytest

from evalstats_plugin import read
from evalstats_plugin.errors import DesignError, SelectionError

DATA = Path(__file__).parents[3] / "fixtures" / "data" / "no_clt"
AIME = DATA / "no_clt_matharena_aimeII_15x4.csv"
SCORES = {"A": [[1, 0], [1, 1]], "B": [[0, 0], [1, 0]]}


def test_aime_is_15_problems_of_4_epochs() -> None:
    """Rows 1, 1.1, 1.2, 1.3, as pandas wrote repeated names; a note says so."""
    found = read(AIME, wide="items")
    table = pd.read_csv(AIME)

    assert {r.scores.shape for r in found} == {(15, 4)}
    assert found.responses[0].item_ids.tolist() == [*range(1, 16)]
    assert found.responses[0].notes == ("names such as '1.1' are read as 15 items × 4 epochs",)
    for r in found:
        np.testing.assert_array_equal(r.scores.ravel(), table[r.model])


def test_an_item_of_several_epochs_needs_a_name(tmp_path: Path) -> None:
    """The epoch alone is none."""
    path = tmp_path / "sums.csv"
    path.write_text("item,epoch,A,B\nq1,1,1,0\n,2,0,0\n")

    with pytest.raises(DesignError, match="is empty in row 2"):
        read(path, wide="items")


@pytest.mark.parametrize(
    ("text", "wide"),
    [
        ("model,q1.1,q1.2,q2.1,q2.2\nA,1,0,1,1\nB,0,0,1,0\n", "models"),
        (",q1.0,q1.1,q2.0,q2.1\nA,1,0,1,1\nB,0,0,1,0\n", "models"),
        ("model,q1,q2,q1.1,q2.1\nA,1,1,0,1\nB,0,1,0,0\n", "models"),
        ("model,q1,q1,q2,q2\nA,1,0,1,1\nB,0,0,1,0\n", "models"),
        ("model,q1,q1,q2,q2\n\nA,1,0,1,1\nB,0,0,1,0\n", "models"),
        (",q1,q1,q2,q2\nA,1,0,1,1\nB,0,0,1,0\n", "models"),
        ("model,q1.1,q1.2,q2.1,q2.2,,\nA,1,0,1,1,,\nB,0,0,1,0,,\n", "models"),
        ("item,q1,q1,q2,q2\nepoch,1,2,1,2\nmodel,,,,\nA,1,0,1,1\nB,0,0,1,0\n", "models"),
        ("item;q1;q2;q1;q2\nepoch;0;0;1;1\nA;1;1;0;1\nB;0;1;0;0\n", "models"),
        ("item,A,B\nq1.1,1,0\nq1.2,0,0\nq2.1,1,1\nq2.2,1,0\n", "items"),
        ("item,epoch,A,B\nq1,1,1,0\nq1,2,0,0\nq2,1,1,1\nq2,2,1,0\n", "items"),
    ],
)
def test_every_layout_of_epochs_is_the_same_matrix(
    tmp_path: Path, text: str, wide: Literal["models", "items"]
) -> None:
    """Numbers from 0 or 1, bare first epochs, repeated names, two headings, a column."""
    path = tmp_path / "sums.csv"
    path.write_text(text)

    found = read(path, wide=wide)

    assert {r.model: r.scores.tolist() for r in found} == SCORES
    assert all("read as 2 items × 2 epochs" in note for r in found for note in r.notes)


@pytest.mark.parametrize(
    "names", ["1.1,1.2,1.3,2.1", "v.1,v.2,v.3,v.4", "a.1,a.3,b.1,b.3", "q1,q2,q3,q4", "a.1,a.2,b,c"]
)
def test_other_names_with_points_are_items(tmp_path: Path, names: str) -> None:
    """One item alone, gaps, or items of unlike numbers of epochs; the last with a note."""
    path = tmp_path / "sums.csv"
    path.write_text(f"model,{names}\nA,1,0,1,1\n")
    [r] = read(path, wide="models")

    assert r.item_ids.astype(str).tolist() == names.split(",")
    assert ["would have 1 to 3" in note for note in r.notes] == [True] * (names[:3] == "1.1")


def test_columns_of_texts_are_left_out(tmp_path: Path) -> None:
    """A reference answer beside the scores; a wrong cell among scores is still an error."""
    [first, *_] = read(DATA / "no_clt_langchain_typewriter_n20.csv", wide="items")
    path = tmp_path / "sums.csv"
    path.write_text("model,maker,q1,q2\nA,yes,1,0\nB,Acme Ltd,1,x\nC,Acme,0,1\n")

    assert first.notes == ("no scores but texts, left out: reference output",)
    with pytest.raises(DesignError, match=r"score \(q2\) is 'x' in row 2"):
        read(path, wide="models")
    path.write_text(path.read_text().replace("x", ""))
    assert [r.item_ids.tolist() for r in read(path, wide="models")] == [["q1", "q2"]] * 3


def test_a_folder_of_matrices_is_read_where_they_are_announced(tmp_path: Path) -> None:
    """And explained as each of them is where they are not."""
    for name in ("sums", "words"):
        (tmp_path / f"{name}.csv").write_text("model,q1,q2\nA,1,0\nB,0,1\n")
    (tmp_path / "README.md").write_text("Two matrices.\n")

    assert {r.task for r in read(tmp_path, wide="models")} == {"sums", "words"}
    with pytest.raises(SelectionError, match=r"sums\.csv: no column.s name says .* add --wide"):
        read(tmp_path)


def test_frames_have_epochs_in_names_and_levels() -> None:
    """Two levels of columns, names again, and two levels of rows."""
    levels = pd.MultiIndex.from_product([["q1", "q2"], [1, 2]], names=["item", "epoch"])
    index = pd.Index(["A", "B"], name="model")
    frame = pd.DataFrame([[1, 0, 1, 1], [0, 0, 1, 0]], index=index, columns=levels)
    again = frame.set_axis(["q1", "q1", "q2", "q2"], axis=1)

    for each, wide in ((frame, "models"), (again, "models"), (frame.T, "items")):
        matrix = read(each, wide=wide).matrix()
        assert dict(zip(matrix.models, matrix.scores.tolist(), strict=True)) == SCORES
