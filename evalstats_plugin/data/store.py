"""Response stores: matrices larger than memory, in Parquet files read in blocks of items.

`ResponseStore` reads scores of some items and models; `Coding` keeps a score as a byte where that
loses nothing. `by_models`, `tasks_of` and `StoredTask` read one task at a time, for some models.
`importing.write_store` writes stores.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.data.matrix import ResponseMatrix, submatrix
from evalstats_plugin.data.measure import Measure, MeasureByName
from evalstats_plugin.data.responses import Responses, Source
from evalstats_plugin.errors import DesignError, LogError, SelectionError
from evalstats_plugin.runtime.files import reporting_damage, verified_metadata
from evalstats_plugin.stats.arrays import BoolArray, FloatArray, IntArray

KEY = b"evalstats_responses"
_KINDS = {
    "models": "texts", "n_epochs": "a count", "levels": "a count or null", "notes": "texts"
}  # fmt: skip
"""Key of our metadata in Parquet files."""

_MAGIC = b"PAR1"
"""First bytes of a Parquet file."""

ROWS = 1024
"""Items of a row group, which is read at once."""

LARGE = 2**27
"""Number of scores (1 GiB of floats) above which commands leave them on disk."""

Models: TypeAlias = slice | IntArray
"""Some of the models: a slice, or their indices."""

TEXTS = ("item", "task", "metric", "cluster", "hash", "measure")
"""Columns of texts; the last is JSON."""

Codes = NDArray[Any]
"""Bytes, or 64-bit floats."""

_BLOCK_CELLS = 2**24
"""Most scores in memory at once: 128 MB, and about as much again while reading."""


class ResponseStore:
    """Scores of N models on M items in R epochs, in one Parquet file or a folder of them.

    Only names are in memory; `blocks` reads the scores, some items at a time. Written by
    `write_store`. `fit_irt`, `intervals` and `compare` accept a store in place of a matrix; for
    other analyses, `matrix` reads a part of it.

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
            raise LogError(f"{path} holds no Parquet file; name a response store")
        if any(meta != metas[0] for meta in metas):
            msg = f"files in {path} differ in models, epochs or coding; keep those of one store"
            raise LogError(msg)
        with _opened(self.path):
            self.models: tuple[str, ...] = tuple(metas[0]["models"])
            self.n_epochs: int = metas[0]["n_epochs"]
            self.coding = Coding(metas[0]["levels"])
            self.notes: tuple[str, ...] = tuple(metas[0]["notes"])
            files = [pq.ParquetFile(part, page_checksum_verification=True) for part in parts]
            cells = len(self.models) * self.n_epochs
            size = np.dtype(self.coding.dtype).itemsize
            widths = {"scores": cells * size, "missing": -(-cells // 8)}
            for name, width in widths.items():
                if any(f.schema_arrow.field(name).type.byte_width != width for f in files):
                    raise ValueError(f"the column {name!r} does not hold {cells} answers an item")
            self._groups = [(f, g) for f in files for g in range(f.metadata.num_row_groups)]
            sizes = [f.metadata.row_group(g).num_rows for f, g in self._groups]
            self._starts = [0, *accumulate(sizes)]
            self.item_ids, self.tasks, self.metrics = (
                np.asarray(_texts(files, name)) for name in TEXTS[:3]
            )
            columns = (self.item_ids, self.tasks, self.metrics)
            if any(names.ndim > 1 or (names.size and names.dtype.kind != "U") for names in columns):
                raise ValueError(f"the columns {', '.join(TEXTS[:3])} do not hold texts alone")
            held = [f.read(columns=["measure"])["measure"].unique().to_pylist() for f in files]
            stored = dict.fromkeys(text for texts in held for text in texts if text)
            self.measures: tuple[Measure, ...] = tuple(
                Measure.from_dict(json.loads(t)) for t in stored
            )
            self.measure_of = MeasureByName.of(self.measures)
            self.clusters = _all_or_none(_texts(files, "cluster"))
            self.item_hashes = _all_or_none(_texts(files, "hash"))
        if twice := first_twice(self.item_ids, self.tasks, self.metrics, seen=set()):
            raise LogError(f"{path}: {twice}; leave it in one of the files")

    def __repr__(self) -> str:
        n, m, n_epochs = self.shape
        return f"<ResponseStore {self.path}: {n:,} models, {m:,} items, epochs: {n_epochs}>"

    def __iter__(self) -> NoReturn:
        """Raise: analyses in memory would iterate over all scores."""
        raise SelectionError(
            "only fit_irt, intervals and compare read a response store a part at a time; for "
            "anything else take a part into memory: store.matrix(items, models)"
        )

    def under(self, measures: tuple[Measure, ...]) -> ResponseStore:
        """Return the same scores under other measures."""
        other = copy(self)
        other.measures, other.measure_of = measures, MeasureByName.of(measures)
        return other

    @property
    def shape(self) -> tuple[int, int, int]:
        """N, M and R."""
        return len(self.models), self._starts[-1], self.n_epochs

    def codes(self, items: slice, models: Models = slice(None)) -> tuple[Codes, BoolArray | None]:
        """Codes and the mask of missing scores, both (m, n, R); None where none are missing.

        Items are rows: the transpose of the scores of a matrix.
        """
        parts: list[Codes] = []
        masks: list[BoolArray | None] = []
        for k, inside in self._groups_of(items):
            table = self._group(k, ("scores", "missing"))
            parts.append(self._codes_in(table)[inside, models])
            mask = self._missing_in(table)
            masks.append(None if mask is None else mask[inside, models])
        shape = (len(np.arange(len(self.models))[models]), self.n_epochs)
        shapes = [codes.shape for codes in parts]
        return _joined(parts, shape, self.coding.dtype), _joined_masks(shapes, masks)

    def filled(self, items: slice) -> Codes:
        """Codes of all models, (m, N, R): where missing 0, or NaN for floats."""
        parts = [self._codes_in(self._group(k, ("scores",)))[i] for k, i in self._groups_of(items)]
        return _joined(parts, (len(self.models), self.n_epochs), self.coding.dtype)

    def missing(self, items: slice) -> BoolArray | None:
        """Mask of missing scores of all models, (m, N, R), or None; does not read scores."""
        tables = [(self._group(k, ("missing",)), i) for k, i in self._groups_of(items)]
        masks = [None if (m := self._missing_in(t)) is None else m[i] for t, i in tables]
        shapes = [(i.stop - i.start, len(self.models), self.n_epochs) for _, i in tables]
        return _joined_masks(shapes, masks)

    def _groups_of(self, items: slice) -> Iterator[tuple[int, slice]]:
        """Yield row groups that hold some of the items, and the slice of these items in each."""
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
        if table["scores"].null_count:
            raise LogError(f"{self.path} is damaged: the column 'scores' is empty for some items")
        return _bytes_of(table["scores"]).view(self.coding.dtype).reshape(shape)

    def _missing_in(self, table: Any) -> BoolArray | None:
        if table["missing"].null_count == table.num_rows:
            return None
        cells = len(self.models) * self.n_epochs
        whole = table["missing"].fill_null(bytes(-(-cells // 8)))
        packed = _bytes_of(whole).reshape(table.num_rows, -1)
        bits = np.unpackbits(packed, axis=1, count=cells, bitorder="little")
        return bits.view(np.bool_).reshape(table.num_rows, len(self.models), self.n_epochs)

    def scores(self, items: slice, models: Models = slice(None)) -> FloatArray:
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
            measures=self.measures,
            notes=self.notes,
        )

    def slices(self, n_items: int = ROWS) -> Iterator[slice]:
        """Yield slices of at most this many items, aligned with row groups where these fit."""
        starts = self._starts
        at = 0
        while at < starts[-1]:
            whole = starts[bisect_right(starts, at + n_items) - 1]
            stop = whole if whole > at else min(at + n_items, starts[-1])
            yield slice(at, stop)
            at = stop

    def blocks(self, n_items: int = ROWS) -> Iterator[ResponseMatrix]:
        """Yield matrices of at most this many items, one after the other."""
        return (self.matrix(part) for part in self.slices(n_items))


@contextmanager
def _opened(path: Path) -> Generator[None, None, None]:
    """Turn errors of pyarrow into a `LogError` that names the file."""
    pa: Any = import_module("pyarrow")
    with reporting_damage(path):
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            raise LogError(f"{path} cannot be read as a response store: {error}") from error


def _metadata(pq: Any, path: Path) -> dict[str, Any]:
    """Read our metadata, and check that the file is a response store."""
    other = "no response store of evalstats-plugin"
    with _opened(path):
        return verified_metadata(path, pq.read_schema(path).metadata, KEY, other, _KINDS)


def _texts(files: list[Any], name: str) -> list[str | None]:
    return [value for file in files for value in file.read(columns=[name])[name].to_pylist()]


def _all_or_none(values: list[str | None]) -> NDArray[Any] | None:
    return None if any(value is None for value in values) else np.asarray(values)


def first_twice(
    item_ids: NDArray[Any], tasks: NDArray[Any], metrics: NDArray[Any], *, seen: set[Any]
) -> str:
    """Name the first item that occurs twice or in `seen`; items are added to `seen`."""
    for key in zip(item_ids.tolist(), tasks.tolist(), metrics.tolist(), strict=True):
        if key in seen:
            return f"item {key[0]!r} of task {key[1]!r} is there twice"
        seen.add(key)
    return ""


def _bytes_of(column: Any) -> NDArray[np.uint8]:
    """Return the bytes of a column of fixed width, without a copy where it has one chunk."""
    pieces = [
        np.frombuffer(piece.buffers()[1], np.uint8)[
            piece.offset * piece.type.byte_width : (piece.offset + len(piece))
            * piece.type.byte_width
        ]
        for piece in column.chunks
    ]
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def _joined(parts: list[Codes], shape: tuple[int, int], dtype: Any) -> Codes:
    if not parts:
        return np.empty((0, *shape), dtype)
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _joined_masks(
    shapes: Sequence[tuple[int, ...]], masks: list[BoolArray | None]
) -> BoolArray | None:
    if all(mask is None for mask in masks):
        return None
    whole: list[BoolArray] = [
        np.zeros(shape, dtype=bool) if mask is None else mask
        for shape, mask in zip(shapes, masks, strict=True)
    ]
    return whole[0] if len(whole) == 1 else np.concatenate(whole)


def is_store(path: Path) -> bool:
    """Return whether a file, or the first of a folder, is a response store."""
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


@dataclass(frozen=True)
class Coding:
    """How a score is stored: as a byte, score = code / levels, or as a 64-bit float."""

    levels: int | None
    """1 for scores 0 and 1; None for 64-bit floats."""

    @classmethod
    def of(cls, scores: FloatArray) -> Coding:
        """Return the coding with the fewest levels that represents these scores exactly.

        >>> Coding.of(np.array([0, .25, 1, np.nan])).levels
        4
        """
        values = np.unique(scores[~np.isnan(scores)])
        if len(values) > 256 or not ((values >= 0) & (values <= 1)).all():
            return cls(None)
        for k in range(1, 256):
            if np.allclose(values * k, np.round(values * k), rtol=0, atol=1e-9):
                return cls(k)
        return cls(None)

    def encode(self, scores: FloatArray) -> Codes:
        """Encode scores; missing ones become 0 in bytes, and are stored in the mask.

        Raises
        ------
        DesignError
            A score that is not one of the levels.
        """
        if self.levels is None:
            return scores
        codes = np.nan_to_num(scores * self.levels)
        wrong = (codes < 0) | (codes > 255) | (np.abs(codes - np.round(codes)) > 1e-9)
        if wrong.any():
            worst = float(codes[wrong].flat[0]) / self.levels
            raise DesignError(
                f"score {worst:g} is no multiple of 1/{self.levels} from 0 to 1, as those of the "
                "first block are; pass as_float=True to keep any number"
            )
        return np.round(codes).astype(np.uint8)

    @property
    def dtype(self) -> type[np.uint8 | np.float64]:
        """Type of the codes."""
        return np.float64 if self.levels is None else np.uint8


def by_models(store: ResponseStore, cells: int = _BLOCK_CELLS) -> Iterator[ResponseMatrix]:
    """Yield matrices of all items of one task and as many models as fit, task after task.

    For a task whose items are not contiguous, the items in between are read too.
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
            yield part if whole else submatrix(part, slice(None), at - span.start)


def tasks_of(store: ResponseStore) -> list[StoredTask]:
    """Return the tasks under each of their metrics, in the order of their first items."""
    tasks, of_task = np.unique(store.tasks, return_inverse=True)
    metrics, of_metric = np.unique(store.metrics, return_inverse=True)
    keys = of_task * len(metrics) + of_metric
    distinct, first, sizes = np.unique(keys, return_index=True, return_counts=True)
    order: IntArray = np.argsort(keys, kind="stable")
    places: list[IntArray] = np.split(order, np.cumsum(sizes)[:-1])
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


@dataclass(frozen=True, eq=False)
class StoredTask:
    """One task of a store, under one metric."""

    store: ResponseStore
    task: str
    metric: str
    places: IntArray
    """Shape (M,): indices of its items, ascending."""

    def scores(self, models: IntArray) -> FloatArray:
        """Scores of some models on its items, shape (n, M, R)."""
        values = np.empty((len(models), len(self.places), self.store.n_epochs))
        for part in self.store.slices():
            start, stop = np.searchsorted(self.places, [part.start, part.stop])
            if start < stop:
                inside = self.places[start:stop] - part.start
                values[:, start:stop] = self.store.scores(part, models)[:, inside]
        return values

    def responses(self, models: IntArray) -> list[Responses]:
        """Return the responses of some models."""
        store, at = self.store, self.places
        item_ids = store.item_ids[at]
        clusters = None if store.clusters is None else store.clusters[at]
        hashes = None if store.item_hashes is None else store.item_hashes[at]
        source = Source(path=store.path, harness="store")
        places: list[int] = models.tolist()
        measure = store.measure_of[self.task, self.metric]
        return [
            Responses(
                model=store.models[i],
                measure=measure,
                item_ids=item_ids,
                scores=scores,
                clusters=clusters,
                item_hashes=hashes,
                source=source,
            )
            for i, scores in zip(places, self.scores(models), strict=True)
        ]

    def models_at_once(self) -> Iterator[IntArray]:
        """Yield indices of all models, as many at a time as fit in memory."""
        size = max(1, _BLOCK_CELLS // max(1, len(self.places) * self.store.n_epochs))
        every = np.arange(len(self.store.models))
        return (every[start : start + size] for start in range(0, len(every), size))
