"""All pairs of a leaderboard: 50 models × 60 tasks × 200 items, and 3,000 clustered intervals."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path
from time import process_time

import numpy as np

from evalstats_plugin import Measure, Responses, Source, compare, intervals

MODELS, TASKS, ITEMS, CLUSTERS = 50, 60, 200, 20
REPEATS = 3


def run() -> dict[str, float]:
    """Return CPU seconds after reading, SciPy loaded, and what memory the process took."""
    found = _responses()
    small = [r for r in found if r.task in {"task_0", "task_1"}]
    intervals(small)
    compare(small)
    both = _least(lambda: (intervals(found), compare(found)))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "pairs": TASKS * MODELS * (MODELS - 1) // 2,
        "intervals_and_pairs_seconds": both,
        "peak_mb": round(peak),
        "clustered_seconds": _least(_clustered),
    }


def _least(work: Callable[[], object]) -> float:
    taken: list[float] = []
    for _ in range(REPEATS):
        start = process_time()
        work()
        taken.append(process_time() - start)
    return round(min(taken), 3)


def _responses() -> list[Responses]:
    rng = np.random.default_rng(0)
    ability = rng.normal(size=(MODELS, 1))
    source = Source(path=Path(), harness="bench")
    found: list[Responses] = []
    for t in range(TASKS):
        chance = 1 / (1 + np.exp(rng.normal(size=ITEMS) - ability))
        right = (rng.random((MODELS, ITEMS)) < chance).astype(float)
        found += [
            Responses(
                model=f"model_{i}",
                measure=Measure(task=f"task_{t}", metric="acc"),
                item_ids=np.arange(ITEMS),
                scores=row[:, None],
                source=source,
            )
            for i, row in enumerate(right)
        ]
    return found


def _clustered() -> None:
    from evalstats_plugin.stats import grid_posteriors

    rng = np.random.default_rng(1)
    each = ITEMS // CLUSTERS
    of_cluster = rng.beta(2, 1, size=(MODELS * TASKS, CLUSTERS))
    right = rng.binomial(each, of_cluster)
    grid_posteriors.beta_binomial(
        right, np.full_like(right, each), confidence_level=0.95, prior="uniform-icc"
    )
