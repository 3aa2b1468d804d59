"""Masks hold out what they say, two-stage fits use no held-out cell, and errors are measured."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from scipy import special, stats

from evalstats_plugin.errors import DesignError
from evalstats_plugin.irt.estimators.factor import fit_factor
from evalstats_plugin.irt.estimators.frozen import (
    CurvesFit,
    calibration,
    fit_curves,
    predict_held_out,
    score,
    score_held_out,
    weighted_auc,
)
from evalstats_plugin.irt.estimators.item_population import Population
from evalstats_plugin.irt.estimators.items_integrated import items_integrated
from evalstats_plugin.irt.model.curves import Items
from evalstats_plugin.irt.model.data import Counts
from evalstats_plugin.irt.model.masks import MASKS

NEEDS = {
    "shifted-rows": {"key": np.arange(20.0)},
    "shifted-size": {"key": np.arange(20.0)},
    "shifted-columns": {"key": np.arange(50.0)},
    "shifted-tasks": {"task": np.arange(50) // 10},
    "temporal": {"released": np.arange(20.0)},
}
fit_one = partial(fit_factor, n_dimensions=1, ridge=5.0, tolerance=1e-3)


def counts(right, trials=None):
    trials = np.ones_like(right) if trials is None else trials
    return Counts(torch.from_numpy(right * 1.0), torch.from_numpy(trials * 1.0))


def simulated(n, m, rng):
    """2PL with known probabilities."""
    theta, b, a = rng.standard_normal(n), rng.standard_normal(m), rng.lognormal(0, 0.3, m)
    p = special.expit(a * (theta[:, None] - b))
    return (rng.random((n, m)) < p) * 1.0, p


def split(name, observed, seed=0):
    return MASKS[name](observed, rng=np.random.default_rng(seed), **NEEDS.get(name, {}))


@pytest.mark.parametrize("name", MASKS)
def test_every_mask_parts_observed_cells_and_follows_its_seed(name):
    """No overlap, nothing missing in it, the same twice, and another with another seed."""
    observed = np.random.default_rng(1).random((20, 50)) < 0.8
    one, again, other = split(name, observed), split(name, observed), split(name, observed, 1)

    assert (np.sum(one, axis=0) <= observed).all()
    assert all(np.array_equal(a, b) for a, b in zip(one, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    assert one.train.any()
    assert one.test.any()


def test_masks_hold_out_the_cells_that_their_names_say():
    """Counted by hand on a full 20 × 50 matrix: a fifth held out, 30 % of it exposed."""
    full = np.ones((20, 50), dtype=bool)
    cells = {name: tuple(int(part.sum()) for part in split(name, full)) for name in MASKS}

    assert cells == {
        "random": (800, 0, 200),
        "rows": (800, 60, 140),
        "columns": (800, 60, 140),
        "L": (640, 4 * 12 + 10 * 5, 40),
        "block": (960, 0, 40),
        "shifted-rows": (800, 60, 140),
        "shifted-size": (800, 60, 140),
        "shifted-columns": (800, 60, 140),
        "shifted-tasks": (800, 60, 140),
        "temporal": (800, 60, 140),
    }
    assert (split("shifted-rows", full).train.any(1) == (np.arange(20) < 16)).all()
    assert (split("shifted-columns", full).train.any(0) == (np.arange(50) < 40)).all()
    assert (split("rows", full).exposed.sum(1)[~split("rows", full).train.any(1)] == 15).all()


def test_l_and_block_differ_in_what_they_train_on():
    """L trains on the opposite corner alone, block on all but the corner held out."""
    full = np.ones((20, 50), dtype=bool)
    corner, block = split("L", full), split("block", full)

    assert np.array_equal(corner.test, block.test)
    assert not (corner.train & (corner.test.any(1)[:, None] | corner.test.any(0))).any()
    assert np.array_equal(block.train, ~block.test)


def test_models_released_together_are_held_out_together():
    """Half the models share the last date: all go, though a fifth was asked for."""
    released = np.repeat([2023.0, 2024.0], 10)
    full = np.ones((20, 50), dtype=bool)
    found = MASKS["temporal"](full, released=released, rng=np.random.default_rng(0))

    assert np.array_equal(found.test.any(1), released == 2024)


def test_random_entries_leave_each_model_and_item_something():
    """Items with one answer keep it, or nothing could be said of them."""
    observed = np.zeros((30, 40), dtype=bool)
    observed[np.arange(40) % 30, np.arange(40)] = True
    observed[0] = True
    found = MASKS["random"](observed, rng=np.random.default_rng(0))

    assert found.train.any(0).all()
    assert found.train.any(1).all()
    assert found.test.any()


def test_one_model_alone_cannot_be_held_out():
    """Nothing would be left to train on."""
    with pytest.raises(DesignError, match="cells are left"):
        MASKS["rows"](np.ones((1, 6), dtype=bool), rng=np.random.default_rng(0))


@pytest.mark.parametrize("estimator", [fit_one, fit_curves], ids=["factor", "items-integrated"])
@pytest.mark.parametrize("name", ["rows", "columns", "L"])
def test_predictions_use_no_held_out_cell(estimator, name):
    """Held-out answers turned round: bit for bit the same predictions, and good ones."""
    right, p = simulated(40, 60, np.random.default_rng(2))
    found = split(name, right > -1)
    other = np.where(found.test, 1 - right, right)
    predicted = predict_held_out(estimator, counts(right), found)

    assert np.array_equal(predicted, predict_held_out(estimator, counts(other), found))
    assert np.corrcoef(predicted[found.test], p[found.test])[0, 1] > 0.75


def test_predictions_are_averaged_over_the_errors_of_abilities():
    """By a sum over the nodes, which lie closely."""
    right, _ = simulated(15, 30, np.random.default_rng(3))
    fit, at_estimates = fit_curves(counts(right)), items_integrated(counts(right), "2pl")
    error = at_estimates.covariance.diagonal().sqrt()
    torch.testing.assert_close(fit.std_error, error)
    away = (fit.nodes - at_estimates.ability[:, None]) / error[:, None]
    weight = torch.softmax(-(away**2) / 2, dim=1)

    torch.testing.assert_close(fit.probability(), weight @ fit.curve, atol=1e-3, rtol=0)
    torch.testing.assert_close(fit.probability(), at_estimates.probability)


def test_a_new_model_is_at_the_posterior_mean_of_a_direct_sum():
    """Bayes' rule on the tabulated curves, one item at a time."""
    rng = np.random.default_rng(4)
    fit = fit_curves(counts(simulated(15, 30, rng)[0]), "rasch")
    answers = (rng.random(30) < 0.5) * 1.0
    scored = fit.for_models(counts(answers[None]))
    nodes, curve, ability = (x.numpy() for x in (fit.nodes, fit.curve, fit.ability))
    weight = stats.norm.pdf(nodes, ability.mean(), ability.std(ddof=1))
    for j in range(30):
        weight = weight * (curve[:, j] if answers[j] else 1 - curve[:, j])

    assert float(scored.ability[0]) == pytest.approx(weight @ nodes / weight.sum(), abs=1e-10)
    np.testing.assert_allclose(
        scored.probability()[0].numpy(), weight @ curve / weight.sum(), atol=1e-10
    )


