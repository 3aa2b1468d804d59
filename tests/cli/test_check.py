"""``evalstats-plugin check``: exit code 1 with findings, in every format."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]

LOGS = Path(__file__).parents[2] / "fixtures" / "logs"
OUT = LOGS / "lm_eval" / "0.4.13" / "out"


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Give logs of two models: one samples file is cut, one stderr is of another scoring."""
    folder = tmp_path / "logs"
    for model in ("models__m1", "models__m2"):
        log = max((OUT / model).glob("results_*.json"))
        (folder / model).mkdir(parents=True)
        stamp = log.stem.removeprefix("results_")
        for path in (log, log.with_name(f"samples_es_mc_{stamp}.jsonl")):
            shutil.copy(path, folder / model)
    (samples,) = (folder / "models__m1").glob("samples_*")
    samples.write_bytes(b"".join(samples.read_bytes().splitlines(keepends=True)[:20]))
    (results,) = (folder / "models__m2").glob("results_*")
    data = json.loads(results.read_text())
    data["results"]["es_mc"]["acc_stderr,none"] = 0.0
    results.write_text(json.dumps(data))
    return folder


def test_findings_are_exit_code_1(run: Run, logs: Path) -> None:
    """Each names the task, the model and what is wrong, and the notes count the logs."""
    done = run("check", logs, "-t", "es_mc")

    assert done.returncode == 1
    shown = " ".join(done.stdout.split())
    assert "incomplete: a log holds fewer items than its run scored" in shown
    assert "20 of 60 items are there: run it again, or bring back the whole file" in shown
    assert "acc,none: the log has stderr 0 where its items give 0.0417936" in shown
    assert "2 logs checked" in shown


def test_nothing_wrong_is_exit_code_0(run: Run) -> None:
    """The bundled runs of three models on one task."""
    done = run("check", OUT, "-t", "es_mc")

    assert done.returncode == 0
    assert "Nothing found that is wrong." in done.stdout


@pytest.mark.parametrize(
    ("asked", "said"),
    [(("-t", "es_mk"), "no task in the logs is called 'es_mk'; did you mean es_mc"),
     (("-m", "bleau"), "no metric in the logs is called 'bleau'; did you mean bleu?")],
)  # fmt: skip
def test_a_name_that_no_log_has_is_refused(run: Run, asked: tuple[str, str], said: str) -> None:
    """Nothing was checked."""
    done = run("check", OUT, *asked)

    assert done.returncode == 2
    assert said in done.stderr


def test_json_has_every_log(run: Run, logs: Path) -> None:
    """Rows are findings, with the fields of the record."""
    done = run("check", logs, "-t", "es_mc", "--format", "json")

    rows = json.loads(done.stdout)["results"]
    assert done.returncode == 1
    assert [row["problem"] for row in rows] == ["incomplete", "contradiction"]
    assert set(rows[0]) == {"problem", "task", "models", "detail", "logs"}
    assert [Path(log).parent.name for log in rows[0]["logs"]] == ["models__m1"]


@pytest.mark.parametrize("form", ["markdown", "csv"])
def test_other_formats_have_a_line_for_each_finding(run: Run, logs: Path, form: str) -> None:
    """For documents and spreadsheets."""
    done = run("check", logs, "-t", "es_mc", "--format", form)

    assert done.returncode == 1
    assert done.stdout.count("es_mc") >= 2


def test_csv_without_findings_has_their_columns(run: Run) -> None:
    """Not those of scores."""
    done = run("check", OUT, "-t", "es_mc", "--format", "csv")

    assert (done.returncode, done.stdout) == (0, "problem,task,models,detail,logs\n")


def test_logs_that_cannot_be_read_are_findings(run: Run, logs: Path) -> None:
    """And not the end of the audit."""
    (results,) = (logs / "models__m1").glob("results_*")
    results.write_bytes(results.read_bytes()[:1000])
    done = run("check", logs, "-t", "es_mc")

    assert done.returncode == 1
    assert "unreadable: a log cannot be read" in " ".join(done.stdout.split())
    assert "contradiction" in done.stdout


def test_text_of_logs_does_not_reach_the_terminal_raw(run: Run, logs: Path) -> None:
    """A model may be called anything."""
    (results,) = (logs / "models__m2").glob("results_*")
    data = json.loads(results.read_text())
    data["config"]["model_args"] = {"pretrained": "\x1b[31mm[bold]2"}
    results.write_text(json.dumps(data))
    done = run("check", logs, "-t", "es_mc")

    assert "\x1b" not in done.stdout
    assert "[bold]2" in done.stdout


def test_a_report_names_differences_between_models(run: Run, logs: Path) -> None:
    """In a short note that says where to look."""
    (results,) = (logs / "models__m2").glob("results_*")
    data = json.loads(results.read_text())
    data["n-shot"]["es_mc"] = 5
    results.write_text(json.dumps(data))
    for command in ("report", "compare"):
        done = run(command, logs, "-t", "es_mc", "-m", "acc")

        shown = " ".join(done.stdout.split())
        assert "asked with different settings of the task" in shown, done.stderr
        assert "`evalstats-plugin check` says which" in shown


def test_runs_without_scores_and_invalidated_answers_are_findings(run: Run) -> None:
    """Nothing was scored of a run that only asked; a person has marked answers as invalid."""
    asked = LOGS / "lm_eval" / "0.4.13" / "out_predict_only"
    reviewed = LOGS / "inspect_ai" / "0.3.285" / "reviewed"
    rows = json.loads(run("check", asked, reviewed, "--format", "json").stdout)["results"]

    assert [("unscored", "es_gen")] * 2 + [("invalidated", "arith")] == [
        (row["problem"], row["task"]) for row in rows
    ]
    assert "--predict_only: nothing was scored" in rows[0]["detail"]
    assert "match: 2 invalidated samples are left out" == rows[2]["detail"]


def test_tables_and_json_of_any_tool_are_checked_as_they_are_read(run: Run, tmp_path: Path) -> None:
    """Notes of other commands name this one, which took no --columns, --wide or --mapping."""
    table, matrix, log = (tmp_path / name for name in ("t.csv", "m.csv", "o.json"))
    table.write_text("model,item,mark\na,1,1\na,2,-1\nb,1,1\nb,2,0\n")
    matrix.write_text("item,a,b\n1,1,1\n2,-1,0\n")
    log.write_text('{"r": [{"id": 1, "ok": 1}, {"id": 2, "ok": -1}]}')
    toml = tmp_path / "m.toml"
    toml.write_text('items = "r[*]"\nitem = ".id"\nscore = ".ok"\n')
    for path, *options in (
        (table, "--columns", "score=mark"), (matrix, "--wide", "items"), (log, "--mapping", toml)
    ):  # fmt: skip
        done = run("check", path, *options, "--missing-code", "-1", "--format", "json")

        assert 1 == done.returncode, done.stderr
        assert "1 of 2 items" in done.stdout
