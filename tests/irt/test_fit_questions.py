"""A fit knows its data: it answers what the functions of the package answer."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from evalstats_plugin import ResponseMatrix, irt
from evalstats_plugin.adaptive import item_bank
from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.irt import (
    FactorOptions,
    IRTFit,
    McmcOptions,
    abilities,
    fit_irt,
    hold_out,
    item_dif,
    item_fit,
    person_fit,
    score_models,
    simulate_responses,
    suspect_items,
    uncertainty,
)

MATRIX = simulate_responses(rng=3, n_models=12, n_items=40, item_model="rasch")[0]
FIT = fit_irt(MATRIX, "rasch")
FEATURES = pd.DataFrame({"item": [f"item_{j}" for j in range(13)], "words": np.arange(13.0)})


def test_a_fit_answers_as_the_functions_do():
    focal = list(MATRIX.models[:5])

    assert FIT.abilities() == abilities(FIT, MATRIX)
    assert FIT.items().rows == abilities(FIT, MATRIX, items=True).items
    assert FIT.item_fit().equals(item_fit(FIT, MATRIX))
    assert FIT.person_fit().equals(person_fit(FIT, MATRIX))
    assert FIT.dif(focal) == item_dif(FIT, MATRIX, focal)
    assert FIT.suspects() == suspect_items(FIT, MATRIX)
    assert FIT.hold_out(seeds=[0]) == hold_out(MATRIX, item_model="rasch", seeds=[0])
    one, other = FIT.bank(), item_bank(FIT, MATRIX)
    np.testing.assert_array_equal(one.intercept, other.intercept)
    np.testing.assert_array_equal(FIT.information([0.0]), irt.test_information(FIT, [0.0]))
    assert FIT.information().shape == (12,)
    rows = FIT.uncertainty(recipes=["model"])
    assert rows[0].low == uncertainty(FIT, MATRIX, ["model"])[0].low


def test_a_fit_with_guessing_predicts_with_it():
    """It was left out of the predictions."""
    fit = fit_irt(MATRIX, "rasch", guessing=0.3)

    assert fit.hold_out(seeds=[0]) == hold_out(MATRIX, item_model="rasch", guessing=0.3, seeds=[0])


def test_a_pair_is_compared_as_it_is():
    row = FIT.compare("model_3", "model_1")
    back = FIT.compare("model_1", "model_3")

    assert row.difference == pytest.approx(FIT.ability[3] - FIT.ability[1])
    assert (row.model_a, row.model_b) == ("model_1", "model_3")
    assert row.p_adjusted == row.p_value == pytest.approx(back.p_value)
    assert row.low == pytest.approx(-back.high)
    with pytest.raises(SelectionError, match="named twice"):
        FIT.compare("model_1", "model_1")
    with pytest.raises(SelectionError, match="no model is called 'model_77'"):
        FIT.compare("model_77", "model_1")


def test_draws_have_the_moments_of_the_fit():
    draws = FIT.draws(4000, rng=0)

    assert draws.shape == (4000, 12)
    assert draws.mean(axis=0) == pytest.approx(FIT.ability, abs=0.04)
    np.testing.assert_allclose(np.cov(draws.T), FIT.ability_covariance, atol=0.03)
    np.testing.assert_array_equal(FIT.draws(3, rng=1), FIT.draws(3, rng=1))
    with pytest.raises(SelectionError, match="draws are 0"):
        FIT.draws(0)


def test_draws_of_a_posterior_are_its_own():
    fit = fit_irt(MATRIX, "rasch", options=McmcOptions(chains=1, draws=20, warm_up=5), rng=0)
    own = fit.ability_draws.reshape(12, -1).T

    assert all((own == row).all(axis=1).any() for row in fit.draws(10, rng=0))


def test_a_model_all_right_is_drawn_from_its_limit():
    scores = MATRIX.scores[:, :, 0].copy()
    scores[0] = 1
    fit = fit_irt(ResponseMatrix.from_array(scores), "rasch")
    drawn = fit.draws(2000, rng=0)[:, 0]
    low = fit.limits(0.9)[0][0]

    assert np.isposinf(drawn).mean() == pytest.approx(0.5, abs=0.05)
    assert (drawn < low).mean() == pytest.approx(0.05, abs=0.02)


def test_draws_of_models_without_any_error_come_from_their_limits():
    """One all right, one all wrong: there is no covariance to draw from."""
    fit = fit_irt(ResponseMatrix.from_array([[1.0, 1, 1], [0, 0, 0]]), "rasch", "mml")
    drawn = fit.draws(500, rng=0)

    assert np.isposinf(drawn[:, 0]).mean() == pytest.approx(0.5, abs=0.07)
    assert np.isneginf(drawn[:, 1]).mean() == pytest.approx(0.5, abs=0.07)
    assert np.isnan(irt.reliability(fit).reliability)


def test_limits_and_draws_go_on_beyond_the_tails_that_are_kept():
    """Levels above .9999, and one of 30,000 draws."""
    scores = MATRIX.scores[:, :, 0].copy()
    scores[0], scores[1] = 1, 1
    scores[1, :2] = 0
    fit = fit_irt(ResponseMatrix.from_array(scores), "rasch")
    limits = np.array([fit.limits(level) for level in (0.99, 0.9999, 0.99999, 0.999999)])
    drawn = fit.draws(100_000, rng=0)

    assert (np.diff(limits[:, 0, :2], axis=0) < 0).all()
    assert np.isposinf(limits[:, 1, 0]).all()
    assert (np.diff(limits[:, 1, 1]) > 0).all()
    assert np.isfinite(limits[:, :, 1]).all()
    assert not np.isneginf(drawn).any()
    assert not np.isnan(drawn).any()


def test_a_fit_from_a_file_asks_for_the_answers(tmp_path):
    loaded = IRTFit.load(FIT.save(tmp_path / "fit.parquet"))

    assert loaded.data is None
    assert loaded.abilities(MATRIX) == abilities(FIT, MATRIX)
    with pytest.raises(DesignError, match="this fit does not hold its answers"):
        loaded.items()
    scored = score_models(loaded, MATRIX)
    assert scored.data is MATRIX


QUESTIONS = {
    "abilities": lambda fit: fit.abilities(),
    "items": lambda fit: fit.items(),
    "compare": lambda fit: fit.compare("model_0", "model_1"),
    "item_fit": lambda fit: fit.item_fit(),
    "person_fit": lambda fit: fit.person_fit(),
    "dif": lambda fit: fit.dif(["model_0", "model_1", "model_2"]),
    "suspects": lambda fit: fit.suspects(),
    "hold_out": lambda fit: fit.hold_out(seeds=[0]),
    "uncertainty": lambda fit: fit.uncertainty(recipes=["model"]),
    "bank": lambda fit: fit.bank(rng=0),
    "information": lambda fit: fit.information([0.0]),
    "link": lambda fit: irt.link(fit, FIT),
    "link to it": lambda fit: irt.link(FIT, fit),
    "predict_items": lambda fit: irt.predict_items(fit, FEATURES),
    "bootstrap": lambda fit: irt.bootstrap_abilities(fit, fit.data, n_resamples=40, rng=0),
    "s_x2": lambda fit: irt.s_x2(fit, fit.data),
    "m2": lambda fit: irt.m2(fit, fit.data),
    "q3": lambda fit: irt.q3(fit, fit.data),
    "reliability": irt.reliability,
    "marginal_reliability": irt.marginal_reliability,
}
"""What can be asked of a fit."""
ANSWERED = {
    "graded": {"abilities", "items", "compare", "m2", "q3", "reliability"},
    "factor": {"abilities", "items", "item_fit", "dif", "bank", "q3"},
}


@pytest.fixture(scope="module")
def fits_of_other_kinds() -> dict[str, Any]:
    """A fit of ordered scores and a factor model, of 24 models and 12 items."""
    random = np.random.default_rng(8)
    level = 2 + random.normal(size=(24, 1)) + random.normal(size=(24, 12))
    grades = ResponseMatrix.from_array(np.clip(np.round(level), 1, 3))
    right = ResponseMatrix.from_array((level > 2).astype(np.float64))
    return {
        "graded": fit_irt(grades, "graded"),
        "factor": fit_irt(right, "factor", options=FactorOptions(dimensions=2)),
    }


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("kind", ANSWERED)
def test_a_fit_of_another_kind_answers_or_says_what_it_can(
    question: str, kind: str, fits_of_other_kinds: dict[str, Any]
) -> None:
    fit = fits_of_other_kinds[kind]

    if question in ANSWERED[kind]:
        QUESTIONS[question](fit)
    else:
        with pytest.raises(DesignError, match=r"cannot be asked of a|M2 is of estimator mml"):
            QUESTIONS[question](fit)


def test_items_of_ordered_scores_have_a_row_for_each_step(
    fits_of_other_kinds: dict[str, Any],
) -> None:
    fit = fits_of_other_kinds["graded"]
    rows = fit.items().rows

    assert [row.step for row in rows] == pytest.approx(fit.steps.ravel().tolist())
    assert [row.level for row in rows[:2]] == [2.0, 3.0]
    assert rows[3].discrimination == fit.discrimination[1]
    assert rows[3].score == pytest.approx(fit.data.scores[:, 1].mean())
    difference = fit.compare("model_1", "model_0")
    assert difference.difference == pytest.approx(fit.ability[1] - fit.ability[0])
