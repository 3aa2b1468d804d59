"""Power analyses in words."""

from __future__ import annotations

from typing import Any

import pytest

from evalstats_plugin.comparisons.rows import PowerRow
from evalstats_plugin.report.comparisons import power_legend, sentence


def _row(**more: Any) -> PowerRow:
    given: dict[str, Any] = {
        "quantity": "n_items", "design": "paired", "n_items": 1500, "n_epochs": 1, "n_models": 2,
        "difference": -0.05, "power": 0.8, "confidence_level": 0.95, "method": "miller",
    }  # fmt: skip
    return PowerRow(**{**given, **more})


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (
            {"n_epochs": 4},
            "Let both models answer the same 1,500 items in 4 epochs each: that finds a true "
            "difference of 0.05 in 80 of 100 evals.",
        ),
        (
            {"design": "unpaired"},
            "Let each model answer 1,500 items of its own: that finds a true difference of 0.05 "
            "in 80 of 100 evals.",
        ),
        (
            {"quantity": "difference"},
            "With 1,500 items, a true difference of 0.05 is found in 80 of 100 evals; a smaller "
            "one less often.",
        ),
        ({"quantity": "n_epochs"}, "It takes 1 epoch of each of these items for 80 of 100 evals."),
        (
            {"quantity": "n_epochs", "n_epochs": None},
            "More epochs alone do not make that 80 of 100 evals: it takes more items.",
        ),
        (
            {"quantity": "n_models", "n_models": 7},
            "Up to 7 models, every two of them, can be compared for 80 of 100 evals.",
        ),
        (
            {"quantity": "difference", "difference": None, "n_items": 3, "notes": ("too few",)},
            "With 3 items: too few.",
        ),
        ({"n_items": None, "notes": ("why",)}, "For a true difference of 0.05: why."),
    ],
)
def test_an_answer_is_a_sentence(more: dict[str, Any], expected: str) -> None:
    """Without the words power, variance or p."""
    assert expected == sentence(_row(**more))


def test_the_legend_says_what_counts_as_found() -> None:
    """Ten models at 99 %."""
    said = power_legend([_row(n_models=10, confidence_level=0.99)])

    assert "to find a true difference of 0.05 in 80 of 100 evals" in said
    assert "Found: p ≤ 0.01, allowing for 45 pairs of 10 models." in said
