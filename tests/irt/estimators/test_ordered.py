"""Graded responses and generalised partial credit: by definition, beside mirt, and on truth."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import optimize, special

from evalstats_plugin import ResponseMatrix
from evalstats_plugin.errors import DesignError, LogError, SelectionError
from evalstats_plugin.irt import (
    IRTFit,
    MmlOptions,
    OrderedFit,
    OrderedOptions,
    abilities,
    fit_irt,
    score_models,
)
from evalstats_plugin.irt.estimators.ordered import _Problem, log_chances
from evalstats_plugin.irt.model.data import levels_of
from evalstats_plugin.irt.model.fit import load_fit

GOLDEN = Path(__file__).parents[3] / "fixtures" / "golden"
MODELS = ("graded", "gpcm")


def drawn(item_model, n, m, k, seed=0, theta=None):
    """Scores of levels 1, …, k, abilities, slopes and steps (m, k - 1)."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=n) if theta is None else theta
    a = np.exp(0.3 * rng.normal(size=m))
    steps = np.sort(rng.normal(size=(m, 1)) + np.linspace(-1.5, 1.5, k - 1)
                    + 0.2 * rng.normal(size=(m, k - 1)), axis=1)  # fmt: skip
    chance = chances(item_model, theta, a, steps)
    above = np.cumsum(chance, axis=2)[..., :-1]
    scores = 1.0 + (rng.random((n, m, 1)) > above).sum(axis=2)
    return scores, theta, a, steps


def chances(item_model, theta, a, steps):
    """P of each level, shape (N, M, K), as the formulas say."""
    logit = a[:, None] * (theta[:, None, None] - steps)
    ones = np.ones((*logit.shape[:2], 1))
    if item_model == "graded":
        return -np.diff(np.concatenate([ones, special.expit(logit), 0 * ones], axis=2), axis=2)
    odds = np.exp(np.concatenate([0 * ones, np.cumsum(logit, axis=2)], axis=2))
    return odds / odds.sum(axis=2, keepdims=True)


def fitted(scores, item_model, zero="items", **options):
    matrix = ResponseMatrix.from_array(scores)
    return fit_irt(matrix, item_model, zero=zero, options=OrderedOptions(**options))


@pytest.mark.parametrize("item_model", MODELS)
@pytest.mark.parametrize("name", ["LSAT6", "LSAT7"])
def test_two_levels_are_the_2pl_of_mirt(name, item_model):
    known = json.loads((GOLDEN / "irt.json").read_text())
    expected = next(e for e in known["fits"] if (e["data"], e["model"]) == (name, "2pl"))
    rows = np.array([[float(c) for c in pattern] for pattern in known["data"][name]])
    fit = fitted(np.repeat(rows, list(known["data"][name].values()), axis=0), item_model, "models")

    assert fit.diagnostics["log_likelihood"] == pytest.approx(expected["log_likelihood"], abs=1e-5)
    np.testing.assert_allclose(fit.discrimination, expected["discrimination"], atol=2e-4)
    np.testing.assert_allclose(
        fit.discrimination_std_error, expected["discrimination_std_error"], atol=2e-4
    )
    np.testing.assert_allclose(
        -fit.discrimination * fit.steps[:, 0], expected["intercept"], atol=2e-4
    )


def test_science_agrees_with_mirt():
    """To four decimals; of gpcm, which mirt left short of its optimum, to a tenth of an error.

    Our figures are made by tests/generate/ordered.py.
    """
    known = json.loads((GOLDEN / "ordered.json").read_text())
    for item_model, close in (("graded", 1e-4), ("gpcm", 0.1)):
        ours, theirs = known["ours"][item_model], known["mirt"][item_model]
        items = list(theirs["items"].values())
        unit = np.array(ours["a_std_error"]) if item_model == "gpcm" else 1.0

        assert ours["converged"]
        assert -1e-5 <= ours["log_likelihood"] - theirs["log_likelihood"] < 2e-3
        assert (np.abs(np.array(ours["a"]) - [x["a"] for x in items]) < close * unit).all()
        apart = np.abs(np.array(ours["d"]) - [x["d"] for x in items]).max()
        assert apart < (1e-4 if item_model == "graded" else 0.2)
    errors = [x["a_std_error"] for x in known["mirt"]["graded"]["items"].values()]
    np.testing.assert_allclose(known["ours"]["graded"]["a_std_error"], errors, atol=1e-4)


