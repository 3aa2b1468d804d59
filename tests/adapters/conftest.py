"""Logs that are read once, for the tests that write them in other formats."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from evalstats_plugin import read
from evalstats_plugin.data.runs import ResponseSet

LOGS = Path(__file__).parents[2] / "fixtures" / "logs"


@cache
def _read(logs: str) -> ResponseSet:
    return read(LOGS / logs)


@pytest.fixture(params=["lm_eval/0.4.13/out", "lm_eval/0.5.0.dev1", "inspect_ai/0.3.285/models"])
def logged(request: pytest.FixtureRequest) -> ResponseSet:
    """Give the responses of a harness: with several runs, with repeats, with epochs."""
    return _read(request.param)
