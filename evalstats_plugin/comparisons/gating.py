"""Gates: may a candidate be released, given what a baseline scores on the same items?

The limits are those of `compare`, so that a gate and a comparison cannot contradict each other; one
family holds all tasks and groups, because one decision is made of all of them.

The candidate's own log decides nothing: which scores are better, their range, groups and clusters
are the baseline's, and a candidate passes only if it would with the worst score for every item of
the baseline that it lacks. Slices (`gate(by=)`) are those of the baseline's items.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar, Literal

import numpy as np
from scipy import special

from evalstats_plugin.comparisons.compare import compare
from evalstats_plugin.comparisons.planning.pilots import SIMULATED_UP_TO, Pilot, search
from evalstats_plugin.comparisons.planning.solver import EXACT_UP_TO
from evalstats_plugin.comparisons.planning.spreads import Spread, spreads
from evalstats_plugin.comparisons.rows import Comparison
from evalstats_plugin.data.inputs import ResponsesLike, one_by_one
from evalstats_plugin.data.measure import Measure, Measures
from evalstats_plugin.data.methods import Method
from evalstats_plugin.data.responses import Responses
from evalstats_plugin.data.results import INSIDE, Results, grouped
from evalstats_plugin.data.runs import one_of_each
from evalstats_plugin.data.scales import settled
from evalstats_plugin.errors import DesignError, SelectionError, counted, few, no_such
from evalstats_plugin.scores.cells import (
    check_confidence_level,
    make_cell,
    task_and_metric,
)
from evalstats_plugin.scores.slices import has_values, part_of, slice_name, sliced
from evalstats_plugin.stats.arrays import BoolArray, FloatArray, Rng
from evalstats_plugin.stats.pairs import power as stats_power
from evalstats_plugin.stats.pairs.differences import distance

Decision = Literal["pass", "regressed", "inconclusive"]

_WORST_FIRST: dict[Decision, int] = {"regressed": 0, "inconclusive": 1, "pass": 2}

_OF_COMPARISON = (
    "task", "metric", "n_items", "difference", "low", "high", "higher_is_better", "kind", "effect",
    "measure", "method", "procedure", "confidence_level",
)  # fmt: skip
"""Fields that a row has of the comparison."""

POWER = 0.8
"""Probability with which `GateRow.items_needed` items decide, and `detectable` is detected."""

MOST_SIMULATED_ROWS = 12
"""Rows whose items needed are simulated from the scores at hand; of more rows they follow from
standard errors."""
_QUANTILES = np.array([[0.04163226], [0.5], [0.95836774]])
_WEIGHTS = np.array([[1 / 6], [2 / 3], [1 / 6]])
"""Where a posterior is looked at for its mean power: Gauss and Hermite's nodes, -√3, 0 and √3."""

