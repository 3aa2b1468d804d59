"""Recorded answers asked adaptively: how few of them would have told the score of all?"""
# PART adaptive_simulation - How right adaptive tests of models drawn from a bank are after n items, rule by rule.

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np

from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.adaptive.calibrate import left_out
from evalstats_plugin.adaptive.plan import Plan
from evalstats_plugin.adaptive.scoring import Anchors, Belief, anchor_points
from evalstats_plugin.adaptive.selection import RULE_NAMES, Tables
from evalstats_plugin.adaptive.session import EXHAUSTED
from evalstats_plugin.adaptive.simulate import (
    Checkpoint,
    Drawn,
    Options,
    checkpoint,
    draw_models,
    rank_correlation,
    run_sessions,
)
from evalstats_plugin.data.responses import Responses
from evalstats_plugin.data.results import Results, finite
from evalstats_plugin.errors import DesignError, SelectionError, few, no_such
from evalstats_plugin.runtime.workers import mapped
from evalstats_plugin.stats.arrays import FloatArray
from evalstats_plugin.stats.interval import normal_quantile

OnModel = Callable[[str, int, int], None]


_SAME = (
    "n_items", "n_in_bank", "ability", "low", "high", "std_error", "cost", "rule",
    "confidence_level",
)  # fmt: skip


OnRule = Callable[[str, int, int], None]


RAW = "random, raw mean"


ANCHORS = "anchors"


WEIGHTED = "anchors, weighted mean"


PROJECTED = "anchors, projected"


RIVALS = (RAW, ANCHORS)
"""What is no rule: the mean of a random subset, and tinyBenchmarks' anchor points [Pol24]_."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveTest:
    """What a test said of one model, and, where all answers are known, what they say."""

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
class RuleError:
    """How right one rule was, over models whose answers are all known."""

    rule: str
    n_models: int
    n_items: float
    """Asked, on average."""
    score_mae: float
    """Mean absolute error of the predicted full score."""
    score_width: float
    """Mean width of its interval."""
    score_coverage: float
    """Share of models whose score on all answers lies in it."""
    rank_correlation: float | None
    """Spearman's, of predicted and known full scores."""


@dataclass(frozen=True)
class AdaptiveTests(Results[AdaptiveTest]):
    """Tests, and where several models were tested how right each rule was."""

    by_rule: tuple[RuleError, ...] = ()


def replay(
    bank: ItemBank,
    responses: Sequence[Responses],
    plan: Plan,
    *,
    rules: Sequence[str] = (),
    on_model: OnModel | None = None,
) -> AdaptiveTests:
    """Test every model of some logs on the answers that are in them.

    Parameters
    ----------
    rules
        To choose items by, each in a test of its own; that of the plan where none is given.

    Raises
    ------
    SelectionError
        No log holds scores of the bank's tasks by its metrics; no such rule.
    DesignError
        An item is another question than in the bank, or none of a log may be asked.
    """
    by_model: dict[tuple[str, str], list[Responses]] = {}
    for each in responses:
        if each.task in bank.task_names and _wants(each.metric, plan.metrics(bank)):
            by_model.setdefault((each.model, str(each.source.path)), []).append(each)
    if not by_model:
        found = few(list(dict.fromkeys(f"{r.task} ({r.metric})" for r in responses)))
        wanted = few([*bank.task_names]) + f" ({few(plan.metrics(bank)) or 'any metric'})"
        msg = f"the logs hold {found or 'no scores'}, expected of the bank's tasks {wanted}"
        if not any(each.task in bank.task_names for each in responses):
            msg += "; a table that names no task is of the task that its file is named"
        raise SelectionError(msg)
    run = mapped(partial(_tests, bank, plan, rules), by_model.items())
    rows: list[AdaptiveTest] = []
    for number, (model, _) in enumerate(by_model):
        if on_model is not None:
            on_model(model, number, len(by_model))
        rows += next(run)
    rows.sort(key=lambda row: row.task)
    notes = (*left_out(bank), *bank.notes)
    return AdaptiveTests(tuple(rows), notes, plan.seed, by_rule=_by_rule(rows))


def _tests(
    bank: ItemBank,
    plan: Plan,
    rules: Sequence[str],
    of_model: tuple[tuple[str, str], Sequence[Responses]],
) -> list[AdaptiveTest]:
    """Test one model, by each rule."""
    known = _known(bank, *of_model)
    plans = [replace(plan, rule=rule) for rule in rules] or [plan]
    tests = [_test(known, each) for each in plans]
    # "auto" does more than the rule that it takes, and stands beside it under its own name.
    names = rules or [test.rule for test in tests]
    return [replace(test, rule=name) for test, name in zip(tests, names, strict=True)]