def test_a_function_that_gives_probabilities_is_fitted_to_exposed_cells_as_well():
    """Any function will do: here item means, which the function itself must not see tested."""
    right, _ = simulated(20, 50, np.random.default_rng(5))
    found = split("rows", right > -1)
    used = found.train | found.exposed

    def means(data):
        share = (data.right.sum(0) + 1) / (data.trials.sum(0) + 2)
        return share.expand(data.right.shape)

    expected = ((right * used).sum(0) + 1) / (used.sum(0) + 2)
    predicted = predict_held_out(means, counts(right), found)

    np.testing.assert_allclose(predicted, np.broadcast_to(expected, predicted.shape))


def test_a_held_out_model_without_an_exposed_cell_is_refused():
    """It could only be given the prior."""
    right, _ = simulated(20, 50, np.random.default_rng(6))
    found = split("rows", right > -1)
    bare = found._replace(exposed=np.zeros_like(found.exposed))
    with pytest.raises(DesignError, match="4 held-out models have no exposed cell"):
        predict_held_out(fit_one, counts(right), bare)


def test_auc_counts_pairs_and_ties_exactly():
    """All pairs of single trials, by brute force; epochs and partial credit as weights."""
    rng = np.random.default_rng(7)
    score, right, wrong = rng.integers(0, 6, 40) / 6, rng.integers(0, 3, 40), rng.integers(0, 3, 40)
    above = (score[:, None] > score) + 0.5 * (score[:, None] == score)
    expected = (above * right[:, None] * wrong).sum() / (right.sum() * wrong.sum())

    assert expected == pytest.approx(weighted_auc(score, right, wrong), abs=1e-14)
    assert np.isnan(weighted_auc(score, right, np.zeros(40)))


