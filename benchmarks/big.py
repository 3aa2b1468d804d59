"""``python -m benchmarks.big``: 5,000 models × 50,000 items, 250 million answers, left on disk.

2PL truth: abilities and difficulties are N(0, 1), log discriminations N(0, 0.3²). The store lies in
a temporary folder; reading it once, fitting it and comparing 4,999 models with one are measured in
a process of their own, in CPU seconds of one thread; then the same with a fifth of the answers
missing. ``python -m benchmarks.big 1000 10000`` tries it on fewer and keeps no figures.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from evalstats_plugin import ResponseMatrix
from evalstats_plugin.data import write_store

FIGURES = Path(__file__).parent / "results" / "big.json"
MODELS, ITEMS, BLOCK = 5_000, 50_000, 1_000
MISSING = 0.2
SEED = 20261121

_RUN = """
import json, sys, time
from statistics import median
import numpy as np
import evalstats_plugin as es
from evalstats_plugin.irt.estimators import mml

folder, name = sys.argv[1:]
store = es.ResponseStore(f"{folder}/{name}.parquet")

def seconds(job):
    start = time.process_time()
    found = job()
    return time.process_time() - start, found

def read():
    for part in store.slices():
        store.codes(part)

of_pass = median(seconds(read)[0] for _ in range(3))
steps, plain = [], mml._Fit.step

def timed(self, point):
    taken, found = seconds(lambda: plain(self, point))
    steps.append(taken)
    return found

mml._Fit.step = timed
of_fit, fit = seconds(lambda: es.fit_irt(store, "2pl", device="cpu"))
of_step = median(steps)
of_comparison, rows = seconds(lambda: es.compare(store, baseline=store.models[0]))
assert len(rows) == len(store.models) - 1
more = {}
if name == "store":
    more["intervals_seconds"] = round(seconds(lambda: es.intervals(store))[0], 1)
with open("/proc/self/status") as status:
    peak = next(line.split()[1] for line in status if line.startswith("VmHWM"))
with np.load(f"{folder}/truth.npz") as truth:
    close = float(np.corrcoef(truth["ability"], fit.ability)[0, 1])
    off = float(np.sqrt(np.mean((truth["slope"] - fit.discrimination) ** 2)))
print(json.dumps({
    "pass_seconds": round(of_pass, 2),
    "step_seconds": round(of_step, 2),
    "step_in_passes": round(of_step / of_pass, 1),
    "steps": fit.diagnostics["iterations"],
    "fit_seconds": round(of_fit),
    "compare_seconds": round(of_comparison, 1),
    **more,
    "peak_mb": round(int(peak) / 1024),
    "correlation_of_abilities": round(close, 5),
    "rmse_discrimination": round(off, 4),
}))
"""


def main(n_models: int = MODELS, n_items: int = ITEMS) -> None:
    """Draw, fit, compare; keep the figures of the full size."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rng = np.random.default_rng(SEED)
        ability, difficulty = rng.normal(size=n_models), rng.normal(size=n_items)
        slope = np.exp(rng.normal(0, 0.3, n_items))
        np.savez(folder / "truth.npz", ability=ability, slope=slope)
        measured: dict[str, dict[str, Any]] = {}
        for store, share in (("store", 0.0), ("missing", MISSING)):
            path = folder / f"{store}.parquet"
            write_store(path, with_holes(rng, drawn(rng, ability, difficulty, slope), share))
            done = subprocess.run(
                [sys.executable, "-c", _RUN, folder, store], stdout=subprocess.PIPE, text=True,
                check=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
            )  # fmt: skip
            size = {"store_mb": round(path.stat().st_size / 1e6)}
            measured[store] = {**size, **json.loads(done.stdout.splitlines()[-1])}
    figures = {
        "python": platform.python_version(),
        "answers": n_models * n_items,
        **measured["store"],
        "missing": {"share": MISSING, **measured["missing"]},
    }
    print(json.dumps(figures, indent=2))
    if (n_models, n_items) == (MODELS, ITEMS):
        FIGURES.write_text(json.dumps(figures, indent=2) + "\n")


def with_holes(
    rng: np.random.Generator, blocks: Iterator[ResponseMatrix], share: float
) -> Iterator[ResponseMatrix]:
    """Take out a share of the answers, at random."""
    for block in blocks:
        if share:
            block.scores[rng.random(block.scores.shape) < share] = np.nan
        yield block


def drawn(
    rng: np.random.Generator, ability: np.ndarray, difficulty: np.ndarray, slope: np.ndarray
) -> Iterator[ResponseMatrix]:
    """Answers, some items at a time."""
    names = tuple(f"model_{i}" for i in range(len(ability)))
    for start in range(0, len(slope), BLOCK):
        part = slice(start, start + BLOCK)
        chance = 1 / (1 + np.exp(-slope[part] * (ability[:, None] - difficulty[part])))
        yield ResponseMatrix(
            scores=(rng.random(chance.shape) < chance).astype(float)[:, :, None],
            models=names,
            item_ids=np.arange(start, start + chance.shape[1]).astype(str),
            tasks=np.full(chance.shape[1], "task"),
            metrics=np.full(chance.shape[1], "acc"),
        )


if __name__ == "__main__":
    main(*(int(size) for size in sys.argv[1:]))
