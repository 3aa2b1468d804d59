"""Which items are harder for one group of models than for others as able?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal

import numpy as np

from evalstats_plugin.analyses.ability_data import irt_module, short
from evalstats_plugin.errors import SelectionError
from evalstats_plugin.matrix import ResponseMatrix
from evalstats_plugin.results import Results, finite
from evalstats_plugin.wording import few, no_such

if TYPE_CHECKING:
    from evalstats_plugin.irt.fit import IRTFit


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemDifference:
    """What an item does to the focal group, ability aside. Numbers are finite or ``None``."""

    item: str
    task: str
    metric: str
    log_odds: float | None
    """Of a right answer, focal group over the others, at the same ability."""
    low: float | None
    high: float | None
    std_error: float | None
    delta: float | None
    """The same on the scale of ETS; below 0 the item is harder for the focal group."""
    p_value: float | None
    p_adjusted: float | None
    """All items considered (Holm)."""
    size: str
    """``"A"`` negligible, ``"B"`` moderate, ``"C"`` large, by its own p-value."""
    flagged: bool
    """Beyond chance, all items considered."""
    method: str
    confidence_level: float
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ItemDifferences(Results[ItemDifference]):
    """The items, the surest differences first."""

    focal: tuple[str, ...] = ()
    """Models of the focal group."""
    n_others: int = 0

    @property
    def flagged(self) -> tuple[ItemDifference, ...]:
        """Items that differ beyond chance."""
        return tuple(row for row in self.rows if row.flagged)


def models_like(patterns: Sequence[str], models: Sequence[str]) -> tuple[str, ...]:
    """Return the models that any of the patterns names; ``*`` and ``?`` stand for others.

    Raises
    ------
    SelectionError
        A pattern that no model matches.
    """
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in models):
            raise SelectionError(no_such("model", pattern, models, few(list(models))))
    return tuple(name for name in models if any(fnmatchcase(name, p) for p in patterns))


def differential_items(
    fit: IRTFit,
    matrix: ResponseMatrix,
    focal: Sequence[str],
    *,
    method: Literal["logistic", "mantel-haenszel"] = "logistic",
    confidence_level: float = 0.95,
) -> ItemDifferences:
    """Compare the models in `focal` with all others, item by item, at the same ability; see `dif`.

    Raises
    ------
    SelectionError
        A model of the group is not in the matrix.
    DesignError
        Fewer than 2 models on either side.
    """
    found = irt_module("dif").dif(
        fit, matrix, focal, method=method, confidence_level=confidence_level
    )
    z = irt_module("fit").normal_quantile(confidence_level)
    doubtful = np.nan_to_num(found.p_value, nan=2)
    order: list[int] = np.lexsort((-np.abs(np.nan_to_num(found.log_odds)), doubtful)).tolist()
    low, high = (found.log_odds + sign * z * found.std_error for sign in (-1, 1))
    table = (found.log_odds, low, high, found.std_error, found.delta, found.p_value)
    numbers: list[list[float]] = np.stack([*table, found.p_adjusted], axis=1).tolist()
    rows = tuple(
        ItemDifference(
            item=str(found.item_ids[j]),
            task=str(found.tasks[j]),
            metric=short(str(matrix.metrics[j])),
            log_odds=finite(numbers[j][0]),
            low=finite(numbers[j][1]),
            high=finite(numbers[j][2]),
            std_error=finite(numbers[j][3]),
            delta=finite(numbers[j][4]),
            p_value=finite(numbers[j][5]),
            p_adjusted=finite(numbers[j][6]),
            size=str(found.size[j]),
            flagged=bool(found.flagged[j]),
            method=found.method,
            confidence_level=confidence_level,
        )
        for j in order
    )
    silent = int(np.isnan(found.log_odds).sum())
    notes = [f"{silent} items tell nothing: all right, all wrong, or not taken by both groups"]
    return ItemDifferences(
        rows,
        (*fit.notes, *found.notes, *(notes if silent else [])),
        focal=tuple(focal),
        n_others=len(matrix.models) - len(focal),
    )
