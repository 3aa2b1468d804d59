"""Comparisons under metrics that are not means: F1, MCC, BLEU, perplexity, on the same items.

`Joined` brings the models of one task together: what each item adds to each model's sums. Interval,
p-value and P(better) are of one distribution: Student's t by the jackknife, resamples, or draws
from a Dirichlet posterior.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from evalstats_plugin.comparisons.design import (
    Compared,
    Request,
    against_best,
    is_chosen_from_data,
    numbered,
    pair_indices,
)
from evalstats_plugin.comparisons.families import Each, PairEstimates, Table
from evalstats_plugin.comparisons.methods import (
    COMPOSITE_COMPARISON_DEFAULTS,
    COMPOSITE_COMPARISONS,
)
from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.data.measure import joint
from evalstats_plugin.data.methods import Kind, Method, choose
from evalstats_plugin.data.responses import Responses
from evalstats_plugin.data.results import finite_values
from evalstats_plugin.data.runs import one_of_each
from evalstats_plugin.errors import DesignError, counted, few
from evalstats_plugin.scores.cells import RATIOS, by_task
from evalstats_plugin.scores.metrics import NAMES, Composite, composites
from evalstats_plugin.stats import metric_intervals
from evalstats_plugin.stats.arrays import BoolArray, FloatArray, IntArray
from evalstats_plugin.stats.clustered import by_cluster
from evalstats_plugin.stats.interval import Interval
from evalstats_plugin.stats.metrics import Value
from evalstats_plugin.stats.pairs.unpaired import two_sided
from evalstats_plugin.stats.streams import seed_for, stream

N_RESAMPLES = 9999
"""Resamples and posterior draws."""


def compare_composite(
    responses: Sequence[Responses], request: Request
) -> tuple[list[Table], list[str]]:
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
    tables: list[Table] = []
    notes: list[str] = []
    for (task, metric), group in by_task(chosen).items():
        try:
            tables.append(_compared(_joined(group, request.baseline), request))
        except DesignError as error:
            if type(error) is not DesignError:
                raise
            notes.append(f"not compared, {error}: {task} {metric}")
    return tables, notes


def _compared(joined: Joined, request: Request) -> Table:
    seed = seed_for(request.rng, "seed of metrics")
    estimates, n_items, (score_a, score_b) = _found(joined, request, seed)
    n_either = (joined.there[joined.a] | joined.there[joined.b]).sum(axis=1).tolist()
    n_both = n_items[: len(joined.a)].tolist()
    notes = [
        _notes(joined, estimates, i, n) for i, n in enumerate(zip(n_both, n_either, strict=True))
    ]

    def interval(level: float) -> Interval:
        one = estimates
        if level != request.confidence_level:
            # The same draws at every level.
            one, *_ = _found(joined, replace(request, confidence_level=level), seed)
        return Interval(one.low, one.high)

    return Table(
        pairing=joined,
        estimates=estimates,
        judge=lambda: Each(estimates.p_value, interval),
        columns={
            "n_items": n_both,
            "notes": notes,
            "score_a": finite_values(score_a[: len(joined.a)]),
            "score_b": finite_values(score_b[: len(joined.a)]),
        },
    )


def _found(
    joined: Joined, request: Request, seed: int
) -> tuple[PairEstimates, IntArray, tuple[FloatArray, FloatArray]]:
    """Return what was found of each pair, the number of items of both models, and their scores."""
    table = {m.name: m for m in COMPOSITE_COMPARISONS} | dict(request.table)
    name = request.method
    if joined.clusters is not None and (name == "auto" or table[name].family != "sums"):
        # Units are whole clusters; a Dirichlet posterior has no such thing.
        name = "sums-jackknife-t"
    method = choose(joined.kind, name, table, COMPOSITE_COMPARISON_DEFAULTS)
    request = replace(request, rng=stream(seed, "resamples of metrics"))
    a, b = joined.family.a, joined.family.b
    low, high, p_value, prob, difference, score_a, score_b = np.full((7, len(a)), np.nan)
    estimates = PairEstimates(method.name, low, high, p_value, prob, difference)
    n_items = np.zeros(len(a), dtype=np.int64)
    common = joined.there[a] & joined.there[b]
    # Most often the models share all items, and there is one set of them.
    masks, which = np.unique(common, axis=0, return_inverse=True)
    for i, items in enumerate(masks):
        where = np.flatnonzero(which.ravel() == i)
        n_items[where] = items.sum()
        if items.any():
            solution = _solved(joined, items, (a[where], b[where]), method, request)
            columns = (low, high, p_value, prob, difference, score_a, score_b)
            for column, values in zip(columns, solution, strict=True):
                column[where] = values
    return estimates, n_items, (score_a, score_b)


def _notes(
    joined: Joined, estimates: PairEstimates, i: int, items: tuple[int, int]
) -> tuple[str, ...]:
    n, n_either = items
    notes = list(joined.notes)
    if joined.clusters is not None:
        notes.append(f"items in {counted(len(np.unique(joined.clusters)), 'cluster')}")
    if n_either > n:
        notes.append(f"{n_either - n} of {n_either} items lack one model's answer: left out")
    if not n:
        notes.append("the two models share no item")
    elif np.isnan(estimates.difference[i]):
        name = joined.metric.partition(",")[0]
        notes.append(f"no difference: {name} says nothing of one of the models")
    elif not np.isfinite(estimates.low[i]):
        notes.append("no interval: one item or cluster, or answers that do not differ")
    return tuple(notes)


def _solved(
    joined: Joined,
    items: BoolArray,
    pairs: tuple[IntArray, IntArray],
    method: Method,
    request: Request,
) -> tuple[FloatArray, ...]:
    """Limits, p-value, P(b higher), difference and scores of the pairs of common items `items`.

    `items` is a mask of shape (M,), the rest has shape (P,).
    """
    statistics, counts = joined.units(items)
    values = joined.observed(np.einsum("nus,u->ns", statistics, counts * 1.0))
    score_a, score_b = values[pairs[0]], values[pairs[1]]
    difference = score_b - score_a
    if method.name == "sums-jackknife-t":
        # Item by item: those with the same answers are not one.
        statistics, _ = replace(joined, codes=None).units(items)
        without = metric_intervals.leave_one_out(statistics, joined.value)
        values = joined.value(statistics.sum(axis=1))
        low, high, prob = metric_intervals.jackknife_difference(
            values[pairs[1]] - values[pairs[0]],
            without[pairs[1]] - without[pairs[0]],
            confidence_level=request.confidence_level,
        )
        p_value = two_sided(prob)
    else:
        drawn = _drawn(joined, (statistics, counts), pairs, method, request.rng)
        tail, n = (1 - request.confidence_level) / 2, len(drawn)
        low = np.quantile(drawn, tail, axis=0, method="lower")
        high = np.quantile(drawn, 1 - tail, axis=0, method="higher")
        low, high = np.where(high > low, (low, high), np.nan)
        not_above, not_below = (drawn <= 0).sum(axis=0), (drawn >= 0).sum(axis=0)
        # At most 1 - level exactly where 0 is outside the limits.
        fewer = np.minimum(not_above, not_below)
        p_value = np.minimum(np.maximum(2 * fewer / (n - 1), 2 / (n + 1)), 1.0)
        prob = (n + not_below - not_above) / (2 * n)
        # For models with the same answers the limits are symmetric, whatever was drawn.
        alike = (statistics[pairs[0]] == statistics[pairs[1]]).all(axis=(1, 2))
        half = np.maximum(np.abs(low), np.abs(high))
        low, high = np.where(alike, -half, low), np.where(alike, half, high)
        p_value, prob = np.where(alike, 1.0, p_value), np.where(alike, 0.5, prob)
        # With all right, or all wrong, the prior leaves the estimate out.
        low, high = np.minimum(low, difference), np.maximum(high, difference)
    # Resamples of a single item or cluster are all alike, which is no sign of a difference.
    single = method.family == "sums" and counts.sum() < 2
    unknown = np.isnan(difference) | single
    solved = (np.where(unknown, np.nan, x) for x in (low, high, p_value, prob))
    return *solved, difference, score_a, score_b


def _drawn(
    joined: Joined,
    units: tuple[FloatArray, IntArray],
    pairs: tuple[IntArray, IntArray],
    method: Method,
    rng: np.random.Generator,
) -> FloatArray:
    """Differences in resamples or under a posterior, shape (B, P)."""
    statistics, counts = units
    if method.family == "sums":
        drawn = metric_intervals.resampled(
            statistics, counts, joined.value, rng=rng, n_resamples=N_RESAMPLES
        )
        return drawn[:, pairs[1]] - drawn[:, pairs[0]]
    shape = (joined.n_labels, joined.n_labels)
    table = np.einsum("us,u->s", statistics[0], counts * 1.0).reshape(shape)
    # Of each of both right, one, the other and neither.
    count = method.prior if isinstance(method.prior, float) else 0.5
    prior = metric_intervals.prior_of_pairs(table, prior=count)
    return metric_intervals.posterior_differences(
        statistics,
        counts.astype(np.float64),
        pairs,
        prior,
        joined.value,
        rng=rng,
        n_resamples=N_RESAMPLES,
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class Joined(Compared):
    """N models' answers to M items, and the P pairs to compare."""

    kind: Kind
    value: Value
    observed: Value
    """The same of these items, NaN where the metric says nothing of them."""
    statistics: FloatArray
    """Shape (N, M, S): what each item adds to each model's sums, 0 where it is missing."""
    there: BoolArray
    """Shape (N, M)."""
    codes: IntArray | None
    """Shape (N, M): gold and predicted label as one number, where there are labels."""
    n_labels: int
    clusters: IntArray | None
    """Shape (M,): the cluster of each item, by number."""

    def units(self, items: BoolArray) -> tuple[FloatArray, IntArray]:
        """Statistics of what is sampled, shape (N, U, S), and how often each was seen, (U,).

        Clusters where items come in them; items otherwise, those with the same answers as one.
        """
        statistics = self.statistics[:, items]
        if self.clusters is not None:
            sums = by_cluster(statistics, self.clusters[items], axis=1)
            return sums, np.ones(int(sums.shape[1]), dtype=np.int64)
        if self.codes is None:
            return statistics, np.ones(int(statistics.shape[1]), dtype=np.int64)
        _, first, counts = np.unique(
            self.codes[:, items], axis=1, return_index=True, return_counts=True
        )
        return statistics[:, first], counts


