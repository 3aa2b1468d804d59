"""Refits, answers held out and unlike items as records: the numbers are those of `irt`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from evalstats_plugin import fit_irt
from evalstats_plugin.data.runs import models_like
from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.irt.bootstrap import bootstrap_abilities
from evalstats_plugin.irt.dif import dif, item_dif
from evalstats_plugin.irt.estimators.frozen import fit_curves, predict_held_out, score_held_out
from evalstats_plugin.irt.estimators.items_integrated import items_integrated
from evalstats_plugin.irt.estimators.refits import (
    BootstrapOptions,
    bootstrap,
    items_refitter,
)
from evalstats_plugin.irt.fitting import duration_in_words, expected_seconds
from evalstats_plugin.irt.holdout import hold_out
from evalstats_plugin.irt.methods import FactorOptions
from evalstats_plugin.irt.model.data import counts_of
from evalstats_plugin.irt.model.masks import MASKS
from evalstats_plugin.irt.model.scale import Curves
from evalstats_plugin.irt.model.simulate import simulate_responses
from evalstats_plugin.irt.rows import factor_abilities
from evalstats_plugin.runtime.progress import Progress, listening
from evalstats_plugin.stats.streams import child, stream

MATRIX = simulate_responses(rng=5, n_models=12, n_items=80, item_model="rasch")[0]
FIT = fit_irt(MATRIX, "rasch")


def refits():
    """What `bootstrap_abilities` draws with seed 1."""
    counts = counts_of(MATRIX, device=None)
    refitter = items_refitter(counts, items_integrated(counts, "rasch"), "rasch", "items")
    drawn, options = stream(1, "resampled abilities"), BootstrapOptions(n_resamples=50)
    return bootstrap(refitter, counts, Curves.of(FIT), options, drawn, chance=FIT.predict())


def test_bootstrap_limits_are_the_percentiles_of_the_refits():
    """Each model's own, wherever it stands in the table."""
    seen: list[Progress] = []
    with listening(seen.append):
        results = bootstrap_abilities(FIT, MATRIX, n_resamples=50, rng=1, baseline="model_0")
    assert [("refit", k, 50) for k in range(1, 51)] == seen
    found = refits()
    for row in results:
        i = MATRIX.models.index(row.model)
        assert found.ability.low[i] == row.low
        assert found.ability.high[i] == row.high
        assert found.ability.std_error[i] == pytest.approx(row.std_error)
    one = results.differences[0]
    i = MATRIX.models.index(one.model_b)
    spread = np.std(found.ability.replicates[:, i] - found.ability.replicates[:, 0], ddof=1)

    assert one.high - one.low == pytest.approx(2 * 1.959964 * spread, rel=1e-5)


def test_what_is_held_out_is_scored_as_the_parts_do():
    """Same seed, same cells, same numbers."""
    results = hold_out(MATRIX, ("rows",), item_model="rasch", seeds=(3,))
    counts = counts_of(MATRIX)
    drawn = child(stream(3, "answers held out"), "rows")
    split = MASKS["rows"](np.ones((12, 80), dtype=bool), rng=drawn)
    p = predict_held_out(lambda c: fit_curves(c, "rasch"), counts, split)
    scores = score_held_out(counts, p, split.test)

    (row,) = results
    assert (scores.auc, scores.log_loss, scores.brier, scores.n_cells) == (
        row.auc, row.log_loss, row.brier, row.n_cells
    )  # fmt: skip
    share = MATRIX.scores[..., 0][split.test].mean()
    entropy = -(share * np.log(share) + (1 - share) * np.log(1 - share))
    assert row.base_log_loss == pytest.approx(entropy)


def test_an_item_keeps_its_own_error_under_a_bootstrap_over_items():
    """Its posterior's variance plus that of its mean between refits, which is far less alone."""
    results = bootstrap_abilities(FIT, MATRIX, n_resamples=50, rng=1, items=True)
    between = refits().difficulty.std_error
    error = np.array([row.difficulty_std_error for row in results.items])

    own = dict(zip(FIT.item_ids.tolist(), FIT.difficulty_std_error, strict=True))
    assert [own[row.item] < row.difficulty_std_error for row in results.items] == [True] * len(own)
    assert between.mean() < error.mean() / 2


