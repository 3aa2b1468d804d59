"""Families: densities against SciPy, mean parameters against digits, draws against moments."""

import numpy as np
import pytest
import torch
from scipy import stats

from evalstats_plugin.hierarchical.engines.plates.distributions import Beta, Gamma, Normal

A = torch.tensor([0.02, 0.3, 1.0, 7.0, 300.0, 1e5], dtype=torch.float64)
B = torch.tensor([3.0, 2.0, 0.5, 9.0, 11.0, 2e5], dtype=torch.float64)
FAMILIES = [
    (Normal(0.3, 1.7), stats.norm(0.3, 1.7), [-3.0, 0.0, 9.0]),
    (Gamma(2.5, 0.7), stats.gamma(2.5, scale=1 / 0.7), [1e-4, 1.0, 20.0]),
    (Beta(0.4, 3.0), stats.beta(0.4, 3.0), [1e-6, 0.3, 0.99]),
]
"""With the same of SciPy, and some values."""


@pytest.mark.parametrize("family", [Normal(torch.log(A), B), Gamma(A, B), Beta(A, B)])
def test_parameters_come_back_from_mean_parameters(family):
    back = type(family).from_means(family.means())

    for found, expected in zip(back.parameters(), family.parameters(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize(("family", "reference", "values"), FAMILIES)
def test_log_densities_are_scipys(family, reference, values):
    found = family.log_prob(torch.tensor(values, dtype=torch.float64))

    np.testing.assert_allclose(found, reference.logpdf(values), rtol=1e-12)


@pytest.mark.parametrize("family", [family for family, *_ in FAMILIES])
def test_draws_have_the_mean_parameters(family):
    """Within four standard errors, which draws of another family do not keep."""
    shape = [40_000, *family.parameters()[0].shape]
    drawn = family.sample(shape, torch.Generator().manual_seed(0))
    for found, expected in zip(family.statistics(drawn), family.means(), strict=True):
        error = found.std(0) / 40_000**0.5

        assert bool(((found.mean(0) - expected).abs() < 4 * error).all())


def test_draws_are_differentiable_and_reproducible():
    """D E z / d a = 1 / rate for a Gamma number."""
    a = torch.full([20_000], 2.5, dtype=torch.float64, requires_grad=True)
    drawn = [Gamma(a, 2.0).sample([20_000], torch.Generator().manual_seed(3)) for _ in range(2)]
    drawn[0].sum().backward()

    assert torch.equal(drawn[0], drawn[1])
    assert float(a.grad.mean()) == pytest.approx(0.5, abs=0.02)


def test_plain_numbers_keep_all_their_digits():
    """0.7 through torch's default type would be 0.699999988."""
    assert float(Normal(0.1, 0.7).scale) == 0.7


def test_outside_of_the_support_there_is_no_density():
    """Where the power is 0, z⁰ e^−z would be a number for a negative z too."""
    outside = torch.tensor([-5.0, 0.0, 1.0, 7.0])

    assert Gamma(1.0, 1.0).log_prob(outside).tolist() == [-np.inf, -np.inf, -1.0, -7.0]
    assert Beta(1.0, 1.0).log_prob(outside).tolist() == [-np.inf] * 4
