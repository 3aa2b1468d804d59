"""Massively parallel estimate of the evidence, P_MP, and weights of particles [HLA23]_.

log P_MP sums over all Kⁿ combinations of K particles of n groups: by variable elimination inside a
plate, by a product over its members. Plates are split into blocks of members; one block at a
time is in memory. Posterior weights are derivatives of log P_MP.

* `log_evidence`, `weigh`, `posterior_draws`: the estimate, marginal weights, and joint draws
* `log_factors`: the tables log P − log Q − log K of each group, and log P of the data
* `contract`: sum tables over particles in the log domain, in a good order
* `joint_log_weights`: weights of draws of all latents at once, as in ordinary importance sampling

Latents with finitely many values have these as particles, so that they are summed exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, reduce
from importlib import import_module
from operator import add
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import checkpoint

from evalstats_plugin.errors import DesignError, few, install_hint
from evalstats_plugin.hierarchical.engines.plates.distributions import (
    Family,
    as_family,
    family_for,
    log_prob_of,
)
from evalstats_plugin.hierarchical.engines.plates.model import (
    Bound,
    Group,
    Latent,
    On,
    Window,
    arguments,
    prior_values,
    unchecked,
)

Sources = Mapping[str, Tensor]
"""Zeros added to the factors of groups; derivatives by them are posterior expectations."""


Sizes = tuple[tuple[int, int], ...]
"""Axes of a table, and their lengths."""


_PRIOR_DRAWS, _PRIOR_NUMBERS = 2000, 4_000_000
"""Draws from the prior that default proposals are matched to, and most numbers in them."""

_CHECKPOINT: Any = checkpoint
"""Its functions have no type stubs."""

_TRIED = 20
"""Draws from a proposal that must be in the support of its prior."""

_TAILS = (0.01, 0.99)
"""Quantiles within which draws from priors of torch are kept for that."""


@dataclass(frozen=True)
class Scene:
    """Particles of a model, and the number of members of each plate in a block."""

    bound: Bound
    particles: Particles
    blocks: Mapping[str, int]
    factors: Mapping[On, Tensor] = field(default_factory=dict[On, Tensor])
    """By plate, the log of one more factor of the density."""

    def windows(self, plate: str, around: Window) -> Iterator[dict[str, tuple[int, int]]]:
        """Split a plate into blocks, inside a window on the plates around it."""
        size, block = self.bound.structure.sizes[plate], self.blocks[plate]
        for start in range(0, size, block):
            yield {**around, plate: (start, min(block, size - start))}


def log_evidence(scene: Scene, sources: Sources | None = None) -> Tensor:
    """Log P_MP, differentiable in `sources` and in the particles.

    The derivative by a source at 0 is the posterior expectation of its factor: a source per
    particle gives marginal weights, one per entry of a group's factor gives the joint distribution
    of parents and children; one times f(z), among the factors of a scene, gives E f(z) [BHA24]_.

    Raises
    ------
    DesignError
        No combination of particles has a density above 0.
    """
    total = contract_plate(scene, None, {}, sources or {}).message.reshape(())
    if not bool(torch.isfinite(total.detach())):
        raise DesignError(
            "no combination of particles has a density above 0: give a proposal that covers the "
            "posterior, or take another method"
        )
    return total


def contract_plate(scene: Scene, plate: str | None, window: Window, sources: Sources) -> Contracted:
    """Sum out the particles of a plate's own groups, after those of the plates inside."""
    s = scene.bound.structure
    own = log_factors(scene.bound, scene.particles, plate, window)
    for name in own.keys() & sources.keys():
        own[name] = own[name] + scene.bound.narrowed(sources[name], window)
    more = [scene.bound.narrowed(x, window) for on, x in scene.factors.items() if on == plate]
    inside = [_inside(scene, child, window, sources) for child in s.within(plate)]
    axes = frozenset(s.particle_axis[g.name] for g in s.groups_of(plate))
    return contract([*own.values(), *more, *inside] or [scene.bound.zeros()], axes)


