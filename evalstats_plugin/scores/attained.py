"""What the rows of one metric know together: whether it gives partial credit, and how far it goes.

A model may happen to get only zeros and ones of a metric with partial credit, or no score at a
bound that others' failed answers show to be possible. `known` gathers this from all rows;
`with_known` puts it into each, so that neighbours get the same method and the same assumptions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from evalstats_plugin.scores.cells import Cell, epochs_are_binary

SAME = 1e-9
"""Scores this close to a bound, as a share of the range, are at it: means of epochs are rounded."""

UNIT = (0.0, 1.0)

MetricKey: TypeAlias = tuple[str, tuple[float, float]]
"""Name of a metric, without lm-eval's filter "none", and its bounds."""


class Known(NamedTuple):
    """What scores of one metric have shown."""

    partial: bool
    """Whether any is neither at the lower bound nor at the upper, and no mean of 0/1 epochs."""
    low: bool
    """Whether any is at the lower bound."""
    high: bool

    def also(self, other: Known) -> Known:
        """Return what both have shown."""
        return Known(*(a or b for a, b in zip(self, other, strict=True)))


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
    between = not (low | high).all() and not epochs_are_binary(cell.responses)
    return Known(partial=between, low=bool(low.any()), high=bool(high.any()))


def merged(parts: Iterable[Mapping[MetricKey, Known]]) -> Metrics:
    """Join what several groups of rows have shown."""
    together: Metrics = {}
    for part in parts:
        for key, shown in part.items():
            together[key] = shown.also(together.get(key, shown))
    return together


def with_known(cells: Sequence[Cell], metrics: Mapping[MetricKey, Known]) -> list[Cell]:
    """Put into each cell what is known of its metric.

    Zeros and ones of a metric with partial credit are bounded scores like their neighbours. Those
    in clusters keep their own methods, and so does a row that is known by its counts only.
    """
    found: list[Cell] = []
    for cell in cells:
        shown = metrics.get(metric_key(cell.responses.metric, cell.bounds or UNIT))
        if shown is None or cell.composite is not None or cell.kind not in ("binary", "bounded"):
            found.append(cell)
            continue
        alike = cell.kind == "binary" and shown.partial and len(cell.values) > 0
        kind = "bounded" if alike and cell.clusters is None else cell.kind
        found.append(replace(cell, kind=kind, attained=(shown.low, shown.high)))
    return found
