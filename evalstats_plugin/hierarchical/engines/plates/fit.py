"""Inference in models on nested plates: adapt proposals, then average sets of fresh particles.

* `infer`: the fit
* `qem`: move proposals to the posterior's moments, as in expectation maximisation [HBA25]_
* `choose_blocks`: the number of members of each plate that fit in memory together
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from evalstats_plugin.errors import DesignError, counted
from evalstats_plugin.hierarchical.engines.plates.distributions import Normal
from evalstats_plugin.hierarchical.engines.plates.evidence import (
    Proposals,
    Scene,
    Sizes,
    draw_particles,
    first_proposals,
    largest_table,
    posterior_draws,
    weigh,
    weighted_mean,
)
from evalstats_plugin.hierarchical.engines.plates.model import Bound, Data, Model, bind
from evalstats_plugin.runtime.chains import pareto_shape
from evalstats_plugin.runtime.torch import check_memory, generator_of, resolve_device
from evalstats_plugin.stats.arrays import FloatArray

STEP = 0.5
"""Default share of the way to new moments."""

_BYTES, _COPIES = 8, 6
"""Bytes of a number, and copies of a table that exist at once with its derivatives."""

_WINDOW = 5
"""Iterations whose mean log evidence is compared with that of as many before."""

_DECAY = 9.0
"""The last step is 1 / (1 + this) of the first."""

_HALVINGS = 4
"""Most times that the step is halved."""


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """Number of particles, iterations and draws."""

    k: int = 30
    """Particles of each group and member."""
    iterations: int = 50
    step: float = STEP
    """Share of the way to new moments."""
    sets: int = 50
    """Fresh sets of particles that the results are averaged over."""
    draws: int = 1000
    memory: int | None = None
    """Bytes for the tables of one block of members; None: a fast default."""


class Moments(NamedTuple):
    """Posterior moments of one latent, with the shape of its plates and vector."""

    mean: FloatArray
    std_dev: FloatArray


@dataclass(frozen=True)
class PlatedFit:
    """Posterior of a model on nested plates."""

    log_evidence: float
    """Log of the mean P_MP of the last sets of particles; P_MP itself is unbiased."""
    log_evidence_error: float
    """Standard error, from the variance among the sets."""
    moments: dict[str, Moments]
    """By latent: self-normalised estimates, consistent but not unbiased."""
    draws: dict[str, FloatArray]
    """By latent, shape (draws, members of its plates, vector)."""
    ess: dict[str, FloatArray]
    """By group: effective particles of all sets, per member."""
    k_hat: dict[str, FloatArray]
    """By group: Pareto k of the weights, per member; unreliable above 0.7."""
    history: FloatArray
    """log P_MP of each iteration of the adaptation."""
    proposals: Proposals


def infer(
    model: Model,
    data: Data,
    *,
    options: FitOptions | None = None,
    device: str | torch.device = "auto",
    rng: np.random.Generator | int | None = None,
) -> PlatedFit:
    """Posterior and evidence by massively parallel importance sampling [HLA23]_.

    Parameters
    ----------
    data
        Observations and inputs by name: one axis per plate, outermost first, then of vectors.
    options
        With 0 iterations the first proposals are used as they are.

    Raises
    ------
    DesignError
        Data that do not fit the model, densities that are not finite, too little memory.
    """
    options = options or FitOptions()
    where = resolve_device(device)
    bound = bind(model, data, where)
    generator = generator_of(np.random.default_rng(rng), where)
    limit = default_limit(where) if options.memory is None else options.memory
    blocks = choose_blocks(bound, options.k, limit)

    def scene_of(proposals: Proposals) -> Scene:
        return Scene(bound, draw_particles(bound, proposals, options.k, generator), blocks)

    proposals = first_proposals(bound, generator)
    proposals, history = qem(proposals, scene_of, options.iterations, options.step)
    sets = [
        _Set(scene, *weigh(scene)) for scene in (scene_of(proposals) for _ in range(options.sets))
    ]
    return _average(
        bound, sets, proposals, np.array(history), draws=options.draws, generator=generator
    )


class _Set(NamedTuple):
    """One fresh set of particles."""

    scene: Scene
    log_evidence: float
    weights: dict[str, Tensor]


def _average(
    bound: Bound,
    sets: list[_Set],
    proposals: Proposals,
    history: FloatArray,
    *,
    draws: int,
    generator: torch.Generator,
) -> PlatedFit:
    """Average sets of particles, weighted by their evidence."""
    log_p = np.array([s.log_evidence for s in sets])
    relative = np.exp(log_p - log_p.max())
    share = relative / relative.sum()
    # Delta method for the log of a mean.
    error = relative.std(ddof=1) / relative.mean() / len(sets) ** 0.5 if len(sets) > 1 else np.nan
    moments = {x: _moments(bound, x, sets, share) for x in bound.structure.latents}
    pooled = {g: _pooled(bound, g, sets, share) for g in bound.structure.groups}
    ess = {g: 1 / (w * w).sum(-1) for g, w in pooled.items()}
    k_hat = {
        g: pareto_shape(w.reshape(-1, w.shape[-1])).reshape(w.shape[:-1]) for g, w in pooled.items()
    }
    return PlatedFit(
        float(np.log(relative.mean()) + log_p.max()),
        float(error),
        moments,
        _draws(sets, share, draws, generator),
        ess,
        k_hat,
        history,
        proposals,
    )


def _moments(bound: Bound, latent: str, sets: list[_Set], share: FloatArray) -> Moments:
    s = bound.structure
    found, group = s.latents[latent], s.latents[latent].set_of_particles
    shape = [*(s.sizes[p] for p in s.chains[found.plate]), *found.shape]
    first = second = torch.zeros(1, dtype=torch.float64, device=bound.device)
    for one, part in zip(sets, share.tolist(), strict=True):
        z, w = one.scene.particles.values[latent], one.weights[group] * part
        first = first + weighted_mean(bound, w, z, group)
        second = second + weighted_mean(bound, w, z * z, group)
    mean, square = (x.reshape(shape).cpu().numpy() for x in (first, second))
    return Moments(mean, np.sqrt(np.maximum(square - mean**2, 0)))


def _pooled(bound: Bound, group: str, sets: list[_Set], share: FloatArray) -> FloatArray:
    """Weights of the particles of all sets, shape (members of its plates, sets · K)."""
    s = bound.structure
    shape = [s.sizes[p] for p in s.chains[s.groups[group].plate]]
    of_sets = [
        (one.weights[group] * float(part)).reshape(*shape, -1).cpu().numpy()
        for one, part in zip(sets, share, strict=True)
    ]
    return np.concatenate(of_sets, axis=-1)


def _draws(
    sets: list[_Set], share: FloatArray, count: int, generator: torch.Generator
) -> dict[str, FloatArray]:
    """Posterior draws, from sets drawn by their share of the evidence."""
    weights = torch.as_tensor(share, device=generator.device)
    picked = torch.multinomial(weights, max(count, 1), replacement=True, generator=generator)
    counts: list[int] = np.bincount(picked[:count].cpu().numpy(), minlength=len(sets)).tolist()
    parts = [
        posterior_draws(one.scene, n, generator)
        for i, (one, n) in enumerate(zip(sets, counts, strict=True))
        if n or i == 0
    ]
    return {x: torch.cat([p[x] for p in parts]).cpu().numpy() for x in parts[0]}


def qem(
    proposals: Proposals, scene_of: Callable[[Proposals], Scene], iterations: int, step: float
) -> tuple[Proposals, list[float]]:
    """Adapt proposals by moment matching.

    Parameters
    ----------
    scene_of
        Function that draws fresh particles from proposals.
    step
        Share of the way that mean parameters move to the estimates, in (0, 1]; the safeguard may
        halve it.

    Returns
    -------
    tuple
        Adapted proposals, and log P_MP of each iteration.
    """
    history: list[float] = []
    safeguard = Safeguard(step)
    for t in range(iterations):
        scene = scene_of(proposals)
        weighed = weigh(scene)
        history.append(weighed.log_evidence)
        kept = safeguard.after(weighed.log_evidence, proposals)
        # Moments are valid only for the proposals that they were estimated with.
        moved = kept is proposals
        far = safeguard.step * _decay(t, iterations)
        proposals = improved(scene, weighed.weights, kept, far) if moved else kept
    return proposals, history


def improved(
    scene: Scene, weights: dict[str, Tensor], proposals: Proposals, step: float
) -> Proposals:
    """Return proposals with mean parameters moved part of the way to the posterior's."""
    latents = scene.bound.structure.latents
    means: dict[str, list[Tensor]] = {}
    for name, family in proposals.families.items():
        group = latents[name].set_of_particles
        values = family.statistics(scene.particles.values[name])
        found = [weighted_mean(scene.bound, weights[group], v, group) for v in values]
        moved = [old + step * (new - old) for old, new in zip(family.means(), found, strict=True)]
        if isinstance(family, Normal):
            # The square of a noisy mean is biased upwards, the variance downwards: without a
            # correction, proposals become too narrow to cover the posterior.
            away = scene.particles.values[name] - family.means()[0]
            noise = weighted_mean(scene.bound, weights[group] ** 2, away * away, group)
            moved[1] = moved[1] + step**2 * noise
        means[name] = moved
    return proposals.moved(means)


