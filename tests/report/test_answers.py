"""The answer of a comparison: sentences, tables and questions of drawn evaluations."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import evalstats_plugin as es
from evalstats_plugin.comparisons.rows import Comparison, Comparisons
from evalstats_plugin.report.answers import answer, questions, short_names
from evalstats_plugin.report.comparisons import comparisons_markdown, print_comparisons
from evalstats_plugin.report.text import rows_latex

NAMES = (
    "a",
    "meta-llama/Llama-3.1-8B-Instruct",
    "Qwen2.5-7B-Instruct-with-a-long-suffix",
    "z" * 45,
)
TASKS = ("arc", "hellaswag", "a_task_with_a_very_long_name_that_goes_on", "mmlu pro", "t|x")


@cache
def drawn(seed: int) -> Comparisons:
    """Compare two to four models on one to five tasks, some far apart, some alike."""
    rng = np.random.default_rng(seed)
    n, n_tasks = int(rng.integers(2, 5)), int(rng.integers(1, 6))
    sizes = rng.integers(10, 120, n_tasks)
    tasks = np.repeat(TASKS[:n_tasks], sizes).tolist()
    able = rng.normal(0, rng.choice([0.1, 1.5]), (n, n_tasks)).repeat(sizes, axis=1)
    scores = (rng.random((n, len(tasks))) < 1 / (1 + np.exp(-able))).astype(float)
    if rng.random() < 0.3:
        scores[rng.random(scores.shape) < 0.1] = np.nan
    matrix = es.ResponseMatrix.from_array(scores, models=NAMES[:n], tasks=tasks, metric="acc")
    baseline = NAMES[0] if rng.random() < 0.4 else None
    correction = str(rng.choice(["simultaneous", "none", "stepdown"]))
    return es.compare(matrix, baseline=baseline, correction=correction, rng=seed)


def printed(results: Comparisons, width: int, **more: bool) -> list[str]:
    file = io.StringIO()
    print_comparisons(results, file, heading="made so", width=width, **more)
    return [line.rstrip() for line in file.getvalue().splitlines()]


@pytest.mark.parametrize("ahead", [True, False])
def test_a_model_that_lacks_a_task_is_among_many_pairs(*, ahead: bool) -> None:
    """Beside the whole, in which it does not take part, where it differs on a task that it has."""
    rng = np.random.default_rng(1)
    scores = rng.integers(0, 2, (6, 60)).astype(float)
    scores[0, :30], scores[0, 30:] = (1.0 if ahead else scores[1, :30]), np.nan
    matrix = es.ResponseMatrix.from_array(
        scores, models=[f"m{i}" for i in range(6)], tasks=np.repeat(["t", "u"], 30).tolist()
    )

    lines = printed(es.compare(matrix), 80, all_pairs=False)

    assert any(re.match(r"m\d +m0 ", line) for line in lines) == ahead
    assert any("that cannot be told apart: --all-pairs" in line for line in lines)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_line_is_too_long_and_no_number_or_name_is_broken(seed: int, width: int) -> None:
    results = drawn(seed)
    lines = printed(results, width)

    assert max(map(len, lines)) <= width
    words = {word for line in lines for word in line.split()}
    for row in results:
        if row.kind == "task" and len(results) < 6:
            assert f"{row.difference:+z.4f}".replace("+0.0000", "0.0000") in " ".join(words) + " "
    # A name in a table is whole, or has lost its middle.
    for line in lines:
        for name in re.findall(r"\S*…\S*", line):
            start, _, end = name.rstrip("▲▼,").partition("…")
            assert any(
                start in label and label.endswith(end)
                for label in (*NAMES, *TASKS, *(f"{task} acc" for task in TASKS))
            )


# Several pairs; then one, with each verdict; tasks that say otherwise are in 18, 33 and 37.
@pytest.mark.parametrize("seed", [*range(4), 11, 21, 18, 33, 37])
def test_sentences_say_what_the_rows_say(seed: int) -> None:
    """Who is better, and every task on which it is the other way."""
    results = drawn(seed)
    names = short_names([n for row in results for n in (row.model_a, row.model_b)])
    (first, *_) = questions(results.rows)
    text = " ".join(answer(results.rows))

    for row in first.head:
        a, b = names[row.model_a], names[row.model_b]
        other = {"better": "worse", "worse": "better"}.get(row.verdict)
        for task in first.tasks.get((row.model_a, row.model_b), []):
            if other and task.verdict == other:
                assert task.task in text
        if len(first.head) == 1:
            said = {
                "better": f"{b} is better than {a} ",
                "worse": f"{a} is better than {b} ",
                "unclear": f"{b} and {a} cannot be told apart ",
            }[row.verdict]
            assert text.startswith(said)


@pytest.mark.parametrize("seed", [3, 4, 6, 8, 9, 11])
def test_the_overall_row_is_the_mean_of_its_tasks(seed: int) -> None:
    """Scores and differences; and the table of scores has the same verdicts and scores."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(5, 60, int(rng.integers(2, 6)))
    tasks = np.repeat([f"t{i}" for i in range(len(sizes))], sizes).tolist()
    scores = rng.random((3, len(tasks))) < rng.random((3, 1))
    matrix = es.ResponseMatrix.from_array(scores.astype(float), tasks=tasks)
    results, table = es.compare(matrix, rng=0), es.table(matrix, rng=0)
    rows = [row for row in results if row.kind == "overall"]
    parts = [row for row in results if row.kind == "task"]
    overall = {cell.model: cell.estimate for cell in table if cell.kind == "overall"}
    (pairs,) = (one for one in table.pairs if one.kind == "overall")

    assert {row.part_of for row in parts} == {rows[0].task}
    for k, row in enumerate(rows):
        own = [p for p in parts if (p.model_a, p.model_b) == (row.model_a, row.model_b)]
        for name in ("difference", "score_a", "score_b"):
            mean = np.mean([getattr(p, name) for p in own])
            assert getattr(row, name) == pytest.approx(mean, abs=1e-12)
        assert row.score_b - row.score_a == pytest.approx(row.difference)  # pyright: ignore[reportOptionalOperand]
        assert (overall[row.model_a], overall[row.model_b]) == pytest.approx(
            (row.score_a, row.score_b)
        )
        sign = {"better": 1, "worse": -1, "unclear": 0}[row.verdict]
        assert sign == pairs.verdict[k]
        assert (row.low, row.high) == pytest.approx((pairs.low[k], pairs.high[k]))
    alike = [row for row in results if row.kind == "tasks"]
    assert bool(alike) == (len(sizes) >= 3)
    for row, whole in zip(alike, rows, strict=False):
        assert row.difference == pytest.approx(whole.difference)


