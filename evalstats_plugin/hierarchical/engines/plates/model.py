"""Models on plates: declaration, structure, and binding to data.

A plate is a set of exchangeable units: tasks, or questions within a task. Latents of a plate have
priors that name their parents, on the same plate or on plates around it. Data where every score
depends on a member of two plates, such as models × tasks, are on crossed plates.

* `Model` of `Plate`, `Latent` and `Observed`: what is declared
* `Structure`: the model with groups in order and axes of arrays
* `bind`, `Bound`: data laid out on the axes of plates, particles and vectors, and calls of the
  functions of a model
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, distributions

from evalstats_plugin.errors import DesignError, few
from evalstats_plugin.hierarchical.engines.plates.distributions import (
    Parts,
    in_double,
    log_prob_of,
)
from evalstats_plugin.stats.arrays import FloatArray

On = str | tuple[str, ...] | None
"""A plate by name; several crossed ones; None for the whole model."""

Window = Mapping[str, tuple[int, int]]
"""Plates used only in a block: its first member and number of members."""

Data = Mapping[str, ArrayLike]
"""Observations and inputs by name."""

_DISTRIBUTION: Any = distributions.Distribution


@dataclass(frozen=True)
class Plate:
    """A set of exchangeable units, possibly within another plate.

    Parameters
    ----------
    size
        Number of members; for a ragged plate, that of each member of the plate around it. Default:
        as many as the data have.

    Examples
    --------
    >>> Plate("question", (3, 5), within="task").size
    (3, 5)
    """

    name: str
    size: int | tuple[int, ...] | None = None
    within: str | None = None

    @property
    def length(self) -> int:
        """Length of its axis; 0 until data give it."""
        return self.size or 0 if not isinstance(self.size, tuple) else max(self.size)


@dataclass(frozen=True)
class Latent:
    """An unknown of each member of a plate.

    Parameters
    ----------
    name
        The argument by which other functions receive it.
    prior
        A distribution of ``torch.distributions``, or a function that returns one from parents and
        inputs, by name.
    plate
        Innermost plate of the latent; None for one latent of the whole model.
    shape
        Shape of a vector of unknowns that share their particles.
    group
        Latents of one group share their particles: useful for dependent parameters, such as a mean
        and a standard deviation.
    proposal
        The first proposal: Normal, LogNormal, Gamma, Beta, Dirichlet or MultivariateNormal of torch
        (default: matched to the prior, by its support). Or a function of other latents and inputs,
        by name, that returns a distribution: a proposal given its parents. If it is a
        `torch.nn.Module`, method ``"rws"`` trains its parameters, in place (amortised inference);
        otherwise it is not adapted.

    Examples
    --------
    >>> from torch.distributions import Normal
    >>> Latent("level", lambda mu: Normal(mu, 0.1), "week").plate
    'week'
    """

    name: str
    prior: Any
    plate: On = None
    shape: tuple[int, ...] = ()
    group: str | None = None
    proposal: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "prior", in_double(self.prior))

    @property
    def program(self) -> Callable[..., Any] | None:
        """The proposal, where it depends on other latents or inputs."""
        return self.proposal if callable(self.proposal) else None

    @property
    def set_of_particles(self) -> str:
        """Name of its group, by default its own."""
        return self.group or self.name


@dataclass(frozen=True)
class Observed:
    """Data of each member of a plate; NaN where missing.

    Parameters
    ----------
    name
        Name of the data.
    density
        A function from latents and inputs, by name, to the distribution of the data; or from these
        and the data, by its own name, to their log density.
    plate
        Innermost plate of the data; several names for crossed plates.

    Examples
    --------
    >>> from torch.distributions import Bernoulli
    >>> Observed("right", lambda ability: Bernoulli(logits=ability), "question").plate
    'question'
    """

    name: str
    density: Callable[..., Any]
    plate: On = None


@dataclass(frozen=True, kw_only=True)
class Model:
    """Latents and observations on plates.

    Functions are written for one member and one particle: they receive numbers, and vectors where
    a latent has a `shape` or data have more axes than plates, all of them tensors of torch.

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
        A name that does not exist or exists twice, a parent on a plate that is not around, latents
        that depend on each other.

    Examples
    --------
    >>> from torch.distributions import Normal
    >>> model = Model(
    ...     plates=[Plate("task", 3)],
    ...     latents=[Latent("mu", Normal(0.0, 1.0)),
    ...              Latent("z", lambda mu: Normal(mu, 1.0), "task")],
    ...     observed=[Observed("x", lambda z: Normal(z, 1.0), "task")],
    ... )
    >>> list(model.structure.latents)
    ['mu', 'z']
    """

    latents: Sequence[Latent]
    observed: Sequence[Observed]
    plates: Sequence[Plate] = ()
    inputs: Mapping[str, On] = field(default_factory=dict[str, On])
    structure: Structure = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "structure", _structure(self))

    def check(self, data: Data, *, device: str = "auto", rng: int = 0) -> Any:
        """Check the model with data before it is fitted.

        Shapes, possible values, what the priors say of latents and data, what the data cannot
        identify, and the method to take.

        Parameters
        ----------
        data
            As of `infer`.
        rng
            Seed of the draws from the priors.

        Returns
        -------
        ModelCheck
            Printed, tables of the parts and of the engines. Data that do not fit the model are in
            its ``problem``; no error is raised.

        Examples
        --------
        >>> from torch.distributions import Normal
        >>> model = Model(
        ...     plates=[Plate("task")],
        ...     latents=[Latent("z", Normal(0.0, 1.0), "task")],
        ...     observed=[Observed("x", lambda z: Normal(z, 1.0), "task")],
        ... )
        >>> checked = model.check({"x": [0.3, float("nan")]})
        >>> checked.method, checked.notes
        ('qem', ("nothing observed depends on 'z' of task 1: its posterior is the prior",))
        """
        return _judging().check_model(self, data, device=device, rng=rng)

    def doctor(self, fit: Any, *, rng: int = 0) -> Any:
        """Judge a fit: convergence, predictions beside observations, and calibration.

        Parameters
        ----------
        fit
            A fit of this model, by `infer` or `pool`.
        rng
            Seed of the predictions.

        Returns
        -------
        Diagnosis
            Printed, one sentence and a table of predictive checks: mean and spread of the data,
            of the means of members of each plate, of the members that fit worst, and of
            predictions of left-out cells.

        Raises
        ------
        DesignError
            Data that are given by a log density alone cannot be predicted.
        """
        return _judging().diagnosis(fit, rng=rng)


@dataclass(frozen=True)
class Group:
    """Latents of one plate that share their particles."""

    name: str
    plate: On
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
    inputs: dict[str, On]
    plates: dict[str, Plate]
    chains: dict[On, tuple[str, ...]]
    """By plate: the plates around it and itself, outermost first; none for None."""
    plate_axis: dict[str, int]
    particle_axis: dict[str, int]
    """Axis of the particles of each group, after those of the plates."""

    @property
    def ndim(self) -> int:
        """Number of axes of plates and particles."""
        return len(self.plate_axis) + len(self.groups)

    @property
    def sizes(self) -> dict[str, int]:
        """Length of the axis of each plate."""
        return {name: plate.length for name, plate in self.plates.items()}

    def lengths(self, plate: On) -> list[int]:
        """Length of the axis of each plate around a plate, and of its own."""
        return [self.plates[p].length for p in self.chains[plate]]

    def whole(self, plate: On) -> dict[str, tuple[int, int]]:
        """Window of all members of a plate."""
        return {p: (0, self.plates[p].length) for p in self.chains[plate]}

    @property
    def plate_of_data(self) -> dict[str, On]:
        """Plate of observations and inputs, by name."""
        return {name: o.plate for name, o in self.observed.items()} | self.inputs

    @property
    def latents(self) -> dict[str, Latent]:
        """Every latent, parents first."""
        return {x.name: x for group in self.groups.values() for x in group.latents}

    @property
    def crossed(self) -> On:
        """Crossed plates of some observation; None where all plates are nested."""
        return next((plate for plate in self.chains if isinstance(plate, tuple)), None)

    @property
    def joint(self) -> Structure:
        """The same with one axis of particles: a particle is a draw of all latents at once."""
        if not self.groups:
            return self
        first = next(iter(self.particle_axis.values()))
        axes = dict.fromkeys(self.particle_axis, first)
        return replace(self, particle_axis=axes)

    def parents_of(self, latent: Latent) -> tuple[str, ...]:
        """Latents that the prior of a latent depends on."""
        return tuple(x for x in arguments(latent.prior) if x in self.latents)

    def within(self, plate: On) -> tuple[str, ...]:
        """Plates directly inside."""
        inside = plate if plate is None or isinstance(plate, str) else plate[-1]
        return tuple(p for p, other in self.plates.items() if other.within == inside)

    def groups_of(self, plate: On) -> tuple[Group, ...]:
        """Groups directly in a plate."""
        return tuple(g for g in self.groups.values() if g.plate == plate)

    def observed_in(self, plate: On) -> tuple[Observed, ...]:
        """Observations directly in a plate."""
        return tuple(o for o in self.observed.values() if o.plate == plate)

    def groups_seen(self, name: str) -> tuple[str, ...]:
        """Groups whose particles the factor of a group, or of an observation, depends on."""
        if name in self.groups:
            return (name, *self.groups[name].parents)
        taken = arguments(self.observed[name].density)
        latents = self.latents
        return tuple(dict.fromkeys(latents[x].set_of_particles for x in taken if x in latents))


def _judging() -> Any:
    # Loaded on use: models know nothing of how they are judged, but for this door.
    return import_module("evalstats_plugin.hierarchical.judging")


def _structure(model: Model) -> Structure:
    """Order the groups of a model so that parents come first."""
    plates = {p.name: p for p in model.plates}
    plate_of: dict[str, On] = {}
    for kind, name, plate in (
        *(("latent", x.name, x.plate) for x in model.latents),
        *(("data", x.name, x.plate) for x in model.observed),
        *(("input", name, plate) for name, plate in model.inputs.items()),
    ):
        if name in plate_of:
            raise DesignError(f"two parts of the model are named {name!r}: give each its own name")
        for part in plate if isinstance(plate, tuple) else () if plate is None else (plate,):
            if part not in plates:
                raise DesignError(f"{kind} {name!r} is on plate {part!r}, which does not exist: "
                                  f"there are {few(list(plates)) or 'none'}")  # fmt: skip
        plate_of[name] = plate
    chains: dict[On, tuple[str, ...]] = {None: ()}
    for plate in model.plates:
        if plate.within not in chains:
            msg = f"plate {plate.name!r} is within {plate.within!r}, which no plate before it is"
            raise DesignError(f"{msg}: list outer plates first")
        around = chains[plate.within]
        if isinstance(plate.size, tuple):
            full = plates[plate.within].size if plate.within else None
            if len(plate.size) != full:
                msg = f"ragged plate {plate.name!r} has {len(plate.size)} sizes"
                raise DesignError(f"{msg}: give one for each member of the plate around it")
        chains[plate.name] = (*around, plate.name)
    for plate in plate_of.values():
        if isinstance(plate, tuple):
            outer = dict.fromkeys(p for part in plate for p in chains[part])
            chains[plate] = tuple(p for p in plates if p in outer)
    _check_arguments(model, plate_of, chains)
    latents = {x.name: x for x in model.latents}
    groups = _groups(latents)
    n = len(plates)
    return Structure(
        groups,
        {o.name: o for o in model.observed},
        dict(model.inputs),
        plates,
        chains,
        {p: i for i, p in enumerate(plates)},
        {g: n + i for i, g in enumerate(groups)},
    )


def _check_arguments(
    model: Model, plate_of: Mapping[str, On], chains: Mapping[On, tuple[str, ...]]
) -> None:
    """Raise `DesignError` for an argument that does not exist, or is on a plate not around."""
    data = {o.name for o in model.observed}
    functions = [
        *(("latent", x.name, x.plate, x.prior) for x in model.latents),
        *(("proposal of", x.name, x.plate, x.program) for x in model.latents if x.program),
        *(("data", o.name, o.plate, o.density) for o in model.observed),
    ]
    for kind, name, plate, function in functions:
        for taken in arguments(function):
            if taken not in plate_of or (taken in data and taken != name):
                own = [x for x in plate_of if x not in data]
                msg = f"{kind} {name!r} depends on {taken!r}, which does not exist"
                raise DesignError(f"{msg}: there are {few(own)}")
            if not set(chains[plate_of[taken]]) <= set(chains[plate]):
                msg = f"{kind} {name!r} depends on {taken!r} of plate {plate_of[taken]!r}"
                raise DesignError(f"{msg}, which is not around it: move one of them")


def _groups(latents: dict[str, Latent]) -> dict[str, Group]:
    members: dict[str, list[Latent]] = {}
    for latent in latents.values():
        members.setdefault(latent.set_of_particles, []).append(latent)
    built: dict[str, Group] = {}
    for name, group in members.items():
        if len({x.plate for x in group}) > 1:
            names = few([x.name for x in group])
            raise DesignError(f"group {name!r} has latents of several plates ({names}): split it")
        taken = {x.name: (*arguments(x.prior), *arguments(x.program)) for x in group}
        inside = set(taken)
        order = _sorted({x: inside & set(names) for x, names in taken.items()})
        parents = dict.fromkeys(
            latents[p].set_of_particles
            for names in taken.values()
            for p in names
            if p in latents and p not in inside
        )
        ordered = tuple(latents[x] for x in order)
        built[name] = Group(name, group[0].plate, ordered, tuple(parents))
    after = {name: set(g.parents) for name, g in built.items()}
    return {name: built[name] for name in _sorted(after)}


def _sorted(after: dict[str, set[str]]) -> list[str]:
    try:
        return list(TopologicalSorter({k: sorted(v) for k, v in after.items()}).static_order())
    except CycleError as error:
        names = few(list(dict.fromkeys(error.args[1])))
        raise DesignError(f"latents depend on each other in a circle: {names}") from error


def arguments(function: Any) -> tuple[str, ...]:
    """Return the argument names of a function; none for a distribution."""
    fixed = function is None or isinstance(function, _DISTRIBUTION)
    return () if fixed else _parameters(function)


@lru_cache(maxsize=1024)
def _parameters(function: Any) -> tuple[str, ...]:
    # Of a network its own arguments, not those of the class of all networks.
    return tuple(inspect.signature(getattr(function, "forward", function)).parameters)


def with_arguments(function: Any, names: Sequence[str]) -> Any:
    """Give a function of keywords a signature with these names."""
    parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
    function.__signature__ = inspect.Signature(parameters)
    return function


@dataclass(frozen=True)
class Bound:
    """A model, its data and inputs as arrays on one device."""

    structure: Structure
    arrays: dict[str, Tensor]
    """Data and inputs by name; any value where missing."""
    present: dict[str, Tensor]
    """By data with missing values: 1 where there is one."""
    ranks: dict[str, int]
    """By latent, data and input: number of axes of one value."""
    events: int
    """Number of axes of vectors, at the end of every array."""
    device: torch.device
    known: dict[Any, bool] = field(default_factory=dict[Any, bool])
    """By function: whether it takes whole arrays, found out at its first call."""

    def shape(self, plate: On, group: str | None = None, k: int = 1) -> list[int]:
        """Shape of one number per member of a plate (and particle), without vectors."""
        s = self.structure
        shape = [1] * s.ndim
        for p in s.chains[plate]:
            shape[s.plate_axis[p]] = s.sizes[p]
        if group is not None:
            shape[s.particle_axis[group]] = k
        return shape

    def zeros(self, plate: On = None, group: str | None = None, k: int = 1) -> Tensor:
        """Return zeros in the shape of `shape`."""
        return torch.zeros(self.shape(plate, group, k), dtype=torch.float64, device=self.device)

    @property
    def numbers(self) -> int:
        """Number of unknown numbers."""
        latents = self.structure.latents.values()
        return sum(math.prod(self.shape(x.plate)) * math.prod(x.shape) for x in latents)

    def shape_of_value(self, name: str) -> tuple[int, ...]:
        """Shape of one value of data, or of an input."""
        array = self.arrays[name]
        return tuple(array.shape[array.ndim - self.ranks[name] :])

    def vector(self, shape: tuple[int, ...]) -> list[int]:
        """Shape of a vector on the last axes."""
        return [1] * (self.events - len(shape)) + list(shape)

    def exists(self, plate: On) -> Tensor | None:
        """True for members that a ragged plate has; None where it has all."""
        present = None
        for name in self.structure.chains[plate]:
            size = self.structure.plates[name].size
            if not isinstance(size, tuple):
                continue
            axis = self.structure.plate_axis[name]
            around = self.structure.plates[name].within
            shape, along = [1] * self.structure.ndim, [1] * self.structure.ndim
            shape[self.structure.plate_axis[str(around)]] = len(size)
            along[axis] = max(size)
            own = torch.arange(max(size), device=self.device).reshape(along)
            inside = own < torch.tensor(size, device=self.device).reshape(shape)
            present = inside if present is None else present & inside
        return present

    def log_density(self, function: Any, values: Mapping[str, Tensor], of: str) -> Tensor:
        """Log density of a latent or of data, for each member and particle.

        Parameters
        ----------
        values
            Arrays of latents, inputs and data by name; the value itself under ``"="``.
        """
        names = arguments(function)
        given = {x: values[x] for x in names}
        ranks = {x: self.ranks[x] for x in names} | {"=": self.ranks[of]}
        given["="] = values["="]
        if "?" in values:
            given["?"], ranks["?"] = values["?"], self.ranks[of]

        def one(**own: Tensor) -> Tensor:
            value, present = own.pop("="), own.pop("?", None)
            density = function(**own) if names else function
            log_p = density if isinstance(density, Tensor) else log_prob_of(density, value)
            if present is not None:
                if log_p.shape != present.shape:
                    log_p, present = log_p.sum(), present.all()
                log_p = torch.where(present > 0, log_p, 0.0)
            return log_p.sum()

        with unchecked():
            if not any(ranks.values()):
                if function not in self.known:
                    # Without derivatives: what a checkpoint keeps does not depend on it.
                    fixed = {x: value.detach() for x, value in given.items()}
                    quick = _all_at_once(function, fixed, names)
                    slow = self.each(one, fixed, ranks, of)
                    self.known[function] = (
                        quick is not None
                        and quick.shape == slow.shape
                        and torch.allclose(quick, slow, rtol=1e-9, atol=1e-9, equal_nan=True)
                    )
                quick = _all_at_once(function, given, names) if self.known[function] else None
                if quick is not None:
                    return quick
            return self.each(one, given, ranks, of)

    def each(
        self, function: Callable[..., Any], given: Mapping[str, Tensor], ranks: Mapping[str, int],
        of: str,
    ) -> Any:  # fmt: skip
        """Call a function of single values for every member and particle.

        Returns what the function returns, with all axes of plates and particles before its own.

        Raises
        ------
        DesignError
            It raises anything, as functions do that are not written for one member.
        """
        n = self.structure.ndim
        natural: list[Tensor] = []
        axes: list[list[int]] = []
        for name, array in given.items():
            own = [a for a in range(n) if array.shape[a] > 1]
            shape = [array.shape[a] for a in own] + list(array.shape[array.ndim - ranks[name] :])
            natural.append(array.reshape(shape))
            axes.append(own)
        used = sorted({a for own in axes for a in own})

        def call(*values: Tensor) -> Any:
            try:
                return function(**dict(zip(given, values, strict=True)))
            except DesignError:
                raise
            except Exception as error:
                shapes = ", ".join(
                    f"{name} {tuple(x.shape)}"
                    for name, x in zip(given, values, strict=True)
                    if name not in ("=", "?")
                )
                what = f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"
                msg = f"the function of {of!r} fails for one member ({shapes or 'no arguments'})"
                raise DesignError(
                    f"{msg}: {what}; take functions of torch, torch.where instead of if, and "
                    "give vectors by shape="
                ) from error

        for axis in reversed(used):
            along = tuple(0 if axis in own else None for own in axes)
            call = torch.vmap(call, along)
        mapped = call(*natural)
        length = {a: array.shape[a] for array in given.values() for a in used if array.shape[a] > 1}
        front = [length.get(a, 1) for a in range(n)]

        def laid(x: Tensor) -> Tensor:
            return x.reshape(front + list(x.shape[len(used) :]))

        return laid(mapped) if isinstance(mapped, Tensor) else tuple(laid(x) for x in mapped)

    def sampled(
        self, function: Any, values: Mapping[str, Tensor], of: str, shape: Sequence[int],
        generator: torch.Generator,
    ) -> Tensor:  # fmt: skip
        """Draw a latent, or data, given values of what it depends on, by name.

        Parameters
        ----------
        shape
            Axes of plates and particles, then those of one value.

        Raises
        ------
        DesignError
            It is given by a density alone, or has values of another shape.
        """
        names, front = arguments(function), self.structure.ndim
        own_shape, seen = tuple(shape[front:]), list[Parts]()

        def one(**own: Tensor) -> tuple[Tensor, ...]:
            density = function(**own) if names else function
            if not isinstance(density, _DISTRIBUTION):
                msg = f"{of!r} is given by a log density, which cannot be drawn from"
                raise DesignError(f"{msg}: return a distribution of torch.distributions")
            try:
                seen.append(Parts.of(density, own_shape))
            except (RuntimeError, ValueError) as error:
                kind = f"the prior of latent {of!r}" if of in self.structure.latents else repr(of)
                has = (*density.batch_shape, *density.event_shape)
                msg = f"{kind} does not have values of shape {own_shape}, but of {tuple(has)}"
                raise DesignError(f"{msg}: give Latent(…, shape=)") from error
            return seen[-1].values

        with unchecked():
            parts = self.each(
                one, {x: values[x] for x in names}, {x: self.ranks[x] for x in names}, of
            )
            # A constant of a function is a number: it goes along with each operation.
            moved = [x.to(self.device) for x in parts]
            drawn = seen[-1].sample(moved, shape, len(own_shape), generator)
        return drawn if drawn.dtype == torch.long else drawn.double()

    def narrowed(self, array: Tensor, window: Window) -> Tensor:
        """Return a view of the members of plates in a window."""
        for plate, (start, length) in window.items():
            axis = self.structure.plate_axis[plate]
            if array.shape[axis] > 1:
                array = array.narrow(axis, start, length)
        return array


def _all_at_once(function: Any, given: Mapping[str, Tensor], names: Sequence[str]) -> Tensor | None:
    """Call a function with whole arrays; None where it is not made of elementwise operations."""
    try:
        density = function(**{x: given[x] for x in names}) if names else function
        log_p = density if isinstance(density, Tensor) else log_prob_of(density, given["="])
    except Exception:  # noqa: BLE001
        # Whatever it raises: functions are written for one member, as which it is called next.
        return None
    return torch.where(given["?"] > 0, log_p, 0.0) if "?" in given else log_p


@contextmanager
def unchecked() -> Generator[None]:
    """Let distributions of torch be built without looking at values, which vmap cannot."""
    before = _DISTRIBUTION._validate_args
    _DISTRIBUTION.set_default_validate_args(False)
    try:
        yield
    finally:
        _DISTRIBUTION.set_default_validate_args(before)


def with_sizes(model: Model, data: Data) -> Model:
    """Return the model with the sizes of plates that have none, which are those of the data.

    Raises
    ------
    DesignError
        No data are on such a plate.
    """
    if all(plate.size is not None for plate in model.plates):
        return model
    s = model.structure
    sizes: dict[str, int] = {}
    for name, plate in s.plate_of_data.items():
        shape = _rectangular(data[name]).shape if name in data else ()
        sizes = dict(zip(s.chains[plate], shape, strict=False)) | sizes
    plates = [p if p.size is not None else replace(p, size=sizes.get(p.name)) for p in model.plates]
    for plate in plates:
        if plate.size is None:
            msg = f"plate {plate.name!r} has no size, and no data are on it"
            raise DesignError(f"{msg}: give one, as in Plate({plate.name!r}, 5)")
    return replace(model, plates=plates)


def bind(model: Model, data: Data, device: torch.device) -> Bound:
    """Lay data out for a model.

    Parameters
    ----------
    data
        Observations and inputs by name: one axis per plate, outermost first, then those of
        vectors; nested lists for ragged plates.

    Raises
    ------
    DesignError
        Data are missing, of another shape than their plates, or inputs are not finite.
    """
    if device.type != "cpu":
        # Constant distributions have tensors of their own.
        latents = [
            replace(x, prior=in_double(x.prior, device), proposal=in_double(x.proposal, device))
            for x in model.latents
        ]
        model = replace(model, latents=latents)
    s = model.structure
    plates = s.plate_of_data
    if strange := [name for name in data if name not in plates]:
        msg = f"data {few(strange)} {'is' if len(strange) == 1 else 'are'} not part of the model"
        raise DesignError(f"{msg}: it has {few(list(plates))}")
    arrays: dict[str, Tensor] = {}
    present: dict[str, Tensor] = {}
    for name, plate in plates.items():
        if name not in data:
            raise DesignError(f"there are no data {name!r}: give data={{{name!r}: …}}")
        array = _rectangular(data[name])
        sizes = tuple(s.lengths(plate))
        if array.shape[: len(sizes)] != sizes:
            shape = " × ".join(f"{p} {s.sizes[p]}" for p in s.chains[plate]) or "a single value"
            msg = f"data {name!r} have shape {array.shape}, but their plates are {shape}"
            raise DesignError(f"{msg}: give one axis per plate, outermost first")
        observed = ~np.isnan(array)
        if not observed.all():
            ragged = any(isinstance(s.plates[p].size, tuple) for p in s.chains[plate])
            if name in s.inputs and not ragged:
                raise DesignError(f"input {name!r} has missing values: only data may be missing")
            if not observed.any():
                raise DesignError(f"data {name!r} are all missing: leave them out of the model")
            array = np.where(observed, array, array[observed].min())
            if name in s.observed:
                present[name] = torch.as_tensor(observed * 1.0, device=device)
        arrays[name] = torch.as_tensor(array, dtype=torch.float64, device=device)
    depths = {name: len(s.chains[plate]) for name, plate in plates.items()}
    ranks = {name: a.ndim - depths[name] for name, a in arrays.items()}
    ranks |= {x.name: len(x.shape) for x in s.latents.values()}
    empty = Bound(s, {}, {}, ranks, max(ranks.values(), default=0), device)

    def laid(name: str, a: Tensor) -> Tensor:
        vector = tuple(a.shape[depths[name] :])
        return a.reshape(empty.shape(plates[name]) + empty.vector(vector))

    return replace(
        empty,
        arrays={name: laid(name, a) for name, a in arrays.items()},
        present={name: laid(name, a) for name, a in present.items()},
    )


def check_support(bound: Bound, values: Mapping[str, Tensor]) -> None:
    """Raise `DesignError` for data outside the support of their distribution.

    Bounds that depend on latents are not checked: such data have a density of 0 where they are
    out of range.

    Parameters
    ----------
    bound
        With the axes of `Structure.joint`.
    values
        By latent, two draws or more.
    """
    s, near = bound.structure, {**bound.arrays, **values}
    for name, o in s.observed.items():
        names, described = arguments(o.density), list[Any]()

        def one(*, o: Observed = o, described: list[Any] = described, **own: Tensor) -> Any:
            value = own.pop("=")
            density = o.density(**own) if arguments(o.density) else o.density
            inside: Any = getattr(density, "support", None)
            described.append(inside)
            if inside is None:
                return tuple(value.new_ones(3))
            base = getattr(inside, "base_constraint", inside)
            ends = [torch.as_tensor(getattr(base, f"{side}_bound", math.nan), device=value.device)
                    for side in ("lower", "upper")]  # fmt: skip
            possible = inside.check(value).all()
            if not inside.is_discrete:
                # Beta has 0 and 1 in its support, and mostly no finite density there.
                edge = ((value == ends[0]) | (value == ends[1])).any()
                finite = torch.isfinite(log_prob_of(density, value)).all()
                possible = possible & (finite | ~edge)
            return (possible, *(x.double().nan_to_num().sum() for x in ends))

        given = {x: near[x] for x in names} | {"=": near[name]}
        ranks = {x: bound.ranks[x] for x in names} | {"=": bound.ranks[name]}
        with unchecked():
            inside, low, high = bound.each(one, given, ranks, name)
        axis = next(iter(s.particle_axis.values()), 0)
        fixed = (low == low.narrow(axis, 0, 1)) & (high == high.narrow(axis, 0, 1))
        wrong = (~inside.bool() & fixed).all(axis, keepdim=True) if s.groups else ~inside.bool()
        for seen in (bound.exists(o.plate), bound.present.get(name)):
            if seen is not None:
                wrong = wrong & (seen.flatten(s.ndim).all(-1) if seen.ndim > s.ndim else seen > 0)
        if not bool(wrong.any()):
            continue
        at = torch.nonzero(wrong.expand(bound.shape(o.plate)))[0]
        place = cast("list[int]", cast("Any", at).tolist())
        member = [place[s.plate_axis[p]] for p in s.chains[o.plate]]
        array = bound.arrays[name]
        value = cast("list[float]", cast("Any", array[tuple(place)]).flatten().tolist())
        where = " × ".join(f"{p} {i}" for p, i in zip(s.chains[o.plate], member, strict=True))
        shown = ", ".join(f"{x:g}" for x in value[:6])
        raise DesignError(
            f"data {name!r}{f' of {where}' * bool(where)}: {shown} is not possible, values are "
            f"{support_in_words(described[-1], low, high)}: correct the value, "
            "make it NaN where nothing was observed, or take another distribution"
        )


def support_in_words(support: Any, low: Tensor, high: Tensor) -> str:
    """Return the values of a support in words, with the first of its bounds.

    >>> from torch.distributions import Poisson
    >>> support_in_words(Poisson(1.0).support, torch.zeros(1), torch.zeros(1))
    'whole numbers from 0'
    """
    base = getattr(support, "base_constraint", support)
    if type(base).__name__ == "_Boolean":
        return "0 and 1"
    kind = "whole numbers" if support.is_discrete else "numbers"
    strict = type(base).__name__ in ("_GreaterThan", "_LessThan")
    sides = (("lower", "above" if strict else "from", low),
             ("upper", "below" if strict else "to", high))  # fmt: skip
    ends = [f"{word} {float(x.flatten()[0]):g}" for side, word, x in sides
            if hasattr(base, f"{side}_bound")]  # fmt: skip
    if ends:
        return " ".join((kind, *ends))
    return type(base).__name__.strip("_").replace("_", " ").lower()


def _rectangular(values: ArrayLike) -> FloatArray:
    """Return an array of numbers; lists of unequal lengths are filled with NaN."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (ValueError, TypeError):
        if not isinstance(values, (list, tuple)):
            raise
        rows = [_rectangular(x) for x in cast("Sequence[ArrayLike]", values)]
        shape = tuple(int(n) for n in np.max([x.shape for x in rows], axis=0))
        wide = np.full((len(rows), *shape), np.nan)
        for row, x in zip(wide, rows, strict=True):
            row[tuple(slice(0, n) for n in x.shape)] = x
        return wide


def prior_values(
    bound: Bound,
    count: int,
    generator: torch.Generator,
    given: Mapping[str, Tensor] | None = None,
) -> dict[str, Tensor]:
    """Draw all latents from their priors, `count` times, parents first.

    Parameters
    ----------
    bound
        With the axes of `Structure.joint`; the first axis of particles is that of draws.
    given
        By latent, values of the first members, which are not drawn.
    """
    s = bound.structure
    values = dict(bound.arrays)
    for latent in s.latents.values():
        shape = bound.shape(latent.plate, latent.set_of_particles, count)
        natural = [*shape, *latent.shape]
        drawn = bound.sampled(latent.prior, values, latent.name, natural, generator)
        drawn = drawn.reshape(shape + bound.vector(latent.shape))
        old = (given or {}).get(latent.name)
        if old is not None:
            drawn = drawn.to(old.dtype).clone()
            drawn[tuple(slice(0, n) for n in old.shape)] = old
        values[latent.name] = drawn
    return {x: values[x] for x in s.latents}
