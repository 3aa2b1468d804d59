"""The massively parallel estimate of the evidence, P_MP, and the weights of particles [HLA23]_.

log P_MP sums over all combinations of K particles of n groups, of which there are Kⁿ: inside a
plate by elimination, between its members by a product. Plates are split in blocks of members, of
which only one at a time is in memory.
"""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from evalstats_plugin.errors import DesignError
from evalstats_plugin.hierarchical.bound import Bound, Window
from evalstats_plugin.hierarchical.contraction import Contracted, contract
from evalstats_plugin.hierarchical.factors import log_factors
from evalstats_plugin.hierarchical.particles import Particles

Sources = Mapping[str, Tensor]
"""Zeros added to the factors of groups: derivatives by them are posterior expectations."""


@dataclass(frozen=True)
class Scene:
    """Particles of a model, and how many members of each plate to look at together."""

    bound: Bound
    particles: Particles
    blocks: Mapping[str, int]

    def windows(self, plate: str, around: Window) -> Iterator[dict[str, tuple[int, int]]]:
        """Cut a plate into blocks, inside a window on the plates around it."""
        size, block = self.bound.structure.sizes[plate], self.blocks[plate]
        for start in range(0, size, block):
            yield {**around, plate: (start, min(block, size - start))}


class Weighed(NamedTuple):
    """Evidence, and where the posterior is among the particles."""

    log_evidence: float
    weights: dict[str, Tensor]
    """By group: of each member's particles, summing to 1 along their axis."""


def log_evidence(scene: Scene, sources: Sources | None = None) -> Tensor:
    """Log P_MP, differentiable in `sources`, and in the particles where they are.

    The derivative by a source at 0 is the posterior expectation of what it is multiplied with: a
    source per particle gives marginal weights, one per entry of a group's factor gives the joint
    distribution of parents and children, one alone times f(z) gives E f(z) [BHA24]_.

    Raises
    ------
    DesignError
        No combination of particles has a density above 0.
    """
    total = local(scene, None, {}, sources or {}).message.reshape(())
    if not bool(torch.isfinite(total.detach())):
        _explain(scene)
    return total


def local(scene: Scene, plate: str | None, window: Window, sources: Sources) -> Contracted:
    """Sum out the particles of a plate's own groups, given all that is inside the plate."""
    s = scene.bound.structure
    own = log_factors(scene.bound, scene.particles, plate, window)
    for name in own.keys() & sources.keys():
        own[name] = own[name] + scene.bound.narrowed(sources[name], window)
    inside = [_inside(scene, child, window, sources) for child in s.within(plate)]
    axes = frozenset(s.particle_axis[g.name] for g in s.groups_of(plate))
    nothing = torch.zeros([1] * s.ndim, dtype=torch.float64, device=scene.bound.device)
    return contract([*own.values(), *inside] or [nothing], axes)


def _inside(scene: Scene, plate: str, around: Window, sources: Sources) -> Tensor:
    """Message of a plate to those around it: the product over its members."""
    axis = scene.bound.structure.plate_axis[plate]

    def of_block(scene: Scene, window: Window, sources: Sources) -> Tensor:
        return local(scene, plate, window, sources).message.sum(axis, keepdim=True)

    windows = list(scene.windows(plate, around))
    if len(windows) == 1:
        return of_block(scene, windows[0], sources)
    tensors = _Tensors(scene.particles.values, scene.particles.log_q, dict(sources))
    total: Any = 0.0
    for window in windows:

        def run(given: _Tensors, window: dict[str, tuple[int, int]] = window) -> Tensor:
            near = Particles(given.values, given.log_q, scene.particles.k)
            return of_block(Scene(scene.bound, near, scene.blocks), window, given.sources)

        total = total + _Forgetting.apply(run, tensors.names(), *tensors.flat())
    return total


class _Tensors(NamedTuple):
    """All that a block is computed from."""

    values: dict[str, Tensor]
    log_q: dict[str, Tensor]
    sources: dict[str, Tensor]

    def names(self) -> tuple[tuple[str, ...], ...]:
        return tuple(tuple(part) for part in self)

    def flat(self) -> list[Tensor]:
        return [x for part in self for x in part.values()]

    @staticmethod
    def named(names: tuple[tuple[str, ...], ...], flat: Sequence[Tensor]) -> _Tensors:
        left = iter(flat)
        return _Tensors(*({name: next(left) for name in part} for part in names))


class _Forgetting(torch.autograd.Function):
    """Compute a block without remembering it, and again when its derivative is asked for.

    As ``torch.utils.checkpoint``, whose first call imports all of torch's compiler.
    """

    @staticmethod
    def forward(ctx: Any, run: Any, names: Any, *flat: Any) -> Any:
        ctx.run, ctx.names = run, names
        ctx.save_for_backward(*flat)
        return run(_Tensors.named(names, flat))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        flat = [x.detach().requires_grad_(x.requires_grad) for x in ctx.saved_tensors]
        wanted = [x for x in flat if x.requires_grad]
        with torch.enable_grad():
            message = ctx.run(_Tensors.named(ctx.names, flat))
        found = iter(torch.autograd.grad(message, wanted, gradients[0], allow_unused=True))
        return (None, None, *(next(found) if x.requires_grad else None for x in flat))


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


def joint_weights(scene: Scene, group: str) -> Tensor:
    """Posterior of a group's particles and those of its parents together, per member.

    Returns
    -------
    Tensor
        With the axes of the group's plates and of the particles of it and of its parents.
    """
    s, k = scene.bound.structure, scene.particles.k
    shape = scene.bound.shape(s.groups[group].plate, group, k)
    for parent in s.groups[group].parents:
        shape[s.particle_axis[parent]] = k
    source = torch.zeros(shape, dtype=torch.float64, device=scene.bound.device).requires_grad_()
    with torch.enable_grad():
        total = log_evidence(scene, {group: source})
    return torch.autograd.grad(total, source)[0]


def expectation(scene: Scene, latent: str, function: Any) -> Tensor:
    """E f(z) of a latent z, for each member: one self-normalised estimate, not unbiased.

    Parameters
    ----------
    function
        From particles to numbers of the same shape.
    """
    s = scene.bound.structure
    group = s.latents[latent].set_of_particles
    weights = weigh(scene).weights[group]
    return mean_under(scene.bound, weights, function(scene.particles.values[latent]), group)


def mean_under(bound: Bound, weights: Tensor, values: Tensor, group: str) -> Tensor:
    """Mean of numbers per particle under marginal weights; the particles' axis has size 1."""
    spread = weights.reshape(weights.shape + (1,) * bound.events)
    return (spread * values).sum(bound.structure.particle_axis[group], keepdim=True)


def _explain(scene: Scene) -> None:
    """Raise an error that names the factor that leaves no particle."""
    s = scene.bound.structure
    for plate in s.chains:
        window = {p: (0, s.sizes[p]) for p in s.chains[plate]}
        for name, factor in log_factors(scene.bound, scene.particles, plate, window).items():
            axes = list(s.particle_axis.values())
            none = factor.amax(axes) == -torch.inf
            if bool(none.any()):
                msg = (
                    f"log density of {name!r} is −∞ for all {scene.particles.k} particles of "
                    f"{int(none.sum())} of {none.numel()} members: its proposal misses where it "
                    "has a density; give proposal= or more particles"
                )
                raise DesignError(msg)
    msg = (
        f"no combination of {scene.particles.k} particles has a density above 0: give more "
        "particles, or proposals nearer to the data"
    )
    raise DesignError(msg)
