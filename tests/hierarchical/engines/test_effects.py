"""Effects of a table against dense algebra, and standard deviations against their densities."""

import numpy as np
import pytest
import torch
from scipy import stats

from evalstats_plugin.hierarchical.engines import crossed_gibbs
from evalstats_plugin.hierarchical.engines.crossed_gibbs import scale_given_effects
from evalstats_plugin.hierarchical.engines.posterior import log_scale_density, scale_quantile

N, T, G = 4, 3, 2


def problem(seed):
    rng = np.random.default_rng(seed)
    cells, weights = rng.normal(size=(1, N, T)), rng.uniform(0.5, 2, (1, N, T))
    weights[0, 1, 2] = 0
    design = np.dstack([np.ones((N, T)), rng.normal(size=(N, T))])
    rest, mean = rng.uniform(0.5, 2, (1, G + T)), np.r_[0, 0, rng.normal(size=T)][None]
    table = crossed_gibbs.tabulate(*(torch.tensor(x) for x in (cells, weights, design)))
    return table, (cells, weights, design, rest, mean)


def dense(parts, models):
    """Posterior mean, covariance and marginal density of the cells seen, by plain algebra."""
    cells, weights, design, rest, mean = parts
    columns = [design.reshape(-1, G), -np.tile(np.eye(T), (N, 1)), np.repeat(np.eye(N), T, 0)]
    x = np.hstack(columns if models else columns[:2])
    prior = np.r_[rest[0], [models] * N] if models else rest[0]
    centre = np.r_[mean[0], np.zeros(N)] if models else mean[0]
    seen = weights.ravel() > 0
    x, y, w = x[seen], cells.ravel()[seen], weights.ravel()[seen]
    covariance = np.linalg.inv(x.T @ (w[:, None] * x) + np.diag(prior))
    marginal = stats.multivariate_normal(x @ centre, np.diag(1 / w) + x / prior @ x.T).logpdf(y)
    return covariance @ (x.T @ (w * y) + prior * centre), covariance, marginal


@pytest.mark.parametrize("models", [None, 1.7])
def test_draws_have_the_mean_and_covariance_of_dense_algebra(models):
    table, parts = problem(0)
    size = 40_000
    table = crossed_gibbs.Table(*(x.expand(size, *x.shape[1:]) for x in table))
    held = None if models is None else torch.full((size, 1), models).double()
    prior = crossed_gibbs.EffectPrior(held, *(torch.tensor(x).expand(size, -1) for x in parts[3:]))
    rest, own = crossed_gibbs.draw(
        table, prior, crossed_gibbs.solve(table, prior), torch.Generator().manual_seed(0)
    )
    draws = (rest if own is None else torch.cat([rest, own], 1)).numpy()

    mean, covariance, _ = dense(parts, models)
    error = np.sqrt(np.diag(covariance) / size)
    assert np.abs((draws.mean(0) - mean) / error).max() < 4
    np.testing.assert_allclose(np.cov(draws.T), covariance, atol=0.02)


def test_the_marginal_density_is_that_of_dense_algebra():
    """Up to what does not depend on the prior, hence differences."""
    table, parts = problem(1)
    wide = (*parts[:3], parts[3] / 3, parts[4])

    found = [
        float(crossed_gibbs.solve(table, crossed_gibbs.EffectPrior(
            torch.full((1, 1), m).double(), *(torch.tensor(x) for x in p[3:]))).log_marginal)
        for m, p in ((1.7, parts), (0.4, parts), (0.4, wide))
    ]  # fmt: skip
    expected = [dense(p, m)[2] for m, p in ((1.7, parts), (0.4, parts), (0.4, wide))]

    np.testing.assert_allclose(np.diff(found), np.diff(expected), atol=1e-9)


@pytest.mark.parametrize(
    "prior",
    [("gamma", 2, 2), ("half-normal", 1), ("lognormal", -0.5, 0.7)],
    ids=lambda prior: prior[0],
)
@pytest.mark.parametrize("values", [[1e-3], [0.3, -0.2, 0.5, 0.9, -0.4]], ids=["one", "five"])
def test_a_standard_deviation_is_drawn_from_its_density(prior, values):
    square = torch.full((4000, 1), float(np.square(values).sum())).double()
    count = torch.full_like(square, len(values))
    draws = scale_given_effects(square, count, prior, torch.Generator().manual_seed(0))

    at = np.linspace(-9, 5, 40_001)
    sd = np.exp(at)
    density = {"gamma": lambda: stats.gamma(2, scale=0.5).pdf(sd),
               "half-normal": lambda: stats.halfnorm.pdf(sd),
               "lognormal": lambda: stats.lognorm(0.7, scale=np.exp(-0.5)).pdf(sd)}  # fmt: skip
    weight = density[prior[0]]() * sd * stats.norm.pdf(np.array(values)[:, None], 0, sd).prod(0)
    below = np.cumsum(weight) / weight.sum()
    # A narrow kernel beside a wide prior leaves both ends of the table of weight 0.
    result = stats.kstest(draws[:, 0].numpy(), lambda x: np.interp(x, at, below))
    assert result.pvalue > 1e-3


@pytest.mark.parametrize(
    "prior",
    [("gamma", 3, 2), ("half-normal", 0.7), ("lognormal", -0.5, 0.7)],
    ids=lambda prior: prior[0],
)
def test_prior_densities_are_normalised_and_drawn_from(prior):
    at = torch.linspace(-25, 6, 200_001, dtype=torch.float64)
    density = torch.exp(log_scale_density(prior, at, torch.exp))
    draws = scale_quantile(prior, np.random.default_rng(0).random(4000))

    assert float(torch.trapezoid(density, at)) == pytest.approx(1, abs=1e-6)
    below = torch.cumulative_trapezoid(density, at).numpy()
    assert stats.kstest(np.log(draws), lambda x: np.interp(x, at[1:], below)).pvalue > 1e-3
