"""Item banks on disk: one Parquet file each."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from evalstats_plugin.adaptive.bank import ItemBank
from evalstats_plugin.parquet import read_ours, rebuilding, write_ours

_META = b"evalstats_bank"
_FIT = "fit_"
_NUMBERS = ("discrimination", "intercept", "guessing", "upper", "cost", "dispersion")
_MATRICES = ("item_covariance", "misfit_loadings")


def save_bank(bank: ItemBank, path: Path) -> Path:
    """Write a line per item; what is not of items is in the metadata of the schema."""
    # pyarrow has no types of its own.
    pa: Any = import_module("pyarrow")
    columns: dict[str, Any] = {
        "item": pa.array(bank.item_ids.astype(str).tolist()),
        "task": pa.array(bank.tasks.astype(str).tolist()),
        "usable": pa.array(bank.usable),
        "reason": pa.array(bank.reasons.astype(str).tolist()),
    }
    if bank.hashes is not None:
        columns["hash"] = pa.array([None if h is None else str(h) for h in bank.hashes.tolist()])
    columns |= {name: getattr(bank, name) for name in _NUMBERS if getattr(bank, name) is not None}
    columns |= {f"{_FIT}{name}": values for name, values in bank.item_fit.items()}
    shapes: dict[str, list[int]] = {}
    for name in _MATRICES:
        values = getattr(bank, name)
        if values is not None and values.size:
            shapes[name] = list(values.shape)
            columns[name] = list(values.reshape(len(bank), -1))
    meta = {
        "integer_ids": bool(np.issubdtype(bank.item_ids.dtype, np.integer)),
        "shapes": shapes,
        "misfit": dict(bank.misfit),
        "ability_mean": bank.ability_mean,
        "ability_sd": bank.ability_sd,
        "models": list(bank.models),
        "abilities": bank.abilities.tolist(),
        "scores": [None if np.isnan(score) else score for score in bank.scores.tolist()],
        "provenance": dict(bank.provenance),
        "notes": list(bank.notes),
    }
    return write_ours(pa.table(columns), path, _META, meta)


def load_bank(path: Path) -> ItemBank:
    """Read what `save_bank` wrote.

    Raises
    ------
    LogError
        No such file, not a bank, or a damaged one.
    """
    expected = "expected an item bank that `evalstats-plugin adapt bank` wrote"
    table, meta = read_ours(path, _META, expected=expected, other=f"not an item bank; {expected}")
    with rebuilding(path):
        return _bank_of(table, meta)


def _bank_of(table: Any, meta: dict[str, Any]) -> ItemBank:
    m = table.num_rows
    names: list[str] = table.column_names

    def numbers(name: str) -> Any:
        return np.array(table[name].to_numpy(), dtype=np.float64)

    def matrix(name: str) -> Any:
        if name not in meta["shapes"]:
            return np.zeros((m, 0)) if name == "misfit_loadings" else None
        flat = table[name].combine_chunks().flatten().to_numpy(zero_copy_only=False)
        return np.array(flat, dtype=np.float64).reshape(meta["shapes"][name])

    ids = np.asarray(table["item"].to_pylist())
    scores = [np.nan if score is None else score for score in meta["scores"]]
    values = {name: numbers(name) if name in names else None for name in _NUMBERS}
    return ItemBank(
        item_ids=ids.astype(np.int64) if meta["integer_ids"] else ids,
        tasks=np.asarray(table["task"].to_pylist()),
        hashes=np.asarray(table["hash"].to_pylist(), dtype=object) if "hash" in names else None,
        usable=np.array(table["usable"].to_pylist(), dtype=np.bool_),
        reasons=np.asarray(table["reason"].to_pylist(), dtype=object),
        item_fit={name.removeprefix(_FIT): numbers(name) for name in names if name[:4] == _FIT},
        misfit=meta["misfit"],
        ability_mean=meta["ability_mean"],
        ability_sd=meta["ability_sd"],
        models=tuple(meta["models"]),
        abilities=np.asarray(meta["abilities"], dtype=np.float64),
        scores=np.asarray(scores, dtype=np.float64),
        provenance=meta["provenance"],
        notes=tuple(meta["notes"]),
        **values,  # pyright: ignore[reportArgumentType]
        **{name: matrix(name) for name in _MATRICES},
    )
