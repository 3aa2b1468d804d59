"""One answer: terminal, JSON, CSV, Markdown, LaTeX, Python and the page give the same figures."""

from __future__ import annotations

import csv
import json
import re
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping
from io import StringIO
from itertools import combinations
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest

import evalstats_plugin as es
from evalstats_plugin.report.html.board import STEP

LOGS = Path(__file__).parents[2] / "fixtures" / "logs" / "lm_eval" / "0.4.13" / "out"
TASK = (LOGS, "-t", "es_mc", "-m", "acc")
Run = Callable[..., "CompletedProcess[str]"]

Figures = dict[str, list[float | str]]
"""By model or pair: estimate, limits, and best and worst rank; or difference, limits, verdict."""

SCORE = ("estimate", "low", "high", "best_rank", "worst_rank")
DIFFERENCE = ("difference", "low", "high", "p_adjusted")
NUMBER = r"([-+]?[.\d]+)"
LIMITS = rf"[\[(]{NUMBER}, {NUMBER}[\])]"


def _figures(rows: Iterable[Mapping[str, Any]], names: tuple[str, ...]) -> Figures:
    keys = ("model",) if "estimate" in names else ("model_b", "model_a")
    return {
        " ".join(row[key] for key in keys): [float(row[name]) for name in names] for row in rows
    }


def _machine_readable(run: Run, command: str, names: tuple[str, ...]) -> list[Figures]:
    """Return what the command gives as JSON and as CSV."""
    as_json = json.loads(run(command, *TASK, "--format", "json").stdout)["results"]
    as_csv = csv.DictReader(StringIO(run(command, *TASK, "--format", "csv").stdout))
    return [_figures(as_json, names), _figures(as_csv, names)]


def _rounded(figures: Figures, digits: int, n: int | None = None) -> Figures:
    return {
        name: [round(x, digits) if isinstance(x, float) else x for x in row[:n]]
        for name, row in figures.items()
    }


def _data(page: Path) -> dict[str, Any]:
    """Return the page's data."""
    data = r'<script type="application/json" id="data">(.*?)</script>'
    [found] = re.findall(data, page.read_text(), re.DOTALL)
    return json.loads(found)


def _scores_of_page(page: Path) -> Figures:
    """Return scores, limits and ranks of the leaderboard; the page sends them in steps."""
    data = _data(page)
    [column] = data["board"]["columns"]
    return {
        model: [
            *(round(column[name][k] * STEP, 4) for name in SCORE[:3]),
            float(column["best"][k]),
            float(column["worst"][k]),
        ]
        for k, model in enumerate(data["models"])
    }


def _pairs_of_page(page: Path) -> Figures:
    """Return differences, limits, those of each pair alone, and verdicts: one less the other."""
    data = _data(page)
    [column] = data["board"]["columns"]
    pairs = column["pairs"]
    numbers = [
        np.frombuffer(b64decode(pairs[name]), "<i2") * STEP
        for name in ("difference", "low", "high", "low_single", "high_single")
    ]
    verdicts = np.frombuffer(b64decode(pairs["verdict"]), "i1").tolist()
    words = {1: "better", -1: "worse", 0: "unclear"}
    return {
        f"{a} {b}": [*(round(float(x[k]), 4) for x in numbers), words[verdicts[k]]]
        for k, (a, b) in enumerate(combinations(data["models"], 2))
    }


@pytest.fixture(scope="module")
def responses() -> es.ResponseSet:
    """Read what the commands read."""
    return es.read(LOGS, task="es_mc", metric="acc")