def _joined(group: Sequence[Responses], baseline: str | None) -> Joined:
    """Join on the items' ids, checked on their hashes; choose the pairs.

    Raises
    ------
    DesignError
        If nothing can be compared, the answers are not what the metric needs, or an id stands for
        two questions.
    """
    models = [r.model for r in group]
    best = is_chosen_from_data(baseline, models)
    named = None if best else baseline
    if named not in (None, *models):
        raise DesignError(f"{named} has no answers")
    if len(group) < 2:
        raise DesignError("one model only")
    if len(kinds := {NAMES.get(r.aggregation, r.aggregation) for r in group}) > 1:
        raise DesignError(f"not one metric but {few(sorted(kinds))}")
    parts = [_ratio(r) for r in group] if group[0].aggregation in RATIOS else composites(group)
    if parts[0].kind == "auc":
        raise DesignError("there is no paired method for areas under the curve yet")
    # The scores joined are the items' positions among those of their model.
    matrix = ResponseMatrix.join(
        [
            replace(r, scores=np.where(p.there, np.arange(len(p.there)), np.nan)[:, None])
            for r, p in zip(group, parts, strict=True)
        ]
    )
    position = matrix.scores[:, :, 0]
    answered = ~np.isnan(position)
    n_sums = parts[0].statistics.shape[1]
    statistics = np.zeros((*answered.shape, n_sums))
    codes = np.zeros(answered.shape, dtype=np.int64)
    for i, part in enumerate(parts):
        # Position among the model's items that have an answer.
        rank = np.cumsum(part.there) - 1
        at = rank[position[i, answered[i]].astype(np.int64)]
        statistics[i, answered[i]] = part.statistics[at]
        if part.codes is not None:
            codes[i, answered[i]] = part.codes[at] @ [len(part.labels), 1]
    a, b = pair_indices(matrix.models, named)
    joined = Joined(
        measure=joint([r.measure for r in group]),
        models=matrix.models,
        a=a,
        b=b,
        kind="corpus" if parts[0].kind == "ratio" else parts[0].kind,
        value=parts[0].value,
        observed=parts[0].observed,
        statistics=statistics,
        there=answered,
        codes=None if parts[0].codes is None else codes,
        n_labels=len(parts[0].labels),
        clusters=None if matrix.clusters is None else numbered(matrix.clusters),
    )
    return against_best(joined, joined.value(statistics.sum(axis=1))) if best else joined


def _ratio(r: Responses) -> Composite:
    """Sums of loglikelihoods and of weights, and the metric as a function of their ratio."""
    scores = r.item_means
    weights = np.ones(len(scores)) if r.weights is None else r.weights
    defined = np.isfinite(scores) & np.isfinite(weights)
    formula = np.vectorize(RATIOS[r.aggregation], otypes=[float])

    def value(sums: FloatArray) -> FloatArray:
        with np.errstate(invalid="ignore", divide="ignore"):
            return formula(sums[..., 0] / sums[..., 1])

    counts = np.stack([scores, weights], axis=1)[defined]
    return Composite(metric=r.aggregation, kind="ratio", there=defined, counts=counts, ratio=value)
