"""Posterior densities of a few parameters on grids, many cells at a time, to all digits wanted.

Each parameter is x = centre + scale · sinh t: as dense as it needs near the centre, sparse far
out in the tails. Sums over equidistant t converge exponentially, and the density between the
nodes, and its integral, are those of the cardinal series.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special

from evalstats_plugin.stats.interval import FloatArray, IntArray, increasing_root

LogDensity: TypeAlias = Callable[[list[FloatArray], IntArray], FloatArray]
"""Gets the nodes of each of D parameters, D arrays of shape (cells, n), and which cells they are
of; gives the logarithm of the density there, shape (cells, n_1, …, n_D), up to a constant."""

# Parameters are log odds, or the like: farther out than this there is nothing.
FARTHEST = 60.0
# Where the density is below exp(-25) of its peak, it does not matter.
NEGLIGIBLE = 25.0
COARSE_PASSES = 3
# By how much a sum over every other node may differ from that over all. Halving the step squares
# the error, so that sums over all are good to the square of this.
SUM_SETTLED = 3e-5
# The error of the cardinal series is that of the sum over every other node.
SERIES_SETTLED = 2e-8
MOST_REFINEMENTS = 8
# Numbers held at a time, few enough to stay in the processor's cache.
BLOCK_SIZE = 2**16


class Axis(NamedTuple):
    """One parameter of each cell: x = centre + scale · sinh t at equidistant t."""

    centre: FloatArray
    scale: FloatArray
    first: FloatArray
    last: FloatArray
    """All of shape (cells,); `first` and `last` are values of t."""

    def part(self, cells: IntArray | NDArray[np.bool_]) -> "Axis":
        """The same, of some of the cells."""
        return Axis(*(field[cells] for field in self))

    def nodes(self, n: int) -> FloatArray:
        """Values of t, shape (cells, n)."""
        return np.linspace(self.first, self.last, n, axis=1)

    def values(self, t: FloatArray) -> FloatArray:
        """x, shape (cells, n)."""
        return self.centre[:, None] + self.scale[:, None] * np.sinh(t)

    def place(self, x: FloatArray) -> FloatArray:
        """Values of t where x is, shape (cells, n)."""
        return np.arcsinh((x - self.centre[:, None]) / self.scale[:, None])

    def log_slope(self, t: FloatArray) -> FloatArray:
        """Logarithm of dx/dt."""
        return np.log(self.scale[:, None] * np.cosh(t))


class Grid(NamedTuple):
    """Posterior of some cells, the weights of each adding up to 1."""

    cells: IntArray
    axes: list[Axis]
    nodes: list[FloatArray]
    """Of each parameter, values of t, shape (cells, n)."""
    weights: FloatArray
    """Shape (cells, n_1, …, n_D)."""

    def values(self, parameter: int) -> FloatArray:
        """Values of a parameter at its nodes, shape (cells, n)."""
        return self.axes[parameter].values(self.nodes[parameter])

    def marginal(self, parameter: int) -> FloatArray:
        """Weights of the values of one parameter, shape (cells, n)."""
        others = tuple(i + 1 for i in range(len(self.axes)) if i != parameter)
        return np.asarray(self.weights.sum(axis=others), dtype=np.float64)

    def part(self, cells: IntArray | NDArray[np.bool_]) -> "Grid":
        """The same, of some of its cells."""
        nodes = [t[cells] for t in self.nodes]
        axes = [axis.part(cells) for axis in self.axes]
        return Grid(self.cells[cells], axes, nodes, self.weights[cells])

    def without_last(self) -> "Grid":
        """The posterior of all parameters but the last."""
        weights = np.asarray(self.weights.sum(axis=-1), dtype=np.float64)
        return Grid(self.cells, self.axes[:-1], self.nodes[:-1], weights)

    def quantile(self, parameter: int, probability: float) -> FloatArray:
        """Quantile of one parameter, shape (cells,)."""
        nodes, weights = self.nodes[parameter], self.marginal(parameter)
        cumulative = np.cumsum(weights, axis=1)
        place = np.minimum((cumulative < probability).sum(axis=1), nodes.shape[1] - 1)
        start = np.take_along_axis(nodes, place[:, None], axis=1)[:, 0]

        def excess(at: FloatArray, cells: IntArray) -> tuple[FloatArray, FloatArray]:
            below, density = cardinal(nodes[cells], at[:, None])
            value = np.einsum("ck,ck->c", below[:, 0], weights[cells]) - probability
            return value, np.einsum("ck,ck->c", density[:, 0], weights[cells])

        bracket = (float(nodes.min()), float(nodes.max()))
        root = increasing_root(excess, start, bracket=bracket, tolerance=1e-5)
        return self.axes[parameter].values(root[:, None])[:, 0]


def cardinal(nodes: FloatArray, at: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Integrals up to `at`, and values there, of the cardinal functions of equidistant nodes.

    Each function has integral 1. Shape (cells, points, n) from (cells, n) and (cells, points).
    """
    step = (nodes[:, 1] - nodes[:, 0])[:, None, None]
    offset = (at[:, :, None] - nodes[:, None, :]) / step
    below = 0.5 + np.asarray(special.sici(np.pi * offset), dtype=np.float64)[0] / np.pi
    return below, np.sinc(offset) / step


