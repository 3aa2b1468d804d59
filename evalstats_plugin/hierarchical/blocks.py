"""How many members of each plate fit in memory together."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from evalstats_plugin.errors import DesignError
from evalstats_plugin.hierarchical.bound import Bound
from evalstats_plugin.hierarchical.contraction import Sizes, largest
from evalstats_plugin.sampling.devices import check_memory

# Copies of a table that exist at once, while it is computed and while it is derived.
_COPIES = 6
_BYTES = 8


def choose_blocks(bound: Bound, k: int, limit: int) -> dict[str, int]:
    """Largest blocks of members, halved from the outermost plate inwards until they fit.

    Parameters
    ----------
    k
        Particles.
    limit
        Bytes.

    Raises
    ------
    DesignError
        One member of each plate needs more than the limit, or than there is.
    """
    s = bound.structure
    blocks = dict(s.sizes)
    check_memory(
        _BYTES * _stored(bound, k), bound.device, f"{k} particles of {len(s.latents)} latents"
    )
    while (needed := memory(bound, k, blocks)) > limit:
        divisible = [p for p in blocks if blocks[p] > 1]
        if not divisible:
            sizes = ", ".join(f"{p} {n}" for p, n in s.sizes.items()) or "no plates"
            msg = (
                f"{k} particles of {len(s.groups)} groups ({sizes}) need about "
                f"{needed / 2**20:.4g} MiB for one member of each plate, expected at most "
                f"{limit / 2**20:.4g} MiB: take fewer particles, depend on fewer parents, or "
                "raise memory="
            )
            raise DesignError(msg)
        blocks[divisible[0]] = -(-blocks[divisible[0]] // 2)
    check_memory(needed, bound.device, f"tables of {k} particles")
    return blocks


def memory(bound: Bound, k: int, blocks: Mapping[str, int]) -> int:
    """Bytes that the tables of one block take, in the plates around and inside it too."""
    return _BYTES * _COPIES * _tables(bound, k, blocks, None)[0]


def _tables(
    bound: Bound, k: int, blocks: Mapping[str, int], plate: str | None
) -> tuple[int, Sizes]:
    """Numbers in the tables of a plate and those inside it; axes of its message."""
    s = bound.structure
    chain = {s.plate_axis[p]: blocks[p] for p in s.chains[plate]}
    total, tables = 0, list[Sizes]()
    own = [*(g.name for g in s.groups_of(plate)), *(o.name for o in s.observed_in(plate))]
    for name in own:
        axes = {**chain, **{s.particle_axis[g]: k for g in s.groups_seen(name)}}
        tables.append(_lasting(axes))
        total += math.prod(axes.values()) * _vector(bound, name)
    for child in s.within(plate):
        inside, message = _tables(bound, k, blocks, child)
        total += inside
        tables.append(message)
    axes = frozenset(s.particle_axis[g.name] for g in s.groups_of(plate))
    if not tables:
        return total, ()
    known = {a: n for table in tables for a, n in table if a not in axes}
    if plate is not None:
        known.pop(s.plate_axis[plate], None)
    return total + largest(tables, axes), _lasting(known)


def _lasting(axes: Mapping[int, int]) -> Sizes:
    """Axes that a table really has."""
    return tuple((a, n) for a, n in sorted(axes.items()) if n > 1)


def _vector(bound: Bound, name: str) -> int:
    """Numbers in the vectors that the density of a group, or of data, is computed from."""
    s = bound.structure
    if name in s.groups:
        return max(math.prod(x.shape) for x in s.groups[name].latents)
    near = [x for g in s.groups_seen(name) for x in s.groups[g].latents]
    data = bound.arrays[name].shape[s.ndim :]
    return max(math.prod(data), *(math.prod(x.shape) for x in near), 1)


def _stored(bound: Bound, k: int) -> int:
    """Numbers in the particles themselves."""
    return sum(
        k * math.prod(bound.shape(x.plate)) * math.prod(x.shape)
        for x in bound.structure.latents.values()
    )


def default_limit(device: torch.device) -> int:
    """Bytes for the tables of a block: few on a CPU, whose caches are faster than its memory."""
    return 2**26 if device.type == "cpu" else 2**31
