"""Fitted item response models on disk: one Parquet file each."""

from __future__ import annotations

import json
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from evalstats_plugin.errors import LogError
from evalstats_plugin.irt.factor_fit import FactorFit
from evalstats_plugin.irt.fit import IRTFit
from evalstats_plugin.irt.saved import SavedFit
from evalstats_plugin.parquet import read_ours, rebuilding, write_ours

FitT = TypeVar("FitT", bound=SavedFit)
_META = b"evalstats_irt"
_KINDS: dict[str, type[IRTFit | FactorFit]] = {"factor": FactorFit, "one ability": IRTFit}
_NAMES = ("models", "item_ids", "tasks")
# Of neither models nor items; kept in the metadata.
_SMALL = ("correlation", "prior_precision")


def save_fit(fit: SavedFit, path: Path) -> Path:
    """Write models with their row of the covariance, then items with theirs."""
    # pyarrow has no types of its own.
    pa: Any = import_module("pyarrow")
    n, m = len(fit.models), len(fit.item_ids)
    nothing = {"model": pa.nulls(n), "item": pa.nulls(m)}

    def column(of: str, values: Any) -> Any:
        parts = [
            pa.array(values) if of == kind else nothing[kind].cast(pa.array(values).type)
            for kind in nothing
        ]
        return pa.chunked_array(parts)

    columns = {
        "kind": pa.array(["model"] * n + ["item"] * m),
        "name": pa.array([*fit.models, *fit.item_ids.astype(str)]),
        "task": column("item", fit.tasks.astype(str)),
    }
    arrays = _arrays(fit)
    for name, values in arrays.items():
        flat = values if values.ndim == 1 else list(values.reshape(len(values), -1))
        columns[name] = column(_of(name), flat)
    meta = _metadata(fit) | {"shapes": {name: values.shape for name, values in arrays.items()}}
    return write_ours(pa.table(columns), path, _META, meta)


def _of(name: str) -> str:
    return "model" if name.startswith("ability") else "item"


def _arrays(fit: SavedFit) -> dict[str, NDArray[np.float64]]:
    """Numbers of each model or item, by field."""
    values = {f.name: getattr(fit, f.name) for f in fields(fit) if f.name not in (*_NAMES, *_SMALL)}
    return {name: value for name, value in values.items() if isinstance(value, np.ndarray)}


def _metadata(fit: SavedFit) -> dict[str, Any]:
    arrays = _arrays(fit)
    rest = {f.name: getattr(fit, f.name) for f in fields(fit) if f.name not in (*_NAMES, *arrays)}
    return {
        "kind": next(kind for kind, cls in _KINDS.items() if isinstance(fit, cls)),
        "n_models": len(fit.models),
        "integer_ids": bool(np.issubdtype(fit.item_ids.dtype, np.integer)),
        "fit": json.loads(json.dumps(rest, default=_bare)),
    }


def _bare(value: Any) -> Any:
    """Arrays and NumPy numbers as lists and numbers."""
    return np.asarray(value).tolist()


def load_fit(path: Path) -> IRTFit | FactorFit:
    """Read what `save_fit` wrote.

    Raises
    ------
    LogError
        No such file, not a fit, or a damaged one.
    """
    expected = "expected a file that a fit's save, or `irt --save`, wrote"
    other = "not a fit written by evalstats-plugin"
    table, meta = read_ours(path, _META, expected=expected, other=other)
    with rebuilding(path):
        return _fit_of(table, meta)


def load_as(kind: type[FitT], path: Path) -> FitT:
    """Read a fit that must be of this kind.

    Raises
    ------
    LogError
        No such file, not a fit, or one of another kind.
    """
    found = load_fit(path)
    if not isinstance(found, kind):
        msg = f"{path} holds a {type(found).__name__}, expected a {kind.__name__}"
        raise LogError(f"{msg}: read it with {type(found).__name__}.load")
    return found


def _fit_of(table: Any, meta: dict[str, Any]) -> IRTFit | FactorFit:
    n = meta["n_models"]
    names: list[str] = table["name"].to_pylist()
    at = {"model": slice(0, n), "item": slice(n, len(names))}

    def array(name: str, shape: list[int]) -> NDArray[np.float64]:
        rows = at[_of(name)]
        part = table[name].slice(rows.start, rows.stop - rows.start).combine_chunks()
        flat = part if len(shape) == 1 else part.flatten()
        return np.array(flat.to_numpy(zero_copy_only=False), dtype=np.float64).reshape(shape)

    rest = meta["fit"]
    rest |= {name: np.array(rest[name]) for name in _SMALL if name in rest}
    ids = np.asarray(names[n:])
    values: dict[str, Any] = {
        **rest,
        "notes": tuple(rest["notes"]),
        "models": tuple(names[:n]),
        "item_ids": ids.astype(np.int64) if meta["integer_ids"] else ids,
        "tasks": np.asarray(table["task"].to_pylist()[n:]),
        **{name: array(name, shape) for name, shape in meta["shapes"].items()},
    }
    return _KINDS[meta["kind"]](**values)
