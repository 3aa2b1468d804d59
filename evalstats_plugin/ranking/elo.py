"""Elo's scale: 400 points are odds of 10 to 1 [Elo78]_."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from evalstats_plugin.ranking.contests import FloatArray

POINTS = 400 / math.log(10)
"""Elo points of one logit."""


def elo(rating: ArrayLike, *, anchor: float = 1000.0) -> FloatArray:
    """Ratings in Elo points, those of rating 0 having `anchor` points.

    Differences, standard errors and limits of differences are multiplied by `POINTS`.

    >>> print(elo([0.0, math.log(10)]))
    [1000. 1400.]
    """
    return anchor + POINTS * np.asarray(rating, dtype=np.float64)
