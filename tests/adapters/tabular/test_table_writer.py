"""Round trips: what harnesses logged, written as tables and read again."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from given_responses import given_responses

from evalstats_plugin import ResponseMatrix, Responses, Source, export, read
from evalstats_plugin.data.runs import ResponseSet, one_of_each
from evalstats_plugin.errors import LogError, SelectionError, WriteError

LOGS = Path(__file__).parents[3] / "fixtures" / "logs"
LM_EVAL = LOGS / "lm_eval" / "0.4.13" / "out"
REPEATS = LOGS / "lm_eval" / "0.5.0.dev1"
INSPECT = LOGS / "inspect_ai" / "0.3.285"

# What a table has a column for; a Parquet file of ours has the rest in its metadata.
TABLES = ("model", "task", "metric", "higher_is_better", "bounds", "aggregation")
PARQUET = (
    *TABLES, "settings", "groups", "logged", "logged_std_error", "logged_n", "population", "notes",
)  # fmt: skip
ARRAYS = ("item_ids", "clusters", "item_hashes", "weights")


def _key(r: Responses) -> tuple[str, str, str]:
    return r.model, r.task, r.metric


def _values(r: Responses, names: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {name: getattr(r, name) for name in names}
    for name in ARRAYS:
        value = getattr(r, name)
        found[name] = None if value is None else value.astype(str).tolist()
    # As texts, in which NaN is equal to itself.
    return {name: repr(value) for name, value in found.items()}


def _check_same(before: Responses, after: Responses, names: tuple[str, ...]) -> None:
    assert _values(before, names) == _values(after, names)
    np.testing.assert_array_equal(before.scores, after.scores)
    assert before.item_ids.dtype.kind == after.item_ids.dtype.kind


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl"])
def test_a_table_holds_every_score(logged: ResponseSet, form: str, tmp_path: Path) -> None:
    """Epochs, missing and infinite scores, hashes, clusters, weights, to the last digit."""
    done = export(logged, tmp_path / f"t.{form}")
    after = {_key(r): r for r in read(*done.paths)}
    held = [r for r in one_of_each(logged.responses) if r.scores.size]

    assert {_key(r) for r in held} == set(after)
    for r in held:
        _check_same(r, after[_key(r)], TABLES)


def test_a_parquet_file_holds_all_but_labels_and_texts(logged: ResponseSet, tmp_path: Path) -> None:
    """Logged values, groups, settings and notes, and results without items, too."""
    done = export(logged, tmp_path / "t.parquet")
    after = {_key(r): r for r in read(*done.paths)}
    every = one_of_each(logged.responses)

    assert [_key(r) for r in every] == list(after)
    for r in every:
        again = after[_key(r)]
        assert (again.source.when, again.source.version) == (
            r.source.when, f"{r.source.harness} {r.source.version}",
        )  # fmt: skip
        if r.pairs is None:
            _check_same(r, again, PARQUET)
    paired = any(r.pairs is not None for r in every)
    assert any("labels and texts" in note for note in done.notes) == paired


def test_what_no_format_holds_is_named(tmp_path: Path) -> None:
    """Scores of chosen items would be taken for those of a sample; and what comes of epochs."""
    adaptive = export(read(INSPECT / "adaptive"), tmp_path / "a.csv").notes
    found = read(INSPECT / "models", task="arith_epochs")
    reduced = read(INSPECT / "models", task="arith_epochs", metric="match/pass_at_2")
    epochs, alone = (
        export(r, tmp_path / f"{len(r)}{k}.csv").notes for k, r in enumerate((found, reduced))
    )

    assert "that an adaptive test chose, whose mean is not the model's: arith match" in adaptive[-1]
    assert "values of the same answers are left out: arith_epochs match/pass_at_2, " in epochs[-1]
    assert alone[-1].endswith("single ones left out: arith_epochs match/pass_at_2")


def test_results_without_items_are_not_lost_in_silence(tmp_path: Path) -> None:
    """A note names them; a file of nothing else is refused, but for Parquet."""
    found = read(LM_EVAL, task=["es_bin", "es_bleu"])
    done = export(found, tmp_path / "t.csv")
    without = read(LOGS / "lm_eval" / "0.4.13" / "out_nosamples")

    assert any("no rows (es_bin f1,none" in note for note in done.notes)
    with pytest.raises(WriteError, match="would hold no row"):
        export(without, tmp_path / "none.csv")
    export(without, tmp_path / "none.parquet")
    again = read(tmp_path / "none.parquet")
    assert [(_key(r), r.logged) for r in again] == [
        (_key(r), r.logged) for r in one_of_each(without.responses)
    ]


def test_a_matrix_in_csv_is_read_again_by_its_option(tmp_path: Path) -> None:
    """Rows are models; epochs are averaged and a note says so."""
    before = read(INSPECT / "models", task="arith_epochs", metric="match")
    done = export(before, tmp_path / "arith_epochs.csv", matrix=True)
    after = read(*done.paths, wide="models")
    with (tmp_path / "arith_epochs.csv").open(newline="") as file:
        heading = next(csv.reader(file))

    assert any("3 epochs: each cell is the mean" in note for note in done.notes)
    assert heading == ["model", *before.matrix().item_ids.tolist()]
    for r, again in zip(before, after, strict=True):
        order = np.argsort(r.item_ids.astype(str))
        mine = np.argsort(again.item_ids.astype(str))
        np.testing.assert_allclose(r.item_means[order], again.scores[mine, 0], rtol=1e-15)


def test_a_matrix_in_parquet_keeps_epochs_and_tasks(tmp_path: Path) -> None:
    """Our own file of a matrix is a log too."""
    before = read(INSPECT / "models", metric="match")
    export(before, tmp_path / "m.parquet", matrix=True)
    again = read(tmp_path / "m.parquet").matrix()

    np.testing.assert_array_equal(again.scores, ResponseMatrix.load(tmp_path / "m.parquet").scores)
    assert again.models == before.matrix().models
    assert read(tmp_path / "m.parquet", task="reading").matrix().scores.shape[1] == 50


def test_several_tasks_in_one_matrix_are_named_in_their_items(tmp_path: Path) -> None:
    """An item's id is that of its task."""
    scores = [[1, 0], [0, 1]]
    matrix = ResponseMatrix.from_array(scores, items=["q", "r"], tasks=["sums", "times"])
    done = export(matrix, tmp_path / "m.csv", matrix=True)

    assert (tmp_path / "m.csv").read_text().splitlines()[0] == '"model","sums/q","times/r"'
    assert any("2 tasks in one matrix" in note for note in done.notes)


