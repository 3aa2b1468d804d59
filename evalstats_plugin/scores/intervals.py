"""Intervals for scores: each model on each task and group, under each metric.

`intervals` makes a `Cell` of each `Responses`; `_Solver` chooses the method of each cell and runs
each method once, on all cells that it fits. Then come what clusters change, finite populations,
and the rows of groups of tasks (`group_rows`). 0/1 scores in a matrix need no cells: `tally` counts
them by columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evalstats_plugin.data.inputs import ResponsesLike, as_list, as_responses
from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.data.measure import Measure, Measures
from evalstats_plugin.data.methods import Kind, Method, check_name, choose, table_of
from evalstats_plugin.data.metrics import with_stock
from evalstats_plugin.data.responses import (
    IN_ARRAY,
    Group,
    Prediction,
    Responses,
    mean_of_tasks,
    task_shares,
)
from evalstats_plugin.data.results import finite, finite_values, grouped, records
from evalstats_plugin.data.scales import UNLIMITED, settled
from evalstats_plugin.data.store import ResponseStore, by_models
from evalstats_plugin.errors import DesignError, check_known, counted, few
from evalstats_plugin.scores.cells import (
    RATIOS,
    UNIT,
    Cell,
    Estimand,
    Known,
    Metrics,
    Missing,
    check_confidence_level,
    cluster_arrays,
    cluster_names,
    cluster_sums,
    filled,
    known,
    left_out,
    make_cell,
    merged,
    metric_key,
    on_unit,
    weighted_sums,
    with_known,
)
from evalstats_plugin.scores.methods import (
    AS_PRINTED,
    CLUSTER_FAMILIES,
    CLUSTERED,
    CLUSTERED_COMPOSITE_DEFAULTS,
    CLUSTERED_DEFAULTS,
    COMPOSITE_DEFAULTS,
    COMPOSITE_FAMILIES,
    DEFAULTS,
    INTERVALS,
)
from evalstats_plugin.scores.metrics import Composite
from evalstats_plugin.scores.rows import Intervals, ScoreInterval
from evalstats_plugin.stats.arrays import FloatArray, IntArray, Rng
from evalstats_plugin.stats.grid_posteriors import FEW_FREEDOM
from evalstats_plugin.stats.interval import Interval, imbens_manski_level, normal_quantile
from evalstats_plugin.stats.streams import stream
from evalstats_plugin.stats.survey import strata
from evalstats_plugin.stats.survey.finite_population import (
    predictive_equal_tailed,
    predictive_hpd,
    shrink,
)

N_RESAMPLES = 9999
"""Of bootstrap methods: with one more, a tail of .025 falls on a whole number of resamples."""

_SCORES = 200
"""True scores at which the coverage of an interval is computed."""

_TOO_LITTLE = 0.02
"""Coverage below the level of which a row tells."""

_TREND = 2.0
"""Standard errors from which scores are taken to go with the size of a cluster."""

NO_METHOD = "none"
"""Method of a row that has no interval."""

PREDICTIVE = "beta-predictive"
"""What `beta-hpd` and `beta` become for a finite population."""

ADAPTIVE = "adaptive"
"""Method of a row that an adaptive test predicts."""

_FOR_CLUSTERS = frozenset(method.name for method in CLUSTERED)

Limits = tuple[FloatArray, FloatArray]

ClustersAre = Literal["random", "fixed"]
"""Clusters are a sample of many such, or all that matter."""

GroupPlace = tuple[str, str, tuple[str, ...]]
"""Model, log, and names of the groups from the outermost to this one."""


def intervals(
    responses: ResponsesLike,
    *,
    confidence_level: float = 0.95,
    method: str | Method = "auto",
    prior: tuple[float, float] | None = None,
    measure: Measures = None,
    population: int | str | None = None,
    estimand: Estimand = "items",
    clusters: ClustersAre = "random",
    missing: Missing = "drop",
    rng: Rng = None,
) -> Intervals:
    """Give every score an interval: each model on each task and group, under each metric.

    Parameters
    ----------
    responses
        What `evalstats_plugin.read` gave, a matrix, a store (read some models at a time), or any
        `Responses`; or a DataFrame or path, which is read first.
    confidence_level
        Between 0 and 1.
    method
        A name from the table of methods. It is used wherever it fits the scores; where it does
        not (a binomial method on partial credit) the default is, and each row says what ran.
    prior
        (a, b) of the Beta prior, for methods that have one.
    measure
        What you know of the scores, such as ``Measure(metric="judge", scale=Scale(1, 10))``, or
        several of these. A scale that neither you nor the log nor the metric's name tells is the
        one that the scores show, and a note says so.
    population
        Size of the whole benchmark, where only a part was run: the interval is then for the
        score on all of it. ``"logged"`` takes the size from the log.
    estimand
        Of items in clusters, such as questions about one passage: ``"items"``, the mean in which
        every item counts alike, which harnesses print; ``"clusters"``, in which every cluster does.
    clusters
        ``"random"``: the interval is for new clusters like these; ``"fixed"``: for new items of
        these very clusters, as of the repositories that a claim is about. 0/1 scores alone.
    missing
        Items without a score. ``"drop"``: they are left out, and the row has limits for whatever
        they would have scored beside; ``"bounds"``: these are the interval; ``"zero"``: they count
        as the worst possible score, which makes it another question, of answering and being right.
    rng
        Generator or seed, for methods that resample.

    Raises
    ------
    DesignError
        For a confidence level outside (0, 1), or a population smaller than what was run.
    SelectionError
        For a method, estimand or rule for missing scores that does not exist.

    Notes
    -----
    Limits for whatever the missing items would have scored are Imbens and Manski's [IM04]_: the
    lower one with all of them at the lowest score, the upper one with all at the highest, each at
    a level between 2 x level - 1 and the level, such that the true score is inside often enough.
    """
    check_confidence_level(confidence_level)
    responses = as_responses(responses, measure)
    for what, name, names in (
        ("estimand", estimand, Estimand), ("kind of clusters", clusters, ClustersAre),
        ("rule for missing scores", missing, Missing),
    ):  # fmt: skip
        check_known(what, name, get_args(names))
    source, seed = stream(rng, "score intervals"), rng if isinstance(rng, int) else None
    solver = _Solver(confidence_level, method, prior, source, _Treated(estimand, clusters, missing))
    if isinstance(responses, ResponseStore):
        rows = _of_store(responses, solver, population)
        return Intervals(tuple(rows), responses.notes, seed)
    if isinstance(responses, ResponseMatrix):
        notes = responses.notes
        rows = _of_matrix(responses, solver, population, {})[0]
    else:
        listed, notes = as_list(responses)
        cells = _cells(listed)
        rows = _of_cells(cells, solver, population, known(cells))
    return Intervals(tuple(rows), (*notes, *_used_instead(solver.method, rows)), seed)


def _of_store(
    store: ResponseStore, solver: _Solver, population: int | str | None
) -> list[ScoreInterval]:
    """Return rows of a store, read some models at a time.

    Read again where a later part shows something of a metric with partial credit that an earlier
    one did not.
    """
    metrics: Metrics = {}
    while True:
        rows: list[ScoreInterval] = []
        used: list[Metrics] = []
        for block in by_models(store):
            block_rows, shown = _of_matrix(block, solver, population, metrics)
            metrics = merged([metrics, shown])
            rows += block_rows
            used.append(shown)
        if all(
            not metrics[key].partial or metrics[key] == shown[key]
            for shown in used
            for key in shown
        ):
            break
    place = {model: i for i, model in enumerate(store.models)}
    return sorted(rows, key=lambda row: place[row.model])


def _cells(responses: Iterable[Responses]) -> list[Cell]:
    values = [value for r in responses for value in r.values()]
    return [make_cell(value) for value in settled(values)]


def _of_cells(
    cells: Sequence[Cell], solver: _Solver, population: int | str | None, metrics: Metrics
) -> list[ScoreInterval]:
    cells = [_treated(cell, solver.treated) for cell in with_known(cells, metrics)]
    rows = [_row(c, *s, solver.level) for c, s in zip(cells, solver.solve(cells), strict=True)]
    rows = [_with_coverage(c, r, solver) for c, r in zip(cells, rows, strict=True)]
    rows = _beside_independent(cells, rows, solver)
    rows = _with_unseen(cells, _with_bounds(cells, rows, solver), solver.level)
    if population is not None:
        rows = [_of_population(c, r, population) for c, r in zip(cells, rows, strict=True)]
    return list(group_rows(cells, rows))


class _Treated(NamedTuple):
    """How clusters and items without a score are understood."""

    estimand: Estimand = "items"
    clusters: ClustersAre = "random"
    missing: Missing = "drop"


def _treated(cell: Cell, how: _Treated) -> Cell:
    if cell.clusters is not None:
        cell = replace(cell, estimand=how.estimand)
    if how.missing != "zero" or not _n_open(cell):
        return cell
    low, high = cell.bounds or (0.0, 0.0)
    worst = high if cell.responses.higher_is_better is False else low
    n = _n_open(cell)
    note = f"{n} of {cell.n + n} items have no score and count as {worst:g}"
    gone = left_out(n, cell.n + n)
    notes = (*(old for old in cell.notes if old not in gone), note)
    return replace(filled(cell, worst), notes=notes)


def _n_open(cell: Cell) -> int:
    """Items without a score whose score is known to lie between bounds."""
    if cell.kind not in ("binary", "bounded") or cell.bounds is None or not len(cell.values):
        return 0
    if cell.composite is not None:
        return 0
    return len(cell.responses.item_ids) - cell.n


def _with_unseen(
    cells: Sequence[Cell], rows: Sequence[ScoreInterval], level: float
) -> list[ScoreInterval]:
    """Add the limits of partial credit if one more item had the worst score, or the best."""
    from evalstats_plugin.stats.reach import one_more

    rows = list(rows)
    batches: dict[tuple[tuple[float, float], int], list[int]] = {}
    for i, cell in enumerate(cells):
        plain = cell.kind == "bounded" and cell.composite is None and cell.clusters is None
        if plain and cell.bounds is not None and len(cell.values):
            batches.setdefault((cell.bounds, cell.n.bit_length()), []).append(i)
    for (bounds, _), where in batches.items():
        scores = _padded([cells[i].values for i in where])
        limits = one_more(scores, bounds=bounds, confidence_level=level)
        for i, low, high in zip(where, limits.low.tolist(), limits.high.tolist(), strict=True):
            rows[i] = replace(rows[i], low_unseen=finite(low), high_unseen=finite(high))
    return rows


def _with_bounds(
    cells: Sequence[Cell], rows: Sequence[ScoreInterval], solver: _Solver
) -> list[ScoreInterval]:
    """Add the limits that hold whatever the missing items would have scored."""
    rows = list(rows)
    by_level: dict[float, list[tuple[int, Cell, Cell]]] = {}
    for i, cell in enumerate(cells):
        if cell.bounds is None or not _n_open(cell):
            continue
        ends = filled(cell, cell.bounds[0]), filled(cell, cell.bounds[1])
        span = cell.bounds[1] - cell.bounds[0]
        error = max(math.hypot(end.std_error or 0.0, span / 2 / end.n) for end in ends)
        level = open_level(ends[1].estimate - ends[0].estimate, error, solver.level)
        by_level.setdefault(float(level), []).append((i, *ends))
    for level, some in by_level.items():
        other = solver.at(level)
        lows = other.solve([least for _, least, _ in some])
        highs = other.solve([most for _, _, most in some])
        for (i, least, most), (_, low, _), (_, _, high) in zip(some, lows, highs, strict=True):
            worst = most if cells[i].responses.higher_is_better is False else least
            if solver.treated.missing == "drop":
                rows[i] = _of_all(rows[i], worst.estimate, worst.n)
            rows[i] = _with_open(rows[i], low, high, solver.treated.missing)
    return rows


def open_level(width: ArrayLike, error: ArrayLike, level: float) -> FloatArray:
    """Level of each end's interval where scores are missing, a little more than necessary.

    Rounded up, so that thousands of scores have few levels.
    """
    reached = imbens_manski_level(width, error, confidence_level=level)
    return level - np.floor((level - reached) * 1000 + 1e-9) / 1000


def _of_all(row: ScoreInterval, worst: float, n: int) -> ScoreInterval:
    """Say what the score is of all items, where it differs from that of those answered."""
    if row.estimate is None or row.low is None or row.high is None or row.low <= worst <= row.high:
        return row
    note = (
        f"of the {row.n_items} items with a score {row.estimate:.3f}; of all {n}, the others "
        f"counting as wrong, {worst:.3f}"
    )
    return replace(row, notes=(*row.notes, note))


def _with_open(row: ScoreInterval, low: float, high: float, missing: Missing) -> ScoreInterval:
    row = replace(row, missing_low=finite(low), missing_high=finite(high))
    if row.missing_low is None or row.missing_high is None:
        return row
    if missing == "bounds":
        note = "the interval holds whatever the items without a score would have had"
        return replace(
            row, low=row.missing_low, high=row.missing_high, method=f"{row.method}+bounds",
            notes=(*row.notes, note),
        )  # fmt: skip
    note = f"whatever their scores: {row.missing_low:.3f} to {row.missing_high:.3f}"
    return replace(row, notes=(*row.notes, note))


def _row(cell: Cell, method: str, low: float, high: float, level: float) -> ScoreInterval:
    r = cell.responses
    lower, upper = finite(low), finite(high)
    notes, population = cell.notes, "new items like these"
    if r.predicted is not None:
        population = f"all {counted(r.predicted.n_in_bank, 'item')} of the bank"
        lower, upper = predicted_limits(r.predicted, level)
        method = NO_METHOD if lower is None else ADAPTIVE
    elif cell.published_error is not None:
        method, half = published_limits(cell.published_error, cell.n, level)
        lower, upper = finite(cell.estimate - half), finite(cell.estimate + half)
    if cell.kind == "real" and lower == upper is not None:
        why = f"all {counted(cell.n, 'score')} are equal, on a scale that is not known"
        notes = (*notes, f"no interval: {why} (--bounds {r.metric}=LOW,HIGH gives it)")
        lower = upper = None
    elif cell.kind is not None and (lower is None or upper is None):
        notes = (*notes, _no_interval(method, cell.n))
    elif (
        lower is not None
        and upper is not None
        and cell.composite is None
        and method not in AS_PRINTED
    ):
        scale = r.measure.scale or UNLIMITED
        lower, upper = max(lower, scale.low), min(upper, scale.high)
    return ScoreInterval(
        model=r.model,
        task=r.task,
        metric=r.metric,
        n_items=cell.n,
        n_epochs=max(r.as_epochs.scores.shape[1], 1),
        n_missing=cell.n_missing,
        estimate=finite(cell.estimate),
        low=lower,
        high=upper,
        std_error=finite(cell.std_error),
        method=method,
        confidence_level=level,
        notes=notes,
        depth=len(r.groups),
        higher_is_better=r.higher_is_better,
        logged=finite(r.logged),
        logged_std_error=finite(r.logged_std_error),
        log=str(r.source.path),
        population=population,
        measure=r.measure,
    )


def published_limits(std_error: float, n: int, confidence_level: float) -> tuple[str, float]:
    """Method and half width of the interval of a mean whose standard error is all that is known."""
    from evalstats_plugin.stats.means import t_quantile

    if n > 1:
        return "t", float(std_error * t_quantile(n - 1, confidence_level=confidence_level))
    return "z", float(std_error * normal_quantile(confidence_level))


def predicted_limits(
    predicted: Prediction, confidence_level: float
) -> tuple[float | None, float | None]:
    """Limits of a predicted score: of another level than the log's, scaled as a normal's are."""
    middle, low, high = predicted.estimate, predicted.low, predicted.high
    if middle is None or low is None or high is None:
        return None, None
    if confidence_level == predicted.confidence_level:
        return low, high
    ratio = normal_quantile(confidence_level) / normal_quantile(predicted.confidence_level)
    return max(middle + ratio * (low - middle), 0.0), min(middle + ratio * (high - middle), 1.0)


def _with_coverage(cell: Cell, row: ScoreInterval, solver: _Solver) -> ScoreInterval:
    """Say so where epochs are combined to one 0 or 1 per item, and the items are too few.

    No interval of a count covers every score equally. Epochs do not help: how often an item was
    answered says nothing about its 0 or 1 unless one assumes how chances are distributed.
    """
    method = solver.table.get(row.method)
    if (
        cell.responses.unreduced is None
        or cell.kind != "binary"
        or method is None
        or method.family != "binary"
        or row.low is None
        or row.high is None
    ):
        return row
    low, high = solver.of_counts(method, np.arange(cell.n + 1), np.full(cell.n + 1, cell.n))
    from scipy import special

    zero, top = cell.bounds or UNIT
    ends = (row.low - zero) / (top - zero), (row.high - zero) / (top - zero)
    scores = np.linspace(*ends, _SCORES + 2)[1:-1, None]
    k = np.arange(cell.n + 1)
    ways = special.gammaln(cell.n + 1) - special.gammaln(k + 1) - special.gammaln(cell.n - k + 1)
    chance = np.exp(ways + special.xlogy(k, scores) + special.xlog1py(cell.n - k, -scores))
    covered = (chance * ((low <= scores) & (scores <= high))).sum(axis=1)
    if covered.min() >= solver.level - _TOO_LITTLE:
        return row
    note = (
        f"each item is a single 0 or 1, and {cell.n} items are few for it: over the scores in this "
        f"interval {method.name} covers {100 * covered.min():.0f} to {100 * covered.max():.0f} %"
    )
    return replace(row, notes=(*row.notes, note))


def _no_interval(method: str, n: int) -> str:
    return f"{method} gives no interval for {counted(n, 'such item')}"


def _used_instead(asked: str, rows: Sequence[ScoreInterval]) -> list[str]:
    """Return a note on methods used where the one asked for does not fit; groups have their own."""
    tasks = [] if asked == "auto" else [row.method for row in rows if row.kind == "task"]
    others = [method for method in tasks if method not in (asked, NO_METHOD)]
    if not others:
        return []
    names = ", ".join(dict.fromkeys(others))
    return [f"{asked} does not fit {len(others)} of {counted(len(tasks), 'score')}: {names} there"]


class _Solver:
    """Runs each method once on all the cells it fits, instead of once per cell."""

    def __init__(
        self,
        level: float,
        method: str | Method,
        prior: tuple[float, float] | None,
        rng: np.random.Generator,
        treated: _Treated = _Treated(),  # noqa: B008 - immutable
    ) -> None:
        extra = (method,) if isinstance(method, Method) else ()
        self.table = table_of((m for m in extra if m not in INTERVALS), INTERVALS)
        self.method = method.name if isinstance(method, Method) else method
        check_name(self.method, self.table)
        self.level, self.prior, self.rng, self.treated = level, prior, rng, treated

    def at(self, level: float) -> _Solver:
        """Return the same solver for another level."""
        method = self.table.get(self.method, "auto")
        return _Solver(level, method, self.prior, self.rng, self.treated)

    def solve(self, cells: Sequence[Cell]) -> list[tuple[str, float, float]]:
        """Return each cell's method and limits; `NO_METHOD` and NaN where there is none."""
        solved = [(NO_METHOD, math.nan, math.nan)] * len(cells)
        batches: dict[tuple[Any, ...], list[int]] = {}
        for i, cell in enumerate(cells):
            if cell.kind is None:
                continue
            method = self._choose(cell, cell.kind)
            if cell.composite is None and method.family != "binary" and not len(cell.values):
                # Known by its counts only.
                method = self.table[DEFAULTS[cell.kind][0]]
            # Cells of similar size share an array padded to the largest.
            size = 0 if method.family == "binary" else cell.n.bit_length()
            two_valued = cell.kind == "binary" and cell.bounds != UNIT
            key = (method.name, cell.bounds, size, cell.responses.aggregation, two_valued)
            batches.setdefault(key, []).append(i)
        for (name, bounds, _, aggregation, _), where in batches.items():
            some = [on_unit(cells[i]) for i in where]
            low, high = self._run(self.table[name], some, some[0].bounds)
            if bounds is not None and some[0].bounds != bounds:
                low, high = (bounds[0] + (bounds[1] - bounds[0]) * x for x in (low, high))
            if aggregation in RATIOS:
                value = np.vectorize(RATIOS[aggregation], otypes=[float])
                low, high = value(high), value(low)
            for i, a, b in zip(where, low.tolist(), high.tolist(), strict=True):
                solved[i] = (name, a, b)
        return solved

    def _choose(self, cell: Cell, kind: Kind) -> Method:
        if kind == "left-out" or (cell.composite is not None and kind != "binary"):
            of_clusters = cell.clusters is not None and kind in CLUSTERED_COMPOSITE_DEFAULTS
            defaults = CLUSTERED_COMPOSITE_DEFAULTS if of_clusters else COMPOSITE_DEFAULTS
            return choose(kind, self.method, self.table, defaults)
        if cell.clusters is not None:
            # A method for independent items holds their mean, and no mean of clusters.
            fits = self.method in _FOR_CLUSTERS or cell.estimand == "items" or kind == "ratio"
            name = self.method if fits else "auto"
            method = choose(kind, name, self.table, CLUSTERED_DEFAULTS)
            # By the sizes alone, not by scores: no method is selected by its result.
            few = method.family != "clustered-sized" or _freedom(cell) < FEW_FREEDOM
            if name != "auto" or few or self.treated.clusters == "fixed":
                return method
            return self.table[CLUSTERED_DEFAULTS["bounded"][0]]
        return self.for_independent(kind)

    def for_independent(self, kind: Kind) -> Method:
        """Return the method for the mean of independent items."""
        name = "auto" if self.method in _FOR_CLUSTERS else self.method
        return choose(kind, name, self.table, DEFAULTS)

    def of_counts(
        self, method: Method, right: NDArray[np.number[Any]], n: NDArray[np.number[Any]]
    ) -> Limits:
        """Limits for `right` of `n` items, both of shape (cells,)."""
        if self.prior is not None and method.prior is not None:
            method = replace(method, prior=self.prior)
        counts = right.astype(np.float64), n.astype(np.float64)
        return method.load()(*counts, confidence_level=self.level)

    def _run(
        self, method: Method, batch: Sequence[Cell], bounds: tuple[float, float] | None
    ) -> Limits:
        """Call a method as its family asks (`data.methods`)."""
        if method.family == "binary":
            counts = np.array([(c.successes, c.n) for c in batch], dtype=np.float64).T
            return self.of_counts(method, *counts)
        sampling = {"rng": self.rng, "n_resamples": N_RESAMPLES}
        if method.family in COMPOSITE_FAMILIES:
            return _of_composites(method, batch, self.level, sampling)
        function = partial(method.load(), confidence_level=self.level)
        if method.family in CLUSTER_FAMILIES:
            sized = method.family == "clustered-sized"
            more: dict[str, Any] = {"bounds": bounds} if "-bounded" in method.family else {}
            if sized:
                more = {"estimand": self.treated.estimand, "clusters": self.treated.clusters}
            return function(
                *cluster_arrays(batch, cluster_sums if sized else weighted_sums), **more
            )
        scores = _padded([c.values for c in batch])
        if method.family in ("bounded", "bounded-attained"):
            if method.family == "bounded-attained":
                function = partial(
                    function, attained=tuple(np.array([c.attained for c in batch]).T)
                )
            return function(scores, bounds=bounds)
        if method.family == "ratio":
            ones = [np.ones(c.n) if c.weights is None else c.weights for c in batch]
            return function(scores, _padded(ones))
        return function(scores, **(sampling if method.family == "resampling" else {}))


