"""Does a damaged file ever do more than be refused? Ten minutes of one core; writes parsers.json.

Of every reader: logs of each harness, tables, fits, banks, stores, votes, sessions, configuration.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from itertools import count
from pathlib import Path

import pytest
import study
from damage import Choices, damaged
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from readers import READERS
from test_damaged_files import outcome

pytestmark = pytest.mark.validation

SECONDS = float(os.environ.get("EVALSTATS_SECONDS", "600"))
"""CPU time of all readers together."""
ROUND = 100


@pytest.mark.needs("torch", "inspect_ai>=0.3.285", "lm_eval")
def test_data_or_an_error_of_ours(tmp_path: Path) -> None:
    """Whatever Hypothesis damages: nothing hangs, and nobody else's exception comes through."""
    rows: list[dict[str, object]] = []
    for name, reader in READERS.items():
        folder = tmp_path / name.replace(" ", "_").replace("/", "_")
        folder.mkdir()
        path = reader.make(folder)
        good = path.read_bytes()
        seen: Counter[str] = Counter()
        end = time.process_time() + SECONDS / len(READERS)

        @settings(
            max_examples=ROUND, database=None, deadline=None,
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(st.binary(min_size=16, max_size=48))
        def tried(data: bytes) -> None:
            path.write_bytes(damaged(good, Choices(data), reader.damage))  # noqa: B023 - used here
            seen[outcome(reader, path)] += 1  # noqa: B023

        for k in count():
            if time.process_time() > end:
                break
            seed(k)(tried)()
        rows.append({"reader": name, "read": seen["read"], "refused": seen["refused"]})
        assert set(seen) <= {"read", "refused"}, name
    if SECONDS >= 600:
        study.write_figures("parsers", {"readers": lambda: rows})
