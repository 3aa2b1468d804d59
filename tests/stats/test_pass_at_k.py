"""pass@k, pass^k and majority@k."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from itertools import accumulate, combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalstats_plugin.stats.clustered import majority_at_k, pass_at_k, pass_hat_k

Formula = Callable[..., np.ndarray]


@pytest.mark.parametrize(
    ("right", "epochs", "k", "expected"),
    # Chen et al. (2021), eq. 1: 1 - C(n - c, k)/C(n, k), in exact arithmetic.
    [(2, 5, 1, 0.4), (2, 5, 3, 0.9), (3, 10, 5, 0.9166666666666666), (0, 4, 4, 0), (4, 4, 1, 1)],
)
def test_pass_at_k_is_that_of_chen(right: int, epochs: int, k: int, expected: float) -> None:
    assert abs(pass_at_k(right, epochs, k=k) - expected) < 1e-12


def _by_counting(right: int, epochs: int, k: int) -> tuple[float, float, float]:
    """Average over every choice of k epochs, counted one by one."""
    chosen = [sum(choice) for choice in combinations([1] * right + [0] * (epochs - right), k)]
    votes = [Fraction(1) if 2 * c > k else Fraction(1, 2) * (2 * c == k) for c in chosen]
    n = len(chosen)
    return (
        sum(c > 0 for c in chosen) / n,
        sum(c == k for c in chosen) / n,
        float(sum(votes) / n),
    )


@pytest.mark.parametrize("epochs", [1, 2, 5, 8])
def test_all_three_are_averages_over_every_choice(epochs: int) -> None:
    """Their definition."""
    for right in range(epochs + 1):
        for k in range(1, epochs + 1):
            expected = _by_counting(right, epochs, k)
            found = [float(f(right, epochs, k=k)) for f in (pass_at_k, pass_hat_k, majority_at_k)]

            assert np.abs(np.subtract(found, expected)).max() < 1e-14


@cache
def _binomials(n: int) -> list[int]:
    """Ways to choose 0, 1, … n of n."""
    return list(accumulate(range(n), lambda ways, k: ways * (n - k) // (k + 1), initial=1))


@pytest.mark.parametrize("k", [1, 2, 999, 1500, 2999, 3000])
def test_thousands_of_epochs_lose_no_digits(k: int) -> None:
    """Against whole numbers of any size."""
    n, counts = 3000, np.array([0, 1, 100, 1499, 1501, 2999, 3000])
    found = [f(counts, n, k=k) for f in (pass_at_k, pass_hat_k, majority_at_k)]
    every = _binomials(n)[k]
    for i, right in enumerate(counts.tolist()):
        of_right, of_wrong = _binomials(right), _binomials(n - right)
        most = range(max(0, k - (n - right), -(-k // 2)), min(right, k) + 1)
        ways = sum(of_right[j] * of_wrong[k - j] * (2 if 2 * j > k else 1) for j in most)
        none = of_wrong[k] if k <= n - right else 0
        whole = of_right[k] if k <= right else 0
        # Of whole numbers of any size the quotient is the nearest float.
        expected = [(every - none) / every, whole / every, ways / (2 * every)]

        assert [each[i] for each in found] == pytest.approx(expected, abs=1e-13)


@pytest.mark.parametrize(
    ("formula", "truth"),
    [
        (pass_at_k, lambda p: 1 - (1 - p) ** 3),
        (pass_hat_k, lambda p: p**3),
        (majority_at_k, lambda p: p**2 * (3 - 2 * p)),
    ],
)
@pytest.mark.parametrize("p", [0.05, 0.5, 0.8])
def test_they_are_unbiased_where_plugging_in_is_not(
    formula: Formula, truth: Callable[[float], float], p: float
) -> None:
    """Exact expectation over the binomial number of right epochs of 5, for k = 3."""
    c = np.arange(6)
    weights = np.array([comb(5, i) * p**i * (1 - p) ** (5 - i) for i in range(6)])
    plugged_in = weights @ np.array([truth(i / 5) for i in range(6)])

    assert abs(weights @ formula(c, 5, k=3) - truth(p)) < 1e-14
    if p != 0.5 or formula is not majority_at_k:
        assert abs(plugged_in - truth(p)) > 1e-3


@given(st.integers(1, 60), st.data())
def test_right_and_wrong_change_places(epochs: int, data: st.DataObject) -> None:
    """One right of k is not all wrong; a majority right is no majority wrong."""
    right = data.draw(st.integers(0, epochs))
    k = data.draw(st.integers(1, epochs))
    wrong = epochs - right

    assert pass_at_k(right, epochs, k=k) == 1 - pass_hat_k(wrong, epochs, k=k)
    total = majority_at_k(right, epochs, k=k) + majority_at_k(wrong, epochs, k=k)
    assert abs(total - 1) < 1e-13
    assert majority_at_k(right, epochs, k=k) == majority_at_k(right, epochs, k=k - (k % 2 == 0))


def test_an_item_with_fewer_than_k_epochs_gives_nan() -> None:
    """NaN, beside items that have enough."""
    for formula in (pass_at_k, pass_hat_k, majority_at_k):
        found = formula([1, 2, 0], [2, 4, 0], k=3)

        assert [True, False, True] == np.isnan(found).tolist()


@pytest.mark.parametrize("formula", [pass_at_k, pass_hat_k, majority_at_k])
def test_impossible_counts_are_refused(formula: Formula) -> None:
    with pytest.raises(ValueError, match="successes must lie between 0 and n"):
        formula(3, 2, k=1)
    with pytest.raises(ValueError, match="k must be 1 or more, got 0"):
        formula(1, 2, k=0)
