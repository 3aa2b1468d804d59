"""Noise of scores from run to run: planted parts, runs that really differ by so much, and words."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result
from given_responses import given_responses

import evalstats_plugin as es
from evalstats_plugin import Responses, Source
from evalstats_plugin.cli import main
from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.report.noise import sentence
from evalstats_plugin.scores import NoiseRow

LOGS = Path(__file__).parents[2] / "fixtures" / "logs" / "lm_eval" / "0.4.13" / "out"


def _runs(scores: np.ndarray[Any, Any], **more: Any) -> list[Responses]:
    """One model's runs, from scores of shape (K, n, R)."""
    return [
        given_responses(
            model=f"m @ day {k}",
            task="t",
            metric="acc",
            item_ids=np.arange(scores.shape[1]),
            scores=of_run,
            source=Source(path=Path(f"{k}.json"), harness="test", when=f"day {k}"),
            **more,
        )
        for k, of_run in enumerate(scores)
    ]


def _run(*arguments: str | Path) -> Result:
    return CliRunner(env={"COLUMNS": "80"}).invoke(main, list(map(str, arguments)))


def _only(scores: np.ndarray[Any, Any], **more: Any) -> NoiseRow:
    (row,) = es.noise(_runs(scores, **more))
    return row


@pytest.mark.parametrize("seed", range(15))
def test_planted_parts_are_recovered_within_a_tenth(seed: int) -> None:
    """Items, repeats and runs of an item, drawn anew each time."""
    rng = np.random.default_rng([7, seed])
    planted = rng.uniform(0.5, 2.0, 3)
    n_runs, n_repeats = int(rng.integers(3, 6)), int(rng.integers(2, 6))
    items, repeats, runs = (np.sqrt(x) for x in planted)
    scores = (
        rng.normal(0, items, (1, 8000, 1))
        + rng.normal(0, runs, (n_runs, 8000, 1))
        + rng.normal(0, repeats, (n_runs, 8000, n_repeats))
    )
    row = _only(scores)
    shares = [row.share_items, row.share_repeats, row.share_runs]
    np.testing.assert_allclose(np.array(shares, dtype=float), planted / planted.sum(), rtol=0.1)
    assert (row.n_runs, row.n_repeats, row.model) == (n_runs, n_repeats, "m")


@pytest.mark.parametrize("seed", range(15))
def test_a_planted_part_of_judges_is_recovered_within_a_tenth(seed: int) -> None:
    """Judges differ in how lenient they are and beyond that; other parts stay what they are."""
    rng = np.random.default_rng([10, seed])
    items, repeats, runs, apart = rng.uniform(0.5, 2.0, 4)
    n_runs, n_repeats, n_judges = (int(rng.integers(*x)) for x in ((1, 5), (2, 5), (2, 4)))
    runs *= n_runs > 1
    lenient = rng.normal(0, 0.5, (n_judges, 1, 1, 1))
    scores = (
        rng.normal(0, items**0.5, (1, 8000, 1))
        + rng.normal(0, runs**0.5, (n_runs, 8000, 1))
        + rng.normal(0, repeats**0.5, (n_runs, 8000, n_repeats))
        + rng.normal(0, apart**0.5, (n_judges, n_runs, 8000, n_repeats))
        + lenient
    )
    responses = [r.measured(metric=f"judge {j}") for j in range(n_judges) for r in _runs(scores[j])]
    rng.shuffle(responses)
    (row,) = es.noise(responses, judges=[f"judge {j}" for j in range(n_judges)])
    between = apart + float(lenient.var(ddof=1))
    planted = np.array([items, repeats, runs, between])
    shares = [row.share_items, row.share_repeats, row.share_runs or 0.0, row.share_judges]
    np.testing.assert_allclose(np.array(shares, dtype=float), planted / planted.sum(), rtol=0.1)
    assert (row.n_runs, row.n_repeats) == (n_runs, n_repeats)
    assert row.estimate == pytest.approx(scores.mean(), abs=1e-9)


