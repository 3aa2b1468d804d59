"""Item statistics in the samples of Inspect logs, and how they are computed."""

from __future__ import annotations

import json
import shutil
import tracemalloc
import zipfile
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from given_responses import given_responses

from evalstats_plugin import annotate, compare
from evalstats_plugin.adapters.inspect_ai.archive import members as archive_members
from evalstats_plugin.adapters.inspect_ai.archive.members import rewrite
from evalstats_plugin.adapters.inspect_ai.reader import read_log
from evalstats_plugin.adapters.inspect_ai.writer import annotate_log
from evalstats_plugin.cli import main
from evalstats_plugin.data.responses import Responses, Selection, Source
from evalstats_plugin.errors import WriteError
from evalstats_plugin.hookspecs import Annotation
from evalstats_plugin.logs.reading import read
from evalstats_plugin.runtime.files import LogFile
from evalstats_plugin.scores.items import item_outcomes, item_statistics
from evalstats_plugin.scores.rows import Intervals

LOGS = Path(__file__).parents[3] / "fixtures" / "logs" / "inspect_ai" / "0.3.285"
ARITH = min(LOGS.glob("models/*_arith_*.eval"))
EPOCHS = min(LOGS.glob("models/*_arith-epochs_*.eval"))
GRADED = min(LOGS.glob("models/*_graded_*.eval"))
JSON = min(LOGS.glob("json/*.json"))

ITEMS = {
    str(i): {"evalstats_p": i / 64, "evalstats_n": 3, "evalstats_flag": "hard"}
    for i in range(1, 31)
}


def _with_items(log: Path, items: Any = ITEMS, *, columns: bool = False) -> None:
    """Write statistics of items into a log in place."""
    annotation = Annotation(Intervals(()), "1.2.3", items=items, item_columns=columns)
    annotate_log(log, annotation, log)


def _members(log: Path) -> dict[str, bytes]:
    import_module("inspect_ai._util.zipfile")
    with zipfile.ZipFile(log) as archive:
        return {n: archive.read(n) for n in archive.namelist() if n != "header.json"}


def _samples(log: Path) -> list[Any]:
    from inspect_ai.log import read_eval_log

    return read_eval_log(str(log)).samples or []


def _rounded(value: Any) -> Any:
    return round(value, 3) if isinstance(value, float) else value


@pytest.mark.needs("inspect_ai>=0.3.285")
@pytest.mark.parametrize("source", [ARITH, EPOCHS, GRADED, JSON], ids=lambda p: p.name[28:34])
@pytest.mark.parametrize("columns", [False, True])
def test_statistics_come_and_go_and_nothing_else_changes(
    source: Path, *, columns: bool, tmp_path: Path
) -> None:
    """Twice is the same; afterwards each member is as Inspect wrote it, byte for byte."""
    log = Path(shutil.copy(source, tmp_path))
    before = _samples(log)
    _with_items(log, columns=columns)
    once, samples = log.read_bytes(), _samples(log)
    _with_items(log, columns=columns)
    twice = log.read_bytes()
    annotate_log(log, None, log)

    assert once == twice
    for old, new in zip(before, samples, strict=True):
        expected = ITEMS.get(str(new.id), {})
        assert old.metadata | expected == new.metadata
        shown = expected if columns else {}
        scores = {k: v.value for k, v in (new.scores or {}).items()}
        ours = scores.pop("evalstats_item", {})
        assert {k.removeprefix("evalstats_"): _rounded(v) for k, v in shown.items()} == ours
        assert str({k: v.value for k, v in (old.scores or {}).items()}) == str(scores)
        assert (old.messages, old.events, old.store) == (new.messages, new.events, new.store)
    if source.suffix == ".eval":
        assert _members(source) == _members(log)
    else:
        assert json.loads(source.read_bytes())["samples"] == json.loads(log.read_bytes())["samples"]


@pytest.mark.needs("inspect_ai>=0.3.285")
def test_data_frames_have_them_as_columns(tmp_path: Path) -> None:
    """Numbers stay numbers."""
    from inspect_ai.analysis import samples_df

    log = Path(shutil.copy(ARITH, tmp_path))
    _with_items(log, columns=True)
    frame = samples_df(str(log)).set_index("id")

    assert 4 / 64 == frame.loc["4", "metadata_evalstats_p"]
    assert "double[pyarrow]" == str(frame.dtypes["metadata_evalstats_p"])
    assert {"p": 0.062, "n": 3, "flag": "hard"} == json.loads(
        str(frame.loc["4", "score_evalstats_item"])
    )


