"""Markov chains: the loop that all samplers share, and diagnostics of their draws.

* `run_chains`: warm-up, then draws, with progress
* `convergence`, `chain_agreement`: R-hat, effective sample size, a note where chains disagree
* `pareto_shape`: how heavy the tail of importance weights is
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from evalstats_plugin.errors import DesignError
from evalstats_plugin.runtime.chain_length import ChainLength
from evalstats_plugin.stats.arrays import FloatArray

StateT = TypeVar("StateT")


R_HAT_LIMIT = 1.01
"""R-hat from which chains count as not converged."""


PARETO_K_LIMIT = 0.7
"""k-hat above which importance sampling is unreliable."""


# Sets of weights processed together.
_BLOCK = 1000


# Prior of the shape: ½, with the weight of so many draws; and its scale.
_WORTH, _SCALE = 10, 3


def run_chains(
    state: StateT, sweep: Callable[[StateT, int], StateT], length: ChainLength
) -> Iterator[StateT]:
    """Yield the state of all chains after each sweep that follows the warm-up.

    Parameters
    ----------
    state
        State of all chains at once.
    sweep
        Returns the next state, given the state and the number of the sweep: negative during the
        warm-up, when the sampler may adapt, then from 0.

    Examples
    --------
    >>> list(run_chains(0, lambda x, k: x + 1, ChainLength(draws=3, warm_up=10)))
    [11, 12, 13]
    """
    from evalstats_plugin.runtime.workers import with_progress

    for k in with_progress("warm-up draw", range(-length.warm_up, 0)):
        state = sweep(state, k)
    for k in with_progress("draw", range(length.draws)):
        state = sweep(state, k)
        yield state


class Agreement(NamedTuple):
    """Whether Markov chains agree: the worst of all quantities."""

    r_hat: float | None
    """Largest R-hat; None where it could not be computed."""
    ess: float | None
    """Smallest bulk effective sample size."""
    converged: bool | None
    """Whether R-hat is below `R_HAT_LIMIT`; None if unknown."""
    why: str
    """Why the chains have not converged, or why that is unknown; else empty."""

    @property
    def notes(self) -> tuple[str, ...]:
        """The reason as a note of a fit."""
        return (self.why,) if self.why else ()

    @property
    def diagnostics(self) -> dict[str, Any]:
        """Entries of a fit's diagnostics."""
        if self.converged is None:
            return {"converged": None}
        return {"r_hat": self.r_hat, "ess": self.ess, "converged": self.converged}


def chain_agreement(draws: ArrayLike) -> Agreement:
    """Compare Markov chains by R-hat and effective sample size [VGS21]_.

    Without ArviZ, which computes them, nothing is known and `why` says so.

    Parameters
    ----------
    draws : shape (chains, draws, ...)
    """
    try:
        found = convergence(draws)
    except DesignError as error:
        return Agreement(None, None, None, f"whether the chains agree was not checked: {error}")
    r_hat, ess = float(found.r_hat.max()), float(found.ess.min())
    if r_hat < R_HAT_LIMIT:
        return Agreement(r_hat, ess, converged=True, why="")
    why = f"the chains disagree (R-hat {r_hat:.3f}, limit {R_HAT_LIMIT}): take more draws"
    return Agreement(r_hat, ess, converged=False, why=why)


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
        msg = "R-hat and effective sample size need ArviZ: pip install 'evalstats-plugin[models]'"
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
