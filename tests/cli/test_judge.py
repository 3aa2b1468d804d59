"""`evalstats-plugin judge`, and `report --control-variate`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest

from evalstats_plugin import ResponseMatrix
from evalstats_plugin.cli.judge import read_labels
from evalstats_plugin.data.runs import ResponseSet
from evalstats_plugin.errors import LogError
from evalstats_plugin.scores.control_variate import control_variate

LOGS = Path(__file__).parents[2] / "fixtures" / "logs" / "lm_eval" / "0.4.13" / "out"
Run = Callable[..., "CompletedProcess[str]"]


def _set() -> ResponseSet:
    rng = np.random.default_rng(0)
    scores = (rng.uniform(size=(5, 80)) < rng.uniform(size=80)) * 1.0
    scores[0, 20:] = np.nan
    return ResponseSet(tuple(ResponseMatrix.from_array(scores).to_responses()))


def test_control_variates_say_when_they_change_nothing(run: Run) -> None:
    """All models took all items of these logs."""
    done = run("report", LOGS, "-t", "es_mc", "-m", "acc", "--control-variate")

    assert 0 == done.returncode
    assert "control variates changed nothing" in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 80


def test_control_variates_are_used_where_they_help() -> None:
    """The first model took a quarter of the items."""
    rows = control_variate(_set(), rng=0)

    assert ["cuped", *["beta-hpd"] * 4] == [row.method for row in rows]


def test_labels_and_a_judge(run: Run, tmp_path: Path) -> None:
    """Every fifth answer has a label, which is what the judge says but for one."""
    logged = json.loads(
        run("report", LOGS / "models__m2", "-t", "es_bin", "-m", "acc", "--format", "json").stdout
    )
    labels = tmp_path / "labels.csv"
    rows = [f"{i},{int(i % 2 == 0)}" for i in range(0, 60, 5)]
    labels.write_text("\n".join(["item,score", *rows, "1,"]))
    arguments = ("judge", LOGS / "models__m2", "-t", "es_bin", "--judge", "acc")
    done = run(*arguments, "--labels", labels, "--format", "json")
    (row,) = json.loads(done.stdout)["results"]

    assert 60 == logged["results"][0]["n_items"]
    assert ("ppi++", "human", 12) == (row["method"], row["metric"], row["n_items"])
    assert "12 human labels, a random part of 60 items scored by acc" in row["notes"][-1]
    table = run(*arguments, "--labels", labels).stdout
    assert max(len(line) for line in table.splitlines()) <= 80


def test_labels_may_be_lines_of_json(tmp_path: Path) -> None:
    """Empty scores are no labels."""
    file = tmp_path / "labels.jsonl"
    file.write_text('{"item": 3, "score": 0.5}\n\n{"item": "x", "score": null, "by": "me"}\n')

    assert {"3": 0.5} == read_labels(str(file))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "id,score\n1,1", "record 1 has the fields 'id', 'score': each needs"),
        ("a.csv", "item,score\n1,good", "record 1: score 'good' is not a number"),
        ("a.csv", "item,score\n1,1\n1,0", "record 2: item '1' has a second label"),
        ("a.jsonl", "{", "record 1: not JSON"),
        ("a.jsonl", "[1]", r"record 1: \[1\] is no object"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    """With its name and the record's number."""
    file = tmp_path / name
    file.write_text(text)

    with pytest.raises(LogError, match=f"{name}, {message}"):
        read_labels(str(file))


def test_a_file_that_is_not_there_is_an_error(run: Run) -> None:
    """Exit code 2, one message."""
    done = run("judge", LOGS / "models__m2", "--judge", "acc", "--labels", "nowhere.csv")

    assert 2 == done.returncode
    assert "nowhere.csv: labels cannot be read" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("judge", "--judge", "acc"), "neither --human nor --labels is given"),
        (("judge", "--judge", "a", "--human", "b", "--labels", "c"), "both --human and --labels"),
        (("report", "--control-variate", "--population", "100"), "--control-variate and --popul"),
        (("report", "--control-variate", "--prior", "1,1"), "--control-variate and --prior"),
        (("report", "--baseline", "m0"), "pass --html FILE too, or use `compare --baseline`"),
    ],
)
def test_conflicting_options_are_refused(
    run: Run, arguments: tuple[str, ...], message: str
) -> None:
    """One line, exit code 2."""
    done = run(*arguments, LOGS / "models__m2", "-t", "es_bin")

    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
