"""One model on one task under one metric, prepared for a formula.

`make_cell` finds out what the scores of a `Responses` are like: binary, bounded, real, a ratio of
sums, or a metric that is not a mean (`scores.metrics`). The other functions are what analyses of
cells share: sums over clusters, the latest runs by task, the notes on missing scores.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.data.measure import Scale, agree
from evalstats_plugin.data.methods import Kind
from evalstats_plugin.data.metrics import BITS, PERPLEXITY, stock_metric
from evalstats_plugin.data.published import counts_in_full
from evalstats_plugin.data.responses import LARGEST, Responses, shared_items
from evalstats_plugin.data.results import grouped
from evalstats_plugin.data.scales import UNLIMITED, strays
from evalstats_plugin.errors import DesignError, counted
from evalstats_plugin.scores.metrics import Composite, composites
from evalstats_plugin.stats.arrays import FloatArray

Estimand = Literal["items", "clusters"]

Missing = Literal["drop", "bounds", "zero"]
"""Items without a score are left out; may have had any score; or count as the worst score."""

SAME = 1e-9
"""Scores this close to a bound, as a share of the range, are at it: means of epochs are rounded."""

HEAVY = 9.0
"""Kurtosis of leave-one-out values above which the jackknife's interval is perhaps too short."""

UNIT = (0.0, 1.0)

T = TypeVar("T")

MetricKey: TypeAlias = tuple[str, tuple[float, float]]
"""Name of a metric, without lm-eval's filter "none", and its bounds."""


def _exp_negative(mean: float) -> float:
    return math.inf if mean <= -700 else math.exp(-mean)


RATIOS: Mapping[str, Callable[[float], float]] = {
    "perplexity": _exp_negative,
    "weighted_perplexity": _exp_negative,
    "bits_per_byte": lambda mean: -mean / math.log(2),
}
"""Decreasing functions that turn (weighted) mean log-likelihood into the metric's value."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Cell:
    """What a formula needs of one `Responses`."""

    responses: Responses
    kind: Kind | None
    """None: no interval can be computed, and the notes say why."""
    values: FloatArray = field(default_factory=lambda: np.empty(0))
    """Shape (M,): means of the items that have a score."""
    weights: FloatArray | None = None
    """Shape (M,), for a ratio."""
    clusters: NDArray[Any] | None = None
    """Shape (M,): the cluster of each item; None for independent items."""
    successes: float = 0.0
    """Of 0/1 scores, or of two values on another scale: items at the upper bound."""
    n: int = 0
    n_missing: int = 0
    bounds: tuple[float, float] | None = None
    attained: tuple[bool, bool] = (False, False)
    """Whether scores of the metric, perhaps other models', lie at the lower and upper bound."""
    composite: Composite | None = None
    """For a metric that is not a mean: what its value is computed from."""
    estimand: Estimand = "items"
    """What counts alike in the mean of items in clusters."""
    published_error: float | None = None
    """Standard error of a value without items or counts: all that its limits come from."""
    notes: tuple[str, ...] = ()

    @property
    def estimate(self) -> float:
        """The score, by the metric's own aggregation or as predicted; NaN where there is none."""
        if self.composite is not None:
            return self.composite.estimate
        if self.kind in (None, "left-out"):
            r = self.responses
            value = r.logged if r.predicted is None else r.predicted.estimate
            return math.nan if value is None else value
        if self.estimand == "clusters":
            return float(weighted_sums(self)[0].mean())
        if self.kind == "binary":
            low, high = self.bounds or UNIT
            return low + (high - low) * self.successes / self.n
        if self.kind == "ratio":
            weights = np.ones(self.n) if self.weights is None else self.weights
            return RATIOS[self.responses.aggregation](float(self.values.sum() / weights.sum()))
        return float(self.values.mean())

    @property
    def scale(self) -> Scale:
        """Scale of the estimate, on which its limits are, too."""
        r, scale = self.responses, self.responses.measure.scale
        if self.composite is not None:
            scale = self.composite.scale
        elif self.kind == "ratio":
            usual = BITS if r.aggregation == "bits_per_byte" else PERPLEXITY
            # Log-likelihoods of densities may be positive.
            scale = usual if self.values.max() <= 0 else UNLIMITED
        elif self.kind == "left-out" and scale is None:
            stock = stock_metric(r.metric, r.source.harness, r.task)
            usual = (stock and stock.scale) or UNLIMITED
            scale = None if strays(self.values, (usual.low, usual.high)) else usual
        return scale or UNLIMITED

    @property
    def std_error(self) -> float | None:
        """s/√n of a mean, or the clustered standard error (CR1) where items come in clusters.

        Of values without each unit it is the jackknife's.

        None where the scores do not vary, for one item, and for metrics that are not means.
        """
        if self.kind == "left-out":
            return math.sqrt((len(self.values) - 1) * float(self.values.var())) or None
        if self.published_error is not None:
            return self.published_error
        if self.kind not in ("binary", "bounded", "real") or self.n < 2:
            return None
        if self.clusters is not None:
            from evalstats_plugin.stats.clustered import cluster_moments

            error = float(cluster_moments(*weighted_sums(self)).cr1)
            return error if error > 0 else None
        if self.kind == "binary":
            p = self.successes / self.n
            low, high = self.bounds or UNIT
            variance = (high - low) ** 2 * p * (1 - p) / (self.n - 1)
        else:
            variance = float(self.values.var(ddof=1)) / self.n
        return math.sqrt(variance) or None


