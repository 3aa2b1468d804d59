"""Change central lines one at a time, and see whether a test fails: ``python -m tests.mutants``.

A map of which test runs which line is made first and kept (`--store`). Each mutant is then run by
the tests that run its line, in a copy of the project, until one fails. What has been run is kept
in the output: the same command goes on where it stopped.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import platform
import re
import sys
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import trees

os.environ.update(trees.ENVIRONMENT)

import covering
import mutations
from mutations import Mutant

ROOT = Path(__file__).parents[2]
KILLED, SURVIVED, UNCOVERED, LATE = "killed", "survived", "uncovered", "late"
CONTROLS = 25
"""Mutants for each place that is written anew without a change."""


def _digest(files: Iterable[Path]) -> str:
    whole = hashlib.sha256()
    for file in sorted(files):
        whole.update(file.relative_to(ROOT).as_posix().encode() + file.read_bytes())
    return whole.hexdigest()[:16]


def _sources() -> str:
    return _digest(
        p for part in ("evalstats_plugin", "adapters") for p in (ROOT / part).rglob("*.py")
    )


def _seed_of_today() -> int:
    """Return a seed that nobody chooses: it follows from the text of all tests and modules."""
    tests = (p for p in (ROOT / "tests").rglob("*.py") if "mutants" not in p.parts)
    return int(_sources()[:3] + _digest(tests)[:4], 16)


class Runner:
    """Makes the map, then runs mutants, until the time is over."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.until = time.monotonic() + options.seconds
        self.store = Path(options.store).resolve()
        self.store.mkdir(parents=True, exist_ok=True)
        self.sources = _sources()
        missing = trees.import_what_takes_long()
        self.say(f"Not installed here: {', '.join(missing) or 'nothing'}.")
        self.processes = trees.Processes(ROOT, self.store / "trees", options.workers)
        self.say(f"{options.workers} trees are laid out.")
        self.texts = {
            path.relative_to(ROOT).as_posix(): path.read_text().splitlines()
            for part in ("evalstats_plugin", "adapters")
            for path in (ROOT / part).rglob("*.py")
        }

    def say(self, text: str) -> None:
        """Tell how far it is, and how much time is left."""
        print(f"[{self.until - time.monotonic():5.0f} s left] {text}", flush=True)

    # The map.

    def map(self) -> None:
        """Run every test once, traced, unless it is as it was.

        Lines that a test ran before the package changed are looked up where they stand now.
        """
        file = self.store / "map.json.gz"
        kept: dict[str, Any] = {}
        if file.exists():
            before = json.loads(gzip.decompress(file.read_bytes()))
            kept = before["files"]
            self._carry(kept, before["texts"])
        wanted = re.compile(self.options.tests)
        names = [name for name in covering.test_files(ROOT) if wanted.search(name)]
        state = {name: _digest([ROOT / name, ROOT / "tests" / "conftest.py"]) for name in names}
        stale = [name for name in names if kept.get(name, {}).get("state") != state[name]]
        took = {name: kept.get(name, {}).get("took", 0.0) for name in names}
        # What takes longest first.
        stale.sort(key=lambda name: (-took[name], -(ROOT / name).stat().st_size))
        self.say(f"Tracing the tests of {len(stale)} files.")
        written = time.monotonic()
        for outcome in self._each(
            trees.Job(partial(_mapped, name, self.options.longest), self.options.longest + 60,
                      about=name)
            for name in stale
        ):  # fmt: skip
            name = outcome.job.about
            result = outcome.result or {"code": None, "tests": {}, "left": []}
            kept[name] = {**result, "state": state[name], "took": outcome.seconds}
            if result["code"] not in {0, 5}:
                end = outcome.output.strip().splitlines()[-1:]
                self.say(f"{name}: {len(result['tests'])} tests pass; {' '.join(end)[:150]}")
            if time.monotonic() > written + 60:
                written = time.monotonic()
                self._keep_map(file, kept)
                self.say(f"{sum(each['state'] == state.get(n) for n, each in kept.items())} files.")
        self._keep_map(file, kept)
        self.tests = covering.CoverageMap.of({name: kept[name] for name in names if name in kept})
        self.say(f"{len(self.tests.seconds)} tests are mapped, {file.stat().st_size / 1e6:.1f} MB.")

    def _carry(self, kept: dict[str, Any], texts: dict[str, list[str]]) -> None:
        """Move the lines of a map made of other texts to where they stand in those of today."""
        now = {
            path: covering.carried(text, self.texts[path])
            for path, text in texts.items()
            if path in self.texts and text != self.texts[path]
        }
        for told in kept.values():
            for test in told["tests"].values():
                for path in now.keys() & test["lines"]:
                    lines = (new for line in test["lines"][path] for new in now[path].get(line, ()))
                    test["lines"][path] = sorted(set(lines))

    def _keep_map(self, file: Path, kept: dict[str, Any]) -> None:
        whole = {"texts": self.texts, "files": kept}
        part = file.with_suffix(".part")
        part.write_bytes(
            gzip.compress(json.dumps(whole, separators=(",", ":")).encode(), compresslevel=3)
        )
        part.replace(file)

    def _each(self, jobs: Iterable[trees.Job]) -> Iterable[trees.Outcome]:
        waiting = iter(jobs)
        more = True
        while more or self.processes.busy:
            while more and self.processes.idle and time.monotonic() < self.until:
                job = next(waiting, None)
                if job is None:
                    more = False
                    break
                self.processes.start(job)
            if time.monotonic() >= self.until:
                self.processes.stop()
                return
            yield from self.processes.wait()

    # The mutants.

    def tests_of(self, mutant: Mutant) -> list[list[str]]:
        """Return the tests to run, in batches: first of files that are most about this module."""
        first, last = mutant.lines
        if mutant.is_run_on_import:
            chosen = self._using(mutant)
        else:
            chosen = self.tests.covering(mutant.path, range(first, last + 1))
        by_file: dict[str, list[str]] = defaultdict(list)
        for test in chosen:
            by_file[test.partition("::")[0]].append(test)
        nearness = {f: self.tests.nearness(each, mutant.path) for f, each in by_file.items()}
        batches: list[list[str]] = [[]]
        sums, total = [0.0], 0.0
        for file in sorted(by_file, key=lambda f: -nearness[f]):
            if batches[-1] and sums[-1] > 4 * 3 ** (len(batches) - 1):
                batches.append([])
                sums.append(0.0)
            for test in sorted(by_file[file], key=lambda t: self.tests.seconds[t]):
                seconds = self.tests.seconds[test]
                # No test alone takes most of what there is.
                if total + seconds < self.options.budget and seconds < self.options.budget / 3:
                    batches[-1].append(test)
                    sums[-1] += seconds
                    total += seconds
        return [batch for batch in batches if batch]

    def _using(self, mutant: Mutant) -> set[str]:
        """Return tests that run a line with the name that a statement outside functions gives."""
        line = self.texts[mutant.path][mutant.lines[0] - 1]
        names = re.findall(r"^\s*(\w+)", line) + mutant.where.split(".")
        pattern = re.compile(rf"\b(?:{'|'.join(map(re.escape, filter(None, names)))})\b")
        chosen: set[str] = set()
        for path, by_line in self.tests.lines.items():
            texts = self.texts.get(path, [])
            if any(map(pattern.search, texts)):
                chosen |= {
                    test
                    for number, tests in by_line.items()
                    if number <= len(texts) and pattern.search(texts[number - 1])
                    for test in tests
                }
        return chosen or self.tests.of_file(mutant.path)

    def run(self) -> None:
        """Run mutants in the order of the sample until enough are done or the time is over."""
        options = self.options
        output = Path(options.output)
        report: dict[str, Any] = {"seed": options.seed, "sources": self.sources, "mutants": {}}
        if output.exists():
            before = json.loads(output.read_text())
            if before["seed"] != options.seed and not options.only:
                sys.exit(f"{output} holds another sample (seed {before['seed']}).")
            # A mutant is named by what it changes, so that results outlast other changes.
            report["mutants"] = before["mutants"]
        every = mutations.all_mutants(ROOT)
        if options.only:
            pattern = re.compile(options.only)
            drawn = [m for m in every if pattern.search(m.key)]
        elif options.again:
            states = options.again.split(",")
            drawn = [m for m in every if report["mutants"].get(m.key, {}).get("state") in states]
        else:
            drawn = list(islice(mutations.sample(every, options.seed), options.sample))
        report |= {
            "of": len(every),
            "python": platform.python_version(),
            "tests": len(self.tests.seconds),
        }
        finished = set() if options.only or options.again else set(report["mutants"])
        waiting: deque[tuple[Mutant, bool]] = deque()
        for k, mutant in enumerate(drawn):
            if mutant.key not in finished:
                waiting.append((mutant, False))
            control = mutations.control_of(mutant)
            if k % CONTROLS == 0 and control is not None and control.key not in finished:
                waiting.append((control, True))
        self.say(f"{len(waiting)} mutants to run.")
        self._run_all(waiting, report, output)
        self._write(report, output)
        print(summary(report))

    def _run_all(
        self, waiting: deque[tuple[Mutant, bool]], report: dict[str, Any], output: Path
    ) -> None:
        next_batches: deque[trees.Job] = deque()

        def jobs() -> Iterable[trees.Job]:
            while True:
                while next_batches:
                    yield next_batches.popleft()
                if not waiting:
                    return
                mutant, is_control = waiting.popleft()
                batches = self.tests_of(mutant)
                about = {"mutant": mutant, "control": is_control, "batches": batches, "n": 0,
                         "seconds": 0.0}  # fmt: skip
                if batches:
                    yield self._job(about)
                else:
                    self._note(report, about, UNCOVERED, "")

        written = time.monotonic()
        # New batches come of outcomes: the generator must not end while anything runs.
        source = jobs()
        while True:
            ran = False
            for outcome in self._each(source):
                ran = True
                self._judge(outcome, report, next_batches)
                if time.monotonic() > written + 10:
                    written = time.monotonic()
                    self._write(report, output)
                    self.say(summary(report).splitlines()[-1])
            if (not ran and not next_batches) or time.monotonic() >= self.until:
                return
            source = jobs()

    def _job(self, about: dict[str, Any]) -> trees.Job:
        batch = about["batches"][0]
        seconds = 20 + 5 * sum(self.tests.seconds[test] for test in batch)
        return trees.Job(partial(_told, batch), seconds, about["mutant"], about)

    def _judge(
        self, outcome: trees.Outcome, report: dict[str, Any], next_batches: deque[trees.Job]
    ) -> None:
        about = outcome.job.about
        result = outcome.result
        about["seconds"] += outcome.seconds
        about["n"] += result["run"] if result else 0
        if outcome.late:
            self._note(report, about, LATE, f"{outcome.job.seconds:.0f} s")
        elif result is None:
            last = outcome.output.strip().splitlines()[-1:]
            self._note(report, about, KILLED, f"the process ended: {' '.join(last)}"[:300])
        elif result["failed"] or result["code"] in {1, 2, 3}:
            told = result["failed"] or outcome.output.strip().splitlines()[-1:]
            self._note(report, about, KILLED, " ".join(told)[:300])
        elif result["code"]:
            self._note(report, about, "error", outcome.output[-300:])
        elif about["batches"][1:]:
            about["batches"] = about["batches"][1:]
            next_batches.append(self._job(about))
        else:
            self._note(report, about, SURVIVED, "")

    def _note(self, report: dict[str, Any], about: dict[str, Any], state: str, by: str) -> None:
        mutant: Mutant = about["mutant"]
        report["mutants"][mutant.key] = {
            "state": state, "group": mutant.group, "line": mutant.line,
            # Names of tests hold what they are given, halves of letters too.
            "by": by.encode(errors="backslashreplace").decode(),
            "tests": about["n"], "seconds": round(about["seconds"], 1),
        } | ({"control": True} if about["control"] else {})  # fmt: skip

    def _write(self, report: dict[str, Any], output: Path) -> None:
        part = output.with_suffix(".part")
        part.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")
        part.replace(output)


