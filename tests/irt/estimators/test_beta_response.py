"""Beta response fits against SciPy's density and optimiser, and against a known truth."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import optimize, special, stats

from evalstats_plugin.errors import DesignError
from evalstats_plugin.irt.estimators.beta_response import (
    BetaOptions,
    _Problem,
    beta_fit,
    beta_scores,
)

KINDS = ("rasch", "2pl")


def simulated(n, m, kind, seed=0, epochs=1):
    """θ, a, d, φ and scores (N, M, R)."""
    rng = np.random.default_rng(seed)
    theta = rng.standard_normal(n)
    theta -= theta.mean()
    a = np.ones(m)
    if kind == "2pl":
        theta, a = theta / theta.std(), np.exp(0.3 * rng.standard_normal(m))
    d, phi = rng.standard_normal(m), 8 * np.exp(0.3 * rng.standard_normal(m))
    mean = special.expit(theta[:, None] * a + d)
    shape = (epochs, n, m)
    scores = np.moveaxis(rng.beta(mean * phi, (1 - mean) * phi, shape), 0, 2)
    return theta, a, d, phi, np.clip(scores, 1e-6, 1 - 1e-6)


def written_out(theta, a, d, precision, scores):
    """Log posterior without the adjustment, from SciPy's density."""
    log_phi, middle = precision
    mean, phi = special.expit(theta[:, None] * a + d)[..., None], np.exp(log_phi)[:, None]
    total = np.nansum(stats.beta.logpdf(scores, mean * phi, (1 - mean) * phi))
    total += -(d @ d) / 18 - ((log_phi - middle) ** 2).sum() / (2 * 0.5**2)
    return total


@pytest.mark.parametrize("kind", KINDS)
def test_the_fit_is_the_mode_that_a_general_optimiser_finds(kind):
    *_, scores = simulated(5, 8, kind, epochs=3)
    scores[0, :3, 1] = scores[1, 0] = np.nan

    def loss(at):
        theta, d, log_phi, middle, a = np.split(at, [5, 13, 21, 22])
        theta = theta - theta.mean()
        if kind == "rasch":
            return -written_out(theta, 1, d, (log_phi, middle), scores)
        theta = theta / np.sqrt((theta**2).mean())
        odd = (a - a.mean()) / 0.5
        return odd @ odd / 2 - written_out(theta, a, d, (log_phi, middle), scores)

    fit = beta_fit(beta_scores(scores, device="cpu"), kind, BetaOptions(adjusted=False))

    start = np.concatenate([np.linspace(-1, 1, 5), np.zeros(8), 2 * np.ones(9), np.ones(8)])
    start[:5] = fit.ability + 0.1 * start[:5]
    size = 30 if kind == "2pl" else 22
    best = optimize.minimize(loss, start[:size], tol=1e-9)
    theta = best.x[:5] - best.x[:5].mean()
    theta = theta / np.sqrt((theta**2).mean()) if kind == "2pl" else theta
    assert fit.converged
    assert fit.ability.numpy() == pytest.approx(theta, abs=2e-4)
    assert fit.intercept.numpy() == pytest.approx(best.x[5:13], abs=1e-3)
    assert fit.precision.log().numpy() == pytest.approx(best.x[13:21], abs=1e-3)
    assert fit.discrimination.sum() > 0


