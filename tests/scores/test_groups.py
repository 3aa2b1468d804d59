"""Groups of tasks: shares, estimates and errors by hand, over drawn designs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from given_responses import given_responses
from hypothesis import given, settings
from hypothesis import strategies as st

from evalstats_plugin import Group, Responses, Source, intervals
from evalstats_plugin.data.responses import Prediction, Provenance
from evalstats_plugin.stats.interval import Interval
from evalstats_plugin.stats.survey import strata


def _task(name: str, scores: np.ndarray, groups: tuple[Group, ...], **more: object) -> Responses:
    return given_responses(
        model="m", task=name, metric="acc", item_ids=np.arange(len(scores)),
        scores=scores[:, None], groups=groups, source=Source(Path("m.json"), "test"), **more,
    )  # fmt: skip


@settings(max_examples=16, deadline=None)
@given(
    st.integers(0, 2**32), st.sampled_from(["micro", "macro", "parts"]),
    st.sampled_from(["binary", "rubric", "points", "real"]),
)  # fmt: skip
def test_a_group_is_the_mean_of_its_tasks_with_shares_by_hand(
    seed: int, weighting: str, kind: str
) -> None:
    """Two tasks inside a group of their own, two beside it; a task that was cut counts in full."""
    random = np.random.default_rng(seed)
    sizes, cut = random.integers(3, 40, 4), random.integers(0, 2, 4) * random.integers(1, 30, 4)
    scores = [
        {
            "binary": (random.random(n) < 0.6) * 1.0,
            "rubric": random.integers(0, 5, n) / 4,
            "points": random.integers(1, 6, n) * 1.0,
            "real": random.normal(3, 2, n),
        }[kind]
        for n in sizes
    ]
    scores[0] = np.append(scores[0], np.nan)
    outer = Group("all", 0, weighting, 4, 0.5)  # pyright: ignore[reportArgumentType]
    inner = Group("some", 1, "micro", 2)
    # Of an inner group that the harness does not sum up there is no row.
    responses = [
        _task(
            f"t{i}", x, (outer, inner) if i < 2 else (outer,), n_cut=int(cut[i]),
            bounds={"real": None, "points": (1.0, 5.0)}.get(kind, (0.0, 1.0)),
        )
        for i, x in enumerate(scores)
    ]  # fmt: skip
    rows = list(intervals(responses))
    group = next(row for row in rows if row.kind == "group")

    whole = (sizes + cut).astype(float)
    if weighting == "macro":
        shares = np.full(4, 0.25)
    elif weighting == "micro":
        shares = whole / whole.sum()
    else:
        shares = np.append(whole[:2] / whole[:2].sum(), [1, 1]) / 3
    means = np.array([np.nanmean(x) for x in scores])
    errors = np.array([np.nanstd(x, ddof=1) / n**0.5 for x, n in zip(scores, sizes, strict=True)])

    assert [row.kind for row in rows] == ["group", *["task"] * 4]
    assert group.measure is not None
    assert (group.measure.task, group.measure.n_cut) == ("all", 0)
    assert (group.n_items, group.n_missing) == (sizes.sum(), 1 + cut.sum())
    assert group.estimate == pytest.approx(shares @ means)
    error = np.sqrt(shares**2 @ errors**2)
    assert (group.std_error or 0.0) == pytest.approx(error, abs=1e-12)
    assert (group.low, group.high) == pytest.approx(_limits(kind, rows[1:], scores, means, shares))
    said = "macro mean of 3 columns" if weighting == "parts" else f"{weighting} mean of 4 tasks"
    assert said in group.notes
    assert any(note.startswith("not all that was scored") for note in group.notes) == cut.any()


def _limits(
    kind: str, rows: list[object], scores: list[np.ndarray], means: np.ndarray, shares: np.ndarray
) -> tuple[float, float]:
    if kind == "real":
        ends = np.array([[row.low, row.high] for row in rows])  # pyright: ignore[reportAttributeAccessIssue]
        found = strata.mover(means, Interval(*ends.T), shares)
    else:
        # With a right and a wrong item more of each task.
        low, high = (1.0, 5.0) if kind == "points" else (0.0, 1.0)
        scores, means = [(x - low) / (high - low) for x in scores], (means - low) / (high - low)
        more = [np.append(x[~np.isnan(x)], [0.0, 1.0]) for x in scores]
        n = np.array([len(x) - 2 for x in more])
        smoothed = strata.Smoothed(
            np.array([x.mean() for x in more]), np.array([x.var() for x in more]) / n
        )
        share = strata.beta_effective(means, smoothed, shares, confidence_level=0.95)
        found = Interval(*(low + (high - low) * limit for limit in share))
    return float(found.low), float(found.high)


@pytest.mark.parametrize("spreads", [(0.05, 0.05), (1.0, 1.0), (0.001, 1.0)])
@pytest.mark.parametrize("mean", [-3.0, 0.5])
def test_a_group_whose_weights_are_unknown_shows_the_wider_interval(
    spreads: tuple[float, float], mean: float
) -> None:
    """And the other in a note; also on a scale that only the scores show.

    Tasks of such groups once stayed on the usual scale, and had no interval.
    """
    random = np.random.default_rng(1)
    scores = [
        random.normal(mean, spreads[0], 5), random.normal(0.5, spreads[1], 200)
    ]  # fmt: skip

    def row(weighting: str, *more: np.ndarray) -> object:
        group = (Group("all", 0, weighting, 2 + len(more), 0.5),)  # pyright: ignore[reportArgumentType]
        tasks = [_task(f"t{i}", x, group) for i, x in enumerate([*scores, *more])]
        return next(iter(intervals(tasks)))

    rows, either = {name: row(name) for name in ("micro", "macro")}, row("either")
    wide, narrow = sorted(rows, key=lambda name: rows[name].low - rows[name].high)
    assert (wide == "micro") == (spreads[0] == 0.001)
    assert (either.estimate, either.low, either.high) == (
        rows[wide].estimate, rows[wide].low, rows[wide].high,
    )  # fmt: skip
    limits = f"{rows[narrow].low:.3f} to {rows[narrow].high:.3f}"
    assert f"shown ({wide}); {narrow}: {limits}" in either.notes[-1]
    (alone,) = {row(name, np.array([1.5])).estimate for name in ("micro", "either")}
    assert alone == pytest.approx(np.concatenate([*scores, [1.5]]).mean())
    open_task = row("either", np.full(3, np.nan))
    assert (open_task.low, open_task.notes[-1]) == (None, "a task of this group has no mean")


def test_a_group_of_values_with_errors_has_limits() -> None:
    """Counts in one task, an error alone in the other: the group had none though both had some."""
    groups = (Group("all", 0, "macro", 2, 0.42),)
    values = [(0.4, np.sqrt(0.4 * 0.6 / 99)), (0.45, 0.0123)]
    tasks = [
        given_responses(
            model="m", task=f"t{i}", metric="acc", groups=groups, logged=value, logged_n=100,
            logged_std_error=float(error), source=Source(Path("m.json"), "test"),
        )
        for i, (value, error) in enumerate(values)
    ]  # fmt: skip
    group, *own = intervals(tasks)
    sides = [[r.estimate - r.low, r.high - r.estimate] for r in own]
    below, above = np.sqrt((np.array(sides) ** 2).sum(axis=0)) / 2

    assert (group.low, group.high) == pytest.approx((0.425 - below, 0.425 + above))


def test_open_items_of_a_task_open_the_group() -> None:
    """Limits with all missing scores at their lowest, and at their highest, combined alike."""
    group = (Group("all", 0, "macro", 2, 0.5),)
    scores = [np.array([1, 0, 1, 1, np.nan, np.nan, 0, 1.0]), np.array([0, 1, 1, 0, 1.0])]
    rows = list(
        intervals(
            [_task(f"t{i}", x, group, bounds=(0.0, 1.0)) for i, x in enumerate(scores)],
            missing="bounds",
        )
    )
    ends = np.array(
        [[r.low if r.missing_low is None else r.missing_low,
          r.high if r.missing_high is None else r.missing_high] for r in rows[1:]]
    )  # fmt: skip
    assert rows[1].missing_low is not None
    both = strata.mover([2 / 3, 0.6], Interval(*ends.T), [0.5, 0.5])
    assert (rows[0].missing_low, rows[0].missing_high) == pytest.approx(
        (float(both.low), float(both.high))
    )


def test_a_group_is_for_the_benchmarks_of_its_tasks() -> None:
    """Not for that of the first."""
    whole = (Group("all", 0, "micro", 2, 0.5),)
    right = np.repeat([0.0, 1.0], 4)
    tasks = [_task(f"t{n}", right, whole, population=n) for n in (20, 1000)]
    rows = {row.task: row.population for row in intervals(tasks, population="logged")}

    assert rows["all"] == "all 20 items, all 1,000 items"
    assert {row.population for row in intervals(tasks)} == {"new items like these"}


def test_a_group_with_a_task_of_one_item_has_no_standard_error() -> None:
    """Nor one whose tasks do not vary; one without an interval has no row of its own but a note."""
    group = (Group("all", 0, "macro", 2, 0.5),)

    def row(*scores: np.ndarray, bounds: tuple[float, float] | None = (0.0, 1.0)) -> object:
        tasks = [_task(f"t{i}", x, group, bounds=bounds) for i, x in enumerate(scores)]
        return next(iter(intervals(tasks)))

    some, same = np.array([0.0, 1, 1, 0, 1]), np.ones(4)
    assert row(some, np.array([1.0])).std_error is None
    assert row(same, same).std_error is None
    assert row(some, same).std_error == pytest.approx(np.std(some, ddof=1) / 5**0.5 / 2)
    alone = row(some * 1000 - 300, np.array([3.0]), bounds=None)
    assert (alone.low, alone.estimate) == (None, pytest.approx(151.5))
    assert alone.notes[-1] == "a task of this group has no interval"


@pytest.mark.parametrize("n", [0, 1, 2])
def test_a_cut_task_keeps_the_weight_of_all_its_items(n: int) -> None:
    """Of one item as of two; of none that has items at all there is no mean."""
    group = (Group("all", 0, "micro", 2, 0.5),)
    some = _task("t", np.array([1.0, 0, 1, 1]), group, bounds=(0.0, 1.0))
    cut = _task("u", np.ones(n), group, bounds=(0.0, 1.0), n_cut=10 - n)
    row = next(iter(intervals([some, cut])))

    assert row.estimate == (pytest.approx((3 + 10) / 14) if n else 0.5)


def test_a_group_has_the_scale_and_the_direction_that_all_its_tasks_have() -> None:
    """Not those of its first task, nor the size of that one's benchmark."""
    group = (Group("all", 0, "macro", 2, 0.5),)
    right = np.array([0.0, 1, 1, 0, 1])

    def row(higher: tuple[bool, bool]) -> object:
        tasks = [
            _task(f"t{i}", right * top, group, bounds=(0.0, top), higher_is_better=better,
                  population=9)
            for i, (top, better) in enumerate(zip((1.0, 100.0), higher, strict=True))
        ]  # fmt: skip
        return next(iter(intervals(tasks)))

    assert [row(x).higher_is_better for x in ((True, False), (False, False))] == [None, False]
    mixed = row((True, False))
    assert (mixed.measure.bounds, mixed.measure.population) == ((0.0, 100.0), None)
    assert (mixed.method, mixed.estimate) == ("mover(beta-hpd)", pytest.approx(30.3))


