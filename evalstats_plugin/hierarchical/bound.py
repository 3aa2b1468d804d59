"""A model with its data: arrays laid out on the axes of plates, particles and vectors."""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from evalstats_plugin.errors import DesignError
from evalstats_plugin.hierarchical.distributions import Density, Family
from evalstats_plugin.hierarchical.plated_model import Model
from evalstats_plugin.hierarchical.structure import Structure, arguments

Window = Mapping[str, tuple[int, int]]
"""Of plates that are looked at in part: first member and number of members."""
Data = Mapping[str, ArrayLike]


@dataclass(frozen=True)
class Bound:
    """A model, its data and inputs as arrays on one device."""

    structure: Structure
    arrays: dict[str, Tensor]
    """Data and inputs by name."""
    events: int
    """Axes of vectors, at the end of every array."""
    device: torch.device
    moved: dict[str, tuple[Family, Family]] = field(
        default_factory=dict[str, tuple[Family, Family]]
    )
    """Distributions without parents as the model has them, and on the device."""

    def shape(self, plate: str | None, group: str | None = None, k: int = 1) -> list[int]:
        """Of one number per member of a plate (and particle), vectors left out."""
        s = self.structure
        shape = [1] * s.ndim
        for p in s.chains[plate]:
            shape[s.plate_axis[p]] = s.sizes[p]
        if group is not None:
            shape[s.particle_axis[group]] = k
        return shape

    def vector(self, shape: tuple[int, ...]) -> list[int]:
        """Shape of a vector on the last axes."""
        return [1] * (self.events - len(shape)) + list(shape)

    def event_axes(self) -> list[int]:
        """Axes of vectors, from the end."""
        return list(range(-self.events, 0))

    def call(self, function: Any, values: Mapping[str, Tensor], name: str) -> Any:
        """Call a function of the model with what it asks for by name."""
        if isinstance(function, Family):
            known = self.moved.get(name)
            if known is None or known[0] is not function:
                known = self.moved[name] = function, function.to(self.device)
            return known[1]
        if isinstance(function, Density):
            return function
        taken = {x: values[x] if x in values else self.arrays[x] for x in arguments(function)}
        try:
            return function(**taken)
        except (ValueError, RuntimeError, IndexError) as error:
            shapes = ", ".join(f"{x} {tuple(v.shape)}" for x, v in taken.items())
            msg = f"the distribution of {name!r} cannot be made from {shapes or 'nothing'}: {error}"
            raise DesignError(msg) from error

    def log_density(self, density: Any, value: Tensor, name: str) -> Tensor:
        """Log density of each member and particle: vectors are summed up."""
        try:
            found = density if isinstance(density, Tensor) else density.log_prob(value)
        except (ValueError, RuntimeError) as error:
            msg = f"log density of {name!r}: {error}"
            raise DesignError(msg) from error
        inside = 0 if isinstance(density, Tensor) else len(getattr(density, "event_shape", ()))
        expected = self.structure.ndim + self.events
        if found.ndim + inside != expected:
            msg = (
                f"log density of {name!r} has {found.ndim} axes, expected {expected - inside}: one "
                "per plate, group of particles and axis of vectors; a sum over a vector must keep "
                "its axis (keepdim=True)"
            )
            raise DesignError(msg)
        left = list(range(self.structure.ndim, found.ndim))
        return found.sum(left) if left else found

    def narrowed(self, array: Tensor, window: Window) -> Tensor:
        """View of the members of plates in a window."""
        for plate, (start, length) in window.items():
            axis = self.structure.plate_axis[plate]
            if array.shape[axis] > 1:
                array = array.narrow(axis, start, length)
        return array


def bind(model: Model, data: Data, device: torch.device) -> Bound:
    """Lay data out for a model.

    Parameters
    ----------
    data
        Observations and inputs by name: one axis per plate, outermost first, then those of
        vectors.

    Raises
    ------
    DesignError
        Arrays are missing, unknown, not finite, or do not fit the plates.
    """
    s = model.structure
    plates = {name: o.plate for name, o in s.observed.items()} | s.inputs
    missing, unknown = sorted(plates.keys() - data.keys()), sorted(data.keys() - plates.keys())
    if missing or unknown:
        what = (
            f"misses {', '.join(map(repr, missing))}"
            if missing
            else (f"has {', '.join(map(repr, unknown))}, which the model does not declare")
        )
        msg = f"the data {what}; declared are {', '.join(map(repr, plates))}"
        raise DesignError(msg)
    arrays = {
        name: torch.as_tensor(data[name], dtype=torch.float64, device=device) for name in plates
    }
    depths = {name: len(s.chains[plate]) for name, plate in plates.items()}
    for name, array in arrays.items():
        _check(name, array, s, plates[name])
    events = [a.ndim - depths[name] for name, a in arrays.items()]
    events += [len(latent.shape) for latent in s.latents.values()]
    empty = Bound(s, {}, max(events), device)
    laid = {
        name: a.reshape(empty.shape(plates[name]) + empty.vector(tuple(a.shape[depths[name] :])))
        for name, a in arrays.items()
    }
    return Bound(s, laid, max(events), device)


def _check(name: str, array: Tensor, s: Structure, plate: str | None) -> None:
    chain = s.chains[plate]
    expected = tuple(s.sizes[p] for p in chain)
    if tuple(array.shape[: len(chain)]) != expected:
        sizes = " × ".join(f"{p} {s.sizes[p]}" for p in chain)
        msg = f"{name!r} has shape {tuple(array.shape)}, expected {expected} to begin with: {sizes}"
        raise DesignError(msg)
    wrong = int((~torch.isfinite(array)).sum())
    if wrong:
        msg = (
            f"{name!r} has {wrong} values that are not finite, of {array.numel()}: give a missing "
            "value no weight in the density (0 trials, or an input that is 0 there)"
        )
        raise DesignError(msg)
