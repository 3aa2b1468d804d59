"""Inference in models of nested plates: adapt proposals, then weigh fresh particles."""
# PART blocks - How many members of each plate fit in memory together.
# PART qem - QEM: proposals that move to the posterior's moments, as in expectation maximisation [HBA25]_.
# PART variational - Variational inference: raise the expected log evidence by its gradient [KB15]_.

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.hierarchical.engines.plates.distributions import Normal
from evalstats_plugin.hierarchical.engines.plates.evidence import (
    Scene,
    Sizes,
    global_log_weights,
    largest,
    log_evidence,
    log_mean,
    mean_under,
    posterior_draws,
    weigh,
)
from evalstats_plugin.hierarchical.engines.plates.model import Bound, Data, Model, bind
from evalstats_plugin.hierarchical.engines.plates.particles import (
    Assignment,
    Proposals,
    draw_particles,
    first_proposals,
)
from evalstats_plugin.runtime.torch import check_memory, generator_of, resolve_device
from evalstats_plugin.stats.draws import UNRELIABLE, pareto_shape

Array = NDArray[np.float64]


Method = Literal["qem", "vi", "iwae", "fixed"]
"""How proposals are adapted: by moments, by gradients of P_MP or of IWAE, or not at all."""


STEPS: dict[Method, float] = {"qem": 0.5, "vi": 0.05, "iwae": 0.05, "fixed": 0.0}


# Effective particles below which moments are said to be unreliable.
LOW_ESS = 20.0


# Copies of a table that exist at once, while it is computed and while it is derived.
_COPIES = 6


_BYTES = 8


# Iterations whose mean log evidence is compared with that of as many before.
_WINDOW = 5


# The last step is so many times, and once, shorter than the first.
_SHORTENED = 9.0


# A step is halved so many times at most.
_HALVINGS = 4


def memory(bound: Bound, k: int, blocks: Mapping[str, int]) -> int:
    """Bytes that the tables of one block take, in the plates around and inside it too."""
    return _BYTES * _COPIES * _tables(bound, k, blocks, None)[0]


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """How hard to try."""

    k: int = 30
    """Particles of each group and member."""
    iterations: int = 50
    step: float | None = None
    """How far proposals move each time; by default 0.5 with QEM, a rate of 0.05 with gradients."""
    sets: int = 50
    """Fresh sets of particles that the results are averaged over."""
    draws: int = 1000
    assignment: Assignment = "permutation"
    """How particles are given parents, where proposals depend on parents."""
    memory: int | None = None
    """Bytes for the tables of one block of members; None: what is fast."""


class Moments(NamedTuple):
    """Of one latent, of the shape of its plates and vector."""

    mean: Array
    std_dev: Array


@dataclass(frozen=True)
class PlatedFit:
    """Posterior of a model of nested plates."""

    log_evidence: float
    """Log of the mean P_MP of the last sets of particles; P_MP itself is unbiased."""
    log_evidence_error: float
    """Standard error, by the spread among the sets."""
    moments: dict[str, Moments]
    """By latent: self-normalised, hence consistent, not unbiased."""
    draws: dict[str, Array]
    """By latent, shape (draws, members of its plates, vector)."""
    ess: dict[str, Array]
    """By group: what its weighted particles are worth, of all sets, per member."""
    k_hat: dict[str, Array]
    """By group: shape of the tail of its weights, per member; unreliable above 0.7."""
    history: Array
    """log P_MP (or the bound) of each iteration of the adaptation."""
    proposals: Proposals
    notes: tuple[str, ...]


class _Set(NamedTuple):
    """One fresh set of particles."""

    scene: Scene
    log_evidence: float
    weights: dict[str, Tensor]


