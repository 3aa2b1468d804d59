"""Plackett–Luce against NASCAR's season, choix, Bradley–Terry and the definition."""

from itertools import permutations

import numpy as np
import pytest

from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.ranking.contests.contests import Contests
from evalstats_plugin.ranking.ratings import likelihood
from evalstats_plugin.ranking.ratings.bradley_terry import fit_bradley_terry
from evalstats_plugin.ranking.ratings.plackett_luce import fit_plackett_luce
from evalstats_plugin.ranking.rows import ELO_ANCHOR, POINTS


def log_likelihood(rankings, rating, depth=None):
    """The definition: each next one of those left, with probability proportional to e^rating."""
    return sum(
        rating[order[k]] - np.log(np.exp(rating[list(order[k:])]).sum())
        for order in rankings
        for k in range(len(order) - 1 if depth is None else min(depth, len(order) - 1))
    )


def test_nascar_2002_of_hunter_2004(golden):
    given = golden["nascar_plackett_luce"]
    fit = fit_plackett_luce(given["rankings"], given["items_kept"])
    expected = given["recomputed"]

    assert fit.log_likelihood == pytest.approx(expected["loglik"], abs=1e-6)
    np.testing.assert_allclose(fit.rating, expected["log_worth_centred"], atol=1e-6)
    share = np.exp(fit.rating).max() / np.exp(fit.rating).sum()
    assert share == pytest.approx(expected["gamma_sum_to_1_max"], abs=1e-6)


@pytest.mark.parametrize("number", [1, 2])
def test_rankings_and_choices_of_choix(golden, number):
    cases = golden["choix_testcases"]["cases"]
    rankings = cases[f"testcase-rankings-{number}.json"]
    fit = fit_plackett_luce(rankings["data"])
    # Stored to what its optimiser reached.
    np.testing.assert_allclose(fit.rating, rankings["ml_est"], atol=5e-5)
    choices = cases[f"testcase-top1-{number}.json"]
    picked = fit_plackett_luce([[best, *rest] for best, rest in choices["data"]], depth=1)
    np.testing.assert_allclose(picked.rating, choices["ml_est"], atol=1e-6)


@pytest.mark.parametrize("depth", [None, 1, 2])
def test_log_likelihood_is_that_of_the_definition(depth):
    orders = [order for order in permutations(range(4)) if order[0] < 3]
    fit = fit_plackett_luce(orders, 4, depth=depth)

    expected = log_likelihood(orders, fit.rating, depth)
    assert fit.log_likelihood == pytest.approx(expected, abs=1e-10)
    # A control: the other depth has another likelihood.
    other = log_likelihood(orders, fit.rating, 3 - (depth or 3))
    assert abs(fit.log_likelihood - other) > 1


def test_the_estimate_is_the_maximum():
    rng = np.random.default_rng(0)
    rankings = [rng.permutation(6)[: rng.integers(2, 7)].tolist() for _ in range(40)]
    fit = fit_plackett_luce(rankings)
    for k in range(6):
        for step in (1e-3, -1e-3):
            moved = fit.rating + step * (np.arange(6) == k)
            assert log_likelihood(rankings, moved) < fit.log_likelihood


@pytest.mark.parametrize("covariance", ["model", "sandwich"])
def test_rankings_of_two_are_bradley_terry(simulated, covariance, monkeypatch):
    """Without Bradley–Terry's correction for small samples."""
    monkeypatch.setattr(likelihood, "CORRECTED", 0)
    _, made = simulated(5, 200, 1)
    won = made.outcome == 1
    pairs = np.where(won[:, None], np.c_[made.first, made.second], np.c_[made.second, made.first])
    fit = fit_plackett_luce(pairs.tolist(), 5, covariance=covariance)
    other = fit_bradley_terry(Contests.of(*pairs.T, 1.0, players=5), covariance=covariance)

    np.testing.assert_allclose(fit.rating, other.rating, atol=1e-9)
    np.testing.assert_allclose(fit.covariance, other.covariance, atol=1e-9)


def test_one_always_last_is_finite_and_flagged():
    fit = fit_plackett_luce([[0, 1, 2], [1, 0, 2], [0, 1, 2]])

    assert "always ranked before" in fit.notes[0]
    assert -8 < fit.rating[2] < -2


@pytest.mark.parametrize(
    ("rankings", "players", "message"),
    [
        ([], None, "no ranking has two players"),
        ([[0]], None, "no ranking has two players"),
        ([[0, 1, 0]], None, "a ranking has a player twice"),
        ([[0, 3]], 3, "outside the list of 3"),
        ([[0, -1]], 3, "outside the list of 3 players: use 0 to 2"),
        ([[0, 1], [1, 0]], 3, "no ranking connects these players with the rest: player_2"),
    ],
)
def test_invalid_rankings_are_refused(rankings, players, message):
    with pytest.raises(DesignError, match=message):
        fit_plackett_luce(rankings, players)


