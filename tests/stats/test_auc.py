"""Area under the curve and its intervals."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from evalstats_plugin.stats import metric_intervals, metrics

LEVEL = {"confidence_level": 0.95}


def drawn(seed, n=30, shift=1.0):
    rng = np.random.default_rng(seed)
    positive = np.arange(n) < n // 3
    return positive, np.round(rng.normal(size=n) + shift * positive, 1)


def test_the_area_is_that_of_scikit_learn_and_of_all_pairs():
    """Ties count half."""
    for seed in range(30):
        positive, scores = drawn(seed)
        above = np.sign(scores[positive][:, None] - scores[~positive])

        assert metrics.auc(positive, scores) == pytest.approx(roc_auc_score(positive, scores))
        assert metrics.auc(positive, scores) == pytest.approx((above.mean() + 1) / 2)


def test_newcombe_limits_are_z_standard_errors_away():
    """Those of the limit itself."""
    for seed in range(20):
        positive, scores = drawn(seed, shift=2.0)
        area = metrics.auc(positive, scores)
        for limit in metric_intervals.auc_newcombe(positive, scores, **LEVEL):
            if limit in (0, 1):
                assert limit == area
                continue
            spread = 1 + 14 * ((1 - limit) / (2 - limit) + limit / (1 + limit))
            error = np.sqrt(limit * (1 - limit) * spread / (10 * 20))

            assert abs(limit - area) == pytest.approx(1.959963985 * error, rel=1e-6)


def test_perfect_separation_has_an_interval_with_width():
    """The limits mirror each other when labels are swapped."""
    positive = np.array([True, True, True, False, False])
    low, high = metric_intervals.auc_newcombe(positive, np.array([3.0, 4, 5, 1, 2]), **LEVEL)
    mirrored = metric_intervals.auc_newcombe(~positive, np.array([3.0, 4, 5, 1, 2]), **LEVEL)

    assert high == 1
    assert 0.3 < low < 0.6
    assert (float(1 - mirrored.high), float(mirrored.low)) == pytest.approx((float(low), 0))


def test_one_kind_of_items_has_no_area():
    """Nothing to compare with."""
    low, _ = metric_intervals.auc_newcombe(np.ones(3, dtype=bool), np.arange(3.0), **LEVEL)

    assert np.isnan(metrics.auc(np.ones(3, dtype=bool), np.arange(3.0)))
    assert np.isnan(low)
    with pytest.raises(ValueError, match="must not be missing"):
        metrics.auc(np.array([True, False]), np.array([np.nan, 1.0]))
