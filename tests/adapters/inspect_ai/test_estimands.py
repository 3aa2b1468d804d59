"""Every value in the header of a log has a row of that value, or a row that says why not."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import estimand_tasks
import numpy as np
import pytest
from inspect_ai.log import EvalLog, EvalMetric, EvalScore, list_eval_logs, read_eval_log
from inspect_ai.scorer import SampleScore, Score
from scipy import stats

from evalstats_plugin import compare, gate
from evalstats_plugin.adapters.inspect_ai.archive.guard import find_logs
from evalstats_plugin.adapters.inspect_ai.estimands import (
    SPREAD,
    Estimand,
    Logged,
    Scorer,
    estimands_of,
    headline_row,
    left_out,
    metric_of,
    of_result,
    reduced,
)
from evalstats_plugin.adapters.inspect_ai.reader import read_log
from evalstats_plugin.adapters.inspect_ai.writer import annotate_log
from evalstats_plugin.data.responses import Responses, Selection
from evalstats_plugin.hookspecs import Annotation
from evalstats_plugin.runtime.files import LogFile
from evalstats_plugin.scores.epochs import at_k
from evalstats_plugin.scores.intervals import intervals
from evalstats_plugin.scores.rows import ScoreInterval

pytestmark = pytest.mark.needs("inspect_ai>=0.3.285")

Run = Callable[..., "CompletedProcess[str]"]

FIXTURES = Path(__file__).parents[3] / "fixtures" / "logs" / "inspect_ai"
STORED = [
    log
    for run in sorted(FIXTURES.glob("*/*"))
    for log in find_logs([LogFile(path) for path in sorted(run.iterdir())])
]


@pytest.fixture(scope="session")
def generated(run: Run, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Run tasks of every shape in Inspect; return their logs by task."""
    folder = str(tmp_path_factory.mktemp("estimands"))
    # A process of its own: Inspect leaves streams open, which would be warnings here.
    tasks = Path(estimand_tasks.__file__)
    done = run(folder, module=tasks.stem, folder=Path(folder), PYTHONPATH=str(tasks.parent))
    assert 0 == done.returncode, done.stderr
    paths = [Path(info.name.removeprefix("file://")) for info in list_eval_logs(folder)]
    return {_header(path).eval.task: path for path in paths}


@cache
def _header(path: Path) -> EvalLog:
    return read_eval_log(str(path), header_only=True)


def _read(path: Path, *metrics: str) -> list[Responses]:
    return read_log(LogFile(path), Selection(metrics=metrics)) or []


@cache
def _rows(path: Path, *metrics: str) -> dict[str, ScoreInterval]:
    return {row.metric: row for row in intervals(_read(path, *metrics), rng=0)}


def _logged(log: EvalLog) -> Iterator[tuple[Any, str, float]]:
    """Yield result, key and value of each metric that is a score."""
    for score in log.results.scores if log.results else ():
        for key, m in score.metrics.items():
            if (m.group or m.name).rpartition("/")[2] not in SPREAD:
                yield score, key, m.value


def _row_of(log: EvalLog, score: Any, key: str) -> Estimand:
    every = estimands_of(log, of_result(score))
    [found] = [e for e in every if e.result is score and key in e.keys]
    return found


def _disagreements(path: Path) -> list[str]:
    """Describe the logged values that have no row of that value, and no reason."""
    log, rows = _header(path), _rows(path)
    found: list[str] = []
    for score, key, value in _logged(log):
        row = rows[_row_of(log, score, key).label]
        same = row.estimate is not None and math.isclose(row.estimate, value, abs_tol=1e-12)
        without = any(n.startswith("no interval") or n == "no item has a score" for n in row.notes)
        other = any(
            n.startswith("mismatch") or "invalidated" in n or "chosen adaptively" in n
            for n in row.notes
        )
        if not (same or without or other) or (row.low is None) != without:
            found.append(f"{path.name} {score.reducer} {key}: {value} logged, {row}")
    return found


@pytest.mark.parametrize("path", STORED, ids=lambda p: f"{p.parent.name}/{p.stem[-6:]}")
def test_each_value_of_a_stored_log_is_a_rows_estimate_or_has_a_reason(path: Path) -> None:
    """To 1e-12, for every scorer, key, reducer, metric and group."""
    if _header(path).status == "success":
        assert _disagreements(path) == []


@pytest.mark.parametrize("task", [task.name for task in estimand_tasks.tasks()])
def test_each_value_of_a_generated_log_is_a_rows_estimate_or_has_a_reason(
    generated: dict[str, Path], task: str
) -> None:
    """Reducers × kinds of scores × 1, 3 and 4 epochs × clusters, groups, errors, own metrics."""
    assert _header(generated[task]).status == "success"
    assert _disagreements(generated[task]) == []


