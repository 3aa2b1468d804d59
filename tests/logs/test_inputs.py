"""Whatever a person holds is read, and gives the same rows; what is not read is told apart."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import evalstats_plugin as es
from evalstats_plugin.data.importing import write_store
from evalstats_plugin.data.responses import Group
from evalstats_plugin.errors import DesignError, LogError, SelectionError
from evalstats_plugin.logs.exporting import _encodable
from evalstats_plugin.logs.reading import adapters, as_path
from evalstats_plugin.plugins import load_plugins

LOGS = Path(__file__).parents[2] / "fixtures" / "logs"
INSPECT = LOGS / "inspect_ai" / "0.3.285" / "models"
SOME = sorted(map(str, INSPECT.iterdir()))[:6]
"""Logs of each task, of two models on one."""
LM_EVAL = LOGS / "lm_eval" / "0.4.13" / "out"
FEW = LM_EVAL.with_name("out_limit")
"""Logs of a few items."""


def _rows(given: Any, **chosen: Any) -> list[tuple[Any, ...]]:
    rows = es.intervals(es.read(given, **chosen) if chosen else given, rng=0)
    return sorted((r.model, r.task, r.metric, r.n_items, r.estimate, r.low, r.high) for r in rows)


@pytest.fixture(scope="module")
def tidy() -> pd.DataFrame:
    """Two models on twenty items."""
    rng = np.random.default_rng(0)
    shares = {"a": 0.8, "b": 0.6}
    rows = [
        ("quiz", model, f"q{i}", float(rng.random() < share))
        for model, share in shares.items()
        for i in range(20)
    ]
    return pd.DataFrame(rows, columns=["task", "model", "item", "score"])


def _polars(tidy: pd.DataFrame) -> Any:
    from polars import from_pandas

    return from_pandas(tidy)


def _arrow(tidy: pd.DataFrame) -> Any:
    return pa.Table.from_pandas(tidy)


def _batches(tidy: pd.DataFrame) -> Any:
    return pa.RecordBatchReader.from_batches(_arrow(tidy).schema, _arrow(tidy).to_batches())


def _records(tidy: pd.DataFrame) -> Any:
    return tidy.to_dict(orient="records")


def _columns(tidy: pd.DataFrame) -> Any:
    return tidy.to_dict(orient="list")


def _generator(tidy: pd.DataFrame) -> Any:
    return (record for record in _records(tidy))


@pytest.mark.parametrize(
    "form",
    [
        pytest.param(_polars, marks=pytest.mark.needs("polars")),
        *(_arrow, _batches, _records, _columns, _generator),
    ],
    ids=lambda form: form.__name__,
)
def test_tables_of_every_library_are_the_same_table(
    tidy: pd.DataFrame, form: Callable[[pd.DataFrame], Any]
) -> None:
    assert _rows(tidy) == _rows(form(tidy))


def test_a_list_of_frames_is_read_together(tidy: pd.DataFrame) -> None:
    a, b = (tidy[tidy["model"] == name] for name in "ab")

    assert _rows(tidy) == _rows([a, b]) == _rows(es.read(a, b))


def _labelled(tidy: pd.DataFrame) -> tuple[Any, Any, Any]:
    xarray = pytest.importorskip("xarray")
    wide = tidy.pivot_table(index="model", columns="item", values="score", sort=False)
    array = xarray.DataArray(
        wide.to_numpy(), coords=[("model", list("ab")), ("item", wide.columns)]
    )
    return array, xarray.Dataset({"score": array}), wide


def test_arrays_with_names_of_their_axes_are_tables(tidy: pd.DataFrame) -> None:
    """Of xarray; each variable of a data set is a metric."""
    array, dataset, _ = _labelled(tidy)
    own = [row[0:1] + row[3:] for row in _rows(tidy)]

    assert own == [row[0:1] + row[3:] for row in _rows(array)]
    assert own == [row[0:1] + row[3:] for row in _rows(dataset)]


def test_arrays_are_matrices_of_models_and_items(tidy: pd.DataFrame) -> None:
    """Of NumPy, or lists of numbers; with one axis they are of one model."""
    wide = _labelled(tidy)[2].to_numpy()
    expected = [row[3:] for row in _rows(es.ResponseMatrix.from_array(wide))]

    assert expected == [row[3:] for row in _rows(wide)]
    assert expected == [row[3:] for row in _rows(wide.tolist())]
    assert expected[:1] == [row[3:] for row in _rows(wide[0])]
    (first, _) = es.read(np.stack([wide, wide], axis=2))
    assert (20, 2) == first.scores.shape


def test_codes_for_missing_are_left_out_of_whatever_is_read() -> None:
    """Of arrays and harnesses' logs too, to which the notes on values beyond a scale advise it."""
    scores = np.array([[1, 0, -1, 1], [99, 1, 1, 0]])
    array = es.read(scores, missing_code=[-1, 99])
    log = es.read(LM_EVAL, task="es_mc", metric="acc", missing_code=0)
    epochs = es.read(
        LOGS / "inspect_ai" / "0.3.285" / "models", task="arith_epochs", missing_code=0
    )

    assert [r.item_means.tolist() for r in array] == [
        [1, 0, pytest.approx(np.nan, nan_ok=True), 1],
        [pytest.approx(np.nan, nan_ok=True), 1, 1, 0],
    ]
    assert all("1 score of -1, 99 taken for missing" in r.notes for r in array)
    for r in (*log, *(value for own in epochs for value in (own, *own.beside, own.as_epochs))):
        assert np.nanmin(r.scores) > 0
        assert any(note.endswith(" of 0 taken for missing") for note in r.notes)


