"""Rules of selection: each is its definition, computed item by item from the curves alone."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.adaptive.scoring import Belief, laplace
from evalstats_plugin.adaptive.selection import RULES, Candidates, Tables, Targets, pick

M = 40
ASKED = np.array([[3, 11, 20, 31]])


@pytest.fixture(scope="module")
def candidates():
    """A session after four answers, on a bank with two misfit factors and guessing."""
    rng = np.random.default_rng(7)
    bank = ItemBank.from_arrays(
        np.exp(0.4 * rng.normal(size=M)),
        rng.normal(size=M),
        guessing=rng.choice([0.0, 0.25], M),
        misfit_loadings=0.5 * rng.normal(size=(M, 2)),
        dispersion=rng.uniform(0.3, 1, M),
        ability_mean=0.3,
        ability_sd=1.2,
    )
    belief = Belief.prior(bank).answered(ASKED, np.array([[1.0, 0.0, 1.0, 1.0]]), np.ones((1, 4)))
    return Candidates(belief, Tables.of(bank), lambda: laplace(belief))


def curve(items, place, theta, factors=0.0):
    """P(right) of one item, its slope in the logit, and the variance of a score."""
    logit = items.discrimination[place] * theta + items.intercept[place] + factors
    p = special.expit(logit)
    mean = items.guessing[place] + (1 - items.guessing[place]) * p
    slope = (1 - items.guessing[place]) * p * (1 - p)
    return mean, slope, items.dispersion[place] * mean * (1 - mean)


def averaged(candidates, function):
    """Mean of a function of the ability over the posterior, at every node."""
    belief = candidates.belief
    return sum(
        weight * function(theta)
        for theta, weight in zip(belief.nodes, belief.posterior[0], strict=True)
    )


def fisher(items, place, theta):
    _, slope, variance = curve(items, place, theta)
    return (items.discrimination[place] * slope) ** 2 / variance


def by_definition(candidates, rule, place):
    """Worth of one item."""
    belief, state = candidates.belief, candidates.state
    items = belief.items
    mean = averaged(candidates, lambda theta: theta)
    if rule == "information":
        return fisher(items, place, mean)
    if rule == "posterior-information":
        return averaged(candidates, lambda theta: fisher(items, place, theta))
    if rule == "kl":
        p = curve(items, place, mean)[0]

        def divergence(theta):
            q = curve(items, place, theta)[0]
            return p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))

        return averaged(candidates, divergence) / items.dispersion[place]

    def at_state(k):
        return curve(items, k, state.mean[0, 0], items.loadings[k] @ state.mean[0, 1:])

    def direction(k):
        return np.array([items.discrimination[k], *items.loadings[k]])

    covariance = state.covariance[0]
    _, slope, variance = at_state(place)
    # An answer is a measurement of the ability and the factors with normal noise (Kalman).
    row = slope * direction(place)
    after = covariance - np.outer(covariance @ row, row @ covariance) / (
        row @ covariance @ row + variance
    )
    if rule == "d-optimal":
        return np.log(np.linalg.det(covariance) / np.linalg.det(after))
    if rule == "a-optimal":
        return np.trace(covariance - after)
    gradient = sum(
        at_state(k)[1] * direction(k) / M for k in range(M) if k not in set(ASKED[0].tolist())
    )
    # What the answer tells of the others, and its own part of the score, which is known then.
    return gradient @ (covariance - after) @ gradient + variance / M**2


@pytest.mark.parametrize("rule", sorted(RULES))
def test_each_rule_is_its_definition(candidates, rule):
    """Where a mean over the posterior is used, within the error of tables at every fourth node."""
    exact = rule not in {"posterior-information", "kl"}
    items = [k for k in range(0, M, 3) if k not in set(ASKED[0].tolist())]
    worth = RULES[rule](candidates)[0]

    assert worth[items] == pytest.approx(
        [by_definition(candidates, rule, k) for k in items], rel=1e-6 if exact else 3e-2
    )


def test_what_is_expected_after_an_answer_is_a_measurement_with_normal_noise(candidates):
    """The state after one more item: Kalman's formula again; means stay."""
    after = candidates.expecting(np.array([5])).state
    items, state = candidates.belief.items, candidates.state
    _, slope, variance = curve(items, 5, state.mean[0, 0], items.loadings[5] @ state.mean[0, 1:])
    row = slope * np.array([items.discrimination[5], *items.loadings[5]])
    precision = np.linalg.inv(state.covariance[0]) + np.outer(row, row) / variance

    assert after.mean == pytest.approx(state.mean)
    assert after.covariance[0] == pytest.approx(np.linalg.inv(precision))


@pytest.mark.parametrize("seed", range(4))
def test_balancing_never_lets_a_task_fall_an_item_behind(seed):
    """Whatever is picked among the allowed, each task keeps within one item of its share."""
    rng = np.random.default_rng(seed)
    task = rng.integers(0, 3, 90)
    share = rng.dirichlet(np.ones(3))
    targets = Targets(task, share)
    asked = np.zeros((1, 90), dtype=bool)
    for n in range(1, 31):
        allowed = targets.allowed(~asked, asked)
        chosen = pick(rng.random((1, 90)), allowed, None, rng)
        assert allowed[0, chosen[0]]
        asked[0, chosen[0]] = True
        counts = np.bincount(task[asked[0]], minlength=3)
        if (np.bincount(task, minlength=3) > counts).all():
            assert (counts < share * n + 1 + 1e-9).all()


def test_without_tasks_that_have_a_share_any_item_is_allowed():
    """A share of 0 is asked for nothing until nothing else is left."""
    targets = Targets(np.array([0, 0, 1]), np.array([1.0, 0.0]))
    asked = np.array([[True, False, False]])

    assert targets.allowed(~asked, asked).tolist() == [[False, True, False]]
    asked[0, 1] = True
    assert targets.allowed(~asked, asked).tolist() == [[False, False, True]]
