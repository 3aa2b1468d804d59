"""Reading a thousand logs in one process and in two."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from benchmarks.inspect_big import write_log

LOGS = 1000
ITEMS = 201
"""Of each log: a multiple of the three samples that are repeated."""
CONTEXT = "A passage that the question is about, as long as they are in such benchmarks. " * 12
PROCESSES = (1, 2)

_FIXTURE = Path(__file__).parent.parent / "fixtures/logs/lm_eval/0.4.13/out_samples/models__m2"
_READ = """
import hashlib, json, resource, sys, time
from evalstats_plugin import read, workers

def cpu():
    used = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)

n_jobs, before = int(sys.argv[2]), cpu()
start = time.perf_counter()
with workers(n_jobs):
    found = read(sys.argv[1])
seconds = time.perf_counter() - start
digest = hashlib.sha256()
for r in found:
    names = (r.model, r.task, r.metric, r.item_ids.tolist())
    digest.update(repr(names).encode() + r.scores.tobytes())
print(json.dumps([seconds, cpu() - before, len(found), digest.hexdigest()]))
"""


def run(logs: int = LOGS) -> dict[str, Any]:
    """Return wall and CPU seconds by harness and number of processes."""
    found: dict[str, Any] = {"logs": logs, "items": ITEMS}
    for harness, write in (("lm_eval", write_lm_eval), ("inspect_ai", write_inspect)):
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder), logs)
            runs = {n: _measure(Path(folder), n) for n in PROCESSES}
        alone, rows = runs[PROCESSES[0]], {tuple(r[2:]) for r in runs.values()}
        if len(rows) > 1:
            msg = f"{harness}: other rows with other numbers of processes: {rows}"
            raise AssertionError(msg)
        found[harness] = {
            "responses": alone[2],
            **{
                f"{what}_seconds_{n}": round(r[i], 1)
                for n, r in runs.items()
                for i, what in enumerate(("wall", "cpu"))
            },
        }
    return found


def _measure(folder: Path, processes: int) -> list[Any]:
    done = subprocess.run(
        [sys.executable, "-c", _READ, folder, str(processes)],
        capture_output=True, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    return json.loads(done.stdout)


def write_lm_eval(folder: Path, logs: int) -> None:
    """Write logs of as many models, whose samples are one file under many names."""
    (results,) = _FIXTURE.glob("results_*.json")
    (samples,) = _FIXTURE.glob("samples_*.jsonl")
    log = json.loads(results.read_text())
    log["n-samples"]["es_mc"] = {"original": ITEMS, "effective": ITEMS}
    log["results"]["es_mc"]["sample_len"] = ITEMS
    kinds = [json.loads(line) for line in samples.read_text().splitlines()]
    first = folder / samples.name
    with first.open("w", encoding="utf-8") as file:
        for i in range(ITEMS):
            file.write(json.dumps(_longer(kinds[i % len(kinds)], i)) + "\n")
    for k in range(logs):
        home = folder / f"org__model{k}"
        home.mkdir()
        name = f"org/model{k}"
        model = {"model_name": name, "model_name_sanitized": home.name}
        config = {**log["config"], "model_args": {"pretrained": name}}
        (home / results.name).write_text(json.dumps({**log, **model, "config": config}))
        os.link(first, home / samples.name)
    first.unlink()


def _longer(sample: dict[str, Any], number: int) -> dict[str, Any]:
    """Make a sample of another question, with a prompt as long as they are."""
    arguments = {
        name: {**given, "arg_0": f"{CONTEXT}{number} {given['arg_0']}"}
        for name, given in sample["arguments"].items()
    }
    doc = {**sample["doc"], "question": f"{CONTEXT}{number} {sample['doc']['question']}"}
    hashes = {"doc_hash": f"{number:064x}", "prompt_hash": f"{number + 1:064x}"}
    return {**sample, "doc_id": number, "doc": doc, "arguments": arguments, **hashes}


def write_inspect(folder: Path, logs: int) -> None:
    """Write one log by Inspect's own recorder, and copies of it under other models' names."""
    first = folder / "first.eval"
    write_log(first, ITEMS, messages=2)
    with zipfile.ZipFile(first) as source:
        members = {name: source.read(name) for name in source.namelist()}
    first.unlink()
    for k in range(logs):
        new = f"mockllm/model{k}".encode()
        path = folder / f"2026-11-20T00-00-00+00-00_big_{k}.eval"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as copy:
            for name, text in members.items():
                of_log = name == "header.json" or name.startswith("_journal/")
                copy.writestr(name, text.replace(b"mockllm/big", new) if of_log else text)
