"""Normal population of items, and the points of the integral over it.

An item is ``x = (difficulty b, log discrimination)``, or, with discriminations of either sign,
``x = (intercept d, discrimination a)``. In the population x is normal, with its second part
regressed on the first: ``x_2 | x_1 ~ N(m_2 + γ (x_1 - m_1), s_2²)``. Abilities have no scale of
their own, so m_2 is fixed such that the geometric mean, or the mean, discrimination is 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from evalstats_plugin.irt.model.arrays import (
    Array,
    array_of,
    cast,
    log_softmax,
    namespace,
    places,
    repeat,
    sigmoid,
    stable_order,
    zeros,
)

Kind = Literal["rasch", "2pl", "2pl-signed"]
"""Discriminations: all 1, positive, or of either sign."""

# Weak priors of the two spreads: densities ∝ s exp(-s² / 2k²). The first factor keeps them about
# one standard error away from 0 [CRD13]_, the second keeps them finite. They matter where a few
# models leave a spread undetermined.
DIFFICULTY_SPREAD, DISCRIMINATION_SPREAD = 5.0, 0.2

# Prior standard deviation of γ s_1, the part of discriminations that difficulty explains. Without
# this prior, γ diverges with few models until difficulty explains all of them.
EXPLAINED_SPREAD = 0.1

# Distance of points in posterior standard deviations of the most informative item: summing at
# distance h has a relative error of exp(-2 (π sd / h)²) for a normal integral, 3e-6 here.
_SPACING = 1.25

# Largest distance for a logistic curve of slope 1: the Fourier transform of its density is
# π k / sinh(π k), 3e-6 at k = 2 π / h.
_LOGISTIC_SPACING = 1.2

# Reach of the points in standard deviations of the population, along x_1 and x_2.
_REACH = 5.5

# Largest log discrimination: steeper curves are indistinguishable from steps.
_STEEPEST = math.log(25.0)

FINE = 0.85
"""Coarseness of the points on which a search ends."""

# Most points on either side of a line of this coarseness and the usual reach.
_MOST_POINTS = 400

# Difficulties at which the information of an item is evaluated.
_PLACES = 40

# Points in a segment of a line; its ends show whether an item's posterior is inside.
_SEGMENT = 4

SEGMENT_RISE = (_SEGMENT * _SPACING / 2) ** 2 / 2
"""Largest rise of an item's log posterior within a segment above the nearer end, if its
slope there is 0."""


@dataclass(frozen=True, eq=False)
class Population:
    """Hyper-parameters (m_1, log s_1) and, with discriminations, (m_2, γ, log s_2)."""

    kind: Kind
    values: Array

    def to(self, dtype: Any) -> Population:
        """Convert to another floating-point type."""
        return Population(self.kind, cast(self.values, dtype))

    def log_density(self, x1: Array, x2: Array) -> Array:
        """Log density of items at points of shape (Q,)."""
        xp, (m1, log_s1) = namespace(x1), self.values[:2]
        u = (x1 - m1) * xp.exp(-log_s1)
        first = -0.5 * u**2 - log_s1 - 0.5 * math.log(2 * math.pi)
        if self.kind == "rasch":
            return first
        m2, slope, log_s2 = self.values[2:]
        r = (x2 - m2 - slope * (x1 - m1)) * xp.exp(-log_s2)
        return first - 0.5 * r**2 - log_s2 - 0.5 * math.log(2 * math.pi)

    def score(self, x1: Array, x2: Array) -> Array:
        """Derivatives of `log_density`, shape (Q, H)."""
        xp, (m1, log_s1) = namespace(x1), self.values[:2]
        s1 = xp.exp(log_s1)
        u = (x1 - m1) / s1
        if self.kind == "rasch":
            return xp.stack([u / s1, u**2 - 1], 1)
        m2, slope, log_s2 = self.values[2:]
        s2 = xp.exp(log_s2)
        r = (x2 - m2 - slope * (x1 - m1)) / s2
        columns = [u / s1 - slope * r / s2, u**2 - 1, r / s2, r * u * s1 / s2, r**2 - 1]
        return xp.stack(columns, 1)

    def information(self, weight: Array, x1: Array, x2: Array) -> Array:
        """Minus the second derivatives of Σ weight · log density, shape (H, H)."""
        xp, (m1, log_s1) = namespace(x1), self.values[:2]
        s1 = xp.exp(log_s1)
        u = (x1 - m1) / s1
        total, u_sum, u_square = weight.sum(), weight @ u, weight @ u**2
        if self.kind == "rasch":
            rows = [[total / s1**2, 2 * u_sum / s1], [2 * u_sum / s1, 2 * u_square]]
            return xp.stack([xp.stack(row) for row in rows])
        m2, slope, log_s2 = self.values[2:]
        s2 = xp.exp(log_s2)
        r = (x2 - m2 - slope * (x1 - m1)) / s2
        r_sum, ru, zero = weight @ r, weight @ (r * u), xp.zeros_like(total)
        a = total / s1**2 + slope**2 * total / s2**2
        c, d = -slope * total / s2**2, r_sum / s2 - slope * s1 * u_sum / s2**2
        e, f, g = -2 * slope * r_sum / s2, s1 * u_sum / s2**2, 2 * r_sum / s2
        h, i, j = s1**2 * u_square / s2**2, 2 * s1 * ru / s2, 2 * (weight @ r**2)
        b, k, m = 2 * u_sum / s1, 2 * u_square, total / s2**2
        rows = [[a, b, c, d, e], [b, k, zero, zero, zero], [c, zero, m, f, g], [d, zero, f, h, i],
                [e, zero, g, i, j]]  # fmt: skip
        return xp.stack([xp.stack(row) for row in rows])

    def log_prior(self) -> tuple[Array, Array, Array]:
        """Log prior of the hyper-parameters with gradient (H,) and information (H, H).

        It is defined on the scale that `m_2` fixes, so it depends on `m_2` through the others.
        """
        xp, size, log_s1 = namespace(self.values), len(self.values), self.values[1]
        gradient, information = (zeros(shape, self.values) for shape in ((size,), (size, size)))
        v1 = xp.exp(2 * log_s1) / DIFFICULTY_SPREAD**2
        value = log_s1 - v1 / 2
        gradient[1], information[1, 1] = 1 - v1, 2 * v1
        if self.kind != "rasch":
            slope, log_s2 = self.values[3:]
            square = xp.exp(2 * log_s1) / EXPLAINED_SPREAD**2
            v2 = xp.exp(2 * log_s2) / DISCRIMINATION_SPREAD**2
            value = value + log_s2 - (v2 + slope**2 * square) / 2
            gradient[1] -= slope**2 * square
            gradient[3], gradient[4] = -slope * square, 1 - v2
            information[1, 1] += 2 * slope**2 * square
            information[1, 3] = information[3, 1] = 2 * slope * square
            information[3, 3], information[4, 4] = square, 2 * v2
            moves = xp.zeros_like(gradient)
            moves[1 if self.kind == "2pl" else 4] = 1 if self.kind == "2pl" else -1
            moves[3] = -slope
            across = information @ moves
            gradient[2] = moves @ gradient
            information[2], information[:, 2], information[2, 2] = across, across, moves @ across
        return value, gradient, information


class Points(NamedTuple):
    """Items at which the integrand is summed, each of shape (Q,)."""

    x1: Array
    x2: Array
    log_area: Array
    end: Array
    """Whether a point is an end of a segment of its line; points are in the order of the lines."""
    discrimination: Array
    intercept: Array
    difficulty: Array

    def log_weight(self, population: Population) -> Array:
        """Log weights of the points, which sum to 1 whatever the population: shape (Q,)."""
        return log_softmax(population.log_density(self.x1, self.x2) + self.log_area)


def points(
    population: Population,
    ability: Array,
    trials: Array,
    *,
    coarseness: float = 1.0,
    wider: float = 1.0,
) -> Points:
    """Choose points dense enough for the items on which N models are most informative.

    Each line of equal discrimination has its own distance between points.

    Parameters
    ----------
    ability : shape (N,)
    trials : shape (N,)
        Most trials of each model on any item.
    coarseness
        Factor of the distances, above 1 in the first steps of a search.
    wider
        Factor of the reach, above 1 for items that lie farther out.
    """
    wide = coarseness * _SPACING
    reach = wider * _REACH
    most = math.floor(_MOST_POINTS * wider * max(1.0, FINE / coarseness))
    xp = namespace(ability)
    m1, s1 = population.values[0], xp.exp(population.values[1])
    if population.kind == "rasch":
        x2, log_step = xp.zeros_like(m1)[None], xp.zeros_like(m1)
        centre, spread = m1[None], s1
    else:
        m2, slope, log_s2 = population.values[2:]
        residual_sd = xp.exp(log_s2)
        s2 = xp.sqrt(residual_sd**2 + (slope * s1) ** 2)
        # Smallest posterior variance of x_2: what an answer tells of x_1 tells of x_2 too.
        first = s1**-2 + (slope / residual_sd) ** 2
        first = first + _first_information(population.kind, m2[None], ability, trials)[0]
        second = residual_sd**-2 + _second_information(population, ability, trials)
        precision = second - slope**2 / residual_sd**4 / first
        # Equally spaced values of x_2, and the log of their distance.
        half = int(xp.clip(xp.ceil(reach * s2 / (wide / xp.sqrt(precision))), None, most))
        step = reach * s2 / half
        x2 = m2 + step * cast(places(2 * half + 1, step) - half, step)
        log_step = xp.log(step)
        centre = m1 + slope * (s1 / s2) ** 2 * (x2 - m2)
        spread = s1 * xp.exp(log_s2) / s2
    gain = _first_information(population.kind, x2, ability, trials)
    slope = xp.ones_like(x2) if population.kind == "2pl-signed" else discrimination_of(x2)
    step = wide / xp.sqrt(spread**-2 + gain)
    step = xp.minimum(step, coarseness * _LOGISTIC_SPACING / slope)
    half = xp.clip(xp.ceil(reach * spread / step), None, most)
    step = reach * spread / half
    count = cast(2 * half + 1, xp.int64)
    line = repeat(places(len(x2), x2), count)
    start = xp.cumsum(count, 0) - count
    place = places(len(line), x2) - start[line]
    end = (place % _SEGMENT == 0) | (place == count[line] - 1)
    x1, x2 = centre[line] + step[line] * (place - half[line]), x2[line]
    signed = population.kind == "2pl-signed"
    a = x2 if signed else discrimination_of(x2)
    d, b = (x1, -x1 / x2) if signed else (-a * x1, x1)
    return Points(x1, x2, xp.log(step)[line] + log_step, end, a, d, b)


def discrimination_of(log_discrimination: Array) -> Array:
    """Discrimination, bounded above."""
    xp = namespace(log_discrimination)
    return xp.exp(xp.clip(log_discrimination, None, _STEEPEST))


def _first_information(kind: Kind, x2: Array, ability: Array, trials: Array) -> Array:
    """Largest information on x_1 of an item with each x_2, shape of x2."""
    a = x2 if kind == "2pl-signed" else discrimination_of(x2)
    at = ability[stable_order(ability)][:: max(1, len(ability) // _PLACES)]
    p = sigmoid(a[:, None, None] * (at[:, None] - ability))
    best = namespace(p).amax(p * (1 - p) @ trials, 1)
    return best if kind == "2pl-signed" else a**2 * best


def _second_information(population: Population, ability: Array, trials: Array) -> Array:
    """Largest information on x_2 of an item with discrimination 1."""
    m1, s1 = population.values[0], namespace(ability).exp(population.values[1])
    at = m1 + s1 * array_of(np.linspace(-3, 3, 25), ability)
    distance = ability - (-at if population.kind == "2pl-signed" else at)[:, None]
    p = sigmoid(distance)
    lever = ability[None] if population.kind == "2pl-signed" else distance
    return (lever**2 * p * (1 - p) @ trials).max()
