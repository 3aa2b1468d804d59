"""L-BFGS, many problems at once: each has its own steps and stops by itself [LN89]_."""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from evalstats_plugin.irt.progress import tell

_MEMORY = 10
_HALVINGS = 30
SETTLED = 1e-12
"""An objective that falls by less than this share, three times, has settled."""

Objective = Callable[[Tensor], tuple[Tensor, Tensor]]
"""From points (B, P) to values (B,) and gradients (B, P)."""


class Minimum(NamedTuple):
    """Where each of B searches ended."""

    at: Tensor
    """Shape (B, P)."""
    value: Tensor
    """Shape (B,)."""
    steps: int
    converged: Tensor
    """Shape (B,): the gradient, or the objective, has settled."""


class _Memory:
    """The last steps, and how the gradient changed along each."""

    def __init__(self) -> None:
        self.pairs: list[tuple[Tensor, Tensor, Tensor]] = []
        self.scale: Tensor | None = None

    def add(self, step: Tensor, bend: Tensor) -> None:
        along, square = (step * bend).sum(1), (bend * bend).sum(1)
        # Where the objective bends the wrong way, or nothing moved, the pair is left out.
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


def minimise(
    objective: Objective,
    start: Tensor,
    *,
    tolerance: float,
    max_steps: int,
    settled_at: float = SETTLED,
) -> Minimum:
    """Minimise B functions of P numbers, from `start` (B, P).

    A search ends when no part of its gradient is larger than `tolerance`, or when its objective
    has settled; a point where no descent is left counts as settled only if the gradient does.
    """
    at = start
    value, gradient = objective(at)
    memory, still = _Memory(), torch.zeros_like(value)
    done = gradient.abs().amax(1) <= tolerance
    converged, steps = done.clone(), 0
    while steps < max_steps and not bool(done.all()):
        steps += 1
        tell("step", steps)
        direction = memory.direction(gradient)
        slope = (direction * gradient).sum(1)
        uphill = slope >= 0
        direction = torch.where(uphill[:, None], -gradient, direction)
        slope = torch.where(uphill, -gradient.square().sum(1), slope)
        step, fresh, bent, found = _search(objective, at, (value, direction, slope), done)
        memory.add(step, torch.where(found[:, None], bent - gradient, 0.0))
        still = torch.where(value - fresh <= settled_at * value.abs(), still + 1, 0.0)
        at, value, gradient = at + step, fresh, torch.where(found[:, None], bent, gradient)
        settled = (gradient.abs().amax(1) <= tolerance) | (still >= 3)
        converged |= settled & ~done
        done = done | settled | ~found
    return Minimum(at, value, steps, converged)


def _search(
    objective: Objective, at: Tensor, line: tuple[Tensor, Tensor, Tensor], done: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Halve the step until the objective falls by a share of what its slope promises."""
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
