"""Verdicts, intervals, letters, ranks and who may be first are one answer."""

from __future__ import annotations

import inspect
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalstats_plugin import Measure, ResponseMatrix, compare
from evalstats_plugin.cli.shell import shared
from evalstats_plugin.comparisons import rank_sets
from evalstats_plugin.comparisons.design import Correction, Family, Probabilities
from evalstats_plugin.comparisons.ranks import ranks_of
from evalstats_plugin.comparisons.rows import Comparison
from evalstats_plugin.errors import DesignError


def _outside(row: Comparison) -> bool:
    """Whether no difference is outside the interval; a limit at it is, of a pair that was found."""
    if row.low is None or row.high is None:
        return False
    if row.low > 0 or row.high < 0:
        return True
    return row.verdict != "unclear" and (row.low == 0 or row.high == 0)


N_MODELS, FEW = (2, 3, 4, 6, 10, 16), (2, 3, 4, 5)
N_ROWS, SEED = 100_000, 20261123
VALIDATION = Path(__file__).parents[2] / "fixtures" / "validation"
DESIGNS = ("paired", "paired", "paired", "unpaired", "tasks")


def _eval(rng: np.random.Generator, n_models: Sequence[int]) -> ResponseMatrix:
    """Some models on some tasks: of every kind; clusters, holes, copies, lower is better."""
    n, m = int(rng.choice(n_models)), int(np.exp(rng.uniform(np.log(2), np.log(200))))
    n_tasks = int(rng.integers(1, 4))
    size = (n, m * n_tasks)
    level = rng.uniform(0.05, 0.95, (n, 1))
    kinds: dict[str, Any] = {
        "right": lambda: (rng.random(size) < level) * 1.0,
        "epochs": lambda: (rng.random((*size, 3)) < level[:, :, None]) * 1.0,
        "rubric": lambda: np.clip(np.round(rng.normal(level, 0.3, size), 1), 0, 1),
        "narrow": lambda: 0.5 + 0.1 * level + rng.uniform(-0.03, 0.03, size),
        "skewed": lambda: np.minimum(1, 0.05 * np.exp(rng.normal(level, 1, size))),
        "constant": lambda: np.broadcast_to(np.round(level, 1), size).copy(),
    }
    scores = kinds[str(rng.choice(list(kinds)))]()
    if rng.random() < 0.3:
        scores[-1] = scores[0]
    if rng.random() < 0.3:
        scores[rng.random(scores.shape[:2]) < 0.1] = np.nan
    more: dict[str, Any] = {"tasks": [f"t{k}" for k in range(n_tasks) for _ in range(m)]}
    if rng.random() < 0.3:
        more["clusters"] = [f"c{k // 3}" for k in range(size[1])]
    return ResponseMatrix.from_array(scores, **more)


def _rows(rng: np.random.Generator, n_models: Sequence[int] = N_MODELS) -> list[Comparison]:
    """Compare the models of an eval; nothing where that is refused."""
    asked: dict[str, Any] = {
        "design": str(rng.choice(DESIGNS)),
        "confidence_level": 1 - float(np.exp(rng.uniform(np.log(0.001), np.log(0.5)))),
        "correction": str(rng.choice(["simultaneous", "simultaneous", "stepdown", "none"])),
        "family": str(rng.choice(get_args(Family))),
        "probabilities": str(rng.choice(get_args(Probabilities))),
        "rng": 0,
    }
    try:
        return list(compare(_eval(rng, n_models), **asked))
    except DesignError:
        return []


def _contradictions(rows: Sequence[Comparison]) -> list[str]:
    """Statements on a pair that cannot both be true, each with its row."""
    found: list[str] = []
    for row in rows:
        if row.p_adjusted is None:
            continue
        clear = row.p_adjusted <= 1 - row.confidence_level
        difference = row.difference or 0.0
        if clear != (row.verdict != "unclear"):
            found.append(f"verdict, p: {row}")
        if row.low is not None and clear != _outside(row):
            found.append(f"interval, p: {row}")
        if clear and row.low is not None and (row.low < 0 if difference > 0 else row.high > 0):  # pyright: ignore[reportOptionalOperand]
            found.append(f"interval, difference: {row}")
        if row.prob_better is not None and (row.prob_better - 0.5) * difference < -1e-9:
            found.append(f"P(better), difference: {row}")
    for task in dict.fromkeys(row.task for row in rows):
        own = [row for row in rows if row.task == task]
        ranks = {one.model: one for one in ranks_of(own)}
        for row in own if ranks else ():
            a, b = ranks[row.model_a], ranks[row.model_b]
            if (row.verdict == "unclear") != bool(set(a.letters) & set(b.letters)):
                found.append(f"letters: {row}")
            loser = {"better": a, "worse": b}.get(row.verdict)
            if loser is not None and (loser.best_rank == 1 or loser.may_be_first):
                found.append(f"ranks: {row}")
            known = row.a_may_be_first is not None
            if known and (row.a_may_be_first, row.b_may_be_first) != (
                a.may_be_first,
                b.may_be_first,
            ):
                found.append(f"may be first: {row}")
    return found


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 2**32))
def test_nothing_that_is_shown_contradicts_anything_else(seed: int) -> None:
    """Of every pair: p at most alpha, verdict, 0 outside, P(better), letters, ranks, the first."""
    assert _contradictions(_rows(np.random.default_rng(seed), FEW)) == []


