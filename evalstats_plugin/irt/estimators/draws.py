"""Posterior draws of hierarchical Rasch and 2PL models, by Gibbs sampling or Hamiltonian MC.

Rasch: θ ~ N(0, τ²), intercept d ~ N(μ, σ²). 2PL: θ ~ N(0, 1), d ~ N(μ, σ²) and discrimination
a ~ N(μ_a, σ_a²), of either sign. Priors: μ ~ N(0, 3²), τ ~ half-normal(2), σ ~ half-normal(3),
μ_a ~ N(1, 1), σ_a ~ half-normal(1). All chains are one batch of arrays.

* `gibbs`: with one Pólya–Gamma number per cell [PSW13]_, abilities are normal given items and items
  normal given abilities; a sweep has no step size and rejects nothing
* `hmc`: Hamiltonian Monte Carlo with adapted step, mass and trajectory length; a check of `gibbs`
* `fit_mcmc`: mean and covariance of the draws as an `IRTFit`
"""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import torch
from torch import Tensor

from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.errors import DesignError
from evalstats_plugin.irt.estimators.fitted import (
    Estimates,
    RaschOr2PL,
    as_array,
    irt_fit,
    run_facts,
)
from evalstats_plugin.irt.estimators.optimise import log_likelihood, smoothed_logit
from evalstats_plugin.irt.model.data import Counts
from evalstats_plugin.irt.model.fit import IRTFit
from evalstats_plugin.runtime.torch import check_memory, generator_of, polya_gamma
from evalstats_plugin.runtime.workers import with_progress
from evalstats_plugin.stats.draws import R_HAT_LIMIT, convergence

GIBBS_NOTE = (
    "posterior draws: with 10 models and 500 items that discriminate alike, abilities agreed with "
    "mml-items to .03 and their errors to 1 %, at 400 times its cost"
)

# Gibbs sampling: prior standard deviation of μ, and points at which the density of a standard
# deviation is tabulated.
_MEAN_SD = 3.0

_TABLE = 400

# HMC: energy lost by a trajectory that counts as divergent, as in Stan; most leapfrog steps; and
# shares of the warm-up after which the mass is learnt anew from the draws since the last time.
_DIVERGED = 1000.0

_MOST_LEAPS = 256
_WINDOWS = (0.1, 0.2, 0.4, 0.7)


@dataclass(frozen=True, kw_only=True)
class GibbsOptions:
    """Options of `gibbs`."""

    chains: int = 4
    draws: int = 1000
    """Kept draws of each chain."""
    warm_up: int = 300
    """Discarded draws of each chain."""


class Draws(NamedTuple):
    """K chains of S draws."""

    ability: Tensor
    """Shape (K, S, N); each draw sums to 0, and items are shifted with it."""
    hyper: dict[str, Tensor]
    """By name, each of shape (K, S)."""
    discrimination: Tensor
    """Posterior means, shape (M,)."""
    intercept: Tensor
    item_covariance: Tensor
    """Posterior covariance of discrimination and intercept, shape (M, 2, 2)."""


