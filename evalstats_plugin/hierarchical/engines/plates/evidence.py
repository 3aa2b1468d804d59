"""Massively parallel estimate of the evidence, P_MP, and weights of particles [HLA23]_.

log P_MP sums over all Kⁿ combinations of K particles of n groups: by variable elimination inside a
plate, by a product over its members. Plates are split into blocks of members, of which one at a
time is in memory. Posterior weights are derivatives of log P_MP.

* `log_evidence`, `weigh`, `posterior_draws`: the estimate, marginal weights, and joint draws
* `log_factors`: the tables log P − log Q − log K of each group, and log P of the data
* `contract`: sum tables over particles in the log domain, in a good order
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch import Tensor

from evalstats_plugin.errors import DesignError, few
from evalstats_plugin.hierarchical.engines.plates.distributions import Family
from evalstats_plugin.hierarchical.engines.plates.model import Bound, Latent, Window

Sources = Mapping[str, Tensor]
"""Zeros added to the factors of groups; derivatives by them are posterior expectations."""


Sizes = tuple[tuple[int, int], ...]
"""Axes of a table, and their lengths."""


_PRIOR_DRAWS, _PRIOR_NUMBERS = 2000, 4_000_000
"""Draws from the prior that default proposals are matched to, and most numbers in them."""


@dataclass(frozen=True)
class Scene:
    """Particles of a model, and the number of members of each plate in a block."""

    bound: Bound
    particles: Particles
    blocks: Mapping[str, int]

    def windows(self, plate: str, around: Window) -> Iterator[dict[str, tuple[int, int]]]:
        """Split a plate into blocks, inside a window on the plates around it."""
        size, block = self.bound.structure.sizes[plate], self.blocks[plate]
        for start in range(0, size, block):
            yield {**around, plate: (start, min(block, size - start))}


def log_evidence(scene: Scene, sources: Sources | None = None) -> Tensor:
    """Log P_MP, differentiable in `sources` and in the particles.

    The derivative by a source at 0 is the posterior expectation of its factor: a source per
    particle gives marginal weights, one per entry of a group's factor gives the joint distribution
    of parents and children, a single one times f(z) gives E f(z) [BHA24]_.

    Raises
    ------
    DesignError
        No combination of particles has a density above 0.
    """
    total = contract_plate(scene, None, {}, sources or {}).message.reshape(())
    if not bool(torch.isfinite(total.detach())):
        msg = (
            f"no combination of {scene.particles.k} particles has a density above 0: take "
            "inference 'gibbs'"
        )
        raise DesignError(msg)
    return total


def contract_plate(scene: Scene, plate: str | None, window: Window, sources: Sources) -> Contracted:
    """Sum out the particles of a plate's own groups, after those of the plates inside."""
    s = scene.bound.structure
    own = log_factors(scene.bound, scene.particles, plate, window)
    for name in own.keys() & sources.keys():
        own[name] = own[name] + scene.bound.narrowed(sources[name], window)
    inside = [_inside(scene, child, window, sources) for child in s.within(plate)]
    axes = frozenset(s.particle_axis[g.name] for g in s.groups_of(plate))
    nothing = torch.zeros([1] * s.ndim, dtype=torch.float64, device=scene.bound.device)
    return contract([*own.values(), *inside] or [nothing], axes)


def _inside(scene: Scene, plate: str, around: Window, sources: Sources) -> Tensor:
    """Return the message of a plate to those around it: the product over its members."""
    axis = scene.bound.structure.plate_axis[plate]

    def of_block(scene: Scene, window: Window, sources: Sources) -> Tensor:
        return contract_plate(scene, plate, window, sources).message.sum(axis, keepdim=True)

    windows = list(scene.windows(plate, around))
    if len(windows) == 1:
        return of_block(scene, windows[0], sources)
    tensors = _BlockInputs(scene.particles.values, scene.particles.log_q, dict(sources))
    recomputed: Any = _Recomputed
    total: Any = 0.0
    for window in windows:

        def run(given: _BlockInputs, window: dict[str, tuple[int, int]] = window) -> Tensor:
            near = Particles(given.values, given.log_q, scene.particles.k)
            return of_block(Scene(scene.bound, near, scene.blocks), window, given.sources)

        total = total + recomputed.apply(run, tensors.names(), *tensors.flat())
    return total


