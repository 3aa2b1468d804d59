"""Marginal maximum likelihood with items integrated out: the estimator for few models.

Abilities are parameters, items are drawn from a normal population whose hyper-parameters are
estimated with them, as in random-item models [DeB08]_. Joint estimates of items and models stretch
abilities by about N / (N - 1), and so do marginal ones that integrate models out: both estimate
items from N answers each. Here nothing is estimated from few answers.

`items_search` finds the maximum.
"""
# PART items_likelihood - Likelihood of abilities and a population of items: value, gradient, observed information.
# PART items_search - The search for abilities and a population of items: Newton's method.

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from evalstats_plugin.irt.estimators.item_population import (
    SEGMENT_RISE,
    Kind,
    Points,
    Population,
    points,
)
from evalstats_plugin.irt.model.data import Counts

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


# Models up to which there are so few points that they need not be further apart at first.
_FEW = 10


# Rise of the log-likelihood that the next step promises, at which the search ends.
_TOLERANCE = 1e-9


# How much further apart points are at first, and at last; the rise below which they come closer.
_COARSE, _FINE, _CLOSE = 1.6, 0.85, 1.0


# Rise below which, and change of every hyper-parameter below which, points come closest and stay:
# as points move, so do their errors, and the search goes to and fro. The rise alone tells too
# little: where spreads hardly matter it is small far from the maximum, and a population that
# narrows between points that stay seems ever more likely.
_NEAR, _STILL = 0.05, 0.15


# Cells from which on a search begins in single precision, with so many steps at most; the rise
# promised above which the covariance of the scores of abilities is only roughly found; and the
# change of any number in a last step, of which hundredths are left: nothing is looked at again.
_LARGE, _ROUGH_STEPS, _ROUGHLY, _LAST = 2**15, 8, 20.0, 5e-4


# Change of any ability or hyper-parameter for which that covariance stays: it is a few hundredths
# of the information, and a few hundredths of it change.
_KNOWN_FOR = 0.03


# Those below which the covariance of the scores of abilities stays.
_KNOWN_NEAR, _KNOWN_STILL = 5e-3, 0.01


# No parameter changes by more at once, and none by more than this share of Newton's step at first.
_LONGEST, _FIRST = 1.0, 0.5


# A step may lower the log-likelihood by so little, or by so little an item: the points move with
# it, and so do their errors.
_FALL, _FALL_OF_ITEM = 1e-3, 1e-6


# The same of a search on coarse points in single precision.
_FALL_NEAR = 0.1


# Least curvature taken, as a share of that of complete data.
_FLATTEST = 1e-6


class ItemsIntegratedFit(NamedTuple):
    """Abilities of N models, which sum to 0 over those neither all right nor all wrong."""

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
    """Posterior mean of P(right), shape (N, M): better than at the posterior mean of an item."""
    hyperparameters: dict[str, float]
    log_likelihood: float
    """Marginal; of the answers in their order."""
    iterations: int
    converged: bool
    extreme: Tensor
    """Shape (N,): 1 for models all right, -1 for those all wrong. They have no finite maximum, and
    were fitted as if half an item had gone the other way."""


def items_integrated(
    counts: Counts, kind: Kind = "2pl", *, max_iter: int = 200
) -> ItemsIntegratedFit:
    """Fit abilities and the population of items; see the module.

    Parameters
    ----------
    counts
        N ≥ 2 models × M items; cells may be missing, and have several trials.
    kind
        ``"rasch"``, ``"2pl"`` with discriminations > 0, log-normal, or ``"2pl-signed"`` with normal
        ones of either sign.
    max_iter
        Steps after which the last estimate is returned as not converged.
    """
    counts, extreme = _tempered(counts)
    found = search(counts, kind, max_iter)
    return _summary(counts, extreme, found)


