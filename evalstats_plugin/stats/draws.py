"""Diagnostics of posterior draws: R-hat, effective sample size, and Pareto k-hat.

`convergence` [VGS21]_ compares Markov chains. `pareto_shape` estimates how heavy the tail of
importance weights is, the shape of a generalised Pareto distribution.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from evalstats_plugin.errors import DesignError
from evalstats_plugin.stats.arrays import FloatArray

R_HAT_LIMIT = 1.01
"""R-hat from which chains count as not converged."""

PARETO_K_LIMIT = 0.7
"""k-hat above which importance sampling is unreliable."""

# Sets of weights processed together.
_BLOCK = 1000

# Prior of the shape: ½, with the weight of so many draws; and its scale.
_WORTH, _SCALE = 10, 3


class Convergence(NamedTuple):
    """Diagnostics of each quantity, in the shape of one draw."""

    r_hat: FloatArray
    ess: FloatArray
    """Bulk effective sample size."""


def convergence(draws: ArrayLike) -> Convergence:
    """Rank-normalised R-hat and bulk effective sample size, by ArviZ.

    Parameters
    ----------
    draws : shape (chains, draws, ...)

    Raises
    ------
    DesignError
        If ArviZ is not installed.
    """
    try:
        # It announces changes of future versions, which the dependency excludes.
        with warnings.catch_warnings(action="ignore", category=FutureWarning):
            az: Any = import_module("arviz")
    except ModuleNotFoundError as error:
        msg = "R-hat and effective sample size need ArviZ: pip install 'evalstats-plugin[mcmc]'"
        raise DesignError(msg) from error
    data = {"x": np.asarray(draws, dtype=np.float64)}
    r_hat, ess = (np.asarray(f(data)["x"], dtype=np.float64) for f in (az.rhat, az.ess))
    return Convergence(r_hat, ess)


def pareto_shape(weights: ArrayLike) -> FloatArray:
    """Pareto k-hat of the largest weights of each set.

    Parameters
    ----------
    weights : shape (sets, draws)
        Not negative; need not add up to 1.

    Returns
    -------
    ndarray of shape (sets,)
        −∞ where the largest weights are all equal; NaN below 25 draws.
    """
    w = np.asarray(weights, dtype=np.float64)
    count = w.shape[1]
    tail = int(np.ceil(min(0.2 * count, 3 * count**0.5)))
    if tail < 5:
        return np.full(len(w), np.nan)
    largest = np.sort(w, axis=1)[:, -tail - 1 :]
    excess = largest[:, 1:] - largest[:, :1]
    return np.concatenate(
        [_shape(part) for part in np.split(excess, range(_BLOCK, len(w), _BLOCK))]
    )


def _shape(excess: FloatArray) -> FloatArray:
    """Posterior mean of the shape for sorted rows, by Zhang and Stephens (2009)."""
    n = excess.shape[1]
    points = 30 + int(n**0.5)
    flat = excess[:, -1] <= 0
    x = np.where(flat[:, None], 1.0, excess)
    # Their eq. 7: values of b, scaled by the first quartile of the tail.
    place = 1 - np.sqrt(points / (np.arange(1, points + 1) - 0.5))
    quarter = np.maximum(x[:, int(n / 4 + 0.5) - 1], 1e-300)
    b = place / (_SCALE * quarter[:, None]) + 1 / x[:, -1:]
    k = np.log1p(-b[:, :, None] * x[:, None]).mean(2)
    log_likelihood = n * (np.log(-b / k) - k - 1)
    weight = np.exp(log_likelihood - log_likelihood.max(1, keepdims=True))
    b_mean = (b * weight).sum(1) / weight.sum(1)
    shape = np.log1p(-b_mean[:, None] * x).mean(1)
    return np.where(flat, -np.inf, (n * shape + _WORTH * 0.5) / (n + _WORTH))