class _BlockInputs(NamedTuple):
    """Tensors that a block is computed from."""

    values: dict[str, Tensor]
    log_q: dict[str, Tensor]
    sources: dict[str, Tensor]

    def names(self) -> tuple[tuple[str, ...], ...]:
        return tuple(tuple(part) for part in self)

    def flat(self) -> list[Tensor]:
        return [x for part in self for x in part.values()]

    @staticmethod
    def named(names: tuple[tuple[str, ...], ...], flat: Sequence[Tensor]) -> _BlockInputs:
        left = iter(flat)
        return _BlockInputs(*({name: next(left) for name in part} for part in names))


class _Recomputed(torch.autograd.Function):
    """Gradient checkpointing: compute a block without storing it, and again for its derivative.

    Like ``torch.utils.checkpoint``, whose first call imports all of torch's compiler.
    """

    @staticmethod
    def forward(ctx: Any, run: Any, names: Any, *flat: Any) -> Any:
        ctx.run, ctx.names = run, names
        ctx.save_for_backward(*flat)
        return run(_BlockInputs.named(names, flat))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        flat = [x.detach().requires_grad_(x.requires_grad) for x in ctx.saved_tensors]
        wanted = [x for x in flat if x.requires_grad]
        with torch.enable_grad():
            message = ctx.run(_BlockInputs.named(ctx.names, flat))
        found = iter(torch.autograd.grad(message, wanted, gradients[0], allow_unused=True))
        return (None, None, *(next(found) if x.requires_grad else None for x in flat))


class Weighed(NamedTuple):
    """Evidence, and posterior weights of particles."""

    log_evidence: float
    weights: dict[str, Tensor]
    """By group: weights of the particles of each member, summing to 1 along their axis."""


def weigh(scene: Scene) -> Weighed:
    """Evidence and marginal weights, by one backward pass."""
    s, k = scene.bound.structure, scene.particles.k
    device = scene.bound.device
    sources = {
        g.name: torch.zeros(
            scene.bound.shape(g.plate, g.name, k), dtype=torch.float64, device=device
        ).requires_grad_()
        for g in s.groups.values()
    }
    with torch.enable_grad():
        total = log_evidence(scene, sources)
    gradients = torch.autograd.grad(total, list(sources.values()))
    return Weighed(float(total.detach()), dict(zip(sources, gradients, strict=True)))


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
    s = scene.bound.structure
    indices = {
        g.name: torch.zeros(
            [count, *(s.sizes[p] for p in s.chains[g.plate])],
            dtype=torch.long,
            device=scene.bound.device,
        )
        for g in s.groups.values()
    }
    with torch.no_grad():
        _draw_plate(scene, None, {}, indices, generator)
    return {x: _values(scene, x, indices[v.set_of_particles]) for x, v in s.latents.items()}


def _draw_plate(
    scene: Scene,
    plate: str | None,
    window: Window,
    indices: dict[str, Tensor],
    generator: torch.Generator,
) -> None:
    """Draw the groups of a plate's members in a window, then those of the plates inside."""
    s = scene.bound.structure
    group_of = {axis: g for g, axis in s.particle_axis.items()}
    for step in reversed(contract_plate(scene, plate, window, {}).eliminations):
        group = group_of[step.axis]
        _members(scene, group, window, indices[group]).copy_(
            _draw_group(scene, group, window, indices, step=step, generator=generator)
        )
    for child in s.within(plate):
        for inner in scene.windows(child, window):
            _draw_plate(scene, child, inner, indices, generator)


def _draw_group(
    scene: Scene,
    group: str,
    window: Window,
    indices: dict[str, Tensor],
    *,
    step: Elimination,
    generator: torch.Generator,
) -> Tensor:
    """Draw particles of a group's members, shape (count, members)."""
    s = scene.bound.structure
    chain = s.chains[s.groups[group].plate]
    given = [g for g, axis in s.particle_axis.items() if axis != step.axis
             and step.table.shape[axis] > 1]  # fmt: skip
    order = [*(s.plate_axis[p] for p in chain), *(s.particle_axis[g] for g in given), step.axis]
    rest = [a for a in range(s.ndim) if a not in order]
    table = step.table.permute(*order, *rest).flatten(len(order) - 1)
    lengths = [window[p][1] for p in chain]
    grid = [
        torch.arange(n, device=table.device).reshape([n] + [1] * (len(lengths) - i - 1))
        for i, n in enumerate(lengths)
    ]
    chosen = [
        _aligned(_members(scene, g, window, indices[g]), len(s.chains[s.groups[g].plate]), chain)
        for g in given
    ]
    count = len(indices[group])
    log_p = table[(*grid, *chosen)] if order[:-1] else table
    share = torch.softmax(log_p, -1).cumsum(-1).expand(count, *lengths, -1)
    u = torch.rand(
        [count, *lengths, 1], generator=generator, dtype=share.dtype, device=share.device
    )
    return (share < u * share[..., -1:]).sum(-1).clamp_max(share.shape[-1] - 1)


