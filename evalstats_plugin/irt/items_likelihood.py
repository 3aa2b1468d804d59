"""Likelihood of abilities and a population of items: value, gradient, observed information.

The integral over items is a sum over Q points, so that all items are matrix products of M × N and
N × Q. The observed information is, by Louis' identity [Lou82]_, that of complete data minus the
covariance of their score given the data.
"""

# Torch's stubs leave many functions untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from evalstats_plugin.irt.data import Counts
from evalstats_plugin.irt.item_population import Points, Population

# Numbers at a time, in one matrix of items × points.
_BLOCK = 2**21
# Numbers of items × points × models from which a step takes its covariance: a sample of items is
# enough to find the way, and the last information takes all.
_SAMPLE = 2**18
# Of these at a time, so many that they stay in the cache.
_CACHE = 2**12
# Points that hold less of an item's posterior than this are left out of the covariance.
_FAINT = 1e-8


class State(NamedTuple):
    """Where the search is, and what the likelihood looks like there."""

    ability: Tensor
    population: Population
    objective: Tensor
    log_likelihood: Tensor
    gradient: Tensor
    complete: Tensor
    missing: Tensor


class Block(NamedTuple):
    """Some items: their answers (m, N), and weights of the points given them (m, Q)."""

    items: slice
    right: Tensor
    trials: Tensor
    weight: Tensor
    log_likelihood: Tensor


def blocks(
    counts: Counts, ability: Tensor, population: Population, grid: Points
) -> Iterator[Block]:
    """Posterior of the items over the points, some items at a time."""
    logit = ability[:, None] * grid.discrimination + grid.intercept
    level = torch.nn.functional.softplus(logit)
    log_weight = population.log_density(grid.x1, grid.x2) + grid.log_area
    step = max(1, _BLOCK // len(grid.x1))
    for start in range(0, counts.right.shape[1], step):
        items = slice(start, start + step)
        right, trials = counts.right[:, items].T, counts.trials[:, items].T
        score = torch.addmm(log_weight, right, logit).addmm_(trials, level, alpha=-1)
        total = score.logsumexp(1)
        yield Block(items, right, trials, score.sub_(total[:, None]).exp_(), total)


def evaluate(
    counts: Counts,
    ability: Tensor,
    population: Population,
    grid: Points,
    *,
    every: int | None = None,
    known: Tensor | None = None,
) -> State:
    """Log-likelihood, gradient and the two parts of the information, by Louis' identity.

    The missing information on the abilities is taken from one item in `every`, by default enough of
    them to find the way, or is `known`.
    """
    n = len(ability)
    a = grid.discrimination
    chance = torch.sigmoid(ability[:, None] * a + grid.intercept)
    score = population.score(grid.x1, grid.x2)
    pooled, expected = torch.zeros_like(a), torch.zeros_like(chance)
    hits, shape = torch.zeros_like(chance), n + score.shape[1]
    missing, log_likelihood = ability.new_zeros(shape, shape), ability.new_zeros(())
    every = every or _stride(counts, grid)
    for block in blocks(counts, ability, population, grid):
        log_likelihood += block.log_likelihood.sum()
        pooled += block.weight.sum(0)
        hits += block.right.T @ block.weight
        expected += block.trials.T @ block.weight
        mean = _mean_residual(block, a, chance)
        score_mean = block.weight @ score
        missing[:n, n:] -= mean.T @ score_mean
        missing[n:, n:] -= score_mean.T @ score_mean
        if known is None:
            missing[:n, :n] += _residual_covariance(block, a, chance, mean, every)
    if known is not None:
        missing[:n, :n] = known
    residual = a * (hits - expected * chance)
    missing[:n, n:] += residual @ score
    missing[n:, :n] = missing[:n, n:].T
    missing[n:, n:] += score.T @ (pooled[:, None] * score)
    prior, prior_gradient, prior_information = population.log_prior()
    complete = torch.block_diag(
        torch.diag((a**2 * expected * chance * (1 - chance)).sum(1)),
        population.information(pooled, grid.x1, grid.x2) + prior_information,
    )
    gradient = torch.cat([residual.sum(1), pooled @ score + prior_gradient])
    objective = log_likelihood + prior
    return State(ability, population, objective, log_likelihood, gradient, complete, missing)


def _stride(counts: Counts, grid: Points) -> int:
    """One item of how many is enough to find the way."""
    n, m = counts.right.shape
    # An item's posterior takes up about a quarter of the points, and less the more models.
    return max(1, min(m // 200, n * m * len(grid.x1) // (4 * _SAMPLE)))


def _mean_residual(block: Block, a: Tensor, chance: Tensor) -> Tensor:
    """Posterior mean of the score of each ability on each item, shape (m, N)."""
    return block.right * (block.weight @ a)[:, None] - block.trials * (
        block.weight @ (a * chance).T
    )


def _residual_covariance(
    block: Block, a: Tensor, chance: Tensor, mean: Tensor, every: int
) -> Tensor:
    """Σ over items of the posterior covariance of the scores of the abilities, shape (N, N)."""
    weight = block.weight[::every]
    item, point = torch.nonzero(weight > _FAINT, as_tuple=True)
    right, trials, mean = block.right[::every], block.trials[::every], mean[::every]
    slope, root = (a * chance).T.contiguous(), torch.sqrt(weight[item, point])[:, None]
    total = chance.new_zeros(chance.shape[0], chance.shape[0])
    for j, q, half in zip(*(x.split(_CACHE) for x in (item, point, root)), strict=True):
        score = right.index_select(0, j).mul_(a[q, None]).sub_(mean.index_select(0, j))
        score.sub_(trials.index_select(0, j).mul_(slope.index_select(0, q))).mul_(half)
        total.addmm_(score.T, score)
    return total * (len(block.weight) / len(weight))
