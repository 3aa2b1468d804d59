"""What must hold of every evaluation, whatever its scores: relations between answers.

`Relation` is one named function over an `Evaluation`, with what to draw for it and a breakage of
the product that must make it fail. Here are those of the numbers themselves; those of logs and of
renderings are in `log_relations` and `shown_relations`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evaluations import LARGEST, SCALES, Evaluation, Scale, Scores, Task
from written_tables import matrix_of

import evalstats_plugin as es

Check = Callable[[Evaluation, Path], None]
Break = Callable[[pytest.MonkeyPatch], None]

ONE_TASK: Mapping[str, Any] = {
    "tasks": (1, 1), "metrics": 1, "groups": False, "cut": False, "odd_names": False,
}  # fmt: skip
TWO_MODELS: Mapping[str, Any] = {**ONE_TASK, "models": (2, 2), "items": (2, LARGEST)}
MODELS: Mapping[str, Any] = {**ONE_TASK, "models": (2, 4), "items": (2, LARGEST)}

BOUNDED = tuple(name for name, scale in SCALES.items() if scale.bounds)


@dataclass(frozen=True)
class Relation:
    """One thing that must hold of every evaluation."""

    check: Check
    """Raises `AssertionError` where it does not."""
    breaks: Break
    """Breaks the product so that the relation no longer holds."""
    draws: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of `evaluations`."""
    families: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"": {}})
    """Further arguments of it by name, of which each is a test of its own."""
    examples: int = 12
    """Evaluations to draw for each family; `make test` draws half of them."""


def by_scale(*names: str) -> dict[str, Mapping[str, Any]]:
    """Return a family for each scale, all of them by default."""
    return {name: {"scales": (name,)} for name in names or SCALES}


def only(e: Evaluation) -> tuple[Task, Scale]:
    """Return the one task and metric of an evaluation that has no other."""
    return e.tasks[0], e.tasks[0].scales[0]


def responses_of(e: Evaluation, *, bounded: bool = True) -> list[es.Responses]:
    """Return the evaluation as responses, which know its direction and, if asked, its bounds."""
    return [
        r
        for task in e.tasks
        for scale in task.scales
        for r in matrix_of(e, task, scale, with_scale=bounded).to_responses()
    ]


def close(a: float | None, b: float | None, tolerance: float = 1e-9) -> bool:
    """Whether two numbers are the same but for rounding; None is None."""
    if a is None or b is None:
        return a is b
    return math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance)


def assert_close(a: Any, b: Any, names: Iterator[str] | tuple[str, ...], **more: Any) -> None:
    """Fail, naming the field, where two records differ in one of these."""
    for name in names:
        one, other = getattr(a, name), getattr(b, name)
        same = close(one, other, **more) if _is_number(one, other) else one == other
        assert same, f"{name}: {one!r} and {other!r} of {a}"


def _is_number(*values: object) -> bool:
    return all(v is None or isinstance(v, (int, float)) for v in values)


ROW = ("estimate", "low", "high", "n_items", "n_missing", "method")
PAIR = ("difference", "low_single", "high_single", "p_value", "n_items", "method")
JOINT = ("low", "high", "p_adjusted", "verdict")


# Breakages: the product as it must not be --------------------------------------------------------


def changed(name: str, change: Callable[[Any], Any], *, every: int = 1) -> Break:
    """Return what has a public function change its rows, or each so-manieth of them."""

    def breaks(patch: pytest.MonkeyPatch) -> None:
        function = getattr(es, name)

        def broken(*args: Any, **kwargs: Any) -> Any:
            results = function(*args, **kwargs)
            rows = [change(r) if i % every == every - 1 else r for i, r in enumerate(results.rows)]
            return replace(results, rows=tuple(rows))

        patch.setattr(es, name, broken)

    return breaks


def every_other_call(name: str, change: Callable[[Any], Any], *, first: int = 1) -> Break:
    """Return what has a public function change its rows each second time that it is called.

    ``first`` is 0 where the first call is one of these.
    """

    def breaks(patch: pytest.MonkeyPatch) -> None:
        function, calls = getattr(es, name), count()

        def broken(*args: Any, **kwargs: Any) -> Any:
            results = function(*args, **kwargs)
            rows = map(change, results.rows) if next(calls) % 2 == first else results.rows
            return replace(results, rows=tuple(rows))

        patch.setattr(es, name, broken)

    return breaks


def _moved(row: Any) -> Any:
    """Move the estimate of a row, in the sixth digit."""
    return row if row.estimate is None else replace(row, estimate=row.estimate * (1 + 1e-6) + 1e-6)


