"""Comparisons under metrics that are not means: F1, MCC, BLEU, perplexity, on the same items.

`join` brings the models of one task together: what each item adds to each model's sums. Intervals
come from the jackknife, resamples or a Dirichlet posterior, p-values from swapping the models'
answers to random items.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.comparisons.design import BEST, Request, is_chosen_from_data, pair_indices
from evalstats_plugin.comparisons.methods import (
    COMPOSITE_COMPARISON_DEFAULTS,
    COMPOSITE_COMPARISONS,
)
from evalstats_plugin.comparisons.paired import adjusted
from evalstats_plugin.comparisons.rows import Comparison
from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.data.methods import Kind, Method, choose
from evalstats_plugin.data.responses import Responses
from evalstats_plugin.data.results import finite_values, records
from evalstats_plugin.data.runs import one_of_each
from evalstats_plugin.errors import DesignError, few
from evalstats_plugin.scores.cells import RATIOS, by_task, direction
from evalstats_plugin.scores.metrics import NAMES, Composite, composites
from evalstats_plugin.stats.arrays import BoolArray, FloatArray, IntArray
from evalstats_plugin.stats.metrics import Value

N_RESAMPLES = 9999
"""Resamples, posterior draws and random swaps: with what was observed, 10,000."""


def compare_composite(
    responses: Sequence[Responses], request: Request
) -> tuple[list[Comparison], list[str]]:
    """Compare models under metrics that are not means; others are passed over.

    Return also notes on what was left out.

    Raises
    ------
    ItemConflictError
        If an item id is one question for one model and another for the other.
    """
    chosen = [
        r
        for r in one_of_each(responses)
        if len(r.item_ids) and (r.pairs is not None or r.aggregation in RATIOS)
    ]
    rows: list[Comparison] = []
    notes: list[str] = []
    for (task, metric), group in by_task(chosen).items():
        if request.baseline not in (None, BEST, *(r.model for r in group)):
            notes.append(f"not compared, {request.baseline} has no answers: {task} {metric}")
            continue
        if len(group) < 2:
            notes.append(f"not compared, one model only: {task} {metric}")
            continue
        kinds = {NAMES.get(r.aggregation, r.aggregation) for r in group}
        try:
            if len(kinds) > 1:
                msg = f"not one metric but {few(sorted(kinds))}"
                raise DesignError(msg)
            joined = join(group)
        except DesignError as error:
            if type(error) is not DesignError:
                raise
            notes.append(f"not compared, {error}: {task} {metric}")
            continue
        rows += _compared(joined, group, request)
    return rows, notes


class _Found(NamedTuple):
    """What was computed of the pairs, each of shape (P,)."""

    difference: FloatArray
    low: FloatArray
    high: FloatArray
    p_value: FloatArray
    prob_higher: FloatArray
    n_items: IntArray


def _compared(joined: Joined, group: Sequence[Responses], request: Request) -> list[Comparison]:
    method = _choose(joined, request)
    a, b, n_shown, note = _pairs(joined, group, request)
    nothing = [np.full(len(a), np.nan) for _ in range(5)]
    found = _Found(*nothing, n_items=np.zeros(len(a), dtype=np.int64))
    common = joined.there[a] & joined.there[b]
    # Most often the models share all items, and there is one set of them.
    masks, which = np.unique(common, axis=0, return_inverse=True)
    for i, items in enumerate(masks):
        where = np.flatnonzero(which.ravel() == i)
        found.n_items[where] = items.sum()
        if items.any():
            one = _solved(joined, items, (a[where], b[where]), method, request)
            for column, values in zip(found, one, strict=True):
                column[where] = values
    n_either = (joined.there[a] | joined.there[b]).sum(axis=1)
    notes = [(*note, *_notes(joined, request, found, i, int(n))) for i, n in enumerate(n_either)]
    higher_is_better = direction(group)
    prob = 1 - found.prob_higher if higher_is_better is False else found.prob_higher
    models = np.asarray(joined.models, dtype=object)
    columns: dict[str, Sequence[Any]] = {
        "model_a": models[a].tolist(),
        "model_b": models[b].tolist(),
        "n_items": found.n_items.tolist(),
        "difference": finite_values(found.difference),
        "low": finite_values(found.low),
        "high": finite_values(found.high),
        "p_value": finite_values(found.p_value),
        "p_adjusted": finite_values(adjusted(found.p_value, request.correction)),
        "prob_better": finite_values(prob),
        "notes": notes,
    }
    same = {
        "task": group[0].task,
        "metric": group[0].metric,
        "method": method.name,
        "confidence_level": request.confidence_level,
        "higher_is_better": higher_is_better,
    }
    return records(Comparison, columns, same)[:n_shown]


def _pairs(
    joined: Joined, group: Sequence[Responses], request: Request
) -> tuple[IntArray, IntArray, int, tuple[str, ...]]:
    """Return the pairs to compute, how many of them to show, and a note.

    With the best model as the baseline, the pairs among which it was chosen are computed too: the
    correction is over all pairs, so that it holds for this choice.
    """
    if not is_chosen_from_data(request.baseline, joined.models):
        a, b = pair_indices(joined.models, request.baseline)
        return a, b, len(a), ()
    values = joined.value(joined.statistics.sum(axis=1))
    lower = any(r.higher_is_better is False for r in group)
    best = int(np.nanargmin(values) if lower else np.nanargmax(values))
    a, b = pair_indices(joined.models, joined.models[best])
    rest_a, rest_b = pair_indices(joined.models, None)
    rest = (rest_a != best) & (rest_b != best)
    note = f"{joined.models[best]} was chosen as the best: only p, adjusted, allows for that"
    return np.append(a, rest_a[rest]), np.append(b, rest_b[rest]), len(a), (note,)


def _choose(joined: Joined, request: Request) -> Method:
    table = {m.name: m for m in COMPOSITE_COMPARISONS} | dict(request.table)
    name = request.method
    if joined.clusters is not None and (name == "auto" or table[name].family != "sums"):
        # Units are whole clusters; a Dirichlet posterior has no such thing.
        name = "sums-jackknife-t"
    return choose(joined.kind, name, table, COMPOSITE_COMPARISON_DEFAULTS)


def _notes(
    joined: Joined, request: Request, found: _Found, i: int, n_either: int
) -> tuple[str, ...]:
    n = int(found.n_items[i])
    notes: list[str] = []
    if joined.clusters is not None:
        notes.append(f"items in {len(np.unique(joined.clusters))} clusters")
    if request.correction == "maxt":
        notes.append("maxt is for means: p-values are adjusted by holm's method")
    if n_either > n:
        notes.append(f"{n_either - n} of {n_either} items lack one model's answer: left out")
    if not n:
        notes.append("the two models share no item")
    elif np.isnan(found.difference[i]):
        notes.append(f"no difference: {joined.metric} is 0/0 for one of the models")
    elif not np.isfinite(found.low[i]):
        notes.append("no interval: one item or cluster, or answers that do not differ")
    return tuple(notes)


def _solved(
    joined: Joined,
    items: BoolArray,
    pairs: tuple[IntArray, IntArray],
    method: Method,
    request: Request,
) -> _Found:
    """Compute everything for the pairs whose common items are `items`, a mask of shape (M,)."""
    from evalstats_plugin.stats import metric_intervals

    statistics, counts = joined.units(items)
    values = joined.value(np.einsum("nus,u->ns", statistics, counts * 1.0))
    p_value = metric_intervals.swap_p_values(
        statistics, counts, pairs, joined.ordering, rng=request.rng, n_swaps=N_RESAMPLES
    )
    difference = values[pairs[1]] - values[pairs[0]]
    if method.name == "sums-jackknife-t":
        low, high, prob = _by_jackknife(joined, items, pairs, request.confidence_level)
    else:
        drawn = _drawn(joined, (statistics, counts), pairs, method, request.rng)
        low, high, prob = _of_draws(drawn, request.confidence_level)
        # For models with the same answers the limits are symmetric, whatever was drawn.
        alike = (statistics[pairs[0]] == statistics[pairs[1]]).all(axis=(1, 2))
        half = np.maximum(np.abs(low), np.abs(high))
        low, high = np.where(alike, -half, low), np.where(alike, half, high)
        prob = np.where(alike, 0.5, prob)
    low, high, p_value, prob = (
        np.where(np.isnan(difference), np.nan, x) for x in (low, high, p_value, prob)
    )
    n_items = np.full(len(p_value), int(items.sum()), dtype=np.int64)
    return _Found(difference, low, high, p_value, prob, n_items)


def _by_jackknife(
    joined: Joined,
    items: BoolArray,
    pairs: tuple[IntArray, IntArray],
    confidence_level: float,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    from evalstats_plugin.stats import metric_intervals

    statistics, _ = replace(joined, codes=None).units(items)
    a, b = pairs

    def solved(value: Value) -> tuple[FloatArray, FloatArray, FloatArray]:
        values = value(statistics.sum(axis=1))
        without = metric_intervals.leave_one_out(statistics, value)
        return metric_intervals.jackknife_difference(
            values[b] - values[a], without[b] - without[a], confidence_level=confidence_level
        )

    low, high, _ = solved(joined.value)
    return low, high, solved(joined.ordering)[2]


def _drawn(
    joined: Joined,
    units: tuple[FloatArray, IntArray],
    pairs: tuple[IntArray, IntArray],
    method: Method,
    rng: np.random.Generator,
) -> FloatArray:
    """Differences in resamples or under a posterior, shape (B, P)."""
    from evalstats_plugin.stats import metric_intervals

    statistics, counts = units
    if method.family == "sums":
        drawn = metric_intervals.resampled(
            statistics, counts, joined.value, rng=rng, n_resamples=N_RESAMPLES
        )
        return drawn[:, pairs[1]] - drawn[:, pairs[0]]
    shape = (joined.n_labels, joined.n_labels)
    table = np.einsum("us,u->s", statistics[0], counts * 1.0).reshape(shape)
    prior = metric_intervals.prior_of_pairs(table, prior=method.options["prior"])
    return metric_intervals.posterior_differences(
        statistics,
        counts.astype(np.float64),
        pairs,
        prior,
        joined.value,
        rng=rng,
        n_resamples=N_RESAMPLES,
    )


def _of_draws(
    drawn: FloatArray, confidence_level: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    tail = (1 - confidence_level) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail], axis=0)
    wide = high > low
    prob = (drawn > 0).mean(axis=0) + (drawn == 0).mean(axis=0) / 2
    return np.where(wide, low, np.nan), np.where(wide, high, np.nan), prob


@dataclass(frozen=True, eq=False, kw_only=True)
class Joined:
    """N models' answers to M items."""

    models: tuple[str, ...]
    kind: Kind
    value: Value
    ordering: Value
    """Increases with the value; if possible on a scale where differences are closer to normal."""
    statistics: FloatArray
    """Shape (N, M, S): what each item adds to each model's sums, 0 where it is missing."""
    there: BoolArray
    """Shape (N, M)."""
    codes: IntArray | None
    """Shape (N, M): gold and predicted label as one number, where there are labels."""
    n_labels: int
    clusters: NDArray[Any] | None
    """Shape (M,)."""
    metric: str

    def units(self, items: BoolArray) -> tuple[FloatArray, IntArray]:
        """Statistics of what is sampled, shape (N, U, S), and how often each was seen, (U,).

        Clusters where items come in them; items otherwise, those with the same answers as one.
        """
        statistics = self.statistics[:, items]
        if self.clusters is not None:
            _, where = np.unique(self.clusters[items], return_inverse=True)
            order = np.argsort(where, kind="stable")
            starts = np.flatnonzero(np.diff(where[order], prepend=-1))
            sums = np.add.reduceat(statistics[:, order], starts, axis=1)
            return sums, np.ones(int(sums.shape[1]), dtype=np.int64)
        if self.codes is None:
            return statistics, np.ones(int(statistics.shape[1]), dtype=np.int64)
        _, first, counts = np.unique(
            self.codes[:, items], axis=1, return_index=True, return_counts=True
        )
        return statistics[:, first], counts


