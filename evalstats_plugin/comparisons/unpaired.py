"""Comparisons of models on different items: every model's scores are an independent sample.

* `unpaired` prepares `_Samples` by task and metric; the method's family picks what it is computed
  from: numbers of right answers, scores, or sums over clusters
* `predicted` compares adaptive tests, by what is expected of each item of their bank
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from evalstats_plugin.comparisons.design import (
    Compared,
    Request,
    common_kind,
    comparable,
    latest_cells,
    pair_indices,
    refuse_best,
)
from evalstats_plugin.comparisons.families import Each, PairEstimates, Table, p_of_limits, prob_of_p
from evalstats_plugin.comparisons.methods import EFFECTS, UNPAIRED_DEFAULTS
from evalstats_plugin.data.measure import joint
from evalstats_plugin.data.methods import Method, choose
from evalstats_plugin.data.responses import (
    Prediction,
    Responses,
    difference_error,
    shared_correlation,
)
from evalstats_plugin.data.results import finite_values
from evalstats_plugin.data.runs import one_of_each
from evalstats_plugin.errors import DesignError, counted, few
from evalstats_plugin.scores.cells import Cell, by_task, cluster_arrays, cluster_names
from evalstats_plugin.stats.arrays import FloatArray, IntArray
from evalstats_plugin.stats.interval import Interval, normal_quantile
from evalstats_plugin.stats.pairs.unpaired import independent_counts

PREDICTED = "adaptive"
"""Method of comparisons of predicted scores."""

PAIRING_LOST = (
    "pairing is lost without scores of items: on the same items, scores that correlate by .5 would "
    "give limits 29 % narrower, as twice the items would here"
)
"""Note on published values: the variance of a difference is 1 - r times that of apart samples."""

SAMPLES = "items of each model treated as independent samples"
"""Note on every pair."""

FAMILIES = ("unpaired", "unpaired-bounded", "unpaired-real")
"""Families of methods for independent samples."""

Solved = tuple[FloatArray, FloatArray, FloatArray | None]
"""Lower and upper limits, and the posterior probability that b scores higher; shape (P,)."""


def _solver(samples: _Samples) -> Callable[[float], Solved]:
    """Return what solves at a level, from what methods of this family are computed from."""
    a, b, n = samples.a, samples.b, samples.sizes
    data: tuple[Any, ...]
    more: dict[str, Any] = {}
    if samples.method.family == "unpaired":
        right = np.array([cell.successes for cell in samples.cells])
        data = (independent_counts(right[a], n[a], right[b], n[b]),)
    elif samples.method.family == "unpaired-bounded":
        scores = np.full((len(samples.cells), n.max()), np.nan)
        for row, cell in zip(scores, samples.cells, strict=True):
            # Where only counts are logged, as many ones and zeros.
            row[: cell.n] = cell.values if len(cell.values) else np.arange(cell.n) < cell.successes
        data, more = (scores, a, b), {"bounds": samples.bounds or (0.0, 1.0)}
    else:
        data = (*cluster_arrays(samples.cells), a, b)
    function = samples.method.load()

    def solve(level: float) -> Solved:
        result = function(*data, confidence_level=level, **more)
        return result.low, result.high, getattr(result, "prob_better", None)

    return solve


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


def unpaired(responses: Sequence[Responses], request: Request) -> tuple[list[Table], list[str]]:
    """Compare models as independent samples; return also notes on what was left out.

    P-values are those of the intervals: 1 less the highest level of one that leaves out no
    difference.
    """
    refuse_best(request, responses)
    groups, left_out = comparable(latest_cells(responses), request.baseline, _is_usable)
    return [
        _of_errors(cells, request)
        if any(cell.published_error is not None for cell in cells)
        else _table(_samples(cells, request), request)
        for cells in groups
    ], left_out


def _is_usable(cell: Cell) -> bool:
    """Whether there is a mean with a known error; for 0/1 scores, counts are enough."""
    of_items = cell.kind in ("binary", "bounded", "real") and cell.n > 0
    return of_items or cell.published_error is not None


def _of_errors(cells: Sequence[Cell], request: Request) -> Table:
    """Compare values by their standard errors, where one of them has nothing else."""
    score, error = np.array([(c.estimate, c.std_error or math.nan) for c in cells]).T
    n = np.array([cell.n for cell in cells])
    notes = ("normal limits, from published standard errors", PAIRING_LOST)
    return by_scores([cell.responses for cell in cells], score, error, n, request, notes)


def by_scores(
    group: Sequence[Responses],
    score: FloatArray,
    error: FloatArray,
    n: IntArray,
    request: Request,
    notes: tuple[str, ...],
) -> Table:
    """Compare scores of models by their standard errors, each of shape (N,), as independent."""
    firsts, seconds = pair_indices([r.model for r in group], request.baseline)
    pairs = [
        (i, j, score[j] - score[i], math.hypot(error[i], error[j]), min(n[i], n[j]))
        for i, j in zip(firsts.tolist(), seconds.tolist(), strict=True)
    ]
    bounds = joint([r.measure for r in group]).bounds
    span = math.inf if bounds is None else bounds[1] - bounds[0]
    table = _by_errors(group, pairs, request, name="normal", span=span, notes=[notes] * len(pairs))
    scores = {"score_a": finite_values(score[firsts]), "score_b": finite_values(score[seconds])}
    return replace(table, columns=table.columns | scores)


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
        measure=joint([cell.responses.measure for cell in cells]), models=models, a=a, b=b,
        cells=cells, method=method, bounds=bounds, notes=notes,
    )  # fmt: skip


def _table(samples: _Samples, request: Request) -> Table:
    solve = _solver(samples)
    name = samples.method.name
    effect = EFFECTS.get(name, "difference")
    null = 0.0 if effect == "difference" else 1.0

    def interval(level: float) -> Interval:
        return Interval(*solve(level)[:2])

    low, high, prob = solve(request.confidence_level)
    p_values = p_of_limits(interval, request.confidence_level, null=null)
    scores = np.array([cell.estimate for cell in samples.cells])
    score_a, score_b = scores[samples.a], scores[samples.b]
    estimates = score_b - score_a
    with np.errstate(divide="ignore", invalid="ignore"):
        if effect == "ratio":
            estimates = score_b / score_a
        elif effect == "odds ratio":
            estimates = (score_b / (1 - score_b)) / (score_a / (1 - score_a))
    if prob is None:
        prob = prob_of_p(p_values, estimates, null)
    of_pairs = PairEstimates(name, low, high, p_values, prob, estimates)
    n_items = np.minimum(samples.sizes[samples.a], samples.sizes[samples.b])
    return Table(
        pairing=samples,
        estimates=of_pairs,
        judge=lambda: Each(p_values, interval),
        columns={
            "n_items": n_items.tolist(),
            "notes": _notes(samples, low, high),
            "score_a": finite_values(score_a),
            "score_b": finite_values(score_b),
        },
        same={"effect": effect},
    )


def _notes(samples: _Samples, low: FloatArray, high: FloatArray) -> list[tuple[str, ...]]:
    n, sums = samples.sizes, samples.method.family == "unpaired-real"
    clusters = [
        None if c.clusters is None else len(np.unique(cluster_names(c.clusters)))
        for c in samples.cells
    ]
    notes: list[tuple[str, ...]] = []
    is_bare = [not len(cell.responses.item_ids) for cell in samples.cells]
    for a, b, below, above in zip(
        samples.a.tolist(), samples.b.tolist(), low.tolist(), high.tolist(), strict=True
    ):
        own = [SAMPLES]
        if clusters[a] is not None or clusters[b] is not None:
            of_each = " and ".join(f"{clusters[i] or n[i]}" for i in (a, b))
            own.append(
                f"items in {of_each} clusters"
                if sums
                else f"{samples.method.name} treats items in {of_each} clusters as independent"
            )
        if is_bare[a] or is_bare[b]:
            own.append(PAIRING_LOST)
        if np.isnan(below) or np.isnan(above):
            own.append("no interval: one item or cluster, or scores without any spread")
        elif np.isinf(above):
            own.append(f"no upper limit of the {EFFECTS[samples.method.name]}")
        notes.append((*samples.notes, *own))
    return notes


def _predicted_on(r: Responses, ids: NDArray[Any]) -> Prediction | None:
    """Return what is known of a model's score on each item of a bank; None if any is not there.

    Predictions of an adaptive test, or the scores of a plain run.
    """
    p = r.predicted
    if p is None:
        scored = ~np.isnan(r.item_means)
        scores = r.item_means[scored]
        p = Prediction(
            estimate=None, n_in_bank=len(ids), item_ids=r.item_ids[scored].astype(str),
            scores=scores, variances=np.zeros(len(scores)),
        )  # fmt: skip
    order = np.argsort(p.item_ids)
    place = np.searchsorted(p.item_ids, ids, sorter=order).clip(max=len(order) - 1)
    at = order[place] if len(order) else place
    if not len(order) or (p.item_ids[at] != ids).any():
        return None
    return replace(p, item_ids=ids, scores=p.scores[at], variances=p.variances[at])


def predicted(responses: Sequence[Responses], request: Request) -> tuple[list[Table], list[str]]:
    """Compare adaptive tests with each other and with complete runs, on all items of the bank.

    The expected difference is summed over the items: of those that both answered it is observed.
    Its variance is the chance in each answer not seen, and what each model's predictions share.
    Where the same items were drawn for both, they err alike (`responses.difference_error`).
    """
    refuse_best(request, responses)
    tables: list[Table] = []
    left_out: dict[str, list[str]] = {}
    for (task, metric), group in by_task(one_of_each(responses)).items():
        models = [r.model for r in group]
        if request.baseline is not None and request.baseline not in models:
            left_out.setdefault(f"{request.baseline} has no scores", []).append(f"{task} {metric}")
            continue
        pairs: list[tuple[int, int, float, float, int]] = []
        notes_of_pairs: list[tuple[str, ...]] = []
        firsts, seconds = pair_indices(models, request.baseline)
        for i, j in zip(map(int, firsts), map(int, seconds), strict=True):
            a, b = group[i], group[j]
            if a.predicted is None and b.predicted is None:
                continue
            of_bank = _of_bank(a, b)
            if isinstance(of_bank, str):
                left_out.setdefault(of_bank, []).append(f"{a.model} and {b.model} on {task}")
            else:
                difference, error, size, of_pair = of_bank
                pairs.append((i, j, difference, error, size))
                notes_of_pairs.append(of_pair)
        if pairs:
            tables.append(
                _by_errors(group, pairs, request, name=PREDICTED, span=1.0, notes=notes_of_pairs)
            )
    notes = [f"not compared, {why}: {few(places)}" for why, places in left_out.items()]
    if not tables:
        raise DesignError(f"no adaptive test can be compared; {'; '.join(notes)}")
    return tables, notes


def _of_bank(a: Responses, b: Responses) -> tuple[float, float, int, tuple[str, ...]] | str:
    """Difference over all items, its standard error, number of items and notes; or why not."""
    for r in (a, b):
        if r.predicted is not None and r.predicted.estimate is None:
            return "the bank of an adaptive test predicts another metric"
        if r.predicted is not None and not len(r.predicted.item_ids):
            return "the log of an adaptive test has no predictions of single items: run it again"
    ids = (a.predicted or b.predicted).item_ids  # type: ignore[union-attr] - one of them is
    if a.predicted and b.predicted and set(ids) != set(b.predicted.item_ids):
        return "the adaptive tests are of banks with other items"
    of_a, of_b = _predicted_on(a, ids), _predicted_on(b, ids)
    if of_a is None or of_b is None:
        return "the complete run lacks items of the adaptive test's bank"
    errors = [math.hypot(np.sqrt(x.variances.sum()) / len(ids), x.common) for x in (of_a, of_b)]
    draws = [None if r.predicted is None else r.predicted.draws for r in (a, b)]
    error = math.hypot(*errors)
    notes = (f"of predicted scores on all {counted(len(ids), 'item')} of the bank",)
    if draws[0] is not None and draws[1] is not None:
        error = difference_error(draws[0], errors[0], draws[1], errors[1])
        if n := draws[0].n_shared(draws[1]):
            correlation = shared_correlation(draws[0], draws[1])
            by_draws = f"the same {counted(n, 'item')} drawn for both: errors correlate by"
            notes = (*notes, f"{by_draws} {correlation:.2f}")
    return float((of_b.scores - of_a.scores).mean()), error, len(ids), notes


def _by_errors(
    group: Sequence[Responses],
    pairs: Sequence[tuple[int, int, float, float, int]],
    request: Request,
    *,
    name: str,
    span: float,
    notes: Sequence[tuple[str, ...]],
) -> Table:
    """Compare models by differences and their standard errors, which are taken as normal."""
    a, b, difference, error, size = (np.array(each) for each in zip(*pairs, strict=True))
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.where(error == 0, np.copysign(np.inf, difference), difference / error)
    z = np.where((error == 0) & (difference == 0), 0.0, z)
    p_values = 2 * special.ndtr(-np.abs(z))

    def interval(level: float) -> Interval:
        half = normal_quantile(level) * error
        return Interval(np.maximum(difference - half, -span), np.minimum(difference + half, span))

    low, high = interval(request.confidence_level)
    return Table(
        pairing=Compared(
            measure=joint([r.measure for r in group]),
            models=tuple(r.model for r in group),
            a=a,
            b=b,
        ),
        estimates=PairEstimates(name, low, high, p_values, special.ndtr(z), difference),
        judge=lambda: Each(p_values, interval),
        columns={"n_items": size.tolist(), "notes": notes},
    )
