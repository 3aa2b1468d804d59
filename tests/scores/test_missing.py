"""Items without a score: left out, bounded, or counted as the worst score."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from given_responses import given_responses

from evalstats_plugin import Responses, Source, compare, intervals
from evalstats_plugin.comparisons.rows import Comparison
from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.scores.missing import open_level
from evalstats_plugin.scores.rows import ScoreInterval
from evalstats_plugin.stats import bounded
from evalstats_plugin.stats.interval import imbens_manski_level

SOURCE = Source(path=Path(), harness="test")
SCORES = np.concatenate([np.ones(70), np.zeros(20), np.full(10, np.nan)])


def _responses(model: str, scores: np.ndarray, **more: object) -> Responses:
    return given_responses(
        model=model, task="t", metric="acc", item_ids=np.arange(len(scores)),
        scores=np.asarray(scores, dtype=float)[:, None], source=SOURCE, **more,
    )  # fmt: skip  # pyright: ignore[reportArgumentType]


def _one(scores: np.ndarray = SCORES, **more: object) -> ScoreInterval:
    return intervals([_responses("m", scores)], **more)[0]  # pyright: ignore[reportArgumentType]


def test_levels_of_the_ends_lie_between_one_side_and_two() -> None:
    """By the root of the defining equation, as published values have it; here in thousandths."""
    widths, errors = [0.0, 0.05, 0.01], [0.02, 0.02, 0.05]
    found = imbens_manski_level(widths, errors, confidence_level=0.95)

    assert [0.95, 0.9000339786, 0.9384780559] == pytest.approx(list(found), abs=1e-9)
    assert list(open_level(widths, errors, 0.95)) == pytest.approx([0.95, 0.901, 0.939], abs=1e-12)


def test_missing_scores_are_dropped_and_what_they_could_change_is_beside() -> None:
    """Imbens and Manski's limits; without missing scores there are none."""
    row, whole = _one(method="beta"), _one(SCORES[:90], method="beta")

    assert (whole.low, whole.high) == (row.low, row.high)
    assert (0.6193, 0.8563) == pytest.approx((row.missing_low, row.missing_high), abs=5e-4)
    assert "whatever their scores: 0.619 to 0.856" in row.notes
    assert whole.missing_low is None


def test_bounds_are_the_interval_on_request() -> None:
    row, beside = _one(missing="bounds"), _one()

    assert (beside.missing_low, beside.missing_high) == (row.low, row.high)
    assert ("beta-hpd+bounds", beside.estimate) == (row.method, row.estimate)


def test_bounds_of_a_whole_benchmark_are_what_its_missing_scores_leave_open() -> None:
    """Of 100 items that were all run, 70 to 80 are right; with more to run, more is open."""
    row, more = (_one(missing="bounds", population=n) for n in (100, 150))

    assert (0.7, 0.8) == pytest.approx((row.low, row.high))
    assert "for all 100 items; 100 of them were run and must be a random part" in row.notes
    assert more.low < row.low < row.high < more.high  # pyright: ignore[reportOperatorIssue, reportOptionalOperand]
    # Where they are left out, too: beside the limits for the benchmark once stood endless ones.
    whole, beside = (_one(population=n) for n in (100, 150))
    assert (whole.missing_low, whole.missing_high) == pytest.approx((0.7, 0.8))
    assert (beside.missing_low, beside.missing_high) == (more.low, more.high)
    assert (whole.method, row.method) == ("beta-predictive", "beta-hpd+fpc+bounds")
    assert "for all 100 items; 90 of them were run and must be a random part" in whole.notes
    assert "whatever their scores: 0.700 to 0.800" in whole.notes
    assert any("of all 100, the others counting as wrong, 0.700" in x for x in whole.notes)
    for rule in ("bounds", "drop"):
        with pytest.raises(DesignError, match=r"answered 100 items .* the 95 of the whole"):
            _one(missing=rule, population=95)