def _from_first(results: Any, function: Callable[[Any], Any]) -> Any:
    return replace(results, rows=tuple(map(function, results.rows)))


def depends_on_first(name: str, what: str) -> Break:
    """Return what has a function move a limit by the first score that it is given."""

    def breaks(patch: pytest.MonkeyPatch) -> None:
        function = getattr(es, name)

        def broken(data: Any, *args: Any, **kwargs: Any) -> Any:
            first = float(np.nan_to_num(next(iter(data)).scores.flat[0]))
            results = function(data, *args, **kwargs)
            return _from_first(
                results,
                lambda row: (
                    row
                    if getattr(row, what) is None
                    else replace(row, **{what: getattr(row, what) + 1e-3 * (1 + first)})
                ),
            )

        patch.setattr(es, name, broken)

    return breaks


# Scores ------------------------------------------------------------------------------------------


def estimate_inside_interval_inside_scale(e: Evaluation, _: Path) -> None:
    """Limits hold the estimate, none is beyond the scale, and few scores are no certainty."""
    task, scale = only(e)
    for i, row in enumerate(es.intervals(responses_of(e), rng=0)):
        truth = e.value(i, task, scale)
        assert close(row.estimate, truth), row
        if row.low is None or row.high is None:
            assert row.low is row.high, row
            continue
        assert truth is not None
        slack = 1e-9 * (1 + abs(truth))
        assert row.low - slack <= truth <= row.high + slack, row
        if scale.bounds is not None:
            assert scale.lowest - slack <= row.low, row
            assert row.high <= scale.highest + slack, row
        # Where the scale is known, no number of items makes an interval of one point.
        assert scale.bounds is None or row.low < row.high, row


def order_changes_no_interval(e: Evaluation, _: Path) -> None:
    """Items and models in another order, under other names, have the same intervals."""
    task, _ = only(e)
    rng = np.random.default_rng(e.seed)
    models, items = rng.permutation(len(e.models)), rng.permutation(task.n_items)
    other = reordered(e, models, items)
    before = list(es.intervals(responses_of(e), rng=0))
    after = list(es.intervals(responses_of(other), rng=0))
    for k, i in enumerate(models):
        assert_close(before[int(i)], after[k], ROW, tolerance=1e-7)


def reordered(e: Evaluation, models: Any, items: Any) -> Evaluation:
    """Return the evaluation with models and items in another order; models have other names."""
    task, scale = only(e)
    groups = task.clusters and tuple(task.clusters[int(j)] for j in items)
    moved = replace(task, clusters=groups)
    return replace(
        e,
        models=tuple(f"renamed {int(i)}" for i in models),
        tasks=(moved,),
        scores={(task.name, scale.name): e.of(task, scale)[models][:, items]},
    )


def scale_by_ten_changes_the_unit(e: Evaluation, _: Path) -> None:
    """Scores and bounds ten times as large give ten times the interval, and no other method."""
    _, scale = only(e)
    large = replace(
        scale, lowest=10 * scale.lowest, highest=10 * scale.highest, step=10 * scale.step
    )
    other = rescaled(e, large, lambda x: 10 * x)
    for a, b in _pairs(es.intervals(responses_of(e), rng=0),
                       es.intervals(responses_of(other), rng=0)):  # fmt: skip
        assert a.method == b.method, (a, b)
        for name in ("estimate", "low", "high", "std_error"):
            x, y = getattr(a, name), getattr(b, name)
            assert close(x and 10 * x, y, 1e-7), (name, a, b)


def rescaled(e: Evaluation, scale: Scale, change: Callable[[Scores], Scores]) -> Evaluation:
    """Return the evaluation with its one metric on another scale."""
    task, old = only(e)
    return replace(
        e,
        tasks=(replace(task, scales=(scale,)),),
        scores={(task.name, scale.name): change(e.of(task, old))},
    )


def _pairs(a: Any, b: Any) -> list[tuple[Any, Any]]:
    rows = list(a), list(b)
    assert len(rows[0]) == len(rows[1])
    return list(zip(*rows, strict=True))


def complement_mirrors_the_interval(e: Evaluation, _: Path) -> None:
    """The share of wrong answers has the interval of the share of right ones, turned round."""
    _, scale = only(e)
    assert scale.bounds is not None
    total = scale.lowest + scale.highest
    wrong = replace(scale, name="wrong", higher_is_better=not scale.higher_is_better)
    other = rescaled(e, wrong, lambda x: total - x)
    for a, b in _pairs(es.intervals(responses_of(e), rng=0),
                       es.intervals(responses_of(other), rng=0)):  # fmt: skip
        for one, two in (("estimate", "estimate"), ("low", "high"), ("high", "low")):
            x, y = getattr(a, one), getattr(b, two)
            assert close(None if x is None else total - x, y, 1e-7), (a, b)


