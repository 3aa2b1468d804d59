"""Tables of models and tasks: every number is that of `intervals` and `compare`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import evalstats_plugin as es
from evalstats_plugin.data.responses import Responses
from evalstats_plugin.errors import DesignError, SelectionError

LOGS = Path(__file__).parents[2] / "fixtures" / "logs" / "lm_eval" / "0.4.13" / "out"


def _tasks(seed: int, sizes: tuple[int, ...] = (40, 80, 20)) -> list[Responses]:
    """Return three models on some tasks of 0/1 scores."""
    rng = np.random.default_rng(seed)
    found: list[Responses] = []
    for i, size in enumerate(sizes):
        right = rng.random((3, size)) < np.array([[0.85], [0.6], [0.5]])
        matrix = es.ResponseMatrix.from_array(right.astype(float))
        found += [r.measured(task=f"task {i}") for r in matrix.to_responses()]
    return found


def test_scores_are_those_of_the_report() -> None:
    """Estimates and limits of tasks and groups."""
    logs = es.read(LOGS, task="es_group_unw", metric="acc")
    rows = {(r.model, r.task): r for r in es.intervals(logs)}

    table = es.table(logs, rng=0)
    open_table = es.table(logs, subtasks=True, rng=0)

    assert ("es_group_unw",) == table.tasks
    assert ("overall", "es_sub_a", "es_sub_b", "es_sub_c") == open_table.tasks
    for cell in (*table, *open_table):
        if cell.kind != "overall":
            row = rows[cell.model, cell.task]
            assert (cell.estimate, cell.low, cell.high) == (row.estimate, row.low, row.high)


@pytest.mark.parametrize("weights", ["tasks", "items"])
def test_the_overall_score_is_the_weighted_mean(weights: str) -> None:
    """Of the estimates of the tasks."""
    table = es.table(_tasks(1), weights=weights, rng=0)  # type: ignore[arg-type]
    shares = np.ones(3) if weights == "tasks" else np.array([40, 80, 20])

    for model in table.models:
        overall, *tasks = [cell for cell in table if cell.model == model]
        expected = np.average([cell.estimate for cell in tasks], weights=shares)  # type: ignore[misc]
        assert overall.estimate == pytest.approx(expected)
        assert overall.low is not None
        assert overall.high is not None
        assert overall.low < expected < overall.high


@pytest.mark.parametrize("seed", range(8))
def test_ranks_and_letters_are_the_verdicts_of_compare(seed: int) -> None:
    """A rank leaves out exactly what some verdict leaves out."""
    responses = _tasks(seed, (40, 60))
    table = es.table(responses, rng=0)
    alone = [r.measured(metric="score") for r in responses]
    # The same family: an overall score with its tasks.
    group = es.Group("overall", 0, "parts", 2, logged=0.0)
    pairs = es.compare([replace(r, groups=(group,)) for r in alone], rng=0)

    for cell in table:
        own = [p for p in pairs if p.task == cell.task and cell.model in (p.model_a, p.model_b)]
        signs = [1 if p.model_b == cell.model else -1 for p in own]
        verdict = {"better": 1, "worse": -1, "unclear": 0}
        found = [sign * verdict[p.verdict] for sign, p in zip(signs, own, strict=True)]
        assert cell.best_rank == 1 + found.count(-1)
        assert cell.worst_rank == 3 - found.count(1)
        others = {c.model: set(c.letters) for c in table if c.task == cell.task}
        for pair, clear in zip(own, found, strict=True):
            shared = others[pair.model_a] & others[pair.model_b]
            assert bool(shared) == (clear == 0)
        assert cell.may_be_first or cell.best_rank != 1 or cell.worst_rank != 1


def _in_group(responses: list[Responses], *tasks: str) -> list[Responses]:
    """Put some tasks into a group that the harness gives a score."""
    group = es.Group("group", 0, "macro", len(tasks), logged=0.5)
    return [replace(r, groups=(group,)) if r.task in tasks else r for r in responses]


@pytest.mark.parametrize(
    ("weights", "shares", "said"),
    [
        ("columns", [0.25, 0.25, 0.5], "mean of 2 columns (140 items), each counting the same."),
        ("tasks", [1 / 3] * 3, "each task counting the same, groups once for each of their tasks."),
        ("items", [40 / 140, 80 / 140, 20 / 140], "each item counting the same."),
    ],
)
def test_a_group_is_one_column_of_the_overall_score(
    weights: str, shares: list[float], said: str
) -> None:
    """Unless every task or item counts the same, which the legend then says."""
    responses = _in_group(_tasks(1), "task 0", "task 1")
    table = es.table(responses, weights=weights, rng=0)  # type: ignore[arg-type]
    scores = {(c.model, c.task): c.estimate for c in es.table(responses, subtasks=True, rng=0)}

    assert ("overall", "group", "task 2") == table.tasks
    assert said in table.to_markdown()
    for model, cell in table.by_column["overall", "overall"].items():
        own = [scores[model, f"task {i}"] for i in range(3)]
        assert cell.estimate == pytest.approx(np.dot(shares, own))  # type: ignore[arg-type]
        assert cell.best_rank is not None
    if weights == "columns":
        columns = [table.by_column["group", "group"], table.by_column["task", "task 2"]]
        for model, cell in table.by_column["overall", "overall"].items():
            expected = np.mean([column[model].estimate for column in columns])  # type: ignore[arg-type]
            assert cell.estimate == pytest.approx(expected)


def test_a_group_of_several_metrics_is_shown_with_that_of_most_tasks() -> None:
    """lm-eval's truthfulqa has a mean for each metric: two scores of one column were refused."""
    responses = _in_group(_tasks(1), "task 0", "task 1", "task 2")
    apart = [r.measured(metric="bleu_acc") if r.task == "task 0" else r for r in responses]
    apart = [
        replace(r, groups=(replace(r.groups[0], n_tasks=1 if r.task == "task 0" else 2),))
        for r in apart
    ]
    table = es.table(apart, rng=0)

    assert ("overall", "group", "task 0") == table.tasks
    assert {100} == {cell.n_items for cell in table.by_column["group", "group"].values()}
    overall = table.by_column["overall", "overall"]
    whole = [row for row in es.compare(apart, baseline="model_0") if row.kind == "overall"]
    assert 2 == len(whole)
    for row in whole:
        assert row.score_b == pytest.approx(overall[row.model_b].estimate)


