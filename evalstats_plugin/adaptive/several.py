"""Several abilities of one model: the posterior by quadrature, and estimates on the fit's axes.

* `quadrature`: mean and covariance of a posterior from its normal approximation
* `on_axes`: abilities with their covariance; `AbilityEstimate`: one of them with its limits
* `check_axes`: whether a matrix turns the state of a session into abilities
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.stats.arrays import FloatArray
from evalstats_plugin.stats.interval import normal_quantile

_POINTS = 7
"""Of the Gauss–Hermite rule, in each dimension."""

_MOST_NODES = 7**3
"""Number of nodes up to which the posterior is integrated: three abilities."""

_LENGTH_ERROR, _LEAST_VOLUME = 1e-6, 1e-6


@dataclass(frozen=True, slots=True)
class AbilityEstimate:
    """One of several abilities, in standard deviations of the calibrated models."""

    ability: float
    std_error: float
    low: float
    high: float


class Abilities(NamedTuple):
    """K abilities of S sessions."""

    ability: FloatArray
    """Shape (S, K)."""
    covariance: FloatArray
    """Shape (S, K, K)."""

    @property
    def std_error(self) -> FloatArray:
        """Shape (S, K)."""
        return np.sqrt(np.diagonal(self.covariance, axis1=1, axis2=2))

    def estimates(self, confidence_level: float) -> tuple[AbilityEstimate, ...]:
        """Return the abilities of the first session with their limits."""
        mean, error = self.ability[0], self.std_error[0]
        half = normal_quantile(confidence_level) * error
        columns = (each.tolist() for each in (mean, error, mean - half, mean + half))
        return tuple(AbilityEstimate(*each) for each in zip(*columns, strict=True))


def on_axes(mean: FloatArray, covariance: FloatArray, axes: FloatArray) -> Abilities:
    """Abilities from the state (θ, f) of S sessions, shapes (S, K) and (S, K, K)."""
    return Abilities(mean @ axes.T, axes @ covariance @ axes.T)


def quadrature(
    log_density: Callable[[FloatArray], FloatArray], mean: FloatArray, covariance: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Mean and covariance of a density by adaptive Gauss–Hermite quadrature [NS82]_.

    Parameters
    ----------
    log_density
        Of points of shape (Q, D), up to a constant: shape (Q,).
    mean, covariance
        Of the normal approximation that places the nodes, shapes (D,) and (D, D). It is returned
        as it is beyond three dimensions.
    """
    z, log_weight = _nodes(len(mean))
    if not len(z):
        return mean, covariance
    points = mean + z @ np.linalg.cholesky(covariance).T
    weight = log_density(points) + log_weight
    weight = np.exp(weight - weight.max())
    weight = weight / weight.sum()
    centre = weight @ points
    away = points - centre
    return centre, (away * weight[:, None]).T @ away


@cache
def _nodes(dimensions: int) -> tuple[FloatArray, FloatArray]:
    """Nodes (Q, D) of a standard normal, and log weights less the normal's log density."""
    if _POINTS**dimensions > _MOST_NODES:
        return np.zeros((0, dimensions)), np.zeros(0)
    x, w = np.polynomial.hermite_e.hermegauss(_POINTS)
    one = np.log(w) + x**2 / 2
    z = np.array(list(product(x, repeat=dimensions)))
    return z, np.array([sum(each) for each in product(one, repeat=dimensions)])


def check_axes(axes: NDArray[np.float64], n_factors: int) -> None:
    """Raise `ValueError` unless each row of a matrix is an ability of variance 1."""
    k = 1 + n_factors
    if axes.shape != (k, k):
        msg = f"axes has shape {axes.shape}, not {(k, k)}: give a row and a column per ability"
        raise ValueError(msg)
    length = np.linalg.norm(axes, axis=1)
    if not (np.abs(length - 1) < _LENGTH_ERROR).all():
        raise ValueError("a row of axes has not length 1: divide each row by its length")
    if abs(float(np.linalg.det(axes))) < _LEAST_VOLUME:
        raise ValueError("two abilities of axes are the same: leave one out")
