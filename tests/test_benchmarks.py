"""Figures of the last benchmarks, against the bounds set for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent.parent / "benchmarks"


def figures(name: str) -> dict[str, Any]:
    return json.loads((FOLDER / f"{name}.json").read_text())


def test_a_leaderboard_takes_a_hundredth_of_the_time_and_errs_less() -> None:
    """`make bench-peers`: the paper's own importance sampling, on the same data."""
    runs = {(r["job"], r["program"]): r for r in figures("comparison_peers")["runs"]}
    ours, theirs = (runs["leaderboard", name] for name in ("evalstats-plugin", "bayes_evals"))

    assert theirs["seconds"] >= 100 * ours["seconds"]
    assert ours["interval_score"] < theirs["interval_score"]
    assert ours["brier"] < theirs["brier"]
    for name in ("evalstats", "statsmodels"):
        assert runs["leaderboard", name]["seconds"] > ours["seconds"]

    ours, theirs = (runs["clustered", name] for name in ("evalstats-plugin", "bayes_evals"))
    assert theirs["seconds"] >= 50 * ours["seconds"]
    assert ours["largest_error"] <= 1e-6 < theirs["largest_error"]


def test_250_million_answers_are_fitted_from_disk() -> None:
    """`python -m benchmarks.big`: 5,000 models × 50,000 items."""
    found = figures("big")

    assert found["answers"] == 250_000_000
    assert found["peak_mb"] <= 8 * 1024
    assert found["step_in_passes"] <= 10
    assert found["correlation_of_abilities"] > 0.9999


def test_a_step_of_an_adaptive_test_takes_milliseconds() -> None:
    """`python -m benchmarks.adaptive`: every rule, batches and balancing, on 50,000 items."""
    found = figures("adaptive")

    assert found["items"] == 50_000
    assert max(row["median_ms_per_item"] for row in found["steps"]) <= 20
