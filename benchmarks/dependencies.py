"""The tests, with the oldest dependencies that pyproject allows, and with the newest.

``python -m benchmarks.dependencies [SET...]`` makes an environment for each set in
``.venv-bench``, installs a copy of the working tree there, runs the tests, and keeps versions and
counts; ``python -m benchmarks.dependencies --failed SET...`` runs again there what failed before.
``make test`` runs all tests on one Python, with pinned harnesses; these are the other ends,
resolved by uv, which knows what "lowest" means. Everywhere the same tests are run, but

- those that ask nothing of a version (`LEFT_OUT`) are left out;
- those that need what an environment does not have are skipped (``tests/conftest.py`` says of what
  this may be true), which is counted by what they need.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import tomllib
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
FIGURES = Path(__file__).parent / "results" / "dependencies.json"
FOLDER = ROOT / ".venv-bench" / "dependencies"

WITHOUT_TORCH = ("cluster", "figures", "inspect", "lm-eval", "rank", "text")
WITH_TORCH = ("models",)
TOOLS = ("hypothesis>=6.100", "jsonschema", "pytest>=8.2", "pytest-xdist>=3.6", "scikit-learn",
         "setuptools>=77", "wheel")  # fmt: skip

ADAPTIVE = "tests/adapters/inspect_ai/test_adaptive_in_inspect.py"
LEFT_OUT: dict[str, tuple[str, ...]] = {
    "crashes, and many processes: what the system does, whatever the version": (
        "tests/robustness/test_annotate_strip_cycles.py",
        "tests/robustness/test_concurrent_writes.py",
        "tests/robustness/test_interrupted_writes.py",
        "tests/robustness/test_many_logs.py",
        "tests/runtime/test_several_processes.py",
    ),
    "the repository's own: pages, figures of studies, seconds, names of packages": (
        "tests/docs",
        "tests/robustness/test_dependencies.py",
        "tests/robustness/test_supply_chain.py",
        "tests/test_benchmarks.py",
        "tests/test_readme.py",
        "tests/test_fixtures.py",
        "tests/test_growth_figures.py",
        "tests/test_architecture.py",
        "tests/test_startup.py",
        "tests/scores/test_within.py",
        "tests/validation",
    ),
    "further runs of a harness, of which there are some of every kind": (
        *(f"{ADAPTIVE}::test_{name}" for name in (
            "inspect_retries", "a_cancelled_run", "standard_output_is", "an_error_ends",
            "it_comes_to_its_end", "a_finished_test_can", "without_the_log", "a_run_without_any",
        )),
        "tests/adapters/lm_eval/test_in_memory.py::test_results_in_memory",
    ),
    "PyTorch in single precision and as if on a device: of `make test`": ("tests/device",),
    "long simulations of models, whose shorter tests are run": (
        "tests/adaptive/test_simulated_sessions.py",
        "tests/comparisons/test_power_curve.py",
        "tests/cli/test_pool.py",
        "tests/cli/test_power.py",
        "tests/hierarchical/test_capabilities.py",
        "tests/hierarchical/engines/test_crossed.py",
        "tests/hierarchical/engines/test_nested.py",
        "tests/hierarchical/engines/test_peers.py",
        "tests/irt/test_dif.py",
        "tests/irt/model/test_factor_fit.py",
        "tests/irt/model/test_stored_cells.py",
        "tests/irt/test_sum_score_fit.py",
        "tests/irt/estimators/test_variational.py",
        "tests/ranking/thurstone/test_thurstone.py",
    ),
}  # fmt: skip
"""Tests that are left out, by why."""


class Set(NamedTuple):
    """Dependencies to resolve, and tests to run with them."""

    python: str
    resolution: str
    extras: Sequence[str]
    tests: Sequence[str] = ("tests",)
    pinned: bool = False
    """Whether PyTorch is that of constraints.txt; it comes first, so that no other build does."""
    without: str = ""
    """What is missed, and why."""
    beside: Sequence[str] = ()
    """What else is installed, beside us."""


_NO_TORCH = "torch: the builds for this Python that the index has bring gigabytes of CUDA"
HARNESSES = (
    "tests/adapters", "tests/cli", "tests/test_contract.py", "tests/test_packaging.py",
    "tests/test_plugins.py",
)  # fmt: skip
MODELS = ("tests/hierarchical", "tests/irt", "tests/ranking")
PYMC = ("arviz>=1,<2", "opt_einsum", "pymc>=6")
"""ArviZ's later major, which needs Python 3.12, and a program that asks for it."""

