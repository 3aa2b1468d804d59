"""Integrated posteriors beside quadrature and numbers of others; equal records; stated errors."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import special

from evalstats_plugin.ranking.contests.contests import Contests
from evalstats_plugin.ranking.rank import rank
from evalstats_plugin.ranking.thurstone import exact
from evalstats_plugin.ranking.thurstone.model import fit_thurstone

GOLDEN = Path(__file__).parents[3] / "fixtures" / "golden" / "thurstone.json"
QUADRATURE = json.loads(GOLDEN.read_text(encoding="utf-8"))["exact"]
DRINKS = Contests.of(
    [1, 1, 0, 1, 4, 0, 3, 1],
    [0, 2, 3, 3, 2, 4, 2, 4],
    1,
    players=["tea", "coffee", "water", "juice", "milk"],
)


def quadrature(wins: np.ndarray, variance: float, *, reach: float = 8.5, step: float = 0.035):
    """Means, covariance, pairs and ranks of three players on a grid of their differences."""
    half = round(reach / step)
    axis = np.arange(-half, half + 1) * step * variance**0.5
    d, e = axis[:, None], axis[None, :]  # x_0 - x_1 and x_0 - x_2
    # The level of three independent ratings is integrated out.
    log_p = -(d * d + e * e - d * e) / (3 * variance)
    for i, j, between in ((0, 1, d), (0, 2, e), (1, 2, e - d)):
        log_p = log_p + wins[i, j] * special.log_ndtr(between)
        log_p = log_p + wins[j, i] * special.log_ndtr(-between)
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    x = np.stack(np.broadcast_arrays((d + e) / 3, (e - 2 * d) / 3, (d - 2 * e) / 3))
    mean = (x * p).sum(axis=(1, 2))
    # Where two are equal on the grid, each is the better half of the time.
    ahead = [
        [((x[i] > x[j] + 1e-9) * p + 0.5 * (abs(x[i] - x[j]) < 1e-9) * p).sum() for j in range(3)]
        for i in range(3)
    ]
    covariance = np.einsum("iab,jab,ab->ij", x, x, p) - np.outer(mean, mean) + variance / 3
    return mean, covariance, np.array(ahead)


def drawn(seed: int, n: int, answers: int, variance: float) -> tuple[Contests, np.ndarray]:
    rng = np.random.default_rng(seed)
    rating = rng.normal(0, variance**0.5, n)
    first = rng.integers(0, n, answers)
    second = (first + rng.integers(1, n, answers)) % n
    won = rating[first] - rating[second] + rng.normal(size=answers) > 0
    wins = np.zeros((n, n))
    np.add.at(wins, (np.where(won, first, second), np.where(won, second, first)), 1)
    return Contests.of(first, second, won.astype(float), players=n), wins


@pytest.mark.parametrize("name", QUADRATURE)
def test_three_players_agree_with_quadrature(name):
    case = QUADRATURE[name]
    contests = Contests.of(*np.transpose(case["winner_loser"]), 1, players=3)
    fit = fit_thurstone(contests, prior_covariance=case["prior_variance"], estimator="exact")
    error = fit.diagnostics["moments_error"]

    assert fit.diagnostics["exact"]
    np.testing.assert_allclose(fit.rating, case["mean"], atol=error + 1e-6)
    np.testing.assert_allclose(fit.covariance, case["covariance"], atol=error + 1e-6)
    assert fit.diagnostics["log_evidence"] == pytest.approx(case["log_evidence"], abs=2e-4)


@pytest.fixture(scope="module")
def ranked():
    """Drinks, ranked."""
    return rank(DRINKS, model="thurstone")


def test_drinks_are_those_of_quadrature_and_of_sixteen_million_draws(ranked):
    """Coffee's mean 1.145137 by tensor quadrature; P(best) by importance sampling."""
    by_name = {row.player: row for row in ranked}
    assert by_name["coffee"].mean == pytest.approx(1.145137, abs=2e-5)
    assert by_name["coffee"].prob_best == pytest.approx(0.733694, abs=2e-4)
    assert by_name["tea"].prob_best == pytest.approx(0.200258, abs=2e-4)
    assert ranked.fit.std_error[1] == pytest.approx(0.740381, abs=1e-4)
    assert by_name["coffee"].method == "thurstone exact"