def test_reasons_are_few(generated: dict[str, Path]) -> None:
    """Of all values that were generated, only these have no interval."""
    without = {
        f"{task} {row.metric}": row.notes[-1]
        for task, path in generated.items()
        for row in _rows(path).values()
        if row.low is None
    }

    assert set(without) == {
        *(f"others grades/{name}" for name in ("C", "I", "P", "N", "longest_run")),
        "headline binary/longest_run", "others keys/aggregate", "four partial/majority",
        "four keys:style/majority", "leaps partial/median", "leaps partial/last",
    }  # fmt: skip
    assert without["others grades/longest_run"].startswith("no interval: longest_run does not vary")
    assert "leaps between samples" in without["leaps partial/median"]
    assert "depends on the order" in without["leaps partial/last"]


def test_the_logged_reducer_is_what_is_read_and_compared(generated: dict[str, Path]) -> None:
    """The epoch mean only where the log has it; the epochs themselves are kept for ``--at-k``."""
    [r] = _read(generated["only_pass_at_4"])
    [named] = _read(generated["only_pass_at_4"], "binary")

    assert (r.metric, r.scores.shape) == ("binary/pass_at_4", (estimand_tasks.N_ITEMS, 1))
    assert named.metric == r.metric
    assert (r.as_epochs.metric, r.as_epochs.scores.shape[1]) == ("binary", 4)
    [derived] = at_k([r], "pass@4")
    assert derived.metric == "pass@4 binary"
    assert derived.item_means.mean() == r.logged


def test_other_values_are_read_by_name(generated: dict[str, Path]) -> None:
    """The headline's reducer comes first; another can be compared if asked for."""
    [first] = [r for r in _read(generated["four"]) if r.metric.startswith("binary")]
    [max_] = _read(generated["four"], "binary/max")
    several = _read(generated["four"], "binary/pass_*")

    assert (first.metric, max_.metric) == ("binary/pass_at_2", "binary/max")
    assert len(several) == 5
    assert len(first.beside) == len(estimand_tasks.reducers()) - 1


def test_epochs_without_a_score_are_left_out_before_others_are_combined() -> None:
    """As Inspect does it: too few for k make no score; an unknown reducer makes none at all."""
    epochs = [["C", "I", "I"], ["C", math.nan, math.nan], ["C", "I", math.nan]]

    assert reduced("pass_at_2", epochs) == [
        pytest.approx(2 / 3),
        pytest.approx(math.nan, nan_ok=True),
        1.0,
    ]
    assert reduced("no_such_reducer", epochs) is None


@pytest.mark.parametrize("task", ["four", "only_pass_at_4", "groups", "groups_of_epochs", "three"])
def test_the_bounds_beside_a_value_are_of_that_value(
    generated: dict[str, Path], task: str, tmp_path: Path
) -> None:
    """In the header: for each mean of all scores, and for the group that is the headline."""
    path, target = generated[task], tmp_path / "annotated.eval"
    annotate_log(path, Annotation(intervals(_read(path), rng=0), "1.2.3"), target)
    before, after, rows = _header(path), _header(target), _rows(path)

    for old, new in zip(before.results.scores, after.results.scores, strict=True):  # pyright: ignore[reportOptionalMemberAccess]
        ours = {k: m.value for k, m in new.metrics.items() if m.group == "evalstats"}
        whole = [e for e in estimands_of(before, of_result(old))
                 if e.result is old and e.keys and e.kind == "scores"]  # fmt: skip
        expected = {
            f"evalstats_ci95_{end}": value
            for e in whole
            for end, value in (("lo", rows[e.label].low), ("hi", rows[e.label].high))
            if value is not None
        }
        named = {k: v for k, v in ours.items() if k.startswith("evalstats_ci95")}
        assert named == expected
        assert {k: m.value for k, m in new.metrics.items() if k not in ours} == {
            k: m.value for k, m in old.metrics.items()
        }
    headline = rows[str(headline_row(before))]
    bounds = {m.value for s in after.results.scores for m in s.metrics.values()}  # pyright: ignore[reportOptionalMemberAccess]
    assert {headline.low, headline.high} <= bounds


def test_a_headline_that_is_no_mean_never_borrows_the_bounds_of_another(
    generated: dict[str, Path], tmp_path: Path
) -> None:
    """The bounds of accuracy beside it say so; no tag has them, and no gate passes on them."""
    path, target = generated["headline"], tmp_path / "annotated.eval"
    annotate_log(path, Annotation(intervals(_read(path), rng=0), "1.2.3"), target)
    [score] = _header(target).results.scores  # pyright: ignore[reportOptionalMemberAccess]
    ours = [k for k, m in score.metrics.items() if m.group == "evalstats"]

    assert ours == ["evalstats_accuracy_ci95_lo", "evalstats_accuracy_ci95_hi"]
    assert not any("[" in tag for tag in _header(target).tags)
    headline, mean_of_scores = _read(path)
    assert (headline.metric, headline.measure.is_headline) == ("binary/longest_run", True)
    assert (mean_of_scores.metric, mean_of_scores.beside) == ("binary", ())
    both = [r.renamed(model) for model in ("old", "new") for r in _read(path)]
    decided = gate(both, baseline="old")
    assert decided.decision == "inconclusive"
    assert any("binary/longest_run" in note for note in compare(both).notes)


