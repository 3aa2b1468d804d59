"""The `Interval` and `Posterior` records, levels and quantiles, and a root finder for limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from evalstats_plugin.stats.arrays import FloatArray, IntArray


class Interval(NamedTuple):
    """Lower and upper limit, arrays of the same shape; NaN where undefined."""

    low: FloatArray
    high: FloatArray


class Posterior(NamedTuple):
    """Posterior of a contrast of b to a: equal-tailed limits and P(b is better)."""

    low: FloatArray
    high: FloatArray
    prob_better: FloatArray


def tail_probability(confidence_level: float) -> float:
    """Probability left out on each side of a two-sided interval.

    >>> round(tail_probability(0.95), 12)
    0.025
    """
    if not 0 < confidence_level < 1:
        raise ValueError(f"confidence_level must lie between 0 and 1, got {confidence_level}")
    return (1 - confidence_level) / 2


def normal_quantile(confidence_level: float) -> float:
    """Half-width, in standard errors, of a two-sided normal interval.

    >>> round(normal_quantile(0.95), 4)
    1.96
    """
    return float(-special.ndtri(tail_probability(confidence_level)))


def increasing_root(
    value_and_slope: Callable[[FloatArray, IntArray], tuple[FloatArray, FloatArray]],
    start: FloatArray,
    *,
    bracket: tuple[float, float],
    tolerance: float,
    max_steps: int = 100,
) -> FloatArray:
    """Roots of C increasing functions: Newton steps, bisection where one fails.

    `value_and_slope` gets points and the indices of their functions, `start` has shape (C,), and
    `bracket` holds every root. Stops after a Newton step no longer than `tolerance`, from a value
    no larger than its root.
    """
    low, high = np.full_like(start, bracket[0]), np.full_like(start, bracket[1])
    previous_step = np.full_like(start, np.inf)
    roots = np.clip(start, low, high)
    active = np.indices(start.shape)[0]
    for _ in range(max_steps):
        point = roots[active]
        # A function may overflow far from its root; its step is then not finite, hence not usable.
        with np.errstate(all="ignore"):
            value, slope = value_and_slope(point, active)
            newton = point - value / slope
        low[active] = np.where(value <= 0, point, low[active])
        high[active] = np.where(value >= 0, point, high[active])
        step = np.abs(newton - point)
        # A step this short is kept even if rounding errors have closed the bracket before it. Where
        # a function is steep, a short step alone is no proof of convergence.
        done = ((step <= tolerance) & (np.abs(value) <= tolerance**0.5)) | np.isnan(value)
        # Steps that do not halve may oscillate.
        inside = (newton > low[active]) & (newton < high[active])
        usable = done | (inside & (step <= previous_step[active] / 2))
        roots[active] = np.where(usable, newton, (low[active] + high[active]) / 2)
        previous_step[active] = np.abs(roots[active] - point)
        active = active[~(done | (high[active] - low[active] <= 1e-15))]
        if len(active) == 0:
            break
    return roots


def imbens_manski_level(
    width: ArrayLike, std_error: ArrayLike, *, confidence_level: float
) -> FloatArray:
    """Level at which the intervals of both ends hold a quantity that lies between them [IM04]_.

    The ends are what is found with all missing scores at their lowest, and at their highest. The
    quantity cannot be beyond both at once: c solves Φ(c + width/std_error) - Φ(-c) = level, and the
    level of each end's interval is 2Φ(c) - 1, from 2 x level - 1 (far apart) to the level itself
    (nothing is missing).

    >>> round(float(imbens_manski_level(0.01, 0.05, confidence_level=0.95)), 6)
    0.938478
    """
    tail = tail_probability(confidence_level)
    k, _ = np.broadcast_arrays(
        np.asarray(width, np.float64) / np.maximum(np.asarray(std_error, np.float64), 1e-300), 0.0
    )
    flat = k.ravel()

    def excess(c: FloatArray, cells: IntArray) -> tuple[FloatArray, FloatArray]:
        upper = c + flat[cells]
        value = special.ndtr(upper) - special.ndtr(-c) - confidence_level
        return value, (np.exp(-(upper**2) / 2) + np.exp(-(c**2) / 2)) / np.sqrt(2 * np.pi)

    bracket = (float(-special.ndtri(2 * tail)) - 1e-9, float(-special.ndtri(tail)) + 1e-9)
    start = np.full(len(flat), bracket[1])
    c = increasing_root(excess, start, bracket=bracket, tolerance=1e-9)
    return (2 * special.ndtr(c) - 1).reshape(k.shape)