def _freedom(cell: Cell) -> float:
    """Degrees of freedom of the clustered error; 0 for one cluster."""
    from evalstats_plugin.stats.clustered import satterthwaite

    return float(np.nan_to_num(satterthwaite(weighted_sums(cell)[1])))


def _padded(rows: Sequence[FloatArray]) -> FloatArray:
    """Stack rows of different lengths, shape (cells, M), NaN where a row has ended."""
    lengths = np.array([len(row) for row in rows])
    padded = np.full((len(rows), int(lengths.max())), np.nan)
    padded[np.arange(padded.shape[1]) < lengths[:, None]] = np.concatenate(rows)
    return padded


def _of_composites(
    method: Method, batch: Sequence[Cell], level: float, sampling: dict[str, Any]
) -> Limits:
    """Run one method on cells whose metric is not a mean; `sampling` is for methods that draw."""
    function = partial(method.load(), confidence_level=level)
    composites = [c.composite for c in batch if c.composite is not None]
    if method.family == "f1":
        tables = np.stack([c.table for c in composites])
        right = tables[:, 1, 1]
        return function(right, right + tables[:, 0, 1] + tables[:, 1, 0])
    if method.family == "confusion":
        # Tables of one metric and size at once.
        sizes = grouped(
            range(len(composites)), lambda i: (composites[i].metric, len(composites[i].labels))
        )
        low, high = np.full((2, len(composites)), np.nan)
        for (metric, _), where in sizes.items():
            tables = np.stack([composites[i].table for i in where])
            low[where], high[where] = function(tables, metric=metric, **sampling)
        return low, high
    if method.family == "left-out":
        parts = [function(np.asarray(c.estimate), c.values) for c in batch]
    elif method.family == "auc":
        parts = [function(*c.ranked) for c in composites if c.ranked]
    else:
        more = sampling if method.name == "sums-percentile" else {}
        parts = [
            function(_units(c, cell.clusters), c.value, **more)
            for c, cell in zip(composites, batch, strict=True)
        ]
    low, high = np.array(parts, dtype=np.float64).reshape(-1, 2).T
    return low, high


