"""One model on one task under one metric, made ready for a formula."""
# PART clusters - What if items come in clusters: the same passage, the same repository, the same table?

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.data.methods import Kind
from evalstats_plugin.data.responses import Responses
from evalstats_plugin.data.results import finite
from evalstats_plugin.errors import DesignError
from evalstats_plugin.scores.methods import CLUSTERED
from evalstats_plugin.scores.metrics import Composite, agree, composites
from evalstats_plugin.scores.rows import ScoreInterval
from evalstats_plugin.stats.arrays import FloatArray

Bounds = Mapping[str, tuple[float, float]]
"""Least and greatest possible score, by metric name (full, or before the comma)."""


CLUSTER_FAMILIES = (
    "clustered", "clustered-bounded", "clustered-real", "clustered-resampling", "clustered-paired",
)  # fmt: skip
"""Families of methods that are told which items belong together."""


_NAMES = frozenset(method.name for method in CLUSTERED)


def _exp_negative(mean: float) -> float:
    return math.exp(-mean) if mean > -700 else math.inf


def _bits(mean: float) -> float:
    return -mean / math.log(2)


RATIOS = {
    "perplexity": _exp_negative,
    "weighted_perplexity": _exp_negative,
    "bits_per_byte": _bits,
}
"""Decreasing functions that turn (weighted) mean log-likelihood into the metric's value."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Cell:
    """What a formula needs of one `Responses`."""

    responses: Responses
    kind: Kind | None
    """None: no interval can be computed, and the notes say why."""
    values: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    """Shape (M,): item means that are there."""
    weights: NDArray[np.float64] | None = None
    """Shape (M,), for a ratio."""
    clusters: NDArray[Any] | None = None
    """Shape (M,): what stands or falls together, where anything does."""
    successes: float = 0.0
    n: int = 0
    n_missing: int = 0
    bounds: tuple[float, float] | None = None
    composite: Composite | None = None
    """Where the value is not a mean: what it is made of."""
    notes: tuple[str, ...] = ()

    @property
    def estimate(self) -> float:
        """The score, by the metric's own aggregation; NaN where there is none."""
        if self.composite is not None:
            return self.composite.estimate
        if self.kind is None:
            return math.nan if self.responses.logged is None else self.responses.logged
        if self.kind == "binary":
            return self.successes / self.n
        if self.kind == "ratio":
            weights = np.ones(self.n) if self.weights is None else self.weights
            return RATIOS[self.responses.aggregation](float(self.values.sum() / weights.sum()))
        return float(self.values.mean())

    @property
    def std_error(self) -> float | None:
        """s/√n of a mean; None where the scores do not vary, or where it says nothing.

        The clustered one, where items come in clusters.
        """
        if self.kind not in ("binary", "bounded", "real") or self.n < 2:
            return None
        if self.clusters is not None:
            from evalstats_plugin.stats.clustered import cluster_moments

            error = float(cluster_moments(*cluster_sums(self)).cr1)
            return error if error > 0 else None
        if self.kind == "binary":
            p = self.successes / self.n
            variance = p * (1 - p) / (self.n - 1)
        else:
            variance = float(self.values.var(ddof=1)) / self.n
        return math.sqrt(variance) or None


def known_bounds(bounds: Bounds, metric: str) -> tuple[float, float] | None:
    """Return the bounds of a metric, where they are given."""
    return bounds.get(metric, bounds.get(metric.partition(",")[0])) or None


def left_out(n_missing: int, n: int) -> tuple[str, ...]:
    """Return a note where items have no score."""
    return (f"{n_missing} of {n} items have no score and are left out",) if n_missing else ()


def without_limits(method: str, n: int) -> str:
    """Return a note on scores that a method makes nothing of."""
    return f"{method} gives no interval for these {n} items"


