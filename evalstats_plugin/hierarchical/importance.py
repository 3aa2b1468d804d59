"""Ordinary importance sampling of all latents at once: what massively parallel is compared with.

Its K draws are K points of the whole space, where massively parallel has Kⁿ combinations.
"""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import math

import torch
from torch import Tensor

from evalstats_plugin.hierarchical.bound import Bound
from evalstats_plugin.hierarchical.factors import log_factors
from evalstats_plugin.hierarchical.particles import Particles, proposed, sum_of
from evalstats_plugin.hierarchical.proposals import Proposals


def global_log_weights(
    bound: Bound, proposals: Proposals, draws: int, generator: torch.Generator
) -> Tensor:
    """Log P(data, z) − log Q(z) of joint draws z, shape (draws,), differentiable in proposals."""
    s = bound.structure
    # All groups share the axis of the first: a particle is one draw of everything.
    first = next(iter(s.groups))
    axis = s.particle_axis[first]
    values: dict[str, Tensor] = {}
    log_q: dict[str, Tensor] = {}
    for group in s.groups.values():
        for latent in group.latents:
            shape = bound.shape(group.plate, first, draws) + bound.vector(latent.shape)
            family = proposed(bound, proposals, latent, values)
            values[latent.name] = family.sample(shape, generator)
        log_q[group.name] = sum_of(
            lambda x: bound.log_density(
                proposed(bound, proposals, x, values), values[x.name], f"proposal of {x.name}"
            ),
            group.latents,
        )
    particles = Particles(values, log_q, 1)
    total = torch.zeros(draws, dtype=torch.float64, device=bound.device)
    for plate in s.chains:
        window = {p: (0, s.sizes[p]) for p in s.chains[plate]}
        for factor in log_factors(bound, particles, plate, window).values():
            by_draw = factor.movedim(axis, -1).flatten(0, -2).sum(0)
            total = total + by_draw
    return total


def log_mean(log_weights: Tensor) -> Tensor:
    """Log of the mean, which estimates log P(data); of many draws, the bound of IWAE [BGS16]_."""
    return torch.logsumexp(log_weights, 0) - math.log(len(log_weights))
