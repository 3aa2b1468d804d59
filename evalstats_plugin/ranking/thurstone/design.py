"""Contests as a probit regression, and normal priors of its parameters.

A contest shows z = d + e, with e standard normal and d the difference of two ratings, plus a
position effect if the order is known. The first wins if z > δ and loses if z < -δ; in between is a
tie [GD60]_. Without ties δ is 0, Thurstone's model [Thu27]_.

`Sites` count the answers of each pair. `slopes` are the log probability that z is between two
bounds, and its derivatives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg, sparse, special

from evalstats_plugin.errors import DesignError
from evalstats_plugin.ranking.contests.contests import Contests
from evalstats_plugin.stats.arrays import FloatArray, IntArray

LOG_ROOT_2PI = 0.5 * np.log(2 * np.pi)

Ties = Literal["threshold", "half", "drop"]
POSITION_SD = 1.0
"""Prior standard deviation of the position effect, in standard deviations of the noise."""
MOST_ANSWERS = 1e7
"""Largest weight of the answers about a pair; beyond, they hide the prior and δ by rounding."""


def log_ndtr(x: FloatArray) -> FloatArray:
    """Log Φ(x), by the logarithm of Φ where that does not underflow: a third of the time."""
    near = np.maximum(x, -37.0)
    value: FloatArray = np.log(special.ndtr(near))
    far = x < near
    return np.where(far, special.log_ndtr(x), value) if np.any(far) else value


def log_probability(low: FloatArray, high: FloatArray) -> FloatArray:
    """log(Φ(high) - Φ(low)) for low < high, accurate in the tails; bounds may be infinite."""
    # Mirrored into the lower tail, where Φ is accurate.
    flip = low > -high
    a, b = np.where(flip, -high, low), np.where(flip, -low, high)
    log_b = log_ndtr(b)
    return log_b + np.log(-np.expm1(log_ndtr(a) - log_b))


class Slopes(NamedTuple):
    """log P(low < d + e < high), e standard normal, and its derivatives in d."""

    log_probability: FloatArray
    first: FloatArray
    second: FloatArray
    """Never above 0, as the logarithm is concave."""


def slopes(low: FloatArray, high: FloatArray) -> Slopes:
    """Log probability of a standard normal between low and high, and derivatives as both fall."""
    log_p = log_probability(low, high)
    at_low, at_high = (np.exp(-0.5 * x * x - LOG_ROOT_2PI - log_p) for x in (low, high))
    first = at_low - at_high
    # Infinite bounds contribute nothing.
    bent = np.where(np.isfinite(low), low, 0) * at_low
    bent -= np.where(np.isfinite(high), high, 0) * at_high
    return Slopes(log_p, first, bent - first * first)


@dataclass(frozen=True, eq=False, kw_only=True)
class Sites:
    """S sites: the answers about the same difference, counted."""

    design: Any
    """Sparse, shape (S, P); its rows times the parameters are the differences d."""
    wins: FloatArray
    """Weight of the first's wins, shape (S,)."""
    ties: FloatArray
    losses: FloatArray

    @property
    def count(self) -> FloatArray:
        """Total weight of the answers, shape (S,)."""
        return self.wins + self.ties + self.losses

    def log_likelihood(self, difference: FloatArray, tie: float | FloatArray) -> FloatArray:
        """Log-likelihood of each site, at differences of shape (..., S)."""
        total = self.wins * log_ndtr(difference - tie) + self.losses * log_ndtr(-difference - tie)
        if self.ties.any():
            tied = log_probability(-tie - difference, tie - difference)
            total = total + self.ties * tied
        return total

    def slopes(self, difference: FloatArray, tie: float) -> Slopes:
        """Derivatives of each site's log-likelihood, at differences of shape (..., S)."""
        total = np.zeros((3, *difference.shape))
        for weight, sign in ((self.wins, 1.0), (self.losses, -1.0)):
            use = np.flatnonzero(weight)
            if len(use):
                at = sign * difference[..., use] - tie
                log_p = log_ndtr(at)
                ratio = np.exp(-0.5 * at * at - LOG_ROOT_2PI - log_p)
                total[0][..., use] += weight[use] * log_p
                total[1][..., use] += sign * weight[use] * ratio
                total[2][..., use] -= weight[use] * ratio * (at + ratio)
        use = np.flatnonzero(self.ties)
        if len(use):
            at = difference[..., use]
            total[..., use] += self.ties[use] * np.stack(slopes(-tie - at, tie - at))
        return Slopes(total[0], total[1], total[2])

    def single(self) -> FloatArray:
        """Answer of sites with exactly one answer, NaN for others; shape (S,)."""
        is_single = (self.count == 1) & (
            np.maximum(np.maximum(self.wins, self.losses), self.ties) == 1
        )
        return np.where(is_single, self.wins - self.losses, np.nan)