def make_cell(responses: Responses) -> Cell:  # noqa: PLR0911 - one for each kind
    """Find out what the scores are like: binary, bounded, real, or a ratio of sums."""
    if responses.predicted is not None:
        return _of_adaptive(responses)
    if responses.pairs is not None:
        return _of_pairs(responses)
    if responses.left_out is not None:
        return _of_left_out(responses, responses.left_out)
    if not len(responses.item_ids):
        return _of_logged_counts(responses)
    if responses.aggregation not in ("mean", *RATIOS):
        return Cell(responses=responses, kind=None, notes=responses.notes)
    responses = _in_fewest_epochs(responses)
    means = responses.item_means
    scored = ~np.isnan(means)
    values = means[scored]
    n_missing = len(means) - len(values)
    notes = [*responses.notes, *left_out(n_missing, len(means))]
    n_missing += responses.measure.n_cut
    cell = partial(Cell, responses=responses, n=len(values), n_missing=n_missing)
    if not len(values):
        return cell(kind=None, notes=(*notes, "no item has a score"))
    if not np.isfinite(values).all():
        count = int((~np.isfinite(values)).sum())
        extremes = f"scores that are infinite or beyond ±{LARGEST:g}: {count}; no mean, no interval"
        return cell(kind=None, notes=(*notes, extremes))
    scale = responses.measure.scale
    beyond = None if scale is None else strays(responses.scores, (scale.low, scale.high))
    if beyond is not None:
        question = beyond.question(responses.measure.metric, str(scale))
        return cell(kind=None, notes=(*notes, f"no interval: {question}"))
    if responses.aggregation in RATIOS:
        weights = None if responses.weights is None else responses.weights[scored]
        if responses.clusters is not None:
            notes.append("this ratio treats clustered items as independent")
        return cell(kind="ratio", values=values, weights=weights, notes=tuple(notes))
    clusters = None if responses.clusters is None else responses.clusters[scored]
    kind, span, note = _kind_of_mean(responses, values)
    responses = responses.under(responses.measure.or_on(span))
    successes = float((values == span[1]).sum()) if kind == "binary" and span else 0.0
    return cell(
        responses=responses, kind=kind, values=values, clusters=clusters, successes=successes,
        bounds=span, notes=(*notes, *note),
    )  # fmt: skip


def _in_fewest_epochs(responses: Responses) -> Responses:
    """Leave out epochs that no item needs, as where one in each item ended in an error."""
    scores = responses.scores
    n_scored = 1 if scores.shape[1] == 1 else int((~np.isnan(scores)).sum(axis=1).max(initial=0))
    if not 0 < n_scored < scores.shape[1]:
        return responses
    order = np.argsort(np.isnan(scores), axis=1, kind="stable")[:, :n_scored]
    return replace(responses, scores=np.take_along_axis(scores, order, axis=1))


