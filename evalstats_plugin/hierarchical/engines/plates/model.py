"""Models on nested plates: declaration, checked structure, and binding to data.

A plate is a set of exchangeable units: tasks, or questions within a task. Latents of a plate have
priors that name their parents, on the same plate or on plates around it, never on another plate:
models × tasks, where every score depends on a model and on a task, is crossed, not nested.

* `Model` of `Plate`, `Latent` and `Observed`: what is declared
* `Structure`: the checked model, with groups in order and axes of arrays
* `bind`, `Bound`: data laid out on the axes of plates, particles and vectors
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from graphlib import CycleError, TopologicalSorter
from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from evalstats_plugin.errors import DesignError
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
        The first proposal (default: matched to the prior), or a function from parents, inputs and
        `parameters` to a distribution, which only variational inference adapts.
    parameters
        Starting values of the parameters of a proposal that is a function; each member of the
        plate has its own.
    """

    name: str
    prior: Density | Conditional
    plate: str | None = None
    shape: tuple[int, ...] = ()
    group: str | None = None
    proposal: Family | Callable[..., Family] | None = None
    parameters: Mapping[str, float] = field(default_factory=dict[str, float])

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

    Raises
    ------
    DesignError
        Duplicate names, unknown plates or parents, cycles, or dependences that are not nested.
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
    proposed_from: tuple[str, ...]
    """Other groups that their proposals depend on."""


@dataclass(frozen=True)
class Structure:
    """A checked model, with the axes of its arrays."""

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
    """Check a model, and order its groups so that parents come first."""
    chains = _chains(model)
    _check_names(model)
    latents = {x.name: x for x in model.latents}
    declared = [(x.name, x.plate) for x in (*model.latents, *model.observed)]
    for name, plate in (*declared, *model.inputs.items()):
        if plate not in chains:
            msg = f"{name!r} is of plate {plate!r}, which is not declared{_close(plate, chains)}"
            raise DesignError(msg)
    for latent in model.latents:
        _check_parents(model, latent, arguments(latent.prior), chains)
        taken = arguments(latent.proposal)
        kept = tuple(x for x in taken if x not in latent.parameters)
        _check_parents(model, latent, kept, chains)
    for observed in model.observed:
        taken = tuple(x for x in arguments(observed.density) if x != observed.name)
        _check_parents(model, observed, taken, chains)
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


def _chains(model: Model) -> dict[str | None, tuple[str, ...]]:
    chains: dict[str | None, tuple[str, ...]] = {None: ()}
    for plate in model.plates:
        if plate.within not in chains:
            msg = (
                f"plate {plate.name!r} is within {plate.within!r}, which is not declared before it"
                f"{_close(plate.within, chains)}"
            )
            raise DesignError(msg)
        if plate.name in chains:
            msg = f"plate {plate.name!r} is declared twice"
            raise DesignError(msg)
        if plate.size < 1:
            msg = f"plate {plate.name!r} has {plate.size} members: give it one or more"
            raise DesignError(msg)
        chains[plate.name] = (*chains[plate.within], plate.name)
    return chains


