"""Intervals for a proportion."""

from functools import partial

import numpy as np
import pytest
from golden_cases import golden, kept
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from evalstats_plugin.stats import bounded

FILE = "golden/intervals"
METHODS = {
    "wald": bounded.wald,
    "wilson": bounded.wilson,
    "wilson_cc": bounded.wilson_cc,
    "agresti_coull": bounded.agresti_coull,
    "clopper_pearson": bounded.clopper_pearson,
    "mid_p": bounded.mid_p,
    "jeffreys": bounded.jeffreys,
    "beta_equal_tailed": partial(bounded.beta_equal_tailed, prior=(1, 1)),
    "beta_hpd": partial(bounded.beta_hpd, prior=(1, 1)),
}
HONEST = sorted(set(METHODS) - {"wald"})
LEVELS = st.floats(0.5, 0.999)


def every_outcome(largest_n):
    """All (successes, n) with n up to `largest_n`."""
    sizes = np.arange(1, largest_n + 1)
    n = np.repeat(sizes, sizes + 1)
    return np.concatenate([np.arange(size + 1) for size in sizes]), n


def mean_coverage(interval, n):
    """Coverage averaged over proportions ~ U(0, 1), exactly: mass of Beta(k + 1, n - k + 1)."""
    k = np.arange(n + 1)
    low, high = np.clip(interval, 0, 1)
    mass = special.betainc(k + 1, n - k + 1, high) - special.betainc(k + 1, n - k + 1, low)
    return mass.mean()


def coverage(interval, n, proportions):
    """Probability that the interval holds each of the proportions, exactly."""
    k = np.arange(n + 1)[:, None]
    inside = (interval.low[:, None] <= proportions) & (proportions <= interval.high[:, None])
    return (stats.binom.pmf(k, n, proportions) * inside).sum(axis=0)


class TestPublished:
    @golden("wilson*", "clopper_pearson", "mid_p", file=FILE)
    def test_limits_agree_to_the_printed_digits(self, case):
        """Newcombe (1998) Table I, and the other printed limits."""
        args = case["args"]
        interval = METHODS[case["method"]](
            args["successes"], args["n"], confidence_level=args["confidence_level"]
        )

        assert np.allclose(case["expected"], interval, rtol=0, atol=case["tolerance"])

    @golden("coverage:*", file=FILE)
    def test_coverage_agrees_with_brown_cai_dasgupta(self, case):
        """The lucky and unlucky n of Brown, Cai & DasGupta (2001)."""
        n, method = case["args"]["n"], METHODS[case["method"].removeprefix("coverage:")]
        interval = method(np.arange(n + 1), n, confidence_level=case["args"]["confidence_level"])

        actual = coverage(interval, n, np.array([case["args"]["proportion"]]))

        assert case["expected"] == pytest.approx(actual[0], abs=case["tolerance"])

    @golden("mean_coverage:*", file=FILE)
    def test_mean_coverage_agrees_with_agresti_coull(self, case):
        """Agresti & Coull (1998) Table 1; for Beta(1, 1) the theorem that it is the level."""
        n, method = case["args"]["n"], METHODS[case["method"].removeprefix("mean_coverage:")]
        interval = method(np.arange(n + 1), n, confidence_level=case["args"]["confidence_level"])

        assert case["expected"] == pytest.approx(mean_coverage(interval, n), abs=case["tolerance"])

    @pytest.mark.parametrize("name", sorted(kept(FILE)["real_examples"][0]["expected"]))
    def test_real_examples_agree(self, name):
        """The two data sets of Figure 1 of Bowyer, Aitchison & Ivanova (2025)."""
        examples = kept(FILE)["real_examples"]
        expected = np.array([example["expected"][name] for example in examples])

        interval = METHODS[name](
            [example["successes"] for example in examples],
            [example["n"] for example in examples],
            confidence_level=0.95,
        )

        assert np.allclose(expected, np.transpose(interval), rtol=0, atol=1e-9)