def gibbs(
    counts: Counts, kind: RaschOr2PL, rng: np.random.Generator, options: GibbsOptions | None = None
) -> Draws:
    """Draw from the posterior by Gibbs sampling.

    Raises
    ------
    ValueError
        Trials are not whole numbers; Pólya–Gamma numbers need them. Right answers may be fractions.
    DesignError
        Not enough memory.
    """
    options = options or GibbsOptions()
    if bool((counts.trials != counts.trials.round()).any()):
        msg = "trials are not whole numbers, expected counts of answers"
        raise ValueError(msg)
    device, (n, m) = counts.right.device, counts.right.shape
    needed = 8 * options.chains * (12 * n * m + options.draws * n)
    check_memory(needed, device, f"{options.chains} chains of {n} models × {m} items")
    generator = generator_of(rng, device)
    state = _start(counts, kind, options.chains, generator)
    for _ in with_progress("warm-up draw", range(options.warm_up)):
        state = _sweep(counts, kind, state, generator)
    kept = counts.right.new_empty(options.draws, options.chains, n)
    hyper = counts.right.new_empty(options.draws, 5, options.chains)
    sums = counts.right.new_zeros(5, m)
    for k in with_progress("draw", range(options.draws)):
        state = _sweep(counts, kind, state, generator)
        shift = state.ability.mean(1, keepdim=True)
        kept[k] = state.ability - shift
        hyper[k] = torch.stack([x[:, 0] for x in state[3:]])
        a, d = state.slope, state.intercept + state.slope * shift
        sums += torch.stack([x.sum(0) for x in (a, d, a * a, a * d, d * d)])
    names = ("ability_sd", "intercept_mean", "intercept_sd")
    names += ("discrimination_mean", "discrimination_sd")
    named = dict(zip(names, hyper.permute(1, 2, 0), strict=True))
    estimated = names[:3] if kind == "rasch" else names[1:]
    a, d, covariance = _item_moments(sums / (options.draws * options.chains))
    chains = kept.transpose(0, 1).contiguous()
    return Draws(chains, {name: named[name] for name in estimated}, a, d, covariance)


class _State(NamedTuple):
    """State of the Gibbs sampler: θ (K, N), a and d (K, M), hyper-parameters (K, 1)."""

    ability: Tensor
    slope: Tensor
    intercept: Tensor
    ability_sd: Tensor
    mean: Tensor
    sd: Tensor
    slope_mean: Tensor
    slope_sd: Tensor


def _start(counts: Counts, kind: RaschOr2PL, chains: int, generator: torch.Generator) -> _State:
    """Start values that are more dispersed than the posterior."""
    right, trials = counts.right, counts.trials
    ability = smoothed_logit(right.sum(1), trials.sum(1))
    item = smoothed_logit(right.sum(0), trials.sum(0))
    one = right.new_ones(chains, 1)

    def apart(centre: Tensor) -> Tensor:
        return centre + 0.5 * _normal(centre.expand(chains, -1), generator)

    slope = right.new_ones(chains, right.shape[1])
    if kind == "2pl":
        slope = slope * torch.exp(0.3 * _normal(slope, generator))
    middle = item.mean() * one
    ability = apart(ability - ability.mean())
    return _State(ability, slope, apart(item), one, middle, one, one, 0.5 * one)


def _sweep(counts: Counts, kind: RaschOr2PL, state: _State, generator: torch.Generator) -> _State:
    """Draw every parameter once, given the others."""
    logit = state.ability[..., None] * state.slope[:, None] + state.intercept[:, None]
    omega = polya_gamma(counts.trials.expand_as(logit), logit, generator)
    kappa = counts.right - counts.trials / 2
    a, d = state.slope, state.intercept
    precision = (omega @ (a * a)[..., None])[..., 0] + state.ability_sd**-2
    pull = a @ kappa.T - (omega @ (a * d)[..., None])[..., 0]
    ability = pull / precision + _normal(pull, generator) / precision.sqrt()
    state = _draw_items(kind, state._replace(ability=ability), (omega, kappa), generator)
    state = _shift_move(state, generator)
    if kind == "2pl":
        state = _scale_move(state, generator)
    return _draw_hyper(kind, state, generator)


def _draw_items(
    kind: RaschOr2PL, state: _State, cells: tuple[Tensor, Tensor], generator: torch.Generator
) -> _State:
    omega, kappa = cells
    theta = state.ability[:, None]
    held = omega.sum(1) + state.sd**-2
    pull = kappa.sum(0) + state.mean * state.sd**-2
    across = (theta @ omega)[:, 0]
    if kind == "rasch":
        pull = pull - across
        return state._replace(intercept=pull / held + _normal(pull, generator) / held.sqrt())
    steep = (theta.square() @ omega)[:, 0] + state.slope_sd**-2
    by_slope = state.ability @ kappa + state.slope_mean * state.slope_sd**-2
    # The 2 × 2 normal, d first and then a given d.
    own = held - across**2 / steep
    centre = (pull - across / steep * by_slope) / own
    d = centre + _normal(own, generator) / own.sqrt()
    a = (by_slope - across * d) / steep + _normal(own, generator) / steep.sqrt()
    return state._replace(slope=a, intercept=d)


