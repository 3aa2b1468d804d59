"""Two models on items in clusters."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, special

from evalstats_plugin.stats import bounded, grid_posteriors, paired

LEVEL = {"confidence_level": 0.95, "prior": (0.5, 1.0)}
CLUSTER = st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 6))
CLUSTERS = st.lists(CLUSTER, min_size=1, max_size=6).map(np.transpose)


def both_ways(only_a, only_b, sizes, **level):
    level = {**LEVEL, **level}
    return (
        grid_posteriors.dirichlet_multinomial([a], [b], [sizes], **level)
        for a, b in ((only_a, only_b), (only_b, only_a))
    )


def polynomial(counts, ratio):
    """Coefficients of Π over clusters of Π_{j<s} (θ + j r), from θ^0."""
    found = np.ones(1)
    for count in counts:
        for j in range(int(count)):
            found = np.convolve(found, [j * ratio, 1.0])
    return found


def mixture(only_a, only_b, sizes, statistic):
    """Posterior mean of a statistic of Dirichlet weights (a, b, rest).

    Given ρ the posterior is a mixture of Dirichlet distributions, because the likelihood is a
    polynomial in each θ; over ρ by adaptive integration.
    """
    a, b, size = (np.asarray(x, dtype=float) for x in (only_a, only_b, sizes))

    def terms(correlation):
        ratio = correlation / (1 - correlation)
        parts = [polynomial(x, ratio) for x in (a, b, size - a - b)]
        log_whole = np.log(polynomial(size, ratio).sum())
        powers = np.meshgrid(*(np.arange(len(x)) for x in parts), indexing="ij")
        shape = np.stack([x.ravel() for x in powers], axis=1) + np.array([0.5, 0.5, 1.0])
        log_beta = special.gammaln(shape).sum(axis=1) - special.gammaln(shape.sum(axis=1))
        weights = np.einsum("i,j,k->ijk", *parts).ravel() * np.exp(log_beta - log_whole)
        return weights, shape

    def of(function):
        options = {"epsabs": 1e-15, "epsrel": 1e-11, "limit": 200}
        return integrate.quad(lambda x: function(*terms(x)), 0, 1 - 1e-13, **options)[0]

    whole = of(lambda weights, _: weights.sum())
    return of(lambda weights, shape: weights @ statistic(shape)) / whole


def share_below(at):
    def statistic(shape):
        atoms = np.broadcast_to([-1.0, 1.0, 0.0], shape.shape)
        points = np.full(len(shape), at)
        return bounded.dirichlet_cdf_and_density(atoms, shape, points, refinements=7)[0]

    return statistic


EXAMPLES = [
    ([1, 0, 2], [2, 3, 1], [5, 4, 5]),
    ([0, 0], [2, 0], [3, 4]),
    ([0, 0, 0], [0, 0, 0], [2, 3, 1]),
    ([0, 1], [4, 3], [4, 4]),
]


@pytest.mark.parametrize(("only_a", "only_b", "sizes"), EXAMPLES)
def test_limits_cut_off_their_tails(only_a, only_b, sizes):
    """The mass beyond each, as a mixture of Dirichlet distributions integrated over ρ."""
    found, _ = both_ways(only_a, only_b, sizes)
    below, above = (
        mixture(only_a, only_b, sizes, share_below(float(limit[0]))) for limit in found[:2]
    )
    better = mixture(
        only_a, only_b, sizes, lambda shape: special.betainc(shape[:, 0], shape[:, 1], 0.5)
    )

    assert (0.025, 0.975) == pytest.approx((below, above), abs=1e-8)
    assert better == pytest.approx(found.prob_better[0], abs=1e-8)


@pytest.mark.parametrize(
    ("n_clusters", "size", "means", "correlation"),
    [
        (2, 5, (0.1, 0.2), 0.5),
        (6, 5, (0.1, 0.15), 0.3),
        (20, 10, (0.01, 0.01), 0.1),
        (30, 10, (0.001, 0.4), 0.1),
        (60, 5, (0.1, 0.3), 0.05),
        (3, 400, (0.1, 0.2), 0.1),
        (500, 5, (0.05, 0.07), 0.1),
    ],
)
def test_twice_as_many_nodes_change_nothing(n_clusters, size, means, correlation, monkeypatch):
    """From 2 to 500 clusters, giant ones, and hardly any difference: within 1e-8."""
    rng = np.random.default_rng(n_clusters)
    dispersion = 1 / correlation - 1
    shape = dispersion * np.array([*means, 1 - sum(means)])
    counts = rng.multinomial(size, rng.dirichlet(shape, (3, n_clusters)))
    data = counts[..., 0], counts[..., 1], np.full(counts.shape[:2], size)
    once = grid_posteriors.dirichlet_multinomial(*data, **LEVEL)
    nodes = tuple(2 * n for n in grid_posteriors.DIRICHLET_NODES)
    monkeypatch.setattr(grid_posteriors, "DIRICHLET_NODES", nodes)
    monkeypatch.setattr(grid_posteriors, "LIMIT_NODES", 128)
    more = grid_posteriors.dirichlet_multinomial(*data, **LEVEL)

    assert np.allclose(once, more, rtol=0, atol=1e-8)


@settings(max_examples=15)
@given(counts=CLUSTERS)
def test_exchanging_the_models_changes_the_sign(counts):
    """Exactly, and P(A > B) + P(B > A) = 1; the estimate lies inside."""
    only_a, only_b, rest = counts
    sizes = only_a + only_b + rest
    if not sizes.any():
        return
    one, other = both_ways(only_a, only_b, sizes)
    estimate = (only_b - only_a).sum() / sizes.sum()

    assert (one.low, one.high) == (-other.high, -other.low)
    assert 1.0 == pytest.approx(float(one.prob_better[0] + other.prob_better[0]), abs=1e-12)
    assert -1 <= one.low <= estimate <= one.high <= 1


@pytest.mark.parametrize(
    ("only_a", "only_b"), [([0, 0, 0], [0, 0, 0]), ([2, 0, 1], [1, 2, 0]), ([1, 1, 1], [1, 1, 1])]
)
def test_models_that_are_alike_are_exactly_as_likely_to_be_better(only_a, only_b):
    """Identical, or as much for a as for b; with an interval about 0 that has a width."""
    found, _ = both_ways(only_a, only_b, [9, 9, 9])

    assert 0.5 == found.prob_better[0]
    assert found.low[0] == -found.high[0] < -0.01


def test_clusters_of_one_item_are_no_clusters():
    """Their correlation does not matter: the Dirichlet posterior of the four cells."""
    only_a, only_b = np.repeat([[1, 0, 0], [0, 1, 0]], [3, 6, 11], axis=1)
    found, _ = both_ways(only_a, only_b, np.ones(20))
    counts = paired.paired_counts(0, 3, 6, 11)
    low, high = paired.dirichlet(counts, **LEVEL)
    better = paired.prob_better(counts, prior=(0.5, 1.0))

    expected = float(low), float(high), float(better)
    assert expected == pytest.approx(tuple(x[0] for x in found), abs=1e-8)


def test_one_cluster_says_next_to_nothing():
    """However many items it has."""
    found, _ = both_ways([10], [60], [100])

    assert found.high[0] - found.low[0] > 0.8


def test_clusters_that_all_agree_leave_room():
    """Six clusters in which b alone is right on everything: not certainty."""
    found, _ = both_ways([0] * 6, [4] * 6, [4] * 6)

    assert 0.2 < found.low[0] < 0.9
    assert 0.99 < found.high[0] <= 1


def test_padding_changes_nothing_and_pairs_without_items_have_no_interval():
    """Beside a pair that has one."""
    found = grid_posteriors.dirichlet_multinomial(
        [[1, 0, 0], [0, 0, 0]], [[2, 2, 0], [0, 0, 0]], [[5, 5, 0], [0, 0, 0]], **LEVEL
    )
    alone, _ = both_ways([1, 0], [2, 2], [5, 5])

    assert tuple(x[0] for x in found) == tuple(x[0] for x in alone)
    assert np.isnan([x[1] for x in found]).all()


def test_reruns_are_bit_identical():
    """Whatever is computed beside."""
    one, _ = both_ways([1, 0, 2], [2, 3, 1], [5, 5, 5])
    many = grid_posteriors.dirichlet_multinomial(
        [[1, 0, 2]] * 70 + [[0, 4, 0]], [[2, 3, 1]] * 70 + [[0, 0, 3]], [[5, 5, 5]] * 71, **LEVEL
    )

    assert all(np.all(x[:70] == y[0]) for x, y in zip(many, one, strict=True))


def test_a_prior_must_be_positive():
    """Zero would leave nothing to integrate."""
    with pytest.raises(ValueError, match="a Dirichlet prior needs positive numbers"):
        list(both_ways([1], [0], [2], prior=(0.0, 1.0)))
