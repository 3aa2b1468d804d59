"""Inference in models on nested plates: adapt proposals, then average sets of fresh particles.

* `infer`: the fit
* `qem`: move proposals to the posterior's moments, as in expectation maximisation [HBA25]_
* `choose_blocks`: the number of members of each plate that fit in memory together
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evalstats_plugin.errors import DesignError, SelectionError, counted, few, no_such
from evalstats_plugin.hierarchical.engines.plates.distributions import Family, Normal
from evalstats_plugin.hierarchical.engines.plates.evidence import (
    Proposals,
    Scene,
    Sizes,
    Weighed,
    contraction_steps,
    draw_particles,
    first_proposals,
    joint_bound,
    joint_log_weights,
    log_evidence,
    sizes_of,
    weigh,
    weighted_mean,
)
from evalstats_plugin.hierarchical.engines.plates.model import (
    Bound,
    Data,
    Model,
    bind,
    check_support,
    prior_values,
    with_sizes,
)
from evalstats_plugin.hierarchical.engines.plates.results import (
    Moments,
    PlatedFit,
    average,
    effective_particles,
    summary,
)
from evalstats_plugin.runtime.torch import check_memory, generator_of, resolve_device
from evalstats_plugin.stats.arrays import FloatArray

CHAIN_DRAWS = 500
"""Draws that each chain of the no-U-turn sampler keeps."""

STEP = 0.5
"""Default share of the way to new moments."""

_BYTES, _COPIES = 8, 6
"""Bytes of a number, and copies of a table that exist at once with its derivatives."""

_LARGEST = 2**31
"""Most bytes for the tables of the smallest block."""

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
    wider: int = 15
    """Sets of particles from wider proposals, whose moments must be the same; 0: none."""


METHODS: Mapping[str, str] = MappingProxyType(
    {
        "mp-is": "massively parallel importance sampling with the first proposals [HLA23]_",
        "qem": "the same with proposals moved to the posterior's moments [HBA25]_",
        "rws": "the same with proposals, or their networks, nearest the posterior [HLA23]_",
        "mp-vi": "the same with proposals that maximise the massively parallel bound [HLA23]_",
        "iwae": "with proposals that maximise the bound of ordinary importance sampling",
        "vi": "with proposals that maximise the evidence lower bound",
        "nuts": "the no-U-turn sampler, for crossed plates too [HG14]_",
    }
)
"""Methods of `infer`. All but ``"nuts"`` weigh fresh particles massively parallel at the end."""

_WIDER = 4.0
"""Times as large as those of proposals are the variances of those that moments are checked with."""

_MOVED = 0.3
"""Standard deviations, and share of one, that wider proposals may move moments by, beyond noise."""

_NOISE = 3.0
"""Standard errors that they may."""

_WIDENING = 5
"""Steps towards the posterior's moments, after which proposals of `"vi"` cover its tails."""

_RATE = 0.1
"""First step of Adam in the methods that maximise a bound."""


def infer(
    model: Model,
    data: Data,
    method: str = "qem",
    *,
    n_particles: int | None = None,
    steps: int | None = None,
    options: FitOptions | None = None,
    device: str | torch.device = "auto",
    rng: np.random.Generator | int | None = None,
) -> PlatedFit:
    """Posterior and evidence of a model on plates.

    Parameters
    ----------
    data
        Observations and inputs by name: one axis per plate, outermost first, then of vectors; NaN
        where an observation is missing.
    method
        A name of `METHODS`. Massively parallel methods sum over all Kⁿ combinations of K particles
        of n latents, in memory for a few of them at a time; they need nested plates.
    n_particles
        Particles K of each latent (default 30); for ``"nuts"``, chains (default 16;
        8 for models of more than 500 numbers).
    steps
        Steps in which proposals are adapted (default 50), or draws of each chain (default 500).
    options
        The rest: sets of particles, draws, memory, sets of wider proposals to check moments with.

    Raises
    ------
    DesignError
        Data that do not fit the model, crossed plates and a method for nested ones, densities that
        are not finite, too little memory.
    SelectionError
        No such method, or no such device.

    Examples
    --------
    >>> from torch.distributions import Normal
    >>> from evalstats_plugin.hierarchical import Latent, Model, Observed
    >>> model = Model(
    ...     latents=[Latent("mu", Normal(0.0, 1.0))],
    ...     observed=[Observed("x", lambda mu: Normal(mu, 1.0))],
    ... )
    >>> fit = infer(model, {"x": 1.0}, n_particles=100, rng=0)
    >>> round(float(fit.moments["mu"].mean), 1), round(fit.log_evidence, 1)
    (0.5, -1.5)
    """
    if method not in METHODS:
        raise SelectionError(no_such("method", method, METHODS, ", ".join(METHODS)))
    options = options or FitOptions()
    where = resolve_device(device)
    model = with_sizes(model, data)
    bound = bind(model, data, where)
    generator = generator_of(rng, "fit of plates", where)
    joint = joint_bound(bound)
    check_support(joint, prior_values(joint, 2, generator_of(0, "supports of data", where)))
    if method == "nuts":
        from evalstats_plugin.hierarchical.engines.plates.nuts import chains_for, sample_posterior

        chains = n_particles or chains_for(bound)
        return sample_posterior(model, bound, chains, steps or CHAIN_DRAWS, generator)
    options = replace(
        options,
        k=n_particles or options.k,
        iterations=0 if method == "mp-is" else options.iterations if steps is None else steps,
    )
    proposals, blocks = first_particles(bound, options, generator)

    def scene_of(proposals: Proposals) -> Scene:
        fixed = method == "rws"
        particles = draw_particles(bound, proposals, options.k, generator, fixed=fixed)
        return Scene(bound, particles, blocks)

    if method in ("mp-is", "qem"):
        proposals, history = qem(proposals, scene_of, options.iterations, options.step)
    else:
        proposals, history = _ascend(method, bound, proposals, scene_of, options, generator)
    if method == "vi":
        # The evidence lower bound leaves tails of the posterior without particles.
        proposals, _ = qem(proposals, scene_of, _WIDENING, options.step)
    sets = [weigh(scene_of(proposals)) for _ in range(options.sets)]
    fit = average(
        model, method, sets, proposals, np.array(history), draws=options.draws, generator=generator
    )
    if not options.wider:
        return fit
    families = {name: x.wider(_WIDER) for name, x in proposals.families.items()}
    wide = [weigh(scene_of(replace(proposals, families=families))) for _ in range(options.wider)]
    return replace(fit, moved=_moved(fit, wide))


