"""Intervals of metrics that are not means."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.analyses.composite_data import Composite, agree, composites
from evalstats_plugin.errors import DesignError
from evalstats_plugin.methods import Method
from evalstats_plugin.responses import Responses
from evalstats_plugin.results import ScoreInterval, finite
from evalstats_plugin.stats.interval import Interval

if TYPE_CHECKING:
    from evalstats_plugin.analyses.cells import Cell

FAMILIES = ("f1", "confusion", "auc", "sums")
"""Families of methods for what is not a mean.

``f1`` is ``f(true_positives, n, *, confidence_level)``, arrays of one length; ``confusion``
``f(tables, *, metric, confidence_level, rng, n_resamples)``, tables (cells, K, K); ``auc``
``f(positive, scores, *, confidence_level)``; ``sums`` ``f(statistics, value, *,
confidence_level)``, statistics (units, S).
"""

FloatArray = NDArray[np.float64]


def cell_of_pairs(responses: Responses) -> dict[str, Any]:
    """Fields of the `Cell` of responses that have pairs instead of scores."""
    n = len(responses.item_ids)
    try:
        (composite,) = composites([responses])
    except DesignError as error:
        return {"kind": None, "n": n, "notes": (*responses.notes, f"no interval: {error}")}
    there = composite.there
    notes = [*responses.notes, *composite.notes]
    logged, found = responses.logged, composite.estimate
    if logged is not None and not composite.undefined and not agree(found, logged):
        notes.append(f"mismatch: the log gives value {logged:.6g}, its items {found:.6g}")
    if not there.all():
        notes.insert(0, f"{int((~there).sum())} of {n} items have no answer and are left out")
    known: dict[str, Any] = {
        "kind": None if composite.undefined else composite.kind,
        "composite": composite,
        "n": int(there.sum()),
        "n_missing": int((~there).sum()),
        "clusters": None if responses.clusters is None else responses.clusters[there],
        "notes": tuple(notes),
    }
    if composite.metric in ("precision", "recall") and not composite.undefined:
        return known | _proportion(composite, known)
    return known


def _proportion(composite: Composite, known: dict[str, Any]) -> dict[str, Any]:
    """Precision and recall are proportions, of the items predicted positive or truly so."""
    codes = np.zeros((0, 2)) if composite.codes is None else composite.codes
    given = codes[:, 1 if composite.metric == "precision" else 0] == 1
    right = (codes[given] == 1).all(axis=1)
    which = "predicted positive" if composite.metric == "precision" else "positive"
    clusters = known["clusters"]
    return {
        "kind": "binary",
        "values": right.astype(np.float64),
        "successes": float(right.sum()),
        "n": int(given.sum()),
        "bounds": (0.0, 1.0),
        "clusters": None if clusters is None else clusters[given],
        "notes": (*known["notes"], f"of the {int(given.sum())} items that are {which}"),
    }


def limits(
    method: Method, batch: Sequence[Cell], confidence_level: float, sampling: dict[str, Any]
) -> Interval:
    """Run one method on many cells; `sampling` holds what methods that draw are told."""
    function = method.load()
    found = [c.composite for c in batch if c.composite is not None]
    if method.family == "f1":
        tables = np.stack([c.table for c in found])
        right = tables[:, 1, 1]
        n = right + tables[:, 0, 1] + tables[:, 1, 0]
        return function(right, n, confidence_level=confidence_level)
    if method.family == "confusion":
        return _by_size(function, found, confidence_level, sampling)
    if method.family == "auc":
        parts = [function(*c.ranked, confidence_level=confidence_level) for c in found if c.ranked]
    else:
        more = sampling if method.name == "sums-percentile" else {}
        parts = [
            function(units(c, cell.clusters), c.value, confidence_level=confidence_level, **more)
            for c, cell in zip(found, batch, strict=True)
        ]
    low, high = np.array(parts, dtype=np.float64).reshape(-1, 2).T
    return Interval(low, high)


def _by_size(
    function: Callable[..., Interval],
    found: Sequence[Composite],
    confidence_level: float,
    sampling: dict[str, Any],
) -> Interval:
    """Tables of one metric and size at once."""
    low, high = np.full((2, len(found)), np.nan)
    sizes: dict[tuple[str, int], list[int]] = {}
    for i, c in enumerate(found):
        sizes.setdefault((c.metric, len(c.labels)), []).append(i)
    for (metric, _), where in sizes.items():
        tables = np.stack([found[i].table for i in where])
        low[where], high[where] = function(
            tables, metric=metric, confidence_level=confidence_level, **sampling
        )
    return Interval(low, high)


def units(composite: Composite, clusters: NDArray[Any] | None) -> FloatArray:
    """What each item adds to the sums, or where items come in clusters each of these."""
    statistics = composite.statistics
    if clusters is None:
        return statistics
    names, where = np.unique(clusters.astype(str), return_inverse=True)
    sums = np.zeros((len(names), statistics.shape[1]))
    np.add.at(sums, where, statistics)
    return sums


def beside_clusters(cell: Cell, row: ScoreInterval, naive: tuple[float, float]) -> ScoreInterval:
    """Say how many clusters there are, and what the interval would be without them."""
    n_clusters = 0 if cell.clusters is None else len(np.unique(cell.clusters.astype(str)))
    row = replace(row, n_clusters=n_clusters)
    if not row.method.startswith("sums-"):
        note = f"{row.method} takes items that come in clusters as independent, perhaps too short"
        return replace(row, notes=(*row.notes, note))
    note = (
        f"items in {n_clusters} clusters, which the interval allows for; naive: as if they did not"
    )
    return replace(
        row,
        naive_low=finite(naive[0]),
        naive_high=finite(naive[1]),
        notes=(*row.notes, note),
    )
