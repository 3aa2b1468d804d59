"""Distribution of a mean with Dirichlet weights, checked by other ways to the same number."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from scipy import integrate, special

from evalstats_plugin.stats import bounded

ALL_DIGITS = bounded.REFINEMENTS


def cdf(atoms, weights, at):
    below, _ = bounded.dirichlet_cdf_and_density(
        np.array([atoms], dtype=float),
        np.array([weights], dtype=float),
        np.array([at], dtype=float),
        refinements=ALL_DIGITS,
    )
    return below[0]


def quantile(atoms, weights, probability):
    return quantiles([atoms], [weights], probability)[0]


def quantiles(atoms, weights, probability):
    atoms, weights = (np.array(x, dtype=float) for x in (atoms, weights))
    return bounded.dirichlet_quantile(atoms, weights, probability)


@example(0.0524, 0.2135, 0.94).via("a path along which the integrand grows")
@given(st.floats(0.3, 3000), st.floats(0.3, 3000), st.floats(1e-6, 0.999))
def test_two_atoms_are_a_beta_variable(a, b, probability):
    """P(p₁ ≤ t) for Dirichlet(b, a): the incomplete Beta function."""
    at = special.betaincinv(a, b, probability)
    # Nearer to 1, rounding `at` itself moves the probability.
    assume(at < 0.999)

    assert probability == pytest.approx(cdf([0, 1, 1], [b, a / 3, 2 * a / 3], at), rel=1e-10)


@pytest.mark.parametrize("at", [0.05, 0.2, 0.45, 0.55, 0.9])
def test_uniform_weights_on_three_points_by_geometry(at):
    """Dirichlet(1, 1, 1) is uniform on a triangle: areas below a line."""
    middle = 0.5
    expected = at**2 / middle if at < middle else 1 - (1 - at) ** 2 / (1 - middle)

    assert expected == pytest.approx(cdf([0, middle, 1], [1, 1, 1], at), rel=1e-11)


@pytest.mark.parametrize("n", [1, 3, 30, 1000])
@pytest.mark.parametrize("middle", [0.01, 0.154, 0.5, 0.93])
@pytest.mark.parametrize("probability", [1e-3, 0.025, 0.25, 0.975])
def test_three_atoms_by_ordinary_quadrature(n, middle, probability):
    """All scores equal, the hardest case: mean = middle + B·(something Beta), one integral."""
    weights = [0.5, n, 0.5]
    at = float(quantile([0, middle, 1], weights, probability))

    def given_end_weight(end):
        # With weight `end` on both end points together, the upper one's share is Beta(½, ½).
        share = min(max((at - middle * (1 - end)) / end, 0.0), 1.0)
        return math.asin(math.sqrt(share)) * 2 / math.pi * n * (1 - end) ** (n - 1)

    kink = (middle - at) / middle if at < middle else (at - middle) / (1 - middle)
    points = [0, kink, *(kink + (1 - kink) * np.array([1, 5, 20]) / (n + 40)), 1]
    pieces = [
        integrate.quad(given_end_weight, lower, upper, epsabs=1e-13, limit=200)[0]
        for lower, upper in pairwise(points)
    ]

    assert probability == pytest.approx(sum(pieces), abs=1e-8)


@pytest.mark.parametrize("n", [7, 100, 5000])
@pytest.mark.parametrize("probability", [0.025, 0.25])
def test_quantile_solves_its_equation_where_the_distribution_is_nearly_a_step(n, probability):
    """Newton steps once went back and forth here, and paths bent where the integrand grows."""
    atoms = np.array([[0, middle, 1] for middle in (1e-6, 1e-3, 0.14792204, 0.9999)])
    weights = np.tile([0.5, n, 0.5], (4, 1))

    at = quantiles(atoms, weights, probability)

    assert bounded.dirichlet_cdf(atoms, weights, at) == pytest.approx(probability, rel=1e-4)


@pytest.mark.parametrize("n", [1, 2, 5, 40, 300])
def test_continuous_atoms_by_imhofs_integral(n):
    """Imhof (1961): ∫ sin(phase)/(u size) du along the imaginary axis, by adaptive quadrature."""
    rng = np.random.default_rng(n)
    atoms, weights = np.r_[0, rng.beta(2, 5, n), 1], np.r_[0.5, np.ones(n), 0.5]
    for probability in (1e-3, 0.025, 0.4):
        at = quantile(atoms, weights, probability)
        distance = at - atoms
        unit = 1 / np.sqrt((weights * distance**2).sum())

        def integrand(log_u, distance=distance, unit=unit):
            u = unit * np.exp(log_u)
            phase = (weights * np.arctan(u * distance)).sum()
            return np.sin(phase) * np.exp(-0.5 * (weights * np.log1p((u * distance) ** 2)).sum())

        value, _ = integrate.quad(integrand, -40, 40, limit=4000, epsabs=1e-13)
        assert probability == pytest.approx(0.5 + value / np.pi, abs=1e-10)


def test_density_is_the_derivative():
    """By central differences of the distribution function."""
    atoms = np.array([[0.0, 0.2, 0.5, 0.7, 1.0]])
    weights = np.array([[0.5, 1.0, 3.0, 1.0, 0.5]])
    for at in np.linspace(0.1, 0.9, 17):
        step = 1e-5
        sides = cdf(atoms[0], weights[0], at + step) - cdf(atoms[0], weights[0], at - step)
        _, density = bounded.dirichlet_cdf_and_density(
            atoms, weights, np.array([at]), refinements=ALL_DIGITS
        )
        assert sides / (2 * step) == pytest.approx(density[0], rel=1e-6)


@pytest.mark.parametrize(
    ("probability", "shift"), [(0.001, -9.0), (0.025, 0.01), (0.4, 4.0), (0.9, -0.5), (0.999, 9.0)]
)
def test_quantile_moves_and_stretches_with_the_atoms(probability, shift):
    """A change of units; and turned round, the quantile of the other side."""
    rng = np.random.default_rng(0)
    atoms = np.round(rng.random((12, 32)), 3)
    atoms[:, 0], atoms[:, -1] = 0, 1
    weights = 1.0 * (np.arange(32) <= rng.integers(1, 31, (12, 1)))
    weights[:, [0, -1]] = 0.5

    expected = quantiles(atoms, weights, probability)

    assert shift + 3 * expected == pytest.approx(
        quantiles(shift + 3 * atoms, weights, probability), abs=1e-10
    )
    assert 1 - expected == pytest.approx(quantiles(1 - atoms, weights, 1 - probability), abs=1e-10)


def test_padding_changes_nothing():
    """Atoms of weight 0 are no atoms."""
    expected = quantile([0, 0.3, 1], [0.5, 4, 0.5], 0.025)

    actual = quantile([0, 0.3, 1, 0.8, 0], [0.5, 4, 0.5, 0, 0], 0.025)

    assert expected == pytest.approx(actual, abs=1e-13)


def test_no_cells_give_no_quantiles():
    """An empty batch is a batch."""
    assert bounded.dirichlet_quantile(np.zeros((0, 3)), np.zeros((0, 3)), 0.5).shape == (0,)


@pytest.mark.parametrize(
    ("atoms", "weights", "most"),
    [
        ([0, 0.3, 0.3001, 0.2999, 1], [0.5, 40, 40, 40, 0.5], 950),
        ([0, 1e-3, 1], [0.5, 500, 0.5], 2400),
        ([0, 0.999, 1], [0.5, 500, 0.5], 2200),
        (np.linspace(0, 1, 52), [0.5, *[1] * 50, 0.5], 500),
    ],
    ids=["nearly equal", "all low", "all high", "many"],
)
def test_paths_of_steep_descent_need_few_points(monkeypatch, atoms, weights, most):
    """Any path gives the same integral; bent the wrong way, it took up to three times as many."""
    n_points, factors = [0], bounded._factors

    def counted(move, *rest):
        n_points[0] += move.size
        return factors(move, *rest)

    monkeypatch.setattr(bounded, "_factors", counted)
    for probability in (1e-3, 0.025, 0.25, 0.975):
        quantile(atoms, weights, probability)

    assert n_points[0] <= most
