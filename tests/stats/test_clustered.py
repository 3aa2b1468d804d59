"""Items in clusters."""

import numpy as np
import pytest
from clustered_means import posterior_means
from golden_cases import golden
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, special, stats

from evalstats_plugin.stats import bounded, clustered, grid_posteriors, means

PRIORS = ["uniform-icc", "gamma-dispersion"]
UNIT = (0.0, 1.0)
CELLS = st.lists(
    st.integers(1, 9).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))),
    min_size=1,
    max_size=12,
).map(np.transpose)


def simulate(rng, *, n_clusters, size, share, correlation, repetitions):
    """Successes per cluster, shape (repetitions, n_clusters)."""
    dispersion = 1 / correlation - 1
    rates = rng.beta(share * dispersion, (1 - share) * dispersion, (repetitions, n_clusters))
    return rng.binomial(size, rates)


class TestPublished:
    @golden("std_error_cr0", "std_error_cr1")
    def test_standard_errors_agree_with_statsmodels(self, case):
        """Liang & Zeger (1986), without and with the correction for few clusters."""
        found = clustered.cluster_moments(case["args"]["successes"], case["args"]["n"])
        name = case["method"].removeprefix("std_error_")

        assert case["expected"] == pytest.approx(float(getattr(found, name)), abs=1e-12)

    @golden("beta_binomial", "beta_binomial_mean")
    def test_the_posterior_agrees(self, case):
        """Computed by other quadrature, and checked by adaptive double integrals."""
        args = case["args"]
        prior = {"uniform_icc": PRIORS[0], "gamma_dispersion": PRIORS[1]}[args["prior"]]
        right, size = args["successes"], args["n"]
        if case["method"] == "beta_binomial_mean":
            found = posterior_means(right, size, prior=prior).mean
        else:
            found = grid_posteriors.beta_binomial(right, size, confidence_level=0.95, prior=prior)

        assert np.allclose(case["expected"], found, rtol=0, atol=2e-9)


