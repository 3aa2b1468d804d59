"""How wide a tie is: δ of the largest evidence, under a half-normal(1) prior."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar

from evalstats_plugin.ranking.expectation_propagation import expectation_propagation
from evalstats_plugin.ranking.thurstone_design import Prior, Sites
from evalstats_plugin.ranking.thurstone_laplace import laplace

# Among which δ is sought.
_NARROWEST, _WIDEST = 1e-3, 6.0
# Step of the second difference that gives its standard error.
_STEP = 0.05


class Threshold(NamedTuple):
    """δ, half the width of a tie; 0 where no answer is one."""

    value: float
    std_error: float


def most_evident_tie(sites: Sites, prior: Prior, by: Literal["ep", "laplace"]) -> Threshold:
    """Find δ by the evidence of expectation propagation, or of Laplace's method."""
    if not sites.ties.any():
        return Threshold(0.0, 0.0)

    def against(log_tie: float) -> float:
        tie = float(np.exp(log_tie))
        mode = laplace(sites, prior, tie)
        value = mode.log_evidence
        if by == "ep":
            found = expectation_propagation(sites, prior, tie, mode.normals, tolerance=1e-6)
            value = found.log_evidence
        return tie**2 / 2 - value

    ends = (np.log(_NARROWEST), np.log(_WIDEST))
    best = float(minimize_scalar(against, bounds=ends, method="bounded").x)
    near = [against(best + k * _STEP) for k in (-1, 0, 1)]
    curvature = (near[0] - 2 * near[1] + near[2]) / _STEP**2
    tie = float(np.exp(best))
    return Threshold(tie, tie / curvature**0.5 if curvature > 0 else float("nan"))