def test_values_without_items_have_the_ranks_of_independent_samples() -> None:
    """Column by column, over all tasks and in groups: `compare` had verdicts, the table none."""
    bare = [
        Responses(
            model=r.model, measure=r.measure, source=r.source, groups=r.groups,
            logged=p, logged_n=n, logged_std_error=np.sqrt(p * (1 - p) / (n - 1)),
        )
        for r in _in_group(_tasks(1), "task 0", "task 1")
        for p, n in [(float(r.scores.mean()), len(r.item_ids))]
    ]  # fmt: skip
    table = es.table(bare, rng=0)
    rows = es.compare(bare, rng=0)

    kinds = {"overall", "group", "task"}
    assert kinds == {row.kind for row in rows} == {c.kind for c in table if c.best_rank is not None}
    for row in rows:
        if row.kind == "task" and row.task != "task 2":
            continue
        column = table.by_column[row.kind, "overall" if row.kind == "overall" else row.task]  # type: ignore[index]
        scores = [column[model] for model in (row.model_a, row.model_b)]
        assert [row.score_a, row.score_b] == pytest.approx([c.estimate for c in scores])
        letters = [set(c.letters) for c in scores]
        assert (row.verdict == "unclear") == bool(letters[0] & letters[1])
        assert any(note.startswith("pairing is lost") for note in row.notes)
    # With a right and a wrong item more.
    whole = next(r for r in rows if r.kind == "overall")
    shares = {"task 0": 0.25, "task 1": 0.25, "task 2": 0.5}
    variance = sum(
        (shares[r.task] ** 2) * q * (1 - q) / (r.logged_n - 1)  # type: ignore[operator]
        for r in bare
        if r.model in (whole.model_a, whole.model_b)
        for q in [(r.logged * r.logged_n + 1) / (r.logged_n + 2)]  # type: ignore[operator]
    )
    assert (whole.high_single or 0) - (whole.low_single or 0) == pytest.approx(
        2 * 1.959964 * variance**0.5, rel=1e-5
    )
    assert [note for note in table.notes if "independent samples" in note or "own errors" in note]


