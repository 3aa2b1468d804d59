"""Frozen records: what an analysis found. They know nothing of how they are shown."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreInterval:
    """How sure we are of one score: a model on a task (or group of tasks) under a metric.

    Numbers are finite or ``None``, never NaN. ``std_error`` is s/√n, the number harnesses
    log, and ``None`` where the scores do not vary: 15 right out of 15 is not certainty.
    """

    model: str
    task: str
    metric: str
    n_items: int
    n_epochs: int = 1
    n_missing: int = 0
    n_clusters: int | None = None
    estimate: float | None
    low: float | None
    high: float | None
    std_error: float | None
    method: str
    confidence_level: float
    notes: tuple[str, ...] = ()
    kind: str = "task"
    """``"task"`` or ``"group"``."""
    depth: int = 0
    """How many groups enclose it in this log: the indent of a table."""
    higher_is_better: bool | None = None
    logged: float | None = None
    """The value the harness wrote."""
    logged_std_error: float | None = None
    log: str = ""
    """The log it was read from."""
    naive_low: float | None = None
    """Where items come in clusters: the limits if they were independent."""
    naive_high: float | None = None
    design_effect: float | None = None
    """How many times larger clusters make the variance of the estimate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Is model b better than model a, on one task under one metric, and by how much?

    Numbers are finite or ``None``, never NaN. Both models are judged on the ``n_items`` items
    that have a score of both.
    """

    model_a: str
    """The baseline, where there is one."""
    model_b: str
    task: str
    metric: str
    n_items: int
    difference: float | None
    """Score of b minus that of a."""
    low: float | None
    high: float | None
    p_value: float | None
    """Of no difference, two-sided."""
    p_adjusted: float | None
    """The same, for all pairs of this task and metric together."""
    prob_better: float | None
    """That b is truly better: a higher score, or a lower one where lower is better."""
    method: str
    """Of the interval."""
    confidence_level: float
    notes: tuple[str, ...] = ()
    higher_is_better: bool | None = None

    @property
    def verdict(self) -> Literal["better", "worse", "unclear"]:
        """Whether b is better or worse than a beyond chance, all pairs of the task considered."""
        if self.p_adjusted is None or not self.difference:
            return "unclear"
        if self.p_adjusted > 1 - self.confidence_level:
            return "unclear"
        return "better" if (self.difference > 0) != (self.higher_is_better is False) else "worse"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSet:
    """Which ranks a model can have on one task under one metric, 1 being the best."""

    model: str
    task: str
    metric: str
    n_models: int
    best_rank: int
    worst_rank: int
    confidence_level: float
    """Of all sets of the task together."""


RowT = TypeVar("RowT")


@dataclass(frozen=True)
class Results(Generic[RowT]):
    """An ordered collection of result records with what is common to all of them."""

    rows: tuple[RowT, ...]
    notes: tuple[str, ...] = ()
    """What was dropped, merged or left unread on the way, for people to see."""
    seed: int | None = None
    """Of the random numbers, where a seed was given."""

    def __iter__(self) -> Iterator[RowT]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> RowT:
        return self.rows[index]

    def to_dict(self) -> list[dict[str, Any]]:
        """One plain dict per row, ready for JSON: finite numbers, strings, lists, None."""
        return [_plain(row) for row in self.rows]

    def to_frame(self) -> pd.DataFrame:
        """One line per row; columns are the record's fields."""
        import pandas as pd

        records = self.to_dict()
        names = [field.name for field in fields(self.rows[0])] if self.rows else []  # type: ignore[arg-type]
        return pd.DataFrame.from_records(records, columns=names)


Intervals = Results[ScoreInterval]
Comparisons = Results[Comparison]
RankSets = Results[RankSet]


def _plain(row: Any) -> dict[str, Any]:
    return {
        name: list(value) if isinstance(value, tuple) else value  # pyright: ignore[reportUnknownArgumentType]
        for name, value in asdict(row).items()
    }


def finite(value: float | None) -> float | None:
    """Return the number, or None where there is none: how results hold what is undefined."""
    return None if value is None or not math.isfinite(value) else float(value)
