"""The search for abilities and a population of items: Newton's method.

It takes its value, gradient and information from `items_likelihood`.
"""

# Torch's stubs leave many functions untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from evalstats_plugin.irt.data import Counts
from evalstats_plugin.irt.item_population import Kind, Points, Population, points
from evalstats_plugin.irt.items_likelihood import State, evaluate

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