def _inside(scene: Scene, plate: str, around: Window, sources: Sources) -> Tensor:
    """Return the message of a plate to those around it: the product over its members."""
    axis = scene.bound.structure.plate_axis[plate]

    def of_block(window: Window) -> Tensor:
        return contract_plate(scene, plate, window, sources).message.sum(axis, keepdim=True)

    windows = list(scene.windows(plate, around))
    if len(windows) == 1:
        return of_block(windows[0])
    # A block is computed again for its derivative, and not stored.
    blocks = (_CHECKPOINT.checkpoint(of_block, window, use_reentrant=False) for window in windows)
    return reduce(add, blocks)


class Weighed(NamedTuple):
    """A set of particles with its evidence and posterior weights."""

    scene: Scene
    log_evidence: float
    weights: dict[str, Tensor]
    """By group: weights of the particles of each member, summing to 1 along their axis."""


def weigh(scene: Scene) -> Weighed:
    """Evidence and marginal weights, by one backward pass."""
    bound, particles = scene.bound, scene.particles
    sources = {
        g.name: bound.zeros(g.plate, g.name, particles.k(bound, g.name)).requires_grad_()
        for g in bound.structure.groups.values()
    }
    with torch.enable_grad():
        total = log_evidence(scene, sources)
    gradients = torch.autograd.grad(total, list(sources.values()))
    return Weighed(scene, float(total.detach()), dict(zip(sources, gradients, strict=True)))


def weighted_mean(bound: Bound, weights: Tensor, values: Tensor, group: str) -> Tensor:
    """Mean of numbers per particle under marginal weights; the axis of particles has size 1."""
    spread = weights.reshape(weights.shape + (1,) * bound.events)
    return (spread * values).sum(bound.structure.particle_axis[group], keepdim=True)


def posterior_draws(scene: Scene, count: int, generator: torch.Generator) -> dict[str, Tensor]:
    """Draw from the posterior on the particles.

    Returns
    -------
    dict
        By latent, shape (count, members of its plates, outermost first, vector).
    """
    s, bound = scene.bound.structure, scene.bound
    indices = {
        g.name: torch.zeros([count, *bound.shape(g.plate)], dtype=torch.long, device=bound.device)
        for g in s.groups.values()
    }
    with torch.no_grad():
        _draw_plate(scene, None, {}, indices, generator)
    drawn: dict[str, Tensor] = {}
    for name, latent in s.latents.items():
        group = latent.set_of_particles
        index = indices[group].reshape([*indices[group].shape, *[1] * bound.events])
        values = _at(scene.particles.values[name], {s.particle_axis[group]: index})
        drawn[name] = values.reshape([count, *s.lengths(latent.plate), *latent.shape])
    return drawn


def _draw_plate(
    scene: Scene,
    plate: str | None,
    window: Window,
    indices: dict[str, Tensor],
    generator: torch.Generator,
) -> None:
    """Draw the groups of a plate's members in a window, then those of the plates inside."""
    s = scene.bound.structure

    def members(group: str) -> Tensor:
        around = {p: window[p] for p in s.chains[s.groups[group].plate]}
        return scene.bound.narrowed(indices[group].movedim(0, -1), around).movedim(-1, 0)

    for step in reversed(contract_plate(scene, plate, window, {}).eliminations):
        axes = {
            axis: members(g)
            for g, axis in s.particle_axis.items()
            if axis != step.axis and step.table.shape[axis] > 1
        }
        own = members(next(g for g, axis in s.particle_axis.items() if axis == step.axis))
        # Along its axis, the table at the particles of other groups that were drawn.
        log_p, along = _at(step.table, axes), step.axis + 1
        share = torch.softmax(log_p, along).cumsum(along)
        u = torch.rand(own.shape, generator=generator, dtype=share.dtype, device=share.device)
        last = share.narrow(along, -1, 1)
        index = (share < u * last).sum(along, keepdim=True)
        own.copy_(index.clamp_max(share.shape[along] - 1))
    for child in s.within(plate):
        for inner in scene.windows(child, window):
            _draw_plate(scene, child, inner, indices, generator)


def _at(table: Tensor, chosen: Mapping[int, Tensor]) -> Tensor:
    """Entries of a table at places along some axes, (draws, *axes of the table).

    Parameters
    ----------
    chosen
        By axis, places that broadcast to the result.
    """
    n, places = table.ndim, list[Tensor]()
    for axis, size in enumerate(table.shape):
        along = torch.arange(size, device=table.device)
        places.append(along.reshape([1, *[size if a == axis else 1 for a in range(n)]]))
    return table[tuple(chosen.get(axis, own) for axis, own in enumerate(places))]


