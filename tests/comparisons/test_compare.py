"""Is model b better than model a?"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from given_responses import given_responses

from evalstats_plugin import ResponseMatrix, Responses, Source, compare, read
from evalstats_plugin.comparisons import Comparison
from evalstats_plugin.comparisons.compare import _PAIR_BYTES, NO_ITEM_IN_COMMON
from evalstats_plugin.errors import DesignError, ItemConflictError, SelectionError
from evalstats_plugin.runtime.memory import limited
from evalstats_plugin.stats import clustered, multiplicity
from evalstats_plugin.stats.interval import normal_quantile
from evalstats_plugin.stats.pairs import paired
from evalstats_plugin.stats.pairs.differences import Differences
from evalstats_plugin.stats.pairs.paired import paired_counts

VALIDATION = Path(__file__).parents[2] / "fixtures" / "validation"

LOGS = Path(__file__).parents[2] / "fixtures" / "logs" / "lm_eval" / "0.4.13"
JEFFREYS = (0.5, 1.0)


def _responses(model: str, scores: list[float] | np.ndarray, **more: object) -> Responses:
    array = np.asarray(scores, dtype=float)
    array = array[:, None] if array.ndim == 1 else array
    source = Source(path=Path(f"{model}.json"), harness="test")
    given = {"task": "t", "metric": "acc", "item_ids": np.arange(len(array)), **more}
    return given_responses(model=model, scores=array, source=source, **given)  # pyright: ignore[reportArgumentType]


def _one(a: list[float] | np.ndarray, b: list[float] | np.ndarray, **more: object) -> Comparison:
    """Compare two models on the same items."""
    return compare([_responses("a", a), _responses("b", b)], rng=0, **more)[0]  # pyright: ignore[reportArgumentType]


def test_binary_scores_are_compared_by_their_table() -> None:
    """Difference, interval, p-value and P(better) of one posterior, b minus a."""
    a = np.repeat([1.0, 1.0, 0.0, 0.0], [19, 2, 4, 5])
    b = np.repeat([1.0, 0.0, 1.0, 0.0], [19, 2, 4, 5])
    counts = paired_counts(19, 2, 4, 5)
    low, high = paired.dirichlet(counts, confidence_level=0.95, prior=JEFFREYS)
    row, named = _one(a, b), _one(a, b, method="dirichlet")

    assert ("a", "b", "t", "acc", 30) == (
        row.model_a, row.model_b, row.task, row.metric, row.n_items,
    )  # fmt: skip
    assert 2 / 30 == pytest.approx(row.difference)
    assert (float(low), float(high)) == pytest.approx((named.low, named.high), abs=1e-12)
    assert (row.low, row.high) == pytest.approx((-0.1037, 0.2441), abs=1e-4)
    assert 2 * (1 - 0.7910261816537514) == pytest.approx(row.p_value, abs=1e-12)
    assert row.p_value == row.p_adjusted
    assert 0.7910261816537514 == pytest.approx(row.prob_better, abs=1e-12)
    assert ("dirichlet", "symmetric-bootstrap") == (named.method, row.method)
    assert (row.p_value, row.prob_better) == pytest.approx((named.p_value, named.prob_better))


def test_the_same_scores_are_a_tie() -> None:
    """Exactly: no difference, P(better) ½, p-value 1, of any kind of score."""
    for scores in ([1, 0, 1], [1, 0.5, 0.25], [5.0, -3.0, 20.0]):
        row = _one(scores, scores)

        assert (0.0, 0.5, 1.0) == (row.difference, row.prob_better, row.p_value)


@pytest.mark.parametrize(
    "scores",
    [
        [1, 0, 1, 1],
        [1, 0.5, 1, 1],
        [[1, 0], [1, 1], [0, 0], [1, 0]],
        [1, 0.5, 3, -2],
    ],
)
def test_one_default_serves_any_scores(scores: list[float]) -> None:
    """Binary, partial credit, epochs, unbounded; the interval holds the difference."""
    row = _one([0, 0, 1, 0], scores)

    assert "symmetric-bootstrap" == row.method
    assert row.low < row.difference < row.high  # pyright: ignore[reportOperatorIssue, reportOptionalOperand]


def test_epochs_are_averaged_and_need_not_be_equally_many() -> None:
    """One take by a, three by b, one of them missing."""
    row = _one([1, 0, 1], [[1, 0, 1], [1, 1, float("nan")], [1, 0, 0]])

    assert (2 / 3 + 1 + 1 / 3) / 3 - 2 / 3 == pytest.approx(row.difference)


def test_items_are_paired_by_name_and_missing_ones_are_said() -> None:
    """Order does not matter; an item that only one model answered is left out."""
    a = _responses("a", [1, 0, 1, 0], item_ids=np.array(["p", "q", "r", "s"]))
    b = _responses("b", [1, 1, float("nan"), 0], item_ids=np.array(["s", "q", "r", "x"]))
    row = compare([a, b])[0]

    assert (2, 1.0) == (row.n_items, row.difference)
    assert "3 of 5 items lack one model's score: left out" in row.notes


def test_one_item_id_for_two_questions_is_refused_by_name() -> None:
    """The hashes differ: these items must not be paired."""
    a = _responses("a", [1, 0], item_hashes=np.array(["x", "y"]))
    b = _responses("b", [1, 0], item_hashes=np.array(["x", "z"]))

    with pytest.raises(ItemConflictError, match=r"item 1 is one question in a\.json and another"):
        compare([a, b])


def test_lower_may_be_better() -> None:
    """The difference keeps its sign, P(better) turns round."""
    more = {"higher_is_better": False}
    a, b = [1, 1, 1, 0, 1, 1], [0, 0, 0, 0, 1, 0]
    row = compare([_responses("a", a, **more), _responses("b", b, **more)])[0]
    plain = _one(a, b)

    assert row.difference == plain.difference == pytest.approx(-4 / 6)
    assert 1.0 == pytest.approx(row.prob_better + plain.prob_better)  # pyright: ignore[reportOperatorIssue]
    assert row.prob_better > 0.9  # pyright: ignore[reportOptionalOperand]


def test_every_pair_is_compared_or_each_with_the_baseline() -> None:
    """The baseline is model a of each."""
    matrix = ResponseMatrix.from_array(np.eye(4, 9), models=["p", "q", "r", "s"])
    every = [(row.model_a, row.model_b) for row in compare(matrix)]
    against = [(row.model_a, row.model_b) for row in compare(matrix, baseline="r")]

    assert [("p", "q"), ("p", "r"), ("p", "s"), ("q", "r"), ("q", "s"), ("r", "s")] == every
    assert [("r", "p"), ("r", "q"), ("r", "s")] == against


@pytest.mark.parametrize("correction", ["simultaneous", "bh", "stepdown", "none"])
def test_a_correction_is_over_the_pairs_of_one_task(correction: str) -> None:
    """Two tasks are two families if asked; common draws make the correction small."""
    scores = np.random.default_rng(0).integers(0, 2, (4, 60)).astype(float)
    scores[3, :] = 1
    matrix = ResponseMatrix.from_array(scores, tasks=["one"] * 30 + ["two"] * 30)
    rows = list(compare(matrix, correction=correction, family="task", rng=0))  # pyright: ignore[reportArgumentType]
    adjust = {"bh": multiplicity.benjamini_hochberg}
    for task in ("one", "two"):
        p_values = np.array([row.p_value for row in rows if row.task == task])
        adjusted = [row.p_adjusted for row in rows if row.task == task]

        assert 6 == len(adjusted)
        if correction in ("simultaneous", "stepdown"):
            assert min(adjusted) < 0.01  # pyright: ignore[reportArgumentType]
        else:
            expected = adjust.get(correction, np.asarray)(p_values)
            assert expected == pytest.approx(adjusted)


def test_what_cannot_be_compared_is_said() -> None:
    """A task of one model, a metric that is no mean, a baseline without scores."""
    responses = [
        _responses("a", [1, 0, 1]),
        _responses("b", [1, 1, 1]),
        _responses("a", [1, 0], task="alone"),
        _responses("a", [1, 0], task="f", aggregation="f1"),
        _responses("b", [1, 0], task="f", aggregation="f1"),
        _responses("b", [1, 0], task="other"),
        _responses("c", [1, 0], task="other"),
    ]
    found = compare(responses, baseline="a")

    assert 1 == len(found)
    assert found.notes == (
        "not compared, one model only: alone acc",
        "not compared, fewer than two models have a mean of item scores: f acc",
        "not compared, a has no item scores: other acc",
        "no comparison over all tasks: no two models have scores of items on every one of the "
        "tasks, the baseline one of the two",
    )


def test_scores_of_items_count_in_place_of_what_their_log_says_of_them() -> None:
    """A logged value with its number of items and error, beside items, changes nothing."""
    plain = [_responses("a", [1, 0, 1, 1]), _responses("b", [0, 1, 0, 1])]
    logged = [replace(r, logged=0.5, logged_n=4, logged_std_error=0.2) for r in plain]

    assert compare(plain, rng=0) == compare(logged, rng=0)
    logged[1] = replace(logged[1], item_ids=np.arange(10, 14))
    with pytest.raises(DesignError, match="take design unpaired"):
        compare(logged)


@pytest.mark.parametrize(("baseline", "n_pairs"), [(None, 15), ("best", 15), ("model_2", 5)])
def test_pairs_that_memory_does_not_hold_are_refused(baseline: str | None, n_pairs: int) -> None:
    """Six models: every two also for a best one, which may be any; five with a named one."""
    matrix = ResponseMatrix.from_array(np.eye(6))
    with limited(f"{_PAIR_BYTES * n_pairs - 1}"), pytest.raises(DesignError) as refused:
        compare(matrix, baseline=baseline, overall=False)

    assert f"{n_pairs} pairs of 6 models" in str(refused.value)
    assert ("name a baseline" in str(refused.value)) == (n_pairs == 15)


def test_a_pair_without_common_items_has_a_row_without_numbers() -> None:
    """Beside pairs that have some."""
    scores = np.array([[1, 0, 1, np.nan], [0, 1, np.nan, np.nan], [np.nan, np.nan, 1, 1]])
    rows = list(compare(ResponseMatrix.from_array(scores)))

    assert [2, 1, 0] == [row.n_items for row in rows]
    assert (None, None, None, None, None) == (
        rows[2].difference, rows[2].low, rows[2].p_value, rows[2].p_adjusted, rows[2].prob_better,
    )  # fmt: skip
    assert "the two models share no item" in rows[2].notes


def test_no_common_item_in_any_task_is_refused() -> None:
    """Whoever wants independent samples says so."""
    apart = [
        _responses("a", [1, 0, 1]),
        _responses("b", [0, 1], item_ids=np.array(["x", "y"])),
    ]

    with pytest.raises(DesignError, match="take design unpaired"):
        compare(apart)
    assert [row.difference for row in compare(apart, design="unpaired")] == [
        pytest.approx(1 / 2 - 2 / 3)
    ]


def test_models_without_a_common_item_are_taken_as_independent() -> None:
    """And the row says so, beside other tasks that are paired."""
    a = [_responses("a", [1, 0], item_ids=np.array([1, 2])), _responses("a", [1, 1], task="u")]
    b = [
        _responses("b", [1, 0, 1], item_ids=np.array([3, 4, 5])),
        _responses("b", [0, 1], task="u"),
    ]
    overall, apart, together = compare([*a, *b])

    assert ("overall", -1 / 6) == (overall.kind, pytest.approx(overall.difference))
    assert "no items in common, each model's own mean: t" in overall.notes

    assert ("t", "newcombe-unpaired") == (apart.task, apart.method)
    assert NO_ITEM_IN_COMMON in apart.notes
    assert ("u", "symmetric-bootstrap") == (together.task, together.method)
    assert NO_ITEM_IN_COMMON not in together.notes
    # In the order of the logs.
    assert ["u", "t"] == [row.task for row in compare([a[1], a[0], b[1], b[0]])][1:]


def test_other_designs_need_common_items() -> None:
    """With both names and counts."""
    a = _responses("a", [1, 0], item_ids=np.array([1, 2]))
    b = _responses("b", [1, 0, 1], item_ids=np.array([3, 4, 5]))

    with pytest.raises(DesignError, match=r"'a' answered 2 items of 't' and 'b' 3, none of them"):
        compare([a, b], design="sequential")


def test_nothing_that_differs_has_no_interval_without_bounds() -> None:
    """Nothing says in which unit models might differ; a constant difference does."""
    alike = _one([1.0, 5.0, -3.0], [1.0, 5.0, -3.0])
    row = _one([1.0, 5.0, -3.0], [3.0, 7.0, -1.0])

    assert (0.0, None, 1.0) == (alike.difference, alike.low, alike.p_value)
    assert "no interval: nothing differs, and the scores' bounds are unknown" in alike.notes
    assert 2.0 == row.difference
    assert -1 < row.low < 0  # pyright: ignore[reportOptionalOperand]


def test_clusters_of_unequal_size_are_compared_over_their_items() -> None:
    """A large cluster where a leads, and four small ones where b does: by items a leads."""
    clusters = np.repeat(["p", "q", "r", "s", "t"], [20, 2, 2, 2, 2])
    a = np.repeat([1.0, 0.0], [20, 8])
    row = compare([_responses(m, x, clusters=clusters) for m, x in (("a", a), ("b", 1 - a))])[0]
    sums, sizes = np.array([[-20.0, 2, 2, 2, 2]]), np.array([20.0, 2, 2, 2, 2])
    low, high = Differences(sums, sizes=sizes, span=1.0).limits(normal_quantile(0.95))

    assert (row.method, row.difference) == ("symmetric-bootstrap", pytest.approx(-12 / 28))
    assert (row.low, row.high) == pytest.approx((low[0], high[0]))


def test_the_study_of_pairs_in_clusters_bears_out_the_default() -> None:
    """Of what `make validate` wrote: at the level from 8 clusters on, and not wider than t."""
    rows = json.loads((VALIDATION / "paired_engine.json").read_text("utf-8"))["clusters"]
    ours, other = (
        {row["clusters"]: row for row in rows if row["method"] == name}
        for name in ("engine", "t_cr2")
    )

    for n in (8, 15, 30):
        assert 0.94 <= ours[n]["coverage"] <= 0.98
        assert ours[n]["width"] <= 1.05 * other[n]["width"]


def test_clusters_stand_or_fall_together() -> None:
    """A posterior that knows of them."""
    clusters = np.repeat(["p", "q", "r", "s", "t"], 6)
    difference = np.repeat([1.0, 0.0, 1.0, 1.0, 0.0], 6)
    a, b = np.zeros(30), difference
    rows = [_responses(m, x, clusters=clusters) for m, x in (("a", a), ("b", b))]
    row, plain = compare(rows, rng=0)[0], _one(a, b)
    low, high = clustered.logit_t_cr2(
        [6, 0, 6, 6, 0], [6] * 5, bounds=(-1, 1), confidence_level=0.95
    )
    named = compare(rows, rng=0, method="logit-t-cr2")[0]

    assert ("symmetric-bootstrap", "items in 5 clusters") == (row.method, row.notes[0])
    assert (float(low), float(high)) == pytest.approx((named.low, named.high))
    assert 2 * (1 - row.prob_better) == pytest.approx(row.p_value)  # pyright: ignore[reportOperatorIssue]
    assert plain.p_value < 1e-4  # pyright: ignore[reportOptionalOperand]
    assert 0.9 < row.prob_better < plain.prob_better  # pyright: ignore[reportOperatorIssue, reportOptionalOperand]
    assert row.p_adjusted == row.p_value


def test_a_method_without_clusters_is_used_on_request_with_a_warning() -> None:
    """And one for clusters nowhere else."""
    clusters = np.array(["x", "x", "y"])
    rows = [_responses(m, s, clusters=clusters) for m, s in (("a", [1, 0, 1]), ("b", [1, 1, 1]))]
    row = compare(rows, method="tango")[0]

    assert "tango" == row.method
    assert "tango treats items in 2 clusters as independent" in row.notes
    assert "symmetric-bootstrap" == _one([1, 0, 1], [1, 1, 1], method="t-cr2").method


def test_tasks_of_several_methods_have_their_own_numbers() -> None:
    """Clusters in one task only: the others are answered as if each were alone."""
    rng = np.random.default_rng(5)
    clusters = np.repeat(["p", "q", "r", "s", "t"], 6)
    answers = {task: rng.integers(0, 2, (2, 30)) for task in ("plain", "clustered", "other")}
    by_task = {
        task: [
            _responses(m, x, task=task, clusters=clusters if task == "clustered" else None)
            for m, x in zip("ab", both, strict=True)
        ]
        for task, both in answers.items()
    }
    options = {"method": "t-cr2", "correction": "none", "overall": False, "rng": 0}
    rows = compare(
        [r for task in ("clustered", "plain", "other") for r in by_task[task]], **options
    )  # pyright: ignore[reportArgumentType]

    assert ["t-cr2", "symmetric-bootstrap", "symmetric-bootstrap"] == [row.method for row in rows]
    for row in rows:
        (alone,) = compare(by_task[row.task], **options)  # pyright: ignore[reportArgumentType]
        shown = ("difference", "low", "high", "p_value", "prob_better")
        assert [getattr(alone, x) for x in shown] == [getattr(row, x) for x in shown]


@pytest.mark.parametrize(
    ("more", "error", "message"),
    [
        ({"baseline": "modle_1"}, SelectionError, "no model is called 'modle_1'; did you mean mod"),
        ({"method": "tonga"}, SelectionError, "did you mean tango"),
        (
            {"correction": "bonferroni"},
            SelectionError,
            "There are: simultaneous, stepdown, bh, none",
        ),
        ({"confidence_level": 1.0}, DesignError, r"confidence level 1 is not between 0 and 1"),
    ],
)
def test_bad_arguments_are_refused(
    more: dict[str, object], error: type[Exception], message: str
) -> None:
    """With what was found, what was expected, and the closest names."""
    matrix = ResponseMatrix.from_array(np.eye(3))

    with pytest.raises(error, match=message):
        compare(matrix, **more)  # pyright: ignore[reportArgumentType]


def test_one_model_cannot_be_compared() -> None:
    """Nor can none."""
    with pytest.raises(DesignError, match=r"only one model \(a\); read logs of two models"):
        compare([_responses("a", [1, 0])])
    with pytest.raises(DesignError, match="there are no responses"):
        compare([])


@pytest.mark.parametrize("correction", ["simultaneous", "stepdown"])
def test_runs_are_repeatable(correction: str) -> None:
    """To the bit, with one seed."""
    matrix = ResponseMatrix.from_array(np.random.default_rng(1).normal(size=(3, 40)))
    first, second = (compare(matrix, correction=correction, rng=3) for _ in range(2))  # pyright: ignore[reportArgumentType]

    assert first == second
    assert 3 == first.seed


@pytest.mark.parametrize("method", ["tango", "newcombe", "bonett-price", "paired-t"])
def test_a_method_is_used_where_it_fits_and_the_row_says_what_ran(method: str) -> None:
    """A table method on partial credit is not possible: the default runs there."""
    a, b = [1, 0, 0, 1, 0, 0, 1, 0], [1, 1, 1, 0, 1, 1, 1, 1]
    binary, partial = (
        _one(a, b, method=method),
        _one([0.5] * 8, np.linspace(0, 1, 8), method=method),
    )

    assert method == binary.method
    assert binary.low < binary.difference < binary.high  # pyright: ignore[reportOperatorIssue, reportOptionalOperand]
    assert ("paired-t" if method == "paired-t" else "symmetric-bootstrap") == partial.method


def test_the_bundled_logs_are_compared() -> None:
    """Three models, two at a time, on every mean of every task."""
    found = compare(read(LOGS / "out"), rng=0)

    assert len(found) % 3 == 0
    assert len(found) > 60
    for row in found:
        assert row.low <= row.difference <= row.high  # pyright: ignore[reportOptionalOperand]
    assert list(found.to_frame().columns[:4]) == ["model_a", "model_b", "task", "metric"]


def test_fifty_models_on_twenty_tasks_take_seconds(within: Callable[..., Any]) -> None:
    """24,500 pairs of 600 items: intervals, p-values, P(better) and records."""
    rng = np.random.default_rng(0)
    difficulty, able = rng.normal(0, 1.3, 12_000), rng.normal(1, 0.7, (50, 1))
    scores = (able - difficulty + rng.normal(size=(50, 12_000)) > 0).astype(float)
    tasks = [f"task_{i // 600}" for i in range(12_000)]
    matrix = ResponseMatrix.from_array(scores, tasks=tasks)

    found = within(1.5, lambda: compare(matrix, rng=0))

    assert 24_500 == len(found)
    assert found.notes[-1].startswith("no comparison over all tasks: 1,225 pairs on 12,000 items")


def test_rows_name_the_prior_and_it_can_be_chosen():
    """Jeffreys' of pairs and of independent samples, unless another weight is given."""
    scores = (np.random.default_rng(0).random((2, 30)) < 0.5) * 1.0
    for design, weight, expected in (
        ("paired", None, "½ on either side of the differences"),
        ("paired", 1, "1 on each of: both right, a only, b only, neither"),
        ("unpaired", 0.5, "½ on right and on wrong, of each model"),
        ("unpaired", None, "none"),
    ):
        (row,) = compare(ResponseMatrix.from_array(scores), design=design, prior=weight)
        assert expected == row.prior
    with pytest.raises(DesignError, match="must be above 0: -1"):
        compare(ResponseMatrix.from_array(scores), prior=-1)


