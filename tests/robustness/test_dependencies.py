"""What pyproject promises of versions, against the last runs with both ends of them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.dependencies import PYMC, SETS, SYSTEMS, pythons

ROOT = Path(__file__).parents[2]
RECORDED: dict[str, Any] = json.loads(
    (ROOT / "benchmarks" / "results" / "dependencies.json").read_text()
)
LEFT_OUT: dict[str, list[str]] = RECORDED["left_out"]
WHEELS: dict[str, dict[str, int]] = RECORDED["wheels"]
FIGURES: dict[str, Any] = {
    name: RECORDED[name] for name in RECORDED.keys() - {"left_out", "wheels"}
}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ASKED = [
    requirement
    for names in (PROJECT["dependencies"], *PROJECT["optional-dependencies"].values())
    for requirement in names
    if not requirement.startswith(PROJECT["name"])
]
UNOBTAINABLE = {"torch"}
"""Older CPU builds are on no index that we reach; see constraints.txt."""
HELD_HIGHER = {"click", "pyarrow", "rich"}
"""An extra asks for a later one than the package does."""
WITHIN_ANOTHER = {"loky"}
"""The recorded run had joblib 1.4.0, which contains loky 3.4.1."""
ADDED_LATER = {"jinja2"}
"""Since the recorded run; the tests of the page pass with 3.1.0 and MarkupSafe 2.0.0."""

EXEMPT = UNOBTAINABLE | HELD_HIGHER | WITHIN_ANOTHER | ADDED_LATER


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def _starts(version: str, bound: str) -> bool:
    """Whether a version is the first of those that a bound allows."""
    found, least = _numbers(version), _numbers(bound)
    return found[: len(least)] == least and not any(found[len(least) :])


def test_nothing_fails_at_either_end() -> None:
    """`python -m benchmarks.dependencies`: what was skipped says why."""
    assert {"lowest", "newest, Python 3.12", "newest, Python 3.13"} <= set(FIGURES)
    for found in FIGURES.values():
        assert [] == found["failed"]
        assert found["passed"] > 400
        skipped = dict(found["skipped"]["tests"])
        if found["without"].startswith("torch:"):
            skipped.pop("needs torch")
        assert sum(skipped.values()) < 0.05 * found["passed"]
    assert {} == FIGURES["lowest"]["skipped"]["modules"]


def test_tests_that_are_left_out_are_there() -> None:
    """Each by a name that begins as that of some test does."""
    for name in (name for names in LEFT_OUT.values() for name in names):
        path, _, test = name.partition("::")

        assert (ROOT / path).exists(), name
        assert not test or f"\ndef {test}" in (ROOT / path).read_text(), name


_TESTS = """
import pytest

@pytest.mark.needs("torch", "no_such_module")
def test_skipped(): raise AssertionError

@pytest.mark.needs("pytest>=10000")
def test_of_later(): raise AssertionError

@pytest.mark.needs("json", "pytest>=8")
def test_run(): pass

@pytest.mark.needs("chromium")
def test_of_a_program(): raise AssertionError

