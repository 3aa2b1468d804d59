"""Marginal maximum likelihood against R, direct sums, and what must not matter."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, optimize, special

from evalstats_plugin import ResponseMatrix
from evalstats_plugin.irt.estimators.extremes import common_errors, limited
from evalstats_plugin.irt.estimators.fitted import fit_mml
from evalstats_plugin.irt.estimators.grid import arrange
from evalstats_plugin.irt.estimators.information import _linearised, _observed, is_quick
from evalstats_plugin.irt.estimators.mml import ItemPrior, fit_marginal
from evalstats_plugin.irt.estimators.optimise import squarem
from evalstats_plugin.irt.fitting import fit_irt
from evalstats_plugin.irt.methods import MmlOptions
from evalstats_plugin.irt.model.curves import Items
from evalstats_plugin.irt.model.data import Counts
from evalstats_plugin.irt.model.fit import IRTFit
from evalstats_plugin.irt.model.simulate import simulate_responses
from evalstats_plugin.irt.scoring import score_models

GOLDEN = json.loads(
    (Path(__file__).parents[3] / "fixtures" / "golden" / "irt.json").read_text(encoding="utf-8")
)
AS_IN_R = {"nodes": 61, "tolerance": 1e-9}


def lsat(name):
    """Persons as models: each pattern as often as it occurred."""
    rows = [
        [int(c) for c in pattern] for pattern, n in GOLDEN["data"][name].items() for _ in range(n)
    ]
    return np.array(rows, dtype=float)


def simulated(n, m, rng, *, missing=0.2, slopes=None):
    theta, b = rng.standard_normal(n), rng.standard_normal(m)
    a = np.exp(0.3 * rng.standard_normal(m)) if slopes is None else slopes
    scores = (rng.random((n, m)) < special.expit(a * (theta[:, None] - b))).astype(float)
    scores[rng.random((n, m)) < missing] = np.nan
    return scores, theta, a, b


def fit(scores, item_model="2pl", **options):
    matrix = ResponseMatrix.from_array(scores)
    return fit_irt(matrix, item_model, "mml", zero="models", options=MmlOptions(**options))


def counts(scores):
    there = ~np.isnan(scores)
    return Counts(torch.from_numpy(np.nan_to_num(scores)), torch.from_numpy(there.astype(float)))


@pytest.mark.parametrize("expected", GOLDEN["fits"], ids=lambda e: f"{e['data']}-{e['model']}")
def test_estimates_errors_and_likelihood_agree_with_mirt(expected):
    """R's mirt 1.47, same nodes: everything within 1e-4, as R prints it."""
    found = fit(lsat(expected["data"]), expected["model"], **AS_IN_R)

    assert found.diagnostics["converged"]
    assert expected["log_likelihood"] == pytest.approx(
        found.diagnostics["log_likelihood"], abs=1e-5
    )
    np.testing.assert_allclose(found.intercept, expected["intercept"], atol=1e-5)
    np.testing.assert_allclose(
        found.intercept_std_error, expected["intercept_std_error"], atol=1e-5
    )
    np.testing.assert_allclose(found.discrimination, expected["discrimination"], atol=1e-5)
    if expected["model"] == "rasch":
        known = found.hyperparameters
        assert expected["variance"] == pytest.approx(known["ability_variance"], abs=3e-5)
        assert expected["variance_std_error"] == pytest.approx(
            known["ability_variance_std_error"], abs=1e-5
        )
    else:
        np.testing.assert_allclose(
            found.discrimination_std_error, expected["discrimination_std_error"], atol=1e-5
        )


