"""Power: sample sizes and least differences."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from evalstats_plugin.stats import sequential
from evalstats_plugin.stats.pairs import power

GOAL = {"tail": 0.025, "power": 0.8}
OMEGA2, SIGMA2 = 1 / 9, 1 / 6


@pytest.mark.parametrize(("epochs", "expected"), [(np.inf, 969), (1, 3876)])
def test_items_needed_are_those_of_miller(epochs: float, expected: int) -> None:
    """Miller (2024), section 5: a difference of 3 points, ω² = 1/9, σ² = 1/6."""
    variance = OMEGA2 + 2 * SIGMA2 / epochs

    assert expected == np.ceil(power.items_needed(0.03, variance, **GOAL))


@pytest.mark.parametrize(
    ("n_items", "expected"),
    # Miller's formula for K = 1, 10 and without end; in per cent.
    [(198, (13.3, 7.6, 6.6)), (164, (14.6, 8.3, 7.3)), (1000, (5.9, 3.4, 3.0))],
)
def test_least_differences_are_those_of_miller(
    n_items: int, expected: tuple[float, float, float]
) -> None:
    variance = OMEGA2 + 2 * SIGMA2 / np.array([1, 10, np.inf])
    found = power.difference_needed(n_items, variance, **GOAL)

    assert expected == tuple(np.round(100 * found, 1))


def test_epochs_needed_undo_items_needed() -> None:
    """So many epochs make so many items enough; below the limit of the items none do."""
    n = power.items_needed(0.03, OMEGA2 + 2 * SIGMA2 / 7.5, **GOAL)
    given = {"between": OMEGA2, "within": 2 * SIGMA2, **GOAL}

    assert power.epochs_needed(0.03, n, **given) == pytest.approx(7.5, rel=1e-10)
    assert power.epochs_needed(0.03, 968, **given) == np.inf
    assert np.isnan(
        power.epochs_needed(0.03, 968, **{**given, "within": np.nan, "between": np.nan})
    )


@pytest.mark.parametrize(("effect", "expected"), [(0.2, 199), (0.5, 34), (0.8, 15)])
def test_students_t_needs_what_cohens_tables_say(effect: float, expected: int) -> None:
    """One sample, two-sided .05, power .80: small, medium and large effects (G*Power 3.1)."""

    def power_of(n: np.ndarray) -> np.ndarray:
        return power.t_power(n, effect, 1.0, tail=0.025)

    assert expected == power.least_items(power_of, np.array([3.0]), power=0.8)[0]


@pytest.mark.parametrize("n", [2, 3, 10, 34, 2000])
@pytest.mark.parametrize("effect", [0.1, 1.0, 2.8, 5.0])
def test_t_power_is_the_noncentral_t(n: int, effect: float) -> None:
    """Against SciPy, where that does not give up."""
    for tail in (0.025, 0.025 / 45):
        critical = stats.t.isf(tail, n - 1)
        # SciPy 1.12 divides by zero on the way to the right number.
        with np.errstate(divide="ignore"):
            above = stats.nct.sf(critical, n - 1, effect)
            below = stats.nct.cdf(-critical, n - 1, effect)
        found = power.t_power(n, effect / np.sqrt(n), 1.0, tail=tail)

        assert abs(found - (above + below)) < 1e-6


def test_no_difference_is_found_as_often_as_the_level_says() -> None:
    """Both sides together."""
    assert power.t_power(12, 0.0, 1.0, tail=0.025) == pytest.approx(0.05, abs=1e-9)
    assert power.normal_power(12, 0.0, 1.0, tail=0.025) == pytest.approx(0.05, abs=1e-12)


def test_the_normal_approximation_is_what_it_says() -> None:
    """Simulated: means of normal differences of known variance."""
    rng = np.random.default_rng(0)
    z = rng.normal(0.25, np.sqrt(2.0 / 60), 200_000) / np.sqrt(2.0 / 60)
    seen = np.mean(np.abs(z) > 1.959964)

    assert abs(power.normal_power(60, 0.25, 2.0, tail=0.025) - seen) < 0.004


def test_the_least_difference_is_where_the_goal_is_met() -> None:
    """And NaN where even the greatest is missed."""

    def power_of(difference: np.ndarray) -> np.ndarray:
        return power.t_power([20, 3], difference, 1.0, tail=0.025)

    found = power.least_difference(power_of, np.array([1.0, 1.0]), power=0.8)

    assert power.t_power(20, found[0], 1.0, tail=0.025) == pytest.approx(0.8, abs=1e-7)
    assert np.isnan(found[1])
    # As near as the tolerance, and no further.
    coarse = power.least_difference(lambda d: d, np.array([1.0]), power=0.3, tolerance=0.25)
    assert coarse[0] == 0.5


def test_a_search_without_end_gives_up() -> None:
    """At inf."""
    assert np.inf == power.least_items(lambda n: 0 * n, np.array([1.0]), power=0.8)[0]


def test_impossible_goals_are_refused() -> None:
    with pytest.raises(ValueError, match="power in"):
        power.items_needed(0.1, 1.0, tail=0.025, power=1.0)
    with pytest.raises(ValueError, match="needs no difference"):
        power.items_needed(0.1, 1.0, tail=0.025, power=0.02)


def test_sums_of_many_items_have_the_power_of_their_counts():
    """Of 0/1 scores the mixture test is known by counts; normal sums of them come near it."""
    looks = np.arange(40, 640, 40.0)
    counts = power.mixture_power(looks, 0.1, discordance=0.3, tail=0.025)
    sums = power.mixture_power(looks, 0.1, variance=0.3 - 0.1**2, tail=0.025)

    np.testing.assert_allclose(sums, counts, atol=0.06)
    assert 0.3 < sums[len(sums) // 2] < sums[-1]
    assert power.mixture_power(looks, 0.0, variance=0.3, tail=0.025)[-1] <= 0.05


@pytest.mark.parametrize(
    ("difference", "sd", "n"),
    [(0.1, 0.2, 57), (0.2, 0.3, 40), (0.05, 0.1, 100), (0.1, 0.4, 150), (0.035, 0.48, 2000)],
)
def test_power_of_few_looks_at_partial_credit_is_that_of_the_test(difference, sd, n):
    """Bets have a largest one: else it is .76 for .46 of the first, .98 for .43 of the third."""
    # On 65 of the points that scores are split between: with all 257 it takes four times as long.
    scores = np.random.default_rng(n).normal(difference, sd, (500, n)).clip(-1, 1)
    scores = np.round(scores * 32) / 32
    rejected = (sequential.p_value(scores, bounds=(-1, 1), mean=0.0) <= 0.05).mean()
    predicted = power.mixture_power(np.array([float(n)]), difference, variance=sd**2, tail=0.025)
    assert predicted[0] == pytest.approx(rejected, abs=0.07)


@pytest.mark.parametrize(
    ("rare", "often", "share", "n"),
    [(-0.9, 0.2, 0.05, 60), (-1.0, 0.08, 0.02, 100), (0.9, 0.0, 0.05, 200)],
)
def test_power_of_few_large_differences_is_that_of_the_test(rare, often, share, n):
    """A model that is a little better and sometimes fails: normal sums had it .87 for .56."""
    x, shares = np.array([rare, often]), np.array([share, 1 - share])
    scores = np.random.default_rng(n).choice(3 * x, size=(1000, n), p=shares)
    rejected = (sequential.p_value(scores, bounds=(-3, 3), mean=0.0) <= 0.05).mean()
    units, looks = (3 * x, shares), np.array([n / 2, n])
    predicted = power.mixture_power(looks, 3 * x @ shares, units=units, span=3.0, tail=0.025)
    assert predicted[1] == pytest.approx(rejected, abs=0.07)
    assert predicted[0] < predicted[1]


@pytest.mark.parametrize(("mean", "sd"), [(0.1, 0.2), (-0.3, 0.5), (0.0, 1e-6), (0.1, 2.0)])
def test_bets_lose_what_a_beta_variable_makes_them_lose(mean, sd):
    """λE[d] - E[log(1 + λd)] over 200 of its quantiles; of no more spread than there can be."""
    share = (1 + mean) / 2
    whole = share * (1 - share)
    size = whole / np.clip(sd**2 / 4, 1e-6 * whole, 0.999 * whole) - 1
    places = (np.arange(200) + 0.5) / 200
    d = 2 * stats.beta.ppf(places, share * size, (1 - share) * size) - 1
    bets = np.cos((np.arange(400) + 0.5) * np.pi / 400)
    expected = [bet * d.mean() - np.log1p(bet * d).mean() for bet in bets]

    np.testing.assert_allclose(power._loss_by_bet(mean, sd), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("squares", [30.0, 399.0, 401.0, 9000.0])
def test_the_capital_of_sums_is_a_mean_over_bets(squares):
    """Of exp(λS - λ²V/2), λ = cos θ: by another quadrature, and beyond 400 by its limit."""
    sums = np.sqrt(squares) * np.array([-3.0, 0.0, 1.5, 4.0])
    losses = power._BETS**2 * squares / 2
    angle = (np.arange(20_000) + 0.5) * np.pi / 20_000
    bets = np.cos(angle)
    at = np.linspace(sums[0], sums[-1], 129)
    capital = np.exp(at[:, None] * bets - bets**2 * squares / 2).mean(axis=1)
    found = power._log_capital_of_sums(sums, losses, squares)

    # Beyond, the next term is left out.
    expected = np.interp(sums, at, np.log(capital))
    np.testing.assert_allclose(found, expected, atol=1e-6 if squares < 400 else 0.025)


def test_sums_of_squares_grow_with_the_looks(monkeypatch):
    """In units of the span: those around the mean, and of the mean."""
    asked = []

    def nothing(sums, _, squares):
        asked.append(squares)
        return 0 * sums

    monkeypatch.setattr(power, "_log_capital_of_sums", nothing)
    power.mixture_power(np.array([10.0, 30.0]), 0.6, variance=0.5, span=2.0, tail=0.025)
    assert asked == pytest.approx([10 * 0.86 / 4, 30 * 0.86 / 4])
    monkeypatch.undo()
    # Unless they vary, sums are found at once.
    assert power.mixture_power(np.array([2.0, 99.0]), 0.6, tail=0.025).tolist() == [0, 1]


@pytest.mark.parametrize(("difference", "variance"), [(0.1, 0.09), (0.02, 0.01), (0.3, 0.2)])
def test_items_of_a_sequential_test_are_those_of_its_first_look_that_is_enough(
    difference, variance, monkeypatch
):
    """Of looks up to twice as many as one look needs, or four times and so on."""
    monkeypatch.setattr(power, "N_PATHS", 2000)
    given = {"variance": variance, "tail": 0.025}
    most = 2 * power.items_needed(difference, variance, **GOAL)
    while True:
        looks = power.looks_up_to(most, 7)
        reached = power.mixture_power(looks, difference, **given)
        if reached[-1] >= 0.8:
            break
        most *= 2
    found = power.mixture_items_needed(difference, look_every=7, power=0.8, **given)
    assert found == looks[reached >= 0.8][0]


def test_differences_drawn_one_by_one_have_the_power_of_their_counts():
    """Of -1, 0 and 1, where the capital has a closed form; shares need not be apart."""
    looks = np.arange(20, 420, 20.0)
    x, shares = np.array([-1.0, 1.0, 0.0, 0.0]), np.array([0.1, 0.2, 0.4, 0.3])
    found = power.mixture_power(looks, 0.1, units=(x, shares), tail=0.025)
    expected = power.mixture_power(looks, 0.1, discordance=0.3, tail=0.025)
    np.testing.assert_allclose(found, expected, atol=0.04)
    assert 0.5 < found[-1] < 1
    needed, of_counts = (
        power.mixture_items_needed(0.1, variance=0.29, look_every=20, **GOAL, **{name: source})
        for name, source in (("units", (x, shares)), ("discordance", 0.3))
    )
    assert needed == pytest.approx(of_counts, abs=20)
