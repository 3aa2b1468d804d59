"""The fast tests of `make check`, on a machine without what only POSIX or Linux has."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ELSEWHERE = ROOT / "tests" / "robustness" / "elsewhere"
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
FAST = re.findall(r"tests/[\w/.]+", MAKEFILE.split("FAST := ")[1].split(":")[0])


@pytest.mark.validation
@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_the_fast_tests_pass_on_other_systems(system: str, tmp_path: Path) -> None:
    """As ``elsewhere/sitecustomize.py`` imitates them."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp",
         tmp_path / "temporary", *FAST],
        capture_output=True, text=True, check=False, cwd=ROOT,
        env={**os.environ, "EVALSTATS_TEST_SYSTEM": system, "PYTHONPATH": str(ELSEWHERE)},
    )  # fmt: skip

    assert len(FAST) == 8
    assert done.returncode == 0, done.stdout[-3000:]
