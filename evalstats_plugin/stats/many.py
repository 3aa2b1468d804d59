"""Many comparisons at once: p-values adjusted so that few, or none, of the findings are false.

`p_values` has shape (..., P), the comparisons of one family along the last axis. NaN stands for a
comparison that was not made: it stays NaN and does not count.
"""
# PART max_t - The largest of many statistics under common sign flips: what chance alone does to all at once.
# PART ranks - The order of N models: who cannot be told apart, which ranks are open, who may be the best.

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from evalstats_plugin.stats.arrays import BoolArray, FloatArray, IntArray
from evalstats_plugin.stats.paired import ROUNDING, random_signs

# Statistics are formed in blocks of about this many numbers, which stay in the processor's cache.
BLOCK_SIZE = 2**18


# Assignments of signs worked on together.
FLIPS_AT_ONCE = 256


# Ratios of noise to noise and spread, each as likely as the other beforehand.
NOISE_SHARES = (np.arange(200) + 0.5) / 200


# Weight, in items, of the prior belief that any model may err on its own.
PRIOR_ITEMS = 1.0


def holm(p_values: ArrayLike) -> FloatArray:
    """Adjust so that hardly ever is any of the findings false, whatever their dependence [Hol79]_.

    >>> print(np.round(holm([0.01, 0.04, 0.03, 0.005]), 3))
    [0.03 0.06 0.06 0.02]
    """

    def step_down(ordered: FloatArray, rank: FloatArray, n: FloatArray) -> FloatArray:
        return np.maximum.accumulate((n - rank + 1) * ordered, axis=-1)

    return _adjusted(p_values, step_down)


def benjamini_hochberg(p_values: ArrayLike) -> FloatArray:
    """Adjust so that on average few of the findings are false [BH95]_.

    >>> print(np.round(benjamini_hochberg([0.01, 0.04, 0.03, 0.005]), 3))
    [0.02 0.04 0.04 0.02]
    """

    def step_up(ordered: FloatArray, rank: FloatArray, n: FloatArray) -> FloatArray:
        scaled = np.where(np.isnan(ordered), np.inf, n * ordered / rank)
        return np.minimum.accumulate(scaled[..., ::-1], axis=-1)[..., ::-1]

    return _adjusted(p_values, step_up)


def sidak_level(confidence_level: float, n_comparisons: int) -> float:
    """Level of each of n intervals that hold all true values at once [Sid67]_.

    For any dependence of two-sided intervals about normal estimates.

    >>> round(sidak_level(0.95, 45), 5)
    0.99886
    """
    return float(confidence_level ** (1 / max(n_comparisons, 1)))


def _adjusted(
    p_values: ArrayLike, adjust: Callable[[FloatArray, FloatArray, FloatArray], FloatArray]
) -> FloatArray:
    """Adjust p-values in ascending order, given their ranks and how many there are."""
    values: FloatArray = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(values, axis=-1)
    ordered = np.take_along_axis(values, order, axis=-1)
    rank = np.arange(1.0, values.shape[-1] + 1)
    n = (~np.isnan(values)).sum(axis=-1, keepdims=True).astype(np.float64)
    adjusted = np.empty_like(values)
    np.put_along_axis(adjusted, order, np.minimum(adjust(ordered, rank, n), 1.0), axis=-1)
    return np.where(np.isnan(values), np.nan, adjusted)


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


class Ranks(NamedTuple):
    """The best and the worst rank that each model can have, 1 being the best; shape (N,)."""

    best: IntArray
    worst: IntArray


def rank_limits(beats: ArrayLike) -> Ranks:
    """Ranks that findings about pairs leave open [MRS24]_.

    Parameters
    ----------
    beats : shape (N, N)
        Whether the model of the row is better than the one of the column, beyond chance.
    """
    found = np.asarray(beats, dtype=np.bool_)
    return Ranks(
        (1 + found.sum(axis=0)).astype(np.int64),
        (len(found) - found.sum(axis=1)).astype(np.int64),
    )