@pytest.mark.needs("pdflatex")
def test_of_another(): raise AssertionError
"""


@pytest.fixture
def report(tmp_path: Path) -> Callable[[str], str]:
    """Give what is said of some tests where there is no PyTorch."""
    conftest = (ROOT / "tests" / "conftest.py").read_text()
    absent = "import sys\nsys.modules['torch'] = None\n"
    (tmp_path / "conftest.py").write_text(f"{conftest}\n{absent}")
    (tmp_path / "test_marked.py").write_text(_TESTS)
    (tmp_path / "test_importing.py").write_text("import torch.nn\ndef test(): pass")
    (tmp_path / "test_ours.py").write_text("import evalstats_plugin.nothing\ndef test(): pass")

    def run(all_wanted: str) -> str:
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c",
             ROOT / "pyproject.toml", "--rootdir", tmp_path, "-o", "addopts=--strict-markers",
             "--continue-on-collection-errors", tmp_path],
            capture_output=True, text=True, check=False, cwd=tmp_path,
            env={**os.environ, "EVALSTATS_REQUIRE_ALL": all_wanted, "PATH": str(tmp_path)},
        ).stdout  # fmt: skip

    return run


def test_what_needs_a_module_that_is_not_there_is_skipped(report: Callable[[str], str]) -> None:
    """But not where something else is not there, a module of ours above all."""
    said = report("")

    assert "1 passed, 5 skipped, 1 error" in said
    assert "No module named 'evalstats_plugin.nothing'" in said
    assert (
        "Skipped, because these are not here: chromium (1), pdflatex (1), pytest>=10000 (1), "
        "torch (2). To run them: apt-get install chromium texlive-latex-recommended "
        "texlive-science; pip install --group dev"
    ) in said


def test_nothing_is_skipped_where_all_tests_are_wanted(report: Callable[[str], str]) -> None:
    """As by `.ci/run`, a program no more than a module."""
    said = report("1")

    assert "1 passed, 6 errors" in said
    for name in ("torch", "chromium", "pdflatex"):
        assert f"Failed: needs {name}" in said
    assert (ROOT / ".ci" / "run").read_text().endswith("\nEVALSTATS_REQUIRE_ALL=1 make test\n")


@pytest.mark.parametrize(
    ("user", "apt", "all_wanted", "code", "said"),
    [
        (0, 0, "", 0, "Installing what some tests need and pip has not, by apt-get: chromium t"),
        (0, 100, "", 0, "no network\napt-get failed (all of it: "),
        (0, 100, "1", 2, "no network\napt-get failed (all of it: "),
        (1000, 0, "", 0, ""),
        (0, None, "", 0, ""),
    ],
)
def test_programs_are_installed_where_they_can_be(
    user: int, apt: int | None, all_wanted: str, code: int, said: str, tmp_path: Path
) -> None:
    """By root, with apt-get, which says so first; its failure is fatal where all is wanted."""
    make = shutil.which("make")
    if make is None:
        pytest.skip("needs make")
    tools = {
        "id": f"echo {user}",
        "apt-get": f"echo $* >> {tmp_path}/asked; echo no network; exit {apt}",
    }
    for name in ("sh", "tail"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    for name, script in tools.items():
        if name != "apt-get" or apt is not None:
            (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
            (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        [make, "-s", "programs", f"VENV={tmp_path}"], capture_output=True, text=True, check=False,
        cwd=ROOT, env={"PATH": str(tmp_path), "EVALSTATS_REQUIRE_ALL": all_wanted},
    )  # fmt: skip

    assert done.returncode == code
    assert said in done.stdout
    assert bool(done.stdout) == bool(said)
    asked = (tmp_path / "asked").read_text() if (tmp_path / "asked").exists() else ""
    assert ("install -y -qq --no-install-recommends chromium" in asked) == (apt == 0 and user == 0)


def test_the_lowest_versions_are_those_of_pyproject() -> None:
    """Each lower bound was installed, and nothing goes without one but what others bring."""
    found = FIGURES["lowest"]["versions"]
    bounds = dict(re.fullmatch(r"([\w-]+)>=([\d.]+).*", r).groups() for r in ASKED if ">=" in r)  # type: ignore[union-attr]
    checked = {
        name for name, bound in bounds.items() if name not in EXEMPT and _starts(found[name], bound)
    }

    assert checked == set(bounds) - EXEMPT
    assert all(_numbers(found[n]) >= _numbers(bounds[n]) for n in UNOBTAINABLE | HELD_HIGHER)


def test_each_python_of_the_classifiers_ran_or_has_wheels() -> None:
    """The newest, which may not be at hand, at least has all packages on all systems."""
    ran = {found["versions"]["python"].rpartition(".")[0] for found in FIGURES.values()}

    assert set(pythons()) == ran | set(WHEELS)
    assert [pythons()[-1]] == list(WHEELS)
    assert set(WHEELS[pythons()[-1]]) == set(SYSTEMS)
    assert min(WHEELS[pythons()[-1]].values()) > 100


def test_both_majors_of_arviz_are_among_the_sets() -> None:
    """The later one beside PyMC, which asks for it."""
    assert "arviz>=0.17,<2" in ASKED
    assert FIGURES["lowest"]["versions"]["arviz"].startswith("0.17")
    assert [s.beside for s in SETS.values() if s.beside] == [PYMC]
    assert {"arviz>=1,<2", "pymc>=6"} <= set(PYMC)