def test_nothing_is_uncertain_of_a_whole_benchmark_in_clusters() -> None:
    """Nor in what the limits would be without clusters, or with an item more."""
    scores = np.random.default_rng(0).choice([0, 0.5, 1], 60)
    rows = [
        intervals([_responses("m", scores, bounds=(0.0, 1.0), **more)], population=60)[0]
        for more in ({"clusters": np.repeat(np.arange(12), 5)}, {})
    ]

    for row in rows:
        assert row.low == row.estimate == row.high
        assert row.missing_low is None
    assert rows[0].naive_low == rows[0].estimate == rows[0].naive_high
    assert rows[1].low_unseen == rows[1].estimate == rows[1].high_unseen
    assert rows[0].low_unseen is rows[1].naive_low is None


def test_limits_with_an_item_more_shrink_as_the_others_do() -> None:
    """Each by √(1 − n/N), as what was not run may hold what was not seen."""
    scores = np.random.default_rng(1).choice([0.5, 0.75, 1], 60)
    responses = [_responses("m", scores, bounds=(0.0, 1.0))]
    (endless,), (whole,) = intervals(responses), intervals(responses, population=100)

    for name in ("low", "high", "low_unseen", "high_unseen"):
        far, near = (abs(getattr(row, name) - row.estimate) for row in (endless, whole))
        assert near == pytest.approx(far * np.sqrt(1 - 60 / 100)), name
    assert whole.low_unseen < whole.low


def test_missing_scores_count_as_zero_on_request() -> None:
    """Which is another score: of answering, and being right."""
    row, filled = _one(missing="zero"), _one(np.nan_to_num(SCORES))

    assert (0.7, filled.low, filled.high) == (row.estimate, row.low, row.high)
    assert ("10 of 100 items have no score and count as 0",) == row.notes


def test_where_lower_is_better_the_worst_score_is_the_highest() -> None:
    responses = [_responses("m", SCORES, higher_is_better=False)]

    assert 0.8 == pytest.approx(intervals(responses, missing="zero")[0].estimate)
    many = _responses("m", np.append(SCORES, np.full(90, np.nan)), higher_is_better=False)
    for held in ([many], ResponseMatrix.join([many])):
        (row,) = intervals(held)
        assert any("of all 190, the others counting as wrong, 0.895" in x for x in row.notes)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (2.0, 6.0)])
def test_limits_of_both_ends_are_those_of_their_counts(seed: int, low: float, high: float) -> None:
    """At the level that the width and the larger error of the two ends ask for, step by step."""
    rng = np.random.default_rng(seed)
    n, gone = int(rng.integers(4, 40)), int(rng.integers(1, 4))
    right = int(rng.integers(1, n))
    scores = np.repeat([low, high, np.nan], [n - right, right, gone])
    (row,) = intervals([_responses("m", scores, bounds=(low, high))])

    total, span = n + gone, high - low
    shares = [right / total, (right + gone) / total]
    errors = [np.hypot((p * (1 - p) / (total - 1)) ** 0.5, 0.5 / total) for p in shares]
    level = float(open_level(span * gone / total, span * max(errors), 0.95))
    least, most = (
        bounded.beta_hpd(k, total, confidence_level=level, prior=(1.0, 1.0))
        for k in (right, right + gone)
    )
    assert (row.missing_low, row.missing_high) == pytest.approx(
        (low + span * float(least.low), low + span * float(most.high)), abs=1e-9
    )


@pytest.mark.parametrize("missing", ["drop", "bounds", "zero"])
def test_a_matrix_gives_the_same_rows(missing: str) -> None:
    """Which counts by columns, and has levels in common."""
    row = _one(missing=missing)
    (other,) = intervals(ResponseMatrix.join([_responses("m", SCORES)]), missing=missing)  # pyright: ignore[reportArgumentType]

    assert (other.low, other.high, other.method) == (row.low, row.high, row.method)
    assert (other.missing_low, other.missing_high) == (row.missing_low, row.missing_high)


def test_bounds_widen_with_partial_credit_and_clusters_too() -> None:
    """And with every further missing score."""
    scores = np.random.default_rng(0).uniform(0.2, 0.9, 60)
    clusters = np.repeat(np.arange(12), 5)
    widths: list[float] = []
    for n in (0, 3, 9):
        some = np.where(np.arange(60) < n, np.nan, scores)
        for more in ({}, {"clusters": clusters}):
            (row,) = intervals([_responses("m", some, bounds=(0.0, 1.0), **more)], missing="bounds")
            widths.append((row.high or 0) - (row.low or 0))

    assert sorted(widths[::2]) == widths[::2]
    assert sorted(widths[1::2]) == widths[1::2]


