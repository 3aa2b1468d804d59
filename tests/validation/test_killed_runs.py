"""Are answers lost, or asked for twice, when a run is killed? Writes killed_runs.json.

``kill -9`` at random moments of `rank judge --at-once 8` and of both `adapt run`, each in a copy
of this process; then the same command again, until the test is over, and the next test. "saved":
answers that were on disk; of these "lost" and "asked again" must be none. "in_flight": the most
answers of one kill that had been given, and were not on disk.
"""

import json
import os
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import study
from counted_lm_eval import few_tasks

from evalstats_plugin import read
from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.cli import main
from evalstats_plugin.ranking.judging import automatic

pytestmark = pytest.mark.validation
INSPECT_TASK = """
import anyio
from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ModelOutput
from inspect_ai.scorer import match
from inspect_ai.solver import solver

def _note(name, state):
    with open(name, "a") as file:
        file.write(f"{state.sample_id}\\n")

@solver
def noted():
    async def solve(state, generate):
        _note("asked", state)
        await anyio.sleep(0.02)
        state.output = ModelOutput.from_content("canned", "42" if int(state.sample_id) % 3 else "7")
        _note("returned", state)
        return state
    return solve

@task
def plain():
    samples = [Sample(id=i, input=f"What is {i}?", target="42") for i in range(60)]
    return Task(dataset=MemoryDataset(samples, name="demo"), solver=noted(), scorer=match())
"""


def _note(name, line):
    with Path(name).open("a") as file:
        file.write(f"{line}\n")


def _lines(name):
    return Path(name).read_text().split("\n")[:-1] if Path(name).exists() else []


def _killed(arguments, prepare, after):
    """Run a command in a copy of this process, and kill it so many seconds after a question.

    Return whether it was killed, or ended before.
    """
    child = os.fork()
    if child == 0:
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        code = 1
        with suppress(SystemExit, Exception):
            prepare()
            main(arguments, standalone_mode=False)
            code = 0
        os._exit(code)
    before, end = len(_lines("asked")), None
    while end is None or time.monotonic() < end:
        if end is None and len(_lines("asked")) > before:
            end = time.monotonic() + after
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert status == 0, "the command failed"
            return False
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def _judging():
    """A judge that takes up to 20 ms, behind the command."""
    Path("items.txt").write_text("".join(f"{k}\n" for k in range(12)))

    def judge(question):
        name = f"{question.first} {question.second}"
        _note("asked", name)
        time.sleep(np.random.default_rng().uniform(0.005, 0.02))
        _note("returned", name)
        return "first" if int(question.first) > int(question.second) else "second"

    def prepare():
        automatic.command_judge = lambda *_, **__: judge

    arguments = [
        "rank", "judge", "items.txt", "--command", "x", "--at-once", "8", "--budget", "300",
        "--certainty", "0.9999", "--output", "answers.json",
    ]  # fmt: skip
    return arguments, prepare


def _saved_by_judge():
    if not Path("answers.json").exists():
        return []
    found = json.loads(Path("answers.json").read_text())
    rows = found["comparisons"]
    return [json.dumps(row, sort_keys=True) for row in rows]


def _bank(keys, tasks, hashes):
    rng = np.random.default_rng(0)
    made = ItemBank.from_arrays(
        rng.uniform(0.8, 2, len(keys)), rng.normal(size=len(keys)), item_ids=keys, tasks=tasks,
        hashes=np.array(hashes, dtype=object), provenance={"metrics": ["match", "acc,none"]},
    )  # fmt: skip
    made.save("bank.parquet")


def _in_inspect():
    from inspect_ai import eval as run_eval

    Path("tasks.py").write_text(INSPECT_TASK)
    run_eval("tasks.py@plain", model="mockllm/model", log_dir="full", display="none")
    (full,) = read("full")
    for name in ("asked", "returned"):
        Path(name).unlink()
    _bank(full.item_ids.astype(str).tolist(), "plain", full.item_hashes.astype(str).tolist())
    arguments = [
        "adapt", "run", "inspect", "tasks.py@plain", "--model", "mockllm/model", "--bank",
        "bank.parquet", "--log-dir", "logs", "--max-items", "40", "-q",
    ]  # fmt: skip
    return arguments, lambda: None


LM_EVAL_TASK = """task: plain
dataset_path: json
dataset_kwargs: {data_files: {test: questions.jsonl}}
output_type: multiple_choice
test_split: test
doc_to_text: "{{question}}"
doc_to_target: 0
doc_to_choice: ["42", "7"]
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
metadata: {version: 1.0}
"""


