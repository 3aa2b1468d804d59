"""What if items come in clusters: the same passage, the same repository, the same table?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.analyses.cells import Cell
from evalstats_plugin.methods import CLUSTERED
from evalstats_plugin.results import ScoreInterval, finite

FAMILIES = ("clustered", "clustered-bounded", "clustered-real")
"""Families of methods that are told which items belong together."""

_NAMES = frozenset(method.name for method in CLUSTERED)

FloatArray = NDArray[np.float64]


def cluster_sums(cell: Cell) -> tuple[FloatArray, FloatArray]:
    """Sums of the scores of each cluster, and how many items it has."""
    if cell.clusters is None:
        return cell.values, np.ones(cell.n)
    names, where = np.unique(cell.clusters.astype(str), return_inverse=True)
    totals, sizes = np.zeros((2, len(names)))
    np.add.at(totals, where, cell.values)
    np.add.at(sizes, where, 1.0)
    return totals, sizes


def cluster_arrays(cells: Sequence[Cell]) -> tuple[FloatArray, FloatArray]:
    """Cluster sums of many cells, shape (cells, C), padded with clusters of size 0."""
    sums = [cluster_sums(cell) for cell in cells]
    totals, sizes = np.zeros((2, len(cells), max(len(total) for total, _ in sums)))
    for i, (total, size) in enumerate(sums):
        totals[i, : len(total)], sizes[i, : len(size)] = total, size
    return totals, sizes


def side_by_side(cell: Cell, row: ScoreInterval, naive: tuple[float, float]) -> ScoreInterval:
    """Say how many clusters there are, and what the interval would be without them."""
    from evalstats_plugin.stats.clustered import design_effect

    n_clusters = len(cluster_sums(cell)[0])
    row = replace(row, n_clusters=n_clusters)
    if row.method not in _NAMES:
        note = f"{row.method} takes items that come in clusters as independent, perhaps too short"
        return replace(row, notes=(*row.notes, note))
    plain = replace(cell, clusters=None).std_error
    note = (
        "items come in clusters, which the interval allows for (see naive_low, naive_high and "
        "design_effect in --format json)"
        if n_clusters > 1
        else "all items are one cluster, which tells next to nothing of others"
    )
    return replace(
        row,
        naive_low=finite(naive[0]),
        naive_high=finite(naive[1]),
        design_effect=finite(float(design_effect(cell.std_error or 0.0, plain or 0.0))),
        notes=(*row.notes, note),
    )
