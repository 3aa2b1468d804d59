"""Profile likelihood intervals against the closed form, Wald ones, and infinity."""

import numpy as np
import pytest
from scipy import optimize

from evalstats_plugin.errors import SelectionError
from evalstats_plugin.ranking.contests.contests import Contests
from evalstats_plugin.ranking.ratings.bradley_terry import fit_bradley_terry
from evalstats_plugin.ranking.ratings.profile import _limit, profile_interval

DROP = 3.841458820694124
"""95 % quantile of χ² with 1 degree of freedom."""


def test_two_players_have_the_likelihood_ratio_interval_of_a_proportion():
    made = Contests.of([0] * 20, [1] * 20, [1] * 14 + [0] * 6)

    def excess(x):
        p = 1 / (1 + np.exp(-x))
        best = 14 * np.log(0.7) + 6 * np.log(0.3)
        return 2 * (best - 14 * np.log(p) - 6 * np.log(1 - p)) - DROP

    found = profile_interval(made, "player_0", "player_1")
    middle = np.log(14 / 6)
    assert found.low == pytest.approx(optimize.brentq(excess, middle - 5, middle), abs=1e-6)
    assert found.high == pytest.approx(optimize.brentq(excess, middle, middle + 5), abs=1e-6)
    # Of the ratings themselves, ± half the difference.
    own = profile_interval(made, "player_1")
    np.testing.assert_allclose(own, [-found.high / 2, -found.low / 2], atol=1e-6)


def test_limits_are_sought_near_the_estimate_first():
    """Far away the likelihood is flat, and hard to maximise."""
    tried = []

    def excess(x):
        tried.append(x)
        return x - 3.0

    assert _limit(excess, 1.0, 1.0) == pytest.approx(3.0)
    assert max(tried) == 3.0
    assert _limit(lambda _: -1.0, 1.0, -1.0) == -np.inf


@pytest.mark.parametrize("ties", ["half", "davidson", "rao-kupper"])
def test_the_profile_likelihood_drops_by_the_quantile_at_the_limits(simulated, ties):
    """Checked by a plain optimiser with the difference held."""
    _, made = simulated(3, 120, 6, ties=0.2)
    found = profile_interval(made, "player_2", "player_0", ties=ties, position=True)
    fit = fit_bradley_terry(made, ties=ties, position=True, covariance="model")
    y = (2 * made.outcome).astype(int)

    def lost(v, difference):
        rating = np.array([v[0], v[1], v[0] + difference])
        x = rating[made.first] - rating[made.second] + v[2]
        if ties == "half":
            return np.sum(np.log1p(np.exp(x)) - made.outcome * x)
        if ties == "davidson":
            parts = np.exp(np.stack([-x / 2, v[3] + 0 * x, x / 2]))
            return -np.log(parts[y, np.arange(120)] / parts.sum(axis=0)).sum()
        eta = np.exp(v[3])
        up, down = 1 / (1 + np.exp(eta - x)), 1 / (1 + np.exp(eta + x))
        return -np.log(np.stack([down, 1 - up - down, up])[y, np.arange(120)]).sum()

    for limit in found:
        held = optimize.minimize(lost, np.zeros(4), args=(float(limit),), options={"gtol": 1e-7})
        assert 2 * (fit.log_likelihood + held.fun) == pytest.approx(DROP, abs=1e-4)


def test_with_many_contests_it_is_the_wald_interval(llmfao):
    found = profile_interval(llmfao, "GPT 4", "command")
    fit = fit_bradley_terry(llmfao, covariance="model")
    i, j = fit.players.index("GPT 4"), fit.players.index("command")
    v = fit.covariance
    error = np.sqrt(v[i, i] + v[j, j] - 2 * v[i, j])
    wald = fit.rating[i] - fit.rating[j] + 1.959964 * error * np.array([-1, 1])

    np.testing.assert_allclose(found, wald, atol=0.015)


def test_an_undefeated_player_may_be_infinitely_better():
    """Ten wins in ten: worse than e^low : 1 they are too unlikely, 10 log(1 + e^-low) = drop/2."""
    made = Contests.of([0] * 10 + [1, 2], [1] * 10 + [2, 1], [1] * 12)
    found = profile_interval(made, "player_0", "player_1")

    assert found.high == np.inf
    assert found.low == pytest.approx(-np.log(np.expm1(DROP / 20)), abs=1e-6)


def test_a_difference_that_the_order_of_showing_hides_may_be_infinite():
    """The one shown first won, but for one answer: the better 0 is, the more being first helps."""
    outcome = [1] * 19 + [0]
    made = Contests.of([0, 1] * 10, [1, 0] * 10, outcome, players=2, ordered=True)
    found = profile_interval(made, "player_0", "player_1", position=True)

    assert found.low > -2
    assert found.high == np.inf


@pytest.mark.parametrize("reach", [39.9, 40.1])
def test_limits_are_looked_for_up_to_40_logits_away(reach):
    """One contest and a small share of another: of the weight whose limit is so far away."""

    def gain(x, weight):
        return -np.log1p(np.exp(-x)) - weight * np.log1p(np.exp(x))

    def excess(weight):
        top = -np.log(weight)
        return 2 * (gain(top, weight) - gain(top + reach, weight)) - DROP

    weight = optimize.brentq(excess, 0.02, 0.2)
    made = Contests.of([0, 0], [1, 1], [1, 0], weight=[1, weight])
    found = profile_interval(made, "player_0", "player_1")

    limit = reach - np.log(weight) if reach < 40 else np.inf
    assert found.high == pytest.approx(limit, abs=1e-4)


def test_unknown_players_are_named(simulated):
    with pytest.raises(SelectionError, match="did you mean player_1"):
        profile_interval(simulated(3, 50, 0)[1], "player1")
    with pytest.raises(SelectionError, match="'player_1' against itself"):
        profile_interval(simulated(3, 50, 0)[1], "player_1", "player_1")
