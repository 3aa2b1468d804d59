"""Posterior draws of a hierarchical model, whatever engine drew them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

FloatArray = NDArray[np.float64]

NODES = 31
"""Of Gauss–Hermite quadrature over questions: errors below 1e-6 up to σ_κ = 2, 1e-4 at 3."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Posterior:
    """K chains of S draws; of what is large, every few draws are kept, S' of them."""

    accuracy: FloatArray
    """Of each model on each task, (K, S, N, T): the expected share of right answers."""
    parameters: Mapping[str, FloatArray]
    """By name, each (K, S, ...)."""
    log_likelihood: FloatArray
    """Of each model's answers on each task, (K, S', N, T); 0 where there are none. The model's
    interaction with the task is integrated out, so that a left-out cell is predicted from others.
    """
    replicated: FloatArray
    """Right answers drawn anew for the same trials, (K, S', N, T)."""

    @property
    def overall(self) -> FloatArray:
        """Accuracy of each model over tasks, all weighing the same, (K, S, N)."""
        return self.accuracy.mean(axis=3)


def mean_accuracy(level: FloatArray, spread: FloatArray | float) -> FloatArray:
    """E expit(level - spread z), z ~ N(0, 1): over questions whose difficulties are normal.

    >>> float(mean_accuracy(np.array(0.0), 1.5))
    0.5
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    total = np.zeros(np.broadcast_shapes(np.shape(level), np.shape(spread)))
    for node, weight in zip(nodes.tolist(), weights.tolist(), strict=True):
        total += weight * special.expit(level - spread * node)
    return total / np.sqrt(2 * np.pi)
