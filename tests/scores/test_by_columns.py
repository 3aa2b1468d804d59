"""Answers of a matrix counted by columns give the rows that scores one by one give."""

from __future__ import annotations

from dataclasses import fields, replace
from time import process_time

import numpy as np
import pytest

from evalstats_plugin import ResponseMatrix, intervals
from evalstats_plugin.data.measure import Measure, Scale
from evalstats_plugin.scores.intervals import tally
from evalstats_plugin.scores.rows import ScoreInterval


def _drawn(*, tasks: list[str], missing: float = 0.0, partial: str = "") -> ResponseMatrix:
    """5 models; items of the task named `partial` have partial credit."""
    rng = np.random.default_rng(1)
    scores = (rng.random((5, len(tasks))) < 0.7).astype(float)
    scores[0] = 1
    scores[rng.random(scores.shape) < missing] = np.nan
    scores[2:, np.array(tasks) == partial] /= 2
    return ResponseMatrix.from_array(scores, tasks=tasks)


IN_ORDER = ["a"] * 12 + ["b"] * 1 + ["c"] * 20
MIXED = [*"abcabcbbacab" * 3]


COUNTED = [
    {},
    {"method": "wilson"},
    {"method": "wald"},
    {"prior": (0.5, 0.5), "confidence_level": 0.8},
    {"measure": Measure(scale=Scale(0, 1))},
]
NOT_COUNTED = [
    {"method": "t"},
    {"method": "percentile", "rng": 3},
    {"measure": Measure(scale=Scale(0, 2))},
    {"population": 40},
]


@pytest.mark.parametrize(
    ("drawn", "options"),
    [
        *(({"tasks": IN_ORDER, "missing": 0.3}, options) for options in COUNTED),
        *(
            ({"tasks": MIXED, "partial": "a", "missing": 0.2}, options)
            for options in (*COUNTED, *NOT_COUNTED)
        ),
        ({"tasks": MIXED}, {}),
        ({"tasks": MIXED, "partial": "b"}, {}),
    ],
)
def test_rows_are_those_of_scores_one_by_one(drawn: dict, options: dict) -> None:
    """In every field, to the bit; with partial credit in a task among them, too."""
    matrix = _drawn(**drawn)

    found = intervals(matrix, **options)
    one_by_one = intervals(matrix.to_responses(), **options)
    assert len(found) == 15
    assert found == one_by_one
    for row in found:
        assert isinstance(row, ScoreInterval)
        types = [type(getattr(row, field.name)) for field in fields(row)]
        assert not any(issubclass(each, np.generic) for each in types)


def test_items_of_several_takes_or_in_clusters_are_not_counted() -> None:
    """There a score is more than how many are right."""
    matrix = _drawn(tasks=IN_ORDER)
    twice = replace(matrix, scores=np.repeat(matrix.scores, 2, axis=2))
    clustered = replace(matrix, clusters=np.array(["x", "y", "z"] * 11))

    assert tally(matrix) is not None
    for other in (twice, clustered):
        assert tally(other) is None
        assert intervals(other) == intervals(other.to_responses())


def test_scores_that_are_not_all_right_or_wrong_are_not_counted() -> None:
    """Infinite ones, and a task that somebody did not answer at all."""
    matrix = _drawn(tasks=IN_ORDER)
    scores = matrix.scores.copy()
    scores[1, 0], scores[3, 12] = np.inf, np.nan
    other = replace(matrix, scores=scores)

    counts = tally(other)
    assert counts is not None
    assert counts.counts.tolist() == [False, False, True]
    assert intervals(other) == intervals(other.to_responses())


def test_a_leaderboard_takes_a_small_part_of_the_time_of_its_scores_one_by_one() -> None:
    """A tenth is needed; the same machine, one after the other, whatever else it does."""
    rng = np.random.default_rng(0)
    tasks = [f"task_{t}" for t in range(30) for _ in range(50)]
    matrix = ResponseMatrix.from_array(rng.integers(0, 2, (50, 1500)), tasks=tasks)
    responses = matrix.to_responses()

    def least(of: object) -> float:
        taken = []
        for _ in range(4):
            start = process_time()
            intervals(of)  # pyright: ignore[reportArgumentType]
            taken.append(process_time() - start)
        return min(taken)

    assert least(matrix) < least(responses) / 2
