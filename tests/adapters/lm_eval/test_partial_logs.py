"""Logs that hold less than was scored: every cut is noticed, and no correct value is lost to it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evalstats_plugin import annotate, intervals, read
from evalstats_plugin.adapters.lm_eval.layout import samples_path
from evalstats_plugin.errors import LogError, WriteError

LOGS = Path(__file__).parents[3] / "fixtures" / "logs" / "lm_eval"
M2 = LOGS / "0.4.13" / "out" / "models__m2"


def _copy_of(log: Path, folder: Path, *tasks: str) -> tuple[Path, list[Path]]:
    """Copy a results file with the samples files of some tasks."""
    data = json.loads(log.read_text())
    sources = [samples_path(log, task, data) for task in tasks]
    folder.mkdir(exist_ok=True)
    copies = [Path(shutil.copy(path, folder)) for path in (log, *sources)]
    return copies[0], copies[1:]


def _cut(samples: Path, n: int) -> None:
    lines = samples.read_bytes().splitlines(keepends=True)
    samples.write_bytes(b"".join(lines[:n]))


# 0.4.2 writes one JSON list, which cannot be cut without breaking it.
@pytest.mark.parametrize(
    ("version", "task"),
    [
        ("0.4.3", "es_gen"),
        ("0.4.7", "es_odd2"),
        ("0.4.12", "es_odd2"),
        ("0.4.13/out/models__m2", "es_odd"),
        ("0.4.13/out/models__m2", "es_repeats"),
        ("0.5.0.dev1/es_repeats", "es_repeats"),
    ],
)
def test_a_cut_at_any_line_is_noticed(version: str, task: str, tmp_path: Path) -> None:
    """Every metric of a task is marked, or has all of its items."""
    log, (samples,) = _copy_of(min((LOGS / version).rglob("results_*.json")), tmp_path, task)
    whole = samples.read_bytes().splitlines(keepends=True)
    n_whole = {r.metric: len(r.item_ids) for r in read(log, task=task)}

    for n in range(len(whole)):
        _cut(samples, n)
        found = read(log, task=task).responses
        assert not all(r.is_whole for r in found), n
        for r in found:
            missing = len(r.item_ids) < n_whole[r.metric]
            assert not (missing and r.is_whole), (n, r.metric)
            assert r.is_whole or "cut off" in " ".join(r.notes)
        samples.write_bytes(b"".join(whole))


def test_a_whole_log_is_whole() -> None:
    """The checksum that lm-eval logged is that of the lines, in every version that has one."""
    for log in LOGS.rglob("results*.json"):
        for r in read(log) if "0.3.0" not in str(log) else ():
            assert r.is_whole, (log, r.task)


@pytest.fixture
def cut(tmp_path: Path) -> Path:
    """Give a run of which one task of three in a group lost 50 of 80 items."""
    log = min(M2.glob("results_*.json"))
    copy, samples = _copy_of(log, tmp_path / "run", "es_sub_a", "es_sub_b", "es_sub_c")
    _cut(samples[2], 30)
    return copy


def test_a_cut_task_and_its_groups_say_how_many_items_are_there(cut: Path) -> None:
    """30 of 80 on the task, and by name on every group above; the group's weights stay."""
    rows = {r.task: r for r in intervals(read(cut, metric="acc"))}
    (about,) = (n for n in rows["es_sub_c"].notes if "cut off" in n)

    assert (rows["es_sub_c"].n_items, rows["es_sub_c"].n_missing) == (30, 50)
    assert about.startswith("30 of 80 items: samples_es_sub_c_")
    assert "the value over all of them is 0.9375" in about
    assert "not all that was scored: es_sub_c: 30 of 80 items" in rows["es_group"].notes
    assert rows["es_group"].n_missing == 50
    tasks = [rows[f"es_sub_{which}"].estimate for which in "abc"]
    assert rows["es_group"].estimate == pytest.approx(np.dot(tasks, [30, 12, 80]) / 122)


