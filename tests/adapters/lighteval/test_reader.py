"""lighteval: results and details made from its published format, in its three layouts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evalstats_plugin import intervals, read
from evalstats_plugin.adapters.lighteval.reader import _names, find_logs
from evalstats_plugin.errors import LogError
from evalstats_plugin.logs.reading import check
from evalstats_plugin.runtime.files import LogFile

N = 20
STAMP = "2025-03-04T05-06-07.890123"
TASKS = ("lighteval|gsm8k|5", "leaderboard|arc:challenge|0")
SCORES = {
    task: {
        "em": (np.arange(N) % (k + 3) == 0) * 1.0,
        "f1": np.linspace(0, 1, N) ** (k + 1),
    }
    for k, task in enumerate(TASKS)
}


def _results() -> dict[str, Any]:
    results: dict[str, Any] = {
        task: {
            name: value
            for metric, scores in metrics.items()
            for name, value in (
                (metric, float(scores.mean())),
                (f"{metric}_stderr", float(scores.std(ddof=1) / N**0.5)),
            )
        }
        for task, metrics in SCORES.items()
    }
    # Of standard errors too, which are then no standard errors.
    results["all"] = {
        metric: float(np.mean([results[task][metric] for task in TASKS]))
        for metric in ("em", "f1", "em_stderr", "f1_stderr")
    }
    metrics = [
        {"metric_name": name, "higher_is_better": True, "corpus_level_fn": "mean"}
        for name in ("em", "f1")
    ]
    sizes = {"original_num_docs": 1319, "effective_num_docs": N}
    return {
        "config_general": {
            "lighteval_sha": "203045a8", "max_samples": N, "model_name": "acme/tiny",
            "model_sha": "607a30d783dfa663", "model_dtype": "float16",
        },
        "results": results,
        "versions": dict.fromkeys(TASKS, 2),
        "config_tasks": {task.rpartition("|")[0]: {"metric": metrics, **sizes} for task in TASKS},
        "summary_tasks": {},
        "summary_general": {},
    }  # fmt: skip


def _details(task: str, layout: str) -> pa.Table:
    rows = [{m: float(v[i]) for m, v in SCORES[task].items()} for i in range(N)]
    asked = [f"{task}: what is {i}?" for i in range(N)]
    if layout == "columns":
        return pa.table(
            {"example": asked, "full_prompt": [f"Q: {text}" for text in asked]}
            | {m: [row[m] for row in rows] for m in SCORES[task]}
        )
    if layout == "metrics":
        return pa.table({"example": asked, "full_prompt": asked, "metrics": rows})
    docs = [{"query": text, "choices": ["a", "b"]} for text in asked]
    if layout == "texts":
        return pa.table({"__doc__": [*map(str, docs)], "__metric__": [*map(str, rows)]})
    if layout == "numpy":
        written = [str({m: np.float64(v) for m, v in row.items()} | {"x": np.nan}) for row in rows]
        return pa.table({"__doc__": [*map(str, docs)], "__metric__": written})
    return pa.table({"__doc__": docs, "__metric__": rows, "__model_response__": asked})


def _run(folder: Path, layout: str) -> Path:
    """Write a run: in folders as lighteval does, or in one as the Open LLM Leaderboard."""
    apart = layout in ("structs", "texts", "numpy")
    results = folder / "results" / "acme" / "tiny" if apart else folder
    details = folder / "details" / "acme" / "tiny" / STAMP if apart else folder
    for place in (results, details):
        place.mkdir(parents=True, exist_ok=True)
    file = results / f"results_{STAMP}.json"
    file.write_text(json.dumps(_results(), indent=2))
    for task in TASKS:
        name = task if apart else task.replace("|", "_").replace(":", "_")
        pq.write_table(_details(task, layout), details / f"details_{name}_{STAMP}.parquet")
    return file


@pytest.mark.parametrize("layout", ["structs", "texts", "numpy", "metrics", "columns"])
def test_each_value_is_the_estimate_of_a_row_or_has_a_reason(tmp_path: Path, layout: str) -> None:
    """Also means over tasks, which have no interval."""
    _run(tmp_path, layout)
    rows = {(row.task, row.metric): row for row in intervals(read(tmp_path))}
    logged = {
        (task, metric): value
        for task, values in _results()["results"].items()
        for metric, value in values.items()
        if not metric.endswith("_stderr")
    }

    assert {key: row.estimate for key, row in rows.items()} == pytest.approx(logged, abs=1e-12)
    assert {task for (task, _), row in rows.items() if row.low is None} == {"all"}
    assert rows["all", "em"].notes == ("no interval: a mean over tasks",)
    errors = [(row.std_error, row.logged_std_error) for key, row in rows.items() if key[0] != "all"]
    assert [a for a, _ in errors] == pytest.approx([b for _, b in errors], abs=1e-12)


def test_a_run_says_what_it_is_of(tmp_path: Path) -> None:
    """Model, settings, version of the task, size of the benchmark, questions."""
    r = read(_run(tmp_path, "structs"), task="gsm8k", metric="em").responses[0]

    assert (r.model, r.task, r.source.harness) == ("acme/tiny", TASKS[0], "lighteval")
    assert dict(r.settings) == {"sha": "607a30d7", "dtype": "float16", "task.num_fewshot": "5"}
    assert (r.population, r.logged_n, r.provenance.task_version) == (1319, N, "2")
    assert r.higher_is_better is True
    assert r.item_hashes is not None


def test_results_without_details_and_details_without_results(tmp_path: Path) -> None:
    """Values without intervals, and metrics taken for means."""
    file = _run(tmp_path, "metrics")
    details = sorted(tmp_path.glob("details_*"))[1]
    alone = tmp_path / "alone" / "tiny" / STAMP / details.name
    alone.parent.mkdir(parents=True)
    details.rename(alone)
    rows = {(row.task, row.metric): row for row in intervals(read(file))}
    [em, _] = read(alone)

    assert rows[TASKS[0], "em"].notes[0] == (
        "no details of this task (run lighteval with --save-details)"
    )
    assert em.model == "tiny"
    assert em.notes[0].startswith("no results file of this run")
    assert em.notes[0].endswith("; the model is named after its folder")
    [named, _] = read(alone, model_name="acme/tiny")
    assert (named.model, named.notes[0][-5:]) == ("acme/tiny", "means")
    assert intervals([em])[0].estimate == pytest.approx(_results()["results"][TASKS[0]]["em"])


def test_details_belong_to_the_results_of_their_time(tmp_path: Path) -> None:
    """Those of another run are a log of their own."""
    file = _run(tmp_path, "metrics")
    details = sorted(tmp_path.glob("details_*"))
    other = details[0].with_name(details[0].name.replace(STAMP, STAMP.replace("20", "21", 1)))
    other.write_bytes(details[0].read_bytes())

    assert find_logs([LogFile(path) for path in sorted(tmp_path.iterdir())]) == {
        file: details, other: [],
    }  # fmt: skip
    inside = tmp_path / STAMP
    inside.mkdir()
    details[1].rename(inside / details[1].name)
    assert {len(r.item_ids) for r in read(file) if r.task in TASKS} == {N}


def test_details_that_were_cut_or_changed_are_findings(tmp_path: Path) -> None:
    """Fewer rows than documents, and other scores."""
    _run(tmp_path, "metrics")
    files = sorted(tmp_path.glob("details_*"))
    pq.write_table(pq.read_table(files[0])[:7], files[0])
    table = pq.read_table(files[1])
    rows = [{"em": 1.0, "f1": 1.0}] * N
    pq.write_table(
        table.set_column(table.column_names.index("metrics"), "metrics", [rows]), files[1]
    )
    found = [(finding.problem, finding.task) for finding in check(tmp_path, metric="em")]

    assert found == [("incomplete", TASKS[1]), ("contradiction", TASKS[0])]


def test_details_that_were_cut_say_so_whatever_they_give(tmp_path: Path) -> None:
    """Also where their mean is the value, and where the value is no number."""
    file = _run(tmp_path, "metrics")
    details = sorted(tmp_path.glob("details_*"))[1]
    pq.write_table(pq.read_table(details)[:6], details)
    results = _results()
    results["results"][TASKS[0]] |= {"em": 1 / 3, "f1": float("nan")}
    file.write_text(json.dumps(results))
    em, f1 = read(file, task="gsm8k").responses

    assert em.notes == (
        "6 of 20 items: the details are cut off; the value over all of them is 0.333333",
    )
    assert f1.notes == ("6 of 20 items: the details are cut off",)


@pytest.mark.parametrize("logged", [None, 0.35])
def test_a_mean_needs_no_configuration_to_be_known(tmp_path: Path, logged: float | None) -> None:
    """Where the items give the value, or it is no number; that of another metric says nothing."""
    file = _run(tmp_path, "metrics")
    results = _results()
    results["results"][TASKS[0]]["em"] = float("nan") if logged is None else logged
    results["config_tasks"]["lighteval|gsm8k"] = {
        "metric": [{"metric_name": "f1", "higher_is_better": False, "corpus_level_fn": "f1"}]
    }
    file.write_text(json.dumps(results))
    [em] = read(file, task="gsm8k", metric="em").responses

    assert (em.higher_is_better, em.logged, em.notes) == (True, logged, ())
    assert em.scores.mean() == pytest.approx(0.35)


def test_a_metric_that_is_no_mean_has_a_reason(tmp_path: Path) -> None:
    """By its configuration, or because the items do not give the value."""
    file = _run(tmp_path, "metrics")
    results = _results()
    results["results"][TASKS[0]]["em"] = 0.123
    results["config_tasks"]["lighteval|gsm8k"]["metric"][0]["corpus_level_fn"] = "CorpusLevelF1"
    file.write_text(json.dumps(results))
    [row] = intervals(read(file, task="gsm8k", metric="em"))

    assert (row.estimate, row.method) == (0.123, "t")
    assert row.notes == (
        "not averaged: the mean of its items, 0.35, is not the value",
        "limits from the logged standard error alone",
    )


@pytest.mark.parametrize(
    ("names", "config"),
    [(("lighteval:gsm8k:5", "leaderboard:arc:challenge:0"), "metric"),
     (("gsm8k|5", "arc:challenge|0"), "metrics")],
    ids=["colons", "without suites"],
)  # fmt: skip
def test_names_of_tasks_in_other_versions(
    tmp_path: Path, names: tuple[str, str], config: str
) -> None:
    """Colons for bars, no suites, and metrics computed together, as lighteval's code has them."""
    results = _results()
    renamed = dict(zip(TASKS, names, strict=True))
    for part in ("results", "versions"):
        results[part] = {renamed.get(task, task): each for task, each in results[part].items()}
    both = {
        "metric_name": ["em", "f1"],
        "higher_is_better": {"em": True, "f1": False},
        "corpus_level_fn": {"em": "mean", "f1": "mean"},
    }
    results["config_tasks"] = {name: {config: [both]} for name in names}
    results["results"]["arc:_average|0"] = {"em": 0.5}
    (tmp_path / f"results_{STAMP}.json").write_text(json.dumps(results))
    for task, name in renamed.items():
        table = _details(task, "structs").rename_columns(["doc", "metric", "model_response"])
        pq.write_table(table, tmp_path / f"details_{name}_{STAMP}.parquet")
    [em, f1] = read(tmp_path, task="gsm8k").responses
    averages = read(tmp_path, task="arc:_average").responses

    assert (em.task, dict(em.settings)["task.num_fewshot"]) == (names[0], "5")
    assert (em.higher_is_better, f1.higher_is_better) == (True, False)
    assert len(em.item_ids) == len(f1.item_ids) == N
    assert averages[0].notes == ("no interval: a mean over tasks",)


