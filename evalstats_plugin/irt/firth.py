"""Logistic regressions of many items at once, finite even where groups separate perfectly [Fir93]_.

With few models an item may be right for all of one group and wrong for all of another: plain
maximum likelihood has no estimate then. Firth's penalty, half the log determinant of the
information, takes the first-order bias away and keeps every estimate finite.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from evalstats_plugin.stats.interval import FloatArray

_TOLERANCE = 1e-9
_LONGEST = 5.0


class Regression(NamedTuple):
    """Of M items on P columns."""

    coefficients: FloatArray
    """Shape (M, P)."""
    covariance: FloatArray
    """Inverse information, shape (M, P, P)."""
    log_likelihood: FloatArray
    """Penalised, shape (M,)."""


class _Point(NamedTuple):
    log_likelihood: FloatArray
    score: FloatArray
    information: FloatArray


def firth_logistic(
    columns: FloatArray, right: FloatArray, trials: FloatArray, free: NDArray[np.bool_]
) -> Regression:
    """Fit by Newton steps, halved where the penalised likelihood would fall.

    Parameters
    ----------
    columns : shape (M, N, P)
    right, trials : shape (M, N)
        Successes, and trials: 0 leaves a cell out.
    free : shape (P,)
        The others stay 0, but count in the penalty, as likelihood-ratio tests need it [HS02]_.
    """
    m, _, p = columns.shape
    at = np.zeros((m, p))
    here = _evaluate(columns, right, trials, at)
    for _ in range(100):
        step = np.zeros_like(at)
        part = here.information[:, free][:, :, free]
        step[:, free] = np.linalg.solve(part, here.score[:, free, None])[..., 0]
        longest = np.abs(step).max(axis=1, keepdims=True)
        step *= np.minimum(1, _LONGEST / np.maximum(longest, _LONGEST))
        if longest.max() < _TOLERANCE:
            break
        there = _evaluate(columns, right, trials, at + step)
        for _ in range(12):
            falls = there.log_likelihood < here.log_likelihood - 1e-12
            if not falls.any():
                break
            step[falls] /= 2
            there = _evaluate(columns, right, trials, at + step)
        at, here = at + step, there
    return Regression(at, np.linalg.inv(here.information).astype(np.float64), here.log_likelihood)


def _evaluate(columns: FloatArray, right: FloatArray, trials: FloatArray, at: FloatArray) -> _Point:
    logit = np.einsum("mnp,mp->mn", columns, at)
    probability = np.asarray(special.expit(logit), dtype=np.float64)
    weight = trials * probability * (1 - probability)
    information = np.einsum("mnp,mn,mnr->mpr", columns, weight, columns, optimize=True)
    # Keeps a column that does not vary among the models of an item from making it singular.
    information += 1e-10 * np.eye(at.shape[1])
    inverse = np.linalg.inv(np.asarray(information, dtype=np.float64))
    leverage = weight * np.einsum("mnp,mpr,mnr->mn", columns, inverse, columns, optimize=True)
    pull = right - trials * probability + leverage * (0.5 - probability)
    log_likelihood = (right * logit - trials * np.logaddexp(0, logit)).sum(axis=1)
    return _Point(
        log_likelihood + 0.5 * np.linalg.slogdet(information)[1],
        np.einsum("mnp,mn->mp", columns, pull),
        information,
    )