def _kind_of_mean(
    responses: Responses, values: FloatArray
) -> tuple[Kind, tuple[float, float] | None, tuple[str, ...]]:
    """Kind and bounds of scores whose mean is the value, and what was assumed."""
    bounds, scale = responses.bounds, responses.measure.scale
    one_epoch = responses.scores.shape[1] == 1
    low, high = UNIT if scale is None else bounds or (math.nan, math.nan)
    if one_epoch and ((values == low) | (values == high)).all():
        return "binary", (low, high), ()
    if bounds is not None:
        return "bounded", bounds, ()
    if scale is None and values.min() >= 0 and values.max() <= 1:
        guessed = () if epochs_are_binary(responses) else ("scores assumed to lie in [0, 1]",)
        return "bounded", (0.0, 1.0), guessed
    return "real", None, ()


def epochs_are_binary(responses: Responses, ends: tuple[float, float] = UNIT) -> bool:
    """Whether every score of every epoch is one of two: 0 or 1, unless others are given."""
    scores: NDArray[Any] = responses.scores
    return bool(np.isin(scores[~np.isnan(scores)], ends).all())


def _of_logged_counts(r: Responses) -> Cell:
    """Recover the counts behind a logged proportion, where they can be proven.

    For 0/1 scores, and for no others with the same mean in [0, 1], the standard error that
    harnesses log is √(p(1 − p)/(n − 1)). Of other values it is what limits come from.
    """
    notes = r.notes or ("no interval: no scores of items, but their value alone",)
    nothing = Cell(responses=r, kind=None, n=r.logged_n or 0, notes=notes)
    p, n, error = r.logged, r.logged_n, r.logged_std_error
    if p is None:
        return nothing
    # Once there is an interval, notes give no reason against it.
    reasons = tuple(each.removeprefix("no interval: ") for each in r.notes)
    start = "" if r.notes else "no samples logged: "
    k: int | None = None
    note = "counts recovered from the value, its stderr and n"
    if r.aggregation == "mean" and r.published != "error" and 0 <= p <= 1:
        if n:
            k = _right_answers(p, n, error)
        elif error and (counts := counts_in_full(r.metric, p, error)):
            k, n, note = counts.k, counts.n, "counts and n recovered from the value and its stderr"
    if k is not None and n:
        return replace(
            nothing,
            kind="binary",
            n=n,
            successes=float(k),
            bounds=(0.0, 1.0),
            notes=reasons if r.published == "counts" else (*reasons, start + note),
        )
    # What rounding leaves of 0 would be an interval of no width.
    if not error or error <= 1e-8 * abs(p):
        return nothing
    note = "limits from the logged standard error alone"
    notes = notes if r.published == "error" else (*reasons, start + note)
    return replace(nothing, published_error=error, notes=notes)


def _right_answers(p: float, n: int, error: float | None) -> int | None:
    """Return the right answers of n, None where the value or its error is of no 0/1 scores."""
    k = round(p * n)
    if not math.isclose(k / n, p, rel_tol=0, abs_tol=1e-6):
        return None
    expected = math.sqrt(p * (1 - p) / max(n - 1, 1))
    is_proven = error is not None and abs(error - expected) <= 1e-6 * max(expected, 1e-3)
    return k if n == 1 or is_proven else None


def _of_left_out(responses: Responses, without: FloatArray) -> Cell:
    """Return the cell of a metric that was recomputed without each unit."""
    from evalstats_plugin.stats.metric_intervals import kurtosis

    note = "a few items carry much of the error: the interval is perhaps too short"
    notes = (*responses.notes, *([note] if kurtosis(without) > HEAVY else []))
    n = responses.logged_n or len(without)
    return Cell(responses=responses, kind="left-out", values=without, n=n, notes=notes)


def _of_adaptive(responses: Responses) -> Cell:
    """Return the cell of an adaptive test: its score is predicted, not the mean of its items."""
    means = responses.item_means
    asked_items = np.isfinite(means)
    n = int(asked_items.sum())
    kind = "" if responses.predicted and responses.predicted.estimate is not None else ", no score"
    asked = f"mean of the {counted(n, 'item')} asked, no simple random sample of all{kind}"
    notes = (f"{asked}: {means[asked_items].mean():.3f}",) if n else ()
    return Cell(responses=responses, kind=None, n=n, notes=(*responses.notes, *notes))


