"""The parameters of the skew-normal posterior, beside SciPy's orthant probability."""

import numpy as np
import pytest
from scipy import stats

from evalstats_plugin.ranking.contests.contests import Contests
from evalstats_plugin.ranking.thurstone.design import answers_of, prior_of
from evalstats_plugin.ranking.thurstone.model import SkewNormal, fit_thurstone


def test_the_evidence_is_scipys_orthant_probability():
    """Log Φ_m(τ; Γ), m = 6, with the parameters as they are named."""
    rng, variances = np.random.default_rng(4), [0.5, 1, 2, 3]
    winner = rng.integers(0, 4, 6)
    contests = Contests.of(winner, (winner + rng.integers(1, 4, 6)) % 4, 1, players=4)
    posterior = SkewNormal.of(answers_of(contests), prior_of(0, variances, 4, ordered=False), 0.0)
    expected = stats.multivariate_normal(cov=posterior.latent_covariance).cdf(posterior.threshold)
    fit = fit_thurstone(contests, prior_covariance=variances, estimator="exact")

    assert fit.diagnostics["log_evidence"] == pytest.approx(np.log(expected), abs=2e-4)
    np.testing.assert_allclose(posterior.skewness, posterior.scale @ posterior.design.T)