def first_particles(
    bound: Bound, options: FitOptions, generator: torch.Generator
) -> tuple[Proposals, dict[str, int]]:
    """Return the first proposals, and the number of members of each plate in a block.

    Raises
    ------
    DesignError
        The methods with particles do not fit the model: plates are crossed, no proposal has the
        support of a prior, tables are larger than the memory.
    """
    s = bound.structure
    if s.crossed is not None:
        names = " and ".join(map(repr, s.crossed))
        msg = f"plates {names} are crossed: every score depends on a member of each, so that "
        raise DesignError(f"{msg}massively parallel weights would fail: take method 'nuts'")
    blocks = choose_blocks(bound, options.k, options.memory)
    return first_proposals(bound, generator), blocks


def _moved(fit: PlatedFit, sets: list[Weighed]) -> dict[str, tuple[Moments, Moments]]:
    """Moments that are others with particles of wider proposals, by latent.

    Weights know nothing of where no particle lies: what narrow proposals miss, wider ones show.
    """
    moved: dict[str, tuple[Moments, Moments]] = {}
    moments_of, weights = summary(fit.bound, sets, fit.ess)
    for name, latent in fit.bound.structure.latents.items():
        if latent.set_of_particles not in weights:
            continue
        old, moments = fit.moments[name], moments_of[name]
        ess = effective_particles(weights[latent.set_of_particles])
        noise = _NOISE / np.sqrt(np.maximum(ess, 1.0))
        noise = noise.reshape([*noise.shape, *[1] * (moments.mean.ndim - noise.ndim)])
        far = np.abs(moments.mean - old.mean) > (_MOVED + noise) * old.std_dev
        far |= moments.std_dev > (1 + _MOVED + noise / math.sqrt(2)) * old.std_dev
        if far.any():
            at = tuple(np.argwhere(far)[0])
            moved[name] = (Moments(old.mean[at], old.std_dev[at]),
                           Moments(moments.mean[at], moments.std_dev[at]))  # fmt: skip
    return moved


