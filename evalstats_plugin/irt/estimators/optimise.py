"""Optimisers that run many problems at once on torch tensors.

* `ascend`: Newton's, Fisher's or `FirstOrder` steps, halved where they lower the objective;
  `posterior_mode`: logistic regressions with a normal prior
* `squarem`: accelerated fixed-point iterations, such as EM [VR08]_, by `extrapolated` steps
* `Solution`: where any of them ended, and whether it has converged
* `log_likelihood` of binomial counts
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from evalstats_plugin.irt.model.arrays import on_host
from evalstats_plugin.irt.model.data import Counts
from evalstats_plugin.runtime.progress import report_progress
from evalstats_plugin.runtime.torch import linalg

Step = Callable[[Tensor], tuple[Tensor, Tensor]]
"""From a point to the next point and the objective (a scalar tensor) at the first."""

Climb = Callable[[Tensor], tuple[Tensor, Callable[[], tuple[Tensor, Tensor]]]]
"""From points (B, P) to values (B,), and to what computes steps (B, P) from there and the rises
that these predict (B,)."""

# Pairs of steps and gradient changes that L-BFGS keeps.
_MEMORY = 10

# Adam: share of the means of gradients and of their squares that a step keeps, and step length.
_MEAN_KEPT, _SQUARE_KEPT, _RATE = 0.9, 0.999, 0.05

# Shortest share of a step that `ascend` tries.
_SHORTEST = 1e-6

# Logistic regressions: predicted rise at which they end, and most steps.
_SETTLED_RISE, _NEWTON_STEPS = 1e-16, 100

# Steps of a round of SQUAREM.
_ROUND = 3

# SQUAREM checks the second plain step too when the first changes less than this many tolerances.
_NEAR = 100.0

# SQUAREM stops after this many rounds without a change of the objective, in double and in single
# precision, in which small changes do not show.
_STILL, _STILL_SINGLE = 3, 10


class Solution(NamedTuple):
    """Where the searches of B problems ended; a fixed point is a single problem without axis B."""

    at: Tensor
    """Shape (B, P)."""
    value: Tensor
    """Objective at the last point that it was computed for, shape (B,)."""
    steps: int
    converged: Tensor
    """Shape (B,): whether the parameters, the gradient or the objective have settled."""
    change: float = math.nan
    """Of a fixed point: largest change of any number in the last plain step."""


def ascend(
    climb: Climb,
    start: Tensor,
    *,
    tolerance: float,
    max_steps: int,
    longest: float = math.inf,
    kept: Callable[[Tensor], Tensor] = lambda at: at,
) -> Solution:
    """Maximise B functions of P numbers from `start` (B, P); each stops by itself.

    A step that lowers the objective is refused and then halved. A search has converged when a step
    was taken that predicted a rise below `tolerance`.

    Parameters
    ----------
    longest
        Largest change of any number in a step.
    kept
        Maps points to points with the same objective, or within bounds.
    """
    at, (value, onward) = start, climb(start)
    length = torch.ones_like(value)
    active, converged, steps = length > 0, length < 0, 0
    least: float | Tensor = tolerance
    if value.dtype != torch.float64:
        # Smaller rises are rounding errors.
        least = (torch.finfo(value.dtype).eps * value.abs()).clamp_min(tolerance)
    going = len(value) > 0
    while steps < max_steps and going:
        steps += 1
        report_progress("step", steps)
        move, gain = onward()
        share = length
        if longest < math.inf:
            share = length * (longest / move.abs().amax(1)).clamp_max(1)
        trial = torch.where(active[:, None], kept(at + share[:, None] * move), at)
        trial_value, beyond = climb(trial)
        better = trial_value >= value - 1e-12 * value.abs()
        converged = converged | (active & better & (gain < least))
        active = active & ~converged & (length > _SHORTEST)
        # Both in one transfer, because the host waits for it.
        going, all_better = map(bool, on_host([active.any(), better.all()]))
        if all_better:
            at, value, onward = trial, trial_value, beyond
        else:
            at = torch.where(better[:, None], trial, at)
            value, onward = climb(at)
        length = torch.where(better, (2 * length).clamp_max(1), length / 2)
    return Solution(at, value, steps, converged)


class FirstOrder:
    """Ascent steps from gradients alone, for `ascend`: ``"gd"``, ``"adam"`` [KB15]_ or ``"lbfgs"``.

    `ascend` halves a step that lowers the objective, so that all of them settle at a maximum.
    """

    def __init__(self, name: str) -> None:
        self.name, self.count, self.memory = name, 0, _Memory()
        self.last: tuple[Tensor, Tensor] | None = None
        self.moments: tuple[Tensor, Tensor] | None = None

    def step(self, at: Tensor, gradient: Tensor, curvature: Tensor) -> Tensor:
        """Return a step from points (B, P), whose curvature is at most `curvature`."""
        straight = gradient / curvature
        if self.name == "adam":
            self.count += 1
            zero = torch.zeros_like(gradient)
            mean, square = self.moments or (zero, zero)
            mean = _MEAN_KEPT * mean + (1 - _MEAN_KEPT) * gradient
            square = _SQUARE_KEPT * square + (1 - _SQUARE_KEPT) * gradient.square()
            self.moments = mean, square
            unbiased = (square / (1 - _SQUARE_KEPT**self.count)).sqrt().clamp_min(1e-12)
            return _RATE * mean / (1 - _MEAN_KEPT**self.count) / unbiased
        if self.name == "gd":
            return straight
        if self.last is not None and not torch.equal(at, self.last[0]):
            self.memory.add(at - self.last[0], self.last[1] - gradient)
        self.last = at, gradient
        direction = self.memory.direction(-gradient)
        return torch.where((direction * gradient).sum(1, keepdim=True) > 0, direction, straight)


class _Memory:
    """The last steps and the change of the gradient along each."""

    def __init__(self) -> None:
        self.pairs: list[tuple[Tensor, Tensor, Tensor]] = []
        self.scale: Tensor | None = None

    def add(self, step: Tensor, bend: Tensor) -> None:
        along, square = (step * bend).sum(1), (bend * bend).sum(1)
        # Pairs without positive curvature, or without a step, are left out.
        curved = along > 1e-10 * square.sqrt() * linalg.vector_norm(step, dim=1)
        inverse = torch.where(curved, 1 / along, 0.0)
        before = 1.0 if self.scale is None else self.scale
        self.scale = torch.where(curved, along / square, before)
        self.pairs = [*self.pairs[1 - _MEMORY :], (step, bend, inverse)]

    def direction(self, gradient: Tensor) -> Tensor:
        """Minus the inverse Hessian times the gradient, by the two-loop recursion."""
        if self.scale is None:
            return -gradient / linalg.vector_norm(gradient, dim=1, keepdim=True).clamp_min(1e-300)
        towards, shares = gradient.clone(), list[Tensor]()
        for step, bend, inverse in reversed(self.pairs):
            share = inverse * (step * towards).sum(1)
            towards -= share[:, None] * bend
            shares.append(share)
        towards *= self.scale[:, None]
        for (step, bend, inverse), share in zip(self.pairs, reversed(shares), strict=True):
            towards += (share - inverse * (bend * towards).sum(1))[:, None] * step
        return -towards


def squarem(step: Step, start: Tensor, *, tolerance: float, max_steps: int) -> Solution:
    """Iterate to a fixed point: two plain steps, then an extrapolation from them (scheme S3).

    An extrapolation that lowers the objective is undone, unless the plain steps turn back. The
    iteration stops when no number changes by more than `tolerance` in a plain step, or when the
    objective has changed by less than 1e-11 of its value for some rounds: parameters without a
    finite optimum never settle. Every evaluation of `step` counts; where too few are left for an
    extrapolation, the last ones are plain steps.
    """
    point, steps, still, before = start, 0, 0, -math.inf
    rounds = _STILL if start.dtype == torch.float64 else _STILL_SINGLE
    while True:
        first, height = step(point)
        steps += 1
        report_progress("step", steps)
        move = first - point
        # One transfer to the host for three steps.
        objective, change = on_host([height, move.abs().max()])
        still = still + 1 if abs(objective - before) <= 1e-11 * abs(objective) else 0
        before = objective
        settled = change <= tolerance or still >= rounds
        if settled or steps >= max_steps or not math.isfinite(objective):
            return Solution(first, height, steps, torch.tensor(settled), change)
        if steps + _ROUND > max_steps:
            point = first
            continue
        second, higher = step(first)
        if change <= _NEAR * tolerance:
            objective, change = on_host([higher, (second - first).abs().max()])
            if change <= tolerance:
                return Solution(second, higher, steps + 1, torch.tensor(data=True), change)
        landed, reached = step(extrapolated(point, first, second, longest=64.0, shortest=0.25))
        steps += 2
        # Steps that turn back may go ever farther, while the objective of an estimated prior rises.
        turns_back = ((second - first) * move).sum() < 0
        point = torch.where((reached >= height) | turns_back, landed, second)


def extrapolated(
    point: Tensor, first: Tensor, second: Tensor, *, longest: float, shortest: float = 1.0
) -> Tensor:
    """Where the next plain steps of two would lead: so many times as far (scheme S3)."""
    move = first - point
    bend = second - first - move
    tiny = torch.finfo(bend.dtype).tiny
    longer = linalg.vector_norm(move) / linalg.vector_norm(bend).clamp_min(tiny)
    length = longer.clamp(shortest, longest)
    return point + 2 * length * move + length * length * bend


def posterior_mode(
    counts: Counts, design: Tensor, offset: Tensor, prior: tuple[Tensor, Tensor],
    start: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Coefficients (n, p) of n logistic regressions on the same m rows, by Newton's method.

    Parameters
    ----------
    counts
        Successes and trials, shape (n, m).
    design, offset
        Shapes (m, p) and (m,): the logit is ``offset + design @ coefficients``.
    prior
        Mean (p,) and precision (p, p), positive definite.
    start
        Where to begin, (n, p); None: at the prior mean.
    """
    mean, precision = prior
    size = len(mean)
    row, column = torch.triu_indices(size, size, device=design.device)
    products = design[:, row] * design[:, column]

    def climb(at: Tensor) -> tuple[Tensor, Callable[[], tuple[Tensor, Tensor]]]:
        logit = torch.addmm(offset, at, design.T)
        away = at - mean
        held = away @ precision
        value = log_likelihood(counts.right, counts.trials, logit).sum(1) - (held * away).sum(1) / 2

        def onward() -> tuple[Tensor, Tensor]:
            chance = torch.sigmoid(logit)
            packed = (counts.trials * chance * (1 - chance)) @ products
            information = packed.new_zeros(len(at), size, size)
            information[:, row, column] = packed
            information[:, column, row] = packed
            gradient = (counts.right - counts.trials * chance) @ design - held
            step = linalg.solve_ex(information + precision, gradient)[0]
            return step, (gradient * step).sum(1)

        return value, onward

    start = mean.expand(len(counts.right), size) if start is None else start
    return ascend(climb, start, tolerance=_SETTLED_RISE, max_steps=_NEWTON_STEPS).at


def log_likelihood(right: Tensor, trials: Tensor, logit: Tensor) -> Tensor:
    """Binomial log-likelihood of each cell given its logit, without the binomial coefficient."""
    return right * logit - trials * torch.nn.functional.softplus(logit)
