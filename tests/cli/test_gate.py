"""`evalstats-plugin gate`, and the GitHub action in examples/ci that calls it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from xml.etree import ElementTree as ET

import pytest

ROOT = Path(__file__).parents[2]
LOGS = ROOT / "fixtures" / "logs" / "lm_eval" / "0.4.13" / "out"
ACTION = ROOT / "examples" / "ci" / "action.yml"
Run = Callable[..., "CompletedProcess[str]"]


@pytest.mark.parametrize(
    ("options", "code", "word"),
    [
        (("--baseline", "models/m1", "-t", "es_bin"), 0, "PASS: a drop"),
        (("--baseline", "models/m2", "-t", "es_group"), 3, "REGRESSED: models/m0, models/m1 show"),
        (
            ("--baseline", "models/m1", "-t", "es_bin", "--margin", "0.01", "--non-inferior"),
            4, "INCONCLUSIVE: a drop of more than 0.01",
        ),
        (("--baseline", "models/m9"), 2, ""),
        (("--baseline", "models/m1", "--non-inferior"), 2, ""),
        (("--baseline", "models/m1", "--junit", "out/of/place.xml"), 2, ""),
    ],
)  # fmt: skip
def test_exit_code_and_first_words_agree(
    run: Run, options: tuple[str, ...], code: int, word: str
) -> None:
    """0 passes, 3 regressed, 4 inconclusive, 2 bad input."""
    done = run("gate", LOGS, "-m", "acc", "-q", *options)

    assert code == done.returncode
    assert done.stdout.startswith(word)
    assert (code == 2) == done.stderr.startswith("error: ")
    assert max(map(len, done.stdout.splitlines()), default=0) <= 80


def test_json_holds_decision_sentence_and_rows(run: Run) -> None:
    """The numbers of the rows are those of `compare` over the same family."""
    options = ("--baseline", "models/m2", "-t", "es_group", "-m", "acc", "--format", "json")
    decided = json.loads(run("gate", LOGS, *options).stdout)
    compared = json.loads(run("compare", LOGS, *options, "--family", "run").stdout)

    assert "regressed" == decided["decision"]
    assert decided["sentence"].startswith("REGRESSED: ")
    key = ("task", "difference", "low", "high")
    limits = {(row["model_b"], *(row[k] for k in key)) for row in compared["results"]}
    assert {(row["model"], *(row[k] for k in key)) for row in decided["results"]} == limits


def test_junit_has_a_case_for_each_comparison(run: Run, tmp_path: Path) -> None:
    """A regression is a failure with its numbers."""
    file = tmp_path / "gate.xml"
    options = ("--baseline", "models/m2", "-t", "es_group", "-m", "acc")
    done = run("gate", LOGS, *options, "--junit", file)

    suite = ET.parse(file).getroot()  # noqa: S314 - our own file
    assert 3 == done.returncode
    cases = suite.findall("testcase")
    assert suite.get("tests") == str(len(cases))
    messages = [str(failure.get("message")) for failure in suite.iter("failure")]
    assert suite.get("failures") == str(len(messages))
    assert any(text.startswith("es_group acc -0.6311 [") for text in messages)


@pytest.mark.parametrize(
    ("baseline", "margin", "strict", "code", "decision"),
    [
        ("weak", "0", "true", 0, "pass"),
        ("strong", "0", "true", 3, "regressed"),
        ("strong", "0.4", "true", 4, "inconclusive"),
        ("strong", "0.4", "false", 0, "inconclusive"),
        ("strong; touch hacked", "0", "true", 2, None),
    ],
)
def test_the_action_decides_and_writes_its_summary(
    tmp_path: Path, baseline: str, margin: str, strict: str, code: int, decision: str | None
) -> None:
    """The step is run as GitHub runs it; a name is never a command."""
    yaml = pytest.importorskip("yaml")
    steps = {s["name"]: s for s in yaml.safe_load(ACTION.read_text())["runs"]["steps"]}
    lines = [f"{model},{i},{int(i % 10 < right)}" for model, right in
             (("strong", 9), ("weak", 5)) for i in range(100)]  # fmt: skip
    (tmp_path / "scores.csv").write_text("\n".join(["model,item,score", *lines]))
    inputs = {
        "LOGS": "scores.csv",
        "BASELINE": baseline,
        "MARGIN": margin,
        "NON_INFERIOR": "false" if margin == "0" else "true",
        "FAIL_IF_INCONCLUSIVE": strict,
    }
    assert inputs.keys() == steps["Decide"]["env"].keys()
    files = {name: str(tmp_path / name) for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", steps["Decide"]["run"]],
        cwd=tmp_path,
        env={**os.environ, **inputs, **files, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )

    assert code == done.returncode
    assert not (tmp_path / "hacked").exists()
    if decision is None:
        assert done.stderr.startswith("error: no model is called")
    else:
        assert Path(files["GITHUB_OUTPUT"]).read_text() == f"decision={decision}\n"
        assert Path(files["GITHUB_STEP_SUMMARY"]).read_text().startswith(f"**{decision.upper()}**")
