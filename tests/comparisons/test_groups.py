"""Is model b better than model a on a whole group of tasks?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from given_responses import given_responses

from evalstats_plugin import Group, ResponseMatrix, Responses, Source, compare
from evalstats_plugin.comparisons import Comparison, tasks
from evalstats_plugin.comparisons.design import Request
from evalstats_plugin.comparisons.families import settle
from evalstats_plugin.scores.cells import make_cell
from evalstats_plugin.stats import clustered


def group_comparisons(responses: Sequence[Responses], request: Request) -> list[Comparison]:
    """Return the rows, corrected by their families."""
    return settle(tasks.group_comparisons(responses, request), request)


SIZES = {"x": 12, "y": 60, "z": 30}


def _request(**more: object) -> Request:
    given = {"confidence_level": 0.95, "rng": np.random.default_rng(0)}
    return Request(**{**given, **more})  # pyright: ignore[reportArgumentType]


def _responses(
    ability: dict[str, float], weighting: str = "micro", *, seed: int = 0, whole: bool = True
) -> list[Responses]:
    rng = np.random.default_rng(seed)
    group = Group("g", 0, weighting, len(SIZES), logged=0.5)  # pyright: ignore[reportArgumentType]
    return [
        given_responses(
            model=model, task=task, item_ids=np.arange(n), groups=(group,),
            scores=(rng.random((n, 1)) < p).astype(float),
            source=Source(path=Path(f"{model}.json"), harness="test"),
        )
        for model, p in ability.items()
        for task, n in SIZES.items()
        if whole or (model, task) != ("a", "x")
    ]  # fmt: skip


def _differences(responses: list[Responses], a: str, b: str) -> list[np.ndarray]:
    scores = {(r.model, r.task): r.scores[:, 0] for r in responses}
    return [scores[b, task] - scores[a, task] for task in SIZES]


@pytest.mark.parametrize("weighting", ["micro", "macro"])
def test_the_difference_is_that_of_the_groups_scores(weighting: str) -> None:
    """And the p-value that of the posterior."""
    responses = _responses({"a": 0.5, "b": 0.7}, weighting)
    (row,) = group_comparisons(responses, _request())
    parts = _differences(responses, "a", "b")
    shares = {"micro": np.array([12, 60, 30]) / 102, "macro": np.ones(3) / 3}[weighting]
    units = np.concatenate([w / len(d) * d for w, d in zip(shares, parts, strict=True)])

    assert ("a", "b", "g", "acc", "group", 102) == (
        row.model_a, row.model_b, row.task, row.metric, row.kind, row.n_items,
    )  # fmt: skip
    assert units.sum() == pytest.approx(row.difference)
    assert min(row.prob_better, 1 - row.prob_better) * 2 == pytest.approx(row.p_value)  # pyright: ignore[reportOperatorIssue, reportArgumentType]
    assert f"{weighting} mean of 3 tasks" in row.notes
    assert row.p_adjusted == row.p_value
    assert (row.low, row.high) == (row.low_single, row.high_single)


def test_models_that_agree_on_everything_still_have_an_interval_of_some_width() -> None:
    """Exactly a tie, and an interval around 0."""
    responses = _responses({"a": 0.5})
    twins = [*responses, *(replace(r, model="b") for r in responses)]
    (row,) = group_comparisons(twins, _request())

    assert (0.0, 1.0, 0.5) == (row.difference, row.p_value, row.prob_better)
    assert -0.1 < row.low < -0.005 < 0.005 < row.high < 0.1  # pyright: ignore[reportOptionalOperand, reportOperatorIssue]
    assert row.low == pytest.approx(-row.high)  # pyright: ignore[reportOptionalOperand]


def test_rows_name_the_innermost_whole_that_they_count_in() -> None:
    """A task its group, and the group the overall score."""
    in_group = _responses({"a": 0.5, "b": 0.6})
    alone = [replace(r, groups=()).measured(task="w") for r in in_group if r.task == "x"]
    part_of = {row.task: row.part_of for row in compare([*alone, *in_group], rng=0)}

    assert {"x": "g", "y": "g", "z": "g", "g": "all 4 tasks", "w": "all 4 tasks"} == {
        task: whole for task, whole in part_of.items() if whole
    }
    outer = Group("outer", 0, "macro", 4, logged=0.5)
    nested = [
        *(replace(r, groups=(outer,)) for r in alone),
        *(replace(r, groups=(outer, replace(r.groups[0], depth=1))) for r in in_group),
    ]
    part_of = {row.task: row.part_of for row in compare(nested, rng=0, overall=False)}
    assert part_of == dict.fromkeys("xyz", "g") | {"g": "outer", "w": "outer", "outer": ""}


NAN = float("nan")


@pytest.mark.parametrize(
    ("scores", "tasks", "clusters"),
    [
        ([[1, 1, NAN, 1]] * 2 + [[NAN, NAN, 1, 1], [0, 1, NAN, 1]], "xyzx", "bbaa"),
        ([[1, 1, 0, NAN, 1, 0, 1, 1], [1, 1, 0, 0, 1, 0, 1, 1], [0, 1, 1, 1, 0, 0, 1, 0]],
         "xxxxyyyy", None),
    ],
)  # fmt: skip
def test_the_order_of_the_models_changes_nothing(scores, tasks, clusters) -> None:
    """Equal models, holes, tasks of one item: once limits and p-values moved with the order."""
    matrix = ResponseMatrix.from_array(
        scores, tasks=list(tasks), clusters=clusters and list(clusters)
    )
    places = {
        (r.task, r.kind, frozenset((r.model_a, r.model_b))): r
        for r in compare(matrix.to_responses()[::-1])
    }
    for row in compare(matrix):
        other = places[row.task, row.kind, frozenset((row.model_a, row.model_b))]
        assert row.p_adjusted == pytest.approx(other.p_adjusted, abs=1e-6)
        if row.low is not None and row.high is not None:
            assert [row.low, row.high] == pytest.approx(
                [-other.high, -other.low] if row.model_a == other.model_b
                else [other.low, other.high], abs=1e-6,
            )  # fmt: skip


def test_exchanging_the_models_changes_the_sign() -> None:
    """Of every number."""
    responses = _responses({"a": 0.5, "b": 0.7})
    swapped = [replace(r, model={"a": "b", "b": "a"}[r.model]) for r in responses]
    swapped.sort(key=lambda r: r.model)
    (one,), (other,) = (group_comparisons(x, _request()) for x in (responses, swapped))

    assert (one.model_a, one.model_b) == (other.model_a, other.model_b)
    assert -one.difference == pytest.approx(other.difference)  # pyright: ignore[reportOptionalOperand]
    assert (-one.high, -one.low) == pytest.approx((other.low, other.high))  # pyright: ignore[reportOptionalOperand]
    assert 1 == pytest.approx(one.prob_better + other.prob_better)  # pyright: ignore[reportOptionalOperand, reportOperatorIssue]


@pytest.mark.parametrize("correction", ["simultaneous", "stepdown", "bh", "none"])
def test_limits_are_of_all_pairs_at_once_where_that_means_something(
    correction: str,
) -> None:
    """Of three models."""
    rows = group_comparisons(
        _responses({"a": 0.5, "b": 0.6, "c": 0.9}), _request(correction=correction)
    )

    assert 3 == len(rows)
    for row in rows:
        alone = (row.low, row.high) == (row.low_single, row.high_single)
        assert alone == (correction in ("bh", "none"))
    assert ["better"] == [r.verdict for r in rows if (r.model_a, r.model_b) == ("a", "c")]


def test_a_model_without_a_task_of_the_group_takes_no_part() -> None:
    """Its group score would be of other items; with one model left there is no row at all."""
    ability = {"a": 0.5, "b": 0.6, "c": 0.9}
    rows = group_comparisons(_responses(ability, whole=False), _request())
    unlogged = [
        replace(r, groups=(replace(r.groups[0], logged=None),)) for r in _responses(ability)
    ]

    assert [("b", "c")] == [(row.model_a, row.model_b) for row in rows]
    assert [] == group_comparisons(_responses({"a": 0.5, "b": 0.6}, whole=False), _request())
    assert [] == group_comparisons(unlogged, _request())
    assert [] == group_comparisons(_responses(ability, whole=False), _request(baseline="a"))


def test_a_task_without_items_in_common_is_compared_by_the_models_own_means() -> None:
    """As after a benchmark was renewed: the pair keeps its place among all pairs."""
    responses = _responses({"a": 0.5, "b": 0.8})
    first, *rest = responses
    # Both fail on the same items, which only pairs can show.
    rest = [replace(r, scores=first.scores) if r.task == first.task else r for r in rest]
    renewed = replace(first, item_ids=first.item_ids + 10_000)
    [whole], [apart] = (group_comparisons([one, *rest], _request()) for one in (first, renewed))

    assert apart.difference == pytest.approx(whole.difference, abs=1e-12)
    assert (apart.score_a, apart.score_b) == pytest.approx((whole.score_a, whole.score_b))
    assert apart.high - apart.low > whole.high - whole.low
    assert apart.n_items == whole.n_items - len(first.item_ids)
    assert any("no items in common, each model's own mean" in note for note in apart.notes)


@pytest.mark.parametrize(("baseline", "n_pairs"), [(None, 3), ("best", 3), ("model_0", 2)])
def test_all_tasks_are_compared_up_to_a_number_of_differences(
    baseline: str | None, n_pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pairs times items of the model with the most; a best model may be any."""
    scores = (np.random.default_rng(2).random((3, 17)) < 0.6) * 1.0
    matrix = ResponseMatrix.from_array(scores, tasks=["s"] * 8 + ["t"] * 9)
    # The first has no result of an item.
    first, *rest = matrix.to_responses()
    some = [replace(first, item_ids=first.item_ids[1:], scores=first.scores[1:]), *rest]
    for most, is_compared in ((17 * n_pairs, True), (17 * n_pairs - 1, False)):
        monkeypatch.setattr(tasks, "MOST_DIFFERENCES", most)
        found = compare(some, baseline=baseline, rng=0)
        why = f"no comparison over all tasks: {n_pairs} pairs on 17 items take long"
        assert any(row.kind == "overall" for row in found) == is_compared
        assert any(note.startswith(why) for note in found.notes) != is_compared


