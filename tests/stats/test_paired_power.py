"""Power of comparisons of paired 0/1 scores."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from evalstats_plugin.stats.pairs.differences import Counts
from evalstats_plugin.stats.pairs.power import critical_count, paired_items_needed, paired_power

DESIGNS = [(5, 0.5, 0.3), (20, 0.2, 0.1), (30, 0.4, -0.25), (25, 1.0, 0.6), (12, 0.3, 0.3)]


@pytest.mark.parametrize(("n", "discordance", "difference"), [*DESIGNS, (30, 0.5, 0.0)])
@pytest.mark.parametrize("level", [0.95, 0.8, 1 - 0.05 / 45])
def test_power_is_the_sum_over_every_table(
    n: int, discordance: float, difference: float, level: float
) -> None:
    """The p-value of each table of counts, with its trinomial probability."""
    a, b = (x.ravel() for x in np.meshgrid(np.arange(n + 1), np.arange(n + 1)))
    a, b = a[a + b <= n], b[a + b <= n]
    cells = [(discordance - difference) / 2, (discordance + difference) / 2, 1 - discordance]
    probability = stats.multinomial.pmf(np.stack([a, b, n - a - b], axis=1), n, cells)
    found_there = Counts(b, a, n).p_value <= 1 - level
    expected = float((probability * found_there).sum())
    found = paired_power(n, discordance, difference, tail=(1 - level) / 2)

    assert abs(found - expected) < 1e-12


def test_power_agrees_with_simulation() -> None:
    """Of 400 items, tables drawn at random; three standard errors."""
    rng = np.random.default_rng(5)
    a, b, _ = rng.multinomial(400, [0.07, 0.13, 0.8], size=20_000).T
    seen = np.mean(Counts(b, a, 400).p_value <= 0.05)

    assert abs(paired_power(400, 0.2, 0.06, tail=0.025) - seen) < 3 * np.sqrt(0.25 / 20_000)


@pytest.mark.parametrize("tail", [0.025, 0.025 / 4950, 0.4, 1e-9])
def test_the_critical_count_is_the_greatest_that_rejects(tail: float) -> None:
    """Found by trying every one; of no item there is none."""
    found = critical_count(np.arange(0.0, 200.0), tail=tail)
    for n in range(200):
        k = np.arange(np.ceil(n / 2))
        rejecting = k[stats.beta.cdf(0.5, n - k + 0.5, k + 0.5) <= tail]

        assert found[n] == rejecting.max(initial=-1)


@pytest.mark.parametrize(
    ("discordance", "difference"),
    [(0.2, 0.1), (0.5, 0.2), (0.1, 0.1), (0.4, 0.4), (1.0, 0.3), (0.98, 0.45), (1.0, 0.8)],
)
def test_from_the_items_needed_on_the_power_stays(discordance: float, difference: float) -> None:
    """And with one item less it does not: power by every number of items."""
    found = int(paired_items_needed(discordance, difference, tail=0.025, power=0.8)[0])
    n = np.arange(1, 2 * found + 60)
    missed = n[paired_power(n, discordance, difference, tail=0.025) < 0.8]

    assert found == missed.max() + 1


def test_many_items_need_what_the_normal_approximation_says() -> None:
    """Connor (1987): (z √ψ + z' √(ψ - δ²))²/δ² items."""
    discordance, difference = np.array([0.1, 0.3]), np.array([0.01, 0.02])
    root = 1.959964 * np.sqrt(discordance) + 0.841621 * np.sqrt(discordance - difference**2)
    found = paired_items_needed(discordance, difference, tail=0.025, power=0.8)

    assert found == pytest.approx((root / difference) ** 2, rel=0.005)


def test_impossible_designs_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\|difference\| <= discordance <= 1"):
        paired_power(10, 0.1, 0.2, tail=0.025)
    with pytest.raises(ValueError, match=r"\|difference\| <= discordance <= 1"):
        paired_power(10, 0.1, -0.2, tail=0.025)