def test_a_group_with_a_bare_value_is_in_neither_overall_score() -> None:
    """`compare` counted what was left of the group, the table left it out."""
    responses = _in_group(_tasks(1, (40, 80, 20, 30)), "task 0", "task 1")
    mixed = [
        Responses(
            model=r.model, measure=r.measure, source=r.source, groups=r.groups,
            logged=0.4, logged_std_error=0.01,
        ) if r.task == "task 0" else r
        for r in responses
    ]  # fmt: skip
    overall = es.table(mixed, rng=0).by_column["overall", "overall"]
    rows = [row for row in es.compare(mixed, rng=0) if row.kind == "overall"]

    assert 3 == len(rows)
    for row in rows:
        scores = [overall[model].estimate for model in (row.model_a, row.model_b)]
        assert [row.score_a, row.score_b] == pytest.approx(scores)


def test_pairs_of_the_overall_score_have_its_weights() -> None:
    """The difference behind a rank is that of the scores shown."""
    table = es.table(_in_group(_tasks(1), "task 0", "task 1"), rng=0)
    scores = table.by_column["overall", "overall"]
    (pairs,) = (p for p in table.pairs if p.kind == "overall")

    for a, b, difference in zip(pairs.a, pairs.b, pairs.difference, strict=True):
        own = [scores[pairs.models[i]].estimate or 0.0 for i in (a, b)]
        assert difference == pytest.approx(own[1] - own[0])


def test_a_task_that_is_named_is_a_column_beside_its_group() -> None:
    """The overall score has it in the group, and says so."""
    responses = _in_group(_tasks(1), "task 0", "task 1")
    table = es.table(responses, columns="task 0", rng=0)

    assert ("overall", "group", "task 0", "task 2") == table.tasks
    assert "counting the same, without task 0." in table.to_markdown()
    same = es.table(responses, rng=0)
    assert [c.estimate for c in table if c.kind == "overall"] == [
        c.estimate for c in same if c.kind == "overall"
    ]


def test_a_task_that_a_model_ran_without_its_group_is_a_column() -> None:
    """Nothing that was read is lost because another model ran more."""
    responses = _in_group(_tasks(1), "task 0", "task 1")
    some = [r for r in responses if r.model != "model_2" or r.task == "task 0"]
    some = [replace(r, groups=()) if r.model == "model_2" else r for r in some]
    table = es.table(some, rng=0)

    assert ("overall", "group", "task 0", "task 2") == table.tasks
    assert "model_2" in table.by_column["task", "task 0"]
    assert ["model_0", "model_1"] == sorted(table.by_column["overall", "overall"])


def test_a_group_whose_tasks_are_not_all_there_hides_none() -> None:
    """Without a score of the group its tasks are the columns."""
    responses = [r for r in _in_group(_tasks(1), "task 0", "task 1") if r.task != "task 1"]
    table = es.table(responses, rng=0)

    assert ("overall", "task 0", "task 2") == table.tasks


