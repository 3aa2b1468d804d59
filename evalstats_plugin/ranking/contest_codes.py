"""Contests as whole numbers, so that those that do not differ are counted in one pass.

A *code* tells who met whom, how it ended, and with what weight.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from evalstats_plugin.errors import DesignError
from evalstats_plugin.ranking.contests import Contests, FloatArray, IntArray, extremes
from evalstats_plugin.ranking.pair_table import BLOCK, ENDS

_SMALL, _LARGE = 2**16, 2**24
"""Codes that are always counted in a table, and those that are always sorted."""
_MOST = 2**63 - 1
"""Codes that there are numbers for."""


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