@pytest.mark.parametrize("item_model", MODELS)
def test_the_likelihood_is_the_sum_over_abilities(item_model):
    """Of every model, by the formulas, where a score is missing and one level is never reached."""
    scores, *_ = drawn(item_model, 60, 5, 4)
    scores[0, 0], scores[:, 1] = np.nan, np.where(scores[:, 1] == 2, 3, scores[:, 1])
    fit = fitted(scores, item_model, "models", prior="none")
    at = np.linspace(-6, 6, 121)
    weight = np.exp(-(at**2) / 2) / np.exp(-(at**2) / 2).sum()
    total = np.ones((60, len(at)))
    for j in range(5):
        own = np.isfinite(fit.level[j])
        p = chances(item_model, at, fit.discrimination[j : j + 1], fit.steps[j : j + 1, own[1:]])
        levels = 1 + fit.level[j, own]
        for i in np.flatnonzero(np.isfinite(scores[:, j])):
            total[i] *= p[:, 0, np.flatnonzero(levels == scores[i, j])[0]]

    assert fit.level[1].tolist()[:3] == [0, 2, 3]
    assert np.isnan(fit.steps[1, 2])
    assert fit.diagnostics["log_likelihood"] == pytest.approx(
        np.log(total @ weight).sum(), abs=1e-6
    )
    mean = total @ (weight * at) / (total @ weight)
    np.testing.assert_allclose(fit.ability, mean, atol=1e-6)


@pytest.mark.parametrize("with_prior", [False, True])
@pytest.mark.parametrize("item_model", MODELS)
def test_derivatives(item_model, with_prior):
    scores, *_ = drawn(item_model, 20, 4, 4)
    matrix = ResponseMatrix.from_array(scores)
    problem = _Problem.of(levels_of(matrix.scores)[1], item_model, with_prior=with_prior)
    point = problem.start() + 0.1 * np.random.default_rng(0).normal(size=problem.size)
    found = problem.loss(point)[1]
    expected = optimize.approx_fprime(point, lambda x: problem.loss(x)[0], 1e-6)

    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_levels_far_from_an_ability_keep_their_digits():
    for graded in (True, False):
        logit = np.array([[[60.0], [58.0], [-700.0]]])
        found = log_chances(logit, graded=graded)

        assert np.isfinite(found).all()
        assert np.exp(found).sum() == pytest.approx(1)


@pytest.mark.parametrize("n_sets", [2, pytest.param(5, marks=pytest.mark.validation)])
@pytest.mark.parametrize("item_model", MODELS)
def test_truth_comes_back_with_its_errors(item_model, n_sets):
    """Intervals of abilities, slopes and steps, on the items' scale, over sets of answers."""
    inside = []
    for seed in range(n_sets):
        scores, theta, a, steps = drawn(item_model, 400, 8, 4, seed)
        fit = fitted(scores, item_model)
        unit = np.exp(np.mean(np.log(a)))
        at = zero_by_bisection(item_model, a, steps)
        truth = (unit * (theta - at), a / unit, unit * (steps - at))
        found = (
            (fit.ability, fit.ability_std_error),
            (fit.discrimination, fit.discrimination_std_error),
            (fit.steps, fit.steps_std_error),
        )
        inside.append(
            [np.mean(np.abs(x - t) < 1.96 * e) for (x, e), t in zip(found, truth, strict=True)]
        )
        assert fit.diagnostics["converged"]
        assert np.corrcoef(fit.ability, theta)[0, 1] > 0.8
    held = np.mean(inside, axis=0)

    assert 0.92 < held[0] < 0.98
    assert held[1] > 0.85
    assert held[2] > 0.85


def zero_by_bisection(item_model, a, steps):
    """Ability at which the average item's expected level is halfway."""
    k = np.arange(steps.shape[1] + 1)
    return optimize.brentq(
        lambda t: (chances(item_model, np.array([t]), a, steps) @ k).mean() - k[-1] / 2, -9, 9
    )


@pytest.mark.parametrize("item_model", MODELS)
def test_the_scale_is_that_of_the_items(item_model):
    scores, *_ = drawn(item_model, 150, 6, 4, 3)
    fit, own = fitted(scores, item_model), fitted(scores, item_model, "models")
    named = fitted(scores, item_model, "model_5")

    assert np.mean(np.log(fit.discrimination)) == pytest.approx(0, abs=1e-9)
    assert zero_by_bisection(item_model, fit.discrimination, fit.steps) == pytest.approx(
        0, abs=1e-6
    )
    assert fit.identification.startswith("0 is where the average item's expected score")
    assert named.ability[5] == named.ability_std_error[5] == 0
    np.testing.assert_allclose(np.diff(named.ability), np.diff(fit.ability), atol=1e-9)
    for one in (own, named):
        np.testing.assert_allclose(one.predict(), fit.predict(), atol=1e-8)
    by_hand = chances(item_model, fit.ability, fit.discrimination, fit.steps) @ np.arange(1, 5)
    np.testing.assert_allclose(fit.predict(), by_hand, atol=1e-9)


