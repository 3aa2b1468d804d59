"""Successes and trials that stay on disk, for estimators that need matrix products only.

* `StoredCells`, `stored_counts`: the cells of a store, a few items at a time
* `low_rank`: fewer columns that stand for many, which makes these products cheaper
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evalstats_plugin.data.matrix import check_unit_range
from evalstats_plugin.data.store import ResponseStore
from evalstats_plugin.errors import DesignError, few
from evalstats_plugin.irt.model.data import PARTIAL, Counts, check_answered, check_names
from evalstats_plugin.runtime.torch import linalg, resolve_device, resolve_dtype
from evalstats_plugin.stats.arrays import BoolArray, IntArray

_CELLS = 2**18
"""Numbers that are multiplied at once, so that they stay in the processor's cache."""

_MODELS = 2**13
"""Models that are multiplied at once, so that there is room for several items."""

_CELLS_ELSEWHERE = 2**24
"""Numbers that are multiplied at once on other devices, of all models."""

_KEPT = 2**30
"""Largest number of answers whose bits are kept in memory: 128 MB, and as much for the missing."""

_SHARES = 16
"""Items are summed in so many shares, so that numbers do not depend on the number of processes."""

ACCURACY = 1e-12
"""Largest share that `low_rank` leaves out (Frobenius norms)."""

_FEWEST = 32
"""With fewer columns a decomposition takes more time than it can save."""


def stored_counts(
    store: ResponseStore,
    *,
    device: str | torch.device = "auto",
    dtype: str | torch.dtype = "float64",
) -> Counts:
    """Count successes and trials as `counts_of` does, leaving them on disk.

    Raises
    ------
    DesignError
        One model, a duplicate name, scores outside [0, 1], items without a score, or models that no
        common item links.
    """
    m = store.shape[1]
    check_names(store.models, m)
    like = torch.zeros(0, dtype=resolve_dtype(dtype), device=resolve_device(device))
    right = StoredCells(store, "right", np.arange(m), like)
    complete = _check_store(store)
    trials = StoredCells(store, "trials", np.arange(m), like, complete=complete)
    notes = [*store.notes, *([PARTIAL] if store.coding.levels != 1 else [])]
    return Counts(cast("Tensor", right), cast("Tensor", trials), tuple(notes))


def _check_store(store: ResponseStore) -> bool:
    """Return whether no score is missing; raise if abilities cannot be compared."""
    if store.coding.levels is None:
        for block in store.blocks():
            check_unit_range(block)
    complete = True
    group = np.arange(len(store.models))
    while True:
        before = group.copy()
        for part in store.slices():
            missing = store.missing(part)
            if missing is None:
                group[:] = 0
                continue
            complete = False
            answered: BoolArray = np.any(~missing, axis=2)
            check_answered(store.item_ids[part][~answered.any(axis=1)])
            if not group.any():
                continue
            # Models that answered an item join the group of the first among them.
            first = np.where(answered, group, len(group)).min(axis=1)
            lowest = np.where(answered, first[:, None], len(group)).min(axis=0)
            group = np.minimum(group, lowest)
        # A single group needs no second pass.
        if not group.any() or (group == before).all():
            break
    group_numbers = np.unique(group)
    if len(group_numbers) > 1:
        names = few([store.models[int(i)] for i in group_numbers])
        raise DesignError(
            f"the models fall apart into {len(group_numbers)} groups that answered no common item, "
            f"so their abilities cannot be compared; the first of each: {names}. Fit each group by "
            "itself, or add items or models that link them"
        )
    return complete


