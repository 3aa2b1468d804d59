"""Damaged files: every reader gives data or one of our errors, soon, and in little memory."""

from __future__ import annotations

import json
import signal
import sys
import tomllib
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from damage import Choices, damaged
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from logs import megabytes
from readers import READERS, Reader, make_bank, make_fit, make_matrix, make_store

from evalstats_plugin import ResponseStore
from evalstats_plugin.errors import EvalStatsError, LogError, PluginError
from evalstats_plugin.runtime.files import write_signed

INPUTS = 40
"""Of each reader that `make test` tries; ``python -m benchmarks.fuzz`` tries more."""
SLOW = {
    "Inspect eval set": 12,
    "Inspect .json": 12,
    "Inspect votes": 12,
    "Inspect written": 12,
    "Inspect .json written": 8,
}
NEEDED = {
    **dict.fromkeys(("IRT fit", "IRT factor fit", "capabilities"), "torch"),
    **dict.fromkeys(
        # Written to, which an older Inspect does not do to logs of it.
        ("Inspect eval set", "Inspect written", "Inspect .json written"),
        "inspect_ai>=0.3.285",
    ),
}
NEVER_REFUSED = {"Inspect eval set"}
"""A damaged list of logs is left alone; the log itself is annotated."""
SECONDS = 10
"""Longest that reading a small file may take; it takes milliseconds."""
MEGABYTES = 300
"""Most that the whole of them may add to the process."""


@contextmanager
def _in_time() -> Iterator[None]:
    def stop(*_: object) -> None:
        msg = f"reading a small file took more than {SECONDS} s"
        raise TimeoutError(msg)

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def outcome(reader: Reader, path: Path) -> str:
    """Read a file; return "read" or "refused". Anything else is raised."""
    with _in_time(), warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        try:
            reader.read(path)
        except PluginError:
            # An exception that nobody expected, wrapped.
            raise
        except EvalStatsError as error:
            return "refused" if str(error) else "refused without a word"
    return "read"


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.needs(NEEDED[name])) if name in NEEDED else name
        for name in READERS
    ],
)
def test_data_or_an_error_of_ours(name: str, tmp_path: Path) -> None:
    """Bytes flipped, lost, cut off and zeroed; values, keys, columns and members exchanged."""
    reader = READERS[name]
    path = reader.make(tmp_path)
    good = path.read_bytes()
    assert "read" == outcome(reader, path)
    before = megabytes()
    seen: list[str] = []

    @settings(
        max_examples=SLOW.get(name, INPUTS),
        database=None,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.binary(min_size=16, max_size=48))
    def tried(data: bytes) -> None:
        path.write_bytes(damaged(good, Choices(data), reader.damage))
        seen.append(outcome(reader, path))

    tried()

    assert "refused" in seen or name in NEVER_REFUSED
    assert {"read", "refused"} >= set(seen)
    assert megabytes() - before < MEGABYTES


@pytest.mark.needs("torch")
@pytest.mark.parametrize(
    "name", ["IRT fit", "item bank", "response matrix", "response store", "capabilities"]
)
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


def test_the_net_catches_what_it_should(tmp_path: Path) -> None:
    """A reader that trusts its file is found out by the same inputs."""
    good = json.dumps({"a": [1, 2, 3], "b": {"c": "text"}}).encode()

    def trusting(path: Path) -> object:
        return [n + 1 for n in json.loads(path.read_bytes())["a"]]

    reader = Reader(lambda _: tmp_path, trusting, READERS["votes .json"].damage)
    path = tmp_path / "file"
    caught: set[str] = set()
    for number in range(60):
        path.write_bytes(damaged(good, Choices(number.to_bytes(2, "little") * 16), reader.damage))
        try:
            outcome(reader, path)
        except Exception as error:  # noqa: BLE001 - which ones is the question
            caught.add(type(error).__name__)

    assert {"JSONDecodeError", "TypeError"} <= caught
