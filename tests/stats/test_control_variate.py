"""Mean of a model's scores with the help of something known of every item."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from evalstats_plugin.stats import means
from evalstats_plugin.stats.interval import Interval
from evalstats_plugin.stats.survey import regression

LEVEL = {"confidence_level": 0.95}
DAMPED = {"unseen_errors": "damped", **LEVEL}


def sampled(n, n_population, seed=0):
    """Scores of n of the items and a covariate of all of them."""
    rng = np.random.default_rng(seed)
    covariate = rng.uniform(size=n_population)
    scores = 1.0 * (rng.uniform(size=n_population) < 0.1 + 0.8 * covariate)
    scores[rng.permutation(n_population)[n:]] = np.nan
    return scores, covariate


def by_hat_matrix(scores, covariate, leverage_power):
    """Weights of the scores in the prediction for the mean covariate, and squared residuals."""
    seen = ~np.isnan(scores)
    design = np.stack([np.ones(seen.sum()), covariate[seen]], axis=1)
    inverse = np.linalg.inv(design.T @ design)
    hat = design @ inverse @ design.T
    residuals = scores[seen] - hat @ scores[seen]
    weights = design @ inverse @ [1, covariate.mean()]
    return weights, residuals**2 / (1 - np.diag(hat)) ** leverage_power


def test_the_estimate_is_the_regression_line_at_the_mean_of_all_items():
    """As numpy.polyfit has it: those seen and those predicted together."""
    scores, covariate = sampled(20, 100)
    seen = ~np.isnan(scores)
    slope, intercept = np.polyfit(covariate[seen], scores[seen], 1)
    everything = np.where(seen, np.nan_to_num(scores), intercept + slope * covariate)
    found = regression.adjust_to_benchmark(scores, covariate)

    assert (20, 100) == (found.n, found.population)
    assert float(found.slope) == pytest.approx(slope, rel=1e-12)
    assert float(found.estimate) == pytest.approx(intercept + slope * covariate.mean(), rel=1e-12)
    # The residuals of those seen sum to 0, so that the mean of all is the same.
    assert float(found.estimate) == pytest.approx(everything.mean(), rel=1e-12)
    far = regression.adjust_to_benchmark(scores + 2.0**40, covariate)
    assert float(far.slope) == pytest.approx(slope, rel=1e-9)


@pytest.mark.parametrize("leverage_power", [1, 2])
def test_variances_are_those_of_the_hat_matrix(leverage_power):
    """Of the scored items' weights, and of the items not scored; HC2 and HC3."""
    scores, covariate = sampled(15, 60)
    weights, squared = by_hat_matrix(scores, covariate, leverage_power)
    more = {"leverage_power": leverage_power}
    benchmark = regression.adjust_to_benchmark(scores, covariate, **more)

    expected = ((weights - 1 / 60) ** 2 * squared).sum() + 45 / 60**2 * squared.mean()
    assert float(benchmark.variance) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("value", [1 / 3, -123456789.1, 1e9 + 0.1])
def test_a_covariate_without_spread_gains_nothing(value):
    """The plain mean with its standard error and finite-population correction, exactly."""
    scores, _ = sampled(37, 80)
    found = regression.adjust_to_benchmark(scores, np.full(80, value))
    expected = float(means.std_error(scores)) ** 2

    assert float(np.nanmean(scores)) == pytest.approx(float(found.estimate), rel=1e-12)
    assert 0.0 == float(found.slope)
    assert float(found.variance) == pytest.approx(expected * (1 - 37 / 80), rel=1e-12)
    assert float(found.gain) == pytest.approx(1, rel=1e-12)


def test_all_items_scored_leave_nothing_open():
    """Their mean, with an interval of no width."""
    scores, covariate = sampled(40, 40)
    found = regression.adjust_to_benchmark(scores, covariate)
    interval = regression.adjusted_bounded_interval(found, **DAMPED)

    assert np.allclose(scores.mean(), [found.estimate, *interval], rtol=0, atol=1e-12)


@pytest.mark.parametrize("unseen_errors", ["full", "damped"])
def test_zero_residuals_still_give_an_interval_with_width(unseen_errors):
    """A covariate that was never wrong in 20 items, and a model that was always right."""
    covariate = np.tile([1.0, 1.0, 0.0, 1.0], 50)
    for truth in (covariate, np.ones(200)):
        scores = np.where(np.arange(200) < 20, truth, np.nan)
        found = regression.adjust_to_benchmark(scores, covariate)
        low, high = regression.adjusted_bounded_interval(
            found, unseen_errors=unseen_errors, **LEVEL
        )

        assert 0.05 < high - low < 0.4
        assert low <= truth.mean() <= high


