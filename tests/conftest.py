"""What several test modules share."""

from __future__ import annotations

import gc
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pytest
from packaging.requirements import Requirement

from evalstats_plugin import plugins

ROOT = Path(__file__).parents[1]
Run = Callable[..., subprocess.CompletedProcess[str]]

# What a developer's own file says must not change what commands do in tests.
os.environ["EVALSTATS_NO_CONFIG"] = "1"

# A shell that starts the tests in the background has them, and what they start, ignore Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Have the collector of garbage pass over tests and modules, of which none ever is.

    It comes by more seldom, too: at Python's own pace it takes a fifteenth of the time.
    """
    gc.disable()
    collected = yield
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    gc.enable()
    return collected


LONG = {
    "test_pages", "test_several_processes", "test_processors", "test_interrupted_writes",
    "test_reading_only_reads", "test_site", "test_notebooks", "capabilities",
}  # fmt: skip
"""Modules with a test of ten seconds or more."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run long tests first, so that all processes have something left to do at the end."""
    items.sort(key=lambda item: item.path.stem not in LONG)


@pytest.fixture(scope="session")
def command_server() -> Iterator[subprocess.Popen[str]]:
    """Give a process that runs commands in copies of itself."""
    command = [sys.executable, Path(__file__).with_name("command_server.py")]
    # Threads of its own would not be copied.
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=alone
    ) as server:
        yield server


