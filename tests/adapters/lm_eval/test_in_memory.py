"""What lm-eval's `simple_evaluate` returns is annotated without a file in between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evalstats_plugin
from evalstats_plugin.errors import LogError
from evalstats_plugin.logs.reading import read_results

GENERATOR = Path(__file__).parents[2] / "generate" / "lm_eval"
TASKS = ["es_mc", "es_gen", "es_group", "es_odd", "es_ppl", "es_passk"]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Run the real harness in this process, with its model that answers at random.

    It does not look for what is installed here, which takes longer than the tasks.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(GENERATOR)
        patch.setenv("DISABLE_MULTIPROC", "1")
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("HF_DATASETS_CACHE", str(tmp_path_factory.mktemp("cache")))
        from lm_eval import simple_evaluate
        from lm_eval.tasks import TaskManager

        for name in ("add_env_info", "add_tokenizer_info"):
            patch.setattr(f"lm_eval.evaluator.{name}", lambda *_: None)
        return simple_evaluate(
            model="dummy",
            tasks=TASKS,
            task_manager=TaskManager(include_path="tasks", include_defaults=False),
            bootstrap_iters=10,
        )


def test_results_in_memory_are_annotated_and_left_as_they_are(results: Any) -> None:
    """A new dictionary with one key more; the intervals are those of the logged means."""
    keys = list(results)
    annotated = evalstats_plugin.logs.annotate_results(results)
    rows = {(i["task"], i["metric"]): i for i in annotated["evalstats"]["intervals"]}
    row = rows["es_mc", "acc,none"]
    group = rows["es_group", "acc,none"]

    assert [*keys, "evalstats"] == list(annotated)
    assert keys == list(results)
    assert row["estimate"] == pytest.approx(results["results"]["es_mc"]["acc,none"])
    assert group["estimate"] == pytest.approx(results["results"]["es_group"]["acc,none"])
    for i in rows.values():
        if i["low"] is not None:
            assert i["low"] <= i["estimate"] <= i["high"]


def test_in_memory_values_of_every_type_are_read(results: Any) -> None:
    """Scores are NumPy scalars here, log-likelihood pairs are tuples, NaN is NaN."""
    found = {(r.task, r.metric): r for r in read_results(results)}

    assert 4 == np.isnan(found["es_odd", "nan_metric,none"].scores).sum()
    assert 10 == len(found["es_odd", "np_metric,none"].item_ids)
    assert (15,) == found["es_ppl", "word_perplexity,none"].weights.shape  # pyright: ignore[reportOptionalMemberAccess]
    assert found["es_mc", "acc,none"].item_hashes is not None


def test_without_samples_counts_are_used(results: Any) -> None:
    """`simple_evaluate(log_samples=False)` returns none."""
    bare = {k: v for k, v in results.items() if k != "samples"}
    rows = {(r.task, r.metric): r for r in evalstats_plugin.intervals(read_results(bare))}

    assert rows["es_mc", "acc,none"].low is not None
    assert any("counts recovered" in note for note in rows["es_mc", "acc,none"].notes)


def test_a_dictionary_of_something_else_is_refused() -> None:
    """Not every dictionary is results."""
    with pytest.raises(LogError, match="knows these results"):
        evalstats_plugin.logs.annotate_results({"accuracy": 1.0})
