"""Marginal maximum likelihood with items integrated out: the estimator for few models.

Abilities are parameters; items are drawn from a normal population whose hyper-parameters are
estimated with them, as in random-item models [DeB08]_. Joint estimates of items and models stretch
abilities by about N / (N - 1), and so do marginal ones that integrate models out: both estimate
items from N answers each. Here nothing is estimated from few answers.

* `items_integrated` fits; `fit_mml_items` records the fit as an `IRTFit`
* `evaluate`: marginal log-likelihood, gradient and observed information (Louis' identity [Lou82]_)
* `_search`: Newton's method, on coarse points and in single precision at first if data are large
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.errors import SelectionError
from evalstats_plugin.irt.estimators.fitted import (
    RaschOr2PL,
    as_array,
    not_converged,
    run_facts,
    suspects_note,
)
from evalstats_plugin.irt.estimators.item_population import (
    SEGMENT_RISE,
    Kind,
    Points,
    Population,
    points,
)
from evalstats_plugin.irt.estimators.optimise import complement, smoothed_logit
from evalstats_plugin.irt.model.algebra import block_diagonal, linalg, on_host, split
from evalstats_plugin.irt.model.data import Counts
from evalstats_plugin.irt.model.fit import IRTFit
from evalstats_plugin.irt.options import MmlItemsOptions

LEAST_SHARE = 0.1
"""Share of the variance of discriminations explained by the answers below which a note says so.

With 2 to 5 models and 100 or 500 simulated items it was 0 to .08, with 7 to 10 models .03 to .2,
with 20 or more .1 to .3; estimates correlated with the truth by about its root.
"""

WIDE, FEW_MODELS = 0.6, 10
"""Standard deviation of log discriminations that is implausible with up to so many models.

