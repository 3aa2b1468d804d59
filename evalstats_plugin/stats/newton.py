"""Newton's method for maxima of many functions at once, with step halving.

`newton` serves exact Newton steps, Fisher scoring, and roots of gradients. For roots of increasing
functions of one variable, which can be bracketed, see `stats.interval.increasing_root`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from evalstats_plugin.errors import counted
from evalstats_plugin.stats.arrays import BoolArray, FloatArray

_SLACK = 1e-10
"""Fall of an objective, relative to 1 plus its size, that counts as rounding error."""

_HALVINGS = 40
"""How often a step that lowers its objective is halved at most."""


class Point(Protocol):
    """What `newton` needs to know of B objectives at their parameters."""

    @property
    def value(self) -> FloatArray | float:
        """Objectives to maximise, shape (B,), or a number for a single one."""
        ...


PointT = TypeVar("PointT", bound=Point)


class Convergence(NamedTuple):
    """Which of B iterations converged, and why others did not."""

    converged: BoolArray
    """Shape (B,)."""
    steps: int
    """Number of steps, of all together."""
    change: FloatArray
    """Measure of the last step of each, which the tolerance is compared with, shape (B,)."""

    @property
    def why(self) -> str:
        """Reason that some did not converge; empty if all did."""
        if self.converged.all():
            return ""
        last = self.change[~self.converged].max()
        return f"did not converge in {counted(self.steps, 'step')} (last change {last:.1g})"


class Maximum(NamedTuple, Generic[PointT]):
    """Parameters at the maxima of B objectives, shape (p, B), and the objectives there."""

    parameters: FloatArray
    at: PointT
    convergence: Convergence


def newton(
    start: FloatArray,
    evaluate: Callable[[FloatArray], PointT],
    direction: Callable[[FloatArray, PointT], tuple[FloatArray, FloatArray | float]],
    *,
    tolerance: float,
    max_steps: int,
    take_last: bool = True,
) -> Maximum[PointT]:
    """Maximise B objectives, each until its own convergence.

    Parameters
    ----------
    start : shape (p, B), or (p,) for a single objective
    evaluate
        Returns the objectives at parameters, and whatever `direction` needs.
    direction
        Returns a step of each objective's parameters, in the shape of `start`, already limited in
        length; and a measure of it, such as the Newton decrement.
    tolerance
        An objective has converged at a step whose measure is below.
    max_steps
        Largest number of steps.
    take_last
        Whether to take the step at which an objective has converged.

    Examples
    --------
    The maxima of x - cosh(x - m) for two m:

    >>> class At(NamedTuple):
    ...     value: FloatArray
    >>> m = np.array([0.0, 3.0])
    >>> def step(x, at):
    ...     s = (1 - np.sinh(x - m)) / np.cosh(x - m)
    ...     return s, np.abs(s[0])
    >>> found = newton(
    ...     np.zeros((1, 2)), lambda x: At((x - np.cosh(x - m))[0]), step,
    ...     tolerance=1e-9, max_steps=20,
    ... )
    >>> print(found.parameters.round(4), found.convergence.converged.all())
    [[0.8814 3.8814]] True
    """
    parameters, at = start, evaluate(start)
    active: BoolArray = np.ones(np.shape(at.value), dtype=np.bool_)
    converged = ~active
    change: FloatArray = np.full(active.shape, np.inf)
    steps = 0
    while active.any() and steps < max_steps:
        steps += 1
        step, measure = direction(parameters, at)
        change = np.where(active, measure, change)
        done = active & (change < tolerance)
        converged = converged | done
        if not take_last:
            active = active & ~done
            if not active.any():
                break
        parameters, at = line_search(parameters, at, step * active, evaluate)
        active = active & ~done
    record = Convergence(np.asarray(converged), steps, change)
    return Maximum(parameters, at, record)


def line_search(
    parameters: FloatArray,
    at: PointT,
    step: FloatArray,
    evaluate: Callable[[FloatArray], PointT],
) -> tuple[FloatArray, PointT]:
    """Take a step of `newton`, halved until no objective falls.

    Parameters of an objective that falls however short the step stay where they are.
    """
    value = np.asarray(at.value)
    floor = value - _SLACK * (1 + np.abs(value))
    lower: BoolArray = np.zeros(value.shape, dtype=np.bool_)
    for _ in range(_HALVINGS):
        tried = parameters + step
        point = evaluate(tried)
        # Written so that an objective that is not a number counts as lower.
        lower = ~(np.asarray(point.value) >= floor)
        if not lower.any():
            return tried, point
        step = np.where(lower, step / 2, step)
    tried = parameters + np.where(lower, 0, step)
    return tried, evaluate(tried)
