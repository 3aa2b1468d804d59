"""Posterior draws of abilities and items, by Gibbs sampling with Pólya–Gamma numbers [PSW13]_.

Given one Pólya–Gamma number per cell, abilities are normal given items and items normal given
abilities: a sweep has no step size and rejects nothing. All chains are one batch of arrays.

Rasch: θ ~ N(0, τ²), intercept d ~ N(μ, σ²). 2PL: θ ~ N(0, 1), d ~ N(μ, σ²) and discrimination
a ~ N(μ_a, σ_a²), of either sign. Priors: μ ~ N(0, 3²), τ ~ half-normal(2), σ ~ half-normal(3),
μ_a ~ N(1, 1), σ_a ~ half-normal(1).
"""
# PART hmc - Posterior draws by Hamiltonian Monte Carlo, many chains as one batch: the check of `gibbs`.
# PART logistic_target - Log posterior of the hierarchical Rasch and 2PL models, non-centred, of many chains at once.

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from evalstats_plugin.irt.model.data import Counts
from evalstats_plugin.runtime.torch import check_memory, generator_of, polya_gamma
from evalstats_plugin.runtime.workers import told

GibbsKind = Literal["rasch", "2pl"]


GIBBS_NOTE = (
    "posterior draws: with 10 models and 500 items that discriminate alike, abilities agreed with "
    "mml-items to .03 and their errors to 1 %, at 400 times its cost"
)


# Places at which the density of a standard deviation is tabulated.
_TABLE = 400


# Prior of μ.
_MEAN_SD = 3.0


# A loss of this much energy: the trajectory has left the posterior, as Stan counts it.
_DIVERGED = 1000.0


_MOST_LEAPS = 256


# Shares of the warm-up after which the mass is learnt anew from the draws since the last.
_WINDOWS = (0.1, 0.2, 0.4, 0.7)


Kind = Literal["rasch", "2pl"]


@dataclass(frozen=True, kw_only=True)
class GibbsOptions:
    """How long to draw."""

    chains: int = 4
    draws: int = 1000
    """Kept, of each chain."""
    warm_up: int = 300
    """Thrown away."""


class Draws(NamedTuple):
    """K chains of S draws."""

    ability: Tensor
    """Shape (K, S, N); each draw sums to 0, the items having moved along."""
    hyper: dict[str, Tensor]
    """By name, each of shape (K, S)."""
    discrimination: Tensor
    """Posterior means, shape (M,)."""
    intercept: Tensor
    item_covariance: Tensor
    """Posterior covariance of discrimination and intercept, shape (M, 2, 2)."""


class _State(NamedTuple):
    """Of all chains: θ (K, N), a and d (K, M), hyper-parameters (K, 1)."""

    ability: Tensor
    slope: Tensor
    intercept: Tensor
    ability_sd: Tensor
    mean: Tensor
    sd: Tensor
    slope_mean: Tensor
    slope_sd: Tensor


