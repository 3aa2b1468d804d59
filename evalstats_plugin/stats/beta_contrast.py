"""How far one of two independent Beta variables is ahead of the other.

The distribution of their difference, log ratio or log odds ratio is an integral over the one that
varies less; its integrand is smooth once both ends of the range are stretched, so that the
trapezoid rule gives next to all digits with few nodes.
"""

from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special

from evalstats_plugin.stats.interval import (
    FloatArray,
    IntArray,
    increasing_root,
    tail_probability,
)

Contrast: TypeAlias = Literal["difference", "log ratio", "log odds ratio"]

# Of the trapezoid rule, whose error falls exponentially with their number.
NODES = 96
# The density beyond the quantiles of this probability is left out.
NEGLIGIBLE = 1e-15
# Distinct pairs worked on at a time.
BLOCK_SIZE = 2**11


class Posterior(NamedTuple):
    """An interval of b's contrast to a, and the probability that b is better."""

    low: FloatArray
    high: FloatArray
    prob_better: FloatArray


class Betas(NamedTuple):
    """Shapes of independent Beta variables: arrays of one shape, NaN where there is none."""

    right_a: FloatArray
    wrong_a: FloatArray
    right_b: FloatArray
    wrong_b: FloatArray


def contrast(betas: Betas, of: Contrast, confidence_level: float) -> Posterior:
    """Posterior of the difference, log ratio or log odds ratio of b to a, equal tails."""
    tail = tail_probability(confidence_level)
    tables = np.stack([x.ravel() for x in betas], axis=1)
    there, distinct, where = _both_ways(tables)
    n = int(there.sum())
    parts = [
        _solve(distinct[i : i + BLOCK_SIZE], of, tail) for i in range(0, len(distinct), BLOCK_SIZE)
    ]
    lower, behind = np.concatenate([np.zeros((2, 0)), *parts], axis=1)[:, where]
    found = np.full((3, len(tables)), np.nan)
    found[:, there] = lower[:n], -lower[n:], _ahead(behind)
    return Posterior(*(x.reshape(betas.right_a.shape) for x in found))


def prob_better(betas: Betas) -> FloatArray:
    """Posterior probability that b is better, alone."""
    tables = np.stack([x.ravel() for x in betas], axis=1)
    there, distinct, where = _both_ways(tables)
    parts = [
        _known_best(distinct[i : i + BLOCK_SIZE], "difference").below(
            np.zeros(len(distinct[i : i + BLOCK_SIZE]))
        )[0]
        for i in range(0, len(distinct), BLOCK_SIZE)
    ]
    prob = np.full(len(tables), np.nan)
    prob[there] = _ahead(np.concatenate([np.zeros(0), *parts])[where])
    return prob.reshape(betas.right_a.shape)


def _both_ways(tables: FloatArray) -> tuple[NDArray[np.bool_], FloatArray, IntArray]:
    """Which tables there are, the distinct ones of b against a and of a against b, and where.

    Thousands of pairs hold few distinct counts.
    """
    there: NDArray[np.bool_] = np.asarray(~np.isnan(tables).any(axis=1))
    both = np.concatenate([tables[there], tables[there][:, [2, 3, 0, 1]]])
    distinct, where = np.unique(both, axis=0, return_inverse=True)
    return there, distinct, where


def _ahead(behind: FloatArray) -> FloatArray:
    """P(a ≤ b) from P(b ≤ a) and, after those, P(a ≤ b): they add up to 1 but for rounding."""
    b_behind, a_behind = np.split(behind, 2)
    return a_behind / (b_behind + a_behind)


class _Pairs(NamedTuple):
    """Pairs of Beta variables, the better known first: the other's distribution is smoother."""

    tables: FloatArray
    margins: FloatArray
    """From 0 to the lower quantile, and from the upper one to 1, neither lost to rounding."""
    sign: FloatArray
    """-1 where the better known is b, the contrast to which is that of b to a turned round."""
    of: Contrast

    def below(
        self, x: FloatArray, rows: IntArray | slice = slice(None)
    ) -> tuple[FloatArray, FloatArray]:
        """P(contrast of b to a ≤ x) and its derivative."""
        sign = self.sign[rows]
        value, density = _cdf_and_density(
            self.tables[rows], self.margins[:, rows], sign * x, self.of
        )
        return np.clip(np.where(sign > 0, value, 1 - value), 0, 1), density


def _known_best(tables: FloatArray, of: Contrast) -> _Pairs:
    """Put the variable first that varies less."""
    _, variances = _moments(tables, of)
    a_first = variances[0] <= variances[1]
    tables = np.where(a_first[:, None], tables, tables[:, [2, 3, 0, 1]])
    right, wrong = tables[:, ::2], tables[:, 1::2]
    margins = np.asarray(
        [
            special.betaincinv(right, wrong, NEGLIGIBLE),
            special.betaincinv(wrong, right, NEGLIGIBLE),
        ],
        dtype=np.float64,
    )
    return _Pairs(tables, margins, np.where(a_first, 1.0, -1.0), of)


def _solve(tables: FloatArray, of: Contrast, tail: float) -> FloatArray:
    """Lower limit, and the probability that the contrast is below 0, of tables (rows, 4)."""
    pairs = _known_best(tables, of)
    target = float(special.ndtri(tail))

    def excess(x: FloatArray, rows: IntArray) -> tuple[FloatArray, FloatArray]:
        value, density = pairs.below(x, rows)
        # On the normal scale the distribution is nearly a straight line.
        score = special.ndtri(np.clip(value, 1e-300, 1 - 1e-16))
        return score - target, density * np.exp(score**2 / 2) * np.sqrt(2 * np.pi)

    means, variances = _moments(tables, of)
    start = means[1] - means[0] + target * np.sqrt(variances.sum(axis=0))
    limit = 1 - 1e-12 if of == "difference" else 500.0
    lower = increasing_root(excess, start, bracket=(-limit, limit), tolerance=1e-8)
    return np.stack([lower, pairs.below(np.zeros(len(tables)))[0]])


