"""What a session knows: modes, projections and stop rules, each computed from its definition."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import integrate, optimize, special, stats

from evalstats_plugin.adaptive import stopping
from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.adaptive.scoring import Belief, Shares, laplace, project

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
    found = project(belief, shares, state=state, confidence_level=0.9)

    for which, name in enumerate(("", "x", "y")):
        inside = np.ones(M, bool) if not name else bank.tasks == name
        weight = inside / inside.sum()
        logit = logits(items, mean, np.arange(M))
        spread = np.einsum("md,de,me->m", direction, covariance, direction)
        # Of a logit that is normal: the mean of its curve, by quadrature.
        p = np.array(
            [
                integrate.quad(
                    lambda z, m=m, v=v: special.expit(m + z * v**0.5) * stats.norm.pdf(z), -8, 8
                )[0]
                for m, v in zip(logit, spread, strict=True)
            ]
        )
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