def _units(composite: Composite, clusters: NDArray[Any] | None) -> FloatArray:
    """What each sampled unit, an item or a cluster of items, adds to the sums."""
    from evalstats_plugin.stats.clustered import by_cluster

    if clusters is None:
        return composite.statistics
    return by_cluster(composite.statistics, cluster_names(clusters), axis=0)


def _beside_independent(
    cells: Sequence[Cell], rows: Sequence[ScoreInterval], own: _Solver
) -> list[ScoreInterval]:
    """Where items come in clusters, add what the interval would be if they were independent."""
    rows = list(rows)
    where = [i for i, c in enumerate(cells) if c.clusters is not None and c.kind is not None]
    if not where:
        return rows
    solver = _Solver(own.level, "auto", own.prior, stream(0, "intervals without clusters"))
    naive = solver.solve([replace(cells[i], clusters=None) for i in where])
    for i, (_, low, high) in zip(where, naive, strict=True):
        cell, row = cells[i], rows[i]
        of_mean = cell.composite is None or cell.kind == "binary"
        if of_mean:
            n_clusters, allowed_for = len(cluster_sums(cell)[0]), row.method in _FOR_CLUSTERS
        else:
            n_clusters = len(np.unique(cluster_names(np.asarray(cell.clusters))))
            allowed_for = row.method.startswith("sums-")
        row = replace(row, n_clusters=n_clusters)
        if not allowed_for:
            note = f"{row.method} treats clustered items as independent: perhaps too short"
            rows[i] = replace(row, notes=(*row.notes, note))
            continue
        row = replace(row, naive_low=finite(low), naive_high=finite(high))
        row = _for_population(cell, row, own.treated) if of_mean else row
        note = (
            f"items in {counted(n_clusters, 'cluster')}, which the interval allows for; "
            "naive: as if they did not"
        )
        rows[i] = (
            _with_design_effect(cell, row) if of_mean else replace(row, notes=(*row.notes, note))
        )
    return rows


