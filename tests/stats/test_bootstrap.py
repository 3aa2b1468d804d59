"""Bootstrap intervals for a mean."""

import numpy as np
import pytest
from scipy import stats

from evalstats_plugin.stats import means

METHODS = {
    "percentile": means.percentile_bootstrap,
    "bca": means.bca_bootstrap,
    "studentised": means.studentised_bootstrap,
}
every_method = pytest.mark.parametrize("name", sorted(METHODS))
SKEWED = np.random.default_rng(11).lognormal(size=40)


def interval(name, scores, *, seed=0, n_resamples=4000, level=0.95):
    return METHODS[name](
        scores,
        confidence_level=level,
        rng=np.random.default_rng(seed),
        n_resamples=n_resamples,
    )


@pytest.mark.parametrize("name", ["percentile", "bca"])
def test_agrees_with_scipy(name):
    """scipy.stats.bootstrap on the same scores, within simulation error."""
    method = {"percentile": "percentile", "bca": "BCa"}[name]
    expected = stats.bootstrap(
        (SKEWED,), np.mean, method=method, n_resamples=40_000, random_state=np.random.default_rng(1)
    ).confidence_interval

    actual = interval(name, SKEWED, n_resamples=40_000)

    assert np.allclose(expected, actual, rtol=0, atol=0.02)


def test_percentile_of_two_scores_by_enumeration():
    """Means 0, ½, 1 with chances ¼, ½, ¼."""
    low, high = interval("percentile", [0.0, 1.0], level=0.6)

    assert (low, high) == (0.0, 1.0)

    low, high = interval("percentile", [0.0, 1.0], level=0.4)
    assert (low, high) == (0.5, 0.5)


def test_studentised_of_normal_scores_is_near_students_t():
    """Where the t interval is exact, the bootstrap estimates the same quantiles."""
    scores = stats.norm.ppf((np.arange(60) + 0.5) / 60)
    expected = stats.t.interval(0.95, 59, 0, scores.std(ddof=1) / np.sqrt(60))

    assert np.allclose(expected, interval("studentised", scores), rtol=0, atol=0.03)


@every_method
class TestProperties:
    def test_several_levels_are_answered_as_each_alone(self, name):
        """From the same resamples, with an axis before those of the cells."""
        scores = np.stack([SKEWED, SKEWED**2, np.full(40, 2.0)]).reshape(3, 1, 40)
        levels = [0.5, 0.9, 0.99]
        low, high = interval(name, scores, n_resamples=500, level=levels)

        for k, level in enumerate(levels):
            alone = interval(name, scores, n_resamples=500, level=level)
            np.testing.assert_array_equal((low[k], high[k]), alone)
        with pytest.raises(ValueError, match="between 0 and 1"):
            interval(name, scores, level=[0.5, 95.0])

    def test_the_seed_decides(self, name):
        """Same generator, same limits; another one, others."""
        assert interval(name, SKEWED) == interval(name, SKEWED)
        assert interval(name, SKEWED) != interval(name, SKEWED, seed=1)

    def test_blocks_do_not_matter(self, name, monkeypatch):
        """Memory is bounded without changing a digit."""
        expected = interval(name, SKEWED, n_resamples=300)
        monkeypatch.setattr(means, "BLOCK_SIZE", 100)

        assert expected == interval(name, SKEWED, n_resamples=300)

    def test_missing_scores_do_not_count(self, name):
        """Only their place in the random stream does."""
        padded = np.r_[np.nan, SKEWED, np.nan]

        assert np.allclose(interval(name, SKEWED), interval(name, padded), rtol=0.08)

    def test_nothing_to_resample_gives_nan(self, name):
        """No scores, one, or all equal: a width of 0 would be a lie."""
        scores = np.full((2, 2, 5), np.nan)
        scores[0, 1, 0] = 0.3
        scores[1, 0] = 0.1
        scores[1, 1] = [0, 1, 2, 3, 4]

        low, high = interval(name, scores)

        assert np.isnan(low).tolist() == [[True, True], [True, False]]
        assert np.isnan(high).tolist() == [[True, True], [True, False]]
        assert low[1, 1] < 2 < high[1, 1]

    def test_more_confidence_gives_an_interval_around(self, name):
        """With the same resamples."""
        inner, outer = interval(name, SKEWED, level=0.8), interval(name, SKEWED, level=0.95)

        assert outer.low < inner.low < inner.high < outer.high


def test_studentised_has_no_limit_where_resamples_have_no_spread():
    """Two scores: half of all resamples are of one score alone."""
    assert np.isnan(interval("studentised", [0.0, 1.0])).all()


def test_bca_limits_are_quantiles_at_corrected_levels():
    """Efron (1987) by another hand: NumPy's quantile of each cell at its own two levels."""
    cells = np.stack(
        [SKEWED[:20], np.round(SKEWED[20:]), -SKEWED[:20], np.r_[SKEWED[:15], [np.nan] * 5]]
    )
    low, high = interval("bca", cells, n_resamples=801, level=0.9)
    # The same draws: cells are sorted, and those of equal places are drawn together.
    ordered = np.sort(cells, axis=1)
    chosen = np.random.default_rng(0).random((801, *cells.shape))
    for i, cell in enumerate(ordered):
        scores = cell[~np.isnan(cell)]
        n = len(scores)
        drawn = scores[(chosen[:, i, :n] * n).astype(int)].mean(axis=1)
        below = (np.mean(drawn < scores.mean()) + np.mean(drawn <= scores.mean())) / 2
        bias = stats.norm.ppf(below)
        without = np.array([np.delete(scores, k).mean() for k in range(n)])
        rest = without.mean() - without
        acceleration = (rest**3).sum() / (6 * (rest**2).sum() ** 1.5)
        for tail, limit in ((0.05, low[i]), (0.95, high[i])):
            z = bias + stats.norm.ppf(tail)
            share = stats.norm.cdf(bias + z / (1 - acceleration * z))
            assert limit == pytest.approx(np.quantile(drawn, share), rel=1e-9)


def test_quantiles_of_columns_reach_from_the_least_to_the_largest():
    """Each column at its own level; NaN has none."""
    values = np.random.default_rng(4).normal(size=(7, 5))
    levels = np.array([0.0, 1.0, 0.31, np.nan, 0.5])
    found = means._column_quantiles(values, levels)
    expected = [np.quantile(values[:, k], level) for k, level in enumerate(levels[:3])]

    np.testing.assert_allclose(found[:3], expected, rtol=1e-12)
    assert np.isnan(found[3])
    assert found[4] == np.sort(values[:, 4])[3]