class AnswerCounts:
    """Wins, ties and losses of the pairs of n players, counted answer by answer.

    Parameters
    ----------
    players
        Number of players n.
    ordered
        Whether the first of a pair was really shown first, so that there is a position effect.
    """

    def __init__(self, players: int, *, ordered: bool) -> None:
        self.players, self.ordered = players, ordered
        self._place: dict[tuple[int, int], int] = {}
        self._ends: IntArray = np.zeros((1024, 2), dtype=np.int64)
        self._counts: FloatArray = np.zeros((1024, 3))

    def record(self, i: int, j: int, outcome: float, weight: float = 1.0) -> None:
        """Count an answer: 1 if i won, 0 if j won, ½ for a tie; a negative weight takes it back.

        Raises
        ------
        DesignError
            A player against itself or outside the list, an outcome outside [0, 1], or no such
            answer to take back.
        """
        n = self.players
        if i == j or not (min(i, j) >= 0 and max(i, j) < n and 0 <= outcome <= 1):
            raise DesignError(
                f"no answer: players {i} and {j} with outcome {outcome}. Give two different places "
                f"from 0 to {n - 1} and an outcome from 0 to 1"
            )
        if i > j and not self.ordered:
            i, j, outcome = j, i, 1 - outcome
        tied = outcome == 0.5
        share = np.array([0.0 if tied else outcome, float(tied), 0.0 if tied else 1 - outcome])
        k = self._place.get((i, j), len(self._place))
        if k == len(self._ends):
            self._ends = np.concatenate([self._ends, np.zeros_like(self._ends)])
            self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
        counts = self._counts[k] + weight * share
        if (counts < -1e-9).any():
            raise DesignError(f"there is no such answer about players {i} and {j} to take back")
        if k == len(self._place):
            self._place[i, j] = k
            self._ends[k] = i, j
            self._met(k, i, j)
        self._counts[k] = np.maximum(counts, 0)

    def _met(self, k: int, i: int, j: int) -> None:
        """Note that pair k is new."""

    def _recorded(self) -> tuple[IntArray, FloatArray]:
        """Pairs (S, 2) and their wins, ties and losses (S, 3)."""
        m = len(self._place)
        return self._ends[:m], self._counts[:m]


