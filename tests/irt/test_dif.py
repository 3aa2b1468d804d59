"""Differential item functioning: planted, absent, purified, and refused."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from evalstats_plugin import ResponseMatrix
from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.irt.dif import dif, item_dif
from evalstats_plugin.irt.fitting import fit_irt
from evalstats_plugin.irt.methods import MmlOptions
from evalstats_plugin.irt.model.simulate import draw_truth, simulate_responses

OPTIONS = MmlOptions(prior="weak", std_errors=False)


def planted(rng, n, m, *, harder=0.0, items=0, gap=0.0, missing=0.0):
    """Half the models are focal, `gap` less able; `items` are harder for them alone."""
    truth = draw_truth(rng, n, m, "rasch")
    theta = truth.ability - gap * (np.arange(n) < n // 2)
    difficulty = truth.difficulty + np.zeros((n, m))
    difficulty[: n // 2, :items] += harder
    scores = (rng.random((n, m)) < special.expit(theta[:, None] - difficulty)).astype(float)
    scores[rng.random((n, m)) < missing] = np.nan
    matrix = ResponseMatrix.from_array(scores)
    return matrix, fit_irt(matrix, "rasch", "mml", options=OPTIONS), matrix.models[: n // 2]


@pytest.fixture(scope="module")
def unfair():
    """Eight of 80 items are 1.5 logits harder for focal models; cells are missing."""
    rng = np.random.default_rng(0)
    return planted(rng, 400, 80, harder=1.5, items=8, gap=0.5, missing=0.2)


@pytest.fixture(scope="module")
def fair():
    """10 data sets × 60 items, groups a logit apart."""
    return [planted(np.random.default_rng(seed), 80, 60, gap=1.0) for seed in range(10)]


def test_planted_differences_are_found(unfair):
    matrix, fit, focal = unfair
    found = dif(fit, matrix, focal)

    assert found.flagged[:8].sum() >= 7
    assert found.flagged[8:].sum() <= 1
    assert np.median(found.log_odds[:8]) == pytest.approx(-1.5, abs=0.25)
    assert np.median(found.delta[:8]) == pytest.approx(-2.35 * 1.5, abs=0.6)
    assert (found.size[:8] == "C").sum() >= 6
    assert (found.size[8:] == "A").mean() > 0.8
    assert not found.anchor[:8].any()


def test_fair_items_are_found_at_most_at_the_level(fair):
    """5 % of the p-values below .05, or fewer."""
    shares = [
        np.nanmean(dif(fit, matrix, focal, purify=False).p_value < 0.05)
        for matrix, fit, focal in fair
    ]

    # Standard error .9 %.
    assert np.mean(shares) < 0.07
    assert np.mean(shares) > 0.01


def test_without_matching_on_ability_every_item_would_differ(fair):
    """The negative control: the same data, groups compared as they are."""
    matrix, fit, focal = fair[1]
    scores = matrix.scores[:, :, 0]
    raw = scores[40:].mean() - scores[:40].mean()

    assert raw > 0.12
    assert abs(np.nanmedian(dif(fit, matrix, focal).log_odds)) < 0.3


def test_purification_keeps_unfair_items_out_of_the_match():
    """Twelve of 30 items are harder for one group: unpurified, the fair ones seem easier for it."""
    rng = np.random.default_rng(2)
    matrix, fit, focal = planted(rng, 600, 30, harder=1.2, items=12)
    plain, pure = (dif(fit, matrix, focal, purify=purify) for purify in (False, True))

    assert plain.anchor.all()
    assert np.mean(plain.log_odds[12:]) > 0.3
    assert abs(np.mean(pure.log_odds[12:])) < 0.15
    assert pure.flagged[12:].sum() < plain.flagged[12:].sum()


def test_few_models_are_separated_without_harm():
    """Six models, an item that one half gets right and the other wrong: finite, with a note."""
    matrix, _ = simulate_responses(rng=3, n_models=6, n_items=40)
    scores = matrix.scores.copy()
    scores[:3, 0], scores[3:, 0] = 0, 1
    split = ResponseMatrix.from_array(scores)
    found = dif(fit_irt(split), split, split.models[:3])

    assert np.isfinite(found.log_odds[0])
    assert found.log_odds[0] < -2
    assert "only 3 models in one group: large differences alone can be found" in found.notes


def test_items_that_all_get_right_tell_nothing():
    matrix, _ = simulate_responses(rng=4, n_models=30, n_items=20)
    scores = matrix.scores.copy()
    scores[:, 3] = 1
    flat = ResponseMatrix.from_array(scores)
    found = dif(fit_irt(flat), flat, flat.models[:15])

    assert np.isnan(found.p_value[3])
    assert not found.flagged[3]


def test_a_model_that_is_named_twice_counts_once():
    matrix, fit, focal = planted(np.random.default_rng(2), 12, 10)
    once, twice = (item_dif(fit, matrix, names) for names in (focal, [focal[0], *focal]))

    assert twice == once
    assert (len(twice.focal), twice.n_others) == (6, 6)


def test_groups_that_cannot_be_compared_are_refused():
    matrix, _ = simulate_responses(rng=5, n_models=6, n_items=10)
    fit = fit_irt(matrix)

    with pytest.raises(SelectionError, match="no model is called 'modl_1'; did you mean model_1"):
        dif(fit, matrix, ["modl_1"])
    with pytest.raises(DesignError, match="1 focal and 5 other models are too few: name 2 or more"):
        dif(fit, matrix, ["model_1"])
