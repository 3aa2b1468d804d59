"""Is model b better than model a on tasks like these?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from given_responses import given_responses
from scipy import stats

from evalstats_plugin import Group, Responses, Source, compare
from evalstats_plugin.comparisons import tasks
from evalstats_plugin.comparisons.design import Request
from evalstats_plugin.comparisons.families import settle
from evalstats_plugin.comparisons.rows import Comparison
from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.stats.pairs.differences import Differences


def across_tasks(
    responses: Sequence[Responses], request: Request
) -> tuple[list[Comparison], list[str]]:
    """Return the rows on tasks like these, corrected by their families, and the notes."""
    tables, notes = tasks.across_tasks(responses, request)
    return [row for row in settle(tables, request) if row.kind == "tasks"], notes


def _request(**more: object) -> Request:
    given = {"confidence_level": 0.95, "rng": np.random.default_rng(0)}
    return Request(**{**given, **more})  # pyright: ignore[reportArgumentType]


def _response(model: str, task: str, scores: np.ndarray, metric: str = "acc") -> Responses:
    return given_responses(
        model=model, task=task, metric=metric, item_ids=np.arange(len(scores)),
        scores=np.asarray(scores, dtype=float)[:, None],
        source=Source(path=Path(f"{model}.json"), harness="test"),
    )  # fmt: skip


def _responses(models: str = "ab", n_tasks: int = 8, *, seed: int = 0) -> list[Responses]:
    rng = np.random.default_rng(seed)
    ability = {m: rng.uniform(0.3, 0.9, n_tasks) for m in models}
    return [
        _response(m, f"t{i}", rng.random(20 + 10 * i) < ability[m][i])
        for i in range(n_tasks)
        for m in models
    ]


def test_tasks_are_the_units_of_the_same_engine() -> None:
    """Interval and p-value are those of the tasks' differences, close to Student's."""
    responses = _responses()
    (row,), notes = across_tasks(responses, _request())
    means = {(r.model, r.task): r.scores.mean() for r in responses}
    differences = np.array([means["b", f"t{i}"] - means["a", f"t{i}"] for i in range(8)])
    t = stats.ttest_1samp(differences, 0)

    assert ("a", "b", "8 tasks like these", "acc", "tasks", "symmetric-bootstrap", 440) == (
        row.model_a, row.model_b, row.task, row.metric, row.kind, row.method, row.n_items,
    )  # fmt: skip
    assert differences.mean() == pytest.approx(row.difference)
    alone = Differences(differences[None], span=1.0)
    low, high = alone.limits(stats.norm.ppf(0.975))
    expected = low[0], high[0], alone.p_value[0]
    assert expected == pytest.approx((row.low, row.high, row.p_value))
    assert tuple(t.confidence_interval(0.95)) == pytest.approx((row.low, row.high), abs=0.02)
    assert t.pvalue == pytest.approx(row.p_value, rel=0.5)
    assert [] == notes


def test_the_note_says_how_much_tasks_as_random_cost() -> None:
    """Standard errors by hand: of the tasks' differences, and within the tasks."""
    responses = _responses()
    (row,), _ = across_tasks(responses, _request())
    scores = {(r.model, r.task): r.scores[:, 0] for r in responses}
    items = [scores["b", f"t{i}"] - scores["a", f"t{i}"] for i in range(8)]
    random = np.std([d.mean() for d in items], ddof=1) / np.sqrt(8)
    fixed = np.sqrt(sum(d.var(ddof=1) / len(d) for d in items)) / 8

    expected = f"tasks as random units: 8 tasks; standard errors are {random / fixed:.2f} times"
    assert row.notes[-1].startswith(expected)


def test_the_fixed_tasks_of_that_note_have_their_clusters() -> None:
    """Ten copies of each item in a cluster leave the limits of both questions as they were."""
    plain = _responses(n_tasks=4)
    copied = [
        replace(
            r, item_ids=np.arange(10 * len(r.scores)), scores=np.repeat(r.scores, 10, axis=0),
            clusters=np.repeat(r.item_ids.astype(str), 10),
        )
        for r in plain
    ]  # fmt: skip
    (alone,), (together,) = (across_tasks(r, _request())[0] for r in (plain, copied))

    assert alone.notes == together.notes


def test_a_common_group_gives_the_row_its_name() -> None:
    """Tasks in no group, or in several, are counted."""
    group = Group("mmlu", 0, "micro", 8)
    rows = list(compare([replace(r, groups=(group,)) for r in _responses()], design="tasks"))

    assert ["these 8 tasks of mmlu", "8 tasks like those of mmlu"] == [row.task for row in rows]


