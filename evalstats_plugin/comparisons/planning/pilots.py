"""Power by simulation: samples like those of a pilot, judged as `compare` judges them.

`Pilot` holds the scores of two models, on one task or several. `Planned` draws samples of its units
with replacement, moves them to a true difference, and counts how many the one engine of
`stats.pairs.differences` finds. What is drawn is what the comparison samples: items, clusters,
items of each of several fixed tasks, or tasks. Scores of fewer epochs than the pilot has are means
of some of its epochs; those of more are item means without their noise, with less noise added.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy import special

from evalstats_plugin.stats.arrays import FloatArray, IntArray
from evalstats_plugin.stats.clustered import by_cluster
from evalstats_plugin.stats.means import moments
from evalstats_plugin.stats.pairs.differences import Differences, distance
from evalstats_plugin.stats.streams import child, stream

N_SAMPLES, FEWEST_SAMPLES = 4000, 1000
"""Simulated comparisons of few units, and of many: a power of .8 has a standard error of .006 to
.01."""

DRAWN = 1_200_000
"""Units drawn in all, up to which `N_SAMPLES` comparisons are simulated."""

WHOLE_UP_TO = 300
"""Units up to which all values of a statistic are kept; of more it is normal, with their mean and
spread."""

SIMULATED_UP_TO = 5000
"""Units up to which power is simulated."""

VERSIONS = 16
"""Means of other numbers of epochs that are drawn of each unit of the pilot."""


@dataclass(frozen=True, eq=False)
class TaskScores:
    """Scores of two models on the items of one task."""

    a: FloatArray
    """Shape (M, K): item by epoch, NaN where missing; so is `b`."""
    b: FloatArray
    clusters: IntArray | None = None
    """Shape (M,): number of each item's cluster."""

    def answered(self) -> TaskScores:
        """Return the items that both models answered."""
        both = ~np.isnan(self.a).all(axis=1) & ~np.isnan(self.b).all(axis=1)
        clusters = None if self.clusters is None else self.clusters[both]
        return TaskScores(self.a[both], self.b[both], clusters)

    def differences(self) -> FloatArray:
        """Mean differences b - a of items that both answered, shape (M,)."""
        return moments(self.b).mean - moments(self.a).mean


class Population(NamedTuple):
    """Units to draw from."""

    sums: FloatArray
    """Shape (U,): differences b - a, added over the items of each unit."""
    sizes: FloatArray
    """Shape (U,): items of each unit."""
    n_versions: int = 1
    """How often each unit of the pilot is among them, with other epochs."""
    widened: float = 0.0
    """Of clusters and tasks: how many times farther apart they are than they seem, for they are
    few; 0 for items."""

    @property
    def mean(self) -> float:
        """Mean difference of an item."""
        return float(self.sums.sum() / self.sizes.sum())

    def moved(self, mean: float) -> tuple[Population, FloatArray]:
        """Units and shares that make the mean difference of an item what is asked for.

        Items that speak for it are drawn more often (exponential tilting), beside half of one on
        either side at F; so scores keep their grid, and rare failures stay rare. Clusters and tasks
        are moved as they are, and vary as much as before.
        """
        if self.widened:
            rest = self.sums - self.mean * self.sizes
            moved = self._replace(sums=mean * self.sizes + self.widened * rest)
            return moved, np.full(len(rest), 1 / len(rest))
        far = float(distance(self.sums[None])[0])
        x = np.append(self.sums, [far, -far])
        weights = np.append(np.full(len(x) - 2, 1 / self.n_versions), [0.5, 0.5])
        share, rest = weights / weights.sum(), x - mean
        largest = float(np.abs(rest).max())
        moved = self._replace(sums=x, sizes=np.ones(len(x)))
        if largest == 0 or rest.max() < 0.02 * largest or rest.min() > -0.02 * largest:
            # No shares lead so far.
            return moved._replace(sums=x + mean - share @ x), share
        low, high = -800.0, 800.0
        for _ in range(60):
            rate = (low + high) / 2
            size = rate * rest / largest
            share = weights * np.exp(size - size.max())
            share /= share.sum()
            low, high = (rate, high) if share @ rest < 0 else (low, rate)
        return moved, share