@pytest.mark.parametrize("item_model", ["rasch", "2pl", "3pl"])
def test_sat12_agrees_with_mirt(item_model):
    """32 items, 600 persons, answers missing; figures of ours by tests/generate/sat12.py."""
    file = Path(__file__).parents[3] / "fixtures" / "golden" / "sat12.json"
    golden = json.loads(file.read_text(encoding="utf-8"))
    ours, theirs = golden["ours"][item_model], golden["mirt"][item_model]
    close = 1e-2 if item_model == "3pl" else 1e-4

    assert ours["converged"]
    assert ours["log_likelihood"] == pytest.approx(theirs["log_likelihood"], abs=1e-4)
    for name in ("a", "d", "a_std_error", "d_std_error"):
        found, expected = (np.array(x[name], dtype=float) for x in (ours, theirs))
        np.testing.assert_allclose(found, expected, atol=close)


# eRm 1.0-2, RM(): conditional difficulties that sum to 0, and their standard errors.
ERM = {
    "LSAT6": (
        [-1.25612796, 0.47490715, 1.23598061, 0.16841007, -0.62316987],
        [0.10440569, 0.06991707, 0.06877769, 0.07261944, 0.08591741],
    ),
    "LSAT7": (
        [-0.54147033, 0.53654547, -0.13358265, 0.80516638, -0.66665888],
        [0.07916838, 0.06796087, 0.07313265, 0.06745668, 0.08151802],
    ),
}


@pytest.mark.parametrize("name", ERM)
def test_difficulties_are_those_of_erm_which_assumes_no_population(name):
    """1,000 persons, by another likelihood: within a fiftieth of a standard error."""
    estimate, error = map(np.array, ERM[name])
    found = fit(lsat(name), "rasch").difficulty

    assert np.abs((found - found.mean() - estimate) / error).max() < 0.02


@pytest.mark.parametrize("name", ["LSAT6", "LSAT7"])
def test_scores_on_known_items_agree_with_mirt(name):
    """Posterior means, modes and standard deviations of each pattern."""
    table = GOLDEN["scores"][name]
    patterns = np.array([[float(c) for c in row] for row in table["rows"]])
    expected = np.array(list(table["rows"].values()))
    one, two = (fit(lsat(name), model, **AS_IN_R) for model in ("1pl", "2pl"))
    matrix = ResponseMatrix.from_array(patterns)

    for column, (found, method) in {0: (one, "eap"), 2: (two, "eap"), 4: (two, "map")}.items():
        scored = score_models(found, matrix, method=method)
        np.testing.assert_allclose(scored.ability, expected[:, column], atol=2e-4)
        np.testing.assert_allclose(scored.ability_std_error, expected[:, column + 1], atol=2e-4)


@pytest.mark.parametrize("item_model", ["2pl", "4pl"])
def test_the_likelihood_is_the_integral(item_model):
    """Three models, four items, one missing cell, two trials: by adaptive quadrature."""
    scores = np.array([[1, 0, 1, 1], [0, 0, 1, np.nan], [1, 1, 0, 0.0]])
    scores = np.stack([scores, [[1, 1, 1, 0], [0, 1, 0, np.nan], [1, 0, 0, 0]]], axis=2)
    found = fit(scores, item_model, prior="weak")
    right, trials = np.nansum(scores, axis=2), (~np.isnan(scores)).sum(axis=2)

    def joint(theta, i):
        logit = found.discrimination * theta + found.intercept
        p = found.guessing + (found.upper - found.guessing) * special.expit(logit)
        terms = right[i] * np.log(p) + (trials[i] - right[i]) * np.log1p(-p)
        return np.exp(terms.sum() - theta**2 / 2) / np.sqrt(2 * np.pi)

    parts = [integrate.quad(joint, -9, 9, args=(i,), epsabs=1e-14)[0] for i in range(3)]
    means = [
        integrate.quad(lambda t, i: t * joint(t, i), -9, 9, args=(i,))[0] / parts[i]
        for i in range(3)
    ]

    assert np.log(parts).sum() == pytest.approx(found.diagnostics["log_likelihood"], abs=1e-8)
    np.testing.assert_allclose(found.ability, means, atol=1e-7)