def log_factors(bound: Bound, particles: Particles, plate: On, window: Window) -> dict[str, Tensor]:
    """Log factors of a plate's own groups and observations, by name.

    Parameters
    ----------
    window
        Block of members, of the plate and of those around it.

    Raises
    ------
    DesignError
        A log density is NaN or +∞.
    """
    s = bound.structure
    near = {name: bound.narrowed(v, window) for name, v in particles.values.items()}
    near |= {name: bound.narrowed(v, window) for name, v in bound.arrays.items()}
    exists = bound.exists(plate)
    if exists is not None:
        exists = bound.narrowed(exists, window)
    factors: dict[str, Tensor] = {}
    for group in s.groups_of(plate):
        log_q = bound.narrowed(particles.log_q[group.name], window)
        priors = (
            bound.log_density(x.prior, {**near, "=": near[x.name]}, x.name) for x in group.latents
        )
        log_p = reduce(add, priors)
        factors[group.name] = log_p - log_q
        if exists is not None:
            k = particles.k(bound, group.name)
            factors[group.name] = torch.where(exists, factors[group.name], -math.log(k))
    for observed in s.observed_in(plate):
        own = {**near, "=": near[observed.name]}
        if observed.name in bound.present:
            own["?"] = bound.narrowed(bound.present[observed.name], window)
        density = bound.log_density(observed.density, own, observed.name)
        factors[observed.name] = density if exists is None else torch.where(exists, density, 0.0)
    shape = [-1] * s.ndim
    for p in s.chains[plate]:
        shape[s.plate_axis[p]] = window[p][1]
    fine = [(factor < torch.inf).all() for factor in factors.values()]
    if fine and not bool(torch.stack(fine).all()):
        names = [name for name, is_fine in zip(factors, fine, strict=True) if not bool(is_fine)]
        msg = f"the log density of {few(names)} is no number: check that parameters are in range"
        msg += ", and no value of data at the edge of it"
        raise DesignError(msg)
    return {name: factor.expand(shape) for name, factor in factors.items()}


def joint_bound(bound: Bound) -> Bound:
    """Return the same model and data, with one axis for draws of all latents at once."""
    return replace(bound, structure=bound.structure.joint, known={})


def joint_log_weights(bound: Bound, particles: Particles) -> Tensor:
    """Log P(data, z) − log Q(z) of draws of all latents at once, less log K for each member.

    Parameters
    ----------
    bound, particles
        With the axes of `Structure.joint`.

    Returns
    -------
    Tensor
        Shape (draws,).
    """
    s, axis = bound.structure, axis_of(bound)
    total = torch.zeros(1, dtype=torch.float64, device=bound.device)
    for plate in s.chains:
        for factor in log_factors(bound, particles, plate, s.whole(plate)).values():
            total = total + factor.movedim(axis, -1).flatten(0, -2).sum(0)
    return total


class Elimination(NamedTuple):
    """One axis summed out of the product of the tables that have it."""

    axis: int
    table: Tensor
    """Log of the product: along the axis, up to a constant, log P(particle | the other axes)."""


class Contracted(NamedTuple):
    """Result of summing out axes."""

    message: Tensor
    eliminations: tuple[Elimination, ...]


def contract(factors: Sequence[Tensor], axes: frozenset[int]) -> Contracted:
    """Log of the sum over `axes` of the product of tables, given as logarithms.

    Parameters
    ----------
    factors
        Arrays with the same number of axes; a table lacks an axis of size 1.
    axes
        Axes to sum over; all have size 1 in the message.
    """
    left = list(factors)
    tables = tuple(sizes_of(dict(enumerate(f.shape))) for f in left)
    done: list[Elimination] = []
    for step in contraction_steps(tables, axes):
        total = reduce(add, (left[i] for i in step.picked))
        left = [f for i, f in enumerate(left) if i not in step.picked]
        for axis in step.summed:
            done.append(Elimination(axis, total))
            total = torch.logsumexp(total, axis, keepdim=True)
        left.append(total)
    return Contracted(left[0], tuple(done))


class Step(NamedTuple):
    """One product of tables; it goes to the end of their list."""

    picked: tuple[int, ...]
    summed: tuple[int, ...]
    """Axes that no other table has."""
    entries: int
    """Of the product."""