def groups_alike(apart: ArrayLike) -> BoolArray:
    """Few groups of models such that two share one exactly if they are not told apart [GGH07]_.

    The columns of a compact letter display, found greedily: while two models that are not told
    apart share no group, one is grown around them, always by the model that settles the most pairs.

    Parameters
    ----------
    apart : shape (N, N)
        Whether two models are told apart; symmetric. In order of the models' scores the groups
        are as compact as they can be read.

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
    found = _without_idle(np.array(groups, dtype=np.bool_).reshape(-1, n))
    # By their members from the first model on, as words are sorted.
    return found[np.lexsort(~found.T[::-1])]


def letters(groups: ArrayLike) -> list[str]:
    """Letters of the groups that each model is in: two models that share one are not told apart.

    >>> letters([[True, True, False], [False, True, True]])
    ['a', 'ab', 'b']
    """
    found = np.asarray(groups, dtype=np.bool_)
    names = [_letter(i) for i in range(len(found))]
    between = "," if len(found) > 26 else ""
    return [between.join(names[i] for i in np.flatnonzero(column).tolist()) for column in found.T]


def prob_best(
    scores: ArrayLike, *, spread: float, rng: np.random.Generator, n_draws: int
) -> FloatArray:
    """Posterior probability of each model to have the highest true mean [Dan99]_ [LW04]_.

    Observed means are normal about the true ones, with the covariance that the common items give
    them; true means are normal about their own mean, their variance τ² unknown: the share s/(s+τ²)
    of noise s in what is seen is uniform. It draws true means together where they look
    alike, because the one that looks best is in part the luckiest.

    Parameters
    ----------
    scores : shape (N, M)
        Of every model on every item; higher is better.
    spread
        Greatest score less the least: models that never err get the error of one item more.
    """
    values = np.asarray(scores, dtype=np.float64)
    n = len(values)
    if np.isnan(values).any():
        raise ValueError("prob_best needs a score of every model on every item")
    if n < 2 or not spread > 0 or not values.shape[1]:
        return np.full(n, 1 / n if values.shape[1] and n else np.nan)
    # Only differences between models matter: n - 1 contrasts, free of how hard the items are.
    contrasts = _contrasts(n)
    seen = contrasts.T @ values
    noise, axes = np.linalg.eigh(_covariance_of_mean(seen, spread))
    estimates = axes.T @ seen.mean(axis=1)
    variance = noise.mean() * (1 / NOISE_SHARES - 1)
    total = variance[:, None] + noise
    log_likelihood = -0.5 * (np.log(total) + estimates**2 / total).sum(axis=1)
    weights = np.exp(log_likelihood - log_likelihood.max())
    drawn = rng.choice(variance, size=(n_draws, 1), p=weights / weights.sum())
    # The noise is itself estimated, from as many items as there are.
    freedom = values.shape[1] - 1 + PRIOR_ITEMS
    noise = noise * (freedom / rng.chisquare(freedom, size=(n_draws, 1)))
    kept = drawn / (drawn + noise)
    true = kept * estimates + np.sqrt(kept * noise) * rng.standard_normal((n_draws, n - 1))
    winners = np.argmax(true @ (contrasts @ axes).T, axis=1)
    return np.bincount(winners, minlength=n) / n_draws


def _without_idle(groups: BoolArray) -> BoolArray:
    """Leave out groups whose every pair is in another one, too."""
    held = groups.astype(np.float64)
    times = held.T @ held
    keep = np.ones(len(groups), dtype=np.bool_)
    for i, members in enumerate(groups):
        if times[np.ix_(members, members)].min() >= 2:
            keep[i] = False
            times -= np.outer(members, members)
    return groups[keep]


def _letter(index: int) -> str:
    """Name groups a to z, then aa, ab and so on."""
    name = ""
    while index >= 0:
        index, rest = index // 26 - 1, index % 26
        name = chr(ord("a") + rest) + name
    return name


def _contrasts(n: int) -> FloatArray:
    """Orthonormal columns, shape (n, n - 1), each adding up to 0 (Helmert's)."""
    k = np.arange(1.0, n)
    return (np.triu(np.ones((n, n - 1))) - k * np.eye(n, n - 1, -1)) / np.sqrt(k * (k + 1))


def _covariance_of_mean(values: FloatArray, spread: float) -> FloatArray:
    """Covariance of the means of rows, drawn towards equal and independent errors.

    As strongly as [LW04]_ finds best for so few items, and by one item more that has the largest
    variance scores can have.
    """
    n, m = values.shape
    centred = values - values.mean(axis=1, keepdims=True)
    sample = centred @ centred.T / m
    level = np.trace(sample) / n
    distance = ((sample - level * np.eye(n)) ** 2).sum()
    error = ((centred**2).sum(axis=0) ** 2).sum() / m**2 - (sample**2).sum() / m
    share = min(max(error, 0.0) / distance, 1.0) if distance > 0 else 1.0
    # Unbiased: m - 1 items' worth of information, the last one being the prior's.
    pooled = m * ((1 - share) * sample + share * level * np.eye(n))
    return (pooled + PRIOR_ITEMS * spread**2 / 4 * np.eye(n)) / (m - 1 + PRIOR_ITEMS) / m
