"""Intervals, all pairs and clustered posteriors by other programs beside ours, on the same data.

``python -m benchmarks.comparison_peers``. A leaderboard of 50 models × 60 tasks × 200 items with
known truth, and 40 evals of 500 clusters of 10 items. Errors: of intervals their score [GR07], and
of P(better) its Brier score, on the tasks that all did, which are too few for coverage; of
clustered limits, the largest distance from those of a sum over a fine grid.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
from scipy import integrate, interpolate, special

from benchmarks.peers import OURS, Job, Program, digits, keep, side_by_side

SEED = 20261121
MODELS, TASKS, ITEMS = 50, 60, 200
JUDGED = 2
"""Tasks that all did."""
EVALS, CLUSTERS, EACH = 40, 500, 10
SLOW = 15.0
"""CPU seconds; a second run of the slowest would take minutes."""

LEADERBOARD = tuple(
    Program(name, requirement, ("leaderboard", str(tasks)), tasks / TASKS)
    for name, requirement, tasks in (
        (OURS, None, TASKS),
        ("bayes_evals", "evalstats==0.3.3", JUDGED),
        ("evalstats", "evalstats==0.3.3", TASKS // 10),
        ("statsmodels", "statsmodels==0.15.0", TASKS),
    )
)
CLUSTERED = tuple(
    Program(name, requirement, ("clustered", str(evals)), evals / EVALS)
    for name, requirement, evals in ((OURS, None, EVALS), ("bayes_evals's way", None, 4))
)
"""The clustered posterior of bayes_evals is an example, of which no package has a function."""


def main() -> None:
    """Do both jobs by all; keep the figures."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for job, programs, draw, judge in (
            ("3,000 intervals, 73,500 pairs", LEADERBOARD, draw_leaderboard, judge_leaderboard),
            ("40 posteriors of 500 clusters", CLUSTERED, draw_clustered, judge_clustered),
        ):
            errors = partial(judge, draw(folder))
            rows += side_by_side(Job(job, "comparison_fits", folder, errors, slow=SLOW), programs)
    keep("comparison_peers", rows, models=MODELS, tasks=TASKS, items=ITEMS, judged_tasks=JUDGED)


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


def judge_leaderboard(truth: np.ndarray, found: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Errors on the tasks that all did."""
    true = truth[:JUDGED]
    low, high = np.moveaxis(found["limits"][:JUDGED], 2, 0)
    missed = np.maximum(low - true, 0) + np.maximum(true - high, 0)
    row = {"interval_score": round(float(np.mean(high - low + missed * 2 / 0.05)), 4)}
    if "better" in found:
        i, j = np.triu_indices(MODELS, 1)
        better = found["better"][:JUDGED, i, j]
        row["brier"] = round(float(np.mean((better - (true[:, j] > true[:, i])) ** 2)), 4)
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


def judge_clustered(truth: np.ndarray, found: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Largest distance of a limit."""
    return {"largest_error": digits(float(np.abs(found["limits"][: len(truth)] - truth).max()))}


if __name__ == "__main__":
    main()
