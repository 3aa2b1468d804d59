"""All pairs of models at once: limits and p-values that hold for the whole family and agree.

`AllPairs` leaves every pair its own distribution of `stats.pairs.differences` and judges all by one
critical value c, that of the largest of as many standard normal variables, correlated as the pairs
are by the items and the models that they share. On its scale a pair stands

* whose differences have one size (0/1 scores): at its own normal deviate W. Where units are few,
  W/ρ: under common sign flips of the units the largest W reaches ρ c with probability .05, as
  counts are less alike than normal variables
* any other: where Student's t does whose 95 % limits are the pair's own, with as many units. W
  itself is bounded, at 3.6 for ten units; limits at c are the pair's 95 % limits, stretched as
  Student's are

A pair is found where it stands at c or beyond, and its limits leave 0 out exactly there. So an
adjusted p-value is never below the pair's own, and a model more never makes a pair clearer, but for
the error of the draws; Šidák's inequality bounds them from above [Sid67]_.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from evalstats_plugin.stats.arrays import BoolArray, FloatArray, IntArray, root_of
from evalstats_plugin.stats.interval import Interval, normal_quantile
from evalstats_plugin.stats.pairs.differences import Counts, MeanDifferences
from evalstats_plugin.stats.streams import child, stream

BLOCK_SIZE = 2**18
"""Statistics are formed in blocks of about this many numbers, which the processor's cache holds."""

MIDDLE, UPPER = 0.5, 0.05
"""Shares of the largest draws between which the number of independent pairs is seen to rise."""

BASE = normal_quantile(0.95)
"""Normal deviate of the 95 % limits of a pair alone, which those of all pairs are stretched from.
"""

FEW = 100
"""Units up to which counts are looked at under flips; with more they are as normal variables."""

FLIPS, LEAST_FLIPS = 2**22, 999
"""Deviates of pairs in flips, in all, and the least flips."""

TABLE = 32
"""Step of the sizes of tables of deviates, so that few are computed."""

MOST_ROWS = 300
"""Models or pairs up to which the root of a covariance costs less than weights of many units."""

MOST_ALIKE = 20
"""Models told apart one by one whose scores are each other's in another order of units."""

KEPT = 2**24
"""Random numbers of a stream that are kept for further tables, which start with the same ones."""

Floats = NDArray[np.float32]

_DRAWN: dict[tuple[str, int], tuple[Floats | None, Any]] = {}
"""Rows drawn so far of each stream, and where it goes on."""


class Units(NamedTuple):
    """What is sampled of N models: items, clusters or tasks."""

    sums: FloatArray
    """Shape (N, U): of each model's scores over each unit; NaN where missing."""
    sizes: FloatArray
    """Shape (U,): items of each unit."""
    differences: Callable[[IntArray], tuple[FloatArray, FloatArray]] | None = None
    """Of some pairs, shape (K, U): differences and how many items they are of, 0 where missing;
    None where every model has every item."""

    def of_pairs(self, a: IntArray, b: IntArray, pairs: IntArray) -> tuple[FloatArray, FloatArray]:
        """Differences of some pairs, shape (K, U), and their sizes."""
        if self.differences is not None:
            return self.differences(pairs)
        x = self.sums[b[pairs]] - self.sums[a[pairs]]
        return x, np.broadcast_to(self.sizes, x.shape)