def _for_population(cell: Cell, row: ScoreInterval, how: _Treated) -> ScoreInterval:
    """Name what the interval is for, and say so where scores go with the size of a cluster."""
    from evalstats_plugin.stats.clustered import size_trend
    from evalstats_plugin.stats.grid_posteriors import size_slope

    fixed = how.clusters == "fixed" and row.method == CLUSTERED_DEFAULTS["binary"][0]
    population = "new items of these clusters" if fixed else "new clusters like these"
    notes = row.notes
    if how.clusters == "fixed" and not fixed:
        notes = (*notes, f"{row.method} is for new clusters: fixed ones need 0/1 scores")
    sized = row.method == CLUSTERED_DEFAULTS["binary"][0]
    trend = float((size_slope if sized else size_trend)(*cluster_sums(on_unit(cell))))
    if abs(trend) > _TREND:
        ways = [replace(cell, estimand=estimand).estimate for estimand in get_args(Estimand)]
        which = "higher" if trend > 0 else "lower"
        notes = (
            *notes,
            f"larger clusters score {which}: {ways[0]:.3f} if every item counts alike, "
            f"{ways[1]:.3f} if every cluster does",
        )
    return replace(row, population=population, estimand=cell.estimand, notes=notes)


def _with_design_effect(cell: Cell, row: ScoreInterval) -> ScoreInterval:
    """Add how much clusters change the variance of a mean, and how alike their items are."""
    from evalstats_plugin.stats.clustered import anova_icc, design_effect

    plain = replace(cell, clusters=None).std_error
    totals, sizes = cluster_sums(cell)
    squares, _ = cluster_sums(replace(cell, values=cell.values**2))
    note = (
        "items come in clusters, which the interval allows for; naive: as if they did not; deff: "
        "how many times larger clusters make the variance; ICC: how alike the items of one are"
        if len(totals) > 1
        else "all items are in one cluster: how clusters differ is unknown"
    )
    return replace(
        row,
        design_effect=finite(float(design_effect(cell.std_error or 0.0, plain or 0.0))),
        icc=finite(float(anova_icc(totals, squares, sizes))),
        notes=(*row.notes, note),
    )


