"""The parameters of the skew-normal posterior, beside SciPy's orthant probability."""

import numpy as np
import pytest
from scipy import stats

from evalstats_plugin.errors import DesignError
from evalstats_plugin.ranking.contests.contests import Contests
from evalstats_plugin.ranking.thurstone.model import fit_thurstone, skew_normal


def test_the_evidence_is_scipys_orthant_probability():
    """Log Φ_m(τ; Γ), m = 6, with the parameters as they are named."""
    rng, variance = np.random.default_rng(4), 1.5
    winner = rng.integers(0, 4, 6)
    contests = Contests.of(winner, (winner + rng.integers(1, 4, 6)) % 4, 1, players=4)
    posterior = skew_normal(contests, variance)
    expected = stats.multivariate_normal(cov=posterior.latent_covariance).cdf(posterior.threshold)
    fit = fit_thurstone(contests, prior_covariance=variance, estimator="exact")

    assert fit.diagnostics["log_evidence"] == pytest.approx(np.log(expected), abs=2e-4)
    assert posterior.skewness.shape == (4, 6)
    twice = skew_normal(contests.take([0, 0, 1]), variance)
    weighted = Contests.of(contests.first[:2], contests.second[:2], 1, players=4, weight=[2.0, 1.0])
    for one, other in zip(twice, skew_normal(weighted, variance), strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(DesignError, match="takes wins and losses: some outcomes are ties"):
        skew_normal(Contests.of([0], [1], [0.5]))
