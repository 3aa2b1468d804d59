"""``evalstats-plugin report --html``."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from html import escape
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from lm_eval_logs import write_log

from evalstats_plugin import __version__
from evalstats_plugin.cli import main, report

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Two models on one task of twelve items."""
    folder = tmp_path / "logs"
    write_log(folder, "m", {"t": [1.0] * 9 + [0.0] * 3})
    write_log(folder, "n", {"t": [1.0, 0.0] * 6})
    return folder


def _invoke(*arguments: str | Path) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def _text(path: Path) -> str:
    """Return what the page says without scripts."""
    body = re.sub(r"<(script|style).*?</\1>", "", path.read_text(), flags=re.DOTALL)
    return re.sub(r"<[^>]*>", " ", body)


def test_a_page_is_written_beside_what_is_printed(run: Run, logs: Path, tmp_path: Path) -> None:
    """The table as ever, and where the page lies on the other stream."""
    place = tmp_path / "report.html"
    done = run("report", logs, "--html", place, "--seed", "3", "-c", "0.9")

    assert done.returncode == 0
    assert done.stdout == run("report", logs, "--seed", "3", "-c", "0.9").stdout
    assert done.stderr.replace("\n", "") == f"written: {place}"
    text = _text(place)
    for said in (
        f"evalstats-plugin {__version__}", "lm_eval 0.4.13", "90 %", "0.7500",
        "a difference of +0.2500", "logs/m/results_", "simultaneous", "cannot be told apart",
    ):  # fmt: skip
        assert said in text
    assert "Seed 3" in " ".join(text.split())
    assert not list(tmp_path.glob(".evalstats-*"))
    done = run("report", logs, "--html", place, "--overwrite", "--quiet", "--format", "json")
    assert done.stderr == ""
    assert len(json.loads(done.stdout)["results"]) == 2


def test_a_baseline_is_where_the_page_begins(logs: Path, tmp_path: Path) -> None:
    """A model that is not there is refused."""
    write_log(logs, "o", {"t": [0.0, 1.0] * 6})
    place = tmp_path / "report.html"
    assert _invoke("report", logs, "--html", place, "--baseline", "n").exit_code == 0
    assert '"baseline":1' in place.read_text()
    done = _invoke("report", logs, "--html", place, "--overwrite", "--baseline", "x")
    assert done.exit_code == 2
    assert "no model is called 'x'" in done.stderr


def test_of_too_many_pairs_none_is_compared(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the page says so, with every score."""
    monkeypatch.setattr(report, "MOST_PAIRS", 2)
    write_log(logs, "o", {"t": [0.0, 1.0] * 6})
    place = tmp_path / "report.html"
    assert _invoke("report", logs, "--html", place).exit_code == 0
    text = _text(place)

    assert "up to 3 comparisons of two models are too many for one page" in text
    assert "0.7500" in text


def test_slices_have_a_view_of_their_own(tmp_path: Path) -> None:
    """Each slice with the numbers that are printed; a page holds no settings of runs."""
    rows = ["model,task,item,score,language"]
    rows += [
        f"{model},t,i{i},{score},{'<b>de' if i < 12 else 'en'}"
        for model, scores in (("m", [1, 1, 0, 1] * 9), ("n", [0] * 12 + [1] * 24))
        for i, score in enumerate(scores)
    ]
    (tmp_path / "scores.csv").write_text("\n".join(rows))
    place, asked = tmp_path / "page.html", ("report", tmp_path / "scores.csv", "--by", "language")
    printed = json.loads(_invoke(*asked, "--html", place, "--format", "json").stdout)
    text = " ".join(_text(place).split())
    assert '"#view=slices"' in place.read_text()
    assert "<b>de" not in place.read_text()
    for told in printed["worst_slices"]:
        assert escape(told["sentence"]) in text
    assert "significantly below the other items" in text
    for row in printed["results"]:
        assert f"[{row['low']:.4f}, {row['high']:.4f}]" in text
    alone = tmp_path / "alone.html"
    assert _invoke("report", tmp_path / "scores.csv", "--html", alone).exit_code == 0
    assert "view=slices" not in _text(alone)
    runs = ["model,task,item,score,temperature"]
    runs += [f"m,t,i{i},{i % 2},{t}" for t in (0, 1) for i in range(9)]
    (tmp_path / "runs.csv").write_text("\n".join(runs))
    done = _invoke(
        "report", tmp_path / "runs.csv", "--by", "temperature", "--html", tmp_path / "no.html"
    )
    assert (done.exit_code, done.stdout) == (2, "")
    assert "temperature is a setting of the runs" in done.stderr


def test_one_model_gives_a_page_that_says_why_nothing_is_compared(
    logs: Path, tmp_path: Path
) -> None:
    """The scores are there all the same."""
    place = tmp_path / "report.html"
    done = _invoke("report", logs / "m", "--html", place)

    assert done.exit_code == 0
    assert "models were not compared: there is only one" in _text(place)


def test_a_log_that_is_left_out_is_on_the_page(logs: Path, tmp_path: Path) -> None:
    """And the exit code is 1, as without a page."""
    place = tmp_path / "report.html"
    next((logs / "n").glob("results_*.json")).write_text("{")
    done = _invoke("report", logs, "--html", place, "--skip-broken")

    assert done.exit_code == 1
    assert "left out: " in _text(place)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("-", "name a file, such as --html report.html"),
        (".", "is a folder: name a file in it"),
        ("folder.html", "is a folder: name a file in it"),
        ("nowhere/report.html", "there is no folder"),
        ("log.json", "the name of this file must end in .html or .htm"),
        ("report", "the name of this file must end in .html or .htm"),
        ("log.json/report.html", "there is no folder"),
    ],
)
def test_bad_places_are_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, expected: str
) -> None:
    """One message, exit code 2, and what has that name is as it was."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.html").mkdir()
    (tmp_path / "log.json").write_text("precious")
    # There are no logs here either: the place is looked at first.
    done = _invoke("report", "no-logs", "--html", name)

    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("error: ")
    assert "--html " in done.stderr
    assert expected in done.stderr
    assert (tmp_path / "log.json").read_text() == "precious"


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="no folder here where root may not write")
def test_a_place_that_cannot_be_written_is_an_error(logs: Path) -> None:
    """Nobody may write there."""
    done = _invoke("report", logs, "--html", f"/proc/{os.getpid()}/report.html")

    assert done.exit_code == 2
    assert "cannot be written" in done.stderr
    assert "Traceback" not in done.stderr