def grids(
    log_density: LogDensity,
    centres: list[FloatArray],
    scales: list[FloatArray],
    *,
    sizes: tuple[int, ...],
    n_series: int,
    coarse: int,
) -> Iterator[Grid]:
    """Normalised posteriors of all cells, a few cells at a time.

    Parameters
    ----------
    centres, scales
        Of each parameter, shape (cells,): where the posterior of each cell may be, and how
        narrow it may be. They affect the cost, not the results.
    sizes
        Nodes of each parameter to begin with, even numbers; half as many more where they do not do.
    n_series
        Of how many parameters, the first ones, quantiles or values between the nodes are wanted.
    coarse
        Nodes of each parameter while looking for the part that matters.
    """
    n_cells = len(centres[0])
    step = max(BLOCK_SIZE // coarse ** len(sizes), 1)
    everything = np.indices((n_cells,))[0]
    blocks: list[IntArray] = [everything[i : i + step] for i in range(0, n_cells, step)]
    found = [
        _box(log_density, [c[i] for c in centres], [s[i] for s in scales], i, coarse)
        for i in blocks
    ]
    if not found:
        return
    axes = [
        Axis(*(np.concatenate([box[d][field] for box in found]) for field in range(4)))
        for d in range(len(sizes))
    ]
    pending = [(everything, sizes)]
    for refinement in range(MOST_REFINEMENTS + 1):
        unsettled: dict[tuple[int, ...], list[IntArray]] = {}
        for cells, shape in pending:
            rows = max(BLOCK_SIZE // int(np.prod(shape)), 1)
            for i in range(0, len(cells), rows):
                grid, finer = _grid(log_density, axes, cells[i : i + rows], shape, n_series)
                settled = np.all(finer == shape, axis=1) | (refinement == MOST_REFINEMENTS)
                if settled.any():
                    yield grid if settled.all() else grid.part(settled)
                for wanted in np.unique(finer[~settled], axis=0):
                    of_these = ~settled & np.all(finer == wanted, axis=1)
                    key = tuple(int(n) for n in wanted)
                    unsettled.setdefault(key, []).append(grid.cells[of_these])
        pending = [(np.concatenate(parts), shape) for shape, parts in unsettled.items()]


def joined(parts: list[Grid]) -> Grid:
    """One grid of the cells of several with equally many nodes."""
    if len(parts) == 1:
        return parts[0]
    axes = [
        Axis(*(np.concatenate(fields) for fields in zip(*same, strict=True)))
        for same in zip(*(grid.axes for grid in parts), strict=True)
    ]
    nodes = [np.concatenate(same) for same in zip(*(grid.nodes for grid in parts), strict=True)]
    cells, weights = (np.concatenate([grid[i] for grid in parts]) for i in (0, 3))
    return Grid(cells, axes, nodes, weights)


def _log_weights(
    log_density: LogDensity, axes: list[Axis], nodes: list[FloatArray], cells: IntArray
) -> FloatArray:
    found = log_density([axis.values(t) for axis, t in zip(axes, nodes, strict=True)], cells)
    for d, (axis, t) in enumerate(zip(axes, nodes, strict=True)):
        others = tuple(i + 1 for i in range(len(axes)) if i != d)
        found += np.expand_dims(axis.log_slope(t), others)
    return found


def _box(
    log_density: LogDensity,
    centres: list[FloatArray],
    scales: list[FloatArray],
    cells: IntArray,
    coarse: int,
) -> list[Axis]:
    """The part of each parameter's line that holds the posterior, one coarse node beyond.

    The last parameter, whose place is hard to guess, is centred anew on where the peak is.
    """
    ends = [np.arcsinh((FARTHEST + np.abs(c)) / s) for c, s in zip(centres, scales, strict=True)]
    axes = [Axis(c, s, -end, end) for c, s, end in zip(centres, scales, ends, strict=True)]
    for _ in range(COARSE_PASSES):
        nodes = [axis.nodes(coarse) for axis in axes]
        found = _log_weights(log_density, axes, nodes, cells)
        within = tuple(range(1, found.ndim))
        matters = found > found.max(axis=within, keepdims=True) - NEGLIGIBLE
        for d, (axis, t) in enumerate(zip(axes, nodes, strict=True)):
            here = matters.any(axis=tuple(i for i in within if i != d + 1))
            first = np.maximum(np.argmax(here, axis=1) - 1, 0)
            last = np.minimum(coarse - np.argmax(here[:, ::-1], axis=1), coarse - 1)
            ends = (np.take_along_axis(t, i[:, None], axis=1)[:, 0] for i in (first, last))
            axes[d] = Axis(axis.centre, axis.scale, *ends)
        peak = found.reshape(len(cells), -1).argmax(axis=1) % coarse
        axes[-1] = _recentred(axes[-1], np.take_along_axis(nodes[-1], peak[:, None], axis=1))
    return axes


def _recentred(axis: Axis, t: FloatArray) -> Axis:
    ends = axis.values(np.stack([axis.first, axis.last], axis=1))
    moved = axis._replace(centre=axis.values(t)[:, 0])
    return Axis(moved.centre, moved.scale, *moved.place(ends).T)


def _grid(
    log_density: LogDensity,
    axes: list[Axis],
    cells: IntArray,
    shape: tuple[int, ...],
    n_series: int,
) -> tuple[Grid, IntArray]:
    """The posterior at so many nodes, and how many each cell needs, shape (cells, D)."""
    own = [axis.part(cells) for axis in axes]
    nodes = [axis.nodes(n) for axis, n in zip(own, shape, strict=True)]
    weights = _log_weights(log_density, own, nodes, cells)
    within = tuple(range(1, weights.ndim))
    weights -= weights.max(axis=within, keepdims=True)
    np.exp(weights, out=weights)
    needed = np.tile(np.asarray(shape, dtype=np.int64), (len(cells), 1))
    left = weights
    for d in range(len(shape) - 1, -1, -1):
        half: FloatArray = 2 * left[..., ::2].sum(axis=-1)
        left = np.asarray(left.sum(axis=-1), dtype=np.float64)
        error = np.abs(half - left).reshape(len(cells), -1).max(axis=1)
        most = left.reshape(len(cells), -1).max(axis=1)
        enough = SERIES_SETTLED if d < n_series else SUM_SETTLED
        needed[:, d] = np.where(error > enough * most, 2 * (3 * shape[d] // 4), shape[d])
    weights /= weights.sum(axis=within, keepdims=True)
    return Grid(cells, own, nodes, weights), needed
