"""The mode of thousands of ratings, updated where an answer touches it."""

from __future__ import annotations

import numpy as np
import pytest

from evalstats_plugin.errors import DesignError
from evalstats_plugin.ranking.contests.contests import Contests
from evalstats_plugin.ranking.judging.session import Answer
from evalstats_plugin.ranking.judging.standing import MOST_DENSE, Standing
from evalstats_plugin.ranking.next import RULES
from evalstats_plugin.ranking.thurstone.approximation import laplace
from evalstats_plugin.ranking.thurstone.design import prior_of, sites_of
from evalstats_plugin.ranking.thurstone.local import LocalState


def drawn(n: int, m: int, seed: int = 0) -> tuple[np.ndarray, list[tuple[int, int, float]]]:
    rng = np.random.default_rng(seed)
    rating = rng.normal(size=n)
    first = rng.integers(0, n, m)
    second = (first + rng.integers(1, n, m)) % n
    won = rating[first] - rating[second] + rng.normal(size=m) > 0
    return rating, list(
        zip(first.tolist(), second.tolist(), won.astype(float).tolist(), strict=True)
    )


def test_polished_it_is_the_mode_of_all_answers():
    _, answers = drawn(60, 400)
    state = LocalState(60, 1.0)
    for answer in answers:
        state.record(*answer)
    state.polish()
    first, second, outcome = np.transpose(answers)
    contests = Contests.of(first.astype(int), second.astype(int), outcome, players=60)
    prior = prior_of(0.0, 1.0, 60, ordered=False)
    mode = laplace(sites_of(contests, "threshold"), prior, 0.0)

    np.testing.assert_allclose(state.rating, mode.mean, atol=1e-4)
    # A tree's variances; here nothing is a tree.
    np.testing.assert_allclose(state.variance, np.diagonal(mode.covariance), rtol=0.15)


def test_unpolished_it_is_near_and_the_order_of_answers_does_not_matter_in_the_end():
    _, answers = drawn(40, 200, seed=1)
    states = []
    for order in (answers, answers[::-1]):
        state = LocalState(40, 1.0)
        for answer in order:
            state.add(*answer)
        states.append(state)
    apart = np.abs(states[0].rating - states[1].rating) / np.sqrt(states[0].variance)
    assert apart.max() < 0.25
    for state in states:
        state.polish()
    np.testing.assert_allclose(states[0].rating, states[1].rating, atol=1e-4)


def test_an_answer_can_be_taken_back():
    state = LocalState(200)
    state.add(3, 7, 1.0)
    state.add(3, 7, 1.0, -1)
    state.polish()

    np.testing.assert_allclose(state.rating, 0, atol=1e-9)
    np.testing.assert_allclose(state.variance, 1)
    with pytest.raises(DesignError, match="no such answer about players 3 and 7"):
        state.add(3, 7, 1.0, -1)


def test_position_and_ties_are_estimated():
    rng, n, m = np.random.default_rng(3), 200, 4000
    rating = rng.normal(size=n)
    state = LocalState(n, 1.0, ordered=True)
    for _ in range(m):
        i, j = rng.choice(n, 2, replace=False).tolist()
        z = rating[i] - rating[j] + 0.3 + rng.normal()
        state.record(i, j, 1.0 if z > 0.4 else 0.0 if z < -0.4 else 0.5)
    state.polish()
    assert state.position is not None

    assert state.position[0] == pytest.approx(0.3, abs=0.08)
    assert state.tie == pytest.approx(0.4, abs=0.05)
    assert np.corrcoef(state.rating, rating)[0, 1] > 0.95
    z = (state.rating - rating + rating.mean()) / np.sqrt(state.variance)
    assert 0.9 < z.std() < 1.1


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_chooses_among_many_items(rule: str):
    n, rng = MOST_DENSE + 50, np.random.default_rng(5)
    rating = rng.normal(size=n)
    state, given = Standing(n, 1.0, seed=1), []
    for _ in range(30):
        pairs = state.choose(rule, 4)
        assert 4 == len({frozenset((p.first, p.second)) for p in pairs})
        for pair in pairs:
            won = rating[pair.first] > rating[pair.second]
            given.append(Answer(first=pair.first, second=pair.second, outcome=float(won)))
        state.update(given)
    again = Standing(n, 1.0, seed=1)
    again.update(given)
    ranking = state.ranking()

    np.testing.assert_allclose(again.ranking().rating, ranking.rating, atol=0.1)
    assert 0.5 < ranking.prob_in_order < 1
    assert 1 <= ranking.expected_rank.min() < ranking.expected_rank.max() <= n


def test_asking_neighbours_beats_asking_at_random():
    """With twelve answers an item, a fifth fewer pairs are in the wrong order."""
    n = MOST_DENSE + 50
    wrong = {}
    for rule in ("order", "random"):
        rng = np.random.default_rng(8)
        rating = 2 * rng.normal(size=n)
        state, given = Standing(n, 4.0, seed=2), []
        for _ in range(6 * n // 60):
            for pair in state.choose(rule, 60):
                z = rating[pair.first] - rating[pair.second] + rng.normal()
                given.append(Answer(first=pair.first, second=pair.second, outcome=float(z > 0)))
            state.update(given)
        found = state.ranking().rating
        i, j = np.triu_indices(n, 1)
        wrong[rule] = float(((rating[i] > rating[j]) != (found[i] > found[j])).mean())

    assert wrong["order"] < 0.8 * wrong["random"]
