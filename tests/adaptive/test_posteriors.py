"""What a session knows: modes, projections and stop rules, each computed from its definition."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import optimize, special

from evalstats_plugin.adaptive import stopping
from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.adaptive.scoring import (
    Abilities,
    Belief,
    Shares,
    curves_of,
    laplace,
    predictions,
    project,
)

M, K = 30, 2
ASKED, RIGHT = np.array([2, 9, 17, 23, 28]), np.array([1.0, 0.0, 1.0, 1.0, 0.0])
REST = np.setdiff1d(np.arange(M), ASKED)


@pytest.fixture(scope="module")
def bank():
    rng = np.random.default_rng(5)
    return ItemBank.from_arrays(
        np.exp(0.3 * rng.normal(size=M)),
        rng.normal(size=M),
        tasks=["x", "y", "y"] * (M // 3),
        misfit_loadings=0.4 * rng.normal(size=(M, K)),
        dispersion=rng.uniform(0.4, 1, M),
        ability_mean=0.3,
        ability_sd=1.2,
    )


@pytest.fixture(scope="module")
def belief(bank):
    return Belief.prior(bank).answered(ASKED[None], RIGHT[None], np.ones((1, len(ASKED))))


def logits(items, state, places):
    return (
        items.discrimination[places] * state[0]
        + items.intercept[places]
        + items.loadings[places] @ state[1:]
    )


def log_posterior(items, state):
    logit = logits(items, state, ASKED)
    answers = (RIGHT * logit - np.logaddexp(0, logit)) / items.dispersion[ASKED]
    return answers.sum() - ((state[0] - 0.3) / 1.2) ** 2 / 2 - (state[1:] ** 2).sum() / 2


def test_the_state_is_the_mode_with_the_information_there(belief):
    items = belief.items
    best = optimize.minimize(
        lambda x: -log_posterior(items, x), np.zeros(1 + K), options={"gtol": 1e-9}
    )
    p = special.expit(logits(items, best.x, ASKED))
    direction = np.c_[items.discrimination, items.loadings][ASKED]
    weight = p * (1 - p) / items.dispersion[ASKED]
    precision = np.diag([1.2**-2, 1, 1]) + direction.T @ (weight[:, None] * direction)
    found = laplace(belief)

    # The prior on the grid is normal but for its ends.
    np.testing.assert_allclose(found.mean[0], best.x, atol=2e-3)
    np.testing.assert_allclose(found.covariance[0], np.linalg.inv(precision), rtol=5e-3, atol=1e-3)


def test_a_projection_is_what_was_seen_and_what_is_expected_of_the_rest(bank, belief):
    """With the variance of the state, of the answers not seen, and of misfit beyond the factors."""
    shares = Shares.of(bank)
    state, items = laplace(belief), belief.items
    mean, covariance = state.mean[0], state.covariance[0]
    direction = np.c_[items.discrimination, items.loadings]
    logit = logits(items, mean, np.arange(M))
    spread = np.einsum("md,de,me->m", direction, covariance, direction)
    # Of a logit that is normal: the mean of its curve, by quadrature.
    z, chance = np.polynomial.hermite_e.hermegauss(40)
    p = special.expit(logit[:, None] + spread[:, None] ** 0.5 * z) @ chance / chance.sum()
    found = project(belief, shares, state=state, confidence_level=0.9)

    for which, name in enumerate(("", "x", "y")):
        inside = np.ones(M, bool) if not name else bank.tasks == name
        weight = inside / inside.sum()
        seen = weight[ASKED] @ RIGHT
        rest = np.isin(np.arange(M), REST)
        at_mode = special.expit(logit)
        gradient = (weight * rest * at_mode * (1 - at_mode)) @ direction
        variance = (
            gradient @ covariance @ gradient
            + (weight**2 * rest * items.dispersion * p * (1 - p)).sum()
        )
        estimate = found.estimate[0, which]
        assert estimate == pytest.approx(seen + (weight * rest) @ p, abs=3e-3)
        assert found.std_error[0, which] == pytest.approx(variance**0.5, rel=0.02)
        half = 1.6448536 * found.std_error[0, which]
        left = (weight * rest).sum()
        assert found.low[0, which] == pytest.approx(max(estimate - half, seen))
        assert found.high[0, which] == pytest.approx(min(estimate + half, seen + left))


def standing(**known):
    full = SimpleNamespace(low=np.array([[0.3]]), high=np.array([[0.5]]))
    return SimpleNamespace(
        **{
            "n": 5, "std_error": 0.5, "prior_sd": 1.0, "cost": 10.0, "seconds": 10.0,
            "information": 2.0, "outlook": SimpleNamespace(full=full), **known,
        }
    )  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "name", "enough", "too_little"),
    [
        (stopping.StdError(0.5), "std_error", 0.5, 0.51),
        (stopping.Reliability(0.75), "std_error", 0.5, 0.51),
        (stopping.Information(2.0), "information", 2.0, 1.9),
        (stopping.Items(5), "n", 5, 4),
        (stopping.Cost(10.0), "cost", 10.0, 9.9),
        (stopping.Seconds(10.0), "seconds", 10.0, 9.9),
    ],
)
def test_a_rule_stops_at_its_threshold_and_not_before(rule, name, enough, too_little):
    """Those on what is known, after five answers at the earliest."""
    assert rule(standing(**{name: enough})) is not None
    assert rule(standing(**{name: too_little})) is None
    if not isinstance(rule, stopping.Items | stopping.Cost | stopping.Seconds):
        assert rule(standing(n=4)) is None


def test_a_narrow_score_is_one_at_most_as_wide_as_asked():
    width = 0.5 - 0.3

    assert stopping.ScoreWidth(width)(standing()) is not None
    assert stopping.ScoreWidth(width - 0.01)(standing()) is None
    assert stopping.ScoreWidth(width)(standing(n=4)) is None


def test_several_abilities_have_normal_limits_of_their_own():
    both = Abilities(np.array([[0.5, -1.0]]), np.array([[[0.04, 0.01], [0.01, 0.25]]]))
    found = [(e.ability, e.std_error, e.low, e.high) for e in both.estimates(0.9)]
    reach = 1.6448536

    assert found[0] == pytest.approx((0.5, 0.2, 0.5 - 0.2 * reach, 0.5 + 0.2 * reach))
    assert found[1] == pytest.approx((-1.0, 0.5, -1 - 0.5 * reach, -1 + 0.5 * reach))


def test_expected_scores_of_items_have_the_full_score_as_their_mean(bank, belief):
    """Those not asked are moved alike; what is not chance in single answers is common, by task."""
    shares, state = Shares.of(bank), laplace(belief)
    full = project(belief, shares, state=state)
    misfit = np.array([0.05, 0.1, 0.02])
    wider = project(belief, replace(shares, misfit=misfit), state=state).std_error ** 2
    of_misfit = (misfit * shares.weights[REST].sum(axis=0)) ** 2
    assert wider - full.std_error**2 == pytest.approx(of_misfit[None])
    full = full._replace(estimate=full.estimate + 0.02, std_error=full.std_error + 0.1)
    found, curve = predictions(belief, shares, state, full), curves_of(belief, state)[0, REST]

    assert found.scores.mean() == pytest.approx(full.estimate[0, 0])
    assert found.scores[0, ASKED].tolist() == RIGHT.tolist()
    assert found.scores[0, REST] - curve == pytest.approx(np.full(len(REST), 0.02 * M / len(REST)))
    assert not found.variances[0, ASKED].any()
    assert found.variances[0, REST] == pytest.approx(bank.dispersion[REST] * curve * (1 - curve))
    chance = found.variances[0] @ shares.weights**2
    assert found.common[0] == pytest.approx(np.sqrt(full.std_error[0] ** 2 - chance))


def test_the_density_of_all_abilities_is_that_of_answers_and_prior(belief):
    """Up to a constant; the prior is that of the grid, to a ten-thousandth of its variance."""
    points = np.random.default_rng(0).normal(size=(20, 1 + K))
    found = belief._log_density(0)(points)
    exact = np.array([log_posterior(belief.items, point) for point in points])

    assert found - found[0] == pytest.approx(exact - exact[0], abs=1e-3)


@pytest.mark.parametrize(("wealth", "is_clear"), [(39.99, False), (40.01, True)])
def test_it_is_clear_where_bets_have_become_forty_times_as_much(monkeypatch, wealth, is_clear):
    """Half of α on each side: 2 / .05 at a level of .95."""
    monkeypatch.setattr(stopping, "log_wealth", lambda *_: np.log(wealth))

    class Bets:
        bets = staticmethod(lambda _: np.zeros((3, 1)))
        __len__ = staticmethod(lambda: 1)

    shares = SimpleNamespace(weights=np.ones((1, 1)))
    outlook = SimpleNamespace(draws=Bets(), belief=None, shares=shares, drawable=np.array([True]))
    said = stopping.Clear(0.5)(SimpleNamespace(outlook=outlook))

    assert is_clear == (said is not None)