def gibbs(
    counts: Counts, kind: GibbsKind, rng: np.random.Generator, options: GibbsOptions | None = None
) -> Draws:
    """Draw from the posterior.

    Raises
    ------
    ValueError
        Trials are not whole numbers, which Pólya–Gamma numbers are of; right answers may be
        fractions.
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
    for _ in told("warm-up draw", range(options.warm_up)):
        state = _sweep(counts, kind, state, generator)
    kept = counts.right.new_empty(options.draws, options.chains, n)
    hyper = counts.right.new_empty(options.draws, 5, options.chains)
    total, square = counts.right.new_zeros(2, m), counts.right.new_zeros(3, m)
    for k in told("draw", range(options.draws)):
        state = _sweep(counts, kind, state, generator)
        shift = state.ability.mean(1, keepdim=True)
        kept[k] = state.ability - shift
        hyper[k] = torch.stack([x[:, 0] for x in state[3:]])
        a, d = state.slope, state.intercept + state.slope * shift
        total += torch.stack([a.sum(0), d.sum(0)])
        square += torch.stack([(a * a).sum(0), (a * d).sum(0), (d * d).sum(0)])
    return _draws(kind, kept, hyper, total, square)


def _draws(kind: GibbsKind, kept: Tensor, hyper: Tensor, total: Tensor, square: Tensor) -> Draws:
    count = kept.shape[0] * kept.shape[1]
    a, d = total / count
    aa, ad, dd = square / count - torch.stack([a * a, a * d, d * d])
    covariance = torch.stack([torch.stack([aa, ad], 1), torch.stack([ad, dd], 1)], 1)
    named = dict(zip(("ability_sd", "intercept_mean", "intercept_sd", "discrimination_mean",
                      "discrimination_sd"), hyper.permute(1, 2, 0), strict=True))  # fmt: skip
    of = list(named)[:3] if kind == "rasch" else list(named)[1:]
    chains = kept.transpose(0, 1).contiguous()
    return Draws(chains, {name: named[name] for name in of}, a, d, covariance)


def _start(counts: Counts, kind: GibbsKind, chains: int, generator: torch.Generator) -> _State:
    """Chains start apart, further than the posterior reaches."""
    right, trials = counts.right, counts.trials
    ability = torch.logit((right.sum(1) + 0.5) / (trials.sum(1) + 1))
    item = torch.logit((right.sum(0) + 0.5) / (trials.sum(0) + 1))
    one = right.new_ones(chains, 1)

    def apart(centre: Tensor) -> Tensor:
        return centre + 0.5 * _normal(centre.expand(chains, -1), generator)

    slope = right.new_ones(chains, right.shape[1])
    if kind == "2pl":
        slope = slope * torch.exp(0.3 * _normal(slope, generator))
    middle = item.mean() * one
    ability = apart(ability - ability.mean())
    return _State(ability, slope, apart(item), one, middle, one, one, 0.5 * one)


def _normal(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(like.shape, generator=generator, dtype=like.dtype, device=like.device)


def _sweep(counts: Counts, kind: GibbsKind, state: _State, generator: torch.Generator) -> _State:
    """Draw everything once, each given the rest."""
    logit = state.ability[..., None] * state.slope[:, None] + state.intercept[:, None]
    omega = polya_gamma(counts.trials.expand_as(logit), logit, generator)
    kappa = counts.right - counts.trials / 2
    a, d = state.slope, state.intercept
    precision = (omega @ (a * a)[..., None])[..., 0] + state.ability_sd**-2
    pull = a @ kappa.T - (omega @ (a * d)[..., None])[..., 0]
    ability = pull / precision + _normal(pull, generator) / precision.sqrt()
    state = _items(kind, state._replace(ability=ability), (omega, kappa), generator)
    state = _shifted(state, generator)
    if kind == "2pl":
        state = _stretched(state, generator)
    return _hyper(kind, state, generator)


def _items(
    kind: GibbsKind, state: _State, cells: tuple[Tensor, Tensor], generator: torch.Generator
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


def _shifted(state: _State, generator: torch.Generator) -> _State:
    """Move abilities up, intercepts and their mean down, which the answers do not tell apart.

    By single draws they would crawl there. Residuals d - μ change by the share a - μ_a only.
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


def _stretched(state: _State, generator: torch.Generator) -> _State:
    """Stretch abilities and shrink discriminations with their distribution, of a 2PL [LS00]_."""
    count, square = state.ability.shape[1], state.ability.square().sum(1, keepdim=True)
    table, step = _table(count, square)
    inverse = torch.exp(-table)
    log_density = (count - 2) * table - square / 2 * inverse**-2
    log_density = log_density - (state.slope_mean * inverse - 1).square() / 2
    log_density = log_density - (state.slope_sd * inverse).square() / 2
    scale = torch.exp(_tabulated(table, log_density, step, generator))
    return state._replace(
        ability=state.ability * scale,
        slope=state.slope / scale,
        slope_mean=state.slope_mean / scale,
        slope_sd=state.slope_sd / scale,
    )


