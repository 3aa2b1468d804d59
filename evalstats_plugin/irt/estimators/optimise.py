"""Optimisers that run many problems at once on torch tensors, and start values.

* `minimise`: L-BFGS with a line search; each problem takes its own steps and stops by itself
  [LN89]_
* `squarem`: accelerated fixed-point iterations, such as EM [VR08]_
* `posterior_mode`: logistic regressions with a normal prior, by Newton's method
* `smoothed_logit` and `log_likelihood` of binomial counts; `complement` of given directions
"""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from evalstats_plugin.irt.model.data import Counts
from evalstats_plugin.runtime.workers import report_progress

Objective = Callable[[Tensor], tuple[Tensor, Tensor]]
"""From points (B, P) to values (B,) and gradients (B, P)."""

Step = Callable[[Tensor], tuple[Tensor, Tensor]]
"""From a point to the next point and the objective (a scalar tensor) at the first."""

SETTLED = 1e-12
"""An objective that falls by less than this share three times in a row has settled."""

# Pairs of steps and gradient changes that L-BFGS keeps.
_MEMORY = 10

# Most halvings of a step in a line search.
_HALVINGS = 30

_NEWTON_STEPS = 100

# SQUAREM checks the second plain step too when the first changes less than this many tolerances.
_NEAR = 100.0

# SQUAREM stops after this many rounds without a change of the objective, in double and in single
# precision, in which small changes do not show.
_STILL, _STILL_SINGLE = 3, 10


def minimise(
    objective: Objective,
    start: Tensor,
    *,
    tolerance: float,
    max_steps: int,
    settled_at: float = SETTLED,
) -> Minimum:
    """Minimise B functions of P numbers by L-BFGS, from `start` (B, P).

    A search ends when no component of its gradient exceeds `tolerance`, or when its objective has
    settled. A search that finds no descent ends too; it has converged only if its gradient has.

    Raises
    ------
    ArithmeticError
        An objective is not a number at its start.
    """
    at = start
    value, gradient = objective(at)
    memory, still = _Memory(), torch.zeros_like(value)
    done = gradient.abs().amax(1) <= tolerance
    converged, steps = done.clone(), 0
    while steps < max_steps and not bool(done.all()):
        steps += 1
        report_progress("step", steps)
        direction = memory.direction(gradient)
        slope = (direction * gradient).sum(1)
        uphill = slope >= 0
        direction = torch.where(uphill[:, None], -gradient, direction)
        slope = torch.where(uphill, -gradient.square().sum(1), slope)
        step, fresh, bent, found = _line_search(objective, at, (value, direction, slope), done)
        memory.add(step, torch.where(found[:, None], bent - gradient, 0.0))
        still = torch.where(value - fresh <= settled_at * value.abs(), still + 1, 0.0)
        at, value, gradient = at + step, fresh, torch.where(found[:, None], bent, gradient)
        settled = (gradient.abs().amax(1) <= tolerance) | (still >= 3)
        converged |= settled & ~done
        done = done | settled | ~found
    return Minimum(at, value, steps, converged)


class Minimum(NamedTuple):
    """Result of B minimisations."""

    at: Tensor
    """Shape (B, P)."""
    value: Tensor
    """Shape (B,)."""
    steps: int
    converged: Tensor
    """Shape (B,): whether the gradient or the objective has settled."""