@pytest.mark.parametrize("estimator", ["map", "mml"])
def test_any_estimator_predicts_answers_that_it_did_not_see(estimator):
    (found,) = hold_out(MATRIX, item_model="2pl", estimator=estimator, seeds=[0])

    assert found.log_loss < found.base_log_loss + 0.02


def test_guessing_counts_where_answers_are_held_out():
    plain, guessed = (hold_out(MATRIX, guessing=c, seeds=[0])[0].log_loss for c in (0.0, 0.2))

    assert abs(plain - guessed) > 1e-4


def test_shifted_masks_hold_out_the_ablest_and_the_hardest():
    """Whose answers are right more often, or less."""
    results = hold_out(MATRIX, ("shifted-rows", "shifted-columns"), item_model="rasch", seeds=(0,))
    best, hardest = ([b for b in results.calibration if b.mask == row.mask] for row in results)
    means = [np.average([b.observed for b in bins], weights=[b.n_cells for b in bins])
             for bins in (best, hardest)]  # fmt: skip

    assert means[0] > MATRIX.scores.mean() + 0.05
    assert means[1] < MATRIX.scores.mean() - 0.2


def test_the_largest_the_latest_and_whole_tasks_are_held_out():
    tasks = np.repeat(["a", "b", "c", "d", "e"], 16)
    named = replace(MATRIX, models=tuple(f"org/m{i}-{i + 1}b" for i in range(12)), tasks=tasks)
    released = dict(zip(named.models, range(12), strict=True))
    masks = ("shifted-size", "temporal", "shifted-tasks")
    rows = hold_out(named, masks, item_model="rasch", released=released, seeds=[0])
    cells = {row.mask: row.n_cells for row in rows}

    assert cells == {"shifted-size": 112, "temporal": 112, "shifted-tasks": 128}
    largest, latest = rows[0], rows[1]
    # The same models, and items drawn anew for each mask.
    assert largest.log_loss == pytest.approx(latest.log_loss, abs=0.02)
    assert largest.brier == pytest.approx(latest.brier, abs=0.02)


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        ("shifted-size", "needs the size of each model"),
        ("temporal", "needs the time of release of each model"),
        ("shifted-tasks", "there is only one"),
    ],
)
def test_a_mask_says_what_it_needs_to_know(mask, message):
    with pytest.raises(SelectionError, match=message):
        hold_out(MATRIX, (mask,), seeds=[0])


def test_unlike_items_are_those_of_dif_in_the_order_of_their_evidence():
    """Patterns name the models."""
    focal = models_like(["model_1*"], MATRIX.models)
    results = item_dif(FIT, MATRIX, focal)
    found = dif(FIT, MATRIX, focal)
    p = [row.p_value for row in results if row.p_value is not None]

    assert ("model_1", "model_10", "model_11") == focal
    assert sorted(p) == p
    for row in results:
        j = MATRIX.item_ids.tolist().index(row.item)
        assert row.log_odds is None or found.log_odds[j] == row.log_odds
    assert 9 == results.n_others
    with pytest.raises(SelectionError, match=r"no model is called 'gpt\*'"):
        models_like(["model_1", "gpt*"], MATRIX.models)


def test_factors_are_rows_of_models_by_score():
    """The score of a model is the same in each of its dimensions."""
    fit = fit_irt(MATRIX, "factor", options=FactorOptions(dimensions=2, ridge=1.0))
    results = factor_abilities(fit, MATRIX)
    scores = [row.score for row in results]

    assert sorted(scores, reverse=True) == scores
    assert [1, 2] * 12 == [row.dimension for row in results]
    i = fit.models.index(results[3].model)
    assert fit.ability[i, 1] == results[3].estimate
    top = [item for item in results.items if item.dimension == 2]
    assert np.abs(fit.loading[:, 1]).max() == abs(top[0].loading)
    with pytest.raises(DesignError, match="between 0 and 1"):
        factor_abilities(fit, MATRIX, confidence_level=95)


def test_costs_grow_with_models_and_items_and_are_said_roughly():
    """Rates are of one core; draws are the dearest."""
    small, large = (expected_seconds("2pl", "auto", 50, m) for m in (500, 50_000))

    assert 100 * small == pytest.approx(large)
    assert expected_seconds("2pl", "mcmc", 50, 500) > 20 * small
    assert ["a second or less", "about 50 seconds", "about 20 minutes", "about 3 hours"] == [
        duration_in_words(x) for x in (0.2, 47, 1100, 9800)
    ]