def test_names_with_separators_and_quotes_survive(tmp_path: Path) -> None:
    """As they are in a model's label, or a text that stands for an item."""
    odd = ['say "no", twice', "line\nbreak", "ünï;cödé", "=1+1", " tab\tinside"]
    r = given_responses(
        model='m (a=1, b="x")', task="t;t", metric="acc,none",
        item_ids=np.asarray(odd), scores=np.arange(5.0)[:, None],
        source=Source(Path("x"), "test"),
    )  # fmt: skip
    for form in ("csv", "tsv", "jsonl", "parquet"):
        export(ResponseSet((r,)), tmp_path / f"t.{form}")
        [again] = read(tmp_path / f"t.{form}")
        assert _key(again) == _key(r)
        assert again.item_ids.tolist() == [text.strip() for text in odd]


def test_a_damaged_file_of_ours_is_refused(tmp_path: Path) -> None:
    """Metadata that do not fit."""
    import pyarrow.parquet as pq

    export(read(REPEATS), tmp_path / "t.parquet")
    table = pq.read_table(tmp_path / "t.parquet")
    known = json.loads(table.schema.metadata[b"evalstats_takes"])
    del known["responses"][0]["groups"]
    damaged = table.replace_schema_metadata({b"evalstats_takes": json.dumps(known)})
    pq.write_table(damaged, tmp_path / "t.parquet")

    with pytest.raises(LogError, match=r"t\.parquet is damaged"):
        read(tmp_path / "t.parquet")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("t.foo", {}, "has no ending of a known format"),
        ("t.csv", {"to": "cvs"}, "no format is called 'cvs'; did you mean csv"),
        ("t.csv", {"organization": "x"}, "no option of csv is called 'organization'"),
        ("t.csv", {"matrx": True}, "did you mean matrix"),
    ],
)
def test_what_cannot_be_exported_is_refused(
    tmp_path: Path, name: str, options: dict[str, Any], message: str
) -> None:
    """The closest format or option is named."""
    with pytest.raises(SelectionError, match=message):
        export(read(REPEATS), tmp_path / name, **options)
    with pytest.raises(WriteError, match="no responses were selected"):
        export(ResponseSet(()), tmp_path / "t.csv")


def test_py_irt_jsonl_holds_the_same_matrix(tmp_path: Path) -> None:
    """A line per model as py-irt reads it; missing answers are left out, and come back missing."""
    models = ("org/one", 'a "b"')
    before = [
        given_responses(
            model=model,
            task="quiz",
            metric="score",
            source=Source(path=tmp_path / "log", harness="table"),
            item_ids=np.array(["q1", "q2", "q3"]),
            scores=np.array([[1.0], [i], [np.nan]]),
        )
        for i, model in enumerate(models)
    ]
    before[1].scores[2] = 0.5
    done = export(before, tmp_path / "quiz.jsonlines", to="py-irt")
    lines = [json.loads(line) for line in done.paths[0].read_text().splitlines()]
    after = read(tmp_path).matrix()

    assert lines == [
        {"subject_id": "org/one", "responses": {"q1": 1, "q2": 0}},
        {"subject_id": 'a "b"', "responses": {"q1": 1, "q2": 1, "q3": 0.5}},
    ]
    assert (after.models, after.tasks.tolist()) == (models, ["quiz"] * 3)
    np.testing.assert_array_equal(after.scores, [r.scores for r in before])
    assert any("1 of 5 answers are neither 0 nor 1" in note for note in done.notes)


def test_py_irt_jsonl_is_known_by_its_content(tmp_path: Path) -> None:
    """Also with answers as texts, and a first line longer than the bytes that are looked at."""
    path = tmp_path / "answers.json"
    answers = {f"item {i}": str(i % 2) for i in range(20000)}
    path.write_text(json.dumps({"subject_id": "m", "responses": answers}) + "\n")
    [found] = read(path)

    assert found.model == "m"
    np.testing.assert_array_equal(found.scores[:, 0], np.arange(20000) % 2)


@pytest.mark.parametrize("line", ['{"subject_id": "n"}', '{"subject_id": "", "responses": {}}'])
def test_py_irt_jsonl_names_a_broken_line(line: str, tmp_path: Path) -> None:
    """By its number."""
    path = tmp_path / "answers.jsonl"
    path.write_text('{"subject_id": "m", "responses": {"q": 1}}\n' + line + "\n")

    with pytest.raises(LogError, match="line 2 lacks a model or its answers"):
        read(path)