def test_no_small_change_of_any_parameter_is_better():
    """The definition of a maximum, by brute force: and the curvature gives the errors."""
    scores = lsat("LSAT7")
    found = fit(scores, **AS_IN_R)
    best = np.concatenate([found.discrimination, found.intercept])
    at = np.linspace(-8, 8, 201)
    patterns, often = np.unique(scores, axis=0, return_counts=True)

    def log_likelihood(values):
        logit = values[:5, None] * at + values[5:, None]
        joint = patterns @ logit - np.logaddexp(0, logit).sum(axis=0) - at**2 / 2
        return often @ special.logsumexp(joint, axis=1)

    step = 1e-3
    eye = np.eye(10) * step
    top = log_likelihood(best)
    assert all(log_likelihood(best + s * e) < top for e in eye for s in (-1, 1))
    hessian = np.array(
        [
            [
                sum(s * t * log_likelihood(best + s * e + t * f) for s in (-1, 1) for t in (-1, 1))
                for f in eye
            ]
            for e in eye
        ]
    ) / (4 * step**2)
    errors = np.sqrt(np.diagonal(np.linalg.inv(-hessian)))
    mine = np.concatenate([found.discrimination_std_error, found.intercept_std_error])
    np.testing.assert_allclose(mine, errors, rtol=1e-4)


def test_the_order_of_models_and_items_does_not_matter():
    """Relabelled, every estimate goes with its label."""
    rng = np.random.default_rng(1)
    scores = simulated(60, 12, rng)[0]
    rows, columns = rng.permutation(60), rng.permutation(12)
    expected, found = fit(scores, tolerance=1e-9), fit(scores[rows][:, columns], tolerance=1e-9)

    np.testing.assert_allclose(found.ability, expected.ability[rows], atol=1e-6)
    np.testing.assert_allclose(found.difficulty, expected.difficulty[columns], atol=1e-5)
    np.testing.assert_allclose(
        found.ability_covariance, expected.ability_covariance[rows][:, rows], atol=1e-6
    )


def test_the_same_data_give_the_same_numbers_to_the_bit():
    """No randomness, no order of sums that changes."""
    scores = simulated(50, 30, np.random.default_rng(2))[0]
    first, second = fit(scores), fit(scores)

    assert first.ability.tobytes() == second.ability.tobytes()
    assert first.discrimination_std_error.tobytes() == second.discrimination_std_error.tobytes()


def test_missing_cells_are_ignored():
    """Models without an item have the likelihood of the items they took: patterns of it or not."""
    rng = np.random.default_rng(3)
    scores = simulated(80, 10, rng, missing=0)[0]
    scores[:40, 7:] = np.nan
    found = fit(scores, prior="weak")
    shared = arrange(counts(scores))
    scored = score_models(found, ResponseMatrix.from_array(scores[:40, :7]))

    assert 2 == len(shared.trials)
    np.testing.assert_allclose(scored.ability, found.ability[:40], atol=1e-8)


def test_epochs_are_items_asked_again():
    """Three epochs of an item with one set of parameters: the same likelihood as three items."""
    rng = np.random.default_rng(4)
    one = simulated(100, 6, rng, missing=0.1)[0]
    again = np.repeat(one[:, :, None], 3, axis=2)
    epochs, items = fit(again, prior="none"), fit(again.reshape(100, 18), prior="none")

    np.testing.assert_allclose(
        np.repeat(epochs.difficulty, 3), items.difficulty, atol=1e-3, rtol=1e-3
    )
    inner = (epochs.endless == 0) & (items.endless == 0)
    np.testing.assert_allclose(epochs.ability[inner], items.ability[inner], atol=1e-3)


