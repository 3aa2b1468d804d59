"""Which estimator is chosen, why, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from evalstats_plugin import ResponseMatrix
from evalstats_plugin.analyses.abilities import ESTIMATORS, fit_irt, score_models
from evalstats_plugin.errors import DesignError, SelectionError


def matrix(n, m, seed=0):
    rng = np.random.default_rng(seed)
    logit = rng.standard_normal((n, 1)) - rng.standard_normal(m)
    return ResponseMatrix.from_array((rng.random((n, m)) < 1 / (1 + np.exp(-logit))).astype(float))


@pytest.mark.parametrize(
    ("shape", "item_model", "expected", "reason"),
    [
        ((8, 60), "rasch", "mml-items", "8 models, fewer than 300"),
        ((300, 40), "2pl", "mml", "300 models, 300 or more"),
        ((50, 10), "rasch", "mml", "50 models are more than 10 items"),
        ((20, 30), "3pl", "mml", "only mml fits a 3pl"),
    ],
)
def test_auto_goes_by_shape_and_says_why(shape, item_model, expected, reason):
    """The measured rule: under 300 models items are integrated out."""
    fit = fit_irt(matrix(*shape), item_model)

    assert expected == fit.estimator
    assert reason in fit.diagnostics["reason"]
    assert expected == "mml-items" or fit.diagnostics["prior"] != "none"


def test_what_does_not_exist_is_named_with_what_is_close():
    """Estimators, item models, options, scores."""
    with pytest.raises(SelectionError, match="did you mean mml"):
        fit_irt(matrix(3, 5), estimator="mlm")
    with pytest.raises(SelectionError, match="no item model is called '4pl'"):
        fit_irt(matrix(3, 5), "4pl")
    with pytest.raises(SelectionError, match=r"no option of mml is called 'node'.*nodes"):
        fit_irt(matrix(3, 5), "2pl", "mml", options={"node": 3})
    with pytest.raises(SelectionError, match="'mml-items' fits rasch, 2pl, not '3pl': choose mml"):
        fit_irt(matrix(3, 5), "3pl", "mml-items")
    fit = fit_irt(matrix(30, 5), "rasch", "mml")
    with pytest.raises(SelectionError, match="no score is called 'mean'"):
        score_models(fit, matrix(3, 5), method="mean")  # type: ignore[arg-type]


def test_every_estimator_of_the_table_fits() -> None:
    """A row of the table that cannot be run is no row."""
    for name in ESTIMATORS:
        fit = fit_irt(matrix(12, 80), "rasch", name)
        assert name == fit.estimator
        assert fit.diagnostics["converged"]


def test_models_are_scored_on_items_of_a_fit_in_any_order():
    """Items go by task and id; those unknown are left out, with a note."""
    calibration = matrix(200, 15)
    fit = fit_irt(calibration, "2pl", "mml")
    order = np.random.default_rng(1).permutation(15)
    shuffled = ResponseMatrix.from_array(
        np.c_[calibration.scores[:3, order, 0], np.ones(3)],
        items=[*calibration.item_ids[order], "new"],
    )
    scored = score_models(fit, shuffled)

    np.testing.assert_allclose(scored.ability, fit.ability[:3], atol=1e-9)
    assert ("1 items are not in the fit: left out",) == scored.notes
    assert score_models(fit, ResponseMatrix.from_array(calibration.scores[:1])).models


def test_models_without_an_answer_cannot_be_scored():
    """Nor those that took other items."""
    fit = fit_irt(matrix(30, 5), "rasch", "mml")
    scores = np.array([[1.0, 0, 1, 0, 1], [np.nan] * 5])
    with pytest.raises(DesignError, match="no item of the fit was answered by model_1"):
        score_models(fit, ResponseMatrix.from_array(scores))
    with pytest.raises(DesignError, match="none of the 5 items is among the 5 of the fit"):
        score_models(fit, ResponseMatrix.from_array(scores, tasks="another"))


def test_abilities_of_a_rasch_fit_are_scored_on_its_scale():
    """Standard deviation σ, not 1; and without the uncertainty of the items."""
    data = matrix(400, 20)
    fit = fit_irt(data, "rasch", "mml")
    scored = score_models(fit, data)

    np.testing.assert_allclose(scored.ability, fit.ability, atol=1e-8)
    assert (scored.ability_std_error <= fit.ability_std_error).all()
