"""Models on nested plates: declaration, structure, and binding to data.

A plate is a set of exchangeable units: tasks, or questions within a task. Latents of a plate have
priors that name their parents, on the same plate or on plates around it, never on another plate:
models × tasks, where every score depends on a model and on a task, is crossed, not nested.

* `Model` of `Plate`, `Latent` and `Observed`: what is declared
* `Structure`: the model with groups in order and axes of arrays
* `bind`, `Bound`: data laid out on the axes of plates, particles and vectors
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from evalstats_plugin.hierarchical.engines.plates.distributions import Density, Family

Conditional = Callable[..., Density]

Window = Mapping[str, tuple[int, int]]
"""By plate of which only a block is used: first member and number of members."""

Data = Mapping[str, ArrayLike]
"""Observations and inputs by name."""


@dataclass(frozen=True)
class Plate:
    """A set of exchangeable units, possibly within another plate."""

    name: str
    size: int
    within: str | None = None


@dataclass(frozen=True)
class Latent:
    """An unknown of each member of a plate.

    Parameters
    ----------
    name
        The argument by which other functions receive it.
    prior
        A distribution, or a function that returns one from parents and inputs, by name.
    plate
        Innermost plate of the latent; None for one latent of the whole model.
    shape
        Shape of a vector of unknowns that share their particles.
    group
        Latents of one group share their particles: useful for dependent parameters, such as a mean
        and a standard deviation.
    proposal
        The first proposal (default: matched to the prior).
    """

    name: str
    prior: Density | Conditional
    plate: str | None = None
    shape: tuple[int, ...] = ()
    group: str | None = None
    proposal: Family | None = None

    @property
    def set_of_particles(self) -> str:
        """Name of its group, by default its own."""
        return self.group or self.name


@dataclass(frozen=True)
class Observed:
    """Data of each member of a plate.

    Parameters
    ----------
    name
        Name of the data.
    density
        A function from latents and inputs, by name, to the distribution of the data; or from these
        and the data, by its own name, to their log density.
    plate
        Innermost plate of the data.
    """

    name: str
    density: Callable[..., Density | Tensor]
    plate: str | None = None


@dataclass(frozen=True, kw_only=True)
class Model:
    """Latents and observations on nested plates.

    Functions receive arrays that broadcast: one axis per plate, one per group of particles, and
    last the axes of vectors, as many as the longest `shape`; absent axes have size 1. A sum over a
    vector must keep its axis, as in ``(z * x).sum(-1, keepdim=True)``.

    Parameters
    ----------
    plates
        Outer plates before inner ones.
    inputs
        Plate of each given array that is not observed (covariates, numbers of questions), or
        None for one of the whole model.
    """

    latents: Sequence[Latent]
    observed: Sequence[Observed]
    plates: Sequence[Plate] = ()
    inputs: Mapping[str, str | None] = field(default_factory=dict[str, "str | None"])
    structure: Structure = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "structure", _structure(self))


@dataclass(frozen=True)
class Group:
    """Latents of one plate that share their particles."""

    name: str
    plate: str | None
    latents: tuple[Latent, ...]
    """Parents first."""
    parents: tuple[str, ...]
    """Other groups that their priors depend on."""


@dataclass(frozen=True)
class Structure:
    """A model with the axes of its arrays."""

    groups: dict[str, Group]
    """Parents first."""
    observed: dict[str, Observed]
    inputs: dict[str, str | None]
    sizes: dict[str, int]
    chains: dict[str | None, tuple[str, ...]]
    """By plate: the plates around it and itself, outermost first; none for None."""
    plate_axis: dict[str, int]
    particle_axis: dict[str, int]
    """Axis of the particles of each group, after those of the plates."""

    @property
    def ndim(self) -> int:
        """Number of axes of plates and particles."""
        return len(self.plate_axis) + len(self.particle_axis)

    @property
    def latents(self) -> dict[str, Latent]:
        """Every latent, parents first."""
        return {x.name: x for group in self.groups.values() for x in group.latents}

    def parents_of(self, latent: Latent) -> tuple[str, ...]:
        """Latents that the prior of a latent depends on."""
        return tuple(x for x in arguments(latent.prior) if x in self.latents)

    def within(self, plate: str | None) -> tuple[str, ...]:
        """Plates directly inside."""
        depth = len(self.chains[plate])
        inside = {p: c for p, c in self.chains.items() if len(c) == depth + 1}
        return tuple(p for p, c in inside.items() if p and c[:depth] == self.chains[plate])

    def groups_of(self, plate: str | None) -> tuple[Group, ...]:
        """Groups directly in a plate."""
        return tuple(g for g in self.groups.values() if g.plate == plate)

    def observed_in(self, plate: str | None) -> tuple[Observed, ...]:
        """Observations directly in a plate."""
        return tuple(o for o in self.observed.values() if o.plate == plate)

    def groups_seen(self, name: str) -> tuple[str, ...]:
        """Groups whose particles the factor of a group, or of an observation, depends on."""
        if name in self.groups:
            return (name, *self.groups[name].parents)
        taken = arguments(self.observed[name].density)
        latents = self.latents
        return tuple(dict.fromkeys(latents[x].set_of_particles for x in taken if x in latents))


def _structure(model: Model) -> Structure:
    """Order the groups of a model so that parents come first."""
    chains: dict[str | None, tuple[str, ...]] = {None: ()}
    for plate in model.plates:
        chains[plate.name] = (*chains[plate.within], plate.name)
    latents = {x.name: x for x in model.latents}
    groups = _groups(latents)
    plates = [p for p in chains if p is not None]
    return Structure(
        groups,
        {o.name: o for o in model.observed},
        dict(model.inputs),
        {p.name: p.size for p in model.plates},
        chains,
        {p: i for i, p in enumerate(plates)},
        {g: len(plates) + i for i, g in enumerate(groups)},
    )


def _groups(latents: dict[str, Latent]) -> dict[str, Group]:
    members: dict[str, list[Latent]] = {}
    for latent in latents.values():
        members.setdefault(latent.set_of_particles, []).append(latent)
    built = {name: _group(name, group, latents) for name, group in members.items()}
    after = {name: set(g.parents) for name, g in built.items()}
    return {name: built[name] for name in _sorted(after)}


def _group(name: str, members: list[Latent], latents: dict[str, Latent]) -> Group:
    taken = {x.name: arguments(x.prior) for x in members}
    own = set(taken)
    order = _sorted({x: own & set(names) for x, names in taken.items()})
    by_name = {x.name: x for x in members}
    parents = dict.fromkeys(
        latents[p].set_of_particles
        for names in taken.values()
        for p in names
        if p in latents and p not in own
    )
    return Group(name, members[0].plate, tuple(by_name[x] for x in order), tuple(parents))


def _sorted(after: dict[str, set[str]]) -> list[str]:
    return list(TopologicalSorter({k: sorted(v) for k, v in after.items()}).static_order())


def arguments(function: Callable[..., Any] | Density) -> tuple[str, ...]:
    """Return the argument names of a function; none for a distribution."""
    if isinstance(function, Density):
        return ()
    return tuple(inspect.signature(function).parameters)


@dataclass(frozen=True)
class Bound:
    """A model, its data and inputs as arrays on one device."""

    structure: Structure
    arrays: dict[str, Tensor]
    """Data and inputs by name."""
    events: int
    """Number of axes of vectors, at the end of every array."""
    device: torch.device
    moved: dict[str, tuple[Family, Family]] = field(
        default_factory=dict[str, tuple[Family, Family]]
    )
    """By latent: a distribution without parents, and its copy on the device."""

    def shape(self, plate: str | None, group: str | None = None, k: int = 1) -> list[int]:
        """Shape of one number per member of a plate (and particle), without vectors."""
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

    def call(self, function: Any, values: Mapping[str, Tensor], name: str) -> Any:
        """Call a function of the model with its arguments by name."""
        if isinstance(function, Family):
            known = self.moved.get(name)
            if known is None or known[0] is not function:
                known = self.moved[name] = function, function.to(self.device)
            return known[1]
        if isinstance(function, Density):
            return function
        taken = {x: values[x] if x in values else self.arrays[x] for x in arguments(function)}
        return function(**taken)

    def log_density(self, density: Any, value: Tensor) -> Tensor:
        """Log density of each member and particle, summed over vectors."""
        found = density if isinstance(density, Tensor) else density.log_prob(value)
        left = list(range(self.structure.ndim, found.ndim))
        return found.sum(left) if left else found

    def narrowed(self, array: Tensor, window: Window) -> Tensor:
        """Return a view of the members of plates in a window."""
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
    """
    s = model.structure
    plates = {name: o.plate for name, o in s.observed.items()} | s.inputs
    arrays = {
        name: torch.as_tensor(data[name], dtype=torch.float64, device=device) for name in plates
    }
    depths = {name: len(s.chains[plate]) for name, plate in plates.items()}
    events = [a.ndim - depths[name] for name, a in arrays.items()]
    events += [len(latent.shape) for latent in s.latents.values()]
    empty = Bound(s, {}, max(events), device)
    laid = {
        name: a.reshape(empty.shape(plates[name]) + empty.vector(tuple(a.shape[depths[name] :])))
        for name, a in arrays.items()
    }
    return Bound(s, laid, max(events), device)
