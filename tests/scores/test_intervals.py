"""Every score gets an interval that can be believed."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest
from given_responses import given_responses
from scipy import special

from evalstats_plugin import ResponseMatrix, Source, intervals, read
from evalstats_plugin.data.measure import Measure, Scale
from evalstats_plugin.errors import DesignError
from evalstats_plugin.scores.intervals import MOST_PREDICTED
from evalstats_plugin.scores.rows import NO_METHOD, ScoreInterval
from evalstats_plugin.stats import bounded
from evalstats_plugin.stats.survey.finite_population import predictive_hpd

FIXTURES = Path(__file__).parents[2] / "fixtures"
LOGS = FIXTURES / "logs" / "lm_eval" / "0.4.13"
SOURCE = Source(path=Path(), harness="test")


def _one(scores: list[float] | np.ndarray, **more: object) -> ScoreInterval:
    """Interval of one cell, of a metric that nobody knows."""
    array = np.asarray(scores, dtype=float)
    array = array[:, None] if array.ndim == 1 else array
    r = given_responses(
        model="m", task="t", metric="mark", item_ids=np.arange(len(array)), scores=array,
        source=SOURCE,
    )  # fmt: skip
    return intervals([r], **more)[0]  # pyright: ignore[reportArgumentType]


def _aime() -> dict[str, list[int]]:
    """First-epoch scores of 19 models on AIME II 2025 (Bowyer et al. 2025, MIT)."""
    path = FIXTURES / "data" / "no_clt" / "no_clt_matharena_aimeII_15x4.csv"
    with path.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if "." not in row["Question"]]
    return {name: [int(row[name]) for row in rows] for name in rows[0] if name != "Question"}


def test_aime_first_epochs_get_sane_intervals() -> None:
    """15 of 15 is not certainty and 0 of 15 is not hopeless; CLT says both."""
    scores = _aime()
    matrix = ResponseMatrix.from_array(list(scores.values()), models=list(scores), tasks="aime")
    rows = {row.model: row for row in intervals(matrix)}
    full = [row for row in rows.values() if row.estimate == 1]
    none = [row for row in rows.values() if row.estimate == 0]

    assert len(rows) == 19
    assert full
    for row in rows.values():
        assert row.n_items == 15
        assert 0 <= row.low <= row.estimate <= row.high <= 1  # pyright: ignore[reportOptionalOperand]
        assert 0.1 < row.high - row.low < 0.5  # pyright: ignore[reportOptionalOperand]
    for row in full:
        # All right: the shortest 95 % of Beta(16, 1) begins where 16 items would fail 1 in 20.
        assert row.low == pytest.approx(0.05 ** (1 / 16), abs=1e-12)
        assert row.std_error is None
    for row in none:
        assert row.high == pytest.approx(1 - 0.05 ** (1 / 16), abs=1e-12)


def test_the_default_contains_what_the_harness_logged() -> None:
    """On every mean of the bundled logs."""
    rows = [r for r in intervals(read(LOGS / "out")) if r.low is not None]

    assert len(rows) > 90
    for row in rows:
        assert row.low <= row.estimate <= row.high  # pyright: ignore[reportOptionalOperand]
        if not math.isnan(row.logged or 0.0):
            assert row.estimate == pytest.approx(row.logged, rel=1e-9)


@pytest.mark.parametrize(
    ("scores", "method"),
    [
        ([1, 0, 1, 1], "beta-hpd"),
        ([1, 0.5, 1, 1], "reach"),
        ([1, 0.5, 3, -2], "t"),
        ([[1, 0], [1, 1], [0, 0]], "reach"),
    ],
)
def test_the_default_follows_what_the_scores_are_like(scores: list[float], method: str) -> None:
    """Binary, partial credit, unbounded, epochs."""
    assert method == _one(scores).method


def test_bounds_that_are_guessed_are_said() -> None:
    """Partial credit in [0, 1] carries a note; epochs of binary takes need none."""
    assert _one([1, 0.5, 0.25]).notes == ("scores assumed to lie in [0, 1]",)
    assert _one([[1, 0], [1, 1], [0, 1]]).notes == ()


def test_bounds_that_are_given_are_used() -> None:
    """A score of 0 to 100 is bounded once that is said, and the interval scales with it."""
    unit = _one([0.2, 0.5, 1.0, 0.0])
    percent = _one([20, 50, 100, 0], measure=Measure(metric="mark", scale=Scale(0, 100)))

    assert percent.method == "reach"
    assert 100 * unit.low == pytest.approx(percent.low)  # pyright: ignore[reportOptionalOperand]


def test_scores_outside_the_given_bounds_are_asked_about() -> None:
    """Wrong bounds must not pass in silence, nor change the method."""
    row = _one([20, 50, 101, 0], measure=Measure(metric="mark", scale=Scale(0, 100)))

    assert (row.low, row.method) == (None, "none")
    assert row.notes == (
        "no interval: 1 value of 101 beyond the scale 0 to 100: a code for missing? --missing-code "
        "101 leaves such out; --bounds mark=LOW,HIGH sets another scale",
    )


def test_missing_scores_are_left_out_and_counted() -> None:
    """NaN is no 0."""
    row = _one([1, float("nan"), 0, 1])

    assert (3, 1, pytest.approx(2 / 3)) == (row.n_items, row.n_missing, row.estimate)
    assert "1 of 4 items have no score and are left out" in row.notes


def test_an_infinite_epoch_is_not_lost_among_the_others() -> None:
    """The item's mean is infinite, whatever else was scored."""
    matrix = ResponseMatrix.from_array([[[1.0, float("inf")], [0.0, 1.0]]])
    [row] = intervals(matrix)

    assert row.low is None
    assert "scores that are infinite or beyond ±1e+60: 1; no mean, no interval" in row.notes


