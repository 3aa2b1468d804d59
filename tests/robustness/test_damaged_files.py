"""Damaged files: every reader gives data or one of our errors, soon, and in little memory."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from readers import READERS, make_bank, make_fit, make_matrix, make_store

from evalstats_plugin import ResponseStore
from evalstats_plugin.errors import EvalStatsError, LogError
from evalstats_plugin.runtime.files import write_signed


@pytest.mark.needs("torch")
@pytest.mark.parametrize("name", ["IRT fit", "item bank", "response matrix", "response store"])
def test_no_flipped_bit_passes_for_another_result(name: str, tmp_path: Path) -> None:
    """Of our own files every page, and what is beside them, has a checksum."""
    path = READERS[name].make(tmp_path)
    good = path.read_bytes()
    load = READERS[name].read
    told = _told(load(path))
    refused = 0
    for place in np.linspace(0, len(good) - 1, 120).astype(int):
        changed = bytearray(good)
        changed[place] ^= 1 << place % 8
        path.write_bytes(changed)
        try:
            assert _told(load(path)) == told
        except EvalStatsError:
            refused += 1

    # Some bits say nothing: statistics of pages, the name of the program that wrote.
    assert refused > 30


def test_damaged_defaults_set_what_the_file_says_or_nothing(tmp_path: Path) -> None:
    """Compared with the standard library's reader, whatever bit of the file is flipped."""
    reader = READERS["defaults"]
    path = reader.make(tmp_path)
    good = path.read_bytes()
    outcomes: set[str] = set()
    for place in range(len(good)):
        changed = bytearray(good)
        changed[place] ^= 1 << place % 7
        path.write_bytes(changed)
        try:
            found: Any = reader.read(path)
        except EvalStatsError:
            outcomes.add("refused")
            continue
        said = tomllib.loads(changed.decode()).get("tool", {}).get("evalstats-plugin", {})
        tables = [said, said.get("report", {}), said.get("rank", {}).get("stats", {})]
        for key, value, _ in found:
            one = value[0] if isinstance(value, list) else value
            assert one in [table.get(key, table.get(key.replace("-", "_"))) for table in tables]
        outcomes.add("read")

    assert outcomes == {"refused", "read"}


SAVED: Mapping[str, tuple[Callable[[Path], Path], bytes]] = {
    "IRT fit": (make_fit, b"evalstats_irt"),
    "item bank": (make_bank, b"evalstats_bank"),
    "response matrix": (make_matrix, b"evalstats"),
    "response store": (make_store, b"evalstats_responses"),
}


@pytest.mark.parametrize("name", SAVED)
@pytest.mark.needs("torch")
def test_a_damaged_field_or_column_is_named(name: str, tmp_path: Path) -> None:
    """Signed anew, as by somebody who edits the file: each missing, empty or of another kind."""
    make, key = SAVED[name]
    path = make(tmp_path / "file.parquet")
    table = pq.read_table(path)
    meta = json.loads(table.schema.metadata[key])
    load = READERS[name].read
    damaged = [(field, table, {**meta, field: value}) for field in meta for value in (None, "x")]
    damaged += [(field, table, {k: v for k, v in meta.items() if k != field}) for field in meta]
    required = set(table.column_names) - NOT_REQUIRED
    damaged += [(c, table.drop_columns([c]), meta) for c in sorted(required)]

    for field, changed, fields_ in damaged:
        if field == "levels" and fields_.get(field, 0) is None:
            continue  # which means that scores are floats
        write_signed(changed, path, key, fields_)
        with pytest.raises(LogError, match=rf"file.parquet is damaged.*{field}"):
            load(path)


NOT_REQUIRED = {"kind", "hash", "cluster"} | {"dispersion", "cost"}
"""Columns that some files have not, or that nobody reads."""


def _told(value: Any) -> str:
    """Return all numbers and names of a fit, a bank, a matrix or a store."""
    value = value.matrix() if isinstance(value, ResponseStore) else value
    with np.printoptions(threshold=sys.maxsize, floatmode="unique"):
        return str({field.name: str(getattr(value, field.name)) for field in fields(value)})