def _hyper(kind: GibbsKind, state: _State, generator: torch.Generator) -> _State:
    mean = _location(state.intercept, state.sd, (0.0, _MEAN_SD), generator)
    sd = _spread(state.intercept - mean, 3.0, generator)
    if kind == "rasch":
        ability_sd = _spread(state.ability, 2.0, generator)
        return state._replace(mean=mean, sd=sd, ability_sd=ability_sd)
    slope_mean = _location(state.slope, state.slope_sd, (1.0, 1.0), generator)
    slope_sd = _spread(state.slope - slope_mean, 1.0, generator)
    return state._replace(mean=mean, sd=sd, slope_mean=slope_mean, slope_sd=slope_sd)


def _location(
    values: Tensor, sd: Tensor, prior: tuple[float, float], generator: torch.Generator
) -> Tensor:
    precision = values.shape[1] * sd**-2 + prior[1] ** -2
    pull = values.sum(1, keepdim=True) * sd**-2 + prior[0] * prior[1] ** -2
    return pull / precision + _normal(pull, generator) / precision.sqrt()


def _spread(away: Tensor, prior: float, generator: torch.Generator) -> Tensor:
    """Draw a standard deviation given values of mean 0, under a half-normal prior."""
    count, square = away.shape[1], away.square().sum(1, keepdim=True).clamp_min(1e-12)
    table, step = _table(count, count**2 / square)
    # On the log scale, hence count - 1.
    log_density = (1 - count) * table - square / 2 * torch.exp(-2 * table)
    log_density = log_density - torch.exp(2 * table) / (2 * prior**2)
    return torch.exp(_tabulated(table, log_density, step, generator))


def _table(count: int, square: Tensor) -> tuple[Tensor, float]:
    """Logarithms around ½ log(count / square), as far as a scale of `count` values can be."""
    width = 10 / (2 * count) ** 0.5
    table = torch.linspace(-width, width, _TABLE, dtype=square.dtype, device=square.device)
    return 0.5 * torch.log(count / square) + table, 2 * width / (_TABLE - 1)


def _tabulated(
    table: Tensor, log_density: Tensor, step: float, generator: torch.Generator
) -> Tensor:
    """Draw by the distribution function, anywhere in the cell found."""
    share = torch.softmax(log_density, dim=1).cumsum(1)
    like = share[:, :1].contiguous()
    u, inside = (
        torch.rand(like.shape, generator=generator, dtype=like.dtype, device=like.device)
        for _ in range(2)
    )
    place = torch.searchsorted(share, u * share[:, -1:]).clamp_max(_TABLE - 1)
    return table.gather(1, place) + (inside - 0.5) * step


@dataclass(frozen=True, kw_only=True)
class HmcOptions:
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
    counts: Counts, kind: Kind, rng: np.random.Generator, options: HmcOptions | None = None
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
        self, target: Target, start: Tensor, generator: torch.Generator, options: HmcOptions
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

    def __init__(self, target: LogisticTarget, options: HmcOptions) -> None:
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


class Place(NamedTuple):
    """Parameters of K chains in the words of the model."""

    ability: Tensor
    """Shape (K, N)."""
    slope: Tensor
    """Shape (K, M)."""
    intercept: Tensor
    hyper: dict[str, Tensor]
    """By name, each of shape (K, 1)."""