def test_the_score_of_a_task_is_its_headline() -> None:
    """Other values that a log gives of the same answers are no scores of the task."""
    responses = [
        replace(r, beside=(replace(r.measured(metric="share wrong"), scores=1 - r.scores),))
        for r in _tasks(1)
    ]
    plain, table = es.table(_tasks(1), rng=0), es.table(responses, rng=0)

    assert plain.rows == table.rows


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ((), ["a", "a"]),
        ("b", ["b", "b"]),
        (("b", "a"), ["b", "b"]),
        (("task 0=b",), ["b", "a"]),
        (("a", "task 1=b"), ["a", "b"]),
    ],
)
def test_metrics_are_preferred_in_order_or_by_task(
    metric: str | tuple[str, ...], expected: list[str]
) -> None:
    responses = [r.measured(metric=name) for r in _tasks(1, (20, 30)) for name in "ab"]
    table = es.table(responses, metric=metric, rng=0)
    found = {cell.task: cell.metric for cell in table if cell.kind == "task"}

    assert expected == list(found.values())


def test_two_scores_of_a_model_for_one_column_are_an_error() -> None:
    """The message names both."""
    table = es.table(_tasks(1), rng=0)
    again = replace(table.rows[-1], metric="other", estimate=0.25)

    with pytest.raises(DesignError, match=r"model_2 has two scores in column task 2: .*other"):
        replace(table, rows=(*table.rows, again))


def test_a_task_may_be_called_overall() -> None:
    """Columns are told apart by what they are."""
    named = {"task 0": "overall", "task 1": "group", "task 2": "task 2"}
    responses = _in_group(_tasks(1, (30, 40, 20, 50)), "task 1", "task 3")
    table = es.table([r.measured(task=named.get(r.task, r.task)) for r in responses], rng=0)

    assert ("overall", "overall", "group", "task 2") == table.tasks
    expected = {c.model: c.estimate for c in es.table(responses, rng=0) if c.task == "task 0"}
    found = {model: c.estimate for model, c in table.by_column["task", "overall"].items()}
    assert expected == found
    head = "| Rank | Model | Overall [95 % limits] | Ties | overall | group | task 2 |"
    assert head == table.to_markdown().splitlines()[0]


def test_models_without_every_task_have_no_overall_score() -> None:
    """They are in the table, below the others."""
    responses = [r for r in _tasks(2) if (r.model, r.task) != ("model_0", "task 1")]
    table = es.table(responses, rng=0)

    assert ("model_1", "model_2", "model_0") == table.models
    assert not [c for c in table if c.model == "model_0" and c.kind == "overall"]


def test_tasks_of_another_direction_are_columns_of_their_own() -> None:
    """Their scores are shown, but cannot be added up with the others; a note says so."""
    responses = [r.measured(higher_is_better=False) if r.task == "task 1" else r for r in _tasks(3)]
    table = es.table(responses, rng=0)

    assert ("overall", "task 0", "task 1", "task 2") == table.tasks
    assert {60} == {c.n_items for c in table if c.kind == "overall"}
    assert any("not part of the overall score" in note and "task 1" in note for note in table.notes)
    best = [c.model for c in table if c.task == "task 1" and c.best_rank == 1 == c.worst_rank]
    assert "model_0" not in best


def test_unbounded_scores_have_no_overall_score() -> None:
    """Nothing says how they could be added up; their columns are there."""
    unbounded = [replace(r, scores=r.scores * 7 - 3) for r in _tasks(3)]
    table = es.table(unbounded, rng=0)

    assert ("task 0", "task 1", "task 2") == table.tasks
    assert "–" not in table.to_markdown()


def test_one_model_has_no_ranks() -> None:
    """Scores and limits alone."""
    table = es.table([r for r in _tasks(4) if r.model == "model_1"], rng=0)

    assert {None} == {cell.best_rank for cell in table}
    assert {None} == {cell.may_be_first for cell in table}
    assert "Rank" not in table.to_markdown()


def test_what_cannot_be_shown_is_said() -> None:
    """Weights that do not exist, and responses without item scores."""
    with pytest.raises(SelectionError, match="no weighting is called 'models'"):
        es.table(_tasks(5), weights="models")  # type: ignore[arg-type]
    empty = [replace(r, scores=np.full_like(r.scores, np.nan)) for r in _tasks(5)]
    with pytest.raises(DesignError, match="no task has a metric that is a mean of item scores"):
        es.table(empty)


