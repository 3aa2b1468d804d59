"""Two models on items of their own, each right or wrong."""

import math
from functools import partial

import numpy as np
import pytest
from golden_cases import golden
from scipy import integrate, optimize, special, stats

from evalstats_plugin.stats.pairs import unpaired
from evalstats_plugin.stats.pairs.unpaired import Counts, independent_counts

JEFFREYS, UNIFORM = (0.5, 0.5), (1.0, 1.0)
DIFFERENCES = {
    "newcombe": unpaired.newcombe,
    "miettinen_nurminen": unpaired.miettinen_nurminen,
    "beta": partial(unpaired.beta_difference, prior=JEFFREYS),
}
RATIOS = {
    "mn_ratio": unpaired.mn_ratio,
    "mn_odds": unpaired.mn_odds,
    "beta_ratio": partial(unpaired.beta_ratio, prior=UNIFORM),
    "beta_odds": partial(unpaired.beta_odds_ratio, prior=UNIFORM),
}


def _drawn(count=150):
    """Counts of up to 30 items; of a third of the models none or all are right."""
    rng = np.random.default_rng(0)
    n = rng.integers(1, 31, (2, count))
    share = rng.random(n.shape) * 1.5 - 0.25
    right = np.round(np.clip(share, 0, 1) * n)
    return independent_counts(right[0], n[0], right[1], n[1])


DRAWN = _drawn()


def every_outcome(n_a, n_b):
    right_a, right_b = (x.ravel() for x in np.indices((n_a + 1, n_b + 1)))
    return independent_counts(right_a, n_a, right_b, n_b)


def coverage(method, n_a, n_b):
    """Exact coverage for 361 pairs of true scores."""
    counts = every_outcome(n_a, n_b)
    p_a, p_b = (x.ravel() for x in np.meshgrid(GRID, GRID))
    chance = stats.binom.pmf(counts.right_a[:, None], n_a, p_a)
    chance = chance * stats.binom.pmf(counts.right_b[:, None], n_b, p_b)
    low, high = method(counts, confidence_level=0.95)[:2]
    inside = (low[:, None] <= p_b - p_a + 1e-12) & (p_b - p_a - 1e-12 <= high[:, None])
    return (chance * inside).sum(axis=0)


GRID = np.linspace(0.05, 0.95, 19)


def _exchanged(counts):
    return Counts(counts.right_b, counts.n_b, counts.right_a, counts.n_a)


def wald(counts, *, confidence_level):
    """Difference ± z standard errors: the negative control."""
    a, b = counts.right_a / counts.n_a, counts.right_b / counts.n_b
    half = stats.norm.ppf((1 + confidence_level) / 2) * np.sqrt(
        a * (1 - a) / counts.n_a + b * (1 - b) / counts.n_b
    )
    return b - a - half, b - a + half


class TestPublished:
    @golden("newcombe_unpaired")
    def test_newcombe_agrees_with_his_table_2(self, case):
        """To the printed digits."""
        args = dict(case["args"])
        level = args.pop("confidence_level")
        interval = unpaired.newcombe(independent_counts(**args), confidence_level=level)

        assert np.allclose(case["expected"], interval, rtol=0, atol=5.1e-5)

    @golden("independent_prob_better")
    def test_the_probability_that_b_is_better_agrees(self, case):
        """Integrated adaptively."""
        args = dict(case["args"])
        prior = args.pop("prior")
        found = unpaired.beta_difference(
            independent_counts(**args), confidence_level=0.95, prior=prior
        )

        assert case["expected"] == pytest.approx(float(found.prob_better), abs=1e-12)


