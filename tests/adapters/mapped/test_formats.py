"""Results of promptfoo, EvalPlus, simple-evals, OpenCompass and DeepEval, read by our mappings.

Every number is that of the tool's own summary, in the same file or by its own rule.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evalstats_plugin as es
from evalstats_plugin.errors import LogError
from evalstats_plugin.testing import check_adapter

LOGS = Path(__file__).parents[3] / "fixtures" / "logs"
FILES = sorted(
    path
    for tool in ("promptfoo", "evalplus", "simple_evals", "opencompass", "deepeval")
    for path in (LOGS / tool).rglob("*.json")
)


def _means(path: Path, **asked: Any) -> dict[tuple[str, str], float]:
    return {(r.model, r.metric): float(np.nanmean(r.item_means)) for r in es.read(path, **asked)}


def _parsed(path: Path) -> Any:
    return json.loads(path.read_text())


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parts[-3]}/{path.name}")
def test_each_format_keeps_the_contract_of_adapters(path: Path) -> None:
    check_adapter(path, n_broken=10)


def test_the_files_of_all_tools_are_found_in_one_folder() -> None:
    """Beside each other, by what is in them."""
    tools = {path.relative_to(LOGS).parts[0] for path in FILES}

    assert {r.source.harness for path in tools for r in es.read(LOGS / path)} == tools
    assert len(FILES) == 11


@pytest.mark.parametrize("name", ["0.118.10/riddles.json", "0.119.9/errors.json"])
def test_promptfoo_gives_its_own_counts_and_scores(name: str) -> None:
    """Tests that ended in an error are no successes, as in its pass rate."""
    path = LOGS / "promptfoo" / name
    document = _parsed(path)
    expected: dict[tuple[str, str], float] = {}
    for prompt in document["results"]["prompts"]:
        of = prompt["metrics"]
        n = sum(of[f"test{kind}Count"] for kind in ("Pass", "Fail", "Error"))
        expected[prompt["provider"], "success"] = of["testPassCount"] / n
        expected[prompt["provider"], "score"] = of["score"] / n

    assert _means(path) == pytest.approx(expected, rel=1e-12)
    [version] = {r.source.version for r in es.read(path)}
    assert version == document["metadata"]["promptfooVersion"]


def test_promptfoo_costs_have_intervals_beside_the_scores() -> None:
    """Of money, time and tokens, the sums are promptfoo's own."""
    path = LOGS / "promptfoo" / "0.118.10" / "riddles.json"
    names = ("usd_per_1000", "latency_ms", "tokens")
    rows = {(row.model, row.metric): row for row in es.intervals(es.read(path, metric=names))}
    for prompt in _parsed(path)["results"]["prompts"]:
        of = prompt["metrics"]
        totals = (1000 * of["cost"], of["totalLatencyMs"], of["tokenUsage"]["total"])
        for name, total in zip(names, totals, strict=True):
            row = rows[prompt["provider"], name]
            assert row.estimate == pytest.approx(total / 2, rel=1e-12)
            assert row.low is not None
            assert row.low < total / 2
    assert len(rows) == 6


def _promptfoo(path: Path, rows: list[dict[str, Any]]) -> Path:
    head = {"evalId": "e", "results": {"prompts": [{"metrics": {"testPassCount": 0}}]}}
    head["results"]["results"] = rows
    path.write_text(json.dumps(head))
    return path


def test_promptfoo_repeats_are_clusters_and_prompts_are_settings(tmp_path: Path) -> None:
    """--repeat gives another answer to a test a number of its own; tests may have no vars."""
    rows: list[dict[str, Any]] = [
        {"testIdx": 2 * test + repeat, "vars": {"q": test} if test < 3 else {}, "success": True,
         "score": 1, "provider": {"id": "p", "label": ""}, "prompt": {"label": label}}
        for test in range(4) for repeat in range(2) for label in ("Short", "Long")
    ]  # fmt: skip
    read = es.read(_promptfoo(tmp_path / "r.json", rows), metric="success")
    once = es.read(_promptfoo(tmp_path / "o.json", rows[::4]), metric="success")

    assert [r.model for r in read] == ["p (prompt=Short)", "p (prompt=Long)"]
    for r in read:
        assert r.clusters is not None
        assert len(r.item_ids) == 8
        assert len(set(r.clusters.tolist())) == 5
    assert [(r.model, r.clusters) for r in once] == [("p", None)]


