"""Information by its definition, reliability by integrals and known truth."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate

from evalstats_plugin.irt.fitting import fit_irt
from evalstats_plugin.irt.methods import MmlOptions
from evalstats_plugin.irt.model import fit as fits
from evalstats_plugin.irt.model.fit import item_information, marginal_reliability, reliability
from evalstats_plugin.irt.model.simulate import simulate_responses

pytestmark = pytest.mark.needs("torch")


@pytest.mark.parametrize("item_model", ["2pl", "3pl"])
def test_information_is_the_expected_curvature_of_the_log_likelihood(item_model):
    """-E ∂² log P by finite differences of the fit's own curve."""
    matrix, _ = simulate_responses(rng=0, n_models=300, n_items=5, item_model=item_model)
    fit = fit_irt(matrix, item_model, "mml", options=MmlOptions(prior="weak", std_errors=False))
    at, step = np.array([-2.0, 0.1, 1.5]), 1e-3

    def p(theta):
        up = 1 / (1 + np.exp(-fit.discrimination * (theta[:, None] - fit.difficulty)))
        return fit.guessing + (1 - fit.guessing) * up

    def curvature(log):
        return (log(at + step) - 2 * log(at) + log(at - step)) / step**2

    expected = -p(at) * curvature(lambda t: np.log(p(t)))
    expected -= (1 - p(at)) * curvature(lambda t: np.log1p(-p(t)))
    np.testing.assert_allclose(item_information(fit, at), expected, atol=1e-5)
    np.testing.assert_allclose(fits.test_information(fit, at), expected.sum(axis=1), atol=1e-5)


def test_marginal_reliability_is_its_integral():
    matrix, _ = simulate_responses(rng=1, n_models=300, n_items=12)
    fit = fit_irt(
        matrix, "2pl", "mml", zero="models", options=MmlOptions(prior="weak", std_errors=False)
    )

    def part(t):
        information = float(fits.test_information(fit, [t])[0])
        return information / (information + 1) * np.exp(-t * t / 2) / np.sqrt(2 * np.pi)

    expected = integrate.quad(part, -8, 8)[0]
    assert marginal_reliability(fit) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("n", "m", "estimator"), [(1000, 15, "mml"), (200, 40, "mml-items")])
def test_reliability_is_the_squared_correlation_with_the_truth(n, m, estimator):
    """Where the truth is known."""
    matrix, truth = simulate_responses(rng=2, n_models=n, n_items=m, item_model="rasch")
    fit = fit_irt(matrix, "rasch", estimator)
    found = reliability(fit)
    expected = np.corrcoef(fit.ability, truth.ability)[0, 1] ** 2

    assert found.reliability == pytest.approx(expected, abs=0.03)
    assert found.separation == pytest.approx(
        np.sqrt(found.reliability / (1 - found.reliability)), rel=1e-9
    )
