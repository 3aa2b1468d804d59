"""Groups of models with distributions of their own: scale, errors against brute force, refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import special

from evalstats_plugin import ResponseMatrix
from evalstats_plugin.errors import DesignError
from evalstats_plugin.irt.estimators import information
from evalstats_plugin.irt.estimators.grid import group_labels
from evalstats_plugin.irt.fitting import fit_irt
from evalstats_plugin.irt.methods import MmlOptions
from evalstats_plugin.irt.model.simulate import draw_responses, draw_truth

MEAN, SD = 1.0, 0.6
PLAIN = MmlOptions(prior="none", std_errors=False)


def unlike(n, item_model="2pl", seed=0):
    """Two groups of n models, 40 items each of 65, of which 15 are common."""
    rng = np.random.default_rng(seed)
    truth = draw_truth(rng, 2 * n, 65, item_model)
    ability = truth.ability.copy()
    ability[n:] = MEAN + SD * ability[n:]
    truth = truth._replace(ability=ability)
    scores = draw_responses(truth, rng).scores[:, :, 0]
    scores[:n, 40:] = scores[n:, :25] = np.nan
    return ResponseMatrix.from_array(scores), truth, ["first"] * n + ["second"] * n


def stretched(fit, truth):
    """By how much estimated difficulties are stretched, and items of the second group too easy."""
    well = np.abs(truth.difficulty) < 1.5
    slope = np.polyfit(truth.difficulty[well], fit.difficulty[well], 1)[0]
    off = fit.difficulty - truth.difficulty
    second, first = (well & part for part in (np.arange(65) >= 40, np.arange(65) < 25))
    return slope - 1, off[second].mean() - off[first].mean()


def test_unlike_groups_keep_the_scale_that_one_population_loses():
    """On average of 3 data sets within 2 %; in one population for all it is stretched by 8 % or so.

    And the second group's items look easier by half a standard deviation than they are.
    """
    apart, together, means, gains = [], [], [], []
    for seed in (1, 2, 3):
        matrix, truth, groups = unlike(3000, seed=seed)
        own = fit_irt(matrix, "2pl", "mml", zero="models", options=replace(PLAIN, groups=groups))
        same = fit_irt(matrix, "2pl", "mml", zero="models", options=PLAIN)
        apart.append(stretched(own, truth))
        together.append(stretched(same, truth))
        found = own.hyperparameters["groups"]["second"]
        means.append((found["mean"], found["sd"]))
        gains.append(own.diagnostics["log_likelihood"] - same.diagnostics["log_likelihood"])
    scale, shift = np.mean(apart, axis=0)
    lost, drawn = np.mean(together, axis=0)

    assert abs(scale) < 0.02
    assert abs(shift) < 0.04
    assert lost > 0.08
    assert drawn < -0.5
    assert np.mean(means, axis=0) == pytest.approx([MEAN, SD], abs=0.03)
    assert min(gains) > 100
    assert "ability ~ N(0, 1) in group first" == own.identification


@pytest.mark.parametrize("prior", ["none", "estimated", "weak"])
@pytest.mark.parametrize("item_model", ["rasch", "2pl"])
def test_every_prior_finds_the_groups(item_model, prior):
    """Within three standard errors."""
    matrix, _, groups = unlike(300, item_model)
    fit = fit_irt(
        matrix, item_model, "mml", zero="models", options=MmlOptions(prior=prior, groups=groups)
    )
    first, second = fit.hyperparameters["groups"].values()

    assert (300, 0.0) == (first["n_models"], first["mean"])
    assert abs(second["mean"] - MEAN) < 3 * second["mean_std_error"] < 0.5
    assert abs(second["sd"] - SD) < 3 * second["sd_std_error"] < 0.3
    assert fit.diagnostics["converged"]


@pytest.mark.parametrize("common", [False, True])
def test_estimates_and_errors_are_those_of_the_marginal_likelihood(common):
    """Summed by brute force on a fine grid: no gradient, and errors from second differences."""
    rng = np.random.default_rng(3)
    theta = np.concatenate([rng.standard_normal(150), 0.7 + 1.3 * rng.standard_normal(150)])
    a, b = (np.ones(5) if common else rng.lognormal(0, 0.2, 5)), rng.standard_normal(5)
    right = (rng.random((300, 5)) < special.expit(a * (theta[:, None] - b))).astype(float)
    names = ["x"] * 150 + ["y"] * 150
    fit = fit_irt(
        ResponseMatrix.from_array(right), "1pl" if common else "2pl", "mml",
        zero="models", options=MmlOptions(groups=names, tolerance=1e-9),
    )  # fmt: skip
    found = fit.hyperparameters["groups"]["y"]
    at = np.linspace(-9, 9, 181)
    second = np.arange(300) >= 150

    def height(point):
        slope, d = (np.full(5, point[0]), point[1:6]) if common else (point[:5], point[5:10])
        mean, sd = point[-2], np.exp(point[-1])
        logit = at[:, None] * slope + d
        by_model = right @ logit.T - np.logaddexp(0, logit).sum(axis=1)
        own = np.where(second[:, None], -0.5 * ((at - mean) / sd) ** 2 - np.log(sd), -0.5 * at**2)
        return special.logsumexp(by_model + own, axis=1).sum()

    slopes = fit.discrimination[:1] if common else fit.discrimination
    point = np.concatenate([slopes, fit.intercept, [found["mean"], np.log(found["sd"])]])
    steps = 1e-3 * np.eye(len(point))
    gradient = [(height(point + s) - height(point - s)) / 2e-3 for s in steps]
    bend = np.array(
        [[height(point + s + t) - height(point + s - t) - height(point - s + t)
          + height(point - s - t) for s in steps] for t in steps]
    ) / 4e-6  # fmt: skip
    error = np.sqrt(np.diagonal(np.linalg.inv(-bend)))

    np.testing.assert_allclose(gradient, 0, atol=2e-3)
    assert error[-2] == pytest.approx(found["mean_std_error"], rel=1e-3)
    assert found["sd"] * error[-1] == pytest.approx(found["sd_std_error"], rel=1e-3)
    assert error[0] == pytest.approx(fit.discrimination_std_error[0], rel=1e-3)


def test_rasch_groups_are_on_the_scale_of_the_abilities():
    """Means and spreads of the groups' abilities, whose spread errors of estimation narrow."""
    matrix, _, groups = unlike(300, "rasch")
    fit = fit_irt(matrix, "rasch", "mml", zero="models", options=replace(PLAIN, groups=groups))
    found = fit.hyperparameters["groups"]["second"]
    second = np.array(groups) == "second"

    assert fit.ability[second].mean() == pytest.approx(found["mean"], abs=0.02)
    assert 0.8 < fit.ability[second].std() / found["sd"] < 1