def _shift_move(state: _State, generator: torch.Generator) -> _State:
    """Shift abilities up, and intercepts and their mean down: the likelihood does not change.

    Single draws would mix slowly in this direction. Residuals d - μ change by the share a - μ_a.
    """
    odd, above = state.slope - state.slope_mean, state.intercept - state.mean
    count, m = state.ability.shape[1], state.slope_mean
    precision = count * state.ability_sd**-2 + (m / _MEAN_SD) ** 2
    precision = precision + (odd * odd).sum(1, keepdim=True) * state.sd**-2
    pull = (odd * above).sum(1, keepdim=True) * state.sd**-2 + m * state.mean / _MEAN_SD**2
    pull = pull - state.ability.sum(1, keepdim=True) * state.ability_sd**-2
    shift = pull / precision + _normal(pull, generator) / precision.sqrt()
    return state._replace(
        ability=state.ability + shift,
        intercept=state.intercept - state.slope * shift,
        mean=state.mean - m * shift,
    )


def _scale_move(state: _State, generator: torch.Generator) -> _State:
    """Scale abilities up, and discriminations and their distribution down, in a 2PL [LS00]_."""
    count, square = state.ability.shape[1], state.ability.square().sum(1, keepdim=True)
    table, step = _table(count, square)
    inverse = torch.exp(-table)
    log_density = (count - 2) * table - square / 2 * inverse**-2
    log_density = log_density - (state.slope_mean * inverse - 1).square() / 2
    log_density = log_density - (state.slope_sd * inverse).square() / 2
    scale = torch.exp(_draw_from_table(table, log_density, step, generator))
    return state._replace(
        ability=state.ability * scale,
        slope=state.slope / scale,
        slope_mean=state.slope_mean / scale,
        slope_sd=state.slope_sd / scale,
    )


def _draw_hyper(kind: RaschOr2PL, state: _State, generator: torch.Generator) -> _State:
    mean = _draw_mean(state.intercept, state.sd, (0.0, _MEAN_SD), generator)
    sd = _draw_sd(state.intercept - mean, 3.0, generator)
    if kind == "rasch":
        ability_sd = _draw_sd(state.ability, 2.0, generator)
        return state._replace(mean=mean, sd=sd, ability_sd=ability_sd)
    slope_mean = _draw_mean(state.slope, state.slope_sd, (1.0, 1.0), generator)
    slope_sd = _draw_sd(state.slope - slope_mean, 1.0, generator)
    return state._replace(mean=mean, sd=sd, slope_mean=slope_mean, slope_sd=slope_sd)


def _draw_mean(
    values: Tensor, sd: Tensor, prior: tuple[float, float], generator: torch.Generator
) -> Tensor:
    precision = values.shape[1] * sd**-2 + prior[1] ** -2
    pull = values.sum(1, keepdim=True) * sd**-2 + prior[0] * prior[1] ** -2
    return pull / precision + _normal(pull, generator) / precision.sqrt()


def _draw_sd(away: Tensor, prior: float, generator: torch.Generator) -> Tensor:
    """Draw a standard deviation given values of mean 0, under a half-normal prior."""
    count, square = away.shape[1], away.square().sum(1, keepdim=True).clamp_min(1e-12)
    table, step = _table(count, count**2 / square)
    # On the log scale, hence count - 1.
    log_density = (1 - count) * table - square / 2 * torch.exp(-2 * table)
    log_density = log_density - torch.exp(2 * table) / (2 * prior**2)
    return torch.exp(_draw_from_table(table, log_density, step, generator))