def test_these_tasks_are_a_stratified_mean_of_the_items() -> None:
    """Difference and standard error by hand; narrower, because other tasks do not count."""
    responses = _responses()
    fixed, random = compare(responses, design="tasks")
    scores = {(r.model, r.task): r.scores[:, 0] for r in responses}
    items = [scores["b", f"t{i}"] - scores["a", f"t{i}"] for i in range(8)]
    error = np.sqrt(sum(d.var(ddof=1) / len(d) for d in items)) / 8

    assert (fixed.kind, random.kind) == ("group", "tasks")
    assert fixed.difference == pytest.approx(random.difference)
    assert fixed.high - fixed.low == pytest.approx(2 * 1.96 * error, rel=0.03)  # pyright: ignore[reportOptionalOperand]
    assert fixed.high - fixed.low < random.high - random.low  # pyright: ignore[reportOptionalOperand]


def test_the_two_questions_are_two_families() -> None:
    """Whatever family is asked for: they are not corrected for one another."""
    for family in ("auto", "run", "task"):
        rows = compare(_responses("abc"), design="tasks", family=family, rng=0)
        names = list(dict.fromkeys(row.family for row in rows))
        assert ["these 8 tasks, 3 pairs", "8 tasks like these, 3 pairs"] == names


def test_models_without_some_task_are_on_tasks_like_these_alone() -> None:
    """And a note says who is left out."""
    responses = [r for r in _responses("abc") if (r.model, r.task) != ("c", "t0")]
    found = compare(responses, design="tasks")

    assert ["group", "tasks", "tasks", "tasks"] == [row.kind for row in found]
    assert "acc, on these 8 tasks: left out, not on all of them: c" in found.notes


def test_only_tasks_that_both_answered_count() -> None:
    """A pair with fewer tasks says so; items are paired before tasks are."""
    responses = [r for r in _responses("abc") if (r.model, r.task) != ("c", "t0")]
    rows, _ = across_tasks(responses, _request())
    by_pair = {(row.model_a, row.model_b): row for row in rows}

    assert 440 == by_pair["a", "b"].n_items
    assert 420 == by_pair["a", "c"].n_items == by_pair["b", "c"].n_items
    assert "both models answered 7 of the 8 tasks" in by_pair["a", "c"].notes
    assert not any("both models" in note for note in by_pair["a", "b"].notes)


def test_one_task_is_refused() -> None:
    """With what to do instead; a task alone under its metric is named."""
    with pytest.raises(DesignError, match=r"two tasks or more under one metric \(t0 acc\)"):
        across_tasks(_responses(n_tasks=1), _request())
    more = [*_responses(n_tasks=2), *(_response(m, "f", np.ones(3), "em") for m in "ab")]
    rows, notes = across_tasks(more, _request())
    assert 1 == len(rows)
    assert ["not compared, the only task with this metric: f em"] == notes


def test_a_baseline_may_be_named_or_the_best() -> None:
    """One that does not exist is refused with the closest names."""
    responses = _responses("abc")
    rows, _ = across_tasks(responses, _request(baseline="b"))
    best, _ = across_tasks(responses, _request(baseline="best"))
    every, _ = across_tasks(responses, _request())
    totals = dict.fromkeys("abc", 0.0)
    for row in every:
        totals[row.model_b] += row.difference or 0.0
        totals[row.model_a] -= row.difference or 0.0

    assert [("b", "a"), ("b", "c")] == [(row.model_a, row.model_b) for row in rows]
    assert {max(totals, key=totals.__getitem__)} == {row.model_a for row in best}
    with pytest.raises(SelectionError, match="no model is called 'zz'"):
        compare(responses, design="tasks", baseline="zz")


@pytest.mark.parametrize("correction", ["simultaneous", "stepdown", "bh", "none"])
def test_corrections_are_over_all_pairs(correction: str) -> None:
    """Of three models; never below the pair alone."""
    rows, _ = across_tasks(_responses("abc"), _request(correction=correction))

    for row in rows:
        assert row.p_adjusted >= row.p_value  # pyright: ignore[reportOptionalOperand, reportOperatorIssue]
        alone = (row.low, row.high) == (row.low_single, row.high_single)
        assert alone == (correction in ("bh", "none"))


def test_lower_may_be_better() -> None:
    """P(better) turns round."""
    plain = _responses()
    lower = [r.measured(higher_is_better=False) for r in plain]
    (one,), (other,) = (across_tasks(x, _request())[0] for x in (plain, lower))

    assert 1 == pytest.approx(one.prob_better + other.prob_better)  # pyright: ignore[reportOptionalOperand, reportOperatorIssue]
    assert one.difference == other.difference


@pytest.mark.parametrize("method", ["percentile", "bca", "dirichlet", "t-cr2"])
def test_other_methods_are_refused(method: str) -> None:
    """The tasks' differences are few, and no items whose answers could be counted or resampled."""
    with pytest.raises(SelectionError, match=f"'{method}' does not apply .* symmetric-bootstrap"):
        compare(_responses(), design="tasks", method=method)
    with pytest.raises(SelectionError, match="'wilson' is for the interval of one score"):
        compare(_responses(), design="tasks", method="wilson")
