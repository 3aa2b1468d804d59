"""Scorers of a log and their values, and estimands: which values its header gives, each a row.

Scorer, key, reducer, metric and group identify a row. `estimands_of` lists those of a scorer,
`headline_row` names the row of the headline, and `reduced` combines epochs as Inspect does.
`scorers_of` lists the scorers, and the keys of those with several values; `as_score` reads one
value as Inspect's metrics do.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from evalstats_plugin.adapters.inspect_ai.archive.guard import KEY
from evalstats_plugin.runtime.files import section
from evalstats_plugin.runtime.untrusted import printable_name

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, EvalMetric, EvalScore
    from inspect_ai.scorer import SampleScore

    from evalstats_plugin.adapters.inspect_ai.archive.samples import LoggedSample


SCORE = "evalstats_item"
"""Name of our score with item statistics, in samples and among the header's scorers."""

LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
"""Correct, partial, incorrect, no answer."""

_WORDS = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}

MEAN = "mean"
"""The reducer if none is named."""

AVERAGES = ("accuracy", "mean")
"""Metrics that are the mean of the scores."""

GROUP = "evalstats"
"""Group of the metrics that we add to headers."""

STALE = "mismatch: the log's annotation is of "
"""How the note begins that a log was edited after it was annotated."""

SPREAD = frozenset(
    {
        "stderr", "std", "var", "bootstrap_stderr", "hierarchical_bootstrap", "ci", "ci_wilson",
        "beta_interval", "jeffreys", "wilson", "clopper_pearson", "cluster_interval", GROUP,
    }
)  # fmt: skip
"""Metrics that are no scores but say how scores vary, or how certain their mean is: no rows."""

MOST_UNITS = 200
"""Units that are left out in turn: of more items or clusters, blocks of them are left out."""

_LEAPS = ("median", "quantile", "percentile", "mode", "min", "max")
"""Metrics that leap from one sample to the next, whose error the jackknife does not estimate."""

UNIT = ("pass_at", "pass_k", "at_least")
"""Reducers whose values lie in [0, 1], whatever the scores."""


class Scorer(NamedTuple):
    """A scorer, or one key of a scorer that gives several values."""

    name: str
    key: str | None = None

    @property
    def label(self) -> str:
        """The name of the metric: ``"match"``, ``"rubric:style"``."""
        return printable_name(self.name if self.key is None else f"{self.name}:{self.key}")

    def value_in(self, sample: LoggedSample) -> Any:
        """Return its value as logged; NaN if there is none."""
        value = sample.scores.get(self.name, math.nan)
        if self.key is None:
            return value
        # A value that is no dict has nothing for this key.
        return value.get(self.key, math.nan) if isinstance(value, Mapping) else math.nan  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]


def of_result(score: EvalScore) -> Scorer:
    """Return the scorer of a logged result."""
    return Scorer(score.scorer, None if score.name == score.scorer else score.name)


def scorers_of(log: EvalLog, samples: Iterable[LoggedSample] = ()) -> list[Scorer]:
    """Return all scorers in the header and the samples, in order."""
    scorers = dict.fromkeys(of_result(s) for s in (log.results.scores if log.results else ()))
    if not scorers:
        scorers.update(dict.fromkeys(Scorer(s.name) for s in log.eval.scorers or ()))
    plain: set[str] = set()
    keyed: set[str] = set()
    for sample in samples:
        for name, value in sample.scores.items():
            if isinstance(value, Mapping):
                keyed.add(name)
                scorers.update(dict.fromkeys(Scorer(name, str(k)) for k in value))  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
            elif not is_unscored(value):
                plain.add(name)
                scorers.setdefault(Scorer(name))
    # A scorer with several values has no value of its own, even if the header lists it. The item
    # statistics that we wrote beside the scores are no metric of the task.
    scorers = [s for s in scorers if s.name != SCORE]
    return [s for s in scorers if s.key is not None or s.name not in keyed - plain]


