"""Hundreds of small logs in one folder: time in proportion, memory and open files as before."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from logs import megabytes, open_files, write_small_logs

from evalstats_plugin import annotate, read

FEW, MANY = 100, 500


def _seconds(folder: Path, n: int) -> float:
    """Return the CPU seconds that reading and annotating so many logs takes."""
    write_small_logs(folder, n)
    start = time.process_time()
    assert n == len(read(folder).responses)
    assert n == len(annotate(folder, in_place=True))
    return time.process_time() - start


@pytest.mark.skipif(sys.platform != "linux", reason="what a process uses is told by /proc")
def test_time_grows_in_proportion_and_nothing_stays_open(tmp_path: Path) -> None:
    """Five times the logs take about five times as long, not twenty-five times."""
    _seconds(tmp_path / "warm", 5)
    before = _seconds(tmp_path / "few", FEW)
    files, memory = open_files(), megabytes()

    many = _seconds(tmp_path / "many", MANY)

    assert files == open_files()
    assert megabytes() - memory < 25
    # Before and after, so that a machine that is busy for a while is busy for both.
    few = max(before, _seconds(tmp_path / "again", FEW))
    assert many < 2.2 * few * MANY / FEW
    assert [] == list((tmp_path / "many").glob(".*"))
