"""Mappings: JSON and JSONL of any tool, read as a few lines of TOML say."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from subprocess import CompletedProcess
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evalstats_plugin as es
from evalstats_plugin.adapters.mapped.reader import _fields, _names_in
from evalstats_plugin.errors import DesignError, LogError, SelectionError
from evalstats_plugin.hookspecs import hookimpl
from evalstats_plugin.testing import _with

Run = Callable[..., "CompletedProcess[str]"]

FIVE_LINES = """\
items = "results[*]"
model = "run.model"
task = "run.task"
item = ".id"
score = ".success"
"""
RESULTS = [
    {"id": "a", "success": True, "try": 0, "text": "Score: 0.5 (good)", "parts": [1, 0]},
    {"id": "b", "success": False, "try": 0, "text": "Score: 1 (good)", "parts": [1, 1]},
    {"id": "c", "success": True, "try": 0, "text": "0.9", "parts": [0, None]},
]
DOCUMENT: Mapping[str, Any] = {"run": {"model": "m", "task": "sums"}, "results": RESULTS}
MAPPING = {"items": "results[*]", "model": "run.model", "item": ".id"}


@pytest.fixture
def out(tmp_path: Path) -> Path:
    path = tmp_path / "out.json"
    path.write_text(json.dumps(DOCUMENT))
    return path


def _written(path: Path, document: object) -> Path:
    path.write_text(json.dumps(document))
    return path


def test_five_lines_read_the_json_of_any_tool(out: Path, tmp_path: Path, run: Run) -> None:
    """The same from a file, from Python, and in the shell."""
    toml = tmp_path / "my.toml"
    toml.write_text(FIVE_LINES)
    [r] = es.read(out, mapping=toml)
    [same] = es.read(out, mapping={**MAPPING, "task": "run.task", "score": ".success"})
    done = run("report", out, "--mapping", toml)

    assert (r.model, r.task, r.metric, r.source.harness) == ("m", "sums", "score", "mapped")
    assert r.item_ids.tolist() == ["a", "b", "c"]
    assert r.scores.tolist() == same.scores.tolist() == [[1.0], [0.0], [1.0]]
    assert "sums       score    3   0.6667 [" in done.stdout


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"items": "result[*]"}, "items: no list is called 'result[*]'; did you mean results[*]?"),
        ({"items": "results"}, "items is 'results'. Write where the entries are, as"),
        ({"score": ".succeeds"}, "score: no field of results[*] is called '.succeeds'; did"),
        ({"model": "run.modl"}, "model: no field of the file is called 'run.modl'; did you"),
        ({"items": ".results[*]"}, "items is '.results[*]'. Write where the entries are, as"),
        ({"items": "results[*][#]"}, "items is 'results[*][#]'. Write where the entries are"),
        ({"settings": {"t": ".T"}}, "settings.t: no field of results[*] is called '.T'"),
        ({"itm": ".id"}, "no key is called 'itm'; did you mean item?"),
        ({"item": None}, 'item is missing. Write the id of the question, as item = ".id"; "result'),
        ({"score": None}, "score is missing. Write one path"),
        ({"scores": {"x": ".id"}}, "score is '.success'. Write one path"),
        ({"score": ".a b["}, "score is '.a b['. Write names with dots"),
        ({"item": ".[#]"}, "item is '.[#]'. Write names with dots, [*], [0] or "),
        ({"score": 3}, "score is 3. Write a path, a list of paths, or a table"),
        ({"score": {"paths": ".x"}}, "score is {'paths': '.x'}. Write a path"),
        ({"files": ["{run}.json"]}, "files is '{run}.json'. Write names of files with"),
        ({"files": ["{task}_{task}.json"]}, "files is '{task}_{task}.json'. Write names"),
        ({"score": {"path": ".id", "times": "x"}}, "score.times is 'x'. Write a number"),
        ({"score": {"all": [".id"], "after": "x"}}, "with path also after, before and times, with"),
        ({"model": {"value": "x", "times": 2}}, "model is {'value': 'x', 'times': 2}. Write a"),
        ({"scores": {"a": ".id"}, "score": None, "costs": {"a": ".id"}}, "costs is 'a'. It is the"),
        ({"files": [3]}, "files is 3. Write names of files"),
        ({"logged": {"mean": "x"}}, "logged: no score is called 'mean'"),
        ({"logged": {"score": "run.mean"}}, "logged.score: no field of the file"),
        ({"logged": {"score": ".success"}}, "logged.score is '.success'. Write a path from"),
        ({"skip": "type"}, "skip is 'type'. Write a list"),
        ({"epoch": ".when"}, "epoch: no field of results[*] is called '.when'"),
    ],
)  # fmt: skip
def test_errors_name_the_key_the_place_and_the_fix(
    out: Path, changed: Mapping[str, Any], message: str
) -> None:
    whole = {**MAPPING, "score": ".success", **changed}
    given = {key: value for key, value in whole.items() if value is not None}

    with pytest.raises((SelectionError, LogError)) as caught:
        es.read(out, mapping=given)

    assert message in str(caught.value)
    assert str(caught.value).partition(": ")[0] in ("mapping", str(out))


def test_a_file_that_is_no_toml_or_not_there_is_named(out: Path, tmp_path: Path, run: Run) -> None:
    """Exit code 2, no traceback."""
    (tmp_path / "bad.toml").write_text("= 3")
    bad, missing = (
        run("report", out, "--mapping", tmp_path / name) for name in ("bad.toml", "no.toml")
    )

    assert (bad.returncode, missing.returncode) == (2, 2)
    assert "bad.toml is not TOML (Invalid statement (at line 1, column 1))" in bad.stderr
    assert "no.toml cannot be read (No such file or directory)" in missing.stderr


def test_an_entry_without_its_item_is_named_by_its_place(tmp_path: Path) -> None:
    """Others have it."""
    out = _written(tmp_path / "o.json", {"runs": {"x y": [{"id": 1, "s": 1}, {"s": 0}]}})
    mapping = {"items": "runs[*][*]", "item": ".id", "score": ".s"}

    with pytest.raises(LogError, match=r'runs\["x y"\]\[1\] has no item \(mapping: item = '):
        es.read(out, mapping=mapping)


def test_scores_in_other_words_are_given_by_values(tmp_path: Path) -> None:
    rows = [{"id": k, "status": status} for k, status in enumerate(("pass", "Timeout", "odd"))]
    out = _written(tmp_path / "o.json", rows)
    mapping: dict[str, Any] = {"items": "[*]", "item": ".id", "score": ".status"}

    with pytest.raises(DesignError, match=r"'Timeout' in row 2.*\[values\] gives scores to texts"):
        es.read(out, mapping=mapping)
    [r] = es.read(out, mapping={**mapping, "values": {"timeout": 0, "odd": 0.5}})

    assert r.scores.ravel().tolist() == [1.0, 0.0, 0.5]


def test_parts_are_choices_cuts_constants_and_the_lowest(out: Path) -> None:
    """Texts around a score are cut; a list of scores is one of epochs."""
    scores = {
        "cut": {"path": ".text", "after": ["Grade: ", "Score: "], "before": [" (", "\n"]},
        "choice": [".none", {"value": 0.25}],
        "times": {"path": ".success", "times": 0.5},
        "all": {"all": [".success", ".parts[0]"]},
        "last": ".parts[-1]",
        "epochs": ".parts",
    }
    read = es.read(out, mapping={**MAPPING, "task": {"value": "t"}, "scores": scores})
    by_metric = {r.metric: r.scores.tolist() for r in read}

    assert {r.task for r in read} == {"t"}
    assert by_metric.pop("cut")[:2] == [[0.5], [1.0]]
    assert by_metric.pop("epochs")[:2] == [[1.0, 0.0], [1.0, 1.0]]
    assert by_metric.pop("last")[:2] == [[0.0], [1.0]]
    assert by_metric == {
        "choice": [[0.25]] * 3,
        "times": [[0.5], [0.0], [0.5]],
        "all": [[1.0], [0.0], [0.0]],
    }
    assert all(np.isnan(r.scores[2, -1]) for r in read if r.metric in ("cut", "last", "epochs"))


def test_entries_lie_in_objects_and_beside_each_other(tmp_path: Path) -> None:
    """[#] is the name or number of an entry; [*] in another list is the entry of that number."""
    document = {"by": {"q 1": [{"ok": 1}, {"ok": 0}], "q2": [{"ok": 1}]}, "gold": [7, 8]}
    out = _written(tmp_path / "o.json", document)
    nested = {"items": "by[*][*]", "item": "by[#]", "epoch": "by[*][#]", "score": ".ok"}
    [r] = es.read(out, mapping=nested)
    [beside] = es.read(out, mapping={
        "items": "gold[*]", "item": "gold[#]", "score": 'by["q 1"][*].ok', "input": "gold[*]",
    })  # fmt: skip

    assert r.item_ids.tolist() == ["q 1", "q2"]
    assert np.nan_to_num(r.scores, nan=-1).tolist() == [[1.0, 0.0], [1.0, -1.0]]
    assert beside.scores.ravel().tolist() == [1.0, 0.0]
    assert beside.item_hashes is not None
    assert len(set(beside.item_hashes.tolist())) == 2


def test_repeated_answers_are_told_apart_or_refused(tmp_path: Path) -> None:
    rows = [{"id": "a", "ok": 1}, {"id": "a", "ok": 0}, {"id": "b", "ok": 1}]
    out = _written(tmp_path / "o.json", {"rows": rows})
    mapping = {"items": "rows[*]", "item": ".id", "score": ".ok"}

    with pytest.raises(LogError, match=r"rows\[0\] and rows\[1\] are both of item 'a'"):
        es.read(out, mapping=mapping)
    [r] = es.read(out, mapping={**mapping, "epoch": "order"})

    assert np.nan_to_num(r.scores, nan=-1).tolist() == [[1.0, 0.0], [1.0, -1.0]]


def test_answers_in_a_list_are_epochs_inside_that_of_their_entry(tmp_path: Path) -> None:
    """However many: the tenth is not the first."""
    lists = {rep: [int(k == 4 * rep) for k in range(12)] for rep in (2, 1)}
    rows = [{"id": "a", "ok": scores, "rep": rep} for rep, scores in lists.items()]
    out = _written(tmp_path / "o.json", {"rows": rows})
    [r] = es.read(out, mapping={"items": "rows[*]", "item": ".id", "score": ".ok", "epoch": ".rep"})

    assert r.scores.tolist() == [[*lists[1], *lists[2]]]


def test_settings_tell_models_of_one_name_apart(tmp_path: Path) -> None:
    """A long one is cut; what does not vary is not shown."""
    rows = [
        {"id": k, "ok": 1, "prompt": "x" * 80 + end, "top": 1} for end in "ab" for k in range(2)
    ]
    out = _written(tmp_path / "o.json", rows)
    settings = {"prompt": ".prompt", "top": ".top"}
    read = es.read(out, model_name="m", mapping={
        "items": "[*]", "item": ".id", "score": ".ok", "settings": settings
    })  # fmt: skip
    first, second = (r.model for r in read)

    assert first.startswith(f"m (prompt={'x' * 60}… ")
    assert len(first) == len(second) == 81
    assert first != second


def test_lines_folders_and_names_of_files(tmp_path: Path) -> None:
    """Only files that fit `files` are read; they name what the entries do not."""
    folder = tmp_path / "runs" / "m_1"
    folder.mkdir(parents=True)
    (folder / "sums.jsonl").write_text('{"id": 1, "ok": true}\n{"id": 2, "ok": false}\n{"id": 3, "')
    (folder / "other.json").write_text("{}")
    mapping = {"items": "[*]", "item": ".id", "score": ".ok", "files": ["{model}/{task}.jsonl"]}
    [r] = es.read(tmp_path / "runs", mapping=mapping)
    [named] = es.read(tmp_path / "runs", mapping=mapping, model_name="n")

    assert (r.model, r.task, r.scores.ravel().tolist()) == ("m_1", "sums", [1.0, 0.0])
    assert r.notes == ("the last line is half written: left out",)
    assert named.model == "n"


@pytest.mark.parametrize(
    ("score", "expected"),
    [
        ({"path": ".percent", "times": 0.01}, [[0.85]]),
        ({"path": ".text", "after": "Score: ", "before": " of", "times": 0.1}, [[0.7]]),
        ({"path": ".each", "times": 0.01}, [[0.5, 1.0]]),
        ({"path": ".tries[*].text", "after": "Score: ", "times": 0.1}, [[0.3, 0.9]]),
        ({"all": [".each[0]", ".percent"], "times": 0.01}, [[0.5]]),
    ],
)
def test_a_factor_counts_whatever_it_is_of(tmp_path: Path, score: Any, expected: Any) -> None:
    """A number written as text, one cut out of a text, each of several epochs, the lowest."""
    row = {"id": 1, "percent": "85", "text": "Score: 7 of 10", "each": [50, 100]}
    tries = [{"text": "Score: 3"}, {"text": "Score: 9"}]
    out = _written(tmp_path / "o.json", [{**row, "tries": tries}])
    [r] = es.read(out, mapping={"items": "[*]", "item": ".id", "score": score})

    assert r.scores.tolist() == [pytest.approx(row) for row in expected]


@pytest.mark.parametrize(
    ("pattern", "path", "names"),
    [
        ("{task}_{model}_????.json", "a/mmlu_m_x_2026.json", {"task": "mmlu", "model": "m_x"}),
        ("{model}/*.json", "a/m/b.json", {"model": "m"}),
        ("{model}.json", "a/m.jsonl", None),
        ("a+b.json", "a+b.json", {}),
    ],
)
def test_names_in_paths(pattern: str, path: str, names: Mapping[str, str] | None) -> None:
    assert _names_in(Path(path), [pattern]) == names


def test_paths_are_listed_down_to_a_few_levels() -> None:
    """Those inside of lists by their first entry, to choose from in messages."""
    deep = {"a": [{"b": 1, "c.d": {"e": [2]}}], "f": {"g": {"h": {"i": {"j": 3}}}}}

    assert list(_fields(deep, "")) == ["a[*]", "a[*].b", 'a[*]["c.d"].e[*]', "f.g.h.i"]
    assert list(_fields([[[[[{"x": 1}]]]]], ".")) == [".[*]"]


def test_a_long_name_of_a_file_does_not_stop_the_program() -> None:
    """Underscores are where the names of a task and a model could be cut."""
    assert _names_in(Path("_" * 250), ["{task}_{model}_????????_??????*_allresults.json"]) is None


def test_a_value_that_the_items_contradict_is_noted(tmp_path: Path) -> None:
    out = _written(tmp_path / "o.json", {"mean": 0.5, "rows": [{"id": 1, "ok": 1}]})
    mapping = {"items": "rows[*]", "item": ".id", "score": ".ok", "logged": {"score": "mean"}}
    [r] = es.read(out, mapping=mapping)

    assert r.logged == 0.5
    assert "mismatch: 0.5 was logged, the items give 1" in r.notes


def test_a_field_names_the_clusters(tmp_path: Path) -> None:
    rows = [{"id": k, "ok": k % 2, "meta": {"passage": k // 2}} for k in range(6)]
    out = _written(tmp_path / "o.json", rows)
    mapping = {"items": "[*]", "item": ".id", "score": ".ok"}
    [r] = es.read(out, mapping=mapping, cluster="meta.passage")

    assert r.clusters is not None
    assert r.clusters.tolist() == ["0", "0", "1", "1", "2", "2"]
    with pytest.raises(SelectionError, match="no item of these logs has the field 'nope'"):
        es.read(out, mapping=mapping, cluster="nope")


def test_columns_do_not_go_with_a_mapping(out: Path) -> None:
    with pytest.raises(SelectionError, match="leave columns and wide out"):
        es.read(out, mapping={**MAPPING, "score": ".success"}, columns={"item": "id"})


def test_texts_of_a_file_do_not_reach_the_terminal_raw(tmp_path: Path, run: Run) -> None:
    """Nor do they as names in messages, or as names of models."""
    rows = [{"id": "a", "ok": 1, "x\x1b[31m": 2, "by": "m\x1b[31m\n"}]
    out = _written(tmp_path / "o.json", rows)
    toml = tmp_path / "m.toml"
    toml.write_text('items = "[*]"\nitem = ".id"\nscore = ".ok"\nmodel = ".by"\n')
    good = run("report", out, "--mapping", toml)
    toml.write_text('items = "[*]"\nitem = ".id"\nscore = ".x"\n')
    bad = run("report", out, "--mapping", toml)

    assert (good.returncode, bad.returncode) == (0, 2)
    assert "no field of [*] is called '.x'" in bad.stderr
    assert "\x1b" not in good.stdout + good.stderr + bad.stderr


def test_costs_are_read_if_they_are_asked_for(tmp_path: Path) -> None:
    """Lower is better, and there is no highest; the score is read beside them."""
    rows = [{"id": k, "ok": k % 2, "usd": 0.001 * (k + 1), "ms": 5} for k in range(4)]
    out = _written(tmp_path / "o.json", rows)
    costs = {"usd": {"path": ".usd", "times": 1000}, "ms": ".ms"}
    mapping = {"items": "[*]", "item": ".id", "score": ".ok", "costs": costs}
    [alone] = es.read(out, mapping=mapping)
    score, usd = es.read(out, mapping=mapping, metric=["score", "usd"])
    [row] = es.intervals(es.read(out, mapping=mapping, metric="usd"), rng=0)

    assert (alone.metric, score.metric, usd.metric) == ("score", "score", "usd")
    assert usd.scores.ravel().tolist() == [1.0, 2.0, 3.0, 4.0]
    assert (score.measure.higher_is_better, usd.measure.higher_is_better) == (None, False)
    assert (row.estimate, row.method, row.low) == (2.5, "t", pytest.approx(0.4457, abs=1e-4))


def test_a_run_without_results_is_named(tmp_path: Path) -> None:
    out = _written(tmp_path / "o.json", {"results": []})

    with pytest.raises(LogError, match=r"results\[\*\] is empty: the run has no results"):
        es.read(out, mapping={**MAPPING, "score": ".success"})


def test_the_mapping_goes_before_what_others_would_read(out: Path) -> None:
    """Also before plugins that take every file for theirs."""

    @hookimpl
    def evalstats_read_log(log: object) -> list[object]:  # noqa: ARG001 - as the hook is called
        return []

    greedy = ModuleType("greedy")
    vars(greedy)["evalstats_read_log"] = evalstats_read_log
    read = es.read(out, mapping={**MAPPING, "score": ".success"}, plugins=_with(greedy))

    assert [r.metric for r in read] == ["score"]


def test_folders_are_searched_as_for_any_log(tmp_path: Path, run: Run) -> None:
    """What is hidden is no log, and a folder without one is an error that says so."""
    mapping = tmp_path / "my.toml"
    mapping.write_text('items = "[*]"\nitem = ".id"\nscore = ".ok"\n')
    folder, hidden = tmp_path / "runs", tmp_path / "runs" / ".being-written"
    hidden.mkdir(parents=True)
    for place in (hidden, tmp_path):
        (place / "m_1.json").write_text('[{"id": 1, "ok": true}]')

    done = run("report", folder, "--mapping", mapping)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {folder} holds no JSON or JSONL")
    (tmp_path / "m_1.json").rename(folder / "m_2.json")
    assert [r.source.path.name for r in es.read(folder, mapping=mapping)] == ["m_2.json"]


def test_files_that_name_their_models_have_one_task(tmp_path: Path) -> None:
    """Each was the only model on a task called as its file."""
    mapping = {**MAPPING, "score": ".success", "files": ["{model}_temp_1.json"]}
    del mapping["model"]
    for model in "ab":
        _written(tmp_path / f"{model}_temp_1.json", DOCUMENT)

    a, b = es.read(tmp_path, mapping=mapping)
    named = es.read(tmp_path, mapping={**mapping, "name": "sums"})

    assert [("a", "task"), ("b", "task")] == [(r.model, r.task) for r in (a, b)]
    assert a.notes == b.notes == ("mapping names no task: 'task' is used",)
    assert ["sums"] * 2 == [r.task for r in named]


def test_a_name_with_any_letters_may_be_of_the_entry(tmp_path: Path) -> None:
    """Its brackets could only follow a name, and messages named a path from the top."""
    out = _written(tmp_path / "o.json", {"rows": [{"id": 1, "pass.1": 1}, {"id": 2, "pass.1": 0}]})
    mapping = {"items": "rows[*]", "item": ".id"}
    [r] = es.read(out, mapping={**mapping, "score": '.["pass.1"]'})

    assert [[1.0], [0.0]] == r.scores.tolist()
    with pytest.raises(LogError, match=r'There are: \.id, \.\["pass\.1"\]'):
        es.read(out, mapping={**mapping, "score": ".pass"})


def test_files_of_one_entry_each_are_joined(tmp_path: Path) -> None:
    """A file for each trial could not be read; one with null lacks its score."""
    trials = [("x", 1, True), ("x", 2, False), ("y", 1, None), ("y", 2, True), ("z", 1, False)]
    for model in "ab":
        for item, k, resolved in trials:
            folder = tmp_path / model / f"{item}.{k}"
            folder.mkdir(parents=True)
            _written(folder / "results.json", {"task_id": item, "group": item, "ok": resolved})
    mapping = {"items": ".", "item": ".task_id", "score": ".ok"}
    files = {"files": ["{model}/*/results.json"], "name": "bench"}
    a, b = es.read(tmp_path, mapping={**mapping, **files}, cluster="group")
    [alone] = es.read(tmp_path / "a" / "x.1" / "results.json", mapping={**mapping, **files})

    assert [("a", "bench"), ("b", "bench")] == [(r.model, r.task) for r in (a, b)]
    assert ["x", "y", "z"] == a.item_ids.tolist()
    assert ["x", "y", "z"] == a.clusters.tolist()  # type: ignore[union-attr]
    assert [[1, 0], [-1, 1], [0, -1]] == np.nan_to_num(a.scores, nan=-1).tolist()
    assert tmp_path / "a" == a.source.path
    assert [[1.0]] == alone.scores.tolist()
    with pytest.raises(LogError, match=r"no field of \. is called '\.okay'; did you mean \.ok\?"):
        es.read(tmp_path, mapping={**mapping, **files, "score": ".okay"})


def test_what_is_null_is_no_wrong_path(tmp_path: Path) -> None:
    """A run that ended early: no field was called .ok, and .ok was suggested."""
    out = _written(tmp_path / "o.json", {"mean": None, "rows": [{"id": 1, "ok": None}]})
    mapping = {"items": "rows[*]", "item": ".id", "score": ".ok", "logged": {"score": "mean"}}
    [r] = es.read(out, mapping=mapping)

    assert np.isnan(r.scores).all()
    assert r.logged is None


def test_values_without_items_need_their_model_and_task(tmp_path: Path) -> None:
    """JSON of a leaderboard: an object of models, each with the value and size of a task."""
    values = {m: {"sums": {"acc": x, "n": 50}} for m, x in (("a", 0.5), ("b", 0.84))}
    out = _written(tmp_path / "o.json", values)
    mapping = {"items": "[*][*]", "model": "[#]", "task": "[*][#]", "score": ".acc"}
    a, b = es.read(out, mapping={**mapping, "n": ".n"})
    [row, _] = es.intervals([a, b])

    assert [("a", 0.5), ("b", 0.84)] == [(r.model, r.logged) for r in (a, b)]
    assert (50, "beta-hpd") == (row.n_items, row.method)
    with pytest.raises(LogError, match=r'are both of one model and one task\. Say.* item = "\.id"'):
        es.read(out, mapping={**mapping, "model": {"value": "m"}})


def test_fields_of_entries_make_slices(tmp_path: Path) -> None:
    """Clusters could be named, and slices not."""
    rows = [{"id": k, "ok": k % 2, "about": {"level": "ab"[k > 3]}} for k in range(9)]
    out = _written(tmp_path / "o.json", {"rows": rows})
    mapping = {"items": "rows[*]", "item": ".id", "score": ".ok"}
    [r] = es.read(out, mapping=mapping, by="about.level")

    assert [*"aaaabbbbb"] == r.tags.tolist()  # type: ignore[union-attr]
    with pytest.raises(SelectionError, match="no item of these logs has the field"):
        es.slices(es.read(out, mapping=mapping, by="about.x"), "about.x")
