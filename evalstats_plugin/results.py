"""Frozen records: what an analysis found. They know nothing of how they are shown."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields, make_dataclass
from functools import cache
from itertools import repeat
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
    icc: float | None = None
    """How much more alike items of one cluster are than others: intra-cluster correlation, by
    analysis of variance, 0 for none and 1 where clusters stand or fall together."""


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
    low_adjusted: float | None = None
    """Limits that hold the true differences of all these pairs at once, with the confidence level.

    None with a correction that has none (``"bh"``, ``"none"``). The verdict goes by `p_adjusted`,
    which steps down and so finds a little more than these limits show.
    """
    high_adjusted: float | None = None
    prob_better: float | None
    """That b is truly better: a higher score, or a lower one where lower is better."""
    method: str
    """Of the interval."""
    confidence_level: float
    notes: tuple[str, ...] = ()
    higher_is_better: bool | None = None
    kind: str = "task"
    """``"task"``, ``"group"``, or ``"tasks"``: the tasks themselves are the sample."""
    measure: str = "difference"
    """What `difference` and its limits are: or the ``"ratio"`` b : a, or the ``"odds ratio"``."""

    @property
    def verdict(self) -> Literal["better", "worse", "unclear"]:
        """Whether b is better or worse than a beyond chance, all pairs of the task considered."""
        if self.p_adjusted is None or self.p_adjusted > 1 - self.confidence_level:
            return "unclear"
        if self.measure != "difference":
            # A ratio may be infinite, and so not be there.
            return "better" if (self.prob_better or 0) > 0.5 else "worse"
        if not self.difference:
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
    letters: str = ""
    """Two models of the task that share a letter cannot be told apart; two that share none can."""
    prob_best: float | None = None
    """Posterior probability of the highest true score, or the lowest where lower is better."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class VariancePart:
    """Where the variance of one score comes from, and what more of either would buy.

    ``between`` items and ``within`` them (of one take around its item's true mean) are unbiased;
    the former may come out below 0. ``None`` where no item was taken twice, or nothing varies.
    """

    model: str
    task: str
    metric: str
    n_items: int
    n_epochs: int
    estimate: float | None
    between: float | None
    within: float | None
    share_within: float | None
    """Of a single take's variance."""
    std_error: float | None
    std_error_more_epochs: float | None
    """With twice as many epochs."""
    std_error_more_items: float | None
    """With twice as many items."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerRow:
    """What it takes to find a difference between two models.

    ``quantity`` names the field that was asked for, which is ``None`` where nothing will do; the
    others were given. Task, metric and models are empty where all comes from assumptions.
    """

    quantity: Literal["n_items", "n_epochs", "n_models", "difference", "power"]
    task: str = ""
    metric: str = ""
    model_a: str = ""
    model_b: str = ""
    design: Literal["paired", "unpaired"]
    """Whether both models answer the same items, or as many different ones each."""
    n_items: int | None
    n_epochs: int | None
    n_models: int | None
    """Models compared, every two of them: the test allows for all pairs (Bonferroni)."""
    difference: float | None
    power: float | None
    """Probability to find the difference."""
    confidence_level: float
    method: str
    discordance: float | None = None
    """Share of items that only one of the two models gets right."""
    between: float | None = None
    """Variance of the difference between items, and `within` them in one epoch, of both models."""
    within: float | None = None
    design_effect: float | None = None
    """How many times larger clusters make the variance."""
    pilot_items: int | None = None
    """Items of the logs that the assumptions were estimated from."""
    notes: tuple[str, ...] = ()


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
VarianceParts = Results[VariancePart]


@dataclass(frozen=True)
class PowerRows(Results[PowerRow]):
    """Answers of a power analysis, with the variance parts of the pilot."""

    parts: tuple[VariancePart, ...] = ()


def records(
    kind: type[RowT], columns: Mapping[str, Sequence[Any]], same: Mapping[str, Any]
) -> list[RowT]:
    """Build records from columns of one length, and from what is the same in all of them.

    What the constructor of each would do, many times as fast for thousands.
    """
    (length,) = {len(column) for column in columns.values()}
    values: list[Iterable[Any]] = []
    for field in fields(kind):  # type: ignore[arg-type]
        name = field.name
        value = same.get(name, field.default)
        if name not in columns and value is MISSING:
            msg = f"{kind.__name__} needs {name!r}, which is neither a column nor the same in all"
            raise TypeError(msg)
        values.append(columns[name] if name in columns else repeat(value, length))
    made = list(map(_draft(kind), *values))
    for record in made:
        record.__class__ = kind
    return made


@cache
def _draft(kind: type[Any]) -> Callable[..., Any]:
    """Return a class with the same slots that, unlike frozen records, its constructor fills fast.

    What it makes then becomes a record of `kind`.
    """
    names = [field.name for field in fields(kind)]
    return make_dataclass(f"{kind.__name__}Draft", names, slots=True, eq=False, repr=False)


def _plain(row: Any) -> dict[str, Any]:
    return {
        name: list(value) if isinstance(value, tuple) else value  # pyright: ignore[reportUnknownArgumentType]
        for name, value in asdict(row).items()
    }


def finite(value: float | None) -> float | None:
    """Return the number, or None where there is none: how results hold what is undefined."""
    return None if value is None or not math.isfinite(value) else float(value)