def test_damaged_details_are_an_error(tmp_path: Path) -> None:
    """Of that log."""
    file = _run(tmp_path, "metrics")
    [details, *_] = tmp_path.glob("details_*gsm8k*")
    details.write_bytes(details.read_bytes()[:200])

    with pytest.raises(LogError, match="cannot be read as Parquet"):
        read(file)


def test_two_files_of_details_of_one_task_are_refused(tmp_path: Path) -> None:
    """As a copy in another folder: which of them is meant nobody can say."""
    file = _run(tmp_path, "structs")
    details = next(tmp_path.rglob("details_*.parquet"))
    shutil.copy(details, details.parents[1])

    with pytest.raises(LogError, match="are details of one task and run: keep one"):
        read(file)


def test_a_metrics_configuration_is_found_by_its_name():
    """Or by one of its names; never that of another metric."""
    assert _names({"metric_name": "acc"}, "acc")
    assert _names({"metric_name": ["em", "acc"]}, "acc")
    assert not _names({"metric_name": "acc_norm"}, "acc")
    assert not _names({"metric_name": ["em"]}, "acc")
    assert not _names({}, "acc")


def _tables(responses: Any) -> dict[tuple[str, str], Any]:
    return {(r.task, r.metric): (r.logged, r.scores[:, 0].tolist()) for r in responses}


