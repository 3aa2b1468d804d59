"""Response matrices on disk, and Parquet files with metadata of ours."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.errors import LogError
from evalstats_plugin.matrix import ResponseMatrix

_META = b"evalstats"


def save_matrix(matrix: ResponseMatrix, path: Path) -> None:
    """Write one line per item and one column of scores per model."""
    # pyarrow has no types of its own.
    pa: Any = import_module("pyarrow")
    pq: Any = import_module("pyarrow.parquet")
    n, m, n_epochs = matrix.scores.shape
    columns: dict[str, Any] = {
        "item": matrix.item_ids.astype(str),
        "task": matrix.tasks.astype(str),
        "metric": matrix.metrics.astype(str),
    }
    for name, values in (("cluster", matrix.clusters), ("hash", matrix.item_hashes)):
        if values is not None:
            columns[name] = values.astype(str)
    for i in range(n):
        flat = pa.array(matrix.scores[i].ravel())
        columns[f"score_{i}"] = pa.FixedSizeListArray.from_arrays(flat, n_epochs)
    meta = {"models": matrix.models, "shape": [n, m, n_epochs], "notes": matrix.notes}
    table = pa.table(columns).replace_schema_metadata({_META: json.dumps(meta)})
    pq.write_table(table, path)


def read_ours(path: Path, key: bytes, *, expected: str, other: str) -> tuple[Any, dict[str, Any]]:
    """Read a Parquet file of ours, and the JSON under this key of its metadata.

    Raises
    ------
    LogError
        No such file, no Parquet, or one without this key, of which ``other`` is said.
    """
    pa: Any = import_module("pyarrow")
    pq: Any = import_module("pyarrow.parquet")
    if not path.is_file():
        found = "a folder" if path.is_dir() else "no such file"
        raise LogError(f"{path}: {found}, {expected}")
    try:
        table: Any = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise LogError(f"{path} is no Parquet file, {expected}") from error
    meta: dict[bytes, bytes] = table.schema.metadata or {}
    if key not in meta:
        raise LogError(f"{path} is a Parquet file, but {other}")
    return table, json.loads(meta[key])


def load_matrix(path: Path) -> ResponseMatrix:
    """Read what `save_matrix` wrote."""
    pq: Any = import_module("pyarrow.parquet")
    table: Any = pq.read_table(path)
    found: dict[bytes, bytes] = table.schema.metadata or {}
    raw = found.get(_META)
    if raw is None:
        msg = f"{path} is a Parquet file, but not a response matrix written by evalstats-plugin"
        raise LogError(msg)
    meta = json.loads(raw)
    n, m, n_epochs = meta["shape"]
    scores = np.empty((n, m, n_epochs))
    for i in range(n):
        column = table[f"score_{i}"].combine_chunks()
        scores[i] = column.flatten().to_numpy(zero_copy_only=False).reshape(m, n_epochs)

    def texts(name: str) -> NDArray[Any]:
        return np.asarray(table[name].to_pylist())

    return ResponseMatrix(
        scores=scores,
        models=tuple(meta["models"]),
        item_ids=texts("item"),
        tasks=texts("task"),
        metrics=texts("metric"),
        clusters=texts("cluster") if "cluster" in table.column_names else None,
        item_hashes=texts("hash") if "hash" in table.column_names else None,
        notes=tuple(meta["notes"]),
    )
