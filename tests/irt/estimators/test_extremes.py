"""Models all right, all wrong, or wrong on a few items: estimates and limits by definition."""

import numpy as np
import pytest
from scipy import special, stats

from evalstats_plugin import ResponseMatrix
from evalstats_plugin.irt import IRTFit, abilities, fit_irt
from evalstats_plugin.irt.estimators.extremes import NODES, placed
from evalstats_plugin.irt.model.fit import TAILS
from evalstats_plugin.report.abilities import ABILITIES

CURVE = np.tile(special.expit(NODES)[:, None], 20)


def place(right, extreme=0, guess=0.0):
    """Quantiles of a model on 20 equal items of difficulty 0."""
    hits = np.r_[np.ones(right), np.zeros(20 - right)][None]
    curve = guess + (1 - guess) * CURVE
    chance = np.full(20, guess)
    return placed(hits, np.ones((1, 20)), np.array([extreme]), chance, curve)[0]


def test_all_right_is_as_likely_as_not_at_the_estimate():
    found = place(20, 1)
    below = TAILS <= 0.5

    assert special.expit(found[below]) ** 20 == pytest.approx(TAILS[below], rel=3e-3)
    assert np.isposinf(found[~below]).all()


def test_all_wrong_is_the_mirror_image():
    np.testing.assert_allclose(place(0, -1), -place(20, 1)[::-1], atol=1e-9)


@pytest.mark.parametrize("wrong", [1, 3, 5])
def test_a_few_wrong_answers_are_inverted_by_mid_p(wrong):
    found = place(20 - wrong)
    p = special.expit(-found)
    mid = stats.binom.cdf(wrong, 20, p) - stats.binom.pmf(wrong, 20, p) / 2

    np.testing.assert_allclose(mid, TAILS, rtol=5e-3)
    np.testing.assert_allclose(place(wrong), -found[::-1], atol=1e-9)


def test_more_wrong_answers_have_normal_limits():
    assert np.isnan(place(14)).all()
    assert np.isnan(place(10)).all()


def test_what_is_guessed_does_not_count_as_known():
    """6 of 20 with a chance of .25 are one known; the limits reach far down."""
    found = place(6, guess=0.25)
    p = 0.25 + 0.75 * special.expit(found)
    mid = stats.binom.cdf(6, 20, p) - stats.binom.pmf(6, 20, p) / 2
    inside = found > NODES[0] + 1

    np.testing.assert_allclose(mid[inside], 1 - TAILS[inside], rtol=5e-3)
    assert not inside[:10].any()


@pytest.fixture(scope="module")
def matrix():
    rng = np.random.default_rng(0)
    scores = rng.random((5, 40)) < special.expit(
        np.linspace(-1, 1, 5)[:, None] - rng.normal(size=40)
    )
    return ResponseMatrix.from_array(
        np.concatenate([scores, np.ones((2, 40)), np.zeros((1, 40))]).astype(float)
    )


def test_extreme_models_take_no_part_in_the_fit(matrix):
    fit = fit_irt(matrix)
    alone = fit_irt(ResponseMatrix.from_array(matrix.scores[:5, :, 0]))

    np.testing.assert_array_equal(fit.ability[:5], alone.ability)
    np.testing.assert_array_equal(fit.difficulty, alone.difficulty)
    np.testing.assert_array_equal(fit.ability_covariance[:5, :5], alone.ability_covariance)
    assert fit.endless.tolist() == [0] * 5 + [1, 1, -1]
    assert any(n.startswith("all right: model_5, model_6. They take no part") for n in fit.notes)
    assert np.isfinite(fit.predict()).all()


def test_models_all_right_are_tied_and_limited_on_one_side(matrix, tmp_path):
    fit = fit_irt(matrix)
    low, high = fit.limits(0.9)

    assert fit.ability[5] == fit.ability[6] > fit.ability[:5].max()
    assert np.isposinf(high[5])
    assert np.isneginf(low[7])
    assert low[5] == low[6] < fit.ability[5]
    assert fit.limits(0.99)[0][5] < low[5]
    again = IRTFit.load(fit.save(tmp_path / "fit.parquet"))
    np.testing.assert_array_equal(again.limits(0.9), fit.limits(0.9))


def test_a_table_shows_the_limit_there_is(matrix):
    results = abilities(fit_irt(matrix), matrix, baseline="model_0")
    rows = {row.model: row for row in results}
    said = ABILITIES.to_markdown(results, "by hand")

    assert rows["model_5"].high is None
    assert rows["model_5"].std_error is None
    assert f"≥ {rows['model_5'].low:+.2f} (97.5 %)" in said
    assert f"≤ {rows['model_7'].high:+.2f} (97.5 %)" in said
    known = {row.model_b: row.p_adjusted for row in results.differences}
    assert known["model_5"] is None
    assert known["model_4"] is not None


def test_two_models_of_which_one_is_all_right_can_still_be_fitted():
    """Then half an item counts as gone the other way, which a note says."""
    scores = np.ones((2, 30))
    scores[0, ::2] = 0
    fit = fit_irt(ResponseMatrix.from_array(scores))

    assert np.isfinite(fit.ability_std_error).all()
    assert any("as if half an item were otherwise" in note for note in fit.notes)
    assert fit.endless.tolist() == [0, 0]