def _by_rule(rows: Sequence[AdaptiveTest]) -> tuple[RuleError, ...]:
    """Sum tests up, of each rule, where there are some to sum up."""
    known = [row for row in rows if row.observed is not None]
    groups = {rule: [row for row in known if row.rule == rule] for rule in _rules(known)}
    return tuple(_error(rule, group) for rule, group in groups.items() if len(group) > 1)


def _rules(rows: Sequence[AdaptiveTest]) -> list[str]:
    return list(dict.fromkeys(row.rule for row in rows))


def _error(rule: str, rows: Sequence[AdaptiveTest]) -> RuleError:
    names = ("full_score", "full_score_low", "full_score_high", "observed", "n_items")
    found = {name: np.array([getattr(row, name) for row in rows], np.float64) for name in names}
    low, high, truth = found["full_score_low"], found["full_score_high"], found["observed"]
    rank = rank_correlation(found["full_score"], truth)
    return RuleError(
        rule=rule,
        n_models=len(rows),
        n_items=float(found["n_items"].mean()),
        score_mae=float(np.abs(found["full_score"] - truth).mean()),
        score_width=float((high - low).mean()),
        score_coverage=float(((low - 1e-9 <= truth) & (truth <= high + 1e-9)).mean()),
        rank_correlation=finite(rank),
    )


def _wants(metric: str, wanted: Sequence[str]) -> bool:
    return not wanted or metric in wanted or metric.partition(",")[0] in wanted


class _Known(NamedTuple):
    """One model's answers, and the bank for them."""

    model: str
    log: str
    task: str
    metric: str
    bank: ItemBank
    notes: tuple[str, ...]
    answers: Sequence[tuple[float, int] | None]
    """Mean score and epochs of each item of the bank."""


def _known(bank: ItemBank, named: tuple[str, str], parts: Sequence[Responses]) -> _Known:
    tasks = [part.task for part in parts]
    metrics = ", ".join(dict.fromkeys(part.metric for part in parts))
    if len(set(tasks)) < len(tasks):
        msg = f"{named[1]} scores {tasks[0]} by several metrics ({metrics}), expected one"
        raise SelectionError(f"{msg}: name it")
    ids = [str(item) for part in parts for item in part.item_ids.tolist()]
    owners = [part.task for part in parts for _ in part.item_ids]
    hashes = [text for part in parts for text in _hashes(part)]
    own = bank.of_tasks(tasks).matched(owners, ids, hashes)
    known = dict(zip(zip(owners, ids, strict=True), _answers(parts), strict=True))
    scored = {key: answer for key, answer in known.items() if answer[1] > 0}
    answers = [scored.get(key) for key in own.keys()]  # noqa: SIM118 - not a mapping
    own = own.without(np.array([answer is None for answer in answers]), "no answer in the log")
    notes = tuple(note for note in own.notes if note not in bank.notes)
    return _Known(*named, ", ".join(tasks), metrics, own, notes, answers)


def _test(known: _Known, plan: Plan) -> AdaptiveTest:
    session = plan.session(known.bank)
    while session.stopped is None:
        for place in session.next().tolist():
            session.record(place, *cast("tuple[float, int]", known.answers[place]))
    there = [answer[0] for answer in known.answers if answer is not None]
    made = test_of(
        session.result(), model=known.model, task=known.task, metric=known.metric, log=known.log
    )
    return replace(
        made,
        observed=float(np.mean(there)) if there else None,
        n_observed=len(there),
        asked=_asked([(step.task, step.item) for step in session.answers]),
        notes=known.notes,
    )


def test_of(
    found: Mapping[str, Any], *, model: str, task: str, metric: str, log: str
) -> AdaptiveTest:
    """Make a row of what a session, or the record of one, found."""
    full = found["full_score"]
    steps: Sequence[Mapping[str, Any]] = found.get("trace", ())
    return AdaptiveTest(
        model=model,
        task=task,
        metric=metric,
        **{name: found[name] for name in _SAME},
        full_score=full["estimate"],
        full_score_low=full["low"],
        full_score_high=full["high"],
        stopped=found["stopped"] or EXHAUSTED,
        log=log,
        asked=_asked([(str(step["task"]), str(step["item"])) for step in steps]),
        notes=tuple(found["notes"]),
    )