@pytest.mark.parametrize("layout", ["structs", "texts", "metrics", "columns"])
def test_details_are_read_with_the_results_of_their_run(tmp_path: Path, layout: str) -> None:
    """Of several runs in the same folders, by their time; one file of details is its task."""
    file = _run(tmp_path, layout)
    later = "2025-04-05T06:07:08.000001"
    for path in [*tmp_path.rglob("*.parquet"), file]:
        folder = path.parent.parent / later if path.parent.name == STAMP else path.parent
        folder.mkdir(exist_ok=True)
        copy = folder / path.name.replace(STAMP, later)
        if path == file:
            copy.write_text(path.read_text().replace("acme/tiny", "acme/later"))
            continue
        table = pq.read_table(path)
        pq.write_table(table.take(list(range(N))[::-1]), copy)
    first = _tables(read(file).responses)

    assert {key: first[key] for key in first if key[0] != "all"} == {
        (task, metric): (pytest.approx(scores.mean()), scores.tolist())
        for task, metrics in SCORES.items()
        for metric, scores in metrics.items()
    }
    both = read(tmp_path)
    assert {(r.model, r.source.when) for r in both.responses} == {
        ("acme/tiny", STAMP), ("acme/later", later.replace(":", "-"))
    }  # fmt: skip
    for path in tmp_path.rglob("*.parquet"):
        own = read(path).responses
        [task] = {r.task for r in own}
        turned = -1 if later in path.name else 1
        assert {r.metric: r.scores[:, 0].tolist() for r in own} == {
            metric: scores[::turned].tolist() for metric, scores in SCORES[task].items()
        }
        assert {r.model for r in own} == {"acme/tiny" if turned == 1 else "acme/later"}


