"""Answers that can be guessed: the chance given for each item, by task, or estimated."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import special

from evalstats_plugin import ResponseMatrix, read
from evalstats_plugin.data.matrix import submatrix
from evalstats_plugin.errors import SelectionError
from evalstats_plugin.irt import MmlItemsOptions, MmlOptions, fit_irt, score_models

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
    given, without = fit_irt(matrix, guessing={"four": 0.25}), fit_irt(matrix)

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


def test_models_below_chance_are_named():
    _, matrix = answered()
    scores = matrix.scores.copy()
    scores[0] = np.arange(300)[:, None] % 10 == 0
    low = ResponseMatrix.from_array(scores, tasks=CHOICES)

    assert any(
        note.startswith("right less often than by guessing: model_0")
        for note in fit_irt(low, "rasch", guessing=0.25).notes
    )


def test_forty_models_and_thirty_items_of_a_3pl_converge():
    _, matrix = answered(n=40, m=30)
    fit = fit_irt(matrix, "3pl", options=MmlOptions(prior="weak"))

    assert fit.diagnostics["converged"]
    assert np.isfinite(fit.ability_std_error).all()


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
