"""Fitted item response models on disk."""

from __future__ import annotations

import json
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.atomic import write_bytes
from evalstats_plugin.errors import LogError
from evalstats_plugin.irt.fit import IRTFit

_META = b"evalstats_irt"
_PARAMETERS = tuple(
    name + suffix
    for name in ("discrimination", "difficulty", "guessing")
    for suffix in ("", "_std_error")
)


def save_fit(fit: IRTFit, path: Path) -> Path:
    """Write models with their row of the covariance, then items with theirs."""
    # pyarrow has no types of its own.
    pa: Any = import_module("pyarrow")
    pq: Any = import_module("pyarrow.parquet")
    n, m = len(fit.models), len(fit.item_ids)
    nothing = {"models": pa.nulls(n), "items": pa.nulls(m)}

    def column(of: str, values: Any) -> Any:
        parts = [
            pa.array(values) if of == kind else nothing[kind].cast(pa.array(values).type)
            for kind in nothing
        ]
        return pa.chunked_array(parts)

    items = fit.item_covariance
    columns = {
        "kind": pa.array(["model"] * n + ["item"] * m),
        "name": pa.array([*fit.models, *fit.item_ids.astype(str)]),
        "task": column("items", fit.tasks.astype(str)),
        "ability": column("models", fit.ability),
        "ability_covariance": column("models", list(fit.ability_covariance)),
        **{name: column("items", getattr(fit, name)) for name in _PARAMETERS},
    }
    if items is not None:
        columns["item_covariance"] = column("items", list(items.reshape(m, -1)))
    table = pa.table(columns).replace_schema_metadata({_META: json.dumps(_metadata(fit))})
    buffer = BytesIO()
    pq.write_table(table, buffer)
    return write_bytes(path, buffer.getvalue())


def _metadata(fit: IRTFit) -> dict[str, Any]:
    names = ("item_model", "estimator", "identification", "hyperparameters", "diagnostics", "notes")
    return {
        "n_models": len(fit.models),
        "integer_ids": bool(np.issubdtype(fit.item_ids.dtype, np.integer)),
        "fit": json.loads(json.dumps({name: getattr(fit, name) for name in names}, default=_bare)),
    }


def _bare(value: Any) -> Any:
    """Arrays and NumPy numbers as lists and numbers."""
    return np.asarray(value).tolist()


def load_fit(path: Path) -> IRTFit:
    """Read what `save_fit` wrote."""
    pq: Any = import_module("pyarrow.parquet")
    table: Any = pq.read_table(path)
    found: dict[bytes, bytes] = table.schema.metadata or {}
    if _META not in found:
        msg = f"{path} is a Parquet file, but not a fit written by evalstats-plugin"
        raise LogError(msg)
    meta = json.loads(found[_META])
    n = meta["n_models"]
    m = table.num_rows - n

    def floats(name: str, rows: slice, width: int | None = None) -> NDArray[np.float64]:
        part = table[name].slice(rows.start, rows.stop - rows.start).combine_chunks()
        flat = part if width is None else part.flatten()
        return np.array(flat.to_numpy(zero_copy_only=False), dtype=np.float64)

    models, items = slice(0, n), slice(n, n + m)
    names: list[str] = table["name"].to_pylist()
    ids = np.asarray(names[n:])
    covariance = None
    if "item_covariance" in table.column_names:
        flat = floats("item_covariance", items, width=-1)
        p = round((len(flat) / m) ** 0.5)
        covariance = flat.reshape(m, p, p)
    parameters: dict[str, Any] = {name: floats(name, items) for name in _PARAMETERS}
    fit = meta["fit"]
    return IRTFit(
        **fit | {"notes": tuple(fit["notes"])},
        models=tuple(names[:n]),
        item_ids=ids.astype(np.int64) if meta["integer_ids"] else ids,
        tasks=np.asarray(table["task"].to_pylist()[n:]),
        ability=floats("ability", models),
        ability_covariance=floats("ability_covariance", models, width=n).reshape(n, n),
        item_covariance=covariance,
        **parameters,
    )
