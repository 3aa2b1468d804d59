"""Columns and operations for Inspect's data frames, on logs of a real run."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from inspect_ai.analysis import (
    EvalInfo,
    EvalModel,
    EvalResults,
    SampleSummary,
    evals_df,
    prepare,
    samples_df,
)
from inspect_ai.log import EvalLog, read_eval_log, write_eval_log

from evalstats_plugin import compare, intervals, read
from evalstats_plugin.adapters.inspect_ai.frames import (
    ComparisonColumns,
    EvalStatsColumns,
    ItemStatsColumns,
    add_intervals,
    paired_vs,
    viz_limits,
)
from evalstats_plugin.errors import SelectionError

HERE = Path(__file__).parent
OPERATIONS = [add_intervals(), paired_vs("mockllm/a")]


@pytest.fixture(scope="module")
def folder(
    run: Callable[..., subprocess.CompletedProcess[str]], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Return the folder of two models' logs, annotated by the hook."""
    folder = tmp_path_factory.mktemp("logs")
    run(
        *("eval", f"{HERE / 'demo_tasks.py'}@sums", "--model", "mockllm/a,mockllm/b"),
        *("--log-dir", folder, "--display", "none"), module="inspect_ai", folder=folder,
        EVALSTATS_ANNOTATE="intervals,compare",
    )  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def evals(folder: Path) -> pd.DataFrame:
    """Return the frame of the two evals, by model."""
    columns = EvalInfo + EvalModel + EvalResults
    return evals_df(str(folder), columns=columns, quiet=True).sort_values("model")


def _a(folder: Path) -> EvalLog:
    logs = [read_eval_log(str(path)) for path in folder.glob("*.eval")]
    return next(log for log in logs if log.eval.model == "mockllm/a")


def _frame_of(log: EvalLog) -> Any:
    frame = evals_df([log], columns=EvalInfo + EvalStatsColumns + ComparisonColumns, quiet=True)
    return frame.iloc[0]


def test_columns_hold_what_the_annotation_holds(folder: Path) -> None:
    """Limits of the headline score, and their distances from the estimate."""
    log = _a(folder)
    assert log.metadata is not None
    [row] = log.metadata["evalstats"]["intervals"]
    frame = _frame_of(log)

    assert row["low"] == frame["score_headline_ci_low"] == frame["evalstats_match_low"]
    assert row["high"] == frame["score_headline_ci_high"]
    assert frame["score_headline_ci_minus"] == pytest.approx(row["estimate"] - row["low"])
    assert frame["score_headline_ci_plus"] == pytest.approx(row["high"] - row["estimate"])
    assert ("beta-hpd", 12, 0.95) == (
        frame["score_headline_ci_method"],
        frame["score_headline_n_items"],
        frame["evalstats_confidence_level"],
    )


def test_columns_are_numbers(folder: Path) -> None:
    """So that they can be drawn and averaged."""
    columns = EvalInfo + EvalStatsColumns + ComparisonColumns
    frame = evals_df(str(folder), columns=columns, quiet=True)
    names = ["score_headline_ci_low", "score_headline_ci_plus", "score_headline_p_value"]

    assert all(pd.api.types.is_float_dtype(frame[name]) for name in names)


def test_comparison_columns_hold_the_difference_from_the_baseline(folder: Path) -> None:
    """Of the other model; the baseline has none from itself."""
    columns = EvalModel + ComparisonColumns
    frame = evals_df(str(folder), columns=columns, quiet=True).set_index("model")

    assert frame.loc["mockllm/b", "score_headline_baseline"] == "mockllm/a"
    assert frame.loc["mockllm/b", "score_headline_difference"] == pytest.approx(0.25)
    assert frame.loc["mockllm/b", "score_headline_p_adjusted"] == pytest.approx(0.0663, abs=1e-4)
    assert pd.isna(frame.loc["mockllm/a", "score_headline_difference"])


@pytest.mark.needs("inspect_ai>=0.3.285")
def test_the_best_of_several_epochs_has_no_interval_of_the_mean(folder: Path) -> None:
    """The headline is another quantity then."""
    log = _a(folder)
    assert log.results is not None
    assert log.results.headline is not None
    log.results.headline.reducer = log.results.scores[0].reducer = "max"

    assert pd.isna(_frame_of(log)["score_headline_ci_low"])


@pytest.mark.parametrize("block", [None, "text", {}, {"intervals": 3}, {"intervals": [4, {}]}])
def test_columns_of_other_metadata_are_empty(folder: Path, block: Any) -> None:
    """A log without an annotation, or with something else under its name."""
    log = _a(folder).model_copy(update={"metadata": {"evalstats": block}, "log_updates": None})
    log.eval.metadata = log.metadata

    assert pd.isna(_frame_of(log)["score_headline_ci_low"])


def test_item_columns_hold_what_is_known_of_each_item(folder: Path) -> None:
    """Flat numbers of the sample's metadata."""
    log = _a(folder)
    assert log.samples is not None
    for i, sample in enumerate(log.samples):
        sample.metadata = {"evalstats_difficulty": i / 2, "author": "x"}
    frame = samples_df([log], columns=SampleSummary + ItemStatsColumns, quiet=True)

    assert [i / 2 for i in range(12)] == frame["item_difficulty"].tolist()
    assert "item_author" not in frame.columns


