"""Searches reach the optimum that an outside judge finds, in a bounded number of steps."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import optimize, special, stats

from evalstats_plugin.irt.estimators import items_integrated
from evalstats_plugin.irt.estimators.item_population import Population
from evalstats_plugin.irt.estimators.optimise import squarem
from evalstats_plugin.irt.model.data import Counts, settled_dispersion

DEATHS = np.repeat(np.arange(10), [162, 267, 271, 185, 111, 61, 27, 8, 3, 1])
"""Deaths of women of 80 and above on each day of three years [VR08]_, table 1."""


def answers(n, m, seed, spread=0.4):
    rng = np.random.default_rng(seed)
    slope = np.exp(spread * rng.normal(size=m))
    logit = slope * (rng.normal(size=(n, 1)) - rng.normal(0, 1.5, m))
    right = (rng.random((n, m)) < special.expit(logit)) * 1.0
    return Counts(right, np.ones_like(right))


def test_squarem_finds_the_published_mixture_in_few_steps():
    """Two Poisson distributions of deaths: EM takes thousands of steps."""

    def step(at):
        share, *means = at.tolist()
        chance = stats.poisson.pmf(DEATHS, np.array(means)[:, None])
        both = np.array([[share], [1 - share]]) * chance
        posterior = both / both.sum(axis=0)
        fresh = [posterior[0].mean(), *(posterior @ DEATHS / posterior.sum(axis=1))]
        return torch.tensor(fresh), torch.tensor(np.log(both.sum(axis=0)).sum())

    solution = squarem(step, torch.tensor([0.3, 1.0, 2.5]).double(), tolerance=1e-7, max_steps=500)

    assert bool(solution.converged)
    assert solution.steps < 100
    assert solution.at.tolist() == pytest.approx([0.3599, 1.2561, 2.6634], abs=1e-3)
    assert float(solution.value) == pytest.approx(-1989.946, abs=1e-3)


@pytest.mark.parametrize("rates", [[0.99], [0.95, 0.5, 0.1], [-0.9, 0.3], [-1.5, 0.3], [0.0]])
def test_squarem_takes_few_steps_to_the_fixed_point_of_a_linear_step(rates):
    """Also where plain steps take thousands, or fly apart."""
    rates = torch.tensor(rates).double()
    solution = squarem(
        lambda at: (rates * at, -at.square().sum()), torch.ones_like(rates),
        tolerance=1e-9, max_steps=500,
    )  # fmt: skip

    assert bool(solution.converged)
    assert solution.steps <= 80
    assert float(solution.at.abs().max()) < 1e-6


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_squarem_ends_where_the_objective_stays_though_parameters_do_not(dtype):
    """Parameters without a finite optimum; as long as the objective rises it goes on."""

    def search(objective):
        return squarem(
            lambda at: (at + 1, objective(at.double().sum())), torch.zeros(2, dtype=dtype),
            tolerance=1e-6, max_steps=90,
        )  # fmt: skip

    flat, rising = search(lambda x: -7 - 0 * x), search(lambda x: -7 - 1 / (1 + x))

    assert bool(flat.converged)
    assert flat.steps < 40
    assert not bool(rising.converged)
    assert rising.steps <= 90


@pytest.mark.parametrize("factor", [1.0, 1.004, 1.5, 0.5])
def test_a_dispersion_is_estimated_until_it_stays_the_same_or_a_few_times(factor):
    fits = []
    fit, phi = settled_dispersion(0.5, lambda x: fits.append(x) or x, lambda x, _: x * factor)

    assert fit == phi
    assert len(fits) == 2 if abs(factor - 1) < 0.005 else 3 < len(fits) < 10


def dense(values, data):
    """Penalised log-likelihood of a 2PL by 41 × 13 points, from its definition."""
    theta, (mean, log_sd, log_own, explained) = np.split(values, [len(data.right)])
    (sd, own), x1, x2 = np.exp([log_sd, log_own]), np.linspace(-6, 6, 41), np.linspace(-5, 5, 13)
    slope = np.exp(explained * x1[:, None] + own * x2).ravel()
    logit = slope * (theta[:, None] - np.repeat(mean + sd * x1, 13))
    score = data.right.T @ logit - data.trials.T @ np.logaddexp(0, logit)
    mass = np.outer(stats.norm.pdf(x1), stats.norm.pdf(x2)).ravel()
    prior = log_sd - sd**2 / 50 + log_own - own**2 / 0.08 - explained**2 / 0.02
    return special.logsumexp(score, b=mass / mass.sum(), axis=1).sum() + prior


@pytest.mark.parametrize("seed", [0, 1])
def test_the_best_of_several_maxima_is_found_for_few_models(seed):
    """Against SciPy from two spreads of the discriminations."""
    data = answers(3, 30, seed, spread=0.8)
    fit = items_integrated.items_integrated(data, "2pl")
    best = max(
        -optimize.minimize(
            lambda x: -dense(np.append(-x[:2].sum(), x), data),
            [*fit.ability[1:], 0.0, 0.3, np.log(spread), 0.0],
            method="BFGS", tol=1e-4,
        ).fun
        for spread in (0.05, 0.8)
    )  # fmt: skip

    assert fit.converged
    assert fit.objective == pytest.approx(best, abs=0.02)


@pytest.mark.parametrize("kind", ["rasch", "2pl", "2pl-signed"])
@pytest.mark.parametrize("n", [8, 20])
def test_newton_steps_reach_the_same_maximum_from_far_away(n, kind):
    """From abilities and a population drawn at random."""
    data = answers(n, 60, 3)
    expected = items_integrated.items_integrated(data, kind)
    rng = np.random.default_rng(n)
    ability = rng.normal(0, 2, n)
    values = [rng.normal(), 0.7, float(kind == "2pl-signed"), 0.2, -0.7]
    population = Population(kind, np.array(values[: 2 if kind == "rasch" else 5]))
    found = items_integrated._search(data, (ability - ability.mean(), population), 60)

    assert found.converged
    assert found.state.objective == pytest.approx(expected.objective, abs=1e-3)
    np.testing.assert_allclose(found.state.ability, expected.ability, atol=2e-3)


def test_steps_that_go_too_far_still_lead_to_the_maximum(monkeypatch):
    """Three times as far as Newton's, which would lead away from it; none is longer than .4."""
    data, sizes = answers(12, 60, 3), []
    expected = items_integrated.items_integrated(data, "rasch")
    newton, move = items_integrated._newton_step, items_integrated._moved

    def far(state):
        step, gain, concave = newton(state)
        return 3 * step, gain, concave

    def moved(state, step):
        sizes.append(np.abs(step).max())
        return move(state, step)

    monkeypatch.setattr(items_integrated, "_newton_step", far)
    monkeypatch.setattr(items_integrated, "_moved", moved)
    found = items_integrated._search(data, items_integrated._start(data), 60)

    assert max(sizes) == pytest.approx(0.4)
    assert found.state.objective == pytest.approx(expected.objective, abs=5e-3)


