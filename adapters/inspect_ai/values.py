"""What a scorer's value is worth, as Inspect's own metrics take it."""

from __future__ import annotations

import math

LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
"""Correct, partial, incorrect, no answer."""
_WORDS = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}


def as_score(value: object) -> float | None:
    """Return a value as a number, NaN where it was not scored; None where it is no number.

    Inspect counts what is no number as 0, after a warning nobody sees later; otherwise this is
    its ``value_to_float``.

    >>> as_score("P"), as_score("Yes"), as_score(" 3e-1"), as_score("correct")
    (0.5, 1.0, 0.3, None)
    """
    if isinstance(value, str):
        known = LETTERS.get(value, _WORDS.get(value.lower()))
        return _number(value) if known is None else known
    if isinstance(value, (bool, int, float)):
        try:
            return float(value)
        except OverflowError:
            return None
    return None


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def is_unscored(value: object) -> bool:
    """Whether a value is NaN, by which Inspect marks what could not be scored."""
    return isinstance(value, float) and math.isnan(value)


def is_grade(value: object) -> bool:
    """Whether a value can only lie between 0 and 1: a letter, a word for yes or no, or a bool."""
    if isinstance(value, str):
        return value in LETTERS or value.lower() in _WORDS
    return isinstance(value, bool)
