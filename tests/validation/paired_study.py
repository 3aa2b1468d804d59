"""Errors, coverage and power of comparisons of two models, on designs drawn at random.

    PYTHONPATH=. python tests/validation/paired_study.py --workers 16 --seconds 450 --output FILE

Needs NumPy and SciPy alone. Runs passes over all cells, which are designs of `random_designs` by
numbers of items; a pass adds `NULL` comparisons of equal models to each cell and `OTHER` of each
other truth. FILE is rewritten as results come, and read again by a later run, which goes on where
it ended. A run cut short has whole designs, in the order in which they were drawn.

Beside the engine: Student's t; studentised sign flips; the default of 0.2.0 (`earlier_default`);
the engine's formula as written on paper, solved by bisection; and as controls a t that takes half
of its standard error (it must find too much) and one that takes twice (it must find nothing).
"""

import argparse
import json
import multiprocessing
import os
import sys
import time
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from functools import cache
from itertools import count
from pathlib import Path

import earlier_default
import numpy as np
import random_designs
import study
from scipy import special, stats

from evalstats_plugin.stats.pairs.differences import Differences

SIZES = (300, 6, 100, 10, 50, 20)
DESIGNS, NULL, OTHER, FLIPS = 200, 10_000, 2000, 999
Z = float(stats.norm.ppf(0.975))
ONCE = ("0.2.0", "formula")
"""Tests of the first pass alone: they cost much, or follow from the engine."""

METHODS = ("engine", "t", "flips", "half of t", "twice t", *ONCE)


def cell(seed, n, part):
    """Counts of one more pass of one cell, by truth and test."""
    made = random_designs.design(seed)
    streams = study.Streams("paired differences of random designs")
    return {
        truth: _counts(made, n, truth, streams(seed, n, truth, part), first=part == 0)
        for truth in random_designs.TRUTHS
    }


def _counts(made, n, truth, rng, *, first):
    a, b = made.scores(truth, n)
    x = b - a
    mean = 0.0 if truth == "null" else float(x.mean())
    items = rng.integers(0, len(x), (NULL if truth == "null" else OTHER, n))
    a, b, x = a[items], b[items], x[items]
    if truth == "weak":
        x, mean = x - mean, 0.0
    counts = {}
    for name in METHODS if first else METHODS[: -len(ONCE)]:
        if name == "0.2.0" and truth == "weak":
            continue
        sums = {key: float(np.sum(each)) for key, each in outcomes(name, a, b, x, mean).items()}
        counts[name] = {"runs": len(x)} | sums
    return counts


def outcomes(name, a, b, x, mean):
    """Whether each comparison misses the mean, and finds a difference; widths and scores."""
    return _of_engine(x, mean) if name == "engine" else _of_others(name, a, b, x, mean)


def _of_engine(x, mean):
    pairs = Differences(x, span=1.0)
    if mean == 0:
        w = pairs.deviate
        return {"misses": np.abs(w) >= Z, "above": w >= Z}
    low, high = pairs.limits(Z)
    row = {"finds": np.abs(pairs.deviate) >= Z, "above": low > mean + 1e-12}
    return row | _of_limits(low, high, mean)


def _of_limits(low, high, mean):
    out = np.maximum(low - mean, 0) + np.maximum(mean - high, 0)
    return {
        "misses": ~study.holds(low, high, mean), "width": high - low, "score": high - low + 40 * out
    }  # fmt: skip


def _of_others(name, a, b, x, mean):
    if name == "0.2.0":
        if mean == 0:
            return {"misses": earlier_default.p_values(a, b) <= 0.05}
        low, high = earlier_default.limits(a, b)
        return {"finds": (low > 0) | (high < 0)} | _of_limits(low, high, mean)
    if name in ("flips", "formula"):
        rejects = flips if name == "flips" else by_formula
        row = {"misses": rejects(x, mean)}
        return row if mean == 0 else row | {"finds": rejects(x, 0.0)}
    center, error = x.mean(axis=1), x.std(axis=1, ddof=1) / np.sqrt(x.shape[1])
    factor = {"t": 1.0, "half of t": 0.5, "twice t": 2.0}[name]
    half = stats.t.ppf(0.975, x.shape[1] - 1) * error * factor + 1e-12
    if mean == 0:
        return {"misses": np.abs(center) > half}
    return {"finds": np.abs(center) > half} | _of_limits(center - half, center + half, mean)


@cache
def _signs(n):
    if n <= 10:
        # All there are, one of each two that mirror each other.
        return (1.0 - 2 * (np.arange(2 ** (n - 1)) >> np.arange(n)[:, None] & 1)).astype(np.float32)
    rng = study.Streams("signs")(n)
    return rng.choice(np.array([-1, 1], dtype=np.float32), size=(n, FLIPS))


