"""Verdicts, intervals, letters, ranks and who may be first are one answer."""

from __future__ import annotations

import inspect
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalstats_plugin import ResponseMatrix, compare
from evalstats_plugin.cli.shell import options
from evalstats_plugin.comparisons import rank_sets
from evalstats_plugin.comparisons.design import Correction, Family
from evalstats_plugin.comparisons.ranks import ranks_of
from evalstats_plugin.comparisons.rows import Comparison
from evalstats_plugin.errors import DesignError


def _outside(row: Comparison) -> bool:
    """Whether no difference is outside the interval; a limit at it is, of a pair that was found."""
    if row.low is None or row.high is None:
        return False
    if row.low > 0 or row.high < 0:
        return True
    return row.verdict != "unclear" and (row.low == 0 or row.high == 0)


@st.composite
def evals(draw: st.DrawFn) -> ResponseMatrix:
    """A few models on a few tasks: 0/1, epochs or partial credit; clusters, holes, copies."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, m = draw(st.integers(2, 4)), draw(st.sampled_from([2, 5, 12, 40]))
    n_tasks = draw(st.integers(1, 3))
    size = (n, m * n_tasks)
    level = rng.uniform(0.05, 0.95, (n, 1))
    kind = draw(st.sampled_from(["right", "epochs", "partial", "narrow"]))
    scores: Any = {
        "right": lambda: (rng.random(size) < level) * 1.0,
        "epochs": lambda: (rng.random((*size, 3)) < level[:, :, None]) * 1.0,
        "partial": lambda: np.clip(np.round(rng.normal(level, 0.3, size), 1), 0, 1),
        "narrow": lambda: 0.5 + 0.1 * level + rng.uniform(-0.03, 0.03, size),
    }[kind]()
    if draw(st.booleans()):
        scores[-1] = scores[0]
    if draw(st.booleans()):
        scores[0, 0] = np.nan
    more: dict[str, Any] = {"tasks": [f"t{k}" for k in range(n_tasks) for _ in range(m)]}
    if draw(st.booleans()):
        more["clusters"] = [f"c{k // 3}" for k in range(size[1])]
    return ResponseMatrix.from_array(scores, **more)


@settings(max_examples=60, deadline=None)
@given(
    evals(),
    st.floats(0.001, 0.5),
    st.sampled_from(["simultaneous", "stepdown", "none"]),
    st.sampled_from(get_args(Family)),
)
def test_nothing_that_is_shown_contradicts_anything_else(
    matrix: ResponseMatrix, alpha: float, correction: Correction, family: Family
) -> None:
    """Of every pair: p at most alpha, verdict, 0 outside, no common letter, ranks apart."""
    asked: dict[str, Any] = {"confidence_level": 1 - alpha, "correction": correction, "rng": 0}
    try:
        rows = list(compare(matrix, family=family, **asked))
    except DesignError:
        return
    level = 1 - rows[0].confidence_level
    for row in rows:
        if row.p_adjusted is None:
            continue
        clear = row.p_adjusted <= level
        assert clear == (row.verdict != "unclear")
        assert row.low is None or clear == _outside(row)
        if clear and row.low is not None:
            assert row.low >= 0 if (row.difference or 0) > 0 else (row.high or 0) <= 0
    for task in dict.fromkeys(row.task for row in rows):
        own = [row for row in rows if row.task == task]
        ranks = {one.model: one for one in ranks_of(own)}
        for row in own:
            a, b = ranks[row.model_a], ranks[row.model_b]
            assert (row.verdict == "unclear") == bool(set(a.letters) & set(b.letters))
            loser = {"better": a, "worse": b}.get(row.verdict)
            assert loser is None or (loser.best_rank > 1 and not loser.may_be_first)
            assert (row.a_may_be_first, row.b_may_be_first) == (a.may_be_first, b.may_be_first)


def test_ranks_are_those_of_the_verdicts() -> None:
    """By arrays and from rows, whatever the family."""
    rng = np.random.default_rng(0)
    scores = (rng.random((5, 90)) < np.linspace(0.2, 0.9, 5)[:, None]) * 1.0
    matrix = ResponseMatrix.from_array(scores, tasks=["s"] * 40 + ["t"] * 50)
    rows = list(compare(matrix, rng=0))
    by_rows = {
        (one.task, one.model): (one.best_rank, one.worst_rank, one.letters, one.may_be_first)
        for task in ("s", "t")
        for one in ranks_of([row for row in rows if row.task == task])
    }

    assert by_rows == {
        (one.task, one.model): (one.best_rank, one.worst_rank, one.letters, one.may_be_first)
        for one in rank_sets(matrix, rng=0)
    }


def test_rows_name_their_family() -> None:
    """All tasks of a metric in none of the harness's groups, or each by itself."""
    scores = (np.random.default_rng(0).random((3, 90)) < 0.5) * 1.0
    matrix = ResponseMatrix.from_array(scores, tasks=["s"] * 40 + ["t"] * 50)
    (every,) = {row.family for row in compare(matrix, rng=0)}
    each = [row.family for row in compare(matrix, family="task", rng=0)][::3]

    assert "2 tasks × 3 pairs" in every
    assert ["s, 3 pairs", "t, 3 pairs"] == each


def test_step_down_finds_what_single_step_finds_and_its_limits_end_at_0() -> None:
    """The pair of which only the p-value is small has a limit at no difference."""
    rng = np.random.default_rng(2)
    scores = (rng.random((8, 60)) < np.linspace(0.2, 0.9, 8)[:, None]) * 1.0
    matrix = ResponseMatrix.from_array(scores)
    single, steps = (
        list(compare(matrix, correction=name, rng=0)) for name in ("simultaneous", "stepdown")
    )
    more = [s for one, s in zip(single, steps, strict=True) if one.verdict != s.verdict]

    assert more
    assert all(one.verdict == "unclear" for one in single if one.p_adjusted > 0.05)  # pyright: ignore[reportOptionalOperand]
    assert all(0 in (row.low, row.high) for row in more)


@pytest.mark.parametrize(
    ("name", "values", "names"),
    [
        ("correction", Correction, options.CORRECTIONS),
        ("family", Family, options.FAMILIES),
    ],
)
def test_the_command_has_the_defaults_of_the_function(
    name: str, values: Any, names: tuple[str, ...]
) -> None:
    for function in (compare, rank_sets):
        assert names[0] == inspect.signature(function).parameters[name].default
    assert names == get_args(values)
