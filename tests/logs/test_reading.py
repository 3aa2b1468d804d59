"""How logs are searched, read in order and chosen, shown with a harness made for this."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from evalstats_plugin import Measure, read
from evalstats_plugin.data.responses import Group, Responses, Selection, Source
from evalstats_plugin.errors import IncompleteLogError, LogError, SelectionError
from evalstats_plugin.hookspecs import hookimpl
from evalstats_plugin.logs import reading
from evalstats_plugin.plugins import Plugins
from evalstats_plugin.runtime.files import LogFile
from evalstats_plugin.testing import _with

LM_EVAL = Path(__file__).parents[2] / "fixtures" / "logs" / "lm_eval" / "0.4.13" / "out"


def _plugins(*names: str) -> Plugins:
    """Return the installed plugins and one that reads ``.toy``, and finds logs before others."""
    toy = ModuleType("toy")

    def evalstats_find_logs(folder: Path, files: Sequence[LogFile]) -> dict[Path, list[Path]]:
        for name in names:
            shutil.rmtree(folder / name, ignore_errors=True)
            (folder / name).unlink(missing_ok=True)
        return {f.path: [] for f in files if f.path.suffix == ".toy" and f.path.exists()}

    def evalstats_read_log(log: LogFile, selection: Selection) -> list[Responses] | None:
        if log.path.suffix != ".toy":
            return None
        told: dict[str, Any] = json.loads(log.read_bytes())
        if not told.get("done", True) and not selection.include_incomplete:
            raise IncompleteLogError(f"{log.path.name} was broken off", told.get("run", ""))
        source = Source(
            path=log.path, harness="toy", when=told.get("when", ""), run=told.get("run", "")
        )
        names = [(t, m) for t in told.get("tasks", ["t"]) for m in told.get("metrics", ["acc"])]
        return [
            Responses(
                model=told["model"], measure=Measure(
                    task=task, metric=metric, population=told.get("population")
                ),
                source=source, settings=tuple(told.get("settings", {}).items()),
                groups=tuple(Group(name, 0, "micro", 1) for name in told.get("groups", ())),
                item_ids=np.arange(4), scores=np.array([[0.0], [1.0], [1.0], [told.get("x", 0)]]),
            )
            for task, metric in names
            if selection.wants_task(task) and selection.wants_metric(metric, task)
        ]  # fmt: skip

    for hook in (evalstats_find_logs, evalstats_read_log):
        setattr(toy, hook.__name__, hookimpl(hook))
    return _with(toy)


def _write(path: Path, **told: Any) -> Path:
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(json.dumps({"model": "m", **told}))
    return path


def test_what_another_program_removes_meanwhile_is_no_log(tmp_path: Path) -> None:
    """Neither a file that one plugin was offered, nor a folder; what stays is read."""
    log = _write(tmp_path / "b" / "m.toy")
    for name in ("b/part.json", "b/part.csv", "b/later/other.json"):
        _write(tmp_path / name)
    using = _plugins("part.json", "part.csv", "later")

    assert reading.find_logs([tmp_path], using) == [log]
    assert [r.source.path for r in read(tmp_path, plugins=using)] == [log]
    (tmp_path / "b" / "part.csv").mkdir()
    with pytest.raises(LogError, match=r"part\.csv holds no log"):
        reading.find_logs([tmp_path / "b" / "part.csv"], using)


def test_logs_are_read_in_order_and_models_stand_together(tmp_path: Path) -> None:
    """Callers hear of each; runs that another took to their end are told from others."""
    _write(tmp_path / "1.toy", model="x", tasks=["u"], run="r1", done=False)
    _write(tmp_path / "2.toy", model="y", tasks=["t"], population=9)
    _write(tmp_path / "3.toy", model="x", tasks=["t"], run="r1")
    _write(tmp_path / "4.toy", model="y", tasks=["u"])
    _write(tmp_path / "5.toy", model="z", run="r2", done=False)
    heard: list[tuple[str, int, int]] = []
    using = _plugins()
    whole = read(tmp_path, plugins=using, on_log=lambda log, i, n: heard.append((log.name, i, n)))

    assert heard == [(f"{k + 1}.toy", k, 5) for k in range(5)]
    assert [(r.model, r.task) for r in whole] == [("y", "t"), ("y", "u"), ("x", "t")]
    about = [note for note in whole.notes if "plugin" not in note]
    assert about[0] == "left out: 5.toy was broken off"
    assert about[1].startswith("runs broken off, which another log took to their end: ")
    assert about[1].endswith("1.toy")
    assert any(note.startswith("only some items were run, ") and "(t: 4 of 9)" in note
               for note in whole.notes)  # fmt: skip
    every = read(tmp_path, plugins=using, include_incomplete=True)
    assert {r.model for r in every} == {"x", "y", "z"}
    with pytest.raises(IncompleteLogError):
        read(tmp_path / "2.toy", tmp_path / "5.toy", plugins=using)
    named = read(tmp_path / "2.toy", tmp_path / "5.toy", plugins=using, skip_broken=True)
    assert "left out: 5.toy was broken off" in named.notes
    with pytest.raises(IncompleteLogError):
        read(tmp_path / "5.toy", plugins=using, skip_broken=True)
    listed = reading.check(tmp_path, plugins=using)
    unread = [row for row in listed if row.problem == "unreadable"]
    assert [Path(row.logs[0]).name for row in unread] == ["1.toy", "5.toy"]
    assert unread[0].detail == "its run did not end: 1.toy was broken off"
    assert "5 logs checked" in listed.notes
    assert "1 log checked" in reading.check(tmp_path / "2.toy", plugins=using).notes


def test_runs_at_several_values_of_a_setting_stay(tmp_path: Path) -> None:
    """The last of each value; a setting makes no other model of one then."""
    for k, (value, when) in enumerate([("0.5", "1"), ("0.5", "2"), ("1.0", "1")]):
        settings = {"temperature": value, "top_p": "0.9"}
        _write(tmp_path / f"{k}.toy", settings=settings, when=when, x=k / 4)
    using = _plugins()
    by_value = read(tmp_path, by="temperature", plugins=using)

    assert [(r.model, float(r.scores[3, 0]), set(r.tags)) for r in by_value] == [  # pyright: ignore[reportArgumentType]
        ("m", 0.25, {"0.5"}), ("m", 0.5, {"1.0"})
    ]  # fmt: skip
    assert {r.model for r in read(tmp_path, plugins=using)} == {
        "m (temperature=0.5)", "m (temperature=1.0)"
    }  # fmt: skip
    with pytest.raises(SelectionError, match="no run has such a setting"):
        read(tmp_path, by="top_k", plugins=using)


def test_a_metric_may_have_a_name_like_that_of_a_task_and_metric(tmp_path: Path) -> None:
    """It is asked for as it is, where no task has the name before the sign."""
    metrics = ["pass@k=4", "acc,none", "f1"]
    _write(tmp_path / "m.toy", tasks=["law:x", "y"], metrics=metrics, groups=["all"])
    using = _plugins()

    def asked(*metric: str) -> list[tuple[str, str]]:
        return [(r.task, r.metric) for r in read(tmp_path, metric=metric, plugins=using)]

    both = [("law:x", "pass@k=4"), ("y", "pass@k=4")]
    assert asked("pass@k=4") == asked("*=pass@k=4") == asked("pass@*=4") == both
    assert asked("y=acc", "pass@k=4") == [("law:x", "pass@k=4"), ("y", "acc,none")]
    of_y = [("y", "pass@k=4"), ("y", "acc,none"), ("y", "f1")]
    assert asked("law:x=f1") == [("law:x", "f1"), *of_y]
    with pytest.raises(SelectionError, match="no task in the logs is called 'q'; there are: law:x"):
        asked("q=acc")


def test_unknown_names_are_told_with_names_that_a_person_would_write(tmp_path: Path) -> None:
    """Without lm-eval's default filter, the closest first."""
    metrics = ["acc,none", "accuracy", "exact_match,strict", "exact_match,flexible"]
    _write(tmp_path / "m.toy", tasks=["anatomy"], metrics=metrics, groups=["mmlu"])
    using = _plugins()

    with pytest.raises(SelectionError) as nope:
        read(tmp_path, metric="nope", plugins=using)
    assert str(nope.value) == (
        "no metric in the logs is called 'nope'; there are: acc, accuracy, exact_match,strict, "
        "exact_match,flexible"
    )
    with pytest.raises(SelectionError) as near:
        read(tmp_path, metric=["Accuracy_", "zzz"], plugins=using)
    assert str(near.value) == (
        "no metric in the logs is called 'Accuracy_' or 'zzz'; did you mean acc or accuracy? There "
        "are: acc, accuracy, exact_match,strict, exact_match,flexible"
    )
    with pytest.raises(SelectionError, match=r"did you mean anatomy\? There are: mmlu, anatomy"):
        read(tmp_path, task="anatomi", plugins=using)
    with pytest.raises(SelectionError, match="has the field 'passage'"):
        read(tmp_path, cluster="passage", plugins=using)
    with pytest.raises(SelectionError, match=r"is a log of toy\. Leave them out"):
        read(tmp_path, wide="models", plugins=using)
    _write(tmp_path / "n" / "n.toy", metrics=[])
    with pytest.raises(LogError, match=r"n\.toy holds no scores at all: no task has a metric"):
        read(tmp_path / "n", plugins=using)
    with pytest.raises(LogError, match="there is nothing to read"):
        read(plugins=using)


