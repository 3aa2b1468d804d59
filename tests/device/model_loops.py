"""Estimators that iterate, for as many iterations as are asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from model_fits import TALL, Numbers, irt, plated

from evalstats_plugin.data.matrix import ResponseMatrix

Loop = Callable[[str, int], Numbers]


def _steps(item_model: str, estimator: str, matrix: ResponseMatrix = TALL, **options: Any) -> Loop:
    """So many steps of an estimator that would take many more."""

    def fit(device: str, steps: int) -> Numbers:
        how = {**options, "max_steps": steps}
        if estimator != "jml":
            how["tolerance"] = 0.0
        return irt(device, item_model, estimator, matrix, **how)

    return fit


def _draws(device: str, draws: int) -> Numbers:
    return irt(device, "2pl", "mcmc", chains=4, warm_up=1, draws=4 + draws)


def _adapted(device: str, iterations: int) -> Numbers:
    return plated(device, None, iterations)


LOOPS: Mapping[str, tuple[Loop, float]] = {
    "mml 2pl": (_steps("2pl", "mml", prior="none", nodes=15, std_errors=False), 3.0),
    "mml 2pl, prior estimated": (
        _steps("2pl", "mml", prior="estimated", nodes=15, std_errors=False), 8.0
    ),
    "mml 3pl": (_steps("3pl", "mml", prior="weak", nodes=15, std_errors=False), 6.0),
    "jml": (_steps("2pl", "jml"), 1.0),
    "vi": (_steps("2pl", "vi"), 0.5),
    "gibbs": (_draws, 16.0),
    "plates": (_adapted, 12.0),
}  # fmt: skip
"""Loops, and how often an iteration may have the host wait for the device."""