def join(group: Sequence[Responses]) -> Joined:
    """Join on the items' ids, checked on their hashes.

    Raises
    ------
    DesignError
        If the answers are not what the metric needs, or an id stands for two questions.
    """
    parts = [_ratio(r) for r in group] if group[0].aggregation in RATIOS else composites(group)
    if parts[0].kind == "auc":
        msg = "there is no paired method for areas under the curve yet"
        raise DesignError(msg)
    # The scores joined are the items' positions among those of their model.
    matrix = ResponseMatrix.join(
        [
            replace(r, scores=np.where(p.there, np.arange(len(p.there)), np.nan)[:, None])
            for r, p in zip(group, parts, strict=True)
        ]
    )
    position = matrix.scores[:, :, 0]
    there = ~np.isnan(position)
    n_sums = parts[0].statistics.shape[1]
    statistics = np.zeros((*there.shape, n_sums))
    codes = np.zeros(there.shape, dtype=np.int64)
    for i, part in enumerate(parts):
        # Position among the model's items that have an answer.
        rank = np.cumsum(part.there) - 1
        at = rank[position[i, there[i]].astype(np.int64)]
        statistics[i, there[i]] = part.statistics[at]
        if part.codes is not None:
            codes[i, there[i]] = part.codes[at] @ [len(part.labels), 1]
    return Joined(
        models=matrix.models,
        kind="corpus" if parts[0].kind == "ratio" else parts[0].kind,
        value=parts[0].value,
        ordering=_negative_mean if parts[0].kind == "ratio" else parts[0].value,
        statistics=statistics,
        there=there,
        codes=None if parts[0].codes is None else codes,
        n_labels=len(parts[0].labels),
        clusters=matrix.clusters,
        metric=parts[0].metric,
    )


def _ratio(r: Responses) -> Composite:
    """Sums of loglikelihoods and of weights, and the metric as a function of their ratio."""
    scores = r.item_means
    weights = np.ones(len(scores)) if r.weights is None else r.weights
    there = np.isfinite(scores) & np.isfinite(weights)
    formula = np.vectorize(RATIOS[r.aggregation], otypes=[float])

    def value(sums: FloatArray) -> FloatArray:
        return formula(-_negative_mean(sums))

    counts = np.stack([scores, weights], axis=1)[there]
    return Composite(metric=r.aggregation, kind="ratio", there=there, counts=counts, ratio=value)


def _negative_mean(sums: FloatArray) -> FloatArray:
    """Negative mean loglikelihood: increases with every perplexity and bits per byte."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return -sums[..., 0] / sums[..., 1]