def test_judges_who_agree_have_no_part_and_change_nothing() -> None:
    rng = np.random.default_rng(11)
    scores = (rng.random((1, 300, 4)) < 0.6) * 1.0
    alone = _only(scores)
    (both,) = es.noise(
        [r.measured(metric=name) for name in ("a", "b") for r in _runs(scores)], judges=("a", "b")
    )
    assert both.share_judges == 0.0
    assert (both.least_difference, both.std_error) == (alone.least_difference, alone.std_error)
    assert (both.share_items, both.share_repeats) == (alone.share_items, alone.share_repeats)


def test_judges_that_cannot_be_compared_are_refused() -> None:
    rng = np.random.default_rng(12)
    day, night = _runs((rng.random((2, 50, 2)) < 0.6) * 1.0)
    a, b = day.measured(metric="a"), night.measured(metric="b")
    with pytest.raises(SelectionError, match="another judge"):
        es.noise([a, b], judges=("a",))
    with pytest.raises(SelectionError, match="no metric with item scores"):
        es.noise([a, b], judges=("a", "c"))
    with pytest.raises(DesignError, match="was scored by all of a, b"):
        es.noise([a, b], judges=("a", "b"))
    one, two = day.measured(metric="acc,strict"), day.measured(metric="acc,flexible")
    with pytest.raises(SelectionError, match="different metrics, not acc,strict, acc_strict"):
        es.noise([one, day.measured(metric="acc_strict")], judges=("acc,strict", "acc_strict") * 2)
    with pytest.raises(SelectionError, match=r"not acc,strict, acc\*"):
        es.noise([one, two], judges=("acc,strict", "acc*"))
    with pytest.raises(SelectionError, match="judge 'acc' is several metrics of 'm"):
        es.noise([one, two, a], judges=("acc", "a"))


def test_two_runs_differ_by_more_in_one_case_of_twenty() -> None:
    """Right and wrong answers of twenty drawn models, of one run with repeats or of several."""
    rng = np.random.default_rng(8)
    beyond: list[float] = []
    for k in range(20):
        right = rng.beta(*rng.uniform(0.2, 3, 2), size=(1, int(rng.integers(60, 400)), 1))
        shape = (1, 4) if k % 2 else (5, 1)
        row = _only((rng.random((shape[0], right.shape[1], shape[1])) < right) * 1.0)
        answers = rng.random((2, 2000, right.shape[1], shape[1])) < right[None, 0]
        means = answers.mean(axis=(2, 3))
        beyond.append(float((np.abs(means[1] - means[0]) > (row.least_difference or 0.0)).mean()))
    assert np.mean(beyond) == pytest.approx(0.05, abs=0.015)
    assert max(beyond) < 0.15


def test_real_runs_of_one_model_differ_by_more_in_one_case_of_twenty() -> None:
    """AIME II 2025: 19 models, four runs each; three runs say by how much any two may differ."""
    file = LOGS.parents[3] / "data" / "no_clt" / "no_clt_matharena_aimeII_15x4.csv"
    table = pd.read_csv(file, dtype={"Question": str})
    beyond: list[bool] = []
    for model in table.columns[1:]:
        answers = table[model].to_numpy(dtype=float).reshape(15, 4)
        row = _only(answers.T[:3, :, None])
        means = answers.mean(axis=0)
        beyond += [
            abs(a - b) > (row.least_difference or 0.0) + 1e-9 for a, b in combinations(means, 2)
        ]
    assert len(beyond) == 19 * 6
    assert np.mean(beyond) == pytest.approx(0.05, abs=0.03)


def test_runs_with_one_mean_are_seldom_said_to_have_changed() -> None:
    """In one case of twenty, and nearly always where one run is better by a tenth."""
    rng = np.random.default_rng(9)
    told: dict[float, list[bool]] = {0.0: [], 0.1: []}
    for ahead, own in told.items():
        for _ in range(60):
            right = rng.uniform(0.1, 0.8, (1, 400, 1)) + np.array([0, 0, ahead])[:, None, None]
            row = _only((rng.random((3, 400, 1)) < right) * 1.0)
            own.append(any("something else changed" in note for note in row.notes))
    assert 1 <= sum(told[0.0]) <= 8
    assert sum(told[0.1]) > 45