def test_a_group_of_one_task_is_that_task_with_limits_of_its_own() -> None:
    """And says so if its items are not those of the log's checksum."""
    group = (Group("all", 0, "macro", 1, 0.5),)
    task = _task("t", np.array([0.0, 1, 1, 0, 1]), group, bounds=(0.0, 1.0))
    row, of_task = intervals([task])
    altered = replace(task, provenance=Provenance(is_altered=True))

    assert (row.estimate, row.std_error) == pytest.approx((of_task.estimate, of_task.std_error))
    assert row.notes == ("macro mean of 1 task",)
    assert next(iter(intervals([altered]))).notes[0] == "not all that was scored: t: altered"


@pytest.mark.parametrize("weighting", ["micro", "macro"])
def test_errors_of_predicted_tasks_are_added(weighting: str) -> None:
    """They share one ability; the weights are the sizes of their banks."""
    group = (Group("all", 0, weighting, 2, 0.5),)  # pyright: ignore[reportArgumentType]
    predicted = [
        Prediction(estimate=0.5, low=0.4, high=0.7, n_in_bank=30),
        Prediction(estimate=0.9, low=0.7, high=1.0, n_in_bank=10),
    ]
    tasks = [
        replace(_task(f"t{i}", np.ones(3), group), predicted=p) for i, p in enumerate(predicted)
    ]
    row = next(iter(intervals(tasks)))
    unknown = replace(tasks[1], predicted=Prediction(estimate=None, n_in_bank=10))
    without = next(iter(intervals([tasks[0], unknown])))
    plain = next(iter(intervals([tasks[0], replace(tasks[1], predicted=None)])))

    share = 0.75 if weighting == "micro" else 0.5
    expected = share * np.array([0.5, 0.4, 0.7]) + (1 - share) * np.array([0.9, 0.7, 1.0])
    assert [row.estimate, row.low, row.high] == pytest.approx(expected.tolist())
    assert (row.method, row.population) == ("adaptive", "all items of the bank")
    assert row.notes == (f"{weighting} mean of 2 predicted tasks",)
    for each in (without, plain):
        assert (each.estimate, each.low, each.method) == (None, None, "none")
        assert each.notes == ("not every task of this group has a predicted score",)
