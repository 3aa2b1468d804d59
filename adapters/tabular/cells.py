"""How tables spell scores: numbers, percentages, decimal commas, truth values, nothing."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.errors import DesignError
from evalstats_plugin.ranking.columns import Column

# Among them what spreadsheets in other languages write for true and false.
_BY_WORD = {
    1.0: "true, t, yes, y, correct, right, pass, passed, success, ✓, "
    "wahr, vrai, verdadero, verdadeiro, vero, waar",
    0.0: "false, f, no, n, incorrect, wrong, fail, failed, failure, ✗, falsch, faux, falso, onwaar",
    math.nan: "nan, na, n/a, #n/a, none, null, nil, missing, -, ?",
}
WORDS = {word: number for number, words in _BY_WORD.items() for word in words.split(", ")}
"""Score by how it is spelt in small letters."""

_DECIMAL_COMMA = re.compile(r"[-+]?\d*,\d+(?:e[-+]?\d+)?\s*%?", re.IGNORECASE)
_EXPECTED = (
    "a number, a percentage (85%), true or false, yes or no, correct or incorrect, pass or fail, "
    "or nothing (empty, NaN, NA, null) where there is no score"
)

Scores = tuple[NDArray[np.float64], tuple[str, ...]]


def scores_of(column: Column, name: str, where: str) -> Scores:
    """Return the scores of all rows, shape (C,), NaN where missing, and notes on their spelling.

    Raises
    ------
    DesignError
        One is no score, or percentages stand beside numbers above 1; the message has the row.
    """
    numbers, notes = _plain(column.values), ()
    if numbers is None:
        numbers, notes = _spelt(column, name, where)
    return np.append(numbers, math.nan)[column.codes], notes


def _plain(texts: Sequence[str]) -> NDArray[np.float64] | None:
    """Read texts that are all numbers as computers write them, which is quick."""
    try:
        return np.asarray(texts, dtype=str).astype(np.float64)
    except ValueError:
        return None


def _spelt(column: Column, name: str, where: str) -> Scores:
    texts = column.values
    commas = [t for t in texts if _DECIMAL_COMMA.fullmatch(t)]
    # "1,5" beside "1.5" could be one and a half or fifteen: not for us to say.
    decimal = bool(commas) and not any("." in t and t.casefold() not in WORDS for t in texts)
    parsed = [_number(t, decimal=decimal) for t in texts]
    wrong = [k for k, number in enumerate(parsed) if number is None]
    mixed = "; commas and points are mixed in this column" if commas and not decimal else ""
    column.refuse(np.isin(column.codes, wrong), f"score ({name})", where, _EXPECTED + mixed)
    numbers = np.array([math.nan if n is None else n for n in parsed])
    percent = np.array([t.endswith("%") for t in texts])
    _refuse_mixed(column, numbers, percent, name, where)
    notes: list[str] = []
    if decimal:
        notes.append(f"{name}: a decimal comma, {commas[0]} is {commas[0].replace(',', '.')}")
    if percent.any():
        k = int(np.argmax(percent))
        notes.append(f"{name}: percentages, {texts[k]} is {numbers[k]:g}")
    return numbers, tuple(notes)


def _number(text: str, *, decimal: bool) -> float | None:
    small = text.casefold()
    if small in WORDS:
        return WORDS[small]
    digits = small.removesuffix("%").rstrip()
    try:
        number = float(digits.replace(",", ".") if decimal else digits)
    except ValueError:
        return None
    return number / 100 if small.endswith("%") else number


def _refuse_mixed(
    column: Column,
    numbers: NDArray[np.float64],
    percent: NDArray[np.bool_],
    name: str,
    where: str,
) -> None:
    if not percent.any():
        return
    large = np.flatnonzero(~percent & (numbers > 1))
    if len(large):
        rows = np.flatnonzero(np.isin(column.codes, large))
        msg = (
            f"{where}: score ({name}) {column.values[int(large[0])]!r} found in row {rows[0] + 1} "
            f"beside percentages such as {column.values[int(np.argmax(percent))]!r}, expected all "
            "scores with a percent sign or none"
        )
        raise DesignError(msg)