def test_elo_is_400_points_for_ten_to_one(llmfao):
    rating = fit_bradley_terry(llmfao, ties="half").rating[llmfao.players.index("GPT 4")]

    # As arena-rank 0.1.1 has it.
    assert ELO_ANCHOR + POINTS * rating == pytest.approx(1172.13, abs=0.02)
    assert POINTS * np.log(10) == pytest.approx(400)


@pytest.mark.parametrize("sd", [0.5, 2.0])
def test_a_prior_adds_its_precision_to_the_information(sd):
    """The estimate is the posterior's mode, its covariance that of the curvature there."""
    rng = np.random.default_rng(0)
    rankings = [rng.permutation(4).tolist() for _ in range(12)]
    fit = fit_plackett_luce(rankings, prior_sd=sd, covariance="model")

    def value(rating):
        return log_likelihood(rankings, rating) - rating @ rating / 2 / sd**2

    steps, h = np.eye(4), 1e-4
    gradient = [(value(fit.rating + h * s) - value(fit.rating - h * s)) / 2 / h for s in steps]
    curve = [
        [
            sum(
                sign * value(fit.rating + h * (s + sign * t)) for sign in (1, -1)
            ) - sum(sign * value(fit.rating + h * (sign * t - s)) for sign in (1, -1))
            for t in steps
        ]
        for s in steps
    ]  # fmt: skip
    centre = np.eye(4) - 0.25
    expected = centre @ np.linalg.inv(-np.array(curve) / 4 / h**2) @ centre
    np.testing.assert_allclose(gradient, 0, atol=1e-4)
    np.testing.assert_allclose(centre @ fit.covariance @ centre, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("covariance", ["model", "sandwich"])
@pytest.mark.parametrize("prior_sd", [None, 1.5])
@pytest.mark.parametrize("depth", [None, 2])
def test_rankings_of_several_lengths_by_numerical_derivatives(prior_sd, depth, covariance):
    """Maximum, information and scores of each ranking, from the definition alone."""
    rng = np.random.default_rng(12)
    rankings = [rng.permutation(5)[: rng.integers(1, 6)].tolist() for _ in range(40)]
    fit = fit_plackett_luce(rankings, 5, depth=depth, prior_sd=prior_sd, covariance=covariance)
    step = 1e-4 * np.eye(5)

    def value(rating, of=rankings):
        held = 0.0 if prior_sd is None or of is not rankings else rating @ rating / 2 / prior_sd**2
        return log_likelihood(of, rating, depth) - held

    def gradient(rating, of=rankings):
        return np.array([value(rating + h, of) - value(rating - h, of) for h in step]) / 2e-4

    assert fit.estimator == ("ml" if prior_sd is None else "laplace")
    assert gradient(fit.rating) == pytest.approx(0, abs=1e-5)
    assert fit.log_likelihood == pytest.approx(log_likelihood(rankings, fit.rating, depth))
    information = (
        -np.array([gradient(fit.rating + h) - gradient(fit.rating - h) for h in step]) / 2e-4
    )
    centre = np.eye(5) - 0.2
    bread = centre @ np.linalg.pinv(information, rcond=1e-6) @ centre
    scores = np.array([gradient(fit.rating, [ranking]) for ranking in rankings])
    precision = 0.0 if prior_sd is None else prior_sd**-2
    middle = bread @ (scores.T @ scores + precision * np.eye(5)) @ bread
    expected = bread if covariance == "model" else middle
    np.testing.assert_allclose(fit.covariance, expected, rtol=1e-3, atol=1e-6)
    assert fit.diagnostics["n_rankings"] == 40
    assert fit.diagnostics["converged"]
    assert fit.notes == ()


@pytest.mark.parametrize("prior_sd", [None, 2.0])
def test_players_ranked_before_all_others_are_as_uncertain_as_by_bradley_terry(prior_sd):
    """The sandwich took rankings that all agree for certain: less than half the errors."""
    fit = fit_plackett_luce([[0, 1]] * 5, 2, prior_sd=prior_sd)
    pairs = fit_bradley_terry(Contests.of([0] * 5, [1] * 5, 1, players=2), prior_sd=prior_sd)

    np.testing.assert_allclose(fit.rating, pairs.rating, atol=1e-6)
    np.testing.assert_allclose(fit.covariance, pairs.covariance, rtol=1e-5)


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"covariance": "sandwhich"}, SelectionError, "did you mean sandwich"),
        ({"prior_sd": 0.0}, DesignError, "prior_sd is 0.0: give a number above 0"),
        ({"depth": 0}, DesignError, "depth is 0: give a number above 0"),
    ],
)
def test_options_out_of_range_are_refused(wrong, error, message):
    with pytest.raises(error, match=message):
        fit_plackett_luce([[0, 1], [1, 0]], 2, **wrong)
