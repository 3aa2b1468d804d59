"""Weighted means over tasks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalstats_plugin.stats import bounded
from evalstats_plugin.stats.interval import Interval
from evalstats_plugin.stats.survey import strata

TASKS = st.lists(
    st.integers(1, 60).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))),
    min_size=1,
    max_size=12,
).map(np.array)


def group(tasks, weights, level=0.95):
    k, n = tasks.T
    return strata.beta_effective(
        k / n, strata.smoothed_binary(k, n), weights, confidence_level=level
    )


def test_micro_and_macro_averages():
    """lm-eval's weight_by_size, and its opposite."""
    assert float(strata.weighted_mean([0.5, 1.0], [300, 100])) == 0.625
    assert float(strata.weighted_mean([0.5, 1.0], [1, 1])) == 0.75


def test_mover_of_normal_intervals_is_the_normal_interval():
    """Where each side is z standard errors, so is each side of the whole."""
    means, errors, z = np.array([1.0, 4.0, -2.0]), np.array([0.5, 0.1, 0.3]), 1.96
    weights = np.array([1.0, 2.0, 5.0])

    low, high = strata.mover(means, Interval(means - z * errors, means + z * errors), weights)

    half = z * np.sqrt(((errors * weights) ** 2).sum(axis=-1)) / np.sum(weights)
    centre = strata.weighted_mean(means, weights)
    assert np.allclose((centre - half, centre + half), (low, high), rtol=0, atol=1e-14)


def test_mover_of_a_difference_is_newcombes_method_10():
    """Newcombe (1998b) Table II, 56/70 - 48/80: one sign turned, weights ½ undone."""
    k, n = np.array([56, 48]), np.array([70, 80])
    intervals = bounded.wilson(k, n, confidence_level=0.95)
    turned = Interval(
        np.array([intervals.low[0], -intervals.high[1]]),
        np.array([intervals.high[0], -intervals.low[1]]),
    )

    low, high = strata.mover(np.array([56 / 70, -48 / 80]), turned, [1, 1])

    assert np.allclose((0.0524, 0.3339), (2 * low, 2 * high), rtol=0, atol=5e-5)


@given(TASKS, st.sampled_from(["wilson", "jeffreys", "clopper_pearson"]))
def test_mover_stays_within_bounds(tasks, method):
    """Since each task's limits do."""
    k, n = tasks.T
    intervals = getattr(bounded, method)(k, n, confidence_level=0.95)

    low, high = strata.mover(k / n, intervals, n)

    assert low >= -1e-15
    assert high <= 1 + 1e-15


@given(st.integers(1, 200), st.data())
def test_one_task_has_its_own_interval(n, data):
    """A group of one is its task."""
    k = data.draw(st.integers(0, n))
    expected = bounded.beta_hpd(k, n, confidence_level=0.95, prior=(1, 1))

    assert np.allclose(expected, group(np.array([[k, n]]), [3.0]), rtol=0, atol=1e-9)


@given(TASKS)
def test_group_interval_has_width_stays_within_bounds_and_holds_the_estimate(tasks):
    """All tasks perfect or empty-handed included."""
    k, n = tasks.T
    for weights in (n, np.ones(len(n))):
        low, high = group(tasks, weights)
        estimate = strata.weighted_mean(k / n, weights)
        assert 0 <= low <= estimate + 1e-12
        assert estimate - 1e-12 <= high <= 1
        assert low < high


@given(TASKS)
def test_right_and_wrong_mirror(tasks):
    """Exchanging them turns the interval round."""
    k, n = tasks.T
    low, high = group(tasks, n)

    turned = group(np.stack([n - k, n], axis=1), n)

    assert np.allclose((1 - high, 1 - low), turned, rtol=0, atol=1e-10)


@given(TASKS, st.floats(0.5, 0.9), st.floats(0.9, 0.999))
def test_more_confidence_gives_an_interval_around(tasks, one, other):
    """Intervals at two levels are nested."""
    inner, outer = group(tasks, [1.0] * len(tasks), one), group(tasks, [1.0] * len(tasks), other)

    assert outer.low <= inner.low + 1e-12
    assert inner.high <= outer.high + 1e-12


@given(st.integers(1, 50), st.data())
def test_smoothing_of_scores_agrees_with_that_of_counts(n, data):
    """Zeros and ones given as scores."""
    k = data.draw(st.integers(0, n))
    expected = strata.smoothed_binary(k, n)

    actual = strata.smoothed_scores(np.r_[np.arange(n) < k, np.nan])

    assert np.allclose(expected, actual, rtol=1e-12, atol=0)


def test_a_task_without_items_makes_the_group_undefined():
    """Its share of the mean is unknown; leaving it out is for the caller to decide."""
    k, n = np.array([[1, 2], [1, 2]]), np.array([[3, 0], [3, 4]])
    k[0, 1] = 0
    with np.errstate(invalid="ignore"):
        estimates = k / n

    interval = strata.beta_effective(
        estimates, strata.smoothed_binary(k, n), [1, 1], confidence_level=0.95
    )

    assert np.isnan(interval.low).tolist() == [True, False]


def test_negative_weights_are_refused():
    """A difference is not a group."""
    with pytest.raises(ValueError, match="negative"):
        strata.weighted_mean([0.5, 0.6], [1, -1])
