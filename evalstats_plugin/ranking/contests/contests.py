"""Contests between pairs of players, and their sufficient statistics.

* `Contests`: one entry per contest; checks, selection, win matrices and connectivity
* `pair_table`, `rows_of`: count the contests that are identical, in one pass over integer codes
* `count_contests`: the counts with their `Design`, the linear predictor of a ranking model
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse import csgraph

from evalstats_plugin.errors import DesignError, SelectionError, counted, few, no_such
from evalstats_plugin.ranking.contests.outcomes import (
    WITH_TIES,
    TieModel,
    Weights,
    tie_model,
    weights_of,
)
from evalstats_plugin.stats.arrays import FloatArray, IntArray

if TYPE_CHECKING:
    import pandas as pd


OUTCOMES = (0.0, 0.5, 1.0)
"""A loss, a tie and a win of the first, in the order of `pair_table`."""
BLOCK = 2**15
"""Contests processed together, so that the intermediate arrays stay in the cache."""
MOST_WEIGHT = 1e12
"""Largest weight of a contest; beyond, fits lose the others to rounding."""
FEATURE = "feature:"
"""Prefix of the columns that hold a feature, in the files we write."""

_MOST = 2**63 - 1
"""Largest code that fits an integer."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Contests:
    """C contests, each between two of n players: models, answers, or whatever is ranked.

    Arrays have one entry per contest. ``first`` is the player shown first or left, where the order
    is known; ``outcome`` is 1 if it won, 0 if the second won, ½ for a tie, and may be any share
    in between. Judges and clusters are numbered from 0 and named in `judges` and `clusters`.

    >>> played = Contests.of([0, 1, 0], [1, 2, 2], [1, 1, 0.5], players=["ant", "bee", "cat"])
    >>> len(played), played.components().tolist()
    (3, [0, 0, 0])
    """

    players: tuple[str, ...]
    first: IntArray
    """Index into `players`, shape (C,)."""
    second: IntArray
    outcome: FloatArray
    weight: FloatArray
    judge: IntArray | None = None
    judges: tuple[str, ...] = ()
    cluster: IntArray | None = None
    """Contests that depend on each other, such as those of one prompt or item."""
    clusters: tuple[str, ...] = ()
    ordered: bool = False
    """Whether ``first`` was really shown first, so that a position effect can be estimated."""
    features: FloatArray | None = None
    """Features of the first minus those of the second, such as answer length; shape (C, P)."""
    feature_names: tuple[str, ...] = ()
    category: IntArray | None = None
    """Kind of prompt of each contest, which may have a ranking of its own; shape (C,)."""
    categories: tuple[str, ...] = ()
    time: NDArray[np.object_] | None = None
    """When each contest was decided, as recorded; "" where unknown; shape (C,)."""
    notes: tuple[str, ...] = field(default=())

    def __repr__(self) -> str:
        return f"<Contests: {len(self.players)} players, {len(self.first)} contests>"

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
        """Make contests from indices into a list of players, and check them.

        Parameters
        ----------
        first, second : shape (C,)
            Indices into ``players``.
        outcome : shape (C,), in [0, 1]
        players
            Names, or the number of players (default: as many as appear).
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
        names = names_of(players, int(max(i.max(initial=-1), j.max(initial=-1))))
        contests = cls(players=names, first=i, second=j, outcome=y, weight=w, ordered=ordered)
        contests.check()
        return contests

    def check(self) -> None:
        """Raise `DesignError` if the arrays do not describe contests."""
        if not len(self):
            msg = "no comparisons: give at least one, with a winner and a loser, or a tie"
            raise DesignError(msg)
        if len({len(x) for x in (self.first, self.second, self.outcome, self.weight)}) > 1:
            raise DesignError(
                f"{len(self.first)} first players, {len(self.second)} second players, "
                f"{len(self.outcome)} outcomes and {len(self.weight)} weights: give one of "
                "each for every comparison"
            )
        if self.outcome_counts is None:
            self._check_each()
        least, most = extremes(self.weight)
        if not (least >= 0 and most <= MOST_WEIGHT):
            msg = f"some weights are not between 0 and {MOST_WEIGHT:g}: give numbers in that range"
            raise DesignError(msg)

    def _check_each(self) -> None:
        n = len(self.players)
        if outside(self.first, n) or outside(self.second, n):
            msg = f"a player's index is outside the list of {n} players: use 0 to {n - 1}"
            raise DesignError(msg)
        same = self.first == self.second
        if same.any():
            alone = np.flatnonzero(same)
            names = few([self.players[int(k)] for k in np.unique(self.first[alone])])
            raise DesignError(
                f"{names} with itself: {counted(len(alone), 'comparison')}, the first of them "
                f"number {alone[0] + 1}: remove them"
            )
        # With NaN among the outcomes, both extremes are NaN and the comparison fails.
        least, most = extremes(self.outcome)
        if not (least >= 0 and most <= 1):
            msg = "some outcomes are outside [0, 1]: give 1 for the first, 0 for the second, .5"
            raise DesignError(msg)

    def __len__(self) -> int:
        return len(self.first)

    @cached_property
    def outcome_counts(self) -> IntArray | None:
        """Unweighted counts of losses, ties and wins of each pair, shape (n, n, 3).

        None in the cases that `pair_table` lists.
        """
        return pair_table(self.first, self.second, self.outcome, len(self.players))

    @property
    def tied(self) -> NDArray[np.bool_]:
        """Whether each contest is a tie, shape (C,)."""
        return self.outcome == 0.5

    @property
    def clustered(self) -> bool:
        """Whether several contests are of one cluster."""
        return self.cluster is not None and bool((np.bincount(self.cluster) > 1).any())

    def take(self, which: ArrayLike) -> Contests:
        """Select contests by index or by mask; the list of players stays the same."""
        keep = np.asarray(which)
        if keep.dtype == np.bool_:
            if len(keep) == len(self) and keep.all():
                return self
            keep = np.flatnonzero(keep)
        fields = ("first", "second", "outcome", "weight", "judge", "cluster", "category")
        values = {name: getattr(self, name) for name in (*fields, "features", "time")}
        return replace(self, **{k: v[keep] for k, v in values.items() if v is not None})

    def to_frame(self) -> pd.DataFrame:
        """Return a frame with one contest a row, with column names that `read_contests` knows.

        The players are ``first`` and ``second`` if it is known who was shown first, else
        ``player_a`` and ``player_b``; ``outcome`` is that of the first.
        """
        import pandas as pd

        players = np.asarray(self.players, dtype=object)
        first_name, second_name = ("first", "second") if self.ordered else ("player_a", "player_b")
        columns: dict[str, Any] = {
            first_name: players[self.first],
            second_name: players[self.second],
            "outcome": self.outcome,
            "weight": self.weight,
        }
        if self.judge is not None:
            columns["judge"] = np.asarray(self.judges, dtype=object)[self.judge]
        if self.cluster is not None:
            columns["item"] = np.asarray(self.clusters, dtype=object)[self.cluster]
        if self.category is not None:
            columns["category"] = np.asarray(self.categories, dtype=object)[self.category]
        if self.time is not None:
            columns["time"] = self.time
        if self.features is not None:
            named = zip(self.feature_names, self.features.T, strict=True)
            columns |= {FEATURE + name: values for name, values in named}
        return pd.DataFrame(columns)

    def in_order(self, *, ordered: bool = False) -> tuple[IntArray, IntArray, FloatArray]:
        """First, second and outcome, with the smaller index first unless the order matters."""
        i, j, y = self.first, self.second, self.outcome
        if ordered:
            return i, j, y
        swap = i > j
        return np.where(swap, j, i), np.where(swap, i, j), np.where(swap, 1 - y, y)

    def wins(self) -> FloatArray:
        """Total weight of i's wins against j, ties counted half for each; shape (n, n)."""
        n = len(self.players)
        cells = self.first * n + self.second
        won, lost = (
            np.bincount(cells, self.weight * share, n * n).astype(np.float64).reshape(n, n)
            for share in (self.outcome, 1 - self.outcome)
        )
        return won + lost.T

    def components(self) -> IntArray:
        """Connected component of each player, shape (n,); players never compared are alone."""
        used = self.weight > 0
        return components_of(self.first[used], self.second[used], len(self.players), directed=False)

    def disconnected(self) -> str:
        """Describe the groups of players that no chain of contests connects; "" if all are one."""
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
        """Strongly connected component of each player in the graph of wins, shape (n,).

        With a single component the maximum likelihood estimate is finite [Ford57]_.
        """
        beat = self.wins() > 0
        # Shortcut for dense data: all players are within two mutual wins of the first.
        both = beat & beat.T
        near = both[both[0]].any(axis=0)
        if (both[near].any(axis=0) | near).all():
            return np.zeros(len(beat), dtype=np.int64)
        won, lost = np.nonzero(beat)
        return components_of(won, lost, len(beat), directed=True)


