"""K particles of every latent of every member of a plate, and the density they come from.

Where a proposal depends on parents, each particle is drawn given one particle of each parent,
chosen at random; its density is the mixture over all the parent's particles, Q_MP [HLA23]_. The
density given the one particle alone would leave P_MP unbiased too, but more spread out.
"""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from evalstats_plugin.errors import DesignError
from evalstats_plugin.hierarchical.bound import Bound
from evalstats_plugin.hierarchical.distributions import Family
from evalstats_plugin.hierarchical.plated_model import Latent
from evalstats_plugin.hierarchical.proposals import Proposals
from evalstats_plugin.hierarchical.structure import Group

Assignment = Literal["permutation", "categorical"]
"""How particles get parents: each parent once, or any parent independently."""


class Particles(NamedTuple):
    """K particles of each group."""

    values: dict[str, Tensor]
    """By latent, with axes of plates, of particles and of vectors."""
    log_q: dict[str, Tensor]
    """Log density of the proposals by group, vectors summed up."""
    k: int


def draw_particles(
    bound: Bound,
    proposals: Proposals,
    k: int,
    generator: torch.Generator,
    assignment: Assignment = "permutation",
) -> Particles:
    """Draw K particles of each latent, parents first."""
    values: dict[str, Tensor] = {}
    log_q: dict[str, Tensor] = {}
    for group in bound.structure.groups.values():
        of_parents = _assigned(bound, group, values, k, (generator, assignment))
        for latent in group.latents:
            given = {**of_parents, **{x.name: values[x.name] for x in group.latents
                                      if x.name in values}}  # fmt: skip
            family = proposed(bound, proposals, latent, given)
            shape = bound.shape(group.plate, group.name, k) + bound.vector(latent.shape)
            values[latent.name] = family.sample(shape, generator)
        log_q[group.name] = mixture_log_density(bound, proposals, group, values)
    return Particles(values, log_q, k)


def proposed(
    bound: Bound, proposals: Proposals, latent: Latent, given: dict[str, Tensor]
) -> Family:
    """Proposal of a latent, given particles where it depends on them."""
    if latent.name in proposals.families:
        return proposals.families[latent.name]
    family = bound.call(
        latent.proposal, {**given, **proposals.parameters[latent.name]}, latent.name
    )
    if not isinstance(family, Family):
        msg = (
            f"the proposal of {latent.name!r} gives a {type(family).__name__}, expected Normal, "
            "Gamma, Beta or Dirichlet of evalstats_plugin.hierarchical.distributions"
        )
        raise DesignError(msg)
    return family


def mixture_log_density(
    bound: Bound, proposals: Proposals, group: Group, values: dict[str, Tensor]
) -> Tensor:
    """Log density of the particles of a group, averaged over the particles of its parents."""
    total = sum_of(
        lambda x: bound.log_density(
            proposed(bound, proposals, x, values), values[x.name], f"proposal of {x.name}"
        ),
        group.latents,
    )
    axes = [bound.structure.particle_axis[p] for p in group.proposed_from]
    if not axes:
        return total
    count = math.prod(total.shape[a] for a in axes)
    return torch.logsumexp(total, axes, keepdim=True) - math.log(count)


def sum_of(term: Callable[[Latent], Tensor], latents: tuple[Latent, ...]) -> Tensor:
    """Sum over the latents of a group."""
    total = term(latents[0])
    for latent in latents[1:]:
        total = total + term(latent)
    return total


def _assigned(
    bound: Bound,
    group: Group,
    values: dict[str, Tensor],
    k: int,
    how: tuple[torch.Generator, Assignment],
) -> dict[str, Tensor]:
    """Particles of parents in other groups, on the axis of the particles that they are for."""
    axis_of = bound.structure.particle_axis
    to = axis_of[group.name]
    out: dict[str, Tensor] = {}
    for parent in group.proposed_from:
        order = _order(bound, group, k, how)
        for latent in bound.structure.groups[parent].latents:
            value = values[latent.name].transpose(axis_of[parent], to)
            members = torch.broadcast_shapes(value.shape[: order.ndim], order.shape)
            index = order.reshape(order.shape + (1,) * bound.events)
            vector = value.shape[order.ndim :]
            out[latent.name] = torch.gather(
                value.expand(*members, *vector), to, index.expand(*members, *vector)
            )
    return out


def _order(bound: Bound, group: Group, k: int, how: tuple[torch.Generator, Assignment]) -> Tensor:
    """Index of the parent's particle for each of K particles of each member."""
    generator, assignment = how
    shape = bound.shape(group.plate, group.name, k)
    axis = bound.structure.particle_axis[group.name]
    if assignment == "categorical":
        return torch.randint(k, shape, generator=generator, device=bound.device)
    noise = torch.rand(shape, generator=generator, device=bound.device)
    return noise.argsort(axis)
