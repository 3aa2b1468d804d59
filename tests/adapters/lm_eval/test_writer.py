"""Annotations in lm-eval's results files: invisible to its readers, gone without a trace."""

from __future__ import annotations

import json
import shutil
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from evalstats_plugin import annotate, read, strip
from evalstats_plugin.errors import WriteError
from evalstats_plugin.logs.reading import find_logs
from evalstats_plugin.plugins import load_plugins

LOGS = Path(__file__).parents[3] / "fixtures" / "logs" / "lm_eval"
VERSIONS = sorted(p for p in LOGS.iterdir() if p.name != "0.3.0")
M2 = LOGS / "0.4.13" / "out" / "models__m2"


def _digests(folder: Path) -> dict[str, str]:
    return {
        str(p.relative_to(folder)): sha256(p.read_bytes()).hexdigest()
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Give a copy of one model's folder, two runs in it."""
    return shutil.copytree(M2, tmp_path / "models__m2")


@pytest.mark.parametrize("version", VERSIONS, ids=lambda p: p.name)
def test_annotating_twice_is_the_same_and_stripping_gives_the_original(
    version: Path, tmp_path: Path
) -> None:
    """To the byte, for every version; samples are never touched, no file is added."""
    folder = shutil.copytree(version, tmp_path / "logs")
    before = _digests(folder)
    logs = annotate(folder, in_place=True)
    once = _digests(folder)
    annotate(folder, in_place=True)
    twice = _digests(folder)
    strip(folder, in_place=True)

    assert once == twice
    assert before == _digests(folder)
    changed = {name for name in before if before[name] != once[name]}
    assert {str(p.relative_to(folder)) for p in logs} == changed


def test_the_block_says_what_was_read_and_how(copy: Path) -> None:
    """Schema version, level, seed, one record per score and group, and fingerprints; no time."""
    log = annotate(copy, in_place=True)[0]
    block = json.loads(log.read_text())["evalstats"]
    records = {(i["task"], i["metric"]): i for i in block["intervals"]}
    original = next(s for s in block["sources"] if s["file"] == log.name)
    samples = next(s for s in block["sources"] if s["file"].startswith("samples_es_mc_"))

    assert (1, 0.95, 0) == (block["schema_version"], block["confidence_level"], block["seed"])
    assert "group" == records["es_group", "acc,none"]["kind"]
    assert 40 == records["es_gen", "exact_match,strict-match"]["n_items"]
    assert sha256((M2 / log.name).read_bytes()).hexdigest() == original["sha256"]
    assert sha256((M2 / samples["file"]).read_bytes()).hexdigest() == samples["sha256"]
    for record in block["intervals"]:
        if record["low"] is not None:
            assert record["low"] <= record["estimate"] <= record["high"]


def test_every_list_of_the_block_is_of_one_type(copy: Path) -> None:
    """Mixed lists make `datasets` fail on the whole file."""
    block = json.loads(annotate(copy, in_place=True)[0].read_text())["evalstats"]
    for name in ("intervals", "sources"):
        assert 1 == len({tuple(record) for record in block[name]})
    for column in block["intervals"][0]:
        types = {type(record[column]) for record in block["intervals"]} - {type(None)}
        assert len(types) <= 1, column


def test_lm_evals_own_readers_see_no_difference(copy: Path) -> None:
    """Its table, its search for the latest file, and `datasets` work as before."""
    import datasets
    from lm_eval.utils import get_latest_filename, get_results_filenames, make_table

    files = sorted(str(p) for p in copy.iterdir())
    plain = {log: json.loads(log.read_text()) for log in find_logs([copy], load_plugins())}
    annotate(copy, in_place=True)

    assert files == sorted(str(p) for p in copy.iterdir())
    assert 2 == len(get_results_filenames(files))
    assert max(plain) == Path(get_latest_filename(get_results_filenames(files)))
    for log, before in plain.items():
        after = json.loads(log.read_text())
        for column in ("results", "groups"):
            assert make_table(before, column) == make_table(after, column)
        loaded = datasets.Dataset.from_json(str(log), cache_dir=str(copy / ".cache"))
        assert "evalstats" in loaded.column_names  # pyright: ignore[reportAttributeAccessIssue]


def test_copies_are_laid_out_as_the_originals(tmp_path: Path) -> None:
    """--output leaves the logs alone."""
    source = LOGS / "0.4.13" / "out"
    before = _digests(source)
    written = annotate(source, output=tmp_path / "copies")

    assert 6 == len(written)
    assert {p.relative_to(tmp_path / "copies") for p in written} == {
        p.relative_to(source) for p in find_logs([source], load_plugins())
    }
    assert before == _digests(source)


def test_a_file_of_another_layout_comes_back_to_the_byte(tmp_path: Path) -> None:
    """What people dump themselves has no indent, or another."""
    data = json.loads(next(M2.glob("results_*.json")).read_text())
    for indent in (None, 4):
        log = tmp_path / f"dump{indent}.json"
        log.write_text(json.dumps(data, indent=indent) + "\n")
        before = log.read_bytes()
        annotate(log, in_place=True)
        annotate(log, in_place=True)

        assert json.loads(log.read_text())["evalstats"]["intervals"]
        strip(log, in_place=True)
        assert before == log.read_bytes()


def test_output_and_in_place_exclude_each_other(copy: Path) -> None:
    """Neither and both are refused, before anything is read."""
    with pytest.raises(WriteError, match="nowhere to write to"):
        annotate(copy)
    with pytest.raises(WriteError, match="do not go together"):
        annotate(copy, output=copy, in_place=True)


def test_logs_that_would_overwrite_each_other_are_refused(tmp_path: Path) -> None:
    """Two single files of one name have no common folder to be told apart by."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        shutil.copy(LOGS / "0.4.2" / "results.json", tmp_path / name)

    with pytest.raises(WriteError, match="would overwrite each other"):
        annotate(tmp_path / "a/results.json", tmp_path / "b/results.json", output=tmp_path / "c")


@pytest.mark.parametrize(
    ("layout", "ends"),
    [
        ({"indent": 1}, "\n"),
        ({"indent": 4, "sort_keys": True}, "\r\n"),
        ({}, "\n"),
        ({"separators": (",", ":")}, "\r\n"),
    ],
    ids=str,
)
def test_a_file_that_another_tool_rewrote_is_stripped(
    copy: Path, layout: dict[str, Any], ends: str
) -> None:
    """It is then what that tool makes of the original, and can be annotated again."""
    log = min(copy.glob("results_*.json"))

    def rewritten() -> bytes:
        text = json.dumps(json.loads(log.read_text()), ensure_ascii=False, **layout) + "\n"
        return text.replace("\n", ends).encode()

    original = rewritten()
    annotate(log, in_place=True)
    log.write_bytes(rewritten())
    annotate(log, in_place=True)

    assert json.loads(log.read_text())["evalstats"]["intervals"]
    strip(log, in_place=True)
    assert log.read_bytes() == original


def test_of_a_layout_of_its_own_the_values_come_back(tampered: Path) -> None:
    """With the replaced values, and a warning."""
    logged = json.loads(tampered.read_text())
    annotate(tampered, in_place=True, rescore=True)
    rescored = json.loads(tampered.read_text())
    text = json.dumps(rescored | {"added by hand": 1}, separators=(", ", " : "))
    tampered.write_text(text)

    assert rescored["results"] != logged["results"]
    with pytest.warns(UserWarning, match="the same values as before, in another layout"):
        strip(tampered, in_place=True)
    assert json.loads(tampered.read_text()) == logged | {"added by hand": 1}


@pytest.fixture
def tampered(copy: Path) -> Path:
    """Give a log whose samples say otherwise: two more right answers in es_sub_b and es_mc."""
    log = min(copy.glob("results_*.json"))
    stamp = log.stem.removeprefix("results_")
    for task in ("es_sub_a", "es_gen"):
        path = copy / f"samples_{task}_{stamp}.jsonl"
        lines = [json.loads(line) for line in path.read_text().split("\n") if line]
        for line in lines[:20]:
            for metric in line["metrics"]:
                line[metric] = 0.0
        path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    return log


def _results(log: Path) -> dict[str, Any]:
    return json.loads(log.read_text())["results"]


def test_a_mismatch_is_reported_not_hidden(tampered: Path) -> None:
    """Without --rescore the logged values stay, and the interval's note tells."""
    before = _results(tampered)
    annotate(tampered, in_place=True)
    rows = {(r.task, r.metric): r for r in read(tampered)}

    assert before == _results(tampered)
    assert any("mismatch" in n for n in rows["es_gen", "exact_match,strict-match"].notes)


def test_rescoring_replaces_values_and_all_that_depends_on_them(tampered: Path) -> None:
    """Value, stderr, the group around it and the group's copy; nothing else."""
    original = tampered.read_bytes()
    before = json.loads(original)
    annotate(tampered, in_place=True, rescore=True)
    first = tampered.read_bytes()
    after = json.loads(first)
    block = after["evalstats"]
    keys = {(c["task"], c["key"]) for c in block["rescored"]}

    assert before["results"]["es_sub_a"]["acc,none"] > after["results"]["es_sub_a"]["acc,none"]
    assert {
        (task, key)
        for task in ("es_sub_a", "es_group")
        for key in ("acc,none", "acc_stderr,none", "acc_norm,none", "acc_norm_stderr,none")
    } <= keys
    assert after["groups"]["es_group"] == after["results"]["es_group"]
    changed = {
        (task, key)
        for task, values in before["results"].items()
        for key, value in values.items()
        if repr(value) != repr(after["results"][task][key])
    }
    assert keys == changed
    subtasks = [after["results"][t] for t in ("es_sub_a", "es_sub_b", "es_sub_c")]
    right = sum(t["acc,none"] * t["sample_len"] for t in subtasks)
    assert after["results"]["es_group"]["acc,none"] == pytest.approx(right / 122)
    for change in block["rescored"]:
        assert json.loads(change["logged"]) == before["results"][change["task"]][change["key"]]

    annotate(tampered, in_place=True, rescore=True)
    assert first == tampered.read_bytes()
    strip(tampered, in_place=True)
    assert original == tampered.read_bytes()


def test_rescoring_an_honest_log_changes_nothing(copy: Path) -> None:
    """Also where scores are float32, infinite, or missing with a bootstrapped stderr."""
    for log in annotate(copy, in_place=True, rescore=True):
        assert [] == json.loads(log.read_text())["evalstats"]["rescored"]


def test_rescoring_while_annotating_runs_nothing_of_the_log(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes means of logged scores of items; patterns and functions of a log stay text."""
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    (results, *_) = sorted(copy.glob("results*.json"))
    data = json.loads(results.read_text())
    for config in data["configs"].values():
        config["doc_to_text"] = "{{ ''.__class__.__mro__ }}"
        config["process_results"] = "!function os.abort"
        steps = [{"function": "regex", "regex_pattern": "(a+)+$"}]
        config["filter_list"] = [{"name": "none", "filter": steps}]
    for values in data["results"].values():
        values.update({key: 0.123 for key in values if key == "acc,none"})
    results.write_text(json.dumps(data))

    annotate(results, in_place=True, rescore=True)

    written = json.loads(results.read_text())
    assert written["evalstats"]["rescored"]
    assert written["configs"] == data["configs"]
