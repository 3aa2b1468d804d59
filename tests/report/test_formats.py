"""What people and machines are shown."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from evalstats_plugin.report import text
from evalstats_plugin.report.text import INTERVALS, to_csv, to_json
from evalstats_plugin.scores.rows import Intervals, ScoreInterval

LOGS = Path(__file__).parents[2] / "fixtures" / "logs" / "lm_eval" / "0.4.13" / "out"
Run = Callable[..., "CompletedProcess[str]"]

ROW = ScoreInterval(
    model="m", task="t|x", metric="acc,none", n_items=15, estimate=1.0, low=0.8, high=1.0,
    std_error=None, method="beta-hpd", confidence_level=0.95, notes=("first",),
    higher_is_better=True,
)  # fmt: skip
BARE = ScoreInterval(
    model="[bold]m[/bold]", task="f1", metric="f1,strict", n_items=15, n_epochs=4, estimate=54321.0,
    low=None, high=None, std_error=None, method="none", confidence_level=0.95,
    notes=("second", "first"),
)  # fmt: skip
BOTH = Intervals((ROW, BARE), ("of the whole",), 0)


def test_the_table_fits_eighty_columns_and_cuts_no_number(run: Run) -> None:
    """Whatever the names, no line is longer, and every score is there; names lose their middles."""
    done = run("report", LOGS)

    assert done.returncode == 0
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    assert "[0.7942, 1.0000]" in done.stdout
    assert not re.search(r"\d…|…\d", done.stdout)


def test_names_from_logs_are_not_taken_for_markup() -> None:
    """A hostile or just unusual name is shown as it is."""
    file = StringIO()
    text.INTERVALS.print_table(BOTH, file, heading="", width=100)

    assert "[bold]m[/bold]" in file.getvalue()


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (0.5, "0.5000"),
        (-99.99999, "-100.0000"),
        (432.183, "432.18"),
        (5.4321e16, "5.43e+16"),
    ],
)
def test_numbers_are_short(value: float | None, shown: str) -> None:
    """Four decimals, fewer of the large."""
    assert shown == text.number(value)


def test_notes_are_said_once_with_the_rows_they_are_about() -> None:
    """Footnotes by first appearance, then notes on the whole."""
    assert text.note_lines(BOTH) == [
        "1. first (t|x acc, f1 f1,strict)",
        "2. second (f1 f1,strict)",
        "* of the whole",
    ]


def test_json_is_one_object_without_nan() -> None:
    """Evalstats says how, results holds the rows."""
    whole = json.loads(to_json(BOTH, {"version": "1", "seed": 0}))

    assert whole["evalstats"] == {"version": "1", "seed": 0, "notes": ["of the whole"]}
    assert [row["estimate"] for row in whole["results"]] == [1.0, 54321.0]
    assert whole["results"][1]["low"] is None


def test_csv_has_a_line_per_row() -> None:
    """Notes are joined; empty means there is none."""
    rows = list(csv.DictReader(StringIO(to_csv(BOTH))))

    assert [row["notes"] for row in rows] == ["first", "second; first"]
    assert rows[1]["low"] == ""


def test_markdown_escapes_what_would_break_its_table() -> None:
    """A pipe in a name."""
    lines = INTERVALS.to_markdown(BOTH, "how").splitlines()

    assert lines[2].startswith("| m | t\\|x | acc | 15 | 1.0000 | [0.8000, 1.0000] |")
    assert lines[0].count("|") == 9
    assert "15×4" in lines[3]


@pytest.mark.parametrize("form", ["table", "json", "csv", "markdown"])
def test_every_format_is_the_same_twice(run: Run, form: str) -> None:
    """Also with a method that resamples: the seed is 0 unless another is given."""
    arguments = ("report", LOGS, "-t", "es_passk", "--method", "percentile", "--format", form)
    first, second = (run(*arguments) for _ in range(2))
    other = run(*arguments, "--seed", "1")

    assert first.returncode == 0
    assert first.stdout == second.stdout
    assert first.stdout != other.stdout


def test_standard_input_is_read_where_one_file_is_expected() -> None:
    """`evalstats-plugin report -`: what simple_evaluate returned, piped in."""
    import subprocess
    import sys

    log = next((LOGS / "models__m2").glob("results_*.json"))
    done = subprocess.run(
        [sys.executable, "-m", "evalstats_plugin", "report", "-", "-t", "es_mc", "--format", "csv"],
        input=log.read_text(), capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert len(done.stdout.splitlines()) == 4
