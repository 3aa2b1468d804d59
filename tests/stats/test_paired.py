"""Two models on the same items."""

from functools import cache, partial

import numpy as np
import pytest
from golden_cases import golden
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, optimize, special

from evalstats_plugin.stats import bounded
from evalstats_plugin.stats.interval import Interval
from evalstats_plugin.stats.pairs import paired
from evalstats_plugin.stats.pairs.paired import PairedCounts, paired_counts

JEFFREYS = (0.5, 1.0)
METHODS = {
    "dirichlet": partial(paired.dirichlet, prior=JEFFREYS),
    "tango": paired.tango,
    "newcombe": paired.newcombe,
    "bonett_price": paired.bonett_price,
    "wald": paired.wald,
}
HONEST = sorted(set(METHODS) - {"wald"})
COUNTS = st.tuples(*[st.integers(0, 60)] * 4).filter(any)
UNIT = (-1.0, 1.0)


def table(case) -> tuple[PairedCounts, dict]:
    names = ("both", "only_a", "only_b", "neither")
    args = dict(case["args"])
    return paired_counts(*(args.pop(name) for name in names)), args


def _drawn(count=150):
    """Tables of few and of up to 60 items in a cell, many of whose cells are empty."""
    rng = np.random.default_rng(0)
    cells = rng.integers(0, rng.choice([2, 8, 61], (4, count))) * (rng.random((4, count)) < 0.8)
    return paired_counts(*cells[:, cells.any(axis=0)])


DRAWN = _drawn()


def swapped(counts: PairedCounts) -> PairedCounts:
    return counts._replace(only_a=counts.only_b, only_b=counts.only_a)


def every_table(n):
    """All (only_a, only_b) on n items, none of which both get right."""
    only_a, only_b = (x.ravel() for x in np.indices((n + 1, n + 1)))
    possible = only_a + only_b <= n
    only_a, only_b = only_a[possible], only_b[possible]
    return paired_counts(0, only_a, only_b, n - only_a - only_b)


@cache
def outcomes(n):
    """Tables, true differences and probabilities, for six rates of discordance."""
    counts = every_table(n)
    differ, share = (x.ravel() for x in np.meshgrid([0.05, 0.1, 0.2, 0.3, 0.4, 0.5], TENTHS))
    truth = differ * share
    log_ways = special.gammaln(n + 1) - sum(special.gammaln(x + 1) for x in counts)
    log_probability = (
        log_ways[:, None]
        + special.xlogy(counts.only_b[:, None], (differ + truth) / 2)
        + special.xlogy(counts.only_a[:, None], (differ - truth) / 2)
        + special.xlogy(counts.neither[:, None], 1 - differ)
    )
    return counts, truth, np.exp(log_probability)


@cache
def coverage(method, n):
    """Exact coverage, from no difference to the largest."""
    counts, truth, probability = outcomes(n)
    low, high = METHODS[method](counts, confidence_level=0.95)
    inside = (low[:, None] <= truth + 1e-12) & (truth - 1e-12 <= high[:, None])
    return (probability * inside).sum(axis=0)


TENTHS = np.linspace(0, 1, 11)


class TestPublished:
    @golden("tango", "newcombe", "bonett_price", "wald")
    def test_limits_agree_to_the_printed_digits(self, case):
        """Tango (1998), Newcombe (1998), Fagerland et al. (2014) and others."""
        counts, args = table(case)

        interval = METHODS[case["method"]](counts, **args)

        assert np.allclose(case["expected"], interval, rtol=0, atol=case["tolerance"])

    @golden("mcnemar_mid_p")
    def test_p_values_agree_to_the_printed_digits(self, case):
        """Fagerland et al. (2013) and others."""
        counts, _ = table(case)

        p_value = paired.mcnemar_mid_p(counts)

        assert case["expected"] == pytest.approx(float(p_value), abs=case["tolerance"])

    @golden("dirichlet")
    def test_the_posterior_agrees(self, case):
        """P(better) and limits, computed independently with 200 nodes."""
        counts, args = table(case)
        args.pop("prior", None)

        prob = paired.prob_better(counts, prior=JEFFREYS)
        low, high = METHODS["dirichlet"](counts, confidence_level=args["confidence_level"])

        assert np.allclose(case["expected"], [prob, low, high], rtol=0, atol=1e-10)