def _tempered(counts: Counts) -> tuple[Counts, Tensor]:
    """Take half an item from models all right, and give half a one to those all wrong."""
    right, total = counts.right.sum(1), counts.trials.sum(1)
    extreme = (right == total).to(right) - (right == 0).to(right)
    mended = counts.right - (extreme * 0.5 / total)[:, None] * counts.trials
    # Laid out item by item, as they are used.
    return Counts(mended.T.contiguous().T, counts.trials.T.contiguous().T), extreme


def _summary(counts: Counts, extreme: Tensor, found: Found) -> ItemsIntegratedFit:
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
        hyperparameters=_named(state.population, float(shift)),
        log_likelihood=float(log_likelihood),
        iterations=found.iterations,
        converged=found.converged,
        extreme=extreme,
    )


def _named(population: Population, shift: float) -> dict[str, float]:
    """Hyper-parameters by name, on the scale of the abilities that are returned."""
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


def _ability_covariance(state: State) -> Tensor:
    """Inverse information of abilities that sum to 0, m_2 fixed and the others profiled."""
    n = len(state.ability)
    information = state.complete - state.missing
    if state.population.kind != "rasch":
        rows = torch.cat([information[: n + 2], information[n + 3 :]])
        information = torch.cat([rows[:, : n + 2], rows[:, n + 3 :]], dim=1)
    total = information.new_zeros(len(information), 1)
    total[:n] = 1
    basis = torch.linalg.qr(total, mode="complete")[0][:, 1:]
    inverse = torch.linalg.inv(basis.T @ information @ basis)
    covariance = (basis @ ((inverse + inverse.T) / 2) @ basis.T)[:n, :n]
    return (covariance + covariance.T) / 2


def _posterior(counts: Counts, state: State, grid: Points) -> tuple[Tensor, ...]:
    """Mean (M, 3) and covariance (M, 3, 3) of a, d and b; P(right) of every cell (N, M).

    And the log-likelihood.
    """
    value = torch.stack([grid.discrimination, grid.intercept, grid.difficulty], dim=1)
    if state.population.kind == "2pl-signed":
        value[:, 2] = 0
    square = (value[:, :, None] * value[:, None]).flatten(1)
    chance = torch.sigmoid(grid.discrimination[:, None] * state.ability + grid.intercept[:, None])
    mean, spread = value.new_empty(counts.right.shape[1], 3), value.new_empty(3, 3)
    spread = spread.expand(len(mean), 3, 3).clone()
    probability = torch.empty_like(counts.right)
    log_likelihood = mean.new_zeros(())
    for block in blocks(counts, state.ability, state.population, grid):
        at, items = block.points, block.items
        mean[items] = block.weight @ value[at]
        spread[items] = (block.weight @ square[at]).unflatten(1, (3, 3))
        probability[:, items] = (block.weight @ chance[at]).T
        log_likelihood += block.log_likelihood.sum()
    return mean, spread - mean[:, :, None] * mean[:, None], probability, log_likelihood


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


class Found(NamedTuple):
    """Where a search ended."""

    state: State
    grid: Points
    iterations: int
    converged: bool


def search(counts: Counts, kind: Kind, max_iter: int) -> Found:
    """Find the maximum, after `max_iter` steps at most."""
    start = _start(counts, kind)
    if counts.right.numel() < _LARGE or len(counts.right) <= _FEW:
        return _climb(counts, start, max_iter)
    return _climb_large(counts, start, max_iter)


def _start(counts: Counts, kind: Kind) -> tuple[Tensor, Population]:
    ability = torch.logit((counts.right.sum(1) + 0.5) / (counts.trials.sum(1) + 1))
    item = torch.logit((counts.right.sum(0) + 0.5) / (counts.trials.sum(0) + 1))
    spread = item.std(correction=0).clamp(0.3, 3.0)
    ability = (ability - ability.mean()) * torch.sqrt(1 + spread**2 / 2.9)
    middle = item.mean() * torch.sqrt(1 + spread**2 / 2.9)
    location = middle if kind == "2pl-signed" else -middle
    values = [location, torch.log(spread)]
    if kind != "rasch":
        values += [location.new_tensor(x) for x in (kind == "2pl-signed", 0.0, -1.2)]
    return ability, Population(kind, torch.stack(values).to(ability))


