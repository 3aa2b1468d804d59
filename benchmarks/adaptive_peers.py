"""Other programs for adaptive tests beside ours, on models of known ability.

``python -m benchmarks.adaptive_peers``. Banks of 1,000, 10,000 and 50,000 items of the 2PL model,
difficulties and 20 abilities N(0, 1), log discriminations N(0, 0.4²). Every model is asked 100
items and answers alike whoever asks; the CPU seconds are those of all tests, one after another.
Ours chooses items by information, as others do; `design` is its default, which draws them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers import OURS, Job, Program, digits, keep, side_by_side

SEED = 20261121
SIZES = (1_000, 10_000, 50_000)
ITEMS = 100
"""Of a test."""
MODELS = 20
CATSIM = "catsim==0.21.0"
SLOW = ("catsim", "catsim, Urry's rule")
FEWER = 2
"""Models of adaptivetesting, which looks at one item after the other: on the smallest bank."""
FEW = 5
"""Models of catsim by its slow selectors on the largest bank."""


def main() -> None:
    """Test by all, at every size; keep the figures."""
    rows: list[dict[str, Any]] = []
    for size in SIZES:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            truth = draw(folder, size)

            def judge(found: Mapping[str, np.ndarray], truth: np.ndarray = truth) -> dict[str, Any]:
                known = truth[: len(found["ability"])]
                inside = (found["low"] <= known) & (known <= found["high"])
                away = found["ability"] - known
                return {
                    "models": len(known),
                    "rmse": digits(float(np.sqrt(np.mean(away**2)))),
                    "coverage": round(float(inside.mean()), 3),
                    "width": digits(float(np.mean(found["high"] - found["low"]))),
                }

            job = Job(f"{size:,} items", "adaptive_fits", folder, judge)
            rows += side_by_side(job, programs(size))
    for row in rows:
        if "cpu_seconds" in row:
            row["ms_per_answer"] = digits(1000 * row["cpu_seconds"]["median"] / ITEMS / MODELS)
    keep("adaptive_peers", rows, items=ITEMS, models=MODELS)


def programs(size: int) -> list[Program]:
    """Programs for a bank of so many items, ours first."""
    whole = (str(ITEMS), str(MODELS))
    slow = (str(ITEMS), str(FEW)) if size == SIZES[-1] else whole
    found = [
        Program(OURS, None, whole),
        Program(f"{OURS}, design", None, whole),
        *(Program(name, CATSIM, slow, int(slow[1]) / MODELS) for name in SLOW),
        Program("catsim, a-stratified", CATSIM, whole),
    ]
    if size == SIZES[0]:
        name, part = "adaptivetesting", (str(ITEMS), str(FEWER))
        found.append(Program(name, f"{name}==1.1.4", part, FEWER / MODELS))
    return found


def draw(folder: Path, size: int) -> np.ndarray:
    """Draw a bank and the answers to all of it; return the abilities."""
    rng = np.random.default_rng(SEED)
    ability = rng.standard_normal(MODELS)
    a, b = np.exp(0.4 * rng.standard_normal(size)), rng.standard_normal(size)
    chance = 1 / (1 + np.exp(-a * (ability[:, None] - b)))
    np.savez(folder / "data.npz", a=a, b=b, right=rng.random(chance.shape) < chance)
    return ability


if __name__ == "__main__":
    main()
