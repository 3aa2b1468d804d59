"""`evalstats-plugin power` and `report --at-k`."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from evalstats_plugin.cli.power import METHODS
from evalstats_plugin.comparisons.planning.solver import METHODS as OF_THE_LIBRARY

LOGS = Path(__file__).parents[2] / "fixtures" / "logs" / "inspect_ai" / "0.3.285" / "models"
QUICK = ("--method", "t")
"""What is planned for draws nothing, where only the form of the answers is looked at."""
Run = Callable[..., "CompletedProcess[str]"]


def test_assumptions_are_answered_in_a_sentence(run: Run) -> None:
    """Miller's example, for people who have never heard of power."""
    variances = ("--variances", "0.1111111,0.1666667")
    done = run("power", "--difference", "0.03", *variances, "--epochs", "1")

    assert 0 == done.returncode
    said = " ".join(done.stdout.split())
    assert (
        "Let both models answer the same 3,876 items: that finds a true difference of 0.03 in 80 "
        "of 100 evals." in said
    )


def test_a_difference_and_items_are_answered_in_three(run: Run) -> None:
    """How often, with how many epochs, for how many models."""
    variances = ("--variances", "0.1111,0.1667")
    said = " ".join(run("power", "-d", "0.03", "-n", "1500", *variances).stdout.split())

    assert "With 1,500 items, a true difference of 0.03 is found in 41.4 of 100 evals." in said
    assert "It takes 6 epochs of each of these items for 80 of 100 evals." in said
    assert "Not even two models can be compared for 80 of 100 evals." in said


def test_the_number_of_models_is_allowed_for(run: Run) -> None:
    """And said."""
    done = run("power", "--discordance", "0.2", "-d", "0.05", "--n-models", "10")

    assert "1,328 items" in done.stdout
    assert "allowing for 45 pairs of 10 models" in done.stdout


def test_a_pilot_is_answered_in_tables_of_eighty_columns(run: Run) -> None:
    """Pairs of models, what more would buy, and what the words mean."""
    done = run("power", LOGS, "--difference", "0.1", "--items", "200", "-t", "arith_epochs")

    assert 0 == done.returncode
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    assert "arith_epochs match, from a pilot of 30 items" in done.stdout
    assert "mockllm/delta mockllm/gamma 200×3 69.3 %             4      2" in done.stdout
    assert ", symmetric-bootstrap" in " ".join(done.stdout.split())
    assert "mockllm/delta 30×3   61 %     0.0730    0.0664   0.0516" in done.stdout
    assert "allowing for 6 pairs of 4 models" in " ".join(done.stdout.split())
    assert "…" not in done.stdout


def test_json_holds_the_variance_parts_too(run: Run) -> None:
    """Beside the answers; and how they came about."""
    done = run("power", LOGS, "-d", "0.1", "-t", "arith_epochs", *QUICK, "--format", "json")
    whole = json.loads(done.stdout)

    assert "power" == whole["evalstats"]["command"]
    assert 0.1 == whole["evalstats"]["difference"]
    assert "items" not in whole["evalstats"]
    assert 6 == len(whole["results"])
    assert 4 == len(whole["variance_parts"])
    assert whole["variance_parts"][0]["between"] < 0


def test_csv_and_markdown_have_a_line_per_answer(run: Run) -> None:
    """With the same numbers."""
    arguments = ("power", LOGS, "-d", "0.1", "-t", "arith", *QUICK)
    rows = list(csv.DictReader(StringIO(run(*arguments, "--format", "csv").stdout)))
    markdown = run(*arguments, "--format", "markdown").stdout

    assert 6 == len(rows)
    assert "n_items" == rows[0]["quantity"]
    number = "{n_items} [{low}, {high}]".format(**rows[0])
    line = f"| arith | match | mockllm/beta | mockllm/alpha | {number} | t |"
    assert line in markdown


@pytest.mark.parametrize("form", ["table", "json", "csv", "markdown"])
def test_assumptions_have_every_format(run: Run, form: str) -> None:
    done = run("power", "--discordance", "0.2", "-n", "200", "--format", form)

    assert (0, "") == (done.returncode, done.stderr)
    assert "0.0867" in done.stdout or "0.08667637" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "there is nothing to plan with: give logs of a pilot"),
        (("-d", "0.1"), "there is nothing to plan with: give logs of a pilot"),
        (("--discordance", "0.2"), "give a difference, a number of items, or both"),
        (("--discordance", "0.2", "-d", "0"), "the difference must be a number other than 0"),
        (
            ("--variances", "0.2", "-d", "1.5"),
            "a difference of 1.5 exceeds the range of the scores",
        ),
        (("--discordance", "0.05", "-d", "0.1"), "discordance must lie between the difference"),
        (("--variances", "0.2", "-d", "0.1", "--power", "1"), "the power must lie between 0 and 1"),
        (("--variances", "0.2,0.1,0.1,0.1", "-d", "0.1"), "is not one to three numbers"),
        ((LOGS, "--discordance", "0.1"), "--discordance is for plans without logs"),
        ((LOGS / "*08-28-51*", "-d", "0.1"), "have 1 model (mockllm/alpha)"),
        ((LOGS, "-t", "arith", "-d", "0.1", "-k", "4"), "the pilot has one epoch"),
        (("--variances", "x"), "is not one to three numbers"),
    ],
)
def test_bad_input_is_one_message_and_exit_code_2(
    run: Run, arguments: tuple[str | Path, ...], message: str
) -> None:
    done = run("power", *arguments)

    assert 2 == done.returncode
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert "" == done.stdout


def test_the_methods_are_those_of_the_analysis() -> None:
    """Listed twice, so that --help stays light."""
    assert METHODS == OF_THE_LIBRARY


def test_the_report_has_rows_of_k_takes(run: Run) -> None:
    """Below the score they are derived from, in 80 columns."""
    done = run("report", LOGS, "-t", "arith_epochs", "--at-k", "pass@2", "--at-k", "pass^2")
    lines = done.stdout.splitlines()
    # Its items come in clusters: beside each score is what it would be without them.
    first, second, third = [line for line in lines if " match " in line][:3]

    assert 0 == done.returncode
    assert max(len(line) for line in lines) <= 80
    assert first.startswith("arith_epochs")
    assert "0.4444" in first
    assert "pass@2 match" in second
    assert "0.6778" in second
    assert "pass^2 match" in third


def test_the_report_refuses_more_takes_than_there_are(run: Run) -> None:
    """Naming what was found."""
    done = run("report", LOGS, "-t", "arith_epochs", "--at-k", "pass@4")

    assert 2 == done.returncode
    assert "pass@4 needs at least as many epochs of 0/1 scores; 3 epochs" in done.stderr
