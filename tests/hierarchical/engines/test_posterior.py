"""Beta posteriors against their draws."""

import numpy as np
import pytest
from scipy import special, stats

from evalstats_plugin.hierarchical.engines import posterior


@pytest.mark.parametrize("pooled", [True, False])
def test_draws_of_shares_follow_their_beta_posteriors(pooled):
    right, trials = np.array([[3.0, 0.0], [8.0, 4.0]]), np.array([[5.0, 2.0], [8.0, 9.0]])
    found = posterior.shares(right, trials, pooled=pooled)
    draws = posterior.draw(found, right, trials, (2, 4000), np.random.default_rng(0))

    for i, j in np.ndindex(2, 2):
        s, n = (right[i].sum(), trials[i].sum()) if pooled else (right[i, j], trials[i, j])
        values = draws.accuracy[:, :, i, j].ravel()
        assert stats.kstest(values, stats.beta(1 + s, 1 + n - s).cdf).pvalue > 1e-3
    assert found.quantile(0.5) == pytest.approx(np.median(draws.accuracy, (0, 1)), abs=0.02)
    # Data drawn anew have the mean of a Beta-Binomial.
    expected = trials * found.mean
    assert draws.predictions.replicated.mean((0, 1)) == pytest.approx(expected, abs=0.15)


def test_left_out_cells_have_beta_binomial_probabilities():
    """Times the ways to arrange the right answers, which the log probability leaves out."""
    right, trials = np.array([[3.0, 1.0]]), np.array([[5.0, 4.0]])
    found = posterior.log_left_out(posterior.shares(right, trials, pooled=True), right, trials)

    expected = [
        stats.betabinom(5, 1 + 1, 1 + 3).logpmf(3) - np.log(special.comb(5, 3)),
        stats.betabinom(4, 1 + 3, 1 + 2).logpmf(1) - np.log(special.comb(4, 1)),
    ]
    np.testing.assert_allclose(found[0], expected)