With a true value of .3 and up to 10 models, estimates were .17 to .46.
"""

# Integration. Items per block: at least _FEWEST, a _SHARE-th of all items, and enough for _WORTH
# numbers. Items of a block should have similar posteriors, yet be worth a matrix product.
_FEWEST, _SHARE, _WORTH = 32, 24, 2**17
# Points outside a block hold less than exp(-25) of the posterior of each of its items.
_FAR = 25.0 + SEGMENT_RISE
# Largest array of items × points × models in the covariance of the scores.
_BLOCK = 2**21
# Points with less weight in an item's posterior are left out of that covariance.
_FAINT = 1e-8
# Posterior standard deviation of an item parameter below which its line is not rescaled.
_NO_SPREAD = 1e-3

# Search. It ends when the next step is predicted to raise the log-likelihood by less than this.
_TOLERANCE = 1e-9
# Longest change of a parameter in a step, and share of the first Newton step that is taken.
_LONGEST, _FIRST = 1.0, 0.5
# Spacing of points at first and at last, relative to the usual one; up to _FEW models there are
# so few points that the search starts with the usual spacing.
_COARSE, _FINE, _FEW = 1.6, 0.85, 10
# Predicted rise below which coarse points get the usual spacing.
_CLOSE = 1.0
# Predicted rise and change of every hyper-parameter below which points get the finest spacing and
# stay where they are: moving points move their errors, and the search would oscillate. The rise
# alone is not enough: where spreads hardly matter it is small far from the maximum, and between
# fixed points a population that narrows seems ever more likely.
_NEAR, _STILL = 0.05, 0.15
# The same, below which the covariance of the scores of abilities is not computed anew.
_KNOWN_NEAR, _KNOWN_STILL = 5e-3, 0.01
# Decrease of the log-likelihood that a step may cause, in total or per item, because the errors of
# the points change with the points; and the same on coarse points in single precision.
_FALL, _FALL_OF_ITEM, _FALL_NEAR = 1e-3, 1e-6, 0.1
# Smallest curvature used, as a share of the curvature of complete data.
_FLATTEST = 1e-6
# Cells from which on the search starts in single precision, and its most steps there.
_LARGE, _ROUGH_STEPS = 2**15, 8
# Predicted rise above which that search approximates the covariance of the scores of abilities.
_ROUGHLY = 20.0
# Change of any ability or hyper-parameter up to which the covariance from that search is kept: it
# is a few hundredths of the information, and changes by a few hundredths of itself.
_KNOWN_FOR = 0.03
# Change of every number below which a step that follows that search is the last: a few hundredths
# of this remain, and nothing is evaluated again.
_LAST = 5e-4


def items_integrated(
    counts: Counts, kind: Kind = "2pl", *, max_steps: int = 200
) -> ItemsIntegratedFit:
    """Fit abilities and the population of items by marginal maximum likelihood.

    Parameters
    ----------
    counts
        N ≥ 2 models × M items; cells may be missing, and have several trials.
    kind
        ``"rasch"``, ``"2pl"`` with discriminations > 0, log-normal, or ``"2pl-signed"`` with normal
        ones of either sign.
    max_steps
        Steps after which the last estimate is returned as not converged.
    """
    counts, extreme = _correct_extremes(counts)
    return _summary(counts, extreme, _search(counts, kind, max_steps))


class ItemsIntegratedFit(NamedTuple):
    """Abilities of N models, which sum to 0 over models neither all right nor all wrong."""

    ability: Tensor
    """Shape (N,)."""
    covariance: Tensor
    """Shape (N, N), hyper-parameters profiled."""
    discrimination: Tensor
    """Posterior means of the items, shape (M,), like difficulty and intercept."""
    difficulty: Tensor
    intercept: Tensor
    difficulty_std_error: Tensor
    """Posterior standard deviation, shape (M,)."""
    item_covariance: Tensor
    """Posterior covariance of discrimination and intercept, shape (M, 2, 2)."""
    probability: Tensor
    """Posterior mean of P(right), shape (N, M): better than P(right) at an item's mean."""
    hyperparameters: dict[str, float]
    log_likelihood: float
    """Marginal, without binomial coefficients."""
    iterations: int
    converged: bool
    extreme: Tensor
    """Shape (N,): 1 for models all right, -1 for models all wrong. Their likelihood has no finite
    maximum, so they are fitted as if half an item had gone the other way."""


def _correct_extremes(counts: Counts) -> tuple[Counts, Tensor]:
    """Take half an item from models all right, and give half an item to models all wrong."""
    right, total = counts.right.sum(1), counts.trials.sum(1)
    extreme = (right == total).to(right) - (right == 0).to(right)
    mended = counts.right - (extreme * 0.5 / total)[:, None] * counts.trials
    # Column-major, because blocks of items are read.
    return Counts(mended.T.contiguous().T, counts.trials.T.contiguous().T), extreme


def _summary(counts: Counts, extreme: Tensor, found: _Maximum) -> ItemsIntegratedFit:
    state, grid = found.state, found.grid
    covariance = _ability_covariance(state)
    reference = (extreme == 0).to(state.ability)
    reference = reference if bool(reference.any()) else torch.ones_like(reference)
    centre = torch.eye(len(reference)).to(reference) - reference / reference.sum()
    shift = (reference * state.ability).sum() / reference.sum()
    mean, spread, probability, log_likelihood = _posterior(counts, state, grid)
    a, d, b = mean.unbind(1)
    b_error = torch.sqrt(spread[:, 2, 2].clamp_min(0))
    if state.population.kind == "2pl-signed":
        # The ratio -d / a has no moments where a may be 0.
        b = -d / a
        gradient = torch.stack([-b / a, -1 / a], dim=1)
        b_error = torch.einsum("mi,mij,mj->m", gradient, spread[:, :2, :2], gradient).sqrt()
    # Abilities move by the shift; so that a θ + d stays, so do b and d.
    turn = torch.eye(2).to(a).expand(len(a), 2, 2).clone()
    turn[:, 1, 0] = shift
    return ItemsIntegratedFit(
        ability=state.ability - shift,
        covariance=centre @ covariance @ centre.T,
        discrimination=a,
        difficulty=b - shift,
        intercept=d + a * shift,
        difficulty_std_error=b_error,
        item_covariance=turn @ spread[:, :2, :2] @ turn.mT,
        probability=probability,
        hyperparameters=_hyperparameters(state.population, float(shift)),
        log_likelihood=float(log_likelihood),
        iterations=found.iterations,
        converged=found.converged,
        extreme=extreme,
    )


