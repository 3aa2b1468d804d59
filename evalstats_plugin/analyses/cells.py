"""One model on one task under one metric, made ready for a formula."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.analyses.composite_data import Composite
from evalstats_plugin.analyses.composite_intervals import cell_of_pairs
from evalstats_plugin.methods import Kind
from evalstats_plugin.responses import Responses

Bounds = Mapping[str, tuple[float, float]]
"""Least and greatest possible score, by metric name (full, or before the comma)."""


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
            from evalstats_plugin.analyses.clusters import cluster_sums
            from evalstats_plugin.stats.clustered import moments

            error = float(moments(*cluster_sums(self)).cr1)
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