def test_an_item_with_its_key_turned_round_gets_a_negative_discrimination():
    """And a note; the others keep theirs."""
    rng = np.random.default_rng(5)
    slopes = np.full(30, 1.2)
    slopes[4] = -1.2
    found = fit(simulated(500, 30, rng, slopes=slopes)[0])

    assert [4] == np.flatnonzero(found.discrimination < 0).tolist()
    assert any("negative discrimination of 1 item" in note for note in found.notes)


@pytest.mark.parametrize("prior", ["none", "weak", "estimated"])
def test_items_all_right_or_all_wrong_are_finite(prior):
    """With a prior they are estimated, without one they are set aside."""
    scores = simulated(40, 25, np.random.default_rng(6), missing=0)[0]
    scores[:, 3], scores[:, 8] = 1, 0
    found = fit(scores, prior=prior)
    without = fit(np.delete(scores, [3, 8], axis=1), prior=prior)

    assert np.isfinite(found.difficulty).all()
    assert found.intercept[3] == found.intercept.max()
    assert found.intercept[8] == found.intercept.min()
    assert (prior == "none") == np.isnan(found.difficulty_std_error[[3, 8]]).all()
    if prior == "none":
        np.testing.assert_allclose(found.ability, without.ability, atol=1e-12)


def test_an_item_that_separates_the_models_is_held_at_the_bound_and_noted():
    """It ended a little above or below 25, up to 46, and the note counted it only if above."""
    rng = np.random.default_rng(5)
    scores, theta, *_ = simulated(40, 20, rng, missing=0, slopes=np.ones(20))
    scores[:, 0] = theta > np.median(theta)
    found = fit(scores, std_errors=False)

    assert (found.discrimination == 25).sum() == 2
    assert found.discrimination[0] == found.discrimination.max() == 25
    assert any("2 of 20 items separate the models perfectly" in note for note in found.notes)
    assert not any("no standard error" in note for note in found.notes)


@pytest.mark.parametrize(("item_model", "prior"), [("2pl", "estimated"), ("rasch", "none")])
def test_limits_of_a_model_all_right_allow_for_errors_that_items_do_not_share(item_model, prior):
    """With few models the scale is unsure, for it as for the others: 3.9 was where 2.2 is.

    Beside errors of each item by itself, from the information that it has given the abilities.
    """
    scores = simulated(8, 40, np.random.default_rng(2), missing=0, slopes=np.ones(40))[0]
    scores[0], scores[1, :] = 1, np.arange(40) % 2
    data, options = counts(scores), MmlOptions(prior=prior)
    found = fit_mml(ResponseMatrix.from_array(scores), data, item_model, options)
    kept = data if prior != "none" else data.of_items(torch.from_numpy((scores == 0).any(axis=0)))
    marginal = fit_marginal(kept, options, item_model)
    nodes, weight = marginal.nodes.at.numpy(), marginal.weights.numpy().sum(0)
    a, d = (x.numpy() for x in marginal.items[:2])
    p = special.expit(a[:, None] * nodes + d[:, None])
    information = np.stack([(weight * p * (1 - p)) @ nodes**k for k in (2, 1, 1, 0)], axis=1)
    information = information.reshape(-1, 2, 2)
    spread = np.zeros_like(information)
    if item_model == "rasch":
        spread[:, 1, 1] = 1 / information[:, 1, 1]
    else:
        spread = np.linalg.inv(information + marginal.prior.precision.numpy())

    def surplus(theta):
        lever = np.array([theta, 1.0])
        logit = (a * theta + d) / np.sqrt(1 + np.pi / 8 * (spread @ lever @ lever))
        return special.expit(logit).prod() - 0.5

    unit = float(marginal.items.slope[0]) if item_model == "rasch" else 1.0
    expected = unit * optimize.brentq(surplus, -5, 30)
    assert found.ability[0] == pytest.approx(expected, rel=0.1)
    none = limited(replace(found, scale_covariance=None), np.eye(8)[0], np.ones((1, 40)))
    assert none.ability[0] > 1.05 * found.ability[0]


