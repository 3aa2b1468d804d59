"""Mean difference of two models' scores on the same items: one distribution for any score.

Of the differences x_1 … x_n = b - a, in any unit, the mean is distributed as

    M = (Σ w_i x_i + F (g₁ - g₂)) / Σ w_i,   w_i ~ Gamma(1),  g₁, g₂ ~ Gamma(½),
    F² = Σ|x|⁵ / Σ|x|³.

The Bayesian bootstrap [Rub81]_ and half an item of weight on either side of it, where the largest
differences are: what one model did, the other can do. F is |x| where all differences that are not
0 have one size, which makes P(M ≤ 0) of 0/1 scores that of Jeffreys' Dirichlet prior, I_½(u + ½,
d + ½) for u items up and d down; for normal differences it is 2σ, the distance at which the limits
are Student's to second order. Nothing is tuned, and bounds only clip.

p = 2 min(P(M ≤ 0), P(M ≥ 0)), P(b is higher) = P(M > 0), and limits are quantiles of M: 0 is
outside them exactly where p ≤ 1 - level.

* `Differences`: P pairs by their items, or by other units with sizes, such as clusters: M is then
  (Σ w_i x_i + F (g₁ - g₂)) / Σ w_i m_i for sums x_i over m_i items
* `Counts`: pairs whose differences are all v, -v or 0, with exact p-values

Tails are on the scale of a normal deviate. Those of `Differences` are by the saddlepoint
approximation r* [Bar86]_, whose p-values lie within 9 % of the exact ones for three items, 1 % from
thirty on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from evalstats_plugin.stats.arrays import BoolArray, FloatArray, IntArray
from evalstats_plugin.stats.interval import Interval

HALF = 0.5
"""Weight on either side."""

SAME = 1e-9
"""Differences no larger than this share of the largest are rounding errors: 0."""

ROUNDING = 1e-14
"""Means of no more than this share of the largest difference are rounding errors: 0."""

NOWHERE = 1e-9
"""F without weight on either side: not 0, for the saddlepoint needs a range."""

BLOCK_SIZE = 80_000
"""Numbers of a block of pairs, which the processor's cache holds."""

Read: TypeAlias = Callable[[slice], tuple[FloatArray, FloatArray | None]]
"""Gives the differences of some pairs, shape (K, U), and the sizes of their units."""

WITHIN = 1e-4
"""Error of the normal deviate at which a limit takes its last step."""

_NEAR_MEAN = 0.02
"""Size of the saddlepoint below which r* is taken from its limit, the skewness."""


