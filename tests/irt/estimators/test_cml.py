"""Conditional maximum likelihood against R's eRm, differentiation, and what must not matter."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import optimize

from evalstats_plugin.errors import DesignError
from evalstats_plugin.irt.estimators.cml import difficulties_given_model_totals
from evalstats_plugin.irt.model.data import Counts

PATTERNS = json.loads(
    (Path(__file__).parents[3] / "fixtures" / "golden" / "irt.json").read_text(encoding="utf-8")
)["data"]
# eRm 1.0-2, RM(): difficulties that sum to 0, their standard errors, conditional log-likelihood.
ERM = {
    "LSAT6": (
        [-1.25612796, 0.47490715, 1.23598061, 0.16841007, -0.62316987],
        [0.10440569, 0.06991707, 0.06877769, 0.07261944, 0.08591741],
        -1091.56968998,
    ),
    "LSAT7": (
        [-0.54147033, 0.53654547, -0.13358265, 0.80516638, -0.66665888],
        [0.07916838, 0.06796087, 0.07313265, 0.06745668, 0.08151802],
        -1182.69989918,
    ),
}


def counts(scores, trials=None):
    scores = np.asarray(scores, dtype=float)
    there = ~np.isnan(scores) if trials is None else trials
    return Counts(torch.tensor(np.nan_to_num(scores)), torch.tensor(np.asarray(there, dtype=float)))


def lsat(name):
    rows = [[int(c) for c in pattern] for pattern in PATTERNS[name]]
    return np.repeat(np.array(rows), list(PATTERNS[name].values()), axis=0)


def simulated(n, m, seed, *, missing=0.0, epochs=1):
    rng = np.random.default_rng(seed)
    theta, b = rng.normal(size=n), rng.normal(0, 1.5, size=m)
    p = 1 / (1 + np.exp(b - theta[:, None]))
    trials = np.where(rng.random((n, m)) < missing, 0, epochs)
    return theta - theta.mean(), counts(rng.binomial(trials, p), trials)


def conditional_abilities(data):
    """Models and items exchanged: few parameters, and many totals."""
    fit = difficulties_given_model_totals(Counts(data.right.T, data.trials.T))
    return fit._replace(estimate=-fit.estimate)


def std_error(fit):
    return fit.covariance.diagonal(dim1=-2, dim2=-1).sqrt()


@pytest.mark.parametrize("name", ERM)
def test_difficulties_agree_with_erm(name):
    estimate, error, log_likelihood = ERM[name]
    fit = difficulties_given_model_totals(counts(lsat(name)))

    assert bool(fit.converged)
    np.testing.assert_allclose(fit.estimate, estimate, atol=1e-5)
    np.testing.assert_allclose(std_error(fit), error, atol=1e-5)
    np.testing.assert_allclose(fit.log_likelihood, log_likelihood, atol=1e-6)


def log_likelihood(theta, right, trials):
    """By multiplying out each item's generating function, the slow way."""
    value = 0.0
    for r, n in zip(right.T, trials.T, strict=True):
        esf = np.ones(1)
        for ability, count in zip(np.exp(theta), n, strict=True):
            for _ in range(int(count)):
                esf = np.convolve(esf, [1.0, ability])
        value += r @ theta - np.log(esf[int(r.sum())])
    return value


@pytest.mark.parametrize(("missing", "epochs"), [(0.0, 1), (0.3, 1), (0.3, 3)])
def test_estimates_and_covariance_are_those_of_the_likelihood(missing, epochs):
    _, data = simulated(4, 60, 2, missing=missing, epochs=epochs)
    right, trials = data.right.numpy(), data.trials.numpy()
    basis = np.vstack([np.eye(3), -np.ones(3)])
    best = optimize.minimize(lambda x: -log_likelihood(basis @ x, right, trials), np.zeros(3))
    fit = conditional_abilities(data)
    step, estimate = 1e-3, fit.estimate.numpy()
    # Differences of abilities, whose information does not depend on what is held fixed.
    hessian = np.array(
        [
            [
                sum(
                    s * t * log_likelihood(estimate + basis @ (s * u + t * v), right, trials)
                    for s in (1, -1)
                    for t in (1, -1)
                )
                / (4 * step**2)
                for u in step * np.eye(3)
            ]
            for v in step * np.eye(3)
        ]
    )

    np.testing.assert_allclose(estimate, basis @ best.x, atol=1e-4)
    expected = basis @ np.linalg.inv(-hessian) @ basis.T
    np.testing.assert_allclose(fit.covariance, expected, rtol=1e-3)
    np.testing.assert_allclose(
        fit.log_likelihood, log_likelihood(estimate, right, trials), rtol=1e-12
    )


def test_order_of_models_and_items_does_not_matter():
    _, data = simulated(7, 90, 9, missing=0.1)
    rng = np.random.default_rng(0)
    rows, columns = rng.permutation(7), rng.permutation(90)
    shuffled = Counts(data.right[rows][:, columns], data.trials[rows][:, columns])
    fit, other = conditional_abilities(data), conditional_abilities(shuffled)

    np.testing.assert_allclose(other.estimate, fit.estimate[rows], atol=1e-10)


def test_two_models_have_the_closed_form_of_discordant_items():
    scores = np.array(
        [[1] * 12 + [0] * 5 + [1] * 9 + [0] * 3, [0] * 12 + [1] * 5 + [1] * 9 + [0] * 3]
    )
    fit = conditional_abilities(counts(scores))

    np.testing.assert_allclose(fit.estimate[0] - fit.estimate[1], np.log(12 / 5), rtol=1e-12)
    np.testing.assert_allclose(4 * fit.covariance[0, 0], 1 / 12 + 1 / 5, rtol=1e-9)


def test_items_that_all_or_none_get_right_tell_nothing():
    _, data = simulated(5, 60, 3)
    extra = Counts(
        torch.cat([data.right, torch.ones(5, 4), torch.zeros(5, 3)], dim=1),
        torch.cat([data.trials, torch.ones(5, 7)], dim=1),
    )

    np.testing.assert_allclose(
        conditional_abilities(extra).estimate,
        conditional_abilities(data).estimate,
        atol=1e-12,
    )


def test_models_all_right_or_all_wrong_are_infinitely_able_or_unable():
    _, data = simulated(5, 60, 3)
    right = torch.cat([data.right, torch.ones(1, 60), torch.zeros(1, 60)])
    fit = conditional_abilities(Counts(right, torch.ones_like(right)))
    without = conditional_abilities(data)

    assert fit.estimate[5:].tolist() == [np.inf, -np.inf]
    assert bool(torch.isnan(fit.covariance[5:]).all())
    np.testing.assert_allclose(fit.estimate[:5], without.estimate, atol=1e-9)
    np.testing.assert_allclose(fit.covariance[:5, :5], without.covariance, atol=1e-9)


def test_groups_of_which_one_always_wins_do_not_converge():
    """Neither model is all right or all wrong, but a and b beat c and d wherever they differ."""
    better = np.array([[1, 1, 1, 0, 1], [1, 1, 0, 1, 1]])
    worse = np.array([[1, 0, 0, 0, 0], [0, 1, 0, 0, 0]])
    fit = conditional_abilities(counts(np.vstack([better, worse])))

    assert not bool(fit.converged)


def test_partial_credit_is_refused():
    with pytest.raises(DesignError, match="whole numbers of right answers"):
        conditional_abilities(counts([[0.5, 1.0], [1.0, 0.0]]))


def test_nothing_to_compare_is_an_error():
    with pytest.raises(DesignError, match="nothing to compare"):
        conditional_abilities(counts([[1, 0], [1, 0]]))
