"""What a model of nested plates is made of: groups in order, chains of plates, axes of arrays."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any

from evalstats_plugin.errors import DesignError
from evalstats_plugin.hierarchical.distributions import Density

if TYPE_CHECKING:
    from evalstats_plugin.hierarchical.plated_model import Latent, Model, Observed


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
    """A checked model."""

    groups: dict[str, Group]
    """Parents first."""
    observed: dict[str, Observed]
    inputs: dict[str, str | None]
    sizes: dict[str, int]
    chains: dict[str | None, tuple[str, ...]]
    """Of each plate, the plates around it and itself, outermost first; of None, none."""
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
        """Groups of particles that the factor of a group, or of an observation, is a table of."""
        if name in self.groups:
            return (name, *self.groups[name].parents)
        taken = arguments(self.observed[name].density)
        return tuple(dict.fromkeys(self._group_of(x) for x in taken if x in self.latents))

    def _group_of(self, latent: str) -> str:
        return self.latents[latent].set_of_particles


def arguments(function: Callable[..., Any] | Density | None) -> tuple[str, ...]:
    """Names that a function takes; none where it is a distribution."""
    if function is None or isinstance(function, Density):
        return ()
    return tuple(inspect.signature(function).parameters)


def structure(model: Model) -> Structure:
    """Check a model and put it in order.

    Raises
    ------
    DesignError
        Names taken twice, unknown plates or parents, cycles, dependences that are not nested.
    """
    chains = _chains(model)
    _check_names(model)
    latents = {x.name: x for x in model.latents}
    for name, plate in _plates_named(model):
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
            msg = f"plate {plate.name!r} has {plate.size} members, expected one or more"
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
            f"found {len(model.latents)} latents and {len(model.observed)} observations, "
            "expected at least one of each"
        )
        raise DesignError(msg)


def _plates_named(model: Model) -> list[tuple[str, str | None]]:
    declared = [(x.name, x.plate) for x in (*model.latents, *model.observed)]
    return [*declared, *model.inputs.items()]


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
        msg = f"group {name!r} has latents of plates {' and '.join(plates)}, expected one plate"
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
    """Names like this one, as the end of a sentence."""
    found = get_close_matches(str(name), [str(x) for x in known if x], n=3)
    return f"; like it: {', '.join(map(repr, found))}" if found else ""
