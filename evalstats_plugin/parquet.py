"""Response matrices on disk, and Parquet files with metadata of ours."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.atomic import write_bytes
from evalstats_plugin.errors import LogError
from evalstats_plugin.matrix import ResponseMatrix

_META = b"evalstats"
_DIGEST = b"_sha256"


def save_matrix(matrix: ResponseMatrix, path: Path) -> None:
    """Write one line per item and one column of scores per model."""
    # pyarrow has no types of its own.
    pa: Any = import_module("pyarrow")
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
    write_ours(pa.table(columns), path, _META, meta)


def write_ours(table: Any, path: Path, key: bytes, meta: Mapping[str, Any]) -> Path:
    """Write an Arrow table with JSON under a key of its metadata, whole or not at all.

    Pages have checksums, and so has the JSON, so that a damaged file cannot pass for another fit.
    """
    pq: Any = import_module("pyarrow.parquet")
    buffer = BytesIO()
    pq.write_table(
        table.replace_schema_metadata(signed(key, meta)), buffer, write_page_checksum=True
    )
    return write_bytes(path, buffer.getvalue())


def signed(key: bytes, meta: Mapping[str, Any]) -> dict[bytes, bytes]:
    """Return metadata of a schema: JSON under a key, and its digest."""
    text = json.dumps(meta).encode()
    return {key: text, key + _DIGEST: hashlib.sha256(text).hexdigest().encode()}


def signed_meta(path: Path, found: Mapping[bytes, bytes] | None, key: bytes, other: str) -> Any:
    """Return the JSON that `signed` wrote.

    Raises
    ------
    LogError
        None there, of which ``other`` is said, or damaged.
    """
    meta = found or {}
    if key not in meta:
        raise LogError(f"{path} is a Parquet file, but {other}")
    digest = meta.get(key + _DIGEST)
    if digest is not None and hashlib.sha256(meta[key]).hexdigest().encode() != digest:
        raise LogError(f"{path} is damaged: restore it from a copy, or make it again")
    with rebuilding(path):
        return json.loads(meta[key])


def read_ours(path: Path, key: bytes, *, expected: str, other: str) -> tuple[Any, dict[str, Any]]:
    """Read a Parquet file of ours, and the JSON under this key of its metadata.

    Raises
    ------
    LogError
        No such file, no Parquet, a damaged one, or one without this key, of which ``other`` is
        said.
    """
    pa: Any = import_module("pyarrow")
    pq: Any = import_module("pyarrow.parquet")
    if not path.is_file():
        found = "a folder" if path.is_dir() else "no such file"
        raise LogError(f"{path}: {found}, {expected}")
    try:
        table: Any = pq.read_table(path, page_checksum_verification=True)
        table.validate(full=True)
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        raise LogError(f"{path} is no Parquet file, or damaged, {expected}") from error
    return table, signed_meta(path, table.schema.metadata, key, other)


@contextmanager
def rebuilding(path: Path) -> Generator[None]:
    """Turn whatever goes wrong while a file of ours is taken apart into an error about the file.

    We wrote it: what does not fit together has been damaged since, or comes from a later version.
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        problem = f"{type(error).__name__}: {error}"
        msg = f"{path} is damaged, or of a later version ({problem}): make it again"
        raise LogError(msg) from error


def load_matrix(path: Path) -> ResponseMatrix:
    """Read what `save_matrix` wrote."""
    expected = "expected a response matrix that evalstats-plugin wrote"
    other = "not a response matrix written by evalstats-plugin"
    table, meta = read_ours(path, _META, expected=expected, other=other)
    with rebuilding(path):
        return _matrix_of(table, meta)


def _matrix_of(table: Any, meta: dict[str, Any]) -> ResponseMatrix:
    n, m, n_epochs = meta["shape"]
    columns = [table[f"score_{i}"].combine_chunks() for i in range(n)]
    flat = [column.flatten().to_numpy(zero_copy_only=False) for column in columns]
    scores = np.array(flat, dtype=np.float64).reshape(n, m, n_epochs)

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
