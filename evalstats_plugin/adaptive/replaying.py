"""Adaptive tests replayed on recorded answers: predicted against known full scores.

* `replay`: test every model of some logs; `AdaptiveTests`: a row per test, and their accuracy
* `test_of`: the same row from the record of a test that was run
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, cast

import numpy as np

from evalstats_plugin.adaptive.bank import ItemBank, left_out
from evalstats_plugin.adaptive.plan import Plan
from evalstats_plugin.adaptive.session import EXHAUSTED
from evalstats_plugin.adaptive.simulation import rank_correlation
from evalstats_plugin.data.responses import Responses
from evalstats_plugin.data.results import Results, finite
from evalstats_plugin.errors import DesignError, SelectionError, few
from evalstats_plugin.runtime.progress import report_progress
from evalstats_plugin.runtime.workers import parallel_map

_SAME = (
    "n_items", "n_in_bank", "ability", "low", "high", "std_error", "cost", "rule",
    "confidence_level",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveTest:
    """Result of one test, with the observed score if the other answers are known."""

    shown: ClassVar[tuple[str, ...]] = (
        "model", "task", "metric", "n_items", "n_in_bank", "ability", "low", "high", "full_score",
        "full_score_low", "full_score_high", "stopped",
    )  # fmt: skip

    model: str
    task: str
    """Several are joined by ", "."""
    metric: str
    n_items: int
    """Items asked."""
    n_in_bank: int
    ability: float
    low: float
    high: float
    std_error: float | None
    abilities: tuple[float, ...] = ()
    """Of a bank of several, where `ability` is the items' main direction; empty for one."""
    abilities_std_error: tuple[float, ...] = ()
    ability_covariance: tuple[tuple[float, ...], ...] = ()
    full_score: float
    """Predicted."""
    full_score_low: float
    full_score_high: float
    observed: float | None = None
    """Mean score over all items of the bank that the log has."""
    n_observed: int = 0
    cost: float | None = None
    stopped: str
    rule: str
    confidence_level: float
    log: str = ""
    asked: tuple[str, ...] = ()
    """Items in the order asked; with their task where there are several."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayAccuracy:
    """Accuracy of the tests, over models whose answers are all known."""

    n_models: int
    n_items: float
    """Mean number of items asked."""
    score_mae: float
    """Mean absolute error of the predicted full score."""
    score_width: float
    """Mean width of its interval."""
    score_coverage: float
    """Share of models whose observed score lies in it."""
    rank_correlation: float | None
    """Spearman's, of predicted and known full scores."""


@dataclass(frozen=True)
class AdaptiveTests(Results[AdaptiveTest]):
    """Tests; for several models also their accuracy."""

    drawn_as: ClassVar[tuple[str, ...]] = ("tests",)

    accuracy: ReplayAccuracy | None = None


def replay(bank: ItemBank, responses: Sequence[Responses], plan: Plan) -> AdaptiveTests:
    """Run the adaptive test of every model in some logs on the recorded answers.

    Parameters
    ----------
    plan
        When each test stops, and how it chooses.

    Raises
    ------
    SelectionError
        No log has scores of the bank's tasks by its metrics.
    DesignError
        An item is a different question than in the bank, or no item of a log may be asked.
    """
    metrics = plan.metrics(bank)
    by_model: dict[tuple[str, str], list[Responses]] = {}
    for each in responses:
        scored = not metrics or each.metric in metrics or each.metric.partition(",")[0] in metrics
        if each.task in bank.task_names and scored:
            by_model.setdefault((each.model, str(each.source.path)), []).append(each)
    if not by_model:
        held = few(list(dict.fromkeys(f"{r.task} ({r.metric})" for r in responses)))
        wanted = few([*bank.task_names]) + f" ({few(metrics) or 'any metric'})"
        msg = f"the logs hold {held or 'no scores'}, and the bank {wanted}"
        msg += ": give logs of the bank's tasks"
        if not any(each.task in bank.task_names for each in responses):
            msg += "; a table without a column of tasks has the name of its file as its task"
        raise SelectionError(msg)
    run = parallel_map(partial(_test, bank, plan), by_model.items())
    rows: list[AdaptiveTest] = []
    for number, (model, _) in enumerate(by_model):
        report_progress(model, number, len(by_model))
        rows.append(next(run))
    rows.sort(key=lambda row: row.task)
    notes = (*left_out(bank), *bank.notes)
    return AdaptiveTests(tuple(rows), notes, plan.seed, accuracy=_accuracy(rows))