def _of_population(cell: Cell, row: ScoreInterval, population: int | str) -> ScoreInterval:
    """Shrink an interval to what is uncertain about the items that were not run."""
    size = cell.responses.population if population == "logged" else population
    if size is None or row.low is None or row.high is None or cell.kind in (None, "ratio"):
        return row
    n, total = cell.n, int(size)
    if total < n:
        raise DesignError(
            f"{row.model} answered {n} items of {row.task}, more than the {total} of the whole "
            "benchmark; give a population of at least as many"
        )
    note = f"for all {counted(total, 'item')}, of which {n} were run; they must be a random part"
    if row.method in ("beta-hpd", "beta") and row.estimate is not None and cell.bounds == UNIT:
        hpd = row.method == "beta-hpd"
        predict = predictive_hpd if hpd else predictive_equal_tailed
        interval = predict(
            cell.successes, n, total, confidence_level=row.confidence_level, prior=(1.0, 1.0)
        )
        method = PREDICTIVE
    else:
        limits = Interval(np.asarray(row.low), np.asarray(row.high))
        interval = shrink(row.estimate or 0.0, limits, n, total)
        method = f"{row.method}+fpc"
    return replace(
        row,
        low=finite(float(interval.low)),
        high=finite(float(interval.high)),
        method=method,
        population=f"all {counted(total, 'item')}",
        notes=(*row.notes, note),
    )