class AllPairs:
    """P pairs of N models, judged together.

    Parameters
    ----------
    pairs
        Each pair alone.
    units
        What the pairs share; None for one pair, and where it is too much to hold: Šidák's bound,
        which is for pairs that share nothing, then stands for the largest of all [Sid67]_.
    a, b : shape (P,)
        Models of each pair: all pairs, or any of them.
    n_draws
        Of the largest of all pairs.

    Examples
    --------
    >>> from evalstats_plugin.stats.pairs.differences import Counts
    >>> scores = np.repeat([[0.0], [0.0], [1.0]], 30, axis=1)
    >>> scores[:, ::3] = 1 - scores[:, ::3]
    >>> a, b = np.triu_indices(3, 1)
    >>> alone = Counts([0, 20, 20], [0, 10, 10], 30)
    >>> together = AllPairs(alone, Units(scores, np.ones(30)), a, b, n_draws=1999)
    >>> alone.p_value.round(3).tolist(), together.p_values.round(2).tolist()
    ([1.0, 0.066, 0.066], [1.0, 0.14, 0.14])
    """

    def __init__(
        self, pairs: MeanDifferences, units: Units | None, a: IntArray, b: IntArray, *, n_draws: int
    ) -> None:
        self.pairs, self.a, self.b, self.n_draws = pairs, a, b, n_draws
        self.difference = pairs.estimate
        self.n_models = 2 if units is None else len(units.sums)
        self._n = max(int((~np.isnan(pairs.deviate)).sum()), 1)
        self._leads: _Leads | None = None
        if units is not None and self._n > 1:
            self._leads = _Leads(units, a, b, pairs, n_draws)
        self._maximum = _Maximum(self._leads.maxima if self._leads else None, self._n)

    @cached_property
    def stretch(self) -> float:
        """ρ: how much farther out counts of few units are at once than normal variables."""
        plain, counts = self.pairs.of_one_size
        few = self.pairs.n_units.max(initial=0.0) <= FEW
        differ = (counts.up + counts.down).any()
        if self._leads is None or not few or not differ or plain.sum() < 2:
            return 1.0
        largest = self._leads.largest_of_flips(np.flatnonzero(plain), counts)
        reached = float(np.quantile(largest, 0.95, method="higher"))
        # Beyond what is reached by more than limits err: a pair that stands there is not found.
        return max(reached * 1.001 / self.critical(0.05), 1.0)

    @cached_property
    def deviate(self) -> FloatArray:
        """Where each pair stands on the scale of c, shape (P,)."""
        plain, _ = self.pairs.of_one_size
        z: FloatArray = self.pairs.deviate / self.stretch
        other = ~plain & (self.pairs.n_units > 1) & (self._n > 1)
        if not other.any():
            return z
        low, high = self._alone
        df, estimate = self.pairs.n_units[other] - 1, self.difference[other]
        half = np.where(estimate > 0, estimate - low[other], high[other] - estimate)
        with np.errstate(invalid="ignore", divide="ignore"):
            t = _student(BASE, df) * np.abs(estimate) / half
        # What is exceeded as often by a normal variable; its sign is the estimate's.
        size = special.ndtri(np.maximum(special.stdtr(df, -t), 1e-300))
        z[other] = np.copysign(np.where(estimate == 0, 0.0, size), estimate)
        return z

    @cached_property
    def _alone(self) -> Interval:
        """Limits of each pair alone, 95 %."""
        return self.pairs.limits(BASE)

    @cached_property
    def _size(self) -> FloatArray:
        return np.abs(np.nan_to_num(self.deviate))

    @property
    def procedure(self) -> str:
        """What was done, in words, with the error of the draws."""
        if self._n == 1:
            return "one pair"
        if self._leads is None:
            return "Šidák's bound: too many scores to draw all pairs at once"
        error = np.sqrt(0.05 * 0.95 / self.n_draws)
        return f"largest of all pairs, p = .05 ± {error:.4f} ({self.n_draws:,} draws)"

    @property
    def p_values(self) -> FloatArray:
        """Adjusted for all pairs, single-step; shape (P,)."""
        return np.maximum(self.pairs.p_value, self._maximum.beyond(self._size))

    def critical(self, alpha: float) -> float:
        """Return c: a p-value is at most alpha exactly where the deviate's size is c or more."""
        return self._maximum.critical(alpha)

    def limits(self, alpha: float) -> Interval:
        """Return intervals that hold all differences at once with probability 1 - alpha."""
        c = self.critical(alpha)
        plain, counts = self.pairs.of_one_size
        other = ~plain & (self.pairs.n_units > 1) & (self._n > 1)
        if not other.any():
            return self.pairs.limits(c * self.stretch)
        span, df = self.pairs.span, np.maximum(self.pairs.n_units - 1, 1)
        more = _student(c, df) / _student(BASE, df)
        low, high = (self.difference + (limit - self.difference) * more for limit in self._alone)
        low, high = np.maximum(low, -span), np.minimum(high, span)
        low[plain], high[plain] = counts.limits(c * self.stretch)
        if (single := ~plain & ~other).any():
            low[single], high[single] = (limit[single] for limit in self.pairs.limits(c))
        return Interval(low, high)

    def step_down(self) -> FloatArray:
        """Return step-down p-values, which find more and have no limits of their own [WY93]_."""
        if self._n == 1:
            return self.pairs.p_value
        # Pairs that share nothing are none of them.
        order = np.flatnonzero(~np.isnan(self.pairs.deviate))
        order = order[np.argsort(self._size[order], kind="stable")]
        adjusted_p = np.full(len(self._size), np.nan)
        own = np.minimum(self.pairs.p_value[order], 1 - 1e-16)
        adjusted_p[order] = -np.expm1((1 + np.arange(len(order))) * np.log1p(-own))
        if self._leads is not None:
            drawn_p = self._leads.step_down(order, self._size[order])
            adjusted_p[order] = np.minimum(adjusted_p[order], drawn_p)
        strongest = order[::-1]
        adjusted_p[strongest] = np.maximum.accumulate(adjusted_p[strongest])
        return np.maximum(self.pairs.p_value, np.minimum(adjusted_p, self.p_values))

    def first(self, alpha: float, *, lower_is_better: bool = False) -> BoolArray | None:
        """Return the models that may truly be the first, shape (N,) [Hsu81]_.

        A model may not where some other leads it by more than chance. One model is truly first, so
        nothing is added for their number. None unless every pair is there.
        """
        if self._leads is None or self._leads.signed is None:
            return None
        n = self.n_models
        lead = np.full((n, n), -np.inf)
        sign = -1.0 if lower_is_better else 1.0
        lead[self.a, self.b] = sign * np.nan_to_num(self.deviate)
        lead[self.b, self.a] = -sign * np.nan_to_num(self.deviate)
        most = lead.max(axis=1)
        reached = (self._leads.signed >= most[:, None]).sum(axis=1)
        return (most <= 0) | ((1 + reached) / (self.n_draws + 1) > alpha)