@dataclass(frozen=True, eq=False)
class Pilot:
    """Scores of one pair of models.

    Parameters
    ----------
    tasks
        One task; or several, over which the mean is taken.
    random_tasks
        Whether the tasks are a sample, and more can be drawn; else they are fixed.
    spread
        Factor of all differences, to see how the pilot's error moves an answer.
    span
        Largest possible difference.
    """

    tasks: tuple[TaskScores, ...]
    random_tasks: bool = False
    spread: float = 1.0
    span: float = np.inf

    def swapped(self) -> Pilot:
        """Return the pilot with the models exchanged."""
        return replace(self, tasks=tuple(replace(task, a=task.b, b=task.a) for task in self.tasks))

    @property
    def clustered(self) -> bool:
        """Whether items come in clusters."""
        return any(task.clusters is not None for task in self.tasks)

    def planned(self, n_epochs: int | None = None, *, of_task: int = 1) -> Planned:
        """Return what a comparison samples.

        Parameters
        ----------
        n_epochs
            Of each item; None for those of the pilot.
        of_task
            Items of each random task.
        """
        populations = [
            _population(population, n_epochs or population.a.shape[1]) for population in self.tasks
        ]
        populations = [
            population._replace(sums=self.spread * population.sums) for population in populations
        ]
        return Planned(
            [_of_tasks(populations, of_task)] if self.random_tasks else populations, self.span
        )


class Planned:
    """A comparison of units like those of some populations, one for each task.

    Parameters
    ----------
    populations
        Of random tasks one, whose units are the tasks.
    span
        Largest possible difference.
    """

    def __init__(self, populations: list[Population], span: float = np.inf) -> None:
        self._populations, self._span = populations, span
        self.mean = float(np.mean([population.mean for population in populations]))
        """Mean difference b - a of the pilot."""
        self._last: tuple[tuple[float, float], _Statistic] | None = None

    def differences(self, mean: float) -> tuple[FloatArray, FloatArray] | None:
        """Differences of items of one task, moved to a mean, and their shares; None of clusters."""
        moved, share = self._populations[0].moved(mean)
        return None if moved.widened else (moved.sums, share)

    def power(self, n: float, difference: float, *, tail: float) -> float:
        """Return the probability that the comparison finds a difference.

        Parameters
        ----------
        n
            Items of each task; of random tasks, how many there are.
        difference
            True mean difference b - a.
        tail
            Error on either side.
        """
        z = -float(special.ndtri(tail))
        if self._last is None or self._last[0] != (n, difference):
            drawn = self._drawn(n, difference)
            w = Differences(drawn.x, sizes=drawn.sizes).deviate
            if drawn.x.shape[1] <= WHOLE_UP_TO or drawn.error == 0:
                deviate = _Statistic(float(w.mean()), float(w.std()), w)
            else:
                # Of many units it is normal, and its mean and spread are enough.
                deviate = drawn.smoothed(w, 1.0)
            self._last = (n, difference), deviate
        _, deviate = self._last
        if deviate.sample is not None:
            return float(np.mean(np.abs(deviate.sample) >= z))
        up = (deviate.mean - z) / deviate.spread
        down = (-deviate.mean - z) / deviate.spread
        return float(special.ndtr(up) + special.ndtr(down))

    def non_inferior(self, n: float, difference: float, *, tail: float, margin: float) -> float:
        """Return the probability to show that b is not lower than a by more than the margin."""
        drawn = self._drawn(n, difference)
        pairs = Differences(drawn.x, sizes=drawn.sizes, span=self._span)
        low, _ = pairs.one_more(-float(special.ndtri(tail)))
        # NaN where nothing differs, and no bounds say how much it could.
        low = np.nan_to_num(low, nan=-np.inf)
        if drawn.x.shape[1] <= WHOLE_UP_TO or drawn.error == 0 or np.isinf(low).any():
            return float(np.mean(low > -margin))
        of_low = drawn.smoothed(low, drawn.error)
        return float(special.ndtr((of_low.mean + margin) / of_low.spread))

    def _drawn(self, n: float, difference: float) -> _Samples:
        lead = difference - self.mean
        moved = [
            _Drawn.of(*population.moved(population.mean + lead)) for population in self._populations
        ]
        # 22.5 units are 23, whichever way the last bit is rounded.
        n_units = [max(int(n * each.units_per_item + 0.5 + 1e-9), 1) for each in moved]
        n_samples = int(np.clip(DRAWN / sum(n_units), FEWEST_SAMPLES, N_SAMPLES))
        rng = _stream("comparisons")
        parts = [
            population.draw(k, n_samples, rng) for population, k in zip(moved, n_units, strict=True)
        ]
        x, sizes = parts[0] if len(parts) == 1 else (_of_strata(parts), None)
        n_in_all = x.shape[1] if sizes is None else sizes.sum(axis=1)
        variances = [population.variance / k for population, k in zip(moved, n_units, strict=True)]
        error = float(np.sqrt(np.sum(variances))) / len(parts)
        return _Samples(x, sizes, x.sum(axis=1) / n_in_all, difference, error)