def test_errors_of_zero_and_unit_are_what_pairs_of_models_have_in_common():
    """Exactly where there is nothing else, and none below 0."""
    found = fit(simulated(9, 30, np.random.default_rng(0), missing=0)[0], prior="weak")
    levers = np.stack([np.ones(9), found.ability], axis=1)
    common = np.array([[0.3, -0.1], [-0.1, 0.2]])

    def errors(matrix):
        covariance = levers @ matrix @ levers.T + np.diag(np.arange(9.0))
        covariance[8] = covariance[:, 8] = np.nan
        return common_errors(replace(found, ability_covariance=covariance), np.arange(8))

    np.testing.assert_allclose(errors(common), common, atol=1e-9)
    np.testing.assert_allclose(errors(-common), 0, atol=1e-9)


@pytest.mark.parametrize("zero", ["models", "items", "model_3"])
@pytest.mark.parametrize("item_model", ["rasch", "1pl", "2pl"])
def test_a_model_all_right_that_is_scored_again_has_the_limits_of_the_fit(
    item_model, zero, tmp_path
):
    """Counted from the items they were up to a tenth farther; after loading from a file too."""
    scores = simulated(8, 40, np.random.default_rng(2), missing=0, slopes=np.ones(40))[0]
    scores[0], scores[1] = 1, np.arange(40) % 2
    matrix, options = ResponseMatrix.from_array(scores), MmlOptions(prior="weak")
    found = fit_irt(matrix, item_model, "mml", zero=zero, options=options)
    loaded = IRTFit.load(found.save(tmp_path / "fit.parquet"))

    for known in (found, loaded):
        again = score_models(known, matrix)
        assert again.ability[0] == pytest.approx(found.ability[0], abs=2e-3)
        np.testing.assert_allclose(
            again.ability_quantiles[0], found.ability_quantiles[0], atol=2e-3
        )


def test_the_time_of_inverting_the_information_grows_with_the_cube_of_the_items():
    """60 models on 2,000 items took 13 seconds, called two."""
    marginal = fit_marginal(counts(simulated(9, 20, np.random.default_rng(0))[0]), MmlOptions())

    def is_quick_for(n, m):
        one = torch.ones(m)
        return is_quick(n, marginal._replace(items=Items(one, one)))

    quick = [[m for m in (1000, 1500, 1600, 3000) if is_quick_for(n, m)] for n in (2, 20, 60)]
    assert quick == [[1000, 1500]] * 3


def test_few_nodes_are_noted_and_chosen_ones_are_close_enough():
    """Long tests have narrow posteriors: 15 nodes miss them, the choice from the data does not."""
    scores = simulated(60, 400, np.random.default_rng(7))[0]
    few, chosen = fit(scores, nodes=15), fit(scores)

    assert any("15 nodes are" in note for note in few.notes)
    assert chosen.diagnostics["node_spacing"] <= 2
    assert not any("nodes" in note for note in chosen.notes)
    fine = fit(scores, nodes=501, std_errors=False)
    assert fine.diagnostics["log_likelihood"] == pytest.approx(
        chosen.diagnostics["log_likelihood"], abs=0.01
    )


def test_long_tests_do_not_underflow():
    """8,000 items: exp(-5,000) is 0, its logarithm is not."""
    scores = simulated(12, 8000, np.random.default_rng(8))[0]
    found = fit(scores, "rasch", std_errors=False)

    assert np.isfinite(found.ability).all()
    assert found.diagnostics["converged"]


def test_truth_is_recovered_and_shuffled_answers_tell_nothing():
    """A negative control: answers shuffled between models leave no ability to find."""
    rng = np.random.default_rng(9)
    scores, theta, a, b = simulated(600, 60, rng)
    found = fit(scores, prior="estimated")
    control = fit(np.array([rng.permutation(column) for column in scores.T]).T, prior="weak")

    assert np.corrcoef(found.ability, theta)[0, 1] > 0.93
    assert np.corrcoef(found.discrimination, a)[0, 1] > 0.8
    assert np.sqrt(np.mean((found.difficulty - b) ** 2)) < 0.2
    z = (found.ability - theta) / found.ability_std_error
    assert 0.92 < np.mean(np.abs(z) < 1.96) < 0.98
    assert np.abs(control.discrimination).mean() < 0.3