@pytest.mark.needs("inspect_ai>=0.3.285")
def test_columns_are_a_declared_score_after_the_others(tmp_path: Path) -> None:
    """Else Inspect would make an accuracy of it; tools that take the first score are not misled."""
    from inspect_ai.log import read_eval_log, read_eval_log_sample_summaries, recompute_metrics

    log = Path(shutil.copy(ARITH, tmp_path))
    _with_items(log, columns=True)
    full = read_eval_log(str(log))
    recompute_metrics(full)
    summary = read_eval_log_sample_summaries(str(log))[0]

    assert ["match", "evalstats_item"] == [s.name for s in full.eval.scorers or []]
    assert ["match", "evalstats_item"] == list(summary.scores or {})
    assert "evalstats_p" in summary.metadata
    assert full.results is not None
    assert ["match", "p", "n"] == [s.name for s in full.results.scores][:3]
    assert ["mean"] == list(full.results.scores[1].metrics)


@pytest.mark.needs("inspect_ai>=0.3.285")
def test_the_list_shows_the_headlines_statistics_beside_every_score(tmp_path: Path) -> None:
    """Parts of a score each have their column; statistics of other metrics stay in the metadata."""
    from inspect_ai.log import read_eval_log

    log = Path(shutil.copy(min(LOGS.glob("models/*_rubric-task_*.eval")), tmp_path))
    annotate(log, in_place=True, items="columns")
    found = read_eval_log(str(log))
    view: Any = found.eval.viewer and found.eval.viewer.task_samples_view
    names = [str(column.id).removeprefix("score__") for column in view.columns][4:]
    [sample, *_] = found.samples or []

    own = [name for name in names if not name.startswith("evalstats_item__")]
    assert ["rubric__correct", "rubric__style"] == own[:2]
    ours = [name.removeprefix("evalstats_item__") for name in names if name not in own]
    assert {"rubric:correct"} == {name.rpartition("_")[0] for name in ours}
    assert ours == list((sample.scores or {})["evalstats_item"].value)
    assert {"evalstats_rubric:correct_p", "evalstats_rubric:style_p"} <= set(sample.metadata)
    titles = [view.score_labels[name] for name in ours]
    assert len(set(titles)) == len(titles)
    assert "item p" == titles[0]


@pytest.mark.needs("inspect_ai>=0.3.285")
def test_a_view_made_by_the_tasks_author_stays(tmp_path: Path) -> None:
    """Ours is used only where there is none, and goes with the columns."""
    from inspect_ai.log import read_eval_log, write_eval_log
    from inspect_ai.viewer import TaskSamplesView, ViewerConfig

    log = Path(shutil.copy(ARITH, tmp_path))
    _with_items(log, columns=True)
    header = read_eval_log(str(log), header_only=True)
    view = header.eval.viewer and header.eval.viewer.task_samples_view
    _with_items(log)
    without = read_eval_log(str(log), header_only=True)
    theirs = ViewerConfig(task_samples_view=TaskSamplesView(name="theirs"))
    without.eval.viewer = theirs
    write_eval_log(without, str(log), header_only=True)
    _with_items(log, columns=True)

    assert isinstance(view, TaskSamplesView)
    assert "score__evalstats_item__p" in [c.id for c in view.columns or []]
    assert theirs == read_eval_log(str(log), header_only=True).eval.viewer


def test_samples_kept_in_chunks_are_refused(tmp_path: Path) -> None:
    """Inspect itself cannot read such samples back; the log stays as it is."""
    log = Path(shutil.copy(ARITH, tmp_path))
    with zipfile.ZipFile(log, "a") as archive:
        archive.writestr("samples/99_epoch_1/sample.json", b"{}")
    before = log.read_bytes()

    with pytest.raises(WriteError, match="chunks"):
        _with_items(log)
    assert before == log.read_bytes()


