"""Clusters of right and wrong answers: what `test_clustered` leaves, giant clusters and the ICC."""

import numpy as np
import pytest
from clustered_means import posterior_means
from scipy import integrate, special

from evalstats_plugin.stats import grid_posteriors

PRIORS = ["uniform-icc", "gamma-dispersion"]


def mass(right, size, prior, theta, weight=lambda _: 1.0):
    """∫∫ of likelihood × prior × weight(ρ) over θ in a range, by adaptive double integrals."""
    right, size = np.asarray(right, dtype=float), np.asarray(size, dtype=float)
    # The likelihood at the shares themselves, lest it underflow.
    share = (right.sum() + 1) / (size.sum() + 2)
    peak = special.betaln(share + right, 1 - share + size - right) - special.betaln(
        share, 1 - share
    )

    def density(correlation, mean):
        dispersion = 1 / correlation - 1
        a, b = mean * dispersion, (1 - mean) * dispersion
        likelihood = special.betaln(a + right, b + size - right) - special.betaln(a, b) - peak
        of_icc = 1.0 if prior == "uniform-icc" else np.exp(-dispersion) / correlation**2
        return np.exp(likelihood.sum()) * of_icc * weight(correlation)

    return integrate.dblquad(density, *theta, 1e-9, 1 - 1e-9, epsabs=1e-14, epsrel=1e-9)[0]


@pytest.mark.parametrize("prior", PRIORS)
def test_limits_of_giant_clusters_cut_off_their_tails(prior):
    """Thousands of items in each, of which very different shares are right."""
    right, size = [3600, 700, 5200], [4000, 6000, 10_000]
    low, high = map(
        float, grid_posteriors.beta_binomial(right, size, confidence_level=0.9, prior=prior)
    )
    below, between, above = (
        mass(right, size, prior, ends) for ends in ((0, low), (low, high), (high, 1))
    )
    whole = below + between + above

    assert (0.05, 0.05) == pytest.approx((below / whole, above / whole), abs=1e-8)


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize(
    ("right", "size"),
    [
        ([400], [1000]),
        ([0], [1]),
        ([50_000, 49_000], [50_000, 50_000]),
        ([100_000], [100_000]),
        ([0, 0, 0], [10_000, 20, 1]),
        ([5] * 5000, [10] * 5000),
        ([7, 7, 7, 7], [10, 10, 10, 10]),
        ([1] * 60, [1] * 60),
    ],
)
def test_twice_as_many_nodes_change_nothing_at_the_edges(prior, right, size, monkeypatch):
    """Giant, single, all alike, all right: within 1e-8."""
    once = grid_posteriors.beta_binomial(right, size, confidence_level=0.95, prior=prior)
    nodes = tuple(2 * n for n in grid_posteriors.BETA_NODES)
    monkeypatch.setattr(grid_posteriors, "BETA_NODES", nodes)
    monkeypatch.setattr("evalstats_plugin.stats.grid_posteriors.NEGLIGIBLE", 36.0)
    monkeypatch.setattr("evalstats_plugin.stats.grid_posteriors.SERIES_SETTLED", 1e-10)
    monkeypatch.setattr("evalstats_plugin.stats.grid_posteriors.SUM_SETTLED", 1e-6)
    more = grid_posteriors.beta_binomial(right, size, confidence_level=0.95, prior=prior)

    assert np.allclose(once, more, rtol=0, atol=1e-8)


@pytest.mark.parametrize("prior", PRIORS)
def test_the_mean_correlation_is_that_of_the_posterior(prior):
    """By adaptive double integrals; without items there is none."""
    right, size = [3, 5, 0, 4], [4, 5, 2, 7]
    found = posterior_means([right, [0] * 4], [size, [0] * 4], prior=prior)
    whole = mass(right, size, prior, (0, 1))
    expected = mass(right, size, prior, (0, 1), weight=lambda correlation: correlation) / whole

    assert expected == pytest.approx(found.icc[0], abs=1e-8)
    assert np.isnan([found.icc[1], found.mean[1]]).all()


def test_clusters_of_one_item_leave_the_correlation_to_the_prior():
    """Its mean is ½; clusters that stand or fall together move it up, alike ones down."""
    alone = posterior_means([1, 0, 1], [1, 1, 1], prior="uniform-icc")
    together = posterior_means([9, 0, 9], [9, 9, 9], prior="uniform-icc")
    alike = posterior_means([6, 6, 6], [9, 9, 9], prior="uniform-icc")

    assert 0.5 == pytest.approx(float(alone.icc), abs=1e-9)
    assert alike.icc < 0.3
    assert together.icc > 0.7


SIZES = [60, 20, 15, 8, 4, 2, 1, 1]
RIGHT = [8, 4, 9, 2, 3, 1, 1, 1]
AT_95 = {"confidence_level": 0.95}