def _hyperparameters(population: Population, shift: float) -> dict[str, float]:
    """Hyper-parameters by name, for abilities shifted down by `shift`."""
    first = "intercept" if population.kind == "2pl-signed" else "difficulty"
    values = [float(x) for x in population.values]
    location = values[0] + shift if first == "intercept" else values[0] - shift
    named = {f"{first}_mean": location, f"{first}_sd": float(torch.exp(population.values[1]))}
    if population.kind == "rasch":
        return named
    slope, log_s2 = population.values[3:]
    explained, own = float(slope * torch.exp(population.values[1])), float(torch.exp(log_s2))
    spread = (explained**2 + own**2) ** 0.5
    second = "discrimination" if population.kind == "2pl-signed" else "log_discrimination"
    return {**named, f"{second}_sd": spread, "correlation": explained / spread if spread else 0.0}


def population_of(fit: ItemsIntegratedFit, kind: Kind) -> Population:
    """Population of the items on the scale of the abilities, from `fit.hyperparameters`."""
    known = fit.hyperparameters
    first, second = (
        ("intercept", "discrimination")
        if kind == "2pl-signed"
        else ("difficulty", "log_discrimination")
    )
    sd = known[f"{first}_sd"]
    values = [known[f"{first}_mean"], math.log(sd)]
    if kind != "rasch":
        spread, correlation = known[f"{second}_sd"], known["correlation"]
        own = spread * math.sqrt(max(1 - correlation**2, 1e-12))
        values += [float(kind == "2pl-signed"), correlation * spread / sd]
        values += [math.log(max(own, 1e-12))]
    return Population(kind, fit.ability.new_tensor(values))


def _ability_covariance(state: Evaluation) -> Tensor:
    """Inverse information of abilities that sum to 0, with m_2 fixed and the others profiled."""
    n = len(state.ability)
    information = state.complete - state.missing
    if state.population.kind != "rasch":
        rows = torch.cat([information[: n + 2], information[n + 3 :]])
        information = torch.cat([rows[:, : n + 2], rows[:, n + 3 :]], dim=1)
    total = information.new_zeros(len(information), 1)
    total[:n] = 1
    basis = complement(total)
    inverse = linalg.inv(basis.T @ information @ basis)
    covariance = (basis @ ((inverse + inverse.T) / 2) @ basis.T)[:n, :n]
    return (covariance + covariance.T) / 2


def _posterior(counts: Counts, state: Evaluation, grid: Points) -> tuple[Tensor, ...]:
    """Means (M, 3) and covariances (M, 3, 3) of a, d and b; P(right) (N, M); log-likelihood."""
    value = torch.stack([grid.discrimination, grid.intercept, grid.difficulty], dim=1)
    if state.population.kind == "2pl-signed":
        value[:, 2] = 0
    square = (value[:, :, None] * value[:, None]).flatten(1)
    chance = torch.sigmoid(grid.discrimination[:, None] * state.ability + grid.intercept[:, None])
    mean, spread = value.new_empty(counts.right.shape[1], 3), value.new_empty(3, 3)
    spread = spread.expand(len(mean), 3, 3).clone()
    probability = torch.empty_like(counts.right)
    log_likelihood = mean.new_zeros(())
    for block in _blocks(counts, state.ability, state.population, grid):
        at, items = block.points, block.items
        mean[items] = block.weight @ value[at]
        spread[items] = (block.weight @ square[at]).unflatten(1, (3, 3))
        probability[:, items] = (block.weight @ chance[at]).T
        log_likelihood += block.log_likelihood.sum()
    return mean, spread - mean[:, :, None] * mean[:, None], probability, log_likelihood


