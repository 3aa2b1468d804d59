"""What rankings are fitted to: who was compared with whom, and who won."""
# PART contest_codes - Contests as whole numbers, so that those that do not differ are counted in one pass.
# PART pair_table - How the contests of each pair ended, in one pass that also finds out whether they are contests.
# PART counted - Contests counted: what does not differ counts as one, however many contests there are.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse import csgraph

from evalstats_plugin.errors import DesignError, SelectionError, few, no_such
from evalstats_plugin.ranking.contests.outcomes import WITH_TIES, TieModel, Weights, weights_of
from evalstats_plugin.stats.arrays import FloatArray, IntArray

if TYPE_CHECKING:
    import pandas as pd


_SMALL, _LARGE = 2**16, 2**24
"""Codes that are always counted in a table, and those that are always sorted."""


_MOST = 2**63 - 1
"""Codes that there are numbers for."""


ENDS = (0.0, 0.5, 1.0)
"""Outcomes of a loss, a tie and a win of the first, in the order of the table."""


BLOCK = 2**15
"""Contests taken together: what is made of them stays in the cache."""


FEATURE = "feature:"
"""Start of the names of columns that hold a feature, in files we write."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Contests:
    """C contests between two of n players: models, answers, or whatever is ranked.

    Arrays of one entry per contest. ``first`` is the one that stood first or left, where that is
    known; ``outcome`` is 1 where it won, 0 where the second won, ½ for a tie, and may be any share
    between. Judges and clusters are numbered from 0 and named in `judges` and `clusters`.
    """

    players: tuple[str, ...]
    first: IntArray
    """Place in `players`, shape (C,)."""
    second: IntArray
    outcome: FloatArray
    weight: FloatArray
    judge: IntArray | None = None
    judges: tuple[str, ...] = ()
    cluster: IntArray | None = None
    """Contests that stand or fall together: those of one prompt or item."""
    clusters: tuple[str, ...] = ()
    ordered: bool = False
    """Whether ``first`` was really shown first, so that an advantage of place can be told."""
    features: FloatArray | None = None
    """Of the first less those of the second, such as the length of the answer; shape (C, P)."""
    feature_names: tuple[str, ...] = ()
    time: NDArray[np.object_] | None = None
    """When each was decided, as it was written down, "" where it was not; shape (C,)."""
    notes: tuple[str, ...] = field(default=())

    @classmethod
    def of(
        cls,
        first: ArrayLike,
        second: ArrayLike,
        outcome: ArrayLike,
        *,
        players: Sequence[str] | int | None = None,
        weight: ArrayLike | None = None,
        ordered: bool = False,
    ) -> Contests:
        """Make contests from places in a list of players, and check them.

        Parameters
        ----------
        first, second : shape (C,)
            Places in ``players``.
        outcome : shape (C,), in [0, 1]
        players
            Names, or their number (default: as many as appear).
        weight : shape (C,)
            Default: 1 each.

        Raises
        ------
        DesignError
            No contests; a player against itself; outcomes outside [0, 1]; weights below 0.
        """
        i = np.atleast_1d(np.asarray(first, dtype=np.int64))
        j = np.atleast_1d(np.asarray(second, dtype=np.int64))
        y = np.broadcast_to(np.asarray(outcome, dtype=np.float64), i.shape)
        w = np.broadcast_to(np.asarray(1.0 if weight is None else weight, float), i.shape)
        if players is None:
            players = int(max(i.max(initial=-1), j.max(initial=-1))) + 1
        if isinstance(players, int):
            players = [f"player_{k}" for k in range(players)]
        found = cls(players=tuple(players), first=i, second=j, outcome=y, weight=w, ordered=ordered)
        found.check()
        return found

    def check(self) -> None:
        """Raise `DesignError` where these are no contests."""
        if not len(self):
            msg = "no comparisons found, expected at least one: a winner and a loser, or a tie"
            raise DesignError(msg)
        if len({len(x) for x in (self.first, self.second, self.outcome, self.weight)}) > 1:
            msg = (
                f"{len(self.first)} first players, {len(self.second)} second players, "
                f"{len(self.outcome)} outcomes and {len(self.weight)} weights found, expected one "
                "of each for every comparison"
            )
            raise DesignError(msg)
        if self.ends is None:
            self._check_each()
        least, most = extremes(self.weight)
        if not (least >= 0 and most < np.inf):
            msg = "weights below 0 or not finite found, expected numbers ≥ 0"
            raise DesignError(msg)

    def _check_each(self) -> None:
        n = len(self.players)
        if outside(self.first, n) or outside(self.second, n):
            msg = f"a place outside the list of {n} players found"
            raise DesignError(msg)
        same = self.first == self.second
        if same.any():
            alone = np.flatnonzero(same)
            names = few([self.players[int(k)] for k in np.unique(self.first[alone])])
            msg = (
                f"{len(alone)} comparisons of {names} with itself found (the first is number "
                f"{alone[0] + 1}), expected two different players: remove them"
            )
            raise DesignError(msg)
        # Of NaN the least and the most are NaN, too.
        least, most = extremes(self.outcome)
        if not (least >= 0 and most <= 1):
            msg = "outcomes outside [0, 1] found, expected 1 for the first, 0 for the second, .5"
            raise DesignError(msg)

    def __len__(self) -> int:
        return len(self.first)

    @cached_property
    def ends(self) -> IntArray | None:
        """How often the first lost to, tied with and beat the second, where all are many.

        Shape (n, n, 3), whatever the weights; None as `pair_table` has it.
        """
        return pair_table(self.first, self.second, self.outcome, len(self.players))

    @cached_property
    def won_tied_or_lost(self) -> bool:
        """Whether all ended so; else some outcomes are shares."""
        return self.ends is not None or bool(np.isin(self.outcome, ENDS).all())

    @property
    def tied(self) -> NDArray[np.bool_]:
        """Whether each ended in a tie, shape (C,)."""
        return self.outcome == 0.5

    def take(self, which: ArrayLike) -> Contests:
        """Return some of the contests, by place or by a mask; players stay."""
        keep = np.asarray(which)
        if keep.dtype == np.bool_:
            if len(keep) == len(self) and keep.all():
                return self
            keep = np.flatnonzero(keep)
        fields = ("first", "second", "outcome", "weight", "judge", "cluster", "features", "time")
        there = {name: getattr(self, name) for name in fields}
        return replace(self, **{k: v[keep] for k, v in there.items() if v is not None})

    def to_frame(self) -> pd.DataFrame:
        """One contest a row, under the names that `files.read_contests` knows."""
        return to_frame(self)

    def wins(self) -> FloatArray:
        """Weight with which i won against j, ties half to each; shape (n, n)."""
        won = self._summed(self.weight * self.outcome)
        return won + self._summed(self.weight * (1 - self.outcome)).T

    def wins_and_ties(self) -> tuple[FloatArray, FloatArray]:
        """Weight of i's wins against j, and of their ties (symmetric); shapes (n, n).

        Raises
        ------
        DesignError
            Outcomes other than 1, 0 and ½: these are no wins, losses or ties.
        """
        if not self.won_tied_or_lost:
            msg = "outcomes between 0, ½ and 1 found: a model of ties needs wins, losses and ties"
            raise DesignError(msg)
        ties = self._summed(self.weight * self.tied)
        ties = ties + ties.T
        return self.wins() - ties / 2, ties

    def _summed(self, values: FloatArray) -> FloatArray:
        """Sum over the contests of first against second, shape (n, n)."""
        n = len(self.players)
        cells = self.first * n + self.second
        return np.bincount(cells, values, n * n).astype(np.float64).reshape(n, n)

    def components(self) -> IntArray:
        """Number of the connected group of each player, those never compared alone; shape (n,)."""
        n = len(self.players)
        told = self.weight > 0
        graph = sparse.coo_array(
            (np.ones(int(told.sum())), (self.first[told], self.second[told])), shape=(n, n)
        )
        return csgraph.connected_components(graph, directed=False)[1].astype(np.int64)

    def apart(self) -> str:
        """Name the groups of players that no chain of contests connects, "" where all are one."""
        part = self.components()
        sizes = np.bincount(part)
        if len(sizes) < 2:
            return ""
        names = np.array(self.players, dtype=object)
        alone = [str(name) for name in names[sizes[part] == 1]]
        large = [k for k in np.argsort(-sizes, kind="stable") if sizes[k] > 1]
        groups = [f"({few([str(name) for name in names[part == k]])})" for k in large]
        what = [f"never compared with another: {few(alone)}"] if alone else []
        if len(groups) > 1:
            what.append(f"no comparison connects {few(groups)}")
        return "; ".join(what)

    def strong_components(self) -> IntArray:
        """Groups within which every player beat every other by some way round; shape (n,).

        With one group the maximum likelihood is finite [Ford57]_.
        """
        n, beat = len(self.players), self.wins() > 0
        # Where many met often, each is one or two steps of a win and a loss from the first.
        both = beat & beat.T
        near = both[both[0]].any(axis=0)
        if (both[near].any(axis=0) | near).all():
            return np.zeros(n, dtype=np.int64)
        won, lost = np.nonzero(beat)
        graph = sparse.coo_array((np.ones(len(won)), (won, lost)), shape=(n, n))
        found = csgraph.connected_components(graph, directed=True, connection="strong")[1]
        return found.astype(np.int64)


def extremes(values: FloatArray) -> tuple[float, float]:
    """Return the least and the greatest; of one number that stands for all, without a look at all.

    NaN where there are any.
    """
    told = values[:1] if values.strides == (0,) else values
    return float(told.min()), float(told.max())


class Rows(NamedTuple):
    """What differs among contests, in the order of codes; arrays of shape (R,)."""

    first: IntArray
    second: IntArray
    outcome: FloatArray
    weight: FloatArray
    """Of one contest."""
    times: FloatArray
    """How many contests are so."""


class _Kinds(NamedTuple):
    """What numbers there are, and which of them each contest has."""

    distinct: FloatArray
    """The least first."""
    values: FloatArray
    """Of the contests, shape (C,)."""
    place: IntArray | None = None
    """Of the values in `distinct`; None where that is quicker to find than to keep."""

    def of(self, part: slice) -> IntArray:
        """Place of some of the contests."""
        if self.place is not None:
            return self.place[part]
        return (2 * self.values[part]).astype(np.int64)


class _Coding(NamedTuple):
    """What may differ among contests."""

    contests: Contests
    outcome: _Kinds
    weight: _Kinds

    @property
    def size(self) -> int:
        """How many codes there may be."""
        kinds = len(self.outcome.distinct) * len(self.weight.distinct)
        return len(self.contests.players) ** 2 * kinds

    @property
    def in_table(self) -> bool:
        """Whether codes are counted in a table; else they are sorted."""
        return self.size <= min(max(_SMALL, 8 * len(self.contests)), _LARGE)

    def code(self, part: slice) -> IntArray:
        """Of some of the contests."""
        code = self.contests.first[part] * len(self.contests.players)
        code += self.contests.second[part]
        for kinds in (self.outcome, self.weight):
            if len(kinds.distinct) > 1:
                code *= len(kinds.distinct)
                code += kinds.of(part)
        return code

    def split(self, code: IntArray) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """First, second, and places of outcome and weight."""
        rest, weight = code, np.broadcast_to(np.int64(0), code.shape)
        if len(self.weight.distinct) > 1:
            rest, weight = np.divmod(code, len(self.weight.distinct))
        rest, outcome = np.divmod(rest, len(self.outcome.distinct))
        return *np.divmod(rest, len(self.contests.players)), outcome, weight

    def read(self, code: IntArray, count: IntArray) -> Rows:
        """Return what codes stand for."""
        first, second, outcome, weight = self.split(code)
        every = self.weight.distinct
        one = len(every) == 1
        each = np.broadcast_to(every[0], code.shape) if one else every[weight]
        return Rows(first, second, self.outcome.distinct[outcome], each, count.astype(np.float64))

    def turned(self, code: IntArray) -> IntArray:
        """Of the same contests told with the first the one that is earlier in the list."""
        first, second, outcome, weight = self.split(code)
        every = self.outcome.distinct
        ends = np.searchsorted(every, 1 - every)[outcome]
        turned = (second * len(self.contests.players) + first) * len(every) + ends
        return np.where(first > second, turned * len(self.weight.distinct) + weight, code)


@dataclass(frozen=True, eq=False)
class Codes:
    """What the codes of contests are, and their rows."""

    coding: _Coding
    found: IntArray
    """Codes that there are, sorted."""
    row: IntArray
    """Of each of them."""

    def rows(self) -> IntArray:
        """Row of each contest, shape (C,)."""
        code = self.coding.code(slice(None))
        if not self.coding.in_table:
            return self.row[np.unique(code, return_inverse=True)[1]]
        rows = np.zeros(self.coding.size, dtype=np.int64)
        rows[self.found] = self.row
        return rows[code]


def rows_of(contests: Contests, *, ordered: bool) -> tuple[Rows, Codes]:
    """Count contests, and find the row of each.

    Parameters
    ----------
    ordered
        Whether it matters who stood first; else the first of a row is the one that is earlier in
        the list of players.

    Raises
    ------
    DesignError
        More kinds of contests than there are whole numbers.
    """
    outcome, weight = _outcomes(contests, turned=not ordered), _distinct(contests.weight)
    coding = _Coding(contests, outcome, weight)
    if coding.size > _MOST:
        msg = (
            f"{len(contests.players):,} players with {len(coding.outcome.distinct):,} outcomes and "
            f"{len(coding.weight.distinct):,} weights found, too many to count contests that are "
            "alike: round outcomes or weights"
        )
        raise DesignError(msg)
    if coding.in_table:
        table = _table(coding)
        found = np.flatnonzero(table)
        count = table[found]
    else:
        found, count = np.unique(coding.code(slice(None)), return_counts=True)
    rows = coding.read(found, count)
    if ordered or not (rows.first > rows.second).any():
        return rows, Codes(coding, found, np.arange(len(found)))
    code, row = np.unique(coding.turned(found), return_inverse=True)
    counts = np.bincount(row, count, len(code)).astype(np.int64)
    return coding.read(code, counts), Codes(coding, found, row.astype(np.int64))


def _table(coding: _Coding) -> IntArray:
    """How often there is each code, shape (codes,)."""
    ends = coding.contests.ends
    if ends is not None and len(coding.weight.distinct) == 1:
        return ends.ravel()
    table = np.zeros(coding.size, dtype=np.int64)
    together = max(BLOCK, coding.size)
    for start in range(0, len(coding.contests), together):
        code = coding.code(slice(start, start + together))
        table += np.bincount(code, minlength=coding.size)
    return table


def _outcomes(contests: Contests, *, turned: bool) -> _Kinds:
    """Distinct outcomes, and what is left to the second where contests may be turned."""
    values = contests.outcome
    if contests.won_tied_or_lost:
        return _Kinds(np.array(ENDS), values)
    found = _distinct(values)
    if not turned:
        return found
    every = np.unique(np.concatenate([found.distinct, 1 - found.distinct]))
    places = np.searchsorted(every, found.distinct)
    return _Kinds(every, values, places[found.of(slice(None))])


def _distinct(values: FloatArray) -> _Kinds:
    least, most = extremes(values)
    if least == most:
        return _Kinds(np.array([least]), values, np.broadcast_to(np.int64(0), values.shape))
    distinct, place = np.unique(values, return_inverse=True)
    return _Kinds(distinct, values, place.astype(np.int64, copy=False))


def pair_table(
    first: IntArray, second: IntArray, outcome: FloatArray, players: int
) -> IntArray | None:
    """Count how often the first lost to, tied with and beat the second.

    Returns
    -------
    Shape (n, n, 3). None where that is more numbers than there are contests, where an outcome is a
    share, and where these are no contests at all.
    """
    n, size = players, len(ENDS) * players**2
    if size > len(first):
        return None
    table = np.zeros(size, dtype=np.int64)
    # The same memory for all: to get it takes longer than what is done in it.
    block = min(BLOCK, len(first))
    codes, doubles = np.empty(block, dtype=np.int64), np.empty(block)
    ends = np.empty(block, dtype=np.int32)
    for start in range(0, len(first), BLOCK):
        part = slice(start, start + BLOCK)
        i, j, y = first[part], second[part], outcome[part]
        if outside(i, n) or outside(j, n):
            return None
        code, twice, end = codes[: len(i)], doubles[: len(i)], ends[: len(i)]
        np.multiply(y, 2, out=twice)
        with np.errstate(invalid="ignore"):
            np.copyto(end, twice, casting="unsafe")
        if end.view(np.uint32).max() >= len(ENDS) or not (end == twice).all():
            return None
        np.multiply(i, n, out=code)
        code += j
        code *= len(ENDS)
        code += end
        np.add.at(table, code, 1)
    found = table.reshape(n, n, len(ENDS))
    with_itself = found[np.arange(n), np.arange(n)].any()
    return None if with_itself else found


def outside(places: IntArray, n: int) -> bool:
    """Whether some are not among the first n."""
    # As whole numbers without a sign those below 0 are larger than any place.
    return bool(places.view(np.uint64).max() >= n)


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


def to_frame(contests: Contests) -> pd.DataFrame:
    """Return contests as a frame, one a row, under the names that `read_contests` knows.

    The players are ``first`` and ``second`` where it is known who was shown first, else
    ``player_a`` and ``player_b``; ``outcome`` is that of the first.
    """
    import pandas as pd

    players = np.asarray(contests.players, dtype=object)
    one, two = ("first", "second") if contests.ordered else ("player_a", "player_b")
    found: dict[str, Any] = {
        one: players[contests.first],
        two: players[contests.second],
        "outcome": contests.outcome,
        "weight": contests.weight,
    }
    if contests.judge is not None:
        found["judge"] = np.asarray(contests.judges, dtype=object)[contests.judge]
    if contests.cluster is not None:
        found["item"] = np.asarray(contests.clusters, dtype=object)[contests.cluster]
    if contests.time is not None:
        found["time"] = contests.time
    if contests.features is not None:
        named = zip(contests.feature_names, contests.features.T, strict=True)
        found |= {FEATURE + name: values for name, values in named}
    return pd.DataFrame(found)
