"""Response stores, written block by block: see `response_store`."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin import atomic
from evalstats_plugin.errors import DesignError
from evalstats_plugin.matrix import ResponseMatrix
from evalstats_plugin.parquet import signed
from evalstats_plugin.response_store import KEY, ROWS, TEXTS, ResponseStore, first_twice
from evalstats_plugin.score_coding import Coding


def write_store(
    path: str | Path, blocks: ResponseMatrix | Iterable[ResponseMatrix], *, as_float: bool = False
) -> ResponseStore:
    """Write blocks of items of the same models, one after the other, and open what was written.

    Parameters
    ----------
    blocks
        A matrix, or matrices of the same models and epochs; one at a time is in memory.
    as_float
        Keep 64-bit floats. Default: a byte for each score where the first block's are multiples
        of 1/k for some k up to 255, as later blocks' must then be.

    Raises
    ------
    DesignError
        No block, blocks of different models or epochs, an item that is there twice, or a score
        that the bytes cannot hold.
    WriteError
        The file cannot be written; what was there is still there.
    """
    pq: Any = import_module("pyarrow.parquet")
    given = iter([blocks] if isinstance(blocks, ResponseMatrix) else blocks)
    first = next(given, None)
    if first is None:
        msg = "no block of items found, expected one matrix or more"
        raise DesignError(msg)
    coding = Coding(None) if as_float else Coding.of(first.scores)
    seen: set[Any] = set()
    schema = _schema(first, coding)
    with (
        atomic.replacing(Path(path)) as temporary,
        pq.ParquetWriter(
            temporary,
            schema,
            compression="zstd",
            use_dictionary=list(TEXTS),
            write_page_checksum=True,
        ) as to,
    ):
        for block in chain([first], given):
            _check_alike(first, block)
            to.write_table(_table(block, coding, schema), row_group_size=ROWS)
            if twice := first_twice(block.item_ids, block.tasks, block.metrics, seen=seen):
                raise DesignError(f"{twice}, expected each once, in one of the blocks")
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
    return pa.schema(fields, metadata=signed(KEY, meta))


def _table(block: ResponseMatrix, coding: Coding, schema: Any) -> Any:
    pa: Any = import_module("pyarrow")
    m = block.scores.shape[1]
    by_item = np.ascontiguousarray(block.scores.transpose(1, 0, 2)).reshape(m, -1)
    missing = np.isnan(by_item)
    packed = np.packbits(missing, axis=1, bitorder="little")
    texts = (block.item_ids, block.tasks, block.metrics, block.clusters, block.item_hashes)
    columns = [[None] * m if values is None else values.astype(str) for values in texts]
    columns.append(_binary(coding.encode(by_item), schema.field("scores").type))
    some = missing.any(axis=1)
    masks = _binary(packed, schema.field("missing").type)
    columns.append(pa.compute.if_else(pa.array(some), masks, None))
    return pa.table(
        [c if k >= len(TEXTS) else pa.array(c, pa.string()) for k, c in enumerate(columns)],
        schema=schema,
    )


def _binary(rows: NDArray[Any], of_type: Any) -> Any:
    """One value of so many bytes per row."""
    pa: Any = import_module("pyarrow")
    import_module("pyarrow.compute")
    return pa.Array.from_buffers(
        of_type, len(rows), [None, pa.py_buffer(np.ascontiguousarray(rows))]
    )


def _check_alike(first: ResponseMatrix, block: ResponseMatrix) -> None:
    if block.models != first.models or block.scores.shape[2] != first.scores.shape[2]:
        msg = (
            f"a block of {len(block.models)} models and {block.scores.shape[2]} epochs found, "
            f"expected the {len(first.models)} models and {first.scores.shape[2]} epochs of the "
            "first block, in the same order"
        )
        raise DesignError(msg)
