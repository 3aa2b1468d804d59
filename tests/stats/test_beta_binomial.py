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
