"""Bad input: one clear message, exit code 2, no traceback, nothing lost."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from click.testing import CliRunner

from evalstats_plugin.cli import main

FIXTURES = Path(__file__).parents[2] / "fixtures"
LOGS = FIXTURES / "logs" / "lm_eval"
VOTES = FIXTURES / "data" / "drinks" / "comparisons.json"
M2 = LOGS / "0.4.13" / "out" / "models__m2"

Run = Callable[..., "CompletedProcess[str]"]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Give a copy of one model's folder, two runs in it."""
    return shutil.copytree(M2, tmp_path / "models__m2")


def _first(folder: Path, pattern: str) -> Path:
    return min(folder.glob(pattern))


def _refused(done: CompletedProcess[str], *parts: str) -> None:
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("error: ")
    for part in parts:
        assert part in done.stderr


def test_a_folder_without_logs(run: Run, tmp_path: Path) -> None:
    """The adapters that looked are named."""
    _refused(run("report", tmp_path), str(tmp_path), "holds no log", "lm_eval")


def test_a_path_that_does_not_exist(run: Run, tmp_path: Path) -> None:
    """A typing error in the path."""
    _refused(run("report", tmp_path / "nothing"), "does not exist: name a log")


def test_ctrl_c_is_one_line_and_exit_code_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("evalstats_plugin.logs.reading.read", interrupted)
    monkeypatch.setattr("evalstats_plugin.logs.reading.find_logs", interrupted)

    done = CliRunner().invoke(main, ["report", str(M2)])

    assert done.exit_code == 130
    assert done.stderr == "error: interrupted\n"


def test_an_empty_results_file(run: Run, copy: Path) -> None:
    """0 bytes: the run was killed, or the disk was full."""
    path = _first(copy, "results_*.json")
    path.write_text("")

    _refused(run("report", copy), path.name, "is empty")


def test_a_truncated_results_file(run: Run, copy: Path) -> None:
    """Half a file is no JSON."""
    path = _first(copy, "results_*.json")
    path.write_bytes(path.read_bytes()[:2000])

    _refused(run("report", copy), path.name, "is not JSON", "cut off")


def test_a_results_file_that_is_not_utf8(run: Run, copy: Path) -> None:
    """Another encoding is named with the place."""
    path = _first(copy, "results_*.json")
    path.write_bytes(path.read_bytes().replace(b"ES Group", b"ES Gr\xfcp", 1))

    _refused(run("report", copy), path.name, "is not UTF-8 text")


def test_a_truncated_samples_file(run: Run, copy: Path) -> None:
    """The last line of a killed run names file and line."""
    path = _first(copy, "samples_es_gen_*.jsonl")
    path.write_bytes(path.read_bytes()[:-40])

    _refused(run("report", copy), path.name, "line 80, the last, is cut off")


def test_garbage_in_a_samples_file(run: Run, copy: Path) -> None:
    """A line that is no JSON is named."""
    path = _first(copy, "samples_es_gen_*.jsonl")
    lines = path.read_bytes().split(b"\n")
    lines[4] = b"garbage"
    path.write_bytes(b"\n".join(lines))

    _refused(run("report", copy), path.name, "line 5 is not JSON")


def test_a_samples_file_that_is_not_utf8(run: Run, copy: Path) -> None:
    """The part that is read must be text."""
    path = _first(copy, "samples_es_gen_*.jsonl")
    path.write_bytes(path.read_bytes().replace(b'"filter": "strict', b'"filter": "\xff\xfe', 1))

    _refused(run("report", copy), path.name, "is not UTF-8 text")


def test_an_empty_samples_file(run: Run, copy: Path) -> None:
    """The score is recovered from the results, with a note; annotate leaves such a log as it is."""
    path = _first(copy, "samples_es_gen_*.jsonl")
    path.write_text("")
    done = run("report", copy)

    assert done.returncode == 0, done
    assert f"0 of 40 items: {path.name} is cut off" in " ".join(done.stdout.split())

    results = copy / path.name.replace("samples_es_gen_", "results_").replace(".jsonl", ".json")
    before = results.read_bytes()
    done = run("annotate", results, "--in-place")

    assert done.returncode == 2, done
    assert "es_gen (0 of 40 items)" in done.stderr
    assert results.read_bytes() == before


