"""Models of nested plates: latents with priors that name their parents, and observations.

A plate is a set of like things: tasks, or questions within a task. Latents of a plate may depend
on latents of the same plate and of plates around it, never on another plate's: models × tasks,
where every score depends on a model and on a task, is crossed, not nested.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from evalstats_plugin.hierarchical.distributions import Density, Family
from evalstats_plugin.hierarchical.structure import Structure, structure

Conditional = Callable[..., Density]


@dataclass(frozen=True)
class Plate:
    """So many like things, inside another plate or not."""

    name: str
    size: int
    within: str | None = None


@dataclass(frozen=True)
class Latent:
    """An unknown of each member of a plate.

    Parameters
    ----------
    name
        By which others take it as an argument.
    prior
        A distribution, or a function from parents and inputs, by name, to one.
    plate
        Innermost plate it belongs to; None for one of the whole model.
    shape
        Of a vector of unknowns that share their particles.
    group
        Latents of one group are drawn as one: good for parameters that hang together, such as a
        mean and a standard deviation.
    proposal
        Where to start adapting the proposal (default: as spread as the prior), or a function
        from parents, inputs and `parameters` to a distribution, which only variational inference
        adapts.
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
    """What is known of each member of a plate.

    Parameters
    ----------
    name
        Of the data.
    density
        From latents and inputs, by name, to the distribution of the data; or from these and the
        data, by its own name, to their log density.
    plate
        Innermost plate it belongs to.
    """

    name: str
    density: Callable[..., Density | Tensor]
    plate: str | None = None


@dataclass(frozen=True, kw_only=True)
class Model:
    """Latents and observations on nested plates.

    Functions get arrays that broadcast: one axis per plate, one per group of particles, and last
    the axes of vectors, as many as the longest `shape` has; absent axes have size 1. A sum over
    a vector must keep its axis, as in ``(z * x).sum(-1, keepdim=True)``.

    Parameters
    ----------
    plates
        A plate after the one that it is within.
    inputs
        Plate of each given array that is not observed (covariates, numbers of questions), or
        None for one of the whole model.

    Raises
    ------
    DesignError
        A cycle, an unknown parent, or a dependence that is not nested.
    """

    latents: Sequence[Latent]
    observed: Sequence[Observed]
    plates: Sequence[Plate] = ()
    inputs: Mapping[str, str | None] = field(default_factory=dict[str, "str | None"])
    structure: Structure = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "structure", structure(self))
