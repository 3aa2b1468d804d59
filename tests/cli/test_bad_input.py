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


RESULTS, SAMPLES = "results_*.json", "samples_es_gen_*.jsonl"
BROKEN: dict[str, tuple[str, Callable[[bytes], bytes], str]] = {
    "results: nothing": (RESULTS, lambda _: b"", "is empty"),
    "results: half of it": (RESULTS, lambda text: text[:2000], "is not JSON"),
    "results: cut off": (RESULTS, lambda text: text[:2000], "cut off"),
    "results: Latin-1": (
        RESULTS, lambda text: text.replace(b"ES Group", b"ES Gr\xfcp", 1), "is not UTF-8 text",
    ),
    "samples: cut off": (SAMPLES, lambda text: text[:-40], "line 80, the last, is cut off"),
    "samples: garbage": (
        SAMPLES, lambda text: text.replace(text.split(b"\n")[4], b"garbage"), "line 5 is not JSON",
    ),
    "samples: no text": (
        SAMPLES, lambda text: text.replace(b'"filter": "strict', b'"filter": "\xff\xfe', 1),
        "is not UTF-8 text",
    ),
    "samples: two runs in one file": (
        SAMPLES, lambda text: text * 2, "line 81 repeats item 0"
    ),
}  # fmt: skip
"""Which file is broken, how, and what is said of it."""


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_file_is_named_with_the_place(run: Run, copy: Path, kind: str) -> None:
    """A run was killed, a disk was full, a file has another encoding, or was appended to."""
    pattern, broken, said = BROKEN[kind]
    path = _first(copy, pattern)
    path.write_bytes(broken(path.read_bytes()))

    _refused(run("report", copy), path.name, said)


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


def test_a_log_of_lm_eval_0_3(run: Run, copy: Path, tmp_path: Path) -> None:
    """Its values are read; what needs items or filters says what to do."""
    _refused(
        run("annotate", LOGS / "0.3.0" / "synthetic_results.json", "-o", tmp_path / "out"),
        "lm-eval 0.3 or older", "run again with lm-eval 0.4.2 or later and --log_samples",
    )  # fmt: skip
    old = (LOGS / "0.3.0" / "synthetic_results.json").read_text()
    for k in range(5):
        (copy / f"old_{k}.json").write_text(old.replace("pythia-70m", f"pythia-{k}m"))
    done = run("annotate", copy, "-o", tmp_path / "out")
    assert done.returncode == 1, done
    assert 1 == done.stderr.count("left out: "), "a line for each log, alike but for its name"
    assert "so are 4 other logs: " in done.stderr

    bare = LOGS / "0.3.0" / "synthetic_results.json"
    _refused(
        run("report", bare, "--by", "backend"),
        "slices are of items, and these are values without items",
    )
    # It advised the unpaired design, which was refused too.
    _refused(run("power", bare, "-d", "0.1"), "these are values without items", "--discordance")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--task", "es_grop"), ("no task in the logs is called 'es_grop'", "es_group")),
        (("-t", "es_gen", "-m", "exact"), ("no metric in the logs is called", "exact_match")),
        (("--method", "wison"), ("did you mean wilson", "clopper-pearson")),
        (("-c", "95"), ("between 0 and 1: write 0.95\n",)),
        *((("-c", level), ("write 0.95, or another share",)) for level in ("0", "1", "1.5", "-1")),
        *((("--bounds", text), ("--bounds", "write it like"))
          for text in ("acc=1", "acc", "acc=1,0", "acc=nan,1")),
        *((("--prior", text), ("--prior", "write it like")) for text in ("1", "0,1", "nan,1")),
    ],
)  # fmt: skip
def test_names_and_values_that_cannot_be(
    run: Run, options: tuple[str, ...], said: tuple[str, ...]
) -> None:
    """The closest names, or the right form, are shown; 95 is what people type who mean 0.95."""
    _refused(run("report", M2, *options), *said)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("report", "-"), "standard input is not JSON"),
        *(((*command, M2, "--top", "2"), "--by FIELD")
          for command in (("report",), ("compare",), ("table",), ("gate", "--baseline", "m1"))),
        (("report", M2, "--population", "²"), "--population '²' is not a number of items"),
        (("irt", "fit", M2, "--dimensions", "²"), "--dimensions '²' is not a number of dimensions"),
        (("adapt", "simulate", "--bank", "b", "--items", "²"), "--items '²' is not a list"),
        (("report", M2, "--control-variate", "--derive", "f1"), "--control-variate and --derive"),
        (("compare", M2, "--by", "x", "--family", "run"), "--by and --family"),
        (("compare", M2, "--items", "--details"), "--items and --details"),
        (("annotate", M2, "--strip", "--in-place", "-t", "es_mc"), "--strip and --task"),
        (("rank", "leaderboard", VOTES, "--anchor", "tea=nan"), "'nan', which is no number"),
    ],
)  # fmt: skip
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