def group_rows(cells: Sequence[Cell], rows: Sequence[ScoreInterval]) -> Iterator[ScoreInterval]:
    """Yield the rows of tasks, each group's own rows, one per metric, before its first task.

    A group has a row where the harness itself aggregates it, and all of its tasks were read.
    """
    groups: dict[tuple[GroupPlace, str], Group] = {}
    members: dict[GroupPlace, dict[str, list[tuple[Cell, ScoreInterval]]]] = {}
    for cell, row in zip(cells, rows, strict=True):
        for place, group in _groups_of(cell):
            groups.setdefault((place, row.metric), group)
            members.setdefault(place, {}).setdefault(row.metric, []).append((cell, row))
    for cell, row in zip(cells, rows, strict=True):
        for place, _ in _groups_of(cell):
            for metric, tasks in members.pop(place, {}).items():
                group = groups[place, metric]
                if group.logged is not None and len(tasks) == group.n_tasks:
                    yield _group_row(group, [c for c, _ in tasks], [r for _, r in tasks])
        yield row


def _groups_of(cell: Cell) -> Iterator[tuple[GroupPlace, Group]]:
    r = cell.responses
    names: tuple[str, ...] = ()
    for group in r.groups:
        names = (*names, group.name)
        yield (r.model, str(r.source.path), names), group


_OF_TASKS = (
    "low", "high", "std_error", "n_clusters", "missing_low", "missing_high", "naive_low",
    "naive_high", "design_effect", "icc",
)  # fmt: skip
"""Fields that a group does not have of its first task."""


def _group_row(group: Group, cells: Sequence[Cell], rows: Sequence[ScoreInterval]) -> ScoreInterval:
    """Combine the tasks: independent strata with fixed weights; the wider where these are open."""
    if group.weighting != "either":
        return _weighted_row(group, cells, rows)
    both = [
        _weighted_row(replace(group, weighting=weighting), cells, rows)
        for weighting in ("micro", "macro")
    ]
    wider = max(both, key=lambda row: (row.high or 0.0) - (row.low or 0.0))
    other = both[wider is both[0]]
    if other.low is None or other.high is None or wider.low is None:
        return wider
    kinds = ("micro", "macro") if wider is both[0] else ("macro", "micro")
    note = (
        f"the logged values do not tell whether every item or every task counts the same: the "
        f"wider interval is shown ({kinds[0]}); {kinds[1]}: {other.low:.3f} to {other.high:.3f}"
    )
    return replace(wider, notes=(*wider.notes, note))


def _weighted_row(
    group: Group, cells: Sequence[Cell], rows: Sequence[ScoreInterval]
) -> ScoreInterval:
    measure = rows[0].measure
    row = replace(
        rows[0],
        task=group.name,
        measure=None if measure is None else replace(measure, task=group.name, n_cut=0),
        kind="group",
        depth=group.depth,
        n_items=sum(c.n for c in cells),
        n_missing=sum(c.n_missing for c in cells),
        estimate=finite(group.logged),
        method=NO_METHOD,
        notes=(*group.notes, *_of_cut_tasks(cells)),
        logged=finite(group.logged),
        logged_std_error=finite(group.logged_std_error),
        **dict.fromkeys(_OF_TASKS),
    )
    if any(c.responses.predicted is not None for c in cells):
        return _predicted_group(row, group, cells, rows)
    if any(c.kind is None or c.kind == "ratio" for c in cells):
        return replace(row, notes=(*row.notes, "a task of this group has no mean"))
    # A task that was cut keeps the weight of all its items.
    sizes = [
        float(c.n + c.responses.measure.n_cut * (len(c.responses.item_ids) > 0)) for c in cells
    ]
    around = _from_group(group, cells)
    shares = task_shares(around, np.array(sizes))
    estimate = float(shares @ [c.estimate for c in cells])
    row = replace(row, estimate=estimate, std_error=_std_error(cells, shares))
    if any(r.low is None or r.high is None for r in rows):
        return replace(row, notes=(*row.notes, "a task of this group has no interval"))
    interval, method = _combine(cells, rows, shares)
    if any(r.missing_low is not None for r in rows):
        ends = [(r.low, r.high) if r.missing_low is None else (r.missing_low, r.missing_high)
                for r in rows]  # fmt: skip
        limits = strata.mover([c.estimate for c in cells], Interval(*np.array(ends).T), shares)
        low, high = float(limits.low), float(limits.high)
        row = _with_open(row, low, high, "drop")
    return replace(
        row,
        low=finite(float(interval.low)),
        high=finite(float(interval.high)),
        method=method,
        notes=(*row.notes, mean_of_tasks(around)),
    )


def _from_group(group: Group, cells: Sequence[Cell]) -> list[tuple[Group, ...]]:
    """Return the groups around each task from this one on."""
    return [(group, *cell.responses.groups[group.depth + 1 :]) for cell in cells]


def _predicted_group(
    row: ScoreInterval, group: Group, cells: Sequence[Cell], rows: Sequence[ScoreInterval]
) -> ScoreInterval:
    """Combine predicted scores: they share one ability, so their errors are simply added."""
    predictions = [c.responses.predicted for c in cells]
    row = replace(row, estimate=None, population="all items of the bank")
    if any(p is None for p in predictions) or any(
        None in (r.estimate, r.low, r.high) for r in rows
    ):
        return replace(
            row, notes=(*row.notes, "not every task of this group has a predicted score")
        )
    sizes = np.array([float(p.n_in_bank) if p else 0.0 for p in predictions])
    shares = task_shares(_from_group(group, cells), sizes)
    ends = np.array([[r.estimate, r.low, r.high] for r in rows], dtype=np.float64)
    estimate, low, high = (float(value) for value in shares @ ends)
    note = f"{group.weighting} mean of {counted(len(cells), 'predicted task')}"
    notes = (*row.notes, note)
    return replace(row, estimate=estimate, low=low, high=high, method=ADAPTIVE, notes=notes)