def test_scores_are_those_of_their_definitions():
    """Every trial by itself: log loss and Brier score by hand."""
    p = np.array([[0.2, 0.9], [0.5, 1.0]])
    found = score_held_out(
        counts(np.array([[1, 2], [0, 1]]), np.array([[1, 3], [0, 1]])), p, np.ones((2, 2), bool)
    )

    expected = -(np.log(0.2) + 2 * np.log(0.9) + np.log(0.1)) / 5
    assert expected == pytest.approx(found.log_loss)
    assert (0.64 + 2 * 0.01 + 0.81) / 5 == pytest.approx(found.brier)
    assert found.n_cells == 3
    sure = score_held_out(counts(np.array([[0.0]])), np.array([[1.0]]), np.ones((1, 1), bool))
    assert sure.log_loss == np.inf
    with pytest.raises(ValueError, match="no cell"):
        score_held_out(counts(np.ones((1, 1))), np.ones((1, 1)), np.zeros((1, 1), bool))


def test_calibration_tells_true_predictions_from_stretched_ones():
    """With the truth, (observed - predicted) / error has variance 1; doubled logits are found."""
    rng = np.random.default_rng(8)
    right, p = simulated(200, 100, rng)
    everything = np.ones_like(p, dtype=bool)

    def misfit(probability):
        table = calibration(counts(right), probability, everything)
        assert table.n_cells.sum() == 20_000
        assert (np.diff(table.predicted) > 0).all()
        return (((table.observed - table.predicted) / table.std_error) ** 2).sum()

    assert stats.chi2.sf(misfit(p), 10) > 0.01
    assert stats.chi2.sf(misfit(special.expit(2 * special.logit(p))), 10) < 1e-10


def test_calibration_keeps_equal_predictions_together():
    """Three values make three bins, however many were asked for."""
    p = np.repeat([0.1, 0.5, 0.9], 10)[None]
    right = np.tile([1.0, 0.0], 15)[None]
    table = calibration(counts(right), p, np.ones_like(p, bool))

    assert [10, 10, 10] == table.n_cells.tolist()
    np.testing.assert_allclose(table.predicted, [0.1, 0.5, 0.9])


def test_predictions_that_differ_by_rounding_errors_are_equal():
    """Else the area hangs on the processor, where a model predicts the same for many cells."""
    right = np.array([1.0, 0.0, 1.0, 0.0])
    level = np.array([0.3, 0.1 + 0.2, 0.3, 0.1 + 0.2])

    assert weighted_auc(level, right, 1 - right) == 0.5
    assert weighted_auc(level[::-1], right, 1 - right) == 0.5


def test_other_models_have_the_posterior_of_bayes():
    """Prior, likelihood and mean over the nodes, written out; at a centre that is not 0."""
    rng = np.random.default_rng(4)
    nodes, curve = torch.linspace(-2, 5, 31, dtype=torch.float64), torch.tensor(rng.random((31, 6)))
    nothing = torch.empty(0)
    fit = CurvesFit(
        nothing, None, curve, nothing, nothing, nodes, Population("rasch", torch.zeros(2)), 1.4,
        torch.tensor(1.5, dtype=torch.float64), torch.tensor(0.7, dtype=torch.float64),
    )  # fmt: skip
    trials = rng.integers(0, 4, (5, 6))
    data = counts(rng.binomial(trials, 0.6), trials)
    found = fit.for_models(data)
    for i in range(5):
        right, tried = data.right[i].numpy(), data.trials[i].numpy()
        chance = curve.numpy()
        likelihood = stats.binom.pmf(right, tried, chance).prod(axis=1) ** (1 / 1.4)
        weight = likelihood * stats.norm.pdf(nodes, 1.5, 0.7)
        weight /= weight.sum()
        np.testing.assert_allclose(found.weight[i], weight, rtol=1e-9)
        assert float(found.ability[i]) == pytest.approx(weight @ nodes.numpy())
        np.testing.assert_allclose(found.probability()[i], weight @ chance, rtol=1e-9)


def test_likelihoods_without_a_maximum_have_no_error():
    """All right, or right on the one item that rises and wrong on the one that falls."""
    signs = Items(torch.tensor([1.0, -1.0]).double(), torch.zeros(2).double())
    data = counts(np.array([[1, 0], [0, 1], [1, 1]]))
    found = score(data, signs, "ml")
    assert found.ability.tolist() == pytest.approx([20, -20, 0], abs=1e-9)
    assert torch.isnan(found.std_error).tolist() == [True, True, False]
    assert float(found.std_error[2]) == pytest.approx(2**0.5)
    plain = Items(torch.tensor([1.0, 2.0]).double(), torch.zeros(2).double())
    found = score(data, plain, "ml")
    assert found.ability[2] == np.inf
    assert torch.isnan(found.std_error).tolist() == [False, False, True]