def infer(
    model: Model,
    data: Data,
    method: Method = "qem",
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
    method
        How proposals are adapted before the final importance sampling.

    Raises
    ------
    DesignError
        Data that do not fit the model, densities that are not finite, too little memory.
    SelectionError
        An unknown method.
    """
    options = options or FitOptions()
    _check(method, options)
    where = resolve_device(device)
    bound = bind(model, data, where)
    generator = generator_of(np.random.default_rng(rng), where)
    limit = default_limit(where) if options.memory is None else options.memory
    blocks = choose_blocks(bound, options.k, limit)

    def scene_of(proposals: Proposals) -> Scene:
        particles = draw_particles(bound, proposals, options.k, generator, options.assignment)
        return Scene(bound, particles, blocks)

    def bound_of(proposals: Proposals) -> Tensor:
        if method == "iwae":
            return log_mean(global_log_weights(bound, proposals, options.k, generator))
        return log_evidence(scene_of(proposals))

    proposals, history = first_proposals(bound, generator), list[float]()
    step = STEPS[method] if options.step is None else options.step
    if method == "qem":
        proposals, history = qem(proposals, scene_of, options.iterations, step)
    elif method != "fixed":
        proposals, history = variational(proposals, bound_of, options.iterations, step)
    sets = [
        _Set(scene, *weigh(scene)) for scene in (scene_of(proposals) for _ in range(options.sets))
    ]
    return _summed_up(bound, sets, proposals, np.array(history), (options.draws, generator))


def _check(method: str, options: FitOptions) -> None:
    if method not in STEPS:
        msg = f"no method is called {method!r}; there are: {', '.join(STEPS)}"
        raise SelectionError(msg)
    if min(options.k, options.sets) < 1 or min(options.iterations, options.draws) < 0:
        msg = (
            f"k={options.k}, sets={options.sets}, iterations={options.iterations}, "
            f"draws={options.draws}: expected k and sets of 1 or more, none below 0"
        )
        raise ValueError(msg)
    if options.step is not None and not (
        options.step > 0 and (method != "qem" or options.step <= 1)
    ):
        msg = f"step={options.step}, expected above 0, and with QEM up to 1"
        raise ValueError(msg)


def _summed_up(
    bound: Bound,
    sets: list[_Set],
    proposals: Proposals,
    history: Array,
    draws: tuple[int, torch.Generator],
) -> PlatedFit:
    """Average sets of particles, each counting as much as its evidence."""
    log_p = np.array([s.log_evidence for s in sets])
    relative = np.exp(log_p - log_p.max())
    share = relative / relative.sum()
    # Of the log of a mean, to first order.
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
        _draws(sets, share, *draws),
        ess,
        k_hat,
        history,
        proposals,
        _notes(ess, k_hat, float(error)),
    )


def _moments(bound: Bound, latent: str, sets: list[_Set], share: Array) -> Moments:
    s = bound.structure
    found, group = s.latents[latent], s.latents[latent].set_of_particles
    shape = [*(s.sizes[p] for p in s.chains[found.plate]), *found.shape]
    first = second = torch.zeros(1, dtype=torch.float64, device=bound.device)
    for one, part in zip(sets, share.tolist(), strict=True):
        z, w = one.scene.particles.values[latent], one.weights[group] * part
        first = first + mean_under(bound, w, z, group)
        second = second + mean_under(bound, w, z * z, group)
    mean, square = (x.reshape(shape).cpu().numpy() for x in (first, second))
    return Moments(mean, np.sqrt(np.maximum(square - mean**2, 0)))


def _pooled(bound: Bound, group: str, sets: list[_Set], share: Array) -> Array:
    """Weights of the particles of all sets, shape (members of its plates, sets · K)."""
    s = bound.structure
    shape = [s.sizes[p] for p in s.chains[s.groups[group].plate]]
    of_sets = [
        (one.weights[group] * float(part)).reshape(*shape, -1).cpu().numpy()
        for one, part in zip(sets, share, strict=True)
    ]
    return np.concatenate(of_sets, axis=-1)


def _draws(
    sets: list[_Set], share: Array, count: int, generator: torch.Generator
) -> dict[str, Array]:
    """Posterior draws: of each set as many as its share makes likely."""
    weights = torch.as_tensor(share, device=generator.device)
    picked = torch.multinomial(weights, max(count, 1), replacement=True, generator=generator)
    counts = torch.bincount(picked[:count], minlength=len(sets)).tolist()
    parts = [
        posterior_draws(one.scene, n, generator)
        for i, (one, n) in enumerate(zip(sets, counts, strict=True))
        if n or i == 0
    ]
    return {x: torch.cat([p[x] for p in parts]).cpu().numpy() for x in parts[0]}


def _notes(ess: Mapping[str, Array], k_hat: Mapping[str, Array], error: float) -> tuple[str, ...]:
    notes: list[str] = []
    for group, values in ess.items():
        low = int((values < LOW_ESS).sum())
        if low:
            notes.append(
                f"{group}: effective sample size {values.min():.1f}, below {LOW_ESS:g} for {low} "
                f"of {values.size} members: its moments are not to be relied on; take more "
                "particles or iterations, and if its members all meet (models × tasks), Gibbs "
                "sampling"
            )
        heavy = int((k_hat[group] > UNRELIABLE).sum())
        if heavy:
            notes.append(
                f"{group}: Pareto k {np.nanmax(k_hat[group]):.2f}, above {UNRELIABLE} for {heavy} "
                f"of {values.size} members: the proposals' tails are too light; take more "
                "particles or iterations"
            )
    if error > 0.5 or np.isnan(error):
        notes.append(f"log evidence is known to ±{error:.2g} only: take more particles or sets")
    return tuple(notes)


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


@dataclass
class Safeguard:
    """Halve the step where the evidence stops rising, and go back to the best proposals if it fell.

    Long steps are noisy where few particles count, and proposals that follow noise count fewer.
    """

    step: float
    best: Proposals | None = None
    halvings: int = 0
    _level: tuple[float, float] = (-np.inf, 0.0)
    """Mean log evidence of the best window, and its standard error."""
    _recent: list[tuple[float, Proposals]] = field(default_factory=list[tuple[float, Proposals]])

    def after(self, log_evidence: float, proposals: Proposals) -> Proposals:
        """Proposals to go on from, given the evidence found with these."""
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


def qem(
    proposals: Proposals, scene_of: Callable[[Proposals], Scene], iterations: int, step: float
) -> tuple[Proposals, list[float]]:
    """Adapt proposals that are no functions of parents.

    Parameters
    ----------
    scene_of
        Draws fresh particles from proposals.
    step
        How far mean parameters move to the estimates, above 0 and up to 1; the safeguard may
        shorten it.

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
        # The moments found belong to the proposals that they were found with.
        moved = kept is proposals
        far = safeguard.step * _shortened(t, iterations)
        proposals = improved(scene, weighed.weights, kept, far) if moved else kept
    return proposals, history


def improved(
    scene: Scene, weights: dict[str, Tensor], proposals: Proposals, step: float
) -> Proposals:
    """Proposals with mean parameters part of the way to the posterior's."""
    latents = scene.bound.structure.latents
    means: dict[str, list[Tensor]] = {}
    for name, family in proposals.families.items():
        group = latents[name].set_of_particles
        values = family.statistics(scene.particles.values[name])
        found = [mean_under(scene.bound, weights[group], v, group) for v in values]
        moved = [old + step * (new - old) for old, new in zip(family.means(), found, strict=True)]
        if isinstance(family, Normal):
            # The square of a noisy mean is too large on average, the variance so much too small:
            # step after step, proposals would get too narrow to find the posterior.
            away = scene.particles.values[name] - family.means()[0]
            noise = mean_under(scene.bound, weights[group] ** 2, away * away, group)
            moved[1] = moved[1] + step**2 * noise
        means[name] = moved
    return proposals.moved(means)


def _shortened(t: int, iterations: int) -> float:
    """Shorter steps later on, which average the noise of more estimates."""
    return 1 / (1 + _SHORTENED * t / iterations)


def _mean(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> tuple[float, float]:
    return float(values.mean()), float(values.std(ddof=1) / len(values) ** 0.5)


def variational(
    proposals: Proposals,
    bound_of: Callable[[Proposals], Tensor],
    iterations: int,
    step: float,
) -> tuple[Proposals, list[float]]:
    """Adapt proposals by Adam.

    Parameters
    ----------
    bound_of
        One estimate of the bound, with fresh particles.
    step
        Learning rate.

    Returns
    -------
    tuple
        Adapted proposals, and the estimate of each iteration.

    Raises
    ------
    DesignError
        A gradient is not finite.
    """
    leaves = _leaves(proposals)
    flat = [x for tensors in leaves.values() for x in tensors]
    optimiser = torch.optim.Adam(flat, lr=step)
    history: list[float] = []
    for _ in range(iterations):
        optimiser.zero_grad()
        with torch.enable_grad():
            estimate = bound_of(_rebuilt(proposals, leaves))
            (-estimate).backward()
        history.append(float(estimate.detach()))
        _check_gradients(leaves, len(history))
        optimiser.step()
    found = {key: [x.detach() for x in tensors] for key, tensors in leaves.items()}
    return _rebuilt(proposals, found), history


def _check_gradients(leaves: dict[tuple[str, str], list[Tensor]], iteration: int) -> None:
    """Raise an error that names the proposal; the host waits once for all of them."""
    found = {
        name: torch.stack([torch.isfinite(x.grad).all() for x in tensors if x.grad is not None])
        for name, tensors in leaves.items()
        if any(x.grad is not None for x in tensors)
    }
    if not found or bool(torch.cat(list(found.values())).all()):
        return
    name = next(name for (name, _), fine in found.items() if not bool(fine.all()))
    msg = (
        f"the gradient by the proposal of {name!r} is not finite at iteration {iteration}: take a "
        "smaller step, or method='qem'"
    )
    raise DesignError(msg)


def _leaves(proposals: Proposals) -> dict[tuple[str, str], list[Tensor]]:
    """What is learned, by latent and by name of a parameter."""
    found = {(x, ""): list(family.unconstrained()) for x, family in proposals.families.items()}
    for latent, named in proposals.parameters.items():
        found |= {(latent, name): [value] for name, value in named.items()}
    return {key: [x.detach().clone().requires_grad_() for x in v] for key, v in found.items()}


def _rebuilt(proposals: Proposals, leaves: dict[tuple[str, str], list[Tensor]]) -> Proposals:
    families = {
        x: type(family).from_unconstrained(leaves[x, ""])
        for x, family in proposals.families.items()
    }
    parameters = {
        latent: {name: leaves[latent, name][0] for name in named}
        for latent, named in proposals.parameters.items()
    }
    return Proposals(families, parameters)
