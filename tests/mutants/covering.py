"""Which tests run which lines: a map made once, a test at a time.

* `CoverageMap`: tests with their seconds, and for each line of the package the tests that run it
* `test_files`: files that hold tests or examples
* `map_file`: run the tests of a file with a trace of each, in a copy of this process
* `carried`: the lines that a test ran of a text, in a later text
* `run_tests`: run chosen tests of some files until one fails
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import pytest
from trees import processor_seconds

ARGUMENTS = (
    "-q", "-x", "-p", "no:cacheprovider", "--no-header", "--tb=line", "--disable-warnings",
    "-o", "addopts=--strict-markers --import-mode=importlib --doctest-modules "
    "--ignore=tests/generate --ignore=tests/third_party --ignore=tests/mutants",
    "-m", "not validation and not bench",
)  # fmt: skip
UNEVEN = {"within", "chromium", "browser", "page"}
"""Fixtures of tests whose outcome or time depends on the machine: no mutant is told by them."""
LONGEST = 30.0
"""Seconds of a test after which it is no help in telling mutants."""


def test_files(root: Path) -> list[str]:
    """Return the files that hold tests, and the modules that hold examples."""
    tests = [
        path for path in root.glob("tests/**/test_*.py") if "mutants" not in path.parts
    ]  # fmt: skip
    examples = [
        path
        for part in ("evalstats_plugin", "adapters")
        for path in root.glob(f"{part}/**/*.py")
        if ">>> " in path.read_text()
    ]
    return sorted({path.relative_to(root).as_posix() for path in (*tests, *examples)})


class _Steady:
    """Has Hypothesis try the same examples every time, without a limit of time."""

    def pytest_configure(self, config: pytest.Config) -> None:
        from hypothesis import HealthCheck, settings

        del config
        settings.register_profile(
            "mutants", derandomize=True, deadline=None, database=None,
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        settings.load_profile("mutants")


class _Traced(_Steady):
    """Traces the lines that each test runs, in this process and in those that it starts."""

    def __init__(self, tree: Path, seconds: float) -> None:
        from coverage import Coverage

        self.tree = tree
        self.until = processor_seconds() + seconds
        self.coverage = Coverage(
            data_file=None, config_file=False, source=[str(tree / "evalstats_plugin"),
            str(tree / "adapters")], messages=False,
        )  # fmt: skip
        self.seconds: dict[str, float] = {}
        self.passed: set[str] = set()
        self.left: list[str] = []

    def pytest_sessionstart(self) -> None:
        self.coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        if processor_seconds() > self.until or UNEVEN & set(getattr(item, "fixturenames", ())):
            self.left.append(item.nodeid)
            item.add_marker(pytest.mark.skip(reason="not traced"))
        self.coverage.switch_context(item.nodeid)
        os.environ["MUTANTS_TEST"] = item.nodeid
        start = processor_seconds()
        done = yield
        self.seconds[item.nodeid] = processor_seconds() - start
        self.coverage.switch_context("")
        return done

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self.passed.add(report.nodeid)
        elif report.failed:
            self.passed.discard(report.nodeid)

    def lines(self) -> dict[str, dict[str, list[int]]]:
        """Return the lines that were run, by test and file."""
        self.coverage.stop()
        data = self.coverage.get_data()
        found: dict[str, dict[str, list[int]]] = defaultdict(dict)
        for file in data.measured_files():
            path = _path(file, self.tree)
            by_test: dict[str, set[int]] = defaultdict(set)
            for line, tests in data.contexts_by_lineno(file).items():
                for test in tests:
                    by_test[test].add(line)
            for test, lines in by_test.items():
                if test:
                    found[test][path] = sorted({*found[test].get(path, ()), *lines})
        return found


def _path(file: str, tree: Path) -> str:
    """Return a file's path in the tree; adapters are read through the package."""
    return os.path.relpath(os.path.realpath(file), os.path.realpath(tree))


