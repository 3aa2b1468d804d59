"""Effects of a two-way table whose cells are known up to normal noise: drawn all together.

α_mt = x_mt'c + λ_m - τ_t + e_mt with e_mt ~ N(0, 1/w_mt). Models are eliminated first, which leaves
a system of as many unknowns as there are coefficients and tasks. Standard deviations of λ and τ
move with all effects integrated out, so that they are not held where the effects are.
"""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from evalstats_plugin.hierarchical.crossed_likelihood import normal
from evalstats_plugin.sampling.cholesky import cholesky


class Table(NamedTuple):
    """What cells say of coefficients (G) and tasks, in that order, and of models; K chains."""

    own: Tensor
    """Weights of each model, (K, N)."""
    cross: Tensor
    """Between models and the others, (K, N, G + T)."""
    rest: Tensor
    """Between the others, (K, G + T, G + T)."""
    pull: Tensor
    """Of models, (K, N)."""
    pull_rest: Tensor
    """Of the others, (K, G + T)."""


class Prior(NamedTuple):
    """Of the effects; K chains."""

    models: Tensor | None
    """Precision of λ, (K, 1); None where there is no λ."""
    rest: Tensor
    """Precisions of coefficients and tasks, (K, G + T)."""
    rest_mean: Tensor
    """Their means, (K, G + T)."""


class Solved(NamedTuple):
    """The posterior of effects, models eliminated, and how likely the table is."""

    factor: Tensor
    """Cholesky factor of the precision of coefficients and tasks."""
    white: Tensor
    """Its solution of the right-hand side."""
    log_marginal: Tensor
    """Of the table, effects integrated out, up to what does not depend on the prior; (K,)."""


def tabulate(cells: Tensor, weights: Tensor, design: Tensor) -> Table:
    """Sum up cells (K, N, T) with weights (K, N, T) and design (N, T, G)."""
    weighted = weights * cells
    by_task = -torch.einsum("knt,ntg->kgt", weights, design)
    corner = torch.einsum("knt,ntg,nth->kgh", weights, design, design)
    tasks = torch.diag_embed(weights.sum(1))
    rest = torch.cat(
        [torch.cat([corner, by_task], dim=2), torch.cat([by_task.mT, tasks], dim=2)], dim=1
    )
    cross = torch.cat([torch.einsum("knt,ntg->kng", weights, design), -weights], dim=2)
    pull_rest = torch.cat([torch.einsum("knt,ntg->kg", weighted, design), -weighted.sum(1)], dim=1)
    return Table(weights.sum(2), cross, rest, weighted.sum(2), pull_rest)


def solve(table: Table, prior: Prior) -> Solved:
    """Factor the posterior precision of coefficients and tasks."""
    system = table.rest + torch.diag_embed(prior.rest)
    right = table.pull_rest + prior.rest * prior.rest_mean
    log_marginal = prior.rest.log().sum(1) - (prior.rest * prior.rest_mean.square()).sum(1)
    if prior.models is not None:
        held = table.own + prior.models
        share = table.cross / held[..., None]
        system = system - table.cross.mT @ share
        right = right - (share.mT @ table.pull[..., None])[..., 0]
        log_marginal = log_marginal + (prior.models.log() - held.log()).sum(1)
        log_marginal = log_marginal + (table.pull.square() / held).sum(1)
    factor = cholesky(system)
    white = torch.linalg.solve_triangular(factor, right[..., None], upper=False)[..., 0]
    determinant = factor.diagonal(dim1=1, dim2=2).log().sum(1)
    log_marginal = (log_marginal + white.square().sum(1)) / 2 - determinant
    return Solved(factor, white, log_marginal)


def draw(
    table: Table, prior: Prior, solved: Solved, generator: torch.Generator
) -> tuple[Tensor, Tensor | None]:
    """Draw coefficients and tasks (K, G + T), and models (K, N) where there are any."""
    white = solved.white + normal(solved.white, generator)
    rest = torch.linalg.solve_triangular(solved.factor.mT, white[..., None], upper=True)
    if prior.models is None:
        return rest[..., 0], None
    held = table.own + prior.models
    centre = (table.pull - (table.cross @ rest)[..., 0]) / held
    return rest[..., 0], centre + normal(centre, generator) / held.sqrt()
