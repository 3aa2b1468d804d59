"""Pilots in other numbers of epochs, and the least number of them: simulated and counted."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import special

from evalstats_plugin.comparisons.planning import pilots
from evalstats_plugin.comparisons.planning.solver import PowerSolver
from evalstats_plugin.stats.pairs.differences import Differences


@pytest.mark.parametrize("n_epochs", [2, 3, 8])
def test_variances_of_items_are_shrunk_by_what_epochs_have_spread_them(n_epochs: int) -> None:
    """What is left varies as the true ones do; equal ones become equal."""
    random = np.random.default_rng(n_epochs)
    true = random.gamma(4.0, size=40_000)

    def estimated(variance: np.ndarray) -> np.ndarray:
        both = random.normal(size=(2, len(variance), n_epochs)) * np.sqrt(variance)[:, None]
        return both.var(axis=2, ddof=1).sum(axis=0)

    seen = estimated(true)
    found = pilots._shrunk(seen, float(n_epochs))
    assert found.mean() == pytest.approx(seen.mean())
    assert found.std() == pytest.approx((2 * true).std(), rel=0.12)
    assert np.corrcoef(found, seen)[0, 1] == pytest.approx(1)
    same = pilots._shrunk(estimated(np.ones(40_000)), float(n_epochs))
    assert same.std() < 0.35 * np.sqrt(4 / (n_epochs - 1))
    assert pilots._shrunk(np.full(5, 0.25), 3.0).tolist() == [0.25] * 5
    assert (pilots._shrunk(np.append(np.zeros(99), 1.0), 3.0) >= 0).all()


def test_the_power_of_many_skewed_differences_is_the_engines() -> None:
    """400 items of which few are far better: a drop is found more often than a gain."""
    random = np.random.default_rng(0)
    b = np.where(random.random((2000, 1)) < 0.02, 1.0, 0.0) + random.normal(0, 0.05, (2000, 1))
    b -= b.mean()
    planned = pilots.Pilot((pilots.TaskScores(0 * b, b),)).planned()
    size = 2.8 * float(b.std()) / 20
    gain, drop = (planned.power(400, d, tail=0.025) for d in (size, -size))

    drawn = planned._drawn(400, size)
    assert gain == pytest.approx(np.mean(Differences(drawn.x).p_value <= 0.05), abs=0.03)
    assert gain + 0.1 < drop


@pytest.mark.parametrize("n_epochs", [1, 2, 12])
def test_items_of_more_epochs_vary_by_what_is_left_of_their_noise(n_epochs: int) -> None:
    """Between items as before, within them as so many epochs; missing ones leave it alike."""
    random = np.random.default_rng(4)
    m = 6000
    item = random.normal(0.3, 0.5, m)
    noise = random.uniform(0.5, 1.5, (2, m, 1))
    a = noise[0] * random.normal(size=(m, 3))
    b = item[:, None] + noise[1] * random.normal(size=(m, 3))
    b[:200, 1:] = np.nan
    versions = pilots._with_more_epochs(a, b, n_epochs)
    within = (noise**2).sum(axis=0).mean()

    assert versions.shape == (pilots.VERSIONS, m)
    assert versions.mean() == pytest.approx(
        (np.nanmean(b, axis=1) - a.mean(axis=1)).mean(), abs=0.03
    )
    assert versions.var(axis=1).mean() == pytest.approx(0.25 + within / n_epochs, rel=0.05)
    of_item = versions.var(axis=0, ddof=1)
    assert of_item.mean() == pytest.approx(within / n_epochs, rel=0.05)
    assert np.corrcoef(versions.mean(axis=0), item)[0, 1] > 0.3
    # Items that are noisy stay so.
    assert np.corrcoef(of_item, (noise**2).sum(axis=0)[:, 0])[0, 1] > 0.3


def test_noise_that_two_models_share_is_not_added() -> None:
    """Differences that vary less than epochs of two models alone would make them."""
    random = np.random.default_rng(5)
    both = random.normal(size=(500, 4))
    versions = pilots._with_more_epochs(both, both + 0.1 + 1e-3 * random.normal(size=(500, 4)), 8)

    assert versions.mean() == pytest.approx(0.1, abs=1e-3)
    assert versions.std() < 2e-3
    assert (
        pilots._with_more_epochs(
            100 * both, 100 * both + 0.1 * random.normal(size=(500, 4)), 8
        ).std()
        < 0.2
    )
    still = pilots._with_more_epochs(np.zeros((5, 2)), np.ones((5, 2)), 4)
    assert (still == 1).all()


@pytest.mark.parametrize("start", [1.0, 2.0, 7.0, 8.0, 9.0, 40.0])
def test_the_least_number_of_epochs_is_found_from_any_guess(start: float) -> None:
    """By counting up; none beyond twice the guess, and 16."""
    solver = PowerSolver.__new__(PowerSolver)
    solver.spread = SimpleNamespace(pilots=["first", "second"])  # pyright: ignore[reportAttributeAccessIssue]
    solver.aim = SimpleNamespace(power=0.8)  # pyright: ignore[reportAttributeAccessIssue]
    solver.n_models = 3
    solver.tail = lambda n_models: 0.05 / n_models  # pyright: ignore[reportAttributeAccessIssue]
    solver._plan = lambda pilot, n_epochs: (pilot, n_epochs)  # pyright: ignore[reportAttributeAccessIssue]
    for needed in (*range(1, 20), 30, 41, 79, 80, 81):
        seen: list[object] = []

        def simulated(*given: object, needed: int = needed, seen: list[object] = seen) -> float:
            *about, (pilot, n_epochs) = given
            seen.append(about)
            assert pilot == "second"
            return 0.8 if n_epochs >= needed else 0.79

        solver._simulated = simulated  # pyright: ignore[reportAttributeAccessIssue]
        most = 2 * max(start, 8.0)
        assert solver._epochs(1, 50.0, 0.1, start) == (needed if needed <= most else np.inf)
        assert all(about == [1, 50.0, 0.1, 0.05 / 3] for about in seen)
        # Each is a simulation: all numbers in between would take too long.
        assert needed < start or len(seen) <= 20


@pytest.mark.parametrize("start", [0.02, 0.3, 0.9, 1.0, 1.004, 1.2, 4.0, 50.0])
@pytest.mark.parametrize(
    ("tail", "power"), [(0.025, 0.8), (1e-3, 0.95), (0.025, 0.5), (1e-4, 0.995), (0.025, 0.06)]
)
def test_a_search_ends_where_a_power_is_reached(start: float, tail: float, power: float) -> None:
    """At the number itself, or less than 1 % above the difference; smooth, or all at once."""
    z, goal = -special.ndtri(tail), special.ndtri(power)
    assert 2 == pilots.search(lambda _: 1.0, 2 * start, tail=tail, power=power, whole=True)
    for needed in (2, 5, 37, 240):
        seen: list[float] = []

        def smooth(n: float, needed: int = needed, seen: list[float] = seen) -> float:
            seen.append(n)
            return float(special.ndtr(np.sqrt(n / (needed - 0.5)) * (z + goal) - z))

        def sudden(n: float, needed: int = needed) -> float:
            return 1.0 * (n >= needed)

        of = {"start": start * needed, "tail": tail, "power": power}
        assert [needed] * 2 == [pilots.search(f, **of, whole=True) for f in (smooth, sudden)]
        # No guess is so wild that its simulation would take long.
        assert max(np.divide(seen[1:], seen[:-1]), default=0.0) <= 9 + 1e-9
        assert len(seen) <= (12 if start < 50 and power < 0.99 else 24)
        exact = np.sqrt(needed - 0.5)
        of["start"] = start * exact
        least = pilots.search(lambda d, f=smooth: f(d * d), **of, whole=False)
        assert (1 - 1e-9) * exact <= least <= 1.01 * exact
        if start < 1 and needed > 5:
            assert np.isinf(pilots.search(smooth, **of, whole=True, most=0.99 * needed))


@pytest.mark.parametrize("unit", [1e-3, 1e3])
def test_units_of_scores_do_not_matter(unit: float) -> None:
    """Of variances too; one item stays where it is."""
    random = np.random.default_rng(6)
    v, a, b = random.gamma(2.0, size=50), random.normal(size=(30, 3)), random.normal(size=(30, 3))

    assert pilots._shrunk(unit * v, 4.0) == pytest.approx(unit * pilots._shrunk(v, 4.0))
    for other in (b, a + 0.1 * b):
        found = pilots._with_more_epochs(unit * a, unit * other, 5)
        np.testing.assert_allclose(found, unit * pilots._with_more_epochs(a, other, 5), rtol=1e-9)
    assert pilots._without_noise(np.array([0.3]), 0.1).tolist() == [0.3]
    # Half of a variance of .02 is noise.
    assert pilots._without_noise(np.array([0.2, 0.4]), 0.01) == pytest.approx(
        [0.3 - 0.1 / 2**0.5, 0.3 + 0.1 / 2**0.5]
    )
    assert pilots._without_noise(np.full(4, 0.3), 0.1) == pytest.approx(0.3)


@pytest.mark.parametrize("margin", [0.05, 0.08, 0.12])
def test_power_of_non_inferiority_is_how_often_the_limit_is_within_the_margin(
    margin: float,
) -> None:
    """Of 400 units by the mean and spread of the limits, of 40 by counting."""
    random = np.random.default_rng(3)
    a, b = random.uniform(size=(2, 90, 1))
    planned = pilots.Pilot((pilots.TaskScores(a, b),), span=1.0).planned()
    for n, error in ((40, 0.0), (400, 0.02)):
        drawn = planned._drawn(n, -0.01)
        low, _ = Differences(drawn.x, span=1.0).one_more(-special.ndtri(0.1))
        found = planned.non_inferior(n, -0.01, tail=0.1, margin=margin)
        assert drawn.sizes is None
        assert found == pytest.approx(np.mean(low > -margin), abs=error)


def test_values_of_samples_are_smoothed_by_their_means() -> None:
    """Means follow a known distribution: what they have by chance is taken off."""
    random = np.random.default_rng(3)
    means, rest = random.normal(size=(2, 50))
    samples = pilots._Samples(np.empty((50, 3)), None, 0.2 + 0.1 * means, 0.2, 0.1)
    found = samples.smoothed(4 * means + rest, 4.0)
    variance = 16 + np.var(4 * means + rest) - np.var(4 * means)

    assert found.mean == pytest.approx(rest.mean(), rel=1e-9)
    assert found.spread == pytest.approx(np.sqrt(variance), rel=1e-9)


def test_units_of_a_pilot_are_its_own() -> None:
    """Single epochs of items; sums over clusters, farther apart than they seem, for they are few.

    Clusters that do not differ are no farther apart.
    """
    random = np.random.default_rng(3)
    a, b = random.normal(size=(2, 12, 3))
    once = pilots._population(pilots.TaskScores(a, b), 1).sums.reshape(pilots.VERSIONS, 12)
    for i, values in enumerate(once.T):
        assert np.isin(values.round(9), np.subtract.outer(b[i], a[i]).round(9)).all()
        assert len(set(values)) > 3

    clusters = np.repeat([0, 1, 2, 3], [1, 2, 4, 5])
    b = b + np.array([0.0, 3.0, -2.0, 4.0])[clusters, None]
    population = pilots._population(pilots.TaskScores(a, b, clusters), 3)
    d = (b - a).mean(axis=1)
    sums, sizes = np.bincount(clusters, d), np.bincount(clusters)
    np.testing.assert_allclose(population.sums, sums)
    assert population.sizes.tolist() == sizes.tolist()
    assert population.widened == pytest.approx(np.sqrt(4 / 3))
    of = pilots._Drawn.of(population, np.full(4, 0.25))
    assert of.units_per_item == pytest.approx(1 / 3)
    assert of.variance == pytest.approx(np.mean((sums - d.mean() * sizes) ** 2) / 9)
    planned = pilots.Planned([population])
    assert planned._drawn(30, 0.1).sizes is not None
    alike = pilots._population(pilots.TaskScores(0 * a, 0 * a + 0.5, clusters), 3)
    assert alike.widened == 1.0


@pytest.mark.parametrize("n_items", [5, 80])
def test_means_of_random_tasks_vary_by_what_is_left_of_their_items(n_items: int) -> None:
    """Between tasks without the noise of the pilot's items, and with that of others."""
    rng = np.random.default_rng(7)
    tasks = []
    for mean in (0.1, 0.5, 0.9):
        sizes = rng.integers(1, 5, 9) * 1.0
        tasks.append(pilots.Population(sizes * mean + rng.normal(size=9), sizes))
    twice = tasks[0]._replace(
        sums=np.tile(tasks[0].sums, 2), sizes=np.tile(tasks[0].sizes, 2), n_versions=2
    )
    drawn = pilots._stream("means of tasks").standard_normal((pilots.VERSIONS, 3))
    means = np.array([t.sums.sum() / t.sizes.sum() for t in tasks])
    within = np.array(
        [
            np.sum((t.sums - m * t.sizes) ** 2) / t.sizes.sum()
            for t, m in zip(tasks, means, strict=True)
        ]
    )
    noise = np.mean([w / t.sizes.sum() for w, t in zip(within, tasks, strict=True)])
    kept = np.sqrt(max(1 - noise / means.var(ddof=1), 0.0))
    expected = means.mean() + kept * (means - means.mean()) + drawn * np.sqrt(within / n_items)
    for some in (tasks, [twice, *tasks[1:]]):
        found = pilots._of_tasks(some, n_items)
        np.testing.assert_allclose(found.sums, expected.ravel(), rtol=1e-9)
        assert (found.sizes == 1).all()
        assert found.widened == pytest.approx(np.sqrt(3 / 2))
        assert found.n_versions == pilots.VERSIONS


def test_half_a_cluster_is_rounded_the_same_way_on_every_processor() -> None:
    """90 items in clusters of 4 are 23 of these, not 22 where the last bit is lower."""
    sums = np.random.default_rng(0).integers(-3, 4, 30) * 1.0
    powers = {
        pilots.Planned([pilots.Population(sums, np.full(30, size), widened=1.1)]).power(
            90, 0.2, tail=0.025
        )
        for size in np.nextafter(4.0, [0.0, 4.0, 9.0])
    }
    assert len(powers) == 1
