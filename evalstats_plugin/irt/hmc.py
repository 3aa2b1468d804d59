"""Posterior draws by Hamiltonian Monte Carlo, many chains as one batch: the check of `gibbs`.

All chains make the same number of leapfrog steps, so that a step is a few products of arrays. How
long a trajectory is, is learnt from all chains together by the ChEES criterion [HRS21]_, the step
by dual averaging [HG14]_, and the mass of each parameter from the spread of the chains. Unlike
`gibbs` it takes fractions of trials.
"""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from evalstats_plugin.irt.data import Counts
from evalstats_plugin.irt.gibbs import Draws
from evalstats_plugin.irt.logistic_target import Kind, LogisticTarget
from evalstats_plugin.irt.progress import told
from evalstats_plugin.sampling.devices import check_memory, generator_of

# A loss of this much energy: the trajectory has left the posterior, as Stan counts it.
_DIVERGED = 1000.0
_MOST_LEAPS = 256
# Shares of the warm-up after which the mass is learnt anew from the draws since the last.
_WINDOWS = (0.1, 0.2, 0.4, 0.7)


@dataclass(frozen=True, kw_only=True)
class Options:
    """How long to draw; the trajectory is learnt from chains, and wants many."""

    chains: int = 32
    draws: int = 250
    """Kept, of each chain."""
    warm_up: int = 300
    """Thrown away."""
    acceptance: float = 0.8
    """Share of trajectories to accept, which sets the step."""


class Sampled(NamedTuple):
    """Draws, and how the sampler fared after its warm-up."""

    draws: Draws
    divergent: int
    """Trajectories that left the posterior: with any, draws cannot be trusted."""
    acceptance: float
    step: float
    trajectory: float
    """Mean length, in posterior standard deviations; each is 0 to 2 times as long."""
    gradients: int
    """Evaluations for each chain, warm-up included."""


class Target(Protocol):
    """A log density at points (K, P)."""

    def value(self, at: Tensor) -> Tensor:
        """Return log densities (K,)."""
        ...

    def gradient(self, at: Tensor) -> Tensor:
        """Return their gradients (K, P)."""
        ...

    def upright(self, at: Tensor) -> Tensor:
        """Return points of a mirrored mode moved to the mode that is meant."""
        ...


class _Chains(NamedTuple):
    """Where K chains are."""

    at: Tensor
    value: Tensor
    gradient: Tensor


class _Proposal(NamedTuple):
    """Where their trajectories ended, with what momentum, and how likely that is accepted."""

    to: _Chains
    momentum: Tensor
    accept: Tensor
    divergent: Tensor


class _Mass:
    """Standard deviations (P,), pooled over chains and draws."""

    def __init__(self, like: Tensor) -> None:
        self.sd = torch.ones_like(like[0])
        self._forget()

    def _forget(self) -> None:
        self.count, self.total, self.square = 0, 0.0 * self.sd, 0.0 * self.sd

    def add(self, at: Tensor) -> None:
        self.count += len(at)
        self.total, self.square = self.total + at.sum(0), self.square + at.square().sum(0)

    def learn(self) -> None:
        """Take over what was seen since the last time, with a little of 1 for too few draws."""
        mean = self.total / self.count
        variance = (self.square / self.count - mean.square()).clamp_min(0)
        self.sd = ((self.count * variance + 0.05) / (self.count + 50)).clamp_min(1e-12).sqrt()
        self._forget()


class _Step:
    """Dual averaging of the logarithm of the step [HG14]_."""

    def __init__(self, start: float, acceptance: float) -> None:
        self.acceptance = acceptance
        self.restart(start)

    def restart(self, start: float) -> None:
        self.log = self.settled = math.log(start)
        self.aim, self.error, self.count = math.log(2 * start), 0.0, 0

    def learn(self, accepted: float) -> None:
        self.count += 1
        t = self.count
        share = 1 / (t + 10)
        self.error = (1 - share) * self.error + share * (self.acceptance - accepted)
        self.log = self.aim - math.sqrt(t) / 0.05 * self.error
        self.settled += t**-0.75 * (self.log - self.settled)