SETS = {
    "lowest": Set("3.11", "lowest-direct", (*WITHOUT_TORCH, *WITH_TORCH), pinned=True),
    "newest, Python 3.12": Set("3.12", "highest", WITHOUT_TORCH, HARNESSES, without=_NO_TORCH),
    "newest, Python 3.13": Set("3.13", "highest", WITHOUT_TORCH, without=_NO_TORCH, beside=PYMC),
}
"""What `make test-versions` runs."""

BIG = {
    "lowest torch": Set("3.11", "lowest-direct", WITH_TORCH, MODELS),
    "newest torch, Python 3.13": Set("3.13", "highest", WITH_TORCH, MODELS),
}
"""Run when named: PyTorch from the index, 5 GB each, removed again."""


def interpreter(version: str) -> Path:
    """Return a Python of some version: on the path, or one of pyenv's."""
    names = [
        f"python{version}",
        *sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python")),
    ]
    for name in names:
        found = shutil.which(name)
        if (
            found
            and subprocess.run([found, "-V"], capture_output=True, check=False).returncode == 0
        ):
            return Path(found)
    msg = f"no Python {version} found on the path or with pyenv"
    raise FileNotFoundError(msg)


def make_environment(name: str, chosen: Set, tree: Path) -> Path:
    """Install the package from a tree, with what it needs; return the environment's Python."""
    uv = _uv()
    folder = _folder(name)
    python = folder / "bin" / "python"
    run = [uv, "pip", "install", "--quiet", "--python", python]
    wheels = (
        ["--find-links", os.environ["PIP_FIND_LINKS"]] if "PIP_FIND_LINKS" in os.environ else []
    )
    _do(uv, "venv", "--quiet", "--clear", "--seed", "--python", interpreter(chosen.python), folder)
    if chosen.pinned:
        _do(*run, "--constraints", ROOT / "constraints.txt", *wheels, "torch")
        wheels = ["--constraints", ROOT / "constraints.txt", *wheels]
    asked = f"{tree}[{','.join(chosen.extras)}]"
    _do(*run, *wheels, "--resolution", chosen.resolution, "--editable", asked, *chosen.beside)
    # Tools do not move what was resolved.
    kept = folder / "resolved.txt"
    found = {name: number for name, number in versions(python).items() if name != "python"}
    kept.write_text("".join(f"{name}=={number}\n" for name, number in found.items()))
    _do(*run, *wheels, "--constraints", kept, *TOOLS)
    return python


def _folder(name: str) -> Path:
    return FOLDER / name.replace(",", "").replace(" ", "-")


def _uv() -> Path:
    """Return uv, from an environment of its own."""
    uv = FOLDER / "uv" / "bin" / "uv"
    if not uv.exists():
        _do(sys.executable, "-m", "venv", FOLDER / "uv")
        _do(uv.with_name("pip"), "install", "--quiet", "uv")
    return uv


def _do(*arguments: object) -> None:
    subprocess.run(list(map(str, arguments)), check=True)


