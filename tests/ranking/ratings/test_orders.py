"""Ranks, top sets, who is told apart, and the probability of whole orders."""

from itertools import permutations
from math import factorial, log2

import numpy as np
import pytest
from scipy import special

from evalstats_plugin.ranking.ratings import fit
from evalstats_plugin.ranking.ratings.fit import log_prob_order, order_entropy, significantly_better
from evalstats_plugin.stats.ranks import rank_limits


def belief(n, seed=0, spread=1.0):
    """Some ratings and a covariance that ties them together."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n, n)) / np.sqrt(n)
    return spread * rng.normal(size=n), root @ root.T + 0.2 * np.eye(n)


def drawn(rating, covariance, size, seed=1):
    rng = np.random.default_rng(seed)
    return rng.multivariate_normal(rating, covariance, size)


def test_the_highest_rating_has_rank_1():
    """Rows are players, columns ranks, the first the best: the highest rating has rank 1."""
    draws = np.array([[3.0, 1.0, 2.0], [3.0, 2.0, 1.0], [9.0, 5.0, 4.0], [1.0, 3.0, 2.0]])
    ranks = fit.ranks_of(draws)

    np.testing.assert_array_equal(ranks, [[1, 3, 2], [1, 2, 3], [1, 2, 3], [3, 1, 2]])
    expected = [[0.75, 0, 0.25], [0.25, 0.5, 0.25], [0, 0.5, 0.5]]
    np.testing.assert_array_equal(fit.rank_distribution(ranks), expected)
    better = [[0.5, 0.75, 0.75], [0.25, 0.5, 0.75], [0.25, 0.25, 0.5]]
    np.testing.assert_array_equal(fit.prob_better(draws), better)


def test_equal_ratings_share_their_ranks():
    draws = np.tile([1.0, 2.0, 1.0], (10, 1))
    expected = [[0, 0.5, 0.5], [1, 0, 0], [0, 0.5, 0.5]]

    np.testing.assert_array_equal(fit.rank_distribution(fit.ranks_of(draws)), expected)
    assert fit.prob_better(draws)[0, 2] == 0.5


def test_values_of_one_label_become_their_mean():
    np.testing.assert_array_equal(
        fit.averaged(np.array([1.0, 8.0, 3.0, 5.0]), np.array([7, 0, 7, 7])), [3, 8, 3, 3]
    )


def test_expected_rank_is_one_more_than_the_probabilities_of_the_others():
    """An identity that holds draw by draw."""
    draws = drawn(*belief(6), 500)
    better = fit.prob_better(draws)

    expected = 1 + (better - 0.5 * np.eye(6)).sum(axis=0)
    np.testing.assert_allclose(fit.ranks_of(draws).mean(axis=0), expected)


def test_pairs_of_normal_ratings_agree_with_their_draws():
    rating, covariance = belief(5)
    mean, variance = fit.pairwise_differences(rating, covariance)
    exact = special.ndtr(mean / np.sqrt(variance))
    by_draws = fit.prob_better(drawn(rating, covariance, 40_000))

    np.testing.assert_allclose(exact + exact.T, 1)
    np.testing.assert_allclose(exact, by_draws, atol=4 * 0.5 / 200)


def test_two_players_differ_at_the_quantile_of_a_normal():
    """With one pair the largest of all differences, of either sign, is |Z|."""
    deviations = np.random.default_rng(0).normal(size=(40_000, 2))
    for gap, apart in ((1.92, False), (2.00, True)):
        rating = np.array([gap * np.sqrt(2), 0.0])
        found = significantly_better(rating, np.eye(2), deviations, confidence_level=0.95)
        np.testing.assert_array_equal(found, [[False, apart], [False, False]])


def test_equal_players_differ_in_one_of_twenty_estimates():
    """Tukey's studentised range for 10 known variances: 4.474 = √2 · 3.164 (tables, ν = ∞)."""
    rng = np.random.default_rng(1)
    deviations = rng.normal(size=(8000, 10))
    gap = 4.474
    for factor, apart in ((0.98, False), (1.02, True)):
        rating = np.zeros(10)
        rating[0] = gap * factor
        found = significantly_better(rating, np.eye(10), deviations, confidence_level=0.95)
        assert bool(found[0].any()) is apart
    held = [
        not significantly_better(z, np.eye(10), deviations[:2000], confidence_level=0.95).any()
        for z in rng.normal(size=(300, 10))
    ]
    assert abs(np.mean(held) - 0.95) <= 3 * np.sqrt(0.05 * 0.95 / 300)