def test_codes_for_missing_are_taken_out_of_files_once(tmp_path: Path) -> None:
    """Of matrices and stores as well; each is noted once."""
    matrix = es.ResponseMatrix.from_array(np.array([[1, 0, -1, 1], [0, 1, 1, -1]]))
    matrix.save(tmp_path / "matrix.parquet")
    write_store(tmp_path / "store.parquet", matrix)
    (tmp_path / "table.csv").write_text("item,score\na,1\nb,-1\n")
    (tmp_path / "own.json").write_text(
        '{"rows": [{"id": "a", "x": 1}, {"id": "b", "x": -1}], "mean": 0}'
    )
    mapping = {"items": "rows[*]", "item": ".id", "score": ".x", "logged": {"score": "mean"}}
    [own] = es.read(tmp_path / "own.json", mapping=mapping, model_name="m", missing_code=-1)
    assert np.nan_to_num(own.item_means, nan=9).tolist() == [1, 9]
    assert not any("mismatch" in note for note in own.notes)

    for name, n_scored in (("matrix.parquet", 6), ("store.parquet", 6), ("table.csv", 1)):
        each = es.read(tmp_path / name, missing_code=-1).responses
        assert sum(np.isfinite(r.scores).sum() for r in each) == n_scored
        assert all(r.notes.count("1 score of -1 taken for missing") == 1 for r in each)


def test_a_model_without_a_name_is_called_as_asked(tidy: pd.DataFrame, tmp_path: Path) -> None:
    """That of a table, which is then named after its task, or of an array."""
    one = tidy.loc[tidy["model"] == "a", ["item", "score"]]
    one.to_csv(tmp_path / "quiz.csv", index=False)
    [table] = es.read(tmp_path / "quiz.csv", model_name="mine")
    [array] = es.read(one["score"].to_numpy(), model_name="mine")
    named = es.read(tidy, model_name="mine")

    assert (table.model, table.task, table.notes) == (
        "mine", "quiz", ("no column says the task: 'quiz' is used",),
    )  # fmt: skip
    assert array.model == "mine"
    assert {r.model for r in named} == {"a", "b"}
    with pytest.raises(SelectionError, match="model_name names one model, and the array has 2"):
        es.read(np.eye(2), model_name="mine")


