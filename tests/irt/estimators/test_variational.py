"""Variational fits against bounds, quadrature and the joint mode."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import special

from evalstats_plugin.irt.estimators.draws import gibbs
from evalstats_plugin.irt.estimators.variational import MeanField, variational
from evalstats_plugin.irt.methods import McmcOptions, ViOptions
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

    point, bounds = fit.found.at + 0.3 * torch.cos(torch.arange(len(fit.found.at))), []
    for _ in range(30):
        point, bound = one.step(point)
        bounds.append(bound)

    assert np.diff(bounds).min() > -1e-8
    assert bounds[-1] <= fit.bound + 1e-6
    # EM of a spread of discriminations that goes to 0 crawls; it is reported, see below.
    assert fit.found.converged or (kind, prior) == ("2pl", "hierarchical")


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

    assert not fit.found.converged
    assert torch.isfinite(fit.ability).all()


def test_same_data_give_the_same_numbers():
    data = counts(6, 40, slopes=0.3)

    one, two = (variational(data, "2pl", ViOptions(prior="vague")) for _ in range(2))

    assert torch.equal(one.ability, two.ability)
    assert one.ability.sum().abs() < 1e-12
