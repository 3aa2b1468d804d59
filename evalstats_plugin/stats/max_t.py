"""The largest of many statistics under common sign flips: what chance alone does to all at once.

If two models are exchangeable, each difference was as likely to have the opposite sign. Flipping
the signs of items, the same for all pairs, keeps how pairs depend on each other. `scores` has shape
(N, M), NaN where an item lacks one, and `a`, `b` of shape (P,) say which models are paired.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike

from evalstats_plugin.stats.interval import FloatArray, IntArray
from evalstats_plugin.stats.paired_scores import ROUNDING, random_signs

# Statistics are formed in blocks of about this many numbers, which stay in the processor's cache.
BLOCK_SIZE = 2**18
# Assignments of signs worked on together.
FLIPS_AT_ONCE = 256


def max_t(differences: ArrayLike, *, rng: np.random.Generator, n_flips: int) -> FloatArray:
    """Step-down p-values from the largest of all statistics under common sign flips [WY93]_.

    Like `multiplicity.holm` it keeps the probability of any false finding, but it makes use of how
    the comparisons depend on each other, and so finds more.

    Parameters
    ----------
    differences : shape (P, M)
        Of the pairs of one family on the same items, NaN where an item lacks a score.
    n_flips
        Assignments of signs to the items that are drawn; what was seen counts as one more.
    """
    return max_t_of_pairs(*against_zero(differences), rng=rng, n_flips=n_flips)


def max_t_of_pairs(
    scores: ArrayLike, a: IntArray, b: IntArray, *, rng: np.random.Generator, n_flips: int
) -> FloatArray:
    """`max_t` of the differences of b from a, shape (P,), which are never held all at once."""
    pairs = _Pairs(np.asarray(scores, dtype=np.float64), a, b, centred=False)
    observed = np.abs(pairs.total) / pairs.divisor
    order = np.argsort(observed, kind="stable")
    count = np.ones(len(observed))
    for signs in _sign_blocks(rng, pairs.scores.shape[1], n_flips):
        largest = np.zeros(signs.shape[1])
        # For each comparison, the largest statistic among it and those that stand out less.
        for block, statistics in pairs.flipped(signs, order):
            np.maximum(statistics[0], largest, out=statistics[0])
            np.maximum.accumulate(statistics, axis=0, out=statistics)
            largest = statistics[-1].copy()
            count[block] += (statistics >= observed[block, None] - ROUNDING).sum(axis=1)
    strongest_first = order[::-1]
    adjusted = np.empty(len(observed))
    adjusted[strongest_first] = np.maximum.accumulate(count[strongest_first] / (n_flips + 1))
    return np.where(pairs.n > 0, adjusted, np.nan)


def simultaneous_level(
    scores: ArrayLike,
    a: IntArray,
    b: IntArray,
    *,
    confidence_level: float,
    rng: np.random.Generator,
    n_flips: int,
) -> float:
    """Level at which single intervals hold all true differences at once with `confidence_level`.

    Signs of deviations from the mean difference are flipped, so that differences need not be 0.
    The largest statistic passes its critical value with probability 1 - `confidence_level`; how
    many times as often on average a single one does tells what to leave out for each: all of that
    for copies of one pair, 1/P of it for pairs that never fail together. It is the intervals that
    know about skewness, bounds and few items; the flips only tell how much pairs have in common.
    """
    pairs = _Pairs(np.asarray(scores, dtype=np.float64), a, b, centred=True)
    there = np.flatnonzero(pairs.n > 0)
    tail = 1 - confidence_level
    seed = int(rng.integers(2**63))
    n_items = pairs.scores.shape[1]

    def largest(signs: FloatArray) -> FloatArray:
        blocks = [statistics.max(axis=0) for _, statistics in pairs.flipped(signs, there)]
        return np.max(blocks, axis=0)

    # The same signs twice: which value is critical is known only after the first pass.
    first, second = (_sign_blocks(np.random.default_rng(seed), n_items, n_flips) for _ in "12")
    maxima = np.concatenate([largest(signs) for signs in first]) if len(there) else np.zeros(1)
    critical = np.quantile(maxima, confidence_level, method="higher") - ROUNDING
    if critical <= 0:
        # No pair has any spread that could tell what they have in common.
        return 1 - tail / max(len(there), 1)
    passing = sum(
        int((statistics >= critical).sum())
        for signs in second
        for _, statistics in pairs.flipped(signs, there)
    )
    return 1 - tail * passing / len(there) / int((maxima >= critical).sum())


class _Pairs:
    """Differences of pairs of models, formed block by block: all at once may be gigabytes."""

    def __init__(self, scores: FloatArray, a: IntArray, b: IntArray, *, centred: bool) -> None:
        self.scores, self.a, self.b, self.centred = scores, a, b, centred
        self._complete = not np.isnan(scores).any()
        self.n, self.total, size = np.zeros((3, len(a)))
        for block in self._blocks(np.arange(len(a)), scores.shape[1]):
            differences = scores[b[block]] - scores[a[block]]
            seen = ~np.isnan(differences)
            self.n[block] = seen.sum(axis=1)
            self.total[block] = np.where(seen, differences, 0.0).sum(axis=1)
            if centred:
                differences -= self._mean(block)[:, None]
            size[block] = np.sqrt(np.where(seen, differences**2, 0.0).sum(axis=1))
        # Equal differences have no spread, whatever the rounding of their mean.
        rounding = 1e-12 * np.abs(self.total) if centred else 0.0
        self.divisor = np.where(size > rounding, size, np.inf)

    def flipped(self, signs: FloatArray, pairs: IntArray) -> Iterator[tuple[IntArray, FloatArray]]:
        """Yield blocks of `pairs` and the sizes of their statistics under `signs`, (block, B)."""
        sums, shift = self.scores @ signs if self._complete else None, signs.sum(axis=0)
        for block in self._blocks(pairs, max(signs.shape if sums is None else signs.shape[1:])):
            if sums is None:
                totals = self._rows(block) @ signs
            else:
                totals = sums[self.b[block]] - sums[self.a[block]]
                if self.centred:
                    totals -= self._mean(block)[:, None] * shift
            np.abs(totals, out=totals)
            totals /= self.divisor[block, None]
            yield block, totals

    def _rows(self, block: IntArray) -> FloatArray:
        rows = self.scores[self.b[block]] - self.scores[self.a[block]]
        if self.centred:
            rows -= self._mean(block)[:, None]
        return np.where(np.isnan(rows), 0.0, rows)

    def _mean(self, block: IntArray) -> FloatArray:
        return self.total[block] / np.maximum(self.n[block], 1)

    @staticmethod
    def _blocks(pairs: IntArray, width: int) -> Iterator[IntArray]:
        step = max(BLOCK_SIZE // max(width, 1), 1)
        return (pairs[start : start + step] for start in range(0, len(pairs), step))


def against_zero(differences: ArrayLike) -> tuple[FloatArray, IntArray, IntArray]:
    """Differences as scores of models that are all paired with one that always scores 0."""
    values: FloatArray = np.asarray(differences, dtype=np.float64)
    scores = np.concatenate([np.zeros((1, values.shape[1])), values])
    first = np.zeros(len(values), dtype=np.int64)
    return scores, first, np.arange(1, len(scores), dtype=np.int64)


def _sign_blocks(rng: np.random.Generator, n_items: int, n_flips: int) -> Iterator[FloatArray]:
    for start in range(0, n_flips, FLIPS_AT_ONCE):
        yield random_signs(rng, n_items, min(FLIPS_AT_ONCE, n_flips - start))
