"""What a fit predicts: against brute-force sums over what is not known, and the truth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import special

from evalstats_plugin import ResponseMatrix
from evalstats_plugin.irt.fitting import fit_irt
from evalstats_plugin.irt.model.fit import IRTFit

NODE, MASS = np.polynomial.hermite_e.hermegauss(25)
MASS = MASS / MASS.sum()


def made(spread=1.0, estimator="mml-items"):
    """Parameters given, known the worse the larger `spread`."""
    ability = np.linspace(-2, 2, 5)
    a, b = (x.ravel() for x in np.meshgrid([-0.5, 0.5, 1.0, 2.0], [-2.0, 0.0, 1.0]))
    m = len(a)
    return IRTFit(
        item_model="2pl",
        estimator=estimator,
        models=tuple("abcde"),
        item_ids=np.arange(m),
        tasks=np.full(m, "task"),
        ability=ability,
        ability_covariance=np.diag(spread * np.array([0.5, 0.1, 0.2, 0.1, 0.5])),
        discrimination=a,
        difficulty=b,
        guessing=np.zeros(m),
        discrimination_std_error=np.full(m, np.sqrt(0.1 * spread)),
        difficulty_std_error=np.full(m, np.nan),
        guessing_std_error=np.full(m, np.nan),
        item_covariance=np.tile(spread * np.array([[0.1, 0.08], [0.08, 0.5]]), (m, 1, 1)),
        identification="abilities sum to 0",
    )


def simulated(n, m, rng, hidden):
    """True probabilities, the answers not hidden, and which are."""
    theta, b, a = rng.normal(size=n), rng.normal(size=m), np.exp(0.3 * rng.normal(size=m))
    p = special.expit(a * (theta[:, None] - b))
    out = rng.random((n, m)) < hidden
    return p, np.where(out, np.nan, rng.random((n, m)) < p), out


def posterior_predictive(fit, scores):
    """By 201 × 41 points for each item given the abilities, then over each ability's error."""
    known = fit.hyperparameters
    x, y = (v.ravel() for v in np.meshgrid(np.linspace(-6, 6, 201), np.linspace(-5, 5, 41)))
    rho = known["correlation"]
    b = known["difficulty_mean"] + known["difficulty_sd"] * x
    a = np.exp(known["log_discrimination_sd"] * (rho * x + np.sqrt(1 - rho**2) * y))
    logit = a * (fit.ability[:, None] - b)
    right, there = np.nan_to_num(scores), ~np.isnan(scores)
    score = right.T @ logit - there.T @ np.logaddexp(0, logit) - (x**2 + y**2) / 2
    weight = special.softmax(score, axis=1)
    theta = fit.ability[:, None] + fit.ability_std_error[:, None] * NODE
    return sum(
        mass * special.expit(a * (theta[:, [k]] - b)) @ weight.T for k, mass in enumerate(MASS)
    )


def test_predictions_are_averaged_over_normal_errors_of_abilities():
    fit = made(1.0)
    theta = fit.ability[:, None] + fit.ability_std_error[:, None] * NODE
    logit = theta[:, None] * fit.discrimination[:, None] + fit.intercept[:, None]
    expected = special.expit(logit) @ MASS

    assert abs(fit.predict() - expected).max() < 0.002
    assert abs(fit.predict(plug_in=True) - expected).max() > 0.03


@pytest.mark.needs("torch")
def test_predictions_are_those_of_the_posterior():
    """Items integrated by brute force, at the population that was estimated."""
    _, scores, _ = simulated(12, 40, np.random.default_rng(1), 0.1)
    fit = fit_irt(ResponseMatrix.from_array(scores), "2pl", "mml-items", zero="models")
    expected = posterior_predictive(fit, scores)
    averaged, at_estimates = (abs(fit.predict(plug_in=x) - expected) for x in (False, True))

    assert averaged.max() < 0.001
    assert at_estimates.mean() > 0.012


@pytest.mark.needs("torch")
def test_held_out_answers_are_predicted_better_than_at_the_estimates():
    """By the true P, on the mean of 12 sets."""
    loss = []
    for seed in range(12):
        truth, scores, out = simulated(20, 100, np.random.default_rng(seed), 0.2)
        fit = fit_irt(ResponseMatrix.from_array(scores), "2pl", "mml-items")
        loss.append(
            [
                -(truth * np.log(p) + (1 - truth) * np.log1p(-p))[out].mean()
                for p in (fit.predict(), fit.predict(plug_in=True))
            ]
        )
    averaged, at_estimates = np.array(loss).T
    gain = at_estimates - averaged

    assert gain.mean() > 0.001
    assert gain.mean() > 3 * gain.std(ddof=1) / 12**0.5


def test_what_has_no_error_is_predicted_at_the_estimates():
    """Infinite abilities, and abilities that are known."""
    fit = made()
    exact = special.expit(fit.discrimination * (fit.ability[:, None] - fit.difficulty))
    endless = replace(
        fit,
        ability=np.array([-np.inf, -1, 0, 1, 2]),
        ability_covariance=np.diag([np.nan, 0.1, 0.2, 0.1, 0.5]),
    )

    np.testing.assert_allclose(made(0.0).predict(), exact, atol=1e-12)
    np.testing.assert_allclose(fit.predict(plug_in=True), exact, atol=1e-12)
    np.testing.assert_array_equal(endless.predict()[0], fit.discrimination < 0)
    np.testing.assert_array_equal(endless.predict()[1:], fit.predict()[1:])
