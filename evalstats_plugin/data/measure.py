"""What a number is: its task, metric and scale, and how these are known.

* `Measure`: the one record that responses, matrices and rows carry, with its `Scale`
* `joint`: the measure of several models' scores, from what each log says
* `Measures`: what a user says of scores, and `given`, which puts that in place of what logs say
* `agree`: whether two values are the same but for rounding
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from types import NoneType
from typing import Any, Literal, TypeAlias, cast, get_args

Origin = Literal["", "logged", "registry", "given", "observed", "assumed"]
"""Where a part of a measure is known from: the log, the registry of metrics (`data.metrics`), the
user, the scores themselves; or it is assumed. Empty where it is not known."""

Unit = Literal["", "share", "percent", "points", "nats", "bits", "perplexity", "errors", "cost"]
"""What a score counts; empty where it is not known."""

_TRUST: Mapping[str, int] = {name: i for i, name in enumerate(
    ("", "assumed", "observed", "registry", "logged", "given")
)}  # fmt: skip
"""Origins, the one to be believed last."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Least and greatest possible score; infinite where there is no such limit."""

    low: float = -math.inf
    high: float = math.inf
    step: float | None = None
    """Distance of neighbouring scores on a grid; None where any score may be."""
    unit: Unit = ""

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise ValueError(f"a scale from {self.low:g} to {self.high:g} has no room for scores")

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Both limits; None unless both are finite."""
        is_bounded = math.isfinite(self.low) and math.isfinite(self.high)
        return (self.low, self.high) if is_bounded else None

    def clip(self, *values: float) -> list[float]:
        """Return each value, or the limit of the scale that it is beyond."""
        return [min(max(value, self.low), self.high) for value in values]

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}"


SHARE = Scale(0.0, 1.0, unit="share")
"""Of a count: right answers, or what a judge or a measure of overlap gives as a share."""

COST = Scale(0.0, math.inf, unit="cost")
"""Of what an answer cost: money, tokens, time."""


_TYPES: Mapping[str, tuple[type, ...]] = {
    "higher_is_better": (bool, NoneType),
    "is_headline": (bool, NoneType),
    "population": (int, NoneType),
    "n_cut": (int,),
}
"""Of the fields that are no texts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """What a score is: the same record in responses, matrices, rows and stored files.

    Public functions take one as what their user knows of the scores (`Measures`): its scale,
    direction, aggregation and population, where it has them, count in place of the log's.

    Examples
    --------
    >>> Measure(task="mt_bench", metric="judge", scale=Scale(1, 10)).bounds
    (1, 10)
    """

    task: str = ""
    """Empty in a measure that a user gives for every task."""
    metric: str = ""
    """Full name, as the harness shows it: ``"acc,none"``, ``"match/logic"``. Empty in a measure
    that a user gives for every metric."""
    scorer: str = ""
    """What judged the answers, where that is not the metric itself."""
    key: str = ""
    """Part of the score, where it has several."""
    filter: str = ""
    """What was made of the answers before they were judged."""
    reducer: str = ""
    """How epochs of an item are combined; empty for their mean."""
    group: str = ""
    """Items that it is of, where these are not all: the value of a field."""
    scale: Scale | None = None
    scale_from: Origin = ""
    higher_is_better: bool | None = None
    direction_from: Origin = ""
    aggregation: str = "mean"
    """How item scores are combined to the task's value: ``"mean"``, or the metric's own."""
    aggregation_from: Origin = ""
    is_headline: bool | None = None
    """Whether it is the first value that the harness shows of the task; None if unknown."""
    population: int | None = None
    """Items in the whole benchmark, where only a part of it was run."""
    n_cut: int = 0
    """Items that the run scored and that its log no longer holds."""

    def __post_init__(self) -> None:
        # What a constructor is given without an origin, the reader of a log has read.
        for part, origin in (
            (self.scale, "scale_from"),
            (self.higher_is_better, "direction_from"),
            (None if self.aggregation == "mean" else self.aggregation, "aggregation_from"),
        ):
            if part is not None and not getattr(self, origin):
                object.__setattr__(self, origin, "logged")

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Smallest and largest possible score, where both are known."""
        return None if self.scale is None else self.scale.bounds

    @property
    def name(self) -> str:
        """Metric without lm-eval's filter "none", which other harnesses do not write."""
        return self.metric.removesuffix(",none")

    @property
    def is_cost(self) -> bool:
        """Whether it is of what answers cost, not of how good they are."""
        return self.scale is not None and self.scale.unit == "cost"

    def is_of(self, task: str, metric: str) -> bool:
        """Whether it is given for these scores: a metric also by the part before its comma."""
        names = ("", metric, metric.partition(",")[0])
        return self.task in ("", task) and self.metric in names

    def on(self, scale: Scale | tuple[float, float] | None, origin: Origin) -> Measure:
        """Return the measure on another scale."""
        if isinstance(scale, tuple):
            scale = Scale(*scale)
        return replace(self, scale=scale, scale_from=origin if scale else "")

    def or_on(self, bounds: tuple[float, float] | None) -> Measure:
        """Return the measure on a scale that is assumed, where none is known."""
        return self if self.scale is not None or bounds is None else self.on(bounds, "assumed")

    def to_dict(self) -> dict[str, Any]:
        """Return all that is known as JSON values; infinite limits as None.

        >>> Measure(task="t", metric="loss", scale=Scale(0)).to_dict()["scale"]["high"] is None
        True
        """
        values = {name: value for name, value in asdict(self).items() if value not in ("", None)}
        if self.scale is not None:
            limits = {"low": self.scale.low, "high": self.scale.high}
            finite = {k: float(v) if math.isfinite(v) else None for k, v in limits.items()}
            values["scale"] = {**values["scale"], **finite}
        return values

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Measure:
        """Return the measure that `to_dict` gave, such as that of a row of JSON results.

        Raises
        ------
        TypeError, KeyError, ValueError
            The mapping is not one that `to_dict` returns.
        """
        values: dict[str, Any] = {}
        for field in fields(cls):
            if field.name not in record or field.name == "scale":
                continue
            value = record[field.name]
            if not isinstance(value, _TYPES.get(field.name, (str,))):
                raise TypeError(f"{field.name} is {value!r}")
            if field.name.endswith("_from") and value not in get_args(Origin):
                raise ValueError(f"{field.name} is {value!r}")
            values[field.name] = value
        scale = record.get("scale")
        if scale is not None:
            low, high, step, unit = (scale[name] for name in ("low", "high", "step", "unit"))
            values["scale"] = Scale(
                -math.inf if low is None else float(low),
                math.inf if high is None else float(high),
                None if step is None else float(step),
                unit if unit in get_args(Unit) else "",
            )
        return cls(**values)