def _of_pairs(responses: Responses) -> Cell:
    """Return the cell of responses that have pairs of gold and predicted answers."""
    n = len(responses.item_ids)
    try:
        (composite,) = composites([responses])
    except DesignError as error:
        notes = (*responses.notes, f"no interval: {error}")
        return Cell(responses=responses, kind=None, n=n, notes=notes)
    answered = composite.there
    notes = [*responses.notes, *composite.notes]
    logged, computed = responses.logged, composite.estimate
    is_whole = not responses.measure.n_cut
    if is_whole and logged is not None and not composite.undefined and not agree(computed, logged):
        notes.append(f"mismatch: the log gives value {logged:.6g}, its items {computed:.6g}")
    if not answered.all():
        notes.insert(0, f"{int((~answered).sum())} of {n} items have no answer and are left out")
    cell = Cell(
        responses=responses,
        kind=None if composite.undefined else composite.kind,
        composite=composite,
        n=int(answered.sum()),
        n_missing=int((~answered).sum()) + responses.measure.n_cut,
        clusters=None if responses.clusters is None else responses.clusters[answered],
        notes=tuple(notes),
    )
    if composite.metric not in ("precision", "recall") or composite.undefined:
        return cell
    # Proportions, of the items that are predicted positive or truly are.
    codes = np.zeros((0, 2)) if composite.codes is None else composite.codes
    given = codes[:, 1 if composite.metric == "precision" else 0] == 1
    right = (codes[given] == 1).all(axis=1)
    which = "predicted positive" if composite.metric == "precision" else "positive"
    return replace(
        cell,
        kind="binary",
        values=right.astype(np.float64),
        successes=float(right.sum()),
        n=int(given.sum()),
        bounds=(0.0, 1.0),
        clusters=None if cell.clusters is None else cell.clusters[given],
        notes=(*notes, f"of the {int(given.sum())} items that are {which}"),
    )


def common_value(values: Iterable[T]) -> T | None:
    """Return the value that all have; None where they differ."""
    distinct = set(values)
    return distinct.pop() if len(distinct) == 1 else None


def check_confidence_level(confidence_level: float) -> None:
    """Raise `DesignError` for a confidence level outside (0, 1)."""
    if not 0 < confidence_level < 1:
        of_100 = 50 <= confidence_level < 100 and confidence_level == int(confidence_level)
        hint = f"write {confidence_level / 100:g}" if of_100 else "write 0.95, or another share"
        msg = f"the confidence level {confidence_level:g} is not between 0 and 1: {hint}"
        raise DesignError(msg)


def left_out(n_missing: int, n: int) -> tuple[str, ...]:
    """Return a note where items have no score."""
    return (f"{n_missing} of {n} items have no score and are left out",) if n_missing else ()


def filled(cell: Cell, score: float) -> Cell:
    """The cell with a score for every item that has none."""
    means = cell.responses.item_means
    gone = np.isnan(means)
    counts = cell.kind == "binary" and score == (cell.bounds or UNIT)[1]
    return replace(
        cell,
        values=np.where(gone, score, means),
        clusters=None if cell.clusters is None else cell.responses.clusters,
        successes=cell.successes + counts * gone.sum(),
        n=len(means),
    )


def on_unit(cell: Cell) -> Cell:
    """Return a cell whose scores, two values on another scale, are 0 and 1."""
    if cell.kind != "binary" or cell.bounds is None or cell.bounds == UNIT:
        return cell
    return replace(cell, values=(cell.values == cell.bounds[1]) * 1.0, bounds=UNIT)


def task_and_metric(r: Responses) -> tuple[str, str]:
    """Task and metric, by which models are brought together.

    Harnesses that have no filters log "acc" for what lm-eval logs as "acc,none".
    """
    return r.task, r.metric.removesuffix(",none")


def by_task(responses: Iterable[Responses]) -> dict[tuple[str, str], list[Responses]]:
    """Group responses by task and metric, in their order."""
    return grouped(responses, task_and_metric)


def align(r: Responses, to: Responses) -> FloatArray:
    """Return the mean scores of the items of other responses, NaN where an item has none."""
    scores = np.full(len(to.item_ids), np.nan)
    if (shared := shared_items(r, to)) is not None:
        scores[shared[1]] = r.item_means[shared[0]]
    return scores