# Comparisons -------------------------------------------------------------------------------------


def compared(e: Evaluation, *, bounded: bool = True, **options: Any) -> list[Any]:
    """Return all pairs of models compared, by name; empty where nothing can be compared."""
    from evalstats_plugin.errors import DesignError

    try:
        return list(es.compare(responses_of(e, bounded=bounded), **{"rng": 0, **options}))
    except DesignError:
        return []


def order_changes_no_pair(e: Evaluation, _: Path) -> None:
    """Two models, their items in another order, differ by as much, as surely."""
    task, _ = only(e)
    rng = np.random.default_rng(e.seed)
    other = reordered(e, np.arange(len(e.models)), rng.permutation(task.n_items))
    rows = compared(e), compared(other)
    assert len(rows[0]) == len(rows[1])
    for a, b in zip(*rows, strict=True):
        assert_close(a, b, PAIR, tolerance=1e-7)


def order_changes_no_joint_statement(e: Evaluation, _: Path) -> None:
    """Nor does the order, or the name, of anything change what holds for all pairs at once."""
    task, _ = only(e)
    rng = np.random.default_rng(e.seed)
    other = reordered(e, np.arange(len(e.models)), rng.permutation(task.n_items))
    rows = compared(e), compared(other)
    for a, b in zip(*rows, strict=True):
        assert_close(a, b, JOINT, tolerance=1e-7)


def swapping_mirrors_the_pair(e: Evaluation, _: Path) -> None:
    """Comparing b with a is comparing a with b, turned round."""
    other = reordered(e, np.array([1, 0]), np.arange(e.tasks[0].n_items))
    for a, b in zip(compared(e), compared(other), strict=True):
        assert close(a.p_value, b.p_value, 1e-7), (a, b)
        for one, two in (("difference", "difference"), ("low_single", "high_single")):
            x, y = getattr(a, one), getattr(b, two)
            assert close(x, None if y is None else -y, 1e-7), (one, a, b)
        assert {a.verdict, b.verdict} in ({"unclear"}, {"better", "worse"}), (a, b)


def scale_by_ten_changes_no_verdict(e: Evaluation, _: Path) -> None:
    """Scores and bounds ten times as large: the same p-values, ten times the limits."""
    _, scale = only(e)
    large = replace(
        scale, lowest=10 * scale.lowest, highest=10 * scale.highest, step=10 * scale.step
    )
    other = rescaled(e, large, lambda x: 10 * x)
    _ten_times(compared(e), compared(other))


def scale_by_ten_without_bounds(e: Evaluation, _: Path) -> None:
    """The same where nobody gives the bounds: the numbers alone decide no method.

    But for limits that are cut at the scale, or rest on it alone, as of models that are alike on
    every item: of 9 and 90, who does not know the metric takes one to be a grade up to 10, the
    other to be percent.
    """
    _, scale = only(e)
    other = rescaled(e, scale, lambda x: 10 * x)
    _ten_times(*(compared(one, bounded=False) for one in (e, other)), cut=True)


def _ten_times(before: list[Any], after: list[Any], *, cut: bool = False) -> None:
    for a, b in zip(before, after, strict=True):
        assert a.method == b.method, (a, b)
        assert close(a.p_value, b.p_value, 1e-7), (a, b)
        assert a.verdict == b.verdict, (a, b)
        assert close(a.difference and 10 * a.difference, b.difference, 1e-7), (a, b)
        if cut and not a.n_wins and not a.n_losses:
            continue
        most = min(10 * _range(a), _range(b)) if cut else math.inf
        for name, beyond in (("low_single", -math.inf), ("high_single", math.inf)):
            x, y = getattr(a, name), getattr(b, name)
            if cut:
                x, y = (beyond if v is None else v for v in (x, y))
            inside = [None if v is None else min(max(v, -most), most) for v in (x and 10 * x, y)]
            assert close(*inside, 1e-7), (name, a, b)


def _range(row: Any) -> float:
    """Return the largest difference on the scale that a comparison was made on."""
    scale = row.measure.scale
    return math.inf if scale is None else scale.high - scale.low


