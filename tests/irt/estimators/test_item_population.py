"""The population of items: derivatives are those of its density, by automatic differentiation."""

from __future__ import annotations

import math

import pytest
import torch
from torch.autograd.functional import hessian, jacobian
from torch.distributions import MultivariateNormal

from evalstats_plugin.irt.estimators.item_population import Population
from evalstats_plugin.irt.estimators.mml import ItemPrior

VALUES = {
    "rasch": torch.tensor([0.3, math.log(1.4)], dtype=torch.float64),
    "2pl": torch.tensor([0.3, math.log(1.4), -0.2, 0.25, math.log(0.7)], dtype=torch.float64),
    "2pl-signed": torch.tensor([0.3, math.log(1.4), 1.1, 0.25, math.log(0.7)], dtype=torch.float64),
}
X1 = torch.tensor([-1.2, 0.4, 2.1], dtype=torch.float64)
X2 = torch.tensor([0.5, -0.3, 0.1], dtype=torch.float64)
WEIGHT = torch.tensor([0.2, 1.3, 0.7], dtype=torch.float64)


@pytest.mark.parametrize("kind", VALUES)
def test_score_and_information_are_derivatives_of_the_density(kind):
    values = VALUES[kind]

    def total(at):
        return WEIGHT @ Population(kind, at).log_density(X1, X2)

    def each(at):
        return Population(kind, at).log_density(X1, X2)

    own = Population(kind, values)
    torch.testing.assert_close(own.score(X1, X2), jacobian(each, values))
    torch.testing.assert_close(own.information(WEIGHT, X1, X2), -hessian(total, values))


@pytest.mark.parametrize("kind", VALUES)
def test_the_density_is_normal(kind):
    """Of difficulty or intercept, and of the discrimination given it."""
    m1, log_s1, *others = VALUES[kind]
    s1 = log_s1.exp()
    expected = torch.distributions.Normal(m1, s1).log_prob(X1)
    if others:
        m2, slope, log_s2 = others
        expected = expected + torch.distributions.Normal(
            m2 + slope * (X1 - m1), log_s2.exp()
        ).log_prob(X2)

    torch.testing.assert_close(Population(kind, VALUES[kind]).log_density(X1, X2), expected)


@pytest.mark.parametrize("kind", VALUES)
def test_the_prior_has_the_derivatives_of_its_value(kind):
    """Along each parameter; along m_2, which fixes the scale, of all that moves with it."""
    values = VALUES[kind]

    def value(at):
        return Population(kind, at).log_prior()[0]

    found, gradient, information = Population(kind, values).log_prior()
    exact, curve = jacobian(value, values), -hessian(value, values)
    own = [k for k in range(len(values)) if k not in {0, 2}]

    assert found.shape == ()
    torch.testing.assert_close(gradient[own], exact[own])
    torch.testing.assert_close(information[own][:, own], curve[own][:, own])
    torch.testing.assert_close(information, information.T)
    assert gradient[0] == 0
    assert not information[0].any()
    if kind != "rasch":
        which, sign = (1, 1) if kind == "2pl" else (4, -1)

        def moved(by):
            numbers = list(values)
            numbers[which] = values[which] + sign * by
            numbers[3] = values[3] * (-by).exp()
            return value(torch.stack(numbers))

        zero = torch.zeros((), dtype=torch.float64)
        torch.testing.assert_close(gradient[2], jacobian(moved, zero))


def test_a_prior_moves_with_its_items():
    """Abilities shifted and scaled: items have the same density under the prior that moved."""
    shift, scale, slope = (torch.tensor(x, dtype=torch.float64) for x in (0.3, 1.7, 1.2))
    items = torch.tensor([[1.1, 0.4], [0.6, -1.0]], dtype=torch.float64)
    two = ItemPrior(
        torch.tensor([1.0, 0.2], dtype=torch.float64),
        torch.tensor([[0.5, 0.0], [0.3, 0.9]], dtype=torch.float64),
        estimated=True,
    )
    turned = two.expanded(shift, scale, slope)
    # a θ + d of θ = shift + scale × new: a → scale a, d → d + shift a.
    after = torch.stack([scale * items[:, 0], items[:, 1] + shift * items[:, 0]], dim=1)

    def density(prior, at):
        return MultivariateNormal(prior.mean, scale_tril=prior.factor).log_prob(at)

    torch.testing.assert_close(density(turned, after), density(two, items) - scale.log())
    one = ItemPrior(two.mean[1:], two.factor[1:, 1:], estimated=True)
    torch.testing.assert_close(
        density(one.expanded(shift, torch.ones_like(shift), slope), items[:, 1:] + slope * shift),
        density(one, items[:, 1:]),
    )
