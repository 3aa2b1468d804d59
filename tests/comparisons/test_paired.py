"""Adjusted limits, and the best as the baseline."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from evalstats_plugin import ResponseMatrix, Responses, Source, compare
from evalstats_plugin.comparisons.paired import NO_INTERVAL, draws_for
from evalstats_plugin.data.measure import Measure, Scale

ABILITY = np.linspace(0.3, 0.9, 5)[:, None]


def _matrix(n_items: int = 60, **more: object) -> ResponseMatrix:
    scores = (np.random.default_rng(0).random((5, n_items)) < ABILITY).astype(float)
    return ResponseMatrix.from_array(scores, models=list("abcde"), **more)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("kind", ["binary", "bounded", "real", "clusters", "missing"])
def test_limits_of_all_pairs_are_wider_than_those_of_one(kind: str) -> None:
    """Of every kind of score; with two models they are the same."""
    matrix = _matrix(clusters=np.repeat(np.arange(20), 3)) if kind == "clusters" else _matrix()
    scores = matrix.scores.copy()
    if kind == "bounded":
        scores = scores * 0.7 + 0.1
    if kind == "real":
        scores = scores * 9 - 4 + np.random.default_rng(1).normal(size=scores.shape)
    if kind == "missing":
        scores[0, :7] = scores[2, 5:9] = np.nan
    matrix = replace(matrix, scores=scores)
    rows = list(compare(matrix, rng=0))
    alone = list(compare(matrix, correction="none", rng=0))

    assert 10 == len(rows)
    for row, one in zip(rows, alone, strict=True):
        assert row.high - row.low > row.high_single - row.low_single  # pyright: ignore[reportOperatorIssue, reportOptionalOperand]
        assert (one.low, one.high) == (row.low_single, row.high_single)
        assert (one.p_value, one.p_adjusted) == (row.p_value, row.p_value)
    two = replace(matrix, scores=scores[:2], models=matrix.models[:2])
    (row,) = compare(two, rng=0)
    assert (row.low, row.high) == (row.low_single, row.high_single)


@pytest.mark.parametrize("confidence_level", [0.8, 0.999])
def test_limits_of_few_items_hold_those_of_each_pair_alone(confidence_level: float) -> None:
    """At any level, although few items stretch those of all pairs from 95 % as Student's are."""
    for seed in range(2):
        rng = np.random.default_rng(seed)
        scores = 0.5 + 0.03 * rng.normal(0, 1, (3, 10)) + [[0.0], [0.01], [0.05]]
        matrix = ResponseMatrix.from_array(scores, tasks=["s"] * 6 + ["t"] * 4)
        for row in compare(matrix, confidence_level=confidence_level, rng=0):
            assert row.low is not None
            assert row.high is not None
            assert row.low <= (row.low_single or 0) <= (row.high_single or 0) <= row.high


def test_screened_pairs_are_corrected_for_missing_scores_too() -> None:
    """As Benjamini and Hochberg do, of p-values that hold whatever was missing."""
    scores = (np.random.default_rng(3).random((4, 60)) < ABILITY[[0, 1, 3, 4]]) * 1.0
    scores[0, :3] = np.nan
    one_by_one, screened = (
        [row.p_adjusted for row in compare(_logged(scores), correction=name, missing="bounds")]
        for name in ("none", "bh")
    )

    assert screened == pytest.approx(stats.false_discovery_control(one_by_one))  # pyright: ignore[reportArgumentType]
    assert screened != one_by_one


def _logged(scores: np.ndarray) -> list[Responses]:
    """Responses whose logs say that items without a score were run."""
    source = Source(path=Path("a.json"), harness="test")
    return [replace(r, source=source) for r in ResponseMatrix.from_array(scores).to_responses()]