def _changed(tmp_path: Path, change: Any, layout: str = "metrics") -> Path:
    file = _run(tmp_path, layout)
    results = _results()
    change(results)
    file.write_text(json.dumps(results))
    return file


@pytest.mark.parametrize("where", ["general", "config", "given"])
def test_a_model_is_named_by_its_run_or_by_hand(tmp_path: Path, where: str) -> None:
    """Newer versions write the model's configuration; what is not known is not shown."""

    def change(results: dict[str, Any]) -> None:
        general = results["config_general"]
        config = {"dtype": "bfloat16"} | ({"model_name": "of/config"} if where == "config" else {})
        name = {"model_name": "of/general"} if where == "general" else {}
        general.clear()
        general.update({"lighteval_sha": "?", "max_samples": None, "model_config": config, **name})

    file = _changed(tmp_path, change)
    if where == "given":
        with pytest.raises(LogError, match="does not name its model: pass --model-name"):
            read(file)
        r = read(file, model_name="by/hand").responses[0]
        assert r.model == "by/hand"
    else:
        r = read(file, task="gsm8k").responses[0]
        assert r.model == f"of/{where}"
    assert dict(r.settings) == {"dtype": "bfloat16", "task.num_fewshot": "5"}
    assert r.source.version is None


def test_sizes_of_a_benchmark_are_told_where_a_part_was_run(tmp_path: Path) -> None:
    """All documents, numbers that are none, and a task without examples."""

    def change(results: dict[str, Any]) -> None:
        for task, sizes in {"gsm8k": (N, N), "arc:challenge": ("many", N)}.items():
            [config] = [c for name, c in results["config_tasks"].items() if task in name]
            config |= dict(zip(("original_num_docs", "effective_num_docs"), sizes, strict=True))

    file = _changed(tmp_path, change)
    by_task = {r.task: r for r in read(file, metric="em").responses}
    assert [by_task[task].population for task in TASKS] == [None, None]
    assert [by_task[task].logged_n for task in TASKS] == [N, N]

    def without(results: dict[str, Any]) -> None:
        for config in results["config_tasks"].values():
            config |= {"original_num_docs": 50, "effective_num_docs": -1}

    other = {r.task: r for r in read(_changed(tmp_path, without), metric="em").responses}
    assert [other[task].population for task in TASKS] == [None, None]
    assert [other[task].logged_n for task in TASKS] == [N, N]
    assert "task.num_fewshot" not in dict(other["all"].settings)


def test_values_that_are_no_numbers_are_not_logged(tmp_path: Path) -> None:
    """NaN, text, or nothing: the items stand by themselves; truth values are numbers."""

    def change(results: dict[str, Any]) -> None:
        results["results"][TASKS[0]] = {"em": float("nan"), "f1": "high", "em_stderr": None}
        results["results"][TASKS[1]] = {"em": True, "f1": None}
        results["config_tasks"]["lighteval|gsm8k"]["metric"][0]["higher_is_better"] = [True]

    by_name = {(r.task, r.metric): r for r in read(_changed(tmp_path, change)).responses}
    assert by_name[TASKS[0], "em"].logged is None
    assert by_name[TASKS[0], "em"].logged_std_error is None
    assert by_name[TASKS[0], "f1"].logged is None
    assert by_name[TASKS[1], "em"].logged == 1.0
    assert by_name[TASKS[1], "em"].notes == ("mismatch: 1 was logged, the items give 0.25",)
    assert by_name[TASKS[1], "f1"].logged is None


