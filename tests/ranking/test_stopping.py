"""Enough compared, and why."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import special

from evalstats_plugin.errors import SelectionError
from evalstats_plugin.ranking.next import Certainty, Stopping, certainty


def test_certainty_of_two_players_has_a_closed_form():
    """Regret: the mean of a normal above 0, less where the best is right."""
    m, sd = 0.7, np.sqrt(1.5)
    given = SimpleNamespace(rating=np.array([0.0, m]), covariance=np.diag([1.0, 0.5]))
    found = certainty(given, rng=0)
    right = special.ndtr(m / sd)
    density = np.exp(-0.5 * (m / sd) ** 2) / np.sqrt(2 * np.pi)

    assert found.best == 1
    assert found.prob_order == pytest.approx(right, abs=1e-9)
    assert found.expected_tau == pytest.approx(2 * right - 1)
    assert found.prob_best == pytest.approx(right, abs=4 * 0.008)
    assert found.regret == pytest.approx(sd * density - m * (1 - right), abs=0.03)


def test_certainty_agrees_with_draws():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(6, 6)) / 3
    given = SimpleNamespace(rating=np.linspace(2, -2, 6), covariance=root @ root.T)
    draws = rng.multivariate_normal(given.rating, given.covariance, 50_000)
    pairs = np.triu_indices(6, 1)
    tau = np.sign(draws[:, pairs[0]] - draws[:, pairs[1]]).mean()
    found = certainty(given, rng=1)

    assert found.expected_tau == pytest.approx(tau, abs=0.01)
    in_order = (np.diff(draws, axis=1) < 0).all(axis=1).mean()
    assert found.prob_order == pytest.approx(in_order, abs=0.03)
    assert certainty(SimpleNamespace(rating=np.zeros(1), covariance=np.eye(1))).prob_order == 1


def test_each_goal_stops_and_says_why():
    found = Certainty(0.5, 0.8, 3, 0.9, 0.2)

    assert Stopping(prob_best=0.9).reached(found, 10) == (
        "prob_best",
        "the best is right with probability 0.900, 0.9 was asked for",
    )
    assert Stopping(regret=0.2).reached(found, 10).goal == "regret"
    assert Stopping(prob_order=0.6, budget=10).reached(found, 10).goal == "budget"
    assert Stopping(expected_tau=0.7, budget=5).reached(found, 10).goal == "expected_tau"
    assert Stopping(prob_order=0.6, regret=0.1, budget=11).reached(found, 10) is None
    assert Stopping().reached(found, 10) is None


def test_goals_outside_their_range_are_refused():
    with pytest.raises(SelectionError, match="prob_best is 95: give a number between 0 and 1"):
        Stopping(prob_best=95)
    with pytest.raises(SelectionError, match="budget is 0: give a number above 0"):
        Stopping(budget=0)