@dataclass
class Safeguard:
    """Halve the step when the evidence stops rising; return to the best proposals if it fell.

    Long steps are noisy with few effective particles, and noisy proposals reduce them further.
    """

    step: float
    best: Proposals | None = None
    halvings: int = 0
    _level: tuple[float, float] = (-np.inf, 0.0)
    """Mean log evidence of the best window, and its standard error."""
    _recent: list[tuple[float, Proposals]] = field(default_factory=list[tuple[float, Proposals]])

    def after(self, log_evidence: float, proposals: Proposals) -> Proposals:
        """Return the proposals to continue from, given the evidence of these."""
        self._recent.append((log_evidence, proposals))
        values = np.array([x for x, _ in self._recent])
        if len(values) < _WINDOW:
            return proposals
        mean, error = _mean(values[-_WINDOW:])
        if mean > self._level[0]:
            self.best, self._level = self._recent[-1][1], (mean, error)
        if len(values) < 2 * _WINDOW or self.halvings == _HALVINGS:
            return proposals
        before, error_before = _mean(values[-2 * _WINDOW : -_WINDOW])
        if mean - before > -0.5 * np.hypot(error, error_before):
            return proposals
        self.step, self.halvings = self.step / 2, self.halvings + 1
        self._recent.clear()
        far = self._level[0] - mean > 3 * np.hypot(error, self._level[1])
        return self.best if far and self.best is not None else proposals