def test_a_fit_against_the_scale_is_turned():
    """Start values are positive slopes; reversed levels are found as well."""
    scores, theta, *_ = drawn("graded", 300, 6, 4, 1)
    fit = fitted(5 - scores, "graded")

    assert (fit.discrimination > 0).all()
    assert np.corrcoef(fit.ability, theta)[0, 1] < -0.7


def test_epochs_of_right_and_wrong_are_counted():
    """How many of 3 are right is the level; grades of several epochs are answers of their own."""
    rng = np.random.default_rng(0)
    right = (rng.random((40, 10, 3)) < special.expit(rng.normal(size=(40, 1, 1)))).astype(float)
    counted, summed = fitted(right, "gpcm"), fitted(right.sum(axis=2), "gpcm")
    grades = np.stack([drawn("graded", 40, 6, 4, s)[0] for s in (0, 0)], axis=2)
    matrix = ResponseMatrix.from_array(grades)
    twice = levels_of(matrix.scores)[1]
    problem = _Problem.of(twice, "graded", with_prior=False)

    assert counted.diagnostics["levels"] == [0, 1, 2, 3]
    np.testing.assert_array_equal(counted.ability, summed.ability)
    assert twice.shape == (40, 6, 2)
    assert sum(g.seen.sum() for g in problem.groups) == twice.size


def test_what_cannot_be_fitted_is_said():
    scores, *_ = drawn("graded", 30, 5, 4)
    rng = np.random.default_rng(0)
    flat, missing = np.full((30, 5), [1, 2, 3, 4, 3.0]), np.stack([scores > 2.0] * 2, axis=2) * 1.0
    missing[0, 0, 0] = np.nan

    with pytest.raises(DesignError, match="levels, more than 20"):
        fitted(rng.random((30, 5)), "graded")
    with pytest.raises(DesignError, match="same score on every item"):
        fitted(flat, "graded")
    with pytest.raises(DesignError, match="numbers of epochs"):
        fitted(missing, "graded")
    with pytest.raises(DesignError, match="2 models or more"):
        fitted(scores[:1], "graded")
    with pytest.raises(SelectionError, match="no zero is called 'item'"):
        fitted(scores, "graded", "item")
    matrix = ResponseMatrix.from_array(scores)
    for chosen, said in (
        ({"estimator": "vi"}, "estimator mml alone"),
        ({"options": MmlOptions()}, "pass OrderedOptions"),
        ({"guessing": 0.25}, "nothing is guessed"),
        ({"dtype": "float32"}, "float64"),
    ):
        with pytest.raises(SelectionError, match=said):
            fit_irt(matrix, "graded", **chosen)
    with pytest.raises(SelectionError, match="no item prior is called 'normal'"):
        OrderedOptions(prior="normal")


@pytest.mark.parametrize("item_model", MODELS)
def test_an_item_that_tells_nothing_is_set_aside(item_model):
    scores, *_ = drawn(item_model, 40, 6, 4)
    alone = fitted(scores, item_model)
    fit = fitted(np.insert(scores, 2, 3.0, axis=1), item_model)

    np.testing.assert_allclose(fit.ability, alone.ability, atol=1e-6)
    assert np.isnan(fit.discrimination[2])
    assert (fit.predict()[:, 2] == 3).all()
    assert any("set aside: item_2" in note for note in fit.notes)


def test_items_that_answers_do_not_tell_have_no_errors():
    """Few models on many items: the likelihood is flat without a prior."""
    scores, *_ = drawn("gpcm", 6, 8, 4)
    fit = fitted(scores, "gpcm", prior="none")

    assert np.isnan(fit.steps_std_error).all()
    assert np.isfinite(fit.ability_std_error).all()
    assert any("prior=weak" in note for note in fit.notes)
    assert np.isfinite(fitted(scores, "gpcm").discrimination_std_error).all()


