"""What every kind of interval shares."""

import numpy as np
import pytest

from evalstats_plugin.stats import bounded, grid_posteriors, interval, sequential
from evalstats_plugin.stats.interval import increasing_root, normal_quantile, tail_probability
from evalstats_plugin.stats.pairs import paired, unpaired


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


BITS = (np.array([3.0, 20, 7]), np.array([9.0, 40, 8]))
TABLES = paired.paired_counts([20, 5, 0], [3, 9, 1], [8, 2, 4], [9, 0, 2])
APART = unpaired.independent_counts([3, 9, 5], [9, 40, 11], [8, 5, 5], [12, 7, 11])
CREDIT = np.array([[0.1, 0.5, 0.4, 0.9, 0.0], [1.0, 0.3, 0.7, 0.8, 0.9]])
SOLVED = {
    "mid-p": (bounded, lambda level: bounded.mid_p(*BITS, confidence_level=level)),
    "density": (
        bounded,
        lambda level: bounded.beta_hpd(*BITS, confidence_level=level, prior=(1, 1)),
    ),
    "partial credit": (
        bounded,
        lambda level: bounded.gaffke(CREDIT, bounds=(0, 1), confidence_level=level),
    ),
    "at any time": (
        sequential,
        lambda level: sequential.beta_mixture(*BITS, confidence_level=level),
    ),
    "betting": (
        sequential,
        lambda level: sequential.betting_mixture(CREDIT, bounds=(0, 1), confidence_level=level),
    ),
    "pairs": (paired, lambda level: paired.tango(TABLES, confidence_level=level)),
    "differences": (
        unpaired,
        lambda level: unpaired.miettinen_nurminen(APART, confidence_level=level),
    ),
    "log ratios": (
        unpaired,
        lambda level: unpaired.beta_ratio(APART, confidence_level=level, prior=(1, 1)),
    ),
    "odds": (
        unpaired,
        lambda level: unpaired.beta_odds_ratio(APART, confidence_level=level, prior=(1, 1)),
    ),
    "clusters": (
        grid_posteriors,
        lambda level: grid_posteriors.beta_binomial(
            *BITS, confidence_level=level, prior="uniform-icc"
        ),
    ),
    "sizes": (
        grid_posteriors,
        lambda level: grid_posteriors.size_beta_binomial(*BITS, confidence_level=level),
    ),
    "partly missing": (
        interval,
        lambda level: interval.imbens_manski_level([0.01, 0.05], 0.04, confidence_level=level),
    ),
}


@pytest.mark.parametrize("name", SOLVED)
def test_the_slopes_that_roots_are_found_by_are_those_of_the_functions(name, monkeypatch):
    """A wrong one finds the same root, in many more steps. Beside each root, by differences."""
    module, limits = SOLVED[name]
    n_checked = 0

    def checked(value_and_slope, start, *, bracket, tolerance, max_steps=100):
        nonlocal n_checked
        root = increasing_root(
            value_and_slope, start, bracket=bracket, tolerance=tolerance, max_steps=max_steps
        )
        if max_steps == 1:  # a rough start
            return root
        cells, step = np.arange(len(root)), 1e-5 * np.maximum(np.abs(root), 0.1)
        inside = (root > bracket[0] + 1e-3) & (root < bracket[1] - 1e-3)
        at = np.where(inside, root - 2 * step, root)
        (low, _), (high, _) = (value_and_slope(at + k * step, cells) for k in (-1, 1))
        _, slope = value_and_slope(at, cells)
        expected = (high - low) / (2 * step)
        assert np.allclose(slope[inside], expected[inside], rtol=2e-4, atol=1e-7)
        n_checked += int(inside.sum())
        return root

    monkeypatch.setattr(module, "increasing_root", checked)
    grid_posteriors._solved_size_model.cache_clear()
    limits(0.87)

    assert n_checked > 1
    for percentage in (0.0, 1.0, 87.0):
        with pytest.raises(ValueError, match="between 0 and 1"):
            limits(percentage)