@pytest.mark.parametrize("best_last", [True, False])
def test_the_tipping_point_is_where_the_nearer_limit_is_at_no_difference(best_last: bool) -> None:  # noqa: FBT001
    """On the way from the limits without the missing scores to those with the worst."""
    scores = np.array([np.tile([1.0, 0.0], 100), np.arange(200) < 105])
    scores[1, 160:] = np.nan
    (row,) = compare(_logged(scores if best_last else scores[::-1]), rng=0)
    own, worst = (row.low, row.missing_low) if best_last else (row.high, row.missing_high)
    assert own is not None
    assert worst is not None
    assert row.tipping_point is not None

    assert own + row.tipping_point * (worst - own) == pytest.approx(0, abs=1e-12)
    assert f"it falls if about {100 * row.tipping_point:.0f} % of them go" in row.notes[-1]
    assert f"{row.missing_low:+.3f} to {row.missing_high:+.3f} whatever" in row.notes[-1]


def test_what_few_items_cannot_show_is_left_out_of_many_pairs() -> None:
    """Of up to 500 pairs each row has the limits; of ten on 100 items a note has them too."""
    scores = (np.random.default_rng(1).random((502, 101)) < 0.7) * 1.0
    more = {"baseline": "model_0", "correction": "none", "rng": 0}
    for n_models, n_items, is_known, is_noted in (
        (501, 6, True, False),
        (502, 6, False, False),
        (12, 100, True, False),
        (11, 100, True, True),
        (11, 101, True, False),
    ):
        matrix = ResponseMatrix.from_array(scores[:n_models, :n_items])
        for row in compare(matrix, **more):
            note = f"if one more item in {n_items + 1} had gone"
            assert (row.low_unseen is not None) == is_known
            assert any(own.startswith(note) for own in row.notes) == is_noted


def test_differences_that_do_not_vary_have_no_t_interval() -> None:
    """All are .25: neither limits nor a p-value, nor a verdict."""
    # Of halves of halves, whose sums have no rounding error.
    scores = np.add.outer([0.0, 0.25], np.arange(8) / 16)
    (row,) = compare(ResponseMatrix.from_array(scores), method="paired-t")

    assert row.difference == 0.25
    assert (row.low, row.high, row.p_value, row.prob_better) == (None, None, None, None)
    assert row.verdict == "unclear"
    assert NO_INTERVAL in row.notes


@pytest.mark.parametrize("correction", ["simultaneous", "stepdown"])
def test_the_best_is_chosen_by_the_scores_and_corrected_for_all_pairs(correction: str) -> None:
    """The same numbers as among all pairs, with the best as model a of each row."""
    matrix = _matrix()
    rows = list(compare(matrix, baseline="best", correction=correction, rng=0))  # pyright: ignore[reportArgumentType]
    every = {
        frozenset((row.model_a, row.model_b)): row
        for row in compare(matrix, correction=correction, rng=0)  # pyright: ignore[reportArgumentType]
    }

    assert [("e", m) for m in "abcd"] == [(row.model_a, row.model_b) for row in rows]
    for row in rows:
        same = every[frozenset((row.model_a, row.model_b))]
        sign = 1 if same.model_a == "e" else -1
        limits = sorted((sign * same.low, sign * same.high))  # pyright: ignore[reportOperatorIssue, reportOptionalOperand]
        assert row.difference == pytest.approx(sign * same.difference)  # pyright: ignore[reportOptionalOperand]
        assert limits == pytest.approx([row.low, row.high], abs=0.01)
        assert row.p_adjusted == pytest.approx(same.p_adjusted, abs=0.005)
        (note,) = (note for note in row.notes if "e was chosen as the best" in note)
        assert "all pairs of the 5 models" in note


@pytest.mark.parametrize(
    ("n_pairs", "n_units", "n_draws"),
    [(45, 100, 19_999), (2**13, 100, 2**13), (45, 2**14, 2**13), (1, 10**6, 1999)],
)
def test_draws_are_fewer_where_they_would_take_long(n_pairs: int, n_units: int, n_draws: int):
    """Of many pairs, or of the weights of many items."""
    assert draws_for(n_pairs, n_units) == n_draws


