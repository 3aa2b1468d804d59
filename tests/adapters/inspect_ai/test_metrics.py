"""Metrics for tasks: their numbers, and that nothing makes them raise."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from inspect_ai.log import read_eval_log
from inspect_ai.scorer import SampleScore, Score, value_to_float

from evalstats_plugin.adapters.inspect_ai import metrics

HERE = Path(__file__).parent
METRICS = ["beta_interval", "clopper_pearson", "jeffreys", "wilson"]


def _scores(*values: Any) -> list[SampleScore]:
    return [SampleScore(score=Score(value=v), sample_id=i) for i, v in enumerate(values)]


def _limits(name: str, right: int, n: int) -> tuple[float, float]:
    found = getattr(metrics, name)()(_scores(*[1] * right, *[0] * (n - right)))
    return tuple(found.values())  # the keys begin with the method's name


def test_beta_interval_of_all_right() -> None:
    """The posterior only rises: its densest part ends at 1 and starts where 5% lie below."""
    assert _limits("beta_interval", 20, 20) == pytest.approx((0.05 ** (1 / 21), 1.0), abs=1e-12)


def test_clopper_pearson_of_none_right() -> None:
    """The upper limit is the proportion at which none of 20 has probability 2.5%."""
    expected = (0.0, 1 - 0.025 ** (1 / 20))

    assert expected == pytest.approx(_limits("clopper_pearson", 0, 20), abs=1e-12)


def test_wilson_agrees_with_newcombe() -> None:
    """Newcombe (1998), Statistics in Medicine 17, table I, method 3."""
    assert _limits("wilson", 81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)


def test_jeffreys_agrees_with_brown_cai_dasgupta() -> None:
    """Brown, Cai, DasGupta (2001), Statistical Science 16, table 5: 1 of 10, to 3 digits."""
    assert _limits("jeffreys", 1, 10) == pytest.approx((0.011, 0.381), abs=5e-4)


def test_the_level_is_part_of_the_keys() -> None:
    """So that they stand alone in a header, whatever the level."""
    found = metrics.beta_interval(level=0.995)(_scores(1, 0, 1))

    assert list(found) == ["ci99.5_low", "ci99.5_high"]


def test_partial_credit_gets_another_method_and_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Wilson's interval is of proportions. It is said once in a process, which tests share."""
    metrics._warn_once.cache_clear()  # pyright: ignore[reportPrivateUsage]
    found: Any = metrics.wilson()(_scores(0.5, 0.25, 1))

    assert tuple(found.values()) == _of_partial_credit(0.5, 0.25, 1)
    assert "wilson is for scores of 0 and 1: of partial credit reach is logged" in caplog.text


def _of_partial_credit(*values: float) -> tuple[float, ...]:
    found: Any = metrics.beta_interval()(_scores(*values))
    return tuple(found.values())


@pytest.mark.parametrize("level", [0, 1, 95, math.nan])
def test_a_level_that_is_none_is_refused_before_the_run(level: float) -> None:
    """Where the task is made, not where it is scored."""
    with pytest.raises(ValueError, match="choose a number between 0 and 1"):
        metrics.wilson(level=level)


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize(
    "values",
    [
        (), (1,), (0, 0), (0.5, 0.25, 1), (3, -4.5, 1e300), ("C", "I", "P", "N"), ("half", ""),
        (math.nan, math.nan), (math.inf, 1, 0), ({"a": 1}, {"a": 0}), ([1, 0],), (True, "yes", "0"),
    ],
)  # fmt: skip
def test_no_score_makes_a_metric_raise_or_answer_nan(name: str, values: tuple[Any, ...]) -> None:
    """Both would be written into the log, or end the run."""
    found = getattr(metrics, name)()(_scores(*values))
    start = "" if name == "beta_interval" else f"{name}_"

    assert list(found) in ([], [f"{start}ci95_low", f"{start}ci95_high"])
    assert all(math.isfinite(value) for value in found.values())
    assert list(found.values()) == sorted(found.values())


def _in_clusters(*values: int, size: int) -> list[SampleScore]:
    """Give every item of a cluster the same score."""
    return [
        SampleScore(score=Score(value=v), sample_id=f"{i} {j}", sample_metadata={"page": {"n": i}})
        for i, v in enumerate(values)
        for j in range(size)
    ]


