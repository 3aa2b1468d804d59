"""Intervals and p-values that stay valid however often one looks."""

from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from evalstats_plugin.stats import bounded, sequential
from evalstats_plugin.stats.pairs import paired
from evalstats_plugin.stats.pairs.paired import paired_counts

LEVEL = {"confidence_level": 0.95}
UNIT = {"bounds": (0, 1), "confidence_level": 0.95}


def capital(scores, mean):
    """What the module's docstring says, by numerical integration over the angle of q."""

    def won(angle):
        q = np.sin(angle) ** 2
        return np.prod(scores * q / mean + (1 - scores) * (1 - q) / (1 - mean)) * 2 / np.pi

    return integrate.quad(won, 0, np.pi / 2, epsabs=1e-13, epsrel=1e-12, limit=200)[0]


@cache
def limits_of_every_outcome(method, n_items):
    """Limits of each number of successes, in an array for each n up to `n_items`."""
    k, n = np.tril_indices(n_items + 1)[::-1]
    limits = np.array(method(k[1:], n[1:], **LEVEL))
    return np.split(limits, np.cumsum(np.arange(2, n_items + 1)), axis=1)


def ever_left_out(method, truth, n_items):
    """Exact: probability that at some n up to `n_items` the interval leaves out the proportion."""
    paths, caught = np.array([1.0]), 0.0
    for low, high in limits_of_every_outcome(method, n_items):
        paths = np.append(paths, 0.0) * (1 - truth) + np.append(0.0, paths) * truth
        outside = (truth < low - 1e-12) | (high + 1e-12 < truth)
        caught += paths[outside].sum()
        paths[outside] = 0.0
    return caught


@pytest.mark.parametrize(("k", "n"), [(3, 10), (80, 100), (1, 400), (999, 1000), (7, 7)])
def test_limits_are_where_the_capital_reaches_twenty(k, n):
    """By definition, the capital found by numerical integration."""
    scores = (np.arange(n) < k).astype(float)
    low, high = (float(limit) for limit in sequential.beta_mixture(k, n, **LEVEL))

    assert capital(scores, low) == pytest.approx(20, rel=1e-7)
    assert k == n or capital(scores, high) == pytest.approx(20, rel=1e-7)


@pytest.mark.parametrize("truth", [0.05, 0.3, 0.5, 0.8, 0.97])
def test_all_looks_together_keep_the_level(truth):
    """At each of 250 looks, by exact sums over paths; peeking at Wilson's intervals does not."""
    assert ever_left_out(sequential.beta_mixture, truth, 250) <= 0.05
    assert ever_left_out(bounded.wilson, truth, 250) > 0.3


def test_peeking_at_identical_models_finds_hardly_any_difference():
    """Exact, over 300 items that tell them apart; with McNemar's mid-p every third time it does."""
    false = {}
    for name, test in (
        ("sequential", sequential.paired_p_value),
        ("mid-p", paired.mcnemar_mid_p),
    ):
        paths, caught = np.array([1.0]), 0.0
        for n in range(1, 301):
            paths = (np.append(paths, 0.0) + np.append(0.0, paths)) / 2
            k = np.arange(n + 1)
            found = test(paired_counts(0 * k, n - k, k, 0 * k)) <= 0.05
            caught += paths[found].sum()
            paths[found] = 0.0
        false[name] = caught

    assert false["sequential"] <= 0.05
    assert false["mid-p"] > 0.3


@pytest.mark.parametrize("scores", [[0.25, 0.5, 0.5, 1.0, 0.75, 0.0], [0.5] * 40, [0.75, 1.0]])
def test_limits_of_partial_credit_are_where_the_capital_reaches_twenty(scores):
    """By definition; these scores lie on the grid."""
    values = np.array(scores)
    low, high = (float(limit) for limit in sequential.betting_mixture(values, **UNIT))

    assert capital(values, low) == pytest.approx(20, rel=1e-6)
    assert capital(values, high) == pytest.approx(20, rel=1e-6)


def test_splitting_scores_only_lowers_the_capital_and_hardly():
    """Thirds are no points of the grid."""
    scores = np.repeat([0.0, 1 / 3, 2 / 3, 1.0], [2, 10, 25, 8])
    exact = 1 / capital(scores, 0.4)
    found = float(sequential.p_value(scores, bounds=(0, 1), mean=0.4))

    assert exact <= found <= exact * 1.001


def test_a_true_mean_wins_a_bettor_nothing():
    """P(p ≤ a) ≤ a for every a: exact sums over all outcomes of 7 items worth 0, ½ or 1."""
    chances = np.array([0.2, 0.5, 0.3])
    outcomes = np.array(list(product([0, 1, 2], repeat=7)))
    probability = chances[outcomes].prod(axis=1)
    p = sequential.p_value(outcomes / 2, bounds=(0, 1), mean=0.55)
    order = np.argsort(p)

    reached = np.cumsum(probability[order])
    last_of_ties = np.append(np.diff(p[order]) > 1e-12, True)
    assert np.all(reached[last_of_ties] <= p[order][last_of_ties] + 1e-12)
    assert (probability / p).sum() >= 0.8


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40))
def test_holds_the_mean_and_is_no_wider_than_by_the_sum(scores):
    """Log-convexity and concavity, on any scores."""
    values = np.array(scores)
    low, high = sequential.betting_mixture(values, **UNIT)
    by_sum = sequential.beta_mixture(values.sum(), len(values), **LEVEL)

    assert by_sum.low - 1e-9 <= low <= values.mean() + 1e-12
    assert values.mean() - 1e-12 <= high <= by_sum.high + 1e-9


