"""``evalstats-plugin export``, and tables on the command line."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from click.testing import CliRunner

from evalstats_plugin.cli import main

Run = Callable[..., "CompletedProcess[str]"]

LOGS = Path(__file__).parents[2] / "fixtures" / "logs"
M0 = LOGS / "lm_eval" / "0.4.13" / "out" / "models__m0"


def test_a_log_becomes_a_table_and_is_reported_alike(run: Run, tmp_path: Path) -> None:
    """The same estimate and interval from the table; notes go to standard error."""
    output = tmp_path / "new" / "scores.csv"
    done = run("export", M0, "--task", "es_bin", "-o", output)
    assert (done.returncode, done.stdout) == (0, f"{output}\n")
    assert "note: 2 of the responses have no scores of items" in done.stderr
    rows = [
        json.loads(run("report", path, "-t", "es_bin", "-m", "acc", "--format", "json").stdout)
        for path in (M0, output)
    ]
    numbers = [[r[k] for k in ("estimate", "low", "high")] for [r] in (x["results"] for x in rows)]

    assert numbers[0] == numbers[1]


def test_quiet_says_nothing(run: Run, tmp_path: Path) -> None:
    """Nothing but the file."""
    done = run("export", M0, "-t", "es_one", "-o", tmp_path / "t.jsonl", "--quiet")

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert json.loads((tmp_path / "t.jsonl").read_text())["task"] == "es_one"


def test_the_shared_schema_with_our_intervals(run: Run, tmp_path: Path) -> None:
    """One command from a harness's log to an aggregate file with uncertainty."""
    done = run(
        "export", M0, "-t", "es_bin", "--to", "every-eval-ever", "-o", tmp_path, "--intervals",
        "--organization", "ACME", "--relationship", "third_party",
    )  # fmt: skip
    [path] = done.stdout.splitlines()
    found = json.loads(Path(path).read_text())
    [scored] = [
        r for r in found["evaluation_results"] if r["metric_config"]["metric_name"] == "acc,none"
    ]

    assert done.returncode == 0
    assert found["source_metadata"]["evaluator_relationship"] == "third_party"
    interval = scored["score_details"]["uncertainty"]["confidence_interval"]
    assert interval["lower"] < scored["score_details"]["score"] < interval["upper"]
    assert interval["confidence_level"] == 0.95


def test_a_table_of_anyones_is_compared_and_made_a_matrix(run: Run, tmp_path: Path) -> None:
    """Columns are named on the command line; the matrix is read again by its option."""
    table = tmp_path / "mine.csv"
    rows = [
        f"{m};q{j};{'yes' if j % k else 'no'}" for m, k in (("A", 2), ("B", 5)) for j in range(40)
    ]
    table.write_text("\n".join(["who;what;ok", *rows]) + "\n")
    columns = ("--columns", "model=who,item=what", "--columns", "score=ok")
    compared = run("compare", table, *columns, "--format", "json")
    matrix = run("export", table, *columns, "--matrix", "-o", tmp_path / "m.csv")
    report = run("report", tmp_path / "m.csv", "--wide", "models", "--format", "csv", "-q")

    [row] = json.loads(compared.stdout)["results"]
    assert (row["model_a"], row["model_b"], row["n_items"]) == ("A", "B", 40)
    assert row["difference"] == pytest.approx(32 / 40 - 20 / 40)
    assert matrix.returncode == 0
    estimates = {
        r["model"]: float(r["estimate"]) for r in csv.DictReader(report.stdout.splitlines())
    }
    assert estimates == {"A": 0.5, "B": 0.8}


@pytest.mark.parametrize(
    ("output", "arguments", "message"),
    [
        ("x.foo", (), "has no ending of a known format"),
        ("x", ("--to", "cvs"), "did you mean csv"),
        ("x.csv", ("--organization", "me"), "no option of csv is called 'organization'"),
        ("x.csv", ("--intervals",), "--intervals does not go with --to csv"),
        ("x.csv", ("--columns", "item"), "does not name a part and its column"),
        ("x.csv", ("-t", "es_one", "--columns", "item=x"), "about tables"),
        ("x.csv", ("-t", "es_ona"), "did you mean es_one"),
        ("x.csv/x.csv", ("-t", "es_one"), "cannot be written"),
        ("x.csv", ("--relationship",), "requires an argument"),
    ],
)
def test_bad_input_is_one_message(
    tmp_path: Path, output: str, arguments: tuple[str, ...], message: str
) -> None:
    """Exit code 2, and nothing written."""
    (tmp_path / "x.csv").write_text("as it was")
    chosen = ["export", str(M0), "-o", str(tmp_path / output), *arguments]
    done = CliRunner().invoke(main, chosen, prog_name="evalstats-plugin")

    assert done.exit_code == 2
    assert done.stdout == ""
    assert message in " ".join(done.stderr.split())
    assert [path.read_text() for path in tmp_path.iterdir()] == ["as it was"]


def test_a_file_that_was_read_is_not_overwritten(run: Run, tmp_path: Path) -> None:
    """What is not of scores in it would be lost."""
    table = tmp_path / "mine.csv"
    table.write_text("model,item,score,comment\na,q1,1,keep\n")
    result = run("export", str(table), "-o", str(tmp_path / "." / "mine.csv"))

    assert result.returncode == 2
    assert "one of the files that were read" in result.stderr
    assert "keep" in table.read_text()