def restricted_statistic(counts, at, measure):
    """Score statistic with the estimate found by brute maximisation of the likelihood."""
    right_a, n_a, right_b, n_b = (float(x) for x in counts)

    def b_of(a):
        if measure == "difference":
            return a + at
        return a * at if measure == "ratio" else special.expit(special.logit(a) + np.log(at))

    lowest, highest = 0.0, 1.0
    if measure == "difference":
        lowest, highest = max(0.0, -at), min(1.0, 1 - at)
    if measure == "ratio":
        highest = min(1.0, 1 / at)

    def minus_log_likelihood(a):
        b = b_of(a)
        return -(
            special.xlogy(right_a, a) + special.xlog1py(n_a - right_a, -a)
            + special.xlogy(right_b, b) + special.xlog1py(n_b - right_b, -b)
        )  # fmt: skip

    a = optimize.minimize_scalar(
        minus_log_likelihood, bounds=(lowest, highest), method="bounded", options={"xatol": 1e-12}
    ).x
    b, factor = b_of(a), (n_a + n_b) / (n_a + n_b - 1)
    if measure == "odds ratio":
        precision = 1 / (n_a * a * (1 - a)) + 1 / (n_b * b * (1 - b))
        return (right_b - n_b * b) * np.sqrt(precision / factor)
    weight = 1.0 if measure == "difference" else at
    gap = right_b / n_b - right_a / n_a - at
    if measure == "ratio":
        gap = right_b / n_b - at * right_a / n_a
    variance = b * (1 - b) / n_b + weight**2 * a * (1 - a) / n_a
    return gap / np.sqrt(variance * factor)


class TestDefinition:
    @pytest.mark.parametrize("cells", [(48, 80, 56, 70), (3, 10, 9, 10), (1, 30, 5, 12)])
    @pytest.mark.parametrize(
        ("measure", "method"),
        [
            ("difference", unpaired.miettinen_nurminen),
            ("ratio", unpaired.mn_ratio),
            ("odds ratio", unpaired.mn_odds),
        ],
    )
    def test_score_limits_are_where_the_test_rejects(self, cells, measure, method):
        """The statistic is ±1.96 there, its estimate found by brute maximisation."""
        counts = independent_counts(*cells)
        low, high = method(counts, confidence_level=0.95)

        assert 1.959964 == pytest.approx(
            restricted_statistic(counts, float(low), measure), rel=1e-4
        )
        assert -1.959964 == pytest.approx(
            restricted_statistic(counts, float(high), measure), rel=1e-4
        )

    @pytest.mark.parametrize("cells", [(12, 20, 15, 20), (0, 5, 3, 4), (2, 3, 990, 1000)])
    @pytest.mark.parametrize("of", ["difference", "log ratio", "log odds ratio"])
    def test_posterior_limits_cut_off_their_tails(self, cells, of):
        """The mass below each, by adaptive quadrature."""
        betas = unpaired.posteriors(independent_counts(*cells), prior=UNIFORM)
        (a, not_a), (b, not_b) = betas[:2].tolist(), betas[2:].tolist()
        found = unpaired.beta_contrast(betas, of, 0.95)

        def below(limit):
            def weighed(x):
                at = {
                    "difference": x + limit,
                    "log ratio": x * math.exp(limit),
                    "log odds ratio": special.expit(math.log(x / (1 - x)) + limit),
                }[of]
                chance = special.betainc(b, not_b, min(max(at, 0.0), 1.0))
                log_density = (a - 1) * math.log(x) + (not_a - 1) * math.log1p(-x)
                return math.exp(log_density - special.betaln(a, not_a)) * chance

            ends = special.betaincinv(a, not_a, [1e-14, 0.5, 1 - 1e-14]).tolist()
            kinks = {"difference": [-limit, 1 - limit], "log ratio": [math.exp(-limit)]}
            points = [x for x in (*kinks.get(of, []), ends[1]) if ends[0] < x < ends[2]]
            options = {"points": points, "epsabs": 1e-13, "epsrel": 1e-12, "limit": 400}
            return integrate.quad(weighed, ends[0], ends[2], **options)[0]

        assert 0.025 == pytest.approx(below(float(found.low)), abs=1e-10)
        assert 0.975 == pytest.approx(below(float(found.high)), abs=1e-10)
        assert 1 - below(0.0) == pytest.approx(float(found.prob_better), abs=1e-10)

    @pytest.mark.parametrize("prior", [JEFFREYS, UNIFORM])
    @pytest.mark.parametrize(
        "method", [unpaired.beta_difference, unpaired.beta_ratio, unpaired.beta_odds_ratio]
    )
    def test_more_nodes_change_nothing(self, monkeypatch, method, prior):
        """From one item to a hundred thousand, for few and many, none and all right."""
        sizes = np.array([1, 100, 100_000])
        n_a, n_b, share_a, share_b = (
            x.ravel() for x in np.meshgrid(sizes, sizes, [0, 0.3, 0.99, 1], [0, 0.6, 1])
        )
        counts = independent_counts(np.round(share_a * n_a), n_a, np.round(share_b * n_b), n_b)
        found = method(counts, confidence_level=0.95, prior=prior)
        monkeypatch.setattr(unpaired, "NODES", 301)
        monkeypatch.setattr(unpaired, "NEGLIGIBLE", 1e-18)
        finer = method(counts, confidence_level=0.95, prior=prior)

        # A prior of ½ has heavy tails where nothing is right, on a log scale.
        tolerance = {"rtol": 0, "atol": 1e-9 if prior == UNIFORM else 2e-8}
        if method is not unpaired.beta_difference:
            tolerance = {"rtol": 1e-7 if prior == UNIFORM else 2e-6, "atol": 0}
        assert np.allclose(found.low, finer.low, **tolerance)
        assert np.allclose(found.high, finer.high, **tolerance)
        assert np.allclose(found.prob_better, finer.prob_better, rtol=0, atol=1e-8)