def names_of(players: Sequence[str] | int | None, largest: int) -> tuple[str, ...]:
    """Names of players as given, or numbered: so many, or those up to the largest index."""
    if players is None:
        players = largest + 1
    if isinstance(players, int):
        players = [f"player_{k}" for k in range(players)]
    return tuple(players)


def components_of(winner: IntArray, loser: IntArray, players: int, *, directed: bool) -> IntArray:
    """Connected component of each player, shape (n,): strongly connected in the graph if directed.

    Parameters
    ----------
    winner, loser : shape (E,)
        Indices of the players of each edge.
    """
    graph = sparse.coo_array((np.ones(len(winner)), (winner, loser)), shape=(players, players))
    parts = csgraph.connected_components(graph, directed=directed, connection="strong")
    return parts[1].astype(np.int64)


def pair_table(
    first: IntArray, second: IntArray, outcome: FloatArray, players: int
) -> IntArray | None:
    """Count how often the first lost to, tied with and beat the second, checking each contest.

    Returns
    -------
    Shape (n, n, 3). None if the table has more cells than there are contests, if an outcome is a
    share, or if some contests are invalid.
    """
    n, size = players, len(OUTCOMES) * players**2
    if size > len(first):
        return None
    table = np.zeros(size, dtype=np.int64)
    # Buffers are reused: allocating them takes longer than the arithmetic.
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
        if end.view(np.uint32).max() >= len(OUTCOMES) or not (end == twice).all():
            return None
        np.multiply(i, n, out=code)
        code += j
        code *= len(OUTCOMES)
        code += end
        np.add.at(table, code, 1)
    counts = table.reshape(n, n, len(OUTCOMES))
    with_itself = counts[np.arange(n), np.arange(n)].any()
    return None if with_itself else counts


