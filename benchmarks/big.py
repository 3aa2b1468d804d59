"""``python -m benchmarks.big``: 5,000 models × 50,000 items, 250 million answers, fitted from disk.

2PL truth: abilities and difficulties are N(0, 1), log discriminations N(0, 0.3²). The store lies in
a temporary folder; reading it once and fitting it are measured in a process of their own, in CPU
seconds of one thread.
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

import numpy as np

from evalstats_plugin import ResponseMatrix, write_store

FIGURES = Path(__file__).parent / "big.json"
MODELS, ITEMS, BLOCK = 5_000, 50_000, 1_000
SEED = 20261121

_RUN = """
import json, sys, time
from statistics import median
import numpy as np
import evalstats_plugin as es
from evalstats_plugin.irt import mml

folder = sys.argv[1]
store = es.ResponseStore(f"{folder}/store.parquet")
passes, steps = [], []
for _ in range(3):
    start = time.process_time()
    for part in store.slices():
        store.codes(part)
    passes.append(time.process_time() - start)
plain = mml._Fit.step

def timed(self, point):
    start = time.process_time()
    found = plain(self, point)
    steps.append(time.process_time() - start)
    return found

mml._Fit.step = timed
start = time.process_time()
fit = es.fit_irt(store, "2pl", device="cpu")
of_fit = time.process_time() - start
start = time.process_time()
rows = es.intervals(store)
of_intervals = time.process_time() - start
with open("/proc/self/status") as status:
    peak = next(line.split()[1] for line in status if line.startswith("VmHWM"))
with np.load(f"{folder}/truth.npz") as truth:
    close = float(np.corrcoef(truth["ability"], fit.ability)[0, 1])
    off = float(np.sqrt(np.mean((truth["slope"] - fit.discrimination) ** 2)))
print(json.dumps({
    "pass_seconds": round(median(passes), 2),
    "step_seconds": round(median(steps), 2),
    "step_in_passes": round(median(steps) / median(passes), 1),
    "steps": fit.diagnostics["iterations"],
    "fit_seconds": round(of_fit),
    "intervals_seconds": round(of_intervals, 1),
    "peak_mb": round(int(peak) / 1024),
    "correlation_of_abilities": round(close, 5),
    "rmse_discrimination": round(off, 4),
}))
"""


def main() -> None:
    """Draw, fit, keep the figures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rng = np.random.default_rng(SEED)
        ability, difficulty = rng.normal(size=MODELS), rng.normal(size=ITEMS)
        slope = np.exp(rng.normal(0, 0.3, ITEMS))
        np.savez(folder / "truth.npz", ability=ability, slope=slope)
        write_store(folder / "store.parquet", drawn(rng, ability, difficulty, slope))
        size = (folder / "store.parquet").stat().st_size
        done = subprocess.run(
            [sys.executable, "-c", _RUN, folder], capture_output=True, text=True, check=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
    figures = {
        "python": platform.python_version(),
        "answers": MODELS * ITEMS,
        "store_mb": round(size / 1e6),
        **json.loads(done.stdout.splitlines()[-1]),
    }
    print(json.dumps(figures, indent=2))
    FIGURES.write_text(json.dumps(figures, indent=2) + "\n")


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
    main()
