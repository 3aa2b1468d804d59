"""Successes and trials on disk, for estimators that need their products only.

A `StoredCells` stands where estimators have a tensor of shape (N, M) and take ``rows @ cells``,
``cells @ columns``, ``cells[:, part]`` or ``cells.sum(dim)``: each reads the store once, a few
items at a time. What is 0 or 1 is kept in a bit each once it was read, where there are not too
many; no more of it is held as numbers than is multiplied. Processes of one `torch.distributed`
group share the reading: start them by ``torchrun``; each calls ``init_process_group``, `fit_irt`.
"""

# torch's stubs leave parts of these calls untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evalstats_plugin.errors import DesignError, SelectionError
from evalstats_plugin.irt.data import PARTIAL, Counts, check_names
from evalstats_plugin.irt.low_rank import narrowed
from evalstats_plugin.response_store import ResponseStore
from evalstats_plugin.sampling.devices import resolve_device, resolve_dtype
from evalstats_plugin.score_range import check_unit_range
from evalstats_plugin.wording import few

_CELLS = 2**18
"""Numbers that are multiplied at once: they stay in the processor's cache."""
_MODELS = 2**13
"""Models at once, so that some items are too."""
_CELLS_ELSEWHERE = 2**24
"""Numbers on other devices, of all models."""

_KEPT = 2**30
"""Answers of a store up to which their bits are kept: 128 MB, and as much for what is missing."""

_SHARES = 16
"""Items are summed in so many shares, whoever sums them: each number is then the same however many
processes there are."""


def _own_shares() -> range:
    """Those of this process, among those that `torchrun` started."""
    if not torch.distributed.is_initialized():
        return range(_SHARES)
    return range(torch.distributed.get_rank(), _SHARES, torch.distributed.get_world_size())


def _of_all(part: Tensor) -> Tensor:
    """Put together what each process has, which is 0 elsewhere."""
    if torch.distributed.is_initialized():
        torch.distributed.all_reduce(part)
    return part


