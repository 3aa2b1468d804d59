"""Contests as a probit regression: ratings, and an advantage of place, behind every answer.

A contest shows z = d + e, e standard normal, where d is the difference of two ratings, plus the
advantage of standing first where that is told. The first wins if z > δ and loses if z < -δ; between
lies a tie [GD60]_. Without ties δ is 0, Thurstone's model [Thu27]_.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg, sparse

from evalstats_plugin.errors import DesignError
from evalstats_plugin.ranking.contests.contests import Contests
from evalstats_plugin.ranking.thurstone.truncated import Slopes, log_ndtr, log_probability, slopes
from evalstats_plugin.stats.arrays import FloatArray, IntArray

Ties = Literal["threshold", "half", "drop"]


POSITION_SD = 1.0
"""Prior standard deviation of the advantage of standing first, in standard deviations of noise."""


class Prior(NamedTuple):
    """Normal, of P parameters: n ratings, and the advantage of place where there is one."""

    mean: FloatArray
    covariance: FloatArray


class Bounds(NamedTuple):
    """Between which the noisy difference lies, given the answer."""

    low: FloatArray
    high: FloatArray


@dataclass(frozen=True, eq=False, kw_only=True)
class Sites:
    """Answers about the same difference taken together, S of them."""

    design: Any
    """Sparse, shape (S, P): row times parameters is the difference."""
    wins: FloatArray
    """Weight of the answers that the difference is large, shape (S,)."""
    ties: FloatArray
    losses: FloatArray

    @property
    def count(self) -> FloatArray:
        """Weight of the answers, shape (S,)."""
        return self.wins + self.ties + self.losses

    def log_likelihood(self, difference: FloatArray, tie: float | FloatArray) -> FloatArray:
        """Of each site, at differences of shape (..., S)."""
        found = self.wins * log_ndtr(difference - tie) + self.losses * log_ndtr(-difference - tie)
        if self.ties.any():
            tied = log_probability(-tie - difference, tie - difference)
            found = found + self.ties * tied
        return found

    def slopes(self, difference: FloatArray, tie: float) -> Slopes:
        """Of each site's log-likelihood, at differences of shape (S,)."""
        parts = [(self.wins, 1), (self.losses, -1)]
        parts += [(self.ties, 0)] if self.ties.any() else []
        found = np.zeros((3, len(difference)))
        for weight, answer in parts:
            low, high = bounds(np.full(len(difference), answer), tie)
            found += weight * np.stack(slopes(low - difference, high - difference))
        return Slopes(*found)

    def single(self) -> FloatArray:
        """Answer of the sites that have exactly one, NaN for others; shape (S,)."""
        one = (self.count == 1) & (np.maximum(np.maximum(self.wins, self.losses), self.ties) == 1)
        return np.where(one, self.wins - self.losses, np.nan)

    def apart(self, prior: Prior) -> bool:
        """Whether the differences are independent a priori, so that none tells of another."""
        rows: FloatArray = self.design.toarray()
        between = rows @ prior.covariance @ rows.T
        return bool(np.allclose(between, np.diag(np.diagonal(between)), rtol=0, atol=1e-14))


class Answers(NamedTuple):
    """Answers one by one, C of them, weights repeated."""

    design: Any
    """Sparse, shape (C, P)."""
    answer: IntArray
    """1: the first won, 0: a tie, -1: the second won."""
    judge: IntArray | None = None


def bounds(answer: ArrayLike, tie: float | FloatArray) -> Bounds:
    """Bounds of the noisy differences behind answers 1, 0 and -1."""
    answer = np.asarray(answer)
    low = np.where(answer > 0, tie, np.where(answer < 0, -np.inf, -np.asarray(tie)))
    high = np.where(answer > 0, np.inf, np.where(answer < 0, -np.asarray(tie), tie))
    return Bounds(low, high)


def prior_of(mean: ArrayLike, covariance: ArrayLike, n: int, *, ordered: bool) -> Prior:
    """Check a prior of n ratings, and add the advantage of place where contests are ordered.

    Parameters
    ----------
    mean : a number, or shape (n,)
    covariance
        A variance, n variances, or shape (n, n).

    Raises
    ------
    DesignError
        Shapes other than these, numbers that are not finite, a matrix that is not symmetric and
        positive definite.
    """
    m, c = np.asarray(mean, dtype=np.float64), np.asarray(covariance, dtype=np.float64)
    if m.shape not in ((), (n,)) or c.shape not in ((), (n,), (n, n)):
        msg = (
            f"a prior with mean of shape {m.shape} and covariance of shape {c.shape} found, "
            f"expected a number or shape ({n},) each, or ({n}, {n}) for the covariance"
        )
        raise DesignError(msg)
    whole = c if c.ndim == 2 else np.diag(np.broadcast_to(c, (n,)))
    finite = bool(np.isfinite(m).all() and np.isfinite(whole).all())
    if not (finite and np.allclose(whole, whole.T) and _positive(whole)):
        msg = (
            "a prior that is not finite, symmetric and positive definite found, expected a "
            "variance above 0, or a covariance matrix of that kind"
        )
        raise DesignError(msg)
    extra = int(ordered)
    mean_of = np.concatenate([np.broadcast_to(m, (n,)), np.zeros(extra)])
    return Prior(mean_of, linalg.block_diag(whole, POSITION_SD**2 * np.eye(extra)))


