"""Posterior densities on grids, against distributions that are known."""

import numpy as np
import pytest
from scipy import stats

from evalstats_plugin.stats import grid_posteriors

# Of two independent parameters: normal, and logistic with its slow tails.
MEANS, WIDTHS = np.array([0.0, 3.0, -8.0]), np.array([1.0, 0.01, 0.3])


def log_density(parameters, cells):
    x, y = parameters
    normal = -0.5 * ((x - MEANS[cells, None]) / WIDTHS[cells, None]) ** 2
    return normal[:, :, None] + stats.logistic.logpdf(y, loc=MEANS[cells, None])[:, None, :]


@pytest.mark.parametrize("sizes", [(40, 40), (12, 40), (40, 12)])
def test_quantiles_and_means_of_known_distributions(sizes):
    """Wherever the search begins, and with however few nodes."""
    centres, scales = [np.array([0.4, 2.0, 0.0])] * 2, [np.array([0.5, 0.02, 1.0])] * 2
    found = list(
        grid_posteriors.grids(log_density, centres, scales, sizes=sizes, n_series=1, coarse=17)
    )

    assert [0, 1, 2] == sorted(np.concatenate([grid.cells for grid in found]).tolist())
    for grid in found:
        mean, width = MEANS[grid.cells], WIDTHS[grid.cells]
        expected = stats.norm.ppf(0.025, mean, width)

        assert np.allclose(expected, grid.quantile(0, 0.025), rtol=0, atol=1e-8)
        assert np.allclose(mean, (grid.values(1) * grid.marginal(1)).sum(axis=1), atol=1e-8)
        assert np.allclose(1, grid.weights.sum(axis=(1, 2)))


def test_no_cells_have_no_grids():
    """Nor an error."""
    empty = [np.zeros(0)] * 2

    assert [] == list(
        grid_posteriors.grids(log_density, empty, empty, sizes=(8, 8), n_series=1, coarse=9)
    )