@lru_cache(maxsize=512)
def contraction_steps(tables: tuple[Sizes, ...], axes: frozenset[int]) -> tuple[Step, ...]:
    """Return which tables to multiply in turn, and the axes to sum out of each product."""
    try:
        oe: Any = import_module("opt_einsum")
    except ModuleNotFoundError as error:
        msg = f"models of nested plates need opt_einsum: {install_hint('models')}"
        raise DesignError(msg) from error
    terms = ["".join(oe.get_symbol(a) for a, _ in table) for table in tables]
    all_axes = dict.fromkeys(a for table in tables for a, _ in table)
    kept = "".join(oe.get_symbol(a) for a in all_axes if a not in axes)
    shapes = [tuple(n for _, n in table) for table in tables]
    path, _ = oe.contract_path(f"{','.join(terms)}->{kept}", *shapes, shapes=True)
    left, steps = [dict(table) for table in tables], list[Step]()
    for chosen in path:
        picked = tuple(int(i) for i in chosen)
        total = {axis: n for i in picked for axis, n in left[i].items()}
        left = [table for i, table in enumerate(left) if i not in picked]
        summed = sorted(axes & (total.keys() - {a for table in left for a in table}))
        steps.append(Step(picked, tuple(summed), math.prod(total.values())))
        left.append({axis: n for axis, n in total.items() if axis not in summed})
    return tuple(steps)


def sizes_of(axes: Mapping[int, int]) -> Sizes:
    """Return the axes longer than 1, in order."""
    return tuple((axis, n) for axis, n in sorted(axes.items()) if n > 1)


class Particles(NamedTuple):
    """K particles of each group."""

    values: dict[str, Tensor]
    """By latent, with axes of plates, of particles and of vectors."""
    log_q: dict[str, Tensor]
    """Log density of the proposals by group, summed over vectors, plus log K; 0 where the particles
    are all values of a latent."""

    def k(self, bound: Bound, group: str) -> int:
        """Number of particles of a group."""
        latent = bound.structure.groups[group].latents[0]
        return self.values[latent.name].shape[bound.structure.particle_axis[group]]


def draw_particles(
    bound: Bound,
    proposals: Proposals,
    k: int,
    generator: torch.Generator,
    *,
    fixed: bool = False,
) -> Particles:
    """Draw K particles of each latent, parents first; `fixed`: they have no derivatives."""
    values: dict[str, Tensor] = {}
    log_q: dict[str, Tensor] = {}
    for group in bound.structure.groups.values():
        exact = proposals.exact.get(group.name)
        if exact is not None:
            shape = bound.shape(None, group.name, len(exact)) + bound.vector(())
            wide = bound.shape(group.plate, group.name, len(exact)) + bound.vector(())
            values[group.name] = exact.reshape(shape).expand(wide)
            log_q[group.name] = bound.zeros()
            continue
        terms: list[Tensor] = []
        order: dict[int, Tensor] = {}
        for latent in group.latents:
            shape = bound.shape(group.plate, group.name, k) + bound.vector(latent.shape)
            if latent.program is not None:
                near = {**bound.arrays, **values}
                given = _given_one_particle(bound, group, latent, near, order, generator)
                natural = [*shape[: bound.structure.ndim], *latent.shape]
                drawn = bound.sampled(latent.program, given, latent.name, natural, generator)
                near["="] = values[latent.name] = drawn.reshape(shape).detach()
                terms.append(bound.log_density(latent.program, near, latent.name))
                continue
            family = proposals.families[latent.name]
            drawn = family.sample(shape, generator)
            values[latent.name] = drawn.detach() if fixed else drawn
            log_p = family.log_prob(values[latent.name])
            vector = list(range(bound.structure.ndim, log_p.ndim))
            terms.append(log_p.sum(vector) if vector else log_p)
        log_q[group.name] = math.log(k) + reduce(add, terms)
        if order:
            # The density of a particle is that of a mixture over all particles of its parents.
            mixed = torch.logsumexp(log_q[group.name], tuple(order), keepdim=True)
            log_q[group.name] = mixed - len(order) * math.log(k)
    return Particles(values, log_q)


