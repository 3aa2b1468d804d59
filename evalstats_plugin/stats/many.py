"""Many comparisons at once: adjusted p-values, simultaneous intervals, and rankings.

* `holm`, `benjamini_hochberg`, `sidak_level`: from the p-values or the number of comparisons
* `max_t`, `max_t_of_pairs`, `simultaneous_level`: from the largest of all statistics under common
  sign flips, which makes use of the dependence between comparisons
* `rank_limits`, `groups_alike`, `letters`, `prob_best`: the order of N models

`p_values` has shape (..., P), the comparisons of one family along the last axis. NaN is a
comparison that was not made: it stays NaN and does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from evalstats_plugin.stats.arrays import BoolArray, FloatArray, IntArray
from evalstats_plugin.stats.paired import ROUNDING, random_signs

# Statistics are formed in blocks of about this many numbers, which stay in the processor's cache.
BLOCK_SIZE = 2**18

# Sign assignments processed together.
FLIPS_AT_ONCE = 256

# Shares of noise in the observed variance of means, uniform a priori.
NOISE_SHARES = (np.arange(200) + 0.5) / 200

# Weight, in items, of the prior of equal and independent errors.
PRIOR_ITEMS = 1.0


def holm(p_values: ArrayLike) -> FloatArray:
    """Holm's step-down adjustment: controls the family-wise error rate [Hol79]_.

    Valid for any dependence between the comparisons.

    >>> print(np.round(holm([0.01, 0.04, 0.03, 0.005]), 3))
    [0.03 0.06 0.06 0.02]
    """

    def step_down(ordered: FloatArray, rank: FloatArray, n: FloatArray) -> FloatArray:
        return np.maximum.accumulate((n - rank + 1) * ordered, axis=-1)

    return _adjusted(p_values, step_down)


def benjamini_hochberg(p_values: ArrayLike) -> FloatArray:
    """Benjamini and Hochberg's step-up adjustment: controls the false discovery rate [BH95]_.

    >>> print(np.round(benjamini_hochberg([0.01, 0.04, 0.03, 0.005]), 3))
    [0.02 0.04 0.04 0.02]
    """

    def step_up(ordered: FloatArray, rank: FloatArray, n: FloatArray) -> FloatArray:
        scaled = np.where(np.isnan(ordered), np.inf, n * ordered / rank)
        return np.minimum.accumulate(scaled[..., ::-1], axis=-1)[..., ::-1]

    return _adjusted(p_values, step_up)


def sidak_level(confidence_level: float, n_comparisons: int) -> float:
    """Šidák level of each of n intervals for simultaneous coverage [Sid67]_.

    Valid for two-sided intervals around normal estimates with any dependence.

    >>> round(sidak_level(0.95, 45), 5)
    0.99886
    """
    return float(confidence_level ** (1 / max(n_comparisons, 1)))


def _adjusted(
    p_values: ArrayLike, adjust: Callable[[FloatArray, FloatArray, FloatArray], FloatArray]
) -> FloatArray:
    """Apply `adjust` to p-values in ascending order, their ranks and their number."""
    values: FloatArray = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(values, axis=-1)
    ordered = np.take_along_axis(values, order, axis=-1)
    rank = np.arange(1.0, values.shape[-1] + 1)
    n = (~np.isnan(values)).sum(axis=-1, keepdims=True).astype(np.float64)
    adjusted = np.empty_like(values)
    np.put_along_axis(adjusted, order, np.minimum(adjust(ordered, rank, n), 1.0), axis=-1)
    return np.where(np.isnan(values), np.nan, adjusted)


def max_t(differences: ArrayLike, *, rng: np.random.Generator, n_flips: int) -> FloatArray:
    """Step-down max-t p-values under common sign flips [WY93]_.

    Like `holm` they control the family-wise error rate, but they make use of the dependence between
    the comparisons, which gives more power.

    Parameters
    ----------
    differences : shape (P, M)
        Differences of the pairs of one family on the same items, NaN where an item lacks a score.
    n_flips
        Number of drawn sign assignments; the observed one counts as one more.
    """
    return max_t_of_pairs(*against_zero(differences), rng=rng, n_flips=n_flips)


def max_t_of_pairs(
    scores: ArrayLike, a: IntArray, b: IntArray, *, rng: np.random.Generator, n_flips: int
) -> FloatArray:
    """`max_t` of the differences b - a of P pairs, which are never all in memory at once."""
    pairs = _Pairs(np.asarray(scores, dtype=np.float64), a, b, centred=False)
    observed = np.abs(pairs.total) / pairs.divisor
    order = np.argsort(observed, kind="stable")
    count = np.ones(len(observed))
    for signs in _sign_blocks(rng, pairs.scores.shape[1], n_flips):
        largest = np.zeros(signs.shape[1])
        # For each comparison, the largest among its statistic and all smaller observed ones.
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
    """Level of single intervals that gives them simultaneous coverage `confidence_level`.

    Flips the signs of deviations from the mean difference, so that differences need not be 0. The
    largest statistic exceeds its critical value with probability 1 - `confidence_level`, a single
    one less often on average; that average is the tail of each interval: all of it for copies of
    one pair, 1/P of it for pairs that never fail together. The intervals themselves account for
    skewness, bounds and few items; the flips only measure the dependence between pairs.
    """
    pairs = _Pairs(np.asarray(scores, dtype=np.float64), a, b, centred=True)
    there = np.flatnonzero(pairs.n > 0)
    tail = 1 - confidence_level
    seed = int(rng.integers(2**63))
    n_items = pairs.scores.shape[1]

    def largest(signs: FloatArray) -> FloatArray:
        blocks = [statistics.max(axis=0) for _, statistics in pairs.flipped(signs, there)]
        return np.max(blocks, axis=0)

    # The same signs twice: the critical value is known only after the first pass.
    first, second = (_sign_blocks(np.random.default_rng(seed), n_items, n_flips) for _ in "12")
    maxima = np.concatenate([largest(signs) for signs in first]) if len(there) else np.zeros(1)
    critical = np.quantile(maxima, confidence_level, method="higher") - ROUNDING
    if critical <= 0:
        # Without any spread the dependence is unknown: Bonferroni.
        return 1 - tail / max(len(there), 1)
    passing = sum(
        int((statistics >= critical).sum())
        for signs in second
        for _, statistics in pairs.flipped(signs, there)
    )
    return 1 - tail * passing / len(there) / int((maxima >= critical).sum())


def against_zero(differences: ArrayLike) -> tuple[FloatArray, IntArray, IntArray]:
    """Differences as scores of models that are all paired with a model that always scores 0."""
    values: FloatArray = np.asarray(differences, dtype=np.float64)
    scores = np.concatenate([np.zeros((1, values.shape[1])), values])
    first = np.zeros(len(values), dtype=np.int64)
    return scores, first, np.arange(1, len(scores), dtype=np.int64)


class _Pairs:
    """Differences of pairs of models, formed block by block: all together may be gigabytes."""

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
        """Yield blocks of `pairs` and their absolute statistics under `signs`, (block, B)."""
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


def _sign_blocks(rng: np.random.Generator, n_items: int, n_flips: int) -> Iterator[FloatArray]:
    for start in range(0, n_flips, FLIPS_AT_ONCE):
        yield random_signs(rng, n_items, min(FLIPS_AT_ONCE, n_flips - start))


class Ranks(NamedTuple):
    """Best and worst possible rank of each model, 1 being the best; shape (N,)."""

    best: IntArray
    worst: IntArray


def rank_limits(beats: ArrayLike) -> Ranks:
    """Ranks compatible with the significant pairwise differences [MRS24]_.

    Parameters
    ----------
    beats : shape (N, N)
        Whether the row's model is significantly better than the column's.
    """
    found = np.asarray(beats, dtype=np.bool_)
    return Ranks(
        (1 + found.sum(axis=0)).astype(np.int64),
        (len(found) - found.sum(axis=1)).astype(np.int64),
    )


def groups_alike(apart: ArrayLike) -> BoolArray:
    """Groups of a compact letter display: two models share one iff not distinguishable [GGH07]_.

    Found greedily: while two models that are not distinguishable share no group, a new one is
    grown around them, each time by the model that covers the most open pairs.

    Parameters
    ----------
    apart : shape (N, N)
        Whether two models are distinguishable; symmetric. Groups read best if the models are in
        the order of their scores.

    Returns
    -------
    shape (G, N), in the order of their first members; every model is in at least one.
    """
    alike = ~np.asarray(apart, dtype=np.bool_)
    np.fill_diagonal(alike, val=True)
    n = len(alike)
    open_pairs = np.triu(alike)
    groups: list[BoolArray] = []
    while open_pairs.any():
        pair = np.argmax(open_pairs)
        members = np.zeros(n, dtype=np.bool_)
        members[[pair // n, pair % n]] = True
        candidates = alike[pair // n] & alike[pair % n] & ~members
        while candidates.any():
            settled = open_pairs[members].sum(axis=0) + open_pairs[:, members].sum(axis=1)
            best = np.argmax(np.where(candidates, settled, -1))
            members[best] = True
            candidates &= alike[best] & ~members
        open_pairs[np.ix_(members, members)] = False
        groups.append(members)
    found = _without_redundant(np.array(groups, dtype=np.bool_).reshape(-1, n))
    # Lexicographic order of members.
    return found[np.lexsort(~found.T[::-1])]


def _without_redundant(groups: BoolArray) -> BoolArray:
    """Leave out groups whose pairs are all in other groups too."""
    held = groups.astype(np.float64)
    times = held.T @ held
    keep = np.ones(len(groups), dtype=np.bool_)
    for i, members in enumerate(groups):
        if times[np.ix_(members, members)].min() >= 2:
            keep[i] = False
            times -= np.outer(members, members)
    return groups[keep]


def letters(groups: ArrayLike) -> list[str]:
    """Letters of each model's groups: two models that share one are not distinguishable.

    >>> letters([[True, True, False], [False, True, True]])
    ['a', 'ab', 'b']
    """
    found = np.asarray(groups, dtype=np.bool_)
    names = [_letter(i) for i in range(len(found))]
    between = "," if len(found) > 26 else ""
    return [between.join(names[i] for i in np.flatnonzero(column).tolist()) for column in found.T]


def _letter(index: int) -> str:
    """Name groups a to z, then aa, ab and so on."""
    name = ""
    while index >= 0:
        index, rest = index // 26 - 1, index % 26
        name = chr(ord("a") + rest) + name
    return name


def prob_best(
    scores: ArrayLike, *, spread: float, rng: np.random.Generator, n_draws: int
) -> FloatArray:
    """Posterior probability of each model to have the highest true mean [Dan99]_ [LW04]_.

    Observed means are normal around the true ones, with the covariance due to the common items.
    True means are normal around their own mean with unknown variance τ²; the share s/(s + τ²) of
    noise s is uniform a priori. This shrinks true means towards each other: the model that looks
    best is in part the luckiest.

    Parameters
    ----------
    scores : shape (N, M)
        Scores of every model on every item; higher is better.
    spread
        Greatest possible score less the least: the prior adds the error of one further item.
    """
    values = np.asarray(scores, dtype=np.float64)
    n = len(values)
    if np.isnan(values).any():
        raise ValueError("prob_best needs a score of every model on every item")
    if n < 2 or not spread > 0 or not values.shape[1]:
        return np.full(n, 1 / n if values.shape[1] and n else np.nan)
    # Only differences between models matter: n - 1 contrasts, free of item difficulty.
    contrasts = _contrasts(n)
    seen = contrasts.T @ values
    noise, axes = np.linalg.eigh(_covariance_of_mean(seen, spread))
    estimates = axes.T @ seen.mean(axis=1)
    variance = noise.mean() * (1 / NOISE_SHARES - 1)
    total = variance[:, None] + noise
    log_likelihood = -0.5 * (np.log(total) + estimates**2 / total).sum(axis=1)
    weights = np.exp(log_likelihood - log_likelihood.max())
    drawn = rng.choice(variance, size=(n_draws, 1), p=weights / weights.sum())
    # The noise is itself estimated from the items.
    freedom = values.shape[1] - 1 + PRIOR_ITEMS
    noise = noise * (freedom / rng.chisquare(freedom, size=(n_draws, 1)))
    kept = drawn / (drawn + noise)
    true = kept * estimates + np.sqrt(kept * noise) * rng.standard_normal((n_draws, n - 1))
    winners = np.argmax(true @ (contrasts @ axes).T, axis=1)
    return np.bincount(winners, minlength=n) / n_draws


def _contrasts(n: int) -> FloatArray:
    """Orthonormal columns, shape (n, n - 1), each adding up to 0 (Helmert's)."""
    k = np.arange(1.0, n)
    return (np.triu(np.ones((n, n - 1))) - k * np.eye(n, n - 1, -1)) / np.sqrt(k * (k + 1))


def _covariance_of_mean(values: FloatArray, spread: float) -> FloatArray:
    """Covariance of the means of rows, shrunk towards equal and independent errors.

    By the optimal intensity of [LW04]_, and by one further item with the largest possible variance.
    """
    n, m = values.shape
    centred = values - values.mean(axis=1, keepdims=True)
    sample = centred @ centred.T / m
    level = np.trace(sample) / n
    distance = ((sample - level * np.eye(n)) ** 2).sum()
    error = ((centred**2).sum(axis=0) ** 2).sum() / m**2 - (sample**2).sum() / m
    share = min(max(error, 0.0) / distance, 1.0) if distance > 0 else 1.0
    # m - 1 degrees of freedom of the items and those of the prior.
    pooled = m * ((1 - share) * sample + share * level * np.eye(n))
    return (pooled + PRIOR_ITEMS * spread**2 / 4 * np.eye(n)) / (m - 1 + PRIOR_ITEMS) / m