@pytest.fixture(scope="session")
def run(command_server: subprocess.Popen[str], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run ``python -m evalstats_plugin`` as a person would, in a process of its own.

    Its errors are apart from its output, or together with it, as in a terminal. So can any module
    be run, in any folder.
    """
    asked, told = command_server.stdin, command_server.stdout
    assert asked is not None
    assert told is not None
    written = [tmp_path_factory.mktemp("run") / name for name in ("output", "errors")]

    def run_command(
        *arguments: str | Path,
        together: bool = False,
        module: str = "evalstats_plugin",
        folder: Path | None = None,
        **environment: str,
    ) -> subprocess.CompletedProcess[str]:
        command = [module.replace("_", "-"), *map(str, arguments)]
        for file in written:
            file.write_bytes(b"")
        request = {
            "module": module,
            "arguments": command[1:],
            "environment": {**os.environ, "COLUMNS": "80", **environment},
            "folder": str(folder or Path.cwd()),
            "output": str(written[0]),
            "errors": str(written[not together]),
        }
        asked.write(json.dumps(request) + "\n")
        asked.flush()
        code = int(told.readline())
        return subprocess.CompletedProcess(command, code, *(f.read_text() for f in written))

    return run_command


def _sums() -> float:
    """Return the CPU seconds of a fixed piece of work, in a loop, in memory and in NumPy."""
    start = process_time()
    numbers, seen = np.random.default_rng(0).random(100_000), dict[int, int]()
    for k in range(60_000):
        seen[k % 1000] = seen.get(k % 999, 0) + k % 7
    np.exp(np.sort(numbers)) + numbers[np.argsort(numbers[:50_000])].sum()
    numbers[:22_500].reshape(150, 150) @ numbers[22_500:45_000].reshape(150, 150)
    return process_time() - start


def _slowness() -> float:
    """How many times longer the work takes than where budgets were measured (0.0133 s)."""
    return min(_sums() for _ in range(3)) / 0.0133


def _memory() -> float:
    """Return the CPU seconds of adding arrays that are larger than the processor's cache."""
    numbers = np.ones(1_000_000)
    start = process_time()
    for _ in range(3):
        numbers = numbers * 0.5 + numbers[::-1]
    return process_time() - start


def _slowness_of_memory() -> float:
    """How many times longer they take than 0.004 s, half of what the slowest machine seen takes."""
    return min(_memory() for _ in range(3)) / 0.004


def _within(
    budget: float,
    work: Callable[[], Any],
    *,
    clock: Callable[[], float] = process_time,
    slowness: Callable[[], float] = _slowness,
) -> Any:
    """Do some work in at most so many CPU seconds, and return what comes of it.

    The seconds are those of the machine where budgets were measured: where other work of a known
    size takes longer than there, just before and just after, so may this. It is done again,
    five times at most, until it is quick enough: what disturbs it passes, what is slow remains.
    The other work is only done where the first try took longer.

    Parameters
    ----------
    budget, work : float, callable
        Twice what is needed, so that three times as much is found out.
    clock : callable
        CPU seconds used so far.
    slowness : callable
        How many times longer the other work takes than where the budget was measured.
    """
    spent: list[str] = []
    for again in range(6):
        before, start = slowness() if again else 1, clock()
        found = work()
        needed = clock() - start
        slower = max(1, min(before, slowness())) if needed > budget and again else 1
        if needed <= budget * slower:
            return found
        spent.append(f"{needed / slower:.3g}")
    pytest.fail(f"at most {budget} CPU seconds expected, found {', '.join(spent)} in turn")


@pytest.fixture
def within() -> Callable[..., Any]:
    """Give a function that does some work in so many CPU seconds, or fails."""
    return _within


@pytest.fixture
def within_in_memory() -> Callable[..., Any]:
    """Give the same for work on arrays larger than the cache.

    One machine takes three times as long for it as another whose processor is as fast, and longer
    where others use the memory.
    """
    return partial(_within, slowness=lambda: max(_slowness(), _slowness_of_memory()))


_BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """Give a function that builds a wheel of a folder with its backend, setuptools, as pip does.

    Building leaves files in the folder.
    """

    def wheel_of(source: Path) -> Path:
        made = tmp_path_factory.mktemp("built")
        command = [sys.executable, "-c", _BUILD, made]
        subprocess.run(command, check=True, capture_output=True, cwd=source)
        [found] = made.glob("*.whl")
        return found

    return wheel_of


@pytest.fixture(scope="session")
def wheel(build: Callable[[Path], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a wheel of this tree."""
    source = tmp_path_factory.mktemp("source")
    for name in ("evalstats_plugin", "adapters"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    return build(source)


@pytest.fixture
def installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str, str], None]]:
    """Install a one-module plugin, as far as the import system can tell."""
    site = tmp_path / "site"

    def install(name: str, code: str) -> None:
        info = site / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[evalstats_plugin]\n{name} = {name}\n")
        (site / f"{name}.py").write_text(code)
        plugins._load.cache_clear()

    monkeypatch.syspath_prepend(site)
    yield install
    plugins._load.cache_clear()


OPTIONAL = {
    "accelerate", "arviz", "inspect_ai", "latex2mathml", "lm_eval", "lunr", "mkdocs", "moto",
    "opt_einsum", "playwright", "s3fs", "torch", "transformers",
}  # fmt: skip
"""What some environments do not have: tests that need it are skipped there, and say so."""
_ALL = bool(os.environ.get("EVALSTATS_REQUIRE_ALL"))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Skip a module that imports what is not installed."""
    report = yield
    # Of --last-failed there are reports without a call.
    call: pytest.CallInfo[Any] | None = report.__dict__.get("call")
    error = call.excinfo.value if call and call.excinfo else None
    while error is not None and not isinstance(error, ModuleNotFoundError):
        error = error.__cause__
    name = error.name.partition(".")[0] if error and error.name else ""
    if name in OPTIONAL and not _ALL:
        report.outcome = "skipped"
        report.longrepr = (str(collector.path), 0, f"Skipped: needs {name}")
    return report


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test marked ``needs("name", "name>=version")`` where that is not installed.

    A name is a Python package's or one of `PROGRAMS`.
    """
    _needs(*(text for mark in item.iter_markers("needs") for text in mark.args))


PROGRAMS = {"chromium": ("chromium", "google-chrome"), "pdflatex": ("pdflatex",)}
"""What is no Python package, by what its programs are called."""
_APT = "apt-get install chromium texlive-latex-recommended texlive-science"


def _program(name: str) -> str | None:
    """Return the path of a program; None where it, or a package of LaTeX, is missing."""
    path = next(filter(None, map(shutil.which, PROGRAMS[name])), None)
    if path is None or name != "pdflatex":
        return path
    files = shutil.which("kpsewhich")
    asked = files and subprocess.run([files, "siunitx.sty"], capture_output=True, check=False)
    return path if asked and asked.returncode == 0 else None


@pytest.fixture(scope="session")
def program() -> Callable[[str], str]:
    """Give a function that returns the path of a program of `PROGRAMS`, or skips the test."""

    def find(name: str) -> str:
        _needs(name)
        return str(_program(name))

    return find


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Name what was missing, how many tests and modules were skipped for it, and what to do."""
    said = [str(report.longrepr[-1]) for report in terminalreporter.stats.get("skipped", ())]
    found = (re.match(r"Skipped: (?:needs|could not import) '?([\w.<>=-]+)", each) for each in said)
    missing = Counter(each[1] for each in found if each)
    if missing:
        names = ", ".join(f"{name} ({n})" for name, n in sorted(missing.items()))
        hints = [_APT] * bool(missing.keys() & PROGRAMS.keys())
        hints += ["pip install --group dev"] * bool(missing.keys() - PROGRAMS.keys())
        line = f"Skipped, because these are not here: {names}. To run them: {'; '.join(hints)}"
        terminalreporter.write_line(line, yellow=True)


def _needs(*requirements: str) -> None:
    for text in requirements:
        if text in PROGRAMS:
            if _program(text) is None:
                (pytest.fail if _ALL else pytest.skip)(f"needs {text}")
            continue
        wanted = Requirement(text)
        there = find_spec(wanted.name) is not None
        if not there or (wanted.specifier and version(wanted.name) not in wanted.specifier):
            (pytest.fail if _ALL else pytest.skip)(f"needs {text}")


@pytest.fixture(scope="session")
def needs() -> Callable[..., None]:
    """Give what the mark does to fixtures that need something."""
    return _needs