@dataclass(frozen=True, eq=False)
class StoredCells:
    """Successes or trials of N models on the items at `places` of a store."""

    store: ResponseStore
    what: Literal["right", "trials"]
    places: NDArray[np.int64]
    """Shape (M,), ascending."""
    like: Tensor
    """Of the dtype and on the device that results have."""
    complete: bool = False
    """Whether no score is missing."""
    kept: dict[int, NDArray[np.uint8] | None] = field(default_factory=dict, repr=False)
    """Bits of row groups that were read, by their first item; None where all are 0."""

    @property
    def shape(self) -> tuple[int, int]:
        """N and M."""
        return len(self.store.models), len(self.places)

    @property
    def device(self) -> torch.device:
        """Of the products."""
        return self.like.device

    @property
    def dtype(self) -> torch.dtype:
        """Of the products."""
        return self.like.dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: tuple[slice, slice | Tensor]) -> StoredCells:
        """The items of a slice or mask, of all models."""
        models, items = key
        if models != slice(None):
            msg = "cells on disk are cut by items only, expected cells[:, items]"
            raise TypeError(msg)
        at = items if isinstance(items, slice) else items.cpu().numpy()
        return replace(self, places=self.places[at])

    def __matmul__(self, columns: Tensor) -> Tensor:
        """(N, M) @ (M, k)."""
        few, back = narrowed(columns)
        shares = self.like.new_zeros(_SHARES, few.shape[1], len(self))
        for share, items, models, block in self._blocks():
            # (k, m) @ (m, n) is twice as fast as its transpose.
            shares[share][:, models].addmm_(few[items].T, block)
        found = _of_all(shares).sum(dim=0).T
        if self.what == "trials":
            found = self.store.n_epochs * few.sum(dim=0) - found
        return found if back is None else found @ back

    def __rmatmul__(self, rows: Tensor) -> Tensor:
        """(k, N) @ (N, M)."""
        found = self.like.new_zeros(len(rows), self.shape[1])
        for _, items, models, block in self._blocks():
            found[:, items].addmm_(rows[:, models], block.T)
        found = _of_all(found)
        if self.what == "trials":
            return self.store.n_epochs * rows.sum(dim=1, keepdim=True) - found
        return found

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Let ``tensor @ cells`` find `__rmatmul__`."""
        if getattr(func, "__name__", "") in ("__matmul__", "matmul") and isinstance(args[1], cls):
            return args[1].__rmatmul__(args[0])
        return NotImplemented

    def common_row(self) -> Tensor | None:
        """Trials of every model alike, shape (1, M), where nothing is missing."""
        if not (self.complete and self.what == "trials"):
            return None
        return self.like.new_full((1, self.shape[1]), float(self.store.n_epochs))

    def sum(self, dim: int) -> Tensor:
        """Over the models (0) or the items (1)."""
        row = self.common_row()
        if row is not None:
            return row[0] * len(self) if dim == 0 else row.sum().expand(len(self))
        if dim == 0:
            return (self.like.new_ones(1, len(self)) @ self)[0]
        return (self @ self.like.new_ones(self.shape[1], 1))[:, 0]

    def new_zeros(self, *size: int) -> Tensor:
        """As a tensor's."""
        return self.like.new_zeros(*size)

    def new_tensor(self, values: Any) -> Tensor:
        """As a tensor's."""
        return self.like.new_tensor(values)

    def _blocks(self) -> Iterator[tuple[int, slice, slice, Tensor]]:
        """Blocks (m, n) of this process's shares: of which share, which items, which models.

        Of trials it is those that are missing: where most are there, most blocks are left out.
        Each is to be used before the next is asked for: they lie in the same memory.
        """
        groups = list(self.store.slices())
        starts = np.searchsorted(self.places, [group.start for group in groups])
        # Whole row groups: each is read by one process, once.
        shares = (starts * _SHARES // max(len(self.places), 1)).tolist()
        stops = [*starts[1:].tolist(), len(self.places)]
        mine, (height, width) = _own_shares(), self._at_once()
        space = self.like.new_empty(height * width)
        for group, start, stop, share in zip(groups, starts.tolist(), stops, shares, strict=True):
            if start == stop or share not in mine:
                continue
            cells = self._read(group, self.places[start:stop] - group.start)
            for a, b in product(range(0, len(cells), height), range(0, len(self), width)):
                part = cells[a : a + height, b : b + width]
                items = slice(start + a, start + a + len(part))
                yield share, items, slice(b, b + width), self._numbers(part, space)

    def _at_once(self) -> tuple[int, int]:
        """Items and models of a block."""
        if self.device.type != "cpu":
            return max(1, _CELLS_ELSEWHERE // len(self)), len(self)
        width = min(len(self), _MODELS)
        return _CELLS // width, width

    def _read(self, group: slice, inside: NDArray[np.int64]) -> NDArray[Any]:
        """Bytes or floats, shape (m, N, R); no items where all are 0."""
        if self.what == "right" and self.store.coding.levels != 1:
            cells = self.store.filled(group)
            cells = cells if self.store.coding.levels else np.where(np.isnan(cells), 0.0, cells)
        elif (cells := self._zeros_and_ones(group)) is None:
            return np.empty((0, 0, 0))
        return cells if len(inside) == len(cells) else cells[inside]

    def _zeros_and_ones(self, group: slice) -> NDArray[np.uint8] | None:
        """Of what is right, or what is missing; bytes become numbers faster than truth values."""
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

    def _numbers(self, cells: NDArray[Any], space: Tensor) -> Tensor:
        """Summed over epochs, as numbers in `space`; shape (m, n)."""
        total = cells[:, :, 0] if cells.shape[2] == 1 else cells.sum(2, dtype=np.float64)
        numbers = space[: total.size].view(total.shape)
        numbers.copy_(torch.from_numpy(total).to(self.device))
        levels = self.store.coding.levels if self.what == "right" else None
        return numbers if levels in (None, 1) else numbers.div_(levels)


def stored_counts(
    store: ResponseStore,
    options: Mapping[str, Any],
    *,
    device: str | torch.device = "auto",
    dtype: str | torch.dtype = "float64",
) -> Counts:
    """Count successes and trials as `counts_of` does, leaving them on disk.

    Raises
    ------
    SelectionError
        Options that need all answers in memory.
    DesignError
        One model, a name there twice, scores outside [0, 1], items without a score, or models that
        fall apart into groups without a common item.
    """
    for name in ("std_errors", "sandwich"):
        if options.get(name):
            msg = f"option {name} found, which needs all answers in memory: pass store.matrix()"
            raise SelectionError(msg)
    m = store.shape[1]
    check_names(store.models, m)
    like = torch.zeros(0, dtype=resolve_dtype(dtype), device=resolve_device(device))
    right = StoredCells(store, "right", np.arange(m), like)
    complete = _check(store)
    trials = StoredCells(store, "trials", np.arange(m), like, complete=complete)
    notes = [*store.notes, *([PARTIAL] if store.coding.levels != 1 else [])]
    return Counts(cast("Tensor", right), cast("Tensor", trials), tuple(notes))


def _check(store: ResponseStore) -> bool:
    """Whether no score is missing; raise where abilities could not be compared."""
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
            there: NDArray[np.bool_] = np.any(~missing, axis=2)
            _check_answered(store, part, there)
            if not group.any():
                continue
            # Models of an item are of the group of the first among them.
            first = np.where(there, group, len(group)).min(axis=1)
            lowest = np.where(there, first[:, None], len(group)).min(axis=0)
            group = np.minimum(group, lowest)
        # All in one group need no second look.
        if not group.any() or (group == before).all():
            break
    apart = np.unique(group)
    if len(apart) > 1:
        names = few([store.models[i] for i in apart])
        msg = (
            f"the models fall apart into {len(apart)} groups that answered no common item, so "
            f"their abilities cannot be compared; the first of each: {names}. Fit each group by "
            "itself, or add items or models that link them"
        )
        raise DesignError(msg)
    return complete


def _check_answered(store: ResponseStore, part: slice, there: NDArray[np.bool_]) -> None:
    empty = np.flatnonzero(~there.any(axis=1))
    if len(empty):
        names = few([str(store.item_ids[part][j]) for j in empty])
        msg = f"{len(empty)} items have no score of any model ({names}): leave them out"
        raise DesignError(msg)
