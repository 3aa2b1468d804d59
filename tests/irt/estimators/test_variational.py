"""Variational fits against bounds, quadrature and the joint mode."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import special

from evalstats_plugin.irt.estimators.draws import GibbsOptions as Draw
from evalstats_plugin.irt.estimators.draws import gibbs
from evalstats_plugin.irt.estimators.variational import (
    FullRank,
    MeanField,
    VariationalOptions,
    variational,
)
from evalstats_plugin.irt.model.data import Counts


def counts(n, m, seed=0, *, missing=0.0, slopes=0.0, trials=1):
    rng = np.random.default_rng(seed)
    a = np.exp(slopes * rng.standard_normal(m))
    p = special.expit(a * (rng.standard_normal((n, 1)) - rng.standard_normal(m)))
    tried = trials * (rng.random((n, m)) >= missing)
    return Counts(torch.tensor(1.0 * rng.binomial(tried, p)), torch.tensor(1.0 * tried))


@pytest.mark.parametrize("prior", ["hierarchical", "vague"])
@pytest.mark.parametrize(
    ("kind", "family"), [("rasch", "mean-field"), ("2pl", "mean-field"), ("rasch", "full-rank")]
)
def test_no_step_lowers_the_bound(kind, family, prior):
    data = counts(7, 40, missing=0.2, slopes=0.3, trials=2)
    how = VariationalOptions(family=family, prior=prior)
    fit = variational(data, kind, how)
    one = MeanField(data, kind, how) if family == "mean-field" else FullRank(data, how)

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


def test_the_bound_lies_below_the_evidence_and_the_full_rank_one_closer():
    data = Counts(torch.tensor([[6.0], [15.0]]).double(), torch.tensor([[20.0], [20.0]]).double())
    exact = log_evidence((6, 15), (20, 20))

    mean_field, full = (
        variational(data, "rasch", VariationalOptions(family=family, prior="vague")).bound
        for family in ("mean-field", "full-rank")
    )

    assert mean_field < full < exact
    assert full == pytest.approx(exact, abs=0.3)


def test_both_families_are_too_sure_of_abilities():
    """Against draws from the same posterior; the bound narrows, not the independence alone."""
    data = counts(6, 200)
    draws = gibbs(
        data, "rasch", np.random.default_rng(0), Draw(chains=8, draws=80, warm_up=30)
    ).ability.flatten(0, 1)

    full = variational(data, "rasch", VariationalOptions(family="full-rank"))
    narrow = variational(data, "rasch", VariationalOptions())

    exact = draws.std(0)
    ratios = [float((f.covariance.diagonal().sqrt() / exact).mean()) for f in (full, narrow)]
    assert ratios == pytest.approx([ratios[1]] * 2, abs=0.02)
    assert all(0.7 < ratio < 0.95 for ratio in ratios)
    assert full.bound > narrow.bound
    assert np.corrcoef(full.ability, draws.mean(0))[0, 1] > 0.999


def test_a_fit_that_ran_out_of_steps_says_so():
    fit = variational(counts(6, 40), "rasch", VariationalOptions(max_steps=2))

    assert fit.found.converged == ""
    assert torch.isfinite(fit.ability).all()


def test_same_data_give_the_same_numbers_and_a_full_rank_2pl_is_refused():
    data = counts(6, 40, slopes=0.3)

    one, two = (variational(data, "2pl", VariationalOptions(prior="vague")) for _ in range(2))

    assert torch.equal(one.ability, two.ability)
    assert one.ability.sum().abs() < 1e-12
    with pytest.raises(ValueError, match="of kind 'rasch', found '2pl'"):
        variational(data, "2pl", VariationalOptions(family="full-rank"))
