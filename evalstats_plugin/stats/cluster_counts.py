"""Likelihood of counts in clusters, at a cost that does not grow with the number of clusters.

Under an urn (Pólya) model with probability θ and correlation ρ, r = ρ/(1 - ρ), a cluster's count s
of one outcome contributes Π_{j<s} (θ + j r). Over clusters only their tail counts matter: how many
have more than j. Of giant clusters the products beyond the first factors are gamma functions,
taken as differences of Stirling's series: those of the functions themselves would lose the digits.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from evalstats_plugin.stats.interval import FloatArray, IntArray

# Up to this count every factor is multiplied.
MOST_FACTORS = 64
# Beyond, the first ones are; from here on four terms of Stirling's series give all digits.
FIRST_FACTORS = 16
STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680)


class Tails(NamedTuple):
    """Counts of one outcome in the clusters of each cell."""

    more_than: FloatArray
    """Shape (cells, J): clusters with a count of more than j."""
    excess: FloatArray
    """Shape (cells, D): distinct counts of large clusters, less J; 0 for padding."""
    n_excess: FloatArray
    """Shape (cells, D): how many clusters have them."""

    def part(self, cells: IntArray) -> "Tails":
        """Some of the cells, without the columns that none of them needs."""
        more_than, excess = self.more_than[cells], self.excess[cells]
        large = excess.any(axis=0)
        used = more_than.shape[1] if large.any() else int(more_than.any(axis=0).sum())
        return Tails(more_than[:, :used], excess[:, large], self.n_excess[cells][:, large])


def tails(counts: ArrayLike) -> Tails:
    """Tail counts of whole numbers, shape (cells, C).

    >>> tails([[3.0, 1.0, 0.0, 1.0]]).more_than
    array([[3., 1., 1.]])
    """
    found = np.asarray(counts, dtype=np.int64)
    n_cells = len(found)
    largest = int(found.max(initial=0))
    n_factors = largest if largest <= MOST_FACTORS else FIRST_FACTORS
    key = np.arange(n_cells)[:, None] * (n_factors + 1) + np.minimum(found, n_factors)
    frequency = np.bincount(key.ravel(), minlength=n_cells * (n_factors + 1))
    frequency = frequency.reshape(n_cells, n_factors + 1)
    more_than = np.cumsum(frequency[:, ::-1], axis=1)[:, ::-1][:, 1:].astype(np.float64)
    cells, large = np.nonzero(found > n_factors)
    values = found[cells, large] - n_factors
    keys, n = np.unique(cells * (largest + 1) + values, return_counts=True)
    cells, values = np.divmod(keys, largest + 1)
    place = np.arange(len(keys)) - np.searchsorted(cells, cells)
    excess, n_excess = np.zeros((2, n_cells, int(place.max(initial=-1)) + 1))
    excess[cells, place], n_excess[cells, place] = values, n
    return Tails(more_than, excess, n_excess)


def log_product(counts: Tails, theta: FloatArray, ratio: FloatArray) -> FloatArray:
    """Σ over clusters of Σ_{j<s} log(θ + j r).

    Parameters
    ----------
    theta, ratio
        θ and r, arrays of the same number of axes that broadcast, the first axis being cells.
    """
    axes = (slice(None), *(None,) * (theta.ndim - 1))
    total = np.zeros(np.broadcast_shapes(theta.shape, ratio.shape))
    if counts.more_than.shape[1]:
        total += np.log(theta) * counts.more_than[:, 0][axes]
    factor = np.empty_like(total)
    for j, n in enumerate(counts.more_than.T[1:], start=1):
        np.add(theta, j * ratio, out=factor)
        np.log(factor, out=factor)
        factor *= n[axes]
        total += factor
    if not counts.excess.shape[1]:
        return total
    start = theta + counts.more_than.shape[1] * ratio
    urn = start / ratio
    log_start, correction = np.log(start), _stirling(urn)
    for m, n in zip(counts.excess.T, counts.n_excess.T, strict=True):
        more = m[axes]
        grown = (urn + more - 0.5) * np.log1p(more / urn) - more
        total += n[axes] * (more * log_start + grown + _stirling(urn + more) - correction)
    return total


def _stirling(x: FloatArray) -> FloatArray:
    """What log Γ(x) is beyond (x - ½) log x - x + ½ log 2π."""
    inverse = 1 / x
    squared = inverse**2
    series = np.full_like(x, STIRLING[-1])
    for coefficient in STIRLING[-2::-1]:
        series = series * squared + coefficient
    return series * inverse
