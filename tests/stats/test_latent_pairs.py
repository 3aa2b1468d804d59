"""Two models on the same items by a latent bivariate normal model."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from scipy import special

from evalstats_plugin.stats import grid_posteriors
from evalstats_plugin.stats.grid_posteriors import latent
from evalstats_plugin.stats.paired import paired_counts

GOLDEN = json.loads(
    (Path(__file__).parents[2] / "fixtures" / "golden" / "comparisons.json").read_text("utf-8")
)
CASES = [case for case in GOLDEN["cases"] if case["method"] == "latent"]
# Few items, none that differ, all that differ, strong models, many items.
TABLES = [
    (3, 0, 0, 0), (0, 0, 3, 0), (1, 0, 1, 1), (1, 0, 0, 0), (30, 0, 0, 0), (0, 0, 30, 0),
    (95, 2, 3, 0), (300, 1, 0, 12), (990, 2, 3, 5), (980, 0, 20, 0), (250, 250, 250, 250),
]  # fmt: skip


HARDEST = [0, 1, 7, 9]


def tables(rows):
    return paired_counts(*np.array(rows).T)


@cache
def at_95(n):
    """Of the first n tables."""
    return latent(tables(TABLES[:n]), confidence_level=0.95)


def nodes_between(low, high, n):
    """Gauss–Legendre nodes and weights."""
    x, w = np.polynomial.legendre.leggauss(n)
    return low + (high - low) * (x + 1) / 2, w * (high - low) / 2


def both_right(a, b, correlation):
    """P(both are right), integrating the bivariate normal density over the correlation.

    dΦ₂/dρ is the density at the thresholds (Plackett), in the angle arcsin ρ.
    """
    h, k = special.ndtri(a)[..., None], special.ndtri(b)[..., None]
    x, w = nodes_between(0, 1, 60)
    sine = np.sin(np.arcsin(correlation)[..., None] * x)
    density = np.exp(-(h**2 - 2 * h * k * sine + k**2) / (2 * (1 - sine**2)))
    return a * b + np.arcsin(correlation) * (density * w).sum(axis=-1) / (2 * np.pi)


def mass_beyond(counts, distance, n):
    """∫ of the posterior, not normalised, over P(a is right) > P(b is right) + distance."""
    b, weight_b = nodes_between(max(-distance, 0), min(1 - distance, 1), n)
    share, weight_a = nodes_between(0, 1, n)
    angle, weight_angle = nodes_between(0, np.pi / 2, n)
    total = 0.0
    both, only_a, only_b, neither = counts
    for phi, weight in zip(angle, weight_angle, strict=True):
        # (1 + ρ)/2 = sin² φ ~ Beta(4, 2).
        prior = 2 * np.sin(phi) ** 7 * np.cos(phi) ** 3
        a = b + distance + (1 - b - distance) * share[:, None]
        p = both_right(a, b + 0 * a, np.full_like(a, -np.cos(2 * phi)))
        cells = np.maximum([p, a - p, b - p, 1 - a - b + p], 1e-300)
        likelihood = np.exp(
            special.xlogy(np.reshape([both, only_a, only_b, neither], (4, 1, 1)), cells).sum(axis=0)
        )
        area = weight_a[:, None] * weight_b * (1 - b - distance)
        total += weight * prior * (likelihood * area).sum()
    return total


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_the_posterior_agrees_with_three_dimensional_quadrature(case):
    """P(better) and limits, to 1e-9."""
    args = dict(case["args"])
    level = args.pop("confidence_level")
    found = latent(paired_counts(**args), confidence_level=level)

    assert np.allclose(
        case["expected"], [found.prob_better, found.low, found.high], rtol=0, atol=1e-9
    )


@pytest.mark.parametrize("counts", [(1, 1, 1, 0), (2, 0, 1, 3), (9, 1, 4, 2)])
def test_limits_cut_off_their_tails(counts):
    """By Gauss–Legendre rules in other coordinates, and the density integrated otherwise."""
    both, only_a, only_b, neither = counts
    found = latent(paired_counts(*counts), confidence_level=0.95)
    ahead = mass_beyond(counts, 0.0, 40)
    behind = mass_beyond((both, only_b, only_a, neither), 0.0, 40)
    total = ahead + behind
    # a is further ahead than -low with probability 2.5 %, and b than high.
    below = mass_beyond(counts, -float(found.low), 40) / total
    above = mass_beyond((both, only_b, only_a, neither), float(found.high), 40) / total

    assert behind / total == pytest.approx(float(found.prob_better), abs=1e-9)
    assert 0.025 == pytest.approx(below, abs=1e-9)
    assert 0.025 == pytest.approx(above, abs=1e-9)


def test_more_nodes_change_nothing(monkeypatch):
    """Limits and P(better) to 1e-9, from few items to many."""
    found = np.array(at_95(len(TABLES)))[:, HARDEST]
    monkeypatch.setattr(grid_posteriors, "LATENT_NODES", (64, 52, 52))
    monkeypatch.setattr(grid_posteriors, "NEGLIGIBLE", 34.0)
    finer = latent(tables([TABLES[i] for i in HARDEST]), confidence_level=0.95)

    assert np.allclose(found, finer, rtol=0, atol=1e-9)


def test_limits_are_unknown_if_no_grid_is_fine_enough(monkeypatch):
    """Negative control: without refinement the limits would be wrong."""
    monkeypatch.setattr(grid_posteriors, "LATENT_NODES", (8, 8, 8))
    monkeypatch.setattr(grid_posteriors, "MOST_REFINEMENTS", 0)
    found = latent(paired_counts(980, 0, 20, 0), confidence_level=0.95)

    assert np.isnan(found.low)


def test_exchanging_the_models_changes_the_sign_exactly():
    """P(better) of both adds up to 1."""
    counts, one = tables(TABLES[:7]), at_95(7)
    swapped = counts._replace(only_a=counts.only_b, only_b=counts.only_a)
    other = latent(swapped, confidence_level=0.95)

    assert np.array_equal(one.low, -other.high)
    assert np.array_equal(one.high, -other.low)
    assert np.allclose(one.prob_better + other.prob_better, 1, rtol=0, atol=1e-12)


@pytest.mark.parametrize("counts", [(7, 0, 0, 0), (5, 3, 3, 2), (0, 40, 40, 0)])
def test_equal_models_are_equally_good(counts):
    """P(better) is exactly ½, and the interval is symmetric about 0."""
    found = latent(paired_counts(*counts), confidence_level=0.95)

    assert 0.5 == found.prob_better
    assert found.low == -found.high
    assert found.high > 0


def test_results_do_not_depend_on_the_tables_beside_them():
    alone = [np.ravel(latent(paired_counts(*t), confidence_level=0.95)) for t in TABLES[:3]]

    assert np.allclose(np.array(at_95(7))[:, :3].T, alone, rtol=0, atol=1e-12)


def test_intervals_hold_the_estimate_and_are_nested():
    """Within [-1, 1], wider at a higher level."""
    counts = tables(TABLES[:7])
    narrow, wide = latent(counts, confidence_level=0.8), at_95(7)

    assert np.all((wide.low >= -1) & (wide.high <= 1))
    assert np.all((wide.low <= narrow.low) & (narrow.high <= wide.high))
    assert np.all((narrow.low <= counts.difference) & (counts.difference <= narrow.high))


def test_no_items_have_no_interval():
    """NaN, beside a table that has one, in the shape of the counts."""
    found = latent(paired_counts([[0, 5]], [[0, 1]], [[0, 2]], [[0, 3]]), confidence_level=0.95)

    assert [[True, False]] == np.isnan(found.low).tolist()
    assert [[True, False]] == np.isnan(found.prob_better).tolist()