@dataclass(frozen=True, eq=False)
class StoredCells:
    """Successes or trials of N models on the items at `places` of a store."""

    store: ResponseStore
    what: Literal["right", "trials"]
    places: IntArray
    """Shape (M,), ascending."""
    like: Tensor
    """A tensor of the dtype and on the device of the results."""
    complete: bool = False
    """Whether no score is missing."""
    kept: dict[int, NDArray[np.uint8] | None] = field(
        default_factory=dict[int, "NDArray[np.uint8] | None"], repr=False
    )
    """Bits of the row groups read before, by their first item; None where all are 0."""

    @property
    def shape(self) -> tuple[int, int]:
        """N and M."""
        return len(self.store.models), len(self.places)

    @property
    def device(self) -> torch.device:
        """Device of the products."""
        return self.like.device

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the products."""
        return self.like.dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: tuple[slice, slice | Tensor]) -> StoredCells:
        """Select items by a slice or mask, for all models."""
        models, items = key
        if models != slice(None):
            raise TypeError("cells on disk are cut by items only: write cells[:, items]")
        at = items if isinstance(items, slice) else items.cpu().numpy()
        return replace(self, places=self.places[at])

    def __matmul__(self, columns: Tensor) -> Tensor:
        """(N, M) @ (M, k)."""
        left, right = low_rank(columns)
        shares = self.like.new_zeros(_SHARES, left.shape[1], len(self))
        for share, items, models, block in self._blocks():
            # (k, m) @ (m, n) is twice as fast as its transpose.
            shares[share][:, models].addmm_(left[items].T, block)
        total = _of_all(shares).sum(dim=0).T
        if self.what == "trials":
            total = self.store.n_epochs * left.sum(dim=0) - total
        return total if right is None else total @ right

    def __rmatmul__(self, rows: Tensor) -> Tensor:
        """(k, N) @ (N, M)."""
        total = self.like.new_zeros(len(rows), self.shape[1])
        for _, items, models, block in self._blocks():
            total[:, items].addmm_(rows[:, models], block.T)
        total = _of_all(total)
        if self.what == "trials":
            return self.store.n_epochs * rows.sum(dim=1, keepdim=True) - total
        return total

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Let ``tensor @ cells`` find `__rmatmul__`."""
        if getattr(func, "__name__", "") in ("__matmul__", "matmul") and isinstance(args[1], cls):
            return args[1].__rmatmul__(args[0])
        return NotImplemented

    def common_row(self) -> Tensor | None:
        """Return the trials of every model, shape (1, M), if no score is missing."""
        if not (self.complete and self.what == "trials"):
            return None
        return self.like.new_full((1, self.shape[1]), float(self.store.n_epochs))

    def sum(self, dim: int) -> Tensor:
        """Sum over the models (0) or the items (1)."""
        row = self.common_row()
        if row is not None:
            return row[0] * len(self) if dim == 0 else row.sum().expand(len(self))
        if dim == 0:
            return (self.like.new_ones(1, len(self)) @ self)[0]
        return (self @ self.like.new_ones(self.shape[1], 1))[:, 0]

    def _blocks(self) -> Iterator[tuple[int, slice, slice, Tensor]]:
        """Yield blocks (m, n) of this process, with their share, items and models.

        Blocks of trials count the missing ones: if few are missing, most blocks are left out.
        Use each block before the next: they lie in the same memory.
        """
        groups = list(self.store.slices())
        starts = np.searchsorted(self.places, [group.start for group in groups])
        # Whole row groups: each is read by one process, once.
        shares = (starts * _SHARES // max(len(self.places), 1)).tolist()
        stops = [*starts[1:].tolist(), len(self.places)]
        # Of those that `torchrun` started.
        mine = range(_SHARES)
        if torch.distributed.is_initialized():
            rank, count = torch.distributed.get_rank(), torch.distributed.get_world_size()
            mine = range(rank, _SHARES, count)
        # Items and models of a block.
        height, width = max(1, _CELLS_ELSEWHERE // len(self)), len(self)
        if self.device.type == "cpu":
            width = min(len(self), _MODELS)
            height = _CELLS // width
        levels = self.store.coding.levels if self.what == "right" else None
        space = self.like.new_empty(height * width)
        for group, start, stop, share in zip(groups, starts.tolist(), stops, shares, strict=True):
            if start == stop or share not in mine:
                continue
            cells = self._read(group, self.places[start:stop] - group.start)
            for a, b in product(range(0, len(cells), height), range(0, len(self), width)):
                part = cells[a : a + height, b : b + width]
                items = slice(start + a, start + a + len(part))
                # Sums over the epochs.
                total = part[:, :, 0] if part.shape[2] == 1 else part.sum(2, dtype=np.float64)
                numbers = space[: total.size].view(total.shape)
                numbers.copy_(torch.as_tensor(total).to(self.device))
                if levels not in (None, 1):
                    numbers.div_(levels)
                yield share, items, slice(b, b + width), numbers

    def _read(self, group: slice, inside: IntArray) -> NDArray[Any]:
        """Read bytes or floats, shape (m, N, R); no items where all are 0."""
        if self.what == "right" and self.store.coding.levels != 1:
            cells = self.store.filled(group)
            cells = cells if self.store.coding.levels else np.where(np.isnan(cells), 0.0, cells)
        elif (cells := self._zeros_and_ones(group)) is None:
            return np.empty((0, 0, 0))
        return cells if len(inside) == len(cells) else cells[inside]

    def _zeros_and_ones(self, group: slice) -> NDArray[np.uint8] | None:
        """Read what is right or missing as bytes, which convert to numbers faster than booleans."""
        n, _, n_epochs = self.store.shape
        if group.start in self.kept:
            bits = self.kept[group.start]
            cells = None if bits is None else np.unpackbits(bits, axis=1, count=n * n_epochs)
            return None if cells is None else cells.reshape(-1, n, n_epochs)
        if self.what == "right":
            cells = self.store.filled(group)
        else:
            missing = self.store.missing(group)
            cells = None if missing is None else missing.view(np.uint8)
        if math.prod(self.store.shape) <= _KEPT:
            flat = None if cells is None else np.packbits(cells.reshape(len(cells), -1), axis=1)
            self.kept[group.start] = flat
        return cells


def _of_all(part: Tensor) -> Tensor:
    """Add up the parts of all processes."""
    if torch.distributed.is_initialized():
        torch.distributed.all_reduce(part)
    return part


def low_rank(columns: Tensor) -> tuple[Tensor, Tensor | None]:
    """Factor `columns` (M, k) into U (M, r) and V (r, k); V is None if that saves nothing.

    Directions of the smallest singular values are left out. Curves at a hundred points span a few
    dozen directions. V has orthonormal rows, so no error grows in ``(cells @ U) @ V``.

    >>> wide = torch.rand(500, 2, dtype=torch.float64) @ torch.rand(2, 90, dtype=torch.float64)
    >>> left, right = low_rank(wide)
    >>> left.shape[1], torch.allclose(left @ right, wide)
    (2, True)
    """
    m, k = columns.shape
    # In single precision the small directions are only rounding errors.
    if k < _FEWEST or m < 2 * k or columns.dtype != torch.float64:
        return columns, None
    # The triangle has the singular values of the columns to the last digit; their products with one
    # another would lose half of the digits.
    triangle = linalg.qr(columns, mode="r")[1]
    _, size, directions = linalg.svd(triangle)
    left_out = size.square().flip(0).cumsum(0).flip(0).sqrt()
    rank = int((left_out > ACCURACY * left_out[0]).sum())
    if 4 * rank > 3 * k:
        return columns, None
    back = directions[: max(rank, 1)]
    return columns @ back.T, back