def test_an_item_twice(run: Run, copy: Path) -> None:
    """Two runs appended to one file must not count twice."""
    path = _first(copy, "samples_es_gen_*.jsonl")
    path.write_text(path.read_text() * 2)

    _refused(run("report", copy), path.name, "line 81 repeats item 0")


def test_samples_without_results(run: Run, copy: Path) -> None:
    """They are read, and a note says what they do not tell."""
    for path in copy.glob("results_*.json"):
        path.unlink()
    done = run("report", copy, "--task", "es_gen")

    assert done.returncode == 0, done
    assert (
        "no results file of this run: its metrics are taken for means; the model is named after"
        " its folder"
    ) in " ".join(done.stdout.split())


def test_a_log_of_another_harness(run: Run, tmp_path: Path) -> None:
    """A JSON file that has `results` too."""
    log = tmp_path / "results_of_helm.json"
    log.write_text(json.dumps({"run_spec": {"name": "mmlu"}, "stats": [], "results": {}}))

    _refused(run("report", log), log.name, "is not a log that an installed adapter knows")


def test_a_log_of_lm_eval_0_3(run: Run, tmp_path: Path) -> None:
    """Its values are read; what needs items or filters says what to do."""
    _refused(
        run("annotate", LOGS / "0.3.0" / "synthetic_results.json", "-o", tmp_path / "out"),
        "lm-eval 0.3 or older", "run again with lm-eval 0.4.2 or later and --log_samples",
    )  # fmt: skip


def test_an_unknown_task_gets_the_closest_names(run: Run) -> None:
    """Tasks and groups."""
    _refused(
        run("report", M2, "--task", "es_grop"),
        "no task in the logs is called 'es_grop'",
        "es_group",
    )


def test_an_unknown_metric_gets_the_closest_names(run: Run) -> None:
    """By full name."""
    _refused(
        run("report", M2, "--task", "es_gen", "--metric", "exact"),
        "no metric in the logs is called 'exact'", "exact_match",
    )  # fmt: skip


def test_an_unknown_method_gets_the_closest_names(run: Run) -> None:
    """From the table of methods."""
    _refused(run("report", M2, "--method", "wison"), "did you mean wilson", "clopper-pearson")


@pytest.mark.parametrize("level", ["0", "1", "95", "-0.5"])
def test_an_impossible_confidence_level(run: Run, level: str) -> None:
    """95 is what people type who mean 0.95."""
    _refused(run("report", M2, "-c", level), "confidence level", "between 0 and 1")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("--bounds", "acc=1"), ("--bounds", "acc"), ("--bounds", "acc=1,0")),
        *(("--bounds", "acc=nan,1"), ("--prior", "1"), ("--prior", "0,1"), ("--prior", "nan,1")),
    ],
)
def test_a_malformed_option(run: Run, option: str, value: str) -> None:
    """The right form is shown."""
    _refused(run("report", M2, option, value), option, "write it like")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("report", M2, "--population", "²"), "--population '²' is not a number of items"),
        (("irt", "fit", M2, "--dimensions", "²"), "--dimensions '²' is not a number of dimensions"),
        (("adapt", "simulate", "--bank", "b", "--items", "²"), "--items '²' is not a list"),
        (("report", M2, "--control-variate", "--derive", "f1"), "--control-variate and --derive"),
        (("compare", M2, "--by", "x", "--family", "run"), "--by and --family"),
        (("compare", M2, "--items", "--details"), "--items and --details"),
        (("annotate", M2, "--strip", "--in-place", "-t", "es_mc"), "--strip and --task"),
        (("rank", "leaderboard", VOTES, "--anchor", "tea=nan"), "'nan', which is no number"),
    ],
)
def test_no_option_is_passed_over_or_breaks_a_command(
    run: Run, arguments: tuple[str | Path, ...], problem: str
) -> None:
    """Digits of other scripts, numbers that are none, and options that others leave no room for."""
    _refused(run(*arguments), problem)


