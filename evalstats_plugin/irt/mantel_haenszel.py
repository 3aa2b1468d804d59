"""Do two groups of equal ability get an item right equally often? Mantel and Haenszel's test."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from evalstats_plugin.stats.interval import FloatArray


class MantelHaenszel(NamedTuple):
    """Each of the shape of the leading axes; NaN where no stratum tells anything."""

    log_odds: FloatArray
    """Log of the common odds ratio: odds of the first group over those of the second."""
    std_error: FloatArray
    """Of Robins, Breslow and Greenland [RBG86]_."""
    chi_square: FloatArray
    """Corrected for continuity, one degree of freedom."""
    p_value: FloatArray
    """Of equal odds, two-sided."""


def mantel_haenszel(tables: ArrayLike) -> MantelHaenszel:
    """Combine S strata of 2 × 2 tables [MH59]_.

    Parameters
    ----------
    tables : shape (..., S, 2, 2)
        Groups × (right, wrong).

    Examples
    --------
    >>> found = mantel_haenszel([[[10, 5], [6, 9]], [[8, 2], [5, 5]]])
    >>> round(float(found.log_odds), 3), round(float(found.p_value), 3)
    (1.204, 0.09)
    """
    cells: FloatArray = np.asarray(tables, dtype=np.float64)
    a, b, c, d = (cells[..., i, j] for i in (0, 1) for j in (0, 1))
    size = a + b + c + d
    safe = np.where(size > 0, size, 1.0)
    agree, differ = a * d / safe, b * c / safe
    up, down = agree.sum(axis=-1), differ.sum(axis=-1)
    margins = (a + b) * (c + d) * (a + c) * (b + d)
    variance = (margins / (safe**2 * np.maximum(size - 1, 1))).sum(axis=-1)
    gap = (a - (a + b) * (a + c) / safe).sum(axis=-1)
    share_agree, share_differ = (a + d) / safe, (b + c) / safe
    with np.errstate(invalid="ignore", divide="ignore"):
        chi_square = np.maximum(np.abs(gap) - 0.5, 0) ** 2 / variance
        squared = (
            (share_agree * agree).sum(axis=-1) / (2 * up**2)
            + (share_agree * differ + share_differ * agree).sum(axis=-1) / (2 * up * down)
            + (share_differ * differ).sum(axis=-1) / (2 * down**2)
        )
        return MantelHaenszel(
            np.log(up) - np.log(down), np.sqrt(squared), chi_square, special.chdtrc(1, chi_square)
        )
