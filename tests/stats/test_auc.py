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


def test_delong_is_the_variance_of_placements():
    """By the definition: structural components from the matrix of all pairs [DDC88]."""
    positive, scores = drawn(3)
    wins = (np.sign(scores[positive][:, None] - scores[~positive]) + 1) / 2
    variance = wins.mean(axis=1).var(ddof=1) / 10 + wins.mean(axis=0).var(ddof=1) / 20
    area = wins.mean()
    middle, half = np.log(area / (1 - area)), 1.959963985 * np.sqrt(variance)
    expected = [1 / (1 + np.exp(-(middle + side * half / (area * (1 - area))))) for side in (-1, 1)]

    assert metric_intervals.auc_delong(positive, scores, **LEVEL) == pytest.approx(expected)


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


@pytest.mark.parametrize("method", [metric_intervals.auc_newcombe, metric_intervals.auc_delong])
def test_perfect_separation_is_not_certainty(method):
    """The limits mirror each other when labels are swapped."""
    positive = np.array([True, True, True, False, False])
    low, high = method(positive, np.array([3.0, 4, 5, 1, 2]), **LEVEL)
    mirrored = method(~positive, np.array([3.0, 4, 5, 1, 2]), **LEVEL)

    assert high == 1
    assert 0.3 < low < 0.6
    assert (float(1 - mirrored.high), float(mirrored.low)) == pytest.approx((float(low), 0))


def test_the_bayesian_bootstrap_is_repeatable_and_says_when_it_cannot():
    """No weights can change a perfect order."""
    positive, scores = drawn(1)
    more = {**LEVEL, "n_resamples": 999}
    first, again = (
        metric_intervals.auc_bayesian_bootstrap(
            positive, scores, rng=np.random.default_rng(5), **more
        )
        for _ in range(2)
    )
    separated = metric_intervals.auc_bayesian_bootstrap(
        positive, positive * 1.0, rng=np.random.default_rng(5), **more
    )

    assert first == again
    assert first.low < metrics.auc(positive, scores) < first.high
    assert np.isnan(separated.low)


def test_one_kind_of_items_has_no_area():
    """Nothing to compare with."""
    low, _ = metric_intervals.auc_newcombe(np.ones(3, dtype=bool), np.arange(3.0), **LEVEL)

    assert np.isnan(metrics.auc(np.ones(3, dtype=bool), np.arange(3.0)))
    assert np.isnan(low)
    with pytest.raises(ValueError, match="must not be missing"):
        metrics.auc(np.array([True, False]), np.array([np.nan, 1.0]))