def _climb(
    counts: Counts,
    start: tuple[Tensor, Population],
    max_iter: int,
    known: Tensor | None = None,
) -> Found:
    """Newton steps, halved on the same points where the likelihood falls.

    Points are coarse at first. They misjudge a narrow population by so much an item, so that they
    come closer as soon as a step on them is refused, or the likelihood is not concave. Where what
    the items' errors cost is `known`, the maximum is near, and points are close at once.
    """
    ability, population = start
    n, most = len(ability), counts.trials.amax(1)
    fall = max(_FALL, _FALL_OF_ITEM * counts.right.shape[1])
    apart, refused, length, iteration = 1.0 if n <= _FEW else _COARSE, False, _FIRST, 0
    near = known is not None
    if known is not None:
        apart, length, known = _FINE, 1.0, known[:n, :n]
    grid = points(population, ability, most, coarseness=apart)
    state = evaluate(counts, ability, population, grid, known=known)
    for iteration in range(1, max_iter + 1):
        step, gain, concave = _direction(state)
        size, change = torch.stack([step.abs().max(), step[n:].abs().max()]).tolist()
        last = near and size < _LAST
        if apart == _FINE and concave and (last or gain < _TOLERANCE):
            if last:
                ability, population = _moved(state, step)
                state = state._replace(ability=ability, population=population)
            return Found(state, grid, iteration, converged=True)
        closer = _closer(apart, gain, change, concave=concave, refused=refused)
        if closer != apart:
            # Elsewhere the likelihood is not the same, and need not rise.
            apart, refused, length = closer, False, 1.0
            grid = points(state.population, state.ability, most, coarseness=apart)
            state = evaluate(counts, state.ability, state.population, grid)
            continue
        length = min(length, _LONGEST / max(size, _TOLERANCE))
        moved = _moved(state, step * length)
        there, stays = grid, gain < _KNOWN_NEAR and change < _KNOWN_STILL
        if apart > _FINE and not refused:
            there = points(moved[1], moved[0], most, coarseness=apart)
        known = state.missing[:n, :n] if stays and apart == _FINE else None
        fresh = evaluate(counts, *moved, there, known=known)
        rises = (fresh.objective >= state.objective - fall) & fresh.gradient.isfinite().all()
        refused, length = (False, 1.0) if bool(rises) else (True, length / 2)
        if not refused:
            state, grid = fresh, there
    return Found(state, grid, iteration, converged=False)


def _climb_large(counts: Counts, start: tuple[Tensor, Population], max_iter: int) -> Found:
    """Come near on coarse points in single precision, then as in any search.

    Coarse points tell well enough what the items' errors cost the abilities: that of a normal
    posterior is off by a share of some 1e-3.
    """
    single, n = torch.float32, len(start[0])
    right, trials = (x.T.to(single).contiguous().T for x in (counts.right, counts.trials))
    rough = Counts(right, trials)
    near = _near(rough, start[0].to(single), start[1].to(single))
    if not bool(near.seen.missing.isfinite().all()):
        return _climb(counts, start, max_iter)
    ability, population = near.moved
    begin = ability.to(start[0]), population.to(start[0].dtype)
    found = _climb(counts, begin, max_iter - near.steps, known=near.seen.missing.to(start[0]))
    state = found.state
    at = state.ability.to(single), state.population.to(single)
    apart = torch.cat([at[0] - near.seen.ability, at[1].values - near.seen.population.values])
    if near.roughly or float(apart.abs().max()) > _KNOWN_FOR:
        grid = points(at[1], at[0], rough.trials.amax(1), coarseness=_COARSE)
        state.missing[:n, :n] = evaluate(rough, *at, grid).missing[:n, :n].to(state.missing)
    return found._replace(iterations=near.steps + found.iterations)


