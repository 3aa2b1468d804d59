"""The hook, in real runs of Inspect from an installed wheel."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
LOGS = ROOT / "fixtures" / "logs" / "inspect_ai" / "0.3.285"

Facts = dict[str, Any]
Harness = Callable[[str], Path]


@pytest.fixture(scope="module")
def harness(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    """Give a function that runs a part of `run_harness` with the wheel, and returns its folder."""
    # Inspect tells packages from people's own files by this folder's name.
    site = tmp_path_factory.mktemp("wheel") / "site-packages"
    with ZipFile(wheel) as archive:
        archive.extractall(site)
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("EVALSTATS_", "INSPECT_"))}
    errors = site.with_name("errors")
    with (
        errors.open("wb") as written,
        subprocess.Popen(
            [sys.executable, HERE / "run_harness.py"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=written, text=True,
            env={**clean, "PYTHONPATH": str(site)},
        ) as server,
    ):  # fmt: skip
        asked, told = server.stdin, server.stdout
        assert asked is not None
        assert told is not None

        def ran(part: str) -> Path:
            folder = tmp_path_factory.mktemp(part)
            asked.write(f"{part} {folder}\n")
            asked.flush()
            assert told.readline() == "0\n", errors.read_text()
            return folder

        yield ran


@pytest.fixture(scope="module")
def facts(harness: Harness) -> dict[str, Facts]:
    """What `eval()` and `eval_set()` returned, wrote and logged, by kind of run."""
    return json.loads((harness("python") / "facts.json").read_text())


@pytest.fixture(scope="module")
def from_cli(harness: Harness) -> list[Any]:
    """Logs that ``inspect eval`` wrote with two models, by model."""
    from inspect_ai.log import list_eval_logs, read_eval_log

    folder = harness("command")
    logs = [read_eval_log(info) for info in list_eval_logs(str(folder))]
    return sorted(logs, key=lambda log: log.eval.model)


def _comparisons(log: Facts) -> list[tuple[str, str, float]]:
    block = log["metadata"]["evalstats"]
    return [(c["model_a"], c["model_b"], c["difference"]) for c in block["comparisons"]]


def _warnings(facts: Facts) -> list[str]:
    return [text for text in facts["said"] if text.startswith("WARNING")]


def test_inspect_eval_annotates_with_intervals_and_comparisons(from_cli: list[Any]) -> None:
    """Both logs have both, and all of their samples."""
    a, b = from_cli
    [interval] = a.metadata["evalstats"]["intervals"]
    [comparison] = b.metadata["evalstats"]["comparisons"]

    assert (interval["metric"], interval["n_items"], interval["estimate"]) == ("match", 12, 8 / 12)
    assert 0 < interval["low"] < 8 / 12 < interval["high"] < 1
    assert ("mockllm/a", "mockllm/b") == (comparison["model_a"], comparison["model_b"])
    assert comparison["difference"] == pytest.approx(3 / 12)
    # Twice the posterior probability that b is worse: three items against none, of twelve.
    assert comparison["p_value"] == pytest.approx(0.0663, abs=1e-4)
    assert a.metadata["evalstats"]["comparisons"] == b.metadata["evalstats"]["comparisons"]
    answer = "b and a cannot be told apart on sums match (12 items): 0.9167 against 0.6667, "
    assert a.metadata["evalstats"]["answer"].startswith(answer)
    assert "evalstats" in a.tags
    assert "evalstats" in b.tags
    assert a.metadata["evalstats_summary"].startswith("match 0.667 [")
    assert "not distinguishable from mockllm/a: +0.250" in b.metadata["evalstats_summary"]
    assert [12, 12] == [len(log.samples) for log in from_cli]


def test_a_metric_from_a_wheel_has_the_name_it_has_from_an_editable_install(
    from_cli: list[Any],
) -> None:
    """The log names it after the import package; test_metrics says the same of this tree."""
    names = [metric.name for metric in from_cli[0].eval.scorers[0].metrics]

    assert "evalstats_plugin/beta_interval" in names


def test_eval_returns_the_annotation_but_no_more_metrics(facts: dict[str, Facts]) -> None:
    """Annotated in memory as on disk, but for the bounds in the header."""
    for run in ("success", "compared", "json"):
        returned, written = (
            {log["model"]: {**log, "location": None} for log in facts[run][which]}
            for which in ("returned", "written")
        )
        # Callers rely on the number of metrics.
        for log in written.values():
            ours = [key for key in log["metrics"] if key.startswith("evalstats_")]
            assert len(ours) == 2
            log["metrics"] = {k: v for k, v in log["metrics"].items() if k not in ours}

        assert returned == written
    [log] = facts["success"]["returned"]
    assert log["tags"][1:] == ["evalstats"]
    assert log["tags"][0].startswith("0.67 [.")
    assert log["metadata"]["evalstats"]["comparisons"] == []
    # What the metric computed beside the score, and what was found afterwards, are one number.
    assert log["metrics"]["ci95_low"] == log["metadata"]["evalstats"]["intervals"][0]["low"]


def test_models_are_compared_with_the_first_of_the_run(facts: dict[str, Facts]) -> None:
    """In every log that has a part in it."""
    expected = [("mockllm/a", "mockllm/b", pytest.approx(0.25))]

    assert [expected, expected] == [_comparisons(log) for log in facts["compared"]["returned"]]


def test_the_baseline_can_be_named(facts: dict[str, Facts]) -> None:
    """By the environment variable."""
    for log in facts["other_baseline"]["written"]:
        assert [("mockllm/b", "mockllm/a", pytest.approx(-0.25))] == _comparisons(log)


def test_a_baseline_that_did_not_run_is_one_warning(facts: dict[str, Facts]) -> None:
    """It names the models there are; the intervals are written all the same."""
    [warning] = _warnings(facts["unknown_baseline"])

    assert "no model is called 'mockllm/z'" in warning
    for log in facts["unknown_baseline"]["written"]:
        assert "evalstats" in log["tags"]


def test_one_model_alone_has_intervals_and_no_complaint(facts: dict[str, Facts]) -> None:
    """There is nothing to compare, which is no reason to warn."""
    [log] = facts["alone"]["written"]

    assert [] == _comparisons(log)
    assert [] == _warnings(facts["alone"])
    assert log["updates"] == 1


def test_without_the_variable_nothing_happens(facts: dict[str, Facts]) -> None:
    """The hook is off by default."""
    [log] = facts["disabled"]["written"]

    assert ([], {}, 0) == (log["tags"], log["metadata"], log["updates"])
    assert facts["disabled"]["said"] == []


def test_an_unknown_word_is_said_once_and_turns_everything_off(facts: dict[str, Facts]) -> None:
    """Two tasks ran, and Inspect asks the hook at every event."""
    [warning] = _warnings(facts["misspelt"])

    assert "EVALSTATS_ANNOTATE has the unknown word intervalls" in warning
    assert [0, 0] == [log["updates"] for log in facts["misspelt"]["written"]]


def test_an_exception_in_the_hook_is_one_warning_and_leaves_run_and_log_alone(
    facts: dict[str, Facts],
) -> None:
    """Two logs and their comparison fail for one reason, which is said once."""
    [warning] = _warnings(facts["exception"])

    assert "PluginError: no plugin is called no-such-plugin" in warning
    for log in facts["exception"]["written"]:
        assert ("success", 0) == (log["status"], log["updates"])


@pytest.mark.parametrize("run", ["too_many_errors", "crash"])
def test_a_log_of_a_failed_task_is_left_as_it_was(facts: dict[str, Facts], run: str) -> None:
    """Said for those who look for it, not as a warning."""
    [log] = facts[run]["written"]

    assert ("error", 0) == (log["status"], log["updates"])
    assert [] == _warnings(facts[run])
    assert any("its status is error" in text for text in facts[run]["said"])


def test_a_log_of_a_cancelled_run_is_left_as_it_was(facts: dict[str, Facts]) -> None:
    """After Ctrl-C Inspect gives hooks no log of it."""
    [log] = facts["interrupted"]["written"]

    assert ("cancelled", 0) == (log["status"], log["updates"])
    assert [] == _warnings(facts["interrupted"])


def test_a_metric_tells_the_hook_which_items_belong_together(facts: dict[str, Facts]) -> None:
    """Both find one interval, that of a task whose items come in clusters."""
    [log] = facts["pages"]["written"]
    [row] = log["metadata"]["evalstats"]["intervals"]

    assert row["method"] == "size-betabinomial"
    assert row["low"] == log["metrics"]["cluster_ci95_low"]
    assert row["high"] == log["metrics"]["cluster_ci95_high"]


def test_a_task_without_any_score_ends_well(facts: dict[str, Facts]) -> None:
    """Neither the metric nor the hook minds."""
    [log] = facts["empty"]["written"]

    assert log["status"] == "success"
    assert [] == _warnings(facts["empty"])


def test_an_eval_set_is_annotated_and_its_manifest_is_true(facts: dict[str, Facts]) -> None:
    """What it returns, and what logs.json says of its logs."""
    done = facts["set"]
    in_manifest = [entry["metadata"]["evalstats"] for entry in done["manifest"].values()]
    returned = [log["metadata"]["evalstats"] for log in done["returned"]]

    assert done["success"]
    assert [] == _warnings(done)
    assert [1, 1] == [len(block["comparisons"]) for block in returned]
    assert sorted(map(json.dumps, returned)) == sorted(map(json.dumps, in_manifest))


def test_an_eval_set_of_which_a_task_fails_is_annotated_as_far_as_it_got(
    facts: dict[str, Facts],
) -> None:
    """Logs of failed tasks are passed over; in the returned logs as in the stored ones."""
    done = facts["set_in_part"]
    by_status = {log["status"]: "evalstats" in log["tags"] for log in done["returned"]}
    listed = [entry["metadata"].get("evalstats") for entry in done["manifest"].values()]

    assert not done["success"]
    assert [] == _warnings(done)
    assert by_status == {"error": False, "success": True}
    assert [1, 1] == [len(block["comparisons"]) for block in listed if block]


def test_a_repeated_eval_set_reuses_its_logs_and_changes_nothing(facts: dict[str, Facts]) -> None:
    """No task runs again, and each log is the same file to the byte."""
    again = facts["set_again"]

    assert again["success"]
    assert facts["set"]["files"] == again["files"]
    assert [] == _warnings(again)


@pytest.mark.needs("moto", "s3fs")
def test_logs_in_a_bucket_are_annotated(harness: Harness) -> None:
    """In the run's own context Inspect's reading would wait without end, and the run with it."""
    found = json.loads((harness("s3") / "facts.json").read_text())

    assert [{"comparisons": 1, "same": True, "samples": 12}] * 2 == found["logs"]
    assert ["evalstats" in tags for tags in found["listed"]] == [True, True]


def test_the_registry_loads_nothing_heavy(harness: Harness) -> None:
    """Inspect imports it in every process."""
    loaded = set(json.loads((harness("registry") / "loaded.json").read_text()))

    assert "evalstats_plugin" in loaded
    assert not loaded & {"numpy", "pandas", "pyarrow", "scipy", "torch"}


@pytest.mark.needs("inspect_ai>=0.3.285")
def test_the_bounds_are_metrics_of_returned_logs_if_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One word of the variable; without it their number stays."""
    import anyio
    from inspect_ai.hooks import TaskEnd
    from inspect_ai.log import read_eval_log

    from evalstats_plugin.adapters.inspect_ai.hooks import EvalStatsHooks

    found: dict[str, list[str]] = {}
    for value in ("1", "1,metrics"):
        path = shutil.copy(min(LOGS.glob("models/*_arith_*.eval")), tmp_path)
        log = read_eval_log(str(path))
        monkeypatch.setenv("EVALSTATS_ANNOTATE", value)
        anyio.run(EvalStatsHooks().on_task_end, TaskEnd(None, "run", "eval", log))
        assert log.results
        found[value] = [k for k in log.results.scores[0].metrics if k.startswith("evalstats_")]

    assert found == {"1": [], "1,metrics": ["evalstats_ci95_lo", "evalstats_ci95_hi"]}
