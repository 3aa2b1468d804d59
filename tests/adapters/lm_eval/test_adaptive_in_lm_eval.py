"""lm-eval answers in rounds what an adaptive session wants, and its logs stay its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib import util
from pathlib import Path
from typing import Any

import counted_lm_eval
import numpy as np
import pytest
from click.testing import CliRunner, Result

from evalstats_plugin import read
from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.adaptive.plan import Plan
from evalstats_plugin.cli import main
from evalstats_plugin.errors import LogError

GENERATOR = Path(__file__).parents[2] / "generate" / "lm_eval"
SHOTS = """task: es_shots
dataset_path: json
dataset_kwargs: {data_files: {test: data/mc.jsonl}}
output_type: multiple_choice
test_split: test
fewshot_split: test
num_fewshot: 2
doc_to_text: "{{question}}"
doc_to_target: answer
doc_to_choice: choices
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
metadata: {version: 1.0}
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, needs: Callable[..., None]) -> str:
    """Give the arguments of a model of two layers that has learned nothing."""
    needs("accelerate", "torch", "transformers")
    spec = util.spec_from_file_location("tiny_models", GENERATOR / "tiny_models.py")
    assert spec is not None
    assert spec.loader is not None
    tiny: Any = util.module_from_spec(spec)
    spec.loader.exec_module(tiny)
    folder = tmp_path_factory.mktemp("models")
    tiny._train(folder / "m0", 0, 0)
    return f"pretrained={folder / 'm0'},dtype=float32"


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.chdir(GENERATOR)
    monkeypatch.setenv("DISABLE_MULTIPROC", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    with counted_lm_eval.few_tasks():
        yield


def _documents(task: str) -> list[dict[str, Any]]:
    name = {"es_sub_a": "sub_a", "es_gen": "gen", "es_repeats": "gen"}.get(task, "mc")
    return _lines(GENERATOR / "data" / f"{name}.jsonl")


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _bank(
    path: Path, tasks: Sequence[str] = ("es_mc",), metric: str = "acc,none", **changed: str
) -> Path:
    """Questions are those of the files, fingerprinted as lm-eval does."""
    from lm_eval.utils import hash_string

    keys = [(task, row) for task in tasks for row in range(len(_documents(task)))]
    texts = [json.dumps(doc, indent=2) for task in tasks for doc in _documents(task)]
    hashes = np.array([hash_string(text) for text in texts], dtype=object)
    for item, text in changed.items():
        hashes[int(item.removeprefix("item"))] = text
    rng = np.random.default_rng(0)
    made = ItemBank.from_arrays(
        rng.uniform(0.8, 2, len(keys)),
        rng.normal(size=len(keys)),
        item_ids=[str(row) for _, row in keys],
        tasks=[task for task, _ in keys],
        hashes=hashes,
        provenance={"metrics": [metric]},
    )
    return made.save(path)


def _arguments(bank: Path, folder: Path, *more: str) -> list[str]:
    return [
        "adapt", "run", "lm-eval", "--device", "cpu", "--include_path", "tasks",
        "--bootstrap_iters", "0", "--tasks", "es_mc", "--bank", str(bank), "--output_path",
        str(folder / "out"), *more,
    ]  # fmt: skip


def _run(bank: Path, folder: Path, *more: str) -> tuple[Result, dict[str, Any]]:
    done = CliRunner().invoke(main, _arguments(bank, folder, *more))
    assert done.exit_code == 0, done.output
    return done, json.loads(next((folder / "out").rglob("results_*.json")).read_text())


def _samples(folder: Path, task: str) -> list[dict[str, Any]]:
    return _lines(next((folder / "out").rglob(f"samples_{task}_*.jsonl")))


def test_a_killed_test_is_taken_up_and_ends_as_lm_evals_own_run(tmp_path: Path, model: str) -> None:
    """Kill −9 in the middle: no question twice; what is logged is what lm-eval itself logs."""
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager
    from lm_eval.utils import hash_string, make_table

    bank = _bank(tmp_path / "bank.parquet", ("es_mc", "es_sub_a"))
    questions = tmp_path / "questions"
    more = (
        "--model_args", model, "--tasks", "es_mc,es_sub_a", "--max-items", "14", "--batch", "4",
        "--balance", "--batch_size", "4",
    )  # fmt: skip
    arguments = _arguments(bank, tmp_path, *more)
    script = [sys.executable, counted_lm_eval.__file__, str(questions), "6", *arguments]
    killed = subprocess.run(script, capture_output=True, text=True, check=False, timeout=300)
    assert -signal.SIGKILL == killed.returncode, killed.stderr
    assert 8 * 4 == len(questions.read_text().splitlines())
    assert not list((tmp_path / "out").rglob("results_*"))
    with counted_lm_eval.counting(questions):
        done, data = _run(bank, tmp_path, *more)

    asked = Counter(questions.read_text().splitlines())
    assert 1 == max(asked.values())
    assert "6 items are answered" in done.stderr
    rows = {task: [s["doc_id"] for s in _samples(tmp_path, task)] for task in data["configs"]}
    assert 14 == sum(map(len, rows.values())) == data["evalstats"]["adaptive"]["n_items"]
    assert all(own == sorted(own) for own in rows.values())
    assert data["n-samples"] == {
        task: {"original": n, "effective": len(rows[task])}
        for task, n in (("es_mc", 60), ("es_sub_a", 30))
    }
    assert not list((tmp_path / "out").glob("adaptive_*"))

    manager = TaskManager(include_path="tasks")
    own = simple_evaluate(
        "hf", model, tasks=list(rows), samples=rows, device="cpu", batch_size=4,
        bootstrap_iters=0, task_manager=manager,
    )  # fmt: skip
    assert own is not None
    assert json.loads(json.dumps(own["results"], default=float)) == data["results"]
    for task in rows:
        theirs = [(s["doc_hash"], s["prompt_hash"], s["acc"]) for s in own["samples"][task]]
        ours = [(s["doc_hash"], s["prompt_hash"], s["acc"]) for s in _samples(tmp_path, task)]
        assert theirs == ours
        parts = [s["doc_hash"] + s["prompt_hash"] + s["target_hash"] for s in own["samples"][task]]
        assert hash_string("".join(parts)) == data["task_hashes"][task]
    assert make_table(own).splitlines() == make_table(data).splitlines()
    config = json.loads(json.dumps(own["config"], default=str))
    assert config == data["config"] | {"model_args": model}
    found = {r.task: r for r in read(tmp_path / "out", metric="acc")}
    for task, logged in found.items():
        assert rows[task] == logged.item_ids.tolist()
        assert logged.logged == pytest.approx(float(logged.item_means.mean()))
        assert logged.predicted is not None
        predicted = data["adaptive_test"]["full_score_by_task"][task]["estimate"]
        assert logged.predicted.estimate == predicted
        rows_of = [row for row in data["evalstats"]["intervals"] if row["metric"] == "acc,none"]
        shown = {row["task"]: row["estimate"] for row in rows_of}
        assert shown[task] == pytest.approx(predicted)


def test_examples_in_a_prompt_are_those_of_a_run_of_all_items(tmp_path: Path, model: str) -> None:
    """lm-eval draws them in the order of what is asked: alone, every round would have others."""
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    (tmp_path / "shots.yaml").write_text(SHOTS)
    bank = _bank(tmp_path / "bank.parquet", ("es_shots",))
    more = ("--model_args", model, "--tasks", "es_shots", "--include_path", str(tmp_path))
    _run(bank, tmp_path, *more, "--max-items", "9", "--batch", "3")
    manager = TaskManager(include_path=str(tmp_path))
    same = {"tasks": ["es_shots"], "bootstrap_iters": 0, "task_manager": manager, "device": "cpu"}
    whole = simple_evaluate("hf", model, **same)
    assert whole is not None
    prompts = {s["doc_id"]: s["prompt_hash"] for s in whole["samples"]["es_shots"]}
    ours = {s["doc_id"]: s["prompt_hash"] for s in _samples(tmp_path, "es_shots")}
    assert 9 == len(ours)
    assert ours.items() <= prompts.items()

    alone = simple_evaluate("hf", model, **same, samples={"es_shots": sorted(ours)})
    assert alone is not None
    drawn = {s["doc_id"]: s["prompt_hash"] for s in alone["samples"]["es_shots"]}
    assert drawn != ours


def test_answers_that_are_drawn_are_scored_as_drawn(tmp_path: Path, model: str) -> None:
    """Several takes of an item, by sampling: the log holds the takes that the session saw."""
    bank = _bank(tmp_path / "bank.parquet", ("es_repeats",), "exact_match,maj@4")
    more = ("--model_args", model, "--tasks", "es_repeats", "--max-items", "4", "--batch", "2")
    _, data = _run(bank, tmp_path, *more)
    seen = {step["item"]: step["score"] for step in data["adaptive_test"]["trace"]}
    logged = {
        str(s["doc_id"]): s["exact_match"]
        for s in _samples(tmp_path, "es_repeats")
        if s["filter"] == "maj@4"
    }
    assert 4 == len(seen)
    assert seen == logged
    assert "exact_match,maj@4" == data["evalstats"]["adaptive"]["metric"]


def test_a_second_run_on_the_same_answers_is_refused(tmp_path: Path, model: str) -> None:
    """Two writers would ask items twice, and leave answers that nobody can take up."""
    from evalstats_plugin.adapters.lm_eval.adaptive.run import Model, Rounds, Tasks, arguments_of

    bank, state = _bank(tmp_path / "bank.parquet"), tmp_path / "state"
    plan = Plan(bank=bank, max_items=4, batch=2, state=state)
    own = Model(name="hf", arguments=arguments_of(model), settings={"device": "cpu"})
    tasks = Tasks.load(["es_mc"], "tasks")
    first = Rounds(tasks, plan, own)
    with pytest.raises(LogError, match="in use by another"):
        Rounds(Tasks.load(["es_mc"], "tasks"), plan, own)
    lm = own.load()
    first.run(lm)
    first.close()
    again = Rounds(Tasks.load(["es_mc"], "tasks"), plan, own)
    assert 4 == again.session.n
    assert first.session.ability == again.session.ability
    again.close()
    other = Model(name="hf", arguments=own.arguments, asking={"system_instruction": "Guess."})
    with pytest.raises(LogError, match="holds answers of model"):
        Rounds(tasks, plan, other)
    state.unlink()
    with pytest.raises(LogError, match="no replies of this model"):
        Rounds(tasks, plan, other)


def test_bad_input_is_refused_before_a_model_is_asked(tmp_path: Path) -> None:
    """One message, exit code 2, and nothing written."""
    good = _bank(tmp_path / "bank.parquet")
    other = _bank(tmp_path / "other.parquet", item3="other")
    refused = {
        "es_mc / 3; the bank was calibrated on another version": (other,),
        "no items of task es_gen": (good, "--tasks", "es_gen"),
        "no task nowhere": (good, "--tasks", "es_mc,nowhere"),
        "not scored by exact_match": (good, "--test-metric", "exact_match"),
        "budget 0 is not above 0": (good, "--budget", "0"),
        "cannot load model none": (good, "--model", "none"),
        "is neither name=value": (good, "--model_args", "{"),
    }
    for message, (bank, *more) in refused.items():
        done = CliRunner().invoke(main, _arguments(bank, tmp_path, *more, "--quiet"))
        assert 2 == done.exit_code, done.output
        assert message in done.stderr
        assert 1 == done.stderr.count("error:")
        assert "" == done.stdout
        assert not list((tmp_path / "out").rglob("results*"))


def test_items_the_harness_lacks_are_not_asked(tmp_path: Path, model: str) -> None:
    """A note says how many; where none is left, that is an error."""
    bank = ItemBank.load(_bank(tmp_path / "bank.parquet"))
    ids = np.array([*bank.item_ids.tolist()[:50], *(str(row) for row in range(60, 70))])
    longer = type(bank)(**{**vars(bank), "item_ids": ids, "hashes": None})
    more = ("--model_args", model, "--max-items", "5")
    done, data = _run(longer.save(tmp_path / "longer.parquet"), tmp_path, *more)
    notes = data["evalstats"]["adaptive"]["notes"]
    assert "10 of the bank's 60 items are not in the harness" in notes
    assert "10 of the bank's 60 items are not in the harness" in done.stdout.replace("\n", " ")
    gone = longer.subset(np.arange(60) >= 50).save(tmp_path / "gone.parquet")
    done = CliRunner().invoke(main, _arguments(gone, tmp_path / "b"))
    assert 2 == done.exit_code
    assert "of those it has none may be asked" in done.stderr
    assert not (tmp_path / "b" / "out").exists()