def test_evalplus_gives_pass_at_1_by_its_own_rule() -> None:
    """Extra tests count only where the base tests pass; a time-out is a failure."""
    path = LOGS / "evalplus" / "2024-04" / "rd_gene_1_1_eval_results.json"
    runs = _parsed(path)["eval"].values()
    base = np.mean([np.mean([r["base_status"] == "pass" for r in run]) for run in runs])
    plus = np.mean(
        [np.mean([r["base_status"] == r["plus_status"] == "pass" for r in run]) for run in runs]
    )
    means = _means(path)

    assert means == {
        ("rd_gene_1_1", "pass@1,base"): pytest.approx(base),
        ("rd_gene_1_1", "pass@1,plus"): pytest.approx(plus),
    }
    assert {(r.task, len(r.item_ids)) for r in es.read(path)} == {("HumanEval", 164)}


def test_evalplus_samples_are_epochs_and_its_own_value_is_compared(tmp_path: Path) -> None:
    """As later versions write them; without extra tests there is no such metric."""

    def sample(status: str, plus: str | None) -> Mapping[str, Any]:
        return {"task_id": "t", "solution": "", "base_status": status, "plus_status": plus}

    runs = {
        "Mbpp/2": [sample("pass", "fail"), sample("fail", "pass")],
        "Mbpp/3": [sample("pass", "pass"), sample("timeout", "fail")],
    }
    values = {"base": {"pass@1": 0.5}, "plus": {"pass@1": 0.25}}
    path = tmp_path / "m_vllm_temp_0.8.eval_results.json"
    path.write_text(json.dumps({"date": "d", "hash": "h", "eval": runs, "pass_at_k": values}))
    base, plus = es.read(path)
    for run in runs.values():
        for each in run:
            each["plus_status"] = None  # type: ignore[index]
    path.write_text(json.dumps({"date": "d", "hash": "h", "eval": runs}))
    [alone] = es.read(path)

    assert (base.model, base.task, base.metric) == ("m_vllm_temp_0.8", "Mbpp", "pass@1,base")
    assert base.scores.tolist() == [[1.0, 0.0], [1.0, 0.0]]
    assert plus.scores.tolist() == [[0.0, 0.0], [1.0, 0.0]]
    assert (base.logged, plus.logged, base.notes, plus.notes) == (0.5, 0.25, (), ())
    assert alone.metric == "pass@1,base"


def test_simple_evals_give_their_own_score_and_questions_as_clusters() -> None:
    """The scores are in the pages; a reply that looks like one is none."""
    for path in (LOGS / "simple_evals").rglob("*.json"):
        [r] = es.read(path)
        document = _parsed(path)

        assert r.logged == document["score"]
        assert float(r.scores.mean()) == pytest.approx(document["score"], rel=1e-12)
        assert (r.task, r.metric, len(r.item_ids), r.notes) == ("gpqa", "score", 36, ())
        assert r.clusters is not None
        assert len(set(r.clusters.tolist())) == 12
        assert "What is " in r.clusters[0]
    models = {r.model for r in es.read(LOGS / "simple_evals")}
    assert models == {"tiny_a", "tiny-b"}


def test_simple_evals_of_two_models_are_paired_by_question() -> None:
    """The system message of one is no part of the question."""
    [row] = es.compare(es.read(LOGS / "simple_evals"), rng=0)

    assert row.n_items == 36
    assert row.difference is not None
    assert abs(row.difference) == pytest.approx(0.8333 - 0.5556, abs=1e-4)


