"""The standard normal between bounds, against quadrature and far in the tails."""

import numpy as np
import pytest
from scipy import stats

from evalstats_plugin.ranking.thurstone.design import log_probability, slopes

INF = np.inf


@pytest.mark.parametrize(
    ("low", "high"),
    [(-INF, 0.3), (0.3, INF), (-1.0, 2.0), (-0.1, 0.1), (6.0, 6.5), (-9.0, -8.0), (-INF, INF)],
)
def test_log_probability_is_that_of_scipy(low, high):
    found = log_probability(np.array([low]), np.array([high]))[0]
    # Mirrored into the lower tail, where SciPy's difference keeps its digits.
    a, b = (low, high) if low < -high else (-high, -low)

    assert found == pytest.approx(np.log(stats.norm.cdf(b) - stats.norm.cdf(a)), abs=1e-12)


def test_probabilities_beyond_the_smallest_number_have_logarithms():
    """Mills: P(e > x) ≈ φ(x) / x · (1 - 1/x²)."""
    found = log_probability(np.array([60.0]), np.array([INF]))[0]

    assert found == pytest.approx(
        -1800 - np.log(60 * np.sqrt(2 * np.pi)) + np.log1p(-1 / 3600), abs=1e-5
    )


def test_slopes_are_those_of_the_logarithm():
    low, high, h = np.array([-INF, -0.4, 1.0, 3.0]), np.array([0.5, 0.9, INF, 3.2]), 1e-4
    at = [log_probability(low - d, high - d) for d in (-h, 0.0, h)]
    found = slopes(low, high)

    np.testing.assert_allclose(found.log_probability, at[1], atol=1e-14)
    np.testing.assert_allclose(found.first, (at[2] - at[0]) / (2 * h), rtol=1e-6)
    np.testing.assert_allclose(found.second, (at[2] - 2 * at[1] + at[0]) / h**2, rtol=1e-5)
    assert (found.second < 0).all()
