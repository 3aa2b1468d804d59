"""Truncated normals: probabilities and draws, in one dimension and inside a box.

* `log_probability`, `slopes`, `draw_between`: the standard normal between two bounds, accurate far
  in the tails
* `tilted_box`, `draw`, `box_probability`: a normal inside a box, by minimax tilting [Bot17]_
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import special

from evalstats_plugin.errors import DesignError, counted
from evalstats_plugin.stats.arrays import FloatArray, IntArray
from evalstats_plugin.stats.newton import newton

LOG_ROOT_2PI = 0.5 * np.log(2 * np.pi)

_FAR = -30.0
"""Upper bound below which draws use logarithms of probabilities."""
_MAX_STEPS = 100
_TOLERANCE = 1e-9
"""Norm of the equations of the tilt at which they are solved."""
_TOGETHER = 2_000_000
"""Proposals drawn at a time, times the dimension."""


def log_ndtr(x: FloatArray) -> FloatArray:
    """Log Φ(x)."""
    return special.log_ndtr(x)


def log_probability(low: FloatArray, high: FloatArray) -> FloatArray:
    """log(Φ(high) - Φ(low)) for low < high, accurate in the tails; bounds may be infinite."""
    a, b, _ = _below(low, high)
    log_b = log_ndtr(b)
    return log_b + np.log(-np.expm1(log_ndtr(a) - log_b))


class Slopes(NamedTuple):
    """log P(low < d + e < high), e standard normal, and its derivatives in d."""

    log_probability: FloatArray
    first: FloatArray
    second: FloatArray
    """Never above 0, as the logarithm is concave."""


def slopes(low: FloatArray, high: FloatArray) -> Slopes:
    """Log probability of a standard normal between low and high, and derivatives as both fall."""
    log_p = log_probability(low, high)
    at_low, at_high = (np.exp(-0.5 * x * x - LOG_ROOT_2PI - log_p) for x in (low, high))
    first = at_low - at_high
    # Infinite bounds contribute nothing.
    bent = np.where(np.isfinite(low), low, 0) * at_low
    bent -= np.where(np.isfinite(high), high, 0) * at_high
    return Slopes(log_p, first, bent - first * first)


def draw_between(low: FloatArray, high: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Draw standard normals between the bounds by inversion."""
    a, b, sign = _below(low, high)
    # In (0, 1], so that no draw is infinite.
    u = 1 - rng.random(a.shape)
    at_a = special.ndtr(a)
    drawn = special.ndtri(at_a + u * (special.ndtr(b) - at_a))
    far = b < _FAR
    if far.any():
        log_a, log_b, u = log_ndtr(a[far]), log_ndtr(b[far]), u[far]
        drawn[far] = special.ndtri_exp(log_b + np.log(u + (1 - u) * np.exp(log_a - log_b)))
    return sign * np.clip(drawn, a, b)


