"""A stored fit as a bank: its version, later models scored on it, and refits linked to it."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import special

from evalstats_plugin import ResponseMatrix
from evalstats_plugin.errors import SelectionError
from evalstats_plugin.irt import IRTFit, MmlOptions, abilities, fit_irt, link, score_models
from evalstats_plugin.irt.model.scale import Curves, zero_of

pytestmark = pytest.mark.needs("torch")

N, M = 30, 80


def drawn(seed, n=N, m=M, shift=0.0):
    """Answers, abilities and difficulties."""
    rng = np.random.default_rng(seed)
    theta, b = rng.normal(shift, 1, n), np.random.default_rng(7).normal(size=m)
    scores = (rng.random((n, m)) < special.expit(theta[:, None] - b)).astype(float)
    return ResponseMatrix.from_array(scores), theta, b


@pytest.fixture(scope="module")
def bank():
    return fit_irt(drawn(0)[0], "rasch")


def test_the_version_is_of_the_items_alone(bank, tmp_path):
    again = IRTFit.load(bank.save(tmp_path / "bank.parquet"))
    other = replace(bank, difficulty=bank.difficulty + 1e-9)
    renamed = replace(bank, tasks=np.full(M, "another"))

    assert again.version == bank.version
    assert replace(bank, ability=bank.ability + 1).version == bank.version
    assert len({bank.version, other.version, renamed.version}) == 3
    assert score_models(again, drawn(1)[0]).diagnostics["bank"] == bank.version


def test_a_later_model_moves_nobody(bank):
    """One more model, of which all is right, changes no digit of another's row."""
    later = drawn(1)[0].scores[:, :, 0]
    few = score_models(bank, ResponseMatrix.from_array(later[:5]))
    more = score_models(bank, ResponseMatrix.from_array(np.vstack([later[:5], np.ones((1, M))])))

    np.testing.assert_allclose(more.ability[:5], few.ability, atol=1e-12)
    np.testing.assert_allclose(more.ability_covariance[:5, :5], few.ability_covariance, atol=1e-12)
    assert more.endless.tolist() == [0] * 5 + [1]
    row = next(row for row in abilities(more, more.data) if row.model == "model_5")
    assert row.high is None
    assert more.limits()[0][5] < more.ability[5]


def test_all_right_is_as_likely_as_not_where_it_is_scored(bank):
    sure = replace(bank, item_covariance=None)
    scored = score_models(sure, ResponseMatrix.from_array(np.vstack([np.ones(M), np.zeros(M)])))
    right = special.expit(scored.ability[:, None] - sure.difficulty)

    assert np.prod(right[0]) == pytest.approx(0.5, rel=0.01)
    assert np.prod(1 - right[1]) == pytest.approx(0.5, rel=0.01)
    assert scored.limits()[0][0] < scored.ability[0]
    assert np.isinf(scored.limits()[1][0])


def test_errors_of_the_items_hardly_move_those_scored():
    """Banks of other models, the same items: what scoring leaves out of the errors."""
    later = drawn(1, n=4)[0]
    scored = [
        score_models(fit_irt(drawn(seed)[0], "rasch"), later, method="wle") for seed in range(2, 22)
    ]
    between = np.var([one.ability for one in scored], axis=0, ddof=1).mean()
    given = np.mean([one.ability_covariance.diagonal() for one in scored])

    assert between < 0.02 * given


def test_a_refit_is_linked_to_the_bank(bank):
    """Abler models and other items: on the scale of the bank, with the error of the link."""
    matrix, theta, _ = drawn(3, shift=1.0)
    fit, own = fit_irt(matrix, "rasch", zero=bank), fit_irt(matrix, "rasch")
    linked = link(bank, own)
    start = zero_of(Curves.of(bank)).at

    assert start == pytest.approx(0, abs=1e-9)
    np.testing.assert_allclose(fit.ability, linked.ability)
    np.testing.assert_allclose(fit.ability_covariance, linked.ability_covariance)
    assert fit.hyperparameters["link"]["bank"] == bank.version
    assert any(f"bank {bank.version}" in note for note in fit.notes)
    assert fit.ability.mean() - bank.ability.mean() == pytest.approx(
        theta.mean() - drawn(0)[1].mean(), abs=0.15
    )
    assert (fit.ability_std_error >= own.ability_std_error - 1e-12).all()


def test_fits_of_other_scales_are_not_linked(bank):
    matrix, *_ = drawn(3)
    for item_model in ("factor", "graded"):
        with pytest.raises(SelectionError, match="not linked to a bank"):
            fit_irt(matrix, item_model, zero=bank)


def test_recipes_are_on_the_scale_of_the_bank(bank):
    """Stretched and shifted: each recipe's intervals are about the linked abilities."""
    far = replace(bank, difficulty=2 * bank.difficulty + 3, discrimination=bank.discrimination / 2)
    matrix = drawn(4, n=12)[0]
    fit = fit_irt(matrix, zero=replace(far, item_model="2pl"))
    for row in fit.uncertainty(recipes=["items", "sandwich"], n_resamples=60, rng=0):
        own = fit.models.index(row.model)

        assert row.estimate == pytest.approx(fit.ability[own], abs=0.4)
        assert row.high - row.low == pytest.approx(
            np.diff(fit.limits(), axis=0)[0][own], rel=0.5
        ), row.recipe


def test_models_all_right_have_a_limit_where_abilities_are_integrated_out():
    """They move the others by less than leaving them out does; there is no limit above."""
    scores = drawn(5, n=60, m=40)[0].scores[:, :, 0]
    scores[0], scores[0, :1] = 1, 0
    prior = MmlOptions(prior="estimated")
    near = fit_irt(ResponseMatrix.from_array(scores), options=prior)
    scores[0] = 1
    fit = fit_irt(ResponseMatrix.from_array(scores), options=prior)
    without = fit_irt(ResponseMatrix.from_array(scores[1:]), options=prior)
    moved, left_out = (
        np.abs(x - near.ability[1:]).max() for x in (fit.ability[1:], without.ability)
    )

    assert fit.endless.tolist() == [1] + [0] * 59
    assert np.isnan(fit.ability_std_error[0])
    assert np.isinf(fit.limits()[1][0])
    assert fit.limits()[0][0] < fit.ability[0]
    assert fit.ability[0] > near.ability[0]
    assert any(note.startswith("all right: model_0. They hardly move") for note in fit.notes)
    assert moved < min(0.05, left_out)


def test_where_nobody_is_right_on_everything_there_is_no_limit():
    """With upper asymptotes of .9, all right is as unlikely however able a model is."""
    scores = drawn(6, n=60, m=30)[0].scores[:, :, 0]
    scores[0] = 1
    fit = fit_irt(ResponseMatrix.from_array(scores), "2pl", options=MmlOptions(upper=0.9))

    assert fit.endless[0] == 0
    assert np.isfinite(fit.ability_std_error[0])
