"""Whether chains of draws agree, and how many independent draws they are worth [VGS21]_."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evalstats_plugin.errors import DesignError

UNLIKE = 1.01
"""R-hat from which on chains are said to disagree."""


class Convergence(NamedTuple):
    """Of each quantity, of the shape of one draw."""

    r_hat: NDArray[np.float64]
    ess: NDArray[np.float64]
    """Effective number of draws, in the bulk."""


def convergence(draws: ArrayLike) -> Convergence:
    """R-hat and effective sample size, by ArviZ.

    Parameters
    ----------
    draws : shape (chains, draws, ...)

    Raises
    ------
    DesignError
        ArviZ is not installed.
    """
    try:
        # Once in a while it announces there what will change in a version that we do not take.
        with warnings.catch_warnings(action="ignore", category=FutureWarning):
            az: Any = import_module("arviz")
    except ModuleNotFoundError as error:
        msg = "R-hat and effective sample size need ArviZ: pip install 'evalstats-plugin[mcmc]'"
        raise DesignError(msg) from error
    data = {"x": np.asarray(draws, dtype=np.float64)}
    r_hat, ess = (np.asarray(f(data)["x"], dtype=np.float64) for f in (az.rhat, az.ess))
    return Convergence(r_hat, ess)
