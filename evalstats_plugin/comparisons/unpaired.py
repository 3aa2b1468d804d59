"""Comparisons of models on different items: every model's scores are an independent sample.

`unpaired` prepares `_Samples` by task and metric; the method's family picks what it is computed
from: numbers of right answers, scores, or sums over clusters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from evalstats_plugin.comparisons.design import (
    Compared,
    Request,
    common_kind,
    comparable,
    pair_indices,
    refuse_best,
)
from evalstats_plugin.comparisons.families import Each, Found, Table, p_of_limits, prob_of_p
from evalstats_plugin.comparisons.methods import MEASURES, UNPAIRED_DEFAULTS
from evalstats_plugin.data.methods import Method, choose
from evalstats_plugin.data.responses import Responses
from evalstats_plugin.errors import counted
from evalstats_plugin.scores.cells import Cell, cluster_arrays, cluster_names, direction
from evalstats_plugin.stats.arrays import FloatArray, IntArray

if TYPE_CHECKING:
    from evalstats_plugin.stats.interval import Interval, Posterior

FAMILIES = ("unpaired", "unpaired-bounded", "unpaired-real")
"""Families of methods for independent samples."""

Solved = tuple[FloatArray, FloatArray, FloatArray | None]
"""Lower and upper limits, and the posterior probability that b scores higher; shape (P,)."""


def _by_clusters(samples: _Samples) -> Callable[[float], Solved]:
    sums = (*cluster_arrays(samples.cells), samples.a, samples.b)
    return lambda level: _solved(samples.method.load()(*sums, confidence_level=level))


def _by_counts(samples: _Samples) -> Callable[[float], Solved]:
    from evalstats_plugin.stats.unpaired import independent_counts

    right = np.array([cell.successes for cell in samples.cells])
    n = samples.sizes
    a, b = samples.a, samples.b
    counts = independent_counts(right[a], n[a], right[b], n[b])
    return lambda level: _solved(samples.method.load()(counts, confidence_level=level))


def _by_scores(samples: _Samples) -> Callable[[float], Solved]:
    scores = np.full((len(samples.cells), samples.sizes.max()), np.nan)
    for row, cell in zip(scores, samples.cells, strict=True):
        row[: cell.n] = _values(cell)
    bounds = samples.bounds or (0.0, 1.0)
    function = samples.method.load()

    def solve(level: float) -> Solved:
        return _solved(
            function(scores, samples.a, samples.b, bounds=bounds, confidence_level=level)
        )

    return solve


def _solved(found: Interval | Posterior) -> Solved:
    return found.low, found.high, getattr(found, "prob_better", None)


_SOLVERS: dict[str, Callable[[_Samples], Callable[[float], Solved]]] = {
    "unpaired": _by_counts,
    "unpaired-bounded": _by_scores,
    "unpaired-real": _by_clusters,
}


@dataclass(frozen=True, eq=False, kw_only=True)
class _Samples(Compared):
    """N models on one task under one metric, the P pairs to compare, and the method."""

    cells: Sequence[Cell]
    method: Method
    bounds: tuple[float, float] | None

    @property
    def sizes(self) -> IntArray:
        """Shape (N,): items of each model."""
        return np.array([cell.n for cell in self.cells])

    @property
    def estimates(self) -> FloatArray:
        """Shape (P,): difference b - a, or the ratio or odds ratio of b to a."""
        score = np.array([cell.estimate for cell in self.cells])
        a, b = score[self.a], score[self.b]
        with np.errstate(divide="ignore", invalid="ignore"):
            if MEASURES.get(self.method.name) == "ratio":
                return b / a
            return (b / (1 - b)) / (a / (1 - a)) if self.method.name in MEASURES else b - a


def unpaired(responses: Sequence[Responses], request: Request) -> tuple[list[Table], list[str]]:
    """Compare models as independent samples; return also notes on what was left out.

    P-values are those of the intervals: 1 less the highest level of one that leaves out no
    difference.
    """
    refuse_best(request, responses)
    groups, left_out = comparable(responses, request.bounds, request.baseline, _is_usable)
    return [_table(_samples(cells, request), request) for cells in groups], left_out


def _is_usable(cell: Cell) -> bool:
    """Whether there is a mean with a known error; for 0/1 scores, counts are enough."""
    return cell.kind in ("binary", "bounded", "real") and cell.n > 0


def _samples(cells: list[Cell], request: Request) -> _Samples:
    kind, bounds, notes = common_kind(cells)
    clustered = any(cell.clusters is not None for cell in cells)
    own = {name: method for name, method in request.table.items() if method.family in FAMILIES}
    name = request.method if request.method in own else "auto"
    if name == "auto" and clustered:
        name = "welch-t"
    elif name == "auto" and kind == "binary" and request.prior is not None:
        # The default has no prior.
        name = "beta-difference"
    models = tuple(cell.responses.model for cell in cells)
    a, b = pair_indices(models, request.baseline)
    method = choose(kind, name, own, UNPAIRED_DEFAULTS)
    if method.family == "unpaired-real" and any(not len(cell.values) for cell in cells):
        # A log with counts only has no clusters either.
        method = choose(kind, "auto", own, UNPAIRED_DEFAULTS)
    return _Samples(
        task=cells[0].responses.task,
        metric=cells[0].responses.metric,
        models=models,
        a=a,
        b=b,
        higher_is_better=direction(cell.responses for cell in cells),
        cells=cells,
        method=method,
        bounds=bounds,
        notes=notes,
    )


def _table(samples: _Samples, request: Request) -> Table:
    from evalstats_plugin.stats.interval import Interval

    solve = _SOLVERS[samples.method.family](samples)
    name = samples.method.name
    measure = MEASURES.get(name, "difference")
    null = 0.0 if measure == "difference" else 1.0

    def interval(level: float) -> Interval:
        return Interval(*solve(level)[:2])

    low, high, prob = solve(request.confidence_level)
    p_values = p_of_limits(interval, request.confidence_level, null=null)
    estimates = samples.estimates
    if prob is None:
        prob = prob_of_p(p_values, estimates, null)
    found = Found(name, low, high, p_values, prob, estimates)
    n_items = np.minimum(samples.sizes[samples.a], samples.sizes[samples.b])
    return Table(
        pairing=samples,
        found=found,
        judge=lambda: Each(p_values, interval),
        columns={"n_items": n_items.tolist(), "notes": _notes(samples, low, high)},
        same={"measure": measure},
    )


def _notes(samples: _Samples, low: FloatArray, high: FloatArray) -> list[tuple[str, ...]]:
    n, sums = samples.sizes, samples.method.family == "unpaired-real"
    clusters = [
        None if c.clusters is None else len(np.unique(cluster_names(c.clusters)))
        for c in samples.cells
    ]
    notes: list[tuple[str, ...]] = []
    for a, b, below, above in zip(
        samples.a.tolist(), samples.b.tolist(), low.tolist(), high.tolist(), strict=True
    ):
        own = [f"{n[a]} and {counted(int(n[b]), 'item')}, treated as independent samples"]
        if clusters[a] is not None or clusters[b] is not None:
            of_each = " and ".join(f"{clusters[i] or n[i]}" for i in (a, b))
            own.append(
                f"items in {of_each} clusters"
                if sums
                else f"{samples.method.name} treats items in {of_each} clusters as independent"
            )
        if np.isnan(below) or np.isnan(above):
            own.append("no interval: one item or cluster, or scores without any spread")
        elif np.isinf(above):
            own.append(f"no upper limit of the {MEASURES[samples.method.name]}")
        notes.append((*samples.notes, *own))
    return notes


def _values(cell: Cell) -> FloatArray:
    """Scores of the items; where only counts are logged, as many ones and zeros."""
    if len(cell.values):
        return cell.values
    return (np.arange(cell.n) < cell.successes).astype(np.float64)
