"""What is sampled when models are compared on the same items: items, clusters, tasks.

Every design goes through the one engine of `stats.pairs.differences` and changes only its units:
single items; sums over clusters; items within fixed tasks, with their weights; or tasks themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from evalstats_plugin.comparisons.design import Pairing, Pairs
from evalstats_plugin.stats.arrays import BoolArray, FloatArray, IntArray
from evalstats_plugin.stats.clustered import by_cluster
from evalstats_plugin.stats.pairs.differences import Counts, Differences, MeanDifferences
from evalstats_plugin.stats.pairs.simultaneous import Units

KEPT = 2**22
"""Units of pairs that are held at once: of few pairs at a time, those of many tasks take long."""


def mean_differences(pairs: Pairs) -> MeanDifferences:
    """Return the distributions of all pairs, by items or clusters."""
    span = pairs.span[1]
    if pairs.kind == "binary" and pairs.clusters is None:
        both, only_a, only_b, neither = pairs.tables()
        return Counts(only_b, only_a, both + only_a + only_b + neither)

    def read(part: slice) -> tuple[FloatArray, FloatArray | None]:
        differences = pairs.differences(part.start, part.stop)
        return (differences, None) if pairs.clusters is None else pairs.cluster_sums(differences)

    return Differences(read, n_pairs=len(pairs.a), span=span, least_far=pairs.least_far())


def common_units(pairs: Pairs) -> Units | None:
    """Return the items or clusters that the pairs share; None if memory does not hold them."""
    scores, clusters = pairs.all_scores(), pairs.clusters
    if scores is None:
        return None
    gone = np.isnan(scores)
    ones = np.ones(scores.shape[1])
    sizes = ones if clusters is None else by_cluster(ones, clusters)
    sums = scores
    if clusters is not None:
        # Models that lack items are not those with 0 there: their order would be that of the logs.
        means = np.where(gone, 0.0, scores).sum(axis=0) / np.maximum((~gone).sum(axis=0), 1)
        sums = by_cluster(np.where(gone, means, scores), clusters)
    if not gone.any():
        return Units(sums, sizes)

    def differences(which: IntArray) -> tuple[FloatArray, FloatArray]:
        x = scores[pairs.b[which]] - scores[pairs.a[which]]
        if clusters is not None:
            return pairs.cluster_sums(x)
        seen = ~np.isnan(x)
        return np.where(seen, x, 0.0), seen.astype(np.float64)

    return Units(sums, sizes, differences)


class Strata:
    """Pairs of models on fixed tasks whose mean differences are added with weights.

    What an item adds to the weighted mean, apart from the mean of its task, is one unit, times
    √(n/(n - 1)) of its task: the units' mean is the weighted mean and their spread that within
    tasks. A task in which a pair shares no item counts by each model's own items there. A task of
    one item counts with the spread that items have in the other tasks.

    Parameters
    ----------
    tasks
        Of the same models and pairs.
    weights
        Shares of the tasks, from how many items of each a pair has, shape (K, T).
    """

    def __init__(
        self, tasks: Sequence[Pairing], weights: Callable[[FloatArray], FloatArray]
    ) -> None:
        self.tasks, self._weights = tasks, weights

    def differences(self, pairs: slice | IntArray) -> tuple[FloatArray, FloatArray]:
        """Units of some pairs, shape (K, U), NaN where missing, and which of them are there."""
        x, observed, _ = (x[pairs] for x in self._all) if self._all else self._of(pairs)
        return x, observed

    def means(self) -> FloatArray:
        """Weighted mean differences, shape (P,)."""
        return (self._all or self._of(slice(None)))[2]

    @cached_property
    def _all(self) -> tuple[FloatArray, FloatArray, FloatArray] | None:
        """Units of all pairs; None where they are many."""
        n = sum(len(task.a) * task.n_of_task for task in self.tasks)
        return self._of(slice(None)) if n <= KEPT else None

    def _of(self, pairs: slice | IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        first = [task.scores[task.a[pairs]] for task in self.tasks]
        return self._units(first, [task.scores[task.b[pairs]] for task in self.tasks])

    def common(self) -> Units:
        """Return the units that the pairs share."""
        scores = [task.scores for task in self.tasks]
        gone = any(bool(np.isnan(own).any()) for own in scores)
        # Of the models; where they lack items it gives the order of the units alone.
        sums, _, _ = self._units([np.zeros_like(own) for own in scores], scores)
        every = Units(sums, np.ones(sums.shape[1]))
        single = any(task.scores.shape[1] == 1 for task in self.tasks)
        if not (gone or single):
            return every

        def differences(which: IntArray) -> tuple[FloatArray, FloatArray]:
            x, observed = self.differences(which)
            return np.nan_to_num(x), observed

        return every._replace(differences=differences)

    def _units(
        self, first: Sequence[FloatArray], second: Sequence[FloatArray]
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        parts = [
            _task_units(part, a, b) for part, a, b in zip(self.tasks, first, second, strict=True)
        ]
        weights = self._weights(np.stack([part.n_items for part in parts], axis=1))
        whole = (weights * np.stack([part.mean for part in parts], axis=1)).sum(axis=1)
        parts = self._with_spread(parts, np.where(whole < 0, -1.0, 1.0))
        n_units = np.stack([part.n_units for part in parts], axis=1)
        total = n_units.sum(axis=1)
        x = np.concatenate(
            [(total * w)[:, None] * u.rest for w, u in zip(weights.T, parts, strict=True)], axis=1
        )
        observed = np.concatenate([part.seen for part in parts], axis=1)
        # A pair that shares one unit of several has no spread to see.
        few: BoolArray = np.asarray((n_units < 2).any(axis=1))
        x = np.where(observed & ~few[:, None], x + whole[:, None], np.nan)
        return x, observed.astype(np.float64), whole

    def _with_spread(self, parts: Sequence[_TaskUnits], sign: FloatArray) -> list[_TaskUnits]:
        """Give tasks of a single item two units, as far apart as items are in the other tasks.

        The sign is that of the pair: its models exchanged, all units change theirs.
        """
        alone = [part.scores.shape[1] == 1 for part in self.tasks]
        if not any(alone) or all(alone):
            return list(parts)
        # Of a task's mean, times its items: the variance of a difference on one item.
        variances = [
            part.n_items * (part.rest**2).sum(axis=1)
            for part, single in zip(parts, alone, strict=True)
            if not single
        ]
        half = sign * np.sqrt(np.mean(variances, axis=0) / 2)
        both = np.stack([half, -half], axis=1)
        return [
            part._replace(rest=both, seen=np.repeat(part.seen, 2, axis=1), n_units=2 * part.n_units)
            if single
            else part
            for part, single in zip(parts, alone, strict=True)
        ]


class _TaskUnits(NamedTuple):
    """Of some pairs on one task."""

    rest: FloatArray
    """Shape (K, U): what units differ by from the mean, over the task's items."""
    seen: BoolArray
    mean: FloatArray
    """Shape (K,), like the next two."""
    n_items: FloatArray
    n_units: FloatArray