def test_nothing_to_say_is_said() -> None:
    """No score, an infinite one, one unbounded one: no interval, and why."""
    nothing = _one([float("nan")] * 3)
    infinite = _one([1.0, float("inf"), 0.0])
    single = _one([7.5])

    assert (nothing.estimate, nothing.method, nothing.n_items) == (None, NO_METHOD, 0)
    assert "no item has a score" in nothing.notes
    assert "scores that are infinite or beyond ±1e+60: 1; no mean, no interval" in infinite.notes
    assert (single.estimate, single.low) == (7.5, None)
    assert "t gives no interval for 1 such item" in single.notes


def test_a_method_is_used_where_it_fits_and_the_row_says_what_ran() -> None:
    """Wilson on partial credit is not possible: the default runs there."""
    assert _one([1, 0, 1], method="wilson").method == "wilson"
    assert _one([1, 0.5, 1], method="wilson").method == "reach"
    assert _one([1, 0, 1], method="t").method == "t"


def test_a_prior_of_choice_is_used() -> None:
    """Any Beta prior, highest density or equal tails."""
    row = _one([1] * 15, method="beta", prior=(2.0, 3.0))
    expected = bounded.beta_equal_tailed(15, 15, confidence_level=0.95, prior=(2.0, 3.0))

    assert (row.low, row.high) == pytest.approx((float(expected.low), float(expected.high)))


@pytest.mark.parametrize("method", ["percentile", "bca", "bootstrap-t"])
def test_resampling_is_repeatable(method: str) -> None:
    """The same seed gives the same interval, another seed another."""
    scores = np.random.default_rng(1).beta(2, 2, 30)
    first, second = (_one(scores, method=method, rng=7) for _ in range(2))
    other = _one(scores, method=method, rng=8)

    assert first == second
    assert first.low != other.low
    assert 0 < (first.low or 0) < first.estimate < (first.high or 0) < 1  # pyright: ignore[reportOperatorIssue]


def test_perplexity_is_bracketed_on_its_own_scale() -> None:
    """exp(−mean loglikelihood): the limits are those of the mean, exponentiated and swapped."""
    rows = {r.metric: r for r in intervals(read(LOGS / "out/models__m2", task="es_lambada_like"))}
    row = rows["perplexity,none"]

    assert row.estimate == pytest.approx(row.logged, rel=1e-12)
    assert 1 < row.low < row.estimate < row.high  # pyright: ignore[reportOperatorIssue, reportOptionalOperand]


