"""Intervals for scores: each model on each task and group, under each metric.

`intervals` makes a `Cell` of each `Responses`; `_Solver` chooses the method of each cell and runs
each method once, on all cells that it fits. Then come what clusters change, finite populations,
and the rows of groups of tasks (`scores.groups`). 0/1 scores in a matrix need no cells: they are
counted by columns (`Tally`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import special

from evalstats_plugin.data.inputs import ResponsesLike, as_list, as_responses
from evalstats_plugin.data.matrix import ResponseMatrix, submatrix
from evalstats_plugin.data.measure import Measure, Measures
from evalstats_plugin.data.methods import Kind, Method, check_name, choose, table_of
from evalstats_plugin.data.metrics import with_stock
from evalstats_plugin.data.responses import IN_ARRAY, Prediction, Responses
from evalstats_plugin.data.results import finite, finite_values, grouped, records
from evalstats_plugin.data.scales import settled
from evalstats_plugin.data.store import ResponseStore, by_models
from evalstats_plugin.errors import DesignError, check_known, counted
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
from evalstats_plugin.scores.groups import group_rows
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
from evalstats_plugin.scores.missing import n_open, of_all, open_level, with_open
from evalstats_plugin.scores.rows import ADAPTIVE, NO_METHOD, Intervals, ScoreInterval
from evalstats_plugin.stats.arrays import FloatArray, IntArray, Rng
from evalstats_plugin.stats.clustered import (
    anova_icc,
    by_cluster,
    design_effect,
    satterthwaite,
    size_trend,
)
from evalstats_plugin.stats.grid_posteriors import FEW_FREEDOM, size_slope
from evalstats_plugin.stats.interval import normal_quantile
from evalstats_plugin.stats.means import t_quantile
from evalstats_plugin.stats.reach import one_more
from evalstats_plugin.stats.streams import stream
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
"""Shortfall of coverage, below the level, that a row mentions."""

_TREND = 2.0
"""Standard errors from which scores are taken to go with the size of a cluster."""


PREDICTIVE = "beta-predictive"
"""What `beta-hpd` and `beta` become for a finite population."""

_LIMITS = ("low", "high", "naive_low", "naive_high", "low_unseen", "high_unseen")

_PREDICTED = {"beta-hpd": predictive_hpd, "beta": predictive_equal_tailed}

MOST_PREDICTED = 2**20
"""Items not run whose outcomes are summed; with more the correction has the same 6 digits."""


_FOR_CLUSTERS = frozenset(method.name for method in CLUSTERED)

Limits = tuple[FloatArray, FloatArray]

ClustersAre = Literal["random", "fixed"]
"""Clusters are a sample of many such, or all that matter."""


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
    notes = responses.notes
    if isinstance(responses, ResponseStore):
        rows = _of_store(responses, solver, population)
    elif isinstance(responses, ResponseMatrix):
        rows = _of_matrix(responses, solver, population, {})[0]
    else:
        listed, notes = as_list(responses)
        cells = _cells(listed)
        rows = _of_cells(cells, solver, population, known(cells))
    # Groups have notes of their own.
    used = [row.method for row in rows if row.kind == "task"]
    instead = [name for name in used if name not in (solver.method, NO_METHOD)]
    if instead and solver.method != "auto":
        n, names = counted(len(used), "score"), ", ".join(dict.fromkeys(instead))
        notes = (*notes, f"{solver.method} does not fit {len(instead)} of {n}: {names} there")
    return Intervals(tuple(rows), notes, seed)


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
    rows = _with_unseen(cells, rows, solver.level)
    sizes = [_population_of(cell, population) for cell in cells]
    rows = [_of_population(*each, solver) for each in zip(cells, rows, sizes, strict=True)]
    return list(group_rows(cells, _with_bounds(cells, rows, sizes, solver)))


class _Treated(NamedTuple):
    """How clusters and items without a score are understood."""

    estimand: Estimand = "items"
    clusters: ClustersAre = "random"
    missing: Missing = "drop"


def _treated(cell: Cell, how: _Treated) -> Cell:
    if cell.clusters is not None:
        cell = replace(cell, estimand=how.estimand)
    n = n_open(cell)
    if how.missing != "zero" or not n:
        return cell
    low, high = cell.bounds or (0.0, 0.0)
    worst = high if cell.responses.higher_is_better is False else low
    note = f"{n} of {cell.n + n} items have no score and count as {worst:g}"
    gone = left_out(n, cell.n + n)
    notes = (*(old for old in cell.notes if old not in gone), note)
    return replace(filled(cell, worst), notes=notes)


def _with_unseen(
    cells: Sequence[Cell], rows: Sequence[ScoreInterval], level: float
) -> list[ScoreInterval]:
    """Add the limits of partial credit if one more item had the worst score, or the best."""
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
    cells: Sequence[Cell],
    rows: Sequence[ScoreInterval],
    sizes: Sequence[int | None],
    solver: _Solver,
) -> list[ScoreInterval]:
    """Add the limits that hold whatever the missing items would have scored."""
    rows = list(rows)
    by_level: dict[float, list[tuple[int, Cell, Cell]]] = {}
    for i, cell in enumerate(cells):
        if cell.bounds is None or not n_open(cell):
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
        for (i, least, most), (_, below, _), (_, _, above) in zip(some, lows, highs, strict=True):
            (low,), (high,) = (
                _shrunk(end.estimate, [limit], end.n, sizes[i])
                for end, limit in ((least, below), (most, above))
            )
            worst = most if cells[i].responses.higher_is_better is False else least
            if solver.treated.missing == "drop":
                rows[i] = of_all(rows[i], worst.estimate, worst.n)
            rows[i] = with_open(rows[i], low, high, solver.treated.missing)
    return rows


def _row(cell: Cell, method: str, low: float, high: float, level: float) -> ScoreInterval:
    r = cell.responses
    lower, upper = finite(low), finite(high)
    notes, population = cell.notes, "new items like these"
    if r.predicted is not None:
        population = f"all {counted(r.predicted.n_in_bank, 'item')} of the bank"
        lower, upper = predicted_limits(r.predicted, level)
        method = NO_METHOD if lower is None else ADAPTIVE
    elif cell.published_error is not None:
        method, quantile = "z", float(normal_quantile(level))
        if cell.n > 1:
            method, quantile = "t", float(t_quantile(cell.n - 1, confidence_level=level))
        half = cell.published_error * quantile
        lower, upper = finite(cell.estimate - half), finite(cell.estimate + half)
    if cell.kind == "real" and lower == upper is not None:
        why = f"all {counted(cell.n, 'score')} are equal, on a scale that is not known"
        notes = (*notes, f"no interval: {why} (--bounds {r.metric}=LOW,HIGH gives it)")
        lower = upper = None
    elif cell.kind is not None and (lower is None or upper is None):
        notes = (*notes, _no_interval(method, cell.n))
    elif lower is not None and upper is not None and method not in AS_PRINTED:
        lower, upper = cell.scale.clip(lower, upper)
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
    if cell.responses.unreduced is None or cell.kind != "binary" or row.low is None:
        return row
    method = solver.table[row.method]
    if method.family != "binary":
        return row
    k = np.arange(cell.n + 1)
    low, high = solver.of_counts(method, k, np.full(cell.n + 1, cell.n))
    first, last = np.clip([limit[int(cell.successes)] for limit in (low, high)], 0.0, 1.0)
    scores = np.linspace(first, last, _SCORES + 2)[1:-1, None]
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
                # Of one item there are no limits.
                with np.errstate(invalid="ignore"):
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
            fits = self.method in _FOR_CLUSTERS or cell.estimand == "items"
            name = self.method if fits else "auto"
            method = choose(kind, name, self.table, CLUSTERED_DEFAULTS)
            # By the sizes alone, not by scores: no method is selected by its result.
            if name == "auto" and kind == "binary" and self.treated.clusters == "random":
                freedom = satterthwaite(weighted_sums(cell)[1])  # NaN of one cluster
                if freedom >= FEW_FREEDOM:
                    return self.table[CLUSTERED_DEFAULTS["bounded"][0]]
            return method
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
        if method.family == "bounded-attained":
            attained = tuple(np.array([c.attained for c in batch]).T)
            function = partial(function, attained=attained)
        if method.family in ("bounded", "bounded-attained"):
            return function(scores, bounds=bounds)
        if method.family == "ratio":
            ones = [np.ones(c.n) if c.weights is None else c.weights for c in batch]
            return function(scores, _padded(ones))
        return function(scores, **(sampling if method.family == "resampling" else {}))


def _padded(rows: Sequence[FloatArray]) -> FloatArray:
    """Stack rows of different lengths, shape (cells, M), NaN where a row has ended."""
    lengths = np.array([len(row) for row in rows])
    padded = np.full((len(rows), int(lengths.max())), np.nan)
    padded[np.arange(padded.shape[1]) < lengths[:, None]] = np.concatenate(rows)
    return padded


def _of_composites(
    method: Method, batch: Sequence[Cell], level: float, sampling: Mapping[str, object]
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
        parts = [function(*c.ranked) for c in composites if c.ranked is not None]
    else:
        more = sampling if method.name == "sums-percentile" else {}
        parts = []
        for c, cell in zip(composites, batch, strict=True):
            # What each sampled unit, an item or a cluster of items, adds to the sums.
            units = c.statistics
            if cell.clusters is not None:
                units = by_cluster(units, cluster_names(cell.clusters), axis=0)
            parts.append(function(units, c.value, **more))
    low, high = np.array(parts, dtype=np.float64).reshape(-1, 2).T
    return low, high


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
        n_clusters = len(np.unique(cluster_names(np.asarray(cell.clusters))))
        row = replace(row, n_clusters=n_clusters)
        if row.method not in _FOR_CLUSTERS and not row.method.startswith("sums-"):
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
    sized = row.method == CLUSTERED_DEFAULTS["binary"][0]
    fixed = how.clusters == "fixed" and sized
    population = "new items of these clusters" if fixed else "new clusters like these"
    notes = row.notes
    if how.clusters == "fixed" and not fixed:
        notes = (*notes, f"{row.method} is for new clusters: fixed ones need 0/1 scores")
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


def _population_of(cell: Cell, population: int | str | None) -> int | None:
    """Return the size of the benchmark that the score is of; None for endless items."""
    size = cell.responses.population if population == "logged" else population
    if size is None or cell.kind in (None, "ratio"):
        return None
    total, n = int(size), _n_run(cell) + n_open(cell)
    if total < n:
        r = cell.responses
        raise DesignError(
            f"{r.model} answered {n} items of {r.task}, more than the {total} of the whole "
            "benchmark; give a population of at least as many"
        )
    return total


def _n_run(cell: Cell) -> int:
    # A precision is of some of the items that were run.
    return cell.n if cell.composite is None else int(cell.composite.there.sum())


def _of_population(
    cell: Cell, row: ScoreInterval, total: int | None, solver: _Solver
) -> ScoreInterval:
    """Shrink an interval to what is uncertain about the items that were not run."""
    if total is None or row.estimate is None or row.low is None or row.high is None:
        return row
    n = _n_run(cell)
    names = [name for name in _LIMITS if getattr(row, name) is not None]
    shrunk = _shrunk(row.estimate, [getattr(row, name) for name in names], n, total)
    limits: dict[str, Any] = dict(zip(names, shrunk, strict=True))
    method = f"{row.method}+fpc"
    if solver.treated.missing == "bounds" and (more := n_open(cell)):
        n += more
    elif row.method in _PREDICTED and cell.composite is None and total - n <= MOST_PREDICTED:
        prior, level = solver.prior or (1.0, 1.0), row.confidence_level
        predict, (least, most) = _PREDICTED[row.method], cell.bounds or UNIT
        shares = predict(cell.successes, n, total, confidence_level=level, prior=prior)
        limits["low"], limits["high"] = (float(least + (most - least) * s) for s in shares)
        method = PREDICTIVE
    size = f"all {counted(total, 'item')}"
    return replace(
        row, **limits, method=method, population=size,
        notes=(*row.notes, f"for {size}; {n} of them were run and must be a random part"),
    )  # fmt: skip


def _shrunk(estimate: float, limits: Sequence[float], n: int, total: int | None) -> list[float]:
    """Return limits for so many items in all, from those for endless ones."""
    return list(limits) if total is None else shrink(estimate, limits, n, total).tolist()


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
    return submatrix(matrix, slice(None), np.flatnonzero(keep)).to_responses()


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
            rows[i] = of_all(rows[i], float(wrong / size), size)
        rows[i] = with_open(rows[i], low, high, solver.treated.missing)
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
    changes = [names[1:] != names[:-1] for names in (matrix.tasks, matrix.metrics)]
    starts = np.flatnonzero(np.r_[True, changes[0] | changes[1]])
    names = list(zip(matrix.tasks[starts].tolist(), matrix.metrics[starts].tolist(), strict=True))
    place = {name: i for i, name in enumerate(dict.fromkeys(names))}
    if len(place) < len(names):
        # Items of a task are brought next to each other.
        of_run = np.array([place[name] for name in names])
        of_item = np.repeat(of_run, np.diff(starts, append=len(matrix.tasks)))
        matrix = submatrix(matrix, slice(None), np.argsort(of_item, kind="stable"))
        size = np.bincount(of_item)
        starts = np.cumsum(size) - size
    measure_of = matrix.measure_of
    measures = tuple(
        with_stock(measure_of[str(task), str(metric)], IN_ARRAY) for task, metric in place
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
