"""Hamiltonian Monte Carlo for any model on plates whose latents are numbers.

All chains at once, on the latents transformed to the whole line. While warming up, step size and
variances adapt, the latter to those over all chains; trajectories have random lengths, so that no
period is met again and again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, distributions

from evalstats_plugin.errors import DesignError
from evalstats_plugin.hierarchical.engines.plates.distributions import (
    CONSTRAINTS,
    Beta,
    Family,
    Gamma,
)
from evalstats_plugin.hierarchical.engines.plates.evidence import (
    Particles,
    example,
    joint_bound,
    joint_log_weights,
)
from evalstats_plugin.hierarchical.engines.plates.model import Bound, Latent, Model, prior_values
from evalstats_plugin.hierarchical.engines.plates.results import Moments, PlatedFit
from evalstats_plugin.runtime import ChainLength
from evalstats_plugin.runtime.chains import convergence, run_chains
from evalstats_plugin.stats.arrays import FloatArray

_ACCEPTANCE = 0.8
"""Target acceptance rate."""

_LENGTH = 1.6
"""Mean length of a trajectory, in standard deviations: about a quarter of a period."""

_MOST = 64
"""Most steps of a trajectory."""

_FAR, _FAR_ON_THE_LINE = 30.0, 1e6
"""Most that a transformed latent, and one that is not transformed, can be."""

_TRIED = 50
"""Draws from the prior, of which each chain starts at the best."""


def sample_posterior(
    model: Model, bound: Bound, chains: int, draws: int, generator: torch.Generator
) -> PlatedFit:
    """Draw from the posterior of a model, on crossed plates too.

    Raises
    ------
    DesignError
        A latent has finitely many values, or a support that depends on others.
    """
    joint = joint_bound(bound)
    sampler = _Sampler(joint, chains, generator)
    kept = [
        sampler.constrained(state)
        for state in run_chains(
            sampler.state, sampler.sweep, ChainLength(chains=chains, draws=draws, warm_up=draws)
        )
    ]
    s = bound.structure
    axis = next(iter(s.joint.particle_axis.values()))
    by_latent: dict[str, FloatArray] = {}
    for name, latent in s.latents.items():
        shape = [chains, *(s.sizes[p] for p in s.chains[latent.plate]), *latent.shape]
        found = [x[name].movedim(axis, 0).reshape(shape).cpu().numpy() for x in kept]
        by_latent[name] = np.stack(found, axis=1)
    watched = {name: convergence(x) for name, x in by_latent.items()}
    ess: dict[str, FloatArray] = {}
    for name, latent in s.latents.items():
        own = watched[name].ess
        least: FloatArray = own.reshape(*own.shape[: own.ndim - len(latent.shape)], -1).min(-1)
        group = latent.set_of_particles
        ess[group] = np.minimum(ess.get(group, least), least)
    flat = {name: x.reshape(-1, *x.shape[2:]) for name, x in by_latent.items()}
    return PlatedFit(
        model=model,
        method="hmc",
        log_evidence=None,
        log_evidence_error=None,
        moments={name: Moments(x.mean(axis=0), x.std(axis=0)) for name, x in flat.items()},
        draws=flat,
        ess=ess,
        k_hat={},
        history=np.array([]),
        proposals=None,
        bound=bound,
        chains=chains,
        r_hat=max(float(np.max(x.r_hat)) for x in watched.values()),
    )


@dataclass(frozen=True)
class _State:
    """Positions of all chains, (K, D), with their log densities and gradients."""

    at: Tensor
    log_density: Tensor
    gradient: Tensor


class _Sampler:
    """Chains of one model, and what they adapt while warming up."""

    def __init__(self, joint: Bound, chains: int, generator: torch.Generator) -> None:
        self.joint, self.chains, self.generator = joint, chains, generator
        prior = prior_values(joint, chains * _TRIED, generator)
        self.bijections = {x.name: _bijection(joint, x, prior) for x in _latents(joint)}
        self.shapes: dict[str, list[int]] = {}
        flat = self._flat(prior, chains * _TRIED)
        with torch.no_grad():
            level = self.log_density(flat).reshape(chains, _TRIED).nan_to_num(nan=-torch.inf)
        best = level.argmax(1) + torch.arange(chains, device=joint.device) * _TRIED
        self.state = self._state(flat[best])
        self.variance = torch.ones_like(flat[0])
        self.log_step, self.averaged, self.error, self.count = math.log(0.1), 0.0, 0.0, 0
        self.seen: list[Tensor] = []

    def _flat(self, values: Mapping[str, Tensor], count: int) -> Tensor:
        """Transform latents to the whole line, one row for each draw."""
        axis = next(iter(self.joint.structure.particle_axis.values()))
        rows: list[Tensor] = []
        for latent in _latents(self.joint):
            n = self.joint.structure.ndim
            natural = values[latent.name]
            natural = natural.reshape([*natural.shape[:n], *latent.shape])
            free = self.bijections[latent.name].inv(natural)
            self.shapes[latent.name] = list(free.shape)
            rows.append(free.movedim(axis, 0).reshape(count, -1))
        return torch.cat(rows, 1).clamp(-20, 20)

    def _free(self, flat: Tensor) -> dict[str, Tensor]:
        axis = next(iter(self.joint.structure.particle_axis.values()))
        found, start = dict[str, Tensor](), 0
        for name, shape in self.shapes.items():
            moved = [len(flat), *shape[:axis], *shape[axis + 1 :]]
            size = math.prod(moved[1:])
            whole_line = not getattr(self.bijections[name], "parts", (None,))
            # Trajectories that diverge leave the range of numbers; they are not accepted.
            far = _FAR_ON_THE_LINE if whole_line else _FAR
            part = flat[:, start : start + size].clamp(-far, far)
            found[name] = part.reshape(moved).movedim(0, axis)
            start += size
        return found

    def constrained(self, state: _State) -> dict[str, Tensor]:
        """Return the latents of all chains."""
        return {name: self.bijections[name](x) for name, x in self._free(state.at).items()}

    def log_density(self, flat: Tensor) -> Tensor:
        """Log posterior density of each chain, up to a constant, on the whole line."""
        n = self.joint.structure.ndim
        axis = next(iter(self.joint.structure.particle_axis.values()))
        values: dict[str, Tensor] = {}
        total = torch.zeros(len(flat), dtype=torch.float64, device=flat.device)
        for latent in _latents(self.joint):
            free, bijection = self._free(flat)[latent.name], self.bijections[latent.name]
            natural = bijection(free)
            volume = bijection.log_abs_det_jacobian(free, natural)
            there = self.joint.exists(latent.plate)
            if volume.ndim > n:
                volume = volume.flatten(n).sum(-1)
            if there is not None:
                # Members that a ragged plate lacks are standard normal: any density will do.
                own = free.flatten(n) if free.ndim > n else free[..., None]
                volume = torch.where(there, volume, -own.square().sum(-1) / 2)
            total = total + volume.movedim(axis, -1).flatten(0, -2).sum(0)
            values[latent.name] = natural.reshape(
                [*natural.shape[:n], *self.joint.vector(latent.shape)]
            )
        zero = torch.zeros(self.joint.shape(None), dtype=torch.float64, device=flat.device)
        log_q = dict.fromkeys(self.joint.structure.groups, zero)
        return total + joint_log_weights(self.joint, Particles(values, log_q))

    def _state(self, at: Tensor) -> _State:
        at = at.detach().requires_grad_()
        with torch.enable_grad():
            value = self.log_density(at)
        (gradient,) = torch.autograd.grad(value.sum(), at)
        return _State(at.detach(), value.detach(), gradient.nan_to_num())

    def sweep(self, state: _State, k: int) -> _State:
        """Follow one trajectory in each chain, and accept or not."""
        warm = k < 0
        like = state.at
        noise = torch.randn(
            like.shape, generator=self.generator, dtype=like.dtype, device=like.device
        )
        jitter, u = (float(x) for x in torch.rand(2, generator=self.generator,
                                                  device=like.device))  # fmt: skip
        step = math.exp(self.log_step if warm else self.averaged) * (0.9 + 0.2 * u)
        length = 2 * jitter * _LENGTH
        count = max(1, min(_MOST, math.ceil(length / step)))
        momentum = noise / self.variance.sqrt()
        start = state.log_density - (momentum.square() * self.variance).sum(1) / 2
        now = state
        momentum = momentum + step / 2 * now.gradient
        for i in range(count):
            now = self._state(now.at + step * self.variance * momentum)
            momentum = momentum + step * (1 if i + 1 < count else 0.5) * now.gradient
        end = now.log_density - (momentum.square() * self.variance).sum(1) / 2
        chance = (end - start).nan_to_num(nan=-torch.inf).clamp_max(0).exp()
        u_each = torch.rand(len(like), generator=self.generator, dtype=like.dtype,
                            device=like.device)  # fmt: skip
        taken = (u_each < chance)[:, None]
        state = _State(
            torch.where(taken, now.at, state.at),
            torch.where(taken[:, 0], now.log_density, state.log_density),
            torch.where(taken, now.gradient, state.gradient),
        )
        if warm:
            self._adapt(state, float(chance.mean()), k)
        return state

    def _adapt(self, state: _State, accepted: float, k: int) -> None:
        """Dual averaging of the step size; variances over chains and recent draws."""
        self.count += 1
        eta = 1 / (self.count + 10)
        self.error = (1 - eta) * self.error + eta * (_ACCEPTANCE - accepted)
        self.log_step = math.log(0.5) - math.sqrt(self.count) / 0.05 * self.error
        weight = self.count**-0.75
        self.averaged = weight * self.log_step + (1 - weight) * self.averaged
        self.seen.append(state.at)
        # Twice as long each time, so that the last variances come from the last half.
        if (len(self.seen) >= 20 and (len(self.seen) & (len(self.seen) - 1)) == 0) or k == -20:
            recent = torch.cat(self.seen[len(self.seen) // 2 :])
            self.variance = recent.var(0).clamp(1e-8, 1e4)
            self.log_step, self.error, self.count = math.log(0.5), 0.0, 0


def _latents(joint: Bound) -> list[Latent]:
    return list(joint.structure.latents.values())


def _bijection(joint: Bound, latent: Latent, prior: Mapping[str, Tensor]) -> Any:
    """Return the map from the whole line to the support of a prior."""
    found = example(joint, latent, prior)
    if isinstance(found, Family):
        other = CONSTRAINTS.unit_interval if isinstance(found, Beta) else CONSTRAINTS.real
        support = CONSTRAINTS.positive if isinstance(found, Gamma) else other
    else:
        support = found.support
    if getattr(found, "has_enumerate_support", False) or getattr(support, "is_discrete", False):
        msg = f"latent {latent.name!r} has finitely many values, which method 'hmc' cannot move"
        raise DesignError(f"{msg}: take 'qem' or 'mp-is', which sum over them")
    return cast("Any", distributions.biject_to(support))