def test_folders_are_searched_but_for_hidden_ones_and_tables_beside_logs(tmp_path: Path) -> None:
    """Tables that are named are read; a folder of tables alone too, where their columns say it."""
    log = _write(tmp_path / "b" / "m.toy")
    hidden = [_write(tmp_path / name / "m.toy") for name in (".git", "b/.cache", "b/.__m", ".x/y")]
    (tmp_path / "b" / ".hidden.toy").write_text(log.read_text())
    (tmp_path / "a" / "d").mkdir(parents=True)
    table, matrix = tmp_path / "a" / "scores.csv", tmp_path / "a" / "d" / "wide.CSV"
    table.write_text("model,item,score\nn,1,1\nn,2,0\n")
    matrix.write_text("model,q1,q2\nn,1,0\n")
    using = _plugins()
    found = read(tmp_path, plugins=using)

    assert reading.find_logs([tmp_path], using) == [hidden[2], log]
    assert found.notes[-1] != ""
    passed = "tables beside logs are passed over (name them to read them too): "
    assert [note for note in found.notes if note.startswith(passed)] == [f"{passed}{table}"]
    both = read(tmp_path, table, plugins=using)
    assert {r.model for r in both} == {"m", "n"}
    assert not any(note.startswith(passed) for note in both.notes)
    assert [r.source.path for r in read(tmp_path / "a", plugins=using)] == [table]
    assert len(read(tmp_path / "a" / "d", wide="models", plugins=using)) == 1
    with pytest.raises(SelectionError, match=r"wide\.CSV: no column's name says that it holds"):
        read(tmp_path / "a" / "d", plugins=using)
    assert reading.find_logs([f"{tmp_path}/b/*.toy"], using) == [
        tmp_path / "b" / ".hidden.toy",
        log,
    ]
    for nowhere in (tmp_path / "z", f"{tmp_path}/z/*.toy"):
        with pytest.raises(LogError, match="does not exist: name a log, a folder of logs, or a pa"):
            read(nowhere, plugins=using)


