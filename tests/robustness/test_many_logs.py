"""Hundreds of small logs in one folder: time in proportion, memory and open files as before."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from logs import megabytes, open_files, write_small_logs

from evalstats_plugin import annotate, read


def _seconds(folder: Path, n: int) -> float:
    """Return the CPU seconds that reading and annotating so many logs takes."""
    write_small_logs(folder, n)
    start = time.process_time()
    assert n == len(read(folder).responses)
    assert n == len(annotate(folder, in_place=True))
    return time.process_time() - start


@pytest.mark.parametrize(
    ("few", "many"), [(50, 250), pytest.param(100, 500, marks=pytest.mark.validation)]
)
@pytest.mark.skipif(sys.platform != "linux", reason="what a process uses is told by /proc")
def test_time_grows_in_proportion_and_nothing_stays_open(
    tmp_path: Path, few: int, many: int
) -> None:
    """Five times the logs take about five times as long, not twenty-five times."""
    _seconds(tmp_path / "warm", 5)
    before = _seconds(tmp_path / "few", few)
    files, memory = open_files(), megabytes()

    seconds = _seconds(tmp_path / "many", many)

    assert files == open_files()
    assert megabytes() - memory < 25
    # Before and after, so that a machine that is busy for a while is busy for both.
    usual = max(before, _seconds(tmp_path / "again", few))
    assert seconds < 2.2 * usual * many / few
    assert [] == list((tmp_path / "many").glob(".*"))
