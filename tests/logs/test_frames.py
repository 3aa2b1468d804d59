"""DataFrames and paths: every public function takes what people have at hand."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import evalstats_plugin as es
from evalstats_plugin.data.responses import Selection
from evalstats_plugin.errors import DesignError, LogError, SelectionError
from evalstats_plugin.logs.memory import _flat_names, rows_of_matrix, sorted_out
from evalstats_plugin.plugins import load_plugins


@pytest.fixture(scope="module")
def tidy() -> pd.DataFrame:
    """Two models on two tasks."""
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        [
            (model, task, f"q{i}", float(rng.random() < share))
            for model, share in (("a", 0.8), ("b", 0.6))
            for task in ("x", "y")
            for i in range(40)
        ],
        columns=["model", "task", "question_id", "score"],
    )


def test_a_frame_is_read_as_the_same_table_in_a_file(tidy: pd.DataFrame, tmp_path: Path) -> None:
    """All scores, in the same order."""
    file = tmp_path / "scores.csv"
    tidy.to_csv(file, index=False)
    from_file = es.read(file, task="x")
    from_frame = es.read(tidy, task="x")

    assert "<ResponseSet: 2 models, 1 task, 80 answers>" == repr(from_frame)
    for one, other in zip(from_file, from_frame, strict=True):
        assert (one.model, one.task, one.metric) == (other.model, other.task, other.metric)
        np.testing.assert_array_equal(one.item_ids, other.item_ids)
        np.testing.assert_array_equal(one.scores, other.scores)


def test_a_matrix_has_its_names_in_the_index(tidy: pd.DataFrame) -> None:
    """With or without a name of the index."""
    x = tidy[tidy["task"] == "x"]
    wide = x.pivot_table(index="model", columns="question_id", values="score")
    found = es.read(wide, wide="models")
    nameless = es.read(wide.rename_axis(index=None), wide="models")

    assert ["a", "b"] == [r.model for r in found] == [r.model for r in nameless]
    expected = es.compare(es.read(tidy, task="x"))[0].difference
    assert expected == es.compare(found)[0].difference == es.compare(nameless)[0].difference


ANALYSES = {
    "intervals": lambda scores: es.intervals(scores, rng=0),
    "compare": lambda scores: es.compare(scores, rng=0),
    "compare_items": lambda scores: es.compare_items(scores, "a", "b"),
    "gate": lambda scores: es.gate(scores, baseline="b", rng=0),
    "power": lambda scores: es.power(scores, power=0.8),
    "rank_sets": lambda scores: es.comparisons.rank_sets(scores, rng=0),
    "table": lambda scores: es.table(scores, rng=0),
    "variance_parts": es.scores.variance_parts,
    "fit_irt": lambda scores: es.fit_irt(scores, "rasch").ability.tolist(),
    "pool": lambda scores: es.pool(
        scores, "per-task", rng=0, options=es.hierarchical.HierarchicalOptions(draws=50)
    ),
}


@pytest.mark.needs("torch")
@pytest.mark.parametrize("analysis", ANALYSES)
def test_every_analysis_takes_what_people_have_at_hand(
    analysis: str, tidy: pd.DataFrame, tmp_path: Path
) -> None:
    """What `read` gives, a table of answers, a path, a matrix, and a matrix turned round."""
    x = tidy[tidy["task"] == "x"].assign(task="DataFrame")
    x.to_csv(tmp_path / "scores.csv", index=False)
    wide = x.pivot_table(index="model", columns="question_id", values="score")
    wide = wide[x["question_id"][:40]]
    forms = (es.read(x), x, tmp_path / "scores.csv", wide, wide.T)
    found = [[_figures(row) for row in ANALYSES[analysis](scores)] for scores in forms]

    assert found[0]
    assert found[1:] == [found[0]] * 4


def _figures(row: Any) -> Any:
    names = ("model", "item", "estimate", "difference", "variance", "decision")
    return row if isinstance(row, float) else [getattr(row, name, None) for name in names]


def test_a_frame_is_exported_like_what_read_gives(tidy: pd.DataFrame, tmp_path: Path) -> None:
    """The same file."""
    written = [
        es.export(each, tmp_path / f"{i}.tsv").paths[0]
        for i, each in enumerate((tidy, es.read(tidy)))
    ]
    assert written[0].read_text() == written[1].read_text()


def test_a_frame_goes_to_another_process_with_its_scores(tidy: pd.DataFrame) -> None:
    """There is no file to open again there."""
    (table,) = sorted_out([tidy], Selection(), load_plugins()).tables
    file = pickle.loads(pickle.dumps(table))  # noqa: S301 - our own

    assert file.head.startswith(b"PAR1")


def test_other_names_of_columns_do_not_hide_a_wrong_task(tidy: pd.DataFrame) -> None:
    """The message is about the task."""
    renamed = tidy.rename(columns={"score": "points"})
    with pytest.raises(SelectionError, match="no task in the logs is called 'z'; there are: x, y"):
        es.read(renamed, columns={"score": "points"}, task="z")


def test_what_cannot_be_read_is_said(tidy: pd.DataFrame) -> None:
    """The messages of tables in files."""
    with pytest.raises(SelectionError, match="no task in the logs is called 'z'; there are: x, y"):
        es.read(tidy, task="z")
    with pytest.raises(DesignError, match="score \\(score\\) is 'good' in row 1"):
        es.read(tidy.assign(score="good"))
    with pytest.raises(LogError, match="the DataFrame cannot be read as a table"):
        es.read(tidy.assign(score=[{"a": 1}, 2.0] * 80))
    for odd in (tidy.assign(score=1j), tidy.assign(score=2**70), tidy.rename_axis("model")):
        with pytest.raises(LogError, match="the DataFrame cannot be read as a table"):
            es.read(odd)


def test_notebooks_show_rows_and_notes_without_markup_of_logs(tidy: pd.DataFrame) -> None:
    """A table, and the names in it as text."""
    own = tidy[tidy["model"] == "a"].assign(model="<script>")
    shown = es.intervals(own)._repr_html_()

    assert shown.count("<tr") >= 3
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown


@pytest.mark.parametrize(
    ("index", "columns", "rows"),
    [
        ("model", None, "models"), ("Model_Name", None, "models"), (None, "item", "models"),
        ("x", "Question", "models"), ("item", None, "items"), (None, "LLM model", ""),
        (None, "models", "items"), ("doc_id", "y", "items"), (None, None, ""), ("x", "y", ""),
    ],
)  # fmt: skip
def test_names_of_an_index_tell_what_its_rows_are(
    index: str | None, columns: str | None, rows: str
) -> None:
    """Of a matrix of numbers without repeated names alone."""
    frame = pd.DataFrame(np.eye(2), index=["a", "b"], columns=["1", "2"])
    frame = frame.rename_axis(index=index, columns=columns)
    twice, texts = frame.set_axis(["a", "a"]).rename_axis(index), frame.astype(str)
    nested = pd.concat({"t": frame})

    assert rows_of_matrix([frame, None]) == rows
    assert {rows_of_matrix([odd]) for odd in (twice, texts, nested, "a", np.eye(2))} == {""}
    assert rows_of_matrix([]) == ""


def test_columns_that_occur_again_are_epochs_of_matrices() -> None:
    """Those of two levels too; of other tables every name is as it is."""
    levels = [("q1", 0), ("q1", 1), ("q2", ""), 7]

    assert _flat_names(levels, numbered=False) == ["q1.0", "q1.1", "q2", "7"]
    assert _flat_names(["a", "b", "a"], numbered=True) == ["a.0", "b", "a.1"]
    assert _flat_names(["a", "b", "a"], numbered=False) == ["a", "b", "a"]
    assert _flat_names(["a", "b"], numbered=True) == ["a", "b"]


def test_things_in_lists_are_read_as_what_each_is(tidy: pd.DataFrame, tmp_path: Path) -> None:
    """Records together, numbers together, files by the name that they have."""
    file = tmp_path / "scores.csv"
    tidy.to_csv(file, index=False)
    info = SimpleNamespace(name=str(file), size=1)
    records = tidy.to_dict(orient="records")
    plugins, asked = load_plugins(), Selection()
    held = sorted_out([[info, str(file)], tidy, records, iter([[1, 0], [0.5, 1]])], asked, plugins)

    assert held.places == [str(file)] * 2
    assert [str(table.path) for table in held.tables] == ["DataFrame", "records.jsonl 2"]
    assert [r.scores.tolist() for r in held.responses] == [[[1], [0]], [[0.5], [1]]]
    assert [r.model for r in es.read([[1, 0, 1]], model_name="mine")] == ["mine"]
    (one,) = es.read([1, 0, 1])
    assert one.scores.shape == (3, 1)
    with pytest.raises(TypeError, match=r"builtins\.int cannot be read"):
        es.read([1, "a"])