def _asked(items: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Name items, with their tasks where there are several."""
    several = len({task for task, _ in items}) > 1
    return tuple(f"{task} / {item}" if several else item for task, item in items)


def _hashes(part: Responses) -> list[str | None]:
    if part.item_hashes is None:
        return [None] * len(part.item_ids)
    return part.item_hashes.astype(str).tolist()


def _answers(parts: Sequence[Responses]) -> list[tuple[float, int]]:
    """Mean score and epochs of each item."""
    found: list[tuple[float, int]] = []
    for part in parts:
        means: Any = part.item_means
        if np.nanmin(means, initial=0.0) < 0 or np.nanmax(means, initial=1.0) > 1:
            msg = f"{part.task} is scored by {part.metric} outside of 0 to 1"
            raise DesignError(f"{msg}: name another metric")
        counts = (~np.isnan(part.scores)).sum(axis=1)
        found += list(zip(np.nan_to_num(means).tolist(), counts.tolist(), strict=True))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedAccuracy:
    """How right tests by one rule are after n items, over the models drawn.

    Intervals are for what many more models would show. None where a rival says nothing.
    """

    rule: str
    n_items: int
    n_models: int
    ability_rmse: float | None = None
    ability_rmse_low: float | None = None
    ability_rmse_high: float | None = None
    rank_correlation: float | None
    """Spearman's, of true abilities and estimated ones, or scores where there are none."""
    rank_correlation_low: float | None = None
    rank_correlation_high: float | None = None
    score_mae: float
    """Mean absolute error of the predicted full score."""
    score_mae_low: float
    score_mae_high: float
    score_width: float | None = None
    """Mean width of its interval."""
    score_coverage: float | None = None
    ability_coverage: float | None = None
    confidence_level: float
    """Of the tests' intervals, and of those of this row."""
    misspecified: float
    """How large the errors of the items are, in those that the bank tells."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """What models are drawn, and how they are tested."""

    n_models: int = 200
    misspecified: float = 1.0
    scoring: str = "eap"
    batch: int = 1
    balance: bool = False
    confidence_level: float = 0.95

    def __post_init__(self) -> None:
        for name, least in (("n_models", 4), ("misspecified", 0), ("batch", 1)):
            value = getattr(self, name)
            if not least <= value < np.inf:
                raise DesignError(f"{name} of {value:g} found, expected {least} or more")
        if not 0 < self.confidence_level < 1:
            msg = f"confidence_level of {self.confidence_level:g} found"
            raise SelectionError(f"{msg}, expected one between 0 and 1")

    def options(self, rule: str) -> Options:
        """How sessions go by one rule."""
        content = "tasks" if self.balance else None
        return Options(rule, self.scoring, self.batch, content, None, self.confidence_level)


def simulation(
    bank: ItemBank,
    at: Sequence[int],
    rules: Sequence[str] = ("auto", *RULE_NAMES, *RIVALS),
    *,
    drawing: Drawing | None = None,
    rng: int | None = None,
    on_rule: OnRule | None = None,
) -> Results[SimulatedAccuracy]:
    """Test the same models by every rule, and by what rivals adaptive tests.

    Parameters
    ----------
    at
        Numbers of items after which to look. Those above the number that may be asked are left
        out, with a note.
    rules
        ``"auto"``, and of `RULE_NAMES` and `RIVALS`.

    Raises
    ------
    SelectionError
        No such rule.
    DesignError
        The bank has fewer usable items than the least number, or a count makes no sense.
    """
    known = drawing or Drawing()
    bank.require_usable()
    choices = ("auto", *RULE_NAMES, *RIVALS)
    for rule in rules:
        if rule not in choices:
            raise SelectionError(no_such("rule", rule, choices, ", ".join(choices)))
    most = int(bank.usable.sum())
    kept = sorted({n for n in at if 0 < n <= most})
    if not kept:
        raise DesignError(f"{min(at)} items wanted, the bank has {most} that may be asked")
    drawn = draw_models(bank, known.n_models, misspecified=known.misspecified, rng=rng)
    run = mapped(partial(_of_rule, bank, kept, drawn=drawn, known=known, rng=rng), rules)
    rows: list[SimulatedAccuracy] = []
    for number, rule in enumerate(rules):
        if on_rule is not None:
            on_rule(rule, number, len(rules))
        rows += next(run)
    unseen = [str(n) for n in sorted({*at} - {*kept})]
    note = f"only {most} items may be asked: no look after {', '.join(unseen)}"
    return Results(tuple(rows), (*left_out(bank), *bank.notes, *([note] if unseen else [])), rng)


def _of_rule(
    bank: ItemBank,
    at: Sequence[int],
    rule: str,
    *,
    drawn: Drawn,
    known: Drawing,
    rng: int | None,
) -> list[SimulatedAccuracy]:
    if rule == ANCHORS:
        chosen = [anchor_points(bank, n, rng=rng) for n in at]
        rows = [row for each in chosen for row in _of_anchors(bank, drawn, each, known)]
        return sorted(rows, key=lambda row: row.rule, reverse=True)
    options = known.options("random" if rule == RAW else rule)
    run = run_sessions(bank, drawn.answers, at, options, rng=rng)
    if rule == RAW:
        right = np.take_along_axis(drawn.answers, run.places, axis=1)
        means = [right[:, :n].mean(axis=1) for n in at]
        return [_row(RAW, n, mean, drawn, known) for n, mean in zip(at, means, strict=True)]
    return [_of_checkpoint(rule, found, drawn, known) for found in run.checkpoints]


def _of_anchors(
    bank: ItemBank, drawn: Drawn, anchors: Anchors, known: Drawing
) -> list[SimulatedAccuracy]:
    places = np.tile(anchors.places, (known.n_models, 1))
    right = drawn.answers[:, anchors.places]
    belief = Belief.prior(bank, known.n_models).answered(places, right, np.ones_like(right))
    found = checkpoint(belief, Tables.of(bank), known.options("random"))
    n = len(anchors.places)
    return [
        _row(WEIGHTED, n, right @ anchors.weights, drawn, known),
        _of_checkpoint(PROJECTED, found, drawn, known),
    ]


def _of_checkpoint(rule: str, found: Checkpoint, drawn: Drawn, known: Drawing) -> SimulatedAccuracy:
    estimate, low, high = (values[:, 0] for values in found.full[:3])
    truth = drawn.answers.mean(axis=1)
    inside = (low - 1e-9 <= truth) & (truth <= high + 1e-9)
    own = (found.low <= drawn.abilities) & (drawn.abilities <= found.high)
    squares = (found.scored.ability - drawn.abilities) ** 2
    mean = float(squares.mean())
    half = normal_quantile(known.confidence_level) * _standard_error(squares)
    row = _row(rule, found.n, estimate, drawn, known, by=found.scored.ability)
    return replace(
        row,
        ability_rmse=float(np.sqrt(mean)),
        ability_rmse_low=float(np.sqrt(max(mean - half, 0.0))),
        ability_rmse_high=float(np.sqrt(mean + half)),
        score_width=float((high - low).mean()),
        score_coverage=float(inside.mean()),
        ability_coverage=float(own.mean()),
    )


def _row(
    rule: str,
    n: int,
    estimate: FloatArray,
    drawn: Drawn,
    known: Drawing,
    *,
    by: FloatArray | None = None,
) -> SimulatedAccuracy:
    """Row of full scores alone; models are ranked by them, or by what is given."""
    errors = np.abs(estimate - drawn.answers.mean(axis=1))
    z = normal_quantile(known.confidence_level)
    mean, half = float(errors.mean()), z * _standard_error(errors)
    rank, rank_low, rank_high = _rank(estimate if by is None else by, drawn.abilities, z)
    return SimulatedAccuracy(
        rule=rule,
        n_items=n,
        n_models=known.n_models,
        rank_correlation=rank,
        rank_correlation_low=rank_low,
        rank_correlation_high=rank_high,
        score_mae=mean,
        score_mae_low=max(mean - half, 0.0),
        score_mae_high=mean + half,
        confidence_level=known.confidence_level,
        misspecified=known.misspecified,
    )


def _standard_error(values: FloatArray) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def _rank(
    x: FloatArray, y: FloatArray, z: float
) -> tuple[float | None, float | None, float | None]:
    """Spearman's correlation with its interval by Fisher's transformation [BW00]_."""
    found = rank_correlation(x, y)
    if not np.isfinite(found):
        return None, None, None
    error = np.sqrt((1 + found**2 / 2) / (len(x) - 3))
    middle = np.arctanh(np.clip(found, -1 + 1e-12, 1 - 1e-12))
    return found, float(np.tanh(middle - z * error)), float(np.tanh(middle + z * error))
