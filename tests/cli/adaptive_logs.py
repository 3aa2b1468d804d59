"""Logs of models drawn from items of known parameters, for item banks and tests with them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from lm_eval_logs import write_log

TASKS = {"task_a": 40, "task_b": 20}


def draw_logs(
    folder: Path, n_models: int, *, seed: int, prefix: str = "model", backwards: int = 0
) -> dict[str, dict[str, float]]:
    """Write logs of models; return their true expected scores, by task.

    The first `backwards` items of task_a are failed by the able.
    """
    source = np.random.default_rng(0)
    items = {t: (source.uniform(0.8, 2, m), source.normal(size=m)) for t, m in TASKS.items()}
    items["task_a"][0][:backwards] = -2
    rng = np.random.default_rng(seed)
    truth: dict[str, dict[str, float]] = {}
    for k in range(n_models):
        ability = rng.normal()
        scores = dict[str, np.ndarray]()
        for task, (a, b) in items.items():
            p = 1 / (1 + np.exp(-a * (ability - b)))
            scores[task] = (rng.random(len(a)) < p).astype(np.float64)
        name = f"{prefix}_{k:02d}"
        truth[name] = {task: float(values.mean()) for task, values in scores.items()}
        write_log(folder, name, {task: values.tolist() for task, values in scores.items()})
    return truth


def change_item(folder: Path, task: str, item: int) -> None:
    """Make one item of all logs another question."""
    for path in folder.rglob(f"samples_{task}_*.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        lines[item]["doc_hash"] = "0" * 64
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
