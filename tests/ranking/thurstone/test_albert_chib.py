"""Gibbs sampling: calibration of many data sets at once, with broken samplers as controls."""

import numpy as np
import pytest
from scipy import stats

from evalstats_plugin.ranking.thurstone import chains
from evalstats_plugin.ranking.thurstone.chains import ChainOptions, Start, gibbs
from evalstats_plugin.ranking.thurstone.design import Answers, Prior, difference_rows

K, N, THIN = 400, 4, 4
FIRST, SECOND = (np.tile(x, 2) for x in np.triu_indices(N, 1))


def calibration(*, ties, mean=0.0, turned=False):
    """p-values of χ²: are ranks of the truth even, of the ratings and of δ?"""
    rng = np.random.default_rng(3)
    prior = Prior(np.full(N, mean), np.eye(N) + 0.5)
    factor = np.linalg.cholesky(prior.covariance)
    truth = prior.mean[:, None] + factor @ rng.normal(size=(N, K))
    tie = np.abs(rng.normal(size=K)) if ties else np.zeros(K)
    z = truth[FIRST] - truth[SECOND] + rng.normal(size=(len(FIRST), K))
    answer = (z > tie).astype(np.int64) - (z < -tie)
    design = difference_rows(FIRST, SECOND, N, ordered=False)
    start = Start(
        (prior.mean[:, None] + factor @ rng.normal(size=(N, K))).T, np.full(K, 0.5 * ties)
    )
    options = ChainOptions(chains=K, draws=THIN * 99, warm_up=60)
    found = gibbs(Answers(design, -answer if turned else answer), prior, start, rng, options)
    ranks = (found.draws[:, ::THIN] < truth.T[:, None]).sum(axis=1)
    of_tie = (found.tie[:, ::THIN] < tie[:, None]).sum(axis=1)
    # One player of each: those of one data set rank alike.
    one = ranks[np.arange(K), np.arange(K) % N]
    return even(one), even(of_tie) if ties else None


def even(ranks):
    return stats.chisquare(np.bincount(ranks // 10, minlength=10)).pvalue


@pytest.mark.parametrize("mean", [0.0, 0.7])
def test_the_truth_ranks_evenly_among_draws(mean):
    assert calibration(ties=False, mean=mean)[0] > 1e-3


def test_the_threshold_ranks_evenly_among_draws():
    assert min(calibration(ties=True)) > 1e-3


def test_reversed_answers_fail_calibration():
    assert calibration(ties=False, turned=True)[0] < 1e-6


def test_an_unconditional_covariance_fails_calibration(monkeypatch):
    right = chains._model

    def broken(answers, prior):
        return right(answers, prior)._replace(factor=np.linalg.cholesky(prior.covariance))

    monkeypatch.setattr(chains, "_model", broken)

    assert calibration(ties=False)[0] < 1e-6
