"""Marginal maximum likelihood with items integrated out: the estimator for few models.

Abilities are parameters, items are drawn from a normal population whose hyper-parameters are
estimated with them, as in random-item models [DeB08]_. Joint estimates of items and models stretch
abilities by about N / (N - 1), and so do marginal ones that integrate models out: both estimate
items from N answers each. Here nothing is estimated from few answers.

`items_search` finds the maximum.
"""

# Torch's stubs leave many functions untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from evalstats_plugin.irt.data import Counts
from evalstats_plugin.irt.item_population import Kind, Points, Population
from evalstats_plugin.irt.items_likelihood import State, blocks
from evalstats_plugin.irt.items_search import Found, search


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