class TestIdentity:
    @pytest.mark.parametrize("name", DIFFERENCES)
    def test_exchanging_the_models_changes_the_sign_exactly(self, name):
        """And nothing else."""
        one, other = (
            DIFFERENCES[name](x, confidence_level=0.9) for x in (DRAWN, _exchanged(DRAWN))
        )

        assert np.array_equal(one.low, -other.high)
        assert np.array_equal(one.high, -other.low)

    @pytest.mark.parametrize("name", RATIOS)
    def test_exchanging_the_models_inverts_ratios(self, name):
        """The limits of a : b are one over those of b : a."""
        one, other = (RATIOS[name](x, confidence_level=0.9) for x in (DRAWN, _exchanged(DRAWN)))
        with np.errstate(divide="ignore"):
            np.testing.assert_allclose(one.low, 1 / other.high, rtol=1e-9)

    @pytest.mark.parametrize("name", ["mn_odds", "beta_odds"])
    def test_odds_do_not_care_what_is_called_right(self, name):
        """The odds ratio of failures, exchanged, is that of successes."""
        right_a, n_a, right_b, n_b = DRAWN
        failures = Counts(n_b - right_b, n_b, n_a - right_a, n_a)
        one, other = (RATIOS[name](x, confidence_level=0.9) for x in (DRAWN, failures))

        assert np.allclose(one[:2], other[:2], rtol=1e-7)

    @pytest.mark.parametrize("name", [*DIFFERENCES, *RATIOS])
    def test_intervals_hold_the_estimate_and_are_nested(self, name):
        """Wider at a higher level."""
        method = DIFFERENCES.get(name) or RATIOS[name]
        narrow, wide = (method(DRAWN, confidence_level=level) for level in (0.8, 0.95))
        estimate = DRAWN.difference
        if name in RATIOS:
            estimate = np.exp(DRAWN.log_ratio if "ratio" in name else DRAWN.log_odds_ratio)
        estimate = np.where(np.isnan(estimate), (narrow.low + narrow.high) / 2, estimate)

        assert np.all(wide.low <= narrow.low * (1 + 1e-9) + 1e-9)
        assert np.all(narrow.high <= wide.high * (1 + 1e-9) + 1e-9)
        assert np.all(narrow.low <= estimate * (1 + 1e-9) + 1e-9)
        assert np.all(estimate <= narrow.high * (1 + 1e-9) + 1e-9)

    @pytest.mark.parametrize("name", DIFFERENCES)
    def test_equal_counts_are_equally_good(self, name):
        """Exactly ½ and p-value 1, an interval with width around 0."""
        counts = independent_counts(*DRAWN[:2], *DRAWN[:2])
        low, high, *prob = DIFFERENCES[name](counts, confidence_level=0.95)

        assert np.array_equal(low, -high)
        assert (high > 0).all()
        assert all((p == 0.5).all() for p in prob)

    @pytest.mark.parametrize("name", [*DIFFERENCES, *RATIOS])
    def test_no_items_have_no_interval(self, name):
        """NaN, beside counts that have one."""
        method = DIFFERENCES.get(name) or RATIOS[name]
        counts = independent_counts([3, 3], [5, 5], [0, 2], [0, 4])
        found = method(counts, confidence_level=0.95)

        assert [True, False] == np.isnan(found.low).tolist()
        assert [True, False] == np.isnan(found.high).tolist()

    def test_ratios_are_open_where_nothing_is_right(self):
        """From 0 where b has none right, to infinity where a has none."""
        counts = independent_counts([0, 4, 0], 9, [4, 0, 0], 8)

        assert [True, False, True] == np.isinf(
            unpaired.mn_ratio(counts, confidence_level=0.9).high
        ).tolist()
        assert [False, True, True] == (
            unpaired.mn_odds(counts, confidence_level=0.9).low == 0
        ).tolist()

    def test_more_right_than_items_is_refused(self):
        """A programming mistake."""
        with pytest.raises(ValueError, match="between 0 and the number of items"):
            independent_counts(3, 2, 1, 2)