def test_more_files_than_stay_open_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A number in all folders together."""
    monkeypatch.setattr(reading, "_MOST_OPEN", 3)
    logs = [_write(tmp_path / folder / f"{k}.toy") for folder in "ab" for k in range(4)]
    search = reading._Search(_plugins(), held := reading.ExitStack())
    with held:
        search.logs_under([tmp_path])
        assert list(search.logs) == logs
        assert search.n_held <= 3


def test_tables_of_a_folder_are_those_that_options_tell_of(tmp_path: Path) -> None:
    """Named columns as well as matrices; a mapping is for all JSON."""
    (tmp_path / "a.csv").write_text("who,what,points\nm,1,1\nm,2,0\n")
    (tmp_path / "d.parquet").mkdir()
    columns = {"model": "who", "item": "what", "score": "points"}
    rows = [{"id": "1", "x": 1}, {"id": "2", "x": 0}]
    for name in ("one.json", "two.JSONL", "three.txt"):
        lines = name.endswith("L")
        text = "\n".join(map(json.dumps, rows)) if lines else json.dumps(rows)
        (tmp_path / name).write_text(text)
    using = _plugins()

    assert [r.model for r in read(tmp_path, columns=columns, plugins=using)] == ["m"]
    mapping = {"items": "[*]", "item": ".id", "score": ".x", "model": {"value": "m"},
               "files": ["{task}.json", "{task}.JSONL"]}  # fmt: skip
    mapped = read(tmp_path, mapping=mapping, plugins=using)
    assert sorted(r.task for r in mapped) == ["one", "two"]
    (tmp_path / "e").mkdir()
    with pytest.raises(LogError, match="holds no JSON or JSONL, which a mapping would describe"):
        read(tmp_path / "e", mapping=mapping, plugins=using)
    with pytest.raises(LogError, match=r"knows \(.*\): describe JSON of other tools by a mapping"):
        read(tmp_path / "e", plugins=using)
    (tmp_path / "e" / "README.md").touch()
    with pytest.raises(LogError, match=r"name tables such as README\.md by themselves"):
        read(tmp_path / "e", plugins=using)
    with pytest.raises(LogError, match="holds no log that an installed adapter knows"):
        reading.find_logs([tmp_path / "d.parquet"], using)


def test_notes_on_votes_name_their_files_where_these_are_several(tmp_path: Path) -> None:
    """What is noted of each file is noted once."""
    votes = {"a": "x,y,x\ny,x,both\n", "b": "x,y,y\ny,z,\n", "c": "x,y,x\n"}
    for name, rows in votes.items():
        (tmp_path / f"{name}.csv").write_text("model_a,model_b,winner\n" + rows)
    whole = [reading.read_contests(tmp_path / f"{name}.csv") for name in votes]
    notes = [set(each.notes) for each in whole]
    alike = set.intersection(*notes)
    together = reading.read_contests(*(tmp_path / f"{name}.csv" for name in votes))

    for name, own in zip(votes, notes, strict=True):
        for note in own - alike:
            assert f"{tmp_path / name}.csv: {note}" in together.notes
    for note in alike:
        assert f"each of 3 files: {note}" in together.notes
    assert together.notes
    players = reading.read_contests(tmp_path / "c.csv", players=["y", "w", "x"]).players
    assert list(players) == ["y", "w", "x"]
