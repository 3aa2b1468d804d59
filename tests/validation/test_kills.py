"""Are files old or new, whatever kills or refuses the writer? Writes kills.json.

1,000 kills and 200 full disks at random system calls, over all writers: those with few steps, which
are fast, have most. And four programs that write to one folder at the same time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import study
import syscalls

from evalstats_plugin.runtime.writing import transaction

pytestmark = pytest.mark.validation

KILLS, FULL_DISKS = 1000, 200
CONTENDERS, ROUNDS = 4, 50


def _add(folder: Path, name: str) -> None:
    for k in range(ROUNDS):
        with transaction(folder) as staged:
            staged.edit(folder / "list.json", lambda old, k=k: old + f"{name}{k},".encode())
            staged.write(folder / f"{name}{k}.json", b"{}")


def _contended(folder: Path) -> int:
    """Return how many files several programs added together, each listed once."""
    folder.mkdir()
    (folder / "list.json").write_bytes(b"")
    context: Any = get_context("fork")
    running = [context.Process(target=_add, args=(folder, name)) for name in "abcd"[:CONTENDERS]]
    for each in running:
        each.start()
    for each in running:
        each.join()
    listed = (folder / "list.json").read_text().split(",")[:-1]
    there = {path.stem for path in folder.iterdir()} - {"list"}
    assert sorted(listed) == sorted(there)
    return len(listed)


@pytest.mark.skipif(not syscalls.AVAILABLE, reason="system calls are followed on Linux, x86-64")
@pytest.mark.needs("torch", "inspect_ai>=0.3.285", "lm_eval")
def test_files_are_old_or_new(tmp_path: Path) -> None:
    script = Path(__file__).parents[1] / "robustness" / "interrupted.py"
    done = subprocess.run(
        [sys.executable, script, tmp_path, "soak", str(KILLS), str(FULL_DISKS)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    rows: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    assert [problem for row in rows for problem in row.pop("problems")] == []
    n_listed = _contended(tmp_path / "contended")
    whole = {
        "kills": sum(row["kills"] for row in rows),
        "full_disks": sum(row["full_disks"] for row in rows),
        "writers": len(rows),
        "concurrent_writers": CONTENDERS,
        "concurrent_transactions": n_listed,
        "neither_old_nor_new": 0,
        "left_over": 0,
    }
    study.write_figures("kills", {"summary": lambda: [whole], "writers": lambda: rows})

    assert whole["kills"] >= KILLS
    assert whole["full_disks"] >= FULL_DISKS
    assert n_listed == CONTENDERS * ROUNDS
