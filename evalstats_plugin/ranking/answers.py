"""Who won, out of the many ways to write it: a name, a place, a word, a number."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.ranking.columns import Column
from evalstats_plugin.ranking.contests import FloatArray, IntArray
from evalstats_plugin.ranking.spellings import SPELLINGS, UNDECIDED, WORDS, Layout

READ_AS_NAMES = (
    "answers that could be a player's name or a place, such as 'A', are read as names of players"
)

_TRUE = dict.fromkeys(("true", "1", "yes", "y", "t", "tie", "draw"), 1.0)
_FALSE = dict.fromkeys(("false", "0", "no", "n", "f", "none", "nan"), 0.0)
_PLACES = {"winner": 1.0, "loser": 0.0}


@dataclass(frozen=True)
class Answers:
    """The answers of C comparisons, each between a player `i` and a player `j`."""

    where: str
    layout: Layout
    columns: Mapping[str, Column]
    """By part of a comparison."""
    players: Sequence[str]
    i: IntArray
    """Place in `players` of the one in the first column (or the winner's), shape (C,)."""
    j: IntArray
    notes: list[str] = field(default_factory=list[str])

    def outcome(self) -> FloatArray:
        """Return the outcome for i, NaN where nobody answered, shape (C,).

        Raises
        ------
        DesignError
            A row says something that is not understood.
        """
        won = self._won() if "first" in self.columns else np.ones(len(self.i))
        column = self.columns.get("tie")
        if column is None:
            return won
        tied = column.translated({**_TRUE, **_FALSE})
        wrong = np.isnan(tied) & ~column.empty
        column.refuse(wrong, self.layout.columns["tie"], self.where, "true or false")
        return np.where(tied == 1, 0.5, won)

    def _won(self) -> FloatArray:
        part = next(p for p in ("winner", "outcome", "preference") if p in self.columns)
        column, name = self.columns[part], self.layout.columns[part]
        if part == "preference":
            # AlpacaEval: 1 for the first, 2 for the second, 1.5 (once 0) for neither.
            found = column.numbers(name, self.where, "a number from 1 to 2")
            found = np.where(found == 0, 1.5, found)
            wrong = (found < 1) | (found > 2)
            column.refuse(wrong, name, self.where, "a number from 1 to 2")
            return 2 - found
        if part == "outcome" and _are_numbers(column):
            found = column.numbers(name, self.where, "a number from 0 to 1")
            wrong = (found < 0) | (found > 1)
            column.refuse(wrong, name, self.where, "a number from 0 to 1")
            return found
        won = self._side(column, {})
        undecided = np.asarray([*(v.casefold() in UNDECIDED for v in column.values), True])
        column.refuse(np.isnan(won) & ~undecided[column.codes], name, self.where, SPELLINGS)
        return won

    def shown_second(self, *, must: bool) -> tuple[NDArray[np.bool_], bool]:
        """Say where i was shown second, and whether it is known at all; shape (C,).

        Parameters
        ----------
        must
            Whether the column was named by the caller, so that it has to be understood.
        """
        column = self.columns.get("position")
        none = np.zeros(len(self.i), dtype=bool)
        if column is None:
            return none, self.layout.ordered
        first = self._side(column, {} if "first" in self.columns else _PLACES)
        told = np.isin(first, (0.0, 1.0))
        if told.all():
            return first == 0, True
        name = self.layout.columns["position"]
        if must:
            expected = "the name of the one shown first, or its place: first or second, 1 or 2"
            column.refuse(~told & ~column.empty, name, self.where, expected)
        self.notes.append(f"{name!r} does not tell of every comparison who was shown first: unused")
        return none, False

    def _side(self, column: Column, more: Mapping[str, float]) -> FloatArray:
        """Return 1 for i, 0 for j, ½ for both, NaN for neither; shape (C,)."""
        shown = [self.layout.columns.get(part, "").casefold() for part in ("first", "second")]
        by_word = column.translated({**dict(zip(shown, (1.0, 0.0), strict=True)), **WORDS, **more})
        places = {name: k for k, name in enumerate(self.players)}
        named = np.asarray([*(places.get(v, -1) for v in column.values), -1])[column.codes]
        by_name = np.where(named == self.i, 1.0, np.where(named == self.j, 0.0, math.nan))
        is_name = named >= 0
        if np.isnan(by_name[is_name]).any():
            # Somebody who did not take part: then it is a place, where it can be one.
            return np.where(np.isnan(by_word), by_name, by_word)
        if (is_name & ~np.isnan(by_word) & (by_word != by_name)).any():
            self.notes.append(READ_AS_NAMES)
        return np.where(is_name, by_name, by_word)


def _are_numbers(column: Column) -> bool:
    """Whether a column holds a number at all, so that the other values should be numbers too."""
    return any(value[:1].isdigit() or value[:1] in {"-", "."} for value in column.values)