def test_the_best_is_the_one_with_the_best_group_score() -> None:
    """Whoever leads single tasks; the correction is over all pairs."""
    responses = _responses({"a": 0.5, "b": 0.95, "c": 0.6}, "macro")
    every = group_comparisons(responses, _request())
    rows = group_comparisons(responses, _request(baseline="best"))

    assert [("b", "a"), ("b", "c")] == [(row.model_a, row.model_b) for row in rows]
    assert all("b was chosen as the best" in row.notes[-1] for row in rows)
    adjusted = {frozenset((r.model_a, r.model_b)): r.p_adjusted for r in every}
    assert [adjusted[frozenset("ab")], adjusted[frozenset("bc")]] == [r.p_adjusted for r in rows]


def test_unbounded_scores_have_an_interval_too() -> None:
    """The same, times the scale: bounds only clip."""
    plain = _responses({"a": 0.5, "b": 0.7})
    scaled = [replace(r, scores=20 * r.scores - 3) for r in plain]
    (row,), (other,) = (group_comparisons(x, _request()) for x in (scaled, plain))
    assert "symmetric-bootstrap" == row.method
    assert (row.low, row.high) == pytest.approx((20 * other.low, 20 * other.high))  # pyright: ignore[reportOptionalOperand]
    assert row.p_value == pytest.approx(other.p_value)