def _of_cut_tasks(cells: Sequence[Cell]) -> tuple[str, ...]:
    """Return a note on the tasks of a group of which the log holds only a part."""
    held = [(c.responses, len(c.responses.item_ids), c.responses.measure.n_cut) for c in cells]
    cut = [
        f"{r.task}: {n} of {counted(n + n_cut, 'item')}" if n_cut else f"{r.task}: altered"
        for r, n, n_cut in held
        if not r.is_whole
    ]
    return (f"not all that was scored: {few(cut)}",) if cut else ()


def _std_error(cells: Sequence[Cell], shares: FloatArray) -> float | None:
    """√Σ w² s²/n over the tasks; None for a task with one item or another metric than a mean.

    None too where no task's scores vary.
    """
    if any(c.n < 2 or c.composite is not None for c in cells):
        return None
    errors = np.array([c.std_error or 0.0 for c in cells])
    return finite(float(np.sqrt(shares**2 @ errors**2))) or None


def _combine(
    cells: Sequence[Cell], rows: Sequence[ScoreInterval], shares: FloatArray
) -> tuple[Interval, str]:
    """Interval for the weighted mean, and its method.

    From the scores where they have the same bounds and the default methods were used; otherwise the
    tasks' own intervals are combined.
    """
    estimates = np.array([c.estimate for c in cells])
    bounds = {c.bounds for c in cells}
    auto = all(
        c.composite is None and r.method == DEFAULTS[c.kind][0]
        for c, r in zip(cells, rows, strict=True)
        if c.kind
    )
    if auto and len(bounds) == 1 and None not in bounds:
        low, high = next(iter(bounds)) or (0.0, 1.0)
        width = high - low
        share = strata.beta_effective(
            (estimates - low) / width,
            _smoothed(cells, low, width),
            shares,
            confidence_level=rows[0].confidence_level,
        )
        return Interval(low + width * share.low, low + width * share.high), "beta-neff"
    lows, highs = (np.array([getattr(r, side) for r in rows]) for side in ("low", "high"))
    names = ", ".join(sorted({r.method for r in rows}))
    return strata.mover(estimates, Interval(lows, highs), shares), f"mover({names})"


def _smoothed(cells: Sequence[Cell], low: float, width: float) -> strata.Smoothed:
    parts = [
        strata.smoothed_binary(c.successes, c.n)
        if c.kind == "binary"
        else strata.smoothed_scores((c.values - low) / width)
        for c in cells
    ]
    means, variances = (np.array([float(p[i]) for p in parts]) for i in (0, 1))
    return strata.Smoothed(means, variances)


def _of_matrix(
    matrix: ResponseMatrix,
    solver: _Solver,
    population: int | str | None,
    metrics: Metrics,
) -> tuple[list[ScoreInterval], Metrics]:
    """Return rows of a matrix: tasks of 0/1 scores by their counts, the others cell by cell.

    `metrics` is what other rows have shown; what these show, too, is returned.
    """
    method = solver.for_independent("binary")
    by_columns = method.family == "binary" and population is None
    by_columns &= solver.treated.missing != "zero"
    tallied = tally(matrix) if by_columns else None
    if tallied is None or not tallied.counts.any():
        cells = _cells(matrix.to_responses())
        shown = _shown(metrics, known(cells))
        return _of_cells(cells, solver, population, shown), shown
    cells = _cells(_without(matrix, tallied))
    shown = _shown(metrics, merged([known(cells), tallied.known()]))
    # Zeros and ones of a metric that gives partial credit elsewhere are no counts.
    keys = [metric_key(metric, UNIT) for _, metric in tallied.tasks]
    alike = tallied.counts & [key in shown and shown[key].partial for key in keys]
    if alike.any():
        tallied = tallied._replace(counts=tallied.counts & ~alike)
        cells = _cells(_without(matrix, tallied))
    counted = tallied.of(tallied.counts)
    limits = solver.of_counts(method, counted.right.ravel(), counted.n.ravel())
    rows = _counted_rows(counted, limits, method, solver)
    if tallied.counts.all():
        return rows, shown
    others = _of_cells(cells, solver, population, shown)
    # Model by model, in the matrix's order of tasks.
    table = np.empty((len(matrix.models), len(tallied.tasks)), dtype=object)
    for where, made in ((tallied.counts, rows), (~tallied.counts, others)):
        table[:, where] = np.fromiter(made, dtype=object, count=len(made)).reshape(len(table), -1)
    return table.ravel().tolist(), shown


def _shown(elsewhere: Metrics, here: Metrics) -> Metrics:
    """Return what is known of the metrics that are here."""
    together = merged([elsewhere, here])
    return {key: together[key] for key in here}


def _without(matrix: ResponseMatrix, counted: Tally) -> Iterable[Responses]:
    """Return the responses to the tasks that are not known by counts alone."""
    if counted.counts.all():
        return ()
    done = set(counted.of(counted.counts).tasks)
    names = zip(matrix.tasks.tolist(), matrix.metrics.tolist(), strict=True)
    keep = np.array([(str(task), str(metric)) not in done for task, metric in names])
    return _columns(matrix, np.flatnonzero(keep)).to_responses()


class Tally(NamedTuple):
    """Answers of N models to T tasks, a task being one under one metric; in the matrix's order."""

    models: tuple[str, ...]
    measures: tuple[Measure, ...]
    right: IntArray
    """Shape (N, T), like the next two."""
    n: IntArray
    """Items that have a score."""
    n_missing: IntArray
    counts: NDArray[np.bool_]
    """Whether these counts are all there is to the task: shape (T,)."""

    @property
    def tasks(self) -> tuple[tuple[str, str], ...]:
        """Task and metric of each."""
        return tuple((measure.task, measure.metric) for measure in self.measures)

    def of(self, which: NDArray[np.bool_]) -> Tally:
        """Some of the tasks."""
        some = tuple(m for m, wanted in zip(self.measures, which, strict=True) if wanted)
        right, n, n_missing = (part[:, which] for part in (self.right, self.n, self.n_missing))
        return Tally(self.models, some, right, n, n_missing, self.counts[which])

    def known(self) -> Metrics:
        """What the tasks that are known by their counts alone show of their metrics."""
        low: NDArray[np.bool_] = np.any(self.right < self.n, axis=0)
        high: NDArray[np.bool_] = np.any(self.right > 0, axis=0)
        return merged(
            {metric_key(metric, UNIT): Known(partial=False, low=bool(low[t]), high=bool(high[t]))}
            for t, (_, metric) in enumerate(self.tasks)
            if self.counts[t]
        )


