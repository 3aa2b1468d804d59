"""Questions that people ask next, beside the programs that answer them on the same inputs.

``python -m benchmarks.question_peers``. Right and wrong answers are drawn at random, so that what
is true of them is known.

* share of the variance that is chance: 200 models with three answers to each of 100 items, each
  with a distribution of chances of its own; the error of the share
* slices: 200 evals of 20 slices of 5 to 60 items, which all have one mean; how often limits hold,
  each by itself and all at once
* a judge corrected by labels: 200 evals of 400 answers with 40 labels, a judge who is right in 60
  to 95 of 100 and too kind; how often limits hold, and their width
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers import OURS, Job, Program, keep, side_by_side

SEED = 20261128
EVALS, ITEMS, REPEATS = 200, 100, 3
SLICES, ANSWERS, LABELS = 20, 400, 40
EVALSTATS, TRUESCORE, CJE = "evalstats==0.3.3", "truescore==0.7.4", "cje-eval==0.9.3"

Arrays = Mapping[str, NDArray[np.float64]]


def main() -> None:
    """Do all; keep the figures."""
    noise, slices, judged = map(np.random.default_rng, np.random.SeedSequence(SEED).spawn(3))
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        share = draw_repeats(folder, noise)
        rows += side_by_side(
            Job(f"chance in {EVALS} models", "question_fits", folder, partial(judge_shares, share)),
            [Program(OURS, None, ("noise",)), Program("evalstats", EVALSTATS, ("noise",))],
        )
        mean = draw_slices(folder, slices)
        rows += side_by_side(
            Job(f"slices of {EVALS} evals", "question_fits", folder, partial(judge_limits, mean)),
            [Program(OURS, None, ("slices",)), Program("truescore", TRUESCORE, ("slices",))],
        )
        truth = draw_judged(folder, judged)
        rows += side_by_side(
            Job(f"a judge of {EVALS} evals", "question_fits", folder, partial(judge_limits, truth)),
            [
                Program(OURS, None, ("judged",)),
                Program("truescore", TRUESCORE, ("judged",)),
                Program("cje-eval", CJE, ("judged",)),
            ],
        )
    keep("question_peers", rows)


def draw_repeats(folder: Path, rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw answers, shape (N, M, R); return the share of their variance that is chance, (N,)."""
    a, b = rng.uniform(0.3, 4, (2, EVALS, 1))
    chance = rng.beta(a, b, (EVALS, ITEMS))
    scores = rng.random((EVALS, ITEMS, REPEATS)) < chance[..., None]
    np.savez(folder / "data.npz", scores=scores * 1.0)
    return ((a + b) / (a + b + 1))[:, 0]


def draw_slices(folder: Path, rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw scores, shape (E, M), and the slice of each item; return the means, (E, 1)."""
    slices = np.repeat(np.arange(SLICES), rng.integers(5, 61, SLICES))
    mean = rng.uniform(0.1, 0.95, (EVALS, 1))
    scores = rng.random((EVALS, len(slices))) < mean
    np.savez(folder / "data.npz", scores=scores * 1.0, slices=slices)
    return mean


def draw_judged(folder: Path, rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw what a judge and people say, NaN where nobody labels; return the true means, (E, 1)."""
    mean, right = rng.uniform(0.1, 0.95, (EVALS, 1)), rng.uniform(0.6, 0.95, (EVALS, 1))
    human = rng.random((EVALS, ANSWERS)) < mean
    kind = rng.random(human.shape) < 0.1
    judge = np.where(rng.random(human.shape) < right, human, ~human) | kind
    unlabelled = rng.random(human.shape).argsort(axis=1) >= LABELS
    np.savez(folder / "data.npz", judge=judge * 1.0, human=np.where(unlabelled, np.nan, human))
    return mean


def judge_shares(truth: NDArray[np.float64], found: Arrays) -> dict[str, float]:
    """Mean error of the share, and its root mean square."""
    error = found["share"] - truth
    return {"bias": _rounded(error.mean()), "rmse": _rounded(np.sqrt(np.mean(error**2)))}


def judge_limits(truth: NDArray[np.float64], found: Arrays) -> dict[str, float]:
    """How often limits, shape (E, K, 2), hold the truth: each, and all of an eval at once."""
    low, high = np.moveaxis(found["limits"], -1, 0)
    inside = (low <= truth) & (truth <= high)
    return {
        "coverage": _rounded(inside.mean()),
        "coverage_of_all": _rounded(inside.all(axis=1).mean()),
        "width": _rounded((high - low).mean()),
    }


def _rounded(value: float) -> float:
    return round(float(value), 4)


if __name__ == "__main__":
    main()