def test_clusters_within_tasks_make_the_interval_wider() -> None:
    """Sixty items that are really six, each ten times: as their clustered standard error says."""
    rng = np.random.default_rng(0)
    group = Group("g", 0, "micro", 1, logged=0.5)
    few = rng.integers(0, 2, (2, 6)).astype(float)
    clusters = np.repeat(list("pqrstu"), 10)
    rows: list[Comparison] = []
    for key in (None, clusters):
        responses = [
            given_responses(
                model=model, task="t", metric="acc", item_ids=np.arange(60),
                scores=np.repeat(scores, 10)[:, None], clusters=key, groups=(group,),
                source=Source(path=Path(f"{model}.json"), harness="test"),
            )
            for model, scores in zip("ab", few, strict=True)
        ]  # fmt: skip
        rows += group_comparisons(responses, _request())
    plain, grouped = rows
    error = clustered.cluster_moments(10 * (few[1] - few[0]), np.full(6, 10.0)).cr1

    assert grouped.high - grouped.low > 2 * (plain.high - plain.low)  # pyright: ignore[reportOptionalOperand, reportOperatorIssue]
    assert 4 * error > grouped.high - grouped.low > 2.5 * error  # pyright: ignore[reportOptionalOperand, reportOperatorIssue]
    assert grouped.p_value >= 2 / 2**6 > plain.p_value or plain.difference == 0  # pyright: ignore[reportOptionalOperand, reportOperatorIssue]


