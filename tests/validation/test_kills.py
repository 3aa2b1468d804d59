"""Are files old or new, whatever kills or refuses the writer? Writes kills.json.

Kills and full disks at random system calls: more than 300 of the commands that change logs and
ledgers, about as many of all other writers; those with few steps, which are fast, have most. And
four programs that write to one folder, judge into one file and annotate the same logs at the same
time: they wait for each other, and go on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import study
import syscalls
from logs import write_small_logs
from writers import WRITERS, left_over

from evalstats_plugin import annotate, read
from evalstats_plugin.ranking.judging.session import Session
from evalstats_plugin.runtime.writing import edit, write_bytes

pytestmark = pytest.mark.validation

KILLS, FULL_DISKS = 320, 100
"""At least, of the commands; and of all others."""
CONTENDERS, ROUNDS, LOGS = 4, 50, 40

GROUPS = {
    "annotate": ("lm-eval annotate", "Every Eval Ever annotate", "Inspect annotate .eval",
                 "Inspect items .eval", "Inspect annotate .json", "Inspect eval set"),
    "strip": ("lm-eval strip", "Every Eval Ever strip", "Inspect strip .eval"),
    "rescore": ("rescore",),
    "adapt": ("answers of an adaptive test", "replies of a model", "bank"),
    "rank judge": ("answer of a judge",),
}  # fmt: skip
"""Writers of the commands that change logs and ledgers."""


def _soaked(root: Path, names: Sequence[str]) -> list[dict[str, Any]]:
    """Interrupt some writers at random steps."""
    script = Path(__file__).parents[1] / "robustness" / "interrupted.py"
    done = subprocess.run(
        [sys.executable, script, root, "soak", str(KILLS), str(FULL_DISKS), *names],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def _at_once(work: Callable[[Path, int], object], folder: Path) -> None:
    """Have several processes work in one folder at the same time; each must end well."""
    context: Any = get_context("fork")
    running = [context.Process(target=work, args=(folder, k)) for k in range(CONTENDERS)]
    for each in running:
        each.start()
    for each in running:
        each.join()
    assert [each.exitcode for each in running] == [0] * CONTENDERS


def _list(folder: Path, number: int) -> None:
    for k in range(ROUNDS):
        name = f"{number}-{k}"
        edit(folder / "list.json", lambda old, name=name: old + f"{name},".encode())
        write_bytes(folder / f"{name}.json", b"{}")


def _listed(folder: Path) -> int:
    """Return how many files several programs added together, each listed once."""
    folder.mkdir()
    (folder / "list.json").write_bytes(b"")
    _at_once(_list, folder)
    listed = (folder / "list.json").read_text().split(",")[:-1]
    assert sorted(listed) == sorted({path.stem for path in folder.iterdir()} - {"list"})
    return len(listed)


def _judge(folder: Path, number: int) -> None:
    for _ in range(ROUNDS):
        Session.open(folder / "answers.json", judge=str(number)).answer(0, 1, 1.0)


def _judged(folder: Path) -> int:
    """Return how many answers several judges gave into one file."""
    folder.mkdir()
    (folder / "answers.json").write_text('{"items": ["a", "b"], "comparisons": []}')
    _at_once(_judge, folder)
    assert [p.name for p in folder.iterdir()] == ["answers.json"]
    return len(Session.open(folder / "answers.json").given)


def _annotate(folder: Path, _number: int) -> None:
    annotate(folder, in_place=True)


def _annotated(folder: Path) -> int:
    """Return how many logs are annotated after several programs annotated all of them."""
    write_small_logs(folder, LOGS)
    _at_once(_annotate, folder)
    assert left_over(folder) == []
    return sum(bool(r.source.is_annotated) for r in read(folder, runs="all"))


@pytest.mark.skipif(not syscalls.AVAILABLE, reason="system calls are followed on Linux, x86-64")
@pytest.mark.needs("torch", "inspect_ai>=0.3.285", "lm_eval")
def test_files_are_old_or_new(tmp_path: Path) -> None:
    of_commands = [name for names in GROUPS.values() for name in names]
    rows = _soaked(tmp_path, of_commands) + _soaked(tmp_path, sorted(set(WRITERS) - {*of_commands}))
    problems = [problem for row in rows for problem in row.pop("problems")]
    n_listed = _listed(tmp_path / "listed")
    n_judged = _judged(tmp_path / "judged")
    n_annotated = _annotated(tmp_path / "annotated")
    whole = {
        "kills": sum(row["kills"] for row in rows),
        "full_disks": sum(row["full_disks"] for row in rows),
        "writers": len(rows),
        "concurrent_writers": CONTENDERS,
        "listed_at_once": n_listed,
        "judged_at_once": n_judged,
        "annotated_at_once": n_annotated,
        "problems": len(problems),
    }
    by_name = {row["writer"]: row for row in rows}
    groups = [
        {
            "command": command,
            "kills": sum(by_name[name]["kills"] for name in names),
            "full_disks": sum(by_name[name]["full_disks"] for name in names),
        }
        for command, names in GROUPS.items()
    ]
    study.write_figures(
        "kills", {"summary": lambda: [whole], "commands": lambda: groups, "writers": lambda: rows}
    )

    assert problems == []
    assert sum(group["kills"] for group in groups) >= 300
    assert sum(group["full_disks"] for group in groups) >= 50
    assert set(by_name) == set(WRITERS)
    assert n_listed == n_judged == CONTENDERS * ROUNDS
    assert n_annotated == LOGS
