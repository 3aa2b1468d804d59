"""Judges who are not equally sharp: calibration, recovery, refusals."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from evalstats_plugin.errors import DesignError
from evalstats_plugin.ranking.contests.contests import Contests
from evalstats_plugin.ranking.thurstone.design import Answers, Prior, difference_rows
from evalstats_plugin.ranking.thurstone.judges import JudgeState, fit_thurstone_judges, judge_chains
from evalstats_plugin.ranking.thurstone.model import fit_thurstone
from evalstats_plugin.runtime.chain_length import ChainLength

K, N, J, THIN = 150, 3, 3, 7
FIRST, SECOND = (np.tile(x, 6) for x in np.triu_indices(N, 1))
JUDGE = np.repeat(np.arange(J), 6)


def from_the_prior(rng, prior):
    spread = np.abs(rng.normal(size=K))
    accuracy = spread * rng.normal(size=(J, K))
    x = np.linalg.cholesky(prior.covariance) @ rng.normal(size=(N + 1, K))
    return JudgeState(x, accuracy, np.log(spread), np.log(np.abs(rng.normal(size=K))))


def ranks(*, mixed_up):
    """Ranks of the truth among 49 draws, K data sets at once; with judges mixed up, a control."""
    rng, prior = np.random.default_rng(2), Prior(np.zeros(N + 1), np.diag([2.0] * N + [1.0]))
    truth, start = from_the_prior(rng, prior), from_the_prior(rng, prior)
    x, sharp, tie = truth.parameters, np.exp(truth.log_accuracy), np.exp(truth.log_tie)
    z = sharp[JUDGE] * (x[FIRST] - x[SECOND]) + x[N] + rng.normal(size=(len(FIRST), K))
    answer = (z > tie).astype(np.int64) - (z < -tie)
    judge = (JUDGE + 1) % J if mixed_up else JUDGE
    answers = Answers(difference_rows(FIRST, SECOND, N, ordered=True), answer, judge)
    length = ChainLength(chains=K, draws=THIN * 49, warm_up=100)
    found = judge_chains(answers, J, prior, start, rng=rng, length=length)
    data = np.arange(K)
    return {
        name: (drawn[::THIN] < true).sum(axis=0)
        for name, drawn, true in (
            ("rating", found.parameters[:, data % N, data], x[data % N, data]),
            ("position", found.parameters[:, N], x[N]),
            ("accuracy", found.log_accuracy[:, data % J, data], truth.log_accuracy[data % J, data]),
            ("judge_sd", found.log_spread, truth.log_spread),
            ("tie", found.log_tie, truth.log_tie),
        )
    }


def even(ranks):
    return stats.chisquare(np.bincount(ranks // 5, minlength=10)).pvalue


def test_the_truth_ranks_evenly_among_draws():
    right, wrong = ranks(mixed_up=False), ranks(mixed_up=True)

    assert min(even(x) for x in right.values()) > 1e-3, {k: even(x) for k, x in right.items()}
    assert even(wrong["accuracy"]) < 1e-3


def test_judges_who_answer_at_random_are_found():
    """Three of six do not look. Ratings come nearer to the truth than without judges."""
    rng, n, m = np.random.default_rng(1), 10, 600
    rating, sharp = rng.normal(size=n), np.array([0.02, 0.02, 0.02, 1.5, 1.5, 1.5])
    first, judge = rng.integers(0, n, m), rng.integers(0, 6, m)
    second = (first + rng.integers(1, n, m)) % n
    won = sharp[judge] * (rating[first] - rating[second]) + rng.normal(size=m) > 0
    contests = replace(
        Contests.of(first, second, won, players=n), judge=judge, judges=tuple("abcdef")
    )
    fit = fit_thurstone_judges(
        contests, rng=1, length=ChainLength(chains=8, draws=400, warm_up=200)
    )
    plain = fit_thurstone(contests, estimator="ep")
    found = np.array([fit.parameters[f"accuracy of {name}"] for name in "abcdef"])

    assert fit.diagnostics["r_hat"] < 1.1
    assert found[:3].max() < 0.35
    assert found[3:].min() > 0.7
    error = [1 - np.corrcoef(x.rating, rating)[0, 1] for x in (fit, plain)]
    assert error[0] < error[1] / 2
    assert fit.draws.shape == (3200, n)
    # Few draws disagree still, which is said.
    assert bool(fit.notes) == (fit.diagnostics["r_hat"] >= 1.01)


def test_contests_without_judges_are_refused():
    with pytest.raises(DesignError, match="do not say who judged them"):
        fit_thurstone_judges(Contests.of([0], [1], 1))