def _aligned(index: Tensor, depth: int, chain: tuple[str, ...]) -> Tensor:
    """Return the index of an ancestor's particle with axes added for inner plates."""
    return index.reshape(index.shape + (1,) * (len(chain) - depth))


def _members(scene: Scene, group: str, window: Window, index: Tensor) -> Tensor:
    """Return a view of the members in a window."""
    s = scene.bound.structure
    for i, p in enumerate(s.chains[s.groups[group].plate]):
        if p in window:
            index = index.narrow(i + 1, *window[p])
    return index


def _values(scene: Scene, latent: str, index: Tensor) -> Tensor:
    """Return the values of the drawn particles."""
    s = scene.bound.structure
    found = s.latents[latent]
    value = scene.particles.values[latent]
    chain = s.chains[found.plate]
    order = [*(s.plate_axis[p] for p in chain), s.particle_axis[found.set_of_particles]]
    rest = [a for a in range(s.ndim) if a not in order]
    sizes = list(index.shape[1:])
    table = value.permute(*order, *rest, *range(s.ndim, value.ndim))
    table = table.reshape(*sizes, scene.particles.k, *found.shape)
    grid = [
        torch.arange(n, device=index.device).reshape([n] + [1] * (len(sizes) - i - 1))
        for i, n in enumerate(sizes)
    ]
    return table[(*grid, index)]


def log_factors(
    bound: Bound, particles: Particles, plate: str | None, window: Window
) -> dict[str, Tensor]:
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
    near = {name: bound.narrowed(v, window) for name, v in particles.values.items()}
    inputs = {name: bound.narrowed(v, window) for name, v in bound.arrays.items()}
    there = replace(bound, arrays=inputs)
    found: dict[str, Tensor] = {}
    for group in bound.structure.groups_of(plate):
        log_q = bound.narrowed(particles.log_q[group.name], window)
        log_p = sum_of(
            lambda x: there.log_density(there.call(x.prior, near, x.name), near[x.name]),
            group.latents,
        )
        found[group.name] = log_p - log_q - math.log(particles.k)
    for observed in bound.structure.observed_in(plate):
        density = there.call(observed.density, near, observed.name)
        found[observed.name] = there.log_density(density, inputs[observed.name])
    shape = [-1] * bound.structure.ndim
    for p in bound.structure.chains[plate]:
        shape[bound.structure.plate_axis[p]] = window[p][1]
    fine = [(factor < torch.inf).all() for factor in found.values()]
    if fine and not bool(torch.stack(fine).all()):
        names = [name for name, one in zip(found, fine, strict=True) if not bool(one)]
        msg = f"the log density of {few(names)} is no number: take inference 'gibbs'"
        raise DesignError(msg)
    return {name: factor.expand(shape) for name, factor in found.items()}


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
    done: list[Elimination] = []
    for picked in contraction_path(tuple(_sizes(f) for f in left), axes):
        total = left[picked[0]]
        for i in picked[1:]:
            total = total + left[i]
        left = [f for i, f in enumerate(left) if i not in picked]
        kept = {axis for f in left for axis, _ in _sizes(f)}
        for axis, _ in _sizes(total):
            if axis in axes and axis not in kept:
                done.append(Elimination(axis, total))
                total = torch.logsumexp(total, axis, keepdim=True)
        left.append(total)
    return Contracted(left[0], tuple(done))


@lru_cache(maxsize=512)
def contraction_path(
    tables: tuple[Sizes, ...], axes: frozenset[int]
) -> tuple[tuple[int, ...], ...]:
    """Return which tables to multiply in turn; each product goes to the end of the list."""
    try:
        oe: Any = import_module("opt_einsum")
    except ModuleNotFoundError as error:
        msg = "models of nested plates need opt_einsum: pip install 'evalstats-plugin[models]'"
        raise DesignError(msg) from error
    terms = ["".join(oe.get_symbol(a) for a, _ in table) for table in tables]
    known = dict.fromkeys(a for table in tables for a, _ in table)
    kept = "".join(oe.get_symbol(a) for a in known if a not in axes)
    shapes = [tuple(n for _, n in table) for table in tables]
    found, _ = oe.contract_path(f"{','.join(terms)}->{kept}", *shapes, shapes=True)
    return tuple(tuple(int(i) for i in picked) for picked in found)


