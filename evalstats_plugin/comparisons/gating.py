"""Gates: may a candidate be released, given what a baseline scores on the same items?

The limits are those of `compare`, so that a gate and a comparison cannot contradict each other; one
family holds all tasks and groups, because one decision is made of all of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

from evalstats_plugin.comparisons.compare import compare
from evalstats_plugin.comparisons.rows import Comparison
from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.data.methods import Method
from evalstats_plugin.data.responses import Responses
from evalstats_plugin.data.results import Results
from evalstats_plugin.data.runs import ResponseSet
from evalstats_plugin.errors import DesignError
from evalstats_plugin.scores.cells import (
    Bounds,
    check_confidence_level,
    responses_and_notes,
    task_and_metric,
)
from evalstats_plugin.stats.arrays import Rng

Decision = Literal["pass", "regressed", "inconclusive"]

_WORST_FIRST: dict[Decision, int] = {"regressed": 0, "inconclusive": 1, "pass": 2}

_OF_COMPARISON = (
    "task", "metric", "n_items", "difference", "low", "high", "higher_is_better", "kind", "measure",
    "method", "procedure", "confidence_level",
)  # fmt: skip
"""Fields that a row has of the comparison."""

POWER = 0.8
"""Probability with which `GateRow.items_needed` items decide."""


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
    n_items: int
    difference: float | None
    low: float | None
    high: float | None
    decision: Decision
    items_needed: int | None
    """Items that decide with probability `POWER` if the true difference is the one seen; None where
    it is decided, or no number of items would do."""
    higher_is_better: bool | None
    kind: str
    measure: str
    """As of a comparison; margins of a ``"ratio"`` are relative."""
    method: str
    procedure: str
    confidence_level: float
    notes: tuple[str, ...] = ()

    @property
    def largest_drop(self) -> float | None:
        """The largest drop that the limits do not exclude: 0 or more."""
        limits = _gains(self, self.low, self.high)
        return None if limits is None else max(0.0, -limits[0])


@dataclass(frozen=True)
class Gate(Results[GateRow]):
    """Decisions on every candidate, task and metric, and the one that follows from all of them."""

    baseline: str = ""
    margin: float = 0.0
    non_inferior: bool = False
    """Whether it had to be shown that no drop exceeds the margin."""
    confidence_level: float = 0.95
    """Of all tasks, groups and metrics at once."""

    @property
    def decision(self) -> Decision:
        """``"regressed"`` if any row is; else ``"inconclusive"`` if any is; else ``"pass"``."""
        found = {row.decision for row in self.rows}
        if "regressed" in found:
            return "regressed"
        left_out = any(note.startswith("left out: ") for note in self.notes)
        return "inconclusive" if "inconclusive" in found or left_out else "pass"


def gate(
    responses: ResponseSet | ResponseMatrix | Iterable[Responses],
    *,
    baseline: str,
    margin: float = 0.0,
    non_inferior: bool = False,
    confidence_level: float = 0.95,
    method: str | Method = "auto",
    bounds: Bounds | None = None,
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
        Drop that is acceptable, in units of the score (of ratios: relative).
    non_inferior
        Who has to show what. False: a candidate passes unless a drop of more than the margin is
        shown (the whole interval lies below -margin). True: it passes only where it is shown that
        no drop exceeds the margin (the whole interval lies above -margin); where neither is shown
        the decision is ``"inconclusive"``.
    confidence_level
        Of all tasks and groups at once: equal models are called regressed in at most 1 -
        `confidence_level` of all runs. Several metrics share what is left of 1 (Bonferroni).
    method, bounds, rng
        As of `evalstats_plugin.compare`.

    Returns
    -------
    Gate
        A row for each candidate, metric and task of the baseline, the worst first. What the
        candidate did not run, or cannot be compared, is inconclusive: a gate does not pass what
        it has not seen.

    Raises
    ------
    DesignError
        For a margin that is negative or not finite, a margin of 0 that must be shown not to be
        exceeded, or no two models with shared items.
    SelectionError
        No model has the baseline's name.

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
    if not (math.isfinite(margin) and margin >= 0):
        raise DesignError(f"the margin must be 0 or more, in units of the score; it is {margin:g}")
    if non_inferior and margin == 0:
        raise DesignError(
            "a margin of 0 cannot be shown not to be exceeded: say which drop is acceptable, "
            "such as a margin of 0.01"
        )
    listed, notes = responses_and_notes(responses)
    metrics = {task_and_metric(r)[1] for r in listed if r.model == baseline}
    # At least 1: `compare` says what is wrong with a baseline that is not there.
    level = 1 - (1 - confidence_level) / max(len(metrics), 1)
    found = compare(
        listed,
        baseline=baseline,
        confidence_level=level,
        method=method,
        family="run",
        bounds=bounds,
        rng=rng,
    )
    rows = [_decided(row, margin, non_inferior=non_inferior) for row in found]
    rows += _not_compared(listed, baseline, found, level)
    place = {model: i for i, model in enumerate(dict.fromkeys(r.model for r in listed))}
    rows.sort(key=lambda row: (place[row.model], row.metric, _WORST_FIRST[row.decision]))
    return Gate(
        tuple(rows),
        (*notes, *found.notes),
        found.seed,
        baseline,
        margin,
        non_inferior,
        confidence_level,
    )


def _decided(row: Comparison, margin: float, *, non_inferior: bool) -> GateRow:
    limits = _gains(row, row.low, row.high)
    # What was not seen may be worse than what was.
    guarded = _gains(row, row.low_guarded, row.high_guarded)
    notes = row.notes
    decision: Decision = "inconclusive"
    needed = None
    if limits is None:
        notes = (*notes, "no interval: nothing can be decided")
    # At a margin of 0 the verdict of the comparison decides: a limit at 0 may be outside.
    elif row.verdict == "worse" if margin == 0 else limits[1] < -margin:
        decision = "regressed"
    elif not non_inferior or (guarded or limits)[0] > -margin:
        decision = "pass"
    else:
        needed = _items_needed(row, limits, margin)
    return GateRow(
        model=row.model_b,
        baseline=row.model_a,
        decision=decision,
        items_needed=needed,
        notes=notes,
        **{name: getattr(row, name) for name in _OF_COMPARISON},
    )


def _gains(
    row: Comparison | GateRow, low: float | None, high: float | None
) -> tuple[float, float] | None:
    """Return limits of what the candidate gains, whichever scores are better."""
    if low is None or high is None:
        return None
    null = 0.0 if row.measure == "difference" else 1.0
    low, high = low - null, high - null
    return (-high, -low) if row.higher_is_better is False else (low, high)


def _items_needed(row: Comparison, limits: tuple[float, float], margin: float) -> int | None:
    """Return how many items decide if the true difference is the one seen, as `power` says.

    The tail is that in which the interval, which allows for the whole family, ends.
    """
    from scipy import special

    from evalstats_plugin.stats.power import items_needed

    gained = _gains(row, row.difference, row.difference)
    if gained is None or row.low_single is None or row.high_single is None:
        return None
    gain = gained[0]
    distance = abs(gain + margin)
    half_width = gain - limits[0] if gain > -margin else limits[1] - gain
    level = float(special.ndtri((1 + row.confidence_level) / 2))
    error = (row.high_single - row.low_single) / (2 * level)
    if distance == 0 or half_width <= 0 or error <= 0:
        return None
    tail = float(special.ndtr(-half_width / error))
    needed = float(items_needed(distance, row.n_items * error**2, tail=tail, power=POWER))
    return max(math.ceil(needed), row.n_items + 1) if math.isfinite(needed) else None


def _not_compared(
    responses: Iterable[Responses], baseline: str, found: Iterable[Comparison], level: float
) -> list[GateRow]:
    """Return inconclusive rows for what the baseline ran and no comparison covers."""
    listed = list(responses)
    candidates = dict.fromkeys(r.model for r in listed if r.model != baseline)
    seen = {(row.model_b, row.task, row.metric.removesuffix(",none")) for row in found}
    ran = {(r.model, *task_and_metric(r)) for r in listed}
    return [
        GateRow(
            model=model,
            baseline=baseline,
            task=r.task,
            metric=r.metric,
            n_items=0,
            difference=None,
            low=None,
            high=None,
            decision="inconclusive",
            items_needed=None,
            higher_is_better=r.higher_is_better,
            kind="task",
            measure="difference",
            method="none",
            procedure="",
            confidence_level=level,
            notes=(
                "the scores of the two models cannot be compared here"
                if (model, *place) in ran
                else "the candidate has no run of it",
            ),
        )
        for place, r in {task_and_metric(r): r for r in listed if r.model == baseline}.items()
        for model in candidates
        if (model, *place) not in seen
    ]
