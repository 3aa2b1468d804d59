"""What harnesses print for a score beside our intervals: error and time.

``python -m benchmarks.harness_errors``. Right or wrong answers to 15, 50 and 200 items, a
leaderboard of 50 models × 60 tasks for the clock; the chance of each number of right answers is
known, so that coverage and interval score [GR07] are sums, over chances between 0 and 1, and of
strong models between .9 and 1. F1 and MCC of 50 models on 12 tasks of 200 items: drawn from known
tables; lm-eval's bootstrap draws a thousandth of its samples, and its time is scaled (its error
then varies by 7 %, which costs .002 of coverage). A standard error stands for 1.96 of it to both
sides. Limits beyond what the metric can be are drawn in.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import special

from benchmarks.peers import OURS, Job, Program, keep, side_by_side

SEED = 20261121
LEVEL = 0.95
ITEMS = (15, 50, 200)
MODELS, TASKS = 50, 60
CELLS = MODELS * TASKS
FEW = 150
"""Cells that a bootstrap of means is timed on."""
TASKS_OF_LABELS = 12
ITEMS_OF_LABELS = 200
SAMPLES = 100_000
"""Of lm-eval's bootstrap, as it is by default."""
DRAWN = 100
STRONG = 0.9
SLOW = 10.0

Limits = Mapping[str, NDArray[np.float64]]


def main() -> None:
    """Do all; keep the figures."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for n in ITEMS:
            draw_answers(folder, n)
            job = f"{CELLS:,} accuracies of {n} items"
            rows += side_by_side(
                Job(job, "harness_fits", folder, judge_accuracy, slow=SLOW), ACCURACY
            )
        truth = draw_labels(folder)
        for metric, bounds in (("f1", (0.0, 1.0)), ("mcc", (-1.0, 1.0))):
            job = f"{MODELS * TASKS_OF_LABELS} {metric.upper()} of {ITEMS_OF_LABELS} items"
            judge = partial(judge_labels, truth[metric], bounds)
            rows += side_by_side(
                Job(job, "harness_fits", folder, judge, slow=SLOW), _programs_of_labels(metric)
            )
    keep("harness_errors", rows, bootstrap_samples=SAMPLES, drawn=DRAWN, strong_from=STRONG)


ACCURACY = tuple(
    Program(name, None, ("accuracy", str(cells)), cells / CELLS)
    for name, cells in {
        OURS: CELLS,
        "lm-eval stderr": CELLS,
        "Inspect stderr": CELLS,
        "Inspect ci": CELLS,
        "Inspect ci_wilson": CELLS,
        "Inspect bootstrap_stderr": FEW,
        "Inspect ci, bootstrap": FEW,
    }.items()
)


def _programs_of_labels(metric: str) -> tuple[Program, ...]:
    drawn = Program("lm-eval bootstrap_stderr", None, (metric, str(DRAWN)), DRAWN / SAMPLES)
    return Program(OURS, None, (metric, "0")), drawn


def draw_answers(folder: Path, n: int) -> None:
    """Draw right and wrong answers, and write one cell down for each number of right answers."""
    rng = np.random.default_rng(SEED)
    chance = special.expit(rng.normal(size=(MODELS, 1)) + rng.normal(size=TASKS))
    scores = rng.random((CELLS, n)) < chance.reshape(-1, 1)
    judged = np.arange(n) < np.arange(n + 1)[:, None]
    np.savez(folder / "data.npz", scores=scores.astype(float), judged=judged.astype(float))


def judge_accuracy(found: Limits) -> dict[str, float]:
    """Coverage and interval score, exact but for the grid of chances."""
    low, high = found["limits"].clip(0, 1).T
    count = np.arange(len(low))
    n = len(low) - 1
    chance = ((np.arange(10_000) + 0.5) / 10_000)[:, None]
    log_choose = (
        special.gammaln(n + 1) - special.gammaln(count + 1) - special.gammaln(n - count + 1)
    )
    weight = np.exp(log_choose + special.xlogy(count, chance) + special.xlog1py(n - count, -chance))
    inside, score = ((weight * each).sum(axis=1) for each in _inside_and_score(low, high, chance))
    strong = chance[:, 0] > STRONG
    return {
        "coverage": _rounded(inside),
        "coverage_of_strong": _rounded(inside[strong]),
        "interval_score": _rounded(score),
        "interval_score_of_strong": _rounded(score[strong]),
    }


def draw_labels(folder: Path) -> dict[str, NDArray[np.float64]]:
    """Draw gold and predicted labels; return what F1 and MCC really are, shape (cells,)."""
    rng = np.random.default_rng(SEED)
    positive = np.tile(np.geomspace(0.1, 0.5, TASKS_OF_LABELS), MODELS)
    found, spared = (np.repeat(rng.uniform(0.5, 1, MODELS), TASKS_OF_LABELS) for _ in range(2))
    gold = rng.random((len(positive), ITEMS_OF_LABELS)) < positive[:, None]
    called = np.where(gold, found[:, None], 1 - spared[:, None])
    predicted = rng.random(gold.shape) < called
    np.savez(folder / "data.npz", gold=gold.astype(int), predicted=predicted.astype(int))
    tp, fn = positive * found, positive * (1 - found)
    fp, tn = (1 - positive) * (1 - spared), (1 - positive) * spared
    spread = (tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)
    return {"f1": 2 * tp / (2 * tp + fp + fn), "mcc": (tp * tn - fp * fn) / np.sqrt(spread)}


def judge_labels(
    truth: NDArray[np.float64], bounds: tuple[float, float], found: Limits
) -> dict[str, float]:
    """Coverage, with its standard error, and interval score."""
    inside, score = _inside_and_score(*found["limits"].clip(*bounds).T, truth)
    error = inside.std(ddof=1) / np.sqrt(len(inside))
    return {
        "coverage": _rounded(inside),
        "coverage_std_error": round(float(error), 4),
        "interval_score": _rounded(score),
    }


def _inside_and_score(
    low: NDArray[np.float64], high: NDArray[np.float64], truth: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    missed = np.maximum(low - truth, 0) + np.maximum(truth - high, 0)
    # Limits may be the truth but for rounding.
    return (missed < 1e-12).astype(float), high - low + missed * 2 / (1 - LEVEL)


def _rounded(values: NDArray[np.float64]) -> float:
    return round(float(values.mean()), 4)


if __name__ == "__main__":
    main()