@pytest.mark.validation
def test_100_000_rows_do_not_contradict_one_another() -> None:
    """Of every kind and design, n = 2 to 200, alpha = .001 to .5; writes one_answer.json."""
    import study

    n_rows, n_evals, seed, contradictions = 0, 0, 0, 0
    while n_rows < N_ROWS:
        rows = _rows(np.random.default_rng([SEED, seed]))
        contradictions += len(_contradictions(rows))
        n_rows, n_evals, seed = n_rows + len(rows), n_evals + bool(rows), seed + 1
    figures = {"seed": SEED, "evals": n_evals, "rows": n_rows, "contradictions": contradictions}
    study.write_figures("one_answer", {"all": lambda: [figures]})

    assert contradictions == 0


def test_the_rows_that_were_looked_at_had_no_contradiction() -> None:
    """The study above, as it was last run."""
    [found] = json.loads((VALIDATION / "one_answer.json").read_text())["all"]

    assert found["contradictions"] == 0
    assert found["rows"] >= N_ROWS


def test_ranks_are_those_of_the_verdicts() -> None:
    """By arrays and from rows, whatever the family."""
    rng = np.random.default_rng(0)
    scores = (rng.random((5, 90)) < np.linspace(0.2, 0.9, 5)[:, None]) * 1.0
    matrix = ResponseMatrix.from_array(scores, tasks=["s"] * 40 + ["t"] * 50)
    rows = list(compare(matrix, rng=0))
    by_rows = {
        (one.task, one.model): (one.best_rank, one.worst_rank, one.letters, one.may_be_first)
        for task in ("s", "t")
        for one in ranks_of([row for row in rows if row.task == task])
    }

    assert by_rows == {
        (one.task, one.model): (one.best_rank, one.worst_rank, one.letters, one.may_be_first)
        for one in rank_sets(matrix, rng=0)
    }


def test_rows_name_their_family() -> None:
    """All tasks of a metric in none of the harness's groups, or each by itself."""
    scores = (np.random.default_rng(0).random((3, 90)) < 0.5) * 1.0
    matrix = ResponseMatrix.from_array(scores, tasks=["s"] * 40 + ["t"] * 50)
    overall, every = dict.fromkeys(row.family for row in compare(matrix, rng=0))
    each = [row.family for row in compare(matrix, family="task", rng=0)][::3]

    assert "all 2 tasks, 3 pairs" == overall
    assert "2 tasks × 3 pairs" in every
    assert ["all 2 tasks, 3 pairs", "s, 3 pairs", "t, 3 pairs"] == each


def test_step_down_finds_what_single_step_finds_and_its_limits_end_at_0() -> None:
    """The pair of which only the p-value is small has a limit at no difference."""
    rng = np.random.default_rng(2)
    scores = (rng.random((8, 60)) < np.linspace(0.2, 0.9, 8)[:, None]) * 1.0
    matrix = ResponseMatrix.from_array(scores)
    single, steps = (
        list(compare(matrix, correction=name, rng=0)) for name in ("simultaneous", "stepdown")
    )
    more = [s for one, s in zip(single, steps, strict=True) if one.verdict != s.verdict]

    assert more
    assert all(one.verdict == "unclear" for one in single if one.p_adjusted > 0.05)  # pyright: ignore[reportOptionalOperand]
    assert all(0 in (row.low, row.high) for row in more)


@pytest.mark.parametrize(
    ("name", "values", "names"),
    [
        ("correction", Correction, shared.CORRECTIONS),
        ("family", Family, shared.FAMILIES),
    ],
)
def test_the_command_has_the_defaults_of_the_function(
    name: str, values: Any, names: tuple[str, ...]
) -> None:
    for function in (compare, rank_sets):
        assert names[0] == inspect.signature(function).parameters[name].default
    assert names == get_args(values)


@pytest.mark.parametrize("seed", range(4))
def test_tasks_of_errors_have_an_overall_score_too(seed: int) -> None:
    """Three tasks of errors beside one of right answers: that of right ones turned round."""
    rng = np.random.default_rng(seed)
    right = (rng.random((3, 90)) < rng.uniform(0.2, 0.9, (3, 1))) * 1.0
    tasks = [f"t{i // 30}" for i in range(90)]
    models = ["x", "a", "m"]

    def overall(scores: np.ndarray, *, higher: bool) -> list[Comparison]:
        measure = Measure(task="", metric="m", higher_is_better=higher)
        matrix = ResponseMatrix.from_array(scores, models=models, tasks=tasks, measure=measure)
        return [row for row in compare(matrix, rng=0) if row.kind == "overall"]

    for row, mirrored in zip(
        overall(right, higher=True), overall(1 - right, higher=False), strict=True
    ):
        assert (row.model_a, row.model_b) == (mirrored.model_a, mirrored.model_b)
        assert row.verdict == mirrored.verdict
        assert row.difference == pytest.approx(-(mirrored.difference or 0.0))
        assert (row.low, row.high) == pytest.approx((-(mirrored.high or 0), -(mirrored.low or 0)))