class TestDefinition:
    @given(st.integers(1, 400), st.data(), LEVELS)
    def test_clopper_pearson_limits_solve_the_tail_equations(self, n, data, level):
        """At each limit the tail beyond what was seen has half of what the level leaves out."""
        k = data.draw(st.integers(0, n))
        low, high = bounded.clopper_pearson(k, n, confidence_level=level)

        if k > 0:
            assert (1 - level) / 2 == pytest.approx(stats.binom.sf(k - 1, n, low), rel=1e-9)
        if k < n:
            assert (1 - level) / 2 == pytest.approx(stats.binom.cdf(k, n, high), rel=1e-9)

    @given(st.integers(1, 400), st.data(), LEVELS)
    def test_mid_p_limits_solve_the_tail_equations(self, n, data, level):
        """As Clopper–Pearson, with half of the probability of what was seen."""
        k = data.draw(st.integers(0, n))
        low, high = bounded.mid_p(k, n, confidence_level=level)

        if k > 0:
            tail = stats.binom.sf(k, n, low) + stats.binom.pmf(k, n, low) / 2
            assert (1 - level) / 2 == pytest.approx(tail, rel=1e-8)
        if k < n:
            tail = stats.binom.cdf(k - 1, n, high) + stats.binom.pmf(k, n, high) / 2
            assert (1 - level) / 2 == pytest.approx(tail, rel=1e-8)

    @given(st.integers(1, 3000), st.data(), LEVELS, st.sampled_from([(1, 1), (0.5, 0.5), (3, 2)]))
    def test_hpd_holds_the_level_between_equal_densities(self, n, data, level, prior):
        """The two conditions that make an interval the one of highest density."""
        k = data.draw(st.integers(0, n))
        a, b = k + prior[0], n - k + prior[1]

        low, high = bounded.beta_hpd(k, n, confidence_level=level, prior=prior)

        mass = special.betainc(a, b, high) - special.betainc(a, b, low)
        assert level == pytest.approx(mass, abs=1e-11)
        if a > 1 and b > 1:
            densities = stats.beta.logpdf([low, high], a, b)
            assert densities[0] == pytest.approx(densities[1], abs=1e-6)

    def test_hpd_is_the_shortest(self):
        """No equal-tailed interval of the same posterior is shorter."""
        k, n = every_outcome(60)
        shortest = bounded.beta_hpd(k, n, confidence_level=0.9, prior=(1, 1))
        central = bounded.beta_equal_tailed(k, n, confidence_level=0.9, prior=(1, 1))

        assert np.all(shortest.high - shortest.low <= central.high - central.low + 1e-14)

    def test_hpd_at_the_ends_has_a_closed_form(self):
        """None or all right, prior (1, 1): the power of the level that the docstring gives."""
        n = np.arange(1, 300)
        reach = 1 - 0.05 ** (1 / (n + 1))

        none = bounded.beta_hpd(0, n, confidence_level=0.95, prior=(1, 1))
        everything = bounded.beta_hpd(n, n, confidence_level=0.95, prior=(1, 1))

        assert np.allclose([np.zeros(299), reach], none, rtol=0, atol=1e-14)
        assert np.allclose([1 - reach, np.ones(299)], everything, rtol=0, atol=1e-14)

    @pytest.mark.parametrize(
        ("prior", "n", "expected"),
        [
            ((1, 1), 1e-300, (0.025, 0.975)),
            ((0.5, 0.5), 1e-300, tuple(stats.beta.ppf([0.025, 0.975], 0.5, 0.5))),
        ],
    )
    def test_hpd_of_a_flat_or_u_shaped_posterior_is_equal_tailed(self, prior, n, expected):
        """Without data there is no single highest interval."""
        interval = bounded.beta_hpd(0, n, confidence_level=0.95, prior=prior)

        assert np.allclose(expected, interval, rtol=0, atol=1e-12)


class TestCoverage:
    def test_clopper_pearson_never_covers_less_than_its_level(self):
        """Exact sums at 2,000 proportions, for each n to 50."""
        proportions = np.linspace(0, 1, 2000)
        for n in range(1, 51):
            interval = bounded.clopper_pearson(np.arange(n + 1), n, confidence_level=0.95)
            assert coverage(interval, n, proportions).min() >= 0.95 - 1e-12

    @pytest.mark.parametrize("n", [3, 10, 30, 100])
    @pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
    def test_mean_coverage_of_hpd_is_its_level(self, n, level):
        """A credible interval averaged over its own prior."""
        interval = bounded.beta_hpd(np.arange(n + 1), n, confidence_level=level, prior=(1, 1))

        assert level == pytest.approx(mean_coverage(interval, n), abs=1e-12)

    def test_wald_fails_where_the_others_pass(self):
        """Negative control: the bound on mean coverage can be missed."""
        covered = {
            name: mean_coverage(METHODS[name](np.arange(11), 10, confidence_level=0.95), 10)
            for name in METHODS
        }

        assert {"wald"} == {name for name in METHODS if covered[name] < 0.945}


