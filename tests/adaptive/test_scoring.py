import numpy as np
import pytest
from scipy import integrate, special

from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.adaptive.curves import respond
from evalstats_plugin.adaptive.scoring import Belief, _crossing, eap

A, D = np.array([0.8, 1.5, 1.1, 0.6]), np.array([0.3, -0.9, 0.1, 1.0])
C = np.array([0.0, 0.2, 0.1, 0.0])
RIGHT, TRIALS = np.array([[1.0, 2.0, 0.5, 0.0]]), np.array([[1.0, 3.0, 1.0, 1.0]])


def belief(**others):
    bank = ItemBank.from_arrays(A, D, guessing=C, ability_mean=0.2, ability_sd=1.3, **others)
    return Belief.prior(bank).answered(np.arange(4)[None], RIGHT, TRIALS)


def log_posterior(theta):
    p = C + (1 - C) * special.expit(A * theta + D)
    value = (RIGHT * np.log(p) + (TRIALS - RIGHT) * np.log1p(-p)).sum()
    return value - 0.5 * ((theta - 0.2) / 1.3) ** 2


def test_eap_is_the_integral():
    weights = [
        integrate.quad(lambda t, k=k: t**k * np.exp(log_posterior(t)), -9, 9)[0] for k in range(3)
    ]
    mean = weights[1] / weights[0]

    found = eap(belief())

    np.testing.assert_allclose(mean, found.ability[0], atol=1e-6)
    np.testing.assert_allclose(
        np.sqrt(weights[2] / weights[0] - mean**2), found.std_error[0], atol=1e-6
    )


def test_errors_of_an_item_are_integrated_out():
    variance = 0.7
    bank = ItemBank.from_arrays(
        [1.0], [0.0], item_covariance=np.array([[[0.0, 0.0], [0.0, variance]]])
    )
    theta = 0.8

    def weighed(d):
        return special.expit(theta + d) * np.exp(-(d**2) / 2 / variance)

    exact = integrate.quad(weighed, -9, 9)[0] / np.sqrt(2 * np.pi * variance)
    found = Belief.prior(bank).answered(np.array([[0]]), np.array([[1.0]]), np.array([[1.0]]))

    at = np.interp(theta, found.nodes, np.exp(found.log_likelihood[0]))
    np.testing.assert_allclose(exact, at, atol=1e-4)
    np.testing.assert_allclose(
        exact, respond(bank.items, np.array([theta])).probability[0], atol=5e-3
    )


def test_partial_credit_that_varies_little_tells_more():
    sure = eap(belief(dispersion=np.full(4, 0.25))).std_error[0]

    assert sure < 0.8 * eap(belief()).std_error[0]


def test_equal_tails_hold_what_they_should():
    found = belief()
    low, high = found.interval(0.9)

    above = [found.posterior[0, found.nodes > limit[0]].sum() for limit in (low, high)]
    np.testing.assert_allclose([0.95, 0.05], above, atol=0.01)
    points, chances = found.between_nodes()
    np.testing.assert_allclose(points[::32], found.nodes, atol=1e-12)
    assert chances.sum() == pytest.approx(1)


def test_a_prior_has_the_mean_and_variance_that_it_was_given():
    mean, variance = belief().ability_prior()

    np.testing.assert_allclose([mean, variance], [0.2, 1.3**2], rtol=1e-3)


@pytest.mark.parametrize("n_items", [100, 10_000])
def test_long_tests_have_the_posterior_of_a_normal_ability(n_items):
    """Limits were too wide by the grid, with 500 items by 7 %; with 10,000 the mean was off."""
    slope, true = np.full(n_items, 1.2), 0.81
    bank = ItemBank.from_arrays(slope, np.zeros(n_items))
    right = np.full((1, n_items), special.expit(1.2 * true))
    found = Belief.prior(bank).answered(np.arange(n_items)[None], right, np.ones((1, n_items)))
    scored, limits = eap(found), found.interval(0.9)

    def log_density(t):
        return n_items * (right[0, 0] * 1.2 * t - np.logaddexp(0, 1.2 * t)) - t**2 / 2

    at = np.linspace(-1, 2.6, 40_001)
    chance = np.exp(log_density(at) - log_density(at).max())
    chance /= chance.sum()
    mean = chance @ at
    sd = np.sqrt(chance @ (at - mean) ** 2)
    below = np.cumsum(chance) - chance / 2
    assert scored.ability[0] == pytest.approx(mean, abs=0.002 * sd)
    assert scored.std_error[0] == pytest.approx(sd, rel=0.002)
    expected = np.interp([0.05, 0.95], below, at)
    np.testing.assert_allclose(np.ravel(limits), expected, atol=0.02 * sd)


@pytest.mark.parametrize(
    ("probability", "quantile"), [(0.1, 0.5), (0.2, 1.0), (0.5, 1.5), (0.9, 2.0), (0.05, 0.25)]
)
def test_quantiles_are_linear_between_nodes_and_end_with_them(probability, quantile):
    below = np.array([[0.0, 0.2, 0.8]])

    np.testing.assert_allclose(_crossing(below, np.arange(3.0), probability), [quantile])