@pytest.mark.usefixtures("rough_integration")
def test_equal_records_have_equal_numbers_whatever_the_seed_and_the_names():
    """Juice and milk both beat water and lost to coffee and to tea."""
    rankings = [rank(DRINKS, model="thurstone", rng=seed) for seed in (0, 9)]
    assert rankings[0].rows == rankings[1].rows
    by_name = {row.player: row for row in rankings[0]}
    assert replace(by_name["juice"], player="milk") == by_name["milk"]
    ahead = rankings[0].prob_better()
    assert ahead.loc["juice", "milk"] == 0.5


def test_cycles_and_contradictions_are_exactly_level():
    cycle = rank(Contests.of([0, 1, 2], [1, 2, 0], 1, players=3), model="thurstone")
    contradiction = rank(Contests.of([0, 1], [1, 0], 1, players=2), model="thurstone")

    assert {row.mean for row in cycle} == {0.0}
    assert len({row.prob_best for row in cycle}) == 1
    assert {row.mean for row in contradiction} == {0.0}
    assert {row.prob_best for row in contradiction} == {0.5}


def test_stated_errors_hold_beside_quadrature():
    """Means, covariances and pairs of problems drawn at random."""
    worst = []
    for seed in range(6):
        rng = np.random.default_rng([3, seed])
        variance = float(rng.choice([0.25, 1.0, 4.0]))
        contests, wins = drawn(seed, 3, int(rng.integers(1, 25)), variance)
        mean, covariance, ahead = quadrature(wins, variance)
        fit = fit_thurstone(contests, prior_covariance=variance, estimator="exact")
        about = fit.diagnostics
        assert fit.ahead is not None
        away = max(np.abs(fit.rating - mean).max(), np.abs(fit.covariance - covariance).max())
        worst.append(away / (about["moments_error"] + 2e-6))
        worst.append(np.abs(fit.ahead - ahead).max() / (about["probabilities_error"] + 2e-4))

    assert max(worst) < 1


def test_a_wrong_posterior_exceeds_the_stated_error():
    """A control: the same check on one answer more."""
    contests, wins = drawn(1, 3, 10, 1.0)
    mean, _, _ = quadrature(wins + np.eye(3)[[1, 2, 0]] * [[0.05], [0], [0]], 1.0)
    fit = fit_thurstone(contests, estimator="exact")

    assert np.abs(fit.rating - mean).max() > 10 * fit.diagnostics["moments_error"]


def test_ranks_are_doubly_stochastic_and_agree_with_pairs():
    contests, _ = drawn(5, 6, 20, 1.0)
    fit = fit_thurstone(contests, estimator="exact")
    assert fit.ranks is not None
    assert fit.ahead is not None

    np.testing.assert_allclose(fit.ranks.sum(axis=0), 1, atol=1e-9)
    np.testing.assert_allclose(fit.ranks.sum(axis=1), 1, atol=1e-9)
    np.testing.assert_allclose(fit.ahead + fit.ahead.T, 1, atol=1e-12)
    # A player's expected rank is one more than the expected number of better players.
    better = fit.ahead.T.sum(axis=1) - 0.5
    np.testing.assert_allclose(
        fit.ranks @ np.arange(1, 7), 1 + better, atol=6 * fit.diagnostics["probabilities_error"]
    )


@pytest.mark.usefixtures("rough_integration")
def test_what_is_not_exact_says_its_error():
    contests, _ = drawn(8, 8, 40, 1.0)
    ranking = rank(contests, model="thurstone")

    assert not ranking.fit.diagnostics["exact"]
    assert ranking[0].method.startswith("thurstone integrated to ±0.00")