class TestDefinition:
    @pytest.mark.parametrize("counts", [(19, 2, 4, 5), (3, 0, 1, 2), (50, 9, 0, 1), (0, 1, 1, 0)])
    def test_dirichlet_limits_cut_off_their_tails(self, counts):
        """The posterior mass below each limit, by two-dimensional adaptive quadrature."""
        found = paired_counts(*counts)
        shape_a, shape_b = found.only_a + 0.5, found.only_b + 0.5
        rest = found.both + found.neither + 1
        differ = shape_a + shape_b
        low, high = METHODS["dirichlet"](found, confidence_level=0.95)

        def below(limit):
            # P(difference < limit | m), m = P(models differ): b is right of those with share r.
            def given_m(m):
                return special.betainc(shape_b, shape_a, np.clip((1 + limit / m) / 2, 0, 1))

            def density(root):
                # m = root²: the density of m has a pole at 0 where few items differ.
                m = root**2
                log_density = special.xlogy(differ - 1, m) + special.xlog1py(rest - 1, -m)
                return 2 * root * np.exp(log_density - special.betaln(differ, rest)) * given_m(m)

            kink = abs(limit) ** 0.5
            options = {"points": [kink], "epsabs": 1e-13, "epsrel": 1e-12, "limit": 400}
            return integrate.quad(density, 0, 1, **options)[0]

        assert 0.025 == pytest.approx(below(float(low)), abs=2e-10)
        assert 0.975 == pytest.approx(below(float(high)), abs=2e-10)

    @given(COUNTS)
    def test_tango_limits_are_where_the_score_test_rejects(self, cells):
        """The restricted estimate by brute maximisation gives a statistic of z at the limit."""
        _, only_a, only_b, _ = cells
        n = sum(cells)
        low, _ = paired.tango(paired_counts(*cells), confidence_level=0.95)
        if only_a == n or abs(low) < 1e-9:
            return

        def minus_log_likelihood(p_a):
            cells = [p_a, p_a + low, 1 - 2 * p_a - low]
            return -special.xlogy([only_a, only_b, n - only_a - only_b], cells).sum()

        left, right = max(0.0, -float(low)), (1 - float(low)) / 2
        p_a = optimize.minimize_scalar(
            minus_log_likelihood, bounds=(left, right), method="bounded", options={"xatol": 1e-13}
        ).x
        variance = n * (2 * p_a + low * (1 - low))

        assert 1.959964 == pytest.approx((only_b - only_a - n * low) / np.sqrt(variance), rel=1e-3)

    def test_the_probability_that_the_mean_is_positive_is_that_of_the_weights(self):
        """By Imhof's integral (1961) of their sum: ∫ sin(phase)/(u size) du."""
        differences = np.array([0.5, -0.25, 0.75, 0.0, 1.0, 0.3])
        weights, atoms = np.array([0.5, *[1] * 6, 0.5]), np.array([-1, *differences, 1])

        def integrand(u):
            phase = (weights * np.arctan(u * atoms)).sum()
            return np.sin(phase) / u / np.exp((weights * np.log1p((u * atoms) ** 2)).sum() / 2)

        expected = 0.5 + integrate.quad(integrand, 0, np.inf, epsabs=1e-11)[0] / np.pi

        prob = paired.dirichlet_process_prob(differences[None], bounds=UNIT, mass=0.5)

        assert expected == pytest.approx(prob[0], abs=1e-9)

    def test_the_t_probability_is_a_half_where_the_t_interval_ends_at_zero(self):
        """At level 1 - 2 q, the lower limit is 0 if P(positive) is 1 - q."""
        from evalstats_plugin.stats import means as stats_means

        differences = np.random.default_rng(1).normal(0.4, 1, (3, 20))
        for row, prob in zip(differences, paired.t_prob(differences), strict=True):
            tail = min(prob, 1 - prob)
            low, high = stats_means.t_interval(row, confidence_level=float(1 - 2 * tail))

            assert 0.0 == pytest.approx(min(abs(low), abs(high)), abs=1e-9)


