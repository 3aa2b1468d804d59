"""Posterior of the difference of two proportions, b - a, by quadrature.

Whatever the model, it comes in two halves, b ahead of a and a ahead of b, which are one and the
same integral with the models exchanged: that makes results exactly antisymmetric, and exactly ½
for two models with equal counts. Each half is integrated over the distance and everything else by
the trapezoid rule, in coordinates that stretch both ends of each range so that nothing singular is
left there: then the error falls exponentially with the number of nodes.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
from scipy import special

from evalstats_plugin.stats.interval import (
    FloatArray,
    IntArray,
    increasing_root,
    tail_probability,
)

LogDensity: TypeAlias = Callable[..., FloatArray]
"""``f(rows, v, ...)``: log posterior density of the tables `rows`, b being ahead, in stretched
coordinates, the first that of the distance; each of shape (rows, 1, ..., nodes, ..., 1)."""

# Stretched coordinates go no further: beyond lies a share of exp(-73) of each range.
WIDEST = 4.3
# What is exp(-DEPTH) of the peak is left out.
DEPTH = 26.0
# Nodes per coordinate of the search for where the peak is.
SEARCH_NODES = 10
# Disagreement of every other node with those between that is small enough: along the distance it
# is the error of the interpolated distribution, along the rest the error's square root.
SETTLED_DISTANCE = 2e-10
SETTLED = 3e-6
MOST_REFINEMENTS = 8
# Numbers worked on at a time.
BLOCK_SIZE = 2**17


class Posterior(NamedTuple):
    """What is known of b - a: an interval, P(b is ahead), and the mean."""

    low: FloatArray
    high: FloatArray
    prob_better: FloatArray
    mean: FloatArray


class Stretched(NamedTuple):
    """A number between 0 and 1, what is missing to 1, and the log of its derivative by v."""

    value: FloatArray
    rest: FloatArray
    log_slope: FloatArray


class Proportions(NamedTuple):
    """Two proportions, lower ≤ upper, what is missing of each to 1, and the log Jacobian."""

    lower: FloatArray
    not_lower: FloatArray
    upper: FloatArray
    not_upper: FloatArray
    log_jacobian: FloatArray


class Halves(NamedTuple):
    """Density of the distance at equally spaced v, in units of exp(peak).

    `density` has shape (halves, nodes), 0 for padding; the others (halves,).
    """

    density: FloatArray
    first: FloatArray
    step: FloatArray
    peak: FloatArray

    @property
    def nodes(self) -> FloatArray:
        """Where the densities were taken; no further where they are padding."""
        count = np.arange(self.density.shape[1], dtype=np.float64)
        nodes = self.first[:, None] + self.step[:, None] * count
        return np.minimum(nodes, WIDEST)

    def masses(self, *rows: IntArray) -> list[FloatArray]:
        """Integrals of halves of the same pairs, in units common to them."""
        top = np.max([self.peak[row] for row in rows], axis=0)
        mass = self.step * self.density.sum(axis=1)
        return [mass[row] * np.exp(self.peak[row] - top) for row in rows]


def stretched(v: FloatArray) -> Stretched:
    """Map all real numbers to those between 0 and 1, doubly exponentially close to the ends."""
    u = 2 * np.sinh(v)
    # The slope by the exponent of the tail: value times rest may be too small a number.
    log_slope = np.log(np.cosh(v)) - np.abs(u) - 2 * np.log1p(np.exp(-np.abs(u)))
    return Stretched(special.expit(u), special.expit(-u), log_slope)


def proportions(distance: Stretched, place: Stretched) -> Proportions:
    """Two proportions by their difference and where they are, without any cancellation."""
    d, s, e, f = distance.value, distance.rest, place.value, place.rest
    log_jacobian = distance.log_slope + place.log_slope + np.log(s)
    return Proportions(s * e, d + s * f, d + s * e, s * f, log_jacobian)


def posterior(
    tables: FloatArray,
    log_density: Callable[[FloatArray], LogDensity],
    *,
    exchange: Sequence[int],
    nodes: tuple[int, ...],
    confidence_level: float,
) -> Posterior:
    """Posterior of the difference b - a, equal tails.

    Parameters
    ----------
    tables : shape (P, counts)
        What was seen of each pair; NaN where there is nothing to go by.
    log_density
        Of distinct tables, given as an array of that kind.
    exchange
        Order of the counts when a and b are exchanged.
    nodes
        For each coordinate at the start. Odd numbers: of an even number, every other one tells
        nothing new of what is symmetric.
    """
    tail = tail_probability(confidence_level)
    there = ~np.isnan(tables).any(axis=1)
    n = int(there.sum())
    found = np.full((4, len(tables)), np.nan)
    if n > 0:
        seen = tables[there]
        distinct, where = np.unique(
            np.concatenate([seen, seen[:, exchange]]), axis=0, return_inverse=True
        )
        b, a = where[:n], where[n:]
        other = np.empty(len(distinct), dtype=np.int64)
        other[where] = np.concatenate([a, b])
        ahead = np.arange(len(distinct)), other
        halves = integrate(log_density(distinct), len(distinct), nodes)
        lower = _quantile(halves, ahead, tail)
        prob, average = _prob_and_mean(halves, ahead)
        found[:, there] = lower[b], -lower[a], prob[b], average[b]
    return Posterior(*found)


def integrate(log_density: LogDensity, n_halves: int, nodes: tuple[int, ...]) -> Halves:
    """Integrate out all coordinates but the distance.

    Where nodes are too few, because every other one says something else than those between, more
    are taken. NaN where no number of nodes is enough.
    """
    active, wanted = np.arange(n_halves), np.tile(nodes, (n_halves, 1))
    low, high = _in_blocks(partial(_box, log_density, len(nodes)), active, SEARCH_NODES, len(nodes))
    halves = Halves(np.zeros((n_halves, nodes[0])), *np.zeros((3, n_halves)))
    for _ in range(MOST_REFINEMENTS + 1):
        growth = np.ones(wanted.shape)
        for size in np.unique(wanted[active], axis=0).tolist():
            rows = active[(wanted[active] == size).all(axis=1)]
            on_nodes = partial(_on_nodes, log_density, low, high, size)
            density, step, peak, growth[rows] = _in_blocks(on_nodes, rows, *size)
            more = max(size[0] - halves.density.shape[1], 0)
            halves = halves._replace(density=np.pad(halves.density, ((0, 0), (0, more))))
            halves.density[rows, : size[0]] = density
            halves.first[rows], halves.step[rows], halves.peak[rows] = low[rows, 0], step, peak
        wanted = np.where(growth > 1, 8 * np.ceil(wanted * growth / 8) + 1, wanted).astype(np.int64)
        active = active[(growth[active] > 1).any(axis=1)]
    halves.density[active] = np.nan
    return halves


def _prob_and_mean(
    halves: Halves, ahead: tuple[IntArray, IntArray]
) -> tuple[FloatArray, FloatArray]:
    b, a = halves.masses(*ahead)
    distance = stretched(halves.nodes).value
    average = (halves.density * distance).sum(axis=1) / halves.density.sum(axis=1)
    prob = b / (a + b)
    return prob, prob * average[ahead[0]] - (1 - prob) * average[ahead[1]]


def _quantile(halves: Halves, ahead: tuple[IntArray, IntArray], probability: float) -> FloatArray:
    """Quantile of the difference; `ahead` numbers the halves with b and with a ahead."""
    b, a = halves.masses(*ahead)
    below = probability * (a + b)
    b_is_ahead = below > a
    rows = np.where(b_is_ahead, *ahead)
    # Share of the half up to the distance looked for, which counts from 0 outwards.
    looked_for = np.where(b_is_ahead, below - a, a - below)
    share = np.clip(looked_for / np.where(b_is_ahead, b, a), 0, 1)
    weights = halves.density[rows] / halves.density[rows].sum(axis=1, keepdims=True)
    first, step = halves.first[rows], halves.step[rows]
    node = np.arange(weights.shape[1], dtype=np.float64)

    def excess(v: FloatArray, pairs: IntArray) -> tuple[FloatArray, FloatArray]:
        offset: FloatArray = ((v - first[pairs]) / step[pairs])[:, None] - node
        # Integral of the sinc series through the nodes: as exact as the trapezoid rule.
        running = 0.5 + special.sici(np.pi * offset)[0] / np.pi
        slope = (weights[pairs] * np.sinc(offset)).sum(axis=1) / step[pairs]
        return (weights[pairs] * running).sum(axis=1) - share[pairs], slope

    passed = np.cumsum(weights, axis=1) < share[:, None]
    start = first + step * np.minimum(passed.sum(axis=1), len(node) - 1)
    v = increasing_root(excess, start, bracket=(-WIDEST, WIDEST), tolerance=1e-7)
    return np.where(b_is_ahead, 1.0, -1.0) * stretched(v).value


def _in_blocks(
    function: Callable[[IntArray], tuple[FloatArray, ...]], rows: IntArray, *size: int
) -> list[FloatArray]:
    """Join what a function finds of few rows at a time, each of which holds that many numbers."""
    step = max(BLOCK_SIZE // int(np.prod(size)), 1)
    parts = [function(rows[start : start + step]) for start in range(0, len(rows), step)]
    return [np.concatenate(part) for part in zip(*parts, strict=True)]


def _on_nodes(
    log_density: LogDensity, low: FloatArray, high: FloatArray, size: Sequence[int], rows: IntArray
) -> tuple[FloatArray, ...]:
    """Density of the distance, step, peak, and which coordinates need more nodes."""
    low, high = low[rows], high[rows]
    values = log_density(rows, *_axes(low, high, size))
    everywhere = tuple(range(1, values.ndim))
    peak = values.max(axis=everywhere, keepdims=True)
    values = np.exp(values - peak)
    total = values.sum(axis=everywhere)
    growth = np.ones((len(rows), len(size)))
    for k, tolerance in enumerate((SETTLED_DISTANCE, *[SETTLED] * (len(size) - 1))):
        kept = (1, k + 1)
        along = values.sum(axis=tuple(axis for axis in everywhere if axis not in kept))
        gap = np.abs(along[..., ::2].sum(axis=-1) - along[..., 1::2].sum(axis=-1))
        gap = (gap if k == 0 else gap.sum(axis=1)) / total
        # The gap falls exponentially: how many times as many nodes will do?
        needed = np.log(tolerance) / np.log(np.clip(gap, 1e-300, 0.5))
        growth[:, k] = np.where(gap > tolerance, np.clip(needed, 1.2, 3.0), 1.0)
    steps = (high - low) / (np.asarray(size) - 1)
    density = values.sum(axis=everywhere[1:]) * steps[:, 1:].prod(axis=1)[:, None]
    return density, steps[:, 0], peak.ravel(), growth


def _box(log_density: LogDensity, n_axes: int, rows: IntArray) -> tuple[FloatArray, FloatArray]:
    """Where each density is not negligible, closed in from the widest; shape (rows, axes)."""
    low = np.full((len(rows), n_axes), -WIDEST)
    high = -low
    everywhere = tuple(range(1, n_axes + 1))
    moving = np.ones((len(rows), 1), dtype=np.bool_)
    for _ in range(30):
        values = log_density(rows, *_axes(low, high, [SEARCH_NODES] * n_axes))
        near = values > values.max(axis=everywhere, keepdims=True) - DEPTH
        hits = np.stack(
            [near.any(axis=tuple(axis for axis in everywhere if axis != k)) for k in everywhere],
            axis=1,
        )
        first, last = hits.argmax(axis=2), SEARCH_NODES - 1 - hits[:, :, ::-1].argmax(axis=2)
        before, step = high - low, (high - low) / (SEARCH_NODES - 1)
        # A step of margin: what reaches an edge is followed beyond it.
        new_low = np.maximum(low + step * (first - 1), -WIDEST)
        high = np.where(moving, np.minimum(low + step * (last + 1), WIDEST), high)
        low = np.where(moving, new_low, low)
        change = (high - low) / before
        # Each on its own: what is found must not depend on what is worked on beside it.
        moving &= ((change <= 0.6) | (change > 1)).any(axis=1, keepdims=True)
        if not moving.any():
            break
    return low, high


def _axes(low: FloatArray, high: FloatArray, size: Sequence[int]) -> list[FloatArray]:
    """Equally spaced nodes of each coordinate, shape (rows, 1, ..., nodes, ..., 1)."""
    axes: list[FloatArray] = []
    for k, n in enumerate(size):
        shape = [len(low)] + [1] * len(size)
        shape[k + 1] = n
        axes.append(np.linspace(low[:, k], high[:, k], n, axis=1).reshape(shape))
    return axes