def test_a_mean_that_agrees_by_chance_does_not_hide_a_cut(tmp_path: Path) -> None:
    """Half of the items with the same mean are still half of the items."""
    log, (samples,) = _copy_of(max(M2.glob("results_*.json")), tmp_path, "es_sub_b")
    _cut(samples, 6)
    (r,) = read(log, task="es_sub_b", metric="acc")

    assert r.scores.mean() == r.logged == 1.0
    assert "6 of 12 items" in r.notes[0]


def test_reordered_lines_do_not_have_the_logged_checksum(tmp_path: Path) -> None:
    """All items are there, and yet the file is not the one that the run wrote."""
    log, (samples,) = _copy_of(max(M2.glob("results_*.json")), tmp_path, "es_sub_b")
    samples.write_bytes(b"".join(reversed(samples.read_bytes().splitlines(keepends=True))))
    (r,) = read(log, task="es_sub_b", metric="acc")

    assert (r.measure.n_cut, r.provenance.is_altered) == (0, True)
    assert "does not have the checksum that the run logged" in r.notes[0]


def test_annotating_a_cut_run_is_refused(cut: Path) -> None:
    """Neither a group's interval nor a corrected value is computed from a part of the items."""
    before = cut.read_bytes()

    for rescore in (False, True):
        with pytest.raises(WriteError, match=r"es_sub_c \(30 of 80 items\).*--allow-partial"):
            annotate(cut, in_place=True, rescore=rescore)
    assert cut.read_bytes() == before


def test_partial_runs_are_annotated_on_request_and_marked(cut: Path) -> None:
    """Their logged values stay: a part of the items cannot correct what all of them gave."""
    before = json.loads(cut.read_text())
    annotate(cut, in_place=True, rescore=True, allow_partial=True)
    after = json.loads(cut.read_text())
    block = after.pop("evalstats")

    assert after == before
    assert block["rescored"] == []
    assert block["partial"] == [
        {"task": "es_sub_c", "metric": metric, "n_items": 30, "n_missing": 50, "altered": True}
        for metric in ("acc,none", "acc_norm,none")
    ]


def test_whole_tasks_beside_a_cut_one_are_still_corrected(cut: Path) -> None:
    """The group above the cut task keeps its value."""
    data = json.loads(cut.read_text())
    for key in ("results", "groups"):
        data[key].setdefault("es_sub_a", {})
    data["groups"].pop("es_sub_a")
    data["results"]["es_sub_a"]["acc,none"] = 0.5
    cut.write_text(json.dumps(data, indent=2, ensure_ascii=False))
    annotate(cut, in_place=True, rescore=True, allow_partial=True)
    block = json.loads(cut.read_text())["evalstats"]

    assert {change["task"] for change in block["rescored"]} == {"es_sub_a"}


def _with_values(folder: Path, value: float, stderr: Any, n: int) -> Path:
    """Write results without samples that have one value."""
    (source,) = (LOGS / "0.4.13" / "out_nosamples").rglob("results_*.json")
    data = json.loads(source.read_text())
    data["results"]["es_mc"] |= {"acc,none": value, "acc_stderr,none": stderr, "sample_len": n}
    data["n-samples"]["es_mc"] = {"original": n, "effective": n}
    place = folder / source.name
    place.write_text(json.dumps(data))
    return place


@pytest.mark.parametrize(
    ("value", "stderr", "problem"),
    [
        (0.5, 0.0, "stderr 0 means that each of the 100 items scored 0.5"),
        (0.5, 0.2, "stderr 0.2 is more than 0.0502519"),
        (0.5, 0.05025189076296059, ""),
        (0.5, 0.03, ""),  # partial credit
        (1.0, 0.0, ""),
        (0.5, "N/A", ""),
    ],
)
def test_a_value_and_a_stderr_that_contradict_each_other_are_noted(
    value: float, stderr: Any, problem: str, tmp_path: Path
) -> None:
    """Without samples too: a rescored value with the stderr of before, lm-eval's issue 3966."""
    (r,) = read(_with_values(tmp_path, value, stderr, 100), task="es_mc", metric="acc")
    (found,) = [note for note in r.notes if note.startswith("mismatch")] or [""]

    assert found.startswith(f"mismatch: {problem}" if problem else "")
    assert bool(found) == bool(problem)


