"""S-X² against R, sums over all answer patterns, and items that fit or do not."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from scipy import special

from evalstats_plugin import ResponseMatrix
from evalstats_plugin.errors import DesignError
from evalstats_plugin.irt.fit_statistics import expected_shares, s_x2, sum_score_shares
from evalstats_plugin.irt.fitting import fit_irt
from evalstats_plugin.irt.methods import MmlOptions
from evalstats_plugin.irt.model.simulate import draw_responses, draw_truth

GOLDEN = Path(__file__).parents[2] / "fixtures" / "golden"
DATA = json.loads((GOLDEN / "irt.json").read_text(encoding="utf-8"))["data"]
# R: mirt 1.47, itemfit(fit, fit_stats = "S_X2") of 2PL fits.
MIRT = {
    "LSAT6": ([0.450376, 1.691039, 0.666280, 0.175307, 0.111050], [2, 2, 1, 2, 2]),
    "LSAT7": ([4.750540, 14.453453, 1.272660, 5.236482, 0.940942], [2, 2, 2, 2, 2]),
}
PLAIN = MmlOptions(prior="none", std_errors=False)


@pytest.mark.parametrize("name", MIRT)
def test_it_agrees_with_mirt(name):
    """Statistic and degrees of freedom, those of joined scores among them."""
    rows = [[int(c) for c in pattern] for pattern, n in DATA[name].items() for _ in range(n)]
    matrix = ResponseMatrix.from_array(np.array(rows, dtype=float))
    found = s_x2(fit_irt(matrix, "2pl", "mml", options=PLAIN), matrix)
    statistic, df = MIRT[name]

    np.testing.assert_allclose(found.statistic, statistic, atol=1e-3)
    np.testing.assert_array_equal(found.df, df)
    np.testing.assert_allclose(found.p_value, special.chdtrc(df, statistic), atol=1e-3)
    assert (1000, ()) == (found.n_models, found.notes)


def test_expected_shares_are_sums_over_all_patterns():
    """Of six items at three abilities, two of them sure or hopeless."""
    rng = np.random.default_rng(0)
    probability, weight = rng.random((3, 6)), np.array([0.2, 0.5, 0.3])
    probability[0, 0], probability[2, 5] = 1e-9, 1 - 1e-9
    right, every = np.zeros((7, 6)), np.zeros(7)
    for pattern in map(np.array, itertools.product((0, 1), repeat=6)):
        chance = weight @ np.where(pattern, probability, 1 - probability).prod(axis=1)
        every[pattern.sum()] += chance
        right[pattern.sum()] += chance * pattern

    np.testing.assert_allclose(expected_shares(probability, weight), right / every[:, None])
    np.testing.assert_allclose(weight @ sum_score_shares(probability), every)


def test_long_tests_keep_their_digits():
    """Taking an item out again loses none: expected right answers add up to the score."""
    at = np.linspace(-6, 6, 41)
    difficulty = np.random.default_rng(1).standard_normal(800)
    weight = np.exp(-(at**2) / 2)
    found = expected_shares(special.expit(at[:, None] - difficulty), weight / weight.sum())
    there = np.isfinite(found[:, 0])

    assert there[5:796].all()
    np.testing.assert_allclose(
        found[there].sum(axis=1), np.flatnonzero(there), rtol=1e-6, atol=1e-6
    )


def test_fitting_items_are_accused_as_often_as_the_level_says():
    """Of 400 items that are as the model says 5 %, within 3 standard errors of .011."""
    low = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        matrix = draw_responses(draw_truth(rng, 500, 20, "2pl"), rng)
        found = s_x2(fit_irt(matrix, "2pl", "mml", options=PLAIN), matrix)
        low.append(found.p_value < 0.05)

    assert np.mean(low) == pytest.approx(0.05, abs=0.033)


@pytest.mark.parametrize("item_model", ["rasch", "2pl"])
def test_items_with_other_curves_are_found(item_model):
    """Of a Rasch fit those with another slope; of a 2PL fit one that peaks in the middle."""
    rng = np.random.default_rng(5)
    truth = draw_truth(rng, 2000, 20, "rasch")
    chance = truth.probability
    logit = 2.5 * (truth.ability - truth.difficulty[3])
    bump = 0.1 + 0.8 * np.exp(-((truth.ability) ** 2))
    chance[:, 3] = special.expit(logit) if item_model == "rasch" else bump
    matrix = ResponseMatrix.from_array((rng.random(chance.shape) < chance).astype(float))
    found = s_x2(fit_irt(matrix, item_model, "mml", options=PLAIN), matrix)

    assert found.p_adjusted[3] < 1e-6
    assert (np.delete(found.p_adjusted, 3) > 0.01).mean() > 0.9
    assert 20 == len(found.to_frame())


def test_fits_without_a_distribution_take_their_models_spread():
    """And say so."""
    rng = np.random.default_rng(6)
    matrix = draw_responses(draw_truth(rng, 400, 20, "rasch"), rng)
    plain = s_x2(fit_irt(matrix, "rasch", "jml"), matrix)

    assert (plain.p_value < 0.05).mean() < 0.2
    assert "taken as normal with the mean and spread of these models" in plain.notes[0]


def test_what_has_no_sum_score_is_refused():
    """Partial credit, epochs, holes in every model, two items, and hardly any model."""
    rng = np.random.default_rng(7)
    matrix = draw_responses(draw_truth(rng, 30, 10, "rasch"), rng)
    fit = fit_irt(matrix, "rasch", "mml", options=MmlOptions(prior="weak"))
    scores = matrix.scores[..., 0]

    def refused(changed, match):
        other = ResponseMatrix.from_array(changed)
        with pytest.raises(DesignError, match=match):
            s_x2(fit, other)

    refused(np.where(scores == 1, 0.5, scores), "there are epochs or partial")
    refused(np.repeat(matrix.scores, 2, axis=2), "there are epochs or partial")
    refused(np.where(np.eye(30, 10) + np.eye(30, 10, -10) + np.eye(30, 10, -20), np.nan, scores),
            "0 of 30 models answered all of 10 items")  # fmt: skip
    few = ResponseMatrix.from_array(scores[:3])
    with pytest.raises(DesignError, match="too few to compare groups of scores"):
        s_x2(fit_irt(few, "2pl", "mml", options=MmlOptions(prior="weak")), few)
    hole = scores.copy()
    hole[0, 0] = np.nan
    holed = ResponseMatrix.from_array(hole)
    found = s_x2(fit_irt(holed, "rasch", "mml", options=MmlOptions(prior="weak")), holed)
    assert "1 of 30 models did not answer all items: left out" in found.notes