def test_the_step_down_sets_found_pairs_aside():
    """Two far groups of two: 8 of 12 directed pairs are left, which need a smaller gap."""
    deviations = np.random.default_rng(2).normal(size=(20_000, 4))
    every = (deviations[:, :, None] - deviations[:, None]) / np.sqrt(2)
    left = ~np.kron([[0, 1], [0, 0]], np.ones((2, 2))).astype(bool)
    first, second = (np.quantile(every[:, part].max(axis=1), 0.95) for part in (left | True, left))
    gap = np.sqrt(2) * (first + second) / 2
    rating = np.array([20.0, 20 - gap, 0.0, -0.1])
    limits = rank_limits(significantly_better(rating, np.eye(4), deviations, confidence_level=0.95))

    assert second < first - 0.05
    np.testing.assert_array_equal(limits.best, [1, 2, 3, 3])
    np.testing.assert_array_equal(limits.worst, [1, 2, 4, 4])
    nearer = rating - np.array([gap * 0.1, 0, 0, 0])
    assert not significantly_better(nearer, np.eye(4), deviations, confidence_level=0.95)[0, 1]
    # One player alone is not better than itself.
    assert not significantly_better([0.0], np.eye(1), np.ones((5, 1)), confidence_level=0.95)


def test_probabilities_of_all_orders_add_up_and_agree_with_draws():
    rating, covariance = belief(4)
    every = np.array(list(permutations(range(4))))
    found = np.exp(log_prob_order(rating, covariance, every, rng=np.random.default_rng(0)))
    draws = drawn(rating, covariance, 40_000)
    seen = (np.argsort(-draws, axis=1)[:, None] == every).all(axis=2).mean(axis=0)

    assert found.sum() == pytest.approx(1, abs=0.02)
    np.testing.assert_allclose(found, seen, atol=0.01)


@pytest.mark.parametrize("n", [3, 8])
def test_any_order_of_equal_players_is_one_of_all(n):
    """Unbiased estimates: p̂, and 1/p̂ where a particle keeps to ratings drawn in that order."""
    rng = np.random.default_rng(0)
    ratings = rng.normal(size=(2000, n))
    order = np.argsort(-ratings, axis=1)
    for sign, kept in ((1, None), (-1, ratings)):
        log_p = log_prob_order(np.zeros(n), np.eye(n), order, rng=rng, n_particles=16, drawn=kept)
        ratio = np.exp(sign * (log_p + np.log(factorial(n))))
        assert ratio.mean() == pytest.approx(1, abs=4 * ratio.std() / np.sqrt(2000))
        assert ratio.std() < 5


def test_improbable_orders_have_finite_logarithms():
    rating, covariance = np.array([9.0, 0, -9]), np.eye(3) / 100
    found = log_prob_order(rating, covariance, [2, 1, 0], rng=np.random.default_rng(0))

    assert -14_000 < found[0] < -5_000


def particles_by_hand(rating, covariance, order, drawn, rng, size):
    """Log of the estimates of sequential Monte Carlo, one order and one particle after another."""
    n = len(rating)
    noise, weight = np.zeros((len(order), n - 1, size)), np.ones((len(order), size))
    log_p = np.zeros(len(order))
    means, roots = [], []
    for each in order:
        steps = np.eye(n)[each[:-1]] - np.eye(n)[each[1:]]
        means.append(steps @ rating)
        roots.append(np.linalg.cholesky(steps @ covariance @ steps.T + 1e-12 * np.eye(n - 1)))
    for k in range(n - 1):
        share = rng.random((len(order), size))
        for b, (mean, root) in enumerate(zip(means, roots, strict=True)):
            for s in range(size):
                reach = (mean[k] + root[k, :k] @ noise[b, :k, s]) / root[k, k]
                weight[b, s] *= special.ndtr(reach)
                noise[b, k, s] = -special.ndtri(special.ndtr(reach) * share[b, s])
            if drawn is not None:
                value = drawn[b][order[b]]
                step = value[:-1] - value[1:] - mean
                noise[b, k, 0] = np.linalg.solve(root, step)[k]
        effective = weight.sum(axis=1) ** 2 / (weight**2).sum(axis=1)
        poor = [b for b in range(len(order)) if effective[b] < size / 2]
        wanted = rng.random((len(poor), size)) if poor else []
        for b, at in zip(poor, wanted, strict=True):
            log_p[b] += np.log(weight[b].mean())
            parent = [int((np.cumsum(weight[b]) / weight[b].sum() < x).sum()) for x in at]
            if drawn is not None:
                parent[0] = 0
            noise[b], weight[b] = noise[b][:, parent], 1
    return log_p + np.log(weight.mean(axis=1))