def test_scores_that_vary_little_have_a_much_shorter_interval():
    """Unlike any bound that knows their sum only."""
    scores = np.random.default_rng(0).beta(40, 10, 200)
    low, high = sequential.betting_mixture(scores, **UNIT)
    by_sum = sequential.beta_mixture(scores.sum(), 200, **LEVEL)

    assert high - low < 0.25 * (by_sum.high - by_sum.low)


def test_the_paired_interval_and_its_p_value_agree():
    """0 is left out just when the p-value is below one minus the level, and exchange mirrors."""
    rng = np.random.default_rng(1)
    cells = rng.multinomial(60, [0.4, 0.1, 0.25, 0.25], size=200).T
    counts = paired_counts(*cells)
    low, high = sequential.paired_mixture(counts, **LEVEL)
    p = sequential.paired_p_value(counts)
    both, only_a, only_b, neither = cells
    turned = sequential.paired_mixture(paired_counts(both, only_b, only_a, neither), **LEVEL)

    assert np.array_equal((low > 0) | (high < 0), p < 0.05)
    assert 20 < (p < 0.05).sum() < 180
    assert np.allclose((-high, -low), turned, rtol=0, atol=1e-9)


def test_the_paired_interval_is_that_of_the_differences():
    """And so is the p-value: who gets it right is all that counts."""
    differences = np.repeat([-1.0, 0.0, 1.0], [4, 30, 16])
    counts = paired_counts(20, 4, 16, 10)
    more = {"bounds": (-1, 1)}

    expected = sequential.betting_mixture(differences, **more, **LEVEL)
    assert np.allclose(expected, sequential.paired_mixture(counts, **LEVEL), rtol=0, atol=1e-9)
    p = sequential.p_value(differences, mean=0.0, **more)
    assert float(p) == pytest.approx(float(sequential.paired_p_value(counts)), rel=1e-9)


def test_p_value_by_the_beta_function():
    """16 against 4: B(½, ½) over 2^20 B(16½, 4½)."""
    density = stats.beta(16.5, 4.5).pdf(0.5) / (stats.beta(0.5, 0.5).pdf(0.5))
    # The ratio of the densities at ½ is the likelihood there, over the mixture's.
    assert float(density) == pytest.approx(
        float(sequential.paired_p_value(paired_counts(0, 4, 16, 0))), rel=1e-12
    )


def test_cells_of_different_size_do_not_disturb_each_other():
    """A batch gives what its cells give alone; no scores give NaN."""
    scores = np.full((3, 50), np.nan)
    scores[0, :7] = [0, 0.3, 1, 1, 0.9, 1, 1]
    scores[2, :] = np.linspace(0.2, 1, 50)
    together = np.array(sequential.betting_mixture(scores, **UNIT))

    assert np.isnan(together[:, 1]).all()
    for i in (0, 2):
        alone = np.array(sequential.betting_mixture(scores[i], **UNIT))
        assert np.allclose(alone, together[:, i], rtol=0, atol=1e-9)
    assert np.isnan(sequential.p_value(scores, bounds=(0, 1), mean=0.5)[1])
    assert np.isnan(sequential.beta_mixture(0, 0, **LEVEL)).all()


def test_bounds_may_be_any():
    """Moved and stretched."""
    scores = np.array([0.0, 0.5, 1.0, 1.0, 0.25])
    expected = np.array(sequential.betting_mixture(scores, **UNIT)) * 8 - 3

    found = sequential.betting_mixture(scores * 8 - 3, bounds=(-3, 5), **LEVEL)
    assert np.allclose(expected, found, rtol=0, atol=1e-9)


def test_very_many_scores_have_a_short_interval():
    """The grid's points are all that counts."""
    scores = np.random.default_rng(2).beta(2, 1, 10**5)
    low, high = sequential.betting_mixture(scores, **UNIT)

    assert low < scores.mean() < high
    assert high - low < 0.004 * 10**0.5


@pytest.mark.parametrize("n", [1, 300, 100_000])
def test_zeros_and_ones_have_the_limits_of_the_closed_form(n):
    """However sharp the capital is, there are enough nodes for it; so has the p-value."""
    k = np.array([0, n // 3, min(17, n), n - 1, n])
    scores = np.arange(n) < k[:, None]
    found = sequential.betting_mixture(scores, **UNIT)

    assert np.array(found) == pytest.approx(
        np.array(sequential.beta_mixture(k, n, **LEVEL)), rel=1e-9, abs=1e-9
    )
    p = sequential.p_value(scores[1], bounds=(0, 1), mean=0.33)
    won = sequential._log_mixture(k[1], n) - k[1] * np.log(0.33) - (n - k[1]) * np.log(0.67)
    assert np.log(p) == pytest.approx(-max(won, 0.0), rel=1e-9)


@pytest.mark.parametrize(("n", "count"), [(1, 128), (501, 128), (502, 256), (20_000, 1024)])
def test_nodes_of_the_mixture_are_doubled_as_items_come_in(n, count):
    """Chebyshev's, as many as the next power of two above 5 √n + 16, and no fewer than 128."""
    angle = (np.arange(count) + 0.5) * np.pi / count

    found = sequential._nodes(np.array([[n - 0.25, 0.25], [0.5, 0.0]]))
    assert found == pytest.approx(np.sin(angle / 2) ** 2, rel=1e-12)


def test_what_is_impossible_is_refused():
    """More successes than items, scores out of bounds."""
    with pytest.raises(ValueError, match="between 0 and n"):
        sequential.beta_mixture(3, 2, **LEVEL)
    with pytest.raises(ValueError, match="within their bounds"):
        sequential.betting_mixture([2.0], **UNIT)
    with pytest.raises(ValueError, match="low < high"):
        sequential.p_value([0.5], bounds=(1, 0), mean=0.5)