def test_unbounded_scores_have_no_bounds() -> None:
    row, zero = (_one(SCORES * 50 - 3, missing=rule) for rule in ("drop", "zero"))

    assert row.missing_low is None
    assert (zero.low, zero.high, zero.notes) == (row.low, row.high, row.notes)


def test_a_rule_that_does_not_exist_is_named() -> None:
    with pytest.raises(SelectionError, match="bounds"):
        _one(missing="bound")


A = np.concatenate([np.ones(60), np.zeros(30), np.full(5, np.nan), np.zeros(5)])
B = np.concatenate(
    [np.ones(55), np.zeros(5), np.ones(20), np.zeros(10), np.ones(5), np.full(5, np.nan)]
)


def _pair(a: np.ndarray = A, b: np.ndarray = B, **more: object) -> Comparison:
    return compare([_responses("a", a), _responses("b", b)], rng=0, **more)[0]  # pyright: ignore[reportArgumentType]


def test_differences_hold_whatever_is_missing() -> None:
    """[.0715, .3399]: the limits of both ends at the level of both."""
    row = _pair(missing="bounds")

    assert (0.0715, 0.3399) == pytest.approx((row.low, row.high), abs=5e-4)
    assert (10, 90, "better") == (row.n_missing, row.n_items, row.verdict)
    assert row.p_adjusted < 0.002  # pyright: ignore[reportOptionalOperand, reportOperatorIssue]


def test_a_verdict_that_missing_scores_could_change_says_how_many_it_takes() -> None:
    a = np.tile([1.0, 0.0], 100)
    b = np.where(np.arange(200) < 105, 1.0, 0.0)
    b[160:] = np.nan
    row = _pair(a, b)

    assert "better" == row.verdict
    assert 0 < row.tipping_point < 1  # pyright: ignore[reportOptionalOperand, reportOperatorIssue]
    assert row.missing_low < 0 < row.missing_high  # pyright: ignore[reportOptionalOperand, reportOperatorIssue]
    assert any(note.startswith("only if scores are missing at random") for note in row.notes)
    assert "unclear" == _pair(a, b, missing="bounds").verdict
    assert 200 == _pair(a, b, missing="zero").n_items


def test_bounds_and_verdicts_agree_in_tables_of_many_pairs() -> None:
    """P at most α exactly where 0 is outside; every pair is allowed for."""
    rng = np.random.default_rng(3)
    models: list[Responses] = []
    for i in range(6):
        scores = (rng.random(80) < 0.35 + 0.08 * i) * 1.0
        scores[rng.random(80) < 0.06] = np.nan
        models.append(_responses(f"m{i}", scores))
    rows = compare(models, missing="bounds", rng=0)
    plain = compare(models, rng=0)

    assert {"unclear", "better"} <= {row.verdict for row in rows}
    for row, other in zip(rows, plain, strict=True):
        outside = row.low > 0 or row.high < 0  # pyright: ignore[reportOptionalOperand, reportOperatorIssue]
        assert outside == (row.verdict != "unclear") == (row.p_adjusted <= 0.05)  # pyright: ignore[reportOptionalOperand, reportOperatorIssue]
        assert row.verdict in (other.verdict, "unclear")


def test_the_study_of_missing_scores_bears_out_the_bounds() -> None:
    """Of what `make validate` wrote, 40 designs of scores and 20 of pairs."""
    folder = Path(__file__).parents[2] / "fixtures" / "validation"
    found = json.loads((folder / "missing.json").read_text("utf-8"))
    scores, pairs = (
        [row for row in found[part] if row["method"] == "bounds"] for part in ("scores", "pairs")
    )

    assert (40, 20) == (len(scores), len(pairs))
    assert min(row["coverage"] for row in scores) >= 0.93
    assert max(row["verdicts"] for row in pairs if not row["difference"]) <= 0.06