def _student(z: float, df: FloatArray) -> FloatArray:
    """Student's quantile that is exceeded as often as a normal variable exceeds z."""
    return -np.asarray(special.stdtrit(df, special.ndtr(-z)), dtype=np.float64)


class _Maximum:
    """Distribution of the largest size of P standard normal variables, by draws of it.

    Beyond the upper draws it is that of m independent variables, where the logarithm of m goes on
    to rise with the size as it does between the middle of the draws and there; m is at most P.
    Where no pair differs anywhere the draws are all 0 and say nothing: it is that of P.
    """

    def __init__(self, maxima: FloatArray | None, n: int) -> None:
        self._maxima, self._n = (maxima if maxima is not None and maxima.any() else None), n
        if self._maxima is None:
            return
        c: list[float] = np.quantile(self._maxima, [1 - MIDDLE, 1 - UPPER]).tolist()
        m = [
            min(np.log1p(-share) / float(_log_inside(np.array(at))), n)
            for share, at in zip((MIDDLE, UPPER), c, strict=True)
        ]
        self._from, self._log = c[1], float(np.log(m[1]))
        self._slope = max(float(np.log(m[1] / m[0])) / max(c[1] - c[0], 1e-9), 0.0)

    def beyond(self, size: FloatArray) -> FloatArray:
        """P(largest ≥ size)."""
        inside = _log_inside(size)
        if self._maxima is None:
            return -np.expm1(self._n * inside)
        count = len(self._maxima) - np.searchsorted(self._maxima, size, side="left")
        share = (1 + count) / (len(self._maxima) + 1)
        log_m = self._log + self._slope * np.maximum(size - self._from, 0.0)
        m = np.minimum(np.exp(np.minimum(log_m, 700.0)), self._n)
        tail = np.where(size > self._from, -np.expm1(m * inside), np.maximum(share, UPPER))
        return np.minimum(tail, -np.expm1(self._n * inside))

    def critical(self, alpha: float) -> float:
        """Size that is reached with probability alpha."""
        most = c = _of_independent(alpha, self._n)
        if self._maxima is None:
            return most
        if alpha > UPPER:
            n_beyond = int(alpha * (len(self._maxima) + 1)) - 1
            drawn = min(float(self._maxima[-1 - n_beyond]), self._from)
            return min(most, float(np.nextafter(drawn, np.inf)))
        # The number of independent variables rises with c: c falls to where the two agree.
        last = np.inf
        while last - c > 1e-11:
            last, log_m = c, self._log + self._slope * max(c - self._from, 0.0)
            c = _of_independent(alpha, min(math.exp(min(log_m, 700.0)), self._n))
        return min(most, max(last, float(np.nextafter(self._from, np.inf))))


