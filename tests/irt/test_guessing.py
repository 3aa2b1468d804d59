"""Lower and upper asymptotes: given for all items, for each, by task, or estimated."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import special

from evalstats_plugin import ResponseMatrix, read
from evalstats_plugin.data.matrix import submatrix
from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.irt import (
    IRTFit,
    MmlItemsOptions,
    MmlOptions,
    fit_irt,
    hold_out,
    item_information,
    score_models,
    simulate_responses,
    suspect_items,
    uncertainty,
)
from evalstats_plugin.irt.bootstrap import _same_model

CHOICES = ["four"] * 150 + ["free"] * 150


def answered(n=10, m=300, seed=1):
    """Abilities that sum to 0, and answers to items of which the first half has four choices."""
    rng = np.random.default_rng(seed)
    theta, b = rng.normal(size=n), rng.normal(size=m)
    guess = np.where(np.arange(m) < m // 2, 0.25, 0.0)
    right = rng.random((n, m)) < guess + (1 - guess) * special.expit(theta[:, None] - b)
    tasks = ["four"] * (m // 2) + ["free"] * (m - m // 2)
    return theta - theta.mean(), ResponseMatrix.from_array(right.astype(float), tasks=tasks)


def slope(fit, theta):
    return (fit.ability - fit.ability.mean()) @ theta / (theta @ theta)


def test_guessing_by_task_keeps_the_scale_that_is_lost_without_it():
    theta, matrix = answered()
    given, without = (
        fit_irt(matrix, guessing=chance, zero="models") for chance in ({"four": 0.25}, 0.0)
    )

    assert given.guessing.tolist() == [0.25] * 150 + [0.0] * 150
    assert given.diagnostics["converged"]
    assert slope(given, theta) == pytest.approx(1.0, abs=0.1)
    assert slope(without, theta) < 0.9


def test_one_number_is_the_chance_of_every_item():
    _, matrix = answered()
    one, each = (fit_irt(matrix, guessing=c).ability for c in (0.2, [0.2] * 300))

    np.testing.assert_array_equal(one, each)


def test_a_common_chance_is_estimated_with_its_error():
    rng = np.random.default_rng(3)
    theta = rng.normal(size=20)
    p = 0.25 + 0.75 * special.expit(theta[:, None] - rng.normal(size=300))
    matrix = ResponseMatrix.from_array((rng.random(p.shape) < p).astype(float))
    fit = fit_irt(matrix, "rasch", options=MmlItemsOptions(estimate_guessing=True))
    given = fit_irt(matrix, "rasch", guessing=float(fit.guessing[0]))

    assert abs(fit.guessing[0] - 0.25) < 2 * fit.guessing_std_error[0]
    assert 0.01 < fit.guessing_std_error[0] < 0.08
    assert (fit.ability_std_error > given.ability_std_error).all()


def test_many_models_are_fitted_and_scored_with_the_chance_given():
    theta, matrix = answered(n=400, m=40, seed=2)
    fit = fit_irt(matrix, guessing={"four": 0.25})

    assert fit.estimator == "mml"
    assert fit.guessing.tolist() == [0.25] * 20 + [0.0] * 20
    assert np.corrcoef(fit.ability, theta)[0, 1] > 0.85
    assert np.isfinite(fit.difficulty_std_error).all()
    assert np.isnan(fit.guessing_std_error).all()
    assert np.corrcoef(score_models(fit, matrix).ability, fit.ability)[0, 1] > 0.99


@pytest.mark.parametrize(
    ("item_model", "options"), [("rasch", None), ("2pl", MmlOptions(max_steps=5))]
)
def test_models_below_chance_are_named(item_model, options):
    _, matrix = answered()
    scores = matrix.scores.copy()
    scores[0] = np.arange(300)[:, None] % 10 == 0
    low = ResponseMatrix.from_array(scores, tasks=CHOICES)

    assert any(
        note.startswith("right less often than by guessing: model_0")
        for note in fit_irt(low, item_model, guessing=0.25, options=options).notes
    )


@pytest.mark.parametrize("item_model", ["3pl", "4pl"])
@pytest.mark.parametrize("common", [False, True])
def test_forty_models_and_thirty_items_converge(item_model, common):
    """Seed 0 went to and fro for 2,000 steps while a step was halved only beyond 1e-9."""
    matrix, _ = simulate_responses(rng=0, n_models=40, n_items=30, item_model="4pl")
    options = MmlOptions(prior="weak", common_asymptotes=common)
    fit = fit_irt(matrix, item_model, options=options)

    assert fit.diagnostics["converged"]
    assert fit.diagnostics["iterations"] < 100
    assert np.isfinite(fit.ability_std_error).all()
    assert len(set(fit.guessing.round(9))) == (1 if common else 30)


@pytest.fixture(scope="module")
def slipping():
    """Models far apart, and steep items of which the best models miss one in ten."""
    rng = np.random.default_rng(5)
    theta, b = 2 * rng.normal(size=500), rng.normal(size=30)
    p = 0.2 + 0.7 * special.expit(2 * (theta[:, None] - b))
    return theta, ResponseMatrix.from_array((rng.random(p.shape) < p).astype(float))


@pytest.fixture(scope="module")
def four(slipping):
    return fit_irt(slipping[1], "4pl", zero="models")


def test_asymptotes_that_all_items_share_are_recovered_with_their_errors(slipping):
    fit = fit_irt(slipping[1], "4pl", options=MmlOptions(common_asymptotes=True))

    assert abs(fit.upper[0] - 0.9) < 2.5 * fit.upper_std_error[0] < 0.03
    assert abs(fit.guessing[0] - 0.2) < 2.5 * fit.guessing_std_error[0] < 0.03


def test_asymptotes_of_each_item_are_recovered_with_their_errors(four):
    for found, error, true in (
        (four.upper, four.upper_std_error, 0.9),
        (four.guessing, four.guessing_std_error, 0.2),
    ):
        assert (np.abs(found - true) < 2.5 * error).mean() > 0.85
        assert np.abs(found - true).mean() < 0.05


def test_a_4pl_predicts_held_out_answers_best_where_the_best_models_slip(slipping):
    loss = {
        name: hold_out(slipping[1], item_model=name, estimator="mml", seeds=[0])[0].log_loss
        for name in ("2pl", "3pl", "4pl")
    }

    assert loss["4pl"] < loss["3pl"] - 0.002
    assert loss["3pl"] < loss["2pl"] - 0.002


def test_predictions_information_scores_and_files_know_the_upper_asymptote(
    four, slipping, tmp_path
):
    """P(right) stays below u, what is scored again is the same, and a file gives all of it back."""
    theta, matrix = slipping
    back = IRTFit.load(four.save(tmp_path / "fit.parquet"))
    scored = score_models(back, matrix)

    assert (four.predict(plug_in=True) <= four.upper).all()
    step = 1e-5
    chance = [
        replace(four, ability=np.full(500, t)).predict(plug_in=True)[0] for t in (-step, step)
    ]
    p, slope = (chance[0] + chance[1]) / 2, (chance[1] - chance[0]) / (2 * step)
    np.testing.assert_allclose(item_information(four, [0.0])[0], slope**2 / (p * (1 - p)), 1e-6)
    np.testing.assert_array_equal(back.upper, four.upper)
    np.testing.assert_allclose(scored.ability, four.ability, atol=2e-3)
    assert np.corrcoef(four.ability, theta)[0, 1] > 0.92
    assert "upper" in four.to_frame("items")
    assert suspect_items(four, matrix).rows == ()


def test_an_upper_asymptote_that_is_given_stays(slipping):
    fit = fit_irt(slipping[1], "3pl", options=MmlOptions(upper=0.9))

    assert fit.upper.tolist() == [0.9] * 30
    assert fit.diagnostics["converged"]
    assert np.isnan(fit.upper_std_error).all()


def test_asymptotes_that_the_answers_do_not_tell_are_noted():
    matrix, _ = simulate_responses(rng=0, n_models=40, n_items=30, item_model="4pl")
    by_model = {
        model: [n for n in fit_irt(matrix, model, options=MmlOptions(prior="weak")).notes
                if "is that of the prior: the answers hardly tell it" in n]
        for model in ("2pl", "3pl", "4pl")
    }  # fmt: skip

    assert by_model["2pl"] == []
    assert [note.split(" of ")[0] for note in by_model["3pl"]] == ["the lower asymptote"]
    assert [note.split(" of ")[0] for note in by_model["4pl"]] == [
        "the lower asymptote", "the upper asymptote"
    ]  # fmt: skip
    assert "the upper asymptote of 30 of 30 items" in by_model["4pl"][1]


@pytest.mark.parametrize(
    ("item_model", "options", "message"),
    [
        ("4pl", MmlOptions(upper=0.9), "estimates the upper asymptote: leave upper out"),
        ("2pl", MmlOptions(common_asymptotes=True), "a 2pl estimates no asymptotes"),
    ],
)
def test_asymptotes_that_contradict_the_item_model_are_refused(item_model, options, message):
    _, matrix = answered()

    with pytest.raises(SelectionError, match=message):
        fit_irt(matrix, item_model, options=options)


def test_a_4pl_of_answers_all_right_is_refused():
    with pytest.raises(DesignError, match="tells nothing of guessing"):
        fit_irt(ResponseMatrix.from_array(np.ones((40, 30))), "4pl")


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"guessing": 1.0}, r"guessing of 1 is not in \[0, 1\)"),
        ({"guessing": {"fuor": 0.25}}, "no task 'fuor'|fuor"),
        ({"guessing": [0.25]}, "guessing has 1 number"),
        ({"guessing": 0.25, "estimator": "jml"}, "estimator jml has no guessing: take mml-items"),
        (
            {"guessing": 0.25, "options": MmlItemsOptions(estimate_guessing=True)},
            "either given or estimated",
        ),
    ],
)
def test_a_chance_that_cannot_be_is_refused(how, message):
    _, matrix = answered()

    with pytest.raises(SelectionError, match=message):
        fit_irt(matrix, **how)


def with_choices(matrix, chance):
    return replace(matrix, chance=np.asarray(chance))


def test_the_number_of_choices_in_the_log_gives_the_chance():
    _, matrix = answered(m=60)
    known = with_choices(matrix, [0.25] * 30 + [np.nan] * 30)
    given = [0.25] * 30 + [0.0] * 30

    by_choices = fit_irt(known, "rasch", guessing="choices")
    np.testing.assert_array_equal(
        by_choices.ability, fit_irt(matrix, "rasch", guessing=given).ability
    )
    assert by_choices.guessing.tolist() == given


def test_choices_that_no_log_counts_are_asked_for():
    _, matrix = answered(m=60)

    with pytest.raises(SelectionError, match="do not say how many choices"):
        fit_irt(matrix, "rasch", guessing="choices")


def test_choices_stay_with_their_items_through_joins_files_and_selections(tmp_path):
    _, matrix = answered(m=60)
    known = with_choices(matrix, [0.25] * 30 + [np.nan] * 30)
    known.save(tmp_path / "m.parquet")
    joined = ResponseMatrix.join(known.to_responses())

    np.testing.assert_array_equal(np.isfinite(joined.chance), joined.tasks == "four")
    np.testing.assert_array_equal(ResponseMatrix.load(tmp_path / "m.parquet").chance, known.chance)
    assert submatrix(known, np.arange(3), np.array([40, 2])).chance[1] == 0.25


def test_lm_eval_logs_say_how_many_choices_an_item_of_multiple_choice_has():
    found = {
        (r.task, r.metric): r.chance
        for r in read("fixtures/logs/lm_eval/0.4.13/out_file").responses
    }

    assert set(found["es_mc", "acc,none"]) == {0.25}
    assert found["es_mc", "brier_score,none"] is None
    assert found["es_gen", "exact_match,strict-match"] is None


@pytest.mark.parametrize(("target", "chance"), [("B", 0.25), (["A", "B"], None)])
def test_inspect_samples_have_the_chance_of_one_right_choice(target, chance):
    pytest.importorskip("inspect_ai")
    from inspect_ai.log import EvalSample

    from evalstats_plugin.adapters.inspect_ai.archive.samples import from_sample

    sample = EvalSample(id=1, epoch=1, input="?", choices=list("wxyz"), target=target)
    found = from_sample(sample, ()).chance

    assert found == chance or (chance is None and np.isnan(found))


@pytest.mark.parametrize("upper", [1.0, 0.9])
def test_what_is_given_is_of_items_that_are_set_aside_too(upper):
    """An item that all get right, without a prior, ended in an error of shapes."""
    matrix, _ = simulate_responses(rng=0, n_models=30, n_items=10)
    matrix.scores[:, 2] = 1
    options = MmlOptions(upper=upper, max_steps=20)
    fit = fit_irt(matrix, "2pl", "mml", options=options, guessing=0.2)

    assert fit.guessing.tolist() == [0.2] * 10
    assert fit.upper.tolist() == [upper] * 10


def test_refits_of_a_bootstrap_have_the_asymptotes_of_the_fit():
    matrix, _ = simulate_responses(rng=0, n_models=30, n_items=20, item_model="4pl")
    options = MmlOptions(prior="weak", upper=0.9, guessing_prior=(-1.5, 0.1))
    fit = fit_irt(matrix, "3pl", options=options)
    again = _same_model(fit)

    assert (again.upper, tuple(again.guessing_prior)) == (0.9, (-1.5, 0.1))
    assert again.prior == "weak"
    assert uncertainty(fit, matrix, ["model", "sandwich"])[0].recipe == "model"
