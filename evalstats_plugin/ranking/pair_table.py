"""How the contests of each pair ended, in one pass that also finds out whether they are contests.

A million battles do not fit into the processor's cache, so that reading them takes longer than what
is done with each: they are read once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

ENDS = (0.0, 0.5, 1.0)
"""Outcomes of a loss, a tie and a win of the first, in the order of the table."""
BLOCK = 2**15
"""Contests taken together: what is made of them stays in the cache."""


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