def test_copies_of_an_item_add_little_to_what_is_known() -> None:
    """Ten clusters of five copies: as wide as of ten items or wider, not as narrow as of fifty."""
    values = [1, 1, 1, 0, 1, 0, 1, 1, 0, 1]
    clustered: Any = metrics.cluster_interval("page.n")(_in_clusters(*values, size=5))
    independent = metrics.beta_interval()(_in_clusters(*values, size=5))
    ten: Any = metrics.beta_interval()(_scores(*values))
    width = clustered["cluster_ci95_high"] - clustered["cluster_ci95_low"]

    assert width >= 0.95 * (ten["ci95_high"] - ten["ci95_low"])
    assert width >= 1.9 * (independent["ci95_high"] - independent["ci95_low"])


def test_a_cluster_field_that_no_sample_has_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """At every update of the display it would bury everything else."""
    misspelt = metrics.cluster_interval("paeg")

    assert [{}, {}] == [misspelt(_in_clusters(1, 0, size=2)) for _ in range(2)]
    [said] = [r.message for r in caplog.records]
    assert "no sample's metadata has the field 'paeg'" in said


def test_no_score_at_all_tells_nothing_of_a_share() -> None:
    """An empty answer would be logged as NaN."""
    assert metrics.beta_interval()([]) == {"ci95_low": 0.0, "ci95_high": 1.0}


@pytest.mark.parametrize(
    "value", ["C", "I", "P", "N", "yes", "No", "true", "FALSE", "0.25", " 1 ", 3, 2.5, True]
)
def test_a_value_is_read_as_inspect_reads_it(value: Any) -> None:
    """Letters, words, numbers and their texts."""
    number = value_to_float()(value)
    known = [0, 1, 1]

    assert metrics.wilson()(_scores(*known, number)) == metrics.wilson()(_scores(*known, value))


def test_a_value_inspect_would_count_as_wrong_is_left_out() -> None:
    """Inspect warns and takes it for 0, at every update of its display."""
    known = metrics.beta_interval()(_scores(1, 0, 1))

    assert known == metrics.beta_interval()(_scores(1, "correct", 0, [1], 1))


def test_values_can_be_read_in_a_way_of_ones_own() -> None:
    """An exception in it is not the run's end."""

    def grade(value: Any) -> float:
        return {"A": 1.0, "F": 0.0}[value]

    graded = metrics.beta_interval(to_float=grade)

    assert graded(_scores("A", "F")) == metrics.beta_interval()(_scores(1, 0))
    assert graded(_scores("A", "E")) == {}


@pytest.fixture(scope="module")
def log(
    run: Callable[..., subprocess.CompletedProcess[str]], tmp_path_factory: pytest.TempPathFactory
) -> Any:
    """Return the log of a task with a scorer of two keys, and one that scores nothing.

    Run as installed here, editable, and elsewhere: in the repository's root Inspect would find
    what the build left there, and take it for the installed package.
    """
    folder = tmp_path_factory.mktemp("logs")
    run(
        *("eval", f"{HERE / 'demo_tasks.py'}@keys", "--model", "mockllm/a", "--log-dir", folder),
        *("--display", "none"), module="inspect_ai", folder=folder,
    )  # fmt: skip
    [log] = folder.glob("*.eval")
    return read_eval_log(str(log), header_only=True)


def test_each_key_of_a_score_has_its_interval(log: Any) -> None:
    """And a key that no sample has a value for does not end the run."""
    style, length, _ = log.results.scores
    expected = metrics.beta_interval()(_scores(*[0, 1] * 6))
    found = {m.name: m.value for m in style.metrics.values() if m.group == "beta_interval"}

    assert log.status == "success"
    assert expected == found
    assert (length.scored_samples, length.unscored_samples) == (0, 12)


@pytest.mark.needs("inspect_ai>=0.3.285")
def test_a_run_without_scores_has_no_nan_of_ours(log: Any) -> None:
    """Inspect writes NaN for an empty answer, which strict JSON readers refuse."""
    ours = [
        m
        for score in log.results.scores
        for m in score.metrics.values()
        if m.group in ("beta_interval", "jeffreys")
    ]

    assert len(ours) == 8
    assert all(math.isfinite(m.value) for m in ours)


def test_the_log_names_the_metrics_after_the_package(log: Any) -> None:
    """As from a wheel (test_hooks), so that a log finds them on any machine that has us."""
    [_, unscored] = log.eval.scorers
    names = [m.name for m in unscored.metrics]

    # Inspect's own have its name in front since a later version.
    assert names[0].removeprefix("inspect_ai/") == "accuracy"
    assert names[1:] == ["evalstats_plugin/beta_interval", "evalstats_plugin/jeffreys"]