def test_a_frame_of_numbers_is_no_matrix_unless_its_names_say_so() -> None:
    """Nor where columns are named, whatever its index is called."""
    frame = pd.DataFrame({"item": [1, 2, 3], "score": [1.0, 0.0, 1.0]})
    [plain] = es.read(frame)
    [named] = es.read(frame.set_index("item"), columns={"score": "score"})

    for r in (plain, named):
        assert (r.metric, r.item_ids.tolist()) == ("score", [1, 2, 3])


def test_a_field_that_some_tasks_have_makes_slices_of_these(tmp_path: Path) -> None:
    """It is no setting of the runs then, which the others would lack."""
    (tmp_path / "with.csv").write_text("model,item,score,language\nm,1,1,de\nm,2,0,en\n")
    (tmp_path / "without.csv").write_text("model,item,score\nm,1,1\nm,2,0\n")
    tagged, plain = es.read(tmp_path / "with.csv", tmp_path / "without.csv", by="language")

    assert tagged.tags is not None
    assert (tagged.tags.tolist(), plain.tags) == (["de", "en"], None)


def test_options_that_one_of_several_logs_can_use_are_no_mistake(tmp_path: Path) -> None:
    """Columns of the table among them, and a field that only its items have."""
    (tmp_path / "own.csv").write_text("qid,mark,group\n1,1,a\n2,0,a\n3,1,b\n")
    options: dict[str, Any] = {"columns": {"score": "mark"}, "cluster": "group"}
    own = es.read(tmp_path / "own.csv", LM_EVAL, **options)

    clustered = {r.source.harness for r in own if r.clusters is not None}
    assert (clustered, len({r.source.harness for r in own})) == ({"tabular"}, 2)
    for name, value in options.items():
        with pytest.raises(SelectionError, match=r"Leave them out|no item of these logs has"):
            es.read(LM_EVAL, **{name: value})


def test_votes_are_known_by_one_line_without_an_end(tmp_path: Path) -> None:
    """The message names the command that ranks them."""
    (tmp_path / "votes.csv").write_text("model_a,model_b,winner\nx,y,model_a")

    with pytest.raises(LogError, match="rank them with `evalstats-plugin rank leaderboard`"):
        es.read(tmp_path / "votes.csv")


def test_a_folder_with_the_name_of_a_log_is_none(tmp_path: Path) -> None:
    (tmp_path / "results_2026-01-01T00-00-00.json").mkdir()
    (tmp_path / "scores.csv").write_text("model,item,score\nm,1,1\n")

    assert [r.model for r in es.read(tmp_path)] == ["m"]


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("scores.json", lambda tidy: tidy.to_json(orient="records").encode()),
        ("scores.json", lambda tidy: tidy.to_json(orient="records", indent=2).encode()),
        ("scores.csv.gz", lambda tidy: gzip.compress(tidy.to_csv(index=False).encode())),
        ("scores.csv.bz2", lambda tidy: bz2.compress(tidy.to_csv(index=False).encode())),
        ("scores.tsv.xz", lambda tidy: lzma.compress(tidy.to_csv(index=False, sep="\t").encode())),
        (
            "scores.jsonl.gz",
            lambda tidy: gzip.compress(tidy.to_json(orient="records", lines=True).encode()),
        ),
    ],
)
def test_files_that_pandas_writes_are_read(
    tidy: pd.DataFrame, tmp_path: Path, name: str, write: Callable[[pd.DataFrame], bytes]
) -> None:
    file = tmp_path / name
    file.write_bytes(write(tidy))

    assert _rows(tidy) == _rows(file)


def test_a_damaged_package_is_an_error_of_that_file(tidy: pd.DataFrame, tmp_path: Path) -> None:
    file = tmp_path / "scores.csv.gz"
    file.write_bytes(gzip.compress(tidy.to_csv(index=False).encode())[:-20])

    with pytest.raises(LogError, match=r"scores\.csv\.gz cannot be unpacked"):
        es.read(file)


