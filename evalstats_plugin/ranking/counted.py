"""Contests counted: what does not differ counts as one, however many contests there are.

A *cell* is a pair of players, with the place of each and the features where these matter: all
contests of a cell have the same chances. A *row* is a cell with an outcome and a weight: what a
bootstrap draws, with how often it was seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.ranking.contest_codes import Codes, Rows, rows_of
from evalstats_plugin.ranking.contests import Contests, FloatArray, IntArray, extremes
from evalstats_plugin.ranking.ties import WITH_TIES, TieModel, Weights, weights_of
from evalstats_plugin.wording import few, no_such


@dataclass(frozen=True, eq=False, kw_only=True)
class Design:
    """How the log odds of K cells come from n ratings, Q coefficients and the tie parameter."""

    n: int
    first: IntArray
    """Shape (K,)."""
    second: IntArray
    extra: FloatArray
    """1 for the advantage of place, then the features; shape (K, Q)."""
    names: tuple[str, ...]
    """Of the Q coefficients and, in the end, of the tie parameter, where there is one."""
    ties: TieModel

    @property
    def size(self) -> int:
        """Number of parameters p: ratings, coefficients, tie parameter."""
        return self.n + len(self.names)

    @property
    def with_ties(self) -> bool:
        """Whether there is a tie parameter; it is the last one."""
        return self.ties in WITH_TIES

    def ahead(self, parameters: FloatArray) -> FloatArray:
        """Log odds of the first, shape (K, B), of parameters (p, B)."""
        x = self.against @ parameters[: self.n]
        q = self.extra.shape[1]
        return x + self.extra @ parameters[self.n : self.n + q] if q else x

    def tie(self, parameters: FloatArray) -> FloatArray:
        """Return the tie parameters, shape (1, B); 0 where there is none."""
        return parameters[-1:] if self.with_ties else np.zeros((1, parameters.shape[1]))

    def summed(self, by_x: FloatArray, by_tie: FloatArray) -> FloatArray:
        """Turn derivatives by cell, shape (K, B), into those by parameter, (p, B)."""
        parts = [self.against.T @ by_x, self.extra.T @ by_x]
        if self.with_ties:
            parts.append(by_tie.sum(axis=0, keepdims=True))
        return np.concatenate(parts)

    def outer(self, xx: FloatArray, x_tie: FloatArray, tie_tie: FloatArray) -> FloatArray:
        """Sum over cells of what is quadratic in the parameters: (K, B) to (B, p, p)."""
        n, q, size = self.n, self.extra.shape[1], self.size
        i, j, gather = self._pairs
        out = np.zeros((xx.shape[1], size, size))
        out[:, i, j] = out[:, j, i] = -(gather @ xx).T
        own = np.arange(n)
        out[:, own, own] = -out[:, :n, :n].sum(axis=2)
        for k in range(q):
            with_ratings = (self.against.T @ (xx * self.extra[:, k, None])).T
            out[:, :n, n + k] = out[:, n + k, :n] = with_ratings
            with_others = ((xx * self.extra[:, k, None]).T) @ self.extra
            out[:, n + k, n : n + q] = with_others
        if self.with_ties:
            out[:, -1, :-1] = out[:, :-1, -1] = self.summed(x_tie, x_tie)[:-1].T
            out[:, -1, -1] = tie_tie.sum(axis=0)
        return out

    @cached_property
    def against(self) -> Any:
        """Sparse (K, n): 1 for the first, -1 for the second."""
        cells = len(self.first)
        signs = np.tile([1.0, -1.0], cells)
        players = np.stack([self.first, self.second], axis=1).ravel()
        return sparse.csr_array((signs, players, np.arange(0, 2 * cells + 1, 2)), (cells, self.n))

    @cached_property
    def _pairs(self) -> tuple[IntArray, IntArray, Any]:
        """Pairs i < j of players that met, and the cells of each, sparse (pairs, K)."""
        low, high = np.minimum(self.first, self.second), np.maximum(self.first, self.second)
        code = low * self.n + high
        place = np.arange(len(code))
        if (np.diff(code) <= 0).any():
            code, place = np.unique(code, return_inverse=True)
        shape, ones = (len(code), len(place)), np.ones(len(place))
        gather = sparse.csr_array((ones, (place, np.arange(len(place)))), shape)
        return code // self.n, code % self.n, gather


@dataclass(frozen=True, eq=False, kw_only=True)
class Counted:
    """Contests, the same ones counted."""

    contests: Contests
    """Without ties where these are dropped, and without those of weight 0."""
    design: Design
    rows: Rows
    cell: IntArray
    """Of each row, shape (R,)."""
    each: Weights
    """Wins, ties and losses of one contest of each row, shape (R,)."""
    codes: Codes | None
    """None where every contest is a row."""

    @property
    def count(self) -> FloatArray:
        """How many contests each row stands for, shape (R,)."""
        return self.rows.times

    @cached_property
    def row(self) -> IntArray:
        """Of each contest, shape (C,)."""
        return np.arange(len(self.contests)) if self.codes is None else self.codes.rows()

    @property
    def reduced(self) -> Contests:
        """One contest a row, of the weight of all: who won against whom is the same."""
        rows = self.rows
        return Contests(
            players=self.contests.players,
            first=rows.first,
            second=rows.second,
            outcome=rows.outcome,
            weight=rows.weight * rows.times,
        )

    def weights(self, counts: FloatArray | None = None) -> Weights:
        """Wins, ties and losses of each cell, shape (K, B), of rows seen so often, (R, B)."""
        if counts is not None:
            return Weights(*(each @ counts for each in self._gather))
        cells = len(self.design.first)
        summed = (np.bincount(self.cell, each * self.count, cells) for each in self.each)
        return Weights(*(each.astype(np.float64)[:, None] for each in summed))

    @cached_property
    def _gather(self) -> tuple[Any, ...]:
        """Wins, ties and losses of the rows of each cell, each sparse (K, R)."""
        shape = (len(self.design.first), len(self.cell))
        gather: list[Any] = []
        for each in self.each:
            kept = np.flatnonzero(each)
            # Rows of a cell are next to each other.
            ends = np.searchsorted(self.cell[kept], np.arange(shape[0] + 1))
            gather.append(sparse.csr_array((each[kept], kept, ends), shape))
        return tuple(gather)

    def groups(self, of: str) -> Any:
        """How often each row was seen in each cluster or of each judge, sparse (G, R).

        Raises
        ------
        DesignError
            The contests have none, or only one.
        """
        found = {"cluster": self.contests.cluster, "judge": self.contests.judge}[of]
        if found is None:
            msg = f"the comparisons have no {of}: name its column, or take covariance='sandwich'"
            raise DesignError(msg)
        group = numbered(found)
        if group.max() == 0:
            msg = f"all comparisons have one {of}, expected at least 2 to tell how they differ"
            raise DesignError(msg)
        shape = (int(group.max()) + 1, len(self.cell))
        ones = np.ones(len(group))
        return sparse.csr_array((ones, (group, self.row)), shape)


def counted(
    contests: Contests, ties: TieModel, *, position: bool = False, features: Sequence[str] = ()
) -> Counted:
    """Count contests by what their chances depend on.

    Raises
    ------
    DesignError
        Nothing is left to count, there is no order, features are not finite, or outcomes are
        shares where wins, ties and losses are needed.
    SelectionError
        A feature has another name.
    """
    contests.check()
    if extremes(contests.weight)[0] == 0:
        contests = contests.take(contests.weight > 0)
    if ties == "drop":
        contests = contests.take(~contests.tied)
    if not len(contests):
        msg = "nothing to fit: all comparisons are ties" if ties == "drop" else "all weights are 0"
        raise DesignError(msg)
    if features:
        # What differs from contest to contest cannot be counted.
        each = (contests.first, contests.second, contests.outcome, contests.weight)
        rows, codes = Rows(*each, np.ones(len(contests))), None
        first_of = cell = np.arange(len(contests))
    else:
        rows, codes = rows_of(contests, ordered=position)
        fresh = np.r_[True, (np.diff(rows.first) != 0) | (np.diff(rows.second) != 0)]
        first_of, cell = np.flatnonzero(fresh), np.cumsum(fresh) - 1
    extra, names = _extra(contests, len(first_of), position=position, features=features)
    if ties in WITH_TIES:
        if not np.isin(rows.outcome, (0.0, 0.5, 1.0)).all():
            contests.wins_and_ties()  # says what was found
        names = (*names, "tie")
    n, first, second = len(contests.players), rows.first[first_of], rows.second[first_of]
    design = Design(n=n, first=first, second=second, extra=extra, names=names, ties=ties)
    each = weights_of(ties, rows.outcome, rows.weight)
    return Counted(contests=contests, design=design, rows=rows, cell=cell, each=each, codes=codes)


def _extra(
    contests: Contests, cells: int, *, position: bool, features: Sequence[str]
) -> tuple[FloatArray, tuple[str, ...]]:
    """What the log odds depend on besides ratings, shape (K, Q), and its names."""
    columns: list[FloatArray] = []
    if position:
        if not contests.ordered:
            msg = "an advantage of place needs to know who was shown first, found no such order"
            raise DesignError(msg)
        columns.append(np.ones(cells))
    known = contests.feature_names
    for name in features:
        if name not in known or contests.features is None:
            shown = few(known) or "none"
            raise SelectionError(no_such("feature", name, known, shown))
        values = contests.features[:, known.index(name)]
        bad = int((~np.isfinite(values)).sum())
        if bad:
            msg = f"feature {name!r} is not a finite number in {bad} of {len(values)} comparisons"
            raise DesignError(msg)
        columns.append(values)
    names = (*(("position",) if position else ()), *features)
    return np.array(columns).reshape(len(columns), cells).T.copy(), names


def numbered(values: IntArray) -> IntArray:
    """Number what is there from 0, in order; shape as given."""
    if values.min() < 0 or values.max() > 4 * len(values):
        return np.unique(values, return_inverse=True)[1].astype(np.int64)
    there = np.bincount(values) > 0
    return (np.cumsum(there) - 1)[values]