def test_both_a_wrong_value_and_a_wrong_stderr_are_named(tmp_path: Path) -> None:
    """Against the samples, each by its own number."""
    log, _ = _copy_of(max(M2.glob("results_*.json")), tmp_path, "es_mc")
    data = json.loads(log.read_text())
    data["results"]["es_mc"] |= {"acc,none": 0.5, "acc_stderr,none": 0.0}
    log.write_text(json.dumps(data))
    (r,) = read(log, task="es_mc", metric="acc")

    assert r.notes == (
        "mismatch: the log has value 0.5 where its items give 0.883333 and stderr 0 where its "
        "items give 0.0417936",
    )


def test_a_limited_run_does_not_replace_a_longer_one(tmp_path: Path) -> None:
    """The last run of m2 with --limit 7 stays in the background, whatever its time."""
    limited = next((LOGS / "0.4.13" / "out_limit").rglob("results_*.json"))
    for log in (max(M2.glob("results_*.json")), limited):
        _copy_of(log, tmp_path, "es_mc")
    found = read(tmp_path, task="es_mc", metric="acc")

    assert [len(r.item_ids) for r in found] == [60]
    assert found.notes == (
        "the latest run is partial, a longer one is shown (--runs all shows each): es_mc by "
        "models/m2 (7 of 60 items)",
    )
    assert {len(r.item_ids) for r in read(tmp_path, task="es_mc", runs="all")} == {7, 60}


def test_copies_of_a_run_are_not_epochs(tmp_path: Path) -> None:
    """The same file in two folders counts once."""
    for folder in ("a", "b"):
        _copy_of(max(M2.glob("results_*.json")), tmp_path / folder, "es_mc")
    found = read(tmp_path, task="es_mc", metric="acc", runs="epochs")

    assert [r.scores.shape for r in found] == [(60, 1)]
    assert "copies of a run, not counted again" in found.notes[0]


def test_samples_alone_are_read(tmp_path: Path) -> None:
    """Without the results file: the folder names the model, and metrics are taken for means."""
    log, (samples,) = _copy_of(max(M2.glob("results_*.json")), tmp_path / "models__m2", "es_mc")
    (expected,) = read(log, task="es_mc", metric="acc")
    log.unlink()
    (r,) = read(samples, metric="acc")

    assert (r.model, r.task, r.metric) == ("models__m2", "es_mc", "acc,none")
    assert r.source.when == expected.source.when
    np.testing.assert_array_equal(r.scores, expected.scores)
    assert "no results file of this run: its metrics are taken for means" in r.notes[0]
    assert read(samples, metric="acc", model_name="my model").responses[0].model == "my model"


@pytest.mark.parametrize("version", ["0.4.3", "0.4.7"])
def test_filters_of_samples_alone_are_kept_apart(version: str, tmp_path: Path) -> None:
    """Before 0.4.7 only the results file has their names."""
    log, (samples,) = _copy_of(
        next((LOGS / version).rglob("results_*.json")), tmp_path / "m", "es_gen"
    )
    expected = sorted(r.scores.sum() for r in read(log, task="es_gen"))
    log.unlink()

    assert sorted(r.scores.sum() for r in read(samples)) == expected


@pytest.mark.parametrize("name", ["{0} (1){1}", "{0}(2){1}", "{0} - Copy{1}"])
def test_files_that_a_browser_renamed_are_found(name: str, tmp_path: Path) -> None:
    """Results and samples still share their time."""
    for path in _copy_of(max(M2.glob("results_*.json")), tmp_path, "es_mc"):
        for each in path if isinstance(path, list) else [path]:
            each.rename(each.with_name(name.format(each.stem, each.suffix)))
    (r,) = read(tmp_path, task="es_mc", metric="acc")

    assert (r.model, r.scores.shape, r.notes) == ("models/m2", (60, 1), ())


