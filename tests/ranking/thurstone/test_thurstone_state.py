"""One answer more, one taken back: the same posterior as all at once, and in time."""

import numpy as np
import pytest

from evalstats_plugin.errors import DesignError
from evalstats_plugin.ranking.contests.contests import Contests
from evalstats_plugin.ranking.thurstone.model import EPState, fit_thurstone


def state_of(contests, prior_variance=1.0):
    """All answers at once."""
    state = EPState(len(contests.players), prior_variance, ordered=contests.ordered)
    for answer in zip(contests.first, contests.second, contests.outcome, strict=True):
        state.record(*answer)
    state.polish()
    return state


def simulated(n, m, *, sd=1.0, tie=0.0, ordered=False):
    rng = np.random.default_rng(n + m)
    rating = sd * rng.normal(size=n)
    first = rng.integers(0, n, m)
    second = (first + rng.integers(1, n, m)) % n
    z = rating[first] - rating[second] + rng.normal(size=m)
    outcome = np.where(z > tie, 1, np.where(z < -tie, 0, 0.5))
    return Contests.of(first, second, outcome, players=n, ordered=ordered)


@pytest.mark.parametrize("ordered", [False, True])
def test_updates_agree_with_a_full_fit(ordered):
    contests = simulated(8, 60, ordered=ordered)
    state = EPState(8, 2.0, ordered=ordered)
    for answer in zip(contests.first, contests.second, contests.outcome, strict=True):
        state.add(*answer)
    whole = state_of(contests, 2.0)

    np.testing.assert_allclose(state.rating, whole.rating, atol=1e-5)
    np.testing.assert_allclose(state.covariance, whole.covariance, atol=1e-5)


def test_it_is_the_fit_by_expectation_propagation():
    contests = simulated(10, 80)
    state = state_of(contests, 2.0)
    fit = fit_thurstone(contests, prior_covariance=2.0, estimator="ep")

    np.testing.assert_allclose(state.rating, fit.rating, atol=1e-5)
    np.testing.assert_allclose(state.covariance, fit.covariance, atol=1e-5)


def test_the_followed_width_of_a_tie_is_that_of_the_largest_evidence():
    """Whether answers come one by one or at once; without ties it is 0 again."""
    contests = simulated(6, 20, tie=0.3)
    state = EPState(6)
    for answer in zip(contests.first, contests.second, contests.outcome, strict=True):
        state.add(*answer)
    whole = state_of(contests)
    fit = fit_thurstone(contests, estimator="ep")

    assert state.tie == pytest.approx(fit.parameters["tie"], rel=3e-3)
    assert whole.tie == pytest.approx(state.tie, rel=3e-3)
    np.testing.assert_allclose(state.rating, fit.rating, atol=1e-3)
    for i, j, outcome in zip(contests.first, contests.second, contests.outcome, strict=True):
        if outcome == 0.5:
            state.add(i, j, outcome, -1)
    assert state.tie == 0


def test_removing_all_answers_gives_the_prior():
    state, answers = EPState(5, 3.0), [(0, 1, 1), (2, 1, 0.5), (0, 1, 0)]
    seen = [state.rating.copy()]
    for answer in answers:
        state.add(*answer)
        seen.append(state.rating.copy())
    for answer, before in zip(answers[::-1], seen[-2::-1], strict=True):
        state.add(*answer, -1)
        np.testing.assert_allclose(state.rating, before, atol=1e-3)

    np.testing.assert_allclose(state.rating, 0, atol=1e-12)
    np.testing.assert_allclose(state.covariance, 3 * np.eye(5), atol=1e-12)


@pytest.mark.parametrize("sd", [1.0, 3.0])
def test_an_update_with_a_thousand_answers_is_fast(sd, within):
    """With 100 players .013 s of CPU; .05 s and .1 s are asked for."""
    state = state_of(simulated(100, 1000, sd=sd), sd**2)
    rng = np.random.default_rng(0)

    def ten_answers():
        for k in range(10):
            i, j, won = int(rng.integers(50)), int(rng.integers(50, 100)), int(rng.integers(2))
            for weight in (1, -1) if k % 2 else (1,):
                state.add(i, j, won, weight)

    within(15 * 0.027, ten_answers)


@pytest.mark.parametrize(
    "answer", [(1, 1, 1), (0, 5, 1), (-1, 2, 0), (0, 1, 1.5), (0, 1, float("nan"))]
)
def test_invalid_answers_are_refused(answer):
    state = EPState(5)
    with pytest.raises(DesignError, match="Give two different places from 0 to 4"):
        state.add(*answer)

    assert not state.rating.any()


def test_unknown_answers_cannot_be_removed():
    state = EPState(3)
    state.add(0, 1, 1)
    with pytest.raises(DesignError, match="no such answer about players 0 and 1"):
        state.add(0, 1, 0, -1)
    with pytest.raises(DesignError, match="no such answer about players 1 and 2"):
        state.add(1, 2, 1, -1)


@pytest.mark.parametrize("seed", range(6))
def test_hundreds_of_answers_about_one_pair_converge(seed: int):
    """Started from no information, 300 of them ended in a LinAlgError, 200 in numbers far off."""
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(200, 4000)), int(rng.integers(1, 4))
    variance, rating = float(np.exp(rng.normal())), rng.normal(size=4)
    second = rng.integers(1, m + 1, n)
    won = rating[0] - rating[second] + rng.normal(size=n) > 0
    contests = Contests.of(np.zeros(n, int), second, won, players=4)
    whole = state_of(contests, variance)
    heavy = EPState(4, variance)
    for k in range(1, m + 1):
        for outcome in (1.0, 0.0):
            if count := int((won[second == k] == outcome).sum()):
                heavy.add(0, k, outcome, count)
    fit = fit_thurstone(contests, prior_covariance=variance, estimator="ep")

    assert fit.diagnostics["converged"]
    for state in (whole, heavy):
        np.testing.assert_allclose(state.rating, fit.rating, atol=1e-5)
        np.testing.assert_allclose(state.covariance, fit.covariance, atol=1e-5)
