"""How time and memory grow with models N, items M, tasks T and resamples B.

``python -m benchmarks.growth [JOB…]``: all series, or those of the jobs named (of the others the
figures that are there stay). Every size is measured in a process of its own on one thread; memory
is what was held at the worst moment, data and results included, beyond a process that did the same
on a little. The exponent is the slope of log time over log size on the upper half of the sizes.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks.big import FIGURES as BIG
from benchmarks.peers import FITS, RESULTS, digits, keep

CPU_LIMIT = 40
"""Seconds: a size that takes longer, data included, is left out, and so are those after it."""
LINEAR = 1.1
"""Exponent that counts as in proportion: caches and constants leave no exact one."""
SQUARE = 2.1
CUBE = 3.1
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

MODELS = (1, 10, 100, 1_000, 5_000)
ITEMS = (1, 10, 100, 1_000, 10_000, 50_000)
TASKS = (1, 10, 100, 1_000)
RESAMPLES = (99, 999, 9_999, 99_999)


class Series(NamedTuple):
    """One job at growing sizes."""

    shown: str
    """In tables."""
    job: str
    """In ``fits/growth_fits.py``."""
    grows: str
    """What grows."""
    sizes: tuple[tuple[int, ...], ...]
    by: tuple[int, ...]
    """Places in a size of the numbers that grow."""
    bound: float = LINEAR
    """Of the exponent."""


def along(
    shown: str, job: str, grows: str, values: Sequence[int], size: tuple[int, ...], **more: Any
) -> Series:
    """Series in which one number of the size grows: the 0 of `size`."""
    place = size.index(0)
    sizes = tuple((*size[:place], value, *size[place + 1 :]) for value in values)
    return Series(shown, job, grows, sizes, (place,), **more)


SERIES = (
    along("read an lm-eval log", "read", "items", ITEMS, (0,)),
    along("join 60 tasks of 10 items", "join", "models", MODELS[:-1], (0, 60, 10)),
    along("intervals, 0/1, 100 items", "intervals", "models", MODELS, (0, 1, 100)),
    along("intervals, 0/1, 10 models", "intervals", "items", ITEMS, (10, 1, 0)),
    along("intervals, 0/1, 10 models × 50 items", "intervals", "tasks", TASKS, (10, 0, 50)),
    Series(
        "intervals, 0/1", "intervals", "models × items",
        ((1, 1, 1), (10, 1, 100), (100, 1, 1_000), (1_000, 1, 5_000), (2_000, 1, 10_000)), (0, 2),
    ),
    along("intervals, partial credit, 100 items", "intervals_partial", "models", MODELS,
          (0, 1, 100)),
    along("intervals, partial credit, 10 models", "intervals_partial", "items", ITEMS,
          (10, 1, 0)),
    along("compare with a baseline, 0/1, 100 items", "baseline", "models", MODELS, (0, 1, 100)),
    along("compare with a baseline, 0/1, 10 models", "baseline", "items", ITEMS, (10, 1, 0)),
    along("compare with a baseline, 0/1, 10 models × 50 items", "baseline", "tasks", TASKS,
          (10, 0, 50)),
    along("compare with a baseline, partial credit, 100 items", "baseline_partial", "models",
          MODELS[:-1], (0, 1, 100)),
    along("compare with a baseline, partial credit, 10 models", "baseline_partial", "items", ITEMS,
          (10, 1, 0)),
    along("compare all pairs, 0/1, 100 items", "pairs", "models", (1, 10, 30, 100, 300, 1_000),
          (0, 1, 100), bound=SQUARE),
    along("compare all pairs, 0/1, 20 models", "pairs", "items", ITEMS, (20, 1, 0)),
    along("compare all pairs, partial credit, 100 items", "pairs_partial", "models",
          (1, 3, 10, 30, 100), (0, 1, 100), bound=SQUARE),
    along("bootstrap-t, 1,000 items", "bootstrap_t", "resamples", RESAMPLES, (1_000, 0)),
    along("bootstrap-t, 9,999 resamples", "bootstrap_t", "items", ITEMS[:-1], (0, 9_999)),
    along("BCa, 1,000 items", "bca", "resamples", RESAMPLES, (1_000, 0)),
    along("max-T of 190 pairs, 100 items", "max_t", "resamples", RESAMPLES, (20, 100, 0)),
    along("posterior of a mean in clusters", "clustered", "clusters", ITEMS, (0,)),
    along("fit 2PL, 500 items", "fit", "models", MODELS, (0, 500), bound=SQUARE),
    along("fit 2PL, 20 models", "fit", "items", ITEMS, (20, 0)),
    along("fit 2PL, 200 models", "fit", "items", (10, 100, 1_000, 10_000), (200, 0)),
    Series(
        "fit 2PL", "fit", "models × items",
        ((1, 1), (10, 10), (100, 100), (300, 1_000), (1_000, 3_000), (4_000, 5_000)), (0, 1),
    ),
    Series(
        "fit 2PL from disk", "fit_store", "models × items",
        ((100, 100), (300, 1_000), (1_000, 3_000), (2_000, 10_000)), (0, 1),
    ),
    along("score a model on items known", "score", "items", ITEMS, (1, 0)),
    Series(
        "score models on items known", "score", "models × items",
        ((1, 1), (10, 10), (100, 100), (1_000, 1_000), (2_000, 5_000)), (0, 1),
    ),
    along("Bradley–Terry, 100 players", "rate", "contests", (1_000, 10_000, 100_000, 1_000_000),
          (100, 0)),
    along("Bradley–Terry, 100,000 contests", "rate", "players", (10, 30, 100, 300, 1_000, 2_000),
          (0, 100_000), bound=CUBE),
    along("rank, 100 players", "rank", "contests", (1_000, 10_000, 100_000, 1_000_000), (100, 0)),
    along("rank, 100,000 contests", "rank", "players", (2, 10, 30, 100, 300), (0, 100_000),
          bound=SQUARE),
    along("hierarchical, 10 tasks of 50 items", "hierarchical", "models", (1, 3, 30, 300),
          (0, 10, 50)),
    along("hierarchical, 10 models, 50 items", "hierarchical", "tasks", (1, 3, 30, 100),
          (10, 0, 50)),
    along("hierarchical, 10 models × 10 tasks", "hierarchical", "items", (1, 50, 5_000),
          (10, 10, 0)),
    along("adaptive test of 20 items", "adaptive", "bank", ITEMS, (0,)),
    along("simulated adaptive tests of 50 models", "simulate", "bank", ITEMS, (0, 50)),
    along("simulated adaptive tests, bank of 1,000", "simulate", "tests", (4, 10, 100, 1_000),
          (1_000, 0)),
)  # fmt: skip


def main(jobs: Sequence[str]) -> None:
    """Run, print, keep."""
    path = RESULTS / "growth.json"
    known = {row["series"]: row for row in json.loads(path.read_text())["runs"]} if jobs else {}
    for series in SERIES:
        if not jobs or series.job in jobs:
            known[series.shown] = measured(series)
            rows = [known[each.shown] for each in SERIES if each.shown in known]
            keep("growth", rows, quoted=quoted())


def measured(series: Series) -> dict[str, Any]:
    """Return the points of a series, and how it grows."""
    sizes = ["x".join(map(str, size)) for size in series.sizes]
    done = subprocess.run(
        [sys.executable, FITS / "growth_fits.py", series.job, str(CPU_LIMIT), *sizes],
        capture_output=True, text=True, check=False, env={**os.environ, **ONE_THREAD},
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(done.stderr)
    points = [json.loads(line) for line in done.stdout.splitlines()]
    for point in points:
        point["amount"] = math.prod(point["size"][place] for place in series.by)
        for name in {"cpu_seconds", "peak_mb"} & point.keys():
            point[name] = digits(point[name])
    row = {
        "series": series.shown,
        "job": series.job,
        "grows": series.grows,
        "exponent": exponent(points, "cpu_seconds"),
        "memory_exponent": exponent(points, "peak_mb"),
        "bound": series.bound,
        "points": points,
    }
    print(json.dumps(row), flush=True)
    return row


def exponent(points: Sequence[dict[str, Any]], what: str) -> float | None:
    """Slope of log time, or memory, over log size on the upper half of the sizes."""
    there = [(point["amount"], point[what]) for point in points if point.get(what)]
    upper = there[-max(math.ceil(len(there) / 2), 2) :]
    if len(upper) < 2:
        return None
    x, y = np.log(np.array(upper, dtype=np.float64)).T
    return round(float(np.polyfit(x, y, 1)[0]), 2)


def quoted() -> dict[str, Any]:
    """Return the largest size of all, as ``python -m benchmarks.big`` left it."""
    big = json.loads(BIG.read_text())
    names = ("answers", "fit_seconds", "intervals_seconds", "steps", "step_seconds", "peak_mb")
    return {name: big[name] for name in names}


if __name__ == "__main__":
    main(sys.argv[1:])