def tally(matrix: ResponseMatrix) -> Tally | None:
    """Count right answers; None where items come in clusters or were answered several times."""
    if matrix.clusters is not None or matrix.scores.shape[2] != 1 or not matrix.scores.size:
        return None
    matrix, starts = _by_task(matrix)
    names = zip(matrix.tasks[starts].tolist(), matrix.metrics[starts].tolist(), strict=True)
    measures = tuple(
        with_stock(matrix.measure_of(str(task), str(metric)), IN_ARRAY) for task, metric in names
    )
    scores = matrix.scores[:, :, 0]
    right, wrong = _count(scores == 1, starts), _count(scores == 0, starts)
    n, size = right + wrong, np.diff(starts, append=scores.shape[1])
    n_missing = np.broadcast_to(np.int64(0), n.shape)
    if (n < size).any():
        n_missing = _count(np.isnan(scores), starts)
    free = [m.aggregation == "mean" and (m.scale is None or m.bounds == UNIT) for m in measures]
    counts = ((n + n_missing == size) & (n > 0)).all(axis=0) & free
    return Tally(matrix.models, measures, right, n, n_missing, counts)


def _count(answers: NDArray[np.bool_], starts: IntArray) -> IntArray:
    """Count by task, shape (N, T) from (N, M)."""
    return np.add.reduceat(answers, starts, axis=1, dtype=np.int64)


def _by_task(matrix: ResponseMatrix) -> tuple[ResponseMatrix, IntArray]:
    """Bring items of a task next to each other; return where each task starts."""
    changes = [names[1:] != names[:-1] for names in (matrix.tasks, matrix.metrics)]
    starts = np.flatnonzero(np.r_[True, changes[0] | changes[1]])
    names = list(zip(matrix.tasks[starts].tolist(), matrix.metrics[starts].tolist(), strict=True))
    place = {name: i for i, name in enumerate(dict.fromkeys(names))}
    if len(place) == len(names):
        return matrix, starts
    of_run = np.array([place[name] for name in names])
    of_item = np.repeat(of_run, np.diff(starts, append=len(matrix.tasks)))
    size = np.bincount(of_item)
    return _columns(matrix, np.argsort(of_item, kind="stable")), np.cumsum(size) - size


def _columns(matrix: ResponseMatrix, at: IntArray) -> ResponseMatrix:
    """Return some items of a matrix."""

    def cut(values: NDArray[Any] | None) -> NDArray[Any] | None:
        return None if values is None else values[at]

    return replace(
        matrix,
        scores=matrix.scores[:, at],
        item_ids=matrix.item_ids[at],
        tasks=matrix.tasks[at],
        metrics=matrix.metrics[at],
        clusters=cut(matrix.clusters),
        item_hashes=cut(matrix.item_hashes),
        chance=cut(matrix.chance),
    )


def _counted_rows(
    tallied: Tally, limits: Limits, method: Method, solver: _Solver
) -> list[ScoreInterval]:
    """Return the rows, model by model, of limits of shape (N T,)."""
    n, missing = tallied.n.ravel(), tallied.n_missing.ravel()
    share = tallied.right.ravel() / n
    # Of one item, or of equal scores, there is no standard error.
    error = np.sqrt(share * (1 - share) / np.maximum(n - 1, 1))
    low, high = limits
    if method.name not in AS_PRINTED:
        low, high = (np.clip(limit, 0.0, 1.0) for limit in limits)
    notes: list[tuple[str, ...]] = [()] * len(n)
    none = ~(np.isfinite(low) & np.isfinite(high))
    for i in np.flatnonzero(none | (missing > 0)).tolist():
        items = int(n[i])
        notes[i] = left_out(int(missing[i]), items + int(missing[i]))
        if none[i]:
            notes[i] = (*notes[i], _no_interval(method.name, items))
    models, tasks = len(tallied.models), len(tallied.tasks)
    columns = {
        "model": np.repeat(np.array(tallied.models, dtype=object), tasks).tolist(),
        "task": [task for task, _ in tallied.tasks] * models,
        "metric": [metric for _, metric in tallied.tasks] * models,
        "n_items": n.tolist(),
        "n_missing": missing.tolist(),
        "estimate": share.tolist(),
        "low": finite_values(low),
        "high": finite_values(high),
        "std_error": finite_values(np.where((error > 0) & (n > 1), error, np.nan)),
        "notes": notes,
        "measure": [measure.or_on(UNIT) for measure in tallied.measures] * models,
        "higher_is_better": [m.higher_is_better for m in tallied.measures] * models,
    }
    same = {"method": method.name, "confidence_level": solver.level, "log": str(Path())}
    rows = records(ScoreInterval, columns, same)
    right = tallied.right.ravel()
    for i, low, high in zip(*_open_counts(tallied, method, solver), strict=True):
        if solver.treated.missing == "drop":
            size = int(n[i] + missing[i])
            wrong = right[i] + missing[i] * (rows[i].higher_is_better is False)
            rows[i] = _of_all(rows[i], float(wrong / size), size)
        rows[i] = _with_open(rows[i], low, high, solver.treated.missing)
    return rows


def _open_counts(
    tallied: Tally, method: Method, solver: _Solver
) -> tuple[list[int], list[float], list[float]]:
    """Rows with missing scores, and their limits whatever those would have been."""
    right, n, missing = (x.ravel() for x in (tallied.right, tallied.n, tallied.n_missing))
    where = np.flatnonzero(missing > 0)
    least, most, size = right[where], (right + missing)[where], (n + missing)[where]
    shares = least / size, most / size
    error = np.sqrt(np.maximum(*(p * (1 - p) / (size - 1) for p in shares)) + 0.25 / size**2)
    levels = open_level(missing[where] / size, error, solver.level)
    low, high = np.empty((2, len(where)))
    for level in np.unique(levels).tolist():
        same, other = levels == level, solver.at(level)
        low[same] = other.of_counts(method, least[same], size[same])[0]
        high[same] = other.of_counts(method, most[same], size[same])[1]
    return where.tolist(), low.tolist(), high.tolist()
