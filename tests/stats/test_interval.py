"""What every kind of interval shares."""

import numpy as np
import pytest

from evalstats_plugin.stats.interval import increasing_root, normal_quantile, tail_probability


def test_normal_quantile_of_95_percent():
    """The number everybody knows."""
    assert normal_quantile(0.95) == pytest.approx(1.959963984540054, abs=1e-14)


def test_tail_probability_refuses_a_percentage():
    """95 is not 0.95."""
    with pytest.raises(ValueError, match="between 0 and 1, got 95"):
        tail_probability(95)


def test_root_is_found_from_any_start():
    """Where Newton's method alone runs away, and where the slope vanishes."""
    target = np.array([-0.9, 0.0, 0.5, 0.999])

    def value_and_slope(x, cells):
        return np.tanh(x) - target[cells], 1 / np.cosh(x) ** 2

    for start in (-30.0, 0.0, 2.0, 40.0):
        root = increasing_root(
            value_and_slope, np.full(4, start), bracket=(-50, 50), tolerance=1e-8
        )
        assert np.allclose(np.arctanh(target), root, rtol=0, atol=1e-12)


def test_root_at_a_kink_is_found_by_bisection():
    """A slope of no use costs time, not accuracy."""
    root = increasing_root(
        lambda x, _: (np.cbrt(x - 0.3), np.zeros_like(x)),
        np.array([0.9]),
        bracket=(0, 1),
        tolerance=1e-8,
    )

    assert root[0] == pytest.approx(0.3, abs=1e-14)


def test_newton_steps_that_go_back_and_forth_are_left():
    """A steep step between flat ends: each Newton step overshoots to the other side."""

    def value_and_slope(x, _):
        return np.arctan(50 * (x - 0.2)) + 0.01 * x, 50 / (1 + (50 * (x - 0.2)) ** 2) + 0.01

    root = increasing_root(value_and_slope, np.array([30.0]), bracket=(-37, 37), tolerance=1e-8)

    assert value_and_slope(root, None)[0][0] == pytest.approx(0, abs=1e-12)


def test_nan_stays_nan():
    """An undefined function has no root, and holds nobody up."""
    root = increasing_root(
        lambda x, cells: (x - np.array([np.nan, 0.25])[cells], np.ones_like(x)),
        np.array([0.5, 0.5]),
        bracket=(0, 1),
        tolerance=1e-8,
    )

    assert np.isnan(root[0])
    assert root[1] == 0.25