def _below(low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mirror bounds into the lower tail, where Φ is accurate; also the sign of the mirroring."""
    flip = low > -high
    return np.where(flip, -high, low), np.where(flip, -low, high), np.where(flip, -1.0, 1.0)


class TiltedBox(NamedTuple):
    """Box of dimension m with its tilted proposal; coordinates are in the order of drawing."""

    order: IntArray
    low: FloatArray
    """Bound divided by the conditional standard deviation, shape (m,)."""
    high: FloatArray
    factor: FloatArray
    """Strictly lower triangle of the Cholesky factor, divided likewise; shape (m, m)."""
    scale: FloatArray
    """Conditional standard deviations, shape (m,)."""
    tilt: FloatArray
    """μ, shape (m,)."""
    log_bound: float
    """Log of the largest ratio of target to proposal density."""


def tilted_box(covariance: FloatArray, low: FloatArray, high: FloatArray) -> TiltedBox:
    """Order the coordinates and find the minimax tilt.

    Parameters
    ----------
    covariance : shape (m, m)
        Covariance of a normal with mean 0.
    low, high : shape (m,)
        Bounds, which may be infinite.

    Raises
    ------
    DesignError
        The equations of the tilt do not converge.
    """
    order, lower, low, high = _ordered(covariance, low, high)
    scale = np.diagonal(lower).copy()
    factor = np.tril(lower, -1) / scale[:, None]
    low, high = low / scale, high / scale
    at, tilt = _saddle(factor, low, high)
    moved = factor @ at + tilt
    bound = log_probability(low - moved, high - moved) + 0.5 * tilt**2 - at * tilt
    return TiltedBox(order, low, high, factor, scale, tilt, float(bound.sum()))


def _ordered(
    covariance: FloatArray, low: FloatArray, high: FloatArray
) -> tuple[IntArray, FloatArray, FloatArray, FloatArray]:
    """Cholesky factor with pivoting: the next coordinate is the least likely inside its bounds."""
    s, low, high = covariance.copy(), low.copy(), high.copy()
    m = len(s)
    order, lower, z = np.arange(m), np.zeros((m, m)), np.zeros(m)
    for k in range(m):
        left = lower[k:, :k]
        variance = np.maximum(np.diagonal(s)[k:] - (left**2).sum(axis=1), 1e-14)
        shift, sd = left @ z[:k], np.sqrt(variance)
        inside = log_probability((low[k:] - shift) / sd, (high[k:] - shift) / sd)
        swap = [k, k + int(np.argmin(inside))]
        for x in (order, low, high, lower, s, s.T):
            x[swap] = x[swap[::-1]]
        lower[k, k] = sd[swap[1] - k]
        column = s[k + 1 :, k] - lower[k + 1 :, :k] @ lower[k, :k]
        lower[k + 1 :, k] = column / lower[k, k]
        shift = lower[k, :k] @ z[:k]
        ends = np.array([low[k] - shift, high[k] - shift]) / lower[k, k]
        z[k] = slopes(ends[:1], ends[1:]).first[0]
    return order, lower, low, high


class _Equations(NamedTuple):
    """Gradient of the log ratio in x and μ without their last entries, 0, and its Jacobian."""

    gradient: FloatArray
    jacobian: FloatArray

    @property
    def value(self) -> float:
        """Minus the norm of the gradient."""
        return -float(np.linalg.norm(self.gradient))


def _saddle(factor: FloatArray, low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Saddle point: x and tilt μ at which the ratio is largest in x and smallest in μ."""
    m = len(low) - 1

    def equations(y: FloatArray) -> _Equations:
        x, mu = y[:m], y[m:]
        left = factor[:, :m]
        moved = left @ x + np.append(mu, 0.0)
        _, first, second = slopes(low - moved, high - moved)
        gradient = np.concatenate([left.T @ first - mu, mu - x + first[:m]])
        bent = second[:, None] * left
        across = bent[:m] - np.eye(m)
        blocks = [[left.T @ bent, across.T], [across, np.diag(1 + second[:m])]]
        return _Equations(gradient, np.block(blocks))

    def direction(_: FloatArray, at: _Equations) -> tuple[FloatArray, float]:
        step: FloatArray = np.linalg.solve(at.jacobian, -at.gradient).astype(np.float64)
        return step, -at.value

    found = newton(
        np.zeros(2 * m), equations, direction,
        tolerance=_TOLERANCE, max_steps=_MAX_STEPS, take_last=False,
    )  # fmt: skip
    if not -found.at.value < 1e-4:
        msg = (
            f"no exact draws of {counted(m + 1, 'comparison')}: the equations of the tilt have not "
            "converged. Use estimator='hmc'"
        )
        raise DesignError(msg)
    return np.append(found.parameters[:m], 0.0), np.append(found.parameters[m:], 0.0)


class Draws(NamedTuple):
    """Independent draws, and the share of proposals accepted."""

    values: FloatArray
    """Shape (S, m)."""
    acceptance: float


def draw(box: TiltedBox, size: int, rng: np.random.Generator, *, least: float) -> Draws:
    """Draw from the normal inside the box by acceptance–rejection.

    Parameters
    ----------
    least
        Smallest acceptance.

    Raises
    ------
    DesignError
        The acceptance is lower.
    """
    kept: list[FloatArray] = []
    found, proposed, together = 0, 0, max(min(_TOGETHER // len(box.low), 2 * size), 500)
    while found < size:
        values, log_ratio = _propose(box, together, rng)
        accepted = log_ratio - box.log_bound > -rng.exponential(size=together)
        kept.append(values[:, accepted])
        found, proposed = found + int(accepted.sum()), proposed + together
        if proposed * least > 10 and found < proposed * least:
            msg = (
                f"exact draws accept {found} of {proposed} proposals with {len(box.low)} "
                "comparisons, which is too few: take estimator='hmc'"
            )
            raise DesignError(msg)
    values = np.concatenate(kept, axis=1)[:, :size]
    drawn = (box.factor @ values + values) * box.scale[:, None]
    return Draws(drawn[np.argsort(box.order)].T, found / proposed)


class LogProbability(NamedTuple):
    """Estimated log probability; the standard error is that of the logarithm, to first order."""

    value: float
    std_error: float


def box_probability(box: TiltedBox, size: int, rng: np.random.Generator) -> LogProbability:
    """Estimate the log probability of the box from ``size`` proposals; p̂ itself is unbiased."""
    log_ratio = _propose(box, size, rng)[1]
    top = float(log_ratio.max())
    ratio = np.exp(log_ratio - top)
    mean = float(ratio.mean())
    error = float(ratio.std(ddof=1)) / mean / size**0.5
    return LogProbability(top + float(np.log(mean)), error)


def acceptance(box: TiltedBox, size: int, rng: np.random.Generator) -> float:
    """Estimate the share of proposals that are accepted."""
    return float(np.exp(_propose(box, size, rng)[1] - box.log_bound).mean())


def _propose(box: TiltedBox, size: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Proposals (m, S), and log ratios of target to proposal density (S,).

    Coordinates are drawn one after the other, each given the previous ones.
    """
    values = np.zeros((len(box.low), size))
    log_ratio = np.zeros(size)
    for k, mu in enumerate(box.tilt):
        moved = box.factor[k, :k] @ values[:k] + mu
        low, high = box.low[k] - moved, box.high[k] - moved
        values[k] = mu + draw_between(low, high, rng)
        log_ratio += log_probability(low, high) + 0.5 * mu**2 - mu * values[k]
    return values, log_ratio