def flips(x, at):
    """Whether studentised sign flips reject: of Σx/√Σx², which they leave alone but for the sum."""
    signs = _signs(x.shape[1])
    y = (x - at).astype(np.float32)
    seen = np.abs(y.sum(axis=1)) - 1e-5 * np.sqrt((y * y).sum(axis=1))
    reached = np.empty(len(y))
    for start in range(0, len(y), 250):
        part = slice(start, start + 250)
        reached[part] = (np.abs(y[part] @ signs) >= seen[part, None]).sum(axis=1)
    if x.shape[1] <= 10:
        return reached / signs.shape[1] <= 0.05
    return (1 + reached) / (FLIPS + 1) <= 0.05


def by_formula(x, at):
    """Whether P(M ≤ at) or P(M ≥ at) is below .025, M as in `stats.pairs.differences`."""
    y = np.where(np.abs(x) < 1e-9, 0.0, x)
    size = np.abs(y).max(axis=1)
    y, at = y / np.where(size > 0, size, 1.0)[:, None], at / np.where(size > 0, size, 1.0)
    cubes = (np.abs(y) ** 3).sum(axis=1)
    far = np.sqrt((np.abs(y) ** 5).sum(axis=1) / np.where(cubes > 0, cubes, 1.0))
    far = np.where(size > 0, far, 1.0)
    y = y - at[:, None]
    low = 1 / np.minimum(y.min(axis=1), -far)
    high = 1 / np.maximum(y.max(axis=1), far)
    for _ in range(45):
        t = (low + high) / 2
        slope = (y / (1 - t[:, None] * y)).sum(axis=1) + t * far**2 / (1 - (t * far) ** 2)
        low, high = np.where(slope > 0, low, t), np.where(slope > 0, t, high)
    e = 1 / (1 - t[:, None] * y)
    k = np.log(e).sum(axis=1) - 0.5 * np.log(1 - (t * far) ** 2)
    k2 = ((y * e) ** 2).sum(axis=1)
    k2 += far**2 * (1 + (t * far) ** 2) / (1 - (t * far) ** 2) ** 2
    v = t * np.sqrt(k2)
    r = np.sign(t) * np.sqrt(np.maximum(-2 * k, 0))
    with np.errstate(all="ignore"):
        w = np.where(np.abs(v) < 0.01, v, r + np.log(v / r) / r)
    return special.ndtr(-np.abs(w)) <= 0.025


def merge(total, more):
    """Add the counts of a pass to those of a cell."""
    for truth, tests in more.items():
        of_truth = total["truths"].setdefault(truth, {})
        for name, row in tests.items():
            sums = of_truth.setdefault(name, {})
            for key, value in row.items():
                sums[key] = sums.get(key, 0) + value
    total["passes"] += 1


def run(file, *, workers, seconds=None, passes=None, designs=DESIGNS):
    """Add passes to the cells of a file until time, or their number, is up."""
    # Of the processes that are started below.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    start, written = time.monotonic(), time.monotonic()
    cells = read(file)
    for seed in range(designs):
        for n in SIZES:
            kind = random_designs.design(seed).kind
            cells.setdefault((seed, n), {"design": seed, "kind": kind, "n": n, "passes": 0,
                                         "truths": {}})  # fmt: skip
    ahead = ((key, part) for part in count() for key in cells if cells[key]["passes"] <= part)
    pending = {}
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        while True:
            while len(pending) < 2 * workers:
                if seconds is not None and time.monotonic() - start > seconds:
                    break
                key, part = next(ahead)
                if part == passes:
                    break
                pending[pool.submit(cell, *key, part)] = key
            if not pending:
                break
            done, _ = wait(pending, return_when=FIRST_COMPLETED)
            for future in done:
                merge(cells[pending.pop(future)], future.result())
            if time.monotonic() - written > 15:
                write(file, cells)
                written = time.monotonic()
    write(file, cells)
    return cells


def read(file):
    """Read the cells of a file, none where there is none."""
    if not Path(file).exists():
        return {}
    rows = json.loads(Path(file).read_text("utf-8"))
    return {(row["design"], row["n"]): row for row in rows}


def write(file, cells):
    """Write cells that have results, a line each, in the place of an earlier file."""
    rows = [json.dumps(study.rounded(row, 6)) for row in cells.values() if row["passes"]]
    draft = Path(f"{file}.new")
    draft.write_text("[\n" + ",\n".join(rows) + "\n]\n", encoding="utf-8")
    draft.replace(file)


def main():
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--passes", type=int)
    parser.add_argument("--designs", type=int, default=DESIGNS)
    parser.add_argument("--output", required=True)
    asked = parser.parse_args()
    if asked.seconds is None and asked.passes is None:
        parser.error("give --seconds, --passes or both")
    cells = run(asked.output, workers=asked.workers, seconds=asked.seconds, passes=asked.passes,
                designs=asked.designs)  # fmt: skip
    passes = [row["passes"] for row in cells.values()]
    sys.stdout.write(f"{len(passes)} cells, {min(passes)} to {max(passes)} passes each\n")


if __name__ == "__main__":
    main()
