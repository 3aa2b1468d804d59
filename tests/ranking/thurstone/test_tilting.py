"""Normals in boxes: probabilities known in closed form, and draws beside plain rejection."""

import numpy as np
import pytest
from scipy import stats

from evalstats_plugin.errors import DesignError
from evalstats_plugin.ranking.thurstone.truncated import (
    acceptance,
    box_probability,
    draw,
    tilted_box,
)

ABOVE = np.inf


def orthant(correlation, m):
    covariance = np.full((m, m), correlation) + (1 - correlation) * np.eye(m)
    return tilted_box(covariance, np.zeros(m), np.full(m, ABOVE))


@pytest.mark.parametrize(
    ("box", "probability"),
    [
        # Sheppard: 1/4 + arcsin ρ / 2π, and 1/8 + 3 arcsin ρ / 4π in three dimensions.
        (orthant(0.6, 2), 1 / 4 + np.arcsin(0.6) / (2 * np.pi)),
        (orthant(-0.4, 2), 1 / 4 + np.arcsin(-0.4) / (2 * np.pi)),
        (orthant(-0.3, 3), 1 / 8 + 3 * np.arcsin(-0.3) / (4 * np.pi)),
        # Correlation ½: any of m + 1 exchangeable normals may be the smallest.
        (orthant(0.5, 10), 1 / 11),
        (orthant(0.5, 60), 1 / 61),
    ],
)
def test_orthants_of_equal_correlation_have_their_probabilities(box, probability):
    found = box_probability(box, 20_000, np.random.default_rng(0))

    assert found.std_error < 0.01
    assert found.value == pytest.approx(np.log(probability), abs=4 * found.std_error)


def test_a_box_of_independent_coordinates_is_exact():
    low, high = np.array([-1.0, 0.5, 4.0]), np.array([0.2, np.inf, 4.1])
    sd = np.array([1.0, 2.0, 3.0])
    found = box_probability(tilted_box(np.diag(sd**2), low, high), 10, np.random.default_rng(0))
    expected = np.log(stats.norm.cdf(high / sd) - stats.norm.cdf(low / sd)).sum()

    assert found.value == pytest.approx(expected, abs=1e-12)
    assert found.std_error < 1e-12


def test_a_box_agrees_with_scipy():
    rng = np.random.default_rng(3)
    a = rng.normal(size=(6, 6))
    covariance = a @ a.T + np.eye(6)
    low, high = -rng.uniform(0, 2, 6), rng.uniform(0, 3, 6)
    found = box_probability(tilted_box(covariance, low, high), 20_000, rng)
    expected = stats.multivariate_normal(cov=covariance).cdf(high, lower_limit=low)

    assert found.value == pytest.approx(np.log(expected), abs=4 * found.std_error + 1e-4)


def test_draws_are_those_of_plain_rejection():
    """Four coordinates: means, covariances and margins as of the normals that fall inside."""
    rng = np.random.default_rng(5)
    a = rng.normal(size=(4, 4))
    covariance = a @ a.T + np.eye(4)
    low, high = np.array([0.0, -1.0, 0.3, -np.inf]), np.array([np.inf, 1.0, 5.0, 0.5])
    plain = rng.multivariate_normal(np.zeros(4), covariance, size=400_000)
    plain = plain[((plain > low) & (plain < high)).all(axis=1)]
    found = draw(tilted_box(covariance, low, high), 20_000, rng, least=0.01).values

    assert ((found > low) & (found < high)).all()
    error = np.sqrt(plain.var(0) * (1 / len(plain) + 1 / len(found)))
    assert (np.abs(found.mean(0) - plain.mean(0)) < 4 * error).all()
    np.testing.assert_allclose(np.cov(found.T), np.cov(plain.T), atol=0.08)
    assert min(stats.ks_2samp(*pair).pvalue for pair in zip(found.T, plain.T, strict=True)) > 1e-4


def test_improbable_boxes_can_be_drawn_from():
    """Plain rejection would take more than e^60 proposals for one."""
    box = tilted_box(np.eye(20) + 1, np.full(20, 12.0), np.full(20, ABOVE))

    assert box_probability(box, 1000, np.random.default_rng(0)).value < -60
    assert acceptance(box, 1000, np.random.default_rng(0)) > 0.1
    assert (draw(box, 100, np.random.default_rng(0), least=0.01).values > 12).all()


def test_too_low_acceptance_is_an_error():
    with pytest.raises(DesignError, match=r"which is too few: take estimator='hmc'"):
        draw(orthant(0.9, 40), 1000, np.random.default_rng(0), least=1.0)
