"""Logged values against each other and against their items, by the definitions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from evalstats_plugin.adapters.lm_eval.values import (
    aggregation_of,
    as_answers,
    as_number,
    as_pairs,
    as_scores,
    brier_scores,
    contradiction,
    disagreement,
    kind_of,
    repeat_scores,
    same,
)


@pytest.mark.parametrize("metric", ["acc,none", "exact_match,strict", "pass@1", "bleu,none"])
@pytest.mark.parametrize("n", [2, 5, 100])
@pytest.mark.parametrize("value", [0.0, 0.2, 0.5, 1.0])
def test_a_standard_error_is_contradicted_where_no_scores_have_it(
    metric: str, n: int, value: float
) -> None:
    """0 of a mean between the ends, or more than zeros and ones have, where scores are shares."""
    most = math.sqrt(value * (1 - value) / (n - 1))
    zero = contradiction(metric, value, 0.0, n)
    if 0 < value < 1:
        assert zero is not None
        assert zero.startswith(f"stderr 0 means that each of the {n} items scored {value:g}")
        assert contradiction(metric, value, 0.5 * most, n) is None
    else:
        assert zero is None
    assert contradiction(metric, value, most * (1 + 1e-7) + 1e-10, n) is None or most == 0
    above = contradiction(metric, value, most * 1.001 + 1e-6, n)
    assert (above is None) == metric.startswith("bleu")
    if above is not None:
        assert f"the most that {n} scores from 0 to 1 with the mean {value:g} can have" in above


@pytest.mark.parametrize(
    ("value", "error", "n"),
    [(None, 0.0, 9), (0.5, None, 9), (0.5, 0.0, 1), (0.5, 0.0, 0), (1.5, 0.0, 9), (-0.5, 0.3, 9)],
)
def test_what_is_not_known_contradicts_nothing(
    value: float | None, error: float | None, n: int
) -> None:
    """Nor one item, nor values off the scale."""
    assert contradiction("acc", value, error, n) is None


def test_logged_numbers_are_those_of_the_items_in_either_precision() -> None:
    """Mean and standard error with n - 1; what differs is named with what the items give."""
    scores = np.random.default_rng(1).random(30)
    mean, error = scores.mean(), scores.std(ddof=1) / 30**0.5
    single = scores.astype(np.float32)

    assert disagreement(scores, mean, error) is None
    assert disagreement(scores, float(single.mean()), None) is None
    assert disagreement(scores, None, None) is None
    assert disagreement(scores, mean + 0.01, error) == (
        f"the log has value {mean + 0.01:.6g} where its items give {mean:.6g}"
    )
    both = disagreement(scores, mean + 0.01, 2 * error)
    assert both == (
        f"the log has value {mean + 0.01:.6g} where its items give {mean:.6g} and "
        f"stderr {2 * error:.6g} where its items give {error:.6g}"
    )
    assert same(math.nan, math.nan)
    assert not same(math.nan, 0.5)
    assert not same(0.5, math.nan)


@pytest.mark.parametrize("odd", [[1, 2, 3], [1], "ab", 1.0])
def test_what_is_no_pair_of_labels_is_none(odd: object) -> None:
    """One value that is no pair, and none of the items is."""
    pairs = as_answers([[1, 0], None, ("a", "b")])

    assert pairs is not None
    assert pairs.tolist() == [[1, 0], [None, None], ["a", "b"]]
    assert as_answers([[1, 0], odd]) is None
    assert as_answers([None, None]) is None


@pytest.mark.parametrize("seed", range(3))
def test_brier_scores_are_sums_of_squares(seed: int) -> None:
    """From log-likelihoods, of which none is above 0, or from probabilities; of any choices."""
    rng = np.random.default_rng(seed)
    values: list[Any] = [None]
    expected = [math.nan]
    for k in range(30):
        size = int(rng.integers(2, 6))
        target = int(rng.integers(size))
        logs = rng.normal(size=size) - 9
        shares = np.exp(logs) / np.exp(logs).sum()
        values.append((target, (logs if k % 2 else shares).tolist()))
        expected.append(float(sum((p - (c == target)) ** 2 for c, p in enumerate(shares))))

    np.testing.assert_allclose(brier_scores(values), expected, rtol=1e-12)  # pyright: ignore[reportArgumentType]
    assert brier_scores([(0, [0.0, -50.0])]) == pytest.approx([0.0])
    assert brier_scores([(0, [1.0, 0.0])]) == pytest.approx([0.0])
    for odd in (
        (2, [0.5, 0.5]), (-1, [0.5, 0.5]), (0, [0.5, 1.5]), (0, [0.5, -0.5]), (0.5, [0.5, 0.5]),
        (0,), 3, ("a", [1, 0]), (0, ["x", "y"]),
    ):  # fmt: skip
        assert brier_scores([values[1], odd]) is None


def test_logged_numbers_may_be_texts() -> None:
    """Of NumPy, and what is none."""
    told = {True: 1.0, 3: 3.0, "0.5": 0.5, "True": 1.0, "False": 0.0, "nan": math.nan}
    for value, number in told.items():
        assert as_number(value) == pytest.approx(number, nan_ok=True)
    for nothing in ("N/A", "", None, [1], (1,), {}, 10**400, object()):
        assert as_number(nothing) is None
    np.testing.assert_array_equal(as_scores([1, None, True]), [1, math.nan, 1])  # pyright: ignore[reportArgumentType]
    np.testing.assert_array_equal(as_scores(["0.5", None, "True"]), [0.5, math.nan, 1])  # pyright: ignore[reportArgumentType]
    assert as_scores(["a"]) is None
    assert as_scores([[1, 2], [3, 4]]) is None
    np.testing.assert_array_equal(as_pairs([[1, 2], None]), [[1, 2], [math.nan] * 2])  # pyright: ignore[reportArgumentType]
    for odd in ([[1, 2, 3]], [1, 2], [[1], [1, 2]], [["a", 1]]):
        assert as_pairs(odd) is None


def test_scores_of_repeats_are_padded_but_not_without_end() -> None:
    """One very long row would make the array as wide: above 64 cells for each score."""
    np.testing.assert_array_equal(
        repeat_scores([[1, 0, "0.5"], None, [1]]),  # pyright: ignore[reportArgumentType]
        [[1, 0, 0.5], [math.nan] * 3, [1, math.nan, math.nan]],
    )
    for odd in ([[1], 2], [None], [], [["a"]], [[], None]):
        assert repeat_scores(odd) is None
    # 128 rows of 1 and one of n: 129 n cells, of which 64 (128 + n + 64) are allowed.
    most = 64 * (128 + 64) // (129 - 64)
    assert repeat_scores([[1]] * 128 + [[1] * most]).shape == (129, most)  # pyright: ignore[reportOptionalMemberAccess]
    assert repeat_scores([[1]] * 128 + [[1] * (most + 1)]) is None


def test_kinds_and_aggregations_are_named() -> None:
    """What stands in place of a score, and how a task aggregates it."""
    kinds = {
        "a list of 2: int, text": [None, 1, (1, "a")], "an object": [{}], "a text": ["a"],
        "a list of 1: list": [[[1]]], "object": [object()],
    }  # fmt: skip
    assert {kind: kind_of(values) for kind, values in kinds.items()} == {k: k for k in kinds}
    listed = [
        {"metric": "a"}, {"metric": "a", "aggregation": "median"}, {"metric": "b", "aggregation":
        "<function f>"}, {"metric": "c", "aggregation": "chrf++"},
    ]  # fmt: skip
    names = [
        aggregation_of(m, {"metric_list": listed}) for m in ("a", "b", "c", "f1", "acc", "mcc")
    ]
    assert names == ["median", "custom", "chrf++", "f1", "mean", "matthews_corrcoef"]
    assert aggregation_of("perplexity", {}) == "perplexity"