def map_file(tree: Path, file: str, seconds: float) -> dict[str, Any]:
    """Run the tests of a file, and return each that passes with its seconds and lines."""
    traces = tree.parent / "temporary" / "traces"
    traces.mkdir(exist_ok=True)
    os.environ["MUTANTS_TRACES"] = str(traces)
    os.environ["MUTANTS_TREE"] = str(tree)
    # Any Python that a test starts reads this folder's `sitecustomize.py`.
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(tree / "tests" / "mutants" / "traced"), os.environ["PYTHONPATH"]]
    )
    plugin = _Traced(tree, seconds)
    arguments = [a for a in ARGUMENTS if a != "-x"]
    code = pytest.main([*arguments, f"--basetemp={tree.parent / 'temporary' / 'b'}", file],
                       plugins=[plugin])  # fmt: skip
    lines = plugin.lines()
    for trace in traces.glob("*.json"):
        told = json.loads(trace.read_text())
        for path, more in told["lines"].items():
            before = lines[told["test"]].get(path, ())
            lines[told["test"]][path] = sorted({*before, *more})
    return {
        "code": int(code),
        "tests": {
            test: {"seconds": round(plugin.seconds[test], 4), "lines": dict(lines.get(test, {}))}
            for test in plugin.passed
            if test in plugin.seconds
        },
        "left": plugin.left,
    }


def carried(old: Sequence[str], new: Sequence[str]) -> dict[int, list[int]]:
    """Return where each line of a text stands in a later one; lines are counted from 1.

    A line that was rewritten stands wherever its block is now, and new lines belong to the line
    before them: more tests are then run for a mutant than run its line, but none is forgotten.
    """
    now: dict[int, list[int]] = defaultdict(list)
    for kind, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            for line in range(a, b):
                now[line + 1].append(line - a + c + 1)
        else:
            for line in range(a, b) if b > a else [max(a - 1, 0)]:
                now[line + 1].extend(range(c + 1, d + 1))
    return now


class _Chosen(_Steady):
    """Runs chosen tests alone, and remembers the one that fails."""

    def __init__(self, tests: Iterable[str]) -> None:
        self.tests = set(tests)
        self.failed: list[str] = []
        self.n_run = 0

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid in self.tests]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failed.append(f"{report.nodeid}: {str(report.longrepr).splitlines()[-1]}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.n_run += report.when == "call"
        if report.failed:
            told = str(report.longrepr).splitlines()
            self.failed.append(f"{report.nodeid}: {told[-1] if told else ''}"[:400])


def run_tests(tree: Path, tests: list[str]) -> dict[str, Any]:
    """Run tests until one fails; return which, and how many ran."""
    plugin = _Chosen(tests)
    files = sorted({test.partition("::")[0] for test in tests})
    code = pytest.main([*ARGUMENTS, f"--basetemp={tree.parent / 'temporary' / 'b'}", *files],
                       plugins=[plugin])  # fmt: skip
    return {"code": int(code), "failed": plugin.failed[:1], "run": plugin.n_run}


@dataclass
class CoverageMap:
    """Tests that pass, and the lines that each runs."""

    seconds: dict[str, float] = field(default_factory=dict[str, float])
    lines: dict[str, dict[int, set[str]]] = field(default_factory=dict[str, dict[int, set[str]]])
    """Tests by file and line."""
    sizes: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    """Number of lines that a test runs, by file."""

    @classmethod
    def of(cls, mapped: Mapping[str, Mapping[str, Any]]) -> CoverageMap:
        """Join what `map_file` returned of each file."""
        whole = cls()
        for each in mapped.values():
            for test, told in each["tests"].items():
                if told["seconds"] > LONGEST:
                    continue
                whole.seconds[test] = told["seconds"]
                whole.sizes[test] = {path: len(lines) for path, lines in told["lines"].items()}
                for path, lines in told["lines"].items():
                    by_line = whole.lines.setdefault(path, {})
                    for line in lines:
                        by_line.setdefault(line, set()).add(test)
        return whole

    def covering(self, path: str, lines: Iterable[int]) -> set[str]:
        """Return the tests that run any of the lines."""
        by_line = self.lines.get(path, {})
        return {test for line in lines for test in by_line.get(line, ())}

    def nearness(self, tests: Iterable[str], path: str) -> float:
        """Return the share of a file's lines among those that tests run."""
        sizes = [self.sizes[test] for test in tests]
        return sum(each.get(path, 0) for each in sizes) / max(
            sum(sum(each.values()) for each in sizes), 1
        )

    def of_file(self, path: str) -> set[str]:
        """Return the tests that run any line of a file."""
        return {test for tests in self.lines.get(path, {}).values() for test in tests}
