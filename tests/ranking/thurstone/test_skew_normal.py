"""The skew-normal posterior beside quadrature, and its calibration by simulation."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from evalstats_plugin.ranking.contests.contests import Contests
from evalstats_plugin.ranking.thurstone.design import Prior, answers_of, prior_of
from evalstats_plugin.ranking.thurstone.model import SkewNormal

GOLDEN = Path(__file__).parents[3] / "fixtures" / "golden" / "thurstone.json"
EXACT = json.loads(GOLDEN.read_text(encoding="utf-8"))["exact"]
# P(best) on a grid of 241³ places, right to a thousandth.
PROB_BEST = {
    "one win": (0.5523, 0.1144, 0.3333),
    "chain": (0.6622, 0.2343, 0.1035),
    "cycle": (0.3333, 0.3333, 0.3333),
    "mixed": (0.6555, 0.3236, 0.0209),
    "mixed, prior variance 4": (0.7009, 0.2917, 0.0073),
}


def posterior(winner, loser, n, covariance):
    contests = Contests.of(winner, loser, 1, players=n)
    return SkewNormal.of(answers_of(contests), prior_of(0, covariance, n, ordered=False), 0.0)


@pytest.mark.parametrize("name", EXACT)
def test_three_players_agree_with_quadrature(name):
    case, size = EXACT[name], 20_000
    found = posterior(*np.transpose(case["winner_loser"]), 3, case["prior_variance"])
    sample, rng = found.sample(size, np.random.default_rng(1)), np.random.default_rng(2)
    evidence = found.log_evidence(rng)

    error = 4 * sample.mean_std_error + 1e-8
    assert (np.abs(sample.mean - case["mean"]) < error).all()
    # Of a variance from so many draws, relative: √(2/S), or somewhat more where it is skew.
    variance = np.diagonal(case["covariance"])
    bound = 5 * np.sqrt(2 / size) * np.sqrt(np.outer(variance, variance))
    assert (np.abs(sample.covariance - case["covariance"]) < bound).all()
    assert (np.abs(np.cov(sample.draws.T) - case["covariance"]) < bound).all()
    assert evidence.value == pytest.approx(case["log_evidence"], abs=4 * evidence.std_error + 1e-9)
    expected = np.array(PROB_BEST[name])
    best = np.bincount(sample.draws.argmax(axis=1), minlength=3) / size
    assert (np.abs(best - expected) < 4 * np.sqrt(expected * (1 - expected) / size) + 1e-3).all()


def test_evidence_is_scipys_orthant_probability():
    """Log Φ_m(τ; Γ), m = 6, with the parameters as they are named."""
    rng = np.random.default_rng(4)
    winner = rng.integers(0, 4, 6)
    found = posterior(winner, (winner + rng.integers(1, 4, 6)) % 4, 4, [0.5, 1, 2, 3])
    expected = stats.multivariate_normal(cov=found.latent_covariance).cdf(found.threshold)
    evidence = found.log_evidence(rng, 50_000)

    assert evidence.value == pytest.approx(np.log(expected), abs=4 * evidence.std_error + 1e-4)
    np.testing.assert_allclose(found.skewness, found.scale @ found.design.T)


def test_without_answers_it_is_the_prior():
    prior = Prior(np.array([1.0, 0.0, 0.0]), np.array([[1.0, 0.5, 0], [0.5, 2, 0], [0, 0, 1]]))
    empty = Contests.of([0], [1], 1, players=3).take([False])
    found = SkewNormal.of(answers_of(empty), prior, 0.0)
    sample = found.sample(20_000, np.random.default_rng(0))

    np.testing.assert_array_equal(sample.mean, prior.mean)
    np.testing.assert_allclose(sample.covariance, prior.covariance, atol=1e-12)
    np.testing.assert_allclose(np.cov(sample.draws.T), prior.covariance, atol=0.08)
    assert found.log_evidence(np.random.default_rng(0)) == (0.0, 0.0)


def ranks(turned):
    """Rank of the truth among 99 draws, 120 times; with all answers turned, as a control."""
    rng, found = np.random.default_rng(7), []
    first, second = np.triu_indices(4, 1)
    first, second = np.tile(first, 2), np.tile(second, 2)
    for k in range(120):
        truth = rng.normal(size=4) * 1.5
        won = truth[first] - truth[second] + rng.normal(size=len(first)) > 0
        won = won != turned
        winner, loser = np.where(won, first, second), np.where(won, second, first)
        draws = posterior(winner, loser, 4, 2.25).sample(99, rng).draws
        # One player of each: those of one data set rank alike.
        found.append((draws[:, k % 4] < truth[k % 4]).sum())
    return np.array(found)


def even(ranks):
    """p-value of χ² with 10 bins."""
    counts = np.bincount(ranks // 10, minlength=10)
    return stats.chisquare(counts).pvalue


def test_the_truth_ranks_evenly_among_draws():
    assert even(ranks(turned=False)) > 1e-3
    assert even(ranks(turned=True)) < 1e-6