_Range = tuple[float, float] | None
_Place = tuple[str, str]
"""Task and metric."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRow:
    """The decision on one candidate, task and metric.

    Differences and limits are as in `comparisons.Comparison`: candidate minus baseline, for the
    whole family at once; None where nothing could be compared.
    """

    shown: ClassVar[tuple[str, ...]] = (
        "model", "baseline", "task", "metric", "n_items", "difference", "low", "high", "decision",
        "items_needed",
    )  # fmt: skip

    model: str
    baseline: str
    task: str
    metric: str
    n_items: int = 0
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    decision: Decision
    items_needed: int | None = None
    """Items that decide with probability `POWER` if the true difference is the one seen; None where
    it is decided, or no number of items would do."""
    margin: float
    """Drop that is acceptable, in units of the score; of a ``"ratio"``, relative."""
    score_range: tuple[float, float] | None
    """Least and greatest possible score, where known."""
    detectable: float | None = None
    """Least true drop that is called regressed with probability `POWER`, the mean over what such
    runs may show, with so many items and differences that vary like these; None where no drop is
    large enough, or nothing varies. Of several rows it allows for all, and the power is greater."""
    n_lacking: int = 0
    """Items with a score of the baseline and none of the candidate."""
    higher_is_better: bool | None
    kind: str
    effect: str
    """As of a comparison; margins of a ``"ratio"`` are relative."""
    by: str = ""
    """Field of the items whose value is `slice`; empty where all items of the task are judged."""
    slice: str = ""
    method: str
    procedure: str
    confidence_level: float
    notes: tuple[str, ...] = ()
    measure: Measure | None = field(default=None, repr=False, metadata={INSIDE: Measure.to_dict})
    """As of a comparison."""

    @property
    def name(self) -> str:
        """The task, and the slice of it that is judged."""
        return slice_name(self.task, self.by, self.slice) if self.by else self.task

    @property
    def largest_drop(self) -> float | None:
        """The largest drop that the limits do not exclude: 0 or more."""
        limits = _gains(self, self.low, self.high)
        return None if limits is None else max(0.0, -limits[0])


@dataclass(frozen=True)
class Gate(Results[GateRow]):
    """Decisions on every candidate, task and metric, and the one that follows from all of them."""

    baseline: str = ""
    margin: float | str = 0.0
    """As it was given."""
    non_inferior: bool = False
    """Whether it had to be shown that no drop exceeds the margin."""
    confidence_level: float = 0.95
    """Of all tasks, groups and metrics at once."""
    protocol: str = ""
    """SHA-256 of the file that says how the decision is made; empty without one."""

    @property
    def decision(self) -> Decision:
        """``"regressed"`` if any row is; else ``"inconclusive"`` if any is; else ``"pass"``."""
        decisions = {row.decision for row in self.rows}
        if "regressed" in decisions:
            return "regressed"
        left_out = any(note.startswith("left out: ") for note in self.notes)
        return "inconclusive" if "inconclusive" in decisions or left_out else "pass"


def gate(
    responses: ResponsesLike,
    *,
    baseline: str,
    margin: float | str = 0.0,
    non_inferior: bool = False,
    confidence_level: float = 0.95,
    method: str | Method = "auto",
    measure: Measures = None,
    items: Mapping[str, int] | None = None,
    by: str | None = None,
    top: int | None = None,
    rng: Rng = None,
) -> Gate:
    """Decide whether candidates pass, compared with a baseline on the same items.

    Parameters
    ----------
    responses
        What `evalstats_plugin.read` gave, or any `Responses`: of the baseline and the candidates,
        which are all other models.
    baseline
        Model that the candidates must not fall behind.
    margin
        Drop that is acceptable: in units of the score (of ratios: relative), or as a text such as
        ``"2%"``, a share of the range of the scores.
    non_inferior
        Who has to show what. False: a candidate passes unless a drop of more than the margin is
        shown (the whole interval lies below -margin). True: it passes only where it is shown that
        no drop exceeds the margin (the whole interval lies above -margin); where neither is shown
        the decision is ``"inconclusive"``.
    confidence_level
        Of all tasks and groups at once: equal models are called regressed in at most 1 -
        `confidence_level` of all runs. Several metrics share what is left of 1 (Bonferroni).
    items
        By task, how many items must have been compared: with fewer the task does not pass.
    by, top
        Also decide on each slice of a task, as of `evalstats_plugin.slices`. The baseline's items
        say which there are, and all tasks and slices are one family.
    method, measure, rng
        As of `evalstats_plugin.compare`.

    Returns
    -------
    Gate
        A row for each candidate, metric, and task or slice of the baseline, the worst first. What
        the candidate did not run, or cannot be compared, is inconclusive: a gate does not pass what
        it has not seen. Of items that the candidate lacks, the worst scores are assumed.

    Raises
    ------
    DesignError
        For a margin that is negative, not finite, or as large as the range of the scores; a share
        of the range for a group of tasks with several; a margin of 0 that must be shown not to be
        exceeded; a candidate whose scores are on another scale than the baseline's, or better where
        the baseline's are worse; no two models with shared items; or as of `slices`.
    SelectionError
        No model has the baseline's name; or `items` names a task that the baseline did not run.

    Examples
    --------
    >>> import numpy as np
    >>> import evalstats_plugin as es
    >>> scores = np.repeat([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]], [120, 60, 20], axis=0)
    >>> matrix = es.ResponseMatrix.from_array(scores.T, models=["new", "old"])
    >>> es.gate(matrix, baseline="old").decision
    'pass'
    >>> es.gate(matrix, baseline="new").decision
    'regressed'
    >>> es.gate(matrix, baseline="old", margin=0.02, non_inferior=True)[0].decision
    'pass'
    """
    check_confidence_level(confidence_level)
    drop, of_range = parse_margin(margin)
    if non_inferior and drop == 0:
        raise DesignError(
            "a margin of 0 cannot be shown not to be exceeded: say which drop is acceptable, "
            "such as a margin of 0.01 or 2%"
        )
    each, notes = one_by_one(responses, measure)
    # Alone: with the candidates, their scores would say what the scale is.
    own = iter(settled([r for r in each if r.model == baseline]))
    listed = [next(own) if r.model == baseline else r for r in each]
    standards = {task_and_metric(r): r for r in listed if r.model == baseline}
    limits = Limits(drop, of_range, non_inferior, _ranges(standards.values()))
    for place, standard in standards.items():
        limits.check(place, is_ratio=make_cell(standard).kind == "ratio")
    # At least 1: `compare` says what is wrong with a baseline that is not there.
    level = 1 - (1 - confidence_level) / max(len({metric for _, metric in standards}), 1)
    terms = [_as_the_baseline(r, standards, limits) for r in listed]
    judged = [r for r in terms if r is not None]
    names: dict[str, tuple[str, str]] = {}
    if by is not None:
        parts, names, about_slices = _by_slices(judged, standards, by, top)
        notes = (*notes, *about_slices)
        judged += parts
        listed += parts
        standards |= {task_and_metric(r): r for r in parts if r.model == baseline}
        limits = replace(limits, ranges=_ranges(standards.values()))

    if standards and len({r.model for r in listed}) > 1 == len({r.model for r in judged}):
        ran = few([" ".join(place) for place in standards])
        raise DesignError(f"no other model ran what the baseline {baseline} did: {ran}")

    compared = partial(
        compare, baseline=baseline, confidence_level=level, method=method, family="run",
        overall=False, rng=rng,
    )  # fmt: skip
    comparisons = compared(judged if standards else listed)
    lacking = {
        (r.model, *task_and_metric(r)): gone
        for r in one_of_each(judged)
        if r.model != baseline and (gone := _lacking(r, standards[task_and_metric(r)])).any()
    }
    rows = [limits.decided(row) for row in comparisons]
    if lacking:
        worst = [_with_the_worst(r, standards, limits, lacking) for r in judged]
        at_worst = {_key(row): row for row in map(limits.decided, compared(worst))}
        rows = [_allowing_for(row, at_worst.get(_key(row)), lacking, limits) for row in rows]
    rows += _not_compared(listed, standards.values(), comparisons, level, limits)
    tasks = list(dict.fromkeys(row.task for row in rows))
    for task in items or {}:
        if task not in tasks:
            raise SelectionError(no_such("task that is decided on", task, tasks, few(tasks)))
    rows = [_with_enough(row, items or {}) for row in rows]
    rows = _with_detectable(rows, judged, baseline)
    rows = [
        replace(row, task=names[row.task][0], by=by or "", slice=names[row.task][1])
        if row.task in names else row
        for row in rows
    ]  # fmt: skip
    place_of = {model: i for i, model in enumerate(dict.fromkeys(r.model for r in listed))}
    rows.sort(key=lambda row: (place_of[row.model], row.metric, _WORST_FIRST[row.decision]))
    return Gate(
        tuple(rows), (*notes, *comparisons.notes), comparisons.seed, baseline, margin, non_inferior,
        confidence_level,
    )  # fmt: skip


def parse_margin(margin: float | str) -> tuple[float, bool]:
    """Return a margin as a number, and whether it is a share of the range.

    >>> parse_margin("2%"), parse_margin("0.02"), parse_margin(0.02)
    ((0.02, True), (0.02, False), (0.02, False))

    Raises
    ------
    DesignError
        It is no number of 0 or more, or a share of all.
    """
    text = str(margin).strip()
    share = text.endswith("%")
    try:
        value = float(text.removesuffix("%")) if "_" not in text else math.nan
    except ValueError:
        value = math.nan
    value = value / 100 if share else value
    if not (math.isfinite(value) and value >= 0):
        raise DesignError(
            "the margin must be 0 or more, in units of the score such as 0.02, or a share of its "
            f"range such as 2%; it is {text!r}"
        )
    if share and value >= 1:
        raise DesignError(f"a margin of {text} is the whole range: every candidate would pass")
    return value, share


@dataclass(frozen=True)
class Limits:
    """What drop is acceptable, and who has to show what."""

    drop: float
    of_range: bool
    non_inferior: bool
    ranges: Mapping[_Place, _Range]
    """Of the scores, by task or group and metric; of no group whose tasks have several."""

    def check(self, place: _Place, *, is_ratio: bool) -> None:
        """Refuse a margin that any candidate would keep, or a share of an unknown range."""
        span = self.ranges[place]
        name = " ".join(place)
        if span is None:
            if self.of_range and not is_ratio:
                raise DesignError(
                    f"the scores of {name} have no known range, so that a margin of "
                    f"{100 * self.drop:g}% is a share of nothing: give the margin in units of the "
                    f"score or the range, such as --bounds {place[1]}=0,100"
                )
        elif not self.of_range and self.drop >= span[1] - span[0]:
            raise DesignError(
                f"a margin of {self.drop:g} is as much as the range {span[0]:g} to {span[1]:g} of "
                f"{name}: every candidate would pass. Give it in units of the score, or as a share "
                "of the range, such as 2%"
            )

    def of(self, row: Comparison | Responses) -> tuple[float, _Range]:
        """Return the margin in units of the score, and the range."""
        place = (row.task, row.metric.removesuffix(",none"))
        span = self.ranges.get(place)
        if self.of_range and place not in self.ranges:
            why = f"the tasks of {row.task} have different ranges, so that no margin is a % of it"
            raise DesignError(f"{why}: give it in units of the score, or judge each task alone")
        return self.drop * (span[1] - span[0]) if self.of_range and span else self.drop, span

    def decided(self, row: Comparison) -> GateRow:
        """Return the decision on one comparison."""
        margin, span = self.of(row)
        limits = _gains(row, row.low, row.high)
        # What was not seen may be worse than what was.
        guarded = _gains(row, row.low_guarded, row.high_guarded) or limits
        notes = row.notes
        decision: Decision = "inconclusive"
        needed = None
        if limits is None:
            notes = (*notes, "no interval: nothing can be decided")
        # At a margin of 0 the verdict of the comparison decides: a limit at 0 may be outside.
        elif row.verdict == "worse" if margin == 0 else limits[1] < -margin:
            decision = "regressed"
        elif not self.non_inferior or (guarded and min(limits[0], guarded[0]) > -margin):
            decision = "pass"
        else:
            needed = _items_needed(row, limits, margin)
        return GateRow(
            model=row.model_b,
            baseline=row.model_a,
            decision=decision,
            items_needed=needed,
            margin=margin,
            score_range=span,
            detectable=_detectable(row, limits, margin),
            notes=notes,
            **{name: getattr(row, name) for name in _OF_COMPARISON},
        )


def _key(row: GateRow) -> tuple[str, str, str, str]:
    return row.model, row.task, row.metric.removesuffix(",none"), row.kind


def _ranges(standards: Iterable[Responses]) -> dict[_Place, _Range]:
    spans = {task_and_metric(r): make_cell(r).bounds for r in standards}
    in_groups = [(g.name, *task_and_metric(r)) for r in standards for g in r.groups]
    # A group has the range of its tasks.
    of_groups = grouped(in_groups, lambda place: (place[0], place[2]))
    every = {g: {spans[place[1:]] for place in own} for g, own in of_groups.items()}
    return {g: own.pop() for g, own in every.items() if len(own) == 1} | spans


def _as_the_baseline(
    r: Responses, standards: Mapping[_Place, Responses], limits: Limits
) -> Responses | None:
    """Return responses with what the baseline's log says of the task; None of another task.

    Raises
    ------
    DesignError
        The log says that other scores are better, or has scores outside the baseline's range.
    """
    standard = standards.get(task_and_metric(r))
    if standard is None or r.model == standard.model:
        return standard and r
    name = f"{r.task} {r.metric}"
    higher = standard.higher_is_better is not False
    if r.higher_is_better not in (None, higher):
        better, other = ("lower", "higher") if higher else ("higher", "lower")
        raise DesignError(
            f"{name}: in the log of {r.model} {better} scores are better, in that of "
            f"{standard.model} {other} ones: score both in the same way"
        )
    span = limits.ranges[task_and_metric(r)]
    scores = r.scores[np.isfinite(r.scores)]
    if (
        span is not None
        and scores.size
        and not (span[0] <= scores.min() <= scores.max() <= span[1])
    ):
        raise DesignError(
            f"{name}: the scores of {r.model}, {scores.min():g} to {scores.max():g}, leave the "
            f"range {span[0]:g} to {span[1]:g} of {standard.model}: score both on the same scale, "
            f"or say what it is, such as --bounds {r.metric}=0,100"
        )
    return replace(
        r,
        measure=replace(
            r.measure,
            higher_is_better=standard.measure.higher_is_better,
            direction_from=standard.measure.direction_from,
            scale=standard.measure.scale,
            scale_from=standard.measure.scale_from,
        ),
        groups=standard.groups,
        # Joined models have the clusters of any of them.
        clusters=None if r.pairs is None else r.clusters,
    )


def _by_slices(
    judged: Sequence[Responses], standards: Mapping[_Place, Responses], by: str, top: int | None
) -> tuple[list[Responses], dict[str, tuple[str, str]], tuple[str, ...]]:
    """Return slices of tasks as tasks of their own, task and slice of each by its name, and notes.

    A slice holds the items that are in it in the baseline's log.
    """
    if has_values(judged):
        raise DesignError(
            f"a gate decides on one run of each model, and there are several values of {by!r}: "
            "name a field of the items, or give the logs of one value"
        )
    own, members_of, notes = sliced(list(standards.values()), by, top)
    parts: list[Responses] = []
    names: dict[str, tuple[str, str]] = {}
    for standard, members in zip(own, members_of, strict=True):
        for name, inside in members.items():
            ids = standard.item_ids[inside].astype(str)
            task = slice_name(standard.task, by, name)
            if any(task == other for other, _ in standards):
                raise DesignError(f"{task} is also a task of its own: name another field")
            names[task] = standard.task, name
            for r in judged:
                if task_and_metric(r) == task_and_metric(standard) and r.predicted is None:
                    kept = np.isin(r.item_ids.astype(str), ids)
                    parts += [part_of(r, kept).measured(task=task)] if kept.any() else []
    return parts, names, notes


def _lacking(r: Responses, standard: Responses) -> BoolArray:
    """Items with a score of the baseline and none of the candidate, shape (M,)."""
    scored = standard.item_ids[_has_score(standard)].astype(str)
    # An adaptive test predicts the items that it did not ask.
    return (r.predicted is None) & ~np.isin(scored, r.item_ids[_has_score(r)].astype(str))


def _has_score(r: Responses) -> BoolArray:
    return np.ones(len(r.item_ids), np.bool_) if r.pairs is not None else ~np.isnan(r.item_means)


def _with_the_worst(
    r: Responses,
    standards: Mapping[_Place, Responses],
    limits: Limits,
    lacking: Mapping[tuple[str, str, str], BoolArray],
) -> Responses:
    """Return responses with the worst score for what the candidate lacks, where there is one."""
    place = task_and_metric(r)
    gone, span = lacking.get((r.model, *place)), limits.ranges[place]
    if gone is None or span is None or r.pairs is not None:
        return r
    standard = standards[place]
    ids = standard.item_ids[_has_score(standard)].astype(str)[gone]
    kept = _has_score(r)
    worst = np.full((len(ids), r.scores.shape[1]), span[standard.higher_is_better is False])
    return replace(
        r, item_ids=np.concatenate([r.item_ids[kept].astype(str), ids]),
        scores=np.concatenate([r.scores[kept], worst]),
        weights=None, item_hashes=None, chance=None, tags=None,
    )  # fmt: skip


def _allowing_for(
    row: GateRow,
    at_worst: GateRow | None,
    lacking: Mapping[tuple[str, str, str], BoolArray],
    limits: Limits,
) -> GateRow:
    """Return a row that passes only if it does with the worst scores for what is lacking."""
    own = lacking.get((row.model, row.task, row.metric.removesuffix(",none")))
    if own is None and (row.kind == "task" or all(model != row.model for model, *_ in lacking)):
        return row
    row = replace(row, n_lacking=0 if own is None else int(own.sum()))
    worst_is_known = at_worst is not None and (
        row.kind != "task" or limits.ranges[row.task, _key(row)[2]]
    )
    if row.decision != "pass" or (worst_is_known and at_worst and at_worst.decision == "pass"):
        return row
    of_all = "" if own is None else f"{own.sum():,} of {counted(len(own), 'item')}"
    why = (
        f"the candidate has no score of {of_all or 'some items'} of the baseline, and would not "
        "pass if they were the worst possible: run them"
    )
    return replace(row, decision="inconclusive", notes=(*row.notes, why))


def _with_enough(row: GateRow, items: Mapping[str, int]) -> GateRow:
    """Return a row that does not pass with fewer items than were asked for."""
    asked = items.get(row.task, row.n_items)
    if row.n_items >= asked or row.decision != "pass":
        return row
    why = f"{counted(row.n_items, 'item')} of the {asked:,} that must be compared"
    return replace(row, decision="inconclusive", notes=(*row.notes, why))


def _with_detectable(
    rows: Sequence[GateRow], responses: Sequence[Responses], baseline: str
) -> list[GateRow]:
    """Return rows of tasks with the drop that is detected beyond the margin, allowing for all rows.

    Groups and metrics that are no means keep what follows from their intervals.
    """
    by_model: dict[str, dict[_Place, Spread]] = {}
    for model in dict.fromkeys(row.model for row in rows if row.n_items):
        own = [r for r in responses if r.model in (model, baseline)]
        with suppress(DesignError):  # nothing to plan with
            each = spreads(own, paired=True)[0]
            by_model[model] = {(s.task, s.metric.removesuffix(",none")): s for s in each}
    spread_of: dict[int, Spread] = {
        i: spread
        for i, row in enumerate(rows)
        if row.kind == "task" and (spread := by_model.get(row.model, {}).get(_key(row)[1:3]))
    }
    made = list(rows)
    for metric, here in grouped(spread_of, lambda i: rows[i].metric.removesuffix(",none")).items():
        n_tests = sum(row.metric.removesuffix(",none") == metric for row in rows)
        tail = (1 - rows[0].confidence_level) / 2 / n_tests
        least = _least_drops([spread_of[i] for i in here], [rows[i] for i in here], tail)
        for i, drop in zip(here, least.tolist(), strict=True):
            detectable = None if math.isnan(drop) else rows[i].margin + drop
            made[i] = replace(rows[i], detectable=detectable)
        undecided = [i for i in here if made[i].items_needed is not None]
        for i in undecided if len(undecided) <= MOST_SIMULATED_ROWS else []:
            made[i] = replace(made[i], items_needed=_simulated_items(spread_of[i], made[i], tail))
    return made


def _simulated_items(spread: Spread, row: GateRow, tail: float) -> int | None:
    """Return how many items show, with probability `POWER`, what the difference seen would be.

    Within the margin that there is no larger drop, and beyond it that there is one.
    """
    start, gain = row.items_needed, _gains(row, row.difference, row.difference)
    if not spread.pilots or gain is None or start is None or start > SIMULATED_UP_TO:
        return start
    if gain[0] <= -row.margin:
        return start
    pilot: Pilot = spread.pilots[0]
    # The candidate comes second.
    planned = (pilot if spread.models[int(spread.b[0])] == row.model else pilot.swapped()).planned()

    def power_of(n: float) -> float:
        return planned.non_inferior(n, gain[0], tail=tail, margin=row.margin)

    needed = search(power_of, start, tail=tail, power=POWER, whole=True, most=SIMULATED_UP_TO)
    return max(int(needed), row.n_items + 1) if math.isfinite(needed) else start


def _least_drops(planned: Sequence[Spread], rows: Sequence[GateRow], tail: float) -> FloatArray:
    """Return the least drops beyond the margin that are detected with probability `POWER`.

    0/1 scores: as many items differ anyway as here, in either direction alike, and those that are
    lost come on top, in several epochs each by itself. Other scores: the differences vary as here.
    The power is the mean over the posterior of the share gained (Jeffreys' prior), or of the
    variance: at what was seen, which is often 0, it would fall short of `POWER`.

    NaN where no drop is large enough, or nothing varies.
    """
    columns = [
        (s.n_items[0], s.design_effect[0], s.freedom[0], s.bounded, row.margin,
         s.discordance[0], s.n_epochs,
         max(s.between[0] + np.nan_to_num(s.within[0]) / s.n_epochs, 0.0) + _variance_of_halves(s))
        for s, row in zip(planned, rows, strict=True)
    ]  # fmt: skip
    table = np.array(columns, dtype=np.float64)
    n, effect, freedom, span, margin, discordance, n_epochs, variance = table.T
    independent = np.maximum(np.floor(n / effect + 1e-9), 1.0)
    won = independent * discordance / 2
    gained = special.betaincinv(won + 0.5, independent - won + 0.5, _QUANTILES)
    variances = variance / effect * freedom / 2 / special.gammaincinv(freedom / 2, _QUANTILES)
    is_binary: BoolArray = ~np.isnan(discordance) & (n_epochs == 1)
    in_epochs: BoolArray = ~np.isnan(discordance) & (n_epochs > 1)
    exact = is_binary & (n <= EXACT_UP_TO)

    def power_exactly(drop: FloatArray) -> FloatArray:
        lost = np.minimum(margin[exact] + drop, 1.0)
        differing = np.minimum(2 * gained[:, exact] + lost, 1.0)
        # A drop beyond a margin is as hard to find as one beyond 0 of the same variance.
        alike = np.maximum(differing - lost**2 + drop**2, drop)
        power = stats_power.paired_power(independent[exact], alike, drop, tail=tail)
        if not margin[exact].any():
            return power
        # And no less hard than to show that there is a drop at all.
        of_any = stats_power.paired_power(independent[exact], differing, lost, tail=tail)
        return np.minimum(power, of_any)

    def power_by_t(drop: FloatArray) -> FloatArray:
        lost = margin[~exact] + drop
        of_counts = np.minimum(2 * gained[:, ~exact] + lost, 1.0) - lost**2
        of_epochs = in_epochs[~exact] * lost * (1 - np.minimum(lost, 1.0)) / n_epochs[~exact]
        of_scores = variances[:, ~exact] + of_epochs / effect[~exact]
        is_count = np.broadcast_to(is_binary[~exact], of_scores.shape)
        of_scores[is_count] = of_counts[is_count]
        items = np.broadcast_to(independent[~exact], of_scores.shape)
        return stats_power.t_power(items, drop, of_scores, tail=tail)

    least_drops = np.full(len(n), np.nan)
    highest = np.minimum(span, 1e3 * np.sqrt(variance))
    highest[is_binary] = 1.0 - margin[is_binary]
    for which, power_of in ((exact, power_exactly), (~exact, power_by_t)):
        if which.any():
            least_drops[which] = stats_power.least_difference(
                lambda drop, power_of=power_of: (_WEIGHTS * power_of(drop)).sum(axis=0),
                highest[which],
                power=POWER,
                tolerance=1e-5,
            )
    return least_drops


def _variance_of_halves(planned: Spread) -> float:
    """Return what half an item on either side, where the largest differences are, adds."""
    if not planned.pilots or planned.pilots[0].clustered:
        return 0.0
    differences = planned.pilots[0].tasks[0].answered().differences()
    return float(distance(differences[None])[0]) ** 2 / float(planned.n_items[0])


def _gains(
    row: Comparison | GateRow, low: float | None, high: float | None
) -> tuple[float, float] | None:
    """Return limits of what the candidate gains, whichever scores are better."""
    if low is None or high is None:
        return None
    null = 0.0 if row.effect == "difference" else 1.0
    low, high = low - null, high - null
    return (-high, -low) if row.higher_is_better is False else (low, high)


def _items_needed(row: Comparison, limits: tuple[float, float], margin: float) -> int | None:
    """Return how many items decide if the true difference is the one seen, as `power` says."""
    gain = _gains(row, row.difference, row.difference)
    if gain is None:
        return None
    beyond = gain[0] + margin
    half_width = gain[0] - limits[0] if beyond > 0 else limits[1] - gain[0]
    error, tail = _error_and_tail(row, half_width)
    if beyond == 0 or tail is None:
        return None
    variance = row.n_items * error**2
    needed = float(stats_power.items_needed(beyond, variance, tail=tail, power=POWER))
    return max(math.ceil(needed), row.n_items + 1) if math.isfinite(needed) else None


def _detectable(row: Comparison, limits: tuple[float, float] | None, margin: float) -> float | None:
    """Return the least drop that is detected, of differences with the error of the interval."""
    gain = _gains(row, row.difference, row.difference)
    if limits is None or gain is None:
        return None
    error, tail = _error_and_tail(row, limits[1] - gain[0])
    if tail is None:
        return None
    return margin + float(stats_power.difference_needed(1, error**2, tail=tail, power=POWER))


def _error_and_tail(row: Comparison, half_width: float) -> tuple[float, float | None]:
    """Return the standard error, and the tail in which an interval for the whole family ends."""
    low, high = _gains(row, row.low_single, row.high_single) or (0.0, 0.0)
    error = (high - low) / (2 * float(special.ndtri((1 + row.confidence_level) / 2)))
    if half_width <= 0 or error <= 0:
        return 0.0, None
    # Limits of two or three units can be so far out that no tail is left.
    return error, float(special.ndtr(-half_width / error)) or None


def _not_compared(
    responses: Sequence[Responses],
    standards: Iterable[Responses],
    comparisons: Iterable[Comparison],
    level: float,
    limits: Limits,
) -> list[GateRow]:
    """Return inconclusive rows for what the baseline ran and no comparison covers."""
    candidates = dict.fromkeys(r.model for r in responses)
    seen = {(row.model_b, row.task, row.metric.removesuffix(",none")) for row in comparisons}
    ran = {(r.model, *task_and_metric(r)) for r in responses}
    return [
        GateRow(
            model=model,
            baseline=r.model,
            task=r.task,
            metric=r.metric,
            decision="inconclusive",
            margin=limits.of(r)[0],
            score_range=limits.of(r)[1],
            higher_is_better=r.higher_is_better,
            kind="task",
            effect="difference",
            measure=r.measure,
            method="none",
            procedure="",
            confidence_level=level,
            notes=(
                "the scores of the two models cannot be compared here"
                if (model, *task_and_metric(r)) in ran
                else "the candidate has no run of it",
            ),
        )
        for r in standards
        for model in candidates
        if model != r.model and (model, *task_and_metric(r)) not in seen
    ]
