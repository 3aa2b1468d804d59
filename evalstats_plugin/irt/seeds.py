"""How far do fits from different seeds lie apart?"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from evalstats_plugin.stats.interval import FloatArray


class SeedSpread(NamedTuple):
    """How far fits from different seeds lie apart, on a common scale.

    Not an interval: seeds differ by the optimiser's luck, which says nothing about other items.
    """

    mean: FloatArray
    """Shape (N,)."""
    spread: FloatArray
    """Standard deviation between seeds."""
    lowest: FloatArray
    highest: FloatArray
    turned: int
    """Fits that counted ability in the other direction."""


def seed_spread(abilities: ArrayLike, *, scale: bool = True) -> SeedSpread:
    """Link fits of several seeds, and see how far apart they are.

    Each is shifted, and with `scale` stretched and turned, to the first one's mean and standard
    deviation (mean-sigma linking [KB14]_).

    Parameters
    ----------
    abilities : shape (S, N)
        Of the same models, in S fits.

    Raises
    ------
    ValueError
        Fewer than two fits, or one in which all models are alike.
    """
    theta: FloatArray = np.asarray(abilities, dtype=np.float64)
    if theta.ndim != 2 or len(theta) < 2:
        msg = f"abilities have shape {theta.shape}, expected (seeds, models) with 2 seeds or more"
        raise ValueError(msg)
    centre = theta - theta.mean(axis=1, keepdims=True)
    sd = centre.std(axis=1, keepdims=True)
    if scale and not (sd > 0).all():
        msg = "in a fit all models are equally able, so that it has no scale to link"
        raise ValueError(msg)
    sign = np.where(centre @ centre[0] < 0, -1.0, 1.0) if scale else np.ones(len(theta))
    factor = sign[:, None] * (sd[0] / sd if scale else 1.0)
    linked = factor * centre + theta[0].mean()
    return SeedSpread(
        linked.mean(axis=0),
        linked.std(axis=0, ddof=1),
        linked.min(axis=0),
        linked.max(axis=0),
        int((sign < 0).sum()),
    )