def _given_one_particle(
    bound: Bound, group: Group, latent: Latent, near: Mapping[str, Tensor],
    order: dict[int, Tensor], generator: torch.Generator,
) -> dict[str, Tensor]:  # fmt: skip
    """Return values with one particle of every parent for each of a group, along its own axis.

    Every particle of a parent is taken once, in an order drawn for each member, which is kept.
    """
    s, given = bound.structure, dict(near)
    own = s.particle_axis[group.name]
    for name in arguments(latent.program):
        axis = s.particle_axis[s.latents[name].set_of_particles] if name in s.latents else own
        if axis == own:
            continue
        if axis not in order:
            shape = bound.shape(
                group.plate, s.latents[name].set_of_particles, near[name].shape[axis]
            )
            drawn = torch.rand(shape, generator=generator, device=bound.device)
            order[axis] = drawn.argsort(axis).reshape([*shape, *[1] * bound.events])
        given[name] = torch.take_along_dim(near[name], order[axis], axis).transpose(axis, own)
    return given


@dataclass(frozen=True)
class Proposals:
    """Independent proposals."""

    families: dict[str, Family]
    """By latent; parameters have one axis per plate, particle (1) and vector."""
    exact: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    """By latent with finitely many values: all of them."""


def first_proposals(bound: Bound, generator: torch.Generator) -> Proposals:
    """Return the first proposals: those of the model, or matched to draws from the prior."""
    families: dict[str, Family] = {}
    exact: dict[str, Tensor] = {}
    latents = bound.structure.latents
    joint = joint_bound(bound)
    most = max((math.prod(_shape(bound, x)) for x in latents.values()), default=1)
    count = max(100, min(_PRIOR_DRAWS, _PRIOR_NUMBERS // most))
    prior = prior_values(joint, count, generator)
    for name, latent in latents.items():
        if latent.program is not None:
            if known := [x for x in arguments(latent.program) if x in exact]:
                msg = f"the proposal of {name!r} depends on {few(known)}, of finitely many values"
                raise DesignError(f"{msg}, which are summed: leave them out")
            continue
        prototype = example(joint, latent, prior)
        if latent.proposal is not None:
            families[name] = as_family(latent.proposal, name).expanded(_shape(bound, latent))
            tried = families[name].sample([_TRIED, *_shape(bound, latent)], generator)
            with unchecked():
                outside = ~prototype.support.check(tried)
                # Beyond a support, most distributions of torch have some density all the same.
                if bool((outside & log_prob_of(prototype, tried).isfinite()).any()):
                    msg = f"latent {name!r}: the proposal has values beyond the prior's support"
                    raise DesignError(f"{msg}: give one on the same values")
            continue
        family = family_for(prototype, name)
        if family is None:
            if latent.group is not None or latent.shape:
                msg = f"latent {name!r} has finitely many values, which are summed exactly"
                raise DesignError(f"{msg}: give it no group, and no shape")
            exact[name] = prototype.enumerate_support(expand=False).reshape(-1).to(bound.device)
            if exact[name].dtype != torch.long:
                exact[name] = exact[name].double()
            continue
        drawn = prior[name]
        # Draws far out in the tails would make the first proposal far too wide.
        low, high = (torch.quantile(drawn, q, dim=axis_of(joint), keepdim=True) for q in _TAILS)
        drawn = torch.minimum(torch.maximum(drawn, low), high)
        means = [m.mean(axis_of(joint), keepdim=True) for m in family.statistics(drawn)]
        families[name] = family.from_means(means).expanded(_shape(bound, latent))
    return Proposals(families, exact)


def axis_of(joint: Bound) -> int:
    """Return the axis of draws of all latents at once."""
    return next(iter(joint.structure.particle_axis.values()))


def example(joint: Bound, latent: Latent, prior: Mapping[str, Tensor]) -> Any:
    """Return the prior distribution of a latent at one draw of its parents."""
    values = {**joint.arrays, **prior}
    parents = {}
    for name in arguments(latent.prior):
        x = values[name]
        rank = joint.ranks[name]
        flat = x.reshape(-1, *x.shape[x.ndim - rank :]) if rank else x.reshape(-1)
        parents[name] = flat[0]
    return latent.prior(**parents) if callable(latent.prior) else latent.prior


def _shape(bound: Bound, latent: Latent) -> list[int]:
    return bound.shape(latent.plate) + bound.vector(latent.shape)