def make_cell(responses: Responses, bounds: Bounds) -> Cell:
    """Find out what the scores are like: binary, bounded, real, or a ratio of sums."""
    known = known_bounds(bounds, responses.metric)
    if known and known != responses.bounds:
        responses = replace(responses, bounds=known)
    if responses.pairs is not None or not len(responses.item_ids):
        return _without_scores(responses)
    if responses.aggregation not in ("mean", *RATIOS):
        return Cell(responses=responses, kind=None, notes=responses.notes)
    means = responses.item_means
    there = ~np.isnan(means)
    values = means[there]
    n_missing = int(len(means) - len(values))
    notes = [*responses.notes, *left_out(n_missing, len(means))]
    cell = partial(Cell, responses=responses, n=len(values), n_missing=n_missing)
    if not len(values):
        return cell(kind=None, notes=(*notes, "no item has a score"))
    if not np.isfinite(values).all():
        count = int((~np.isfinite(values)).sum())
        return cell(kind=None, notes=(*notes, f"infinite scores: {count}; no mean, no interval"))
    if responses.aggregation in RATIOS:
        weights = None if responses.weights is None else responses.weights[there]
        if responses.clusters is not None:
            notes.append("items come in clusters, but this ratio is taken as if they did not")
        return cell(kind="ratio", values=values, weights=weights, notes=tuple(notes))
    clusters = None if responses.clusters is None else responses.clusters[there]
    return _of_mean(partial(cell, values=values, clusters=clusters), responses, values, notes)


def _of_mean(
    cell: Callable[..., Cell],
    responses: Responses,
    values: NDArray[np.float64],
    notes: Sequence[str],
) -> Cell:
    """Return the cell of a mean; `cell` makes it of what is left to say."""
    bounds = responses.bounds
    one_take = responses.scores.shape[1] == 1
    if one_take and bounds in (None, (0.0, 1.0)) and ((values == 0) | (values == 1)).all():
        successes = float(values.sum())
        return cell(kind="binary", successes=successes, bounds=(0.0, 1.0), notes=tuple(notes))
    low, high = float(values.min()), float(values.max())
    if bounds is not None:
        if low < bounds[0] or high > bounds[1]:
            note = (
                f"scores from {low:g} to {high:g} leave the bounds {bounds[0]:g} to {bounds[1]:g}"
            )
            return cell(kind="real", notes=(*notes, f"{note}: taken as unbounded"))
        return cell(kind="bounded", bounds=bounds, notes=tuple(notes))
    if low >= 0 and high <= 1:
        guessed = () if takes_are_binary(responses) else ("scores taken to lie in [0, 1]",)
        return cell(kind="bounded", bounds=(0.0, 1.0), notes=(*notes, *guessed))
    return cell(kind="real", notes=tuple(notes))


def takes_are_binary(responses: Responses) -> bool:
    """Whether every take that was scored got 0 or 1."""
    scores: NDArray[Any] = responses.scores
    return bool(np.isin(scores[~np.isnan(scores)], (0.0, 1.0)).all())


def _without_scores(responses: Responses) -> Cell:
    if responses.pairs is not None:
        return Cell(responses=responses, **cell_of_pairs(responses))
    return _from_counts(responses)


def _from_counts(r: Responses) -> Cell:
    """Recover the counts behind a logged proportion, where they can be proven.

    For 0/1 scores, and for no others with the same mean in [0, 1], the standard error that
    harnesses log is √(p(1 − p)/(n − 1)).
    """
    nothing = Cell(responses=r, kind=None, n=r.logged_n or 0, notes=r.notes)
    if r.logged is None or not r.logged_n or r.aggregation != "mean":
        return nothing
    p, n = r.logged, r.logged_n
    if not 0 <= p <= 1:
        return nothing
    k = round(p * n)
    if abs(k - p * n) > 1e-6 * n:
        return nothing
    if n > 1:
        expected = math.sqrt(p * (1 - p) / (n - 1))
        logged = r.logged_std_error
        if logged is None or not abs(logged - expected) <= 1e-6 * max(expected, 1e-3):
            return nothing
    note = "no samples logged: counts recovered from the value, its stderr and n"
    return Cell(
        responses=r,
        kind="binary",
        successes=float(k),
        n=n,
        bounds=(0.0, 1.0),
        notes=(*r.notes, note),
    )


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
