"""`evalstats-plugin report` with control variates, or with a judge and labels."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest

from evalstats_plugin import ResponseMatrix
from evalstats_plugin.cli.judge import analyse_saving, read_labels
from evalstats_plugin.data.runs import ResponseSet
from evalstats_plugin.errors import LogError, SelectionError
from evalstats_plugin.plugins import load_plugins

LOGS = Path(__file__).parents[2] / "fixtures" / "logs" / "lm_eval" / "0.4.13" / "out"
Run = Callable[..., "CompletedProcess[str]"]
NOTHING = {
    "control_variate": False, "judge": None, "human": None, "labels": None, "population": None,
    "prior": None, "method": "auto", "confidence_level": 0.95, "bounds": {}, "seed": 0,
}  # fmt: skip


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
    rows = analyse_saving(_set(), {**NOTHING, "control_variate": True}, load_plugins())

    assert rows is not None
    assert ["cuped", *["beta-hpd"] * 4] == [row.method for row in rows]


def test_labels_and_a_judge(run: Run, tmp_path: Path) -> None:
    """Every fifth answer has a label, which is what the judge says but for one."""
    logged = json.loads(
        run("report", LOGS / "models__m2", "-t", "es_bin", "-m", "acc", "--format", "json").stdout
    )
    labels = tmp_path / "labels.csv"
    rows = [f"{i},{int(i % 2 == 0)}" for i in range(0, 60, 5)]
    labels.write_text("\n".join(["item,score", *rows, "1,"]))
    arguments = ("report", LOGS / "models__m2", "-t", "es_bin", "--judge", "acc")
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
        ("a.csv", "id,score\n1,1", "record 1: 'id', 'score' found, expected one object or line"),
        ("a.csv", "item,score\n1,good", "record 1: score 'good' found, expected a number"),
        ("a.csv", "item,score\n1,1\n1,0", "record 2: item '1' has a second label"),
        ("a.jsonl", "{", "record 1: not JSON"),
        ("a.jsonl", "[1]", r"record 1: \[1\] found, expected one object"),
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
    done = run("report", LOGS / "models__m2", "--judge", "acc", "--labels", "nowhere.csv")

    assert 2 == done.returncode
    assert "nowhere.csv: labels cannot be read" in done.stderr


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"judge": "a"}, "--judge found, expected --judge with one of"),
        ({"human": "a"}, "--human found, expected --judge with one of"),
        ({"judge": "a", "human": "b", "labels": "c"}, "expected --judge with one of"),
        ({"judge": "a", "human": "b", "control_variate": True}, "--control-variate and --judge"),
        ({"control_variate": True, "population": 100}, "--control-variate and --population"),
        ({"control_variate": True, "prior": (1.0, 1.0)}, "--control-variate and --prior"),
        ({"judge": "a", "human": "b", "method": "t"}, "--judge and --method"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    chosen: dict[str, object], message: str
) -> None:
    """Rather than one of them left aside."""
    with pytest.raises(SelectionError, match=message):
        analyse_saving(_set(), {**NOTHING, **chosen}, load_plugins())


def test_without_such_options_there_is_nothing_to_do() -> None:
    """The report is the usual one."""
    assert analyse_saving(_set(), NOTHING, load_plugins()) is None


def test_the_scores_of_one_model_only_are_replaced() -> None:
    """Rows stay in the order of the logs."""
    responses = _set()
    renamed = replace(responses.responses[3], model="last")
    rows = analyse_saving(
        ResponseSet((*responses.responses[1:3], responses.responses[0], renamed)),
        {**NOTHING, "control_variate": True},
        load_plugins(),
    )

    assert rows is not None
    assert ["model_1", "model_2", "model_0", "last"] == [row.model for row in rows]
    assert ["beta-hpd", "beta-hpd", "cuped", "beta-hpd"] == [row.method for row in rows]
