"""How sure are we of each score?"""
# PART right_or_wrong - Right and wrong answers of a matrix, counted by columns instead of taken apart cell by cell.
# PART population - From "how good is the model at such items" to "what would it score on the whole benchmark".
# PART composite_intervals - Intervals of metrics that are not means.

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.data import methods
from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.data.methods import Method, check_name
from evalstats_plugin.data.responses import Responses
from evalstats_plugin.data.results import finite, records
from evalstats_plugin.data.runs import ResponseSet
from evalstats_plugin.data.store import ResponseStore, by_models
from evalstats_plugin.errors import DesignError
from evalstats_plugin.scores import cells as scores_cells
from evalstats_plugin.scores.cells import (
    RATIOS,
    Bounds,
    Cell,
    known_bounds,
    left_out,
    make_cell,
    without_limits,
)
from evalstats_plugin.scores.groups import group_rows
from evalstats_plugin.scores.methods import (
    CLUSTERED,
    CLUSTERED_COMPOSITE_DEFAULTS,
    CLUSTERED_DEFAULTS,
    COMPOSITE_DEFAULTS,
    DEFAULTS,
    INTERVALS,
)
from evalstats_plugin.scores.metrics import Composite
from evalstats_plugin.scores.rows import Intervals, ScoreInterval
from evalstats_plugin.stats import survey
from evalstats_plugin.stats.arrays import FloatArray, IntArray, Rng
from evalstats_plugin.stats.interval import Interval

N_RESAMPLES = 9999
"""Of bootstrap methods: with one more, a tail of .025 falls on a whole number of resamples."""


NO_METHOD = "none"
"""Method of a row that has no interval."""


_FOR_CLUSTERS = frozenset(method.name for method in CLUSTERED)


Limits = tuple[NDArray[np.float64], NDArray[np.float64]]


PREDICTIVE = "beta-predictive"
"""What `beta-hpd` and `beta` become for a finite population."""


COMPOSITE_FAMILIES = ("f1", "confusion", "auc", "sums")
"""Families of methods for what is not a mean.

``f1`` is ``f(true_positives, n, *, confidence_level)``, arrays of one length; ``confusion``
``f(tables, *, metric, confidence_level, rng, n_resamples)``, tables (cells, K, K); ``auc``
``f(positive, scores, *, confidence_level)``; ``sums`` ``f(statistics, value, *,
confidence_level)``, statistics (units, S).
"""


def intervals(
    responses: ResponseSet | ResponseMatrix | ResponseStore | Iterable[Responses],
    *,
    confidence_level: float = 0.95,
    method: str | Method = "auto",
    prior: tuple[float, float] | None = None,
    bounds: Bounds | None = None,
    population: int | str | None = None,
    rng: Rng = None,
) -> Intervals:
    """Give every score an interval: each model on each task and group, under each metric.

    Parameters
    ----------
    responses
        What `evalstats_plugin.read` gave, a matrix, a store (read some models at a time), or any
        `Responses`.
    confidence_level
        Between 0 and 1.
    method
        A name from the table of methods. It is used wherever it fits the scores; where it does
        not (a binomial method on partial credit) the default is, and each row says what ran.
    prior
        (a, b) of the Beta prior, for methods that have one.
    bounds
        Least and greatest possible score by metric. Without it, scores that all lie in [0, 1]
        are taken to be bounded there (and the row says so), others to be unbounded.
    population
        Size of the whole benchmark, where only a part was run: the interval is then for the
        score on all of it. ``"logged"`` takes the size from the log.
    rng
        Generator or seed, for methods that resample.

    Raises
    ------
    DesignError
        For a confidence level outside (0, 1), or a population smaller than what was run.
    SelectionError
        For a method that does not exist.
    """
    if not 0 < confidence_level < 1:
        msg = f"confidence level {confidence_level} found, expected a number between 0 and 1"
        raise DesignError(msg)
    source, seed = np.random.default_rng(rng), rng if isinstance(rng, int) else None
    if isinstance(responses, ResponseStore):
        again = partial(
            intervals, confidence_level=confidence_level, method=method, prior=prior, bounds=bounds,
            population=population, rng=source,
        )  # fmt: skip
        return replace(_of_store(responses, again), seed=seed)
    solver = _Solver(confidence_level, method, prior, source)
    if isinstance(responses, ResponseMatrix):
        rows = _of_matrix(responses, solver, bounds or {}, population)
    else:
        rows = _of_cells(responses, solver, bounds or {}, population)
    notes = responses.notes if isinstance(responses, (ResponseSet, ResponseMatrix)) else ()
    return Intervals(tuple(rows), (*notes, *_taken_instead(solver.method, rows)), seed)