@pytest.mark.parametrize("item_model", ["1pl", "2pl"])
def test_large_problems_get_nearly_the_exact_errors(item_model):
    """The linearised information against Louis' identity on the same fit."""
    data = counts(simulated(300, 60, np.random.default_rng(10))[0])
    found = fit_marginal(data, MmlOptions(), item_model)
    exact = _observed(arrange(data), found, sandwich=False, exact=True)
    quick = _linearised(arrange(data), found)

    np.testing.assert_allclose(quick.items, exact.items, rtol=0.03, atol=2e-4)
    np.testing.assert_allclose(quick.abilities.diagonal(), exact.abilities.diagonal(), rtol=0.01)


def test_the_sandwich_agrees_where_the_model_is_true():
    """Information and scores' cross-products estimate the same thing."""
    scores = simulated(1500, 6, np.random.default_rng(11), missing=0)[0]
    plain, sandwich = fit(scores), fit(scores, sandwich=True)

    assert not np.array_equal(plain.intercept_std_error, sandwich.intercept_std_error)
    np.testing.assert_allclose(plain.intercept_std_error, sandwich.intercept_std_error, rtol=0.15)


def test_warm_and_ml_scores_solve_their_equations():
    """Definitions: the derivative of the (weighted) log-likelihood is 0 at the estimate."""
    found = fit(lsat("LSAT7"))
    matrix = ResponseMatrix.from_array(list(itertools.product((0.0, 1.0), repeat=5)))
    a, d, y = found.discrimination, found.intercept, matrix.scores[:, :, 0]

    def weighted(theta, power):
        p = special.expit(a * theta[:, None] + d)
        information = (a**2 * p * (1 - p)).sum(axis=1)
        log_likelihood = (y * np.log(p) + (1 - y) * np.log1p(-p)).sum(axis=1)
        return log_likelihood + power * np.log(information)

    for method, power in (("ml", 0.0), ("wle", 0.5)):
        theta = score_models(found, matrix, method=method).ability
        inside = np.isfinite(theta)
        theta = np.where(inside, theta, 0)
        slope = (weighted(theta + 1e-5, power) - weighted(theta - 1e-5, power)) / 2e-5
        assert 30 == inside.sum() if method == "ml" else inside.all()
        np.testing.assert_allclose(slope[inside], 0, atol=1e-6)


def test_partial_credit_is_a_share_of_a_success():
    """Half of one item: between wrong and right."""
    scores = simulated(50, 8, np.random.default_rng(12), missing=0)[0]
    abilities = []
    for value in (0.0, 0.5, 1.0):
        scores[0, 0] = value
        matrix = ResponseMatrix.from_array(scores)
        found = fit_mml(matrix, counts(scores), "rasch", MmlOptions())
        abilities.append(found.ability[0])

    assert abilities[0] < abilities[1] < abilities[2]