class TestCoverage:
    @pytest.mark.parametrize(
        ("n_a", "n_b", "least"), [(10, 10, 0.908), (20, 20, 0.92), (10, 30, 0.935)]
    )
    def test_the_default_reaches_its_level_on_average(self, n_a, n_b, least):
        """Within .003; and in the least favourable of all cases is not far below."""
        found = coverage(unpaired.newcombe, n_a, n_b)

        assert 0.95 <= found.mean() <= 0.953
        assert found.min() >= least

    @pytest.mark.parametrize(("n_a", "n_b"), [(10, 10), (20, 20), (10, 30)])
    def test_the_score_interval_is_safer_and_wald_falls_short(self, n_a, n_b):
        """Of the Wald interval, the negative control, by far."""
        score = coverage(unpaired.miettinen_nurminen, n_a, n_b)
        simple = coverage(wald, n_a, n_b)

        assert score.mean() >= 0.95
        assert score.min() >= 0.92
        assert simple.mean() < 0.93
        assert simple.min() < 0.82


@pytest.mark.parametrize("bounds", [(0.0, 1.0), (2.0, 5.0), (-1.0, 0.0)])
def test_a_posterior_of_means_moves_with_the_scale(bounds):
    """Of scores from 2 to 5 it is that of the same shares of the way, three times as wide."""
    unit = np.array([[0.1, 0.4, 0.4, 1.0, np.nan], [0.0, 0.7, 0.3, 0.6, 0.9]])
    low, high = bounds
    ask = {"mass": 1.0, "confidence_level": 0.9}
    pair = np.array([0]), np.array([1])
    plain = unpaired.dp_difference(unit, *pair, bounds=(0.0, 1.0), **ask)
    moved = unpaired.dp_difference(low + (high - low) * unit, *pair, bounds=bounds, **ask)

    np.testing.assert_allclose(moved[:2], (high - low) * np.array(plain[:2]), rtol=1e-6)
    np.testing.assert_allclose(moved.prob_better, plain.prob_better, rtol=1e-6)


@pytest.mark.parametrize(
    "counts", [(3, 9, 8, 12), (1, 40, 7, 30), (20, 21, 15, 60), (5, 11, 5, 11), (1, 6, 3, 7)]
)
def test_a_score_limit_is_where_the_score_test_is_at_its_level(counts):
    """The restricted likelihood is maximised by another hand, to the last digits."""
    right_a, n_a, right_b, n_b = counts
    limits = unpaired.miettinen_nurminen(independent_counts(*counts), confidence_level=0.9)
    n, z = n_a + n_b, stats.norm.ppf(0.95)
    for at in map(float, limits):

        def score(a, at=at):
            """Derivative of the log-likelihood times all its denominators."""
            b = a + at
            return ((right_a - n_a * a) * b * (1 - b)) + ((right_b - n_b * b) * a * (1 - a))

        inside = np.linspace(max(-at, 0.0) + 1e-9, min(1 - at, 1.0) - 1e-9, 400)
        change = np.flatnonzero(np.diff(np.sign([score(a) for a in inside])) < 0)
        assert len(change) == 1
        a = optimize.brentq(score, *inside[[change[0], change[0] + 1]], xtol=1e-16)
        variance = ((a + at) * (1 - a - at) / n_b + a * (1 - a) / n_a) * n / (n - 1)

        assert abs(right_b / n_b - right_a / n_a - at) == pytest.approx(
            z * np.sqrt(variance), rel=1e-8
        )
