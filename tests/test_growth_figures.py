"""Figures of the last ``python -m benchmarks.growth``: nothing grows worse than its data."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

FIGURES = Path(__file__).parent.parent / "benchmarks" / "results" / "growth.json"
ABOUT_LINEAR = 1.15
"""Caches and constants leave no exact exponent: 1.1, and what a busy machine adds."""
# Of n players n × n comparisons can be told apart, and an n × n matrix is inverted for the errors;
# of N models there are N(N - 1)/2 pairs, and abilities have an N × N covariance.
WORSE = {
    # What takes long is timed once, with the draws that shorter sizes find drawn.
    ("baseline_partial", "models"): 1.5,
    ("pairs", "models"): 2.1,
    ("pairs_partial", "models"): 2.1,
    ("fit", "models"): 2.1,
    ("rate", "players"): 3.1,
    ("rank", "players"): 2.1,
}
LARGEST = {
    ("read", "items"): 50_000,
    ("join", "models"): 1_000,
    ("intervals", "models"): 5_000,
    ("intervals", "items"): 50_000,
    ("intervals", "tasks"): 1_000,
    ("intervals", "models × items"): 20_000_000,
    ("intervals_partial", "models"): 5_000,
    ("intervals_partial", "items"): 50_000,
    ("baseline", "models"): 5_000,
    ("baseline", "items"): 50_000,
    ("baseline", "tasks"): 1_000,
    ("baseline_partial", "models"): 1_000,
    ("baseline_partial", "items"): 50_000,
    ("pairs", "models"): 1_000,
    ("pairs", "items"): 50_000,
    ("pairs_partial", "models"): 100,
    ("bootstrap_t", "resamples"): 99_999,
    ("bootstrap_t", "items"): 10_000,
    ("bca", "resamples"): 99_999,
    ("max_t", "resamples"): 99_999,
    ("clustered", "clusters"): 50_000,
    ("fit", "models"): 5_000,
    ("fit", "items"): 50_000,
    ("fit", "models × items"): 20_000_000,
    ("fit_store", "models × items"): 20_000_000,
    ("score", "items"): 50_000,
    ("score", "models × items"): 10_000_000,
    ("rate", "contests"): 1_000_000,
    ("rate", "players"): 2_000,
    ("rank", "contests"): 1_000_000,
    ("rank", "players"): 300,
    ("hierarchical", "models"): 300,
    ("hierarchical", "tasks"): 100,
    ("hierarchical", "items"): 5_000,
    ("adaptive", "bank"): 50_000,
    ("simulate", "bank"): 50_000,
    ("simulate", "tests"): 1_000,
}
SOLITARY = {"baseline", "baseline_partial", "pairs", "pairs_partial", "fit"}
"""Jobs that one model alone cannot be put to."""


@pytest.fixture(scope="module")
def series() -> list[dict[str, Any]]:
    return json.loads(FIGURES.read_text())["runs"]


def measured(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [point for point in row["points"] if "cpu_seconds" in point]


def test_every_job_was_measured_up_to_its_largest_size(series: list[dict[str, Any]]) -> None:
    largest = {
        key: max(p["amount"] for row in rows for p in measured(row))
        for key in {(row["job"], row["grows"]) for row in series}
        for rows in [[row for row in series if (row["job"], row["grows"]) == key]]
    }

    assert largest == LARGEST
    assert not [row["series"] for row in series if any("stopped" in p for p in row["points"])]


def test_time_grows_no_worse_than_the_data(series: list[dict[str, Any]]) -> None:
    for row in series:
        bound = WORSE.get((row["job"], row["grows"]), ABOUT_LINEAR)

        assert row["exponent"] <= bound, row["series"]


def test_memory_grows_no_worse_than_what_is_returned(series: list[dict[str, Any]]) -> None:
    """Pairs of models or players are rows, and a covariance: their square."""
    for row in series:
        bound = min(WORSE.get((row["job"], row["grows"]), ABOUT_LINEAR), 2.1)

        assert row["memory_exponent"] <= bound, row["series"]


def test_no_single_step_of_size_is_far_worse_than_the_exponent(
    series: list[dict[str, Any]],
) -> None:
    """What takes a tenth of a second or more grows so from one size to the next, too."""
    for row in series:
        bound = WORSE.get((row["job"], row["grows"]), ABOUT_LINEAR)
        points = measured(row)
        for before, after in pairwise(points):
            if before["cpu_seconds"] >= 0.1:
                ratio = after["cpu_seconds"] / before["cpu_seconds"]

                assert math.log(ratio) <= (bound + 0.35) * math.log(
                    after["amount"] / before["amount"]
                ), row["series"]


def test_one_by_one_works_wherever_it_is_defined(series: list[dict[str, Any]]) -> None:
    """Where it is not the error names the model that is missing another."""
    for row in series:
        first = row["points"][0]
        if "error" in first:
            assert row["job"] in SOLITARY
            assert "model" in first["error"]
        else:
            assert "cpu_seconds" in first

    assert not [p for row in series for p in row["points"][1:] if "error" in p]
