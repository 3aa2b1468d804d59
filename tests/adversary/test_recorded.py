"""Does the code answer as the code that was studied did? See `recorded_answers`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from recorded_answers import QUESTIONS, SEEDS, SLOW, questions, recorded

FILE = Path(__file__).parents[2] / "fixtures" / "golden" / "recorded.json"
KEPT = json.loads(FILE.read_text("utf-8"))
ASKED = [(seed, question) for seed in SEEDS for question in questions(seed)]


@pytest.mark.parametrize(("seed", "question"), ASKED)
def test_an_answer_is_that_of_the_code_that_was_studied(seed: int, question: str) -> None:
    """To 1e-6: searches stop at 1e-8, and processors and versions of libraries round otherwise."""
    kept = KEPT[f"{seed}, {question}"]

    assert recorded(seed, question) == {
        field: pytest.approx(values, rel=1e-6, abs=1e-8) for field, values in kept.items()
    }


def test_every_question_is_asked_and_answered() -> None:
    answered = {name for seed, name in ASKED if "error, text" not in KEPT[f"{seed}, {name}"]}

    assert answered == QUESTIONS.keys() | SLOW.keys()
