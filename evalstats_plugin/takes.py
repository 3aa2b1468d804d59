"""Rows that are takes of items: where each stands among M items and R epochs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.int64]


def in_order(codes: Codes) -> tuple[Codes, Codes]:
    """Return the different codes as they first come, and the place of each row's among them.

    >>> in_order(np.array([7, 3, 7]))
    (array([7, 3]), array([0, 1, 0]))
    """
    values, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return values[order], rank[inverse]


def first_rows(items: Codes) -> Codes:
    """Return the first row of each item, shape (M,).

    >>> first_rows(np.array([0, 0, 1]))
    array([0, 2])
    """
    return np.unique(items, return_index=True)[1].astype(np.int64)


def number_takes(items: Codes) -> Codes:
    """Number the takes of each item, from 0, in the order of the rows.

    >>> number_takes(np.array([0, 1, 0, 0]))
    array([0, 0, 1, 2])
    """
    rows = np.argsort(items, kind="stable")
    ordered = items[rows]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    sizes = np.diff(np.append(starts, len(ordered)))
    number = np.empty_like(items)
    number[rows] = np.arange(len(rows)) - np.repeat(starts, sizes)
    return number


def rows_of_one_take(items: Codes, epochs: Codes) -> tuple[int, int, int] | None:
    """Return two rows that are the same take, and how many rows are too many; None without any."""
    cells = items * (int(epochs.max(initial=0)) + 1) + epochs
    order = np.argsort(cells, kind="stable")
    again = np.flatnonzero(cells[order][1:] == cells[order][:-1])
    if not len(again):
        return None
    return int(order[again[0]]), int(order[again[0] + 1]), len(again)


def spread(items: Codes, epochs: Codes, scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the scores of takes as an array of items and epochs, shape (M, R), NaN for no take."""
    matrix = np.full((int(items.max()) + 1, int(epochs.max()) + 1), np.nan)
    matrix[items, epochs] = scores
    return matrix
