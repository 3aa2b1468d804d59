"""Any function of sums over units: intervals and comparisons."""

from itertools import product

import numpy as np
import pytest
from scipy import stats

from evalstats_plugin.stats import means, metric_intervals


def ratio_of(sums):
    with np.errstate(invalid="ignore"):
        return sums[..., 0] / sums[..., 1]


def units(seed, n=12):
    rng = np.random.default_rng(seed)
    words = rng.uniform(1, 4, n)
    return np.stack([words * rng.normal(2, 0.4, n), words], axis=1)


def test_the_jackknife_of_a_ratio_is_that_of_the_ratio_module():
    """The same standard error, written a second time."""
    data = units(0)
    low, high = metric_intervals.jackknife_t(data, ratio_of, confidence_level=0.95)
    expected = stats.t(11).ppf(0.975) * means.jackknife_std_error(data[:, 0], data[:, 1])

    assert high - low == pytest.approx(2 * expected, rel=1e-12)


def test_of_a_mean_the_jackknife_is_students_t():
    """Every unit adds 1 to the second sum."""
    values = np.random.default_rng(1).normal(size=15)
    data = np.stack([values, np.ones(15)], axis=1)
    found = metric_intervals.jackknife_t(data, ratio_of, confidence_level=0.9)
    expected = stats.t.interval(0.9, 14, values.mean(), values.std(ddof=1) / np.sqrt(15))

    assert found == pytest.approx(expected, rel=1e-12)


def test_the_bootstrap_is_that_of_every_resample():
    """Three units have 27 resamples: the share of each value, exactly."""
    data = units(2, 3)[None]
    drawn = metric_intervals.resampled(
        data, np.ones(3, dtype=int), ratio_of, rng=np.random.default_rng(0), n_resamples=40_000
    )[:, 0]
    exact = np.array([ratio_of(data[0, list(c)].sum(axis=0)) for c in product(range(3), repeat=3)])

    for point in np.unique(exact.round(9)) + 1e-7:
        assert (drawn <= point).mean() == pytest.approx((exact <= point).mean(), abs=0.01)


def test_units_seen_several_times_are_as_many_units():
    """Counted together or one by one, the distribution is the same."""
    data = units(3, 4)
    counts = np.array([3, 1, 2, 4])
    together = metric_intervals.resampled(
        data[None], counts, ratio_of, rng=np.random.default_rng(0), n_resamples=5000
    )
    apart = metric_intervals.resampled(
        np.repeat(data, counts, axis=0)[None],
        np.ones(10, dtype=int),
        ratio_of,
        rng=np.random.default_rng(1),
        n_resamples=5000,
    )

    assert stats.ks_2samp(together[:, 0], apart[:, 0]).pvalue > 0.001


def test_models_that_answer_alike_are_not_distinguishable():
    """No width, one half."""
    data = np.stack([units(7)] * 2)
    left = metric_intervals.leave_one_out(data, ratio_of)
    low, high, prob = metric_intervals.jackknife_difference(
        np.zeros(1), left[1:] - left[:1], confidence_level=0.95
    )

    assert np.isnan([low[0], high[0]]).all()
    assert prob == [0.5]


def test_one_unit_has_no_interval():
    """Nor do units that are all alike."""
    sampling = {"rng": np.random.default_rng(0), "n_resamples": 99}
    alike = np.repeat(units(8, 1), 5, axis=0)

    assert np.isnan(metric_intervals.jackknife_t(alike[:1], ratio_of, confidence_level=0.9)).all()
    assert np.isnan(metric_intervals.jackknife_t(alike, ratio_of, confidence_level=0.9)).all()
    found = metric_intervals.percentile_bootstrap(alike, ratio_of, confidence_level=0.9, **sampling)
    assert np.isnan(found).all()


@pytest.mark.parametrize("estimate", [1e6, -1e6])
def test_a_width_is_rounding_error_by_the_size_of_the_estimate(estimate):
    """Limits 1e-8 apart are one number at a million, and two at 0."""
    steps = 1e-9 * np.arange(-2.0, 3)
    at_zero = metric_intervals.jackknife_limits(np.asarray(0.0), steps, confidence_level=0.9)
    far = metric_intervals.jackknife_limits(
        np.asarray(estimate), estimate + steps, confidence_level=0.9
    )

    assert 1e-9 < at_zero.high - at_zero.low < 1e-7
    assert np.isnan(far).all()