def _sizes(table: Tensor) -> Sizes:
    return tuple((axis, n) for axis, n in enumerate(table.shape) if n > 1)


def largest_table(tables: Sequence[Sizes], axes: frozenset[int]) -> int:
    """Return the number of entries of the largest intermediate table."""
    left, most = [dict(t) for t in tables], 1
    for picked in contraction_path(tuple(tables), axes):
        total = {axis: n for i in picked for axis, n in left[i].items()}
        most = max(most, math.prod(total.values()))
        left = [t for i, t in enumerate(left) if i not in picked]
        kept = {axis for t in left for axis in t}
        left.append({a: n for a, n in total.items() if a not in axes or a in kept})
    return most


class Particles(NamedTuple):
    """K particles of each group."""

    values: dict[str, Tensor]
    """By latent, with axes of plates, of particles and of vectors."""
    log_q: dict[str, Tensor]
    """Log density of the proposals by group, summed over vectors."""
    k: int


def draw_particles(
    bound: Bound,
    proposals: Proposals,
    k: int,
    generator: torch.Generator,
) -> Particles:
    """Draw K particles of each latent, parents first."""
    values: dict[str, Tensor] = {}
    log_q: dict[str, Tensor] = {}
    for group in bound.structure.groups.values():
        for latent in group.latents:
            shape = bound.shape(group.plate, group.name, k) + bound.vector(latent.shape)
            values[latent.name] = proposals.families[latent.name].sample(shape, generator)
        log_q[group.name] = sum_of(
            lambda x: bound.log_density(proposals.families[x.name], values[x.name]),
            group.latents,
        )
    return Particles(values, log_q, k)


def sum_of(term: Callable[[Latent], Tensor], latents: tuple[Latent, ...]) -> Tensor:
    """Sum over the latents of a group."""
    total = term(latents[0])
    for latent in latents[1:]:
        total = total + term(latent)
    return total


@dataclass(frozen=True)
class Proposals:
    """Independent proposals."""

    families: dict[str, Family]
    """By latent; parameters have one axis per plate, particle (1) and vector."""

    def moved(self, means: Mapping[str, Sequence[Tensor]]) -> Proposals:
        """Return proposals with these mean parameters."""
        fresh = {x: type(self.families[x]).from_means(m) for x, m in means.items()}
        return Proposals({**self.families, **fresh})


def first_proposals(bound: Bound, generator: torch.Generator) -> Proposals:
    """Return the first proposals: those of the model, or matched to the prior."""
    families: dict[str, Family] = {}
    prior: dict[str, Tensor] = {}
    for latent in bound.structure.latents.values():
        families[latent.name] = (
            _matched_to_prior(bound, latent, prior, generator)
            if latent.proposal is None
            else _expanded(latent.proposal, _shape(bound, latent), bound)
        )
    return Proposals(families)


def _shape(bound: Bound, latent: Latent) -> list[int]:
    return bound.shape(latent.plate) + bound.vector(latent.shape)


def _expanded(family: Family, shape: list[int], bound: Bound) -> Family:
    """Return a family with parameters for every member, on the device."""
    parts = [x.expand(shape).contiguous() for x in family.to(bound.device).parameters()]
    return type(family)(*parts)


def _matched_to_prior(
    bound: Bound, latent: Latent, prior: dict[str, Tensor], generator: torch.Generator
) -> Family:
    """Return a proposal that matches draws from the prior, of the same family."""
    shape = _shape(bound, latent)
    family = _draw_prior(bound, latent, prior, generator)
    means = [m.mean(0).expand(shape).contiguous() for m in family.statistics(prior[latent.name])]
    return type(family).from_means(means)


def _draw_prior(
    bound: Bound, latent: Latent, prior: dict[str, Tensor], generator: torch.Generator
) -> Family:
    """Draw a latent from its prior after its parents, with draws on a new first axis."""
    latents = bound.structure.latents
    for parent in bound.structure.parents_of(latent):
        if parent not in prior:
            _draw_prior(bound, latents[parent], prior, generator)
    family: Any = bound.call(latent.prior, prior, latent.name)
    most = max(math.prod(_shape(bound, x)) for x in latents.values())
    draws = max(100, min(_PRIOR_DRAWS, _PRIOR_NUMBERS // most))
    prior[latent.name] = family.sample([draws, *_shape(bound, latent)], generator)
    return family
