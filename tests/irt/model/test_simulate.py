"""Simulated answers have the probabilities they are drawn from."""

from __future__ import annotations

import numpy as np
import pytest

from evalstats_plugin.errors import SelectionError
from evalstats_plugin.irt.model.simulate import (
    ITEM_MODELS,
    draw_responses,
    draw_truth,
    simulate_responses,
)


@pytest.mark.parametrize("item_model", ITEM_MODELS)
def test_many_epochs_have_the_expected_mean(item_model):
    """4000 epochs of 12 cells: within 4.5 standard errors, none of which is above 1/√4000 / 2."""
    truth = draw_truth(np.random.default_rng(0), 3, 4, item_model)
    scores = draw_responses(truth, np.random.default_rng(1), n_epochs=4000).scores

    np.testing.assert_allclose(scores.mean(axis=2), truth.probability, atol=4.5 / 2 / 4000**0.5)


def test_partial_credit_has_the_log_odds_of_its_steps():
    """Log P(s)/P(s - 1) = θ - b - step s: the definition of the model, from frequencies."""
    truth = draw_truth(np.random.default_rng(2), 1, 3, "partial-credit", n_steps=2)
    scores = draw_responses(truth, np.random.default_rng(3), n_epochs=40000).scores[0]
    counts = np.stack([(scores == s / 2).sum(axis=1) for s in range(3)], axis=1)
    expected = truth.ability - truth.difficulty[:, None] - truth.steps
    error = np.sqrt(1 / counts[:, 1:] + 1 / counts[:, :-1])

    assert np.all(np.abs(np.log(counts[:, 1:] / counts[:, :-1]) - expected) < 4 * error)


def test_takes_are_missing_at_the_share_asked_for():
    matrix, _ = simulate_responses(rng=4, n_models=50, n_items=80, n_epochs=3, missing=0.3)

    assert np.isnan(matrix.scores).mean() == pytest.approx(0.3, abs=0.02)
    assert set(np.unique(matrix.scores[~np.isnan(matrix.scores)])) == {0.0, 1.0}


def test_a_seed_gives_the_same_answers_and_another_does_not():
    draws = [simulate_responses(rng=r, n_models=20, n_items=30)[0].scores for r in (5, 5, 6)]

    assert draws[0].tobytes() == draws[1].tobytes()
    assert (draws[0] != draws[2]).any()


def test_factors_have_as_many_loadings_as_dimensions():
    matrix, truth = simulate_responses(
        rng=7, n_models=9, n_items=11, item_model="factor", n_dimensions=3
    )

    assert (9, 3) == truth.ability.shape
    assert (11, 3) == truth.discrimination.shape
    assert (9, 11, 1) == matrix.scores.shape


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(SelectionError, match="no item model is called '5pl'"):
        simulate_responses(rng=0, n_models=2, n_items=2, item_model="5pl")
    with pytest.raises(ValueError, match="pass 1 or more, and below 1"):
        simulate_responses(rng=0, n_models=2, n_items=2, n_epochs=0)
