"""Ratios of sums."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from evalstats_plugin.stats import means

PAIRS = st.lists(st.tuples(st.floats(-1e3, 1e3), st.floats(0.1, 1e3)), min_size=2, max_size=20).map(
    np.array
)
METHODS = [means.ratio_t, means.ratio_jackknife]


def test_linearised_std_error_is_that_of_cochran():
    """Cochran (1977), written out: residuals from the line through the origin."""
    y, w = np.array([1.0, 5, 3, 8, 2]), np.array([10.0, 20, 15, 40, 9])
    estimate = 19 / 94
    expected = np.sqrt(((y - estimate * w) ** 2).sum() / 4 / 5) / (94 / 5)

    assert expected == pytest.approx(float(means.ratio_std_error(y, w)), rel=1e-14)


def test_jackknife_std_error_by_leaving_out():
    """The definition, item by item."""
    y, w = np.array([1.0, 5, 3, 8, 2]), np.array([10.0, 20, 15, 40, 9])
    without = np.array([np.delete(y, i).sum() / np.delete(w, i).sum() for i in range(5)])
    expected = np.sqrt(4 / 5 * ((without - without.mean()) ** 2).sum())

    assert expected == pytest.approx(float(means.jackknife_std_error(y, w)), rel=1e-13)


@pytest.mark.parametrize("method", METHODS)
def test_equal_denominators_give_the_t_interval_of_the_mean(method):
    """Documents of the same length."""
    y = np.array([1.0, 5, 3, 8, 2])
    expected = means.t_interval(y / 7, confidence_level=0.95)

    actual = method(y, np.full(5, 7.0), confidence_level=0.95)

    assert np.allclose(expected, actual, rtol=0, atol=1e-14)


@pytest.mark.parametrize("method", METHODS)
@given(pairs=PAIRS)
def test_order_and_missing_items_do_not_matter(method, pairs):
    """An item counts if it has both numbers."""
    y, w = pairs.T
    padded_y = np.r_[np.nan, y[::-1], 3.0]
    padded_w = np.r_[5.0, w[::-1], np.nan]

    assert np.allclose(
        method(y, w, confidence_level=0.9),
        method(padded_y, padded_w, confidence_level=0.9),
        rtol=1e-7,
        atol=1e-5,
    )


@pytest.mark.parametrize("method", METHODS)
@given(pairs=PAIRS)
def test_units_do_not_matter(method, pairs):
    """Nats or bits, words or thousands of words."""
    y, w = pairs.T
    expected = np.array(method(y, w, confidence_level=0.9)) * 8 / 4

    actual = method(8 * y, 4 * w, confidence_level=0.9)

    assert np.allclose(expected, actual, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_one_item_has_no_interval(method):
    """Nor has none; neighbours are left alone."""
    y = np.array([[1.0, np.nan], [1.0, 2.0], [np.nan, np.nan]])

    interval = method(y, np.ones((3, 2)), confidence_level=0.95)

    assert np.isnan(interval.low).tolist() == [True, False, True]
    assert np.allclose([1.0, 1.5, np.nan], means.ratio(y, np.ones((3, 2))), equal_nan=True)


def test_a_dominant_item_widens_the_interval():
    """Fewer effective items than items."""
    y, w = np.array([1.0, 1, 1, 1, 90]), np.array([10.0, 11, 12, 9, 1000])
    plain = means.ratio_t(y, w, confidence_level=0.95)

    wider = means.ratio_jackknife(y, w, confidence_level=0.95)

    assert wider.high - wider.low > 2 * (plain.high - plain.low)


def test_negative_denominators_are_refused():
    """Numbers the wrong way round: log-likelihoods are negative, words are not."""
    with pytest.raises(ValueError, match="negative"):
        means.ratio_t([10.0, 12.0], [-3.0, -4.0], confidence_level=0.95)


@settings(max_examples=30)
@given(
    st.integers(0, 2**32), st.integers(3, 12), st.sampled_from([0.5, 0.8, 0.95, 0.99]),
    st.sampled_from(["costs", "cases", "alike"]),
)  # fmt: skip
def test_limits_of_a_skewed_ratio_are_where_halls_t_is_students(seed, n, level, kind):
    """Fieller's and Hall's formulas by another hand, at each limit; weights are copies."""
    random = np.random.default_rng(seed)
    y = random.lognormal(sigma=1.0, size=n)
    w = {
        "costs": np.ones(n),
        "cases": random.integers(0, 2, n) * 1.0,
        "alike": random.gamma(5.0, size=n),
    }[kind]
    copies = random.integers(1, 4, n)
    if not w.any():
        return
    low, high = means.skewed_ratio(y, w, confidence_level=level, weights=copies)
    whole = np.repeat(y, copies), np.repeat(w, copies)
    size = len(whole[0])
    t = stats.t.ppf((1 + level) / 2, size - 1)

    def halls(ratio):
        rest = whole[0] - ratio * whole[1]
        z = rest.mean() / rest.std(ddof=1) * np.sqrt(size)
        away = rest - rest.mean()
        a = (away**3).mean() / (away**2).mean() ** 1.5 / np.sqrt(size)
        return z + a * z**2 / 3 + a**2 * z**3 / 27 + a / 6

    assert (low, high) == pytest.approx(means.skewed_ratio(*whole, confidence_level=level))
    estimate = whole[0].sum() / whole[1].sum()
    assert 0 <= low < estimate < high
    if low > 0:
        assert halls(low) == pytest.approx(t, abs=1e-5)
    else:
        assert halls(0.0) <= t
    if high < np.inf:
        assert halls(high) == pytest.approx(-t, abs=1e-5)
    else:
        # The mean of the denominators alone, of which each counts against the ratio.
        assert halls(1e9 * estimate) >= -t - 1e-5
    for between in np.linspace(max(low, 1e-9), min(high, 10 * estimate), 7)[1:-1]:
        assert -t <= halls(between) <= t


@pytest.mark.parametrize(
    ("y", "w"),
    [([2.0], [1.0]), ([0.0, 0.0], [1.0, 2.0]), ([1.0, 2.0], [0.0, 0.0]), ([1.0, 3.0], [2.0, 6.0])],
)
def test_no_limits_of_a_skewed_ratio_where_nothing_varies(y, w):
    """One unit, no numerators, no denominators, or one ratio of all units."""
    assert np.isnan(means.skewed_ratio(y, w, confidence_level=0.9)).all()