class _Samples(NamedTuple):
    x: FloatArray
    """Shape (samples, units): differences; `sizes` are how many items each is of, None for 1."""
    sizes: FloatArray | None
    means: FloatArray
    """Shape (samples,): mean differences."""
    difference: float
    """Their expectation."""
    error: float
    """Their standard error."""

    def smoothed(self, values: FloatArray, unit: float) -> _Statistic:
        """Mean and spread of values that follow the samples' means, which are known, in a unit."""
        near = unit * (self.means - self.difference) / self.error
        mean = float(np.mean(values - near))
        variance = unit**2 + float(np.var(values) - np.var(near))
        return _Statistic(mean, float(np.sqrt(max(variance, 1e-6 * unit**2))), None)


class _Statistic(NamedTuple):
    """Distribution of a statistic over samples."""

    mean: float
    spread: float
    sample: FloatArray | None
    """All values, of few units."""


def _of_tasks(tasks: list[Population], n_items: int) -> Population:
    """Mean differences of tasks of so many items, as units."""
    means = np.array([task.mean for task in tasks])
    # Variance of one item's difference within its task, clustered.
    within = np.array(
        [np.sum((task.sums - task.mean * task.sizes) ** 2) / task.sizes.sum() for task in tasks]
    )
    n_pilot = np.array([task.sizes.sum() / task.n_versions for task in tasks])
    true = _without_noise(means, float((within / n_pilot).mean()))
    drawn = _stream("means of tasks").standard_normal((VERSIONS, len(means)))
    values = (true + drawn * np.sqrt(within / n_items)).ravel()
    widened = np.sqrt(len(means) / max(len(means) - 1, 1))
    return Population(values, np.ones(len(values)), VERSIONS, widened)


def _stream(purpose: str) -> np.random.Generator:
    return child(stream(0, "comparisons like those of a pilot"), purpose)


class _Drawn(NamedTuple):
    population: Population
    ends: FloatArray
    """Shape (U - 1,): where the shares of the units end."""
    units_per_item: float
    variance: float
    """Of a mean difference, times its units."""

    @classmethod
    def of(cls, population: Population, share: FloatArray) -> _Drawn:
        size = float(share @ population.sizes)
        rest = population.sums - float(share @ population.sums) / size * population.sizes
        variance = float(share @ rest**2) / size**2
        return cls(population, np.cumsum(share)[:-1], 1 / size, variance)

    def draw(
        self, n_units: int, n_samples: int, rng: np.random.Generator
    ) -> tuple[FloatArray, FloatArray | None]:
        """Sums of units, shape (samples, units), and their sizes, None where all are 1."""
        place = _places(self.ends, rng.random((n_samples, n_units)))
        sizes = self.population.sizes
        return self.population.sums[place], None if np.all(sizes == 1) else sizes[place]


