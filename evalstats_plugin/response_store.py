"""Response matrices larger than memory: Parquet on disk, read in blocks of items."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.errors import LogError
from evalstats_plugin.matrix import ResponseMatrix
from evalstats_plugin.parquet import rebuilding, signed_meta
from evalstats_plugin.score_coding import Codes, Coding

KEY = b"evalstats_responses"
ROWS = 1024
"""Items of a row group: what is read at once."""
TEXTS = ("item", "task", "metric", "cluster", "hash")


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
            self._groups = [(f, g) for f in files for g in range(f.metadata.num_row_groups)]
            sizes = [f.metadata.row_group(g).num_rows for f, g in self._groups]
            self._starts = [0, *accumulate(sizes)]
            self.item_ids, self.tasks, self.metrics = (
                np.asarray(_texts(files, name)) for name in TEXTS[:3]
            )
            self.clusters = _all_or_none(_texts(files, "cluster"))
            self.item_hashes = _all_or_none(_texts(files, "hash"))

    @property
    def shape(self) -> tuple[int, int, int]:
        """N, M and R."""
        return len(self.models), self._starts[-1], self.n_epochs

    def codes(
        self, items: slice, models: slice = slice(None)
    ) -> tuple[Codes, NDArray[np.bool_] | None]:
        """Codes and what is missing, both (m, n, R); None where nothing is.

        An item is a row: the transpose of a matrix's scores.
        """
        start, stop, _ = items.indices(self._starts[-1])
        found: list[Codes] = []
        masks: list[NDArray[np.bool_] | None] = []
        for k in range(max(bisect_right(self._starts, start) - 1, 0), len(self._groups)):
            if self._starts[k] >= stop:
                break
            codes, missing = self._group(k)
            inside = slice(max(start - self._starts[k], 0), stop - self._starts[k])
            found.append(codes[inside, models])
            masks.append(None if missing is None else missing[inside, models])
        shape = (len(self.models[models]), self.n_epochs)
        return _joined(found, masks, shape, self.coding.dtype)

    def _group(self, k: int) -> tuple[Codes, NDArray[np.bool_] | None]:
        file, group = self._groups[k]
        with _opened(self.path):
            table: Any = file.read_row_group(group, columns=["scores", "missing"])
        n, cells = len(self.models), len(self.models) * self.n_epochs
        shape = (table.num_rows, n, self.n_epochs)
        codes: Codes = _bytes_of(table["scores"]).view(self.coding.dtype).reshape(shape)
        if table["missing"].null_count == table.num_rows:
            return codes, None
        packed = _bytes_of(table["missing"].fill_null(bytes(-(-cells // 8)))).reshape(shape[0], -1)
        bits = np.unpackbits(packed, axis=1, count=cells, bitorder="little")
        return codes, bits.view(np.bool_).reshape(shape)

    def matrix(self, items: slice = slice(None), models: slice = slice(None)) -> ResponseMatrix:
        """Some items of some models, as a matrix in memory."""
        codes, missing = self.codes(items, models)
        scores = codes.transpose(1, 0, 2).astype(np.float64) / (self.coding.levels or 1)
        if missing is not None:
            scores[missing.transpose(1, 0, 2)] = np.nan
        return ResponseMatrix(
            scores=scores,
            models=self.models[models],
            item_ids=self.item_ids[items],
            tasks=self.tasks[items],
            metrics=self.metrics[items],
            clusters=None if self.clusters is None else self.clusters[items],
            item_hashes=None if self.item_hashes is None else self.item_hashes[items],
            notes=self.notes,
        )

    def slices(self, n_items: int = ROWS) -> Iterator[slice]:
        """Slices of about so many items, whole row groups where these are no larger."""
        m = self._starts[-1]
        return (slice(a, min(a + n_items, m)) for a in range(0, m, n_items))

    def blocks(self, n_items: int = ROWS) -> Iterator[ResponseMatrix]:
        """Matrices of so many items each, one after the other."""
        return (self.matrix(part) for part in self.slices(n_items))


@contextmanager
def _opened(path: Path) -> Generator[None, None, None]:
    """Turn what goes wrong with a file into an error about it."""
    pa: Any = import_module("pyarrow")
    try:
        with rebuilding(path):
            yield
    except (OSError, pa.ArrowException) as error:
        raise LogError(f"{path} cannot be read as a response store: {error}") from error


def _metadata(pq: Any, path: Path) -> dict[str, Any]:
    """Check whose file it is."""
    other = "no response store of evalstats-plugin"
    with _opened(path):
        return signed_meta(path, pq.read_schema(path).metadata, KEY, other)


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


def _joined(
    found: list[Codes], masks: list[NDArray[np.bool_] | None], shape: tuple[int, int], dtype: Any
) -> tuple[Codes, NDArray[np.bool_] | None]:
    if not found:
        return np.empty((0, *shape), dtype), None
    codes: Codes = found[0] if len(found) == 1 else np.concatenate(found)
    if all(mask is None for mask in masks):
        return codes, None
    whole: list[NDArray[np.bool_]] = [
        np.zeros(c.shape, dtype=bool) if mask is None else mask
        for c, mask in zip(found, masks, strict=True)
    ]
    return codes, whole[0] if len(whole) == 1 else np.concatenate(whole)
