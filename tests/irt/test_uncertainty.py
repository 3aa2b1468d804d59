"""Recipes for the uncertainty of abilities: what each is, and where they agree."""

import json
from pathlib import Path

import numpy as np
import pytest

from evalstats_plugin import ResponseMatrix
from evalstats_plugin.errors import SelectionError
from evalstats_plugin.irt import (
    IRTFit,
    MapOptions,
    McmcOptions,
    MmlOptions,
    SviOptions,
    ViOptions,
    fit_irt,
    simulate_responses,
    uncertainty,
)
from evalstats_plugin.irt.bootstrap import COVERAGE, RECIPES, _same_model

FIXTURES = Path(__file__).parents[2] / "fixtures"
SHORT = McmcOptions(chains=2, draws=60, warm_up=20)


@pytest.fixture(scope="module")
def matrix():
    return simulate_responses(rng=0, n_models=6, n_items=60, item_model="rasch")[0]


@pytest.fixture(scope="module")
def drawn(matrix):
    return fit_irt(matrix, "rasch", "mcmc", options=SHORT, rng=0)


def errors(found):
    return {
        name: np.array([row.std_error for row in found if row.recipe == name], dtype=float)
        for name in dict.fromkeys(row.recipe for row in found)
    }


def test_the_sandwich_and_the_bootstraps_agree_with_the_fit_where_it_is_true(matrix):
    fit = fit_irt(matrix, "rasch")
    names = ["model", "sandwich", "items", "parametric"]
    own = errors(uncertainty(fit, matrix, names, n_resamples=80, rng=0))

    for name in names[1:]:
        assert (own[name] / own["model"]).mean() == pytest.approx(1, abs=0.15), name


def test_the_sandwich_counts_clusters_of_equal_items_once(matrix):
    few = matrix.scores[:, :12, 0]
    names = [f"c{i // 5}" for i in range(60)]
    copied = ResponseMatrix.from_array(np.repeat(few, 5, axis=1), clusters=names)
    alone = ResponseMatrix.from_array(np.repeat(few, 5, axis=1))
    wide, narrow = (
        errors(uncertainty(fit_irt(one, "rasch"), one, ["sandwich"]))["sandwich"]
        for one in (copied, alone)
    )

    known = np.isfinite(narrow)
    assert known.sum() >= 4
    ratio = np.sqrt(5 * (11 / 12) ** -1 * 59 / 60)
    assert (wide / narrow)[known] == pytest.approx(ratio, rel=1e-6)


def test_partial_credit_is_simulated_as_it_varies():
    """Simulated as right or wrong, intervals were 9 times as wide as the fit's own."""
    rng = np.random.default_rng(0)
    logit = rng.normal(size=(6, 1)) - rng.normal(size=40) + 0.3 * rng.normal(size=(6, 40))
    partial = ResponseMatrix.from_array(1 / (1 + np.exp(-logit)))
    fit = fit_irt(partial, "rasch")
    own = errors(uncertainty(fit, partial, ["model", "parametric"], n_resamples=60, rng=0))

    assert fit.hyperparameters["dispersion"] < 0.1
    assert (own["parametric"] / own["model"]).mean() == pytest.approx(1, abs=0.2)


@pytest.mark.parametrize(
    "options",
    [
        MapOptions(ability_sd=3.0, discrimination="gamma"),
        ViOptions(prior="vague", max_steps=5),
        SviOptions(prior="gaussian-gamma", steps=5),
        MmlOptions(prior="weak", dispersion=0.5),
    ],
)
def test_a_bootstrap_refits_the_model_of_the_fit(matrix, options):
    """Options were forgotten: intervals under the default prior left out the estimates."""
    assert _same_model(fit_irt(matrix, "2pl", options=options, rng=0)) == options


@pytest.mark.parametrize(
    ("estimator", "over"), [("map", "items"), ("jml", "models"), ("mml", "parametric")]
)
def test_every_estimator_has_a_bootstrap(matrix, estimator, over):
    fit = fit_irt(matrix, "rasch", estimator)
    rows = list(uncertainty(fit, matrix, [over], n_resamples=12, confidence_level=0.8, rng=0))

    assert len(rows) == 6
    # An ability counted from the items hardly varies with the other models that were drawn.
    least = 0.005 if over == "models" else 0.05
    assert all(row.std_error > least for row in rows)
    assert all(row.low < row.high for row in rows)


def test_intervals_of_draws_are_their_percentiles_and_the_shortest_hold_as_many(drawn):
    draws = drawn.ability_draws.reshape(6, -1)
    low, high = drawn.limits(0.9)
    shortest = drawn.limits(0.9, kind="hdi")
    inside = ((draws >= shortest[0][:, None]) & (draws <= shortest[1][:, None])).mean(axis=1)

    np.testing.assert_allclose([low, high], np.quantile(draws, [0.05, 0.95], axis=1))
    assert inside.tolist() == [0.9] * 6
    assert (shortest[1] - shortest[0] <= high - low + 1e-12).all()


def test_draws_are_kept_in_files_and_go_to_arviz(drawn, tmp_path):
    again = IRTFit.load(drawn.save(tmp_path / "fit.parquet"))
    ability = drawn.to_arviz()["posterior"]["ability"]

    np.testing.assert_array_equal(again.ability_draws, drawn.ability_draws)
    assert ability.dims == ("chain", "draw", "model")
    assert ability.shape == (2, 60, 6)


def test_seeds_of_stochastic_fits_differ_by_less_than_their_intervals():
    matrix = simulate_responses(rng=1, n_models=6, n_items=60, item_model="2pl")[0]
    how = SviOptions(steps=100, guide="lognormal")
    one, other, same = (fit_irt(matrix, "2pl", options=how, rng=seed) for seed in (0, 1, 0))

    np.testing.assert_array_equal(one.ability, same.ability)
    apart = np.abs(one.ability - other.ability)
    assert 0 < apart.max() < one.ability_std_error.max()
    assert (one.discrimination > 0).all()
    assert np.corrcoef(one.ability, matrix.scores.mean(axis=(1, 2)))[0, 1] > 0.98


def test_recipes_that_are_not_possible_are_named_and_left_out(matrix):
    found = uncertainty(fit_irt(matrix, "rasch"), matrix, ["model", "clusters"])

    assert {row.recipe for row in found} == {"model"}
    assert any(note.startswith("clusters: no item has a cluster") for note in found.notes)
    with pytest.raises(SelectionError, match="no recipe is called 'jackknife'"):
        uncertainty(fit_irt(matrix, "rasch"), matrix, ["jackknife"])


def test_coverage_beside_each_recipe_is_that_of_the_study():
    """Where the study has five sets of answers or more."""
    rows = json.loads((FIXTURES / "validation" / "uncertainty.json").read_text())["recipes"]

    assert set(COVERAGE) <= set(RECIPES)
    assert dict(COVERAGE) == {
        name: row["coverage"] for name, row in rows.items() if row["sets"] >= 5
    }
