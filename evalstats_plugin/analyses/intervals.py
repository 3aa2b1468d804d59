"""How sure are we of each score?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin import methods
from evalstats_plugin.analyses import clusters, composite_intervals, right_or_wrong
from evalstats_plugin.analyses.cells import RATIOS, Bounds, Cell, make_cell, without_limits
from evalstats_plugin.analyses.groups import group_rows
from evalstats_plugin.analyses.stored import by_models
from evalstats_plugin.errors import DesignError
from evalstats_plugin.matrix import ResponseMatrix
from evalstats_plugin.methods import Method
from evalstats_plugin.response_set import ResponseSet
from evalstats_plugin.response_store import ResponseStore
from evalstats_plugin.responses import Responses
from evalstats_plugin.results import Intervals, ScoreInterval, finite
from evalstats_plugin.tables import INTERVALS, check_name
from evalstats_plugin.tables.clustered import CLUSTERED, CLUSTERED_DEFAULTS
from evalstats_plugin.tables.composites import CLUSTERED_COMPOSITE_DEFAULTS, COMPOSITE_DEFAULTS
from evalstats_plugin.tables.means import DEFAULTS

N_RESAMPLES = 9999
"""Of bootstrap methods: with one more, a tail of .025 falls on a whole number of resamples."""

NO_METHOD = "none"
"""Method of a row that has no interval."""

_FOR_CLUSTERS = frozenset(method.name for method in CLUSTERED)

Limits = tuple[NDArray[np.float64], NDArray[np.float64]]
Rng = np.random.Generator | int | None


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
    found = right_or_wrong.tally(matrix, bounds) if by_columns else None
    if found is None or not found.counts.any():
        return _of_cells(matrix.to_responses(), solver, bounds, population)
    counted = found.of(found.counts)
    limits = solver.of_counts(method, counted.right.ravel(), counted.n.ravel())
    rows = right_or_wrong.interval_rows(counted, limits, method.name, solver.confidence_level)
    if found.counts.all():
        return rows
    rest = right_or_wrong.without(matrix, counted).to_responses()
    others = _of_cells(rest, solver, bounds, population)
    return right_or_wrong.interleaved(found.counts, rows, others)


def _of_cells(
    responses: Iterable[Responses], solver: _Solver, bounds: Bounds, population: int | str | None
) -> list[ScoreInterval]:
    cells = [make_cell(r, bounds) for r in responses]
    limits = solver.solve(cells)
    every = zip(cells, limits, solver.names, strict=True)
    rows = [_row(*each, solver.confidence_level) for each in every]
    rows = _clustered(cells, rows, solver.prior)
    if population is not None:
        from evalstats_plugin.analyses.population import for_whole_benchmark

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
        beside = clusters.side_by_side if of_mean else composite_intervals.beside_clusters
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
        if method.family in composite_intervals.FAMILIES:
            return composite_intervals.limits(method, batch, level, sampling)
        function = method.load()
        if method.family in clusters.FAMILIES:
            sums = clusters.cluster_arrays(batch)
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