@pytest.mark.parametrize(
    ("letters", "scores"),
    [
        ("CIPN", [1, 0, 0.5, 0]),
        ("cI", [1, 0]),
        ("C", [1]),
        ("PF", [1, 0]),
        ("NY", [0, 1]),
        (("✓", "falsch"), [1, 0]),
    ],
)
def test_grades_are_scores(letters: Any, scores: list[float]) -> None:
    """Inspect's letters, passed and failed, and words of several languages."""
    made = [{"model": "m", "item": str(i), "score": s} for i, s in enumerate(letters)]
    (found,) = es.read(made)

    assert scores == found.scores[:, 0].tolist()


@pytest.mark.parametrize("letters", ["P", "CF", "CX"])
def test_letters_that_are_no_grades_are_refused(letters: str) -> None:
    """P alone is half right to Inspect, and passed to others."""
    made = [{"model": "m", "item": str(i), "score": s} for i, s in enumerate(letters)]

    with pytest.raises(DesignError, match=r"score \(score\) is '[PCFX]'.*a grade \(C, I, P, N\)"):
        es.read(made)


def test_results_in_memory_are_those_of_the_file() -> None:
    """What lm-eval's simple_evaluate returns, alone or in a list."""
    log = next(LM_EVAL.rglob("results_*.json"))
    results = json.loads(log.read_text())
    samples = {
        task: [json.loads(line) for line in file.read_text().splitlines()]
        for task in results["results"]
        for file in log.parent.glob(f"samples_{task}_{log.stem.removeprefix('results_')}.jsonl")
    }
    held = {**results, "samples": samples}
    expected = [row[1:] for row in _rows(es.read(log))]

    assert expected
    assert expected == [row[1:] for row in _rows(held)] == [row[1:] for row in _rows([held])]


@pytest.mark.needs("inspect_ai")
@pytest.mark.filterwarnings("ignore")
def test_inspects_own_objects_are_read() -> None:
    """Logs in memory with or without samples, listed logs, and data frames of both kinds."""
    from inspect_ai.analysis import evals_df, samples_df
    from inspect_ai.log import list_eval_logs, read_eval_log

    expected = _rows(SOME)
    listed = [log for log in list_eval_logs(str(INSPECT)) if log.name.endswith(tuple(SOME))]

    assert expected == _rows(listed)
    assert expected == _rows([read_eval_log(info) for info in listed])
    assert expected == _rows([read_eval_log(info, header_only=True) for info in listed])
    assert expected == _rows(samples_df(SOME, quiet=True))
    assert expected == _rows(evals_df(SOME, quiet=True))


@pytest.mark.needs("inspect_ai")
@pytest.mark.filterwarnings("ignore")
def test_a_data_frame_of_some_samples_gives_these_alone() -> None:
    """The log's own value is of all of them, and is left out."""
    from inspect_ai.analysis import samples_df

    frame = samples_df(str(INSPECT), quiet=True)
    some = frame[(frame["id"].astype(str) < "item-020") & (frame["epoch"] == 2)]
    found = es.read(some, task="arith_epochs", metric="match")
    every = es.read(INSPECT, task="arith_epochs", metric="match")
    (whole,) = (r for r in every if r.model == found.responses[0].model)

    first = found.responses[0]
    kept = [k for k, name in enumerate(whole.item_ids.tolist()) if name < "item-020"]
    assert len(kept) == 20
    np.testing.assert_array_equal(whole.scores[kept, 1], first.scores[:, 1])
    assert np.isnan(first.scores[:, [0, 2]]).all()
    assert first.logged is None
    assert any("as in the data frame" in note for note in first.notes)


