"""Do intervals for items in clusters hold the truth? Writes fixtures/validation/clusters.json.

Simulations with fixed seeds, at a confidence level of 0.95; the standard error of each coverage
stands with it. Widths are cut to the range that scores, or their differences, can have.
"""

from functools import cache, partial

import beaten
import numpy as np
import pytest
import study

from evalstats_plugin.stats import bounded, clustered, grid_posteriors
from evalstats_plugin.stats.interval import Interval, normal_quantile
from evalstats_plugin.stats.pairs import paired
from evalstats_plugin.stats.pairs.differences import Differences

pytestmark = pytest.mark.validation
LEVEL = 0.95
N = 2500
AT_LEVEL = {"confidence_level": LEVEL}
CLUSTERS = (2, 6, 20, 60)
CORRELATIONS = (0.0, 0.05, 0.2, 0.5)
# What each method is told is all there is: how many of each cluster are right, and how many in all.
SINGLE = {
    "size_betabinomial": partial(grid_posteriors.size_beta_binomial, **AT_LEVEL),
    "betabinomial_gamma": partial(
        grid_posteriors.beta_binomial, prior="gamma-dispersion", **AT_LEVEL
    ),
    "logit_t_cr2": partial(clustered.logit_t_cr2, bounds=(0, 1), **AT_LEVEL),
    "t_cr2": partial(clustered.t_cr2, **AT_LEVEL),
}
OWN_PRIOR = {"uniform-icc": "size_betabinomial", "gamma-dispersion": "betabinomial_gamma"}


def cluster_z(totals, sizes):
    """Mean ± 1.96 Liang–Zeger errors, as in Miller (2024)."""
    found = clustered.cluster_moments(totals, sizes)
    half = 1.959964 * found.cr0
    return Interval(found.mean - half, found.mean + half)


def naive_beta(totals, sizes):
    """Items taken as independent."""
    return bounded.beta_hpd(totals.sum(axis=1), sizes.sum(axis=1), prior=(1, 1), **AT_LEVEL)


def naive_wilson(totals, sizes):
    return bounded.wilson(totals.sum(axis=1), sizes.sum(axis=1), **AT_LEVEL)


def cluster_bootstrap(totals, sizes):
    rng = np.random.default_rng(1)
    return beaten.cluster_bootstrap(totals, sizes, rng=rng, n_resamples=499, **AT_LEVEL)


def fixed_task_bootstrap(totals, sizes):
    """Resamples questions inside tasks, and never the tasks."""
    rng = np.random.default_rng(2)
    draws = [
        rng.binomial(sizes.astype(int), totals / sizes).sum(axis=1) / sizes.sum(axis=1)
        for _ in range(199)
    ]
    return Interval(*np.quantile(draws, [0.025, 0.975], axis=0))


CONTROLS = {
    "cluster_z": cluster_z,
    "naive_beta": naive_beta,
    "naive_wilson": naive_wilson,
    "cluster_bootstrap": cluster_bootstrap,
    "fixed_task_bootstrap": fixed_task_bootstrap,
}


def rates_of_clusters(rng, share, correlation, n_clusters):
    """Shape (repetitions, n_clusters)."""
    share = np.repeat(share[:, None], n_clusters, axis=1)
    if np.all(correlation == 0):
        return share
    dispersion = np.maximum(1 / correlation - 1, 1e-9)[:, None]
    return rng.beta(
        np.maximum(share * dispersion, 1e-12), np.maximum((1 - share) * dispersion, 1e-12)
    )


def row(case, method, limits, truth, bounds):
    return study.coverage_row(case, method, limits, truth, bounds) | study.undefined(limits)