def test_add_intervals_gives_what_intervals_gives(folder: Path, evals: pd.DataFrame) -> None:
    """In plain numbers."""
    expected = intervals(read(folder), method="wilson", confidence_level=0.9, rng=0).to_frame()
    expected = expected.set_index("model")
    frame = prepare(evals, add_intervals("wilson", confidence_level=0.9)).set_index("model")

    for name, column in [("low", "ci_low"), ("high", "ci_high"), ("estimate", "estimate")]:
        assert expected[name].to_dict() == frame[f"score_headline_{column}"].to_dict()
    assert frame["score_headline_ci_low"].dtype == "float64"
    offsets = frame["score_headline_estimate"] - frame["score_headline_ci_minus"]
    assert offsets.tolist() == pytest.approx(frame["score_headline_ci_low"].tolist())


def test_paired_vs_gives_what_compare_gives(folder: Path, evals: pd.DataFrame) -> None:
    """NaN where a model would be compared with itself."""
    [expected] = compare(read(folder), baseline="mockllm/b", rng=0)
    a, b = prepare(evals, paired_vs("mockllm/b")).to_dict("records")

    for name in ("difference", "p_value", "p_adjusted", "prob_better"):
        assert getattr(expected, name) == a[f"score_headline_{name}"]
        assert math.isnan(b[f"score_headline_{name}"])
    assert expected.low == a["score_headline_difference_low"]
    assert expected.difference is not None
    assert expected.high == pytest.approx(
        expected.difference + a["score_headline_difference_ci_plus"]
    )


@pytest.mark.parametrize("missing", ["name", "score", "metric", "value", "stderr", "score value"])
def test_headlines_are_found_by_the_names_of_columns(evals: pd.DataFrame, missing: str) -> None:
    """Inspect 0.3.260 has none for the score; users choose columns, and their order."""
    gone = [f"score_headline_{name}" for name in missing.split()]
    fewer = evals[evals.columns[::-1]].drop(columns=gone, errors="ignore")
    found, expected = (prepare(frame, OPERATIONS) for frame in (fewer, evals))

    for name in ("score_headline_ci_low", "score_headline_p_value"):
        assert found[name].notna().any()
        pd.testing.assert_series_equal(found[name], expected[name])


def test_operations_leave_the_frame_they_are_given_alone(evals: pd.DataFrame) -> None:
    """They answer with a copy, in the same order."""
    before = evals.copy()
    after = prepare(evals, OPERATIONS)

    pd.testing.assert_frame_equal(before, evals)
    assert before["model"].tolist() == after["model"].tolist()


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_empty_frame_stays_as_it_is(operation: Callable[[pd.DataFrame], pd.DataFrame]) -> None:
    """As with Inspect's own operations."""
    assert operation(pd.DataFrame()).empty


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_frame_without_logs_is_refused(
    operation: Callable[[pd.DataFrame], pd.DataFrame],
) -> None:
    """The message names the column."""
    with pytest.raises(ValueError, match="Column 'log' not found in DataFrame"):
        operation(pd.DataFrame({"model": ["m"]}))


def test_a_score_can_be_named(evals: pd.DataFrame) -> None:
    """Its columns are called after it; one that does not exist is an error."""
    frame = prepare(evals, add_intervals(metric="match"))

    assert frame["score_match_ci_low"].notna().all()
    with pytest.raises(SelectionError, match=r"no metric is called 'F1'.* there are: match"):
        prepare(evals, add_intervals(metric="F1"))


def test_a_baseline_that_is_not_there_is_an_error(evals: pd.DataFrame) -> None:
    """With the models there are."""
    with pytest.raises(SelectionError, match="no model is called 'mockllm/z'"):
        prepare(evals, paired_vs("mockllm/z"))


def test_a_log_of_a_run_that_failed_has_no_interval(
    folder: Path, evals: pd.DataFrame, tmp_path: Path
) -> None:
    """Inspect's frames have a row for it; operations leave its numbers empty."""
    log = _a(folder)
    log.status = "error"
    write_eval_log(log, str(tmp_path / "failed.eval"))
    both = pd.concat([evals, evals.iloc[:1].assign(log=str(tmp_path / "failed.eval"))])
    frame = prepare(both, OPERATIONS)

    assert [False, False, True] == frame["score_headline_ci_low"].isna().tolist()
    assert [True, False, True] == frame["score_headline_difference"].isna().tolist()


def test_every_sample_has_the_interval_of_its_eval(folder: Path) -> None:
    """Operations take a frame of samples too."""
    columns = EvalInfo + SampleSummary
    frame = prepare(samples_df(str(folder), columns=columns, quiet=True), add_intervals())

    assert len(frame) == 24
    assert frame["score_headline_ci_low"].nunique() == 2


def test_ready_views_of_inspect_viz_draw_our_limits(folder: Path) -> None:
    """As of inspect_viz 0.4.2: a mark has our two columns, and no other has limits."""
    viz: Any = pytest.importorskip("inspect_viz", reason="tried where it is installed")
    view: Any = import_module("inspect_viz.view")
    frame = prepare(evals_df(str(folder)), [add_intervals()])
    data = viz.Data.from_dataframe(frame)
    shown = str(
        view.scores_by_model(
            data, ci=False, model_name="model", marks=viz_limits(data, y="model")
        ).config
    )

    assert "score_headline_ci_low" in shown
    assert "score_headline_ci_high" in shown
    assert "stderr" not in shown


def test_data_without_limits_cannot_be_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says what to add."""
    monkeypatch.setitem(sys.modules, "inspect_viz.mark", ModuleType("inspect_viz.mark"))

    with pytest.raises(SelectionError, match=r"no column score_headline_ci_low, .*add_intervals"):
        viz_limits(SimpleNamespace(columns=["model_display_name"]))
