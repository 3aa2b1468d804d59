"""Penalised logistic regression against closed forms and a general optimiser."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize, special

from evalstats_plugin.irt.dif import firth_logistic

ALL = np.array([True, True, True])


def penalised(columns, right, trials, at):
    """The definition: log likelihood plus half the log determinant of the information."""
    logit = columns @ at
    p = special.expit(logit)
    information = columns.T @ ((trials * p * (1 - p))[:, None] * columns)
    log_likelihood = right @ logit - trials @ np.logaddexp(0, logit)
    return log_likelihood + 0.5 * np.linalg.slogdet(information)[1]


def test_one_mean_is_half_a_success_more_of_one_trial_more():
    right, trials = np.array([[3.0, 0, 2]]), np.array([[3.0, 2, 4]])
    found = firth_logistic(np.ones((1, 3, 1)), right, trials, np.array([True]))

    assert found.coefficients[0, 0] == pytest.approx(special.logit(5.5 / 10), abs=1e-9)


def test_separated_groups_have_haldanes_odds_ratio():
    """All right against all wrong: half an answer is added to each of the four counts."""
    columns = np.stack([np.ones(8), np.arange(8) >= 4], axis=1)[None]
    right = (np.arange(8) >= 4).astype(float)[None]
    found = firth_logistic(columns, right, np.ones((1, 8)), np.array([True, True]))

    assert found.coefficients[0, 1] == pytest.approx(2 * np.log(4.5 / 0.5), abs=1e-8)


@pytest.mark.parametrize("free", [ALL, np.array([True, True, False])])
def test_many_items_at_once_are_at_their_maxima(free):
    """SciPy on the definition, item by item; with missing cells, epochs and perfect separation."""
    rng = np.random.default_rng(0)
    m, n = 6, 14
    group = np.repeat([0.0, 1.0], 7)
    columns = np.stack(
        [np.ones((m, n)), rng.standard_normal((m, n)), np.broadcast_to(group, (m, n))], axis=-1
    )
    trials = rng.integers(0, 3, (m, n)).astype(float)
    right = rng.binomial(trials.astype(int), 0.5).astype(float)
    right[0] = trials[0] * group
    found = firth_logistic(columns, right, trials, free)

    assert np.all(found.coefficients[:, ~free] == 0)
    for j in range(m):

        def loss(part, j=j):
            at = np.zeros(3)
            at[free] = part
            return -penalised(columns[j], right[j], trials[j], at)

        exact = {"xatol": 1e-9, "fatol": 1e-12, "maxiter": 4000}
        best = optimize.minimize(loss, np.zeros(free.sum()), method="Nelder-Mead", options=exact)
        np.testing.assert_allclose(found.coefficients[j, free], best.x, atol=2e-5)
        assert found.log_likelihood[j] == pytest.approx(-best.fun, abs=1e-7)