def evaluate(
    counts: Counts,
    ability: Tensor,
    population: Population,
    grid: Points,
    *,
    known: Tensor | None = None,
    roughly: bool = False,
) -> Evaluation:
    """Log-likelihood, gradient and the two parts of the information, by Louis' identity.

    Parameters
    ----------
    known : shape (N, N)
        The missing information on the abilities, if it need not be computed.
    roughly
        Approximate it: take the scores of abilities as linear in an item's parameters.
    """
    n, a = len(ability), grid.discrimination
    chance = torch.sigmoid(torch.addmm(grid.intercept[:, None], a[:, None], ability[None]))
    slope, score = a[:, None] * chance, population.score(grid.x1, grid.x2)
    pooled, expected = torch.zeros_like(a), torch.zeros_like(chance)
    hits, size = torch.zeros_like(chance), n + score.shape[1]
    missing, log_likelihood = ability.new_zeros(size, size), ability.new_zeros(())
    usual = _common_trials(counts)
    for block in _blocks(counts, ability, population, grid):
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
            missing[:n, :n] += _linear_score_covariance(block, grid, lever)
        elif known is None:
            missing[:n, :n] += _score_covariance(block, a[at], lever, mean, usual)
    if known is not None:
        missing[:n, :n] = known
    elif not roughly:
        missing[:n, :n] += _common_square(slope, pooled, expected, usual)
    residual = a[:, None] * (hits - expected * chance)
    missing[:n, n:] += residual.T @ score
    missing[n:, :n] = missing[:n, n:].T
    missing[n:, n:] += score.T @ (pooled[:, None] * score)
    prior, prior_gradient, prior_information = population.log_prior()
    complete = block_diagonal(
        torch.diag(a**2 @ (expected * chance * (1 - chance))),
        population.information(pooled, grid.x1, grid.x2) + prior_information,
    )
    gradient = torch.cat([residual.sum(0), pooled @ score + prior_gradient])
    objective = log_likelihood + prior
    return Evaluation(ability, population, objective, log_likelihood, gradient, complete, missing)


class Evaluation(NamedTuple):
    """The likelihood at a point of the search: P parameters are N abilities and H others."""

    ability: Tensor
    population: Population
    objective: Tensor
    """Log-likelihood plus log prior of the hyper-parameters."""
    log_likelihood: Tensor
    gradient: Tensor
    """Of the objective, shape (P,)."""
    complete: Tensor
    """Information if items were known, shape (P, P)."""
    missing: Tensor
    """Information lost because they are not; the observed information is the difference."""