def _rms(x: Any) -> float:
    return float(np.sqrt(np.mean(x * x)))


@pytest.mark.parametrize(
    ("task", "of"),
    [("rms", "item"), ("rms_of_clusters", "cluster"), ("rms_of_epochs", "item"),
     ("rms_of_samples", "item")],
)  # fmt: skip
def test_a_headline_that_is_no_mean_has_the_jackknifes_interval(
    generated: dict[str, Path], task: str, of: str
) -> None:
    """By the formulas of Efron and Tibshirani (1993), from the scores; a cluster is left whole."""
    row = _rows(generated[task])["partial/rms"]
    [mean_of_scores] = [r for r in _read(generated[task]) if r.metric == "partial"]
    x = mean_of_scores.scores
    x = mean_of_scores.item_means[:, None] if task == "rms_of_epochs" else x
    units = np.arange(len(x)) if of == "item" else np.asarray(mean_of_scores.clusters)
    names = np.unique(units)
    n = len(names)
    pseudo = np.array([n * _rms(x) - (n - 1) * _rms(x[units != name]) for name in names])
    half = stats.t.ppf(0.975, n - 1) * pseudo.std(ddof=1) / math.sqrt(n)

    assert (row.n_items, row.method) == (estimand_tasks.N_ITEMS, "jackknife")
    assert row.estimate == row.logged == pytest.approx(_rms(x), rel=1e-12)
    assert (row.low, row.high) == pytest.approx((_rms(x) - half, _rms(x) + half), rel=1e-9)
    assert row.notes == (f"rms of items like these, recomputed without each {of} of {n}",)


def test_a_metric_that_reads_more_than_values_is_recomputed(generated: dict[str, Path]) -> None:
    """Score metadata lie in the samples, not in their summaries; `std` can be the headline."""
    words, std = _rows(generated["words"]), _rows(generated["std"])

    assert words["partial/share_of_words"].method == "jackknife"
    assert std["partial/std"].method == "jackknife"
    assert headline_row(_header(generated["std"])) == "partial/std"


def test_no_comparison_is_of_a_headline_that_is_no_mean(generated: dict[str, Path]) -> None:
    """It has an interval, and still no scores of items that could be paired."""
    both = [r.renamed(model) for model in ("old", "new") for r in _read(generated["rms"])]

    assert gate(both, baseline="old").decision == "inconclusive"
    assert any("partial/rms" in note for note in compare(both).notes)


def _of(name: str, value: float, **params: Any) -> Estimand:
    logged = EvalMetric(name=name, value=value, params=params)
    result = EvalScore(name="s", scorer="s", metrics={name: logged})
    return Estimand(Scorer("s"), kind="other", name=name, logged=Logged(value), result=result,
                    keys=(name,))  # fmt: skip


def _given(values: Any) -> list[SampleScore]:
    return [SampleScore(score=Score(value=float(v))) for v in values]


def test_many_samples_are_left_out_in_blocks() -> None:
    """The standard error of 1,000 samples in 200 blocks is that of one at a time, within 10 %."""
    x = np.random.default_rng(36).gamma(2, size=1000)
    found = left_out(_of("rms", _rms(x)), _given(x), range(1000))
    assert isinstance(found, list)
    each = np.sqrt((np.sum(x * x) - x * x) / 999)

    assert len(found) == 200
    assert np.std(found) * 199**0.5 == pytest.approx(np.std(each) * 999**0.5, rel=0.1)


def test_no_package_is_loaded_for_a_metric_that_a_log_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither by the metric's name nor by that of a metric among its parameters."""
    asked: list[str] = []
    monkeypatch.setattr("inspect_ai.util.registry_create", lambda _, name, **__: asked.append(name))
    inner = {"type": "metric", "name": "some_package/rms", "params": {}}

    assert metric_of(_of("some_package/rms", 1.0)) is None
    assert metric_of(_of("grouped", 1.0, metric=inner)) is None
    assert metric_of(_of("grouped", 1.0, metric=[inner])) is None
    assert asked == []


def test_why_a_metric_is_not_recomputed() -> None:
    """It is not registered here, or the samples contradict its value."""
    x = np.arange(1.0, 9.0)

    assert metric_of(_of("no_such_metric", 1.0)) is None
    why = left_out(_of("rms", 1.0), _given(x), range(8))
    assert isinstance(why, str)
    assert "of the samples, and 1 was logged" in why