@pytest.mark.parametrize("is_drawn", [False, True])
def test_particles_of_several_orders_go_the_way_of_a_plain_loop(is_drawn):
    """Draws, weights and the particles that others replace, where few orders have few left."""
    rating, covariance = belief(5, seed=3, spread=1.5)
    draws = drawn(rating, covariance, 6)
    order = np.argsort(-draws, axis=1) if is_drawn else np.array(list(permutations(range(5))))[::21]
    kept = draws if is_drawn else None
    found = log_prob_order(
        rating, covariance, order, rng=np.random.default_rng(5), n_particles=12, drawn=kept
    )

    expected = particles_by_hand(rating, covariance, order, kept, np.random.default_rng(5), 12)
    np.testing.assert_allclose(found, expected, rtol=1e-7)


@pytest.mark.parametrize(
    ("n", "base", "n_orders"), [(2, fit.N_ORDERS, 512), (10, 30, 120), (11, fit.N_ORDERS, 128)]
)
def test_entropy_is_the_mean_surprise_of_drawn_orders(monkeypatch, n, base, n_orders):
    monkeypatch.setattr(fit, "N_ORDERS", base)
    rating, covariance = belief(n, seed=n, spread=0.5)
    found = order_entropy(rating, covariance, rng=np.random.default_rng(n))

    rng = np.random.default_rng(n)
    ratings = fit.normal_draws(rating, covariance, (n_orders,), rng)
    order = np.argsort(-ratings, axis=1)
    surprise = [
        -log_prob_order(rating, covariance, order, rng=rng, n_particles=256, drawn=kept) / np.log(2)
        for kept in (ratings, None)
    ]
    most = sum(log2(k) for k in range(1, n + 1))
    bounds = sorted(np.clip(each.mean(), 0, most) for each in surprise)
    error = max(each.std() for each in surprise) / np.sqrt(n_orders)
    assert found == pytest.approx((*bounds, error, most), rel=1e-12)


@pytest.mark.parametrize("n", [5, 20])
def test_equal_players_have_the_maximum_entropy(n):
    found = order_entropy(np.zeros(n), np.eye(n), rng=np.random.default_rng(0))

    assert log2(factorial(n)) == pytest.approx(found.most)
    assert found.most - 0.08 * n - 4 * found.std_error <= found.low <= found.most
    assert found.high == pytest.approx(found.most, abs=4 * found.std_error + 0.01)


def test_entropy_agrees_with_counting_the_orders_of_four(monkeypatch):
    monkeypatch.setattr(fit, "N_ORDERS", 250)
    rating, covariance = belief(4)
    draws = drawn(rating, covariance, 100_000)
    _, counts = np.unique(np.argsort(-draws, axis=1), axis=0, return_counts=True)
    counted = special.entr(counts / counts.sum()).sum() / np.log(2)
    found = order_entropy(rating, covariance, rng=np.random.default_rng(0))

    assert found.low - 3 * found.std_error <= counted <= found.high + 3 * found.std_error
    assert found.high - found.low < 0.05
    assert order_entropy([0.0], [[1.0]], rng=np.random.default_rng(0)).high == 0


@pytest.mark.parametrize("level", [0.9, 0.2])
def test_pairs_found_are_set_aside_and_the_others_tested_again(monkeypatch, level):
    """Step-down by hand: quantiles of the largest of the pairs that are left, in blocks or not."""
    rng = np.random.default_rng(3)
    root = rng.normal(size=(6, 6))
    covariance = root @ root.T / 10
    rating = 1.85 * np.array([0.0, 0.8, 1.4, 2.5, 2.6, 5.0])
    deviations = rng.multivariate_normal(np.zeros(6), covariance, 501)
    error = np.array([
        [np.sqrt(covariance[i, i] + covariance[j, j] - 2 * covariance[i, j]) for j in range(6)]
        for i in range(6)
    ])  # fmt: skip
    pairs = {(i, j) for i in range(6) for j in range(6) if i != j}
    better: set[tuple[int, int]] = set()
    rounds = 0
    while True:
        left = pairs - better
        largest = [max(0.0, *((d[i] - d[j]) / error[i, j] for i, j in left)) for d in deviations]
        critical = np.quantile(largest, level, method="higher")
        more = {(i, j) for i, j in left if (rating[i] - rating[j]) / error[i, j] > critical}
        if not more:
            break
        better |= more
        rounds += 1

    assert rounds > (level == 0.9)
    for size in (1, fit.BLOCK_SIZE):
        monkeypatch.setattr(fit, "BLOCK_SIZE", size)
        found = significantly_better(rating, covariance, deviations, confidence_level=level)
        assert {(int(i), int(j)) for i, j in np.argwhere(found)} == better
