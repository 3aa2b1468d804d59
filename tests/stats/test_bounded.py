"""Means of scores between known bounds."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalstats_plugin.stats import bounded

METHODS = {
    "dp_jeffreys": partial(bounded.dirichlet_process, mass=0.5),
    "dp_uniform": partial(bounded.dirichlet_process, mass=1.0),
    "gaffke": bounded.gaffke,
    "logit_t": bounded.logit_t,
}
QUARTERS = st.lists(st.sampled_from([0, 0.25, 0.5, 0.75, 1]), min_size=1, max_size=40)
CONTINUOUS = st.lists(st.floats(0, 1), min_size=1, max_size=40)
SCORES = QUARTERS | CONTINUOUS
every_method = pytest.mark.parametrize("name", sorted(METHODS))


def _drawn():
    """Rows of 1 to 40 scores, NaN after them: any numbers, quarters, and few or extreme ones."""
    rng = np.random.default_rng(0)
    scores = rng.random((36, 40))
    scores[::3] = np.round(scores[::3] * 4) / 4
    scores[1::6] = rng.choice([0.0, 5e-324, 1e-9, 0.3, 0.3 + 1e-9, 1 - 1e-9, 1.0], (6, 40))
    scores[np.arange(40) >= rng.integers(1, 41, (36, 1))] = np.nan
    return scores


DRAWN = _drawn()


def zeros_and_ones(n):
    """Every outcome of n items: k ones, then zeros."""
    k = np.arange(n + 1)
    return k, (np.arange(n) < k[:, None]).astype(float)


@pytest.mark.parametrize("n", [1, 5, 30, 200])
@pytest.mark.parametrize("level", [0.8, 0.95, 0.999])
class TestZerosAndOnes:
    def test_half_mass_is_jeffreys(self, n, level):
        """Extension to the estimate included: both then reach 0 or 1."""
        k, scores = zeros_and_ones(n)
        expected = bounded.jeffreys(k, n, confidence_level=level)

        actual = METHODS["dp_jeffreys"](scores, bounds=(0, 1), confidence_level=level)

        assert np.allclose(expected, actual, rtol=0, atol=1e-13)

    def test_unit_mass_is_the_uniform_prior(self, n, level):
        """The equal-tailed Beta posterior, but for the extension to the estimate."""
        k, scores = zeros_and_ones(n)
        low, high = bounded.beta_equal_tailed(k, n, confidence_level=level, prior=(1, 1))

        actual = METHODS["dp_uniform"](scores, bounds=(0, 1), confidence_level=level)

        expected = np.minimum(low, k / n), np.maximum(high, k / n)
        assert np.allclose(expected, actual, rtol=0, atol=1e-13)

    def test_gaffke_is_clopper_pearson(self, n, level):
        """The interval it generalises."""
        k, scores = zeros_and_ones(n)
        expected = bounded.clopper_pearson(k, n, confidence_level=level)

        actual = bounded.gaffke(scores, bounds=(0, 1), confidence_level=level)

        assert np.allclose(expected, actual, rtol=0, atol=1e-13)


def test_two_nearly_equal_scores_are_two_equal_ones():
    """The closed form for zeros and ones is the limit of the general path."""
    exact = bounded.gaffke([0, 0, 1, 1, 1], bounds=(0, 1), confidence_level=0.95)
    nearly = bounded.gaffke([0, 1e-9, 1 - 1e-9, 1, 1], bounds=(0, 1), confidence_level=0.95)

    assert np.allclose(exact, nearly, rtol=0, atol=1e-8)


def test_gaffke_agrees_with_its_definition_by_simulation():
    """Quantiles of the mean under random Dirichlet weights."""
    rng = np.random.default_rng(5)
    scores = np.array([0.1, 0.35, 0.35, 0.8, 1.0, 0.2, 0.55])
    weights = rng.dirichlet(np.ones(8), size=200_000)
    means = weights @ np.c_[np.r_[scores, 0.0], np.r_[scores, 1.0]]
    expected = np.quantile(means[:, 0], 0.025), np.quantile(means[:, 1], 0.975)

    actual = bounded.gaffke(scores, bounds=(0, 1), confidence_level=0.95)

    assert np.allclose(expected, actual, rtol=0, atol=3e-3)


def test_logit_t_by_hand():
    """Mean ½, standard error 1/√12, t quantile 3.182 on 3 degrees of freedom."""
    interval = bounded.logit_t([0, 0, 1, 1], bounds=(0, 1), confidence_level=0.95)

    half = 3.182446305284263 / np.sqrt(12) / 0.25
    expected = 1 / (1 + np.exp(half)), 1 / (1 + np.exp(-half))
    assert np.allclose(expected, interval, rtol=0, atol=1e-12)


@every_method
class TestProperties:
    @given(scores=SCORES)
    def test_has_width_stays_within_bounds_and_holds_the_mean(self, name, scores):
        """Equal scores and scores at a bound included."""
        low, high = METHODS[name](scores, bounds=(0, 1), confidence_level=0.95)

        assert 0 <= low < high <= 1
        assert low <= np.mean(scores) + 1e-15
        assert np.mean(scores) <= high + 1e-15

    def test_order_and_missing_scores_do_not_matter(self, name):
        """Items are exchangeable, and what was not scored says nothing."""
        shuffled = np.random.default_rng(1).permuted(DRAWN, axis=1)

        assert np.allclose(
            METHODS[name](DRAWN, bounds=(0, 1), confidence_level=0.95),
            METHODS[name](shuffled, bounds=(0, 1), confidence_level=0.95),
            rtol=0,
            atol=1e-11,
        )

    def test_more_confidence_gives_an_interval_around(self, name):
        """Intervals at two levels are nested."""
        levels = (0.5, 0.51, 0.95, 0.999)
        limits = [METHODS[name](DRAWN, bounds=(0, 1), confidence_level=c) for c in levels]
        low, high = np.stack(limits, axis=1)

        assert np.all(np.diff(low, axis=0) <= 1e-10)
        assert np.all(np.diff(high, axis=0) >= -1e-10)

    def test_units_and_direction_do_not_matter(self, name):
        """Percentages, and lower-is-better."""
        scores = np.round(DRAWN * 4) / 4
        low, high = METHODS[name](scores, bounds=(0, 1), confidence_level=0.95)

        percent = METHODS[name](100 * scores, bounds=(0, 100), confidence_level=0.95)
        losses = METHODS[name](1 - scores, bounds=(0, 1), confidence_level=0.95)

        assert np.allclose((100 * low, 100 * high), percent, rtol=0, atol=1e-8)
        assert np.allclose((1 - high, 1 - low), losses, rtol=0, atol=1e-10)

    def test_cells_of_different_size_do_not_disturb_each_other(self, name):
        """A ragged batch gives what its cells give alone."""
        rng = np.random.default_rng(0)
        scores = np.full((3, 4, 50), np.nan)
        for index in np.ndindex(3, 4):
            n = rng.integers(0, 50)
            kind = rng.integers(3)
            values = rng.uniform(size=n)
            scores[index][:n] = [values, np.round(values * 4) / 4, np.round(values)][kind]

        together = METHODS[name](scores, bounds=(0, 1), confidence_level=0.95)

        for index in np.ndindex(3, 4):
            alone = METHODS[name](scores[index], bounds=(0, 1), confidence_level=0.95)
            assert np.allclose(
                np.array(alone), np.array(together)[:, *index], rtol=0, atol=1e-12, equal_nan=True
            )

    def test_no_scores_give_nan(self, name):
        """A cell without data has no interval."""
        assert np.isnan(METHODS[name]([np.nan], bounds=(0, 1), confidence_level=0.95)).all()
        assert np.isnan(METHODS[name]([], bounds=(0, 1), confidence_level=0.95)).all()

    def test_scores_beyond_the_bounds_are_refused(self, name):
        """Percentages announced as shares."""
        with pytest.raises(ValueError, match=r"within their bounds \(0, 1\)"):
            METHODS[name]([0.5, 50.0], bounds=(0, 1), confidence_level=0.95)

    def test_bounds_the_wrong_way_round_are_refused(self, name):
        """Lower first."""
        with pytest.raises(ValueError, match="low < high"):
            METHODS[name]([0.5], bounds=(1, 0), confidence_level=0.95)


def test_prior_mass_must_be_positive():
    """Without mass at the bounds equal scores would have no width."""
    with pytest.raises(ValueError, match="mass must be positive"):
        bounded.dirichlet_process([0.5], bounds=(0, 1), mass=0, confidence_level=0.95)


def test_scores_a_rounding_error_beyond_their_bounds_are_at_them():
    """Means of epochs; farther out they are refused."""
    found = bounded.to_unit([2 - 2e-9, 2.0, 3.5, 5.0, 5 + 2e-9, np.nan], (2, 5))

    assert found[:5].tolist() == [0, 0, 0.5, 1, 1]
    assert np.isnan(found[5])
    for beyond in (2 - 4e-9, 5 + 4e-9):
        with pytest.raises(ValueError, match="within their bounds"):
            bounded.to_unit([beyond], (2, 5))
