"""SQUAREM: fixed-point iterations, squared [VR08]_."""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from evalstats_plugin.irt.progress import tell

Step = Callable[[Tensor], tuple[Tensor, Tensor]]
"""From a point to the next, and the objective at the point it started from, without dimensions."""


_NEAR = 100.0
"""Tolerances within which a step may be the last but one."""
_STILL, _STILL_SINGLE = 3, 10
"""Rounds without a change of the objective; in single precision it shows less."""


class Solution(NamedTuple):
    """Where the iterations ended."""

    at: Tensor
    objective: float
    """At the last point that it was computed for."""
    change: float
    """Largest change of any number in the last plain step."""
    steps: int
    converged: str
    """``"parameters"``, ``"objective"`` or, where neither had settled, nothing."""


def squarem(step: Step, start: Tensor, *, tolerance: float, max_steps: int) -> Solution:
    """Iterate to a fixed point, by two steps and a jump along the line they draw (scheme S3).

    A jump that lowers the objective is taken back. Stops when no number of a plain step changes
    by more than `tolerance`, or when the objective has not changed by more than its
    1e-11th part in some rounds: parameters without a finite optimum wander for ever.
    """
    point, steps, still, before = start, 0, 0, -math.inf
    rounds = _STILL if start.dtype == torch.float64 else _STILL_SINGLE
    while True:
        first, height = step(point)
        steps += 1
        tell("step", steps)
        move = first - point
        # All that the host has to know of three steps, so that it waits for the device once.
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