def copy_tree(tree: Path) -> None:
    """Copy what git knows or would add, so that nobody's edits get into a run."""
    listed = subprocess.run(
        [shutil.which("git") or "git", "ls-files", "-co", "--exclude-standard", "-z"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tree / name)


def run_tests(python: Path, tree: Path, chosen: Set) -> dict[str, Any]:
    """Run the tests of a set on a tree, in one process, and count."""
    report = python.parents[1] / "report.xml"
    run = [python, "-m", "pytest", "-q", "-n", "1", "-p", "no:cacheprovider", "--tb=short"]
    names = [name for left_out in LEFT_OUT.values() for name in left_out]
    own = {"OMP_NUM_THREADS": "1", "EVALSTATS_NO_CONFIG": "1", "EVALSTATS_EXAMPLES": "10"}
    before = _cpu_seconds()
    subprocess.run(
        [*map(str, run), f"--junitxml={report}", *map(_left_out, names), *chosen.tests],
        check=False,
        cwd=tree,
        env={**os.environ, **own},
    )
    return {**counted(report), "cpu_seconds": round(_cpu_seconds() - before)}


def _left_out(name: str) -> str:
    return f"--{'deselect' if '::' in name else 'ignore'}={name}"


def _cpu_seconds() -> float:
    """Of processes that this one started, and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def counted(report: Path) -> dict[str, Any]:
    """Return how many tests passed, how many were skipped and why, and which failed.

    A module that was skipped is one of "modules", however many tests it has.
    """
    skipped: dict[str, Counter[str]] = {"tests": Counter(), "modules": Counter()}
    failed: list[str] = []
    passed = 0
    for case in ET.parse(report).getroot().iter("testcase"):  # noqa: S314 - pytest's own
        skip = case.find("skipped")
        if skip is not None:
            module = skip.get("message") == "collection skipped"
            said = str(skip.text) if module else str(skip.get("message"))
            reason = said.partition("Skipped: ")[2] or said
            skipped["modules" if module else "tests"][reason.rstrip("')")] += 1
        elif case.find("failure") is not None or case.find("error") is not None:
            failed.append(f"{case.get('classname')}::{case.get('name')}")
        else:
            passed += 1
    return {
        "passed": passed,
        "skipped": {kind: dict(counts.most_common()) for kind, counts in skipped.items()},
        "failed": sorted(failed),
    }


def versions(python: Path) -> dict[str, str]:
    """Return what is installed of what pyproject names, and its Python."""
    code = (
        "import json, platform, sys\nfrom importlib.metadata import version, PackageNotFoundError\n"
        "found = {'python': platform.python_version()}\nfor name in sys.argv[1:]:\n"
        "    try: found[name] = version(name)\n    except PackageNotFoundError: pass\n"
        "print(json.dumps(found))"
    )
    done = subprocess.run(
        [str(python), "-c", code, *direct()], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def direct() -> list[str]:
    """Return the names of what pyproject asks for, the extras' too."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [project["dependencies"], *project["optional-dependencies"].values()]
    return sorted({name.partition(">")[0] for names in asked for name in names})


SYSTEMS = ("x86_64-manylinux_2_28", "aarch64-apple-darwin", "x86_64-pc-windows-msvc")
WITH_WHEELS = ("cluster", "figures", "inspect", "models", "rank", "text")
"""Extras of which everything has wheels; lm-eval asks for pure Python to build, as sqlitedict."""


def with_wheels(python: str) -> dict[str, int]:
    """Return how many packages a Python needs, all as wheels, by system; nothing is installed.

    Raises
    ------
    subprocess.CalledProcessError
        Something has no wheel.
    """
    extras = [part for extra in WITH_WHEELS for part in ("--extra", extra)]
    found: dict[str, int] = {}
    for system in SYSTEMS:
        done = subprocess.run(
            [str(_uv()), "pip", "compile", "--quiet", "--no-header", "--no-annotate",
             "--only-binary", ":all:", "--python-version", python, "--python-platform", system,
             *extras, "pyproject.toml"],
            capture_output=True, text=True, check=True, cwd=ROOT,
        )  # fmt: skip
        found[system] = done.stdout.count("==")
    return found


def main() -> None:
    """Run the sets named, or all, and keep the figures; of all, wheels of the newest Python too."""
    figures = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    if sys.argv[1:2] == ["--failed"]:
        for name in sys.argv[2:]:
            _run_failed(name, figures[name])
            _keep(figures)
        return
    for name in sys.argv[1:] or SETS:
        chosen = (SETS | BIG)[name]
        with tempfile.TemporaryDirectory() as folder:
            tree = Path(folder)
            copy_tree(tree)
            python = make_environment(name, chosen, tree)
            found = run_tests(python, tree, chosen)
        figures[name] = {
            "date": date.today().isoformat(),
            "versions": versions(python),
            "tests": list(chosen.tests),
            "without": chosen.without,
            **found,
        }
        print(name, json.dumps(figures[name], indent=2), flush=True)
        _keep(figures)
        if name in BIG:
            shutil.rmtree(_folder(name))
    if not sys.argv[1:]:
        python = pythons()[-1]
        _keep({**figures, "wheels": {python: with_wheels(python)}})


def pythons() -> list[str]:
    """Return the versions of Python that the classifiers name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = [line.rpartition(" ")[2] for line in project["classifiers"] if "Python :: 3." in line]
    return sorted(found, key=lambda version: int(version.partition(".")[2]))


def _run_failed(name: str, figures: dict[str, Any]) -> None:
    """Run what failed again, in the environment that is there, on the tree as it is now."""
    names = [
        f"{module.replace('.', '/')}.py::{test}"
        for module, _, test in (each.partition("::") for each in figures["failed"])
    ]
    names = [each for each in names if each.partition("::")[0] not in sum(LEFT_OUT.values(), ())]
    with tempfile.TemporaryDirectory() as folder:
        tree, python = Path(folder), _folder(name) / "bin" / "python"
        copy_tree(tree)
        _do(_uv(), "pip", "install", "--quiet", "--no-deps", "--python", python, "--editable", tree)
        found = run_tests(python, tree, (SETS | BIG)[name]._replace(tests=names))
    for kind, counts in found["skipped"].items():
        figures["skipped"][kind] = dict(Counter(figures["skipped"][kind]) + Counter(counts))
    figures["passed"] += found["passed"]
    figures["failed"] = found["failed"]
    figures["run_again"] = len(names)
    figures["cpu_seconds"] += found["cpu_seconds"]


def _keep(figures: dict[str, Any]) -> None:
    FIGURES.write_text(json.dumps({**figures, "left_out": LEFT_OUT}, indent=2) + "\n")


if __name__ == "__main__":
    main()
