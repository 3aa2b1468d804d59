"""Means of unbounded scores."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalstats_plugin.stats import means

SCORES = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30)
# Extra hours of sleep of ten patients, from Student (1908): the second group of R's `sleep`.
SLEEP = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]


def test_t_interval_of_students_sleep_data():
    """R: t.test(subset(sleep, group == 2)$extra) prints 0.8976775 3.7623225."""
    interval = means.t_interval(SLEEP, confidence_level=0.95)

    assert np.allclose((0.8976775, 3.7623225), interval, rtol=0, atol=5e-8)


def test_z_interval_by_hand():
    """Mean 2, standard deviation 1, three scores."""
    interval = means.z_interval([1.0, 2.0, 3.0], confidence_level=0.95)

    half = 1.959963984540054 / np.sqrt(3)
    assert np.allclose((2 - half, 2 + half), interval, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("df", "expected"), [(1, 12.706), (9, 2.262), (30, 2.042), (1e9, 1.960)])
def test_t_quantiles_of_the_printed_tables(df, expected):
    """The 0.975 column of every table of Student's t."""
    assert expected == pytest.approx(float(means.t_quantile(df, confidence_level=0.95)), abs=5e-4)


@given(SCORES)
def test_missing_scores_do_not_count(scores):
    """Padding with NaN changes nothing."""
    padded = [np.nan, *scores, np.nan]

    assert np.allclose(means.moments(scores), means.moments(padded), rtol=1e-12, atol=1e-9)


@given(SCORES, st.randoms())
def test_order_does_not_matter(scores, random):
    """Items are exchangeable."""
    shuffled = random.sample(scores, len(scores))

    assert np.allclose(
        means.t_interval(scores, confidence_level=0.9),
        means.t_interval(shuffled, confidence_level=0.9),
        rtol=1e-9,
        atol=1e-6,
    )


@given(SCORES, st.floats(0.5, 0.9), st.floats(0.9, 0.999))
def test_more_confidence_gives_an_interval_around(scores, one, other):
    """Intervals at two levels are nested."""
    inner = means.t_interval(scores, confidence_level=one)
    outer = means.t_interval(scores, confidence_level=other)

    assert outer.low <= inner.low
    assert inner.high <= outer.high


def test_one_score_has_no_spread():
    """A standard error of 0 would be a lie; it is undefined."""
    scores = [[1.0, np.nan, np.nan], [1.0, 2.0, np.nan], [np.nan, np.nan, np.nan]]

    assert np.array_equal([True, False, True], np.isnan(means.std_error(scores)))
    assert np.array_equal(
        [True, False, True], np.isnan(means.t_interval(scores, confidence_level=0.95).low)
    )
    assert np.array_equal([1.0, 1.5, np.nan], means.moments(scores).mean, equal_nan=True)


def test_leading_axes_broadcast():
    """Cells are independent, in whatever shape they come."""
    scores = np.random.default_rng(0).normal(size=(2, 3, 7))
    together = means.t_interval(scores, confidence_level=0.95)

    for index in np.ndindex(2, 3):
        alone = means.t_interval(scores[index], confidence_level=0.95)
        assert np.allclose(alone, np.array(together)[:, *index], rtol=0, atol=1e-14)


@pytest.mark.parametrize("missing", [[], [np.nan]])
def test_equal_scores_have_no_spread(missing):
    """The mean of three scores of .1 is not .1 to the last bit."""
    assert np.std([0.1] * 3) > 0
    assert means.std_error([0.1] * 3 + missing) == 0
