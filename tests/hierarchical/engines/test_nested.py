"""Nested evals by importance: against sums over a grid, the other engine, and a wrong density."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy import integrate, special, stats

from evalstats_plugin.errors import DesignError
from evalstats_plugin.hierarchical.data import Counts
from evalstats_plugin.hierarchical.engines import nested
from evalstats_plugin.hierarchical.engines.crossed import CROSSED_MODELS, fit_crossed
from evalstats_plugin.hierarchical.engines.nested import Cells, fit_nested, log_marginal
from evalstats_plugin.runtime import ChainLength

PRIORS = {"default": ("gamma", 2.0, 2.0)}
MODEL = replace(CROSSED_MODELS["task"], priors=PRIORS)
RIGHT, TRIALS = np.array([3.0, 18.0, 9.0, 25.0]), np.array([10.0, 20.0, 30.0, 30.0])


def counts(right=RIGHT, trials=TRIALS, *, of_models=False, x=None):
    """One model on these tasks, or these models on one task."""
    none, given = np.zeros((1, 0)), np.zeros((len(right), 0)) if x is None else x
    if of_models:
        return Counts(right[:, None], trials[:, None], np.zeros(1, int), given, none)
    return Counts(right[None], trials[None], np.arange(len(right)), none, given)


@cache
def summed():
    """Log evidence, means and sds of accuracies, by sums over level, spread and each logit."""
    gamma = stats.gamma(2, scale=0.5)
    s = np.linspace(1e-3, 6, 600)
    level, spread = np.linspace(-4, 4, 121), np.linspace(0.01, 5, 150)
    # Of the level: an intercept and one normal effect, whose standard deviation is unknown.
    p_level = np.trapezoid(gamma.pdf(s) * stats.norm.pdf(level[:, None], 0, np.hypot(1, s)), s)
    # Of the root of the sum of two squared standard deviations.
    angle = np.linspace(0, np.pi / 2, 400)
    sides = gamma.pdf(spread[:, None] * np.cos(angle)) * gamma.pdf(spread[:, None] * np.sin(angle))
    p_spread = spread * np.trapezoid(sides, angle)
    nodes, weights = np.polynomial.hermite_e.hermegauss(48)
    theta = level[:, None, None] + spread[:, None] * nodes
    weights = weights / weights.sum()
    answers = np.array([
        np.exp(r * theta - n * np.logaddexp(0, theta)) for r, n in zip(RIGHT, TRIALS, strict=True)
    ])  # fmt: skip
    cell = answers @ weights
    share = special.expit(theta)
    first, second = ((answers * x) @ weights / cell for x in (share, share**2))
    joint = cell.prod(0) * p_level[:, None] * p_spread

    def over(values):
        return np.trapezoid(np.trapezoid(values, spread), level)

    evidence = over(joint)
    means, squares = (np.array([over(joint * a) for a in x]) / evidence for x in (first, second))
    return float(np.log(evidence)), means, np.sqrt(squares - means**2)


def fitted(given, seed=0, draws=1500):
    return fit_nested(given, PRIORS, np.random.default_rng(seed), (4, draws))


@pytest.mark.parametrize("of_models", [False, True])
def test_evidence_and_moments_are_those_of_sums_over_a_grid(of_models):
    """One model on tasks and models on one task are the same sum."""
    evidence, mean, sd = summed()
    fit = fitted(counts(of_models=of_models))
    drawn = fit.posterior.accuracy

    assert fit.log_evidence == pytest.approx(evidence, abs=0.03)
    assert 0 < fit.log_evidence_error < 0.02
    assert fit.ess > 0.5 * fit.particles
    np.testing.assert_allclose(drawn.mean((0, 1)).ravel(), mean, atol=0.005)
    np.testing.assert_allclose(drawn.std((0, 1)).ravel(), sd, rtol=0.05)
    assert drawn.shape == (4, 1500, *((4, 1) if of_models else (1, 4)))


def test_a_density_without_the_volume_element_is_caught(monkeypatch):
    """The negative control of the test above."""
    right = nested._Nested.of_angles
    monkeypatch.setattr(
        nested._Nested, "of_angles", lambda own, s: right(own, s) - np.log(s)[:, None]
    )

    assert abs(fitted(counts()).log_evidence - summed()[0]) > 0.1


def test_many_units_with_covariates_keep_their_particles():
    """The posterior is far narrower than the prior: the proposal starts from its curvature."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((100, 3))
    logit = 0.5 + 0.3 * x.sum(axis=1) + 0.5 * rng.standard_normal(100)
    right = rng.binomial(500, special.expit(logit)) * 1.0
    fit = fitted(counts(right, np.full(100, 500.0), of_models=True, x=x), draws=10)

    assert fit.ess > 0.5 * fit.particles


def test_more_draws_than_memory_holds_are_refused(monkeypatch):
    monkeypatch.setenv("EVALSTATS_MEMORY", "1 MB")
    with pytest.raises(DesignError, match="6000 draws of 4 models or tasks"):
        fitted(counts())


def test_units_without_any_spread_are_drawn_together():
    """All alike: the spread is near 0, and every share is near the common one."""
    fit = fitted(counts(np.full(12, 30.0), np.full(12, 40.0)))

    assert fit.ess > 0.3 * fit.particles
    assert fit.posterior.parameters["sd_difficulty"].mean() < 0.3
    np.testing.assert_allclose(fit.posterior.accuracy.mean((0, 1)), 0.75, atol=0.02)


def test_the_other_engine_finds_the_same_effects():
    """Effects are drawn apart again, with a covariate of the tasks."""
    rng = np.random.default_rng(4)
    x = np.linspace(-1.5, 1.5, 12)
    trials = np.full(12, 40.0)
    right = rng.binomial(40, special.expit(0.4 - 0.7 * x + rng.normal(0, 0.5, 12))).astype(float)
    given = counts(right, trials, x=(x / x.std())[:, None])
    ours = fitted(given).posterior
    theirs = fit_crossed(given, MODEL, rng, ChainLength(draws=600, warm_up=240))

    sd = theirs.accuracy.std((0, 1))
    assert np.abs(ours.accuracy.mean((0, 1)) - theirs.accuracy.mean((0, 1))).max() < 0.2 * sd.min()
    np.testing.assert_allclose(ours.accuracy.std((0, 1)) / sd, 1, atol=0.15)
    assert set(ours.parameters) == set(theirs.parameters)
    for name, values in ours.parameters.items():
        other = theirs.parameters[name]
        assert values.shape[2:] == other.shape[2:]
        away = np.abs(values.mean((0, 1)) - other.mean((0, 1))) / other.std((0, 1))
        assert away.max() < 0.3, name


@pytest.mark.parametrize(("right", "trials"), [(0.0, 5.0), (30.0, 40.0), (2.5, 5.0)])
def test_the_probability_of_a_cell_is_an_integral(right, trials):
    mean, sd = 0.3, 0.8

    def density(t):
        return np.exp(right * t - trials * np.logaddexp(0, t)) * stats.norm.pdf(t, mean, sd)

    expected = np.log(integrate.quad(density, -8, 8, epsabs=1e-14)[0])
    found = log_marginal(
        np.full(3, right), np.full(3, trials), Cells(np.array(mean), np.full((1, 3), sd))
    )

    np.testing.assert_allclose(found[0], expected, atol=1e-6)
    none = log_marginal(np.zeros(3), np.zeros(3), Cells(np.array(mean), np.full((1, 3), sd)))
    assert none.tolist() == [[0.0, 0.0, 0.0]]
