"""Which estimator is chosen, why, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from evalstats_plugin import ResponseMatrix
from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.irt.fitting import choose, fit_irt
from evalstats_plugin.irt.methods import (
    ESTIMATORS,
    FitOptions,
    JmlOptions,
    MapOptions,
    McmcOptions,
    MmlItemsOptions,
    MmlOptions,
    SviOptions,
    ViOptions,
)
from evalstats_plugin.irt.scoring import score_models

pytestmark = pytest.mark.needs("torch")


def matrix(n, m, seed=0):
    rng = np.random.default_rng(seed)
    logit = rng.standard_normal((n, 1)) - rng.standard_normal(m)
    return ResponseMatrix.from_array((rng.random((n, m)) < 1 / (1 + np.exp(-logit))).astype(float))


@pytest.mark.parametrize(
    ("shape", "item_model", "expected", "reason"),
    [
        ((8, 60), "rasch", "mml-items", "8 models, fewer than 300"),
        ((300, 40), "2pl", "mml", "300 models, 300 or more"),
        ((299, 299), "rasch", "mml-items", "299 models, fewer than 300"),
        ((11, 10), "rasch", "mml", "11 models are more than 10 items"),
        ((10, 10), "rasch", "mml-items", "10 models, fewer than 300"),
        ((20, 30), "3pl", "mml", "only mml fits a 3pl"),
    ],
)
def test_auto_goes_by_shape_and_says_why(shape, item_model, expected, reason):
    """The measured rule: under 300 models items are integrated out, unless models are more."""
    choice = choose(item_model, "auto", shape)

    assert expected == choice.estimator
    assert reason in choice.reason


SEARCHES = [MmlItemsOptions, MmlOptions, MapOptions, JmlOptions, ViOptions]


@pytest.mark.parametrize("options", SEARCHES)
def test_a_search_that_is_cut_short_says_so(options):
    """Whatever is searched for: in its notes and diagnostics, and only then."""
    answers = matrix(12, 30)
    cut, whole = (fit_irt(answers, "rasch", options=o) for o in (options(max_steps=1), options()))

    assert (cut.diagnostics["converged"], whole.diagnostics["converged"]) == (False, True)
    assert any("not converged after 1 step: " in note for note in cut.notes)
    assert not any("not converged" in note for note in whole.notes)


def test_what_auto_chose_is_in_the_fit():
    """With its reason, and with a prior where items are estimated along."""
    fit = fit_irt(matrix(50, 10), "rasch")

    assert fit.estimator == "mml"
    assert "50 models are more than 10 items" in fit.diagnostics["reason"]
    assert fit.diagnostics["prior"] != "none"


def test_what_does_not_exist_is_named_with_what_is_close():
    """Estimators, item models, options, scores."""
    with pytest.raises(SelectionError, match="did you mean mml"):
        fit_irt(matrix(3, 5), estimator="mlm")
    with pytest.raises(SelectionError, match="no item model is called '5pl'"):
        fit_irt(matrix(3, 5), "5pl")
    with pytest.raises(SelectionError, match="no item prior is called 'wek'; did you mean weak"):
        MmlOptions(prior="wek")  # type: ignore[arg-type]
    with pytest.raises(SelectionError, match="'mml-items' fits rasch, 2pl, not '3pl': choose mml"):
        fit_irt(matrix(3, 5), "3pl", "mml-items")
    fit = fit_irt(matrix(30, 5), "rasch", "mml")
    with pytest.raises(SelectionError, match="no score is called 'mean'"):
        score_models(fit, matrix(3, 5), method="mean")  # type: ignore[arg-type]


NOTED = {
    "jml": "stretches abilities",
    "map": "shrink abilities",
    "vi": "too narrow",
    "mcmc": "posterior draws",
}
"""What each estimator that is taken on request only says of itself."""
QUICK: dict[str, FitOptions] = {
    "mcmc": McmcOptions(chains=2, draws=60, warm_up=20),
    "vi": ViOptions(max_steps=400),
    "svi": SviOptions(steps=80, learning_rate=0.1),
    "jml": JmlOptions(max_steps=60),
    "mml": MmlOptions(prior="weak"),
}


def graded(n=6, m=60):
    """Models in the order of their ability, one unit apart."""
    rng = np.random.default_rng(4)
    logit = np.arange(n)[:, None] - (n - 1) / 2 - rng.standard_normal(m)
    return ResponseMatrix.from_array((rng.random((n, m)) < 1 / (1 + np.exp(-logit))).astype(float))


@pytest.mark.parametrize(
    ("estimator", "item_model"),
    [(name, m) for name, e in ESTIMATORS.items() for m in e.item_models if m != "factor"],
)
def test_every_estimator_of_the_table_fits(estimator, item_model):
    """In order, with errors, noted, the same again; a row that cannot be run is no row."""
    options = QUICK.get(estimator)
    data = graded()
    fit, again = (fit_irt(data, item_model, estimator, rng=7, options=options) for _ in range(2))

    assert (estimator, item_model) == (fit.estimator, fit.item_model)
    assert (np.argsort(fit.ability) == np.arange(6)).all()
    assert (fit.ability_std_error > 0).all()
    assert np.isfinite(fit.predict()).all()
    assert np.corrcoef(fit.predict().mean(axis=0), data.scores[..., 0].mean(axis=0))[0, 1] > 0.9
    assert (np.isfinite(fit.difficulty_std_error) & (fit.difficulty_std_error > 0)).mean() > 0.7
    assert NOTED.get(estimator, "") in " ".join(fit.notes)
    assert fit.diagnostics["reason"] == "asked for"
    assert item_model == "2pl" or estimator == "mcmc" or fit.diagnostics["converged"] is not False
    if "sum to 0" in fit.identification:
        assert fit.ability.sum() == pytest.approx(0, abs=1e-9)
    np.testing.assert_array_equal(fit.ability, again.ability)
    np.testing.assert_array_equal(fit.ability_covariance, again.ability_covariance)
    np.testing.assert_array_equal(fit.difficulty, again.difficulty)


def test_draws_go_by_the_generator_and_tell_whether_chains_were_compared():
    one, other = (
        fit_irt(graded(), "rasch", "mcmc", rng=seed, options=QUICK["mcmc"]) for seed in (1, 2)
    )

    assert not np.array_equal(one.ability, other.ability)
    known = one.diagnostics["converged"] is not None
    assert known == ("r_hat" in one.diagnostics)
    assert known != any("chains agree was not checked" in note for note in one.notes)


def test_long_chains_agree_and_short_ones_are_noted(monkeypatch):
    """The same answers: only the number of draws differs.

    R-hat is above 1 in proportion to 1 / draws: 300 of them may have three times the limit.
    """
    monkeypatch.setattr("evalstats_plugin.runtime.chains.R_HAT_LIMIT", 1.03)
    options = McmcOptions(draws=300, warm_up=100)
    long, short = (
        fit_irt(graded(), "rasch", "mcmc", rng=3, options=o) for o in (options, QUICK["mcmc"])
    )

    assert long.diagnostics["converged"] is True
    assert long.diagnostics["r_hat"] < 1.03
    assert short.diagnostics["converged"] is False
    assert not any("chains disagree" in note for note in long.notes)
    assert any("chains disagree" in note for note in short.notes)
    assert long.ability == pytest.approx(fit_irt(graded(), "rasch", "mml-items").ability, abs=0.25)


@pytest.mark.parametrize("estimator", ["jml", "map", "vi", "mcmc"])
def test_all_right_and_all_wrong_stay_finite(estimator):
    """A model all right, an item all wrong but for it, an item all right."""
    data = graded()
    scores = data.scores.copy()
    scores[:, 0] = 1
    scores[5] = 1
    odd = ResponseMatrix.from_array(scores)
    fit = fit_irt(odd, "rasch", estimator, rng=0, options=QUICK.get(estimator))

    assert np.isfinite(fit.ability).all()
    assert np.isfinite(fit.ability_std_error).all()
    assert np.isfinite(fit.difficulty).all()
    assert fit.ability.argmax() == 5
    # Means of chains have a Monte-Carlo error.
    chance = 0.1 if estimator == "mcmc" else 1e-9
    assert fit.difficulty[0] == pytest.approx(fit.difficulty.min(), abs=chance)


def test_what_an_estimator_cannot_fit_is_refused():
    """Options of another estimator, a strength, signs."""
    half = ResponseMatrix.from_array([[0.5, 1, 0], [1, 0, 0.5]])
    with pytest.raises(SelectionError, match="not options of estimator map: pass MapOptions"):
        fit_irt(half, "rasch", "map", options=MmlOptions())
    with pytest.raises(SelectionError, match="strength -1 is not a number above 0"):
        MapOptions(strength=-1)
    with pytest.raises(SelectionError, match="signed discriminations are of a 2pl"):
        fit_irt(half, "rasch", options=MmlItemsOptions(signed=True))


def test_options_choose_their_estimator():
    fit = fit_irt(graded(), "2pl", options=JmlOptions(max_steps=9))

    assert fit.estimator == "jml"
    assert fit.diagnostics["reason"] == "its options, JmlOptions, were passed"
    assert fit.diagnostics["iterations"] <= 9


@pytest.mark.parametrize(
    ("options", "wrong", "message"),
    [
        (MmlOptions, {"max_steps": 0}, "max_steps 0 is not a whole number of 1 or more"),
        (MmlOptions, {"dispersion": -1}, "dispersion -1 is not a number above 0"),
        (MmlOptions, {"guessing_prior": (0, 0)}, "standard deviation of guessing_prior 0 is not"),
        (ViOptions, {"max_steps": -3}, "max_steps -3 is not a whole number"),
        (SviOptions, {"steps": 0}, "steps 0 is not a whole number of 2 or more"),
        (McmcOptions, {"draws": 1}, "draws 1 is not a whole number of 2 or more"),
        (McmcOptions, {"warm_up": -1}, "warm_up -1 is not a whole number of 0 or more"),
        (MmlOptions, {"nodes": 31.5}, "nodes 31.5 is not a whole number of 3 or more"),
        (MmlOptions, {"tolerance": -1.0}, "tolerance -1.0 is not a number above 0"),
        (ViOptions, {"tolerance": np.nan}, "tolerance nan is not a number above 0"),
        (McmcOptions, {"chains": 0}, "chains 0 is not a whole number"),
    ],
)
def test_options_that_cannot_be_are_refused(options: Any, wrong: dict[str, Any], message: str):
    """They ended in errors of Python, abilities of -300, or steps that were not asked for."""
    with pytest.raises(SelectionError, match=message):
        options(**wrong)


@pytest.mark.parametrize("options", [MmlOptions, ViOptions])
@pytest.mark.parametrize("most", [1, 2, 3, 5])
def test_no_search_takes_more_steps_than_allowed(options: Any, most: int):
    """An extrapolation, which takes two, went beyond them."""
    fit = fit_irt(matrix(12, 30), "2pl", options=options(max_steps=most))

    assert fit.diagnostics["iterations"] == most


def test_ordered_scores_are_linked_by_common_items_too():
    """A model without a score had an ability; an item without any was called one that all share."""
    grades = np.random.default_rng(0).integers(1, 4, (20, 6)).astype(float)
    for cells, message in (
        (np.s_[7], r"fall apart into 2 groups .*model_7 \(0 items\)"),
        (np.s_[:, 3], r"1 item without a score of any model \(item_3\)"),
    ):
        some = grades.copy()
        some[cells] = np.nan
        with pytest.raises(DesignError, match=message):
            fit_irt(ResponseMatrix.from_array(some), "graded")


@pytest.mark.parametrize(
    ("scores", "item_model", "estimator", "message"),
    [
        (np.ones((5, 12)), "2pl", "mml", "each of 12 items is all right or all wrong"),
        ([[1, 0], [1, 0]], "rasch", "mml", "each of 2 items is all right or all wrong"),
    ],
)
def test_answers_that_have_no_estimate_are_refused(
    scores: Any, item_model: str, estimator: str, message: str
):
    with pytest.raises(DesignError, match=message):
        fit_irt(ResponseMatrix.from_array(scores), item_model, estimator)


def test_errors_that_are_not_finite_are_said():
    fit = fit_irt(ResponseMatrix.from_array(np.eye(2)), "2pl", "mml")
    missing = int(np.isnan(fit.discrimination_std_error).sum())

    assert missing > 0
    assert any(note.startswith(f"{missing} items have no standard error") for note in fit.notes)
    rng = np.random.default_rng(0)
    fine = fit_irt(ResponseMatrix.from_array(rng.random((40, 10)) < 0.5), "rasch", "mml")
    assert not any("no standard error" in note for note in fine.notes)


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
    assert ("1 item not in the fit: left out",) == scored.notes
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


def test_draws_that_turn_the_scale_round_are_noted():
    """Answers by chance do not tell able from unable; answers by ability do."""
    rng = np.random.default_rng(5)
    options = McmcOptions(chains=4, draws=60, warm_up=20)
    chance = ResponseMatrix.from_array(rng.integers(0, 2, (4, 12)).astype(float))
    ladder = (np.arange(12)[:, None] + rng.normal(size=(12, 60)) > 6).astype(float)
    notes = [
        fit_irt(matrix, "2pl", "mcmc", rng=1, options=options).notes
        for matrix in (chance, ResponseMatrix.from_array(ladder))
    ]

    assert [True, False] == [any("turned round" in note for note in each) for each in notes]


def test_partial_credit_of_many_models_has_the_dispersion_it_was_drawn_with():
    rng = np.random.default_rng(0)
    theta, b = rng.normal(size=400), rng.normal(size=30)
    p = 1 / (1 + np.exp(-(theta[:, None] - b)))
    fit = fit_irt(ResponseMatrix.from_array(rng.beta(8 * p, 8 * (1 - p))))
    error = fit.ability - fit.ability.mean() - theta + theta.mean()

    assert fit.estimator == "mml"
    assert fit.hyperparameters["dispersion"] == pytest.approx(1 / 9, rel=0.08)
    assert np.std(error / fit.ability_std_error) == pytest.approx(1, abs=0.12)
    assert any(note.startswith("scores vary 0.12 times as much") for note in fit.notes)


def test_nodes_too_far_apart_are_not_called_converged():
    rng = np.random.default_rng(0)
    p = 1 / (1 + np.exp(-(rng.normal(size=500)[:, None] - rng.normal(size=200))))
    right = ResponseMatrix.from_array((rng.random(p.shape) < p).astype(float))
    coarse, fine = (fit_irt(right, options=MmlOptions(nodes=n)) for n in (15, 121))

    assert not coarse.diagnostics["converged"]
    assert any("with twice as many nodes" in note for note in coarse.notes)
    assert fine.diagnostics["converged"]


def test_a_3pl_of_models_that_nothing_tells_apart_is_refused():
    with pytest.raises(DesignError, match="all right or all wrong"):
        fit_irt(ResponseMatrix.from_array(np.zeros((5, 60))), "3pl")


def test_a_scale_that_the_answers_do_not_determine_is_noted():
    few_items = matrix(60, 4, seed=2)
    unsure, held = (fit_irt(few_items, "2pl", name) for name in ("mml", "auto"))

    assert np.nanmedian(unsure.ability_std_error) > 3 * unsure.ability_distribution[1]
    assert any(note.startswith("the answers do not determine the scale") for note in unsure.notes)
    for fit in (held, fit_irt(few_items, "2pl", "mml-items")):
        assert "determine" not in " ".join(fit.notes)
