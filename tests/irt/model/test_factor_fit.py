"""A fitted factor model: predictions that no rotation moves, errors, files, and refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from evalstats_plugin import ResponseMatrix
from evalstats_plugin.errors import DesignError, LogError, SelectionError
from evalstats_plugin.irt.estimators import factor
from evalstats_plugin.irt.fitting import fit_irt
from evalstats_plugin.irt.methods import FactorOptions, MmlOptions
from evalstats_plugin.irt.model.fit import FactorFit, IRTFit
from evalstats_plugin.irt.model.simulate import draw_responses, draw_truth, simulate_responses
from evalstats_plugin.irt.scoring import score_models

TWO = FactorOptions(dimensions=2, ridge=3.0)


@pytest.fixture(scope="module")
def matrix():
    """Give 40 models in two dimensions."""
    return simulate_responses(
        rng=1, n_models=40, n_items=120, item_model="factor", n_epochs=2, missing=0.1
    )[0]


@pytest.fixture(scope="module")
def fit(matrix):
    """Give a fit without rotation."""
    return fit_irt(matrix, "factor", rng=0, options=TWO)


@pytest.mark.parametrize("how", ["varimax", "promax"])
def test_rotations_keep_what_is_predicted_and_how_sure_it_is(fit, how):
    """P(right), and the variance of each logit given the items."""
    turned = fit.rotated(how)
    before, after = (
        np.einsum("mk,nkl,ml->nm", f.loading, f.ability_covariance, f.loading)
        for f in (fit, turned)
    )
    own, other = (
        np.einsum("nk,mkl,nl->nm", one, f.item_covariance, one)
        for f in (fit, turned)
        for one in [np.column_stack([f.ability, np.ones(len(f.ability))])]
    )

    np.testing.assert_allclose(turned.predict(), fit.predict(), atol=1e-10)
    np.testing.assert_allclose(after, before, rtol=1e-8)
    np.testing.assert_allclose(other, own, rtol=1e-8)
    np.testing.assert_allclose(np.cov(turned.ability.T, ddof=0), turned.correlation, atol=1e-8)
    assert not np.allclose(turned.loading, fit.loading, atol=0.05)
    assert (turned.loading.sum(axis=0) >= 0).all()
    with pytest.raises(SelectionError, match=f"turned by {how} already"):
        turned.rotated("varimax")


def test_models_scored_on_the_items_come_back_where_they_were(fit, matrix):
    """Under the same prior; a prior of variance 1 would draw them in once more."""
    scored = score_models(fit, matrix)

    np.testing.assert_allclose(scored.ability, fit.ability, atol=0.01)
    np.testing.assert_allclose(scored.ability_covariance, fit.ability_covariance, atol=1e-3)
    assert scored.diagnostics == {"scored_by": "map", "n_items": 120}
    with pytest.raises(SelectionError, match="no score is called 'eap'"):
        score_models(fit, matrix, method="eap")


def test_models_are_scored_on_the_items_they_share_with_the_fit(fit, matrix):
    """In any order; the others are named."""
    order = np.random.default_rng(0).permutation(120)[:100]
    part = ResponseMatrix.from_array(
        matrix.scores[:3, order], models=["x", "y", "z"], items=matrix.item_ids[order].tolist()
    )
    scored = score_models(fit, part)

    assert ("x", "y", "z") == scored.models
    assert 120 == len(scored.item_ids)
    assert np.corrcoef(scored.ability[:, 0], fit.ability[:3, 0])[0, 1] > 0.9


def test_errors_are_the_curvature_of_the_posterior(fit, matrix):
    """Second differences of the log posterior of one model, and of one item."""
    right = np.nansum(matrix.scores, axis=2)
    trials = (~np.isnan(matrix.scores)).sum(axis=2)

    def curvature(height, at):
        k, h = len(at), 1e-3
        steps = np.eye(k) * h
        return -np.array(
            [[(height(at + a + b) - height(at + a - b) - height(at - a + b) + height(at - a - b))
              / (4 * h * h) for b in steps] for a in steps]
        )  # fmt: skip

    def of_model(theta):
        logit = fit.loading @ theta + fit.intercept
        fits = right[4] * logit - trials[4] * np.logaddexp(0, logit)
        return fits.sum() - theta @ fit.prior_precision @ theta / 2

    def of_item(item):
        logit = fit.ability @ item[:-1] + item[-1]
        return (right[:, 7] * logit - trials[:, 7] * np.logaddexp(0, logit)).sum()

    items = np.column_stack([fit.loading, fit.intercept])
    prior = np.linalg.inv(np.cov(items.T) + 1e-3 * np.eye(3))

    np.testing.assert_allclose(
        np.linalg.inv(curvature(of_model, fit.ability[4])), fit.ability_covariance[4], rtol=1e-4
    )
    np.testing.assert_allclose(
        np.linalg.inv(curvature(of_item, items[7]) + prior), fit.item_covariance[7], rtol=1e-4
    )


def test_the_number_of_dimensions_is_chosen_by_answers_held_out():
    """Two planted ones are found; of one, no second is."""
    rng = np.random.default_rng(2)
    truth = draw_truth(rng, 40, 60, "factor", n_dimensions=2)
    two = draw_responses(truth._replace(discrimination=2 * truth.discrimination), rng)
    one = draw_responses(draw_truth(rng, 40, 60, "rasch"), rng)
    found, single = (fit_irt(m, "factor", rng=0) for m in (two, one))

    assert 2 == found.n_dimensions
    assert {1, 2, 3} == {choice["n_dimensions"] for choice in found.diagnostics["choices"]}
    assert 1 == single.n_dimensions
    assert "item model 2pl fits it with errors that hold" in " ".join(single.notes)


def test_a_saved_fit_comes_back(fit, tmp_path):
    """To the bit; and is not taken for a fit of one ability."""
    # Once: rotating again may differ in the last bit, by where arrays lie in memory.
    rotated = fit.rotated("promax")
    path = rotated.save(tmp_path / "f.parquet")
    back = FactorFit.load(path)

    assert back.to_dict() == rotated.to_dict()
    for name in ("ability_covariance", "item_covariance", "prior_precision", "correlation"):
        np.testing.assert_array_equal(getattr(rotated, name), getattr(back, name))
    with pytest.raises(LogError, match=r"holds a FactorFit, not a IRTFit: read it with Fac"):
        IRTFit.load(path)


def test_tables_have_a_line_for_each_model_and_dimension(fit):
    """And a column for each loading."""
    models, items = fit.to_frame("models"), fit.to_frame("items")

    assert 80 == len(models)
    assert [1, 2] == models["dimension"].tolist()[:2]
    np.testing.assert_array_equal(models["ability"], fit.ability.ravel())
    assert {"loading_1", "loading_2_std_error", "intercept"} < set(items.columns)
    with pytest.raises(SelectionError, match="models, items"):
        fit.to_frame("factors")


def test_dimensions_that_explain_nothing_are_noted_and_not_turned(matrix):
    """A strong prior leaves only one of them."""
    found = fit_irt(matrix, "factor", options=replace(TWO, ridge=1e3, rotation="promax"))

    assert (2,) == found.empty
    assert (
        "1 of 2 dimensions explain nothing: fewer say as much; not turned by promax" in found.notes
    )
    with pytest.raises(DesignError, match="fit fewer"):
        found.rotated("promax")


def test_dimensions_that_are_chosen_by_chance_and_explain_nothing_are_left_out(monkeypatch):
    """What was tried stays on record."""
    matrix, _ = simulate_responses(rng=1, n_models=12, n_items=20)
    choices = (factor.Choice(3, 300.0, 0.5), factor.Choice(1, 300.0, 0.6))
    monkeypatch.setattr(factor, "cross_validate", lambda *_, **__: choices)
    found = fit_irt(matrix, "factor", rng=0)
    # A number of NumPy, such as from `np.arange`.
    dimensions: Any = np.int64(1)
    one = fit_irt(matrix, "factor", options=FactorOptions(dimensions=dimensions, ridge=300.0))

    assert (1, ()) == (found.n_dimensions, found.empty)
    assert [3, 1] == [choice["n_dimensions"] for choice in found.diagnostics["choices"]]
    np.testing.assert_allclose(found.ability, one.ability, atol=1e-4)


@pytest.mark.parametrize(
    ("dimensions", "message"),
    [
        (40, "40 models and 120 items cannot tell 40 dimensions apart: choose 1 to 39"),
        (0, "cannot tell 0 dimensions apart"),
    ],
)
def test_more_dimensions_than_models_can_tell_apart_are_refused(matrix, dimensions, message):
    with pytest.raises(DesignError, match=message):
        fit_irt(matrix, "factor", options=FactorOptions(dimensions=dimensions))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dimensions": "two"}, "dimensions 'two' is not a whole number: pass one, or 'auto'"),
        ({"ridge": -1}, "ridge -1 is not a number above 0"),
        ({"rotation": "oblimin"}, "no rotation is called 'oblimin'"),
    ],
)
def test_options_that_do_not_exist_are_refused(options, message):
    with pytest.raises(SelectionError, match=message):
        FactorOptions(**options)


def test_factors_are_fitted_by_map_with_their_own_options(matrix):
    with pytest.raises(SelectionError, match="'mml' fits rasch, 1pl, 2pl, 3pl, 4pl, not 'factor'"):
        fit_irt(matrix, "factor", "mml")
    with pytest.raises(SelectionError, match="MmlOptions are not options of item model factor"):
        fit_irt(matrix, "factor", options=MmlOptions(prior="weak"))
    with pytest.raises(SelectionError, match="pass MmlOptions, or fit item model factor"):
        fit_irt(matrix, "2pl", "mml", options=FactorOptions(dimensions=2))