class TestPosterior:
    @pytest.mark.parametrize("prior", PRIORS)
    def test_limits_cut_off_their_tails(self, prior):
        """The mass below each limit, by adaptive double integrals over θ and ρ."""
        right, size = np.array([3, 5, 0, 4]), np.array([4, 5, 2, 7])

        def density(correlation, theta):
            dispersion = 1 / correlation - 1
            a, b = theta * dispersion, (1 - theta) * dispersion
            likelihood = np.exp(special.betaln(a + right, b + size - right) - special.betaln(a, b))
            weight = 1.0 if prior == "uniform-icc" else np.exp(-dispersion) / correlation**2
            return likelihood.prod() * weight

        def mass(start, stop):
            options = {"epsabs": 1e-16, "epsrel": 1e-10}
            return integrate.dblquad(density, start, stop, 1e-12, 1 - 1e-12, **options)[0]

        low, high = map(
            float, grid_posteriors.beta_binomial(right, size, confidence_level=0.9, prior=prior)
        )
        below, between, above = mass(0, low), mass(low, high), mass(high, 1)
        whole = below + between + above

        assert (0.05, 0.05) == pytest.approx((below / whole, above / whole), abs=1e-8)

    @pytest.mark.parametrize("prior", PRIORS)
    @pytest.mark.parametrize(
        ("n_clusters", "size", "correlation"),
        [(2, 5, 0.5), (3, 40, 0.02), (6, 5, 0.2), (60, 5, 0.05), (500, 10, 0.05), (5000, 10, 0.2)],
    )
    def test_twice_as_many_nodes_change_nothing(
        self, prior, n_clusters, size, correlation, monkeypatch
    ):
        """From 2 to 5,000 clusters, weakly and strongly correlated: within 1e-8."""
        rng = np.random.default_rng(n_clusters)
        right = simulate(
            rng, n_clusters=n_clusters, size=size, share=0.7, correlation=correlation, repetitions=3
        )
        sizes = np.full(right.shape, size)
        once = grid_posteriors.beta_binomial(right, sizes, confidence_level=0.95, prior=prior)
        monkeypatch.setattr(grid_posteriors, "BETA_NODES", (4 * 65, 4 * 49))
        more = grid_posteriors.beta_binomial(right, sizes, confidence_level=0.95, prior=prior)

        assert np.allclose(once, more, rtol=0, atol=1e-8)

    def test_clusters_of_one_item_are_nearly_no_clusters(self):
        """Their correlation cannot be known, nor does it matter: equal tails of Beta(1, 1)."""
        right = np.repeat([1.0, 0.0], [14, 6])
        found = grid_posteriors.beta_binomial(
            right, np.ones(20), confidence_level=0.95, prior="uniform-icc"
        )
        expected = bounded.beta_equal_tailed(14, 20, confidence_level=0.95, prior=(1, 1))

        assert np.allclose(expected, found, rtol=0, atol=1e-9)

    @pytest.mark.parametrize("prior", PRIORS)
    @given(cells=CELLS)
    def test_right_and_wrong_mirror_each_other(self, prior, cells):
        """And the interval holds the share of successes, whatever the order of clusters."""
        right, size = cells
        low, high = grid_posteriors.beta_binomial(right, size, confidence_level=0.9, prior=prior)
        mirror = grid_posteriors.beta_binomial(
            (size - right)[::-1], size[::-1], confidence_level=0.9, prior=prior
        )

        assert (float(low), float(high)) == pytest.approx(
            (1 - mirror.high, 1 - mirror.low), abs=1e-9
        )
        assert 0 <= low <= right.sum() / size.sum() <= high <= 1
        assert high - low > 0.01

    def test_cells_may_differ_in_clusters_and_be_empty(self):
        """Padding changes nothing; no items give NaN."""
        right, size = [[3, 1, 0], [2, 2, 4], [0, 0, 0]], [[5, 2, 0], [4, 4, 4], [0, 0, 0]]
        together = grid_posteriors.beta_binomial(
            right, size, confidence_level=0.95, prior="uniform-icc"
        )
        alone = grid_posteriors.beta_binomial(
            [3, 1], [5, 2], confidence_level=0.95, prior="uniform-icc"
        )

        assert (3,) == together.low.shape
        assert float(alone.low) == together.low[0]
        assert [False, False, True] == np.isnan(together.high).tolist()

    def test_one_large_cluster_is_no_thousand_items(self):
        """Its own rate is known well, that of other clusters hardly."""
        low, high = grid_posteriors.beta_binomial(
            [400], [1000], confidence_level=0.95, prior="uniform-icc"
        )

        assert high - low > 0.5

    def test_it_covers_where_items_taken_as_independent_do_not(self):
        """400 simulated evals of 6 clusters; the binomial interval is the negative control."""
        rng = np.random.default_rng(0)
        right = simulate(rng, n_clusters=6, size=5, share=0.7, correlation=0.3, repetitions=400)
        sizes = np.full(right.shape, 5)
        plain = bounded.beta_equal_tailed(
            right.sum(axis=1), 30, confidence_level=0.95, prior=(1, 1)
        )
        found = grid_posteriors.beta_binomial(
            right, sizes, confidence_level=0.95, prior="uniform-icc"
        )
        covered, control = (((low <= 0.7) & (high >= 0.7)).mean() for low, high in (found, plain))

        assert covered >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / 400)
        assert control < 0.9


