"""Adjusted limits, and the best as the baseline."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from evalstats_plugin import ResponseMatrix, compare
from evalstats_plugin.stats import many, paired

ABILITY = np.linspace(0.3, 0.9, 5)[:, None]


def _matrix(n_items: int = 60, **more: object) -> ResponseMatrix:
    scores = (np.random.default_rng(0).random((5, n_items)) < ABILITY).astype(float)
    return ResponseMatrix.from_array(scores, models=list("abcde"), **more)  # pyright: ignore[reportArgumentType]


def test_limits_adjusted_with_holm_are_those_of_sidaks_level() -> None:
    """Ten pairs: each interval at 0.95^(1/10)."""
    matrix = _matrix()
    scores = matrix.scores[:, :, 0]
    level = many.sidak_level(0.95, 10)
    for row in compare(matrix):
        x, y = (scores[matrix.models.index(m)] for m in (row.model_a, row.model_b))
        counts = paired.paired_counts(x @ y, x @ (1 - y), (1 - x) @ y, (1 - x) @ (1 - y))
        low, high = paired.dirichlet(counts, confidence_level=level, prior=(0.5, 1.0))

        assert (float(low), float(high)) == pytest.approx((row.low_adjusted, row.high_adjusted))


@pytest.mark.parametrize("kind", ["binary", "bounded", "real", "clusters", "missing"])
def test_max_t_limits_lie_between_those_of_one_pair_and_of_bonferroni(kind: str) -> None:
    """Of every kind of score; with two models they are the same."""
    matrix = _matrix(clusters=np.repeat(np.arange(20), 3)) if kind == "clusters" else _matrix()
    scores = matrix.scores.copy()
    if kind == "bounded":
        scores = scores * 0.7 + 0.1
    if kind == "real":
        scores = scores * 9 - 4 + np.random.default_rng(1).normal(size=scores.shape)
    if kind == "missing":
        scores[0, :7] = scores[2, 5:9] = np.nan
    matrix = replace(matrix, scores=scores)
    single, widest = (list(compare(matrix, confidence_level=x, rng=0)) for x in (0.95, 0.995))
    rows = list(compare(matrix, correction="maxt", rng=0))

    assert 10 == len(rows)
    for row, one, bonferroni in zip(rows, single, widest, strict=True):
        assert bonferroni.low <= row.low_adjusted <= one.low  # pyright: ignore[reportOperatorIssue, reportOptionalOperand]
        assert one.high <= row.high_adjusted <= bonferroni.high  # pyright: ignore[reportOperatorIssue, reportOptionalOperand]
        assert (row.low, row.high) == (one.low, one.high)
    two = replace(matrix, scores=scores[:2], models=matrix.models[:2])
    (row,) = compare(two, correction="maxt", rng=0)
    assert (row.low, row.high) == pytest.approx((row.low_adjusted, row.high_adjusted))


@pytest.mark.parametrize("correction", ["bh", "none"])
def test_there_are_no_adjusted_limits_without_a_simultaneous_claim(correction: str) -> None:
    """What is kept on average over findings has no intervals that hold at once."""
    for row in compare(_matrix(), correction=correction):  # pyright: ignore[reportArgumentType]
        assert row.low_adjusted is None is row.high_adjusted


@pytest.mark.parametrize("correction", ["holm", "maxt"])
def test_the_best_is_chosen_by_the_scores_and_corrected_for_all_pairs(correction: str) -> None:
    """The same numbers as among all pairs, with the best as model a of each row."""
    matrix = _matrix()
    rows = list(compare(matrix, baseline="best", correction=correction, rng=0))  # pyright: ignore[reportArgumentType]
    every = {
        frozenset((row.model_a, row.model_b)): row
        for row in compare(matrix, correction=correction, rng=0)  # pyright: ignore[reportArgumentType]
    }

    assert [("e", m) for m in "abcd"] == [(row.model_a, row.model_b) for row in rows]
    for row in rows:
        same = every[frozenset((row.model_a, row.model_b))]
        sign = 1 if same.model_a == "e" else -1
        limits = sorted((sign * same.low_adjusted, sign * same.high_adjusted))  # pyright: ignore[reportOperatorIssue, reportOptionalOperand]
        assert row.difference == pytest.approx(sign * same.difference)  # pyright: ignore[reportOptionalOperand]
        assert limits == pytest.approx([row.low_adjusted, row.high_adjusted])
        assert row.p_adjusted == pytest.approx(same.p_adjusted)
        assert "e was chosen as the best" in row.notes[-1]
        assert "all pairs of the 5 models" in row.notes[-1]


def test_each_task_has_its_own_best_and_lower_may_be_better() -> None:
    """The best of errors is the one with the fewest."""
    rng = np.random.default_rng(0)
    one, two = (
        rng.random((3, 80)) < [[0.9], [0.5], [0.2]],
        rng.random((3, 80)) < [[0.2], [0.5], [0.9]],
    )
    matrix = ResponseMatrix.from_array(
        np.concatenate([one, two], axis=1), models=list("xyz"), tasks=["s"] * 80 + ["t"] * 80
    )
    lower = [replace(r, higher_is_better=False) for r in matrix.to_responses()]

    def best(found: object) -> dict[str, str]:
        return {row.task: row.model_a for row in found}  # pyright: ignore[reportGeneralTypeIssues, reportUnknownVariableType]

    assert {"s": "x", "t": "z"} == best(compare(matrix, baseline="best"))
    assert {"s": "z", "t": "x"} == best(compare(lower, baseline="best"))


def test_a_model_that_is_really_called_best_wins() -> None:
    """It is the baseline wherever it ends up."""
    matrix = replace(_matrix(), models=("best", "b", "c", "d", "e"))
    rows = list(compare(matrix, baseline="best"))

    assert {"best"} == {row.model_a for row in rows}
    assert not any(row.notes for row in rows)
