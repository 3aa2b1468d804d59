"""Who of two models gets an item right, counted while items come in block by block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


class PairTally:
    """Counts of items for K models paired with all N: what a comparison of 0/1 scores goes by.

    Items that every model answered add to counts of single models; only those that some lack add
    to counts of pairs.
    """

    def __init__(self, n_models: int, rows: NDArray[np.int64]) -> None:
        self.rows = rows
        """Shape (K,): the models that are paired."""
        self.is_binary = True
        """Whether every score so far is 0 or 1."""
        self.n_answered, self.right, self._right_of_all = np.zeros((3, n_models))
        """Shape (N,): items with a score, items right, and those right that all answered."""
        self._n_of_all = 0
        self._both = np.zeros((len(rows), n_models))
        self._some: _Some | None = None
        self._row_of = np.full(n_models, -1)
        self._row_of[rows] = np.arange(len(rows))

    def add(self, codes: NDArray[Any], there: NDArray[np.bool_] | None, top: float) -> None:
        """Count a block of items.

        Parameters
        ----------
        codes : shape (m, N, R)
            0 where there is none.
        there : shape (m, N, R)
            Which of them are scores; None for all.
        top
            The code of score 1.
        """
        seen: NDArray[np.bool_] | None = None if there is None else np.any(there, axis=2)
        self.n_answered += len(codes) if seen is None else seen.sum(axis=0)
        if self.is_binary and (codes.shape[2] > 1 or not _are_binary(codes, there, top)):
            self.is_binary = False
        right = self._add_right(codes[:, :, 0] == top, seen) if self.is_binary else None
        if seen is None:
            self._n_of_all += len(codes)
            return
        if self._some is None:
            self._some = _Some.of(*self._both.shape)
        numbers: NDArray[np.float32] = seen.astype(np.float32)
        self._some.add(right, numbers, self.rows)

    def _add_right(
        self, right: NDArray[np.bool_], seen: NDArray[np.bool_] | None
    ) -> NDArray[np.float32]:
        right = right if seen is None else right & seen
        # Whole numbers below 2^24 are exact in single precision, and twice as fast.
        numbers = right.astype(np.float32)
        self._both += numbers[:, self.rows].T @ numbers
        count = right.sum(axis=0)
        self.right += count
        if seen is None:
            self._right_of_all += count
        return numbers

    def n_items(self, a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.int64]:
        """Items with a score of both models of each pair, shape (P,); `a` are among the rows."""
        n = np.full(len(a), self._n_of_all)
        if self._some is not None:
            n = n + self._some.seen[self._row_of[a], b].astype(np.int64)
        return n

    def tables(self, a: NDArray[np.int64], b: NDArray[np.int64]) -> FloatArray:
        """Items that both get right, only a, only b, and neither; shape (4, P)."""
        rows = self._row_of[a]
        both = self._both[rows, b]
        # Of the items that have a score of both.
        of_a, of_b = self._right_of_all[a], self._right_of_all[b]
        if self._some is not None:
            of_a, of_b = of_a + self._some.of_row[rows, b], of_b + self._some.of_other[rows, b]
        return np.stack([both, of_a - both, of_b - both, self.n_items(a, b) - of_a - of_b + both])


@dataclass(eq=False)
class _Some:
    """Of the items that some model lacks; each of shape (K, N)."""

    seen: FloatArray
    """Items with a score of both."""
    of_row: FloatArray
    """Of those, right by the model of the row."""
    of_other: FloatArray
    """Right by the other."""

    @classmethod
    def of(cls, k: int, n: int) -> _Some:
        of_row = np.zeros((k, n))
        # Where all are paired with all, what holds for the other is the transpose.
        return cls(np.zeros((k, n)), of_row, of_row.T if k == n else np.zeros((k, n)))

    def add(
        self,
        right: NDArray[np.float32] | None,
        seen: NDArray[np.float32],
        rows: NDArray[np.int64],
    ) -> None:
        self.seen += (of_rows := seen[:, rows].T) @ seen
        if right is None:
            return
        self.of_row += right[:, rows].T @ seen
        if len(rows) < len(self.of_other.T):
            self.of_other += of_rows @ right


def _are_binary(codes: NDArray[Any], there: NDArray[np.bool_] | None, top: float) -> bool:
    if top == 1 and codes.dtype == np.uint8:
        return True
    plain = (codes == 0) | (codes == top)
    return bool((plain if there is None else plain | ~there).all())