@pytest.mark.usefixtures("rough_integration")
def test_ties_and_position_are_integrated_too():
    """Beside importance sampling of the ratings, δ and the position effect around them."""
    rng = np.random.default_rng(2)
    first = rng.integers(0, 4, 60)
    second = (first + rng.integers(1, 4, 60)) % 4
    z = 0.7 * (second - first) + 0.3 + rng.normal(size=60)
    outcome = np.where(z > 0.4, 1, np.where(z < -0.4, 0, 0.5))
    contests = Contests.of(first, second, outcome, players=4, ordered=True)
    exactly = fit_thurstone(contests, estimator="exact")
    (first, second, outcome), times = np.unique(
        [first, second, outcome], axis=1, return_counts=True
    )
    first, second = first.astype(int), second.astype(int)
    tie, sd = exactly.parameters["tie"], 1.3 * exactly.parameter_std_errors["tie"]
    mean = np.r_[exactly.rating, exactly.parameters["position"], np.log(tie)]
    scale = 1.3 * np.r_[exactly.std_error, exactly.parameter_std_errors["position"], 0] + 1e-300
    scale[-1] = sd / tie
    x = mean + scale * rng.normal(size=(200_000, 6))
    d, delta = x[:, first] - x[:, second] + x[:, 4:5], np.exp(x[:, 5:])
    p = np.where(outcome == 1, special.ndtr(d - delta), special.ndtr(-d - delta))
    p = np.where(outcome == 0.5, special.ndtr(delta - d) - special.ndtr(-delta - d), p)
    log_w = np.log(p) @ times - (x[:, :5] ** 2).sum(axis=1) / 2 - delta[:, 0] ** 2 / 2 + x[:, 5]
    log_w += (((x - mean) / scale) ** 2).sum(axis=1) / 2
    w = np.exp(log_w - log_w.max())
    w /= w.sum()
    x[:, 5] = delta[:, 0]
    drawn, error = w @ x, 4 * (w**2 @ (x - w @ x) ** 2) ** 0.5
    stated = np.r_[exactly.rating, exactly.parameters["position"], tie]

    assert (np.abs(stated - drawn) < error).all()
    assert (error < 0.1 * np.r_[exactly.std_error, 1, 1]).all()
    np.testing.assert_allclose(
        exactly.std_error, (w @ (x[:, :4] - drawn[:4]) ** 2) ** 0.5, rtol=0.03
    )


@pytest.mark.usefixtures("rough_integration")
def test_draws_are_points_in_proportion_to_the_posterior():
    contests, _ = drawn(4, 5, 30, 1.0)
    fit = fit_thurstone(contests, draws=5000)
    assert fit.draws is not None

    assert (5000, 5) == fit.draws.shape
    np.testing.assert_allclose(fit.draws.mean(axis=0), fit.rating, atol=0.02)
    np.testing.assert_allclose(fit.draws.std(axis=0), fit.std_error, rtol=0.02)


def test_symmetries_are_permutations_that_keep_the_answers():
    """Two equal challengers below a champion, and a stranger who met nobody."""
    contests = Contests.of([0, 0], [1, 2], 1, players=4)
    from evalstats_plugin.ranking.thurstone.design import sites_of

    found = exact.symmetry_of(sites_of(contests, "threshold"), 4)
    own = np.diagonal(found.labels)
    assert own[1] == own[2]
    assert 3 == len(set(own.tolist()))
    assert found.reverse is None


@pytest.mark.parametrize("answers", [(5, 3, 1), (20, 0, 1), (3, 0, 3), (0, 0, 1)])
def test_the_width_of_a_tie_is_averaged_over_with_few_ties_too(answers):
    """Its width has a long tail, which a sum over a grid includes, and moves the mean with it."""
    n_wins, n_losses, n_ties = answers
    outcome = [1] * n_wins + [0] * n_losses + [0.5] * n_ties
    contests = Contests.of([0] * sum(answers), [1] * sum(answers), outcome, players=2)
    fit = fit_thurstone(contests, estimator="exact")
    d, log_tie = np.linspace(-9, 9, 1801)[:, None], np.linspace(-14, 2.2, 401)
    tie = np.exp(log_tie)
    between = special.ndtr(tie - abs(d)) - special.ndtr(-tie - abs(d))
    log_p = n_wins * special.log_ndtr(d - tie) + n_losses * special.log_ndtr(-d - tie)
    log_p = log_p + n_ties * np.log(np.maximum(between, 1e-300))
    log_p = log_p - d**2 / 4 - tie**2 / 2 + log_tie
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    mean, tie_mean = float((p * d).sum()), float((p * tie).sum())
    variance = float((p * (d - mean) ** 2).sum())
    contrast = np.array([1, -1])

    assert fit.rating[0] - fit.rating[1] == pytest.approx(mean, abs=2e-5)
    assert contrast @ fit.covariance @ contrast == pytest.approx(variance, abs=1e-4)
    assert fit.parameters["tie"] == pytest.approx(tie_mean, abs=1e-4)
    assert fit.ahead is not None
    assert fit.ahead[0, 1] == pytest.approx(p[901:].sum() + p[900].sum() / 2, abs=2e-5)
    assert fit.diagnostics["exact"]