def _mapped(file: str, seconds: float, tree: Path) -> dict[str, Any]:
    return covering.map_file(tree, file, seconds)


def _told(tests: list[str], tree: Path) -> dict[str, Any]:
    return covering.run_tests(tree, tests)


def summary(report: dict[str, Any]) -> str:
    """Return a table of what became of the mutants, by package; the last line is of all.

    A mutant that is proved to be equivalent counts for nothing, unless a test fails of it.
    """
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    proofs = mutations.equivalent()
    for key, told in report["mutants"].items():
        if not told.get("control"):
            state = "equivalent" if told["state"] == SURVIVED and key in proofs else told["state"]
            counts[told["group"]][state] += 1
            counts["all"][state] += 1
    controls = [m for m in report["mutants"].values() if m.get("control")]
    noticed = sum(m["state"] not in {SURVIVED, UNCOVERED} for m in controls)
    rows = [f"controls: {noticed} of {len(controls)} noticed (none should be)"]
    for group in (*mutations.GROUPS, "all"):
        each = counts[group]
        n = sum(each.values()) - each["equivalent"]
        if n:
            told = ", ".join(f"{number} {state}" for state, number in sorted(each.items()))
            rows.append(f"{group:16} {(each[KILLED] + each[LATE]) / n:.3f} of {n}: {told}")
    return "\n".join(rows)


