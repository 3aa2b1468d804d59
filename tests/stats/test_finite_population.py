"""Intervals for the full benchmark from a part of it."""

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from evalstats_plugin.stats import bounded
from evalstats_plugin.stats.interval import Interval
from evalstats_plugin.stats.survey.finite_population import (
    finite_population_correction,
    predictive_equal_tailed,
    predictive_hpd,
    shrink,
)

METHODS = {
    "equal_tailed": predictive_equal_tailed,
    "hpd": predictive_hpd,
}
every_method = pytest.mark.parametrize("name", sorted(METHODS))
RUNS = st.integers(1, 150).flatmap(
    lambda population: st.integers(1, population).flatmap(
        lambda n: st.tuples(st.integers(0, n), st.just(n), st.just(population))
    )
)


def predict(name, k, n, population, level=0.95):
    return METHODS[name](k, n, population, confidence_level=level, prior=(1, 1))


def coverage(name, n, population, level=0.95):
    """Exact, for every possible number of items that would be right."""
    k = np.arange(n + 1)
    low, high = predict(name, k, n, population, level)
    right = np.arange(population + 1)[:, None]
    chance = stats.hypergeom.pmf(k, population, right, n)
    inside = (low <= right / population + 1e-12) & (right / population <= high + 1e-12)
    return (chance * inside).sum(axis=1)


def exact_prediction(k, n, population):
    """P(r more are right) with uniform prior, in whole numbers: Pólya's urn."""
    left = population - n
    return [
        Fraction(comb(k + r, k) * comb(n - k + left - r, n - k), comb(population + 1, n + 1))
        for r in range(left + 1)
    ]


# Of the last, exactly the tail lies beyond a limit.
@pytest.mark.parametrize(
    ("k", "n", "population"), [(7, 10, 25), (10, 10, 40), (0, 3, 9), (1, 1, 15), (0, 1, 15)]
)
def test_equal_tails_by_exact_arithmetic(k, n, population):
    """Mass beyond each limit is at most half of what is left out, and one item less is too much."""
    chances = exact_prediction(k, n, population)
    low, high = predict("equal_tailed", k, n, population, 0.9)
    first, last = round(low * population) - k, round(high * population) - k

    assert sum(chances) == 1
    assert sum(chances[:first]) <= Fraction(1, 20)
    assert sum(chances[last + 1 :]) <= Fraction(1, 20)
    if k > 0:
        assert sum(chances[: first + 1]) > Fraction(1, 20)


@pytest.mark.parametrize(("k", "n", "population"), [(7, 10, 25), (5, 10, 60), (0, 3, 9)])
def test_hpd_by_exact_arithmetic(k, n, population):
    """No outcome left out is more probable than one inside; together they have the level."""
    chances = exact_prediction(k, n, population)
    low, high = predict("hpd", k, n, population, 0.9)
    first, last = round(low * population) - k, round(high * population) - k
    inside, outside = chances[first : last + 1], chances[:first] + chances[last + 1 :]

    assert sum(inside) >= Fraction(9, 10)
    assert max(outside) <= min(inside)
    assert sum(inside) - min(inside) * (1 + (inside[0] == inside[-1])) < Fraction(9, 10)


@every_method
@pytest.mark.parametrize(("n", "population"), [(5, 40), (20, 50), (50, 100), (90, 100)])
def test_mean_coverage_is_at_least_the_level(name, n, population):
    """Averaged over the prior, by exact sums; whole items make it a little more."""
    mean_coverage = coverage(name, n, population).mean()

    assert 0.95 - 1e-12 <= mean_coverage <= 0.999


def test_an_endless_population_gives_the_binomial_interval():
    """A part of 200,000 items: the Beta posterior."""
    expected = bounded.beta_hpd(14, 20, confidence_level=0.95, prior=(1, 1))

    assert np.allclose(expected, predict("hpd", 14, 20, 200_000), rtol=0, atol=2e-5)