def sites_of(contests: Contests, ties: Ties) -> Sites:
    """Count the answers about each pair, in each order if the order is known.

    Outcomes between 0 and 1, and ties counted as half, are shares of a win and a loss.

    Raises
    ------
    DesignError
        Answers about a pair weigh more than `MOST_ANSWERS`.
    """
    n = len(contests.players)
    first, second, y = contests.in_order(ordered=contests.ordered)
    tied = contests.tied & (ties == "threshold")
    pairs, site = np.unique(first * n + second, return_inverse=True)
    weights = [np.where(tied, 0, y), tied, np.where(tied, 0, 1 - y)]
    wins, ties_, losses = (
        np.bincount(site, contests.weight * w, len(pairs)).astype(np.float64) for w in weights
    )
    design = difference_rows(pairs // n, pairs % n, n, ordered=contests.ordered)
    sites = Sites(design=design, wins=wins, ties=ties_, losses=losses)
    most = sites.count.max(initial=0.0)
    if most > MOST_ANSWERS:
        msg = f"answers about one pair weigh {most:g}, more than thurstone takes ({MOST_ANSWERS:g})"
        raise DesignError(f"{msg}: divide all weights by one number, or take bradley-terry")
    return sites


def difference_rows(first: IntArray, second: IntArray, n: int, *, ordered: bool) -> Any:
    """Sparse rows with 1 for the first, -1 for the second, and 1 for the position; (C, P)."""
    columns = [first, second] + ([np.full(len(first), n)] if ordered else [])
    values = np.broadcast_to([1.0, -1.0, 1.0][: len(columns)], (len(first), len(columns)))
    starts = np.arange(0, len(columns) * len(first) + 1, len(columns))
    shape = (len(first), n + int(ordered))
    where = np.stack(columns, axis=1).ravel()
    return cast("Any", sparse.csr_array((values.ravel(), where, starts), shape=shape))


def bounds(answer: ArrayLike, tie: float) -> tuple[FloatArray, FloatArray]:
    """Bounds of the noisy differences behind answers 1, 0 and -1."""
    answer = np.asarray(answer)
    low = np.where(answer > 0, tie, np.where(answer < 0, -np.inf, -tie))
    return low, np.where(answer > 0, np.inf, np.where(answer < 0, -tie, tie))


class Prior(NamedTuple):
    """Normal prior of P parameters: n ratings, and the position effect if the order is known."""

    mean: FloatArray
    covariance: FloatArray


def prior_of(mean: ArrayLike, covariance: ArrayLike, n: int, *, ordered: bool) -> Prior:
    """Check a prior of n ratings, and add the position effect if contests are ordered.

    Parameters
    ----------
    mean : a number, or shape (n,)
    covariance
        A variance, n variances, or shape (n, n).

    Raises
    ------
    DesignError
        Other shapes, numbers that are not finite, or a matrix that is not symmetric and positive
        definite.
    """
    m, c = np.asarray(mean, dtype=np.float64), np.asarray(covariance, dtype=np.float64)
    if m.shape not in ((), (n,)) or c.shape not in ((), (n,), (n, n)):
        raise DesignError(
            f"the prior has a mean of shape {m.shape} and a covariance of shape {c.shape}: give a "
            f"number or shape ({n},) each, or ({n}, {n}) for the covariance"
        )
    whole = c if c.ndim == 2 else np.diag(np.broadcast_to(c, (n,)))
    finite = np.isfinite(m).all() and np.isfinite(whole).all() and np.allclose(whole, whole.T)
    if not (finite and np.linalg.eigvalsh(whole)[0] > 1e-12 * np.abs(whole).max()):
        raise DesignError(
            "the prior is not finite, symmetric and positive definite: give a variance above 0, or "
            "a covariance matrix of that kind"
        )
    extra = int(ordered)
    mean_of = np.concatenate([np.broadcast_to(m, (n,)), np.zeros(extra)])
    return Prior(mean_of, linalg.block_diag(whole, POSITION_SD**2 * np.eye(extra)))


def variances(design: Any, covariance: FloatArray) -> FloatArray:
    """Variance of each row times the parameters, shape (C,)."""
    where, value = entries(design), design.data.reshape(design.shape[0], -1 if design.nnz else 2)
    between = covariance[where[:, :, None], where[:, None, :]]
    return np.einsum("ca,cb,cab->c", value, value, between)


def entries(design: Any) -> IntArray:
    """Column indices of each row's entries, equally many; the first two are the players."""
    return design.indices.reshape(design.shape[0], -1 if design.nnz else 2)


def information(design: Any, weight: FloatArray) -> FloatArray:
    """Weighted sum of the rows' outer products, shape (P, P)."""
    return (design.T @ (design * weight[:, None])).toarray()


class Inverse(NamedTuple):
    """Inverse of a symmetric positive definite matrix."""

    inverse: FloatArray
    log_determinant: float
    """Log determinant of the matrix itself."""


def inverse_of(matrix: FloatArray) -> Inverse:
    """Invert a symmetric positive definite matrix by its Cholesky factor."""
    factor: Any = linalg.cho_factor(matrix, lower=True)
    inverse = cast("FloatArray", linalg.cho_solve(factor, np.eye(len(matrix))))
    return Inverse(inverse, 2 * float(np.log(np.diagonal(factor[0])).sum()))