def _table(count: int, square: Tensor) -> tuple[Tensor, float]:
    """Logarithms around ½ log(count / square) that cover the scale of `count` values; spacing."""
    width = 10 / (2 * count) ** 0.5
    table = torch.linspace(-width, width, _TABLE, dtype=square.dtype, device=square.device)
    return 0.5 * torch.log(count / square) + table, 2 * width / (_TABLE - 1)


def _draw_from_table(
    table: Tensor, log_density: Tensor, step: float, generator: torch.Generator
) -> Tensor:
    """Draw by inverting the distribution function, uniformly within a cell of the table."""
    share = torch.softmax(log_density, dim=1).cumsum(1)
    like = share[:, :1].contiguous()
    u, inside = _uniform(like, generator), _uniform(like, generator)
    place = torch.searchsorted(share, u * share[:, -1:]).clamp_max(_TABLE - 1)
    return table.gather(1, place) + (inside - 0.5) * step


@dataclass(frozen=True, kw_only=True)
class HmcOptions:
    """Options of `hmc`; the trajectory length is learnt across chains and needs many."""

    chains: int = 32
    draws: int = 250
    """Kept draws of each chain."""
    warm_up: int = 300
    """Discarded draws of each chain."""
    acceptance: float = 0.8
    """Target acceptance rate, which sets the step."""


class HmcDraws(NamedTuple):
    """Draws, and diagnostics of the sampler after its warm-up."""

    draws: Draws
    divergent: int
    """Number of divergent trajectories: if there are any, the draws are not reliable."""
    acceptance: float
    step: float
    trajectory: float
    """Mean length in posterior standard deviations; each is 0 to 2 times as long."""
    gradients: int
    """Gradient evaluations of each chain, with the warm-up."""


def hmc(
    counts: Counts, kind: RaschOr2PL, rng: np.random.Generator, options: HmcOptions | None = None
) -> HmcDraws:
    """Draw from the posterior by Hamiltonian Monte Carlo.

    The posterior of a 2PL has a smaller mode where abilities and discriminations change sign.
    Chains in it during the warm-up are reflected; with few answers they may cross again later, as
    those of `gibbs` do.

    Raises
    ------
    ValueError
        Fewer than 4 chains, too few to learn the trajectory from, or fewer than 20 warm-up draws.
    DesignError
        Not enough memory.
    """
    options = options or HmcOptions()
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
    kept = _HmcRecord(target, options)
    for _ in with_progress("draw", range(options.draws)):
        kept.add(sampler.draw())
    return HmcDraws(
        kept.draws(),
        divergent=int(sampler.divergent),
        acceptance=float(sampler.accepted) / options.draws,
        step=math.exp(sampler.step.settled),
        trajectory=math.exp(sampler.trajectory.settled),
        gradients=sampler.gradients,
    )


class Target(Protocol):
    """A log density at points (K, P)."""

    def value(self, at: Tensor) -> Tensor:
        """Return log densities (K,)."""
        ...

    def gradient(self, at: Tensor) -> Tensor:
        """Return their gradients (K, P)."""
        ...

    def oriented(self, at: Tensor) -> Tensor:
        """Return points, with those of the mirrored mode reflected to the other."""
        ...


