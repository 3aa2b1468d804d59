"""Comparisons of models on different items: every model's scores are an independent sample.

`unpaired` prepares `_Samples` by task and metric; the method's family picks what it is computed
from: numbers of right answers, scores, or sums over clusters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evalstats_plugin.comparisons.design import (
    Request,
    common_kind,
    comparable,
    pair_indices,
    refuse_best,
)
from evalstats_plugin.comparisons.methods import MEASURES, UNPAIRED, UNPAIRED_DEFAULTS
from evalstats_plugin.comparisons.paired import Units, correct
from evalstats_plugin.comparisons.rows import Comparison
from evalstats_plugin.data.methods import Method, choose
from evalstats_plugin.data.responses import Responses
from evalstats_plugin.data.results import finite_values, records
from evalstats_plugin.errors import DesignError
from evalstats_plugin.scores.cells import Cell, cluster_arrays, direction
from evalstats_plugin.stats.arrays import FloatArray, IntArray

FAMILIES = ("unpaired", "unpaired-bounded", "unpaired-real")
"""Families of methods for independent samples."""

JEFFREYS = (0.5, 0.5)
"""Prior of P(better) on 0/1 scores; for partial credit its first number is the mass at each end."""

Solved = tuple[FloatArray, FloatArray, FloatArray, FloatArray]
"""Lower and upper limits, p-values, and the probability that b scores higher; shape (P,)."""


def _by_clusters(samples: _Samples) -> Callable[[float], Solved]:
    from evalstats_plugin.stats import unpaired as stats_unpaired

    sums = (*cluster_arrays(samples.cells), samples.a, samples.b)
    function, prob = samples.method.load(), stats_unpaired.welch_prob(*sums)

    def solve(level: float) -> Solved:
        found = function(*sums, confidence_level=level)
        return found.low, found.high, stats_unpaired.two_sided(prob), prob

    return solve


def _by_counts(samples: _Samples) -> Callable[[float], Solved]:
    from evalstats_plugin.stats import unpaired as stats_unpaired

    right = np.array([cell.successes for cell in samples.cells])
    n = samples.sizes
    a, b = samples.a, samples.b
    counts = stats_unpaired.independent_counts(right[a], n[a], right[b], n[b])
    function, p_values = samples.method.load(), stats_unpaired.fisher_mid_p(counts)
    prob = stats_unpaired.beta_prob_better(stats_unpaired.posteriors(counts, prior=JEFFREYS))

    def solve(level: float) -> Solved:
        found = function(counts, confidence_level=level)
        return found.low, found.high, p_values, getattr(found, "prob_better", prob)

    return solve


def _by_scores(samples: _Samples) -> Callable[[float], Solved]:
    from evalstats_plugin.stats import unpaired as stats_unpaired

    scores = np.full((len(samples.cells), samples.sizes.max()), np.nan)
    for row, cell in zip(scores, samples.cells, strict=True):
        row[: cell.n] = _values(cell)
    bounds = samples.bounds or (0.0, 1.0)
    function = samples.method.load()
    posterior = stats_unpaired.dp_prob(
        scores, samples.a, samples.b, bounds=bounds, mass=JEFFREYS[0]
    )

    def solve(level: float) -> Solved:
        found = function(scores, samples.a, samples.b, bounds=bounds, confidence_level=level)
        prob = getattr(found, "prob_better", posterior)
        return found.low, found.high, stats_unpaired.two_sided(prob), prob

    return solve


_SOLVERS: dict[str, Callable[[_Samples], Callable[[float], Solved]]] = {
    "unpaired": _by_counts,
    "unpaired-bounded": _by_scores,
    "unpaired-real": _by_clusters,
}


@dataclass(frozen=True, eq=False, kw_only=True)
class _Samples:
    """N models on one task under one metric, the P pairs to compare, and the method."""

    cells: Sequence[Cell]
    a: IntArray
    b: IntArray
    """Shape (P,): the models of each pair, by their place in `cells`."""
    method: Method
    bounds: tuple[float, float] | None
    notes: tuple[str, ...]

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


def unpaired(
    responses: Sequence[Responses], request: Request
) -> tuple[list[Comparison], list[str]]:
    """Compare models as independent samples; return also notes on what was left out.

    P-values are mid-p of Fisher's test for 0/1 scores, twice the smaller tail of the posterior for
    bounded scores, and Welch's for others and where items come in clusters.
    """
    if request.correction == "maxt":
        msg = (
            "the correction 'maxt' flips signs of paired differences, which models on items of "
            "their own have none of: choose holm, bh or none"
        )
        raise DesignError(msg)
    refuse_best(request, responses)
    groups, left_out = comparable(responses, request.bounds, request.baseline, _is_usable)
    rows: list[Comparison] = []
    for cells in groups:
        rows += _rows(_samples(cells, request), request)
    return rows, left_out


def _is_usable(cell: Cell) -> bool:
    """Whether there is a mean with a known error; for 0/1 scores, counts are enough."""
    return cell.kind in ("binary", "bounded", "real") and cell.n > 0


def _samples(cells: list[Cell], request: Request) -> _Samples:
    kind, bounds, notes = common_kind(cells)
    clustered = any(cell.clusters is not None for cell in cells)
    own = {method.name: method for method in UNPAIRED} | {
        name: method for name, method in request.table.items() if method.family in FAMILIES
    }
    name = request.method if request.method in own else "auto"
    if name == "auto" and clustered:
        name = "welch-t"
    a, b = pair_indices([cell.responses.model for cell in cells], request.baseline)
    method = choose(kind, name, own, UNPAIRED_DEFAULTS)
    if method.family == "unpaired-real" and any(not len(cell.values) for cell in cells):
        # A log with counts only has no clusters either.
        method = choose(kind, "auto", own, UNPAIRED_DEFAULTS)
    return _Samples(cells=cells, a=a, b=b, method=method, bounds=bounds, notes=notes)


def _rows(samples: _Samples, request: Request) -> list[Comparison]:
    solve = _SOLVERS[samples.method.family](samples)
    low, high, p_values, prob = solve(request.confidence_level)
    correction = correct(p_values, _no_units, request)
    first = samples.cells[0].responses
    higher_is_better = direction(c.responses for c in samples.cells)
    numbers = {
        "difference": samples.estimates,
        "low": low,
        "high": high,
        "p_value": p_values,
        "p_adjusted": correction.p_values,
        "prob_better": 1 - prob if higher_is_better is False else prob,
    }
    if correction.level is not None:
        numbers["low_adjusted"], numbers["high_adjusted"], *_ = solve(correction.level)
    models = [cell.responses.model for cell in samples.cells]
    n = samples.sizes
    columns: dict[str, Sequence[Any]] = {
        **{name: finite_values(values) for name, values in numbers.items()},
        "model_a": [models[i] for i in samples.a.tolist()],
        "model_b": [models[i] for i in samples.b.tolist()],
        "n_items": np.minimum(n[samples.a], n[samples.b]).tolist(),
        "notes": _notes(samples, low, high),
    }
    same = {
        "task": first.task,
        "metric": first.metric,
        "method": samples.method.name,
        "measure": MEASURES.get(samples.method.name, "difference"),
        "confidence_level": request.confidence_level,
        "higher_is_better": higher_is_better,
    }
    return records(Comparison, columns, same)


def _no_units() -> Units:
    msg = "models on items of their own have no paired differences"
    raise ValueError(msg)


def _notes(samples: _Samples, low: FloatArray, high: FloatArray) -> list[tuple[str, ...]]:
    n, sums = samples.sizes, samples.method.family == "unpaired-real"
    clusters = [
        None if c.clusters is None else len(set(c.clusters.tolist())) for c in samples.cells
    ]
    notes: list[tuple[str, ...]] = []
    for a, b, below, above in zip(
        samples.a.tolist(), samples.b.tolist(), low.tolist(), high.tolist(), strict=True
    ):
        own = [f"{n[a]} and {n[b]} items, taken as independent samples"]
        if clusters[a] is not None or clusters[b] is not None:
            of_each = " and ".join(f"{clusters[i] or n[i]}" for i in (a, b))
            own.append(
                f"items in {of_each} clusters"
                if sums
                else f"{samples.method.name} takes items in {of_each} clusters as independent"
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
