"""Factors of a model of nested plates: log P − log Q − log K of each group, log P of the data."""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from evalstats_plugin.errors import DesignError
from evalstats_plugin.hierarchical.bound import Bound, Window
from evalstats_plugin.hierarchical.particles import Particles, sum_of
from evalstats_plugin.hierarchical.structure import Group


def log_factors(
    bound: Bound, particles: Particles, plate: str | None, window: Window
) -> dict[str, Tensor]:
    """Factors of a plate's own groups and observations, by name.

    Parameters
    ----------
    window
        Members to look at, of the plate and of those around it.

    Raises
    ------
    DesignError
        A log density is NaN or +∞.
    """
    near = {name: bound.narrowed(v, window) for name, v in particles.values.items()}
    inputs = {name: bound.narrowed(v, window) for name, v in bound.arrays.items()}
    there = replace(bound, arrays=inputs)
    found: dict[str, Tensor] = {}
    for group in bound.structure.groups_of(plate):
        log_q = bound.narrowed(particles.log_q[group.name], window)
        found[group.name] = _of_group(there, group, near) - log_q - math.log(particles.k)
    for observed in bound.structure.observed_in(plate):
        density = there.call(observed.density, near, observed.name)
        found[observed.name] = there.log_density(density, inputs[observed.name], observed.name)
    shape = [-1] * bound.structure.ndim
    for p in bound.structure.chains[plate]:
        shape[bound.structure.plate_axis[p]] = window[p][1]
    fine = [(factor < torch.inf).all() for factor in found.values()]
    if fine and not bool(torch.stack(fine).all()):
        for name, factor in found.items():
            _check(name, factor)
    return {name: factor.expand(shape) for name, factor in found.items()}


def _of_group(bound: Bound, group: Group, values: dict[str, Tensor]) -> Tensor:
    return sum_of(
        lambda x: bound.log_density(bound.call(x.prior, values, x.name), values[x.name], x.name),
        group.latents,
    )


def _check(name: str, factor: Tensor) -> None:
    if bool((factor < torch.inf).all()):
        return
    nan = int(torch.isnan(factor).sum())
    msg = (
        f"log density of {name!r} is NaN for {nan} and +∞ for {int((factor == torch.inf).sum())} "
        f"of {factor.numel()} particles: look at its scale, and whether its proposal stays where "
        "it has a density"
    )
    raise DesignError(msg)