@pytest.mark.parametrize("kind", KINDS)
def test_information_is_the_expected_curvature(kind):
    """The mean over simulated scores of second derivatives by autograd, one item, no priors."""
    theta, a, d, phi, _ = simulated(4, 1, kind)
    rng = np.random.default_rng(1)
    mean = special.expit(theta[:, None] * a + d)[..., None]
    scores = rng.beta(mean * phi, (1 - mean) * phi, (4, 1, 100_000))
    problem = _Problem(beta_scores(scores, device="cpu"), kind, BetaOptions())
    values = [theta, d, np.log(phi), np.log(phi), *([a] if kind == "2pl" else [])]
    at = torch.tensor(np.concatenate(values))
    ability, items, across = problem.information(problem.unpack(at))

    def log_likelihood(x):
        p = problem.unpack(at)
        slope = x[6:7] if kind == "2pl" else p.slope
        return problem.log_likelihood(
            p._replace(ability=x[:4], intercept=x[4:5], slope=slope, log_precision=x[5:6])
        )

    keep = [0, 1, 2, 3, 4, 5, 7][: 7 if kind == "2pl" else 6]
    curvature = -torch.autograd.functional.hessian(log_likelihood, at[keep])
    order = [4, 6, 5] if kind == "2pl" else [4, 5]
    used = [0, 1, 2] if kind == "2pl" else [0, 2]
    prior = torch.tensor([1 / 9, 4.0, 4.0]).double()
    found = (items[0] - torch.diag(prior))[used][:, used] if kind == "2pl" else None
    if found is None:
        found = items[0][used][:, used] - torch.diag(prior[used])
    scale = found.diagonal().sqrt()
    error = (found - curvature[order][:, order]) / scale / scale[:, None]
    assert error.abs().max() < 0.01
    assert torch.allclose(ability, curvature.diagonal()[:4], rtol=0.02)
    assert torch.allclose(across[:, 0, used], curvature[:4][:, order], rtol=0.05, atol=500)


@pytest.mark.parametrize("kind", KINDS)
def test_errors_are_about_as_large_as_they_say_and_precision_needs_its_adjustment(kind):
    distance, adjusted, plain = [], [], []
    for seed in range(40):
        theta, _, _, phi, scores = simulated(8, 60, kind, seed)
        data = beta_scores(scores, device="cpu")
        fit = beta_fit(data, kind)
        away = fit.ability.numpy() - theta
        i, j = np.triu_indices(8, 1)
        c = fit.covariance.numpy()
        variance = c[i, i] + c[j, j] - 2 * c[i, j]
        distance.append((away[i] - away[j]) / np.sqrt(variance))
        adjusted.append(np.log(fit.precision.numpy() / phi).mean())
        if seed < 10:
            fit = beta_fit(data, kind, BetaOptions(adjusted=False))
            plain.append(np.log(fit.precision.numpy() / phi).mean())

    # 280 independent differences, and errors a little too small: 1.05 in 120 such sets.
    assert np.std(distance) == pytest.approx(1.05, abs=0.15)
    assert abs(np.mean(adjusted)) < 0.12
    assert np.mean(plain) > np.mean(adjusted) + 0.1


def test_scores_of_0_and_1_are_drawn_inwards_and_only_then():
    scores = np.array([[[0.0], [0.5]], [[0.25], [np.nan]]])

    data = beta_scores(scores, device="cpu")

    # (y (n - 1) + ½) / n with n = 3.
    assert data.log_score[0].exp().numpy() == pytest.approx([0.5 / 3, 0.5])
    assert data.log_rest[1, 0].exp() == pytest.approx(1 - (0.25 * 2 + 0.5) / 3)
    assert data.trials.tolist() == [[1, 1], [1, 0]]
    assert (data.inwards, data.exact) == (pytest.approx(1 / 6), pytest.approx(1 / 3))
    scores[0, 0] = 0.1
    assert beta_scores(scores, device="cpu").inwards == 0


def test_expected_scores_are_drawn_back_outwards():
    *_, scores = simulated(4, 6, "rasch")
    fit = beta_fit(beta_scores(scores, device="cpu"), "rasch")

    mean = fit.expected()

    assert torch.allclose(fit.expected(0.1), ((mean - 0.1) / 0.8).clamp(0, 1))
    assert mean.numpy() == pytest.approx(
        special.expit(fit.ability.numpy()[:, None] + fit.intercept.numpy())
    )


def test_what_cannot_be_fitted_is_refused():
    with pytest.raises(ValueError, match=r"values in \[0, 1\]"):
        beta_scores(np.full((2, 3, 1), 1.5))
    apart = np.full((2, 2, 1), np.nan)
    apart[0, 0] = apart[1, 1] = 0.5
    with pytest.raises(DesignError, match="found 2 groups of models"):
        beta_scores(apart)
    with pytest.raises(ValueError, match="2 models found, expected 3 or more"):
        beta_fit(beta_scores(np.full((2, 3, 1), 0.5), device="cpu"), "2pl")
