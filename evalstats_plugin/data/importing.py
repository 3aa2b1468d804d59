"""Import tables with one answer per row into response stores, without holding them in memory.

`store_table` reads CSV, Parquet or Feather files twice: once for the axes, once to scatter the
scores into a temporary file. `write_store` writes matrices, block by block, as a response store.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import chain
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.data.matrix import ResponseMatrix
from evalstats_plugin.data.measure import Measure, given
from evalstats_plugin.data.store import KEY, ROWS, TEXTS, Coding, ResponseStore, first_twice
from evalstats_plugin.errors import (
    DesignError,
    LogError,
    SelectionError,
    WriteError,
    counted,
    no_such,
)
from evalstats_plugin.runtime import writing
from evalstats_plugin.runtime.files import signed_metadata
from evalstats_plugin.stats.arrays import BoolArray, FloatArray

_NEEDED = ("model", "item", "score")
"""Parts of a row that must be there."""

_NAMES = ("model", "item", "task")
"""Those that are texts."""

_KNOWN = (*_NEEDED, "task", "epoch")
"""All parts of a row."""

_CHUNK = 2**24
"""Scores that are counted at a time."""

_BETWEEN = "\x1f"
"""Separator of task and item in a key."""


def store_table(
    source: str | Path | Sequence[str | Path],
    output: str | Path,
    *,
    columns: Mapping[str, str] | None = None,
    measure: Measure | None = None,
) -> ResponseStore:
    """Convert a table with one answer per row to a response store, without holding either.

    The table is read twice. Scores are collected in a temporary file beside the output, a byte
    each (eight if they are not multiples of 1/k).

    Parameters
    ----------
    source
        Parquet, Feather or CSV files, a pattern such as ``"answers/*.parquet"``, or a folder of
        Parquet files, as pyarrow datasets read them.
    columns
        Names of columns that differ from the default, by part: model, item and score, and
        optionally task and epoch.
    measure
        What is known of the scores: their scale, direction, and the metric's name.

    Raises
    ------
    LogError
        No such file, or not a file that pyarrow reads.
    SelectionError
        No such column.
    DesignError
        No rows, or two answers of one model to one item in one epoch.
    WriteError
        The store cannot be written, or the disk has no room for the temporary file.
    """
    table = _Table.open(source, columns or {})
    axes = _Axes.of(table)
    if not axes.models:
        raise DesignError(f"{source} has no rows. Write one row for each answer.")
    shape = (len(axes.keys), len(axes.models), len(axes.epochs))
    with _room_beside(
        Path(output), math.prod(shape) * np.dtype(axes.coding.dtype).itemsize
    ) as file:
        scores: Any = np.memmap(file, axes.coding.dtype, "r+", shape=shape)
        scores[:] = axes.empty
        _scatter(table, axes, scores.reshape(-1))
        return write_store(output, _blocks(axes, measure or Measure(), scores))


@contextmanager
def _room_beside(output: Path, size: int) -> Generator[IO[bytes]]:
    """Yield an unnamed temporary file of this size, in the folder of the output.

    The space is allocated at the start, because writing to mapped memory on a full disk kills the
    process.
    """
    folder = output.resolve().parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder) as file:
            if sys.platform == "linux":
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.truncate(size)
            yield file
    except OSError as error:
        msg = f"{output} cannot be written ({error.strerror or error}); what was there is unchanged"
        raise WriteError(msg) from error


@dataclass(frozen=True)
class _Table:
    dataset: Any
    columns: Mapping[str, str]
    """Name of the column of each part that the table has."""

    @classmethod
    def open(cls, source: Any, asked: Mapping[str, str]) -> _Table:
        pa: Any = import_module("pyarrow")
        ds: Any = import_module("pyarrow.dataset")
        patterns = [source] if isinstance(source, (str, Path)) else source
        paths = [path for pattern in map(str, patterns) for path in _matches(pattern)]
        if not paths:
            raise LogError("no file was named: name a table with a row for each answer")
        if unknown := [what for what in asked if what not in _KNOWN]:
            raise SelectionError(no_such("part of a row", unknown[0], _KNOWN, ", ".join(_KNOWN)))
        column_of = {what: asked.get(what, what) for what in _KNOWN}
        kind: Any = Path(paths[0]).suffix.lstrip(".").lower() or "parquet"
        if kind == "csv":
            # Names such as 007 and 1.10 are no numbers.
            texts = dict.fromkeys((column_of[what] for what in _NAMES), pa.string())
            csv: Any = import_module("pyarrow.csv")
            kind = ds.CsvFileFormat(convert_options=csv.ConvertOptions(column_types=texts))
        try:
            dataset = ds.dataset(paths[0] if len(paths) == 1 else paths, format=kind)
            names: list[str] = dataset.schema.names
        except (OSError, ValueError, pa.ArrowException) as error:
            raise LogError(f"{source} cannot be read as a table: {error}") from error
        for what, name in column_of.items():
            if name not in names and (what in _NEEDED or what in asked):
                raise SelectionError(no_such("column", name, names, ", ".join(names)))
        return cls(dataset, {what: name for what, name in column_of.items() if name in names})

    def batches(self) -> Iterator[dict[str, Any]]:
        """Yield model, key of the item, epoch and score of batches of rows, as Arrow arrays."""
        pa: Any = import_module("pyarrow")
        try:
            for batch in self.dataset.to_batches(columns=list(self.columns.values())):
                # Offsets of texts in Feather files are unchecked; wrong ones crash Python.
                batch.validate(full=True)
                if batch.num_rows:
                    yield self._parts(batch)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise LogError(f"{self.dataset.files[0]} cannot be read as a table: {error}") from error

    def _parts(self, batch: Any) -> dict[str, Any]:
        pa: Any = import_module("pyarrow")
        pc: Any = import_module("pyarrow.compute")
        part = {what: batch.column(name) for what, name in self.columns.items()}
        item = part["item"].cast(pa.string())
        task = part["task"].cast(pa.string()) if "task" in part else pa.scalar("task")
        return {
            "model": part["model"].cast(pa.string()),
            "key": pc.binary_join_element_wise(task, item, _BETWEEN, null_handling="replace"),
            "epoch": part.get("epoch"),
            "score": pc.cast(part["score"], pa.float64()).to_numpy(zero_copy_only=False),
        }


def _matches(pattern: str) -> list[str]:
    path = Path(pattern)
    if "://" in pattern or path.exists():
        return [pattern]
    start = Path(path.anchor)
    paths = sorted(map(str, start.glob(str(path.relative_to(start))))) if path.name else []
    if not paths:
        raise LogError(f"{pattern} does not exist: name a table with a row for each answer")
    return paths


@dataclass(frozen=True)
class _Axes:
    """Models, items and epochs of the rows, in order of first appearance."""

    models: list[str]
    keys: list[str]
    epochs: list[Any]
    coding: Coding

    @classmethod
    def of(cls, table: _Table) -> _Axes:
        models: dict[Any, None] = {}
        keys: dict[str, None] = {}
        epochs: dict[Any, None] = {}
        values: FloatArray = np.empty(0)
        for part in table.batches():
            models.update(dict.fromkeys(part["model"].unique().to_pylist()))
            keys.update(dict.fromkeys(part["key"].unique().to_pylist()))
            if part["epoch"] is not None:
                epochs.update(dict.fromkeys(part["epoch"].unique().to_pylist()))
            if len(values) <= 256:
                values = np.unique(np.concatenate([values, part["score"]]))
        # In CSV files an empty text is a missing name, too.
        for part, lacks in (
            ("model", bool({None, ""} & models.keys())),
            ("item", any(key.endswith(_BETWEEN) for key in keys)),
            ("task", any(key.startswith(_BETWEEN) for key in keys)),
            ("epoch", bool({None, ""} & epochs.keys())),
        ):
            if lacks:
                column = table.columns[part]
                raise DesignError(f"some rows have no {part}. Fill {column!r} in every row.")
        coding = Coding.of(values)
        # 255 marks a missing score.
        coding = Coding(None) if coding.levels == 255 else coding
        return cls(list(models), list(keys), sorted(epochs) or [None], coding)

    @property
    def empty(self) -> float:
        """Code of a cell without an answer."""
        return np.nan if self.coding.levels is None else 255


def _scatter(table: _Table, axes: _Axes, scores: NDArray[Any]) -> None:
    pa: Any = import_module("pyarrow")
    pc: Any = import_module("pyarrow.compute")
    models, keys = pa.array(axes.models), pa.array(axes.keys)
    n, n_epochs, n_rows = len(axes.models), len(axes.epochs), 0
    for part in table.batches():
        at = pc.index_in(part["key"], keys).to_numpy().astype(np.int64)
        at = at * n + pc.index_in(part["model"], models).to_numpy()
        if part["epoch"] is not None:
            epochs = pa.array(axes.epochs, part["epoch"].type)
            at = at * n_epochs + pc.index_in(part["epoch"], epochs).to_numpy()
        scored = ~np.isnan(part["score"])
        scores[at[scored]] = axes.coding.encode(part["score"][scored])
        n_rows += int(scored.sum())
    parts = (scores[a : a + _CHUNK] for a in range(0, scores.size, _CHUNK))
    filled = scores.size - sum(int(_is_empty(part, axes).sum()) for part in parts)
    if filled < n_rows:
        more = n_rows - filled
        raise DesignError(
            f"{more} {'answer is' if more == 1 else 'answers are'} of the same model, item and "
            "epoch as an earlier row. Remove them, or number repeated answers in a column epoch."
        )


def _is_empty(scores: NDArray[Any], axes: _Axes) -> BoolArray:
    return np.isnan(scores) if axes.coding.levels is None else scores == axes.empty


def _blocks(axes: _Axes, measure: Measure, scores: NDArray[Any]) -> Iterator[ResponseMatrix]:
    names = np.array([key.split(_BETWEEN, 1) for key in axes.keys])
    metric = measure.metric or "score"
    measures = tuple(
        given(Measure(task=str(task), metric=metric), [measure])
        for task in dict.fromkeys(names[:, 0])
    )
    for start in range(0, len(names), ROWS):
        part = slice(start, start + ROWS)
        block = np.array(scores[part])
        values = block / (axes.coding.levels or 1)
        values[_is_empty(block, axes)] = np.nan
        yield ResponseMatrix(
            scores=values.transpose(1, 0, 2),
            models=tuple(axes.models),
            item_ids=names[part, 1],
            tasks=names[part, 0],
            metrics=np.full(len(block), metric),
            measures=measures,
        )


def write_store(
    path: str | Path, blocks: ResponseMatrix | Iterable[ResponseMatrix], *, as_float: bool = False
) -> ResponseStore:
    """Write blocks of items of the same models to a response store, and open it.

    Parameters
    ----------
    blocks
        A matrix, or matrices of the same models and epochs; one at a time is in memory.
    as_float
        Store 64-bit floats. Default: one byte for each score if those of the first block are
        multiples of 1/k for some k up to 255; later blocks must then be, too.

    Raises
    ------
    DesignError
        No block, blocks of different models or epochs, an item that occurs twice, or a score that
        is not a multiple of 1/k.
    WriteError
        The file cannot be written; an existing file is unchanged.
    """
    pq: Any = import_module("pyarrow.parquet")
    given = iter([blocks] if isinstance(blocks, ResponseMatrix) else blocks)
    first = next(given, None)
    if first is None:
        raise DesignError("there is no block of items to write: give one matrix or more")
    coding = Coding(None) if as_float else Coding.of(first.scores)
    seen: set[Any] = set()
    schema = _schema(first, coding)
    with (
        writing.replacing(Path(path)) as temporary,
        pq.ParquetWriter(
            temporary,
            schema,
            compression="zstd",
            use_dictionary=list(TEXTS),
            write_page_checksum=True,
        ) as to,
    ):
        for block in chain([first], given):
            if block.models != first.models or block.scores.shape[2] != first.scores.shape[2]:
                raise DesignError(
                    f"one block has {_size(block)}, but the first has {_size(first)}. Give all "
                    "blocks the same models in the same order, and the same epochs."
                )
            to.write_table(_table(block, coding, schema), row_group_size=ROWS)
            if twice := first_twice(block.item_ids, block.tasks, block.metrics, seen=seen):
                raise DesignError(f"{twice}: put each item into one block only")
    return ResponseStore(path)


def _schema(first: ResponseMatrix, coding: Coding) -> Any:
    pa: Any = import_module("pyarrow")
    n, _, n_epochs = first.scores.shape
    cells = n * n_epochs
    meta = {
        "models": first.models,
        "n_epochs": n_epochs,
        "levels": coding.levels,
        "notes": first.notes,
    }
    fields = [pa.field(name, pa.string()) for name in TEXTS]
    fields.append(pa.field("scores", pa.binary(cells * np.dtype(coding.dtype).itemsize)))
    fields.append(pa.field("missing", pa.binary(-(-cells // 8))))
    return pa.schema(fields, metadata=signed_metadata(KEY, meta))


def _table(block: ResponseMatrix, coding: Coding, schema: Any) -> Any:
    pa: Any = import_module("pyarrow")
    n, m, n_epochs = block.scores.shape
    by_item = np.ascontiguousarray(block.scores.transpose(1, 0, 2)).reshape(m, n * n_epochs)
    missing = np.isnan(by_item)
    packed = np.packbits(missing, axis=1, bitorder="little")
    texts = (
        block.item_ids, block.tasks, block.metrics, block.clusters, block.item_hashes,
        _measures(block),
    )  # fmt: skip
    columns = [[None] * m if values is None else values.astype(str) for values in texts]
    columns.append(_binary(coding.encode(by_item), schema.field("scores").type))
    some = missing.any(axis=1)
    masks = _binary(packed, schema.field("missing").type)
    columns.append(pa.compute.if_else(pa.array(some), masks, None))
    return pa.table(
        [c if k >= len(TEXTS) else pa.array(c, pa.string()) for k, c in enumerate(columns)],
        schema=schema,
    )


def _measures(block: ResponseMatrix) -> NDArray[Any] | None:
    """Return the measure of each item's score as JSON, shape (M,); None where none is known."""
    if not block.measures:
        return None
    names = [(str(t), str(m)) for t, m in zip(block.tasks, block.metrics, strict=True)]
    measure_of = block.measure_of
    texts = {name: json.dumps(measure_of[name].to_dict()) for name in dict.fromkeys(names)}
    return np.array([texts[name] for name in names])


def _binary(rows: NDArray[Any], of_type: Any) -> Any:
    """Return an Arrow array with one binary value per row."""
    pa: Any = import_module("pyarrow")
    import_module("pyarrow.compute")
    return pa.Array.from_buffers(
        of_type, len(rows), [None, pa.py_buffer(np.ascontiguousarray(rows))]
    )


def _size(block: ResponseMatrix) -> str:
    n_epochs = int(block.scores.shape[2])
    return f"{counted(len(block.models), 'model')} and {counted(n_epochs, 'epoch')}"
