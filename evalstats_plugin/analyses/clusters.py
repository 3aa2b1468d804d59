"""What if items come in clusters: the same passage, the same repository, the same table?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.analyses.cells import Cell
from evalstats_plugin.results import ScoreInterval, finite
from evalstats_plugin.tables.clustered import CLUSTERED

FAMILIES = (
    "clustered", "clustered-bounded", "clustered-real", "clustered-resampling", "clustered-paired",
)  # fmt: skip
"""Families of methods that are told which items belong together."""

_NAMES = frozenset(method.name for method in CLUSTERED)

FloatArray = NDArray[np.float64]


def cluster_sums(cell: Cell) -> tuple[FloatArray, FloatArray]:
    """Sums of the scores of each cluster, and how many items it has.

    An item whose cluster has no name is a cluster of its own.
    """
    if cell.clusters is None:
        return cell.values, np.ones(cell.n)
    given = cell.clusters.astype(str)
    alone = np.char.add("\0", np.arange(len(given)).astype(str))
    names, where = np.unique(np.where(given == "", alone, given), return_inverse=True)
    totals, sizes = np.zeros((2, len(names)))
    np.add.at(totals, where, cell.values)
    np.add.at(sizes, where, 1.0)
    return totals, sizes


def icc(cell: Cell) -> float:
    """Intra-cluster correlation of the scores, by analysis of variance; NaN where unknown."""
    from evalstats_plugin.stats.clustered import anova_icc

    if cell.clusters is None:
        return math.nan
    totals, sizes = cluster_sums(cell)
    squares, _ = cluster_sums(replace(cell, values=cell.values**2))
    return float(anova_icc(totals, squares, sizes))


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
        "items come in clusters, which the interval allows for; naive: as if they did not; deff: "
        "how many times larger clusters make the variance; ICC: how alike the items of one are"
        if n_clusters > 1
        else "all items are one cluster, which tells next to nothing of others"
    )
    return replace(
        row,
        naive_low=finite(naive[0]),
        naive_high=finite(naive[1]),
        design_effect=finite(float(design_effect(cell.std_error or 0.0, plain or 0.0))),
        icc=finite(icc(cell)),
        notes=(*row.notes, note),
    )
