"""Inference in models of nested plates: adapt proposals, then weigh fresh particles."""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evalstats_plugin.errors import SelectionError
from evalstats_plugin.hierarchical.ancestral import posterior_draws
from evalstats_plugin.hierarchical.blocks import choose_blocks, default_limit
from evalstats_plugin.hierarchical.bound import Bound, Data, bind
from evalstats_plugin.hierarchical.evidence import Scene, log_evidence, mean_under, weigh
from evalstats_plugin.hierarchical.importance import global_log_weights, log_mean
from evalstats_plugin.hierarchical.pareto import UNRELIABLE, pareto_shape
from evalstats_plugin.hierarchical.particles import Assignment, draw_particles
from evalstats_plugin.hierarchical.plated_model import Model
from evalstats_plugin.hierarchical.proposals import Proposals, first_proposals
from evalstats_plugin.hierarchical.qem import qem
from evalstats_plugin.hierarchical.variational import variational
from evalstats_plugin.sampling.devices import generator_of, resolve_device

Array = NDArray[np.float64]
Method = Literal["qem", "vi", "iwae", "fixed"]
"""How proposals are adapted: by moments, by gradients of P_MP or of IWAE, or not at all."""
STEPS: dict[Method, float] = {"qem": 0.5, "vi": 0.05, "iwae": 0.05, "fixed": 0.0}
# Effective particles below which moments are said to be unreliable.
LOW_ESS = 20.0


@dataclass(frozen=True, kw_only=True)
class Options:
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
    options: Options | None = None,
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
    options = options or Options()
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


def _check(method: str, options: Options) -> None:
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
