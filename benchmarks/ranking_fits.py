"""One fit of a ranking by one program: `ranking` starts this, in the environment of the program.

``python ranking_fits.py PROGRAM FOLDER TASK`` reads ``contests.npz`` (first, second, outcome;
players are numbers) from the folder and writes ``rating.npy``, of mean 0. Tasks are ``fit`` (with
the sandwich where the program has one) and ``bootstrap``, whose number of samples is in the
program's line in `ranking`. Every program gets its data in the form it wants, and is imported,
before the clock starts.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Data(NamedTuple):
    """Contests, shape (C,)."""

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    outcome: NDArray[np.float64]
    players: int


Run = Callable[[], NDArray[np.float64]]


def ours(data: Data, samples: int) -> Run:
    """With the sandwich; or a bootstrap."""
    from evalstats_plugin.ranking.bradley_terry import fit_bradley_terry
    from evalstats_plugin.ranking.bradley_terry_bootstrap import bootstrap_bradley_terry
    from evalstats_plugin.ranking.contests import Contests

    made = Contests.of(*data[:3], players=data.players)
    if samples:
        return lambda: bootstrap_bradley_terry(made, n_resamples=samples, rng=0).rating
    return lambda: fit_bradley_terry(made, covariance="sandwich").rating


def evalica(data: Data, samples: int) -> Run:
    """Minorisation–maximisation; a bootstrap sample is a weight for each contest."""
    from evalica import Winner, bradley_terry

    winners = np.array([Winner.Y, Winner.Draw, Winner.X], dtype=object)
    xs, ys = data.first.tolist(), data.second.tolist()
    won = winners[(2 * data.outcome).astype(int)].tolist()

    def rate(weights: list[float] | None) -> NDArray[np.float64]:
        found = bradley_terry(xs, ys, won, weights=weights, tolerance=1e-10, limit=10_000)
        return np.log(found.scores.sort_index().to_numpy())

    def resampled() -> NDArray[np.float64]:
        rng, size = np.random.default_rng(0), len(xs)
        for _ in range(samples):
            rate(np.bincount(rng.integers(size, size=size), minlength=size).astype(float).tolist())
        return rate(None)

    return resampled if samples else lambda: rate(None)


def arena_rank(data: Data, _: int) -> Run:
    """L-BFGS, with the sandwich, compiled in the first call, which is not timed."""
    import pandas as pd
    from arena_rank.models.bradley_terry import BradleyTerry
    from arena_rank.utils.data_utils import PairDataset

    names = np.array([f"p{k:04d}" for k in range(data.players)])
    winner = np.array(["model_b", "tie", "model_a"])[(2 * data.outcome).astype(int)]
    frame = pd.DataFrame(
        {"model_a": names[data.first], "model_b": names[data.second], "winner": winner}
    )
    made = PairDataset.from_pandas(frame)

    def run() -> NDArray[np.float64]:
        # Its own tolerance, 1e-9 of the loss, leaves errors of 1e-3.
        model = BradleyTerry(n_competitors=data.players, ftol=1e-16, gtol=1e-10)
        found = model.compute_ratings_and_cis(made)
        order = np.argsort(found["competitors"])
        return (np.asarray(found["ratings"], float)[order] - 1000) * np.log(10) / 400

    run()
    return run


def choix(data: Data, _: int) -> Run:
    """Iterative Luce spectral ranking of counts, which it is given counted."""
    from choix import ilsr_pairwise_dense

    won = np.zeros((data.players, data.players))
    np.add.at(won, (data.first, data.second), data.outcome)
    np.add.at(won, (data.second, data.first), 1 - data.outcome)
    return lambda: ilsr_pairwise_dense(won, tol=1e-12)


def scikit_learn(data: Data, samples: int) -> Run:
    """As FastChat does: a logistic regression without penalty on counts of pairs."""
    from sklearn.linear_model import LogisticRegression

    n = data.players
    code = data.first * n + data.second

    def rate(weight: NDArray[np.float64]) -> NDArray[np.float64]:
        won = np.bincount(code, weight * data.outcome, n * n)
        lost = np.bincount(code, weight * (1 - data.outcome), n * n)
        cell = np.flatnonzero(won + lost)
        design = np.zeros((2 * len(cell), n))
        row = np.arange(2 * len(cell))
        design[row, np.tile(cell // n, 2)] = 1
        design[row, np.tile(cell % n, 2)] = -1
        truth = np.repeat([1, 0], len(cell))
        model = LogisticRegression(fit_intercept=False, penalty=None, tol=1e-13, max_iter=10_000)
        model.fit(design, truth, sample_weight=np.r_[won[cell], lost[cell]])
        return model.coef_[0]

    def resampled() -> NDArray[np.float64]:
        rng = np.random.default_rng(0)
        size = len(code)
        for _ in range(samples):
            rate(np.bincount(rng.integers(size, size=size), minlength=size).astype(float))
        return rate(np.ones(size))

    return resampled if samples else lambda: rate(np.ones(len(code)))


FITS: Mapping[str, tuple[str, Callable[[Data, int], Run]]] = MappingProxyType(
    {
        "evalstats-plugin": ("evalstats-plugin", ours),
        "evalica": ("evalica", evalica),
        "arena-rank": ("arena-rank", arena_rank),
        "choix": ("choix", choix),
        "FastChat's way, scikit-learn": ("scikit-learn", scikit_learn),
    }
)
"""Distribution, and what prepares a fit."""


def main(name: str, folder: str, samples: str, cpu_limit: str) -> None:
    """Fit, keep the ratings and print what it took."""
    resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_limit), int(cpu_limit) + 5))
    distribution, prepare = FITS[name]
    with np.load(Path(folder) / "contests.npz") as arrays:
        data = Data(arrays["first"], arrays["second"], arrays["outcome"], int(arrays["players"]))
    run = prepare(data, int(samples))
    start = _cpu_seconds()
    rating = run()
    seconds = _cpu_seconds() - start
    np.save(Path(folder) / "rating.npy", rating - rating.mean())
    # Not ru_maxrss: a child inherits its parent's.
    status = Path("/proc/self/status").read_text()
    peak = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
    found = {
        "version": metadata.version(distribution),
        "seconds": round(seconds, 3),
        "peak_mb": round(int(peak) / 1024),
    }
    print(json.dumps(found))


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main(*sys.argv[1:])