class TestProperties:
    @pytest.mark.parametrize("name", HONEST)
    @pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
    def test_has_width_stays_within_bounds_and_holds_the_estimate(self, name, level):
        """For every outcome of up to 100 items; one leaves out an estimate at the ends."""
        k, n = every_outcome(100)
        low, high = METHODS[name](k, n, confidence_level=level)

        assert np.all(low >= 0)
        assert np.all(high <= 1)
        assert np.all(high > low)
        if name != "beta_equal_tailed":
            assert np.all(low <= k / n)
            assert np.all(k / n <= high)

    @pytest.mark.parametrize("name", sorted(METHODS))
    def test_mirrors_when_right_and_wrong_are_exchanged(self, name):
        """Limits for n - k are one minus those for k."""
        k, n = every_outcome(80)
        low, high = METHODS[name](k, n, confidence_level=0.9)
        mirrored = METHODS[name](n - k, n, confidence_level=0.9)

        assert np.allclose(1 - high, mirrored.low, rtol=0, atol=1e-13)
        assert np.allclose(1 - low, mirrored.high, rtol=0, atol=1e-13)

    @pytest.mark.parametrize("name", HONEST)
    @pytest.mark.parametrize("n", [1, 2, 7, 50, 200])
    def test_limits_rise_with_successes(self, name, n):
        """One more right answer never lowers a limit."""
        low, high = METHODS[name](np.arange(n + 1), n, confidence_level=0.95)

        assert np.all(np.diff(low) >= -1e-15)
        assert np.all(np.diff(high) >= -1e-15)

    @pytest.mark.parametrize("name", sorted(METHODS))
    def test_more_confidence_gives_an_interval_around(self, name):
        """Intervals at two levels are nested."""
        k, n = every_outcome(30)
        limits = [METHODS[name](k, n, confidence_level=c) for c in (0.5, 0.52, 0.9, 0.95, 0.999)]
        low, high = np.stack(limits, axis=1)

        assert np.all(np.diff(low, axis=0) <= 1e-12)
        assert np.all(np.diff(high, axis=0) >= -1e-12)

    @pytest.mark.parametrize("name", sorted(METHODS))
    def test_no_items_give_nan(self, name):
        """A cell without data has no interval, and leaves its neighbours alone."""
        low, high = METHODS[name]([0, 1], [0, 4], confidence_level=0.95)

        assert np.isnan(low).tolist() == [True, False]
        assert np.isnan(high).tolist() == [True, False]

    @pytest.mark.parametrize("name", sorted(METHODS))
    def test_broadcasts(self, name):
        """Cells are independent, in whatever shape they come."""
        k, n = np.array([[0, 3], [5, 5]]), np.array([5, 7])
        together = METHODS[name](k, n, confidence_level=0.95)

        for index in np.ndindex(2, 2):
            alone = METHODS[name](k[index], n[index[1]], confidence_level=0.95)
            assert np.allclose(np.array(together)[:, *index], alone, rtol=0, atol=1e-13)


@pytest.mark.parametrize("level", [0, 1, 95, float("nan")])
@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_level_outside_0_to_1_is_refused(name, level):
    """95 is not 0.95."""
    with pytest.raises(ValueError, match="between 0 and 1"):
        METHODS[name](1, 2, confidence_level=level)


def test_more_successes_than_items_are_refused():
    """Counts the wrong way round."""
    with pytest.raises(ValueError, match="between 0 and n"):
        bounded.wilson(3, 2, confidence_level=0.95)


def test_a_prior_needs_positive_numbers():
    """Beta(0, 1) is no prior."""
    with pytest.raises(ValueError, match="positive"):
        bounded.beta_hpd(1, 2, confidence_level=0.95, prior=(0, 1))
