"""Intervals, all pairs and clustered posteriors by other programs beside ours, on the same data.

``python -m benchmarks.comparison_peers``. A leaderboard of 50 models × 60 tasks × 200 items with
known truth, and 40 evals of 500 clusters of 10 items. Every program runs in a process of its own on
one thread, ours in this environment, the others in one of their own (`.venv-bench`). Errors: the
interval score [GR07] and the Brier score of P(better), on what all did; of clustered limits, the
largest distance from those of a sum over a fine grid.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import integrate, interpolate, special

from benchmarks.ranking import VENV, install

HERE = Path(__file__).parent
FIGURES = HERE / "comparison_peers.json"
FITS = HERE / "comparison_peer_fits.py"
SEED = 20261121
MODELS, TASKS, ITEMS = 50, 60, 200
EVALS, CLUSTERS, EACH = 40, 500, 10


class Program(NamedTuple):
    """A program, and how much of each job it does in reasonable time."""

    name: str
    requirement: str | None
    """None for ours."""
    leaderboard: int
    """Tasks."""
    clustered: int
    """Evals; 0 where it cannot."""


PROGRAMS = (
    Program("evalstats-plugin", None, TASKS, EVALS),
    Program("bayes_evals", "evalstats==0.3.3", 2, 4),
    Program("evalstats", "evalstats==0.3.3", 1, 0),
    Program("statsmodels", "statsmodels==0.15.0", 6, 0),
)


def main() -> None:
    """Run all, print each and keep the figures."""
    broken = install(p.requirement for p in PROGRAMS)
    runs: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for job, draw, judge in (
            ("leaderboard", draw_leaderboard, judge_leaderboard),
            ("clustered", draw_clustered, judge_clustered),
        ):
            truth = draw(folder)
            for program in PROGRAMS:
                count = getattr(program, job)
                if not count:
                    continue
                row = {"job": job, "program": program.name}
                row |= fit(program, job, folder, count, broken.get(program.requirement))
                if "seconds" in row:
                    with np.load(folder / "found.npz") as found:
                        row |= judge(truth, dict(found))
                print(json.dumps(row), flush=True)
                runs.append(row)
    figures = {"python": platform.python_version(), "runs": runs}
    FIGURES.write_text(json.dumps(figures, indent=2) + "\n")


def fit(program: Program, job: str, folder: Path, count: int, broken: str | None) -> dict[str, Any]:
    """Return the figures of one job, or why there are none."""
    if broken:
        return {"failed": broken}
    python = VENV / "bin" / "python" if program.requirement else Path(sys.executable)
    command = [python, "-P", FITS, program.name, job, folder, str(count)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    if done.returncode:
        return {"failed": done.stderr.strip().rpartition("\n")[2]}
    return json.loads(done.stdout.splitlines()[-1])


def draw_leaderboard(folder: Path) -> np.ndarray:
    """Draw scores (T, N, M); return the true score of each model on each task, (T, N)."""
    rng = np.random.default_rng(SEED)
    ability, level = rng.normal(size=(MODELS, 1)), rng.normal(size=TASKS)
    at, weight = np.polynomial.hermite_e.hermegauss(61)
    scores, truth = [], []
    for centre in level:
        chance = special.expit(ability - centre - rng.normal(size=ITEMS))
        scores.append(rng.random((MODELS, ITEMS)) < chance)
        truth.append(special.expit(ability - centre - at) @ (weight / weight.sum()))
    np.savez(folder / "data.npz", scores=np.array(scores, dtype=float))
    return np.array(truth)


def judge_leaderboard(truth: np.ndarray, found: dict[str, np.ndarray]) -> dict[str, float]:
    """Errors on the first two tasks, which all but evalstats do."""
    row: dict[str, float] = {}
    if "limits" in found:
        low, high = np.moveaxis(found["limits"][:2], 2, 0)
        true = truth[:2]
        missed = np.maximum(low - true, 0) + np.maximum(true - high, 0)
        row["interval_score"] = round(float(np.mean(high - low + missed * 2 / 0.05)), 4)
    if "better" in found:
        better = found["better"][:2]
        i, j = np.triu_indices(truth.shape[1], 1)
        really = truth[:2][:, j] > truth[:2][:, i]
        row["brier"] = round(float(np.mean((better[:, i, j] - really) ** 2)), 4)
    return row


def draw_clustered(folder: Path) -> np.ndarray:
    """Draw right answers per cluster (E, C); return the exact limits of the first three evals."""
    rng = np.random.default_rng(SEED)
    right = rng.binomial(EACH, rng.beta(2, 1, size=(EVALS, CLUSTERS)))
    size = np.full_like(right, EACH)
    np.savez(folder / "data.npz", right=right, size=size)
    return np.array([exact_limits(x, EACH) for x in right[:3]])


def exact_limits(right: np.ndarray, each: int) -> np.ndarray:
    """Of the posterior of θ under θ ~ U(0, 1), d ~ Gamma(1, 1), by Simpson's rule on a grid."""
    centre = right.sum() / (each * len(right))
    theta = np.linspace(max(centre - 0.1, 1e-6), min(centre + 0.1, 1 - 1e-6), 2001)
    d = np.linspace(0.2, 20, 4001)
    values, counts = np.unique(right, return_counts=True)
    a, b = theta[:, None] * d, (1 - theta[:, None]) * d
    log = -d - special.betaln(a, b) * len(right)
    for value, count in zip(values, counts, strict=True):
        log = log + count * special.betaln(a + value, b + each - value)
    density = integrate.simpson(np.exp(log - log.max()), x=d, axis=1)
    below = integrate.cumulative_simpson(density, x=theta, initial=0)
    rising = np.concatenate([[True], np.diff(below) > 0])
    inverse = interpolate.PchipInterpolator(below[rising] / below[-1], theta[rising])
    return inverse([0.025, 0.975])


def judge_clustered(truth: np.ndarray, found: dict[str, np.ndarray]) -> dict[str, float]:
    """Largest distance of a limit."""
    away = np.abs(found["limits"][: len(truth)] - truth).max()
    return {"largest_error": float(f"{away:.1e}")}


if __name__ == "__main__":
    main()