def _of_independent(alpha: float, m: float) -> float:
    """Size that the largest of m independent variables reaches with probability alpha."""
    each = alpha if m == 1 else -math.expm1(math.log1p(-alpha) / m)
    return -float(special.ndtri(each / 2))


def _log_inside(size: FloatArray) -> FloatArray:
    """Log of P(|Z| < size)."""
    return np.log1p(-2 * np.minimum(special.ndtr(-size), 0.5 - 1e-16))


class _Leads:
    """Draws of all pairs' standardised mean differences, were all true differences as estimated.

    Units have normal weights, common to all pairs. One unit more, on which models vary by
    themselves by as much as F, stands for what few units do not show. Of many units and few models
    (or pairs, where models lack items) the sums are drawn, which are normal with the same
    covariance.
    """

    def __init__(
        self, units: Units, a: IntArray, b: IntArray, pairs: MeanDifferences, n_draws: int
    ) -> None:
        self._a, self._b, self._units = a, b, units
        # A power of two near the largest sum, which single precision can square.
        largest = np.max(np.abs(units.sums), initial=0.0, where=np.isfinite(units.sums))
        self._unit = float(np.ldexp(1.0, min(int(np.frexp(largest)[1]), 1000)))
        complete = units.differences is None
        sign, of_models, of_units = _keys(units.sums)
        order = np.argsort(of_units, kind="stable")
        ranks = np.argsort(np.argsort(of_models, kind="stable"), kind="stable")
        n, n_units = units.sums.shape
        self._order, self._n_draws = order, n_draws
        self._of_pairs: Floats | None = None
        self._totals: Floats | None = None
        drawn = _normal(n, n_draws, "models by themselves")[ranks]
        drawn *= sign
        far = np.nanmedian(pairs.far) if np.isfinite(pairs.far).any() else 0.0
        self._far = float(far) / self._unit
        self._own = drawn * np.float32(self._far / np.sqrt(2))
        if complete:
            sums = units.sums / self._unit
            rest = sums - sums.sum(axis=1, keepdims=True) / units.sizes.sum() * units.sizes
            gram = rest @ rest.T
            if max(n, FEW) < n_units and n <= MOST_ROWS:
                root = root_of(gram + self._far**2 / 2 * np.eye(n))
                self._totals = root.astype(np.float32) @ drawn
            else:
                self._totals = rest[:, order].astype(np.float32) @ self._weights + self._own
            square = np.diag(gram)
            spread = square[a] + square[b] - 2 * gram[a, b]
            spread = np.where(spread < 1e-10 * (square[a] + square[b]), 0.0, spread)
        elif max(len(a), FEW) < n_units and len(a) <= MOST_ROWS:
            rest = self._rest(np.arange(len(a)))
            spread = (rest**2).sum(axis=1)
            self._of_pairs = self._drawn_pairs(rest @ rest.T, sign, ranks)
        else:
            spread = np.concatenate([(x**2).sum(axis=1) for x in self._rests()])
        spread = spread + self._far**2
        varies = (spread > 0) & ~np.isnan(pairs.deviate)
        inverse = np.where(varies, 1 / np.sqrt(np.where(varies, spread, 1.0)), 0.0)
        # Single precision holds nothing of a pair so small beside the largest: it does not vary.
        self._inverse = np.minimum(inverse, 1e38).astype(np.float32)
        self.maxima, self.signed = self._largest(n, n_draws)

    def _drawn_pairs(self, gram: FloatArray, sign: float, ranks: IntArray) -> Floats:
        """Draws of all pairs, shape (P, B), whose units have these products, shape (P, P)."""
        first, second = ranks[self._a], ranks[self._b]
        order = np.lexsort([np.maximum(first, second), np.minimum(first, second)])
        drawn = _normal(len(order), self._n_draws, "pairs by themselves")[np.argsort(order)]
        # Which model comes first turns the sign of all that is of the pair.
        drawn *= (sign * np.sign(second - first))[:, None]
        models = np.eye(len(ranks))
        one_more = (models[self._b] - models[self._a]) * (self._far / np.sqrt(2))
        return root_of(gram + one_more @ one_more.T).astype(np.float32) @ drawn

    @cached_property
    def _weights(self) -> Floats:
        """Shape (U, B)."""
        return _normal(len(self._order), self._n_draws, "weights of units")

    def _rests(self) -> Iterator[FloatArray]:
        step = max(BLOCK_SIZE // max(len(self._order), 1), 1)
        for start in range(0, len(self._a), step):
            yield self._rest(np.arange(start, min(start + step, len(self._a))))

    def _rest(self, pairs: IntArray) -> FloatArray:
        """What the units of some pairs differ by from their mean, in `_unit`."""
        x, sizes = self._units.of_pairs(self._a, self._b, pairs)
        x = x / self._unit
        n = np.maximum(sizes.sum(axis=1, keepdims=True), 1e-300)
        return x - x.sum(axis=1, keepdims=True) / n * sizes

    def of(self, pairs: IntArray) -> Floats:
        """Draws of some pairs, shape (K, B)."""
        first, second = self._a[pairs], self._b[pairs]
        if self._totals is not None:
            leads = self._totals[second] - self._totals[first]
        elif self._of_pairs is not None:
            leads = self._of_pairs[pairs]
        else:
            leads = self._rest(pairs)[:, self._order].astype(np.float32) @ self._weights
            leads += self._own[second] - self._own[first]
        return leads * self._inverse[pairs, None]

    def step_down(self, order: IntArray, size: FloatArray) -> FloatArray:
        """P(one of the pairs up to each is as large as it), for pairs in order of their size."""
        largest = np.zeros(self._n_draws, dtype=np.float32)
        p_values = np.empty(len(order))
        step = max(BLOCK_SIZE // self._n_draws, 1)
        for start in range(0, len(order), step):
            block = slice(start, start + step)
            drawn = np.abs(self.of(order[block]))
            np.maximum(drawn[0], largest, out=drawn[0])
            np.maximum.accumulate(drawn, axis=0, out=drawn)
            largest = drawn[-1].copy()
            reached = (drawn >= size[block].astype(np.float32)[:, None]).sum(axis=1)
            p_values[block] = (1 + reached) / (self._n_draws + 1)
        return p_values

    def largest_of_flips(self, pairs: IntArray, counts: Counts) -> FloatArray:
        """Return the largest size of the deviates of some pairs in each common flip of units.

        There is a pair or more. All its differences have one size, in m of its units: a flip leaves
        some of them up.
        """
        m = (counts.up + counts.down).astype(np.int64)
        table = counts.deviates(-(-int(m.max(initial=0)) // TABLE) * TABLE)
        n_flips = int(np.clip(FLIPS / len(pairs), LEAST_FLIPS, self._n_draws))
        signs = np.copysign(np.float32(1), self._weights[:, :n_flips])
        largest = np.zeros(n_flips)
        step = max(BLOCK_SIZE // n_flips, 1)
        order = np.argsort(m, kind="stable")
        for start in range(0, len(pairs), step):
            part = order[start : start + step]
            x, _ = self._units.of_pairs(self._a, self._b, pairs[part])
            unit = np.where(counts.unit[part] > 0, counts.unit[part], 1.0)[:, None]
            # Whole numbers, which single precision holds exactly.
            ahead = np.abs(np.rint(x / unit)[:, self._order].astype(signs.dtype) @ signs)
            # Of pairs with as many differences the largest lead is the largest deviate.
            differ, first = np.unique(m[part], return_index=True)
            leads = [own.max(axis=0) for own in np.split(ahead, first[1:])]
            lead = np.stack(leads).astype(np.int32)
            size = table[differ[:, None], (differ[:, None] + lead) >> 1]
            np.maximum(largest, size.max(axis=0), out=largest)
        return largest

    def _largest(self, n: int, n_draws: int) -> tuple[FloatArray, Floats | None]:
        every = len(self._a) == n * (n - 1) // 2
        signed = np.full((n, n_draws), -np.inf, dtype=np.float32) if every else None
        largest = np.zeros(n_draws, dtype=np.float32)
        if self._totals is None:
            self._largest_of_blocks(largest, signed)
        else:
            self._largest_of_totals(self._totals, largest, signed)
        return np.sort(largest).astype(np.float64), signed

    def _largest_of_totals(self, every: Floats, largest: Floats, signed: Floats | None) -> None:
        n, n_draws = every.shape
        inverse = np.zeros((n, n), dtype=np.float32)
        inverse[self._a, self._b] = self._inverse
        if signed is not None:
            inverse = inverse + inverse.T
        others = [np.flatnonzero(row) for row in inverse]
        step = max(BLOCK_SIZE // max(n, 1), 1)
        for start in range(0, n_draws, step):
            drawn = slice(start, start + step)
            totals = np.ascontiguousarray(every[:, drawn])
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

    def _largest_of_blocks(self, largest: Floats, signed: Floats | None) -> None:
        step = max(2**22 // len(largest), 1)
        for start in range(0, len(self._a), step):
            pairs = np.arange(start, min(start + step, len(self._a)))
            leads = self.of(pairs)
            if signed is not None:
                for pair, lead in zip(pairs.tolist(), leads, strict=True):
                    if self._inverse[pair] > 0:
                        i, j = self._a[pair], self._b[pair]
                        np.maximum(signed[i], lead, out=signed[i])
                        np.maximum(signed[j], -lead, out=signed[j])
            np.maximum(largest, np.abs(leads).max(axis=0), out=largest)


def _normal(n: int, n_draws: int, what: str) -> Floats:
    """Draws from the same stream each time: results depend on no seed, nor on what came before."""
    key = what, n_draws
    rows, state = _DRAWN.get(key, (None, None))
    n_known = 0 if rows is None else len(rows)
    if rows is None or n > n_known:
        drawn = child(stream(0, "all pairs at once"), what)
        if state is not None:
            drawn.bit_generator.state = state
        more = drawn.standard_normal((n - n_known, n_draws), dtype=np.float32)
        rows = more if rows is None else np.concatenate([rows, more])
        if rows.size <= KEPT:
            _DRAWN[key] = rows, drawn.bit_generator.state
    return rows[:n]


def _keys(sums: FloatArray) -> tuple[float, FloatArray, FloatArray]:
    """Numbers of models, shape (N,), and units, (U,), that follow from their contents.

    In their order draws are given to them, so that results do not depend on how they came, nor on
    names; and with the sign, not on whether higher or lower scores are better. The same for scores
    times a number. Models are told apart by their means, units by what models of each place have
    there; where scores are missing both also by which.
    """
    seen = ~np.isnan(sums)
    count = np.maximum(seen.sum(axis=0), 1)
    means_of_units = np.where(seen, sums, 0.0).sum(axis=0) / count
    y = np.where(seen, sums - means_of_units, 0.0)
    largest = np.abs(y).max(initial=0.0) or 1.0
    y = y / largest
    means = y.mean(axis=1)
    sign = -1.0 if (means**3).sum() < -1e-12 * np.abs(means**3).sum() else 1.0
    y, means = sign * y, sign * means
    unit = _rounded((y**2).sum(axis=0))
    model = _rounded(means + (y**2 * np.sqrt(1 + unit)).mean(axis=1) / 7)
    unit = _rounded(unit + np.sin(3 * model) @ y + np.cos(5 * model) @ y**3)
    model = _rounded(model + (y * np.sin(unit)).mean(axis=1))
    if not seen.all():
        # What is missing looks like the mean so far.
        unit = _rounded(unit + np.sin(3 * model) @ seen)
        model = _rounded(model + (seen * np.sin(unit)).mean(axis=1))
        unit = _rounded(unit + np.cos(5 * model) @ seen)
    for _ in range(MOST_ALIKE):
        first = _first_of_alike(model, sums / largest)
        if first is None:
            break
        # Models whose scores are each other's with units exchanged: any may be the first.
        model[first] += 1.0
        unit = _rounded(unit + np.sin(3 * model) @ y)
        model = _rounded(model + (y * np.sin(unit)).mean(axis=1))
    # Units on which models differ alike are told apart by their means: sums have one order.
    return sign, model, _rounded(unit + np.cos(7 * model) @ y + sign * means_of_units / largest / 9)


def _first_of_alike(model: FloatArray, sums: FloatArray) -> int | None:
    """Return a model that has the number of another with other scores; None where there is none."""
    order = np.argsort(model, kind="stable")
    same = np.flatnonzero(model[order[1:]] == model[order[:-1]])
    for i in same.tolist():
        # Of the same scores in another order the sums differ by rounding errors.
        if not np.allclose(*sums[order[i : i + 2]], rtol=0.0, atol=1e-9, equal_nan=True):
            return int(order[i])
    return None


def _rounded(values: FloatArray) -> FloatArray:
    """Without what sums in another order differ by."""
    return np.asarray(np.round(values, 9), dtype=np.float64)