@pytest.mark.parametrize("seed", range(4))
def test_limits_hold_whatever_the_missing_scores_would_have_been(seed: int) -> None:
    """Of a group: with any scores in place of those missing its own limits are hardly beyond."""
    rng = np.random.default_rng(seed)
    whole = _responses({"a": 0.4, "b": 0.7}, ["micro", "macro"][seed % 2], seed=seed)
    gone = [rng.random(r.scores.shape) < 0.1 for r in whole]
    lacking = [
        replace(r, scores=np.where(where, np.nan, r.scores))
        for r, where in zip(whole, gone, strict=True)
    ]
    (row,) = group_comparisons(lacking, _request(missing="bounds"))
    (plain,) = group_comparisons(lacking, _request())

    assert "limits hold whatever the missing scores would have been" in row.notes
    assert (row.missing_low, row.missing_high) == (row.low, row.high)
    assert (plain.missing_low, plain.missing_high) != (plain.low, plain.high)
    low, high = row.low or 0.0, row.high or 0.0
    fillings = [
        {"a": 1.0, "b": 0.0},
        {"a": 0.0, "b": 1.0},
        *({m: float(x) for m, x in zip("ab", rng.random(2), strict=True)} for _ in range(8)),
    ]
    differences: list[float] = []
    for filling in fillings:
        filled = [
            replace(r, scores=np.where(where, filling[r.model], r.scores))
            for r, where in zip(whole, gone, strict=True)
        ]
        (one,) = group_comparisons(filled, _request())
        differences.append(one.difference or 0.0)
        # One-sided at either end: 1.64 in place of 1.96 standard errors [IM04]_.
        own = one.low or 0.0, one.high or 0.0
        spare = 0.2 * (own[1] - own[0]) / 2
        assert low <= own[0] + spare
        assert own[1] - spare <= high
    assert low < min(differences)
    assert max(differences) < high
    assert min(differences) == differences[0]
    assert max(differences) == differences[1]


@pytest.mark.parametrize("weighting", ["micro", "macro"])
def test_errors_at_the_ends_are_those_of_tasks_with_one_more_item(weighting: str) -> None:
    """Weighted errors of each task's differences, and half of the span over all items."""
    rng = np.random.default_rng(3)
    whole = _responses({"a": 0.4, "b": 0.7}, weighting)
    gone = {(r.model, r.task): rng.random(r.scores.shape) < 0.1 for r in whole}
    lacking = [replace(r, scores=np.where(gone[r.model, r.task], np.nan, r.scores)) for r in whole]
    cells = list(map(make_cell, lacking))
    strata = tasks._joined(cells, whole[0].groups[0], _request(missing="bounds"))
    assert strata is not None
    n = np.array(list(SIZES.values()))
    shares = n / n.sum() if weighting == "micro" else np.full(3, 1 / 3)
    for end, of_a, of_b in zip(strata.at_ends(np.array([0])), (1.0, 0.0), (0.0, 1.0), strict=True):
        filled = [
            replace(
                r, scores=np.where(gone[r.model, r.task], {"a": of_a, "b": of_b}[r.model], r.scores)
            )
            for r in whole
        ]
        d = _differences(filled, "a", "b")
        variance = shares**2 @ [x.var(ddof=1) / len(x) for x in d]
        total = n.sum()
        assert end.mean == pytest.approx(shares @ [x.mean() for x in d])
        error = np.hypot(np.sqrt(variance * total / (total - 1)), 0.5 / total)
        assert end.error == pytest.approx(error)
        assert end.alone.estimate == pytest.approx(end.mean)