def _mean(values: FloatArray) -> tuple[float, float]:
    return float(values.mean()), float(values.std(ddof=1) / len(values) ** 0.5)


def _decay(t: int, iterations: int) -> float:
    """Return the factor of the step, which decreases to average noise over more estimates."""
    return 1 / (1 + _DECAY * t / iterations)


def choose_blocks(bound: Bound, k: int, limit: int) -> dict[str, int]:
    """Return the largest blocks of members that fit, halving from the outermost plate inwards.

    Parameters
    ----------
    k
        Number of particles.
    limit
        Bytes for the tables of one block.

    Raises
    ------
    DesignError
        One member of each plate needs more than the limit, or than the free memory.
    """
    s = bound.structure
    blocks = dict(s.sizes)
    check_memory(
        _BYTES * _stored(bound, k), bound.device, f"{k} particles of {len(s.latents)} latents"
    )
    while (needed := memory_needed(bound, k, blocks)) > limit:
        divisible = [p for p in blocks if blocks[p] > 1]
        if not divisible:
            sizes = ", ".join(f"{p} {n}" for p, n in s.sizes.items()) or "no plates"
            msg = (
                f"{k} particles of {counted(len(s.groups), 'group')} ({sizes}) need about "
                f"{needed / 2**20:.4g} MiB for one member of each plate, more than the limit of "
                f"{limit / 2**20:.4g} MiB: use fewer particles, depend on fewer parents, or "
                "raise memory="
            )
            raise DesignError(msg)
        blocks[divisible[0]] = -(-blocks[divisible[0]] // 2)
    check_memory(needed, bound.device, f"tables of {k} particles")
    return blocks


def memory_needed(bound: Bound, k: int, blocks: Mapping[str, int]) -> int:
    """Return the bytes that the tables of one block take, of its plate and those inside."""
    return _BYTES * _COPIES * _tables(bound, k, blocks, None)[0]


def default_limit(device: torch.device) -> int:
    """Return the default bytes for the tables of a block: small on a CPU, to stay in its caches."""
    return 2**26 if device.type == "cpu" else 2**31


def _tables(
    bound: Bound, k: int, blocks: Mapping[str, int], plate: str | None
) -> tuple[int, Sizes]:
    """Return the entries of the tables of a plate and those inside, and the axes of its message."""
    s = bound.structure
    chain = {s.plate_axis[p]: blocks[p] for p in s.chains[plate]}
    total, tables = 0, list[Sizes]()
    own = [*(g.name for g in s.groups_of(plate)), *(o.name for o in s.observed_in(plate))]
    for name in own:
        axes = {**chain, **{s.particle_axis[g]: k for g in s.groups_seen(name)}}
        tables.append(_sorted_sizes(axes))
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
    return total + largest_table(tables, axes), _sorted_sizes(known)


def _sorted_sizes(axes: Mapping[int, int]) -> Sizes:
    """Return the axes longer than 1, in order."""
    return tuple((a, n) for a, n in sorted(axes.items()) if n > 1)


def _vector(bound: Bound, name: str) -> int:
    """Return the largest vector that the density of a group, or of data, is computed from."""
    s = bound.structure
    if name in s.groups:
        return max(math.prod(x.shape) for x in s.groups[name].latents)
    near = [x for g in s.groups_seen(name) for x in s.groups[g].latents]
    data = bound.arrays[name].shape[s.ndim :]
    return max(math.prod(data), *(math.prod(x.shape) for x in near), 1)


def _stored(bound: Bound, k: int) -> int:
    """Return the number of values of all particles."""
    return sum(
        k * math.prod(bound.shape(x.plate)) * math.prod(x.shape)
        for x in bound.structure.latents.values()
    )