def test_ratio_metrics_equal_what_lm_eval_logs() -> None:
    """Word and byte perplexity, bits per byte: sums over items, not means of them."""
    for row in intervals(read(LOGS / "out", task="es_ppl")):
        assert row.estimate == pytest.approx(row.logged, rel=1e-9)
        assert row.low < row.estimate < row.high  # pyright: ignore[reportOperatorIssue, reportOptionalOperand]


@pytest.mark.parametrize(
    ("aggregation", "least"),
    [("perplexity", 1.0), ("weighted_perplexity", 1.0), ("bits_per_byte", 0.0)],
)
def test_limits_of_a_ratio_are_on_its_scale(aggregation: str, least: float) -> None:
    """Limits of a perplexity were below 1; those of densities may be."""

    def low(first: float, **more: object) -> float | None:
        r = given_responses(
            model="m", metric="ppl", aggregation=aggregation, item_ids=np.arange(4),
            scores=np.array([[first], [-0.02], [-0.9], [-0.01]]), source=SOURCE, **more,
        )  # fmt: skip
        return intervals([r])[0].low

    assert (low(-0.01), low(-0.01, bounds=(-10.0, 0.0))) == (least, least)
    assert low(0.1) < least  # pyright: ignore[reportOptionalOperand]


def test_groups_equal_what_lm_eval_logs_and_stand_above_their_tasks() -> None:
    """Micro and macro means, as each group was configured."""
    rows = [r for r in intervals(read(LOGS / "out/models__m2", metric="acc")) if "es_" in r.task]
    groups = {r.task: r for r in rows if r.kind == "group"}
    order = [r.task for r in rows]

    assert {"es_group", "es_group_unw"} == set(groups)
    assert "micro mean of 3 tasks" in groups["es_group"].notes
    assert "macro mean of 3 tasks" in groups["es_group_unw"].notes
    for row in groups.values():
        assert row.estimate == pytest.approx(row.logged, rel=1e-12)
        assert row.n_items == 122
        assert row.low < row.estimate < row.high  # pyright: ignore[reportOperatorIssue, reportOptionalOperand]
    assert order.index("es_group") < order.index("es_sub_a") < order.index("es_group_unw")
    assert [r.depth for r in rows[:4]] == [0, 1, 1, 2]


def test_a_group_of_which_only_a_part_was_read_has_no_row() -> None:
    """One task's score is not the group's."""
    rows = intervals(read(LOGS / "out/models__m2", task="es_sub_b"))

    assert {"es_sub_b"} == {row.task for row in rows}


def test_the_macro_std_error_is_that_of_the_harness() -> None:
    """√Σ s²/n / T, as lm-eval logs it since 0.4.13."""
    rows = intervals(read(LOGS / "out/models__m1", task="es_group_unw", metric="acc"))
    group = next(r for r in rows if r.kind == "group")

    assert group.std_error == pytest.approx(group.logged_std_error, rel=1e-12)


def test_a_whole_benchmark_is_less_uncertain_than_all_such_items() -> None:
    """--limit 7 of 60: narrower than for endless items; all 7 of 7: no uncertainty is left."""
    limited = read(LOGS / "out_limit", task="es_mc", metric="acc")
    endless, of_60 = intervals(limited)[0], intervals(limited, population="logged")[0]
    all_of_it = intervals(limited, population=7)[0]

    assert endless.high - endless.low > of_60.high - of_60.low  # pyright: ignore[reportOptionalOperand]
    assert "for all 60 items; 7 of them were run and must be a random part" in of_60.notes
    assert (all_of_it.estimate, all_of_it.estimate) == (all_of_it.low, all_of_it.high)
    with pytest.raises(DesignError, match="answered 7 items of es_mc, more than the 6"):
        intervals(limited, population=6)


def test_the_prior_is_that_of_the_items_not_run_too() -> None:
    """Of a whole benchmark the score is predicted by the posterior of the prior that was given.

    So are two scores of any other scale.
    """
    scores = np.repeat([1.0, 0.0], [15, 5])
    row = _one(scores, population=100, prior=(9.0, 1.0))
    expected = predictive_hpd(15, 20, 100, confidence_level=0.95, prior=(9.0, 1.0))

    assert (expected.low, expected.high) == (row.low, row.high)
    assert row.high > (_one(scores, population=100).high or 1)
    points = Measure(scale=Scale(2, 6))
    of_points = _one(2 + 4 * scores, population=100, prior=(9.0, 1.0), measure=points)
    assert (2 + 4 * expected.low, 2 + 4 * expected.high) == (of_points.low, of_points.high)


