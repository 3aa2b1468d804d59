"""Ranks, letters, and the probability to be the best."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, special, stats

from evalstats_plugin.stats import ranks


@st.composite
def who_is_apart(draw):
    """Any symmetric table of which models are told apart."""
    n = draw(st.integers(1, 9))
    upper = draw(st.lists(st.booleans(), min_size=n * n, max_size=n * n))
    table = np.triu(np.array(upper).reshape(n, n), 1)
    return table | table.T


def cliques(alike):
    """All largest sets of models no two of which are told apart, by trying every set."""
    n = len(alike)
    sets = [
        set(members)
        for size in range(n, 0, -1)
        for members in combinations(range(n), size)
        if all(alike[i, j] for i, j in combinations(members, 2))
    ]
    return [one for one in sets if not any(one < other for other in sets)]


@given(who_is_apart())
def test_models_share_a_letter_iff_not_distinguishable(apart):
    """The definition of a compact letter display; each group is as large as it can be."""
    groups = ranks.groups_alike(apart)
    shared = groups.T.astype(int) @ groups.astype(int) > 0
    alike = ~apart | np.eye(len(apart), dtype=bool)
    largest = cliques(alike)

    assert np.array_equal(shared, alike)
    assert all(set(np.flatnonzero(group).tolist()) in largest for group in groups)
    assert len(groups) <= len(largest)


def test_no_group_of_many_models_holds_only_pairs_of_others():
    """Grown one after another, groups may become so: then one has too many letters."""
    rng = np.random.default_rng(0)
    for _ in range(40):
        apart = np.triu(rng.random((12, 12)) < 0.4, 1)
        apart |= apart.T
        groups = ranks.groups_alike(apart).astype(int)
        times = groups.T @ groups

        assert np.array_equal(times > 0, ~apart | np.eye(12, dtype=bool))
        assert all(times[np.ix_(own, own)].min() == 1 for own in map(np.flatnonzero, groups))
    # Of a triangle and its three sides one is enough.
    every = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1], [1, 1, 1]], dtype=bool)
    assert ranks._without_redundant(every).tolist() == [[True] * 3]


def test_letters_of_a_textbook_display():
    """Six models in a row, told apart from three places on: as Piepho (2004) writes them."""
    place = np.arange(6)
    groups = ranks.groups_alike(np.abs(place[:, None] - place) >= 3)

    assert ["a", "ab", "abc", "bcd", "cd", "d"] == [
        "".join(sorted(one)) for one in ranks.letters(groups)
    ]


def test_more_than_26_groups_have_names_between_commas():
    """Thirty models, each told apart from all others."""
    found = ranks.letters(ranks.groups_alike(~np.eye(30, dtype=bool)))

    assert ["a", "z", "aa", "ad"] == [found[i] for i in (0, 25, 26, 29)]
    apart = ~np.eye(30, dtype=bool)
    apart[28, 29] = apart[29, 28] = apart[27, 29] = apart[29, 27] = False
    assert "ab,ac" == ranks.letters(ranks.groups_alike(apart))[29]
    assert ["abcdefghijklmnopqrstuvwxyz"] == ranks.letters(np.ones((26, 1)))


def test_rank_limits_count_who_is_better_and_worse():
    """Of four models the first beats two, the second one."""
    beats = np.zeros((4, 4), dtype=bool)
    beats[0, [2, 3]] = beats[1, 3] = True
    best, worst = ranks.rank_limits(beats)

    assert [1, 1, 2, 3] == best.tolist()
    assert [2, 3, 4, 4] == worst.tolist()


def test_contrasts_are_orthonormal_and_add_up_to_nothing():
    """By definition."""
    for n in (2, 3, 8):
        found = ranks._contrasts(n)

        assert np.eye(n - 1) == pytest.approx(found.T @ found, abs=1e-14)
        assert np.zeros(n - 1) == pytest.approx(found.sum(axis=0), abs=1e-14)


def test_p_best_of_two_models_agrees_with_an_integral():
    """The same posterior by numerical integration over the spread of the models."""
    from scipy import integrate

    scores = np.random.default_rng(0).normal([[0.0], [0.3]], 1, (2, 40))
    found = ranks.prob_best(scores, spread=6.0, rng=np.random.default_rng(1), n_draws=200_000)
    contrast = (scores[0] - scores[1]) / np.sqrt(2)
    # One contrast is drawn towards itself: only the item more of the prior counts.
    noise = (40 * contrast.var() + 6.0**2 / 4) / 40 / 40
    estimate = contrast.mean()

    # Noise that is estimated from 40 items: the mean over its distribution, by its quantiles.
    noises = noise * 40 / stats.chi2.ppf((np.arange(500) + 0.5) / 500, 40)

    def likelihood(share):
        return stats.norm.pdf(estimate, 0, np.sqrt(noise / share))

    def below(share):
        spread = noise * (1 / share - 1)
        kept = spread / (spread + noises)
        return likelihood(share) * stats.norm.cdf(-np.sqrt(kept / noises) * estimate).mean()

    expected = integrate.quad(below, 0, 1)[0] / integrate.quad(likelihood, 0, 1)[0]
    assert expected == pytest.approx(found[1], abs=0.006)
    assert 1 == pytest.approx(found.sum())


def test_p_best_is_shared_by_models_that_look_alike():
    """Twins within simulation error; models that are all equal exactly, for want of any scores."""
    one = np.random.default_rng(0).integers(0, 2, 60).astype(float)
    found = ranks.prob_best(
        np.array([one, one, 0 * one]), spread=1.0, rng=np.random.default_rng(0), n_draws=20_000
    )
    flat = ranks.prob_best(np.ones((4, 9)), spread=0.0, rng=np.random.default_rng(0), n_draws=10)

    assert found[0] == pytest.approx(found[1], abs=0.02)
    assert found[2] < 0.01
    assert [0.25] * 4 == flat.tolist()


def test_three_items_do_not_make_the_best_certain():
    """All right against all wrong, without any spread to go by."""
    scores = np.repeat([[1.0], [0.0]], 3, axis=1)
    found = ranks.prob_best(scores, spread=1.0, rng=np.random.default_rng(0), n_draws=20_000)

    assert 0.8 < found[0] < 0.999


@pytest.mark.parametrize("n_models", [3, 5, 12])
@pytest.mark.parametrize("seed", range(3))
def test_shrunk_probabilities_maximise_the_composite_likelihood(n_models, seed):
    """The mixture's weights are where its penalised log-likelihood is flat, and no step is left.

    N - 1 times the mean over pairs, plus the prior; a maximum on the simplex where each weight's
    derivative is at most the multiplier (Karush, Kuhn and Tucker), and equal where it is not 0.
    """
    rng = np.random.default_rng(seed)
    n_pairs = n_models * (n_models - 1) // 2
    error = rng.uniform(0.5, 2, n_pairs)
    difference = error * rng.normal(0, rng.choice([0.5, 3.0], n_pairs))
    found = ranks.shrunk(difference, error, n_models=n_models)
    z, total = difference / error, 1 + ranks.SHRUNK_SPREAD**2
    density = stats.norm.pdf(z[:, None], scale=np.sqrt(total))
    prior = np.full(len(total), ranks.SHRUNK_PRIOR / len(total))

    def negative(free):
        weights = special.softmax(free)
        value = (n_models - 1) * np.log(density @ weights).mean() + prior @ np.log(weights)
        ratio = (n_models - 1) * (density / (density @ weights)[:, None]).mean(axis=0)
        gradient = weights * ratio + prior
        return -value, -(gradient - weights * gradient.sum())

    best = optimize.minimize(
        negative, np.zeros(len(total)), jac=True, method="BFGS", options={"gtol": 1e-9}
    )
    share = density * special.softmax(best.x)
    share /= share.sum(axis=1, keepdims=True)
    tail = stats.norm.cdf(z[:, None] * ranks.SHRUNK_SPREAD / np.sqrt(total))

    assert found == pytest.approx((share * tail).sum(axis=1), abs=2e-3)


def test_errors_are_those_of_tails_or_near_a_half_of_limits():
    """And where a skewed distribution has its tail on the other side of the difference."""
    difference, half = np.array([0.2, -0.2, 0.2, 0.2, -0.2, 0.0]), np.array([1, 2, 3, 4, 5, 6.0])
    prob = stats.norm.cdf([0.8, -0.8, 0.4, -0.8, 0.4, 0.0])
    limits = difference - half, difference + half
    found = ranks.errors_of(difference, prob, limits, 0.9)
    by_limits = half / stats.norm.ppf(0.95)

    assert found == pytest.approx(np.append([0.25, 0.25], by_limits[2:]), rel=1e-12)
    sure = ranks.errors_of(np.array([0.2, 0.2]), np.array([1.0, 0.0]), (half[:2], half[:2]), 0.9)
    assert sure == pytest.approx([0.2 / stats.norm.isf(1e-15), 0.0], rel=1e-3)


def test_errors_of_means_count_one_item_more_than_there_are():
    """Of one contrast: its variance over m items, and one of the largest that there can be."""
    values = np.random.default_rng(0).normal(0, 2, (1, 9))
    found = ranks._covariance_of_mean(values, spread=10.0)

    assert found == pytest.approx((9 * values.var() + 10.0**2 / 4) / 9 / 9)


def test_errors_of_means_are_shrunk_as_ledoit_and_wolf_do():
    """Without the further item, scikit-learn's estimate of the covariance, divided by m."""
    covariance = pytest.importorskip("sklearn.covariance")
    rng = np.random.default_rng(1)
    values = rng.multivariate_normal([0, 0, 0], [[2, 1, 0], [1, 2, 0], [0, 0, 1]], 30).T
    expected, _ = covariance.ledoit_wolf(values.T)
    m = values.shape[1]

    assert ranks._covariance_of_mean(values, spread=0.0) * m == pytest.approx(
        expected * m / (m - 1 + ranks.PRIOR_ITEMS)
    )


def test_missing_scores_are_refused():
    """The caller chooses the items that all models have."""
    with pytest.raises(ValueError, match="a score of every model on every item"):
        ranks.prob_best(
            np.array([[1.0, np.nan], [0.0, 1.0]]),
            spread=1.0,
            rng=np.random.default_rng(0),
            n_draws=9,
        )
