"""The mode of the Thurstone posterior and the normal of its curvature there (Laplace)."""

from __future__ import annotations

from typing import Any, NamedTuple

from evalstats_plugin.ranking.contests import FloatArray
from evalstats_plugin.ranking.expectation_propagation import Normals
from evalstats_plugin.ranking.thurstone_design import Prior, Sites, information, inverse_of

# Change of the log posterior that the next Newton step promises, at which it is the last.
_TOLERANCE = 1e-12
_MAX_STEPS = 100


class Mode(NamedTuple):
    """Of P parameters."""

    mean: FloatArray
    covariance: FloatArray
    normals: Normals
    log_likelihood: float
    log_evidence: float
    iterations: int
    converged: bool


def laplace(sites: Sites, prior: Prior, tie: float, start: FloatArray | None = None) -> Mode:
    """Find the mode by Newton's method, halving steps that lose.

    Parameters
    ----------
    tie
        δ, half the width of a tie.
    start : shape (P,)
        Default: the prior mean.
    """
    inverse, spread = inverse_of(prior.covariance)
    design: Any = sites.design
    x: FloatArray = prior.mean if start is None else start

    def log_posterior(x: FloatArray) -> float:
        away = x - prior.mean
        fit = sites.log_likelihood(design @ x, tie).sum()
        return float(fit - 0.5 * away @ inverse @ away)

    value, converged, iterations = log_posterior(x), False, 0
    while True:
        iterations += 1
        at = sites.slopes(design @ x, tie)
        covariance, held = inverse_of(inverse + information(design, -at.second))
        gradient: FloatArray = design.T @ at.first - inverse @ (x - prior.mean)
        step = covariance @ gradient
        converged = float(gradient @ step) < _TOLERANCE
        if converged or iterations == _MAX_STEPS:
            break
        share = 1.0
        while (gained := log_posterior(x + share * step)) < value and share > 1e-6:
            share /= 2
        x, value = x + share * step, gained
    fitted: FloatArray = design @ x
    normals = Normals(-at.second, at.first - at.second * fitted)
    return Mode(
        x,
        covariance,
        normals,
        float(sites.log_likelihood(fitted, tie).sum()),
        value - 0.5 * (held + spread),
        iterations,
        bool(converged),
    )