@pytest.mark.parametrize(
    ("config", "averaged"),
    [({"corpus_level_fn": "mean"}, True), ({"corpus_level_fn": "np.mean"}, True), ({}, True),
     ({"corpus_level_fn": "max"}, False), (None, False)],
)  # fmt: skip
def test_a_mean_that_is_not_the_value_is_a_contradiction(
    tmp_path: Path,
    config: dict[str, str] | None,
    averaged: bool,  # noqa: FBT001
) -> None:
    """Where its configuration says that it is a mean; else the value may be anything."""

    def change(results: dict[str, Any]) -> None:
        results["results"][TASKS[0]]["em"] = 0.123
        listed = [] if config is None else [{"metric_name": "em", **config}]
        other = {"metric_name": "f1", "corpus_level_fn": "max", "higher_is_better": False}
        results["config_tasks"]["lighteval|gsm8k"]["metric"] = [other, *listed]

    [r] = read(_changed(tmp_path, change), task="gsm8k", metric="em").responses
    assert (r.aggregation == "mean") is averaged
    assert r.higher_is_better is not False
    note = "mismatch: 0.123 was logged, the items give 0.35"
    other = "not averaged: the mean of its items, 0.35, is not the value"
    assert r.notes == (note if averaged else other,)


def test_details_that_are_cut_off_tell_the_value_over_all(tmp_path: Path) -> None:
    """Where it is logged."""

    def change(results: dict[str, Any]) -> None:
        results["config_tasks"]["lighteval|gsm8k"]["effective_num_docs"] = N + 5
        results["results"][TASKS[0]] |= {"em": 0.4, "f1": None}

    em, f1 = read(_changed(tmp_path, change), task="gsm8k").responses
    assert em.notes == (
        "20 of 25 items: the details are cut off; the value over all of them is 0.4",
    )
    assert f1.notes == ("20 of 25 items: the details are cut off",)
    assert em.measure.n_cut == f1.measure.n_cut == 5
    assert em.logged_n == 25


def test_items_without_a_score_stay_and_metrics_without_numbers_have_a_reason(
    tmp_path: Path,
) -> None:
    """A text that is no number is none; one that begins like a list may be one or not."""
    file = _run(tmp_path, "texts")
    [path] = tmp_path.rglob("*gsm8k*.parquet")
    rows = [{"em": None if i < 3 else 1.0, "f1": "[broken", "extra": [1]} for i in range(N)]
    asked = [f"[{i}, " if i % 2 else f"{{'query': {i}, 'choices': None}}" for i in range(N)]
    pq.write_table(pa.table({"__doc__": asked, "__metric__": [*map(str, rows)]}), path)
    em, f1 = read(file, task="gsm8k").responses

    assert np.isnan(em.scores[:, 0]).tolist() == [i < 3 for i in range(N)]
    assert em.item_hashes is None
    assert f1.scores.size == 0
    assert f1.notes == ("no interval: f1 is no number of each item",)


def test_a_file_that_is_neither_is_passed_over(tmp_path: Path) -> None:
    """Other JSON and other tables beside a run; details without scores are refused by name."""
    file = _run(tmp_path, "metrics")
    (tmp_path / "samples.txt").write_text(file.read_text())
    (tmp_path / "notes.json").write_text("[" + file.read_text() + "]")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "table.parquet")

    assert {r.model for r in read(tmp_path, task="gsm8k").responses} == {"acme/tiny"}
    alone = tmp_path / "alone" / "tiny" / STAMP / f"details_x_{STAMP}.parquet"
    alone.parent.mkdir(parents=True)
    pq.write_table(pa.table({"a": [1]}), alone)
    with pytest.raises(LogError, match="has no column of scores"):
        read(alone)
    pq.write_table(_details(TASKS[0], "metrics"), alone)
    [note] = read(alone, model_name="m", metric="em").responses[0].notes
    assert note == "no results file of this run: its metrics are taken for means"


def test_details_without_a_metric_of_the_results_say_so(tmp_path: Path) -> None:
    """They hold the questions alone; settings that no log names are not shown."""

    def change(results: dict[str, Any]) -> None:
        results["config_general"] = {"model_name": "m", "model_dtype": None}

    file = _changed(tmp_path, change)
    for path in tmp_path.glob("*.parquet"):
        pq.write_table(pq.read_table(path).select(["example", "full_prompt"]), path)
    r = read(file, task="gsm8k", metric="em").responses[0]

    assert r.notes == ("no interval: em is no number of each item",)
    assert dict(r.settings) == {"task.num_fewshot": "5"}