def complement_mirrors_the_pair(e: Evaluation, _: Path) -> None:
    """By the share of wrong answers, of which fewer are better, the same model is better."""
    _, scale = only(e)
    assert scale.bounds is not None
    total = scale.lowest + scale.highest
    wrong = replace(scale, name="wrong", higher_is_better=not scale.higher_is_better)
    other = rescaled(e, wrong, lambda x: total - x)
    for a, b in zip(compared(e), compared(other), strict=True):
        assert a.verdict == b.verdict, (a, b)
        assert close(a.p_value, b.p_value, 1e-7), (a, b)
        assert close(a.prob_better, b.prob_better, 1e-6), (a, b)
        for one, two in (("difference", "difference"), ("low_single", "high_single")):
            x, y = getattr(a, one), getattr(b, two)
            assert close(x, None if y is None else -y, 1e-7), (one, a, b)


def interval_p_and_verdict_agree(e: Evaluation, _: Path) -> None:
    """Limits leave out no difference exactly where p is at most .05, and the verdict says so."""
    level = (0.95, 0.8)[e.seed % 2]
    higher = only(e)[1].higher_is_better
    for row in compared(e, confidence_level=level):
        for low, high, p in (
            (row.low_single, row.high_single, row.p_value),
            (row.low, row.high, row.p_adjusted),
        ):
            if low is None or high is None or p is None:
                continue
            significant, slack = p <= 1 - level, 1e-12
            # A limit at 0 is not in the interval of a pair that was found.
            assert (
                (low >= -slack or high <= slack)
                if significant
                else (low <= slack and high >= -slack)
            ), row
        found = row.p_adjusted is not None and row.p_adjusted <= 1 - level
        assert (row.verdict != "unclear") == (found and bool(row.difference)), row
        if row.verdict != "unclear":
            assert (row.verdict == "better") == ((row.difference > 0) == higher), row
            assert row.prob_better is None or (row.prob_better > 0.5) == (
                row.verdict == "better"
            ), row


def verdicts_ranks_and_ties_agree(e: Evaluation, _: Path) -> None:
    """A model that is better than another ranks above it, and shares no letter with it."""
    from evalstats_plugin.comparisons import rank_sets

    rows = compared(e)
    if not rows:
        return
    ranks = {r.model: r for r in rank_sets(responses_of(e), rng=0)}
    for row in rows:
        a, b = ranks[row.model_a], ranks[row.model_b]
        if row.verdict == "unclear":
            assert {*a.letters} & {*b.letters}, (row, a, b)
            continue
        worse, better = (a, b) if row.verdict == "better" else (b, a)
        assert better.best_rank < worse.worst_rank, (row, a, b)
        assert worse.best_rank > 1, (row, a, b)
        assert not {*a.letters} & {*b.letters}, (row, a, b)
        assert not worse.may_be_first, (row, a, b)


def another_model_never_sharpens(e: Evaluation, _: Path) -> None:
    """With one model more, no adjusted p-value of the others is smaller, and no interval shorter.

    Beyond what the draws of two calculations may differ by: a hundredth of p, at most .002.
    """
    fewer = replace(e, models=e.models[:-1], scores={k: v[:-1] for k, v in e.scores.items()})
    whole = {(r.model_a, r.model_b): r for r in compared(e)}
    for row in compared(fewer):
        more = whole.get((row.model_a, row.model_b))
        if more is None or row.p_adjusted is None or more.p_adjusted is None:
            continue
        assert more.p_adjusted >= row.p_adjusted - 0.002 - 0.01 * row.p_adjusted, (row, more)
        wide = [None if r.low is None else r.high - r.low for r in (row, more)]
        if None not in wide:
            assert wide[1] >= wide[0] * 0.98 - 1e-9, (row, more)


def adjusted_is_never_sharper_than_alone(e: Evaluation, _: Path) -> None:
    """What holds for all pairs at once is no sharper than what holds for one chosen beforehand."""
    for row in compared(e):
        if row.p_value is not None and row.p_adjusted is not None:
            assert row.p_adjusted >= row.p_value * 0.99 - 0.002, row
        if None not in (row.low, row.low_single, row.high, row.high_single):
            slack = 1e-9 + 0.02 * (row.high - row.low)
            assert row.low <= row.low_single + slack, row
            assert row.high >= row.high_single - slack, row


def one_more_win_is_more_evidence(e: Evaluation, _: Path) -> None:
    """Where b wins every item that differs, further items that b wins make p no larger."""
    scale, n = only(e)[1], e.tasks[0].n_items
    assert scale.bounds is not None
    worse, better = scale.bounds if scale.higher_is_better else scale.bounds[::-1]
    step = (scale.step or 0.1 * (scale.highest - scale.lowest)) * np.sign(better - worse)
    base = np.full(n + 12, worse + 3 * step if abs(better - worse) > 3 * abs(step) else worse)
    last = 1.0
    for wins in range(n + 1):
        scores = np.stack([base, base])[:, :, None]
        scores[1, :wins] += step
        task = replace(e.tasks[0], n_items=n + 12, clusters=None)
        (row,) = compared(replace(e, tasks=(task,), n_epochs=1,
                                  scores={(task.name, scale.name): scores}))  # fmt: skip
        if row.p_value is None:
            continue
        assert row.p_value <= last + 1e-9, (wins, row)
        # No method may miss what a sign test sees: all of 12 or more in one direction.
        if wins >= 12:
            assert row.p_value <= 0.05, (wins, row)
        last = row.p_value


