"""Columns of a table of comparisons: few different values in many rows, and numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.errors import DesignError
from evalstats_plugin.ranking.contests import FloatArray, IntArray

MISSING = -1
"""Code of a cell that holds nothing."""

_LARGEST_EXACT = 2.0**53


@dataclass(frozen=True, eq=False)
class Column:
    """Texts of C rows, each different one kept once."""

    codes: IntArray
    """Place in `values`, `MISSING` for an empty cell; shape (C,)."""
    values: tuple[str, ...]

    @classmethod
    def of(cls, cells: Iterable[Any]) -> Column:
        """Make a column from the value of each row."""
        texts = [as_text(cell) for cell in cells]
        different = dict.fromkeys(texts)
        different.pop("", None)
        places = dict(zip(different, range(len(different)), strict=True))
        places[""] = MISSING
        codes = np.fromiter(map(places.__getitem__, texts), np.int64, len(texts))
        return cls(codes, tuple(different))

    @classmethod
    def encoded(cls, codes: IntArray, values: Sequence[Any]) -> Column:
        """Make a column from codes and what they stand for, which may need tidying."""
        texts = [as_text(value) for value in values]
        different = set(texts)
        if len(different) == len(texts) and "" not in different:
            return cls(codes, tuple(texts))
        tidy = cls.of(texts)
        # The code of an empty cell, -1, takes the entry that is put last.
        return cls(np.append(tidy.codes, MISSING)[codes], tidy.values)

    @property
    def empty(self) -> NDArray[np.bool_]:
        """Whether each row holds nothing, shape (C,)."""
        return self.codes == MISSING

    def translated(self, by: Mapping[str, float]) -> FloatArray:
        """Return what each row's value, in small letters, stands for; NaN where it is not known."""
        known = [by.get(value.casefold(), math.nan) for value in self.values]
        return np.append(known, math.nan)[self.codes]

    def numbers(self, name: str, where: str, expected: str) -> FloatArray:
        """Return the rows as numbers, NaN where empty, shape (C,).

        Raises
        ------
        DesignError
            One is no number; the message has its row.
        """
        parsed = [_number(value) for value in self.values]
        found = np.append([math.nan if p is None else p for p in parsed], math.nan)[self.codes]
        if None in parsed:
            self.refuse(np.isnan(found) & ~self.empty, name, where, expected)
        return found

    def refuse(self, wrong: NDArray[np.bool_], name: str, where: str, expected: str) -> None:
        """Raise `DesignError` on the first of the rows that are wrong, if any is."""
        rows = np.flatnonzero(wrong)
        if len(rows):
            value = self.values[int(self.codes[rows[0]])]
            more = f" (and in {len(rows) - 1} more rows)" if len(rows) > 1 else ""
            msg = f"{where}: {name} {value!r} found in row {rows[0] + 1}{more}, expected {expected}"
            raise DesignError(msg)

    def numbered(self, names: Sequence[str]) -> IntArray:
        """Return the place of each row's value in a list of names that holds them all."""
        places = {name: i for i, name in enumerate(names)}
        return np.asarray([*(places[v] for v in self.values), MISSING], dtype=np.int64)[self.codes]

    def take(self, which: NDArray[np.bool_]) -> Column:
        """Return some rows."""
        return Column(self.codes[which], self.values)


@dataclass(frozen=True, eq=False)
class Table:
    """A table, of which only the columns that are asked for are loaded."""

    where: str
    """What messages call it."""
    names: tuple[str, ...]
    """Of the columns; those inside others are dotted, ``"metadata.model_a"``."""
    load: Callable[[Sequence[str]], Mapping[str, Column]]
    notes: tuple[str, ...] = ()


def as_text(cell: Any) -> str:
    """Return a cell as text, nothing for one that is empty.

    >>> as_text(3.0), as_text(True), as_text(float("nan")), as_text(" x ")
    ('3', 'true', '', 'x')
    """
    if isinstance(cell, str):
        return cell.strip()
    if cell is None:
        return ""
    if isinstance(cell, (bool, np.bool_)):
        return "true" if cell else "false"
    if isinstance(cell, float):  # NumPy's are too
        number = float(cell)
        if math.isnan(number):
            return ""
        # Whole numbers beside empty cells have become floats on the way here.
        whole = number.is_integer() and abs(number) < _LARGEST_EXACT
        return str(int(number)) if whole else repr(number)
    return str(cell)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return None if math.isnan(number) else number