class Sampler:
    """Chains of one target, and the mass, step and trajectory that they have learnt."""

    def __init__(
        self, target: Target, start: Tensor, generator: torch.Generator, options: HmcOptions
    ) -> None:
        self.target, self.generator, self.options = target, generator, options
        self._restart(start)
        self.mass, self.trajectory = _Mass(start), _Trajectory()
        self.step = _Step(0.05, options.acceptance)
        self.moves = self.gradients = 0
        self.accepted = self.divergent = start.new_zeros(())

    def _restart(self, at: Tensor) -> None:
        self.chains = _Chains(at, self.target.value(at), self.target.gradient(at))

    def warm_up(self) -> None:
        """Learn mass, step and trajectory."""
        ends = {round(share * self.options.warm_up) for share in _WINDOWS}
        for k in with_progress("warm-up draw", range(1, self.options.warm_up + 1)):
            length, before = self._jitter() * math.exp(self.trajectory.log), self.chains
            found = self._trajectory_end(math.exp(self.step.log), length)
            self._move(found)
            # The harmonic mean adapts to the chains that reject most.
            self.step.learn(1 / float((1 / found.accept.clamp_min(1e-6)).mean()))
            gradient = length * float(_chees(before.at / self.mass.sd, found, self.mass.sd))
            self.trajectory.learn(gradient, longest=_MOST_LEAPS / 2 * math.exp(self.step.log))
            self.mass.add(self.chains.at)
            if k in ends:
                self.mass.learn()
                self.step.restart(math.exp(self.step.settled))
                self._restart(self.target.oriented(self.chains.at))

    def draw(self) -> Tensor:
        """Move all chains once, without adaptation."""
        length = self._jitter() * math.exp(self.trajectory.settled)
        found = self._trajectory_end(math.exp(self.step.settled), length)
        self._move(found)
        self.accepted = self.accepted + found.accept.mean()
        self.divergent = self.divergent + found.divergent.sum()
        return self.chains.at

    def _jitter(self) -> float:
        """Factor of the trajectory length: twice a van der Corput number, with mean 1."""
        self.moves += 1
        digits = f"{self.moves:b}"[::-1]
        return 2 * int(digits, 2) / 2 ** len(digits)

    def _trajectory_end(self, step: float, length: float) -> _Proposal:
        """Simulate a trajectory by leapfrog steps, in coordinates of unit mass."""
        at, value, gradient = self.chains
        sd = self.mass.sd
        first = _normal(at, self.generator)
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
        taken = _uniform(found.accept, self.generator) < found.accept
        pairs = zip(self.chains, found.to, strict=True)
        self.chains = _Chains(
            *(torch.where(taken if x.ndim == 1 else taken[:, None], y, x) for x, y in pairs)
        )


class _Chains(NamedTuple):
    """Positions of K chains, with log densities and gradients."""

    at: Tensor
    value: Tensor
    gradient: Tensor


class _Proposal(NamedTuple):
    """Ends of K trajectories: position, momentum, acceptance probability, divergence."""

    to: _Chains
    momentum: Tensor
    accept: Tensor
    divergent: Tensor


class _Mass:
    """Posterior standard deviations (P,), pooled over chains and draws."""

    def __init__(self, like: Tensor) -> None:
        self.sd = torch.ones_like(like[0])
        self._forget()

    def _forget(self) -> None:
        self.count, self.total, self.square = 0, 0.0 * self.sd, 0.0 * self.sd

    def add(self, at: Tensor) -> None:
        self.count += len(at)
        self.total, self.square = self.total + at.sum(0), self.square + at.square().sum(0)

    def learn(self) -> None:
        """Estimate from the draws since the last time, regularised for few draws."""
        mean = self.total / self.count
        variance = (self.square / self.count - mean.square()).clamp_min(0)
        self.sd = ((self.count * variance + 0.05) / (self.count + 50)).clamp_min(1e-12).sqrt()
        self._forget()


class _Step:
    """Step size, by dual averaging of its logarithm [HG14]_."""

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
    """Trajectory length T, by Adam's steps up the ChEES criterion on the log scale [HRS21]_."""

    def __init__(self) -> None:
        self.log = self.settled = 0.0
        self.square, self.count = 0.0, 0

    def learn(self, gradient: float, longest: float) -> None:
        self.count += 1
        self.square = 0.95 * self.square + 0.05 * gradient**2
        scale = math.sqrt(self.square / (1 - 0.95**self.count)) + 1e-12
        self.log = min(self.log + 0.025 * gradient / scale, math.log(longest))
        self.settled += (0.1 if self.count > 20 else 1.0) * (self.log - self.settled)