@cache
def score_rows():
    """Strong models, θ ~ Beta(20, 4): five items in each of T clusters, or 1 to 12."""
    rows = []
    for n_clusters in CLUSTERS:
        for correlation in CORRELATIONS:
            rng = np.random.default_rng(n_clusters)
            share = rng.beta(20, 4, N)
            rates = rates_of_clusters(rng, share, np.full(N, correlation), n_clusters)
            sizes = np.full(rates.shape, 5.0)
            case = {"clusters": n_clusters, "icc": correlation, "items": "5"}
            rows += methods_on(case, rng.binomial(5, rates), sizes, share)
    for n_clusters in (10, 30):
        rng = np.random.default_rng(n_clusters)
        # The posterior for unequal sizes takes 50 ms.
        share = rng.beta(20, 4, N // 8)
        rates = rates_of_clusters(rng, share, np.full(len(share), 0.2), n_clusters)
        sizes = rng.integers(1, 13, rates.shape)
        case = {"clusters": n_clusters, "icc": 0.2, "items": "1 to 12"}
        rows += methods_on(case, rng.binomial(sizes, rates), sizes * 1.0, share)
    return rows


def methods_on(case, right, sizes, share):
    return [
        row(case, name, method(right * 1.0, sizes), share, (0, 1))
        for name, method in {**SINGLE, **CONTROLS}.items()
    ]


@cache
def prior_rows():
    """θ ~ U(0, 1), and the correlation as the method's own prior says: a definition."""
    rows = []
    for prior, name in OWN_PRIOR.items():
        for n_clusters in CLUSTERS:
            rng = np.random.default_rng(n_clusters)
            share = rng.uniform(size=4000)
            uniform = rng.uniform(size=4000)
            correlation = uniform if prior == "uniform-icc" else 1 / (1 + rng.gamma(1, 1, 4000))
            rates = rates_of_clusters(rng, share, correlation, n_clusters)
            sizes = np.full(rates.shape, 5.0)
            case = {"clusters": n_clusters, "icc": prior, "items": "5"}
            tested = {name: SINGLE[name], "naive_wilson": naive_wilson}
            tested["fixed_task_bootstrap"] = fixed_task_bootstrap
            right = rng.binomial(5, rates) * 1.0
            rows += [
                row(case, which, method(right, sizes), share, (0, 1))
                for which, method in tested.items()
            ]
    return rows


def paired_t(only_a, only_b, sizes):
    return clustered.t_cr2(only_b - only_a, sizes, **AT_LEVEL)


def paired_logit_t(only_a, only_b, sizes):
    return clustered.logit_t_cr2(only_b - only_a, sizes, bounds=(-1, 1), **AT_LEVEL)


def paired_z(only_a, only_b, sizes):
    return cluster_z(only_b - only_a, sizes)


def tables(only_a, only_b, sizes):
    a, b, n = (x.sum(axis=1) for x in (only_a, only_b, sizes))
    return paired.paired_counts(0, a, b, n - a - b)


def naive_bonett_price(only_a, only_b, sizes):
    return paired.bonett_price(tables(only_a, only_b, sizes), **AT_LEVEL)


def naive_dirichlet(only_a, only_b, sizes):
    return paired.dirichlet(tables(only_a, only_b, sizes), prior=(0.5, 1.0), **AT_LEVEL)


def engine(only_a, only_b, sizes):
    pairs = Differences(only_b - only_a, sizes=sizes * 1.0, span=1.0)
    return pairs.limits(normal_quantile(AT_LEVEL["confidence_level"]))


PAIRED = {
    "engine": engine,
    "t_cr2": paired_t,
    "logit_t_cr2": paired_logit_t,
    "cluster_z": paired_z,
    "naive_bonett_price": naive_bonett_price,
    "naive_dirichlet": naive_dirichlet,
}


def draw_pairs(rng, means, correlation, n_clusters, size):
    """Items of each cluster that only a, and only b, gets right."""
    means = np.repeat(means[:, None, :], n_clusters, axis=1)
    rates = means
    if correlation:
        rates = rng.gamma(np.maximum(means * (1 / correlation - 1), 1e-12))
        rates /= rates.sum(axis=2, keepdims=True)
    counts = rng.multinomial(size, rates) * 1.0
    return counts[..., 0], counts[..., 1], np.full(counts.shape[:2], float(size))


def draw_means(rng, models, n):
    """P(only a is right), P(only b is), and of the rest, shape (n, 3)."""
    if models == "near":
        differ, share = rng.uniform(0.05, 0.3, n), rng.uniform(0.2, 0.8, n)
        return np.stack([differ * (1 - share), differ * share, 1 - differ], axis=1)
    # Each model's score is uniform, right answers of one going with those of the other.
    both, only_a, only_b, neither = rng.dirichlet([2 / 3, 1 / 3, 1 / 3, 2 / 3], n).T
    return np.stack([only_a, only_b, both + neither], axis=1)


@cache
def paired_rows():
    """Five items in each of T clusters; models that differ little, or by any amount."""
    rows = []
    for models in ("near", "any"):
        for n_clusters in (6, 20, 60):
            for correlation in (0.0, 0.09, 0.33):
                rng = np.random.default_rng(n_clusters)
                means = draw_means(rng, models, 1000)
                counts = draw_pairs(rng, means, correlation, n_clusters, 5)
                case = {"models": models, "clusters": n_clusters, "icc": correlation}
                truth = means[:, 1] - means[:, 0]
                rows += [
                    row(case, name, method(*counts), truth, (-1, 1))
                    for name, method in PAIRED.items()
                ]
    return rows


SECTIONS = {"scores": score_rows, "own_prior": prior_rows, "paired": paired_rows}


def test_the_figures_are_written():
    study.write_figures("clusters", SECTIONS)


def chosen(rows, **wanted):
    found = [one for one in rows if all(one[key] == value for key, value in wanted.items())]
    assert found
    return found


def assert_covers(rows, between):
    """Every case lies between two bounds, but for three standard errors."""
    for one in rows:
        slack = 3 * one["std_error"]
        assert between[0] - slack <= one["coverage"] <= between[1] + slack, one


def widths(**wanted):
    """Of each paired case."""
    return np.array([one["width"] for one in chosen(paired_rows(), **wanted)])


def test_the_default_covers_with_any_correlation_and_few_clusters():
    """From 2 clusters to 60, correlations of 0 to .5, equal sizes and unequal ones."""
    assert_covers(chosen(score_rows(), method="size_betabinomial"), (0.94, 0.978))


@pytest.mark.parametrize("prior", OWN_PRIOR)
def test_posteriors_cover_under_their_own_prior(prior):
    """By definition at the level: within three standard errors of 4,000 repetitions."""
    for one in chosen(prior_rows(), icc=prior, method=OWN_PRIOR[prior]):
        assert LEVEL == pytest.approx(one["coverage"], abs=0.0105), one


@pytest.mark.parametrize("method", [*CONTROLS, "t_cr2"])
def test_falls_short(method):
    """Negative controls: independence, tasks that stay the same, the central limit theorem."""
    with pytest.raises(AssertionError):
        assert_covers(chosen(score_rows(), method=method), (0.94, 0.978))


@pytest.mark.parametrize("method", ["naive_wilson", "fixed_task_bootstrap"])
def test_falls_short_under_the_prior_too(method):
    """By tens of percent."""
    assert all(one["coverage"] < 0.85 for one in chosen(prior_rows(), method=method))


def test_comparisons_cover():
    """Models that differ little or by any amount, from 6 clusters on.

    Six clusters cannot rule out a correlation that is not there, and then cover more.
    """
    cases = chosen(paired_rows(), method="engine")
    few = [one for one in cases if one["clusters"] == 6]
    assert_covers(few, (0.95, 0.98))
    assert_covers([one for one in cases if one not in few], (0.93, 0.965))
    assert_covers([one for one in cases if one["icc"] == 0.33], (0.93, 0.965))


def test_comparisons_gain_where_clusters_matter():
    """Against the clustered t: far narrower at a correlation of .33, and about as wide at .09."""
    for correlation, most in ((0.33, 0.95), (0.09, 1.05)):
        ours, t = (widths(method=method, icc=correlation) for method in ("engine", "t_cr2"))

        assert np.all(ours <= most * t)


@pytest.mark.parametrize("method", ["cluster_z", "naive_bonett_price", "naive_dirichlet"])
def test_comparisons_fall_short(method):
    """Negative controls."""
    with pytest.raises(AssertionError):
        assert_covers(chosen(paired_rows(), method=method), (0.93, 0.965))