class LogisticTarget:
    """Log density and gradient at points (K, P): z (N), e (M), f (M, 2PL only), hyper-parameters.

    Hyper-parameters are μ, log σ and log τ of a Rasch model; μ, log σ, μ_a and log σ_a of a 2PL.
    """

    def __init__(self, counts: Counts, kind: Kind) -> None:
        self.counts, self.kind = counts, kind
        n, m = counts.right.shape
        self.sizes = [n, m, 1, 1, 1] if kind == "rasch" else [n, m, m, 1, 1, 1, 1]

    def place(self, at: Tensor) -> Place:
        """Return the parameters at points (K, P)."""
        parts = at.split(self.sizes, 1)
        if self.kind == "rasch":
            z, e, mean, log_sd, log_ability = parts
            sd, ability_sd = log_sd.exp(), log_ability.exp()
            hyper = {"ability_sd": ability_sd, "intercept_mean": mean, "intercept_sd": sd}
            return Place(ability_sd * z, torch.ones_like(e), mean + sd * e, hyper)
        z, e, f, mean, log_sd, slope_mean, log_slope = parts
        sd, slope_sd = log_sd.exp(), log_slope.exp()
        hyper = {"intercept_mean": mean, "intercept_sd": sd}
        hyper |= {"discrimination_mean": slope_mean, "discrimination_sd": slope_sd}
        return Place(z, slope_mean + slope_sd * f, mean + sd * e, hyper)

    def value(self, at: Tensor) -> Tensor:
        """Log posterior density, up to a constant, shape (K,)."""
        logit = _logit(self.place(at))
        wrong = self.counts.trials * torch.nn.functional.softplus(logit)
        return (self.counts.right * logit - wrong).sum((1, 2)) + self._prior(at)

    def _prior(self, at: Tensor) -> Tensor:
        free = sum(self.sizes) - (3 if self.kind == "rasch" else 4)
        normal, hyper = at[:, :free].square().sum(1) / 2, at[:, free:]
        # A half-normal standard deviation brings its logarithm as a Jacobian.
        density = hyper[:, 1] - hyper[:, 0].square() / 18 - (2 * hyper[:, 1]).exp() / 18
        if self.kind == "rasch":
            return density - normal + hyper[:, 2] - (2 * hyper[:, 2]).exp() / 8
        slope = (hyper[:, 2] - 1).square() / 2 + (2 * hyper[:, 3]).exp() / 2
        return density - normal + hyper[:, 3] - slope

    def gradient(self, at: Tensor) -> Tensor:
        """Of `value`, shape (K, P)."""
        place, parts = self.place(at), at.split(self.sizes, 1)
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

    def upright(self, at: Tensor) -> Tensor:
        """Turn abilities and discriminations of a 2PL to where most items reward ability."""
        if self.kind == "rasch":
            return at
        z, e, f, mean, log_sd, slope_mean, log_slope = at.split(self.sizes, 1)
        sign = torch.where(self.place(at).slope.sum(1, keepdim=True) < 0, -1.0, 1.0).to(at)
        return torch.cat([sign * z, e, sign * f, mean, log_sd, sign * slope_mean, log_slope], 1)

    def start(self, chains: int, generator: torch.Generator) -> Tensor:
        """Points (K, P) around the shares of right answers, chains half a unit apart.

        Hyper-parameters start nearer, lest a chain of a 2PL is turned round from the start.
        """
        right, trials = self.counts.right, self.counts.trials
        ability = torch.logit((right.sum(1) + 0.5) / (trials.sum(1) + 1))
        item = torch.logit((right.sum(0) + 0.5) / (trials.sum(0) + 1))
        middle = item.mean()[None]
        parts = [ability - ability.mean(), item - middle]
        none, one = right.new_zeros(1), right.new_ones(1)
        last = [middle, none, none] if self.kind == "rasch" else [middle, none, one, none - 0.7]
        if self.kind == "2pl":
            parts.append(torch.zeros_like(item))
        centre = torch.cat([*parts, *last]).expand(chains, -1)
        noise = torch.randn(
            centre.shape, generator=generator, dtype=right.dtype, device=right.device
        )
        apart = torch.full_like(centre[0], 0.5)
        apart[sum(self.sizes) - len(last) :] = 0.1
        return centre + apart * noise


def _logit(place: Place) -> Tensor:
    return torch.addcmul(place.intercept[:, None], place.ability[..., None], place.slope[:, None])
