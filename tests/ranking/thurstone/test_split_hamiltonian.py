"""Hamiltonian steps: the slope they follow, and what a wrong approximation does not change."""

import warnings

import numpy as np
import pytest

from evalstats_plugin.ranking.contests.contests import Contests
from evalstats_plugin.ranking.hamiltonian import NormalApproximation, split_hamiltonian
from evalstats_plugin.ranking.thurstone.design import Sites, prior_of, sites_of
from evalstats_plugin.ranking.thurstone.model import log_posterior_of
from evalstats_plugin.runtime import ChainLength


def problem(n, m, *, ties):
    rng = np.random.default_rng(m)
    first = rng.integers(0, n, m)
    outcome = rng.choice([0, 0.5, 1] if ties else [0, 1], m)
    contests = Contests.of(first, (first + rng.integers(1, n, m)) % n, outcome, players=n)
    return sites_of(contests, "threshold"), prior_of(0.3, 2.0, n, ordered=False)


@pytest.mark.parametrize("ties", [False, True])
def test_the_gradient_is_that_of_the_log_posterior(ties):
    sites, prior = problem(5, 30, ties=ties)
    size = 5 + ties
    log_posterior = log_posterior_of(sites, prior)
    x, h = np.random.default_rng(0).normal(size=(size, 1)), 1e-5
    value, slope = log_posterior(x)
    steps = h * np.eye(size)
    ends = [log_posterior(x + s * steps)[0] for s in (1, -1)]

    np.testing.assert_allclose(slope[:, 0], (ends[0] - ends[1]) / (2 * h), rtol=1e-6, atol=1e-6)
    # The same as the sites' own likelihood, up to a constant: at two places.
    other = np.random.default_rng(1).normal(size=(size, 1))
    tie = [float(np.exp(y[5, 0])) if ties else 0.0 for y in (x, other)]

    def expected(y, delta):
        away = y[:5, 0] - 0.3
        fit = sites.log_likelihood(sites.design @ y[:5, 0], delta).sum() - away @ away / 4
        return fit - delta**2 / 2 + (np.log(delta) if ties else 0)

    found = value - log_posterior(other)[0]
    assert found[0] == pytest.approx(expected(x, tie[0]) - expected(other, tie[1]))


def test_draws_are_correct_for_a_wrong_approximation():
    """Off by half a standard deviation and twice too narrow or wide: the same posterior."""
    sites, prior = problem(4, 12, ties=False)
    options = ChainLength(chains=80, draws=60, warm_up=40)
    fits = [
        split_hamiltonian(
            log_posterior_of(sites, prior),
            NormalApproximation(np.full(4, shift), wide * np.eye(4)),
            np.random.default_rng(0),
            options,
        )
        for shift, wide in ((0.3, 1.0), (0.8, 0.5), (-0.2, 2.0))
    ]

    means = [draws.mean((0, 1)) for draws in fits]
    covariances = [np.cov(draws.reshape(-1, 4), rowvar=False) for draws in fits]
    for mean, covariance in zip(means[1:], covariances[1:], strict=True):
        np.testing.assert_allclose(mean, means[0], atol=0.08)
        np.testing.assert_allclose(covariance, covariances[0], atol=0.12)
    # A control: a posterior that saw the answers turned is far.
    turned = Sites(design=sites.design, wins=sites.losses, ties=sites.ties, losses=sites.wins)
    around = NormalApproximation(np.full(4, 0.3), np.eye(4))
    far = split_hamiltonian(
        log_posterior_of(turned, prior), around, np.random.default_rng(0), options
    )
    assert np.abs(far.mean((0, 1)) - means[0]).max() > 0.3


def test_a_tiny_threshold_gives_no_warning():
    """One tie of six answers leaves δ so free that steps leave what numbers can tell apart."""
    contests = Contests.of([0, 0, 1, 0, 1, 1], [1, 1, 2, 2, 2, 0], [1, 0, 0.5, 1, 1, 0])
    sites, prior = sites_of(contests, "threshold"), prior_of(0, 1, 3, ordered=False)
    # Three standard deviations of log δ are beyond the smallest interval.
    around = NormalApproximation(np.zeros(4), np.diag([1.0, 1, 1, 200]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = split_hamiltonian(
            log_posterior_of(sites, prior),
            around,
            np.random.default_rng(0),
            ChainLength(chains=40, draws=60, warm_up=40),
        )

    assert np.isfinite(found).all()