Measures: TypeAlias = Measure | Iterable[Measure] | None
"""What a user knows of scores: one measure or several, each of the task and metric that it names,
of all where it names none. Where two are of the same scores, the later counts."""


def as_measures(measures: Measures) -> tuple[Measure, ...]:
    """Return the measures that were given one by one."""
    if measures is None:
        return ()
    return (measures,) if isinstance(measures, Measure) else tuple(measures)


def given(measure: Measure, by_user: Sequence[Measure]) -> Measure:
    """Return a measure with the parts that the user gives for its task and metric.

    >>> log = Measure(task="t", metric="judge", higher_is_better=True)
    >>> found = given(log, [Measure(metric="judge", scale=Scale(1, 10))])
    >>> found.scale_from, found.direction_from
    ('given', 'logged')
    """
    for own in by_user:
        if not own.is_of(measure.task, measure.metric):
            continue
        if own.scale is not None:
            measure = measure.on(own.scale, "given")
        if own.higher_is_better is not None:
            better = own.higher_is_better
            measure = replace(measure, higher_is_better=better, direction_from="given")
        if own.aggregation_from:
            kind = own.aggregation
            measure = replace(measure, aggregation=kind, aggregation_from="given")
        if own.population is not None:
            measure = replace(measure, population=own.population)
    return measure


class MeasureByName(dict[tuple[str, str], Measure]):
    """Measures by task and metric; of others their names alone."""

    def __missing__(self, name: tuple[str, str]) -> Measure:
        """Return a measure that says nothing else."""
        return Measure(task=name[0], metric=name[1])

    @classmethod
    def of(cls, measures: Sequence[Measure]) -> MeasureByName:
        """Return measures by their names; of several the first."""
        return cls(((m.task, m.metric), m) for m in reversed(measures))


def joint(measures: Sequence[Measure]) -> Measure:
    """Return the measure of several models' scores of one task and metric.

    Each part is from the log that is to be believed most, the first of several. Scales of one
    origin that differ give the one around all of them.
    """
    first = measures[0]
    if all(m is first or m == first for m in measures):
        return first
    scaled = [m for m in measures if m.scale is not None]
    trust = max((_TRUST[m.scale_from] for m in scaled), default=0)
    scales = [m.scale for m in scaled if _TRUST[m.scale_from] == trust and m.scale is not None]
    scale = first.scale
    if scales:
        around = min(s.low for s in scales), max(s.high for s in scales)
        scale = next(
            (s for s in scales if (s.low, s.high) == around), Scale(*around, unit=scales[0].unit)
        )
    directed = max(measures, key=lambda m: _TRUST[m.direction_from])
    return replace(
        first,
        scale=scale,
        scale_from=cast("Any", list(_TRUST)[trust]),
        higher_is_better=directed.higher_is_better,
        direction_from=directed.direction_from,
        n_cut=0,
        population=next((m.population for m in measures if m.population is not None), None),
    )


class Measured:
    """What has a measure, and shows of it what most ask for."""

    measure: Measure

    @property
    def task(self) -> str:
        """Name of the task."""
        return self.measure.task

    @property
    def metric(self) -> str:
        """Full name of the metric."""
        return self.measure.metric

    @property
    def higher_is_better(self) -> bool | None:
        """Direction of the metric; None if it is not known."""
        return self.measure.higher_is_better


def agree(a: float, b: float) -> bool:
    """Whether two values are the same but for rounding."""
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)