def test_a_prior_weighs_as_much_as_items_would():
    """One either way: P(better) of pairs with a prior of 1½ is that of two more items with ½."""
    a, b = (
        np.repeat([1.0, 0.0, 1.0, 0.0], [3, 5, 4, 2]),
        np.repeat([0.0, 1.0, 1.0, 0.0], [3, 5, 4, 2]),
    )
    (one,) = compare(ResponseMatrix.from_array(np.stack([a, b])), prior=1.5)
    more = np.stack([np.r_[a, 1, 0], np.r_[b, 0, 1]])
    (other,) = compare(ResponseMatrix.from_array(more), method="dirichlet")

    assert one.prob_better == pytest.approx(other.prob_better)


def test_shrunk_probabilities_keep_their_side_and_their_verdicts():
    """Nearer ½ than those of pairs alone; all else is as it was."""
    rng = np.random.default_rng(1)
    scores = (rng.random((6, 50)) < np.linspace(0.45, 0.55, 6)[:, None]) * 1.0
    matrix = ResponseMatrix.from_array(scores)
    alone, shrunk = (list(compare(matrix, probabilities=p, rng=0)) for p in ("alone", "shrunk"))
    for one, other in zip(alone, shrunk, strict=True):
        assert abs(other.prob_better - 0.5) <= abs(one.prob_better - 0.5) + 1e-9
        assert np.sign(other.prob_better - 0.5) == np.sign(other.difference)
        assert (one.low, one.p_adjusted) == (other.low, other.p_adjusted)
    assert {"shrunk over the differences of 6 models"} == {row.prior for row in shrunk}
