"""All intervals of a leaderboard: 50 models × 60 tasks × 200 items."""

from __future__ import annotations

from pathlib import Path
from time import process_time

import numpy as np

from evalstats_plugin import Measure, Responses, Source, intervals

MODELS, TASKS, ITEMS = 50, 60, 200
REPEATS = 3


def run() -> dict[str, float]:
    """Return CPU seconds for 0/1 scores, for quarters, and for continuous scores."""
    rng = np.random.default_rng(0)
    shape = (MODELS * TASKS, ITEMS)
    kinds = {
        "binary": rng.integers(0, 2, shape).astype(float),
        "quarters": rng.integers(0, 5, shape) / 4,
        "continuous": rng.beta(2, 1, shape),
    }
    return {f"{name}_seconds": round(seconds(scores), 3) for name, scores in kinds.items()}


def seconds(scores: np.ndarray) -> float:
    """Return the least CPU time of a few runs, after reading, SciPy loaded."""
    source = Source(path=Path(), harness="bench")
    ids = np.arange(ITEMS)
    responses = [
        Responses(
            model=f"model_{i // TASKS}",
            measure=Measure(task=f"task_{i % TASKS}", metric="acc"),
            item_ids=ids,
            scores=row[:, None],
            source=source,
        )
        for i, row in enumerate(scores)
    ]
    intervals(responses[:2])
    taken: list[float] = []
    for _ in range(REPEATS):
        start = process_time()
        intervals(responses)
        taken.append(process_time() - start)
    return min(taken)