@pytest.mark.parametrize("as_list", [False, True])
def test_details_of_the_open_llm_leaderboard_end_in_json(tmp_path: Path, *, as_list: bool) -> None:
    """With lm-eval's results beside them, and alone."""
    log, (samples,) = _copy_of(min(M2.glob("results_*.json")), tmp_path, "es_mc")
    whole = {r.metric: r.scores.tolist() for r in read(log, task="es_mc")}
    lines = [json.loads(line) for line in samples.read_text().splitlines()]
    samples.unlink()
    details = samples.with_suffix(".json")
    details.write_text(
        json.dumps(lines, indent=2) if as_list else "\n".join(map(json.dumps, lines)) + "\n"
    )

    assert {r.metric: r.scores.tolist() for r in read(tmp_path, task="es_mc")} == whole
    log.unlink()
    assert {r.metric: r.scores.tolist() for r in read(tmp_path)} == whole


def test_lmms_eval_puts_the_time_first(tmp_path: Path) -> None:
    """Its files are lm-eval's under other names."""
    log, (samples,) = _copy_of(max(M2.glob("results_*.json")), tmp_path, "es_mc")
    log.rename(tmp_path / "20260102_030405_results.json")
    samples.rename(tmp_path / "20260102_030405_samples_es_mc.jsonl")
    (r,) = read(tmp_path, task="es_mc", metric="acc")

    assert (r.scores.shape, r.source.when) == ((60, 1), "20260102_030405")


@pytest.mark.parametrize("separators", [(", ", ": "), (",", ":")])
def test_keys_in_any_order_are_recognised(separators: tuple[str, str], tmp_path: Path) -> None:
    """As `jq -S` and builders of data sets write them, under a name of their own."""
    log, (samples,) = _copy_of(max(M2.glob("results_*.json")), tmp_path, "es_mc")
    for path in (log, samples):
        records = (
            [json.loads(line) for line in path.read_text().splitlines()]
            if (path == samples)
            else [json.loads(path.read_text())]
        )
        path.write_text(
            "".join(f"{json.dumps(r, sort_keys=True, separators=separators)}\n" for r in records)
        )
    renamed = log.rename(tmp_path / f"run_{log.stem.removeprefix('results_')}.json")

    assert [r.scores.shape for r in read(tmp_path, task="es_mc", metric="acc")] == [(60, 1)]
    renamed.unlink()
    alone = samples.rename(tmp_path / "mine.jsonl")
    assert [r.task for r in read(alone, metric="acc")] == ["mine"]


def test_damage_inside_a_line_is_an_error(tmp_path: Path) -> None:
    """As before: nobody can say what the rest of the line was."""
    log, (samples,) = _copy_of(max(M2.glob("results_*.json")), tmp_path, "es_mc")
    samples.write_bytes(samples.read_bytes()[:-100])

    with pytest.raises(LogError, match="the last, is cut off"):
        read(log)


def test_groups_of_logs_without_sizes_are_weighted_by_their_items(tmp_path: Path) -> None:
    """Before 0.4.3 lm-eval logged no number of items."""
    log = shutil.copytree(LOGS / "0.4.2", tmp_path / "logs") / "results.json"
    before = json.loads(log.read_text())
    data = json.loads(log.read_text())
    for name in ("es_sub_a", "es_group"):
        data["results"][name]["acc,none"] = 0.9
    log.write_text(json.dumps(data))
    annotate(log, in_place=True, rescore=True)
    after = json.loads(log.read_text())["results"]

    for name in ("es_sub_a", "es_group"):
        for key in ("acc,none", "acc_stderr,none"):
            assert after[name][key] == pytest.approx(before["results"][name][key], rel=1e-9)
