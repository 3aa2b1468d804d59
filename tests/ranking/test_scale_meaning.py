"""What the legend says of a difference of ratings holds under the fitted model's assumptions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from evalstats_plugin.ranking.contests.contests import Contests
from evalstats_plugin.ranking.contests.outcomes import probabilities
from evalstats_plugin.ranking.rank import MlOptions, ThurstoneOptions, rank
from evalstats_plugin.ranking.rows import ELO_ANCHOR

N = 12
_RNG = np.random.default_rng(20)
TRUTH = np.sort(_RNG.normal(0, 1.2, N))[::-1]
FIRST, SECOND = np.triu_indices(N, 1)


def population(win: np.ndarray, tie: np.ndarray, times: float = 1000.0) -> Contests:
    """Every pair with the weights that wins, ties and losses have in the long run."""
    outcome = np.repeat([1.0, 0.5, 0.0], len(FIRST))
    weight = times * np.concatenate([win, tie, 1 - win - tie])
    kept = weight > 1e-9
    pairs = (np.tile(FIRST, 3)[kept], np.tile(SECOND, 3)[kept])
    return Contests.of(*pairs, outcome[kept], players=N, weight=weight[kept])


def slope(contests: Contests, stated: np.ndarray, **options: object) -> tuple[float, str]:
    """Regress the stated quantity of each pair on its Elo difference in units of 400 points."""
    ranking = rank(contests, scale="elo", rng=0, **options)  # pyright: ignore[reportArgumentType]
    points = {row.player: (row.mean or 0) - ELO_ANCHOR for row in ranking}
    rating = np.array([points[name] for name in contests.players])
    difference = (rating[FIRST] - rating[SECOND]) / 400
    return float(difference @ stated / (difference @ difference)), ranking[0].scale_meaning


def test_bradley_terry_without_ties_states_odds_of_a_win() -> None:
    x = TRUTH[FIRST] - TRUTH[SECOND]
    win = special.expit(x)
    found, words = slope(population(win, 0 * win), x, model="bradley-terry")

    assert words == "400 points: 10 wins for 1 loss"
    assert found == pytest.approx(np.log(10), rel=1e-6)


@pytest.mark.parametrize("truth", ["davidson", "rao-kupper"])
def test_davidson_states_odds_of_a_win_with_ties_left_out(truth: str) -> None:
    """Exact under its own truth; the other model of ties is 4 % away."""
    x = TRUTH[FIRST] - TRUTH[SECOND]
    p = probabilities(truth, x, np.full_like(x, 0.0 if truth == "davidson" else 0.6))  # pyright: ignore[reportArgumentType]
    win, tie, loss = p.T
    found, words = slope(population(win, tie), np.log(win / loss), model="bradley-terry")

    assert words == "400 points: 10 wins for 1 loss, ties left out"
    assert found == pytest.approx(np.log(10), rel=1e-6 if truth == "davidson" else 0.06)


def test_half_ties_state_an_expected_score_and_not_odds_of_a_win() -> None:
    """A quarter of ties: 10/11 is the expected score to 3 %; wins for a loss are 40 % more."""
    x = TRUTH[FIRST] - TRUTH[SECOND]
    win, tie, loss = probabilities("davidson", x, np.full_like(x, 0.0)).T
    options = {"model": "bradley-terry", "options": MlOptions(ties="half")}
    score = special.logit(win + tie / 2)
    found, words = slope(population(win, tie), score, **options)
    odds, _ = slope(population(win, tie), np.log(win / loss), **options)

    assert words == "400 points: expected score 10/11, a tie counting half"
    assert found == pytest.approx(np.log(10), rel=0.03)
    assert odds > 1.3 * np.log(10)


def test_rao_kupper_states_odds_against_a_tie_or_loss() -> None:
    x, eta = TRUTH[FIRST] - TRUTH[SECOND], 0.6
    win, tie, _ = probabilities("rao-kupper", x, np.full_like(x, eta)).T
    options = {"model": "bradley-terry", "options": MlOptions(ties="rao-kupper")}
    found, words = slope(population(win, tie), special.logit(win) + eta, **options)

    assert words == "400 points: 10 times the odds of a win against a tie or loss"
    assert found == pytest.approx(np.log(10), rel=1e-6)


def test_thurstone_states_378_points_for_10_wins() -> None:
    x = TRUTH[FIRST] - TRUTH[SECOND]
    win = special.ndtr(x)
    options = {
        "model": "thurstone",
        "estimator": "ep",
        "options": ThurstoneOptions(prior_covariance=100.0),
    }
    found, words = slope(population(win, 0 * win), x, **options)

    assert words == "378 points: 10 wins for 1 loss"
    # Probits at 378 points, and the probit of 10/11.
    assert found * 378 / 400 == pytest.approx(special.ndtri(10 / 11), rel=0.01)


def test_covariates_are_said_to_be_equal() -> None:
    x = TRUTH[FIRST] - TRUTH[SECOND]
    win = special.expit(np.concatenate([x, -x]) + 0.3)
    both = (np.concatenate([FIRST, SECOND]), np.concatenate([SECOND, FIRST]))
    pairs = tuple(np.tile(side, 2) for side in both)
    outcome, weight = np.repeat([1.0, 0.0], len(win)), np.concatenate([win, 1 - win])
    contests = Contests.of(*pairs, outcome, players=N, weight=100 * weight, ordered=True)
    ranking = rank(contests, model="bradley-terry", scale="elo", rng=0)
    by_probits = rank(contests, estimator="ep", scale="elo", rng=0)

    assert ranking[0].scale_meaning == "400 points: 10 wins for 1 loss, at equal position"
    assert by_probits[0].scale_meaning == "378 points: 10 wins for 1 loss, at equal position"