def _in_lm_eval():
    from lm_eval.models.dummy import DummyLM
    from lm_eval.utils import hash_string

    docs = [{"id": i, "question": f"What is {i}?"} for i in range(60)]
    Path("plain.yaml").write_text(LM_EVAL_TASK)
    Path("questions.jsonl").write_text("".join(json.dumps(doc) + "\n" for doc in docs))
    hashes = [hash_string(json.dumps(doc, indent=2)) for doc in docs]
    _bank([str(i) for i in range(60)], "plain", hashes)

    def loglikelihood(_, requests, **__):
        for request in requests:
            _note("asked", request.doc["id"])
            time.sleep(0.01)
        for doc in {request.doc["id"] for request in requests}:
            _note("returned", doc)
        return [(-float((r.doc["id"] % 3 == 0) == (r.idx == 0)), False) for r in requests]

    def prepare():
        DummyLM.loglikelihood = loglikelihood

    arguments = [
        "adapt", "run", "lm-eval", "--model", "dummy", "--include_path", ".", "--tasks", "plain",
        "--bootstrap_iters", "0", "--bank", "bank.parquet", "--output_path", "logs",
        "--max-items", "40", "-q",
    ]  # fmt: skip
    return arguments, prepare


LOGS = "logs/*.eval", "logs/**/results_*.json"


def _ended():
    return any(list(Path().glob(each)) for each in LOGS)


def _saved_by_test():
    """Items in the answers file of the test that goes on, or in the log of one that has ended."""
    files = list(Path().rglob("adaptive_*.answers"))
    lines = [line for file in files for line in _lines(file)]
    if not files and _ended():
        return [item for run in read("logs") for item in run.item_ids.astype(str)]
    return [json.loads(line)["item"] for line in lines if '"item"' in line]


def _clear():
    """Make way for the next test."""
    for each in ("asked", "returned", "answers.json"):
        Path(each).unlink(missing_ok=True)
    shutil.rmtree("logs", ignore_errors=True)


def _study(name, set_up, saved, kills, span):
    arguments, prepare = set_up()
    rng = np.random.default_rng([24, len(name)])
    assert not _killed(arguments, prepare, np.inf)  # it works, and ends
    _clear()
    n_saved = lost = again = in_flight = n = tests = 0
    while n < kills:
        before, n_asked, n_returned = saved(), len(_lines("asked")), len(_lines("returned"))
        was_killed = _killed(arguments, prepare, float(rng.uniform(*span)))
        after, asked = saved(), _lines("asked")[n_asked:]
        returned = _lines("returned")[n_returned:]
        if not was_killed:
            tests += 1
            _clear()
            continue
        n += 1
        lost += len([one for one in before if one not in after])
        if saved is _saved_by_test:
            again += len(set(asked) & set(before))
        new = len(after) - len(before)
        n_saved += new
        in_flight = max(in_flight, len(returned) - new)
        if _ended() and not list(Path().rglob("adaptive_*.answers")):
            # Killed after its end: the log is whole, and the next command begins a test.
            tests += 1
            _clear()
    return {
        "command": name, "kills": n, "tests_ended": tests, "saved": n_saved, "lost": lost,
        "asked_again": again, "in_flight": in_flight,
    }  # fmt: skip


STUDIES = {
    "rank judge --at-once 8": (_judging, _saved_by_judge, 200, (0.0, 0.4)),
    "adapt run inspect": (_in_inspect, _saved_by_test, 200, (0.0, 1.0)),
    "adapt run lm-eval": (_in_lm_eval, _saved_by_test, 200, (0.0, 1.0)),
}


@pytest.mark.needs("inspect_ai>=0.3.285")
def test_no_answer_is_lost_and_none_asked_again(tmp_path, monkeypatch):
    for name in ("DISABLE_MULTIPROC", "HF_HUB_OFFLINE"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "sets"))
    found = []
    with few_tasks():
        for name, how in STUDIES.items():
            folder = tmp_path / name.replace(" ", "_")
            folder.mkdir()
            monkeypatch.chdir(folder)
            found.append(_study(name, *how))
    study.write_figures("killed_runs", {"runs": lambda: found})

    assert all(row["lost"] == row["asked_again"] == 0 for row in found)
    assert all(row["in_flight"] <= 8 for row in found)