def seed_moves_no_verdict_beyond_its_error(e: Evaluation, _: Path) -> None:
    """The same seed gives the same digits; another seed a p-value within its own error."""
    rows = [compared(e, rng=seed) for seed in (0, 0, 1)]
    for a, b, c in zip(*rows, strict=True):
        assert_close(a, b, (*PAIR, *JOINT), tolerance=0.0)
        if a.p_adjusted is not None:
            assert abs(a.p_adjusted - c.p_adjusted) <= 0.02, (a, c)


def _shorter(row: Any) -> Any:
    return row if row.p_adjusted is None else replace(row, p_adjusted=row.p_adjusted / 2)


def _turned(row: Any) -> Any:
    return row if row.difference is None else replace(row, difference=-row.difference)


RELATIONS: Mapping[str, Relation] = {
    "estimate inside interval inside scale": Relation(
        estimate_inside_interval_inside_scale, changed("intervals", _moved), ONE_TASK, by_scale()
    ),
    "order changes no interval": Relation(
        order_changes_no_interval, depends_on_first("intervals", "low"), ONE_TASK, by_scale()
    ),
    "scale × 10 changes the unit": Relation(
        scale_by_ten_changes_the_unit,
        changed("intervals", lambda row: replace(row, high=row.high and row.high + 0.01)),
        ONE_TASK,
        by_scale(*BOUNDED),
    ),
    "complement mirrors the interval": Relation(
        complement_mirrors_the_interval,
        changed("intervals", lambda row: replace(row, high=row.high and row.high + 0.01)),
        ONE_TASK,
        by_scale(*BOUNDED),
    ),
    "order changes no pair": Relation(
        order_changes_no_pair, depends_on_first("compare", "p_value"), MODELS, by_scale()
    ),
    "order changes no joint statement": Relation(
        order_changes_no_joint_statement,
        depends_on_first("compare", "p_adjusted"),
        MODELS,
        by_scale(),
    ),
    "swapping mirrors the pair": Relation(
        swapping_mirrors_the_pair,
        changed("compare", lambda row: replace(row, low_single=row.low_single and 0.0)),
        TWO_MODELS,
        by_scale(),
    ),
    "scale × 10 changes no verdict": Relation(
        scale_by_ten_changes_no_verdict,
        depends_on_first("compare", "p_value"),
        TWO_MODELS,
        by_scale(*BOUNDED),
    ),
    "scale × 10 without bounds": Relation(
        scale_by_ten_without_bounds,
        depends_on_first("compare", "p_value"),
        TWO_MODELS,
        by_scale("grade", "tenths", "loss", "margin"),
    ),
    "complement mirrors the pair": Relation(
        complement_mirrors_the_pair,
        every_other_call("compare", _turned),
        TWO_MODELS,
        by_scale(*BOUNDED),
    ),
    "interval, p and verdict agree": Relation(
        interval_p_and_verdict_agree, changed("compare", _turned), MODELS, by_scale()
    ),
    "verdicts, ranks and ties agree": Relation(
        verdicts_ranks_and_ties_agree, changed("compare", _turned), MODELS, by_scale(), 8
    ),
    "another model never sharpens": Relation(
        another_model_never_sharpens,
        every_other_call("compare", _shorter, first=0),
        {**MODELS, "models": (3, 4), "missing": False},
        by_scale(),
        8,
    ),
    "adjusted is never sharper than alone": Relation(
        adjusted_is_never_sharper_than_alone, changed("compare", _shorter), MODELS, by_scale(), 8
    ),
    "one more win is more evidence": Relation(
        one_more_win_is_more_evidence,
        every_other_call("compare", lambda r: replace(r, p_value=r.p_value and r.p_value * 40)),
        {**TWO_MODELS, "items": (12, 16), "missing": False, "epochs": 1, "clusters": False},
        by_scale(*BOUNDED),
        2,
    ),
    "a seed moves no verdict beyond its error": Relation(
        seed_moves_no_verdict_beyond_its_error,
        every_other_call("compare", _shorter),
        MODELS,
        by_scale("right", "tenths", "margin"),
        10,
    ),
}
