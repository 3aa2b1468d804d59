"""Where particles come from: a distribution per latent, each member of a plate having its own."""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from evalstats_plugin.errors import DesignError
from evalstats_plugin.hierarchical.bound import Bound
from evalstats_plugin.hierarchical.distributions import Family
from evalstats_plugin.hierarchical.plated_model import Latent

# Draws from the prior that proposals without a start are matched to: fewer of large latents.
_PRIOR_DRAWS, _PRIOR_NUMBERS = 2000, 4_000_000


@dataclass(frozen=True)
class Proposals:
    """Families of independent proposals, and the parameters of those that are functions."""

    families: dict[str, Family]
    """By latent; parameters have one axis per plate, particle (1) and vector."""
    parameters: dict[str, dict[str, Tensor]]
    """By latent whose proposal is a function, then by name."""

    def moved(self, means: Mapping[str, Sequence[Tensor]]) -> Proposals:
        """With other families, given their mean parameters."""
        fresh = {x: type(self.families[x]).from_means(m) for x, m in means.items()}
        return Proposals({**self.families, **fresh}, self.parameters)


def first_proposals(bound: Bound, generator: torch.Generator) -> Proposals:
    """Start where the model says, or as the prior is spread.

    Raises
    ------
    DesignError
        A latent has neither a proposal nor a prior of this package to start from.
    """
    families: dict[str, Family] = {}
    parameters: dict[str, dict[str, Tensor]] = {}
    prior: dict[str, Tensor] = {}
    for latent in bound.structure.latents.values():
        shape = _shape(bound, latent)
        if latent.proposal is None:
            families[latent.name] = _as_the_prior(bound, latent, prior, generator)
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
    """With parameters of every member, on the device."""
    parts = [x.expand(shape).contiguous() for x in family.to(bound.device).parameters()]
    return type(family)(*parts)


def _as_the_prior(
    bound: Bound, latent: Latent, prior: dict[str, Tensor], generator: torch.Generator
) -> Family:
    """Match the family of the prior to draws from it."""
    shape = _shape(bound, latent)
    family = _drawn(bound, latent, prior, generator)
    means = [m.mean(0).expand(shape).contiguous() for m in family.statistics(prior[latent.name])]
    return type(family).from_means(means)


def _drawn(
    bound: Bound, latent: Latent, prior: dict[str, Tensor], generator: torch.Generator
) -> Family:
    """Draw a latent, and first those that it depends on: draws are one more axis, in front."""
    latents = bound.structure.latents
    for parent in bound.structure.parents_of(latent):
        if parent not in prior:
            _drawn(bound, latents[parent], prior, generator)
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