def record(report: dict[str, Any]) -> dict[str, Any]:
    """Return what is kept of a report: counts by package, and the names of survivors."""
    proofs = mutations.equivalent()
    packages: dict[str, Counter[str]] = {name: Counter() for name in mutations.GROUPS}
    survivors: list[str] = []
    controls = [m["state"] for m in report["mutants"].values() if m.get("control")]
    for key, told in report["mutants"].items():
        if told.get("control"):
            continue
        state = "killed" if told["state"] in {KILLED, LATE} else told["state"]
        if state == SURVIVED and key in proofs:
            state = "equivalent"
        packages[told["group"]][state] += 1
        if state not in {"killed", "equivalent"}:
            survivors.append(f"{state}: {key}")
    return {
        "seed": report["seed"], "python": report["python"], "of": report["of"],
        "tests": report["tests"], "packages": packages, "survivors": sorted(survivors),
        "controls": {"run": len(controls), "noticed": len(controls)
                     - sum(state in {SURVIVED, UNCOVERED} for state in controls)},
    }  # fmt: skip


def keep(file: Path, name: str, output: Path) -> None:
    """Put the record of an output into a file, under a name."""
    told = json.loads(file.read_text()) if file.exists() else {}
    told[name] = record(json.loads(output.read_text()))
    file.write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n")


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    add = parser.add_argument
    add("--workers", type=int, default=os.cpu_count() or 1, help="processes at a time")
    add("--seconds", type=float, default=2400, help="time for all")
    add(
        "--seed",
        type=int,
        help="seed of the sample; default: from the tests and the package, "
        "so that it is drawn by the last change of any of them",
    )
    add("--sample", type=int, default=640, help="number of mutants")
    add("--output", default="", help="file of the results; default: in the store, by the seed")
    add("--store", default=".venv/mutants", help="folder of the map and the copies")
    add("--budget", type=float, default=60, help="processor seconds of tests for a mutant at most")
    add("--longest", type=float, default=90, help="the same of a traced file of tests")
    add("--tests", default="", help="regular expression: files of tests to use")
    add("--only", default="", help="regular expression: run the mutants of this name, no sample")
    add("--again", default="", help="run those of the output again that have these states")
    add("--keep", default="", help="write the counts of the output to this file, and run nothing")
    add("--name", default="fresh", help="their name in it")
    options = parser.parse_args()
    if options.keep:
        keep(Path(options.keep), options.name, Path(options.output))
        return
    if options.seed is None:
        options.seed = _seed_of_today()
    options.output = options.output or str(Path(options.store) / f"{options.seed}.json")
    os.environ.update(trees.ENVIRONMENT)
    runner = Runner(options)
    runner.map()
    runner.run()


if __name__ == "__main__":
    main()
