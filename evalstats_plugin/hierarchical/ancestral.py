"""Posterior draws: which particles, of all groups together, parents first.

Elimination leaves, for every group, the table of its particles given those eliminated after it:
walking it backwards draws each group given what it depends on, also groups that only their common
children tie together.
"""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import torch
from torch import Tensor

from evalstats_plugin.hierarchical.bound import Window
from evalstats_plugin.hierarchical.contraction import Elimination
from evalstats_plugin.hierarchical.evidence import Scene, local


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
        _visit(scene, None, {}, indices, generator)
    return {x: _taken(scene, x, indices[v.set_of_particles]) for x, v in s.latents.items()}


def _visit(
    scene: Scene,
    plate: str | None,
    window: Window,
    indices: dict[str, Tensor],
    generator: torch.Generator,
) -> None:
    """Draw the groups of a plate's members in a window, then what is inside."""
    s = scene.bound.structure
    group_of = {axis: g for g, axis in s.particle_axis.items()}
    for step in reversed(local(scene, plate, window, {}).eliminations):
        group = group_of[step.axis]
        _members(scene, group, window, indices[group]).copy_(
            _one_group(scene, group, window, indices, (step, generator))
        )
    for child in s.within(plate):
        for inner in scene.windows(child, window):
            _visit(scene, child, inner, indices, generator)


def _one_group(
    scene: Scene,
    group: str,
    window: Window,
    indices: dict[str, Tensor],
    how: tuple[Elimination, torch.Generator],
) -> Tensor:
    """Particles of a group's members, shape (count, members)."""
    step, generator = how
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
    """Index of an ancestor's particle, its members' axes followed by those of inner plates."""
    return index.reshape(index.shape + (1,) * (len(chain) - depth))


def _members(scene: Scene, group: str, window: Window, index: Tensor) -> Tensor:
    """View of the members in a window."""
    s = scene.bound.structure
    for i, p in enumerate(s.chains[s.groups[group].plate]):
        if p in window:
            index = index.narrow(i + 1, *window[p])
    return index


def _taken(scene: Scene, latent: str, index: Tensor) -> Tensor:
    """Values of the particles drawn."""
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
