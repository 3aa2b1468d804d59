"""How messages name things: a few of many, and what was meant by a name that is not there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches


def few(names: Sequence[str], most: int = 6) -> str:
    """List the first names and count the others.

    >>> few(["a", "b", "c"], most=2)
    'a, b, and 1 more'
    """
    more = f", and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def no_such(what: str, name: str, known: Iterable[str], shown: str) -> str:
    """Say that a name does not exist, which ones are close, and which there are.

    >>> no_such("method", "wison", ["wilson", "t"], "wilson, t")
    "no method is called 'wison'; did you mean wilson? There are: wilson, t"
    """
    close = get_close_matches(name, list(known), n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(close)}? There" if close else "there"
    return f"no {what} is called {name!r}; {hint} are: {shown}"
