"""lm-eval's own mean and standard error, computed again from the items."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

TOLERANCE = 1e-9
"""Relative: what rounding can explain."""


def mean_and_stderr(scores: NDArray[Any]) -> tuple[float, float]:
    """Return what lm-eval's ``mean`` and ``mean_stderr`` give for items that have a value.

    The standard error is s/√n with n − 1, NaN for n < 2 (lm-eval writes "N/A"). The dtype of the
    scores is kept: a task that scores in float32 logs values rounded as float32.
    """
    present = scores[~np.isnan(scores)]
    n = len(present)
    if n == 0:
        return math.nan, math.nan
    with np.errstate(invalid="ignore", over="ignore"):
        mean = present.sum() / present.dtype.type(n)
        if n < 2:
            return float(mean), math.nan
        squares = ((present - mean) ** 2).sum()
    return float(mean), math.sqrt(squares / present.dtype.type(n - 1)) / math.sqrt(n)


def disagreement(
    scores: NDArray[np.float64], logged: float | None, logged_stderr: float | None
) -> str | None:
    """Say how the items and what was logged of them disagree; None where they agree.

    Parameters
    ----------
    scores : shape (M,)
    logged, logged_stderr
        None where nothing was logged, or where lm-eval does not compute it from the items alone.
    """
    with np.errstate(over="ignore"):
        exact, rounded = (mean_and_stderr(scores.astype(d)) for d in (np.float64, np.float32))
    for what, position, said in (("value", 0, logged), ("stderr", 1, logged_stderr)):
        if said is None or same(exact[position], said) or same(rounded[position], said):
            continue
        return f"the log gives {what} {said:.6g}, its items {exact[position]:.6g}"
    return None


def same(a: float, b: float) -> bool:
    """Whether two numbers agree to rounding; NaN agrees with NaN."""
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=1e-12)


def pooled_stderr(stderrs: Sequence[float], sizes: Sequence[float]) -> float:
    """lm-eval's standard error of a micro mean: ``pooled_sample_stderr``."""
    s, n = np.asarray(stderrs), np.asarray(sizes, dtype=np.float64)
    variance = ((n - 1) * s**2 * n).sum() / (n.sum() - len(n))
    return math.sqrt(variance / n.sum())


def unweighted_stderr(stderrs: Sequence[float]) -> float:
    """lm-eval's standard error of a macro mean since 0.4.13: ``unweighted_mean_stderr``."""
    return math.sqrt(sum(s**2 for s in stderrs)) / len(stderrs)
