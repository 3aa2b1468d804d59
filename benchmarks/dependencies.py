"""The tests, with the oldest dependencies that pyproject allows, and with the newest.

``python -m benchmarks.dependencies [SET...]`` makes an environment for each set in
``.venv-bench``, installs a copy of the working tree there, runs what tests can run, and
keeps versions and counts. ``make test`` runs on one Python, with pinned harnesses; these are the
other ends. uv resolves them, which knows what "lowest" means.
"""

from __future__ import annotations

import json
import os
import re
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

WITHOUT_TORCH = ("cluster", "figures", "inspect", "lm-eval", "parallel", "rank", "text")
EXTRAS = (*WITHOUT_TORCH, "hierarchical", "irt", "mcmc")
TOOLS = ("hypothesis>=6.100", "jsonschema", "pytest>=8.2", "pytest-xdist>=3.6", "scikit-learn",
         "setuptools>=77", "wheel")  # fmt: skip
HARNESSES = ("tests/adapters/inspect_ai", "tests/adapters/lm_eval")
"""Tests that start them, or hold what we do against what they do."""

EXPLAINED = {
    r"newer than the installed": "a log that a later Inspect wrote is not rewritten",
    r"No module named '(?:moto|playwright|latex2mathml|accelerate|transformers|torch)": (
        "needs what was not installed: moto, playwright, transformers or torch"
    ),
    r"'-m', 'pip'": "installs with pip, which the environment did not have",
    r"_nct_sf": "the noncentral t of this SciPy, compared with, divides by zero",
    r"bootstrap\(\) got an unexpected keyword argument 'rng'": "SciPy's bootstrap had no rng yet",
    r"has no attribute 'headline'": "Inspect's results had no headline yet",
    r"_to_masked\(\)": "pandas 2.1.0 cannot drop the duplicates that Inspect's samples_df drops",
    r"^assert '\{\\n  \"result": (
        "the fixture is of lm-eval 0.4.13 on Python 3.11; others write, or add up, otherwise"
    ),
    r"0\.04179359199028117 == 0\.04179359199028119": "Python 3.12 adds up more exactly than 3.11",
    r"where 2 = len\(\[EvalMetric\(name='ci95_low'": (
        "this Inspect logs fewer metrics of the same run"
    ),
    r"TimeoutExpired": "ran out of time beside other work on the machine",
}
"""What a failure's text says where it is not ours, and why it comes."""


class Set(NamedTuple):
    """Dependencies to resolve, and tests to run with them."""

    python: str
    resolution: str
    extras: Sequence[str]
    tests: Sequence[str]


SETS = {
    "lowest": Set(
        "3.11",
        "lowest-direct",
        EXTRAS,
        ("tests/adapters", "tests/report", "tests/analyses", "tests/cli", "tests/stats",
         *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("tests/test_*.py"))),
    ),
    "newest, Python 3.12": Set("3.12", "highest", WITHOUT_TORCH, HARNESSES),
    "newest, Python 3.13": Set("3.13", "highest", WITHOUT_TORCH, HARNESSES),
}  # fmt: skip


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
    folder = FOLDER / name.replace(",", "").replace(" ", "-")
    python = folder / "bin" / "python"
    run = [uv, "pip", "install", "--quiet", "--python", python]
    wheels = (
        ["--find-links", os.environ["PIP_FIND_LINKS"]] if "PIP_FIND_LINKS" in os.environ else []
    )
    _do(uv, "venv", "--quiet", "--clear", "--seed", "--python", interpreter(chosen.python), folder)
    asked = f"{tree}[{','.join(chosen.extras)}]"
    # torch in the one build that needs no gigabytes of CUDA.
    own = ["--constraints", ROOT / "constraints.txt", *wheels, "--resolution", chosen.resolution]
    _do(*run, *own, "--editable", asked)
    _do(*run, *wheels, *TOOLS)
    return python


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
    """Run the tests of a set on a tree, and count."""
    report = tree / "report.xml"
    run = [python, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "-p", "no:cacheprovider"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "EVALSTATS_NO_CONFIG": "1"}
    subprocess.run(
        [*map(str, run), f"--junitxml={report}", *chosen.tests],
        check=False,
        cwd=tree,
        env=environment,
    )
    return counted(report)


def counted(report: Path) -> dict[str, Any]:
    """Return how many tests passed and were skipped, and which failed, with or without a reason."""
    cases = list(ET.parse(report).getroot().iter("testcase"))  # noqa: S314 - pytest's own
    explained: Counter[str] = Counter()
    failed: set[str] = set()
    skipped = 0
    for case in cases:
        skipped += case.find("skipped") is not None
        found = case.find("failure")
        found = case.find("error") if found is None else found
        if found is None:
            continue
        said = f"{found.get('message')}\n{found.text}"
        reason = next((why for what, why in EXPLAINED.items() if re.search(what, said)), None)
        if reason is None:
            failed.add(f"{case.get('classname')}::{case.get('name')}")
        else:
            explained[reason] += 1
    return {
        "passed": len(cases) - skipped - explained.total() - len(failed),
        "skipped": skipped,
        "explained": dict(explained),
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


def main() -> None:
    """Run the sets named, or all, and keep the figures."""
    figures = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    for name in sys.argv[1:] or SETS:
        chosen = SETS[name]
        with tempfile.TemporaryDirectory() as folder:
            tree = Path(folder)
            copy_tree(tree)
            python = make_environment(name, chosen, tree)
            found = run_tests(python, tree, chosen)
        figures[name] = {
            "date": date.today().isoformat(),
            "versions": versions(python),
            "tests": list(chosen.tests),
            **found,
        }
        print(name, json.dumps(figures[name], indent=2), flush=True)
        FIGURES.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