def _check_names(model: Model) -> None:
    names = [*(x.name for x in model.latents), *(x.name for x in model.observed), *model.inputs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        msg = f"{twice[0]!r} is declared twice: latents, observations and inputs need own names"
        raise DesignError(msg)
    if not model.latents or not model.observed:
        msg = (
            f"a model with {len(model.latents)} latents and {len(model.observed)} observations "
            "cannot be inferred: declare at least one of each"
        )
        raise DesignError(msg)


def _check_parents(
    model: Model,
    child: Latent | Observed,
    names: Iterable[str],
    chains: dict[str | None, tuple[str, ...]],
) -> None:
    plates = {x.name: x.plate for x in model.latents} | dict(model.inputs)
    for name in names:
        if name not in plates:
            known = (
                "is observed, not a latent"
                if name in {o.name for o in model.observed}
                else (f"is neither a latent nor an input{_close(name, plates)}")
            )
            msg = f"{child.name!r} depends on {name!r}, which {known}"
            raise DesignError(msg)
        of = plates[name]
        if of is not None and of not in chains[child.plate]:
            msg = (
                f"{child.name!r} of plate {child.plate!r} depends on {name!r} of plate {of!r}, "
                "which is not around it: only nested plates can be inferred here, crossed ones "
                "(every model on every task) by Gibbs sampling"
            )
            raise DesignError(msg)


def _groups(latents: dict[str, Latent]) -> dict[str, Group]:
    members: dict[str, list[Latent]] = {}
    for latent in latents.values():
        members.setdefault(latent.set_of_particles, []).append(latent)
    built = {name: _group(name, group, latents) for name, group in members.items()}
    after = {name: {*g.parents, *g.proposed_from} for name, g in built.items()}
    return {name: built[name] for name in _sorted(after, "groups of latents")}


def _group(name: str, members: list[Latent], latents: dict[str, Latent]) -> Group:
    plates = sorted({str(x.plate) for x in members})
    if len(plates) > 1:
        msg = f"group {name!r} has latents of plates {' and '.join(plates)}: use a group for each"
        raise DesignError(msg)
    taken = {x.name: (*arguments(x.prior), *arguments(x.proposal)) for x in members}
    own = set(taken)
    order = _sorted({x: own & set(names) for x, names in taken.items()}, "latents")
    by_name = {x.name: x for x in members}
    parents, proposed = (
        tuple(
            dict.fromkeys(
                latents[p].set_of_particles
                for x in members
                for p in arguments(getattr(x, what))
                if p in latents and p not in own
            )
        )
        for what in ("prior", "proposal")
    )
    return Group(name, members[0].plate, tuple(by_name[x] for x in order), parents, proposed)


def _sorted(after: dict[str, set[str]], what: str) -> list[str]:
    try:
        return list(TopologicalSorter({k: sorted(v) for k, v in after.items()}).static_order())
    except CycleError as error:
        msg = f"{what} depend on each other in a cycle: {' → '.join(error.args[1])}"
        raise DesignError(msg) from error


def _close(name: str | None, known: Iterable[str | None]) -> str:
    """Return similar names as the end of a sentence."""
    found = get_close_matches(str(name), [str(x) for x in known if x], n=3)
    return f"; like it: {', '.join(map(repr, found))}" if found else ""


def arguments(function: Callable[..., Any] | Density | None) -> tuple[str, ...]:
    """Return the argument names of a function; none for a distribution."""
    if function is None or isinstance(function, Density):
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
        try:
            return function(**taken)
        except (ValueError, RuntimeError, IndexError) as error:
            shapes = ", ".join(f"{x} {tuple(v.shape)}" for x, v in taken.items())
            msg = f"the distribution of {name!r} cannot be made from {shapes or 'nothing'}: {error}"
            raise DesignError(msg) from error

    def log_density(self, density: Any, value: Tensor, name: str) -> Tensor:
        """Log density of each member and particle, summed over vectors."""
        try:
            found = density if isinstance(density, Tensor) else density.log_prob(value)
        except (ValueError, RuntimeError) as error:
            msg = f"log density of {name!r}: {error}"
            raise DesignError(msg) from error
        inside = 0 if isinstance(density, Tensor) else len(getattr(density, "event_shape", ()))
        expected = self.structure.ndim + self.events
        if found.ndim + inside != expected:
            msg = (
                f"log density of {name!r} has {found.ndim} axes, not {expected - inside}: give one "
                "per plate, group of particles and axis of vectors; a sum over a vector must keep "
                "its axis (keepdim=True)"
            )
            raise DesignError(msg)
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
        _check_array(name, array, s, plates[name])
    events = [a.ndim - depths[name] for name, a in arrays.items()]
    events += [len(latent.shape) for latent in s.latents.values()]
    empty = Bound(s, {}, max(events), device)
    laid = {
        name: a.reshape(empty.shape(plates[name]) + empty.vector(tuple(a.shape[depths[name] :])))
        for name, a in arrays.items()
    }
    return Bound(s, laid, max(events), device)


def _check_array(name: str, array: Tensor, s: Structure, plate: str | None) -> None:
    chain = s.chains[plate]
    expected = tuple(s.sizes[p] for p in chain)
    if tuple(array.shape[: len(chain)]) != expected:
        sizes = " × ".join(f"{p} {s.sizes[p]}" for p in chain)
        msg = f"{name!r} has shape {tuple(array.shape)}, not {expected} first: {sizes}"
        raise DesignError(msg)
    wrong = int((~torch.isfinite(array)).sum())
    if wrong:
        msg = (
            f"{name!r} has {wrong} values that are not finite, of {array.numel()}: give a missing "
            "value no weight in the density (0 trials, or an input that is 0 there)"
        )
        raise DesignError(msg)