class _Trajectory:
    """Its length T by Adam's steps up the ChEES criterion, on the log scale [HRS21]_."""

    def __init__(self) -> None:
        self.log = self.settled = 0.0
        self.square, self.count = 0.0, 0

    def learn(self, gradient: float, longest: float) -> None:
        self.count += 1
        self.square = 0.95 * self.square + 0.05 * gradient**2
        scale = math.sqrt(self.square / (1 - 0.95**self.count)) + 1e-12
        self.log = min(self.log + 0.025 * gradient / scale, math.log(longest))
        self.settled += (0.1 if self.count > 20 else 1.0) * (self.log - self.settled)


def hmc(
    counts: Counts, kind: Kind, rng: np.random.Generator, options: Options | None = None
) -> Sampled:
    """Draw from the posterior of the hierarchical Rasch or 2PL model.

    A 2PL's posterior has a lesser mode where abilities and discriminations are turned round. Chains
    that warm up in it are turned back; with few answers they cross later on, as those of `gibbs`.

    Raises
    ------
    ValueError
        Fewer than 4 chains, from which no trajectory is learnt, or fewer than 20 draws of warm-up.
    DesignError
        Not enough memory.
    """
    options = options or Options()
    if options.chains < 4 or options.warm_up < 20:
        found = f"{options.chains} chains and a warm-up of {options.warm_up}"
        msg = f"{found} found, expected at least 4 and 20: mass and trajectory are learnt there"
        raise ValueError(msg)
    (n, m), place, target = counts.right.shape, counts.right.device, LogisticTarget(counts, kind)
    needed = 8 * options.chains * (5 * n * m + 20 * sum(target.sizes) + options.draws * n)
    check_memory(needed, place, f"{options.chains} chains of {n} models × {m} items")
    generator = generator_of(rng, place)
    sampler = Sampler(target, target.start(options.chains, generator), generator, options)
    sampler.warm_up()
    kept = _Kept(target, options)
    for _ in told("draw", range(options.draws)):
        kept.add(sampler.draw())
    return Sampled(
        kept.draws(),
        divergent=int(sampler.divergent),
        acceptance=float(sampler.accepted) / options.draws,
        step=math.exp(sampler.step.settled),
        trajectory=math.exp(sampler.trajectory.settled),
        gradients=sampler.gradients,
    )