def _chees(before: Tensor, found: _Proposal, sd: Tensor) -> Tensor:
    """Derivative by T of the ChEES criterion, the mean squared change of squared distances."""
    weight = found.accept / found.accept.sum().clamp_min(1e-12)
    # A divergent trajectory has weight 0, but 0 · ∞ is not a number.
    fine = (found.accept > 0)[:, None]
    after = torch.where(fine, found.to.at / sd, before)
    momentum = torch.where(fine, found.momentum, 0.0)
    old, new = before - before.mean(0), after - (weight[:, None] * after).sum(0)
    change = new.square().sum(1) - old.square().sum(1)
    return (weight * change * (new * momentum).sum(1)).sum()


class _HmcRecord:
    """Kept draws of abilities and hyper-parameters, and sums over draws of items."""

    def __init__(self, target: LogisticTarget, options: HmcOptions) -> None:
        self.target, self.options = target, options
        self.ability, self.hyper = list[Tensor](), list[dict[str, Tensor]]()
        self.sums = target.counts.right.new_zeros(5, target.counts.right.shape[1])

    def add(self, at: Tensor) -> None:
        place = self.target.parameters(at)
        shift = place.ability.mean(1, keepdim=True)
        a, d = place.slope, place.intercept + place.slope * shift
        self.ability.append(place.ability - shift)
        self.hyper.append(place.hyper)
        self.sums += torch.stack([x.sum(0) for x in (a, d, a * a, a * d, d * d)])

    def draws(self) -> Draws:
        a, d, covariance = _item_moments(self.sums / (self.options.chains * self.options.draws))
        hyper = {name: torch.cat([x[name] for x in self.hyper], 1) for name in self.hyper[0]}
        return Draws(torch.stack(self.ability, 1), hyper, a, d, covariance)


