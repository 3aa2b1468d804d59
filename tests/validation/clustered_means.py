"""Posterior means of a clustered Beta-Binomial model, which other programs give too."""

from typing import NamedTuple

import numpy as np
from scipy import special

from evalstats_plugin.stats.grid_posteriors import beta_posteriors


class PosteriorMeans(NamedTuple):
    """Of θ and of the intra-cluster correlation; NaN where a cell has no items."""

    mean: np.ndarray
    icc: np.ndarray


def posterior_means(successes, sizes, *, prior):
    """Arguments as for `grid_posteriors.beta_binomial`."""
    right, size = np.broadcast_arrays(np.asarray(successes, float), np.asarray(sizes, float))
    right, size = (np.atleast_2d(x) for x in (right, size))
    found = np.full((2, len(size)), np.nan)
    for grid in beta_posteriors(right, size, prior):
        for parameter in range(2):
            share = special.expit(grid.values(parameter))
            found[parameter, grid.cells] = (share * grid.marginal(parameter)).sum(axis=1)
    return PosteriorMeans(*found.reshape(2, *np.shape(successes)[:-1]))
