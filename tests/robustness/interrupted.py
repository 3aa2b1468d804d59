"""Interrupts writers at each step of writing.

``python interrupted.py FOLDER PLAN``, where the plan lists in JSON how many steps apart, with which
errors, of which writers; or at random steps of all writers
``python interrupted.py FOLDER soak KILLS FULL_DISKS [WRITER...]``

Prints one object of JSON for each writer: how many steps there were, and what went wrong.
"""

from __future__ import annotations

import errno
import gc
import json
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import redirect_stdout, suppress
from io import StringIO
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import syscalls
from syscalls import KILL, REFUSED, Outcome
from writers import WRITERS, Files, Writer, left_over

ERRORS = {"disk full": errno.ENOSPC, "permission denied": errno.EACCES, "disk broken": errno.EIO}
WHOLLY = {"read-only file system": errno.EROFS, "forbidden folder": errno.EACCES}
"""What refuses all that changes it, from the first step to the last."""


class Interruptions:
    """One writer, and what happens when it is interrupted."""

    def __init__(self, name: str, writer: Writer, root: Path) -> None:
        self.name = name
        self.writer = writer
        self.root = root
        # Work files of Inspect's are steps too: the disk may be full there.
        self.temporary = root / "tmp"
        self.logs = root / "logs"
        self.problems: list[str] = []
        self._warm()
        # What children share with this process they need not copy to look for garbage.
        gc.freeze()
        self._make()
        self.before = self.seen()
        done = syscalls.run(self._work, self.root)
        assert done.code == 0, (name, done)
        self.steps, self.after = done.steps, self.seen()

    def _warm(self) -> None:
        """Load what the work needs into this process, of which the children are copies."""
        self._make()
        with redirect_stdout(StringIO()), suppress(SystemExit):
            self._work()

    def _make(self) -> None:
        for folder in (self.logs, self.temporary):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        self.writer.make(self.logs)

    def _work(self) -> object:
        tempfile.tempdir = str(self.temporary)
        return self.writer.work(self.logs)

    def places(self, every: int) -> list[int]:
        """Return each so many of the steps, from the middle of so many, and the last two.

        At those old becomes new. None where `every` is 0.
        """
        last = len(self.steps)
        if not every:
            return []
        return sorted({*range((every + 1) // 2, last + 1, every), max(1, last - 1), last})

    def kill(self, places: Iterable[int]) -> set[str]:
        """Kill it at some steps: each file is old or new, and the next run makes all new."""
        seen: set[str] = set()
        for at in places:
            self._make()
            done = syscalls.run(self._work, self.root, at, KILL)
            what = f"{self.name} killed at step {at} ({self.steps[at - 1].call})"
            if done.code is not None:
                self.problems.append(f"{what}: it ended by itself")
            seen |= self._check(self.seen(), what)
            again = syscalls.run(self._work, self.root)
            if again.code != 0:
                self.problems.append(f"{what}: the next run fails: {again.said}")
            self._expect_new(what)
            if left := sorted(p.name for p in self.temporary.iterdir()):
                self.problems.append(f"{what}: afterwards there is {left}")
        return seen

    def fail(self, error: str, places: Iterable[int]) -> set[int | None]:
        """Let some steps fail: files are as before and one message says why, or all is well."""
        if error in WHOLLY:
            return {self.refuse(error)}
        codes: set[int | None] = set()
        for at in places:
            self._make()
            done = syscalls.run(self._work, self.root, at, ERRORS[error])
            step = self.steps[at - 1]
            what = f"{self.name}, {error} at step {at} ({step.call})"
            codes.add(done.code)
            self._check_refused(done, what)
            # What cannot be removed stays until the next run.
            removes = step.call.startswith(("unlink", "rmdir"))
            if not removes and (left := left_over(self.logs)):
                self.problems.append(f"{what}: leaves {left}")
            if done.code == 0 and not removes:
                self._expect_new(what)
        return codes

    def refuse(self, error: str) -> int | None:
        """Let every step fail: one message, and files as before, but for those that are new."""
        self._make()
        done = syscalls.run(self._work, self.root, syscalls.EVERY, WHOLLY[error])
        self._check_refused(done, f"{self.name}, {error}")
        if done.code == 0 or self.seen() != self.before:
            self.problems.append(f"{self.name}, {error}: code {done.code}, files have changed")
        return done.code

    def seen(self) -> Files:
        """Return what is in the files now."""
        return self.writer.seen(self.logs)

    def _check_refused(self, done: Outcome, what: str) -> None:
        self._check(self.seen(), what)
        if done.code == 0:
            return
        # Between them lm-eval shows how far it is.
        lines = [line for line in done.said.strip().splitlines() if line and "%|" not in line]
        told = len(lines) == 1 and lines[0].startswith("error: ") and str(self.root) in lines[0]
        if done.code != REFUSED or not told:
            self.problems.append(f"{what}: code {done.code}, {done.said!r}")

    def _check(self, found: Files, what: str) -> set[str]:
        """Refuse files that are neither old nor new."""
        seen: set[str] = set()
        for name in {*self.before, *self.after, *found}:
            now = found.get(name)
            if now == self.after.get(name):
                seen.add("new")
            elif now == self.before.get(name):
                seen.add("old")
            else:
                self.problems.append(f"{what}: {name} is neither old nor new")
        return seen

    def _expect_new(self, what: str) -> None:
        found = self.seen()
        if found != self.after:
            wrong = [n for n in {*found, *self.after} if found.get(n) != self.after.get(n)]
            self.problems.append(f"{what}: afterwards {wrong} are not as after a run undisturbed")
        if left := left_over(self.logs):
            self.problems.append(f"{what}: afterwards there is {left}")


def _kind(path: str) -> str:
    """Say whether a step changes a folder, a hidden file or one that people see."""
    return "folder" if Path(path).is_dir() else "hidden" if "/." in path else "file"


def interrupted(root: Path, name: str, every: int, errors: Sequence[str]) -> dict[str, Any]:
    """Interrupt one writer at each step, or each so many."""
    of = Interruptions(name, WRITERS[name], root / name.replace(" ", "_"))
    places = of.places(every)
    seen = of.kill(places)
    codes = {error: sorted(map(str, of.fail(error, places))) for error in errors}
    return {
        "writer": name,
        "steps": len(of.steps),
        "calls": [f"{step.call} {_kind(step.path)}" for step in of.steps],
        "kills": len(places),
        "seen": sorted(seen),
        "codes": codes,
        "problems": of.problems,
    }


FEWEST = 8


def soaked(root: Path, n_kills: int, n_full: int, names: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Interrupt writers at random steps; those with few steps, which are fast, most often."""
    rng = np.random.default_rng(1)
    made = {
        name: Interruptions(name, WRITERS[name], root / name.replace(" ", "_")) for name in names
    }
    total = sum(1 / len(one.steps) for one in made.values())
    for name, one in sorted(made.items(), key=lambda each: len(each[1].steps)):
        last = len(one.steps)
        kills, full = (max(FEWEST, ceil(n / last / total)) for n in (n_kills, n_full))
        seen = one.kill(rng.integers(1, last + 1, kills).tolist())
        one.fail("disk full", rng.integers(1, last + 1, full).tolist())
        yield {
            "writer": name, "steps": last, "kills": kills, "full_disks": full,
            "seen": sorted(seen), "problems": one.problems,
        }  # fmt: skip


def main(root: str, plan: str, *more: str) -> None:
    """Interrupt the writers of a plan one after the other, or all of them at random."""
    results = (
        soaked(Path(root), int(more[0]), int(more[1]), more[2:] or WRITERS)
        if plan == "soak"
        else (
            interrupted(Path(root), name, every, errors)
            for every, errors, names in json.loads(plan)
            for name in names
        )
    )
    for result in results:
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