@pytest.fixture(scope="module")
def page(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the page of the same logs."""
    path = tmp_path_factory.mktemp("page") / "page.html"
    run("report", *TASK, "--html", path)
    return path


def test_scores_and_ranks_are_the_same_everywhere(
    run: Run, responses: es.ResponseSet, page: Path
) -> None:
    """To the digits that each form shows."""
    python = _figures(es.table(responses, rng=0).to_dict(), SCORE)
    sets = es.comparisons.rank_sets(responses, rng=0)
    forms = ("table", "markdown", "latex")
    texts = {form: run("table", *TASK, "--format", form).stdout for form in forms}

    assert len(python) == 3
    assert _machine_readable(run, "table", SCORE) == [python, python]
    assert {r.model: [r.best_rank, r.worst_rank] for r in sets} == {
        model: row[3:] for model, row in python.items()
    }
    for form, pattern in (
        ("table", rf"\n *([\d–]+) +(\S+) +{NUMBER} {LIMITS}"),
        ("markdown", rf"\n\| ([\d–]+) \| (\S+) \| \**{NUMBER}\** {LIMITS}"),
        ("latex", rf"\n([-\d]+) & (\S+) & (?:\\textbf{{)?{NUMBER}}}? & {LIMITS}"),
    ):
        shown: Figures = {
            model: [*map(float, numbers), *map(float, (re.split("–|--", places) * 2)[:2])]
            for places, model, *numbers in re.findall(pattern, texts[form])
        }
        assert shown == _rounded(python, 3), form
    assert (
        _machine_readable(run, "report", SCORE[:3])
        == [{model: row[:3] for model, row in python.items()}] * 2
    )
    assert _scores_of_page(page) == _rounded(python, 4)


MARKED = {"▲": "better", "▼": "worse", "": "unclear"}


def test_differences_and_verdicts_are_the_same_everywhere(
    run: Run, responses: es.ResponseSet, page: Path
) -> None:
    """The verdict is of the limits shown beside it."""
    found = es.compare(responses, rng=0)
    python = _figures(found.to_dict(), DIFFERENCE)
    verdicts: Figures = {
        f"{row.model_b} {row.model_a}": [*python[f"{row.model_b} {row.model_a}"][:3], row.verdict]
        for row in found
    }
    alone = _machine_readable(run, "compare", ("low_single", "high_single"))[0]
    terminal = run("compare", *TASK, "--details").stdout
    markdown = run("compare", *TASK, "--format", "markdown").stdout

    assert {row.verdict for row in found} == {"better", "unclear"}
    assert _machine_readable(run, "compare", DIFFERENCE) == [python, python]
    for text, pattern in (
        (terminal, rf"\n(\S+) (\S+) +{NUMBER} {LIMITS} .*?(better|worse|unclear)"),
        (
            markdown,
            rf"\n\| es_mc \| acc \| (\S+) \| (\S+) \| 60 \| {NUMBER} \| {LIMITS} \|.*?"
            r"\| (better|worse|unclear) \|",
        ),
    ):
        shown: Figures = {
            f"{b} {a}": [*map(float, numbers), verdict]
            for b, a, *numbers, verdict in re.findall(pattern, text)
        }
        assert shown == _rounded(verdicts, 4)
    answered = {
        f"models/{b} models/{a}": [*map(float, numbers), MARKED[mark]]
        for b, a, *numbers, mark in re.findall(
            rf"\n(m\d) +(m\d) +{NUMBER} {LIMITS} +\S+ +([▲▼]?)", run("compare", *TASK).stdout
        )
    }
    assert answered == _rounded(verdicts, 4)
    shown = _pairs_of_page(page)
    turned = {"better": "worse", "worse": "better", "unclear": "unclear"}
    expected: Figures = {}
    for name, (difference, low, high, verdict) in _rounded(verdicts, 4).items():
        other = " ".join(name.split()[::-1])
        ends = [round(float(x), 4) for x in alone[name]]
        expected[name] = [difference, low, high, *ends, verdict]
        expected[other] = [
            *(-float(x) for x in (difference, high, low, *ends[::-1])), turned[str(verdict)],
        ]  # fmt: skip
    assert shown == {name: expected[name] for name in shown}
    assert len(shown) == len(verdicts)
