"""Logged values against each other and against their items, by the definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from evalstats_plugin.adapters.lm_eval.values import (
    as_answers,
    contradiction,
    disagreement,
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