@pytest.mark.parametrize(("item_model", "prior"), [("2pl", "weak"), ("rasch", "estimated")])
def test_large_fits_have_errors_of_groups_too(monkeypatch, item_model, prior):
    """Linearised, they are near those computed exactly, within 5 %."""
    rng = np.random.default_rng(4)
    truth = draw_truth(rng, 400, 60, item_model)
    ability = np.where(np.arange(400) < 200, truth.ability, 0.8 + 0.7 * truth.ability)
    matrix = draw_responses(truth._replace(ability=ability), rng)
    options = MmlOptions(prior=prior, groups=[0] * 200 + [1] * 200, std_errors=True)
    exact = fit_irt(matrix, item_model, "mml", zero="models", options=options)
    monkeypatch.setattr(information, "EXACT_WORK", 0)
    large = fit_irt(matrix, item_model, "mml", zero="models", options=options)
    one, other = (f.hyperparameters["groups"]["1"] for f in (exact, large))

    for name in ("mean_std_error", "sd_std_error"):
        assert one[name] == pytest.approx(other[name], rel=0.05)
        assert one[name] != other[name]
    np.testing.assert_allclose(exact.ability_std_error, large.ability_std_error, rtol=0.05)


def test_groups_are_read_by_model_or_in_order():
    """The first that appears is the first; small ones are noted."""
    one = group_labels(["a", "b", "c", "d"], {"c": 1, "d": 1, "a": "x", "b": "x", "e": "y"})

    assert one == group_labels(["a", "b", "c", "d"], ["x", "x", "1", "1"])
    assert ("x", "1") == one.names
    matrix, _, groups = unlike(30)
    groups = ["few"] * 5 + groups[5:]
    fit = fit_irt(matrix, "rasch", zero="models", options=MmlOptions(groups=groups))
    assert "groups of few models, whose mean and spread are hardly known: few (5)" in fit.notes
    assert "mml" == fit.estimator


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({"a": "x", "b": "x"}, "models without a group: c, d"),
        (["x", "x", "y"], "3 groups do not fit 4 models"),
        (["x", "x", "x", "y"], "no spread of abilities: y"),
        (["x"] * 4, "'x' is the only group of models"),
        ("xxyy", "pass the name of a group for each model"),
    ],
)
def test_groups_that_cannot_be_used_are_refused(groups, message):
    """With what is missing."""
    with pytest.raises(DesignError, match=message):
        group_labels(["a", "b", "c", "d"], groups)