class _Near(NamedTuple):
    """Where a search on coarse points ended."""

    seen: State
    moved: tuple[Tensor, Population]
    """One step further."""
    roughly: bool
    """Whether the covariance of the scores of abilities is only roughly known there."""
    steps: int


def _near(counts: Counts, ability: Tensor, population: Population) -> _Near:
    """Newton steps on coarse points while they rise, until one promises little more."""
    most, length, roughly, steps = counts.trials.amax(1), _FIRST, True, 0
    grid = points(population, ability, most, coarseness=_COARSE)
    state = evaluate(counts, ability, population, grid, roughly=True)
    while True:
        step, gain, concave = _direction(state)
        size = float(step.abs().max())
        moved = _moved(state, step * min(length, _LONGEST / max(size, _TOLERANCE)))
        done = gain < _CLOSE and not roughly
        if done or not concave or steps >= _ROUGH_STEPS:
            here = state.ability, state.population
            return _Near(state, moved if concave else here, roughly, steps)
        length, near, steps = 1.0, gain <= _ROUGHLY, steps + 1
        grid = points(moved[1], moved[0], most, coarseness=_COARSE)
        fresh = evaluate(counts, *moved, grid, roughly=not near)
        if not bool(fresh.objective >= state.objective - _FALL_NEAR):
            return _Near(state, (state.ability, state.population), roughly, steps)
        state, roughly = fresh, not near


def _closer(apart: float, gain: float, change: float, *, concave: bool, refused: bool) -> float:
    """How far apart points are from now on."""
    if apart == _COARSE:
        return 1.0 if refused or not concave or gain < _CLOSE else apart
    if apart == _FINE:
        # Points that stay are of use near by only.
        return apart if concave and change < 2 * _STILL else 1.0
    return _FINE if concave and gain < _NEAR and change < _STILL else apart


def _direction(state: State) -> tuple[Tensor, float, bool]:
    """Step, the rise it promises, and whether the likelihood is concave.

    Where it is not, every curvature is taken for downward, which goes uphill and away from saddles.
    """
    basis = _basis(state)
    slope = basis.T @ state.gradient
    information = basis.T @ (state.complete - state.missing) @ basis
    factor, failed = torch.linalg.cholesky_ex(information)
    step = torch.cholesky_solve(slope[:, None], factor)[:, 0]
    gain, bad = torch.stack([slope @ step, failed.to(slope)]).tolist()
    if not bad:
        return basis @ step, gain, True
    scale = torch.linalg.cholesky(basis.T * state.complete.diagonal().clamp_min(1e-300) @ basis)
    half = torch.linalg.solve_triangular(scale, information, upper=False)
    whole = torch.linalg.solve_triangular(scale, half.T, upper=False)
    curvature, turn = torch.linalg.eigh((whole + whole.T) / 2)
    slope = torch.linalg.solve_triangular(scale, slope[:, None], upper=False)
    along = (turn.T @ slope) / curvature.abs().clamp_min(_FLATTEST)[:, None]
    step = torch.linalg.solve_triangular(scale.T, turn @ along, upper=True)[:, 0]
    return basis @ step, float((turn.T @ slope * along).sum()), False


def _basis(state: State) -> Tensor:
    """Directions that keep the sum of the abilities, and m_2, which is their scale."""
    n, size = len(state.ability), len(state.gradient)
    kept = state.gradient.new_zeros(size, 1 if state.population.kind == "rasch" else 2)
    kept[:n, 0] = 1
    if kept.shape[1] == 2:
        kept[n + 2, 1] = 1
    return torch.linalg.qr(kept, mode="complete")[0][:, kept.shape[1] :]


def _moved(state: State, step: Tensor) -> tuple[Tensor, Population]:
    n, population = len(state.ability), state.population
    return state.ability + step[:n], Population(population.kind, population.values + step[n:])