@pytest.mark.parametrize(
    ("n_items", "options", "first"),
    [
        (20, {}, "| 1–2 | model_0 | 0.85 [0.66, 0.96] | a |"),
        (5_000, {}, "| 1 | model_0 | 0.850 [0.840, 0.860] | a |"),
        (20, {"percent": True}, "| 1–2 | model_0 | 85 [66, 96] | a |"),
        (20, {"percent": True, "digits": 2}, "| 1–2 | model_0 | 85.00 [65.99, 95.91] | a |"),
    ],
)
def test_decimals_follow_the_limits(n_items: int, options: dict[str, int], first: str) -> None:
    """Two digits of the half-width, unless another number is asked for."""
    table = es.table(_tasks(6, (n_items,)), rng=0)

    assert table.to_markdown(**options).splitlines()[2] == first  # type: ignore[arg-type]


def test_each_column_has_the_decimals_that_its_own_limits_support() -> None:
    """A small task does not coarsen the others, nor hides what they are."""
    table = es.table(_tasks(6, (5_000, 40)), rng=0)
    cells = [line.split(" | ")[4:] for line in table.to_markdown().splitlines()[2:5]]

    assert ["**0.850**", "**0.82** |"] == cells[0]
    assert all(len(large.strip("*")) == 5 and len(small.strip("* |")) == 4
               for large, small in cells)  # fmt: skip


@pytest.mark.parametrize(
    ("n_models", "expected"),
    [
        (2, "places that the one pair of models leaves open (95 %)"),
        (3, "places that all 3 pairs of models leave open at once (95 %)"),
    ],
)
def test_the_legend_counts_the_pairs_of_models(n_models: int, expected: str) -> None:
    models = [f"model_{i}" for i in range(n_models)]
    table = es.table([r for r in _tasks(1) if r.model in models], rng=0)

    assert expected in table.to_markdown()


def test_differences_from_a_model_have_the_verdicts_of_all_pairs() -> None:
    """Signs, limits and verdicts of every pair, whichever of the two stands first."""
    rng = np.random.default_rng(1)
    scores = (rng.random((4, 240)) < np.array([[0.2], [0.5], [0.55], [0.9]])) * 1.0
    matrix = es.ResponseMatrix.from_array(scores, tasks=["x"] * 120 + ["y"] * 120)
    shown = es.table(matrix, rng=0)
    rows = {
        (row.kind, row.task.replace("all 2 tasks", "overall"), row.model_a, row.model_b): row
        for model in shown.models
        for row in shown.against(model)
    }

    for pairs in shown.pairs:
        models = [pairs.models[i] for i in pairs.a], [pairs.models[i] for i in pairs.b]
        for i, (a, b) in enumerate(zip(*models, strict=True)):
            forward = rows[pairs.kind, pairs.task, a, b]
            back = rows[pairs.kind, pairs.task, b, a]
            verdict = {1: "better", 0: "unclear", -1: "worse"}[int(pairs.verdict[i])]
            assert (forward.difference, forward.low) == (pairs.difference[i], pairs.low[i])
            assert (back.difference, back.high) == (-pairs.difference[i], -pairs.low[i])
            assert forward.verdict == verdict
    assert len(rows) == 3 * 4 * 3


def test_a_logged_value_is_no_column_beside_one_that_is_recomputed() -> None:
    """It would be the only model with a score, though others have the metric from their items."""
    f1 = next(r for r in es.read(LOGS) if r.pairs is not None and r.logged is not None)
    bare = Responses(
        model="other", measure=f1.measure, source=f1.source, logged=f1.logged, logged_std_error=0.02
    )
    scored = _tasks(0, sizes=(40, 30))

    assert f1.task in es.table([*scored, bare], rng=0).tasks
    assert f1.task not in es.table([*scored, f1, bare], rng=0).tasks