@every_method
class TestProperties:
    @given(run=RUNS)
    def test_stays_within_what_is_possible_and_holds_the_estimate(self, name, run):
        """Between all the rest wrong and all the rest right."""
        k, n, population = run
        low, high = predict(name, k, n, population)

        assert k / population - 1e-15 <= low <= k / n
        assert k / n <= high <= (k + population - n) / population + 1e-15

    @given(run=RUNS)
    def test_mirrors(self, name, run):
        """Right and wrong exchanged."""
        k, n, population = run
        low, high = predict(name, k, n, population)
        turned = predict(name, n - k, n, population)

        assert np.allclose((1 - high, 1 - low), turned, rtol=0, atol=1e-12)

    @given(run=RUNS, one=st.floats(0.5, 0.9), other=st.floats(0.9, 0.999))
    def test_more_confidence_gives_an_interval_around(self, name, run, one, other):
        """Intervals at two levels are nested."""
        inner, outer = predict(name, *run, one), predict(name, *run, other)

        assert outer.low <= inner.low
        assert inner.high <= outer.high

    def test_all_items_run_leave_nothing_open(self, name):
        """Zero width at the estimate, by definition."""
        k = np.arange(31)

        assert np.array_equal([k / 30, k / 30], predict(name, k, 30, 30))

    def test_cells_of_different_size_do_not_disturb_each_other(self, name):
        """A batch gives what its cells give alone; no items give NaN."""
        k, n = np.array([[0, 3], [0, 50]]), np.array([[0, 7], [40, 60]])
        population = np.array([[10, 5000], [41, 100]])
        together = np.array(predict(name, k, n, population))

        assert np.isnan(together[:, 0, 0]).all()
        for index in [(0, 1), (1, 0), (1, 1)]:
            alone = predict(name, k[index], n[index], population[index])
            assert np.array_equal(together[:, *index], np.array(alone))

    def test_more_run_than_there_are_is_refused(self, name):
        """A population smaller than the sample."""
        with pytest.raises(ValueError, match="must not exceed"):
            predict(name, [5, 5], 10, [9, 12])


def test_correction_by_hand():
    """A quarter left: half the width; nothing left: none."""
    assert finite_population_correction([75, 100, 0], 100).tolist() == [
        0.5,
        0.0,
        1.0,
    ]


def test_shrink_moves_both_limits_towards_the_estimate():
    """Each by the same factor."""
    interval = Interval(np.array([0.2]), np.array([0.8]))

    low, high = shrink([0.4], interval, 75, 100)

    assert np.allclose(([0.3], [0.6]), (low, high), rtol=0, atol=1e-15)


def test_correction_refuses_more_than_all():
    """A population smaller than the sample."""
    with pytest.raises(ValueError, match="outnumber"):
        finite_population_correction(11, 10)


def test_half_of_200_items_predict_the_whole():
    """Exact, over 2 % to 98 % right: coverage .962 on average, .945 at least, width .1105.

    Wilson's interval, which takes the benchmark for endless, is 40 % wider.
    """
    right = np.round(200 * np.linspace(0.02, 0.98, 49))[:, None]
    k = np.arange(101)
    chance = stats.hypergeom.pmf(k, 200, right, 100)
    low, high = predict("equal_tailed", k, 100, 200)
    inside = (low <= right / 200 + 1e-12) & (right / 200 <= high + 1e-12)
    wilson = bounded.wilson(k, 100, confidence_level=0.95)
    covered = (chance * inside).sum(axis=1)

    assert covered.mean() == pytest.approx(0.9621, abs=5e-5)
    assert covered.min() == pytest.approx(0.9449, abs=5e-5)
    assert (chance @ (high - low)).mean() == pytest.approx(0.1105, abs=5e-5)
    assert (chance @ (wilson.high - wilson.low)).mean() == pytest.approx(0.1551, abs=5e-5)


@pytest.mark.parametrize(
    ("k", "n", "population"),
    [(7, 10, 25), (5, 10, 60), (3, 4, 9), (1, 2, 40), *((1, 2, size) for size in range(5, 33))],
)
def test_tails_that_are_reached_exactly_are_not_exceeded(k, n, population):
    """A level whose tail is the mass of the first or the last outcomes, whatever its rounding."""
    chances = exact_prediction(k, n, population)
    for r in range(1, len(chances)):
        below, above = sum(chances[:r]), sum(chances[r:])
        if below < Fraction(1, 2):
            low, _ = predict("equal_tailed", k, n, population, float(1 - 2 * below))
            assert low == pytest.approx(min((k + r) / population, k / n))
        if above < Fraction(1, 2):
            _, high = predict("equal_tailed", k, n, population, float(1 - 2 * above))
            assert high == pytest.approx(max((k + r - 1) / population, k / n))


@every_method
@pytest.mark.parametrize("level", [0.0, 1.0, 95.0])
def test_levels_outside_0_and_1_are_refused(name, level):
    with pytest.raises(ValueError, match="between 0 and 1"):
        predict(name, 3, 10, 20, level)