class LogisticTarget:
    """Log density and gradient of the non-centred model at points (K, P).

    A point holds standardised abilities z (N), intercepts e (M), discriminations f (M, 2PL only)
    and hyper-parameters: μ, log σ and log τ of a Rasch model; μ, log σ, μ_a and log σ_a of a 2PL.
    """

    def __init__(self, counts: Counts, kind: RaschOr2PL) -> None:
        self.counts, self.kind = counts, kind
        n, m = counts.right.shape
        self.sizes = [n, m, 1, 1, 1] if kind == "rasch" else [n, m, m, 1, 1, 1, 1]

    def parameters(self, at: Tensor) -> Parameters:
        """Model parameters at points (K, P)."""
        parts = at.split(self.sizes, 1)
        if self.kind == "rasch":
            z, e, mean, log_sd, log_ability = parts
            sd, ability_sd = log_sd.exp(), log_ability.exp()
            hyper = {"ability_sd": ability_sd, "intercept_mean": mean, "intercept_sd": sd}
            return Parameters(ability_sd * z, torch.ones_like(e), mean + sd * e, hyper)
        z, e, f, mean, log_sd, slope_mean, log_slope = parts
        sd, slope_sd = log_sd.exp(), log_slope.exp()
        hyper = {"intercept_mean": mean, "intercept_sd": sd}
        hyper |= {"discrimination_mean": slope_mean, "discrimination_sd": slope_sd}
        return Parameters(z, slope_mean + slope_sd * f, mean + sd * e, hyper)

    def value(self, at: Tensor) -> Tensor:
        """Log posterior density, up to a constant, shape (K,)."""
        logit = _logit(self.parameters(at))
        cells = log_likelihood(self.counts.right, self.counts.trials, logit)
        return cells.sum((1, 2)) + self._prior(at)

    def _prior(self, at: Tensor) -> Tensor:
        free = sum(self.sizes) - (3 if self.kind == "rasch" else 4)
        normal, hyper = at[:, :free].square().sum(1) / 2, at[:, free:]
        # The log standard deviation is added as the Jacobian of the half-normal prior.
        density = hyper[:, 1] - hyper[:, 0].square() / 18 - (2 * hyper[:, 1]).exp() / 18
        if self.kind == "rasch":
            return density - normal + hyper[:, 2] - (2 * hyper[:, 2]).exp() / 8
        slope = (hyper[:, 2] - 1).square() / 2 + (2 * hyper[:, 3]).exp() / 2
        return density - normal + hyper[:, 3] - slope

    def gradient(self, at: Tensor) -> Tensor:
        """Gradient of `value`, shape (K, P)."""
        place, parts = self.parameters(at), at.split(self.sizes, 1)
        sd = place.hyper["intercept_sd"]
        residual = self.counts.right - self.counts.trials * torch.sigmoid(_logit(place))
        by_ability = (residual @ place.slope[..., None])[..., 0]
        by_intercept = residual.sum(1)
        own = [by_ability - parts[0], sd * by_intercept - parts[1]]
        pulled = (by_intercept * parts[1]).sum(1, keepdim=True)
        mean = place.hyper["intercept_mean"]
        hyper = [by_intercept.sum(1, keepdim=True) - mean / 9, sd * pulled + 1 - sd.square() / 9]
        if self.kind == "rasch":
            tau = place.hyper["ability_sd"]
            own[0] = tau * by_ability - parts[0]
            stretched = tau * (by_ability * parts[0]).sum(1, keepdim=True)
            return torch.cat([*own, *hyper, stretched + 1 - tau.square() / 4], 1)
        by_slope = (place.ability[:, None] @ residual)[:, 0]
        slope_mean, slope_sd = (place.hyper[f"discrimination_{x}"] for x in ("mean", "sd"))
        own.append(slope_sd * by_slope - parts[2])
        hyper.append(by_slope.sum(1, keepdim=True) - (slope_mean - 1))
        spread = slope_sd * (by_slope * parts[2]).sum(1, keepdim=True)
        return torch.cat([*own, *hyper, spread + 1 - slope_sd.square()], 1)

    def oriented(self, at: Tensor) -> Tensor:
        """Reflect points of a 2PL so that discriminations have a positive sum."""
        if self.kind == "rasch":
            return at
        z, e, f, mean, log_sd, slope_mean, log_slope = at.split(self.sizes, 1)
        sign = torch.where(self.parameters(at).slope.sum(1, keepdim=True) < 0, -1.0, 1.0).to(at)
        return torch.cat([sign * z, e, sign * f, mean, log_sd, sign * slope_mean, log_slope], 1)

    def start(self, chains: int, generator: torch.Generator) -> Tensor:
        """Points (K, P) around the logits of shares of right answers, with a spread of ½.

        Hyper-parameters have a spread of 0.1, so that no chain of a 2PL starts reflected.
        """
        right, trials = self.counts.right, self.counts.trials
        ability = smoothed_logit(right.sum(1), trials.sum(1))
        item = smoothed_logit(right.sum(0), trials.sum(0))
        middle = item.mean()[None]
        parts = [ability - ability.mean(), item - middle]
        none, one = right.new_zeros(1), right.new_ones(1)
        last = [middle, none, none] if self.kind == "rasch" else [middle, none, one, none - 0.7]
        if self.kind == "2pl":
            parts.append(torch.zeros_like(item))
        centre = torch.cat([*parts, *last]).expand(chains, -1)
        apart = torch.full_like(centre[0], 0.5)
        apart[sum(self.sizes) - len(last) :] = 0.1
        return centre + apart * _normal(centre, generator)


class Parameters(NamedTuple):
    """Model parameters of K chains."""

    ability: Tensor
    """Shape (K, N)."""
    slope: Tensor
    """Shape (K, M)."""
    intercept: Tensor
    hyper: dict[str, Tensor]
    """By name, each of shape (K, 1)."""


def _logit(place: Parameters) -> Tensor:
    return torch.addcmul(place.intercept[:, None], place.ability[..., None], place.slope[:, None])


