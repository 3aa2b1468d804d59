"""Two models on items of their own, with any scores."""

import numpy as np
import pytest
from scipy import stats

from evalstats_plugin.stats.pairs import unpaired

UNIT = {"bounds": (0.0, 1.0), "mass": 0.5}
A, B = np.array([0]), np.array([1])


def rows(*scores):
    """Scores of several models, padded with NaN."""
    padded = np.full((len(scores), max(map(len, scores))), np.nan)
    for row, values in zip(padded, scores, strict=True):
        row[: len(values)] = values
    return padded


def alone(scores):
    """Each item as a cluster of its own."""
    return np.nan_to_num(scores), 1.0 * ~np.isnan(scores)


RNG = np.random.default_rng(4)
SCORES = rows(RNG.normal(0, 1, 12), RNG.normal(0.7, 3, 30), RNG.normal(0.2, 0.1, 5))
PARTIAL = rows([0.0, 0.5, 0.5, 1.0, 0.25], [0.9, 1.0, 0.8, 1.0, 1.0, 0.1, 0.7])


def test_welch_is_what_scipy_computes():
    """Difference, interval and p-value, of three pairs at once."""
    a, b = np.array([0, 0, 1]), np.array([1, 2, 2])
    low, high = unpaired.welch_t(*alone(SCORES), a, b, confidence_level=0.9)
    p_values = unpaired.two_sided(unpaired.welch_prob(*alone(SCORES), a, b))
    for i, (one, other) in enumerate(zip(a, b, strict=True)):
        x, y = (SCORES[k][~np.isnan(SCORES[k])] for k in (other, one))
        expected = stats.ttest_ind(x, y, equal_var=False)
        interval = expected.confidence_interval(0.9)

        assert interval == pytest.approx((low[i], high[i]), rel=1e-12)
        assert expected.pvalue == pytest.approx(p_values[i], rel=1e-10)


def test_copies_of_an_item_count_as_one():
    """Each item three times over, as a cluster: the interval is that of the items."""
    totals, sizes = alone(SCORES)
    once = unpaired.welch_t(totals, sizes, A, B, confidence_level=0.95)
    thrice = unpaired.welch_t(3 * totals, 3 * sizes, A, B, confidence_level=0.95)

    assert np.allclose(once, thrice, rtol=1e-12)


def test_scores_without_spread_have_no_t_interval():
    """P(better) is ½ if they are equal too, else unknown."""
    scores = rows([2.0, 2.0], [2.0, 2.0, 2.0], [5.0, 5.0])
    a, b = np.array([0, 0]), np.array([1, 2])
    low, _ = unpaired.welch_t(*alone(scores), a, b, confidence_level=0.95)
    prob = unpaired.welch_prob(*alone(scores), a, b)

    assert np.isnan(low).all()
    assert 0.5 == prob[0]
    assert np.isnan(prob[1])


def test_of_zeros_and_ones_the_posterior_is_that_of_two_betas():
    """Beta(½, ½) posteriors of both: the same limits and P(better)."""
    scores = rows(np.repeat([1.0, 0.0], [12, 8]), np.repeat([1.0, 0.0], [23, 7]))
    found = unpaired.dp_difference(scores, A, B, confidence_level=0.95, **UNIT)
    expected = unpaired.beta_difference(
        unpaired.independent_counts([12], 20, [23], 30), confidence_level=0.95, prior=(0.5, 0.5)
    )

    assert np.allclose(expected, found, rtol=0, atol=1e-10)


def test_betas_stand_for_posteriors_of_the_same_mean_and_variance():
    """Those of 300,000 draws of the Dirichlet weights, and so does the difference."""
    rng = np.random.default_rng(0)
    draws = []
    for row in PARTIAL:
        atoms = np.r_[0.0, row[~np.isnan(row)], 1.0]
        weights = rng.standard_gamma([0.5, *[1] * (len(atoms) - 2), 0.5], (300_000, len(atoms)))
        draws.append(weights @ atoms / weights.sum(axis=1))
    right, wrong = unpaired.dirichlet_process_betas(PARTIAL, **UNIT)
    found = unpaired.dp_difference(PARTIAL, A, B, confidence_level=0.95, **UNIT)
    difference = draws[1] - draws[0]

    assert np.mean(draws, axis=1) == pytest.approx(right / (right + wrong), abs=1e-3)
    assert np.std(draws, axis=1) == pytest.approx(stats.beta(right, wrong).std(), abs=1e-3)
    # The Beta variables are not the posteriors, but their difference is close to the posteriors'.
    assert np.quantile(difference, [0.025, 0.975]) == pytest.approx(
        [found.low[0], found.high[0]], abs=0.015
    )
    assert np.mean(difference > 0) == pytest.approx(found.prob_better[0], abs=0.01)


def test_bounds_scale_limits_and_exchanging_models_changes_the_sign():
    """Scores from 0 to 10 have limits ten times as wide; those of a - b are mirrored."""
    found = unpaired.dp_difference(PARTIAL, A, B, confidence_level=0.9, **UNIT)
    other = unpaired.dp_difference(PARTIAL, B, A, confidence_level=0.9, **UNIT)
    wide = unpaired.dp_difference(
        10 * PARTIAL, A, B, confidence_level=0.9, bounds=(0.0, 10.0), mass=0.5
    )

    assert np.allclose(found.low, -other.high, rtol=0, atol=1e-12)
    assert np.allclose(10 * found.low, wide.low, rtol=0, atol=1e-9)
    assert np.allclose(10 * found.high, wide.high, rtol=0, atol=1e-9)


def test_equal_scores_have_an_interval_with_width():
    """All 1 against all 1: P(better) exactly ½."""
    scores = rows([1.0] * 5, [1.0] * 5)
    found = unpaired.dp_difference(scores, A, B, confidence_level=0.95, **UNIT)

    assert 0.5 == found.prob_better[0]
    assert found.low[0] == -found.high[0]
    assert found.high[0] > 0.1