def _of_matrix(
    matrix: ResponseMatrix, solver: _Solver, bounds: Bounds, population: int | str | None
) -> list[ScoreInterval]:
    """Return rows of a matrix, by columns where answers are right or wrong."""
    method = solver.choose("binary")
    by_columns = method.family == "binary" and population is None
    found = tally(matrix, bounds) if by_columns else None
    if found is None or not found.counts.any():
        return _of_cells(matrix.to_responses(), solver, bounds, population)
    counted = found.of(found.counts)
    limits = solver.of_counts(method, counted.right.ravel(), counted.n.ravel())
    rows = interval_rows(counted, limits, method.name, solver.confidence_level)
    if found.counts.all():
        return rows
    rest = without(matrix, counted).to_responses()
    others = _of_cells(rest, solver, bounds, population)
    return interleaved(found.counts, rows, others)


def _of_cells(
    responses: Iterable[Responses], solver: _Solver, bounds: Bounds, population: int | str | None
) -> list[ScoreInterval]:
    cells = [make_cell(r, bounds) for r in responses]
    limits = solver.solve(cells)
    every = zip(cells, limits, solver.names, strict=True)
    rows = [_row(*each, solver.confidence_level) for each in every]
    rows = _clustered(cells, rows, solver.prior)
    if population is not None:
        rows = for_whole_benchmark(cells, rows, population)
    return list(group_rows(cells, rows))


def _taken_instead(asked: str, rows: Sequence[ScoreInterval]) -> list[str]:
    """Say which methods ran where the one asked for does not fit; groups have their own."""
    tasks = [] if asked == "auto" else [row.method for row in rows if row.kind == "task"]
    others = [method for method in tasks if method not in (asked, NO_METHOD)]
    if not others:
        return []
    names = ", ".join(dict.fromkeys(others))
    return [f"{asked} does not fit {len(others)} of {len(tasks)} scores: {names} there"]


def _of_store(store: ResponseStore, of: Callable[[ResponseMatrix], Intervals]) -> Intervals:
    place = {model: i for i, model in enumerate(store.models)}
    rows = [row for block in by_models(store) for row in of(block)]
    return Intervals(tuple(sorted(rows, key=lambda row: place[row.model])), store.notes)


def _clustered(
    cells: Sequence[Cell], rows: Sequence[ScoreInterval], prior: tuple[float, float] | None
) -> list[ScoreInterval]:
    """Set what clusters do to an interval side by side with what it would be without them."""
    rows = list(rows)
    where = [i for i, c in enumerate(cells) if c.clusters is not None and c.kind is not None]
    if not where:
        return rows
    level = rows[where[0]].confidence_level
    solver = _Solver(level, "auto", prior, np.random.default_rng(0))
    naive = solver.solve([replace(cells[i], clusters=None) for i in where])
    for i, limits in zip(where, naive, strict=True):
        of_mean = cells[i].composite is None or cells[i].kind == "binary"
        beside = scores_cells.side_by_side if of_mean else beside_clusters
        rows[i] = beside(cells[i], rows[i], limits)
    return rows