def posterior_by_sums(right, size):
    """Means of the share and of the slope, by plain sums over a grid of a, b and logit ρ."""
    right, size = np.asarray(right, float), np.asarray(size, float)
    share = size / size.sum()
    x = np.log(size) - share @ np.log(size)
    a, b, w = np.meshgrid(
        np.linspace(-4, 4, 61), np.linspace(-4, 4, 41), np.linspace(-9, 7, 41), indexing="ij"
    )
    both = np.exp(-w)
    log_density = -(b**2) / 2 + special.log_expit(w) + special.log_expit(-w)
    mean, slope = np.zeros((2, *a.shape))
    for k, m, one, part in zip(right, size, x, share, strict=True):
        eta = a + b * one
        p, q = both * special.expit(eta), both * special.expit(-eta)
        log_density += special.betaln(p + k, q + m - k) - special.betaln(p, q)
        mean += part * special.expit(eta)
        slope += part * special.expit(eta) * special.expit(-eta)
    # The share itself is uniform a priori: its derivative by a.
    density = np.exp(log_density - log_density.max()) * slope
    return (density * mean).sum() / density.sum(), (density * b).sum() / density.sum()


def test_the_posterior_of_unequal_clusters_is_that_of_plain_sums():
    """The share of clusters of these sizes, and by how much it goes with log size."""
    counts = np.stack([SIZES, RIGHT], axis=1) * 1.0
    grid = grid_posteriors._SizeModel(counts, "items").grid
    share = special.expit(grid.values(0)) @ grid.marginal(0)[0]
    slope = grid.values(1) @ grid.marginal(1)[0]

    assert posterior_by_sums(RIGHT, SIZES) == pytest.approx((share[0], slope[0]), abs=2e-3)


def test_new_sizes_move_the_share_as_the_bayesian_bootstrap_does():
    """Mean and spread of the ratio of exponentially weighted sums, by 400,000 draws."""
    model = grid_posteriors._SizeModel(np.stack([SIZES, RIGHT], axis=1) * 1.0, "items")
    u, b = np.array([0.4]), np.array([-0.8])
    shift, spread = model._correction(u, b)
    weight = np.random.default_rng(0).gamma(model._times, size=(400_000, 7)) * model._share
    drawn = (weight / model._times) @ special.expit(model._logits(u, b)[0, 0])
    drawn /= (weight / model._times).sum(axis=1)
    mean = special.expit(u + shift[0])

    assert drawn.mean() == pytest.approx(float(mean[0]), abs=1e-3)
    assert drawn.std() == pytest.approx(float((spread * mean * (1 - mean))[0, 0]), rel=0.01)


def test_rounding_errors_do_not_move_limits(monkeypatch):
    """Clusters that count alike once had the order of equal shares in their limits: 2e-5."""
    sizes, right = [1, 4, 2, 8, 3, 5, 2, 9], [1, 3, 0, 6, 3, 2, 2, 9]
    model = grid_posteriors._SizeModel(np.stack([sizes, right], axis=1) * 1.0, "clusters")
    expected = model.limits(0.05, "random")
    shift, spread = model._correction(model.grid.values(0)[0], model.grid.values(1)[0])
    for seed in range(12):
        noise = 1e-15 * np.random.default_rng(seed).choice([-1, 1], shift.shape)
        other = shift + noise, spread
        monkeypatch.setattr(model, "_correction", lambda *_, other=other: other)

        assert model.limits(0.05, "random") == pytest.approx(expected, abs=1e-9)


def test_clusters_of_one_size_leave_the_slope_out():
    equal = [[3, 9, 5, 0, 7], [10] * 5]

    assert grid_posteriors.beta_binomial(*equal, **AT_95, prior="uniform-icc") == (
        grid_posteriors.size_beta_binomial(*equal, **AT_95)
    )


@pytest.mark.parametrize("clusters", ["random", "fixed"])
@pytest.mark.parametrize("estimand", ["items", "clusters"])
def test_right_and_wrong_mirror_each_other(estimand, clusters):
    """In whatever order the clusters come."""
    how = {"estimand": estimand, "clusters": clusters}
    low, high = grid_posteriors.size_beta_binomial(RIGHT, SIZES, **AT_95, **how)
    wrong = np.subtract(SIZES, RIGHT)[::-1]
    mirrored = grid_posteriors.size_beta_binomial(wrong, SIZES[::-1], **AT_95, **how)

    assert np.allclose((1 - high, 1 - low), mirrored, atol=5e-4)


def test_fixed_clusters_leave_out_what_new_ones_would_add():
    """A hundred wrong items of one cluster and twenty others: .1667 of these is nearly certain."""
    found = grid_posteriors.size_beta_binomial(
        [0] + 20 * [1], [100] + 20 * [1], **AT_95, clusters="fixed"
    )

    # By importance sampling: [.1592, .1745].
    assert np.allclose((0.1592, 0.1745), found, atol=1e-3)


@pytest.mark.parametrize("clusters", ["random", "fixed"])
def test_clusters_of_any_sizes_that_agree_reach_the_end_and_are_not_certain(clusters):
    """All right, or all wrong, whose limits mirror them."""
    sizes = np.array([3.0, 9.0, 1.0, 4.0])
    right, wrong = (
        grid_posteriors.size_beta_binomial(
            share * sizes, sizes, confidence_level=0.95, clusters=clusters
        )
        for share in (1, 0)
    )

    assert right.high == 1
    assert 0.3 < right.low < 0.99
    assert wrong.low == 0
    assert wrong.high == pytest.approx(1 - right.low, abs=2e-3)
