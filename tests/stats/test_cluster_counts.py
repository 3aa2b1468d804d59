"""Likelihood of counts in clusters."""

import math

import numpy as np
import pytest

from evalstats_plugin.stats import grid_posteriors


def factor_by_factor(counts, theta, ratio):
    return math.fsum(math.log(theta + j * ratio) for count in counts for j in range(count))


@pytest.mark.parametrize(
    "counts", [[3, 0, 5, 5, 1], [64, 2], [65, 2, 0], [1000, 70, 70, 3], [20_000], [0, 0]]
)
@pytest.mark.parametrize("ratio", [1e-14, 1e-6, 0.03, 1.0, 1e6])
@pytest.mark.parametrize("theta", [1e-9, 0.3, 1.0])
def test_products_of_few_and_of_giant_clusters_agree_with_their_factors(counts, theta, ratio):
    """The definition, summed exactly; gamma functions would lose all digits at small ratios."""
    found = grid_posteriors.log_product(
        grid_posteriors.tails([counts]), np.array([[theta]]), np.array([[ratio]])
    )

    assert factor_by_factor(counts, theta, ratio) == pytest.approx(
        float(found[0, 0]), rel=1e-13, abs=1e-11
    )


def test_cells_do_not_affect_each_other():
    """One of them has a giant cluster; parts have the columns that they need."""
    counts = grid_posteriors.tails([[3, 1, 0], [500, 2, 500], [0, 0, 0]])
    part = counts.part(np.array([2, 0]))
    found = grid_posteriors.log_product(part, np.full((2, 1), 0.3), np.full((2, 1), 0.1))

    assert (2, 3) == part.more_than.shape
    assert (2, 0) == part.excess.shape
    assert [0.0, factor_by_factor([3, 1], 0.3, 0.1)] == pytest.approx(found[:, 0].tolist())
