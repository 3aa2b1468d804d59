"""Particles: K draws of every latent of every member of a plate, and their proposal density.

`Proposals` holds one distribution per latent and member; `draw_particles` draws from it. Where a
proposal depends on parents, each particle is drawn given one randomly assigned particle of each
parent; its density is the mixture over all particles of the parents, Q_MP [HLA23]_. The density
given the assigned particle alone would leave P_MP unbiased too, but with a larger variance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from evalstats_plugin.errors import DesignError
from evalstats_plugin.hierarchical.engines.plates.distributions import Family
from evalstats_plugin.hierarchical.engines.plates.model import Bound, Group, Latent

_PRIOR_DRAWS, _PRIOR_NUMBERS = 2000, 4_000_000
"""Draws from the prior that default proposals are matched to, and most numbers in them."""


class Particles(NamedTuple):
    """K particles of each group."""

    values: dict[str, Tensor]
    """By latent, with axes of plates, of particles and of vectors."""
    log_q: dict[str, Tensor]
    """Log density of the proposals by group, summed over vectors."""
    k: int


def draw_particles(
    bound: Bound,
    proposals: Proposals,
    k: int,
    generator: torch.Generator,
) -> Particles:
    """Draw K particles of each latent, parents first."""
    values: dict[str, Tensor] = {}
    log_q: dict[str, Tensor] = {}
    for group in bound.structure.groups.values():
        of_parents = _assigned(bound, group, values, k, generator)
        for latent in group.latents:
            given = {**of_parents, **{x.name: values[x.name] for x in group.latents
                                      if x.name in values}}  # fmt: skip
            family = proposed(bound, proposals, latent, given)
            shape = bound.shape(group.plate, group.name, k) + bound.vector(latent.shape)
            values[latent.name] = family.sample(shape, generator)
        log_q[group.name] = mixture_log_density(bound, proposals, group, values)
    return Particles(values, log_q, k)


def _assigned(
    bound: Bound,
    group: Group,
    values: dict[str, Tensor],
    k: int,
    generator: torch.Generator,
) -> dict[str, Tensor]:
    """Assign particles of parents in other groups, on the axis of the group's own particles.

    Every parent is assigned once: a permutation for each member.
    """
    axis_of = bound.structure.particle_axis
    to = axis_of[group.name]
    out: dict[str, Tensor] = {}
    for parent in group.proposed_from:
        shape = bound.shape(group.plate, group.name, k)
        order = torch.rand(shape, generator=generator, device=bound.device).argsort(to)
        for latent in bound.structure.groups[parent].latents:
            value = values[latent.name].transpose(axis_of[parent], to)
            members = np.broadcast_shapes(value.shape[: order.ndim], order.shape)
            index = order.reshape(order.shape + (1,) * bound.events)
            vector = value.shape[order.ndim :]
            out[latent.name] = torch.gather(
                value.expand(*members, *vector), to, index.expand(*members, *vector)
            )
    return out


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


def proposed(
    bound: Bound, proposals: Proposals, latent: Latent, given: dict[str, Tensor]
) -> Family:
    """Return the proposal of a latent, given particles where it depends on them."""
    if latent.name in proposals.families:
        return proposals.families[latent.name]
    family = bound.call(
        latent.proposal, {**given, **proposals.parameters[latent.name]}, latent.name
    )
    if not isinstance(family, Family):
        msg = (
            f"the proposal of {latent.name!r} gives a {type(family).__name__}: give a Normal, "
            "Gamma, Beta or Dirichlet of evalstats_plugin.hierarchical.engines.plates.distributions"
        )
        raise DesignError(msg)
    return family


def sum_of(term: Callable[[Latent], Tensor], latents: tuple[Latent, ...]) -> Tensor:
    """Sum over the latents of a group."""
    total = term(latents[0])
    for latent in latents[1:]:
        total = total + term(latent)
    return total


@dataclass(frozen=True)
class Proposals:
    """Independent proposals, and the parameters of those that are functions."""

    families: dict[str, Family]
    """By latent; parameters have one axis per plate, particle (1) and vector."""
    parameters: dict[str, dict[str, Tensor]]
    """By latent whose proposal is a function, then by name."""

    def moved(self, means: Mapping[str, Sequence[Tensor]]) -> Proposals:
        """Return proposals with these mean parameters."""
        fresh = {x: type(self.families[x]).from_means(m) for x, m in means.items()}
        return Proposals({**self.families, **fresh}, self.parameters)


def first_proposals(bound: Bound, generator: torch.Generator) -> Proposals:
    """Return the first proposals: those of the model, or matched to the prior.

    Raises
    ------
    DesignError
        A latent has neither a proposal nor a prior of this package.
    """
    families: dict[str, Family] = {}
    parameters: dict[str, dict[str, Tensor]] = {}
    prior: dict[str, Tensor] = {}
    for latent in bound.structure.latents.values():
        shape = _shape(bound, latent)
        if latent.proposal is None:
            families[latent.name] = _matched_to_prior(bound, latent, prior, generator)
        elif isinstance(latent.proposal, Family):
            families[latent.name] = _expanded(latent.proposal, shape, bound)
        else:
            parameters[latent.name] = {
                name: torch.full(shape, float(x), dtype=torch.float64, device=bound.device)
                for name, x in latent.parameters.items()
            }
    return Proposals(families, parameters)


def _shape(bound: Bound, latent: Latent) -> list[int]:
    return bound.shape(latent.plate) + bound.vector(latent.shape)


def _expanded(family: Family, shape: list[int], bound: Bound) -> Family:
    """Return a family with parameters for every member, on the device."""
    parts = [x.expand(shape).contiguous() for x in family.to(bound.device).parameters()]
    return type(family)(*parts)


def _matched_to_prior(
    bound: Bound, latent: Latent, prior: dict[str, Tensor], generator: torch.Generator
) -> Family:
    """Return a proposal that matches draws from the prior, of the same family."""
    shape = _shape(bound, latent)
    family = _draw_prior(bound, latent, prior, generator)
    means = [m.mean(0).expand(shape).contiguous() for m in family.statistics(prior[latent.name])]
    return type(family).from_means(means)


def _draw_prior(
    bound: Bound, latent: Latent, prior: dict[str, Tensor], generator: torch.Generator
) -> Family:
    """Draw a latent from its prior after its parents, with draws on a new first axis."""
    latents = bound.structure.latents
    for parent in bound.structure.parents_of(latent):
        if parent not in prior:
            _draw_prior(bound, latents[parent], prior, generator)
    family: Any = bound.call(latent.prior, prior, latent.name)
    if not isinstance(family, Family):
        msg = (
            f"the prior of {latent.name!r} is a {type(family).__name__}, from which no proposal "
            "is made: give proposal= (Normal, Gamma, Beta or Dirichlet) to it and to the latents "
            "that depend on it"
        )
        raise DesignError(msg)
    most = max(math.prod(_shape(bound, x)) for x in latents.values())
    draws = max(100, min(_PRIOR_DRAWS, _PRIOR_NUMBERS // most))
    prior[latent.name] = family.sample([draws, *_shape(bound, latent)], generator)
    return family
