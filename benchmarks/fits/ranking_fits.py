"""Bradley–Terry ratings by one program, with or without their intervals.

``python ranking_fits.py PROGRAM FOLDER CPU_LIMIT WHAT [SAMPLES]`` reads ``data.npz`` (first,
second, outcome; players are numbers) and writes the ratings, of mean 0, and their limits to
``found.npz``. WHAT is ``fit``, or ``intervals`` by the sandwich, where the program has it, or else
from SAMPLES of a bootstrap. The clock starts with the arrays of contests; a program that wants a
table of names gets it ready-made.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import clock
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Data(NamedTuple):
    """Contests, shape (C,)."""

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    outcome: Array
    players: int


class Found(NamedTuple):
    """Ratings, shape (n,), and the limits of 95 % or draws of a bootstrap, (B, n)."""

    rating: Array
    low: Array | None = None
    high: Array | None = None
    draws: Array | None = None


Run = Callable[[], Found]
WARM = 100_000
"""Contests of the run before the clock starts; of fewer, some players have won none."""


def ours(data: Data, what: str, _: int) -> Run:
    """Ratings with what the model says of them; intervals by the sandwich."""
    from evalstats_plugin.ranking.contests.contests import Contests
    from evalstats_plugin.ranking.ratings.bradley_terry import fit_bradley_terry

    def run() -> Found:
        contests = Contests.of(*data[:3], players=data.players)
        kind = "model" if what == "fit" else "sandwich"
        fit = fit_bradley_terry(contests, ties="half", covariance=kind)
        half = 1.959963984540054 * np.sqrt(np.diagonal(fit.covariance))
        return Found(fit.rating, fit.rating - half, fit.rating + half)

    return run


class Cells(NamedTuple):
    """Contests of one pair that ended alike, for as many as there are; shape (K,)."""

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    outcome: Array


Rate = Callable[[Array, Array | None], Array]
"""From how often each cell was seen, and ratings to start from, to ratings."""


def counted(prepare: Callable[[Cells], Rate], data: Data, samples: int) -> Run:
    """Count contests, rate them, and rate as many samples of them, starting from those ratings.

    None of these programs counts by itself; without, a million contests would take each of them up
    to thirty times as long. A sample of contests is a multinomial draw of counts.
    """
    n = data.players

    def run() -> Found:
        codes = (data.first * n + data.second) * 3 + (2 * data.outcome).astype(np.int64)
        count = np.bincount(codes, minlength=3 * n * n)
        seen = np.flatnonzero(count)
        pair, count = seen // 3, count[seen].astype(float)
        rate = prepare(Cells(pair // n, pair % n, seen % 3 / 2))
        rng, size = np.random.default_rng(0), len(data.first)
        again = rng.multinomial(size, count / size, size=samples).astype(float)
        rating = rate(count, None)
        drawn = [rate(each, rating) for each in again]
        return Found(rating, draws=np.array(drawn) if samples else None)

    return run


def evalica(data: Data, _: str, samples: int) -> Run:
    """Minorisation–maximisation; how often a cell was seen is the weight of one contest.

    Columns of a table and the index of players ready-made are twice as fast as lists without.
    """
    import pandas as pd
    from evalica import Winner, bradley_terry

    index = pd.Index(range(data.players))
    winners = np.array([Winner.Y, Winner.Draw, Winner.X], dtype=object)

    def prepare(cells: Cells) -> Rate:
        xs, ys = pd.Series(cells.first), pd.Series(cells.second)
        won = winners[(2 * cells.outcome).astype(int)].tolist()

        def rate(count: Array, _: Array | None) -> Array:
            found = bradley_terry(xs, ys, won, index=index, weights=count.tolist())
            return np.log(found.scores.sort_index().to_numpy())

        return rate

    return counted(prepare, data, samples)


def arena_rank(data: Data, *_: object) -> Run:
    """L-BFGS, with the sandwich; it compiles L-BFGS anew for every fit, so that this counts."""
    import pandas as pd
    from arena_rank.models.bradley_terry import BradleyTerry
    from arena_rank.utils.data_utils import PairDataset

    names = np.array([f"p{k:04d}" for k in range(data.players)])
    winner = np.array(["model_b", "tie", "model_a"])[(2 * data.outcome).astype(int)]
    frame = pd.DataFrame(
        {"model_a": names[data.first], "model_b": names[data.second], "winner": winner}
    )
    made = PairDataset.from_pandas(frame)

    def run() -> Found:
        # Its own tolerance, 1e-9 of the loss, leaves errors of 1e-3.
        model = BradleyTerry(n_competitors=data.players, ftol=1e-16, gtol=1e-10)
        found = model.compute_ratings_and_cis(made)
        order = np.argsort(found["competitors"])
        # Its ratings are Elo's: 400 points are a factor of 10 in the odds.
        unit = np.log(10) / 400
        rating, low, high = (
            (np.asarray(found[key], float)[order] - 1000) * unit
            for key in ("ratings", "rating_lower", "rating_upper")
        )
        return Found(rating, low, high)

    run()
    return run


def choix(data: Data, _: str, samples: int) -> Run:
    """Iterative Luce spectral ranking of counted wins, to its own tolerance."""
    from choix import ilsr_pairwise_dense

    n = data.players

    def prepare(cells: Cells) -> Rate:
        there, back = cells.first * n + cells.second, cells.second * n + cells.first

        def rate(count: Array, start: Array | None) -> Array:
            won = np.bincount(there, count * cells.outcome, n * n)
            won += np.bincount(back, count * (1 - cells.outcome), n * n)
            return ilsr_pairwise_dense(won.reshape(n, n), initial_params=start)

        return rate

    return counted(prepare, data, samples)


def scikit_learn(data: Data, _: str, samples: int) -> Run:
    """Logistic regression without penalty on counts of pairs, as FastChat rates.

    With a sparse design and conjugate gradients, three times as fast as FastChat's dense one with
    L-BFGS, and each sample from the one before.
    """
    from scipy import sparse
    from sklearn.linear_model import LogisticRegression

    n = data.players

    def prepare(cells: Cells) -> Rate:
        pair, place = np.unique(cells.first * n + cells.second, return_inverse=True)
        k = len(pair)
        entries = np.tile([1.0, -1.0], k), np.stack([pair // n, pair % n], axis=1).ravel()
        half = sparse.csr_matrix((*entries, np.arange(0, 2 * k + 1, 2)), shape=(k, n))
        design, truth = sparse.vstack([half, half], format="csr"), np.repeat([1, 0], k)
        model = LogisticRegression(
            fit_intercept=False, penalty=None, solver="newton-cg", tol=1e-8, warm_start=True
        )

        def rate(count: Array, _: Array | None) -> Array:
            won = np.bincount(place, count * cells.outcome, k)
            lost = np.bincount(place, count * (1 - cells.outcome), k)
            model.fit(design, truth, sample_weight=np.r_[won, lost])
            return model.coef_[0].copy()

        return rate

    return counted(prepare, data, samples)


FITS: Mapping[str, tuple[str, Callable[[Data, str, int], Run]]] = MappingProxyType(
    {
        "evalstats-plugin": ("evalstats-plugin", ours),
        "evalica": ("evalica", evalica),
        "arena-rank": ("arena-rank", arena_rank),
        "choix": ("choix", choix),
        "scikit-learn": ("scikit-learn", scikit_learn),
    }
)
"""Distribution, and what prepares a fit."""


def main(name: str, folder: str, cpu_limit: str, what: str, samples: str = "0") -> None:
    """Rate, keep the ratings and print what it took."""
    clock.limit(float(cpu_limit))
    distribution, prepare = FITS[name]
    with np.load(Path(folder) / "data.npz") as arrays:
        data = Data(arrays["first"], arrays["second"], arrays["outcome"], int(arrays["players"]))
    prepare(Data(*(x[:WARM] for x in data[:3]), data.players), what, min(int(samples), 2))()
    found, taken = clock.timed(prepare(data, what, int(samples)))
    rating = found.rating - found.rating.mean()
    low, high = found.low, found.high
    if found.draws is not None:
        # Too few samples for their quantiles: a normal interval of their spread.
        half = 1.959963984540054 * found.draws.std(axis=0, ddof=1)
        low, high = rating - half, rating + half
    arrays = {"rating": rating, "low": low, "high": high}
    kept = {key: value for key, value in arrays.items() if value is not None}
    np.savez(Path(folder) / "found.npz", **kept)
    clock.tell(distribution, taken)


if __name__ == "__main__":
    main(*sys.argv[1:])
