"""Elementary symmetric functions against sums over every pattern and against the recursion."""

import itertools

import numpy as np
import pytest
import torch

from evalstats_plugin.irt.estimators.cml import given_totals, tilts


def tensor(values):
    return torch.tensor(np.asarray(values, dtype=float))


def enumerated(parameters, trials, total):
    """Log γ, mean and covariance over every pattern of single trials with this total."""
    owner = np.repeat(np.arange(len(parameters)), trials)
    weights, rows = [], []
    for chosen in itertools.combinations(range(len(owner)), total):
        hits = np.bincount(owner[list(chosen)], minlength=len(parameters))
        weights.append(np.exp(hits @ parameters))
        rows.append(hits)
    weights, rows = np.array(weights), np.array(rows, dtype=float)
    mean = weights @ rows / weights.sum()
    second = np.einsum("k,ki,kj->ij", weights, rows, rows) / weights.sum()
    return np.log(weights.sum()), mean, second - np.outer(mean, mean)


@pytest.mark.parametrize("trials", [[1, 1, 1, 1, 1, 1], [3, 0, 1, 2, 1, 2]])
def test_totals_agree_with_a_sum_over_every_pattern(trials):
    parameters = np.array([-2.5, 0.3, 4.0, -0.7, 1.1, 0.0])
    sets, size = tensor([trials]), sum(trials)

    for total in range(1, size):
        found = given_totals(tensor(parameters), sets, tensor([total]), tensor([1.0]))
        log_esf, mean, covariance = enumerated(parameters, trials, total)

        np.testing.assert_allclose(found.log_esf.item(), log_esf, rtol=1e-13)
        np.testing.assert_allclose(found.mean, mean, atol=1e-13)
        np.testing.assert_allclose(found.covariance, covariance, atol=1e-13)


@pytest.mark.parametrize("size", [70, 1000, 10_000])
def test_log_esf_agrees_with_the_recursion_for_many_parts(size):
    parameters = np.random.default_rng(3).normal(0, 1.5, size)
    recursion = np.full(size + 1, -np.inf)
    recursion[0] = 0.0
    for value in parameters:
        recursion[1:] = np.logaddexp(recursion[1:], recursion[:-1] + value)
    # Apart, as their totals vary by very different amounts.
    for total in (3, size // 3, size - 20):
        sets = torch.ones(1, size, dtype=torch.float64)
        found = given_totals(tensor(parameters), sets, tensor([total]), tensor([1.0]), full=False)

        np.testing.assert_allclose(found.log_esf.item(), recursion[total], rtol=1e-12)
        np.testing.assert_allclose(found.mean.sum().item(), total, rtol=1e-10)


def test_variances_are_the_diagonal_of_the_covariance():
    rng = np.random.default_rng(0)
    parameters = tensor(rng.normal(size=7))
    trials, totals = tensor(rng.integers(0, 3, (4, 7)) + 0), tensor([1.0, 2, 3, 2])
    trials[:, 0] = 2
    frequency = tensor(rng.integers(1, 9, 4))
    full = given_totals(parameters, trials, totals, frequency)
    short = given_totals(parameters, trials, totals, frequency, full=False)

    torch.testing.assert_close(short.covariance, full.covariance.diagonal())
    torch.testing.assert_close(short.mean, full.mean)


@pytest.mark.parametrize("size", [5, 20, 60])
def test_tilted_totals_stay_at_their_expectations(size):
    """Once there, a step shorter than the rounding is no reason to bisect."""
    totals = torch.arange(1, size, dtype=torch.float64)
    for parameters in tensor(2 * np.random.default_rng(0).normal(size=(500, size))):
        tilt = tilts(parameters, torch.ones(size - 1, size, dtype=torch.float64), totals)
        expected = torch.sigmoid(parameters + tilt[:, None]).sum(-1)

        assert float((expected - totals).abs().max()) < 0.01
