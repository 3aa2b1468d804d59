"""From "how good is the model at such items" to "what would it score on the whole benchmark"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from evalstats_plugin.analyses.cells import Cell
from evalstats_plugin.errors import DesignError
from evalstats_plugin.results import ScoreInterval, finite
from evalstats_plugin.stats import finite_population
from evalstats_plugin.stats.interval import Interval

PREDICTIVE = "beta-predictive"
"""What `beta-hpd` and `beta` become for a finite population."""


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
            finite_population.predictive_hpd
            if row.method == "beta-hpd"
            else finite_population.predictive_equal_tailed
        )
        interval = predict(
            cell.successes, n, total, confidence_level=row.confidence_level, prior=(1.0, 1.0)
        )
        method = PREDICTIVE
    else:
        interval = finite_population.shrink(
            row.estimate or 0.0, _limits(row.low, row.high), n, total
        )
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