def every_sample():
    """Each sample of 9 of 12 items once, of scores that go along with a covariate."""
    covariate = np.array([0.1, 0.2, 0.25, 0.3, 0.45, 0.5, 0.55, 0.7, 0.75, 0.8, 0.9, 0.95])
    scores = np.array([0.0, 0.2, 0.1, 0.4, 0.3, 0.7, 0.5, 0.6, 1.0, 0.7, 1.0, 0.8])
    where = np.array(list(combinations(range(12), 9)))
    taken = np.zeros((len(where), 12), dtype=bool)
    np.put_along_axis(taken, where, True, axis=1)  # noqa: FBT003 - NumPy's own
    return np.where(taken, scores, np.nan), covariate, scores.mean()


def test_over_all_samples_it_covers_and_is_shorter_than_without():
    """Exact: 220 samples of one small benchmark, of nine items each."""
    scores, covariate, truth = every_sample()
    found = regression.adjust_to_benchmark(scores, covariate)
    plain = regression.adjust_to_benchmark(scores, np.zeros(12))

    def share(interval: Interval) -> float:
        return float(np.mean((interval.low <= truth) & (truth <= interval.high)))

    adjusted = regression.adjusted_t_interval(found, **LEVEL)
    without = regression.adjusted_t_interval(plain, **LEVEL)
    half = stats.t.ppf(0.975, 9 - 2) * np.sqrt(found.variance)
    assert np.allclose(adjusted, (found.estimate - half, found.estimate + half), rtol=1e-9)
    assert share(adjusted) >= 0.95
    assert share(regression.adjusted_bounded_interval(found, **DAMPED)) >= 0.95
    assert np.mean(adjusted.high - adjusted.low) < 0.65 * np.mean(without.high - without.low)
    assert abs(found.estimate.mean() - truth) < 0.01


def test_unscored_items_change_the_estimate_only_through_the_covariate():
    """Items nothing is known of are none of the population."""
    scores, covariate = sampled(20, 50)
    expected = regression.adjust_to_benchmark(scores, covariate)
    longer = (np.append(scores, [np.nan, 1.0]), np.append(covariate, [np.nan, np.nan]))

    for a, b in zip(expected, regression.adjust_to_benchmark(*longer), strict=True):
        assert float(a) == pytest.approx(float(b), rel=1e-12)


def test_models_do_not_disturb_each_other():
    """A batch gives what its models give alone; no scores give NaN."""
    parts = [sampled(n, 60, seed=n) for n in (5, 20, 60)]
    scores = np.stack([*(s for s, _ in parts), np.full(60, np.nan)])
    covariate = np.stack([*(x for _, x in parts), np.ones(60)])
    together = regression.adjust_to_benchmark(scores, covariate)
    limits = regression.adjusted_bounded_interval(together, **DAMPED)

    for i, (y, x) in enumerate(parts):
        alone = regression.adjust_to_benchmark(y, x)
        assert np.allclose([*alone], [each[i] for each in together], rtol=1e-12, atol=0)
    assert np.isnan([together.estimate[3], limits.low[3], limits.high[3]]).all()


@given(seed=st.integers(0, 10**6), n=st.integers(2, 30), scale=st.floats(0.01, 100))
def test_the_covariates_scale_does_not_matter(seed, n, scale):
    """Moved and stretched it says the same; the interval stays in bounds around the estimate."""
    scores, covariate = sampled(n, 40, seed)
    one = regression.adjust_to_benchmark(scores, covariate)
    other = regression.adjust_to_benchmark(scores, 3 - scale * covariate)
    low, high = regression.adjusted_bounded_interval(one, **DAMPED)

    assert float(one.estimate) == pytest.approx(float(other.estimate), abs=1e-9)
    assert float(one.variance) == pytest.approx(float(other.variance), abs=1e-9)
    assert 0 <= low <= np.clip(one.estimate, 0, 1) + 1e-12
    assert np.clip(one.estimate, 0, 1) - 1e-12 <= high <= 1


@pytest.mark.parametrize("scale", [2.0**-40, 2.0**-10, 1000.0, 2.0**40])
def test_a_covariate_of_any_size_is_taken_alike(scale):
    """Of about 1e-11 it once counted as equal for all items, and was left out."""
    scores, covariate = sampled(20, 50)
    one = regression.adjust_to_benchmark(scores, covariate)
    other = regression.adjust_to_benchmark(scores, scale * covariate)

    assert np.allclose([*one], [*other._replace(slope=scale * other.slope)], rtol=1e-12, atol=0)


def test_one_of_the_two_ways_to_count_unseen_errors():
    """By name."""
    found = regression.adjust_to_benchmark(*sampled(20, 40))

    with pytest.raises(ValueError, match="'full' or 'damped'"):
        regression.adjusted_bounded_interval(found, unseen_errors="half", **LEVEL)