def _positive(matrix: FloatArray) -> bool:
    try:
        np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return False
    return True


def without_empty(contests: Contests, ties: Ties) -> Contests:
    """Contests of weight above 0, and without ties where these are dropped."""
    keep = contests.weight > 0
    return contests.take(keep & ~contests.tied if ties == "drop" else keep)


def sites_of(contests: Contests, ties: Ties) -> Sites:
    """Count the answers about each pair, and each order where that is told.

    Outcomes between 0 and 1, and ties taken as half, count as shares of a win and a loss.
    """
    i, j, y = contests.first, contests.second, contests.outcome
    n = len(contests.players)
    turn = np.zeros(len(i), dtype=np.bool_) if contests.ordered else i > j
    first, second = np.where(turn, j, i), np.where(turn, i, j)
    y, tied = np.where(turn, 1 - y, y), contests.tied & (ties == "threshold")
    pairs, site = np.unique(first * n + second, return_inverse=True)
    weights = [np.where(tied, 0, y), tied, np.where(tied, 0, 1 - y)]
    wins, ties_, losses = (
        np.bincount(site, contests.weight * w, len(pairs)).astype(np.float64) for w in weights
    )
    design = differences(pairs // n, pairs % n, n, ordered=contests.ordered)
    return Sites(design=design, wins=wins, ties=ties_, losses=losses)


def answers_of(contests: Contests, ties: Ties = "threshold") -> Answers:
    """Take the answers one by one.

    Raises
    ------
    DesignError
        Outcomes other than 1, 0 and ½, or ½ where it is not a tie of its own, or weights that are
        no whole numbers.
    """
    outcome, weight = contests.outcome, contests.weight
    whole = (0.0, 1.0) if ties == "half" else (0.0, 0.5, 1.0)
    if not (np.isin(outcome, whole).all() and (weight == np.round(weight)).all()):
        msg = (
            "outcomes that are shares of a win, or weights that are no whole numbers, found: noisy "
            "differences are of whole answers; take estimator='ep', 'hmc' or 'laplace'"
        )
        raise DesignError(msg)
    times = weight.astype(np.int64)
    n = len(contests.players)
    design = differences(contests.first, contests.second, n, ordered=contests.ordered)
    which = np.repeat(np.arange(len(contests)), times)
    answer = np.sign(2 * outcome - 1).astype(np.int64)[which]
    judge = None if contests.judge is None else contests.judge[which]
    return Answers(design[which], answer, judge)


def variances(design: Any, covariance: FloatArray) -> FloatArray:
    """Variance of each row times the parameters, shape (C,); rows have equally many entries."""
    where, value = entries(design), design.data.reshape(design.shape[0], -1 if design.nnz else 2)
    between = covariance[where[:, :, None], where[:, None, :]]
    return np.einsum("ca,cb,cab->c", value, value, between)


def entries(design: Any) -> IntArray:
    """Columns that each row has entries in, equally many; the first two are the players."""
    return design.indices.reshape(design.shape[0], -1 if design.nnz else 2)


class Inverse(NamedTuple):
    """Of a symmetric positive definite matrix."""

    inverse: FloatArray
    log_determinant: float
    """Of the matrix itself."""


def inverse_of(matrix: FloatArray) -> Inverse:
    """Invert a symmetric positive definite matrix by its Cholesky factor."""
    factor: Any = linalg.cho_factor(matrix, lower=True)
    inverse = cast("FloatArray", linalg.cho_solve(factor, np.eye(len(matrix))))
    return Inverse(inverse, 2 * float(np.log(np.diagonal(factor[0])).sum()))


def cholesky(matrix: FloatArray) -> FloatArray:
    """Lower factor of a positive definite matrix that rounding may have made unsymmetric."""
    return np.linalg.cholesky((matrix + matrix.T) / 2).astype(np.float64)


def information(design: Any, weight: FloatArray) -> FloatArray:
    """Rows' outer products summed by weight, shape (P, P)."""
    return (design.T @ (design * weight[:, None])).toarray()


def differences(first: IntArray, second: IntArray, n: int, *, ordered: bool) -> Any:
    """Rows of +1 for the first and -1 for the second, and +1 for the place; shape (C, P)."""
    columns = [first, second] + ([np.full(len(first), n)] if ordered else [])
    values = np.broadcast_to([1.0, -1.0, 1.0][: len(columns)], (len(first), len(columns)))
    starts = np.arange(0, len(columns) * len(first) + 1, len(columns))
    shape = (len(first), n + int(ordered))
    where = np.stack(columns, axis=1).ravel()
    return cast("Any", sparse.csr_array((values.ravel(), where, starts), shape=shape))
