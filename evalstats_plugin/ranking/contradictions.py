"""Comparisons that were answered twice, and differently."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.ranking.contests import Contests, IntArray

_MOST = 2**62
"""Numbers below it fit into the keys."""


def contradictions(contests: Contests, epoch: IntArray | None = None) -> tuple[str, ...]:
    """Note how often one judge let each of two players win on one item.

    Nothing is said where items are not known: then a pair may well be compared several times.

    Parameters
    ----------
    epoch : shape (C,)
        Take of the item, where there are several: answers to different ones do not contradict.
    """
    if contests.cluster is None or len(contests.clusters) == len(contests):
        return ()
    low = np.minimum(contests.first, contests.second)
    high = np.maximum(contests.first, contests.second)
    codes = [low, high, contests.cluster, contests.judge, epoch]
    groups = _numbered([code for code in codes if code is not None])
    # Whether the first won, and whether the one with the lower number did.
    first = contests.outcome > 0.5
    lower = first == (contests.first == low)
    decided = contests.outcome != 0.5
    n = int(groups.max()) + 1

    def seen(which: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return np.bincount(groups[which & decided], minlength=n) > 0

    both = seen(lower) & seen(~lower)
    if not both.any():
        return ()
    n_both = int(both.sum())
    pairs = "1 pair was" if n_both == 1 else f"{n_both} pairs were"
    text = f"{pairs} answered both ways by one judge on one item: all kept"
    if contests.ordered:
        by_place = int((both & (seen(first) != seen(~first))).sum())
        text += f"; in {by_place} of them the same place won each time"
    return (text,)


def _numbered(codes: Sequence[IntArray]) -> IntArray:
    """Number the combinations of codes, from 0."""
    key, size = np.zeros(len(codes[0]), dtype=np.int64), 1
    for code in codes:
        # Codes of missing cells are -1.
        width = int(code.max()) + 2
        if size * width >= _MOST:
            key = np.unique(key, return_inverse=True)[1].reshape(-1).astype(np.int64)
            size = int(key.max()) + 1
        key, size = key * width + code + 1, size * width
    return np.unique(key, return_inverse=True)[1].reshape(-1).astype(np.int64)