def _row_sums(weight: FloatArray, values: FloatArray) -> FloatArray:
    return np.asarray(np.einsum("pn,pn->p", weight, values), dtype=np.float64)


class _Range(NamedTuple):
    """A range within [0, 1], and a number in it: `before` + length · share, and what is after."""

    before: FloatArray
    length: FloatArray
    after: FloatArray

    def at(self, share: FloatArray, rest: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return a number and what is missing of it to 1, without cancellation."""
        return self.before + self.length * share, self.after + self.length * rest


def _cdf_and_density(
    tables: FloatArray, margins: FloatArray, x: FloatArray, of: Contrast
) -> tuple[FloatArray, FloatArray]:
    """P(contrast of b to a ≤ x) and its derivative, of tables (rows, 4).

    For x < 0 the integral over a of its density times P(b is no more than x ahead), for x > 0 that
    of P(b is more than x ahead): each vanishes where a's range is cut off. By the trapezoid rule
    in a coordinate that stretches both ends of that range.
    """
    right_a, wrong_a, right_b, wrong_b = (tables[:, k : k + 1] for k in range(4))
    of_a, of_b = _ranges(x[:, None], of)
    v, step = _nodes(margins, x[:, None], of_a, of_b, of)
    u = 2 * np.sinh(v)
    share, rest = special.expit(u), special.expit(-u)
    if of == "log odds ratio":
        b, not_b = special.expit(u + x[:, None]), special.expit(-u - x[:, None])
        b_slope = b * not_b
    else:
        b, not_b = of_b.at(share, rest)
        b_slope = b if of == "log ratio" else np.ones_like(b)
    log_slope = special.log_expit(u) + special.log_expit(-u) + np.log(2 * np.cosh(v))
    a_density = np.exp(_log_density(right_a, wrong_a, *of_a.at(share, rest)) + log_slope)
    weight = a_density * of_a.length * step
    ahead = x > 0
    tails = special.betainc(
        np.where(ahead[:, None], wrong_b, right_b),
        np.where(ahead[:, None], right_b, wrong_b),
        np.where(ahead[:, None], not_b, b),
    )
    total = _row_sums(weight, np.asarray(tails, dtype=np.float64))
    b_density = b_slope * np.exp(_log_density(right_b, wrong_b, b, not_b))
    return np.where(ahead, 1 - total, total), _row_sums(weight, b_density)


def _nodes(
    margins: FloatArray, x: FloatArray, of_a: _Range, of_b: _Range, of: Contrast
) -> tuple[FloatArray, FloatArray]:
    """Equally spaced nodes over what is not negligible, and the step."""
    below, above = margins[0], margins[1]
    lowest: FloatArray = (below[:, :1] - of_a.before) / of_a.length
    highest: FloatArray = (above[:, :1] - of_a.after) / of_a.length
    if of != "log odds ratio":
        from_b: FloatArray = (below[:, 1:] - of_b.before) / of_b.length
        to_b: FloatArray = (above[:, 1:] - of_b.after) / of_b.length
        lowest = np.where(x > 0, lowest, np.maximum(lowest, from_b))
        highest = np.where(x > 0, np.maximum(highest, to_b), highest)
    first, last = _stretched(lowest), -_stretched(highest)
    span = np.maximum(last - first, 0)
    return first + span * np.linspace(0, 1, NODES), span / (NODES - 1)


def _stretched(share: FloatArray) -> FloatArray:
    """Coordinate of a share of the range, doubly exponentially close to the ends."""
    return np.arcsinh(special.logit(np.clip(share, 1e-32, 1 - 1e-12)) / 2)


def _ranges(x: FloatArray, of: Contrast) -> tuple[_Range, _Range]:
    """Where a, and b that is x ahead of it, both lie between 0 and 1."""
    ahead, behind = np.maximum(x, 0), np.maximum(-x, 0)
    if of == "difference":
        length = 1 - np.abs(x)
        return _Range(behind, length, ahead), _Range(ahead, length, behind)
    if of == "log ratio":
        zero = np.zeros_like(x)
        return (
            _Range(zero, np.exp(-ahead), -np.expm1(-ahead)),
            _Range(zero, np.exp(-behind), -np.expm1(-behind)),
        )
    everything = _Range(np.zeros_like(x), np.ones_like(x), np.zeros_like(x))
    return everything, everything


def _log_density(
    right: FloatArray, wrong: FloatArray, p: FloatArray, not_p: FloatArray
) -> FloatArray:
    """Log density of a Beta variable."""
    kernel = special.xlogy(right - 1, p) + special.xlogy(wrong - 1, not_p)
    return kernel - special.betaln(right, wrong)


def _moments(tables: FloatArray, of: Contrast) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of a and of b, or of their logs, or log odds; both of shape (2, rows)."""
    right, wrong = tables[:, ::2].T, tables[:, 1::2].T
    n = right + wrong
    if of == "difference":
        return right / n, right * wrong / (n**2 * (n + 1))
    # A Beta variable is made of two independent gamma variables, right and wrong.
    if of == "log ratio":
        mean = special.digamma(right) - special.digamma(n)
        return mean, special.polygamma(1, right) - special.polygamma(1, n)
    mean = special.digamma(right) - special.digamma(wrong)
    return mean, special.polygamma(1, right) + special.polygamma(1, wrong)