@pytest.mark.needs("inspect_ai>=0.3.285")
def test_odd_texts_survive(tmp_path: Path) -> None:
    """Half a surrogate pair, NaN and infinity, as models and scorers make them."""
    log = Path(shutil.copy(ARITH, tmp_path))
    members = _members(log)
    odd = json.loads(members["samples/1_epoch_1.json"])
    odd["metadata"] |= {"odd": "\ud800 €", "nan": float("nan"), "inf": float("inf")}
    duplicate = pytest.warns(UserWarning, match="Duplicate name")
    with zipfile.ZipFile(log, "a") as archive, duplicate:
        archive.writestr("samples/1_epoch_1.json", json.dumps(odd))
    _with_items(log)
    found = json.loads(_members(log)["samples/1_epoch_1.json"])["metadata"]

    assert str(odd["metadata"] | ITEMS["1"]) == str(found)


@pytest.mark.needs("inspect_ai>=0.3.285")
@pytest.mark.parametrize("layout", [{"separators": (",", ":")}, {}, {"indent": 2}, {"indent": 1}])
def test_summaries_in_parts_are_written_as_a_whole_would_be(
    layout: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also as other tools lay them out; afterwards every byte is what it was."""
    log = Path(shutil.copy(ARITH, tmp_path))
    summaries = json.loads(_members(log)["summaries.json"])
    duplicate = pytest.warns(UserWarning, match="Duplicate name")
    with zipfile.ZipFile(log, "a") as archive, duplicate:
        archive.writestr("summaries.json", json.dumps(summaries, ensure_ascii=False, **layout))
    before, found = _members(log), list[dict[str, bytes]]()
    for size in (1, 2, 1000):
        monkeypatch.setattr(archive_members, "_PART", size)
        _with_items(log, columns=True)
        found.append(_members(log))
        annotate_log(log, None, log)

        assert before == _members(log)
    assert found[0] == found[1] == found[2]
    for old, new in zip(summaries, json.loads(found[0]["summaries.json"]), strict=True):
        assert old["metadata"] | ITEMS.get(str(old["id"]), {}) == new["metadata"]


@pytest.mark.parametrize("what", ["read", "write"])
def test_memory_hardly_grows_with_the_samples(what: str, tmp_path: Path) -> None:
    """A summary of 4 kB is not kept: neither its text nor what it says but scores."""

    def peak(n: int) -> int:
        log = tmp_path / f"{n}.eval"
        with zipfile.ZipFile(log, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for name, content in {**members, "header.json": header}.items():
                if name == "summaries.json":
                    each = [{**one, "id": f"{i}", "metadata": {"text": text}} for i in range(n)]
                    archive.writestr(name, json.dumps(each, separators=(",", ":")))
                else:
                    archive.writestr(name, content)
        tracemalloc.start()
        if what == "read":
            read_log(LogFile(log), Selection())
        else:
            rewrite(log, log.with_suffix(".new"), "eval", lambda s: {**s, "epoch": 2})
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    members = _members(ARITH)
    with zipfile.ZipFile(ARITH) as archive:
        header = archive.read("header.json")
    one, text = json.loads(members["summaries.json"])[0], "word " * 800
    peak(10)

    assert peak(2000) - peak(1000) < 1500 * 1000


@pytest.mark.parametrize("statistics", [{"p": 0.5}, {"evalstats_p": float("nan")}])
def test_names_and_values_are_checked(statistics: dict[str, float], tmp_path: Path) -> None:
    """Only our own names, so that they can be taken out again; NaN breaks other readers."""
    log = Path(shutil.copy(ARITH, tmp_path))

    with pytest.raises(ValueError, match="names start with evalstats_, and numbers are finite"):
        _with_items(log, {"1": statistics})


def _responses(scores: Any, metric: str = "match", **more: Any) -> Responses:
    scores = np.asarray(scores, dtype=float)
    return given_responses(
        model="m", task="t", metric=metric, item_ids=np.arange(1, len(scores) + 1),
        scores=scores, source=Source(Path("x"), "inspect_ai"), **more,
    )  # fmt: skip


def test_classical_statistics_by_hand() -> None:
    """Models count the same whatever their epochs; takes that were not scored do not count."""
    nan = np.nan
    one = _responses([[1, 1], [1, 0], [0.5, nan]], bounds=(0.0, 1.0))
    other = _responses([[1], [0], [nan]], bounds=(0.0, 1.0))
    found = item_statistics([one, other])

    # Means 1, 1/4 and 1/2: their mean is 7/12 and their standard deviation √(7/72).
    assert ["1", "2", "3"] == list(found)
    assert [1.0, 0.25, 0.5] == [found[i]["evalstats_p"] for i in found]
    assert [3, 3, 1] == [found[i]["evalstats_n"] for i in found]
    assert [1.0, 1 / 3, 0.0] == [found[i]["evalstats_right"] for i in found]
    expected = [(x - 7 / 12) / (7 / 72) ** 0.5 for x in (1, 0.25, 0.5)]
    assert expected == pytest.approx([found[i]["evalstats_z"] for i in found])


def test_several_metrics_are_told_apart_and_no_spread_has_no_z() -> None:
    """Names hold the metric's; what is undefined is left out."""
    found = item_statistics(
        [_responses([[1], [1]]), _responses([[0], [1]], "f1", bounds=(0.0, 1.0))]
    )

    assert ["evalstats_match_p", "evalstats_match_n"] == list(found["1"])[:2]
    assert "evalstats_f1_right" not in found["1"]
    assert -1.0 == found["1"]["evalstats_f1_z"]
    assert "evalstats_match_z" not in found["1"]


def test_outcomes_against_a_baseline_by_hand() -> None:
    """Of means over epochs, by the metric's direction; items that one lacks are left out."""
    mine = _responses([[1, 1], [1, 0], [0, 0], [np.nan, np.nan]])
    theirs = replace(_responses([[1], [0], [1], [1]]), model="base")
    errors = [r.measured(higher_is_better=False) for r in (mine, theirs)]

    found = item_outcomes([mine], [theirs])

    assert {i: each["evalstats_against"] for i, each in found.items()} == {
        "1": "tied", "2": "won", "3": "lost"
    }  # fmt: skip
    assert item_outcomes([errors[0]], [errors[1]])["2"] == {"evalstats_against": "lost"}
    assert item_outcomes([theirs], [theirs]) == {}


@pytest.mark.needs("inspect_ai>=0.3.285")
def test_samples_say_whether_the_model_won_against_the_baseline(tmp_path: Path) -> None:
    """As a column with colours and a title that names the baseline; one epoch has no column."""
    from inspect_ai.log import read_eval_log

    logs = tmp_path / "logs"
    logs.mkdir()
    for log in (LOGS / "models").glob("*_arith_*.eval"):
        (logs / log.name).write_bytes(log.read_bytes())
    annotate(logs, in_place=True, items="columns", baseline="mockllm/delta")
    alpha = next(
        log for p in logs.iterdir()
        if (log := read_eval_log(str(p))).eval.model == "mockllm/alpha"
    )  # fmt: skip
    ours: Any = [(s.scores or {})["evalstats_item"] for s in alpha.samples or []]
    view: Any = alpha.eval.viewer and alpha.eval.viewer.task_samples_view
    row = next(r for r in compare(read(logs)) if {r.model_a, r.model_b} == {
        "mockllm/alpha", "mockllm/delta"})  # fmt: skip
    outcomes = [score.value["against"] for score in ours]

    assert abs(outcomes.count("won") - outcomes.count("lost")) / len(outcomes) == pytest.approx(
        abs(row.difference or 0)
    )
    assert "against: this model's answer, set against that of mockllm/delta" in ours[0].explanation
    assert view.score_labels["against"] == "vs delta"
    assert view.score_color_scales["against"]["lost"] == "bad"
    assert "epoch" not in [column.id for column in view.columns]


@pytest.mark.needs("inspect_ai>=0.3.285")
def test_the_command_line_writes_items_and_reading_sees_no_new_metric(tmp_path: Path) -> None:
    """Statistics over all models beside each item; the scores are what they were."""
    logs = tmp_path / "logs"
    logs.mkdir()
    for log in (LOGS / "models").glob("*_arith_*.eval"):
        (logs / log.name).write_bytes(log.read_bytes())
    before = [(r.model, r.task, r.metric, r.scores.tolist()) for r in read(logs)]
    done = CliRunner().invoke(main, ["annotate", str(logs), "--in-place", "--items", "columns"])

    assert 0 == done.exit_code, done.output
    assert before == [(r.model, r.task, r.metric, r.scores.tolist()) for r in read(logs)]