class TestClusteredT:
    def test_clusters_of_one_item_are_no_clusters(self):
        """CR1 is then s/√n, and both intervals are those without clusters."""
        scores = np.random.default_rng(0).uniform(size=(3, 12))
        found = clustered.cluster_moments(scores, np.ones_like(scores))
        interval = clustered.t_cr2(scores, np.ones_like(scores), confidence_level=0.95)

        assert means.std_error(scores) == pytest.approx(found.cr1, rel=1e-12)
        assert np.allclose(means.t_interval(scores, confidence_level=0.95), interval, rtol=1e-12)

    def test_the_logit_interval_is_the_delta_method(self):
        """On the log odds, with Satterthwaite's degrees of freedom; bounds only rescale."""
        totals, sizes = np.array([3.0, 5, 0, 7, 2]), np.array([5.0, 8, 3, 9, 6])
        found = clustered.cluster_moments(totals, sizes)
        p = float(found.mean)
        freedom = float(clustered.satterthwaite(sizes))
        half = stats.t.ppf(0.975, freedom) * float(found.cr2) / (p * (1 - p))
        expected = special.expit(special.logit(p) + np.array([-half, half]))
        low, high = clustered.logit_t_cr2(totals, sizes, bounds=UNIT, confidence_level=0.95)
        scaled = clustered.logit_t_cr2(100 * totals, sizes, bounds=(0, 100), confidence_level=0.95)

        assert expected == pytest.approx((float(low), float(high)), rel=1e-12)
        assert 100 * low == pytest.approx(float(scaled.low))

    @pytest.mark.parametrize("n_clusters", [1, 2, 7])
    def test_clusters_that_agree_count_as_one_item_each(self, n_clusters):
        """All right: Clopper–Pearson for as many items as there are clusters."""
        sizes = np.full(n_clusters, 4.0)
        low, high = clustered.logit_t_cr2(sizes, sizes, bounds=UNIT, confidence_level=0.95)
        expected = bounded.clopper_pearson(n_clusters, n_clusters, confidence_level=0.95)

        assert (float(expected.low), 1.0) == pytest.approx((float(low), float(high)), abs=1e-12)
        assert np.isnan(clustered.t_cr2(sizes, sizes, confidence_level=0.95)).all()

    def test_equal_shares_are_equal_in_spite_of_rounding(self):
        """0.7 of 10 and 0.7 of 30 leave no residual that means anything."""
        assert 0.0 == clustered.cluster_moments([0.7 * 10, 0.7 * 30], [10, 30]).cr1

    def test_no_items_have_no_interval(self):
        """NaN, beside a cell that has one."""
        totals, sizes = [[1.0, 2.0], [0.0, 0.0]], [[2, 2], [0, 0]]
        interval = clustered.logit_t_cr2(totals, sizes, bounds=UNIT, confidence_level=0.95)

        assert [False, True] == np.isnan(interval.low).tolist()

    def test_the_design_effect_is_a_ratio_of_variances(self):
        """NaN where one of them is unknown."""
        effect = clustered.design_effect([0.2, 0.0, 0.1], [0.1, 0.1, 0.0])

        assert 4.0 == pytest.approx(effect[0])
        assert [False, True, True] == np.isnan(effect).tolist()


def dense_cr2(scores, clusters):
    """Bell & McCaffrey (2002) with matrices: standard error and Satterthwaite's freedom."""
    n = len(scores)
    design = np.ones((n, 1))
    bread = np.linalg.inv(design.T @ design)
    residual_maker = np.eye(n) - design @ bread @ design.T
    residuals = residual_maker @ scores
    rows, meat = [], 0.0
    for cluster in np.unique(clusters):
        inside = clusters == cluster
        block = residual_maker[np.ix_(inside, inside)]
        values, vectors = np.linalg.eigh(block)
        adjust = vectors @ np.diag(1 / np.sqrt(values)) @ vectors.T
        effect = (bread @ design[inside].T @ adjust)[0]
        meat += (effect @ residuals[inside]) ** 2
        rows.append(effect @ residual_maker[inside])
    gram = np.array(rows) @ np.array(rows).T
    return np.sqrt(meat), np.trace(gram) ** 2 / (gram**2).sum()


class TestCR2:
    @pytest.mark.parametrize("sizes", [(4, 4, 4), (10, 1, 1), (5, 8, 3, 9, 6, 6), (1, 1, 1, 1, 30)])
    def test_it_agrees_with_the_matrices_of_its_definition(self, sizes):
        """For clusters of equal and of very unequal sizes."""
        clusters = np.repeat(np.arange(len(sizes)), sizes)
        scores = np.random.default_rng(0).uniform(size=len(clusters))
        error, freedom = dense_cr2(scores, clusters)
        totals = np.bincount(clusters, scores)
        half = stats.t.ppf(0.975, freedom) * error
        low, high = clustered.t_cr2(totals, sizes, confidence_level=0.95)

        assert error == pytest.approx(
            float(clustered.cluster_moments(totals, sizes).cr2), rel=1e-10
        )
        assert freedom == pytest.approx(float(clustered.satterthwaite(sizes)), rel=1e-10)
        assert scores.mean() - half == pytest.approx(float(low), rel=1e-8)
        assert scores.mean() + half == pytest.approx(float(high), rel=1e-8)

    def test_it_is_cr1_for_clusters_of_equal_size(self):
        """C - 1 degrees of freedom, too."""
        totals, sizes = [[3.0, 5, 0, 4]], [[6, 6, 6, 6]]
        one = clustered.t_cr2(totals, sizes, confidence_level=0.9)
        two = clustered.t_cr2(totals, sizes, confidence_level=0.9)

        assert np.allclose(one, two, rtol=1e-12)

    def test_one_cluster_and_clusters_that_agree_have_no_interval(self):
        """NaN; padding is no cluster."""
        low, high = clustered.t_cr2(
            [[3.0, 0.0], [2.0, 4.0]], [[5, 0], [4, 8]], confidence_level=0.95
        )

        assert np.isnan([low, high]).all()