def test_each_task_has_its_own_best_and_lower_may_be_better() -> None:
    """The best of errors is the one with the fewest."""
    rng = np.random.default_rng(0)
    one, two = (
        rng.random((3, 80)) < [[0.9], [0.5], [0.2]],
        rng.random((3, 80)) < [[0.2], [0.5], [0.9]],
    )
    matrix = ResponseMatrix.from_array(
        np.concatenate([one, two], axis=1), models=list("xyz"), tasks=["s"] * 80 + ["t"] * 80
    )
    lower = [r.measured(higher_is_better=False) for r in matrix.to_responses()]

    def best(found: object) -> dict[str, str]:
        return {row.task: row.model_a for row in found if row.kind == "task"}  # pyright: ignore[reportGeneralTypeIssues, reportUnknownVariableType]

    assert {"s": "x", "t": "z"} == best(compare(matrix, baseline="best"))
    assert {"s": "z", "t": "x"} == best(compare(lower, baseline="best"))


def test_a_model_that_is_really_called_best_wins() -> None:
    """It is the baseline wherever it ends up."""
    matrix = replace(_matrix(), models=("best", "b", "c", "d", "e"))
    rows = list(compare(matrix, baseline="best"))

    assert {"best"} == {row.model_a for row in rows}
    assert not any("chosen" in note for row in rows for note in row.notes)


def test_the_same_scores_have_the_same_rows_in_every_form() -> None:
    """As an array, as responses with a scale, times ten, from 1 down, in another order, renamed."""
    rng = np.random.default_rng(4)
    scores = np.clip(np.round(rng.normal([[0.5], [0.6], [0.55]], 0.25, (3, 40)), 1), 0, 1)
    plain = list(compare(ResponseMatrix.from_array(scores, models=list("abc"))))
    order = rng.permutation(40)
    names = {"a": "z", "b": "y", "c": "x"}
    forms = {
        "bounds": ResponseMatrix.from_array(scores, models=list("abc")),
        "order": ResponseMatrix.from_array(scores[:, order], models=list("abc")),
        "names": ResponseMatrix.from_array(scores, models=list("zyx")),
        "ten": ResponseMatrix.from_array(10 * scores, models=list("abc")),
        "down": ResponseMatrix.from_array(1 - scores, models=list("abc")),
    }
    for form, matrix in forms.items():
        bounds = {"bounds": (0.0, 1.0), "ten": (0.0, 10.0)}.get(form)
        found = {
            (row.model_a, row.model_b): row
            for row in compare(matrix, measure=bounds and Measure(scale=Scale(*bounds)), rng=9)
        }
        scale = {"ten": 10.0, "down": -1.0}.get(form, 1.0)
        for row in plain:
            a, b = (names.get(m, m) if form == "names" else m for m in (row.model_a, row.model_b))
            other = found.get((a, b)) or found[b, a]
            sign = 1.0 if (a, b) in found else -1.0
            limits = sorted(sign * scale * x for x in (other.low, other.high))  # pyright: ignore[reportOperatorIssue]
            assert row.p_value == pytest.approx(other.p_value, rel=1e-9)
            assert row.p_adjusted == pytest.approx(other.p_adjusted, abs=2e-3)
            assert [row.low, row.high] == pytest.approx([x / scale**2 for x in limits], abs=2e-3)


def test_columns_of_millers_table() -> None:
    """Difference, standard error and correlation as by hand; wins, ties and losses of b."""
    a = np.array([0.2, 0.4, 0.9, 0.5, 0.7, 0.1])
    b = np.array([0.3, 0.4, 0.8, 0.9, 0.9, 0.4])
    (row,) = compare(ResponseMatrix.from_array(np.stack([a, b])))

    assert (4, 1, 1) == (row.n_wins, row.n_ties, row.n_losses)
    assert row.std_error == pytest.approx((b - a).std(ddof=1) / np.sqrt(6))
    assert row.correlation == pytest.approx(np.corrcoef(a, b)[0, 1])
    binary = (np.stack([a, b]) > 0.45) * 1.0
    (row,) = compare(ResponseMatrix.from_array(binary))
    assert row.std_error == pytest.approx((binary[1] - binary[0]).std(ddof=1) / np.sqrt(6))
    assert row.correlation == pytest.approx(np.corrcoef(binary)[0, 1])