def _normal(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(like.shape, generator=generator, dtype=like.dtype, device=like.device)


def _uniform(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.rand(like.shape, generator=generator, dtype=like.dtype, device=like.device)


def _item_moments(mean: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Means of a and d, and their covariance (M, 2, 2), from means of a, d, a², ad, d² (5, M)."""
    a, d, aa, ad, dd = mean
    rows = [torch.stack(x, 1) for x in ((aa - a * a, ad - a * d), (ad - a * d, dd - d * d))]
    return a, d, torch.stack(rows, 1)


def fit_mcmc(
    matrix: ResponseMatrix,
    counts: Counts,
    item_model: str,
    options: Mapping[str, Any],
    rng: np.random.Generator,
) -> IRTFit:
    """Posterior mean and covariance of draws, as an `IRTFit`.

    Raises
    ------
    DesignError
        The option `sampler` is neither ``"gibbs"`` nor ``"hmc"``, or there is not enough memory.
    """
    began = time.perf_counter()
    found, run = _sampled(counts, item_model, dict(options), rng)
    ability = as_array(found.ability).reshape(-1, counts.right.shape[0])
    hyper = {name: float(value.mean()) for name, value in found.hyper.items()}
    agreement, notes = _chain_agreement(found)
    unit_scale = item_model == "2pl"
    return irt_fit(
        matrix,
        Estimates(
            ability.mean(axis=0),
            np.atleast_2d(np.cov(ability, rowvar=False)),
            as_array(found.discrimination),
            as_array(found.intercept),
            as_array(found.item_covariance),
        ),
        item_model=item_model,
        estimator="mcmc",
        identification=f"abilities sum to 0{', under ability ~ N(0, 1)' if unit_scale else ''}",
        hyperparameters={"ability_sd": 1.0, **hyper},
        diagnostics={**run, **agreement, **run_facts(counts, began)},
        notes=(*counts.notes, GIBBS_NOTE, *notes, *_reflection_note(found)),
    )


def _sampled(
    counts: Counts, item_model: str, options: dict[str, Any], rng: np.random.Generator
) -> tuple[Draws, dict[str, Any]]:
    """Draws of the chosen sampler, and its settings for the diagnostics."""
    kind = cast("RaschOr2PL", item_model)
    sampler = options.pop("sampler", "gibbs")
    if sampler not in ("gibbs", "hmc"):
        raise DesignError(f"sampler {sampler!r} found, expected 'gibbs' or 'hmc'")
    how = GibbsOptions(**options) if sampler == "gibbs" else HmcOptions(**options)
    run: dict[str, Any] = {
        "sampler": sampler,
        "iterations": how.warm_up + how.draws,
        "chains": how.chains,
        "draws": how.draws,
    }
    if isinstance(how, GibbsOptions):
        return gibbs(counts, kind, rng, how), run
    found = hmc(counts, kind, rng, how)
    return found.draws, {**run, "divergent": found.divergent}


def _chain_agreement(found: Draws) -> tuple[dict[str, Any], list[str]]:
    """R-hat and effective sample size of the abilities; ArviZ computes them."""
    try:
        seen = convergence(found.ability.cpu().numpy())
    except DesignError as error:
        return {"converged": None}, [f"whether the chains agree was not checked: {error}"]
    r_hat, ess = float(seen.r_hat.max()), float(seen.ess.min())
    agree = r_hat < R_HAT_LIMIT
    notes = (
        []
        if agree
        else [f"chains disagree (R-hat {r_hat:.3f}, expected < {R_HAT_LIMIT}): draw more"]
    )
    return {"converged": agree, "r_hat": r_hat, "ess": ess}, notes


def _reflection_note(found: Draws) -> list[str]:
    """Note where few answers leave the direction of the ability scale open."""
    means = found.hyper.get("discrimination_mean")
    share = 0.0 if means is None else float((means < 0).double().mean())
    if share <= 0.01:
        return []
    return [
        f"in {share:.0%} of the draws the scale is turned round: too few answers to tell able from "
        "unable, and means over the draws mix both"
    ]
