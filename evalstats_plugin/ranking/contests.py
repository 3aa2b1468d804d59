"""What rankings are fitted to: who was compared with whom, and who won."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse import csgraph

from evalstats_plugin.errors import DesignError
from evalstats_plugin.ranking.pair_table import ENDS, outside, pair_table
from evalstats_plugin.wording import few

if TYPE_CHECKING:
    import pandas as pd

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


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
        from evalstats_plugin.ranking.files import to_frame

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