def test_a_search_that_is_cut_short_says_so():
    fit = fitted(drawn("gpcm", 60, 6, 4)[0], "gpcm", max_steps=2)

    assert fit.diagnostics["converged"] is False
    assert any("not converged after 2 steps" in note for note in fit.notes)


def test_a_fit_is_saved_shown_and_not_taken_for_another(tmp_path):
    scores, *_ = drawn("graded", 25, 6, 4)
    fit = fitted(scores, "graded")
    matrix = ResponseMatrix.from_array(scores)
    file = fit.save(tmp_path / "fit.parquet")
    again = load_fit(file)
    rows = abilities(fit, matrix, baseline="model_0")

    assert isinstance(again, OrderedFit)
    for name in ("ability", "ability_covariance", "steps", "steps_std_error", "level"):
        np.testing.assert_array_equal(getattr(again, name), getattr(fit, name))
    assert again.summary() == fit.summary()
    assert len(rows) == 25
    assert rows[0].estimate == fit.ability.max()
    assert len(rows.differences) == 24
    assert list(fit.to_frame("items"))[-2:] == ["step_3", "step_3_std_error"]
    assert any("fewer than 300" in note for note in fit.notes)
    with pytest.raises(LogError, match="holds a OrderedFit"):
        IRTFit.load(file)
    with pytest.raises(SelectionError, match="ordered scores"):
        score_models(fit, matrix)


@pytest.mark.parametrize("item_model", MODELS)
def test_errors_from_a_model_s_zero_are_those_of_the_differences(item_model):
    """The zero is as unsure as that model; its own error is 0."""
    scores = drawn(item_model, 40, 8, 4)[0]
    matrix = ResponseMatrix.from_array(scores)
    options = OrderedOptions(std_errors=False)
    whole = fit_irt(matrix, item_model, options=options)
    fit = fit_irt(matrix, item_model, zero="model_3", options=options)

    a, b = whole.ability, whole.ability_covariance
    np.testing.assert_allclose(fit.ability, a - a[3], atol=1e-9)
    others = np.delete(np.arange(40), 3)
    np.testing.assert_allclose(
        fit.ability_covariance[np.ix_(others, others)],
        b[np.ix_(others, others)] - b[others, 3][:, None] - b[3, others] + b[3, 3],
    )
    assert fit.ability_std_error[3] == 0


@pytest.mark.parametrize(("n", "more", "wanted"), [(98, (), True), (97, (0, 1, 2, 2), False)])
def test_errors_of_two_hundred_parameters_are_wanted(n, more, wanted, monkeypatch):
    """And of more where they are asked for; none are computed here, as if items told nothing."""
    monkeypatch.setattr(_Problem, "errors", lambda *_: (None, None))
    columns = [[0, 1, 0, 1]] * n + [[0, 1, 2, 3]] + ([more] if more else [])
    scores = np.array(columns, dtype=float).T
    for std_errors, expected in ((None, wanted), (True, True)):
        fit = fitted(scores, "gpcm", "models", max_steps=1, std_errors=std_errors)
        assert fit.diagnostics["n_parameters"] == 200 + (not wanted)
        assert any("take a prior" in note for note in fit.notes) == expected
        assert any("std_errors=True computes" in note for note in fit.notes) != expected


@pytest.mark.parametrize("item_model", MODELS)
def test_errors_of_items_are_those_of_the_delta_method(item_model):
    """Numerical derivatives of what is reported, by plain parameters."""
    rng = np.random.default_rng(1)
    scores = drawn(item_model, 30, 5, 4)[0]
    scores[:, 1] = np.minimum(scores[:, 1], 2)
    problem = _Problem.of(levels_of(scores[..., None])[1], item_model, with_prior=True)
    point = problem.plain(problem.start() + 0.1 * rng.normal(size=problem.size))
    root = rng.normal(size=(problem.size, problem.size))
    spread, unit, at = root @ root.T, 1.3, 0.4

    def reported(values):
        record = problem.record(values, unit, at, None)
        return np.concatenate([record.slope, record.steps.ravel()])

    by = np.stack(
        [(reported(point + h) - reported(point - h)) / 2e-6 for h in 1e-6 * np.eye(problem.size)],
        axis=1,
    )
    record = problem.record(point, unit, at, spread)
    found = np.concatenate([record.slope_error, record.steps_error.ravel()])
    np.testing.assert_allclose(found, np.sqrt(np.diag(by @ spread @ by.T)), rtol=1e-5)
    assert np.isnan(record.steps_error[1]).sum() == record.steps_error.shape[1] - 1