def test_an_overall_score_takes_only_scales_and_models_that_fit() -> None:
    """A task on another scale, and a model without one of the tasks, are left out by name."""
    rng = np.random.default_rng(0)
    right = (rng.random((3, 40)) < 0.6).astype(float)
    right[2, :20] = np.nan
    matrix = es.ResponseMatrix.from_array(right, tasks=["s"] * 20 + ["t"] * 20)
    points = es.ResponseMatrix.from_array(
        rng.integers(0, 11, (3, 20)).astype(float),
        tasks="points",
        measure=es.Measure(metric="score", scale=es.Scale(0, 10)),
    )
    found = es.compare([*matrix.to_responses(), *points.to_responses()], rng=0)
    overall = [row for row in found if row.kind == "overall"]

    assert ["2 of 3 tasks"] == [row.task for row in overall]
    assert any("another scale or direction: points" in note for note in found.notes)
    assert any("left out, not on all of them: model_2" in note for note in found.notes)
    assert not [row for row in es.compare(matrix, overall=False) if row.kind != "task"]


def test_names_keep_organisations_only_where_they_differ() -> None:
    assert {"x/a": "a", "y/b": "b"} == short_names(["x/a", "y/b"])
    assert {"x/a": "x/a", "y/a": "y/a", "b": "b"} == short_names(["x/a", "y/a", "b"])


def _row(**more: Any) -> Comparison:
    given: dict[str, Any] = {
        "model_a": "a", "model_b": "b", "task": "t", "metric": "err", "n_items": 30,
        "difference": -0.1, "low": -0.2, "high": -0.01, "p_value": 0.01, "p_adjusted": 0.02,
        "prob_better": 0.99, "method": "m", "confidence_level": 0.95, "score_a": 0.5,
        "score_b": 0.4, "higher_is_better": False,
    }  # fmt: skip
    return Comparison(**{**given, **more})


def test_the_better_model_comes_first_also_where_lower_is_better() -> None:
    (text,) = answer([_row()])
    assert text == (
        "b is better than a on t err (30 items): 0.4000 against 0.5000, a difference of -0.1000 "
        "(95 % limits -0.2000 to -0.0100), lower being better."
    )
    (text,) = answer([_row(difference=0.1, low=0.01, high=0.2)])
    assert text.startswith("a is better than b on t err (30 items): 0.5000 against 0.4000")
    assert "a difference of 0.1000 (95 % limits 0.0100 to 0.2000), lower being better" in text


def test_what_is_possible_is_said_of_pairs_that_all_have_limits() -> None:
    """And not "either way": limits need not be as far from 0 on both sides."""
    given = {"p_adjusted": 0.6, "low": -0.01, "high": 0.3, "higher_is_better": None}
    rows = [_row(model_b=name, **given) for name in "bc"]

    assert answer(rows)[0].endswith("(a difference of up to 0.3000 is possible).")
    rows[1] = replace(rows[1], low=None, high=None)
    assert answer(rows)[0].endswith("b, c cannot be told apart.")


def test_ratios_are_not_called_differences() -> None:
    """Titles of all forms name them, beside the differences of scores that have no ratio."""
    ratio = _row(effect="ratio", difference=1.5, low=1.2, high=1.9, higher_is_better=None)
    other = _row(task="u", metric="reward", higher_is_better=None)
    for rows, title in (((ratio,), "Ratio"), ((ratio, other), "Ratio or difference")):
        results = Comparisons(rows)
        markdown = comparisons_markdown(results, "")
        latex = rows_latex(results)

        assert f"{title} [limits]" in str(results)
        assert f"| {title} |" in markdown
        assert f"& {title} &" in latex
        assert "exactly where no difference (1 of a ratio) is outside" in markdown


def test_printing_and_notebooks_begin_with_the_answer() -> None:
    results = Comparisons((_row(model_a="<b>"),))

    assert str(results).startswith("b is better than <b> on t err")
    assert results._repr_html_().startswith("<p><strong>b is better than &lt;b&gt; on t err")
    assert results.answer in " ".join(str(results).split())
    assert ["better"] == results.to_frame()["verdict"].tolist()
