"""Joint estimates against stored fits, general optimisers, and their known bias."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import linalg, optimize, special, stats

from evalstats_plugin import ResponseMatrix, fit_irt
from evalstats_plugin.irt.estimators.joint import (
    FARTHEST,
    Penalty,
    Slopes,
    joint_fit,
    map_fit,
)
from evalstats_plugin.irt.methods import MapOptions
from evalstats_plugin.irt.model.data import Counts


def counts(n, m, seed=0, *, missing=0.0, slopes=0.0, trials=1):
    rng = np.random.default_rng(seed)
    a = np.exp(slopes * rng.standard_normal(m))
    p = special.expit(a * (rng.standard_normal((n, 1)) - rng.standard_normal(m)))
    tried = trials * (rng.random((n, m)) >= missing)
    return Counts(torch.tensor(1.0 * rng.binomial(tried, p)), torch.tensor(1.0 * tried))


def negative(values, data, penalty, kind):
    """The objective written out, for a general optimiser."""
    right, trials = data.right.numpy(), data.trials.numpy()
    n, m = right.shape
    theta, d = values[:n], values[n : n + m]
    a = values[n + m :] if kind == "2pl" else np.ones(m)
    logit = theta[:, None] * a + d
    held = penalty.ability * theta @ theta + penalty.intercept * d @ d
    value = (trials * np.logaddexp(0, logit) - right * logit).sum() + held / 2
    if penalty.discrimination is None or kind == "rasch":
        return value
    how, first, second = penalty.discrimination
    density = {
        "normal": lambda: stats.norm.logpdf(a, first, second),
        "lognormal": lambda: stats.lognorm.logpdf(a, second, scale=np.exp(first)),
        "gamma": lambda: stats.gamma.logpdf(a, first, scale=second),
    }[how]()
    return value - density.sum()


@pytest.mark.parametrize("kind", ["rasch", "2pl"])
@pytest.mark.parametrize("shape", [{}, {"missing": 0.2}, {"trials": 4}])
def test_the_mode_is_that_of_a_general_optimiser(kind, shape):
    data = counts(6, 15, slopes=0.3, **shape)
    penalty = Penalty(1.0, 0.5, Slopes("normal", 1.0, 2**-0.5))

    fit = joint_fit(data, kind, penalty=penalty)

    start = np.concatenate([np.zeros(21), np.ones(15 if kind == "2pl" else 0)])
    best = optimize.minimize(negative, start, (data, penalty, kind), tol=1e-10)
    theta = best.x[:6]
    assert fit.converged
    assert fit.ability.numpy() == pytest.approx(theta - theta.mean(), abs=2e-4)


@pytest.mark.parametrize("prior", [("lognormal", 0.0, 0.5), ("gamma", 2.0, 0.5)])
def test_the_mode_under_priors_of_positive_discriminations_is_that_of_a_general_optimiser(prior):
    """The densities are SciPy's; abilities and intercepts have standard deviations of their own."""
    data, penalty = counts(6, 15, slopes=0.3, trials=2), Penalty(1.5**-2, 2.0**-2, Slopes(*prior))
    options = MapOptions(
        ability_sd=1.5, intercept_sd=2.0, discrimination=prior[0], discrimination_prior=prior[1:]
    )

    fit = map_fit(data, "2pl", options)

    start = np.concatenate([np.zeros(21), np.ones(15)])
    bounds = [(None, None)] * 21 + [(1e-3, None)] * 15
    best = optimize.minimize(
        negative, start, (data, penalty, "2pl"), "L-BFGS-B", bounds=bounds,
        options={"ftol": 1e-14, "gtol": 1e-7, "maxfun": 10**6},
    )  # fmt: skip
    assert fit.converged
    assert fit.ability.numpy() == pytest.approx(best.x[:6] - best.x[:6].mean(), abs=1e-3)
    assert fit.discrimination.numpy() == pytest.approx(best.x[21:], abs=1e-3)


@pytest.mark.parametrize("optimiser", ["lbfgs", "adam", "gd"])
@pytest.mark.parametrize("kind", ["rasch", "2pl"])
def test_every_optimiser_finds_the_mode_that_newton_finds(kind, optimiser):
    data = counts(8, 30, slopes=0.3)
    newton = map_fit(data, kind)

    fit = map_fit(data, kind, MapOptions(optimiser=optimiser, max_steps=3000))

    assert fit.converged
    assert fit.iterations > newton.iterations < 20
    # A step by gradients alone promises less than the way that is left.
    assert torch.allclose(fit.ability, newton.ability, rtol=0, atol=2e-6)
    assert torch.allclose(fit.intercept, newton.intercept, atol=1e-4)


@pytest.mark.parametrize("optimiser", ["lbfgs", "adam", "gd"])
def test_every_optimiser_finds_the_joint_maximum(optimiser):
    data = counts(6, 40, trials=5)

    fit = joint_fit(data, "rasch", optimiser=optimiser, max_steps=3000)

    assert fit.converged
    assert torch.allclose(fit.ability, joint_fit(data, "rasch").ability, atol=1e-4)


