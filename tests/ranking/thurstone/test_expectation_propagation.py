"""Matched moments: exact where there is one pair, near quadrature with three players."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import integrate, stats

from evalstats_plugin.ranking.contests.contests import Contests
from evalstats_plugin.ranking.thurstone.approximation import expectation_propagation, laplace
from evalstats_plugin.ranking.thurstone.design import prior_of, sites_of

GOLDEN = Path(__file__).parents[3] / "fixtures" / "golden" / "thurstone.json"
EXACT = json.loads(GOLDEN.read_text(encoding="utf-8"))["exact"]


def approximations(contests, covariance=1.0, tie=0.0, mean=0.0):
    sites = sites_of(contests, "threshold")
    prior = prior_of(mean, covariance, len(contests.players), ordered=contests.ordered)
    mode = laplace(sites, prior, tie)
    return mode, expectation_propagation(sites, prior, tie, mode.normals, tolerance=1e-11)


def moments(log_likelihood, sd):
    """Evidence, mean and variance of a difference, by adaptive quadrature."""

    def part(power):
        return integrate.quad(
            lambda d: d**power * np.exp(log_likelihood(d)) * stats.norm.pdf(d, scale=sd),
            -12 * sd,
            12 * sd,
            points=[-1, 0, 1],
            limit=500,
            epsabs=1e-14,
        )[0]

    mass, first, second = part(0), part(1), part(2)
    return np.log(mass), first / mass, second / mass - (first / mass) ** 2


def test_one_win_has_its_closed_form():
    """E[s0 - s1 | win] = v φ(0) / (√(1 + v) Φ(0)), v = 2, which is .9213177; evidence ½."""
    _, found = approximations(Contests.of([0], [1], 1, players=3))

    assert found.mean[0] - found.mean[1] == pytest.approx(0.9213177319235613, abs=1e-9)
    assert found.log_evidence == pytest.approx(np.log(0.5), abs=1e-12)
    assert found.mean[2] == 0
    assert found.covariance[2, 2] == pytest.approx(1, abs=1e-14)


@pytest.mark.parametrize(
    ("outcomes", "tie", "variance"),
    [
        ([1] * 3, 0.0, 1.0),
        ([1] * 7 + [0] * 2, 0.0, 1.0),
        ([1] * 2 + [0.5] * 3 + [0], 0.4, 1.0),
        ([0.5], 0.3, 4.0),
        ([1] * 5, 0.0, 100.0),
        ([1] * 300 + [0] * 200, 0.0, 1.0),
    ],
)
def test_any_answers_about_one_pair_are_exact(outcomes, tie, variance):
    """The pair is one site, so its one dimension is all there is."""
    y = np.array(outcomes, dtype=np.float64)

    def log_likelihood(d):
        tied = (
            np.log(stats.norm.cdf(tie - abs(d)) - stats.norm.cdf(-tie - abs(d))) if 0.5 in y else 0
        )
        win, loss = stats.norm.logcdf(d - tie), stats.norm.logcdf(-d - tie)
        return (y == 1).sum() * win + (y == 0).sum() * loss + (y == 0.5).sum() * tied

    # Shifted by the largest value, which keeps 500 answers from vanishing.
    top = max(log_likelihood(d) for d in np.linspace(-3, 3, 601)) if len(y) > 100 else 0.0
    zeros = np.zeros(len(y), int)
    _, found = approximations(Contests.of(zeros, zeros + 1, y), variance, tie)
    log_mass, mean, spread = moments(lambda d: log_likelihood(d) - top, np.sqrt(2 * variance))

    sd = np.sqrt(spread)
    assert found.mean[0] - found.mean[1] == pytest.approx(mean, abs=1e-7 * sd)
    contrast = np.array([1.0, -1.0])
    assert contrast @ found.covariance @ contrast == pytest.approx(spread, rel=1e-6)
    assert found.log_evidence == pytest.approx(log_mass + top, abs=1e-7)


@pytest.mark.parametrize("name", EXACT)
def test_three_players_come_near_to_quadrature(name):
    """The bounds are the approximation's own errors, rounded up; Laplace's are larger."""
    case = EXACT[name]
    winner, loser = np.transpose(case["winner_loser"])
    contests = Contests.of(winner, loser, 1, players=3)
    mode, found = approximations(contests, case["prior_variance"])
    sd = np.sqrt(np.diagonal(case["covariance"]))
    away, mode_away = (np.abs(x.mean - case["mean"]) / sd for x in (found, mode))

    assert away.max() < 0.003
    assert np.abs(found.covariance - case["covariance"]).max() < 0.05 * sd.max() ** 2
    assert abs(found.log_evidence - case["log_evidence"]) < 0.02
    assert away.max() <= mode_away.max() + 1e-12


def test_the_gradient_at_the_mode_is_0():
    rng = np.random.default_rng(0)
    first = rng.integers(0, 6, 40)
    contests = Contests.of(first, (first + 1) % 6, rng.choice([0, 0.5, 1], 40))
    sites, prior = sites_of(contests, "threshold"), prior_of(0.3, 2.0, 6, ordered=False)
    mode = laplace(sites, prior, 0.4)

    def log_posterior(x):
        fit = sites.log_likelihood(sites.design @ x, 0.4).sum()
        return fit + stats.multivariate_normal(prior.mean, prior.covariance).logpdf(x)

    h = 1e-4 * np.eye(6)
    at = log_posterior(mode.mean)
    slope = [log_posterior(mode.mean + e) - log_posterior(mode.mean - e) for e in h]
    bent = [
        [
            log_posterior(mode.mean + a + b)
            - log_posterior(mode.mean + a - b)
            - log_posterior(mode.mean - a + b)
            + log_posterior(mode.mean - a - b)
            for a in 10 * h
        ]
        for b in 10 * h
    ]
    np.testing.assert_allclose(slope, 0, atol=1e-9)
    np.testing.assert_allclose(mode.covariance, np.linalg.inv(-np.array(bent) / 4e-6), rtol=1e-3)
    log_normal = 0.5 * np.linalg.slogdet(2 * np.pi * mode.covariance)[1]
    assert mode.log_evidence == pytest.approx(at + log_normal, abs=1e-9)


def test_outcomes_between_0_and_1_count_as_shares():
    """Three quarters of a win, four times, are three wins and a loss."""
    zeros = np.zeros(4, int)
    _, soft = approximations(Contests.of(zeros, zeros + 1, 0.75))
    _, whole = approximations(Contests.of(zeros, zeros + 1, [1, 1, 1, 0]))

    np.testing.assert_allclose(soft.mean, whole.mean, atol=1e-9)
    np.testing.assert_allclose(soft.covariance, whole.covariance, atol=1e-9)


def test_the_order_within_a_pair_matters_only_if_it_is_known():
    first, second, y = np.array([0, 1, 2, 2]), np.array([1, 2, 0, 1]), np.array([1, 0.0, 1, 1])
    _, one = approximations(Contests.of(first, second, y))
    _, other = approximations(Contests.of(second, first, 1 - y))
    _, told = approximations(Contests.of(first, second, y, ordered=True))

    np.testing.assert_allclose(one.mean, other.mean, atol=1e-9)
    assert len(told.mean) == 4
    assert told.mean[3] > 0
