"""One job by one program: `comparison_peers` starts this, in the environment of the program.

``python comparison_peer_fits.py PROGRAM JOB FOLDER`` reads ``data.npz`` from the folder and writes
``found.npz``. Every program gets its data in the form it wants, and is imported and has run once
on a little, before the clock starts. A slow one does some of the tasks or evals, and says how many.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from time import process_time
from types import MappingProxyType
from typing import Any

import numpy as np

Found = dict[str, np.ndarray]
Run = Callable[[int], Found]
LEVEL = 0.95


def ours_leaderboard(scores: np.ndarray) -> Run:
    """Intervals, and every pair with its interval, p-value and P(better)."""
    from evalstats_plugin import ResponseMatrix, compare, intervals

    tasks, models, items = scores.shape
    flat = scores.transpose(1, 0, 2).reshape(models, -1)
    names = [f"task_{t:02}" for t in range(tasks) for _ in range(items)]

    def run(count: int) -> Found:
        matrix = ResponseMatrix.from_array(flat[:, : count * items], tasks=names[: count * items])
        rows = intervals(matrix)
        limits = np.array([[r.low, r.high] for r in rows]).reshape(models, count, 2)
        pairs = compare(matrix)
        better = np.full((count, models, models), np.nan)
        place = {name: i for i, name in enumerate(matrix.models)}
        for r in pairs:
            better[int(r.task[5:]), place[r.model_a], place[r.model_b]] = r.prob_better
        return {"limits": limits.transpose(1, 0, 2), "better": better}

    return run


def bayes_evals_leaderboard(scores: np.ndarray) -> Run:
    """The package's own functions, as evalstats ships them; P(better) without an interval."""
    import pandas as pd
    from evalstats.core import bayes_evals

    models = scores.shape[1]
    frames = [pd.DataFrame(task.T, columns=[f"m{i:02}" for i in range(models)]) for task in scores]

    def run(count: int) -> Found:
        limits, better = [], []
        for frame in frames[:count]:
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

    def run(count: int) -> Found:
        part = scores[:count]
        low, high = proportion_confint(part.sum(2), items, 1 - LEVEL, method="jeffreys")
        both = part @ part.transpose(0, 2, 1)
        right = part.sum(2)
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
    """`compare_models` on a task at a time, with its defaults."""
    import evalstats as es
    import pandas as pd

    tasks, models, items = scores.shape
    names = [f"m{i:02}" for i in range(models)]

    def load(task: np.ndarray) -> Any:
        table = pd.DataFrame(
            {
                "model": np.repeat(names, items),
                "input": np.tile([f"q{j}" for j in range(items)], models),
                "score": task.ravel(),
            }
        )
        return es.load_from(table)

    ready = [load(task) for task in scores[: min(tasks, 2)]]

    def run(count: int) -> Found:
        for data in ready[:count]:
            es.compare_models(data)
        return {}

    return run


def ours_clustered(right: np.ndarray, size: np.ndarray) -> Run:
    """Quadrature."""
    from evalstats_plugin.stats import beta_binomial

    def run(count: int) -> Found:
        found = beta_binomial.interval(
            right[:count], size[:count], confidence_level=LEVEL, prior="gamma-dispersion"
        )
        return {"limits": np.stack(found, axis=1)}

    return run


def bayes_evals_clustered(right: np.ndarray, size: np.ndarray) -> Run:
    """Importance sampling from the prior, 10,000 draws: the algorithm of the paper [BAI25]."""
    from scipy import special

    def run(count: int) -> Found:
        limits = []
        for k in range(count):
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


JOBS: Mapping[str, Mapping[str, Callable[..., Run]]] = MappingProxyType(
    {
        "leaderboard": {
            "evalstats-plugin": ours_leaderboard,
            "bayes_evals": bayes_evals_leaderboard,
            "evalstats": evalstats_leaderboard,
            "statsmodels": statsmodels_leaderboard,
        },
        "clustered": {
            "evalstats-plugin": ours_clustered,
            "bayes_evals": bayes_evals_clustered,
        },
    }
)


def main(program: str, job: str, folder: Path, count: int) -> None:
    """Do the job and print its figures."""
    with np.load(folder / "data.npz") as data:
        arrays = [data[name] for name in data.files]
    JOBS[job][program](*(np.array(x[:1]) for x in arrays))(1)
    run = JOBS[job][program](*arrays)
    taken = []
    for _ in range(3 if count == len(arrays[0]) else 1):
        start = process_time()
        found = run(count)
        taken.append(process_time() - start)
    np.savez(folder / "found.npz", **found)
    seconds = float(np.median(taken)) * len(arrays[0]) / count
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": round(seconds, 3), "done": count, "peak_mb": round(peak)}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