def _blocks(
    counts: Counts, ability: Tensor, population: Population, grid: Points
) -> Iterator[_Block]:
    """Posteriors of the items over the points, in blocks of items of similar difficulty.

    Along a line the posterior is log-concave: where it is low at both ends of a segment, it is low
    in between. Only segments near the maximum of some item of the block are summed.
    """
    logit = torch.addmm(grid.intercept[:, None], grid.discrimination[:, None], ability[None])
    level = torch.nn.functional.softplus(logit)
    log_weight = population.log_density(grid.x1, grid.x2) + grid.log_area
    ends = torch.nonzero(grid.end)[:, 0]
    before = torch.cumsum(grid.end, 0) - 1
    after = before + (~grid.end).long()
    # Single precision is enough to find the segments.
    at_ends = [
        x.to(torch.float32) for x in ((log_weight - grid.log_area)[ends], logit[ends], level[ends])
    ]
    total = counts.trials.sum(0)
    order = torch.argsort(counts.right.sum(0) / total, stable=True)
    for items in split(order, max(_FEWEST, len(order) // _SHARE, _WORTH // len(grid.x1))):
        right, trials = counts.right.T[items], counts.trials.T[items]
        score = _scores(right.to(torch.float32), trials.to(torch.float32), *at_ends)
        # NaN counts as near.
        near = ~(score < score.amax(1, keepdim=True) - _FAR).all(0)
        points = torch.nonzero(near[before] | near[after])[:, 0]
        score = _scores(right, trials, log_weight[points], logit[points], level[points])
        value = score.logsumexp(1)
        yield _Block(items, points, right, trials, score.sub_(value[:, None]).exp_(), value)


class _Block(NamedTuple):
    """Answers of m items (m, N), and their posteriors over P of the points (m, P)."""

    items: Tensor
    """Which, shape (m,)."""
    points: Tensor
    """Those that hold their posteriors, shape (P,)."""
    right: Tensor
    trials: Tensor
    weight: Tensor
    log_likelihood: Tensor


def _scores(
    right: Tensor, trials: Tensor, log_weight: Tensor, logit: Tensor, level: Tensor
) -> Tensor:
    """Log-likelihood of every item at every point plus the log weight, shape (m, P)."""
    return torch.addmm(log_weight, right, logit.T).addmm_(trials, level.T, alpha=-1)


def _common_trials(counts: Counts) -> Tensor:
    """Trials T of each model on most items, shape (N,); 0 where half of its cells have others.

    The score of ability i on item j is r_ij a - t_ij s_i, with s = a p. Where t is T, the sum over
    items of E[s_i s_k] is a sum over points, which all items share; only cells with other numbers
    of trials need work of their own.
    """
    most = counts.trials.amax(1)
    same = (counts.trials == most[:, None]).to(most).mean()
    return torch.where(same > 0.5, most, 0.0)


def _common_square(slope: Tensor, pooled: Tensor, expected: Tensor, usual: Tensor) -> Tensor:
    """Σ t_ij t_kj E[s_i s_k] without the terms of second order in T - t, shape (N, N)."""
    level = slope * usual
    half = (slope * expected - 0.5 * pooled[:, None] * level).T @ level
    return half + half.T


def _linear_score_covariance(block: _Block, grid: Points, slope: Tensor) -> Tensor:
    """Σ over items of the covariance of the linearised scores, (N, N)."""
    at = block.points
    here = [grid.x1[at], grid.x2[at]]
    total, done = slope.new_zeros(slope.shape[1], slope.shape[1]), list[Tensor]()
    for value in here:
        # Standardised under each item's posterior, shape (m, P), and uncorrelated with the first.
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


def _score_covariance(
    block: _Block, a: Tensor, slope: Tensor, mean: Tensor, usual: Tensor
) -> Tensor:
    """Σ over items of the covariance of the scores, less what `_common_square` adds, (N, N)."""
    right, trials, weight = block.right, block.trials, block.weight
    half = right * (0.5 * weight @ a**2)[:, None] - trials * (weight @ (a[:, None] * slope))
    total = right.T @ half
    total = total + total.T - mean.T @ mean
    away = usual - trials
    # A step too far gives NaN, and the search undoes it.
    sizes = [(weight > _FAINT).sum(1).max(), (away != 0).sum(1).max()]
    depth, width = (int(size) for size in on_host(sizes))
    if width == 0:
        return total
    depth = max(1, depth)
    places = torch.arange(len(away), device=away.device)
    for part in split(places, max(1, _BLOCK // (width * depth))):
        _, models = (away[part] != 0).to(torch.uint8).topk(width, sorted=False)
        share, points = weight[part].topk(depth, sorted=False)
        rows = slope[points[:, :, None], models[:, None]]
        rows *= away[part].gather(1, models)[:, None] * torch.sqrt(share)[:, :, None]
        total.index_put_((models[:, :, None], models[:, None]), rows.mT @ rows, accumulate=True)
    return total


def _search(counts: Counts, kind: Kind, max_steps: int) -> _Maximum:
    """Find the maximum, after `max_steps` steps at most."""
    start = _start(counts, kind)
    if counts.right.numel() < _LARGE or len(counts.right) <= _FEW:
        return _newton_search(counts, start, max_steps)
    return _two_stage_search(counts, start, max_steps)


class _Maximum(NamedTuple):
    """Result of a search, with the points of the integral."""

    state: Evaluation
    grid: Points
    iterations: int
    converged: bool


def _start(counts: Counts, kind: Kind) -> tuple[Tensor, Population]:
    ability = smoothed_logit(counts.right.sum(1), counts.trials.sum(1))
    item = smoothed_logit(counts.right.sum(0), counts.trials.sum(0))
    spread = item.std(correction=0).clamp(0.3, 3.0)
    ability = (ability - ability.mean()) * torch.sqrt(1 + spread**2 / 2.9)
    middle = item.mean() * torch.sqrt(1 + spread**2 / 2.9)
    location = middle if kind == "2pl-signed" else -middle
    values = [location, torch.log(spread)]
    if kind != "rasch":
        values += [location.new_tensor(x) for x in (kind == "2pl-signed", 0.0, -1.2)]
    return ability, Population(kind, torch.stack(values).to(ability))


def _newton_search(
    counts: Counts,
    start: tuple[Tensor, Population],
    max_steps: int,
    known: Tensor | None = None,
) -> _Maximum:
    """Newton steps, halved on the same points where the likelihood falls.

    Points are coarse at first. Coarse points misjudge a narrow population, with an error for each
    item, so the spacing shrinks as soon as a step is refused or the likelihood is not concave. With
    `known`, the missing information near the maximum, the spacing is the finest from the start.
    """
    ability, population = start
    n, most = len(ability), counts.trials.amax(1)
    fall = max(_FALL, _FALL_OF_ITEM * counts.right.shape[1])
    coarseness, refused, length, iteration = 1.0 if n <= _FEW else _COARSE, False, _FIRST, 0
    near = known is not None
    if known is not None:
        coarseness, length, known = _FINE, 1.0, known[:n, :n]
    grid = points(population, ability, most, coarseness=coarseness)
    state = evaluate(counts, ability, population, grid, known=known)
    for iteration in range(1, max_steps + 1):
        step, gain, concave = _newton_step(state)
        size, change = on_host([step.abs().max(), step[n:].abs().max()])
        last = near and size < _LAST
        if coarseness == _FINE and concave and (last or gain < _TOLERANCE):
            if last:
                ability, population = _moved(state, step)
                state = state._replace(ability=ability, population=population)
            return _Maximum(state, grid, iteration, converged=True)
        finer = _next_coarseness(coarseness, gain, change, concave=concave, refused=refused)
        if finer != coarseness:
            # On other points the likelihood differs: it need not rise.
            coarseness, refused, length = finer, False, 1.0
            grid = points(state.population, state.ability, most, coarseness=coarseness)
            state = evaluate(counts, state.ability, state.population, grid)
            continue
        length = min(length, _LONGEST / max(size, _TOLERANCE))
        moved = _moved(state, step * length)
        there, stays = grid, gain < _KNOWN_NEAR and change < _KNOWN_STILL
        if coarseness > _FINE and not refused:
            there = points(moved[1], moved[0], most, coarseness=coarseness)
        known = state.missing[:n, :n] if stays and coarseness == _FINE else None
        fresh = evaluate(counts, *moved, there, known=known)
        rises = (fresh.objective >= state.objective - fall) & fresh.gradient.isfinite().all()
        refused, length = (False, 1.0) if bool(rises) else (True, length / 2)
        if not refused:
            state, grid = fresh, there
    return _Maximum(state, grid, iteration, converged=False)


def _next_coarseness(
    now: float, gain: float, change: float, *, concave: bool, refused: bool
) -> float:
    """Coarseness of the points from the next step on."""
    if now == _COARSE:
        return 1.0 if refused or not concave or gain < _CLOSE else now
    if now == _FINE:
        # Fixed points are accurate only near the population that they were chosen for.
        return now if concave and change < 2 * _STILL else 1.0
    return _FINE if concave and gain < _NEAR and change < _STILL else now


def _two_stage_search(counts: Counts, start: tuple[Tensor, Population], max_steps: int) -> _Maximum:
    """Approach the maximum on coarse points in single precision, then search as usual.

    The missing information from coarse points is accurate enough: for a normal posterior its
    relative error is about 1e-3.
    """
    single, n = torch.float32, len(start[0])
    right, trials = (x.T.to(single).contiguous().T for x in (counts.right, counts.trials))
    rough = Counts(right, trials)
    near = _coarse_search(rough, start[0].to(single), start[1].to(single))
    if not bool(near.seen.missing.isfinite().all()):
        return _newton_search(counts, start, max_steps)
    ability, population = near.moved
    begin = ability.to(start[0]), population.to(start[0].dtype)
    found = _newton_search(
        counts, begin, max_steps - near.steps, known=near.seen.missing.to(start[0])
    )
    state = found.state
    at = state.ability.to(single), state.population.to(single)
    change = torch.cat([at[0] - near.seen.ability, at[1].values - near.seen.population.values])
    if near.roughly or float(change.abs().max()) > _KNOWN_FOR:
        grid = points(at[1], at[0], rough.trials.amax(1), coarseness=_COARSE)
        state.missing[:n, :n] = evaluate(rough, *at, grid).missing[:n, :n].to(state.missing)
    return found._replace(iterations=near.steps + found.iterations)


def _coarse_search(counts: Counts, ability: Tensor, population: Population) -> _CoarseSearch:
    """Newton steps on coarse points, until one fails to rise or the next promises little."""
    most, length, roughly, steps = counts.trials.amax(1), _FIRST, True, 0
    grid = points(population, ability, most, coarseness=_COARSE)
    state = evaluate(counts, ability, population, grid, roughly=True)
    while True:
        step, gain, concave = _newton_step(state)
        size = float(step.abs().max())
        moved = _moved(state, step * min(length, _LONGEST / max(size, _TOLERANCE)))
        done = gain < _CLOSE and not roughly
        if done or not concave or steps >= _ROUGH_STEPS:
            here = state.ability, state.population
            return _CoarseSearch(state, moved if concave else here, roughly, steps)
        length, near, steps = 1.0, gain <= _ROUGHLY, steps + 1
        grid = points(moved[1], moved[0], most, coarseness=_COARSE)
        fresh = evaluate(counts, *moved, grid, roughly=not near)
        if not bool(fresh.objective >= state.objective - _FALL_NEAR):
            return _CoarseSearch(state, (state.ability, state.population), roughly, steps)
        state, roughly = fresh, not near


class _CoarseSearch(NamedTuple):
    """Result of a search on coarse points."""

    seen: Evaluation
    moved: tuple[Tensor, Population]
    """One step further."""
    roughly: bool
    """Whether the covariance of the scores of abilities is an approximation."""
    steps: int


def _newton_step(state: Evaluation) -> tuple[Tensor, float, bool]:
    """Newton step, the rise it predicts, and whether the likelihood is concave.

    Where it is not, absolute curvatures are used, so that the step goes uphill and leaves saddles.
    """
    basis = _identified_directions(state)
    slope = basis.T @ state.gradient
    information = basis.T @ (state.complete - state.missing) @ basis
    factor, failed = linalg.cholesky_ex(information)
    step = torch.cholesky_solve(slope[:, None], factor)[:, 0]
    gain, bad = on_host([slope @ step, failed.to(slope)])
    if not bad:
        return basis @ step, gain, True
    scale = linalg.cholesky(basis.T * state.complete.diagonal().clamp_min(1e-300) @ basis)
    half = linalg.solve_triangular(scale, information, upper=False)
    whole = linalg.solve_triangular(scale, half.T, upper=False)
    curvature, turn = linalg.eigh((whole + whole.T) / 2)
    slope = linalg.solve_triangular(scale, slope[:, None], upper=False)
    along = (turn.T @ slope) / curvature.abs().clamp_min(_FLATTEST)[:, None]
    step = linalg.solve_triangular(scale.T, turn @ along, upper=True)[:, 0]
    return basis @ step, float((turn.T @ slope * along).sum()), False


def _identified_directions(state: Evaluation) -> Tensor:
    """Directions that keep the sum of the abilities and m_2, which fixes their scale."""
    n, size = len(state.ability), len(state.gradient)
    kept = state.gradient.new_zeros(size, 1 if state.population.kind == "rasch" else 2)
    kept[:n, 0] = 1
    if kept.shape[1] == 2:
        kept[n + 2, 1] = 1
    return complement(kept)


def _moved(state: Evaluation, step: Tensor) -> tuple[Tensor, Population]:
    n, population = len(state.ability), state.population
    return state.ability + step[:n], Population(population.kind, population.values + step[n:])


def fit_mml_items(
    matrix: ResponseMatrix, counts: Counts, item_model: RaschOr2PL, options: MmlItemsOptions
) -> IRTFit:
    """Marginal maximum likelihood with items integrated out, as an `IRTFit`.

    Raises
    ------
    SelectionError
        Signed discriminations of a Rasch model.
    """
    began = time.perf_counter()
    if options.signed and item_model == "rasch":
        msg = "signed discriminations are of a 2pl, in a rasch model all are 1: leave signed out"
        raise SelectionError(msg)
    kind = "2pl-signed" if options.signed else item_model
    found = items_integrated(counts, kind, max_steps=options.max_steps)
    m = len(found.discrimination)
    one = found.item_covariance.diagonal(dim1=1, dim2=2).clamp_min(0).sqrt()
    notes = [*counts.notes]
    if not found.converged:
        notes.append(not_converged(found.iterations))
    if bool((found.extreme != 0).any()):
        notes.append("models all right or all wrong: abilities as if half an item were otherwise")
    fit = IRTFit(
        item_model=item_model,
        estimator="mml-items",
        models=matrix.models,
        item_ids=matrix.item_ids,
        tasks=matrix.tasks,
        ability=as_array(found.ability),
        ability_covariance=as_array(found.covariance),
        discrimination=as_array(found.discrimination),
        difficulty=as_array(found.difficulty),
        guessing=np.zeros(m),
        discrimination_std_error=as_array(one[:, 0]),
        difficulty_std_error=as_array(found.difficulty_std_error),
        guessing_std_error=np.full(m, np.nan),
        item_covariance=as_array(found.item_covariance),
        identification="abilities sum to 0",
        hyperparameters=dict(found.hyperparameters),
        diagnostics={
            "iterations": found.iterations,
            "converged": found.converged,
            "log_likelihood": found.log_likelihood,
            **run_facts(counts, began),
        },
    )
    return replace(fit, notes=(*notes, *suspects_note(fit), *discriminations_note(fit)))


def discriminations_note(fit: IRTFit) -> list[str]:
    """Note on a 2PL whose discriminations so few models can hardly estimate."""
    if fit.item_model != "2pl":
        return []
    n, known = len(fit.models), fit.hyperparameters
    spread = float(known.get("log_discrimination_sd", known.get("discrimination_sd", 0.0)))
    if n <= FEW_MODELS and spread > WIDE:
        return [
            f"discriminations spread widely (sd {spread:.2f}), on the word of {n} models, which "
            "can hardly tell steep items from easy or hard ones: compare with item model rasch"
        ]
    own = float(np.mean(np.square(fit.discrimination_std_error)))
    told = float(np.var(fit.discrimination))
    share = told / (told + own) if told + own > 0 else 0.0
    if share >= LEAST_SHARE:
        return []
    return [
        f"{n} models tell hardly anything of discriminations ({share:.0%} of their variance): each "
        "is near what all items have in common, and item model rasch says as much"
    ]