def test_opencompass_gives_its_own_accuracy_and_runs_as_epochs() -> None:
    for path in (LOGS / "opencompass").rglob("*.json"):
        [r] = es.read(path)
        document = _parsed(path)
        name = "accuracy" if path.stem == "sums" else "accuracy (4 runs average)"

        assert (r.model, r.task, r.metric) == (path.parent.name, path.stem, "accuracy")
        assert r.scores.shape == (15, 1 if path.stem == "sums" else 4)
        assert float(r.scores.mean()) == pytest.approx(document[name] / 100, rel=1e-12)
        logged = pytest.approx(document["accuracy"] / 100) if path.stem == "sums" else None
        assert r.logged == logged
        assert r.notes == ()


def test_opencompass_details_by_number_are_read_too(tmp_path: Path) -> None:
    """As versions before 0.4 wrote them, with the kind of the task among the items."""
    details: dict[str, Any] = {"type": "GEN"}
    for k in range(4):
        details[str(k)] = {"prompt": "p", "origin_prediction": "o", "references": str(k),
                           "predictions": "1", "correct": k == 1}  # fmt: skip
    path = tmp_path / "m" / "sums.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"accuracy": 25.0, "details": details}))
    [r] = es.read(path)

    assert (r.model, r.task, r.logged, r.notes) == ("m", "sums", 0.25, ())
    assert r.item_ids.tolist() == [0, 1, 2, 3]
    assert r.scores.ravel().tolist() == [0.0, 1.0, 0.0, 0.0]


def test_opencompass_details_without_scores_are_named(tmp_path: Path) -> None:
    """Some of its evaluators do not say which answers are right."""
    path = tmp_path / "sums.json"
    item = {"origin_prediction": "o", "predictions": "1", "references": "1"}
    path.write_text(json.dumps({"accuracy": 100.0, "details": {"type": "GEN", "0": item}}))

    with pytest.raises(LogError, match=r"opencompass.toml: score: no field of details\[\*\] is"):
        es.read(path)


def test_texts_of_a_tool_in_other_json_do_not_make_it_its(tmp_path: Path) -> None:
    """Each of them writes an object."""
    path = tmp_path / "a.json"
    path.write_text(json.dumps([{"testCases": 1, "metricsData": 2}]))

    with pytest.raises(LogError, match="is not a log that an installed adapter knows"):
        es.read(path)


def test_deepeval_gives_its_own_scores_and_passes() -> None:
    """An errored metric has no score, and has not passed."""
    for path in (LOGS / "deepeval").rglob("*.json"):
        document = _parsed(path)
        model = document["hyperparameters"]["model"]
        expected: dict[tuple[str, str], float] = {}
        for of in document["metricsScores"]:
            expected[model, f"{of['metric']},score"] = float(np.mean(of["scores"]))
            n = of["passes"] + of["fails"] + of["errors"]
            expected[model, f"{of['metric']},passed"] = of["passes"] / n

        assert _means(path) == pytest.approx(expected, rel=1e-12)
        [closeness] = es.read(path, metric="Closeness,score")
        assert np.isnan(closeness.scores.ravel()).nonzero()[0].tolist() == [7]


def test_less_bias_is_better_and_more_that_pass(tmp_path: Path) -> None:
    """DeepEval passes answers whose bias is below the threshold; it writes no direction."""
    text = (LOGS / "deepeval" / "4.3.1" / "test_run_tiny-a.json").read_text()
    path = tmp_path / "test_run.json"
    path.write_text(text.replace('"Closeness"', '"Bias"'))

    better = {r.metric: r.higher_is_better for r in es.read(path)}
    assert (better["Bias,score"], better["Exactness,score"]) == (False, None)
    assert better["Bias,passed"] is not False


def test_deepeval_runs_inside_its_latest_file_are_read(tmp_path: Path) -> None:
    """`.latest_test_run.json` has them under a key."""
    path = LOGS / "deepeval" / "4.3.1" / "test_run_tiny-a.json"
    latest = tmp_path / ".latest_test_run.json"
    latest.write_text(json.dumps({"testRunData": _parsed(path)}))

    assert _means(latest) == _means(path)
