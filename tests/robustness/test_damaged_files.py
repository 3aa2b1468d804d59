"""Damaged files: every reader gives data or one of our errors, soon, and in little memory."""

from __future__ import annotations

import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from damage import Choices, damaged
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from logs import megabytes
from readers import READERS, Reader, make_fit, make_matrix

from evalstats_plugin.errors import EvalStatsError, PluginError

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


@pytest.mark.parametrize(
    "make", [pytest.param(make_fit, marks=pytest.mark.needs("torch")), make_matrix]
)
def test_no_flipped_bit_passes_for_another_result(
    make: Callable[[Path], Path], tmp_path: Path
) -> None:
    """Of our own files every page, and what is beside them, has a checksum."""
    path = make(tmp_path / "file.parquet")
    good = path.read_bytes()
    load = READERS["IRT fit" if make is make_fit else "response matrix"].read
    told = _told(load(path))
    refused = 0
    for place in np.linspace(0, len(good) - 1, 150).astype(int):
        changed = bytearray(good)
        changed[place] ^= 1 << place % 8
        path.write_bytes(changed)
        try:
            assert told == _told(load(path))
        except EvalStatsError:
            refused += 1

    # Some bits say nothing: statistics of pages, the name of the program that wrote.
    assert refused > 60


def _told(value: Any) -> str:
    """Return all numbers and names of a fit or a matrix."""
    with np.printoptions(threshold=sys.maxsize, floatmode="unique"):
        return str({field.name: str(getattr(value, field.name)) for field in fields(value)})


def test_the_net_catches_what_it_should(tmp_path: Path) -> None:
    """A reader that trusts its file is found out by the same inputs."""
    import json

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
