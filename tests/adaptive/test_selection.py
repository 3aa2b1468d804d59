"""What items are worth: by its definition, computed item by item from the curves alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import special

from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.adaptive.scoring import Belief, laplace, on_grid
from evalstats_plugin.adaptive.selection import (
    Candidates,
    Tables,
    Targets,
    d_optimality,
    drawn_from,
    pick,
    worth,
)

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


ITEMS = [k for k in range(0, M, 3) if k not in set(ASKED[0].tolist())]


def test_an_item_is_worth_its_information_over_the_posterior(candidates):
    """Within the error of tables at every fourth node."""
    items = candidates.belief.items
    expected = [averaged(candidates, lambda theta, k=k: fisher(items, k, theta)) for k in ITEMS]

    assert worth(candidates)[0, ITEMS] == pytest.approx(expected, rel=3e-2)
    # No node of the table is left out that has a part in it, such as the first of a wide prior.
    bank = ItemBank.from_arrays(np.full(M, 2.0), np.linspace(-11, 11, M))
    prior, tables = Belief.prior(bank), Tables.of(bank)
    every = prior.posterior @ tables.spreading @ tables.information
    first = Candidates(prior, tables, lambda: laplace(prior))
    assert worth(first) == pytest.approx(every, rel=1e-12, abs=0)


def test_of_several_abilities_an_item_is_worth_the_determinant_that_it_adds(candidates):
    """An answer is a measurement of the abilities with normal noise (Kalman)."""
    belief, state = candidates.belief, candidates.state
    covariance, expected = state.covariance[0], []
    for k in ITEMS:
        factors = belief.items.loadings[k] @ state.mean[0, 1:]
        _, slope, variance = curve(belief.items, k, state.mean[0, 0], factors)
        row = slope * np.array([belief.items.discrimination[k], *belief.items.loadings[k]])
        after = covariance - np.outer(covariance @ row, row @ covariance) / (
            row @ covariance @ row + variance
        )
        expected.append(np.log(np.linalg.det(covariance) / np.linalg.det(after)))

    assert d_optimality(belief, state)[0, ITEMS] == pytest.approx(expected)
    several = replace(belief, axes=np.eye(3))
    found = worth(replace(candidates, belief=several))[0, ITEMS]
    assert found == pytest.approx(expected)
    reach = 1.644854 * np.sqrt(several.joint.covariance[0, 0, 0])
    limits = np.concatenate(several.interval(0.9)) - several.joint.mean[0, 0]
    assert limits == pytest.approx([-reach, reach], abs=1e-6)


def test_what_is_expected_after_an_answer_is_a_measurement_with_normal_noise(candidates):
    """The state after one more item: Kalman's formula again; means stay."""
    after = candidates.expecting(np.array([5])).state
    items, state = candidates.belief.items, candidates.state
    _, slope, variance = curve(items, 5, state.mean[0, 0], items.loadings[5] @ state.mean[0, 1:])
    row = slope * np.array([items.discrimination[5], *items.loadings[5]])
    precision = np.linalg.inv(state.covariance[0]) + np.outer(row, row) / variance

    assert after.mean == pytest.approx(state.mean)
    assert after.covariance[0] == pytest.approx(np.linalg.inv(precision))
    # Of one ability, the posterior around its mean.
    belief = candidates.belief
    narrower = candidates.expecting(np.array([5])).belief.log_likelihood - belief.log_likelihood
    middle = float(on_grid(belief).ability[0])
    expected = -fisher(items, 5, middle) * (belief.nodes - middle) ** 2 / 2
    assert narrower[0] == pytest.approx(expected)


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
        chosen = pick(rng.random((1, 90)), allowed)
        assert allowed[0, chosen[0]]
        asked[0, chosen[0]] = True
        counts = np.bincount(task[asked[0]], minlength=3)
        if (np.bincount(task, minlength=3) > counts).all():
            assert (counts < share * n + 1 + 1e-9).all()


def test_every_task_has_the_share_that_it_has_in_the_bank():
    bank = ItemBank.from_arrays(np.ones(4), np.zeros(4), tasks=["x", "y", "y", "y"])

    assert Targets.of(bank).share.tolist() == [0.25, 0.75]
    # Sizes of the items drawn: by task as the shares, within a task as they were.
    size = Targets.of(bank).spread(np.array([[3.0, 1.0, 2.0, 0.0], [0.0, 1.0, 0.0, 4.0]]))
    assert size.tolist() == [[0.25, 0.25, 0.5, 0.0], [0.0, 0.15, 0.0, 0.6]]


class Fixed:
    """Draws what it was given."""

    def __init__(self, *values):
        self.values = np.array(values)

    def random(self, size):
        assert size == len(self.values)
        return self.values


def test_items_are_drawn_by_their_probabilities():
    """Each by its share of the sum, which rounding may leave off 1; none of probability 0."""
    chance = np.array([0.0, 0.25, 0.0, 0.5, 0.25, 0.0])
    draws = Fixed(0.0, 0.2499, 0.25, 0.7499, 0.75, 1 - 2**-53)
    rows = np.tile(chance, (6, 1))

    for scale in (1.0, 0.5, 4.0):
        assert drawn_from(scale * rows, draws).tolist() == [1, 1, 3, 3, 4, 4]