@pytest.mark.parametrize("kind", ["rasch", "2pl"])
def test_the_gradient_vanishes_at_the_joint_maximum(kind):
    data = counts(40, 40, slopes=0.2, trials=5)

    fit = joint_fit(data, kind)

    there = torch.isfinite(fit.intercept)
    kept = Counts(data.right[:, there], data.trials[:, there])
    slopes = fit.discrimination[there] if kind == "2pl" else torch.empty(0)
    values = torch.cat([fit.ability, fit.intercept[there], slopes]).numpy()
    gradient = optimize.approx_fprime(values, negative, 1e-6, kept, Penalty(), kind)
    far = np.abs(values) > FARTHEST - 1
    assert np.abs(gradient[~far]).max() < 2e-3


def test_the_covariance_is_that_of_the_expected_information():
    """Inverse of the whole Rasch information, by definition."""
    data = counts(6, 40)

    fit = map_fit(data, "rasch")

    p = torch.sigmoid(fit.ability[:, None] + fit.intercept)
    # The mode itself is not centred; the intercepts take that up.
    full = joint_fit(data, "rasch", penalty=Penalty(1.0, 1.0))
    assert torch.allclose(full.ability, fit.ability)
    w = p * (1 - p)
    information = torch.block_diag(torch.diag(w.sum(1) + 1), torch.diag(w.sum(0) + 1))
    information[:6, 6:], information[6:, :6] = w, w.T
    centre = torch.eye(6) - 1 / 6
    expected = centre.double() @ torch.linalg.inv(information)[:6, :6] @ centre.double()
    assert torch.allclose(fit.covariance, expected, atol=1e-7)


def test_abilities_are_stretched_by_the_known_factor():
    """Half as many wrong as there should be: with two models the stretch is exactly 2 [Hab77]_.

    The conditional estimate for two models is log(n10 / n01).
    """
    right = np.zeros((2, 30))
    right[0, :20], right[1, 20:] = 1, 1
    data = Counts(torch.tensor(right), torch.ones(2, 30).double())

    fit = joint_fit(data, "rasch")

    assert float(fit.ability[0] - fit.ability[1]) == pytest.approx(2 * np.log(20 / 10), abs=1e-5)


def test_models_and_items_all_right_are_flagged_and_finite():
    data = counts(6, 40)
    data.right[0], data.right[:, 0] = 1, 1

    fit = joint_fit(data, "rasch")

    assert fit.extreme.tolist() == [1, 0, 0, 0, 0, 0]
    assert torch.isfinite(fit.ability).all()
    assert fit.ability.argmax() == 0
    assert torch.isnan(fit.intercept[0])
    # Under a prior both are finite of themselves.
    assert torch.isfinite(map_fit(data, "2pl").intercept).all()


@pytest.mark.parametrize("kind", ["rasch", "2pl"])
@pytest.mark.parametrize("slopes", [None, Slopes("normal", 1.0, 0.5)])
@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_covariances_without_a_prior_of_abilities_are_those_of_the_identified_directions(
    kind, slopes, missing
):
    """Inverse of all information; abilities keep their sum, and in a 2PL their scale."""
    data = counts(9, 30, seed=4, missing=missing, slopes=0.2, trials=20)
    # Items all right or all wrong have no estimate.
    share = data.right.sum(0) / data.trials.sum(0)
    there = (share > 0) & (share < 1)
    data = Counts(data.right[:, there], data.trials[:, there])
    penalty = Penalty(discrimination=slopes)
    fit = joint_fit(data, kind, penalty=penalty)
    assert fit.converged
    theta, a, d = (x.numpy() for x in (fit.ability, fit.discrimination, fit.intercept))
    n, m = data.right.shape
    p = special.expit(theta[:, None] * a + d)
    weight = (data.trials.numpy() * p * (1 - p)).ravel()
    by = np.zeros((n, m, n + 2 * m))
    for i in range(n):
        by[i, :, i] = a
        by[i, np.arange(m), n + np.arange(m)] = 1
        by[i, np.arange(m), n + m + np.arange(m)] = theta[i]
    by = by.reshape(n * m, -1)
    information = by.T @ (weight[:, None] * by)
    items = np.arange(n + m, n + 2 * m)
    if kind == "2pl" and slopes is not None:
        information[items, items] += 4
    size = n + 2 * m if kind == "2pl" else n + m
    information = information[:size, :size]
    fixed = [np.ones(n)] + ([theta] if kind == "2pl" and slopes is None else [])
    held = np.zeros((size, len(fixed)))
    held[:n] = np.array(fixed).T
    free = linalg.null_space(held.T)
    expected = free @ np.linalg.inv(free.T @ information @ free) @ free.T
    np.testing.assert_allclose(fit.covariance, expected[:n, :n], rtol=1e-6, atol=1e-9)
    for j in range(m):
        places = [n + m + j, n + j] if kind == "2pl" else [n + j]
        own = np.linalg.inv(information[np.ix_(places, places)])
        found = fit.item_covariance[j].numpy()
        np.testing.assert_allclose(found[-len(places) :, -len(places) :], own, rtol=1e-5)
        if kind == "rasch":
            assert not found[0].any()


@pytest.mark.parametrize("extreme", [False, True])
def test_models_all_right_are_named_where_there_are_any(extreme):
    right = np.random.default_rng(1).integers(0, 2, (6, 20)).astype(float)
    right[0] = 1.0 if extreme else right[0]
    notes = fit_irt(ResponseMatrix.from_array(right), "rasch", "jml").notes
    assert any("half an item" in note for note in notes) == extreme
