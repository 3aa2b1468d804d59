"""What is refused, and what is only noted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from evalstats_plugin import ResponseMatrix
from evalstats_plugin.errors import DesignError, LogError, SelectionError
from evalstats_plugin.irt.model.data import counts_of
from evalstats_plugin.irt.model.fit import IRTFit, load_fit
from evalstats_plugin.runtime import torch


def made(**changes):
    values = {
        "item_model": "2pl", "estimator": "mml", "models": ("a", "b"),
        "item_ids": np.array([3, 1, 2]), "tasks": np.array(["t", "t", "u"]),
        "ability": np.array([0.5, 1.0]), "ability_covariance": np.array([[0.5, 0.1], [0.1, 0.3]]),
        "discrimination": np.array([1.0, -2.0, 0.5]), "difficulty": np.array([0.0, 1.0, -1.0]),
        "guessing": np.zeros(3), "discrimination_std_error": np.full(3, np.nan),
        "difficulty_std_error": np.ones(3), "guessing_std_error": np.full(3, np.nan),
        "item_covariance": np.arange(12.0).reshape(3, 2, 2), "identification": "ability ~ N(0, 1)",
        "hyperparameters": {"ability_sd": np.float64(1)}, "diagnostics": {"converged": True},
        "notes": ("a note",),
    }  # fmt: skip
    return IRTFit(**values | changes)


def test_epochs_are_counted_and_missing_ones_are_not_trials():
    """Successes and trials by hand."""
    scores = np.array([[[1, 0, np.nan], [np.nan] * 3], [[1, 1, 1], [0.5, 0, 0]]])
    found = counts_of(ResponseMatrix.from_array(scores), device="cpu")

    assert [[1.0, 0.0], [3.0, 0.5]] == found.right.tolist()
    assert [[2.0, 0.0], [3.0, 3.0]] == found.trials.tolist()
    assert any("partial credit" in note for note in found.notes)


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([[1, 0, 1]], "there is 1 model: give 2 or more"),
        (np.zeros((0, 3)), "there are 0 models"),
        (np.zeros((2, 0)), "there are no items"),
        ([[1, 0], [0, 1.5]], "score 1.5 of model 'model_1' on item item_1"),
        ([[1, 0], [0, -1]], "score -1 of model 'model_1'"),
        ([[1, np.nan], [0, np.nan]], r"1 item without a score of any model \(item_1\)"),
        (
            [[1, 0, np.nan, np.nan], [0, 1, np.nan, np.nan], [np.nan, np.nan, 1, 0]],
            r"2 groups .* \[1\] model_0, model_1 \(2 items\), \[2\] model_2 \(2 items\)",
        ),
        ([[1, 0], [np.nan, np.nan]], r"\[2\] model_1 \(0 items\)"),
    ],
)
def test_designs_that_cannot_be_fitted_are_refused(scores, message):
    """With what was found, and where."""
    with pytest.raises(DesignError, match=message):
        counts_of(ResponseMatrix.from_array(scores), device="cpu")


def test_a_chain_of_common_items_links_models():
    """No two of the outer models share an item; the middle one links them."""
    scores = np.array([[1, 0, np.nan], [np.nan, 1, 0], [np.nan, np.nan, 1]])

    assert 3 == len(counts_of(ResponseMatrix.from_array(scores), device="cpu").right)


def test_one_name_for_two_models_is_refused():
    """They could not be told apart in any table."""
    matrix = replace(ResponseMatrix.from_array([[1, 0], [0, 1]]), models=("m", "m"))
    with pytest.raises(DesignError, match="model 'm' is there twice"):
        counts_of(matrix, device="cpu")


def test_models_with_the_same_answers_are_noted():
    """The same log under two names, perhaps."""
    scores = np.random.default_rng(0).integers(0, 2, (5, 40)).astype(float)
    scores[3] = scores[1]
    notes = counts_of(ResponseMatrix.from_array(scores), device="cpu").notes

    assert "models with the same score on every item: model_1 = model_3" in notes


def test_memory_is_asked_for_before_it_is_taken(monkeypatch):
    """A thousand bytes are too few."""
    monkeypatch.setattr(torch, "_free_memory", lambda _: 1000)

    with pytest.raises(DesignError, match="20 models × 30 items need about 0"):
        counts_of(ResponseMatrix.from_array(np.eye(20, 30)), device="cpu")


def test_a_saved_fit_comes_back(tmp_path):
    """Every field, numbers to the bit."""
    fit = made()
    back = IRTFit.load(fit.save(tmp_path / "fit.parquet"))

    assert fit.to_dict() == back.to_dict()
    for name in ("ability_covariance", "item_covariance", "item_ids", "discrimination"):
        np.testing.assert_array_equal(getattr(fit, name), getattr(back, name))
    assert made(item_covariance=None).save(tmp_path / "b").exists()
    assert load_fit(tmp_path / "b").item_covariance is None


def test_other_files_are_no_fits(tmp_path):
    """A matrix is Parquet, too."""
    ResponseMatrix.from_array([[1.0]]).save(tmp_path / "matrix.parquet")

    with pytest.raises(LogError, match="not a fit written by evalstats-plugin"):
        IRTFit.load(tmp_path / "matrix.parquet")


def test_tables_are_finite_or_empty_and_predictions_follow_the_formula():
    """NaN is null in JSON; logit P = a(θ - b)."""
    fit = made()

    assert fit.to_dict()["items"][0]["discrimination_std_error"] is None
    assert ["model", "ability", "std_error", "low", "high"] == list(fit.to_frame("models").columns)
    assert 1 / (1 + np.exp(2 * (1.0 - 1.0))) == fit.predict(plug_in=True)[1, 1]
    assert 1 / (1 + np.exp(-0.5)) == pytest.approx(fit.predict(plug_in=True)[0, 0])
    with pytest.raises(SelectionError, match="models, items"):
        fit.to_frame("persons")


def test_shapes_must_fit():
    """Two models have two abilities."""
    with pytest.raises(ValueError, match=r"ability has the shape \(3,\): give it the shape \(2,\)"):
        made(ability=np.zeros(3))