def _places(ends: FloatArray, u: FloatArray) -> IntArray:
    """Return ``np.searchsorted(ends, u)`` of numbers in [0, 1), from a table of first guesses.

    A search among thousands of ends takes several times as long.
    """
    n_guesses = 1 << (4 * len(ends) + 1).bit_length()
    guesses = np.searchsorted(ends, np.arange(n_guesses) / n_guesses)
    place = guesses[(u * n_guesses).astype(np.int64)]
    closed = np.append(ends, np.inf)
    short = np.nonzero(closed[place] < u)
    while len(short[0]):
        place[short] += 1
        still = closed[place[short]] < u[short]
        short = tuple(index[still] for index in short)
    return place


def _of_strata(parts: list[tuple[FloatArray, FloatArray | None]]) -> FloatArray:
    """Units of fixed tasks that count alike, as those of one sample, as in `units.Strata`."""
    total = sum(x.shape[1] for x, _ in parts)
    means: list[FloatArray] = []
    rests: list[FloatArray] = []
    for x, sizes in parts:
        n = x.shape[1] if sizes is None else sizes.sum(axis=1, keepdims=True)
        mean: FloatArray = x.sum(axis=1, keepdims=True) / n
        rest: FloatArray = x - mean * (1 if sizes is None else sizes)
        more = np.sqrt(x.shape[1] / max(x.shape[1] - 1, 1))
        means.append(mean)
        rests.append(rest * (more / n))
    whole = np.mean(means, axis=0)
    return np.concatenate([whole + total / len(parts) * rest for rest in rests], axis=1)


def _population(task: TaskScores, n_epochs: int) -> Population:
    """Units of a task with so many epochs."""
    task = task.answered()
    a, b = task.a, task.b
    own = a.shape[1]
    if n_epochs == own:
        versions = task.differences()[None]
    elif n_epochs < own and not (np.isnan(a).any() or np.isnan(b).any()):
        rng = _stream("some of the epochs")
        versions = np.stack([
            _some(b, n_epochs, rng) - _some(a, n_epochs, rng) for _ in range(VERSIONS)
        ])  # fmt: skip
    else:
        versions = _with_more_epochs(a, b, n_epochs)
    if task.clusters is None:
        return Population(versions.ravel(), np.ones(versions.size), len(versions))
    clusters = task.clusters
    sizes = by_cluster(np.ones((1, len(clusters))), clusters)[0]
    sums = by_cluster(versions, clusters)
    n, count = sizes.sum(), len(sizes)
    rest = sums - versions.mean(axis=1, keepdims=True) * sizes
    between = float((rest**2).sum()) / len(versions)
    # Clusters that seem to vary less than independent items are few by chance.
    alone = float(versions.var(axis=1).mean()) * n
    least = max(between * count / max(count - 1, 1), alone)
    widened = float(np.sqrt(least / between)) if between > 0 else 1.0
    return Population(sums.ravel(), np.tile(sizes, len(versions)), len(versions), widened)


def _some(scores: FloatArray, n_epochs: int, rng: np.random.Generator) -> FloatArray:
    """Means over some epochs of each item."""
    order = np.argsort(rng.random(scores.shape), axis=1)[:, :n_epochs]
    return np.take_along_axis(scores, order, axis=1).mean(axis=1)


