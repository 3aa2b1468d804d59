"""Many comparisons at once: adjusted p-values, simultaneous intervals, and rankings.

* `holm`, `benjamini_hochberg`: from the p-values alone
* `ItemPairs`, `WeightedPairs`, `TaskPairs`: all pairs of models judged by one statistic under
  common sign flips, rotations or a parametric bootstrap: limits, p-values and "may be first"
  that cannot contradict each other
* `over_tasks`, `graph`: families of several tasks and their group
* `rank_limits`, `groups_alike`, `letters`, `prob_best`: the order of N models
* `shrunk`: P(better) of every two of them

`p_values` has shape (..., P), the comparisons of one family along the last axis. NaN is a
comparison that was not made: it stays NaN and does not count.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from evalstats_plugin.stats import reach
from evalstats_plugin.stats.arrays import BoolArray, FloatArray, IntArray
from evalstats_plugin.stats.clustered import by_cluster
from evalstats_plugin.stats.interval import Interval, increasing_root
from evalstats_plugin.stats.steady import root_of

# Statistics are formed in blocks of about this many numbers, which stay in the processor's cache.
BLOCK_SIZE = 2**18

# Shares of noise in the observed variance of means, uniform a priori.
NOISE_SHARES = (np.arange(200) + 0.5) / 200

# Weight, in items, of the prior of equal and independent errors.
PRIOR_ITEMS = 1.0

# Below so many units random signs have too few outcomes: rotations, under normal totals [Lan05]_.
FEW_UNITS = 12

# Pseudo-items of scores by item, and of sums over clusters.
OF_ITEMS, OF_CLUSTERS = 2.0, 1.0

# A score this near a bound, as a share of the range, has attained it.
NEAR = 1e-3

# Items from which pairs whose pseudo-items are near weigh alike, however few distinct differences.
BALANCED = 30

# Of the mixture of normals that differences are shrunk to: weight of its prior in models, steps of
# EM, and standard deviations in standard errors.
SHRUNK_PRIOR, SHRUNK_STEPS = 0.6, 60
SHRUNK_SPREAD = np.geomspace(0.1, 30.0, 12)

# Ties are recognised up to the rounding of single precision.
TIE = 1e-5

# Share of alpha of a group's own row; its tasks have the rest.
GROUP_WEIGHT = 0.8

# Weight of the median variance in each pair's own, where tasks are a random sample: the largest of
# ½, 1, 2 and 4 with which models that vary far more than the others are not called different.
MODERATION = 1.0


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
    # Drawn before the axes are known, whose signs and order are arbitrary.
    normal = rng.standard_normal((n_draws, n - 1)) @ axes
    true = kept * estimates + np.sqrt(kept * noise) * normal
    winners = np.argmax(true @ (contrasts @ axes).T, axis=1)
    return np.bincount(winners, minlength=n) / n_draws


def shrunk(difference: FloatArray, std_error: FloatArray, *, n_models: int) -> FloatArray:
    """P(b is higher) of every two models, shrunk over all pairs [Ste17]_.

    True differences, in standard errors of their pair, are a mixture of normals about 0, from a
    tenth to thirty; its weights are fitted to the pairs by EM, with `SHRUNK_PRIOR` of one model's
    worth of prior weight, alike for all. In standard errors because models that differ more have
    more items that tell them apart: a mixture of differences as they are shrinks just those. The
    likelihood is composite: the pairs of N models count as N - 1. Near ties are shrunk and clear
    differences are not. Above ½ exactly where the difference is above 0.

    Parameters
    ----------
    difference, std_error : shape (P,)
        Of b minus a; NaN for a pair without either.
    n_models
        Models of all pairs, three or more: one pair says nothing about others.

    Examples
    --------
    >>> prob = shrunk(np.array([0.01, 0.02, 0.03]), np.full(3, 0.02), n_models=3)
    >>> prob.round(2).tolist()
    [0.57, 0.65, 0.72]
    """
    known = np.isfinite(difference) & (std_error > 0)
    found = np.full(len(difference), np.nan)
    z: FloatArray = (difference[known] / std_error[known])[:, None]
    total = 1 + SHRUNK_SPREAD**2
    # Far differences would have no likelihood at all.
    likelihood = np.maximum(np.exp(-0.5 * z**2 / total) / np.sqrt(total), 1e-280)
    prior = np.full(len(total), 1 / len(total))
    weights = prior
    for _ in range(SHRUNK_STEPS if known.any() else 0):
        share = weights * likelihood
        share /= share.sum(axis=1, keepdims=True)
        weights = (n_models - 1) * share.mean(axis=0) + SHRUNK_PRIOR * prior
        weights /= weights.sum()
    share = weights * likelihood
    share /= share.sum(axis=1, keepdims=True)
    found[known] = (share * special.ndtr(SHRUNK_SPREAD / np.sqrt(total) * z)).sum(axis=1)
    # Free of rounding errors.
    found[difference == 0] = 0.5
    return found


def errors_of(
    difference: FloatArray,
    prob: FloatArray,
    limits: tuple[FloatArray, FloatArray],
    confidence_level: float,
) -> FloatArray:
    """Standard errors of normal differences with the tails of these, shape (P,).

    With them P(b is higher) is `prob`, the tail of each pair's own distribution, so that few units
    have the tails that they should; of pairs near ½ it is their interval that tells.
    """
    low, high = limits
    with np.errstate(invalid="ignore", divide="ignore"):
        z = special.ndtri(np.clip(prob, 1e-15, 1 - 1e-15))
        by_tail = difference / z
    by_width = (high - low) / (2 * special.ndtri((1 + confidence_level) / 2))
    return np.where((np.abs(z) > 0.5) & (by_tail > 0), by_tail, by_width)


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


class Together(ABC):
    """P comparisons under common draws: adjusted p-values, limits, and who may be first."""

    difference: FloatArray
    """Shape (P,): of b minus a."""
    statistic: FloatArray
    """Shape (P,): T(0); 0 where two models score alike on every unit."""
    n_models: int
    a: IntArray
    b: IntArray
    _maxima: FloatArray
    """Largest statistics of the draws, in ascending order."""
    _signed: NDArray[np.float32] | None
    """Shape (N, B): largest lead over each model; None unless all pairs are there."""

    @property
    def p_values(self) -> FloatArray:
        """Adjusted for all pairs, single-step; shape (P,)."""
        return np.maximum(_share(self._maxima, np.abs(self.statistic)), self._floor())

    @abstractmethod
    def limits(self, alpha: float) -> Interval:
        """Return intervals that hold all differences at once with probability 1 - alpha."""

    @abstractmethod
    def _floor(self) -> FloatArray | float:
        """Least p-value of each pair: where draws have few outcomes, that of the pair alone."""

    @abstractmethod
    def _drawn(self, pairs: IntArray) -> NDArray[np.float32]:
        """Absolute statistics of some pairs under every draw, shape (pairs, B)."""

    def critical(self, alpha: float) -> float:
        """Return c: a p-value is at most alpha exactly where the size of T(0) exceeds it."""
        n = len(self._maxima)
        above = int(np.floor(alpha * (n + 1) + 1e-9))
        return float(self._maxima[n - above] * (1 + TIE)) + 1e-9 if above else np.inf

    def step_down(self) -> FloatArray:
        """Return step-down p-values, which find more and have no limits of their own [WY93]_."""
        size = np.abs(self.statistic)
        order = np.argsort(size, kind="stable")
        n_draws = len(self._maxima)
        largest = np.zeros(n_draws, dtype=np.float32)
        count = np.ones(len(size))
        step = max(BLOCK_SIZE // n_draws, 1)
        for start in range(0, len(order), step):
            block = order[start : start + step]
            found = self._drawn(block)
            np.maximum(found[0], largest, out=found[0])
            np.maximum.accumulate(found, axis=0, out=found)
            largest = found[-1].copy()
            count[block] += (found >= _lenient(size[block])[:, None]).sum(axis=1)
        adjusted = np.empty(len(size))
        strongest = order[::-1]
        adjusted[strongest] = np.maximum.accumulate(count[strongest] / (n_draws + 1))
        return np.maximum(adjusted, self._floor())

    def first(self, alpha: float, *, lower_is_better: bool = False) -> BoolArray | None:
        """Return the models that may truly be the first, shape (N,) [Hsu81]_.

        A model may not where some other leads it by more than chance. One model is truly first, so
        nothing is added for their number. None unless every pair is there.
        """
        if self._signed is None:
            return None
        n = self.n_models
        lead = np.full((n, n), -np.inf)
        sign = -1.0 if lower_is_better else 1.0
        lead[self.a, self.b] = sign * self.statistic
        lead[self.b, self.a] = -sign * self.statistic
        return np.array(
            [
                most <= 0 or _share(drawn, np.array([most]))[0] > alpha
                for drawn, most in zip(self._signed, lead.max(axis=1), strict=True)
            ]
        )


class _Sums(NamedTuple):
    """Of P pairs, each of shape (P,); the statistic without its pseudo-items."""

    y: FloatArray
    a: FloatArray
    b: FloatArray
    w: FloatArray
    c: FloatArray
    units: FloatArray
    """Number of units that both models have."""


class _Flipped(Together):
    """Pairs whose units are drawn with random weights."""

    def __init__(
        self,
        sums: FloatArray,
        sizes: FloatArray,
        a: IntArray,
        b: IntArray,
        *,
        rng: np.random.Generator,
        n_draws: int,
        rotate: bool,
    ) -> None:
        """Sums over the units of each model, shape (N, U), NaN where missing; and their sizes."""
        self.a, self.b, self.n_models = a, b, len(sums)
        self._sums, self._sizes = sums, sizes
        self._complete = not np.isnan(sums).any()
        self._draws = _Draws(rng, sums.shape[1], n_draws, rotate=rotate)
        # Less those of one model: differences stay, and single precision suffices for them.
        self._totals = self._draws.of(sums - sums[:1]) if self._complete else None
        self._of = self._added()
        with np.errstate(invalid="ignore", divide="ignore"):
            self.difference = self._of.y / self._of.w

    def _added(self) -> _Sums:
        if not self._complete:
            parts = [self._added_up(*units) for units in self._units()]
            return _Sums(*(np.concatenate(x) for x in zip(*parts, strict=True)))
        gram = self._sums @ self._sums.T
        square, total, cross = np.diag(gram), self._sums.sum(axis=1), self._sums @ self._sizes
        a, b = self.a, self.b
        spread = square[a] + square[b] - 2 * gram[a, b]
        spread = np.where(spread < 1e-10 * (square[a] + square[b] + 1e-300), 0.0, spread)
        full = np.ones(len(a))
        return _Sums(
            total[b] - total[a], spread, cross[b] - cross[a], full * self._sizes.sum(),
            full * (self._sizes**2).sum(), full * self._sums.shape[1],
        )  # fmt: skip

    @staticmethod
    def _added_up(y: FloatArray, m: FloatArray) -> _Sums:
        return _Sums(
            y.sum(axis=1), (y**2).sum(axis=1), (y * m).sum(axis=1), m.sum(axis=1),
            (m**2).sum(axis=1), (m > 0).sum(axis=1) * 1.0,
        )  # fmt: skip

    def _units(self) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Yield differences and sizes of the units of some pairs; 0 where one model lacks it."""
        step = max(BLOCK_SIZE // max(int(self._sums.shape[1]), 1), 1)
        for start in range(0, len(self.a), step):
            pairs: IntArray = np.arange(start, int(min(start + step, len(self.a))))
            yield self._units_of(pairs)

    def _units_of(self, pairs: IntArray) -> tuple[FloatArray, FloatArray]:
        differences = self._sums[self.b[pairs]] - self._sums[self.a[pairs]]
        seen = ~np.isnan(differences)
        return np.where(seen, differences, 0.0), seen * self._sizes

    def _scaled(self, spread: FloatArray) -> None:
        """Set T(0) and the largest of the draws from the square of the statistic's divisor."""
        positive = spread > 0
        self._inverse = np.where(positive, 1 / np.sqrt(np.where(positive, spread, 1)), 0.0)
        self.statistic = self._of.y * self._inverse
        self._maxima, self._signed = self._largest()

    def _largest(self) -> tuple[FloatArray, NDArray[np.float32] | None]:
        n, n_draws = self.n_models, self._draws.n
        every = len(self.a) == n * (n - 1) // 2
        signed = np.full((n, n_draws), -np.inf, dtype=np.float32) if every else None
        if self._totals is None:
            return self._largest_of_blocks(signed)
        inverse = np.zeros((n, n), dtype=np.float32)
        inverse[self.a, self.b] = self._inverse
        if every:
            inverse = inverse + inverse.T
        others = [np.flatnonzero(row) for row in inverse]
        largest = np.zeros(n_draws, dtype=np.float32)
        step = max(BLOCK_SIZE // max(n, 1), 1)
        for start in range(0, n_draws, step):
            drawn = slice(start, start + step)
            totals = np.ascontiguousarray(self._totals[:, drawn])
            for i, js in enumerate(others):
                if not len(js):
                    continue
                lead = totals[js]
                lead -= totals[i]
                lead *= inverse[i, js, None]
                if signed is None:
                    np.abs(lead, out=lead)
                most = lead.max(axis=0)
                np.maximum(largest[drawn], most, out=largest[drawn])
                if signed is not None:
                    signed[i, drawn] = most
        return np.sort(largest).astype(np.float64), _in_order(signed)

    def _largest_of_blocks(
        self, signed: NDArray[np.float32] | None
    ) -> tuple[FloatArray, NDArray[np.float32] | None]:
        largest = np.zeros(self._draws.n, dtype=np.float32)
        step = max(2**22 // self._draws.n, 1)
        for start in range(0, len(self.a), step):
            pairs = np.arange(start, min(start + step, len(self.a)))
            found = self._leads(pairs)
            if signed is not None:
                for pair, lead in zip(pairs.tolist(), found, strict=True):
                    if self._inverse[pair] > 0:
                        i, j = self.a[pair], self.b[pair]
                        np.maximum(signed[i], lead, out=signed[i])
                        np.maximum(signed[j], -lead, out=signed[j])
            np.maximum(largest, np.abs(found).max(axis=0), out=largest)
        return np.sort(largest).astype(np.float64), _in_order(signed)

    def _leads(self, pairs: IntArray) -> NDArray[np.float32]:
        if self._totals is None:
            found = self._draws.of(self._units_of(pairs)[0])
        else:
            found = self._totals[self.b[pairs]] - self._totals[self.a[pairs]]
        return found * self._inverse[pairs, None].astype(np.float32)

    def _drawn(self, pairs: IntArray) -> NDArray[np.float32]:
        return np.abs(self._leads(pairs))


class ItemPairs(_Flipped):
    """Pairs of models on the items of one task.

    Parameters
    ----------
    scores : shape (N, M)
        Mean over the epochs of each item, NaN where missing.
    a, b : shape (P,)
        Models of each pair: all pairs, or any of them.
    clusters : shape (M,)
        Number of each item's cluster.
    bounds
        Least and greatest possible score; None for none.
    attained
        Whether scores of this metric are known to reach a bound; None to look at these.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> scores = np.repeat([[0.0], [0.0], [1.0]], 30, axis=1)
    >>> scores[:, ::3] = 1 - scores[:, ::3]
    >>> pairs = ItemPairs(scores, *np.triu_indices(3, 1), bounds=(0, 1), rng=rng)
    >>> pairs.limits(0.05).low.round(3).tolist()
    [-0.114, -0.024, -0.024]
    """

    def __init__(
        self,
        scores: ArrayLike,
        a: IntArray,
        b: IntArray,
        *,
        clusters: IntArray | None = None,
        bounds: tuple[float, float] | None,
        attained: bool | None = None,
        rng: np.random.Generator,
        n_draws: int = 1999,
    ) -> None:
        values: FloatArray = np.asarray(scores, dtype=np.float64)
        self._scale = 1.0 if bounds is None else bounds[1] - bounds[0]
        if bounds is not None:
            values = (values - bounds[0]) / self._scale
        seen = ~np.isnan(values)
        if attained is None:
            ends = (values <= NEAR) | (values >= 1 - NEAR)
            attained = bounds is not None and bool(ends.any())
        plain = np.isin(values, (0.0, 1.0)) | ~seen
        self.binary = bounds is not None and clusters is None and bool(plain.all())
        sizes = np.ones(int(values.shape[1]))
        sums = values if clusters is None else by_cluster(values, clusters)
        sizes = sizes if clusters is None else by_cluster(sizes, clusters)
        n_units = sums.shape[1]
        few = n_units < FEW_UNITS and not self.binary
        super().__init__(sums, sizes, a, b, rng=rng, n_draws=n_draws, rotate=few)
        if not self._complete and clusters is not None:
            self._of_clusters(values, clusters)
        self._span = 1.0 if bounds is not None else np.inf
        self._pseudo = self._number_of_pseudo_items(
            attained=attained, clustered=clusters is not None, few=few
        )
        self._reach: FloatArray | None = None
        spread = self._of.a + self._pseudo
        if bounds is not None and clusters is None and not (attained or few or self.binary):
            self._reach = _symmetric_reach(values, a, b)
            self._pseudo = OF_ITEMS
            spread = self._of.a + OF_ITEMS * np.minimum(1, self._reach) ** 2
            alike = (self._of.a > 0) & (self._of.units >= BALANCED)
            # The same for every draw.
            some = np.where(self._of.a > 0, self._of.a, 1.0)
            self._factor = np.where(alike, np.sqrt(spread / some), 1.0)
            spread = spread / self._factor**2
        self._scaled(np.where(self._of.units > 0, spread, 0.0))
        self.difference = self._scale * self.difference

    @property
    def procedure(self) -> str:
        """What was done, in words."""
        way = "rotations" if self._draws.rotated else "sign flips"
        return f"largest statistic of all pairs, {way}, single step"

    def _number_of_pseudo_items(self, *, attained: bool, clustered: bool, few: bool) -> float:
        if self.binary or not attained or (few and clustered):
            return 0.0
        return OF_CLUSTERS if clustered else OF_ITEMS

    def _of_clusters(self, values: FloatArray, clusters: IntArray) -> None:
        """Add up clusters pair by pair, over the items that both models answered."""
        self._items, self._clusters = values, clusters
        self._of = self._added()
        with np.errstate(invalid="ignore", divide="ignore"):
            self.difference = self._of.y / self._of.w

    def _units_of(self, pairs: IntArray) -> tuple[FloatArray, FloatArray]:
        if not hasattr(self, "_items"):
            return super()._units_of(pairs)
        differences = self._items[self.b[pairs]] - self._items[self.a[pairs]]
        seen = ~np.isnan(differences)
        sizes = by_cluster(seen.astype(np.float64), self._clusters)
        return by_cluster(np.where(seen, differences, 0.0), self._clusters), sizes

    def _floor(self) -> FloatArray | float:
        size = np.abs(self.statistic)
        if self.binary:
            return 2 * special.ndtr(-size)
        return 0.0 if self._pseudo else _t_tails(size, self._of.units)

    def limits(self, alpha: float) -> Interval:
        """Return intervals that hold all differences at once with probability 1 - alpha.

        A limit is at the bound of differences, or infinite, where units are too few to tell.
        """
        least = self.critical(alpha)
        # Where models score alike on every unit, others' draws do not say how far apart they are.
        alone = _t_critical(alpha, np.maximum(self._of.units, 2))
        c = np.where(self._of.a > 0, least, np.maximum(least, alone))
        if self.binary:
            low, high = _tango(self._of, max(least, float(special.ndtri(1 - alpha / 2))))
        elif self._reach is not None:
            low, high = _moving(self._of, self._reach, c / self._factor)
        else:
            at = c if self._pseudo else np.maximum(c, _t_critical(alpha, self._of.units))
            low, high = _roots(self._of, self._pseudo, at, self._span)
        found = self.difference
        low, high = np.minimum(self._scale * low, found), np.maximum(self._scale * high, found)
        there = self._of.units > 0
        return Interval(np.where(there, low, np.nan), np.where(there, high, np.nan))


class WeightedPairs(_Flipped):
    """Pairs of models by a weighted mean of tasks, the tasks being fixed.

    Student's t with variances from within the tasks, which one pseudo-item as heavy as the
    heaviest widens where scores are bounded. Its degrees of freedom are Satterthwaite's, so that
    tasks of few units that weigh much are allowed for.

    Parameters
    ----------
    units : one array of shape (N, U_t) for each task
        What each unit of a task adds to the mean of the task, without missing ones; two or more.
    weights : shape (T,)
        Of the tasks; they add up to 1.
    span
        Greatest possible difference; infinite without bounds.

    Examples
    --------
    >>> right = np.random.default_rng(0).random((3, 80)) < [[0.3], [0.5], [0.8]]
    >>> tasks = [right[:, :50] / 50, right[:, 50:] / 30]
    >>> pairs = WeightedPairs(tasks, np.array([0.5, 0.5]), *np.triu_indices(3, 1), span=1.0,
    ...                       rng=np.random.default_rng(1))
    >>> pairs.limits(0.05).low.round(2).tolist()
    [-0.06, 0.3, 0.17]
    """

    procedure = "largest t of all pairs, sign flips, single step"

    def __init__(
        self,
        units: Sequence[FloatArray],
        weights: FloatArray,
        a: IntArray,
        b: IntArray,
        *,
        span: float,
        rng: np.random.Generator,
        n_draws: int = 1999,
    ) -> None:
        whole = np.stack([own.sum(axis=1) for own in units], axis=1) @ weights
        parts, sizes = list[FloatArray](), list[FloatArray]()
        variance, shares = np.zeros((2, len(a)))
        for own, weight in zip(units, weights.tolist(), strict=True):
            n = int(own.shape[1])
            # Spread within tasks only, with the n/(n - 1) of an unbiased variance.
            rest = (own - own.mean(axis=1, keepdims=True)) * np.sqrt(n / (n - 1))
            gram = weight**2 * (rest @ rest.T)
            square = np.diag(gram)
            part = square[a] + square[b] - 2 * gram[a, b]
            part = np.where(part < 1e-10 * (square[a] + square[b]), 0.0, part)
            variance += part
            shares += part**2 / (n - 1)
            parts.append(float(weight) * (rest + whole[:, None] / n))
            sizes.append(np.full(n, float(weight) / n))
        n_units = sum(len(size) for size in sizes)
        super().__init__(
            np.concatenate(parts, axis=1), np.concatenate(sizes), a, b,
            rng=rng, n_draws=n_draws, rotate=n_units < FEW_UNITS,
        )  # fmt: skip
        self._span = span
        more = (float(self._sizes.max()) * span) ** 2 if np.isfinite(span) else 0.0
        self._bounded = more > 0
        self._freedom = np.where(
            shares > 0, variance**2 / np.where(shares > 0, shares, 1), n_units - len(units)
        )
        self._error = np.sqrt(variance + more)
        self._scaled(self._of.a + more)
        # As the sum of that many units would be, divided by the root of their squares.
        t = np.where(self._error > 0, self._of.y / np.where(self._error > 0, self._error, 1), 0.0)
        self.statistic = t * np.sqrt((self._freedom + 1) / (self._freedom + t**2))

    def _floor(self) -> FloatArray | float:
        alone = _t_tails(np.abs(self.statistic), self._freedom + 1)
        return 0.0 if self._bounded else alone

    def limits(self, alpha: float) -> Interval:
        """Return intervals that hold all differences at once with probability 1 - alpha."""
        freedom, c = self._freedom, np.full(len(self.a), self.critical(alpha))
        if not self._bounded:
            c = np.maximum(c, _t_critical(alpha, freedom + 1))
        known = (c**2 < freedom + 1) & (self._error > 0)
        rest = np.where(known, freedom + 1 - np.where(known, c, 0.0) ** 2, 1.0)
        t = np.where(known, c, 0.0) * np.sqrt(freedom / rest)
        half = np.where(known, t * self._error, np.inf)
        low, high = self.difference - half, self.difference + half
        return Interval(np.maximum(low, -self._span), np.minimum(high, self._span))


class TaskPairs(Together):
    """Pairs of models by their mean difference over tasks, which are a random sample.

    Student's t with each pair's variance drawn to the median one [Smy04]_. Its largest value over
    the pairs is that of as many normal tasks with the models' covariance, shrunk to equal variances
    [LW04]_, of which the median is taken anew.

    Parameters
    ----------
    means : shape (N, T)
        Mean score of every model on every task.
    """

    procedure = "largest moderated t of all pairs, parametric bootstrap, single step"

    def __init__(
        self,
        means: FloatArray,
        a: IntArray,
        b: IntArray,
        *,
        rng: np.random.Generator,
        n_draws: int = 1999,
    ) -> None:
        n, tasks = means.shape
        self.a, self.b, self.n_models = a, b, n
        centred = means - means.mean(axis=0)
        rest = centred - centred.mean(axis=1, keepdims=True)
        root = root_of(_shrunk_covariance(rest))
        differences = centred[b] - centred[a]
        self.difference = differences.mean(axis=1)
        squares = ((differences - self.difference[:, None]) ** 2).sum(axis=1)
        self._error = np.sqrt(_moderated(squares, tasks) / tasks)
        some = np.where(self._error > 0, self._error, 1.0)
        self.statistic = np.where(self._error > 0, self.difference / some, 0.0)
        every = len(a) == n * (n - 1) // 2
        drawn = np.empty((n_draws, len(a)), dtype=np.float32)
        step = max(2**22 // max(len(a), tasks * n), 1)
        for start in range(0, n_draws, step):
            k = min(step, n_draws - start)
            mean = rng.standard_normal((k, n)) @ root.T
            noise = rng.standard_normal((k, tasks - 1, n)) @ root.T
            gram = np.matmul(noise.transpose(0, 2, 1), noise)
            own = np.einsum("bii->bi", gram)
            error = np.sqrt(_moderated(own[:, a] + own[:, b] - 2 * gram[:, a, b], tasks))
            lead = mean[:, b] - mean[:, a]
            drawn[start : start + k] = lead / np.where(error > 0, error, np.inf)
        self._all = drawn.T
        self._maxima = np.sort(np.abs(drawn).max(axis=1)).astype(np.float64)
        signed = np.full((n, n_draws), -np.inf, dtype=np.float32) if every else None
        if signed is not None:
            for pair, (i, j) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
                np.maximum(signed[i], self._all[pair], out=signed[i])
                np.maximum(signed[j], -self._all[pair], out=signed[j])
        self._signed = _in_order(signed)

    def _floor(self) -> FloatArray | float:
        return np.where(self._error > 0, 0.0, 1.0)

    def _drawn(self, pairs: IntArray) -> NDArray[np.float32]:
        return np.abs(self._all[pairs])

    def limits(self, alpha: float) -> Interval:
        """Return intervals that hold all differences at once; NaN where nothing varies."""
        half = self.critical(alpha) * np.where(self._error > 0, self._error, np.nan)
        return Interval(self.difference - half, self.difference + half)


def over_tasks(p_values: Sequence[FloatArray]) -> list[FloatArray]:
    """Adjust the p-values of tasks, each adjusted for its own pairs, for the number of tasks.

    Step-down [Hol79]_ [Sid67]_: items differ between tasks, so the chances of no false finding
    multiply, 1 - (1 - p)^t, t being the number of tasks that still have a pair not yet found.

    >>> [x.round(4).tolist() for x in over_tasks([np.array([0.01]), np.array([0.03])])]
    [[0.0199], [0.03]]
    """
    task = np.repeat(np.arange(len(p_values)), [len(p) for p in p_values])
    flat = np.concatenate(p_values)
    order = np.argsort(flat, kind="stable")[: int((~np.isnan(flat)).sum())]
    place = np.arange(len(order))
    last = np.full(len(p_values), -1)
    np.maximum.at(last, task[order], place)
    # Tasks whose last pair is still to come, or is this one.
    left = len(last) - np.searchsorted(np.sort(last), place, side="left")
    steps = -np.expm1(left * np.log1p(-np.minimum(flat[order], 1 - 1e-16)))
    adjusted = np.full(len(flat), np.nan)
    adjusted[order] = np.maximum.accumulate(steps)
    return np.split(adjusted, np.cumsum([len(p) for p in p_values])[:-1])


def graph(group: FloatArray, tasks: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Adjust p-values of a group and those of its tasks, (P,) and (T, P), together [BMBP09]_.

    The group has `GROUP_WEIGHT` of alpha and hands it on to its tasks for the pairs it finds;
    without that the tasks share the rest. `tasks` are adjusted for one another before.

    >>> group, tasks = graph(np.array([0.03]), np.array([[0.001], [0.045]]))
    >>> group.round(4).tolist(), tasks.round(4).tolist()
    ([0.0375], [[0.005], [0.045]])
    """
    of_group = np.minimum(group / GROUP_WEIGHT, 1.0)
    alone = np.minimum(tasks / (1 - GROUP_WEIGHT), 1.0)
    return of_group, np.minimum(alone, np.maximum(tasks, of_group))


class _Draws:
    """Random weights of U units: signs, or points of the sphere of radius √U."""

    def __init__(
        self, rng: np.random.Generator, n_units: int, n_draws: int, *, rotate: bool
    ) -> None:
        self.n, self.rotated = n_draws, rotate
        self._n_units = n_units
        if rotate:
            drawn = rng.standard_normal((n_units, n_draws))
            radius = np.sqrt(np.maximum((drawn**2).sum(axis=0), 1e-300) / max(n_units, 1))
            self._weights = (drawn / radius).astype(np.float32)
        else:
            # Bit by bit, because millions of weights are held.
            size = (n_units, (n_draws + 7) // 8)
            self._bits = rng.integers(0, 256, size=size, dtype=np.uint8)

    def of(self, sums: FloatArray) -> NDArray[np.float32]:
        """Add up sums of units, shape (K, U), with every draw's weights: shape (K, B)."""
        if self.rotated:
            return sums.astype(np.float32) @ self._weights
        total = np.zeros((len(sums), self.n), dtype=np.float32)
        step = max(2**22 // self.n, 1)
        for start in range(0, self._n_units, step):
            part = slice(start, start + step)
            bits = np.unpackbits(self._bits[part], axis=1, count=self.n)
            own = sums[:, part].astype(np.float32)
            # Signs are 2 bit - 1.
            total += 2 * (own @ bits.astype(np.float32)) - own.sum(axis=1, keepdims=True)
        return total


def _in_order(signed: NDArray[np.float32] | None) -> NDArray[np.float32] | None:
    return None if signed is None else np.sort(signed, axis=1)


def _lenient(statistics: FloatArray) -> FloatArray:
    return np.where(statistics > 0, statistics * (1 - TIE), statistics * (1 + TIE)) - 1e-9


def _share(maxima: NDArray[np.floating], statistics: FloatArray) -> FloatArray:
    """Share of maxima that reach a statistic; what was seen is one of them."""
    reached = len(maxima) - np.searchsorted(maxima, _lenient(statistics), side="left")
    return (1 + reached) / (len(maxima) + 1)


def _t_tails(size: FloatArray, n: FloatArray) -> FloatArray:
    """Two-sided p-value of one pair alone, of which T is √n t/√(n - 1 + t²)."""
    rest = np.maximum(n - size**2, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = size * np.sqrt(np.maximum(n - 1, 0) / rest)
        p = 2 * special.stdtr(np.maximum(n - 1, 1), -t)
    return np.where((n > 1) & (size > 0), np.nan_to_num(p), 1.0)


def _t_critical(alpha: float, n: FloatArray) -> FloatArray:
    q = special.stdtrit(np.maximum(n - 1, 1), 1 - alpha / 2)
    return np.where(n > 1, np.sqrt(n * q**2 / (np.maximum(n - 1, 1) + q**2)), np.inf)


def _roots(
    of: _Sums, pseudo: float, critical: FloatArray | float, span: float
) -> tuple[FloatArray, FloatArray]:
    """Roots of T(δ)² = c², cut at the span of differences, where T has only sums in it.

    Where the δ that are not rejected are two rays, it is the one with the estimate if 0 is rejected
    and else everything.
    """
    a, w, c = of.a + pseudo, of.w + pseudo, of.c + pseudo
    no_limit = np.isinf(critical)
    k = np.where(no_limit, 0.0, critical) ** 2
    first, half, last = w**2 - k * c, of.y * w - k * of.b, of.y**2 - k * a
    inside = half**2 - first * last
    with np.errstate(all="ignore"):
        root = np.sqrt(np.maximum(inside, 0.0))
        # Of the two forms of each root, the one without cancellation.
        q = half + np.where(half >= 0, root, -root)
        ends = np.stack([q / first, np.where(q == 0, 0.0, last / np.where(q == 0, 1, q))])
    low, high = ends.min(axis=0), ends.max(axis=0)
    closed, holds_zero = first > 1e-9 * w**2, last <= 1e-9 * np.maximum(a, 1e-300)
    upwards = ~holds_zero & (inside > 0)
    low = np.where(closed, low, np.where(upwards & (of.y > 0), high, -span))
    high = np.where(closed, high, np.where(upwards & (of.y < 0), ends.min(axis=0), span))
    # Nothing differs, and no pseudo-item says by how much it might.
    known = (a > 0) & ~no_limit
    low, high = np.where(known, low, -span), np.where(known, high, span)
    return np.clip(low, -span, span), np.clip(high, -span, span)


def _tango(of: _Sums, critical: float) -> tuple[FloatArray, FloatArray]:
    """Limits of 0/1 scores: Tango's variance under the difference δ in the divisor [Tan98]_."""
    n, only_a, only_b = of.units, (of.a - of.y) / 2, (of.a + of.y) / 2
    # Thousands of pairs have few distinct tables, and those of b against a are mirrored.
    first, second = np.concatenate([only_a, only_b]), np.concatenate([only_b, only_a])
    base = float(n.max()) + 1
    keys = np.round((first * base + second) * base + np.concatenate([n, n]))
    keys, where = np.unique(keys, return_inverse=True)
    rest, n_of = np.divmod(keys, base)
    lower = _tango_lower(*np.divmod(rest, base), n_of, critical)[where]
    return lower[: len(n)], -lower[len(n) :]


def _tango_lower(a: FloatArray, b: FloatArray, n: FloatArray, critical: float) -> FloatArray:
    n = np.maximum(n, 1.0)
    if np.isinf(critical):
        return np.full(len(n), -1.0)
    estimate = (b - a) / n

    def excess(at: FloatArray, pair: IntArray) -> tuple[FloatArray, FloatArray]:
        few_a, few_b, few_n = a[pair], b[pair], n[pair]
        linear, constant = (2 * few_n - few_b + few_a) * at - few_a - few_b, -few_a * at * (1 - at)
        root = np.sqrt(np.maximum(linear**2 - 8 * few_n * constant, 0.0))
        p = np.where(linear > 0, -2 * constant / (linear + root), (root - linear) / (4 * few_n))
        error = np.sqrt(np.maximum(few_n * (2 * p + at * (1 - at)), 1e-300))
        # The divisor moves much less than what it divides.
        return critical - (few_b - few_a - few_n * at) / error, few_n / error

    found = increasing_root(excess, estimate - 0.1, bracket=(-1.0, 1.0), tolerance=1e-12)
    return np.where(a == n, -1.0, np.minimum(found, estimate))


def _moving(of: _Sums, far: FloatArray, critical: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Limits of scores that attain no bound: the pseudo-items move with the difference δ."""
    n, estimate = of.w, of.y / np.maximum(of.w, 1.0)
    varies = of.a > 0

    def statistic(at: FloatArray) -> FloatArray:
        second = np.maximum(of.a - 2 * at * of.y + n * at**2, 0.0)
        wide = far * np.sqrt(second / np.where(varies, of.a, 1.0))
        wide = np.where(varies, wide, 2.0)
        low, high = np.maximum(-1.0, at - wide), np.minimum(1.0, at + wide)
        half = OF_ITEMS / 2
        spread = second + half * ((low - at) ** 2 + (high - at) ** 2)
        total = of.y - n * at + half * (low + high - 2 * at)
        return total / np.sqrt(np.maximum(spread, 1e-300))

    def root(low: FloatArray, high: FloatArray, target: FloatArray) -> FloatArray:
        for _ in range(50):
            middle = (low + high) / 2
            above = statistic(middle) > target
            low, high = np.where(above, middle, low), np.where(above, high, middle)
        return (low + high) / 2

    ends = np.ones(len(n))
    return root(-ends, estimate, critical), root(estimate, ends, -critical)


def _symmetric_reach(values: FloatArray, a: IntArray, b: IntArray) -> FloatArray:
    """How far from 0 each pair's differences may lie; signs of differences do not change it.

    As the reach points of `stats.reach`, from the distinct sizes of the differences about 0, and
    with what the skewness of both models' scores adds.
    """
    info = reach.if_varied(values)
    below, above = reach.beyond_straight(values, (False, False))
    skew = below + above
    deviation = np.nanstd(values, axis=1)
    found = np.empty(len(a))
    step = max(BLOCK_SIZE // max(values.shape[1], 1), 1)
    for start in range(0, len(a), step):
        pairs = slice(start, start + step)
        first, second = a[pairs], b[pairs]
        x = values[second] - values[first]
        size = np.abs(x)
        weight = np.maximum(info[first], info[second])
        weight = np.where((size <= reach.SAME) | (size >= 1 - reach.SAME), 0.0, weight)
        u, weight = reach.partial((1 + size) / 2, weight)
        logit = special.logit(u)
        d = weight.sum(axis=1)
        few, rest = d <= 1, np.where(d <= 1, 1.0, d - 1)
        spread: FloatArray = np.sqrt((weight * logit**2).sum(axis=1) / np.where(few, 1.0, d))
        far: FloatArray = 2 * special.expit(reach.deviations(d, rest) * spread) - 1
        with np.errstate(all="ignore"):
            kept = np.nanstd(x, axis=1) / np.hypot(deviation[first], deviation[second])
            largest = np.nanmax(size, axis=1, initial=0.0)
        kept = np.nan_to_num(np.minimum(1.0, kept))
        found[pairs] = np.maximum(np.where(few, 1.0, far), largest)
        found[pairs] += kept * (skew[first] + skew[second]) / 2
    return np.minimum(1.0, found)


def _moderated(squares: FloatArray, tasks: int) -> FloatArray:
    """Variances of single tasks' differences, drawn to their median; pairs on the last axis."""
    median = np.median(squares, axis=-1, keepdims=True)
    return (squares + MODERATION * median) / (1 + MODERATION) / (tasks - 1)


def _shrunk_covariance(rest: FloatArray) -> FloatArray:
    """Covariance of the models over tasks, shrunk to equal variances and covariances [LW04]_."""
    n, tasks = rest.shape
    found = rest @ rest.T / (tasks - 1)
    if n < 3:
        return found
    target = np.trace(found) / (n - 1) * (np.eye(n) - 1 / n)
    biased = rest @ rest.T / tasks
    error = ((rest**2).sum(axis=0) ** 2).sum() / tasks**2 - (biased**2).sum() / tasks
    distance = ((found - target) ** 2).sum()
    share = min(max(float(error), 0.0) / distance, 1.0) if distance > 0 else 1.0
    return (1 - share) * found + share * target