def test_the_start_that_is_highest_after_a_few_steps_is_searched_on(monkeypatch):
    """One whose difficulties are all alike only where there is no other."""

    def best(*attempts):
        """Place of the best of attempts by height and spread of difficulties."""

        def search(_counts, start, _most):
            height, sd = attempts[start[0]]
            population = Population("2pl", np.array([0.0, np.log(sd)]))
            state = items_integrated.Evaluation(start[0], population, height, 0.0, *[None] * 3)
            return items_integrated._Maximum(state, None, 4, converged=False)

        monkeypatch.setattr(items_integrated, "_search", search)
        starts = [(k, None) for k in range(len(attempts))]
        return items_integrated._best_search(None, starts, 20).state.ability

    low, high, alike = (-5.0, 1.0), (-4.0, 0.06), (-1.0, 0.04)
    assert [best(low, high, alike), best(high, low), best((-2.0, 0.01), alike)] == [1, 0, 1]


def test_a_common_chance_of_guessing_is_the_mode_of_its_profile():
    """On a grid, with the prior N(logit .2, .5²) of its logit; the error is by its curvature."""
    rng = np.random.default_rng(3)
    p = 0.25 + 0.75 * special.expit(rng.normal(size=(12, 1)) - rng.normal(size=80))
    right = (rng.random(p.shape) < p) * 1.0
    data, logits = Counts(right, np.ones_like(right)), np.linspace(-2.3, -1.3, 5)
    _, c, error = items_integrated.with_common_guessing(data, "rasch", dispersion=1, max_steps=99)
    heights = [
        items_integrated.items_integrated(
            Counts(right, data.trials, guess=np.full(80, special.expit(x))), "rasch",
            dispersion=1, mended=True,
        ).objective - ((x - special.logit(0.2)) / 0.5) ** 2 / 2
        for x in logits
    ]  # fmt: skip
    curve = np.polynomial.Polynomial.fit(logits, heights, 3)
    mode = optimize.minimize_scalar(lambda x: -curve(x), bounds=(-2.3, -1.3)).x

    assert special.logit(c) == pytest.approx(mode, abs=0.05)
    bend = -float(curve.deriv(2)(mode))
    assert error == pytest.approx(c * (1 - c) / bend**0.5, rel=0.1)
