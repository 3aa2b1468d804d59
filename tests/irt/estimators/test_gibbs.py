"""Draws against exact formulas, integrals over a grid, and what nobody may break."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import special, stats

from evalstats_plugin.irt import fit_irt, simulate_responses
from evalstats_plugin.irt.estimators import draws
from evalstats_plugin.irt.estimators.draws import _draw_sd, gibbs
from evalstats_plugin.irt.methods import McmcOptions
from evalstats_plugin.irt.model.data import Counts
from evalstats_plugin.runtime.torch import polya_gamma, polya_gamma_mean, polya_gamma_variance


def numbers(*values):
    return torch.tensor(values, dtype=torch.float64)


def laplace(n, z, t):
    """E exp(-t ω) = (cosh(z/2) / cosh √(z²/4 + t/2))ⁿ, which defines the distribution [PSW13]_."""
    return (np.cosh(z / 2) / np.cosh(np.sqrt(z * z / 4 + t / 2))) ** n


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("z", [0.0, 0.8, 2.0, -7.0])
@pytest.mark.parametrize("t", [0.5, 5.0, 30.0])
def test_draws_have_the_laplace_transform_of_the_definition(n, z, t):
    size = 60_000
    draws = polya_gamma(
        torch.full((size,), float(n)).double(), numbers(z), torch.Generator().manual_seed(4)
    )

    values = torch.exp(-t * draws)
    z_score = (values.mean() - laplace(n, z, t)) / (values.std() / size**0.5)
    assert abs(float(z_score)) < 4


@pytest.mark.parametrize("z", [0.0, 1e-4, 0.02, 0.0499, 0.0501, 0.3, 4.0])
def test_moments_are_the_derivatives_of_the_laplace_transform(z):
    """By differences of its logarithm, in 50 digits."""
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(50):
        log = lambda t: mpmath.log(  # noqa: E731
            mpmath.cosh(mpmath.mpf(z) / 2)
            / mpmath.cosh(mpmath.sqrt(mpmath.mpf(z) ** 2 / 4 + t / 2))
        )
        first, second = -mpmath.diff(log, 1e-30), mpmath.diff(log, 1e-30, 2)

    assert float(polya_gamma_mean(numbers(3.0), numbers(z))) == pytest.approx(
        3 * float(first), rel=1e-7
    )
    assert float(polya_gamma_variance(numbers(3.0), numbers(z))) == pytest.approx(
        3 * float(second), rel=1e-7
    )


def test_many_trials_keep_mean_and_variance():
    draws = polya_gamma(
        numbers(100.0).expand(40_000), numbers(1.5), torch.Generator().manual_seed(1)
    )

    expected = float(polya_gamma_variance(numbers(100.0), numbers(1.5)))
    assert float(draws.mean()) == pytest.approx(
        float(polya_gamma_mean(numbers(100.0), numbers(1.5))), abs=4 * (expected / 40_000) ** 0.5
    )
    assert float(draws.var()) == pytest.approx(expected, rel=0.03)
    assert not polya_gamma(numbers(0.0, 0.0), numbers(1.0, 2.0), torch.Generator()).any()


def test_standard_deviations_are_drawn_from_their_density():
    away = numbers(0.4, -1.1, 0.7, 0.2).expand(20_000, -1)

    draws = _draw_sd(away, 2.0, torch.Generator().manual_seed(0))[:, 0].numpy()

    at = np.linspace(0.01, 30, 30_000)
    square = float((away[0] ** 2).sum())
    density = at**-4.0 * np.exp(-square / 2 / at**2 - at**2 / 8)
    cumulative = np.cumsum(density) / density.sum()
    assert stats.kstest(draws, lambda x: np.interp(x, at, cumulative)).pvalue > 1e-3


def grid_posterior(right, trials):
    """Two models, one item, Rasch: the posterior mean of θ_2 - θ_1 summed on grids."""
    theta = np.linspace(-9, 9, 61)
    sd = np.exp(np.linspace(-4, 2.3, 61))
    # d ~ N(0, 9 + σ²) with σ integrated out.
    sigma = np.linspace(0.01, 15, 300)
    d = np.linspace(-20, 20, 161)
    of_d = (stats.norm.pdf(d[:, None], 0, np.hypot(3, sigma)) * stats.norm.pdf(sigma, 0, 3)).sum(1)
    weight_sd = sd * stats.norm.pdf(sd, 0, 2)
    like = [
        special.expit(theta[:, None] + d) ** k * special.expit(-theta[:, None] - d) ** (n - k)
        for k, n in zip(right, trials, strict=True)
    ]
    of_theta = stats.norm.pdf(theta, 0, sd[:, None])
    one, two = (of_theta @ part for part in like)
    first, second = ((of_theta * theta) @ part for part in like)
    total = weight_sd @ (one * two) @ of_d
    return float(weight_sd @ (one * second - first * two) @ of_d / total)


def test_the_posterior_mean_is_that_of_a_sum_over_a_grid():
    data = Counts(torch.tensor([[2.0], [9.0]]).double(), torch.tensor([[10.0], [10.0]]).double())

    draws = gibbs(
        data, "rasch", np.random.default_rng(0), McmcOptions(chains=150, draws=30, warm_up=20)
    )

    difference = (draws.ability[..., 1] - draws.ability[..., 0]).mean(1)
    error = float(difference.std() / 150**0.5)
    expected = grid_posterior((2, 9), (10, 10))
    assert float(difference.mean()) == pytest.approx(expected, abs=4 * error)
    assert error < 0.05


def test_the_same_seed_draws_the_same_numbers_and_missing_cells_are_left_out():
    rng = np.random.default_rng(0)
    right = torch.tensor(1.0 * rng.integers(0, 2, (4, 9)))
    trials = torch.ones_like(right)
    trials[0, :3] = 0
    right = right * trials
    short = McmcOptions(chains=2, draws=5, warm_up=2)

    one, two, other = (
        gibbs(Counts(right, trials), "2pl", np.random.default_rng(seed), short)
        for seed in (1, 1, 2)
    )

    assert torch.equal(one.ability, two.ability)
    assert not torch.equal(one.ability, other.ability)
    assert one.ability.sum(2).abs().max() < 1e-12
    assert (one.item_covariance.diagonal(dim1=1, dim2=2) > 0).all()


def test_draws_use_one_thread_and_give_the_others_back(monkeypatch):
    """Threads wait for one another at each step of a sweep: eight times the processor time."""
    seen = []
    before = torch.get_num_threads()
    sweep = draws._sweep

    def counted(*arguments):
        seen.append(torch.get_num_threads())
        return sweep(*arguments)

    monkeypatch.setattr(draws, "_sweep", counted)
    torch.set_num_threads(2)
    try:
        matrix = simulate_responses(rng=0, n_models=4, n_items=10)[0]
        fit_irt(matrix, "2pl", options=McmcOptions(chains=1, draws=5, warm_up=2), rng=0)
        after = torch.get_num_threads()
    finally:
        torch.set_num_threads(before)

    assert set(seen) == {1}
    assert after == 2