def test_annotate_and_noise_offer_no_option_that_they_do_not_use(run: Run) -> None:
    """Tables are not annotated, and all runs have their noise."""
    offered = {name: run(name, "--help-all").stdout for name in ("annotate", "noise")}

    assert "--mapping" not in offered["annotate"]
    assert "--missing-code" not in offered["annotate"]
    assert "--runs" not in offered["noise"]


def test_an_output_that_cannot_be_written(run: Run, copy: Path) -> None:
    """A file where the folder should be; the logs are as before."""
    before = {p.name: p.read_bytes() for p in copy.iterdir()}
    blocked = copy.parent / "blocked"
    blocked.write_text("")

    _refused(run("annotate", copy, "--output", blocked), "cannot be written", "unchanged")
    assert before == {p.name: p.read_bytes() for p in copy.iterdir()}


def test_a_broken_log_can_be_left_out(run: Run, copy: Path) -> None:
    """--skip-broken goes on, says which, and exits with 1."""
    path = _first(copy, "samples_es_gen_*.jsonl")
    path.write_bytes(path.read_bytes()[:-40])
    done = run("report", copy, "--skip-broken", "--format", "json")

    assert done.returncode == 1
    whole = json.loads(done.stdout)
    assert any("left out" in note and path.name in note for note in whole["evalstats"]["notes"])
    assert {"es_mc", "es_sub_a", "es_sub_b", "es_sub_c", "es_group_unw"} == {
        row["task"] for row in whole["results"]
    }


def test_results_without_samples_get_intervals_from_counts(run: Run) -> None:
    """Only where value, stderr and n prove them; each says so."""
    done = run("report", LOGS / "0.4.13" / "out_nosamples", "--format", "json")
    rows = {row["metric"]: row for row in json.loads(done.stdout)["results"]}
    with_samples = run("report", M2, "-t", "es_mc", "-m", "acc", "--format", "json")
    [expected] = json.loads(with_samples.stdout)["results"]

    assert done.returncode == 0
    assert expected["low"] == pytest.approx(rows["acc,none"]["low"], rel=1e-12)
    assert any("counts recovered" in note for note in rows["acc,none"]["notes"])
    assert rows["brier_score,none"]["low"] is None


def test_standard_input_that_is_not_json(run: Run) -> None:
    """Nothing piped in."""
    _refused(run("report", "-"), "standard input is not JSON")


def test_questions_that_differ_under_one_id_are_never_paired(tmp_path: Path) -> None:
    """The join names both logs."""
    from evalstats_plugin import read
    from evalstats_plugin.errors import ItemConflictError

    logs = shutil.copytree(M2.parent, tmp_path / "out")
    for path in (logs / "models__m1").glob("samples_es_one_*.jsonl"):
        sample = json.loads(path.read_text())
        sample["doc_hash"] = "0" * 64
        path.write_text(json.dumps(sample) + "\n")
    found = read(logs, task="es_one")

    with pytest.raises(ItemConflictError, match=r"item 0 is one question in .*models__m0/results_"):
        found.matrix(task="es_one")
    kept = found.matrix(task="es_one", on_conflict="drop")
    assert kept.scores.shape == (3, 0, 1)
    assert kept.notes == ("es_one: 1 item dropped, not the same question",)


@pytest.mark.parametrize("command", ["report", "compare", "table", "gate --baseline m1"])
def test_a_number_of_slices_without_their_field(command: str, run: Run, copy: Path) -> None:
    """It would have no effect."""
    _refused(run(*command.split(), str(copy), "--top", "2"), "--by FIELD")