@pytest.mark.parametrize("method", ["beta-hpd", "beta"])
def test_a_population_of_any_size_has_limits(method: str) -> None:
    """Of too many items to sum over them too, and without a step where that begins."""
    scores = np.repeat([1.0, 0.0], [13, 27])
    endless, huge, summed, corrected = (
        _one(scores, method=method, population=size)
        for size in (None, 999_999_999_999, 40 + MOST_PREDICTED, 41 + MOST_PREDICTED)
    )

    assert (summed.method, corrected.method) == ("beta-predictive", f"{method}+fpc")
    assert (huge.low, huge.high) == pytest.approx((endless.low, endless.high), abs=1e-9)
    assert _one(scores, method=method, population="logged") == endless
    assert (summed.low, summed.high) == pytest.approx((corrected.low, corrected.high), abs=2e-6)


def test_counts_are_recovered_only_where_they_are_proven() -> None:
    """Value, stderr and n of 0/1 scores fit together, and n follows from the others.

    Those of partial credit do not: their limits are those of the stderr.
    """

    def logged(value: float, stderr: float | None, n: int | None) -> ScoreInterval:
        r = given_responses(
            model="m", task="t", metric="acc", source=SOURCE, logged=value,
            logged_std_error=stderr, logged_n=n,
        )  # fmt: skip
        return intervals([r])[0]

    error = math.sqrt(0.85 * 0.15 / 59)
    proven = logged(0.85, error, 60)
    partial = logged(0.85, 0.02, 60)
    uneven = logged(0.8512, math.sqrt(0.8512 * 0.1488 / 59), 60)
    counted = logged(0.85, error, None)

    assert proven.low == pytest.approx(_one([1] * 51 + [0] * 9).low)
    assert (counted.n_items, counted.low, counted.high) == (60, proven.low, proven.high)
    assert "counts and n recovered" in counted.notes[0]
    assert (partial.method, uneven.method) == ("t", "t")
    assert partial.low == pytest.approx(0.85 - special.stdtrit(59, 0.975) * 0.02, abs=1e-9)
    assert "limits from the logged standard error alone" in partial.notes[0]
    # Nothing is known of an estimate without an error, and no n of one with an error of 0.
    assert (logged(0.85, None, None).low, logged(1.0, 0.0, None).low) == (None, None)
    # Rounding may change 6 digits of either, and of an error of 0 the ninth place.
    assert logged(0.85, error * (1 + 9e-7), 60).low == logged(0.85 + 9e-7 / 60, error, 60).low
    assert logged(0.85, error * (1 + 2e-6), 60).method == "t"
    assert (logged(1.0, 9e-10, 60).low is None, logged(1.0, 2e-9, 60).low is None) == (False, True)


def test_many_cells_at_once_equal_one_by_one() -> None:
    """Batching changes nothing."""
    rng = np.random.default_rng(3)
    cells = [
        given_responses(
            model=f"m{i}", task="t", metric=f"of_its_own_{i}", item_ids=np.arange(n),
            scores=rng.choice([0, 0.25, 0.5, 1], n)[:, None] if i % 2 else
            rng.integers(0, 2, n)[:, None].astype(float),
            source=SOURCE,
        )
        for i, n in enumerate([1, 2, 3, 5, 8, 40, 41, 100])
    ]  # fmt: skip

    for together, cell in zip(intervals(cells), cells, strict=True):
        alone = intervals([cell])[0]
        assert together.method == alone.method
        assert (together.low, together.high) == pytest.approx((alone.low, alone.high), abs=1e-9)


def test_results_become_frames_and_plain_values() -> None:
    """Numbers are finite or None."""
    results = intervals(read(LOGS / "out/models__m2"))
    frame = results.to_frame()

    assert len(results) == len(frame)
    assert {"model", "task", "metric", "n_items", "estimate", "low", "high"} <= set(frame.columns)
    for row in results.to_dict():
        for value in row.values():
            assert not isinstance(value, float) or math.isfinite(value)