class TestIntraclusterCorrelation:
    def test_it_agrees_with_analysis_of_variance(self):
        """Mean squares among and within clusters of unequal sizes, by SciPy's F."""
        sizes = np.array([5, 8, 3, 9])
        clusters = np.repeat(np.arange(4), sizes)
        scores = np.random.default_rng(1).uniform(size=25) + clusters
        groups = [scores[clusters == i] for i in range(4)]
        f = float(stats.f_oneway(*groups).statistic)
        typical = (25 - (sizes**2).sum() / 25) / 3
        found = clustered.anova_icc(
            np.bincount(clusters, scores), np.bincount(clusters, scores**2), sizes
        )

        assert (f - 1) / (f - 1 + typical) == pytest.approx(float(found))

    def test_its_ends(self):
        """1 where clusters stand or fall together; NaN where there is nothing to tell."""
        together = clustered.anova_icc([4, 0, 4], [4, 0, 4], [4, 4, 4])
        unknown = clustered.anova_icc(
            [[1, 0], [3, 0], [4, 4]], [[1, 0], [3, 0], [4, 4]], [[1, 1], [4, 0], [4, 4]]
        )

        assert 1.0 == together
        assert np.isnan(unknown).all()

    def test_it_makes_the_design_effect(self):
        """1 + (m - 1) ICC of the variance for equal clusters, as both estimate it."""
        rng = np.random.default_rng(0)
        right = simulate(rng, n_clusters=4000, size=5, share=0.7, correlation=0.3, repetitions=1)[0]
        sizes = np.full(4000, 5)
        share = right.mean() / 5
        effect = clustered.cluster_moments(right, sizes).cr1 ** 2 / (share * (1 - share) / 20_000)

        assert 0.3 == pytest.approx(float(clustered.anova_icc(right, right, sizes)), abs=0.03)
        assert 1 + 4 * 0.3 == pytest.approx(float(effect), abs=0.1)


@given(st.integers(0, 2**31), st.integers(2, 3), st.integers(6, 10))
def test_a_regression_has_the_jackknife_of_its_clusters(seed, k, n_clusters):
    """Fitted again without each cluster in turn, by another hand."""
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 6, n_clusters)
    names = np.repeat(np.arange(n_clusters) * 7, sizes)
    n = len(names)
    x = np.column_stack([np.ones(n), random.normal(size=(n, k - 1))])
    y = random.normal(size=n)

    fit = clustered.clustered_regression(y, x, names)

    whole = np.linalg.lstsq(x, y)[0]
    without = [np.linalg.lstsq(x[names != name], y[names != name])[0] for name in np.unique(names)]
    error = np.sqrt((n_clusters - 1) / n_clusters * ((without - whole) ** 2).sum(axis=0))
    residual = y - x @ whole
    np.testing.assert_allclose(fit.coefficients, whole, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(fit.std_errors, error, rtol=1e-6, atol=1e-9)
    assert fit.residual_std == pytest.approx(np.sqrt(residual @ residual / max(n - k, 1)))
    assert fit.df == max(n_clusters - k, 1)


def test_a_regression_on_a_column_for_each_group_is_that_on_contrasts():
    """Thousands of rounding errors give the columns, which add up to 0, no rank of their own."""
    random = np.random.default_rng(0)
    group, names = np.repeat(np.arange(8), 400), np.tile(np.arange(400), 8)
    score = random.normal(size=3200) + (group == 3)
    ones = np.ones(3200)
    each = np.where(group[:, None] == np.arange(8), 1.0, -1 / 7)
    contrasts = each[:, :7] - each[:, 7:]

    fit = clustered.clustered_regression(score, np.column_stack([ones, each]), names)
    expected = clustered.clustered_regression(score, np.column_stack([ones, contrasts]), names)

    np.testing.assert_allclose(fit.coefficients[:8], expected.coefficients)
    np.testing.assert_allclose(fit.std_errors[:8], expected.std_errors)
