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
from evalstats_plugin.irt.item_population import SEGMENT_RISE, Points, Population

# Items at a time: so few that they lie close together, so many that they are worth a product.
_FEWEST, _SHARE, _WORTH = 32, 24, 2**17
# Numbers at a time, of items × points × models, in the covariance.
_BLOCK = 2**21
# Points that hold less of an item's posterior than this are left out of the covariance.
_FAINT = 1e-8
# Standard deviation of a parameter below which it is the same for all items.
_NO_SPREAD = 1e-3
# Points left out of a block hold less than exp(-25) of the posterior of each of its items.
_FAR = 25.0 + SEGMENT_RISE


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
    """Some items: their answers (m, N), and weights of P of the points given them (m, P)."""

    items: Tensor
    """Which, shape (m,)."""
    points: Tensor
    """Which hold their posteriors, shape (P,)."""
    right: Tensor
    trials: Tensor
    weight: Tensor
    log_likelihood: Tensor


def blocks(
    counts: Counts, ability: Tensor, population: Population, grid: Points
) -> Iterator[Block]:
    """Posterior of the items over the points, items of like difficulty at a time.

    Along a line the posterior is log-concave: where it is low at both ends of a segment, it is low
    in between. Only segments that come near the maximum of any item are summed.
    """
    logit = torch.addmm(grid.intercept[:, None], grid.discrimination[:, None], ability[None])
    level = torch.nn.functional.softplus(logit)
    log_weight = population.log_density(grid.x1, grid.x2) + grid.log_area
    ends = torch.nonzero(grid.end)[:, 0]
    before = torch.cumsum(grid.end, 0) - 1
    after = before + (~grid.end).long()
    # Where they are low is seen in single precision.
    at_ends = [
        x.to(torch.float32) for x in ((log_weight - grid.log_area)[ends], logit[ends], level[ends])
    ]
    total = counts.trials.sum(0)
    order = torch.argsort(counts.right.sum(0) / total, stable=True)
    for items in order.split(max(_FEWEST, len(order) // _SHARE, _WORTH // len(grid.x1))):
        right, trials = counts.right.T[items], counts.trials.T[items]
        score = _scores(right.to(torch.float32), trials.to(torch.float32), *at_ends)
        # Where there are no numbers, none is far.
        near = ~(score < score.amax(1, keepdim=True) - _FAR).all(0)
        points = torch.nonzero(near[before] | near[after])[:, 0]
        score = _scores(right, trials, log_weight[points], logit[points], level[points])
        value = score.logsumexp(1)
        yield Block(items, points, right, trials, score.sub_(value[:, None]).exp_(), value)


def _scores(
    right: Tensor, trials: Tensor, log_weight: Tensor, logit: Tensor, level: Tensor
) -> Tensor:
    """Log-likelihood of every item at every point plus the log weight, shape (m, P)."""
    return torch.addmm(log_weight, right, logit.T).addmm_(trials, level.T, alpha=-1)


def evaluate(
    counts: Counts,
    ability: Tensor,
    population: Population,
    grid: Points,
    *,
    known: Tensor | None = None,
    roughly: bool = False,
) -> State:
    """Log-likelihood, gradient and the two parts of the information, by Louis' identity.

    `known` is the missing information on the abilities, (N, N), if it need not be found; `roughly`
    takes the scores of abilities as linear in an item's parameters for it.
    """
    n, a = len(ability), grid.discrimination
    chance = torch.sigmoid(torch.addmm(grid.intercept[:, None], a[:, None], ability[None]))
    slope, score = a[:, None] * chance, population.score(grid.x1, grid.x2)
    pooled, expected = torch.zeros_like(a), torch.zeros_like(chance)
    hits, size = torch.zeros_like(chance), n + score.shape[1]
    missing, log_likelihood = ability.new_zeros(size, size), ability.new_zeros(())
    usual = _usual(counts)
    for block in blocks(counts, ability, population, grid):
        at = block.points
        lever = slope[at]
        log_likelihood += block.log_likelihood.sum()
        pooled.index_add_(0, at, block.weight.sum(0))
        hits.index_add_(0, at, block.weight.T @ block.right)
        expected.index_add_(0, at, block.weight.T @ block.trials)
        mean = block.right * (block.weight @ a[at])[:, None] - block.trials * (block.weight @ lever)
        score_mean = block.weight @ score[at]
        missing[:n, n:] -= mean.T @ score_mean
        missing[n:, n:] -= score_mean.T @ score_mean
        if roughly:
            missing[:n, :n] += _linear_covariance(block, grid, lever)
        elif known is None:
            missing[:n, :n] += _own_covariance(block, a[at], lever, mean, usual)
    if known is not None:
        missing[:n, :n] = known
    elif not roughly:
        missing[:n, :n] += _usual_square(slope, pooled, expected, usual)
    residual = a[:, None] * (hits - expected * chance)
    missing[:n, n:] += residual.T @ score
    missing[n:, :n] = missing[:n, n:].T
    missing[n:, n:] += score.T @ (pooled[:, None] * score)
    prior, prior_gradient, prior_information = population.log_prior()
    complete = torch.block_diag(
        torch.diag(a**2 @ (expected * chance * (1 - chance))),
        population.information(pooled, grid.x1, grid.x2) + prior_information,
    )
    gradient = torch.cat([residual.sum(0), pooled @ score + prior_gradient])
    objective = log_likelihood + prior
    return State(ability, population, objective, log_likelihood, gradient, complete, missing)


def _usual(counts: Counts) -> Tensor:
    """Trials T of each model on most items, shape (N,): all that others cost is their difference.

    The score of ability i on item j is r_ij a - t_ij s_i, with s = a p. Where t is T, the sum over
    items of E[s_i s_k] is one over points, which all items share.
    """
    most = counts.trials.amax(1)
    same = (counts.trials == most[:, None]).to(most).mean()
    return torch.where(same > 0.5, most, 0.0)


def _usual_square(slope: Tensor, pooled: Tensor, expected: Tensor, usual: Tensor) -> Tensor:
    """Σ t_ij t_kj E[s_i s_k] less its part of second order in T - t, shape (N, N)."""
    level = slope * usual
    half = (slope * expected - 0.5 * pooled[:, None] * level).T @ level
    return half + half.T


def _linear_covariance(block: Block, grid: Points, slope: Tensor) -> Tensor:
    """Σ over items of the covariance of the scores on lines through their posteriors, (N, N)."""
    at = block.points
    here = [grid.x1[at], grid.x2[at]]
    total, done = slope.new_zeros(slope.shape[1], slope.shape[1]), list[Tensor]()
    for value in here:
        # Standardised under each item's posterior, shape (m, P), and unrelated to the first.
        line = value - (block.weight @ value)[:, None]
        for before in done:
            line = line - (block.weight * before * line).sum(1, keepdim=True) * before
        sd = (block.weight * line.square()).sum(1, keepdim=True).sqrt()
        line = line / sd.clamp_min(_NO_SPREAD)
        done.append(line)
        share = block.weight * line
        half = block.right * (share @ grid.discrimination[at])[:, None]
        half = half.addcmul(block.trials, share @ slope, value=-1)
        total.addmm_(half.T, half)
    return total


def _own_covariance(block: Block, a: Tensor, slope: Tensor, mean: Tensor, usual: Tensor) -> Tensor:
    """Σ over items of the covariance of the scores, but for what `_usual_square` has, (N, N)."""
    right, trials, weight = block.right, block.trials, block.weight
    half = right * (0.5 * weight @ a**2)[:, None] - trials * (weight @ (a[:, None] * slope))
    total = right.T @ half
    total = total + total.T - mean.T @ mean
    away = usual - trials
    # A step too far gives no numbers, and is taken back by the search.
    sizes = [(weight > _FAINT).sum(1).max(), (away != 0).sum(1).max()]
    depth, width = torch.stack(sizes).tolist()
    if width == 0:
        return total
    depth = max(1, depth)
    for part in torch.arange(len(away), device=away.device).split(
        max(1, _BLOCK // (width * depth))
    ):
        _, models = (away[part] != 0).to(torch.uint8).topk(width, sorted=False)
        share, points = weight[part].topk(depth, sorted=False)
        rows = slope[points[:, :, None], models[:, None]]
        rows *= away[part].gather(1, models)[:, None] * torch.sqrt(share)[:, :, None]
        total.index_put_((models[:, :, None], models[:, None]), rows.mT @ rows, accumulate=True)
    return total
