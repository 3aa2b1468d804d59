"""Whether items of one id are one question: by the hashes that logs give them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Questions:
    """The hashes that items of one task have been seen with, and in whose responses first."""

    def __init__(self, n_items: int) -> None:
        self._n_items = n_items
        self._of_kind: dict[str, tuple[NDArray[Any], NDArray[np.int64]]] = {}

    def compare(
        self, at: NDArray[np.int64], mine: NDArray[Any], owner: int
    ) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Say where hashes differ from those seen of the same kind, and whose those are (or -1).

        What was not seen before is kept as the owner's.
        """
        kind = _kind(mine)
        if kind not in self._of_kind:
            unseen = np.full(self._n_items, "", dtype=object)
            self._of_kind[kind] = unseen, np.full(self._n_items, -1)
        hashes, owners = self._of_kind[kind]
        earlier = owners[at]
        differ = (mine != "") & (earlier >= 0) & (hashes[at] != mine)
        new = (mine != "") & (earlier < 0)
        hashes[at[new]], owners[at[new]] = mine[new], owner
        return differ, earlier


def _kind(hashes: NDArray[Any]) -> str:
    """Return the part before the colon, by which harnesses tell how they make their hashes.

    Hashes of two kinds say nothing about each other, an empty one nothing at all.
    """
    return next((str(h) for h in hashes if h), "").rpartition(":")[0]


def places_of(
    item_ids: Sequence[NDArray[Any]],
) -> tuple[NDArray[Any], list[NDArray[np.int64]]]:
    """Return all ids in order, each once, and where each model's items stand among them."""
    # Most often all models took the same items: then one look-up is enough.
    first = item_ids[0]
    alike = [np.array_equal(ids, first) for ids in item_ids]
    others = [ids for ids, same in zip(item_ids, alike, strict=True) if not same]
    every = np.unique(np.concatenate([first, *others]))
    place = np.searchsorted(every, first)
    return every, [
        place if same else np.searchsorted(every, ids)
        for ids, same in zip(item_ids, alike, strict=True)
    ]