def _answers(parts: Sequence[Responses]) -> list[tuple[float, int]]:
    """Mean score and epochs of each item."""
    answers: list[tuple[float, int]] = []
    for part in parts:
        means: Any = part.item_means
        if np.nanmin(means, initial=0.0) < 0 or np.nanmax(means, initial=1.0) > 1:
            msg = f"{part.task} is scored by {part.metric} outside of 0 to 1"
            raise DesignError(f"{msg}: name another metric")
        counts = (~np.isnan(part.scores)).sum(axis=1)
        answers += list(zip(np.nan_to_num(means).tolist(), counts.tolist(), strict=True))
    return answers


def _test(
    bank: ItemBank, plan: Plan, of_model: tuple[tuple[str, str], Sequence[Responses]]
) -> AdaptiveTest:
    """Test one model on its recorded answers."""
    (model, log), parts = of_model
    tasks = [part.task for part in parts]
    metrics = ", ".join(dict.fromkeys(part.metric for part in parts))
    if len(set(tasks)) < len(tasks):
        msg = f"{log} scores {tasks[0]} by several metrics ({metrics})"
        raise SelectionError(f"{msg}: name one")
    ids = [str(item) for part in parts for item in part.item_ids.tolist()]
    owners = [part.task for part in parts for _ in part.item_ids]
    hashes: list[str | None] = []
    for part in parts:
        unknown = [None] * len(part.item_ids)
        hashes += unknown if part.item_hashes is None else part.item_hashes.astype(str).tolist()
    tested = bank.of_tasks(tasks).matched(owners, ids, hashes)
    answer_of = dict(zip(zip(owners, ids, strict=True), _answers(parts), strict=True))
    scored = {key: answer for key, answer in answer_of.items() if answer[1] > 0}
    # Mean score and epochs of each item of the bank.
    answers = [scored.get(key) for key in tested.keys()]  # noqa: SIM118 - not a mapping
    lacks = np.array([answer is None for answer in answers])
    session = plan.session(tested.without(lacks, "no answer in the log"))
    while session.stopped is None:
        for place in session.next().tolist():
            session.record(place, *cast("tuple[float, int]", answers[place]))
    notes = tuple(note for note in tested.notes if note not in bank.notes)
    observed = [answer[0] for answer in answers if answer is not None]
    if any(part.predicted is not None for part in parts):
        observed = []
        notes = (*notes, "answers of an adaptive test: no score of all items is known")
    outcome = session.result().to_dict()
    made = test_of(outcome, model=model, task=", ".join(tasks), metric=metrics, log=log)
    return replace(
        made,
        observed=float(np.mean(observed)) if observed else None,
        n_observed=len(observed),
        asked=_asked([(step.task, step.item) for step in session.answers]),
        notes=notes,
    )


def _accuracy(rows: Sequence[AdaptiveTest]) -> ReplayAccuracy | None:
    """Summarise the tests whose scores are known, if there are several."""
    rows = [row for row in rows if row.observed is not None]
    if len(rows) < 2:
        return None
    names = ("full_score", "full_score_low", "full_score_high", "observed", "n_items")
    columns = {name: np.array([getattr(row, name) for row in rows], np.float64) for name in names}
    low, high, truth = columns["full_score_low"], columns["full_score_high"], columns["observed"]
    rank = rank_correlation(columns["full_score"], truth)
    return ReplayAccuracy(
        n_models=len(rows),
        n_items=float(columns["n_items"].mean()),
        score_mae=float(np.abs(columns["full_score"] - truth).mean()),
        score_width=float((high - low).mean()),
        score_coverage=float(((low - 1e-9 <= truth) & (truth <= high + 1e-9)).mean()),
        rank_correlation=finite(rank),
    )


def test_of(
    outcome: Mapping[str, Any], *, model: str, task: str, metric: str, log: str
) -> AdaptiveTest:
    """Make a row from the result of a session, or from its record in a log."""
    full = outcome["full_score"]
    steps: Sequence[Mapping[str, Any]] = outcome.get("trace", ())
    return AdaptiveTest(
        model=model,
        task=task,
        metric=metric,
        **{name: outcome[name] for name in _SAME},
        abilities=tuple(each["ability"] for each in outcome.get("abilities", ())),
        abilities_std_error=tuple(each["std_error"] for each in outcome.get("abilities", ())),
        ability_covariance=tuple(map(tuple, outcome.get("ability_covariance", ()))),
        full_score=full["estimate"],
        full_score_low=full["low"],
        full_score_high=full["high"],
        stopped=outcome["stopped"] or EXHAUSTED,
        log=log,
        asked=_asked([(str(step["task"]), str(step["item"])) for step in steps]),
        notes=tuple(outcome["notes"]),
    )


def _asked(items: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Name items, with their tasks where there are several."""
    several = len({task for task, _ in items}) > 1
    return tuple(f"{task} / {item}" if several else item for task, item in items)