def _task_units(task: Pairing, a: FloatArray, b: FloatArray) -> _TaskUnits:
    """Units of differences; of pairs that share no item, of each model's own items."""
    units = _residuals(task, b - a)
    not_paired: BoolArray = np.asarray(np.isnan(b - a).all(axis=1))
    if not_paired.any():
        of_a, of_b = (_residuals(task, scores[not_paired]) for scores in (a, b))
        units.rest[not_paired], units.seen[not_paired] = (
            of_b.rest - of_a.rest,
            of_a.seen | of_b.seen,
        )
        units.mean[not_paired] = of_b.mean - of_a.mean
        units.n_items[not_paired] = (of_a.n_items + of_b.n_items) / 2
        few = np.minimum(of_a.n_units, of_b.n_units) < 2
        units.n_units[not_paired] = np.where(few, 1, of_a.n_units + of_b.n_units)
    return units


def _residuals(task: Pairing, x: FloatArray) -> _TaskUnits:
    seen = ~np.isnan(x)
    n = np.maximum(seen.sum(axis=1), 1).astype(np.float64)
    mean = np.where(seen, x, 0.0).sum(axis=1) / n
    rest = np.where(seen, x - mean[:, None], 0.0)
    if task.clusters is not None:
        rest, sizes = task.cluster_sums(np.where(seen, rest, np.nan))
        seen = sizes > 0
    units = seen.sum(axis=1).astype(np.float64)
    more = np.sqrt(units / np.maximum(units - 1, 1))
    return _TaskUnits(rest * (more / n)[:, None], np.asarray(seen), mean, n, units)