def cluster_names(clusters: NDArray[Any]) -> NDArray[np.str_]:
    """Return the clusters as text, shape (M,); an item without one is a cluster of its own."""
    given = clusters.astype(str)
    alone = np.char.add("\0", np.arange(len(given)).astype(str))
    return np.where(given == "", alone, given)


def cluster_sums(cell: Cell) -> tuple[FloatArray, FloatArray]:
    """Sums of the scores of each cluster, and how many items it has; both of shape (C,)."""
    if cell.clusters is None:
        return cell.values, np.ones(cell.n)
    from evalstats_plugin.stats.clustered import by_cluster

    names = cluster_names(cell.clusters)
    return by_cluster(cell.values, names), by_cluster(np.ones(len(names)), names)


def weighted_sums(cell: Cell) -> tuple[FloatArray, FloatArray]:
    """The same, or the means of clusters and ones where every cluster counts alike."""
    totals, sizes = cluster_sums(cell)
    return (totals, sizes) if cell.estimand == "items" else (totals / sizes, np.ones(len(sizes)))


def cluster_arrays(
    cells: Sequence[Cell],
    sums_of: Callable[[Cell], tuple[FloatArray, FloatArray]] = cluster_sums,
) -> tuple[FloatArray, FloatArray]:
    """Cluster sums of many cells, shape (cells, C), padded with clusters of size 0."""
    sums = [sums_of(cell) for cell in cells]
    totals, sizes = np.zeros((2, len(cells), max(len(total) for total, _ in sums)))
    for i, (total, size) in enumerate(sums):
        totals[i, : len(total)], sizes[i, : len(size)] = total, size
    return totals, sizes


class Known(NamedTuple):
    """What scores of one metric have shown: partial credit, and the bounds that were reached.

    A model may happen to get only zeros and ones of a metric with partial credit, or no score at a
    bound that others' failed answers show to be possible. `known` gathers this from all rows;
    `with_known` puts it into each, so that neighbours get the same method and the same assumptions.
    """

    partial: bool
    """Whether any is neither at the lower bound nor at the upper, and no mean of 0/1 epochs."""
    low: bool
    """Whether any is at the lower bound."""
    high: bool


Metrics: TypeAlias = dict[MetricKey, Known]


def metric_key(metric: str, bounds: tuple[float, float]) -> MetricKey:
    """Return what rows must have in common to know together."""
    return metric.removesuffix(",none"), bounds


def known(cells: Iterable[Cell]) -> Metrics:
    """Gather what the scores of each metric show."""
    return merged(
        {metric_key(c.responses.metric, c.bounds): _shown(c, c.bounds)}
        for c in cells
        if c.bounds is not None and c.composite is None and c.kind in ("binary", "bounded")
    )


def _shown(cell: Cell, bounds: tuple[float, float]) -> Known:
    if cell.kind == "binary":
        return Known(partial=False, low=cell.successes < cell.n, high=cell.successes > 0)
    rounding = SAME * (bounds[1] - bounds[0])
    low, high = cell.values <= bounds[0] + rounding, cell.values >= bounds[1] - rounding
    between = not (low | high).all() and not epochs_are_binary(cell.responses, bounds)
    return Known(partial=between, low=bool(low.any()), high=bool(high.any()))


def merged(parts: Iterable[Mapping[MetricKey, Known]]) -> Metrics:
    """Join what several groups of rows have shown."""
    together: Metrics = {}
    for part in parts:
        for key, shown in part.items():
            before = together.get(key, shown)
            together[key] = Known(*(a or b for a, b in zip(before, shown, strict=True)))
    return together


def with_known(cells: Sequence[Cell], metrics: Mapping[MetricKey, Known]) -> list[Cell]:
    """Put into each cell what is known of its metric.

    Zeros and ones of a metric with partial credit are bounded scores like their neighbours. Those
    in clusters keep their own methods, and so does a row that is known by its counts only.
    """
    settled = list(cells)
    for i, cell in enumerate(cells):
        shown = metrics.get(metric_key(cell.responses.metric, cell.bounds or UNIT))
        if shown is None or cell.composite is not None:
            continue
        alike = shown.partial and len(cell.values) > 0 and cell.clusters is None
        if cell.kind == "bounded" or (cell.kind == "binary" and alike):
            settled[i] = replace(cell, kind="bounded", attained=(shown.low, shown.high))
    return settled