class Sampler:
    """Chains at one target, and what they have learnt of it."""

    def __init__(
        self, target: Target, start: Tensor, generator: torch.Generator, options: Options
    ) -> None:
        self.target, self.generator, self.options = target, generator, options
        self._stand(start)
        self.mass, self.trajectory = _Mass(start), _Trajectory()
        self.step = _Step(0.05, options.acceptance)
        self.moves = self.gradients = 0
        self.accepted = self.divergent = start.new_zeros(())

    def _stand(self, at: Tensor) -> None:
        self.chains = _Chains(at, self.target.value(at), self.target.gradient(at))

    def warm_up(self) -> None:
        """Learn mass, step and trajectory."""
        ends = {round(share * self.options.warm_up) for share in _WINDOWS}
        for k in told("warm-up draw", range(1, self.options.warm_up + 1)):
            length, before = self._share() * math.exp(self.trajectory.log), self.chains
            found = self._proposal(math.exp(self.step.log), length)
            self._move(found)
            # By the harmonic mean no chain is left behind that rejects everything.
            self.step.learn(1 / float((1 / found.accept.clamp_min(1e-6)).mean()))
            gradient = length * float(_chees(before.at / self.mass.sd, found, self.mass.sd))
            self.trajectory.learn(gradient, longest=_MOST_LEAPS / 2 * math.exp(self.step.log))
            self.mass.add(self.chains.at)
            if k in ends:
                self.mass.learn()
                self.step.restart(math.exp(self.step.settled))
                self._stand(self.target.upright(self.chains.at))

    def draw(self) -> Tensor:
        """Move all chains once, nothing being learnt any more."""
        length = self._share() * math.exp(self.trajectory.settled)
        found = self._proposal(math.exp(self.step.settled), length)
        self._move(found)
        self.accepted = self.accepted + found.accept.mean()
        self.divergent = self.divergent + found.divergent.sum()
        return self.chains.at

    def _share(self) -> float:
        """Twice a van der Corput number, so that trajectories are T long on average."""
        self.moves += 1
        digits = f"{self.moves:b}"[::-1]
        return 2 * int(digits, 2) / 2 ** len(digits)

    def _proposal(self, step: float, length: float) -> _Proposal:
        """Leapfrog in coordinates of unit mass."""
        at, value, gradient = self.chains
        sd = self.mass.sd
        first = torch.randn(at.shape, generator=self.generator, dtype=at.dtype, device=at.device)
        leaps = max(1, min(_MOST_LEAPS, math.ceil(length / step)))
        momentum = first + step / 2 * sd * gradient
        for k in range(leaps):
            at = at + step * sd * momentum
            gradient = self.target.gradient(at)
            momentum = momentum + (step if k + 1 < leaps else step / 2) * sd * gradient
        self.gradients += leaps
        reached = self.target.value(at)
        gain = reached - value - (momentum.square() - first.square()).sum(1) / 2
        gain = torch.where(torch.isfinite(gain), gain, -torch.inf)
        accept = gain.clamp_max(0).exp()
        return _Proposal(_Chains(at, reached, gradient), momentum, accept, gain < -_DIVERGED)

    def _move(self, found: _Proposal) -> None:
        like = found.accept
        u = torch.rand(like.shape, generator=self.generator, dtype=like.dtype, device=like.device)
        taken = u < like
        pairs = zip(self.chains, found.to, strict=True)
        self.chains = _Chains(
            *(torch.where(taken if x.ndim == 1 else taken[:, None], y, x) for x, y in pairs)
        )


def _chees(before: Tensor, found: _Proposal, sd: Tensor) -> Tensor:
    """How the mean squared change of the squared distance from the centre grows with time."""
    weight = found.accept / found.accept.sum().clamp_min(1e-12)
    # A trajectory that was lost weighs nothing, but 0 · ∞ is not a number.
    fine = (found.accept > 0)[:, None]
    after = torch.where(fine, found.to.at / sd, before)
    momentum = torch.where(fine, found.momentum, 0.0)
    old, new = before - before.mean(0), after - (weight[:, None] * after).sum(0)
    change = new.square().sum(1) - old.square().sum(1)
    return (weight * change * (new * momentum).sum(1)).sum()


class _Kept:
    """Draws of abilities and hyper-parameters, and sums of those of items."""

    def __init__(self, target: LogisticTarget, options: Options) -> None:
        self.target, self.options = target, options
        self.ability, self.hyper = list[Tensor](), list[dict[str, Tensor]]()
        self.sums = target.counts.right.new_zeros(5, target.counts.right.shape[1])

    def add(self, at: Tensor) -> None:
        place = self.target.place(at)
        shift = place.ability.mean(1, keepdim=True)
        a, d = place.slope, place.intercept + place.slope * shift
        self.ability.append(place.ability - shift)
        self.hyper.append(place.hyper)
        self.sums += torch.stack([x.sum(0) for x in (a, d, a * a, a * d, d * d)])

    def draws(self) -> Draws:
        a, d, aa, ad, dd = self.sums / (self.options.chains * self.options.draws)
        rows = [torch.stack(x, 1) for x in ((aa - a * a, ad - a * d), (ad - a * d, dd - d * d))]
        hyper = {name: torch.cat([x[name] for x in self.hyper], 1) for name in self.hyper[0]}
        return Draws(torch.stack(self.ability, 1), hyper, a, d, torch.stack(rows, 1))
