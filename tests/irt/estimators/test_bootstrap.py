"""Bootstraps against refits one by one, known standard errors, and what must not matter."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import special

from evalstats_plugin.irt.estimators.cml import abilities_given_item_totals
from evalstats_plugin.irt.estimators.items_integrated import items_integrated
from evalstats_plugin.irt.estimators.refits import (
    BootstrapOptions,
    First,
    bootstrap,
    item_weights,
    refitter,
)
from evalstats_plugin.irt.model.data import Counts
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
    """Abilities and items of a fit, on its own scale."""
    fit = items_integrated(data, kind)
    a, b = fit.discrimination.numpy(), fit.difficulty.numpy()
    return First(fit.ability.numpy(), Curves.of_points(a, -a * b))


def drawn(data, weights):
    """The answers themselves, items repeated as often as they were drawn."""
    at = torch.repeat_interleave(torch.arange(len(weights)), torch.tensor(weights).long())
    return Counts(data.right[:, at], data.trials[:, at])


@pytest.mark.parametrize("kind", ["rasch", "2pl", "2pl-signed"])
@pytest.mark.parametrize("shape", [{}, {"missing": 0.2}, {"trials": 3}])
def test_a_refit_is_the_fit_of_the_items_drawn(kind, shape):
    data = counts(10, 300, **shape)
    fit = items_integrated(data, kind)
    weights = item_weights(3, 300, np.random.default_rng(1))

    found = refitter(data, fit, kind).refit(item_weights=torch.tensor(weights))

    assert found.converged.all()
    for one, ability in zip(weights, found.ability, strict=True):
        alone = items_integrated(drawn(data, one), kind)
        error = (alone.ability - ability) / alone.covariance.diagonal().sqrt()
        assert error.abs().max() < 0.03


def test_a_model_drawn_twice_is_two_models_of_one_ability():
    """Doubling the trials of every cell is to draw every model twice."""
    data = counts(8, 150)
    fit = items_integrated(data, "rasch")
    doubled = Counts(2 * data.right, 2 * data.trials)

    found = refitter(data, fit, "rasch").refit(model_weights=torch.full((1, 8), 2.0))

    assert found.ability[0].numpy() == pytest.approx(
        items_integrated(doubled, "rasch").ability.numpy(), abs=3e-3
    )


def test_models_not_drawn_have_no_ability():
    data = counts(6, 200)
    found = bootstrap(
        data,
        first(data, "rasch"),
        BootstrapOptions(over="models", kind="rasch", n_resamples=20),
        np.random.default_rng(0),
    )

    absent = np.isnan(found.ability.replicates)
    assert absent.any()
    assert not absent.all(axis=1).any()
    for difficulty in found.difficulty.replicates:
        refit = Curves.of_points(np.ones(200), -difficulty)
        assert zero_of(refit).at == pytest.approx(zero_of(first(data, "rasch").items).at, abs=1e-9)
    assert np.isfinite(found.difficulty.low).all()
    assert found.covariance.shape == (6, 6)


@pytest.mark.parametrize("over", ["items", "models", "parametric"])
def test_the_size_of_blocks_changes_no_bit(over):
    data = counts(7, 40, missing=0.1)
    one, other, again = (
        bootstrap(
            data,
            first(data),
            BootstrapOptions(over=over, kind="2pl", n_resamples=8, block=block),
            np.random.default_rng(3),
        )
        for block in (5, None, 1)
    )

    assert np.array_equal(one.ability.replicates, other.ability.replicates, equal_nan=True)
    assert np.array_equal(one.ability.replicates, again.ability.replicates, equal_nan=True)
    assert np.array_equal(one.difficulty.replicates, again.difficulty.replicates)


def test_conditional_refits_are_the_same_for_any_block():
    data = counts(10, 120, slopes=0)
    options = [
        BootstrapOptions(estimator="cml-items", kind="rasch", n_resamples=150, block=block)
        for block in (1, 64, None)
    ]
    one, other, third = (
        bootstrap(data, first(data, "rasch"), o, np.random.default_rng(3)) for o in options
    )

    assert np.array_equal(one.ability.replicates, other.ability.replicates)
    assert np.array_equal(one.ability.replicates, third.ability.replicates)


@pytest.mark.parametrize("estimator", ["cml-items", "mml-items"])
def test_items_drawn_give_the_error_that_the_model_gives(estimator):
    """Where the model is true, both estimate one thing, the bootstrap to 1/√(2B)."""
    data = counts(8, 400, slopes=0)
    model = abilities_given_item_totals(data).covariance.diagonal().sqrt().numpy()

    found = bootstrap(
        data,
        first(data, "rasch"),
        BootstrapOptions(estimator=estimator, kind="rasch", n_resamples=400),
        np.random.default_rng(0),
    )

    ratio = found.ability.std_error / model
    assert ratio.mean() == pytest.approx(1, abs=0.05)
    assert np.sqrt(found.covariance.diagonal()) == pytest.approx(found.ability.std_error)


@pytest.mark.parametrize("over", ["parametric", "new-items"])
def test_simulated_answers_give_the_error_that_the_model_gives(over):
    data = counts(8, 300, slopes=0)
    fit = items_integrated(data, "rasch")

    found = bootstrap(
        data,
        first(data, "rasch"),
        BootstrapOptions(over=over, kind="rasch", n_resamples=150),
        np.random.default_rng(0),
    )

    ratio = found.ability.std_error / fit.covariance.diagonal().sqrt().numpy()
    assert ratio.mean() == pytest.approx(1, abs=0.1)


def test_clustered_items_widen_the_interval():
    """Items that stand or fall together by five tell as much as a fifth of them."""
    alone = counts(8, 60, slopes=0)
    data = Counts(alone.right.repeat_interleave(5, 1), alone.trials.repeat_interleave(5, 1))
    options = BootstrapOptions(estimator="cml-items", kind="rasch", n_resamples=300)
    known = first(data, "rasch")

    single = bootstrap(data, known, options, np.random.default_rng(0))
    grouped = bootstrap(
        data, known, options, np.random.default_rng(0), clusters=np.arange(300) // 5
    )

    ratio = grouped.ability.std_error / single.ability.std_error
    assert ratio.mean() == pytest.approx(np.sqrt(5), rel=0.1)


def test_a_model_all_right_takes_no_part_in_a_bootstrap():
    data = counts(6, 80)
    data.right[0] = 1
    without = Counts(data.right[1:], data.trials[1:])
    options = BootstrapOptions(kind="rasch", n_resamples=12)

    found, alone = (
        bootstrap(one, first(one, "rasch"), options, np.random.default_rng(0))
        for one in (data, without)
    )

    assert np.isnan(found.ability.replicates[:, 0]).all()
    assert np.array_equal(found.ability.replicates[:, 1:], alone.ability.replicates)
    assert np.array_equal(found.covariance[1:, 1:], alone.covariance, equal_nan=True)


@pytest.mark.parametrize("kind", ["rasch", "2pl", "2pl-signed"])
def test_at_the_fit_itself_there_is_nothing_left_to_gain(kind):
    data = counts(8, 150, missing=0.1)
    fit = items_integrated(data, kind)

    found = refitter(data, fit, kind).refit(item_weights=torch.ones(1, 150))

    assert found.steps == 1
    assert torch.allclose(found.ability[0], fit.ability, atol=1e-10)
    assert torch.allclose(found.discrimination[0], fit.discrimination, atol=1e-8)


def test_curves_of_steep_items_are_no_steeper_in_a_refit_than_in_the_fit():
    """Points of the integral reach discriminations of hundreds: both hold them at 25."""
    data = counts(20, 100, 3, slopes=1.2)
    fit = items_integrated(data, "2pl")

    found = refitter(data, fit, "2pl").refit(item_weights=torch.ones(1, 100))

    assert fit.hyperparameters["log_discrimination_sd"] > 0.8
    assert torch.allclose(found.ability[0], fit.ability, atol=1e-3)
    assert torch.allclose(found.discrimination[0], fit.discrimination, atol=0.02)


def test_percentiles_are_order_statistics():
    """Of 999 refits, the 25th smallest and the 25th largest."""
    data = counts(5, 60, slopes=0)
    found = bootstrap(
        data,
        first(data, "rasch"),
        BootstrapOptions(estimator="cml-items", kind="rasch", n_resamples=999),
        np.random.default_rng(0),
    )

    ordered = np.sort(found.ability.replicates, axis=0)
    assert np.array_equal(found.ability.low, ordered[24])
    assert np.array_equal(found.ability.high, ordered[974])