class MeanDifferences(ABC):
    """Distributions of the mean differences of P pairs; arrays have shape (P,)."""

    estimate: FloatArray
    """Mean difference; NaN where the two share nothing."""
    deviate: FloatArray
    """Φ⁻¹ of P(M > 0): positive where b is ahead, 0 where nothing differs."""
    far: FloatArray
    """F, in the unit of the differences; NaN where nothing differs."""
    n_units: FloatArray
    """How many items, or units of several, the two share."""
    span: float
    """Largest possible difference; infinite where unknown."""

    @cached_property
    def _kept(self) -> dict[float, Interval]:
        """Limits by their deviate, where one is for all pairs."""
        return {}

    @property
    @abstractmethod
    def of_one_size(self) -> tuple[BoolArray, Counts]:
        """Pairs whose differences have one size, as a mask and by how often each occurs."""

    @property
    def p_value(self) -> FloatArray:
        """Two-sided, of no difference."""
        return np.minimum(1.0, 2 * special.ndtr(-np.abs(self.deviate)))

    @property
    def prob_higher(self) -> FloatArray:
        """P(b is higher)."""
        return special.ndtr(self.deviate)

    def limits(self, z: ArrayLike) -> Interval:
        """Quantiles of M at ∓z, extended if necessary to hold the estimate, clipped at the span.

        Parameters
        ----------
        z
            Normal deviate of the limits, one for all or of shape (P,): 1.96 for 95 %.

        Returns
        -------
        Interval
            NaN where the two share nothing, or where nothing differs and the span is unknown.
        """
        # Those of single pairs are asked for twice: shown, and stretched for all pairs.
        kept = self._kept
        if isinstance(z, float) and z in kept:
            return kept[z]
        low, high = self.quantiles(np.broadcast_to(np.asarray(z, dtype=np.float64), self.shape))
        low, high = np.minimum(low, self.estimate), np.maximum(high, self.estimate)
        limits = Interval(np.maximum(low, -self.span), np.minimum(high, self.span))
        if isinstance(z, float):
            kept[z] = limits
        return limits

    def one_more(self, z: ArrayLike, *, unseen: bool = False) -> Interval:
        """Limits that allow for one more item against them, in place of the halves.

        The lower limit is a quantile with one more item at -F, the upper one with it at F, the size
        of the largest differences seen. With 0/1 scores that only drop they are Clopper
        and Pearson's: a margin is wrongly excluded no more often than Φ(-z). With an item `unseen`,
        of the largest possible difference, they say what the data cannot show.
        """
        z = np.broadcast_to(np.asarray(z, dtype=np.float64), self.shape)
        low, high = self.quantiles_of_one_more(z, self.span if unseen else None)
        low, high = np.minimum(low, self.estimate), np.maximum(high, self.estimate)
        return Interval(np.maximum(low, -self.span), np.minimum(high, self.span))

    @property
    def shape(self) -> tuple[int, ...]:
        """(P,)."""
        return self.estimate.shape

    @abstractmethod
    def quantiles(self, z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return quantiles of M at ∓z, neither extended nor clipped."""

    @abstractmethod
    def quantiles_of_one_more(
        self, z: FloatArray, size: float | None
    ) -> tuple[FloatArray, FloatArray]:
        """The same of one more item, as in `one_more`."""


class Counts(MeanDifferences):
    """Pairs whose differences are v, -v or 0, by how often each occurs.

    Parameters
    ----------
    up, down, n : shape (P,)
        Items with v, those with -v, and all.
    unit
        v, one for all pairs or of shape (P,).
    span
        Largest possible difference.

    Examples
    --------
    >>> pairs = Counts([3, 12], [1, 0], [20, 40])
    >>> pairs.p_value.round(6).tolist()
    [0.320939, 7.5e-05]
    >>> pairs.limits(1.959964).low.round(3).tolist()
    [-0.113, 0.164]
    """

    def __init__(
        self, up: ArrayLike, down: ArrayLike, n: ArrayLike, *, unit: ArrayLike = 1.0,
        span: float = 1.0,
    ) -> None:  # fmt: skip
        self.up, self.down, self.n = (
            np.asarray(x, dtype=np.float64) for x in np.broadcast_arrays(up, down, n)
        )
        self.unit = np.broadcast_to(np.asarray(unit, dtype=np.float64), self.n.shape)
        self.span = span
        with np.errstate(invalid="ignore", divide="ignore"):
            self.estimate = self.unit * (self.up - self.down) / self.n
        self.deviate = np.where(self.n > 0, _deviate_of_counts(self.up, self.down), np.nan)
        self.far = np.where(self.up + self.down > 0, self.unit, np.nan)
        self.n_units = self.n

    @staticmethod
    @lru_cache(maxsize=16)
    def deviates(m: int) -> FloatArray:
        """Sizes of the deviates of all counts, shape (m + 1, m + 1): i differ, j of them up."""
        i, j = np.indices((m + 1, m + 1)).astype(np.float64)
        return np.abs(_deviate_of_counts(np.minimum(i, j), np.maximum(i - j, 0.0)))

    @property
    def of_one_size(self) -> tuple[BoolArray, Counts]:
        """All pairs."""
        return np.ones(self.n.shape, dtype=np.bool_), self

    def quantiles(self, z: FloatArray, *, more: float = 0.0) -> tuple[FloatArray, FloatArray]:
        """Return quantiles of M at ∓z, neither extended nor clipped.

        Thousands of pairs have few distinct tables. Upper limits are lower ones of the mirrored
        table, each with so many `more` items down.
        """
        present = self.n > 0
        up, down, n = (x[present] for x in (self.up, self.down, self.n + more))
        first, second = np.concatenate([up, down]), np.concatenate([down, up]) + more
        # Numbered, so that keys stay exact however many sizes and deviates there are.
        both = np.empty(len(n), dtype=np.complex128)
        both.real, both.imag = n, z[present]
        rests, rest = np.unique(both, return_inverse=True)
        base = float(n.max(initial=0.0)) + 2
        keys = (np.tile(rest, 2) * base + first) * base + second
        keys, where = np.unique(keys, return_inverse=True)
        keys, b = np.divmod(keys, base)
        keys, a = np.divmod(keys, base)
        of_key = rests[keys.astype(np.int64)]
        half = 0.0 if more else HALF
        lower = _lower_of_counts(a, b, of_key.real, of_key.imag, half)[where]
        low, high = np.full((2, len(self.n)), np.nan)
        low[present], high[present] = lower[: len(n)], -lower[len(n) :]
        return self.unit * low, self.unit * high

    def quantiles_of_one_more(
        self, z: FloatArray, size: float | None
    ) -> tuple[FloatArray, FloatArray]:
        """Return those of one more item, as in `one_more`."""
        low, high = self.quantiles(z, more=1.0)
        other = (self.n > 0) & (self.unit != size)
        if size is not None and other.any():
            # The item is at another place than all others.
            atoms = np.multiply.outer(self.unit[other] / size, [1.0, -1.0, 0.0])
            weights = np.stack([self.up, self.down, self.n - self.up - self.down], axis=1)[other]
            rows = _Rows(np.where(weights > 0, atoms, 0.0), None, weights, np.ones(len(atoms)))
            low[other] = size * rows.with_one_more(-rows.far).limit(-z[other])
            high[other] = size * rows.with_one_more(rows.far).limit(z[other])
        return low, high


def limits_of_all(
    pairs: Sequence[MeanDifferences],
    z: Sequence[float],
    limits: Callable[[MeanDifferences, ArrayLike], Interval] = MeanDifferences.limits,
) -> list[Interval]:
    """Limits of many tables, each at its own deviate, counts all at once: a table has few.

    Parameters
    ----------
    pairs
        Those of each table.
    z
        Normal deviate of each table's limits.
    limits
        Which ones: `MeanDifferences.limits`, or those that allow for one more item.
    """
    every = [Interval(np.empty(0), np.empty(0))] * len(pairs)
    counts: dict[float, list[int]] = {}
    for i, table in enumerate(pairs):
        if isinstance(table, Counts):
            counts.setdefault(table.span, []).append(i)
        else:
            every[i] = limits(table, z[i])
    for span, where in counts.items():
        tables = [table for i in where if isinstance(table := pairs[i], Counts)]
        sizes = [len(table.n) for table in tables]
        up, down, n, unit = (
            np.concatenate([getattr(table, name) for table in tables])
            for name in ("up", "down", "n", "unit")
        )
        joined = tables[0] if len(tables) == 1 else Counts(up, down, n, unit=unit, span=span)
        low, high = limits(joined, np.repeat([z[i] for i in where], sizes))
        ends = np.cumsum(sizes)[:-1]
        for i, *own in zip(where, np.split(low, ends), np.split(high, ends), strict=True):
            every[i] = Interval(*own)
    return every


def _lower_of_counts(
    up: FloatArray, down: FloatArray, n: FloatArray, z: FloatArray, half: float
) -> FloatArray:
    """Lower limits, by the saddlepoint; towards 0 less its error there, which is known."""
    lower = np.full(len(n), -1.0)
    # With all against it, the limit is beyond the bound.
    some = down < n
    up, down, n, z = up[some], down[some], n[some], z[some]
    weights = np.stack([up, down, n - up - down], axis=1)
    atoms = np.where(weights > 0, [1.0, -1.0, 0.0], 0.0)
    rows = _Rows(atoms, None, weights, np.full(len(n), 1.0 if half else NOWHERE))
    goal = -z
    if half:
        exact = -_deviate_of_counts(up, down)
        goal = np.where(up > down, goal + rows.at_zero() - exact, goal)
    limit = rows.limit(np.minimum(goal, -1e-3))
    lower[some] = np.where(np.isnan(limit), -1.0, np.clip(limit, -1.0, 1.0))
    return lower


def _deviate_of_counts(up: FloatArray, down: FloatArray) -> FloatArray:
    """Φ⁻¹ of I_½(d + ½, u + ½), from the smaller tail."""
    # Thousands of pairs have few distinct counts.
    both, where = np.unique(np.nan_to_num(up) + 1j * np.nan_to_num(down), return_inverse=True)
    fewer, more = np.minimum(both.real, both.imag), np.maximum(both.real, both.imag)
    tail = special.betainc(more + HALF, fewer + HALF, 0.5)
    w = np.where(more > fewer, -special.ndtri(np.maximum(tail, 1e-300)), 0.0)
    return np.copysign(w, both.real - both.imag)[where.reshape(up.shape)]


class Differences(MeanDifferences):
    """Pairs by the differences of their items, or by sums over units of several items.

    Pairs whose differences have one size are those of `Counts`.

    Parameters
    ----------
    x : shape (P, U)
        Differences b - a of items, or their sums over units; NaN where missing. Or a function that
        gives those of some pairs, with their sizes.
    sizes : shape (P, U) or (U,)
        How many items each sum is over; None for single items.
    n_pairs
        P, where `x` is a function.
    span
        Largest possible difference of an item: clips limits, and is F where nothing differs.
    least_far : shape (P,)
        What F is at least: differences that were predicted in part do not show how far they go.

    Examples
    --------
    >>> pairs = Differences([[0.009, 0.031, 0.006, -0.009, 0.032, 0.019, 0.016, 0.026]], span=1.0)
    >>> low, high = pairs.limits(1.959964)
    >>> print(f"{low[0]:.4f} {high[0]:.4f} {pairs.p_value[0]:.4f}")
    0.0037 0.0282 0.0208
    """

    def __init__(
        self,
        x: ArrayLike | Read,
        *,
        sizes: FloatArray | None = None,
        n_pairs: int | None = None,
        span: float = np.inf,
        least_far: FloatArray | None = None,
    ) -> None:
        self._least = least_far
        if callable(x):
            self._read, count = x, n_pairs or 0
        else:
            values = np.asarray(x, dtype=np.float64)
            count = len(values)

            def read(part: slice) -> tuple[FloatArray, FloatArray | None]:
                return values[part], sizes if sizes is None or sizes.ndim == 1 else sizes[part]

            self._read = read
        self.span = span
        self.estimate, self._n, self._scale, self._far, self.deviate = np.full((5, count), np.nan)
        self.n_units = np.zeros(count)
        self._up, self._down = np.zeros((2, count))
        self._plain = np.zeros(count, dtype=np.bool_)
        for part in _slices(count, self._read):
            self._look(part)
        if self._plain.any():
            self.deviate[self._plain] = self._counts().deviate
        self.far = np.where(self._scale > 0, self._far * self._scale, np.nan)
        # 0/0 where the two share nothing.
        with np.errstate(invalid="ignore"):
            self.estimate = self.estimate / self._n

    @property
    def of_one_size(self) -> tuple[BoolArray, Counts]:
        """Pairs whose differences have one size, as a mask and by how often each occurs."""
        return self._plain, self._counts()

    def _look(self, part: slice) -> None:
        """Take what limits do not change: estimates, F, and P(M > 0)."""
        x, sizes = _complete(*self._read(part))
        scale = np.abs(x).max(axis=1, initial=0.0)
        n = np.full(len(x), float(x.shape[1])) if sizes is None else sizes.sum(axis=1)
        total = x.sum(axis=1)
        self.estimate[part] = np.where(np.abs(total) <= ROUNDING * n * scale, 0.0, total)
        self._n[part], self._scale[part] = n, scale
        unit = x / np.where(scale > 0, scale, 1.0)[:, None]
        far = distance(unit)
        if self._least is not None:
            far = np.maximum(far, self._least[part] / np.where(scale > 0, scale, np.inf))
        self._far[part] = far
        self.n_units[part] = n if sizes is None else (sizes > 0).sum(axis=1)
        plain = (np.abs(far - 1) <= SAME) | (scale == 0)
        if sizes is not None:
            plain &= ((sizes == 0) | (sizes == 1)).all(axis=1)
        plain &= (n > 0) & ((scale > 0) | np.isfinite(self.span))
        self._plain[part] = plain
        self._up[part], self._down[part] = (unit > HALF).sum(axis=1), (unit < -HALF).sum(axis=1)
        w = np.where(n > 0, 0.0, np.nan)
        rest = np.nonzero(~plain & (scale > 0))[0]
        if len(rest):
            every = _Rows(unit, sizes, None, far)
            w[rest] = -(every if len(rest) == len(x) else every.take(rest)).at_zero()
        self.deviate[part] = w

    def _counts(self) -> Counts:
        """Of the pairs whose differences have one size."""
        here = self._plain
        unit = np.where(self._scale > 0, self._scale, self.span)[here]
        return Counts(self._up[here], self._down[here], self._n[here], unit=unit, span=self.span)

    def quantiles(self, z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return quantiles of M at ∓z, neither extended nor clipped."""
        low, high = np.full((2, *self.shape), np.nan)
        if self._plain.any():
            low[self._plain], high[self._plain] = self._counts().quantiles(z[self._plain])
        for rows, unit, _, index in self._rest():
            low[index] = unit * rows.limit(-z[index])
            high[index] = unit * rows.limit(z[index])
        return low, high

    def quantiles_of_one_more(
        self, z: FloatArray, size: float | None
    ) -> tuple[FloatArray, FloatArray]:
        """Return those of one more item, as in `one_more`."""
        low, high = np.full((2, *self.shape), np.nan)
        if self._plain.any():
            quantiles = self._counts().quantiles_of_one_more(z[self._plain], size)
            low[self._plain], high[self._plain] = quantiles
        for rows, unit, largest, index in self._rest():
            far = rows.far if size is None else largest * size / unit
            low[index] = unit * rows.with_one_more(-far).limit(-z[index])
            high[index] = unit * rows.with_one_more(far).limit(z[index])
        return low, high

    def _rest(self) -> Iterator[tuple[_Rows, FloatArray, FloatArray, IntArray]]:
        """Yield other pairs, with their units, the items of their largest units, and places."""
        for part in _slices(len(self._n), self._read):
            index = np.arange(len(self._n))[part]
            index = index[~self._plain[part] & (self._n[part] > 0)]
            if not len(index):
                continue
            x, sizes = _complete(*self._read(part))
            keep = index - part.start
            x, sizes = x[keep], None if sizes is None else sizes[keep]
            largest = np.ones(len(x)) if sizes is None else sizes.max(axis=1, initial=0.0)
            whole = self.span * largest
            alike = self._scale[index] == 0
            unit = np.where(alike, np.where(np.isfinite(whole), whole, 1.0), self._scale[index])
            far = np.where(alike, np.where(np.isfinite(whole), 1.0, 0.0), self._far[index])
            yield _Rows(x / unit[:, None], sizes, None, far), unit, largest, index


def _slices(count: int, read: Read) -> Iterator[slice]:
    """Yield blocks of pairs that the cache holds."""
    width = read(slice(0, 1))[0].shape[1] if count else 1
    step = max(1, BLOCK_SIZE // max(1, width))
    return (slice(start, start + step) for start in range(0, count, step))


def _complete(x: FloatArray, sizes: FloatArray | None) -> tuple[FloatArray, FloatArray | None]:
    """Zeros of size 0 where missing; sizes of shape (P, U), None where all are 1."""
    gone = np.isnan(x)
    if gone.any():
        return np.where(gone, 0.0, x), np.where(gone, 0.0, 1.0 if sizes is None else sizes)
    return x, None if sizes is None else np.broadcast_to(sizes, x.shape)


def distance(x: FloatArray) -> FloatArray:
    """F of each row."""
    size = np.abs(x)
    # As products: a power takes ten times as long.
    cube = size * size
    cube *= size
    below = cube.sum(axis=1)
    cube *= size
    cube *= size
    fifth = cube.sum(axis=1)
    return np.sqrt(np.divide(fifth, below, out=np.zeros_like(below), where=below > 0))


def _total(values: FloatArray, weights: FloatArray | None) -> FloatArray:
    if weights is None:
        return values.sum(axis=1)
    return np.einsum("ij,ij->i", values, weights)


def _sum_of_logs(values: FloatArray) -> FloatArray:
    """Sums of rows: of eight numbers the logarithm of their product, in a quarter of the time."""
    for _ in range(3):
        half = values.shape[1] // 2
        if half < 4:
            break
        product = values[:, :half] * values[:, half : 2 * half]
        if values.shape[1] % 2:
            product[:, 0] *= values[:, -1]
        values = product
    return np.log(values).sum(axis=1)


class _Point(NamedTuple):
    """Of S(d) = Σ w (x - d m) + F (g₁ - g₂) at t: its cumulant function, and sums."""

    k: FloatArray
    k1: FloatArray
    k2: FloatArray
    slope: FloatArray
    """Σ m e, with e = 1/(1 - t (x - d m))."""
    bend: FloatArray
    """Σ m e²."""


class _Rows:
    """Differences in units of the largest of each pair."""

    def __init__(
        self, x: FloatArray, sizes: FloatArray | None, weights: FloatArray | None, far: FloatArray
    ) -> None:
        self.x, self.sizes, self.weights, self.far = x, sizes, weights, far
        self.units = np.full(len(x), float(x.shape[1])) if weights is None else weights.sum(axis=1)
        n = self.units if sizes is None else _total(sizes, weights)
        self.n = np.where(n > 0, n, 1.0)
        self.mean = _total(x, weights) / self.n
        self.top, self.bottom = x.max(axis=1, initial=-1), x.min(axis=1, initial=1)

    def take(self, index: IntArray) -> Self:
        """Some of the rows."""
        part = object.__new__(type(self))
        for name, value in self.__dict__.items():
            setattr(part, name, None if value is None else value[index])
        return part

    def with_one_more(self, x: FloatArray) -> _Rows:
        """The same rows with one more unit each, in place of the halves."""
        ones = np.ones((len(x), 1))
        sizes = self.sizes
        if sizes is not None:
            # As many items as the largest unit has.
            sizes = np.concatenate([sizes, sizes.max(axis=1, keepdims=True)], axis=1)
        weights = None if self.weights is None else np.concatenate([self.weights, ones], axis=1)
        every = np.concatenate([self.x, x[:, None]], axis=1)
        return _Rows(every, sizes, weights, np.where(self.far > 0, NOWHERE, 0.0))

    def apart(self, d: FloatArray) -> FloatArray:
        """X - d m."""
        return self.x - (d[:, None] if self.sizes is None else d[:, None] * self.sizes)

    def ends(self, d: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Between which t lies."""
        if self.sizes is None:
            bottom, top = self.bottom - d, self.top - d
        else:
            y = self.apart(d)
            bottom, top = y.min(axis=1), y.max(axis=1)
        return 1 / np.minimum(bottom, -self.far), 1 / np.maximum(top, self.far)

    def point(self, d: FloatArray, t: FloatArray, *, near: bool) -> _Point:
        """Cumulants at t; those for t that may be near 0 cost a little more."""
        if near or self.sizes is not None:
            y = self.apart(d)
            e = y * -t[:, None]
            e += 1.0
        else:
            # In fewer passes over the items.
            y = e = self.x * -t[:, None]
            e += (1 + t * d)[:, None]
        k = -_sum_of_logs(e) if self.weights is None else -_total(np.log(e), self.weights)
        np.reciprocal(e, out=e)
        if near:
            y *= e
            k1, k2 = _total(y, self.weights), self._squares(y)
            slope = bend = k1
        else:
            first_sum, second_sum = _total(e, self.weights), self._squares(e)
            k1, k2 = (
                (first_sum - self.units) / t,
                (second_sum - 2 * first_sum + self.units) / (t * t),
            )
            slope, bend = first_sum, second_sum
            if self.sizes is not None:
                each = e * self.sizes
                slope, bend = _total(each, self.weights), _total(each * e, self.weights)
        f = self.far * t
        rest = 1 - f * f
        k = k - HALF * np.log(rest)
        k1 = k1 + self.far * f / rest
        k2 = k2 + self.far**2 * (1 + f * f) / rest**2
        return _Point(k, k1, k2, slope, bend)

    def _squares(self, e: FloatArray) -> FloatArray:
        if self.weights is None:
            return np.einsum("ij,ij->i", e, e)
        return np.einsum("ij,ij,ij->i", e, e, self.weights)

    def at_zero(self) -> FloatArray:
        """Φ⁻¹(P(M ≤ 0))."""
        return self.deviate(np.zeros(len(self.x)))

    def deviate(self, d: FloatArray) -> FloatArray:
        """Φ⁻¹(P(M ≤ d)): t from K'(t) = 0 by Newton's method within a bracket."""
        w = np.zeros(len(d))
        index = np.nonzero(self.far > 0)[0]
        if not len(index):
            return w
        rows, at = (self, d) if len(index) == len(d) else (self.take(index), d[index])
        with np.errstate(all="ignore"):
            low, high = rows.ends(at)
            t = np.zeros(len(index))
            for step in range(200):
                p = rows.point(at, t, near=True)
                ended = (np.abs(p.k1) <= 1e-9 * np.sqrt(p.k2)) | (step == 199)
                if ended.any():
                    w[index[ended]] = rows.r_star(p.k, p.k2, t, at)[ended]
                    if ended.all():
                        break
                high, low = np.where(p.k1 > 0, t, high), np.where(p.k1 > 0, low, t)
                new = t - p.k1 / p.k2
                t = np.where((new > low) & (new < high), new, (low + high) / 2)
                if ended.any():
                    stay = np.nonzero(~ended)[0]
                    rows, index = rows.take(stay), index[stay]
                    at, t, low, high = at[stay], t[stay], low[stay], high[stay]
        return w

    def limit(self, target: FloatArray) -> FloatArray:
        """Quantiles of M with these normal deviates; NaN where F is unknown.

        Newton's method in d and t together.
        """
        limits = np.full(len(target), np.nan)
        index = np.nonzero(self.far > 0)[0]
        if not len(index):
            return limits
        rows = self if len(index) == len(target) else self.take(index)
        goal = target[index]
        with np.errstate(all="ignore"):
            spread = rows.spread()
            d = rows.mean + goal * spread / rows.n * 1.05
            t = goal / spread * 0.85
            low, high = rows.ends(d)
            t = np.clip(t, 0.7 * low, 0.7 * high)
            for _ in range(14):
                p = rows.point(d, t, near=False)
                r = np.sign(t) * np.sqrt(np.maximum(-2 * p.k + p.k1 * p.k1 / p.k2, 1e-300))
                w = r + np.log(t * np.sqrt(p.k2) / r) / r
                slope = t * p.slope / r
                # The last step leaves an error of the square of these.
                fine = (np.abs(w - goal) < WITHIN) & (np.abs(p.k1) < WITHIN * np.sqrt(p.k2))
                away = np.abs(d - rows.mean) + 1e-300
                # Not half of the way back to the mean, not more than twice as far out.
                back, out = -0.5 * away, away
                move = (goal - w) / slope * np.sign(goal)
                move = np.sign(goal) * np.clip(move, back, out)
                if fine.any():
                    limits[index[fine]] = (d + move)[fine]
                    stay = np.nonzero(~fine)[0]
                    if not len(stay):
                        return limits
                    rows, index, goal = rows.take(stay), index[stay], goal[stay]
                    d, t, move = d[stay], t[stay], move[stay]
                    p = _Point(*(z[stay] for z in p))
                d = d + move
                new = t - (p.k1 - p.bend * move) / p.k2
                low, high = rows.ends(d)
                new = np.where(new >= high, 0.7 * high + 0.3 * np.minimum(t, high), new)
                new = np.where(new <= low, 0.7 * low + 0.3 * np.maximum(t, low), new)
                t = np.where(np.isfinite(new) & (new * goal > 0), new, t)
                d = np.where(np.isfinite(d), d, rows.mean)
            limits[index] = rows.bracketed(goal)
        return limits

    def spread(self) -> FloatArray:
        """Root of the variance of S at the mean."""
        y = self.apart(self.mean)
        return np.sqrt(_total(y * y, self.weights) + self.far**2)

    def bracketed(self, target: FloatArray) -> FloatArray:
        """Quantiles by false position (Illinois), for the few that Newton's method misses."""
        a, fa = self.mean, self.deviate(self.mean) - target
        # The median may be beyond: then the quantile is on the other side of the mean.
        sign = np.where(fa < 0, 1.0, -1.0)
        step = 1.5 * np.abs(target) * self.spread() / self.n
        b = self.mean + sign * step
        fb = self.deviate(b) - target
        for _ in range(80):
            inside = sign * fb < 0
            if not inside.any():
                break
            a, fa = np.where(inside, b, a), np.where(inside, fb, fa)
            step = np.where(inside, 1.6 * step, step)
            b = np.where(inside, b + sign * step, b)
            fb = np.where(inside, self.deviate(b) - target, fb)
        rows, goal, near, index = self, target, b.copy(), np.arange(len(b))
        for _ in range(100):
            if not len(index):
                break
            q = (a * fb - near * fa) / np.where(fb == fa, 1.0, fb - fa)
            fq = rows.deviate(q) - goal
            same = (fq > 0) == (fb > 0)
            a, fa = np.where(same, a, near), np.where(same, fa / 2, fb)
            b[index], near, fb = q, q, fq
            # Each row ends by itself: digits do not depend on the others.
            stay = np.nonzero((np.abs(fq) >= 1e-7) & (np.abs(a - q) >= 1e-13))[0]
            rows, index, goal = rows.take(stay), index[stay], goal[stay]
            a, fa, near, fb = a[stay], fa[stay], near[stay], fb[stay]
        return b

    def r_star(self, k: FloatArray, k2: FloatArray, t: FloatArray, d: FloatArray) -> FloatArray:
        """R + log(v/r)/r; at the mean, where that is 0/0, v plus a sixth of the skewness."""
        v = t * np.sqrt(k2)
        r = np.sign(t) * np.sqrt(np.maximum(-2 * k, 0.0))
        w = r + np.log(v / r) / r
        near = np.nonzero((np.abs(v) < _NEAR_MEAN) | (k >= 0))[0]
        if len(near):
            part, at = self.take(near), t[near]
            y = part.apart(d[near])
            e = y / (1 - at[:, None] * y)
            f = part.far * at
            third = 2 * _total(e * e * e, part.weights)
            third += part.far**3 * (1 / (1 - f) ** 3 - 1 / (1 + f) ** 3)
            w[near] = v[near] + third / k2[near] ** 1.5 / 6
        return w