@pytest.mark.needs("inspect_ai")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["pandas", "arrow"])
def test_samples_without_their_logs_are_read_from_their_own_columns(kind: str) -> None:
    """Grades, parts of a score and samples without one; what is lacking is named."""
    from inspect_ai.analysis import EvalModel, EvalTask, SampleScores, SampleSummary, samples_df

    columns = (*SampleSummary, *SampleScores, *EvalModel, *EvalTask)
    frame: Any = samples_df(SOME, columns=columns, quiet=True).drop(columns=["log"])
    given = frame if kind == "pandas" else pa.Table.from_pandas(frame)
    expected = {(r.model, r.task, r.metric): r for r in es.read(SOME)}
    found = {(r.model, r.task, r.metric): r for r in es.read(given)}

    assert {key for key in expected if "/" not in key[2]} <= set(found)
    assert any(":" in metric for _, _, metric in found)
    for key in expected.keys() & found:
        order = [found[key].item_ids.tolist().index(i) for i in expected[key].item_ids.tolist()]
        np.testing.assert_array_equal(expected[key].scores, found[key].scores[order])
        assert any("without its column log" in note for note in found[key].notes)
    with pytest.raises(LogError, match=r"neither the column log nor model, task_name: keep"):
        es.read(frame.drop(columns=["model", "task_name"]))


def test_paths_may_be_in_lists_and_file_addresses(tmp_path: Path) -> None:
    shutil.copytree(FEW, tmp_path / "a folder")
    place = tmp_path / "a folder"
    expected = _rows(place)

    assert expected == _rows([place]) == _rows([str(place)]) == _rows(place.as_uri())


@pytest.mark.parametrize("odd", [3, object(), None, {1, 2}, [object()], b"bytes", [None]])
@pytest.mark.parametrize(
    "call", [es.read, es.intervals, es.compare, es.table, es.fit_irt, es.pool, es.power]
)
def test_what_cannot_be_read_is_one_type_error(odd: Any, call: Callable[..., Any]) -> None:
    """It lists what can."""
    with pytest.raises(TypeError, match=r"cannot be read.*(pathlib|axes models and items)"):
        call(odd)


@pytest.mark.parametrize("given", [(), ([],)])
def test_nothing_to_read_is_said_to_be_nothing(given: tuple[Any, ...]) -> None:
    """It was a StopIteration, which says nothing and ends generators in silence."""
    with pytest.raises(LogError, match="there is nothing to read: name a log"):
        es.read(*given)


def test_arrays_of_other_things_are_refused() -> None:
    with pytest.raises(TypeError, match="an array of <U1 with 1 axes cannot be read: give numbers"):
        es.read(np.array(["a"]))
    with pytest.raises(TypeError, match="with 4 axes"):
        es.read(np.zeros((1, 1, 1, 1)))


def test_tasks_and_metrics_of_arrays_are_selected() -> None:
    with pytest.raises(SelectionError, match="of no task and metric that has a name"):
        es.read(np.eye(3), task="other")


def test_a_run_of_a_part_of_a_task_is_noted() -> None:
    """Harnesses take the first items."""
    found = es.read(FEW, task="es_mc")

    (note,) = (note for note in found.notes if note.startswith("only some items were run"))
    assert note.endswith("(es_mc: 7 of 60)")


def test_a_path_of_any_kind_is_read() -> None:
    """As `open` reads it: whatever has an address in the file system."""

    class Place:
        def __fspath__(self) -> str:
            return str(FEW)

        def __str__(self) -> str:
            return "a place"

    assert _rows(Place()) == _rows(FEW)


def test_addresses_of_files_are_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    """On Windows the slash before the drive is none of them."""
    assert as_path("file:///logs/a%20b") == Path("/logs/a b")
    monkeypatch.setattr(sys, "platform", "win32")
    assert as_path("file:///C:/logs") == Path("C:/logs")


def test_messages_name_the_adapters_that_are_there():
    """Or say that there are none."""
    plugins = load_plugins()

    assert "lm_eval" in adapters(plugins)
    assert adapters(plugins, "no_such_hook") == "none is installed"


def test_halves_of_surrogate_pairs_are_escaped_wherever_they_stand():
    """In names of groups too, and in arrays of any shape; what has none stays the same."""
    group = Group("g\ud800", 0, "micro", 1)
    array = np.array([["a\udc00", "b"]])

    assert _encodable(group).name == "g\\ud800"
    assert _encodable(array).tolist() == [["a\\udc00", "b"]]
    assert _encodable((group, 1.5))[1] == 1.5
    plain = np.array(["ä", "中"])
    assert _encodable(plain) is plain