def _with_more_epochs(a: FloatArray, b: FloatArray, n_epochs: int) -> FloatArray:
    """Item means without their noise, and with that of other numbers of epochs: (versions, M)."""
    (n_a, mean_a, sd_a), (n_b, mean_b, sd_b) = moments(a), moments(b)
    variances = [np.where(n > 1, sd**2, np.nan) for n, sd in ((n_a, sd_a), (n_b, sd_b))]
    filled: list[FloatArray] = [np.where(np.isnan(v), np.nanmean(v), v) for v in variances]
    of_a, of_b = filled
    x = mean_b - mean_a
    now = float((of_a / n_a + of_b / n_b).mean())
    # What is not between items is within them: no more than all of the variance.
    share = min(1.0, float(x.var()) / now) if now > 0 else 1.0
    noise = np.sqrt(share * _shrunk(of_a + of_b, float(n_a.mean())) / n_epochs)
    drawn = _stream("more epochs").standard_normal((VERSIONS, len(x)))
    return _without_noise(x, now) + noise * drawn


def _shrunk(variances: FloatArray, n_epochs: float) -> FloatArray:
    """Variances of items, shrunk to their mean by as much as few epochs have spread them."""
    mean, spread = float(variances.mean()), float(variances.var())
    # Of a sum of two estimates, each of as many normal epochs.
    true = float((variances**2).mean()) * (n_epochs - 1) / n_epochs - mean**2
    kept = np.sqrt(np.clip(true / spread, 0.0, 1.0)) if spread > 0 else 0.0
    return mean + kept * (variances - mean)


def _without_noise(x: FloatArray, noise: float) -> FloatArray:
    """Values, shrunk to their mean by as much as noise of a known variance has spread them."""
    total = float(x.var(ddof=1)) if len(x) > 1 else 0.0
    kept = np.sqrt(max(total - noise, 0.0) / total) if total > 0 else 0.0
    return x.mean() + kept * (x - x.mean())


def search(
    power_of: Callable[[float], float],
    start: float,
    *,
    tail: float,
    power: float,
    whole: bool,
    most: float = np.inf,
) -> float:
    """Find where a power is reached, from a guess.

    Parameters
    ----------
    power_of
        Power by a number of items, whose root the mean deviate rises with, or by a difference.
    whole
        Whether it is by a number of items, 2 or more.
    most
        Largest argument that is looked at.

    Returns
    -------
    float
        The least number of items, or within 1 % of the least difference; inf where none was found.
    """
    z, goal = -float(special.ndtri(tail)), float(special.ndtri(power))
    least = 2.0 if whole else 0.0
    at = float(max(np.ceil(start), least) if whole else start)
    reached = power_of(at)
    short, enough = least, most
    for _ in range(40):
        short, enough = (short, at) if reached >= power else (at, enough)
        lead = max(float(special.ndtri(np.clip(reached, 1e-3, 1 - 1e-3))) + z, 1e-9)
        # A power of nearly 1 does not tell how far away the goal is.
        step = float(np.clip((goal + z) / lead, 0.3, 0.5 if reached >= 1 - 1e-3 else 3.0))
        new = at * (step * step if whole else step)
        if not short < new < enough:
            # Powers that jump are halved.
            new = (short + enough) / 2 if np.isfinite(enough) else new
        new = float(np.ceil(new)) if whole else new
        if abs(new - at) <= (1.0 if whole else 0.0) + 0.003 * at or new >= most:
            break
        at, reached = new, power_of(new)
    more = max(1.0, np.ceil(0.003 * at)) if whole else 0.003 * at
    for _ in range(8):
        if reached >= power:
            break
        if at + more > most:
            return np.inf
        at = at + more
        more = np.ceil(2 * more) if whole else 2 * more
        reached = power_of(at)
    else:
        return np.inf
    more = max(1.0, np.ceil(0.003 * at)) if whole else 0.003 * at
    for _ in range(3):
        if at - more < 2 * whole or power_of(at - more) < power:
            break
        at = at - more
    return float(at)