class _Solver:
    """Runs each method once on all the cells it fits, instead of once per cell."""

    def __init__(
        self,
        confidence_level: float,
        method: str | Method,
        prior: tuple[float, float] | None,
        rng: np.random.Generator,
    ) -> None:
        extra = (method,) if isinstance(method, Method) else ()
        self.table = methods.table_of((m for m in extra if m not in INTERVALS), INTERVALS)
        self.method = method.name if isinstance(method, Method) else method
        check_name(self.method, self.table)
        self.confidence_level = confidence_level
        self.prior = prior
        self.rng = rng
        self.names: list[str] = []

    def solve(self, cells: Sequence[Cell]) -> list[tuple[float, float]]:
        limits = [(math.nan, math.nan)] * len(cells)
        self.names = [NO_METHOD] * len(cells)
        batches: dict[tuple[Any, ...], list[int]] = {}
        for i, cell in enumerate(cells):
            if cell.kind is None:
                continue
            chosen = self._choose(cell, cell.kind)
            if cell.composite is None and chosen.family != "binary" and not len(cell.values):
                # Known by its counts only.
                chosen = self.table[DEFAULTS[cell.kind][0]]
            self.names[i] = chosen.name
            # Cells of similar size share an array padded to the largest.
            size = 0 if chosen.family == "binary" else cell.n.bit_length()
            key = (chosen.name, cell.bounds, size, cell.responses.aggregation)
            batches.setdefault(key, []).append(i)
        for (name, bounds, _, aggregation), where in batches.items():
            batch = [cells[i] for i in where]
            low, high = self._run(self.table[name], batch, bounds)
            if aggregation in RATIOS:
                value = np.vectorize(RATIOS[aggregation], otypes=[float])
                low, high = value(high), value(low)
            for i, a, b in zip(where, low.tolist(), high.tolist(), strict=True):
                limits[i] = (a, b)
        return limits

    def _choose(self, cell: Cell, kind: methods.Kind) -> Method:
        if cell.composite is not None and kind != "binary":
            of_clusters = cell.clusters is not None and kind in CLUSTERED_COMPOSITE_DEFAULTS
            defaults = CLUSTERED_COMPOSITE_DEFAULTS if of_clusters else COMPOSITE_DEFAULTS
            return methods.choose(kind, self.method, self.table, defaults)
        if cell.clusters is not None:
            return methods.choose(kind, self.method, self.table, CLUSTERED_DEFAULTS)
        return self.choose(kind)

    def choose(self, kind: methods.Kind) -> Method:
        """Return the method for the mean of independent items."""
        for_clusters = self.method in _FOR_CLUSTERS
        return methods.choose(kind, "auto" if for_clusters else self.method, self.table, DEFAULTS)

    def of_counts(
        self, method: Method, right: NDArray[np.number[Any]], n: NDArray[np.number[Any]]
    ) -> Limits:
        """Limits of how many of n items are right, shape (cells,)."""
        if self.prior is not None and "prior" in method.options:
            method = replace(method, options={**method.options, "prior": self.prior})
        counts = right.astype(np.float64), n.astype(np.float64)
        return method.load()(*counts, confidence_level=self.confidence_level)

    def _run(
        self, method: Method, batch: Sequence[Cell], bounds: tuple[float, float] | None
    ) -> Limits:
        if method.family == "binary":
            counts = np.array([(c.successes, c.n) for c in batch], dtype=np.float64).T
            return self.of_counts(method, *counts)
        level = self.confidence_level
        sampling = {"rng": self.rng, "n_resamples": N_RESAMPLES}
        if method.family in COMPOSITE_FAMILIES:
            return composite_limits(method, batch, level, sampling)
        function = method.load()
        if method.family in scores_cells.CLUSTER_FAMILIES:
            sums = scores_cells.cluster_arrays(batch)
            more = {"bounds": bounds} if method.family == "clustered-bounded" else {}
            if method.family == "clustered-resampling":
                more = {"n_resamples": N_RESAMPLES, "rng": self.rng}
            return function(*sums, confidence_level=level, **more)
        scores = _padded([c.values for c in batch])
        if method.family == "bounded":
            return function(scores, bounds=bounds, confidence_level=level)
        if method.family == "ratio":
            ones = [np.ones(c.n) if c.weights is None else c.weights for c in batch]
            return function(scores, _padded(ones), confidence_level=level)
        more = sampling if method.family == "resampling" else {}
        return function(scores, confidence_level=level, **more)