def outside(index: IntArray, n: int) -> bool:
    """Whether some indices are below 0, or n and above."""
    # As unsigned integers, negative numbers are larger than any index.
    return bool(index.view(np.uint64).max() >= n)


def extremes(values: FloatArray) -> tuple[float, float]:
    """Minimum and maximum; NaN if any value is NaN. Broadcast arrays are read only once."""
    distinct = values[:1] if values.strides == (0,) else values
    return float(distinct.min()), float(distinct.max())


class Rows(NamedTuple):
    """Distinct contests, in the order of their codes; arrays of shape (R,)."""

    first: IntArray
    second: IntArray
    outcome: FloatArray
    weight: FloatArray
    """Weight of one contest."""
    times: FloatArray
    """Number of identical contests."""


def rows_of(contests: Contests, *, ordered: bool) -> tuple[Rows, Callable[[], IntArray]]:
    """Count identical contests, and return what gives the row of each contest.

    Parameters
    ----------
    ordered
        Whether it matters who was shown first; otherwise the first player of a row is the one with
        the smaller index.

    Raises
    ------
    DesignError
        More distinct contests than an integer can number.
    """
    n, kinds = len(contests.players), len(OUTCOMES)
    table, (weight, most) = contests.outcome_counts, extremes(contests.weight)
    if table is None or weight < most:
        return _sorted_rows(contests, ordered=ordered)
    if not ordered:
        upper = np.triu(np.ones((n, n), dtype=np.bool_))[..., None]
        table = np.where(upper, table + table.swapaxes(0, 1)[:, :, ::-1], 0)
    occupied = np.flatnonzero(table)
    pair, level = np.divmod(occupied, kinds)
    each = np.broadcast_to(weight, occupied.shape)
    times = table.ravel()[occupied].astype(np.float64)
    rows = Rows(pair // n, pair % n, np.array(OUTCOMES)[level], each, times)

    def row_of_each() -> IntArray:
        first, second, outcome = contests.in_order(ordered=ordered)
        place = np.zeros(kinds * n * n, dtype=np.int64)
        place[occupied] = np.arange(len(occupied))
        return place[(first * n + second) * kinds + (2 * outcome).astype(np.int64)]

    return rows, row_of_each


def _sorted_rows(contests: Contests, *, ordered: bool) -> tuple[Rows, Callable[[], IntArray]]:
    """Rows of contests that a table of pairs and outcomes cannot count."""
    first, second, outcome = contests.in_order(ordered=ordered)
    code, size = first * len(contests.players) + second, len(contests.players) ** 2
    for values in (outcome, contests.weight):
        distinct, level = np.unique(values, return_inverse=True)
        code, size = code * len(distinct) + level, size * len(distinct)
    if size > _MOST:
        raise DesignError(
            f"{len(contests.players):,} players with so many outcomes and weights are too many to "
            "count contests that are alike: round outcomes or weights"
        )
    _, at, row, times = np.unique(code, return_index=True, return_inverse=True, return_counts=True)
    weight, counts = contests.weight[at], times.astype(np.float64)
    return Rows(first[at], second[at], outcome[at], weight, counts), lambda: row


@dataclass(frozen=True, eq=False, kw_only=True)
class CountedContests:
    """Contests with identical ones counted: R rows of distinct contests in K cells of a design."""

    contests: Contests
    """Without contests of weight 0, and without ties if these are dropped."""
    design: Design
    rows: Rows
    cell: IntArray
    """Cell of each row, shape (R,); in ascending order."""
    each: Weights
    """Wins, ties and losses of one contest of each row, shape (R,)."""
    row_of_each: Callable[[], IntArray] | None
    """Gives the row of each contest; None if every contest is a row."""

    @cached_property
    def row(self) -> IntArray:
        """Row of each contest, shape (C,)."""
        return np.arange(len(self.contests)) if self.row_of_each is None else self.row_of_each()

    @property
    def reduced(self) -> Contests:
        """One contest a row with the total weight, so that win matrices stay the same."""
        rows = self.rows
        return Contests(
            players=self.contests.players,
            first=rows.first,
            second=rows.second,
            outcome=rows.outcome,
            weight=rows.weight * rows.times,
        )

    def weights(self) -> Weights:
        """Total wins, ties and losses of each cell, shape (K,)."""
        return Weights(*(self.by_cell(each * self.rows.times) for each in self.each))

    def by_cell(self, values: FloatArray) -> FloatArray:
        """Sum values of the rows of each cell, shape (K,)."""
        return np.bincount(self.cell, values, len(self.design.first)).astype(np.float64)

    def groups(self, of: str) -> Any:
        """Number of contests of each row in each ``"cluster"`` or ``"judge"``, sparse (G, R).

        Raises
        ------
        DesignError
            The contests have no such groups, or only one.
        """
        labels = {"cluster": self.contests.cluster, "judge": self.contests.judge}[of]
        if labels is None:
            msg = f"the comparisons have no {of}: name its column, or take covariance='sandwich'"
            raise DesignError(msg)
        if labels.min() < 0 or labels.max() > 4 * len(labels):
            group = np.unique(labels, return_inverse=True)[1].astype(np.int64)
        else:
            group = (np.cumsum(np.bincount(labels) > 0) - 1)[labels]
        if group.max() == 0:
            raise DesignError(f"all comparisons have one {of}: how they differ takes 2 or more")
        shape = (int(group.max()) + 1, int(self.row.max()) + 1)
        return sparse.csr_array((np.ones(len(group)), (group, self.row)), shape)


def count_contests(
    contests: Contests,
    ties: TieModel | None,
    *,
    position: bool = False,
    features: Sequence[str] = (),
) -> CountedContests:
    """Count contests that have the same outcome and the same linear predictor.

    Parameters
    ----------
    ties
        Tie model; None: the default of these outcomes (`tie_model`).
    position
        Whether to add a position effect, an advantage of the player shown first.
    features
        Names of the features to add to the linear predictor.

    Raises
    ------
    DesignError
        Nothing is left to count, the order is unknown, features are not finite, or outcomes are
        shares although the model needs wins, ties and losses.
    SelectionError
        No feature of this name.
    """
    contests.check()
    if extremes(contests.weight)[0] == 0:
        contests = contests.take(contests.weight > 0)
    ties = tie_model(ties, contests.outcome)
    if ties == "drop":
        contests = contests.take(~contests.tied)
    if not len(contests):
        msg = "nothing to fit: all comparisons are ties" if ties == "drop" else "all weights are 0"
        raise DesignError(msg)
    if features:
        # Features differ from contest to contest, so every contest is a cell.
        each = (contests.first, contests.second, contests.outcome, contests.weight)
        rows, row_of_each = Rows(*each, np.ones(len(contests))), None
        first_of = cell = np.arange(len(contests))
    else:
        rows, row_of_each = rows_of(contests, ordered=position)
        fresh = np.r_[True, (np.diff(rows.first) != 0) | (np.diff(rows.second) != 0)]
        first_of, cell = np.flatnonzero(fresh), np.cumsum(fresh) - 1
    extra, names = _extra(contests, len(first_of), position=position, features=features)
    if ties in WITH_TIES:
        if not np.isin(rows.outcome, OUTCOMES).all():
            msg = "a model of ties needs wins, losses and ties, but some outcomes are between"
            raise DesignError(msg)
        names = (*names, "tie")
    n, first, second = len(contests.players), rows.first[first_of], rows.second[first_of]
    design = Design(n=n, first=first, second=second, extra=extra, names=names, ties=ties)
    each = weights_of(ties, rows.outcome, rows.weight)
    return CountedContests(
        contests=contests,
        design=design,
        rows=rows,
        cell=cell,
        each=each,
        row_of_each=row_of_each,
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class Design:
    """Linear predictor: log odds of K cells from n ratings, Q coefficients and a tie parameter.

    A cell is a pair of players, or one contest if there are features.
    """

    n: int
    first: IntArray
    """Shape (K,)."""
    second: IntArray
    extra: FloatArray
    """1 for the position effect, then the features; shape (K, Q)."""
    names: tuple[str, ...]
    """Names of the Q coefficients, then of the tie parameter, if there is one."""
    ties: TieModel

    @property
    def size(self) -> int:
        """Number of parameters p: ratings, coefficients, tie parameter."""
        return self.n + len(self.names)

    @property
    def with_ties(self) -> bool:
        """Whether there is a tie parameter; it is the last parameter."""
        return self.ties in WITH_TIES

    def ahead(self, parameters: FloatArray) -> FloatArray:
        """Log odds of the first, shape (K,)."""
        q = self.extra.shape[1]
        return self.against @ parameters[: self.n] + self.extra @ parameters[self.n : self.n + q]

    def tie(self, parameters: FloatArray) -> FloatArray:
        """Return the tie parameter, shape (1,); 0 if the model has none."""
        return parameters[-1:] if self.with_ties else np.zeros(1)

    def summed(self, by_x: FloatArray, by_tie: FloatArray) -> FloatArray:
        """Chain rule: derivatives by cell, shape (K,), to derivatives by parameter, (p,)."""
        parts = [self.against.T @ by_x, self.extra.T @ by_x]
        if self.with_ties:
            parts.append(by_tie.sum(keepdims=True))
        return np.concatenate(parts)

    def outer(self, xx: FloatArray, x_tie: FloatArray, tie_tie: FloatArray) -> FloatArray:
        """Information matrix, shape (p, p), from second derivatives by cell, (K,)."""
        n, coefficients = self.n, slice(self.n, self.n + self.extra.shape[1])
        i, j, gather = self._pairs
        out = np.zeros((self.size, self.size))
        out[i, j] = out[j, i] = -(gather @ xx)
        out[np.diag_indices(n)] = -out[:n, :n].sum(axis=1)
        if self.extra.size:
            weighted = xx[:, None] * self.extra
            out[:n, coefficients] = self.against.T @ weighted
            out[coefficients, :n] = out[:n, coefficients].T
            out[coefficients, coefficients] = self.extra.T @ weighted
        if self.with_ties:
            out[-1, :-1] = out[:-1, -1] = self.summed(x_tie, x_tie)[:-1]
            out[-1, -1] = tie_tie.sum()
        return out

    @cached_property
    def against(self) -> Any:
        """Sparse design matrix of the ratings (K, n): 1 for the first, -1 for the second."""
        cells = len(self.first)
        signs = np.tile([1.0, -1.0], cells)
        players = np.stack([self.first, self.second], axis=1).ravel()
        return sparse.csr_array((signs, players, np.arange(0, 2 * cells + 1, 2)), (cells, self.n))

    @cached_property
    def _pairs(self) -> tuple[IntArray, IntArray, Any]:
        """Pairs i < j that met, and a sparse matrix (pairs, K) that sums their cells."""
        low, high = np.minimum(self.first, self.second), np.maximum(self.first, self.second)
        code = low * self.n + high
        place = np.arange(len(code))
        if (np.diff(code) <= 0).any():
            code, place = np.unique(code, return_inverse=True)
        shape, ones = (len(code), len(place)), np.ones(len(place))
        gather = sparse.csr_array((ones, (place, np.arange(len(place)))), shape)
        return code // self.n, code % self.n, gather


def _extra(
    contests: Contests, cells: int, *, position: bool, features: Sequence[str]
) -> tuple[FloatArray, tuple[str, ...]]:
    """Columns of the position effect and the features, shape (K, Q), and their names."""
    columns: list[FloatArray] = []
    if position:
        if not contests.ordered:
            msg = "an advantage of place needs to know who was shown first, found no such order"
            raise DesignError(msg)
        columns.append(np.ones(cells))
    feature_names = contests.feature_names
    for name in features:
        if name not in feature_names or contests.features is None:
            shown = few(feature_names) or "none"
            raise SelectionError(no_such("feature", name, feature_names, shown))
        values = contests.features[:, feature_names.index(name)]
        bad = int((~np.isfinite(values)).sum())
        if bad:
            msg = f"feature {name!r} is not a finite number in {bad} of {len(values)} comparisons"
            raise DesignError(msg)
        columns.append(values)
    names = (*(("position",) if position else ()), *features)
    return np.array(columns).reshape(len(columns), cells).T.copy(), names
