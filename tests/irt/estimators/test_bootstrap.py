"""Bootstraps against refits one by one, known standard errors, and what must not matter."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import special

from evalstats_plugin import ResponseMatrix
from evalstats_plugin.irt import MmlItemsOptions, bootstrap_abilities, fit_irt
from evalstats_plugin.irt.bootstrap import _integrated
from evalstats_plugin.irt.estimators.items_integrated import (
    evaluate,
    item_means,
    items_integrated,
    refit,
    sandwich,
    start_of,
)
from evalstats_plugin.irt.estimators.refits import (
    BootstrapOptions,
    bootstrap,
    drawn_places,
    items_refitter,
)
from evalstats_plugin.irt.model.data import Counts, counts_of
from evalstats_plugin.irt.model.scale import Curves, zero_of


def counts(n, m, seed=0, *, missing=0.0, trials=1, slopes=0.3, ability=None):
    rng = np.random.default_rng(seed)
    theta = rng.standard_normal(n) if ability is None else ability
    p = special.expit(
        np.exp(slopes * rng.standard_normal(m)) * (theta[:, None] - rng.standard_normal(m))
    )
    tried = trials * (rng.random((n, m)) >= missing)
    right = rng.binomial(tried.astype(int), p)
    return Counts(torch.tensor(right * 1.0).double(), torch.tensor(tried * 1.0).double())


def first(data, kind="2pl"):
    """Items of a fit, on its own scale."""
    fit = items_integrated(data, kind)
    a, b = fit.discrimination.numpy(), fit.difficulty.numpy()
    return Curves.of_points(a, -a * b)


def resampled(data, kind="2pl", seed=0, clusters=None, **options):
    """Bootstrap from a fit of the data, on its own scale."""
    fit, start, how = items_integrated(data, kind), first(data, kind), BootstrapOptions(**options)
    logit = fit.ability.numpy()[:, None] * start.discrimination + start.intercept
    return bootstrap(
        items_refitter(data, fit, kind, how.over), data, start, how, np.random.default_rng(seed),
        chance=special.expit(logit), clusters=clusters,
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["rasch", "2pl", "2pl-signed"])
@pytest.mark.parametrize("shape", [{}, {"missing": 0.2}, {"trials": 3}])
def test_a_refit_is_the_fit_of_the_items_drawn(kind, shape):
    data = counts(10, 120, **shape)
    start = start_of(data, items_integrated(data, kind), kind)

    drawn = data.of_items(torch.tensor(drawn_places(np.arange(120), np.random.default_rng(1))))
    found, alone = refit(drawn, start, torch.arange(10), 1.0), items_integrated(drawn, kind)
    away = found.state.ability - found.state.ability.mean() - alone.ability
    assert found.converged
    assert (away / alone.covariance.diagonal().sqrt()).abs().max() < 0.03


@pytest.mark.parametrize("kind", ["rasch", "2pl"])
def test_models_drawn_several_times_are_fitted_as_the_search_fits_them(kind):
    """Of few models the population is far from that of the fit."""
    data = counts(10, 60)
    start = start_of(data, items_integrated(data, kind), kind)
    at = torch.tensor([5, 5, 5, 6, 6, 6, 7, 9, 9, 9])
    found = refit(data.of_models(at), start, at, 1.0)
    alone = items_integrated(data.of_models(at), kind, mended=True)

    ability = found.state.ability - found.state.ability.mean()
    assert found.converged
    assert ability.numpy() == pytest.approx(alone.ability.numpy(), abs=1e-3)
    assert float(ability[0]) == pytest.approx(float(ability[2]), abs=1e-6)


def test_models_not_drawn_have_no_ability():
    data = counts(6, 80)
    found = resampled(data, "rasch", over="models", n_resamples=10)

    absent = np.isnan(found.ability.replicates)
    assert absent.any()
    assert not absent.all(axis=1).any()
    for difficulty in found.difficulty.replicates:
        refit = Curves.of_points(np.ones(80), -difficulty)
        assert zero_of(refit).at == pytest.approx(zero_of(first(data, "rasch")).at, abs=1e-9)
    assert np.isfinite(found.difficulty.low).all()
    assert found.covariance.shape == (6, 6)


def test_items_drawn_give_the_error_that_the_model_gives():
    """Where the model is true, both estimate one thing, the bootstrap to 1/√(2B)."""
    data = counts(8, 300, slopes=0)
    model = items_integrated(data, "rasch").covariance.diagonal().sqrt().numpy()

    found = resampled(data, "rasch", n_resamples=60)

    ratio = found.ability.std_error / model
    assert ratio.mean() == pytest.approx(1, abs=0.06)
    assert np.sqrt(found.covariance.diagonal()) == pytest.approx(found.ability.std_error)


def test_simulated_answers_give_the_error_that_the_model_gives():
    data = counts(8, 300, slopes=0)
    fit = items_integrated(data, "rasch")

    found = resampled(data, "rasch", over="parametric", n_resamples=60)

    ratio = found.ability.std_error / fit.covariance.diagonal().sqrt().numpy()
    assert ratio.mean() == pytest.approx(1, abs=0.13)


def test_clustered_items_widen_the_interval():
    """Items that stand or fall together by five tell as much as a fifth of them."""
    alone = counts(8, 60, slopes=0)
    data = Counts(alone.right.repeat_interleave(5, 1), alone.trials.repeat_interleave(5, 1))

    single = resampled(data, "rasch", n_resamples=50)
    grouped = resampled(data, "rasch", n_resamples=50, clusters=np.arange(300) // 5)

    ratio = grouped.ability.std_error / single.ability.std_error
    assert ratio.mean() == pytest.approx(np.sqrt(5), rel=0.12)


@pytest.mark.parametrize("kind", ["rasch", "2pl", "2pl-signed"])
def test_at_the_fit_itself_there_is_nothing_left_to_gain(kind):
    data = counts(8, 150, missing=0.1)
    fit = items_integrated(data, kind)

    start = start_of(data, fit, kind)
    found = refit(data, start, torch.arange(8), 1.0)

    assert torch.allclose(found.state.ability, fit.ability, atol=1e-4)
    assert item_means(data, found.state, found.grid, 1.0)[0] == pytest.approx(
        fit.discrimination.numpy(), abs=1e-4
    )


def test_percentiles_are_order_statistics():
    """Of 19 refits, the 2nd smallest and the 2nd largest hold four in five."""
    data = counts(5, 60, slopes=0)
    found = resampled(data, "rasch", n_resamples=19, confidence_level=0.8)

    ordered = np.sort(found.ability.replicates, axis=0)
    assert np.array_equal(found.ability.low, ordered[1])
    assert np.array_equal(found.ability.high, ordered[17])


def rasch_answers(n, m, seed=0):
    data = counts(n, m, seed, slopes=0)
    return data.right.numpy().copy()


def test_a_model_all_right_takes_no_part_in_a_bootstrap():
    scores = rasch_answers(6, 50)
    scores[0] = 1
    every, others = (
        ResponseMatrix.from_array(scores),
        ResponseMatrix.from_array(scores[1:], models=[f"model_{k}" for k in range(1, 6)]),
    )
    found, alone = (
        {
            row.model: (row.low, row.high)
            for row in bootstrap_abilities(fit_irt(x, "rasch"), x, n_resamples=40, rng=0)
        }
        for x in (every, others)
    )

    assert found.pop("model_0")[1] is None
    assert found.keys() == alone.keys()
    for model, limits in alone.items():
        assert found[model] == pytest.approx(limits, abs=1e-6)


def test_models_all_right_on_the_items_drawn_stay_finite():
    """As if half an item had gone the other way: of eight items often all are right."""
    data = counts(4, 8, 3, slopes=0, ability=np.array([-1.5, 0.0, 1.5, 2.0]))
    found = resampled(data, "rasch", n_resamples=30)
    rng, right = np.random.default_rng(0), data.right.numpy()

    assert any((right[:, drawn_places(np.arange(8), rng)].all(axis=1)).any() for _ in range(30))
    assert np.abs(found.ability.replicates).max() < 8


def test_signed_discriminations_stay_signed_in_refits():
    """And the dispersion is that of the fit."""
    rng = np.random.default_rng(1)
    slope = np.where(np.arange(30) < 6, -1.5, 1.5)
    logit = slope * (rng.standard_normal((12, 1)) - rng.standard_normal(30))
    matrix = ResponseMatrix.from_array((rng.random((12, 30)) < special.expit(logit)) * 1.0)
    options = MmlItemsOptions(signed=True, dispersion=1.3)
    fit = fit_irt(matrix, "2pl", options=options)
    _, _, again, kind = _integrated(fit, counts_of(matrix, device=None))

    assert kind == "2pl-signed"
    assert again.dispersion == 1.3
    assert again.log_likelihood == pytest.approx(fit.diagnostics["log_likelihood"], abs=1e-6)


@pytest.mark.parametrize("kind", ["rasch", "2pl"])
def test_a_sandwich_is_made_of_the_gradients_of_single_items(kind):
    """In directions that keep the sum of the abilities and the mean of log discriminations."""
    data = counts(5, 30, missing=0.1)
    fit = items_integrated(data, kind)
    state, grid = start_of(data, fit, kind)
    at = state.ability, state.population
    prior = np.concatenate([np.zeros(5), state.population.log_prior()[1].numpy()])
    scores = np.array([
        evaluate(data.of_items(torch.tensor([j])), *at, grid).gradient.numpy() - prior
        for j in range(30)
    ])  # fmt: skip
    fixed = np.zeros((len(prior), 1 if kind == "rasch" else 2))
    fixed[:5, 0] = 1
    if kind == "2pl":
        fixed[7, 1] = 1
    basis = np.linalg.svd(fixed)[0][:, fixed.shape[1] :]
    inverse = np.linalg.inv(basis.T @ (state.complete - state.missing).numpy() @ basis)
    moved = (scores @ basis @ inverse @ basis.T)[:, :5]
    pairs = moved.reshape(15, 2, 5).sum(axis=1)

    np.testing.assert_allclose(sandwich(data, fit, kind), 30 / 29 * moved.T @ moved, rtol=1e-7)
    clustered = sandwich(data, fit, kind, torch.arange(30) // 2)
    np.testing.assert_allclose(clustered, 15 / 14 * pairs.T @ pairs, rtol=1e-7)
