"""Intervals and all pairs of a leaderboard, or clustered posteriors, by one program.

``python comparison_fits.py PROGRAM FOLDER CPU_LIMIT JOB COUNT`` reads ``data.npz`` and writes the
limits, and P(better) where there is one, to ``found.npz``. JOB is ``leaderboard`` (scores, shape
(T, N, M)) or ``clustered`` (right, size: shape (E, C)); COUNT is how many tasks or evals it does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import clock
import numpy as np

Found = dict[str, np.ndarray]
Run = Callable[[], Found]
LEVEL = 0.95


def ours_leaderboard(scores: np.ndarray) -> Run:
    """Intervals, and every pair with its interval, p-value and P(better)."""
    from evalstats_plugin import ResponseMatrix, compare, intervals

    tasks, models, items = scores.shape
    flat = scores.transpose(1, 0, 2).reshape(models, -1)
    names = [f"task_{t:02}" for t in range(tasks) for _ in range(items)]

    def run() -> Found:
        matrix = ResponseMatrix.from_array(flat, tasks=names)
        rows = intervals(matrix)
        limits = np.array([[r.low, r.high] for r in rows]).reshape(models, tasks, 2)
        pairs = compare(matrix)
        better = np.full((tasks, models, models), np.nan)
        place = {name: i for i, name in enumerate(matrix.models)}
        for r in pairs:
            better[int(r.task[5:]), place[r.model_a], place[r.model_b]] = r.prob_better
        return {"limits": limits.transpose(1, 0, 2), "better": better}

    return run


def bayes_evals_leaderboard(scores: np.ndarray) -> Run:
    """The package's own functions, as evalstats ships them; P(better) without an interval."""
    import pandas as pd
    from evalstats.core import bayes_evals

    names = _names(scores.shape[1])
    frames = [pd.DataFrame(task.T, columns=names) for task in scores]

    def run() -> Found:
        limits, better = [], []
        for frame in frames:
            found = bayes_evals.independent_intervals(frame, alpha=1 - LEVEL)
            limits.append(found.loc[["lower", "upper"]].to_numpy().T)
            # Entry (i, j): P(model i is better than j).
            better.append(np.asarray(bayes_evals.paired_comparisons(frame), dtype=float).T)
        return {"limits": np.array(limits), "better": np.array(better)}

    return run


def statsmodels_leaderboard(scores: np.ndarray) -> Run:
    """Jeffreys intervals of all at once, McNemar's exact test pair by pair; no P(better)."""
    from statsmodels.stats.contingency_tables import mcnemar
    from statsmodels.stats.proportion import proportion_confint

    _, models, items = scores.shape
    first, second = np.triu_indices(models, 1)

    def run() -> Found:
        right = scores.sum(2)
        low, high = proportion_confint(right, items, 1 - LEVEL, method="jeffreys")
        both = scores @ scores.transpose(0, 2, 1)
        p_values = np.array(
            [
                mcnemar([[b[i, j], r[i] - b[i, j]], [r[j] - b[i, j], items]], exact=True).pvalue
                for b, r in zip(both, right, strict=True)
                for i, j in zip(first, second, strict=True)
            ]
        )
        return {"limits": np.stack([low, high], axis=2), "p_values": p_values}

    return run


def evalstats_leaderboard(scores: np.ndarray) -> Run:
    """`compare_models` on a task at a time, corrected by Holm's method as ours; no P(better).

    The correction that is its default, a bootstrap of all pairs, takes over ten times as long.
    """
    import evalstats as es
    import pandas as pd

    _, models, items = scores.shape
    names = _names(models)

    def load(task: np.ndarray) -> Any:
        table = {
            "model": np.repeat(names, items),
            "input": np.tile([f"q{j}" for j in range(items)], models),
            "score": task.ravel(),
        }
        return es.load_from(pd.DataFrame(table))

    ready = [load(task) for task in scores]

    def run() -> Found:
        found = [es.compare_models(data, correction="holm").entity_stats for data in ready]
        limits = [[(task[m].ci_low, task[m].ci_high) for m in names] for task in found]
        return {"limits": np.array(limits)}

    return run


def ours_clustered(right: np.ndarray, size: np.ndarray) -> Run:
    """Quadrature."""
    from evalstats_plugin.stats import grid_posteriors

    def run() -> Found:
        found = grid_posteriors.beta_binomial(
            right, size, confidence_level=LEVEL, prior="gamma-dispersion"
        )
        return {"limits": np.stack(found, axis=1)}

    return run


def bayes_evals_clustered(right: np.ndarray, size: np.ndarray) -> Run:
    """Importance sampling from the prior, 10,000 draws: the algorithm of the paper [BAI25]."""
    from scipy import special

    def run() -> Found:
        limits = []
        for k in range(len(right)):
            rng = np.random.default_rng(k)
            theta, d = rng.random((10_000, 1)), rng.gamma(1, 1, (10_000, 1))
            a, b = theta * d, (1 - theta) * d
            weight = (
                special.betaln(a + right[k], b + size[k] - right[k]) - special.betaln(a, b)
            ).sum(1)
            share = np.exp(weight - weight.max())
            drawn = rng.choice(theta[:, 0], 10_000, p=share / share.sum())
            limits.append(np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]))
        return {"limits": np.array(limits)}

    return run


def _names(models: int) -> list[str]:
    return [f"m{i:02}" for i in range(models)]


FITS: Mapping[str, tuple[str, Mapping[str, Callable[..., Run]]]] = MappingProxyType(
    {
        "evalstats-plugin": (
            "evalstats-plugin",
            {"leaderboard": ours_leaderboard, "clustered": ours_clustered},
        ),
        "bayes_evals": ("evalstats", {"leaderboard": bayes_evals_leaderboard}),
        "bayes_evals's way": ("scipy", {"clustered": bayes_evals_clustered}),
        "evalstats": ("evalstats", {"leaderboard": evalstats_leaderboard}),
        "statsmodels": ("statsmodels", {"leaderboard": statsmodels_leaderboard}),
    }
)
"""Distribution, and what prepares each job."""


def main(name: str, folder: str, cpu_limit: str, job: str, count: str) -> None:
    """Do the job, keep what was found and print what it took."""
    clock.limit(float(cpu_limit))
    distribution, jobs = FITS[name]
    with np.load(Path(folder) / "data.npz") as data:
        arrays = [data[key][: int(count)] for key in data.files]
    jobs[job](*(x[:1, :5] for x in arrays))()
    found, taken = clock.timed(jobs[job](*arrays))
    np.savez(Path(folder) / "found.npz", **found)
    clock.tell(distribution, taken)


if __name__ == "__main__":
    main(*sys.argv[1:])
