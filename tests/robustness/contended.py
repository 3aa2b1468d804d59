"""Has two processes at one log at a time: ``python contended.py FOLDER LOG ROUNDS FIRST SECOND``.

FIRST and SECOND are what they do, ``annotate`` or ``strip``; more pairs may follow. Prints a line
for each pair: what came of each round.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import sys
import time
from pathlib import Path

import numpy as np
from writers import left_over, timeless

COMMANDS = {"annotate": [], "strip": ["--strip"]}


def _begin(task: str, folder: Path, delay: float) -> tuple[int, Path]:
    """Start a child that runs the command line after a while."""
    said = folder.parent / f"said-{time.monotonic_ns()}"
    child = os.fork()
    if child:
        return child, said
    code = 70
    try:
        output = os.open(said, os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1)
        os.dup2(output, 2)
        time.sleep(delay)
        code = _command(task, folder)
    finally:
        os._exit(code)


def _command(task: str, folder: Path) -> int:
    from evalstats_plugin.cli import main

    try:
        main(
            ["annotate", "--in-place", "--quiet", *COMMANDS[task], str(folder)], "evalstats-plugin"
        )
    except SystemExit as done:
        sys.stderr.flush()
        return int(done.code or 0)
    return 0


def rounds(folder: Path, log: Path, n: int, tasks: tuple[str, str]) -> list[dict[str, object]]:
    """Start each from an annotated log where one of the two strips, else from one without."""
    work = folder / "logs"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    copy = Path(shutil.copy(log, work))
    for samples in log.parent.glob("samples_*"):
        shutil.copy(samples, work)
    start = copy.read_bytes()
    # All that the two can make one after the other; Inspect's history tells how often.
    known = {"plain": [timeless(start)], "annotated": list[object]()}
    for task, name in (("annotate", "annotated"), ("strip", "plain"), ("annotate", "annotated")):
        _command(task, work)
        known[name].append(timeless(copy.read_bytes()))
        if task == "annotate" and "strip" in tasks and len(known["annotated"]) == 1:
            start = copy.read_bytes()
    # What the two share with this process they need not copy to look for garbage.
    gc.freeze()
    rng = np.random.default_rng(0)
    results: list[dict[str, object]] = []
    for _ in range(n):
        copy.write_bytes(start)
        begun = [_begin(task, work, float(rng.random()) * 0.02) for task in tasks]
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child, _ in begun]
        found = timeless(copy.read_bytes())
        results.append(
            {
                "codes": codes,
                "said": [said.read_text() for _, said in begun],
                "state": next((k for k, v in known.items() if found in v), "other"),
                "left": left_over(work),
            }
        )
        for _, said in begun:
            said.unlink()
    return results


if __name__ == "__main__":
    _, where, log, n, *tasks = sys.argv
    for pair in zip(tasks[::2], tasks[1::2], strict=True):
        results = rounds(Path(where), Path(log), int(n), pair)
        sys.stdout.write(json.dumps(results) + "\n")