class TestIdentity:
    @given(COUNTS)
    def test_one_of_two_is_better(self, cells):
        """P(b better) + P(a better) = 1."""
        counts = paired_counts(*cells)
        one, other = (paired.prob_better(x, prior=JEFFREYS) for x in (counts, swapped(counts)))

        assert 1.0 == pytest.approx(float(one + other), abs=1e-12)

    @pytest.mark.parametrize("n", [1, 7, 1000])
    def test_identical_models_are_equally_good(self, n):
        """Exactly ½, p-value exactly 1, an interval with width around 0."""
        counts = paired_counts(n, 0, 0, 0)
        scores = np.zeros((1, n))
        prob = paired.dirichlet_process_prob(scores, bounds=UNIT, mass=0.5)

        assert 0.5 == paired.prob_better(counts, prior=JEFFREYS)
        assert [0.5] == prob
        assert 1.0 == paired.mcnemar_mid_p(counts)
        for name in HONEST:
            low, high = METHODS[name](counts, confidence_level=0.95)
            assert low == -high
            assert high > 0

    @pytest.mark.parametrize("name", sorted(METHODS))
    def test_exchanging_the_models_changes_the_sign(self, name):
        """And nothing else."""
        interval, mirror = (METHODS[name](x, confidence_level=0.9) for x in (DRAWN, swapped(DRAWN)))

        assert np.allclose(interval, Interval(-mirror.high, -mirror.low), rtol=0, atol=1e-12)

    @pytest.mark.parametrize("name", HONEST)
    def test_intervals_hold_the_estimate_or_shrink_it_and_are_nested(self, name):
        """Within [-1, 1], wider at a higher level; all but one hold the estimate."""
        narrow, wide = (METHODS[name](DRAWN, confidence_level=x) for x in (0.8, 0.95))

        assert np.all((wide.low >= -1) & (wide.low <= narrow.low + 1e-12))
        assert np.all((wide.high <= 1) & (wide.high >= narrow.high - 1e-12))
        if name != "bonett_price":
            assert np.all(wide.low - 1e-9 <= DRAWN.difference)
            assert np.all(DRAWN.difference <= wide.high + 1e-9)

    def test_exchanging_the_models_turns_probabilities_round(self):
        """Of scores of any kind, to rounding."""
        differences = np.random.default_rng(2).uniform(-1, 1, (20, 15))
        one, other = (
            paired.dirichlet_process_prob(x, bounds=UNIT, mass=0.5)
            for x in (differences, -differences)
        )

        assert np.allclose(1, one + other, rtol=0, atol=1e-12)

    def test_the_dirichlet_process_agrees_with_its_interval(self):
        """P(positive) is .975 where the lower limit of the 95 % interval is 0."""
        differences = np.random.default_rng(3).uniform(-0.6, 1, (5, 12))
        for row in differences:
            prob = float(paired.dirichlet_process_prob(row[None], bounds=UNIT, mass=0.5)[0])
            low, high = bounded.dirichlet_process(
                row, bounds=UNIT, mass=0.5, confidence_level=1 - 2 * min(prob, 1 - prob)
            )
            assert 0.0 == pytest.approx(min(abs(low), abs(high)), abs=1e-9)

    @pytest.mark.parametrize("name", sorted(METHODS))
    def test_no_items_have_no_interval(self, name):
        """NaN, beside a table that has one."""
        counts = paired_counts([0, 5], [0, 1], [0, 2], [0, 3])
        interval = METHODS[name](counts, confidence_level=0.95)

        assert np.isnan(interval.low).tolist() == [True, False]
        assert np.isnan(paired.prob_better(counts, prior=JEFFREYS)).tolist() == [True, False]
        assert np.isnan(paired.mcnemar_mid_p(counts)).tolist() == [True, False]

    def test_counts_below_zero_are_refused(self):
        """A programming mistake."""
        with pytest.raises(ValueError, match="must not be negative"):
            paired_counts(1, -1, 0, 0)

    @given(st.integers(1, 40), st.integers(0, 2**32 - 1))
    def test_missing_scores_do_not_count(self, n, seed):
        """NaN is as if the item were not there."""
        rng = np.random.default_rng(seed)
        differences = rng.choice([-0.5, 0.0, 0.5, 1.0], (2, n))
        padded = np.concatenate([differences, np.full((2, 3), np.nan)], axis=1)
        one, other = (
            (
                paired.dirichlet_process_prob(x, bounds=UNIT, mass=0.5),
                paired.t_prob(x),
            )
            for x in (differences, padded)
        )

        assert np.allclose(one, other, rtol=0, atol=1e-12, equal_nan=True)


class TestCoverage:
    @pytest.mark.parametrize(
        ("n", "most"), [(10, 0.0275), (20, 0.021), (50, 0.0115), (100, 0.0070)]
    )
    def test_the_default_is_closest_to_its_level(self, n, most):
        """Mean distance from 95 %: within what was promised, below the others'."""
        errors = {
            name: np.abs(coverage(name, n) - 0.95).mean()
            for name in ("dirichlet", "tango", "bonett_price", "newcombe", "wald")
        }

        assert errors["dirichlet"] <= most
        assert "dirichlet" == min(errors, key=errors.__getitem__)

    @pytest.mark.parametrize("n", [10, 20, 50, 100])
    def test_tango_hardly_ever_covers_less_than_it_says(self, n):
        """And the Wald interval, the negative control, does by far."""
        assert coverage("tango", n).min() >= 0.929
        assert coverage("wald", n).min() < 0.9


def test_all_pairs_of_fifty_models_take_a_moment(within):
    """7,350 tables of 200 items: P(better), interval, Tango's and mid-p in half a CPU second."""
    rng = np.random.default_rng(0)
    n_right = rng.beta(4, 2, (6, 50))
    differ = rng.beta(2, 8, (6, 50, 50))
    first, second = np.triu_indices(50, 1)
    discordant = rng.binomial(200, differ[:, first, second])
    only_b = rng.binomial(discordant, n_right[:, second] / (n_right[:, first] + n_right[:, second]))
    counts = paired_counts(200 - discordant, discordant - only_b, only_b, 0)

    def compared():
        for name in ("dirichlet", "tango"):
            METHODS[name](counts, confidence_level=0.95)
        paired.prob_better(counts, prior=JEFFREYS)
        paired.mcnemar_mid_p(counts)

    within(0.45, compared)
