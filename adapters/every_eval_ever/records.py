"""Instances of the shared schema, one line for each take of an item."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.adapters.every_eval_ever.instances import CLUSTER, EPOCH, SCORE, WEIGHT
from evalstats_plugin.adapters.every_eval_ever.layout import WRITTEN
from evalstats_plugin.responses import Responses


def instance_lines(r: Responses, evaluation_id: str, model_id: str, result_id: str) -> bytes:
    """Return the instances of one result.

    Responses know no texts, so inputs and outputs are empty. Takes that were not scored are left
    out where their item has others; else the item's first stands for it, marked as an error.
    """
    same = {
        "schema_version": WRITTEN,
        "evaluation_id": evaluation_id,
        "model_id": model_id,
        "evaluation_name": r.task,
        "evaluation_result_id": result_id,
    }
    items, epochs = np.nonzero(_written(r.scores))
    scores = r.scores[items, epochs]
    hashes = None if r.item_hashes is None else r.item_hashes.astype(str)
    clusters = None if r.clusters is None else r.clusters.astype(str)
    lines: list[str] = []
    for i, epoch, score in zip(items.tolist(), epochs.tolist(), scores.tolist(), strict=True):
        metadata: dict[str, str] = {}
        if r.scores.shape[1] > 1:
            metadata[EPOCH] = str(epoch + 1)
        if clusters is not None:
            metadata[CLUSTER] = str(clusters[i])
        if r.weights is not None:
            metadata[WEIGHT] = repr(float(r.weights[i]))
        record: dict[str, Any] = {
            **same,
            "sample_id": str(r.item_ids[i]),
            "sample_hash": None if hashes is None else str(hashes[i]),
            "interaction_type": "single_turn",
            "input": {"raw": "", "reference": []},
            "output": {"raw": []},
            "answer_attribution": [],
            "evaluation": {"score": score, "is_correct": score == _best(r)},
        }
        if not math.isfinite(score):
            metadata[SCORE] = repr(score)
            record["evaluation"] = {"score": 0.0, "is_correct": False}
            record["error"] = f"no finite score ({score!r})"
        record["metadata"] = metadata or None
        lines.append(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n")
    return "".join(lines).encode()


def _written(scores: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which takes are written, shape (M, R)."""
    there = ~np.isnan(scores)
    if scores.shape[1]:
        there[~there.any(axis=1), 0] = True
    return there


def _best(r: Responses) -> float:
    """Return the score of a right answer."""
    low, high = r.bounds or (0.0, 1.0)
    return low if r.higher_is_better is False else high