def as_score(value: object) -> float | None:
    """Return a value as a number, NaN if it was not scored, None if it is no number.

    This is Inspect's ``value_to_float``, except that Inspect counts what is no number as 0, after
    a warning.

    >>> as_score("P"), as_score("Yes"), as_score(" 3e-1"), as_score("correct")
    (0.5, 1.0, 0.3, None)
    """
    if isinstance(value, str):
        by_word = LETTERS.get(value, _WORDS.get(value.lower()))
        if by_word is not None:
            return by_word
    elif not isinstance(value, (bool, int, float)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return None if isinstance(value, str) and not math.isfinite(number) else number


def is_unscored(value: object) -> bool:
    """Whether a value is NaN, Inspect's mark of a sample that could not be scored."""
    return isinstance(value, float) and math.isnan(value)


def is_grade(value: object) -> bool:
    """Whether a value is a grade between 0 and 1: a letter, yes or no, or a boolean."""
    if isinstance(value, str):
        return value in LETTERS or value.lower() in _WORDS
    return isinstance(value, bool)


class Logged(NamedTuple):
    """A value as logged in the header."""

    value: float | None = None
    std_error: float | None = None
    n: int | None = None
    is_accuracy: bool = False


class Estimand(NamedTuple):
    """One value of a scorer, to be computed from the samples."""

    scorer: Scorer
    reducer: str = MEAN
    kind: Literal["scores", "group", "groups", "share", "other"] = "scores"
    """All scores; those of a group of items; the mean of such groups; the share of an answer; or
    another metric."""
    name: str = ""
    """Of the group, answer or metric."""
    group: str = ""
    """Inspect's name of the group."""
    field: str = ""
    """Metadata field by which items are grouped."""
    template: str = "{group_name}"
    """Inspect's pattern for names of groups."""
    logged: Logged = Logged()
    result: EvalScore | None = None
    keys: tuple[str, ...] = ()
    """The metrics of the result that have this value."""
    notes: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The metric's name: ``"match"``, ``"match/pass_at_4"``, ``"match/algebra"``."""
        reducer = () if self.reducer == MEAN else (self.reducer,)
        return printable_name(
            "/".join((self.scorer.label, *reducer, *([self.name] * bool(self.name))))
        )

    def holds(self, value: str | None) -> bool:
        """Whether an item belongs to the group, by the text of its field."""
        if value is None:
            return False
        names = {value}
        with suppress(ValueError):
            # Fields that are no texts are held as JSON, and named by Inspect as Python does.
            names.add(str(json.loads(value)))
        return any(self.template.replace("{group_name}", name) == self.group for name in names)


def estimands_of(log: EvalLog, scorer: Scorer) -> list[Estimand]:
    """Return the values of a scorer in the header's order; the first is of all its scores.

    Of a log without results it is the value that the run was configured to give.
    """
    results = [s for s in (log.results.scores if log.results else ()) if of_result(s) == scorer]
    if not results:
        return [Estimand(scorer, next(iter(log.eval.config.epochs_reducer or ()), MEAN))]
    reduced = any(s.reducer for s in results)
    headline, main = _headline(log)
    estimands = [
        e
        for s in results
        for e in _in_result(s, scorer, mixed=reduced, main=main if s is headline else "")
    ]
    return sorted(estimands, key=lambda e: (e.kind != "scores", e.result is not headline))


def others_of(log: EvalLog, scorers: Sequence[Scorer]) -> list[Estimand]:
    """Return the values of scorers that have no scores of their own, such as those of all keys."""
    why = "is not computed from one score of each item"
    return [
        e._replace(
            kind="other",
            name=e.name or printable_name(e.keys[0]),
            notes=(f"no interval: {printable_name(e.keys[0])} {why}",),
        )
        for s in (log.results.scores if log.results else ())
        if of_result(s) not in scorers
        for e in _in_result(s, of_result(s), mixed=False)
        if e.keys
    ]


def headline_row(log: EvalLog) -> str | None:
    """Return the name of the row with the headline of a log; None if none has it."""
    score, key = _headline(log)
    if score is None:
        return None
    every = estimands_of(log, of_result(score))
    return next((e.label for e in every if e.result is score and key in e.keys), None)


def annotated_rows(log: EvalLog, part: str) -> list[Mapping[str, Any]]:
    """Return the rows of a part of our annotation, such as ``"intervals"``; none of other logs."""
    # The metadata of a log may be somebody else's, or edited.
    rows: Any = section(log.metadata, KEY).get(part)
    listed = cast("list[Any]", rows) if isinstance(rows, list) else []
    return [section(row) for row in listed]


def _headline(log: EvalLog) -> tuple[EvalScore | None, str]:
    """Return the result and metric that stand for the log: the first ones if it names none."""
    scores = log.results.scores if log.results else []
    named = getattr(log.results, "headline", None)
    if named is not None:
        for s in scores:
            if (s.scorer, s.name, s.reducer) == (named.scorer, named.score, named.reducer):
                return s, named.metric
    # Logs of Inspect before headline metrics.
    score = next(iter(scores), None)
    return score, next(iter(score.metrics), "") if score else ""


def _in_result(
    result: EvalScore, scorer: Scorer, *, mixed: bool, main: str = ""
) -> Iterator[Estimand]:
    """Yield the values in one result.

    Parameters
    ----------
    mixed
        Whether other results of the scorer name a reducer.
    main
        The metric that is the headline, which is a value even if it says how scores vary.
    """
    base = Estimand(scorer, result.reducer or MEAN, result=result)
    metrics = {
        k: m
        for k, m in result.metrics.items()
        if _kind(m) not in SPREAD or (k == main and _kind(m) in ("std", "var"))
    }
    whole = _mean_of(metrics)
    of_epochs = mixed and not result.reducer
    rest = {k: m for k, m in metrics.items() if k not in whole}
    value = next(iter(whole.values()), None)
    if not of_epochs:
        stderr = next((m for m in result.metrics.values() if m.group is None
                       and _kind(m) == "stderr"), None)  # fmt: skip
        logged = Logged(
            value=None if value is None else float(value.value),
            std_error=None if stderr is None else float(stderr.value),
            n=result.scored_samples,
            is_accuracy=any(_kind(m) == "accuracy" for m in metrics.values()),
        )
        names = ", ".join(dict.fromkeys(printable_name(_kind(m)) for m in rest.values()))
        note = (f"the log gives no mean of all scores, but {names}",) if names else ()
        yield base._replace(logged=logged, keys=tuple(whole), notes=() if whole else note)
    estimands: dict[str, Estimand] = {}
    for key, m in rest.items():
        estimand = _of_metric(base, key, m)
        # A mean and an accuracy of the same group are one value.
        same = next(
            (name for name, other in estimands.items() if _same_group(estimand, other)), None
        )
        if same is not None:
            estimands[same] = estimands[same]._replace(keys=(*estimands[same].keys, key))
        else:
            estimands[key if estimand.name in estimands else estimand.name] = estimand
    yield from (each._replace(name=printable_name(name)) for name, each in estimands.items())


def _of_metric(base: Estimand, key: str, m: EvalMetric) -> Estimand:
    """Return the value of a metric that is not the mean of all scores."""
    name = m.name.rpartition("/")[2]
    estimand = base._replace(logged=Logged(float(m.value)), name=name, keys=(key,))
    if (field := _grouped_by(m)) is not None:
        template = str(m.params.get("name_template", "{group_name}"))
        of_all = m.name == m.params.get("all_label", "all") and m.params.get("all") == "groups"
        kind = "groups" if of_all else "group"
        return estimand._replace(kind=kind, group=m.name, field=field, template=template)
    if m.group == "frequency" and m.params.get("normalize", True):
        return estimand._replace(kind="share")
    why = "a count" if m.group == "frequency" else "no mean of item scores"
    return estimand._replace(kind="other", notes=(f"no interval: {printable_name(name)} is {why}",))


def _same_group(estimand: Estimand, other: Estimand) -> bool:
    return (
        bool(estimand.field)
        and (estimand.kind, estimand.group, estimand.field, estimand.template)
        == (other.kind, other.group, other.field, other.template)
        and _equal(estimand.logged.value, other.logged.value)
    )


def _equal(a: float | None, b: float | None) -> bool:
    """Whether two values are the same but for rounding; NaN is NaN."""
    if a is None or b is None:
        return a is b
    return math.isclose(a, b, rel_tol=1e-12) or (math.isnan(a) and math.isnan(b))


def _kind(m: EvalMetric) -> str:
    """Return the name of the metric's function."""
    return (m.group or m.name).rpartition("/")[2]


def _mean_of(metrics: Mapping[str, EvalMetric]) -> dict[str, EvalMetric]:
    """Return the metrics that are the mean of all scores: the first, and those equal to it."""
    means = {
        k: m
        for k, m in metrics.items()
        if (m.group is None and _kind(m) in AVERAGES)
        or (
            _grouped_by(m) is not None
            and m.name == m.params.get("all_label", "all")
            and m.params.get("all", "samples") == "samples"
        )
    }
    first = next(iter(means.values()), None)
    return {k: m for k, m in means.items() if first is not None and _equal(m.value, first.value)}


def _grouped_by(m: EvalMetric) -> str | None:
    """Return the field by which `grouped` splits the items; None for other metrics."""
    field: Any = m.params.get("group_key")
    inner: Any = m.params.get("metric")
    name = inner.get("name") if isinstance(inner, Mapping) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    is_mean = isinstance(name, str) and name.rpartition("/")[2] in AVERAGES
    return field if is_mean and isinstance(field, str) else None


def reduced(name: str, epochs: Sequence[Sequence[Any]]) -> list[float] | None:
    """Combine the epochs of each item by Inspect's own function; None if it has none of the name.

    Parameters
    ----------
    epochs
        Of each item the values as logged, in the order of the epochs.
    """
    from inspect_ai import Epochs
    from inspect_ai.scorer import Score

    try:
        # A name with a slash would load the package that a log names.
        reducers = Epochs(1, [name]).reducer if "/" not in name else None
    except (LookupError, TypeError, ValueError):
        return None
    if not reducers:
        return None

    def combined(values: Sequence[Any]) -> float:
        # What is no number is missing here, as an unscored epoch is.
        scored = [math.nan if as_score(v) is None else v for v in values]
        reduced_value = as_score(reducers[0]([Score(value=v) for v in scored]).value)
        return math.nan if reduced_value is None else reduced_value

    made: dict[tuple[Any, ...], float] = {}
    for values in map(tuple, epochs):
        # 1, 1.0 and True are one key, and one number.
        if values not in made:
            made[values] = combined(values)
    return [made[tuple(values)] for values in epochs]


def metric_of(estimand: Estimand) -> Callable[[list[SampleScore]], float] | None:
    """Return the function of a metric that is no mean; None if none of this name is registered.

    It is Inspect's own, or one that the caller has registered. Nothing is imported for a log.
    """
    logged = estimand.result.metrics.get(next(iter(estimand.keys), "")) if estimand.result else None
    if logged is None or estimand.kind != "other":
        return None
    name = logged.group or logged.name
    # A name with a slash, also one inside of a parameter, would load the package that a log names.
    plain = all(isinstance(x, (str, int, float, type(None))) for x in logged.params.values())
    if "/" in name or not plain or logged.group == "frequency":
        return None
    import inspect_ai.scorer  # noqa: F401  # pyright: ignore[reportUnusedImport] - Inspect's own are registered by it
    from inspect_ai.util import registry_create

    try:
        function: Any = registry_create("metric", name, **logged.params)
    except Exception:  # noqa: BLE001 - whatever a metric raises, it cannot be recomputed
        return None

    def value(scores: list[SampleScore]) -> float:
        try:
            given = function(scores)
        except AttributeError:
            # Metrics of before `SampleScore` take the scores themselves.
            given = function([s.score for s in scores])
        return float(given[logged.name] if isinstance(given, Mapping) else given)  # pyright: ignore[reportUnknownArgumentType]

    return value


def left_out(
    estimand: Estimand, scores: Sequence[SampleScore], units: Sequence[Any]
) -> list[float] | str | None:
    """Recompute a metric without each unit in turn; why it cannot be, None if it is not known here.

    Parameters
    ----------
    scores
        As Inspect gave them to the metric, in their order.
    units
        Item or cluster of each score.
    """
    metric, name = metric_of(estimand), printable_name(estimand.name)
    if metric is None:
        return None
    numbers = {unit: i % MOST_UNITS for i, unit in enumerate(dict.fromkeys(units))}
    where = [numbers[unit] for unit in units]
    try:
        # Where the jackknife says nothing of a metric's error.
        value, logged, why = metric(list(scores)), estimand.logged.value, ""
        if not math.isfinite(value) or not _equal(value, logged):
            why = f"is {value:.6g} of the samples, and {logged:.6g} was logged"
        elif estimand.name.rpartition("_")[2] in _LEAPS:
            why = "leaps between samples, and the jackknife needs a smooth metric"
        elif not _equal(metric([*scores[::2], *scores[1::2]][::-1]), value):
            why = "depends on the order of the samples"
        elif len(numbers) > MOST_UNITS and _equal(metric([*scores, *scores]), 2 * value):
            why = "is a sum, and blocks of samples differ in size"
        if why:
            return f"{name} {why}"
        without = [
            metric([s for s, unit in zip(scores, where, strict=True) if unit != k])
            for k in range(min(len(numbers), MOST_UNITS))
        ]
    except Exception as error:  # noqa: BLE001 - the metric may be anybody's
        return f"{name} cannot be recomputed ({type(error).__name__})"
    varies = len(set(without)) > 1 and all(map(math.isfinite, without))
    return without if varies else f"{name} does not vary, or has no value, without some samples"
