"""Noise, slices and judges' scores, by us and by the programs that answer the same.

``python question_fits.py PROGRAM FOLDER CPU_LIMIT QUESTION`` reads ``data.npz`` and writes shares
(E,) or limits of 95 %, shape (E, K, 2), to ``found.npz``. QUESTION is ``noise`` (scores, shape
(E, M, R)), ``slices`` (scores, shape (E, M), and slices, (M,)) or ``judged`` (judge and human, of
shape (E, M); NaN where nobody labelled). Each eval is one call, as a user makes it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import clock
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def ours_noise(scores: Array) -> Array:
    """Return the share of the variance of an answer that is chance."""
    from evalstats_plugin import ResponseMatrix, noise

    rows = [noise(ResponseMatrix.from_array(each[None], metric="acc"))[0] for each in scores]
    return np.array([row.share_repeats for row in rows], dtype=float)


def evalstats_noise(scores: Array) -> Array:
    """Return the share of the variance that evalstats gives to seeds."""
    from evalstats.core.variance import seed_variance_decomposition

    return np.array(
        [seed_variance_decomposition(each[None], ["m"]).seed_fraction[0] for each in scores]
    )


def ours_slices(scores: Array, slices: Array) -> Array:
    """Return limits that hold for all slices at once."""
    from evalstats_plugin import ResponseMatrix
    from evalstats_plugin import slices as of_slices

    def limits(each: Array) -> list[tuple[float, float]]:
        matrix = ResponseMatrix.from_array(each[None], clusters=slices, metric="acc")
        rows = {row.slice: (row.low, row.high) for row in of_slices(matrix)}
        return [rows[str(name)] for name in np.unique(slices)]

    return np.array([limits(each) for each in scores], dtype=float)


def truescore_slices(scores: Array, slices: Array) -> Array:
    """Return limits of each slice by itself; no answer of it is labelled."""
    from truescore.slices import estimate_slices

    def limits(each: Array) -> list[tuple[float, float]]:
        report = estimate_slices(each, each[:2], [0, 1], slices.astype(str))
        rows = {x.name: (x.naive.low, x.naive.high) for x in report.estimates}
        return [rows[str(name)] for name in np.unique(slices)]

    return np.array([limits(each) for each in scores])


def ours_judged(judge: Array, human: Array) -> Array:
    """Return limits of the corrected score of one model."""
    import evalstats_plugin as es

    def limits(said: Array, labels: Array) -> list[tuple[float, float]]:
        responses = [
            r
            for metric, scores in (("judge", said), ("human", labels))
            for r in es.ResponseMatrix.from_array(scores[None], metric=metric).to_responses()
        ]
        (row,) = es.judge(responses, judge="judge", human="human")
        return [(row.low, row.high)]

    return np.array([limits(*both) for both in zip(judge, human, strict=True)], dtype=float)


def truescore_judged(judge: Array, human: Array) -> Array:
    """Return prediction-powered limits, with the weight that truescore chooses."""
    from truescore.correct import ppi_estimate

    def limits(said: Array, labels: Array) -> list[tuple[float, float]]:
        labelled = np.flatnonzero(~np.isnan(labels))
        row = ppi_estimate(said, labels[labelled], labelled)
        return [(row.low, row.high)]

    return np.array([limits(*both) for both in zip(judge, human, strict=True)])


def cje_judged(judge: Array, human: Array) -> Array:
    """Return limits of the calibrated mean, by the defaults of cje-eval."""
    from cje.array_api import calibrated_mean_ci

    def limits(said: Array, labels: Array) -> list[tuple[float, float]]:
        row = calibrated_mean_ci(said, labels, ~np.isnan(labels))
        return [row.ci]

    return np.array([limits(*both) for both in zip(judge, human, strict=True)])


QUESTIONS: Mapping[str, Mapping[str, tuple[str, Callable[..., Array]]]] = MappingProxyType({
    "noise": {
        "evalstats-plugin": ("evalstats-plugin", ours_noise),
        "evalstats": ("evalstats", evalstats_noise),
    },
    "slices": {
        "evalstats-plugin": ("evalstats-plugin", ours_slices),
        "truescore": ("truescore", truescore_slices),
    },
    "judged": {
        "evalstats-plugin": ("evalstats-plugin", ours_judged),
        "truescore": ("truescore", truescore_judged),
        "cje-eval": ("cje-eval", cje_judged),
    },
})  # fmt: skip
"""Distribution, and what does the work."""


def main(name: str, folder: str, cpu_limit: str, question: str) -> None:
    """Do it, keep what was found and print what it took."""
    clock.limit(float(cpu_limit))
    with np.load(Path(folder) / "data.npz") as arrays:
        data = dict(arrays)
    distribution, work = QUESTIONS[question][name]
    small = {key: x if key == "slices" else x[:2] for key, x in data.items()}
    work(**small)
    found, taken = clock.timed(lambda: work(**data))
    np.savez(Path(folder) / "found.npz", **{"share" if question == "noise" else "limits": found})
    clock.tell(distribution, taken)


if __name__ == "__main__":
    main(*sys.argv[1:])
