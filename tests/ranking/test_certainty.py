"""How certain the order and the best player are."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import special

from evalstats_plugin.ranking.next import certainty


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
