"""Marginal maximum likelihood with items integrated out: the estimator for few models.

Abilities are parameters, items are drawn from a normal population whose hyper-parameters are
estimated with them, as in random-item models [DeB08]_. Joint estimates of items and models stretch
abilities by about N / (N - 1), and so do marginal ones that integrate models out: both estimate
items from N answers each. Here nothing is estimated from few answers.

Newton's method takes its value, gradient and information from `items_likelihood`.
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
from evalstats_plugin.irt.items_likelihood import State, blocks, evaluate

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
# Those below which the covariance of the scores of abilities stays.
_KNOWN_NEAR, _KNOWN_STILL = 5e-3, 0.01
# No parameter changes by more at once, and none by more than this share of Newton's step at first.
_LONGEST, _FIRST = 1.0, 0.5
# A step may lower the log-likelihood by so little, or by so little an item: the points move with
# it, and so do their errors.
_FALL, _FALL_OF_ITEM = 1e-3, 1e-6
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
    state, grid, iterations, converged = _search(counts, kind, max_iter)
    return _summary(counts, state, grid, extreme, (iterations, converged))


def _tempered(counts: Counts) -> tuple[Counts, Tensor]:
    """Take half an item from models all right, and give half a one to those all wrong."""
    right, total = counts.right.sum(1), counts.trials.sum(1)
    extreme = (right == total).to(right) - (right == 0).to(right)
    mended = counts.right - (extreme * 0.5 / total)[:, None] * counts.trials
    # Laid out item by item, as they are used.
    return Counts(mended.T.contiguous().T, counts.trials.T.contiguous().T), extreme


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


def _search(counts: Counts, kind: Kind, max_iter: int) -> tuple[State, Points, int, bool]:
    """Newton steps, halved on the same points where the likelihood falls.

    Points are coarse at first. They misjudge a narrow population by so much an item, so that they
    come closer as soon as a step on them is refused, or the likelihood is not concave.
    """
    ability, population = _start(counts, kind)
    n, most = len(ability), counts.trials.amax(1)
    fall = max(_FALL, _FALL_OF_ITEM * counts.right.shape[1])
    apart, refused, length, iteration = 1.0 if n <= _FEW else _COARSE, False, _FIRST, 0
    grid = points(population, ability, most, coarseness=apart)
    state = evaluate(counts, ability, population, grid)
    for iteration in range(1, max_iter + 1):
        step, gain, concave = _direction(state)
        if apart == _FINE and concave and gain < _TOLERANCE:
            return state, grid, iteration, True
        size, change = torch.stack([step.abs().max(), step[n:].abs().max()]).tolist()
        closer = _closer(apart, gain, change, concave=concave, refused=refused)
        if closer != apart:
            # Elsewhere the likelihood is not the same, and need not rise.
            apart, refused, length = closer, False, 1.0
            grid = points(state.population, state.ability, most, coarseness=apart)
            state = evaluate(counts, state.ability, state.population, grid)
            continue
        length = min(length, _LONGEST / max(size, _TOLERANCE))
        moved = _moved(state, step * length)
        there, near = grid, gain < _KNOWN_NEAR and change < _KNOWN_STILL
        if apart > _FINE and not refused:
            there = points(moved[1], moved[0], most, coarseness=apart)
        known = state.missing[:n, :n] if near and apart == _FINE else None
        fresh = evaluate(counts, *moved, there, known=known)
        rises = (fresh.objective >= state.objective - fall) & fresh.gradient.isfinite().all()
        refused, length = (False, 1.0) if bool(rises) else (True, length / 2)
        if not refused:
            state, grid = fresh, there
    return state, grid, iteration, False


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


def _summary(
    counts: Counts, state: State, grid: Points, extreme: Tensor, search: tuple[int, bool]
) -> ItemsIntegratedFit:
    covariance = _ability_covariance(state)
    reference = (extreme == 0).to(state.ability)
    reference = reference if bool(reference.any()) else torch.ones_like(reference)
    centre = torch.eye(len(reference)).to(reference) - reference / reference.sum()
    shift = (reference * state.ability).sum() / reference.sum()
    mean, spread, probability = _posterior(counts, state, grid)
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
        log_likelihood=float(state.log_likelihood),
        iterations=search[0],
        converged=search[1],
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


def _posterior(counts: Counts, state: State, grid: Points) -> tuple[Tensor, Tensor, Tensor]:
    """Mean (M, 3) and covariance (M, 3, 3) of a, d and b; P(right) of every cell (N, M)."""
    value = torch.stack([grid.discrimination, grid.intercept, grid.difficulty], dim=1)
    if state.population.kind == "2pl-signed":
        value[:, 2] = 0
    square = (value[:, :, None] * value[:, None]).flatten(1)
    chance = torch.sigmoid(grid.discrimination[:, None] * state.ability + grid.intercept[:, None])
    mean, spread = value.new_empty(counts.right.shape[1], 3), value.new_empty(3, 3)
    spread = spread.expand(len(mean), 3, 3).clone()
    probability = torch.empty_like(counts.right)
    for block in blocks(counts, state.ability, state.population, grid):
        at, items = block.points, block.items
        mean[items] = block.weight @ value[at]
        spread[items] = (block.weight @ square[at]).unflatten(1, (3, 3))
        probability[:, items] = (block.weight @ chance[at]).T
    return mean, spread - mean[:, :, None] * mean[:, None], probability
