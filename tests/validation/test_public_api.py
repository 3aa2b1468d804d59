"""Does each function keep its word on any data? Random matrices, options and contests.

Whatever the data, there is a result or an error of ours; nothing warns. A number that is missing
has a note; limits hold the estimate between them where that is promised; the same seed gives the
same bytes.
"""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evalstats_plugin import ResponseMatrix, compare, gate, intervals, power, rank, table
from evalstats_plugin.comparisons.methods import PAIRED, UNPAIRED
from evalstats_plugin.errors import EvalStatsError
from evalstats_plugin.ranking.contests.contests import Contests
from evalstats_plugin.scores.methods import INTERVALS

pytestmark = pytest.mark.validation

EXAMPLES = int(os.environ.get("EVALSTATS_EXAMPLES", "600"))
"""Of each test: ten minutes of one processor core together."""

HOLD = {"wald", "agresti-coull", "beta", "z", "percentile", "bca", "wilson-cc"}
"""Methods that are kept to compare with, whose limits may miss the estimate."""

tried = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="EVALSTATS_EXAMPLES" not in os.environ,
    database=None,
    suppress_health_check=list(HealthCheck),
)

KINDS = (
    st.sampled_from([0.0, 1.0]),
    st.sampled_from([0.0, 1.0, math.nan]),
    st.sampled_from([0.0, 0.25, 0.5, 1.0]),
    st.just(1.0),
    st.floats(0, 1),
    st.floats(-5, 5),
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([1e300, -1e300, 5e-324, 0.0]),
)
"""Scores of a matrix; one of them may be of another kind."""


@st.composite
def matrices(draw: st.DrawFn) -> ResponseMatrix:
    """Draw scores of one to five models on one to twelve items, perhaps with tasks and clusters."""
    n, m, r = draw(st.integers(1, 5)), draw(st.integers(1, 12)), draw(st.integers(1, 3))
    cell = KINDS[draw(st.integers(0, len(KINDS) - 1))]
    scores = np.array(draw(st.lists(cell, min_size=n * m * r, max_size=n * m * r)))
    if draw(st.booleans()):
        scores[draw(st.integers(0, len(scores) - 1))] = draw(st.one_of(*KINDS))
    tasks = draw(st.one_of(st.just("t"), st.lists(st.sampled_from("ab"), min_size=m, max_size=m)))
    clusters = draw(st.one_of(st.none(), st.lists(st.integers(0, 4), min_size=m, max_size=m)))
    return ResponseMatrix.from_array(scores.reshape(n, m, r), tasks=tasks, clusters=clusters)


levels = st.one_of(st.just(0.95), st.floats(0.5, 0.999))


def outcome(function: Callable[[], Any]) -> list[dict[str, Any]]:
    """Return the rows of results, whose JSON is the same twice; none where they are refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            first = json.dumps(function().to_dict(), allow_nan=False)
        except EvalStatsError:
            return []
        assert first == json.dumps(function().to_dict(), allow_nan=False)
    found = json.loads(first)
    return found if isinstance(found, list) else found["results"]


def check_rows(found: list[dict[str, Any]], estimate: str) -> None:
    """Check each row: limits about the estimate, and notes where numbers are missing."""
    for row in found:
        low, middle, high = (row.get(name) for name in ("low", estimate, "high"))
        if None in (low, middle, high):
            assert row["notes"], row
        elif row.get("method") not in HOLD:
            slack = 1e-9 * max(1.0, abs(low), abs(high))
            assert low - slack <= middle <= high + slack, row


@tried
@given(matrices(), levels, st.sampled_from(["auto", *(m.name for m in INTERVALS)]), st.data())
def test_intervals(matrix: ResponseMatrix, level: float, method: str, data: st.DataObject) -> None:
    options: dict[str, Any] = {
        "estimand": data.draw(st.sampled_from(["items", "clusters"])),
        "missing": data.draw(st.sampled_from(["drop", "zero", "bounds"])),
    }
    check_rows(
        outcome(lambda: intervals(matrix, confidence_level=level, method=method, rng=1, **options)),
        "estimate",
    )


@tried
@given(
    matrices(),
    levels,
    st.sampled_from(["auto", *(m.name for m in (*PAIRED, *UNPAIRED))]),
    st.sampled_from(["paired", "unpaired", "tasks", "sequential"]),
    st.sampled_from(["simultaneous", "stepdown", "bh", "none"]),
    st.sampled_from([None, "model_0"]),
)
def test_comparisons(
    matrix: ResponseMatrix,
    level: float,
    method: str,
    design: Any,
    correction: Any,
    baseline: str | None,
) -> None:
    found = outcome(
        lambda: compare(
            matrix,
            design=design,
            confidence_level=level,
            method=method,
            correction=correction,
            baseline=baseline,
            rng=1,
        )
    )
    check_rows(found, "difference")
    for row in found:
        for name in ("p_value", "p_adjusted", "prob_better"):
            assert row.get(name) is None or 0 <= row[name] <= 1, row


@tried
@given(matrices(), levels, st.one_of(st.none(), st.floats(-0.5, 0.9)), st.floats(0, 1))
def test_plans_gates_and_tables(
    matrix: ResponseMatrix, level: float, difference: float | None, wanted: float
) -> None:
    outcome(lambda: power(matrix, difference=difference, power=wanted, confidence_level=level))
    outcome(lambda: gate(matrix, baseline="model_0", confidence_level=level, rng=1))
    outcome(lambda: table(matrix, confidence_level=level, rng=1))


@tried
@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 4), st.sampled_from([0.0, 0.5, 1.0])),
        min_size=1, max_size=25,
    ),
    levels,
    st.sampled_from(["ml", "ep"]),
)  # fmt: skip
def test_rankings(answers: list[tuple[int, int, float]], level: float, estimator: str) -> None:
    first, second, won = (np.array(each) for each in zip(*answers, strict=True))

    def ranked() -> Any:
        contests = Contests.of(
            cast("Any", first), cast("Any", second), won, players=[f"p{i}" for i in range(5)]
        )
        return rank(contests, estimator=estimator, confidence_level=level, rng=1)

    check_rows(outcome(ranked), "mean")
