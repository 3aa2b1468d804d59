"""What many comparisons at once do to p-values and intervals."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.analyses.pair_solver import N_FLIPS
from evalstats_plugin.analyses.request import Request

N_FLIPS_FOR_LEVEL = 1999
"""The level of simultaneous intervals needs fewer flips than p-values in their tail."""

FloatArray = NDArray[np.float64]
Units: TypeAlias = tuple[FloatArray, NDArray[np.int64], NDArray[np.int64]]
"""Scores of what has one sign, and the models of each pair, as `stats.max_t` takes them."""


class Corrected(NamedTuple):
    """What allows for the number of comparisons."""

    p_values: FloatArray
    level: float | None
    """Of each interval, so that all hold at once with the confidence level; None without such."""


def correct(p_values: FloatArray, units: Callable[[], Units], request: Request) -> Corrected:
    """Correct for all comparisons of one family; `units` is called for sign flips only."""
    from evalstats_plugin.stats import max_t, multiplicity

    level, rng = request.confidence_level, request.rng
    if request.correction == "holm":
        made = int((~np.isnan(p_values)).sum())
        return Corrected(multiplicity.holm(p_values), multiplicity.sidak_level(level, made))
    if request.correction == "bh":
        return Corrected(multiplicity.benjamini_hochberg(p_values), None)
    if request.correction == "none":
        return Corrected(p_values, None)
    flipped = units()
    adjusted = max_t.max_t_of_pairs(*flipped, rng=rng, n_flips=N_FLIPS)
    together = max_t.simultaneous_level(
        *flipped, confidence_level=level, rng=rng, n_flips=N_FLIPS_FOR_LEVEL
    )
    return Corrected(np.where(np.isnan(p_values), np.nan, adjusted), together)