def test_flips_are_pairs_of_answers_that_differ() -> None:
    """Two of the three pairs of the first item's answers, none of the second's."""
    row = _only(np.array([[[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]]))
    assert row.share_flipped == pytest.approx(1 / 3)
    # The last has one answer, and no pair.
    missing = _only(np.array([[[1.0, np.nan, 0.0], [0.0, 0.0, np.nan], [1.0, np.nan, np.nan]]]))
    assert missing.share_flipped == pytest.approx(1 / 2)
    (text,) = {sentence([row]).partition("; ")[2].partition(" ")[0]}
    assert text == "33.3"


def test_standard_errors_are_those_that_power_plans_by() -> None:
    rng = np.random.default_rng(1)
    right = (rng.random((2, 90, 3)) < rng.random((1, 90, 1))) * 1.0
    matrix = es.ResponseMatrix.from_array(right, models=["a", "b"], metric="acc")
    parts = es.power(matrix, difference=0.1).parts
    for row, part in zip(es.noise(matrix), parts, strict=True):
        assert row.std_error == part.std_error
        assert row.std_error_more_repeats == part.std_error_more_epochs
        assert row.std_error_more_items == part.std_error_more_items
        assert row.share_repeats == pytest.approx(part.share_within)


def test_where_no_answer_changed_a_bound_is_said() -> None:
    """No difference of 0: of 40 items fewer than 7.2 % flip, by the exact limit."""
    row = _only(np.repeat((np.arange(40) % 2 * 1.0)[None, :, None], 2, axis=0))
    assert row.least_difference is None
    assert row.notes == ("no answer changed: fewer than 7.2 % of items flip (95 %)",)
    assert sentence([row]) == "On t acc no answer changed. More items gain more than more repeats."
    assert sentence([_only(np.ones((2, 40, 1)))]) == "On t acc no answer changed."


def test_a_copy_is_no_second_run_and_items_of_one_run_are_left_out() -> None:
    scores = np.random.default_rng(2).random((2, 30, 1)).round()
    runs = _runs(scores)
    longer = given_responses(
        model=runs[1].model, task="t", metric="acc", item_ids=np.arange(32),
        scores=np.concatenate([scores[1], [[1.0], [0.0]]]), source=runs[1].source,
    )  # fmt: skip
    (row,) = es.noise([runs[0], longer])
    assert row.n_items == 30
    assert row.notes[-1] == "2 items not answered in every run: left out"
    endless = scores.copy()
    endless[0, 3] = np.inf
    (row,) = es.noise(_runs(endless))
    assert row.n_items == 29
    assert row.notes[-1] == "1 item not answered in every run: left out"
    copied = _runs(scores[[0, 0]])
    copied[1] = given_responses(
        model=copied[0].model, task="t", metric="acc", item_ids=np.arange(30), scores=scores[0],
        source=Source(path=Path("copy.json"), harness="test", when="day 0"),
    )  # fmt: skip
    with pytest.raises(DesignError, match="no model answered two items or more twice"):
        es.noise(copied)


def test_runs_in_logs_are_taken_together() -> None:
    """All runs, whatever the model's label; what was answered once is named."""
    (row,) = [r for r in es.noise(es.read(LOGS, task="es_mc", runs="all")) if r.model == "models/m1"
              and r.metric == "acc,none"]  # fmt: skip
    assert (row.n_items, row.n_runs, row.n_repeats, row.share_flipped) == (60, 2, 1, 0.0)
    done = _run("noise", LOGS, "-t", "es_repeats", "-m", "exact_match")
    assert done.stdout.startswith(
        "On es_repeats exact_match,score-first two runs of the same model"
    )
    assert max(map(len, done.stdout.splitlines())) <= 80
    once = _run("noise", LOGS, "-t", "es_bin")
    assert once.exit_code == 2
    assert "error: no model answered two items or more twice" in " ".join(once.stderr.split())
