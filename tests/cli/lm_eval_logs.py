"""Logs as lm-eval writes them, with scores of our own."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

import numpy as np


def write_log(folder: Path, model: str, tasks: Mapping[str, Sequence[float]]) -> None:
    """Write what lm-eval would for a model with these scores; four items make a passage."""
    inside = folder / model
    inside.mkdir(parents=True)
    stamp = "2026-11-21T00-00-00.000000"
    for task, scores in tasks.items():
        lines = [
            {"doc_id": i, "doc": {"q": i, "passage": i // 4}, "target": "x", "arguments": [],
             "resps": [[""]], "filtered_resps": [""], "filter": "none", "metrics": ["acc"],
             "doc_hash": sha256(f"{task} {i}".encode()).hexdigest(), "acc": score}
            for i, score in enumerate(scores)
        ]  # fmt: skip
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (inside / f"samples_{task}_{stamp}.jsonl").write_text(text)
    whole = {
        "results": {t: {"alias": t, "acc,none": float(np.mean(s))} for t, s in tasks.items()},
        "configs": {t: {"task": t, "metric_list": [{"metric": "acc"}]} for t in tasks},
        "versions": dict.fromkeys(tasks, 1.0),
        "higher_is_better": {t: {"acc": True} for t in tasks},
        "n-samples": {t: {"original": len(s), "effective": len(s)} for t, s in tasks.items()},
        "config": {"model": "hf", "model_args": {"pretrained": model}},
        "lm_eval_version": "0.4.13",
        "model_name": model,
    }
    (inside / f"results_{stamp}.json").write_text(json.dumps(whole, indent=2))


THEIR_WRITER = "0.4.13"
"""The lm-eval that wrote the logs in fixtures/, on Python 3.11."""


def as_summed(text: str) -> str:
    """Return a log, where another lm-eval or Python runs with the digits that all sum alike.

    From Python 3.12 on ``sum``, with which lm-eval computes, rounds once, and NumPy 2 adds up in
    another order.
    """
    if sys.version_info[:2] == (3, 11) and version("lm_eval") == THEIR_WRITER:
        return text
    return re.sub(r"\d\.\d{12,}(?:e[+-]\d+)?", lambda found: f"{float(found[0]):.11g}", text)
