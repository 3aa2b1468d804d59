"""Response matrices larger than memory: Parquet on disk, read in blocks of items."""
# PART score_coding - Scores as bytes, where that loses nothing.
# PART stored - Response stores for analyses of one task or model at a time: some models are read at once.

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.data.matrix import part as cut
from evalstats_plugin.data.responses import Responses, Source
from evalstats_plugin.errors import DesignError, LogError, SelectionError
from evalstats_plugin.runtime.files import rebuilding, signed_meta

KEY = b"evalstats_responses"


_MAGIC = b"PAR1"


ROWS = 1024
"""Items of a row group: what is read at once."""


LARGE = 2**27
"""Answers from which on commands leave them on disk: a gigabyte of numbers."""


Models: TypeAlias = slice | NDArray[np.int64]
"""Some of the models: a slice, or their numbers."""


_CELLS = ("scores", "missing")


TEXTS = ("item", "task", "metric", "cluster", "hash")


Codes = NDArray[Any]
"""Bytes, or 64-bit floats."""


_BLOCK_CELLS = 2**24
"""Scores in memory at once: 128 MB of them, and about as much again while they are read."""


class ResponseStore:
    """Scores of N models on M items in R epochs, in one Parquet file or a folder of them.

    Only names are in memory; `blocks` reads the scores, some items at a time. Written by
    `write_store`; `fit_irt` and `intervals` take it where they take a matrix, and a part of it is
    a matrix for whatever else.

    Raises
    ------
    LogError
        No such file, another file, or files of different models.
    """

    def __init__(self, path: str | Path) -> None:
        pq: Any = import_module("pyarrow.parquet")
        self.path = Path(path)
        parts = sorted(self.path.glob("*.parquet")) if self.path.is_dir() else [self.path]
        metas = [_metadata(pq, part) for part in parts]
        if not metas:
            raise LogError(f"{path} holds no Parquet file, expected a response store")
        if any(meta != metas[0] for meta in metas):
            msg = (
                f"{path}: its files differ in models, epochs or coding, expected parts of one store"
            )
            raise LogError(msg)
        with _opened(self.path):
            self.models: tuple[str, ...] = tuple(metas[0]["models"])
            self.n_epochs: int = metas[0]["n_epochs"]
            self.coding = Coding(metas[0]["levels"])
            self.notes: tuple[str, ...] = tuple(metas[0]["notes"])
            files = [pq.ParquetFile(part, page_checksum_verification=True) for part in parts]
            # Both are there, and of a fixed width, or what was written has been lost since.
            _ = [f.schema_arrow.field(n).type.byte_width for f in files for n in _CELLS]
            self._groups = [(f, g) for f in files for g in range(f.metadata.num_row_groups)]
            sizes = [f.metadata.row_group(g).num_rows for f, g in self._groups]
            self._starts = [0, *accumulate(sizes)]
            self.item_ids, self.tasks, self.metrics = (
                np.asarray(_texts(files, name)) for name in TEXTS[:3]
            )
            self.clusters = _all_or_none(_texts(files, "cluster"))
            self.item_hashes = _all_or_none(_texts(files, "hash"))
        if twice := first_twice(self.item_ids, self.tasks, self.metrics, seen=set()):
            raise LogError(f"{path}: {twice}, expected each once, in one of its files")

    def __repr__(self) -> str:
        n, m, n_epochs = self.shape
        return f"<ResponseStore {self.path}: {n:,} models, {m:,} items, epochs: {n_epochs}>"

    def __iter__(self) -> NoReturn:
        """Refuse: analyses that hold all answers look for responses in whatever they are given."""
        msg = (
            "a response store found, which fit_irt, intervals and compare read a part at a time; "
            "for anything else take a part into memory: store.matrix(items, models)"
        )
        raise SelectionError(msg)

    @property
    def shape(self) -> tuple[int, int, int]:
        """N, M and R."""
        return len(self.models), self._starts[-1], self.n_epochs

    def codes(
        self, items: slice, models: Models = slice(None)
    ) -> tuple[Codes, NDArray[np.bool_] | None]:
        """Codes and what is missing, both (m, n, R); None where nothing is.

        An item is a row: the transpose of a matrix's scores.
        """
        found: list[Codes] = []
        masks: list[NDArray[np.bool_] | None] = []
        for k, inside in self._groups_of(items):
            table = self._group(k, ("scores", "missing"))
            found.append(self._codes_in(table)[inside, models])
            mask = self._missing_in(table)
            masks.append(None if mask is None else mask[inside, models])
        shape = (len(np.arange(len(self.models))[models]), self.n_epochs)
        shapes = [codes.shape for codes in found]
        return _joined(found, shape, self.coding.dtype), _joined_masks(shapes, masks)

    def filled(self, items: slice) -> Codes:
        """Codes of all models alone, (m, N, R): 0 where missing, NaN in place of floats."""
        found = [self._codes_in(self._group(k, ("scores",)))[i] for k, i in self._groups_of(items)]
        return _joined(found, (len(self.models), self.n_epochs), self.coding.dtype)

    def missing(self, items: slice) -> NDArray[np.bool_] | None:
        """Which scores of all models are missing, (m, N, R), without reading any; None for none."""
        tables = [(self._group(k, ("missing",)), i) for k, i in self._groups_of(items)]
        masks = [None if (m := self._missing_in(t)) is None else m[i] for t, i in tables]
        shapes = [(i.stop - i.start, len(self.models), self.n_epochs) for _, i in tables]
        return _joined_masks(shapes, masks)

    def _groups_of(self, items: slice) -> Iterator[tuple[int, slice]]:
        """Row groups that hold some of the items, and where in them."""
        start, stop, _ = items.indices(self._starts[-1])
        for k in range(max(bisect_right(self._starts, start) - 1, 0), len(self._groups)):
            if self._starts[k] >= stop:
                break
            at, end = self._starts[k], self._starts[k + 1]
            yield k, slice(max(start - at, 0), min(stop, end) - at)

    def _group(self, k: int, columns: Sequence[str]) -> Any:
        file, group = self._groups[k]
        with _opened(self.path):
            return file.read_row_group(group, columns=list(columns))

    def _codes_in(self, table: Any) -> Codes:
        shape = (table.num_rows, len(self.models), self.n_epochs)
        return _bytes_of(table["scores"]).view(self.coding.dtype).reshape(shape)

    def _missing_in(self, table: Any) -> NDArray[np.bool_] | None:
        if table["missing"].null_count == table.num_rows:
            return None
        cells = len(self.models) * self.n_epochs
        whole = table["missing"].fill_null(bytes(-(-cells // 8)))
        packed = _bytes_of(whole).reshape(table.num_rows, -1)
        bits = np.unpackbits(packed, axis=1, count=cells, bitorder="little")
        return bits.view(np.bool_).reshape(table.num_rows, len(self.models), self.n_epochs)

    def scores(self, items: slice, models: Models = slice(None)) -> NDArray[np.float64]:
        """Scores of some models on some items, shape (n, m, R), NaN where missing."""
        codes, missing = self.codes(items, models)
        scores = codes.transpose(1, 0, 2).astype(np.float64) / (self.coding.levels or 1)
        if missing is not None:
            scores[missing.transpose(1, 0, 2)] = np.nan
        return scores

    def matrix(self, items: slice = slice(None), models: slice = slice(None)) -> ResponseMatrix:
        """Some items of some models, as a matrix in memory."""
        return ResponseMatrix(
            scores=self.scores(items, models),
            models=self.models[models],
            item_ids=self.item_ids[items],
            tasks=self.tasks[items],
            metrics=self.metrics[items],
            clusters=None if self.clusters is None else self.clusters[items],
            item_hashes=None if self.item_hashes is None else self.item_hashes[items],
            notes=self.notes,
        )

    def slices(self, n_items: int = ROWS) -> Iterator[slice]:
        """Slices of so many items at most, as few as read each row group once where these fit."""
        starts = self._starts
        at = 0
        while at < starts[-1]:
            whole = starts[bisect_right(starts, at + n_items) - 1]
            stop = whole if whole > at else min(at + n_items, starts[-1])
            yield slice(at, stop)
            at = stop

    def blocks(self, n_items: int = ROWS) -> Iterator[ResponseMatrix]:
        """Matrices of so many items each, one after the other."""
        return (self.matrix(part) for part in self.slices(n_items))


def is_store(path: Path) -> bool:
    """Whether a file, or the first of a folder, is of a response store."""
    parts = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not parts or not parts[0].is_file():
        return False
    with parts[0].open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            return False
    pa: Any = import_module("pyarrow")
    pq: Any = import_module("pyarrow.parquet")
    with suppress(OSError, pa.ArrowException):
        return KEY in (pq.read_schema(parts[0]).metadata or {})
    return False


@contextmanager
def _opened(path: Path) -> Generator[None, None, None]:
    """Turn what goes wrong with a file into an error about it."""
    pa: Any = import_module("pyarrow")
    with rebuilding(path):
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            raise LogError(f"{path} cannot be read as a response store: {error}") from error


def _metadata(pq: Any, path: Path) -> dict[str, Any]:
    """Check whose file it is."""
    other = "no response store of evalstats-plugin"
    with _opened(path):
        return signed_meta(path, pq.read_schema(path).metadata, KEY, other)


def first_twice(
    item_ids: NDArray[Any], tasks: NDArray[Any], metrics: NDArray[Any], *, seen: set[Any]
) -> str:
    """Say which item is there twice, or has been `seen` before, to which the others are added."""
    for key in zip(item_ids.tolist(), tasks.tolist(), metrics.tolist(), strict=True):
        if key in seen:
            return f"item {key[0]!r} of task {key[1]!r} found twice"
        seen.add(key)
    return ""


def _texts(files: list[Any], name: str) -> list[str | None]:
    return [value for file in files for value in file.read(columns=[name])[name].to_pylist()]


def _all_or_none(values: list[str | None]) -> NDArray[Any] | None:
    return None if any(value is None for value in values) else np.asarray(values)


def _bytes_of(column: Any) -> NDArray[np.uint8]:
    """The bytes of a column of fixed width, without a copy where it lies in one piece."""
    pieces = [
        np.frombuffer(piece.buffers()[1], np.uint8)[
            piece.offset * piece.type.byte_width : (piece.offset + len(piece))
            * piece.type.byte_width
        ]
        for piece in column.chunks
    ]
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def _joined(found: list[Codes], shape: tuple[int, int], dtype: Any) -> Codes:
    if not found:
        return np.empty((0, *shape), dtype)
    return found[0] if len(found) == 1 else np.concatenate(found)


def _joined_masks(
    shapes: Sequence[tuple[int, ...]], masks: list[NDArray[np.bool_] | None]
) -> NDArray[np.bool_] | None:
    if all(mask is None for mask in masks):
        return None
    whole: list[NDArray[np.bool_]] = [
        np.zeros(shape, dtype=bool) if mask is None else mask
        for shape, mask in zip(shapes, masks, strict=True)
    ]
    return whole[0] if len(whole) == 1 else np.concatenate(whole)


@dataclass(frozen=True)
class Coding:
    """How a score is kept: as a byte, score = code / levels, or as it is."""

    levels: int | None
    """1 for scores 0 and 1; None for 64-bit floats."""

    @classmethod
    def of(cls, scores: NDArray[np.float64]) -> Coding:
        """The least number of levels that holds these scores exactly.

        >>> Coding.of(np.array([0, .25, 1, np.nan])).levels
        4
        """
        values = np.unique(scores[~np.isnan(scores)])
        if len(values) > 256 or not ((values >= 0) & (values <= 1)).all():
            return cls(None)
        return cls(next((k for k in range(1, 256) if _are_whole(values * k)), None))

    def encode(self, scores: NDArray[np.float64]) -> Codes:
        """Missing scores become 0 where bytes are kept: the mask tells them.

        Raises
        ------
        DesignError
            A score that is none of the levels.
        """
        if self.levels is None:
            return scores
        codes = np.nan_to_num(scores * self.levels)
        if not _are_whole(codes) or codes.min(initial=0) < 0 or codes.max(initial=0) > 255:
            worst = float(codes[~np.isclose(codes, np.round(codes))].flat[0]) / self.levels
            msg = (
                f"score {worst:g} found, expected multiples of 1/{self.levels} from 0 to 1, as in "
                "the first block: pass as_float=True to keep any number"
            )
            raise DesignError(msg)
        return np.round(codes).astype(np.uint8)

    @property
    def dtype(self) -> type[np.uint8 | np.float64]:
        """Of the codes."""
        return np.float64 if self.levels is None else np.uint8


def _are_whole(values: NDArray[np.float64]) -> bool:
    return bool(np.allclose(values, np.round(values), rtol=0, atol=1e-9))


def by_models(store: ResponseStore, cells: int = _BLOCK_CELLS) -> Iterator[ResponseMatrix]:
    """Matrices of all items of a task, and of as many models as fit, task after task.

    A task whose items are not one after the other is read along with what lies between.
    """
    n, _, n_epochs = store.shape
    tasks, first = np.unique(store.tasks, return_index=True)
    for task in tasks[np.argsort(first)]:
        at = np.flatnonzero(store.tasks == task)
        span = slice(int(at[0]), int(at[-1]) + 1)
        size = max(1, cells // (n_epochs * (span.stop - span.start)))
        for start in range(0, n, size):
            part = store.matrix(span, slice(start, start + size))
            whole = len(at) == span.stop - span.start
            yield part if whole else cut(part, np.arange(len(part.models)), at - span.start)


@dataclass(frozen=True, eq=False)
class StoredTask:
    """A task of a store, under one metric."""

    store: ResponseStore
    task: str
    metric: str
    places: NDArray[np.int64]
    """Shape (M,): its items, ascending."""

    def scores(self, models: NDArray[np.int64]) -> NDArray[np.float64]:
        """Scores of some models on its items, shape (n, M, R)."""
        found = np.empty((len(models), len(self.places), self.store.n_epochs))
        for part in self.store.slices():
            start, stop = np.searchsorted(self.places, [part.start, part.stop])
            if start < stop:
                inside = self.places[start:stop] - part.start
                found[:, start:stop] = self.store.scores(part, models)[:, inside]
        return found

    def responses(self, models: NDArray[np.int64]) -> list[Responses]:
        """What some models answered."""
        store, at = self.store, self.places
        item_ids = store.item_ids[at]
        clusters = None if store.clusters is None else store.clusters[at]
        hashes = None if store.item_hashes is None else store.item_hashes[at]
        source = Source(path=store.path, harness="store")
        places: list[int] = models.tolist()
        return [
            Responses(
                model=store.models[i],
                task=self.task,
                metric=self.metric,
                item_ids=item_ids,
                scores=scores,
                clusters=clusters,
                item_hashes=hashes,
                source=source,
            )
            for i, scores in zip(places, self.scores(models), strict=True)
        ]

    def models_at_once(self) -> Iterator[NDArray[np.int64]]:
        """All models, by their numbers: as many at a time as fit."""
        size = max(1, _BLOCK_CELLS // max(1, len(self.places) * self.store.n_epochs))
        every = np.arange(len(self.store.models))
        return (every[start : start + size] for start in range(0, len(every), size))


def tasks_of(store: ResponseStore) -> list[StoredTask]:
    """Tasks under each of their metrics, in the order of their first items."""
    tasks, of_task = np.unique(store.tasks, return_inverse=True)
    metrics, of_metric = np.unique(store.metrics, return_inverse=True)
    keys = of_task * len(metrics) + of_metric
    distinct, first, sizes = np.unique(keys, return_index=True, return_counts=True)
    order: NDArray[np.int64] = np.argsort(keys, kind="stable")
    places: list[NDArray[np.int64]] = np.split(order, np.cumsum(sizes)[:-1])
    in_order: list[int] = np.argsort(first).tolist()
    return [
        StoredTask(
            store,
            str(tasks[distinct[k] // len(metrics)]),
            str(metrics[distinct[k] % len(metrics)]),
            places[k],
        )
        for k in in_order
    ]