def _padded(rows: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Stack rows of different lengths, shape (cells, M), NaN where a row has ended."""
    lengths = np.array([len(row) for row in rows])
    padded = np.full((len(rows), int(lengths.max())), np.nan)
    padded[np.arange(padded.shape[1]) < lengths[:, None]] = np.concatenate(rows)
    return padded


def _row(
    cell: Cell, limit: tuple[float, float], method: str, confidence_level: float
) -> ScoreInterval:
    r = cell.responses
    low, high = (finite(x) for x in limit)
    notes = cell.notes
    if cell.kind is not None and (low is None or high is None):
        notes = (*notes, without_limits(method, cell.n))
    return ScoreInterval(
        model=r.model,
        task=r.task,
        metric=r.metric,
        n_items=cell.n,
        n_epochs=max(r.scores.shape[1], 1),
        n_missing=cell.n_missing,
        estimate=finite(cell.estimate),
        low=low,
        high=high,
        std_error=finite(cell.std_error),
        method=method,
        confidence_level=confidence_level,
        notes=notes,
        depth=len(r.groups),
        higher_is_better=r.higher_is_better,
        logged=finite(r.logged),
        logged_std_error=finite(r.logged_std_error),
        log=str(r.source.path),
    )


class Tally(NamedTuple):
    """Answers of N models to T tasks, a task being one under one metric; in the matrix's order."""

    models: tuple[str, ...]
    tasks: tuple[tuple[str, str], ...]
    """Task and metric."""
    right: IntArray
    """Shape (N, T), like the next two."""
    n: IntArray
    """Items that have a score."""
    n_missing: IntArray
    counts: NDArray[np.bool_]
    """Whether these counts are all there is to the task: shape (T,)."""

    def of(self, which: NDArray[np.bool_]) -> Tally:
        """Some of the tasks."""
        names = tuple(name for name, wanted in zip(self.tasks, which, strict=True) if wanted)
        right, n, n_missing = (part[:, which] for part in (self.right, self.n, self.n_missing))
        return Tally(self.models, names, right, n, n_missing, self.counts[which])


def tally(matrix: ResponseMatrix, bounds: Bounds) -> Tally | None:
    """Count; None where items come in clusters or were answered several times."""
    if matrix.clusters is not None or matrix.scores.shape[2] != 1 or not matrix.scores.size:
        return None
    matrix, starts = _side_by_side(matrix)
    names = zip(matrix.tasks[starts].tolist(), matrix.metrics[starts].tolist(), strict=True)
    tasks = tuple((str(task), str(metric)) for task, metric in names)
    scores = matrix.scores[:, :, 0]
    one = scores == 1
    right, wrong = _summed(one, starts), _summed(scores == 0, starts)
    n, size = right + wrong, np.diff(starts, append=scores.shape[1])
    n_missing = np.broadcast_to(np.int64(0), n.shape)
    if (n < size).any():
        n_missing = _summed(np.isnan(scores), starts)
    free = [known_bounds(bounds, metric) in (None, (0.0, 1.0)) for _, metric in tasks]
    counts = ((n + n_missing == size) & (n > 0)).all(axis=0) & free
    return Tally(matrix.models, tasks, right, n, n_missing, counts)


def without(matrix: ResponseMatrix, done: Tally) -> ResponseMatrix:
    """Return the matrix without the tasks of a tally."""
    gone = set(done.tasks)
    names = zip(matrix.tasks.tolist(), matrix.metrics.tolist(), strict=True)
    keep = np.array([(str(task), str(metric)) not in gone for task, metric in names])
    return _columns(matrix, np.flatnonzero(keep))


def interval_rows(
    found: Tally,
    limits: tuple[NDArray[np.float64], NDArray[np.float64]],
    method: str,
    confidence_level: float,
) -> list[ScoreInterval]:
    """Return the rows, model by model, of limits of shape (N T,)."""
    n, missing = found.n.ravel(), found.n_missing.ravel()
    share = found.right.ravel() / n
    # Of one item, or of equal scores, there is no standard error.
    error = np.sqrt(share * (1 - share) / np.maximum(n - 1, 1))
    low, high = limits
    notes: list[tuple[str, ...]] = [()] * len(n)
    none = ~(np.isfinite(low) & np.isfinite(high))
    for i in np.flatnonzero(none | (missing > 0)).tolist():
        items = int(n[i])
        said = left_out(int(missing[i]), items + int(missing[i]))
        notes[i] = (*said, *((without_limits(method, items),) if none[i] else ()))
    models, tasks = len(found.models), len(found.tasks)
    columns = {
        "model": np.repeat(np.array(found.models, dtype=object), tasks).tolist(),
        "task": [task for task, _ in found.tasks] * models,
        "metric": [metric for _, metric in found.tasks] * models,
        "n_items": n.tolist(),
        "n_missing": missing.tolist(),
        "estimate": share.tolist(),
        "low": _finite(low),
        "high": _finite(high),
        "std_error": _finite(np.where((error > 0) & (n > 1), error, np.nan)),
        "notes": notes,
    }
    same = {"method": method, "confidence_level": confidence_level, "log": str(Path())}
    return records(ScoreInterval, columns, same)


def interleaved(
    tasks: NDArray[np.bool_], first: Iterable[ScoreInterval], second: Iterable[ScoreInterval]
) -> list[ScoreInterval]:
    """Put rows of tasks, model by model, back beside those of the other tasks."""
    first, second = list(first), list(second)
    rows = np.empty(((len(first) + len(second)) // len(tasks), len(tasks)), dtype=object)
    for where, made in ((tasks, first), (~tasks, second)):
        rows[:, where] = np.fromiter(made, dtype=object, count=len(made)).reshape(len(rows), -1)
    return rows.ravel().tolist()


def _side_by_side(matrix: ResponseMatrix) -> tuple[ResponseMatrix, IntArray]:
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
    )


def _summed(answers: NDArray[np.bool_], starts: IntArray) -> IntArray:
    return np.add.reduceat(answers, starts, axis=1, dtype=np.int64)


def _finite(values: NDArray[np.float64]) -> list[float | None]:
    """As `results.finite` has it, for all at once."""
    bad = ~np.isfinite(values)
    if not bad.any():
        return values.tolist()
    shown = values.astype(object)
    shown[bad] = None
    return shown.tolist()


def for_whole_benchmark(
    cells: Sequence[Cell], rows: Sequence[ScoreInterval], population: int | str
) -> list[ScoreInterval]:
    """Shrink each interval to what is uncertain about the items that were not run."""
    return [_whole(c, r, population) for c, r in zip(cells, rows, strict=True)]


def _whole(cell: Cell, row: ScoreInterval, population: int | str) -> ScoreInterval:
    size = cell.responses.population if population == "logged" else population
    if size is None or row.low is None or row.high is None or cell.kind in (None, "ratio"):
        return row
    n, total = cell.n, int(size)
    if total < n:
        msg = (
            f"a benchmark of {total} items found, but {row.model} answered {n} of {row.task}; "
            "expected at least as many"
        )
        raise DesignError(msg)
    note = f"for all {total} items, of which {n} were run; they must be a random part"
    if row.method in ("beta-hpd", "beta") and row.estimate is not None:
        predict = (
            survey.predictive_hpd if row.method == "beta-hpd" else survey.predictive_equal_tailed
        )
        interval = predict(
            cell.successes, n, total, confidence_level=row.confidence_level, prior=(1.0, 1.0)
        )
        method = PREDICTIVE
    else:
        interval = survey.shrink(row.estimate or 0.0, _limits(row.low, row.high), n, total)
        method = f"{row.method}+fpc"
    return replace(
        row,
        low=finite(float(interval.low)),
        high=finite(float(interval.high)),
        method=method,
        notes=(*row.notes, note),
    )


def _limits(low: float, high: float) -> Interval:
    import numpy as np

    return Interval(np.asarray(low), np.asarray(high))


def composite_limits(
    method: Method, batch: Sequence[Cell], confidence_level: float, sampling: dict[str, Any]
) -> Interval:
    """Run one method on many cells; `sampling` holds what methods that draw are told."""
    function = method.load()
    found = [c.composite for c in batch if c.composite is not None]
    if method.family == "f1":
        tables = np.stack([c.table for c in found])
        right = tables[:, 1, 1]
        n = right + tables[:, 0, 1] + tables[:, 1, 0]
        return function(right, n, confidence_level=confidence_level)
    if method.family == "confusion":
        return _by_size(function, found, confidence_level, sampling)
    if method.family == "auc":
        parts = [function(*c.ranked, confidence_level=confidence_level) for c in found if c.ranked]
    else:
        more = sampling if method.name == "sums-percentile" else {}
        parts = [
            function(units(c, cell.clusters), c.value, confidence_level=confidence_level, **more)
            for c, cell in zip(found, batch, strict=True)
        ]
    low, high = np.array(parts, dtype=np.float64).reshape(-1, 2).T
    return Interval(low, high)


def _by_size(
    function: Callable[..., Interval],
    found: Sequence[Composite],
    confidence_level: float,
    sampling: dict[str, Any],
) -> Interval:
    """Tables of one metric and size at once."""
    low, high = np.full((2, len(found)), np.nan)
    sizes: dict[tuple[str, int], list[int]] = {}
    for i, c in enumerate(found):
        sizes.setdefault((c.metric, len(c.labels)), []).append(i)
    for (metric, _), where in sizes.items():
        tables = np.stack([found[i].table for i in where])
        low[where], high[where] = function(
            tables, metric=metric, confidence_level=confidence_level, **sampling
        )
    return Interval(low, high)


def units(composite: Composite, clusters: NDArray[Any] | None) -> FloatArray:
    """What each item adds to the sums, or where items come in clusters each of these."""
    statistics = composite.statistics
    if clusters is None:
        return statistics
    names, where = np.unique(clusters.astype(str), return_inverse=True)
    sums = np.zeros((len(names), statistics.shape[1]))
    np.add.at(sums, where, statistics)
    return sums


def beside_clusters(cell: Cell, row: ScoreInterval, naive: tuple[float, float]) -> ScoreInterval:
    """Say how many clusters there are, and what the interval would be without them."""
    n_clusters = 0 if cell.clusters is None else len(np.unique(cell.clusters.astype(str)))
    row = replace(row, n_clusters=n_clusters)
    if not row.method.startswith("sums-"):
        note = f"{row.method} takes items that come in clusters as independent, perhaps too short"
        return replace(row, notes=(*row.notes, note))
    note = (
        f"items in {n_clusters} clusters, which the interval allows for; naive: as if they did not"
    )
    return replace(
        row,
        naive_low=finite(naive[0]),
        naive_high=finite(naive[1]),
        notes=(*row.notes, note),
    )