def _ascend(
    method: str,
    given: Bound,
    proposals: Proposals,
    scene_of: Callable[[Proposals], Scene],
    options: FitOptions,
    generator: torch.Generator,
) -> tuple[Proposals, list[float]]:
    """Maximise a bound of the evidence over the parameters of proposals, by Adam."""
    if proposals.exact and method not in ("mp-vi", "rws"):
        msg = f"latents {few(list(proposals.exact))} have finitely many values, which method "
        raise DesignError(f"{msg}{method!r} cannot sum: take 'qem' or 'mp-vi'")
    programs = {x: y.program for x, y in given.structure.latents.items() if y.program}
    if programs and method != "rws":
        msg = f"proposals of {few(list(programs))} depend on other latents or inputs, which method "
        raise DesignError(f"{msg}{method!r} does not adapt: take 'rws', 'qem' or 'mp-is'")
    free = {
        name: [x.detach().clone().requires_grad_() for x in family.free()]
        for name, family in proposals.families.items()
    }
    # Its `step` has no type stubs.
    networks = [x for x in programs.values() if isinstance(x, torch.nn.Module)]
    adapted = [x for parts in free.values() for x in parts]
    adapted += [x for network in networks for x in network.parameters()]
    adam: Any = torch.optim.Adam(adapted, lr=_RATE)
    joint = joint_bound(given)
    # The weight of each has its own 1 / K; a draw of all at once has one.
    members = sum(math.prod(given.shape(g.plate)) for g in given.structure.groups.values())
    history: list[float] = []

    def current() -> Proposals:
        built = {name: type(f).from_free(free[name]) for name, f in proposals.families.items()}
        return replace(proposals, families=built)

    for step in range(options.iterations):
        adam.param_groups[0]["lr"] = _RATE * _decay(step, options.iterations)
        with torch.enable_grad():
            if method in ("mp-vi", "rws"):
                bound = log_evidence(scene_of(current()))
            else:
                particles = draw_particles(joint, current(), options.k, generator)
                weights = joint_log_weights(joint, particles) + members * math.log(options.k)
                bound = torch.logsumexp(weights, 0) - math.log(options.k)
                bound = weights.mean() if method == "vi" else bound
            adam.zero_grad()
            # Of fixed particles the evidence falls where proposals make them more probable.
            torch.autograd.backward(bound if method == "rws" else -bound)
        adam.step()
        history.append(float(bound.detach()))
    free = {name: [x.detach() for x in parts] for name, parts in free.items()}
    return current(), history


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
    families: dict[str, Family] = {}
    for name, family in proposals.families.items():
        group = latents[name].set_of_particles
        values = family.statistics(scene.particles.values[name])
        posterior_means = [weighted_mean(scene.bound, weights[group], v, group) for v in values]
        moved = [
            old + step * (new - old)
            for old, new in zip(family.means(), posterior_means, strict=True)
        ]
        if isinstance(family, Normal):
            # The square of a noisy mean is biased upwards, the variance downwards: without a
            # correction, proposals become too narrow to cover the posterior.
            away = scene.particles.values[name] - family.means()[0]
            noise = weighted_mean(scene.bound, weights[group] ** 2, away * away, group)
            moved[1] = moved[1] + step**2 * noise
        families[name] = type(family).from_means(moved)
    return replace(proposals, families=families)


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


def choose_blocks(bound: Bound, k: int, memory: int | None) -> dict[str, int]:
    """Return the largest blocks of members that fit, halving from the outermost plate inwards.

    Parameters
    ----------
    k
        Number of particles.
    memory
        Bytes for the tables of one block; None: a fast default, which one member of each plate may
        exceed.

    Raises
    ------
    DesignError
        One member of each plate needs more than that, or than the free memory.
    """
    # Small on a CPU, so that tables stay in its caches.
    limit = memory or (2**26 if bound.device.type == "cpu" else 2**31)
    most, s = memory or _LARGEST, bound.structure
    blocks = dict(s.sizes)
    check_memory(
        _BYTES * k * bound.numbers, bound.device, f"{k} particles of {len(s.latents)} latents"
    )
    while (needed := memory_needed(bound, k, blocks)) > limit:
        divisible = [p for p in blocks if blocks[p] > 1]
        if not divisible and needed <= most:
            break
        if not divisible:
            sizes = ", ".join(f"{p} {n}" for p, n in s.sizes.items()) or "no plates"
            raise DesignError(
                f"{k} particles of {counted(len(s.groups), 'group')} ({sizes}) need about "
                f"{needed / 2**20:.4g} MiB for one member of each plate, more than the limit of "
                f"{most / 2**20:.4g} MiB: use fewer particles, give latents of one plate a group=, "
                "depend on fewer parents, raise memory=, or take another method"
            )
        blocks[divisible[0]] = -(-blocks[divisible[0]] // 2)
    check_memory(needed, bound.device, f"tables of {k} particles")
    return blocks


def memory_needed(bound: Bound, k: int, blocks: Mapping[str, int]) -> int:
    """Return the bytes that the tables of one block take, of its plate and those inside."""
    return _BYTES * _COPIES * _tables(bound, k, blocks, None)[0]


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
        tables.append(sizes_of(axes))
        # The largest vector that the density is computed from.
        if name in s.groups:
            vector = max(math.prod(x.shape) for x in s.groups[name].latents)
        else:
            near = [x for g in s.groups_seen(name) for x in s.groups[g].latents]
            data = math.prod(bound.shape_of_value(name))
            vector = max(data, *(math.prod(x.shape) for x in near), 1)
        total += math.prod(axes.values()) * vector
    for child in s.within(plate):
        inside, message = _tables(bound, k, blocks, child)
        total += inside
        tables.append(message)
    axes = frozenset(s.particle_axis[g.name] for g in s.groups_of(plate))
    if not tables:
        return total, ()
    sizes = {a: n for table in tables for a, n in table if a not in axes}
    if plate is not None:
        sizes.pop(s.plate_axis[plate], None)
    steps = contraction_steps(tuple(tables), axes)
    return total + max((x.entries for x in steps), default=1), sizes_of(sizes)