@pytest.mark.parametrize("item_model", ["1pl", "2pl"])
def test_an_estimated_prior_does_not_pin_the_scale(item_model):
    """Counted as known, the items' distribution once made abilities' common errors too small.

    The mean of N abilities is known from N(0, 1) alone: its variance is nearly 1/N.
    """
    scores = simulated(200, 150, np.random.default_rng(13))[0]
    share = np.full(200, 1 / 200)
    for prior in ("none", "estimated"):
        covariance = fit(scores, item_model, prior=prior).ability_covariance

        assert share @ covariance @ share == pytest.approx(1 / 200, rel=0.1)


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.floats(-1.9, 0.95), min_size=1, max_size=6),
    st.integers(0, 2**31),
)
def test_the_search_settles_where_plain_steps_fly_apart(rates: list[float], seed: int) -> None:
    """Of a linear step with eigenvalues below -1, each step goes farther than the one before."""
    random = np.random.default_rng(seed)
    turn = np.linalg.qr(random.normal(size=(len(rates), len(rates))))[0]
    step = torch.tensor(turn @ np.diag(rates) @ turn.T)
    goal = torch.tensor(random.normal(size=len(rates)))

    def onward(at: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        # An objective that rises as the steps fly apart.
        return goal + step @ (at - goal), (at - goal).square().sum()

    solution = squarem(onward, torch.zeros_like(goal), tolerance=1e-8, max_steps=3000)

    assert bool(solution.converged)
    torch.testing.assert_close(solution.at, goal, atol=1e-5, rtol=0)


def test_a_common_chance_settles_where_nothing_is_guessed() -> None:
    """An item that no model gets right, less often than by guessing, once kept the prior moving."""
    matrix, _ = simulate_responses(rng=0, n_models=40, n_items=20, item_model="2pl")
    assert matrix.scores.sum(axis=(0, 2)).min() == 0
    options = MmlOptions(prior="estimated", common_asymptotes=True, std_errors=False)

    fit = fit_irt(matrix, "3pl", options=options)

    assert fit.diagnostics["converged"]
    assert fit.diagnostics["iterations"] < 100


def test_the_search_counts_its_steps() -> None:
    """However it ends: within, after an extrapolation, or because they are used up."""
    for rate in (0.0, 0.3, 0.9, 0.999):
        for most in (1, 2, 3, 4, 30, 500):
            calls = 0

            def onward(at: torch.Tensor, rate: float = rate) -> tuple[torch.Tensor, torch.Tensor]:
                nonlocal calls
                calls += 1
                return 1 + rate * (at - 1), -(at - 1).square().sum()

            start = torch.tensor([5.0, -2.0], dtype=torch.float64)
            solution = squarem(onward, start, tolerance=1e-7, max_steps=most)
            assert solution.steps == calls
            assert calls <= most


@pytest.mark.parametrize("columns", [1, 2])
def test_parameter_expansion_is_a_newton_step_of_the_items_and_the_abilities(columns: int) -> None:
    """Of log N(θ) and a fixed prior of items, both moved together, by differentiation."""
    rng = np.random.default_rng(2)
    items = Items(*(torch.tensor(rng.normal(1, 0.3, 6)) for _ in range(2)))
    root = torch.tensor(np.tril(rng.normal(size=(columns, columns))) + 2 * np.eye(columns))
    prior = ItemPrior(torch.tensor(rng.normal(size=columns)), root, estimated=False)
    mean, square, n = torch.tensor(0.2).double(), torch.tensor(1.15).double(), 9

    def height(move: torch.Tensor) -> torch.Tensor:
        shift, log_scale = move
        scale = log_scale.exp()
        # Abilities are divided by their scale, and slopes multiplied.
        moved = items._replace(
            slope=items.slope * (scale if columns == 2 else 1),
            intercept=items.intercept + items.slope * shift,
        )
        of_abilities = -((square - 2 * shift * mean + shift**2) / scale**2) / 2 - log_scale
        return n * of_abilities + prior.log_density(moved).sum()

    here = torch.zeros(2, dtype=torch.float64)
    slope = torch.autograd.functional.jacobian(height, here)
    shift, scale = prior.expansion(mean, square, n, items)
    weight = prior.precision[-1, -1] * items.slope.square().sum()
    bend = prior.precision[0, 0] * items.slope.square().sum() if columns == 2 else 0.0

    torch.testing.assert_close(shift, slope[0] / (n + weight))
    torch.testing.assert_close(scale.log(), slope[1] / (2 * n * square + bend))
