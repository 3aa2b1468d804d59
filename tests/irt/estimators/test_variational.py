"""Variational fits against bounds, quadrature and the joint mode."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import special
from torch.distributions import Normal, kl_divergence

from evalstats_plugin.irt.estimators.draws import gibbs
from evalstats_plugin.irt.estimators.variational import (
    MeanField,
    _bound_terms,
    _Prior,
    _sampled_bound,
    stochastic,
    variational,
)
from evalstats_plugin.irt.methods import McmcOptions, SviOptions, ViOptions
from evalstats_plugin.irt.model.data import Counts


def counts(n, m, seed=0, *, missing=0.0, slopes=0.0, trials=1):
    rng = np.random.default_rng(seed)
    a = np.exp(slopes * rng.standard_normal(m))
    p = special.expit(a * (rng.standard_normal((n, 1)) - rng.standard_normal(m)))
    tried = trials * (rng.random((n, m)) >= missing)
    return Counts(torch.tensor(1.0 * rng.binomial(tried, p)), torch.tensor(1.0 * tried))


@pytest.mark.parametrize("prior", ["hierarchical", "vague", "gaussian-gamma"])
@pytest.mark.parametrize("kind", ["rasch", "2pl"])
def test_no_step_lowers_the_bound(kind, prior):
    data = counts(7, 40, missing=0.2, slopes=0.3, trials=2)
    how = ViOptions(prior=prior)
    fit = variational(data, kind, how)
    one = MeanField(data, kind, how)

    point, bounds = fit.search.at + 0.3 * torch.cos(torch.arange(len(fit.search.at))), []
    for _ in range(30):
        point, bound = one.step(point)
        bounds.append(bound)

    assert np.diff(bounds).min() > -1e-8
    assert bounds[-1] <= fit.bound + 1e-6
    assert fit.search.converged


@pytest.mark.parametrize(("n", "m"), [(5, 20), (12, 30), (12, 300)])
def test_the_search_settles_where_items_discriminate_alike(n, m):
    """Their spread went to 0 so slowly that 1,000 steps did not do; no common slope is better."""
    data = counts(n, m, seed=1)
    fit, field = variational(data, "2pl"), MeanField(data, "2pl", ViOptions())
    q = field.unpack(fit.search.at)
    heights = [
        float(
            field.step(field.pack(q._replace(items=q.items * torch.tensor([s, 1.0]).to(q.items))))[
                1
            ]
        )
        for s in (0.98, 1.0, 1.02)
    ]

    assert fit.search.converged
    assert fit.hyperparameters["discrimination_sd"] < 0.001
    assert heights[1] == max(heights)


def log_evidence(right, trials):
    """Two models, one item of the vague Rasch model: log of the integral over θ_1, θ_2 and d."""
    theta, d = np.linspace(-8, 8, 401), np.linspace(-150, 150, 6001)
    weight = np.exp(-(theta**2) / 2) / np.sqrt(2 * np.pi) * (theta[1] - theta[0])
    of_d = np.exp(-(d**2) / 2000) / np.sqrt(2000 * np.pi) * (d[1] - d[0])
    logit = theta[:, None] + d
    parts = [
        weight @ np.exp(k * logit - n * np.logaddexp(0, logit))
        for k, n in zip(right, trials, strict=True)
    ]
    return float(np.log(parts[0] * parts[1] @ of_d))


def test_the_bound_lies_closely_below_the_evidence():
    data = Counts(torch.tensor([[6.0], [15.0]]).double(), torch.tensor([[20.0], [20.0]]).double())
    exact = log_evidence((6, 15), (20, 20))

    bound = variational(data, "rasch", ViOptions(prior="vague")).bound

    assert exact - 2 < bound < exact


def test_a_stochastic_search_ends_near_the_bound_that_exact_steps_find():
    data = counts(4, 20)
    found = stochastic(data, "rasch", SviOptions(steps=200), np.random.default_rng(0))

    assert found.bound == pytest.approx(variational(data, "rasch").bound, abs=3)


def test_errors_of_abilities_are_too_small():
    """Against draws from the same posterior."""
    data = counts(6, 200)
    draws = gibbs(
        data, "rasch", np.random.default_rng(0), McmcOptions(chains=8, draws=80, warm_up=30)
    ).ability.flatten(0, 1)

    found = variational(data, "rasch")

    assert 0.7 < float((found.covariance.diagonal().sqrt() / draws.std(0)).mean()) < 0.95
    assert np.corrcoef(found.ability, draws.mean(0))[0, 1] > 0.999


def test_a_fit_that_ran_out_of_steps_says_so():
    fit = variational(counts(6, 40), "rasch", ViOptions(max_steps=2))

    assert not fit.search.converged
    assert torch.isfinite(fit.ability).all()


def test_same_data_give_the_same_numbers():
    data = counts(6, 40, slopes=0.3)

    one, two = (variational(data, "2pl", ViOptions(prior="vague")) for _ in range(2))

    assert torch.equal(one.ability, two.ability)
    assert one.ability.sum().abs() < 1e-12


@pytest.mark.parametrize("prior", ["hierarchical", "gaussian-gamma"])
@pytest.mark.parametrize("kind", ["rasch", "2pl"])
def test_the_estimated_prior_is_where_the_bound_is_flat(kind, prior):
    """By automatic differentiation, in each parameter that is estimated."""
    data = counts(7, 9, missing=0.2, slopes=0.3, trials=2)
    mean_field = MeanField(data, kind, ViOptions(prior=prior))
    at = 0.3 * torch.sin(torch.arange(2 * 7 + (2 if kind == "rasch" else 5) * 9).double())
    q = mean_field.unpack(at)
    best = mean_field.prior(q)
    values = [each.clone().requires_grad_() for each in best]
    mean_field.bound(q, _Prior(*values), torch.zeros_like(data.right)).backward()
    free = [1] if kind == "rasch" else [0, 1]

    torch.testing.assert_close(mean_field.pack(q), at)
    assert values[1].grad[free].abs().max() < 1e-5
    assert values[2].grad[free].abs().max() < 1e-9
    if kind == "rasch":
        assert values[0].grad.abs() < 1e-9
    else:
        assert best.ability == 1


def test_the_bound_of_a_cell_is_that_of_jaakkola_and_jordan():
    """Log σ(ψ) ≥ (ψ - log(2 cosh(c/2)) · 2 …)/2, with equality where ψ² is c², and its weight."""
    c = torch.tensor([0.01, 0.7, 2.5]).double()
    weight, level = _bound_terms(torch.tensor([1.0, 2.0, 3.0]).double(), c.square())

    torch.testing.assert_close(c / 2 - level, torch.nn.functional.logsigmoid(c))
    by_square = torch.tanh(c / 2) / (4 * c)
    torch.testing.assert_close(weight, torch.tensor([1.0, 2.0, 3.0]).double() * 2 * by_square)


@pytest.mark.parametrize(("kind", "logs"), [("rasch", False), ("2pl", False), ("2pl", True)])
def test_a_sampled_bound_is_the_likelihood_less_the_divergences(kind, logs):
    """Of the guide from the prior, by PyTorch's own formula; constants included."""
    data = counts(4, 5, missing=0.2, trials=2)
    generator = torch.Generator().manual_seed(0)

    def drawn(n):
        return 0.5 * torch.randn(n, generator=generator, dtype=torch.float64)

    at = [drawn(n) for n in (4, 4, 5, 5, 5, 5, 2, 3)]
    theta, log_theta, d, log_d, a, log_a, mean, log_sd = at
    noise = drawn(14)
    found = _sampled_bound(data, kind, at, noise, logs=logs)
    slope = torch.ones_like(a)
    if kind == "2pl":
        slope = a + log_a.exp() * noise[9:]
        slope = slope.exp() if logs else slope
    logit = (theta + log_theta.exp() * noise[:4])[:, None] * slope
    logit = logit + d + log_d.exp() * noise[4:9]
    likelihood = (data.right * logit - data.trials * torch.nn.functional.softplus(logit)).sum()
    sd = log_sd.exp()
    parts = [
        (Normal(theta, log_theta.exp()), Normal(0, sd[2] if kind == "rasch" else 1.0)),
        (Normal(d, log_d.exp()), Normal(mean[0], sd[0])),
    ]
    if kind == "2pl":
        parts.append((Normal(a, log_a.exp()), Normal(mean[1], sd[1])))
    expected = likelihood - sum(kl_divergence(*pair).sum() for pair in parts)

    torch.testing.assert_close(found, expected)