def _line_search(
    objective: Objective, at: Tensor, line: tuple[Tensor, Tensor, Tensor], done: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Halve the step until the objective falls by a share of what its slope predicts."""
    value, direction, slope = line
    length = torch.where(done, 0.0, torch.ones_like(value))
    for left in reversed(range(_HALVINGS)):
        step = length[:, None] * direction
        fresh, gradient = objective(at + step)
        # Rounding of a large sum must not pass for a rise.
        fine = fresh <= value + 1e-4 * length * slope + 1e-14 * value.abs()
        if bool(fine.all()):
            return step, fresh, gradient, length > 0
        length = torch.where(fine, length, length / 2 if left > 1 else 0.0)
    # A step of length 0 cannot rise, unless there was no number to rise from.
    raise ArithmeticError("the objective is not a number at its start")


class _Memory:
    """The last steps and the change of the gradient along each."""

    def __init__(self) -> None:
        self.pairs: list[tuple[Tensor, Tensor, Tensor]] = []
        self.scale: Tensor | None = None

    def add(self, step: Tensor, bend: Tensor) -> None:
        along, square = (step * bend).sum(1), (bend * bend).sum(1)
        # Pairs without positive curvature, or without a step, are left out.
        curved = along > 1e-10 * square.sqrt() * step.norm(dim=1)
        inverse = torch.where(curved, 1 / torch.where(curved, along, 1.0), 0.0)
        fresh = torch.where(curved, along / torch.where(curved, square, 1.0), 1.0)
        self.scale = fresh if self.scale is None else torch.where(curved, fresh, self.scale)
        self.pairs = [*self.pairs[1 - _MEMORY :], (step, bend, inverse)]

    def direction(self, gradient: Tensor) -> Tensor:
        """Minus the inverse Hessian times the gradient, by the two-loop recursion."""
        if self.scale is None:
            return -gradient / gradient.norm(dim=1, keepdim=True).clamp_min(1e-300)
        towards, shares = gradient.clone(), []
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

    An extrapolation that lowers the objective is undone. The iteration stops when no number
    changes by more than `tolerance` in a plain step, or when the objective has changed by less
    than 1e-11 of its value for some rounds: parameters without a finite optimum never settle.
    """
    point, steps, still, before = start, 0, 0, -math.inf
    rounds = _STILL if start.dtype == torch.float64 else _STILL_SINGLE
    while True:
        first, height = step(point)
        steps += 1
        report_progress("step", steps)
        move = first - point
        # One transfer to the host for three steps.
        objective, change = torch.stack([height, move.abs().max()]).tolist()
        still = still + 1 if abs(objective - before) <= 1e-11 * abs(objective) else 0
        before = objective
        how = "parameters" if change <= tolerance else "objective" if still >= rounds else ""
        if how or steps >= max_steps or not math.isfinite(objective):
            return Solution(first, objective, change, steps, how)
        second, higher = step(first)
        if change <= _NEAR * tolerance:
            objective, change = torch.stack([higher, (second - first).abs().max()]).tolist()
            if change <= tolerance:
                return Solution(second, objective, change, steps + 1, "parameters")
        bend = second - first - move
        tiny = torch.finfo(bend.dtype).tiny
        length = (move.norm() / bend.norm().clamp_min(tiny)).clamp(1.0, 64.0)
        jump = point + 2 * length * move + length * length * bend
        landed, reached = step(jump)
        steps += 2
        point = torch.where(reached >= height, landed, second)


class Solution(NamedTuple):
    """Result of a fixed-point iteration."""

    at: Tensor
    objective: float
    """At the last point that it was computed for."""
    change: float
    """Largest change of any number in the last plain step."""
    steps: int
    converged: str
    """What has settled: ``"parameters"``, ``"objective"`` or, if neither has, ``""``."""


def posterior_mode(
    counts: Counts, design: Tensor, offset: Tensor, prior: tuple[Tensor, Tensor]
) -> Tensor:
    """Coefficients (n, p) of n logistic regressions on the same m rows, by Newton's method.

    Parameters
    ----------
    counts
        Successes and trials, shape (n, m).
    design, offset
        Shapes (m, p) and (m,): the logit is ``offset + design @ coefficients``.
    prior
        Mean (p,) and precision (p, p), positive definite.
    """
    mean, precision = prior
    size = len(mean)
    row, column = torch.triu_indices(size, size, device=design.device)
    products = design[:, row] * design[:, column]

    def height(at: Tensor) -> tuple[Tensor, Tensor]:
        logit = torch.addmm(offset, at, design.T)
        away = at - mean
        fit = log_likelihood(counts.right, counts.trials, logit)
        return fit.sum(1) - ((away @ precision) * away).sum(1) / 2, torch.sigmoid(logit)

    at = mean.expand(len(counts.right), size).clone()
    value, chance = height(at)
    for _ in range(_NEWTON_STEPS):
        packed = (counts.trials * chance * (1 - chance)) @ products
        information = packed.new_zeros(len(at), size, size)
        information[:, row, column] = packed
        information[:, column, row] = packed
        gradient = (counts.right - counts.trials * chance) @ design - (at - mean) @ precision
        step = torch.linalg.solve_ex(information + precision, gradient)[0]
        # The objective is concave: a step halved often enough rises.
        fresh, level = height(at + step)
        settled = False
        for _ in range(_HALVINGS):
            falls = fresh < value - 1e-12 * value.abs()
            short = (step.abs() < 1e-10).all()
            again, settled = torch.stack([falls.any(), short]).tolist()
            if not again:
                break
            step = torch.where(falls[:, None], step / 2, step)
            fresh, level = height(at + step)
        at, value, chance = at + step, fresh, level
        if settled:
            break
    return at


def log_likelihood(right: Tensor, trials: Tensor, logit: Tensor) -> Tensor:
    """Binomial log-likelihood of each cell given its logit, without the binomial coefficient."""
    return right * logit - trials * torch.nn.functional.softplus(logit)


def smoothed_logit(right: Tensor, trials: Tensor) -> Tensor:
    """Logit of the share of right answers, with half an answer of each kind added."""
    return torch.logit((right + 0.5) / (trials + 1))


def complement(columns: Tensor) -> Tensor:
    """Orthonormal basis of the directions orthogonal to `columns` (P, k), shape (P, P - k)."""
    return torch.linalg.qr(columns, mode="complete").Q[:, columns.shape[1] :]
